--- Compaction: history before a revision is forgotten, at once for readers and then, step by step, in memory.

local keywatch = require "keywatch"

local answer = require "spec.support.answer"
local state = require "spec.support.state"

local code, keys = answer.code, answer.keys

local everything = { prefix = true }

local function at(revision) return { prefix = true, revision = revision } end

--- Steps until nothing is due, and how many that took.
local function finish(store)
  local n = 1
  while store:step(0) do n = n + 1 end
  return n
end

local function with_store(fn) return function() fn(keywatch.open { now = 0 }) end end

describe("compaction", function()
  it("returns the current revision and does not change it", with_store(function(store)
    store:put("a", "1")
    store:put("a", "2")
    assert.same({ revision = 3 }, store:compact(2))
    assert.equal(3, store:status().revision)
    assert.same({ revision = 3 }, store:compact(3, { physical = true }))
    assert.equal(4, store:put("a", "3").revision)
  end))

  it("is visible at once: older revisions cannot be read, the revision itself and later ones can", function()
    local store = keywatch.open { now = 0, step_records = 1 }
    for i = 1, 5 do store:put("a", tostring(i)) end
    store:compact(4)
    assert.equal("compacted", code(store:get("a", { revision = 3 })))
    assert.equal("compacted", code(store:range("", at(1))))
    assert.equal("compacted", code(store:hash_kv(3)))
    assert.same({ "3", "4", "5" }, { store:get("a", { revision = 4 }).value, store:get("a", { revision = 5 }).value,
      store:get("a").value })
  end)

  it("reports the compacted revision in the error and in the status", with_store(function(store)
    assert.equal(-1, store:status().compact_revision)
    for i = 1, 5 do store:put("a", tostring(i)) end
    store:compact(4)
    assert.equal(4, store:status().compact_revision)
    local _, err = store:get("a", { revision = 2 })
    assert.equal(4, err.compact_revision)
    _, err = store:compact(4)
    assert.equal(4, err.compact_revision)
  end))

  it("refuses compacted and future revisions", with_store(function(store)
    for i = 1, 5 do store:put("a", tostring(i)) end
    store:compact(4, { physical = true })
    local before = state.of(store)
    assert.equal("compacted", code(store:compact(4)))
    assert.equal("compacted", code(store:compact(3, { physical = true })))
    assert.equal("future_revision", code(store:compact(7)))
    state.expect(store, before)
  end))

  it("frees the memory of removed records", with_store(function(store)
    store:put("a", ("x"):rep(1000))
    local small = store:status().db_size
    for _ = 1, 100 do store:put("a", ("x"):rep(1000)) end
    assert.is_true(store:status().db_size > small + 100000)
    store:compact(102, { physical = true })
    assert.equal(small, store:status().db_size)
  end))

  it("may be at revision 0 and 1, with nothing before", with_store(function(store)
    store:put("a", "")
    assert.same({ revision = 2 }, store:compact(0))
    assert.equal(0, store:status().compact_revision)
    assert.same({ revision = 2 }, store:compact(1))
    assert.equal("compacted", code(store:compact(1)))
    assert.equal(0, store:range("", at(1)).count)
    assert.equal("a", keys(store:range("", at(2))))
  end))
end)

describe("the steps of a compaction", function()
  local function store_of_changes(n, step_records)
    local store = keywatch.open { now = 0, step_records = step_records }
    for i = 1, n do store:put("a", tostring(i)) end
    return store
  end

  it("are due at once, and the last one leaves none due", function()
    local store = store_of_changes(100, 10)
    assert.is_nil(store:deadline())
    store:compact(101)
    assert.equal(0, store:deadline())
    finish(store)
    assert.is_nil(store:deadline())
    assert.is_false(store:step(0))
  end)

  it("each visit as many records as the option says", function()
    for _, records in ipairs { 1, 7, 10, 100, 1000 } do
      local store = store_of_changes(100, records)
      store:compact(101)
      local needed = math.ceil(100 / records)
      local taken = finish(store)
      assert.is_true(taken >= needed and taken <= needed + 1)
    end
  end)

  it("are done by other calls as well, one by each", function()
    local store = store_of_changes(100, 10)
    store:compact(101)
    for _ = 1, 11 do store:get("a") end
    assert.is_false(store:step(0))
  end)

  it("are all done before a physical compaction returns", function()
    local store = store_of_changes(100, 1)
    store:compact(101, { physical = true })
    assert.is_nil(store:deadline())
  end)

  it("are all done by a physical compaction of a compacted revision", function()
    local store = store_of_changes(100, 1)
    store:compact(101)
    assert.equal("compacted", code(store:compact(50, { physical = true })))
    assert.is_nil(store:deadline())
  end)

  it("skip the remains of earlier compactions: other keys cost nothing", function()
    local store = keywatch.open { now = 0, step_records = 1 }
    for i = 1, 1000 do store:put(("k%04d"):format(i), "") end
    store:compact(1001, { physical = true })
    for _ = 1, 5 do store:put("k0500", "") end
    store:compact(1006)
    assert.is_true(finish(store) <= 8)
    assert.equal(1000, store:range("", everything).count)
  end)
end)
