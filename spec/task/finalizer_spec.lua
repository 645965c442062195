--- Finalizers run in the middle of any code. They may spawn, cancel and set events; they must not wait, neither in a
-- task nor while the driver turns. This file also has interrupts, which can arrive in the middle of any code, too.

local compat = require "keywatch.support.compat"
local driver = require("keywatch.task.driver").get()
local keywatch = require "keywatch"

local program = require "spec.support.program"
local scheduler = require "spec.support.scheduler"

after_each(function()
  pcall(keywatch.run, function() end) -- whatever a test has left
  assert.is_nil(scheduler.check())
end)

--- Has a function run as a finalizer, now.
local function finalize(fn)
  compat.sentinel(fn)
  collectgarbage()
end

local contexts = {}

--- In the middle of a task.
contexts["in a task"] = function(fn)
  keywatch.run(function()
    finalize(fn)
    assert.is_nil(scheduler.check())
    keywatch.sleep(0)
  end)
end

--- Has a function run as a finalizer when the driver polls during a wait.
local function while_polling(fn, wait, ...)
  local source, has_run = {}, false
  function source.poll()
    if has_run then return end
    has_run = true
    finalize(fn)
    assert.is_nil(scheduler.check())
  end
  driver.attach(source)
  local ok, err = pcall(wait, ...)
  driver.detach(source)
  assert.is_true(has_run)
  if not ok then error(err, 0) end
end

contexts["while the driver turns"] = function(fn) while_polling(fn, keywatch.run, keywatch.sleep, 0.001) end

--- The driver turns for the top level, which is no run.
contexts["while the top level waits"] = function(fn) while_polling(fn, keywatch.sleep, 0.001) end

local REFUSED = { ["in a task"] = "cannot be suspended here" }

for context, within in pairs(contexts) do
  describe(("a finalizer that runs %s"):format(context), function()
    local refused = REFUSED[context] or "a finalizer or a callback of the program makes"
    local calls = {
      sleep = function() keywatch.sleep(0.01) end,
      event = function() driver.event():wait() end,
      ["event for a time"] = function() driver.event():wait(0.01) end,
      join = function() keywatch.spawn(keywatch.sleep, 0):join() end,
      ["join for a time"] = function() keywatch.spawn(keywatch.sleep, 0):join(0.01) end,
      next = function() keywatch.open():watch("a"):next(0.01) end,
      request = function() keywatch.connect("http://127.0.0.1:1"):put("a", "b") end,
    }
    for name, call in pairs(calls) do
      it("must not wait: " .. name, function()
        local ok, err
        within(function() ok, err = pcall(call) end)
        assert.is_false(ok)
        assert.matches(refused, err)
        assert.matches("keywatch%.spawn", err)
      end)
    end

    it("must not run", function()
      local ok, err
      within(function() ok, err = pcall(keywatch.run, print) end)
      assert.is_false(ok)
      assert.matches("run works only at top level", err:gsub("a finalizer or a callback of the program makes",
        "run works only at top level"))
    end)

    it("may spawn a task, which runs afterwards", function()
      local task
      within(function() task = keywatch.spawn(function() return coroutine.running() end) end)
      local ok, co = task:join()
      assert.same({ true, "thread" }, { ok, type(co) })
    end)

    it("may cancel any task", function()
      local sleeper, new = keywatch.spawn(keywatch.sleep, 1000), nil
      keywatch.sleep(0)
      within(function()
        new = keywatch.spawn(error, "it has begun")
        sleeper:cancel()
        new:cancel()
      end)
      for _, task in ipairs { sleeper, new } do
        local ok, err = task:join()
        assert.same({ false, "cancelled" }, { ok, err.code })
      end
    end)

    it("may set an event", function()
      local event = driver.event()
      local task = keywatch.spawn(function() return event:wait(1000) end)
      keywatch.sleep(0)
      local was_heard
      within(function() was_heard = event:set() end)
      assert.is_true(was_heard)
      assert.same({ true, true }, { task:join() })
    end)

    it("may query whether and how a task has ended", function()
      local done, sleeper = keywatch.spawn(function() return "result" end), keywatch.spawn(keywatch.sleep, 1000)
      done:join()
      local got, err
      within(function()
        got = { done:join() }
        err = select(2, sleeper:join(0))
      end)
      assert.same({ true, "result" }, got)
      assert.equal("timeout", err.code)
      sleeper:cancel()
    end)
  end)
