-- SPDX-License-Identifier: MIT
--- local_origin: the origin of a store's watch: its events come from the store in this process. The core queues them,
-- up to a limit, and a writer never waits for a reader.

local check = require "keywatch.support.check"
local core = require "keywatch.core"
local driver = require "keywatch.task.driver"
local order = require "keywatch.support.order"
local pages = require "keywatch.store.pages"
local poller = require "keywatch.store.poller"
local watch = require "keywatch.watch.watch"

local NOT_YET = core.new_error("timeout") -- raised by the iterator over the existing kvs, see watch.lua
local MAX_BEGINNINGS = 3 -- attempts to read the first page of the existing kvs
local LOOK_STEPS = 1000 -- most steps of the store in one look at a lagging watch; enough for a revision of millions of
                        -- events
local SYNC_STEPS = 64   -- most steps of the store in one sync, and most batches that it moves into the buffer

-- {====== Waiting ======

local poller_methods = {}
local poller_mt = { __index = poller_methods }

local get_poller = poller.of_stores(function(store)
  return setmetatable({
    store = store,
    waiting = {},           -- watches that a task, or the top level, waits for; by tag
    reading = {},           -- as keys: watches that are reading a page of the existing kvs
    awaiting_progress = {}, -- as keys: watches whose request for progress is repeated until the core accepts it
    syncing = {},           -- by watch: number of calls of sync that wait for its reader
  }, poller_mt)
end)

--- Wakes all waiters of all watches.
function poller_methods:wake_all()
  for _, one in ipairs(order.values_by(self.waiting, "tag")) do watch.wake(one) end
end

--- Requests the progress for which calls of sync wait, and wakes the calls whose reader has ended.
local function poll_syncs(self)
  for _, one in ipairs(order.keys_by(self.awaiting_progress, "tag")) do
    if one.core:request_progress() then self.awaiting_progress[one] = nil end
  end
  for _, one in ipairs(order.keys_by(self.syncing, "tag")) do
    if not watch.is_read_by_other(one) then one.progressed:set() end
  end
end

--- Wakes the watches that wait for the next part of a page. Returns true if there were any.
local function resume_readers(self)
  local has_woken = false
  for _, one in ipairs(order.keys_by(self.reading, "tag")) do
    self.reading[one] = nil -- one by one: if `set` raises, the others are still there
    if self.waiting[one.tag] and one.arrival and one.arrival:set() then has_woken = true end
  end
  return has_woken
end

--- Does the work of the store that is due, and wakes the waiters of watches that have something to take.
function poller_methods:poll()
  local seconds, is_pending = self.store:run_due()
  if seconds == false then
    self:wake_all()
    return 0
  end
  if next(self.syncing) or next(self.awaiting_progress) then poll_syncs(self) end
  for tag in self.store.next_ready, self.store do
    local waiting = self.waiting[tag]
    if waiting and waiting.arrival then waiting.arrival:set() end
  end
  if next(self.reading) and resume_readers(self) then seconds = 0 end
  return seconds, is_pending
end

--- Counts a sync that waits for the reader of a watch. Requests progress.
function poller_methods:begin_sync(one)
  self.syncing[one] = (self.syncing[one] or 0) + 1
  if not one.core:request_progress() then self.awaiting_progress[one] = true end
end

--- Counts a sync that has ended.
function poller_methods:end_sync(one)
  self.syncing[one] = self.syncing[one] > 1 and self.syncing[one] - 1 or nil
  if not self.syncing[one] then self.awaiting_progress[one] = nil end
end

--- Counts a waiter of a watch.
function poller_methods:add(one)
  poller.enter(self)
  self.waiting[one.tag] = one
  one.waiters = one.waiters + 1
end

--- Counts a waiter of a watch that has left.
function poller_methods:remove(one)
  one.waiters = one.waiters - 1
  if one.waiters == 0 then
    self.waiting[one.tag] = nil
    one.core:disarm() -- the core announces nothing until a task waits again
  end
  poller.leave(self)
end

-- }======

