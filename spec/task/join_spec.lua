--- The end of several tasks at once.

local answer = require "spec.support.answer"
local program = require "spec.support.program"

local driver, in_task = require("spec.task.virtual_time").declare()

describe("join", function()
  it("waits until all tasks of a list have ended", in_task(function()
    local tasks = {}
    for i, seconds in ipairs { 3, 1, 2 } do
      tasks[i] = driver.spawn(function()
        driver.sleep(seconds)
        return i
      end)
    end
    assert.same({ true, 3 }, { driver.join(tasks), driver.now() })
    assert.same({ true, 2 }, { tasks[2]:join() })
    assert.same({ true }, { driver.join(tasks) })
    assert.same({ true }, { driver.join { tasks[1], tasks[1], timeout = 0 } })
  end))

  it("returns at once for an empty list", function() assert.same({ true }, { driver.join {} }) end)

  it("returns the failure of the first failed task in the list, after all have ended, and all failed tasks", function()
    driver.run(function()
      local function fail_after(seconds, what)
        return driver.spawn(function()
          driver.sleep(seconds)
          error(what, 0)
        end)
      end
      local good, slow, fast = driver.spawn(driver.sleep, 5), fail_after(2, "slow"), fail_after(1, "fast")
      local ok, err, failed = driver.join { good, slow, fast }
      assert.same({ false, "slow", 2, true }, { ok, err, #failed, failed[1] == slow and failed[2] == fast })
      assert.equal(5, driver.now())
    end) -- and run does not raise: join has returned the failure
  end)

  it("gives up after its timeout", in_task(function()
    local tasks = { driver.spawn(driver.sleep, 1), driver.spawn(driver.sleep, 10), timeout = 3 }
    assert.same({ "timeout", 3 }, { answer.code(driver.join(tasks)), driver.now() })
    tasks.timeout = 0
    assert.equal("timeout", select(2, driver.join(tasks)).code)
    tasks.timeout = 100
    assert.same({ true, 10 }, { driver.join(tasks), driver.now() })
  end))

  it("is cancelled as any other wait, and works at top level", function()
    local tasks = { driver.spawn(driver.sleep, 1), driver.spawn(driver.sleep, 2) }
    local joiner = driver.spawn(driver.join, tasks)
    driver.sleep(0)
    joiner:cancel()
    assert.same({ "cancelled", true, 2 }, { select(2, joiner:join()).code, driver.join(tasks), driver.now() })
    for _, task in ipairs(tasks) do assert.is_nil(task.joiners) end
  end)

  it("loses no failure: a task that has failed when join gives up is reported", function()
    local printed = program.printed_by [[
      local keywatch = require "keywatch"
      print(pcall(keywatch.run, function()
        local failing, sleeper = keywatch.spawn(error, "on purpose", 0), keywatch.spawn(keywatch.sleep, 1000)
        local ok, err = keywatch.join { failing, sleeper, timeout = 0.001 }
        print(ok, err.code)
      end))
      print(pcall(keywatch.run, function()
        local failing, sleeper = keywatch.spawn(error, "on purpose", 0), keywatch.spawn(keywatch.sleep, 1000)
        keywatch.join { failing, sleeper, timeout = 0.001 }
        return failing:join()
      end))
    ]]
    assert.matches("keywatch: a task has failed: on purpose\n.-\nnil\ttimeout\nfalse\ton purpose\n", printed)
    assert.matches("\ntrue\tfalse\ton purpose\n$", printed)
  end)
end)