end

describe("a finalizer", function()
  it("that cancels the task which it interrupts ends the task's next wait", function()
    keywatch.run(function()
      local task
      task = keywatch.spawn(function()
        finalize(function() task:cancel() end)
        keywatch.sleep(1000)
      end)
      local ok, err = task:join()
      assert.same({ false, "cancelled" }, { ok, err.code })
    end)
  end)

  it("may wait at top level, where the driver does not turn", function()
    local order = {}
    local task = keywatch.spawn(function()
      keywatch.sleep(0.001)
      table.insert(order, "task")
    end)
    finalize(function()
      keywatch.sleep(0.002)
      task:join()
      table.insert(order, "finalizer")
    end)
    table.insert(order, "main")
    assert.same({ "task", "finalizer", "main" }, order)
  end)

  it("that raises affects only the run that it interrupts", function()
    local raised
    local ok = pcall(contexts["while the driver turns"], function()
      raised = true
      error("on purpose", 0)
    end)
    assert.is_true(raised)
    assert.equal(not jit, ok) -- one VM raises it where it comes from, the other nowhere
    assert.is_nil(scheduler.check())
    assert.equal(1, keywatch.run(function()
      keywatch.sleep(0)
      return 1
    end))
  end)
end)

if not jit then -- the other VM collects nothing when it calls a function
  describe("a task that is cancelled between its turn and its first line", function()
    it("never begins", function()
      local main, has_begun, has_hooked = coroutine.running(), false, false
      local task = keywatch.spawn(function() has_begun = true end)
      debug.sethook(main, function() -- where the stack grows, and finalizers may run
        if debug.getinfo(2, "n").name ~= "resume" or has_hooked then return end
        has_hooked = true
        task:cancel()
      end, "c")
      local ok, err = pcall(keywatch.sleep, 0)
      debug.sethook(main)
      assert.is_true(ok, err)
      assert.same({ true, false, "cancelled" }, { has_hooked, has_begun, select(2, task:join()).code })
      assert.is_nil(scheduler.check())
    end)
  end)
end

describe("an object that waits when it is printed", function()
  it("is refused, as the driver prints it", function()
    local printed = program.printed_by [[
      local keywatch = require "keywatch"
      local object = setmetatable({}, { __tostring = function()
        local ok, err = pcall(keywatch.sleep, 0)
        print(ok, (err:match("the loop turns already")))
        return "object"
      end })
      keywatch.spawn(error, object)
      keywatch.sleep(0)
      print(require("spec.support.scheduler").check())
    ]]
    assert.matches("false\tthe loop turns already\n", printed)
    assert.matches("\nnil\n$", printed)
  end)
end)

if not jit then -- the other VM has hooks for all coroutines at once
  describe("an interrupt that comes while a task runs", function()
    --- Has the top level interrupted as soon as it continues.
    local function interrupt(main)
      debug.sethook(main, function()
        debug.sethook(main)
        error("interrupted!", 0)
      end, "", 1)
    end

    it("ends the wait of the top level, and loses no task", function()
      local main = coroutine.running()
      local event, came = driver.event(), {}
      local function wait(fn, ...)
        local n, arguments = select("#", ...), { ... }
        return keywatch.spawn(function()
          interrupt(main)
          fn(compat.unpack(arguments, 1, n))
          table.insert(came, true)
        end)
      end
      local tasks = { wait(keywatch.sleep, 0), wait(event.wait, event), wait(event.wait, event, 1000) }
      tasks[4] = wait(coroutine.yield)
      for _ = 1, #tasks do
        local ok, err = pcall(keywatch.sleep, 0)
        assert.same({ false, "interrupted!", nil }, { ok, err, (scheduler.check()) })
      end
      keywatch.sleep(0)
      event:set()
      for _, task in ipairs(tasks) do assert.is_true(task:join()) end
      assert.equal(#tasks, #came)
    end)

    it("ends a task that ends during it", function()
      local main = coroutine.running()
      local task = keywatch.spawn(interrupt, main)
      assert.same({ false, "interrupted!" }, { pcall(task.join, task) })
      assert.same({ false, "interrupted!" }, { task:join() })
      assert.is_nil(scheduler.check())
    end)
  end)
end
