-- SPDX-License-Identifier: MIT
--- work_queue: items to work on, each queued once, and handled by one worker at a time.
--
--            add                 get                  done
--   NONE ----------> QUEUED ----------> TAKEN ----------------> NONE
--    |                 ^                  |  add: remembered, once
--    | add later       | due              |
--    +----> DELAYED ---+                  +------ done, and the item was remembered ------> QUEUED
--
-- An item is any value that can be a key of a table. An item that is added again while it is QUEUED is queued once; of
-- two times the earlier one counts, of two priorities the higher one. So a worker that gets an item sees all changes so
-- far, and later changes queue the item again. An item that is TAKEN can be DELAYED, too.
--
-- Items are handed out in the order of their adds, those of a higher priority first. Each priority has a lane. An item
-- that moves to a higher lane leaves a gap in the lower one. The lane of priority 0, `middle`, is always there; the
-- others are in a heap while they have items, the one of the highest priority first.
--
-- The length of a queue is bounded by the number of different items.
--
-- Invariants: no item is QUEUED and TAKEN, or QUEUED and DELAYED. `again` has only items that are TAKEN and not
-- DELAYED. A finalizer may call any method at any call and any allocation. Therefore fields that belong together are
-- changed without a call or an allocation in between. Such code is marked "atomic".

local check = require "keywatch.support.check"
local core = require "keywatch.core"
local driver = require "keywatch.task.driver"
local errors = require "keywatch.support.errors"
local histograms = require "keywatch.controller.histogram"
local limiters = require "keywatch.controller.limiter"
local log = require "keywatch.support.log"
local timers = require "keywatch.task.timers"

local add_time = histograms.add

local MANY = 1000      -- items, after which the tables of an empty queue are replaced by small ones
local FALLBACK = 5     -- seconds that an item waits whose limiter has failed

local queue_methods, queue_mt = check.class "keywatch.work_queue"

