--- The actors of simulations, and their judge, with servers that are processes, in real time. Clients, kills and disks
-- are real, so a run cannot be repeated by its seed. The servers may be etcd's.
--
--   real.run { seed =, seconds =, pace =, kinds =, clients =, direct =, attack =, is_etcd =, is_cluster = }
--
-- `clients` are those of the actors. `direct` is a client without faults: its watch of all keys records the log with
-- which everything is compared. The server is empty at the beginning. attack(sim) is called in a task, and returns
-- when the run is over, with all faults healed. Returns the counts of the run, like simulation.run; objections are
-- raised.

local keywatch = require "keywatch"
local log = require "keywatch.support.log"

local new_random = require("spec.support.random").new
local simulation = require "spec.simulation.simulation"
local truths = require "spec.simulation.truth"

local SILENCE = 1  -- seconds after the faults, in which everything must recover
local PATIENCE = 2 -- seconds without an event, after which a watch is complete
local PAUSE = 0.1  -- seconds before an actor repeats its steps
local SHOWN = 5    -- objections
local LAG = 1      -- seconds until the log has a revision, at most
local SLACK = 30   -- seconds that a lease may expire late: its time starts over when the server is restarted

local methods = setmetatable({ LAG = LAG, SLACK = SLACK, PATIENCE = PATIENCE }, { __index = simulation.methods })

function methods:open()
  self.hold = keywatch.now()
  local truth = truths.new { store = self.direct }
  function truth.revision() return nil end -- asking the server would take as long as any request
  self.truths[1], self.lasting = truth, self.clients
  for i, client in ipairs(self.clients) do
    self.slots[i] = { server = truth.server, truth = truth, client = client, is_mortal = false }
  end
end

function methods.heal() end

--- Random requests that a cluster does not get: when members of etcd 3.4 are killed during such requests, the histories
-- of the members diverge. Locks, elections, leases and transfers still use transactions and keys with leases.
local SPARED = { txn = true, lease = true, keepalive = true, revoke = true, remaining = true, lease_keys = true,
  leases = true }

--- Removes from an operation what etcd 3.4 does differently, see spec/support/known_differences.lua.
local function simplify(op)
  op.sort_target, op.ignore_value, op.ignore_lease = nil, nil, nil
  for _, ops in ipairs { op.txn and op.txn.success or {}, op.txn and op.txn.failure or {} } do
    for _, one in ipairs(ops) do simplify(one) end
  end
end

function methods:perform(a, one, ...)
  if self.is_cluster and SPARED[one.verb] then return end
  local last = one[one.n]
  if self.is_etcd then simplify(one.verb == "txn" and { txn = one[1] } or type(last) == "table" and last or {}) end
  if self.is_cluster and type(last) == "table" then last.lease = nil end
  local answer, err = simulation.methods.perform(self, a, one, ...)
  local outcome = err and tostring(err.code) .. (err.maybe_done and " in doubt" or "") or "ok"
  self:count(one.verb .. ": " .. outcome)
  return answer, err
end

--- Repeats the steps of an actor until the run is over.
function methods:live(...)
  repeat
    simulation.methods.live(self, ...)
    keywatch.sleep(PAUSE)
  until self.is_over
end

--- Calls a function for all actors whose kind has it, concurrently.
function methods:each_actor(name, ...)
  local tasks = {}
  for i, a in ipairs(self.actors) do
    if a.kind[name] then tasks[i] = self:spawn(a, a.kind[name], a, ...) end
  end
  for _, task in pairs(tasks) do task:join() end
end

function methods:play()
  self:open()
  for _, planned in ipairs(self.plan.actors) do self:start_actor(planned) end
  self:attack()
  self.is_over = true
  for _, task in ipairs(self.tasks) do task:join() end
  for _, a in ipairs(self.actors) do
    if a.world then a.world.is_over = true end
  end
  self:each_actor("finish", self.direct)
  keywatch.sleep(SILENCE)
  self.truths[1]:learn()
  self:each_actor("settle")
  self:each_actor("close")
  local words = self.truths[1]:verify(new_random(self.plan.seed))
  if words then self:object(nil, "%s", words) end
  self.truths[1]:stop()
  self.ended = keywatch.now()
end

--- Returns the first of some patterns that matches no counted outcome; or nil.
function methods:missing(patterns)
  for _, pattern in ipairs(patterns) do
    local is_there = false
    for name in pairs(self.counts) do is_there = is_there or name:find(pattern) ~= nil end
    if not is_there then return pattern end
  end
end

local function traced(err) return debug.traceback(tostring(err), 2) end

local function run(options)
  local plan = simulation.plan(options.seed, {
    seconds = options.seconds, pace = options.pace, kinds = options.kinds, is_calm = true,
  })
  for _, actor in ipairs(plan.actors) do actor.slot = (actor.slot - 1) % #options.clients + 1 end
  local self = setmetatable(simulation.new(plan), { __index = methods })
  for _, name in ipairs { "clients", "direct", "attack", "is_etcd", "is_cluster" } do self[name] = options[name] end
  local write_line = log.write
  function log.write() end -- handlers raise on purpose
  local ok, err = keywatch.run(function() return xpcall(self.play, traced, self) end)
  log.write = write_line
  if not ok then error(err, 0) end
  self:judge()
  if #self.objections > 0 then
    error(("%d objections, KW_SEED=%d:\n%s"):format(#self.objections, options.seed,
      table.concat(self.objections, "\n", 1, math.min(SHOWN, #self.objections))), 0)
  end
  return self
end

return { run = run }
