--- Checks the invariants of the scheduler: every task is in exactly the lists for its state, and nothing is left of a
-- finished wait. The invariants hold whenever no function of the driver is running; during a finalizer one may be.

local driver = require("keywatch.task.driver").get()

local scheduler = {}

--- Returns a text about a violation in a heap of timers, or nil.
function scheduler.check_timers(timers)
  for at, timer in ipairs(timers.heap) do
    if timer.at ~= at then return "a timer does not know its place" end
    local above = timers.heap[math.floor(at / 2)]
    if above and above.deadline > timer.deadline then return "a timer is before one that is due earlier" end
  end
end

--- Returns a text if a task is not in the lists for its state, or nil.
local function misplaced(inside, task)
  local event, timer = task.event, task.timer
  if task.state == "parked" then
    if not event and not timer then return "a parked task waits for nothing" end
    if event and event[task.place] ~= task then
      return "a parked task is not among those who wait for its event"
    end
  elseif event or timer then
    return ("a task that is %s still waits"):format(task.state)
  end
  if task.state == "running" and task ~= inside.running then return "a task seems to run, and does not" end
end

--- Returns how often each task is in the queue; or nil and a text about a violation.
local function count_queued(inside)
  local counts = {}
  for i = inside.first, inside.last do
    local task = inside.queue[i]
    if not task then return nil, "the queue has a hole" end
    counts[task] = (counts[task] or 0) + 1
    if task.state == "parked" or task.state == "running" then
      return nil, ("a task that is %s is in the queue"):format(task.state)
    end
  end
  if inside.queue[inside.first - 1] or inside.queue[inside.last + 1] then
    return nil, "the queue is longer than it says"
  end
  return counts
end

local function check_tasks(inside)
  local counts, trouble = count_queued(inside)
  if not counts then return trouble end
  for task in pairs(inside.tasks) do
    if task.state == "done" then return "a task is known that is done" end
    local wanted = (task.state == "new" or task.state == "ready") and 1 or 0
    if (counts[task] or 0) ~= wanted then return ("a task that is %s is not once in the queue"):format(task.state) end
    local why = misplaced(inside, task)
    if why then return why end
  end
end

local function check_event(event)
  local gaps = 0
  for i, who in ipairs(event) do
    if not who then
      gaps = gaps + 1
    elseif who.target then
      if who.event ~= event or who.place ~= i then return "an event has a link that does not wait for it" end
    elseif who.event ~= event or who.place ~= i or who.state ~= "parked" then
      return "an event has one waiting who does not wait for it"
    end
  end
  if gaps ~= event.gaps then return "an event has a wrong number of gaps" end
  if event.is_set and event[1] ~= nil then return "an event is set, and is waited for" end
end

local function check_events(inside)
  for task in pairs(inside.tasks) do
    local why = task.done and check_event(task.done) or task.event and check_event(task.event)
    if why then return why end
  end
end

local function check_sleepers(inside)
  for _, timer in ipairs(inside.sleepers.heap) do
    if timer.owner.timer ~= timer or timer.owner.state ~= "parked" then return "a timer is left behind" end
  end
  return scheduler.check_timers(inside.sleepers)
end

local function check_sources(inside)
  local n = 0
  for i, poller in ipairs(inside.pollers) do
    if poller and inside.places[poller] ~= i then return "a poller is not where it seems to be" end
    if poller then n = n + 1 end
  end
  for _ in pairs(inside.places) do n = n - 1 end
  if n ~= 0 then return "a poller is detached, and known" end
end

--- Returns a text about a violation in the scheduler, or nil. No finalizer runs during the check.
function scheduler.check(which)
  collectgarbage("stop")
  local tasks, owner = (which or driver).inside()
  local inside = {
    queue = tasks.queue, first = tasks.first, last = tasks.last, pollers = tasks.pollers, places = tasks.places,
    sleepers = owner.sleepers, tasks = owner.tasks, running = owner.running,
  }
  local why = check_tasks(inside) or check_events(inside) or check_sleepers(inside) or check_sources(inside)
  collectgarbage("restart")
  return why
end

return scheduler