-- {====== Lanes ======

local GAP = {} -- in the place of an item that has left its lane
local FEW = 32 -- gaps that are left alone

--- Returns a new lane, which is not in the heap yet.
local function new_lane(priority)
  local lane = { priority = priority, items = {}, times = {}, first = 1, last = 0, gaps = 0, timer = nil }
  if priority ~= 0 then lane.timer = timers.new_timer(-priority, lane) end -- its place in the heap
  return lane
end

--- Returns the lane of a priority. A new one comes into the heap with its first item.
local function lane_of(self, priority)
  return self.lanes[priority] or new_lane(priority)
end

--- Removes a lane from the heap, if it is there and empty.
local function unlink(self, lane)
  if not lane.timer or lane.first <= lane.last then return end
  if self.lanes[lane.priority] == lane then self.lanes[lane.priority] = nil end
  self.others:remove(lane.timer)
end

--- Removes an item from its lane. Returns since when the item was queued; or nil if it is no longer in that lane.
-- Atomic.
local function leave(self, item, lane)
  if self.queued[item] ~= lane then return nil end -- by a finalizer
  local places = self.places
  local items, times, place = lane.items, lane.times, places[item]
  local at, first, last = times[place], lane.first, lane.last
  local gaps, length = lane.gaps + 1, last - first + 1
  items[place], lane.gaps = GAP, gaps
  if gaps == length or gaps > FEW and gaps * 2 > length then
    local n = 0
    for i = first, last do -- the items move together, to the beginning
      local one, since = items[i], times[i]
      items[i], times[i] = nil, nil
      if one ~= GAP then
        n = n + 1
        items[n], times[n], places[one] = one, since, n
      end
    end
    lane.first, lane.last, lane.gaps = 1, n, 0
  end
  return at
end

--- Adds an item to a lane, since a time; or remembers it, if it is TAKEN. An item that is QUEUED moves to the lane if
-- that has a higher priority. A closed queue refuses the item, unless `is_owed`: the item was TAKEN, and must be handed
-- out again. Returns false if the item is refused.
local function enqueue(self, item, lane, at, is_owed)
  if self.is_closed and not is_owed then return false end
  local queued, priority = self.queued, lane.priority
  local present = queued[item]
  if present then
    if present.priority >= priority then return true end
    local since = leave(self, item, present)
    if not since then return enqueue(self, item, lane, at, is_owed) end
    at = since
  elseif self.taken[item] then
    local before = self.again[item]
    if not before or priority > before then self.again[item] = priority end
    return true
  end
  repeat -- a finalizer may remove the lane, which may be empty
    lane = self.lanes[priority] or lane
    self.lanes[priority] = lane
    local is_there = priority == 0 or lane.timer.at ~= 0
    if not is_there then self.others:insert(lane.timer) end
  until is_there
  -- atomic:
  local last = lane.last + 1
  lane.items[last], lane.times[last], lane.last = item, at, last
  queued[item], self.places[item] = lane, last
  if present then
    if present.first > present.last then unlink(self, present) end
    return true
  end
  self.depth = self.depth + 1
  local ready = self.ready
  if ready[1] == nil then ready.is_set = true else ready:set_one() end
  return true
end

--- Removes the first item of a lane, and hands it out at the time `now`. Returns nil if the lane is empty. Atomic.
local function take_first(self, lane, now)
  local items, times, first, last = lane.items, lane.times, lane.first, lane.last
  if last > MANY then self.is_large = true end
  while first <= last do
    local item, waited = items[first], now - times[first]
    items[first], times[first] = nil, nil
    if first == last then lane.first, lane.last = 1, 0 else lane.first = first + 1 end
    first = first + 1
    if item ~= GAP then
      local priority = lane.priority
      self.queued[item], self.places[item], self.taken[item] = nil, nil, now
      if priority ~= 0 then self.ranks[item] = priority end
      self.depth, self.active, self.gets = self.depth - 1, self.active + 1, self.gets + 1
      self.latency = self.latency + waited
      add_time(self.waits, waited)
      if waited > self.longest_latency then self.longest_latency = waited end
      return item
    end
    lane.gaps = lane.gaps - 1
  end
end

--- Removes the first item of the lane of the highest priority that is not empty, and hands it out at the time `now`.
-- Returns nil if nothing is queued.
local function take(self, now)
  local middle = self.middle
  while true do
    local highest = self.others:first()
    local lane = highest and (highest.priority > 0 or middle.first > middle.last) and highest or middle
    local item = take_first(self, lane, now)
    if lane ~= middle then unlink(self, lane) end
    if item ~= nil or lane == middle and not highest then return item end -- a lane may have had only gaps
  end
end

--- Drops all QUEUED items, and forgets which TAKEN items were added again.
local function drop_queued(self)
  local lanes, others, queued, places, again, items, times = {}, timers.new(), {}, {}, {}, {}, {}
  local middle, old = self.middle, self.others.heap
  lanes[0] = middle
  -- atomic:
  for i = 1, #old do -- a caller may be about to add to such a lane
    local timer = old[i]
    local lane = timer.owner
    lane.first, lane.last, lane.gaps, timer.at = 1, 0, 0, 0
  end
  middle.items, middle.times, middle.first, middle.last, middle.gaps = items, times, 1, 0, 0
  self.lanes, self.others, self.queued, self.places, self.again, self.depth = lanes, others, queued, places, again, 0
  self.is_large = false
  if self.active == 0 then self.idle:set_for_all() end
end

--- Replaces the tables of a queue in which many items were queued, and now none is: they would stay as large.
local function shrink(self)
  local items, times, queued, places = {}, {}, {}, {}
  local lane = self.middle
  if self.depth > 0 or lane.first <= lane.last then return end -- by a finalizer
  self.is_large, lane.items, lane.times, self.queued, self.places = false, items, times, queued, places
end

-- }======

