-- SPDX-License-Identifier: MIT
--- coroutines: tasks as coroutines that a loop resumes. It is what the drivers of libuv and of virtual time have in
-- common: the queue of tasks that are ready, the sources that are polled, and turning.
--
-- What it asks of the driver beneath:
--   now()                 seconds of a clock that never goes back
--   block(wait, is_bell_awaited)
--                         waits until something may have come, `wait` seconds at most; nil: as long as it takes
--   is_awaiting()         whether something may come from outside of this program
--   enter()               at every door
--   host()                who else turns a loop in this program, at this moment; or nil
--
-- A source is a table with the method poll(), which is called whenever there is nothing to run: it sets events, and
-- returns the seconds until it wants to be called again, or nil; and whether it is to be called when the bell has rung.

local check = require "keywatch.support.check"
local compat = require "keywatch.support.compat"
local schedulers = require "keywatch.task.scheduler"

local DEADLOCK = "keywatch: deadlock: every task is waiting, and no timer, lease, socket or server is left that could "
  .. "wake one"
local WAIT = {} -- what a task yields, with an event and a deadline, to be parked

local methods = {}
local mt = { __index = methods }

-- {====== The queue ======

local function after_resume(self, task, ok, ...)
  local scheduler = self.scheduler
  self.beneath.enter()
  task.arguments = nil
  if coroutine.status(task.thread) ~= "dead" then
    local signal, event, deadline = ...
    if signal == WAIT then
      scheduler:park(task, event, deadline)
    else -- the task yielded by itself: nobody answers that
      scheduler:make_ready(task)
    end
  elseif ok then
    scheduler:finish(task, { n = select("#", ...), ... })
  else
    scheduler:finish(task, nil, (...), debug.traceback(task.thread))
  end
  scheduler.running = nil
end

--- A task that is cancelled just before its turn never begins.
local function resume(self, task)
  if task.state == "done" then return end
  self.scheduler.running = task
  task.state = "running"
  local arguments = task.arguments
  if arguments then
    after_resume(self, task, coroutine.resume(task.thread, compat.unpack(arguments, 1, arguments.n)))
  else
    after_resume(self, task, coroutine.resume(task.thread))
  end
end

--- Runs those who were ready when the round began. Returns whether somebody was.
function methods:run_ready()
  local until_ = self.last
  while self.first <= until_ do
    local at = self.first
    local task = self.queue[at]
    self.queue[at] = nil
    self.first = at + 1
    resume(self, task)
  end
  if self.first > self.last then self.first, self.last = 1, 0 end
  return until_ > 0
end

-- }======

