-- SPDX-License-Identifier: MIT
--- contest: several clients compete for one thing, and get it one after the other. Every client has a key below a
-- common prefix, bound to its lease. The client whose key is oldest owns the thing. The Lock and Election services are
-- made of this, as in etcd.

local core = require "keywatch.core"
local names = require "keywatch.concurrency.names"
local queue = require "keywatch.concurrency.queue"
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

-- The access of a call to its queue: the call is a task, which is cancelled when the call is over.
local ACCESS = {
  range = function(_, store, key, opts) return store:range(key, opts) end,
  watch = function(_, store, key, opts) return store:watch(key, opts) end,
  next = function(_, watch) return watch:next() end,
  wait = function(_, waiter) return waiter.woken:wait() end,
}

--- Waits until no key below the prefix is older than `created`. Returns true; or nil and an error. If nobody waits yet,
-- a look at the store may do.
local function wait_for_others(server, prefix, created)
  if not queue.exists(server.queues, prefix) then
    local older, err = server.store:range(prefix, {
      prefix = true, keys_only = true, limit = 1, max_create_revision = created - 1,
    })
    if not older then return nil, err end
    if #older.kvs == 0 then return true end
  end
  return queue.wait(server.queues, server.store, prefix, created, ACCESS)
end

--- Enters the contest. Returns the client's key, its create revision, the kv that the client had there already, or nil,
-- and the revision of the store. On failure, nil and an error.
local function enter(store, prefix, lease, value)
  local key = names.key_of(prefix, lease)
  local result, err = store:txn {
    compare = { { key = key, create_revision = 0 } },
    success = { { put = key, value = value, lease = lease } },
    failure = { { get = key } },
  }
  if not result then return nil, err end
  if result.succeeded then return key, result.revision, nil, result.revision end
  return key, result.responses[1].create_revision, result.responses[1], result.revision
end

--- Waits until the client's key is the oldest. Returns true; or nil and an error. If the wait fails, or the call is
-- cancelled, even as its turn comes, the client's key is deleted.
local function wait_for_turn(server, call, prefix, key, created)
  local ok, has_turn, err = pcall(wait_for_others, server, prefix, created)
  if ok and has_turn and not call.is_over then return true end
  pcall(server.store.delete, server.store, key) -- raises if the store is closed
  if not ok then error(has_turn, 0) end
  if has_turn then error(core.new_error("cancelled"), 0) end
  return nil, err
end

--- Returns the kv of the owner, and the revision of the store, if the queue knows the owner. A queue may be behind the
-- store; but a key that was the oldest stays so until the key is deleted.
local function known_owner(server, prefix)
  local key, created = queue.oldest(server.queues, prefix)
  local result = key and server.store:range(key)
  local kv = result and result.kvs[1]
  if kv and kv.create_revision == created then return kv, result.revision end
end

--- Returns the kv of the owner, or nil, and the revision of the store; on failure, nil and an error.
local function owner(server, prefix)
  local kv, revision = known_owner(server, prefix)
  if kv then return kv, revision end
  local result, err = server.store:range(prefix, names.OLDEST)
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
