--- A second, naive implementation of messages: from the schema, by string concatenation.
--
-- Messages are like those of the core: zero and empty values are absent, except in a oneof or a list.

local int64 = require "spec.support.int64"
local schema = require "spec.support.schema"

local wire = {}

local NUMBERS = { int64 = true, uint64 = true, uint32 = true, bool = true }

local SIGNED = { "1", "127", "128", "300", "16384", "2147483648", "9007199254740991", "9007199254740992",
  "9007199254740993", "9223372036854775807", "-1", "-128", "-9007199254740993", "-9223372036854775808" }
local UNSIGNED = { "1", "128", "9007199254740991", "9007199254740992", "9007199254740993", "9223372036854775807",
  "9223372036854775808", "14841639068965178418", "18446744073709551615" }

function wire.hex(bytes) return (bytes:gsub(".", function(byte) return ("%02x"):format(byte:byte()) end)) end

function wire.bytes(hex)
  return (hex:gsub("%s", ""):gsub("%x%x", function(byte) return string.char(tonumber(byte, 16)) end))
end

--- Returns an unsigned 64-bit number in the form in which the core returns it.
local function canonical_unsigned(text)
  if not math.type then return int64.canonical(text) end
  local n = 0
  for digit in text:gmatch("%d") do n = n * 10 + (digit:byte() - 48) end
  return n
end

-- Encoding ---------------------------------------------------------------------------------------------------------

local function number_of(field, value)
  local names = schema.enums[field.type]
  if value == true then return 1 end
  if value == false then return 0 end
  if not names or type(value) == "number" then return value end
  for i, name in ipairs(names) do
    if name == value then return i - 1 end
  end
  error("no such name: " .. value)
end

local function is_number(field) return NUMBERS[field.type] or schema.enums[field.type] ~= nil end

function wire.tag(number, type) return int64.varint(number * 8 + type) end

--- Returns a field with bytes.
function wire.field(number, bytes) return wire.tag(number, 2) .. int64.varint(#bytes) .. bytes end

local function encode_value(field, value)
  if is_number(field) then return int64.varint(number_of(field, value)) end
  if schema.messages[field.type] then value = wire.encode(field.type, value) end
  return int64.varint(#value) .. value
end

local function encode_list(field, list)
  local parts = {}
  for i, value in ipairs(list) do
    parts[i] = (is_number(field) and "" or wire.tag(field.number, 2)) .. encode_value(field, value)
  end
  local bytes = table.concat(parts)
  return is_number(field) and wire.field(field.number, bytes) or bytes
end

function wire.encode(name, message)
  local parts = {}
  for _, field in ipairs(schema.messages[name]) do
    local value = message[field.name]
    if value ~= nil and field.is_list then
      parts[#parts + 1] = encode_list(field, value)
    elseif value ~= nil then
      parts[#parts + 1] = wire.tag(field.number, is_number(field) and 0 or 2) .. encode_value(field, value)
    end
  end
  return table.concat(parts)
end

-- Making messages up -----------------------------------------------------------------------------------------------

local make = {
  int64 = function(random) return int64.canonical(random:pick(SIGNED)) end,
  uint64 = function(random) return canonical_unsigned(random:pick(UNSIGNED)) end,
  uint32 = function(random) return random:pick { 1, 300, 2147483648, 4294967295 } end,
  bool = function() return true end,
  bytes = function(random) return random:bytes(random:pick { 1, 3, 10, 130 }) end,
  string = function(random) return random:pick { "a", "grüße", ("x"):rep(200) } end,
}

local function make_value(random, field, depth, may_be_default)
  local names = schema.enums[field.type]
  if schema.messages[field.type] then return wire.random(random, field.type, depth - 1) end
  if may_be_default and random:one_in(4) then
    if names then return names[1] end
    if field.type == "bool" then return false end
    return NUMBERS[field.type] and 0 or ""
  end
  if not names then return make[field.type](random) end
  return random:one_in(5) and random:pick { #names, 77, -1 } or names[random:between(2, #names)]
end

local function make_list(random, field, depth)
  local list = {}
  for i = 1, random:between(1, 3) do list[i] = make_value(random, field, depth, true) end
  return list
end

--- Returns at most one member of a oneof.
local function choose(random, fields)
  local members = {}
  for _, field in ipairs(fields) do
    if field.is_choice then members[#members + 1] = field end
  end
  return #members > 0 and random:pick(members) or nil
end

--- Returns a message with about half of its fields, or all of them. At depth 0 it has no nested messages.
function wire.random(random, name, depth, is_full)
  local message = {}
  local fields = schema.messages[name]
  local chosen = choose(random, fields)
  for _, field in ipairs(fields) do
    local is_wanted = is_full or random:one_in(2)
    if depth == 0 and schema.messages[field.type] then is_wanted = false end
    if field.is_choice and field ~= chosen then is_wanted = false end
    if is_wanted and field.is_list then
      message[field.name] = make_list(random, field, depth)
    elseif is_wanted then
      message[field.name] = make_value(random, field, depth, field.is_choice)
    end
  end
  return message
end

return wire
