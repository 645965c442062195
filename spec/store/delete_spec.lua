--- Deleting: which keys go, what is told of them, and what is left.

local keywatch = require "keywatch"
local probe = require("keywatch.core").probe

local answer = require "spec.support.answer"
local directory = require "spec.support.directory"
local state = require "spec.support.state"
local store_files = require "spec.support.store_files"

local code, keys = answer.code, answer.keys

local function store_of(...)
  local store = keywatch.open { now = 0 }
  for _, key in ipairs { ... } do store:put(key, key) end
  return store
end

local function left_in(store) return keys(store:range("", { prefix = true })) end

describe("delete", function()
  it("removes a key at a revision of its own", function()
    local store = store_of("a", "b")
    assert.same({ revision = 4, deleted = 1 }, store:delete("a"))
    assert.is_nil(store:get("a"))
    assert.equal("b", left_in(store))
    assert.equal(1, store:status().keys)
  end)

  it("of nothing is no change", function()
    local store = store_of("a")
    local before = state.of(store)
    assert.same({ revision = 2, deleted = 0 }, store:delete("b"))
    assert.same({ revision = 2, deleted = 0 }, store:delete("b", { prefix = true }))
    state.expect(store, before)
  end)

  it("of a key that is deleted already is no change", function()
    local store = store_of("a")
    store:delete("a")
    assert.same({ revision = 3, deleted = 0 }, store:delete("a"))
    assert.equal(3, store:status().revision)
  end)

  it("removes a range in one revision", function()
    local store = store_of("a", "b", "c", "d")
    assert.same({ revision = 6, deleted = 2 }, store:delete("b", { range_end = "d" }))
    assert.equal("a d", left_in(store))
    assert.equal("a b c d", keys(store:range("", { prefix = true, revision = 5 })))
  end)

  it("removes a prefix", function()
    local store = store_of("a", "aa", "a\255", "b", "\255", "\255\255")
    assert.equal(3, store:delete("a", { prefix = true }).deleted)
    assert.equal("b \255 \255\255", left_in(store))
    assert.equal(2, store:delete("\255", { prefix = true }).deleted)
    assert.equal("b", left_in(store))
  end)

  it("removes every key from one on", function()
    local store = store_of("a", "b", "c")
    assert.equal(2, store:delete("b", { from_key = true }).deleted)
    assert.equal("a", left_in(store))
    assert.equal(1, store:delete("a", { range_end = "\0" }).deleted)
    assert.equal("", left_in(store))
  end)

  it("removes everything for the empty prefix, and for the empty beginning", function()
    for _, how in ipairs { "prefix", "from_key" } do
      local store = store_of("\0", "a", "\255")
      assert.equal(3, store:delete("", { [how] = true }).deleted)
      assert.equal(0, store:status().keys)
    end
  end)

  it("removes nothing where the range ends before it begins", function()
    local store = store_of("a", "b")
    assert.same({ revision = 3, deleted = 0 }, store:delete("b", { range_end = "a" }))
    assert.same({ revision = 3, deleted = 0 }, store:delete("b", { range_end = "b" }))
  end)

  it("gives the kvs that were there in the order of keys, with prev_kv", function()
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

  it("gives an empty list of kvs with prev_kv where nothing was", function()
    assert.same({ revision = 2, deleted = 0, prev_kvs = {} }, store_of("a"):delete("b", { prev_kv = true }))
  end)

  it("takes a key from its lease", function()
    local store = store_of()
    local lease = store:lease(10)
    store:put("a", "", { lease = lease })
    store:put("b", "", { lease = lease })
    store:delete("a")
    assert.same({ "b" }, lease:keys())
    store:put("a", "")
    assert.equal(0, store:get("a").lease)
    assert.equal(6, lease:revoke().revision)
    assert.equal("a", left_in(store))
  end)

  it("removes many keys at once", function()
    local store = keywatch.open { now = 0 }
    for i = 1, 1000 do store:put(("k%04d"):format(i), "") end
    assert.equal(998, store:delete("k0002", { range_end = "k1000" }).deleted)
    assert.equal("k0001 k1000", left_in(store))
    assert.equal(1000, store:range("k", { prefix = true, revision = 1001 }).count)
    assert.equal(1002, store:status().revision)
  end)

  it("of long keys is written in parts, since LMDB has a part in memory", function()
    local path, length, parts = directory.new(), probe and 8192 or 1000000, 2
    local store = keywatch.open { now = 0, path = path }
    local long, count = ("k"):rep(length), probe and 8 or 20
    for i = 1, count do store:put(long .. i, "") end
    store:close()
    store = keywatch.open { now = 0, path = path }
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
