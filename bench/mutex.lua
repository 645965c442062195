-- SPDX-License-Identifier: MIT
--- Locks beside Go's: a free lock is locked and unlocked, one pair after the other, by keywatch's client in Lua 5.4 and
--- in LuaJIT, and by Mutex of etcd's package concurrency for Go; each with keywatch's server and with etcd.
--
--   lua5.4 bench/mutex.lua [pairs]
--
-- Each client is a process of its own: bench/mutex_peer.lua, and build/go/peer. They are measured in turns, and the
-- best of each counts. Rates are those of a machine that the client shares with the server. The processor time is that
-- of all threads of the process of the client.

local HERE = arg[0]:match("^(.-)[^/]*$")
package.path = HERE .. "?.lua;" .. package.path

local measure = require "measure"
local serving = require "serving"

local ROUNDS = 5
local PAIRS = tonumber(arg[1]) or 10000
local SECONDS = 300 -- after which a client has failed
local MOST_TIME = 0.7 -- of Go's processor time

local function lua(name, version)
  local share, lib = ("build/%s/share/lua/%s"):format(name, version), ("build/%s/lib/lua/%s"):format(name, version)
  return {
    name = name,
    command = ("env -u LUA_PATH_5_4 -u LUA_CPATH_5_4 'LUA_PATH=%s/?.lua;%s/?/init.lua;;' 'LUA_CPATH=%s/?.so;;' "
      .. "%s %smutex_peer.lua"):format(share, share, lib, name, HERE),
  }
end

local GO = { name = "Go", command = "build/go/peer" }
local CLIENTS = { lua("lua5.4", "5.4"), lua("luajit", "5.1"), GO }

--- What a client finds: pairs a second, and the processor time of one.
local function run(client, server)
  local line = serving.capture(("timeout %d %s http://127.0.0.1:%d mutex %d"):format(SECONDS, client.command,
    server.port, PAIRS))
  local seconds, cpu = line:match("seconds=(%S+) cpu=(%S+)")
  if not seconds then error(client.name .. " has failed: " .. line, 0) end
  return { per_second = PAIRS / seconds, client_us = cpu * 1e6 / PAIRS }
end

--- The best of each client, measured in turns.
local function best_of_each(server)
  local best = {}
  for _ = 1, ROUNDS do
    for _, client in ipairs(CLIENTS) do
      serving.refresh(server)
      local found = run(client, server)
      local b = best[client] or found
      best[client] = {
        per_second = math.max(b.per_second, found.per_second),
        client_us = math.min(b.client_us, found.client_us),
      }
    end
  end
  return best
end

local function report(name, unit, best, field, target)
  measure.row(name, unit, CLIENTS, function(client) return best[client][field] end)
  measure.row("    Lua/Go", target, CLIENTS, function(client)
    return client ~= GO and best[client][field] / best[GO][field]
  end)
end

print("a free lock, locked and unlocked, beside Go's")
measure.headline(CLIENTS, function(client) return client.name end)
serving.with_servers(function(servers)
  for _, server in ipairs(servers) do
    local best = best_of_each(server)
    report("lock and unlock, " .. server.kind.name, "pairs/s", best, "per_second", "at least 1")
    report("  processor time of the client", "us", best, "client_us", "at most " .. MOST_TIME)
    io.stdout:flush()
  end
end)
