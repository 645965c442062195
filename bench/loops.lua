-- SPDX-License-Identifier: MIT
--- What it costs to live in luv's loop, and what the host's loop notices of it.
--
--   lua5.4 bench/loops.lua [part]        or luajit, with the rock of that VM
--
-- The server is a process of its own. Both loops are measured in turns, and the best of each counts.

local HERE = arg[0]:match("^(.-)[^/]*$")
package.path = HERE .. "?.lua;" .. package.path

local keywatch = require "keywatch"
local measure = require "measure"
local serving = require "serving"

local ROUNDS, GETS = 7, 4000
local TIMER_MS, SECONDS, EVENTS = 10, 5, 20000 -- of the host's timer; of the whole; in a second
local BURST = 40 -- events in one write
local NEWS = "/news/"

--- A function with a server's URL.
local function with_keywatch(fn)
  serving.with_servers(function(servers) fn("http://127.0.0.1:" .. servers[1].port) end)
end

--- Makes the gets of a round, one after the other. Returns the processor seconds of one, in microseconds.
local function get_all(client)
  for _ = 1, 200 do assert(client:get("a")) end
  collectgarbage()
  local start = os.clock()
  for _ = 1, GETS do client:get("a") end
  return (os.clock() - start) * 1e6 / GETS
end

--- Runs fn as a task in luv's loop, to its end. Returns its result.
local function in_luv(fn)
  local uv = require "luv"
  local result
  keywatch.driver "luv"
  keywatch.spawn(function() result = fn() end)
  uv.run()
  return result
end

local function gets()
  with_keywatch(function(url)
    local client = keywatch.connect(url)
    assert(client:put("a", ("v"):rep(100)))
    local own, hosted = math.huge, math.huge
    for _ = 1, ROUNDS do
      keywatch.run(function() own = math.min(own, get_all(client)) end)
      hosted = math.min(hosted, in_luv(function() return get_all(client) end))
    end
    client:close()
    measure.report("a get in the private loop", own, "us")
    measure.report("a get in luv's loop", hosted, "us")
    measure.report("luv's loop / private loop", hosted / own, "", "(target: at most 1.3)")
  end)
end

--- Writes events at an even rate, as another process.
local function write(url)
  local client = keywatch.connect(url)
  local ops = {}
  for i = 1, BURST do ops[i] = { put = NEWS .. i, value = ("v"):rep(100) } end
  local start, sent = keywatch.now(), 0
  while keywatch.now() < start + SECONDS do
    assert(client:txn { success = ops })
    sent = sent + BURST
    local ahead = sent / EVENTS - (keywatch.now() - start)
    if ahead > 0 then keywatch.sleep(ahead) end
  end
end

--- How late the host's timer is, in ms: the median, the 99th percentile and the worst.
local function lateness(uv, busy)
  local late, last = {}, nil
  local timer = uv.new_timer()
  timer:start(TIMER_MS, TIMER_MS, function()
    local now = uv.hrtime() / 1e6
    if last then late[#late + 1] = math.max(0, now - last - TIMER_MS) end
    last = now
  end)
  busy(function() timer:close() end)
  uv.run()
  table.sort(late)
  return late[math.ceil(#late / 2)], late[math.ceil(#late * 0.99)], late[#late]
end

local function report_lateness(name, median, p99, worst)
  measure.report(name .. ", median", median, "ms late")
  measure.report(name .. ", p99", p99, "ms late", "(target: less than 5)")
  measure.report(name .. ", worst", worst, "ms late")
end

local function timers()
  local uv = require "luv"
  report_lateness("the timer alone", lateness(uv, function(done)
    uv.new_timer():start(SECONDS * 1000, 0, done)
  end))
  with_keywatch(function(url)
    local client, n = keywatch.connect(url), 0
    local writer
    report_lateness("the timer beside a watch", lateness(uv, function(done)
      keywatch.spawn(function()
        local w = assert(client:watch(NEWS, { prefix = true }))
        writer = io.popen(("exec %s %s write %s"):format(arg[-1], arg[0], url))
        local _, err
        repeat
          _, err = w:next(1)
          if not err then n = n + 1 end
        until err
        done()
      end)
    end))
    writer:close()
    measure.report("events that came", n / SECONDS, "a second")
    client:close()
  end)
end

if arg[1] == "write" then return write(arg[2]) end

measure.run("In luv's loop", {
  { "One get after the other", gets },
  { "A timer of the host, every 10 ms", timers },
})
