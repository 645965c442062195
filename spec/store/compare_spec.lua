--- Compares: what a transaction asks before it takes one of its branches.

local keywatch = require "keywatch"

local answer = require "spec.support.answer"

local code = answer.code

local function holds(store, ...) return assert(store:txn { compare = { ... } }).succeeded end

-- a has version 2, create_revision 3, mod_revision 5, value "m" and lease 7.
local function new_store()
  local store = keywatch.open { now = 0 }
  store:put("z", "") -- 2
  store:lease(10, { id = 7 })
  store:put("a", "") -- 3
  store:put("z", "") -- 4
  store:put("a", "m", { lease = 7 }) -- 5
  return store
end

local ops = { "=", "!=", ">", "<" }

-- Whether it holds against an operand that is less than what is there, equal, and greater.
local truths = {
  ["="] = { false, true, false },
  ["!="] = { true, false, true },
  [">"] = { true, false, false },
  ["<"] = { false, false, true },
}

local function with_store(fn) return function() fn(new_store()) end end

describe("a compare of", function()
  local cases = {
    { "a version", "version", { 1, 2, 3 } },
    { "a create_revision", "create_revision", { 2, 3, 4 } },
    { "a mod_revision", "mod_revision", { 4, 5, 6 } },
    { "a lease", "lease", { 6, 7, 8 } },
    { "a value", "value", { "l", "m", "n" } },
    { "a value, the shorter being less,", "value", { "", "m", "m\0" } },
    { "a value, as unsigned bytes,", "value", { "M", "m", "\255" } },
  }

  for _, case in ipairs(cases) do
    local title, target, operands = case[1], case[2], case[3]

    it(title .. " knows equal, not equal, greater and less", with_store(function(store)
      for _, op in ipairs(ops) do
        local found = {}
        for i, operand in ipairs(operands) do found[i] = holds(store, { key = "a", op = op, [target] = operand }) end
        assert.same(truths[op], found)
      end
    end))
  end

  it("anything is one of equality unless it says otherwise", with_store(function(store)
    assert.is_true(holds(store, { key = "a", version = 2 }))
    assert.is_false(holds(store, { key = "a", version = 1 }))
  end))

  it("a lease takes ids of all signs", with_store(function(store)
    assert.is_true(holds(store, { key = "a", lease = -1, op = ">" }))
    assert.is_true(holds(store, { key = "a", lease = "-9223372036854775808", op = ">" }))
    assert.is_true(holds(store, { key = "a", lease = "9223372036854775807", op = "<" }))
  end))

  it("a lease takes the lease itself", with_store(function(store)
    assert.is_true(holds(store, { key = "a", lease = store:lease_by_id(7) }))
  end))
end)

describe("a compare with a missing key", function()
  local numbers = { "version", "create_revision", "mod_revision", "lease" }

  for _, target in ipairs(numbers) do
    it("takes its " .. target .. " for 0", function()
      local store, found = new_store(), {}
      for _, op in ipairs(ops) do
        found[op] = { holds(store, { key = "none", op = op, [target] = 0 }),
          holds(store, { key = "none", op = op, [target] = 1 }) }
      end
      assert.same({ ["="] = { true, false }, ["!="] = { false, true }, [">"] = { false, false },
        ["<"] = { false, true } }, found)
    end)
  end

  it("fails for every value, also for one that is not equal", with_store(function(store)
    for _, op in ipairs(ops) do
      assert.is_false(holds(store, { key = "none", op = op, value = "" }))
      assert.is_false(holds(store, { key = "none", op = op, value = "x" }))
    end
  end))

  it("takes a deleted key for missing", with_store(function(store)
    store:delete("a")
    assert.is_true(holds(store, { key = "a", version = 0 }, { key = "a", create_revision = 0 }))
    assert.is_false(holds(store, { key = "a", value = "m", op = "!=" }))
  end))
end)

describe("a compare over a range", function()
  local function store_of_versions(...)
    local store = keywatch.open { now = 0 }
    for i, version in ipairs { ... } do
      for _ = 1, version do store:put("k" .. i, "value " .. version) end
    end
    return store
  end

  it("holds if it holds for every key", function()
    local store = store_of_versions(2, 3, 4)
    assert.is_true(holds(store, { key = "k", prefix = true, version = 1, op = ">" }))
    assert.is_false(holds(store, { key = "k", prefix = true, version = 2, op = ">" }))
    assert.is_false(holds(store, { key = "k", prefix = true, version = 3 }))
    assert.is_true(holds(store, { key = "k", prefix = true, version = 5, op = "!=" }))
  end)

  it("takes every way to name a range", function()
    local store = store_of_versions(1, 2, 2)
    assert.is_true(holds(store, { key = "k2", range_end = "k4", version = 2 }))
    assert.is_false(holds(store, { key = "k1", range_end = "k4", version = 2 }))
    assert.is_true(holds(store, { key = "k1", range_end = "k2", version = 1 }))
    assert.is_true(holds(store, { key = "k2", from_key = true, version = 2 }))
    assert.is_true(holds(store, { key = "k2", range_end = "\0", version = 2 }))
    assert.is_true(holds(store, { key = "", prefix = true, version = 0, op = ">" }))
    assert.is_true(holds(store, { key = "", from_key = true, version = 0, op = ">" }))
  end)

  it("compares values with each key's own", function()
    local store = store_of_versions(2, 2)
    assert.is_true(holds(store, { key = "k", prefix = true, value = "value 2" }))
    store:put("k2", "other")
    assert.is_false(holds(store, { key = "k", prefix = true, value = "value 2" }))
    assert.is_true(holds(store, { key = "k", prefix = true, value = "value 3", op = "<" }))
  end)

  it("without keys is as with a missing key", function()
    local store = store_of_versions(1)
    for _, range in ipairs { { "none", prefix = true }, { "k1", range_end = "k0" }, { "l", from_key = true } } do
      local function compare(fields)
        fields.key, fields.prefix, fields.range_end, fields.from_key = range[1], range.prefix, range.range_end,
          range.from_key
        return holds(store, fields)
      end
      assert.is_true(compare { version = 0 })
      assert.is_false(compare { version = 0, op = ">" })
      assert.is_false(compare { value = "", op = "=" })
      assert.is_false(compare { value = "x", op = "!=" })
    end
  end)

  it("does not see keys that were deleted", function()
    local store = store_of_versions(1, 5)
    store:delete("k2")
    assert.is_true(holds(store, { key = "k", prefix = true, version = 1 }))
  end)
end)

describe("compares", function()
  it("hold together if each of them holds", with_store(function(store)
    assert.is_true(holds(store, { key = "a", version = 2 }, { key = "a", value = "m" }, { key = "z", version = 2 }))
    assert.is_false(holds(store, { key = "a", version = 2 }, { key = "a", value = "m" }, { key = "z", version = 1 }))
    assert.is_false(holds(store, { key = "a", version = 1 }, { key = "a", value = "m" }, { key = "z", version = 2 }))
  end))

  it("hold if there are none", function()
    assert.is_true(new_store():txn({}).succeeded)
    assert.is_true(new_store():txn({ compare = {} }).succeeded)
  end)

  it("refuse an empty key", function()
    assert.equal("empty_key", code(new_store():txn { compare = { { key = "", version = 0 } } }))
    assert.equal("empty_key", code(new_store():txn { compare = { { key = "", range_end = "b", version = 0 } } }))
  end)
end)
