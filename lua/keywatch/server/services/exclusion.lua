-- SPDX-License-Identifier: MIT
--- exclusion: mutual exclusion of clients, on which the Lock and Election services are built, as in etcd. Every client
-- has a key below a common prefix, bound to its lease. The client with the oldest key owns the lock, or leads.

local calls = require "keywatch.server.call"
local core = require "keywatch.core"
local driver = require "keywatch.task.driver"
local errors = require "keywatch.support.errors"
local log = require "keywatch.support.log"
local names = require "keywatch.concurrency.names"
local queue = require "keywatch.server.services.queue"
local refusal = require "keywatch.server.services.refusal"
local worker = require "keywatch.task.worker"

local NAME_BYTES = 4000 -- limit of a name: a waiting call holds its name, and Leader is a request of 4 KiB
local KEY_BYTES = 16384 -- limit of a request with a name, and with a key, which begins with the name
local DEFAULT_TTL = 60 -- seconds, for the lease of a client that has none

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

--- Puts the client's key, unless it exists. Returns the key, its create revision, the kv that the client already had
-- there, or nil, and the revision of the store. On failure, nil and an error.
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

-- {====== Turns ======

--- Deletes the key of a call that has failed or ended, even in a cancelled task. Never raises, even if the store is
-- closed.
local function delete_key(server, key)
  local store = server.store
  local ok, deleted, err = driver.finish(pcall, store.delete, store, key)
  if not ok then err = deleted end
  if err == nil or errors.text_of(err):find("is closed", 1, true) then return end
  server.log.warn("the key %s of an ended call could not be deleted, and exists until its lease ends: %s",
    log.quote(key), errors.text_of(err))
end

-- A turn: a call that waits until its key is the oldest. The call waits without a task: see `enroll` of queue.lua and
-- `defer` of server/call.lua.
local turn_methods = {}
local turn_mt = { __index = turn_methods }

--- The function of a worker: deletes the key of a call that has ended.
local function delete_key_of(turn)
  delete_key(turn.call.server, turn.key)
end

--- Returns the answer to a call whose wait has ended, or nil and a refusal. If the wait has failed, the client's key is
-- deleted.
local function end_wait(turn, err)
  queue.leave(turn)
  if err == nil then return turn.finish() end
  delete_key(turn.call.server, turn.key)
  return nil, unknown(err)
end

--- Called by the queue when it is the turn of the call, or the wait has failed.
function turn_methods:wake(err)
  calls.resume(self.call, function() return end_wait(self, err) end)
end

--- Called when the call has ended and was not answered, even if it is its turn: the client's key is deleted.
function turn_methods:give_up()
  queue.leave(self)
  worker.start(delete_key_of, self)
end

--- True if no key below the prefix is older than `created`. False if that is unknown because other calls wait, too. On
-- failure, nil and an error.
local function is_oldest(server, prefix, created)
  if queue.exists(server.queues, prefix) then return false end
  local older, err = server.store:range(prefix, {
    prefix = true, keys_only = true, limit = 1, max_create_revision = created - 1,
  })
  if not older then return nil, err end
  return #older.kvs == 0
end

--- Answers a call as soon as the client's key is the oldest: finish() returns the answer, or nil and a refusal. Returns
-- the result for the handler of the call. If the wait fails, or the call ends before its turn, the client's key is
-- deleted.
local function answer_in_turn(server, call, prefix, key, created, finish)
  local ok, has_turn, err = pcall(is_oldest, server, prefix, created)
  if not ok or has_turn == nil or call.has_ended then
    delete_key(server, key)
    if not ok then error(has_turn, 0) end
    if has_turn ~= nil then error(core.new_error("cancelled"), 0) end
    return nil, unknown(err)
  end
  if has_turn then return finish() end
  local turn = setmetatable({ call = call, key = key, finish = finish, timer = nil, queue = nil }, turn_mt)
  local deferred = calls.defer(call, turn)
  queue.enroll(server.queues, server.store, prefix, created, turn)
  return deferred
end

-- }======

--- Returns the kv of the owner, and the revision of the store, if the queue knows the owner. A queue may lag behind the
-- store; but a key that was the oldest remains the oldest until the key is deleted.
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
  NAME_BYTES = NAME_BYTES,
  KEY_BYTES = KEY_BYTES,
  unknown = unknown,
  lease_of = lease_of,
  enter = enter,
  answer_in_turn = answer_in_turn,
  owner = owner,
}
