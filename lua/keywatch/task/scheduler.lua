-- SPDX-License-Identifier: MIT
--- scheduler: who runs, who waits for what, and until when. It knows neither a clock nor a way to suspend anybody: its
-- driver has both.
--
-- What a scheduler asks of its driver:
--   now()             seconds of a clock that never goes back
--   start(task, fn)   fn(task.arguments) is to run soon, in a thread of its own: a coroutine, or a light thread
--   suspend(event, deadline)
--                     called in a task; returns when the task was woken. As soon as the task is suspended the driver
--                     calls scheduler:park(task, event, deadline)
--   wake(task)        a suspended task is to go on soon
--   is_inside(task)   whether the caller runs in the thread of the task, and not in a coroutine that the task has made
--   can_suspend()     whether the caller can be suspended here: not inside of a function that C calls
--   why_not()         why the caller, who is no task, may not wait; nil if the loop can be turned meanwhile
--   turn_while(fn)    turns the loop as long as fn() is true
--   run_once()        runs those tasks that are ready, and waits for nothing
--   work(fn, ...)     calls fn as the driver's own work, during which nobody else at top level may wait
--   give_up(task)     the code of the task never runs again
--   enter()           at every door: notices that the process has forked
-- A driver calls park, make_ready, finish and recover for its tasks, and wake_due when time has passed.
--
-- A wait is recorded after the task was suspended: a task that cannot be suspended leaves no trace of its wait. A
-- finalizer may run inside of any call and any allocation, here too. It may spawn, cancel and set events. So whatever
-- is changed together is changed without a call or an allocation in between, and marked "at once".

local check = require "keywatch.support.check"
local compat = require "keywatch.support.compat"
local core = require "keywatch.core"
local errors = require "keywatch.support.errors"
local event = require "keywatch.task.event"
local task = require "keywatch.task.task"
local timers = require "keywatch.task.timers"

local CANCELS = 100 -- so often a task may go on waiting after it was cancelled at the end of a run

local scheduler_methods = {}
local scheduler_mt = { __index = scheduler_methods }

local function new(driver)
  return setmetatable({
    driver = driver,
    tasks = {},      -- as keys: all that are not done
    count = 0,       -- of tasks ever made
    sleepers = timers.new(),
    running = nil,   -- the task whose code runs now
    top = nil,       -- what the top level waits as, while it does
    unheard = nil,   -- the first failed task that nobody has joined
  }, scheduler_mt)
end

function scheduler_methods:now() return self.driver.now() end
function scheduler_methods:enter() self.driver.enter() end
function scheduler_methods:event() return event.new(self) end

--- The seconds until a deadline, or nil without one.
function scheduler_methods:time_left(deadline)
  return deadline and math.max(0, deadline - self.driver.now())
end

-- {====== Contexts ======

local CANNOT_SUSPEND = "keywatch: this call waits, and the task cannot be suspended here, inside of a function that C "
  .. "calls (as by string.gsub, table.sort, a metamethod or a finalizer): make it outside, or in a task of its own, "
  .. "with keywatch.spawn"

--- The task that the caller is.
local function current(self)
  local running = self.running
  return running and self.driver.is_inside(running) and running or nil
end

--- Whether the caller is a task that can be suspended here.
function scheduler_methods:can_park()
  return current(self) ~= nil and self.driver.can_suspend()
end

--- The task that may wait here, or nil at top level; raises where nobody may wait.
function scheduler_methods:waiter()
  self.driver.enter()
  local one = current(self)
  if one and self.driver.can_suspend() then return one end
  local why = one and CANNOT_SUSPEND or not one and self.driver.why_not()
  if why then check.misuse(why) end
end

--- Raises where nobody may wait for a time, also if that is over by the time of the wait.
function scheduler_methods:check_timeout(timeout)
  if timeout and timeout > 0 then self:waiter() end
end

-- }======

