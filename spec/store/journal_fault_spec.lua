--- A journal whose disk fails: see spec/support/fault.c. Every group that was acknowledged is recovered, and at most
-- one more, which was being written. spec/support/journal_program.lua has the journal.

local directory = require "spec.support.directory"
local dose = require "spec.support.dose"
local fault = require "spec.support.fault"
local FAILURES = require("spec.support.fault_plan").FAILURES
local files = require "spec.support.files"
local journal_loss = require "spec.support.journal_loss"
local new_random = require("spec.support.random").new
local occurrences = require "spec.support.occurrences"
local probed = require "spec.support.probed"

if not probed.get("a journal whose disk fails") then return end

local groups = require "spec.support.journal_groups"

local PROGRAM = "spec/support/journal_program.lua"
local KILLED = 128 + 9
local IS_FAST = dose.is_small
local POWER = dose.of(8, 20) -- times that it fails
local LIVES = 2 -- of one directory
local LAST = 36 -- group of a life

local disk = fault.for_each_test()

--- Appends groups after the first `from` in an epoch, until a plan strikes or the groups are at an end. Returns the
-- last group that was acknowledged, the last one that LMDB has, and whether the plan has struck.
local function live(plan, epoch, from, flush)
  disk:plan(plan)
  local program = disk:start_program(PROGRAM, "power", tostring(epoch), tostring(from + 1), tostring(from + LAST),
    flush or "flush")
  local status = program:wait()
  assert(status == KILLED or status == 0, program:transcript())
  local done, applied = from, from
  for n in program:stdout():gmatch("done (%d+)\n") do done = tonumber(n) end
  for n in program:stdout():gmatch("applied (%d+)\n") do applied = tonumber(n) end
  return done, math.max(applied, from), status == KILLED
end

--- Expects that all acknowledged groups are recovered. Returns the last one, and whether there was a strike.
local function must_survive(plan, epoch, from)
  local done, applied, has_struck = live(plan, epoch, from)
  local last, err = groups.recover(disk.directory, epoch, applied)
  if last == done or last == done + 1 then return last, has_struck end
  local words = last and ("%d groups, and not %d"):format(last, done) or tostring(err)
  error(("epoch %d from %d, %s: %s"):format(epoch, from, plan, words), 0)
end

describe("a journal that leaves out its flush #slow", function()
  --- Returns "caught" if acknowledged groups are lost, and nothing else is, or if the journal is refused since it lacks
  -- them; "survived" if all groups are there. Raises for anything else.
  local function find_loss(plan)
    local done, applied = live(plan, 1, 0, "no flush")
    local last, err = groups.recover(disk.directory, 1, applied)
    if not last then
      journal_loss.expect(err)
      return "caught"
    end
    assert(last <= done + 1, ("%d groups, and not %d"):format(last, done))
    return last < done and "caught" or "survived"
  end

  it("is caught by a power cut", function()
    local random = new_random(tonumber(os.getenv("KW_SEED")))
    occurrences.await({ "caught" }, 1, function()
      local plan = ("cut write %d after %d"):format(random:between(20, 60), random:next())
      local outcome = find_loss(plan)
      disk:renew()
      return outcome
    end)
  end)
end)

describe("a journal whose power fails #slow", function()
  it("has every acknowledged group, at whichever call of a life it does", function()
    local random = new_random(tonumber(os.getenv("KW_SEED")))
    local step = IS_FAST and 5 or 1
    local n = random:between(1, step)
    repeat
      local what, when = random:pick { "cut", "tear" }, random:pick { "before", "after" }
      local _, has_struck = must_survive(("%s any %d %s %d"):format(what, n, when, random:next()), 1, 0)
      disk:renew()
      n = n + step
    until not has_struck
    assert.is_true(n > 80, n)
  end)

  it("has every acknowledged group over several lives, whatever the disk has lost", function()
    local random = new_random(tonumber(os.getenv("KW_SEED")))
    for _ = 1, POWER do
      local last = 0
      for epoch = 1, LIVES do
        local what, kind = random:pick { "cut", "tear" }, random:pick { "any", "write", "sync", "name" }
        local n = random:between(1, kind == "name" and 6 or 60)
        last = must_survive(("%s %s %d %s %d"):format(what, kind, n, random:pick { "before", "after" }, random:next()),
          epoch, last)
      end
      disk:renew()
    end
  end)
end)

describe("a journal that is killed #slow", function()
  local BLOCK = 4096

  --- The copies of the headers of all segments, by name and copy.
  local function headers()
    local found = {}
    for _, name in ipairs(directory.list(disk.directory)) do
      local bytes = files.read(disk.directory .. "/" .. name)
      for copy = 0, 1 do found[name .. copy] = bytes:sub(copy * BLOCK + 1, (copy + 1) * BLOCK) end
    end
    return found
  end

  it("has one good copy of each header, also where the other one was damaged before", function()
    for copy = 0, 1 do
      local last = must_survive("", 1, 0)
      for _, name in ipairs(directory.list(disk.directory)) do
        local path = disk.directory .. "/" .. name
        local bytes = files.read(path)
        files.write(path, bytes:sub(1, copy * BLOCK) .. ("?"):rep(BLOCK) .. bytes:sub((copy + 1) * BLOCK + 1))
      end
      local before, changed = headers(), 0
      assert.equal(last, must_survive("kill write 2 before", 2, last))
      for name, bytes in pairs(headers()) do
        if bytes ~= before[name] then
          assert.equal(tostring(copy), name:sub(-1))
          changed = changed + 1
        end
      end
      assert.equal(1, changed)
      must_survive("", 3, last)
      disk:renew()
    end
  end)
end)

describe("a journal whose disk fails #slow", function()
  local function expect(what, plan)
    it("loses no acknowledged group when it " .. what .. ", whichever call it is", function()
      disk:strike_every(PROGRAM, plan)
    end)
  end

  for what, plan in pairs(FAILURES) do expect(what, plan) end
  expect("is interrupted", "fail write %d once 4")
  expect("knows no flush with a write", "fail sync %d once 95")

  it("goes on with small segments on a disk that is almost full, and leaves some room", function()
    local program = disk:start_small_program(PROGRAM, 300000, "small")
    assert.equal(0, program:wait(), program:transcript())
    assert.matches("done %d+\n", program:stdout())
  end)
end)
