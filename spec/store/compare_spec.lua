--- Compares: the conditions by which a transaction takes one of its branches.

local keywatch = require "keywatch"

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

  it("any target is for equality by default", with_store(function(store)
    assert.is_true(holds(store, { key = "a", version = 2 }))
    assert.is_false(holds(store, { key = "a", version = 1 }))
  end))

  it("a lease takes a lease object", with_store(function(store)
    assert.is_true(holds(store, { key = "a", lease = store:lease_by_id(7) }))
  end))
end)

describe("a compare with a missing key", function()
  local numbers = { "version", "create_revision", "mod_revision", "lease" }

  for _, target in ipairs(numbers) do
    it("has 0 as its " .. target, function()
      local store, found = new_store(), {}
      for _, op in ipairs(ops) do
        found[op] = { holds(store, { key = "none", op = op, [target] = 0 }),
          holds(store, { key = "none", op = op, [target] = 1 }) }
      end
      assert.same({ ["="] = { true, false }, ["!="] = { false, true }, [">"] = { false, false },
        ["<"] = { false, true } }, found)
    end)
  end

  it("fails for every value, also for a compare with ~=", with_store(function(store)
    for _, op in ipairs(ops) do
      assert.is_false(holds(store, { key = "none", op = op, value = "" }))
      assert.is_false(holds(store, { key = "none", op = op, value = "x" }))
    end
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
end)

describe("compares", function()
  it("hold together if each of them holds", with_store(function(store)
    assert.is_true(holds(store, { key = "a", version = 2 }, { key = "a", value = "m" }, { key = "z", version = 2 }))
    assert.is_false(holds(store, { key = "a", version = 2 }, { key = "a", value = "m" }, { key = "z", version = 1 }))
    assert.is_false(holds(store, { key = "a", version = 1 }, { key = "a", value = "m" }, { key = "z", version = 2 }))
  end))
end)
