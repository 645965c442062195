-- SPDX-License-Identifier: MIT
--- compactor: takes away the past of a store by itself, as etcd does.
--
--   periodic   what is older than `retention` seconds goes. How far the store is, is noted ten times in that time, or
--              ten times an hour if it is longer. The first compaction comes after `retention`, the others as often as
--              it is over, or every hour.
--   revision   the last `retention` revisions stay. The others go, every five minutes.
--
-- What is younger is never taken. The store is anything with its face: status and compact may wait, so each step is a
-- task. A compactor lives in the driver, which polls it, until it is closed.

local driver = require "keywatch.task.driver"

local HOUR = 3600
local NOTES = 10 -- of a period
local REVISIONS_INTERVAL = 300 -- seconds

local compactor_methods = {}
local compactor_mt = { __name = "keywatch.compactor", __index = compactor_methods }

function compactor_mt:__tostring()
  return ("keywatch.compactor<%s, %g>"):format(self.mode, self.retention)
end

--- Compacts; what others have compacted meanwhile is as good.
local function compact(self, revision, now)
  local log = require "keywatch.support.log" -- it is loaded with the driver's loop, and not before
  local result, err = self.store:compact(revision)
  if not result and err.code ~= "compacted" then
    log.warn("compacting to revision %d has failed: %s", revision, err.message)
    return
  end
  self.last_revision, self.last_time = revision, now
  log.debug("compacted to revision %d", revision)
end

local step_in = {} -- by mode: takes how far the store is, and the time

--- The oldest note is at least as old as `retention` when it is acted on.
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

--- The seconds between two steps, and how many notes are kept.
local function plan(mode, retention)
  if mode == "revision" then return REVISIONS_INTERVAL, 0 end
  if retention <= HOUR then return retention / NOTES, NOTES + 1 end
  return HOUR / NOTES, math.floor(retention * NOTES / HOUR) + 1
end

--- A compactor that nobody drives yet. `retention` is a number above 0, of seconds or of revisions.
local function new(store, mode, retention, now)
  local interval, most_notes = plan(mode, retention)
  return setmetatable({
    store = store,
    mode = mode,
    retention = retention,
    now = now or driver.get().now,

    interval = interval, -- seconds between two steps
    deadline = nil,      -- of the next step
    is_busy = false,     -- a step is on its way
    is_closed = false,

    notes = {}, -- how far the store was, the oldest first
    most_notes = most_notes,
    wait = retention, -- seconds from the last compaction to the next

    last_revision = nil, -- that was compacted to
    last_time = nil,     -- when; before that, when the first note was made
  }, compactor_mt)
end

--- Does what is to be done once in an interval. May wait.
function compactor_methods:step()
  local now = self.now()
  local state, err = self.store:status()
  if state then
    self.last_time = self.last_time or now
    step_in[self.mode](self, state.revision, now)
  else
    require("keywatch.support.log").warn("how far the store is cannot be asked: %s", err.message)
  end
end

local function is_cancellation(err)
  return type(err) == "table" and err.code == "cancelled"
end

--- A step, unless one is on its way that takes longer than an interval. A store that raises, for it is closed, is left
-- alone from then on.
local function run(self)
  if self.is_busy or self.is_closed then return end
  self.is_busy = true
  local ok, err = pcall(self.step, self)
  self.is_busy = false
  if ok or is_cancellation(err) then return end
  self:close()
  require("keywatch.support.log").warn("there will be no more compactions: %s", tostring(err))
end

--- For the driver: begins a step if it is time, and returns the seconds until the next.
function compactor_methods:poll()
  local now = self.now()
  if not self.deadline then -- the first note is made at once, while revisions are first counted after an interval
    self.deadline = self.mode == "periodic" and now or now + self.interval
  end
  if now >= self.deadline then
    self.deadline = now + self.interval
    driver.get().spawn(run, self)
  end
  return self.deadline - now
end

--- Ends it. Twice is fine.
function compactor_methods:close()
  self.is_closed = true
  driver.get().detach(self)
end

--- A compactor that works while the loop turns.
local function open(store, mode, retention, now)
  local compactor = new(store, mode, retention, now)
  driver.get().attach(compactor)
  return compactor
end

return { new = new, open = open }
