-- SPDX-License-Identifier: MIT
--- queue: the calls of one store or client that wait for their turn in one contest, that is below one prefix: calls of
-- the Lock and Election services, see server/services/contest.lua, and those of locks and elections, see place.lua.
--
-- The keys in the store decide, and any client may put and delete them. A queue follows the store by one watch of the
-- prefix. It is made by the first call that waits, and ends with the last.
--
-- One of the waiting calls, the reader, reads the watch for all. An event costs the same, however many calls wait. The
-- reader gives each call its turn that has no older key before it. A reader that leaves appoints the call that is next
-- in line. So no call waits without a reader, and an error of the watch reaches one call after the other.
--
-- A call can wait without a task, see `enroll`: thousands of suspended tasks take much memory, and the garbage
-- collector looks at all of them in one step. The reader of such calls is the keeper, a worker that lives as long as
-- the queue. A queue has waiters of one kind. The keeper opens another watch after an error. An error that stays
-- reaches all calls.
--
-- A prefix may have more keys than a process should hold, since a lock may be named like a directory. Therefore a
-- queue holds the oldest keys only, in proportion to the calls that wait. It reads the next ones when those are gone.
--
-- A call comes with an *access*, which makes its requests and its waits, so that they end with the call:
--
--   range(access, store, key, opts)  As store:range.
--   watch(access, store, key, opts)  As store:watch. False: the keys have to be read again.
--   next(access, watch)              As watch:next.
--   wait(access, waiter)             Waits for the waiter's event `woken`. Returns true; or nil and an error.
--
-- A waiter has the method tell(waiter, err). The queue calls it when the waiter has its turn, or has become the reader;
-- for a waiter without a task, once: when the waiter has its turn, or, with an error, when the wait has failed.
--
-- Always true while there is a watch: `keys` has the oldest keys below the prefix, as they were at `revision`: all of
-- them if `is_complete`, else at least one.

local contenders = require "keywatch.concurrency.contenders"
local core = require "keywatch.core"
local driver = require "keywatch.task.driver"
local timers = require "keywatch.task.timers"
local worker = require "keywatch.task.worker"

local FEWEST_KEYS = 100 -- that a queue may hold, whatever the number of calls
local KEYS_PER_CALL = 2
local EVENTS_PER_TURN = 256 -- that a reader applies before other tasks run
local WOKEN_PER_TURN = 64   -- calls that are given their turn before other tasks run

-- {====== Following the store ======

--- Returns the number of keys that a queue may hold.
local function capacity(queue)
  return FEWEST_KEYS + KEYS_PER_CALL * queue.count
end

--- Reads the oldest keys from the store. Returns true; or nil and an error.
local function load(queue, access)
  local result, err = access:range(queue.store, queue.prefix, {
    prefix = true, keys_only = true, sort_target = "create", sort_order = "ascend", limit = capacity(queue),
  })
  if not result then return nil, err end
  local keys = contenders.new()
  for _, kv in ipairs(result.kvs) do keys:add(kv.key, kv.create_revision) end
  queue.keys, queue.is_complete, queue.revision = keys, not result.more, result.revision
  return true
end

--- Reads the keys, and opens the watch right behind their revision. Returns true, also if that has to be repeated; or
-- nil and an error.
local function begin(queue, access)
  local ok, err = load(queue, access)
  if not ok then return nil, err end
  local watch
  watch, err = access:watch(queue.store, queue.prefix, { prefix = true, start_revision = queue.revision + 1 })
  if watch == false then return true end
  if not watch then return nil, err end
  queue.watch = watch
  return true
end

--- Closes the watch, if there is one.
local function stop(queue)
  local watch = queue.watch
  queue.watch = nil
  if watch then watch:close() end
end

--- Applies an event to the keys.
local function apply(queue, event)
  queue.revision = event.mod_revision
  if event.type == "delete" then
    queue.keys:remove(event.key)
  elseif event.create_revision == event.mod_revision and queue.is_complete then
    queue.is_complete = queue.keys.count < capacity(queue)
    if queue.is_complete then queue.keys:add(event.key, event.create_revision) end
  end
end

--- Begins, or waits for the next event and applies it. The queue begins anew after the oldest keys were deleted and it
-- does not know the others, and after the watch has failed since its history was compacted or replaced. Returns true;
-- or nil and an error.
local function follow(queue, access)
  if not queue.watch then return begin(queue, access) end
  local event, err = access:next(queue.watch)
  if event then
    apply(queue, event)
    queue.events = queue.events + 1
    if queue.events % EVENTS_PER_TURN == 0 then driver.get().sleep(0) end
    if queue.keys.count == 0 and not queue.is_complete then stop(queue) end
    return true
  end
  if not err or err.code ~= "compacted" then return nil, err or core.new_error("closed") end
  stop(queue)
  return true
end

-- }======

