--- Sorting of ranges: five targets, two orders, and limits.

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

local function with_store(fn) return function() fn(new_store()) end end

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

    it(target .. " ascends, unless it descends, and is cut after sorting", with_store(function(store)
      local function sorted(order, limit)
        return store:range("", { prefix = true, sort_target = target, sort_order = order, limit = limit })
      end
      assert.equal(expected, keys(sorted(nil)))
      assert.equal(expected, keys(sorted("none")))
      for order, whole in pairs { ascend = expected, descend = expected:reverse() } do
        assert.equal(whole, keys(sorted(order)))
        local found = sorted(order, 2)
        assert.same({ whole:sub(1, 3), true, 4 }, { keys(found), found.more, found.count })
      end
    end))
  end
end)

describe("a range without an order but with a target other than the key", function()
  it("sorts the first keys by key, one more than the limit, and cuts then", with_store(function(store)
    local found = store:range("", { prefix = true, sort_target = "value", limit = 2 })
    assert.equal("c a", keys(found)) -- a, b and c were looked at: d, the least, was not
    assert.same({ true, 4 }, { found.more, found.count })
    assert.equal("b c", keys(store:range("", { prefix = true, sort_target = "create", limit = 2 })))
    assert.equal("b", keys(store:range("", { prefix = true, sort_target = "create", limit = 1 })))
  end))

  it("sorts everything with a filter", with_store(function(store)
    local found = store:range("", { prefix = true, sort_target = "value", limit = 2, min_mod_revision = 1 })
    assert.equal("d c", keys(found))
    assert.same({ true, 4 }, { found.more, found.count })
  end))
end)

describe("sorting", function()
  it("compares numbers as numbers", function()
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

  it("keeps every key with equal targets", function()
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
end)
