-- SPDX-License-Identifier: MIT
--- virtual: a driver in virtual time. When all tasks wait, its clock moves at once to the next deadline.
--
-- Servers and clients are connected by a network inside of the process, see network.lua. The manual clocks of stores
-- move with the driver's, see driver.carry. There are no signals and no threads, which use the system's time. The
-- driver does the work of a durable store's threads at times of its choice. The order of all steps depends only on the
-- program and the seed: a program with the same seed does the same in every run.
--
-- A program that cannot continue fails instead of hanging, with a report of what each task waits for:
--
--   deadlock    all tasks wait, and nothing is due; or only connections, watches and leases were kept alive for
--               `idle` seconds, without a deadline of any task
--   endless     the time has moved by more than `limit` seconds
--   hot loop    the loop has turned `turns` times, and the time has not moved

local check = require "keywatch.support.check"
local core = require "keywatch.core"
local coroutines = require "keywatch.driver.coroutines"
local networks = require "keywatch.driver.network"
local randoms = require "keywatch.support.random"
local waiting = require "keywatch.task.waiting"

local IDLE = 3600          -- default of the option `idle`, in seconds
local LIMIT = 24 * 3600    -- default of the option `limit`, in seconds
local TURNS = 100000       -- default of the option `turns`
local WORKERS = 2          -- of a durable store
local WORK_SECONDS = 0.001 -- that a job of a worker takes

local DEADLOCK = "keywatch: deadlock: every task is waiting, and no timer, lease, socket or server is left that could "
  .. "wake one"
local IDLE_TEXT = "keywatch: deadlock: every task is waiting, and for %g seconds of virtual time nothing has woken one"
local LIMIT_TEXT = "keywatch: the virtual time has passed its limit of %g seconds, and the program has not ended"
local TURNS_TEXT = "keywatch: hot loop: the loop has turned %d times while the virtual time stood still at %g"

--- Does the due jobs of a durable store. `due` has the times by the number of the worker. Returns the
-- next time, or nil.
local function work(store, due, time, seconds)
  local next_due
  for i = 1, WORKERS do
    if not store:has_job(i) then
      due[i] = nil
    elseif not due[i] then
      due[i] = time + seconds(store, i)
    elseif due[i] <= time then
      due[i] = nil
      store:work(i)
      return time
    end
    if due[i] and (not next_due or due[i] < next_due) then next_due = due[i] end
  end
  return next_due
end

--- Does the work of a store that is due at this time. Returns false if the store is closed.
local function move(store, time)
  if store:run_due() == false then return false end
  while core.inner.step(store, time) do end
  return true
end

--- Returns functions that raise, by name, for the driver's functions that do not exist in virtual time.
local function refusals()
  local texts = {
    check_disk = "open: a store with a disk has the clock of the virtual time: leave the option 'now' out",
    bell = "keywatch: a store with a disk that was opened outside has the system's time: open one here",
    hear = "serve: a server's thread does not work in virtual time: serve without 'thread'",
    signals = "signals: there are none in virtual time",
    fd = "fd: virtual time has no descriptor to poll",
  }
  local refuse = {}
  for name, text in pairs(texts) do refuse[name] = function() check.misuse("%s", text) end end
  return refuse
end

