--- Random programs of tasks. After each step the invariants of the scheduler hold, no wait has ended too early or for
-- nothing, and in the end nothing is left.

local compat = require "keywatch.support.compat"
local core = require "keywatch.core"
local driver = require("keywatch.task.driver").get()
local keywatch = require "keywatch"

local occurrences = require "spec.support.occurrences"
local random = require "spec.support.random"
local scheduler = require "spec.support.scheduler"

local IS_FAST = require("spec.support.dose").is_small
local PROGRAMS = IS_FAST and 5 or 15
local STEPS = 30  -- of a task
local TASKS = 40  -- of a program, at most
local EVENTS = 4
local LONGEST = 3 -- milliseconds that one waits

local seed = tonumber(os.getenv("KW_SEED")) or 1

local function check(where)
  local why = scheduler.check()
  if why then error(("%s: %s"):format(where, why), 0) end
end

--- What a program has: its tasks and events, and how often each thing happened.
local function new_program(rnd)
  local program = { rnd = rnd, tasks = {}, events = {}, counts = {} }
  for i = 1, EVENTS do program.events[i] = { event = driver.event(), sets = 0 } end
  return program
end

local function note(program, what)
  program.counts[what] = (program.counts[what] or 0) + 1
end

local function seconds(program)
  return program.rnd:between(0, LONGEST) / 1000
end

local function is_cancellation(err)
  return type(err) == "table" and err.code == "cancelled"
end

-- Waits ---------------------------------------------------------------------------------------------------------------

local waits = {}

function waits.sleep(program)
  local until_ = driver.now() + seconds(program)
  keywatch.sleep(until_ - driver.now())
  assert(driver.now() >= until_ - 1e-9, "a sleep has ended too early")
end

--- An event that was not set between has not come, and one that did not come has taken its time.
function waits.event(program)
  local chosen, timeout = program.rnd:pick(program.events), seconds(program)
  local until_, sets, was_set = driver.now() + timeout, chosen.sets, chosen.event.is_set
  if chosen.event:wait(timeout) then
    assert(was_set or chosen.sets > sets, "an event came that was not set")
    note(program, "came")
  else
    assert(driver.now() >= until_ - 1e-9, "a wait for an event has ended too early")
    note(program, "late")
  end
end

function waits.join(program)
  local task = program.rnd:pick(program.tasks)
  if tostring(task) == "keywatch.task<running>" then return end -- that is the caller
  local until_ = driver.now() + 0.001
  local ok = task:join(0.001)
  assert(ok ~= nil or driver.now() >= until_ - 1e-9, "a join has ended too early")
  assert(ok == nil or tostring(task) == "keywatch.task<done>" or tostring(task) == "keywatch.task<failed>")
end

-- Places where nobody can be suspended --------------------------------------------------------------------------------

local places = {}

function places.gsub(fn) return (("x"):gsub("x", function() fn() end)) end

function places.sort(fn)
  local has_run = false
  table.sort({ 2, 1 }, function(a, b)
    if not has_run then fn() end
    has_run = true
    return a < b
  end)
end

function places.metamethod(fn)
  return tostring(setmetatable({}, { __tostring = function() fn() return "" end }))
end

function places.finalizer(fn)
  compat.sentinel(fn)
  collectgarbage()
end

local WAITS = { "sleep", "event", "join" }
local PLACES = { "gsub", "sort", "metamethod", "finalizer" }

--- A wait in such a place is refused; or there was nothing to wait for.
local function wait_in_place(program)
  local name = program.rnd:pick(PLACES)
  places[name](function()
    local can_wait = core.is_yieldable()
    local ok, err = pcall(waits[program.rnd:pick(WAITS)], program)
    if ok then return end
    if is_cancellation(err) and can_wait then error(err, 0) end
    assert(not can_wait, err)
    assert(tostring(err):find(" waits, but the ", 1, true), err)
    note(program, "refused in " .. name)
  end)
end

-- Steps ---------------------------------------------------------------------------------------------------------------

local steps = {}
local work

function steps.wait(program) waits[program.rnd:pick(WAITS)](program) end
steps.wait_in_place = wait_in_place

