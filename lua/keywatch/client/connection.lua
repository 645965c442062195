-- SPDX-License-Identifier: MIT
--- connection: one HTTP/2 connection of a client to a server, with its running calls.
--
-- Every call has a number and a receiver. A receiver is a table with the method on_ready(connection, number), which is
-- called by `poll` when the core has something to receive for the call: a message or the end of the call.

local check = require "keywatch.support.check"
local compat = require "keywatch.support.compat"
local core = require "keywatch.core"
local driver = require "keywatch.task.driver"

local last_number = 0 -- the number of the last connection of this process

local connection_methods = {}
local connection_mt = { __index = connection_methods }

--- Returns the options of core.client for an endpoint. With a driver that has its own random numbers the seed is fixed,
-- so that a run can be repeated.
local function options_of(endpoint, given, d)
  local options = check.copy(given)
  options.is_tls, options.seed = endpoint.address.is_tls, d.random and 1
  return options
end

--- Begins to connect to an address of an endpoint. Returns the connection, which takes calls once `poll` returns true;
-- or nil and the text of the error.
local function dial(endpoint, address, options, security)
  local d = driver.get()
  local object = core.client(endpoint.authority, options_of(endpoint, options, d), d.now())
  if not object then return nil, "out of memory" end
  local ok, text = d.dial(object, address, security:of(endpoint, address))
  security:check_files()
  if not ok then
    object:close()
    return nil, text
  end
  last_number = last_number + 1
  return setmetatable({
    core = object,
    number = last_number, -- of connections in the order in which they were dialed
    endpoint = endpoint,
    calls = {}, -- receivers, by the number of the call
    count = 0,  -- of calls
    since = d.now(),
    is_closed = false,
    received = 0,  -- bytes received at the last poll, including incomplete messages
    metadata = {}, -- sent with every call: the token of the user, and hasleader if a leader is required
    trusts_progress = nil, -- whether the server's progress messages can be trusted; nil: not known yet
    lacks_range_stream = false, -- the server has no KV.RangeStream
    late_at = nil, -- the time of the next call of is_slow; nil: no answer is expected
    is_left = false, -- another connection is used for new calls, see transport:part_with
    was_adopted = false, -- it was used for calls: its user was authenticated at least once
    got_enhance_your_calm = false, -- the server has refused our keepalive pings as too frequent
    -- Of watch_calls.lua:
    status_call = nil,  -- the number of the call that asks for the server's version
    suspects = nil,     -- watches that know a later revision than the server
    verification = nil, -- { number = of the read that decides whether the server or the watches are right }, or nil
    verify_until = nil, -- the deadline of that read
  }, connection_mt)
end

--- Adds a call that was begun on the core's connection.
function connection_methods:add(number, receiver)
  self.calls[number] = receiver
  self.count = self.count + 1
end

--- Removes a call that has ended. Does nothing if it was removed before.
function connection_methods:forget(number)
  if not self.calls[number] then return end
  self.calls[number] = nil
  self.count = self.count - 1
end

--- Returns an object that cancels a call when it is collected.
function connection_methods:sentinel(number)
  return compat.sentinel(function()
    driver.forget { close = function() self:cancel(number) end }
  end)
end

--- Cancels a call. The server gets a reset of the stream, and the receiver is no longer called.
function connection_methods:cancel(number)
  self:forget(number)
  if not self.is_closed then self.core:cancel(number) end
end

--- Begins a call with one message and one answer, or a stream of answers. Returns its number, or nil if the connection
-- takes no more calls.
function connection_methods:begin(path, bytes, metadata, receiver, is_stream)
  if self.is_closed then return nil end
  local object = self.core
  local number = object:call(path, metadata, not is_stream)
  if not number then return nil end
  self:add(number, receiver) -- before anything is sent: a finalizer may poll and take the answer
  object:send(number, bytes)
  object:half_close(number)
  return number
end

--- Takes the result of a call with one answer: the message or nil, the status, its text, and true if the server has
-- certainly not processed the call.
function connection_methods:finish(number)
  local message, status, text, is_refused = self.core:receive(number)
  if message then
    local _, s, t, r = self.core:receive(number)
    status, text, is_refused = s, t, r
  end
  self:forget(number)
  return message or nil, status, text, is_refused
end

-- The receiver of a call whose result goes to a function.
local callback_methods = {}
local callback_mt = { __index = callback_methods }

--- Calls the function with the result of the call.
function callback_methods:on_ready(connection, number)
  self.on_end(connection:finish(number))
end

--- Begins a call that ends with a call of on_end with the results of `finish`. `metadata`, if given, replaces that of
-- the connection. Returns the number of the call, or nil if the connection takes no more calls.
function connection_methods:ask(path, bytes, on_end, metadata)
  local receiver = setmetatable({ on_end = on_end, sent_at = nil }, callback_mt)
  metadata = metadata or self.metadata
  if metadata.hasleader then self:expect(receiver) end
  return self:begin(path, bytes, metadata, receiver)
end

--- Notes that a receiver expects an answer from now on. A receiver of several answers has the method has_answered.
function connection_methods:expect(receiver)
  local now = driver.get().now()
  receiver.sent_at = now
  self.late_at = self.late_at or now
end

--- Returns true if a receiver has waited for an answer for `seconds` since `expect` was called for it; once for each
-- such call. Sets late_at.
function connection_methods:is_slow(now, seconds)
  local is_slow, oldest = false, nil
  for _, receiver in pairs(self.calls) do
    local sent_at = receiver.sent_at
    if sent_at and receiver.has_answered and receiver:has_answered() then
      receiver.sent_at = nil
    elseif sent_at and now >= sent_at + seconds then
      receiver.sent_at, is_slow = nil, true
    elseif sent_at and (not oldest or sent_at < oldest) then
      oldest = sent_at
    end
  end
  self.late_at = oldest and oldest + seconds
  return is_slow
end

--- Calls the receivers that have something to receive. Returns whether the connection takes calls; whether it has
-- ended; why; and whether the server has refused our keepalive pings (ENHANCE_YOUR_CALM).
function connection_methods:poll()
  local object, calls = self.core, self.calls
  for number in object.next, object do
    local receiver = calls[number]
    if receiver then receiver:on_ready(self, number) end
  end
  local is_ready, is_over, why, got_enhance_your_calm, received = object:health()
  self.received = received or self.received
  return is_ready, is_over, why, got_enhance_your_calm
end

--- Notifies the receivers that another server is used from now on: `text` says why. Receivers with the method
-- on_leave(connection, number, text) may cancel their calls, and continue there.
function connection_methods:leave(text)
  local numbers = {}
  for number, receiver in pairs(self.calls) do
    if receiver.on_leave then numbers[#numbers + 1] = number end
  end
  table.sort(numbers)
  for _, number in ipairs(numbers) do
    local receiver = self.calls[number]
    if receiver then receiver:on_leave(self, number, text) end
  end
end

--- Closes the connection. Sent bytes are still written; running calls end.
function connection_methods:close()
  if self.is_closed then return end
  self.is_closed = true
  self.core:close()
end

return { dial = dial }
