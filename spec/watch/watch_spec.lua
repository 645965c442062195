--- The events of a watch, and the ways to read them.

local keywatch = require "keywatch"
local core = require "keywatch.core"

local answer = require "spec.support.answer"
local events = require "spec.support.events"

local drain = events.drain

--- Returns a store at revision 4: "a" was put twice, "b" once.
local function store_with_keys(opts) return events.fill(keywatch.open(opts or { now = 0 })) end

local function with_store(fn) return function() fn(store_with_keys()) end end

--- Of a store without keys.
local function with_new(fn) return function() fn(keywatch.open { now = 0 }) end end

describe("a watch", function()
  it("delivers later events of its key", with_store(function(store)
    local w = store:watch("a")
    assert.equal("", (drain(w)))
    store:put("a", "3")
    store:put("b", "2")
    store:delete("a")
    store:put("a", "4")
    assert.same({ "put a 5, delete a 7, put a 8", "timeout" }, { drain(w) })
  end))

  it("delivers a put with all fields of the kv", with_new(function(store)
    local lease = store:lease(10)
    local w = store:watch("a")
    store:put("a", "1", { lease = lease })
    store:put("a", "2")
    assert.same({ type = "put", key = "a", value = "1", create_revision = 2, mod_revision = 2, version = 1,
      lease = lease.id }, w:next())
    assert.same({ type = "put", key = "a", value = "2", create_revision = 2, mod_revision = 3, version = 2, lease = 0 },
      w:next())
  end))

  it("delivers a delete with its key and its revision", with_store(function(store)
    local w = store:watch("a")
    store:delete("a")
    assert.same({ type = "delete", key = "a", mod_revision = 5 }, w:next())
  end))

  it("delivers events that belong to the reader", with_store(function(store)
    local one, two = store:watch("a"), store:watch("a")
    store:put("a", "3")
    local event = one:next()
    event.key, event.value = "mine", nil
    assert.equal("put a 5", events.text(two:next()))
  end))

  it("delivers nothing for requests without changes", with_store(function(store)
    local w = store:watch("", { prefix = true })
    store:delete("nobody")
    store:get("a")
    store:lease(10):revoke()
    store:txn { compare = { { key = "a", version = 9 } }, success = { { put = "a", value = "" } } }
    store:put("", "no key")
    store:compact(3)
    assert.equal("", (drain(w)))
  end))

  it("delivers all events of a transaction in the order of its ops, at one revision", with_store(function(store)
    local w = store:watch("", { prefix = true })
    store:txn { success = { { put = "c", value = "" }, { delete = "a" }, { put = "b", value = "" } } }
    assert.equal("put c 5, delete a 5, put b 5", (drain(w)))
  end))

  it("delivers every key that a delete of a range finds", with_store(function(store)
    local w = store:watch("", { prefix = true })
    store:delete("", { prefix = true })
    assert.equal("delete a 5, delete b 5", (drain(w)))
  end))

  it("delivers the keys of a lease that is revoked, or that expires", with_new(function(store)
    local one, two = store:lease(10), store:lease(20)
    local w = store:watch("", { prefix = true })
    store:put("a", "", { lease = one })
    store:put("b", "", { lease = two })
    store:put("c", "", { lease = two })
    one:revoke()
    store:step(19)
    assert.equal("put a 2, put b 3, put c 4, delete a 5", (drain(w)))
    store:step(20)
    assert.equal("delete b 6, delete c 6", (drain(w)))
  end))

  it("does the work that is due when it is read, like every call", with_new(function(store)
    store:put("a", "", { lease = store:lease(10) })
    local w = store:watch("a", { start_revision = 2 })
    assert.equal("put a 2", (drain(w))) -- from history, which was read in a step
  end))
end)

