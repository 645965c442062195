--- Reading a watch: by next, batch and events, at once or after waiting, by one reader or many.

local keywatch = require "keywatch"

local answer = require "spec.support.answer"
local events = require "spec.support.events"
local program = require "spec.support.program"

local drain = events.drain

--- Returns a store at revision 4.
local function store_with_keys(opts) return events.fill(keywatch.open(opts or { now = 0 })) end

--- A watch that has failed.
local function failed_watch()
  local store = store_with_keys()
  store:compact(4)
  return store:watch("a", { start_revision = 2 }), store
end

after_each(function() pcall(keywatch.run, function() end) end) -- whatever a test has left

local function with_store(fn) return function() fn(store_with_keys()) end end
local function with_new(fn) return function() fn(keywatch.open { now = 0 }) end end

describe("next", function()
  it("returns one event after the other", function()
    local w = store_with_keys():watch("", { prefix = true, start_revision = 1 })
    assert.equal("put a 2", events.text(w:next()))
    assert.equal("put a 3", events.text(w:next(0)))
    assert.equal("put b 4", events.text(w:next(1000)))
  end)

  it("does not wait with a timeout of 0, and returns timeout", function()
    local w = store_with_keys():watch("a")
    for _, timeout in ipairs { 0, -1, -math.huge, 0.001 } do
      local event, err = w:next(timeout)
      assert.same({ nil, "timeout", 4 }, { event, err.code, err.grpc_status })
    end
  end)

  it("can be called again after a timeout", with_store(function(store)
    local w = store:watch("a")
    w:next(0.001)
    assert.is_nil(w:error())
    store:put("a", "3")
    assert.equal("put a 5", events.text(w:next(0.001)))
  end))

  it("polls anywhere, also in a coroutine that is not a task", with_store(function(store)
    local w = store:watch("a")
    local poll = coroutine.wrap(function()
      while true do coroutine.yield(w:next(0)) end
    end)
    assert.equal("timeout", answer.code(poll()))
    store:put("a", "3")
    assert.equal("put a 5", events.text(poll()))
  end))

  it("returns only nil after close, and no unread events", with_store(function(store)
    local w = store:watch("", { prefix = true, start_revision = 1 })
    w:next()
    w:close()
    assert.same({}, { w:next() })
    assert.same({}, { w:next(0) })
    assert.same({}, { w:batch() })
    assert.is_nil(w:error())
  end))

  it("returns the same error again and again once the watch has failed", function()
    local w = failed_watch()
    local _, err = w:next()
    assert.equal("compacted", err.code)
    assert.equal(err, select(2, w:next()))
    assert.equal(err, select(2, w:next(0)))
    assert.equal(err, select(2, w:batch()))
    assert.equal(err, w:error())
  end)

  it("at top level waits for the changes of a task", with_store(function(store)
    local w = store:watch("a")
    keywatch.spawn(function()
      keywatch.sleep(0)
      store:put("a", "3")
    end)
    assert.equal("put a 5", events.text(w:next()))
  end))

  it("in a task lets others run until an event comes", with_store(function(store)
    local w = store:watch("a")
    local order = {}
    keywatch.run(function()
      local reader = keywatch.spawn(function()
        table.insert(order, "waits")
        table.insert(order, events.text(w:next()))
      end)
      keywatch.sleep(0)
      table.insert(order, "puts")
      store:put("a", "3")
      table.insert(order, "has put")
      reader:join()
    end)
    assert.same({ "waits", "puts", "has put", "put a 5" }, order)
  end))

  it("returns events of the store itself: the expiry of a lease", function()
    local store = keywatch.open { min_lease_ttl = 1 } -- by the system's clock
    local w = store:watch("a", { filters = { "no_put" } })
    repeat until store:put("a", "", { lease = store:lease(1) }) -- unless we are slow, and the lease is over already
    assert.equal("delete a 3", events.text(w:next()))
  end)

  it("with a manual clock returns them when the store is stepped", with_new(function(store)
    store:put("a", "", { lease = store:lease(10) })
    local w = store:watch("a")
    keywatch.spawn(function()
      keywatch.sleep(0)
      store:step(10)
    end)
    assert.equal("delete a 3", events.text(w:next()))
  end))

  it("raises at a deadlock", with_new(function(store)
    store:put("a", "", { lease = store:lease(10) })
    local w = store:watch("a")
    local ok, err = pcall(w.next, w)
    assert.is_false(ok)
    assert.matches("deadlock: every task is waiting", err)
    store:put("a", "")
    assert.equal("put a 3", events.text(w:next()))
  end))

  it("in a coroutine that is not a task raises, and names the alternative", function()
    local w = store_with_keys():watch("a")
    local ok, err = coroutine.resume(coroutine.create(function() return w:next() end))
    assert.is_false(ok)
    assert.matches("keywatch%.spawn", err)
  end)
end)

