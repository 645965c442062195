--- gRPC frames and the few messages that are sent without a client library.

local frame = {}

local function length_of(text)
  local n = #text
  return string.char(math.floor(n / 2 ^ 24) % 256, math.floor(n / 2 ^ 16) % 256, math.floor(n / 2 ^ 8) % 256, n % 256)
end

local function varint(n)
  local bytes = {}
  while n > 127 do
    bytes[#bytes + 1] = string.char(n % 128 + 128)
    n = math.floor(n / 128)
  end
  bytes[#bytes + 1] = string.char(n)
  return table.concat(bytes)
end

--- A field of bytes.
function frame.field(number, bytes)
  return string.char(number * 8 + 2) .. varint(#bytes) .. bytes
end

local field = frame.field

--- A message in its frame.
function frame.new(message)
  return "\0" .. length_of(message) .. message
end

function frame.range(key)
  return frame.new(field(1, key))
end

function frame.put(key, value)
  return frame.new(field(1, key) .. field(2, value))
end

--- The request that creates a watcher of a key.
function frame.watch(key)
  return frame.new(field(1, field(1, key)))
end

return frame
