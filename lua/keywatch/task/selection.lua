-- SPDX-License-Identifier: MIT
--- selection: a wait for the first of several objects.
--
-- An object can be selected if its metatable has the field __select, a table of functions:
--
--   is_ready(object)   True if `take` need not wait: it returns something, or the end or failure of the object.
--   begin(object)      Called before a wait. Returns the event that is set when the object may have become ready, and
--                      the object's offer for callers of event.exchange, or nil.
--   arm(object)        Optional. Called after begin, before each call of is_ready that a wait may follow. For an object
--                      whose event is set only once for each such call.
--   finish(object)     Called once for each begin, even if the wait has raised. Must not raise.
--   take(object)       Called after is_ready. Returns what the object's own call returns: watch:next, channel:receive,
--                      task:join. Returns NOTHING if a finalizer has taken that first.
--   look(object)       Optional. Called if nothing is ready and the caller does not want to wait. Checks once for
--                      events that only a wait would notice, for example bytes at a socket. Returns true if this must
--                      be repeated while the object is not ready.
--   put_back(object, given)
--                      Optional. Called if the wait has raised after event.exchange has given something.
--
-- During a wait, the list of waiters of each object's event has a link, which sets the selection's own event.

local check = require "keywatch.support.check"
local core = require "keywatch.core"
local event = require "keywatch.task.event"

local NOTHING = {}

