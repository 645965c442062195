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
  it("answers with the current revision and leaves it", with_store(function(store)
    store:put("a", "1")
    store:put("a", "2")
    assert.same({ revision = 3 }, store:compact(2))
    assert.equal(3, store:status().revision)
    assert.same({ revision = 3 }, store:compact(3, { physical = true }))
    assert.equal(4, store:put("a", "3").revision)
  end))

  it("is seen by readers at once: what is older cannot be read, the revision itself and later can", function()
    local store = keywatch.open { now = 0, step_records = 1 }
    for i = 1, 5 do store:put("a", tostring(i)) end
    store:compact(4)
    assert.equal("compacted", code(store:get("a", { revision = 3 })))
    assert.equal("compacted", code(store:range("", at(1))))
    assert.equal("compacted", code(store:hash_kv(3)))
    assert.same({ "3", "4", "5" }, { store:get("a", { revision = 4 }).value, store:get("a", { revision = 5 }).value,
      store:get("a").value })
  end)

  it("tells the compacted revision with the error and in the status", with_store(function(store)
    assert.equal(-1, store:status().compact_revision)
    for i = 1, 5 do store:put("a", tostring(i)) end
    store:compact(4)
    assert.equal(4, store:status().compact_revision)
    local _, err = store:get("a", { revision = 2 })
    assert.equal(4, err.compact_revision)
    _, err = store:compact(4)
    assert.equal(4, err.compact_revision)
  end))

  it("refuses a revision that is compacted already, or still to come", with_store(function(store)
    for i = 1, 5 do store:put("a", tostring(i)) end
    store:compact(4, { physical = true })
    local before = state.of(store)
    assert.equal("compacted", code(store:compact(4)))
    assert.equal("compacted", code(store:compact(3, { physical = true })))
    assert.equal("future_revision", code(store:compact(7)))
    state.expect(store, before)
  end))

  it("keeps of each key what it was at that revision, and everything later", with_store(function(store)
    store:put("a", "1") -- 2
    store:put("b", "1") -- 3
    store:put("a", "2") -- 4
    store:put("c", "1") -- 5
    store:put("a", "3") -- 6
    store:delete("b") -- 7
    local past = {}
    for revision = 5, 7 do past[revision] = store:range("", at(revision)) end
    store:compact(5, { physical = true })
    for revision = 5, 7 do assert.same(past[revision], store:range("", at(revision))) end
  end))

  it("leaves versions and create_revisions as they are", with_store(function(store)
    for i = 1, 10 do store:put("a", tostring(i)) end
    store:compact(11, { physical = true })
    store:put("a", "11")
    local kv = store:get("a")
    assert.same({ 2, 12, 11 }, { kv.create_revision, kv.mod_revision, kv.version })
  end))

  it("gives back the memory of what it forgets", with_store(function(store)
    store:put("a", ("x"):rep(1000))
    local small = store:status().db_size
    for _ = 1, 100 do store:put("a", ("x"):rep(1000)) end
    assert.is_true(store:status().db_size > small + 100000)
    store:compact(102, { physical = true })
    assert.equal(small, store:status().db_size)
  end))

  it("forgets a key that was deleted before the revision, wholly", with_store(function(store)
    for _ = 1, 3 do store:put("a", "") end
    store:delete("a")
    store:put("b", "")
    store:compact(6, { physical = true })
    local only_b = keywatch.open { now = 0 }
    only_b:put("b", "")
    assert.equal(only_b:status().db_size, store:status().db_size)
    assert.equal("b", keys(store:range("", everything)))
  end))

  it("keeps the mark of a delete at the revision itself, until the next compaction", function()
    local function size_after(...)
      local store = keywatch.open { now = 0 }
      store:put("a", "1") -- 2
      store:delete("a") -- 3
      store:put("b", "1") -- 4
      for _, revision in ipairs { ... } do assert(store:compact(revision, { physical = true })) end
      return store:status().db_size
    end
    local both, mark_and_b, b = size_after(2), size_after(3), size_after(4)
    assert.is_true(both > mark_and_b)
    assert.is_true(mark_and_b > b)
    assert.equal(b, size_after(3, 4))
    assert.equal(b, size_after(2, 3, 4))
  end)

  it("keeps nothing of a key that a transaction made and deleted before the revision", with_store(function(store)
    store:put("a", "")
    store:txn { success = { { txn = { success = { { put = "b", value = "" } } } }, { txn = { success = {
      { delete = "b" } } } } } }
    store:put("a", "")
    store:compact(4, { physical = true })
    assert.equal("a", keys(store:range("", everything)))
    assert.equal(5, store:put("b", "").revision)
    assert.equal(1, store:get("b").version)
  end))

  it("can be at revision 0 and 1, before which nothing is", with_store(function(store)
    store:put("a", "")
    assert.same({ revision = 2 }, store:compact(0))
    assert.equal(0, store:status().compact_revision)
    assert.same({ revision = 2 }, store:compact(1))
    assert.equal("compacted", code(store:compact(1)))
    assert.equal(0, store:range("", at(1)).count)
    assert.equal("a", keys(store:range("", at(2))))
  end))

  it("leaves leases and their keys", with_store(function(store)
    local lease = store:lease(10)
    for _ = 1, 5 do store:put("a", "", { lease = lease }) end
    store:compact(6, { physical = true })
    assert.same({ "a" }, lease:keys())
    assert.equal(7, lease:revoke().revision)
    assert.is_nil(store:get("a"))
    assert.equal(1, store:range("", at(6)).count)
  end))

  it("does not change the hash of what stays, whether it has run or only begun", function()
    local store = keywatch.open { now = 0, step_records = 1 }
    for i = 1, 30 do store:put("k" .. i % 7, tostring(i)) end
    store:delete("k3")
    store:put("k1", "")
    store:compact(25)
    local seen = { store:hash_kv().hash, store:hash_kv(25).hash, store:hash_kv(28).hash }
    repeat
      assert.same(seen, { store:hash_kv().hash, store:hash_kv(25).hash, store:hash_kv(28).hash })
    until not store:step(0)
    assert.same(seen, { store:hash_kv().hash, store:hash_kv(25).hash, store:hash_kv(28).hash })
  end)
