--- The faults of a simulation, by name. Each is a function (sim, random), called as a task, which may wait. The
-- function ends the fault itself, or sim:heal does.
--
--   chance       one program in this many has the fault, among those in which it can occur
--   is_rough     the fault is only for actors whose judges allow for it: programs with strict actors do not have it
--   is_compacting    the fault compacts the history
--   is_durable, is_of_memory    the fault needs a durable store, or one in memory

local core = require "keywatch.core"
local keywatch = require "keywatch"

local MOST_SECONDS = 15 -- of one fault
local MOST_SHORTAGES, MOST_ALLOCATIONS = 20, 2000 -- allocations that fail, and between two of them
local LEAST_LOST = 20   -- revisions that a restore loses: enough for every client to notice it after a reconnect

local faults = {}

local function seconds(random, most) return random:between(1, (most or MOST_SECONDS) * 100) / 100 end

local function add(name, chance, act, fields)
  local fault = { name = name, chance = chance, act = act }
  for field, value in pairs(fields or {}) do fault[field] = value end
  faults[#faults + 1] = fault
end

-- {====== The network ======

add("cut", 1, function(sim, random) sim:server(random):cut() end)
add("cut_client", 2, function(sim, random) sim.world:cut(random:pick(sim.slots).client) end)

add("isolate", 2, function(sim, random)
  local server = sim:server(random)
  server:isolate()
  keywatch.sleep(seconds(random))
  server:join()
end)

add("isolate_client", 2, function(sim, random)
  local client = random:pick(sim.slots).client
  sim.world:isolate(client)
  keywatch.sleep(seconds(random))
  if not sim.closed[client] then sim.world:join(client) end
end)

add("slow", 2, function(sim, random)
  local server = sim:server(random)
  server:slow(0, seconds(random, 2))
  keywatch.sleep(seconds(random))
  server:slow(0)
end)

local METHODS = { "read", "write", "put", "txn", "get", "watch", "keepalive", "lease" }

for _, kind in ipairs { "refuse", "delay", "hang", "lose_request", "lose_answer", "mute" } do
  add(kind, 3, function(sim, random)
    local rule = { kind, method = random:pick(METHODS), server = sim:server(random) }
    if random:one_in(2) then rule.count = random:between(1, 4) else rule.chance = random:between(1, 40) / 100 end
    if kind == "refuse" then rule.error = random:pick { "too_many_requests", "unavailable" } end
    if kind == "delay" then rule.seconds = { 0, seconds(random, 5) } end
    rule = sim.world:fault(rule)
    keywatch.sleep(seconds(random, 30))
    rule:stop()
  end)
end

-- }======

-- {====== Machines ======

--- Starts a server. No allocation fails during the start.
local function start(server)
  if core.probe then core.probe.fail_none() end
  server:start()
end

add("restart", 2, function(sim, random)
  local server = sim:server(random)
  server:stop()
  keywatch.sleep(seconds(random, 8))
  start(server)
end)

--- Answers come late, and then no more.
add("slow_and_isolated", 3, function(sim, random)
  local client, server = random:pick(sim.slots).client, sim:server(random)
  server:slow(0, seconds(random, 3))
  keywatch.sleep(seconds(random, 10))
  sim.world:isolate(client)
  server:slow(0)
  keywatch.sleep(seconds(random))
  if not sim.closed[client] then sim.world:join(client) end
end)

--- The process is suspended for some time.
add("jump", 3, function(sim, random) sim.world:pause(seconds(random, random:pick { 1, 1, MOST_SECONDS })) end)

--- Allocations of the core fail, one at a time.
if core.probe then
  add("memory_short", 1, function(_, random)
    for _ = 1, random:between(1, MOST_SHORTAGES) do
      core.probe.fail_core(random:between(1, MOST_ALLOCATIONS))
      keywatch.sleep(seconds(random, 1))
    end
    core.probe.fail_none()
  end)
end

-- }======

-- {====== Disks ======

local MOST_CALLS = 300    -- to a disk, before the plan strikes
local LARGE = 200000      -- bytes of a value: a few of these fill the room that is allocated ahead
local WAIT, LOOK = 10, 0.01 -- seconds: the longest wait for the plan to strike, and between two checks
local ERRNO = { EIO = 5, ENOSPC = 28 }

--- Calls fn(truth, server, machine) for a server whose disk fn may plan faults for. Only one disk has a plan at a time.
local function with_disk(sim, random, fn)
  if sim.is_disk_busy or sim.is_over then return end
  sim.is_disk_busy = true
  local server = sim:server(random)
  fn(sim:truth_of(server), server, sim.machines[server])
  sim.is_disk_busy = false
end

local function await_death(machine)
  local deadline = keywatch.now() + WAIT
  while not machine:is_dead() and keywatch.now() < deadline do keywatch.sleep(LOOK) end
  if not machine:is_dead() then machine:kill() end
end

--- The process is killed, or its power fails, in the middle of a write burst, and it is restarted.
local function strike(sim, random, plan)
  with_disk(sim, random, function(truth, server, machine)
    local when = random:pick { "before", "after" }
    machine:plan(("%s any %d %s %d"):format(plan, random:between(1, MOST_CALLS), when, random:between(1, 2 ^ 30)))
    sim:rush(random, server, 100)
    await_death(machine)
    truth:reopen(function()
      server:kill()
      machine:revive(plan ~= "kill" and random:between(1, 2 ^ 30) or nil)
      start(server)
      server:stop()
    end)
    keywatch.sleep(seconds(random, 5))
    start(server)
  end)
end

for _, plan in ipairs { "kill", "cut", "tear" } do
  add("disk_" .. plan, 2, function(sim, random) strike(sim, random, plan) end, { is_durable = true })
end

add("disk_full", 3, function(sim, random)
  with_disk(sim, random, function(_, server, machine)
    machine:plan(("room %d %d"):format(random:between(0, random:pick { 0, 100000, 1000000 }), ERRNO.ENOSPC))
    for _ = 1, random:between(1, 3) do
      sim:rush(random, server, LARGE)
      keywatch.sleep(seconds(random))
    end
    machine:plan ""
    server.store:disarm "no_space"
  end)
end, { is_durable = true })

--- One call of the disk fails: the store is read-only until it is opened again.
add("disk_fails", 4, function(sim, random)
  with_disk(sim, random, function(truth, server, machine)
    machine:plan(("fail any %d once %d"):format(random:between(1, MOST_CALLS), ERRNO.EIO))
    sim:rush(random, server, 100)
    keywatch.sleep(seconds(random))
    machine:plan ""
    truth:reopen(function()
      server:kill()
      start(server)
    end)
  end)
end, { is_durable = true })

add("disk_slow", 2, function(sim, random)
  sim.work_seconds = seconds(random, random:pick { 1, 5 })
  keywatch.sleep(seconds(random))
  sim.work_seconds = nil
end, { is_durable = true })

-- }======

-- {====== Stores ======

local function compact(sim, random, server)
  local truth = sim:truth_of(server)
  local last = server.store:status().revision
  local revision = random:one_in(2) and last or random:between(math.max(1, last - 30), last)
  truth.epoch.compactions[#truth.epoch.compactions + 1] = { revision = revision, began = keywatch.now() }
  server:compact(revision)
end

add("compact", 3, function(sim, random) compact(sim, random, sim:server(random)) end, { is_compacting = true })

--- Compacts changes that a client has missed, before it reconnects: its caches read everything again, and compare.
add("compact_unheard", 2, function(sim, random)
  local slot = random:pick(sim.slots)
  local client = slot.client
  sim.world:isolate(client)
  for _ = 1, random:between(1, 3) do
    sim:rush(random, slot.server, 100, slot)
    keywatch.sleep(seconds(random))
  end
  if not slot.server.store then return end -- its disk has failed
  compact(sim, random, slot.server)
  if not sim.closed[client] then sim.world:join(client) end
end, { is_compacting = true })

add("lose_lease", 4, function(sim, random)
  local server = sim:server(random)
  local ids = server.store:leases()
  if #ids == 0 then return end
  local id = random:pick(ids)
  sim:truth_of(server):note_lease(id, "end", keywatch.now())
  sim.lost_leases[tostring(id)] = true
  server:lose_lease(id)
end, { is_rough = true })

--- Restores a server to an older state. There are no faults and writes until every client has noticed that.
local function set_back(sim, random, choose)
  local server = sim:server(random)
  local truth = sim:truth_of(server)
  sim:hush(function()
    if truth:restore(choose(truth.epoch.last, random)) then sim:trace("epoch %d begins", truth.epoch.number) end
  end)
end

add("restore", 6, function(sim, random)
  set_back(sim, random, function(last) return math.max(1, last - random:between(LEAST_LOST, 60)) end)
end, { is_rough = true, is_of_memory = true })

add("replace", 8, function(sim, random) set_back(sim, random, function() return nil end) end,
  { is_rough = true, is_of_memory = true })

-- }======

return { list = faults, add = add, seconds = seconds }
