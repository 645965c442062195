-- SPDX-License-Identifier: MIT
--- virtual: a driver in virtual time. When all tasks wait, its clock moves at once to the earliest deadline.
--
-- It has no sockets, signals or threads. The order of everything depends on the program alone: the same program does
-- the same in every run.

local coroutines = require "keywatch.driver.coroutines"

--- Returns a driver of its own, whose clock begins at `now`, or at 0.
local function new(now)
  local driver, time = {}, now or 0
  coroutines.new({
    now = function() return time end,
    block = function(wait) time = time + (wait or 0) end,
    is_awaiting = function() return false end,
    enter = function() end,
    timeout = function() return nil end,
    woken = function() end,
    worked = function() end,
    why_blocked = function() return nil end,
  }, driver)
  return driver
end

return { new = new }
