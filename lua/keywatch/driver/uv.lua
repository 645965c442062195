-- SPDX-License-Identifier: MIT
--- The driver on libuv: tasks are coroutines, and a private loop turns while all of them wait.
--
-- A task is new or ready (it stands in the queue), running, parked (it waits for an event or a time), or done. A wait
-- is recorded by the driver after the task has yielded: a task that cannot be suspended leaves no trace of its wait.
--
-- A finalizer may run inside of any call and any allocation, here too. It may spawn, cancel and set events. So whatever
-- is changed together is changed without a call or an allocation in between, and marked "at once".

local check = require "keywatch.support.check"
local compat = require "keywatch.support.compat"
local core = require "keywatch.core"
local timers = require "keywatch.task.timers"
local uv = require "keywatch.uv"

local driver = {}

local loop                 -- opened when it is first needed
local pid = uv.pid()       -- of the process that all this is in
local queue, first, last = {}, 1, 0
local sleepers = timers.new()
local sources = {}         -- those that are attached, in order; false where one was detached
local places = {}          -- of the sources in that list
local forgotten = {}       -- what finalizers have left to be closed
local catcher              -- whom signals are given to
local tasks = {}           -- by coroutine: all that are not done
local gone = setmetatable({}, { __mode = "k" }) -- coroutines that are suspended, and never resumed again
local running              -- the task whose code runs now
local top                  -- what the top level waits as, while it does
local is_turning = false   -- the driver is at work: at top level there is nobody but finalizers
local unheard              -- the first failed task that nobody has joined

local CANCELS = 100 -- so often a task may go on waiting after it was cancelled at the end of a run
local WAIT = {}     -- what a task yields, with an event and a deadline, to be parked

-- {====== Contexts ======

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

local function is_task()
  return running ~= nil and tasks[coroutine.running()] == running
end

function driver.can_park()
  return is_task() and compat.is_yieldable()
end

local heed_fork -- stands below, as it ends tasks

--- Why the caller, who is no task, may not wait.
local function why_not()
  if not compat.is_main() then
    return "keywatch: this call waits, and the coroutine that makes it is not a task: start it with keywatch.spawn"
  end
  if is_turning then
    return "keywatch: this call waits, and a finalizer that runs while the loop turns makes it: "
      .. "make it in a task, which the finalizer may start with keywatch.spawn"
  end
  local owner = host()
  return owner and ("keywatch: this call waits, and would block the loop of %s: ask with a timeout of 0 instead")
    :format(owner)
end

--- The task that may wait here, or nil at top level; raises where nobody may.
local function waiter()
  heed_fork()
  local why
  if is_task() then
    if compat.is_yieldable() then return running end
    why = "keywatch: this call waits, and the task cannot be suspended here, inside of a function that C calls "
      .. "(as by string.gsub, table.sort, a metamethod or a finalizer): make it outside, or in a task of its own, with "
      .. "keywatch.spawn"
  else
    why = why_not()
  end
  if why then check.misuse(why) end
  return nil
end

function driver.check_wait()
  waiter()
end

--- Raises where nobody may wait for a time, also if that is over by the time of the wait.
local function check_timeout(timeout)
  if timeout and timeout > 0 then waiter() end
end

-- }======

-- {====== Events ======

local event_methods = {}
local event_mt = { __index = event_methods }

--- Something to wait for. Setting it wakes all who wait; if nobody does, the next one does not wait.
function driver.event()
  return setmetatable({
    is_set = false,
    waiters = nil, -- a list of those who wait, each of whom knows its place; false where one has left
    gaps = 0,      -- places in that list that are left
  }, event_mt)
end

--- Closes the gaps in the list of those who wait. At once.
local function squeeze(event)
  local waiters, n = event.waiters, 0
  if not waiters then return end
  for i = 1, #waiters do
    local who = waiters[i]
    waiters[i] = nil
    if who then
      n = n + 1
      waiters[n], who.place = who, n
    end
  end
  event.gaps = 0
  if n == 0 then event.waiters = nil end
end

--- Whoever leaves from the middle leaves a gap, so that leaving costs the same for any number.
local function leave(event, who)
  local waiters = event.waiters
  if not waiters or waiters[who.place] ~= who then return end
  waiters[who.place] = false
  event.gaps = event.gaps + 1
  if event.gaps * 2 >= #waiters then squeeze(event) end
end

-- }======

