--- Work queues at random: a program of adds, retries, gets and dones does the same with a queue and with a naive model
-- of it, and with many workers that wait. The tables inside of the queue agree with each other at every step.

local controller = require "keywatch.controller"
local keywatch = require "keywatch"
local dose = require "spec.support.dose"
local occurrences = require "spec.support.occurrences"
local random = require "spec.support.random"
local scheduler = require "spec.support.scheduler"
local testing = require "keywatch.testing"

local SEED = tonumber(os.getenv("KW_SEED")) or os.time()
local ROUNDS = dose.of(10, 40)
local STEPS = 300

local model_methods = {}
local model_mt = { __index = model_methods }

--- A queue as a list that is searched from end to end.
local function new_model()
  return setmetatable({ queued = {}, taken = {}, delayed = {}, count = 0, is_closed = false }, model_mt)
end

local function find(list, item)
  for i, entry in ipairs(list) do
    if entry.item == item then return i, entry end
  end
end

function model_methods:put(item, priority, is_owed)
  if self.is_closed and not is_owed then return end
  local at, delayed = find(self.delayed, item)
  if at then
    table.remove(self.delayed, at)
    priority = math.max(priority, delayed.priority)
  end
  local place, present = find(self.queued, item)
  local taken = self.taken[item]
  if present and present.priority >= priority then return end
  if taken then
    taken.again = math.max(taken.again or priority, priority)
    return
  end
  if place then table.remove(self.queued, place) end
  table.insert(self.queued, { item = item, priority = priority })
end

function model_methods:add(item, priority, after)
  if self.is_closed then return end
  local taken, _, delayed = self.taken[item], find(self.delayed, item)
  if after <= 0 or find(self.queued, item) or taken and taken.again then return self:put(item, priority) end
  local at = keywatch.now() + after
  self.count = self.count + 1
  if not delayed then
    table.insert(self.delayed, { item = item, priority = priority, at = at, number = self.count })
    return
  end
  delayed.priority = math.max(delayed.priority, priority)
  if at < delayed.at then delayed.at, delayed.number = at, self.count end
end

--- What is due is queued, in the order of the times.
function model_methods:settle()
  table.sort(self.delayed, function(a, b) return a.at < b.at or a.at == b.at and a.number < b.number end)
  while self.delayed[1] and self.delayed[1].at <= keywatch.now() do
    local due = table.remove(self.delayed, 1)
    self:put(due.item, due.priority)
  end
end

function model_methods:get()
  self:settle()
  local best
  for i, entry in ipairs(self.queued) do
    if not best or entry.priority > self.queued[best].priority then best = i end
  end
  if not best then return nil end
  local entry = table.remove(self.queued, best)
  self.taken[entry.item] = { again = nil, rank = entry.priority }
  return entry.item
end

function model_methods:done(item)
  local taken = self.taken[item]
  self.taken[item] = nil
  if taken.again then self:put(item, taken.again, true) end
end

function model_methods:close()
  self.is_closed, self.delayed = true, {}
end

local function count(t)
  local n = 0
  for _ in pairs(t) do n = n + 1 end
  return n
end

