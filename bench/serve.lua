-- SPDX-License-Identifier: MIT
--- What serving costs, side by side with etcd: requests and events a second, the server's processor time for one of
--- them, and its memory.
--
--   lua5.4 bench/serve.lua [part]
--
-- Servers are measured in turns, and the best of each counts. Rates are those of a machine that both the server and the
-- load share; processor times tell more.

package.path = arg[0]:match("^(.-)[^/]*$") .. "?.lua;" .. package.path

local measure = require "measure"
local serving = require "serving"

local capture, row = serving.capture, measure.row

local ROUNDS = 3
local DISK_ROUNDS = 7 -- where a disk is measured, whose speed changes most
local KEYS, KEY_BYTES, VALUE_BYTES = 10000, 32, 256

-- Load ---------------------------------------------------------------------------------------------------------------

local SIZES = (" --keys %d --key-size %d --value-size %d"):format(KEYS, KEY_BYTES, VALUE_BYTES)

local function load_on(server, what)
  return serving.load_on(server, what .. SIZES)
end

local function fill(servers)
  serving.fill(servers, "fill" .. SIZES)
end

--- A get of one key as h2load takes it: a file with a gRPC message.
local function write_get(path)
  local start_of_key = "/registry/"
  local key = start_of_key .. ("0"):rep(KEY_BYTES - #start_of_key)
  local message = "\10" .. string.char(#key) .. key
  local file = assert(io.open(path, "wb"))
  file:write("\0\0\0\0", string.char(#message), message)
  file:close()
end

--- Gets of one key by h2load, which compresses headers as clients do.
local function h2load_on(server, what, n)
  local body = server.dir .. "/get"
  write_get(body)
  local before = load_on(server, "look")
  local output = capture(("h2load -n %d %s -d %s -H 'content-type: application/grpc' -H 'te: trailers' "
    .. "http://127.0.0.1:%d/etcdserverpb.KV/Range"):format(n, what, body, server.port))
  local after = load_on(server, "look")
  local succeeded = tonumber(output:match("(%d+) succeeded"))
  local bytes = tonumber(output:match("headers %b(), %S+ %((%d+)%) data"))
  assert(succeeded == n and bytes > n * VALUE_BYTES, output)
  return {
    per_second = tonumber(output:match("([%d.]+) req/s")),
    server_us = (after.server_us - before.server_us) / n,
  }
end

-- Reports ------------------------------------------------------------------------------------------------------------

local function headline(servers)
  measure.headline(servers, function(server) return server.kind.name end)
end

--- The best of what was found on a server in several rounds.
local function best_of(rounds)
  local best = { per_second = 0, server_us = math.huge, load_us = math.huge }
  for _, found in ipairs(rounds) do
    best.per_second = math.max(best.per_second, found.per_second)
    best.server_us = math.min(best.server_us, found.server_us)
    best.load_us = found.load_us and math.min(best.load_us, found.load_us)
    best.events_per_message = found.events_per_message
  end
  return best
end

--- Measures all servers in turns, every second time in the opposite order, and reports. `of` says what is counted:
-- requests or events; n: how many rounds.
local function compare(title, of, servers, fn, n)
  local rounds, best = {}, {}
  for round = 1, n or ROUNDS do
    for i = 1, #servers do
      local server = servers[round % 2 == 1 and i or #servers + 1 - i]
      rounds[server] = rounds[server] or {}
      table.insert(rounds[server], fn(server))
    end
  end
  for _, server in ipairs(servers) do best[server] = best_of(rounds[server]) end
  local function column(name)
    return function(server) return best[server][name] end
  end
  row(title, of .. "/s", servers, column("per_second"))
  row("  processor time of the server", "us", servers, column("server_us"))
  if best[servers[1]].load_us then row("  and of the load", "us", servers, column("load_us")) end
  if of == "events" then row("  in a message", "events", servers, column("events_per_message")) end
  io.stdout:flush()
end

local function report_resident(servers)
  row("memory of the server afterwards", "MB", servers, function(server)
    return load_on(server, "look").server_rss / 1e6
  end)
end

-- Parts --------------------------------------------------------------------------------------------------------------

local function requests(servers, mode, lone, many)
  for _, case in ipairs {
    { "1 at a time", "-c 1 -m 1 -n " .. lone },
    { "100 in flight, 1 connection", "-c 1 -m 100 -n " .. many },
    { "100 in flight, 10 connections", "-c 10 -m 10 -n " .. many },
  } do
    compare(mode .. ", " .. case[1], "requests", servers, function(server)
      return load_on(server, mode .. " --random " .. case[2])
    end)
  end
end

local function measure_requests(servers, mode, lone, many)
  headline(servers)
  fill(servers)
  requests(servers, mode, lone, many)
  report_resident(servers)
end

local function measure_h2load(servers)
  headline(servers)
  fill(servers)
  for _, case in ipairs {
    { "range, 100 in flight, 1 connection", "-c 1 -m 100" },
    { "range, 100 in flight, 10 connections", "-c 10 -m 10" },
  } do
    compare(case[1], "requests", servers, function(server) return h2load_on(server, case[2], 50000) end)
  end
end

--- In step, each event is a message of its own; in a flood, who falls behind gets many in one.
local function measure_events(servers)
  headline(servers)
  for _, case in ipairs {
    { "1,000 watchers on 10 streams, in step", "-w 1000 -s 10 -c 1 -n 300 --in-step" },
    { "1,000 watchers on 100 connections, in step", "-w 1000 -s 100 -c 100 -n 300 --in-step" },
    { "1,000 watchers on 10 streams, puts in a flood", "-w 1000 -s 10 -c 1 -n 1000 -W 100" },
    { "1 watcher, puts in a flood", "-w 1 -s 1 -c 1 -n 20000 -W 100" },
  } do
    compare(case[1], "events", servers, function(server) return load_on(server, "watch " .. case[2]) end)
  end
  for _, case in ipairs {
    { "10 watchers from 20,000 revisions ago", "-w 10 -s 1 -n 20000 -W 100" },
    { "1,000 watchers from 500 revisions ago", "-w 1000 -s 10 -n 500 -W 100" },
  } do
    compare(case[1], "events", servers, function(server) return load_on(server, "catchup " .. case[2]) end)
  end
  report_resident(servers)
end

local function measure_memory(name, what)
  return function(servers)
    headline(servers)
    local found = {}
    for _, server in ipairs(servers) do found[server] = load_on(server, what) end
    row(name, "bytes", servers, function(server) return found[server].bytes_each end)
    row("  all of them opened in", "s", servers, function(server) return found[server].seconds end)
    row("  memory of the server before", "MB", servers, function(server)
      return found[server].server_rss_before / 1e6
    end)
  end
end

--- Puts that are on the disk when they are answered.
local function measure_durable(servers, lone)
  headline(servers)
  for _, case in ipairs {
    { "put, 1 at a time", "-c 1 -m 1 -n " .. lone },
    { "put, 64 in flight, 8 connections", "-c 8 -m 8 -n 20000" },
    { "put, 1,000 in flight, 10 connections", "-c 10 -m 100 -n 50000" },
  } do
    compare(case[1], "requests", servers, function(server)
      return load_on(server, "put --random " .. case[2])
    end, DISK_ROUNDS)
  end
end

--- How many writes share a commit: one server for each case, which tells at its end.
local function measure_groups(servers)
  local server = servers[1]
  for _, case in ipairs { { "1 at a time", "-c 1 -m 1 -n 2000" }, { "64 in flight", "-c 8 -m 8 -n 20000" },
    { "1,000 in flight", "-c 10 -m 100 -n 50000" } } do
    local found = load_on(server, "put --random " .. case[2])
    serving.stop(server, "keep")
    local last = capture(("tail -n 1 %s/log"):format(server.dir))
    local revision, commits = last:match("revision (%d+), after (%d+) commits")
    local writes = tonumber(revision) - (server.revision or 1)
    server.revision = tonumber(revision)
    print(("  %-56s %12.1f writes in a commit, %.0f commits/s"):format(case[1], writes / commits,
      commits * found.per_second / writes))
    serving.start(server)
  end
end

local parts = {
  { "gets", function(servers) measure_requests(servers, "range", 5000, 50000) end },
  { "puts", function(servers) measure_requests(servers, "put", 5000, 50000) end },
  { "puts if a compare holds", function(servers) measure_requests(servers, "txn", 5000, 50000) end },
  { "durable puts", function(servers) measure_durable(servers, 2000) end, "fast" },
  { "durable puts: groups", measure_groups, "fast" },
  { ("durable puts, where a flush takes %d ms longer"):format(serving.SLOW_MS), function(servers)
    measure_durable(servers, 200)
  end, "slow" },
  { "gets by h2load", measure_h2load },
  { "events", measure_events },
  { "memory of watchers", measure_memory("an idle watcher, 1,000 on a stream", "idle -w 100000") },
  { "memory of connections", measure_memory("an idle connection", "connections -c 10000") },
}

for _, part in ipairs(parts) do
  local fn = part[2]
  part[2] = function() serving.with_servers(fn, part[3]) end
end

measure.run(("serving, beside etcd: %d keys of %d bytes with values of %d bytes"):format(KEYS, KEY_BYTES, VALUE_BYTES),
  parts)
