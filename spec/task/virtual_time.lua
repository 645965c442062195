--- What specs of tasks on virtual time share: each test has a driver of its own, whose tables are checked after it.
--
--   local driver, in_task, start = require("spec.task.virtual_time").declare()

local busted = require "busted"
local virtual = require "keywatch.driver.virtual"

local scheduler = require "spec.support.scheduler"

local current
local driver = setmetatable({}, { __index = function(_, name) return current[name] end })

local virtual_time = {}

--- Continues the test with a new driver.
function virtual_time.renew() current = virtual.new() end

--- A test that runs in a task.
local function in_task(fn) return function() current.run(fn) end end

--- Spawns a task, and lets it run until it waits.
local function start(...)
  local task = current.spawn(...)
  current.sleep(0)
  return task
end

--- For the file that calls it. Returns the driver of the test that runs, and two functions.
function virtual_time.declare()
  busted.before_each(virtual_time.renew)
  busted.after_each(function()
    local why = scheduler.check(current)
    assert(not why, why)
  end)
  return driver, in_task, start
end

return virtual_time
