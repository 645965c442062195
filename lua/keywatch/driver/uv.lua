-- SPDX-License-Identifier: MIT
--- The driver on libuv: tasks are coroutines, and a private loop turns while all of them wait.
--
-- A task is new or ready (it stands in the queue), running, parked (it waits for an event or a time), or done.

local check = require "keywatch.check"
local compat = require "keywatch.compat"
local core = require "keywatch.core"
local timers = require "keywatch.timers"
local uv = require "keywatch.uv"

local driver = {}

local loop                 -- opened when it is first needed
local pid = uv.pid()       -- of the process that all this is in
local queue, first, last = {}, 1, 0
local sleepers = timers.new()
local sources = {}         -- those that are attached
local forgotten = {}       -- what finalizers have left to be closed
local catcher              -- whom signals are given to
local tasks = {}           -- by coroutine: all that are not done
local running              -- the task whose code runs now
local unheard              -- the first failed task that nobody has joined

local CANCELS = 100 -- so often a task may go on waiting after it was cancelled at the end of a run

-- {====== Contexts ======

local function is_top_level()
  local co, is_main = coroutine.running()
  return co == nil or is_main == true
end

--- Whether somebody else turns a loop in this program, at this moment, so that we must not block it.
local function host()
  if rawget(_G, "vim") then return "Neovim" end
  local ngx = rawget(_G, "ngx")
  if type(ngx) == "table" and ngx.get_phase then
    local phase = ngx.get_phase()
    if phase ~= "init" and phase ~= "init_worker" then return "nginx" end
  end
  local luv = package.loaded.luv
  if type(luv) == "table" and luv.loop_mode and luv.loop_mode() then return "luv" end
end

function driver.is_task()
  return running ~= nil and tasks[coroutine.running()] == running
end

local heed_fork -- stands below, as it ends tasks

--- The task that may wait here, or nil at top level; raises where nobody may.
local function waiter(level)
  heed_fork()
  if driver.is_task() then return running end
  if not is_top_level() then
    error("keywatch: this call waits, and the coroutine that makes it is not a task: "
      .. "start it with keywatch.spawn", level + 1)
  end
  local owner = host()
  if owner then
    error(("keywatch: this call waits, and would block the loop of %s: ask with a timeout of 0 instead")
      :format(owner), level + 1)
  end
  return nil
end

-- }======

