-- SPDX-License-Identifier: MIT
--- task: a function that runs beside others. While it waits, others run.
--
--            start           suspended             woken
--   NEW ------------> RUNNING ----------> PARKED ---------> READY -----> RUNNING ...
--    |                   |
--    +---- cancelled ----+---- has ended ----> DONE
--
-- A task is in the queue of its driver exactly while it is NEW or READY.

local check = require "keywatch.support.check"
local compat = require "keywatch.support.compat"
local core = require "keywatch.core"
local event = require "keywatch.task.event"

local task_methods = {}
local task_mt = { __name = "keywatch.task", __index = task_methods }

--- Returns the state, or "failed" for a task that is done and has failed.
function task_mt:__tostring()
  local state = self.state
  if state == "done" and not self.results then state = "failed" end
  return ("keywatch.task<%s>"):format(state)
end

--- Returns a new task. The scheduler calls this, and its driver starts the task.
local function new(scheduler, number, ...)
  return setmetatable({
    scheduler = scheduler,
    number = number,       -- of tasks in the order in which they were spawned
    arguments = { n = select("#", ...), ... },
    thread = nil,          -- set by the driver: the coroutine, or light thread, that runs the task
    state = "new",
    event = nil,           -- the event that the task is parked for
    place = nil,           -- of the task in the event's list of waiters
    timer = nil,           -- of the present wait, if that has a deadline
    why = nil,             -- what has ended the last wait: "set", "timeout" or "cancelled"
    must_cancel = false,   -- the next wait raises "cancelled"
    is_cancelled = false,
    is_supervised = false, -- `run` raises its failure: it is not reported as that of a task that nobody joined
    is_hosted = nil,       -- true if the host's loop runs the task: `run` does not cancel it
    results = nil,         -- { n =, ... } if the task has ended well
    failure = nil,         -- the value that the task has failed with
    traceback = nil,       -- of a task that has failed
    done = event.new(scheduler),
  }, task_mt)
end

--- Waits for the end of the task. Returns true and its results; false and the value that it failed with; or nil and an
-- error of code "timeout".
function task_methods:join(timeout)
  check.self(self, "join", task_mt)
  check.timeout(timeout, "join")
  local scheduler = self.scheduler
  if scheduler.running == self then check.misuse("join: a task cannot wait for its own end") end
  scheduler:enter()
  if self.state ~= "done" then scheduler:check_timeout(timeout) end
  local deadline = timeout and scheduler:now() + timeout
  while self.state ~= "done" do
    if not self.done:wait(deadline and scheduler:time_left(deadline)) then return nil, core.new_error("timeout") end
  end
  if scheduler.unjoined == self then scheduler.unjoined = nil end
  if self.results then return true, compat.unpack(self.results, 1, self.results.n) end
  return false, self.failure
end

--- Asks the task to end: its present wait, or else its next one, raises an error of code "cancelled". A task that has
-- not begun never begins.
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
