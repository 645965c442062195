-- SPDX-License-Identifier: MIT
--- timers: who waits until when. A binary heap whose members know their place, so that each can be called off.
--
-- A finalizer that runs inside of a call may use the same heap, so one function changes it, and calls nothing.

local timers_methods = {}
local timers_mt = { __index = timers_methods }

local function new()
  return setmetatable({
    heap = {},
    count = 0, -- timers ever made, so that equal deadlines keep their order
  }, timers_mt)
end

--- Adds `timer` to the heap; or, without, removes `old`, in whose place the last one comes.
local function change(heap, timer, old)
  local at = #heap + 1
  if old then
    at = old.at
    if heap[at] ~= old then return end
    timer = heap[#heap]
    heap[#heap] = nil
    if timer == old then return end
  end
  local deadline, number = timer.deadline, timer.number
  while at > 1 do -- it rises
    local above = (at - at % 2) / 2
    local other = heap[above]
    if other.deadline < deadline or other.deadline == deadline and other.number < number then break end
    heap[at], other.at = other, at
    at = above
  end
  while true do -- it sinks
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
end

--- A timer for `owner`, which must be a table.
function timers_methods:add(deadline, owner)
  local timer = { deadline = deadline, number = 0, owner = owner, at = 0 }
  self.count = self.count + 1
  timer.number = self.count
  change(self.heap, timer)
  return timer
end

--- Calls a timer off; one that is over already stays so.
function timers_methods:remove(timer)
  change(self.heap, nil, timer)
end

--- The next deadline, or nil.
function timers_methods:next()
  local first = self.heap[1]
  return first and first.deadline
end

--- Takes out who is due by `now`, one at a time; nil when there is nobody left.
function timers_methods:due(now)
  local first = self.heap[1]
  if not first or first.deadline > now then return nil end
  self:remove(first)
  return first.owner
end

return { new = new }
