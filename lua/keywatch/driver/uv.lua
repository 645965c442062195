-- SPDX-License-Identifier: MIT
--- uv: the driver on libuv. Tasks are coroutines, and a private loop turns while all of them wait. The loop is opened
-- at its first use.
--
-- The private loop is turned by `run` and by waits at top level. It can also have a host, another event loop that turns
-- it by steps: luv's loop if luv is loaded, or any loop of the program by keywatch.fd, keywatch.timeout and
-- keywatch.step.

local check = require "keywatch.support.check"
local compat = require "keywatch.support.compat"
local coroutines = require "keywatch.driver.coroutines"
local log = require "keywatch.support.log"
local luv_host = require "keywatch.driver.luv"
local signals = require "keywatch.driver.signals"
local uv = require "keywatch.uv"

local driver = {}

local loop           -- nil until it is needed
local pid = uv.pid() -- of the process that the state of this module belongs to
local host           -- luv's loop, if it turns keywatch's; or nil
local choice         -- "uv" or "luv", if the program has chosen; or nil
local sentinel       -- reports, at the end of the program, tasks that have never run
local outside = setmetatable({}, { __mode = "k" }) -- as keys: tasks that were spawned while our loop did not turn
local backend = { now = uv.now } -- see coroutines.lua
local tasks, scheduler

-- {====== The backend ======

local join_host -- below

--- In the child after a fork: all tasks except the one that has forked are abandoned. luv's handles poll the
-- descriptor of the parent's loop: they are stopped, after the child's loop has another one. (Otherwise libuv would
-- remove the parent's descriptors from the kernel's poll set.)
function backend.enter()
  if uv.pid() == pid then return end
  local inherited, task = host, scheduler.running
  host = nil
  tasks:after_fork()
  pid = uv.pid()
  if not inherited then return end
  loop:fd()
  if not inherited:is_closed() then inherited:stop() end
  if task and task.is_hosted then join_host() end
end

--- Makes luv's loop, which may be about to block, turn once more.
function backend.woken()
  if host then host:nudge() end
end

--- Keeps luv's loop alive again, if a task has turned it.
function backend.worked()
  if host then host:keep_alive_again() end
end

local WHY_BLOCKED = {
  Neovim = "keywatch: %s waits, which would block Neovim: call it in a task, with keywatch.spawn",
  luv = "keywatch: %s waits, which would block luv's loop: call it in a task, with "
    .. "keywatch.spawn",
}

--- Returns why this thread must not be blocked, or nil.
function backend.why_blocked()
  return WHY_BLOCKED[luv_host.running()]
end

--- Returns the loop. The first call opens it.
local function get_loop()
  backend.enter()
  loop = loop or assert(uv.open())
  return loop
end

--- Returns the seconds after which the loop has work without an event; or nil.
function backend.timeout()
  return loop and loop:timeout()
end

--- True if a server, a client, a signal or another thread may wake a task.
function backend.is_awaiting()
  return loop ~= nil and loop:is_awaiting()
end

--- Turns libuv's loop. If Lua's interpreter has caught Ctrl-C during the turn, its hook raises "interrupted!" here.
backend.block = compat.interpreted(function(wait, is_bell_awaited)
  get_loop():turn(wait, is_bell_awaited)
end)

--- Writes pending bytes, without polling the sockets.
function backend.flush()
  get_loop():flush()
end

-- }======

tasks = coroutines.new(backend, driver)
scheduler = tasks.scheduler

