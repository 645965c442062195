-- SPDX-License-Identifier: MIT
--- controller: brings the world into the state that keys describe. Sources turn changes into requests, a queue holds
-- each request once, and workers call the function `reconcile` for it, until reconcile reports success.
--
--   sources ---> map, where ---> work queue ---> workers ---> reconcile(request, context)
--                                     ^                            |
--                                     +---- again, or later -------+
--
--            start              all sources have synced            stop              the work has ended
--   IDLE ------------> SYNCING --------------------------> RUNNING -----> STOPPING --------------------> IDLE
--                         |                                   |                         ^
--                         +---- a source has failed ----------+-------------------------+
--
-- The results of reconcile:
--
--   nothing, or true           the request is done, and its failures are reset
--   the result of a write      the same; for a transaction that has not succeeded, as { again = true }
--   { after = seconds }        done, and repeated after that time
--   { again = true }           repeated after a time that the limiter chooses
--   { never = reason }         failed, and not repeated automatically
--   nil or false, and an error; or it raises: failed, and repeated after a time that the limiter chooses
--
-- Any other result is a failure, too. Two calls for the same request never run at the same time. A call that takes
-- longer than the option `timeout` is cancelled at its next wait; one that does not wait is logged.
--
-- Each start creates a run: a queue, sources, and one slot for each worker. A run ends when all its workers have ended.
-- A worker is a task that is restarted if the end of keywatch.run, or a fork, has cancelled it; its request is then
-- queued again.

local check = require "keywatch.support.check"
local driver = require "keywatch.task.driver"
local errors = require "keywatch.support.errors"
local histograms = require "keywatch.controller.histogram"
local limiters = require "keywatch.controller.limiter"
local log = require "keywatch.support.log"
local queues = require "keywatch.controller.work_queue"
local slices = require "keywatch.task.slice"
local sources = require "keywatch.controller.source"
local workers = require "keywatch.task.worker"

local NAME = "controller.new"
local SYNC_TIMEOUT = 120 -- seconds
local STOP_TIMEOUT = 30  -- seconds
local GRACE = 1          -- seconds for cancelled calls to end, while stop waits
local NONE = {}
local AT_ONCE = 64       -- calls without a wait, after which other tasks run

local controller_methods, controller_mt = check.class "keywatch.controller"

-- {====== Outcomes ======

--- Returns the text for the log of an error that reconcile has returned.
local function text_of(self, err)
  if not errors.traceback_of(err) then return errors.text_of(err) end
  return log.failure(self, { err = err, traceback = errors.full_text_of(err) })
end

--- Notes a failure: the request is repeated.
local function fail(self, queue, request, text)
  self.counts.failed = self.counts.failed + 1
  local seconds = queue:retry(request)
  log.error({ controller = self.name, request = request }, "the controller '%s' has failed for %s, %s: %s", self.name,
    check.shown(request), seconds and ("and tries again in %.3g s"):format(seconds) or "and is being stopped", text)
end

--- Notes a failure after which the request is not repeated.
local function give_up(self, queue, request, reason)
  self.counts.given_up = self.counts.given_up + 1
  queue:forget(request)
  log.error({ controller = self.name, request = request },
    "the controller '%s' has failed for %s, and does not try again: %s", self.name, check.shown(request),
    text_of(self, reason))
end

--- True if a table is the result of a write: it has a revision, and none of the fields of an outcome.
local function is_write(found)
  return type(rawget(found, "revision")) == "number" and rawget(found, "after") == nil and rawget(found, "again") == nil
    and rawget(found, "never") == nil
end

--- Returns the name and the value of the only field of an outcome; or nil and why the table is not an outcome. The
-- result of a write counts as { again = false }; or { again = true } for a transaction that has not succeeded.
local function read_outcome(outcome)
  if is_write(outcome) then return "again", rawget(outcome, "succeeded") == false end
  local field, value = next(outcome)
  if field == nil then return nil, "an empty table" end
  if next(outcome, field) ~= nil then return nil, "a table with more than one field" end
  if field ~= "after" and field ~= "again" and field ~= "never" then
    return nil, ("a table with the field %s"):format(check.shown(field))
  end
  if field == "after" and not (type(value) == "number" and value >= 0 and value < math.huge)
    or field == "again" and type(value) ~= "boolean" then
    return nil, ("{ %s = %s }"):format(field, check.shown(value))
  end
  return field, value
end

--- Handles the results of reconcile.
local function handle_results(self, queue, request, outcome, err)
  local counts = self.counts
  if outcome == nil and err == nil or outcome == true then
    counts.done = counts.done + 1
    return queue:forget(request)
  end
  if not outcome then
    return fail(self, queue, request, text_of(self, err == nil and "reconcile has returned false" or err))
  end
  if type(outcome) ~= "table" then
    return fail(self, queue, request, "reconcile has returned " .. check.shown(outcome))
  end
  local field, value = read_outcome(outcome)
  if not field then return fail(self, queue, request, "reconcile has returned " .. value) end
  if field == "never" and value then return give_up(self, queue, request, value) end
  if field == "again" and value then
    counts.again = counts.again + 1
    queue:retry(request)
    return
  end
  queue:forget(request)
  if field == "after" then
    counts.later = counts.later + 1
    queue:add(request, { after = value, priority = queues.rank_of(queue, request) })
  else -- { again = false }, { never = false }, a write
    counts.done = counts.done + 1
  end
end

-- }======

