--- The past: what was there at a revision, and how much of it, while things change on.

local keywatch = require "keywatch"

local answer = require "spec.support.answer"

local code, keys = answer.code, answer.keys

--- A store that compacts nothing by itself, with `n` keys k0001 … put one after the other from revision 2 on.
local function store_with(n)
  local store = keywatch.open { now = 0 }
  for i = 1, n do store:put(("k%04d"):format(i), "first") end
  return store
end

local function at(store, revision, opts)
  local all = { prefix = true, revision = revision }
  for name, value in pairs(opts or {}) do all[name] = value end
  return assert(store:range("k", all))
end

describe("a past revision", function()
  it("has the values that keys had then", function()
    local store = keywatch.open { now = 0 }
    for i = 1, 300 do store:put("k", tostring(i)) end
    for revision = 2, 301 do
      local kv = store:get("k", { revision = revision })
      assert.same({ tostring(revision - 1), 2, revision, revision - 1 },
        { kv.value, kv.create_revision, kv.mod_revision, kv.version })
    end
  end)

  it("knows each life of a key that was deleted and made anew", function()
    local store = keywatch.open { now = 0 }
    store:put("k", "one") -- 2
    store:delete("k") -- 3
    store:put("k", "two") -- 4
    store:put("k", "three") -- 5
    store:delete("k") -- 6
    local lives = {}
    for revision = 1, 6 do
      local kv = store:get("k", { revision = revision })
      lives[revision] = kv and ("%s %d %d"):format(kv.value, kv.create_revision, kv.version) or "-"
    end
    assert.same({ "-", "one 2 1", "-", "two 4 1", "three 4 2", "-" }, lives)
  end)

  it("has all of a transaction or nothing", function()
    local store = store_with(2)
    store:txn { success = { { put = "k0003", value = "" }, { delete = "k0001" }, { put = "k0004", value = "" } } }
    assert.equal("k0001 k0002", keys(at(store, 3)))
    assert.equal("k0002 k0003 k0004", keys(at(store, 4)))
  end)

  it("can be read with limit, filters and sorting", function()
    local store = store_with(5)
    for i = 1, 5 do store:put(("k%04d"):format(i), "second") end
    local found = at(store, 8, { sort_order = "descend", sort_target = "mod", limit = 2 })
    assert.equal("k0002 k0001", keys(found))
    assert.same({ true, 5, 11 }, { found.more, found.count, found.revision })
    assert.equal("k0004 k0005", keys(at(store, 8, { max_mod_revision = 6, min_mod_revision = 5 })))
    assert.equal("", keys(at(store, 4, { min_mod_revision = 5 })))
  end)

  it("stays what it was when its keys are deleted", function()
    local store = store_with(10)
    local before = at(store, 11)
    store:delete("k", { prefix = true })
    local after = at(store, 11)
    assert.same(before.kvs, after.kvs)
    assert.equal(10, after.count)
    assert.equal(0, at(store, 12).count)
  end)

  it("is refused when it is compacted, or still to come", function()
    local store = store_with(5)
    store:compact(4)
    assert.equal("compacted", code(store:range("k", { prefix = true, revision = 3 })))
    assert.equal("k0001 k0002 k0003", keys(at(store, 4)))
    assert.equal("future_revision", code(store:range("k", { prefix = true, revision = 7 })))
  end)
end)

describe("the count at a past revision", function()
  it("is right where few things changed since, in a large range", function()
    local store = store_with(400)
    store:put("k0001", "again") -- 402: no more, no fewer
    store:delete("k0002") -- 403
    store:put("k0500", "new") -- 404
    store:delete("k0003") -- 405
    store:put("k0003", "back") -- 406
    store:delete("k0500") -- 407
    local counts = {}
    for revision = 401, 407 do counts[#counts + 1] = at(store, revision, { count_only = true }).count end
    assert.same({ 400, 400, 399, 400, 399, 400, 399 }, counts)
  end)

  it("is right where many things changed since, in a small range", function()
    local store = store_with(4)
    for i = 1, 300 do
      store:put("k0001", tostring(i))
      store:put("other" .. i, "")
    end
    store:delete("k0002")
    assert.same({ 0, 1, 2, 3, 4, 4, 3 }, {
      at(store, 1).count, at(store, 2).count, at(store, 3).count, at(store, 4).count, at(store, 5).count,
      at(store, 605).count, at(store, 606).count,
    })
  end)

  it("is of the range asked for alone", function()
    local store = store_with(30)
    store:delete("k000", { prefix = true }) -- 32: nine keys
    store:put("k0005", "back") -- 33
    local function count(revision) return store:range("k000", { prefix = true, revision = revision }).count end
    assert.same({ 9, 0, 1 }, { count(31), count(32), count(33) })
    assert.equal(21, store:range("k001", { from_key = true, revision = 31 }).count)
  end)

  it("is the number of keys that are read, at every revision", function()
    local store = keywatch.open { now = 0 }
    for i = 1, 200 do
      local key = ("k%02d"):format(i * 7 % 40)
      if i % 3 == 0 then store:delete(key) else store:put(key, tostring(i)) end
      if i % 10 == 0 then store:delete("k1", { prefix = true }) end
    end
    for revision = 1, store:status().revision do
      local found = at(store, revision)
      assert.equal(#found.kvs, found.count)
      assert.equal(found.count, at(store, revision, { count_only = true }).count)
      assert.equal(found.count, at(store, revision, { limit = 1 }).count)
    end
  end)

  it("is right inside of a transaction that has written already", function()
    local store = store_with(50)
    local answered = store:txn {
      success = {
        { delete = "k0001" },
        { put = "k9999", value = "" },
        { put = "k0002", value = "" },
        { range = "k", prefix = true, revision = 51, count_only = true },
        { range = "k", prefix = true, revision = 20, count_only = true },
        { range = "k", prefix = true, count_only = true },
      },
    }
    assert.same({ 50, 19, 50 }, {
      answered.responses[4].count, answered.responses[5].count, answered.responses[6].count,
    })
  end)

  it("is right while a compaction goes on, and after it", function()
    local store = keywatch.open { now = 0, step_records = 3 }
    for i = 1, 20 do store:put("k" .. i, "") end -- 2 … 21
    for i = 1, 10 do store:delete("k" .. i) end -- 22 … 31
    for i = 1, 5 do store:put("k" .. i, "") end -- 32 … 36
    store:compact(26)
    for _ = 1, 20 do
      assert.same({ 15, 14, 10, 15 }, {
        at(store, 26).count, at(store, 27).count, at(store, 31).count, at(store, 36).count,
      })
    end
    assert.is_false(store:step(0))
  end)
end)
