--- A journal whose disk fails: see spec/support/fault.c. Every group that was acknowledged is recovered, and at most
-- one more, which was being written. journal_program.lua has the journal; in power_spec.lua the power fails.

local fault = require "spec.support.fault"
local FAILURES = require("spec.support.fault_plan").FAILURES
local probed = require "spec.support.probed"

if not probed.get("a journal whose disk fails") then return end

local PROGRAM = "spec/support/journal_program.lua"

local disk = fault.for_each_test()

describe("a journal whose disk fails #slow", function()
  local function expect(what, plan)
    it("loses no acknowledged group when it " .. what .. ", whichever call it is", function()
      disk:strike_every(PROGRAM, plan)
    end)
  end

  for what, plan in pairs(FAILURES) do expect(what, plan) end
  expect("is interrupted", "fail write %d once 4")
  expect("knows no flush with a write", "fail sync %d once 95")

  it("continues with fewer segments on a disk that is almost full, and leaves some space", function()
    local program = disk:start_small_program(PROGRAM, 120000, "small")
    assert.equal(0, program:wait(), program:transcript())
    assert.matches("done %d+\n", program:stdout())
  end)
end)
