--- Channels: values between tasks, in order, each once; waiting senders and receivers, and their timeouts.

local compat = require "keywatch.support.compat"
local keywatch = require "keywatch"

local at_call = require("spec.support.interrupting").at_call
local within = require "spec.support.within"

local virtual_time = require "spec.task.virtual_time"

local CALLS = 120 -- more than a selection makes
local LONG = 50   -- seconds

local driver, in_task, start = virtual_time.declare()

local function code(value, err)
  assert.is_nil(value)
  return err and err.code
end

describe("a channel", function()
  it("delivers values in the order in which they were sent", function()
    for _, capacity in ipairs { 0, 1, 3, 100 } do
      driver.run(function()
        local channel, got = driver.channel(capacity), {}
        local receiver = driver.spawn(function()
          for value in channel:values() do got[#got + 1] = value end
        end)
        for i = 1, 10 do assert.is_true(channel:send(i)) end
        channel:close()
        assert.is_true(receiver:join())
        assert.same({ 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 }, got)
      end)
    end
  end)

  it("accepts every value except nil, also false", function()
    local channel, key = driver.channel(3), {}
    assert.is_true(channel:send(false))
    assert.is_true(channel:send(key))
    assert.is_true(channel:send("cancelled"))
    assert.equal(false, channel:receive())
    assert.equal(key, channel:receive())
    assert.equal("cancelled", channel:receive())
    driver.run(function()
      local receiver = start(channel.receive, channel)
      channel:send(false)
      assert.same({ true, false }, { receiver:join() })
      local rendezvous = driver.channel()
      local sender = start(rendezvous.send, rendezvous, false)
      assert.equal(false, rendezvous:receive())
      assert.same({ true, true }, { sender:join() })
    end)
  end)

  it("holds as many values as its capacity, and reports their number", function()
    local channel = driver.channel(2)
    assert.equal(0, channel:count())
    assert.is_true(channel:send("a", 0))
    assert.is_true(channel:send("b", 0))
    assert.equal("timeout", code(channel:send("c", 0)))
    assert.same({ 2, "keywatch.channel<2 of 2 open>" }, { channel:count(), tostring(channel) })
    assert.same({ "a", "b", "timeout" }, { channel:receive(0), channel:receive(0), code(channel:receive(0)) })
  end)

  it("of capacity 0 makes sender and receiver wait for each other", in_task(function()
    local channel, order = driver.channel(), {}
    assert.equal("timeout", code(channel:send(1, 0)))
    driver.spawn(function()
      driver.sleep(5)
      table.insert(order, channel:receive())
    end)
    assert.is_true(channel:send("taken"))
    order[#order + 1] = driver.now()
    driver.sleep(0)
    assert.same({ "taken", 5 }, order)
    local receiver = start(channel.receive, channel)
    assert.is_true(channel:send("handed over", 0))
    assert.same({ true, "handed over" }, { receiver:join() })
  end))

  it("serves waiters in the order in which they came", in_task(function()
    local channel, got = driver.channel(1), {}
    for i = 1, 3 do start(function() table.insert(got, i .. channel:receive()) end) end
    channel:send("a")
    assert.equal("timeout", code(channel:receive(0))) -- "a" is the first receiver's, which has not run yet
    channel:send("b")
    channel:send("c")
    driver.sleep(0)
    assert.same({ "1a", "2b", "3c" }, got)

    local sent = {}
    channel:send("full")
    for i = 1, 3 do
      start(function()
        channel:send(i)
        sent[#sent + 1] = i
      end)
    end
    assert.equal("full", channel:receive())
    assert.equal("timeout", code(channel:send("late", 0))) -- the place is the first sender's
    for i = 1, 3 do assert.equal(i, channel:receive()) end
    driver.sleep(0)
    assert.same({ 1, 2, 3 }, sent)
  end))

  it("lets a wait end after its timeout, and forgets it", in_task(function()
    local channel = driver.channel()
    assert.same({ "timeout", 5 }, { code(channel:receive(5)), driver.now() })
    assert.equal("timeout", code(channel:send("lost", 5)))
    assert.same({ 10, "timeout" }, { driver.now(), code(channel:receive(0)) })
    local receiver = start(channel.receive, channel, 5)
    driver.sleep(1)
    channel:send("in time")
    assert.same({ true, "in time" }, { receiver:join() })
    assert.equal(11, driver.now())
  end))

  it("skips waiters that are cancelled", in_task(function()
    local channel = driver.channel()
    local first, second = start(channel.receive, channel), start(channel.receive, channel)
    first:cancel()
    assert.is_true(channel:send("value", 0))
    assert.same({ true, "value" }, { second:join() })
    assert.equal("cancelled", select(2, first:join()).code)
    first, second = start(channel.send, channel, 1), start(channel.send, channel, 2)
    first:cancel()
    assert.same({ 2, true, "timeout" }, { channel:receive(), second:join(), code(channel:receive(0)) })
  end))

  it("keeps a value for the task that it was handed to, even if that is cancelled before it runs", in_task(function()
    local channel = driver.channel()
    local receiver = start(function() return channel:receive() end)
    channel:send("value")
    receiver:cancel()
    assert.same({ true, "value" }, { receiver:join() })
    local sender = start(function() return channel:send("other") end)
    assert.equal("other", channel:receive())
    sender:cancel()
    assert.same({ true, true }, { sender:join() })
  end))

  it("works at top level, too", function()
    local channel = driver.channel()
    driver.spawn(function()
      driver.sleep(1)
      channel:send(channel:receive() .. "!")
    end)
    assert.is_true(channel:send("hello"))
    assert.same({ "hello!", "timeout", 3 }, { channel:receive(), code(channel:receive(2)), driver.now() })
  end)

  it("is a deadlock without another task", function()
    local channel = driver.channel()
    assert.has_error(function() channel:receive() end)
    assert.matches("deadlock", select(2, pcall(channel.send, channel, 1)))
    assert.equal("timeout", code(channel:receive(0))) -- nothing is left of that
  end)

  it("may have many waiters, and forgets them", in_task(function()
    local channel = driver.channel()
    for _ = 1, 200 do channel:receive(1) end
    local task
    for _ = 1, 200 do
      local following = start(channel.receive, channel)
      if task then task:cancel() end
      task = following
    end
    assert.is_true(#channel <= 4)
    channel:send("value")
    assert.same({ true, "value" }, { task:join() })
    local tasks, got = {}, {}
    for i = 1, 500 do tasks[i] = driver.spawn(function() table.insert(got, { i, channel:receive() }) end) end
    driver.sleep(0)
    for i = 3, 500, 3 do tasks[i]:cancel() end
    for i = 1, 500 do
      if i % 3 ~= 0 then channel:send(i, 0) end
    end
    driver.sleep(0)
    for _, pair in ipairs(got) do assert.equal(pair[1], pair[2]) end
    assert.equal(334, #got)
  end))

  it("and the task that waits for it take little memory", function()
    local N, MOST = 2000, 1800 -- bytes: 100,000 of them stay below 200 MB, with what malloc adds
    driver.run(function()
      local channels = {}
      for i = 1, N do channels[i] = false end
      collectgarbage()
      local before = collectgarbage("count")
      for i = 1, N do
        local channel = driver.channel()
        channels[i] = channel
        driver.spawn(function() channel:receive() end)
      end
      driver.sleep(0)
      collectgarbage()
      local bytes = (collectgarbage("count") - before) * 1024 / N
      assert.is_true(bytes < MOST, ("%.0f bytes"):format(bytes))
      for i = 1, N do channels[i]:close() end
    end)
  end)

  it("loses no value that the top level got when it was interrupted", function()
    local channel = driver.channel()
    local source = {}
    driver.spawn(function() channel:send("value") end)
    function source.poll()
      driver.detach(source)
      error("interrupted!", 0)
    end
    driver.attach(source)
    local ok, err = pcall(channel.receive, channel)
    assert.same({ false, "interrupted!", 1, "value" }, { ok, err, channel:count(), (channel:receive(0)) })
  end)

  it("has no sender and receiver that wait for each other, after an error in the driver at the wrong moment", function()
    for _, first in ipairs { "receive", "send" } do
      local channel, inside = driver.channel(), driver.inside()
      local one = driver.spawn(channel[first], channel, first == "send" and "value" or nil)
      local other = driver.spawn(function()
        if first == "send" then return channel:receive() end
        return channel:send("value")
      end)
      local enter = inside.backend.enter
      function inside.backend.enter() -- called when the first task was suspended, and does not wait yet
        inside.backend.enter = enter
        error("interrupted", 0)
      end
      assert.same({ false, "interrupted" }, { pcall(driver.sleep, 0) })
      local ok, why = other:join(1)
      assert(ok, why)
      assert(one:join(1))
    end
  end)
end)

describe("a closed channel", function()
  it("delivers its values, and then only nil", function()
    local channel = driver.channel(3)
    channel:send(1)
    channel:send(2)
    channel:close()
    assert.equal("keywatch.channel<2 of 3 closed>", tostring(channel))
    assert.equal("keywatch.sending<keywatch.channel<2 of 3 closed>>", tostring(channel:sending(1)))
    assert.same({ 1, 2, 0 }, { channel:receive(), channel:receive(), select("#", channel:receive()) - 1 })
    assert.same({ nil, nil }, { channel:receive(), (channel:receive(0)) })
    channel:close()
  end)

  it("accepts no values, and wakes senders with that error", in_task(function()
    local channel = driver.channel(1)
    channel:send("held")
    local sender = start(channel.send, channel, "waiting")
    channel:close()
    local ok, result, err = sender:join()
    assert.same({ true, "closed" }, { ok, code(result, err) })
    assert.equal("closed", code(channel:send("late")))
    assert.equal("closed", code(channel:send("late", 0)))
    assert.same({ "held", nil }, { channel:receive(), (channel:receive()) })
  end))

  it("ends the waits of all receivers", in_task(function()
    local channel, tasks = driver.channel(), {}
    for i = 1, 3 do tasks[i] = start(channel.receive, channel, i > 1 and 1000 or nil) end
    channel:close()
    for i = 1, 3 do assert.same({ true, nil }, { tasks[i]:join() }) end
    assert.equal(0, driver.now())
  end))
end)

describe("a finalizer", function()
  --- Has a function run as a finalizer, now.
  local function finalize(fn)
    compat.sentinel(fn)
    collectgarbage()
  end

  it("may send and receive with a timeout of 0, and close", within.task(function()
    local channel = keywatch.channel(1)
    local ok, got
    finalize(function()
      ok = channel:send("value", 0)
      got = channel:receive(0)
      channel:close()
    end)
    assert.same({ true, "value", nil }, { ok, got, (channel:receive()) })
  end))

  if not rawget(_G, "jit") then -- on Lua 5.4 a call may grow the stack, and finalizers run there
    local function each_call(fn)
      local main = coroutine.running()
      for n = 1, CALLS do
        for _, is_main in ipairs { true, false } do
          virtual_time.renew()
          driver.run(function()
            local acted_at
            driver.spawn(function() -- time passes second by second
              while true do driver.sleep(1) end
            end)
            fn(function(act)
              at_call(is_main and main or coroutine.running(), n, function()
                if act() then acted_at = driver.now() end
              end)
            end)
            if acted_at then assert.is_true(driver.now() <= acted_at + 1) end
          end)
          debug.sethook(main)
        end
      end
    end

    --- Removes the hooks that have not acted: later calls are not examined.
    local function stop(...)
      debug.sethook()
      return ...
    end

    it("that sends while a receiver begins to wait wakes it", function()
      each_call(function(soon)
        local channel, has_sent = driver.channel(2), nil
        local receiver = driver.spawn(function()
          soon(function()
            has_sent = channel:send("a", 0) and channel:send("b", 0)
            return has_sent
          end)
          return stop(channel:receive(LONG))
        end)
        local _, value = receiver:join()
        if has_sent then assert.is_true(value == "a" or channel:count() == 2) end
      end)
    end)

    it("that receives while a sender begins to wait wakes it", function()
      each_call(function(soon)
        local channel, got = driver.channel(1), nil
        channel:send("a")
        local sender = driver.spawn(function()
          soon(function()
            got = channel:receive(0)
            return got
          end)
          return stop(channel:send("b", LONG))
        end)
        local _, ok = sender:join()
        if got == "a" and driver.now() < LONG then assert.same({ true, "b" }, { ok, channel:receive(0) }) end
      end)
    end)

    it("that sends while a selection begins to wait wakes it", function()
      each_call(function(soon)
        local a, b, has_sent = driver.channel(), driver.channel(1), nil
        local selecting = driver.spawn(function()
          soon(function()
            has_sent = b:send("value", 0)
            return has_sent
          end)
          return stop(driver.select { a, b, timeout = LONG })
        end)
        local _, which, value = selecting:join()
        if has_sent then assert.is_true(which == b and value == "value" or b:count() == 1) end
      end)
    end)

    it("that sets an event while a task begins to wait for it wakes the task", function()
      each_call(function(soon)
        local event, has_set = driver.event(), false
        local waiting = driver.spawn(function()
          soon(function()
            event:set()
            has_set = true
            return true
          end)
          return stop(event:wait(LONG))
        end)
        local _, is_set = waiting:join()
        if has_set and driver.now() < LONG then assert.is_true(is_set) end
      end)
    end)

    it("that closes while a task begins to wait ends the wait", function()
      each_call(function(soon)
        local channel, has_closed = driver.channel(), nil
        local receiver = driver.spawn(function()
          soon(function()
            channel:close()
            has_closed = true
            return true
          end)
          return stop(channel:receive(LONG))
        end)
        local _, value, err = receiver:join()
        if has_closed and driver.now() < LONG then assert.same({ nil, nil }, { value, err }) end
      end)
    end)
  end
end)
