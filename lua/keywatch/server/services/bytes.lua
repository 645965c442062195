-- SPDX-License-Identifier: MIT
--- bytes: strings as bytes: big-endian numbers, base64.

--- Returns a whole number below 2^53 as eight big-endian bytes.
local function to_big_endian(n)
  local bytes = {}
  for i = 8, 1, -1 do
    bytes[i] = string.char(n % 256)
    n = math.floor(n / 256)
  end
  return table.concat(bytes)
end

--- Returns the number that big-endian bytes stand for.
local function from_big_endian(bytes)
  local n = 0
  for i = 1, #bytes do n = n * 256 + bytes:byte(i) end
  return n
end

local DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

local values = { [""] = 0 } -- of digits
for i = 1, #DIGITS do values[DIGITS:sub(i, i)] = i - 1 end

--- Returns the bytes of up to four base64 digits.
local function from_digits(a, b, c, d)
  local n = ((values[a] * 64 + values[b]) * 64 + values[c]) * 64 + values[d]
  local bytes = string.char(math.floor(n / 65536), math.floor(n / 256) % 256, n % 256)
  return d ~= "" and bytes or bytes:sub(1, c ~= "" and 2 or 1)
end

--- Returns the bytes of a base64 text; nil if the text is not base64.
local function from_base64(text)
  local body, padding = text:match("^([%w+/]*)(=*)$")
  if not body or #text % 4 ~= 0 or #padding > 2 then return nil end
  return (body:gsub("(.)(.?)(.?)(.?)", from_digits))
end

return {
  to_big_endian = to_big_endian,
  from_big_endian = from_big_endian,
  from_base64 = from_base64,
}
