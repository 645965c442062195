-- SPDX-License-Identifier: MIT
--- stream: a call of a client with any number of messages in both directions. It belongs to one connection and ends
-- with that connection: a program that wants to continue begins another stream.

local transports = require "keywatch.client.transport"
local check = require "keywatch.support.check"
local core = require "keywatch.core"
local driver = require "keywatch.task.driver"
local errors = require "keywatch.support.errors"
local grpc_status = require "keywatch.support.grpc_status"
local methods_of = require "keywatch.client.methods"
local sooner = require("keywatch.task.timers").sooner

local MAX_UNSENT = 65536 -- bytes in the send buffer, above which send waits

local stream_methods, stream_mt = check.class "keywatch.stream"

--- Returns the path of the method, and " over" once the stream has ended.
function stream_mt:__tostring()
  return ("keywatch.stream<%s%s>"):format(self.path, self.is_over and " over" or "")
end

--- Waits for a connection and begins the call. Returns the stream, or nil and an error. `connect_deadline` limits the
-- wait, `deadline` the whole call; nil: no limit.
local function open(client, path, method, connect_deadline, deadline, metadata)
  local transport = client.transport
  driver.get().check_cancelled()
  while true do
    local connection, err = transport:await_connection(connect_deadline)
    if not connection then return nil, err end
    local d = driver.get()
    local arrival = d.event()
    local receiver = { on_ready = function() arrival:set() end }
    local number = connection.core:call(path, transports.metadata_of(connection, deadline, d.now(), metadata), false)
    if number then
      connection:add(number, receiver)
      return setmetatable({
        client = client, -- must not be collected before the stream
        transport = transport,
        connection = connection,
        number = number,
        path = path,
        method = method,
        deadline = deadline,
        arrival = arrival, -- driver event: set when the stream has a message, room to send, or has ended
        sentinel = connection:sentinel(number),
        is_finished = false, -- no more messages will be sent
        is_over = false,
        failure = nil,       -- the error that the stream ended with
      }, stream_mt)
    end
    if transport.connection == connection then transport.connection = nil end
  end
end

--- Returns the error of a send on a stream that the server, or the end of the connection, has ended. The reason comes
-- after the messages that were received before.
local function ended_error(self)
  if self.transport.is_closed then return errors.closed("client") end
  return errors.new("closed", "keywatch: the stream has ended: stream:receive() returns why")
end

--- Ends the stream, with an error or nil.
local function finish(self, err)
  self.is_over = true
  self.failure = err and self.transport.is_closed and errors.closed("client") or err
  self.connection:cancel(self.number)
end

--- Waits for the event `arrival`. Returns false if the deadline was first.
local function wait(self, deadline)
  local transport = self.transport
  transport:retain()
  local ok, came = driver.protect(transport.release, transport, self.arrival.wait, self.arrival,
    driver.time_left(deadline))
  transport:release()
  if not ok then error(came, 0) end
  return came
end

--- Sends a message. Waits while too many bytes are unsent. Returns true, or nil and an error.
function stream_methods:send(message)
  if self.is_finished then check.misuse("send: stream:finish() was called before, and no more messages can be sent") end
  local bytes = methods_of.encode(self.method.request, message, "send")
  if self.is_over then return nil, self.failure or errors.closed("stream") end
  if not self.connection.core:send(self.number, bytes) then return nil, ended_error(self) end
  while not self.is_over and not self.connection.core:has_room(self.number, MAX_UNSENT) do
    if not wait(self, self.deadline) then
      finish(self, core.new_error("deadline_exceeded"))
      return nil, self.failure
    end
  end
  if self.is_over then return nil, self.failure or errors.closed("stream") end
  return true
end

--- Returns the result of receive at the end: nil, and the error if the stream has failed.
local function ending(self)
  if self.failure then return nil, self.failure end
  return nil
end

--- Ends the stream with a gRPC status. Returns the same as `ending`.
local function end_with(self, status, text)
  finish(self, status ~= grpc_status.OK and core.error_of(status, text) or nil)
  return ending(self)
end

--- Waits for the next message and returns it. Returns nil after the last one; or nil and an error. The code "timeout"
-- means that the stream stays open.
function stream_methods:receive(timeout)
  check.timeout(timeout, "receive")
  local own = timeout and driver.get().now() + timeout
  if timeout == 0 and not self.is_over then self.transport:look() end
  while not self.is_over do
    local message, status, text = self.connection.core:receive(self.number)
    if message then return methods_of.decode(self.method.answer, message) end
    if message == false then return end_with(self, status, text) end
    if not wait(self, sooner(own, self.deadline)) then
      if own and not (self.deadline and self.deadline < own) then return nil, core.new_error("timeout") end
      return end_with(self, grpc_status.DEADLINE_EXCEEDED, "context deadline exceeded")
    end
  end
  return ending(self)
end

--- Returns an iterator over the messages. It ends with the stream, and raises the error that the stream fails with.
function stream_methods:messages()
  return function()
    local message, err = self:receive()
    if err then errors.raise(err) end
    return message
  end
end

--- Half-closes the call: no more messages will be sent.
function stream_methods:finish()
  self.is_finished = true
  if not self.is_over then self.connection.core:half_close(self.number) end
end

--- Cancels the call. Does nothing if it has ended.
function stream_methods:close()
  if self.is_over then return end
  finish(self, nil)
  self.arrival:set()
end

stream_mt.__close = stream_methods.close

return { open = open, methods = stream_methods }
