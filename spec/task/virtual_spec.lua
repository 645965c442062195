--- Tasks on virtual time: no loop, no waiting, and the same every time.

local virtual = require "keywatch.driver.virtual"

local at_call = require("spec.support.interrupting").at_call
local new_random = require("spec.support.random").new
local program = require "spec.support.program"
local scheduler = require "spec.support.scheduler"

local seed = tonumber(os.getenv("KW_SEED")) or os.time()

local MOST_TASKS = 30
local HOUR = 3600

-- {====== Random programs ======

local CHOICES = { { 4, "spawn" }, { 4, "sleep" }, { 3, "join" }, { 1, "cancel" }, { 3, "wait" }, { 3, "set" } }

--- Runs a random program of tasks that spawn, join, cancel, sleep, and wait for and set events. Returns what happened,
-- line by line.
local function play(number)
  local driver = virtual.new()
  local random, lines, tasks, events, spawned = new_random(number), {}, {}, {}, 0
  for i = 1, 4 do events[i] = driver.event() end

  local function note(name, what, ...)
    lines[#lines + 1] = ("%.3f %s %s"):format(driver.now(), name, what:format(...))
    assert.is_nil(scheduler.check(driver))
  end

  local body

  local function spawn()
    if spawned == MOST_TASKS then return "none" end
    spawned = spawned + 1
    local name = "t" .. spawned
    tasks[name] = driver.spawn(body, name)
    return name
  end

  local does = {}
  function does.spawn(name) note(name, "spawns %s", spawn()) end
  function does.sleep(name)
    local seconds = random:pick { 0, 0.5, 1, HOUR }
    driver.sleep(seconds)
    note(name, "has slept %g", seconds)
  end
  function does.join(name)
    local other = "t" .. random:between(1, spawned)
    if other == name then return end
    local ok, result = tasks[other]:join(random:pick { 0, 1, 10 })
    note(name, "joins %s: %s %s", other, tostring(ok), type(result) == "table" and result.code or tostring(result))
  end
  function does.cancel(name)
    local other = "t" .. random:between(1, spawned)
    tasks[other]:cancel()
    note(name, "cancels %s", other)
  end
  function does.wait(name)
    local i = random:between(1, #events)
    note(name, "waits for %d: %s", i, tostring(events[i]:wait(random:pick { 0, 1, 5 })))
  end
  function does.set(name)
    local i = random:between(1, #events)
    note(name, "sets %d: %s", i, tostring(events[i]:set()))
  end
  function does.fail(name)
    note(name, "fails")
    error({ code = "slip of " .. name }, 0)
  end

  function body(name)
    for _ = 1, random:between(1, 6) do does[random:weighted(CHOICES)](name) end
    if random:one_in(8) then
      tasks[name].is_supervised = true
      does.fail(name)
    end
    return name
  end

  local ok, err = pcall(driver.run, function()
    for _ = 1, 5 do spawn() end
    for i = 1, MOST_TASKS do
      local task = tasks["t" .. i]
      if task then task:join() end
    end
  end)
  note("run", "%s %s", tostring(ok), tostring(err))
  return table.concat(lines, "\n")
end

-- }======

describe("virtual time", function()
  it("passes where all wait, at once and by just so much", function()
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

  it("is at an end where nothing can wake anybody", function()
    local driver = virtual.new()
    local ok, err = pcall(driver.run, function() driver.event():wait() end)
    assert.is_false(ok)
    assert.matches("deadlock: every task is waiting", err)
  end)

  it("shows the same to the same random program, and something else to another one", function()
    local first = play(seed)
    assert.equal(first, play(seed))
    assert.not_equal(first, play(seed + 1))
  end)

  if not rawget(_G, "jit") then -- on Lua 5.4 a call may grow the stack, and finalizers run there
    local CALLS = 40 -- more than a wait, or a waking, makes

    it("loses no event that is set in the middle of beginning to wait for it", function()
      local main = coroutine.running()
      for n = 1, CALLS do
        local driver = virtual.new()
        local event = driver.event()
        local set_at
        local waiting = driver.spawn(function()
          at_call(main, n, function()
            set_at = driver.now()
            event:set()
          end)
          return event:wait(HOUR)
        end)
        local _, is_set = driver.run(waiting.join, waiting)
        if set_at == 0 then assert.is_true(is_set) end -- later the time was over, too
        debug.sethook(main)
      end
    end)

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

  it("needs no loop of libuv", function()
    assert.equal("5\tnil\n", program.printed_by([[
      local driver = require("keywatch.driver.virtual").new()
      driver.run(function() driver.spawn(driver.sleep, 5):join() end)
      print(driver.now(), package.loaded["keywatch.uv"])
    ]]))
  end)
end)
