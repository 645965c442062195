-- SPDX-License-Identifier: MIT
--- slice: has a task that works without a wait let other tasks run, after so many pieces of work or so much time.

local driver = require "keywatch.task.driver"

local SECONDS = 0.002

--- Called after each piece of work.
local function pass(self)
  local count = self.count + 1
  self.count = count
  if count < self.most and self.now() < self.until_ then return end
  if driver.can_park() then driver.get().sleep(0) end
  self.count, self.until_ = 0, self.now() + SECONDS
end

--- Returns a slice of at most so many pieces.
local function new(most)
  local now = driver.get().now
  return { most = most, count = 0, now = now, until_ = now() + SECONDS }
end

return { new = new, pass = pass }
