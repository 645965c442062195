-- SPDX-License-Identifier: MIT
--- What resources of Kubernetes cost over HTTP, in processor time and memory of the server, on Lua 5.4 and LuaJIT.
--
--   lua5.4 bench/kubernetes.lua [part]
--
-- Targets: an event of a watch 2 us with 100 watches on each of 100 HTTP/2 connections; the same on HTTP/1.1 beside one
-- write to the socket; a watch 6 KB beside its connection; 300 MB/s of JSON of a list, in turns of at most 5 ms; a
-- create 80 us on LuaJIT.
--
-- The objects are widgets of about 1 KB, with a schema. The store is in memory. The load is that of build/bench/load,
-- and h2load's for lists. Each part has fresh servers; of several rounds the best counts.

package.path = arg[0]:match("^(.-)[^/]*$") .. "?.lua;" .. package.path

local http = require "spec.support.http"
local measure = require "measure"
local proc = require "spec.support.proc"
local process = require "spec.support.process"

local unpack = rawget(table, "unpack")

local WATCHES, CONNECTIONS = 10000, 100
local EVENTS = 50 -- for each watch
local OBJECTS, PAD = 10000, 650 -- of a list, and bytes of each of them that say nothing
local LISTS, WRITES, ROUNDS = 10, 5000, 3
local VMS = { { "LuaJIT", "luajit", "5.1" }, { "Lua 5.4", "lua5.4", "5.4" } }
local COLLECTION = "/apis/bench.example/v1/namespaces/default/widgets"
local WIDGET = '{"apiVersion":"bench.example/v1","kind":"Widget","metadata":{"name":"w-#########",'
  .. '"namespace":"default","labels":{"app":"bench","tier":"front"},'
  .. '"annotations":{"bench.example/note":"made by bench/kubernetes.lua"}},'
  .. '"spec":{"size":3,"note":"a widget","pad":"%s"}}'
local MAP = '{"metadata":{"name":"m"},"data":{"n":"#########","pad":"%s"}}'
local PATCH = '{"metadata":{"annotations":{"bench.example/n":"#########"}}}'
local MERGE = "application/merge-patch+json"

-- {====== Servers and load ======

--- Starts a server on a VM.
local function start(vm)
  local path = ("build/%s/%%s/lua/%s/"):format(vm[2], vm[3])
  local share, lib = path:format("share"), path:format("lib")
  local one = process.start({ "sh", "-c", 'ulimit -n $(ulimit -H -n) && exec "$@"', "sh", vm[2],
    "bench/kubernetes_server.lua" }, { is_lasting = true, env = {
      LUA_PATH = ("./?.lua;%s?.lua;%s?/init.lua;;"):format(share, share), LUA_CPATH = lib .. "?.so;;" } })
  local port = tonumber(one:expect("http://127%.0%.0%.1:(%d+)\n"))
  return { vm = vm[1], process = one, pid = one.pid, port = port }
end

local function stop(server)
  server.process:signal("sigterm")
  server.process:wait()
end

--- Runs fn with a fresh server of each VM.
local function on_each_vm(fn)
  for _, vm in ipairs(VMS) do
    local server = start(vm)
    fn(server)
    stop(server)
  end
end

--- Returns the number that a server answers at a path of bench/kubernetes_server.lua.
local function ask(server, path)
  local client = http.connect(server.port)
  client:say(("GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n"):format(path))
  local answer = client:wait()
  client:close()
  return tonumber(answer.body)
end

--- Returns the memory of a server without garbage, in bytes.
local function memory_of(server)
  ask(server, "/collect")
  return proc.resident(server.pid)
end

--- Starts the load generator on a server.
local function start_load(server, ...)
  return process.start { "build/bench/load", "--port", tostring(server.port), "--pid", tostring(server.pid),
    "--timeout", "300", ... }
end

--- Waits for the end of a load, and returns the microseconds of the server for one request or event.
local function cost_of(load)
  assert(load:wait(300) == 0, load:transcript())
  return tonumber(load:stdout():match "server_us=(%S+)")
end

--- Makes requests, and returns the microseconds of the server for one.
local function rest(server, n, ...)
  return cost_of(start_load(server, "rest", "--number", tostring(n), "--in-flight", "10", ...))
end

--- Creates n widgets, and returns the microseconds of the server for one.
local function create(server, n, pad)
  return rest(server, n, "--keys", tostring(n), "--method", "POST", "--path", COLLECTION, "--body",
    WIDGET:format(("x"):rep(pad)))
end

-- }======

