--- Long random histories, of a store and of the naive model: every answer must be the same, and from time to time the
-- whole visible state.
--
-- A failure prints the seed, the step and the request. KW_SEED=… repeats it.

local keywatch = require "keywatch"
local probe = require("keywatch.core").probe

local expect = require("spec.support.difference").expect
local dose = require "spec.support.dose"
local history = require "spec.support.history"
local new_model = require("spec.support.model").new
local new_random = require("spec.support.random").new
local request = require "spec.support.request"
local space = require("spec.support.space").new(keywatch)
local vm = require "spec.support.vm"

-- One pass of CI has a whole round.
local is_fast = dose.is_small and not (vm.how == "rock" and vm.interpreter == "luajit")
local seed = tonumber(os.getenv("KW_SEED")) or os.time()

local EXAMINE_EVERY = 40 -- steps
local SETTLE_EVERY = 400 -- steps

-- When memory is given back, see csrc/store/surplus.c.
local GIVE_BACK_DELAY = 1 -- seconds after a step, at most
local GIVE_BACK_LEAST = 250000 -- bytes, a little less than there
local KEY_BYTES = 120

-- Both sides, and where they are in their history.
local pair = {}
pair.__index = pair

local function new_pair(scenario, random)
  local options = scenario.options
  return setmetatable({
    store = keywatch.open(options),
    model = new_model(options),
    random = random,
    step = 0,
    doing = "opening",
  }, pair)
end

--- Asks both the same and compares.
function pair:ask(asked)
  self.doing = request.show(asked)
  local words = request.disagreement(asked, self.store, self.model)
  if words then error(words, 0) end
end

-- Everything that can be asked ------------------------------------------------------------------------------

function pair:readable_revision()
  return self.random:between(math.max(self.model.compact_revision, 1), self.model.revision)
end

function pair:examine_revisions()
  local oldest = math.max(self.model.compact_revision, 1)
  local revisions = { 0, oldest, self:readable_revision(), self:readable_revision(), self:readable_revision() }
  for _, revision in ipairs(revisions) do
    self:ask(request.new("range", "", { prefix = true, revision = revision }))
  end
end

function pair:examine_status()
  local got, expected = self.store:status(), self.model:status()
  for name, value in pairs(expected) do expect(got[name], value, "status()." .. name) end
end

function pair:examine_leases()
  self:ask(request.new("leases"))
  for _, id in ipairs(self.model:leases()) do
    self:ask(request.new("remaining", id))
    self:ask(request.new("lease_keys", id))
  end
end

--- Whether the store may give memory back at a time: soon after the last step, if it has ever held enough of that.
function pair:may_give_back(time)
  local records = self.model.history
  return time > self.model.now and time <= self.model.now + GIVE_BACK_DELAY
    and space.cost(records) + KEY_BYTES * #records >= GIVE_BACK_LEAST
end

--- The store may also have a compaction to continue now, or memory to free soon.
function pair:examine_deadline()
  self.doing = "deadline()"
  local got, expected = self.store:deadline(), self.model:deadline()
  local is_earlier = got ~= nil and (expected == nil or got < expected)
  local is_good = got == expected or is_earlier and (got <= self.model.now or self:may_give_back(got))
  if not is_good then error(("deadline() is %s instead of %s"):format(tostring(got), tostring(expected)), 0) end
end

function pair:examine()
  self:examine_status()
  self:examine_revisions()
  self:ask(request.new("hash_kv", 0))
  self:ask(request.new("hash_kv", self:readable_revision()))
  self:examine_leases()
  self:examine_deadline()
  self.doing = "probe.check"
  if probe then probe.check(self.store) end
end

--- Once its compaction is done, the store holds what is left and nothing else.
function pair:settle()
  self:ask(request.new("pass_time", self.model.now))
  self.doing = "what a compaction leaves"
  local size = space.size(self.model:records_left()) + space.cost_of_leases(self.model)
  expect(self.store:status().db_size_in_use, size, "status().db_size_in_use")
end

-- Running ---------------------------------------------------------------------------------------------------

function pair:walk(requests, steps)
  for step = 1, steps do
    self.step = step
    self:ask(requests:next(self.model))
    if step % EXAMINE_EVERY == 0 or step == steps then self:examine() end
    if step % SETTLE_EVERY == 0 or step == steps then self:settle() end
  end
end

local function explain(the_pair, its_seed, err)
  return ("%s\n  while doing %s\n  at step %d of the history with seed %d (KW_SEED=%d for the whole file)")
    :format(tostring(err), the_pair.doing, the_pair.step, its_seed, seed)
end

--- Every key once, so that the index is large from the start.
local function fill(the_pair, keys)
  for _, key in ipairs(keys or {}) do the_pair:ask(request.new("put", key, "")) end
end

local function run(scenario, its_seed)
  local random = new_random(its_seed)
  local the_pair = new_pair(scenario, random)
  local requests = history.new(random, scenario)
  local ok, err = xpcall(function()
    fill(the_pair, scenario.keys)
    the_pair:walk(requests, is_fast and 300 or dose.of(scenario.steps, scenario.steps))
  end, function(e) return type(e) == "string" and e or debug.traceback(tostring(e)) end)
  the_pair.store:close()
  if not ok then error(explain(the_pair, its_seed, err), 0) end
end

local scenarios = {
  {
    name = "a store that compacts one record at a time",
    options = { now = 100, step_records = 1 },
    steps = 1500,
    rounds = 14,
  },
  {
    name = "a store that compacts seven records at a time, with small limits",
    options = { now = 0, step_records = 7, max_txn_ops = 6, max_request_bytes = 200000, min_lease_ttl = 1 },
    oversize = 400000,
    steps = 1500,
    rounds = 14,
  },
  {
    name = "a store that compacts a thousand records at a time",
    options = { now = 0.5, step_records = 1000 },
    steps = 3000,
    rounds = 5,
  },
  {
    name = "a store of many keys",
    options = { now = 1, step_records = 100 },
    keys = history.many_keys(is_fast and 100 or 1200),
    steps = 500,
    rounds = 2,
  },
}

describe("the naive model", function()
  it("hashes as etcd does", function()
    local model = new_model()
    assert.equal(1084519789, model:hash_kv(0).hash)
    model:put("foo", "bar")
    assert.equal(3305255506, model:hash_kv(0).hash)
  end)
end)

describe("random histories", function()
  for i, scenario in ipairs(scenarios) do
    it("leave " .. scenario.name .. " in agreement with the model", function()
      local rounds = dose.is_small and 1 or probe and math.ceil(scenario.rounds / 3) or scenario.rounds
      for round = 1, rounds do run(scenario, seed + 1000 * i + round) end
    end)
  end
end)
