--- A simulation: servers, clients, caches, controllers and faults, in one process, in virtual time, from one seed.
--
-- A *plan* follows from the seed: the options of servers and clients, the actors (workload.lua) and the faults
-- (faults.lua), each with a seed of its own. Each seed has only a few kinds of actors and faults, so that rare
-- combinations occur. The atoms of a plan are the steps of its actors, and its faults; a run may omit any of them
-- (shrink.lua).
--
-- run(plan) executes the program until its time is over. Then faults and their effects end and writers stop, and some
-- seconds later the content of every client must be that of its server. The judge checks all results (judge.lua).

local core = require "keywatch.core"
local keywatch = require "keywatch"
local machines = require "spec.simulation.machines"
local testing = require "keywatch.testing"

local difference = require("spec.support.difference").difference
local fault_list = require("spec.simulation.faults").list
local new_random = require("spec.support.random").new
local request = require "spec.support.request"
local truths = require "spec.simulation.truth"
local workload = require "spec.simulation.workload"

local unpack = rawget(table, "unpack") or rawget(_G, "unpack")
local new_request, perform, show = request.new, request.perform, request.show
local judge, kinds, probe = workload.judge, workload.kinds, core.probe

local SECONDS = 100  -- of a program
local SILENCE = 45   -- seconds after the faults, in which everything must recover
local BURSTS, BURST_BYTES = 3, 200000 -- of the last writes
local COLLECT = 25   -- seconds between two collections
local MOST_TRACE = 200000
local KV_PREFIXES = { "/x/", "y\255", "/bulk/" } -- only operations of `perform` write to these keys

local methods = {}
local mt = { __index = methods }

