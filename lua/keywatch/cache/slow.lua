-- SPDX-License-Identifier: MIT
--- slow: ends local watches that are not read for too long, with the error "full".
--
-- A watch is slow while events wait for its reader and the reader takes none. The watches are checked a few times in
-- each period, so a watch is ended a little later than its option slow_after says, and never sooner. The driver polls
-- an object of this module while there are such watches, without keeping them alive. Each driver has an object of its
-- own, as a test may use several drivers, with different times.

local compat = require "keywatch.support.compat"
local driver = require "keywatch.task.driver"
local errors = require "keywatch.support.errors"
local watches = require "keywatch.watch.watch"

local LOOKS = 4 -- in each period of slow_after
local LEAST = 0.01 -- seconds between two checks

local last_number = 0 -- of all guards

local poller_methods = {}
local poller_mt = { __index = poller_methods }

local pollers = setmetatable({}, { __mode = "k" }) -- by driver

--- Returns the object of this module for the driver of the program.
local function get_poller()
  local d = driver.get()
  local own = pollers[d]
  if own then return own end
  own = setmetatable({
    -- By watch: its guard. `number` is the order of the guards, `after` the option slow_after. `buffer` and `at` are
    -- the reader's position at the last check. `since` is the time of the last check at which the watch was not slow.
    guarded = setmetatable({}, { __mode = "k" }),
    look_at = math.huge, -- the time of the next check
    is_attached = false,
  }, poller_mt)
  pollers[d] = pollers[d] or own -- a finalizer may have made one
  return pollers[d]
end

--- True if events wait for the reader of a watch.
local function has_backlog(watch)
  if watch.at < watch.n or watch.initial then return true end
  local n, _, is_behind = watch.core:backlog()
  return n > 0 or is_behind
end

--- Ends a watch.
local function cut(watch, after)
  local err = errors.new("full", ("keywatch: the watch was not read for %g seconds, while events waited"):format(after))
  watches.abort(watch, err)
end

--- Checks a watch. Returns false if the watch has ended.
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

--- Returns the watches and their guards, as a list of pairs, the oldest first. May be called by a finalizer.
local list_all = compat.interpreted(function(self)
  local all = {}
  for watch, guard in pairs(self.guarded) do all[#all + 1] = { watch, guard } end
  table.sort(all, function(a, b) return a[2].number < b[2].number end)
  return all
end)

--- Checks all watches that are due. Returns the seconds until the next check, or nil.
function poller_methods:poll()
  local now = driver.get().now()
  if now < self.look_at then return self.look_at - now end
  local soonest = math.huge
  for _, one in ipairs(list_all(self)) do
    local watch, guard = one[1], one[2]
    if look(watch, guard, now) then soonest = math.min(soonest, guard.after) else self.guarded[watch] = nil end
  end
  if next(self.guarded) == nil then
    self.is_attached, self.look_at = false, math.huge
    driver.get().detach(self)
    return nil
  end
  local seconds = math.max(LEAST, soonest / LOOKS)
  self.look_at = now + seconds
  return seconds
end

--- Adds a watch to the guarded ones: it is ended when it was not read for `after` seconds while events waited.
local function guard(watch, after)
  local poller, now = get_poller(), driver.get().now()
  last_number = last_number + 1
  poller.guarded[watch] = { number = last_number, after = after, since = now, buffer = watch.buffer, at = watch.at }
  poller.look_at = math.min(poller.look_at, now + math.max(LEAST, after / LOOKS))
  if poller.is_attached then return end
  poller.is_attached = true
  driver.get().attach(poller)
end

return { guard = guard }
