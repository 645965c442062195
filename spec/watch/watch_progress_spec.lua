--- Progress: periodic marks, and those that sync requests.

local keywatch = require "keywatch"

local answer = require "spec.support.answer"
local events = require "spec.support.events"
local program = require "spec.support.program"
local resident = require "spec.support.resident"

local drain = events.drain

--- Returns a store at revision 4.
local function store_with_keys(opts) return events.fill(keywatch.open(opts or { now = 0 })) end

local function with_store(fn) return function() fn(store_with_keys()) end end

describe("progress", function()
  it("comes only if it was requested", function()
    local store = store_with_keys { now = 0, progress_interval = 1 }
    local w = store:watch("a")
    store:put("b", "")
    store:step(10)
    assert.equal("", (drain(w)))
    w:sync()
    assert.equal("", (drain(w)))
  end)

  it("comes after idle time, with the revision up to which nothing is missing", function()
    local store = store_with_keys { now = 0, progress_interval = 5 }
    local w = store:watch("a", { progress = true })
    assert.equal("", (drain(w)))
    store:put("b", "")
    store:step(4.9)
    assert.equal("", (drain(w)))
    store:step(5)
    assert.same({ { type = "progress", revision = 5 } }, (events.read(w)))
    assert.equal(5, w.revision)
    store:step(9)
    assert.equal("", (drain(w)))
    store:step(10)
    assert.equal("progress 5", (drain(w)))
  end)

  it("comes after ten minutes by default", with_store(function(store)
    local w = store:watch("a", { progress = true })
    drain(w)
    store:step(599)
    assert.equal("", (drain(w)))
    store:step(600)
    assert.equal("progress 4", (drain(w)))
  end))

  it("is not sent to a watch that has received events since", function()
    local store = store_with_keys { now = 0, progress_interval = 5 }
    local w, idle = store:watch("a", { progress = true }), store:watch("c", { progress = true })
    drain(w)
    drain(idle)
    store:step(1)
    store:put("a", "3")
    store:step(5)
    assert.equal("put a 5", (drain(w)))
    assert.equal("progress 5", (drain(idle)))
    store:step(10)
    assert.equal("progress 5", (drain(w)))
  end)

  it("comes to a watch that begins at the next revision, and not to later ones", function()
    local store = store_with_keys { now = 0, progress_interval = 5 }
    local at_next, later = store:watch("a", { progress = true, start_revision = 5 }),
      store:watch("a", { progress = true, start_revision = 6 })
    drain(at_next)
    drain(later)
    store:step(5)
    assert.same({ "progress 4", "" }, { (drain(at_next)), (drain(later)) })
    store:put("b", "")
    store:step(10)
    assert.same({ "progress 5", "progress 5" }, { (drain(at_next)), (drain(later)) })
    store:put("a", "")
    assert.same({ "put a 6", "put a 6" }, { (drain(at_next)), (drain(later)) })
  end)

  it("comes at most ten times a second", function()
    local store = store_with_keys { now = 0, progress_interval = 0 }
    local w = store:watch("a", { progress = true })
    drain(w)
    store:step(0.05)
    assert.equal("", (drain(w)))
    store:step(0.1)
    assert.equal("progress 4", (drain(w)))
  end)

  it("comes by itself to a waiting reader", function()
    local store = store_with_keys { progress_interval = 0.1 } -- by the system's clock
    local w = store:watch("a", { progress = true })
    for _ = 1, 2 do assert.equal("progress 4", events.text(w:next())) end
  end)
end)

