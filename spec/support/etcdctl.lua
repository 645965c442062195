--- etcdctl, etcd's own client, against a server.

local busted = require "busted"

local process = require "spec.support.process"
local secure = require "spec.support.secure"
local server = require "spec.support.server"

local etcdctl = {}
etcdctl.__index = etcdctl

local FLAGS = { ca = "--cacert", cert = "--cert", key = "--key" }

local function command(self, argv)
  local identity = self.identity or secure.tls()
  local full = { "etcdctl", "--endpoints", identity and secure.url(self.address, true) or self.address }
  for name, flag in pairs(FLAGS) do
    if identity and identity[name] then full[#full + 1] = flag .. "=" .. identity[name] end
  end
  for _, arg in ipairs(argv) do full[#full + 1] = arg end
  return full
end

--- For TLS, `identity` is { ca, cert, key }: names of files; cert and key are optional.
function etcdctl.new(peer, identity)
  return setmetatable({ peer = peer, address = peer.address, identity = identity }, etcdctl)
end

--- For the calling block of tests: a server, and etcdctl for it.
function etcdctl.with_server()
  local self = setmetatable({}, etcdctl)
  busted.setup(function()
    self.peer = server.start()
    self.address = self.peer.address
  end)
  busted.after_each(process.end_all)
  busted.teardown(function()
    if self.peer then self.peer:stop() end
  end)
  return self
end

--- Starts a command: a list of arguments. Returns the process.
function etcdctl:start(argv) return process.start(command(self, argv), { env = { ETCDCTL_API = "3" } }) end

--- Runs a command to its end: a list of arguments, and its `input`. Returns the process.
function etcdctl:run(argv)
  return process.run(command(self, argv), argv.input, { env = { ETCDCTL_API = "3" } })
end

--- Runs a command that must succeed. Returns its output.
function etcdctl:must(argv)
  local done = self:run(argv)
  if done.status ~= 0 then error(done:transcript(), 2) end
  return done:stdout()
end

--- Runs a command that must fail. Returns the message, without the prefix "Error: ".
function etcdctl:fail(argv)
  local done = self:run(argv)
  local message = done:stderr():match("Error: ([^\n]*)\n$")
  if done.status == 0 or not message then error("no error from " .. done:transcript(), 2) end
  return message
end

--- Returns the current revision of the store.
function etcdctl:revision()
  return tonumber(self:must { "get", "nothing", "-w", "json" }:match('"revision":(%d+)'))
end

return etcdctl
