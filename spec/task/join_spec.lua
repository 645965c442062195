--- The end of several tasks at once.

local virtual = require "keywatch.driver.virtual"

local program = require "spec.support.program"
local scheduler = require "spec.support.scheduler"

local driver

local function in_task(fn) return function() driver.run(fn) end end

before_each(function() driver = virtual.new() end)
after_each(function() assert.is_nil(scheduler.check(driver)) end)

describe("join", function()
  it("waits until all tasks of a list have ended", in_task(function()
    local tasks = {}
    for i, seconds in ipairs { 3, 1, 2 } do
      tasks[i] = driver.spawn(function()
        driver.sleep(seconds)
        return i
      end)
    end
    assert.same({ true }, { driver.join(tasks) })
    assert.equal(3, driver.now())
    assert.same({ true, 2 }, { tasks[2]:join() })
    assert.same({ true }, { driver.join(tasks) })
    assert.same({ true }, { driver.join { tasks[1], tasks[1], timeout = 0 } })
  end))

  it("has nothing to wait for in an empty list", function() assert.same({ true }, { driver.join {} }) end)

  it("returns the failure of the first in the list that has failed, after all have ended, and all that have", function()
    driver.run(function()
      local function fail_after(seconds, what)
        return driver.spawn(function()
          driver.sleep(seconds)
          error(what, 0)
        end)
      end
      local good, slow, fast = driver.spawn(driver.sleep, 5), fail_after(2, "slow"), fail_after(1, "fast")
      local ok, err, failed = driver.join { good, slow, fast }
      assert.same({ false, "slow", 2 }, { ok, err, #failed })
      assert.is_true(failed[1] == slow and failed[2] == fast)
      assert.equal(5, driver.now())
    end) -- and run does not raise: the caller of join was told
  end)

  it("gives up after its timeout", in_task(function()
    local tasks = { driver.spawn(driver.sleep, 1), driver.spawn(driver.sleep, 10), timeout = 3 }
    local ok, err = driver.join(tasks)
    assert.same({ nil, "timeout" }, { ok, err.code })
    assert.equal(3, driver.now())
    tasks.timeout = 0
    assert.equal("timeout", select(2, driver.join(tasks)).code)
    tasks.timeout = 100
    assert.is_true(driver.join(tasks))
    assert.equal(10, driver.now())
  end))

  it("is cancelled as any other wait, and works at top level", function()
    local tasks = { driver.spawn(driver.sleep, 1), driver.spawn(driver.sleep, 2) }
    local joiner = driver.spawn(driver.join, tasks)
    driver.sleep(0)
    joiner:cancel()
    assert.equal("cancelled", select(2, joiner:join()).code)
    assert.is_true(driver.join(tasks))
    assert.equal(2, driver.now())
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
