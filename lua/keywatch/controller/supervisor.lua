-- SPDX-License-Identifier: MIT
--- supervisor: starts the components of a manager in order, watches them, and stops them in reverse order. See
-- component.lua.
--
--           start                          stop, a signal, or a failure              everything has stopped
--   NEW -----------> STARTED (is_ready) -----------------------------------> STOPPING ----------------------> STOPPED
--    +------------------------------------------- stop ----------------------------------------------------------^
--
-- One task does one step at a time: it starts or stops one component. `choose` finds the next step only from the state.
-- So the task can be cancelled at any wait, as at the end of keywatch.run, and restarted. The step itself is
-- another task, because starts and stops may wait; so a step that has timed out, or is no longer needed, can be
-- cancelled. A step that still runs after that is abandoned.
--
-- Order of start: caches and informers; components that need no leadership; the elector; and while this process leads,
-- the others. The started components are in `stack`, and are stopped from its end. Caches and informers are closed
-- last.
--
-- A term is a time in which this process leads, with a margin. If the lease of the leadership is not renewed, the term
-- ends when a third of the TTL is left, so that all components that need the leadership have stopped before another
-- process can lead. A component that was started in another term than the present one is stopped, and started again.
--
-- All functions take the manager, whose fields are described in manager.lua.

local core = require "keywatch.core"
local driver = require "keywatch.task.driver"
local errors = require "keywatch.support.errors"
local bases = require "keywatch.concurrency.base"
local health = require "keywatch.controller.health"
local log = require "keywatch.support.log"
local metrics = require "keywatch.controller.metrics"
local sessions = require "keywatch.concurrency.session"
local components = require "keywatch.controller.component"
local workers = require "keywatch.task.worker"

local RESERVE = 2 -- seconds of a stop that are reserved for other components; at most a tenth of the stop
local SLACK = 0.1 -- seconds for a cancelled step, or a stop with a timeout of 0, to end
local GRACE = 1.5 -- seconds beyond the timeout for other stops: controllers wait for cancelled calls
local LOOK = 1    -- seconds between two checks of components that do not report their failure

-- {====== The end ======

--- Returns an error about a component: its code is that of `err`, if that is an error of keywatch.
local function error_about(record, text, err)
  local code = errors.code_of(err)
  return errors.new(core.errors[code] and code or "internal",
    ("keywatch: %s %s: %s"):format(record.title, text, components.text_of(err)))
end

--- Closes a cache or an informer.
local function close(record)
  local ok, err = pcall(record.kind.stop, record, 0)
  record.state = "stopped"
  if not ok then log.error("%s", ("%s could not be closed: %s"):format(record.title, errors.text_of(err))) end
end

--- Ends the manager, since all started components have stopped: closes caches and informers.
local function finish(self)
  if self.state == "stopped" then return end
  for i = #self.records, 1, -1 do
    local record = self.records[i]
    if record.kind.runs_from_creation then close(record) end
    components.release(record)
  end
  if self.poller then driver.get().detach(self.poller) end
  if self.monitor then self.monitor:close() end
  self.state = "stopped"
  log.debug("%s", "the manager has stopped")
  self.news:set()
end

--- Begins to stop, or makes a running stop end earlier.
local function begin_stop(self, timeout)
  local deadline = driver.get().now() + math.max(0, timeout)
  if self.state == "new" then return finish(self) end
  if self.state == "started" then
    self.state, self.is_ready = "stopping", false
    self.stop_deadline, self.reserve = deadline, math.min(RESERVE, timeout / 10)
  elseif self.state == "stopping" and deadline < self.stop_deadline then
    local step = self.step
    self.stop_deadline, self.reserve = deadline, 0
    if step and step.verb == "stop" then step.deadline = math.min(step.deadline, deadline + SLACK) end
  end
  self.changed:set()
  self.news:set()
end

--- Ends the manager because of an error. The first one counts.
local function fail(self, err)
  if self.state ~= "started" then return end
  self.failure = err
  log.error("%s", "the manager ends: " .. components.text_of(err))
  begin_stop(self, self.stop_timeout)
end

-- }======

