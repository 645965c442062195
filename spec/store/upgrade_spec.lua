--- A store that was made without a journal, by the version before the journal or by this one, and that is opened with a
-- journal for the first time, while its power fails or it is killed: see spec/support/fault.c. It can be opened with a
-- journal and without one afterwards, and has everything.

local difference = require("spec.support.difference").difference
local directory = require "spec.support.directory"
local durable = require "spec.support.durable"
local fault = require "spec.support.fault"
local new_random = require("spec.support.random").new
local old_store = require "spec.support.old_store"
local state = require "spec.support.state"
local store_files = require "spec.support.store_files"
local uv = require "spec.support.luv"
local workload = require "spec.support.workload"

local PROGRAM = "spec/support/power_program.lua"
local KILLED = 128 + 9
local BUS = 128 + 7 -- see power_spec.lua
local IS_FAST = os.getenv("KW_FAST") ~= nil
local SMALL_JOURNAL = 65536
local STEPS = 30
local NEW = { "put", "new", "value" } -- of the program

local disk = fault.for_each_test()

--- Returns everything that is seen of a store.
local function look(store)
  while store:step(0) do end -- to the end of a compaction
  return { state = state.of(store), auth = old_store.auth(store) }
end

--- Takes the steps of the program: it disarms the alarm, if there is one, and puts a key. Returns all that is seen of
-- the store, before them and after each of them.
local function look_at_steps(subject)
  assert(subject:open())
  subject:check()
  local seen = { look(subject.store) }
  for _, name in ipairs(subject.store:alarms()) do
    assert(subject:ask { "disarm", name })
    seen[#seen + 1] = look(subject.store)
  end
  assert(subject:ask(NEW))
  subject:check()
  seen[#seen + 1] = look(subject.store)
  subject:close()
  return seen
end

local makers = {}

--- Each of them returns the files of a store without a journal, and what is seen of it.
makers["of this version"] = function(seed)
  local path = directory.new()
  local subject = durable.new(path, 0)
  local steps = workload.at_random(seed)
  assert(subject:open())
  for _ = 1, STEPS do
    local step = steps()
    if not step.is_neutral then assert(subject:ask(step)) end
  end
  while subject.store:step(0) do end
  subject:close()
  local taken = store_files.take(path)
  assert.is_nil(next(taken, next(taken))) -- the database alone
  return taken, look_at_steps(subject)
end

makers["of the version before the journal"] = function()
  local path, taken = directory.new(), { ["data.mdb"] = old_store.read() }
  store_files.put(path, taken)
  local subject = durable.new(path, 0)
  for _, step in ipairs(old_store.STEPS) do subject:assume(step) end
  return taken, look_at_steps(subject)
end

--- Returns which of the states in `seen` a store has, from the `first` on.
local function find_state(store, seen, first)
  local found, words = look(store), nil
  for i = first, #seen do
    words = difference(found, seen[i], "the store")
    if not words then return i end
  end
  error(words, 0)
end

--- Checks a store that was left, which is opened with and without a journal. It never goes back.
local function check(left, seen, is_done, all_segment_bytes)
  local path = directory.new()
  local at = is_done and #seen or 1
  store_files.put(path, left)
  for _, segment_bytes in ipairs(all_segment_bytes) do
    local store = directory.open(path, { journal_segment_bytes = segment_bytes })
    at = find_state(store, seen, at)
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

describe("a store of the version before the journal", function()
  --- Opens a copy.
  local function open(segment_bytes)
    local path = directory.new()
    store_files.put(path, { ["data.mdb"] = old_store.read() })
    local subject = durable.new(path, segment_bytes)
    for _, step in ipairs(old_store.STEPS) do subject:assume(step) end
    assert(subject:open())
    return subject
  end

  for what, segment_bytes in pairs { ["with a journal"] = SMALL_JOURNAL, ["without one"] = 0 } do
    it("is read, written and opened again " .. what, function()
      local subject = open(segment_bytes)
      subject:check()
      assert.same({ "no_space" }, subject.store:alarms())
      local auth = old_store.auth(subject.store)
      assert.same({ "ann", { "reader" } }, { auth.User[1].name, auth.User[1].roles })
      assert.equal("reader", auth.Role[1].name)
      assert.same({ "a", "z" }, { auth.Role[1].keyPermission[1].key, auth.Role[1].keyPermission[1].range_end })
      assert(subject:ask { "disarm", "no_space" })
      assert(subject:ask(NEW))
      assert(subject:ask { "revoke", 7 })
      for _ = 1, 2 do
        assert(subject:reopen())
        subject:check()
        assert.same(auth, old_store.auth(subject.store))
      end
      assert.equal(segment_bytes > 0, uv.fs_stat(subject.path .. "/journal-0") ~= nil)
      subject:close()
    end)
  end
end)

describe("a store without a journal that gets one #slow", function()
  for what, plan in pairs {
    ["the power fails"] = "cut any %d %s %d",
    ["the power fails and sectors are torn"] = "tear any %d %s %d",
    ["it is killed"] = "kill any %d %s %d",
  } do
    for whose, make in pairs(makers) do
      it("has everything when " .. what .. ", at whichever call: one " .. whose, function()
        local random = new_random(tonumber(os.getenv("KW_SEED")))
        local seed, step = random:next(), IS_FAST and 5 or 1
        local old, seen = make(seed)
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
  end
end)
