-- SPDX-License-Identifier: MIT
--- slice: makes a task that works without waiting let other tasks run, after a number of pieces of work or SECONDS.

local driver = require "keywatch.task.driver"

local SECONDS = 0.002

--- Called after each piece of work. A task that has waited in the piece begins a new slice.
local function pass(self)
  local task, count = self.task, self.count + 1
  if task and task.parks ~= self.parks then
    self.parks, count, self.ends_at = task.parks, 0, self.now() + SECONDS
  end
  self.count = count
  if count < self.most and self.now() < self.ends_at then return end
  if driver.can_park() then driver.get().sleep(0) end
  self.parks, self.count, self.ends_at = task and task.parks, 0, self.now() + SECONDS
end

--- Returns a slice of at most this many pieces, for the calling task.
local function new(most)
  local d = driver.get()
  local task = d.current()
  if task then task.parks = task.parks or 0 end
  return { most = most, count = 0, now = d.now, ends_at = d.now() + SECONDS, task = task, parks = task and task.parks }
end

return { SECONDS = SECONDS, new = new, pass = pass }
