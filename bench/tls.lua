-- SPDX-License-Identifier: MIT
--- What TLS costs, side by side with etcd over TLS: requests and events for each processor second of the server, full
--- handshakes beside a server of Go's that does nothing else, and the memory of an idle connection.
--
--   lua5.4 bench/tls.lua [part]
--
-- All servers have the same certificate (ECDSA, P-256) and the same load. They are measured in turns, and the best of
-- each counts. What the load generator costs itself is not counted.

package.path = arg[0]:match("^(.-)[^/]*$") .. "?.lua;" .. package.path

local measure = require "measure"
local serving = require "serving"

local load_on, row = serving.load_on, measure.row

local ROUNDS = 3
local HANDSHAKES = 1000
local CONNECTIONS = 5000
local LEAST_RATE = 5     -- times etcd's, for each processor second
local MOST_TIME = 1.3    -- times that of Go's server, for a handshake
local MOST_MEMORY = 40e3 -- bytes of an idle connection, more than of a plain one

local function headline(servers)
  measure.headline(servers, function(server) return server.kind.name end)
end

--- The least processor time of each server for one of what is counted, in microseconds.
local function least_time(servers, what)
  local best = {}
  for _ = 1, ROUNDS do
    for _, server in ipairs(servers) do
      best[server] = math.min(best[server] or math.huge, load_on(server, what).server_us)
    end
  end
  return best
end

--- Compares a load. `unit` is what is counted. In step, each put follows all events of the one before.
local function compare_rates(title, unit, servers, what)
  local keywatch, etcd = servers[1], servers[2]
  local best = least_time(servers, what)
  row(title, unit .. " per processor second", servers, function(server) return 1e6 / best[server] end)
  row("    keywatch/etcd", "at least " .. LEAST_RATE, servers, function(server)
    return server == keywatch and best[etcd] / best[keywatch]
  end)
end

local function measure_load(servers)
  headline(servers)
  compare_rates("put, 64 in flight, 1 connection", "puts", servers, "put -c 1 -m 64 -n 50000")
  compare_rates("put, 64 in flight, 8 connections", "puts", servers, "put -c 8 -m 8 -n 50000")
  for _, case in ipairs {
    { "1,000 watchers on 100 connections", "-w 1000 -s 100 -c 100" },
    { "1,000 watchers on 1 connection", "-w 1000 -s 10 -c 1" },
  } do
    compare_rates("64 puts in flight, " .. case[1], "events", servers, ("watch %s -n 1000 -W 64"):format(case[2]))
    compare_rates("puts in step, " .. case[1], "events", servers, ("watch %s -n 100 --in-step"):format(case[2]))
  end
end

local function measure_handshakes(servers)
  headline(servers)
  local go = servers[#servers]
  local best = least_time(servers, ("handshakes -n %d -m 16"):format(HANDSHAKES))
  row(("a full handshake, of %d"):format(HANDSHAKES), "us of the server", servers, function(server)
    return best[server]
  end)
  row("    of Go's", "at most " .. MOST_TIME, servers, function(server)
    return server ~= go and best[server] / best[go]
  end)
end

local function memory_of_each(servers)
  local found = {}
  for _, server in ipairs(servers) do
    found[server.kind.name] = load_on(server, ("connections -c %d"):format(CONNECTIONS)).bytes_each
  end
  return found
end

local function measure_memory()
  local plain, secure, columns
  serving.with_servers(function(servers) plain = memory_of_each(servers) end)
  serving.with_tls_servers(function(servers)
    secure, columns = memory_of_each(servers), servers
  end)
  headline(columns)
  local function of(found)
    return function(server) return found[server.kind.name] end
  end
  row("an idle connection", "bytes", columns, of(plain))
  row("an idle connection with TLS", "bytes", columns, of(secure))
  row("    more", ("bytes, at most %d"):format(MOST_MEMORY), columns, function(server)
    return secure[server.kind.name] - plain[server.kind.name]
  end)
end

measure.run("TLS, beside etcd", {
  { "load over TLS", function() serving.with_tls_servers(measure_load) end },
  { "handshakes", function() serving.with_tls_servers(measure_handshakes, true) end },
  { "memory of idle connections", measure_memory },
})
