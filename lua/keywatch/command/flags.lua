-- SPDX-License-Identifier: MIT
--- flags: command lines as Go's programs read them: -name value, -name=value, and both with two dashes. A flag that is
-- true or false stands alone, or is --name=true.
--
-- Each kind turns a text into a value, or into nil and what the text must be.

local UNITS = { ns = 1e-9, us = 1e-6, ["µs"] = 1e-6, ["μs"] = 1e-6, ms = 1e-3, s = 1, m = 60, h = 3600 }

local kinds = {}

function kinds.text(text)
  return text
end

function kinds.list(text)
  local list = {}
  for item in text:gmatch("[^,]+") do list[#list + 1] = item end
  if #list == 0 then return nil, "one or more, with commas between" end
  return list
end

function kinds.integer(text)
  if not text:find("^%-?%d+$") then return nil, "a whole number" end
  return tonumber(text)
end

function kinds.count(text)
  if not text:find("^%d+$") then return nil, "a whole number, and not negative" end
  return tonumber(text)
end

--- Seconds, of what Go calls a duration: 5s, 1m30s, 1.5h.
function kinds.duration(text)
  if text == "0" then return 0 end
  local seconds, rest = 0, text
  repeat
    local number, unit, after = rest:match("^(%d*%.?%d*)([^%d.]+)(.*)$")
    if not number or not tonumber(number) or not UNITS[unit] then
      return nil, "a duration, such as 5s, 500ms or 1m30s"
    end
    seconds = seconds + tonumber(number) * UNITS[unit]
    rest = after
  until rest == ""
  return seconds
end

function kinds.boolean(text)
  if text == "true" or text == "1" or text == "t" then return true end
  if text == "false" or text == "0" or text == "f" then return false end
  return nil, "true or false"
end

--- A text as a value of a kind; or nil and what it must be.
local function parse(kind, text)
  return kinds[kind](text)
end

--- Reads arguments by { [name] = kind }. Returns { [name] = value }; or nil and a sentence that says what is wrong.
local function read(arguments, known)
  local values, i = {}, 1
  while i <= #arguments do
    local name, value = arguments[i]:match("^%-%-?([%w][%w-]*)=(.*)$")
    name = name or arguments[i]:match("^%-%-?([%w][%w-]*)$")
    if not name then return nil, ("'%s' is no flag"):format(arguments[i]) end
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

return { read = read, parse = parse }
