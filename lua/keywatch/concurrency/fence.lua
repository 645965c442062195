-- SPDX-License-Identifier: MIT
--- fence: an object with the methods of a store, whose writes succeed only while a lock, or a leadership, is held.
--
-- Every write is a transaction whose only compare is that the key of the lock has its create revision. The caller's
-- write is in its success branch, and a caller's transaction is nested there. So the store itself decides whether the
-- lock is held, at the moment of the write. If not, nothing is written, and the error is "lost". All other methods are
-- those of the wrapped object.

local check = require "keywatch.support.check"
local core = require "keywatch.core"
local exists = require "keywatch.store.exists"
local lease = require "keywatch.store.lease"
local pages = require "keywatch.store.pages"

local fence_methods, fence_mt = check.class "keywatch.fence"
check.store_like(fence_mt).__base = function(fence, key) return fence.owner, key end -- see base.lua

--- Returns a fence over an object with the methods of a store. `held` is a lock or a leadership of it, or a table with
-- the fields `key`, `revision` and `held_key` of one, which may change.
local function new(owner, held)
  return setmetatable({ owner = owner, held = held }, fence_mt)
end

--- Returns the key and the wrapped object.
function fence_mt:__tostring()
  return ("keywatch.fence<%s %s>"):format(self.held.key, tostring(self.owner))
end

-- {====== Writing ======

--- Writes one operation of a transaction, for the method `name`, if the lock is held. Returns the answer of the
-- operation, or nil and an error; and the revision of the store.
local function write(fence, name, op, timeout, deadline)
  local held = fence.held
  local held_key, key, revision = held.held_key, held.key, held.revision -- atomic
  local err = held_key:reason()
  if err then return nil, err end
  local owner = fence.owner
  local result, failure = check.call(name, owner.txn, owner, {
    compare = { { key = key, create_revision = revision } },
    success = { op },
    timeout = timeout,
    deadline = deadline,
  })
  if not result then return nil, failure end
  if result.succeeded then return result.responses[1], result.revision end
  held_key:lose()
  return nil, held_key:reason()
end

--- Like `write`, by an operation with the options of a plain call. The other arguments are those of the method, which
-- the core checks.
local function write_checked(fence, name, op, opts, ...)
  local bytes, timeout, deadline = check.call(name, core.requests[name], fence, ...)
  if not bytes then return nil, timeout end -- the error
  for field, value in pairs(name ~= "txn" and opts or {}) do
    if field ~= "timeout" and field ~= "deadline" then op[field] = value end
  end
  return write(fence, name, op, timeout, deadline)
end

--- Like store:put, if the lock is held.
function fence_methods:put(key, value, opts)
  local result, why = write_checked(self, "put", { put = key, value = value }, opts, key, value, opts)
  if not result then return nil, why end
  return result
end

--- Like store:delete, if the lock is held.
function fence_methods:delete(key, opts)
  local result, why = write_checked(self, "delete", { delete = key }, opts, key, opts)
  if not result then return nil, why end
  return result
end

--- Like store:txn, if the lock is held. The transaction is nested in another one: a failure branch keeps its meaning.
function fence_methods:txn(txn, opts)
  local inner = type(txn) == "table" and { compare = txn.compare, success = txn.success, failure = txn.failure }
  local result, why = write_checked(self, "txn", { txn = inner }, opts, txn, opts)
  if not result then return nil, why end
  result.revision = result.revision or why -- of the outer transaction
  return result
end

-- }======

-- {====== Everything else ======

for _, name in ipairs {
  "get", "range", "watch", "leases", "status", "hash_kv", "lease_grant", "lease_revoke", "lease_keepalive",
  "lease_time_to_live", "lease_keeper",
} do
  fence_methods[name] = function(self, ...)
    local owner = self.owner
    return check.results(check.call(name, owner[name], owner, ...))
  end
end

fence_methods.each = pages.each
fence_methods.exists = exists
fence_methods.lease = lease.grant
fence_methods.lease_by_id = lease.by_id

for name, what in pairs { compact = "the history is not the lock's", close = "it has nothing to close" } do
  fence_methods[name] = function()
    check.misuse("%s: a fence cannot do this, since %s: use the store or client itself", name, what)
  end
end

-- }======

--- Adds the method fence() to a class of locks or leaderships.
local function extend(class)
  --- Returns a fence: an object with the methods of a store, whose writes are done only while the object is held.
  function class.__index.fence(self)
    return new(self.owner, self)
  end
end

return { new = new, extend = extend, methods = fence_methods, mt = fence_mt }