-- {====== Items that are due later ======

--- Ends the wait of an item that is delayed.
local function undelay(self, item)
  local timer = self.delayed[item]
  if not timer then return end
  self.delayed[item], self.waiting = nil, self.waiting - 1
  self.timers:remove(timer)
end

--- Adds an item of a priority. An item that was DELAYED no longer is. Returns false if the queue is closed.
local function add_now(self, item, priority)
  local timer = self.delayed[item]
  if timer then
    if timer.owner.priority > priority then priority = timer.owner.priority end
    undelay(self, item)
  end
  return enqueue(self, item, lane_of(self, priority), self.now())
end

--- Adds an item that is due after some seconds. An item that is QUEUED, or TAKEN and added since, is not DELAYED; of
-- two times the earlier one counts. Returns false if the queue is closed.
local function add_later(self, item, priority, seconds)
  if self.queued[item] or self.again[item] then return add_now(self, item, priority) end
  local heap = self.timers
  local timer = heap:add(self.now() + seconds, { item = item, priority = priority })
  local before = self.delayed[item]
  if self.is_closed or self.queued[item] or self.again[item] then -- the latter by a finalizer
    heap:remove(timer)
    return not self.is_closed and add_now(self, item, priority)
  elseif before and before.deadline <= timer.deadline then
    if priority > before.owner.priority then before.owner.priority = priority end
    heap:remove(timer)
    return true
  end
  self.delayed[item] = timer
  if before then
    if before.owner.priority > priority then timer.owner.priority = before.owner.priority end
    heap:remove(before)
  else
    self.waiting = self.waiting + 1
    if self.waiting > MANY then self.has_delayed_many = true end
  end
  self.driver.attach(self.clock)
  return true
end

--- Replaces the tables of a queue in which many items were delayed, and now none is.
local function shrink_delayed(self)
  local delayed, heap = {}, timers.new()
  if self.waiting == 0 then self.has_delayed_many, self.delayed, self.timers = false, delayed, heap end
end

--- Adds the items that are due to the lanes.
local function add_due(self, now)
  local owner = self.timers:due(now)
  while owner do
    local timer = self.delayed[owner.item]
    if timer and timer.owner == owner then add_now(self, owner.item, owner.priority) end
    owner = self.timers:due(now)
  end
end

--- Adds the items that are due to the lanes, though the driver has not polled since: what is due counts as QUEUED.
local function catch_up(self)
  if self.waiting > 0 then add_due(self, self.now()) end
end

-- The source that the driver polls while items are DELAYED.
local clock_methods = {}
local clock_mt = { __index = clock_methods }

--- Adds the items that are due to the lanes. Returns the seconds until the next one is.
function clock_methods:poll()
  local queue = self.queue
  local now = queue.now()
  add_due(queue, now)
  local at = queue.timers:next()
  if at then return math.max(0, at - now) end
  if queue.has_delayed_many then shrink_delayed(queue) end
  if not queue.timers:next() then queue.driver.detach(self) end
end

-- }======

-- {====== Adding ======

local ADD_OPTIONS = { after = "finite number", priority = "number" }
local RETRY_OPTIONS = { priority = "number" }

--- Adds an item. Options: `after`, seconds; `priority`, a number, 0 unless given. Returns false if the queue is closed.
function queue_methods:add(item, opts)
  if item == nil or item ~= item then limiters.check_item(item, "add") end
  local after, priority
  if opts ~= nil then
    opts = check.options(opts, "add", ADD_OPTIONS)
    after, priority = opts.after, opts.priority
  end
  if self.is_closed then return false end
  catch_up(self)
  self.adds = self.adds + 1
  if opts == nil and not self.delayed[item] then return enqueue(self, item, self.middle, self.now()) end
  if after and after > 0 then return add_later(self, item, priority or 0, after) end
  return add_now(self, item, priority or 0)
end

--- Returns the name of the queue for log lines.
local function title_of(self)
  return self.name and ("the work queue '%s'"):format(self.name) or "a work queue without a name"
end

--- Calls a method of the limiter. Returns true and its result; or false after an error, which is logged.
local function ask(self, name, item)
  local limiter = self.limiter
  local ok, result = driver.compute(limiter[name], limiter, item)
  if ok then return true, result end
  log.error("%s", ("the limiter of %s has failed in '%s': %s"):format(title_of(self), name,
    errors.text_of(result)))
  return false
end

--- Returns the seconds that a failed item waits. A limiter that fails, or returns no number, makes the item wait a
-- fixed time: the item is not lost, and not handed out at once.
local function seconds_of(self, item)
  local ok, seconds = ask(self, "when", item)
  if not ok then return FALLBACK end
  if type(seconds) == "number" and seconds < math.huge then return seconds > 0 and seconds or 0 end -- NaN is not less
  log.error("%s", ("the limiter of %s has returned no number of seconds, but %s"):format(
    title_of(self), check.shown(seconds)))
  return FALLBACK
end

--- Adds an item that has failed, after a time that the limiter chooses. Option: `priority`; unless given, that with
-- which the item was handed out. Returns the seconds, or false if the queue is closed.
function queue_methods:retry(item, opts)
  limiters.check_item(item, "retry")
  local priority = check.options(opts, "retry", RETRY_OPTIONS).priority
  if self.is_closed then return false end
  local seconds = seconds_of(self, item)
  catch_up(self)
  self.adds, self.retry_count = self.adds + 1, self.retry_count + 1
  priority = priority or self.ranks[item] or 0
  if seconds > 0 then return add_later(self, item, priority, seconds) and seconds end
  return add_now(self, item, priority) and seconds
end

--- Has the limiter forget the failures of an item.
function queue_methods:forget(item)
  if item == nil or item ~= item then limiters.check_item(item, "forget") end
  ask(self, "forget", item)
end

--- Returns how often an item has failed since it was forgotten.
function queue_methods:retries(item)
  if item == nil or item ~= item then limiters.check_item(item, "retries") end
  local _, count = ask(self, "retries", item)
  return type(count) == "number" and count == count and count or 0
end

-- }======

