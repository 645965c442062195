-- SPDX-License-Identifier: MIT
--- contest: several want one thing, and get it in turn. Each has a key of its own below a prefix, bound to its lease;
-- whose key was created first has it. Locks and elections are made of this, as etcd makes them.

local core = require "keywatch.core"
local refusal = require "keywatch.server.services.refusal"

local DEFAULT_TTL = 60 -- of the lease of those who bring none

--- What the store says no to is said in its words; the status is the one that etcd's services have for all of that.
local function unknown(err)
  return refusal.new(refusal.UNKNOWN, err.message or tostring(err))
end

--- The lease that a request names, or a new one.
local function lease_of(server, request)
  if request.lease and core.decimal(request.lease) ~= "0" then return request.lease end
  local lease, err = server.store:lease(DEFAULT_TTL)
  if not lease then return nil, unknown(err) end
  return lease.id
end

local function key_of(prefix, lease)
  return prefix .. core.hex(lease)
end

--- Whoever was created last before `revision`.
local function last_before(store, prefix, revision)
  local result, err = store:range(prefix, {
    prefix = true, sort_target = "create", sort_order = "descend", limit = 1, max_create_revision = revision,
  })
  if not result then return nil, err end
  return result.kvs[1], result.revision
end

--- Waits until a key is deleted, after `revision`.
local function wait_for_delete(store, key, revision)
  local watch, err = store:watch(key, { start_revision = revision + 1, filters = { "no_put" } })
  if not watch then return nil, err end
  local ok, event, why = pcall(watch.next, watch)
  watch:close()
  if not ok then error(event, 0) end
  return event, why
end

--- Waits until nobody is left who was created up to `revision`. Returns the revision of the store then.
local function wait_for_others(store, prefix, revision)
  while true do
    local kv, seen = last_before(store, prefix, revision)
    if not kv and type(seen) == "table" then return nil, seen end
    if not kv then return seen end
    local event, err = wait_for_delete(store, kv.key, seen)
    if not event then return nil, err end
  end
end

--- Enters the contest: the own key, its create revision, what was there before if it is not new, and the revision.
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

--- Waits for the own turn. Whoever loses interest meanwhile leaves.
local function wait_for_turn(store, prefix, key, created)
  local ok, revision, err = pcall(wait_for_others, store, prefix, created - 1)
  if ok and revision then return revision end
  pcall(store.delete, store, key) -- of a store that is closed nothing can be deleted
  if not ok then error(revision, 0) end
  return nil, err
end

--- Who has it now, and the revision of the store.
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
