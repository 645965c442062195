-- SPDX-License-Identifier: MIT
--- What a cache costs its client, beside a map that is kept by etcd's client for Go: until it is ready, for each
--- update, in memory, and for local watches; with keywatch's server and with etcd.
--
--   lua5.4 bench/cache.lua [part]
--
-- Each client is a process of its own: bench/cache_peer.lua, and build/go/peer, which lists and watches the same prefix
-- into a map. They are measured in turns, and the best of each counts. The processor time is that of all threads of the
-- process of the client.

local HERE = arg[0]:match("^(.-)[^/]*$")
package.path = HERE .. "?.lua;" .. package.path

local measure = require "measure"
local serving = require "serving"

local ROUNDS = 3
local SECONDS = 300 -- after which a client has failed
local PREFIX = "/registry/"
local KEYS, KEY_BYTES, VALUE_BYTES = 100000, 32, 256
local SIZES = (" --keys %d --key-size %d --value-size %d"):format(KEYS, KEY_BYTES, VALUE_BYTES)
local WATCHES = 10000

local function lua(name, version)
  local share, lib = ("build/%s/share/lua/%s"):format(name, version), ("build/%s/lib/lua/%s"):format(name, version)
  return {
    name = name,
    command = ("env -u LUA_PATH_5_4 -u LUA_CPATH_5_4 'LUA_PATH=%s/?.lua;%s/?/init.lua;;' 'LUA_CPATH=%s/?.so;;' "
      .. "%s %scache_peer.lua"):format(share, share, lib, name, HERE),
  }
end

local GO = { name = "Go", command = "build/go/peer" }
local LUAS = { lua("lua5.4", "5.4"), lua("luajit", "5.1") }
local CLIENTS = { LUAS[1], LUAS[2], GO }

-- One run ------------------------------------------------------------------------------------------------------------

--- What a client says, as a table of numbers.
local function expect(client, pipe, word)
  local line = pipe:read("*l") or ""
  if not line:match("^" .. word) then error(("%s has failed: %s"):format(client.name, line), 0) end
  local found = {}
  for name, value in line:gmatch("(%S+)=(%S+)") do found[name] = tonumber(value) end
  return found
end

--- A client from its start until n puts, which are so many in flight, have come to it. It has so many local watches,
-- if given.
local function run(client, server, n, in_flight, watches)
  local command = ("%s http://127.0.0.1:%d cache %s %d %s"):format(client.command, server.port, PREFIX, n,
    watches or "")
  local pipe = assert(io.popen(("exec setpriv --pdeathsig TERM timeout %d %s"):format(SECONDS, command)))
  local found = { ready = expect(client, pipe, "ready"), watching = watches and expect(client, pipe, "watching") }
  serving.load_on(server, ("put --random -m %d -n %d"):format(in_flight, n) .. SIZES)
  found.updated = expect(client, pipe, "updated")
  pipe:close()
  if found.ready.keys ~= KEYS or found.updated.keys ~= KEYS then error(client.name .. " has not all keys", 0) end
  return {
    ready_seconds = found.ready.seconds,
    ready_us = found.ready.cpu * 1e6 / KEYS,
    object_bytes = found.ready.bytes / KEYS - KEY_BYTES - VALUE_BYTES,
    update_us = found.updated.cpu * 1e6 / n,
    watching = found.watching,
  }
end

--- The best of each client, measured in turns.
local function best_of_each(clients, server, ...)
  local best = {}
  for _ = 1, ROUNDS do
    for _, client in ipairs(clients) do
      serving.refresh(server)
      local found = run(client, server, ...)
      local b = best[client] or found
      for name, value in pairs(found) do
        if type(value) == "number" then b[name] = math.min(b[name], value) end
      end
      best[client] = b
    end
  end
  return best
end

-- Parts --------------------------------------------------------------------------------------------------------------

local function headline(clients)
  measure.headline(clients, function(client) return client.name end)
end

local function row(title, unit, clients, best, field)
  measure.row(title, unit, clients, function(client) return best[client][field] end)
  io.stdout:flush()
end

--- etcd is slower, and keeps what it was given.
local FLOOD = { keywatch = 200000, etcd = 50000 }
local LONE = 10000

local function measure_caches(servers)
  headline(CLIENTS)
  serving.fill(servers, "fill" .. SIZES)
  for _, server in ipairs(servers) do
    local kind = server.kind.name
    local best = best_of_each(CLIENTS, server, FLOOD[kind], 100)
    row(("%s: ready, %d keys"):format(kind, KEYS), "s (keywatch: at most 1)", CLIENTS, best, "ready_seconds")
    row("  processor time of the client, for a key", "us", CLIENTS, best, "ready_us")
    row("  memory of an object, beyond its key and value", "bytes (at most 200)", CLIENTS, best, "object_bytes")
    row("  processor time of an update, 100 puts in flight", "us (at most 5)", CLIENTS, best, "update_us")
    best = best_of_each(CLIENTS, server, LONE, 1)
    row("  processor time of an update, 1 put at a time", "us", CLIENTS, best, "update_us")
  end
end

local function measure_watches(servers)
  local server = servers[1]
  headline(LUAS)
  serving.fill({ server }, "fill" .. SIZES)
  local best = best_of_each(LUAS, server, FLOOD.keywatch, 100, WATCHES)
  row(("processor time of an update, %d local watches"):format(WATCHES), "us (at most 5)", LUAS, best, "update_us")
  for _, case in ipairs {
    { "  bytes written to the server while they are opened", "(0)", "written" },
    { "  watches of the client at the server", "(1)", "upstream" },
  } do
    measure.row(case[1], case[2], LUAS, function(client) return best[client].watching[case[3]] end)
  end
  measure.row("  memory of a local watch", "bytes", LUAS, function(client)
    return best[client].watching.bytes / WATCHES
  end)
end

local parts = { { "caches", measure_caches }, { "local watches", measure_watches } }

for _, part in ipairs(parts) do
  local fn = part[2]
  part[2] = function() serving.with_servers(fn) end
end

measure.run(("caches, beside a map by Go's client: %d keys of %d bytes with values of %d bytes"):format(KEYS, KEY_BYTES,
  VALUE_BYTES), parts)