--- Returns a new driver, whose clock begins at `now`, or at 0. Options: seed, limit, idle, turns.
local function new(now, opts)
  opts = opts or {}
  local driver, time = refusals(), now or 0
  local limit, idle, most_turns = opts.limit or LIMIT, opts.idle or IDLE, opts.turns or TURNS
  local began, active_at = time, time -- active_at: when code of a task, or of the top level, last ran
  local turns = 0   -- of the loop since the time has moved
  local carried = {} -- { store } for each store, a weak reference
  local scheduler
  local network = networks.new(function() return time end)
  local random = randoms.new(opts.seed or 1)

  --- Raises a text that says why the program cannot continue, with a report of all tasks.
  local function fail(text, ...)
    if select("#", ...) > 0 then text = text:format(...) end
    turns, active_at, began = 0, time, time -- the tasks that are cancelled now may continue
    check.misuse("%s", text .. waiting.report(scheduler))
  end

  --- Moves the clock. The clocks of the stores move with it. Closed stores are forgotten.
  local function advance(target)
    if target <= time then return end
    if target - began > limit then fail(LIMIT_TEXT, limit) end
    if target - active_at > idle and not scheduler.sleepers.heap[1] then fail(IDLE_TEXT, idle) end
    time, turns = target, 0
    local i = 1
    while carried[i] do
      local store = carried[i][1]
      if store and move(store, time) then i = i + 1 else table.remove(carried, i) end
    end
  end

  --- Moves bytes. If none move, and the loop may wait, moves the clock.
  local function block(wait)
    turns = turns + 1
    if turns > most_turns then fail(TURNS_TEXT, most_turns, time) end
    if network:pump() or wait == 0 then return end
    local target, due = wait and time + wait, network:deadline()
    local is_of_network = due and (not target or due < target)
    if is_of_network then target = due end
    if not target then fail(DEADLOCK) end
    advance(target)
    if is_of_network then network:pump() end
  end

  local tasks = coroutines.new({
    now = function() return time end,
    block = block,
    is_awaiting = function() return true end, -- so that each turn calls `block`, which detects deadlocks
    enter = function() active_at = time end,
    timeout = function() return nil end,
    woken = function() end,
    worked = function() end,
    why_blocked = function() return nil end,
  }, driver)
  scheduler = tasks.scheduler
  scheduler.seed = math.floor(random:unit() * 2147483646) + 1

  --- Starts a task. If a task has spawned it, records the line for reports. Tasks that the driver itself starts, for
  -- example for a call of a server, have no line.
  local spawn = driver.spawn
  function driver.spawn(...)
    local task = spawn(...)
    task.spawned_at = scheduler.running and check.where() or nil
    return task
  end

  --- From now on the manual clock of a store moves with this driver's. The store was opened with the options
  -- now = driver.now() and, if it is durable, threads = false.
  function driver.carry(given)
    local weak, due = setmetatable({ given }, { __mode = "v" }), {}
    carried[#carried + 1] = weak
    driver.attach {
      poll = function(self)
        local store = weak[1]
        if not store or not move(store, time) then return driver.detach(self) end
        local deadline = core.inner.deadline(store)
        local done_at = store.has_job and work(store, due, time, driver.work_seconds)
        if done_at and (not deadline or done_at < deadline) then deadline = done_at end
        return deadline and math.max(0, deadline - time)
      end,
    }
  end

  --- Returns the seconds that a job of a worker of a durable store takes. The testing kit may replace this.
  function driver.work_seconds(_, _) return WORK_SECONDS end

  driver.network = network -- for the testing kit
  function driver.random() return random:unit() end

  --- Returns the name of this driver. Raises if another one is chosen.
  function driver.choose(name)
    if name ~= nil then check.misuse("driver: a program in virtual time cannot choose another driver") end
    return "virtual"
  end

  function driver.check_serve(has_thread)
    if has_thread then driver.hear() end
  end
  function driver.look() network:pump() end

  --- Moves the clock without running anything, as in a stopped process: due work happens afterwards.
  function driver.pause(seconds) advance(time + seconds) end

  function driver.hosts(object) return network:hosts(object) end
  function driver.release(object) network:release(object) end

  --- Returns the addresses of a name: each name is a separate machine.
  function driver.resolve(name) return { name == "localhost" and "127.0.0.1" or name } end

  function driver.lookup(name)
    return { result = function() return driver.resolve(name) end }
  end

  local NO_TLS = "TLS does not work in virtual time: use http:// or unix:"

  function driver.listen(server, address, context)
    if context then return nil, NO_TLS, "ENOTSUP" end
    return network:listen(server, address)
  end

  function driver.dial(client, address, context)
    if context then return nil, NO_TLS, "ENOTSUP" end
    return network:dial(client, address)
  end

  return driver
end

return { new = new }
