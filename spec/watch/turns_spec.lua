--- What one turn delivers: work that grows with a revision, or with a commit group, is done over several steps, and the
-- watch guarantees hold between them. In builds with a probe a step does as little as the test says.

local keywatch = require "keywatch"

local directory = require "spec.support.directory"
local probed = require "spec.support.probed"

local probe = probed.get("a step for watchers")
if not probe then return end

local VISITS = 4

local everything = { prefix = true }

local function puts(n, value)
  local ops = {}
  for i = 1, n do ops[i] = { put = ("k%02d"):format(i), value = value or "" } end
  return { success = ops }
end

--- Returns a watch from the past, whose handle returns the queued items.
local function past(store, key, options)
  local all = { prefix = true, start_revision = 2 }
  for name, value in pairs(options or {}) do all[name] = value end
  return store:open_watch(key, all)
end

local function step(store)
  local more = store:step(0)
  probe.check(store)
  return more
end

local function settle(store)
  local n = 1
  while step(store) do n = n + 1 end
  return n
end

describe("a revision that is longer than a step", function()
  local store

  before_each(function()
    store = keywatch.open { now = 0 }
    probe.set_walk_visits(store, VISITS)
    store:txn(puts(20))
    store:put("z", "")
  end)

  it("is gathered in several steps, and delivered completely", function()
    local handle = past(store, "k")
    assert.is_true(step(store))
    assert.same({ 0, 0, true }, { handle:backlog() })
    assert.is_true(settle(store) >= 4)
    local kind, list = handle:take()
    assert.same({ "events", 20 }, { kind, #list })
    assert.is_nil((handle:take()))
  end)

  it("is delivered to the others if one of its watches is closed", function()
    local first, second, third = past(store, "k"), past(store, "k01"), past(store, "k")
    step(store)
    second:close() -- the only one of its range
    probe.check(store)
    step(store)
    first:close()
    probe.check(store)
    settle(store)
    local _, list = third:take()
    assert.equal(20, #list)
  end)

  it("leaves nothing behind if all of its watches are closed", function()
    local handle = past(store, "k")
    step(store)
    handle:close()
    probe.check(store)
    assert.is_false(step(store))
  end)

  it("does not leak if the store is closed during it", function()
    past(store, "k")
    step(store)
    store:close()
  end)

  it("fails its watches, if a compaction overtakes it", function()
    local handle, later = past(store, "k"), past(store, "", { start_revision = 3 })
    step(store)
    store:compact(3)
    settle(store)
    assert.same({ "compacted", 3 }, { handle:take() })
    local kind, list = later:take()
    assert.same({ "events", "z" }, { kind, list[1].key })
  end)

  it("is delivered later to a synced watch, and once", function()
    local handle = store:open_watch("k", everything)
    store:delete("k", everything)
    assert.same({ 0, 0, true }, { handle:backlog() })
    assert.is_false(handle:request_progress())
    settle(store)
    local kind, list = handle:take()
    assert.same({ "events", 20, 4 }, { kind, #list, list[20].mod_revision })
    assert.is_nil((handle:take()))
    assert.equal(4, handle:request_progress())
  end)
end)

describe("a compaction after a revision that is longer than a step", function()
  it("keeps the history for the remaining watches, and delivers in steps", function()
    for _, path in ipairs { false, directory.new() } do
      local store = keywatch.open { now = 0, path = path or nil }
      probe.set_walk_visits(store, VISITS)
      assert(store:txn(puts(40)))
      assert(store:put("z", "before"))
      local handle = store:open_watch("z", { prev_kv = true })
      local first = assert(store:delete("k", everything)).revision
      assert(store:put("z", "after"))
      assert(store:compact(first + 1))
      assert.equal("compacted", select(2, store:get("z", { revision = first })).code)
      assert.same({ 0, 0, true }, { handle:backlog() })
      assert.is_true(store:is_compacting())
      assert.is_true(settle(store) >= 4)
      local _, list = handle:take()
      assert.same({ "after", "before" }, { list[1].value, list[1].prev and list[1].prev.value })
      assert.is_nil((handle:take()))
      if not path then assert.is_false(store:is_compacting()) end -- on a disk it waits for a checkpoint
      store:close()
    end
    directory.remove_all()
  end)
end)

describe("a watch from the past", function()
  it("gets many small events that have large previous records in several steps", function()
    for _, path in ipairs { false, directory.new() } do
      local store = keywatch.open { now = 0, path = path or nil }
      for i = 1, 10 do assert(store:put("k" .. i, ("x"):rep(300000))) end
      local first = store:status().revision + 1
      for i = 1, 10 do assert(store:delete("k" .. i)) end
      local handle = past(store, "k", { start_revision = first, prev_kv = true })
      assert.is_true(step(store))
      local _, list = handle:take()
      assert.is_true(#list < 10)
      assert.equal(300000, #list[1].prev.value)
      store:close()
    end
    directory.remove_all()
  end)

  it("reads the large records of other keys, which are on disk, in several steps", function()
    local path = directory.new()
    local store = keywatch.open { now = 0, path = path }
    for i = 1, 10 do assert(store:put("other" .. i, ("x"):rep(300000))) end
    assert(store:put("k", ""))
    store:close()
    store = keywatch.open { now = 0, path = path }
    local handle = past(store, "k")
    assert.is_true(settle(store) >= 3)
    local _, list = handle:take()
    assert.equal("k", list[1].key)
    store:close()
    directory.remove_all()
  end)
end)

describe("a replica that drops its history without readers", function()
  local REVISIONS, WATCHES = 8, 6

  local function events(revision, n)
    local list = {}
    for i = 1, n do
      list[i] = { type = "put", key = ("k%02d"):format(i), value = "", create_revision = revision, version = 1 }
    end
    return list
  end

  for what, first in pairs { ["a long one"] = 20, ["a short one"] = 1 } do
    it("delivers many events to its watches, in more than one step, after " .. what, function()
      local store = keywatch.open { now = 0, replica = true, history_idle_bytes = 0 }
      probe.set_walk_visits(store, VISITS)
      store:load_kvs(10, {})
      local handles = {}
      for i = 1, WATCHES do handles[i] = store:open_watch("k", everything) end
      store:apply(11, events(11, first))
      for revision = 12, 10 + REVISIONS do store:apply(revision, events(revision, 20)) end
      settle(store)
      for _, handle in ipairs(handles) do
        local n = 0
        for kind, list in handle.take, handle do
          assert.equal("events", kind)
          n = n + #list
        end
        assert.equal(first + 20 * (REVISIONS - 1), n)
      end
      store:close()
    end)
  end
end)

describe("a commit group with more revisions than a step delivers", function()
  local REVISIONS = 30
  local store, handle

  --- All revisions become visible at once; then fn is called, before the next turn.
  local function after_group(fn)
    keywatch.run(function()
      probe.hold_disk(store, true)
      local tasks, begun = {}, 0
      for i = 1, REVISIONS + 1 do
        tasks[i] = keywatch.spawn(function()
          begun = begun + 1
          assert(store:put("k", tostring(i)))
        end)
        if i == 1 then -- which is a group of its own
          repeat keywatch.sleep(0) until begun == 1
          probe.flush_disk(store)
        end
      end
      repeat keywatch.sleep(0) until begun == REVISIONS + 1
      probe.hold_disk(store, false)
      repeat keywatch.sleep(0) until store:status().revision > 3
      assert.equal(REVISIONS + 3, store:status().revision)
      fn()
      for _, task in ipairs(tasks) do task:join() end
    end)
  end

  --- The revisions that have been queued.
  local function received(from, last)
    local revisions = {}
    for kind, list in from.take, from do
      if kind == last then break end
      assert.equal("events", kind)
      for _, event in ipairs(list) do revisions[#revisions + 1] = event.mod_revision end
    end
    return revisions
  end

  local function all_from(first)
    local revisions = {}
    for revision = first, store:status().revision do revisions[#revisions + 1] = revision end
    return revisions
  end

  before_each(function()
    store = directory.open(directory.new())
    store:put("k", "")
    handle = store:open_watch("k")
    probe.set_walk_visits(store, VISITS)
  end)

  after_each(function()
    store:close()
    directory.remove_all()
  end)

  it("is delivered completely and in order, also to watches that begin during it", function()
    local new, old, first
    after_group(function()
      assert.is_false(handle:request_progress())
      new, old = store:open_watch("k"), store:open_watch("k", { start_revision = 5 })
      first = store:status().revision + 1
      assert.is_true(settle(store) > REVISIONS / VISITS)
      assert.equal(first - 1, handle:request_progress())
      assert.same(all_from(3), received(handle, "progress"))
    end)
    store:put("k", "last")
    settle(store)
    assert.same({ first }, received(handle))
    assert.same(all_from(first), received(new))
    assert.same(all_from(5), received(old))
  end)

  it("is delivered before a compaction removes the history", function()
    after_group(function()
      local compaction = keywatch.spawn(function() assert(store:compact(REVISIONS + 3, { physical = true })) end)
      assert.is_false(handle:request_progress())
      compaction:join()
      settle(store)
      assert.same(all_from(3), received(handle))
    end)
  end)
end)

describe("a revision with more watchers than a step serves", function()
  local store

  before_each(function()
    store = keywatch.open { now = 0 }
    probe.set_walk_visits(store, VISITS)
  end)

  after_each(function() store:close() end)

  local function open_all(n, key, options)
    local list = {}
    for i = 1, n do list[i] = store:open_watch(key and key(i) or "k", options) end
    return list
  end

  --- Returns the revisions that a watch receives, in order, and checks that its queue is empty.
  local function take_all(handle)
    local revisions = {}
    for kind, list in handle.take, handle do
      assert.equal("events", kind)
      for _, event in ipairs(list) do revisions[#revisions + 1] = event.mod_revision end
    end
    return revisions
  end

  local function count_told(list)
    local n = 0
    for _, handle in ipairs(list) do n = n + (handle:backlog() > 0 and 1 or 0) end
    return n
  end

  it("is delivered to some of them in each step, and once", function()
    local list = open_all(20)
    store:put("k", "")
    assert.is_true(count_told(list) <= VISITS)
    assert.is_true(settle(store) >= 20 / VISITS - 1)
    for _, handle in ipairs(list) do assert.same({ 2 }, take_all(handle)) end
  end)

  it("is delivered once if watches begin and end during it, and so are later revisions", function()
    local ranges = { "k", "ka", "kab", "kabc" } -- of which each has a key of all
    local list = open_all(24, function(i) return ranges[i % #ranges + 1] end, everything)
    store:put("kabc", "")
    for i = 1, 24, 3 do
      step(store)
      list[i]:close()
      local new = store:open_watch(ranges[i % #ranges + 1], everything)
      store:put("kabc", tostring(i))
      probe.check(store)
      list[i] = new
    end
    settle(store)
    for i, handle in ipairs(list) do
      local first = (i - 1) % 3 == 0 and (i - 1) / 3 + 3 or 2
      local expected = {}
      for revision = first, 10 do expected[#expected + 1] = revision end
      assert.same(expected, take_all(handle))
    end
  end)

  it("is delivered with its previous kvs, which a compaction keeps until then", function()
    store:put("k", "before")
    local list = open_all(20, nil, { prev_kv = true })
    store:put("k", "after")
    store:put("k", "last")
    store:compact(4)
    assert.is_true(store:is_compacting())
    settle(store)
    for _, handle in ipairs(list) do
      local kind, events = handle:take()
      assert.same({ "events", "before" }, { kind, events[1].prev and events[1].prev.value })
    end
    settle(store)
    assert.is_false(store:is_compacting())
  end)

  it("is not delivered after all watches, or the store, were closed", function()
    local list = open_all(20)
    store:put("k", "")
    for _, handle in ipairs(list) do
      handle:close()
      probe.check(store)
    end
    assert.is_false(step(store))
    open_all(20)
    store:put("k", "")
  end)

  it("is delivered once to watches of more ranges than a step visits, whatever else happens", function()
    local list = open_all(20, function(i) return ("a%02d"):format(i) end, { range_end = "z" })
    local other, later = store:open_watch("x", everything), store:open_watch("k", { start_revision = 5 })
    store:txn { success = { { put = "k1", value = "" }, { put = "x", value = "" }, { put = "k2", value = "" } } }
    assert.equal(0, count_told(list))
    store:put("k", "")
    store:put("k", "at 4")
    store:put("k", "at 5")
    probe.check(store)
    settle(store)
    for _, handle in ipairs(list) do assert.same({ 2, 2, 2, 3, 4, 5 }, take_all(handle)) end
    assert.same({ 2 }, take_all(other))
    assert.same({ 5 }, take_all(later))
    store:put("k", "")
    settle(store)
    for _, handle in ipairs(list) do assert.same({ 6 }, take_all(handle)) end
  end)

  it("does not affect watches that begin later", function()
    local replica = keywatch.open { replica = true, now = 0 }
    probe.set_walk_visits(replica, VISITS)
    local list = {}
    for i = 1, 20 do list[i] = replica:open_watch(("a%02d"):format(i), { range_end = "z", start_revision = 100 }) end
    local function event(revision)
      return { { type = "put", key = "k", value = "", create_revision = revision, version = 1 } }
    end
    replica:load_kvs(10, {})
    replica:apply(11, event(11))
    repeat probe.check(replica) until not replica:step(0)
    replica:merge_kvs(20, {})
    repeat probe.check(replica) until not replica:step(0)
    replica:apply(100, event(100))
    repeat until not replica:step(0)
    for _, handle in ipairs(list) do assert.same({ 100 }, take_all(handle)) end
    replica:close()
  end)
end)
