-- SPDX-License-Identifier: MIT
--- elector: takes part in an election repeatedly, and calls functions of the program when it begins to lead, and when
-- it has lost the leadership.
--
--           start                 campaign                   lost, stop, or on_lead has raised
--   IDLE ---------> WAITING -----------------> LEADING ----------------------------------------+
--                      ^                    (on_lead runs)                                     |
--                      |                                                                       v
--                      +---- unless stop ---- on_lose <---- the key is deleted <------- on_lead is cancelled, and
--                                                |                                       waited for
--                                                +---- stop ----> IDLE
--
-- A term is one leadership, with a session of its own: the end of the lease deletes its key. on_lead(fence, leadership)
-- runs in a task of its own. The next campaign begins only when that task has ended and on_lose has returned, so terms
-- of this process never overlap.
--
-- No other process leads before the key is deleted. Therefore a stop waits for on_lead first, and then deletes the key.
-- If on_lead does not end in time, the key is neither deleted nor renewed: it expires with its lease.
--
-- The task of the elector can be cancelled at any wait, as at the end of keywatch.run, and is then restarted (see
-- task/worker.lua). Its unfinished work is in the field `term`.
--
-- After a fork the elector belongs to the parent process. The child's elector is idle.

local check = require "keywatch.support.check"
local core = require "keywatch.core"
local driver = require "keywatch.task.driver"
local errors = require "keywatch.support.errors"
local exits = require "keywatch.task.exits"
local fences = require "keywatch.concurrency.fence"
local log = require "keywatch.support.log"
local observers = require "keywatch.concurrency.observer"
local entries = require "keywatch.concurrency.entry"
local sessions = require "keywatch.concurrency.session"
local workers = require "keywatch.task.worker"

local NAME = "elector"
local TTL = 15            -- seconds: as client-go's controllers have it
local STOP_TIMEOUT = 30   -- seconds
local GIVE_BACK = 5       -- seconds for the request that deletes the key
local OPEN = 10           -- seconds for the request of a session
local FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10 -- seconds after a failed campaign or term

local elector_methods, elector_mt = check.class "keywatch.elector"

-- {====== The fence of all terms ======

-- The held key of an elector's fence without a term: see concurrency/fence.lua.
local nothing_methods = {}
local nothing_mt = { __index = nothing_methods }

--- Returns why no key is held.
function nothing_methods:reason()
  return errors.new("lost", ("keywatch: '%s' does not lead '%s'"):format(self.elector.id, self.elector.name))
end

--- There is nothing to lose.
function nothing_methods.lose() end

--- Binds the fence to a leadership; to none if that is nil. Atomic.
local function bind_fence(self, leadership)
  local held, nothing = self.held, self.nothing
  if leadership then
    held.key, held.revision, held.held_key = leadership.key, leadership.revision, leadership.held_key
  else
    held.key, held.revision, held.held_key = self.prefix, 0, nothing
  end
end

-- }======

-- {====== Functions of the program ======

--- Calls a function of the program. Returns true, or false and its error, which is logged. Raises if the task was
-- cancelled during the call.
local function call(self, name, ...)
  local fn = self[name]
  if not fn then return true end
  local ok, raised = driver.attempt(fn, ...)
  if ok then return true end
  log.error({ elector = self.name }, "%s", ("'%s' of the elector '%s' has failed: %s"):format(name, self.name,
    log.failure(self, raised)))
  return false, raised.err
end

--- The function of the task of a term.
local function lead(self, term)
  local ok, err = call(self, "on_lead", term.leadership:fence(), term.leadership)
  if not ok then term.failure = { err == nil and "nil" or err } end
end

-- }======

-- {====== Interruptible waits ======

--- Calls fn(...), whose waits `stop` may end. Returns its results; or nil if `stop` has ended a wait.
local function interruptible(self, fn, ...)
  if self.is_stopping then return nil end
  local limit = {}
  self.limit = limit
  local ok, result, err = pcall(driver.get().limit, limit, fn, ...)
  self.limit = nil
  if ok then return result, err end
  if driver.is_cancellation(result) or not limit.ends_at or errors.code_of(result) ~= "cancelled" then
    error(result, 0)
  end
end

--- Ends the waits of the elector's task that `stop` may end.
local function interrupt(self)
  if self.limit then driver.get().cut(self.task, self.limit) end
end

-- }======

