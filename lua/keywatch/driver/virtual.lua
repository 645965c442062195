-- SPDX-License-Identifier: MIT
--- virtual: a driver whose clock moves by itself. Where all tasks wait, the time of the next one has come at once.
--
-- It has no sockets, no signals and no threads. Everything happens in an order that depends on the program alone: the
-- same program does the same every time.

local coroutines = require "keywatch.driver.coroutines"

--- A driver of its own, whose clock begins at `now`, or 0.
local function new(now)
  local driver, time = {}, now or 0
  coroutines.new({
    now = function() return time end,
    block = function(wait) time = time + (wait or 0) end,
    is_awaiting = function() return false end,
    enter = function() end,
    host = function() return nil end,
  }, driver)
  return driver
end

return { new = new }
