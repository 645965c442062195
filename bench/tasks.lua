-- SPDX-License-Identifier: MIT
--- What tasks and channels cost from Lua, on one core: in memory, and for each switch from one task to another.
--
--   lua5.4 bench/tasks.lua [part]
--
-- Timings on a shared machine are noisy: the best of several rounds counts. Memory and bench/instructions.lua are not.

package.path = arg[0]:match("^(.-)[^/]*$") .. "?.lua;" .. package.path

local keywatch = require "keywatch"
local measure = require "measure"

local resident, rate, report = measure.resident, measure.rate, measure.report

local TASKS = 100000
local ROUNDS = 5

--- Tasks each of which waits for a channel of its own. Then each gets a value, and ends.
local function measure_memory()
  keywatch.run(function()
    local channels = {}
    local received = 0
    collectgarbage()
    local before, heap = resident(), collectgarbage("count")
    for i = 1, TASKS do
      local channel = keywatch.channel()
      channels[i] = channel
      keywatch.spawn(function()
        channel:receive()
        received = received + 1
      end)
    end
    keywatch.sleep(0)
    report("resident, 100,000 tasks that wait for channels", resident() / 1e6, "MB", "less than 200")
    collectgarbage()
    report("each task and its channel, in Lua's heap", (collectgarbage("count") - heap) * 1024 / TASKS, "bytes")
    report("each task and its channel, resident", (resident() - before) / TASKS, "bytes")
    for i = 1, TASKS do assert(channels[i]:send(i)) end
    keywatch.sleep(0)
    assert(received == TASKS)
    report("resident, after all of them have ended", resident() / 1e6, "MB")
  end)
end

--- A value goes from one task to another, n times.
local function pass(capacity, n)
  local channel = keywatch.channel(capacity)
  local receiver = keywatch.spawn(function()
    for _ in channel:values() do end
  end)
  for i = 1, n do channel:send(i) end
  channel:close()
  receiver:join()
end

--- One of two channels gets a value, n times.
local function choose(n)
  local a, b = keywatch.channel(), keywatch.channel()
  local receiver = keywatch.spawn(function()
    for _ = 1, n do keywatch.select { a, b } end
  end)
  for i = 1, n do (i % 2 == 0 and a or b):send(i) end
  receiver:join()
end

local function measure_speed()
  local N = 200000
  keywatch.run(function()
    report("spawn and join", rate(N, ROUNDS, function()
      for _ = 1, N do keywatch.spawn(function() end):join() end
    end), "/s")
    report("values through a channel of capacity 0", rate(N, ROUNDS, function() pass(0, N) end), "/s")
    report("values through a channel of capacity 100", rate(N, ROUNDS, function() pass(100, N) end), "/s")
    report("values through one of two selected channels", rate(N, ROUNDS, function() choose(N) end), "/s")
  end)
end

measure.run("tasks", {
  { "memory", measure_memory },
  { "speed", measure_speed },
})
