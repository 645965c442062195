--- HashKV: a checksum over the records of history, in etcd's algorithm.
--
-- At revision R of a store compacted at C the checksum covers the records after C up to R; and of the records up to C
-- the newest one of each key that exists at R. (If no key exists at R, it covers all records that compaction has left.)
-- A tombstone at C itself, which compaction leaves for watchers, is never covered.

local crc32c = require "spec.support.crc32c"
local int64 = require "spec.support.int64"

local function number_field(tag, number)
  if number == 0 then return "" end
  return string.char(tag) .. int64.varint(number)
end

local function bytes_field(tag, bytes)
  if bytes == "" then return "" end
  return string.char(tag) .. int64.varint(#bytes) .. bytes
end

--- Returns the protobuf message mvccpb.KeyValue.
local function encode(kv)
  return bytes_field(0x0a, kv.key)
    .. number_field(0x10, kv.create_revision)
    .. number_field(0x18, kv.mod_revision)
    .. number_field(0x20, kv.version)
    .. bytes_field(0x2a, kv.value)
    .. number_field(0x30, kv.lease)
end

--- Returns the message of a record; that of a tombstone has only the key.
local function message(record)
  record.message = record.message or (record.kv and encode(record.kv) or bytes_field(0x0a, record.key))
  return record.message
end

--- Returns the bytes of a record in etcd's file: its revision, with a mark for a tombstone, and its message.
local function stored(record)
  local mark = record.kv and "" or "t"
  return int64.big_endian(record.main) .. "_" .. int64.big_endian(record.sub) .. mark .. message(record)
end

local function has_live(newest)
  for _, record in pairs(newest) do
    if record.kv then return true end
  end
  return false
end

--- Returns the checksum at `revision`; newest_at(revision) maps every key to its newest record up to a revision.
local function hash(history, newest_at, revision, compact_revision)
  local kept = newest_at(revision)
  if not has_live(kept) then kept = newest_at(compact_revision) end

  local function is_taken(record)
    if record.main > revision then return false end
    if record.main > compact_revision then return true end
    return record.kv ~= nil and kept[record.key] == record
  end

  local taken = { "key" }
  for _, record in ipairs(history) do
    if is_taken(record) then taken[#taken + 1] = stored(record) end
  end
  return crc32c.checksum(taken)
end

return { hash = hash, message = message }
