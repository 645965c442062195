--- A store that is far away: an object with the methods of a store, whose requests take their time, which is virtual,
--- and fail as those of a client do. A request that has failed with `maybe_done` was done, or is done later, or never.
--
--   far.new(store, random, weather)
--
-- The weather may be changed at any time: `latency`, seconds at most; `refused`, `answer_lost` and `late`, one in so
-- many requests each, or nil for none; `is_cut`, no request gets through. `counts` tells how often each has happened.

local check = require "keywatch.support.check"
local core = require "keywatch.core"
local driver = require "keywatch.task.driver"
local lease = require "keywatch.store.lease"

local CUT = 3600     -- seconds that a request waits for a network that is cut, unless it has a deadline
local LATE = 5       -- seconds by which a request comes too late, at most
local TIMEOUT = 10   -- seconds of a request without a deadline
local STEPS = 1000   -- latencies are multiples of a part of the whole

local far_methods = {}
local far_mt = check.face { __name = "keywatch.far", __index = far_methods }

local function new(store, random, weather)
  return setmetatable({
    store = store,
    random = random,
    weather = weather,
    counts = { refused = 0, answer_lost = 0, late = 0, never = 0, expired = 0, done = 0 },
  }, far_mt)
end

local function failure(code, is_read)
  local err = core.new_error(code)
  if not is_read then err.maybe_done = true end
  return err
end

--- Waits, as a request does. Returns false if the deadline was first, or the wait was ended as if it were.
local function pass_time(seconds, deadline)
  local d = driver.get()
  local at = d.now() + seconds
  d.event():wait(math.min(seconds, math.max(0, deadline - d.now())))
  return d.now() >= at
end

--- Makes the request later, or never.
local function do_later(self, fn, ...)
  local args, n = { ... }, select("#", ...)
  local unpack = rawget(table, "unpack") or rawget(_G, "unpack")
  if self.random:one_in(2) then
    self.counts.never = self.counts.never + 1
    return
  end
  self.counts.late = self.counts.late + 1
  local seconds = self.random:between(1, STEPS) / STEPS * LATE
  driver.get().spawn(function()
    driver.get().sleep(seconds)
    pcall(fn, unpack(args, 1, n))
  end)
end

local function happens(self, what)
  local chance = self.weather[what]
  return chance and self.random:one_in(chance)
end

--- Makes a request.
local function request(self, is_read, times, fn, ...)
  local d, weather, counts = driver.get(), self.weather, self.counts
  d.check_wait()
  local deadline = times and (times.deadline or times.timeout and d.now() + times.timeout) or d.now() + TIMEOUT
  local ok, in_time = pcall(function(...)
    local seconds = weather.is_cut and CUT or self.random:between(0, STEPS) / STEPS * weather.latency
    return pass_time(seconds, deadline), ...
  end, ...)
  if not ok or not in_time then
    if not is_read and not weather.is_cut then do_later(self, fn, ...) end
    counts.expired = counts.expired + 1
    if not ok then
      if type(in_time) == "table" then in_time.maybe_done = not is_read or nil end
      error(in_time, 0)
    end
    return nil, failure("deadline_exceeded", is_read)
  end
  if happens(self, "refused") then
    counts.refused = counts.refused + 1
    return nil, core.new_error("unavailable")
  end
  if happens(self, "late") then
    if not is_read then do_later(self, fn, ...) end
    return nil, failure("unavailable", is_read)
  end
  local result, err = fn(...)
  if happens(self, "answer_lost") then
    counts.answer_lost = counts.answer_lost + 1
    return nil, failure("unavailable", is_read)
  end
  counts.done = counts.done + 1
  return result, err
end

local READS = { get = true, range = true, leases = true, lease_time_to_live = true, lease_keepalive = true }

-- The place of the options in the arguments of each method.
local OPTIONS = {
  get = 2, range = 2, leases = 1, lease_time_to_live = 2, lease_keepalive = 2, put = 3, delete = 2, txn = 2,
  lease_grant = 2, lease_revoke = 2, watch = 2,
}

for name, place in pairs(OPTIONS) do
  far_methods[name] = function(self, ...)
    local args = { ... }
    local times = args[place]
    if name == "txn" and not times then times = args[1] end
    if type(times) ~= "table" or not (times.deadline or times.timeout) then times = nil end
    local store = self.store
    local result, err = request(self, READS[name] or name == "watch", times, store[name], store, ...)
    return result, err
  end
end

--- The keeper is that of the store: leases are renewed by themselves, and their loss is known at once.
function far_methods:lease_keeper() return self.store:lease_keeper() end

far_methods.lease = lease.grant
far_methods.lease_by_id = lease.by_id

return { new = new, methods = far_methods }
