-- SPDX-License-Identifier: MIT
--- coroutines: tasks as coroutines that a loop resumes. The drivers on libuv and in virtual time share this module,
-- and so can any driver that may resume coroutines. It has the queue of ready tasks, the list of pollers, and the
-- turns of the loop.
--
-- new(backend, driver) adds to the table `driver` all functions about tasks and pollers (task/driver.lua lists them).
-- It also supplies the functions that task/scheduler.lua needs from a driver. Loops differ only in the functions of the
-- backend:
--
--   now()            Returns the seconds of a clock that never goes back.
--   enter()          Called before the scheduler does anything for a caller, and after each run of a task. Calls
--                    after_fork of this module if the process is a child since the last call.
--   is_awaiting()    True if something outside of this thread may wake a task: a socket, a signal, another thread. If
--                    false while all tasks wait, and neither a deadline nor a poller is left to wait for, the loop
--                    raises the deadlock.
--   block(wait, is_bell_awaited)
--                    Called at the end of a turn. Handles sockets and signals, and waits for one:
--                    `wait` seconds at most, 0 to poll only, nil without limit. With is_bell_awaited the bell ends the
--                    wait, too. Resumes no task.
--   flush()          Called at the end of a turn in place of block(0), if the previous turn has handled sockets. Writes
--                    pending bytes, and polls no socket. Without this function block(0) is called.
--   timeout()        Returns the seconds after which `block` has work without an event; or nil.
--   woken()          Called when a task has become ready, or an object must be closed, while the loop does not turn.
--                    May be called by a finalizer, at any moment.
--   worked()         Called when the driver has finished its work.
--   why_blocked()    Called before a wait at top level. Returns why this thread must not be blocked, as a text with a
--                    %s for the name of the call, that ends with what to do instead; or nil if it may be.
--
-- One turn: close the objects that finalizers have left, wake the waiters whose deadlines have passed, run the tasks
-- that were ready at the beginning of the turn, poll all pollers, and block if no task is ready. If so many tasks are
-- ready that they take longer than TURN, the others run in the next turns, before those that become ready later:
-- sockets do not wait for all of them.
--
-- A host is another event loop that turns this one. It calls `step`, which never blocks, when the descriptor is
-- readable, and after at most `timeout` seconds.

local channels = require "keywatch.task.channel"
local check = require "keywatch.support.check"
local compat = require "keywatch.support.compat"
local core = require "keywatch.core"
local exits = require "keywatch.task.exits"
local schedulers = require "keywatch.task.scheduler"
local scopes = require "keywatch.task.scope"
local selection = require "keywatch.task.selection"
local tasks = require "keywatch.task.task"

local DEADLOCK = "keywatch: deadlock: every task is waiting, and no timer, lease, socket or server is left that could "
  .. "wake one"
local STEP = 0.001 -- seconds after which a step ends: its host has other work
local TURN = 0.002 -- seconds after which the tasks of a turn end
local TASKS_AT_ONCE = 4 -- tasks that run between two checks of the clock
local NO_RESULTS = { n = 0 } -- the results of every task without results

local methods = {}
local mt = { __index = methods }

