-- SPDX-License-Identifier: MIT
--- What clients cost, side by side: ours in Lua 5.4 and LuaJIT, Python's etcd3 and Node's etcd3, each with keywatch and
--- with etcd. Requests and events a second, and the client's processor time for one of them.
--
--   lua5.4 bench/client.lua [part]
--
-- Each client is a process of its own with one connection (bench/peer.lua, .py and .js are one program in three
-- languages), and as it comes: with no option that its documentation does not name, and none that makes it talk. They
-- are measured in turns, and the best of each counts. Rates are those of a machine that the client shares with the
-- server, and where events are new with those who put; processor times tell more.

package.path = arg[0]:match("^(.-)[^/]*$") .. "?.lua;" .. package.path

local measure = require "measure"
local serving = require "serving"

local HERE = arg[0]:match("^(.-)[^/]*$")
local ROUNDS = 3
local SECONDS = 300 -- after which a client has failed
local IN_FLIGHT = 64
local KEY_BYTES, VALUE_BYTES = 20, 100
local SIZES = (" --keys 10000 --key-size %d --value-size %d"):format(KEY_BYTES, VALUE_BYTES)

-- Clients ------------------------------------------------------------------------------------------------------------

local function lua(name, version)
  local share, lib = ("build/%s/share/lua/%s"):format(name, version), ("build/%s/lib/lua/%s"):format(name, version)
  return {
    name = name,
    command = ("env -u LUA_PATH_5_4 -u LUA_CPATH_5_4 'LUA_PATH=%s/?.lua;%s/?/init.lua;;' 'LUA_CPATH=%s/?.so;;' "
      .. "%s %speer.lua"):format(share, share, lib, name, HERE),
  }
end

local PYTHON = { name = "Python", command = ("/usr/bin/python3 -B %speer.py"):format(HERE) }
local NODE = { name = "Node",
  command = ("env NODE_OPTIONS= NODE_PATH=build/node/node_modules node %speer.js"):format(HERE) }

local LUAS = { lua("lua5.4", "5.4"), lua("luajit", "5.1") }
local RIVALS = { PYTHON, NODE }
local CLIENTS = { LUAS[1], LUAS[2], PYTHON, NODE }

--- Starts a client, which ends with this program. Returns what it prints.
local function start(client, server, what)
  return assert(io.popen(("exec setpriv --pdeathsig TERM timeout %d %s %d %s"):format(SECONDS, client.command,
    server.port, what)))
end

--- What a client has found, of n requests or events that have so many bytes each.
local function finish(client, pipe, n, bytes)
  local line = pipe:read("*l") or ""
  local ok = pipe:close()
  local seconds, cpu, seen = line:match("seconds=(%S+) cpu=(%S+) bytes=(%d+)")
  if not ok or tonumber(seen) ~= n * bytes then error(client.name .. " has failed: " .. line, 0) end
  return { per_second = n / seconds, client_us = cpu * 1e6 / n }
end

local function request(client, server, what, n, in_flight)
  local pipe = start(client, server, ("%s %d %d"):format(what, n, in_flight))
  return finish(client, pipe, n, VALUE_BYTES)
end

local function watch(client, server, n)
  local pipe = start(client, server, ("watch %d"):format(n))
  if pipe:read("*l") ~= "watching" then error(client.name .. " does not watch", 0) end
  serving.load_on(server, ("put -m 100 -n %d"):format(n) .. SIZES)
  return finish(client, pipe, n, KEY_BYTES + VALUE_BYTES)
end

local function read_history(client, server, n)
  return finish(client, start(client, server, ("history %d"):format(n)), n, KEY_BYTES + VALUE_BYTES)
end

-- Reports ------------------------------------------------------------------------------------------------------------

--- The best of what was found of each client, measured in turns.
local function best_of_each(fn)
  local best = {}
  for _ = 1, ROUNDS do
    for _, client in ipairs(CLIENTS) do
      local found = fn(client)
      local b = best[client] or found
      best[client] = {
        per_second = math.max(b.per_second, found.per_second),
        client_us = math.min(b.client_us, found.client_us),
      }
    end
  end
  return best
end

local is_lua = { [LUAS[1]] = true, [LUAS[2]] = true }

--- What was found of each, and what that is beside each of the rivals.
local function report(name, unit, best, field)
  measure.row(name, unit, CLIENTS, function(client) return best[client][field] end)
  for _, rival in ipairs(RIVALS) do
    measure.row("    Lua/" .. rival.name, "", CLIENTS, function(client)
      return is_lua[client] and best[client][field] / best[rival][field]
    end)
  end
end

--- Measures all clients and reports. `of` says what is counted: requests or events.
local function compare(title, of, fn)
  local best = best_of_each(fn)
  report(title, of .. "/s", best, "per_second")
  report("  processor time of the client", "us", best, "client_us")
  io.stdout:flush()
end

local function headline()
  measure.headline(CLIENTS, function(client) return client.name end)
end

-- Parts --------------------------------------------------------------------------------------------------------------

local function measure_requests(what, lone, many)
  return function(servers)
    serving.fill(servers, "fill" .. SIZES)
    for _, server in ipairs(servers) do
      for _, case in ipairs { { "1 at a time", lone, 1 }, { IN_FLIGHT .. " in flight", many, IN_FLIGHT } } do
        compare(("%s of %s, %s"):format(what, server.kind.name, case[1]), "requests", function(client)
          return request(client, server, what, case[2], case[3])
        end)
      end
    end
  end
end

local function measure_events(n)
  return function(servers)
    for _, server in ipairs(servers) do
      compare(("1 watcher of %s, puts in a flood"):format(server.kind.name), "events", function(client)
        return watch(client, server, n)
      end)
    end
  end
end

local function measure_history(n)
  return function(servers)
    serving.fill(servers, ("put -m 100 -n %d"):format(n) .. SIZES)
    for _, server in ipairs(servers) do
      compare(("1 watcher of %s from %d revisions ago"):format(server.kind.name, n), "events", function(client)
        return read_history(client, server, n)
      end)
    end
  end
end

local parts = {
  { "gets", measure_requests("get", 5000, 20000) },
  { "puts", measure_requests("put", 5000, 20000) },
  { "events", measure_events(100000) },
  { "events of the past", measure_history(200000) },
}

for _, part in ipairs(parts) do
  local fn = part[2]
  part[2] = function()
    headline()
    serving.with_servers(fn)
  end
end

measure.run(("clients, beside Python's and Node's: keys of %d bytes with values of %d bytes"):format(KEY_BYTES,
  VALUE_BYTES), parts)
