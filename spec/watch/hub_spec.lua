--- What the hub does for watchers: delivery, blocking and catching up, in bounded steps and memory.
--
-- Watches are built on handles: take() returns the queued items, with the batches of the core, as the kinds
-- "events", "progress" and "compacted".

local keywatch = require "keywatch"
local probe = require("keywatch.core").probe

local directory = require "spec.support.directory"
local events = require "spec.support.events"

local is_fast = require("spec.support.dose").is_small

local MIB = 1024 * 1024
local everything = { prefix = true }

local function check(store)
  if probe then probe.check(store) end
end

local function with(options, more)
  local all = {}
  for name, value in pairs(options) do all[name] = value end
  for name, value in pairs(more) do all[name] = value end
  return all
end

local function put_many(store, key, n, value)
  for i = 1, n do store:put(key, value or tostring(i)) end
end

--- A transaction that puts `n` keys in one revision.
local function puts(n, prefix)
  local ops = {}
  for i = 1, n do ops[i] = { put = ("%s%05d"):format(prefix, i), value = "" } end
  return { success = ops }
end

--- Does all that is due; how many steps that took.
local function settle(store, now)
  for n = 1, 1000 do
    if not store:step(now or 0) then return n end
  end
  error("the store always says that more is due")
end

local function put_event(revision, key, fields)
  local event = { type = "put", key = key, value = "", create_revision = revision, mod_revision = revision, version = 1,
    lease = 0 }
  for name, value in pairs(fields or {}) do event[name] = value end
  return event
end