-- {====== The queue ======

--- True if a task has failed because of Ctrl-C. If all coroutines share one debug hook, the interpreter may raise the
-- error in a task, and not in the main program.
local function is_interrupt(err)
  if not compat.has_one_hook or type(err) ~= "string" then return false end
  return err == "interrupted!" or err:find(":%d+: interrupted!$") ~= nil
end

--- Handles a yield or the end of a task. Ctrl-C that has ended a task is raised in the driver, too, so that it
-- ends the wait at top level.
local function after_resume(self, task, ok, ...)
  local scheduler = self.scheduler
  self.backend.enter()
  if task.arguments then task.arguments = nil end
  if compat.status(task.thread) ~= "dead" then
    if task.why == false then
      scheduler:park(task, ...)
    else -- the program called coroutine.yield: nothing would wake the task
      scheduler:make_ready(task)
    end
  elseif ok then
    local n = select("#", ...)
    scheduler:finish(task, n == 0 and NO_RESULTS or { n = n, ... })
  else
    local is_interrupted = is_interrupt((...))
    task.is_supervised = task.is_supervised or is_interrupted
    scheduler:finish(task, nil, (...), debug.traceback(task.thread))
    if is_interrupted then error((...), 0) end
  end
  scheduler.running = nil
end

--- Resumes a task, unless it was cancelled before its first turn.
local function resume(self, task)
  if task.state == "done" then
    self.taken = nil
    return
  end
  self.scheduler.running = task
  task.state = "running"
  self.taken = nil
  local arguments = task.arguments
  if arguments then
    after_resume(self, task, compat.resume(task.thread, compat.unpack(arguments, 1, arguments.n)))
  else
    after_resume(self, task, compat.resume(task.thread))
  end
end

--- Runs the tasks that are in the queue when it is called; with a deadline, those that can be begun before it. Returns
-- true if there was one.
function methods:run_ready(deadline)
  local until_ = self.last
  while self.first <= until_ do
    local at = self.first
    if deadline and at % TASKS_AT_ONCE == 0 and self.backend.now() >= deadline then return true end
    local task = self.queue[at]
    self.taken = task
    self.first = at + 1
    self.queue[at] = nil
    resume(self, task)
  end
  if self.first > self.last then self.first, self.last = 1, 0 end
  return until_ > 0
end

-- }======

