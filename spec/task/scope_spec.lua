--- Scopes: tasks that end together.

local program = require "spec.support.program"
local scheduler = require "spec.support.scheduler"

local driver, in_task = require("spec.task.virtual_time").declare()

after_each(function() driver.run(function() end) end) -- raises unreported failures

--- Sleeps so long, and fails.
local function fail_after(seconds, what)
  driver.sleep(seconds)
  error(what, 0)
end

describe("a scope", function()
  it("returns the results of its function, once all of its tasks have ended", in_task(function()
    local order = {}
    assert.same({ 1, nil, 3 }, { driver.scope(function(scope, one)
      for i = 3, 1, -1 do
        scope:spawn(function(seconds)
          driver.sleep(seconds)
          order[#order + 1] = seconds
        end, i)
      end
      order[#order + 1] = "body"
      return one, nil, 3
    end, 1) })
    assert.same({ "body", 1, 2, 3 }, order)
    assert.equal(3, driver.now())
  end))

  it("cancels all of its tasks when one fails, waits for their ends, and raises the failure", in_task(function()
    local ended, err = {}, { code = "on purpose" }
    local ok, raised = pcall(driver.scope, function(scope)
      for i = 1, 2 do
        scope:spawn(function()
          pcall(driver.sleep, 1000)
          driver.shield(10, driver.sleep, i) -- cleans up
          ended[#ended + 1] = i
        end)
      end
      scope:spawn(fail_after, 5, err)
      pcall(driver.sleep, 1000)
      ended[#ended + 1] = "body"
    end)
    assert.same({ false, err }, { ok, raised })
    assert.equal(err, raised)
    assert.same({ "body", 1, 2 }, ended)
    assert.equal(7, driver.now())
  end))

  it("fails when its function fails", in_task(function()
    local task
    local ok, err = pcall(driver.scope, function(scope)
      task = scope:spawn(driver.sleep, 1000)
      error("on purpose", 0)
    end)
    assert.same({ false, "on purpose", "cancelled", 0 }, { ok, err, select(2, task:join()).code, driver.now() })
  end))

  it("is cancelled with the task that runs it", in_task(function()
    local codes = {}
    local function wait()
      local _, err = pcall(driver.sleep, 1000)
      codes[#codes + 1] = err.code
      error(err, 0)
    end
    local task = driver.spawn(driver.scope, function(scope)
      scope:spawn(wait)
      wait()
    end)
    driver.sleep(1)
    task:cancel()
    local ok, err = task:join()
    assert.same({ false, "cancelled" }, { ok, err.code })
    assert.same({ "cancelled", "cancelled" }, codes)
    assert.equal(1, driver.now())
  end))

  it("does not fail because one of its tasks was cancelled", in_task(function()
    assert.equal("fine", driver.scope(function(scope)
      local task = scope:spawn(driver.sleep, 1000)
      local new = scope:spawn(driver.sleep, 1000)
      new:cancel()
      driver.sleep(1)
      task:cancel()
      return "fine"
    end))
    assert.equal(1, driver.now())
  end))

  it("can cancel its tasks, and continues", in_task(function()
    assert.equal("body", driver.scope(function(scope)
      for _ = 1, 3 do scope:spawn(driver.sleep, 1000) end
      driver.sleep(1)
      scope:cancel()
      driver.sleep(1)
      scope:spawn(driver.sleep, 1)
      return "body"
    end))
    assert.equal(3, driver.now())
  end))

  it("begins no task once it is cancelled, and spawns none once it has ended", in_task(function()
    local late, has_begun, kept
    pcall(driver.scope, function(scope)
      kept = scope
      scope:spawn(function()
        pcall(driver.sleep, 1000)
        late = scope:spawn(function() has_begun = true end)
      end)
      fail_after(1, "on purpose")
    end)
    assert.same({ nil, "cancelled" }, { has_begun, select(2, late:join()).code })
    assert.error_matches(function() kept:spawn(print) end, "spawn: the scope has ended")
    assert.matches("ended", tostring(kept))
    kept:cancel()
  end))

  it("can be nested", in_task(function()
    local codes = {}
    local ok, err = pcall(driver.scope, function(outer)
      outer:spawn(function()
        driver.scope(function(inner)
          inner:spawn(function() codes[1] = select(2, pcall(driver.sleep, 1000)).code end)
          codes[2] = select(2, pcall(driver.sleep, 1000)).code
        end)
      end)
      driver.scope(function(inner) inner:spawn(fail_after, 1, "inner") end)
    end)
    assert.same({ false, "inner" }, { ok, err })
    assert.same({ "cancelled", "cancelled" }, codes)
    assert.equal(1, driver.now())
  end))

  it("works at top level", function()
    local sum = 0
    assert.equal("body", driver.scope(function(scope)
      for i = 1, 3 do
        scope:spawn(function()
          driver.sleep(i)
          sum = sum + i
        end)
      end
      return "body"
    end))
    assert.equal(6, sum)
    assert.same({ false, "on purpose" }, { pcall(driver.scope, function() fail_after(1, "on purpose") end) })
  end)

  it("ends its tasks when the top level is interrupted, or at a deadlock", function()
    local source, task = {}, nil
    function source.poll()
      driver.detach(source)
      error("interrupted!", 0)
    end
    driver.attach(source)
    assert.same({ false, "interrupted!" }, { pcall(driver.scope, function(scope)
      task = scope:spawn(driver.sleep, 1000)
      driver.sleep(1000)
    end) })
    assert.equal("cancelled", select(2, task:join(0)).code)
    assert.error_matches(function() driver.scope(function() driver.channel():receive() end) end, "deadlock")
  end)

  it("abandons tasks that do not end, and logs that", function()
    local printed = program.printed_by [[
      local keywatch = require "keywatch"
      local ok, err = pcall(keywatch.scope, function()
        while true do pcall(keywatch.channel().receive, keywatch.channel()) end
      end)
      print(ok, (err:match("deadlock")))
    ]]
    assert.matches("a task ignores its cancellation", printed)
    assert.matches("false\tdeadlock\n", printed)
  end)

  it("raises the first failure, and reports the others", function()
    local printed = program.printed_by [[
      local keywatch = require "keywatch"
      print(pcall(keywatch.run, function()
        print(pcall(keywatch.scope, function(scope)
          scope:spawn(error, "first", 0)
          scope:spawn(error, "second", 0)
        end))
      end))
    ]]
    assert.matches("false\tfirst\n", printed)
    assert.matches("keywatch: a task has failed: second\n", printed)
    assert.not_matches("a task has failed: first", printed)
    assert.matches("false\tsecond\n$", printed)
  end)

  it("raises if its caller cannot wait, and begins no task", function()
    local has_begun
    local ok, err = coroutine.wrap(function()
      return pcall(driver.scope, function() has_begun = true end)
    end)()
    assert.is_false(ok)
    assert.matches("is not a task", err)
    driver.sleep(0)
    assert.is_nil(has_begun)
  end)

  it("forgets a task that a finalizer has cancelled while it was spawned", function()
    local _, inside = driver.inside()
    local start = inside.driver.start
    driver.run(function()
      driver.scope(function(scope)
        function inside.driver.start(...)
          inside.driver.start = start
          scope:cancel() -- as a finalizer does
          return start(...)
        end
        local task = scope:spawn(error, "it must not begin")
        local ok, err = task:join()
        assert.same({ false, "cancelled" }, { ok, err.code })
      end)
      assert.is_nil(scheduler.check(driver))
    end)
  end)
end)
