-- SPDX-License-Identifier: MIT
--- literal: data written as a Lua literal, so that another Lua state can read it: strings, numbers, booleans, and
-- tables of them. Data that was written and read is equal to the original, with two exceptions. Metatables are omitted.
-- A table that occurs twice is read as two tables, so a table must not contain itself.

local compat = require "keywatch.support.compat"

local HUGE = math.huge

--- Returns an integer of Lua 5.4 as a literal. In decimal digits the least integer would be read as a float.
local function write_integer(value)
  return value - 1 > value and "0x8000000000000000" or ("%d"):format(value)
end

--- Returns a float as a literal, which has a point or an exponent. The locale may write a decimal comma, which Lua does
-- not read.
local function write_float(value)
  if value ~= value then return "0/0" end
  if value == HUGE then return "1/0" end
  if value == -HUGE then return "-1/0" end
  local text = ("%.17g"):format(value):gsub(",", ".")
  return text:find("[.e]") and text or text .. ".0"
end

local function write_number(value)
  return compat.is_integer(value) and write_integer(value) or write_float(value)
end

local write

--- Returns a table as a literal.
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

--- Returns a value as a literal. Raises if the value contains a function, userdata or coroutine.
function write(value)
  local writer = WRITERS[type(value)]
  if not writer then
    error(("a %s cannot be written as text: only strings, numbers, booleans and tables can"):format(type(value)), 0)
  end
  return writer(value)
end

--- Returns the value of a literal that `write` has returned.
local function read(text)
  return assert(load("return " .. text, "=literal"))()
end

return { write = write, read = read }
