--- Managers: the order of starts and stops; components that fail half way, take too long, end by themselves or are
-- added late; leading; health; controller files; and the ways to run a manager. In virtual time, unless a test is about
-- real time.

local controller = require "keywatch.controller"
local keywatch = require "keywatch"
local testing = require "keywatch.testing"

local answer = require "spec.support.answer"
local await = require "spec.support.await"
local directory = require "spec.support.directory"
local files = require "spec.support.files"
local logs = require "spec.support.logs"
local program = require "spec.support.program"
local within = require "spec.support.within"

local unpack = rawget(table, "unpack") or rawget(_G, "unpack")

before_each(logs.begin)

after_each(function()
  logs.finish()
  directory.remove_all()
end)

local managers -- to be stopped at the end of the test

local function new_manager(opts)
  managers[#managers + 1] = controller.manager(opts)
  return managers[#managers]
end

--- A test in virtual time: fn(world, client).
local function timed(fn, opts)
  return within.world(function(world)
    managers = {}
    fn(world, world:client())
    for _, one in ipairs(managers) do one:stop(1) end
  end, opts)
end

--- The same, with a manager that has no election: fn(manager, notes, client, world).
local function managed(fn, opts)
  return timed(function(world, client) fn(new_manager { store = client }, {}, client, world) end, opts)
end

--- Returns a component that records its calls in a list. `opts` may have functions instead of start and stop.
local function component(notes, name, opts)
  opts = opts or {}
  return {
    name = name,
    start = function(self, store)
      notes[#notes + 1] = "start " .. name
      self.store = store
      if opts.start then return opts.start(self, store) end
    end,
    stop = function(_, timeout)
      notes[#notes + 1] = "stop " .. name
      if opts.stop then return opts.stop(timeout) end
    end,
    status = opts.status,
    has_synced = opts.has_synced,
  }
end

--- A controller that works on ticks.
local function ticker(name, reconcile, opts)
  local own = { name = name, sources = { { every = 1, request = "tick" } }, reconcile = reconcile or function() end }
  for field, value in pairs(opts or {}) do own[field] = value end
  return controller.new(own)
end

local function start_synced(manager, seconds)
  manager:start()
  assert(manager:wait_synced(seconds or 1))
end

describe("a manager", function()
  it("starts caches and informers first, then components in order, and stops in reverse", timed(function(_, client)
    local notes = {}
    client:put("/a/1", "x")
    local manager = new_manager { store = client }
    assert.equal(client, manager.store)
    local informer
    local first = component(notes, "first", {
      start = function() notes[#notes + 1] = tostring(informer:has_synced()) end,
      stop = function() notes[#notes + 1] = tostring(informer:error()) end })
    assert.equal(first, manager:add(first))
    manager:add(component(notes, "second"))
    informer = manager:add(client:informer("/a/"))
    local cache = manager:add(client:cache("/a/"))
    manager:add(component(notes, "free"), { leader = false })
    start_synced(manager, 10)
    assert.is_true(manager:has_synced() and cache:is_ready())
    assert.same({ "start free", "start first", "true", "start second" }, notes)
    assert.equal(client, first.store)
    assert.is_true(manager:stop())
    assert.same({ "stop second", "stop first", "nil", "stop free" }, { select(5, unpack(notes)) })
    assert.same({ "closed", "closed", true }, { informer:error().code, cache:status().phase, manager:join() })
  end))

  it("drains controllers: what is queued is worked on before the informer ends", managed(function(manager, _, client)
    local done = {}
    for i = 1, 20 do client:put("/a/" .. i, "x") end
    local informer = manager:add(client:informer("/a/"))
    manager:add(controller.new { name = "slow", sources = { informer }, reconcile = function(key, context)
      keywatch.sleep(0.5)
      assert.equal(client, context.store)
      assert(informer:get(key))
      done[#done + 1] = key
    end })
    start_synced(manager, 10)
    assert.is_true(manager:stop())
    assert.equal(20, #done)
  end))

  it("starts at once a component that is added after its start", managed(function(manager, notes, client)
    manager:add(component(notes, "a"))
    start_synced(manager)
    local late = assert(manager:add(client:informer("/a/")))
    manager:add(component(notes, "b", { start = function() notes[#notes + 1] = tostring(late:has_synced()) end }))
    assert.is_false(manager:has_synced())
    assert(manager:wait_synced(1))
    manager:stop()
    assert.same({ "start a", "start b", "true", "stop b", "stop a" }, notes)
  end))

  it("takes no components while it is being stopped", managed(function(manager)
    local late, err
    manager:add(component({}, "a", { stop = function() late, err = manager:add(component({}, "late")) end }))
    start_synced(manager)
    manager:stop()
    assert.equal("closed", answer.code(late, err))
    assert.equal("closed", answer.code(manager:add(component({}, "later"))))
    assert.equal("closed", answer.code(manager:load("any.lua")))
  end))

  it("can be started once", managed(function(manager)
    manager:add(component({}, "a"))
    manager:start()
    assert.error_matches(function() manager:start() end, "start: the manager is started")
    manager:stop()
    assert.error_matches(function() manager:start() end, "start: the manager was stopped")
    assert.same({ true, true }, { manager:stop(), manager:stop(0) })
  end))

  it("that was never started closes its caches when it is stopped", managed(function(manager, notes, client)
    manager:add(component(notes, "a"))
    local informer = manager:add(client:informer("/a/"))
    assert.equal("timeout", answer.code(manager:join(0)))
    assert.is_true(manager:stop())
    assert.same({ "closed", true }, { informer:error().code, (manager:join()) })
    assert.same({}, notes)
    assert.equal("closed", answer.code(manager:wait_synced()))
  end))

  it("reports its state", managed(function(manager, _, client)
    manager:add(client:informer("/a/"))
    manager:add(ticker("c"))
    assert.equal("keywatch.manager<2 components new>", tostring(manager))
    local status = manager:status()
    assert.same({ "new", false, true }, { status.state, status.has_synced, status.is_leader })
    start_synced(manager)
    status = manager:status()
    local one, two = unpack(status.components)
    assert.same({ "started", true }, { status.state, status.has_synced })
    assert.same({ "informer", "/a/", "started", false, true }, { one.kind, one.name, one.state, one.leader,
      one.has_synced })
    assert.same({ "controller", "c", "started", true, "running" }, { two.kind, two.name, two.state, two.leader,
      two.status.state })
    manager:stop()
    assert.equal("stopped", manager:status().state)
  end))
end)

describe("a failed start of a manager", function()
  for how, start in pairs {
    ["returns an error"] = function() return nil, "no luck" end,
    ["raises"] = function() error("no luck") end,
    ["returns false"] = function() return false, "no luck" end,
    ["waits, and raises"] = function()
      keywatch.sleep(5)
      error("no luck")
    end,
  } do
    it("half way stops the started components in reverse order: one " .. how, managed(function(manager, notes)
      for _, name in ipairs { "a", "b" } do manager:add(component(notes, name)) end
      manager:add(component(notes, "bad", { start = start }))
      manager:add(component(notes, "never"))
      manager:start()
      local ok, err = manager:wait_synced(10)
      assert.same({ nil, "internal" }, { ok, err.code })
      assert.matches("the component 'bad' could not be started: .*no luck", err.message)
      assert.same({ nil, err }, { manager:join() })
      assert.same({ "start a", "start b", "start bad", "stop b", "stop a" }, notes)
      assert.is_true(logs.has("error the manager ends: the component 'bad' could not be started"))
    end))
  end

  it("is not caused by an unusual result that means success", managed(function(manager, notes)
    manager:add(component(notes, "number", { start = function() return 7 end, stop = function() return "x" end }))
    start_synced(manager)
  end))

  it("names the informer that has not synced in time, and why", timed(function(world, client)
    world.server:stop()
    local notes = {}
    local manager = new_manager { store = client, sync_timeout = 5 }
    manager:add(client:informer("/a/"))
    manager:add(component(notes, "never"))
    manager:start()
    assert.equal("timeout", answer.code(manager:wait_synced(1)))
    local ok, err = manager:wait_synced(10)
    assert.same({ nil, "timeout" }, { ok, err.code })
    assert.matches("the informer '/a/' has not synced: .*127.0.0.1:2379", err.message)
    manager:join()
    assert.same({}, notes)
  end))

  it("is returned by join, too", managed(function(manager)
    manager:add(component({}, "bad", { start = function() error("no luck") end }))
    manager:start()
    keywatch.sleep(5)
    assert.matches("no luck", select(2, manager:join()).message)
    assert.equal("internal", answer.code(manager:run { signals = {} }))
  end))
end)

describe("a component that ends by itself", function()
  it("ends the manager with its error: a controller whose channel is closed", managed(function(manager, notes)
    manager:add(component(notes, "a"))
    local values = keywatch.channel(1)
    manager:add(controller.new { name = "c", sources = { values }, reconcile = function() end })
    start_synced(manager)
    values:close()
    local ok, err = manager:join(60)
    assert.same({ nil, "closed" }, { ok, err.code })
    assert.equal("keywatch: the controller 'c' has ended: source 1, a channel, has ended: the channel is closed",
      err.message)
    assert.same({ "start a", "stop a" }, notes)
  end))

  it("is only logged without an error: a controller that the program stops", managed(function(manager)
    local one = manager:add(ticker("one"))
    manager:add(ticker("two"))
    start_synced(manager)
    one:stop()
    keywatch.sleep(5)
    assert.is_true(logs.has("info the controller 'one' has been stopped by the program"))
    assert.equal("stopped", manager:status().components[1].state)
    assert.same({ true, true, true }, { (manager:is_healthy()), manager:has_synced(), manager:stop() })
  end))

  it("cannot be started by the program while it belongs to a manager", managed(function(manager, _, client)
    local one = manager:add(ticker("one"))
    local elector = manager:add(controller.elector { store = client, name = "/e" })
    assert.error_matches(function() one:start() end,
      "start: the controller 'one' belongs to a manager, which starts and stops it")
    assert.error_matches(function() one:run() end, "run: the controller 'one' belongs to a manager")
    assert.error_matches(function() elector:start() end, "start: the elector '/e' belongs to a manager")
    local other = new_manager { store = client }
    assert.error_matches(function() other:add(one) end, "add: the controller 'one' belongs to another manager")
    start_synced(manager)
    one:stop()
    elector:stop()
    keywatch.sleep(5)
    for _, thing_of in ipairs { one, elector } do assert.has_error(function() thing_of:start() end) end
    assert.is_true(manager:stop())
    assert.same({ "idle", "idle" }, { one:status().state, elector:status().state })
    one:start() -- it belongs to no manager
    one:stop()
    other:add(one)
    other:start()
    assert(other:wait_synced(1))
    assert.equal("running", one:status().state)
    assert.is_true(other:stop())
  end))

  it("is logged by its position without a name", managed(function(manager)
    manager:add(component({}, "a"))
    for _ = 1, 2 do manager:add { start = function() end, stop = function() error("no luck") end } end
    start_synced(manager)
    for i, name in ipairs { "a", "#2", "#3" } do assert.equal(name, manager:status().components[i].name) end
    local _, err = manager:stop()
    assert.matches("the component #3, the component #2$", err.message)
  end))

  it("is reported in its status", managed(function(manager)
    local failure
    manager:add(component({}, "t", { status = function() return { failure = failure } end }))
    start_synced(manager)
    failure = "out of paper"
    assert.matches("the component 't' has ended: out of paper", select(2, manager:join(10)).message)
  end))

  for _, method in ipairs { "informer", "cache" } do
    it("ends the manager if an object is closed with the method " .. method, managed(function(manager, _, client)
      local one = manager:add(client[method](client, "/a/"))
      start_synced(manager)
      one:close()
      assert.equal("closed", answer.code(manager:join(10)))
    end))
  end

  it("ends the manager if the store is closed", within.world(function(world)
    for _, store in ipairs { world:client(), keywatch.open() } do
      local notes = {}
      local manager = new_manager { store = store }
      local informer = manager:add(store:informer("/a/"))
      manager:add(component(notes, "a"))
      manager:add(controller.new { name = "c", sources = { informer }, reconcile = function() end })
      start_synced(manager, 5)
      store:close()
      assert.equal("closed", answer.code(manager:join(10)))
      assert.same({ "start a", "stop a" }, notes)
    end
  end))

  it("ends the manager if the store is closed, and there are only tables", timed(function(_, client)
    local notes = {}
    local manager = new_manager { store = client, election = "e" }
    manager:add(component(notes, "a"))
    manager:start()
    await(function() return notes[1] end)
    client:close()
    assert.equal("closed", answer.code(manager:join(60)))
    assert.same({ "start a", "stop a" }, notes)
  end))
end)

describe("the stop of a manager", function()
  it("interrupts a start: the waiting start is cancelled, and the others are stopped", managed(function(manager)
    local notes, raised = {}, nil
    manager:add(component(notes, "a"))
    manager:add(component(notes, "slow", { start = function()
      local ok, err = pcall(keywatch.sleep, 1000)
      raised = err
      if not ok then error(err, 0) end
    end }))
    manager:add(component(notes, "never"))
    manager:start()
    keywatch.sleep(1)
    assert.is_true(manager:stop() and keywatch.now() < 2)
    assert.same({ "cancelled", { "start a", "start slow", "stop a" }, true }, { raised.code, notes, manager:join() })
  end))

  it("interrupts the wait for an informer", managed(function(manager, _, client, world)
    world.server:stop()
    local informer = manager:add(client:informer("/a/"))
    manager:start()
    keywatch.sleep(1)
    assert.is_true(manager:stop() and keywatch.now() < 2)
    assert.equal("closed", informer:error().code)
  end))

  it("also stops the components that have started", managed(function(manager, notes)
    manager:add(component(notes, "stubborn", { start = function() pcall(keywatch.sleep, 1000) end }))
    manager:start()
    keywatch.sleep(1)
    assert.is_true(manager:stop())
    assert.same({ "start stubborn", "stop stubborn" }, notes)
  end))

  it("abandons a start that does not end", managed(function(manager, notes)
    manager:add(component(notes, "stubborn", { start = function()
      keywatch.shield(1000, keywatch.sleep, 1000)
    end }))
    manager:start()
    keywatch.sleep(1)
    manager:stop()
    assert.is_true(keywatch.now() < 2)
    assert.same({ "start stubborn", "stop stubborn" }, notes)
    assert.is_true(logs.has("the start of the component 'stubborn' ignores its cancellation"))
  end, { leftovers = "cancel" }))

  it("continues after a stop that raises, and logs that", managed(function(manager, notes)
    manager:add(component(notes, "a"))
    manager:add(component(notes, "raises", { stop = function() error("no luck") end }))
    manager:add(component(notes, "refuses", { stop = function() return nil, "too busy" end }))
    start_synced(manager)
    local ok, err = manager:stop()
    assert.same({ nil, "timeout" }, { ok, err.code })
    assert.matches("some components have not stopped properly: the component 'refuses', the component 'raises'",
      err.message)
    assert.same({ "stop refuses", "stop raises", "stop a" }, { select(4, unpack(notes)) })
    assert.is_true(logs.has("the component 'raises' has not stopped properly")
      and logs.has("the component 'refuses' has not stopped properly: too busy"))
    assert.is_true(manager:join()) -- it was asked to stop, and has
  end))

  -- An error that neither its fields nor its text can be asked of.
  local ODD = setmetatable({}, {
    __index = function() error("odd field") end, __tostring = function() error("odd text") end,
  })

  --- Raises the error of a task that was cancelled; the caller was not.
  local function raise_cancellation()
    local task = keywatch.spawn(keywatch.sleep, 1)
    task:cancel()
    local _, err = task:join()
    error(err, 0)
  end

  for what, fails in pairs {
    ["raises the cancellation of another task"] = raise_cancellation,
    ["raises an odd error"] = function() error(ODD) end,
    ["returns an odd error"] = function() return nil, ODD end,
  } do
    it("ends after one that " .. what, managed(function(manager, notes)
      manager:add(component(notes, "a", { stop = fails }))
      start_synced(manager)
      assert.equal("timeout", answer.code(manager:stop(5)))
      assert.same({ "start a", "stop a" }, notes)
    end))

    it("begins by itself after a start that " .. what, managed(function(manager, notes)
      manager:add(component(notes, "a", { start = fails }))
      manager:start()
      assert.matches("the component 'a' could not be started", select(2, manager:join(5)).message)
      assert.same({ "start a" }, notes)
    end))
  end

  for _, field in ipairs { "failure", "trouble" } do
    it("is not prevented by a status with an unusual " .. field, managed(function(manager)
      manager:add(component({}, "a", { status = function() return { [field] = ODD } end }))
      manager:add(component({}, "b", { status = function() return ODD end }))
      manager:start()
      keywatch.sleep(60)
      assert.same({ false, true }, { (manager:is_healthy()), manager:stop() })
    end))
  end

  it("is bounded in total, however many components hang: each gets its time, and then 0", timed(function(_, client)
    local received = {}
    local manager = new_manager { store = client, stop_timeout = 10 }
    for i = 1, 5 do
      manager:add(component({}, "t" .. i, { stop = function(timeout)
        received[#received + 1] = timeout
        while true do keywatch.sleep(100) end
      end }))
    end
    start_synced(manager)
    local before = keywatch.now()
    assert.equal("timeout", answer.code(manager:stop()))
    assert.is_true(keywatch.now() - before <= 10 + 1.5 + 5 * 0.2)
    assert.same({ 9, 0, 0, 0, 0, 0 }, received)
  end))

  it("abandons a component that continues after it was cancelled", managed(function(manager, notes)
    manager:add(component(notes, "a"))
    manager:add(component({}, "stubborn", { stop = function()
      keywatch.shield(1000, keywatch.sleep, 1000)
    end }))
    start_synced(manager)
    local before = keywatch.now()
    assert.equal("timeout", answer.code(manager:stop(5)))
    assert.is_true(keywatch.now() - before <= 5 + 1.5 + 0.4)
    assert.same({ "start a", "stop a" }, notes)
    assert.is_true(logs.has("the component 'stubborn' has not stopped properly: it ignores its cancellation"))
  end, { leftovers = "cancel" }))

  it("leaves time for other components: a hanging controller cannot use it up", timed(function(_, client)
    local left
    local manager = new_manager { store = client, stop_timeout = 10 }
    manager:add(component({}, "a", { stop = function(timeout) left = timeout end }))
    manager:add(ticker("hangs", function() keywatch.sleep(1000) end))
    manager:start()
    keywatch.sleep(2)
    assert.equal("timeout", answer.code(manager:stop()))
    assert.is_true(left > 0.9, left)
  end))

  it("may be called twice, and by several tasks", managed(function(manager)
    local stops = 0
    manager:add(component({}, "a", { stop = function()
      stops = stops + 1
      keywatch.sleep(5)
    end }))
    start_synced(manager)
    local tasks = {}
    for i = 1, 3 do tasks[i] = keywatch.spawn(manager.stop, manager) end
    for _, task in ipairs(tasks) do assert.same({ true, true }, { task:join() }) end
    assert.equal(1, stops)
  end))

  it("ends earlier on request: with 0 at once", managed(function(manager)
    local cancelled, received = 0, {}
    manager:add(ticker("hangs", function()
      local ok, err = pcall(keywatch.sleep, 1000)
      if not ok then cancelled = cancelled + 1 end
      error(err, 0)
    end))
    manager:add(component({}, "t", { stop = function(timeout)
      received[#received + 1] = timeout
      if timeout > 0 then keywatch.sleep(1000) end
    end }))
    manager:start()
    keywatch.sleep(2)
    local task = keywatch.spawn(manager.stop, manager)
    keywatch.sleep(1)
    local before = keywatch.now()
    assert.equal("timeout", answer.code(manager:stop(0)))
    assert.is_true(keywatch.now() - before < 1 and task:join())
    assert.same({ 1, { 28, 0 } }, { cancelled, received })
  end))

  it("may be called by reconcile, by a handler, and by a start and a stop", timed(function(_, client)
    client:put("/a/1", "x")
    local results = {}
    for i, add in ipairs {
      function(manager, stop) manager:add(ticker("c", stop)) end,
      function(manager, stop) manager:add(client:informer("/a/")):add_handler { add = stop } end,
      function(manager, stop) manager:add(component({}, "t", { start = stop })) end,
      function(manager, stop)
        manager:add(component({}, "t", { stop = stop }))
        keywatch.spawn(function()
          manager:wait_synced()
          manager:stop()
        end)
      end,
    } do
      local manager = new_manager { store = client }
      manager:add(component({}, "beside"))
      add(manager, function() results[#results + 1] = manager:stop() end)
      manager:start()
      local before = keywatch.now()
      assert.is_true(manager:join(60))
      assert.is_true(keywatch.now() - before < 5, "number " .. i)
      await(function() return #results == i end)
    end
    assert.same({ true, true, true, true }, results)
  end))
end)

describe("a manager with an election", function()
  --- Two managers of one election, with a client and notes each.
  local function pair(world, opts)
    local list = {}
    for i = 1, 2 do
      local one = { client = world:client(), notes = {} }
      local own = { store = one.client, election = "/e", id = "id" .. i, ttl = 9 }
      for name, value in pairs(opts or {}) do own[name] = value end
      one.manager = new_manager(own)
      list[i] = one
    end
    return list[1], list[2]
  end

  it("starts components that need the leadership when it leads, and resigns after their stop", timed(function(world)
    local a, b = pair(world)
    for _, one in ipairs { a, b } do
      one.manager:add(component(one.notes, "led", { stop = function()
        keywatch.sleep(2)
        one.notes[#one.notes + 1] = "leads " .. tostring(one.manager:status().is_leader)
      end }))
      one.manager:add(component(one.notes, "free"), { leader = false })
      start_synced(one.manager, 5)
      keywatch.sleep(1)
    end
    assert.same({ { "start free", "start led" }, { "start free" }, true }, { a.notes, b.notes, b.manager:has_synced() })
    for i, one in ipairs { a, b } do
      local status = one.manager:status()
      assert.same({ i == 1, "id1", "id" .. i }, { status.is_leader, status.leader, status.id })
    end
    assert.is_true(a.manager:stop())
    assert.same({ "stop led", "leads true", "stop free" }, { select(3, unpack(a.notes)) })
    keywatch.sleep(1) -- much less than the ttl
    assert.same({ "start free", "start led" }, b.notes)
  end))

  it("can be waited for", timed(function(world)
    for i = 1, 2 do
      managers[i] = controller.manager { store = world:client(), election = "/e", id = "m" .. i }
      assert.equal("closed", answer.code(managers[i]:wait_leading()))
      start_synced(managers[i])
      if i == 1 then assert.is_true(managers[i]:wait_leading()) end
    end
    keywatch.sleep(1)
    local _, err = managers[2]:wait_leading(5)
    assert.equal("timeout", err.code)
    assert.matches("this process does not lead '/e' yet: the leader is 'm1'", err.message)
    local waiting = keywatch.spawn(managers[2].wait_leading, managers[2])
    managers[1]:stop()
    assert.same({ true, true }, { waiting:join(), managers[2]:status().is_leader })
    managers[2]:stop()
    assert.equal("closed", answer.code(managers[2]:wait_leading()))
    local alone = new_manager { store = world:client() }
    alone:start()
    assert.is_true(alone:wait_leading(0))
  end))

  it("gives components the fence: reads always, writes while it leads", timed(function(world)
    local a, b = pair(world)
    local led = a.manager:add(component({}, "led"))
    local free = a.manager:add(component({}, "free"), { leader = false })
    local used
    a.manager:add(ticker("c", function(_, context) used = context.store end))
    a.manager:start()
    await(function() return used end)
    b.manager:add(component({}, "led"))
    start_synced(b.manager)
    assert.equal(a.client, free.store)
    for i, store in ipairs { a.manager.store, led.store, used } do assert(store:put("/x", tostring(i))) end
    assert.equal("3", b.manager.store:get("/x").value)
    assert.equal("lost", answer.code(b.manager.store:put("/x", "4")))
    a.manager:stop()
    for _, store in ipairs { a.manager.store, led.store } do assert.equal("lost", answer.code(store:put("/x", "5"))) end
    await(function() return b.manager:status().is_leader end)
    assert(b.manager.store:put("/x", "6"))
  end))

  it("stops those components when the leadership is lost, and restarts them when it leads again", timed(function(world)
    local a = pair(world)
    local runs, stores = 0, {}
    local dropped = a.manager:add(ticker("c", function(_, context)
      runs = runs + 1
      stores[#stores + 1] = context.store
      keywatch.sleep(0.5)
    end))
    a.manager:add(component(a.notes, "led"))
    a.manager:add(component(a.notes, "free"), { leader = false })
    a.manager:start()
    await(function() return runs > 0 and a.notes[2] end)
    for _ = 1, 100 do dropped:add(tostring(_)) end
    local before = a.manager:metrics()
    world.server:lose_lease(world.server.store:leases()[1])
    await(function() return a.notes[4] end)
    assert.same({ "start free", "start led", "stop led", "start led" }, a.notes)
    local first = stores[1]
    await(function() return stores[#stores] ~= first end)
    assert.equal("lost", answer.code(first:put("/x", "1"))) -- of the term before
    assert(stores[#stores]:put("/x", "1"))
    local function adds(text) return tonumber(text:match('work_queue_adds_total{controller="c"} (%d+)')) end
    local now = adds(a.manager:metrics())
    assert.is_true(adds(before) <= now and now > 100 and a.manager:is_healthy())
  end))

  it("stops those components before the leadership is lost, and restarts them if it is not", timed(function(world)
    local a = pair(world)
    local at = {}
    a.manager:add(component(a.notes, "led", { stop = function(timeout)
      at[#at + 1], at.timeout = keywatch.now(), at.timeout or timeout
    end }))
    a.manager:start()
    await(function() return a.notes[1] end)
    keywatch.sleep(10)
    local since = keywatch.now()
    world:isolate(a.client)
    await(function() return a.notes[2] end)
    assert.is_true(at[1] - since <= 6 and at.timeout < 3) -- two thirds of the ttl
    assert.same({ false, "id1" }, { a.manager:status().is_leader, a.manager:status().leader })
    world:join(a.client)
    await(function() return a.notes[3] end)
    assert.same({ "start led", "stop led", "start led" }, a.notes)
    assert.matches('elector_terms_total{election="/e"} 1\n', a.manager:metrics())
  end))

  it("stops those components before the leadership is lost, however the time is rounded", function()
    for i = 1, 40 do -- times of the day; the differences of some of them are rounded up, and of others down
      managers = {}
      testing.run(function(world)
        local a = pair(world, { ttl = 5 }) -- a third of 5 has no exact double
        a.manager:add(component(a.notes, "led"))
        a.manager:start()
        await(function() return a.notes[1] end)
        world:isolate(a.client)
        await(function() return a.notes[2] end)
        world:join(a.client)
        a.manager:stop()
      end, { now = 60 + i / 24 + i, turns = 5000 })
    end
  end)

  it("drops queued requests if the leadership is lost while it stops", timed(function(world)
    local a = pair(world, { stop_timeout = 1000 })
    local done = 0
    local one = a.manager:add(ticker("c", function()
      keywatch.sleep(1)
      done = done + 1
    end))
    a.manager:start()
    await(function() return one:has_synced() end)
    for i = 1, 100 do one:add(i) end
    local task = keywatch.spawn(function() return a.manager:stop() end)
    keywatch.sleep(3)
    world.server:lose_lease(world.server.store:leases()[1])
    assert.same({ true, true }, { task:join(15) })
    assert.is_true(done < 20, done)
  end))

  it("fails if a component that needs the leadership does not stop", timed(function(world)
    local a = pair(world)
    a.manager:add(ticker("c", function() keywatch.shield(1000, keywatch.sleep, 1000) end))
    a.manager:start()
    await(function()
      local status = a.manager:status().components[2].status
      return status and status.busy == 1
    end)
    world.server:lose_lease(world.server.store:leases()[1])
    local ok, err = a.manager:join(60)
    assert.same({ nil, "internal" }, { ok, err.code })
    assert.matches("the controller 'c' needs a leadership that is lost, and has not stopped", err.message)
  end, { leftovers = "cancel" }))

  it("is stopped at once while it waits for the leadership", timed(function(world)
    local a, b = pair(world)
    a.manager:start()
    await(function() return a.manager:status().is_leader end)
    b.manager:add(component(b.notes, "led"))
    start_synced(b.manager)
    local before = keywatch.now()
    assert.is_true(b.manager:stop() and keywatch.now() - before < 1)
    assert.same({}, b.notes)
  end))

  it("refuses a controller whose writes would carry no fence", timed(function(world)
    local a = pair(world)
    local other = world:client()
    assert.error_matches(function() a.manager:add(ticker("c", nil, { store = other })) end,
      "add: the controller 'c' has a store of its own, whose writes do not carry the fence")
    a.manager:add(ticker("c", nil, { store = other }), { leader = false })
    a.manager:add(ticker("d", nil, { store = a.client }))
    local own = a.manager.store:namespace("/n/")
    local given
    a.manager:add(ticker("e", function(_, context) given = context.store end, { store = own }))
    a.manager:start()
    await(function() return given end)
    assert.equal(own, given)
    assert(own:put("x", "1"))
    a.manager:stop()
    assert.equal("lost", answer.code(own:put("x", "1")))
  end))
end)

describe("the health of a manager", function()
  local function texts(manager)
    local is_healthy, list = manager:is_healthy()
    assert.equal(#list == 0, is_healthy)
    return table.concat(list, "\n")
  end

  it("is good while all components work, and follows the state", managed(function(manager)
    manager:add(ticker("c"))
    assert.equal("the manager is not started", texts(manager))
    start_synced(manager)
    assert.equal("", texts(manager))
    manager:stop()
    assert.equal("the manager has stopped", texts(manager))
  end))

  it("includes informers and connections that fail for long", managed(function(manager, _, client, world)
    manager:add(client:informer("/a/"))
    manager:add(client:cache("/a/"))
    start_synced(manager, 5)
    world.server:stop()
    keywatch.sleep(5)
    assert.equal("", texts(manager))
    keywatch.sleep(60)
    assert.matches("the informer '/a/': .*127.0.0.1:2379", texts(manager))
    assert.matches("the cache '/a/': .*127.0.0.1:2379", texts(manager))
    assert.matches("the client has had no usable server for %d+ s: .*127.0.0.1:2379", texts(manager))
    world.server:start()
    keywatch.sleep(60)
    assert.equal("", texts(manager))
  end))

  it("includes a worker past its deadline, and a start that takes long", managed(function(manager)
    manager:add(ticker("c", function() keywatch.shield(30, keywatch.sleep, 30) end, { timeout = 2 }))
    manager:add(component({}, "slow", { start = function() keywatch.sleep(60) end }))
    manager:start()
    keywatch.sleep(5)
    assert.matches("^the controller 'c': it has worked on a request for [%d.]+ s, longer than its timeout$",
      texts(manager))
    keywatch.sleep(35)
    assert.matches("the component 'slow' has not been started for %d+ s", texts(manager))
  end, { leftovers = "cancel" }))

  it("includes tables that raise, have trouble, or have not synced", managed(function(manager)
    manager:add(component({}, "a", { status = function() error("no luck") end }))
    manager:add(component({}, "b", { status = function() return { trouble = "no ink" } end }))
    manager:add(component({}, "c", { has_synced = function() return false end }))
    manager:add(component({}, "d", { status = function() return 7 end, has_synced = function() keywatch.sleep(1) end }))
    manager:start()
    keywatch.sleep(60)
    local text = texts(manager)
    for _, pattern in ipairs {
      "the component 'a': its method 'status' has raised: .*no luck", "the component 'b': no ink",
      "the component 'c' has not synced for 60 s",
      "the component 'd' has not synced for 60 s: its method 'has_synced' has raised: .* waits",
    } do assert.matches(pattern, text) end
    assert.is_false(manager:has_synced())
  end))

  it("answers at once when a component's method waits", managed(function(manager)
    manager:add(component({}, "a", { has_synced = function()
      keywatch.sleep(0.001)
      return true
    end }))
    manager:add(component({}, "b", { has_synced = coroutine.yield }))
    manager:start()
    local _, err = manager:wait_synced(1)
    assert.matches("has not synced yet: the component 'a': its method 'has_synced' has raised: .* waits", err.message)
    assert.matches("the component 'a': its method 'has_synced' has raised: .* waits.*\n"
      .. "the component 'b': its method 'has_synced' has raised: it yields", texts(manager))
  end))

  it("has the manager's failure", managed(function(manager)
    manager:add(component({}, "a", { start = function() error("no luck", 0) end }))
    manager:start()
    manager:join()
    assert.matches("^the manager has failed: the component 'a' could not be started: no luck.*\n"
      .. "the component 'a' has failed$",
      texts(manager))
  end))
end)

describe("a signal", function()
  it("is the first one though the manager is being stopped; the second one cuts that short", timed(function(_, client)
    local manager, signals = new_manager { store = client }, keywatch.channel(1)
    manager:add(component({}, "slow", { stop = keywatch.sleep }))
    start_synced(manager, 5)
    local attending = keywatch.spawn(require("keywatch.controller.manager").attend, {
      manager = manager, signals = { wait = function() return signals:receive() end },
    })
    local stopping = keywatch.spawn(manager.stop, manager, 20)
    keywatch.sleep(1)
    signals:send("TERM")
    keywatch.sleep(10)
    assert.same({ "stopping", false }, { manager:status().state, (logs.has("stopping at once")) })
    signals:send("TERM")
    stopping:join()
    assert.same({ true, true }, { keywatch.now() < 13, (logs.has("SIGTERM: stopping at once")) })
    attending:cancel()
  end))
end)

describe("a handler whose function hangs", function()
  for _, beside in ipairs { "controller", "handler" } do
    it("is reported within seconds by its name, and blocks no other " .. beside .. " up", timed(function(_, client)
      local gate, received, seen = keywatch.channel(), 0, {}
      local lamps, others = client:informer("/lamp/"), client:informer("/lamp/")
      lamps:add_handler {
        name = "dimmer", max_bytes = 2 ^ 16,
        add = function(_, _, event)
          gate:receive()
          received = received + (event.missed and 1 or 0)
        end,
      }
      local manager = new_manager { store = client }
      manager:add(lamps)
      if beside == "controller" then
        manager:add(controller.new {
          name = "c", sources = { others }, reconcile = function(key) seen[key] = others:get(key):sub(1, 1) end,
        })
      else
        others:add_handler { add = function(key, value) seen[key] = value:sub(1, 1) end }
      end
      start_synced(manager, 5)
      local begun = keywatch.now()
      for i = 1, 40 do client:put("/lamp/" .. i, ("x"):rep(2 ^ 12)) end
      while not seen["/lamp/40"] do keywatch.sleep(0.1) end
      assert.is_true(keywatch.now() < begun + (beside == "controller" and 1 or 6))
      keywatch.sleep(begun + 7 - keywatch.now())
      local healthy, texts = manager:is_healthy()
      assert.is_false(healthy)
      assert.matches("the informer '/lamp/': a call of 'dimmer' has not returned for %d s", texts[1])
      assert.same({ "dimmer" }, { next(lamps:status().stuck), nil })
      assert.is_true(logs.has("the handler 'dimmer' of the informer of '/lamp/' has not returned for 5 s"))
      for kind in manager:metrics():gmatch "keywatch_(%l+)_stuck_seconds{%l+=\"[^\"]+\",handler=\"dimmer\"} %d" do
        seen[kind] = true
      end
      assert.same({ true, beside == "controller" or nil }, { seen.informer, seen.controller })
      gate:close()
      keywatch.sleep(1)
      assert.same({ true, {} }, { manager:is_healthy() })
      assert.is_true(logs.has("the handler 'dimmer' of the informer of '/lamp/' continues, after"))
      assert.is_true(received > 10, received) -- of those beyond its bound, which it could have missed
      assert.equal(40, lamps:count())
      manager:stop()
    end))
  end

  for _, where in ipairs { "its first call", "a transform", "an index", "a controller's map" } do
    it("is reported in the place " .. where, managed(function(manager, _, client)
      local gate = keywatch.channel()
      local function hang(object)
        gate:receive()
        return object
      end
      client:put("/lamp/1", "on")
      local lamps = client:informer("/lamp/", {
        transform = where == "a transform" and hang or nil, indexes = where == "an index" and { i = hang } or nil,
      })
      if where == "its first call" then lamps:add_handler { add = hang } end
      manager:add(lamps)
      if where == "a controller's map" then
        manager:add(controller.new { name = "c", sources = { { lamps, map = hang } }, reconcile = function() end })
      end
      manager:start()
      keywatch.sleep(8)
      local names = { ["its first call"] = "manager_spec.lua:%d+", ["a controller's map"] = "source of the controller" }
      assert.matches(names[where] or "%(the informer%)", (next(lamps:status().stuck)))
      assert.same({ false, true }, { manager:is_healthy(), (logs.has("has not returned for 5 s")) })
      gate:close()
      keywatch.sleep(1)
      assert.is_true((manager:is_healthy()))
    end))
  end
end)

describe("a controller file", function()
  local function write(text) return files.write(directory.new() .. "/file.lua", text) end

  it("is called with the manager and the arguments, and adds components", managed(function(manager, _, client)
    local path = write [[
      local controller = require "keywatch.controller"
      return function(manager, name, value)
        local informer = manager:add(manager.store:informer("/a/"))
        manager:add(controller.new { name = name, sources = { informer }, reconcile = function(key, context)
          return context.store:put("/b/" .. key:sub(4), value)
        end })
      end]]
    assert.is_true(manager:load(path, "copy", "7"))
    assert.equal("copy", manager:status().components[2].name)
    manager:start()
    client:put("/a/x", "")
    assert.equal("7", await(function() return client:get("/b/x") end).value)
  end))

  local BAD = {
    { "does not exist", nil, "does not load: .*No such file" },
    { "has a syntax error", "return function(", "does not load: .*file.lua:1" },
    { "returns no function", "return {}", "must return a function, .* has returned a table" },
    { "returns nothing", "local x = 1", "must return a function, .* has returned nothing" },
    { "raises", "error 'no luck'", "has failed: .*no luck" },
    { "has a function that raises", "return function() local x = nil + 1 end", "has failed: .*file.lua:1.*traceback" },
    { "has a function that returns an error", "return function() return nil, 'no luck' end", "has failed: no luck" },
    { "has a function that returns false", "return function() return false end", "has failed: .*returned false" },
    { "adds nothing", "return function() end", "adds nothing to the manager" },
    { "adds something, and fails", [[
      return function(manager)
        manager:add { start = function() error "it was started" end, stop = function() end }
        informer = manager:add(manager.store:informer("/a/"))
        error "no luck"
      end]], "has failed: .*no luck" },
    { "raises the cancellation of another task", [[
      local keywatch = require "keywatch"
      return function()
        local task = keywatch.spawn(keywatch.sleep, 1)
        task:cancel()
        error(select(2, task:join()), 0)
      end]], "has failed: .*cancelled" },
  }

  for _, bad in ipairs(BAD) do
    it("that " .. bad[1] .. " is an error, and adds nothing", managed(function(manager)
      local path = bad[2] and write(bad[2]) or "/no/such/file.lua"
      local ok, err = manager:load(path)
      assert.same({ nil, "failed_precondition" }, { ok, err.code })
      assert.matches("^keywatch: the controller file '" .. path:gsub("%p", "%%%0") .. "' " .. bad[3], err.message)
      assert.equal(0, #manager:status().components)
      local informer = rawget(_G, "informer")
      if informer then assert.equal("closed", informer:error().code) end
      rawset(_G, "informer", nil)
    end))
  end

  it("is refused a wait for the manager, which would be a wait for itself", timed(function(_, client)
    for name, call in pairs { run = "run()", join = "join()" } do
      local path = write(([[return function(manager)
        manager:add { start = function() end, stop = function() end }
        manager:%s
      end]]):format(call))
      local manager = new_manager { store = client }
      local ok, err = manager:load(path)
      assert.is_nil(ok)
      assert.matches(":3: " .. name .. ": components that a controller file adds are started when its function has "
        .. "returned", err.message)
      assert.same({}, manager:status().components)
      assert.is_true(manager:stop())
    end
  end))

  it("starts nothing before it has returned, even if it waits", managed(function(manager, notes)
    local path = write [[
      local keywatch = require "keywatch"
      return function(manager, component, inner)
        manager:add(component)
        keywatch.sleep(5)
        if inner then assert(manager:load(inner, component.other)) end
        keywatch.sleep(5)
      end]]
    manager:add(component(notes, "before"))
    manager:start()
    local one = component(notes, "loaded")
    one.other = component(notes, "inner")
    local task = keywatch.spawn(function() return manager:load(path, one, path) end)
    keywatch.sleep(1)
    manager:add(component(notes, "other"))
    keywatch.sleep(13)
    assert.same({ "start before", "start other" }, notes)
    assert.same({ true, true }, { task:join() })
    assert(manager:wait_synced(1))
    assert.same({ "start before", "start other", "start loaded", "start inner" }, notes)
  end))
end)

describe("a manager in real time", function()
  --- Runs a program with a manager that has a controller `c`, which prints its requests. Returns status and output.
  local function run(text)
    return program.run([[
      local keywatch = require "keywatch"
      local controller = require "keywatch.controller"
      local store = keywatch.open()
      store:put("/a/1", "")
      local manager = controller.manager { store = store, stop_timeout = 20 }
      local informer = manager:add(store:informer("/a/"))
      local on_request = function() end
      manager:add(controller.new { name = "c", sources = { informer }, reconcile = function(key)
        print(key)
        return on_request(key)
      end })
      local function kill(name) io.popen("kill -" .. name .. " " .. require("keywatch.core").pid()):close() end
      ]] .. text)
  end

  local function prints(title, expected, text)
    it(title, function() assert.same({ 0, expected }, { run(text) }) end)
  end

  for where, text in pairs {
    ["at top level"] = "print((manager:run()))",
    ["in a task"] = "keywatch.run(function() print((manager:run())) end)",
    ["in luv's loop"] = [[
      local uv = require "luv"
      keywatch.driver "luv"
      keywatch.spawn(function() print((manager:run())) end)
      uv.run()
    ]],
    ["with its own signals"] = 'print((manager:run { signals = { "TERM", "INT", "USR1" } }))',
  } do
    it(("runs %s until a signal comes"):format(where), function()
      for _, name in ipairs { "TERM", "INT" } do
        assert.same({ 0, "/a/1\ntrue\nidle\n" }, { run(([[
          on_request = function() kill "%s" end
          require("keywatch.support.log").set_level "fatal"
          %s
          print(manager:status().components[2].status.state)
        ]]):format(name, text)) })
      end
    end)
  end

  prints("runs without signals", "/a/1\ntrue\n", [[
    on_request = function() manager:stop() end
    print((manager:run { signals = {} }))
  ]])

  prints("ends at once with a second signal", "/a/1\ncancelled\ntrue\n", [[
    on_request = function()
      keywatch.spawn(function()
        kill "TERM"
        while manager:status().state ~= "stopping" do keywatch.sleep(0.001) end
        kill "TERM"
      end)
      local _, err = pcall(keywatch.sleep, 1000)
      print(err.code)
      error(err, 0)
    end
    require("keywatch.support.log").set_level "fatal"
    print((manager:run()))
  ]])

  it("restores the signals afterwards", function()
    local status = run [[
      on_request = function() manager:stop() end
      manager:run()
      kill "TERM"
      keywatch.sleep(10)
    ]]
    assert.equal(143, status)
  end)

  prints("continues in the next keywatch.run", "/a/1\nstarted\n/a/2\nstopped\n", [[
    manager:start()
    keywatch.run(function() keywatch.sleep(0) end)
    keywatch.run(function() manager:wait_synced() keywatch.sleep(0.05) end)
    print(manager:status().state)
    local arrived = keywatch.channel(1)
    on_request = function(key) arrived:send(key) end
    keywatch.run(function()
      store:put("/a/2", "")
      arrived:receive()
    end)
    local task
    keywatch.run(function() task = keywatch.spawn(function() manager:stop() end) keywatch.sleep(0) end)
    keywatch.run(function() manager:join() end)
    print(manager:status().state)
  ]])

  it("continues after a keywatch.run that has ended before the manager could begin, however many others there are",
    function()
      assert.same({ 0, "/a/1\nstopped\n" }, { run [[
        for i = 1, 50 do
          controller.new { name = "idle", sources = { keywatch.channel() }, reconcile = function() end }:start()
        end
        keywatch.run(function() keywatch.sleep(0.01) end)
        print(select(2, pcall(keywatch.run, function()
          manager:start()
          error("/a/1", 0)
        end)))
        manager:stop(0)
        print(manager:status().state)
      ]] })
    end)

  it("continues in the child after a fork; with an election, when the parent has ended", function()
    local _, printed = program.run_forking [[
      local controller = require "keywatch.controller"
      require("keywatch.support.log").set_level "fatal"
      local server = assert(keywatch.serve { open = {}, listen = "http://127.0.0.1:0", thread = true })
      local client = keywatch.connect(server:addresses()[1])
      local parent = core.pid()
      local function say(...)
        print(core.pid() == parent and "parent" or "child", ...)
        io.stdout:flush()
      end
      local manager = controller.manager { store = client, election = "/e", ttl = 2 }
      local started_by
      manager:add {
        start = function(_, store)
          say("starts", store:put("/x", "") ~= nil)
          started_by = core.pid()
        end,
        stop = function() say "stops" end,
      }
      manager:start()
      while not started_by do keywatch.sleep(0.01) end
      fork()
      if core.pid() == parent then
        keywatch.sleep(0.1)
        manager:stop()
        say("has stopped")
        wait()
      else
        while started_by == parent do keywatch.sleep(0.01) end
        manager:stop()
        say("has stopped")
      end
      os.exit(0)
    ]]
    local lines = { parent = {}, child = {} }
    for who, what in printed:gmatch("(%l+)\t([^\n]*)\n") do table.insert(lines[who], what) end
    assert.same({ parent = { "starts\ttrue", "stops", "has stopped" },
      child = { "stops", "starts\ttrue", "stops", "has stopped" } }, lines)
  end)

  prints("begins to stop if the task that runs it is cancelled", "/a/1\ncancelled\ntrue\n", [[
    keywatch.run(function()
      local task
      local asked = keywatch.channel(1)
      on_request = function() asked:send(true) end
      task = keywatch.spawn(function() manager:run { signals = {} } end)
      asked:receive()
      task:cancel()
      print(select(2, task:join()).code)
      print((manager:join()))
    end)
  ]])
end)
