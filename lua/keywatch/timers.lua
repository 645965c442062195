-- SPDX-License-Identifier: MIT
--- timers: who waits until when. A binary heap whose members know their place, so that each can be called off.

local timers_methods = {}
local timers_mt = { __index = timers_methods }

local function new()
  return setmetatable({
    heap = {},
    count = 0, -- timers ever made, so that equal deadlines keep their order
  }, timers_mt)
end

local function before(a, b)
  if a.deadline ~= b.deadline then return a.deadline < b.deadline end
  return a.number < b.number
end

local function place(heap, timer, at)
  heap[at] = timer
  timer.at = at
end

local function rise(heap, timer)
  local at = timer.at
  while at > 1 do
    local parent = (at - at % 2) / 2
    if not before(timer, heap[parent]) then break end
    place(heap, heap[parent], at)
    at = parent
  end
  place(heap, timer, at)
end

local function sink(heap, timer)
  local at = timer.at
  while true do
    local child = 2 * at
    if not heap[child] then break end
    if heap[child + 1] and before(heap[child + 1], heap[child]) then child = child + 1 end
    if not before(heap[child], timer) then break end
    place(heap, heap[child], at)
    at = child
  end
  place(heap, timer, at)
end

--- A timer for `owner`, which must be a table.
function timers_methods:add(deadline, owner)
  self.count = self.count + 1
  local heap = self.heap
  local timer = { deadline = deadline, number = self.count, owner = owner, at = #heap + 1 }
  rise(heap, timer)
  return timer
end

--- Calls a timer off; one that is over already stays so.
function timers_methods:remove(timer)
  local heap, at = self.heap, timer.at
  if heap[at] ~= timer then return end
  local last = heap[#heap]
  heap[#heap] = nil
  if last == timer then return end
  last.at = at
  rise(heap, last)
  sink(heap, last)
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