-- {====== Sync ======

--- If the revision of the existing kvs was compacted, so that no more pages can be read, takes the kvs that were read.
-- Afterwards the watch has all existing kvs, or has failed.
local function finish_initial(one)
  if not one.initial or one.store:status().compact_revision <= one.initial_revision then return end
  while one.initial and watch.take_initial(one) do end
end

--- Returns the error of a watch that can deliver nothing more, or nil.
local function terminal_error(one)
  local err = watch.terminal_error(one)
  if err then return err end
  finish_initial(one)
  return one.failure or one.last
end

--- Syncs a watch whose reader is the caller. The core queues progress after all events so far; everything
-- before it can then be read without waiting. A lagging watch is caught up, and batches are moved from a full queue
-- into the buffer. Returns a revision, or nil and an error.
local function sync_own(one)
  for i = 1, SYNC_STEPS do
    local revision = one.core:request_progress()
    if revision then return revision end
    one.store:run_due()
    if not one.initial and (one.core:is_blocked() or i > 1) then watch.take(one) end
    local err = terminal_error(one)
    if err then return nil, err end
  end
  if one.core:has_failed() then
    while one.initial and watch.take_initial(one) do end
    while watch.fill(one) and not one.failure and watch.take(one) do end
    if one.failure then return nil, one.failure end
  end
  return nil, core.new_error("full")
end

--- Ends the sync of a killed caller.
local function undo_sync(one)
  local own = get_poller(one.store)
  own:end_sync(one)
  own:remove(one)
end

--- Syncs a watch that another task reads: waits until that task has received everything up to the current revision, or
-- has ended. Returns a revision, or nil and an error.
local function sync_with_reader(one, timeout)
  local d = driver.get()
  local deadline = timeout and d.now() + timeout
  local target = one.store:status().revision
  local own = get_poller(one.store)
  one.progressed = one.progressed or d.event()
  own:add(one)
  own:begin_sync(one)
  local ok, revision, err = driver.protect(undo_sync, one, function()
    while one.revision < target do
      local why = terminal_error(one)
      if why then return nil, why end
      if not watch.is_read_by_other(one) then return sync_own(one) end
      if not one.progressed:wait(deadline and deadline - d.now()) then return nil, core.new_error("timeout") end
    end
    return one.revision
  end)
  own:end_sync(one)
  own:remove(one)
  if not ok then error(revision, 0) end
  return check.results(revision, err)
end

-- }======

local origin = { owner = "store" }

--- Takes the next item from the core's queue. See watch.lua.
function origin.take(one)
  local kind, what, is_partial = one.core:take(one.used)
  if kind == "compacted" then
    local err = core.new_error("compacted")
    err.compact_revision = what
    return "failed", err
  elseif kind == "corrupt" or kind == "closed" then
    return "failed", core.new_error(kind)
  end
  return kind, what, is_partial
end

--- Counts a waiter.
function origin.begin_wait(one)
  get_poller(one.store):add(one)
end

--- Makes the core announce, once, that something has arrived or arrives, and continues a page that was begun.
function origin.arm(one)
  one.core:arm()
  if one.read then get_poller(one.store).reading[one] = true end
end

--- Counts a waiter that has left.
function origin.end_wait(one)
  get_poller(one.store):remove(one)
end

--- True if the store is closed. Does work of the store that is due.
function origin.is_closed(one)
  return one.store:run_due() == false
end

--- True if the watch has failed, even if the error was not taken yet.
function origin.has_failed(one)
  return one.core:has_failed()
end

--- Returns false: the reading is not restarted here, but only by open.
function origin.begin_again()
  return false
end

--- Waits until everything up to the current revision was delivered. Returns a revision, or nil and an error.
function origin.sync(one, timeout)
  local err = terminal_error(one)
  if err then return nil, err end
  if watch.is_read_by_other(one) then return sync_with_reader(one, timeout) end
  return sync_own(one)
end

--- Ends the watch in the core.
function origin.close(one)
  one.core:close()
  one.read, one.list, one.page = nil, nil, nil
end

