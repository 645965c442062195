--- Work queues: each item is queued once, and one worker at a time works on it.

local controller = require "keywatch.controller"
local keywatch = require "keywatch"

local answer = require "spec.support.answer"
local logs = require "spec.support.logs"
local steps = require "spec.controller.steps"
local program = require "spec.support.program"
local within = require "spec.support.within"

local function new(opts) return controller.work_queue(opts) end

--- Takes all that is queued.
local function take_all(queue)
  local list = {}
  while queue:count() > 0 do list[#list + 1] = queue:get(0) end
  return list
end

--- Asserts that nothing is to be had now.
local function assert_empty(queue, code) assert.equal(code or "timeout", answer.code(queue:get(0))) end

--- A queue with one item, which is being worked on.
local function with_work(fn, opts)
  return within.world(function()
    local queue = new(opts)
    queue:add("a")
    assert.equal("a", queue:get(0))
    fn(queue)
  end)
end

--- Kilobytes that are in use.

--- Calls fn(queue) in virtual time.
local function with_queue(fn, opts) return within.world(function() fn(new(opts)) end) end

local function kilobytes()
  collectgarbage()
  return collectgarbage("count")
end

describe("a work queue", function()
  before_each(logs.begin)
  after_each(logs.finish)

  describe("hands out", function()
    it("items in the order in which they were added", with_queue(function(queue)
      for _, item in ipairs { "c", "a", "b" } do assert.is_true(queue:add(item)) end
      assert.equal(3, queue:count())
      assert.same({ "c", "a", "b" }, take_all(queue))
      assert_empty(queue)
    end))

    it("an item once if it was added several times", with_queue(function(queue)
      for _ = 1, 3 do queue:add("a") end
      queue:add("b")
      queue:add("a")
      assert.equal(2, queue:count())
      assert.same({ "a", "b" }, take_all(queue))
    end))

    it("any value that can be a key of a table", with_queue(function(queue)
      local items = { false, true, 1, 1.5, "", {}, print, coroutine.create(print), io.stdout }
      for _, item in ipairs(items) do queue:add(item) end
      assert.equal(#items, queue:count())
      for _, item in ipairs(items) do
        local found = queue:get(0)
        assert.is_true(rawequal(item, found))
        queue:done(found)
      end
      assert.equal(0, queue:status().active)
    end))

    it("an item again if it was added again after done", with_queue(function(queue)
      for _ = 1, 3 do
        queue:add("a")
        assert.equal("a", queue:get(0))
        queue:done("a")
        assert_empty(queue)
      end
    end))

    it("an item that is added during its work once more, after done", with_work(function(queue)
      for _ = 1, 3 do queue:add("a") end
      queue:add("b")
      assert.same({ 1, "b" }, { queue:count(), (queue:get(0)) })
      assert_empty(queue)
      queue:done("a")
      assert.same({ 1, "a" }, { queue:count(), (queue:get(0)) })
      for _, item in ipairs { "a", "b" } do queue:done(item) end
      assert_empty(queue)
    end))

    it("an item to one worker at a time: a second one waits until the first is done", with_work(function(queue)
      queue:add("a")
      local got_at
      local second = keywatch.spawn(function()
        assert.equal("a", queue:get())
        got_at = keywatch.now()
        queue:done("a")
      end)
      keywatch.sleep(10)
      assert.is_nil(got_at)
      queue:done("a")
      assert.same({ true, 10 }, { second:join(), got_at })
    end))

    it("an item to the worker that has waited longest", with_queue(function(queue)
      local got, tasks = {}, {}
      for i = 1, 3 do
        tasks[i] = keywatch.spawn(function() got[i] = queue:get() end)
        keywatch.sleep(1)
      end
      for _, item in ipairs { "a", "b", "c" } do
        queue:add(item)
        keywatch.sleep(1)
      end
      keywatch.join(tasks)
      assert.same({ "a", "b", "c" }, got)
    end))
  end)

  describe("lets callers of get", function()
    it("wait with a timeout", with_queue(function(queue)
      assert.same({ "timeout", 5 }, { answer.code(queue:get(5)), keywatch.now() })
      keywatch.spawn(function()
        keywatch.sleep(2)
        queue:add("a")
      end)
      assert.same({ "a", 7 }, { queue:get(5), keywatch.now() })
    end))

    it("be cancelled, and the item goes to another one", with_queue(function(queue)
      local one, two = keywatch.spawn(queue.get, queue), keywatch.spawn(queue.get, queue)
      keywatch.sleep(1)
      one:cancel()
      queue:add("a")
      assert.same({ true, "a" }, { two:join() })
      assert.is_false((one:join()))
    end))

    it("be cancelled after it has received an item, and not lose the item", with_queue(function(queue)
      local got = {}
      local one = keywatch.spawn(function()
        got[1] = queue:get()
        keywatch.sleep(1)
      end)
      keywatch.sleep(1)
      queue:add("a")
      one:cancel() -- it has been woken, and has not run
      one:join()
      assert.same({ "a" }, got)
      assert.equal(1, queue:status().active)
    end))

    it("not lose an item that arrives at the timeout of another one", with_queue(function(queue)
      local got = {}
      local one = keywatch.spawn(function() got.one = queue:get(5) end)
      local two = keywatch.spawn(function() got.two = queue:get(9) end)
      keywatch.sleep(5) -- is over in the same turn as the wait of `one`
      queue:add("a")
      keywatch.join { one, two }
      assert.is_true(got.one == "a" or got.two == "a")
    end))
  end)

  describe("delays", function()
    it("an item until exactly its time", with_queue(function(queue)
      queue:add("a", { after = 50 })
      assert.same({ 0, 1, "timeout" }, { queue:count(), queue:status().delayed, answer.code(queue:get(49.999)) })
      assert.same({ "a", 50, 0 }, { queue:get(), keywatch.now(), queue:status().delayed })
      queue:done("a")
      assert_empty(queue)
    end))

    it("nothing by 0 seconds or less", with_queue(function(queue)
      queue:add("a", { after = 0 })
      queue:add("b", { after = -5 })
      assert.same({ "a", "b" }, take_all(queue))
    end))

    it("items in the order in which they are due", with_queue(function(queue)
      for i, seconds in ipairs { 3, 1, 5, 2, 4, 1 } do queue:add("item" .. i, { after = seconds }) end
      local got = {}
      for i = 1, 6 do got[i] = queue:get() .. "@" .. ("%d"):format(keywatch.now()) end
      assert.same({ "item2@1", "item6@1", "item4@2", "item1@3", "item5@4", "item3@5" }, got)
    end))

    it("an item once, by the earlier of two times, in any order", with_queue(function(queue)
      for _, after in ipairs { 50, 30 } do queue:add("a", { after = after }) end
      for _, after in ipairs { 30, 50 } do queue:add("b", { after = after }) end
      assert.same({ 2, "a", "b", 30 }, { queue:status().delayed, queue:get(), queue:get(), keywatch.now() })
      for _, item in ipairs { "a", "b" } do queue:done(item) end
      assert.equal("timeout", answer.code(queue:get(100)))
    end))

    it("an item no longer once it is added without a delay", with_queue(function(queue)
      queue:add("a", { after = 50 })
      queue:add("a")
      assert.same({ 1, 0, "a" }, { queue:count(), queue:status().delayed, (queue:get(0)) })
      queue:done("a")
      assert.equal("timeout", answer.code(queue:get(100)))
    end))

    it("no item that is queued", with_queue(function(queue)
      queue:add("a")
      queue:add("a", { after = 50 })
      assert.same({ 1, 0 }, { queue:count(), queue:status().delayed })
    end))

    it("an item during its work, and hands it out when it is due and done", with_work(function(queue)
      queue:add("a", { after = 5 })
      keywatch.sleep(10)
      assert_empty(queue)
      queue:done("a")
      assert.equal("a", queue:get(0))
      queue:add("a", { after = 5 })
      queue:done("a")
      assert_empty(queue)
      assert.same({ "a", 15 }, { queue:get(), keywatch.now() })
    end))

    it("no item that will be queued at once after done", with_work(function(queue)
      queue:add("a")
      queue:add("a", { after = 5 })
      assert.equal(0, queue:status().delayed)
      queue:done("a")
      assert.equal("a", queue:get(0))
      queue:done("a")
      assert.equal("timeout", answer.code(queue:get(100)))
    end))

    it("ten thousand items, and is small again afterwards #slow", with_queue(function(queue)
      local before = kilobytes()
      for i = 1, 10000 do queue:add(i, { after = 1 + i % 100 }) end
      for _ = 1, 10000 do queue:done((queue:get())) end
      assert_empty(queue)
      assert.is_true(kilobytes() - before < 400, kilobytes() - before)
    end))
  end)

  describe("puts first", function()
    it("items of a higher priority, and keeps the order in each", with_queue(function(queue)
      queue:add("low1", { priority = -100 })
      queue:add("a")
      queue:add("high", { priority = 7.5 })
      queue:add("low2", { priority = -100 })
      queue:add("b")
      assert.same({ "high", "a", "b", "low1", "low2" }, take_all(queue))
    end))

    it("items that are added again with a higher priority, and never lowers one", with_queue(function(queue)
      for _, item in ipairs { "a", "b", "c" } do queue:add(item, { priority = -100 }) end
      queue:add("c")
      queue:add("b", { priority = -100 })
      queue:add("c", { priority = -200 })
      assert.equal(3, queue:count())
      assert.same({ "c", "a", "b" }, take_all(queue))
    end))

    it("an item whose priority rises again and again, which then takes no more memory than once", with_queue(
      function(queue)
        queue:add("b", { priority = -1 })
        local before = kilobytes()
        for i = 1, 5000 do queue:add("a", { priority = i }) end
        assert.is_true(kilobytes() - before < 500, "KB are more than before")
        assert.same({ "a", "b" }, take_all(queue))
      end))

    it("a due item of a higher priority, from either of two delays", with_queue(function(queue)
      queue:add("a", { after = 1 })
      queue:add("b", { after = 1 })
      queue:add("b", { after = 9, priority = 5 })
      queue:add("c", { after = 9, priority = 6 })
      queue:add("c", { after = 1 })
      queue:add("d", { after = 9, priority = 7 })
      queue:add("d")
      keywatch.sleep(2)
      assert.same({ "d", "c", "b", "a" }, take_all(queue))
    end))

    it("an item of a higher priority that was added again during its work", with_work(function(queue)
      queue:add("a", { priority = -5 })
      queue:add("a", { priority = 3 })
      queue:add("a")
      queue:add("b", { priority = 1 })
      queue:done("a")
      assert.same({ "a", "b" }, take_all(queue))
    end))

    it("nothing because of a retry, which has the priority of its item", with_queue(function(queue)
      for _, item in ipairs { "one", "two" } do
        queue:add(item, { priority = -100 })
        assert.equal(item, queue:get(0))
      end
      queue:retry("one")
      queue:retry("two", { priority = 4 })
      queue:done("one")
      queue:done("two")
      queue:add("other", { priority = -1 })
      keywatch.sleep(1)
      assert.same({ "two", "other", "one" }, take_all(queue))
    end))

    for what, sign in pairs { rising = 1, falling = -1 } do
      it(what .. " priorities at a cost that does not grow with their number #slow", with_queue(function(queue)
        local function work(n)
          for i = 1, n do queue:add(i, { priority = sign * i }) end
          for _ = 1, n do queue:done(queue:get(0)) end
        end
        work(10)
        local few, many = steps.of(work, 500), steps.of(work, 4000)
        assert.is_true(many < 16 * few, many .. " steps, and for an eighth " .. few)
      end))
    end
  end)

  describe("retries", function()
    it("an item after the pause of its limiter, which restarts after forget", with_queue(function(queue)
      assert.same({ 0.001, 0.002, 0.001 }, { queue:retry("one"), queue:retry("one"), queue:retry("two") })
      assert.equal(2, queue:retries("one"))
      assert.same({ "one", 0.001 }, { queue:get(), keywatch.now() }) -- the first time: it is the earlier one
      queue:done("one")
      queue:forget("one")
      assert.same({ 0, 0.001, 4 }, { queue:retries("one"), queue:retry("one"), queue:status().retries })
    end, { limiter = controller.limiter.exponential { first = 0.001, longest = 1 } }))

    it("by default after 5 ms, doubled each time", with_queue(function(queue)
      assert.same({ 0.005, 0.01, 0.02 }, { queue:retry("a"), queue:retry("a"), queue:retry("a") })
      for i = 1, 97 do queue:retry(i) end
      assert.is_true(queue:retry("b") > 0.09) -- a hundred at once are too many
    end))

    for what, when in pairs {
      raises = function() error("broken limiter") end,
      ["raises a table"] = function() error {} end,
      ["answers nil"] = function() end,
      ["answers a text"] = function() return "soon" end,
      ["answers NaN"] = function() return 0 / 0 end,
      ["answers infinity"] = function() return math.huge end,
    } do
      it("an item whose limiter " .. what .. ", after 5 seconds #slow", within.world(function()
        local own = { when = when, forget = function() error("no") end, retries = function() return {} end }
        for _, limiter in ipairs { own, controller.limiter.max { controller.limiter.bucket(), own } } do
          local queue, begun = new { name = "q", limiter = limiter }, keywatch.now()
          assert.same({ 5, "a", 5 }, { queue:retry("a"), queue:get(), keywatch.now() - begun })
          queue:forget("a")
          assert.equal(0, queue:retries("a"))
        end
        assert.is_true(logs.count("the limiter of the work queue 'q' has") >= 2)
      end))
    end

    it("an item even if its task is cancelled while the limiter waits", with_queue(function(queue)
      local task = keywatch.spawn(queue.retry, queue, "a")
      keywatch.sleep(0)
      task:cancel()
      assert.same({ true, 2 }, { task:join() })
      assert.equal(0, logs.count("the limiter of the work queue"))
    end, { limiter = { forget = print, retries = print, when = function()
      keywatch.sleep(1)
      return 2
    end } }))

    it("an item of a queue without a name after 5 seconds, if its limiter returns nothing", with_queue(function(queue)
      assert.equal(5, queue:retry("a"))
      assert.equal(1, logs.count("the limiter of a work queue without a name has returned no number of seconds"))
    end, { limiter = { when = function() end, forget = print, retries = print } }))

    it("at once an item whose limiter answers less than 0", with_queue(function(queue)
      assert.same({ 0, "a" }, { queue:retry("a"), (queue:get(0)) })
    end, { limiter = { when = function() return -1 end, forget = print, retries = print } }))
  end)

  describe("that is closed", function()
    it("accepts no more items, and hands out queued ones", with_queue(function(queue)
      for _, item in ipairs { "a", "b" } do queue:add(item) end
      queue:close()
      assert.same({ false, false, false }, { queue:add("c"), queue:add("c", { after = 1 }), queue:retry("c") })
      assert.same({ "a", "b" }, take_all(queue))
      assert_empty(queue, "closed")
      for _, item in ipairs { "a", "b" } do queue:done(item) end
      queue:close()
      assert.is_true(queue:status().is_closed)
    end))

    it("hands out again items that were added during their work before it was closed", with_work(function(queue)
      queue:add("a")
      queue:close()
      assert_empty(queue, "closed")
      queue:done("a")
      assert.equal("a", queue:get(0))
      queue:done("a")
      assert_empty(queue, "closed")
    end))

    it("drops delayed items", with_queue(function(queue)
      queue:add("a", { after = 5 })
      queue:close()
      assert.equal(0, queue:status().delayed)
      assert_empty(queue, "closed")
      keywatch.sleep(10)
      assert.equal(0, queue:count())
    end))

    it("wakes all callers of get", with_queue(function(queue)
      local tasks = {}
      for i = 1, 3 do tasks[i] = keywatch.spawn(queue.get, queue) end
      keywatch.sleep(1)
      queue:close()
      for i = 1, 3 do assert.equal("closed", answer.code(select(2, tasks[i]:join()))) end
    end))

    it("does not wait for the work", with_work(function(queue)
      queue:close()
      assert.equal(0, keywatch.now())
      queue:done("a")
    end))
  end)

  describe("that is drained", function()
    it("waits until all work has ended", with_queue(function(queue)
      queue:add("a")
      queue:add("b")
      local a, b = queue:get(0), queue:get(0)
      keywatch.spawn(function()
        keywatch.sleep(3)
        queue:done(a)
        keywatch.sleep(3)
        queue:done(b)
      end)
      assert.same({ true, 6, false }, { queue:drain(), keywatch.now(), queue:add("c") })
    end))

    it("waits for queued items, too, and ends at once if it is empty", with_queue(function(queue)
      queue:add("a")
      local worker = keywatch.spawn(function()
        keywatch.sleep(5)
        queue:done((queue:get()))
      end)
      assert.same({ true, 5 }, { queue:drain(), keywatch.now() })
      worker:join()
      assert.same({ true, true }, { queue:drain(), new():drain() })
    end))

    it("hands out again items that were added during their work, and waits for them", with_work(function(queue)
      queue:add("a")
      local drain = keywatch.spawn(function()
        assert.is_true(queue:drain())
        return keywatch.now()
      end)
      keywatch.sleep(1)
      local idle = keywatch.spawn(queue.get, queue) -- waits, since work is under way
      keywatch.sleep(1)
      queue:done("a")
      assert.same({ true, "a" }, { idle:join() })
      keywatch.sleep(1)
      queue:done("a")
      assert.same({ true, 3 }, { drain:join() })
    end))

    it("wakes its workers after the last work", with_work(function(queue)
      local drain, idle = keywatch.spawn(queue.drain, queue), keywatch.spawn(queue.get, queue)
      keywatch.sleep(1)
      queue:done("a")
      assert.same({ nil, true }, { select(2, idle:join()), (select(2, drain:join())) })
    end))

    it("stops waiting if it is closed", with_work(function(queue)
      local drain = keywatch.spawn(queue.drain, queue)
      keywatch.sleep(1)
      queue:close()
      assert.equal("closed", answer.code(select(2, drain:join())))
      queue:done("a")
    end))

    it("waits with a timeout, and can be drained again, by two tasks at once", with_work(function(queue)
      assert.same({ "timeout", 5 }, { answer.code(queue:drain(5)), keywatch.now() })
      assert.equal("timeout", answer.code(queue:drain(0)))
      local one, two = keywatch.spawn(queue.drain, queue), keywatch.spawn(queue.drain, queue)
      keywatch.sleep(1)
      queue:done("a")
      assert.same({ true, true }, { one:join() })
      assert.same({ true, true }, { two:join() })
    end))
  end)

  it("counts items, and measures their waits and work", with_queue(function(queue)
    queue:add("a")
    queue:add("a")
    queue:add("b")
    queue:retry("c")
    keywatch.sleep(2)
    queue:get(0)
    keywatch.sleep(3)
    queue:get(0)
    keywatch.sleep(1)
    local status = queue:status()
    assert.same({ 1, 2, 0 }, { status.depth, status.active, status.delayed })
    assert.same({ 4, 2, 1 }, { status.adds, status.gets, status.retries })
    assert.same({ 7, 5 }, { status.latency_seconds, status.longest_latency_seconds })
    assert.same({ 0, 0 }, { status.work_seconds, status.longest_work_seconds })
    assert.same({ 5, 4 }, { status.unfinished_seconds, status.longest_running_seconds })
    queue:done("a")
    queue:done("b")
    status = queue:status()
    assert.same({ 5, 4 }, { status.work_seconds, status.longest_work_seconds })
    assert.same({ 0, 0 }, { status.unfinished_seconds, status.longest_running_seconds })
    assert.same({ "q", false }, { status.name, status.is_closed })
    assert.equal("keywatch.work_queue<q depth=1 active=0>", tostring(queue))
  end, { name = "q" }))

  it("measures the wait of an item from its first add, also if its priority is raised", with_queue(function(queue)
    queue:add("a", { priority = -1 })
    keywatch.sleep(4)
    queue:add("a")
    queue:get(0)
    assert.equal(4, queue:status().latency_seconds)
  end))

  it("has forgotten items once they are handed out and done", with_queue(function(queue)
    local held = setmetatable({}, { __mode = "k" })
    for i = 1, 200 do
      local item = { i }
      held[item] = true
      queue:add(item, { priority = i % 3 - 1 })
      if i % 2 == 0 then queue:add(item, { priority = 5 }) end
      if i % 5 == 0 then queue:add({ i }, { after = i }) end
    end
    for _ = 1, 200 do queue:done((queue:get(0))) end
    collectgarbage()
    assert.same({ nil, 40 }, { next(held), queue:status().delayed })
    queue:close()
  end))

  it("does not grow by items that move to a higher priority again and again #slow", with_queue(function(queue)
    queue:add("stays", { priority = -100 })
    for i = 1, 10000 do
      local item = i % 10
      queue:add(item, { priority = -100 })
      queue:add(item)
      assert.equal(item, queue:get(0))
      queue:done(item)
    end
    local lane = queue.lanes[-100]
    assert.is_true(lane.last - lane.first < 100)
    assert.same({ "stays" }, take_all(queue))
  end))

  it("raises if done is called for an item that was not handed out", function()
    local queue = new()
    queue:add("a")
    assert.error_matches(function() queue:done("a") end, "done: the item 'a' is not being worked on")
    queue:get(0)
    queue:done("a")
    assert.error_matches(function() queue:done("a") end, "done: the item 'a' is not being worked on")
    assert.error_matches(function() queue:done(nil) end, "done: the item a nil is not being worked on")
  end)

  it("works at top level, in real time", function()
    local queue = new()
    queue:add("a")
    queue:add("b", { after = 0.01 })
    assert.equal("a", queue:get())
    queue:done("a")
    assert.equal("b", queue:get())
    local worker = keywatch.spawn(function()
      keywatch.sleep(0.01)
      queue:done("b")
    end)
    assert.is_true(queue:drain())
    worker:join()
  end)

  it("works in the child after a fork, though tasks of the parent have waited for items", function()
    assert.same({ 0, "added delayed\n" }, { program.run_forking [[
      local queue = require("keywatch.controller").work_queue()
      for _ = 1, 3 do keywatch.spawn(function() queue:get() end) end
      keywatch.sleep(0.001)
      queue:add("delayed", { after = 0.001 })
      child(function()
        local got = {}
        local worker = keywatch.spawn(function()
          for i = 1, 2 do got[i] = queue:get(5) or "none" end
        end)
        keywatch.sleep(0)
        queue:add("added")
        worker:join()
        table.sort(got)
        print(table.concat(got, " "))
      end)
    ]] })
  end)
end)