-- {====== The queue ======

local function make_ready(task)
  queue[last + 1] = task
  last = last + 1
  task.state = "ready"
end

--- Ends a wait: nothing of it stays recorded.
local function end_wait(who)
  local event, timer = who.event, who.timer
  who.event, who.timer = nil, nil
  if timer then sleepers:remove(timer) end
  if event then leave(event, who) end
end

--- Wakes who is parked, a task or the top level; `why` is what the wait returns. False if something else was first.
local function wake(who, why)
  if who.state ~= "parked" then return false end
  if who.co then
    queue[last + 1] = who
    last = last + 1
  end
  who.state, who.why = "ready", why
  end_wait(who)
  return true
end

--- Returns whether somebody was woken by it.
function event_methods:set()
  local waiters, is_heard = self.waiters, false
  if not waiters then
    self.is_set = true
    return false
  end
  self.waiters, self.gaps = nil, 0
  for i = 1, #waiters do
    local who = waiters[i]
    if who and who.event == self then is_heard = wake(who, "set") or is_heard end
  end
  return is_heard
end

--- Parks who has yielded, or the top level; unless it was cancelled, or the event set, meanwhile.
local function begin_wait(who, event, deadline)
  local fresh = event and {}
  who.timer = deadline and sleepers:add(deadline, who)
  -- at once:
  local why = who.must_cancel and "cancelled" or event and event.is_set and "set" or nil
  if not why then
    if event then
      local waiters = event.waiters or fresh
      who.place = #waiters + 1
      waiters[who.place] = who
      event.waiters = waiters
    end
    who.event, who.state = event, "parked"
    return
  end
  if why == "cancelled" then who.must_cancel = false else event.is_set = false end
  who.why = why
  end_wait(who)
  if who.co then make_ready(who) end
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
local function finish(task, results, failure, traceback)
  task.results, task.failure, task.traceback = results, failure, traceback
  task.state = "done"
  tasks[task.co] = nil
  local is_heard = task.done:set() or task.is_heard
  if results or is_heard or is_cancellation(task) then return end
  unheard = unheard or task
  report(task)
end

local function finish_dead(task, ok, ...)
  if ok then
    finish(task, { n = select("#", ...), ... })
  else
    finish(task, nil, (...), debug.traceback(task.co))
  end
end

--- Ends a task whose code never runs again, not even to clean up.
local function abandon(task)
  local err = core.new_error("cancelled")
  if task.state == "done" then return end
  end_wait(task)
  gone[task.co] = true
  task.is_cancelled = true
  finish(task, nil, err)
end

function driver.is_gone(co)
  heed_fork()
  return gone[co] == true
end

local function all_tasks()
  local all = {}
  for _, task in pairs(tasks) do all[#all + 1] = task end
  return all
end

--- In a child of the process there is no task but the one that has forked: what the others were about to do is done by
-- the parent. They count as cancelled. Sources are told, and the top level looks for itself whether it still waits.
function heed_fork()
  if uv.pid() == pid then return end
  for _, task in ipairs(all_tasks()) do
    if task ~= running then abandon(task) end
  end
  for i = #sources, 1, -1 do
    local source = sources[i]
    if source and source.after_fork then source:after_fork() end
  end
  catcher, unheard = nil, nil
  pid = uv.pid()
  if top and top.event then wake(top, "set") end
end

local function after_resume(task, ok, ...)
  heed_fork()
  task.arguments = nil
  if coroutine.status(task.co) == "dead" then
    finish_dead(task, ok, ...)
  else
    local signal, event, deadline = ...
    if signal == WAIT then
      begin_wait(task, event, deadline)
    else -- it yielded by itself, and not to us: that is nobody's turn to answer
      make_ready(task)
    end
  end
  running = nil
end

local function resume(task)
  if task.state == "done" then return end
  running = task
  task.state = "running"
  local arguments = task.arguments
  if arguments then
    after_resume(task, coroutine.resume(task.co, compat.unpack(arguments, 1, arguments.n)))
  else
    after_resume(task, coroutine.resume(task.co))
  end
end

--- After an error in the driver, of a finalizer or an interrupt: what the task had yielded is lost. One that waits is
-- resumed, and yields it again; of one that has ended, all that is left is the error.
local function recover(err)
  local task = running
  running = nil
  if not task or task.state ~= "running" then return end
  end_wait(task)
  if coroutine.status(task.co) == "dead" then finish(task, nil, err, "") else make_ready(task) end
end

--- Runs everybody who was ready when the round began. Returns whether somebody was.
local function run_ready()
  local until_ = last
  while first <= until_ do
    local task = queue[first]
    queue[first] = nil
    first = first + 1
    resume(task)
  end
  if first > last then first, last = 1, 0 end
  return until_ > 0
end

-- }======

-- {====== Turning ======

--- Closes the gaps in the list of sources. At once.
local function squeeze_sources()
  local n = 0
  for i = 1, #sources do
    local source = sources[i]
    sources[i] = nil
    if source then
      n = n + 1
      sources[n], places[source] = source, n
    end
  end
end

--- The seconds until a source wants to be polled again, or `wait`; and whether one waits for the bell. A source that is
-- polled may attach others, and detach any.
local function poll_sources(wait)
  local is_awaited, i = false, 1
  squeeze_sources()
  while i <= #sources do
    local source = sources[i]
    if source then
      local seconds, awaits_bell = source:poll()
      if seconds and (not wait or seconds < wait) then wait = seconds end
      is_awaited = is_awaited or awaits_bell
    end
    i = i + 1
  end
  return wait, is_awaited
end

local function wake_sleepers()
  if not sleepers:next() then return end
  local now = uv.now()
  local who = sleepers:due(now)
  while who do
    wake(who, "timeout")
    who = sleepers:due(now)
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
  for name in loop.next_signal, loop do
    if catcher then catcher:catch(name) end
  end
end

--- One turn: who is ready runs; if nobody is, waits until somebody may be. Sockets are looked at in either case, unless
-- somebody has just become ready because of that.
local function turn(is_waiting)
  close_forgotten()
  wake_sleepers()
  local has_run = run_ready()
  local wait, is_bell_awaited = poll_sources(time_left(sleepers:next()))
  local is_ready = first <= last
  if is_ready or not is_waiting() then
    if (has_run or not is_ready) and is_awaiting() then turn_loop(0) end
  elseif wait or is_bell_awaited or is_awaiting() then
    turn_loop(wait, is_bell_awaited)
  else
    error("keywatch: everybody waits, and nothing is left that could wake anybody", 0)
  end
end

local function turn_while(is_waiting)
  while is_waiting() do turn(is_waiting) end
end

--- Does some of the driver's work: true, and what that returns; or false and what it has raised.
local function drive(work, argument)
  local was_turning = is_turning
  is_turning = true
  local ok, result, more = pcall(work, argument)
  if not ok then pcall(recover, result) end
  is_turning = was_turning
  return ok, result, more
end

-- }======

-- {====== Waiting ======

--- Parks the task until the event is set, or `deadline`; returns which. Raises if the task is cancelled.
local function park(task, event, deadline)
  task.why = nil
  repeat coroutine.yield(WAIT, event, deadline) until task.why
  if task.why == "cancelled" then error(core.new_error("cancelled"), 0) end
  return task.why
end

--- The same at top level, where the loop is turned meanwhile.
local function wait_at_top_level(event, deadline)
  local who = { state = "running", place = nil, event = nil, timer = nil, why = nil }
  local function is_waiting() return who.state == "parked" end
  begin_wait(who, event, deadline)
  top = who
  local ok, err = drive(turn_while, is_waiting)
  top = nil
  if ok then return who.why end
  wake(who, "interrupted")
  error(err, 0)
end

function driver.now()
  return uv.now()
end

function driver.sleep(seconds)
  check.argument(type(seconds) == "number" and seconds == seconds, 1, "sleep", "a number of seconds", seconds)
  local task = waiter()
  local deadline = uv.now() + seconds
  if task then park(task, nil, deadline) else wait_at_top_level(nil, deadline) end
end

--- Waits until the event is set: true; or until `timeout` seconds are over: false.
function event_methods:wait(timeout)
  if self.is_set then
    self.is_set = false
    return true
  end
  if timeout and timeout <= 0 then return false end
  local task = waiter()
  local deadline = timeout and uv.now() + timeout
  if task then return park(task, self, deadline) == "set" end
  return wait_at_top_level(self, deadline) == "set"
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
    event = nil,         -- that it is parked for
    place = nil,         -- among those who wait for the same event
    timer = nil,         -- of the present wait
    why = nil,           -- what ended the last one
    must_cancel = false, -- the next wait raises
    is_cancelled = false,
    is_heard = false,    -- somebody is told of its failure who does not wait for it
    results = nil,
    failure = nil,
    traceback = nil,
    done = driver.event(),
  }, task_mt)
  tasks[task.co] = task
  queue[last + 1] = task
  last = last + 1
  return task
