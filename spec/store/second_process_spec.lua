--- A durable store belongs to one process at a time: from before its recovery until it is closed, or its process has
-- ended. The next process has every acknowledged write. See spec/support/power_program.lua.

local keywatch = require "keywatch"

local dose = require "spec.support.dose"
local fault = require "spec.support.fault"
local process = require "spec.support.process"
local uv = require "spec.support.luv"

local PROGRAM = "spec/support/power_program.lua"
local KILLED = 128 + 9
local SMALL_JOURNAL = 65536
local KEYS = 12 -- all of them in the journal alone
local CALLS = dose.stride(3, 1)

local disk

before_each(function() disk = fault.new() end)
after_each(function()
  process.end_all()
  disk:remove()
end)

--- Starts a process that has put the keys, and has the store open.
local function hold()
  local first = disk:start_program(PROGRAM, "hold", tostring(SMALL_JOURNAL), tostring(KEYS))
  first:expect("holding\n")
  return first
end

local function kill(program)
  program:signal("sigkill")
  assert.equal(KILLED, program:wait())
end

local function expect_refusal(owner)
  local store, err = keywatch.open { path = disk.path }
  assert.is_nil(store)
  assert.equal("storage", err.code)
  assert.equal(("keywatch: cannot open %s: process %d has it open"):format(disk.path, owner.pid), err.message)
end

local function expect_keys()
  local store = assert(keywatch.open { path = disk.path, journal_segment_bytes = SMALL_JOURNAL })
  for i = 1, KEYS do assert.equal("value " .. i, store:get("key " .. i).value) end
  assert.equal(KEYS + 1, store:status().revision)
  store:close()
end

--- Waits until a program is stopped by the plan, or has ended. Returns whether it is stopped.
local function await_stop(program)
  local struck = disk.control .. ".struck"
  local event = uv.new_fs_event()
  assert(event:start(disk.base, {}, function() end))
  assert(process.turn_until(function() return uv.fs_stat(struck) or program.status end), program:transcript())
  event:close()
  uv.run("nowait") -- closes it
  return os.remove(struck) ~= nil
end

describe("a store that a process has open #slow", function()
  it("is refused to a second process, which gets everything once the first one is killed", function()
    local first = hold()
    expect_refusal(first)
    expect_refusal(first) -- a refusal changes nothing
    kill(first)
    expect_keys()
  end)

  it("is refused to a second process while the first one recovers it, at whichever call", function()
    local n, refused = 1, 0
    repeat
      kill(hold())
      disk:plan(("stop any %d once 0 data.mdb"):format(n))
      local first = disk:start_program(PROGRAM, "open", tostring(SMALL_JOURNAL))
      local is_stopped = await_stop(first)
      local is_recovering = is_stopped and not first:stdout():find("open\n", 1, true)
      if is_stopped then
        expect_refusal(first)
        kill(first)
        refused = refused + (is_recovering and 1 or 0)
      end
      disk:plan("")
      expect_keys()
      disk:remove()
      disk = fault.new()
      n = n + CALLS
    until not is_stopped
    assert.is_true(refused > 1, refused)
  end)
end)
