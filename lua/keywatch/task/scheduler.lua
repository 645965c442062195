-- SPDX-License-Identifier: MIT
--- scheduler: the states of all tasks, what each waits for, and until when. The scheduler has no clock, and cannot
-- suspend a task: its driver supplies both. It never resumes a coroutine.
--
-- The functions that the driver supplies, and when the scheduler calls them:
--
--   now()             Returns the seconds of a clock that never goes back.
--   enter()           Called first by spawn, join, run and every wait. Notices that the process has forked.
--   start(task, fn)   Called once per task, by spawn. Sets task.thread, and makes sure that fn runs soon, in that
--                     thread, with task.arguments. fn does not run before start returns, and never if task.state is
--                     "done" by then.
--   suspend(event, deadline)
--                     Called in the thread of a task, whose field `why` is false. Suspends the task, and returns when
--                     it is woken. As soon as the task is suspended the driver calls scheduler:park(task, event,
--                     deadline). May return too early, with `why` still false: the task then checks again, or waits
--                     again.
--   wake(task)        Called for a task that is suspended. Makes sure that the task resumes soon, and not inside this
--                     call. May be called by a finalizer, at any moment.
--   thread()          Returns the thread of the caller's code. That is task.thread if the code is that of a task, and
--                     does not run in a coroutine that the task has made.
--   can_suspend()     Called in a task, before each wait. True if the task can be suspended here: not inside a function
--                     that C calls.
--   why_cannot_wait() Called before each wait of a caller that is not a task. Returns nil if the loop may be turned for
--                     the caller, or else the text of the error, which says what to do instead, with a %s for the name
--                     of the call.
--   turn_while(fn)    Called at top level, by a wait and by run. Turns the loop as long as fn() is true. Returns true;
--                     or false and an error that was raised in the driver.
--   work(fn, ...)     Called by run. Calls fn(...) and returns its results, or raises its error. During that call
--                     why_cannot_wait() refuses all callers at top level: they can only be finalizers.
--   protect(undo, object, fn, ...)
--                     Optional. Like the driver's function of that name, see driver.lua.
--   is_lost(waiter)   Optional. Called before a value is passed to a parked waiter. True if its code never
--                     runs again: then the driver has abandoned it.
--   give_up(task)     Called for a task that keeps running after it was cancelled. Its code must never run again.
--                     Returns false if the driver cannot guarantee that.
--
-- The functions and fields that the driver uses:
--
--   running = task    Set while the code of a task runs, with task.state = "running"; nil afterwards.
--   park(task, event, deadline)
--                     When a task was suspended by `suspend`.
--   make_ready(task)  When a task was suspended by its own code, which nothing would wake: task.why is not false.
--   finish(task, results, failure, traceback)
--                     When a task has ended.
--   recover(task, has_ended, err)
--                     After an error in the driver, for the task that ran.
--   abandon(task)     For tasks whose code never runs again, as after a fork.
--   wake_due()        When time has passed. sleepers:next() is the next deadline.
--
-- A wait is recorded after the task was suspended, so that a task that cannot be suspended leaves no trace of a wait. A
-- finalizer may run at any call and any allocation, also in this module, and may spawn, cancel and set events.
-- Therefore fields that belong together are changed without a call or an allocation in between. Such code is marked "at
-- once" or "atomic".

local check = require "keywatch.support.check"
local compat = require "keywatch.support.compat"
local core = require "keywatch.core"
local errors = require "keywatch.support.errors"
local event = require "keywatch.task.event"
local log = require "keywatch.support.log"
local scopes = require "keywatch.task.scope"
local spans = require "keywatch.task.span"
local tasks = require "keywatch.task.task"
local timers = require "keywatch.task.timers"

local MAX_WAITS = 1000 -- that may raise in a cancelled task before it is abandoned
local MAX_ROUNDS = 100 -- at the end of a run, after which the remaining tasks are abandoned

local LEFT_BEHIND = "a task ignores its cancellation, and each of its waits raises: it was abandoned, "
  .. "and its code no longer runs"

local scheduler_methods = {}
local scheduler_mt = { __index = scheduler_methods }

