--- The other end of a socket: clients on luv's loop, which the test turns besides the tested loop.

local luv = require "spec.support.luv"

local SECONDS = 120 -- after which a wait fails

local socket_methods = {}
local socket_mt = { __index = socket_methods }

--- Connects a client to an address, as listener:address() returns it. `received` has the received bytes.
local function connect(address)
  local self = setmetatable({
    handle = address.path and luv.new_pipe(false) or luv.new_tcp(),
    received = "",
    is_connected = false,
    has_ended = false, -- the server has closed the connection
    failure = nil,
  }, socket_mt)
  local function on_connect(err)
    self.failure, self.is_connected = err, not err
    if not err then self:read() end
  end
  if address.path then
    self.handle:connect(address.path, on_connect)
  else
    self.handle:connect(address.host, address.port, on_connect)
  end
  return self
end

function socket_methods:read()
  self.handle:read_start(function(err, bytes)
    self.failure = self.failure or err
    if bytes then self.received = self.received .. bytes end
    if not bytes then self.has_ended = true end
  end)
end

function socket_methods:pause() self.handle:read_stop() end

function socket_methods:write(bytes) self.handle:write(bytes) end

--- Sends a FIN, and continues to read.
function socket_methods:shutdown() self.handle:shutdown() end

--- Sends a RST: the server gets an error, and not a normal end.
function socket_methods:reset() self.handle:close_reset() end

function socket_methods:close()
  if not self.handle:is_closing() then self.handle:close() end
  luv.run("nowait")
end

--- Turns both loops until is_so() is true.
local function turn_until(loop, is_so)
  local stop = luv.hrtime() + SECONDS * 1e9
  while not is_so() do
    luv.run("nowait")
    loop:turn(0)
    if luv.hrtime() > stop then error("timeout: the awaited condition is not true", 2) end
  end
end

return { connect = connect, turn_until = turn_until, mt = socket_mt }
