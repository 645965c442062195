--- A journal whose disk fails, and whose process is killed: see spec/support/fault.c. Every group that was acknowledged
-- is recovered, and at most one more, which was being written. spec/support/journal_program.lua has the journal;
-- power_spec.lua has the power fail.

local directory = require "spec.support.directory"
local fault = require "spec.support.fault"
local FAILURES = require("spec.support.fault_plan").FAILURES
local files = require "spec.support.files"
local probed = require "spec.support.probed"

if not probed.get("a journal whose disk fails") then return end

local groups = require "spec.support.journal_groups"

local PROGRAM = "spec/support/journal_program.lua"
local KILLED = 128 + 9
local LAST = 36 -- group of a life

local disk = fault.for_each_test()

--- Appends groups after the first `from` in an epoch, until a plan strikes or the groups are at an end. Expects that
-- all acknowledged groups are recovered. Returns the last one.
local function must_survive(plan, epoch, from)
  disk:plan(plan)
  local program = disk:start_program(PROGRAM, "append", tostring(epoch), tostring(from + 1), tostring(from + LAST))
  local status = program:wait()
  assert(status == KILLED or status == 0, program:transcript())
  local done, applied = from, from
  for n in program:stdout():gmatch("done (%d+)\n") do done = tonumber(n) end
  for n in program:stdout():gmatch("applied (%d+)\n") do applied = math.max(tonumber(n), from) end
  local last, err = groups.recover(disk.directory, epoch, applied)
  assert(last == done or last == done + 1, ("%s, and not %d groups"):format(tostring(last or err), done))
  return last
end

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

  it("continues with small segments on a disk that is almost full, and leaves some space", function()
    local program = disk:start_small_program(PROGRAM, 300000, "small")
    assert.equal(0, program:wait(), program:transcript())
    assert.matches("done %d+\n", program:stdout())
  end)
end)
