-- SPDX-License-Identifier: MIT
--- slow: ends local watches that are not read for too long, with the error "full".
--
-- A watch is slow while something waits for its reader and the reader takes nothing. The watches are looked at a few
-- times in each period, so a watch is ended a little later than its option slow_after says, and never sooner. The
-- driver polls this module while there are such watches. It does not hold them.

local driver = require "keywatch.task.driver"
local errors = require "keywatch.support.errors"
local watches = require "keywatch.watch.watch"

local LOOKS = 4 -- in each period of slow_after
local LEAST = 0.01 -- seconds between two looks

local guarded = setmetatable({}, { __mode = "k" }) -- by watch: { after =, since =, buffer =, at = }
local source = { look_at = 0, is_attached = false }

--- True if something waits for the reader of a watch.
local function has_backlog(watch)
  if watch.at < watch.n or watch.initial then return true end
  local n, _, is_behind = watch.core:backlog()
  return n > 0 or is_behind
end

--- Ends a watch.
local function cut(watch, after)
  local err = errors.new("full", ("keywatch: the watch was not read for %g seconds, while events waited"):format(after))
  watches.cut(watch, err)
end

--- Looks at a watch. Returns false if the watch has ended.
local function look(watch, guard, now)
  if watch.failure or watch.is_closed then return false end
  local is_slow = has_backlog(watch) and guard.buffer == watch.buffer and guard.at == watch.at
  if not is_slow then
    guard.buffer, guard.at, guard.since = watch.buffer, watch.at, now
  elseif now - guard.since >= guard.after then
    cut(watch, guard.after)
    return false
  end
  return true
end

--- Looks at all watches whose time has come. Returns the seconds until it must be called again, or nil.
function source:poll()
  local now = driver.get().now()
  if now < self.look_at then return self.look_at - now end
  local all, soonest = {}, math.huge
  for watch, guard in pairs(guarded) do all[#all + 1] = { watch, guard } end
  for _, one in ipairs(all) do
    local watch, guard = one[1], one[2]
    if look(watch, guard, now) then soonest = math.min(soonest, guard.after) else guarded[watch] = nil end
  end
  if next(guarded) == nil then
    self.is_attached = false
    driver.get().detach(self)
    return nil
  end
  local seconds = math.max(LEAST, soonest / LOOKS)
  self.look_at = now + seconds
  return seconds
end

--- Ends a watch once it was not read for `after` seconds while something waited.
local function guard(watch, after)
  local now = driver.get().now()
  guarded[watch] = { after = after, since = now, buffer = watch.buffer, at = watch.at }
  source.look_at = math.min(source.look_at, now + math.max(LEAST, after / LOOKS))
  if source.is_attached then return end
  source.is_attached = true
  driver.get().attach(source)
end

return { guard = guard }
