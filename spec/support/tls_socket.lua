--- TLS on sockets of luv, before a peer of the core: what a driver does, in a few lines of Lua.

local luv = require "spec.support.luv"

local tls_socket = {}

local NOW = 1000

local methods = {}
local mt = { __index = methods }

--- `peer` is a server's peer or a client of the core. `tend` is called before what is pending is asked for.
local function new(handle, channel, peer, tend)
  return setmetatable({ handle = handle, channel = channel, peer = peer, tend = tend, text = "" }, mt)
end

--- Writes what is pending: plaintext of the peer goes through the channel.
function methods:flush()
  local channel = self.channel
  if self.is_closed then return end
  self.tend()
  repeat
    if self.text == "" and channel:state().is_open then self.text = self.peer:pending() end
    local n = channel:write(self.text)
    self.text = self.text:sub(n + 1)
    local bytes = channel:pending()
    if bytes ~= "" then self.handle:write(bytes) end
  until bytes == ""
end

--- Works on the channel until it waits for bytes.
function methods:work()
  local channel = self.channel
  local state = channel:state()
  while not self.is_closed and (state.has_work or state.may_read) do
    if state.has_work then channel:step() end
    local text = state.may_read and channel:read() or ""
    if text ~= "" then self.peer:feed(text, NOW) end
    self:flush()
    state = channel:state()
  end
  self:flush()
  if state.is_done then self:close() end
end

function methods:take(bytes)
  repeat
    local n = self.channel:feed(bytes)
    bytes = bytes:sub(n + 1)
    self:work()
  until bytes == "" or self.is_closed
end

function methods:start()
  self.handle:read_start(function(_, bytes)
    self:take(bytes or "")
    if not bytes then self:close() end
  end)
  self:work()
end

--- Closes the socket when what was written has left, and the peer. The channel stays, to be asked what happened.
function methods:close()
  if self.handle:is_closing() or self.is_closed then return end
  self.is_closed = true
  self.peer:close()
  self.handle:read_stop()
  local function close()
    if not self.handle:is_closing() then self.handle:close() end
  end
  if not self.handle:shutdown(close) then close() end
end

--- Listens on a port of the kernel's choice for connections to a server of the core. Returns the listener, with its
-- `port`, and the list of `connections` that there were.
function tls_socket.listen(context, server)
  local self = { handle = luv.new_tcp(), connections = {} }
  assert(self.handle:bind("127.0.0.1", 0))
  self.port = self.handle:getsockname().port
  assert(self.handle:listen(128, function()
    local handle = luv.new_tcp()
    self.handle:accept(handle)
    local connection = new(handle, assert(context:accept()), assert((server:accept(NOW))),
      function() server:tend(NOW) end)
    table.insert(self.connections, connection)
    connection:start()
  end))
  function self.close()
    self.handle:close()
    for _, connection in ipairs(self.connections) do
      if not connection.handle:is_closing() then connection.handle:close() end
      connection.peer:close()
      connection.channel:close()
    end
    luv.run("nowait")
  end
  return self
end

--- Connects a client of the core.
function tls_socket.connect(context, client, host, port)
  local handle = luv.new_tcp()
  local self = new(handle, assert(context:connect(host, host .. ":" .. port)), client, function() end)
  handle:connect("127.0.0.1", port, function(err)
    self.failure = err
    if not err then self:start() end
  end)
  return self
end

return tls_socket
