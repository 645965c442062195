-- SPDX-License-Identifier: MIT
--- timers: deadlines of waiters, as a binary heap. A timer stores its index in the heap, so that it can be removed
-- before it is due; the index is 0 while the timer is not in a heap. Any other number can be used instead of the time.
--
-- A finalizer may add and remove timers at any call. Therefore one function makes all changes of the heap, and calls
-- nothing. Ctrl-C can raise an error even there: then repair() restores the heap.

local timers_methods = {}
local timers_mt = { __index = timers_methods }

--- Returns an empty heap of timers.
local function new()
  return setmetatable({
    heap = {},
    count = 0, -- timers ever made: equal deadlines are due in the order in which they were added
  }, timers_mt)
end

--- Adds `timer` to the heap; or, if that is nil, removes `old`, and moves the last timer into its place. During the
-- change heap.moved is the timer that is not in its place.
local function change(heap, timer, old)
  local at = #heap + 1
  if old then
    at = old.at
    if heap[at] ~= old then return end
    timer = heap[#heap]
    heap.moved = timer ~= old and timer or nil
    heap[#heap], old.at = nil, 0
    if timer == old then return end
  elseif timer.at ~= 0 then
    return
  end
  heap.moved = timer
  local deadline, number = timer.deadline, timer.number
  while at > 1 do -- moves up
    local above = (at - at % 2) / 2
    local other = heap[above]
    if other.deadline < deadline or other.deadline == deadline and other.number < number then break end
    heap[at], other.at = other, at
    at = above
  end
  while true do -- moves down
    local below = 2 * at
    local other, right = heap[below], heap[below + 1]
    if right and (right.deadline < other.deadline
      or right.deadline == other.deadline and right.number < other.number) then
      other, below = right, below + 1
    end
    if not other or deadline < other.deadline or deadline == other.deadline and number < other.number then break end
    heap[at], other.at = other, at
    at = below
  end
  heap[at], timer.at = timer, at
  heap.moved = nil
end

--- Returns a timer for `owner`, a table. The timer is in no heap.
local function new_timer(deadline, owner)
  return { deadline = deadline, number = 0, owner = owner, at = 0 }
end

--- Adds a timer. Does nothing if it is in the heap.
function timers_methods:insert(timer)
  self.count = self.count + 1
  if timer.at == 0 then timer.number = self.count end
  change(self.heap, timer)
end

--- Adds a new timer for `owner`, a table. Returns the timer.
function timers_methods:add(deadline, owner)
  local timer = new_timer(deadline, owner)
  self:insert(timer)
  return timer
end

--- Removes a timer. Does nothing if the timer is not in the heap.
function timers_methods:remove(timer)
  change(self.heap, nil, timer)
end

--- Returns the earliest deadline, or nil.
function timers_methods:next()
  local first = self.heap[1]
  return first and first.deadline
end

--- Returns the owner of the earliest timer, or nil; and the timer.
function timers_methods:first()
  local first = self.heap[1]
  return first and first.owner, first
end

--- Removes the earliest timer if it is due by `now`, and returns its owner; else returns nil.
function timers_methods:due(now)
  local first = self.heap[1]
  if not first or first.deadline > now then return nil end
  first.at = 1 -- otherwise a loop over due timers would not end after an interrupted change
  self:remove(first)
  return first.owner
end

--- Repairs the heap after an error was raised at any instruction. No timer is lost; a timer that was being removed may
-- be in the heap again.
function timers_methods:repair()
  local all, has = {}, {}
  local function take(timer)
    if has[timer] then return end
    has[timer], all[#all + 1] = true, timer
  end
  for _, timer in ipairs(self.heap) do take(timer) end
  if self.heap.moved then take(self.heap.moved) end
  table.sort(all, function(a, b)
    return a.deadline < b.deadline or a.deadline == b.deadline and a.number < b.number
  end)
  for i, timer in ipairs(all) do timer.at = i end
  self.heap = all
end

--- Returns the earlier of two times, each of which may be nil.
local function sooner(one, other)
  if not one or other and other < one then return other end
  return one
end

return { new = new, new_timer = new_timer, sooner = sooner }
