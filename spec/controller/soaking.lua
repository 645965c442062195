--- A controller at random, in virtual time: parents are created, changed and deleted, children are deleted, changed and
-- made up, while controllers are stopped, killed and started anew, leaders change, the network fails, the history is
-- compacted under the watches, and the server is stopped, restored and replaced.
--
-- At rest each parent has its children, nothing else is there, and nobody writes any more. Two reconciles of one
-- request never run at once; a leader that was deposed writes nothing; a parent goes by its finalizer only after its
-- children.

local keywatch = require "keywatch"
local controller = require "keywatch.controller"
local testing = require "keywatch.testing"

local new_random = require("spec.support.random").new
local replicas = require "spec.controller.replicas"

local NAMES = { "a", "b", "c", "d", "e" }
local IMAGES = { "red", "green", "blue" }
local MOST_CHILDREN = 6

local soaking = {}

-- {====== What people do ======

-- Functions of a soak, which has `random`, `wished`, by key: { n, image }, and writer(), a store.
local people = {}

local function any_key(self) return replicas.SETS .. self.random:pick(NAMES) end

--- A parent that is wished, or nil.
local function wished_key(self)
  local keys = {}
  for key in pairs(self.wished) do keys[#keys + 1] = key end
  table.sort(keys)
  return #keys > 0 and self.random:pick(keys) or nil
end

local function any_wish(self)
  return { n = self.random:between(0, MOST_CHILDREN), image = self.random:pick(IMAGES) }
end

--- Creates a parent, unless there is one.
function people.create(self)
  local key, wish = any_key(self), any_wish(self)
  local result = assert(self:writer():txn {
    compare = { { key = key, version = 0 } },
    success = { { put = key, value = replicas.parent(wish.n, wish.image) } },
  })
  if not result.succeeded then return false end
  self.wished[key] = wish
end

--- Changes a parent that is not being deleted, and keeps its metadata.
function people.change(self)
  local key, wish = wished_key(self), any_wish(self)
  if not key then return false end
  local result
  repeat
    local kv = assert(self:writer():get(key))
    local metadata = kv.value:match('("metadata":%b{})')
    local value = replicas.parent(wish.n, wish.image)
    if metadata then value = value:gsub("}$", function() return "," .. metadata .. "}" end) end
    result = assert(self:writer():txn {
      compare = { { key = key, mod_revision = kv.mod_revision } }, success = { { put = key, value = value } },
    })
  until result.succeeded
  self.wished[key] = wish
end

--- Requests the deletion of a parent.
people["delete"] = function(self)
  local key = wished_key(self)
  if not key then return false end
  assert(controller.delete(self:writer(), key))
  self.wished[key] = nil
end

--- Deletes a parent past its finalizers.
function people.raw_delete(self)
  local key = wished_key(self)
  if not key then return false end
  assert(self:writer():delete(key))
  self.wished[key] = nil
end

--- A child that there is, or nil.
local function any_child(self)
  local kvs = assert(self:writer():range(replicas.PARTS, { prefix = true })).kvs
  return #kvs > 0 and self.random:pick(kvs) or nil
end

function people.delete_child(self)
  local kv = any_child(self)
  if not kv then return false end
  assert(self:writer():delete(kv.key))
end

function people.delete_children(self)
  local key = any_key(self)
  local prefix = replicas.PARTS .. key:sub(#replicas.SETS + 1) .. "/"
  return assert(self:writer():delete(prefix, { prefix = true })).deleted > 0
end

function people.change_child(self)
  local kv = any_child(self)
  if not kv then return false end
  local owner = kv.value:match('"owner":"([^"]+)"'):gsub("\\/", "/")
  assert(self:writer():put(kv.key, replicas.child(owner, "wrong", -1)))
end

--- A child of another parent, or of one that there is not.
function people.make_up_child(self)
  local key = replicas.child_key(any_key(self), self.random:between(1, MOST_CHILDREN + 3))
  assert(self:writer():put(key, replicas.child(any_key(self), "wrong", -1)))
end

local PEOPLE = {
  { 12, "create" }, { 14, "change" }, { 6, "delete" }, { 2, "raw_delete" }, { 6, "delete_child" },
  { 3, "delete_children" }, { 5, "change_child" }, { 4, "make_up_child" },
}

-- }======

soaking.people, soaking.PEOPLE = people, PEOPLE

--- Reads what people wish from what a store has: { [key] = { n, image } }.
function soaking.wishes(store)
  local wished = {}
  for _, kv in ipairs(assert(store:range(replicas.SETS, { prefix = true })).kvs) do
    if not kv.value:find('"deleting":true', 1, true) then
      wished[kv.key] = {
        n = tonumber(kv.value:match('"replicas":(%d+)')), image = kv.value:match('"image":"(%l+)"'),
      }
    end
  end
  return wished
end

-- {====== A program ======

local PATIENCE = 3000    -- virtual seconds until a soak is at rest
local REST = 200         -- virtual seconds in which nobody may write
local RESYNC = 60
local ELECTION, TTL = "election", 5
local PAUSE = 30         -- virtual seconds in which informers come to what the server has
local STEPS = 60
local LEAST_LOST = 12    -- revisions that a restore loses: so many that those who come back notice it
local STEP = 0.5         -- virtual seconds between two looks

local soak = {}
soak.__index = soak

function soak:count(what, n) self.counts[what] = (self.counts[what] or 0) + (n or 1) end
function soak:writer() return self.world.server.store end

--- Judges what has been written since the last look.
function soak:look()
  while true do
    local event, err = self.watch:next(0)
    if not event then
      assert(err.code == "timeout", err)
      break
    end
    self.trace[#self.trace + 1] = ("%.6f %s %s"):format(keywatch.now(), event.type, event.key)
    self.judge:change(event.key, event.value)
  end
  if self.judge.failure then error(self.judge.failure, 0) end
end

--- Begins to judge the store that the server has now.
function soak:begin_judging()
  if self.watch then self.watch:close() end
  local store = self:writer()
  self.judge:begin(store:range("/", { prefix = true }).kvs)
  self.watch = assert(store:watch("/", { prefix = true, start_revision = store:status().revision + 1 }))
end

-- Processes -----------------------------------------------------------------------------------------------------------

--- What a reconcile comes by before its work.
function soak:disturb()
  local kind = self.random:between(1, 60)
  if self.is_quiet then return end
  if kind == 1 then
    self:count("reconciles that raise")
    error("broken on purpose", 0)
  elseif kind == 2 then
    self:count("reconciles that hang")
    keywatch.sleep(100)
  elseif kind <= 10 then
    keywatch.sleep(self.world.random())
  end
end

local manage

--- Has a process take part in the election. Its controller runs while the process leads.
local function elect(self, one, terms)
  one.elector = controller.elector {
    store = one.client, name = ELECTION, id = "process " .. self.started, ttl = TTL,
    on_lead = function(fence, leadership)
      self:count("terms")
      terms[fence] = leadership.revision
      one.controller:start(fence)
      pcall(one.controller.join, one.controller) -- until this task is cancelled
      one.controller:stop(5)
    end,
  }
  one.elector:start()
end

--- Gives a process a manager, which has its informers and its controller, and takes part in the election.
function manage(self, one)
  one.manager = controller.manager {
    store = one.client, election = ELECTION, id = "process " .. self.started, ttl = TTL,
  }
  for _, thing in ipairs { one.parents, one.parts, one.controller } do one.manager:add(thing) end
  one.manager:start()
end

--- Starts a process: a client with its informers and its controller.
function soak:start_process()
  self.started = self.started + 1
  local client = self.world:client { timeout = 10 }
  local one, terms = { client = client }, {}
  one.parents, one.parts = replicas.informers(client)
  one.controller = replicas.new {
    parents = one.parents, parts = one.parts, store = client, workers = self.random:between(1, 3), resync = RESYNC,
    count = function(what) self:count(what) end,
    disturb = function() self:disturb() end,
    term_of = function(store) return terms[store] or 0 end,
  }
  if self.mode == "manager" then
    manage(self, one)
  elseif self.mode == "elector" then
    elect(self, one, terms)
  else
    one.controller:start()
  end
  table.insert(self.processes, one)
end

--- What a process starts and stops: a manager, an elector, or the controller itself.
local function outermost(one)
  return one.manager or one.elector or one.controller
end

--- Stops the controller of a process, and gives the leadership back.
function soak:stop_controller(one)
  local ok = outermost(one):stop(self.random:pick { 0, 1, 100 })
  self:count(ok and "stopped in time" or "stopped too late")
  if not ok and one.elector then one.elector:join() end -- on_lead has to end first
end

--- Ends a process in order.
function soak:stop_process(one)
  self:stop_controller(one)
  one.parents:close()
  one.parts:close()
  one.client:close()
  self:tally(one)
end

--- Ends a process at once: nothing that it has on the way arrives any more.
function soak:kill_process(one)
  self.world:isolate(one.client)
  one.client:close()
  outermost(one):stop(0)
  one.controller:stop(0)
  self:tally(one)
end

--- Adds what the controller of a process has counted.
function soak:tally(one)
  local status = one.controller:status()
  for _, name in ipairs { "calls", "done", "again", "failed", "raised", "late" } do
    self:count("reconcile: " .. name, status[name])
  end
end

-- What happens --------------------------------------------------------------------------------------------------------

local fault = {}

function fault.sleep(self) keywatch.sleep(self.world.random() * 5) end
function fault.turn() keywatch.sleep(0) end
function fault.cut(self) self.world.server:cut() end
function fault.stop(self) self.world.server:stop() end
function fault.start(self) self.world.server:start() end
function fault.slow(self) self.world.server:slow(0, self.world.random()) end

function fault.isolate(self)
  if #self.processes == 0 then return false end
  self.world:isolate(self.random:pick(self.processes).client)
end

function fault.join(self)
  for _, one in ipairs(self.processes) do self.world:join(one.client) end
end

for _, kind in ipairs { "refuse", "delay", "hang", "lose_request", "lose_answer", "mute" } do
  fault[kind] = function(self)
    local rule = { kind, method = self.random:pick { "txn", "read", "watch", { "get", "put", "txn" } },
      count = self.random:between(1, 4) }
    if kind == "refuse" then rule.error = self.random:pick { "too_many_requests", "unavailable", "no_leader" } end
    if kind == "delay" then rule.seconds = { 0, 20 } end
    table.insert(self.rules, self.world:fault(rule))
  end
end

--- Compacts what watches need that are cut off.
function fault.miss(self)
  local server = self.world.server
  server:stop()
  for _ = 1, self.random:between(1, 6) do self:happen(people, PEOPLE) end
  self:look()
  server:compact()
  self.compacted = self:writer():status().revision
  fault.sleep(self)
  server:start()
end

--- Everything passes for a while, and nobody changes anything: informers come to what the server has. Nobody can tell
-- that a server was restored if the server has come again to the revision that was seen last.
function soak:await_informers()
  self:clear()
  keywatch.sleep(PAUSE)
  self.is_quiet = false
end

--- Sets the server back to an older state.
function fault.restore(self)
  local newest = self:writer():status().revision
  local oldest = math.max(self.compacted, newest - 40)
  if newest - oldest < LEAST_LOST then return false end
  self:await_informers()
  self:look()
  newest = self:writer():status().revision
  assert(self.world.server:restore(self.random:between(oldest, newest - LEAST_LOST)))
  self:begin_judging()
  self.wished = soaking.wishes(self:writer())
  self:await_informers()
end

--- Another server, with nothing but some of the parents.
function fault.replace(self)
  self:look()
  self.world.server:replace()
  self.compacted = 1
  self:begin_judging()
  local keys = {}
  for key in pairs(self.wished) do keys[#keys + 1] = key end
  table.sort(keys)
  for _, key in ipairs(keys) do
    if self.random:one_in(2) then
      self:writer():put(key, replicas.parent(self.wished[key].n, self.wished[key].image))
    else
      self.wished[key] = nil
    end
  end
end

function fault.start_process(self)
  if #self.processes >= self.most_processes then return false end
  self:start_process()
end

function fault.stop_process(self)
  if #self.processes == 0 then return false end
  self:stop_process(table.remove(self.processes, self.random:between(1, #self.processes)))
end

function fault.kill_process(self)
  if #self.processes == 0 then return false end
  self:kill_process(table.remove(self.processes, self.random:between(1, #self.processes)))
end

--- A lease is lost: that of the leader, or of one that waits.
function fault.lose_lease(self)
  local leases = self:writer():leases()
  if #leases == 0 then return false end
  self.world.server:lose_lease(self.random:pick(leases))
end

--- A controller is stopped and started in its process. A leader resigns so.
function fault.restart_controller(self)
  if #self.processes == 0 then return false end
  local one = self.random:pick(self.processes)
  if one.manager then return false end -- a manager lives once
  self:stop_controller(one)
  keywatch.sleep(self.world.random())
  outermost(one):start()
end

local FAULTS = {
  { 20, "sleep" }, { 14, "turn" }, { 3, "cut" }, { 2, "stop" }, { 6, "start" }, { 2, "slow" }, { 2, "isolate" },
  { 5, "join" }, { 2, "refuse" }, { 2, "delay" }, { 1, "hang" }, { 2, "lose_request" }, { 3, "lose_answer" },
  { 1, "mute" }, { 2, "miss" }, { 2, "restore" }, { 1, "replace" }, { 5, "start_process" }, { 2, "stop_process" },
  { 2, "kill_process" }, { 2, "restart_controller" }, { 2, "lose_lease" },
}

--- Does one of a list of { weight, name }.
function soak:happen(acts, list)
  local name = self.random:weighted(list)
  self.doing = name
  if acts[name](self) ~= false then self:count(name) end
end

-- Rest ----------------------------------------------------------------------------------------------------------------

function soak:clear()
  local server = self.world.server
  for _, rule in ipairs(self.rules) do rule:stop() end
  self.rules, self.is_quiet = {}, true
  server:start()
  server:join()
  server:slow(0)
  fault.join(self)
end

--- Waits until the world is as it is wished, and stays so.
function soak:settle()
  self:clear()
  if #self.processes == 0 then self:start_process() end
  local deadline, trouble = keywatch.now() + PATIENCE
  repeat
    keywatch.sleep(STEP)
    self:look()
    trouble = replicas.difference(self:writer(), self.wished)
  until not trouble or keywatch.now() > deadline
  if trouble then error("at rest: " .. trouble, 0) end
  local written = #self.trace
  keywatch.sleep(REST)
  self:look()
  trouble = replicas.difference(self:writer(), self.wished)
  if trouble then error("some time later: " .. trouble, 0) end
  if #self.trace > written then error("at rest this is written: " .. self.trace[#self.trace], 0) end
  self.is_quiet = false
  self:count("settled")
end

-- Programs ------------------------------------------------------------------------------------------------------------

--- Runs a program, and adds what has happened to counts. Returns what has been written, and when, as a text. Raises if
-- something is wrong.
function soaking.run(seed, counts)
  local self = setmetatable({
    random = new_random(seed), counts = counts, wished = {}, processes = {}, rules = {}, trace = {},
    judge = replicas.judge(), compacted = 1, started = 0, doing = "the beginning", is_quiet = false,
  }, soak)
  self.mode = ({ "controller", "elector", "manager" })[seed % 3 + 1]
  self.most_processes = self.mode == "controller" and 1 or 3
  self:count(("programs of %ss"):format(self.mode))
  testing.run(function(world)
    self.world = world
    self:begin_judging()
    for _ = 1, 3 do people.create(self) end
    self:start_process()
    for step = 1, STEPS do
      self:happen(people, PEOPLE)
      self:happen(fault, FAULTS)
      self:look()
      if step % 30 == 0 then self:settle() end
    end
    for _, one in ipairs(self.processes) do self:stop_process(one) end
    for what, n in pairs(world.counts) do self:count("fault: " .. what, n) end
    self:count("parents gone by their finalizer", self.judge.finalized)
    self:count("parents gone past their finalizer", self.judge.raw)
  end, { seed = seed % 2 ^ 31, leftovers = "cancel", idle = 20000, limit = 1e6 })
  assert(not counts["two reconciles of one request at once"], "two reconciles of one request ran at once")
  return table.concat(self.trace, "\n")
end

-- }======

-- What has to happen in the programs of a spec.
soaking.MUST_HAPPEN = {
  "fault: cut", "fault: stop", "fault: isolate", "fault: refuse", "fault: delay", "fault: hang",
  "fault: lose_request", "fault: lose_answer", "fault: mute", "fault: compact", "fault: restore", "fault: replace",
  "fault: lose_lease", "settled", "conflicts", "changes by reconcile", "reconciles that raise",
  "reconciles that hang", "reconcile: failed", "reconcile: raised", "reconcile: late", "reconcile: again",
  "stopped in time", "stopped too late", "terms", "parents gone by their finalizer",
  "parents gone past their finalizer", "programs of controllers", "programs of electors", "programs of managers",
}
for _, list in ipairs { PEOPLE, FAULTS } do
  for _, entry in ipairs(list) do table.insert(soaking.MUST_HAPPEN, entry[2]) end
end

return soaking
