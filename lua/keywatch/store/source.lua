-- SPDX-License-Identifier: MIT
--- source: what stands for a store while somebody waits for it. The driver polls it when there is nothing to run.
--
-- A source is a table with a method poll, which the driver knows of while `count`, of those who wait, is not 0.

local core = require "keywatch.core"
local driver = require "keywatch.task.driver"

local source = {}

--- A disk is the parent's, and so are those who wait for it.
local function after_fork(one)
  if one.store.set_bell then driver.get().detach(one) end
end

--- A function that returns the source of a store, which make(store) makes when it is needed first.
function source.of_stores(make)
  local of = setmetatable({}, { __mode = "kv" }) -- by store; the driver holds those that are waited for
  return function(store)
    local one = of[store]
    if not one then
      one = make(store)
      one.count, one.pid, one.after_fork = 0, core.pid(), after_fork
      of[store] = one
      if store.set_bell then store:set_bell(driver.get().bell()) end
    end
    return one
  end
end

--- One more waits, and one less. Nobody waits for a store that is the parent's: that raises.
function source.enter(one)
  if one.pid ~= core.pid() then
    one.store:status()
    one.pid = core.pid()
  end
  if one.count == 0 then driver.get().attach(one) end
  one.count = one.count + 1
end

function source.leave(one)
  one.count = one.count - 1
  if one.count == 0 then driver.get().detach(one) end
end

return source
