-- SPDX-License-Identifier: MIT
--- flags: reads command lines as programs in Go do: -name value, -name=value, and both with two dashes. A boolean flag
-- is --name, --name=true or --name=false.
--
-- Every flag has a kind: text, list, integer, count, duration or boolean.

local UNITS = { ns = 1e-9, us = 1e-6, ["µs"] = 1e-6, ["μs"] = 1e-6, ms = 1e-3, s = 1, m = 60, h = 3600 }

local MOST = 2 ^ 53 -- whole numbers up to this are exact on every VM
local MOST_SECONDS = 2 ^ 63 * 1e-9 -- Go's longest duration, 2562047 hours

local kinds = {} -- functions that return the value of a text; or nil and a description of a good text

function kinds.text(text)
  return text
end

function kinds.list(text)
  local list = {}
  for item in text:gmatch("[^,]+") do list[#list + 1] = item end
  if #list == 0 then return nil, "one or more, separated by commas" end
  return list
end

function kinds.integer(text)
  local number = text:find("^%-?%d+$") and tonumber(text)
  if number and number >= -MOST and number <= MOST then return number end
  return nil, ("a whole number%s"):format(number and (" from -%.0f to %.0f"):format(MOST, MOST) or "")
end

function kinds.count(text)
  local number = text:find("^%d+$") and tonumber(text)
  if number and number <= MOST then return number end
  return nil, ("a whole number, and %s"):format(number and ("at most %.0f"):format(MOST) or "not negative")
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
  if seconds > MOST_SECONDS then return nil, "a duration of at most 2562047h" end
  return seconds
end

function kinds.boolean(text)
  if text == "true" or text == "1" or text == "t" then return true end
  if text == "false" or text == "0" or text == "f" then return false end
  return nil, "true or false"
end

--- Returns the value of a text; or nil and a description of a good text.
local function parse(kind, text)
  return kinds[kind](text)
end

--- Returns flags, { [name] = kind }, of texts with their names, separated by space, by kind.
local function by_kind(texts)
  local known = {}
  for kind, text in pairs(texts) do
    for name in text:gmatch("%S+") do known[name] = kind end
  end
  return known
end

--- Returns the name and the value of an argument that is a flag; the value is nil if it is the next argument.
local function split(argument)
  local name, value = argument:match("^%-%-?([%w][%w-]*)=(.*)$")
  return name or argument:match("^%-%-?([%w][%w-]*)$"), value
end

--- Returns the flags and operands of a command line: operands are the arguments that are neither flags nor values of
-- flags. `known` is { [name] = kind }.
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

--- Reads arguments. `known` is { [name] = kind }. Returns { [name] = value }; or nil and a sentence that says what is
-- wrong.
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
    local parsed, wanted = parse(kind, value)
    if parsed == nil then return nil, ("--%s must be %s, not '%s'"):format(name, wanted, value) end
    values[name] = parsed
    i = i + 1
  end
  return values
end

return { by_kind = by_kind, read = read, divide = divide, parse = parse }
