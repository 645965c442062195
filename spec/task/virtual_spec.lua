--- Tasks on virtual time: no loop, no waiting, and the same every time.

local virtual = require "keywatch.driver.virtual"

local at_call = require("spec.support.interrupting").at_call
local program = require "spec.support.program"
local scheduler = require "spec.support.scheduler"

local HOUR = 3600

describe("virtual time", function()
  it("advances when all tasks wait, at once and exactly to the next deadline", function()
    local driver = virtual.new(1000)
    driver.run(function()
      local other = driver.spawn(function() driver.sleep(2 * HOUR) return driver.now() end)
      driver.sleep(HOUR)
      assert.equal(1000 + HOUR, driver.now())
      assert.same({ true, 1000 + 2 * HOUR }, { other:join() })
    end)
    driver.sleep(1)
    assert.equal(1001 + 2 * HOUR, driver.now())
  end)

  if not rawget(_G, "jit") then -- on Lua 5.4 a call may grow the stack, and finalizers run there
    local CALLS = 40 -- more than a wait, or a waking, makes

    it("wakes a task once that is cancelled in the middle of being woken", function()
      for n = 1, CALLS do
        local driver = virtual.new()
        driver.run(function()
          local event = driver.event()
          local waiting = driver.spawn(event.wait, event)
          driver.sleep(0)
          at_call(coroutine.running(), n, function() waiting:cancel() end)
          event:set()
          debug.sethook((coroutine.running()))
          assert.is_nil(scheduler.check(driver))
          waiting:join()
        end)
      end
    end)
  end

  it("needs no libuv loop", function()
    assert.equal("5\tnil\n", program.printed_by([[
      local driver = require("keywatch.driver.virtual").new()
      driver.run(function() driver.spawn(driver.sleep, 5):join() end)
      print(driver.now(), package.loaded["keywatch.uv"])
    ]]))
  end)
end)