-- {====== The end ======

--- Makes the elector idle.
local function finish(self)
  self.is_started, self.is_stopping, self.worker, self.follower, self.task = false, false, nil, nil, nil
  self.changed:set()
end

--- In the child after a fork: the elector is the parent's, and here it is idle.
local function look_for_fork(self)
  if not self.is_started or self.pid == core.pid() then return end
  self.worker:stop()
  self.follower:stop()
  self.session, self.term, self.observer, self.observing, self.announced = nil, nil, nil, nil, nil
  self.limit = nil
  bind_fence(self, nil)
  finish(self)
end

-- }======

-- {====== A term ======

--- Waits until the leadership is lost, on_lead has raised, or, unless has_margin is set, a third of the TTL is left, in
-- which the term must end before another process can lead. Returns the reason.
local function await_end(self, term)
  local d, leadership, margin = driver.get(), term.leadership, self.ttl / 3
  while true do
    local is_running = term.task.state ~= "done"
    if term.failure then return term.failure[1] end
    local lost_at, now = not self.has_margin and sessions.lost_at(term.session) or nil, d.now()
    local at = lost_at and lost_at - margin -- compared with the clock, as differences are rounded
    if at and now >= at then
      return errors.new("lost", ("keywatch: the leadership of '%s' could not be renewed in time, and may be lost "
        .. "in %.3g s"):format(self.name, lost_at - now))
    end
    local found, err = d.select { leadership, is_running and term.task or nil, timeout = at and at - now }
    if found == leadership then return err end
  end
end

--- Begins a term.
local function begin_term(self, session, leadership)
  local term = {
    session = session,
    leadership = leadership,
    task = nil,        -- the task that calls on_lead
    failure = nil,     -- { the error that on_lead has raised }
    why = nil,         -- the error that on_lose gets
    is_ending = false, -- on_lead was cancelled, or has ended
    since = driver.get().now(),
    is_over = false,   -- the key is no longer held
  }
  self.session, self.term, self.terms, self.trouble = nil, term, self.terms + 1, nil
  self.failures = 0
  bind_fence(self, leadership)
  log.info("%s", ("'%s' leads '%s', since revision %s"):format(self.id, self.name, tostring(leadership.revision)))
  term.task = driver.get().spawn_own(lead, self, term)
  term.task.is_supervised = true
  self.changed:set()
  return term
end

--- Ends a session, and with it the key of the election. Returns true, or nil and an error: the key then expires with
-- the lease.
local function close_session(self, session)
  local ok, err = session:close { timeout = GIVE_BACK }
  if ok then
    self.leftover = nil
    return true
  end
  log.warn("%s", ("the key of '%s' in the election '%s' could not be deleted, and expires with its lease: %s")
    :format(self.id, self.name, errors.text_of(err)))
  self.leftover = err
end

--- Resigns the leadership of a term.
local function give_back(self, term)
  close_session(self, term.session)
  local held_key = term.leadership.held_key
  if held_key:finish() then held_key.entry:withdraw() end
  bind_fence(self, nil)
  term.is_over = true
  self.changed:set()
end

--- Returns the reason of an interrupted term: the elector is being stopped, or its task was cancelled.
local function why_ended(self, term)
  if term.failure then return term.failure[1] end
  if self.is_stopping then return errors.new("cancelled", "keywatch: the elector is being stopped") end
  return term.leadership:error()
    or errors.new("cancelled", "keywatch: keywatch.run has ended, and on_lead with it")
end

--- Notes that a term ends, and cancels on_lead.
local function begin_end(self, term)
  term.is_ending, term.why = true, term.why or why_ended(self, term)
  log[self.is_stopping and "info" or "warn"]("%s", ("'%s' no longer leads '%s': %s"):format(self.id, self.name,
    errors.text_of(term.why)))
  term.task:cancel()
  self.changed:set()
end

--- Waits until on_lead has ended.
local function await_on_lead(self, term)
  if term.task:join(self.ttl) ~= nil then return end
  log.warn("%s", ("'on_lead' of the elector '%s' is still running %d s after its cancellation: the elector waits "
    .. "until it returns"):format(self.name, self.ttl))
  term.task:join()
end

--- Ends a term: on_lead is cancelled and waited for, the key is deleted, and on_lose is called.
local function end_term(self, term)
  if not term.is_ending then begin_end(self, term) end
  await_on_lead(self, term)
  if not term.is_over then give_back(self, term) end
  self.term = nil -- before on_lose, which is called once
  call(self, "on_lose", term.why)
end

-- }======