--- The revisions of a list of events, each once.
local function revisions_of(list)
  local revisions = {}
  for _, event in ipairs(list) do
    if revisions[#revisions] ~= event.mod_revision then revisions[#revisions + 1] = event.mod_revision end
  end
  return revisions
end

--- Everything from `first` to `last` came, in order and once.
local function expect_revisions(first, last, list)
  local revisions = revisions_of(list)
  for i, revision in ipairs(revisions) do
    if revision ~= first + i - 1 then error(("revision %d comes instead of %d"):format(revision, first + i - 1), 2) end
  end
  assert.equal(last - first + 1, #revisions)
end

--- Returns all batches of events of a handle, and the kind of the item after them.
local function take_batches(handle)
  local batches = {}
  while true do
    local kind, what = handle:take()
    if kind ~= "events" then return batches, kind, what end
    batches[#batches + 1] = what
  end
end

local function take_all(handle)
  local all = {}
  local batches, kind, what = take_batches(handle)
  for _, batch in ipairs(batches) do
    for _, event in ipairs(batch) do all[#all + 1] = event end
  end
  return all, kind, what
end

-- {====== Held back and brought up ======

local function with_store(fn) return function() fn(keywatch.open { now = 0 }) end end

describe("a watcher whose outlet is full", function()
  it("is blocked, catches up and gets its events later, and has missed nothing", with_store(function(store)
    local handle = store:open_watch("k", { max_bytes = 1 })
    local all = {}
    for _ = 1, 5 do
      put_many(store, "k", 10)
      assert.is_true(handle:is_blocked())
      assert.is_false(handle:request_progress())
      check(store)
      local _, first = handle:take()
      assert.is_false(handle:is_blocked())
      settle(store)
      for _, event in ipairs(first) do all[#all + 1] = event end
      for _, event in ipairs((take_all(handle))) do all[#all + 1] = event end
      assert.truthy(handle:request_progress())
      assert.equal("progress", (handle:take()))
      check(store)
    end
    expect_revisions(2, 51, all)
  end))

  it("gets each put in its own batch while it is synced, and many in one batch when it catches up", function()
    local store = keywatch.open { now = 0 }
    local handle = store:open_watch("k", { max_bytes = 200 })
    put_many(store, "k", 20)
    local sizes = {}
    for i, batch in ipairs((take_batches(handle))) do sizes[i] = #batch end
    assert.equal(1, sizes[1])
    assert.equal(1, sizes[2])
    assert.is_true(sizes[#sizes] > 1)
  end)

  it("leaves the store idle until its queue is read, whatever the size of the refused batch", function()
    local store = keywatch.open { now = 0 }
    local handle = store:open_watch("", with(everything, { max_bytes = 1000 }))
    store:put("small", ("x"):rep(300))
    store:put("large", ("x"):rep(800))
    settle(store)
    assert.is_nil(store:deadline())
    assert.is_true(handle:is_blocked())
    assert.equal("put small 2, put large 3", events.texts((take_all(handle))))
  end)

  it("does not catch up in vain while it is read, before there is room for the next batch", function()
    local store = keywatch.open { now = 0 }
    local handle = store:open_watch("k", { max_bytes = 100000 })
    put_many(store, "k", 2000, ("x"):rep(100))
    settle(store)
    local seen, walks = 0, 0
    for _, list in handle.take, handle do
      seen = seen + #list
      if not handle:is_blocked() then walks = walks + 1 end
      settle(store)
      check(store)
    end
    assert.equal(2000, seen)
    assert.is_true(walks <= 5, ("was brought up %d times"):format(walks))
  end)
end)

describe("the memory", function()
  local PUTS = is_fast and 1000 or 10000

  --- What `PUTS` puts leave in the core and in Lua, with a blocked watcher, or without watchers.
  local function growth(options)
    local store = keywatch.open { now = 0 }
    local handle = options and store:open_watch("k", options)
    put_many(store, "k", 3)
    if handle then assert.is_true(handle:is_blocked()) end
    collectgarbage()
    local live, count = probe and probe.live() or 0, collectgarbage("count")
    put_many(store, "k", PUTS, "value")
    collectgarbage()
    local grown = (probe and probe.live() or 0) - live
    local kib = collectgarbage("count") - count
    if handle then
      assert.is_true(handle:is_blocked())
      expect_revisions(2, PUTS + 4, (take_all(handle)))
    end
    store:close()
    return grown, kib
  end

  it("for a blocked watcher does not grow with what it misses", function()
    local without = growth(nil)
    local with_blocked, kib = growth { max_bytes = 1 }
    assert.equal(without, with_blocked)
    assert.is_true(kib < 64)
  end)

  it("for a lagging watcher does not grow with what it has missed", with_store(function(store)
    put_many(store, "k", PUTS, "value")
    collectgarbage()
    local live = probe and probe.live() or 0
    local handles = {}
    for i = 1, 100 do handles[i] = store:open_watch("other", { start_revision = 1 }) end
    local grown = (probe and probe.live() or 0) - live
    assert.is_true(grown < 300)
    settle(store)
    assert.is_true((probe and probe.live() or 0) - live < 300)
    for _, handle in ipairs(handles) do assert.truthy(handle:request_progress()) end
  end))

  it("for an event is shared by all watchers of the event", with_store(function(store)
    local handles = {}
    for i = 1, 500 do handles[i] = store:open_watch("k", {}) end
    store:put("k", "")
    for _, handle in ipairs(handles) do handle:take() end
    local live = probe and probe.live() or 0
    store:put("k", ("x"):rep(1000))
    assert.is_true((probe and probe.live() or 0) - live < 20)
    for _, handle in ipairs(handles) do assert.equal(1, #take_all(handle)) end
  end))

  it("is given back when a watcher with a full queue is closed", with_store(function(store)
    put_many(store, "k", 10)
    store:open_watch("k", {}):close()
    local live = probe and probe.live() or 0
    local handle = store:open_watch("k", { start_revision = 2 })
    settle(store)
    handle:close()
    assert.is_true((probe and probe.live() or 0) - live < 20)
    assert.equal("closed", (handle:take()))
    check(store)
  end))
end)

-- }======

-- {====== Batches ======

describe("a replayed batch", function()
  it("has at most a thousand revisions", with_store(function(store)
    put_many(store, "k", 2500)
    local batches = take_batches(store:open_watch("k", { start_revision = 1 }))
    assert.same({ 1000, 1000, 500 }, { #batches[1], #batches[2], #batches[3] })
    assert.equal(3, #batches)
  end))

  it("has at most one MiB, except for the end of a revision", with_store(function(store)
    local value = ("x"):rep(100 * 1024)
    for i = 1, 30 do store:put("k" .. i, value) end
    local batches = take_batches(store:open_watch("", with(everything, { start_revision = 1 })))
    local n = 0
    for i, batch in ipairs(batches) do
      assert.is_true(#batch * #value < MIB + 2 * #value)
      if i < #batches then assert.is_true((#batch + 1) * #value > MIB) end
      n = n + #batch
    end
    assert.equal(30, n)
  end))

  it("ends where a revision ends", with_store(function(store)
    for i = 1, 1500 do store:txn(puts(3, tostring(i))) end
    local batches = take_batches(store:open_watch("", with(everything, { start_revision = 1 })))
    local all = {}
    for _, batch in ipairs(batches) do
      assert.equal(0, #batch % 3)
      assert.is_true(#revisions_of(batch) <= 1000)
      for _, event in ipairs(batch) do all[#all + 1] = event end
    end
    expect_revisions(2, 1501, all)
    assert.equal(4500, #all)
  end))

  for _, n in ipairs { 999, 1000, 1001, 1999, 2000, 2001 } do
    it("is followed by the next, and then by new events: " .. n .. " revisions", with_store(function(store)
      put_many(store, "k", n)
      local handle = store:open_watch("k", { start_revision = 2 })
      local all = take_all(handle)
      store:put("k", "last")
      for _, event in ipairs((take_all(handle))) do all[#all + 1] = event end
      expect_revisions(2, n + 2, all)
      assert.equal(n + 1, #all)
    end))
  end
end)

-- }======

-- {====== Fairness ======

describe("thousands of lagging watchers", function()
  local WATCHERS, MISSED, PER_STEP = is_fast and 1200 or 10000, is_fast and 300 or 1500, 512

  --- A store, and a list of handles: all of them were blocked, have missed a lot, and lag since something was taken.
  local function new_crowd()
    local store, handles = keywatch.open { now = 0 }, {}
    for i = 1, WATCHERS do
      local handle, tag = store:open_watch("k", { max_bytes = 1 })
      handles[i] = handle
      handles[tag] = handle -- tags count from 1 on
    end
    put_many(store, "k", MISSED)
    for _, handle in ipairs(handles) do assert(handle:is_blocked()) end
    for _, handle in ipairs(handles) do assert(#select(2, handle:take()) == 1) end
    return store, handles
  end

  it("do not keep a put from synced watchers, nor make the put deliver more than a bounded number", function()
    local store, handles = new_crowd()
    local synced, synced_tag = store:open_watch("other", {})
    for _, handle in ipairs(handles) do handle:arm() end
    synced:arm()
    for _ in store.next_ready, store do end -- those of earlier calls
    store:put("other", "")
    local received, n = {}, 0
    for tag in store.next_ready, store do
      received[tag] = true
      n = n + 1
    end
    assert.is_true(received[synced_tag])
    assert.equal("put other " .. MISSED + 2, events.texts(select(2, synced:take())))
    assert.is_true(n > 1 and n <= PER_STEP + 1)
    for tag in pairs(received) do
      local list = tag ~= synced_tag and select(2, handles[tag]:take()) or {}
      assert(#revisions_of(list) <= 1000)
    end
    check(store)
    store:close()
  end)

  it("share the walks that catch them up, and miss nothing", function()
    local store, handles = new_crowd()
    local batches = math.ceil(MISSED / 1000)
    assert.is_true(settle(store) <= batches * math.ceil(WATCHERS / PER_STEP) + 1)
    check(store)
    for i = 1, WATCHERS, 197 do
      local all = {}
      repeat
        settle(store)
        local list = take_all(handles[i])
        for _, event in ipairs(list) do all[#all + 1] = event end
      until #list == 0
      expect_revisions(3, MISSED + 1, all)
    end
    store:close()
  end)
end)

describe("watchers that lag at different revisions", function()
  it("catch up by few walks", with_store(function(store)
    put_many(store, "k", 900)
    local handles = {}
    for i = 1, 300 do
      local key, is_prefix = i % 2 == 0 and "k" or "", i % 2 == 1
      handles[i] = store:open_watch(key, { prefix = is_prefix, start_revision = i * 3, max_bytes = 1 })
    end
    assert.is_true(settle(store) <= 5)
    for i, handle in ipairs(handles) do expect_revisions(math.max(i * 3, 2), 901, (take_all(handle))) end
    check(store)
  end))

  it("catch up even if their positions are far apart", with_store(function(store)
    put_many(store, "k", 5000)
    local handles, starts = {}, { 4900, 2, 1000, 3333, 5001, 1, 2500 }
    for i, start in ipairs(starts) do handles[i] = store:open_watch("k", { start_revision = start }) end
    assert.is_true(settle(store) <= 40)
    for i, start in ipairs(starts) do
      assert.truthy(handles[i]:request_progress())
      expect_revisions(math.max(start, 2), 5001, (take_all(handles[i])))
    end
  end))
end)

-- }======

-- {====== Progress ======

describe("progress", function()
  it("is unavailable while the watcher lags, is blocked, or has no room", with_store(function(store)
    put_many(store, "k", 5)
    local lagging = store:open_watch("k", { start_revision = 1 })
    assert.is_false(lagging:request_progress())
    settle(store)
    assert.truthy(lagging:request_progress())

    local full = store:open_watch("k", { max_bytes = 1 })
    store:put("k", "")
    assert.is_false(full:is_blocked())
    assert.is_false(full:request_progress())
    store:put("k", "")
    assert.is_true(full:is_blocked())
    assert.is_false(full:request_progress())
    take_all(full)
    assert.truthy(full:request_progress())
    assert.same({ "progress", 8 }, { full:take() })
  end))

  it("is available again at once after a later watcher was blocked and has caught up", with_store(function(store)
    local handle = store:open_watch("k", { start_revision = 3, max_bytes = 1 })
    put_many(store, "k", 5)
    assert.is_true(handle:is_blocked())
    expect_revisions(3, 6, (take_all(handle)))
    assert.truthy(handle:request_progress())
    assert.same({ "progress", 6 }, { handle:take() })
  end))

  it("is unavailable for a watcher that has failed, or that is closed", with_store(function(store)
    put_many(store, "k", 5)
    store:compact(5)
    local handle = store:open_watch("k", { start_revision = 2 })
    settle(store)
    assert.is_false(handle:request_progress())
    assert.same({ "compacted", 5 }, { handle:take() })
    assert.is_false(handle:request_progress())
    handle:close()
    assert.is_false(handle:request_progress())
  end))
end)

describe("periodic progress", function()
  local function open(interval) return keywatch.open { now = 100, progress_interval = interval } end

  it("comes after an interval even if there was no interested watcher for long", function()
    local store = open(10)
    store:open_watch("k", { progress = true }):close()
    settle(store, 1000)
    local handle = store:open_watch("k", { progress = true })
    settle(store, 1001)
    assert.is_nil(handle:take())
    settle(store, 1011)
    assert.equal("progress", (handle:take()))
  end)

  it("skips watchers that did not request it, that lag, and that are full", function()
    local store = open(10)
    put_many(store, "k", 3)
    local silent = store:open_watch("k", {})
    local full = store:open_watch("k", { progress = true, max_bytes = 1 })
    put_many(store, "k", 2)
    settle(store, 105)
    settle(store, 125)
    settle(store, 145)
    assert.equal(2, #take_all(silent))
    local list, kind = take_all(full)
    assert.equal(2, #list)
    assert.is_nil(kind)
  end)

  it("comes to thousands, in bounded steps that return whether more is due", function()
    local store = open(10)
    local handles = {}
    for i = 1, 3000 do handles[i] = store:open_watch("k" .. i, { progress = true }) end
    settle(store, 101)
    for _, handle in ipairs(handles) do handle:take() end
    assert.is_true(settle(store, 200) > 1)
    for _, handle in ipairs(handles) do assert.equal("progress", (handle:take())) end
    assert.equal(210, store:deadline())
  end)
end)

-- }======

-- {====== Beginning and end ======

describe("a watcher", function()
  it("that is armed is announced once, also for earlier events", with_store(function(store)
    local handle, tag = store:open_watch("k", {})
    handle:arm()
    assert.is_nil(store:next_ready())
    put_many(store, "k", 2)
    assert.equal(tag, store:next_ready())
    assert.is_nil(store:next_ready())
    handle:arm()
    assert.equal(tag, store:next_ready())
    handle:arm()
    handle:disarm()
    assert.is_nil(store:next_ready())
    take_all(handle)
    handle:arm()
    assert.is_nil(store:next_ready())
    check(store)
  end))

  it("that begins in the future is not affected by compaction", with_store(function(store)
    local handle = store:open_watch("k", { start_revision = 5 })
    put_many(store, "k", 3)
    store:compact(4)
    settle(store)
    put_many(store, "k", 2)
    expect_revisions(5, 6, (take_all(handle)))
  end))

  it("that is closed loses its queue, and does not affect others", with_store(function(store)
    local handles = {}
    for i = 1, 6 do
      local is_range = i % 2 == 1
      handles[i] = store:open_watch(is_range and "" or "k", { prefix = is_range, max_bytes = 200 })
    end
    put_many(store, "k", 10) -- some are blocked
    for i = 1, 4 do
      handles[i]:close()
      check(store)
      store:put("k", "")
      assert.equal("closed", (handles[i]:take()))
    end
    for i = 5, 6 do expect_revisions(2, 15, (take_all(handles[i]))) end
  end))

  it("may be closed in every state", with_store(function(store)
    put_many(store, "k", 10)
    store:compact(5)
    local failed = store:open_watch("k", { start_revision = 2 })
    settle(store)
    local lagging = store:open_watch("k", { start_revision = 6 })
    local synced, future = store:open_watch("k", {}), store:open_watch("k", { start_revision = 100 })
    local blocked = store:open_watch("k", { max_bytes = 0 })
    put_many(store, "k", 2)
    for _, handle in ipairs { failed, lagging, synced, future, blocked } do
      handle:close()
      check(store)
      assert.equal("closed", (handle:take()))
      handle:close()
    end
    settle(store)
    check(store)
  end))
end)

-- }======

-- {====== Compaction ======

describe("compaction", function()
  it("fails no watcher for events that it does not watch", with_store(function(store)
    local handle = store:open_watch("k", { no_put = true, max_bytes = 1 })
    store:put("k", "")
    store:delete("k") -- 3, which fills the outlet
    store:put("k", "")
    store:delete("k") -- 5, which is refused
    store:compact(5)
    settle(store)
    assert.equal("delete k 3, delete k 5", events.texts((take_all(handle))))
  end))

  it("fails no watcher for events of other watchers", with_store(function(store)
    put_many(store, "k", 5)
    local late = store:open_watch("k", { start_revision = 6, max_bytes = 1 })
    put_many(store, "k", 1)
    local early = store:open_watch("k", { start_revision = 3, max_bytes = 1 })
    settle(store)
    put_many(store, "k", 5)
    store:compact(7)
    settle(store)
    expect_revisions(6, 12, (take_all(late)))
    expect_revisions(3, 12, (take_all(early)))
  end))

  it("fails every watcher that it overtakes, with a reason", with_store(function(store)
    local handles = {}
    for i = 1, 50 do handles[i] = store:open_watch("k", { max_bytes = 1 }) end
    put_many(store, "k", 10)
    for i = 1, 25 do handles[i]:take() end
    store:compact(11)
    for i, handle in ipairs(handles) do
      local list, kind = take_all(handle)
      local is_whole = #list + (i <= 25 and 1 or 0) == 10
      assert.equal(is_whole and "nil" or "compacted", tostring(kind))
    end
  end))
end)

-- }======

-- {====== Replicas ======

describe("a replica's watchers", function()
  local function new_replica(revision)
    local replica = keywatch.open { now = 0, replica = true }
    replica:load_kvs(revision, {})
    return replica
  end

  local function code_of(w)
    local list, code = events.read(w)
    return events.texts(list), code, w:error() and w:error().compact_revision
  end

  it("catch up from behind its base, and fail from its base on", function()
    local replica = new_replica(5)
    replica:apply(6, { put_event(6, "k") })
    assert.same({ "put k 6", "timeout" }, { events.drain(replica:watch("k", { start_revision = 6 })) })
    local w = replica:watch("k", { start_revision = 5 })
    assert.same({ "", "compacted", 6 }, { code_of(w) })
    local again = replica:watch("k", { start_revision = w:error().compact_revision })
    assert.same({ "put k 6", "timeout" }, { events.drain(again) })
  end)

  it("fail when their missed events exceed its history", function()
    local replica = keywatch.open { now = 0, replica = true, history_bytes = 500 }
    replica:load_kvs(5, {})
    local synced, blocked = replica:watch("k"), replica:watch("k", { max_bytes = 1 })
    for revision = 6, 30 do replica:apply(revision, { put_event(revision, "k", { value = ("x"):rep(50) }) }) end
    local compacted = replica:status().compact_revision
    assert.is_true(compacted > 7)
    expect_revisions(6, 30, (events.read(synced)))
    assert.same({ "put k 6", "compacted", compacted }, { code_of(blocked) })
  end)

  it("fail for no revision that it has forgotten as soon as it was refused", function()
    local replica = keywatch.open { now = 0, replica = true, history_bytes = 1 }
    replica:load_kvs(5, {})
    local w = replica:watch("k", { max_bytes = 1 })
    replica:apply(6, { put_event(6, "k") })
    replica:apply(7, { put_event(7, "k") })
    assert.equal(7, replica:status().compact_revision)
    assert.same({ "put k 6, put k 7", "timeout" }, { events.drain(w) })
  end)

  it("get a key deleted and created again in one revision, with the previous kv only at the delete", function()
    local replica = new_replica(5)
    replica:apply(6, { put_event(6, "k", { value = "old" }) })
    local w = replica:watch("k", { prev_kv = true })
    replica:apply(7, { { type = "delete", key = "k" }, put_event(7, "k", { value = "new" }) })
    local batch = w:batch(0)
    assert.equal("delete k 7, put k 7", events.texts(batch.events))
    assert.equal("old", batch.events[1].prev.value)
    assert.is_nil(batch.events[2].prev)
  end)
end)

-- }======

-- {====== Memory that runs out ======

if not probe then return end

describe("without memory", function()
  local MOST = 300 -- allocations: nothing here needs as many

  after_each(function() probe.fail_none() end)

  --- Does `act` with the n-th allocation failing, for n = 1, 2, … until none fails. `prepare` makes what it needs,
  -- `verify` checks the result.
  local function for_each_failure(prepare, act, verify)
    for n = 1, MOST do
      local it = prepare()
      local before = probe.allocations()
      probe.fail_core(n)
      local results = { act(it) }
      local used = probe.allocations() - before
      probe.fail_none()
      probe.check(it.store)
      verify(it, results)
      probe.check(it.store)
      it.store:close()
      if used < n then return end
    end
    error("it never succeeds")
  end

  local kinds = {
    { "k", {} }, { "", { prefix = true } }, { "a", { range_end = "z" } }, { "k", { prev_kv = true, max_bytes = 1 } },
    { "j", { from_key = true, no_delete = true, progress = true } },
  }

  local function open_all(store, more)
    local handles = {}
    for i, kind in ipairs(kinds) do handles[i] = store:open_watch(kind[1], with(kind[2], more or {})) end
    return handles
  end

  --- Each watcher has received every event, once and in order.
  local function expect_all(store, handles, first, last)
    for _ = 1, 10 do
      settle(store)
      for _, handle in ipairs(handles) do
        for _, event in ipairs((take_all(handle))) do
          handles[handle] = handles[handle] or {}
          table.insert(handles[handle], event)
        end
      end
    end
    for _, handle in ipairs(handles) do
      expect_revisions(first, last, handles[handle])
      assert.equal(last - first + 1, #handles[handle])
      assert.truthy(handle:request_progress())
    end
  end

  for _, kind in ipairs(kinds) do
    for _, start in ipairs { 0, 2, 9 } do
      it(("a watch of %q from %d on is opened, or not at all"):format(kind[1], start), function()
        for_each_failure(function()
          local store = keywatch.open { now = 0 }
          put_many(store, "k", 3)
          return { store = store }
        end, function(made)
          return made.store:open_watch(kind[1], with(kind[2], { start_revision = start }))
        end, function(made, results)
          local handle, err = results[1], results[2]
          if not handle then assert.equal("out_of_memory", err.code) end
          put_many(made.store, "k", 10)
          local first = start == 0 and 5 or start
          if handle then expect_all(made.store, { handle }, first, 14) end
        end)
      end)
    end
  end

  it("a watch with initial kvs is opened, or not at all", function()
    for_each_failure(function()
      local store = keywatch.open { now = 0 }
      put_many(store, "k", 3)
      return { store = store }
    end, function(made)
      return made.store:watch("k", { initial = true })
    end, function(made, results)
      local w, err = results[1], results[2]
      if not w then return assert.equal("out_of_memory", err.code) end
      made.store:put("k", "")
      assert.equal("initial k 4, synced 4, put k 5", (events.drain(w)))
    end)
  end)

  for what, more in pairs { ["one of them blocked"] = {}, ["all with little room"] = { max_bytes = 100 } } do
    it("puts are delivered to all of their five watchers, now or later: " .. what, function()
      for_each_failure(function()
        local store = keywatch.open { now = 0 }
        store:put("k", "")
        return { store = store, handles = open_all(store, more) }
      end, function(made)
        local n = 0
        for _ = 1, 5 do n = n + (made.store:put("k", "") and 1 or 0) end
        return n
      end, function(made, results)
        put_many(made.store, "k", 2)
        expect_all(made.store, made.handles, 3, results[1] + 4)
      end)
    end)
  end

  it("a watch that begins later gets no earlier events or progress", function()
    for_each_failure(function()
      local store = keywatch.open { now = 0, progress_interval = 1 }
      store:put("k", "")
      return { store = store, handles = open_all(store, { start_revision = 6, progress = true }) }
    end, function(made)
      return made.store:put("k", "")
    end, function(made, results)
      settle(made.store)
      for now = 5, 9 do settle(made.store, now) end
      for _, handle in ipairs(made.handles) do
        handle:request_progress()
        assert.is_nil(handle:take())
      end
      put_many(made.store, "k", results[1] and 5 or 6)
      expect_all(made.store, made.handles, 6, 8)
    end)
  end)

  for what, new_path in pairs { memory = function() end, disk = directory.new } do
    it("a step that catches watchers up does it later: " .. what, function()
      for_each_failure(function()
        local store = keywatch.open { now = 0, path = new_path() }
        for i = 1, 20 do store:put("k", tostring(i)) end
        return { store = store, handles = open_all(store, { start_revision = 2, prev_kv = true }) }
      end, function(made)
        made.store:step(0)
      end, function(made)
        made.store:put("k", "21")
        expect_all(made.store, made.handles, 2, 22)
        for _, handle in ipairs(made.handles) do
          for i, event in ipairs(made.handles[handle]) do
            assert.equal(i > 1 and tostring(i - 1) or nil, event.prev and event.prev.value)
          end
        end
        directory.remove_all()
      end)
    end)
  end

  it("the failure of an overtaken watch is delivered later", function()
    for_each_failure(function()
      local store = keywatch.open { now = 0 }
      put_many(store, "k", 20)
      store:compact(15)
      settle(store)
      return { store = store, handles = open_all(store, { start_revision = 2 }) }
    end, function(made)
      made.store:step(0)
    end, function(made)
      settle(made.store)
      for _, handle in ipairs(made.handles) do
        local list, kind, revision = take_all(handle)
        assert.same({ 0, "compacted", 15 }, { #list, kind, revision })
      end
    end)
  end)

  it("sync fails or returns a revision, and nothing is lost", function()
    for _, max_bytes in ipairs { MIB, 100, 1 } do
      for_each_failure(function()
        local store = keywatch.open { now = 0 }
        local w = store:watch("k", { max_bytes = max_bytes, prev_kv = true })
        put_many(store, "k", 20)
        return { store = store, w = w }
      end, function(made)
        return made.w:sync()
      end, function(made, results)
        if results[1] then
          assert.equal(21, results[1])
        else
          assert.equal("full", results[2].code)
        end
        made.store:put("k", "")
        local list, code = events.read(made.w)
        expect_revisions(2, 22, list)
        assert.equal("timeout", code)
      end)
    end
  end)

  it("progress comes or fails, and later requests succeed", function()
    for_each_failure(function()
      local store = keywatch.open { now = 0, progress_interval = 1 }
      local handles = {}
      for i = 1, 8 do handles[i] = store:open_watch("k" .. i, { progress = true }) end
      return { store = store, handles = handles }
    end, function(made)
      made.store:step(10)
      for _, handle in ipairs(made.handles) do handle:request_progress() end
    end, function(made)
      made.store:put("other", "")
      for _, handle in ipairs(made.handles) do
        while handle:take() do end -- luacheck: ignore 542
        assert.truthy(handle:request_progress())
        assert.same({ "progress", 2 }, { handle:take() })
      end
    end)
  end)

  it("queued events stay until Lua has room for them", with_store(function(store)
    local handle = store:open_watch("k", {})
    put_many(store, "k", 5)
    for n = 1, MOST do
      collectgarbage("stop")
      probe.fail_all(n)
      local ok, kind, list = pcall(handle.take, handle)
      probe.fail_none()
      collectgarbage("restart")
      probe.check(store)
      if ok then
        assert.equal("events", kind)
        assert.equal("put k 2", events.texts(list))
        break
      end
    end
    expect_revisions(3, 6, (take_all(handle)))
  end))
end)

-- }======
