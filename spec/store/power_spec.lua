--- A durable store whose power fails, or whose process is killed, at any write: see spec/support/fault.c. Every
-- acknowledged step is there when the store is opened again, and every step is complete or missing.
-- spec/support/power_program.lua has the store. KW_DOSE says how often the power fails.

local core = require "keywatch.core"
local keywatch = require "keywatch"

local directory = require "spec.support.directory"
local dose = require "spec.support.dose"
local durable = require "spec.support.durable"
local fault = require "spec.support.fault"
local fault_plan = require "spec.support.fault_plan"
local journal_loss = require "spec.support.journal_loss"
local new_random = require("spec.support.random").new
local occurrences = require "spec.support.occurrences"
local uv = require "spec.support.luv"
local workload = require "spec.support.workload"

local unpack = rawget(table, "unpack") or rawget(_G, "unpack")

local PROGRAM = "spec/support/power_program.lua"
local KILLED = 128 + 9
local BUS = 128 + 7 -- a thread has read from its map what the power cut has taken: the end of a file
local POWER = dose.of(4, 12) -- directories whose power fails, several times
local SMALL_JOURNAL = 65536

--- Where plans strike: the step that they wait for, or "start" for none; the kind of call; the number of such calls, at
-- most; and how the names of their files begin, if that matters. First in a new directory, later in one with a journal.
local FIRST = { { "start", "any", 70 }, { "start", "any", 5, "journal.new" }, { "bulk", "any", 6 },
  { "start", "write", 30, "journal-" }, { "physical", "sync", 6, "data.mdb" }, { "snapshot", "write", 4, "store" } }
local LATER = { { "start", "write", 4, "journal-" }, { "start", "any", 50 }, { "defragment", "any", 15 },
  { "pass", "any", 6 }, { "restore", "any", 30 }, { "physical", "sync", 6, "data.mdb" } }

--- The same for openings, without a step. The first six calls for the database open its files, the next ones are those
-- of the recovery.
local OPENING = { { "write", 3, "data.mdb" }, { "sync", 2, "data.mdb" }, { "any", 10, "data.mdb" } }

--- All that a store writes. A strike has to meet each of them.
local KINDS = { "append", "making", "checkpoint", "direct", "compaction", "defragmentation", "snapshot",
  "restore", "recovery", "recovery twice" }

local disk = fault.for_each_test()

-- What was struck -------------------------------------------------------------------------------------------

--- What a transaction of the database is that is no checkpoint, by what the program was at.
local GROUPS = { bulk = "direct", physical = "compaction", defragment = "defragmentation" }

