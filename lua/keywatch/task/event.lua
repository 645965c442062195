-- SPDX-License-Identifier: MIT
--- event: tasks wait for it until it is set. Setting an event wakes all of its waiters. If there is none, the event
-- stays set, and the next wait returns at once and resets it.
--
-- A waiter is a task, or the top level. Waiters stand in a list, and each knows its place in the list. `park` of the
-- scheduler adds them. A waiter that leaves from the middle leaves a gap (false), so that leaving costs the same for
-- any number of waiters.
--
-- A finalizer may set an event at any call and any allocation. Therefore fields that belong together are changed
-- without a call or an allocation in between. Such code is marked "at once".

local event = {}

local event_methods = {}
local event_mt = { __name = "keywatch.event", __index = event_methods }

--- Returns an event whose waiters are tasks, or the top level, of a scheduler.
function event.new(scheduler)
  return setmetatable({
    scheduler = scheduler,
    is_set = false,
    waiters = nil, -- list of waiters; false in the place of one that has left; nil: none
    gaps = 0,      -- waiters in the list that have left
  }, event_mt)
end

--- Removes the gaps from the list. At once.
local function squeeze(self)
  local waiters, n = self.waiters, 0
  if not waiters then return end -- the event was set meanwhile
  for i = 1, #waiters do
    local waiter = waiters[i]
    waiters[i] = nil
    if waiter then
      n = n + 1
      waiters[n], waiter.place = waiter, n
    end
  end
  self.gaps = 0
  if n == 0 then self.waiters = nil end
end

--- Removes a waiter, if it is in the list. At once.
function event.leave(self, waiter)
  local waiters = self.waiters
  if not waiters or waiters[waiter.place] ~= waiter then return end
  waiters[waiter.place] = false
  self.gaps = self.gaps + 1
  if self.gaps * 2 >= #waiters then squeeze(self) end
end

--- Sets the event. Returns true if a waiter was woken.
function event_methods:set()
  local waiters, has_woken = self.waiters, false
  if not waiters then
    self.is_set = true
    return false
  end
  self.waiters, self.gaps = nil, 0
  for i = 1, #waiters do
    local waiter = waiters[i]
    if waiter and waiter.event == self then has_woken = self.scheduler:wake(waiter, "set") or has_woken end
  end
  return has_woken
end

--- Waits until the event is set. Returns true; or false if `timeout` seconds are over.
function event_methods:wait(timeout)
  if self.is_set then
    self.is_set = false
    return true
  end
  if timeout and timeout <= 0 then return false end
  return self.scheduler:wait(self, timeout) == "set"
end

return event
