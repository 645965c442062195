-- SPDX-License-Identifier: MIT
--- queue: waiters in order of arrival, with a line for each origin: in a line only the first waiter can be served. All
-- functions take the same time for any number of waiters.
--
-- A waiter is a table with the field `endpoint`, whose field `key` is the URL of the origin. The queue sets the fields
-- number, line, previous and next.

local queue_methods = {}
local queue_mt = { __index = queue_methods }

local function new()
  return setmetatable({
    lines = {}, -- by the key of the origin: { head =, tail = }
    last = 0,   -- number of the last waiter
  }, queue_mt)
end

local function arrived_before(a, b) return a.number < b.number end

--- Adds a waiter at the end.
function queue_methods:add(waiter)
  local key = waiter.endpoint.key
  local line = self.lines[key] or {}
  self.lines[key], self.last = line, self.last + 1
  waiter.number, waiter.line, waiter.previous = self.last, line, line.tail
  if line.tail then line.tail.next = waiter else line.head = waiter end
  line.tail = waiter
end

--- Removes a waiter. Does nothing if it is not in the queue.
function queue_methods:remove(waiter)
  local line, before, after = waiter.line, waiter.previous, waiter.next
  if not line then return end
  waiter.line, waiter.previous, waiter.next = nil, nil, nil
  if before then before.next = after else line.head = after end
  if after then after.previous = before else line.tail = before end
  if not line.head then self.lines[waiter.endpoint.key] = nil end
end

--- Moves heads[i], which may be nil, to its place in the list, which is sorted from there on.
local function sort_in(heads, i)
  if not heads[i] then table.remove(heads, i) end
  while heads[i + 1] and arrived_before(heads[i + 1], heads[i]) do
    heads[i], heads[i + 1], i = heads[i + 1], heads[i], i + 1
  end
end

--- Calls serve(object, waiter) for the first waiter of each line, in order of arrival. If that returns true, the waiter
-- leaves, and the next one of its line is first.
function queue_methods:serve(serve, object)
  local heads, i = {}, 1
  for _, line in pairs(self.lines) do heads[#heads + 1] = line.head end
  if heads[2] then table.sort(heads, arrived_before) end
  while heads[i] do
    local waiter = heads[i]
    if waiter.line and not serve(object, waiter) then -- without a line: a finalizer has removed it
      i = i + 1
    else
      self:remove(waiter)
      local line = self.lines[waiter.endpoint.key]
      heads[i] = line and line.head or false
      sort_in(heads, i)
    end
  end
end

--- Removes all waiters, and returns them in order.
function queue_methods:clear()
  local all = {}
  for _, line in pairs(self.lines) do
    local waiter = line.head
    while waiter do
      all[#all + 1] = waiter
      waiter = waiter.next
    end
  end
  for _, waiter in ipairs(all) do self:remove(waiter) end
  table.sort(all, arrived_before)
  return all
end

return { new = new }
