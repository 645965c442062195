-- SPDX-License-Identifier: MIT
--- flags: reads command lines with the syntax of Go's package flag: -name value, -name=value, and both with two dashes.
-- A boolean flag is --name, --name=true or --name=false.
--
-- Every flag has a kind: text, list, integer, count (an integer from 0), duration or boolean.

local UNITS = { ns = 1e-9, us = 1e-6, ["µs"] = 1e-6, ["μs"] = 1e-6, ms = 1e-3, s = 1, m = 60, h = 3600 }

local MAX_WHOLE = 2 ^ 53 -- whole numbers up to this are exact on every VM
local MAX_SECONDS = 2 ^ 63 * 1e-9 -- Go's longest duration, 2562047 hours

-- By kind: functions that convert a text to a value. They return nil and the expected form if the text is invalid.
local kinds = {}

function kinds.text(text)
  return text
end

function kinds.list(text)
  local list = {}
  for item in text:gmatch("[^,]+") do list[#list + 1] = item end
  if #list == 0 then return nil, "a list of one or more values, separated by commas" end
  return list
end

function kinds.integer(text)
  local number = text:find("^%-?%d+$") and tonumber(text)
  if number and number >= -MAX_WHOLE and number <= MAX_WHOLE then return number end
  return nil, ("a whole number%s"):format(number and (" from -%.0f to %.0f"):format(MAX_WHOLE, MAX_WHOLE) or "")
end

function kinds.count(text)
  local number = text:find("^%d+$") and tonumber(text)
  if number and number <= MAX_WHOLE then return number end
  return nil, ("a whole number %s"):format(number and ("of at most %.0f"):format(MAX_WHOLE) or "that is not negative")
end

--- Returns the seconds of a duration in Go's notation: 5s, 1m30s, 1.5h.
function kinds.duration(text)
  if text == "0" then return 0 end
  local seconds, rest = 0, text
  repeat
    local number, unit, after = rest:match("^(%d*%.?%d*)([^%d.]+)(.*)$")
    if not number or not tonumber(number) or not UNITS[unit] then
      return nil, "a duration, such as 5s, 500ms or 1m30s"
    end
    seconds = seconds + (tonumber(number) + 0.0) * UNITS[unit]
    rest = after
  until rest == ""
  if seconds > MAX_SECONDS then return nil, "a duration of at most 2562047h" end
  return seconds
end

function kinds.boolean(text)
  if text == "true" or text == "1" or text == "t" then return true end
  if text == "false" or text == "0" or text == "f" then return false end
  return nil, "true or false"
end

--- Converts the text of a flag's value. Returns the value; or nil and the expected form, to follow "must be".
local function parse(kind, text)
  return kinds[kind](text)
end

--- Converts { [kind] = "the names of its flags, separated by spaces" } to { [name] = kind }.
local function by_kind(texts)
  local known = {}
  for kind, text in pairs(texts) do
    for name in text:gmatch("%S+") do known[name] = kind end
  end
  return known
end

--- Returns the name of the flag in an argument, or nil if the argument is not a flag; and the value after "=", or nil
-- if there is no "=": then the next argument is the value, unless the flag is boolean.
local function split(argument)
  local name, value = argument:match("^%-%-?([%w][%w-]*)=(.*)$")
  return name or argument:match("^%-%-?([%w][%w-]*)$"), value
end

--- Splits a command line. Returns the list of flags with their values, and the list of operands: the other arguments.
-- `known` is { [name] = kind }.
local function divide(arguments, known)
  local rest, operands, i = {}, {}, 1
  while i <= #arguments do
    local name, value = split(arguments[i])
    if name or arguments[i]:sub(1, 1) == "-" then
      rest[#rest + 1] = arguments[i]
      if name and not value and known[name] ~= "boolean" then
        i = i + 1
        rest[#rest + 1] = arguments[i]
      end
    else
      operands[#operands + 1] = arguments[i]
    end
    i = i + 1
  end
  return rest, operands
end

--- Reads arguments. `known` is { [name] = kind }. Returns { [name] = value }; or nil and a sentence with the reason.
local function read(arguments, known)
  local values, i = {}, 1
  while i <= #arguments do
    local name, value = split(arguments[i])
    if not name then return nil, ("'%s' is not a flag"):format(arguments[i]) end
    local kind = known[name]
    if not kind then return nil, ("there is no flag --%s"):format(name) end
    if not value and kind == "boolean" then
      value = "true"
    elseif not value then
      i = i + 1
      value = arguments[i]
    end
    if not value then return nil, ("--%s needs a value"):format(name) end
    local parsed, expected = parse(kind, value)
    if parsed == nil then return nil, ("--%s must be %s, not '%s'"):format(name, expected, value) end
    values[name] = parsed
    i = i + 1
  end
  return values
end

return { by_kind = by_kind, read = read, divide = divide, parse = parse }