-- {====== Campaigns ======

--- Notes that a campaign has failed, and logs the first failure in a row.
local function note_trouble(self, err)
  self.failures = self.failures + 1
  if self.failures == 1 then
    log.warn("%s", ("'%s' cannot take part in the election '%s', and tries again: %s"):format(self.id, self.name,
      errors.text_of(err)))
  end
  self.trouble = err
end

--- Waits until the elector leads. Returns the leadership, or nil and an error.
local function campaign(self)
  local session = self.session
  if not session or session:error() then
    local err
    session, err = self.store:session { ttl = self.ttl, timeout = OPEN }
    if not session then return nil, err end
    self.session, self.trouble = session, nil
  end
  return session:election(self.name):campaign(self.id)
end

--- Takes part in the election once. Returns true if the elector has led and on_lead has not raised; or false.
local function take_part(self)
  local leadership, err = interruptible(self, campaign, self)
  if self.is_stopping then return false end -- a leadership ends with the session
  if not leadership then
    if err.code == "closed" then error(err, 0) end
    note_trouble(self, err)
    return false
  end
  local term = begin_term(self, self.session, leadership)
  term.why = interruptible(self, await_end, self, term)
  if self.is_stopping then return false end
  local lasted = driver.get().now() - term.since
  end_term(self, term)
  if term.failure then self.trouble = term.why end
  return not term.failure or lasted > LONGEST_PAUSE
end

--- Takes part in the election until the elector is stopped.
local function work_on(self)
  local pause = FIRST_PAUSE
  while true do
    if self.pid ~= core.pid() then return look_for_fork(self) end -- a function of the program has forked
    if self.term then end_term(self, self.term) end
    if self.is_stopping then break end
    if take_part(self) then
      pause = FIRST_PAUSE
    elseif not self.is_stopping then
      if self.session and self.session:error() then self.session = nil end
      interruptible(self, driver.get().sleep, pause)
      pause = math.min(LONGEST_PAUSE, 2 * pause)
    end
  end
  local session = self.session
  if session then close_session(self, session) end
  self.session = nil
end

-- }======

-- {====== Following ======

--- Calls on_leader for the leaders of one observer, until that fails or is closed; not while the elector is being
-- stopped. Returns the error, or nil.
local function announce(self, observer)
  while true do
    local kv, err = observer:next()
    if not kv then return err end
    if kv.value ~= self.announced and not self.is_stopping then
      self.announced = kv.value
      call(self, "on_leader", kv.value)
    end
  end
end

--- The function of the second worker: follows the election.
local function observe(self)
  local d, pause = driver.get(), FIRST_PAUSE
  self.observing = d.current()
  while not self.is_stopping and self.pid == core.pid() do
    local ok, observer, err = driver.attempt(self.election.observe, self.election, { timeout = OPEN })
    if not ok then return end -- the store is closed, which the first worker reports
    if observer then
      local before = d.now()
      self.observer = observer -- an earlier one has failed, and need not be closed
      err = announce(self, observer)
      if d.now() - before > LONGEST_PAUSE then pause = FIRST_PAUSE end
    end
    if not err or err.code == "closed" then return end
    d.sleep(pause)
    pause = math.min(LONGEST_PAUSE, 2 * pause)
  end
end

--- Ends the observer, and waits for on_leader.
local function end_observing(self)
  local task = self.observing
  self.follower:stop(true)
  if task and task.state ~= "done" then task:join() end
  local observer = self.observer
  self.observing, self.observer, self.announced = nil, nil, nil
  if observer then observer:close() end
end

-- }======