-- {====== Choosing ======

--- True if a component may run now.
local function may_run(self, record)
  return not record.owner and (not record.is_led or self.term ~= nil)
end

--- Returns the number of the group of a component: groups are started one after the other.
local function group_of(self, record)
  if record.kind.runs_from_creation then return 1 end
  if record == self.own_elector then return 3 end
  return record.is_led and 4 or 2
end

--- Returns the next component to start, or nil.
local function find_idle(self)
  local found, group
  for _, record in ipairs(self.records) do
    if record.state == "idle" and may_run(self, record) then
      local of = group_of(self, record)
      if not found or of < group then found, group = record, of end
    end
  end
  return found
end

--- True if a component needs a leadership that has ended, or may end soon.
local function is_deposed(self, record)
  return record.is_led and record.term ~= self.term
end

--- Returns the last component in the stack that must stop because its leadership has ended, or nil.
local function find_deposed(self)
  for i = #self.stack, 1, -1 do
    local record = self.stack[i]
    if is_deposed(self, record) then return record end
  end
end

--- Returns a component and its next step, "start" or "stop"; or nil if there is none.
local function choose(self)
  if self.state == "stopping" then return self.stack[#self.stack], "stop" end
  local record = find_deposed(self)
  if record then return record, "stop" end
  record = find_idle(self)
  if record then return record, "start" end
end

-- }======

-- {====== Steps ======

--- Changes the state of a component.
local function set_state(record, state)
  record.state, record.since = state, driver.get().now()
end

--- The function of the task of a step.
local function do_step(self, step)
  local record = step.record
  local ok, result, err
  if step.verb == "start" then
    ok, result, err = errors.attempt(record.kind.start, record, step.store, self.sync_timeout)
  else
    local fn = step.is_deposed and record.kind.drop or record.kind.stop
    ok, result, err = errors.attempt(fn, record, step.timeout)
  end
  step.is_cancelled = not ok and driver.is_cancellation(result.err)
  step.ok, step.result, step.err, step.is_done = ok, result, err, true
  self.changed:set()
end

--- Returns the seconds for the stop of a component.
local function time_to_stop(self, record)
  local now, left = driver.get().now(), math.huge
  if record.is_hurried then return 0 end
  if self.state == "stopping" then left = self.stop_deadline - now - (#self.stack > 1 and self.reserve or 0) end
  if is_deposed(self, record) then left = math.min(left, self.term_deadline - now) end
  return math.max(0, left)
end

--- Returns the store argument for `start` of a component: see manager_methods:add.
local function store_for(self, record)
  local fence = record.is_led and self.term.fence or nil
  local own = components.own_store(record)
  if own == nil or fence and rawequal(own, self.outer) then return fence or self.outer end
  return own
end

--- Begins a step.
local function begin_step(self, record, verb)
  local step = {
    record = record, verb = verb, term = self.term, task = nil, deadline = nil, timeout = nil, store = nil,
    is_deposed = false, is_done = false, is_cancelled = false, is_cut = false, ok = nil, result = nil, err = nil,
  }
  if verb == "start" then
    step.store = store_for(self, record)
    set_state(record, "starting")
    record.term = self.term
  else
    step.is_deposed = is_deposed(self, record)
    step.timeout = time_to_stop(self, record)
    step.deadline = driver.get().now() + step.timeout + (step.timeout > 0 and GRACE or SLACK)
    if record.watch then record.watch:stop(true) end
    record.watch = nil
    set_state(record, "stopping")
  end
  self.step = step
  step.task = driver.get().spawn_own(do_step, self, step)
  step.task.is_supervised = true
end

--- Removes a component from the stack.
local function remove(self, record)
  for i = #self.stack, 1, -1 do
    if self.stack[i] == record then table.remove(self.stack, i) end
  end
end

--- Called when a component that reports its end has ended, without having been stopped by the manager.
local function note_end(self, record, err)
  if record.state ~= "started" then return end
  remove(self, record)
  set_state(record, err and "failed" or "stopped")
  if err then return fail(self, error_about(record, "has ended", err)) end
  log.info("%s", record.title .. " has been stopped by the program")
  self.news:set()
end

--- The function of a worker: waits for the end of a controller or an elector.
local function await_end(watched)
  local record = watched.record
  local _, err = record.object:join()
  if record.watch == watched.worker then note_end(watched.manager, record, err) end
end

--- Notes that a component has been started.
local function note_start(self, record)
  set_state(record, "started")
  metrics.look(record)
  if record.kind.runs_from_creation then return end
  table.insert(self.stack, record)
  if record.kind ~= components.of_controller and record.kind ~= components.of_elector then return end
  local watched = { manager = self, record = record, worker = nil }
  watched.worker = workers.start(await_end, watched)
  record.watch = watched.worker
end

--- Handles the end of a start. A cancelled start has not started anything.
local function after_start(self, step)
  local record = step.record
  if step.ok and step.result then return note_start(self, record) end
  if step.is_cancelled and step.is_cut then return set_state(record, "idle") end
  set_state(record, "failed")
  if record.kind.runs_from_creation then return fail(self, error_about(record, "has not synced", step.err)) end
  fail(self, error_about(record, "could not be started", step.ok and step.err or step.result.traceback))
end

--- Notes that a component has not stopped in order. After the loss of a leadership the manager then ends: the component
-- cannot be restarted, and may still change data that belong to another process now.
local function note_bad_stop(self, record, text)
  log.warn("%s", ("%s has not stopped properly: %s"):format(record.title, text))
  table.insert(self.cut_short, record.title)
  if self.state == "started" then
    fail(self, errors.new("internal", ("keywatch: %s needs a leadership that is lost, and has not stopped: %s"):format(
      record.title, text)))
  end
end

--- Handles the end of a stop. A stop that was cancelled is tried once more, with a timeout of 0, so that a
-- component which would have waited for its work drops it.
local function after_stop(self, step)
  local record = step.record
  if step.is_cancelled and step.is_cut and step.timeout > 0 then
    record.is_hurried = true
    return
  end
  remove(self, record)
  record.is_hurried = false
  metrics.look(record)
  set_state(record, self.state == "stopping" and "stopped" or "idle")
  if step.is_deposed and record.kind.is_idle and record.kind.is_idle(record) then return end
  if step.is_cancelled then
    note_bad_stop(self, record, ("it was cancelled after %.3g s"):format(step.timeout))
  elseif not step.ok then
    note_bad_stop(self, record, step.result.traceback)
  elseif not step.result then
    note_bad_stop(self, record, components.text_of(step.err))
  end
end

--- Abandons a step that still runs after its cancellation. A component that may have started is stopped.
local function leave_behind(self, step)
  local record = step.record
  if step.verb == "start" then
    log.warn("%s", ("the start of %s ignores its cancellation"):format(record.title))
    set_state(record, "started")
    if not record.kind.runs_from_creation then table.insert(self.stack, record) end
  elseif step.timeout > 0 then
    record.is_hurried = true
  else
    remove(self, record)
    set_state(record, "stopped")
    note_bad_stop(self, record, "it ignores its cancellation, and is abandoned")
  end
end

--- Handles the present step, if that has ended.
local function finish_step(self)
  local step = self.step
  if not step then return end
  if not step.is_done and step.task.state == "done" then -- with the end of keywatch.run, before it began
    step.is_done, step.is_cancelled, step.ok, step.result = true, true, false, { traceback = "cancelled" }
  end
  if not step.is_done then return end
  self.step = nil
  if step.is_cancelled and not step.is_cut then -- with the end of keywatch.run: it is repeated
    set_state(step.record, step.verb == "start" and "idle" or "started")
  elseif step.verb == "start" then
    after_start(self, step)
  else
    after_stop(self, step)
  end
  self.news:set()
end

--- Returns the time at which the present step must end, or nil.
local function end_of(self, step)
  if step.is_cut then return step.deadline end
  if step.verb == "start" then
    local is_wanted = self.state == "started" and (not step.record.is_led or step.term == self.term)
    return not is_wanted and 0 or nil
  end
  return step.deadline
end

--- Cancels the present step; or abandons it, if it was cancelled before.
local function cut_step(self, step)
  if step.is_cut then
    self.step = nil
    leave_behind(self, step)
    self.news:set()
  else
    step.is_cut, step.deadline = true, driver.get().now() + SLACK
    step.task:cancel()
  end
end

--- Begins the next step, if there is none. Returns false if there is nothing left to do.
local function begin_next(self)
  if self.step then return true end
  local record, verb = choose(self)
  if record then begin_step(self, record, verb) elseif self.state == "stopping" then return false end
  return true
end

--- The function of the supervisor.
local function supervise(self)
  local d = driver.get()
  self.supervising = d.current()
  while true do
    finish_step(self)
    if not begin_next(self) then return finish(self) end
    local step = self.step
    local at = step and end_of(self, step)
    local left = driver.time_left(at)
    if left == 0 and not step.is_done then
      cut_step(self, step)
    else
      self.changed:wait(left)
    end
  end
end

-- }======

-- {====== Leading ======

--- Returns the part of the TTL that is reserved for the stop of components that need the leadership.
local function margin(self)
  return self.ttl / 3
end

--- Ends the present term: the components that were started in it must stop.
local function end_term(self)
  if not self.term then return end
  local deadline, step = driver.get().now() + math.min(self.stop_timeout, 0.75 * margin(self)), self.step
  self.term, self.is_ready, self.term_deadline = nil, false, deadline
  if step and step.verb == "stop" and step.record.is_led then step.deadline = math.min(step.deadline, deadline) end
  self.changed:set()
end

--- Begins a term.
local function begin_term(self)
  self.term, self.is_ready = { fence = self.leading.fence }, false
  self.changed:set()
  self.news:set()
end

--- Returns the time from which the leadership may be lost soon: its lease should have been renewed twice by then.
-- Returns nil for a store in this process. The clock is compared with this time, and not a difference with the margin:
-- differences are rounded, and a poll that is due sooner than the clock's resolution would be due forever.
local function endangered_at(self)
  local deadline = sessions.lost_at(self.leading.session)
  return deadline and deadline - margin(self)
end

--- Ends the term if the leadership may be lost soon, so that its components have stopped by then; and begins another
-- one when the leadership is safe again. Returns the seconds until it may be lost soon, or nil.
local function look_at_term(self)
  if not self.leading then return nil end
  local now, at = driver.get().now(), endangered_at(self)
  local is_endangered = at ~= nil and now >= at
  if self.term and is_endangered then
    log.warn("%s", ("the leadership of '%s' could not be renewed in time: components that need it stop"):format(
      self.own_elector.name))
    end_term(self)
  elseif not self.term and not is_endangered and self.state == "started" then
    log.info("%s", ("the leadership of '%s' has been renewed"):format(self.own_elector.name))
    begin_term(self)
  end
  return self.term and at and math.max(0, at - now) or nil
end

--- True if a component that needs the leadership has not stopped since its term has ended.
local function has_deposed(self)
  local step = self.step
  return step ~= nil and is_deposed(self, step.record) or find_deposed(self) ~= nil
end

--- Waits until all components of ended terms have stopped, or until keywatch.run ends, after which nothing stops them.
local function await_deposed(self)
  while self.state ~= "stopped" and self.supervising.state ~= "done" and has_deposed(self) do self.news:wait() end
end

--- Ends the leadership.
local function end_leading(self)
  self.leading = nil
  end_term(self)
end

--- Called by the elector when this process leads, in a task that the elector cancels at the end of the leadership.
-- Returns when all components that need the leadership have stopped: the key of the election is deleted only then.
local function on_lead(self, fence, leadership)
  local forever = driver.get().event()
  self.leading = { fence = fence, session = leadership.session }
  begin_term(self)
  local _, err = pcall(forever.wait, forever)
  end_leading(self)
  driver.get().shield(margin(self), await_deposed, self)
  error(err, 0)
end

--- Called by the elector when this process no longer leads. The elector campaigns again after this returns.
local function on_lose(self)
  end_leading(self)
  await_deposed(self)
end

-- }======

-- {====== Checks ======

--- Returns why the store or the client of the manager has become unusable, or nil.
local function store_failure(self)
  local root = self.root
  if bases.is_local(root) then
    if root:run_due() == false then return errors.closed("store") end
  elseif root:state().state == "closed" then
    return errors.closed("client")
  end
end

--- Checks for ended components, and for trouble.
local function look(self, now)
  local err = store_failure(self)
  if err then return fail(self, errors.new("closed", "keywatch: the store of the manager is closed")) end
  for _, record in ipairs(self.records) do
    local is_running = record.state == "started"
    local failure = is_running and not record.watch and record.kind.failure(record)
    if failure then
      set_state(record, "failed")
      remove(self, record)
      return fail(self, error_about(record, "has ended", failure))
    end
    health.look(record, now)
  end
end

--- True if everything that may run has been started, and has synced.
local function is_all_synced(self)
  if self.step or find_deposed(self) then return false end
  for _, record in ipairs(self.records) do
    if may_run(self, record) and record.state ~= "stopped" then
      if record.state ~= "started" or not record.kind.is_synced(record) then return false end
    end
  end
  return true
end

local poller_methods = {}
local poller_mt = { __index = poller_methods }

--- Does the due checks. Called by the driver in each turn of the loop.
function poller_methods:poll()
  self = self.manager
  local now = driver.get().now()
  local soonest = look_at_term(self)
  if self.state ~= "started" then return soonest end
  if not self.is_ready and is_all_synced(self) then
    self.is_ready = true
    self.news:set()
  end
  if now >= self.look_at then
    self.look_at = now + LOOK
    look(self, now)
  end
  local left = math.max(0, self.look_at - now)
  return soonest and math.min(soonest, left) or left
end

-- }======

--- In the child after a fork, called by the driver: the leadership stays with the parent, so components that need it
-- stop here, and the elector takes part in the election again.
function poller_methods:after_fork()
  local manager = self.manager
  local record = manager.own_elector
  if not record or manager.state ~= "started" then return end
  end_leading(manager)
  if record.state == "started" then
    if record.watch then record.watch:stop() end
    record.watch = nil
    remove(manager, record)
    set_state(record, "idle")
  end
  manager.changed:set()
end

--- Starts everything. Does not wait.
local function start(self)
  self.poller = setmetatable({ manager = self }, poller_mt)
  self.state, self.look_at = "started", driver.get().now() + LOOK
  driver.get().attach(self.poller)
  self.supervisor = workers.start(supervise, self)
end

return {
  start = start, begin_stop = begin_stop, fail = fail, close = close, on_lead = on_lead, on_lose = on_lose,
  is_all_synced = is_all_synced,
}
