--- Ranges: their keys, the returned fields, their order, and past revisions.

local keywatch = require "keywatch"

local answer = require "spec.support.answer"

local code, keys = answer.code, answer.keys

local function store_of(...) return answer.fill(keywatch.open { now = 0 }, ...) end

describe("get", function()
  it("returns all six fields of a kv", function()
    local store = store_of("a")
    store:put("a", "two")
    assert.same({ key = "a", value = "two", create_revision = 2, mod_revision = 3, version = 2, lease = 0 },
      store:get("a"))
  end)

  it("returns nothing, and no error, for a missing key", function()
    local kv, err = store_of("a"):get("b")
    assert.is_nil(kv)
    assert.is_nil(err)
  end)

  it("refuses an empty key", function() assert.equal("empty_key", code(store_of("a"):get(""))) end)
end)

describe("the range of", function()
  local store

  setup(function()
    store = store_of("\0", "a", "a\0", "a\0b", "aa", "ab", "b", "\127", "\128", "\255", "\255a", "\255\255")
  end)

  local function keys_in(key, opts) return keys(store:range(key, opts)) end

  it("a key without options is that key", function()
    assert.equal("a", keys_in("a"))
    assert.equal("", keys_in("c"))
  end)

  it("an empty range_end is only the key", function() assert.equal("a", keys_in("a", { range_end = "" })) end)

  it("a range_end stops before it", function()
    assert.equal("a a\0 a\0b aa", keys_in("a", { range_end = "ab" }))
    assert.equal("a a\0 a\0b aa ab", keys_in("a", { range_end = "ab\0" }))
    assert.equal("a", keys_in("a", { range_end = "a\0" }))
  end)

  it("a range_end at or before the key is empty, and no error", function()
    for _, last in ipairs { "b", "a", "\0\0" } do
      assert.same({ revision = 13, kvs = {}, count = 0, more = false }, store:range("b", { range_end = last }))
    end
  end)

  it("a range_end of one zero byte is every key from the key on", function()
    assert.equal("b \127 \128 \255 \255a \255\255", keys_in("b", { range_end = "\0" }))
  end)

  it("from_key is every key from the key on", function()
    assert.equal("\255 \255a \255\255", keys_in("\255", { from_key = true }))
    assert.equal(12, store:range("", { from_key = true }).count)
    assert.equal(12, store:range("\0", { from_key = true }).count)
    assert.equal(11, store:range("\0\0", { from_key = true }).count)
  end)

  it("a prefix is every key that begins with it", function()
    assert.equal("a a\0 a\0b aa ab", keys_in("a", { prefix = true }))
    assert.equal("a\0 a\0b", keys_in("a\0", { prefix = true }))
    assert.equal("", keys_in("ac", { prefix = true }))
  end)

  it("a prefix that ends in the largest byte ends after its keys", function()
    assert.equal("\255 \255a \255\255", keys_in("\255", { prefix = true }))
    assert.equal("\255\255", keys_in("\255\255", { prefix = true }))
    local other = store_of("a\254", "a\255", "a\255\255b", "b")
    assert.equal("a\255 a\255\255b", keys(other:range("a\255", { prefix = true })))
    assert.equal("a\255\255b", keys(other:range("a\255\255", { prefix = true })))
  end)

  it("the empty prefix is everything", function() assert.equal(12, store:range("", { prefix = true }).count) end)

  it("an empty key is refused unless it is a prefix or a start", function()
    assert.equal("empty_key", code(store:range("")))
    assert.equal("empty_key", code(store:range("", { range_end = "b" })))
    assert.equal("empty_key", code(store:range("", { range_end = "\0" })))
  end)
end)

describe("a range", function()
  it("returns the store's revision, even if it reads at an older one", function()
    local store = store_of("a", "b", "c")
    local found = store:range("a", { from_key = true, revision = 3 })
    assert.equal(4, found.revision)
    assert.equal("a b", keys(found))
    assert.equal(2, found.count)
  end)

  it("stops at the limit, reports that there are more, and counts all", function()
    local store = store_of("a", "b", "c")
    local found = store:range("a", { from_key = true, limit = 2 })
    assert.equal("a b", keys(found))
    assert.is_true(found.more)
    assert.equal(3, found.count)
  end)

  it("with count_only returns the count, but no kvs and no more, whatever the limit", function()
    local store = store_of("a", "b", "c")
    assert.same({ revision = 4, kvs = {}, count = 3, more = false },
      store:range("", { prefix = true, count_only = true, limit = 1 }))
    assert.same({ revision = 4, kvs = {}, count = 1, more = false }, store:range("b", { count_only = true }))
  end)

  it("with keys_only omits only the values", function()
    local store = store_of("a")
    store:lease(10, { id = 7 })
    store:put("a", "two", { lease = 7 })
    assert.same({ { key = "a", value = "", create_revision = 2, mod_revision = 3, version = 2, lease = 7 } },
      store:range("a", { keys_only = true }).kvs)
  end)

  it("returns new tables to each caller", function()
    local store = store_of("a")
    store:range("a").kvs[1].value = "changed"
    assert.equal("a", store:get("a").value)
  end)
end)

describe("filters of a range", function()
  local store -- a: created 2, changed 5;  b: 3;  c: 4;  d: created 6, changed 7

  setup(function() store = store_of("a", "b", "c", "a", "d", "d") end)

  local function keys_with(opts)
    opts.prefix = true
    return keys(store:range("", opts))
  end

  it("keep mod_revisions from the least to the greatest, both included", function()
    assert.equal("a c d", keys_with { min_mod_revision = 4 })
    assert.equal("b c", keys_with { max_mod_revision = 4 })
    assert.equal("a c", keys_with { min_mod_revision = 4, max_mod_revision = 5 })
  end)

  it("keep create_revisions from the least to the greatest, both included", function()
    assert.equal("b c d", keys_with { min_create_revision = 3 })
    assert.equal("a b", keys_with { max_create_revision = 3 })
    assert.equal("a", keys_with { max_create_revision = 3, min_mod_revision = 4 })
  end)

  it("apply before the limit, and not to the count", function()
    local found = store:range("", { prefix = true, min_mod_revision = 4, limit = 2 })
    assert.equal("a c", keys(found))
    assert.is_true(found.more)
    assert.equal(4, found.count)
    assert.is_false(store:range("", { prefix = true, min_mod_revision = 4, limit = 3 }).more)
  end)

  it("apply at the revision that is read, like order, limit and count", function()
    assert.equal("a b", keys_with { max_mod_revision = 3, revision = 4 })
    local found = store:range("", { prefix = true, revision = 4, max_mod_revision = 3, sort_target = "mod",
      sort_order = "descend", limit = 1 })
    assert.same({ "b", true, 3, 7 }, { keys(found), found.more, found.count, found.revision })
  end)
end)