-- {====== The queue ======

local function make_ready(task)
  last = last + 1
  queue[last] = task
end

--- Wakes a parked task; `why` is what its wait returns. False if something else has woken it already.
local function wake(task, why)
  if task.state ~= "parked" then return false end
  task.state = "ready"
  task.why = why
  if task.timer then sleepers:remove(task.timer) end
  task.timer = nil
  make_ready(task)
  return true
end

local function report(task)
  local ok, text = pcall(tostring, task.failure)
  if not ok then text = "an object that cannot be printed" end
  io.stderr:write(("keywatch: a task has failed: %s\n%s\n"):format(text, task.traceback))
end

local function is_cancellation(task)
  return task.is_cancelled and type(task.failure) == "table" and task.failure.code == "cancelled"
end

--- Whoever waits for the task is told. A failure that nobody is told of is written, and raised when the run ends.
local function finish(task, ok, ...)
  task.state = "done"
  tasks[task.co] = nil
  if ok then
    task.results = { n = select("#", ...), ... }
  else
    task.failure = (...)
    task.traceback = debug.traceback(task.co)
  end
  local heard = task.done:set()
  if ok or heard or is_cancellation(task) then return end
  unheard = unheard or task
  report(task)
end

--- In a child of the process there is no task but the one that has forked: what the others were about to do is done by
-- the parent. They count as cancelled, and run no more, not even to clean up.
function heed_fork()
  if uv.pid() == pid then return end
  pid = uv.pid()
  catcher, unheard = nil, nil
  local all = {}
  for _, task in pairs(tasks) do all[#all + 1] = task end
  for i = 1, #all do
    local task = all[i]
    if task ~= running then
      if task.timer then sleepers:remove(task.timer) end
      task.timer, task.is_cancelled = nil, true
      finish(task, false, core.new_error("cancelled"))
    end
  end
end

local function after_resume(task, ok, ...)
  heed_fork()
  running = nil
  if coroutine.status(task.co) == "dead" then
    finish(task, ok, ...)
  elseif task.state ~= "parked" then
    -- it yielded by itself, and not to us: that is nobody's turn to answer
    task.state = "ready"
    make_ready(task)
  end
end

local function resume(task)
  running = task
  if task.state == "new" then
    local arguments = task.arguments
    task.state, task.arguments = "running", nil
    after_resume(task, coroutine.resume(task.co, compat.unpack(arguments, 1, arguments.n)))
  else
    task.state = "running"
    after_resume(task, coroutine.resume(task.co))
  end
end

--- Runs everybody who was ready when the round began. Returns whether somebody was.
local function run_ready()
  local until_ = last
  while first <= until_ do
    local task = queue[first]
    queue[first] = nil
    first = first + 1
    if task.state ~= "done" then resume(task) end
  end
  if first > last then first, last = 1, 0 end
  return until_ > 0
end

-- }======

-- {====== Turning ======

--- The seconds until a source wants to be polled again, or `wait`; and whether one waits for the bell.
local function poll_sources(wait)
  local is_awaited = false
  for source in pairs(sources) do
    local seconds, awaits_bell = source:poll()
    if seconds and (not wait or seconds < wait) then wait = seconds end
    is_awaited = is_awaited or awaits_bell
  end
  return wait, is_awaited
end

local function wake_sleepers()
  if not sleepers:next() then return end
  local now = uv.now()
  for who in function() return sleepers:due(now) end do
    if who.on_due then who:on_due() else wake(who, "timeout") end
  end
end

--- Closes what finalizers have found.
local function close_forgotten()
  for object in function() return table.remove(forgotten) end do object:close() end
end

local function time_left(deadline)
  return deadline and math.max(0, deadline - uv.now())
end

local function get_loop()
  heed_fork()
  loop = loop or assert(uv.open())
  return loop
end

--- Whether somebody outside of this program could wake somebody.
local function is_awaiting()
  return loop ~= nil and loop:is_awaiting()
end

local function turn_loop(wait, is_bell_awaited)
  get_loop():turn(wait, is_bell_awaited)
  for name in loop.next_signal, loop do catcher:catch(name) end
end

--- One turn: who is ready runs; if nobody is, waits until somebody may be. Sockets are looked at in either case, unless
-- somebody has just become ready because of that.
local function turn(is_done)
  close_forgotten()
  wake_sleepers()
  local has_run = run_ready()
  local wait, is_bell_awaited = poll_sources(time_left(sleepers:next()))
  local is_ready = first <= last
  if is_ready or is_done() then
    if (has_run or not is_ready) and is_awaiting() then turn_loop(0) end
  elseif wait or is_bell_awaited or is_awaiting() then
    turn_loop(wait, is_bell_awaited)
  else
    error("keywatch: everybody waits, and nothing is left that could wake anybody", 0)
  end
end

local function turn_until(is_done)
  while not is_done() do turn(is_done) end
end

-- }======

-- {====== Waiting ======

--- Parks the task until it is woken, or `deadline`; returns why. Raises if it is cancelled.
local function park(task, deadline)
  if task.must_cancel then
    task.must_cancel = false
    error(core.new_error("cancelled"), 0)
  end
  task.state = "parked"
  task.why = nil
  task.timer = deadline and sleepers:add(deadline, task)
  coroutine.yield()
  if task.why == "cancelled" then
    task.must_cancel = false
    error(core.new_error("cancelled"), 0)
  end
  return task.why
end

function driver.now()
  return uv.now()
end

function driver.sleep(seconds)
  check.argument(type(seconds) == "number" and seconds == seconds, 1, "sleep", "number of seconds", seconds)
  local task = waiter(2)
  local deadline = uv.now() + seconds
  if task then
    park(task, deadline)
    return
  end
  local alarm = { on_due = function(self) self.is_due = true end }
  local timer = sleepers:add(deadline, alarm)
  local ok, err = pcall(turn_until, function() return alarm.is_due end)
  sleepers:remove(timer)
  if not ok then error(err, 0) end
end

local event_methods = {}
local event_mt = { __index = event_methods }

--- Something to wait for. Setting it wakes all who wait; if nobody does, the next one does not wait.
function driver.event()
  return setmetatable({
    is_set = false,
    waiters = nil, -- a list of tasks
  }, event_mt)
end

--- Returns whether somebody was woken by it.
function event_methods:set()
  local waiters, is_heard = self.waiters, false
  if not waiters then
    self.is_set = true
    return false
  end
  self.waiters = nil
  for i = 1, #waiters do
    local who = waiters[i]
    if who and who.on_set then
      who:on_set()
      is_heard = true
    elseif who then
      is_heard = wake(who, "set") or is_heard
    end
  end
  return is_heard
end

local function join_waiters(event, who)
  local waiters = event.waiters or {}
  event.waiters = waiters
  who.place = #waiters + 1
  waiters[who.place] = who
end

--- Whoever leaves from the middle leaves a gap, so that leaving costs the same for any number.
local function leave_waiters(event, who)
  local waiters = event.waiters
  if not waiters or waiters[who.place] ~= who then return end
  waiters[who.place] = false
  while #waiters > 0 and not waiters[#waiters] do waiters[#waiters] = nil end
  if #waiters == 0 then event.waiters = nil end
end

local function wait_in_task(event, task, deadline)
  join_waiters(event, task)
  local ok, why = pcall(park, task, deadline)
  if why ~= "set" then leave_waiters(event, task) end
  if not ok then error(why, 0) end
  return why == "set"
end

local function wait_at_top_level(event, deadline)
  local who = {}
  function who:on_set() self.is_set = true end
  function who:on_due() self.is_late = true end
  join_waiters(event, who)
  local timer = deadline and sleepers:add(deadline, who)
  local ok, err = pcall(turn_until, function() return who.is_set or who.is_late end)
  if timer then sleepers:remove(timer) end
  leave_waiters(event, who)
  if not ok then error(err, 0) end
  return who.is_set == true
end

--- Waits until the event is set: true; or until `timeout` seconds are over: false.
function event_methods:wait(timeout)
  if self.is_set then
    self.is_set = false
    return true
  end
  if timeout and timeout <= 0 then return false end
  local task = waiter(2)
  local deadline = timeout and uv.now() + timeout
  if task then return wait_in_task(self, task, deadline) end
  return wait_at_top_level(self, deadline)
end

-- }======

-- {====== Tasks ======

local task_methods = {}
local task_mt = { __name = "keywatch.task", __index = task_methods }

function task_mt:__tostring()
  local state = self.state
  if state == "done" and not self.results then state = "failed" end
  return ("keywatch.task<%s>"):format(state)
end

function driver.spawn(fn, ...)
  check.argument(type(fn) == "function", 1, "spawn", "function", fn)
  heed_fork()
  local task = setmetatable({
    co = coroutine.create(fn),
    arguments = { n = select("#", ...), ... },
    state = "new",
    timer = nil,         -- of the present wait
    place = nil,         -- among those who wait for the same event
    why = nil,           -- what ended it
    must_cancel = false, -- the next wait raises
    is_cancelled = false,
    results = nil,
    failure = nil,
    traceback = nil,
    done = driver.event(),
  }, task_mt)
  tasks[task.co] = task
  make_ready(task)
  return task
end

--- Waits for the end of a task: true and what it returned; false and what it failed with; or nil and an error of
-- code "timeout".
function task_methods:join(timeout)
  check.self(self, "join", task_mt)
  check.timeout(timeout, "join")
  if running == self then error("keywatch: a task cannot wait for itself", 2) end
  while self.state ~= "done" do
    if not self.done:wait(timeout) then return nil, core.new_error("timeout") end
  end
  if unheard == self then unheard = nil end
  if self.results then return true, compat.unpack(self.results, 1, self.results.n) end
  return false, self.failure
end

--- Asks a task to end: what it waits for raises "cancelled". A task that has not begun never does.
function task_methods:cancel()
  check.self(self, "cancel", task_mt)
  if self.state == "done" then return end
  self.is_cancelled = true
  if self.state == "new" then
    finish(self, false, core.new_error("cancelled"))
  elseif self.state == "parked" then
    wake(self, "cancelled")
  else
    self.must_cancel = true
  end
end

local function cancel_all()
  for _ = 1, CANCELS do
    if next(tasks) == nil then return end
    local all = {}
    for _, task in pairs(tasks) do all[#all + 1] = task end
    for i = 1, #all do all[i]:cancel() end
    run_ready()
  end
  for co, task in pairs(tasks) do
    tasks[co] = nil
    task.state = "done"
    io.stderr:write("keywatch: a task that went on after it was cancelled has been left behind\n")
  end
end

--- Ends a run: what is left is cancelled. Returns the first failure that nobody has heard of.
local function end_run()
  cancel_all()
  local task = unheard
  unheard = nil
  return task
end

local function results_of(main, ok, ...)
  local failed = end_run()
  if not ok then error(main.failure, 0) end
  if failed then error(failed.failure, 0) end
  return ...
end

--- Runs fn as a task, and turns the loop until it has ended; the tasks that are left are then cancelled. Raises what
-- fn, or a task that nobody joined, has failed with.
function driver.run(fn, ...)
  check.argument(type(fn) == "function", 1, "run", "function", fn)
  if running then error("keywatch: run is for the top level; a task has keywatch.spawn", 2) end
  waiter(2)
  local main = driver.spawn(fn, ...)
  join_waiters(main.done, { on_set = function() end }) -- somebody hears of its failure
  local ok, err = pcall(turn_until, function() return main.state == "done" end)
  if ok then return results_of(main, main:join()) end
  end_run()
  error(err, 0)
end

-- }======

-- {====== The world ======

function driver.resolve(name)
  return get_loop():resolve(name)
end

function driver.listen(server, address)
  return get_loop():listen(server, address)
end

function driver.dial(client, address)
  return get_loop():dial(client, address)
end

function driver.lookup(name)
  return get_loop():lookup(name)
end

function driver.look()
  if loop then turn_loop(0) end
end

function driver.hosts(object)
  return loop ~= nil and loop:hosts(object)
end

function driver.release(object)
  if loop then loop:release(object) end
end

function driver.forget(object)
  forgotten[#forgotten + 1] = object
end

function driver.hear(thread)
  thread:wakes(get_loop())
end

local signals_methods = {}
local signals_mt = { __index = signals_methods }

function driver.signals(names)
  local ok, text = get_loop():signals(names)
  if not ok then return nil, text end
  catcher = setmetatable({
    names = {}, -- those that came
    arrival = driver.event(),
  }, signals_mt)
  return catcher
end

function signals_methods:catch(name)
  table.insert(self.names, name)
  self.arrival:set()
end

--- The name of the next signal; nil if `timeout` seconds are over.
function signals_methods:wait(timeout)
  while #self.names == 0 do
    if not self.arrival:wait(timeout) then return nil end
  end
  return table.remove(self.names, 1)
end

--- From here on they do what they did before.
function signals_methods:close()
  if catcher ~= self then return end
  get_loop():signals {}
end

-- }======

function driver.bell()
  return get_loop():bell()
end

function driver.attach(source)
  sources[source] = true
end

function driver.detach(source)
  sources[source] = nil
end

return driver
