-- SPDX-License-Identifier: MIT
--- source: a store as a source that the driver polls while a task waits for the store (see task/driver.lua).
--
-- A source has the method poll and the field `count`, the number of waiters. It is attached to the driver exactly
-- while that is not 0.

local core = require "keywatch.core"
local driver = require "keywatch.task.driver"

local source = {}

--- In the child after a fork: a store on a disk belongs to the parent, and so do its waiters.
local function after_fork(one)
  if one.store.set_bell then driver.get().detach(one) end
end

--- Returns a function that returns the source of a store. make(store) makes the source when it is first needed.
function source.of_stores(make)
  local sources = setmetatable({}, { __mode = "kv" }) -- by store; the driver holds the attached ones
  return function(store)
    local one = sources[store]
    if not one then
      one = make(store)
      one.count, one.pid, one.after_fork = 0, core.pid(), one.after_fork or after_fork
      sources[store] = one
      if store.set_bell and store:has_threads() then store:set_bell(driver.get().bell()) end
    end
    return one
  end
end

--- Counts a waiter. Raises if the store belongs to the parent process. `store` must be given if the source does not
-- hold its store.
function source.enter(one, store)
  if one.pid ~= core.pid() then
    (store or one.store):status() -- raises in that case
    driver.get().enter() -- has the source forget the waiters of the parent before this one is counted
    one.pid = core.pid()
  end
  if one.count == 0 then driver.get().attach(one) end
  one.count = one.count + 1
end

--- Counts a waiter that has gone.
function source.leave(one)
  one.count = one.count - 1
  if one.count == 0 then driver.get().detach(one) end
end

return source
