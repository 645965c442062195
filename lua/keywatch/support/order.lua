-- SPDX-License-Identifier: MIT
--- order: the keys of a set in an order that is the same in every run. Lua's own order of keys depends on the addresses
-- of objects, and differs from run to run for strings.

local compat = require "keywatch.support.compat"
local is_before = require("keywatch.support.key_order").is_before

--- Returns the keys of a set, which are tables, as a list, sorted by the field of this name, a number or a text. May be
-- called by a finalizer.
local keys_by = compat.interpreted(function(set, field)
  local list = {}
  for key in pairs(set) do list[#list + 1] = key end
  if list[2] then table.sort(list, function(a, b) return a[field] < b[field] end) end
  return list
end)

--- Returns the values of a table, which are tables, sorted in the same way. May be called by a finalizer.
local values_by = compat.interpreted(function(map, field)
  local set = {}
  for _, value in pairs(map) do set[value] = true end
  return keys_by(set, field)
end)

--- Returns the keys of a set as a list: the strings first, in the order of their bytes, and then the others in any
-- order. May be called by a finalizer.
local strings_first = compat.interpreted(function(set)
  local strings, others = {}, {}
  for key in next, set do
    local list = type(key) == "string" and strings or others
    list[#list + 1] = key
  end
  table.sort(strings, is_before)
  for _, key in ipairs(others) do strings[#strings + 1] = key end
  return strings
end)

return { keys_by = keys_by, values_by = values_by, strings_first = strings_first }
