-- SPDX-License-Identifier: MIT
--- requests: the methods to which a rule applies, and the keys that a request touches.
--
-- A range of keys is { first, behind }: from `first` on, up to but not including `behind`; nil: to the end.

local core = require "keywatch.core"
local key_order = require "keywatch.support.key_order"
local methods = require "keywatch.client.methods"

local KV, LEASE = "/etcdserverpb.KV/", "/etcdserverpb.Lease/"

-- Paths by the names that methods of keywatch have.
local NAMES = {
  get = { KV .. "Range" },
  range = { KV .. "Range", KV .. "RangeStream" },
  put = { KV .. "Put" },
  delete = { KV .. "DeleteRange" },
  txn = { KV .. "Txn" },
  compact = { KV .. "Compact" },
  watch = { "/etcdserverpb.Watch/Watch" },
  lease = { LEASE .. "LeaseGrant" },
  revoke = { LEASE .. "LeaseRevoke" },
  keepalive = { LEASE .. "LeaseKeepAlive" },
  remaining = { LEASE .. "LeaseTimeToLive" },
  leases = { LEASE .. "LeaseLeases" },
  status = { "/etcdserverpb.Maintenance/Status" },
}

-- Groups of these names.
local GROUPS = {
  read = { "range", "remaining", "leases", "status" },
  write = { "put", "delete", "txn", "compact", "lease", "revoke" },
}
for group, names in pairs(GROUPS) do
  NAMES[group] = {}
  for _, name in ipairs(names) do
    for _, path in ipairs(NAMES[name]) do table.insert(NAMES[group], path) end
  end
end

--- Returns the paths of a rule's field `method`, which is a name, a path, or a list of these, as the keys of a table.
-- Returns false for nil, which means all methods; or nil and the reason if there is no such method.
local function paths(given)
  if given == nil then return false end
  if type(given) == "string" then given = { given } end
  local found = {}
  if type(given) ~= "table" or #given == 0 then return nil, "'method' must be a name, or a list of names" end
  for _, name in ipairs(given) do
    local list = NAMES[name] or type(name) == "string" and name:find("^/[^/]+/[^/]+$") and { name }
    if not list then return nil, ("there is no method '%s'"):format(tostring(name)) end
    for _, path in ipairs(list) do found[path] = true end
  end
  return found
end

--- Returns the range of a key and a range_end, as requests have them.
local function range_of(key, range_end)
  if range_end == nil or range_end == "" then return { key, key .. "\0" } end
  return { key, range_end ~= "\0" and range_end or nil }
end

--- Returns the range of a key, or of all keys with a prefix.
local function range(key, is_prefix)
  return range_of(key, is_prefix and key_order.prefix_end(key) or nil)
end

--- True if two ranges have a key in common.
local function overlap(a, b)
  return (not b[2] or a[1] < b[2]) and (not a[2] or b[1] < a[2])
end

--- Adds the range of a message with the fields key and range_end to a list.
local function add(list, message)
  list[#list + 1] = range_of(message.key or "", message.range_end)
end

--- Adds the ranges of a transaction to a list.
local function add_txn(list, txn)
  for _, compare in ipairs(txn.compare or {}) do add(list, compare) end
  for _, branch in ipairs { txn.success or {}, txn.failure or {} } do
    for _, op in ipairs(branch) do
      local message = op.request_range or op.request_put or op.request_delete_range
      if message then add(list, message) end
      if op.request_txn then add_txn(list, op.request_txn) end
    end
  end
end

-- Paths of the requests that have keys.
local HAS_KEYS = {}
for _, name in ipairs { "range", "put", "delete", "txn" } do
  for _, path in ipairs(NAMES[name]) do HAS_KEYS[path] = true end
end

--- True if requests of a path have keys.
local function has_keys(path) return HAS_KEYS[path] == true end

--- True if requests of one of several paths, the keys of a table, have keys.
local function has_any_keys(of)
  for path in pairs(of) do
    if HAS_KEYS[path] then return true end
  end
  return false
end

--- Returns the ranges that a request of a path that has keys touches.
local function ranges(path, bytes)
  local message, list = core.decode(methods[path].request, bytes), {}
  if not message then return list end
  if path == NAMES.txn[1] then add_txn(list, message) else add(list, message) end
  return list
end

--- True if a request touches a range of keys. `of` are the ranges of the request; nil: unknown.
local function touches(of, wanted)
  for _, one in ipairs(of or {}) do
    if overlap(one, wanted) then return true end
  end
  return false
end

return {
  paths = paths, range = range, has_keys = has_keys, has_any_keys = has_any_keys, ranges = ranges, touches = touches,
}
