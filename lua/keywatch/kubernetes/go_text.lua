-- SPDX-License-Identifier: MIT
--- go_text: values as Kubernetes shows them in messages, which is how Go prints them. Long texts are cut.

local compat = require "keywatch.support.compat"
local json = require "keywatch.json"
local value = require "keywatch.kubernetes.value"

local MAX_BYTES = 256 -- of a text
local MAX_ELEMENTS = 8 -- of an object or array

local NAMES = { ['"'] = '\\"', ["\\"] = "\\\\", ["\n"] = "\\n", ["\t"] = "\\t", ["\r"] = "\\r" }

local of

--- Returns a byte as an escape.
local function escaped(char)
  return NAMES[char] or ("\\x%02x"):format(char:byte())
end

--- True if a text is UTF-8, as JSON needs it.
local function is_utf8(text)
  return not text:find("[\128-\255]") or json.encode(text) ~= nil
end

--- Returns a text, in which bytes are escapes if it is not UTF-8.
local function utf8(text)
  return is_utf8(text) and text or (text:gsub("[\128-\255]", escaped))
end

--- Returns a text in quotes, like %q, cut if it is long. The result is UTF-8.
local function quoted(text)
  local rest = ""
  if #text > MAX_BYTES then
    local stop = MAX_BYTES
    while stop > 1 and text:find("^[\128-\191]", stop + 1) do stop = stop - 1 end -- not inside of a character
    text, rest = text:sub(1, stop), "..."
  end
  return '"' .. text:gsub(is_utf8(text) and '[%c"\\]' or '[%c"\\\128-\255]', escaped) .. rest .. '"'
end

--- Returns a number, like %v.
local function number(found)
  local is_whole = compat.is_integer(found) or found % 1 == 0 and found < 1e15 and found > -1e15
  return is_whole and ("%d"):format(found) or (("%.15g"):format(found):gsub(",", "."))
end

--- Returns the elements of an array, or the members of an object.
local function elements_of(found)
  local parts, is_array = {}, value.is_array(found)
  for _, name in ipairs(is_array and found or value.names_of(found)) do
    if #parts == MAX_ELEMENTS then
      parts[#parts + 1] = "..."
      break
    end
    parts[#parts + 1] = is_array and of(name) or quoted(name) .. ":" .. of(found[name])
  end
  return table.concat(parts, ", ")
end

--- Returns a value as Kubernetes shows it.
function of(found)
  local kind = value.type_of(found)
  if kind == "string" then return quoted(found) end
  if kind == "integer" or kind == "number" then return number(found) end
  if kind == "null" then return "null" end
  if kind == "array" then return "[]interface {}{" .. elements_of(found) .. "}" end
  if kind == "object" then return "map[string]interface {}{" .. elements_of(found) .. "}" end
  return tostring(found)
end

return { of = of, quoted = quoted, number = number, utf8 = utf8 }
