-- SPDX-License-Identifier: MIT
--- task: a function that runs concurrently with other tasks. While it waits, others run.
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
local keys_by = require("keywatch.support.order").keys_by

local task_methods = {}
local task_mt = { __name = "keywatch.task", __index = task_methods }

--- Returns the state, or "failed" for a task that is done and has failed.
function task_mt:__tostring()
  local state = self.state
  if state == "done" and not self.results then state = "failed" end
  return ("keywatch.task<%s>"):format(state)
end

-- Defaults of fields, so that a task is a small table:
setmetatable(task_methods, { __index = {
  is_supervised = false, -- its failure is handled elsewhere, and not reported as unjoined
} })

--- Returns a new task. The scheduler calls this, and its driver starts the task.
local function new(scheduler, number, ...)
  local task = setmetatable({
    scheduler = scheduler,
    number = number, -- tasks are numbered in the order in which they were spawned
    thread = nil,    -- set by the driver: the coroutine, or light thread, that runs the task
    state = "new",
    event = nil,     -- the event for which the task is parked
    place = nil,     -- the index of the task in the event's list of waiters
    why = nil,       -- what has ended the last wait: "set", "turn", "timeout" or "cancelled"; false during a wait
    results = nil,   -- { n =, ... } if the task has ended well
    -- The following fields are set when they are needed:
    --   cancelled_at  when the task was cancelled
    --   waits      the number of waits since each of them raises
    --   parks      how often the task was parked since it has a slice: see slice.lua
    --   spans      a list of the spans that the task is in, from the outermost one: see span.lua
    --   is_own     true if the task is one of keywatch itself
    --   arguments  { n =, ... }, arguments of the function, if there are any; nil once the task has begun
    --   timer      of the deadline of the current wait, if there is one
    --   offer      in a wait for an exchange: the value that the task gives or was given; see event.lua
    --   failure    the value that the task has failed with
    --   traceback  the stack at that failure
    --   done       event: set when the task is done, if there was a waiter for that
    --   is_reported  the failure was logged, as that of a task that was not joined
    --   is_hosted  true if the host's loop runs the task: `run` does not cancel it
    --   joiners    the number of waits for several objects that include the end of this task, if any
    --   scope      the scope that the task belongs to
    --   spawned_at the line that has spawned the task, in virtual time
  }, task_mt)
  local n = select("#", ...)
  if n > 0 then task.arguments = { n = n, ... } end
  return task
end

--- Returns the keys of a table, which are tasks, as a list in the order in which they were spawned.
local function in_order(set)
  return keys_by(set, "number")
end

--- Returns the event that is set when a task is done. The caller checks the state afterwards: the task may be done by
-- then.
local function get_done(task)
  local fresh = not task.done and event.new(task.scheduler)
  task.done = task.done or fresh -- atomic
  return task.done
end

--- True if a caller of join waits for the end of a task. (Waits for several objects are counted separately.)
local function is_joined(task)
  local done = task.done
  for i = 1, done and #done or 0 do
    if done[i] and not done[i].target and done[i].state == "parked" then return true end
  end
  return false
end

--- Returns the results of join for a task that is done. From now on the caller is responsible for the failure.
local function result(task)
  local scheduler = task.scheduler
  if scheduler.unjoined == task then scheduler.unjoined = nil end
  if task.results then return true, compat.unpack(task.results, 1, task.results.n) end
  task.is_supervised = true
  return false, task.failure
end

--- Waits for the end of the task. Returns true and its results; false and the value with which it failed; or nil and an
-- error of code "timeout".
function task_methods:join(timeout)
  check.self(self, "join", task_mt)
  check.timeout(timeout, "join")
  local scheduler = self.scheduler
  scheduler:enter()
  if scheduler.running == self then check.misuse("join: a task cannot wait for its own end") end
  if self.state ~= "done" then scheduler:check_timeout(timeout) end
  local deadline = timeout and scheduler:now() + timeout
  while self.state ~= "done" do
    local done = get_done(self)
    if self.state ~= "done" and not done:wait(deadline and scheduler:time_left(deadline)) then
      return nil, core.new_error("timeout")
    end
  end
  return result(self)
