-- SPDX-License-Identifier: MIT
--- observer: follows an election, and returns every leader, and every new value of a leader, in order.
--
-- One watch of the prefix follows all candidates. The leader is the candidate with the smallest create revision. The
-- leader is determined after each whole revision. The watch queues events until they are read, so a slow reader misses
-- none. Only if the history was compacted before the watch could read it, the candidates are read again: leaders in
-- between are then missed.

local check = require "keywatch.support.check"
local compat = require "keywatch.support.compat"
local contenders = require "keywatch.concurrency.contenders"
local driver = require "keywatch.task.driver"
local errors = require "keywatch.support.errors"
local bases = require "keywatch.concurrency.base"
local entry = require "keywatch.concurrency.entry"
local forwarder = require "keywatch.concurrency.forwarder"
local selection = require "keywatch.task.selection"

local RETRY = 0.5 -- seconds before a watch that could not be opened is tried again

local observer_methods, observer_mt = check.class "keywatch.observer"

-- The state for background work is in a table of its own, which does not refer to the observer.
local follower_methods = {}
local follower_mt = { __index = follower_methods }

local guard = compat.guard(function(follower)
  if not follower.is_closed then driver.forget(follower) end
end)

--- Returns a follower of a prefix, which has no watch yet.
local function new_follower(owner, prefix)
  return setmetatable({
    owner = owner,
    prefix = prefix,
    is_local = bases.is_local((bases.resolve(owner, prefix))),
    watch = nil,
    opener = nil,      -- the task that opens a new watch after one was compacted
    initial = nil,     -- the initial kvs that were read so far, until all were read
    candidates = contenders.new(),
    latest = nil,      -- the kv of the leader that was returned last
    pending = nil,     -- the kv to return next
    failure = nil,     -- the error that the watch has failed with
    is_closed = false,
    forwarder = forwarder.new(),
  }, follower_mt)
end

-- {====== The watch ======

--- Opens the watch, which begins with all candidates. Returns true, or nil and an error.
local function open(self, times)
  local watch, err = self.owner:watch(self.prefix, {
    prefix = true, initial = true, timeout = times.timeout, deadline = times.deadline,
  })
  if not watch then return nil, err end
  if self.is_closed then
    watch:close()
    return true
  end
  self.watch, self.initial = watch, {}
  self.forwarder:add(watch)
  return true
end

--- Opens a new watch, and repeats that until it succeeds or fails permanently. Runs as a task, or directly if the store
-- is in this process.
local function reopen(self)
  while not self.is_closed do
    local ok, err = open(self, {})
    if ok then break end
    if err.code ~= "compacted" and not entry.TEMPORARY[err.code] then
      self.failure = err
      break
    end
    driver.get().sleep(RETRY)
  end
  self.opener = nil
  self.forwarder:wake()
end

--- Makes sure that there is a watch, after one has failed.
local function ensure_watch(self)
  if self.watch or self.failure or self.is_closed then return end
  if self.is_local then return reopen(self) end
  if self.opener and self.opener.state ~= "done" then return end
  self.opener = driver.get().spawn_own(reopen, self)
end

--- Ends the watch.
local function drop_watch(self)
  local watch = self.watch
  self.watch = nil
  if not watch then return end
  self.forwarder:remove(watch)
  watch:close()
end

-- }======

