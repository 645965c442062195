-- SPDX-License-Identifier: MIT
--- plain: data as a text that another Lua state can read: strings, numbers, booleans, and tables of them.

local HUGE = math.huge

--- Whatever the locale has for a point.
local function write_number(value)
  if value ~= value then return "0/0" end
  if value == HUGE then return "1/0" end
  if value == -HUGE then return "-1/0" end
  return (("%.17g"):format(value):gsub(",", "."))
end

local write

local function write_table(value)
  local fields = {}
  for k, v in pairs(value) do fields[#fields + 1] = ("[%s]=%s"):format(write(k), write(v)) end
  return "{" .. table.concat(fields, ",") .. "}"
end

local WRITERS = {
  string = function(value) return ("%q"):format(value) end,
  number = write_number,
  boolean = tostring,
  table = write_table,
}

--- Raises if there is something else in it.
function write(value)
  local writer = WRITERS[type(value)]
  if not writer then error(("a %s is not plain data"):format(type(value)), 0) end
  return writer(value)
end

local function read(text)
  return assert(load("return " .. text, "=plain"))()
end

return { write = write, read = read }
