-- SPDX-License-Identifier: MIT
--- queue: the calls of the Lock and Election services that wait for their turn below one prefix: see exclusion.lua.
--
-- The keys in the store decide whose turn it is, and any client may put and delete them. A queue follows the store by
-- one watch of the prefix, so an event costs the same, however many calls wait. The first waiting call makes the queue,
-- and the queue ends with the last one. A worker, the reader, reads the watch, and gives a call its turn when there is
-- no older key. The calls wait without tasks: thousands of suspended tasks would take much memory, and the garbage
-- collector visits all of them in one step. After an error the reader opens a new watch. If that fails, too, all calls
-- get the error.
--
-- A prefix may have more keys than a process should hold, since a lock may have the name of a directory. Therefore a
-- queue holds only the oldest keys, in proportion to the number of waiting calls, and reads more when these are
-- deleted.
--
-- A waiter is a table with the method wake(waiter, err). The queue calls the method once: when the waiter has its turn,
-- or, with an error, when the wait has failed.
--
-- Invariant while there is a watch: `keys` has the oldest keys below the prefix, as they were at `revision`: all of
-- them if `is_complete`, else at least one.

local contenders = require "keywatch.concurrency.contenders"
local core = require "keywatch.core"
local driver = require "keywatch.task.driver"
local timers = require "keywatch.task.timers"
local worker = require "keywatch.task.worker"
require "keywatch.watch.local_origin" -- store:watch

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
local function load(queue)
  local result, err = queue.store:range(queue.prefix, {
    prefix = true, keys_only = true, sort_target = "create", sort_order = "ascend", limit = capacity(queue),
  })
  if not result then return nil, err end
  local keys = contenders.new()
  for _, kv in ipairs(result.kvs) do keys:add(kv.key, kv.create_revision) end
  queue.keys, queue.is_complete, queue.revision = keys, not result.more, result.revision
  return true
end

--- Reads the keys, and opens the watch right after their revision. Returns true; or nil and an error.
local function begin(queue)
  local ok, err = load(queue)
  if not ok then return nil, err end
  queue.watch, err = queue.store:watch(queue.prefix, { prefix = true, start_revision = queue.revision + 1 })
  if not queue.watch then return nil, err end
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

--- Begins, or waits for the next event and applies it. The queue restarts after all known keys were deleted while there
-- may be others, and after the watch has failed because its history was compacted or replaced. Returns true; or nil
-- and an error.
local function follow(queue)
  if not queue.watch then return begin(queue) end
  local event, err = queue.watch:next()
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

--- Gives at most WOKEN_PER_TURN calls their turn, for whose keys there is no older key. Returns true if there are more
-- such calls. A call whose key was created after `revision` has to wait, since the queue may not know all older keys
-- yet.
local function give_turns(queue)
  local oldest = queue.keys:oldest()
  local turn = oldest and oldest.created or queue.revision
  for _ = 1, WOKEN_PER_TURN do
    local waiter = queue.waiters:due(turn)
    if not waiter then return false end
    waiter:wake()
  end
  return true
end

--- One round of the reader: gives calls their turn, or follows the store. Returns true; or nil and an error.
local function read(queue)
  if queue.watch and give_turns(queue) then
    driver.get().sleep(0)
    return true
  end
  return follow(queue)
end

--- Returns the queue of a prefix, and makes it if there is none. Ignores queues inherited by a fork, which belong to
-- the parent.
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
      revision = 0,          -- revision of the store for `keys`
      events = 0,            -- number of events that were applied
      waiters = timers.new(), -- calls that have no turn yet, by create revision
      count = 0,             -- calls, including those that have their turn and have not left
      reader = nil,          -- the worker that reads the watch
    }
    queues[prefix] = queue
  end
  return queue
end

--- Ends a queue in which no call waits.
local function finish(queue)
  local reader = queue.reader
  if queue.queues[queue.prefix] == queue then queue.queues[queue.prefix] = nil end
  queue.reader = nil
  stop(queue)
  if reader then reader:stop(true) end
end

--- Removes a waiter. The last one ends the queue. Does nothing if the waiter is in no queue.
local function leave(waiter)
  local queue = waiter.queue
  if not queue then return end
  waiter.queue = nil
  queue.waiters:remove(waiter.timer)
  queue.count = queue.count - 1
  if queue.count == 0 then finish(queue) end
end

--- Passes an error to all current waiters, the oldest first. Waiters that arrive during that get only the next error.
-- Returns false if there are no waiters.
local function fail_all(queue, err)
  local count = #queue.waiters.heap
  for i = 1, count do
    local waiter = queue.waiters:first()
    if not waiter then break end
    queue.waiters:remove(waiter.timer)
    waiter:wake(err)
    if i % WOKEN_PER_TURN == 0 then driver.get().sleep(0) end
  end
  return count > 0
end

--- The function of a reader: reads the watch while calls wait. After an error of the watch the queue restarts. If that
-- fails, or if the new watch fails before its first event, all waiting calls fail with the error.
local function work(queue)
  local events = -1 -- events applied before the last error
  while queue.count > 0 and queue.pid == core.pid() do
    local ok, has_read, err = pcall(read, queue)
    if not ok then err = has_read end
    if not ok and driver.is_cancellation(err) then
      if queue.count == 0 then stop(queue) end
      error(err, 0)
    end
    if not (ok and has_read) then
      local can_start_over = queue.watch ~= nil and queue.events > events
      events = queue.events
      stop(queue)
      if not can_start_over and not fail_all(queue, err) then break end
      driver.get().sleep(0)
    end
  end
  queue.reader = nil
  if queue.count == 0 then finish(queue) end
end

--- Adds a waiter, a table with the method wake, to the calls of a store that wait until no key below the prefix is
-- older than `created`. After `wake`, or to stop waiting, call `leave`.
local function enroll(queues, store, prefix, created, waiter)
  local queue = queue_of(queues, store, prefix)
  waiter.queue, waiter.timer = queue, queue.waiters:add(created, waiter)
  queue.count = queue.count + 1
  queues[prefix] = queues[prefix] or queue -- a finalizer may have ended the queue before the waiter was added
  if not queue.reader then queue.reader = worker.start(work, queue) end
  if queue.watch then give_turns(queue) end
end

-- }======

--- True if calls wait below the prefix.
local function exists(queues, prefix)
  local queue = queues[prefix]
  return queue ~= nil and queue.pid == core.pid()
end

--- Returns the oldest key below the prefix and its create revision, as far as the queue knows. Returns nil if there is
-- no queue, or if another key of the same create revision may be first.
local function oldest(queues, prefix)
  local queue = queues[prefix]
  local first = queue and queue.watch and queue.keys:oldest()
  if not first or first.is_tied or queue.keys.count == 1 and not queue.is_complete then return nil end
  return first.key, first.created
end

return { enroll = enroll, leave = leave, exists = exists, oldest = oldest }
