-- SPDX-License-Identifier: MIT
--- election: etcd's Election service.

local calls = require "keywatch.server.call"
local contenders = require "keywatch.concurrency.contenders"
local exclusion = require "keywatch.server.services.exclusion"
local core = require "keywatch.core"
local header = require "keywatch.server.services.header"
local names = require "keywatch.concurrency.names"
local refusal = require "keywatch.server.services.refusal"
require "keywatch.watch.local_origin" -- store:watch

local function no_leader_given()
  return nil, refusal.new(refusal.UNKNOWN, '"leader" field must be provided')
end

--- Returns a compare that holds if the key of a leader is still the leader's. If a client has sent a number that is not
-- a revision, or on LuaJIT a string, the compare is that of a key that does not exist.
local function leader_compare(leader)
  local rev = leader.rev or 0
  if type(rev) == "number" and rev >= 0 then return { key = leader.key or "", create_revision = rev } end
  return { key = leader.key or "", create_revision = 0, op = "<" }
end

--- Applies an operation to the leader's key, if the key is still the leader's. Returns the result of the transaction.
local function as_leader(store, leader, op)
  return store:txn { compare = { leader_compare(leader) }, success = { op } }
end

--- Changes the value of a leader. Returns the revision; or nil and a refusal.
local function set_value(store, leader, value)
  local result, err = as_leader(store, leader, { put = leader.key or "", value = value, lease = leader.lease })
  if not result then return nil, exclusion.unknown(err) end
  if not result.succeeded then return nil, refusal.new(refusal.UNKNOWN, "election: not leader") end
  return result.revision
end

--- Answers as soon as the caller is the leader. The header has the revision at which the caller entered, as in etcd,
-- however long the wait was.
local function campaign(server, request, call)
  local store, prefix, value = server.store, names.prefix_of(request.name or ""), request.value or ""
  if #prefix - 1 > exclusion.NAME_BYTES then return nil, core.new_error("request_too_large") end
  local lease, err = exclusion.lease_of(server, request)
  if not lease then return nil, err end
  local key, created, before, revision = exclusion.enter(store, prefix, lease, value)
  if not key then return nil, exclusion.unknown(created) end
  local leader = { name = request.name, key = key, rev = created, lease = lease }
  if before and before.value ~= value then
    local ok
    ok, err = set_value(store, leader, value)
    if not ok then return nil, err end
  end
  return exclusion.answer_in_turn(server, call, prefix, key, created, function()
    return { header = header.of(server, revision), leader = leader }
  end)
end

--- Changes the value of the leader, if the caller is still the leader.
local function proclaim(server, request)
  if not request.leader then return no_leader_given() end
  local revision, err = set_value(server.store, request.leader, request.value or "")
  if not revision then return nil, err end
  return { header = header.of(server, revision) }
end

--- Deletes the leader's key. If the caller is no longer the leader, changes nothing and succeeds, as in etcd.
local function resign(server, request)
  if not request.leader then return no_leader_given() end
  local result, err = as_leader(server.store, request.leader, { delete = request.leader.key or "" })
  if not result then return nil, exclusion.unknown(err) end
  return { header = header.of(server, result.revision) }
end

--- Returns the kv of the current leader.
local function leader(server, request)
  local kv, revision = exclusion.owner(server, names.prefix_of(request.name or ""))
  if not kv and type(revision) == "table" then return nil, exclusion.unknown(revision) end
  if not kv then return nil, refusal.new(refusal.UNKNOWN, "election: no leader") end
  return { header = header.of(server, revision), kv = kv }
end

--- Sends every value of a leader until the leader's key is deleted. Stores the progress in at.revision.
local function send_until_deleted(server, call, watch, at)
  for event in watch:events() do
    at.revision = event.mod_revision
    if event.type == "delete" then return end
    call:send { header = header.of(server, event.mod_revision), kv = contenders.kv_of(event) }
  end
end

--- Waits for the first leader after `revision`, at which there was no leader. Returns the leader's kv, and its
-- revision. Raises if the watch fails.
local function wait_for_leader(store, prefix, revision)
  local watch = store:watch(prefix, { prefix = true, start_revision = revision + 1, filters = { "no_delete" } })
  local ok, event, err = pcall(watch.next, watch)
  watch:close()
  if not ok then error(event, 0) end
  if not event then error(err, 0) end
  return contenders.kv_of(event), event.mod_revision
end

--- Sends the leader and every later leader, until the client cancels the call. No change is missed: each watch begins
-- right after the revision of the read before it. `at` has the key of the leader whose value was sent, or nil, and the
-- revision up to which everything was sent, or nil.
local function follow(server, call, prefix, at)
  local store = server.store
  while true do
    local kv
    if not at.revision then
      local revision
      kv, revision = exclusion.owner(server, prefix)
      if not kv and type(revision) == "table" then return nil, exclusion.unknown(revision) end
      at.revision = revision
    end
    if not kv and not at.key then kv, at.revision = wait_for_leader(store, prefix, at.revision) end
    if kv then at.key = kv.key end
    local watch = store:watch(at.key, { start_revision = at.revision + 1 })
    local ok, err = pcall(function()
      if kv then call:send { header = header.of(server, at.revision), kv = kv } end
      send_until_deleted(server, call, watch, at)
      at.key, at.revision = nil, nil
    end)
    watch:close()
    if not ok then error(err, 0) end
  end
end

--- Answers a call of Observe.
local function observe(server, call)
  local request, at = call:receive(), { key = nil, revision = nil }
  local prefix = names.prefix_of(request and request.name or "")
  return calls.continue(call, function() return follow(server, call, prefix, at) end)
end

return {
  ["/v3electionpb.Election/Campaign"] = { "CampaignRequest", "CampaignResponse", campaign, max_bytes = math.huge },
  ["/v3electionpb.Election/Proclaim"] = { "ProclaimRequest", "ProclaimResponse", proclaim, max_bytes = math.huge },
  ["/v3electionpb.Election/Resign"] = { "ResignRequest", "ResignResponse", resign, max_bytes = exclusion.KEY_BYTES },
  ["/v3electionpb.Election/Leader"] = { "LeaderRequest", "LeaderResponse", leader },
  ["/v3electionpb.Election/Observe"] = { "LeaderRequest", "LeaderResponse", observe,
    is_stream = true, takes_one = true },
}
