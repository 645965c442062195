--- Shields: clean-up that waits in a task that is cancelled. Limits: parts of a task that are cancelled alone.

local program = require "spec.support.program"

local driver, in_task = require("spec.task.virtual_time").declare()

--- Runs a function as a task, and cancels it after `seconds`. Returns the results of join, and how long it went on.
local function cancel_after(seconds, fn)
  local task = driver.spawn(fn)
  driver.sleep(seconds)
  task:cancel()
  local before = driver.now()
  local ok, err = task:join()
  return ok, type(err) == "table" and err.code or err, driver.now() - before
end

--- Returns "cancelled" if fn(...) raises that, or what it returns.
local function code_of(fn, ...)
  local ok, found = pcall(fn, ...)
  if ok then return found end
  return type(found) == "table" and found.code or found
end

describe("a shield", function()
  it("returns the results of its function, or raises its error, also outside of tasks", function()
    local function check()
      assert.same({ 1, nil, 3 }, { driver.shield(1, function(...) return ... end, 1, nil, 3) })
      local err = {}
      local ok, raised = pcall(driver.shield, 1, error, err)
      assert.is_false(ok)
      assert.equal(err, raised)
    end
    driver.run(check)
    check()
    coroutine.wrap(check)()
    driver.run(function() coroutine.wrap(check)() end)
    driver.shield(1, driver.sleep, 5)
    assert.equal(5, driver.now())
  end)

  it("lets a cancelled task wait, and has no effect after its end", in_task(function()
    local codes = {}
    assert.same({ false, "cancelled", 3 }, { cancel_after(1, function()
      codes[1] = code_of(driver.sleep, 1000)
      codes[2] = driver.shield(10, function()
        driver.sleep(1)
        driver.sleep(2)
        return "clean"
      end)
      codes[3] = code_of(driver.sleep, 0)
      driver.sleep(0)
    end) })
    assert.same({ "cancelled", "clean", "cancelled" }, codes)
  end))

  it("delays a cancellation that comes while it waits, by its time from then on", in_task(function()
    local log = {}
    assert.same({ false, "cancelled", 10 }, { cancel_after(5, function()
      driver.shield(10, function()
        for _, seconds in ipairs { 8, 3, 1000, 0 } do
          local code = code_of(driver.sleep, seconds)
          log[#log + 1] = ("%s at %g"):format(code, driver.now())
        end
      end)
      log[#log + 1] = "behind"
      driver.sleep(0)
    end) })
    assert.same({ "nil at 8", "nil at 11", "cancelled at 15", "cancelled at 15", "behind" }, log)
  end))

  it("bounds a wait without a timeout, and one for a value", in_task(function()
    local event, channel = driver.event(), driver.channel()
    for i, wait in ipairs {
      function() event:wait() end, function() event:wait(1000) end, function() channel:receive() end,
      function() channel:send(1) end, function() driver.select { channel } end,
    } do
      assert.same({ false, "cancelled", 2 }, { cancel_after(i % 2, function() driver.shield(2, wait) end) })
    end
    assert.equal(nil, channel[1])
  end))

  it("does not limit a task that is not cancelled", function()
    driver.run(function() assert.same({ "later", 100 }, { driver.shield(1, function()
      driver.sleep(100)
      return "later", driver.now()
    end) }) end)
  end)

  it("inside of another one ends with the outer one at the latest", in_task(function()
    assert.same({ false, "cancelled", 2 }, { cancel_after(1, function()
      driver.shield(2, function() driver.shield(10, driver.sleep, 1000) end)
    end) })
    assert.same({ false, "cancelled", 2 }, { cancel_after(1, function()
      driver.shield(10, function() driver.shield(2, driver.sleep, 1000) end)
    end) })
    assert.same({ false, "after", 6 }, { cancel_after(1, function()
      driver.shield(10, function()
        pcall(driver.shield, 2, driver.sleep, 1000)
        driver.sleep(4)
        error("after", 0)
      end)
    end) })
  end))

  it("ends with an error of its function, and the cancellation is effective again", in_task(function()
    local codes = {}
    cancel_after(1, function()
      codes[1] = select(2, pcall(driver.shield, 10, function()
        pcall(driver.sleep, 1000)
        error("broken", 0)
      end))
      codes[2] = code_of(driver.sleep, 1)
    end)
    assert.same({ "broken", "cancelled" }, codes)
  end))

  it("also covers the tasks that are spawned in it, and its scopes", in_task(function()
    local ended = {}
    assert.same({ false, "cancelled", 3 }, { cancel_after(1, function()
      driver.shield(10, function()
        driver.scope(function(scope)
          scope:spawn(function()
            driver.sleep(4)
            ended[#ended + 1] = driver.now()
          end)
        end)
      end)
      driver.sleep(0)
    end) })
    assert.same({ 4 }, ended)
    assert.same({ false, "cancelled", 2 }, { cancel_after(1, function()
      driver.shield(2, driver.scope, function() driver.sleep(1000) end)
    end) })
    assert.same({ false, "cancelled", 2 }, { cancel_after(1, function()
      driver.shield(2, driver.shield, 10, driver.scope, function() driver.sleep(1000) end)
    end) })
    local child
    driver.shield(3, function() child = driver.spawn(driver.sleep, 1000) end)
    driver.sleep(1)
    child:cancel()
    assert.same({ "timeout", "cancelled" }, { select(2, child:join(2.5)).code, select(2, child:join(1)).code })
  end))

  it("does not delay a cancellation from inside of it", in_task(function()
    local function fail_in_a_scope()
      driver.scope(function(scope)
        scope:spawn(driver.sleep, 1000)
        scope:spawn(function()
          driver.scope(function(inner)
            inner:spawn(driver.sleep, 1000)
            driver.sleep(1000)
          end)
        end)
        driver.sleep(1)
        error("on purpose", 0)
      end)
    end
    assert.same({ "on purpose", 1 }, { code_of(driver.shield, 10, fail_in_a_scope), driver.now() })
    assert.same({ false, "on purpose", 0.5 }, { cancel_after(0.5, function() -- the caller is cancelled, too
      driver.shield(10, fail_in_a_scope)
    end) })
    driver.shield(10, driver.scope, function(scope)
      scope:spawn(driver.sleep, 1000)
      driver.sleep(0)
      scope:cancel()
    end)
    driver.shield(10, function()
      local child = driver.spawn(function()
        driver.shield(10, driver.spawn, driver.sleep, 0)
        pcall(driver.sleep, 1000)
        driver.shield(2, driver.sleep, 1000)
      end)
      driver.sleep(0)
      child:cancel()
      assert.equal("cancelled", select(2, child:join()).code)
    end)
    assert.equal(4, driver.now())
  end))

  it("delays a cancellation from outside of it, also for the tasks of a scope around it", in_task(function()
    local late
    assert.equal("on purpose", code_of(driver.scope, function(scope)
      scope:spawn(function()
        driver.sleep(1)
        error("on purpose", 0)
      end)
      driver.shield(10, function()
        local before = scope:spawn(driver.sleep, 3)
        driver.sleep(2)
        late = scope:spawn(driver.sleep, 4)
        assert.same({ true, true }, { before:join(), (late:join()) })
      end)
    end))
    assert.equal(6, driver.now())
    assert.same({ false, "cancelled", 2 }, { cancel_after(1, function()
      driver.shield(2, driver.scope, function()
        pcall(driver.sleep, 1000)
        driver.shield(10, driver.sleep, 1000)
      end)
    end) })
  end))

  it("in a limit that ends does not last longer in its scopes", in_task(function()
    local limit = { ends_at = 1 }
    assert.equal("cancelled", code_of(driver.limit, limit, driver.shield, 2, driver.scope, function(scope)
      scope:spawn(driver.sleep, 1000)
      driver.sleep(1000)
    end))
    assert.equal(3, driver.now())
  end))

  it("does not cover its task that is restarted, as when nginx begins to serve", function()
    local _, inside = driver.inside()
    driver.run(function()
      local channel = driver.channel()
      local task = driver.spawn(driver.shield, 5, channel.send, channel, "of the first time")
      driver.sleep(0)
      inside:reset(task)
      local given
      inside.driver.start(task, function()
        given = channel:receive()
        driver.sleep(1000)
      end)
      driver.sleep(0)
      channel:send("new")
      driver.sleep(0)
      task:cancel()
      assert.same({ "timeout", "done", "new" }, { select(2, driver.channel():receive(1)).code, task.state, given })
    end)
  end)

  it("delays the end of a run, and the tasks that it waits for continue", function()
    local events, did = {}, nil
    driver.run(function()
      local requests, answers = driver.channel(), driver.channel()
      driver.spawn_own(function()
        while true do answers:send(requests:receive() + 1) end
      end)
      driver.spawn(function()
        local ok, err = pcall(driver.sleep, 1000)
        events[#events + 1] = ok or err.code
        events[#events + 1] = driver.shield(5, function()
          driver.sleep(1)
          requests:send(1)
          local spawned = driver.spawn(function()
            driver.sleep(1)
            did = true
          end)
          spawned:join()
          return answers:receive()
        end)
        driver.spawn(function() events[#events + 1] = "never" end)
        driver.sleep(0)
      end)
      driver.sleep(1)
    end)
    assert.same({ "cancelled", 2 }, events)
    assert.same({ true, 3 }, { did, driver.now() })
  end)

  it("ends with the run: a hanging clean-up is ended", function()
    driver.run(function()
      driver.spawn(driver.shield, 5, driver.sleep, 1000)
      driver.spawn_own(driver.shield, 7, driver.sleep, 1000)
      driver.sleep(1)
    end)
    assert.equal(13, driver.now())
  end)

  it("ends a scope only when its tasks have cleaned up", in_task(function()
    local cleaned
    assert.same({ false, "cancelled", 2 }, { cancel_after(1, function()
      local ok, err = pcall(driver.scope, function(scope)
        scope:spawn(function()
          pcall(driver.sleep, 1000)
          driver.shield(5, driver.sleep, 2)
          cleaned = driver.now()
        end)
        driver.sleep(1000)
      end)
      assert.equal(3, cleaned)
      error(ok or err, 0)
    end) })
  end))

  it("is mentioned nowhere on stderr at the end of a program", function()
    assert.same({ 0, "clean\n" }, { program.run([[
      local keywatch = require "keywatch"
      keywatch.run(function()
        keywatch.spawn(function()
          pcall(keywatch.sleep, 60)
          keywatch.shield(5, keywatch.sleep, 0.01)
          print "clean"
        end)
        keywatch.sleep(0)
      end)
    ]]) })
  end)
end)

describe("a limit", function()
  it("ends at a time, and its task continues", in_task(function()
    local codes = {}
    driver.spawn(function()
      codes[1] = code_of(driver.limit, { ends_at = 5 }, function()
        codes[#codes + 2] = code_of(driver.sleep, 1000)
        driver.shield(2, driver.sleep, 1)
        driver.sleep(0)
      end)
      driver.sleep(1)
      codes[3] = driver.now()
    end):join()
    assert.same({ "cancelled", "cancelled", 7 }, codes)
  end))

  it("ends when it is cut, and not by an earlier cut", in_task(function()
    local limit, codes = {}, {}
    local task = driver.spawn(function()
      for i = 1, 2 do
        codes[i] = code_of(driver.limit, limit, driver.sleep, 10) or "slept"
        limit = {}
      end
    end)
    driver.sleep(1)
    local first = limit
    driver.cut(task, first)
    assert.is_true(task:join())
    assert.same({ "cancelled", "slept" }, codes)
    assert.equal(11, driver.now())
  end))

  it("does not count the raising waits in it against its task", in_task(function()
    local n = 0
    local task = driver.spawn(function()
      for _ = 1, 1001 do
        code_of(driver.limit, { ends_at = driver.now() }, driver.sleep, 1)
        n = n + 1
      end
    end)
    assert.same({ true, 1001 }, { task:join(), n })
    driver.shield(1, driver.spawn, function() -- in a task that has inherited a shield, too
      for _ = 1, 1001 do code_of(driver.limit, { ends_at = driver.now() }, driver.sleep, 0) end
      n = 0
    end):join()
    assert.equal(0, n)
  end))

  it("distinguishes its own cancellation from those of its task and of other limits", in_task(function()
    local other = driver.spawn(driver.sleep, 1000)
    driver.sleep(0)
    other:cancel()
    local _, foreign = other:join()
    local seen = {}
    cancel_after(1, function()
      seen[1] = driver.is_cancellation(foreign)
      local limit = { ends_at = 0.5 }
      driver.limit(limit, function() seen[2] = driver.is_cancellation(select(2, pcall(driver.sleep, 2))) end)
      local _, err = pcall(driver.limit, limit, driver.sleep, 2)
      seen[3] = driver.is_cancellation(err)
      seen[4] = driver.is_cancellation(select(2, pcall(driver.sleep, 2)))
      seen[5] = driver.shield(1, driver.is_cancellation, err)
      seen[6] = driver.is_cancellation("cancelled")
    end)
    assert.same({ false, true, false, true, false, false }, seen)
  end))
end)
