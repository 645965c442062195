-- SPDX-License-Identifier: MIT
--- content_file: the last known content of a client's cache, in a file.
--
--   CLEAN --- the content changes ---> DUE --- the delay ends ---> GATHERING --- all keys are gathered ---> WRITING
--     ^                                 ^                              |                                     |  |
--     |                                 +--- a pause, if that fails ---+-------------------------------------+  |
--     +----------------------------------- the thread has ended ------------------------------------------------+
--
-- The core writes the file, in a thread: see csrc/store/content_writer.h. The feed of the cache polls the object, which
-- gathers the keys in steps, and never waits, except in `close` and in virtual time, which does not pass while a thread
-- works. The first failure is logged, and the next success.

local core = require "keywatch.core"
local driver = require "keywatch.task.driver"
local errors = require "keywatch.support.errors"
local log = require "keywatch.support.log"

local inner = core.inner
local STEP = 2000       -- keys that are gathered in one step
local ALL = 2 ^ 31      -- keys
local STEPPED = 3       -- tries to gather in steps, which a compaction may end; then all keys at once
local LOOK_AGAIN = 0.02 -- seconds between two checks of a running write
local PAUSE = 10        -- seconds after a write that has failed
local SHARE = 10        -- a write is followed by a pause of at least this many times its duration

local file_methods = {}
local file_mt = { __index = file_methods }

--- Logs a line about the file.
local function say(self, level, text)
  log[level]("%s", ("the file %s of the cache of %s %s"):format(log.quote(self.path), log.quote(self.prefix), text))
end

--- Loads the content of the file into an empty replica. Returns the cluster of the content, and the time of day at
-- which the server had it; or nil. An unusable file is logged, and a missing one is not.
function file_methods:load(replica, key, range_end)
  local cluster, confirmed_at = inner.load_content(replica, self.path, key, range_end)
  if cluster then
    self.saved_revision = inner.changed_revision(replica)
    return cluster, confirmed_at
  end
  local err = confirmed_at -- the error
  if err.code ~= "not_found" then say(self, "warn", err.message .. ": its content is not used") end
end

--- Makes `poll` write the content again, and drops the keys that were gathered: the content is that of another replica.
function file_methods:forget()
  self.saved_revision = nil
  if not self.is_gathering then return end
  local writer = self.writer
  self.is_gathering, self.writer = false, nil
  writer:close()
end

--- Notes that a write has failed, and repeats it after a pause.
local function fail(self, err, now)
  self.saved_revision, self.is_gathering, self.due_at = nil, false, now + math.max(PAUSE, self.delay)
  if self.has_failed then return end
  self.has_failed = true
  say(self, "warn", err.message)
end

--- Ends a write, with an error or with success.
local function finish(self, err, now)
  self.is_writing = false
  self.rest_until = now + SHARE * (now - self.began_at)
  if err and err.code == "cancelled" then -- the process has forked, and the parent writes
    self.saved_revision = nil
    return
  end
  if err then return fail(self, err, now) end
  if self.has_failed then say(self, "info", "is written again") end
  self.has_failed = false
end

--- Begins to write the content of a replica. `content` describes the content: { replica =, key =, range_end =,
-- cluster =, confirmed_at = the time of day at which the server had it }.
local function begin(self, content, now)
  local revision = inner.changed_revision(content.replica)
  if self.writer == nil then self.writer = core.content_writer(self.path) end
  if not self.writer then return fail(self, core.new_error("out_of_memory"), now) end
  self.saved_revision, self.due_at, self.began_at = revision, nil, now
  local ok, err = inner.write_content(content.replica, self.writer, content.key, content.range_end,
    content.cluster, content.confirmed_at)
  if not ok then return fail(self, err, now) end
  self.is_gathering = true
end

--- Gathers at most `most` keys, and begins the thread after the last one.
local function gather(self, replica, most, now)
  if not self.is_gathering then return end
  if self.tries >= STEPPED then most = ALL end
  local is_writing, err = inner.hold_content(replica, self.writer, most)
  if is_writing then
    self.is_gathering, self.is_writing, self.tries = false, true, 0
  elseif err and err.code == "compacted" then
    self.is_gathering, self.saved_revision, self.due_at, self.tries = false, nil, now, self.tries + 1
  elseif err then
    fail(self, err, now)
  end
end

--- Checks whether the running write has ended, or waits for its end. Returns true if none is running.
local function look(self, must_wait, now)
  if not self.is_writing then return true end
  local done, err
  if must_wait then done, err = self.writer:wait() else done, err = self.writer:is_done() end
  if done == false then return false end
  finish(self, err, now)
  return true
end

--- True if the file must be notified of the next change: no write is due or running.
function file_methods:is_clean()
  return not (self.due_at or self.is_gathering or self.is_writing)
end

--- Does the due work. describe() returns the content as in `begin`, and is called if the content has to be written.
-- Returns the seconds until poll must be called again, or nil.
function file_methods:poll(now, replica, describe)
  if self.is_closed then return nil end
  local is_virtual = driver.get().carry ~= nil
  if not look(self, false, now) then return LOOK_AGAIN end
  if not self.is_gathering then
    if inner.changed_revision(replica) == self.saved_revision then return nil end
    self.due_at = self.due_at or math.max(now + self.delay, self.rest_until)
    if now < self.due_at then return self.due_at - now end
    begin(self, describe(), now)
  end
  gather(self, replica, is_virtual and ALL or STEP, now)
  if not look(self, is_virtual, now) then return LOOK_AGAIN end
  return self.is_gathering and 0 or self.due_at and math.max(0, self.due_at - now)
end

--- Writes unwritten changes, waits for that, and ends. `describe` is as in poll; nil if the content is not from a
-- server. May be called by a finalizer, in the middle of a call of the replica: then nothing more is written.
function file_methods:close(now, replica, describe)
  if self.is_closed then return end
  self.is_closed = true
  local ok, err = pcall(function()
    look(self, true, now)
    if not describe or not self.is_gathering and inner.changed_revision(replica) == self.saved_revision then return end
    self:forget()
    begin(self, describe(), now)
    gather(self, replica, ALL, now)
    look(self, true, now)
  end)
  if self.writer then self.writer:close() end
  if not ok then say(self, "warn", "was not written: " .. errors.text_of(err)) end
end

--- Returns the file of a cache of a prefix, which is neither read nor written yet. A change is written after `delay`
-- seconds.
local function new(path, delay, prefix)
  return setmetatable({
    path = path,
    delay = delay,
    prefix = prefix,      -- for log lines
    writer = nil,         -- of the core; nil before the first write
    saved_revision = nil, -- revision of the last change in the file, or in the running write
    due_at = nil,         -- when the next write begins
    began_at = 0,         -- when the last write began
    rest_until = 0,       -- the earliest time of the next write
    is_gathering = false,
    is_writing = false,
    tries = 0,            -- how often a compaction has ended the gathering of keys
    has_failed = false,   -- the failure was logged
    is_closed = false,
  }, file_mt)
end

return { new = new }
