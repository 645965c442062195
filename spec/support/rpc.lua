--- A gRPC client for specs: the client of the core, whose bytes are sent over a socket of luv's loop, or directly to a
-- server in this process, without sockets.
--
-- A call is { messages = { bytes… }, status =, text = }; a call that has ended has a status.

local keywatch = require "keywatch"
local core = require "keywatch.core"

local luv = require "spec.support.luv"
local socket = require "spec.support.socket"
local stem = require "spec.support.stem"

local SECONDS = 120 -- after which a wait fails

local client_methods = {}
local client_mt = { __index = client_methods }

local function new(fields)
  fields.core = core.client("localhost")
  fields.calls = {} -- by the core's number
  fields.is_reading = true
  return setmetatable(fields, client_mt)
end

--- Connects a client to a URL.
local function connect(url)
  local host, port = url:match("^https?://([%d.]+):(%d+)$")
  return new { socket = socket.connect { host = host, port = tonumber(port) } }
end

--- Connects a client to a server in this process. `sent` is the number of bytes sent to the server.
local function attach(server) return new { server = server, peer = server.object:accept(), sent = 0 } end

-- Bytes -------------------------------------------------------------------------------------------------------------

local function pump_socket(self)
  luv.run("nowait")
  if not self.socket.is_connected then return end
  local out = self.core:pending()
  if #out > 0 then self.socket:write(out) end
  if self.is_reading and #self.socket.received > 0 then
    self.core:feed(self.socket.received)
    self.socket.received = ""
  end
end

local function step_peer(peer)
  local deadline = peer:deadline()
  if deadline and deadline <= keywatch.now() then peer:step(keywatch.now()) end
end

local function pump_peer(self)
  if self.server.is_closed or not self.peer then return end
  local out = self.core:pending()
  if #out > 0 then self.peer:feed(out) end
  self.sent = self.sent + #out
  step_peer(self.peer)
  self.server.object:step()
  local back = self.is_reading and self.peer:pending() or ""
  if #back > 0 then self.core:feed(back) end
end

local function take_returns(self)
  for number in self.core.next, self.core do
    local call = self.calls[number]
    for message, status, text in function() return self.core:receive(number) end do
      if message then
        table.insert(call.messages, message)
      else
        call.status, call.text = status, text
        self.calls[number] = nil
      end
    end
  end
end

--- Moves pending bytes in both directions.
function client_methods:pump()
  if self.socket then pump_socket(self) else pump_peer(self) end
  take_returns(self)
end

--- Moves pending bytes, and lets the server's tasks run.
function client_methods:turn()
  self:pump()
  keywatch.sleep(0)
end

--- Turns until is_so() is true.
function client_methods:wait(is_so)
  local deadline = keywatch.now() + SECONDS
  while not is_so() do
    self:turn()
    if keywatch.now() > deadline then error("timeout: the awaited condition is not true", 2) end
  end
end

--- Turns often enough for everything to arrive that does not wait for time or for requests.
function client_methods:settle()
  for _ = 1, 40 do self:turn() end
end

--- pause stops reading from the connection, resume continues.
function client_methods:pause() self.is_reading = false end
function client_methods:resume() self.is_reading = true end

-- Calls -------------------------------------------------------------------------------------------------------------

function client_methods:call(path, metadata)
  local call = { messages = {}, number = assert(self.core:call(path, metadata)) }
  self.calls[call.number] = call
  return call
end

function client_methods:send(call, bytes) self.core:send(call.number, bytes) end

function client_methods:half_close(call) self.core:half_close(call.number) end

--- Cancels a call, which gets no status.
function client_methods:cancel(call)
  self.core:cancel(call.number)
  self.calls[call.number] = nil
end

--- Begins a call with one request.
function client_methods:begin(path, bytes, metadata)
  local call = self:call(path, metadata)
  self:send(call, bytes)
  self:half_close(call)
  return call
end

--- Waits for the end of a call. Returns the status and its text.
function client_methods:finish(call)
  self:wait(function() return call.status end)
  return call.status, call.text
end

--- Makes a unary call. Returns the message of the answer; or nil, status and text.
function client_methods:unary(path, bytes, metadata)
  local call = self:begin(path, bytes, metadata)
  if self:finish(call) ~= 0 then return nil, call.status, call.text end
  assert(#call.messages == 1, "a unary call with more or less than one message")
  return call.messages[1]
end

-- Messages of etcd --------------------------------------------------------------------------------------------------

--- Begins a call with one request, a table.
function client_methods:begin_message(path, request)
  return self:begin(path, core.encode(stem(path) .. "Request", request or {}))
end

--- Returns the answers so far, as tables.
local function answers(call, path)
  local list = {}
  for i, bytes in ipairs(call.messages) do list[i] = core.decode(stem(path) .. "Response", bytes) end
  return list
end

--- Makes a unary call. Returns the answer as a table; or nil, status and text.
function client_methods:ask(path, request)
  local call = self:begin_message(path, request)
  if self:finish(call) ~= 0 then return nil, call.status, call.text end
  return answers(call, path)[1]
end

--- True if the server has sent GOAWAY, or closed the connection. For a client without calls.
function client_methods:has_goaway()
  self:pump()
  return select(2, self.core:health())
end

--- Closes the connection without GOAWAY.
function client_methods:hang_up()
  if self.socket then self.socket:close() end
  if self.peer then self.peer:close() end
  self.peer = nil
end

function client_methods:close()
  self.core:close()
  self:hang_up()
end

return { connect = connect, attach = attach, answers = answers }
