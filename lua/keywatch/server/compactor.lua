-- SPDX-License-Identifier: MIT
--- compactor: compacts the history of a store from time to time, as etcd does.
--
--   periodic   History older than `retention` seconds is compacted. The revision is recorded ten times in `retention`,
--              or, if `retention` is longer than an hour, ten times an hour. The first compaction comes after
--              `retention`, further ones every `retention`, or, if `retention` is longer than an hour, every hour.
--   revision   The last `retention` revisions are kept. Older ones are compacted, every five minutes.
--
-- Younger history is never compacted. The store may be any object with a store's methods: status and compact may wait,
-- so every step is a task. The driver polls a compactor until it is closed.

local driver = require "keywatch.task.driver"
local log = require "keywatch.support.log"

local HOUR = 3600
local NOTES = 10 -- recorded revisions in a period
local REVISIONS_INTERVAL = 300 -- seconds

local compactor_methods = {}
local compactor_mt = { __name = "keywatch.compactor", __index = compactor_methods }

function compactor_mt:__tostring()
  return ("keywatch.compactor<%s, %g>"):format(self.mode, self.retention)
end

--- Compacts. A concurrent compaction by another client counts as well.
local function compact(self, revision, now)
  local result, err = self.store:compact(revision)
  if not result and err.code ~= "compacted" then
    self.log.warn("compacting to revision %d has failed: %s", revision, err.message)
    return
  end
  self.last_revision, self.last_time = revision, now
  self.log.debug("compacted to revision %d", revision)
end

local step_in = {} -- by mode: takes the compactor, the store's revision and the time

--- History is compacted up to the oldest note only when that is at least `retention` old.
function step_in.periodic(self, revision, now)
  local notes, oldest = self.notes, self.notes[1]
  if oldest and oldest ~= self.last_revision and now - self.last_time >= self.wait then
    self.wait = math.min(self.retention, HOUR)
    compact(self, oldest, now)
  end
  notes[#notes + 1] = revision
  if #notes > self.most_notes then table.remove(notes, 1) end
end

function step_in.revision(self, revision, now)
  local to = revision - self.retention
  if to > 0 and to ~= self.last_revision then compact(self, to, now) end
end

--- Returns the seconds between two steps, and the limit of recorded revisions.
local function plan(mode, retention)
  if mode == "revision" then return REVISIONS_INTERVAL, 0 end
  if retention <= HOUR then return retention / NOTES, NOTES + 1 end
  return HOUR / NOTES, math.floor(retention * NOTES / HOUR) + 1
end

--- Returns a compactor that no driver polls yet. `retention` is a number of seconds or of revisions, above 0. `now` is
-- the clock, by default the driver's, and `logger` the logger, by default the program's.
local function new(store, mode, retention, now, logger)
  local interval, most_notes = plan(mode, retention)
  return setmetatable({
    store = store,
    mode = mode,
    retention = retention,
    now = now or driver.get().now,
    log = logger or log,

    interval = interval, -- seconds between two steps
    deadline = nil,      -- time of the next step
    is_busy = false,     -- a step is running
    is_closed = false,

    notes = {}, -- revisions of the store, the oldest first
    most_notes = most_notes,
    wait = retention, -- seconds from the last compaction to the next

    last_revision = nil, -- revision of the last compaction
    last_time = nil,     -- time of the last compaction; before the first one, time of the first note
  }, compactor_mt)
end

--- Does the work of one interval. May wait.
function compactor_methods:step()
  local now = self.now()
  local state, err = self.store:status()
  if state then
    self.last_time = self.last_time or now
    step_in[self.mode](self, state.revision, now)
  else
    self.log.warn("the status of the store cannot be read, so nothing is compacted now: %s", err.message)
  end
end

--- Makes a step, unless the previous step is still running. If the store raises, it is closed: then the compactor
-- closes, too.
local function run(self)
  if self.is_busy or self.is_closed then return end
  self.is_busy = true
  local ok, err = pcall(self.step, self)
  self.is_busy = false
  if ok or driver.is_cancellation(err) then return end
  self:close()
  self.log.warn("there will be no more compactions: %s", tostring(err))
end

--- For the driver: starts a step if one is due. Returns the seconds until the next one.
function compactor_methods:poll()
  local now = self.now()
  if not self.deadline then -- the first note is made at once; revisions are first counted after an interval
    self.deadline = self.mode == "periodic" and now or now + self.interval
  end
  if now >= self.deadline then
    self.deadline = now + self.interval
    driver.get().spawn(run, self)
  end
  return self.deadline - now
end

--- Ends the compactor. Idempotent.
function compactor_methods:close()
  self.is_closed = true
  driver.get().detach(self)
end

--- Returns a compactor that works while the loop turns. Takes the arguments of `new`.
local function open(...)
  local compactor = new(...)
  driver.get().attach(compactor)
  return compactor
end

return { new = new, open = open }