--- Returns a scheduler for the tasks of a driver.
local function new(driver)
  return setmetatable({
    driver = driver,
    suspend = driver.suspend,
    tasks = {},      -- as keys: all tasks that are not done
    count = 0,       -- tasks ever made
    sleepers = timers.new(), -- the deadlines of waiters
    running = nil,   -- the task whose code runs now
    top = nil,       -- the waiter of the top level, while that waits
    seed = 1,        -- of the random numbers of selections
    is_ending = false, -- a run cancels the remaining tasks
    held = nil,      -- at the end of a run: { task, fn } for tasks of keywatch that start after the run
    at_end = nil,    -- called at the end of a run; may return a task for which the run waits
    unjoined = nil,  -- the first task that has failed and was not joined; run raises its failure
  }, scheduler_mt)
end

--- Returns the time of the driver.
function scheduler_methods:now() return self.driver.now() end

--- Notices that the process has forked.
function scheduler_methods:enter() return self.driver.enter() end

--- Returns a new event.
function scheduler_methods:event() return event.new(self) end

--- Returns the seconds until a deadline, or nil without a deadline.
function scheduler_methods:time_left(deadline)
  return deadline and math.max(0, deadline - self.driver.now())
end

-- {====== Contexts ======

local CANNOT_SUSPEND = "keywatch: %s waits, but the task cannot be suspended here, inside a function that C "
  .. "calls (as string.gsub, table.sort, metamethods and finalizers are): make the call outside, or in another task, "
  .. "with keywatch.spawn"

--- Returns the calling task, or nil.
local function current(self)
  local running = self.running
  return running and self.driver.thread() == running.thread and running or nil
end

--- Returns the calling task, or nil.
function scheduler_methods:current()
  return current(self)
end

--- True if the caller is a task that can be suspended here.
function scheduler_methods:can_park()
  return current(self) ~= nil and self.driver.can_suspend()
end

--- Raises, at the line that called keywatch, a text with a %s for the name of the call.
local function refuse(text, name)
  check.misuse(text, name or check.caller() or "this call")
end

--- Returns the task that may wait here, or nil at top level. Raises, at the line that called keywatch, if the caller
-- cannot wait. `name` is the name of the call, if no frame of it is left.
function scheduler_methods:waiting_task(name)
  local driver = self.driver
  driver.enter()
  local task = self.running
  if task and driver.thread() == task.thread then
    if driver.can_suspend() then return task end
    refuse(CANNOT_SUSPEND, name)
  end
  local why = driver.why_cannot_wait()
  if why then refuse(why, name) end
end

--- Raises if the timeout is positive and the caller cannot wait.
function scheduler_methods:check_timeout(timeout)
  if timeout and timeout > 0 then self:waiting_task() end
end

-- }======

