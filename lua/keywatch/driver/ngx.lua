-- SPDX-License-Identifier: MIT
--- ngx: the driver in nginx with its Lua module, as in OpenResty.
--
-- A call's options depend on the nginx phase, see ngx_phase.lua. Before nginx serves, tasks are coroutines, and a
-- private libuv loop turns while a call blocks. When nginx serves, no loop is open: a task is a light thread that
-- waits on a semaphore, and the sockets belong to the home, see ngx_home.lua.
--
-- A handler that calls keywatch is a task, too: it is *adopted* when it first does. A task that the program spawns in a
-- handler is a light thread of that handler, and ends with it. A task that is spawned before nginx serves, by a task of
-- the worker, or where no light thread can be created, belongs to the worker, and so do keywatch's own tasks.
--
-- nginx kills light threads without notice, for example when a request is aborted. A task that waits is dead if its
-- semaphore has no waiter. Then the undo functions run that the code around the wait has registered (see
-- driver.protect), and the task counts as cancelled.

local check = require "keywatch.support.check"
local compat = require "keywatch.support.compat"
local core = require "keywatch.core"
local coroutines = require "keywatch.driver.coroutines"
local errors = require "keywatch.support.errors"
local exits = require "keywatch.task.exits"
local homes = require "keywatch.driver.ngx_home"
local log = require "keywatch.support.log"
local new_semaphore = require("ngx.semaphore").new
local phases = require "keywatch.driver.ngx_phase"
local task_module = require "keywatch.task.task"
local uv = require "keywatch.uv"

local ngx = ngx
local running, is_yieldable = coroutine.running, core.is_yieldable
local get_phase, kind_of = ngx.get_phase, phases.kind_of
local max, min = math.max, math.min

local REST = 3600        -- the longest single wait of a light thread, in seconds
local AGAIN = 1          -- the same while there is no home
local PATIENCE = 1       -- seconds that a call before nginx serves may take, unless it has a timeout
local BURST = 0.01       -- seconds for which light threads may wake each other before nginx gets a turn
local BELL = 0.005       -- seconds between two polls of stores whose threads would ring a bell
local MAX_SEMAPHORES = 256 -- that are kept for reuse

local driver = {}

local pid = uv.pid()
local loop              -- of libuv, while nginx does not serve; or nil
local is_leaving = false -- the loop is being closed
local is_serving = false -- nginx serves: tasks are light threads
local has_begun_exit = false -- the worker exits, and releases what it holds
local threads = setmetatable({}, { __mode = "k" }) -- tasks by their light threads; a task has no reference to it
local thread_of = setmetatable({}, { __mode = "kv" }) -- light threads by their tasks
local parked = {}       -- as keys: tasks that wait on a semaphore
local semaphores = {}   -- without a waiter
local lost = {}         -- tasks whose light threads are gone
local worker_tasks = {} -- as keys: the tasks of the worker
local known = {}        -- addresses of host names, from the system's resolver before nginx served
local is_tested         -- nginx tests its configuration; nil: not known yet
local tasks, scheduler, home

local LIGHT = {} -- task.thread of every task that is a light thread, or will be one

-- {====== Before nginx serves ======

local backend = { now = uv.now } -- see coroutines.lua

--- Returns the loop. The first call opens it. The workers that nginx forks do not inherit its descriptors.
local function get_loop()
  if not loop then
    loop = assert(uv.open())
    loop:leave_at_fork()
  end
  return loop
end

function backend.timeout() return loop and loop:timeout() end
function backend.is_awaiting() return loop ~= nil and loop:is_awaiting() end
function backend.flush() if loop then loop:flush() end end
function backend.why_blocked() return nil end

--- Turns libuv's loop. The bells of stores do not ring there, if the store was first used on an earlier loop.
function backend.block(wait, is_bell_awaited)
  if is_serving then return end
  if is_bell_awaited then wait = min(wait or BELL, BELL) end
  get_loop():turn(wait, is_bell_awaited)
end

--- Wakes the home: an object must be closed.
function backend.woken()
  if is_serving then home:wake() end
end

--- Notifies all pollers that new sockets are opened by another timer from now on.
local function move_pollers()
  for i = 1, #tasks.pollers do
    local poller = tasks.pollers[i]
    if poller and poller.on_move then poller:on_move() end
  end
end

--- Closes the loop. Connections are reopened when they are needed.
local function leave_loop()
  local left = loop
  if not left or is_leaving then return end
  is_leaving = true
  move_pollers()
  tasks:run_due()
  is_leaving, loop = false, nil
  left:flush()
  left:close()
end

function backend.worked() end

-- }======

