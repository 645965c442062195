-- SPDX-License-Identifier: MIT
--- handler: functions that an informer calls for each change of an object: added, modified, deleted. A handler has a
-- task of its own, which calls the functions one after the other, so they may wait. Changes that come during a call are
-- queued.
--
-- A new handler gets the existing objects by a walk over the slots of the indexer, which queues no events: a change of
-- an object that the walk has not reached is not queued, because the walk delivers the newest state. An object that is
-- created after the start of the walk is not part of it, even if its slot was used before. A resync is also a walk,
-- over objects that the handler knows; it continues only while the queue is empty, so that no object is delivered
-- before its older changes.
--
--                    queue (in order, up to max_bytes)  ----+
--   informer ---->                                          +---> the task
--                    dirty keys (beyond that: "coalesce") --+
--                    walk over the objects -----------------+
--
-- With "coalesce" an event that does not fit into the queue makes its key dirty. For a dirty key the handler gets the
-- difference between the last delivered state and the present one. A deleted key that the handler does not know is no
-- longer dirty: so at most the existing keys and the keys that the handler knows are dirty. The queue is delivered
-- first, and is used again only when no key is dirty. With "wait" the informer reads no further while the queue is
-- full, unless that delays a handler that coalesces, or the handler is stuck. Then the handler is *overrun*: until its
-- queue is empty it coalesces, too, and events beyond its bound are marked as missed.
--
-- An event stays the current one until its function has returned: the end of keywatch.run may cancel the task.

local check = require "keywatch.support.check"
local core = require "keywatch.core"
local driver = require "keywatch.task.driver"
local errors = require "keywatch.support.errors"
local log = require "keywatch.support.log"
local slices = require "keywatch.task.slice"
local stuck = require "keywatch.cache.stuck"
local workers = require "keywatch.task.worker"

local NAME = "add_handler"
local MAX_BYTES = 1024 * 1024
local OVERHEAD = 100      -- bytes of an event without its key and value
local CALLS_AT_ONCE = 100 -- after which other tasks run
local SYNCED = { type = "synced" }

local handler_methods, handler_mt = check.class "keywatch.handler"

-- {====== The queue ======

-- Events are added to `late`, and taken from `items`; the two are swapped when `items` is empty. So each is filled from
-- index 1, and stays an array: a queue that moves through one table would be in its slower hash part.

--- Adds to the bytes in the queue.
local function charge(self, bytes)
  self.bytes = self.bytes + bytes
  if self.bytes > self.most then self.most = self.bytes end
end

--- Adds an event to the queue.
local function append(self, event, bytes)
  local n = self.n_late + 1
  self.late[n], self.late_sizes[n], self.n_late = event, bytes, n
  charge(self, bytes)
end

--- Takes the first event out of the queue, which is not empty.
local function take(self)
  if self.first > self.last then -- atomic:
    self.items, self.sizes, self.late, self.late_sizes = self.late, self.late_sizes, self.items, self.sizes
    self.first, self.last, self.n_late = 1, self.n_late, 0
  end
  local first = self.first
  local event = self.items[first]
  self.bytes = self.bytes - self.sizes[first]
  self.items[first], self.sizes[first], self.first = nil, nil, first + 1
  return event
end

--- True if the informer must wait for the handler.
local function is_full(self)
  return self.waits_at_bound and self.bytes >= self.max_bytes and not self.is_overrun
end

--- Lets the informer continue without waiting for the handler, until the handler's queue is empty.
local function overrun(self)
  self.is_overrun, self.overruns = true, self.overruns + 1
end

-- }======

