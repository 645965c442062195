--- Electors: they take part in elections, and call functions when they lead.

local controller = require "keywatch.controller"
local core = require "keywatch.core"
local keywatch = require "keywatch"
local testing = require "keywatch.testing"

local answer = require "spec.support.answer"
local await = require "spec.support.await"
local logs = require "spec.support.logs"
local program = require "spec.support.program"
local within = require "spec.support.within"

local NEVER = 1e6 -- seconds

local running -- electors, to be stopped at the end of the test

before_each(function()
  running = {}
  logs.begin()
end)

after_each(logs.finish)

--- Declares a test in a world. Stops all electors at the end, and checks that no code of an elector has raised: an
-- elector logs the error, and ends.
local function test(name, fn)
  it(name, within.world(function(world)
    fn(world)
    for _, one in ipairs(running) do one:stop() end
    assert.equal(0, logs.count("attempt to "))
  end))
end

--- Returns an elector, and the list in which its functions note their calls. Options: as of controller.elector; `lead`
-- is called by on_lead.
local function elector(store, id, opts)
  opts = opts or {}
  local seen, is_running = {}, false
  local self
  local on_lead = opts.lead or function() keywatch.sleep(NEVER) end
  self = controller.elector {
    store = store, name = "e", id = id, ttl = opts.ttl or 15,
    on_lead = function(fence, leadership)
      assert(not is_running, "on_lead runs twice at the same time")
      is_running = true
      seen[#seen + 1] = "lead"
      local ok, err = pcall(on_lead, fence, leadership, self)
      is_running = false
      seen[#seen + 1] = "end"
      if not ok then error(err, 0) end
    end,
    on_lose = opts.on_lose or function(err) seen[#seen + 1] = "lose " .. tostring(err.code or err) end,
    on_leader = opts.on_leader or function(leader) seen[#seen + 1] = "sees " .. leader end,
  }
  running[#running + 1] = self
  return self, seen
end

--- Returns two electors of the same election, with separate clients; and the calls of the first one.
local function two(world, opts_a, opts_b)
  local a, seen = elector(world:client(), "a", opts_a)
  return a, elector(world:client(), "b", opts_b), seen
end

local function await_leader(elected)
  await(function() return elected:is_leader() end)
end

--- Starts an elector, and waits until it leads.
local function lead(elected)
  elected:start()
  await_leader(elected)
end

local function keys(store) return store:range("e/", { prefix = true, count_only = true }).count end

local function lose_lease(world) world.server:lose_lease(world.server.store:leases()[1]) end

--- The state of an elector: its name, whether it leads, and its number of terms.
local function state_of(one) return { one:status().state, one:is_leader(), one:status().terms } end

describe("An elector", function()
  for _, kind in ipairs { "client", "store", "namespace", "namespace of a client" } do
    test("leads, and its successor leads as soon as it is stopped, on a " .. kind, function(world)
      local function owner()
        if kind == "client" then return world:client() end
        if kind == "store" then return world.server.store end
        return (kind == "namespace" and world.server.store or world:client()):namespace("space/")
      end
      local a, seen_a = elector(owner(), "a")
      local b, seen_b = elector(owner(), "b")
      assert.same({ "idle", false, nil }, { a:status().state, a:is_leader(), a:leader() })
      lead(a)
      b:start()
      await(function() return b:leader() == "a" end)
      assert.same({ "leading", "waiting" }, { a:status().state, b:status().state })
      local prefix = kind:find("namespace") and "space/e/" or "e/"
      assert.equal(2, world.server.store:range(prefix, { prefix = true }).count)
      local before = keywatch.now()
      assert.is_true(a:stop() and before == keywatch.now())
      assert.same({ "idle", false, nil }, { a:status().state, a:is_leader(), a:leader() })
      await_leader(b)
      assert.is_true(keywatch.now() - before < 1)
      assert.same({ "sees a", "lead", "end", "lose cancelled" }, seen_a)
      assert.same({ "sees a", "sees b", "lead" }, seen_b)
      assert.is_true(b:stop())
      assert.equal(0, world.server.store:range(prefix, { prefix = true }).count)
      assert.same({}, world.server.store:leases())
    end)
  end

  test("is started once, and can be started again after it was stopped", function(world)
    local a = elector(world:client(), "a")
    for i = 1, 3 do
      a:start()
      assert.error_matches(function() a:start() end, "the elector 'e' is started")
      await_leader(a)
      assert.equal(i, a:status().terms)
      assert.is_true(a:stop())
      assert.is_true(a:stop())
      assert.is_true(a:join())
      assert.same({}, world.server.store:leases())
    end
    a:start()
    assert.is_true(a:stop()) -- before its task has begun
    assert.equal(0, keys(world.server.store))
  end)

  test("that waits for its turn leaves no key when it is stopped", function(world)
    local a, b = two(world)
    lead(a)
    b:start()
    await(function() return keys(world.server.store) == 2 end)
    assert.is_true(b:stop())
    assert.same({ 1, 1 }, { keys(world.server.store), (#world.server.store:leases()) })
  end)

  test("keeps its leadership after on_lead has returned, and does nothing else", function(world)
    local a, seen = elector(world:client(), "a", { lead = function() end })
    lead(a)
    keywatch.sleep(1000)
    assert.same({ true, 1, false }, { a:is_leader(), a:status().terms, a:status().is_busy })
    assert(a:fence():put("x", "1"))
    assert.is_true(a:stop())
    assert.same({ "sees a", "lead", "end", "lose cancelled" }, seen)
  end)

  test("needs no functions: it leads, and has a fence", function(world)
    local a = controller.elector { store = world:client(), name = "e" }
    lead(a)
    assert(a:fence():put("x", "1"))
    assert.is_truthy(a:leader():match("^.+:" .. core.pid() .. "$"))
  end)

  describe("has a fence for all of its terms", function()
    test("that reads always, and writes only while it leads", function(world)
      local server = world.server
      server.store:put("x", "{}")
      local a, b = two(world)
      local fence = a:fence()
      assert.equal(fence, a:fence())
      local function refused()
        assert.same({ "lost", "lost", "lost", "lost", "lost" }, {
          answer.code(fence:put("x", "bad")), answer.code(fence:delete("x")),
          answer.code(fence:txn { success = { { delete = "x" } } }),
          answer.code(controller.ownership.delete(fence, "x")),
          answer.code(controller.ownership.add_finalizer(fence, "x", "a")),
        })
        assert.equal("{}", fence:get("x").value)
      end
      refused()
      lead(b)
      a:start()
      await(function() return keys(server.store) == 2 end)
      refused()
      b:stop()
      await_leader(a)
      assert(fence:put("y", "1"))
      server.store:delete(server.store:range("e/", { prefix = true }).kvs[1].key) -- another client deletes it
      refused()
      assert.is_false(a:is_leader())
      await_leader(a)
      assert.equal(2, a:status().terms)
      assert(fence:put("y", "2"))
      a:stop()
      refused()
    end)

    test("and one for each term, by which a late write fails though this process leads again", function(world)
      local fences = {}
      local a = elector(world:client(), "a", { lead = function(fence)
        fences[#fences + 1] = fence
        assert(fence:put("x", "of term " .. #fences))
        keywatch.sleep(NEVER)
      end })
      a:start()
      await(function() return #fences == 1 end)
      lose_lease(world)
      await(function() return #fences == 2 end)
      keywatch.sleep(1)
      assert.same({ "lost", true }, { answer.code(fences[1]:put("x", "late")), a:is_leader() })
      assert(fences[2]:put("y", "1"))
      assert.equal("of term 2", world.server.store:get("x").value)
    end)

    test("whose late write does not end the next term", function(world)
      local a = elector(world:client(), "a")
      lead(a)
      world:fault { "delay", seconds = 5, method = "txn", key = "x", count = 1 }
      local writing = keywatch.spawn(function() return a:fence():put("x", "late") end)
      keywatch.sleep(1)
      lose_lease(world)
      await(function() return a:status().terms == 2 and a:is_leader() end)
      assert.equal("lost", answer.code(select(2, writing:join())))
      assert.is_true(a:is_leader()) -- the failure of the old term's write ends no new term
      assert.is_nil(world.server.store:get("x"))
    end)
  end)

  describe("whose leadership is lost", function()
    for name, lose in pairs {
      ["with its lease"] = lose_lease,
      ["because its key was deleted"] = function(world)
        local store = world.server.store
        store:delete(store:range("e/", { prefix = true }).kvs[1].key)
      end,
      ["in another history"] = function(world) world.server:replace() end,
      ["in an older history"] = function(world) world.server:restore(1) end,
    } do
      test(name .. " ends on_lead, reports that, and takes part again", function(world)
        local a, seen = elector(world:client(), "a")
        lead(a)
        keywatch.sleep(1)
        lose(world)
        await(function() return seen[#seen] == "lead" and #seen > 2 end)
        assert.same({ "lead", "end", "lose lost", "lead" }, { seen[2], seen[3], seen[4], seen[#seen] })
        assert.same({ true, 1 }, { a:is_leader(), keys(world.server.store) })
        await(function() return #world.server.store:leases() == 1 end)
        assert.is_true(a:stop())
        assert.equal(0, keys(world.server.store))
      end)
    end

    test("by a partition has ended a third of the TTL before another candidate leads", function(world)
      local ca, ended_at, lost_at, led_at = world:client(), nil, nil, nil
      local a = elector(ca, "a", {
        lead = function()
          local _, err = pcall(keywatch.sleep, NEVER)
          ended_at = ended_at or keywatch.now()
          error(err, 0)
        end,
        on_lose = function() lost_at = lost_at or keywatch.now() end,
      })
      local b = elector(world:client(), "b", { lead = function()
        led_at = keywatch.now()
        keywatch.sleep(NEVER)
      end })
      lead(a)
      b:start()
      keywatch.sleep(100)
      assert.is_nil(ended_at)
      world:isolate(ca)
      await(function() return led_at end)
      assert.is_true(led_at - ended_at > 4.9 and lost_at <= led_at, led_at - ended_at)
      assert.same({ "waiting", false, 1 }, state_of(a))
      assert.equal("a", a:leader()) -- as far as it knows
      assert.equal("lost", answer.code(a:fence():put("x", "1")))
      await(function() return a:status().trouble end)
      world:join(ca)
      await(function() return a:leader() == "b" and not a:status().trouble end)
      assert.is_true(b:stop())
      await_leader(a)
    end)

    test("ends an on_lead that catches its cancellation in a loop", function(world)
      local a, seen = elector(world:client(), "a", { lead = function()
        while true do
          pcall(keywatch.sleep, 1)
          keywatch.sleep(0)
        end
      end })
      lead(a)
      lose_lease(world)
      await(function() return seen[4] end)
      assert.same({ "sees a", "lead", "end", "lose lost" }, { seen[1], seen[2], seen[3], seen[4] })
      await_leader(a)
      assert.is_true(a:stop())
      assert.equal(0, logs.count("is still running 15 s after"))
    end)

    test("waits for an on_lead that continues after it was cancelled, before it takes part again", function(world)
      local is_free = false
      local a, seen = elector(world:client(), "a", { lead = function()
        keywatch.shield(1000, function()
          while not is_free do keywatch.sleep(1) end
        end)
        is_free = false
      end })
      lead(a)
      lose_lease(world)
      keywatch.sleep(100)
      assert.same({ "waiting", true, 1 }, { a:status().state, a:status().is_busy, a:status().terms })
      assert.equal(0, keys(world.server.store))
      assert.same({ "sees a", "lead" }, seen)
      is_free = true
      await_leader(a)
      assert.same({ "sees a", "lead", "end", "lose lost", "lead" }, seen)
      is_free = true
      assert.equal(1, logs.count("warn 'on_lead' of the elector 'e' is still running 15 s after its cancellation"))
    end)
  end)

  test("has no trouble in its status once it takes part again, after the server was restored", function(world)
    local a, b = two(world)
    lead(a)
    local revision = world.server.store:status().revision
    b:start()
    await(function() return keys(world.server.store) == 2 end)
    world.server.store:put("x", "1")
    keywatch.sleep(1)
    world.server:restore(revision)
    await(function() return b:status().trouble end)
    assert.equal("regressed", b:status().trouble.code)
    await(function() return keys(world.server.store) == 2 end)
    keywatch.sleep(1)
    assert.same({ "waiting" }, { b:status().state, b:status().trouble })
    a:stop()
    await_leader(b)
  end)

  test("takes part as soon as there is a server", function(world)
    world.server:stop()
    local a = elector(world:client(), "a")
    a:start()
    keywatch.sleep(300)
    assert.same({ "waiting", true }, { a:status().state, a:status().trouble ~= nil })
    world.server:start()
    await_leader(a)
    assert.is_nil(a:status().trouble)
  end)

  test("whose client is closed ends, with the error", function(world)
    local client = world:client()
    local a, seen = elector(client, "a")
    lead(a)
    client:close()
    assert.same({ "closed", "idle", "closed" }, { answer.code(a:join(10)), a:status().state, a:status().failure.code })
    assert.same({ "sees a", "lead", "end", "lose lost" }, seen)
    assert.is_true(a:stop())
    a:start()
    assert.equal("closed", answer.code(a:join(10)))
  end)

  describe("that is stopped", function()
    test("lets on_lead clean up while it still leads, and waits for that", function(world)
      local wrote
      local a, seen = elector(world:client(), "a", { lead = function(fence)
        pcall(keywatch.sleep, NEVER)
        keywatch.shield(10, function()
          keywatch.sleep(3)
          wrote = fence:put("x", "last")
        end)
      end })
      local b = elector(world:client(), "b")
      lead(a)
      b:start()
      local stopping = keywatch.spawn(function() return a:stop() end)
      keywatch.sleep(2)
      assert.same({ "stopping", true, false }, { a:status().state, a:is_leader(), b:is_leader() })
      assert.same({ true, true }, { stopping:join() })
      assert.is_truthy(wrote)
      assert.same({ "sees a", "lead", "end", "lose cancelled" }, seen)
      await_leader(b)
    end)

    test("does not wait forever for an on_lead that continues: its key is deleted with its lease", function(world)
      local is_free, refused = false, nil
      local a = elector(world:client(), "a", { lead = function(fence)
        keywatch.shield(1000, function()
          while not is_free do keywatch.sleep(1) end
          refused = select(2, fence:put("x", "late"))
        end)
      end })
      local b = elector(world:client(), "b")
      lead(a)
      b:start()
      keywatch.sleep(1)
      local before = keywatch.now()
      assert.equal("timeout", answer.code(a:stop(4)))
      assert.is_true(math.abs(keywatch.now() - before - 4) < 1e-6)
      assert.same({ "stopping", false, false }, { a:status().state, a:is_leader(), b:is_leader() })
      assert.error_matches(function() a:start() end, "is started")
      assert.equal("timeout", answer.code(a:join(1)))
      await_leader(b)
      assert.is_true(keywatch.now() - before <= 4 + 16)
      is_free = true
      assert.same({ true, "lost", "idle" }, { a:join(10), refused.code, a:status().state })
    end)

    test("while the server cannot be reached reports that, and its key is deleted with its lease", function(world)
      local a = elector(world:client(), "a")
      lead(a)
      world.server:isolate()
      local before = keywatch.now()
      local code = answer.code(a:stop())
      assert.is_true(code == "deadline_exceeded" or code == "unavailable", code)
      assert.same({ true, "idle", false }, { keywatch.now() - before <= 6, a:status().state, a:is_leader() })
      world.server:join()
      keywatch.sleep(20)
      assert.equal(0, keys(world.server.store))
    end)

    test("by several tasks stops once, for all of them", function(world)
      local a, seen = elector(world:client(), "a")
      lead(a)
      local tasks = {}
      for i = 1, 4 do tasks[i] = keywatch.spawn(i < 4 and a.stop or a.join, a) end
      for _, task in ipairs(tasks) do assert.same({ true, true }, { task:join() }) end
      assert.same({ "sees a", "lead", "end", "lose cancelled" }, seen)
    end)

    test("with a timeout of 0 does not wait, and ends in the background", function(world)
      local a, seen = elector(world:client(), "a")
      lead(a)
      local before = keywatch.now()
      assert.same({ "timeout", before }, { answer.code(a:stop(0)), keywatch.now() })
      assert.same({ "stopping", false }, { a:status().state, a:is_leader() })
      assert.is_true(a:join() and keywatch.now() - before < 1)
      assert.same({ 0, {} }, { keys(world.server.store), world.server.store:leases() })
      assert.same({ "sees a", "lead", "end", "lose cancelled" }, seen)
    end)

    for _, which in ipairs { "on_lead", "on_lose", "on_leader" } do
      test("by its own " .. which .. " does not wait for itself", function(world)
        local a, results = nil, {}
        local function stop()
          results[#results + 1] = a:stop()
          local _, text = pcall(a.join, a)
          results[#results + 1] = tostring(text):match("cannot wait for the elector's end")
        end
        local options = { store = world:client(), name = "e", id = "a", on_lead = function()
          if which == "on_lead" then stop() end
          keywatch.sleep(NEVER)
        end }
        if which ~= "on_lead" then options[which] = stop end
        a = controller.elector(options)
        a:start()
        if which == "on_lose" then
          await_leader(a)
          lose_lease(world)
        end
        assert.same({ true, true, "cannot wait for the elector's end" }, { a:join(60), results[1], results[2] })
        assert.equal(0, keys(world.server.store))
      end)
    end

    if rawget(_G, "jit") == nil then
      test("at the end of a block releases its key", function(world)
        local run = assert(load [[
          local a, await_leader = ...
          do
            local held <close> = a
            await_leader(a)
          end
        ]])
        local a = elector(world:client(), "a")
        a:start()
        run(a, await_leader)
        assert.same({ "idle", 0 }, { a:status().state, keys(world.server.store) })
      end)
    end
  end)

  describe("whose function raises", function()
    test("with an unusual error gives up the leadership as with any other", function(world)
      local odd = setmetatable({}, {
        __index = function() error("odd field") end, __tostring = function() error("odd text") end,
      })
      local a = elector(world:client(), "a", { lead = function() error(odd) end, on_lose = function() end })
      a:start()
      await(function() return a:status().terms == 2 end)
      assert.is_true(logs.count("'on_lead' of the elector 'e' has failed: an error that cannot be printed") > 0)
    end)

    test("in on_lead gives up the leadership, and takes part again after a pause", function(world)
      local times = 0
      local a, b, seen = two(world, { lead = function()
        times = times + 1
        if times <= 2 then error("no luck " .. times) end
        keywatch.sleep(NEVER)
      end })
      a:start()
      await(function() return times == 3 end)
      b:start()
      keywatch.sleep(10)
      assert.same({ "leading", true, 3 }, state_of(a))
      assert.is_truthy(seen[4]:find("^lose .*no luck 1$"))
      assert.matches("error 'on_lead' of the elector 'e' has failed: .-no luck 1\nstack traceback:",
        table.concat(logs.lines, "\n"))
    end)

    test("in on_lead lets another candidate lead", function(world)
      local a, b = two(world, { lead = function() error("never") end })
      a:start()
      await(function() return a:status().terms >= 1 end)
      lead(b)
      keywatch.sleep(60)
      assert.is_true(b:is_leader())
    end)

    test("in on_lose and on_leader continues", function(world)
      local function fail() error("seen") end
      local a, b = two(world, { on_lose = function() error({}) end, on_leader = fail }, { on_leader = fail })
      lead(a)
      lose_lease(world)
      await(function() return a:status().terms == 2 end)
      b:start()
      await(function() return b:leader() == "a" end)
      a:stop()
      await(function() return b:is_leader() and b:leader() == "b" end)
      local text = table.concat(logs.lines, "\n")
      assert.is_truthy(text:find("'on_lose' of the elector 'e' has failed: {}", 1, true))
      assert.matches("'on_leader' of the elector 'e' has failed: .-seen\nstack traceback:", text)
    end)
  end)

  test("reports each new leader, in order and once", function(world)
    local store = world.server.store
    local a = elector(world:client(), "a")
    lead(a)
    local others = {}
    for i = 1, 3 do others[i] = store:session():election("e") end
    local tasks = {}
    for i = 1, 3 do
      tasks[i] = keywatch.spawn(function() return others[i]:campaign("other " .. i) end)
      keywatch.sleep(1)
    end
    a:stop()
    local b, seen = elector(world:client(), "b")
    b:start()
    for i = 1, 3 do
      local _, leadership = tasks[i]:join()
      await(function() return b:leader() == "other " .. i end)
      leadership:resign()
    end
    await_leader(b)
    assert.same({ "sees other 1", "sees other 2", "sees other 3", "sees b", "lead" }, seen)
    b:stop()
    assert.is_nil(b:leader())
  end)

  test("knows that there is no leader", function(world)
    local a = elector(world:client(), "a")
    local leadership = world.server.store:session():election("e"):campaign("other")
    a:start()
    await(function() return a:leader() == "other" end)
    local rule = world:fault { "refuse", error = "no_space", method = "write" }
    a:stop()
    a:start()
    await(function() return a:leader() == "other" end)
    leadership:resign()
    await(function() return a:leader() == nil end)
    assert.equal("no_space", a:status().trouble.code)
    rule:stop()
    await(function() return a:leader() == "a" end)
  end)

  it("continues after the end of keywatch.run, in which its on_lead has ended", function()
    local world = testing.world()
    local a, seen = elector(world:client(), "a")
    a:start()
    keywatch.run(function() await_leader(a) end)
    keywatch.run(function()
      await(function() return a:status().terms == 2 end)
      assert.same({ "lead", "end", "lose cancelled", "lead" }, { seen[2], seen[3], seen[4], seen[#seen] })
    end)
    assert.equal(0, keys(world.server.store))
    world:close()
  end)

  it("works at top level, where waits turn the loop", function()
    local world = testing.world()
    local a = elector(world:client(), "a")
    lead(a)
    assert(a:fence():put("x", "1"))
    assert.is_true(a:stop())
    assert.is_true(a:join())
    world:close()
  end)

  it("can be printed", function()
    local store = keywatch.open()
    local a = controller.elector { store = store, name = "e" }
    assert.equal("keywatch.elector<e idle>", tostring(a))
    a:start()
    assert.equal("keywatch.elector<e waiting>", tostring(a))
    await_leader(a)
    assert.equal("keywatch.elector<e leading>", tostring(a))
    assert.matches("^keywatch.fence<e/%x+ ", tostring(a:fence()))
    a:stop()
    assert.matches("^keywatch.fence<e/ ", tostring(a:fence()))
    store:close()
  end)

  it("stays with the parent after a fork: the child's elector is idle until it is started", function()
    local status, printed = program.run_forking [[
      local controller = require "keywatch.controller"
      require("keywatch.support.log").set_level("fatal")
      local store = keywatch.open()
      local a = controller.elector { store = store, name = "e", on_lead = function(fence)
        assert(fence:put("leads", tostring(core.pid())))
        keywatch.sleep(1000)
      end }
      a:start()
      while not store:get("leads") do keywatch.sleep(0.01) end
      local parent = core.pid()
      fork()
      if core.pid() == parent then
        wait()
        print(tostring(a), a:is_leader(), a:leader() == a.id, a:stop())
        return
      end
      local ok, err = a:fence():put("x", "child")
      print(a:is_leader(), a:status().state, ok, err.code, a:leader(), a:stop(), a:join())
      keywatch.sleep(0.05) -- the loop of the child turns
      print(a, a:is_leader(), store:get("leads").value == tostring(parent))
      a:start() -- in the copy of the store that the child has, the parent's key is there
      keywatch.sleep(0.05)
      print(a, a:is_leader(), a:leader() ~= a.id)
      print(a:stop())
      os.exit(0, true)
    ]]
    assert.equal([[
false	idle	nil	lost	nil	true	true
keywatch.elector<e idle>	false	true
keywatch.elector<e waiting>	false	true
true
keywatch.elector<e leading>	true	true	true
]], printed)
    assert.equal(0, status)
  end)

  it("works in luv's loop", function()
    local printed = program.printed_by [[
      local uv = require "luv"
      io.stdout:setvbuf("no")
      local keywatch, controller = require "keywatch", require "keywatch.controller"
      require("keywatch.support.log").set_level("fatal")
      local store = keywatch.open()
      local a
      a = controller.elector {
        store = store, name = "e", id = "a",
        on_lead = function(fence)
          print("leads", fence:put("x", "1") ~= nil)
          local timer = uv.new_timer()
          timer:start(10, 0, function()
            timer:close()
            print(pcall(a.stop, a)) -- a luv callback cannot wait
            keywatch.spawn(function() print("stopped", a:stop()) end)
          end)
          keywatch.sleep(1000)
        end,
        on_lose = function(err) print("loses", err.code) end,
      }
      a:start()
      uv.run()
      print(a, store:range("e/", { prefix = true }).count)
    ]]
    assert.is_truthy(printed:find("^leads\ttrue\nfalse\t[^\n]*stop waits[^\n]*\nloses\tcancelled\nstopped\ttrue\n"
      .. "keywatch.elector<e idle>\t0\n$"), printed)
  end)
end)