-- {====== The leader ======

--- Makes the initial kvs the candidates.
local function begin(self)
  local kvs = self.initial
  self.initial, self.candidates = nil, contenders.new()
  table.sort(kvs, function(a, b) return a.create_revision < b.create_revision end)
  for _, kv in ipairs(kvs) do
    self.candidates:add(kv.key, kv.create_revision)
    self.candidates.by_key[kv.key].kv = kv
  end
end

--- Applies an event to the candidates.
local function apply(self, event)
  local candidates = self.candidates
  if event.type == "delete" then return candidates:remove(event.key) end
  local known = candidates.by_key[event.key]
  if not known or known.created ~= event.create_revision then
    candidates:add(event.key, event.create_revision)
    known = candidates.by_key[event.key]
  end
  known.kv = contenders.kv_of(event)
end

--- Sets the present leader as the next result, if the leader or its value is new.
local function find_leader(self)
  local oldest, latest = self.candidates:oldest(), self.latest
  local kv = oldest and oldest.kv
  if not kv or latest and latest.key == kv.key and latest.mod_revision == kv.mod_revision then return end
  self.latest, self.pending = kv, kv
end

--- Applies the events of one revision.
local function apply_batch(self, batch)
  for _, event in ipairs(batch.events) do
    if event.initial then
      self.initial[#self.initial + 1] = contenders.kv_of(event)
    elseif event.type == "synced" then
      begin(self)
    else
      apply(self, event)
    end
  end
  if not self.initial then find_leader(self) end
end

--- Handles the failure of the watch.
local function fail(self, err)
  drop_watch(self)
  if err and err.code == "compacted" then return ensure_watch(self) end
  self.failure = self.failure or err
end

--- Reads the watch without waiting, until there is a leader to return. Returns true if there is one, or there will be
-- no more.
function follower_methods:look()
  while not self.pending do
    if self.is_closed or self.failure then return true end
    ensure_watch(self)
    if not self.watch then return false end
    local batch, err = self.watch:batch(0)
    if batch then
      apply_batch(self, batch)
    elseif err and err.code == "timeout" then
      return false
    else
      fail(self, err)
      if not err then self.is_closed = true end
    end
  end
  return true
end

--- Returns the next leader. Returns nil, and the error if the watch has failed.
function follower_methods:take()
  local kv = self.pending
  self.pending = nil
  if kv then return kv end
  return nil, self.failure
end

--- Ends the follower.
function follower_methods:close()
  if self.is_closed then return end
  self.is_closed, self.pending = true, nil
  drop_watch(self)
  if self.opener then self.opener:cancel() end
  self.forwarder:wake()
end

-- }======

--- Returns an observer of the keys below a prefix; or nil and an error.
local function new(owner, prefix, times)
  local follower = new_follower(owner, prefix)
  local ok, err = open(follower, times)
  if not ok then return nil, err end
  return setmetatable({ follower = follower, sentinel = guard(follower) }, observer_mt)
end

--- Waits for the next leader, or the next value of the leader, and returns its kv. Returns nil and an error at the
-- timeout, and if the observer has failed; otherwise only nil after close. The code "timeout" means that the observer
-- stays open.
function observer_methods:next(timeout)
  check.timeout(timeout, "next")
  local found, kv, err = driver.get().select { self, timeout = timeout }
  if not found then return nil, kv end -- the error
  return check.results(kv, err)
end

--- Returns an iterator over all leaders. It ends when the observer is closed, and raises the error that it fails with.
function observer_methods:leaders()
  return function()
    local kv, err = self:next()
    if err then errors.raise(err) end
    return kv
  end
end

--- Ends the observer, and wakes the waiters for it.
function observer_methods:close()
  self.follower:close()
end

observer_mt.__close = observer_methods.close

observer_mt.__select = { -- see task/selection.lua
  is_ready = function(self) return self.follower:look() end,
  begin = function(self) return self.follower.forwarder:begin() end,
  arm = function(self) self.follower.forwarder:arm() end,
  finish = function(self) self.follower.forwarder:finish() end,
  take = function(self)
    local follower = self.follower
    if not follower.pending and not follower.failure and not follower.is_closed then return selection.NOTHING end
    return follower:take()
  end,
}

--- Returns the kv of the last known leader, which may not have been returned yet; nil if there is none. Does not wait.
local function present(self)
  local follower = self.follower
  if not follower.pending and not follower.is_closed then follower:look() end
  local oldest = follower.candidates:oldest()
  return oldest and oldest.kv
end

--- Returns the prefix and the state.
function observer_mt:__tostring()
  local follower = self.follower
  local state = follower.is_closed and "closed" or follower.failure and follower.failure.code or "open"
  return ("keywatch.observer<%s %s>"):format(follower.prefix, state)
end

return { new = new, present = present, methods = observer_methods, mt = observer_mt }
