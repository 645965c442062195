-- SPDX-License-Identifier: MIT
--- maintenance: etcd's Maintenance service.

local alarm_names = require "keywatch.server.alarm_names"
local core = require "keywatch.core"
local driver = require "keywatch.task.driver"
local header = require "keywatch.server.services.header"
local refusal = require "keywatch.server.services.refusal"
local snapshot_reader = require "keywatch.server.snapshot_reader"
local versions = require "keywatch.server.versions"

local PIECE = 32768 -- bytes of a snapshot in one message, as in etcd
local SUM = 32      -- bytes of a snapshot's SHA-256
local GAVE_WAY = "keywatch: the snapshot was read slowly, and another client needs its place"

local HASH_OF_NOTHING = 1084519789 -- the CRC-32C of "key"

local MOST_REVISION = 2 ^ 53 - 1 -- far above any revision, and a number on LuaJIT

local NAMES = { NOSPACE = "no_space", CORRUPT = "corrupt" } -- alarms: names of the store, by names on the wire

local ALARMS = "alarms" -- the table of rows for alarms of other members, with keys NAME/ID
local MOST_ALARMS = 100 -- of other members; a cluster has at most seven members

-- {====== Alarms ======
-- An alarm belongs to a member. Alarms of this member are the store's own. Alarms of other members are rows of the
-- store. Both have the same effect on the store.

--- Returns all alarms, as { memberID, alarm }, and how many of them belong to other members; or nil and an error.
local function alarms_of(server)
  local all, own = server.store:alarms(), server.store:alarms(true)
  if #all == 0 then return {}, 0 end
  local others, err = server.store:rows(ALARMS)
  if not others then return nil, err end
  local list, id = {}, server.identity.member_id
  for _, name in ipairs(own) do list[#list + 1] = { memberID = id, alarm = alarm_names[name] } end
  for _, key in ipairs(others) do
    local name, other = key:match("^(.*)/(.*)$")
    list[#list + 1] = { memberID = other, alarm = alarm_names[name] }
  end
  return list, #others
end

--- True if a list contains the same alarm of the same member.
local function is_among(alarms, wanted)
  for _, alarm in ipairs(alarms) do
    if alarm.memberID == wanted.memberID and alarm.alarm == wanted.alarm then return true end
  end
  return false
end

--- Returns the key of the row for another member's alarm.
local function other_key(alarm)
  return NAMES[alarm.alarm] .. "/" .. alarm.memberID
end

local alarm_actions = {} -- each returns the alarms of the answer; or nil and an error

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

--- Returns everything that does not work, as texts for Status: the alarms, the errors of the store, and that no
-- connection can be accepted.
local function errors_of(server, state)
  local errors = {}
  for i, one in ipairs(alarms_of(server) or {}) do
    errors[i] = ("memberID:%s alarm:%s "):format(one.memberID, one.alarm)
  end
  for _, text in ipairs(state.errors) do errors[#errors + 1] = text end
  errors[#errors + 1] = server.trouble.accept_failure
  return errors
end

-- }======

--- Answers Status. There is no raft: the revision is used as raft's index, since both grow with every write. dbSize is
-- never 0, since clients divide by it. dbSizeQuota is below 0 if there is no quota, as in etcd.
local function status(server)
  local state = server.store:status()
  return {
    header = header.of(server, state.revision),
    version = versions.server,
    dbSize = math.max(state.db_size, 1),
    dbSizeInUse = state.db_size_in_use,
    leader = server.identity.member_id,
    raftIndex = state.revision,
    raftAppliedIndex = state.revision,
    raftTerm = server.raft_term,
    errors = errors_of(server, state),
    storageVersion = versions.storage,
    dbSizeQuota = state.quota > 0 and state.quota or -1,
    downgradeInfo = {},
  }
end

--- Defragments the store. The answer has no header, as in etcd.
local function defragment(server)
  local ok, err = server.store:defragment()
  if not ok then return nil, err end
  return {}
end

--- Returns a hash of the whole store. etcd hashes its file; keywatch hashes the same data as HashKV.
local function hash(server)
  local sum, err = server.store:hash_kv()
  if not sum then return nil, err end
  return { header = header.of(server, sum.revision), hash = sum.hash }
end

--- For a revision below 0 etcd answers with the hash of an empty store.
local function hash_kv(server, request)
  local revision = tonumber(request.revision or 0)
  local sum, err = server.store:hash_kv(math.max(0, math.min(revision, MOST_REVISION)))
  if not sum then return nil, err end
  return {
    header = header.of(server, sum.revision),
    hash = revision < 0 and HASH_OF_NOTHING or sum.hash,
    compact_revision = sum.compact_revision,
    hash_revision = revision < 0 and request.revision or sum.hash_revision,
  }
end

-- {====== Snapshot ======

--- Waits until the snapshot is written. Returns true; or nil and an error.
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

--- Sends some bytes. Returns true; or nil and a refusal if the client stops reading, or was ended for another reader.
local function send_piece(server, call, reader, bytes, remaining)
  local piece = { blob = bytes, remaining_bytes = remaining, version = versions.storage }
  local is_taken = call:send(piece, server.stall_seconds)
  if reader.is_ended then return nil, refusal.new(refusal.ABORTED, GAVE_WAY) end
  reader:note(#bytes)
  if is_taken then return true end
  return nil, refusal.new(refusal.ABORTED, "keywatch: the snapshot was not read for too long")
end

--- Sends the file in pieces, and then its SHA-256. Returns true; or nil and an error.
local function send_all(server, call, reader)
  local snapshot = reader.image
  local ok, err = await(server, snapshot)
  reader:note(0)
  local size, at = ok and snapshot:size(), 0
  while ok and at < size do
    local n = math.min(PIECE, size - at)
    local bytes
    bytes, err = snapshot:read(at, n)
    at = at + n
    if not bytes then return nil, err end
    ok, err = send_piece(server, call, reader, bytes, size - at)
  end
  if not ok then return nil, err end
  return send_piece(server, call, reader, snapshot:read(size, SUM), 0)
end

--- Returns the error for the client: `no_space` means here that the disk is full, not that the store is over its quota.
-- With the status UNAVAILABLE of a failed storage etcd's clients would retry forever.
local function explain(err)
  if err and err.code == "storage" then return refusal.new(refusal.FAILED_PRECONDITION, err.message) end
  if not err or err.code ~= "no_space" then return err end
  return refusal.new(refusal.RESOURCE_EXHAUSTED, "keywatch: there is no space on the disk for the snapshot")
end

--- Sends a snapshot. The snapshot's file is removed when the call ends, for whatever reason.
local function snapshot(server, call)
  call:receive()
  local reader, err = snapshot_reader.open(server.store, call)
  if not reader then return nil, explain(err) end
  local ok, done, fault = pcall(send_all, server, call, reader)
  server.snapshots[reader.image] = nil
  reader:close()
  if not ok then error(done, 0) end
  return done, explain(fault)
end

-- }======

--- Changes nothing: this member is the leader, and there is no other member.
local function move_leader(server, request)
  if core.decimal(request.targetID or 0) == server.identity.member_id then return {} end
  return nil, refusal.new(refusal.FAILED_PRECONDITION, "etcdserver: bad leader transferee")
end

local DOWNGRADE_TO = "3.4" -- the only version that etcd 3.5 can be downgraded to

--- Validates the version as etcd 3.5 does: "3.4" or "3.4.x". No downgrade can be enabled or cancelled.
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
  return { header = header.of(server, server.store:status().revision), version = versions.cluster }
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
