--- A program with a durable store, which loses power or is killed: spec/support/fault.c is preloaded into it.
--
--   power_program.lua steps DIRECTORY CONTROL SEED FROM BYTES TARGET PLAN FLUSH   random steps, after the first FROM
--                     ones, until the program dies. BYTES is the size of a segment of the journal. PLAN is set before
--                     the first step whose name is TARGET; or at the beginning, if TARGET is "start". FLUSH is "flush",
--                     or "no flush" for a journal without its flush
--   power_program.lua open DIRECTORY CONTROL BYTES   opens the store and closes it
--   power_program.lua rush DIRECTORY CONTROL BYTES PLAN FROM   puts one key again and again, as the steps after FROM,
--                     with a checkpoint now and then, until the plan strikes
--   power_program.lua hold DIRECTORY CONTROL BYTES N   opens the store, puts N keys, says "holding", and waits
--
-- The program prints a line for each action: "opening", "open"; "at I NAME" before the step I, "done I" after it. An
-- image of the store after the step I is restored in DIRECTORY/restored-I. The store is in DIRECTORY/store.

local core = require "keywatch.core"
local keywatch = require "keywatch"

local durable = require "spec.support.durable"
local fault_plan = require "spec.support.fault_plan"
local image = require "spec.support.image"
local workload = require "spec.support.workload"

local mode, directory, control = arg[1], arg[2], arg[3]
local path = directory .. "/store"

local PAST_CHECKPOINT = 2 -- seconds after which a group is in the database, too

local CHECKPOINT_STEPS = 16 -- of a rush

io.stdout:setvbuf("no")

local function plan(line) fault_plan.set(control, line) end

local function open(bytes)
  print("opening")
  local store = assert(keywatch.open { path = path, now = 0, journal_segment_bytes = bytes })
  print("open")
  return { store = store, now = 0 }
end

local neutral = {}

function neutral.pass(life)
  life.now = life.now + PAST_CHECKPOINT
  life.store:step(life.now)
end

function neutral.reopen(life, _, bytes)
  life.store:close()
  life.store, life.now = open(bytes).store, 0
end

function neutral.defragment(life)
  assert(life.store:defragment())
end

function neutral.snapshot(life)
  image.take(life.store)
end

function neutral.restore(life, i)
  local file = ("%s.image"):format(control)
  image.write(file, image.take(life.store))
  assert(core.restore(file, ("%s/restored-%d"):format(directory, i)))
end

local function take(life, i, step)
  if step.is_neutral then return neutral[step[1]](life, i, step[2]) end
  local _, err = durable.act(life.store, step)
  if err and err.code ~= "compacted" then error(err) end
end

local modes = {}

function modes.steps()
  local seed, from, bytes, target, line = tonumber(arg[4]), tonumber(arg[5]), tonumber(arg[6]), arg[7], arg[8]
  local steps = workload.at_random(seed)
  for _ = 1, from do steps() end
  if arg[9] == "no flush" then core.probe.journal.skip_flush(true) end
  if target == "start" then plan(line) end
  local life = open(bytes)
  for i = from + 1, math.huge do
    local step = steps()
    local name = step.name or step[1]
    if name == target then
      plan(line)
      target = nil
    end
    print(("at %d %s"):format(i, name))
    take(life, i, step)
    print("done " .. i)
  end
end

function modes.open()
  open(tonumber(arg[4])).store:close()
end

function modes.rush()
  local life = open(tonumber(arg[4]))
  plan(arg[5])
  for i = tonumber(arg[6]) + 1, math.huge do
    assert(life.store:put("key", tostring(i)))
    print("done " .. i)
    if i % CHECKPOINT_STEPS == 0 then neutral.pass(life) end
  end
end

function modes.hold()
  local store = open(tonumber(arg[4])).store
  for i = 1, tonumber(arg[5]) do assert(store:put("key " .. i, "value " .. i)) end
  print("holding")
  io.read()
  store:close()
end

modes[mode]()
