-- SPDX-License-Identifier: MIT
--- log_rate: a limit on log lines that clients can cause, so that no client can fill a disk with them: `burst` lines at
-- once, and one for each `seconds` after that. The lines that are left out are counted.

local rate_methods = {}
local rate_mt = { __index = rate_methods }

--- True if there may be a line now; the time of the next one then moves on. Otherwise the line is counted.
function rate_methods:allows(now)
  local next_at = math.max(self.next_at, now - self.burst * self.seconds)
  local is_allowed = next_at <= now
  if is_allowed then self.next_at = next_at + self.seconds else self.skipped = self.skipped + 1 end
  return is_allowed
end

--- Returns how many lines were left out since the last call.
function rate_methods:take_skipped()
  local n = self.skipped
  self.skipped = 0
  return n
end

--- Returns a limit.
local function new(seconds, burst)
  return setmetatable({
    seconds = seconds,
    burst = burst,
    next_at = 0, -- when the next line may come
    skipped = 0, -- lines that were left out
  }, rate_mt)
end

return { new = new }
