-- SPDX-License-Identifier: MIT
--- keys: converts keys, ranges and results between a namespace and its owner.
--
-- A namespace is { prefix =, range_end =, first = }: the owner's keys that begin with `prefix` and are longer, the
-- range_end of all of them, and the least of them. The owner's key `prefix` itself is not in the namespace: its name
-- there would be the empty key, which no store has.
--
-- Invalid keys and ranges are passed to the owner unchanged, so that the owner refuses them with its usual error.

local check = require "keywatch.support.check"

local sub = string.sub

--- Returns the owner's name of a key. The empty key stays empty, since it is invalid in a namespace, too.
local function outer(space, key)
  if type(key) ~= "string" or key == "" then return key end
  return space.prefix .. key
end

--- Returns the owner's name of a range_end: "\0" means the end of the namespace, "" means no range.
local function outer_end(space, range_end)
  if range_end == "\0" then return space.range_end end
  return outer(space, range_end)
end

--- Replaces the fields prefix, from_key and range_end of a table by those for the owner. Returns the owner's name of
-- the key to which the fields belong.
local function set_range(space, key, t)
  local prefix, from_key, range_end = t.prefix, t.from_key, t.range_end
  local is_all = key == "" and prefix == true and not from_key
  local has_no_end = from_key == true and not prefix
  if range_end == nil and type(key) == "string" and (is_all or has_no_end) then
    t.prefix, t.from_key, t.range_end = nil, nil, space.range_end
    return key == "" and space.first or space.prefix .. key
  end
  if range_end ~= nil and not prefix and not from_key then t.range_end = outer_end(space, range_end) end
  return outer(space, key)
end

--- Returns the key and the options of a range for the owner. The caller's table is not changed. The option `prefix`
-- needs no change if the key is not empty: the end of the range follows from the owner's name of the key.
local function range(space, key, opts)
  if type(opts) ~= "table" then return outer(space, key), opts end
  local is_plain = rawget(opts, "range_end") == nil and not rawget(opts, "from_key")
  if is_plain and (key ~= "" or not rawget(opts, "prefix")) then return outer(space, key), opts end
  local own = check.copy(opts)
  return set_range(space, key, own), own
end

--- Removes the prefix from the keys of a list of kvs.
local function cut(space, kvs)
  local from = #space.prefix + 1
  for i = 1, #kvs do
    local kv = kvs[i]
    kv.key = sub(kv.key, from)
  end
end

return { outer = outer, set_range = set_range, range = range, cut = cut }
