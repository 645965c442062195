-- SPDX-License-Identifier: MIT
--- task: a function that runs beside others. It may wait; others run meanwhile.
--
--            start           suspended             woken
--   NEW ------------> RUNNING ----------> PARKED ---------> READY -----> RUNNING ...
--    |                   |
--    +---- cancelled ----+---- has ended ----> DONE

local check = require "keywatch.support.check"
local compat = require "keywatch.support.compat"
local core = require "keywatch.core"
local event = require "keywatch.task.event"

local task_methods = {}
local task_mt = { __name = "keywatch.task", __index = task_methods }

function task_mt:__tostring()
  local state = self.state
  if state == "done" and not self.results then state = "failed" end
  return ("keywatch.task<%s>"):format(state)
end

local function new(scheduler, number, ...)
  return setmetatable({
    scheduler = scheduler,
    number = number,     -- tasks are counted, so that they have an order
    arguments = { n = select("#", ...), ... },
    thread = nil,        -- the driver's: what runs the task
    state = "new",
    event = nil,         -- that the task is parked for
    place = nil,         -- among those who wait for the same event
    timer = nil,         -- of the present wait
    why = nil,           -- what ended the last wait: "set", "timeout" or "cancelled"
    must_cancel = false, -- the next wait raises
    is_cancelled = false,
    is_heard = false,    -- a failure is told to somebody who does not wait for the task
    results = nil,
    failure = nil,
    traceback = nil,
    done = event.new(scheduler),
  }, task_mt)
end

--- Waits for the end of a task: true and what it returned; false and what it failed with; or nil and an error of
-- code "timeout".
function task_methods:join(timeout)
  check.self(self, "join", task_mt)
  check.timeout(timeout, "join")
  local scheduler = self.scheduler
  if scheduler.running == self then check.misuse("join: a task cannot wait for itself") end
  scheduler:enter()
  if self.state ~= "done" then scheduler:check_timeout(timeout) end
  local deadline = timeout and scheduler:now() + timeout
  while self.state ~= "done" do
    if not self.done:wait(deadline and scheduler:time_left(deadline)) then return nil, core.new_error("timeout") end
  end
  if scheduler.unheard == self then scheduler.unheard = nil end
  if self.results then return true, compat.unpack(self.results, 1, self.results.n) end
  return false, self.failure
end

--- Asks a task to end: what it waits for raises "cancelled". A task that has not begun never does.
function task_methods:cancel()
  check.self(self, "cancel", task_mt)
  local err = self.state == "new" and core.new_error("cancelled")
  if self.state == "done" then return end
  self.is_cancelled = true
  if self.state == "new" then
    self.scheduler:finish(self, nil, err)
  elseif self.state == "parked" then
    self.scheduler:wake(self, "cancelled")
  else
    self.must_cancel = true
  end
end

return { new = new }
