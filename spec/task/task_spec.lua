--- Tasks: they are spawned, switch when they wait, and can be joined.

local keywatch = require "keywatch"

local answer = require "spec.support.answer"
local logs = require "spec.support.logs"
local dose = require "spec.support.dose"
local misuse = require "spec.support.misuse"
local within = require "spec.support.within"

local MANY = dose.is_small and 500 or 10000

after_each(function() pcall(keywatch.run, function() end) end) -- whatever a test has left

local function pack(...) return { n = select("#", ...), ... } end

describe("run", function()
  it("calls a function as a task, and returns what it returns", function()
    assert.same({ n = 0 }, pack(keywatch.run(function() end)))
    assert.same({ n = 1, "done" }, pack(keywatch.run(function() return "done" end)))
    assert.same({ n = 4, nil, 1, nil, nil }, pack(keywatch.run(function() return nil, 1, nil, nil end)))
  end)

  it("passes its arguments, with nils between and behind, also after the function has waited", function()
    local function wait(...)
      for _, seconds in ipairs { 0, 0.001 } do keywatch.sleep(seconds) end
      return ...
    end
    assert.same({ n = 4, nil, "a", nil, nil }, pack(keywatch.run(wait, nil, "a", nil, nil)))
    assert.same({ n = 0 }, pack(keywatch.run(wait)))
  end)

  it("calls the functions of on_exit once, at its end, while other tasks run", function()
    logs.begin()
    local seen = {}
    local function note(what) seen[#seen + 1] = what end
    local function work()
      local channel = keywatch.channel(1)
      keywatch.spawn(function()
        local ok, err = pcall(function()
          for value in channel:values() do note(value) end
        end)
        note(not ok and err.code)
      end)
      keywatch.on_exit(function() error("on purpose", 0) end)
      keywatch.on_exit(function()
        channel:send("still at work")
        keywatch.sleep(0.001)
        note("exit")
        keywatch.on_exit(note)
      end)
      note("end")
      error("failed", 0)
    end
    assert.same({ n = 2, false, "failed" }, pack(pcall(keywatch.run, work)))
    keywatch.run(function() keywatch.on_exit(function() note("next") end) end)
    assert.same({ "end", "still at work", "exit", "cancelled", "next" }, seen)
    assert.equal("error a function called at the exit has failed: on purpose", logs.lines[1])
    assert.matches("has failed: spec/task/task_spec%.lua:%d+: on_exit: the program is at its end", logs.lines[2])
    assert.equal(2, #logs.lines)
    logs.finish()
  end)

  it("raises what the function raises, as it is", function()
    local object = setmetatable({}, { __tostring = function() return "an object" end })
    for _, what in ipairs { "a text", object, 42, false } do
      for _, waits in ipairs { true, false } do
        local results = pack(pcall(keywatch.run, function()
          if waits then keywatch.sleep(0) end
          error(what, 0)
        end))
        assert.same({ n = 2, false, what }, results)
        assert.is_true(rawequal(what, results[2]))
      end
    end
    assert.same({ n = 2, false }, pack(pcall(keywatch.run, function() error(nil) end)))
  end)

  it("raises a text with its position", function()
    local _, err = pcall(keywatch.run, function() error("on purpose") end)
    assert.matches("task_spec%.lua:%d+: on purpose$", err)
  end)

  it("can be called again, after any outcome", function()
    for _ = 1, 3 do
      assert.equal(1, keywatch.run(function() return 1 end))
      pcall(keywatch.run, function() error("on purpose") end)
      pcall(keywatch.run, function() keywatch.spawn(function() coroutine.yield() end):cancel() end)
      assert.is_false((pcall(keywatch.run, function() keywatch.open({ now = 0 }):watch("a"):next() end)))
    end
  end)

  it("does not wait for other tasks than its own, and ends them", function()
    local reached, why
    keywatch.run(function()
      keywatch.spawn(function()
        local _, err = pcall(keywatch.sleep, 1000)
        why = err.code
        keywatch.sleep(1000)
        reached = true
      end)
      keywatch.sleep(0)
    end)
    assert.same({ "cancelled", nil }, { why, reached })
  end)

  it("does not begin tasks that were spawned and have not begun when it ends", function()
    local began = false
    keywatch.run(function() keywatch.spawn(function() began = true end) end)
    assert.is_false(began)
  end)

  it("runs tasks that were spawned before it", function()
    local seen = {}
    local task = keywatch.spawn(function() table.insert(seen, "first") end)
    keywatch.run(function() table.insert(seen, "second") end)
    assert.same({ { "first", "second" }, "keywatch.task<done>" }, { seen, tostring(task) })
  end)

  it("ends tasks that were spawned before it", function()
    local task = keywatch.spawn(keywatch.sleep, 1000)
    keywatch.run(keywatch.sleep, 0)
    local ok, err = task:join()
    assert.same({ false, "cancelled" }, { ok, err.code })
  end)

  it("is refused in a task, and in a coroutine, with a text that names the alternative", function()
    local function try() assert.matches("keywatch%.spawn", misuse.raises(keywatch.run, print)) end
    coroutine.wrap(try)()
    keywatch.run(try)
    keywatch.run(function() coroutine.wrap(try)() end)
  end)
end)

describe("spawn", function()
  it("makes a task that begins when the loop turns", function()
    local began = false
    local task = keywatch.spawn(function() began = true end)
    assert.same({ "keywatch.task<new>", false, true }, { tostring(task), began, (task:join()) })
    assert.same({ "keywatch.task<done>", true }, { tostring(task), began })
  end)

  it("passes arguments, with nils between and behind", function()
    local task = keywatch.spawn(pack, nil, "a", nil)
    local _, given = task:join()
    assert.same({ n = 3, nil, "a", nil }, given)
  end)

  it("takes any function, also one in C", function()
    assert.same({ true, "b" }, { keywatch.spawn(string.lower, "B"):join() })
  end)

  it("lets tasks begin in the order in which they were made", function()
    local order = {}
    keywatch.run(function()
      for i = 1, 5 do
        keywatch.spawn(function()
          table.insert(order, i)
          if i == 2 then keywatch.spawn(function() table.insert(order, "of 2") end) end
        end)
      end
      keywatch.sleep(0)
      keywatch.sleep(0) -- again, for tasks that the others have spawned
    end)
    assert.same({ 1, 2, 3, 4, 5, "of 2" }, order)
  end)

  it("may be called anywhere: at top level, in a task, in a coroutine", function()
    local tasks = { keywatch.spawn(function() return 1 end) }
    coroutine.wrap(function() tasks[2] = keywatch.spawn(function() return 2 end) end)()
    keywatch.run(function()
      tasks[3] = keywatch.spawn(function() return 3 end)
      coroutine.wrap(function() tasks[4] = keywatch.spawn(function() return 4 end) end)()
      for i = 1, 4 do assert.same({ true, i }, { tasks[i]:join() }) end
    end)
  end)
end)

describe("join", function()
  it("returns true, and what the task returned, with its nils", function()
    local task = keywatch.spawn(function() return nil, 1, nil end)
    assert.same({ n = 4, true, nil, 1, nil }, pack(task:join()))
    assert.same({ n = 1, true }, pack(keywatch.spawn(function() end):join()))
  end)

  it("returns false, and what the task failed with", function()
    local object = {}
    keywatch.run(function()
      assert.same({ n = 2, false, "a text" }, pack(keywatch.spawn(error, "a text", 0):join()))
      assert.is_true(rawequal(object, (select(2, keywatch.spawn(error, object):join()))))
      assert.same({ n = 2, false }, pack(keywatch.spawn(error):join()))
      local _, err = keywatch.spawn(function() error("on purpose") end):join()
      assert.matches("task_spec%.lua:%d+: on purpose$", err)
    end)
  end)

  it("can be called again, and long after the end", within.task(function()
    local task = keywatch.spawn(function() return "done" end)
    keywatch.sleep(0)
    for _, timeout in ipairs { 1000, 0, -1, false } do
      assert.same({ true, "done" }, { task:join(timeout or nil) })
    end
  end))

  it("may be called by several tasks, which continue in the order in which they came", function()
    local order = {}
    keywatch.run(function()
      local task = keywatch.spawn(function()
        keywatch.sleep(0)
        return "done"
      end)
      local joiners = {}
      for i = 1, 5 do
        joiners[i] = keywatch.spawn(function()
          assert.same({ true, "done" }, { task:join() })
          table.insert(order, i)
        end)
      end
      for i = 1, 5 do assert.same({ true }, { joiners[i]:join() }) end
    end)
    assert.same({ 1, 2, 3, 4, 5 }, order)
  end)

  it("returns at its timeout, and may be tried again", within.task(function()
    local task = keywatch.spawn(function()
      keywatch.sleep(0.01)
      return "done"
    end)
    for _, timeout in ipairs { 0, -1, 0.001 } do assert.equal("timeout", answer.code(task:join(timeout))) end
    assert.same({ true, "done" }, { task:join(1000) })
  end))

  it("at top level turns the loop", function()
    local task = keywatch.spawn(function()
      keywatch.sleep(0.001)
      return "done"
    end)
    assert.equal("timeout", answer.code(task:join(0)))
    assert.same({ true, "done" }, { task:join() })
  end)

  it("of a task by itself is refused", function()
    local task
    task = keywatch.spawn(function() return misuse.raises(task.join, task) end)
    assert.is_true((task:join()))
  end)

  it("in a coroutine that is no task is refused, if it would wait", function()
    local task = keywatch.spawn(function() return "done" end)
    coroutine.wrap(function()
      assert.matches("keywatch%.spawn", misuse.raises(task.join, task))
    end)()
    task:join()
    coroutine.wrap(function() assert.same({ true, "done" }, { task:join() }) end)()
  end)
end)

describe("sleep", function()
  it("lasts no less than its time", function()
    local function sleep()
      local before = keywatch.now()
      keywatch.sleep(0.01)
      assert.is_true(keywatch.now() - before >= 0.01)
    end
    sleep()
    keywatch.run(sleep)
  end)

  it("wakes those first whose deadlines pass first", function()
    local order, is_undisturbed
    repeat -- until all of them sleep before the first could have woken
      order = {}
      keywatch.run(function()
        local tasks, begin = {}, keywatch.now()
        for i, seconds in ipairs { 0.06, 0.02, 0.04, 0, -1 } do
          tasks[i] = keywatch.spawn(function()
            if i == 5 then is_undisturbed = keywatch.now() - begin < 0.02 end
            keywatch.sleep(seconds)
            table.insert(order, seconds)
          end)
        end
        for i = 1, 5 do tasks[i]:join() end
      end)
    until is_undisturbed
    assert.same({ -1, 0, 0.02, 0.04, 0.06 }, order)
  end)

  it("for 0 seconds lets other tasks run", function()
    local order = {}
    keywatch.run(function()
      local one = keywatch.spawn(function()
        for _ = 1, 3 do
          table.insert(order, "a")
          keywatch.sleep(0)
        end
      end)
      for _ = 1, 3 do
        keywatch.sleep(0)
        table.insert(order, "b")
      end
      one:join()
    end)
    assert.equal("ababab", table.concat(order))
  end)

  it("wakes each of many tasks, and none before its time", function()
    local woken = 0
    keywatch.run(function()
      local tasks, begin = {}, keywatch.now()
      for i = 1, 500 do
        tasks[i] = keywatch.spawn(function()
          local due = begin + (i * 7919 % 500) / 20000
          keywatch.sleep(due - keywatch.now())
          assert.is_true(keywatch.now() >= due)
          woken = woken + 1
        end)
      end
      for i = 1, 500 do assert.same({ true }, { tasks[i]:join() }) end
    end)
    assert.equal(500, woken)
  end)

  it("without an end can be ended", within.task(function()
    local task = keywatch.spawn(function() keywatch.sleep(math.huge) end)
    keywatch.sleep(0.001)
    task:cancel()
    assert.is_false((task:join()))
  end))

  it("that is cancelled again and again takes no memory", function()
    local store = keywatch.open { now = 0 }
    local w = store:watch("a")
    keywatch.run(function()
      keywatch.spawn(function() keywatch.sleep(1000) end)
      keywatch.spawn(function()
        while true do w:next(3600) end
      end)
      local function round()
        for _ = 1, 5000 do
          store:put("a", "")
          keywatch.sleep(0)
        end
        store:compact(store:status().revision, { physical = true })
        collectgarbage()
        return collectgarbage("count")
      end
      local before = round()
      assert.is_true(round() - before < 200) -- KiB
    end)
  end)
end)

describe("now", function()
  it("is a number of seconds that never decreases", function()
    local last = keywatch.now()
    assert.equal("number", type(last))
    for _ = 1, 1000 do
      local now = keywatch.now()
      assert.is_true(now >= last)
      last = now
    end
  end)

  it("needs no task", function() assert.equal("number", type(coroutine.wrap(keywatch.now)())) end)
end)

describe("a task", function()
  it("reports its state", within.task(function()
    local task
    task = keywatch.spawn(function()
      assert.equal("keywatch.task<running>", tostring(task))
      keywatch.sleep(0)
    end)
    assert.equal("keywatch.task<new>", tostring(task))
    local sleeper = keywatch.spawn(keywatch.sleep, 1000)
    keywatch.sleep(0)
    assert.equal("keywatch.task<parked>", tostring(sleeper))
    task:join()
    assert.equal("keywatch.task<done>", tostring(task))
    local failed = keywatch.spawn(error, "on purpose")
    failed:join()
    assert.equal("keywatch.task<failed>", tostring(failed))
  end))

  it("may have coroutines, and yields in them", function()
    local seen = {}
    keywatch.run(function()
      local function count()
        return coroutine.wrap(function()
          for i = 1, 3 do coroutine.yield(i) end
        end)
      end
      for i in count() do
        table.insert(seen, i)
        keywatch.sleep(0)
      end
    end)
    assert.same({ 1, 2, 3 }, seen)
  end)

  it("that yields by itself continues in its turn, without results", function()
    local order = {}
    keywatch.run(function()
      local one = keywatch.spawn(function()
        for i = 1, 3 do
          table.insert(order, "a" .. i)
          table.insert(order, select("#", coroutine.yield("unheard", i)))
        end
        return "done"
      end)
      local two = keywatch.spawn(function()
        for i = 1, 3 do
          table.insert(order, "b" .. i)
          keywatch.sleep(0)
        end
      end)
      assert.same({ true, "done" }, { one:join() })
      two:join()
    end)
    assert.same({ "a1", "b1", 0, "a2", "b2", 0, "a3", "b3", 0 }, order)
  end)

  it("may wait inside of pcall, and inside of an iterator", within.task(function()
    assert.same({ true, "waited" }, { pcall(function()
      keywatch.sleep(0)
      return "waited"
    end) })
    local function slowly()
      keywatch.sleep(0)
      return nil
    end
    for _ in slowly do error("there is nothing") end
  end))

  it("may be one of many that one put wakes", function()
    local store = keywatch.open { now = 0 }
    local woken = 0
    keywatch.run(function()
      local tasks = {}
      for i = 1, MANY do
        local w = store:watch("a")
        tasks[i] = keywatch.spawn(function()
          assert(w:next().value == "go")
          woken = woken + 1
        end)
      end
      keywatch.sleep(0)
      assert.equal(0, woken)
      store:put("a", "go")
      for i = 1, MANY do tasks[i]:join() end
    end)
    assert.equal(MANY, woken)
  end)

  it("does not keep its arguments longer than its function does", function()
    local seen = setmetatable({}, { __mode = "k" })
    keywatch.run(function()
      local function begin()
        local object = {}
        seen[object] = true
        keywatch.spawn(function(given)
          assert.is_table(given)
          given = nil -- luacheck: ignore 311
          keywatch.sleep(1000)
        end, object)
      end
      begin()
      keywatch.sleep(0)
      keywatch.sleep(0)
      collectgarbage()
      assert.is_nil(next(seen))
    end)
  end)

  it("is forgotten when it has ended", function()
    local seen = setmetatable({}, { __mode = "k" })
    keywatch.run(function()
      for i = 1, 10 do
        local task = keywatch.spawn(function() keywatch.sleep(i % 2 * 0.001) end)
        seen[task] = true
        task:join()
      end
    end)
    collectgarbage()
    assert.is_nil(next(seen))
  end)
end)

describe("a wait at top level", function()
  it("lets tasks run, which continue during the next wait", function()
    local order = {}
    local task = keywatch.spawn(function()
      for i = 1, 3 do
        table.insert(order, "task " .. i)
        keywatch.sleep(0.002)
      end
      return "done"
    end)
    keywatch.sleep(0)
    table.insert(order, "top level")
    task:join()
    assert.same({ "task 1", "top level", "task 2", "task 3" }, { order[1], order[2], order[3], order[4] })
  end)

  it("does not end tasks", function()
    local task = keywatch.spawn(keywatch.sleep, 0.002)
    keywatch.sleep(0)
    assert.same({ true }, { task:join() })
  end)

  it("may be one in a task and one at top level for the same watch", function()
    local store = keywatch.open { now = 0 }
    local w = store:watch("", { prefix = true })
    local got = {}
    local task = keywatch.spawn(function() table.insert(got, w:next().key) end)
    keywatch.spawn(function()
      keywatch.sleep(0)
      store:put("a", "")
      store:put("b", "")
    end)
    table.insert(got, w:next().key)
    task:join()
    table.sort(got)
    assert.same({ "a", "b" }, got)
  end)
end)

describe("at a deadlock", function()
  local words = "keywatch: deadlock: every task is waiting, and no timer, lease, socket or server is left that could "
    .. "wake one"

  it("run raises", function()
    local w = keywatch.open({ now = 0 }):watch("a")
    assert.error_matches(function() keywatch.run(function() w:next() end) end, words)
  end)

  it("the tasks are ended", function()
    local w = keywatch.open({ now = 0 }):watch("a")
    local why
    pcall(keywatch.run, function()
      local _, err = pcall(w.next, w)
      why = err.code
    end)
    assert.equal("cancelled", why)
  end)

  it("a wait at top level raises, and others may follow", function()
    local store = keywatch.open { now = 0 }
    local w = store:watch("a")
    local task = keywatch.spawn(function() return w:next().key end)
    assert.error_matches(function() task:join() end, words)
    store:put("a", "")
    assert.same({ true, "a" }, { task:join() })
  end)

  it("the error names the line that called run, or that waits at top level", function()
    local load_text = rawget(_G, "loadstring") or load
    local w = keywatch.open({ now = 0 }):watch("a")
    for _, text in ipairs {
      "local keywatch, w = ...\nkeywatch.run(function() w:next() end)\nreturn",
      "local keywatch, w = ...\nw:next()\nreturn",
      "local keywatch, w = ...\nlocal event = w:events()()\nreturn event",
      "local keywatch, w = ...\nkeywatch.spawn(function() w:next() end):join()\nreturn",
    } do
      local ok, err = pcall(assert(load_text(text, "=deadlocked")), keywatch, w)
      assert.same({ false, "deadlocked:2: " .. words }, { ok, err })
    end
    w:close()
  end)

  it("the tasks may wait for each other", function()
    assert.error_matches(function()
      keywatch.run(function()
        local one, two
        one = keywatch.spawn(function() two:join() end)
        two = keywatch.spawn(function() one:join() end)
        two:join()
      end)
    end, words)
  end)

  it("nothing is raised while a timer or a lease may still end a wait", function()
    local store = keywatch.open { min_lease_ttl = 1 }
    local w = store:watch("a")
    assert.equal("timeout", answer.code(w:next(0.01)))
    store:put("a", "", { lease = store:lease(1) })
    assert.same({ "put", "delete" }, { w:next().type, w:next().type })
  end)
end)

describe("an event", function()
  it("holds few entries of former waiters, however many come and go", function()
    local event = require("keywatch.task.driver").get().event()
    keywatch.run(function()
      local before
      for _ = 1, 200 do
        local task = keywatch.spawn(event.wait, event)
        keywatch.sleep(0)
        if before then before:cancel() end
        before = task
      end
      assert.is_true(#event <= 4)
      assert.is_true(event:set())
      assert.same({ true, true }, { before:join() })
    end)
  end)
end)