-- {====== Dirty keys ======

--- True if a key is dirty: later events must go behind it.
local function has_dirty(self)
  return self.first_dirty ~= nil
end

--- Removes a record.
local function unlink(self, record)
  local before, after = record.before, record.after
  if before then before.after = after else self.first_dirty = after end
  if after then after.before = before else self.last_dirty = before end
  self.dirty[record.key], self.n_dirty, self.bytes = nil, self.n_dirty - 1, self.bytes - record.bytes
end

--- Forgets the key of a deleted object, or of a bad value that was replaced, if the handler does not know the object.
local function forget(self, key)
  local record = self.dirty[key]
  if record and not record.create then unlink(self, record) end
end

--- Makes the key of an event of so many bytes dirty. A new record has the state that the handler knows before the
-- event. The record counts as the largest of its events. Returns a state of the object that is never delivered, or nil.
local function mark(self, event, bytes)
  local key, kind, dropped = event.key, event.type, nil
  local record = self.dirty[key]
  if record then
    self.coalesced = self.coalesced + 1
    if kind == "modified" then dropped = event.old elseif kind == "deleted" then dropped = event.object end
    if event.create_revision == record.create and (kind == "deleted" or rawequal(dropped, record.delivered)) then
      dropped = nil
    end
  else
    record = {
      key = key, create = nil, delivered = nil, gone = nil, is_changed = false, is_missed = false,
      before = self.last_dirty, after = nil, bytes = 0,
    }
    if kind == "modified" then
      record.create, record.delivered = event.create_revision, event.old
    elseif kind == "deleted" then
      record.create, record.delivered = event.create_revision, event.object
    elseif kind == "error" then
      local indexer = self.shared.indexer
      local slot = indexer.slots[key]
      if slot then record.create, record.delivered = indexer.creates[slot], indexer.objects[slot] end
    end
    self.dirty[key] = record
    -- atomic:
    if record.before then record.before.after = record else self.first_dirty = record end
    self.last_dirty, self.n_dirty = record, self.n_dirty + 1
  end
  if bytes > record.bytes then
    charge(self, bytes - record.bytes)
    record.bytes = bytes
  end
  if kind == "error" then
    record.error = event
  else
    record.is_changed, record.revision = true, event.revision
    record.is_missed = record.is_missed or event.missed or self.is_overrun
    if kind == "deleted" then
      if event.create_revision == record.create then record.gone = event.object end
      forget(self, key)
    end
  end
  return dropped
end

--- Returns an event.
local function new_event(kind, key, object, old, revision, create)
  return { type = kind, key = key, object = object, old = old, revision = revision, create_revision = create }
end

--- Takes the first dirty key. Sets the events to deliver: at most "deleted", one of "added" and "modified", and
-- "error".
local function take_dirty(self)
  local indexer, record = self.shared.indexer, self.first_dirty
  local key = record.key
  local slot = indexer.slots[key]
  local create, last_error = slot and indexer.creates[slot], self.shared.bad[key] and record.error
  local gone, now
  if record.is_changed and record.create and record.create ~= create then
    local last, delivered = record.gone, record.delivered
    if last == nil or rawequal(last, delivered) then last, delivered = delivered, nil end
    gone = new_event("deleted", key, last, delivered, record.revision, record.create)
    gone.missed = record.is_missed or nil
  end
  if record.is_changed and slot then
    if record.create == create then
      now = new_event("modified", key, indexer.objects[slot], record.delivered, indexer.revisions[slot], create)
    else
      now = new_event("added", key, indexer.objects[slot], nil, indexer.revisions[slot], create)
    end
    now.missed = record.is_missed or nil
  end
  if self.is_closed then return end -- by a finalizer
  -- atomic:
  unlink(self, record)
  self.current, self.second, self.third = gone or now or last_error, gone and now or (gone or now) and last_error, nil
  if gone and now then self.third = last_error end
end

-- }======

