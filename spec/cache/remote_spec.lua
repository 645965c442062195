--- Caches of a client: their requests to the server, their waits, and their end. The server is in this process.

local core = require "keywatch.core"
local keywatch = require "keywatch"

local answer = require "spec.support.answer"
local near = require "spec.support.near"
local program = require "spec.support.program"
local within = require "spec.support.within"

local PATIENCE = 30

local function turn() keywatch.sleep(0.001) end

local function collect()
  for _ = 1, 3 do
    collectgarbage()
    turn()
  end
end

describe("a client's cache", function()
  local client, store, close, server, cache, calls

  before_each(function()
    calls = 0
    client, store, close, server = near {
      on_call = function(call) if call.method == "/etcdserverpb.KV/Range" then calls = calls + 1 end end,
    }
    for i = 1, 3 do store:put("/a/" .. i, tostring(i)) end
    cache = assert(client:cache("/a/"))
    assert(cache:wait_ready(PATIENCE))
  end)

  after_each(function() close() end)

  it("has no history, and watches from its revision on", function()
    local revision = cache:status().revision
    local function watch_from(first) return assert(cache:watch("/a/", { prefix = true, start_revision = first })) end
    assert.equal("compacted", answer.code(watch_from(revision - 1):next(0)))
    local new, late = watch_from(revision + 1), watch_from(revision + 3)
    for _, watch in ipairs { new, late } do assert.equal("timeout", answer.code(watch:next(0))) end
    for i = 1, 4 do store:put("/a/x", tostring(i)) end
    for i = 1, 4 do assert.equal(revision + i, new:next(PATIENCE).mod_revision) end
    for i = 3, 4 do assert.equal(revision + i, late:next(PATIENCE).mod_revision) end
  end)

  it("wakes all waiters for its content when it has arrived", within.task(function()
    local own, tasks = assert(client:cache("/a/")), {}
    for i = 1, 20 do tasks[i] = keywatch.spawn(own.wait_ready, own, PATIENCE) end
    for _, task in ipairs(tasks) do assert.same({ true, true }, { task:join() }) end
    assert.is_true(own:wait_ready(0))
  end))

  it("wakes all waiters for its content when it is closed", within.task(function()
    local own, tasks = assert(keywatch.connect("http://127.0.0.1:1"):cache("/a/")), {}
    for i = 1, 20 do tasks[i] = keywatch.spawn(own.wait_ready, own) end
    keywatch.sleep(0)
    own:close()
    for _, task in ipairs(tasks) do assert.equal("closed", answer.code(select(2, task:join()))) end
  end))

  it("reaches a revision of other keys without an event", function()
    local watch = assert(cache:watch("/a/", { prefix = true, progress = true }))
    local put = store:put("/other", "x")
    assert.equal(put.revision, cache:wait_for(put.revision, PATIENCE))
    assert.equal(put.revision, watch:sync(PATIENCE))
    local again = store:put("/other", "x").revision
    assert.equal(3, cache:range("/a/", { prefix = true, min_revision = again }).count)
    assert.equal(again, cache:range("/a/", { prefix = true }).revision)
  end)

  it("asks the server once for all concurrent consistent reads", function()
    keywatch.run(function()
      cache:sync(PATIENCE)
      calls = 0
      local tasks = {}
      for i = 1, 100 do
        tasks[i] = keywatch.spawn(function()
          local mine = store:put("/a/x", tostring(i)).revision
          local found = assert(cache:get("/a/x", { consistent = true }))
          assert(found.mod_revision >= mine, "a read has not seen what was written before it")
        end)
      end
      for _, task in ipairs(tasks) do assert(task:join()) end
      keywatch.sleep(0.01)
    end)
    -- Two, or more where the tasks need several turns of the loop to begin.
    assert(calls >= 1 and calls <= 10, calls .. " reads for 100 callers")
  end)

  it("does not give a caller the answer to a read that was sent before the call", within.task(function()
    local first = keywatch.spawn(function() return cache:sync(PATIENCE) end)
    keywatch.sleep(0)
    keywatch.sleep(0)
    for _ = 1, 20 do
      local mine = store:put("/other", "x").revision
      local found = assert(cache:sync(PATIENCE))
      assert(found >= mine, "what sync returns is older than its call")
      assert(cache:status().revision >= mine)
    end
    assert(first:join())
  end))

  it("asks for progress only while a caller waits", within.task(function()
    local asked, request = 0, client.transport.watch_calls.request_progress
    client.transport.watch_calls.request_progress = function(...)
      asked = asked + 1
      return request(...)
    end
    store:put("/other", "x")
    keywatch.sleep(0.3)
    assert.equal(0, asked)
    local tasks, from = {}, keywatch.now()
    for i = 1, 50 do tasks[i] = keywatch.spawn(function() return cache:wait_for(10 ^ 9, 0.25) end) end
    for _, task in ipairs(tasks) do task:join() end
    local most = (keywatch.now() - from) / 0.1 + 2 -- together they ask every 0.1 seconds
    assert(asked >= 1 and asked <= most, asked .. " requests")
  end))

  it("has a small age while the server confirms it, even without changes", function()
    cache:sync(PATIENCE)
    local confirmed_at, revision = cache.feed:last_confirmed(), cache:status().revision
    keywatch.sleep(0.01)
    while cache.feed:last_confirmed() == confirmed_at do
      for call in pairs(client.transport.watch_calls.calls) do call.inspect_at = 0 end -- as ten seconds later
      client.transport:look_at_all()
      keywatch.sleep(0.01)
    end
    assert.equal(revision, cache:status().revision)
    assert(cache:status().age < 10)
  end)

  it("reads its history, and fails outside of it", function()
    local before = cache:status().revision
    local put = store:put("/a/1", "new")
    assert(cache:wait_for(put.revision, PATIENCE))
    assert.equal("1", cache:get("/a/1", { revision = before }).value)
    assert.equal("compacted", answer.code(cache:get("/a/1", { revision = before - 1 })))
    assert.equal("future_revision", answer.code(cache:get("/a/1", { revision = put.revision + 100 })))
  end)

  it("bounds its history", function()
    local small = assert(client:cache("/a/", { history_revisions = 5 }))
    local brief = assert(client:cache("/a/", { history_age = 0.01 }))
    assert(small:wait_ready(PATIENCE) and brief:wait_ready(PATIENCE))
    local last
    for i = 1, 20 do last = store:put("/a/x", tostring(i)).revision end
    assert(small:wait_for(last, PATIENCE) and brief:wait_for(last, PATIENCE))
    assert.equal(last - 5, small:status().compact_revision)
    while brief:status().compact_revision < last do keywatch.sleep(0.01) end
    local watch = assert(small:watch("/a/x", { start_revision = last - 10 }))
    assert.equal("compacted", answer.code(watch:next(0)))
  end)

  it("ends with its client, and so do its watches", function()
    local watch = assert(cache:watch("/a/", { prefix = true }))
    keywatch.run(function()
      local tasks = { keywatch.spawn(cache.wait_for, cache, 10 ^ 9), keywatch.spawn(watch.next, watch) }
      turn()
      client:close()
      for _, task in ipairs(tasks) do assert.equal("closed", answer.code(select(2, task:join()))) end
    end)
    local found, err = cache:get("/a/1", { consistent = true })
    assert.same({ nil, "closed", "keywatch: the client is closed" }, { found, err.code, err.message })
    assert.same({ "closed", true }, { cache:status().phase, cache:status().is_stale })
    assert.equal("closed", answer.code(client:cache("/a/")))
  end)

  it("lives as long as the cache, one of its watches or one of its tables is referenced", function()
    local transport = client.transport
    local watch = assert(cache:watch("/a/", { prefix = true }))
    cache = nil
    collectgarbage()
    store:put("/a/x", "1")
    assert.same({ "1", 1 }, { watch:next(PATIENCE).value, (transport.watch_calls:count()) })
    local t = getmetatable(watch) and watch.cache:table()
    watch:close()
    watch = nil -- luacheck: ignore
    collectgarbage()
    store:put("/a/x", "2")
    while t["/a/x"] ~= "2" do turn() end
    t = nil -- luacheck: ignore
    collect()
    assert.same({ 0, nil }, { (transport.watch_calls:count()), (next(transport.feeds)) })
    while next(transport.watch_calls.calls) do -- the call has no watch, and ends when it is looked at
      for call in pairs(transport.watch_calls.calls) do call.inspect_at = 0 end
      transport:look_at_all()
      turn()
    end
  end)

  it("ends without references, though the hook of a table refers to that table", function()
    local transport = client.transport
    local function follow()
      local t
      t = client:cache("/a/"):table { on_change = function(key) return t[key] end }
      while not t["/a/3"] do turn() end
    end
    for _ = 1, 5 do follow() end
    collect()
    assert.equal(1, (transport.watch_calls:count())) -- that of the cache of all specs
  end)

  it("fills a table that the hook of another table opens, and both follow later changes", function()
    local inner, n
    local outer = cache:table { on_change = function(_, new)
      if new ~= "go" then return end
      inner = cache:table()
      n = 0
      for _ in pairs(inner) do n = n + 1 end
    end }
    assert(cache:wait_for(store:put("/a/1", "go").revision, PATIENCE))
    assert.equal(3, n)
    assert(cache:wait_for(store:put("/a/2", "more").revision, PATIENCE))
    assert.same({ "more", "more" }, { inner["/a/2"], outer["/a/2"] })
  end)

  it("fills a new table completely before it returns, also in a task, however many keys there are", function()
    local n = 50 -- more than a turn reads where turns are small
    for i = 1, n do store:put(("/a/%d"):format(i), "new") end
    assert(cache:wait_for(store:status().revision, PATIENCE))
    keywatch.run(function()
      local t, found = cache:table(), 0
      for _ in pairs(t) do found = found + 1 end
      assert.equal(n, found)
    end)
  end)

  it("updates a table later if the replica was in the middle of a call when a change arrived", function()
    local t, other = cache:table(), cache:table()
    local follower, is_busy = cache.followers[1], true
    function follower.follow(self, ...)
      if is_busy then error("the store is in the middle of a call, and a finalizer has to wait", 0) end
      return getmetatable(self).__index.follow(self, ...)
    end
    store:put("/a/1", "new")
    while other["/a/1"] ~= "new" do turn() end
    assert.equal("1", t["/a/1"])
    is_busy = false
    while t["/a/1"] ~= "new" do turn() end
  end)

  it("can be closed, as can its client, by the hook of a table", function()
    for _, what in ipairs { "cache", "client" } do
      local own = keywatch.connect(server:addresses()[1])
      local one = assert(own:cache("/a/"))
      local closing = { cache = one, client = own }
      one:table { on_change = function(_, new) if new == what then closing[what]:close() end end }
      local kept = one:table()
      assert(one:wait_ready(PATIENCE))
      local watch = assert(one:watch("/a/", { prefix = true }))
      local event
      store:put("/a/1", what)
      keywatch.run(function() while one:status().phase ~= "closed" do turn() end end)
      repeat event = watch:next(0) until not event
      assert.same({ "closed", "closed", "2" }, { watch:error().code, one:status().phase, kept["/a/2"] })
      own:close()
    end
  end)

  it("ends with a client that a finalizer closes when the last page has arrived", function()
    local own = keywatch.connect(server:addresses()[1])
    local one = assert(own:cache("/a/"))
    local methods = debug.getmetatable(one.feed.state).__index
    local last, times = methods.last, 0
    function methods.last(...)
      local key, revision = last(...)
      times = times + 1
      own:close()
      return key, revision
    end
    local ok, ready, err = pcall(one.wait_ready, one, PATIENCE)
    methods.last = last
    assert.same({ true, nil, "closed", 1 }, { ok, ready, err and err.code, times })
  end)

  --- Has the watch of the cache fail, as if the server had ended it.
  local function fail_watch(code)
    cache.feed.core:fail(code, "keywatch: refused")
    cache.feed.arrival.set()
  end

  it("reads again after a pause, without any other event", function()
    cache:sync(PATIENCE)
    client.transport.backoff = function() return 0.01 end
    fail_watch("permission_denied")
    assert.same({ "paused", "permission_denied" }, { cache:status().phase, cache:status().trouble.code })
    while cache:status().phase ~= "following" do
      assert(cache.feed.changed:wait(5), "the client sleeps until it looks at its calls")
    end
  end)

  it("returns the server's reason for a refusal from a consistent read", function()
    client.transport.backoff = function() return PATIENCE end
    local reads = client.transport.reads
    function reads.begin(self, ...)
      local read = getmetatable(self).__index.begin(self, ...)
      read.is_done, read.err = true, require("keywatch.core").new_error("permission_denied")
      return read
    end
    fail_watch("permission_denied")
    assert.equal("permission_denied", answer.code(cache:get("/a/1", { consistent = true, timeout = PATIENCE })))
    assert.equal("permission_denied", answer.code(cache:sync(PATIENCE)))
    reads.begin = nil
  end)

  for _, code in ipairs { "permission_denied", "compacted", "cluster_changed" } do
    it("pauses longer each time its watch ends at once: " .. code, function()
      local watch_calls, pauses = client.transport.watch_calls, {}
      client.transport.backoff = function(failures)
        pauses[#pauses + 1] = failures
        return 0.001
      end
      function watch_calls.add(self, one)
        getmetatable(self).__index.add(self, one)
        if #pauses < 5 then fail_watch(code) end
      end
      fail_watch(code)
      while #pauses < 5 do turn() end
      watch_calls.add = nil
      local first = code == "permission_denied" and 1 or 2 -- after the first failure it reads at once
      assert.same({ first, first + 1, first + 2, first + 3, first + 4 }, pauses)
      local put = store:put("/a/9", "9")
      assert(cache:wait_for(put.revision, PATIENCE))
      assert.equal("9", cache:get("/a/9").value)
    end)
  end

  it("continues if the replica was in the middle of a call when the last page arrived", function()
    local merge, n = core.inner.merge, 0
    function core.inner.merge(...)
      n = n + 1
      if n <= 2 then error("the store is in the middle of a call, and a finalizer has to wait", 0) end -- as the core
      return merge(...)
    end
    store:put("/a/9", "9")
    fail_watch("compacted")
    while n < 3 do turn() end
    core.inner.merge = merge
    assert(cache:wait_for(store:put("/a/10", "10").revision, PATIENCE))
    assert.equal("9", cache:get("/a/9").value)
  end)

  it("may open and close caches in the hook of a table, also while the transport polls", function()
    local opened, calls_of_hook = {}, 0
    client.transport.backoff = function() return 0.001 end
    cache:table { on_change = function(key)
      if key ~= "/a/x" then return end
      calls_of_hook = calls_of_hook + 1
      for _ = 1, 20 do opened[#opened + 1] = assert(client:cache("/a/")) end
      for i = 1, #opened, 2 do opened[i]:close() end
    end }
    for i = 1, 5 do
      store:put("/a/x", tostring(i))
      cache.feed.must_look_again = true -- so that the transport's poll of its feeds calls the hook
      client.transport:poll()
      while calls_of_hook < i do turn() end
    end
    assert(opened[#opened]:wait_ready(PATIENCE))
    for _, one in ipairs(opened) do one:close() end
  end)

  it("works in a task and at top level, and its error names a coroutine where it cannot wait", function()
    local said
    coroutine.wrap(function() said = select(2, pcall(cache.wait_for, cache, 10 ^ 9)) end)()
    assert.matches("wait_for waits, but the coroutine that makes it is not a task", said)
    coroutine.wrap(function() said = cache:get("/a/1").value end)()
    assert.equal("1", said)
    assert.equal("1", keywatch.run(function() return cache:get("/a/1", { consistent = true }).value end))
  end)
end)

describe("a cache in a forked child #slow", function()
  it("continues in both processes", function()
    local network = require "spec.support.network"
    network.begin()
    local peer = network.start("keywatch")
    local status, printed = program.run_forking(([[
      local client = keywatch.connect(%q)
      client:put("/a/1", "1")
      local cache = client:cache("/a/")
      assert(cache:wait_ready(30))
      local watch, t = cache:watch("/a/", { prefix = true }), cache:table()
      child(function()
        local put = client:put("/a/2", "child")
        assert(cache:wait_for(put.revision, 30))
        print("child", watch:next(30).value, t["/a/2"], cache:get("/a/2", { consistent = true }).value)
        client:close()
      end)
      print("parent", watch:next(30).value, t["/a/2"], cache:get("/a/2").value)
    ]]):format(peer.url))
    network.finish()
    assert.same({ 0, "child\tchild\tchild\tchild\nparent\tchild\tchild\tchild\n" }, { status, printed })
  end)
end)
