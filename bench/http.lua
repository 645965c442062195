-- SPDX-License-Identifier: MIT
--- What HTTP/1.1 costs, beside nginx with one worker: processor time of the server's processes for a request, and
-- memory of an idle connection. nginx answers with `return 200 "0123456789"`.
--
--   lua5.4 bench/http.lua [requests]
--
-- The load is that of h2load, with 64 connections that stay open. The servers are measured in turns, and the least time
-- of each counts: processor time depends little on what else the machine does, rates much.

package.path = arg[0]:match("^(.-)[^/]*$") .. "?.lua;" .. package.path

local http = require "spec.support.http"
local measure = require "measure"
local nginx_stage = require "spec.support.nginx_stage"
local proc = require "spec.support.proc"
local process = require "spec.support.process"

local REQUESTS = tonumber(arg[1]) or 50000
local CONNECTIONS, ROUNDS = 64, 5
local IDLE, AT_ONCE = 10000, 100
local CORE_TARGET, LUA_TARGET, IDLE_TARGET = 1.6, 4, 8192 -- times nginx's, and bytes

local NGINX = [[
events { worker_connections 30000; }
worker_rlimit_nofile 30000;
http {
  access_log off;
  keepalive_requests 1000000000;
  keepalive_timeout 1h;
  server {
    listen 127.0.0.1:$port;
    location = /text { return 200 "0123456789"; }
  }
}
]]

-- {====== Servers ======

--- Starts keywatch on a VM, with the handlers of the specs.
local function start_keywatch(name, vm, version)
  local path = ("build/%s/%%s/lua/%s/"):format(vm, version)
  local share, lib = path:format("share"), path:format("lib")
  local one = process.start({ "sh", "-c", 'ulimit -n $(ulimit -H -n) && exec "$@"', "sh", vm, "-e",
    'require "spec.support.http_handlers"', "bin/keywatch", "serve", "--memory",
    "--listen-client-urls=http://127.0.0.1:0" }, { is_lasting = true, env = {
      LUA_PATH = ("./?.lua;%s?.lua;%s?/init.lua;;"):format(share, share), LUA_CPATH = lib .. "?.so;;" } })
  local port = one:expect_error("ready to serve client requests on http://127%.0%.0%.1:(%d+)\n")
  return { name = name, port = tonumber(port), pids = { one.pid }, stop = function()
    one:signal("sigterm")
    one:wait()
  end }
end

local function start_nginx()
  local stage = nginx_stage.start { workers = 1, configuration = NGINX }
  local pids = stage:workers()
  return { name = "nginx", port = stage.port, pids = pids, stop = function() stage:quit() end }
end

--- Returns the processor time of a server, in seconds.
local function used_by(server)
  local sum = 0
  for _, pid in ipairs(server.pids) do sum = sum + proc.seconds(pid) end
  return sum
end

-- }======

-- {====== Requests ======

--- Makes requests, and returns the microseconds that the server has taken for one.
local function load_on(server, path)
  local before = used_by(server)
  local done = process.run { "h2load", "--h1", "-n", tostring(REQUESTS), "-c", tostring(CONNECTIONS),
    ("http://127.0.0.1:%d%s"):format(server.port, path) }
  local text = done:stdout()
  assert(text:find(("%d succeeded"):format(REQUESTS), 1, true), text)
  return (used_by(server) - before) / REQUESTS * 1e6
end

--- Measures all servers in turns. Each case is { server, path, least }.
local function measure_requests(cases)
  for _ = 1, ROUNDS do
    for _, case in ipairs(cases) do case.least = math.min(case.least or math.huge, load_on(case[1], case[2])) end
  end
end

-- }======

-- {====== Idle connections ======

--- Opens connections, makes a request on each, and returns how many bytes one takes then.
local function measure_idle(server)
  local all, before = {}, 0
  for _, pid in ipairs(server.pids) do before = before + proc.resident(pid) end
  for first = 1, IDLE, AT_ONCE do
    for i = first, first + AT_ONCE - 1 do
      all[i] = http.connect(server.port)
      all[i]:say("GET /text HTTP/1.1\r\nHost: localhost\r\n\r\n")
    end
    for i = first, first + AT_ONCE - 1 do assert(all[i]:wait().status == 200) end
  end
  local after = 0
  for _, pid in ipairs(server.pids) do after = after + proc.resident(pid) end
  for _, one in ipairs(all) do one:close() end
  return (after - before) / IDLE
end

-- }======

local nginx = start_nginx()
local servers = { start_keywatch("Lua 5.4", "lua5.4", "5.4"), start_keywatch("LuaJIT", "luajit", "5.1") }
print(("HTTP/1.1: %d idle connections; %d requests on %d connections"):format(IDLE, REQUESTS, CONNECTIONS))
measure.report("an idle connection, nginx", measure_idle(nginx), "bytes")
for _, server in ipairs(servers) do
  measure.report(("an idle connection, %s"):format(server.name), measure_idle(server), "bytes",
    ("the target is %d"):format(IDLE_TARGET))
end
local cases = { { nginx, "/text" } }
for _, server in ipairs(servers) do
  cases[#cases + 1] = { server, "/version", "endpoint", CORE_TARGET }
  cases[#cases + 1] = { server, "/text", "handler", LUA_TARGET }
end
measure_requests(cases)
local base = cases[1].least
measure.report("a request, nginx", base, "us")
for i = 2, #cases do
  local case = cases[i]
  measure.report(("a request, %s, %s"):format(case[1].name, case[3]), case.least, "us",
    ("%.2f times nginx; the target is %.1f"):format(case.least / base, case[4]))
end
nginx.stop()
for _, server in ipairs(servers) do server.stop() end