--- Raises unless the tables of a queue agree with each other. (luassert would take most of the time.)
local function check(queue)
  local function must(ok, what)
    if not ok then error("the tables do not agree: " .. what, 2) end
  end
  must(count(queue.queued) == queue.depth and count(queue.places) == queue.depth, "depth")
  must(count(queue.taken) == queue.active, "active")
  must(count(queue.delayed) == queue.waiting and queue.waiting == #queue.timers.heap, "waiting")
  must(count(queue.lanes) == #queue.others.heap + 1, "lanes")
  for item, lane in pairs(queue.queued) do
    must(not queue.taken[item], "queued and taken")
    must(not queue.delayed[item], "queued and delayed")
    must(lane == queue.lanes[lane.priority] and lane.items[queue.places[item]] == item, "place")
  end
  for item in pairs(queue.again) do
    must(queue.taken[item] and not queue.delayed[item], "again")
  end
  for item in pairs(queue.ranks) do must(queue.taken[item], "ranks") end
  must(not scheduler.check_timers(queue.others), "order of lanes")
  for _, timer in ipairs(queue.others.heap) do
    local lane = timer.owner
    must(lane.timer == timer and -timer.deadline == lane.priority and lane.first <= lane.last, "lanes in the heap")
  end
end

--- One program: both must answer alike. Returns what occurred.
local function play(seed)
  local dice, model, seen = random.new(seed), new_model(), {}
  local delay = 0
  local queue = controller.work_queue { limiter = {
    when = function() return delay end, forget = function() end, retries = function() return 0 end,
  } }
  local items, spread = dice:between(1, 60), dice:pick { 1, 3, 50 }
  local working = {}
  local function note(what) seen[what] = (seen[what] or 0) + 1 end
  local function an_item() return "item" .. dice:between(1, items) end
  local function a_priority() return dice:one_in(2) and 0 or dice:between(-spread, spread) end

  local actions = {
    { 30, function()
      local item, after, priority = an_item(), dice:one_in(2) and 0 or dice:between(-1, 20), a_priority()
      if after > 0 and model.taken[item] then note "delayed while taken" end
      if find(model.delayed, item) then note "added while delayed" end
      if model.taken[item] then note "added while taken" end
      local _, present = find(model.queued, item)
      if present and present.priority < priority then note "raised" end
      queue:add(item, { after = after, priority = priority })
      model:add(item, priority, after)
    end },
    { 10, function()
      local item = an_item()
      queue:add(item)
      model:add(item, 0, 0)
    end },
    { 8, function()
      local item = an_item()
      delay = dice:between(0, 8)
      queue:retry(item)
      model:add(item, model.taken[item] and model.taken[item].rank or 0, delay)
      if model.taken[item] and model.taken[item].rank ~= 0 then note "retried with its priority" end
    end },
    { 25, function()
      local expected = model:get()
      local item, err = queue:get(0)
      if expected ~= item then assert.equal(expected, item, seed) end
      if item then table.insert(working, item) else note(err.code) end
    end },
    { 20, function()
      if #working == 0 then return end
      local item = table.remove(working, dice:between(1, #working))
      if model.taken[item].again then note(model.is_closed and "again when closed" or "again") end
      queue:done(item)
      model:done(item)
    end },
    { 8, function()
      keywatch.sleep(dice:between(0, 6))
    end },
  }

  local closing = dice:one_in(2) and dice:between(1, STEPS)
  for step = 1, STEPS do
    if step == closing then
      queue:close()
      model:close()
    end
    dice:weighted(actions)()
    model:settle()
    check(queue)
    if #model.queued ~= queue:count() or #model.delayed ~= queue:status().delayed then
      error(("step %d of seed %d: the model has another number of items"):format(step, seed))
    end
  end
  for _, item in ipairs(working) do
    queue:done(item)
    model:done(item)
  end
  keywatch.sleep(30)
  local expected = model:get()
  while expected do
    assert.equal(expected, queue:get(0))
    queue:done(expected)
    model:done(expected)
    expected = model:get()
  end
  assert.is_nil((queue:get(0)))
  check(queue)
  assert.same({ 0, 0, 0 }, { queue.depth, queue.active, queue.waiting })
  queue:close()
  return seen
end

--- Workers that wait, are cancelled and end by timeouts, while items are added. Every item that was added has been
-- worked on after its last add, and none by two workers at once. Returns what occurred.
local function crowd(seed)
  local dice, queue, seen = random.new(seed), controller.work_queue(), {}
  local busy, last_add, last_work, clock, workers = {}, {}, {}, 0, {}
  local function note(what) seen[what] = (seen[what] or 0) + 1 end

  local function work(timeout)
    while true do
      local item, err = queue:get(timeout)
      if not item then
        note(err.code)
        return
      end
      assert.is_nil(busy[item])
      clock = clock + 1
      busy[item], last_work[item] = true, clock
      local ok, raised = pcall(keywatch.sleep, dice:between(0, 3) / 10)
      busy[item] = nil
      if not ok or dice:one_in(10) then
        note(ok and "retried" or "cancelled at work")
        clock = clock + 1
        last_add[item] = clock
        queue:retry(item)
      end
      queue:done(item)
      if not ok then error(raised, 0) end
    end
  end

  for i = 1, dice:between(1, 6) do workers[i] = keywatch.spawn(work) end
  for _ = 1, 150 do
    local item = "item" .. dice:between(1, 20)
    clock = clock + 1
    last_add[item] = clock
    queue:add(item, dice:one_in(3) and { after = dice:between(1, 5) / 10, priority = dice:between(-2, 2) } or nil)
    if dice:one_in(3) then keywatch.sleep(dice:between(0, 3) / 10) end
    if dice:one_in(8) then
      local at = dice:between(1, #workers)
      workers[at]:cancel()
      workers[at] = keywatch.spawn(work, dice:one_in(2) and 0.2 or nil)
    end
    if dice:one_in(10) then keywatch.spawn(work, 0.1) end
  end
  local rest = keywatch.spawn(work)
  keywatch.sleep(100) -- delayed and failed items have been worked on
  assert.is_true(queue:drain())
  rest:join()
  keywatch.join(workers)
  for item, at in pairs(last_add) do assert.is_true(last_work[item] > at, item) end
  check(queue)
  return seen
end

describe("a work queue at random", function()
  it("behaves like a simple model with a list", function()
    local outcomes = {
      "delayed while taken", "added while delayed", "added while taken", "raised", "retried with its priority",
      "timeout", "closed", "again", "again when closed",
    }
    occurrences.await(outcomes, ROUNDS, function(i)
      return testing.run(function() return play(SEED + i) end)
    end)
  end)

  it("loses no item, and gives none to two workers, with workers that are added, end and are cancelled", function()
    occurrences.await({ "timeout", "closed", "retried", "cancelled at work" }, ROUNDS, function(i)
      return testing.run(function() return crowd(SEED + i) end)
    end)
  end)
end)
