-- SPDX-License-Identifier: MIT
--- lock: etcd's Lock service.

local exclusion = require "keywatch.server.services.exclusion"
local header = require "keywatch.server.services.header"
local names = require "keywatch.concurrency.names"
local refusal = require "keywatch.server.services.refusal"

--- Returns the answer to a call that has the lock; or nil and a refusal. The caller has lost the lock if its key was
-- deleted while the call waited, even if another call with the same lease has put the key again, since that call is
-- later in the queue.
local function answer(server, key, created)
  local result, err = server.store:range(key)
  if not result then return nil, exclusion.unknown(err) end
  local kv = result.kvs[1]
  if not kv or kv.create_revision ~= created then
    return nil, refusal.new(refusal.UNKNOWN, "mutex: session is expired")
  end
  return { header = header.of(server, result.revision), key = key }
end

--- Answers as soon as the caller has the lock.
local function lock(server, request, call)
  local store, prefix = server.store, names.prefix_of(request.name or "")
  local lease, err = exclusion.lease_of(server, request)
  if not lease then return nil, err end
  local key, created = exclusion.enter(store, prefix, lease, "")
  if not key then return nil, exclusion.unknown(created) end
  local function finish() return answer(server, key, created) end
  return exclusion.answer_in_turn(server, call, prefix, key, created, finish)
end

--- Deletes the caller's key, and with it the lock.
local function unlock(server, request)
  local result, err = server.store:delete(request.key or "")
  if not result then return nil, exclusion.unknown(err) end
  return { header = header.of(server, result.revision) }
end

return {
  ["/v3lockpb.Lock/Lock"] = { "LockRequest", "LockResponse", lock },
  ["/v3lockpb.Lock/Unlock"] = { "UnlockRequest", "UnlockResponse", unlock, max_bytes = exclusion.KEY_BYTES },
}
