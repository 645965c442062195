--- Sorting of ranges: five targets, two orders, and where the limit cuts.

local keywatch = require "keywatch"

local answer = require "spec.support.answer"

local keys = answer.keys

--  key  version  create  mod  value
--  a    1        10      10   "y"
--  b    3        2       7    "z"
--  c    2        3       5    "x\0"
--  d    4        4       9    "x"
local function new_store()
  local store = keywatch.open { now = 0 }
  store:put("b", "") -- 2
  store:put("c", "") -- 3
  store:put("d", "") -- 4
  store:put("c", "x\0") -- 5
  store:txn { success = { { put = "b", value = "" }, { put = "d", value = "" } } } -- 6
  store:put("b", "z") -- 7
  store:put("d", "") -- 8
  store:put("d", "x") -- 9
  store:put("a", "y") -- 10
  return store
end

local ascending = {
  { "key", "a b c d" },
  { "version", "a c b d" },
  { "create", "b c d a" },
  { "mod", "c b d a" },
  { "value", "d c a b" },
}

describe("a range sorted by", function()
  for _, case in ipairs(ascending) do
    local target, expected = case[1], case[2]

    it(target .. " ascends", function()
      assert.equal(expected, keys(new_store():range("", { prefix = true, sort_target = target,
        sort_order = "ascend" })))
    end)

    it(target .. " descends", function()
      assert.equal(expected:reverse(), keys(new_store():range("", { prefix = true, sort_target = target,
        sort_order = "descend" })))
    end)

    it(target .. " is cut after sorting, if it has an order", function()
      local store = new_store()
      for _, order in ipairs { "ascend", "descend" } do
        local found = store:range("", { prefix = true, sort_target = target, sort_order = order, limit = 2 })
        assert.equal((order == "ascend" and expected or expected:reverse()):sub(1, 3), keys(found))
        assert.same({ true, 4 }, { found.more, found.count })
      end
    end)

    it(target .. " ascends if it has no order", function()
      local store = new_store()
      assert.equal(expected, keys(store:range("", { prefix = true, sort_target = target })))
      assert.equal(expected, keys(store:range("", { prefix = true, sort_target = target, sort_order = "none" })))
    end)
  end
end)

describe("a range without an order but with a target other than the key", function()
  it("sorts the first keys by key, one more than the limit, and cuts then", function()
    local store = new_store()
    local found = store:range("", { prefix = true, sort_target = "value", limit = 2 })
    assert.equal("c a", keys(found)) -- a, b and c were looked at: d, the least, was not
    assert.same({ true, 4 }, { found.more, found.count })
    assert.equal("b c", keys(store:range("", { prefix = true, sort_target = "create", limit = 2 })))
    assert.equal("b", keys(store:range("", { prefix = true, sort_target = "create", limit = 1 })))
  end)

  it("sorts everything if a filter is there", function()
    local store = new_store()
    local found = store:range("", { prefix = true, sort_target = "value", limit = 2, min_mod_revision = 1 })
    assert.equal("d c", keys(found))
    assert.same({ true, 4 }, { found.more, found.count })
  end)

  it("has no more where the limit is met", function()
    local found = new_store():range("", { prefix = true, sort_target = "value", limit = 4 })
    assert.equal("d c a b", keys(found))
    assert.is_false(found.more)
  end)
end)

describe("sorting", function()
  it("takes numbers for numbers", function()
    local store = keywatch.open { now = 0 }
    for _ = 1, 11 do store:put("often", "") end
    for _ = 1, 2 do store:put("twice", "") end
    local function sorted_by(target)
      return keys(store:range("", { prefix = true, sort_target = target, sort_order = "ascend" }))
    end
    assert.equal("twice often", sorted_by("version")) -- 2, 11
    assert.equal("often twice", sorted_by("create")) -- 2, 13
  end)

  it("compares values as unsigned bytes, the shorter first", function()
    local store = keywatch.open { now = 0 }
    for i, value in ipairs { "\255", "", "b", "ab", "a", "\0", "\127", "\128" } do store:put("k" .. i, value) end
    local values = {}
    local found = store:range("k", { prefix = true, sort_target = "value", sort_order = "ascend" })
    for i, kv in ipairs(found.kvs) do values[i] = kv.value end
    assert.same({ "", "\0", "a", "ab", "b", "\127", "\128", "\255" }, values)
  end)

  it("knows the values although only keys are asked for", function()
    local found = new_store():range("", { prefix = true, sort_target = "value", sort_order = "ascend",
      keys_only = true })
    assert.equal("d c a b", keys(found))
    for _, kv in ipairs(found.kvs) do assert.equal("", kv.value) end
  end)

  it("comes after filters and before the limit", function()
    local found = new_store():range("", { prefix = true, sort_target = "mod", sort_order = "descend",
      max_mod_revision = 9, limit = 2 })
    assert.equal("d b", keys(found))
    assert.same({ true, 4 }, { found.more, found.count })
  end)

  it("goes by what keys were at the revision that is read", function()
    local store = new_store()
    assert.equal("c d b", keys(store:range("", { prefix = true, sort_target = "mod", sort_order = "descend",
      revision = 5 })))
    assert.equal("d c b", keys(store:range("", { prefix = true, sort_target = "create", sort_order = "descend",
      revision = 5 })))
  end)

  it("keeps every key among equals", function()
    local store = keywatch.open { now = 0 }
    for i = 1, 100 do store:put(("k%03d"):format(i), i % 2 == 0 and "even" or "odd") end
    local seen = {}
    local found = store:range("k", { prefix = true, sort_target = "value", sort_order = "descend" })
    for i, kv in ipairs(found.kvs) do
      seen[kv.key] = true
      assert.equal(i <= 50 and "odd" or "even", kv.value)
    end
    for i = 1, 100 do assert.is_true(seen[("k%03d"):format(i)]) end
  end)

  it("is of no matter to a count and to a single key", function()
    local store = new_store()
    assert.same({ revision = 10, kvs = {}, count = 4, more = false },
      store:range("", { prefix = true, sort_target = "mod", sort_order = "descend", count_only = true, limit = 1 }))
    assert.equal("a", keys(store:range("a", { sort_target = "mod", sort_order = "descend", limit = 1 })))
  end)
end)
