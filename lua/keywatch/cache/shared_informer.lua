-- SPDX-License-Identifier: MIT
--- shared_informer: the objects that informers of the same keys and options share, and the task that keeps them up to
-- date, with one watch.
--
--              all initial kvs have arrived            the watch has failed
--   LOADING ----------------------------> FOLLOWING ---------------------+
--      ^                                                                 |
--      +------- at once, or after a pause if that happens again ---------+        CLOSED: it has no user left, or its
--                                                                                 store, client or cache is closed
--
-- LOADING: a new watch delivers the initial kvs. The first time they go directly into the indexer, and are not visible
-- yet. If there were objects before (a gap), the differences are gathered, and applied at once: handlers see deletions
-- first, then the rest. FOLLOWING: each change is applied, and queued for the handlers, without a wait in between.
--
-- The create_revision identifies an object: if it differs after a gap, one object has ended and another one has begun.
-- Objects that are unchanged after a gap are not reported: in the same history those with the same revision, in another
-- history those with an equal value.
--
-- A value that cannot be decoded is bad: the last good object stays, and the error event is kept in `bad`, by key,
-- until the key has a good value or is deleted.
--
-- The task may be cancelled at any wait, and is restarted: then at most a load is incomplete, and starts over.

local backoff = require "keywatch.client.backoff"
local check = require "keywatch.support.check"
local driver = require "keywatch.task.driver"
local errors = require "keywatch.support.errors"
local bases = require "keywatch.concurrency.base"
local handlers = require "keywatch.cache.handler"
local indexers = require "keywatch.cache.indexer"
local log = require "keywatch.support.log"
local slices = require "keywatch.task.slice"
local stuck = require "keywatch.cache.stuck"
local transition = require "keywatch.cache.transition"
local watches = require "keywatch.watch.watch"
local workers = require "keywatch.task.worker"

local OWN_NAME = "(the informer)" -- of codec, transform, selectors and indexes, in place of a handler's name
local AT_ONCE = 256   -- changes, after which other tasks run
local STABLE = 5      -- seconds: the end of a watch that has lasted this long is not a failure
local READY_WAIT = 10 -- seconds of a wait for a cache; then the wait is repeated
local OTHER_HISTORY = { regressed = true, cluster_changed = true }
local GAP = { compacted = true, regressed = true, cluster_changed = true, full = true }

local hand_out, object_of = watches.hand_out, transition.object_of

local shared_methods = {}
local shared_mt = { __index = shared_methods }

-- {====== Events and the watchdog ======

-- The poller of the driver while a function of the program may be called, to notice one that does not return.
local watchdog_methods = {}
local watchdog_mt = { __index = watchdog_methods }

--- Checks the calls of the informer and its handlers. Returns the seconds until one of them may count as stuck.
function watchdog_methods:poll()
  local shared, now = self.shared, driver.get().now()
  local is_calling = shared.calling ~= nil and not shared.is_closed
  local soonest, is_busy = stuck.look(shared.stuck, now, shared.taken, is_calling, true), is_calling
  for _, one in ipairs(shared.handlers) do
    local left, has_work = handlers.look(one, now)
    if left and (not soonest or left < soonest) then soonest = left end
    is_busy = is_busy or has_work
  end
  if is_busy then return soonest end
  self.is_attached = false
  driver.get().detach(self)
end

--- Starts the watchdog, which stops when there is no work.
function shared_methods:attend()
  local watchdog = self.watchdog
  if watchdog.is_attached then return end
  watchdog.is_attached = true
  driver.get().attach(watchdog)
end

--- Queues an event in all handlers.
local function push(self, event, slot, bytes)
  local list = self.handlers
  for i = 1, #list do handlers.push(list[i], event, slot, bytes) end
end

--- Returns an event of an object.
local function new_event(kind, key, object, old, revision, create, is_missed)
  local event = { type = kind, key = key, object = object, revision = revision, create_revision = create }
  if old ~= nil then event.old = old end
  if is_missed then event.missed = true end
  return event
end

-- }======

--- Ends the watch.
local function drop_watch(self)
  local watch = self.watch
  self.watch, self.load = nil, nil
  if watch then watch:close() end
end

