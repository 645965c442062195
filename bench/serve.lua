-- SPDX-License-Identifier: MIT
--- What serving costs, side by side with etcd: requests and events a second, the server's processor time for one of
--- them, and its memory.
--
--   lua5.4 bench/serve.lua [part]
--
-- Both servers hold their data in memory; etcd's directory is on a memory file system, so that its syncs cost next to
-- nothing. Where writes are durable, both have directories on the disk that this tree is on. They are measured in
-- turns, and the best of each counts. Rates are those of a machine that both the server and the load share; processor
-- times tell more.

package.path = arg[0]:match("^(.-)[^/]*$") .. "?.lua;" .. package.path

local measure = require "measure"

local LOAD = "build/bench/load"
local KEYWATCH = "build/lua5.4/bin/keywatch"
local ROUNDS = 3
local KEYS, KEY_BYTES, VALUE_BYTES = 10000, 32, 256

local function capture(command)
  local pipe = assert(io.popen(command))
  local output = pipe:read("*a")
  local ok = pipe:close()
  if not ok then error(command .. " failed", 0) end
  return output
end

-- Servers ------------------------------------------------------------------------------------------------------------

local SLOW_MS = 2 -- that every flush takes longer on a slow disk

local kinds = {
  {
    name = "keywatch",
    path = KEYWATCH,
    command = function(server)
      local data = server.disk and ("--data-dir %s/data"):format(server.dir) or "--memory"
      return ("%s serve %s --listen-client-urls http://127.0.0.1:%d"):format(KEYWATCH, data, server.port)
    end,
    slow = function(server, command)
      capture(("echo delay %d >%s/control"):format(SLOW_MS, server.dir))
      return ("LD_PRELOAD=$PWD/build/fault.so KW_FAULT_DIR=%s/data KW_FAULT_CONTROL=%s/control %s")
        :format(server.dir, server.dir, command)
    end,
  },
  {
    name = "etcd",
    path = "/usr/bin/etcd",
    command = function(server)
      local client, peer = "http://127.0.0.1:" .. server.port, "http://127.0.0.1:" .. server.peer_port
      return ("ETCD_UNSUPPORTED_ARCH=arm64 etcd --data-dir %s/data --listen-client-urls %s "
        .. "--advertise-client-urls %s --listen-peer-urls %s --initial-advertise-peer-urls %s "
        .. "--initial-cluster default=%s"):format(server.dir, client, client, peer, peer, peer)
    end,
    slow = function(_, command)
      return ("ETCD_UNSUPPORTED_ARCH=arm64 strace -f --seccomp-bpf -qq -o /dev/null -e trace=fsync,fdatasync "
        .. "-e inject=fsync,fdatasync:delay_exit=%d %s"):format(SLOW_MS * 1000, command:match("etcd .*"))
    end,
  },
}

-- The shell around a server, which ends it with its own input: when it is told to, and when this program ends in
-- whatever way. Then its directory goes too, unless it is to be kept.
local SHELL = [[
trap '' INT
ulimit -n $(ulimit -H -n)
tee DIR/log <DIR/out | sed -u -n '/^pid /p; /ready to serve client requests/p' >DIR/said &
exec 3>DIR/out
COMMAND >&3 2>&1 &
pid=$!
echo pid $pid >&3
exec 3>&-
read -r word
kill $pid
wait
[ "$word" = keep ] || rm -rf DIR
]]

--- Starts the process of a server and waits until it says that it is ready.
local function start(server)
  local command = server.kind.command(server)
  if server.disk == "slow" then command = server.kind.slow(server, command) end
  local script = SHELL:gsub("DIR", server.dir):gsub("COMMAND", function() return command end)
  server.shell = assert(io.popen("exec 2>/dev/null\n" .. script, "w"))
  server.said = assert(io.open(server.dir .. "/said"))
  local text = (server.said:read("*l") or "") .. "\n" .. (server.said:read("*l") or "")
  server.pid = tonumber(text:match("pid (%d+)"))
  if not text:find("ready", 1, true) then
    error(server.kind.name .. " did not start:\n" .. capture(("tail %s/log"):format(server.dir)), 0)
  end
end

--- Ends it and waits until it has ended.
local function stop(server, word)
  if not server.shell then return end
  server.shell:write(word or "", "\n")
  server.shell:close()
  server.said:close()
  server.shell, server.said, server.pid = nil, nil, nil
end

