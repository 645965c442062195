-- SPDX-License-Identifier: MIT
--- contest: several clients compete for one thing, and get it one after the other. Every client has a key below a
-- common prefix, bound to its lease. The client whose key is oldest owns the thing. The Lock and Election services are
-- made of this, as in etcd.

local core = require "keywatch.core"
local refusal = require "keywatch.server.services.refusal"

local DEFAULT_TTL = 60 -- seconds, of the lease that a client without one gets

--- Returns a refusal with the text of a store's error. etcd's services have the status UNKNOWN for all of these.
local function unknown(err)
  return refusal.new(refusal.UNKNOWN, err.message or tostring(err))
end

--- Returns the lease that a request names, or a new one; or nil and a refusal.
local function lease_of(server, request)
  if request.lease and core.decimal(request.lease) ~= "0" then return request.lease end
  local lease, err = server.store:lease(DEFAULT_TTL)
  if not lease then return nil, unknown(err) end
  return lease.id
end

--- Returns the key of a client.
local function key_of(prefix, lease)
  return prefix .. core.hex(lease)
end

--- Returns the youngest kv that was created up to `revision`, or nil; and the revision of the store. On failure, nil
-- and an error.
local function last_before(store, prefix, revision)
  local result, err = store:range(prefix, {
    prefix = true, sort_target = "create", sort_order = "descend", limit = 1, max_create_revision = revision,
  })
  if not result then return nil, err end
  return result.kvs[1], result.revision
end

--- Waits until a key is deleted after `revision`. Returns the event; or nil and an error.
local function wait_for_delete(store, key, revision)
  local watch, err = store:watch(key, { start_revision = revision + 1, filters = { "no_put" } })
  if not watch then return nil, err end
  local ok, event, why = pcall(watch.next, watch)
  watch:close()
  if not ok then error(event, 0) end
  return event, why
end

--- Waits until no key is left that was created up to `revision`. Returns the revision of the store then; or nil and an
-- error.
local function wait_for_others(store, prefix, revision)
  while true do
    local kv, seen = last_before(store, prefix, revision)
    if not kv and type(seen) == "table" then return nil, seen end
    if not kv then return seen end
    local event, err = wait_for_delete(store, kv.key, seen)
    if not event then return nil, err end
  end
end

--- Enters the contest. Returns the client's key, its create revision, the kv that the client had there already, or nil,
-- and the revision of the store. On failure, nil and an error.
local function enter(store, prefix, lease, value)
  local key = key_of(prefix, lease)
  local result, err = store:txn {
    compare = { { key = key, create_revision = 0 } },
    success = { { put = key, value = value, lease = lease } },
    failure = { { get = key } },
  }
  if not result then return nil, err end
  if result.succeeded then return key, result.revision, nil, result.revision end
  return key, result.responses[1].create_revision, result.responses[1], result.revision
end

--- Waits until the client's key is the oldest. Returns the revision of the store then; or nil and an error. If the wait
-- fails, or its call is cancelled, the client's key is deleted.
local function wait_for_turn(store, prefix, key, created)
  local ok, revision, err = pcall(wait_for_others, store, prefix, created - 1)
  if ok and revision then return revision end
  pcall(store.delete, store, key) -- raises if the store is closed
  if not ok then error(revision, 0) end
  return nil, err
end

--- Returns the kv of the owner, or nil, and the revision of the store; on failure, nil and an error.
local function owner(store, prefix)
  local result, err = store:range(prefix, { prefix = true, sort_target = "create", sort_order = "ascend", limit = 1 })
  if not result then return nil, err end
  return result.kvs[1], result.revision
end

return {
  unknown = unknown,
  lease_of = lease_of,
  enter = enter,
  wait_for_turn = wait_for_turn,
  owner = owner,
}
