-- SPDX-License-Identifier: MIT
--- What it costs a client to keep thousands of leases: its processor time, as a share of a core; and how fast it grants
--- them.
--
--   lua5.4 bench/leases.lua [leases] [ttl] [seconds]
--   luajit bench/leases.lua
--
-- The server is a process of its own, with its data in memory. The leases are granted by tasks, within a second, so
-- they are also renewed within a second: the share of a core is that of the whole time.

package.path = arg[0]:match("^(.-)[^/]*$") .. "?.lua;" .. package.path

local keywatch = require "keywatch"
local measure = require "measure"
local server = require "spec.support.server"

local LEASES = tonumber(arg[1]) or 10000
local TTL = tonumber(arg[2]) or 60   -- seconds
local SECONDS = tonumber(arg[3]) or TTL -- of the measurement
local TASKS = 64
local TARGET = "< 2"

--- Grants leases in several tasks. Returns them.
local function grant_all(client, n)
  local leases, tasks = {}, {}
  for i = 1, TASKS do
    tasks[i] = keywatch.spawn(function()
      for k = i, n, TASKS do leases[k] = assert(client:lease(TTL)) end
    end)
  end
  keywatch.join(tasks)
  return leases
end

--- Returns how many leases are lost.
local function count_lost(leases)
  local n = 0
  for _, lease in ipairs(leases) do
    if lease:error() then n = n + 1 end
  end
  return n
end

--- Returns the sum of the times until which the leases certainly live: each renewal moves one by a third of the TTL.
local function sum_of_deadlines(leases)
  local sum = 0
  for _, lease in ipairs(leases) do sum = sum + lease.reference.kept.deadline end
  return sum
end

--- Returns the processor seconds of this process and the seconds that pass meanwhile.
local function rest(seconds)
  local cpu, start = os.clock(), keywatch.now()
  keywatch.sleep(seconds)
  return os.clock() - cpu, keywatch.now() - start
end

local function run(client)
  assert(client:status())
  local start, cpu = keywatch.now(), os.clock()
  local leases = grant_all(client, LEASES)
  measure.report(("grant %d leases, %d at a time"):format(LEASES, TASKS), LEASES / (keywatch.now() - start), "/s")
  measure.report("  the client's processor time for one", (os.clock() - cpu) / LEASES * 1e6, "us")
  for _, lease in ipairs(leases) do lease:keep() end
  local before = sum_of_deadlines(leases)
  local used, passed = rest(SECONDS)
  local renewals = (sum_of_deadlines(leases) - before) / (TTL / 3)
  measure.report(("keep %d leases of %d s, for %d s"):format(LEASES, TTL, SECONDS), used / passed * 100, "% of a core",
    TARGET)
  measure.report("  renewals", renewals / passed, "/s")
  measure.report("  the client's processor time for one renewal", used / renewals * 1e6, "us")
  local lost = count_lost(leases)
  if lost > 0 then error(lost .. " leases were lost", 0) end
end

local peer = server.start { kind = "keywatch", is_in_memory = true }
local client = keywatch.connect(peer.url)
print(("Leases that a client keeps, on %s"):format(rawget(_G, "jit") and "LuaJIT" or _VERSION))
local ok, err = pcall(keywatch.run, run, client)
client:close()
peer:stop()
if not ok then error(err, 0) end