--- `disk` is "fast" or "slow" for durable writes, nil for none.
local function new_server(kind, disk)
  local port, peer_port = capture(LOAD .. " port"):match("(%d+) (%d+)")
  local place = disk and "$PWD/build" or "/dev/shm"
  local dir = capture(("mktemp -d -p %s keywatch-bench.XXXXXX"):format(place)):match("%S+")
  capture(("mkfifo %s/out %s/said"):format(dir, dir))
  return {
    kind = kind,
    disk = disk,
    port = tonumber(port),
    peer_port = tonumber(peer_port),
    dir = dir,
    shell = nil, -- a pipe to it
    said = nil,  -- a pipe from it
    pid = nil,   -- of the server
  }
end

--- Gives fn fresh servers, and leaves nothing of them behind.
local function with_servers(fn, disk)
  local servers = {}
  local ok, err = pcall(function()
    for _, kind in ipairs(kinds) do
      local server = new_server(kind, disk)
      servers[#servers + 1] = server
      start(server)
    end
    fn(servers)
  end)
  for _, server in ipairs(servers) do stop(server) end
  if not ok then error(err, 0) end
end

-- Load ---------------------------------------------------------------------------------------------------------------

--- Runs the load generator on a server. Returns what it found.
local function load_on(server, what)
  local line = capture(("%s %s --port %d --pid %d --timeout 300 --keys %d --key-size %d --value-size %d")
    :format(LOAD, what, server.port, server.pid, KEYS, KEY_BYTES, VALUE_BYTES))
  local found = {}
  for name, value in line:gmatch("(%S+)=(%S+)") do found[name] = tonumber(value) end
  return found
end

--- Fills the keys. etcd 3.4 reads more slowly after a burst of writes, for as long as it lives: each read copies the
--- buffer that the burst made grow. It is started again, so as to be at its best.
local function fill(servers)
  for _, server in ipairs(servers) do
    load_on(server, "fill")
    if server.kind.name == "etcd" then
      stop(server, "keep")
      start(server)
    end
  end
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

local function number(found)
  if not found then return "" end
  return (found < 100 and "%.2f" or "%.0f"):format(found)
end

local function row(name, unit, servers, of)
  local line = ("  %-56s"):format(name)
  for _, server in ipairs(servers) do line = line .. (" %12s"):format(number(of(server))) end
  print(line .. " " .. unit)
end

local function headline(servers)
  local line = (" "):rep(58)
  for _, server in ipairs(servers) do line = line .. (" %12s"):format(server.kind.name) end
  print(line)
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

--- Measures all servers in turns and reports. `of` says what is counted: requests or events.
local function compare(title, of, servers, fn)
  local rounds, best = {}, {}
  for _ = 1, ROUNDS do
    for _, server in ipairs(servers) do
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
    compare(case[1], "requests", servers, function(server) return load_on(server, "put --random " .. case[2]) end)
  end
end

--- How many writes share a commit: one server for each case, which tells at its end.
local function measure_groups(servers)
  local server = servers[1]
  for _, case in ipairs { { "1 at a time", "-c 1 -m 1 -n 2000" }, { "64 in flight", "-c 8 -m 8 -n 20000" },
    { "1,000 in flight", "-c 10 -m 100 -n 50000" } } do
    local found = load_on(server, "put --random " .. case[2])
    stop(server, "keep")
    local last = capture(("tail -n 1 %s/log"):format(server.dir))
    local revision, commits = last:match("revision (%d+), after (%d+) commits")
    local writes = tonumber(revision) - (server.revision or 1)
    server.revision = tonumber(revision)
    print(("  %-56s %12.1f writes in a commit, %.0f commits/s"):format(case[1], writes / commits,
      commits * found.per_second / writes))
    start(server)
  end
end

local parts = {
  { "gets", function(servers) measure_requests(servers, "range", 5000, 50000) end },
  { "puts", function(servers) measure_requests(servers, "put", 5000, 50000) end },
  { "puts if a compare holds", function(servers) measure_requests(servers, "txn", 5000, 50000) end },
  { "durable puts", function(servers) measure_durable(servers, 2000) end, "fast" },
  { "durable puts: groups", measure_groups, "fast" },
  { ("durable puts, where a flush takes %d ms longer"):format(SLOW_MS), function(servers)
    measure_durable(servers, 200)
  end, "slow" },
  { "gets by h2load", measure_h2load },
  { "events", measure_events },
  { "memory of watchers", measure_memory("an idle watcher, 1,000 on a stream", "idle -w 100000") },
  { "memory of connections", measure_memory("an idle connection", "connections -c 10000") },
}

for _, part in ipairs(parts) do
  local fn = part[2]
  part[2] = function() with_servers(fn, part[3]) end
end

measure.run(("serving, beside etcd: %d keys of %d bytes with values of %d bytes"):format(KEYS, KEY_BYTES, VALUE_BYTES),
  parts)
