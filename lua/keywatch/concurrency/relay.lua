-- SPDX-License-Identifier: MIT
--- relay: lets an object be selected that is ready when something inside it may be: a watch, a lease. The things inside
-- may change while tasks wait for the object.
--
-- The relay has an event of its own, which those wait for who select the object. While they do, a link stands in the
-- list of waiters of each thing's event, and sets that of the relay.

local driver = require "keywatch.task.driver"
local event = require "keywatch.task.event"

local relay_methods = {}
local relay_mt = { __index = relay_methods }

--- Returns a relay with nothing inside.
local function new()
  return setmetatable({
    arrival = driver.get().event(), -- set when something inside may be ready
    links = {},                     -- by thing: { target = arrival, awaited = event } while a task waits, else false
    waiters = 0,
  }, relay_mt)
end

--- Returns how a thing is selected: see task/selection.lua.
local function protocol_of(thing)
  return getmetatable(thing).__select
end

--- Begins the wait for a thing.
local function attach(self, thing)
  local link = { target = self.arrival, event = nil, place = nil, awaited = protocol_of(thing).begin(thing) }
  self.links[thing] = link
  event.link(link.awaited, link)
end

--- Ends the wait for a thing.
local function detach(thing, link)
  event.unlink(link)
  protocol_of(thing).finish(thing)
end

--- Adds a thing, and wakes those who wait.
function relay_methods:add(thing)
  self.links[thing] = false
  if self.waiters > 0 then attach(self, thing) end
  self.arrival:set()
end

--- Removes a thing, if it is there.
function relay_methods:remove(thing)
  local link = self.links[thing]
  self.links[thing] = nil
  if link then detach(thing, link) end
end

--- Wakes those who wait.
function relay_methods:wake()
  self.arrival:set()
end

--- Counts a wait that begins. Returns the event to wait for.
function relay_methods:begin()
  self.waiters = self.waiters + 1
  if self.waiters == 1 then
    for thing in pairs(self.links) do attach(self, thing) end
  end
  return self.arrival
end

--- Has all things announce what comes from now on.
function relay_methods:arm()
  for thing, link in pairs(self.links) do
    if link then
      if not link.event then event.link(link.awaited, link) end -- a link that was used is no longer in the list
      local arm = protocol_of(thing).arm
      if arm then arm(thing) end
    end
  end
end

--- Counts a wait that has ended.
function relay_methods:finish()
  self.waiters = self.waiters - 1
  if self.waiters > 0 then return end
  for thing, link in pairs(self.links) do
    self.links[thing] = false
    if link then detach(thing, link) end
  end
end

return { new = new }
