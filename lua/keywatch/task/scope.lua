-- SPDX-License-Identifier: MIT
--- scope: tasks that end together. A scope ends when all of its tasks have ended. The function of the scope is one of
-- them, the body. The first failure of a task cancels the others; so does the cancellation of the caller.
--
-- The caller waits, and cancels the tasks when necessary. The end of a task, which may happen in the middle of any
-- code, only records a failure and sets an event.

local check = require "keywatch.support.check"
local compat = require "keywatch.support.compat"
local event = require "keywatch.task.event"
local spans = require "keywatch.task.span"
local tasks = require "keywatch.task.task"

local scope_methods, scope_mt = check.class "keywatch.scope"

--- Returns a scope whose caller is a task, or the top level if `caller` is nil.
local function new(scheduler, caller)
  return setmetatable({
    scheduler = scheduler,
    caller = caller,
    tasks = {},           -- as keys: the tasks that are not done
    body = nil,           -- the task of the scope's function
    changed = event.new(scheduler), -- set when a task has ended
    failed = nil,         -- the first task that has failed
    is_cancelled = false, -- all tasks were cancelled: a task that is spawned now never begins
    is_closed = false,    -- the scope has ended
  }, scope_mt)
end

-- {====== Tasks ======

--- Cancels a task, from the moment at which the caller was cancelled. With is_own the scope itself cancels the task,
-- not because its caller was cancelled: then shields around both do not delay the cancellation.
local function cancel(self, task, is_own)
  local caller = self.caller
  self.scheduler:cancel(task, caller and caller.cancelled_at, is_own and caller and caller.spans)
end

--- Adds a task and starts it.
local function add(self, fn, ...)
  local task = self.scheduler:new_task(...)
  if self.caller and self.caller.is_hosted then task.is_hosted = true end
  self.tasks[task], task.scope = true, self
  self.scheduler:start(task, fn)
  if self.is_cancelled then cancel(self, task, true) end
  return task
end

--- Called by the scheduler when a task of a scope has ended. Returns true if the scope handles the failure: it raises
-- the first one, unless its caller no longer exists, as after a fork.
local function on_end(self, task)
  local has_failed = not task.results and not self.scheduler:is_cancellation(task)
  local is_first = has_failed and not self.failed and not (self.caller and self.caller.state == "done")
  self.tasks[task] = nil
  if is_first then self.failed = task end
  self.changed:set()
  return is_first
end

--- Cancels the tasks that are not done, except one.
local function cancel_tasks(self, is_own, except)
  for _, task in ipairs(tasks.in_order(self.tasks)) do
    if task ~= except then cancel(self, task, is_own) end
  end
end

--- Cancels all tasks, including those that are spawned later.
local function cancel_all(self, is_own)
  self.is_cancelled = true
  cancel_tasks(self, is_own)
end

-- }======

--- Waits until all tasks have ended, and ends the scope. Returns nil; or, if the wait has raised, { the first error }:
-- then the tasks are cancelled, and the scope still waits for their ends. (At top level that wait can raise, too,
-- because of Ctrl-C or a deadlock; then the tasks are abandoned.)
local function await_all(self)
  local scheduler, changed = self.scheduler, self.changed
  local raised
  while next(self.tasks) ~= nil do
    local ok, err
    if not raised then
      ok, err = pcall(changed.wait, changed)
      if not ok then raised = { err } end
    elseif not pcall(scheduler.within, scheduler, spans.ENDLESS, changed.wait, changed) then
      for _, task in ipairs(tasks.in_order(self.tasks)) do scheduler:leave_behind(task) end
    end
    if (raised or self.failed) and not self.is_cancelled then cancel_all(self, not raised) end
  end
  self.is_closed = true -- at once: a finalizer cannot spawn in between
  return raised
end

--- Calls fn(scope, ...) as a task, and waits until it and all tasks of the scope have ended. Returns the results of fn.
-- Raises the first failure, or else the error that has ended the caller's wait.
local function run(scheduler, fn, ...)
  check.argument(type(fn) == "function", 1, "scope", "function", fn)
  local self = new(scheduler, scheduler:waiting_task())
  self.body = add(self, fn, self, ...)
  local ok, raised = scheduler:protect(cancel_all, self, await_all, self)
  if not ok then error(raised, 0) end
  if self.failed then error(self.failed.failure, 0) end
  if raised then error(raised[1], 0) end
  local results = self.body.results
  if not results then error(self.body.failure, 0) end
  return compat.unpack(results, 1, results.n)
end

--- Starts a task that belongs to the scope. Returns it.
function scope_methods:spawn(fn, ...)
  check.argument(type(fn) == "function", 1, "spawn", "function", fn)
  if self.is_closed then check.misuse("spawn: the scope has ended") end
  return add(self, fn, ...)
end

--- Cancels the tasks that were spawned in the scope. The function of the scope continues.
function scope_methods:cancel()
  cancel_tasks(self, true, self.body)
end

--- Returns the number of tasks that are not done, and the state.
function scope_mt:__tostring()
  local n = 0
  for _ in pairs(self.tasks) do n = n + 1 end
  local state = self.is_closed and "ended" or self.is_cancelled and "cancelled" or "open"
  return ("keywatch.scope<%d tasks %s>"):format(n, state)
end

return { run = run, on_end = on_end, methods = scope_methods, mt = scope_mt }