-- {====== Start and stop ======

--- Takes part until the elector is stopped or fails.
local function work_to_end(self)
  work_on(self)
  if self.is_started then end_observing(self) end -- else this is the child of a fork
end

--- The function of the first worker.
local function work(self)
  if self.pid ~= core.pid() then return look_for_fork(self) end
  self.task = driver.get().current()
  self.limit = nil
  local has_returned, ok, raised = pcall(driver.attempt, work_to_end, self)
  if not has_returned then -- the task was cancelled
    if self.term then driver.finish(end_term, self, self.term) end
    error(ok, 0)
  end
  if not ok then
    if not self.failure then
      local is_ours = errors.code_of(raised.err) ~= nil
      self.failure = is_ours and raised.err or errors.new("closed", errors.text_of(raised.err))
      log.error("%s", ("the elector '%s' ends: %s"):format(self.name, is_ours and errors.text_of(raised.err)
        or raised.traceback))
    end
    self.is_stopping = true
    local has_ended, why = driver.attempt(work_to_end, self) -- ends the term, if there is one
    if not has_ended then
      log.error("%s", ("the elector '%s' could not end in order: %s"):format(self.name, errors.text_of(why.err)))
      self.follower:stop(true)
      self.term, self.session = nil, nil
      bind_fence(self, nil)
    end
  end
  finish(self)
end

--- Returns the name of this process in elections.
local function own_id()
  local ok, uv = pcall(require, "keywatch.uv")
  return ("%s:%d"):format(ok and uv.hostname() or "localhost", core.pid())
end

--- Starts the elector, also one that belongs to a manager.
local function start_managed(self)
  look_for_fork(self)
  local id, pid, changed = self.given_id or own_id(), core.pid(), driver.get().event()
  if self.is_started then check.misuse("start: the elector '%s' is started", self.name) end
  -- atomic:
  self.id, self.pid, self.changed = id, pid, changed
  self.failure, self.trouble, self.leftover, self.failures = nil, nil, nil, 0
  self.is_stopping, self.is_started = false, true
  self.worker = workers.start(work, self)
  self.follower = workers.start(observe, self)
end

--- Starts the elector: it takes part in the election from now on. Does not wait.
function elector_methods:start()
  if self.manager then
    check.misuse("start: the elector '%s' belongs to a manager, which starts and stops it", self.name)
  end
  start_managed(self)
  exits.hold(self, 1, self.stop)
end

--- True if the caller is a function that the elector calls.
local function is_inside(self)
  local current, term = driver.get().current(), self.term
  return current ~= nil and (current == self.task or current == self.observing or term ~= nil and current == term.task)
end

local function is_idle(self) return not self.is_started end

--- Waits until the elector is idle, `seconds` at most. Returns false if it is not.
local function await_idle(self, seconds)
  return driver.await(self, "changed", seconds and driver.get().now() + seconds, is_idle)
end

--- Cuts the stop short: on_lead is cancelled once more, and the lease of the key is no longer renewed.
local function cut_short(self)
  local term = self.term
  if not term or term.is_over or not term.task then return end
  log.warn("%s", ("'on_lead' of the elector '%s' has not ended in time: no other process can lead until the lease "
    .. "expires"):format(self.name))
  term.session:orphan()
  term.task:cancel()
end

--- Stops the elector: on_lead is cancelled and waited for, the key is deleted, and on_lose is called. Returns true.
-- Returns nil and an error if that takes longer than `timeout` seconds, 30 unless given, or the key could not be
-- deleted: the key then expires with its lease. Called by a function of the elector, or with a timeout of 0, it does
-- not wait, and the rest is done in the background.
function elector_methods:stop(timeout)
  check.timeout(timeout, "stop")
  look_for_fork(self)
  if not self.is_started then return true end
  local inside = is_inside(self)
  if not inside and (timeout or STOP_TIMEOUT) > 0 then driver.get().check_wait() end
  self.is_stopping = true
  interrupt(self)
  if inside then return true end
  if not await_idle(self, timeout or STOP_TIMEOUT) then
    cut_short(self)
    return nil, core.new_error("timeout")
  end
  if self.leftover then return nil, self.leftover end
  return true
end

--- Waits until the elector is idle. Returns true; or nil and the error that it has ended with, or one of code
-- "timeout".
function elector_methods:join(timeout)
  check.timeout(timeout, "join")
  look_for_fork(self)
  if self.is_started and is_inside(self) then
    check.misuse("join: a function of the elector '%s' cannot wait for the elector's end", self.name)
  end
  if not await_idle(self, timeout) then return nil, core.new_error("timeout") end
  if self.failure then return nil, self.failure end
  return true
end

--- Stops the elector when a to-be-closed variable goes out of scope.
function elector_mt:__close()
  self:stop()
end

-- }======

