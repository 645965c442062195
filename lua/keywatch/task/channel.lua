-- SPDX-License-Identifier: MIT
--- channel: a bounded queue of values between tasks. A sender waits while the channel is full, a receiver while it is
-- empty. A channel of capacity 0 has no queue: a sender and a receiver wait for each other.
--
-- Values are received in the order in which they were sent, each once. Waiters are served in the order of arrival. A
-- value is passed directly to a waiting receiver, and a waiting sender's value into the channel (see event.exchange),
-- so that no later receiver can take it.
--
-- A channel is also the event for which its receivers wait; its senders wait for the event `senders`.
--
-- Invariants: while a receiver is parked the channel is empty and no sender is parked; while a sender is parked the
-- channel is full. A task that has found nothing and is about to wait is not parked yet. If a finalizer sends or
-- receives before the task parks, it finds no task to wake, and sets the event: the task then checks again.

local check = require "keywatch.support.check"
local core = require "keywatch.core"
local errors = require "keywatch.support.errors"
local event = require "keywatch.task.event"
local selection = require "keywatch.task.selection"

local DEFAULT_CAPACITY = 0

local channel_methods = {}
local channel_mt = { __name = "keywatch.channel", __index = channel_methods }

-- Defaults of fields, so that an idle channel is a small table:
local defaults = { capacity = DEFAULT_CAPACITY, oldest = 1, newest = 0, is_closed = false }
for name, value in pairs(event.defaults) do defaults[name] = value end
setmetatable(channel_methods, { __index = defaults })

--- Returns a channel for the tasks of a scheduler.
local function new(scheduler, capacity)
  if capacity == nil then capacity = DEFAULT_CAPACITY end
  check.argument(type(capacity) == "number" and capacity >= 0 and capacity % 1 == 0, 1, "channel",
    "a whole number of at least 0", capacity)
  local self = setmetatable({
    scheduler = scheduler,
    -- The indices from 1 have the waiting receivers, see event.lua. The following fields are set when they are needed:
    --   senders    event: senders wait for it, each with its value as its offer; senders.channel is this channel
    --   queue      the values, at the indices from oldest to newest
    --   is_closed  true after close
  }, channel_mt)
  if capacity ~= DEFAULT_CAPACITY then self.capacity = capacity end
  return self
end

-- {====== The queue ======

--- Adds a value at the end. Atomic.
local function append(self, value)
  local newest = self.newest + 1
  self.queue[newest] = value
  self.newest = newest
end

--- Removes the first value and returns it. Atomic.
local function remove_oldest(self)
  local oldest, queue = self.oldest, self.queue
  local value = queue[oldest]
  queue[oldest] = nil
  if oldest == self.newest then self.oldest, self.newest = 1, 0 else self.oldest = oldest + 1 end
  return value
end

--- Takes the next value without waiting: the oldest of the queue, which is then refilled with a waiting sender's value,
-- or else that of a waiting sender. Returns nil if there is none.
local function take(self)
  local senders = self.senders
  local has_offer, offer = false, nil
  if senders then has_offer, offer = event.exchange(senders, true) end
  -- atomic:
  if self.oldest > self.newest then return offer end
  local value = remove_oldest(self)
  if has_offer then append(self, offer) elseif senders then senders.is_set = true end
  return value
end

--- Passes a value to a waiting receiver, or adds it to the queue if that has space. Returns true; false if the channel
-- is full; or nil and an error if it is closed.
local function put(self, value)
  local fresh = not self.queue and self.capacity > 0 and {} or nil
  if self.is_closed then return nil, errors.closed("channel") end
  if self.oldest > self.newest and event.exchange(self, value) then return true end
  if self.is_closed then return nil, errors.closed("channel") end
  -- atomic:
  if self.newest - self.oldest + 1 >= self.capacity then return false end
  self.queue = self.queue or fresh
  append(self, value)
  self.is_set = true
  return true
end

--- Puts back a value that was passed to a receiver that can no longer use it. The next receiver gets the value.
local function put_back(self, value)
  local fresh = {}
  if event.exchange(self, value) then return end
  -- atomic:
  self.queue = self.queue or fresh
  self.oldest = self.oldest - 1
  self.queue[self.oldest] = value
  self.is_set = true
end

--- Returns the event for which senders wait.
local function get_senders(self)
  local fresh = not self.senders and event.new(self.scheduler)
  if fresh then fresh.channel = self end
  self.senders = self.senders or fresh -- atomic
  return self.senders
end

-- }======