-- {====== Working ======

--- Hands out the next item, or returns nil.
local function take_now(self)
  catch_up(self)
  return take(self, self.now())
end

--- Waits for the next item. Returns it, or nil and an error.
local function await_item(self, timeout)
  local d = self.driver
  local deadline = timeout and d.now() + timeout
  while true do
    if self.is_closed and not (self.is_draining and self.active > 0) then return nil, errors.closed("queue") end
    if timeout and timeout <= 0 then return nil, core.new_error("timeout") end
    d.check_wait()
    local came = self.ready:wait(driver.time_left(deadline))
    local item = take_now(self)
    if item ~= nil then return item end
    if not came then return nil, core.new_error("timeout") end
  end
end

--- Waits for the next item and returns it. Returns nil and an error: of code "timeout", or "closed" after the last item
-- of a closed queue.
function queue_methods:get(timeout)
  if timeout ~= nil then check.timeout(timeout, "get") end
  local item = take_now(self)
  if item ~= nil then return item end
  if self.is_large then shrink(self) end
  return check.results(await_item(self, timeout))
end

--- Wakes the workers that wait for items, and the callers of drain.
local function wake_all(self)
  self.ready:set_for_all()
  self.idle:set_for_all()
end

--- Notes that the work on an item has ended. If the item was added during the work, it is queued again.
function queue_methods:done(item)
  catch_up(self)
  local expected, now = self.again[item], self.now()
  local lane = expected and lane_of(self, expected)
  -- atomic:
  local taken = self.taken
  local since, priority = taken[item], self.again[item]
  if not since then check.misuse("done: the item %s is not being worked on", check.shown(item)) end
  if priority ~= expected then return self:done(item) end -- a finalizer has added the item just now
  local took = now - since
  taken[item], self.active = nil, self.active - 1
  if self.ranks[item] then self.ranks[item] = nil end
  self.work = self.work + took
  add_time(self.works, took)
  if took > self.longest_work then self.longest_work = took end
  if priority then
    self.again[item] = nil
    enqueue(self, item, lane, now, true)
  end
  if self.is_closed and self.active == 0 and self.depth == 0 then wake_all(self) end
end

--- Ends the work on an item that was not finished: the item is queued again, in a closed queue, too.
local function give_back(self, item)
  if self.taken[item] and not self.again[item] then self.again[item] = self.ranks[item] or 0 end
  self:done(item)
end

--- Returns the priority with which an item was handed out that is being worked on.
local function rank_of(self, item)
  return self.ranks[item] or 0
end

-- }======