--- Returns the kind of write that was struck, while the program was at `phase`. See fault.c for the parts.
local function kind_of(strike, phase)
  local path = strike.path:sub(#disk.directory + 2)
  local name = path:match("[^/]*$")
  if path:find("^restored") then return "restore" end
  if path == "store" and strike.at >= 0 then return "snapshot" end
  if name == "journal.new" then return "making" end
  if name:find("^journal%-") and strike.at >= 0 then return "append" end
  if name == "copy.mdb" and phase == "defragment" then return "defragmentation" end
  if strike.part == "recovery" then return phase == "opening" and strike.part or "another" end
  if strike.part == "checkpoint" then return strike.part end
  return strike.part == "group" and GROUPS[phase] or "another"
end

-- Lives -----------------------------------------------------------------------------------------------------

--- Returns what a program has said: `done`, the number of acknowledged steps; `phase`, what it was at; and `restoring`,
-- the last step that has restored an image.
local function hear(text, from)
  local heard = { done = from, phase = "opening" }
  for line in text:gmatch("[^\n]+") do
    local i, name = line:match("^at (%d+) (%a+)$")
    heard.phase = name or line == "opening" and line or heard.phase
    heard.done = tonumber(line:match("^done (%d+)$")) or heard.done
    if name == "restore" then heard.restoring = tonumber(i) end
  end
  return heard
end

--- Waits for a program whose power fails. Returns true if it was killed.
local function has_died(program)
  local status = program:wait()
  return status == KILLED or status == BUS
end

--- Takes the steps after the first `life.from` until a plan strikes. Returns what the program has said, and `kind`,
-- that of the write that was struck.
local function live(life)
  disk:plan("")
  local program = disk:start_program(PROGRAM, "steps", tostring(life.seed), tostring(life.from),
    tostring(life.segment_bytes), life.target, life.plan, life.flush or "flush")
  assert(has_died(program), program:transcript())
  local heard = hear(program:stdout(), life.from)
  heard.kind = kind_of(fault_plan.take_strike(disk.control), heard.phase)
  return heard
end

--- Opens the store until a plan strikes. Returns the kind of write that was struck, or nil.
local function strike_opening(plan, segment_bytes)
  disk:plan(plan)
  local program = disk:start_program(PROGRAM, "open", tostring(segment_bytes))
  local status = program:wait()
  assert(status == KILLED or status == BUS or status == 0, program:transcript())
  local strike = fault_plan.take_strike(disk.control)
  return strike and kind_of(strike, hear(program:stdout(), 0).phase)
end

--- The model of the first n steps of a seed; the next step is in doubt.
local function model_of(seed, n, path, segment_bytes)
  local subject = durable.new(path, segment_bytes)
  local steps = workload.at_random(seed)
  for _ = 1, n do
    local step = steps()
    if not step.is_neutral then subject:assume(step) end
  end
  local last = steps()
  subject.doubtful = not last.is_neutral and last or nil
  return subject, last.is_neutral
end

--- Checks the store. Returns the number of steps that it has done.
local function check(seed, done, segment_bytes)
  local subject, is_neutral = model_of(seed, done, disk.path, segment_bytes)
  assert(subject:open())
  subject:check()
  subject:close()
  return (subject.doubtful or is_neutral) and done or done + 1
end

--- Checks what was restored last: it is whole, or is not there, if it was not acknowledged.
local function check_restored(seed, heard)
  local i = heard.restoring
  if not i then return end
  local path = ("%s/restored-%d"):format(disk.directory, i)
  if not uv.fs_stat(path) then return assert(i > heard.done, "a store that was restored is lost") end
  local subject = model_of(seed, i, path)
  subject.doubtful = nil
  assert(subject:open())
  subject:check()
  subject:close()
  directory.remove(path) -- a step that was not acknowledged is taken again
end

--- Adds what has failed to an error.
local function must(words, fn, ...)
  local ok, result = pcall(fn, ...)
  if not ok then error(words .. ": " .. tostring(result), 0) end
  return result
end

local function describe_life(life)
  return ("steps of seed %d after %d, %d bytes, at %s %s"):format(life.seed, life.from, life.segment_bytes,
    life.target, life.plan)
end

-- The power -------------------------------------------------------------------------------------------------

--- A plan by which the power fails.
local function any_cut(random, kind, most, name)
  return ("%s %s %d %s %d %s"):format(random:pick { "cut", "tear" }, kind, random:between(1, most),
    random:pick { "before", "after" }, random:next(), name or "")
end

--- Opens the store twice, each time until the power fails, and counts what that meets.
local function recover(random, counts)
  local before
  for _ = 1, 2 do
    local plan, segment_bytes = any_cut(random, unpack(random:pick(OPENING))), workload.segment_bytes(random)
    local kind = must("opening, " .. plan, strike_opening, plan, segment_bytes) or "nothing"
    counts[kind] = (counts[kind] or 0) + 1
    if kind == "recovery" and before == kind then counts["recovery twice"] = 1 end
    before = kind
  end
end

--- One life, until the power fails, and the check of what it has left. Returns the number of steps that are done.
local function survive(random, seed, from, target, counts)
  local life = { seed = seed, from = from, segment_bytes = workload.segment_bytes(random), target = target[1],
    plan = any_cut(random, unpack(target, 2)) }
  local words = describe_life(life)
  local heard = must(words, live, life)
  counts[heard.kind] = (counts[heard.kind] or 0) + 1
  if random:one_in(2) then recover(random, counts) end
  must(words, check_restored, seed, heard)
  return must(words, check, seed, heard.done, workload.segment_bytes(random))
end

describe("a store whose power fails #slow", function()
  it("has every acknowledged step, and each step whole, whatever was being written", function()
    local random = new_random(tonumber(os.getenv("KW_SEED")))
    occurrences.await(KINDS, POWER, function(i)
      local seed, counts = random:next(), {}
      local done = survive(random, seed, 0, FIRST[i % #FIRST + 1], counts)
      survive(random, seed, done, LATER[i % #LATER + 1], counts)
      disk:renew()
      return counts
    end)
  end)
end)

describe("a store whose power fails while a checkpoint is slow #slow", function()
  local SLOW_MS = 60
  local FIRST_SYNC, LAST_SYNC = 4, 20 -- of the database: those of the first checkpoint and of a later one, by a rush

  --- Puts until the power fails. Returns the number of steps that the store has done, and what was struck.
  local function rush(plan, from)
    local program = disk:start_program(PROGRAM, "rush", tostring(SMALL_JOURNAL), plan, tostring(from))
    assert(has_died(program), program:transcript())
    local done = hear(program:stdout(), from).done
    local store = directory.open(disk.path, { journal_segment_bytes = SMALL_JOURNAL })
    local kv = store:get("key")
    local found = kv and tonumber(kv.value) or 0
    assert(found == done or found == done + 1, ("%s: %d steps, and not %d"):format(plan, found, done))
    assert.equal(found + 1, store:status().revision)
    store:close()
    return found, fault_plan.take_strike(disk.control)
  end

  --- Two lives of a directory. Returns "round" if the power has failed in a checkpoint, during which the journal has
  -- used a segment again.
  local function play(random)
    disk.slow_ms = SLOW_MS
    local n = random:between(FIRST_SYNC, LAST_SYNC)
    local done, strike = rush(("cut sync %d before %d data.mdb"):format(n, random:next()), 0)
    rush(("tear write %d %s %d journal-"):format(random:between(1, 60), random:pick { "before", "after" },
      random:next()), done)
    disk:renew()
    return strike.part == "checkpoint" and strike.reused > 0 and "round" or "short"
  end

  it("has every acknowledged step, though the journal has reused segments", function()
    local random = new_random(tonumber(os.getenv("KW_SEED")))
    occurrences.await({ "round" }, POWER, function() return play(random) end)
  end)
end)

if core.probe then
  describe("a store whose journal leaves out its flush #slow", function()
    --- Returns "caught" if acknowledged steps are lost, and nothing else is, or if the store is refused since its
    -- journal lacks them; "survived" if all steps are there. Raises for anything else.
    local function find_loss(seed, done)
      local store, err = keywatch.open { path = disk.path, now = 0, journal_segment_bytes = SMALL_JOURNAL }
      if not store then
        journal_loss.expect(err)
        return "caught"
      end
      for n = done + 1, 0, -1 do
        local subject = model_of(seed, n, disk.path)
        subject.store = store
        if not subject:difference() then
          store:close()
          return n < done and "caught" or "survived"
        end
      end
      error(("seed %d: the store is none of the first %d steps"):format(seed, done), 0)
    end

    it("is detected when the power fails", function()
      local random = new_random(tonumber(os.getenv("KW_SEED")))
      occurrences.await({ "caught" }, 1, function()
        local seed = random:next()
        local plan = ("cut write %d after %d journal-"):format(random:between(6, 20), random:next())
        local heard = live { seed = seed, from = 0, segment_bytes = SMALL_JOURNAL, target = "start", plan = plan,
          flush = "no flush" }
        local outcome = find_loss(seed, heard.done)
        disk:renew()
        return outcome
      end)
    end)
  end)
end
