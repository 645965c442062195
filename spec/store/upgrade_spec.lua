--- A store that was made without a journal, and that is opened with one for the first time, while its power fails or
-- it is killed: see spec/support/fault.c. It can be opened with a journal and without one afterwards, and has
-- everything.

local directory = require "spec.support.directory"
local durable = require "spec.support.durable"
local fault = require "spec.support.fault"
local new_random = require("spec.support.random").new
local state = require "spec.support.state"
local store_files = require "spec.support.store_files"
local workload = require "spec.support.workload"

local PROGRAM = "spec/support/power_program.lua"
local KILLED = 128 + 9
local BUS = 128 + 7 -- see power_spec.lua
local IS_FAST = os.getenv("KW_FAST") ~= nil
local SMALL_JOURNAL = 65536
local STEPS = 30
local NEW = { "put", "new", "value" } -- of the program

local disk = fault.for_each_test()

--- Returns the files of a store without a journal, and what is seen of it: without the step of the program, and with.
local function make_old(seed)
  local path = directory.new()
  local subject = durable.new(path, 0)
  local steps, seen = workload.at_random(seed), {}
  assert(subject:open())
  for _ = 1, STEPS do
    local step = steps()
    if not step.is_neutral then assert(subject:ask(step)) end
  end
  while subject.store:step(0) do end
  subject:close()
  local taken = store_files.take(path)
  assert.is_nil(next(taken, next(taken))) -- the database alone
  assert(subject:reopen())
  seen[false] = state.of(subject.store)
  assert(subject:ask(NEW))
  subject:check()
  seen[true] = state.of(subject.store)
  subject:close()
  return taken, seen
end

--- Checks a store that was left, which is opened with and without a journal.
local function check(left, seen, is_done, all_segment_bytes)
  local path = directory.new()
  store_files.put(path, left)
  for _, segment_bytes in ipairs(all_segment_bytes) do
    local store = directory.open(path, { journal_segment_bytes = segment_bytes })
    local is_there = store:get("new") ~= nil
    assert.is_true(is_there or not is_done)
    is_done = is_there -- and stays so
    state.expect(store, seen[is_there])
    store:close()
  end
  directory.remove(path)
end

--- Opens the old store with a journal until the plan strikes. Returns whether it has.
local function try(old, seen, plan)
  store_files.put(disk.path, old)
  disk:plan(plan)
  local program = disk:start_program(PROGRAM, "put", tostring(SMALL_JOURNAL))
  local status = program:wait()
  assert(status == KILLED or status == BUS or status == 0, program:transcript())
  local is_done = program:stdout():find("done 1\n", 1, true) ~= nil
  local left = store_files.take(disk.path)
  check(left, seen, is_done, { SMALL_JOURNAL, 0, SMALL_JOURNAL })
  check(left, seen, is_done, { 0, SMALL_JOURNAL, 0 })
  return status ~= 0
end

describe("a store without a journal that gets one #slow", function()
  for what, plan in pairs {
    ["the power fails"] = "cut any %d %s %d",
    ["the power fails and sectors are torn"] = "tear any %d %s %d",
    ["it is killed"] = "kill any %d %s %d",
  } do
    it("has everything when " .. what .. ", at whichever call", function()
      local random = new_random(tonumber(os.getenv("KW_SEED")))
      local seed, step = random:next(), IS_FAST and 5 or 1
      local old, seen = make_old(seed)
      local n = random:between(1, step)
      repeat
        local line = plan:format(n, random:pick { "before", "after" }, random:next())
        local ok, has_struck = pcall(try, old, seen, line)
        if not ok then error(("seed %d, %s: %s"):format(seed, line, tostring(has_struck)), 0) end
        n = n + step
      until not has_struck
      assert.is_true(n > 20, n)
    end)
  end
end)