-- {====== Waiting ======

local await_value, await_room

--- Continues after a wait for a value.
local function after_receive(self, _, deadline, why, given, raised)
  if why == "turn" then return given end
  if why == "timeout" then return nil, core.new_error("timeout") end
  if given ~= nil then put_back(self, given) end
  if raised then error(raised[1], 0) end
  return await_value(self, deadline)
end

--- Waits for a value. Returns it; nil and an error of code "timeout"; or nil after close.
function await_value(self, deadline)
  if self.is_set then self.is_set = false end
  local is_closed, value = self.is_closed, take(self) -- in this order: values that are sent before close are received
  if value ~= nil or is_closed then return value end
  return self.scheduler:exchange(self, nil, deadline, after_receive)
end

--- Continues after a wait for space.
local function after_send(senders, value, deadline, why, _, raised)
  if why == "turn" then return true end
  if why == "timeout" then return nil, core.new_error("timeout") end
  if raised then error(raised[1], 0) end
  return await_room(senders.channel, value, deadline)
end

--- Waits until a value is received or queued. Returns true, or nil and an error.
function await_room(self, value, deadline)
  local senders = get_senders(self)
  senders.is_set = false
  local ok, err = put(self, value)
  if ok ~= false then return ok, err end
  return self.scheduler:exchange(senders, value, deadline, after_send)
end

-- }======

--- Waits until a receiver takes the value, or the channel has space for it. Returns true; or nil and an error of code
-- "timeout" or "closed".
function channel_methods:send(value, timeout)
  check.self(self, "send", channel_mt)
  check.argument(value ~= nil, 1, "send", "a value", value)
  check.timeout(timeout, "send", 2)
  local scheduler = self.scheduler
  scheduler:enter()
  local ok, err = put(self, value)
  if ok then return true end
  if ok == nil then return nil, err end
  if timeout and timeout <= 0 then return nil, core.new_error("timeout") end
  return await_room(self, value, timeout and scheduler:now() + timeout)
end

--- Waits for the next value and returns it. Returns nil and an error of code "timeout"; or only nil once the channel is
-- closed and empty.
function channel_methods:receive(timeout)
  check.self(self, "receive", channel_mt)
  check.timeout(timeout, "receive")
  local scheduler = self.scheduler
  scheduler:enter()
  if timeout and timeout <= 0 then
    local is_closed, value = self.is_closed, take(self)
    if value ~= nil or is_closed then return value end
    return nil, core.new_error("timeout")
  end
  return await_value(self, timeout and scheduler:now() + timeout)
end

--- Returns an iterator over the values. It ends when the channel is closed and empty.
function channel_methods:values()
  check.self(self, "values", channel_mt)
  return function() return (self:receive()) end
end

--- Returns the number of values in the channel, without those of waiting senders.
function channel_methods:count()
  check.self(self, "count", channel_mt)
  return self.newest - self.oldest + 1
end

--- Closes the channel. Waiting and later senders get an error of code "closed". Receivers get the remaining values, and
-- then nil.
function channel_methods:close()
  check.self(self, "close", channel_mt)
  if self.is_closed then return end
  self.is_closed = true
  if self.senders then self.senders:set() end
  event.set(self)
end

--- Returns the number of values, the capacity, and the state.
function channel_mt:__tostring()
  return ("keywatch.channel<%d of %d %s>"):format(self:count(), self.capacity, self.is_closed and "closed" or "open")
end

channel_mt.__close = channel_methods.close

-- {====== Selecting ======

channel_mt.__select = { -- see selection.lua
  is_ready = function(self)
    self.scheduler:enter()
    return self.oldest <= self.newest or self.is_closed or self.senders ~= nil and self.senders[1] ~= nil
  end,
  begin = function(self) return self end,
  finish = function() end,
  take = function(self)
    local is_closed, value = self.is_closed, take(self)
    if value == nil and not is_closed then return selection.NOTHING end
    return value
  end,
  put_back = put_back,
}

local sending_mt = { __name = "keywatch.sending" }

--- Returns the channel to which this object sends.
function sending_mt:__tostring()
  return ("keywatch.sending<%s>"):format(tostring(self.channel))
end

sending_mt.__select = {
  is_ready = function(self)
    local channel = self.channel
    channel.scheduler:enter()
    local count = channel:count()
    return channel.is_closed or count < channel.capacity or count == 0 and channel[1] ~= nil
  end,
  begin = function(self)
    return get_senders(self.channel), self.value
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