-- {====== Waiting ======

--- Gives calls their turn that have no older key before them, WOKEN_PER_TURN at most. Returns true if that was not
-- enough for all. A call whose key was created after `revision` has to wait: keys that are older than its own may still
-- come.
local function give_turns(queue)
  local oldest = queue.keys:oldest()
  local turn = oldest and oldest.created or queue.revision
  for _ = 1, WOKEN_PER_TURN do
    local waiter = queue.waiters:due(turn)
    if not waiter then return false end
    waiter.has_turn = true
    waiter:tell()
  end
  return true
end

--- What the reader does once: gives calls their turn, or follows the store. Returns true; or nil and an error.
local function read(queue, waiter, access)
  if queue.watch and give_turns(queue) then
    driver.get().sleep(0)
    return true
  end
  if waiter.has_turn then return true end
  return follow(queue, access)
end

--- Waits for the turn of a call. Returns true; or nil and an error.
local function await(queue, waiter, access)
  if queue.watch then give_turns(queue) end
  while not waiter.has_turn do
    queue.reader = queue.reader or waiter
    local ok, err
    if queue.reader == waiter then ok, err = read(queue, waiter, access) else ok, err = access:wait(waiter) end
    if not ok then return nil, err end
  end
  return true
end

-- A waiter can be selected: ready when the call has its turn, or has become the reader.
local waiter_methods = {}
local waiter_mt = { __index = waiter_methods }

--- Has the call look at its state.
function waiter_methods:tell() self.woken:set() end

waiter_mt.__select = {
  is_ready = function(waiter) return waiter.has_turn or waiter.queue.reader == waiter end,
  begin = function(waiter) return waiter.woken end,
  finish = function() end,
  take = function() return true end,
}

--- Returns the queue of a prefix, which is made if there is none. A queue that was inherited by a fork is the parent's.
local function queue_of(queues, store, prefix)
  local queue = queues[prefix]
  if not queue or queue.pid ~= core.pid() then
    queue = {
      queues = queues,
      store = store,
      prefix = prefix,
      pid = core.pid(),
      watch = nil,
      keys = nil,            -- the oldest keys below the prefix: see above
      is_complete = false,   -- `keys` has all keys below the prefix
      revision = 0,          -- of the store, that `keys` is of
      events = 0,            -- that were applied
      waiters = timers.new(), -- calls that have no turn yet, by create revision
      count = 0,             -- calls, with those that have a turn and have not left
      reader = nil,          -- the waiter that reads the watch, or KEEPER
      keeper = nil,          -- the worker that reads the watch for waiters without tasks
    }
    queues[prefix] = queue
  end
  return queue
end

--- Adds a waiter to a queue.
local function add(queue, created, waiter)
  local place = queue.waiters:add(created, waiter)
  waiter.queue, waiter.place = queue, place
  queue.count = queue.count + 1
end

--- Ends a queue that nobody waits in.
local function finish(queue)
  local keeper = queue.keeper
  if queue.queues[queue.prefix] == queue then queue.queues[queue.prefix] = nil end
  queue.keeper = nil
  stop(queue)
  if keeper then keeper:stop(true) end
end

--- Removes a waiter. Another one reads the watch from now on; or the queue ends. Does nothing if the waiter is in no
-- queue.
local function leave(waiter)
  local queue = waiter.queue
  if not queue then return end
  waiter.queue = nil
  queue.waiters:remove(waiter.place)
  queue.count = queue.count - 1
  if queue.reader == waiter then
    queue.reader = queue.waiters:first()
    if queue.reader then queue.reader:tell() end
  end
  if queue.count == 0 then finish(queue) end
end

--- Waits until no key of a store or client below the prefix is older than `created`. `queues` has the queues of the
-- store, by prefix. Returns true; or nil and an error.
local function wait(queues, store, prefix, created, access)
  local waiter = setmetatable({ has_turn = false, woken = driver.get().event(), place = nil, queue = nil }, waiter_mt)
  local queue = queue_of(queues, store, prefix)
  add(queue, created, waiter)
  local ok, has_turn, err = driver.protect(leave, waiter, await, queue, waiter, access)
  leave(waiter)
  if not ok then error(has_turn, 0) end
  return has_turn, err
end

-- }======