-- {====== Workers ======

--- Counts and logs a call that has taken too long, and has returned or raised by itself.
local function report_late(self, request, took)
  self.counts.late = self.counts.late + 1
  log.warn("%s", ("the controller '%s' has worked on %s for %.3g s, and its timeout is %g s: it has not "
    .. "waited, or has caught its cancellation"):format(self.name, check.shown(request), took, self.timeout))
end

--- Calls reconcile for the request of a slot. Raises if the task was cancelled: the slot then still has the request.
local function reconcile(self, slot)
  local queue, request, now, timeout = slot.queue, slot.request, self.now, self.timeout
  local context = { request = request, retries = queue:retries(request), store = slot.store, controller = self }
  local begun, limit = now(), {}
  slot.begun, limit.ends_at = begun, timeout and begun + timeout
  local ok, outcome, err = driver.get().limit(limit, errors.attempt, self.reconcile, request, context)
  local took, is_late = now() - begun, timeout and now() >= limit.ends_at
  local raised = not ok and outcome
  if raised and driver.is_cancellation(raised.err) then error(raised.err, 0) end
  self.counts.calls, self.seconds = self.counts.calls + 1, self.seconds + took
  histograms.add(self.times, took)
  if raised and is_late and errors.code_of(raised.err) == "cancelled" then
    self.counts.late = self.counts.late + 1
    fail(self, queue, request, ("it has taken longer than %g s, and was cancelled"):format(timeout))
  else
    if is_late then report_late(self, request, took) end
    if ok then
      handle_results(self, queue, request, outcome, err)
    else
      self.counts.raised = self.counts.raised + 1
      fail(self, queue, request, log.failure(self, raised))
    end
  end
  queue:done(request)
  slot.has_request, slot.request = false, nil
end

--- Works on requests until the queue is closed and empty, or the worker was cut short. A request that an earlier task
-- has left is queued again first.
local function work_on(self, slot)
  local queue, slice = slot.queue, slices.new(AT_ONCE)
  if slot.has_request then
    local request = slot.request
    slot.has_request, slot.request = false, nil
    queues.give_back(queue, request)
  end
  while not slot.is_cut do
    local request = queue:get()
    if request == nil then return end
    slot.has_request, slot.request = true, request
    reconcile(self, slot)
    slices.pass(slice)
  end
end

local end_slot, end_with

--- The function of a worker.
local function work(slot)
  local self = slot.controller
  slot.task = driver.get().current()
  local ok, raised = errors.attempt(work_on, self, slot)
  if not ok then
    if driver.is_cancellation(raised.err) and not slot.is_cut then
      error(raised.err, 0) -- the worker is started again
    elseif not slot.is_cut then
      end_with(self, slot.run, errors.new("internal", "keywatch: a worker has failed: " .. raised.traceback))
    end
  end
  end_slot(self, slot)
end

--- Returns the number of calls that a run makes now.
local function count_busy(run)
  local busy = 0
  for _, slot in ipairs(run.slots) do
    if slot.has_request then busy = busy + 1 end
  end
  return busy
end

--- Cancels the running workers, and drops queued requests. Each worker ends at its next wait.
local function cut_short(run)
  if run.is_cut then return end
  local busy, depth = count_busy(run), run.queue:count()
  run.cut_calls, run.cut_requests = run.cut_calls + busy, run.cut_requests + depth
  run.is_cut = true
  for _, slot in ipairs(run.slots) do
    slot.is_cut = true
    if slot.worker and not slot.has_ended then slot.worker:stop(true) end
  end
  queues.drop_queued(run.queue)
end

-- The poller of a controller that is not idle.
local watchdog_methods = {}
local watchdog_mt = { __index = watchdog_methods }

--- Cuts a stop short at its timeout, even if its caller no longer waits, and ends the slots whose tasks were killed.
-- Returns the seconds until that timeout, or nil.
function watchdog_methods:poll()
  local controller, soonest = self.controller, nil
  local run, now = controller.present, controller.now()
  if run.cut_at and not run.is_cut then
    if now >= run.cut_at then cut_short(run) else soonest = run.cut_at - now end
  end
  for _, slot in ipairs(run.is_cut and run.slots or NONE) do
    if slot.is_cut and (not slot.task or slot.task.state == "done") then end_slot(controller, slot) end
  end
  return soonest
end

-- }======

