--- etcdctl, etcd's own client, against a server.

local process = require "spec.support.process"

local etcdctl = {}
etcdctl.__index = etcdctl

local function command(self, argv)
  local full = { "etcdctl", "--endpoints", self.address }
  for _, arg in ipairs(argv) do full[#full + 1] = arg end
  return full
end

function etcdctl.new(server)
  return setmetatable({ address = server.address }, etcdctl)
end

--- Starts a command: a list of arguments. Returns the process.
function etcdctl:start(argv)
  return process.start(command(self, argv), { env = { ETCDCTL_API = "3" } })
end

--- Runs a command to its end: a list of arguments, and `input`, what it reads. Returns the process.
function etcdctl:run(argv)
  return process.run(command(self, argv), argv.input, { env = { ETCDCTL_API = "3" } })
end

--- The same, where failure is not expected. Returns what it printed.
function etcdctl:must(argv)
  local done = self:run(argv)
  if done.status ~= 0 then error(done:transcript(), 2) end
  return done:stdout()
end

--- The same, where failure is expected. Returns the message: etcdctl's "Error: " stands before it.
function etcdctl:fail(argv)
  local done = self:run(argv)
  local message = done:stderr():match("Error: ([^\n]*)\n$")
  if done.status == 0 or not message then error("no error from " .. done:transcript(), 2) end
  return message
end

--- The revision that the store is at.
function etcdctl:revision()
  return tonumber(self:must { "get", "nothing", "-w", "json" }:match('"revision":(%d+)'))
end

return etcdctl
