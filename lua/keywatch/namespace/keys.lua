-- SPDX-License-Identifier: MIT
--- keys: keys, ranges and results between a namespace and its owner.
--
-- A namespace is { prefix =, range_end =, first = }: the owner's keys that begin with `prefix` and are longer, the
-- range_end of all of them, and the least of them. The owner's key `prefix` itself is not in the namespace: inside, its
-- name would be the empty key, which no store has.
--
-- What is not a key, or not a range, is given to the owner as it is: the owner refuses it in the words that a caller
-- knows.

local check = require "keywatch.support.check"

local sub = string.sub

--- Returns the owner's name of a key. The empty key stays empty: it is as wrong inside as outside.
local function outer(space, key)
  if type(key) ~= "string" or key == "" then return key end
  return space.prefix .. key
end

--- Returns the owner's name of a range_end: "\0" means the end of the namespace, "" that there is no range.
local function outer_end(space, range_end)
  if range_end == "\0" then return space.range_end end
  return outer(space, range_end)
end

--- Replaces the fields prefix, from_key and range_end of a table by those for the owner. Returns the owner's name of
-- the key that the fields are about.
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

--- Returns the key and the options of a range, as the owner takes them. The caller's table stays as it is. A prefix
-- that is not empty needs no change: the end of its range follows from the owner's name of the key.
local function range(space, key, opts)
  if type(opts) ~= "table" then return outer(space, key), opts end
  local is_plain = rawget(opts, "range_end") == nil and not rawget(opts, "from_key")
  if is_plain and (key ~= "" or not rawget(opts, "prefix")) then return outer(space, key), opts end
  local own = check.copy(opts)
  return set_range(space, key, own), own
end

--- Cuts the prefix off the keys of a list of kvs.
local function cut(space, kvs)
  local from = #space.prefix + 1
  for i = 1, #kvs do
    local kv = kvs[i]
    kv.key = sub(kv.key, from)
  end
end

return { outer = outer, set_range = set_range, range = range, cut = cut }
