-- SPDX-License-Identifier: MIT
--- log_limit: a rate limit for log lines that clients can cause, so that no client can fill a disk with them.
--
-- BURST lines are written without delay, then one per PAUSE. All other lines are counted, and their number is logged
-- before the next line.

local driver = require "keywatch.task.driver"

local BURST, PAUSE = 20, 1 -- lines, seconds
local LONGEST = 4096 -- bytes of a line: a text may quote what a client has sent

local limit_methods = {}
local limit_mt = { __index = limit_methods }

--- Returns a limit for lines of a logger, of this level, except those of `line_at`. `summary` is the format of the line
-- with the number of skipped lines.
local function new(logger, level, summary)
  return setmetatable({
    log = logger,
    level = level,
    summary = summary,
    next_at = -math.huge, -- when the next line may be written
    skipped = 0, -- lines since the last one
  }, limit_mt)
end

--- True if a line may be written now. Each line postpones the time of the next one.
local function may_write(limit)
  local now = driver.get().now()
  local next_at = math.max(limit.next_at, now - BURST * PAUSE)
  if next_at > now then return false end
  limit.next_at = next_at + PAUSE
  return true
end

--- Counts lines that are not written.
function limit_methods:skip(n)
  self.skipped = self.skipped + n
end

--- Writes how many lines were skipped.
function limit_methods:finish()
  local n = self.skipped
  if n == 0 then return end
  self.skipped = 0
  self.log[self.level](self.summary, n)
end

--- Writes a line of a level, or counts it.
function limit_methods:line_at(level, format, ...)
  if not may_write(self) then return self:skip(1) end
  self:finish()
  self.log[level]("%s", format:format(...):sub(1, LONGEST))
end

--- Writes a line of the limit's level, or counts it.
function limit_methods:line(format, ...) return self:line_at(self.level, format, ...) end

return { new = new }