end

--- Waits for the end of a task: true and what it returned; false and what it failed with; or nil and an error of
-- code "timeout".
function task_methods:join(timeout)
  check.self(self, "join", task_mt)
  check.timeout(timeout, "join")
  if running == self then check.misuse("join: a task cannot wait for itself") end
  heed_fork()
  if self.state ~= "done" then check_timeout(timeout) end
  local deadline = timeout and uv.now() + timeout
  while self.state ~= "done" do
    if not self.done:wait(deadline and math.max(0, deadline - uv.now())) then return nil, core.new_error("timeout") end
  end
  if unheard == self then unheard = nil end
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
    finish(self, nil, err)
  elseif self.state == "parked" then
    wake(self, "cancelled")
  else
    self.must_cancel = true
  end
end

--- What one that ends raises in the driver is raised after all have ended.
local function cancel_all()
  local trouble
  for _ = 1, CANCELS do
    if next(tasks) == nil then break end
    for _, task in ipairs(all_tasks()) do task:cancel() end
    local ok, err = drive(run_ready)
    if not ok then trouble = trouble or { err } end
  end
  for _, task in ipairs(all_tasks()) do
    abandon(task)
    io.stderr:write("keywatch: a task that went on after it was cancelled has been left behind\n")
  end
  if trouble then error(trouble[1], 0) end