-- {====== Start and stop ======

--- Makes the controller idle: all work of its run has ended.
local function finish_stop(self)
  if self.state ~= "stopping" then return end
  driver.get().detach(self.watchdog)
  if self.present.is_cut then queues.drop_queued(self.present.queue) end -- a worker has returned its request
  if self.state ~= "stopping" then return end
  self.state = "idle"
  self.changed:set_for_all()
end

--- Cuts a run short after so many seconds, unless that is due earlier.
local function limit_stop(self, run, seconds)
  local at = self.now() + math.max(0, seconds)
  if run.cut_at and run.cut_at <= at then return end
  run.stop_seconds, run.cut_at = seconds, at
end

--- Begins to stop a run. Workers end when the queue is empty, or after so many seconds.
local function begin_stop(self, run, seconds)
  if self.present ~= run or self.state == "idle" then return end
  limit_stop(self, run, seconds)
  if self.present ~= run or self.state == "stopping" or self.state == "idle" then return end
  self.state = "stopping"
  for _, one in ipairs(run.sources) do one.kind.stop(one) end
  if run.starter then run.starter:stop(true) end
  run.queue:close()
  if run.live == 0 then finish_stop(self) end
end

--- Ends a run because of an error. Queued requests are dropped: without its sources a controller would act on old data.
function end_with(self, run, err)
  if self.present ~= run or self.state == "stopping" or self.state == "idle" then return end
  run.failure = err
  local depth = run.queue:count()
  log.error("%s", ("the controller '%s' ends: %s%s"):format(self.name, errors.text_of(err),
    depth > 0 and ("; %d requests are dropped"):format(depth) or ""))
  begin_stop(self, run, STOP_TIMEOUT)
  queues.drop_queued(run.queue)
end

--- Notes that a worker has ended. The last one makes the controller idle.
function end_slot(self, slot)
  local run = slot.run
  if slot.has_ended then return end
  slot.has_ended, run.live = true, run.live - 1
  if slot.has_request then
    slot.has_request = false
    run.queue:done(slot.request)
  end
  if run.live == 0 and self.present == run then finish_stop(self) end
end

--- Starts the workers.
local function start_workers(self, run)
  local slots = {}
  for i = 1, self.workers do
    slots[i] = {
      controller = self, run = run, queue = run.queue, store = run.store, worker = nil, task = nil,
      has_request = false, request = nil,
      begun = 0,
      is_cut = false,    -- the worker was cancelled permanently
      has_ended = false,
    }
  end
  if self.present ~= run or self.state ~= "syncing" then return end
  run.slots, run.live, self.state = slots, #slots, "running" -- atomic
  for _, slot in ipairs(slots) do
    local worker = workers.start(work, slot)
    slot.worker = worker
    if slot.is_cut then worker:stop(true) end -- by a finalizer
  end
  self.changed:set_for_all()
end

--- Returns the error of a source that has not started, or not synced.
local function source_error(one, err, what)
  return errors.new(err.code, ("keywatch: %s %s: %s"):format(one.title, what, (err.message:gsub("^keywatch: ", ""))))
end

--- Starts the sources, waits for them, and then starts the workers.
local function begin(self, run)
  local d = driver.get()
  local deadline = d.now() + self.sync_timeout
  for _, one in ipairs(run.sources) do
    if not one.is_started then
      local ok, err = one.kind.start(one)
      if not ok then return end_with(self, run, source_error(one, err, "cannot be started")) end
      one.is_started = true
      if self.present ~= run or self.state ~= "syncing" then return one.kind.stop(one) end -- by a finalizer
    end
  end
  for _, one in ipairs(run.sources) do
    local ok, err = one.kind.wait_synced(one, math.max(0, deadline - d.now()))
    if not ok then return end_with(self, run, source_error(one, err, "has not synced")) end
  end
  start_workers(self, run)
end

--- The function of the task that begins a run.
local function begin_safely(run)
  local self = run.controller
  local ok, raised = driver.attempt(begin, self, run)
  if ok then return end
  end_with(self, run, errors.new("internal", "keywatch: the start has failed: " .. raised.traceback))
end

--- Starts the controller, by the method `name`.
local function begin_run(self, store, name)
  local d = driver.get()
  if store == nil then store = self.given_store end
  local run = {
    controller = self, store = store, queue = queues.new { name = self.name, limiter = self.limiter }, sources = {},
    slots = {}, -- one for each worker
    live = 0,   -- workers that have not ended
    stop_seconds = nil, -- the timeout of the stop
    cut_at = nil,       -- the time at which the workers are cancelled permanently
    is_cut = false,     -- they were cancelled
    cut_calls = 0,      -- calls that were cancelled then
    cut_requests = 0,   -- requests that were dropped then
    starter = nil,      -- the worker that starts the sources
    failure = nil,      -- the error that the run ends with
  }
  for i, described in ipairs(self.described) do
    local function on_end(err) end_with(self, run, err) end
    run.sources[i] = sources.new(described, self.name, run.queue, self.tally, on_end)
  end
  if self.state == "stopping" then check.misuse("%s: the controller '%s' is being stopped", name, self.name) end
  if self.state ~= "idle" then check.misuse("%s: the controller '%s' is started", name, self.name) end
  self.present, self.state = run, "syncing" -- atomic
  d.attach(self.watchdog)
  local starter = workers.start(begin_safely, run)
  run.starter = starter
  if self.present ~= run or self.state == "idle" then starter:stop(true) end -- by a finalizer
  if self.state == "idle" then d.detach(self.watchdog) end
end

--- Raises if the controller belongs to a manager.
local function check_unmanaged(self, name)
  if not self.manager then return end
  check.misuse("%s: the controller '%s' belongs to a manager, which starts and stops it", name, self.name)
end

--- Starts the controller. Does not wait. `store`, if given, replaces the store of the options in the context of
-- reconcile: for a leader, its fence.
function controller_methods:start(store)
  check.argument(store == nil or check.is_store_like(store), 1, "start", "store or client", store)
  check_unmanaged(self, "start")
  begin_run(self, store, "start")
end

--- Starts a controller that belongs to a manager.
local function start_managed(self, store)
  begin_run(self, store, "start")
end

--- True if all sources have synced, and the workers run.
function controller_methods:has_synced()
  return self.state == "running"
end

--- Adds a request. Options: `after`, `priority`. Returns false if the controller is not started, or is being stopped.
function controller_methods:add(request, opts)
  local queue = self.present and self.present.queue or self.no_queue
  return queue:add(request, opts)
end

--- True if the caller is a call of reconcile of a controller.
local function is_inside(self)
  local current, run = driver.get().current(), self.present
  for _, slot in ipairs(run and run.slots or {}) do
    if current and slot.task == current then return true end
  end
  return false
end

--- Waits until a run has ended, `seconds` at most. Returns false if it has not.
local function await_end(self, run, seconds)
  return driver.await(self, "changed", seconds and driver.get().now() + seconds, function()
    return self.present ~= run or self.state == "idle"
  end)
end

--- Stops the controller. Sources end, and queued requests are finished, for so many seconds; then running calls are
-- cancelled, at their next wait, and the rest is dropped. Returns true; or nil and an error of code "timeout" if
-- something was cut short. May be called by reconcile, and does not wait then.
function controller_methods:stop(timeout)
  check.timeout(timeout, "stop")
  local run, seconds = self.present, timeout or STOP_TIMEOUT
  if self.state == "idle" then return true end
  local inside = is_inside(self)
  if not inside and seconds > 0 then driver.get().check_wait() end
  begin_stop(self, run, seconds)
  if inside then return true end
  local has_ended = await_end(self, run, seconds)
  if not has_ended then
    cut_short(run)
    has_ended = await_end(self, run, seconds > 0 and GRACE or 0)
  end
  if has_ended and run.cut_calls == 0 and run.cut_requests == 0 then return true end
  return nil, errors.new("timeout", ("keywatch: the controller '%s' has not stopped within %g s: %d calls were "
    .. "cancelled, and %d requests dropped"):format(self.name, run.stop_seconds, run.cut_calls, run.cut_requests))
end

--- Waits until the controller has stopped. Returns true; or nil and the error that it has ended with, or one of code
-- "timeout".
function controller_methods:join(timeout)
  check.timeout(timeout, "join")
  local run = self.present
  if self.state ~= "idle" then
    if is_inside(self) then check.misuse("join: reconcile cannot wait for the end of its controller") end
    if not (timeout and timeout <= 0) then driver.get().check_wait() end
    if not await_end(self, run, timeout) then
      return nil, errors.new("timeout", ("keywatch: the controller '%s' has not stopped yet"):format(self.name))
    end
  end
  if run and run.failure then return nil, run.failure end
  return true
end

--- Starts the controller, and waits until it has stopped. Returns as join. If the caller is cancelled, the controller
-- begins to stop.
function controller_methods:run()
  driver.get().check_wait()
  check_unmanaged(self, "run")
  begin_run(self, nil, "run")
  local run = self.present
  local ok, result, err = pcall(self.join, self)
  if ok then return result, err end
  begin_stop(self, run, STOP_TIMEOUT)
  error(result, 0)
end

-- }======

