--- Cancelling tasks in every state.

local keywatch = require "keywatch"

local driver = require("keywatch.task.driver").get()
local events = require "spec.support.events"
local program = require "spec.support.program"
local within = require "spec.support.within"

local LEFT_BEHIND = "keywatch: a task ignores its cancellation, and each of its waits raises: it was abandoned, "
  .. "and its code no longer runs\n"

after_each(function() pcall(keywatch.run, function() end) end) -- whatever a test has left

--- Returns the output of a program, without the traceback of the abandoned task, which shows where the task waits.
local function plain(printed)
  local before, stack, rest = printed:match("^(.-)stack traceback:(.-)\n([^\t].*)$")
  assert.matches("/lua_%w+:%d+: in function", stack)
  return before .. rest
end

--- Asserts that a task ended by its cancellation.
local function expect_cancelled(task)
  local ok, err = task:join()
  assert.same({ false, "cancelled", 1, "keywatch.task<failed>" }, { ok, err.code, err.grpc_status, tostring(task) })
end

--- Cancels a task that has had its turn, and waits.
local function cancel(task)
  keywatch.sleep(0)
  task:cancel()
  expect_cancelled(task)
end

describe("a task is cancelled", function()
  it("before it has begun, and then never does", function()
    local began = false
    local task = keywatch.spawn(function() began = true end)
    task:cancel()
    expect_cancelled(task)
    keywatch.sleep(0)
    assert.is_false(began)
  end)

  it("while it sleeps", within.task(function()
    cancel(keywatch.spawn(keywatch.sleep, 1000))
  end))

  it("while it waits for an event", function()
    local store = keywatch.open { now = 0 }
    local w = store:watch("a")
    keywatch.run(function()
      for _, timeout in ipairs { false, 1000 } do
        cancel(keywatch.spawn(w.next, w, timeout or nil))
      end
    end)
    store:put("a", "")
    assert.equal("put a 2", events.text(w:next()))
  end)

  it("in the middle of a loop over events, and none is lost", function()
    local store = keywatch.open { now = 0 }
    local w = store:watch("a")
    local seen = {}
    keywatch.run(function()
      for i = 1, 20 do
        local task = keywatch.spawn(function()
          for event in w:events() do table.insert(seen, event.mod_revision) end
        end)
        if i % 2 == 0 then keywatch.sleep(0) end
        store:put("a", tostring(i))
        if i % 3 == 0 then keywatch.sleep(0) end
        task:cancel()
        expect_cancelled(task)
      end
    end)
    for _, event in ipairs((events.read(w))) do table.insert(seen, event.mod_revision) end
    assert.equal(20, #seen)
    for i = 1, 20 do assert.equal(i + 1, seen[i]) end
  end)

  it("while it waits for a task, which continues", within.task(function()
    local may_end = false
    local other = keywatch.spawn(function()
      while not may_end do keywatch.sleep(0.001) end
      return "done"
    end)
    for _, timeout in ipairs { false, 1000 } do
      cancel(keywatch.spawn(other.join, other, timeout or nil))
    end
    may_end = true
    assert.same({ true, "done" }, { other:join() })
  end))

  it("after it was woken and before it runs: the wait after that one raises", function()
    local store = keywatch.open { now = 0 }
    local w = store:watch("a")
    local got
    keywatch.run(function()
      local other = keywatch.spawn(function() keywatch.sleep(0) end)
      local task = keywatch.spawn(function()
        other:join()
        got = "woken"
        w:next()
      end)
      other:join() -- wakes the task, too
      task:cancel()
      expect_cancelled(task)
    end)
    assert.equal("woken", got)
  end)

  it("by itself: its next wait raises", function()
    local reached
    keywatch.run(function()
      local task
      task = keywatch.spawn(function()
        task:cancel()
        reached = "behind cancel"
        keywatch.sleep(0)
        reached = "behind sleep"
      end)
      expect_cancelled(task)
    end)
    assert.equal("behind cancel", reached)
  end)

  it("by itself, and ends well if it no longer waits", function()
    local task
    task = keywatch.spawn(function()
      task:cancel()
      return "done"
    end)
    assert.same({ true, "done" }, { task:join() })
  end)

  it("after its end, which changes nothing", function()
    local task = keywatch.spawn(function() return "done" end)
    task:join()
    task:cancel()
    assert.same({ true, "done" }, { task:join() })
    local failed = keywatch.spawn(error, "on purpose")
    failed:join()
    failed:cancel()
    assert.same({ false, "on purpose" }, { failed:join() })
  end)

  it("permanently: each wait raises, whatever was caught before; calls that need not wait work", within.task(function()
    local codes = {}
    local channel, event, ended = keywatch.channel(1), driver.event(), keywatch.spawn(function() return "ended" end)
    local waits = {
      function() keywatch.sleep(0) end, function() keywatch.sleep(1000) end, function() event:wait() end,
      function() event:wait(1) end, function() channel:receive() end, function() channel:receive(1) end,
      function() keywatch.select { channel } end, function() keywatch.spawn(keywatch.sleep, 1):join() end,
      function() keywatch.join { keywatch.spawn(keywatch.sleep, 1) } end,
    }
    local task = keywatch.spawn(function()
      pcall(keywatch.sleep, 1000)
      for i, wait in ipairs(waits) do codes[i] = select(2, pcall(wait)).code end
      assert.is_true(channel:send("value"))
      assert.same({ "value", "timeout" }, { channel:receive(), select(2, channel:receive(0)).code })
      assert.same({ true, "ended" }, { ended:join() })
      keywatch.sleep(1000)
    end)
    keywatch.sleep(0)
    task:cancel()
    task:cancel() -- twice is once
    expect_cancelled(task)
    assert.equal(#waits, #codes)
    for _, code in ipairs(codes) do assert.equal("cancelled", code) end
  end))

  it("and abandoned if it continues to wait; other tasks run in between", function()
    local status, printed = program.run [[
      io.stdout:setvbuf("no")
      local keywatch = require "keywatch"
      keywatch.run(function()
        local task = keywatch.spawn(function()
          while true do pcall(keywatch.sleep, 1000) end
        end)
        keywatch.sleep(0)
        task:cancel()
        for _ = 1, 3 do keywatch.sleep(0) end
        print(task)
        local ok, err = task:join()
        print(ok, err.code)
      end)
    ]]
    assert.same({ 0, "keywatch.task<ready>\n" .. LEFT_BEHIND .. "false\tcancelled\n" }, { status, plain(printed) })
  end)

  it("and can clean up, as after any error", function()
    local store = keywatch.open { now = 0 }
    keywatch.run(function()
      local task = keywatch.spawn(function()
        store:put("lock", "mine")
        local ok, err = pcall(keywatch.sleep, 1000)
        store:delete("lock")
        if not ok then error(err, 0) end
      end)
      keywatch.sleep(0)
      assert.is_table(store:get("lock"))
      task:cancel()
      expect_cancelled(task)
    end)
    assert.is_nil(store:get("lock"))
  end)

  it("by another task, or at top level, or in a coroutine", function()
    local tasks = {}
    for i = 1, 3 do tasks[i] = keywatch.spawn(keywatch.sleep, 1000) end
    keywatch.sleep(0)
    tasks[1]:cancel()
    coroutine.wrap(function() tasks[2]:cancel() end)()
    keywatch.spawn(function() tasks[3]:cancel() end)
    for i = 1, 3 do expect_cancelled(tasks[i]) end
  end)

  it("and its timer wakes no task later", function()
    local may_end = driver.event()
    keywatch.run(function()
      local task = keywatch.spawn(function()
        pcall(keywatch.sleep, 0.005)
        keywatch.shield(60, may_end.wait, may_end)
      end)
      keywatch.sleep(0)
      task:cancel()
      keywatch.sleep(0.01)
      keywatch.sleep(0)
      assert.equal("keywatch.task<parked>", tostring(task))
      may_end:set()
      assert.is_true(task:join())
    end)
  end)

  it("without a log line", function()
    assert.same({ 0, "end\n" }, { program.run([[
      local keywatch = require "keywatch"
      local w = keywatch.open():watch("a")
      local tasks = { keywatch.spawn(keywatch.sleep, 1000), keywatch.spawn(w.next, w), keywatch.spawn(print) }
      tasks[3]:cancel()
      keywatch.sleep(0)
      tasks[1]:cancel()
      keywatch.sleep(0)
      keywatch.run(function() keywatch.spawn(keywatch.sleep, 1000) keywatch.sleep(0) end)
      print "end"
    ]]) })
  end)
end)

describe("at the end of run", function()
  local function ending(body)
    return program.printed_by(([[
      io.stdout:setvbuf("no")
      local keywatch = require "keywatch"
      local store = keywatch.open()
      local w = store:watch("a")
      print(pcall(keywatch.run, function()
        keywatch.spawn(function() %s end)
        keywatch.sleep(0)
        return "result"
      end))
      store:put("a", "1")
      print(keywatch.run(function() return w:next().value end))
    ]]):format(body), 20)
  end

  for what, body in pairs {
    ["sleeping"] = "while true do pcall(keywatch.sleep, 1000) end",
    ["reading takes nothing from those who come later, and"] = "while true do pcall(w.next, w) end",
    ["yielding"] = "while true do coroutine.yield() end",
  } do
    it("a task that continues " .. what .. " does not hold it up, and is reported", function()
      assert.equal(LEFT_BEHIND .. "true\tresult\n1\n", plain(ending(body)))
    end)
  end

  it("a task that spawns another one at its end does not", function()
    assert.matches("true\tresult\n1\n$", ending [[
      local function again()
        pcall(keywatch.sleep, 1000)
        keywatch.spawn(again)
      end
      again()
    ]])
  end)

  it("a task may take a few waits to end", function()
    assert.equal("ended\ntrue\tresult\n1\n", ending "for _ = 1, 10 do pcall(keywatch.sleep, 1000) end print('ended')")
  end)

  it("a task that fails instead of ending is reported, and run raises", function()
    local printed = ending "pcall(keywatch.sleep, 1000) error('while cleaning up', 0)"
    assert.matches("^keywatch: a task has failed: while cleaning up\nstack traceback:\n", printed)
    assert.matches("\nfalse\twhile cleaning up\n1\n$", printed)
  end)
end)