-- {====== Light threads ======

local bury -- below

--- Returns the task of a light thread that has called keywatch: the one that was started there, or an adopted one.
-- Returns nil if the driver itself works in the thread of a task that is about to wait.
local function task_of(thread)
  local task = threads[thread]
  local state = task and task.state
  if state == "running" then return task end
  if state == "parked" or state == "ready" then
    if not task.semaphore then return nil end
    bury(task) -- nginx has killed it, and uses its thread again
  end
  scheduler.count = scheduler.count + 1
  task = task_module.new(scheduler, scheduler.count)
  task.thread, task.state, task.is_supervised = LIGHT, "running", true
  threads[thread], thread_of[task], tasks.gone[thread] = task, thread, nil
  return task
end

--- Called when nginx begins to serve: closes the loop. Earlier tasks are restarted, as tasks of the worker.
local function begin_serving()
  is_serving = true
  local left = scheduler:all()
  leave_loop()
  tasks:clear()
  for _, task in ipairs(left) do
    if task.state ~= "done" and not worker_tasks[task] then
      driver.undo(task)
      if scheduler:reset(task) then
        task.arguments = task.given
        driver.run_in_home(task, task.fn)
      end
    end
  end
  if tasks.pollers[1] then home:need() end
end

--- Called first by every call of keywatch. Finds the task of the caller.
function backend.enter()
  if uv.pid() ~= pid then
    pid = uv.pid()
    home:after_fork()
    parked, worker_tasks, loop = {}, {}, nil
    tasks:after_fork()
    if tasks.pollers[1] then home:need() end
  end
  local kind = kind_of(get_phase())
  if kind == "start" and not is_serving then return end
  if not is_serving then begin_serving() end
  local thread = kind == "wait" and running()
  scheduler.running = thread and task_of(thread) or nil
end

--- Returns a semaphore without a waiter.
local function take_semaphore()
  local n = #semaphores
  if n == 0 then return assert(new_semaphore(0)) end
  local one = semaphores[n]
  semaphores[n] = nil
  return one
end

--- True if nginx has killed the light thread of a task that is parked, or was woken and has not continued.
local function is_killed(task)
  local semaphore = task.semaphore
  if not semaphore then return false end
  return semaphore:count() >= ((task.state == "parked" or task.is_resting) and 0 or 1)
end

--- Runs the undo functions of a task whose code never resumes.
function driver.undo(task)
  local undo = task.undo
  task.undo = nil
  for i = undo and #undo or 0, 2, -2 do
    local ok, err = pcall(undo[i - 1], undo[i])
    if not ok then log.error("the clean-up of a task that nginx has killed has failed: %s", errors.text_of(err)) end
  end
end

--- Ends a task whose light thread nginx has killed.
function bury(task)
  parked[task], worker_tasks[task], task.semaphore = nil, nil, nil
  local thread = thread_of[task]
  if thread and threads[thread] == task then threads[thread], tasks.gone[thread] = nil, true end
  scheduler:abandon(task)
  driver.undo(task)
end

--- Ends the tasks whose light threads nginx has killed. Returns true if tasks are parked.
local function sweep()
  local dead
  for i = #lost, 1, -1 do
    local state = lost[i].state
    if state ~= "parked" and state ~= "ready" then -- else another handler waits in its thread: later
      local task = table.remove(lost, i)
      if state ~= "done" then bury(task) end
    end
  end
  for task in pairs(parked) do
    if is_killed(task) then
      dead = dead or {}
      dead[#dead + 1] = task
    end
  end
  for _, task in ipairs(dead or {}) do
    if parked[task] then bury(task) end
  end
  return next(parked) ~= nil
end

local seen_at, seen = 0, 0 -- when nginx's clock was seen to move, and its time then

--- True if light threads have woken each other for a while, and nginx has handled neither sockets nor timers since: its
-- clock stands still.
local function is_starving()
  local clock, now = ngx.now(), uv.now()
  if clock ~= seen then seen, seen_at = clock, now end
  return now - seen_at > BURST
end

--- Waits until the task is no longer parked.
local function await_wake(task)
  local semaphore = take_semaphore()
  task.semaphore, parked[task] = semaphore, true
  repeat
    local timer = task.timer
    local seconds = timer and max(0.001, timer.deadline - uv.now()) or REST
    local is_posted, text = semaphore:wait(min(seconds, home.timer and REST or AGAIN))
    if not is_posted then
      if text ~= "timeout" then error("keywatch: nginx does not let this light thread wait: " .. tostring(text), 0) end
      scheduler:wake_due()
      home:need()
    end
    if task.must_exit then ngx.exit(ngx.OK) end -- ends the handler, and does not return
  until task.state ~= "parked"
  if is_starving() then
    task.is_resting = true
    semaphore:wait(0.001)
    task.is_resting = nil
  end
  parked[task], task.semaphore = nil, nil
  while semaphore:count() > 0 do semaphore:wait(0) end -- it was woken after its timeout, too
  if #semaphores < MAX_SEMAPHORES then semaphores[#semaphores + 1] = semaphore end
end

--- Suspends the task that runs. See task/scheduler.lua.
local function suspend(awaited, deadline)
  local task = scheduler.running
  scheduler:park(task, awaited, deadline)
  if task.state == "parked" then
    home:need()
    home:turn()
  end
  if task.state == "parked" then
    local ok, err = pcall(await_wake, task)
    if not ok then
      parked[task], task.semaphore = nil, nil
      scheduler:unpark(task)
      task.state, scheduler.running = "running", task
      error(err, 0)
    end
  end
  task.state, scheduler.running = "running", task
  if task.why == "cancelled" then -- the task may continue although each of its waits raises: other tasks run first
    ngx.sleep(0.001)
    if task.must_exit then ngx.exit(ngx.OK) end -- ends the handler, and does not return
    scheduler.running = task
  end
end

--- A message handler for xpcall.
local function with_stack(err)
  return { err = err, stack = (debug.traceback("", 2):gsub("^%s+", "")) }
end

--- Returns an object that only the stack of a task's light thread references. If nginx kills the thread outside of a
-- wait for keywatch, the object is collected before the task is done.
local new_sentinel = compat.guard(function(task)
  if task.state ~= "done" then lost[#lost + 1] = task end
end)

--- Does nothing, except that its argument is not collected before.
local function keep() end

--- Runs a task in the light thread of the caller, until it has ended.
local function run_task(task, fn)
  local thread, arguments = running(), task.arguments
  if task.state ~= "new" then return end
  threads[thread], thread_of[task], tasks.gone[thread] = task, thread, nil
  task.state, task.arguments, scheduler.running = "running", nil, task
  local function finish(ok, ...)
    threads[thread], worker_tasks[task] = nil, nil
    if ok then return scheduler:finish(task, { n = select("#", ...), ... }) end
    local raised = (...)
    local is_whole = type(raised) == "table" and raised.stack ~= nil -- otherwise the stack was full
    scheduler:finish(task, nil, is_whole and raised.err or raised, is_whole and raised.stack or "")
  end
  if arguments then
    finish(xpcall(fn, with_stack, compat.unpack(arguments, 1, arguments.n)))
  else
    finish(xpcall(fn, with_stack))
  end
  scheduler.running = nil
  if is_serving then home:turn() end
end

--- Runs a task as one of the worker.
function driver.run_in_home(task, fn)
  task.thread, task.fn = LIGHT, fn
  if home.has_closed then return task:cancel() end -- the worker exits, and runs nothing more
  worker_tasks[task] = true
  home:run(function() run_task(task, fn) end)
end

--- Runs a task as a light thread of the caller's handler. nginx begins it at once: it waits until it is posted. Another
-- light thread makes it, and ends: nginx keeps what is left of a thread until its parent has waited for it or ended.
local function run_in_handler(task, fn)
  local signal = new_semaphore(0)
  task.thread = LIGHT
  local creator = ngx.thread.spawn(function()
    ngx.thread.spawn(function()
      local sentinel = new_sentinel(task)
      signal:wait(REST)
      run_task(task, fn)
      keep(sentinel)
    end)
  end)
  ngx.thread.wait(creator)
  signal:post(1)
end

-- }======

tasks = coroutines.new(backend, driver)
scheduler = tasks.scheduler

home = homes.new {
  now = uv.now,
  run_due = function() return tasks:run_due() end,
  is_idle = function() return tasks.pollers[1] == nil and next(worker_tasks) == nil and next(parked) == nil end,
  sweep = sweep,
  has_parked = function() return next(parked) ~= nil end,
  move = move_pollers,
  enter = function() backend.enter() end,
  cancel = function()
    if not has_begun_exit then
      has_begun_exit = true
      driver.spawn_own(exits.run, driver, homes.GRACE)
    end
    for task in pairs(worker_tasks) do
      if not task.is_own and not task.is_cancelled_once then
        task.is_cancelled_once = true
        task:cancel()
      end
    end
    return next(worker_tasks) ~= nil
  end,
  stop = function()
    for task in pairs(worker_tasks) do
      task.must_exit = true
      if task.semaphore then task.semaphore:post(1) end
    end
  end,
  close = function()
    local pollers, is_done = {}, true
    for i = 1, #tasks.pollers do pollers[i] = tasks.pollers[i] end
    for _, poller in ipairs(pollers) do
      if poller and poller.drain then
        is_done = poller:drain() and is_done
      elseif poller and poller.close then
        poller:close()
      end
    end
    return is_done
  end,
}

-- {====== Functions for the scheduler ======

local inner = scheduler.driver
local start_coroutine, wake_coroutine, yield = inner.start, inner.wake, inner.suspend
local why_cannot_wait, give_up = inner.why_cannot_wait, inner.give_up

function scheduler.suspend(...)
  if is_serving then return suspend(...) end
  return yield(...)
end

inner.suspend = scheduler.suspend

function inner.wake(task)
  if not is_serving then return wake_coroutine(task) end
  if task.semaphore then task.semaphore:post(1) end
end

function inner.start(task, fn)
  task.fn, task.given = fn, task.arguments -- for a restart
  if not is_serving then return start_coroutine(task, fn) end
  local parent = scheduler.running
  if task.is_own or not parent or worker_tasks[parent] or not is_yieldable() then
    return driver.run_in_home(task, fn)
  end
  run_in_handler(task, fn)
  scheduler.running = nil
  backend.enter()
end

--- Returns the thread of the caller. When nginx serves, `enter` has found the running task.
function inner.thread()
  return is_serving and LIGHT or running()
end

--- Ends the code of a coroutine. A light thread cannot be stopped: it keeps running, slowly.
function inner.give_up(task)
  if is_serving then return false end
  return give_up(task)
end

function inner.why_cannot_wait()
  if not is_serving then return why_cannot_wait() end
  return phases.refusal(get_phase())
end

--- True if a waiter is a task that nginx has killed. It is ended then.
function inner.is_lost(waiter)
  if not parked[waiter] or not is_killed(waiter) then return false end
  bury(waiter)
  return true
end

-- }======

-- {====== Tasks ======

local NO_TASKS = "spawn: nginx has no worker yet that would run the task: call spawn in init_worker_by_lua, or inside "
  .. "of keywatch.run"
local NO_EXIT = "on_exit: nginx has no worker yet that would exit: call on_exit in init_worker_by_lua"
local NO_RUN = "run: nginx turns the loop here: call the function itself, and keywatch.spawn for other tasks"
local NO_HOST = "%s: nginx turns the loop, and no other can"
local NO_SIGNALS = "signals: nginx catches the signals itself: a worker that exits ends its tasks"

--- Starts a task of the program.
function driver.spawn(fn, ...)
  check.argument(type(fn) == "function", 1, "spawn", "function", fn)
  backend.enter()
  if is_serving or tasks.is_turning then return scheduler:spawn(fn, ...) end
  if get_phase() == "init" then check.misuse(NO_TASKS) end
  local task = scheduler:new_task(...)
  scheduler.tasks[task] = true
  driver.run_in_home(task, fn)
  return task
end

--- Starts a task of keywatch itself. It belongs to the worker.
function driver.spawn_own(fn, ...)
  backend.enter()
  return scheduler:spawn_own(fn, ...)
end

scheduler.at_end = nil -- the end of a run is not that of the worker

local on_exit = driver.on_exit

function driver.on_exit(fn)
  if get_phase() == "init" then check.misuse(NO_EXIT) end
  on_exit(fn)
  home:await_exit()
end

local run = driver.run

function driver.run(...)
  backend.enter()
  if is_serving then check.misuse(NO_RUN) end
  return run(...)
end

function driver.can_park()
  backend.enter()
  return scheduler:can_park()
end

function driver.current()
  backend.enter()
  return scheduler:current()
end

local attach = driver.attach

--- Adds a poller. The home polls it.
function driver.attach(poller)
  attach(poller)
  if is_serving or get_phase() == "init_worker" then
    home:need()
    home:wake()
  end
end

--- Unregisters an undo function. Returns the results of a pcall.
local function unprotect(undo, n, ...)
  undo[n], undo[n - 1] = nil, nil
  return ...
end

--- Calls fn(...), and returns the results of pcall. If nginx kills the task during that, undo(object) is called.
function driver.protect(undo, object, fn, ...)
  backend.enter()
  local task = scheduler:current()
  if not task then return pcall(fn, ...) end
  local list = task.undo
  if not list then
    list = {}
    task.undo = list
  end
  local n = #list + 2
  list[n - 1], list[n] = undo, object
  return unprotect(list, n, pcall(fn, ...))
end

inner.protect = driver.protect

--- Returns the seconds that a call without a timeout may take here, or nil without such a limit.
function driver.patience()
  return not is_serving and kind_of(get_phase()) == "start" and PATIENCE or nil
end

--- True if the caller is an nginx handler, or a task of one, and not one of the worker.
function driver.in_request()
  backend.enter()
  return scheduler.running ~= nil and not worker_tasks[scheduler.running]
end

for _, name in ipairs { "fd", "step", "timeout" } do
  driver[name] = function() check.misuse(NO_HOST, name) end
end

driver.has_signals = false

function driver.signals() check.misuse(NO_SIGNALS) end

--- Returns the name of this driver. Raises if another one is chosen.
function driver.choose(name)
  if name == nil then return "ngx" end
  check.argument(type(name) == "string", 1, "driver", "string", name)
  if name ~= "ngx" then check.misuse("driver: there is no driver '%s' in nginx: choose 'ngx'", name) end
  return name
end

-- }======

-- {====== Sockets and threads, as task/driver.lua describes them ======

local NO_TEST = "nginx only tests its configuration, so keywatch opens no connection: set the variable "
  .. "KEYWATCH_IN_TEST in the environment to have it connect"

--- True if nginx only tests its configuration, and keywatch.connect was not asked to connect.
local function is_test()
  if is_tested == nil then
    local file = io.open("/proc/self/cmdline", "rb")
    local text = file and file:read(4096) or ""
    if file then file:close() end
    is_tested = phases.is_test(text) and not os.getenv("KEYWATCH_IN_TEST")
  end
  return is_tested
end

local LOCAL = { "127.0.0.1", "::1" }

--- True if a name is that of this machine.
local function is_localhost(name)
  name = name:lower():gsub("%.$", "")
  return name == "localhost" or name:find("%.localhost$") ~= nil
end

--- Looks a name up by the system's resolver, and remembers the result.
function driver.resolve(name)
  if is_serving then return is_localhost(name) and LOCAL or known[name] or { name } end
  local hosts, text, code = get_loop():resolve(name)
  if hosts then known[name] = hosts end
  return hosts, text, code
end

--- Looks the names of the endpoints of a new client up by the system's resolver, before nginx serves: later there may
-- be only nginx's resolver, or none. Waits for at most PATIENCE seconds. An HTTP client has no endpoints.
function driver.on_connect(client)
  if not client.transport or is_serving or is_test() or kind_of(get_phase()) ~= "start" then return end
  local deadline = uv.now() + PATIENCE
  for _, endpoint in ipairs(client.transport.dialer.endpoints) do
    local name = endpoint.address.host
    if name and name:find("%a") and not name:find(":", 1, true) and not is_localhost(name) and not known[name] then
      local lookup = driver.lookup(name)
      while lookup and lookup.result() == nil and uv.now() < deadline do get_loop():turn(0.005) end
    end
  end
end

--- Returns a lookup with a result.
local function found(hosts)
  return { result = function() return hosts end }
end

--- Looks a name up. Where nginx serves, a cosocket is given the name, which nginx's resolver looks up; then come the
-- addresses that the system's resolver knew at the start.
function driver.lookup(name)
  if not is_serving then
    local lookup = get_loop():lookup(name)
    if not lookup then return lookup end
    return {
      result = function()
        local hosts, text, code = lookup:result()
        if hosts then known[name] = hosts end
        return hosts, text, code
      end,
    }
  end
  if is_localhost(name) then return found(LOCAL) end
  local hosts = { name }
  for _, host in ipairs(known[name] or {}) do hosts[#hosts + 1] = host end
  return found(hosts)
end

function driver.dial(client, address, context, host, cache_key)
  if not is_serving and is_test() then return nil, NO_TEST, "ECANCELED" end
  if not is_serving then return get_loop():dial(client, address, context, host, cache_key) end
  local channel
  if context then
    local text
    channel, text = context:connect(host, cache_key)
    if not channel then return nil, text end
  end
  client:dial(uv.now())
  local ok, text = home:dial(client, { address = address, channel = channel })
  if ok then return true end
  client:closed(text)
  return nil, text
end

--- True when nginx serves: the home reads the sockets.
function driver.is_prompt() return is_serving end

--- Polls the sockets. When nginx serves, the home reads them as soon as bytes come.
function driver.look()
  if is_serving then
    for link in pairs(home.links) do link:notify_if_needed() end
  elseif loop then
    backend.block(0)
  end
  tasks:looked()
end

function driver.hosts(object)
  if is_serving then return home:link_of(object) ~= nil end
  return loop ~= nil and loop:hosts(object)
end

function driver.release(object)
  if not is_serving then
    if loop then loop:release(object) end
    return
  end
  local link = home:link_of(object)
  if link then link:cut() end
end

local NO_SERVING = "serve: nginx turns no loop that would serve: give the server a thread, with the option "
  .. "thread = true"

--- Raises if nothing would turn the loop, and the server will have no thread.
function driver.check_serve(has_thread)
  backend.enter()
  if not has_thread and (is_serving or not tasks.is_turning) then check.misuse(NO_SERVING) end
end

function driver.listen(server, address, context)
  return get_loop():listen(server, address, context)
end

--- Returns the bell of the loop; when nginx serves, one without a loop, since stores are polled periodically.
function driver.bell()
  if not is_serving then return get_loop():bell() end
  local own = assert(uv.open())
  local bell = own:bell()
  own:close()
  return bell
end

--- Makes the home, or the loop, notice the end of a thread.
function driver.hear(thread)
  if is_serving then
    home.threads[#home.threads + 1] = thread
  else
    thread:wakes(get_loop())
  end
end

-- }======

local LEVELS = { debug = ngx.DEBUG, info = ngx.INFO, warn = ngx.WARN }

--- Writes log lines to error.log. While the worker exits, ended connections are expected: warnings have the level info.
log.to(function(level, text)
  local number = home.is_exiting and level ~= "error" and ngx.INFO or LEVELS[level] or ngx.ERR
  ngx.log(number, "keywatch: ", (text:gsub("^keywatch: ", "")))
end)

driver.home = home -- for specs

return driver
