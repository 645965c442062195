--- HashKV: a checksum over the records of history, in etcd's algorithm.
--
-- At revision R of a store compacted at C it takes every record up to R, but of those up to C only the ones
-- that still count at R: the newest of each key that lives then. (If no key lives at R, it takes all of them
-- that compaction left.) A tombstone at C itself, which compaction leaves for watchers, is never taken.

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

--- The protobuf message mvccpb.KeyValue.
local function encode(kv)
  return bytes_field(0x0a, kv.key)
    .. number_field(0x10, kv.create_revision)
    .. number_field(0x18, kv.mod_revision)
    .. number_field(0x20, kv.version)
    .. bytes_field(0x2a, kv.value)
    .. number_field(0x30, kv.lease)
end

--- The message of a record; that of a tombstone has only the key.
local function message(record)
  record.message = record.message or (record.kv and encode(record.kv) or bytes_field(0x0a, record.key))
  return record.message
end

--- What etcd's file holds for a record: its revision, marked for a tombstone, and then its message.
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

--- The checksum at `revision`; newest_at(revision) maps every key to its newest record up to there.
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
