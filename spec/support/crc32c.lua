--- CRC-32C (Castagnoli), byte by byte from a table, for Lua 5.4 and LuaJIT.
--
-- The operators of Lua 5.4 do not parse on LuaJIT, so they are compiled from a string.

local POLYNOMIAL = 0x82f63b78 -- reflected

local function operators()
  local has_bit, bit = pcall(require, "bit")
  if has_bit then return bit.bxor, bit.band, bit.rshift end
  return load("return function(a, b) return a ~ b end, function(a, b) return a & b end,"
    .. " function(a, n) return a >> n end")()
end

local bxor, band, rshift = operators()

local function entry(byte)
  local rest = byte
  for _ = 1, 8 do
    local odd = band(rest, 1) == 1
    rest = rshift(rest, 1)
    if odd then rest = bxor(rest, POLYNOMIAL) end
  end
  return rest
end

local entries = {}
for byte = 0, 255 do entries[byte] = entry(byte) end

--- Returns the state after `bytes`, given the state before them.
local function update(state, bytes)
  for i = 1, #bytes do state = bxor(rshift(state, 8), entries[band(bxor(state, bytes:byte(i)), 0xff)]) end
  return state
end

--- Returns the checksum of a list of strings, as if they were one. `before` is the checksum of the bytes before them.
local function checksum(strings, before)
  local state = bxor(before or 0, 0xffffffff)
  for _, bytes in ipairs(strings) do state = update(state, bytes) end
  return bxor(state, 0xffffffff) % 0x100000000 -- LuaJIT's operators give signed numbers
end

return { checksum = checksum }