--- Returns the status of the controller. Does not wait.
function controller_methods:status()
  local run, now, longest, busy, overdue = self.present, self.now(), 0, 0, 0
  for _, slot in ipairs(run and run.slots or {}) do
    if slot.has_request then
      local took = now - slot.begun
      busy, longest = busy + 1, math.max(longest, took)
      if self.timeout and took > self.timeout then overdue = overdue + 1 end
    end
  end
  local status = {
    name = self.name, state = self.state, workers = self.workers, busy = busy, overdue = overdue,
    longest_call_seconds = longest, seconds = self.seconds, source_failures = self.tally.failures,
    failure = run and run.failure, queue = run and run.queue:status(), stuck = {},
  }
  for _, one in ipairs(run and self.state ~= "idle" and run.sources or {}) do
    for name, took in pairs(sources.stuck_calls(one)) do status.stuck[name] = took end
  end
  for name, n in next, self.counts do status[name] = n end
  return status
end

--- Returns the name and the state.
function controller_mt:__tostring()
  return ("keywatch.controller<%s %s>"):format(self.name, self.state)
end

local OPTIONS = {
  name = "string", sources = "table", reconcile = "function", workers = "count", timeout = "some seconds",
  sync_timeout = "some seconds", store = "store", limiter = limiters.KIND,
}

