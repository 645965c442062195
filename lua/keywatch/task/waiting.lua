-- SPDX-License-Identifier: MIT
--- waiting: describes what tasks wait for, for the report of a deadlock.

local check = require "keywatch.support.check"
local tasks = require "keywatch.task.task"

local MAX_TASKS = 20 -- in a report

--- Returns what a task does, and where its code is.
local function doing(scheduler, task)
  local state = task.state
  if state == "new" then return "has not begun" end
  local where, name = check.call_site(task.thread)
  local at = where and " at " .. where or ""
  if state ~= "parked" then return "runs" .. at end
  if name == "exchange" then name = task.offer ~= nil and "send" or "receive" end -- of a channel, by a tail call
  local left = task.timer and scheduler:time_left(task.timer.deadline)
  local how_long = left and (", for %g seconds more"):format(left) or ""
  return ("waits%s%s%s"):format(name and " in " .. name or "", at, how_long)
end

--- Returns the line of a report for one task: its number, what it does, and where it was spawned.
local function describe(scheduler, task)
  local origin = task.spawned_at and ", spawned at " .. task.spawned_at or ""
  return ("task %d %s%s"):format(task.number, doing(scheduler, task), origin)
end

--- Returns the lines of a list of tasks, each after a line break. Tasks beyond MAX_TASKS are only counted.
local function lines(scheduler, list)
  local text = {}
  for i, task in ipairs(list) do
    if i > MAX_TASKS then
      text[#text + 1] = ("\n  and %d more"):format(#list - MAX_TASKS)
      break
    end
    text[#text + 1] = "\n  " .. describe(scheduler, task)
  end
  return table.concat(text)
end

--- Returns what all tasks of a scheduler wait for, as the end of a text.
local function report(scheduler)
  local list = tasks.in_order(scheduler.tasks)
  if #list == 0 then return "" end
  return ":" .. lines(scheduler, list)
end

return { report = report, lines = lines }
