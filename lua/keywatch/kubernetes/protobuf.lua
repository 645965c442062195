-- SPDX-License-Identifier: MIT
--- protobuf: writes messages of protobuf field by field, for documents that are made once.

local concat, char = table.concat, string.char

local function varint(n)
  local bytes = {}
  while n >= 128 do
    bytes[#bytes + 1] = char(n % 128 + 128)
    n = math.floor(n / 128)
  end
  bytes[#bytes + 1] = char(n)
  return concat(bytes)
end

--- Returns a field with a string, or with a message that was written; "" for nil.
local function bytes(number, text)
  if text == nil then return "" end
  return varint(number * 8 + 2) .. varint(#text) .. text
end

--- Returns a message of parts that were written.
local function message(...) return concat { ... } end

return { bytes = bytes, message = message }
