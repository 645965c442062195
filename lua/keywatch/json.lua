-- SPDX-License-Identifier: MIT
--- json: JSON from and to Lua values, exact in both directions. See docs/json.md.

local check = require "keywatch.support.check"
local core = require "keywatch.core"

local array_mt = core.json_array

--- Marks a table as an array, which is encoded as [] when it is empty. Returns the table; without one, a new one.
local function array(list)
  check.argument(list == nil or type(list) == "table", 1, "array", "table", list)
  list = list or {}
  local mt = getmetatable(list)
  if mt ~= nil and mt ~= array_mt then check.misuse("array: the table has a metatable of its own") end
  return setmetatable(list, array_mt)
end

return { decode = core.json_decode, encode = core.json_encode, array = array, null = core.json_null }
