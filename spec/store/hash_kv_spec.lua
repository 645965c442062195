--- HashKV: a checksum of all that is stored, the same as etcd's for the same history.

local keywatch = require "keywatch"
local probe = require("keywatch.core").probe

local answer = require "spec.support.answer"
local crc32c = require "spec.support.crc32c"
local directory = require "spec.support.directory"
local files = require "spec.support.files"

local code = answer.code

local function with_new(fn) return function() fn(keywatch.open { now = 0 }) end end

--- Bytes that are written in hexadecimal.
local function bytes(hex)
  return (hex:gsub("%s", ""):gsub("%x%x", function(digits) return string.char(tonumber(digits, 16)) end))
end

--- The history whose hashes are etcd's: see `got` below.
local function store_with_history(opts)
  opts = opts or {}
  opts.now = 0
  local store = keywatch.open(opts)
  store:put("foo", "bar") -- 2
  store:put("foo", "baz") -- 3
  store:put("x", "1") -- 4
  store:delete("x") -- 5
  store:lease(100, { id = -7 })
  store:put("y", "", { lease = -7 }) -- 6
  store:txn { success = {
    { put = "p\0\255", value = "\0" }, { delete = "foo", range_end = "g" }, { put = "q", value = ("Q"):rep(300) },
  } } -- 7
  store:put("foo", "again") -- 8
  store:put("z", "26") -- 9
  return store
end

local function with_history(fn) return function() fn(store_with_history()) end end

-- The hashes by revision, as etcd returns them: of all history, compacted at 4, compacted at 6, compacted at 9.
local got = {
  [-1] = {
    1084519789, 3305255506, 2020292994, 3093051035, 629404502, 243873475, 2338005980, 343751598, 1876458124,
  },
  [4] = { [5] = 1275009229, [6] = 4011663427, [7] = 2590229710, [8] = 1269806895, [9] = 2230131015 },
  [6] = { [7] = 629199823, [8] = 2792778526, [9] = 3384448430 },
  [9] = { [9] = 2810248357 },
}

local function hashes(store, from)
  local found = {}
  for revision = from, store:status().revision do found[revision] = store:hash_kv(revision).hash end
  return found
end

describe("the hash", function()
  it("is etcd's at every revision of a history", function() assert.same(got[-1], hashes(store_with_history(), 1)) end)

  it("is etcd's after compactions", with_history(function(store)
    for _, revision in ipairs { 4, 6 } do
      store:compact(revision, { physical = true })
      assert.same(got[revision], hashes(store, revision + 1))
    end
    store:compact(9, { physical = true })
    assert.equal(got[9][9], store:hash_kv().hash)
  end))

  it("has all records that a compaction has left if no key lives at its revision", with_new(function(store)
    store:put("a", "") -- 2
    store:compact(2, { physical = true })
    store:delete("a") -- 3
    local history = {
      "key",
      bytes "0000000000000002 5f 0000000000000000", bytes "0a0161 1002 1802 2001",
      bytes "0000000000000003 5f 0000000000000000 74", bytes "0a0161",
    }
    assert.equal(crc32c.checksum(history), store:hash_kv(3).hash)
    for i = 1, 50 do store:put("b" .. i, "") end
    assert.equal(crc32c.checksum(history), store:hash_kv(3).hash) -- no longer the newest revision
  end))

  it("leaves out records deleted since a compaction if a key lives at its revision, the last of many", function()
    local store = keywatch.open { now = 0 }
    store:put("y", "") -- 2
    store:put("z", "") -- 3
    store:compact(3, { physical = true })
    store:delete("y") -- 4
    for i = 1, 200 do store:put("a" .. i, "") end
    local history = {
      "key",
      bytes "0000000000000003 5f 0000000000000000", bytes "0a017a 1003 1803 2001",
      bytes "0000000000000004 5f 0000000000000000 74", bytes "0a0179",
    }
    assert.equal(crc32c.checksum(history), store:hash_kv(4).hash)
  end)

  it("is etcd's during a compaction", function()
    local store = store_with_history { step_records = 1 }
    store:compact(6)
    assert.equal(got[6][7], store:hash_kv(7).hash)
    assert.equal(got[6][8], store:hash_kv(8).hash)
    assert.equal(got[6][9], store:hash_kv(9).hash)
  end)

  it("leaves out the tombstone of the compacted revision, which older stores do not keep", function()
    local function compacted_at(revision)
      local store = keywatch.open { now = 0 }
      store:put("a", "") -- 2
      store:put("b", "") -- 3
      store:delete("a") -- 4
      store:compact(revision, { physical = true })
      return store:hash_kv().hash
    end
    local history = {
      "key", bytes "0000000000000003 5f 0000000000000000", bytes "0a0162 1003 1803 2001",
    }
    assert.equal(crc32c.checksum(history), compacted_at(4))
    history[#history + 1] = bytes "0000000000000004 5f 0000000000000000 74" .. bytes "0a0161"
    assert.equal(crc32c.checksum(history), compacted_at(3))
  end)
end)

describe("hash_kv", function()
  it("returns the revision of the store, of the hash, and of the last compaction", with_history(function(store)
    assert.same({ hash = got[-1][9], revision = 9, compact_revision = -1, hash_revision = 9 }, store:hash_kv(0))
    store:compact(4)
    local found = store:hash_kv(7)
    assert.same({ 9, 4, 7 }, { found.revision, found.compact_revision, found.hash_revision })
  end))

  it("refuses compacted and future revisions", with_history(function(store)
    assert.equal("future_revision", code(store:hash_kv(10)))
    store:compact(4)
    assert.equal("compacted", code(store:hash_kv(3)))
    assert.is_table(store:hash_kv(4))
  end))
end)

if not probe then return end

describe("hash_kv of a store on a disk", function()
  local path, store

  before_each(function()
    path = directory.new()
    store = directory.open(path, { step_records = 1 })
  end)

  after_each(function()
    store:close()
    directory.remove_all()
  end)

  --- A walk after the last record, but before its end.
  local function walk_all_records()
    local n = 0
    repeat n = n + 1 until store:hash_step(n)
    local found, walk = store:hash_step(n - 1)
    assert.is_false(found)
    return walk
  end

  --- Waits until everything is in the database. Nothing is on its way to the disk then.
  local function make_checkpoint()
    local _, _, ticket = store:checkpoint()
    assert.is_true(store:wait(ticket))
  end

  it("does not fail because a compaction could not read a record", function()
    for i = 1, 20 do store:put("a", tostring(i)) end
    store:compact(20)
    make_checkpoint() -- a compaction waits for that
    probe.hold_disk(store, true) -- so that the compaction stops soon, and the records stay
    local expected, walk = store:hash_kv(), walk_all_records()
    probe.hold_disk(store, false)
    make_checkpoint()
    assert.equal(0, store:deadline()) -- the compaction can continue
    files.overwrite(path .. "/data.mdb", "\10\1a", "\0") -- all records of the key "a"
    local found, err = store:hash_step(1, 0, walk) -- begins with a step of the compaction
    assert.is_nil(err)
    assert.same(expected, found)
    assert.equal("corrupt", code(store:put("b", ""))) -- that step has failed
  end)
end)
