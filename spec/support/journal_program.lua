--- A program with a journal on a failing disk: spec/support/fault.c is preloaded into it.
--
--   journal_program.lua every DIRECTORY CONTROL PLAN   a plan with %d in it, for every call of a run in turn; with a
--                       small dose for every fifth call, from one on that depends on KW_SEED
--   journal_program.lua small DIRECTORY CONTROL   appends until the disk is full, releases all groups, and repeats

local directory = require "spec.support.directory"
local fault_plan = require "spec.support.fault_plan"
local groups = require "spec.support.journal_groups"

local mode, path, control = arg[1], arg[2], arg[3]

local STRIDE = 5 -- in a small dose, every fifth call is struck
local LAST = 36 -- group of a run: by then segments were made, filled, and used again

local function plan(line) fault_plan.set(control, line) end
local function has_struck() return fault_plan.has_struck(control) end

local modes = {}

--- True if a file is a complete segment. A segment that is being made has another name: the journal continues without
-- it if that fails.
local function is_segment(name)
  local file = name:find("/journal%-%d+$") and io.open(name)
  if file then file:close() end
  return file ~= nil
end

--- Appends until the journal has failed. Returns the last durable group, and the last group that counts as applied.
local function work(journal, is_full)
  local done, applied = 0, 0
  while done < LAST do
    local ok, err = groups.append(journal, done + 1)
    if ok then
      done = done + 1
    elseif err.code == "no_space" then
      assert(is_full or not is_segment(fault_plan.look_at_strike(control).path), "there is room")
      plan("")
      assert(groups.recover(path, 1, applied) == done, "a group that was refused is there")
    else
      assert(err.code == "storage", tostring(err))
      plan("")
      local _, again = groups.append(journal, done + 2)
      assert(again and again.code == "storage", "the journal continues")
      return done, applied, true
    end
    if done % 4 == 0 and done > 0 then
      applied = done - 3
      journal:release(applied)
    end
  end
  return done, applied
end

--- Makes a run of which one call fails, as the plan says.
local function try(line)
  for _, name in ipairs(directory.list(path)) do os.remove(path .. "/" .. name) end
  local is_full = line:find(" 28$") ~= nil or line:find(" 122$") ~= nil
  local done, applied, may_be_more = 0, 0, false
  plan(line)
  local journal, err = groups.open(path, 1)
  if journal then
    done, applied, may_be_more = work(journal, is_full)
    journal:close()
  else
    assert(err.code == "storage" or err.code == "no_space", tostring(err))
  end
  local last, why = groups.recover(path, 1, applied)
  local struck = has_struck()
  plan("")
  if not last then
    assert(type(why) == "table" and why.message:find("^journal"), tostring(why))
    assert(why.code == "storage" or is_full and why.code == "no_space", tostring(why))
    last, why = groups.recover(path, 1, applied)
  end
  assert(last, tostring(why))
  assert(last == done or may_be_more and last == done + 1, ("%d groups, and not %d"):format(last, done))
  journal = assert(groups.open(path, 2))
  assert(groups.append(journal, last + 1))
  journal:close()
  assert(groups.recover(path, 2, last) == last + 1)
  return struck
end

function modes.every() fault_plan.strike_every(arg[4], STRIDE, try) end

--- Appends until a small disk is full.
function modes.small()
  local SEGMENT = 32768 -- bytes. The journal leaves as many bytes free
  local journal = assert(groups.open(path, 1))
  local done = 0
  local function fill()
    repeat
      local ok, err = groups.append(journal, done + 1)
      if ok then done = done + 1 end
      assert(ok or err.code == "no_space", tostring(err))
    until not ok
  end
  fill()
  local first = done
  assert(#directory.list(path) < 4, "all segments have room")
  local spare = assert(io.open(path .. "/spare", "wb"))
  assert(spare:write(("x"):rep(SEGMENT)) and spare:close(), "the journal has left no room")
  assert(groups.recover(path, 1, 0) == done)
  journal:release(done)
  fill()
  assert(done > first, "nothing has become free")
  assert(groups.recover(path, 1, first) == done)
  journal:close()
  print("done " .. done)
end

modes[mode]()
