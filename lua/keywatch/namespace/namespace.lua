-- SPDX-License-Identifier: MIT
--- namespace: the keys of an owner that begin with a prefix, under names without the prefix. A namespace has the
-- methods of its owner: a store, a client, or any other object with their methods.
--
-- Each method adds the prefix to the keys for the owner, and removes it from the keys of the answer. Watches and leases
-- are those of the owner, with keys without the prefix. A namespace consists only of its owner and the prefix.

local check = require "keywatch.support.check"
local errors = require "keywatch.support.errors"
local exists = require "keywatch.store.exists"
local key_order = require "keywatch.support.key_order"
local keys = require "keywatch.namespace.keys"
local lease = require "keywatch.store.lease"
local pages = require "keywatch.store.pages"
local transaction = require "keywatch.namespace.transaction"
local watches = require "keywatch.watch.watch"

--- Returns the owner, and the owner's name of a key: see concurrency/base.lua.
local function base(self, key)
  return self.owner, self.prefix .. key
end

local methods = {}
local mt = check.store_like {
  __name = "keywatch.namespace", __index = methods, __base = base, __only_renames = true,
}

local closed_methods = setmetatable({}, { __index = methods })
local closed_mt = check.store_like { __name = "keywatch.namespace", __index = closed_methods, __base = base }

--- Raises if a method was not called with a colon.
local function check_self(self, name)
  if getmetatable(self) ~= mt then check.self(self, name, closed_mt) end
end

--- Returns the prefix and the owner.
function mt:__tostring()
  local prefix = self.prefix:gsub('[%c\127-\255"\\]', function(c) return ("\\x%02x"):format(c:byte()) end)
  local is_closed = getmetatable(self) == closed_mt
  return ("keywatch.namespace<%s of %s%s>"):format(prefix, tostring(self.owner), is_closed and " closed" or "")
end

closed_mt.__tostring = mt.__tostring

--- Returns a namespace: the keys of the owner that begin with a prefix. A namespace of a namespace has the same owner.
local function new(owner, prefix)
  check.self(owner, "namespace")
  check.argument(type(prefix) == "string", 1, "namespace", "string", prefix)
  if getmetatable(owner) == mt then owner, prefix = owner.owner, owner.prefix .. prefix end
  return setmetatable({
    owner = owner,
    prefix = prefix,
    range_end = key_order.prefix_end(prefix),
    first = prefix .. "\0", -- the least key
  }, mt)
end

-- {====== Keys and values ======
--
-- The owner is called by pcall, so that misuse is raised at the line that called the namespace. In get and put, which
-- are called most, keys.outer is written out for speed.

local getmetatable, pcall, type = getmetatable, pcall, type

--- Returns the kv of a key, or nil; or nil and an error.
function methods:get(key, opts)
  if getmetatable(self) ~= mt then check_self(self, "get") end
  local owner, outer = self.owner, key
  if type(key) == "string" and key ~= "" then outer = self.prefix .. key end
  local ok, kv, err = pcall(owner.get, owner, outer, opts)
  if not ok then check.raise_again(kv, "get") end
  if kv then kv.key = key end
  if err then return nil, err end
  return kv
end

--- Reads a range of keys. Returns the result, or nil and an error.
function methods:range(key, opts)
  check_self(self, "range")
  local owner = self.owner
  local ok, result, err = pcall(owner.range, owner, keys.range(self, key, opts))
  if not ok then check.raise_again(result, "range") end
  if not result then return nil, err end
  keys.cut(self, result.kvs)
  return result
end

--- Sets the value of a key. Returns the result, or nil and an error.
function methods:put(key, value, opts)
  if getmetatable(self) ~= mt then check_self(self, "put") end
  local owner, outer = self.owner, key
  if type(key) == "string" and key ~= "" then outer = self.prefix .. key end
  local ok, result, err = pcall(owner.put, owner, outer, value, opts)
  if not ok then check.raise_again(result, "put") end
  if not result then return nil, err end
  if result.prev_kv then result.prev_kv.key = key end
  return result
end

--- Deletes a key, or a range of keys. Returns the result, or nil and an error.
function methods:delete(key, opts)
  check_self(self, "delete")
  local owner = self.owner
  local ok, result, err = pcall(owner.delete, owner, keys.range(self, key, opts))
  if not ok then check.raise_again(result, "delete") end
  if not result then return nil, err end
  if result.prev_kvs then keys.cut(self, result.prev_kvs) end
  return result
end

--- Executes a transaction. Returns the result, or nil and an error.
function methods:txn(txn, opts)
  check_self(self, "txn")
  local owner = self.owner
  local ok, result, err = pcall(owner.txn, owner, transaction.outer(self, txn), opts)
  if not ok then check.raise_again(result, "txn") end
  if not result then return nil, err end
  transaction.cut(self, result)
  return result
end

methods.each = pages.each
methods.exists = exists

-- }======

