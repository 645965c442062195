-- SPDX-License-Identifier: MIT
--- timers: who waits until when. A binary heap, in which what was called off stays until its time.

local timers_methods = {}
local timers_mt = { __index = timers_methods }

local function new()
  return setmetatable({
    heap = {}, -- of { deadline, number, owner, token }
    count = 0, -- timers ever made, so that equal deadlines keep their order
  }, timers_mt)
end

local function before(a, b)
  if a.deadline ~= b.deadline then return a.deadline < b.deadline end
  return a.number < b.number
end

local function rise(heap, at)
  while at > 1 do
    local parent = (at - at % 2) / 2
    if not before(heap[at], heap[parent]) then return end
    heap[at], heap[parent] = heap[parent], heap[at]
    at = parent
  end
end

local function sink(heap, at)
  while true do
    local least = at
    for child = 2 * at, 2 * at + 1 do
      if heap[child] and before(heap[child], heap[least]) then least = child end
    end
    if least == at then return end
    heap[at], heap[least] = heap[least], heap[at]
    at = least
  end
end

local function pop(heap)
  local top = heap[1]
  heap[1] = heap[#heap]
  heap[#heap] = nil
  if heap[1] then sink(heap, 1) end
  return top
end

--- Wakes `owner` at `deadline`, if it still waits with the same token then.
function timers_methods:add(deadline, owner, token)
  self.count = self.count + 1
  local heap = self.heap
  heap[#heap + 1] = { deadline = deadline, number = self.count, owner = owner, token = token }
  rise(heap, #heap)
end

local function is_called_off(timer)
  return timer.owner.token ~= timer.token
end

--- The next deadline, or nil.
function timers_methods:next()
  local heap = self.heap
  while heap[1] and is_called_off(heap[1]) do pop(heap) end
  return heap[1] and heap[1].deadline
end

--- Takes out who is due by `now`, one at a time; nil when there is nobody left.
function timers_methods:due(now)
  local deadline = self:next()
  if deadline and deadline <= now then return pop(self.heap).owner end
end

return { new = new }