-- {====== Walks ======

--- Begins a walk over the objects: that of a new handler, or of a resync.
local function begin_walk(self, is_initial)
  if self.is_closed or self.is_walking then return end -- by a finalizer
  local indexer = self.shared.indexer
  self.is_walking, self.is_initial = true, is_initial
  self.walk_at, self.walk_end, self.walk_born, self.walk_keys = 0, indexer.n, indexer.born, indexer.keys
  if is_initial then indexer.walks = indexer.walks + 1 end
  self.shared:attend()
end

--- Ends a walk.
local function end_walk(self)
  if not self.is_walking then return end
  local indexer = self.shared.indexer
  self.is_walking, self.walk_keys = false, nil
  if self.is_initial then indexer.walks = indexer.walks - 1 end
end

--- Adds an event behind all other undelivered ones.
local function add(self, event, bytes)
  if has_dirty(self) then mark(self, event, bytes) else append(self, event, bytes) end
end

--- Ends the walk of a new handler: delivers the bad values, and marks the handler as synced.
local function end_initial(self)
  local shared = self.shared
  if self.on.error then
    local list = {}
    for key in pairs(shared.bad) do list[#list + 1] = key end
    table.sort(list)
    for _, key in ipairs(list) do
      local event = shared.bad[key]
      if event then add(self, event, #key + #event.value + OVERHEAD) end
    end
  end
  if has_dirty(self) then self.current = SYNCED else append(self, SYNCED, 0) end
end

--- Takes the next step of the walk, by one slot. Sets the event, if there is an object.
local function step(self)
  local indexer = self.shared.indexer
  local at, is_initial = self.walk_at + 1, self.is_initial
  if at <= self.walk_end then
    local key, event = self.walk_keys[at], nil
    local slot = key and indexer.slots[key]
    if slot and not (is_initial and indexer.births[slot] > self.walk_born) then
      local object = indexer.objects[slot]
      event = { -- of a resync: the old object is the object
        type = is_initial and "added" or "modified", key = key, object = object,
        revision = indexer.revisions[slot], create_revision = indexer.creates[slot],
      }
      if is_initial then event.initial = true else event.resync, event.old = true, object end
    end
    self.walk_at, self.current = at, event
    return
  end
  end_walk(self)
  self.is_initial = false
  if is_initial then end_initial(self) end
end

-- }======

-- {====== The task ======

--- Calls the function of an event. Returns the results of errors.attempt; true if there is no function.
local function call(self, event)
  local kind, on = event.type, self.on
  local fn = on[kind]
  if not fn then return true end
  self.calls = self.calls + 1
  if kind == "modified" then return errors.attempt(fn, event.key, event.object, event.old, event) end
  return errors.attempt(fn, event.key, kind == "error" and event.error or event.object, event)
end

--- Delivers the current event. An error of a function is logged, and the handler continues.
local function deliver(self)
  local event = self.current
  if event == SYNCED then
    self.has_all = true
    self.synced:set()
  else
    local task = self.task
    self.is_calling = true
    local ok, raised = call(self, event)
    if self.task ~= task then return end -- the task was abandoned, and another one continues
    self.is_calling = false
    if self.is_closed then return end
    if not ok and driver.is_cancellation(raised.err) then error(raised.err, 0) end
    if not ok then
      self.failures = self.failures + 1
      log.error({ key = event.key }, "%s", ("the function of a handler for %s has failed: %s"):format(
        check.shown(event.key), log.failure(self, raised)))
    end
  end
  self.current, self.second, self.third = self.second, self.third, nil
  driver.get().check_cancelled() -- even if the function has caught that
end

--- Sets the current event, if there is one. Returns false if there is no work. A new handler alternates between the
-- walk and the queue, so that the walk ends.
local function find(self)
  local has_queue = self.first <= self.last or self.n_late > 0
  local is_busy = has_queue or has_dirty(self)
  self.is_odd = not self.is_odd
  if self.is_walking and (not is_busy or self.is_initial and self.is_odd) then
    step(self)
  elseif has_queue then
    local was_full = is_full(self)
    self.current = take(self)
    if was_full and not is_full(self) then self.shared.room:set() end
  elseif has_dirty(self) then
    take_dirty(self)
  else
    self.is_overrun = false
  end
  return self.current or self.is_walking or self.first <= self.last or self.n_late > 0 or has_dirty(self)
end

--- Waits for events, or until the next resync, which begins then.
local function rest(self)
  local d, at = driver.get(), self.resync_at
  if not at then return self.changed:wait() end
  if self.changed:wait(math.max(0, at - d.now())) and d.now() < at or self.is_closed then return end
  self.resync_at = d.now() + self.resync
  begin_walk(self, false)
end

--- The function of the worker.
local function work(self)
  local task, slice = driver.get().current(), slices.new(CALLS_AT_ONCE)
  self.task, self.is_calling = task, false -- the task of a call may be gone, after a fork
  while not self.is_closed and self.task == task do
    if not self.current and not find(self) then
      rest(self)
    elseif self.current then
      deliver(self)
      slices.pass(slice)
    end
  end
end

-- }======

-- {====== For the informer ======

--- Starts the handler: the informer has loaded all objects.
local function begin(self)
  if self.has_begun or self.is_closed then return end
  self.has_begun = true
  begin_walk(self, true)
  if self.resync then self.resync_at = driver.get().now() + self.resync end
  self.changed:set()
end

--- Queues an event of an object that has, or had, a slot.
local function push(self, event, slot, bytes)
  if not self.has_begun or self.is_closed then return end
  local kind = event.type
  if self.is_walking and self.is_initial
    and (kind == "error" or slot > self.walk_at and self.shared.indexer.births[slot] <= self.walk_born) then
    return -- the walk, or its end, delivers the newest state
  end
  local is_beyond = self.bytes >= self.max_bytes and (not self.waits_at_bound or self.is_overrun)
  if not self.on[kind] and (kind == "error" or not has_dirty(self) and not is_beyond) then return end
  if is_beyond or has_dirty(self) then -- also if there is no function: the handler has to note which keys it knows
    local dropped = mark(self, event, bytes + OVERHEAD)
    if dropped ~= nil and self.on_drop then self.on_drop(dropped, event) end
  else
    append(self, event, bytes + OVERHEAD)
  end
  self.changed:set()
end

--- Ends the handler with an error.
local function finish(self, err)
  if self.is_closed then return end
  self.is_closed, self.failure = true, err
  end_walk(self)
  self.items, self.sizes, self.late, self.late_sizes = {}, {}, {}, {}
  self.first, self.last, self.n_late, self.bytes = 1, 0, 0, 0
  self.dirty, self.first_dirty, self.last_dirty, self.n_dirty = {}, nil, nil, 0
  if not self.is_calling then self.current, self.second, self.third = nil, nil, nil end
  self.shared:remove_handler(self)
  self.worker:stop()
  self.changed:set()
  self.synced:set()
  self.shared.room:set()
end

-- }======

--- True if the functions of the handler have returned for all objects that existed when it began.
function handler_methods:has_synced()
  return self.has_all
end

--- Waits until has_synced is true. Returns true, or nil and an error.
function handler_methods:wait_synced(timeout)
  check.timeout(timeout, "wait_synced")
  local d = driver.get()
  if self.has_all then return true end
  if self.is_closed then return nil, self.failure end
  d.check_wait()
  if d.current() and d.current() == self.task then
    check.misuse("wait_synced: a function of the handler cannot wait for the handler")
  end
  local came = driver.await(self, "synced", timeout and d.now() + timeout, function()
    return self.has_all or self.is_closed
  end)
  if self.has_all then return true end
  return nil, came and self.failure or core.new_error("timeout")
end

--- Ends the handler: no further call begins. Idempotent.
function handler_methods:close()
  finish(self, errors.closed("handler"))
end

handler_mt.__close = handler_methods.close

--- True while the last call has not returned, and its task was not abandoned.
local function is_calling(self)
  return self.is_calling and self.task.state ~= "done"
end

--- Waits until the handler is closed, and its last call has returned. Returns true, or nil and an error.
function handler_methods:join(timeout)
  check.timeout(timeout, "join")
  local d = driver.get()
  if self.is_closed and not is_calling(self) then return true end
  d.check_wait()
  if d.current() and d.current() == self.task then
    check.misuse("join: a function of the handler cannot wait for the end of the handler")
  end
  local deadline = timeout and d.now() + timeout
  if not driver.await(self, "synced", deadline, function() return self.is_closed end) then
    return nil, core.new_error("timeout")
  end
  if is_calling(self) and self.task:join(driver.time_left(deadline)) == nil then
    return nil, core.new_error("timeout")
  end
  return true
end

--- Returns the number of events and dirty keys that wait for their call.
local function count_queued(self)
  local n = self.last - self.first + 1 + self.n_late + self.n_dirty
  if self.current and not self.is_calling then n = n + 1 end
  return n + (self.second and 1 or 0) + (self.third and 1 or 0)
end

--- Detects a call that does not return. Returns the seconds until a call counts as stuck, or nil; and true if the
-- handler has work.
local function look(self, now)
  local is_awaited = self.is_walking or count_queued(self) > 0
  local left = stuck.look(self.stuck, now, self.calls, self.is_calling and not self.is_closed, is_awaited)
  return left, self.is_calling or is_awaited
end

--- Returns the word for the state.
local function state_of(self)
  if self.is_closed then return "closed" end
  if not self.has_begun then return "waiting" end
  return self.has_all and "following" or "syncing"
end

--- Returns the status of the handler. Does not wait.
function handler_methods:status()
  return {
    name = self.stuck.name,
    state = state_of(self),
    is_stuck = self.stuck.is_stuck,
    queued = count_queued(self),
    queued_bytes = self.bytes,
    most_queued_bytes = self.most,
    calls = self.calls,
    failures = self.failures,
    coalesced = self.coalesced,
    overruns = self.overruns,
    has_synced = self.has_all,
  }
end

--- Returns the state, and the length of the queue.
function handler_mt:__tostring()
  local status = self:status()
  return ("keywatch.handler<%s queued=%d>"):format(status.state, status.queued)
end

-- {====== Making one ======

local OPTIONS = {
  add = "function", update = "function", delete = "function", error = "function", resync = "some seconds",
  max_bytes = { "at least 1", function(value) return type(value) == "number" and value >= 1 end },
  at_bound = check.one_of("wait", "coalesce"), name = "string",
}

--- Raises if an option is invalid.
local function check_options(opts)
  check.argument(type(opts) == "table", 1, NAME, "table", opts)
  check.known(opts, NAME, OPTIONS)
  if not (opts.add or opts.update or opts.delete or opts.error) then
    check.misuse("%s: give at least one of the functions 'add', 'update', 'delete' and 'error'", NAME)
  end
end

--- Returns the name of a handler without the option `name`: the position of its function in the source.
local function default_name(opts)
  local info = debug.getinfo(opts.add or opts.update or opts.delete or opts.error, "S")
  return ("%s:%d"):format(info.short_src, info.linedefined)
end

--- Returns a new handler of an informer, one of those that share `shared`.
local function new(informer, shared, opts)
  local d, name = driver.get(), opts.name or default_name(opts)
  local self = setmetatable({
    informer = informer,  -- kept alive by its handlers
    shared = shared,
    on = { added = opts.add, modified = opts.update, deleted = opts.delete, error = opts.error },
    waits_at_bound = opts.at_bound ~= "coalesce",
    max_bytes = opts.max_bytes or MAX_BYTES,
    on_drop = opts.on_drop, -- of a controller: on_drop(object, event) is called, and must not wait, with each state of
                            -- an object that readers of the informer could see, and that is never delivered
    resync = opts.resync,
    resync_at = nil,
    items = {}, sizes = {}, first = 1, last = 0, late = {}, late_sizes = {}, n_late = 0, -- the queue
    bytes = 0, most = 0, -- of the queue and the dirty keys, and its high-water mark
    dirty = {}, first_dirty = nil, last_dirty = nil, n_dirty = 0,       -- records by key, and as a list
    is_walking = false, is_initial = false, walk_at = 0, walk_end = 0, walk_born = 0, walk_keys = nil, -- the walk
    is_odd = false,       -- alternates with each call of `find`
    is_overrun = false,   -- the informer does not wait for the handler
    stuck = stuck.new(name, ("the handler '%s' of the informer of %s"):format(name, check.shown(informer.prefix))),
    current = nil, second = nil, third = nil, -- the next events
    has_begun = false,    -- the informer has synced
    has_all = false,      -- the handler has synced
    is_calling = false,
    is_closed = false,
    failure = nil,        -- the error that it is closed with
    calls = 0, failures = 0, coalesced = 0, overruns = 0,
    task = nil,           -- the task that makes the calls
    changed = d.event(),  -- set when there are events to deliver
    synced = d.event(),   -- set when has_all or is_closed becomes true
  }, handler_mt)
  self.worker = workers.start(work, self)
  return self
end

-- }======

return {
  check_options = check_options, new = new, begin = begin, push = push, forget = forget, is_full = is_full,
  overrun = overrun, look = look, finish = finish, mt = handler_mt,
}
