-- SPDX-License-Identifier: MIT
--- forwarder: lets an object be selected that is ready when one of its inner objects may be, such as a watch or a
-- lease. The inner objects may change while tasks wait.
--
-- The forwarder has an event of its own, for which selecting tasks wait. During that a link in the list of waiters of
-- each inner object's event sets the event of the forwarder.

local driver = require "keywatch.task.driver"
local event = require "keywatch.task.event"

local forwarder_methods = {}
local forwarder_mt = { __index = forwarder_methods }

--- Returns a forwarder without inner objects.
local function new()
  return setmetatable({
    arrival = driver.get().event(), -- set when an inner object may be ready
    links = {},                     -- by object: { target = arrival, awaited = event } while a task waits, else false
    waiters = 0,
  }, forwarder_mt)
end

--- Returns how an object is selected: see task/selection.lua.
local function protocol_of(object)
  return getmetatable(object).__select
end

--- Begins the wait for an object.
local function attach(self, object)
  local link = { target = self.arrival, event = nil, place = nil, awaited = protocol_of(object).begin(object) }
  self.links[object] = link
  event.link(link.awaited, link)
end

--- Ends the wait for an object.
local function detach(object, link)
  event.unlink(link)
  protocol_of(object).finish(object)
end

--- Adds an object, and wakes the waiters.
function forwarder_methods:add(object)
  self.links[object] = false
  if self.waiters > 0 then attach(self, object) end
  self.arrival:set()
end

--- Removes an object, if it is there.
function forwarder_methods:remove(object)
  local link = self.links[object]
  self.links[object] = nil
  if link then detach(object, link) end
end

--- Wakes the waiters.
function forwarder_methods:wake()
  self.arrival:set()
end

--- Counts a wait that begins. Returns the event to wait for.
function forwarder_methods:begin()
  self.waiters = self.waiters + 1
  if self.waiters == 1 then
    for object in pairs(self.links) do attach(self, object) end
  end
  return self.arrival
end

--- Makes all objects announce later events.
function forwarder_methods:arm()
  for object, link in pairs(self.links) do
    if link then
      if not link.event then event.link(link.awaited, link) end -- a used link is no longer in the list
      local arm = protocol_of(object).arm
      if arm then arm(object) end
    end
  end
end

--- Counts a wait that has ended.
function forwarder_methods:finish()
  self.waiters = self.waiters - 1
  if self.waiters > 0 then return end
  for object, link in pairs(self.links) do
    self.links[object] = false
    if link then detach(object, link) end
  end
end

return { new = new }
