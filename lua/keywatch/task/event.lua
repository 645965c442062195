-- SPDX-License-Identifier: MIT
--- event: tasks wait for an event until it is set. Setting an event wakes all of its waiters. If there are none, the
-- event stays set, and the next wait returns at once and resets the event.
--
-- A waiter is a task, the top level, or a link. Waiters are in a list, and each stores its index in the list, the field
-- `place`. The list is the event itself, at the indices from 1. `park` of the scheduler adds tasks and the top level. A
-- waiter that leaves from the middle leaves a gap (false), so that leaving costs the same for any number of waiters.
--
-- A link represents a task that waits for several events: it sets another event, its target, for which only that task
-- waits. Fields of a link: target, event (whose list has the link, or nil), place, and offer.
--
-- `exchange` wakes only the first waiter, and passes a value to it. The waiter may offer a value in return, its field
-- `offer`. Channels pass values in this way: the value is passed together with the end of the wait, so that no other
-- task can take it in between.
--
-- A finalizer may set an event at any call and any allocation. Therefore fields that belong together are changed
-- without a call or an allocation in between. Such code is marked "at once" or "atomic".

local event = {}

local event_methods = {}
local event_mt = { __name = "keywatch.event", __index = event_methods }

-- Defaults of fields, so that an event is a small table:
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
  if self[2] == nil then -- the only waiter
    self[1] = nil
    return
  end
  self[place] = false
  self.gaps = self.gaps + 1
  if self.gaps * 2 >= #self then squeeze(self) end
end

--- Removes all waiters from the list, and returns them in a new list.
local function remove_all(self)
  local waiters = {}
  -- atomic:
  for i = 1, #self do
    waiters[i] = self[i]
    self[i] = nil
  end
  if self.gaps > 0 then self.gaps, self.first = 0, 1 end
  if waiters[1] == nil then self.is_set = true end -- a finalizer has set the event, and so removed the waiters
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

--- Sets the event, and leaves it set although waiters were woken: a finalizer may make this call when a task has
-- already checked and is about to wait. The next wait may therefore return too early.
function event_methods:set_for_all()
  self:set()
  self.is_set = true
end

--- Waits until the event is set. Returns true; or false after `timeout` seconds.
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

--- Removes a link from the waiters of its event, if it is one of them.
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

--- Passes `ours` to the task of a link, and wakes the task. Returns true and the offer of the link; or false if the
-- task does not wait now, and is woken to check again. A task gets one turn per wait: target.turn is its link.
local function exchange_with_link(link, ours)
  local target = link.target
  event.unlink(link)
  local is_free = target[1] ~= nil and not target.turn -- at once with the following lines
  local theirs = link.offer
  if is_free then target.turn, link.offer = link, ours end
  target:set()
  return is_free, theirs
end

--- Passes `ours` to the first waiter, and wakes the waiter. Returns true and the waiter's offer; or false if there are
-- no waiters.
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
    event.leave(self, waiter) -- the waiter is being woken, and has not left yet
    waiter = first_waiter(self)
  end
  return false
end

--- Sets the event for one waiter: wakes only the first one. If there are no waiters, the event stays set.
function event_methods:set_one()
  if not event.exchange(self) then self.is_set = true end
end

-- }======

return event