-- {====== Waits ======

--- Removes a waiter from its event and its timer.
local function end_wait(self, waiter)
  local awaited, timer = waiter.event, waiter.timer
  waiter.event = nil
  if timer then
    waiter.timer = nil
    self.sleepers:remove(timer)
  end
  if awaited then event.leave(awaited, waiter) end
end

--- Ends the wait of a parked waiter, a task or the top level. `why` is the result of the wait. Returns false if the
-- waiter was woken already. If the waiter is a link, sets its target instead.
function scheduler_methods:wake(waiter, why)
  if waiter.state ~= "parked" then
    local target = waiter.target
    if not target then return false end
    waiter.event = nil
    return target:set()
  end
  waiter.state, waiter.why = "ready", why -- at once: a finalizer cannot wake it a second time
  if waiter.thread then self.driver.wake(waiter) end
  end_wait(self, waiter)
  return true
end

--- Ends the current wait of a task, or of the top level if `task` is nil, as if its timeout had passed. Does nothing
-- if there is no wait.
function scheduler_methods:expire(task)
  local waiter = task or self.top
  if waiter and waiter.state == "parked" then self:wake(waiter, "timeout") end
end

--- Ends the wait of a parked waiter with the result "turn", and exchanges its offer for `ours`. Returns true and the
-- offer of the waiter; or false if the waiter was woken already.
function scheduler_methods:hand_over(waiter, ours)
  if waiter.state ~= "parked" then return false end
  local is_lost = self.driver.is_lost
  if is_lost and is_lost(waiter) then return false end
  local theirs = waiter.offer
  waiter.state, waiter.why, waiter.offer = "ready", "turn", ours -- atomic
  if waiter.thread then self.driver.wake(waiter) end
  end_wait(self, waiter)
  return true, theirs
end

--- Makes the wait of a waiter end when its waits begin to raise. Returns true if they raise now.
local function limit_wait(self, waiter)
  local state, at = waiter.state, spans.end_of(waiter)
  if not at then return false end
  if at <= self.driver.now() then return true end
  local before = waiter.timer
  if before and before.deadline <= at then return false end
  local timer = self.sleepers:add(at, waiter)
  if waiter.state == state then waiter.timer, timer = timer, before end -- else a finalizer has woken it
  if timer then self.sleepers:remove(timer) end
  return false
end

--- Parks a task that was suspended, or the top level, unless its waits raise or the event is already set.
function scheduler_methods:park(waiter, awaited, deadline)
  if waiter.parks then waiter.parks = waiter.parks + 1 end
  if deadline then waiter.timer = self.sleepers:add(deadline, waiter) end
  local must_end
  while waiter.cancelled_at or waiter.spans do
    local ends_at = spans.end_of(waiter)
    must_end = limit_wait(self, waiter)
    if spans.end_of(waiter) == ends_at then break end -- else a finalizer has cancelled it
  end
  -- atomic:
  local why = must_end and "cancelled" or awaited and awaited.is_set and "set" or nil
  if not why then
    if awaited then -- without a call: a finalizer that sets the event in between would wake no task
      local place = #awaited + 1
      awaited[place], waiter.place = waiter, place
    end
    waiter.event, waiter.state = awaited, "parked"
    return
  end
  if why == "set" then awaited.is_set = false end
  waiter.why = why
  end_wait(self, waiter)
  if waiter.thread then self:make_ready(waiter) end
end

--- True if each wait of a task raises now.
local function waits_raise(self, task)
  local at = (task.cancelled_at or task.spans) and spans.end_of(task)
  return at and at <= self.driver.now()
end

--- Resumes a suspended task, unless it has ignored its cancellation for too many waits.
function scheduler_methods:make_ready(task)
  if waits_raise(self, task) then
    task.waits = (task.waits or 0) + 1
    if task.waits > MAX_WAITS and self:leave_behind(task) then return end
  end
  self.driver.wake(task)
  task.state = "ready"
end

--- Wakes the waiters whose deadlines have passed. A timer that no longer belongs to its waiter was restored by a
-- repair.
function scheduler_methods:wake_due()
  local sleepers = self.sleepers
  local now = self.driver.now()
  while true do
    local waiter, timer = sleepers:first()
    if not waiter or timer.deadline > now then return end
    if waiter.timer == timer and waiter.state == "parked" then
      self:wake(waiter, waits_raise(self, waiter) and "cancelled" or "timeout")
    else
      sleepers:due(now)
    end
  end
end

--- Suspends the task until the event is set or the deadline has passed. Returns "set" or "timeout". Raises if the task
-- is cancelled.
local function wait_in_task(self, task, awaited, deadline)
  task.why = false
  repeat self.suspend(awaited, deadline) until task.why
  if task.why == "cancelled" then error(core.new_error("cancelled"), 0) end
  return task.why
end

--- Turns the loop until the event is set or the deadline has passed. Returns the waiter, whose field `why` is the
-- result; and, if an error was raised in the driver, { the error }.
local function turn_until_woken(self, awaited, deadline, offer)
  local waiter = { state = "running", place = nil, event = nil, timer = nil, why = nil, offer = offer }
  self:park(waiter, awaited, deadline)
  self.top = waiter
  local ok, err = self.driver.turn_while(function() return waiter.state == "parked" end)
  self.top = nil
  if ok then return waiter end
  self:wake(waiter, "interrupted")
  return waiter, { err }
end

--- Waits until the event is set (nil: only for the time), or `timeout` seconds have passed. Returns "set" or "timeout".
function scheduler_methods:wait(awaited, timeout)
  local task = self:waiting_task()
  local deadline = timeout and self.driver.now() + timeout
  if task then return wait_in_task(self, task, awaited, deadline) end
  local waiter, raised = turn_until_woken(self, awaited, deadline)
  if raised then error(raised[1], 0) end
  return waiter.why
end

--- Returns the field `why` of a task whose wait for an exchange has ended, and the value that was given. Raises if the
-- task was cancelled.
local function outcome(task)
  local why, given = task.why, task.offer
  if given ~= nil then task.offer = nil end
  if why == "cancelled" then error(core.new_error("cancelled"), 0) end
  return why, given
end

--- Turns the loop until something was exchanged, the event was set, or the deadline has passed. Returns
-- `why`, and the value that was given; or, if an error was raised in the driver, "raised", the value, if any, and
-- { the error }.
local function exchange_at_top_level(self, awaited, offer, deadline)
  local waiter, raised = turn_until_woken(self, awaited, deadline, offer)
  if waiter.why ~= "turn" then waiter.offer = nil end
  return raised and "raised" or waiter.why, waiter.offer, raised
end

--- Waits among the waiters of an event until event.exchange takes `offer` (which may be nil) and gives something for
-- it. Then returns after(awaited, offer, deadline, why, given, raised). `why` is "turn"; "set" if the event was set
-- instead, or the wait was not recorded because of an error in the driver; "timeout" if the deadline has passed; or
-- "raised", at top level, if an error was raised in the driver: then `raised` is { the error }, and `after` raises it,
-- once the given value is safe. After "set", `after` checks again. Raises if the task is cancelled. The caller has
-- called `enter`.
--
-- A tail call of this function leaves a suspended task one frame of keywatch, with few locals: its stack need not grow.
function scheduler_methods:exchange(awaited, offer, deadline, after)
  local driver, task = self.driver, self.running
  if not (task and driver.thread() == task.thread and driver.can_suspend()) then
    task = self:waiting_task(offer ~= nil and "send" or "receive")
  end
  if not task then return after(awaited, offer, deadline, exchange_at_top_level(self, awaited, offer, deadline)) end
  task.why = false
  if offer ~= nil then task.offer = offer end
  self.suspend(awaited, deadline)
  task.why = task.why or "set" -- not parked: another task may have found no waiter, and may be waiting itself
  return after(awaited, offer, deadline, outcome(task))
end

--- Calls fn(...), which waits, and returns the results of pcall. If the task is killed during the call, undo(object) is
-- called.
function scheduler_methods:protect(undo, object, fn, ...)
  local protect = self.driver.protect
  if not protect then return pcall(fn, ...) end
  return protect(undo, object, fn, ...)
end

--- Waits this many seconds.
function scheduler_methods:sleep(seconds)
  check.argument(type(seconds) == "number" and seconds == seconds, 1, "sleep", "a number of seconds", seconds)
  self:wait(nil, seconds)
end

-- }======