-- {====== Pollers ======

--- Removes the gaps from the list of pollers. Atomic: without a call or an allocation, as a finalizer may detach a
-- poller.
local function squeeze(self)
  local pollers, n = self.pollers, 0
  self.has_gaps = false
  for i = 1, #pollers do
    local poller = pollers[i]
    pollers[i] = nil
    if poller then
      n = n + 1
      pollers[n], self.places[poller] = poller, n
    end
  end
end

--- Polls a poller for a host, for which the bell is a descriptor like any other. Returns the seconds until the poller
-- must be polled again, or nil. With `is_quick` a steady poller is not polled before
-- that time.
local function poll_for_host(poller, now, is_quick)
  local poll_at = poller.poll_at
  if is_quick and poll_at and now < poll_at then return poll_at < math.huge and poll_at - now or nil end
  local seconds = poller:poll()
  if poller.is_steady then poller.poll_at = seconds and now + seconds or math.huge end
  return seconds
end

--- Polls all pollers; for a host, if `now` is given. Returns the seconds until the first of them must be polled again,
-- or `wait` if that is less; and true if one must be polled when the bell has rung. A poller may attach and detach any
-- poller during its poll.
local function poll_all(self, wait, now, is_quick)
  local is_awaited, i = false, 1
  self.is_stale = false
  if self.has_gaps then squeeze(self) end
  while i <= #self.pollers do
    local poller = self.pollers[i]
    if poller then
      local seconds, awaits_bell
      if now then
        seconds = poll_for_host(poller, now, is_quick)
      else
        poller.poll_at = nil
        seconds, awaits_bell = poller:poll()
      end
      if seconds and (not wait or seconds < wait) then wait = seconds end
      is_awaited = is_awaited or awaits_bell
    end
    i = i + 1
  end
  return wait, is_awaited
end

--- Adds a poller. See task/driver.lua.
function methods:attach(poller)
  if self.places[poller] then return end
  local place = #self.pollers + 1
  poller.poll_at = nil
  self.pollers[place], self.places[poller] = poller, place
  if poller.rested then self.rester = poller end
end

--- Removes a poller, and leaves a gap. See task/driver.lua.
function methods:detach(poller)
  local pollers, place = self.pollers, self.places[poller]
  if not place then return end
  if self.rester == poller then self.rester = nil end
  pollers[place], self.places[poller], self.has_gaps = false, nil, true
  while pollers[#pollers] == false do pollers[#pollers] = nil end
end

-- }======

--- Called after sockets were handled outside of the turns. All pollers are polled again before the loop blocks: one may
-- have been polled in this turn already, and a finalizer has handled sockets since then.
function methods:looked()
  self.is_stale = true
end

--- Called by finalizers: the next turn closes the object.
function methods:forget(object)
  self.forgotten[#self.forgotten + 1] = object
  if not self.is_turning then self.backend.woken() end
end

--- True if a coroutine is that of a task whose code never runs again, though it has not ended.
function methods:is_gone(co)
  self.backend.enter()
  return self.gone[co] == true
end

--- The process is a child: abandons all tasks except the running one, notifies the pollers, and lets the top level
-- check again what it waits for.
function methods:after_fork()
  local scheduler = self.scheduler
  for _, task in ipairs(scheduler:all()) do
    if task ~= scheduler.running then
      self.gone[task.thread] = true
      scheduler:abandon(task)
    else
      task.joiners = nil -- the joiners were tasks that are now abandoned
    end
  end
  for i = #self.pollers, 1, -1 do
    local poller = self.pollers[i]
    if poller and poller.after_fork then poller:after_fork() end
  end
  scheduler.unjoined = nil
  local top = scheduler.top
  if top and top.event then scheduler:wake(top, "set") end
end

-- {====== Turning ======

--- Closes the objects that finalizers have left.
local function close_forgotten(self)
  local forgotten = self.forgotten
  while forgotten[1] do table.remove(forgotten):close() end
end

--- Closes the objects that finalizers have left, and wakes the waiters whose deadlines have passed.
local function begin_turn(self)
  if self.forgotten[1] then close_forgotten(self) end
  if self.scheduler.sleepers.heap[1] then self.scheduler:wake_due() end
end

--- Returns the seconds until the next deadline of a waiter, or nil.
local function next_deadline(self)
  local scheduler = self.scheduler
  return scheduler.sleepers.heap[1] and scheduler:time_left(scheduler.sleepers:next())
end

--- Returns when the remaining tasks must wait for the next turn; nil if few tasks are ready.
local function turn_deadline(self)
  if self.last - self.first < TASKS_AT_ONCE then return nil end
  return self.backend.now() + TURN
end

--- One turn of the loop. It blocks only if no task is ready, finalizers have left nothing, and the caller of the loop
-- still waits. Sockets are handled in every turn, unless they have just made a task ready. Raises if nothing can ever
-- wake a task.
local function turn(self, is_waiting)
  local backend = self.backend
  begin_turn(self)
  local has_run = self:run_ready(turn_deadline(self))
  local wait, is_bell_awaited = poll_all(self, next_deadline(self))
  local is_ready = self.first <= self.last or self.forgotten[1] ~= nil or self.is_stale
  if is_ready or not is_waiting() then
    if (has_run or not is_ready) and backend.is_awaiting() then
      local is_fresh = self.has_blocked and not has_run and backend.flush
      if is_fresh then backend.flush() else backend.block(0) end
    end
  elseif wait or is_bell_awaited or backend.is_awaiting() then
    backend.block(wait, is_bell_awaited)
    self.has_blocked = true
  else
    check.misuse(DEADLOCK)
  end
end

--- Turns the loop while is_waiting() is true.
local function turn_all(self, is_waiting)
  self.has_blocked = false
  while is_waiting() do turn(self, is_waiting) end
end

--- Returns the seconds for which the loop may block, or nil without limit. Polls the pollers, with `is_quick` those
-- that the program may have changed since the last turn, for example by a write to a store.
local function time_to_rest(self, is_quick)
  if self.forgotten[1] or self.first <= self.last then return 0 end
  local wait = poll_all(self, next_deadline(self), self.backend.now(), is_quick and not self.is_stale)
  if self.first <= self.last or self.is_stale then return 0 end
  local seconds = self.backend.timeout()
  return seconds and (not wait or seconds < wait) and seconds or wait
end

--- Turns the loop, without blocking, while there is work, or until the time of a step has passed. Polls the sockets
-- once, and again if there is work without a task. Returns the seconds for which the loop may block.
local function do_step(self)
  local backend = self.backend
  local now, flush = backend.now, backend.flush
  local deadline = now() + STEP
  local has_looked = false
  local seconds
  repeat
    begin_turn(self)
    local has_run = self:run_ready(deadline)
    if has_looked and has_run and flush then flush() else backend.block(0) end
    has_looked = true
    seconds = time_to_rest(self)
  until seconds ~= 0 or now() >= deadline
  return seconds
end

local recover, drive -- below

--- Does the due work of a driver whose tasks are not in the queue: closes the objects that finalizers have left, wakes
-- the waiters whose deadlines have passed, and polls all pollers. Returns the seconds until more is due, or nil; and
-- true if a poller must be polled when the bell has rung.
function methods:run_due()
  local ok, wait, is_bell_awaited = drive(self, function()
    begin_turn(self)
    local seconds, is_awaited = poll_all(self, next_deadline(self))
    if self.forgotten[1] or self.is_stale then seconds = 0 end
    return seconds, is_awaited
  end)
  if not ok then error(wait, 0) end
  return wait, is_bell_awaited
end

--- Empties the queue: its tasks are run in another way.
function methods:clear()
  self.queue, self.first, self.last = {}, 1, 0
end

--- Repairs the running task after a finalizer, or an interrupt, has raised in the driver: the task's yield is lost. A
-- task that was about to run is put into the queue again.
function recover(self, err)
  self.scheduler:repair()
  local task, taken = self.scheduler.running, self.taken
  self.scheduler.running, self.taken = nil, nil
  if taken and self.queue[self.first] ~= taken then
    self.last = self.last + 1
    self.queue[self.last] = taken
  end
  if not task or task.state ~= "running" then return end
  self.scheduler:recover(task, compat.status(task.thread) == "dead", err)
end

--- Returns the error of Ctrl-C, which the interpreter raises at a line of keywatch, with the position of the line
-- that called keywatch. Returns other errors as they are.
local function at_caller(err)
  local text = type(err) == "string" and err:match("/keywatch/[%a_/]+%.lua:%d+: (interrupted!)$")
  local where = text and check.where()
  return where and ("%s: %s"):format(where, text) or err
end

--- Does work of the driver. Returns true and its results, or false and its error.
function drive(self, work, ...)
  local was_turning = self.is_turning
  self.is_turning = true
  local ok, result, more = pcall(work, ...)
  if not ok then
    pcall(recover, self, result)
    result = at_caller(result)
  end
  self.is_turning = was_turning
  if not was_turning then
    if self.rester then self.rester:rested() end
    self.backend.worked()
  end
  return ok, result, more
end

-- }======

-- {====== Hosts ======

--- Raises if a task, or a finalizer while the loop turns, calls a function that is for hosts.
local function check_host(self, name)
  self.backend.enter()
  if not self.is_turning then return end
  check.misuse("%s: the loop turns already: only another event loop, outside of tasks, may call this", name)
end

--- Does work for a host. Returns its result, or raises its error.
local function drive_for_host(self, work, is_quick)
  self.is_hosted = true
  local ok, result = drive(self, work, self, is_quick)
  self.is_hosted = false
  self.scheduler.unjoined = nil -- the failure was logged, and there is no run that could raise it
  if not ok then error(result, 0) end
  return result
end

--- Runs ready tasks, for about STEP seconds at most. Never blocks. Returns the seconds for which the host may block.
function methods:step()
  check_host(self, "step")
  return drive_for_host(self, do_step)
end

--- Returns the seconds after which step must be called without an event; or nil without limit.
function methods:timeout()
  check_host(self, "timeout")
  return drive_for_host(self, time_to_rest, true)
end

--- True if a task that is spawned now belongs to the host, if there is one: `run` does not cancel it.
function methods:is_hosting()
  return not self.is_turning or self.is_hosted
end

-- }======

--- Returns the functions that the scheduler needs. task/scheduler.lua describes them.
local function driver_of(self)
  local backend = self.backend
  local driver = {}
  driver.now, driver.enter = backend.now, backend.enter
  driver.can_suspend = core.is_yieldable
  driver.thread = coroutine.running
  driver.suspend = compat.yield -- resume then returns the event and the deadline

  --- Puts a task into the queue.
  local function wake(task)
    local last = self.last + 1
    self.queue[last] = task
    self.last = last
    if not self.is_turning then backend.woken() end
  end

  driver.wake = wake

  function driver.start(task, fn)
    task.thread = compat.create(fn)
    wake(task)
  end

  function driver.turn_while(is_waiting) return drive(self, turn_all, self, is_waiting) end
  function driver.give_up(task) self.gone[task.thread] = true end

  function driver.work(...)
    local ok, result, more = drive(self, ...)
    if not ok then error(result, 0) end
    return result, more
  end

  function driver.why_cannot_wait()
    local why = backend.why_blocked()
    if why then return why end
    if not compat.is_main() then
      return "keywatch: %s waits, but the coroutine that makes it is not a task: start one with keywatch.spawn"
    end
    if self.is_turning then
      return "keywatch: %s waits, but the loop turns already, and a finalizer or a callback of the program makes the "
        .. "call: make it in a task, with keywatch.spawn"
    end
  end
  return driver
end

--- Adds the functions about tasks and pollers to a driver.
local function equip(self, driver)
  local scheduler = self.scheduler
  driver.now = self.backend.now
  function driver.run(...) return scheduler:run(...) end
  function driver.on_exit(fn)
    check.argument(type(fn) == "function", 1, "on_exit", "function", fn)
    exits.add(driver, fn)
  end
  function scheduler.at_end() return exits.has_any(driver) and scheduler:spawn(exits.call_functions, driver) end
  function driver.spawn(...) return scheduler:spawn(...) end
  function driver.spawn_own(...) return scheduler:spawn_own(...) end
  function driver.sleep(...) return scheduler:sleep(...) end
  function driver.event() return scheduler:event() end
  function driver.channel(capacity) return channels.new(scheduler, capacity) end
  function driver.select(objects) return selection.select_first(scheduler, objects) end
  function driver.join(list) return tasks.join_all(scheduler, list) end
  function driver.scope(...) return scopes.run(scheduler, ...) end
  function driver.shield(...) return scheduler:shield(...) end
  function driver.limit(...) return scheduler:within(...) end
  function driver.cut(...) scheduler:cut(...) end
  function driver.check_cancelled() scheduler:check_cancelled() end
  function driver.is_cancellation(err) return scheduler:is_own_cancellation(err) end
  function driver.can_park() return scheduler:can_park() end
  function driver.check_wait() scheduler:waiting_task() end
  function driver.check_send()
    scheduler:waiting_task()
    scheduler:check_cancelled()
  end
  function driver.current() return scheduler:current() end
  function driver.expire(task) scheduler:expire(task) end
  driver.enter = self.backend.enter
  function driver.is_gone(co) return self:is_gone(co) end
  function driver.attach(poller) self:attach(poller) end
  function driver.detach(poller) self:detach(poller) end
  function driver.forget(object) self:forget(object) end
  function driver.step() return self:step() end
  function driver.timeout() return self:timeout() end
  function driver.inside() return self, scheduler end -- for specs: spec/support/scheduler.lua
end

--- Returns the tasks of a driver, and adds their functions to the driver.
local function new(backend, driver)
  local self = setmetatable({
    backend = backend,
    queue = {},         -- tasks that are new or ready, at the indices from first to last
    first = 1,
    last = 0,
    taken = nil,        -- the task that was taken from the queue, and does not run yet
    pollers = {},       -- attached pollers in order; false in the place of one that was detached
    places = {},        -- by poller: its index in that list
    has_gaps = false,   -- the list may have a false
    rester = nil,       -- the attached poller with the method `rested`
    is_stale = false,   -- sockets were handled since the pollers were polled last
    forgotten = {},     -- objects that finalizers have left to be closed
    gone = setmetatable({}, { __mode = "k" }), -- as keys: suspended coroutines that are never resumed again
    has_blocked = false, -- a turn for the running wait at top level has handled sockets
    is_hosted = false,  -- a host is stepping the driver
    is_turning = false, -- the driver is at work: code at top level can only be that of a finalizer
  }, mt)
  self.scheduler = schedulers.new(driver_of(self))
  equip(self, driver)
  return self
end

return { new = new }
