-- SPDX-License-Identifier: MIT
--- span: a part of a task's code with its own rule about cancellation. Spans can be nested.
--
-- Cancellation is a level: from a certain moment on each wait of the task raises. A span changes that moment:
--
--   shield   delays the cancellation for some seconds, so that a clean-up can wait. The seconds count from the
--            cancellation, or from the beginning of the shield, whichever is later. A shield inside of another one does
--            not delay longer than the outer one.
--   limit    ends only its own code: the waits in it raise from a time on, and the task continues after the limit.
--
-- A task that the program spawns in shields inherits these shields, and a task of a scope inherits all spans of the
-- scope's caller. Inside these spans the task has its own limit, which a cancellation from inside of these shields
-- ends: shields only delay cancellations from outside.

local spans = {
  ENDLESS = { seconds = math.huge }, -- a shield for the wait of a scope, whose tasks end or are abandoned
}

--- Returns the time from which each wait of a task raises, given its current spans; nil if there is none.
function spans.end_of(task)
  local since, list = task.cancelled_at, task.spans -- since: the moment that the shields below delay
  local at, is_delayed = since, false
  for i = 1, list and #list or 0 do
    local span = list[i]
    local ends_at, seconds = span.ends_at, span.seconds
    if ends_at and (not at or ends_at < at) then
      since, at, is_delayed = ends_at, ends_at, false
    elseif seconds == math.huge then
      since, at, is_delayed = nil, nil, false
    elseif seconds and since then
      local delayed_until = math.max(since, span.begun) + seconds
      at, is_delayed = is_delayed and math.min(at, delayed_until) or delayed_until, true
    end
  end
  return at
end

--- Returns the list of the spans that a new task begins in, or nil: those of the list `outer`, and the shields of the
-- task `parent`, which spawns it. Both may be nil.
function spans.inherited(outer, parent)
  local list, known, inmost = {}, { [spans.ENDLESS] = true }, nil
  for _, from in ipairs { outer or list, parent and parent.spans } do
    for _, span in ipairs(from) do
      if not known[span] and (span.seconds or from == outer) then
        list[#list + 1], known[span] = span, true
        if span.seconds then inmost = span end
      end
    end
  end
  if inmost then list[#list + 1] = { of = inmost } end
  return list[1] and list
end

--- Called when code in the spans of the list `origin` has cancelled a task. Ends the limit of the task if that code is
-- inside of the shields that the task has inherited.
function spans.cancel_inside(task, origin, now)
  local list, own = task.spans, nil
  for i = 1, list and #list or 0 do
    if list[i].of then own = list[i] end
  end
  for i = 1, own and #origin or 0 do
    if origin[i] == own.of then own.ends_at = own.ends_at or now end
  end
end

--- Leaves the current span of a task. Returns the results of a pcall, or raises its error. The waits that have raised
-- in a limit are not counted after it.
local function leave(task, ok, ...)
  local list = task.spans
  list[#list] = nil
  if not list[1] then task.spans = nil end
  if task.waits and not spans.end_of(task) then task.waits = nil end
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