describe("batch", function()
  local function store_with_txns()
    local store = store_with_keys()
    store:txn { success = { { put = "x", value = "" }, { put = "y", value = "" }, { delete = "b" } } }
    store:put("a", "3")
    return store
  end

  it("returns all events of one revision, and that revision", function()
    local w = store_with_txns():watch("", { prefix = true, start_revision = 4 })
    local seen = {}
    for i = 1, 3 do
      local batch = w:batch()
      seen[i] = ("%d: %s"):format(batch.revision, events.texts(batch.events))
      assert.equal(batch.revision, w.revision)
    end
    assert.same({ "4: put b 4", "5: put x 5, put y 5, delete b 5", "6: put a 6" }, seen)
  end)

  it("returns only the events of the watch", function()
    local w = store_with_txns():watch("b", { start_revision = 5 })
    assert.equal("delete b 5", events.texts(w:batch().events))
    w = store_with_txns():watch("x", { from_key = true, start_revision = 5, filters = { "no_delete" } })
    assert.equal("put x 5, put y 5", events.texts(w:batch().events))
    assert.equal("timeout", answer.code(w:batch(0)))
  end)

  it("returns the rest of a revision of which next has returned a part", function()
    local w = store_with_txns():watch("", { prefix = true, start_revision = 5 })
    w:next()
    assert.equal("put y 5, delete b 5", events.texts(w:batch().events))
    assert.equal("put a 6", events.text(w:next()))
  end)

  it("returns initial kvs one by one, and each mark separately", with_store(function(store)
    local w, marked = store:watch("", { prefix = true, initial = true }), store:watch("c", { progress = true })
    drain(marked)
    store:put("c", "")
    marked:sync()
    local seen = {}
    for i = 1, 6 do
      local batch = (i < 5 and w or marked):batch(0)
      seen[i] = ("%d: %s"):format(batch.revision, events.texts(batch.events))
    end
    assert.same({
      "4: initial a 3", "4: initial b 4", "4: synced 4", "5: put c 5", -- of the first
      "5: put c 5", "5: progress 5",
    }, seen)
  end))

  it("ends as next does", with_store(function(store)
    local w = store:watch("a")
    assert.equal("timeout", answer.code(w:batch(0)))
    assert.equal("compacted", answer.code(failed_watch():batch()))
    w:close()
    assert.same({}, { w:batch() })
  end))

  it("of a large transaction is complete, however the watch was blocked", with_new(function(store)
    local w = store:watch("", { prefix = true, max_bytes = 500 })
    for i = 1, 60 do
      local ops = {}
      for n = 1, i do ops[n] = { put = ("k%02d"):format(n), value = ("v"):rep(i) } end
      store:txn { success = ops }
    end
    for i = 1, 60 do
      local batch = w:batch(0)
      assert.same({ i + 1, i }, { batch.revision, #batch.events })
    end
  end))
end)

describe("a loop over events", function()
  it("continues until the watch is closed, and ends silently then", with_store(function(store)
    local w = store:watch("", { prefix = true, start_revision = 1 })
    local seen = {}
    for event in w:events() do
      table.insert(seen, events.text(event))
      if event.key == "b" then w:close() end
    end
    assert.same({ "put a 2", "put a 3", "put b 4" }, seen)
  end))

  it("can be left, and continued at the same position", with_store(function(store)
    local w = store:watch("", { prefix = true, start_revision = 1 })
    for event in w:events() do
      if events.text(event) == "put a 2" then break end
    end
    assert.equal("put a 3", events.text(w:next()))
    for event in w:events() do
      if events.text(event) == "put b 4" then break end
    end
    assert.equal("", (drain(w)))
  end))

  it("raises the error of the watch, unchanged", function()
    local w = failed_watch()
    local ok, err = pcall(function()
      for _ in w:events() do error("there is no event") end
    end)
    assert.is_false(ok)
    assert.same({ "compacted", 4 }, { err.code, err.compact_revision })
    assert.equal(err, w:error())
  end)

  it("raises when the store is closed", with_store(function(store)
    local w = store:watch("a", { start_revision = 2 })
    local ok, err = pcall(function()
      for _ in w:events() do store:close() end
    end)
    assert.same({ false, "closed" }, { ok, err.code })
  end))

  it("raises a text in nginx, which would log an object as nothing", function()
    assert.equal("false\tetcdserver: mvcc: required revision has been compacted (compacted)\n", program.printed_by([[
      ngx = { get_phase = function() return "content" end }
      local store = require("keywatch").open { now = 0 }
      store:put("a", "1")
      store:put("a", "2")
      store:compact(3)
      local w = store:watch("a", { start_revision = 2 })
      print(pcall(w:events()))
    ]]))
  end)

  it("in a task gets events of other tasks, and ends with them", with_store(function(store)
    local w = store:watch("job/", { prefix = true })
    local seen = {}
    keywatch.run(function()
      local reader = keywatch.spawn(function()
        for event in w:events() do table.insert(seen, event.key) end
        return "the end"
      end)
      for i = 1, 5 do
        store:put("job/" .. i, "")
        keywatch.sleep(0)
      end
      assert(w:sync())
      w:close()
      assert.same({ true, "the end" }, { reader:join() })
    end)
    assert.same({ "job/1", "job/2", "job/3", "job/4", "job/5" }, seen)
  end))
end)

describe("two tasks that read one watch", function()
  local function read_by(n, puts)
    local store = keywatch.open { now = 0 }
    local w = store:watch("", { prefix = true })
    local seen, times = {}, {}
    keywatch.run(function()
      local readers = {}
      for i = 1, n do
        times[i] = 0
        readers[i] = keywatch.spawn(function()
          for event in w:events() do
            table.insert(seen, event.mod_revision)
            times[i] = times[i] + 1
            keywatch.sleep(0)
          end
        end)
      end
      keywatch.sleep(0)
      puts(store)
      while w.revision < store:status().revision do keywatch.sleep(0) end
      w:close()
      for i = 1, n do assert.is_true((readers[i]:join())) end
    end)
    return seen, times
  end

  it("get each event once, one or the other", function()
    local seen, times = read_by(2, function(store)
      for i = 1, 200 do
        store:put("k", tostring(i))
        if i % 5 == 0 then keywatch.sleep(0) end
      end
    end)
    for i = 1, 200 do assert.equal(i + 1, seen[i]) end
    assert.equal(200, #seen)
    assert.is_true(times[1] > 0 and times[2] > 0)
  end)

  it("may share one transaction", function()
    local seen, times = read_by(2, function(store)
      local ops = {}
      for i = 1, 100 do ops[i] = { put = "k" .. i, value = "" } end
      store:txn { success = ops }
    end)
    assert.equal(100, #seen)
    assert.is_true(times[1] > 0 and times[2] > 0)
  end)

  it("may be many", function()
    local seen = read_by(50, function(store)
      for i = 1, 100 do store:put("k", tostring(i)) end
    end)
    table.sort(seen)
    for i = 1, 100 do assert.equal(i + 1, seen[i]) end
    assert.equal(100, #seen)
  end)

  it("are both woken when it is closed", function()
    local w = keywatch.open({ now = 0 }):watch("a")
    keywatch.run(function()
      local one = keywatch.spawn(function() return w:next() end)
      local two = keywatch.spawn(function() return w:batch() end)
      keywatch.sleep(0)
      w:close()
      assert.same({ true }, { one:join() })
      assert.same({ true }, { two:join() })
    end)
  end)
end)

describe("a waiting reader", function()
  --- Returns the result of a waiting task when fn(w, store) is called.
  local function woken(fn)
    local store = store_with_keys()
    local w = store:watch("a")
    return keywatch.run(function()
      local reader = keywatch.spawn(function() return w:next() end)
      keywatch.sleep(0)
      fn(w, store)
      return reader:join()
    end)
  end

  it("is woken by events, by close, and by the end of the store", function()
    local ok, event = woken(function(_, store) store:put("a", "") end)
    assert.same({ true, "put a 5" }, { ok, events.text(event) })
    assert.same({ true }, { woken(function(w) w:close() end) })
    local err
    ok, event, err = woken(function(_, store) store:close() end)
    assert.same({ true, nil, "closed" }, { ok, event, err.code })
  end)

  it("is woken at top level too", with_store(function(store)
    local one, two = store:watch("a"), store:watch("a")
    keywatch.spawn(function() one:close() end)
    assert.same({}, { one:next() })
    keywatch.spawn(function() store:close() end)
    assert.equal("closed", answer.code(two:next()))
  end))

  it("of the initial kvs of a closed store gets its error", with_new(function(store)
    for i = 1, 1500 do store:put("k" .. i, "") end
    local w = store:watch("k", { prefix = true, initial = true })
    store:close()
    local n = 0
    for _ = 1, 2000 do
      local event, err = w:next(0)
      if not event then
        assert.equal("closed", err.code)
        break
      end
      n = n + 1
    end
    assert.is_true(n < 1500)
    assert.equal("closed", w:error().code)
  end))

  it("is not woken by events of other keys", with_store(function(store)
    local w = store:watch("a")
    local woke = false
    keywatch.run(function()
      keywatch.spawn(function()
        w:next()
        woke = true
      end)
      for i = 1, 10 do
        store:put("b", tostring(i))
        keywatch.sleep(0)
      end
    end)
    assert.is_false(woke)
  end))
end)
