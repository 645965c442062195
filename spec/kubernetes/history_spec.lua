--- Histories: the ring of changes, its bounds, and what happens when the cache or the store ends, is compacted, or has
-- another history.

local entries = require "keywatch.kubernetes.entry"
local histories = require "keywatch.kubernetes.history"
local keywatch = require "keywatch"

local widgets = require "spec.kubernetes.widgets"
local within = require "spec.support.within"

local PREFIX = "/p/"

--- Returns a history of a store or a client, and its cache.
local function open(owner, bytes)
  local cache = owner:cache(PREFIX)
  local history = histories.new(cache, PREFIX, bytes)
  assert(history:wait_ready(10))
  return history, cache
end

local function put(store, key, value) return assert(store:put(PREFIX .. key, value or key)).revision end

--- A change as a text: "5 ns/a old>new".
local function shown(change)
  return ("%d %s %s>%s"):format(change.revision, change.key, change.old and change.old.text or "",
    change.new and change.new.text or "")
end

--- The changes after a revision.
local function after(history, revision)
  local list, seq = {}, assert(history:find(revision))
  while history:get(seq) do
    list[#list + 1] = shown(history:get(seq))
    seq = seq + 1
  end
  return list
end

--- Waits until a history has everything that a store has now.
local function reach(history, store) assert(history:wait_for(store:status().revision, 10)) end

local function with_history(fn)
  return within.world(function()
    local store = keywatch.open()
    fn(open(store), store)
    store:close()
  end, { leftovers = "cancel" })
end

describe("a history", function()
  it("has each change with the state before", with_history(function(history, store)
    local first = put(store, "n/a", "1")
    put(store, "n/a", "2")
    store:delete(PREFIX .. "n/a")
    store:put("/other", "x")
    put(store, "n/a", "3")
    reach(history, store)
    assert.same({ "2 n/a >1", "3 n/a 1>2", "4 n/a 2>", "6 n/a >3" }, after(history, 0))
    assert.same({ "3 n/a 1>2", "4 n/a 2>", "6 n/a >3" }, after(history, first))
    assert.same({ "6 n/a >3" }, after(history, 5))
    assert.same({}, after(history, 6))
  end))

  it("shares the entry of an object between two changes", with_history(function(history, store)
    put(store, "a", "1")
    put(store, "a", "2")
    reach(history, store)
    local seq = history:find(0)
    assert.equal(history:get(seq).new, history:get(seq + 1).old)
  end))

  it("has every change of a transaction, and reaches its revision after the last one", with_history(
    function(history, store)
      local seen = {}
      history:subscribe(function(change)
        if change then seen[#seen + 1] = change.key .. " " .. tostring(history.revision >= change.revision) end
      end)
      store:txn { success = { { put = PREFIX .. "a", value = "1" }, { put = PREFIX .. "b", value = "1" } } }
      reach(history, store)
      assert.same({ "a false", "b false" }, seen)
      assert.equal(2, history.revision)
    end))

  it("has the state in between of a key that a transaction changes twice", with_history(function(history, store)
    local function txn(op) return { txn = { success = { op } } } end
    put(store, "a", "1")
    for _, key in ipairs { "a", "b" } do
      assert(store:txn { success = { txn { put = PREFIX .. key, value = "2" }, txn { delete = PREFIX .. key } } })
    end
    reach(history, store)
    assert.same({ "3 a 1>2", "3 a 2>", "4 b >2", "4 b 2>" }, after(history, 2))
  end))

  it("moves with changes of other keys", with_history(function(history, store)
    store:put("/other", "x")
    assert.is_true(history:wait_for(2, 1))
    assert.equal(2, history.revision)
    assert.equal(2, history:catch_up(1))
  end))

  it("does not wait for ever for a revision to come", with_history(function(history)
    local ok, err = history:wait_for(1000, 3)
    assert.is_nil(ok)
    assert.equal(504, err.http_status)
    assert.equal("ResourceVersionTooLarge", err.causes[1].reason)
  end))

  it("finds the place of a revision that is still to come", with_history(function(history, store)
    local seq = assert(history:find(1000))
    put(store, "a")
    reach(history, store)
    assert.equal("a", history:get(seq).key)
  end))

  it("evicts the oldest changes, and refuses revisions before them only", within.world(function()
    local store = keywatch.open()
    local history = open(store, 10 * 1024)
    local value, revisions = ("x"):rep(1000), {}
    for i = 1, 30 do revisions[i] = put(store, "k" .. i, value) end
    reach(history, store)
    assert.is_true(history.bytes <= 10 * 1024)
    assert.is_true(history.first > 20)
    local n = history.last - history.first + 1
    assert.equal(n, #after(history, history.floor))
    assert.is_nil(history:find(history.floor - 1))
    assert.is_nil(history:get(history.first - 1))
    assert.equal(revisions[30 - n], history.floor)
    local n_keys = 0
    for _ in pairs(history.latest) do n_keys = n_keys + 1 end
    assert.equal(n, n_keys)
    store:close()
  end, { leftovers = "cancel" }))

  it("keeps a change that is larger than the ring", within.world(function()
    local store = keywatch.open()
    local history = open(store, 1000)
    for _ = 1, 3 do put(store, "a", ("x"):rep(5000)) end
    reach(history, store)
    assert.equal(1, #after(history, 3))
    store:close()
  end, { leftovers = "cancel" }))

  it("does not depend on compactions", with_history(function(history, store)
    for i = 1, 20 do put(store, "a", tostring(i)) end
    reach(history, store)
    store:compact(20)
    assert.equal(20, #after(history, 1))
  end))

  it("begins with what the store remembers", within.world(function()
    local store = keywatch.open()
    for i = 1, 20 do put(store, "a", tostring(i)) end
    local all = open(store)
    reach(all, store)
    assert.equal(20, #after(all, 0))
    store:compact(10)
    local history = open(store)
    reach(history, store)
    assert.equal(10, history.floor)
    assert.equal("11 a 9>10", after(history, 10)[1])
    assert.equal(11, #after(history, 10))
    store:close()
  end, { leftovers = "cancel" }))

  it("stops calling a subscriber that has left, also from inside of a call", with_history(function(history, store)
    local calls, leave = {}, {}
    for i = 1, 3 do
      leave[i] = history:subscribe(function(change)
        if not change then return end
        calls[#calls + 1] = i
        if i == 1 then leave[2]() end
      end)
    end
    put(store, "a")
    reach(history, store)
    leave[1]()
    put(store, "a")
    reach(history, store)
    leave[3]()
    put(store, "a")
    reach(history, store)
    assert.same({ 1, 3, 3 }, calls)
  end))

  it("ends with its store, and says so to everybody", within.world(function()
    local store = keywatch.open()
    local history = open(store)
    local is_over
    history:subscribe(function(_, over) is_over = is_over or over end)
    local waiter = keywatch.spawn(function() return history:wait_for(1000) end)
    keywatch.sleep(1)
    store:close()
    local _, _, err = waiter:join(10)
    assert.equal(503, err.http_status)
    assert.is_true(is_over)
    assert.is_nil(history:find(1))
    assert.equal(503, select(2, history:wait_ready()).http_status)
  end, { leftovers = "cancel" }))

  it("ends with its client", within.world(function(world)
    local client = world:client()
    local history = open(client)
    client:close()
    keywatch.sleep(1)
    assert.equal(503, select(2, history:wait_for(1000, 10)).http_status)
  end, { leftovers = "cancel" }))

  it("continues after a task that was cancelled", function()
    local store = keywatch.open()
    local history
    keywatch.run(function() history = open(store) end) -- its end cancels all tasks
    put(store, "a")
    keywatch.run(function() reach(history, store) end)
    assert.equal(1, #after(history, 1))
    history:close()
    store:close()
  end)
end)

describe("a history of a client", function()
  local function with_client(fn)
    return within.world(function(world)
      local client = world:client()
      put(client, "a", "1")
      put(client, "b", "1")
      local history, cache = open(client)
      fn(history, world, cache, client)
      client:close()
    end, { leftovers = "cancel" })
  end

  it("has no gap across a lost connection", with_client(function(history, world)
    local store = world.server.store
    world.server:stop()
    for i = 2, 9 do put(store, "a", tostring(i)) end
    world.server:start()
    reach(history, store)
    assert.equal(8, #after(history, 3))
    assert.equal("4 a 1>2", after(history, 3)[1])
  end))

  it("is emptied by a gap, whose changes are known only in sum", with_client(function(history, world, cache)
    local store = world.server.store
    local epoch = history.epoch
    world.server:stop()
    for i = 2, 9 do put(store, "a", tostring(i)) end
    store:delete(PREFIX .. "b")
    put(store, "c", "1")
    world.server:compact()
    world.server:start()
    assert(cache:sync(30))
    assert(history:wait_ready(30))
    reach(history, store)
    assert.equal(epoch + 1, history.epoch)
    assert.is_nil(history:find(8))
    assert.same({}, after(history, 13))
    put(store, "d", "1")
    reach(history, store)
    assert.same({ "14 d >1" }, after(history, 13))
  end))

  it("is emptied if the server has another history, and ends nobody's place silently", with_client(
    function(history, world, cache)
      local store = world.server.store
      local is_over, epoch = false, history.epoch
      history:subscribe(function(_, over) is_over = is_over or over end)
      for i = 2, 9 do put(store, "a", tostring(i)) end
      reach(history, store)
      assert(world.server:restore(4))
      store = world.server.store
      put(store, "e", "1")
      assert(cache:sync(30))
      assert(history:wait_ready(30))
      assert.is_true(is_over)
      assert.is_true(history.epoch > epoch)
      reach(history, store)
      assert.equal(history.revision, store:status().revision)
      assert.equal(1, world.counts.restore)
    end))

  it("begins again with a server of another cluster", with_client(function(history, world, cache)
    world.server:replace()
    local store = world.server.store
    for i = 1, 5 do put(store, "z", tostring(i)) end
    assert(cache:sync(30))
    assert(history:wait_ready(30))
    reach(history, store)
    put(store, "z", "last")
    reach(history, store)
    local list = after(history, history.revision - 1)
    assert.equal("7 z 5>last", list[1])
  end))
end)

describe("an entry of a history", function()
  it("is decoded once for all watches", within.world(function()
    local store = keywatch.open()
    local api, handle = widgets.open(store)
    local resource = api.resources[1]
    assert(handle:create(widgets.new "ns/a"))
    assert(resource.history:catch_up(1))
    local entry = resource.history:get(resource.history.last).new
    assert.equal(entries.object(entry), entries.object(entry))
    api:close()
    store:close()
  end, { leftovers = "cancel" }))
end)