-- {====== Waiting without a task ======

local KEEPER = { has_turn = false } -- stands for the keeper where a queue names its reader

-- The access of a keeper.
local ACCESS = {
  range = function(_, store, key, opts) return store:range(key, opts) end,
  watch = function(_, store, key, opts) return store:watch(key, opts) end,
  next = function(_, watch) return watch:next() end,
}

--- Tells as many waiters as there are now of an error, the oldest first. If others come meanwhile, some are left, and
-- learn of the next error. Returns false if there is none.
local function fail_all(queue, err)
  local count = #queue.waiters.heap
  for i = 1, count do
    local waiter = queue.waiters:first()
    if not waiter then break end
    queue.waiters:remove(waiter.place)
    waiter:tell(err)
    if i % WOKEN_PER_TURN == 0 then driver.get().sleep(0) end
  end
  return count > 0
end

--- The function of a keeper: reads the watch while calls wait. After an error of the watch the queue begins anew. If
-- that fails, or the new watch fails before it has given an event, all calls that wait are told of the error.
local function keep(queue)
  local events = -1 -- that were applied before the last error
  while queue.count > 0 and queue.pid == core.pid() do
    local ok, has_read, err = pcall(read, queue, KEEPER, ACCESS)
    if not ok then err = has_read end
    if not ok and driver.is_cancellation(err) then
      if queue.count == 0 then stop(queue) end
      error(err, 0)
    end
    if not (ok and has_read) then
      local can_begin_anew = queue.watch ~= nil and queue.events > events
      events = queue.events
      stop(queue)
      if not can_begin_anew and not fail_all(queue, err) then break end
      driver.get().sleep(0)
    end
  end
  queue.keeper = nil
  if queue.count == 0 then finish(queue) end
end

--- Adds a waiter, a table with the method tell, to the calls of a store that wait until no key below the prefix is
-- older than `created`. A waiter that was told, or waits no more, has to `leave`.
local function enroll(queues, store, prefix, created, waiter)
  local queue = queue_of(queues, store, prefix)
  add(queue, created, waiter)
  queues[prefix] = queues[prefix] or queue -- a finalizer may have ended the queue before the waiter was in it
  if not queue.keeper then queue.reader, queue.keeper = KEEPER, worker.start(keep, queue) end
  if queue.watch then give_turns(queue) end
end

-- }======

--- True if calls wait below the prefix.
local function exists(queues, prefix)
  local queue = queues[prefix]
  return queue ~= nil and queue.pid == core.pid()
end

--- Returns the oldest key below the prefix and its create revision, as far as the queue knows. Returns nil if there is
-- no queue, or another key that was created at the same revision may come first.
local function oldest(queues, prefix)
  local queue = queues[prefix]
  local first = queue and queue.watch and queue.keys:oldest()
  if not first or first.is_tied or queue.keys.count == 1 and not queue.is_complete then return nil end
  return first.key, first.created
end

return { wait = wait, enroll = enroll, leave = leave, exists = exists, oldest = oldest }