--- Raises if the task was cancelled while a function of the program waited: the result of the function is then invalid,
-- and the change is read again.
local function check_interrupted(self)
  if not self.task.cancelled_at then return end
  drop_watch(self)
  driver.get().check_cancelled()
end

-- {====== Changes ======

--- Removes an object by a change of a revision, and queues the event.
local function remove(self, key, revision, is_missed)
  local indexer = self.indexer
  local slot = indexer.slots[key]
  if not slot then return end
  local object, create = indexer.objects[slot], indexer.creates[slot]
  local event = new_event("deleted", key, object, nil, revision, create, is_missed)
  local bytes = #key + indexer.sizes[slot]
  indexer:remove(key)
  push(self, event, slot, bytes)
end

--- Sets an object, and queues the event that it is added or modified.
local function put(self, change, object, is_missed)
  local indexer, key = self.indexer, change.key
  local revision, create = change.mod_revision, change.create_revision
  local size = #change.value
  if not self.has_all then -- no handler has begun
    indexer:set(key, object, revision, create, size)
    return
  end
  local slot = indexer.slots[key]
  if slot and indexer.creates[slot] ~= create then
    remove(self, key, revision, true)
    slot = nil
  end
  local old, bytes = nil, #key + size
  if slot then old, bytes = indexer.objects[slot], bytes + indexer.sizes[slot] end
  local event = new_event(slot and "modified" or "added", key, object, old, revision, create, is_missed)
  slot = indexer:set(key, object, revision, create, size)
  push(self, event, slot, bytes)
end

--- True if no handler has a function for errors.
local function has_no_listener(self)
  for _, one in ipairs(self.handlers) do
    if one.on.error then return false end
  end
  return true
end

--- Notes a bad value, and queues an event of it. The last good object stays, unless the key was created again.
local function put_bad(self, change, err, is_missed)
  local indexer, key = self.indexer, change.key
  local slot = indexer.slots[key]
  if slot and indexer.creates[slot] ~= change.create_revision then
    remove(self, key, change.mod_revision, true)
    slot = nil
  end
  local event = {
    type = "error", key = key, error = err, value = change.value, revision = change.mod_revision,
    create_revision = change.create_revision, missed = is_missed or nil,
  }
  if not self.bad[key] then self.bad_count = self.bad_count + 1 end
  self.bad[key] = event
  if has_no_listener(self) then log.warn("%s", err.message) end
  push(self, event, slot, #key + #change.value)
end

--- Forgets that the value of a key was bad.
local function forget_bad(self, key)
  if not self.bad[key] then return end
  self.bad[key], self.bad_count = nil, self.bad_count - 1
  if self.indexer.slots[key] then return end
  for _, one in ipairs(self.handlers) do handlers.forget(one, key) end
end

--- Applies a put: of an object; of nil, if the object does not match; or of a bad value.
local function apply_put(self, change, object, err, is_missed)
  if err then return put_bad(self, change, err, is_missed) end
  forget_bad(self, change.key)
  if object == nil then return remove(self, change.key, change.mod_revision, is_missed) end
  put(self, change, object, is_missed)
end

--- Applies a change of the watch.
local function apply(self, change)
  local kind = change.type
  if kind == "put" then
    local object, err = object_of(self.filter, change)
    check_interrupted(self)
    apply_put(self, change, object, err)
  elseif kind == "delete" then
    forget_bad(self, change.key)
    remove(self, change.key, change.mod_revision)
  end
end

-- }======

-- {====== Loading ======

--- True if two objects have the same content. Tables are compared by theirs.
local function are_equal(a, b, seen)
  if rawequal(a, b) then return true end
  if type(a) ~= "table" or type(b) ~= "table" then return a == b end
  if seen[a] then return seen[a] == b end
  seen[a] = b
  for name, value in pairs(a) do
    if not are_equal(value, b[name], seen) then return false end
  end
  for name in pairs(b) do
    if a[name] == nil then return false end
  end
  return true
end

--- True if the informer already has a kv.
local function is_known(self, load, kv, slot)
  if load.is_other then return false end
  local bad = self.bad[kv.key]
  if bad then return bad.revision == kv.mod_revision end
  return slot ~= nil and self.indexer.revisions[slot] == kv.mod_revision
end

--- True if the object of a kv of another history is equal to the informer's object. Then the informer's object gets the
-- revisions of the kv.
local function is_same(self, kv, slot, object)
  local indexer = self.indexer
  local ok, is_equal = pcall(are_equal, object, indexer.objects[slot], {}) -- may call functions of the objects
  if not ok or not is_equal or self.bad[kv.key] then return false end
  indexer.revisions[slot], indexer.creates[slot] = kv.mod_revision, kv.create_revision
  return true
end

--- Takes an initial kv. `kept` has the keys whose object stays, or is replaced; nil: there were no objects before.
local function take_kv(self, load, kv)
  local key, kept = kv.key, load.kept
  local slot = self.indexer.slots[key]
  if is_known(self, load, kv, slot) then
    if kept then kept[key] = true end
    load.bad[key] = self.bad[key] and true or nil
    return
  end
  local object, err = object_of(self.filter, kv)
  check_interrupted(self)
  slot = self.indexer.slots[key]
  if slot and object ~= nil and load.is_other and is_same(self, kv, slot, object) then
    kept[key] = true
    return
  end
  if err then load.bad[key] = true end
  if kept and (object ~= nil or err) then kept[key] = true end
  if not self.has_all then return apply_put(self, kv, object, err) end
  local change = { -- the table of the kv is reused
    key = key, value = kv.value, mod_revision = kv.mod_revision, create_revision = kv.create_revision,
  }
  load.n = load.n + 1
  load.changes[load.n], load.objects[load.n], load.errors[load.n] = change, object, err
end

--- Returns the keys of deleted objects, including those that were created again.
local function find_gone(self, load)
  local indexer, kept, gone = self.indexer, load.kept, {}
  if not kept then return gone end
  for i = 1, load.n do
    local kv = load.changes[i]
    local slot = indexer.slots[kv.key]
    if slot and indexer.creates[slot] ~= kv.create_revision then kept[kv.key] = nil end
  end
  for slot = 1, indexer.n do
    local key = indexer.keys[slot]
    if key and not kept[key] then gone[#gone + 1] = key end
  end
  return gone
end

--- Applies all differences between the known objects and the loaded ones, at a revision: deletions first.
local function use_load(self, load, revision)
  local gone, healed = find_gone(self, load), {}
  for key in pairs(self.bad) do
    if not load.bad[key] then healed[#healed + 1] = key end
  end
  for _, key in ipairs(healed) do forget_bad(self, key) end
  for _, key in ipairs(gone) do remove(self, key, revision, true) end
  for i = 1, load.n do apply_put(self, load.changes[i], load.objects[i], load.errors[i], true) end
end

--- Called when all initial kvs have arrived. The first time, the handlers begin.
local function finish_load(self, load, revision)
  use_load(self, load, revision)
  self.load, self.trouble, self.why, self.history = nil, nil, nil, load.history
  if self.has_all then return end
  self.has_all = true
  local list = self.handlers
  for i = 1, #list do handlers.begin(list[i]) end
  self.synced:set()
end

-- }======

-- {====== The task ======

--- Waits after a failure, each time longer.
local function pause(self, err)
  self.trouble, self.failures = err, self.failures + 1
  driver.get().sleep(self.backoff(self.failures))
end

--- Opens a watch. Returns it, or nil and an error.
local function open(self)
  local x = self.x
  if x.wait_ready then -- a cache
    local ok, err = x:wait_ready(READY_WAIT)
    if not ok then return nil, err end
  end
  local opts = { prefix = true, initial = true, [watches.TRANSIENT] = true }
  if self.requires_leader then opts.require_leader = true end
  local ok, watch, err = driver.attempt(x.watch, x, self.prefix, opts)
  if ok then return watch, err end
  return nil, errors.new("closed", errors.text_of(watch.err)) -- a usage error, such as a closed store
end

--- Returns a new load. The load has another history if the previous watch has reported that, if the store or the
-- cluster is another one, or if its revision has gone back.
local function new_load(self, watch)
  local history = watch.store or select(4, watch.core:seen())
  local is_other = self.why ~= nil and OTHER_HISTORY[self.why.code]
    or self.history ~= nil and (history ~= self.history or watch.initial_revision < self.revision)
  return {
    history = history, is_other = is_other or false,
    kept = (self.indexer.count > 0 or self.bad_count > 0) and {} or nil,
    bad = {}, changes = {}, objects = {}, errors = {}, n = 0,
  }
end

--- Opens a watch, and begins to load. Returns false if the caller must try again.
local function begin_load(self)
  local watch, err = open(self)
  if self.is_closed then
    if watch then watch:close() end
    return true
  end
  if watch then
    self.watch, self.load = watch, new_load(self, watch)
    if self.has_all then self.gaps = self.gaps + 1 end
    return true
  end
  if err.code == "closed" then
    self:finish(err)
    return true
  end
  pause(self, err)
  return false
end

--- Handles the failure of the watch.
local function fail(self, err)
  local is_loading = self.load ~= nil
  drop_watch(self)
  if not err or err.code == "closed" then return self:finish(err or errors.closed("watch")) end
  if not is_loading and driver.get().now() - self.since >= STABLE then self.failures = 0 end
  -- the history may have been another one before this failure, too
  if not (self.why and OTHER_HISTORY[self.why.code]) then self.why = err end
  self.trouble = err
  if GAP[err.code] and self.failures == 0 then
    self.failures = 1
    return
  end
  pause(self, err)
end

--- True if a handler's queue is full, and the informer must wait for the handler. If another handler coalesces, as
-- those of controllers do, the informer does not wait: the full handlers are overrun.
local function has_full(self)
  local list, found = self.handlers, nil
  for i = 1, #list do
    if handlers.is_full(list[i]) then found = list[i] end
  end
  if not found then return false end
  for i = 1, #list do
    if not list[i].waits_at_bound then
      handlers.overrun(found)
      return has_full(self)
    end
  end
  return true
end

--- Takes a change, or another item, of the watch.
local function take(self, event)
  local load = self.load
  self.calling, self.taken = event.key, self.taken + 1
  self:attend()
  if not load then
    apply(self, event)
  elseif event.initial then
    take_kv(self, load, event)
  elseif event.type == "synced" then
    finish_load(self, load, event.revision)
    self.since = driver.get().now()
  end
  self.calling = nil
end

--- Waits until no handler is full. A stuck handler is overrun.
local function await_room(self)
  while has_full(self) do
    if not self.room:wait(stuck.STUCK) then
      for _, one in ipairs(self.handlers) do
        if handlers.is_full(one) then handlers.overrun(one) end
      end
    end
  end
end

--- Reads the watch until the watch fails. The informer waits for handlers only after a whole revision.
local function follow(self, watch)
  local slice = slices.new(AT_ONCE)
  while self.watch == watch do
    local event, err
    if watch.at < watch.n then event = hand_out(watch) else event, err = watch:next() end
    if self.watch ~= watch then return end
    if not event then return fail(self, err) end
    take(self, event)
    event.value = nil -- the watch keeps the table
    if not self.load then self.revision = watch.revision end
    if has_full(self) and (self.load or watch.revision >= (event.mod_revision or 0)) then await_room(self) end
    slices.pass(slice)
  end
end

--- Loads and follows until the informer is closed.
local function serve(self)
  self.task, self.calling = driver.get().current(), nil
  while not self.is_closed do
    if self.watch then follow(self, self.watch) else begin_load(self) end
  end
end

--- The function of the worker. Errors of the program's functions are handled elsewhere. After any other error the state
-- is uncertain, and the informer ends with the error.
local function work(self)
  local ok, raised = driver.attempt(serve, self)
  if ok then return end
  log.error("%s", "an informer has failed: " .. raised.traceback)
  self:finish(errors.new("internal", "keywatch: the informer has failed: " .. errors.text_of(raised.err)))
end

-- }======

-- {====== For informers ======

--- Adds a handler.
function shared_methods:add_handler(one)
  self.handlers[#self.handlers + 1] = one
  if self.has_all then handlers.begin(one) end
end

--- Removes a handler.
function shared_methods:remove_handler(one)
  local before, list
  repeat -- a finalizer may add and remove others
    before, list = self.handlers, {}
    local n = #before
    for i = 1, n do
      if before[i] ~= one then list[#list + 1] = before[i] end
    end
  until self.handlers == before and #before == n
  self.handlers = list
end

--- Counts a user.
function shared_methods:join()
  self.users = self.users + 1
end

--- Counts a user that has left. The last one ends the informer.
function shared_methods:leave()
  self.users = self.users - 1
  if self.users == 0 then self:finish(errors.closed("informer")) end
end

--- Ends the informer with an error, and its handlers.
function shared_methods:finish(err)
  if self.is_closed then return end
  self.is_closed, self.failure = true, err
  self.on_end(self)
  drop_watch(self)
  self.worker:stop(true)
  for _, one in ipairs(self.handlers) do handlers.finish(one, err) end
  self.synced:set()
  self.room:set()
end

--- Returns why the cache or client that the informer reads is not up to date, as an error, or nil. Both retry
-- themselves.
local function trouble_below(self)
  local x = self.x
  if x.wait_ready then return x:status().trouble end -- a cache
  local root = bases.resolve(x, "")
  local state = not bases.is_local(root) and root:state()
  if state and state.state == "waiting" then return errors.new("unavailable", "keywatch: " .. state.why) end
end

--- Returns the phase; and the present error, or nil.
function shared_methods:describe()
  if self.is_closed then return "closed", self.failure end
  local trouble = self.trouble or trouble_below(self)
  if not self.watch and self.trouble then return "retrying", trouble end
  return (self.load or not self.has_all) and "loading" or "following", trouble
end

--- Returns how many seconds each stuck call has lasted, by the name of its handler.
function shared_methods:stuck_calls()
  local found, now = {}, driver.get().now()
  local function note(record)
    if record.is_stuck then found[record.name] = math.max(found[record.name] or 0, now - record.since) end
  end
  note(self.stuck)
  for _, one in ipairs(self.handlers) do note(one.stuck) end
  return found
end

--- Adds an index with all objects, unless there is one of the name; waits if another task is filling the index. Raises
-- if the existing index has another function.
function shared_methods:add_index(name, fn, method)
  local index = self.indexer:index(name)
  while index and index.fn == fn and not index.is_filled do
    if index.filler == driver.get().current() then
      check.misuse("%s: the function of the index '%s' adds the index itself", method, name)
    end
    index.filled:wait()
    index = self.indexer:index(name)
  end
  if index and index.fn ~= fn then
    check.misuse("%s: there is an index '%s' with another function", method, name)
  end
  if not index then self.indexer:add_index(name, fn) end
end

--- True if an index can be added: there is none of the name, or one with the same function.
function shared_methods:takes_index(name, fn)
  local index = self.indexer:index(name)
  return not index or index.fn == fn
end

--- Begins to keep objects equal to the keys of x that begin with a prefix. on_end(shared) is called at the end.
local function new(x, prefix, filter, requires_leader, on_end)
  local d = driver.get()
  local self = setmetatable({
    x = x,
    prefix = prefix,
    filter = filter,
    requires_leader = requires_leader,
    on_end = on_end,
    indexer = nil,
    task = nil,           -- the task that runs the worker's function
    bad = {},             -- by key: the error event of a value that is bad
    bad_count = 0,
    handlers = {},        -- a new list when one is removed
    taken = 0,            -- events of watches
    calling = nil,        -- the key of the event for which functions of the program may be running
    stuck = stuck.new(OWN_NAME, ("a function of the informer of %s"):format(check.shown(prefix))),
    watchdog = nil,
    users = 0,            -- informers that share it
    watch = nil,
    load = nil,           -- LOADING: the loaded kvs, see new_load
    why = nil,            -- the error of the last watch, until a load is complete
    history = nil,        -- the store of the objects, or the id of their cluster
    trouble = nil,        -- the present error
    revision = 0,
    gaps = 0,             -- loads after the first one
    failures = 0,         -- failures in a row
    since = 0,            -- the time at which FOLLOWING began
    backoff = backoff.new {},
    has_all = false,      -- the first load is complete
    is_closed = false,
    failure = nil,
    synced = d.event(),   -- set when has_all or is_closed becomes true
    room = d.event(),     -- set when a full handler has room again
  }, shared_mt)
  self.indexer = indexers.new(function() check_interrupted(self) end)
  self.watchdog = setmetatable({ shared = self, is_attached = false }, watchdog_mt)
  self.worker = workers.start(work, self)
  return self
end

-- }======

return { new = new }
