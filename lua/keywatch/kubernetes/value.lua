-- SPDX-License-Identifier: MIT
--- value: JSON values as keywatch.json decodes them: their types, copies, and whether two are equal.
--
-- A table is an array if keywatch.json has marked it, or if it has an element 1: a program may give a plain list. An
-- empty table without the mark is an object.

local compat = require "keywatch.support.compat"
local json = require "keywatch.json"
local order = require "keywatch.support.order"

local EXACT = 2 ^ 53 -- a larger float may have been rounded, and is no integer

local NULL = json.null
local array_mt = getmetatable(json.array {})

local is_integer = compat.is_integer
local getmetatable, rawget, rawequal, setmetatable = getmetatable, rawget, rawequal, setmetatable
local next, type = next, type

--- True if a value is an array.
local function is_array(value)
  return type(value) == "table" and (getmetatable(value) == array_mt or rawget(value, 1) ~= nil)
end

--- True if a value is an object.
local function is_object(value)
  return type(value) == "table" and not is_array(value)
end

--- True if a value is absent or null.
local function is_nothing(value)
  return value == nil or value == NULL
end

--- Returns the JSON type of a value: "object", "array", "string", "boolean", "null"; "integer" for a whole number, and
-- "number" for another one.
local function type_of(value)
  local kind = type(value)
  if kind == "table" then return is_array(value) and "array" or "object" end
  if kind == "number" then
    local is_whole = is_integer(value) or value % 1 == 0 and value <= EXACT and value >= -EXACT
    return is_whole and "integer" or "number"
  end
  return kind == "userdata" and "null" or kind
end

--- Returns a copy that shares no table with the value. Arrays are marked.
local function copy(value)
  if type(value) ~= "table" then return value end
  local own = is_array(value) and setmetatable({}, array_mt) or {}
  for k, v in next, value do own[k] = type(v) == "table" and copy(v) or v end
  return own
end

--- True if two values are the same JSON. Numbers are compared as numbers: 1 is 1.0.
local function equal(a, b)
  if type(a) ~= "table" or type(b) ~= "table" then return a == b end
  if rawequal(a, b) then return true end
  if is_array(a) ~= is_array(b) then return false end
  for k, v in next, a do
    local other = b[k]
    if other == nil or not equal(v, other) then return false end
  end
  for k in next, b do
    if a[k] == nil then return false end
  end
  return true
end

--- Returns the names of the members of an object, sorted.
local names_of = order.strings_first

return {
  NULL = NULL, is_array = is_array, is_object = is_object, is_nothing = is_nothing, type_of = type_of, copy = copy,
  equal = equal, names_of = names_of, array = json.array,
}
