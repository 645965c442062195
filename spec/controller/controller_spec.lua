--- Controllers: reconcile is called for each request, until it succeeds.

local controller = require "keywatch.controller"
local errors = require "keywatch.support.errors"
local keywatch = require "keywatch"
local program = require "spec.support.program"

local logs = require "spec.support.logs"
local steps = require "spec.controller.steps"
local within = require "spec.support.within"

local running = {} -- controllers, to be stopped at the end of the test

--- Returns a started controller over a channel that calls reconcile for each value.
local function start(reconcile, opts)
  local channel = keywatch.channel(1000)
  local all = { name = "c", sources = { channel }, reconcile = reconcile }
  for name, value in pairs(opts or {}) do all[name] = value end
  local one = controller.new(all)
  one:start()
  running[#running + 1] = one
  return one, channel
end

--- The same, with one request, after a second.
local function start_with_one(reconcile, opts)
  local one, channel = start(reconcile, opts)
  one:add("r")
  keywatch.sleep(1)
  return one, channel
end

--- A test in a world, at whose end controllers are stopped: fn(world).
local function in_world(fn)
  return within.world(function(world)
    running = {}
    fn(world)
    for _, one in ipairs(running) do one:stop(0) end
  end, { leftovers = "cancel" })
end

--- Asserts that times are those that are expected, but for rounding.
local function assert_times(expected, times)
  assert.equal(#expected, #times)
  for i, at in ipairs(expected) do assert.is_true(math.abs(times[i] - at) < 1e-9) end
end

--- Calls reconcile(request, context) for one request, and lets so many seconds pass. Returns the times of the calls,
-- and the status after them.
local function times_of(reconcile, seconds, opts)
  local times = {}
  local one = start(function(request, context)
    times[#times + 1] = keywatch.now()
    return reconcile(request, context, #times)
  end, opts)
  one:add("r")
  keywatch.sleep(seconds)
  local status = one:status()
  one:stop()
  return times, status
end

describe("a controller", function()
  before_each(logs.begin)
  after_each(logs.finish)

  describe("does what reconcile returns:", function()
    for what, result in pairs { nothing = { n = 0 }, ["true"] = { true, n = 1 }, ["nil"] = { nil, n = 1 },
      ["{ again = false }"] = { { again = false }, n = 1 }, ["{ never = false }"] = { { never = false }, n = 1 } } do
      it(what .. " is the end, and forgets failures #slow", in_world(function()
        local retries = {}
        local times, status = times_of(function(_, context, n)
          retries[n] = context.retries
          if n <= 2 then error("not yet") end
          if result.n > 0 then return result[1] end
        end, 1000)
        assert.same({ 3, { 0, 1, 2 }, "running" }, { #times, retries, status.state })
        assert.same({ 3, 1, 2, 2 }, { status.calls, status.done, status.failed, status.raised })
      end))
    end

    it("the result of a write means done", in_world(function(world)
      local client = world:client()
      local writes = {
        put = function(store) return store:put("/a", "1") end,
        delete = function(store) return store:delete("/a") end,
        txn = function(store) return store:txn { success = { { put = "/a", value = "2" } } } end,
      }
      for _, store in ipairs { keywatch.open(), client, client:namespace("/n") } do
        for name, write in pairs(writes) do
          local times, status = times_of(function(_, context) return write(context.store) end, 100, { store = store })
          assert.same({ 1, 1, 0, 0 }, { #times, status.done, status.failed, status.again }, name)
        end
      end
      assert.same({}, logs.lines)
    end))

    it("an error that a call has returned is a failure", in_world(function()
      local _, status = times_of(function(_, context, n)
        if n > 1 then return end
        return context.store:get("/a", { revision = 99 })
      end, 1, { store = keywatch.open() })
      assert.same({ 1, 1 }, { status.failed, status.done })
    end))

    it("a transaction that has not succeeded is retried with growing pauses, and is not a failure", in_world(function()
      local times, status = times_of(function(_, context, n)
        return context.store:txn {
          compare = { { key = "/a", version = n < 3 and 7 or 0 } }, success = { { put = "/a", value = "1" } },
        }
      end, 100, { store = keywatch.open() })
      assert_times({ 0, 0.005, 0.015 }, times)
      assert.same({ 1, 2, 0 }, { status.done, status.again, status.failed })
      assert.same({}, logs.lines)
    end))

    it("{ after = seconds } means done, and is repeated then", in_world(function()
      local times, status = times_of(function(_, context, n)
        assert.equal(n == 2 and 1 or 0, context.retries)
        if n == 1 then return nil, "bad luck" end
        return n < 5 and { after = 60 } or nil
      end, 1000)
      assert.same({ 0, 0.005, 60.005, 120.005, 180.005 }, times)
      assert.same({ 5, 3, 1, 1, 0 }, { status.calls, status.later, status.done, status.failed, status.queue.delayed })
    end))

    it("{ after = 0 } is repeated at once, behind the queue", in_world(function()
      local list = {}
      local one = start(function(request)
        list[#list + 1] = request
        return request == "a" and #list < 4 and { after = 0 } or nil
      end)
      for _, request in ipairs { "a", "b" } do one:add(request) end
      keywatch.sleep(1)
      assert.same({ "a", "b", "a", "a" }, list)
    end))

    it("{ after = 0 } does not overtake existing objects", in_world(function()
      local store = keywatch.open()
      for i = 1, 3 do store:put("/a/" .. i, "x") end
      local list = {}
      start(function(request)
        list[#list + 1] = request
        return request == "/a/1" and #list < 10 and { after = 0 } or nil
      end, { sources = { store:informer("/a/") } })
      keywatch.sleep(1)
      assert.same({ "/a/1", "/a/2", "/a/3", "/a/1" }, { list[1], list[2], list[3], list[4] })
    end))

    it("{ again = true } is retried with growing pauses, and is not a failure", in_world(function()
      local times, status = times_of(function(_, context, n)
        assert.equal(n - 1, context.retries)
        return n < 5 and { again = true } or nil
      end, 1000)
      assert_times({ 0, 0.005, 0.015, 0.035, 0.075 }, times)
      assert.same({ 5, 4, 1, 0 }, { status.calls, status.again, status.done, status.failed })
      assert.same({}, logs.lines)
    end))

    for what, reason in pairs {
      ["a text"] = "the spec is wrong", ["an error"] = errors.new("malformed", "the spec is wrong"),
    } do
      it("{ never = " .. what .. " } has failed for good, and is logged", in_world(function()
        local times, status = times_of(function() return { never = reason } end, 1000)
        assert.same({ 1, 1, 0, 1 }, { #times, status.given_up, status.failed, status.calls })
        assert.same({ 1, 1 }, { logs.count("the controller 'c' has failed for 'r', and does not try again: "),
          logs.count("the spec is wrong") })
      end))
    end

    it("a request that has failed for good is repeated after the next change", in_world(function()
      local n = 0
      local one = start_with_one(function()
        n = n + 1
        return { never = "no" }
      end)
      one:add("r")
      keywatch.sleep(1)
      assert.equal(2, n)
    end))

    for what, fail in pairs {
      ["nil and an error"] = function() return nil, errors.new("unavailable", "it is broken") end,
      ["nil and a text"] = function() return nil, "it is broken" end,
      ["false and a text"] = function() return false, "it is broken" end,
      ["an error that is raised"] = function() error("it is broken") end,
      ["an error object that is raised"] = function() error(errors.new("lost", "it is broken"), 0) end,
      ["a table that is raised"] = function()
        error(setmetatable({}, { __tostring = function() return "it is broken" end }))
      end,
      ["an error of a cancelled task that is not this one"] = function()
        error(errors.new("cancelled", "it is broken"), 0)
      end,
    } do
      it(what .. " comes again with backoff, and is logged #slow", in_world(function()
        local times, status = times_of(function(_, _, n)
          if n < 4 then return fail() end
        end, 1000)
        assert_times({ 0, 0.005, 0.015, 0.035 }, times)
        assert.same({ 4, 3, 1 }, { status.calls, status.failed, status.done })
        for text, n in pairs {
          ["the controller 'c' has failed for 'r', and tries again in "] = 3, ["it is broken"] = 3,
          ["tries again in 0.02 s"] = 1,
        } do assert.equal(n, logs.count(text)) end
      end))
    end

    it("an error is logged with its traceback", in_world(function()
      local function a_function_that_is_broken() error("it is broken") end
      times_of(function(_, _, n)
        if n == 1 then a_function_that_is_broken() end
      end, 1)
      assert.matches("stack traceback:.*a_function_that_is_broken", logs.lines[1])
    end))

    for what, odd in pairs {
      ["false alone"] = false, ["a number"] = 5, ["a text"] = "ok", ["an empty table"] = {},
      ["an unknown field"] = { later = 5 }, ["two fields"] = { after = 5, again = true },
      ["a time that is none"] = { after = "soon" }, ["a time before now"] = { after = -1 },
      ["an endless time"] = { after = math.huge }, ["a time that is NaN"] = { after = 0 / 0 },
      ["an odd `again`"] = { again = 1 }, ["a function"] = print, ["an odd revision"] = { revision = "7" },
      ["a revision and a time"] = { revision = 7, after = 5 },
      ["a table that answers to every field"] = setmetatable({}, { __index = function() return true end }),
    } do
      it(what .. " is a failure #slow", in_world(function()
        local times, status = times_of(function(_, _, n)
          if n < 3 then return odd end
        end, 1000)
        assert.same({ 3, 2, 0, 1, 2 },
          { #times, status.failed, status.raised, status.done, logs.count("reconcile has returned ") })
      end))
    end
  end)

  it("gives reconcile its request and a context of its own", in_world(function()
    local store, contexts = keywatch.open(), {}
    local one = start(function(request, context)
      assert.is_true(request == context.request and context.retries == 0 and context.store == store)
      contexts[request] = context
    end, { store = store })
    for _, request in ipairs { "a", "b" } do one:add(request) end
    keywatch.sleep(1)
    assert.equal(one, contexts.a.controller)
    assert.same({ "a", "b" }, { contexts.a.request, contexts.b.request })
  end))

  it("gives reconcile the store that start was called with", in_world(function()
    local found = {}
    local of_options, of_leader = keywatch.open(), keywatch.open()
    local one = start(function(request, context) found[request] = context.store end, { store = of_options })
    for request, store in pairs { b = of_leader, c = false } do
      one:stop()
      one:start(store or nil)
      one:add(request)
      keywatch.sleep(1)
    end
    one:stop()
    one:start()
    one:add("a")
    keywatch.sleep(1)
    assert.is_true(found.a == of_options and found.b == of_leader and found.c == of_options)
  end))

  it("makes one call at a time for a request, and one for each worker", in_world(function()
    local busy, most, now = {}, 0, 0
    local one = start(function(request)
      assert.is_nil(busy[request])
      busy[request], now = true, now + 1
      most = math.max(most, now)
      keywatch.sleep(1)
      busy[request], now = nil, now - 1
    end, { workers = 3 })
    for i = 1, 60 do
      one:add("r" .. i % 7)
      keywatch.sleep(0.1)
    end
    assert.same({ 3, 3 }, { one:status().workers, one:status().busy })
    one:stop()
    assert.same({ 3, 0, 0 }, { most, one:status().failed, one:status().busy })
  end))

  it("lets other tasks run though reconcile never waits", in_world(function()
    local others, calls = 0, 0
    local one = start(function() calls = calls + 1 end)
    for i = 1, 1000 do one:add(i) end
    while calls < 1000 do
      others = others + 1
      keywatch.sleep(0)
    end
    assert.is_true(others > 10)
  end))

  it("uses its limiter, also if that fails", in_world(function()
    local limiter = controller.limiter.exponential { first = 2, longest = 3 }
    local times = times_of(function() error("no") end, 11.5, { limiter = limiter })
    assert.same({ 0, 2, 5, 8, 11 }, times)
    local function broken() error("broken limiter") end
    times = times_of(function(_, context, n)
      assert.equal(0, context.retries)
      if n < 3 then error("no") end
    end, 100, { limiter = { when = broken, forget = broken, retries = broken } })
    assert.same({ 3, 5, true }, { #times, times[2] - times[1], logs.count("broken limiter") > 3 })
  end))

  it("takes requests from the program, also with a delay and a priority", in_world(function()
    local list = {}
    local one = controller.new { name = "c", sources = { keywatch.channel() },
      reconcile = function(request) list[#list + 1] = request end }
    assert.is_false(one:add("early"))
    one:start()
    assert.same({ true, true, true },
      { one:add("low", { priority = -1 }), one:add("later", { after = 5 }), one:add("high") })
    keywatch.sleep(1)
    assert.same({ "high", "low" }, list)
    keywatch.sleep(10)
    one:stop()
    assert.is_false(one:add("late"))
    assert.same({ "high", "low", "later" }, list)
    assert.has_error(function() one:add(nil) end)
  end))

  it("costs a turn of the loop no more with many idle workers than with one", in_world(function()
    local costs = {}
    for i, workers in ipairs { 1, 500 } do
      local one = start(function() end, { workers = workers })
      keywatch.sleep(1)
      costs[i] = steps.of(function()
        for _ = 1, 100 do one.watchdog:poll() end
      end)
      one:stop()
    end
    assert.is_true(costs[2] <= costs[1] + 10, costs[2] .. " steps, and with one worker " .. costs[1])
  end))

  describe("with a timeout", function()
    it("cancels a call at its wait, and retries with backoff", in_world(function()
      local times, status = times_of(function(_, _, n)
        if n < 3 then keywatch.sleep(1000) end
      end, 100, { timeout = 5 })
      assert_times({ 0, 5.005, 10.015 }, times)
      assert.same({ 3, 2, 2, 0, 1 }, { status.calls, status.late, status.failed, status.raised, status.done })
      assert.equal(2, logs.count("it has taken longer than 5 s, and was cancelled"))
    end))

    it("cancels at the next wait a call that was not waiting when its time was over", function()
      local done
      keywatch.run(function()
        local one = start(function(_, context)
          done = context.retries > 0
          if done then return end
          local before = os.clock()
          while os.clock() - before < 0.02 do end
          keywatch.sleep(0) -- the loop sees the deadline
          keywatch.sleep(100)
        end, { timeout = 0.01 })
        one:add("r")
        while not done do keywatch.sleep(0.001) end
        assert.equal(1, one:status().late)
        one:stop()
      end)
    end)

    it("reports a call that does not wait", function()
      keywatch.run(function()
        local one = start(function()
          local before = os.clock()
          while os.clock() - before < 0.02 do end
        end, { timeout = 0.001 })
        one:add("r")
        while one:status().calls == 0 do keywatch.sleep(0.001) end
        assert.same({ 1, 1, 0 }, { one:status().late, one:status().done, one:status().failed })
        one:stop()
      end)
      assert.matches("^warn the controller 'c' has worked on 'r' for .* it has not waited", logs.lines[1])
    end)

    it("accepts the result of a call that ignores its cancellation, and logs it", in_world(function()
      local waits_again
      local times, status = times_of(function()
        local ok, err = pcall(keywatch.sleep, 1000)
        assert.same({ false, "cancelled" }, { ok, err.code })
        waits_again = pcall(keywatch.shield, 10, keywatch.sleep, 2)
        return { after = 20 }
      end, 30, { timeout = 5 })
      assert.is_true(waits_again)
      assert.same({ 0, 27 }, times)
      assert.same({ 1, 1, 0 }, { status.later, status.late, status.failed })
      assert.equal(2, logs.count("has worked on 'r' for 7 s, and its timeout is 5 s")) -- stop waits for the second
    end))

    it("does not confuse an earlier cancellation with an error of another task in the next call", in_world(function()
      local others = 0
      local one = start(function(request)
        if request == "late" then
          pcall(keywatch.sleep, 100)
        elseif request == "other" then
          others = others + 1
          error(errors.new("cancelled"), 0)
        end
      end, { timeout = 5 })
      one:add("late")
      keywatch.sleep(10)
      one:add("other")
      keywatch.sleep(0.001)
      assert.same({ 1, 1, 1 }, { one:status().late, one:status().failed, others })
      one:stop(0)
    end))

    it("does not cancel the next call for the timeout of this one", in_world(function()
      local ends = {}
      local one = start(function(request)
        keywatch.sleep(request == "short" and 4.999 or 4.5)
        ends[#ends + 1] = request
      end, { timeout = 5 })
      one:add("short")
      one:add("next")
      keywatch.sleep(100)
      assert.same({ "short", "next" }, ends)
      assert.equal(0, one:status().late)
    end))

    it("lists overdue calls", in_world(function()
      local one = start(function() keywatch.shield(100, keywatch.sleep, 100) end, { timeout = 5, workers = 2 })
      one:add("r")
      for _, seconds in ipairs { 4, 20 } do
        keywatch.sleep(seconds)
        local status, is_late = one:status(), seconds == 20
        assert.same({ 1, is_late and 1 or 0, is_late and 24 or 4 },
          { status.busy, status.overdue, status.longest_call_seconds })
      end
      keywatch.sleep(100)
    end))
  end)

  describe("is stopped", function()
    it("when the queue is done", in_world(function()
      local done = {}
      local one = start(function(request)
        keywatch.sleep(1)
        done[#done + 1] = request
      end)
      for i = 1, 5 do one:add(i) end
      one:add("later", { after = 3 })
      keywatch.sleep(0.5)
      assert.is_true(one:stop())
      assert.same({ 5, { 1, 2, 3, 4, 5 }, "idle" }, { keywatch.now(), done, one:status().state })
      assert.same({ true, true }, { one:stop(), one:join() })
    end))

    it("and repeats a request that was added during its call", in_world(function()
      local calls = 0
      local one = start(function()
        calls = calls + 1
        keywatch.sleep(1)
      end)
      one:add("r")
      keywatch.sleep(0.5)
      one:add("r")
      assert.is_true(one:stop())
      assert.equal(2, calls)
    end))

    it("and does not retry failures", in_world(function()
      local one = start_with_one(function()
        keywatch.sleep(2)
        error("it is broken")
      end)
      assert.is_true(one:stop())
      assert.equal(1, logs.count("has failed for 'r', and is being stopped"))
    end))

    it("after its timeout, and cancels running calls", in_world(function()
      local ends = {}
      local one = start(function(request)
        local ok, err = pcall(keywatch.sleep, 100)
        ends[request] = ok or err.code
        if not ok then error(err, 0) end
      end, { workers = 2 })
      for i = 1, 5 do one:add(i) end
      keywatch.sleep(1)
      local ok, err = one:stop(5)
      assert.same({ nil, "timeout", 6 }, { ok, err.code, keywatch.now() })
      assert.matches("within 5 s: 2 calls were cancelled, and 3 requests dropped", err.message)
      assert.same({ "cancelled", "cancelled" }, ends)
      assert.same({ "idle", 0, 0 }, { one:status().state, one:status().busy, one:status().queue.active })
      one:start()
      keywatch.sleep(1)
      assert.equal(0, one:status().queue.gets)
      assert.is_true(one:stop())
    end))

    it("and has an empty queue after its timeout", in_world(function()
      local one = start(function()
        pcall(keywatch.sleep, 100)
        keywatch.sleep(5)
      end)
      for i = 1, 999 do one:add(i, { priority = i % 3 - 1 }) end
      keywatch.sleep(1)
      one:add(1)
      local _, err = one:stop(0)
      assert.matches("1 calls were cancelled, and 998 requests dropped", err.message)
      assert.same({ "stopping", 0, 1 }, { one:status().state, one:status().queue.depth, one:status().queue.active })
      one:join()
      assert.same({ "idle", 0, 0 }, { one:status().state, one:status().queue.depth, one:status().queue.active })
      assert.is_true(one:stop())
    end))

    it("in time, also if the caller of stop was cancelled", in_world(function()
      local one = start_with_one(function() keywatch.sleep(1000) end)
      local caller = keywatch.spawn(one.stop, one, 5)
      keywatch.sleep(1)
      caller:cancel()
      pcall(caller.join, caller)
      assert.same({ true, 6 }, { one:join(60), keywatch.now() })
      one:start()
      assert.is_true(one:stop())
    end))

    it("by the earliest deadline of several stops, and all of them report the cancelled calls", in_world(function()
      local one = start_with_one(function() keywatch.sleep(1000) end)
      local first = keywatch.spawn(function() return { one:stop(100) } end)
      keywatch.sleep(1)
      for _, found in ipairs { { one:stop(3) }, (select(2, first:join())) } do
        assert.is_nil(found[1])
        assert.matches("within 3 s: 1 calls were cancelled", found[2].message)
      end
      assert.equal(5, keywatch.now())
    end))

    it("in time, if a source has ended, or reconcile has called stop", in_world(function()
      local one, channel = start_with_one(function() keywatch.sleep(1000) end)
      channel:close()
      assert.same({ "closed", 31 }, { select(2, one:join()).code, keywatch.now() })

      one = start(function(_, context)
        context.controller:stop(5)
        keywatch.sleep(1000)
      end)
      one:add("r")
      assert.same({ true, 36 }, { one:join(), keywatch.now() })
    end))

    it("at once with 0 seconds, without a wait", in_world(function()
      local one = start_with_one(function() keywatch.sleep(100) end)
      assert.same({ "timeout", 1 }, { select(2, one:stop(0)).code, keywatch.now() })
      assert.is_true(one:join())
      one:start()
      keywatch.sleep(1)
      one:stop(0)
      assert.same({ true, 2 }, { one:join(), keywatch.now() })
    end))

    it("only after a call that ignores its cancellation, and cannot be restarted before", in_world(function()
      local ended
      local one = start_with_one(function()
        keywatch.shield(51, keywatch.sleep, 50)
        ended = true
      end)
      local ok, err = one:stop(5)
      assert.same({ nil, "timeout", 7 }, { ok, err.code, keywatch.now() }) -- with a second of grace
      assert.equal("stopping", one:status().state)
      assert.error_matches(function() one:start() end, "start: the controller 'c' is being stopped")
      assert.same({ "timeout", true }, { select(2, one:join(1)).code, one:join() and ended })
      one:start()
      assert.is_true(one:stop())
    end))

    it("by reconcile, which does not wait for itself", in_world(function()
      local one
      one = start(function(request)
        assert.is_true(one:stop())
        assert.error_matches(function() one:join() end, "join: reconcile cannot wait for the end of its controller")
        keywatch.sleep(request)
      end)
      for _, seconds in ipairs { 3, 4 } do one:add(seconds) end
      assert.same({ true, 7, 2 }, { one:join(), keywatch.now(), one:status().done })
    end))

    it("by a task that reconcile waits for", in_world(function()
      local one, result
      one = start(function()
        local task = keywatch.spawn(function() return one:stop(5) end)
        result = { pcall(task.join, task) }
        if not result[1] then error(result[2], 0) end
      end)
      one:add("r")
      assert.is_true(one:join() and keywatch.now() <= 7)
      keywatch.sleep(5)
      assert.same({ false, "cancelled" }, { result[1], result[2].code })
    end))

    it("by two tasks at once with different timeouts", in_world(function()
      for seconds, results in pairs { [3] = { true, true }, [100] = {} } do
        local begun, one = keywatch.now(), start_with_one(function() keywatch.sleep(seconds) end)
        local patient = keywatch.spawn(one.stop, one, 200)
        keywatch.sleep(1)
        assert.same(results, { (one:stop(2)), (select(2, patient:join())) })
        assert.equal(math.min(seconds, 4), keywatch.now() - begun)
      end
    end))

    it("before it has synced", in_world(function(world)
      world.server:stop()
      local one = start(print, { sources = { world:client():informer("/") } })
      keywatch.sleep(5)
      assert.same({ "syncing", false }, { one:status().state, one:has_synced() })
      assert.same({ true, 5, "idle" }, { one:stop(), keywatch.now(), one:status().state })
    end))

    it("and restarted any number of times", in_world(function()
      local store = keywatch.open()
      store:put("/a", "1")
      local informer, list = store:informer("/"), {}
      local one = controller.new { name = "c", sources = { informer },
        reconcile = function(request) list[#list + 1] = request end }
      for i = 1, 3 do
        one:start()
        keywatch.sleep(1)
        assert.same({ true, i, true }, { one:has_synced(), #list, one:stop() })
        store:put("/a", tostring(i))
        keywatch.sleep(1)
        assert.equal(i, #list)
      end
      assert.same({ 3, 0 }, { one:status().calls, informer:status().handlers })
    end))
  end)

  it("starts once", in_world(function()
    local one = start(function() end)
    for _ = 1, 2 do
      assert.error_matches(function() one:start() end, "start: the controller 'c' is started")
      keywatch.sleep(1)
    end
  end))

  it("runs, and waits for its end", in_world(function()
    local one
    one = controller.new { name = "c", sources = { { every = 5, request = "tick" } },
      reconcile = function()
        if keywatch.now() >= 20 then one:stop() end
      end }
    assert.same({ true, 20, 5 }, { one:run(), keywatch.now(), one:status().calls })
    assert.equal("keywatch.controller<c idle>", tostring(one))
  end))

  it("begins to stop if the task that runs it is cancelled", in_world(function()
    local list = {}
    local one = controller.new { name = "c", sources = { keywatch.channel(1) }, reconcile = function(request)
      keywatch.sleep(5)
      list[#list + 1] = request
    end }
    local task = keywatch.spawn(function() one:run() end)
    keywatch.sleep(1)
    one:add("a")
    keywatch.sleep(1)
    task:cancel()
    assert.same({ "cancelled", "stopping", true }, { select(2, task:join()).code, one:status().state, (one:join(10)) })
    assert.same({ "a" }, list)
  end))

  it("can be waited for with a timeout", in_world(function()
    local one = start(function() end)
    assert.same({ "timeout", 5 }, { select(2, one:join(5)).code, keywatch.now() })
    assert.equal("timeout", select(2, one:join(0)).code)
    one:stop()
    assert.is_true(one:join(0))
  end))

  it("continues in the next run with calls that the end of a run has cancelled", function()
    local one, calls, ends = nil, {}, {}
    keywatch.run(function()
      one = start(function(request)
        calls[#calls + 1] = request
        if #calls <= 2 then keywatch.sleep(100) end
        ends[#ends + 1] = request
      end, { workers = 2 })
      for i = 1, 4 do one:add(i) end
      while #calls < 2 do keywatch.sleep(0) end
    end)
    assert.same({}, ends)
    keywatch.run(function()
      while #ends < 4 do keywatch.sleep(0.001) end
      assert.is_true(one:stop())
    end)
    table.sort(ends)
    assert.same({ 1, 2, 3, 4 }, ends)
    assert.same({ 4, 0 }, { one:status().done, one:status().failed })
  end)

  it("stops in the next run, after calls that the end of a run has cancelled", function()
    local one, calls, ends = nil, 0, 0
    keywatch.run(function()
      one = start(function()
        calls = calls + 1
        if calls == 1 then keywatch.sleep(100) end
        ends = ends + 1
      end)
      one:add("r")
      keywatch.spawn(function() one:stop() end)
      while calls == 0 or one:status().state ~= "stopping" do keywatch.sleep(0) end
    end)
    keywatch.run(function() assert.is_true(one:stop()) end)
    assert.same({ 2, 1 }, { calls, ends })
  end)

  it("starts its sources in the next run if the end of a run was before", function()
    local store = keywatch.open()
    store:put("/a", "1")
    local one, list = nil, {}
    keywatch.run(function()
      one = controller.new { name = "c", sources = { store:informer("/") },
        reconcile = function(request) list[#list + 1] = request end }
      one:start()
    end)
    keywatch.run(function()
      while #list == 0 do keywatch.sleep(0) end
      one:stop()
    end)
    assert.same({ "/a" }, list)
  end)

  it("works in luv's loop", function()
    assert.equal("/a /b /a idle\n", program.printed_by([[
      local uv, keywatch, controller = require "luv", require "keywatch", require "keywatch.controller"
      local store = keywatch.open()
      local informer, one
      local timer = uv.new_timer()
      timer:start(1, 0, function()
        informer = store:informer("/")
        one = controller.new { name = "c", sources = { informer }, reconcile = function(request, context)
          io.write(request, " ")
          if request == "/a" and context.retries == 0 then
            keywatch.sleep(0.01)
            store:put("/b", "")
            return { again = true }
          elseif request == "/a" then
            one:stop()
            informer:close()
          end
        end }
        one:start()
        store:put("/a", "")
        timer:close()
      end)
      uv.run()
      print(one:status().state)
    ]]))
  end)

  it("continues in the child after a fork, with the request of a running call", function()
    assert.same({ 0, "1 2 3 true\n" }, { program.run_forking [[
      local controller = require "keywatch.controller"
      local parent, begun, list = core.pid(), 0, {}
      local sources = { keywatch.channel() }
      local one = controller.new { name = "c", sources = sources, workers = 2, reconcile = function(request)
        begun = begun + 1
        if core.pid() == parent then keywatch.sleep(100) end
        list[#list + 1] = request
      end }
      one:start()
      for i = 1, 3 do one:add(i) end
      while begun < 2 do keywatch.sleep(0) end
      child(function()
        while #list < 3 do keywatch.sleep(0.001) end
        table.sort(list)
        print(table.concat(list, " ") .. " " .. tostring(one:stop()))
      end)
      os.exit(0, false)
    ]] })
  end)

  it("stops in the child of a fork that was made while it was being stopped", function()
    assert.same({ 0, "true\tidle\n" }, { program.run_forking [[
      local controller = require "keywatch.controller"
      local begun, goes_on = false, false
      local one = controller.new { name = "c", sources = { keywatch.channel() }, reconcile = function(request)
        begun = true
        pcall(keywatch.sleep, 100)
        goes_on = true
        keywatch.sleep(100)
      end }
      one:start()
      one:add("r")
      while not begun do keywatch.sleep(0) end
      one:stop(0)
      while not goes_on do keywatch.sleep(0) end
      child(function() print(one:join(5), one:status().state) end)
      os.exit(0, false)
    ]] })
  end)
end)
