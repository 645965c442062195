-- SPDX-License-Identifier: MIT
--- virtual: a driver in virtual time. When all tasks wait, its clock moves at once to the earliest deadline.
--
-- The manual clock of a store can move with it, see driver.carry. It has no sockets, signals or threads. The order of
-- everything depends on the program alone: the same program does the same in every run.

local coroutines = require "keywatch.driver.coroutines"

--- Does the work of a store that is due at a time. Returns false if the store is closed.
local function move(store, time)
  if store:tend() == false then return false end
  while store:step(time) do end
  return true
end

--- Returns a driver of its own, whose clock begins at `now`, or at 0.
local function new(now)
  local driver, time = {}, now or 0
  local carried = {} -- stores

  --- Moves the clock. A task that runs then finds the same time in the stores. Stores that are closed are forgotten.
  local function block(wait)
    time = time + (wait or 0)
    local i = 1
    while carried[i] do
      if move(carried[i], time) then i = i + 1 else table.remove(carried, i) end
    end
  end

  coroutines.new({
    now = function() return time end,
    block = block,
    is_awaiting = function() return false end,
    enter = function() end,
    timeout = function() return nil end,
    woken = function() end,
    worked = function() end,
    why_blocked = function() return nil end,
  }, driver)

  --- From now on the manual clock of a store moves with this driver's. The store was opened with the option
  -- now = driver.now().
  function driver.carry(store)
    carried[#carried + 1] = store
    driver.attach {
      poll = function(self)
        if not move(store, time) then return driver.detach(self) end
        local deadline = store:deadline()
        return deadline and math.max(0, deadline - time)
      end,
    }
  end

  return driver
end

return { new = new }
