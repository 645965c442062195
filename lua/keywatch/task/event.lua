-- SPDX-License-Identifier: MIT
--- event: tasks wait for it until it is set. Setting an event wakes all of its waiters. If there is none, the event
-- stays set, and the next wait returns at once and resets it.
--
-- A waiter is a task, the top level, or a link. Waiters stand in a list, and each knows its place in the list. The
-- list is the event itself, at the indices from 1. `park` of the scheduler adds tasks and the top level. A waiter that
-- leaves from the middle leaves a gap (false), so that leaving costs the same for any number of waiters.
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
event.defaults = {
  is_set = false,
  gaps = 0,  -- waiters in the list that have left
  first = 1, -- the index of the first waiter, or of a gap before it
}
for name, value in pairs(event.defaults) do event_methods[name] = value end

--- Returns an event whose waiters are tasks, or the top level, of a scheduler.
function event.new(scheduler)
  return setmetatable({ scheduler = scheduler }, event_mt)
end

--- Removes the gaps from the list. Atomic.
local function squeeze(self)
  local n = 0
  for i = 1, #self do
    local waiter = self[i]
    self[i] = nil
    if waiter then
      n = n + 1
      self[n], waiter.place = waiter, n
    end
  end
  self.gaps, self.first = 0, 1
end

--- Removes a waiter, if it is in the list. Atomic.
function event.leave(self, waiter)
  local place = waiter.place
  if self[place] ~= waiter then return end
  if self[2] == nil then -- the only one
    self[1] = nil
    return
  end
  self[place] = false
  self.gaps = self.gaps + 1
  if self.gaps * 2 >= #self then squeeze(self) end
end

--- Removes all waiters from the list, and returns them in a list of their own.
local function remove_all(self)
  local waiters = {}
  -- atomic:
  for i = 1, #self do
    waiters[i] = self[i]
    self[i] = nil
  end
  if self.gaps > 0 then self.gaps, self.first = 0, 1 end
  if waiters[1] == nil then self.is_set = true end -- a finalizer has set the event
  return waiters
end

--- Sets the event. Returns true if a waiter was woken.
function event_methods:set()
  local only, has_woken = self[1], false
  if only == nil then
    self.is_set = true
    return false
  end
  if self[2] == nil then
    self[1] = nil
    return only.event == self and self.scheduler:wake(only, "set")
  end
  local waiters = remove_all(self)
  for i = 1, #waiters do
    local waiter = waiters[i]
    if waiter and waiter.event == self then has_woken = self.scheduler:wake(waiter, "set") or has_woken end
  end
  return has_woken
end

event.set = event_methods.set

--- Sets the event, and leaves it set though waiters were woken: for a task that has looked, and is about to wait, when
-- a finalizer makes this call. The next wait may then return too early.
function event_methods:set_for_all()
  self:set()
  self.is_set = true
end

--- Waits until the event is set. Returns true; or false if `timeout` seconds are over.
function event_methods:wait(timeout)
  if self.is_set then
    self.is_set = false
    return true
  end
  if timeout and timeout <= 0 then return false end
  return self.scheduler:wait(self, timeout) ~= "timeout"
end

-- {====== Links ======

--- Adds a link to the waiters; or, if the event is set, resets the event and sets the link's target.
function event.link(self, link)
  if not self.is_set then -- atomic
    local place = #self + 1
    self[place], link.place, link.event = link, place, self
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

--- Returns the first waiter of an event, or nil. Atomic.
local function first_waiter(self)
  local i = self.first
  while self[i] == false do i = i + 1 end
  if i > self.first then self.first = i end
  return self[i]
end

--- Gives `ours` to the task behind a link, and wakes the task. Returns true and what the link has offered; or false if
-- the task does not wait now: it is woken to look again. A task gets one turn in one wait: target.turn is its link.
local function exchange_with_link(link, ours)
  local target = link.target
  event.unlink(link)
  local is_free = target[1] ~= nil and not target.turn -- at once with what follows
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

--- Sets the event for one: wakes the first waiter alone. If there is none, the event stays set.
function event_methods:set_one()
  if not event.exchange(self) then self.is_set = true end
end

-- }======

return event