-- {====== Questions ======

--- True if this process leads, as far as known: writes through the fence may succeed. Does not wait.
local function leads(self)
  return self.held.held_key:reason() == nil
end

--- True if this process leads, as far as is known. Does not wait.
function elector_methods:is_leader()
  return leads(self)
end

--- Returns the id of the leader that was observed last; nil if there is none, or none is known. Does not wait.
local function leader_of(self)
  look_for_fork(self)
  local kv = self.observer and observers.present(self.observer)
  return kv and kv.value
end

--- Returns the id of the leader that was observed last; nil if there is none, or none is known. Does not wait.
function elector_methods:leader()
  return (leader_of(self))
end

--- Returns an object with the methods of the store, whose writes succeed only while this process leads. The same object
-- serves all terms.
function elector_methods:fence()
  return self.shared_fence
end

--- Returns the state.
local function state_of(self)
  look_for_fork(self)
  if not self.is_started then return "idle" end
  if self.is_stopping then return "stopping" end
  return leads(self) and "leading" or "waiting"
end

--- Returns why the last campaign, or on_lead, has failed; nil if the elector takes part in the election again.
local function trouble_of(self)
  local session = self.session
  if session and not session:error() and entries.has_key(session, self.store, self.name) then return nil end
  return self.trouble
end

--- Returns the status of the elector. Does not wait.
function elector_methods:status()
  local term = self.term
  return {
    name = self.name, id = self.id, state = state_of(self), leader = leader_of(self), terms = self.terms,
    revision = leads(self) and self.held.revision or nil,
    is_busy = term ~= nil and term.task ~= nil and term.task.state ~= "done",
    trouble = trouble_of(self), failure = self.failure,
  }
end

--- Returns the name and the state.
function elector_mt:__tostring()
  return ("keywatch.elector<%s %s>"):format(self.name, state_of(self))
end

-- }======

local OPTIONS = {
  store = "store", name = "text", id = "text", ttl = "ttl", on_lead = "function", on_lose = "function",
  on_leader = "function",
}

--- Returns an elector. It is idle.
local function new(opts)
  check.argument(type(opts) == "table", 1, NAME, "table", opts)
  check.known(opts, NAME, OPTIONS)
  check.needed(opts, NAME, "store", "name")
  local self = setmetatable({
    store = opts.store,
    name = opts.name,
    prefix = opts.name .. "/",
    given_id = opts.id,
    id = opts.id or own_id(),
    ttl = opts.ttl or TTL,
    has_margin = false,       -- on_lead itself keeps the margin before the end of the lease: of a manager
    manager = nil,            -- the manager that starts and stops the elector, if there is one
    on_lead = opts.on_lead,
    on_lose = opts.on_lose,
    on_leader = opts.on_leader,
    election = opts.store:election(opts.name),
    pid = core.pid(),         -- of the process that has started the elector
    is_started = false,
    is_stopping = false,
    limit = nil,              -- the limit of the running interruptible wait
    worker = nil,             -- the worker that campaigns
    task = nil,               -- its task
    follower = nil,           -- the worker that observes the election
    observing = nil,          -- its task
    observer = nil,
    announced = nil,          -- the id that on_leader was called with last
    session = nil,            -- the session of the next or the running campaign
    term = nil,               -- the present term, until it was ended
    terms = 0,
    trouble = nil,            -- why the last campaign, or on_lead, has failed
    failures = 0,             -- failed campaigns since the last term
    failure = nil,            -- the error that the elector has ended with
    leftover = nil,           -- the error of the last deletion of the key, if it has failed
    changed = nil,            -- driver event: set when the state has changed
    held = {},                -- the key that the fence compares, see bind_fence
    nothing = nil,            -- the held key without a term
    shared_fence = nil,       -- the fence of all terms
  }, elector_mt)
  self.nothing = setmetatable({ elector = self }, nothing_mt)
  bind_fence(self, nil)
  self.shared_fence = fences.new(self.store, self.held)
  return self
end

return { new = new, mt = elector_mt, start_managed = start_managed }