-- {====== Sources ======

--- Closes the gaps in the list of sources. At once.
local function squeeze(self)
  local sources, n = self.sources, 0
  self.has_gaps = false
  for i = 1, #sources do
    local source = sources[i]
    sources[i] = nil
    if source then
      n = n + 1
      sources[n], self.places[source] = source, n
    end
  end
end

--- The seconds until a source wants to be polled again, or `wait`; and whether one waits for the bell. A source that is
-- polled may attach others, and detach any.
local function poll_sources(self, wait)
  local is_awaited, i = false, 1
  if self.has_gaps then squeeze(self) end
  while i <= #self.sources do
    local source = self.sources[i]
    if source then
      local seconds, awaits_bell = source:poll()
      if seconds and (not wait or seconds < wait) then wait = seconds end
      is_awaited = is_awaited or awaits_bell
    end
    i = i + 1
  end
  return wait, is_awaited
end

function methods:attach(source)
  if self.places[source] then return end
  local place = #self.sources + 1
  self.sources[place], self.places[source] = source, place
end

function methods:detach(source)
  local sources, place = self.sources, self.places[source]
  if not place then return end
  sources[place], self.places[source], self.has_gaps = false, nil, true
  while sources[#sources] == false do sources[#sources] = nil end
end

-- }======

--- Of finalizers: the next turn closes the object.
function methods:forget(object)
  self.forgotten[#self.forgotten + 1] = object
end

--- Whether a coroutine is that of a task whose code never runs again, though it has not ended.
function methods:is_gone(co)
  self.beneath.enter()
  return self.gone[co] == true
end

--- The process is a child. All tasks but the one that runs are the parent's.
function methods:after_fork()
  local scheduler = self.scheduler
  for _, task in ipairs(scheduler:all()) do
    if task ~= scheduler.running then
      self.gone[task.thread] = true
      scheduler:abandon(task)
    end
  end
  for i = #self.sources, 1, -1 do
    local source = self.sources[i]
    if source and source.after_fork then source:after_fork() end
  end
  scheduler.unheard = nil
  local top = scheduler.top
  if top and top.event then scheduler:wake(top, "set") end
end

-- {====== Turning ======

local function close_forgotten(self)
  local forgotten = self.forgotten
  while forgotten[1] do table.remove(forgotten):close() end
end


--- One turn: who is ready runs; if nobody is, waits until somebody may be. Sockets are looked at in either case, unless
-- somebody has just become ready because of that.
local function turn(self, is_waiting)
  local beneath = self.beneath
  local scheduler = self.scheduler
  local sleepers = scheduler.sleepers
  if self.forgotten[1] then close_forgotten(self) end
  if sleepers.heap[1] then scheduler:wake_due() end
  local has_run = self:run_ready()
  local wait, is_bell_awaited = poll_sources(self, sleepers.heap[1] and scheduler:time_left(sleepers:next()))
  local is_ready = self.first <= self.last
  if is_ready or not is_waiting() then
    if (has_run or not is_ready) and beneath.is_awaiting() then beneath.block(0) end
  elseif wait or is_bell_awaited or beneath.is_awaiting() then
    beneath.block(wait, is_bell_awaited)
  else
    check.misuse(DEADLOCK)
  end
end

local function turn_all(self, is_waiting)
  while is_waiting() do turn(self, is_waiting) end
end

--- After an error in the driver, of a finalizer or an interrupt: what the task had yielded is lost.
local function recover(self, err)
  local task = self.scheduler.running
  self.scheduler.running = nil
  if not task or task.state ~= "running" then return end
  self.scheduler:recover(task, coroutine.status(task.thread) == "dead", err)
end

--- Does some of the driver's work: true, and what that returns; or false and what it has raised.
local function drive(self, work, ...)
  local was_turning = self.is_turning
  self.is_turning = true
  local ok, result, more = pcall(work, ...)
  if not ok then pcall(recover, self, result) end
  self.is_turning = was_turning
  return ok, result, more
end

-- }======

--- What the scheduler asks for.
local function driver_of(self)
  local beneath = self.beneath
  local driver = {}
  driver.now, driver.enter = beneath.now, beneath.enter
  driver.can_suspend = compat.is_yieldable

  local function wake(task)
    local last = self.last + 1
    self.queue[last] = task
    self.last = last
  end

  driver.wake = wake

  function driver.start(task, fn)
    task.thread = coroutine.create(fn)
    wake(task)
  end

  function driver.suspend(event, deadline) coroutine.yield(WAIT, event, deadline) end
  function driver.is_inside(task) return coroutine.running() == task.thread end
  function driver.turn_while(is_waiting) return drive(self, turn_all, self, is_waiting) end
  function driver.run_once() return drive(self, self.run_ready, self) end
  function driver.give_up(task) self.gone[task.thread] = true end

  function driver.work(...)
    local ok, result, more = drive(self, ...)
    if not ok then error(result, 0) end
    return result, more
  end

  function driver.why_not()
    if not compat.is_main() then
      return "keywatch: this call waits, and the coroutine that makes it is not a task: start it with keywatch.spawn"
    end
    if self.is_turning then
      return "keywatch: this call waits, and a finalizer that runs while the loop turns makes it: "
        .. "make it in a task, which the finalizer may start with keywatch.spawn"
    end
    local owner = beneath.host()
    return owner and ("keywatch: this call waits, and would block the loop of %s: ask with a timeout of 0 instead")
      :format(owner)
  end
  return driver
end

--- Gives a driver the functions that are about tasks.
local function equip(self, driver)
  local scheduler = self.scheduler
  driver.now = self.beneath.now
  function driver.run(...) return scheduler:run(...) end
  function driver.spawn(...) return scheduler:spawn(...) end
  function driver.sleep(...) return scheduler:sleep(...) end
  function driver.event() return scheduler:event() end
  function driver.can_park() return scheduler:can_park() end
  function driver.check_wait() scheduler:waiter() end
  function driver.is_gone(co) return self:is_gone(co) end
  function driver.attach(source) self:attach(source) end
  function driver.detach(source) self:detach(source) end
  function driver.forget(object) self:forget(object) end
  function driver.inside() return self, scheduler end -- for specs: spec/support/scheduler.lua
end

--- The tasks of a driver, which gets its functions about tasks.
local function new(beneath, driver)
  local self = setmetatable({
    beneath = beneath,
    queue = {},         -- tasks that are new or ready
    first = 1,
    last = 0,
    sources = {},       -- those that are attached, in order; false where one was detached
    places = {},        -- of the sources in that list
    has_gaps = false,   -- there may be such places
    forgotten = {},     -- what finalizers have left to be closed
    gone = setmetatable({}, { __mode = "k" }), -- coroutines that are suspended, and never resumed again
    is_turning = false, -- the driver is at work: at top level there is nobody but finalizers
  }, mt)
  self.scheduler = schedulers.new(driver_of(self))
  equip(self, driver)
  return self
end

return { new = new }