-- {====== Watches ======

--- Watches one widget, and patches it. Returns the microseconds of the server for an event of a watch, and the bytes of
-- a watch.
local function follow(server, ...)
  create(server, 1, PAD)
  local before = memory_of(server)
  local load = start_load(server, "follow", "--watchers", tostring(WATCHES), "--number", tostring(EVENTS), "--in-step",
    "--follow", COLLECTION .. "?watch=1&timeoutSeconds=3000", "--method", "PATCH", "--path",
    COLLECTION .. "/w-000000000", "--body", PATCH, "--type", MERGE, ...)
  load:expect "followers"
  local bytes = (memory_of(server) - before) / WATCHES
  load:write "\n"
  return cost_of(load), bytes
end

--- Returns the bytes of a connection of HTTP/1.1 that has had one answer.
local function idle_bytes(server)
  local before = memory_of(server)
  local load = start_load(server, "follow", "--watchers", tostring(WATCHES), "--follow", "/absent", "--http1")
  load:expect "followers"
  local bytes = (memory_of(server) - before) / WATCHES
  load:write "\n"
  load:signal "sigkill"
  load:wait()
  return bytes
end

local function measure_streams()
  on_each_vm(function(server)
    local us, bytes = follow(server, "--connections", tostring(CONNECTIONS))
    measure.report(("an event of a watch, HTTP/2, %s"):format(server.vm), us, "us", "the target is 2")
    measure.report(("a watch, HTTP/2, %s"):format(server.vm), bytes, "bytes", "the target is 6144")
  end)
end

local function measure_connections()
  on_each_vm(function(server)
    local us, bytes = follow(server, "--http1")
    measure.report(("an event of a watch, HTTP/1.1, %s"):format(server.vm), us, "us", "2 and one write to the socket")
    measure.report(("a watch and its connection, HTTP/1.1, %s"):format(server.vm), bytes, "bytes")
  end)
  on_each_vm(function(server)
    measure.report(("an idle connection, HTTP/1.1, %s"):format(server.vm), idle_bytes(server), "bytes")
  end)
end

-- }======

-- {====== Lists ======

--- Returns the megabytes per second of processor time of a list, and its bytes.
local function list(server, flag)
  local before = proc.seconds(server.pid)
  local done = process.run { "h2load", flag, "-n", tostring(LISTS), "-c", "1", "-m", "1", "-w", "30", "-W", "30",
    ("http://127.0.0.1:%d%s?resourceVersion=0"):format(server.port, COLLECTION) }
  local text = done:stdout()
  assert(text:find(("%d succeeded"):format(LISTS), 1, true), text)
  local bytes = tonumber(text:match "data$" or text:match "%((%d+)%) data")
  return bytes / (proc.seconds(server.pid) - before) / 1e6, bytes / LISTS
end

local function measure_lists()
  on_each_vm(function(server)
    create(server, OBJECTS, PAD)
    for _, flag in ipairs { "--h1", "--h2" } do
      if flag == "--h2" then flag = "--no-tls-proto=h2c" end
      local best, bytes = 0, nil
      for _ = 1, ROUNDS do
        local rate
        rate, bytes = list(server, flag)
        best = math.max(best, rate)
      end
      measure.report(("a list of %.1f MB, %s, %s"):format(bytes / 1e6, flag == "--h1" and "HTTP/1.1" or "HTTP/2",
        server.vm), best, "MB/s", "the target is 300")
    end
    ask(server, "/longest")
    list(server, "--h1")
    measure.report(("the longest turn of these lists, %s"):format(server.vm), ask(server, "/longest") * 1000, "ms",
      "the target is 5")
  end)
end

-- }======

-- {====== Single objects ======

local CALLS = { "create", "get", "get, resourceVersion=0", "patch", "delete", "update of a config map" }

local function measure_objects()
  on_each_vm(function(server)
    local least, pad = {}, ("x"):rep(PAD)
    local maps = "/api/v1/namespaces/default/configmaps"
    local function take(what, us) least[what] = math.min(least[what] or math.huge, us) end
    rest(server, 1, "--method", "POST", "--path", maps, "--body", '{"metadata":{"name":"m"}}')
    for round = 1, ROUNDS do
      local path = ("/apis/bench.example/v1/namespaces/r%d/widgets"):format(round)
      local one = path .. "/w-#########"
      local body = WIDGET:format(pad):gsub('"namespace":"default"', '"namespace":"r' .. round .. '"')
      local keys = { "--keys", tostring(WRITES) }
      take("create", rest(server, WRITES, "--method", "POST", "--path", path, "--body", body, unpack(keys)))
      take("get", rest(server, WRITES, "--path", one, unpack(keys)))
      take("get, resourceVersion=0", rest(server, WRITES, "--path", one .. "?resourceVersion=0", unpack(keys)))
      take("patch", rest(server, WRITES, "--method", "PATCH", "--path", one, "--type", MERGE, "--body", PATCH,
        unpack(keys)))
      take("delete", rest(server, WRITES, "--method", "DELETE", "--path", one, unpack(keys)))
      take("update of a config map", rest(server, WRITES, "--method", "PUT", "--path", maps .. "/m", "--body",
        MAP:format(pad), "--in-flight", "1", unpack(keys)))
    end
    for _, what in ipairs(CALLS) do
      measure.report(("%s, %s"):format(what, server.vm), least[what], "us",
        what == "create" and "the target is 80 on LuaJIT" or nil)
    end
  end)
end

-- }======

measure.run("resources of Kubernetes", {
  { ("%d watches on %d HTTP/2 connections, %d events"):format(WATCHES, CONNECTIONS, EVENTS), measure_streams },
  { ("%d watches on HTTP/1.1 connections of their own, %d events"):format(WATCHES, EVENTS), measure_connections },
  { ("lists of %d objects of 1 KB"):format(OBJECTS), measure_lists },
  { ("%d requests about single objects of 1 KB"):format(WRITES), measure_objects },
})
