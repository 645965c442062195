-- SPDX-License-Identifier: MIT
--- queue: the calls of a server that wait for their turn in one contest (see contest.lua), that is below one prefix.
--
-- The keys in the store decide, and any client may put and delete them. A queue follows the store by one watch of the
-- prefix. It is made by the first call that waits, and ends with the last.
--
-- One of the waiting calls, the reader, reads the watch for all. An event costs the same, however many calls wait. The
-- reader gives each call its turn that has no older key before it. A reader that leaves appoints the call that is next
-- in line. So no call waits without a reader, and an error of the watch reaches one call after the other.
--
-- A prefix may have more keys than the server should hold, since a lock may be named like a directory. Therefore a
-- queue holds the oldest keys only, in proportion to the calls that wait. It reads the next ones when those are gone.
--
-- Always true while there is a watch: `keys` has the oldest keys below the prefix, as they were at `revision`: all of
-- them if `is_complete`, else at least one.

local contenders = require "keywatch.concurrency.contenders"
local core = require "keywatch.core"
local driver = require "keywatch.task.driver"
local timers = require "keywatch.task.timers"

local FEWEST_KEYS = 100 -- that a queue may hold, whatever the number of calls
local KEYS_PER_CALL = 2

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

--- Reads the keys, and opens the watch right behind their revision. Returns true; or nil and an error.
local function begin(queue)
  local ok, err = load(queue)
  if not ok then return nil, err end
  local watch
  watch, err = queue.store:watch(queue.prefix, { prefix = true, start_revision = queue.revision + 1 })
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
local function follow(queue)
  if not queue.watch then return begin(queue) end
  local event, err = queue.watch:next()
  if event then
    apply(queue, event)
    if queue.keys.count == 0 and not queue.is_complete then stop(queue) end
    return true
  end
  if not err or err.code ~= "compacted" then return nil, err or core.new_error("closed") end
  stop(queue)
  return true
end

-- }======

-- {====== Waiting ======

--- Gives every call its turn that has no older key before it. A call whose key was created after `revision` has to
-- wait: keys that are older than its own may still come.
local function give_turns(queue)
  local oldest = queue.keys:oldest()
  local turn = oldest and oldest.created or queue.revision
  while true do
    local waiter = queue.waiters:due(turn)
    if not waiter then return end
    waiter.has_turn = true
    waiter.woken:set()
  end
end

--- Waits for the turn of a call. Returns true; or nil and an error.
local function await(queue, waiter)
  if queue.watch then give_turns(queue) end
  while not waiter.has_turn do
    queue.reader = queue.reader or waiter
    if queue.reader == waiter then
      local ok, err = follow(queue)
      if not ok then return nil, err end
      if queue.watch then give_turns(queue) end
    else
      waiter.woken:wait()
    end
  end
  return true
end

--- Returns the queue of a prefix, which is made if there is none, and a new waiter in it.
local function enter(server, prefix, created)
  local waiter = { has_turn = false, woken = driver.get().event(), place = nil }
  local queue = server.queues[prefix] or {
    store = server.store,
    prefix = prefix,
    watch = nil,
    keys = nil,            -- the oldest keys below the prefix: see above
    is_complete = false,   -- `keys` has all keys below the prefix
    revision = 0,          -- of the store, that `keys` is of
    waiters = timers.new(), -- calls that have no turn yet, by create revision
    count = 0,             -- calls, with those that have a turn and have not left
    reader = nil,          -- the waiter that reads the watch
  }
  waiter.place = queue.waiters:add(created, waiter)
  queue.count = queue.count + 1
  server.queues[prefix] = queue
  return queue, waiter
end

--- Removes a waiter. Another one reads the watch from now on; or the queue ends.
local function leave(server, queue, waiter)
  queue.waiters:remove(waiter.place)
  queue.count = queue.count - 1
  if queue.reader == waiter then
    queue.reader = queue.waiters:first()
    if queue.reader then queue.reader.woken:set() end
  end
  if queue.count == 0 then
    server.queues[queue.prefix] = nil
    stop(queue)
  end
end

--- Waits until no key below the prefix is older than `created`. Returns true; or nil and an error.
local function wait(server, prefix, created)
  local queue, waiter = enter(server, prefix, created)
  local ok, has_turn, err = pcall(await, queue, waiter)
  leave(server, queue, waiter)
  if not ok then error(has_turn, 0) end
  return has_turn, err
end

-- }======

--- True if calls wait below the prefix.
local function exists(server, prefix)
  return server.queues[prefix] ~= nil
end

--- Returns the oldest key below the prefix and its create revision, as far as the queue knows. Returns nil if there is
-- no queue, or another key that was created at the same revision may come first.
local function oldest(server, prefix)
  local queue = server.queues[prefix]
  local first = queue and queue.watch and queue.keys:oldest()
  if not first or first.is_tied or queue.keys.count == 1 and not queue.is_complete then return nil end
  return first.key, first.created
end

return { wait = wait, exists = exists, oldest = oldest }
