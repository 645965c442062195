-- SPDX-License-Identifier: MIT
--- maintenance: the methods of etcd's service of that name.

local core = require "keywatch.core"
local driver = require "keywatch.task.driver"
local header = require "keywatch.server.services.header"
local refusal = require "keywatch.server.services.refusal"

local VERSION = "3.5.21" -- the etcd that clients may take us for

local PIECE = 32768 -- bytes of a snapshot in one message, as etcd has it
local SUM = 32      -- the bytes of its SHA-256

local HASH_OF_NOTHING = 1084519789 -- the CRC-32C of "key"

local NAMES = { NOSPACE = "no_space", CORRUPT = "corrupt" } -- of alarms: on the wire, and in the store
local WIRE_NAMES = { no_space = "NOSPACE", corrupt = "CORRUPT" }

local ALARMS = "alarms" -- the table of what the store keeps of other members' alarms: NAME/ID
local MOST_ALARMS = 100 -- of other members; a cluster has seven at most

-- {====== Alarms ======
-- An alarm belongs to a member. Those of this member are the store's own; those of others are kept with the store,
-- which heeds them all alike.

--- All alarms, as { memberID, alarm }, and how many of them are of other members; or nil and an error.
local function alarms_of(server)
  local all, own = server.store:alarms()
  if #all == 0 then return {}, 0 end
  local others, err = server.store:rows(ALARMS)
  if not others then return nil, err end
  local list = {}
  for _, name in ipairs(own) do list[#list + 1] = { memberID = server.identity.member_id, alarm = WIRE_NAMES[name] } end
  for _, pair in ipairs(others) do
    local name, id = pair[1]:match("^(.*)/(.*)$")
    list[#list + 1] = { memberID = id, alarm = WIRE_NAMES[name] }
  end
  return list, #others
end

local function is_among(alarms, wanted)
  for _, alarm in ipairs(alarms) do
    if alarm.memberID == wanted.memberID and alarm.alarm == wanted.alarm then return true end
  end
  return false
end

local function other_key(alarm)
  return NAMES[alarm.alarm] .. "/" .. alarm.memberID
end

local alarm_actions = {}

function alarm_actions.GET(_, alarms, wanted)
  local found = {}
  for _, alarm in ipairs(alarms) do
    if wanted.alarm == "NONE" or wanted.alarm == alarm.alarm then found[#found + 1] = alarm end
  end
  return found
end

function alarm_actions.ACTIVATE(server, alarms, wanted, n_others)
  if not NAMES[wanted.alarm] then return {} end
  local ok, err = true, nil
  if wanted.memberID == server.identity.member_id then
    ok, err = server.store:arm(NAMES[wanted.alarm])
  elseif not is_among(alarms, wanted) then
    if n_others >= MOST_ALARMS then
      return nil, refusal.new(refusal.RESOURCE_EXHAUSTED, "keywatch: there are too many alarms of other members")
    end
    ok, err = server.store:change_rows { { ALARMS, other_key(wanted), "" } }
  end
  return ok and { wanted }, err
end

function alarm_actions.DEACTIVATE(server, alarms, wanted)
  if not is_among(alarms, wanted) then return {} end
  local ok, err
  if wanted.memberID == server.identity.member_id then
    ok, err = server.store:disarm_own(NAMES[wanted.alarm])
  else
    ok, err = server.store:change_rows { { ALARMS, other_key(wanted) } }
  end
  return ok and { wanted }, err
end

local function alarm(server, request)
  local action = alarm_actions[request.action or "GET"]
  local alarms, n_others = alarms_of(server)
  if not alarms then return nil, n_others end
  local wanted = { memberID = core.decimal(request.memberID or 0), alarm = request.alarm or "NONE" }
  local found, err = {}, nil
  if action then found, err = action(server, alarms, wanted, n_others) end
  if not found then return nil, err end
  return { header = header.of(server, server.store:status().revision), alarms = found }
end

local function alarm_errors(server)
  local errors = {}
  for i, one in ipairs(alarms_of(server) or {}) do
    errors[i] = ("memberID:%s alarm:%s "):format(one.memberID, one.alarm)
  end
  return errors
end

-- }======

--- There is no raft: its index is the revision, which grows with every write, too. Clients divide by dbSize.
local function status(server)
  local state = server.store:status()
  return {
    header = header.of(server, state.revision),
    version = VERSION,
    dbSize = math.max(state.db_size, 1),
    dbSizeInUse = state.db_size_in_use,
    leader = server.identity.member_id,
    raftIndex = state.revision,
    raftAppliedIndex = state.revision,
    raftTerm = server.raft_term,
    errors = alarm_errors(server),
  }
end

--- Its answer has no header, as etcd's has none.
local function defragment(server)
  local ok, err = server.store:defragment()
  if not ok then return nil, err end
  return {}
end

--- A sum over all that is stored. etcd's goes over its file; this one, over what HashKV goes over.
local function hash(server)
  local sum, err = server.store:hash_kv()
  if not sum then return nil, err end
  return { header = header.of(server, sum.revision), hash = sum.hash }
end

--- Up to a revision below 0 there is nothing, and of that etcd gives the sum.
local function hash_kv(server, request)
  local revision = tonumber(request.revision or 0)
  local sum, err = server.store:hash_kv(math.max(revision, 0))
  if not sum then return nil, err end
  return {
    header = header.of(server, sum.revision),
    hash = revision < 0 and HASH_OF_NOTHING or sum.hash,
    compact_revision = sum.compact_revision,
    hash_revision = revision < 0 and request.revision or sum.hash_revision,
  }
end

-- {====== Snapshot ======

--- Waits until the snapshot is whole: true; or nil and an error.
local function await(server, snapshot)
  local ready = driver.get().event()
  server.snapshots[snapshot] = ready
  local is_ready, err = snapshot:is_ready()
  while is_ready == false do
    ready:wait()
    is_ready, err = snapshot:is_ready()
  end
  server.snapshots[snapshot] = nil
  return is_ready, err
end

--- Sends some bytes; nil and a refusal if the client takes none any more.
local function send_piece(server, call, bytes, remaining)
  if call:send({ blob = bytes, remaining_bytes = remaining }, server.stall_seconds) then return true end
  return nil, refusal.new(refusal.ABORTED, "keywatch: the snapshot was not read for too long")
end

--- The file in pieces, and then its sum.
local function send_all(server, call, snapshot)
  local ok, err = await(server, snapshot)
  local size, at = ok and snapshot:size(), 0
  while ok and at < size do
    local n = math.min(PIECE, size - at)
    local bytes
    bytes, err = snapshot:read(at, n)
    at = at + n
    if not bytes then return nil, err end
    ok, err = send_piece(server, call, bytes, size - at)
  end
  if not ok then return nil, err end
  return send_piece(server, call, snapshot:read(size, SUM), 0)
end

--- It is the disk that is full, and not the store.
local function explain(err)
  if not err or err.code ~= "no_space" then return err end
  return refusal.new(refusal.RESOURCE_EXHAUSTED, "keywatch: there is no room on the disk for the snapshot")
end

--- Whatever ends it, the snapshot is not kept.
local function snapshot(server, call)
  call:receive()
  local image, err = server.store:open_snapshot()
  if not image then return nil, explain(err) end
  local ok, done, fault = pcall(send_all, server, call, image)
  server.snapshots[image] = nil
  image:close()
  if not ok then error(done, 0) end
  return done, explain(fault)
end

-- }======

--- To itself is done already; there is nobody else.
local function move_leader(server, request)
  if core.decimal(request.targetID or 0) == server.identity.member_id then return {} end
  return nil, refusal.new(refusal.FAILED_PRECONDITION, "etcdserver: bad leader transferee")
end

local DOWNGRADE_TO = "3.4" -- the only version that a 3.5 goes down to

--- A version that etcd would take: "3.4" or "3.4.x". There is no job to run.
local function downgrade(server, request)
  local action = request.action or "VALIDATE"
  if action == "CANCEL" then
    return nil, refusal.new(refusal.FAILED_PRECONDITION, "etcdserver: no inflight downgrade job")
  end
  local major, minor = (request.version or ""):match("^v?(%d+)%.(%d+)")
  if not major then
    return nil, refusal.new(refusal.INVALID_ARGUMENT, "etcdserver: wrong downgrade target version format")
  end
  if major .. "." .. minor ~= DOWNGRADE_TO or action ~= "VALIDATE" then
    return nil, refusal.new(refusal.INVALID_ARGUMENT, "etcdserver: invalid downgrade target version")
  end
  return { header = header.of(server, server.store:status().revision), version = VERSION:match("^%d+%.%d+") }
end

return {
  ["/etcdserverpb.Maintenance/Defragment"] = { "DefragmentRequest", "DefragmentResponse", defragment },
  ["/etcdserverpb.Maintenance/Hash"] = { "HashRequest", "HashResponse", hash },
  ["/etcdserverpb.Maintenance/HashKV"] = { "HashKVRequest", "HashKVResponse", hash_kv },
  ["/etcdserverpb.Maintenance/MoveLeader"] = { "MoveLeaderRequest", "MoveLeaderResponse", move_leader },
  ["/etcdserverpb.Maintenance/Downgrade"] = { "DowngradeRequest", "DowngradeResponse", downgrade },
  ["/etcdserverpb.Maintenance/Snapshot"] = { "SnapshotRequest", "SnapshotResponse", snapshot,
    is_stream = true, takes_one = true },
  ["/etcdserverpb.Maintenance/Status"] = { "StatusRequest", "StatusResponse", status },
  ["/etcdserverpb.Maintenance/Alarm"] = { "AlarmRequest", "AlarmResponse", alarm },
}
