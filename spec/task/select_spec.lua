--- Selecting: a wait for the first of several objects.

local keywatch = require "keywatch"
local virtual = require "keywatch.driver.virtual"

local at_call = require("spec.support.interrupting").at_call
local near = require "spec.support.near"
local program = require "spec.support.program"
local scheduler = require "spec.support.scheduler"
local within = require "spec.support.within"

local SECONDS = 30 -- for an event that must arrive

local virtual_time = require "spec.task.virtual_time"

local driver, in_task, start = virtual_time.declare()

after_each(function() assert.is_nil(scheduler.check()) end)

--- The same on the loop of this program.
local function start_here(...)
  local task = keywatch.spawn(...)
  keywatch.sleep(0)
  return task
end

local function code(which, err)
  assert.is_nil(which)
  return err and err.code
end

describe("select", function()
  it("returns a ready object, and the results of its own call", in_task(function()
    local a, b = driver.channel(1), driver.channel(1)
    b:send("value")
    assert.same({ b, "value" }, { driver.select { a, b } })
    assert.equal(0, b:count())
    local done = start(function() return 1, nil, 3 end)
    assert.same({ done, true, 1, nil, 3 }, { driver.select { a, done } })
    local failing = driver.spawn(error, "on purpose")
    assert.same({ failing, false, "on purpose" }, { driver.select { a, failing } })
    b:close()
    assert.same({ b, nil }, { driver.select { a, b } })
  end))

  it("waits for the first object that is ready", in_task(function()
    local a, b = driver.channel(), driver.channel()
    local sleeper = driver.spawn(driver.sleep, 7)
    driver.spawn(function()
      driver.sleep(5)
      b:send("value")
    end)
    assert.same({ b, "value" }, { driver.select { a, b, sleeper } })
    assert.equal(5, driver.now())
    assert.same({ sleeper, true }, { driver.select { a, b, sleeper } })
    assert.equal(7, driver.now())
    driver.spawn(a.close, a)
    assert.same({ a, nil }, { driver.select { a, b } })
  end))

  it("returns at its timeout, and only checks with a timeout of 0", in_task(function()
    local a, b = driver.channel(1), driver.channel(1)
    assert.same({ "timeout", 3 }, { code(driver.select { a, b, timeout = 3 }), driver.now() })
    assert.equal("timeout", code(driver.select { a, b, timeout = 0 }))
    assert.same({ "timeout", 3 }, { code(driver.select { a, b, timeout = -1 }), driver.now() })
    a:send("value")
    assert.same({ a, "value" }, { driver.select { a, b, timeout = 0 } })
    assert.same({ 0, 0 }, { #a, #b }) -- no task waits there any more
  end))

  it("starves no object while several are ready, and chooses the same in every run", function()
    local function counts()
      local again, found = virtual.new(), { 0, 0, 0 }
      again.run(function()
        local channels = {}
        for i = 1, 3 do
          channels[i] = again.channel(1)
          again.spawn(function()
            while true do channels[i]:send(i) end
          end)
        end
        again.sleep(0)
        for _ = 1, 300 do
          local _, i = again.select(channels)
          found[i] = found[i] + 1
          again.sleep(0)
        end
      end)
      return found
    end
    local found = counts()
    for i = 1, 3 do assert.is_true(found[i] > 50) end
    assert.same(found, counts())
  end)

  it("is cancelled like any other wait, and leaves nothing behind", in_task(function()
    local a, b, sleeper = driver.channel(), driver.channel(), driver.spawn(driver.sleep, 1000)
    local task = start(driver.select, { a, b:sending("value"), sleeper, timeout = 100 })
    task:cancel()
    local ok, err = task:join()
    assert.same({ false, "cancelled", 0, 0, 0, nil }, { ok, err.code, #a, #b.senders, #sleeper.done, sleeper.joiners })
    assert.equal("timeout", code(a:send("x", 0)))
    assert.equal("timeout", code(b:receive(0)))
  end))

  it("works at top level", function()
    local a, b = driver.channel(), driver.channel()
    driver.spawn(function()
      driver.sleep(2)
      b:send("value")
    end)
    assert.same({ b, "value" }, { driver.select { a, b } })
    assert.same({ "timeout", 3 }, { code(driver.select { a, b, timeout = 1 }), driver.now() })
  end)

  it("takes each value once, among other waiters", in_task(function()
    local a, b, got = driver.channel(), driver.channel(), {}
    local function take(name)
      return function()
        local which, value = driver.select { a, b }
        table.insert(got, { name, which == a and "a" or "b", value })
      end
    end
    start(take "first")
    local second = start(function() table.insert(got, { "second", "b", b:receive() }) end)
    start(take "third")
    assert.is_true(a:send(1, 0))  -- to the first, which has not run yet
    assert.is_true(b:send(2, 0))  -- to the second: the first has its value
    assert.is_true(b:send(3, 0))  -- to the third
    assert.equal("timeout", code(b:send(4, 0)))
    second:join()
    driver.sleep(0)
    assert.same({ { "first", "a", 1 }, { "second", "b", 2 }, { "third", "b", 3 } }, got)
  end))

  it("may send, when the channel has room", in_task(function()
    local a, b = driver.channel(), driver.channel(1)
    local sending = b:sending("value")
    assert.same({ sending, true }, { driver.select { a, sending } })
    assert.equal("value", b:receive())
    b:send("full")
    local to_a, to_b = a:sending("x"), b:sending("y")
    local task = start(driver.select, { to_a, to_b })
    assert.equal("x", a:receive(0))
    assert.same({ true, to_a, true }, { task:join() })
    assert.equal(1, b:count()) -- only one of them was sent
    task = start(driver.select, { to_a, to_b })
    assert.same({ "full", "y" }, { b:receive(), (b:receive()) })
    assert.same({ true, to_b, true }, { task:join() })
    a:close()
    local which, ok, err = driver.select { to_a }
    assert.same({ to_a, nil, "closed" }, { which, ok, err.code })
  end))

  it("never gives a task its own value, but gives it to another task's select", in_task(function()
    local channel = driver.channel()
    assert.equal("timeout", code(driver.select { channel, channel:sending("own"), timeout = 5 }))
    local receiver = start(driver.select, { channel, driver.channel() })
    local sending = channel:sending("value")
    assert.same({ sending, true }, { driver.select { sending, driver.channel() } })
    assert.same({ true, channel, "value" }, { receiver:join() })
    local sender = start(driver.select, { sending, driver.channel() })
    assert.same({ channel, "value" }, { driver.select { channel, driver.channel() } })
    assert.same({ true, sending, true }, { sender:join() })
  end))

  it("loses no value that the top level got when it was interrupted", function()
    local channel, source = driver.channel(), {}
    driver.spawn(channel.send, channel, "value")
    function source.poll()
      driver.detach(source)
      error("interrupted!", 0)
    end
    driver.attach(source)
    assert.same({ false, "interrupted!" }, { pcall(driver.select, { channel, driver.channel() }) })
    assert.equal("value", channel:receive(0))
  end)

  it("ignores changes of its table during the wait", in_task(function()
    local a, b = driver.channel(), driver.channel()
    local objects = { a, b }
    local task = start(driver.select, objects)
    objects[1], objects[2] = nil, nil
    a:send("value")
    assert.same({ true, a, "value" }, { task:join() })
  end))
end)

if not rawget(_G, "jit") then -- on Lua 5.4 a call may grow the stack, and finalizers run there
  describe("a finalizer", function()
    local CALLS = 120 -- more than a selection makes

    it("that cancels a task while it gets a value loses no value", function()
      local outcomes = {}
      for n = 1, CALLS do
        virtual_time.renew()
        driver.run(function()
          local a, b = driver.channel(), driver.channel()
          local selecting = start(driver.select, { a, b })
          at_call(coroutine.running(), n, function() selecting:cancel() end)
          local has_sent = a:send("value", 0)
          debug.sethook()
          local ok, which, value = selecting:join()
          assert.equal(ok, which == a and value == "value")
          assert.equal(has_sent and not ok and "value" or nil, (a:receive(0)))
          outcomes[("%s %s"):format(tostring(has_sent), tostring(ok))] = true
        end)
      end
      assert.is_true(outcomes["true true"] and outcomes["nil false"])
    end)
  end)
end

describe("a task that fails while it is selected", function()
  it("is reported as unjoined, if it was not the first", function()
    local printed = program.printed_by [[
      local keywatch = require "keywatch"
      print(pcall(keywatch.run, function()
        local one, other = keywatch.spawn(error, "one", 0), keywatch.spawn(error, "other", 0)
        local which, ok, err = keywatch.select { one, other }
        print(which == one or which == other, ok, err == "one" or err == "other")
        which, ok = keywatch.select { which == one and other or one, timeout = 0 }
        print(which == one or which == other, ok)
      end))
      print(pcall(keywatch.run, function()
        local one, other = keywatch.spawn(function() end), keywatch.spawn(error, "other", 0)
        keywatch.sleep(0)
        keywatch.select { one }
        keywatch.select { one, keywatch.channel(), timeout = 0 }
      end))
    ]]
    local _, reports = printed:gsub("keywatch: a task has failed", "")
    assert.equal(2, reports)
    assert.matches("true\tfalse\ttrue\n", printed)
    assert.matches("true\tfalse\ntrue\n", printed)
    assert.matches("false\tother\n", printed)
  end)

  it("is not reported if another task joins it, or its scope raises its failure", function()
    assert.same({ 0, "true\tfalse\ton purpose\ntrue\ttrue\nfalse\ton purpose\ntrue\ttrue\n" }, { program.run([[
      local keywatch = require "keywatch"
      print(keywatch.run(function()
        local channel = keywatch.channel()
        local function select_channel(failing)
          return keywatch.spawn(function() return (keywatch.select { channel, failing }) == channel end)
        end
        local function fail()
          keywatch.sleep(0)
          keywatch.sleep(0)
          channel:send(1)
          error("on purpose", 0)
        end
        local failing = keywatch.spawn(fail)
        local selecting = select_channel(failing)
        local joining = keywatch.spawn(failing.join, failing)
        print(joining:join())
        print(selecting:join())
        local outside
        print(pcall(keywatch.scope, function(scope) outside = select_channel(scope:spawn(fail)) end))
        return outside:join()
      end))
    ]]) })
  end)

  it("is not reported if select returns it", function()
    assert.same({ 0, "false\ton purpose\n" }, { program.run([[
      local keywatch = require "keywatch"
      print(keywatch.run(function()
        local failing = keywatch.spawn(function()
          keywatch.sleep(0.001)
          error("on purpose", 0)
        end)
        return select(2, keywatch.select { failing, keywatch.channel() })
      end))
    ]]) })
  end)
end)

describe("a watch that is selected", function()
  it("delivers its events one by one, its failure and its end", within.task(function()
    local store, channel = keywatch.open(), keywatch.channel(1)
    local watch = store:watch("a")
    keywatch.spawn(function()
      store:put("a", "1")
      keywatch.sleep(0)
      channel:send("value")
      keywatch.sleep(0)
      store:put("a", "2")
    end)
    local got = {}
    for _ = 1, 3 do
      local which, what = keywatch.select { watch, channel }
      table.insert(got, which == watch and what.value or what)
    end
    assert.same({ "1", "value", "2" }, got)
    assert.equal("timeout", code(keywatch.select { watch, channel, timeout = 0.001 }))
    keywatch.spawn(watch.close, watch)
    assert.same({ watch, nil }, { keywatch.select { watch, channel } })
    watch = store:watch("a")
    keywatch.spawn(store.close, store)
    local which, event, err = keywatch.select { watch, channel }
    assert.same({ watch, nil, "closed" }, { which, event, err.code })
  end))

  it("hides unrequested progress, and counts its reader", within.task(function()
    local store, channel = keywatch.open(), keywatch.channel(1)
    local watch = store:watch("a")
    local reader = keywatch.spawn(function()
      local which, event
      repeat which, event = keywatch.select { watch, channel } until which == channel or event.value == "end"
      return which == watch
    end)
    keywatch.sleep(0)
    store:put("b", "")
    local revision = store:put("a", "1").revision
    assert.equal(revision, watch:sync())
    assert.equal(revision, watch.revision) -- the reader was handed all of it
    store:put("a", "end")
    assert.same({ true, true }, { reader:join() })
    assert.equal(watch:sync(), watch.revision)
  end))

  it("begins with the initial kvs, of a store and of a server", function()
    local N = 2500 -- three pages
    local client, store, close = near()
    for i = 1, N do store:put(("k%05d"):format(i), "") end
    for _, face in ipairs { store, client } do
      keywatch.run(function()
        local channel, ticks, n = keywatch.channel(1), 0, 0
        local ticker = keywatch.spawn(function()
          while true do
            channel:send("tick")
            keywatch.sleep(0)
          end
        end)
        local watch = assert(face:watch("k", { prefix = true, initial = true }))
        repeat
          local which, event = keywatch.select { watch, channel }
          if which == channel then ticks = ticks + 1 elseif event.type == "put" then n = n + 1 end
        until which == watch and event.type == "synced"
        assert.equal(N, n)
        if face == client then assert.is_true(ticks > 0) end -- while pages were on their way
        store:put("k", "new")
        local event
        repeat event = select(2, keywatch.select { watch }) until event ~= "tick"
        assert.equal("new", event.value)
        ticker:cancel()
        watch:close()
        store:delete("k")
      end)
    end
    close()
  end)

  it("is woken by events for other waiters any number of times, of a store and of a server", function()
    local client, store, close = near()
    for _, face in ipairs { store, client } do
      for _, initial in ipairs { false, true } do
        store:put("k", "")
        keywatch.run(function()
          local watch = assert(face:watch("k", { initial = initial or nil }))
          local rival = keywatch.spawn(function()
            for _ = 1, initial and 4 or 2 do watch:next() end -- with the key that exists, and "synced"
          end)
          keywatch.sleep(0)
          local selecting = start_here(function() return select(2, keywatch.select { watch }) end)
          store:put("k", "for the rival")
          keywatch.sleep(0)
          watch:sync() -- progress, which is hidden
          store:put("k", "for the rival, too")
          assert.is_true(rival:join())
          store:put("k", "for the select")
          local _, event = assert(selecting:join(SECONDS))
          assert.equal("for the select", event.value)
          watch:close()
        end)
      end
    end
    close()
  end)
end)
