--- A turn of the loop: however many tasks are ready, the loop looks at its sockets after a bounded time.

local coroutines = require "keywatch.driver.coroutines"

local scheduler = require "spec.support.scheduler"

--- A driver whose clock moves when a task works, and no otherwise. `looks` has, for each look at the sockets, how many
-- tasks had worked before it.
local function new_driver()
  local driver, time, worked, looks = {}, 0, {}, {}
  coroutines.new({
    now = function() return time end,
    enter = function() end,
    is_awaiting = function() return true end,
    block = function() looks[#looks + 1] = #worked end,
    timeout = function() end,
    woken = function() end,
    worked = function() end,
    why_blocked = function() end,
  }, driver)

  --- The code of a task: takes so many seconds.
  function driver.work(name, seconds)
    time = time + seconds
    worked[#worked + 1] = name
  end

  return driver, worked, looks
end

--- Returns the greatest number of tasks between two looks.
local function most_at_once(looks)
  local most, before = 0, 0
  for _, n in ipairs(looks) do most, before = math.max(most, n - before), n end
  return most
end

describe("a turn of the loop", function()
  it("runs few slow tasks, and the others in the next turns, in order", function()
    local driver, worked, looks = new_driver()
    driver.run(function()
      local tasks, expected = {}, {}
      for i = 1, 1000 do tasks[i], expected[i] = driver.spawn(driver.work, i, 0.001), i end
      assert(driver.join(tasks))
      assert.same(expected, worked)
      assert.same({ true, nil }, { most_at_once(looks) <= 32, (scheduler.check(driver)) })
    end)
  end)

  it("runs all tasks that are quick", function()
    local driver, worked, looks = new_driver()
    driver.run(function()
      local tasks = {}
      for i = 1, 1000 do tasks[i] = driver.spawn(driver.work, i, 0) end
      assert(driver.join(tasks))
      assert.same({ 1000, 1000 }, { #worked, most_at_once(looks) })
    end)
  end)

  it("lets a task that became ready later run later", function()
    local driver, worked = new_driver()
    driver.run(function()
      local go, tasks = driver.event(), {}
      tasks[1] = driver.spawn(function()
        go:wait()
        driver.work("woken", 0)
      end)
      driver.sleep(0)
      for i = 1, 100 do
        tasks[#tasks + 1] = driver.spawn(function()
          driver.work(i, 0.001)
          if i == 1 then go:set() end
          driver.sleep(0)
          driver.work(-i, 0.001)
        end)
      end
      assert(driver.join(tasks))
    end)
    local place = {}
    for at, name in ipairs(worked) do place[name] = at end
    assert.equal(201, #worked)
    for i = 1, 100 do
      assert.equal(i, place[i])
      assert.is_true(place[-i] > i and (i == 1 or place[-i] > place[1 - i]))
    end
    assert.equal(101, place.woken)
  end)

  it("ends with all tasks cancelled, however many and slow", function()
    local driver, worked = new_driver()
    driver.run(function()
      for i = 1, 300 do
        driver.spawn(function()
          local ok = pcall(driver.sleep, 1e9)
          driver.work(i, 0.01)
          assert(not ok)
        end)
      end
      driver.sleep(0)
    end)
    assert.equal(300, #worked)
  end)
end)
