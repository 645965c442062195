--- The server under test: a process that reports when it is ready, and shuts down gracefully.
--
-- By default the server is a durable one of keywatch, on the VM of this run. In the pass etcd it is a real etcd, which
-- must behave as the specs expect of keywatch; `is_etcd` marks known differences of etcd 3.4.

local uv = require "spec.support.luv"

local directory = require "spec.support.directory"
local proc = require "spec.support.proc"
local process = require "spec.support.process"
local secure = require "spec.support.secure"
local vm = require "spec.support.vm"

local READY = "ready to serve client requests"
local SIGTERM_STATUS = 128 + 15 -- etcd ends itself by the signal that it has received

local is_etcd = vm.how == "etcd"

local server = {}
server.__index = server
server.is_etcd = is_etcd

--- Returns two ports without a listener.
local function free_ports()
  local first, second = uv.new_tcp(), uv.new_tcp()
  assert(first:bind("127.0.0.1", 0))
  assert(second:bind("127.0.0.1", 0))
  local first_port, second_port = first:getsockname().port, second:getsockname().port
  first:close()
  second:close()
  uv.run("nowait")
  return first_port, second_port
end

local function address_of(port) return "127.0.0.1:" .. port end

--- Returns the URL for clients.
local function url_of(options, port) return secure.url(address_of(port), options.is_tls) end

local function append(list, more)
  for _, item in ipairs(more) do list[#list + 1] = item end
  return list
end

--- Returns the prefix of the command for the option open_files, which limits its descriptors; "hard": the hard limit.
local function limited(open_files)
  if not open_files then return {} end
  local n = open_files == "hard" and "$(ulimit -H -n)" or open_files
  return { "sh", "-c", ('ulimit -n %s && exec "$@"'):format(n), "sh" }
end

local starters = {}

local function storage(options, path)
  return options.is_in_memory and "--memory" or "--data-dir=" .. path
end

--- Starts keywatch's server like server.start, without waiting until it serves. Returns the process.
function server.launch(options, path)
  path = path or options.path
  local argv = append(limited(options.open_files), {
    vm.interpreter, "-e", options.before or "", "bin/keywatch", "serve", storage(options, path),
    "--listen-client-urls", url_of(options, options.port or 0),
  })
  append(argv, secure.flags(options.is_tls))
  return process.start(append(argv, options), { is_lasting = true, env = vm.environment(options.env, options.preload) })
end

function starters.keywatch(options, path)
  local child = server.launch(options, path)
  local line = child:expect_error("[^\n]*" .. READY .. "[^\n]*\n")
  local port = tonumber(line:match("https?://127%.0%.0%.1:(%d+)"))
  if not port then error("no port in: " .. line) end
  return { process = child, port = port, end_status = 0 }
end

function starters.etcd(options, path)
  local port, peer_port = free_ports()
  port, peer_port = options.port or port, options.peer_port or peer_port
  local url, peer = url_of(options, port), "http://" .. address_of(peer_port)
  local argv = append({
    "etcd", "--data-dir", path,
    "--listen-client-urls", url, "--advertise-client-urls", url,
    "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default=" .. peer,
  }, secure.flags(options.is_tls))
  local child = process.start(append(argv, options), {
    is_lasting = true,
    env = { ETCD_UNSUPPORTED_ARCH = uv.os_uname().machine == "aarch64" and "arm64" or nil },
  })
  child:expect_error(READY)
  return { process = child, port = port, peer_port = peer_port, end_status = SIGTERM_STATUS }
end

--- Starts a server and waits until it serves. The list part of the options has further flags. `port` is a port to use
-- again; `peer_port`, for etcd, is the port by which it names its cluster; `path` is a directory with data; `kind` is
-- "keywatch" or "etcd", in any pass; `is_in_memory` is for a keywatch without data on disk; `is_tls` is for TLS in any
-- pass. Only for keywatch: `before`, Lua code that the process runs first; `env`, for its environment; and `preload`, a
-- library. Returns { url, address, port, pid }.
function server.start(options)
  options = options or {}
  local path = options.path or directory.new()
  local ok, self = pcall(starters[options.kind or is_etcd and "etcd" or "keywatch"], options, path)
  if not ok then
    if not options.path then directory.remove(path) end
    error(self, 0)
  end
  setmetatable(self, server)
  self.own_directory = not options.path and path or nil
  self.address = address_of(self.port)
  self.url = url_of(options, self.port)
  self.pid = self.process.pid
  return self
end

--- Returns the log so far.
function server:log() return self.process:stderr() end

function server:is_running() return self.process.status == nil end

--- The memory of the server now, and the peak since reset_peak, in bytes; and the number of open descriptors.
function server:resident() return proc.resident(self.pid) end
function server:peak() return proc.peak(self.pid) end
function server:reset_peak() proc.reset_peak(self.pid) end
function server:descriptors(below) return proc.descriptors(self.pid, below) end

--- Connects, sends a text and nothing more, and waits until the server has closed the connection.
function server:say(text)
  local socket, is_closed = uv.new_tcp(), false
  socket:connect("127.0.0.1", self.port, function(failure)
    is_closed = failure ~= nil
    if is_closed then return end
    socket:read_start(function(err, chunk)
      if err or not chunk then is_closed = true end
    end)
    socket:write(text)
    socket:shutdown()
  end)
  local is_in_time = process.turn_until(function() return is_closed end)
  socket:close()
  if not is_in_time then error(("the connection stays open after %q"):format(text), 2) end
end

--- Stops the server gracefully, and waits for its end.
function server:stop()
  self.process:signal("sigterm")
  local status = self.process:wait()
  if self.own_directory then directory.remove(self.own_directory) end
  if status ~= self.end_status then
    error(("the server ended with status %d: %s"):format(status, self.process:transcript()), 2)
  end
end

return server