-- {====== Hosts ======

--- Returns the descriptor of the loop.
function driver.fd() return get_loop():fd() end

-- The functions for luv.lua.
local guest = { fd = driver.fd, step = driver.step, timeout = driver.timeout, now = uv.now }

--- True while the driver is at work. In a luv callback this means that a task turns luv's loop.
function guest.is_turning() return tasks.is_turning end

--- True if there is a task that is not done, or a server.
function guest.is_alive()
  return next(scheduler.tasks) ~= nil or loop ~= nil and loop:has_servers()
end

--- True if an event may come: a poller is attached, the loop waits for something, or a connection is not closed yet.
function guest.is_awaiting()
  return tasks.pollers[1] ~= nil or backend.is_awaiting() or loop ~= nil and loop:connections() > 0
end

--- Makes luv's loop turn keywatch's, if luv is loaded and the program has not chosen otherwise. Returns true if luv's
-- loop does that; or false, and the text and the name of the error if luv could not.
function join_host()
  backend.enter()
  if choice == "uv" then return false end
  if host and host:is_closed() then host = nil end
  if not host then
    local luv, schedule = luv_host.find()
    if not luv then return false end
    local made, text = luv_host.attach(guest, luv, schedule)
    if not made then return false, "luv cannot poll: " .. text, text:match("^%u+") end
    host = made
  end
  host:start()
  return true
end

--- Moves all living tasks to luv's loop. May be called by a finalizer.
local host_all = compat.interpreted(function()
  for task in pairs(scheduler.tasks) do task.is_hosted = true end
end)

--- Makes luv's loop turn keywatch's if the caller is not inside of `run`. All living tasks then belong to luv's loop,
-- also those that were spawned before luv was loaded, or chosen. Returns true if luv's loop turns keywatch's.
local function host_tasks()
  if not tasks:is_hosting() then return false end
  local is_late = not (host and host.is_started)
  local has_joined, text = join_host()
  if text then check.misuse("keywatch: %s", text) end
  if not has_joined then return false end
  if is_late then host_all() end
  return true
end

--- Returns which call would run the tasks that have never run.
local function who_runs_tasks(are_hosted)
  if are_hosted then return "uv.run turns luv's loop, which runs tasks" end
  local is_late = choice ~= "uv" and luv_host.find()
  if is_late then return "luv's loop runs only tasks that are spawned after luv was loaded" end
  return "keywatch.run turns the loop that runs tasks"
end

--- Returns an object that, at the end of the program, writes to stderr that tasks have never run; unless the program
-- ends in a task, as by os.exit.
local function watch_for_the_end()
  return compat.sentinel(function()
    if uv.pid() ~= pid or tasks.is_turning then return end
    local n, are_hosted = 0, false
    for task in pairs(outside) do
      if task.state == "new" then n, are_hosted = n + 1, are_hosted or task.is_hosted end
    end
    if n == 0 then return end
    log.report(("%s: %s"):format(
      n == 1 and "a task was spawned and has never run" or n .. " tasks were spawned and have never run",
      who_runs_tasks(are_hosted)))
  end)
end

--- Starts a task, by a method of the scheduler. Outside of `run` it belongs to the host, if there is one; and so does a
-- task that a task of the host spawns.
local function start(spawn, ...)
  local parent = scheduler.running
  local is_hosted = host_tasks() or parent and parent.is_hosted -- before the task, since a refused task must not run
  local task = spawn(scheduler, ...)
  task.is_hosted = is_hosted or nil
  return task
end

--- Starts a task of keywatch itself.
function driver.spawn_own(...) return start(scheduler.spawn_own, ...) end

--- Starts a task of the program.
function driver.spawn(...)
  local task = start(scheduler.spawn, ...)
  if not tasks.is_turning then
    sentinel = sentinel or watch_for_the_end()
    outside[task] = true
  end
  return task
end

local CHOICES = { uv = true, luv = true }

--- Chooses the loop that runs the tasks which are spawned outside of `run`: "luv", luv's loop, which must be loaded; or
-- "uv", only the private loop. Returns the name of the current one.
function driver.choose(name)
  if name == nil then return choice or luv_host.find() and "luv" or "uv" end
  check.argument(type(name) == "string", 1, "driver", "string", name)
  if not CHOICES[name] then check.misuse("driver: there is no driver '%s': choose 'uv' or 'luv'", name) end
  if name == "luv" and not luv_host.find() then check.misuse("driver: luv is not loaded: require it first") end
  if name == "uv" and host then
    for task in pairs(scheduler.tasks) do
      if task.is_hosted then check.misuse("driver: luv's loop runs tasks: let them end first") end
    end
    if not host:is_closed() then host:stop() end
  end
  choice = name
  if name == "luv" and guest.is_alive() then host_tasks() end
  return name
end

-- }======

-- {====== Sockets and threads, as task/driver.lua describes them ======

function driver.resolve(name) return get_loop():resolve(name) end

--- The loop can be turned anywhere.
function driver.check_serve() end

--- Listens. The server outlives a `run` that begins it, and luv's loop then serves.
function driver.listen(server, address, context)
  local _, text, name = join_host()
  if text then return nil, text, name end
  return get_loop():listen(server, address, context)
end

function driver.dial(client, address, ...) return get_loop():dial(client, address, ...) end

function driver.lookup(name) return get_loop():lookup(name) end
function driver.bell() return get_loop():bell() end
function driver.hear(thread) thread:wakes(get_loop()) end

--- Handles sockets and signals once, without waiting.
function driver.look()
  if loop then backend.block(0) end
  tasks:looked()
end

--- Returns a histogram of the loop's turns, and the longest.
function driver.turns() return get_loop():turns() end

--- True if a server has listeners or connections, or a client its connection.
function driver.hosts(object)
  return loop ~= nil and loop:hosts(object)
end

--- Closes the listeners and connections of a server, or the connection of a client, at once.
function driver.release(object)
  if loop then loop:release(object) end
end

-- }======

--- Catches signals. See signals.lua.
function driver.signals(names) return signals.open(driver, get_loop, names) end

return driver
