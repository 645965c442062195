-- SPDX-License-Identifier: MIT
--- turn: long work on an object lets other tasks run in between, if it is done in a task: see slice.lua. The work
-- counts its values down in the field `left`, and calls `pass` when none is left.

local slice = require "keywatch.task.slice"

local VALUES = 200 -- between two looks at the clock

--- Begins to count in a table, the state of the work.
local function begin(self)
  self.left = VALUES
  return self
end

--- Continues counting. Other tasks run now if the work has taken a while.
local function pass(self)
  self.left = VALUES
  self.slice = self.slice or slice.new(math.huge)
  slice.pass(self.slice)
end

--- Counts one value.
local function count(self)
  self.left = self.left - 1
  if self.left <= 0 then pass(self) end
end

return { begin = begin, pass = pass, count = count }