-- {====== Plans ======

--- Returns a seed made of numbers. Other numbers give an independent seed.
local function seed_of(...)
  local a, b, c, d = core.sha1(table.concat({ ... }, " ")):byte(1, 4)
  return ((a % 128 * 256 + b) * 256 + c) * 256 + d
end

local function plan_steps(random, plan, actor)
  local times, steps = {}, actor.kind.steps
  for i = 1, random:between(steps[1], steps[2]) * (plan.pace or 1) do
    times[i] = random:between(0, plan.seconds * 1000) / 1000
  end
  table.sort(times)
  for i, at in ipairs(times) do
    actor.steps[i] = {
      name = actor.id .. "." .. i, at = at, seed = seed_of(actor.seed, i),
      cancel = not actor.kind.is_whole and random:one_in(25) and random:between(0, 300) / 1000 or nil,
    }
  end
end

local function plan_actors(plan, random)
  for k, name in ipairs(workload.names) do
    local kind = kinds[name]
    local is_there = name == "kv" or random:one_in(kind.chance + 1)
    if plan.kinds then is_there = plan.kinds[name] end
    local can_be = not (kind.is_strict and plan.is_rough) and (plan.is_compacting or not kind.is_compacting)
      and not (kind.is_without_compaction and plan.is_compacting)
    if is_there and can_be then
      for i = 1, random:between(1, kind.most) do
        local actor = { id = name .. i, name = name, kind = kind, seed = seed_of(plan.seed, k, i), steps = {},
          slot = random:between(1, #plan.clients) }
        plan_steps(random, plan, actor)
        plan.actors[#plan.actors + 1] = actor
      end
    end
  end
end

local function plan_faults(plan, random)
  local chosen = {}
  for _, fault in ipairs(fault_list) do
    local can_be = (plan.is_rough or not fault.is_rough) and (plan.is_compacting or not fault.is_compacting)
      and not (fault.is_durable and not plan.is_durable) and not (fault.is_of_memory and plan.is_durable)
    if can_be and random:one_in(fault.chance) then chosen[#chosen + 1] = fault end
  end
  if #chosen == 0 then return end
  local of_disks = {}
  for _, fault in ipairs(chosen) do of_disks[#of_disks + 1] = fault.is_durable and fault or nil end
  for i = 1, random:between(0, plan.most_faults) do
    local fault = random:pick(#of_disks > 0 and random:one_in(2) and of_disks or chosen)
    plan.faults[i] = { name = "fault." .. i, fault = fault, at = random:between(0, plan.seconds * 1000) / 1000,
      seed = seed_of(plan.seed, 1000, i) }
  end
end

--- Returns the plan of a seed. Options: seconds; kinds, a set of the kinds of actors; is_calm, without faults; pace, a
-- factor for the number of steps of each actor.
local function new_plan(seed, opts)
  opts = opts or {}
  local random = new_random(seed_of(seed))
  local plan = {
    seed = seed, seconds = opts.seconds or SECONDS, kinds = opts.kinds, pace = opts.pace,
    actors = {}, faults = {}, clients = {},
    is_rough = random:one_in(4), is_compacting = random:one_in(2), most_faults = random:pick { 0, 5, 12, 25 },
    servers = random:one_in(4) and 2 or 1, has_burst = random:one_in(3),
    is_durable = random:one_in(2) and machines.are_there,
    store = {
      max_txn_ops = 4000, progress_interval = random:pick { 0.2, 2, 600 },
      step_records = random:pick { 1, 10, 1000 }, journal_segment_bytes = seed % 2 == 0 and 65536 or 2 ^ 20,
    },
  }
  for i = 1, random:between(plan.servers, 5) do
    plan.clients[i] = {
      server = i <= plan.servers and i or random:between(1, plan.servers),
      opts = {
        timeout = random:pick { 1, 3, 10 }, keepalive = random:pick { 1, 10 }, keepalive_timeout = random:pick { 1, 5 },
      },
    }
  end
  if opts.is_calm then plan.is_rough, plan.is_compacting, plan.has_burst, plan.most_faults = false, false, false, 0 end
  plan_actors(plan, random)
  plan_faults(plan, random)
  return plan
end

--- Returns the names of all atoms of a plan.
local function atoms_of(plan)
  local names = {}
  for _, actor in ipairs(plan.actors) do
    for _, step in ipairs(actor.steps) do names[#names + 1] = step.name end
  end
  for _, fault in ipairs(plan.faults) do names[#names + 1] = fault.name end
  return names
end

-- }======

-- {====== Methods for actors and faults ======

methods.difference, methods.new_random = difference, new_random

--- Adds a line to the trace. The hash of a run is that of its trace.
function methods:trace(text, ...)
  if #self.lines >= MOST_TRACE then return end
  if select("#", ...) > 0 then text = text:format(...) end
  self.lines[#self.lines + 1] = ("%.6f %s"):format(keywatch.now(), text)
end

--- Objects to a result of a record, or of an actor.
function methods:object(record, text, ...)
  text = select("#", ...) > 0 and text:format(...) or text
  local who = record and ("%s %s%s"):format(record.id or "", record.what or "",
    record.began and (" from %.3f"):format(record.began) or "") or "the log"
  text = text:gsub("([vb])%1%1%1%1%1+", "%1.."):gsub("[^\n\32-\126]", function(c)
    return ("\\%03d"):format(c:byte())
  end)
  self.objections[#self.objections + 1] = who .. ": " .. text
end

--- Calls a function. An error that it raises is an objection.
function methods:guard(record, fn, ...)
  local n = select("#", ...)
  local arguments = { ... }
  local ok, err = xpcall(function() return fn(unpack(arguments, 1, n)) end, function(err)
    if type(err) == "table" then return err end
    return debug.traceback(tostring(err), 2)
  end)
  local is_cancelled = type(err) == "table" and err.code == "cancelled"
  if not ok and not is_cancelled then self:object(record, "raises %s", tostring(err)) end
  return ok, err
end

function methods:count(name, n) self.counts[name] = (self.counts[name] or 0) + (n or 1) end

function methods:server(random) return random:pick(self.servers) end

function methods:truth_of(server)
  for _, truth in ipairs(self.truths) do
    if truth.server == server then return truth end
  end
end

--- Spawns a task of an actor. The run ends only after the task.
function methods:spawn(record, fn, ...)
  local arguments, n = { ... }, select("#", ...)
  return keywatch.spawn(function() self:guard(record, fn, unpack(arguments, 1, n)) end)
end

local function short(err) return type(err) == "table" and err.code or tostring(err) end

--- Makes a request of an actor's client, and records the request and the result.
function methods:perform(a, one, prefix, tag)
  local client, truth = a.slot.client, a.truth
  local epoch = truth.epoch
  self.n_operations = self.n_operations + 1
  local record = { id = a.id .. "/" .. self.n_operations, what = one.verb, request = one, prefix = prefix, tag = tag,
    truth = truth, epoch = epoch, began = keywatch.now(), after = epoch.acknowledged, outcome = "doubt" }
  self.operations[#self.operations + 1] = record
  self.n_verbs[one.verb] = (self.n_verbs[one.verb] or 0) + 1
  if one.verb == "compact" then
    epoch.compactions[#epoch.compactions + 1] = { revision = one[1], began = record.began }
  end
  if self.is_verbose then self:trace("%s %s", record.id, show(one):sub(1, 200)) end
  local ok, answer, err = pcall(perform, one, prefix == "" and client or client:namespace(prefix))
  record.ended, record.ended_epoch = keywatch.now(), truth.epoch
  if not ok then
    self:trace("%s %s raises", record.id, one.verb)
    if one.verb == "revoke" then truth:note_lease(one[1], "end", record.began, nil, "doubt") end
    error(answer, 0)
  end
  local is_known = answer ~= nil or err == nil
  record.outcome = is_known and "ok" or type(err) == "table" and err.maybe_done and "doubt" or "refused"
  record.answer, record.err, record.before = answer, err, truth:revision()
  if one.verb == "lease" then
    local id, ttl = answer and answer.id or one[2].id, answer and answer.ttl or one[1]
    truth:note_lease(id, "grant", record.began, ttl, record.outcome)
  elseif one.verb == "keepalive" and is_known then
    truth:note_lease(one[1], "renewal", record.began, answer, record.outcome)
  elseif one.verb == "revoke" then
    truth:note_lease(one[1], "end", record.began, nil, record.outcome)
  end
  local revision = type(answer) == "table" and answer.revision
  if revision and truth.epoch == epoch then epoch.acknowledged = math.max(epoch.acknowledged, revision) end
  self:trace("%s %s %s %s", record.id, one.verb, err and short(err) or "ok", tostring(revision))
  return answer, err
end

--- Makes many writes with a client of a server, in quick succession: while a commit is written the next one gathers.
-- The client is not that of the slot `other`, if there is another one.
function methods:rush(random, server, most_bytes, other)
  local slots, prefix = {}, random:pick { "/x/", "y\255" }
  for _, slot in ipairs(self.slots) do
    slots[#slots + 1] = slot.server == server and slot ~= other and slot or nil
  end
  local slot = #slots > 0 and random:pick(slots) or other
  self.n_rushes = self.n_rushes + 1
  local a = { id = "rush" .. self.n_rushes, what = "rush", slot = slot, truth = slot.truth }
  for i = 1, random:between(3, 20) do
    local tag, key, at = ("good-%s.%d"):format(a.id, i), "c/" .. random:between(1, 5), random:between(0, 50) / 1000
    local one = new_request("put", key, tag .. " " .. ("r"):rep(random:between(0, most_bytes)))
    if random:one_in(4) then
      one, tag = new_request("delete", random:one_in(8) and "" or key, { prefix = true }), nil
    end
    table.insert(self.tasks, self:spawn(a, function()
      keywatch.sleep(at)
      self:perform(a, one, prefix, tag)
    end))
  end
end

--- Starts to record a watch of an actor.
function methods:record_watch(a, record)
  self.n_watches = self.n_watches + 1
  record.id, record.sim, record.batches, record.began = a.id .. "#" .. self.n_watches, self, {}, keywatch.now()
  record.client, record.truth = a.slot.client, a.truth
  record.is_rough = record.is_cache and (self.plan.is_compacting or self.plan.is_rough)
  self.watches[#self.watches + 1] = record
  self:trace("%s opens at %d", record.id, record.position)
  return record
end

function methods:record_samples(record) self.samples[#self.samples + 1] = record end

--- Records that an item was taken out of a queue, at a revision.
function methods:take(a, key, revision)
  if self.taken[key] then self:object({ id = a.id, what = "queue" }, "%s was handed out at %d and at %d", key,
    self.taken[key], revision) end
  self.taken[key] = revision
end

local function open_client(self, slot)
  slot.client = self.world:client { server = slot.server, timeout = slot.opts.timeout, keepalive = slot.opts.keepalive,
    keepalive_timeout = slot.opts.keepalive_timeout }
end

--- Closes a client whose actors can all handle that, and opens another one in its place.
function methods:close_client(random)
  local slot = random:pick(self.slots)
  if not slot.is_mortal then return end
  local client = slot.client
  self.closed[client] = true
  open_client(self, slot)
  client:close()
end

--- Ends all faults.
function methods:heal()
  if core.probe then core.probe.fail_none() end
  for i = #self.world.rules, 1, -1 do self.world.rules[i]:stop() end
  for _, server in ipairs(self.servers) do
    server:start()
    server:join()
    server:slow(0)
  end
  for _, slot in ipairs(self.slots) do self.world:join(slot.client) end
end

--- Calls a function while there are no faults and writes, also some time before and after it.
function methods:hush(fn)
  if self.is_hushed then return end
  self.is_hushed = true
  self:heal()
  keywatch.sleep(20)
  fn()
  keywatch.sleep(20)
  self.is_hushed = false
end

-- The world that locks.lua, elections.lua, leases.lua and transfers.lua work in, one for each actor.
local cluster_methods = {}

function methods:cluster_world(a)
  return setmetatable({
    random = a.random, clients = a.sim.lasting, is_over = false, sim = self, actor = a, n_tags = 0,
    acknowledged = 0, silence = 1000,
  }, { __index = cluster_methods })
end

function cluster_methods:object(...) self.sim:object({ id = self.actor.id, what = self.actor.name }, ...) end
function cluster_methods:client() return self.random:pick(self.clients) end
function cluster_methods:patience() return self.random:between(2, 30) / 10 end

--- Counts an outcome once, or n times.
function cluster_methods:count(what, outcome, n) self.sim:count(what .. ": " .. outcome, n) end

function cluster_methods:acknowledge(revision) self.acknowledged = math.max(self.acknowledged, revision) end

function cluster_methods:tag(letter)
  self.n_tags = self.n_tags + 1
  return letter .. self.actor.id .. "." .. self.n_tags
end

function cluster_methods:note(what, result, err)
  self.sim:trace("%s %s %s", self.actor.id, what, err and short(err) or "ok")
  self:count(what, err and short(err) .. (err.maybe_done and " in doubt" or "") or "ok")
  if result then return "ok" end
  if type(err) ~= "table" or type(err.code) ~= "string" then
    self:object("%s gives no error, but %s", what, tostring(err))
    return "doubt"
  end
  return err.maybe_done and "doubt" or "refused"
end

function cluster_methods:work(_, fn, ...)
  local arguments, n = { self, ... }, select("#", ...) + 1
  table.insert(self.actor.lanes, function() fn(unpack(arguments, 1, n)) end)
end

-- }======

-- {====== Running ======

--- Waits until the time of a step. Returns false if the program ends first.
function methods:await(time)
  repeat
    local left = self.hold + time - keywatch.now()
    if left > 0 then keywatch.sleep(left) end
    if self.is_hushed then keywatch.sleep(1) end
  until not self.is_hushed and keywatch.now() >= time
  return not self.is_over
end

local function act(self, a, lane, step)
  self:trace("%s", step.name)
  local random = new_random(step.seed)
  if lane then return self:guard(a, lane) end
  if not step.cancel then return self:guard(a, a.kind.step, a, random) end
  local task = self:spawn(a, a.kind.step, a, random)
  keywatch.sleep(step.cancel)
  task:cancel()
  task:join()
end

--- Runs the steps of an actor, or of one of its lanes.
function methods:live(a, steps, lane)
  for _, step in ipairs(steps) do
    if not self:await(step.at) then return end
    act(self, a, lane, step)
  end
end

function methods:start_actor(planned)
  local steps = {}
  for _, step in ipairs(planned.steps) do
    if not self.keep or self.keep[step.name] then steps[#steps + 1] = step end
  end
  if #steps == 0 then return end
  local slot = self.slots[planned.slot]
  local a = { id = planned.id, name = planned.name, kind = planned.kind, sim = self, slot = slot, truth = slot.truth,
    lanes = {}, random = new_random(planned.seed), what = planned.name }
  self.actors[#self.actors + 1] = a
  if planned.kind.is_strict then a.truth = self.truths[1] end
  if not self:guard(a, planned.kind.begin, a) then return end
  local n = math.max(1, #a.lanes)
  for i = 1, n do
    local own = {}
    for j = i, #steps, n do own[#own + 1] = steps[j] end
    table.insert(self.tasks, self:spawn(a, self.live, self, a, own, a.lanes[i]))
  end
end

function methods:start_fault(planned)
  if self.keep and not self.keep[planned.name] then return end
  table.insert(self.tasks, self:spawn({ id = planned.name, what = planned.fault.name }, function()
    if not self:await(planned.at) then return end
    self:trace("%s %s", planned.name, planned.fault.name)
    self.n_faults[planned.fault.name] = (self.n_faults[planned.fault.name] or 0) + 1
    planned.fault.act(self, new_random(planned.seed))
  end))
end

function methods:open()
  local world, plan = self.world, self.plan
  local random = new_random(seed_of(plan.seed, 2000))
  function world.driver.work_seconds() return random:between(0, 1000) / 1000 * (self.work_seconds or 0.005) end
  for i = 1, plan.servers do
    local machine = plan.is_durable and machines.new("server-" .. i)
    local store = { path = machine and machine.path .. "/store" or nil }
    for name, value in pairs(plan.store) do store[name] = value end
    self.servers[i] = world:serve { open = store }
    if probe then
      probe.set_walk_visits(self.servers[i].store, random:one_in(2) and 3 or 1000) -- 3: steps end inside of revisions
      probe.set_long_bytes(self.servers[i].store, random:pick { 300, 2 ^ 20 })
    end
    self.machines[self.servers[i]] = machine or nil
    self.truths[i] = truths.new(self.servers[i])
  end
  local needed = {}
  for _, actor in ipairs(plan.actors) do
    if actor.name == "informer" or actor.name == "controller" then needed[actor.slot] = true end
  end
  for i, given in ipairs(plan.clients) do
    local server = self.servers[given.server]
    self.slots[i] = { server = server, truth = self.truths[given.server], opts = given.opts, is_mortal = not needed[i] }
    open_client(self, self.slots[i])
  end
  for i = 1, 2 do self.lasting[i] = world:client { server = self.servers[1] } end
end

--- Calls a function for each actor whose kind has it.
function methods:each_actor(name, ...)
  for _, a in ipairs(self.actors) do
    if a.kind[name] then self:guard(a, a.kind[name], a, ...) end
  end
end

--- In a build with a probe, checks the consistency of each store.
function methods:check_stores()
  if not probe then return end
  for _, server in ipairs(self.servers) do self:guard({ what = "the store" }, probe.check, server.store) end
end

--- Waits until the leases have expired that a restore has brought back, though they had ended. While their keys exist,
-- no elector leads.
function methods:outlast_revived()
  for _, truth in ipairs(self.truths) do keywatch.sleep(math.max(0, truth.revived_until - keywatch.now())) end
end

--- Makes the last writes, which may exceed the bound of every queue. No later write covers a lost event.
function methods:burst()
  if not self.plan.has_burst then return end
  local random, first = new_random(seed_of(self.plan.seed, 3000)), #self.tasks + 1
  for _, server in ipairs(self.servers) do
    for _ = 1, BURSTS do self:rush(random, server, BURST_BYTES) end
  end
  for i = first, #self.tasks do self.tasks[i]:join() end
end

--- Replaces the connection of a client if it is mute: reads are retried.
local function refresh(client) client:get("/alive", { timeout = 30 }) end

--- Runs the program of a plan.
function methods:play()
  self:open()
  for _, planned in ipairs(self.plan.actors) do self:start_actor(planned) end
  for _, planned in ipairs(self.plan.faults) do self:start_fault(planned) end
  while keywatch.now() < self.plan.seconds do
    keywatch.sleep(math.min(COLLECT, self.plan.seconds - keywatch.now()))
    collectgarbage()
    self:check_stores()
  end
  while self.is_hushed do keywatch.sleep(1) end
  self.is_over = true
  self:heal()
  for _, task in ipairs(self.tasks) do task:join() end
  self:heal()
  self:outlast_revived()
  self:burst()
  for _, a in ipairs(self.actors) do
    if a.world then a.world.is_over = true end
  end
  refresh(self.lasting[1])
  self:each_actor("finish", self.lasting[1])
  self:trace("silence")
  keywatch.sleep(SILENCE)
  for i, slot in ipairs(self.slots) do
    refresh(slot.client)
    local ok, err = slot.client:put("/alive/" .. i, "", { timeout = 5 })
    if not ok then self:object({ what = "the server" }, "in silence: a write fails with %s", tostring(err)) end
  end
  keywatch.sleep(1)
  for _, truth in ipairs(self.truths) do truth:learn() end
  self:each_actor("settle")
  self:trace("the end")
end

--- Closes everything.
function methods:close()
  self:each_actor("close")
  for _, truth in ipairs(self.truths) do
    local words = truth:verify(new_random(self.plan.seed))
    if words then self:object(nil, "%s", words) end
    if truth.failure then self:object(nil, "%s", truth.failure) end
    truth:stop()
  end
  self.ended = keywatch.now()
  for _, slot in ipairs(self.slots) do slot.client:close() end
  for _, client in ipairs(self.lasting) do client:close() end
end

function methods:judge()
  for _, truth in ipairs(self.truths) do
    judge.operations(self, truth)
    judge.leases(self, truth, self.ended)
    for number, epoch in ipairs(truth.epochs) do
      self.lines[#self.lines + 1] = ("epoch %d of %d revisions"):format(number, epoch.last)
      for revision = epoch.first, epoch.last do
        self.lines[#self.lines + 1] = ("%d %d %.6f"):format(revision, #epoch.events[revision], epoch.times[revision])
      end
    end
  end
  for _, record in ipairs(self.watches) do judge.watch(self, record) end
  for _, record in ipairs(self.samples) do judge.samples(self, record) end
  self:each_actor("judge")
end

methods.LAG = 0   -- seconds until the log has a revision, at most
methods.SLACK = 5 -- seconds that a lease may expire late
methods.PATIENCE = 5 -- seconds without an event, after which a watch is complete

function methods.is_of_operations(key)
  for _, prefix in ipairs(KV_PREFIXES) do
    if key:sub(1, #prefix) == prefix then return true end
  end
  return false
end

function methods.epochs_of(record) return #record.truth.epochs end

--- True if the simulation itself may have caused the error of a watch.
function methods.may_end(record, err)
  return err.code == "closed" and record.sim.closed[record.client] or err.code == "full" and record.is_cache
end

local function traced(err) return debug.traceback(tostring(err), 2) end

--- Returns a simulation that has not begun, of a plan; with `keep`, of only the atoms in this set.
local function new(plan, keep, is_verbose)
  return setmetatable({
    plan = plan, keep = keep, is_verbose = is_verbose, world = nil,
    servers = {}, machines = {}, truths = {}, slots = {}, lasting = {}, closed = {}, actors = {}, tasks = {},
    operations = {}, watches = {}, samples = {}, taken = {}, lost_leases = {},
    n_operations = 0, n_watches = 0, n_rushes = 0, n_verbs = {}, n_faults = {}, n_calls = 0, counts = {},
    lines = {}, objections = {}, is_over = false, is_hushed = false, hold = 0, ended = 0,
  }, mt)
end

--- Runs the program of a plan. The trace of a verbose run has requests. Returns { objections, lines, hash, ... }.
local function run(plan, keep, is_verbose)
  local self = new(plan, keep, is_verbose)
  machines.begin(plan.seed % 2 ^ 31)
  collectgarbage()
  collectgarbage("stop")
  local ok, err = xpcall(testing.run, traced, function(world)
    self.world = world
    self:play()
    self:close()
  end, { seed = plan.seed % 2 ^ 31, limit = 100 * SECONDS, idle = 5000 })
  if self.world then self.world.driver.work_seconds = nil end -- a reference to this simulation
  for _, machine in pairs(self.machines) do machine:remove() end
  if not ok then self:object({ what = "the run" }, "%s", tostring(err)) end
  ok, err = xpcall(self.judge, traced, self)
  if not ok then self:object({ what = "the judge" }, "raises %s", tostring(err)) end
  machines.finish()
  collectgarbage("restart")
  self.hash = core.sha1(table.concat(self.lines, "\n")):gsub(".", function(c) return ("%02x"):format(c:byte()) end)
  return self
end

-- }======

return { plan = new_plan, atoms_of = atoms_of, run = run, new = new, methods = methods }
