-- SPDX-License-Identifier: MIT
--- event: tasks wait for it until it is set. Setting an event wakes all of its waiters. If there is none, the event
-- stays set, and the next wait returns at once and resets it.
--
-- A waiter is a task, the top level, or a link. Waiters stand in a list, and each knows its place in the list. `park`
-- of the scheduler adds tasks and the top level. A waiter that leaves from the middle leaves a gap (false), so that
-- leaving costs the same for any number of waiters.
--
-- A link stands for a task that waits for several events: it sets another event, its target, for which that task waits
-- alone. Fields of a link: target, event (of the list that the link stands in, or nil), place, and offer.
--
-- `exchange` wakes the first waiter alone, and gives it a value. The waiter may have a value of its own to give, its
-- field `offer`. This is how channels hand values over: a value and the end of the wait come together, so that no other
-- task can take the value in between.
--
-- A finalizer may set an event at any call and any allocation. Therefore fields that belong together are changed
-- without a call or an allocation in between. Such code is marked "at once".

local event = {}

local event_methods = {}
local event_mt = { __name = "keywatch.event", __index = event_methods }

-- Fields that an event has not set, so that an event is a small table:
event_methods.is_set = false
event_methods.gaps = 0  -- waiters in the list that have left
event_methods.first = 1 -- the index of the first waiter, or of a gap before it

--- Returns an event whose waiters are tasks, or the top level, of a scheduler.
function event.new(scheduler)
  return setmetatable({
    scheduler = scheduler,
    waiters = nil, -- list of waiters; false in the place of one that has left; nil: none
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
  self.gaps, self.first = 0, 1
  if n == 0 then self.waiters = nil end
end

--- Removes a waiter, if it is in the list. At once.
function event.leave(self, waiter)
  local waiters = self.waiters
  if not waiters or waiters[waiter.place] ~= waiter then return end
  if waiters[2] == nil then -- the only one
    self.waiters = nil
    return
  end
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
  self.waiters = nil
  if self.gaps > 0 then self.gaps, self.first = 0, 1 end
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

-- {====== Links ======

--- Adds a link to the waiters; or, if the event is set, resets the event and sets the link's target.
function event.link(self, link)
  local fresh = {}
  -- at once:
  if not self.is_set then
    local waiters = self.waiters or fresh
    link.place = #waiters + 1
    waiters[link.place] = link
    self.waiters, link.event = waiters, self
    return
  end
  self.is_set = false
  link.target:set()
end

--- Removes a link from the waiters of its event, if it is among them.
function event.unlink(link)
  local linked = link.event
  link.event = nil
  if linked then event.leave(linked, link) end
end

--- Returns the first waiter of an event, or nil. At once.
local function first_waiter(self)
  local waiters = self.waiters
  if not waiters then return nil end
  local i = self.first
  while waiters[i] == false do i = i + 1 end
  if i > self.first then self.first = i end
  return waiters[i]
end

--- Gives `ours` to the task behind a link, and wakes the task. Returns true and what the link has offered; or false if
-- the task does not wait now: it is told to look again. A task gets one turn in one wait: target.turn is its link.
local function exchange_with_link(link, ours)
  local target = link.target
  event.unlink(link)
  local is_free = target.waiters and not target.turn -- at once with what follows
  local theirs = link.offer
  if is_free then target.turn, link.offer = link, ours end
  target:set()
  return is_free, theirs
end

--- Gives `ours` to the first waiter, and wakes it. Returns true and what that waiter has offered; or false if none
-- waits.
function event.exchange(self, ours)
  local waiter = first_waiter(self)
  while waiter do
    local has_exchanged, theirs
    if waiter.target then
      has_exchanged, theirs = exchange_with_link(waiter, ours)
    else
      has_exchanged, theirs = self.scheduler:hand_over(waiter, ours)
    end
    if has_exchanged then return true, theirs end
    event.leave(self, waiter) -- it is being woken, and has not left yet
    waiter = first_waiter(self)
  end
  return false
end

-- }======

return event
