-- SPDX-License-Identifier: MIT
--- history: the last changes of the objects of one kind, for all of its watches.
--
-- One watch of the kind's cache fills a ring of changes { revision, key, new, old }: `new` and `old` are entries
-- (entry.lua), or nil if the object does not exist. Changes have sequence numbers, in the order of revisions, without
-- gap; changes of one transaction have the same revision. The ring is bounded in bytes and does not depend on
-- compactions of the store: a resourceVersion stays valid until the ring has evicted a later change.
--
--            the cache has content                      the cache has another history, or a gap,
--                                                       or the watch was too slow
--   WAITING -----------------------> FOLLOWING ------------------------------------------> WAITING
--                                        CLOSED: the history or the store is closed
--
-- When FOLLOWING ends, the ring is emptied, and its sequence numbers never come again: whoever reads it can notice at
-- any time that changes are missing.
--
-- `revision` is the revision up to which all changes are in the ring, or were evicted. `floor` is the lowest revision
-- after which no change is missing. A gap is a range of revisions which the cache has skipped (see cache/feed.lua): its
-- changes were replaced by their sum, whose deletions have the last revision of the gap. A client that continued after
-- a part of the sum with another server would miss the deletions, so FOLLOWING ends there.

local caches = require "keywatch.cache.cache"
local driver = require "keywatch.task.driver"
local entries = require "keywatch.kubernetes.entry"
local errors = require "keywatch.support.errors"
local log = require "keywatch.support.log"
local slices = require "keywatch.task.slice"
local status_error = require "keywatch.kubernetes.status_error"
local workers = require "keywatch.task.worker"

local MAX_BYTES = 16 * 1024 * 1024
local CHANGE_BYTES = 600  -- of the tables of a change
local LOOK_BACK = 10000   -- revisions before the present one that are read when a watch begins
local MAX_PIECES = 100    -- changes before other tasks run
local RETRY = 1           -- seconds until a watch that could not be opened is tried again

local history_methods = {}
local history_mt = { __name = "keywatch.kubernetes.history", __index = history_methods }