describe("a watch of", function()
  local function received(key, opts, keys)
    local store = keywatch.open { now = 0 }
    local w = assert(store:watch(key, opts))
    for _, one in ipairs(keys) do store:put(one, "") end
    local list = {}
    for i, event in ipairs((events.read(w))) do list[i] = event.key end
    return table.concat(list, " ")
  end

  local keys = { "a", "ab", "abc", "ac", "b", "ba", "c" }

  it("a key has the events of no other", function() assert.equal("ab", received("ab", nil, keys)) end)

  it("a prefix has the events of all keys that begin with it", function()
    assert.equal("ab abc", received("ab", { prefix = true }, keys))
    assert.equal("a ab abc ac b ba c", received("", { prefix = true }, keys))
  end)

  it("a range includes its start and not its end", function()
    assert.equal("ab abc ac", received("ab", { range_end = "b" }, keys))
    assert.equal("ab", received("ab", { range_end = "ab\0" }, keys))
  end)

  it("all keys from one on has their events", function()
    assert.equal("b ba c", received("b", { from_key = true }, keys))
    assert.equal("b ba c", received("b", { range_end = "\0" }, keys))
    assert.equal("a ab abc ac b ba c", received("", { from_key = true }, keys))
  end)

  it("the empty key is one of the least key of all", function()
    assert.equal("\0", received("", nil, { "\0", "\0\0", "a" }))
  end)

  it("keys of any bytes delivers them unchanged", function()
    local bytes = {}
    for i = 0, 255 do bytes[i + 1] = string.char(i) end
    local all = table.concat(bytes)
    local store = keywatch.open { now = 0 }
    local exact, prefix = store:watch(all), store:watch("\0", { prefix = true })
    local last = store:watch("\255\255", { prefix = true })
    store:put(all, all:reverse())
    store:put("\255", "")
    store:put("\255\255\0", "\0")
    store:delete(all)
    local event = exact:next()
    assert.same({ all, all:reverse() }, { event.key, event.value })
    assert.same({ type = "delete", key = all, mod_revision = 5 }, exact:next())
    assert.equal(2, #events.read(prefix))
    event = last:next()
    assert.same({ "\255\255\0", "\0" }, { event.key, event.value })
    assert.equal("timeout", answer.code(last:next(0)))
  end)

  it("an empty range is refused", with_new(function(store)
    for _, range in ipairs { { "b", "a" }, { "b", "b" }, { "b\0", "b" } } do
      assert.equal("empty_range", answer.code(store:watch(range[1], { range_end = range[2] })))
    end
    store:put("b", "")
    assert.equal(2, store:status().revision)
  end))
end)

describe("a watch that starts", function()
  it("in the past delivers past events, from that revision on, and then new ones", with_store(function(store)
    local w = store:watch("", { prefix = true, start_revision = 3 })
    store:delete("a")
    assert.equal("put a 3, put b 4, delete a 5", (drain(w)))
    store:put("a", "")
    assert.equal("put a 6", (drain(w)))
  end))

  it("at the present revision delivers its events", function()
    assert.equal("put b 4", (drain(store_with_keys():watch("b", { start_revision = 4 }))))
  end)

  it("at 0 starts now", function() assert.equal("", (drain(store_with_keys():watch("b", { start_revision = 0 })))) end)

  it("at 1 delivers everything", with_store(function(store)
    assert.equal("put a 2, put a 3, put b 4", (drain(store:watch("", { prefix = true, start_revision = 1 }))))
  end))

  it("in the future delivers nothing before", with_store(function(store)
    local w = store:watch("a", { start_revision = 6 })
    store:put("a", "5")
    assert.equal("", (drain(w)))
    store:put("a", "6")
    store:put("a", "7")
    assert.equal("put a 6, put a 7", (drain(w)))
  end))

  it("at the compacted revision delivers the events that were kept", with_store(function(store)
    store:compact(3)
    assert.equal("put a 3, put b 4", (drain(store:watch("", { prefix = true, start_revision = 3 }))))
  end))

  it("at the compacted revision delivers every change of it, until the next compaction", function()
    local store = store_with_keys()
    store:txn { success = {
      { delete = "a", from_key = true }, { put = "a", value = "5" }, { put = "b", value = "5" },
      { delete = "b", from_key = true },
    } }
    local function from(revision) return (drain(store:watch("", { prefix = true, start_revision = revision }))) end
    local all = from(5)
    assert.equal("delete a 5, delete b 5, put a 5, put b 5, delete b 5", all)
    store:compact(5, { physical = true })
    assert.equal(all, from(5))
    store:put("c", "")
    store:compact(6, { physical = true })
    assert.equal("put c 6", from(6))
    assert.same({ "5", nil, "" }, { store:get("a").value, store:get("b"), store:get("c").value })
  end)

  it("before the compacted revision fails, and reports that revision", with_store(function(store)
    store:compact(3)
    local w = store:watch("a", { start_revision = 2 })
    local event, err = w:next()
    assert.is_nil(event)
    assert.same({ "compacted", 3 }, { err.code, err.compact_revision })
    assert.equal(core.errors.compacted.message, err.message)
  end))
end)

describe("filters", function()
  local function received(filters)
    local store = keywatch.open { now = 0 }
    local w = store:watch("a", { filters = filters })
    store:put("a", "1")
    store:delete("a")
    store:put("a", "2")
    return (drain(w))
  end

  it("leave out puts, deletes, or both", function()
    assert.equal("put a 2, delete a 3, put a 4", received {})
    assert.equal("delete a 3", received { "no_put" })
    assert.equal("put a 2, put a 4", received { "no_delete" })
    assert.equal("", received { "no_put", "no_delete" })
  end)

  it("may be listed twice", function() assert.equal("delete a 3", received { "no_put", "no_put" }) end)

  it("apply to replayed events", with_new(function(store)
    store:put("a", "1")
    store:delete("a")
    assert.equal("delete a 3", (drain(store:watch("a", { start_revision = 1, filters = { "no_put" } }))))
  end))
end)

describe("the previous kv", function()
  it("comes with a put and with a delete", with_store(function(store)
    local w = store:watch("a", { prev_kv = true })
    store:put("a", "3")
    store:delete("a")
    local put, delete = w:next(), w:next()
    assert.same({ key = "a", value = "2", create_revision = 2, mod_revision = 3, version = 2, lease = 0 }, put.prev)
    assert.same({ key = "a", value = "3", create_revision = 2, mod_revision = 5, version = 3, lease = 0 }, delete.prev)
  end))

  it("comes with replayed events", function()
    local w = store_with_keys():watch("a", { prev_kv = true, start_revision = 3 })
    assert.equal("1", w:next().prev.value)
  end)

  it("does not come with the first put of a key, or the first after a delete", with_new(function(store)
    local w = store:watch("a", { prev_kv = true })
    store:put("a", "1")
    store:delete("a")
    store:put("a", "2")
    local list = events.read(w)
    assert.is_nil(list[1].prev)
    assert.equal("1", list[2].prev.value)
    assert.is_nil(list[3].prev)
  end))

  it("does not come if it is compacted", with_store(function(store)
    store:compact(3, { physical = true })
    local w = store:watch("a", { prev_kv = true, start_revision = 3 })
    local event = w:next()
    assert.equal("put a 3", events.text(event))
    assert.is_nil(event.prev)
  end))
end)

describe("with initial a watch", function()
  it("begins with the existing kvs, in the order of keys, then a mark, then later events", with_store(function(store)
    store:put("c", "")
    store:delete("c")
    local w = store:watch("", { prefix = true, initial = true })
    store:put("b", "2")
    assert.equal("initial a 3, initial b 4, synced 6, put b 7", (drain(w)))
    store:delete("a")
    assert.equal("delete a 8", (drain(w)))
  end))

  it("delivers existing kvs as puts that are marked as initial", function()
    local w = store_with_keys():watch("a", { initial = true })
    assert.same({ type = "put", key = "a", value = "2", create_revision = 2, mod_revision = 3, version = 2, lease = 0,
      initial = true }, w:next())
    assert.same({ type = "synced", revision = 4 }, w:next())
    assert.equal("timeout", answer.code(w:next(0)))
  end)

  it("is at its mark at once if nothing exists", with_new(function(store)
    local w = store:watch("a", { prefix = true, initial = true })
    assert.equal("synced 1", (drain(w)))
    store:put("ab", "")
    assert.equal("put ab 2", (drain(w)))
  end))

  it("stays in its range", with_new(function(store)
    for _, key in ipairs { "a", "ab", "b", "c" } do store:put(key, "") end
    local function seen(key, opts)
      opts.initial = true
      return (drain(store:watch(key, opts)))
    end
    assert.equal("initial a 2, synced 5", seen("a", {}))
    assert.equal("initial a 2, initial ab 3, synced 5", seen("a", { prefix = true }))
    assert.equal("initial ab 3, initial b 4, synced 5", seen("ab", { range_end = "c" }))
    assert.equal("initial b 4, initial c 5, synced 5", seen("b", { from_key = true }))
  end))

  it("takes the empty key for the least of all, too", with_new(function(store)
    store:put("\0", "x")
    store:put("a", "x")
    local w = store:watch("", { initial = true })
    store:put("\0", "y")
    assert.equal("initial \0 2, synced 3, put \0 4", (drain(w)))
  end))

  it("delivers events that occur during the initial read after all of it, once", with_new(function(store)
    for i = 1, 2500 do store:put(("k%04d"):format(i), "old") end
    local w = store:watch("k", { prefix = true, initial = true })
    local state, synced, n = {}, nil, 0
    while true do
      local event = w:next(0)
      if not event then break end
      n = n + 1
      if event.type == "synced" then
        synced = n
      elseif event.type == "put" then
        assert.equal(event.initial, not synced or nil)
        state[event.key] = event.value
      else
        assert.is_truthy(synced)
        state[event.key] = nil
      end
      if n <= 2500 then -- behind, at and ahead of the reader
        store:put(("k%04d"):format(n), "new")
        store:delete(("k%04d"):format(2501 - n))
      end
    end
    assert.equal(2501, synced)
    local expected = {}
    for kv in store:each("k", { prefix = true }) do expected[kv.key] = kv.value end
    assert.same(expected, state)
  end))

  it("fails if unread initial kvs are compacted", with_new(function(store)
    for i = 1, 1500 do store:put(("k%04d"):format(i), "") end
    local w = store:watch("k", { prefix = true, initial = true })
    store:put("k0001", "")
    store:compact(1502)
    local list, code = events.read(w)
    assert.is_true(#list < 1500)
    assert.equal("compacted", code)
    assert.equal("compacted", answer.code(w:next(0)))
  end))

  it("reports the compacted revision in that case", with_new(function(store)
    for i = 1, 1500 do store:put(("k%04d"):format(i), "") end
    local w = store:watch("k", { prefix = true, initial = true })
    store:put("k0001", "")
    store:compact(1502)
    events.read(w)
    assert.equal(1502, w:error().compact_revision)
  end))

  it("may have previous kvs, of later events", with_store(function(store)
    local w = store:watch("a", { initial = true, prev_kv = true })
    store:put("a", "3")
    local list = events.read(w)
    assert.equal("initial a 3, synced 4, put a 5", events.texts(list))
    assert.same({ nil, "2" }, { list[1].prev, list[3].prev.value })
  end))
end)

describe("the revision of a watch", function()
  it("is the store's when it starts now, and the one before its start otherwise", with_store(function(store)
    assert.equal(4, store:watch("a").revision)
    assert.equal(1, store:watch("a", { start_revision = 2 }).revision)
    assert.equal(9, store:watch("a", { start_revision = 10 }).revision)
  end))

  it("is reached when the last of its events was delivered", with_store(function(store)
    local w = store:watch("", { prefix = true })
    store:txn { success = { { put = "x", value = "" }, { put = "y", value = "" }, { put = "z", value = "" } } }
    store:put("a", "")
    local seen = {}
    for i = 1, 4 do
      w:next()
      seen[i] = w.revision
    end
    assert.same({ 4, 4, 5, 6 }, seen)
  end))

  it("does not include the initial kvs before all of them were delivered", with_store(function(store)
    local w = store:watch("", { prefix = true, initial = true })
    assert.is_true(w.revision < 4)
    w:next()
    w:next()
    assert.is_true(w.revision < 4)
    assert.equal("synced", w:next().type)
    assert.equal(4, w.revision)
  end))

  it("is where another watch continues, wherever this one stopped", with_new(function(store)
    for i = 1, 12 do
      local ops = {}
      for n = 1, i % 3 + 1 do ops[n] = { put = ("%d/%d"):format(i, n), value = "" } end
      store:txn { success = ops }
    end
    local function open(revision) return store:watch("", { prefix = true, start_revision = revision }) end
    local whole = events.read(open(1))
    for cut = 0, #whole do
      local w, list = open(1), {}
      for i = 1, cut do list[i] = w:next() end
      -- events of an unfinished revision are delivered again
      while list[1] and list[#list].mod_revision > w.revision do table.remove(list) end
      w:close()
      for _, event in ipairs((events.read(open(w.revision + 1)))) do table.insert(list, event) end
      assert.equal(events.texts(whole), events.texts(list))
    end
  end))
end)

describe("a watch that is not read", function()
  it("is blocked, and continues from history when there is room: nothing is lost or repeated", function()
    local store = keywatch.open { now = 0 }
    local w = store:watch("", { prefix = true, max_bytes = 1000 })
    local revisions, n = {}, 0
    for i = 1, 3000 do
      store:put("k" .. i % 7, ("v"):rep(i % 50))
      if i % 100 == 0 then
        for _ = 1, i % 30 do
          local event = w:next(0)
          if event then
            n = n + 1
            revisions[n] = event.mod_revision
          end
        end
      end
    end
    for _, event in ipairs((events.read(w))) do
      n = n + 1
      revisions[n] = event.mod_revision
    end
    assert.equal(3000, n)
    for i = 1, n do assert.equal(i + 1, revisions[i]) end
  end)

  it("accepts a revision that is larger than its bound", with_new(function(store)
    local w = store:watch("", { prefix = true, max_bytes = 0 })
    local ops = {}
    for i = 1, 50 do ops[i] = { put = ("k%02d"):format(i), value = ("v"):rep(100) } end
    store:txn { success = ops }
    store:txn { success = ops }
    local first, second = w:batch(), w:batch()
    assert.same({ 2, 50, 3, 50 }, { first.revision, #first.events, second.revision, #second.events })
  end))

  it("fails if its missed events are compacted, after its queue", with_new(function(store)
    local w = store:watch("a", { max_bytes = 300 })
    for i = 1, 100 do store:put("a", tostring(i)) end
    store:compact(90)
    local list, code = events.read(w)
    assert.equal("compacted", code)
    assert.is_true(#list > 0 and #list < 90)
    for i, event in ipairs(list) do assert.equal(i + 1, event.mod_revision) end
    assert.equal(90, w:error().compact_revision)
    assert.equal(list[#list].mod_revision, w.revision)
  end))

  it("is not affected by a compaction that keeps its missed events", with_new(function(store)
    local w = store:watch("a", { max_bytes = 300 })
    for i = 1, 100 do store:put("a", tostring(i)) end
    local first = w:next()
    store:compact(3)
    local list, code = events.read(w)
    assert.same({ 2, 99, "timeout" }, { first.mod_revision, #list, code })
  end))
end)
