--- Encodes header blocks with the whole static table and a dynamic table (RFC 7541).

local TABLE_SIZE = 4096 -- what a client may use by default
local ENTRY_SIZE = 32   -- in addition to name and value

local STATIC = [[
:authority|:method GET|:method POST|:path /|:path /index.html|:scheme http|:scheme https|:status 200|:status 204|
:status 206|:status 304|:status 400|:status 404|:status 500|accept-charset|accept-encoding gzip, deflate|
accept-language|accept-ranges|accept|access-control-allow-origin|age|allow|authorization|cache-control|
content-disposition|content-encoding|content-language|content-length|content-location|content-range|content-type|
cookie|date|etag|expect|expires|from|host|if-match|if-modified-since|if-none-match|if-range|if-unmodified-since|
last-modified|link|location|max-forwards|proxy-authenticate|proxy-authorization|range|referer|refresh|retry-after|
server|set-cookie|strict-transport-security|transfer-encoding|user-agent|vary|via|www-authenticate|
]]

local static_table = {}
for name, value in STATIC:gmatch("([^%s|]+) ?([^|]*)|") do static_table[#static_table + 1] = { name, value } end

-- HPACK's Huffman code, which is canonical: the symbols of each length, of those that occur in headers.
local lengths = {
  [5] = "012aceiost", [6] = " %-./3456789=A_bdfghlmnpru", [7] = ":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz", [8] = "&*,;XZ",
  [10] = "!\"()?", [11] = "'+|", [12] = "#>", [13] = "\0$@[]~", [14] = "^}", [15] = "<`{", [19] = "\\",
}

local huffman = {} -- [length][code] = symbol
do
  local code = 0
  for length = 5, 19 do
    huffman[length] = {}
    for symbol in (lengths[length] or ""):gmatch(".") do
      huffman[length][code] = symbol
      code = code + 1
    end
    code = code * 2
  end
end

local function huffman_decode(bytes)
  local text, code, length = {}, 0, 0
  for i = 1, #bytes do
    local byte = bytes:byte(i)
    for bit = 7, 0, -1 do
      code, length = code * 2 + math.floor(byte / 2 ^ bit) % 2, length + 1
      local symbol = huffman[length] and huffman[length][code]
      if symbol then
        text[#text + 1] = symbol
        code, length = 0, 0
      end
    end
  end
  assert(length < 8, "Huffman code without an end")
  return table.concat(text)
end

local function read_int(bytes, at, bits)
  local max = 2 ^ bits - 1
  local v = bytes:byte(at) % 2 ^ bits
  at = at + 1
  if v < max then return v, at end
  local scale = 1
  while true do
    local byte = bytes:byte(at)
    at = at + 1
    v = v + byte % 128 * scale
    scale = scale * 128
    if byte < 128 then return v, at end
  end
end

local function read_text(bytes, at)
  local is_coded = bytes:byte(at) >= 128
  local n
  n, at = read_int(bytes, at, 7)
  local text = bytes:sub(at, at + n - 1)
  return is_coded and huffman_decode(text) or text, at + n
end

local reader = {}
local reader_mt = { __index = reader }

--- Returns a reader for the header blocks of one connection, which must get all blocks, in order. The dynamic table has
-- at most `most` bytes.
local function new(most)
  most = most or TABLE_SIZE
  return setmetatable({ entries = {}, size = 0, max_size = most, most = most }, reader_mt) -- the newest entry is first
end

local function entry(self, i)
  return assert(static_table[i] or self.entries[i - #static_table], "no such entry")
end

local function shrink(self, size)
  while self.size > size do
    local oldest = table.remove(self.entries)
    self.size = self.size - #oldest[1] - #oldest[2] - ENTRY_SIZE
  end
end

local function remember(self, name, value)
  local size = #name + #value + ENTRY_SIZE
  shrink(self, math.max(0, self.max_size - size))
  if size > self.max_size then return end
  table.insert(self.entries, 1, { name, value })
  self.size = self.size + size
end

local function read_literal(self, bytes, at, bits)
  local i, name, value
  i, at = read_int(bytes, at, bits)
  if i == 0 then name, at = read_text(bytes, at) else name = entry(self, i)[1] end
  value, at = read_text(bytes, at)
  if bits == 6 then remember(self, name, value) end
  return name, value, at
end

--- Reads a line. Returns the position of the next one, and name and value, unless the line sets the size of the table.
local function read_line(self, bytes, at)
  local first = bytes:byte(at)
  if first >= 128 then
    local i, next_at = read_int(bytes, at, 7)
    return next_at, entry(self, i)[1], entry(self, i)[2]
  elseif first >= 32 and first < 64 then
    local size, next_at = read_int(bytes, at, 5)
    assert(size <= self.most, "a dynamic table that is too large")
    self.max_size = size
    shrink(self, size)
    return next_at
  end
  local name, value, next_at = read_literal(self, bytes, at, first >= 64 and 6 or 4)
  return next_at, name, value
end

--- Returns the lines of a block, by name.
function reader:read(bytes)
  local lines, at = {}, 1
  while at <= #bytes do
    local name, value
    at, name, value = read_line(self, bytes, at)
    if name then lines[name] = value end
  end
  return lines
end

return { new = new }
