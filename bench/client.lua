-- SPDX-License-Identifier: MIT
--- What clients cost, side by side: ours in Lua 5.4 and LuaJIT, Python's etcd3 and Node's etcd3, each with keywatch and
--- with etcd. Requests and events a second, and the client's processor time for one of them.
--
--   lua5.4 bench/client.lua [part]
--
-- Each client is a process of its own, with the defaults of its library: bench/peer.lua, peer.py and peer.js are one
-- program in three languages, each of which takes the fastest of the ways that its library documents. They are measured
-- in turns, and the best of each counts. Rates are those of a machine that the client shares with the server, and where
-- events are new, with who makes them; processor times tell more.

local HERE = arg[0]:match("^(.-)[^/]*$")
package.path = HERE .. "?.lua;" .. package.path

local measure = require "measure"
local serving = require "serving"

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

local PYTHON = { -- the one that Debian's packages are for
  name = "Python",
  command = ("/usr/bin/python3 -B %speer.py"):format(HERE),
}
local NODE = {
  name = "Node",
  command = ("env NODE_OPTIONS= NODE_PATH=build/node/node_modules node %speer.js"):format(HERE),
}

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
local function best_of_each(server, fn)
  local best = {}
  for _ = 1, ROUNDS do
    for _, client in ipairs(CLIENTS) do
      serving.refresh(server)
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

--- What was found of each, and what ours are beside the rivals.
local function report(name, unit, best, field)
  measure.row(name, unit, CLIENTS, function(client) return best[client][field] end)
  for _, rival in ipairs(RIVALS) do
    measure.row("    Lua/" .. rival.name, "", CLIENTS, function(client)
      return is_lua[client] and best[client][field] / best[rival][field]
    end)
  end
end

--- Measures all clients with a server and reports. `of` says what is counted: requests or events.
local function compare(title, of, server, fn)
  local best = best_of_each(server, fn)
  report(title:format(server.kind.name), of .. "/s", best, "per_second")
  report("  processor time of the client", "us", best, "client_us")
  io.stdout:flush()
end

local function headline()
  measure.headline(CLIENTS, function(client) return client.name end)
end

-- Parts --------------------------------------------------------------------------------------------------------------

local function measure_requests(servers, what, lone, many)
  serving.fill(servers, "fill" .. SIZES)
  for _, server in ipairs(servers) do
    for _, case in ipairs { { "1 at a time", lone, 1 }, { IN_FLIGHT .. " in flight", many, IN_FLIGHT } } do
      compare(what .. ", %s, " .. case[1], "requests", server, function(client)
        return request(client, server, what, case[2], case[3])
      end)
    end
  end
end

--- Events of puts that are many at a time. etcd is slower, and keeps what it was given.
local PUTS = { keywatch = 100000, etcd = 20000 }

local function measure_events(servers)
  for _, server in ipairs(servers) do
    compare("1 watcher, %s, puts in a flood", "events", server, function(client)
      return watch(client, server, PUTS[server.kind.name])
    end)
  end
end

--- Who is behind gets no more than a few thousand events a second from etcd: fewer will do there.
local REVISIONS = { keywatch = 200000, etcd = 40000 }

local function measure_history(servers)
  for _, server in ipairs(servers) do
    local n = REVISIONS[server.kind.name]
    serving.fill({ server }, ("put -m 100 -n %d"):format(n) .. SIZES)
    compare(("1 watcher, %%s, from %d revisions ago"):format(n), "events", server, function(client)
      return read_history(client, server, n)
    end)
  end
end

local parts = {
  { "gets", function(servers) measure_requests(servers, "get", 5000, 20000) end },
  { "puts", function(servers) measure_requests(servers, "put", 5000, 20000) end },
  { "events", measure_events },
  { "events of the past", measure_history },
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
