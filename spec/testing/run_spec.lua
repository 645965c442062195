--- testing.run: a program in virtual time, which ends, or fails with the reason why it cannot.

local compat = require "keywatch.support.compat"
local drivers = require "keywatch.task.driver"
local keywatch = require "keywatch"
local testing = require "keywatch.testing"

local answer = require "spec.support.answer"
local directory = require "spec.support.directory"
local dose = require "spec.support.dose"
local within = require "spec.support.within"

local HOUR = 3600
local RUNS = dose.is_small and 5 or 50

--- Returns the error that a run fails with.
local function failure_of(fn, opts)
  local ok, err = pcall(testing.run, fn, opts)
  assert.is_false(ok)
  return err
end

describe("testing.run", function()
  local before

  before_each(function()
    before = drivers.use(nil)
    drivers.use(before)
  end)

  after_each(function()
    local now = drivers.use(before)
    assert.equal(before, now) -- each run leaves the driver that it has found
  end)

  it("calls its function with a world, and returns the results", function()
    local results = { n = 0 }
    local function take(...) results = { n = select("#", ...), ... } end
    take(testing.run(function(world) return tostring(world), nil, 3, nil end))
    assert.same({ n = 4, "keywatch.testing.world<seed=1>", nil, 3, nil }, results)
  end)

  it("advances time at once when all tasks wait, for every function of keywatch", function()
    local clock = os.clock()
    testing.run(function()
      assert.equal(0, keywatch.now())
      keywatch.sleep(20 * HOUR)
      assert.equal(20 * HOUR, keywatch.now())
      local channel = keywatch.channel()
      local task = keywatch.spawn(function()
        keywatch.sleep(HOUR)
        channel:send("late")
        return keywatch.now()
      end)
      assert.equal(channel, (keywatch.select { channel, timeout = 2 * HOUR }))
      assert.same({ true, 21 * HOUR }, { task:join() })
      assert.same({ "timeout", 22 * HOUR }, { answer.code(keywatch.channel():receive(HOUR)), keywatch.now() })
    end)
    assert(os.clock() - clock < HOUR)
  end)

  it("begins at the given time", function() assert.equal(1000, testing.run(keywatch.now, { now = 1000 })) end)

  it("gives stores the same time", within.world(function()
    local store = keywatch.open()
    store:put("a", "", { lease = store:lease(60) })
    local w = store:watch("a")
    assert.same({ "delete", 60 }, { w:next().type, keywatch.now() })
  end))

  it("raises what its function raises", function()
    local err = { code = "own" }
    local ok, raised = pcall(testing.run, function() error(err, 0) end)
    assert.same({ false, err }, { ok, raised })
    assert.equal(err, raised)
  end)

  it("raises the failure of a task that is not joined", function()
    local stderr = io.stderr
    io.stderr = { write = function() end } -- luacheck: ignore
    local ok, err = pcall(testing.run, function()
      keywatch.spawn(function() error("in a task", 0) end)
      keywatch.sleep(1)
    end)
    io.stderr = stderr -- luacheck: ignore
    assert.same({ false, "in a task" }, { ok, err })
  end)

  it("reports tasks that are left over, where they were spawned and what they wait for", function()
    local err = failure_of(function()
      local channel = keywatch.channel()
      keywatch.spawn(function() channel:receive() end)
      keywatch.spawn(function() keywatch.sleep(HOUR) end)
      keywatch.sleep(1)
    end)
    assert.matches("^[%w_./]*run_spec.lua:%d+: run: the function has ended, but tasks that it has spawned have", err)
    assert.matches("task 2 waits in receive at [%w_./]*run_spec.lua:%d+, spawned at [%w_./]*run_spec.lua:%d+", err)
    assert.matches("task 3 waits in sleep at .*, for 3599 seconds more, spawned at ", err)
    testing.run(function() keywatch.spawn(keywatch.sleep, HOUR) end, { leftovers = "cancel" })
  end)

  it("does not report tasks of servers and clients", within.world(function(world)
    world:fault { "hang", method = "get" }
    local client = world:client()
    assert.equal("deadline_exceeded", select(2, client:get("a", { timeout = 0.1 })).code)
    client:watch("a")
    client:lease(10):keep()
  end))

  it("leaves nothing behind", function()
    local function use(world)
      local client = world:client()
      local cache = assert(client:cache("k", { slow_after = 10 }))
      assert(cache:wait_ready(10))
      local content, w = cache:table {}, assert(cache:watch("k", { prefix = true }))
      client:put("k", ("x"):rep(1000), { lease = client:lease(10):keep() })
      assert.equal(w:next(10).value, content.k)
      world:fault { "delay", seconds = 1 }
      client:get("k")
      keywatch.sleep(100)
    end
    local function kilobytes_after(n)
      for _ = 1, n do testing.run(use) end
      if rawget(_G, "jit") then rawget(_G, "jit").flush() end -- compiled code counts
      collectgarbage()
      return collectgarbage("count")
    end
    local least = kilobytes_after(2)
    local grown = kilobytes_after(RUNS) - least
    assert(grown < RUNS * 5, grown) -- a world has more than 50 KiB
  end)

  it("works only at top level, and not in another world", function()
    assert.matches("run: a world can be opened only at top level", failure_of(function() testing.run(print) end))
    assert.matches("world: a world can be opened only at top level", failure_of(function() testing.world() end))
    local world = testing.world()
    assert.matches("a world is open already", failure_of(function() end))
    world:close()
  end)

  it("refuses objects with a time of their own", function()
    local path = directory.new() .. "/store"
    local refused = failure_of(function() keywatch.open { path = path, now = 5 } end)
    assert.matches("^[%w_./]*run_spec.lua:%d+: open: a store with a disk has the clock of the virtual time", refused)
    assert.is_nil(io.open(path .. "/data.mdb"))
    local outside = keywatch.open { path = path } -- before the world was there
    assert.matches("opened outside has the system's time", failure_of(function() outside:put("a", "") end))
    outside:close()
    directory.remove_all()
    assert.matches("cannot choose another driver", failure_of(function() keywatch.driver "luv" end))
    assert.matches("there are none in virtual time", failure_of(function() keywatch.signals { "INT" } end))
    assert.matches("serve without 'thread'", failure_of(function() keywatch.serve { thread = true } end))
    assert.matches("no descriptor", failure_of(function() keywatch.fd() end))
    assert.equal("virtual", testing.run(function() return keywatch.driver() end))
  end)

  it("refuses TLS, with a reason", within.world(function()
    local _, err = keywatch.connect("https://a:1"):get("a", { timeout = 1 })
    assert.same({ "unavailable", "keywatch: https://a:1: TLS does not work in virtual time: use http:// or unix:" },
      { err.code, err.message })
    _, err = keywatch.serve { store = keywatch.open(), listen = "https://a:1", tls = { auto = true } }
    assert.equal("listen_failed", err.code)
    assert.matches("TLS does not work in virtual time", err.message)
  end))

  describe("fails", function()
    it("at a deadlock", function()
      local err = failure_of(function()
        local channel = keywatch.channel()
        keywatch.spawn(function() channel:send(1) channel:send(2) end)
        channel:receive()
        keywatch.channel():receive()
      end)
      assert.matches("run_spec.lua:%d+: keywatch: deadlock: every task is waiting, and no timer", err)
      assert.matches("task 1 waits in receive at [%w_./]*run_spec.lua:%d+\n", err)
      assert.matches("task 2 waits in send at [%w_./]*run_spec.lua:%d+, spawned at", err)
    end)

    it("if nothing wakes a task, though connections, watches and leases are kept", function()
      local err = failure_of(function(world)
        local client = world:client()
        client:lease(5):keep()
        client:watch("never"):next()
      end, { idle = 100 })
      assert.matches("for 100 seconds of virtual time nothing has woken one", err)
      assert.matches("task 1 waits in next at [%w_./]*run_spec.lua:%d+", err)
    end)

    it("with many tasks, and reports some of them", function()
      local err = failure_of(function()
        for _ = 1, 50 do keywatch.spawn(function() keywatch.channel():receive() end) end
        keywatch.channel():receive()
      end)
      assert.matches("and 31 more$", err)
    end)

    it("if the time never ends", function()
      local function loop()
        while true do keywatch.sleep(1) end
      end
      assert.matches("virtual time has passed its limit of 500 seconds", failure_of(loop, { limit = 500 }))
    end)

    it("if time stands still", function()
      local function sleep()
        while true do keywatch.sleep(0) end
      end
      assert.matches("hot loop: the loop has turned 1000 times while the virtual time stood still at 0",
        failure_of(sleep, { turns = 1000 }))
      assert.matches("hot loop", failure_of(function()
        local channel = keywatch.channel()
        keywatch.spawn(function() while true do channel:send(1) end end)
        while true do channel:receive() end
      end, { turns = 1000 }))
    end)

    it("never because a task sleeps for long", within.world(function(world)
      local client = world:client()
      client:put("a", "")
      keywatch.sleep(200)
      assert.equal("", client:get("a").value)
    end, { idle = 100 }))
  end)
end)