end

--- Cancels the task: from now on each of its waits raises an error of code "cancelled". A task that has not begun
-- never begins. Shields delay the cancellation: see span.lua.
function task_methods:cancel()
  check.self(self, "cancel", task_mt)
  local caller = self.scheduler:current()
  self.scheduler:cancel(self, nil, caller and caller.spans)
end

-- {====== Waits for several objects ======

--- Counts a wait for several objects, one of which is the end of this task. Returns the event of that end.
local function begin_join(task)
  task.joiners = (task.joiners or 0) + 1
  return get_done(task)
end

--- Counts the end of such a wait. If the task has failed, and no joiner has received the failure, reports the failure
-- now.
local function end_join(task)
  local joiners = (task.joiners or 0) - 1 -- nil in the child after a fork
  task.joiners = joiners > 0 and joiners or nil
  if task.state ~= "done" or task.results or task.joiners or task.is_supervised then return end
  task.scheduler:complain(task)
end

task_mt.__select = { -- see selection.lua
  is_ready = function(task)
    task.scheduler:enter()
    return task.state == "done"
  end,
  begin = begin_join,
  finish = end_join,
  take = result,
}

--- Begins the wait for all tasks of a list. Returns an event that is set when one of them ends, and its links.
local function begin_all(scheduler, list)
  local target, links = event.new(scheduler), {}
  for i = 1, #list do
    links[i] = { target = target, event = nil, place = nil }
    event.link(begin_join(list[i]), links[i])
  end
  return target, links
end

--- Ends the wait for all tasks of a list.
local function end_all(list, links)
  for i = 1, #list do
    event.unlink(links[i])
    end_join(list[i])
  end
end

--- Ends the wait of a caller that was killed.
local function undo_join(wait)
  end_all(wait.list, wait.links)
end

--- Waits until all tasks of a list are done, or the deadline has passed. Returns false in the latter case.
local function await_all(scheduler, list, target, deadline)
  local has_passed = false
  for i = 1, #list do
    while list[i].state ~= "done" do
      if has_passed then return false end
      has_passed = not target:wait(scheduler:time_left(deadline))
    end
  end
  return true
end

--- Returns the results of join_all for tasks that are done. From now on the caller is responsible for all failures.
local function results_of_all(list)
  local failed = {}
  for i = 1, #list do
    if not result(list[i]) then failed[#failed + 1] = list[i] end
  end
  if #failed == 0 then return true end
  return false, failed[1].failure, failed
end

--- Returns a copy of a list of tasks, and true if all of them are done. Raises if something else is in the list.
local function copy_tasks(scheduler, list)
  local copy, is_done = {}, true
  for i = 1, check.list(list, "join") do
    local task = list[i]
    if getmetatable(task) ~= task_mt then
      check.misuse("join: number %d is not a task, but %s", i, check.shown(task))
    end
    if task == scheduler.running then check.misuse("join: a task cannot wait for its own end") end
    copy[i] = task
    is_done = is_done and task.state == "done"
  end
  return copy, is_done
end

--- Waits for the end of all tasks of a list, which may have the option `timeout`. Returns true if all have ended
-- without failure; false, the failure of the first failed task in the list, and the list of all failed tasks; or nil
-- and an error of code "timeout".
local function join_all(scheduler, list)
  scheduler:enter()
  local copy, is_done = copy_tasks(scheduler, list)
  local timeout = list.timeout
  if not is_done then scheduler:check_timeout(timeout) end
  local target, links = begin_all(scheduler, copy)
  local deadline = timeout and scheduler:now() + timeout
  local ok, has_ended = scheduler:protect(undo_join, { list = copy, links = links }, await_all, scheduler, copy, target,
    deadline)
  local is_good, failure, failed
  if ok and has_ended then is_good, failure, failed = results_of_all(copy) end
  end_all(copy, links)
  if not ok then error(has_ended, 0) end
  if not has_ended then return nil, core.new_error("timeout") end
  return is_good, failure, failed
end

-- }======

return {
  new = new, mt = task_mt, is_joined = is_joined, in_order = in_order, join_all = join_all,
}