end)

describe("the steps of a compaction", function()
  local function store_of_changes(n, step_records)
    local store = keywatch.open { now = 0, step_records = step_records }
    for i = 1, n do store:put("a", tostring(i)) end
    return store
  end

  it("are due at once, and nothing is due when they are over", function()
    local store = store_of_changes(100, 10)
    assert.is_nil(store:deadline())
    store:compact(101)
    assert.equal(0, store:deadline())
    finish(store)
    assert.is_nil(store:deadline())
    assert.is_false(store:step(0))
  end)

  it("each visit as many records as the store was told", function()
    for _, records in ipairs { 1, 7, 10, 100, 1000 } do
      local store = store_of_changes(100, records)
      store:compact(101)
      local needed = math.ceil(100 / records)
      local taken = finish(store)
      assert.is_true(taken >= needed and taken <= needed + 1)
    end
  end)

  it("are taken by other calls as well, one by each", function()
    local store = store_of_changes(100, 10)
    store:compact(101)
    for _ = 1, 11 do store:get("a") end
    assert.is_false(store:step(0))
  end)

  it("are all taken before a physical compaction returns", function()
    local store = store_of_changes(100, 1)
    store:compact(101, { physical = true })
    assert.is_nil(store:deadline())
  end)

  it("are all taken by a physical compaction that comes too late", function()
    local store = store_of_changes(100, 1)
    store:compact(101)
    assert.equal("compacted", code(store:compact(50, { physical = true })))
    assert.is_nil(store:deadline())
  end)

  it("leave reads and writes right while they go on", function()
    local store = keywatch.open { now = 0, step_records = 1 }
    for i = 1, 50 do store:put("k" .. i % 5, tostring(i)) end
    store:compact(50)
    for i = 1, 20 do
      store:put("k0", "new " .. i)
      assert.equal("new " .. i, store:get("k0").value)
      assert.equal("45", store:get("k0", { revision = 50 }).value)
      assert.equal(5, store:range("", at(50)).count)
      if i % 7 == 0 then store:delete("k1") end
    end
    finish(store)
    assert.equal("45", store:get("k0", { revision = 50 }).value)
    assert.equal("46", store:get("k1", { revision = 50 }).value)
    assert.is_nil(store:get("k1"))
  end)

  it("go on to the new end when another compaction begins meanwhile", function()
    local store = keywatch.open { now = 0, step_records = 2 }
    for i = 1, 40 do store:put("k" .. i % 4, tostring(i)) end -- 2 … 41
    store:delete("k0") -- 42
    store:put("k1", "last") -- 43
    store:compact(20)
    store:step(0)
    store:compact(43)
    assert.equal("compacted", code(store:range("", at(42))))
    finish(store)
    local anew = keywatch.open { now = 0 }
    for _, kv in ipairs(store:range("", everything).kvs) do anew:put(kv.key, kv.value) end
    assert.equal(3, anew:status().keys)
    assert.equal(anew:status().db_size, store:status().db_size)
  end)

  it("pass over what earlier compactions have left: other keys cost nothing", function()
    local store = keywatch.open { now = 0, step_records = 1 }
    for i = 1, 1000 do store:put(("k%04d"):format(i), "") end
    store:compact(1001, { physical = true })
    for _ = 1, 5 do store:put("k0500", "") end
    store:compact(1006)
    assert.is_true(finish(store) <= 8)
    assert.equal(1000, store:range("", everything).count)
  end)

  it("go on inside of a transaction, and begin it anew when a later compaction follows", function()
    local store = keywatch.open { now = 0, step_records = 2 }
    local ops = {}
    for i = 1, 20 do ops[i] = { put = "k" .. i, value = "" } end
    store:txn { success = ops }
    store:delete("k", everything)
    store:txn { success = ops }
    store:compact(3)
    for _ = 1, 14 do assert.is_true(store:step(0)) end -- inside of the tombstones of revision 3, which stay
    store:compact(4)
    assert.is_true(finish(store) >= 10)
    assert.equal(20, store:range("", at(4)).count)
    local anew = keywatch.open { now = 0 }
    anew:txn { success = ops }
    assert.equal(anew:status().db_size, store:status().db_size)
  end)
end)