-- {====== The ring ======

--- Removes the oldest change.
local function evict(self)
  local change = self.changes[self.first]
  self.changes[self.first] = nil
  self.first, self.bytes, self.floor = self.first + 1, self.bytes - change.bytes, change.revision
  if self.latest[change.key] == change then self.latest[change.key] = nil end
end

--- Tells all subscribers about a change; nil: progress. `is_over` is true if the ring was emptied.
local function publish(self, change, is_over)
  local list = self.subscribers
  for i = 1, #list do
    local fn = list[i]
    if fn then fn(change, is_over) end
  end
end

--- Wakes the callers that wait for a revision.
local function wake(self)
  if self.moved then self.moved:set() end
end

--- Empties the ring. All positions in it are lost.
local function empty(self)
  self.changes, self.first, self.latest, self.bytes = {}, self.last + 1, {}, 0
  self.floor, self.revision, self.epoch = nil, 0, self.epoch + 1
  publish(self, nil, true)
  wake(self)
end

--- Returns the entry of the object before an event; nil if there was none. A watch shows the state before the
-- transaction; if that has changed the key twice, the state before is that of the first change.
local function state_before(latest, event, key)
  local prev = event.prev
  if latest and latest.revision == event.mod_revision then return latest.new end
  if not prev then return nil end
  if latest and latest.new and latest.new.revision == prev.mod_revision then return latest.new end
  return entries.of(key, prev.value, prev.mod_revision)
end

--- Adds the change of an event. Returns false if the state before is unknown.
local function add(self, event)
  local key, revision = event.key:sub(#self.prefix + 1), event.mod_revision
  local latest = self.latest[key]
  local old = state_before(latest, event, key)
  local new = event.type == "put" and entries.of(key, event.value, revision) or nil
  if not new and not old then return latest ~= nil and latest.revision == revision end
  local is_shared = old and latest and latest.new == old
  local change = {
    revision = revision, key = key, new = new, old = old,
    bytes = CHANGE_BYTES + #key + (new and #new.text or 0) + (old and not is_shared and #old.text or 0),
  }
  self.last = self.last + 1
  self.changes[self.last], self.latest[key], self.bytes = change, change, self.bytes + change.bytes
  while self.bytes > self.max_bytes and self.first < self.last do evict(self) end
  publish(self, change)
  return true
end

-- }======

-- {====== Following ======

--- Begins to follow the cache after a revision. Returns true; or nil and an error.
local function begin_after(self, revision)
  local watch, err = self.cache:watch(self.prefix, {
    prefix = true, prev_kv = true, progress = true, start_revision = revision + 1,
  })
  if not watch then return nil, err end
  self.watch, self.floor, self.revision = watch, revision, revision
  wake(self)
  return true
end

--- Begins to follow the cache, at an earlier revision if its history is known. Returns true; or nil and an error.
local function begin(self)
  local status, gaps = self.cache:status(), caches.gaps_of(self.cache)
  local last_gap = gaps[#gaps]
  local known = math.max(status.compact_revision, last_gap and last_gap.to or 0)
  local ok, err = begin_after(self, math.max(known, status.revision - LOOK_BACK))
  if ok or err.code ~= "compacted" then return ok, err end
  return begin_after(self, self.cache:status().revision)
end

--- True if the cache has skipped changes before a revision since the history has begun.
local function has_skipped(self, revision)
  local gaps = caches.gaps_of(self.cache)
  for _, gap in ipairs(gaps) do
    if gap.to > self.floor and gap.from < revision then return true end
  end
  return gaps.floor > self.floor
end

--- Processes the events of the watch until it fails. Returns its error; nil if it was closed.
local function follow(self)
  local watch, slice = self.watch, slices.new(MAX_PIECES)
  while true do
    local event, err = watch:next()
    if self.watch ~= watch or not event then return err end
    if has_skipped(self, watch.revision) then return errors.new("compacted", "the cache has skipped changes") end
    if event.type ~= "progress" and not add(self, event) then
      return errors.new("compacted", "the previous state of an object is compacted")
    end
    if watch.revision > self.revision then
      self.revision = watch.revision
      if event.type == "progress" then publish(self) end
      wake(self)
    end
    slices.pass(slice)
  end
end

--- Ends following.
local function stop(self)
  local watch = self.watch
  self.watch = nil
  if watch then watch:close() end
  empty(self)
end

--- True if an error means that the cache has ended.
local function is_final(self, err)
  return self.is_closed or err == nil or errors.code_of(err) == "closed"
end

--- Waits until the watch has begun. Returns true; or nil and an error.
local function prepare(self)
  if self.watch then return true end -- the task of an earlier call was cancelled
  local ok, err = self.cache:wait_ready()
  if not ok or self.is_closed then return nil, err end
  return begin(self)
end

--- Follows the cache until that is closed. Returns the error with which that has ended.
local function follow_all(self)
  local ok, err
  repeat
    ok, err = prepare(self)
    if ok then
      err = follow(self)
      stop(self)
      if err then log.debug("the history of %s is lost: %s", log.quote(self.prefix), errors.text_of(err)) end
    elseif not is_final(self, err) then
      driver.get().sleep(RETRY)
    end
  until is_final(self, err)
  return err
end

--- Ends the history with an error.
local function finish(self, err)
  if self.is_closed then return end
  self.is_closed, self.end_error = true, err
  stop(self)
end

--- The work of the history's task. If it fails, watches must not wait for ever.
local function work(self)
  local ok, found = driver.attempt(follow_all, self)
  if not ok then log.error("%s", "a history has failed: " .. found.traceback) end
  finish(self, status_error.from(ok and found or errors.new("stopped", "keywatch: the history has failed")))
end

-- }======

-- {====== Reading ======

--- Returns the sequence number of the first change after a revision, which may be still to come; or nil if such changes
-- are missing. A change at this number or later that does not come after the revision was seen by the caller already:
-- the ring may be older than the revision.
function history_methods:find(revision)
  if not self.floor or revision < self.floor then return nil end
  local low, high, changes = self.first, self.last + 1, self.changes
  while low < high do
    local middle = math.floor((low + high) / 2)
    if changes[middle].revision > revision then high = middle else low = middle + 1 end
  end
  return low
end

--- Returns the change of a sequence number; nil if it is still to come, or if its number is less than `first`: then it
-- was evicted.
function history_methods:get(seq)
  return self.changes[seq]
end

--- True while the ring has the history of the cache's content.
function history_methods:is_ready()
  local watch = self.watch
  return watch ~= nil and self.floor ~= nil and not watch.failure and not watch.last
end

--- Calls fn(change) for each later change, fn(nil) when `revision` has risen without one, and fn(nil, true) when the
-- ring was emptied. fn must not wait, and not raise. Returns a function that ends this.
function history_methods:subscribe(fn)
  local list = self.subscribers
  list[#list + 1] = fn
  return function()
    local current, rest = self.subscribers, {} -- a new list: publish may be walking over the current one
    for i, other in ipairs(current) do
      if other == fn then current[i] = false elseif other then rest[#rest + 1] = other end
    end
    self.subscribers = rest
  end
end

-- }======

-- {====== Waiting ======


--- Returns the driver event that is set after each change of the state.
local function moved(self)
  if not self.moved then self.moved = driver.get().event() end
  return self.moved
end

--- Waits until is_ready. Returns true; or nil and an error: too_many_requests if the cache has no content yet.
function history_methods:wait_ready(timeout)
  local deadline = driver.deadline_of(timeout)
  while not self:is_ready() do
    if self.is_closed then return nil, self.end_error end
    if not moved(self):wait(driver.time_left(deadline)) then
      return nil, status_error.too_many_requests("storage is (re)initializing", 1)
    end
  end
  return true
end

--- Waits until all changes up to a revision are in the ring. Returns true; or nil and an error: too_large_revision if
-- that revision has not come in time.
function history_methods:wait_for(revision, timeout)
  local deadline = driver.deadline_of(timeout)
  local left = driver.time_left
  while true do
    local ok, err = self:wait_ready(left(deadline))
    if not ok then return nil, err end
    if self.revision >= revision then return true end
    ok, err = self.cache:wait_for(revision, left(deadline))
    if not ok and err.code ~= "timeout" then return nil, status_error.from(err) end
    local watch = self.watch
    if ok and watch then watch:sync(left(deadline)) end
    while ok and self.watch == watch and self.revision < revision do
      ok = moved(self):wait(left(deadline))
    end
    if not ok then return nil, status_error.too_large_revision(revision, self.revision) end
  end
end

--- Waits until the ring has all changes that the cache has now. Returns their revision; or nil and an error.
function history_methods:catch_up(timeout)
  local revision = self.cache:status().revision
  local ok, err = self:wait_for(revision, timeout)
  if not ok then return nil, err end
  return revision
end

-- }======

--- Ends the history, and wakes everybody who waits for it. Idempotent.
function history_methods:close()
  finish(self, status_error.from(errors.closed("API")))
  self.worker:stop(true)
end

--- Returns the history of a kind, from now on. `prefix` is the prefix of the kind's keys, which the cache has.
local function new(cache, prefix, max_bytes)
  local self = setmetatable({
    cache = cache, prefix = prefix, max_bytes = max_bytes or MAX_BYTES,
    changes = {},     -- by sequence number
    first = 1,        -- sequence number of the oldest change
    last = 0,         -- sequence number of the newest change
    latest = {},      -- by key: its last change in the ring
    bytes = 0,
    floor = nil,      -- nil while WAITING
    revision = 0,
    epoch = 0,        -- how often the ring was emptied
    watch = nil,
    subscribers = {}, -- functions; false in the place of one that has ended
    moved = nil,      -- driver event: set when floor or revision have changed
    worker = nil,
    is_closed = false,
    end_error = nil,  -- why it is closed
  }, history_mt)
  if cache:is_ready() then begin(self) end -- so that it knows everything after the caller's next read
  self.worker = workers.start(work, self)
  return self
end

return { new = new, MAX_BYTES = MAX_BYTES }
