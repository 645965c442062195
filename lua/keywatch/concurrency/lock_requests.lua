-- SPDX-License-Identifier: MIT
--- lock_requests: the two requests of locks and elections: one creates a key, unless it exists, and reads which key is
-- the oldest; the other one deletes a key.
--
-- Both are transactions. A client gets their parts, and encodes them itself: a transaction as a table would cost more
-- than the rest of the request. Its metatable has the field __lock_requests: claim(client, prefix, key, value, lease,
-- is_try, deadline) and unclaim(client, key, created, times), which return what `create` and `delete` return.

local core = require "keywatch.core"
local bases = require "keywatch.concurrency.base"

--- Sends the transaction that creates a key, as a table: through any object with the methods of a store.
local function create_by_table(owner, prefix, key, value, lease, is_try, deadline)
  local range = {
    range = prefix, prefix = true, sort_target = "create", sort_order = "ascend", limit = 1, keys_only = true,
  }
  local result, err = owner:txn {
    compare = { { key = is_try and prefix or key, prefix = is_try or nil, create_revision = 0 } },
    success = { { put = key, value = value, lease = lease }, range },
    failure = { { get = key }, range },
    deadline = deadline,
  }
  if not result then return nil, err end
  local own, oldest = result.responses[1], result.responses[2].kvs[1]
  if not result.succeeded and not own then return false end
  if not oldest then -- after the own key there is always an oldest one
    local malformed = core.new_error("malformed")
    malformed.maybe_done = true
    return nil, malformed
  end
  if result.succeeded then
    return result.revision, oldest.create_revision == result.revision, nil, result.revision
  end
  return own.create_revision, oldest.create_revision == own.create_revision, own.value, result.revision
end

--- Creates a key of an owner below a prefix, bound to a lease, unless it exists; with is_try, unless there is any key
-- below the prefix. Returns the create revision of the key, true if it is the oldest, the value that it had already, or
-- nil, and the revision of the store; or false if it was not created and does not exist; or nil and an error.
local function create(owner, prefix, key, value, lease, is_try, deadline)
  local root, before = bases.renamed(owner)
  local lock_requests = root and getmetatable(root).__lock_requests
  if not lock_requests then return create_by_table(owner, prefix, key, value, lease, is_try, deadline) end
  if before ~= "" then prefix, key = before .. prefix, before .. key end
  return lock_requests.claim(root, prefix, key, value, lease, is_try, deadline)
end

--- Deletes a key that was created at a revision, and no later one, so a delayed request does no harm.
-- `root` is a store or a client. Returns true, or false if there is no such key; or nil and an error.
local function delete(root, key, created, times)
  local lock_requests = getmetatable(root).__lock_requests
  if lock_requests then return lock_requests.unclaim(root, key, created, times) end
  local result, err = root:txn({
    compare = { { key = key, create_revision = created } },
    success = { { delete = key } },
  }, times)
  if not result then return nil, err end
  return result.succeeded
end

return { create = create, delete = delete }
