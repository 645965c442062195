-- SPDX-License-Identifier: MIT
--- channel: a bounded queue of values between tasks. A sender waits while the channel is full, a receiver while it is
-- empty. A channel of capacity 0 holds nothing: a sender and a receiver wait for each other.
--
-- Values come out in the order in which they were sent, and each comes out once. Waiters are served in the order in
-- which they came. A value goes to a waiting receiver directly, and a waiting sender's value into the channel (see
-- event.exchange): nobody who comes later can take it.
--
-- Always true: while a receiver is parked the channel is empty and no sender is parked; while a sender is parked the
-- channel is full. A task that has found nothing and is about to wait is not parked yet; meanwhile a finalizer may send
-- or receive. Then the finalizer finds nobody to wake, and sets the event: the task looks again.

local check = require "keywatch.support.check"
local core = require "keywatch.core"
local errors = require "keywatch.support.errors"
local event = require "keywatch.task.event"
local selection = require "keywatch.task.selection"

local DEFAULT_CAPACITY = 0

local channel_methods = {}
local channel_mt = { __name = "keywatch.channel", __index = channel_methods }

-- Fields that a channel has not set, so that an idle channel is a small table:
setmetatable(channel_methods, { __index = { first = 1, last = 0, is_closed = false } })

--- Returns a channel for the tasks of a scheduler.
local function new(scheduler, capacity)
  if capacity == nil then capacity = DEFAULT_CAPACITY end
  check.argument(type(capacity) == "number" and capacity >= 0 and capacity % 1 == 0, 1, "channel",
    "a whole number of at least 0", capacity)
  return setmetatable({
    scheduler = scheduler,
    capacity = capacity,
    receivers = nil, -- event: receivers wait for it
    -- These are set when they are needed, and have no room here:
    --   senders    event: senders wait for it, each with its value as its offer
    --   queue      the values, at the indices from first to last
    --   is_closed
  }, channel_mt)
end

-- {====== The queue ======

--- Adds a value at the end. At once.
local function append(self, value)
  local last = self.last + 1
  self.queue[last] = value
  self.last = last
end

--- Removes the first value and returns it. At once.
local function remove_first(self)
  local first, queue = self.first, self.queue
  local value = queue[first]
  queue[first] = nil
  if first == self.last then self.first, self.last = 1, 0 else self.first = first + 1 end
  return value
end

--- Takes the next value without waiting: the first of the queue, whose place a waiting sender's value takes, or else
-- that of a waiting sender. Returns nil if there is none.
local function take(self)
  local senders = self.senders
  local has_offer, offer = false, nil
  if senders then has_offer, offer = event.exchange(senders, true) end
  -- at once:
  if self.first > self.last then return offer end
  local value = remove_first(self)
  if has_offer then append(self, offer) elseif senders then senders.is_set = true end
  return value
end

--- Hands a value to a waiting receiver, or adds it to the queue if that has room. Returns true; false if the channel
-- is full; or nil and an error if it is closed.
local function put(self, value)
  local fresh = not self.queue and self.capacity > 0 and {} or nil
  if self.is_closed then return nil, errors.closed("channel") end
  local receivers = self.receivers
  if receivers and self.first > self.last and event.exchange(receivers, value) then return true end
  if self.is_closed then return nil, errors.closed("channel") end
  -- at once:
  if self.last - self.first + 1 >= self.capacity then return false end
  self.queue = self.queue or fresh
  append(self, value)
  if receivers then receivers.is_set = true end
  return true
end

--- Puts a value back that was handed to a receiver which can do nothing with it any more. The value goes to the next
-- receiver, or is the next that comes out.
local function put_back(self, value)
  local fresh, receivers = {}, self.receivers
  if event.exchange(receivers, value) then return end
  self.queue = self.queue or fresh
  self.first = self.first - 1
  self.queue[self.first] = value
  receivers.is_set = true
end

-- }======