-- {====== Waits ======

--- Ends a wait: nothing of it stays recorded.
local function end_wait(self, who)
  local awaited, timer = who.event, who.timer
  who.event, who.timer = nil, nil
  if timer then self.sleepers:remove(timer) end
  if awaited then event.leave(awaited, who) end
end

--- Wakes who is parked, a task or the top level; `why` is what the wait returns. False if something else was first.
function scheduler_methods:wake(who, why)
  if who.state ~= "parked" then return false end
  who.state, who.why = "ready", why -- at once: nobody else wakes it
  if who.thread then self.driver.wake(who) end
  end_wait(self, who)
  return true
end

--- Parks who was suspended, or the top level; unless it was cancelled, or the event set, meanwhile.
function scheduler_methods:park(who, awaited, deadline)
  local fresh = awaited and {}
  who.timer = deadline and self.sleepers:add(deadline, who)
  -- at once:
  local why = who.must_cancel and "cancelled" or awaited and awaited.is_set and "set" or nil
  if not why then
    if awaited then -- without a call: a finalizer that set the event in between would wake nobody
      local waiters = awaited.waiters or fresh
      who.place = #waiters + 1
      waiters[who.place] = who
      awaited.waiters = waiters
    end
    who.event, who.state = awaited, "parked"
    return
  end
  if why == "cancelled" then who.must_cancel = false else awaited.is_set = false end
  who.why = why
  end_wait(self, who)
  if who.thread then self:make_ready(who) end
end

--- A task that was suspended goes on.
function scheduler_methods:make_ready(one)
  self.driver.wake(one)
  one.state = "ready"
end

--- Wakes those whose time is over.
function scheduler_methods:wake_due()
  local sleepers = self.sleepers
  local now = self.driver.now()
  local who = sleepers:due(now)
  while who do
    self:wake(who, "timeout")
    who = sleepers:due(now)
  end
end

--- Parks the task until the event is set, or `deadline`; returns which. Raises if the task is cancelled.
local function wait_in_task(self, one, awaited, deadline)
  one.why = nil
  repeat self.driver.suspend(awaited, deadline) until one.why
  if one.why == "cancelled" then error(core.new_error("cancelled"), 0) end
  return one.why
end

--- The same at top level, where the loop is turned meanwhile.
local function wait_at_top_level(self, awaited, deadline)
  local who = { state = "running", place = nil, event = nil, timer = nil, why = nil }
  self:park(who, awaited, deadline)
  self.top = who
  local ok, err = self.driver.turn_while(function() return who.state == "parked" end)
  self.top = nil
  if ok then return who.why end
  self:wake(who, "interrupted")
  error(err, 0)
end

--- Waits for an event, or nothing, until `timeout` seconds are over: "set", or "timeout".
function scheduler_methods:wait(awaited, timeout)
  local one = self:waiter()
  local deadline = timeout and self.driver.now() + timeout
  if one then return wait_in_task(self, one, awaited, deadline) end
  return wait_at_top_level(self, awaited, deadline)
end

function scheduler_methods:sleep(seconds)
  check.argument(type(seconds) == "number" and seconds == seconds, 1, "sleep", "a number of seconds", seconds)
  self:wait(nil, seconds)
end

-- }======

-- {====== Tasks ======

function scheduler_methods:spawn(fn, ...)
  check.argument(type(fn) == "function", 1, "spawn", "function", fn)
  self.driver.enter()
  self.count = self.count + 1
  local one = task.new(self, self.count, ...)
  self.driver.start(one, fn)
  self.tasks[one] = true
  return one
end

--- All tasks that are not done, in the order in which they were spawned.
function scheduler_methods:all()
  local all = {}
  for one in pairs(self.tasks) do all[#all + 1] = one end
  table.sort(all, function(a, b) return a.number < b.number end)
  return all
end

local function report(one)
  io.stderr:write(("keywatch: a task has failed: %s\n%s\n"):format(errors.text_of(one.failure), one.traceback))
end

local function is_cancellation(one)
  return one.is_cancelled and type(one.failure) == "table" and one.failure.code == "cancelled"
end

--- Ends a task. Whoever waits for it is told. A failure that nobody is told of is written, and raised at the run's end.
function scheduler_methods:finish(one, results, failure, traceback)
  one.results, one.failure, one.traceback = results, failure, traceback
  one.state = "done"
  self.tasks[one] = nil
  local is_heard = one.done:set() or one.is_heard
  if results then return end
  if not is_heard and not is_cancellation(one) then
    self.unheard = self.unheard or one
    report(one)
  end
  errors.keep_traceback(failure, traceback)
end

--- Ends a task whose code never runs again, not even to clean up.
function scheduler_methods:abandon(one)
  local err = core.new_error("cancelled")
  if one.state == "done" then return end
  end_wait(self, one)
  one.is_cancelled = true
  self:finish(one, nil, err)
end

--- What a task had handed to its driver is lost, by an error in the driver. A task that waits goes on, and waits again;
-- of a task that has ended, all that is left is the error.
function scheduler_methods:recover(one, has_ended, err)
  end_wait(self, one)
  if has_ended then self:finish(one, nil, err, "") else self:make_ready(one) end
end

--- Ends all tasks. What one that ends raises in the driver is raised after all have ended.
local function cancel_all(self)
  local trouble
  for _ = 1, CANCELS do
    if next(self.tasks) == nil then break end
    for _, one in ipairs(self:all()) do one:cancel() end
    local ok, err = self.driver.run_once()
    if not ok then trouble = trouble or { err } end
  end
  for _, one in ipairs(self:all()) do
    self.driver.give_up(one)
    self:abandon(one)
    io.stderr:write("keywatch: a task that went on after it was cancelled has been left behind\n")
  end
  if trouble then error(trouble[1], 0) end
end

--- Runs a function as a task until that has ended, and ends all others. Returns the task, and the first of the others
-- that has failed without anybody hearing of it.
function scheduler_methods:run_to_end(fn, ...)
  local main = self:spawn(fn, ...)
  main.is_heard = true
  local ok, err = self.driver.turn_while(function() return main.state ~= "done" end)
  cancel_all(self)
  local failed = self.unheard
  self.unheard = nil
  if not ok then error(err, 0) end
  return main, failed
end

--- Runs fn as a task, and turns the loop until it has ended; the tasks that are left are then cancelled. Raises what
-- fn, or a task that nobody joined, has failed with.
function scheduler_methods:run(fn, ...)
  check.argument(type(fn) == "function", 1, "run", "function", fn)
  if self.running then check.misuse("run is for the top level: inside of a task, use keywatch.spawn") end
  self:waiter()
  local main, failed = self.driver.work(self.run_to_end, self, fn, ...)
  if not main.results then error(main.failure, 0) end
  if failed then error(failed.failure, 0) end
  return compat.unpack(main.results, 1, main.results.n)
end

-- }======

return { new = new }