-- {====== Tasks ======

--- Returns a new task with the arguments of its function.
function scheduler_methods:new_task(...)
  self.driver.enter()
  self.count = self.count + 1
  return tasks.new(self, self.count, ...)
end

--- Starts a new task, unless a finalizer has cancelled it already. A task of the program inherits spans, and is
-- cancelled together with the task that spawns it, at the end of a run.
function scheduler_methods:start(task, fn)
  local parent = self.running
  if self.held and task.is_own and not parent then
    self.held[#self.held + 1] = { task, fn }
    return
  end
  local outer = task.scope and task.scope.caller and task.scope.caller.spans
  if outer or parent and parent.spans and not task.is_own then task.spans = spans.inherited(outer, parent) end
  self.driver.start(task, fn)
  if task.state ~= "done" then self.tasks[task] = true end
  if self.is_ending and parent and not task.is_own and parent.cancelled_at then
    self:cancel(task, parent.cancelled_at)
  end
end

--- Starts a task of the program and returns it.
function scheduler_methods:spawn(fn, ...)
  check.argument(type(fn) == "function", 1, "spawn", "function", fn)
  local task = self:new_task(...)
  self:start(task, fn)
  return task
end

--- Starts a task of keywatch itself and returns it.
function scheduler_methods:spawn_own(fn, ...)
  local task = self:new_task(...)
  task.is_own = true
  self:start(task, fn)
  return task
end

--- Returns all tasks that are not done, in the order in which they were spawned.
function scheduler_methods:all()
  return tasks.in_order(self.tasks)
end

--- Makes each wait of a task raise, from `since`, or from now on, as soon as its shields allow that. `origin`: the
-- spans of the code that cancels, or nil.
function scheduler_methods:cancel(task, since, origin)
  local err = task.state == "new" and core.new_error("cancelled")
  since = since or self.driver.now()
  if task.state == "done" then return end
  task.cancelled_at = task.cancelled_at or since
  if origin then spans.cancel_inside(task, origin, self.driver.now()) end
  if task.state == "new" then
    if waits_raise(self, task) then self:finish(task, nil, err) end
  elseif task.state == "parked" and limit_wait(self, task) then
    self:wake(task, "cancelled")
  end
end

--- Ends a limit now: see span.lua.
function scheduler_methods:cut(task, limit)
  limit.ends_at = self.driver.now()
  if task.state == "parked" and limit_wait(self, task) then self:wake(task, "cancelled") end
end

--- Calls fn(...) in a span of the calling task: see span.lua. Returns its results, or raises its error. If the caller
-- is not a task, just calls fn.
function scheduler_methods:within(span, fn, ...)
  self.driver.enter()
  local task = current(self)
  if not task then return fn(...) end
  return spans.within(task, span, fn, ...)
end

--- Calls fn(...) in a shield of this many seconds.
function scheduler_methods:shield(seconds, fn, ...)
  check.argument(type(seconds) == "number" and seconds >= 0 and seconds < math.huge, 1, "shield",
    "a number of seconds", seconds)
  check.argument(type(fn) == "function", 2, "shield", "function", fn)
  return self:within({ seconds = seconds, begun = self.driver.now() }, fn, ...)
end

--- Raises if each wait of the caller would raise.
function scheduler_methods:check_cancelled()
  self.driver.enter()
  local task = current(self)
  if task and waits_raise(self, task) then error(core.new_error("cancelled"), 0) end
end

--- True if an error is the cancellation of the task, or of the limit, that the caller runs in: its code is "cancelled",
-- and each wait of the caller raises.
function scheduler_methods:is_own_cancellation(err)
  if errors.code_of(err) ~= "cancelled" then return false end
  self.driver.enter()
  local task = current(self)
  return task ~= nil and waits_raise(self, task) or false
end

--- Reports the failure of a task.
local function report(task)
  log.report(("a task has failed: %s\n%s"):format(errors.full_text_of(task.failure), task.traceback))
end

--- True if a task has ended because it was cancelled.
function scheduler_methods.is_cancellation(_, task)
  return task.cancelled_at and type(task.failure) == "table" and task.failure.code == "cancelled"
end

--- Ends a task, and wakes the tasks that join it. If none does, logs the failure now; the end of the run raises it,
-- unless the task belongs to the host.
function scheduler_methods:finish(task, results, failure, traceback)
  if not results and waits_raise(self, task) then task.cancelled_at = task.cancelled_at or self.driver.now() end
  task.results, task.failure, task.traceback = results, failure, traceback
  task.state = "done"
  self.tasks[task] = nil
  local done, scope = task.done, task.scope
  local is_joined = not results and tasks.is_joined(task)
  local has_woken = done and done:set()
  if scope and scopes.on_end(scope, task) or is_joined and has_woken then task.is_supervised = true end
  if results then return end
  if not task.is_supervised and not task.joiners then self:complain(task) end
  errors.keep_traceback(failure, traceback)
end

--- Logs the failure of a task that was not joined, and records it for `run` to raise, unless the task belongs to the
-- host. A cancelled task has not failed.
function scheduler_methods:complain(task)
  if task.is_reported or self:is_cancellation(task) then return end
  task.is_reported = true
  if not task.is_hosted then self.unjoined = self.unjoined or task end
  report(task)
end

--- Ends a task whose code never runs again, not even to clean up.
function scheduler_methods:abandon(task)
  local err = core.new_error("cancelled")
  if task.state == "done" then return end
  end_wait(self, task)
  task.cancelled_at = task.cancelled_at or self.driver.now()
  self:finish(task, nil, err)
end

--- Ends the wait of a task that the driver cannot suspend.
function scheduler_methods:unpark(task)
  end_wait(self, task)
end

--- Resets a task that had begun, so that the driver runs its function again. Its wait and its spans are forgotten.
-- Returns false for a cancelled task, which has ended.
function scheduler_methods:reset(task)
  end_wait(self, task)
  if task.cancelled_at then self:abandon(task) end
  if task.state == "done" then return false end
  task.state, task.spans, task.waits, task.offer = "new", nil, nil, nil
  return true
end

--- Repairs a task after an error in the driver, which has lost the task's wait or results. A task that was about to
-- wait continues, and waits again. A task that has ended has failed with that error.
function scheduler_methods:recover(task, has_ended, err)
  end_wait(self, task)
  if has_ended then self:finish(task, nil, err, "") else self:make_ready(task) end
end

--- Repairs the timers after an error in the driver.
function scheduler_methods:repair()
  self.sleepers:repair()
end

--- Abandons a task that keeps running after it was cancelled. Returns false if the driver cannot.
function scheduler_methods:leave_behind(task)
  if self.driver.give_up(task) == false then return false end
  self:abandon(task)
  log.report(LEFT_BEHIND .. "\n" .. debug.traceback(task.thread))
  return true
end

--- Returns the remaining tasks, except those of the host; in the first round only those of the program.
local function left_over(self, is_first)
  local left = {}
  for _, task in ipairs(self:all()) do
    if not task.is_hosted and not (is_first and task.is_own) then left[#left + 1] = task end
  end
  return left
end

--- Cancels tasks, and turns the loop until they have ended. Returns true; or false and an error in the driver.
local function end_all(self, list)
  for i = 1, #list do self:cancel(list[i]) end
  local i = 1
  return self.driver.turn_while(function()
    while list[i] and list[i].state == "done" do i = i + 1 end
    return list[i] ~= nil
  end)
end

--- Cancels all tasks, except those of the host, until they have ended: first those of the program, then those of
-- keywatch, which serve them. Tasks that the loop restarts during this start afterwards. Raises the first error in the
-- driver, after all tasks have ended.
local function cancel_all(self)
  local raised -- { the first error }
  self.is_ending = true
  for round = 1, MAX_ROUNDS do
    local left = left_over(self, round == 1)
    if round > 1 then
      if not left[1] then break end
      self.held = self.held or {}
    end
    local ok, err = end_all(self, left)
    if not ok then raised = raised or { err } end
  end
  for _, task in ipairs(left_over(self)) do self:leave_behind(task) end
  local held = self.held or {}
  self.is_ending, self.held = false, nil
  for _, one in ipairs(held) do
    if one[1].state ~= "done" then self:start(one[1], one[2]) end
  end
  if raised then error(raised[1], 0) end
end

--- Runs a function as a task until it has ended, and then cancels all other tasks. Returns the task, and the first of
-- the others that has failed without being joined.
function scheduler_methods:run_to_end(fn, ...)
  local main = self:spawn(fn, ...)
  main.is_supervised = true
  local ok, err = self.driver.turn_while(function() return main.state ~= "done" end)
  local ending = ok and self.at_end and self.at_end()
  if ending then ok, err = self.driver.turn_while(function() return ending.state ~= "done" end) end
  cancel_all(self)
  local failed = self.unjoined
  self.unjoined = nil
  if not ok then error(err, 0) end
  return main, failed
end

--- Runs fn as a task, and the loop until the task has ended. The remaining tasks are then cancelled. Returns the
-- results of fn. Raises the failure of fn, or that of a task that was not joined.
function scheduler_methods:run(fn, ...)
  check.argument(type(fn) == "function", 1, "run", "function", fn)
  if self.running then check.misuse("run: this is a task, and run works only at top level: use keywatch.spawn here") end
  self:waiting_task()
  local main, failed = self.driver.work(self.run_to_end, self, fn, ...)
  if not main.results then error(main.failure, 0) end
  if failed then error(failed.failure, 0) end
  return compat.unpack(main.results, 1, main.results.n)
end

-- }======

return { new = new }