--- Watches a key, or a range of keys. Returns the watch, or nil and an error. As for every watch, the empty key means
-- the first possible key.
function methods:watch(key, opts)
  check_self(self, "watch")
  local owner = self.owner
  local outer_key, outer_opts = keys.range(self, key, opts)
  if outer_key == "" then outer_key = self.first end
  local ok, watch, err = pcall(owner.watch, owner, outer_key, outer_opts)
  if not ok then check.raise_again(watch, "watch") end
  if not watch then return nil, err end
  watches.cut_keys(watch, #self.prefix, key)
  return watch
end

-- {====== Leases ======

methods.lease = lease.grant
methods.lease_by_id = lease.by_id

--- Returns the keys of a list that are in the namespace, under their names there.
local function keys_inside(self, list)
  local found, prefix = {}, self.prefix
  local n = #prefix
  for _, key in ipairs(list) do
    if #key > n and key:sub(1, n) == prefix then found[#found + 1] = key:sub(n + 1) end
  end
  return found
end

--- Returns the time that a lease has left, and its keys that are in the namespace; or nil and an error.
function methods:lease_time_to_live(id, opts)
  check_self(self, "lease_time_to_live")
  local owner = self.owner
  local info, err = check.call("lease", owner.lease_time_to_live, owner, id, opts)
  if not info then return nil, err end
  info.keys = info.keys and keys_inside(self, info.keys)
  return info
end

-- }======

-- {====== Methods about the whole store ======

for _, name in ipairs {
  "leases", "status", "compact", "hash_kv", "lease_grant", "lease_revoke", "lease_keepalive", "lease_keeper",
} do
  methods[name] = function(self, ...)
    check_self(self, name)
    local owner = self.owner
    return check.results(check.call(name, owner[name], owner, ...))
  end
end

for _, name in ipairs {
  "alarms", "disarm", "defragment", -- of stores
  "call", "stream", "state", "members", "health", "sync_endpoints", -- of clients
} do
  methods[name] = function(self)
    check_self(self, name)
    check.misuse("%s: a namespace does not have this method, its owner may: call namespace.owner:%s", name, name)
  end
end

-- }======

-- {====== Closing ======

--- Closes the namespace. Its owner stays open, and so do watches and leases that the namespace has returned, which
-- belong to the owner.
function methods:close()
  check_self(self, "close")
  setmetatable(self, closed_mt)
end

mt.__close = methods.close
closed_mt.__close = methods.close

for _, name in ipairs {
  "get", "range", "put", "delete", "txn", "watch", "cache", "leases", "status", "compact", "hash_kv", "lease_grant",
  "session", "lock", "try_lock", "election", "informer", -- which would bypass the namespace
} do
  closed_methods[name] = function(self)
    check_self(self, name)
    return nil, errors.closed("namespace")
  end
end

-- }======

return { new = new, methods = methods, mt = mt }
