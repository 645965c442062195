-- SPDX-License-Identifier: MIT
--- Our own client at work, for bench/client.lua. peer.py and peer.js are the same program with the clients of others.
--
--   peer.lua PORT get|put N IN_FLIGHT    requests, after some that warm up
--   peer.lua PORT watch N                says "watching", then counts so many events that others make
--   peer.lua PORT history N              counts so many events of the past
--
-- At its end it prints the seconds that this took, those of its processor, and the bytes of the values or events that
-- it saw: each is looked at by the program, and not only by the library.

local keywatch = require "keywatch"

local PREFIX = "/registry/"
local KEYS = 10000
local VALUE = ("v"):rep(100)
local WARMING = 1000

local keys = {}
for i = 1, KEYS do keys[i] = PREFIX .. ("%010d"):format(i - 1) end

local function moment()
  return { seconds = keywatch.now(), cpu = os.clock() }
end

local function report(start, bytes)
  local stop = moment()
  print(("seconds=%.6f cpu=%.6f bytes=%d"):format(stop.seconds - start.seconds, stop.cpu - start.cpu, bytes))
end

local requests = {}

function requests.get(client, key)
  return #assert(client:get(key)).value
end

function requests.put(client, key)
  assert(client:put(key, VALUE))
  return #VALUE
end

--- Calls fn n times, with so many under way. Returns the bytes of all.
local function run(client, fn, n, in_flight)
  local bytes, tasks = 0, {}
  for first = 1, in_flight do
    tasks[first] = keywatch.spawn(function()
      for i = first, n, in_flight do
        local more = fn(client, keys[i % KEYS + 1])
        bytes = bytes + more
      end
    end)
  end
  for _, task in ipairs(tasks) do task:join() end
  return bytes
end

local function measure_requests(client, fn, n, in_flight)
  run(client, fn, WARMING, in_flight)
  local start = moment()
  report(start, run(client, fn, n, in_flight))
end

--- Counts n events and their bytes, and reports. `start` is when that began: with the first, unless it is known.
local function count(watch, n, start)
  local bytes = 0
  for event in watch:events() do
    start = start or moment()
    bytes = bytes + #event.key + #event.value
    n = n - 1
    if n == 0 then break end
  end
  report(start, bytes)
end

--- An event of its own tells it that it is watching.
local function measure_watch(client, n)
  local own = assert(client:put(PREFIX, ""))
  local watch = client:watch(PREFIX, { prefix = true, start_revision = own.revision })
  assert(watch:next())
  print("watching")
  io.stdout:flush()
  count(watch, n)
end

local function measure_history(client, n)
  client:get(PREFIX)
  local start = moment()
  count(client:watch(PREFIX, { prefix = true, start_revision = 1 }), n, start)
end

keywatch.run(function()
  local port, what, n = arg[1], arg[2], tonumber(arg[3])
  local client = keywatch.connect("http://127.0.0.1:" .. port)
  if what == "watch" then
    measure_watch(client, n)
  elseif what == "history" then
    measure_history(client, n)
  else
    measure_requests(client, requests[what], n, tonumber(arg[4]))
  end
  client:close()
end)