-- {====== Existing kvs ======

--- Continues a page that takes longer than a turn; with `is_whole`, to its end. Returns the same as take_page. If this
-- raises, the page is restarted.
local function read_more(one, is_whole)
  local read, list = one.read, one.list
  one.read, one.list = nil, nil
  local result, err = one.store:read_more(list, read, is_whole)
  if result ~= false then return result, err end
  if not one.is_closed then
    one.read, one.list = read, list
    get_poller(one.store).reading[one] = true
  end
  return nil, NOT_YET
end

--- Begins a page. Returns the same as take_page.
local function begin_page(one, key, opts, used)
  local store = one.store
  local result, err
  if used then result, err = store:try_page(key, opts, used) else result, err = store:try_range(key, opts) end
  if result ~= false then return result, err end
  local read, why = store:open_read(key, opts)
  if not read then return nil, why end
  one.read, one.list = read, used or {}
  return read_more(one, not driver.can_park())
end

--- Reads a page, at the revision of the options. In a task a long page is read in several turns, and the task waits for
-- each as for an event. Returns the same as store:range; or nil and NOT_YET while the page is being read. Reuses the
-- tables of the list `used`, if given.
local function take_page(one, key, opts, used)
  local page = one.page
  one.page = nil
  if page then return page.result, page.err end
  if one.read then return read_more(one, not driver.can_park()) end
  return begin_page(one, key, opts, used)
end

--- If the queue of a lagging watch is empty, makes the store catch the watch up until something has arrived. Returns
-- true if that was done, and something has arrived.
local function bring_up(one)
  for step = 0, LOOK_STEPS do
    local n, _, is_behind = one.core:backlog()
    if n > 0 then return step > 0 end
    if not is_behind or one.store:run_due() == false then return false end
  end
  return false
end

--- Catches the watch up if it is behind, and reads the rest of a page that was begun. During the call a finalizer takes
-- no page, since the iterator would then return this page instead of the next.
function origin.look(one)
  local has_arrived = bring_up(one)
  if not one.read or one.is_taking_initial then return has_arrived end
  one.is_taking_initial = true
  local ok, result, err = pcall(read_more, one, true)
  one.is_taking_initial = nil
  if not ok then error(result, 0) end
  if not one.is_closed then one.page = { result = result, err = err } end
  return has_arrived
end

--- Returns an iterator over the existing kvs. It raises an error if the watch has failed before a page is read, since
-- that page might belong to another history.
local function initial_pages(one, key, opts)
  if key == "" and not (opts.prefix or opts.from_key) then key = "\0" end -- a watch treats the empty key like this
  local reader, used = {}, opts[watch.TRANSIENT] and {}
  function reader.range(_, first, page)
    page.revision = one.initial_revision
    return take_page(one, first, page, used)
  end
  return pages.iterate(reader, key, {
    prefix = opts.prefix,
    range_end = opts.range_end,
    from_key = opts.from_key,
    revision = 0,
    limit = 0,
  }, function()
    if one.core:has_failed() then error(core.new_error("compacted"), 0) end
  end, true)
end

-- }======

--- Watches a key, or a range of keys. `opts` is a table; `core_opts` are the options for the core. Returns the watch,
-- or nil and an error. All tables are made before the core begins the watch: from then on every allocation may run a
-- finalizer that compacts the revision of the existing kvs.
local function try_open(store, key, opts, core_opts)
  local one = watch.new {
    core = false,
    origin = origin,
    store = store, -- must not be collected before the watch
    tag = false,
    key = key,
    revision = 0,
    progress = opts.progress,
    initial = false, -- iterator over the existing kvs
    initial_revision = false,
    used = opts[watch.TRANSIENT] and {}, -- tables of events
    waiters = 0,
    -- These are set while a page of the existing kvs is being read:
    --   read   the core's read of the page; list: the kvs that it has read
    --   page   the page, read to its end and not taken yet: { result =, err = }
  }
  one.initial = opts.initial and initial_pages(one, key, opts) or nil
  local handle, tag, now = check.call("watch", store.open_watch, store, key, core_opts)
  if not handle then return nil, tag end
  one.core, one.tag, one.initial_revision = handle, tag, opts.initial and now or nil
  if not opts.initial then
    local start = opts.start_revision or 0
    one.revision = start > 0 and start - 1 or now
    return one
  end
  local ok, err = pcall(watch.take_initial, one) -- at the first revision of the watch: it is not compacted yet
  if ok and not one.failure then return one end
  one:close()
  if not ok then error(err, 0) end
  return nil, one.failure
end

--- Watches a key, or a range of keys. Returns the watch, or nil and an error. If a compaction, by a finalizer, has
-- overtaken the first page of the existing kvs, the watch is restarted.
local function open(store, key, opts)
  check.self(store, "watch")
  check.argument(type(key) == "string", 1, "watch", "string", key)
  opts = check.options(opts, "watch")
  local core_opts = watch.core_options(opts)
  for attempt = 1, MAX_BEGINNINGS do
    local one, err = try_open(store, key, opts, core_opts)
    if one or not opts.initial or err.code ~= "compacted" or attempt == MAX_BEGINNINGS then
      return check.results(one, err)
    end
  end
end

--- Wakes the waiters of watches that have something to take. Called by code that changes a store in a poll of the
-- driver, since the store itself may have been polled already.
local function poke(store)
  local own = get_poller(store)
  if own.count > 0 then own:poll() end
end

core.store_methods.watch = open

return { open = open, poke = poke }
