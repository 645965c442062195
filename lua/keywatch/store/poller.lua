-- SPDX-License-Identifier: MIT
--- poller: a store as a poller that the driver polls while a task waits for the store (see task/driver.lua).
--
-- A poller has the method poll and the field `count`, the number of waiters. It is attached to the driver exactly while
-- `count` is not 0.

local core = require "keywatch.core"
local driver = require "keywatch.task.driver"

local poller = {}

--- In the child after a fork: detaches the poller of a store on a disk. The store and its waiters belong to the parent.
local function after_fork(one)
  if one.store.set_bell then driver.get().detach(one) end
end

--- Returns a function that returns the poller of a store. make(store) makes the poller at its first use.
function poller.of_stores(make)
  local pollers = setmetatable({}, { __mode = "kv" }) -- by store; the driver references attached pollers
  return function(store)
    local one = pollers[store]
    if not one then
      one = make(store)
      one.count, one.pid, one.after_fork = 0, core.pid(), one.after_fork or after_fork
      pollers[store] = one
      if store.set_bell and store:has_threads() then store:set_bell(driver.get().bell()) end
    end
    return one
  end
end

--- Counts a waiter. Raises if the store belongs to the parent process. `store` must be given if the poller has no
-- field `store`.
function poller.enter(one, store)
  if one.pid ~= core.pid() then
    (store or one.store):status() -- raises in that case
    driver.get().enter() -- calls after_fork of the poller, before this waiter is counted
    one.pid = core.pid()
  end
  if one.count == 0 then driver.get().attach(one) end
  one.count = one.count + 1
end

--- Counts a waiter that has left.
function poller.leave(one)
  one.count = one.count - 1
  if one.count == 0 then driver.get().detach(one) end
end

return poller