-- A generator of random numbers (Lehmer's, with the constants of Park and Miller): a selection begins with a random
-- object, so that none starves. Every scheduler has its own state, so in virtual time everything is repeatable.
local MULTIPLIER, MODULUS = 16807, 2147483647

--- Returns a random whole number from 0 to n - 1.
local function draw(scheduler, n)
  scheduler.seed = scheduler.seed * MULTIPLIER % MODULUS
  return scheduler.seed % n
end

-- {====== Objects ======

--- Returns the protocol of an object, or nil if the object cannot be selected.
local function protocol_of(object)
  local mt = getmetatable(object)
  local protocol = type(mt) == "table" and rawget(mt, "__select")
  return type(protocol) == "table" and protocol or nil
end

--- Raises if two objects of a list are the same.
local function check_different(objects, n)
  local places = {}
  for i = 1, n do
    local object = objects[i]
    if places[object] then check.misuse("select: number %d and number %d are the same", places[object], i) end
    places[object] = i
  end
end

local CHOICE = "give watches, channels, tasks, signals, kept leases, sessions, locks, leaderships or observers"

--- Raises unless all objects can be selected, and all are different. Returns their number.
local function check_objects(scheduler, objects)
  local n = check.list(objects, "select")
  if n == 0 then check.misuse("select: there is nothing to wait for: %s", CHOICE) end
  for i = 1, n do
    local object = objects[i]
    if not protocol_of(object) then
      check.misuse("select: number %d cannot be selected: %s, not %s", i, CHOICE, check.shown(object))
    end
    if rawequal(object, scheduler.running) then check.misuse("select: a task cannot wait for its own end") end
  end
  check_different(objects, n)
  return n
end

-- }======

-- {====== Looking ======

--- Returns true, the object and the results of its `take`; or nil if `take` returned NOTHING.
local function results_of(object, first, ...)
  if rawequal(first, NOTHING) then return nil end
  return true, object, first, ...
end

--- Takes from the first ready object, beginning at a random one. Returns true, the object and the results of its own
-- call; false if none is ready; or nil if a finalizer has taken that first, and the caller has to check again.
local function take_ready(scheduler, objects, n)
  local start = draw(scheduler, n)
  for i = start, start + n - 1 do
    local object = objects[i % n + 1]
    local protocol = protocol_of(object)
    if protocol.is_ready(object) then return results_of(object, protocol.take(object)) end
  end
  return false
end

--- Makes every object check once for events that only a wait would notice. Returns true if an object has to check
-- again.
local function look_at_all(objects, n)
  local has_more = false
  for i = 1, n do
    local look = protocol_of(objects[i]).look
    if look and look(objects[i]) then has_more = true end
  end
  return has_more
end

-- }======

-- {====== Waiting ======

--- Returns a selection of n objects. No wait has begun.
local function new(scheduler, objects, n, timeout)
  local self = {
    scheduler = scheduler,
    n = n,
    objects = {}, -- a copy: the program may change its own table
    links = {},   -- of the objects for which `begin` has been called, in order
    target = event.new(scheduler),
    deadline = timeout and scheduler:now() + timeout,
    has_timed_out = false, -- the deadline has passed
  }
  for i = 1, n do self.objects[i] = objects[i] end
  return self
end

--- Begins the wait for each object.
local function begin_all(self)
  for i = 1, self.n do
    local object = self.objects[i]
    local link = { target = self.target, event = nil, place = nil, offer = nil, object = object, awaited = nil }
    link.awaited, link.offer = protocol_of(object).begin(object)
    self.links[i] = link
  end
end

--- Arms all objects.
local function arm_all(self)
  for i = 1, self.n do
    local object = self.objects[i]
    local arm = protocol_of(object).arm
    if arm then arm(object) end
  end
end

--- Waits until an object may be ready, or the deadline has passed. Returns the link of the object whose exchange has
-- ended the wait, if one has.
local function wait(self)
  for i = 1, self.n do
    local link = self.links[i]
    event.link(link.awaited, link)
  end
  self.has_timed_out = not self.target:wait(self.scheduler:time_left(self.deadline))
  local turn = self.target.turn
  self.target.turn = nil
  for i = 1, self.n do event.unlink(self.links[i]) end
  return turn
end

--- Handles the results of take_ready: waits, and checks again, until an object is ready or the deadline has passed.
-- Returns the object and the results of its own call, or nil and an error.
local function follow(self, is_found, ...)
  if is_found then return ... end
  if is_found == false then
    if self.has_timed_out then return nil, core.new_error("timeout") end
    local turn = wait(self)
    if turn then return turn.object, turn.offer end
  end
  arm_all(self) -- before the objects are checked: later arrivals set the events
  return follow(self, take_ready(self.scheduler, self.objects, self.n))
end

--- Ends the waits for all objects.
local function end_all(self)
  local turn = self.target.turn -- if the wait has raised
  for i = 1, #self.links do event.unlink(self.links[i]) end
  if turn then
    local put_back = protocol_of(turn.object).put_back
    if put_back then put_back(turn.object, turn.offer) end
  end
  for i = 1, #self.links do
    local object = self.links[i].object
    protocol_of(object).finish(object)
  end
end

--- Ends the waits for all objects. Returns the results of a pcall, or raises its error.
local function finish_all(self, ok, ...)
  end_all(self)
  if not ok then error((...), 0) end
  return ...
end

--- Begins the waits for all objects, and waits. First checks the objects once more, since one may have become ready in
-- between.
local function run(self)
  begin_all(self)
  return follow(self, nil)
end

--- Handles the results of take_ready before any wait. If the timeout is 0, all objects are checked twice.
local function after_look(scheduler, objects, n, has_looked, is_found, ...)
  if is_found then return ... end
  local timeout = objects.timeout
  local is_quick = timeout and timeout <= 0
  if is_found == nil or is_quick and not has_looked then
    has_looked = is_quick and not look_at_all(objects, n)
    return after_look(scheduler, objects, n, has_looked, take_ready(scheduler, objects, n))
  end
  if is_quick then return nil, core.new_error("timeout") end
  scheduler:waiting_task() -- raises if the caller cannot wait
  local self = new(scheduler, objects, n, timeout)
  return finish_all(self, scheduler:protect(end_all, self, run, self))
end

-- }======

--- Waits for the first ready object of several. `objects` is a list, with the option `timeout` in seconds. Returns the
-- object and the results of its own call; or nil and an error of code "timeout".
local function select_first(scheduler, objects)
  local n = check_objects(scheduler, objects)
  return after_look(scheduler, objects, n, false, take_ready(scheduler, objects, n))
end

return { select_first = select_first, NOTHING = NOTHING }
