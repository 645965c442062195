-- SPDX-License-Identifier: MIT
--- call_stream: a call of a client with any number of messages, both ways. It belongs to one connection, and ends with
-- it: whoever wants it to go on begins another one.

local channel = require "keywatch.client.transport"
local check = require "keywatch.support.check"
local compat = require "keywatch.support.compat"
local core = require "keywatch.core"
local driver = require "keywatch.task.driver"
local errors = require "keywatch.support.errors"
local grpc_status = require "keywatch.support.grpc_status"
local methods_of = require "keywatch.client.methods"

local UNSENT = 65536 -- bytes that may wait to leave before a sender has to

local stream_methods = {}
local stream_mt = { __name = "keywatch.stream", __index = stream_methods }

function stream_mt:__tostring()
  return ("keywatch.stream<%s%s>"):format(self.path, self.is_over and " over" or "")
end

--- Ends the call when its stream is collected, which nobody else holds.
local function new_sentinel(line, number)
  return compat.sentinel(function()
    driver.forget { close = function() line:cancel(number) end }
  end)
end

--- Begins the call, once there is a connection; or nil and an error. `deadline` is that of the whole call, if there is
-- one.
local function open(client, path, method, connect_deadline, deadline, metadata)
  local owner = client.channel
  while true do
    local line, err = owner:await_line(connect_deadline)
    if not line then return nil, err end
    local d = driver.get()
    local number = line.core:call(path, channel.metadata_of(line, deadline, d.now(), metadata), false)
    if number then
      local arrival = d.event()
      line:add(number, { on_ready = function() arrival:set() end })
      return setmetatable({
        client = client, -- which lives as long as somebody has a stream of it
        owner = owner,
        line = line,
        number = number,
        path = path,
        method = method,
        deadline = deadline,
        arrival = arrival,
        sentinel = new_sentinel(line, number),
        is_over = false,
        failure = nil, -- that it ended with
      }, stream_mt)
    end
    if owner.line == line then owner.line = nil end
  end
end

--- The server has ended it, or the connection: how, is told after the messages that came before.
local function ended_error(self)
  if self.owner.is_closed then return errors.closed("client") end
  return errors.new("closed", "keywatch: the stream has ended: stream:receive() returns why")
end

local function finish(self, err)
  self.is_over = true
  self.failure = err and self.owner.is_closed and errors.closed("client") or err
  self.line:cancel(self.number)
end

--- Waits until something may have changed; false if the time is over.
local function wait(self, deadline)
  local owner, d = self.owner, driver.get()
  owner:retain()
  local ok, came = pcall(self.arrival.wait, self.arrival, deadline and math.max(0, deadline - d.now()))
  owner:release()
  if not ok then error(came, 0) end
  return came
end

local function earlier(a, b)
  if not a or not b then return a or b end
  return math.min(a, b)
end

--- Sends a message, and waits while too much of what was sent has not left: true; or nil and an error.
function stream_methods:send(message)
  check.self(self, "send", stream_mt)
  if self.is_finished then check.misuse("send: the stream was finished") end
  local bytes = methods_of.encode(self.method.request, message, "send")
  if self.is_over then return nil, self.failure or errors.closed("stream") end
  if not self.line.core:send(self.number, bytes) then return nil, ended_error(self) end
  while not self.is_over and not self.line.core:has_room(self.number, UNSENT) do
    if not wait(self, self.deadline) then
      finish(self, core.new_error("deadline_exceeded"))
      return nil, self.failure
    end
  end
  if self.is_over then return nil, self.failure or errors.closed("stream") end
  return true
end

--- How it ended: nil alone, if well.
local function ending(self)
  if self.failure then return nil, self.failure end
  return nil
end

local function end_with(self, status, text)
  finish(self, status ~= grpc_status.OK and core.error_of(status, text) or nil)
  return ending(self)
end

--- The next message; nil when there will be none any more; or nil and an error, which of code "timeout" is no failure.
function stream_methods:receive(timeout)
  check.self(self, "receive", stream_mt)
  check.timeout(timeout, "receive")
  local own = timeout and driver.get().now() + timeout
  if timeout == 0 and not self.is_over then self.owner:look() end
  while not self.is_over do
    local message, status, text = self.line.core:receive(self.number)
    if message then return methods_of.decode(self.method.answer, message) end
    if message == false then return end_with(self, status, text) end
    if not wait(self, earlier(own, self.deadline)) then
      if own and not (self.deadline and self.deadline < own) then return nil, core.new_error("timeout") end
      return end_with(self, grpc_status.DEADLINE_EXCEEDED, "context deadline exceeded")
    end
  end
  return ending(self)
end

--- An iterator over messages. It ends with the stream, and raises what that fails with.
function stream_methods:messages()
  check.self(self, "messages", stream_mt)
  return function()
    local message, err = self:receive()
    if err then error(err, 0) end
    return message
  end
end

--- No more will be sent.
function stream_methods:finish()
  check.self(self, "finish", stream_mt)
  self.is_finished = true
  if not self.is_over then self.line.core:half_close(self.number) end
end

--- Ends it at once. The server is told.
function stream_methods:close()
  check.self(self, "close", stream_mt)
  if self.is_over then return end
  finish(self, nil)
  self.arrival:set()
end

stream_mt.__close = stream_methods.close

return { open = open, methods = stream_methods }
