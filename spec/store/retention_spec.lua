--- How much of its history a replica keeps: by revisions, by bytes, by age.

local keywatch = require "keywatch"
local core = require "keywatch.core"

local probe = core.probe

local function put(key, revision, value)
  return { { type = "put", key = key, value = value or "v", create_revision = revision, version = 1 } }
end

local function kv(key, revision)
  return { key = key, value = "v", create_revision = revision, mod_revision = revision, version = 1, lease = 0 }
end

local function check(store)
  if probe then probe.check(store) end
end

describe("the history of a replica", function()
  local store

  after_each(function() store:close() end)

  it("is bounded by revisions that have events", function()
    store = keywatch.open { replica = true, now = 0, history_revisions = 3 }
    store:load_kvs(10, { kv("a", 3) })
    for i = 1, 3 do store:apply(10 + 10 * i, put("k", 10 + 10 * i)) end
    store:advance(45)
    assert.equal(10, store:status().compact_revision)
    store:apply(50, put("k", 50))
    assert.equal(20, store:status().compact_revision)
    assert.equal(20, store:get("k", { revision = 25 }).mod_revision)
    local _, err = store:get("k", { revision = 19 })
    assert.equal("compacted", err.code)
    check(store)
  end)

  it("may be empty", function()
    store = keywatch.open { replica = true, now = 0, history_revisions = 0 }
    store:load_kvs(10, { kv("a", 3) })
    for rev = 11, 20 do
      store:apply(rev, put("a", rev))
      assert.equal(rev, store:status().compact_revision)
    end
    while store:step() do end
    check(store)
  end)

  it("is bounded by age, by the clock of the store", function()
    store = keywatch.open { replica = true, now = 0, history_age = 10 }
    store:load_kvs(10, { kv("a", 3) })
    local applied = {}
    for second = 1, 40 do
      store:step(second)
      local rev = 10 + second
      store:apply(rev, put("k" .. second % 3, rev))
      applied[rev] = second
      store:step(second)
      local oldest = store:status().compact_revision + 1
      assert(second - applied[oldest] <= 12, "history is kept for too long")
      assert(not applied[oldest - 1] or second - applied[oldest - 1] >= 10, "history is forgotten too soon")
      check(store)
    end
    assert.is_number(store:deadline())
    store:step(60)
    assert.equal(50, store:status().compact_revision)
    while store:step(60) do end
    assert.is_nil(store:deadline())
    check(store)
  end)

  it("of an age of zero ends with the next step", function()
    store = keywatch.open { replica = true, now = 0, history_age = 0 }
    store:load_kvs(10, { kv("a", 3) })
    store:apply(11, put("a", 11))
    store:step(1)
    store:step(2)
    assert.equal(11, store:status().compact_revision)
  end)

  it("has the size of the events after a gap, when the part before the gap is compacted", function()
    store = keywatch.open { replica = true, now = 0, history_bytes = 2000 }
    store:load_kvs(10, { kv("a", 3) })
    local rev = 10
    for round = 1, 20 do
      for _ = 1, 3 do
        rev = rev + 1
        assert(store:apply(rev, put("x", rev, ("v"):rep(50))))
      end
      rev = rev + 5
      assert(store:merge_kvs(rev, { kv("a", 3), kv("y", rev - 1) }))
      check(store)
      assert.equal(round > 0, rev - store:status().compact_revision >= 5, "a merge has left no history")
    end
  end)

  it("is shorter while it has no readers, and has its full size for a reader", function()
    local rev = 10
    local function feed(n)
      for _ = 1, n do
        rev = rev + 1
        assert(store:apply(rev, put("k" .. rev % 7, rev, ("v"):rep(100))))
      end
      check(store)
      return rev - store:status().compact_revision -- the revisions that are kept
    end
    store = keywatch.open { replica = true, now = 0, history_bytes = 100000, history_idle_bytes = 4000 }
    store:load_kvs(10, {})
    local idle = feed(500)
    assert(idle > 10 and idle < 40, idle)
    local w = assert(store:watch("k", { prefix = true, max_bytes = 1000 })) -- is left behind, and catches up
    assert(feed(100) > 100)
    for i = rev - 99, rev do assert.equal(i, w:next(0).mod_revision) end
    assert(feed(300) >= 300 - idle)
    w:close()
    assert.equal(idle, feed(1000))
    w = assert(store:watch("k", { prefix = true, start_revision = rev - 5 }))
    assert(feed(200) >= 200)
    w:close()
    assert.equal(idle, feed(1000))
    for _ = 1, 10 do -- a long read at one revision
      local at = rev
      for _ = 1, 3 do
        assert(feed(10) > 10)
        assert(store:range("k", { prefix = true, revision = at }))
      end
    end
    assert.equal(idle, feed(1000))
  end)

  it("refuses a negative age", function()
    store = keywatch.open()
    assert.error_matches(function() keywatch.open { replica = true, history_age = -1 } end, "history_age")
    keywatch.open({ replica = true, history_age = math.huge }):close()
  end)

  it("is removed as fast as events come, in bounded steps", function()
    store = keywatch.open { replica = true, now = 0, history_revisions = 10, step_records = 100 }
    store:load_kvs(10, {})
    local most = 0
    for rev = 11, 5000 do
      store:apply(rev, put("k" .. rev % 7, rev, ("v"):rep(100)))
      most = math.max(most, store:status().db_size)
    end
    assert(most < 100000, most)
    check(store)
  end)
end)
