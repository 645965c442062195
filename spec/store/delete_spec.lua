--- Deletes: their keys, their events, and the history that stays.

local keywatch = require "keywatch"
local probe = require("keywatch.core").probe

local answer = require "spec.support.answer"
local directory = require "spec.support.directory"
local state = require "spec.support.state"
local store_files = require "spec.support.store_files"

local code, keys = answer.code, answer.keys

local function store_of(...) return answer.fill(keywatch.open { now = 0 }, ...) end

local function left_in(store) return keys(store:range("", { prefix = true })) end

describe("delete", function()
  it("removes a key at a new revision", function()
    local store = store_of("a", "b")
    assert.same({ revision = 4, deleted = 1 }, store:delete("a"))
    assert.is_nil(store:get("a"))
    assert.equal("b", left_in(store))
    assert.equal(1, store:status().keys)
  end)

  it("of nothing changes nothing", function()
    local store = store_of("a")
    local before = state.of(store)
    assert.same({ revision = 2, deleted = 0 }, store:delete("b"))
    assert.same({ revision = 2, deleted = 0 }, store:delete("b", { prefix = true }))
    state.expect(store, before)
  end)

  it("removes a range in one revision", function()
    local store = store_of("a", "b", "c", "d")
    assert.same({ revision = 6, deleted = 2 }, store:delete("b", { range_end = "d" }))
    assert.equal("a d", left_in(store))
    assert.equal("a b c d", keys(store:range("", { prefix = true, revision = 5 })))
  end)

  it("returns the deleted kvs in the order of keys, with prev_kv", function()
    local store = store_of("b", "a", "c")
    store:lease(10, { id = 7 })
    store:put("b", "two", { lease = 7 })
    assert.same({
      revision = 6,
      deleted = 2,
      prev_kvs = {
        { key = "a", value = "a", create_revision = 3, mod_revision = 3, version = 1, lease = 0 },
        { key = "b", value = "two", create_revision = 2, mod_revision = 5, version = 2, lease = 7 },
      },
    }, store:delete("a", { range_end = "c", prev_kv = true }))
  end)

  it("of long keys is written in parts, since LMDB keeps a part in memory", function()
    local path, length, parts = directory.new(), probe and 8192 or 1000000, 2
    local options = { now = 0, path = path, journal_segment_bytes = 65536 } -- the group has no room in the journal
    local store = keywatch.open(options)
    local long, count = ("k"):rep(length), probe and 8 or 20
    for i = 1, count do store:put(long .. i, "") end
    store:close()
    store = keywatch.open(options)
    local before = store_files.transaction(path)
    assert.equal(count, store:delete("k", { prefix = true }).deleted)
    assert.is_true(store_files.transaction(path) - before >= parts)
    assert.equal(0, store:range("k", { prefix = true }).count)
    store:close()
    directory.remove_all()
  end)

  it("refuses an empty key", function()
    local store = store_of("a")
    local before = state.of(store)
    assert.equal("empty_key", code(store:delete("")))
    assert.equal("empty_key", code(store:delete("", { range_end = "b" })))
    state.expect(store, before)
  end)
end)
