-- SPDX-License-Identifier: MIT
--- slice: has a task that works without a wait let other tasks run, after so many pieces of work or so much time.

local driver = require "keywatch.task.driver"

local SECONDS = 0.002

--- Called after each piece of work.
local function pass(self)
  local d = driver.get()
  self.count = self.count + 1
  if self.count < self.most and d.now() < self.until_ then return end
  if driver.can_park() then d.sleep(0) end
  self.count, self.until_ = 0, d.now() + SECONDS
end

--- Returns a slice of at most so many pieces.
local function new(most)
  return { most = most, count = 0, until_ = driver.get().now() + SECONDS }
end

return { new = new, pass = pass }
