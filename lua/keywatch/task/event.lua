-- SPDX-License-Identifier: MIT
--- event: something to wait for. Setting an event wakes all who wait for it. If nobody waits, the next one who would
-- does not.
--
-- Waiters stand in a list, and each knows its place. The scheduler adds them, in `park`. A waiter that leaves from the
-- middle leaves a gap, so that leaving costs the same for any number of waiters.
--
-- A finalizer may set an event in the middle of anything. So whatever is changed together is changed without a call or
-- an allocation in between, and marked "at once".

local event = {}

local event_methods = {}
local event_mt = { __name = "keywatch.event", __index = event_methods }

--- An event whose waiters are tasks, or the top level, of a scheduler.
function event.new(scheduler)
  return setmetatable({
    scheduler = scheduler,
    is_set = false,
    waiters = nil, -- a list of waiters; false where one has left
    gaps = 0,      -- how many have left
  }, event_mt)
end

--- Closes the gaps. At once.
local function squeeze(self)
  local waiters, n = self.waiters, 0
  if not waiters then return end -- the event was set meanwhile
  for i = 1, #waiters do
    local who = waiters[i]
    waiters[i] = nil
    if who then
      n = n + 1
      waiters[n], who.place = who, n
    end
  end
  self.gaps = 0
  if n == 0 then self.waiters = nil end
end

--- Removes a waiter, if it is one. At once.
function event.leave(self, who)
  local waiters = self.waiters
  if not waiters or waiters[who.place] ~= who then return end
  waiters[who.place] = false
  self.gaps = self.gaps + 1
  if self.gaps * 2 >= #waiters then squeeze(self) end
end

--- Returns whether a waiter was woken.
function event_methods:set()
  local waiters, is_heard = self.waiters, false
  if not waiters then
    self.is_set = true
    return false
  end
  self.waiters, self.gaps = nil, 0
  for i = 1, #waiters do
    local who = waiters[i]
    if who and who.event == self then is_heard = self.scheduler:wake(who, "set") or is_heard end
  end
  return is_heard
end

--- Waits until the event is set: true; or until `timeout` seconds are over: false.
function event_methods:wait(timeout)
  if self.is_set then
    self.is_set = false
    return true
  end
  if timeout and timeout <= 0 then return false end
  return self.scheduler:wait(self, timeout) == "set"
end

return event