describe("a world", function()
  it("is open until it is closed, and its time is that of the top level, too", function()
    local world = testing.world { seed = 5, now = 10 }
    assert.equal(10, keywatch.now())
    local client = world:client()
    client:put("a", "1")
    keywatch.sleep(HOUR)
    assert.equal("1", client:get("a").value)
    assert.equal(10 + HOUR, keywatch.now())
    assert.equal(7, world:run(function(same)
      assert.equal(world, same)
      return 7
    end))
    world:close()
    world:close()
    assert.equal("keywatch.testing.world<seed=5 closed>", tostring(world))
    assert.equal("closed", select(2, client:get("a")).code)
    assert.is_false(pcall(world.client, world))
  end)

  it("closes its objects, and ends the remaining tasks", function()
    local world, ended = testing.world(), false
    local client = world:client()
    local w = assert(client:watch("a"))
    keywatch.spawn(function()
      local ok, err = pcall(keywatch.sleep, HOUR)
      ended = not ok and err.code
    end)
    keywatch.sleep(1)
    world:close()
    assert.same({ "cancelled", "closed" }, { ended, select(2, w:next(0)).code })
  end)

  it("closes all objects, and raises the first error", function()
    local world = testing.world()
    local bad, good = world:client(), world:client()
    local close = bad.close
    bad.close = function(self)
      close(self)
      error("on purpose", 0)
    end
    assert.error_matches(function() world:close() end, "^on purpose$")
    for _, client in ipairs { bad, good } do assert.equal("closed", client:state().state) end
    assert.matches("closed", tostring(world))
  end)

  it("cannot be closed in one of its tasks", function()
    assert.matches("close: a world cannot be closed in one of its tasks",
      failure_of(function(world) world:close() end))
  end)

  it("cannot be closed by a finalizer while it runs", function()
    local world, raised = testing.world(), nil
    local client = world:client()
    local function leave()
      compat.sentinel(function()
        local _, err = pcall(world.close, world)
        raised = raised or err
      end)
    end
    local w = assert(client:watch("a"))
    world.driver.attach { poll = function() -- as the loop turns
      if raised then return end
      leave()
      collectgarbage()
      return 1
    end }
    for _ = 1, 100 do
      if raised then break end
      w:next(1)
    end
    assert.matches("close: a finalizer cannot close a world that runs", raised)
    assert(client:put("a", ""))
    world:close()
  end)

  it("has random numbers that depend only on its seed", function()
    local function draw(seed)
      return testing.run(function(world)
        local list = {}
        for i = 1, 100 do list[i] = world.random(1000) end
        return list
      end, { seed = seed })
    end
    assert.same(draw(3), draw(3))
    assert.not_same(draw(3), draw(4))
    testing.run(function(world)
      local seen = {}
      for _ = 1, 1000 do
        local unit = world.random()
        assert(unit >= 0 and unit < 1)
        seen[world.random(3)], seen[world.random(-1, 0)] = true, true
      end
      assert.same({ [-1] = true, [0] = true, true, true, true }, seen)
    end)
  end)
end)