-- {====== Waiting ======

--- Waits for a value. Returns it; nil and an error of code "timeout"; or nil after close.
local function await_value(self, timeout)
  local scheduler = self.scheduler
  local fresh = not self.receivers and event.new(scheduler)
  self.receivers = self.receivers or fresh -- at once
  local receivers, deadline = self.receivers, timeout and scheduler:now() + timeout
  while true do
    receivers.is_set = false
    local is_closed, value = self.is_closed, take(self)
    if value ~= nil or is_closed then return value end
    local why, given, raised = scheduler:exchange(receivers, nil, deadline and scheduler:time_left(deadline))
    if why == "turn" then return given end
    if why == "timeout" then return nil, core.new_error("timeout") end
    if given ~= nil then put_back(self, given) end
    if raised then error(raised[1], 0) end
  end
end

--- Waits until a value is received, or has a place in the queue. Returns true, or nil and an error.
local function await_room(self, value, timeout)
  local scheduler = self.scheduler
  local fresh = not self.senders and event.new(scheduler)
  self.senders = self.senders or fresh -- at once
  local senders, deadline = self.senders, timeout and scheduler:now() + timeout
  while true do
    senders.is_set = false
    local ok, err = put(self, value)
    if ok ~= false then return ok, err end
    local why, _, raised = scheduler:exchange(senders, value, deadline and scheduler:time_left(deadline))
    if why == "turn" then return true end
    if why == "timeout" then return nil, core.new_error("timeout") end
    if raised then error(raised[1], 0) end
  end
end

-- }======

--- Waits until a receiver takes the value, or the channel has room for it. Returns true; or nil and an error of code
-- "timeout" or "closed".
function channel_methods:send(value, timeout)
  check.self(self, "send", channel_mt)
  check.argument(value ~= nil, 1, "send", "a value", value)
  check.timeout(timeout, "send", 2)
  self.scheduler:enter()
  local ok, err = put(self, value)
  if ok ~= false then return ok, err end
  if timeout and timeout <= 0 then return nil, core.new_error("timeout") end
  return await_room(self, value, timeout)
end

--- Waits for the next value and returns it. Returns nil and an error of code "timeout"; or nil alone once the channel
-- is closed and empty.
function channel_methods:receive(timeout)
  check.self(self, "receive", channel_mt)
  check.timeout(timeout, "receive")
  self.scheduler:enter()
  local is_closed, value = self.is_closed, take(self) -- in this order: what is sent before close is received
  if value ~= nil or is_closed then return value end
  if timeout and timeout <= 0 then return nil, core.new_error("timeout") end
  return await_value(self, timeout)
end

--- Returns an iterator over the values. It ends when the channel is closed and empty.
function channel_methods:values()
  check.self(self, "values", channel_mt)
  return function() return (self:receive()) end
end

--- Returns the number of values that the channel holds. Those of senders that wait do not count.
function channel_methods:count()
  check.self(self, "count", channel_mt)
  return self.last - self.first + 1
end

--- Ends the channel. Senders that wait, and later ones, get an error of code "closed". Receivers get the values that
-- the channel holds, and then nil.
function channel_methods:close()
  check.self(self, "close", channel_mt)
  if self.is_closed then return end
  self.is_closed = true
  if self.senders then self.senders:set() end
  if self.receivers then self.receivers:set() end
end

--- Returns what the channel holds and may hold, and the state.
function channel_mt:__tostring()
  return ("keywatch.channel<%d of %d %s>"):format(self:count(), self.capacity, self.is_closed and "closed" or "open")
end

channel_mt.__close = channel_methods.close

-- {====== Selecting ======

--- True if an event has waiters.
local function is_awaited(one)
  return one ~= nil and one.waiters ~= nil
end

channel_mt.__select = { -- see selection.lua
  is_ready = function(self)
    self.scheduler:enter()
    return self.first <= self.last or self.is_closed or is_awaited(self.senders)
  end,
  begin = function(self)
    local fresh = not self.receivers and event.new(self.scheduler)
    self.receivers = self.receivers or fresh -- at once
    return self.receivers
  end,
  finish = function() end,
  take = function(self)
    local is_closed, value = self.is_closed, take(self)
    if value == nil and not is_closed then return selection.NOTHING end
    return value
  end,
  put_back = put_back,
}

local sending_mt = { __name = "keywatch.sending" }

sending_mt.__select = {
  is_ready = function(self)
    local channel = self.channel
    channel.scheduler:enter()
    return channel.is_closed or is_awaited(channel.receivers) or channel:count() < channel.capacity
  end,
  begin = function(self)
    local channel = self.channel
    local fresh = not channel.senders and event.new(channel.scheduler)
    channel.senders = channel.senders or fresh -- at once
    return channel.senders, self.value
  end,
  finish = function() end,
  take = function(self)
    local ok, err = put(self.channel, self.value)
    if ok == false then return selection.NOTHING end
    return ok, err
  end,
}

--- Returns an object for `select` that sends a value: it is ready when the channel can take the value.
function channel_methods:sending(value)
  check.self(self, "sending", channel_mt)
  check.argument(value ~= nil, 1, "sending", "a value", value)
  return setmetatable({ channel = self, value = value }, sending_mt)
end

-- }======

return { new = new, mt = channel_mt, methods = channel_methods }
