-- SPDX-License-Identifier: MIT
--- span: a part of a task's code that has a rule of its own about cancellation. Spans stand in each other.
--
-- Cancellation is a level: from a moment on each wait of the task raises. A span changes that moment:
--
--   shield   holds the cancellation back for some seconds, so that a clean-up can wait. The seconds count from the
--            cancellation, or from the begin of the shield, whichever is later. A shield in another one does not hold
--            longer than that.
--   limit    is code that ends alone: the waits in it raise from a time on, and the task goes on behind the limit.
--
-- A task that the program spawns in shields is in those shields, too.

local spans = {}

--- Returns the time from which each wait of a task raises, in the spans that it is in now; nil if there is none.
function spans.end_of(task)
  local since, list = task.cancelled_at, task.spans -- since: the moment that the shields below hold back
  local at, is_held = since, false
  for i = 1, list and #list or 0 do
    local span = list[i]
    local ends_at, seconds = span.ends_at, span.seconds
    if ends_at and (not at or ends_at < at) then
      since, at, is_held = ends_at, ends_at, false
    elseif seconds == math.huge then
      since, at, is_held = nil, nil, false
    elseif seconds and since then
      local held_until = math.max(since, span.begun) + seconds
      at, is_held = is_held and math.min(at, held_until) or held_until, true
    end
  end
  return at
end

--- Returns a list of the shields that code of a task is in, or nil.
function spans.shields_of(task)
  local list, shields = task.spans, nil
  for i = 1, list and #list or 0 do
    if list[i].seconds then
      shields = shields or {}
      shields[#shields + 1] = list[i]
    end
  end
  return shields
end

--- Leaves the span that a task is in. Returns the results of a pcall, or raises its error. The waits that have raised
-- in a limit count no more behind it.
local function leave(task, ok, ...)
  local list = task.spans
  list[#list] = nil
  if not list[1] then task.spans = nil end
  if not list[1] and not task.cancelled_at then task.waits = nil end
  if not ok then error((...), 0) end
  return ...
end

--- Calls fn(...) in a span of a task. Returns its results, or raises its error.
function spans.within(task, span, fn, ...)
  local list = task.spans or {}
  task.spans, list[#list + 1] = list, span
  return leave(task, pcall(fn, ...))
end

return spans
