-- SPDX-License-Identifier: MIT
--- What a lock costs that thousands of clients wait for: the processor time of the server until all of them are queued,
--- and until each has had the lock and has given it back.
--
--   lua5.4 bench/locks.lua [waiters]
--
-- The server is a process of its own, with its data in memory. Each waiter is a task of this program, which has several
-- connections. The lease of each waiter is granted before the time is taken.

package.path = arg[0]:match("^(.-)[^/]*$") .. "?.lua;" .. package.path

local keywatch = require "keywatch"
local measure = require "measure"
local server = require "spec.support.server"

local LOCK, UNLOCK = "/v3lockpb.Lock/Lock", "/v3lockpb.Lock/Unlock"
local NAME = "bench"
local CONNECTIONS = 8
local SMALL, LARGE = 1000, 10000 -- waiters
local TICKS = 100 -- of the kernel's processor times, a second
local SECONDS = 600 -- after which a waiter has failed
local POLL = 0.05 -- seconds between two looks at the length of the queue

--- Returns the processor seconds that a process has taken.
local function processor_time(pid)
  local f = assert(io.open(("/proc/%d/stat"):format(pid)))
  local rest = f:read("*a"):match("%)(.*)")
  f:close()
  local fields = {}
  for field in rest:gmatch("%S+") do fields[#fields + 1] = field end
  return (tonumber(fields[12]) + tonumber(fields[13])) / TICKS
end

local function connect(peer)
  local clients = {}
  for i = 1, CONNECTIONS do clients[i] = assert(keywatch.connect(peer.url)) end
  return clients
end

local function grant_all(clients, n)
  local leases = {}
  for i = 1, n do leases[i] = assert(clients[i % CONNECTIONS + 1]:lease(3600)).id end
  return leases
end

--- Waits until there are so many keys of the lock.
local function wait_for_keys(client, n)
  while assert(client:range(NAME .. "/", { prefix = true, count_only = true })).count ~= n do keywatch.sleep(POLL) end
end

--- Queues n waiters behind a holder, and has each of them give the lock back as soon as it gets the lock.
local function measure_waiters(peer, n)
  local clients = connect(peer)
  local leases = grant_all(clients, n + 1)
  local held = assert(clients[1]:call(LOCK, { name = NAME, lease = leases[n + 1] }))
  local start, tasks = processor_time(peer.pid), {}
  for i = 1, n do
    tasks[i] = keywatch.spawn(function()
      local client = clients[i % CONNECTIONS + 1]
      local got = assert(client:call(LOCK, { name = NAME, lease = leases[i] }, { timeout = SECONDS }))
      assert(client:call(UNLOCK, { key = got.key }))
    end)
  end
  wait_for_keys(clients[1], n + 1)
  local queued = processor_time(peer.pid)
  assert(clients[1]:call(UNLOCK, { key = held.key }))
  assert(keywatch.join(tasks))
  local ended = processor_time(peer.pid)
  wait_for_keys(clients[1], 0)
  for _, client in ipairs(clients) do client:close() end
  local target = n == LARGE and "less than 1" or nil
  measure.report(("%d waiters are queued"):format(n), queued - start, "s", target)
  measure.report("each of them", (queued - start) / n * 1e6, "us")
  measure.report("the lock goes through all of them", ended - queued, "s")
  measure.report("each of them", (ended - queued) / n * 1e6, "us")
end

print("locks, processor time of the server, " .. _VERSION)
for _, n in ipairs(arg[1] and { tonumber(arg[1]) } or { SMALL, LARGE }) do
  local peer = server.start { is_in_memory = true }
  keywatch.run(measure_waiters, peer, n)
  peer:stop()
end
