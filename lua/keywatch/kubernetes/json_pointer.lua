-- SPDX-License-Identifier: MIT
--- json_pointer: pointers into JSON (RFC 6901): "/spec/ports/0", with ~1 for a slash and ~0 for a tilde.

local value = require "keywatch.kubernetes.value"

local MAX_TOKENS = 2000 -- more than keywatch.json has levels

--- Returns the tokens of a pointer, a list of strings; nil if it is malformed, or has too many.
local function parse(text)
  if text ~= "" and text:sub(1, 1) ~= "/" then return nil end
  if text:find("~[^01]") or text:find("~$") then return nil end
  local tokens = {}
  for token in text:gmatch("/([^/]*)") do
    if #tokens == MAX_TOKENS then return nil end
    tokens[#tokens + 1] = token:gsub("~1", "/"):gsub("~0", "~")
  end
  return tokens
end

--- Returns the key in a Lua table for a token: a name of an object, or an index of an array, from 1 on. Returns nil if
-- an array cannot have such an index.
local function key_in(container, token)
  if not value.is_array(container) then return token end
  if token ~= "0" and not token:find("^[1-9]%d*$") or #token > 9 then return nil end
  return tonumber(token) + 1
end

return { parse = parse, key_in = key_in }
