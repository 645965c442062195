-- SPDX-License-Identifier: MIT
--- serving: the servers that benches compare, each in a process of its own, and load on them.
--
-- They hold their data in memory; etcd's directory is on a memory file system, so that its syncs cost next to nothing.
-- Where writes are durable, both have directories on the disk that this tree is on. Where they speak TLS, both have the
-- same certificate, of an ECDSA key on the curve P-256.

local LOAD = "build/bench/load"
local KEYWATCH = "build/lua5.4/bin/keywatch"
local GO = "build/go/handshakes"

local function capture(command)
  local pipe = assert(io.popen(command))
  local output = pipe:read("*a")
  local ok = pipe:close()
  if not ok then error(command .. " failed", 0) end
  return output
end

local function url_of(server)
  return (server.tls and "https" or "http") .. "://127.0.0.1:" .. server.port
end

--- The TLS flags, which both servers know.
local function tls_flags(server)
  return server.tls and ("--cert-file %s --key-file %s"):format(server.tls.cert, server.tls.key) or ""
end

local SLOW_MS = 2 -- that every flush takes longer on a slow disk

local kinds = {
  {
    name = "keywatch",
    path = KEYWATCH,
    command = function(server)
      local data = server.disk and ("--data-dir %s/data"):format(server.dir) or "--memory"
      return ("%s serve %s --listen-client-urls %s %s"):format(KEYWATCH, data, url_of(server), tls_flags(server))
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
      local client, peer = url_of(server), "http://127.0.0.1:" .. server.peer_port
      return ("ETCD_UNSUPPORTED_ARCH=arm64 etcd --data-dir %s/data --listen-client-urls %s "
        .. "--advertise-client-urls %s --listen-peer-urls %s --initial-advertise-peer-urls %s "
        .. "--initial-cluster default=%s %s"):format(server.dir, client, client, peer, peer, peer, tls_flags(server))
    end,
    slow = function(_, command) -- with -I 2 strace hands SIGTERM on, which it would ignore
      return ("ETCD_UNSUPPORTED_ARCH=arm64 strace -f -I 2 --seccomp-bpf -qq -o /dev/null -e trace=fsync,fdatasync "
        .. "-e inject=fsync,fdatasync:delay_exit=%d %s"):format(SLOW_MS * 1000, command:match("etcd .*"))
    end,
  },
}

-- Go's TLS server, which makes handshakes and does nothing else.
local go = {
  name = "Go",
  path = GO,
  command = function(server)
    return ("%s 127.0.0.1:%d %s %s"):format(GO, server.port, server.tls.cert, server.tls.key)
  end,
}

-- The shell around a server, which ends it with its own input: when it is told to, and when this program ends in
-- whatever way. Then its directory goes too, unless it is to be kept.
local SHELL = [[
trap '' INT
trap : TERM
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

--- `disk` is "fast" or "slow" for durable writes, nil for none. `tls` is { cert, key }, files, or nil.
local function new_server(kind, disk, tls)
  local port, peer_port = capture(LOAD .. " port"):match("(%d+) (%d+)")
  local place = disk and "$PWD/build" or "/dev/shm"
  local dir = capture(("mktemp -d -p %s keywatch-bench.XXXXXX"):format(place)):match("%S+")
  capture(("mkfifo %s/out %s/said"):format(dir, dir))
  return {
    kind = kind,
    disk = disk,
    tls = tls,
    port = tonumber(port),
    peer_port = tonumber(peer_port),
    dir = dir,
    shell = nil, -- a pipe to it
    said = nil,  -- a pipe from it
    pid = nil,   -- of the server
  }
end

local function run_with(fn, list, disk, tls)
  local servers = {}
  local ok, err = pcall(function()
    for _, kind in ipairs(list) do
      local server = new_server(kind, disk, tls)
      servers[#servers + 1] = server
      start(server)
    end
    fn(servers)
  end)
  for _, server in ipairs(servers) do stop(server) end
  if not ok then error(err, 0) end
end

--- Gives fn fresh servers, and leaves nothing of them behind.
local function with_servers(fn, disk)
  run_with(fn, kinds, disk)
end

--- The same, of servers that speak TLS. If `has_go`, Go's server is the last of them.
local function with_tls_servers(fn, has_go)
  local list = { kinds[1], kinds[2], has_go and go or nil }
  local dir = capture("mktemp -d -p /dev/shm keywatch-bench.XXXXXX"):match("%S+")
  local tls = { cert = dir .. "/cert.pem", key = dir .. "/key.pem" }
  local ok, err = pcall(function()
    capture(("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout %s -out %s -days 1 "
      .. "-subj /CN=localhost -addext subjectAltName=IP:127.0.0.1 2>/dev/null"):format(tls.key, tls.cert))
    run_with(fn, list, nil, tls)
  end)
  capture("rm -rf " .. dir)
  if not ok then error(err, 0) end
end

--- Runs the load generator on a server. Returns what it found.
local function load_on(server, what)
  local line = capture(("%s %s --port %d --pid %d --timeout 300%s"):format(LOAD, what, server.port, server.pid,
    server.tls and " --tls" or ""))
  local found = {}
  for name, value in line:gmatch("(%S+)=(%S+)") do found[name] = tonumber(value) end
  return found
end

--- etcd 3.4 reads more slowly after a burst of writes, for as long as it lives: each read copies the buffer that the
--- burst made grow. It is started again, so as to be at its best.
local function refresh(server)
  if server.kind.name ~= "etcd" then return end
  stop(server, "keep")
  start(server)
end

--- Fills servers by what the load generator puts.
local function fill(servers, what)
  for _, server in ipairs(servers) do
    load_on(server, what)
    refresh(server)
  end
end

return {
  SLOW_MS = SLOW_MS,
  capture = capture,
  start = start,
  stop = stop,
  with_servers = with_servers,
  with_tls_servers = with_tls_servers,
  load_on = load_on,
  refresh = refresh,
  fill = fill,
}
