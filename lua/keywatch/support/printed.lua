-- SPDX-License-Identifier: MIT
--- printed: kvs, events and results as text, for print and tostring.
--
--   kv "a/b" = "value" (revision 5, version 2)
--   put "a/b" = "value" at 7
--   delete "a/b" at 8
--   { #kvs = 2, count = 2, more = false, revision = 9 }

local core = require "keywatch.core"
local quote = require("keywatch.support.log").quote

local MOST = 60 -- bytes of a string

--- Returns a value as text: a string in quotes, truncated if it is long.
local function text_of(value)
  if type(value) ~= "string" then return tostring(value) end
  if #value <= MOST then return quote(value) end
  return ("%s... (%d bytes)"):format(quote(value:sub(1, MOST)), #value)
end

--- Returns the fields of a result as text, in the order of their names. Lists are shown by their length.
local function fields_of(result)
  local list = {}
  for name, value in pairs(result) do
    local is_list = type(value) == "table" and not getmetatable(value)
    list[#list + 1] = is_list and ("#%s = %d"):format(name, #value) or ("%s = %s"):format(name, text_of(value))
  end
  table.sort(list)
  return "{ " .. table.concat(list, ", ") .. " }"
end

function core.record.__tostring(record)
  local key, value, kind = record.key, record.value, record.type
  if not key and not kind then return fields_of(record) end
  local text = (kind or "kv") .. (key and " " .. text_of(key) or "") .. (value and " = " .. text_of(value) or "")
  if kind then return ("%s at %s"):format(text, tostring(record.mod_revision or record.revision)) end
  return ("%s (revision %s, version %s)"):format(text, tostring(record.mod_revision), tostring(record.version))
end