function steps.set(program)
  local chosen = program.rnd:pick(program.events)
  chosen.sets = chosen.sets + 1
  chosen.event:set()
end

function steps.spawn(program)
  if #program.tasks >= TASKS then return end
  table.insert(program.tasks, keywatch.spawn(work, program))
end

function steps.cancel(program)
  if not program.rnd:one_in(3) then return end
  program.rnd:pick(program.tasks):cancel()
  note(program, "cancelled")
end

function steps.yield() coroutine.yield() end

--- What a finalizer does that comes at some time, in whatever it interrupts.
function steps.leave_garbage(program)
  local act = program.rnd:pick { "set", "spawn", "cancel", "wait" }
  compat.sentinel(function()
    note(program, driver.can_park() and "finalized where it can wait" or "finalized")
    local ok, err = pcall(steps[act], program)
    if not ok then assert(is_cancellation(err) or tostring(err):find(" waits, but the ", 1, true), err) end
  end)
end

function steps.collect(program)
  if program.rnd:one_in(4) then collectgarbage("step", 50) end
end

local STEPS_BY_WEIGHT = {
  { 8, "wait" }, { 4, "wait_in_place" }, { 4, "set" }, { 3, "spawn" }, { 2, "cancel" }, { 1, "yield" },
  { 3, "leave_garbage" }, { 3, "collect" },
}

--- A task: it ends early if it is cancelled, or now and then goes on.
function work(program)
  for _ = 1, STEPS do
    local name = program.rnd:weighted(STEPS_BY_WEIGHT)
    local ok, err = pcall(steps[name], program)
    check(name)
    if not ok and not is_cancellation(err) then error(err, 0) end
    if not ok and not program.rnd:one_in(4) then error(err, 0) end
    note(program, name)
  end
end

--- Makes garbage and checks, in the middle of the driver.
local function new_source(program)
  return {
    poll = function()
      check("poll")
      steps.leave_garbage(program)
      if program.rnd:one_in(8) then collectgarbage("step", 50) end
      check("poll, afterwards")
      return LONGEST / 1000
    end,
  }
end

local function run(program)
  local source = new_source(program)
  driver.attach(source)
  local ok, err = pcall(keywatch.run, function()
    steps.spawn(program)
    steps.spawn(program)
    for i = 1, TASKS do
      local task = program.tasks[i]
      if not task then break end
      local ended, why = task:join()
      if not ended and not is_cancellation(why) then error(why, 0) end
    end
  end)
  driver.detach(source)
  if not ok then error(err, 0) end
end

describe("random programs of tasks", function()
  it("keep the scheduler whole", function()
    local wanted = { "came", "late", "cancelled", "finalized", "wait", "set", "spawn", "yield", "refused in gsub",
      "refused in sort", "refused in finalizer", not jit and "refused in metamethod" or nil }
    local counts = occurrences.await(wanted, PROGRAMS, function(i)
      local program = new_program(random.new(seed + i))
      local ok, err = pcall(run, program)
      if not ok then error(("program %d: %s"):format(i, tostring(err)), 0) end
      check("in the end")
      for _, task in ipairs(program.tasks) do assert.is_true(task.state == "done") end
      return program.counts
    end)
    collectgarbage()
    pcall(keywatch.run, function() end)
    check("after all")
    assert.is_nil(counts["finalized where it can wait"])
  end)
end)

describe("random timers", function()
  it("keep the heap whole, whoever is called off", function()
    local timers = require "keywatch.task.timers"
    local rnd, heap, kept = random.new(seed), timers.new(), {}
    for _ = 1, 2000 do
      if rnd:one_in(3) and #kept > 0 then
        heap:remove(table.remove(kept, rnd:between(1, #kept)))
      else
        local deadline = rnd:between(1, 50)
        table.insert(kept, heap:add(deadline, { deadline = deadline }))
      end
      assert.is_nil(scheduler.check_timers(heap))
      assert.equal(#kept, #heap.heap)
    end
    local last = 0
    for owner in function() return heap:due(math.huge) end do
      assert.is_true(owner.deadline >= last)
      last = owner.deadline
    end
    assert.is_nil(heap:next())
  end)
end)
