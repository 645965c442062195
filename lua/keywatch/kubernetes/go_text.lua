-- SPDX-License-Identifier: MIT
--- go_text: values as Kubernetes shows them in messages, which is how Go prints them. Long texts are cut.

local compat = require "keywatch.support.compat"
local json = require "keywatch.json"
local value = require "keywatch.kubernetes.value"

local MAX_BYTES = 256 -- of a text
local MAX_ELEMENTS, MAX_SORTED = 8, 1000 -- of an object or array: shown, and sorted
local MAX_DEPTH = 2 -- of objects and arrays in each other

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

--- Returns the beginning of a text, and "..." or "". Does not cut characters.
local function cut(text)
  if #text <= MAX_BYTES then return text, "" end
  local stop = MAX_BYTES
  while stop > 1 and text:find("^[\128-\191]", stop + 1) do stop = stop - 1 end
  return text:sub(1, stop), "..."
end

--- Returns a text in quotes, like %q, cut if it is long. The result is UTF-8.
local function quoted(text)
  local beginning, rest = cut(text)
  local special = is_utf8(beginning) and '[%c"\\]' or '[%c"\\\128-\255]'
  return '"' .. beginning:gsub(special, escaped) .. rest .. '"'
end

--- Returns a number, like %v.
local function number(found)
  local is_whole = compat.is_integer(found) or found % 1 == 0 and found < 1e15 and found > -1e15
  return is_whole and ("%d"):format(found) or (("%.15g"):format(found):gsub(",", "."))
end

--- Returns the names of an object, sorted; nil if there are too many to sort.
local function keys_of(found)
  local n = 0
  for _ in next, found do
    n = n + 1
    if n > MAX_SORTED then return nil end
  end
  return value.names_of(found)
end

--- Returns some elements of an array, or members of an object.
local function elements_of(found, depth)
  local is_array = value.is_array(found)
  local keys, parts = is_array and found or keys_of(found), {}
  if not keys or depth > MAX_DEPTH then return "..." end
  for i, name in ipairs(keys) do
    if i > MAX_ELEMENTS then
      parts[i] = "..."
      break
    end
    parts[i] = is_array and of(name, depth) or quoted(name) .. ":" .. of(found[name], depth)
  end
  return table.concat(parts, ", ")
end

--- Returns a value as Kubernetes shows it. `depth` is that of the value in the value that is shown.
function of(found, depth)
  local kind = value.type_of(found)
  if kind == "string" then return quoted(found) end
  if kind == "integer" or kind == "number" then return number(found) end
  if kind == "null" then return "null" end
  if kind ~= "array" and kind ~= "object" then return tostring(found) end
  local title = kind == "array" and "[]interface {}{" or "map[string]interface {}{"
  local beginning, rest = cut(title .. elements_of(found, (depth or 0) + 1) .. "}")
  return beginning .. rest
end

return { of = of, quoted = quoted, number = number, utf8 = utf8, cut = cut }
