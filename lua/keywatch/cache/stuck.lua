-- SPDX-License-Identifier: MIT
--- stuck: detects calls of the program's functions that do not return while changes wait.
--
-- A record belongs to one caller, which makes one call at a time, and counts the calls. The record is checked
-- periodically. If two checks find the same call, it has lasted at least as long as the time between the checks.

local log = require "keywatch.support.log"

local STUCK = 5 -- seconds

--- Checks a record at the time `now`. `calls`: number of calls so far; is_calling: the last one has not returned;
-- is_awaited: changes wait for its return. Returns the seconds until the call counts as stuck, or nil.
local function look(self, now, calls, is_calling, is_awaited)
  if not is_calling or calls ~= self.calls then
    if self.is_stuck then log.info("%s continues, after %.0f s", self.title, now - self.since) end
    self.calls, self.since, self.is_stuck = calls, now, false
  end
  if not is_calling or not is_awaited or self.is_stuck then return nil end
  local left = self.since + STUCK - now
  if left > 0 then return left end
  self.is_stuck = true
  log.warn("%s has not returned for %.0f s, while changes wait", self.title, now - self.since)
end

--- Returns a record. `name` and `title` name the caller in metrics and in the log.
local function new(name, title)
  return { name = name, title = title, calls = 0, since = 0, is_stuck = false }
end

return { new = new, look = look, STUCK = STUCK }