--- Returns the descriptions of a list of sources. Raises if the list is invalid.
local function describe(list)
  local described = {}
  if list.timeout ~= nil then check.misuse("%s: there is no option 'timeout' in 'sources'", NAME) end
  for i = 1, check.list(list, NAME) do described[i] = sources.parse(list[i], i, NAME) end
  if #described == 0 then check.misuse("%s: option 'sources' is empty", NAME) end
  return described
end

--- Returns a controller. It is idle.
local function new(opts)
  check.argument(type(opts) == "table", 1, NAME, "table", opts)
  check.known(opts, NAME, OPTIONS)
  check.needed(opts, NAME, "name", "sources", "reconcile")
  local d = driver.get()
  local no_queue = queues.new()
  no_queue:close()
  local self = setmetatable({
    name = opts.name,
    described = describe(opts.sources),
    reconcile = opts.reconcile,
    workers = opts.workers or 1,
    timeout = opts.timeout,
    sync_timeout = opts.sync_timeout or SYNC_TIMEOUT,
    limiter = opts.limiter,
    given_store = opts.store,
    manager = nil,         -- the manager that starts and stops the controller, if there is one
    now = d.now,
    state = "idle",
    present = nil,         -- the run: the present one, or the last one
    no_queue = no_queue,   -- for requests before the first start, which it refuses
    watchdog = nil,
    changed = d.event(),   -- set when the state has changed
    seconds = 0,           -- that all calls have taken
    times = histograms.new(histograms.RECONCILE), -- of all calls
    tally = { failures = 0 }, -- errors of `map` and `where` in all sources
    counts = { calls = 0, done = 0, later = 0, again = 0, failed = 0, raised = 0, late = 0, given_up = 0 },
  }, controller_mt)
  self.watchdog = setmetatable({ controller = self }, watchdog_mt)
  return self
end

return {
  new = new, mt = controller_mt, start_managed = start_managed, is_inside = is_inside,
}
