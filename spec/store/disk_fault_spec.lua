--- A durable store whose disk fails: see spec/support/fault.c. Every acknowledged write is there when it is opened
-- again, and no write is there in part. power_spec.lua simulates power failures.

local core = require "keywatch.core"
local keywatch = require "keywatch"

local dose = require "spec.support.dose"
local fault = require "spec.support.fault"
local FAILURES = require("spec.support.fault_plan").FAILURES
local new_random = require("spec.support.random").new

local KILLED = 128 + 9
local IS_FAST = dose.is_small

local disk = fault.for_each_test()

local function expect_end(program) assert.equal(0, program:wait(600), program:transcript()) end

local function expect_done(program)
  expect_end(program)
  assert.matches("done %d+\n", program:stdout())
end

describe("a failing disk #slow", function()
  local function expect(what, plan)
    it("loses nothing when it " .. what .. ", whichever call it is", function()
      disk:strike_every("spec/support/fault_program.lua", plan)
    end)
  end

  for what, plan in pairs(FAILURES) do expect(what, plan) end
  expect("is interrupted", "fail any %d once 4")
end)

--- A commit group that is written in parts.
describe("a large delete #slow", function()
  local KEYS = core.probe and 60 or 30000

  for what, plan in pairs { ["has no room"] = "fail any %d once 28", ["is broken"] = "fail any %d once 5" } do
    it("happens whole or not at all when the disk " .. what, function()
      local n = 1
      repeat
        local program = disk:start("large", plan:format(n), tostring(KEYS))
        expect_done(program)
        local has_struck = not program:stdout():find("not struck\n", 1, true)
        n = n + (IS_FAST and 7 or 3)
        disk:renew()
      until not has_struck
      assert.is_true(n > 8)
    end)
  end

  it("is whole or absent after the program was killed", function()
    local random, killed = new_random(tonumber(os.getenv("KW_SEED"))), 0
    for _ = 1, dose.of(2, 6) do
      local program = disk:start("large", ("kill any %d after"):format(random:between(2, 12)), tostring(KEYS))
      killed = killed + (program:wait(600) == KILLED and 1 or 0)
      local store = assert(keywatch.open { path = disk.path })
      local count = store:range("key ", { prefix = true, count_only = true }).count
      assert.is_true(count == 0 or count == KEYS, count .. " are left")
      assert.equal(count, assert(store:delete("key ", { prefix = true })).deleted)
      store:close()
      store = assert(keywatch.open { path = disk.path })
      assert.equal(0, store:range("key ", { prefix = true, count_only = true }).count)
      store:close()
      disk:renew()
    end
    assert.is_true(killed > 0)
  end)
end)

describe("a database whose file grows #slow", function()
  -- Values that go to the journal; and how long a sync of the database takes, so that checkpoints are on their way
  -- whenever the file grows. In builds with a probe a checkpoint has many more syncs.
  local BYTES = core.probe and 1800 or 100000
  local SYNC_MS = core.probe and 1 or 20

  it("has every page that a concurrent checkpoint writes", function()
    disk.slow_ms = SYNC_MS
    expect_done(disk:start("grow", tostring(BYTES)))
  end)
end)

describe("a full disk #slow", function()
  -- By what is full: the errno of a write without space, and numbers of bytes by which the space exceeds 12 MiB. If
  -- they are not whole pages, the last page can only be written in part.
  for what, case in pairs { ["the disk"] = { 28, 0, 4000 }, ["the quota"] = { 122, 100 }, ["the file"] = { 27, 0 } } do
    it("serves reads, and compaction frees space, if only deletes fit into " .. what, function()
      for i = 2, #case do
        expect_done(disk:start("exhaust", ("room %d %d"):format(12 * 1024 * 1024 + case[i], case[1])))
        disk:renew()
      end
    end)
  end

  it("has no deleted key again, if compaction has space for a part of its work", function()
    expect_done(disk:start("part", ("room %d 28"):format(12 * 1024 * 1024)))
  end)

  it("is retried only after a pause, if no write is made", function()
    expect_end(disk:start("patient"))
  end)

  it("serves reads, also while no write is possible", function()
    expect_end(disk:start("read"))
  end)

  it("is refused for a new store, with the reason", function() expect_done(disk:start("make")) end)

  it("serves reads, and compaction frees space, if only deletes fit into a small file system", function()
    expect_done(disk:start_small(12 * 1024 * 1024, "exhaust", ""))
  end)
end)
