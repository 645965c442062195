--- Long revisions: their events have too many bytes to be queued at once. A watch takes the events from the log, piece
-- by piece, while its reader reads them. The guarantees of a watch hold for these revisions, too.

local keywatch = require "keywatch"

local answer = require "spec.support.answer"
local directory = require "spec.support.directory"
local events = require "spec.support.events"
local within = require "spec.support.within"

local N, SIZE = 600, 8192 -- more than 4 MiB

local filler = ("v"):rep(SIZE)

local function key_of(i) return ("k%05d"):format(i) end
local function value_of(i) return i .. filler end

local all_keys = { prefix = true, prev_kv = true }

local function with(options, more)
  local t = {}
  for name, v in pairs(options) do t[name] = v end
  for name, v in pairs(more or {}) do t[name] = v end
  return t
end

local function fill(store)
  local ops = {}
  for i = 1, N do
    ops[#ops + 1] = { put = key_of(i), value = value_of(i) }
    if #ops == 100 then
      assert(store:txn { success = ops })
      ops = {}
    end
  end
  return store:status().revision
end

--- Expects an event to be the delete of key i, at a revision, with the previous kv unless `without_prev`.
local function expect(event, i, revision, without_prev)
  assert(event, "an event is missing")
  if event.type ~= "delete" or event.key ~= key_of(i) or event.mod_revision ~= revision then
    error(("%s of %s at %s instead of the delete of %s"):format(event.type, event.key, event.mod_revision,
      key_of(i)))
  end
  assert(without_prev and event.prev == nil or event.prev.value == value_of(i))
end

local function expect_nothing(watch)
  local event, err = watch:next(0)
  assert.same({ nil, "timeout" }, { event, err and err.code })
end

for _, kind in ipairs { "in memory", "on the disk" } do
  describe("a long revision of a store " .. kind, function()
    local store, before

    before_each(function()
      if kind == "in memory" then
        store = keywatch.open { now = 0 }
      else
        store = directory.open(directory.new(), { now = 0 })
      end
      before = fill(store)
    end)

    after_each(function()
      store:close()
      directory.remove_all()
    end)

    local function with_watch(fn) return function() fn(store:watch("k", all_keys)) end end

    --- Lets the store do all its due work.
    local function settle()
      while store:step(0) do end
    end

    --- Deletes all keys at once. Returns the revision.
    local function delete()
      local revision = assert(store:delete("k", { prefix = true })).revision
      settle()
      return revision
    end

    it("is delivered completely and in order, and the watch reaches it with its last event", with_watch(function(watch)
      local revision = delete()
      store:put("k", "later")
      for i = 1, N do
        assert(watch.revision < revision)
        expect(watch:next(0), i, revision)
      end
      assert.equal(revision, watch.revision)
      assert.equal("later", watch:next(0).value)
      expect_nothing(watch)
    end))

    it("takes no room in the queue", function()
      local handle = store:open_watch("k", all_keys)
      delete()
      local n, bytes, is_behind = handle:backlog()
      assert.same({ 1, true, false }, { n, bytes < 1000, is_behind })
    end)

    it("is returned as one batch", with_watch(function(watch)
      local revision = delete()
      local batch = watch:batch(0)
      assert.same({ revision, N }, { batch.revision, #batch.events })
      for i = 1, N do expect(batch.events[i], i, revision) end
      assert.equal(revision, watch.revision)
      expect_nothing(watch)
    end))

    it("lets other tasks run while it is collected into a batch", within.task(function()
      local watch, turns, is_made = store:watch("k", all_keys), 0, false
      local other = keywatch.spawn(function()
        while not is_made do
          turns = turns + 1
          keywatch.sleep(0)
        end
      end)
      delete()
      local batch = watch:batch(10)
      is_made = true
      other:join()
      assert.same({ true, N }, { turns > 3, #batch.events })
    end))

    it("is delivered between earlier and later events to a watch that catches up", function()
      local revision = delete()
      store:put("k", "later")
      local watch = store:watch("k", with(all_keys, { start_revision = before - 1 }))
      settle()
      for i = N - 199, N do assert.equal(value_of(i), watch:next(0).value) end
      for i = 1, N do expect(watch:next(0), i, revision) end
      assert.equal("later", watch:next(0).value)
      expect_nothing(watch)
    end)

    it("is delivered to each watch with its options", function()
      local watches = {
        all = store:watch("k", { prefix = true }),
        end_of_it = store:watch(key_of(N - 9), { from_key = true, prev_kv = true }),
        puts = store:watch("k", { prefix = true, prev_kv = true, filters = { "no_delete" } }),
        one = store:watch(key_of(7), { prev_kv = true }),
        late = store:watch("k", { prefix = true, prev_kv = true, start_revision = before + 2 }),
        cut = store:namespace("k"):watch("", all_keys),
      }
      local revision = delete()
      for i = 1, N do expect(watches.all:next(0), i, revision, true) end
      for i = N - 9, N do expect(watches.end_of_it:next(0), i, revision) end
      expect(watches.one:next(0), 7, revision)
      for i = 1, N do
        local event = watches.cut:next(0)
        assert(event.key == key_of(i):sub(2) and event.prev.key == event.key and event.prev.value == value_of(i))
      end
      for _, watch in pairs(watches) do expect_nothing(watch) end
    end)

    it("has every change of a key that one transaction changes more than once", with_watch(function(watch)
      store:txn { success = {
        { delete = "k", from_key = true }, { put = key_of(3), value = "new" }, { delete = key_of(3), from_key = true },
      } }
      settle()
      for i = 1, N do expect(watch:next(0), i, before + 1) end
      local put, again = watch:next(0), watch:next(0)
      assert.same({ "put", "new", "delete" }, { put.type, put.value, again.type })
      assert.same({ nil, value_of(3) }, { put.prev, again.prev.value })
      expect_nothing(watch)
    end))

    it("is delivered, without previous kvs, after its own revision was compacted", with_watch(function(watch)
      local revision = delete()
      store:put("k", "later")
      settle()
      store:compact(revision, { physical = true })
      settle()
      for i = 1, N do expect(watch:next(0), i, revision, true) end
      assert.equal("later", watch:next(0).value)
      expect_nothing(watch)
    end))

    it("fails if it is compacted before it is read", with_watch(function(watch)
      delete()
      local later = store:put("k", "later").revision
      settle()
      store:compact(later, { physical = true })
      local event, err = watch:next(0)
      assert.same({ nil, "compacted", later }, { event, err and err.code, err and err.compact_revision })
    end))

    it("fails if it is compacted while it is read, and the watch never reaches it", function()
      local watch, other = store:watch("k", all_keys), store:watch("k", all_keys)
      local revision = delete()
      for i = 1, 10 do expect(watch:next(0), i, revision) end
      settle()
      store:compact(store:put("k", "later").revision, { physical = true })
      local event, err
      repeat event, err = watch:next(0) until not event
      assert.same({ "compacted", true }, { err.code, watch.revision < revision })
      assert.equal("compacted", answer.code(other:batch(0)))
    end)

    it("may be closed while it is read", with_watch(function(watch)
      local revision = delete()
      for i = 1, 10 do expect(watch:next(0), i, revision) end
      watch:close()
      assert.is_nil(watch:next(0))
      local other = store:watch("k", with(all_keys, { start_revision = revision }))
      settle()
      expect(other:next(0), 1, revision)
      store:close()
    end))

    it("is covered by sync", with_watch(function(watch)
      local revision = delete()
      assert.equal(revision, watch:sync())
      for i = 1, N do expect(watch:next(0), i, revision) end
    end))
  end)
end

describe("a lagging watch", function()
  local store

  before_each(function() store = keywatch.open { now = 0 } end)
  after_each(function() store:close() end)

  it("is read without waiting, even if a revision takes many steps", function()
    for i = 1, 20000 do store:put(("k%05d"):format(i), "") end
    local w = store:watch("k20000", { start_revision = 20002 })
    store:delete("k", { prefix = true })
    assert.equal("delete k20000 20002", events.text(w:next(0)))
  end)

  it("is read without waiting, even if the first events are filtered out", function()
    for _ = 1, 3000 do store:put("a", "x") end
    store:put("a", "wanted")
    for _, read in ipairs { function(one) return one:next(0) end, function(one)
      return select(2, keywatch.select { one, timeout = 0 })
    end } do
      local one = assert(store:object_watch("a", {
        start_revision = 1, max_bytes = 10000, where = function(object) return object == "wanted" end,
      }))
      assert.equal("wanted", assert(read(one)).object)
    end
  end)
end)
