--- Describes where an answer differs from the expected one: "the answer.kvs[1].version is 3 instead of 4".

local number_kind = rawget(math, "type") or type

local SHOWN = 40 -- bytes of a string

local function quote(bytes)
  local escaped = bytes:gsub('[^\32-\126]', function(c) return ("\\%03d"):format(c:byte()) end)
  return '"' .. escaped .. '"'
end

local function show(value)
  if type(value) == "table" then return "a table" end
  if type(value) ~= "string" then return tostring(value) end
  if #value <= SHOWN then return quote(value) end
  return ("%s.. (%d bytes)"):format(quote(value:sub(1, SHOWN)), #value)
end

local function step_into(path, name)
  if type(name) == "number" then return ("%s[%d]"):format(path, name) end
  return path .. "." .. tostring(name)
end

local difference

local function tables_differ(got, expected, path)
  for name, value in pairs(expected) do
    local words = difference(got[name], value, step_into(path, name))
    if words then return words end
  end
  for name, value in pairs(got) do
    if expected[name] == nil then return ("%s is %s, and unexpected"):format(step_into(path, name), show(value)) end
  end
end

local function are_alike(got, expected)
  return got == expected and (type(got) ~= "number" or number_kind(got) == number_kind(expected))
end

--- Returns a text about the first difference, or nil. Tables are compared field by field; `path` names the value.
function difference(got, expected, path)
  if type(got) == "table" and type(expected) == "table" then return tables_differ(got, expected, path) end
  if are_alike(got, expected) then return nil end
  return ("%s is %s instead of %s"):format(path, show(got), show(expected))
end

--- Raises unless two values are the same.
local function expect(got, expected, path)
  local words = difference(got, expected, path)
  if words then error(words, 0) end
end

return { difference = difference, expect = expect, show = show }