describe("sync by the reader itself", function()
  it("returns the revision up to which everything can be read without waiting", with_store(function(store)
    local w = store:watch("a")
    store:put("a", "3")
    store:put("b", "2")
    assert.equal(6, w:sync())
    assert.equal("put a 5", (drain(w)))
    assert.equal(6, w.revision)
  end))

  it("takes no time, and may be called anywhere", with_store(function(store)
    local w = store:watch("a", { start_revision = 2 })
    assert.equal(4, w:sync(0))
    assert.equal(4, coroutine.wrap(function() return w:sync() end)())
    assert.equal(4, keywatch.run(function() return w:sync() end))
    assert.equal("put a 2, put a 3", (drain(w)))
  end))

  it("adds progress to a watch that wants it, behind the events that it covers", with_store(function(store)
    local w = store:watch("a", { progress = true, start_revision = 3 })
    drain(w)
    store:put("a", "3")
    store:put("b", "2")
    assert.equal(6, w:sync())
    assert.equal("put a 5, progress 6", (drain(w)))
  end))

  it("adds progress to a watch that begins at the next revision", with_store(function(store)
    local w = store:watch("a", { progress = true, start_revision = 5 })
    assert.equal(4, w:sync())
    assert.equal("progress 4", (drain(w)))
  end))

  it("continues behind unread events", with_store(function(store)
    local w = store:watch("", { prefix = true })
    store:put("a", "3")
    store:put("b", "2")
    assert.equal("put a 5", events.text(w:next()))
    assert.equal(6, w:sync())
    store:put("c", "")
    assert.equal(7, w:sync())
    assert.equal("put b 6, put c 7", (drain(w)))
  end))

  it("refuses to exceed the bound of the queue, until events were read", function()
    local store = keywatch.open { now = 0 }
    local w = store:watch("k", { max_bytes = 1000 })
    for i = 1, 3000 do store:put("k", ("v"):rep(i % 3 * 500)) end
    local n = 0
    local revision, err = w:sync()
    while not revision do
      assert.same({ "full", nil }, { err.code, w:error() }) -- no failure of the watch
      n = n + #events.read(w)
      revision, err = w:sync()
    end
    assert.equal(3001, revision)
    assert.equal(3000, n + #events.read(w))
  end)

  it("returns an older revision if the watch begins later", with_store(function(store)
    local w = store:watch("a", { start_revision = 10 })
    local revision, err = w:sync()
    assert.same({ nil, true }, { err, revision == 4 or revision == 9 })
    for _ = 1, 10 do store:put("a", "") end
    assert.equal(14, w:sync())
    assert.equal(5, #events.read(w))
  end))

  it("fails as the watch does", with_store(function(store)
    store:compact(4)
    local w = store:watch("a", { start_revision = 2 })
    local revision, err = w:sync()
    assert.same({ nil, "compacted", 4 }, { revision, err.code, err.compact_revision })
    assert.equal(err, w:error())
  end))

  it("fails if the initial kvs are compacted", function()
    assert.same({ 0, "compacted\n" }, { program.run([[
      local keywatch = require "keywatch"
      local store = keywatch.open { now = 0 }
      for i = 1, 1500 do store:put("k" .. i, "") end
      local w = store:watch("k", { prefix = true, initial = true })
      store:put("k1", "")
      store:compact(1502)
      print(select(2, w:sync()).code)
    ]], 10) })
  end)

  it("fails on a closed watch, and on a watch of a closed store", with_store(function(store)
    local one, two = store:watch("a"), store:watch("a", { initial = true })
    one:close()
    assert.equal("closed", answer.code(one:sync()))
    store:close()
    assert.equal("closed", answer.code(one:sync()))
    assert.equal("closed", answer.code(two:sync()))
  end))

  it("takes no memory when it is repeated", function()
    local w = store_with_keys():watch("a")
    w:sync()
    drain(w)
    local before = resident.heap()
    for _ = 1, 5000 do
      w:sync()
      w:next(0)
    end
    assert.is_true(resident.heap() - before < 50) -- KiB
  end)
end)

describe("sync while another task reads", function()
  after_each(function() pcall(keywatch.run, function() end) end) -- whatever a test has left

  --- Runs fn(store, w, seen): a task reads w into the list `seen`.
  local function with_reader(opts, fn)
    local store = store_with_keys()
    local w = store:watch("", opts)
    local seen = {}
    keywatch.run(function()
      local reader = keywatch.spawn(function()
        for event in function() return (w:next()) end do seen[#seen + 1] = events.text(event) end
      end)
      keywatch.sleep(0)
      fn(store, w, seen, reader)
    end)
  end

  it("returns when that task was handed everything", function()
    with_reader({ prefix = true }, function(store, w, seen)
      store:put("a", "3")
      store:put("b", "2")
      assert.equal(6, w:sync())
      assert.same({ "put a 5", "put b 6" }, seen)
    end)
  end)

  it("returns at once if that has already happened", function()
    with_reader({ prefix = true }, function(store, w, seen)
      store:put("a", "3")
      assert.equal(5, w:sync())
      assert.equal(5, w:sync(0))
      assert.same({ "put a 5" }, seen)
    end)
  end)

  it("covers revisions without events for this watch", function()
    with_reader({}, function(store, w, seen)
      for _ = 1, 10 do store:put("other", "") end
      assert.equal(14, w:sync())
      assert.same({}, seen)
      assert.equal(14, w.revision)
    end)
  end)

  it("may be called by many tasks", function()
    with_reader({ prefix = true }, function(store, w, seen)
      local tasks = {}
      for i = 1, 50 do
        tasks[i] = keywatch.spawn(function()
          store:put("k" .. i, "")
          return w:sync()
        end)
      end
      for i = 1, 50 do
        local ok, revision = tasks[i]:join()
        assert.is_true(ok and revision >= i + 4)
      end
      assert.equal(50, #seen)
    end)
  end)

  it("returns at its timeout", with_store(function(store)
    local w = store:watch("a", { start_revision = 2 })
    keywatch.run(function()
      keywatch.spawn(function()
        w:next()
        keywatch.sleep(1000)
      end)
      keywatch.sleep(0)
      assert.equal("timeout", answer.code(w:sync(0)))
      assert.equal("timeout", answer.code(w:sync(0.001)))
    end)
    assert.is_nil(w:error())
    assert.equal("put a 3", events.text(w:next()))
  end))

  it("can be cancelled, and is forgotten with its watch, while others wait for the same store", function()
    local store = keywatch.open { now = 0 }
    for i = 1, 3000 do store:put("a", tostring(i)) end
    local seen = setmetatable({}, { __mode = "k" })
    keywatch.run(function()
      local other, box = store:watch("other"), {}
      keywatch.spawn(function() other:next() end)
      keywatch.spawn(function()
        box.w = store:watch("a", { start_revision = 2, max_bytes = 0 })
        seen[box.w] = true
        keywatch.spawn(function()
          box.w:next()
          other:next()
        end)
        keywatch.sleep(0)
        local syncer = keywatch.spawn(function() box.w:sync() end)
        keywatch.sleep(0)
        syncer:cancel()
        assert.equal("cancelled", select(2, syncer:join()).code)
        box.w:close()
        box.w = nil
      end):join()
      keywatch.sleep(0)
      collectgarbage()
      assert.is_nil(next(seen))
    end)
  end)

  it("waits for a task that continues a read of another one", function()
    local store = keywatch.open { now = 0 }
    local w = store:watch("", { prefix = true })
    keywatch.run(function()
      store:txn { success = { { put = "a", value = "" }, { put = "b", value = "" }, { put = "c", value = "" } } }
      w:next()
      local n = 0
      keywatch.spawn(function()
        for _ in w:events() do
          n = n + 1
          keywatch.sleep(0)
        end
      end)
      keywatch.sleep(0)
      assert.equal(2, w:sync())
      assert.same({ 2, 2 }, { n, w.revision })
    end)
  end)

  it("does not change the reader's timeout", with_store(function(store)
    local w = store:watch("a")
    keywatch.run(function()
      local reader = keywatch.spawn(function() return w:next(0.02) end)
      keywatch.sleep(0)
      for _ = 1, 10 do
        store:put("other", "")
        w:sync(0.1)
        keywatch.sleep(0.01)
      end
      assert.equal("keywatch.task<done>", tostring(reader)) -- the time of the reader was over half a loop ago
    end)
  end))

  it("is woken when the watch is closed", with_store(function(store)
    local w = store:watch("a", { start_revision = 2 })
    keywatch.run(function()
      keywatch.spawn(function()
        w:next()
        keywatch.sleep(1000)
      end)
      keywatch.sleep(0)
      local syncer = keywatch.spawn(function() return answer.code(w:sync()) end)
      keywatch.sleep(0)
      w:close()
      assert.same({ true, "closed" }, { syncer:join(1) })
    end)
  end))

  -- The reader rests at the end of what a first step has brought it; a sync waits for a later revision.
  local function woken_by(what)
    return program.run(([[
      local keywatch = require "keywatch"
      local store = keywatch.open()
      for i = 1, 3000 do store:put("a", tostring(i)) end
      local w = store:watch("a", { start_revision = 2, max_bytes = 0 })
      local rest = keywatch.channel(1)
      keywatch.run(function()
        keywatch.spawn(function()
          repeat until w:next().mod_revision >= 1001
          rest:receive()
          while w:next() do keywatch.sleep(0) end
        end)
        keywatch.sleep(0)
        local syncer = keywatch.spawn(function() return w:sync() end)
        keywatch.sleep(0)
        %s
        rest:close()
        local ok, revision, err = syncer:join(10)
        print(ok, revision, err and err.code)
      end)
    ]]):format(what))
  end

  it("is woken when the store is closed", function()
    assert.same({ 0, "true\tnil\tclosed\n" }, { woken_by "store:close()" })
  end)

  it("is woken when the watch fails", function()
    assert.same({ 0, "true\tnil\tcompacted\n" }, { woken_by "store:compact(2500)" })
  end)

  it("does not treat the top level as a task, which reads only while it waits there", with_store(function(store)
    local w = store:watch("a", { start_revision = 2 })
    assert.equal(2, w:next().mod_revision)
    keywatch.run(function() assert.equal(4, w:sync(10)) end)
    assert.equal(3, w:next().mod_revision)
  end))

  it("waits for no reader that has ended", with_store(function(store)
    local w = store:watch("a", { start_revision = 2 })
    keywatch.run(function()
      keywatch.spawn(function() w:next() end):join()
      assert.equal(4, w:sync())
    end)
    assert.equal("put a 3", (drain(w)))
  end))
end)