end

--- Runs a function as a task until that has ended, and ends all others. Returns the task, and the first of the others
-- that has failed without anybody hearing of it.
local function run_to_end(start)
  local main = driver.spawn(start.fn, compat.unpack(start, 1, start.n))
  main.is_heard = true
  local ok, err = drive(turn_while, function() return main.state ~= "done" end)
  cancel_all()
  local failed = unheard
  unheard = nil
  if not ok then error(err, 0) end
  return main, failed
end

--- Runs fn as a task, and turns the loop until it has ended; the tasks that are left are then cancelled. Raises what
-- fn, or a task that nobody joined, has failed with.
function driver.run(fn, ...)
  check.argument(type(fn) == "function", 1, "run", "function", fn)
  if running then check.misuse("run is for the top level: inside of a task, use keywatch.spawn") end
  waiter()
  local ok, main, failed = drive(run_to_end, { fn = fn, n = select("#", ...), ... })
  if not ok then error(main, 0) end
  if not main.results then error(main.failure, 0) end
  if failed then error(failed.failure, 0) end
  return compat.unpack(main.results, 1, main.results.n)
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
  heed_fork()
  if #self.names == 0 and catcher == self then check_timeout(timeout) end
  local deadline = timeout and uv.now() + timeout
  while #self.names == 0 do
    if catcher ~= self then error("keywatch: these signals are not caught any more, or not in this process", 2) end
    if not self.arrival:wait(deadline and math.max(0, deadline - uv.now())) then return nil end
  end
  return table.remove(self.names, 1)
end

--- From here on they do what they did before.
function signals_methods:close()
  if catcher ~= self then return end
  catcher = nil
  self.arrival:set()
  get_loop():signals {}
end

-- }======

function driver.bell()
  return get_loop():bell()
end

function driver.attach(source)
  if places[source] then return end
  local place = #sources + 1
  sources[place], places[source] = source, place
end

function driver.detach(source)
  local place = places[source]
  if not place then return end
  sources[place], places[source] = false, nil
  while sources[#sources] == false do sources[#sources] = nil end
end

--- For specs, which look whether all stands where it should: spec/support/scheduler.lua.
function driver.inside()
  return {
    queue = queue, first = first, last = last, sleepers = sleepers, sources = sources, places = places, tasks = tasks,
    running = running,
  }
end

return driver