-- {====== The end ======

--- Closes the queue: `add` and `retry` return false, DELAYED items are dropped, and workers get the QUEUED ones.
-- Idempotent.
function queue_methods:close()
  catch_up(self)
  self.is_closed, self.is_draining = true, false
  local heap, delayed = timers.new(), {}
  self.timers, self.delayed, self.waiting = heap, delayed, 0 -- atomic: no item is delayed from now on
  self.driver.detach(self.clock)
  wake_all(self)
end

--- Closes the queue, and waits until all work has ended: QUEUED items are handed out, and TAKEN items that were added
-- again, too. Returns true, or nil and an error: of code "timeout", or "closed" if another task has called close.
function queue_methods:drain(timeout)
  check.timeout(timeout, "drain")
  local d = self.driver
  local deadline = timeout and d.now() + timeout
  if (self.active > 0 or self.depth > 0) and not (timeout and timeout <= 0) then d.check_wait() end
  self:close()
  self.is_draining = true
  while self.active > 0 or self.depth > 0 do
    local came = self.idle:wait(driver.time_left(deadline))
    if not self.is_draining then return nil, errors.closed("queue") end
    if not came and (self.active > 0 or self.depth > 0) then return nil, core.new_error("timeout") end
  end
  return true
end

queue_mt.__close = queue_methods.close

-- }======

--- Returns the number of items that are queued.
function queue_methods:count()
  catch_up(self)
  return self.depth
end

--- Returns the status of the queue. Does not wait.
function queue_methods:status()
  catch_up(self)
  local now, longest, unfinished = self.now(), 0, 0
  for _, since in next, self.taken do -- without a call: a finalizer would change the table
    local took = now - since
    unfinished = unfinished + took
    if took > longest then longest = took end
  end
  return {
    name = self.name,
    depth = self.depth,
    active = self.active,
    delayed = self.waiting,
    adds = self.adds,
    gets = self.gets,
    retries = self.retry_count,
    latency_seconds = self.latency,
    longest_latency_seconds = self.longest_latency,
    work_seconds = self.work,
    longest_work_seconds = self.longest_work,
    unfinished_seconds = unfinished,
    longest_running_seconds = longest,
    is_closed = self.is_closed,
  }
end

--- Returns the name, and how much is queued.
function queue_mt:__tostring()
  return ("keywatch.work_queue<%sdepth=%d active=%d%s>"):format(self.name and self.name .. " " or "", self.depth,
    self.active, self.is_closed and " closed" or "")
end

local OPTIONS = { name = "string", limiter = limiters.KIND }

--- Returns a queue. Options: `name`, `limiter`.
local function new(opts)
  opts = check.options(opts, "work_queue", OPTIONS)
  local d = driver.get()
  local middle = new_lane(0)
  local self = setmetatable({
    name = opts.name,
    limiter = opts.limiter or limiters.default(),
    driver = d,
    now = d.now,
    lanes = { [0] = middle }, -- by priority
    middle = middle,   -- the lane of priority 0
    others = timers.new(), -- the other lanes, by their priority
    queued = {},       -- by item: its lane
    places = {},       -- by item that is QUEUED: its place in the lane
    taken = {},        -- by item that is TAKEN: the time
    again = {},        -- by item that is TAKEN and was added since: the priority
    ranks = {},        -- by item that is TAKEN: the priority with which it was handed out, unless that is 0
    delayed = {},      -- by item: its timer, whose owner has the item and its priority
    timers = timers.new(),
    clock = nil,       -- the source that the driver polls while items are delayed
    waiting = 0,       -- items that are DELAYED
    depth = 0,         -- items that are QUEUED
    active = 0,        -- items that are TAKEN
    ready = d.event(), -- set for workers when an item is queued, or the queue was closed
    idle = d.event(),  -- set for callers of drain when all work of a closed queue has ended
    adds = 0, gets = 0, retry_count = 0, latency = 0, longest_latency = 0, work = 0, longest_work = 0,
    waits = histograms.new(histograms.QUEUE), -- how long items were queued
    works = histograms.new(histograms.QUEUE), -- how long work on them has taken
    is_large = false,  -- many items were queued: see shrink
    has_delayed_many = false,
    is_closed = false,
    is_draining = false,
  }, queue_mt)
  self.clock = setmetatable({ queue = self }, clock_mt)
  return self
end

return {
  new = new, mt = queue_mt, give_back = give_back, rank_of = rank_of,
  drop_queued = drop_queued,
}
