--- Random histories with many who watch: what comes out of every watch is compared with a naive ledger of all that
-- ever happened, event by event.
--
-- Watches appear with all kinds of ranges, starts and options, most of them with room for little, so that they are
-- blocked and lag again and again. They are read now and then, stall, are closed, forgotten and resumed, while the
-- store is written and compacted. A failure tells the seed, the step and what was done. KW_SEED=… repeats it.

local keywatch = require "keywatch"
local probe = require("keywatch.core").probe

local dose = require "spec.support.dose"
local history = require "spec.support.history"
local new_ledger = require("spec.support.ledger").new
local new_model = require("spec.support.model").new
local new_random = require("spec.support.random").new
local observer = require "spec.support.observer"
local request = require "spec.support.request"
local span = require "spec.support.model.span"

local seed = tonumber(os.getenv("KW_SEED")) or os.time()

local MOST_WATCHES = 30
local MOST_STEPS_DUE = 2000 -- of the store, one after the other: then it is going round in circles

local everything = span.new("", { prefix = true })

local world = {}
world.__index = world

local function new_world(scenario, random)
  local store = keywatch.open(scenario.options)
  local is_long = probe and not scenario.starves and random:one_in(2) -- to read a long revision takes memory
  if probe then probe.set_walk_visits(store, random:one_in(2) and 3 or 1000) end -- 3: steps end inside of revisions
  if is_long then probe.set_long_bytes(store, random:between(1, 1000)) end
  local ledger = new_ledger(1)
  ledger.is_long = is_long
  return setmetatable({
    random = random,
    requests = history.new(random, scenario),
    store = store,
    model = new_model(not scenario.options.replica and scenario.options or nil), -- of a replica: its upstream
    within = scenario.within or everything,
    is_replica = scenario.options.replica,
    starves = scenario.starves, -- whether memory runs out now and then
    ledger = ledger,
    recorded = 0, -- records of the model that the ledger has
    observers = {},
    step = 0,
    doing = "opening",
  }, world)
end

-- {====== What happens in the store ======

--- Enters what has happened since.
function world:record()
  local records = self.model.history
  for i = self.recorded + 1, #records do
    local record = records[i]
    self.ledger:enter(record.main, record.key, record.kv, self.model:kv_at(record.main - 1, record.key))
  end
  self.recorded = #records
  self.ledger:reach(self.model.revision)
end

function world:compacted(revision)
  if revision == self.ledger.compact_revision then return end
  self.ledger:compact(revision)
  for _, each in ipairs(self.observers) do
    if not each.ledger.over then each:on_compaction() end
  end
end

--- Does all that is due.
function world:settle()
  for _ = 1, MOST_STEPS_DUE do
    if not self.store:step(self.model.now) then return end
  end
  error("the store always says that more is due", 0)
end

local function is_starved(err)
  return err ~= nil and err.code == "out_of_memory"
end

--- Makes a request that may fail for want of memory, and has not happened then.
function world:ask_starving(asked)
  local answer, err = request.perform(asked, self.store)
  if is_starved(err) then return end
  local expected = request.perform(asked, self.model)
  if (answer == nil) ~= (expected == nil) then error("the answer is not that of the model", 0) end
end

--- Time passes with enough memory: which lease ends when is not what this is about.
function world:pass_time(now)
  if self.starves then probe.fail_none() end
  self.model:step(now)
  self:settle()
end

function world:ask(asked)
  self.doing = request.show(asked)
  if asked.verb == "pass_time" then return self:pass_time(asked[1]) end
  if self.starves then return self:ask_starving(asked) end
  local words = request.disagreement(asked, self.store, self.model)
  if words then error(words, 0) end
end

local leader = {}

function leader.change(self)
  self:ask(self.requests:next_change(self.model))
  self:record()
end

--- Most of the keys in one revision.
function leader.bulk(self)
  local puts = {}
  for _, key in ipairs(self.requests.keys) do
    if not self.random:one_in(3) then puts[#puts + 1] = { put = key, value = self.requests:value() } end
  end
  self:ask(request.new("txn", { success = puts }))
  self:record()
end

--- A revision that changed a key twice, if there is one that can be compacted to.
function world:fleeting_revision()
  local entries = self.ledger.entries
  for i = #entries, 1, -1 do
    local revision = entries[i].event.mod_revision
    if revision <= self.ledger.compact_revision then return nil end
    if entries[i].is_superseded then return revision end
  end
end

--- Now and then somebody begins just there.
function leader.compact(self)
  self:settle() -- whoever needs no compacted event does not fail, though steps are short
  local fleeting = self.random:one_in(4) and self:fleeting_revision()
  local asked = fleeting and request.new("compact", fleeting) or self.requests:next_compaction(self.model)
  self:ask(asked)
  self:compacted(self.model.compact_revision)
  if not self.random:one_in(2) then return end
  local options = self:new_options()
  options.initial, options.start_revision = nil, math.max(self.model.compact_revision, 1)
  self:open(self.requests:span(options))
end

function leader.nudge(self)
  self:ask(request.new("nudge", self.model.now))
end

-- A replica of some keys of the model, which is always ahead of it.
local replica = {}

function world:tell_replica(verb, ...)
  local asked = request.new(verb, ...)
  self.doing = request.show(asked)
  assert(request.perform(asked, self.store))
end

function world:events_at(revision)
  local events = {}
  for _, event in ipairs(self.model:events_at(revision)) do
    if span.contains(self.within, event.key) then events[#events + 1] = event end
  end
  return events
end

--- History is bounded, so the replica alone knows how far back it still goes.
function world:learn_compaction()
  self:compacted(self.store:status().compact_revision)
end

local function kv_of(event)
  return event.type == "put" and event or nil
end

--- Follows the upstream by a revision; where nothing happened to its keys, it need not be told.
function replica.change(self)
  local revision = self.ledger.revision + 1
  while self.model.revision < revision do
    request.perform(self.requests:next_change(self.model), self.model)
  end
  local events = self:events_at(revision)
  while #events == 0 and revision < self.model.revision and self.random:one_in(2) do
    revision = revision + 1
    events = self:events_at(revision)
  end
  if #events == 0 then
    self:tell_replica("advance", revision)
  else
    self:tell_replica("apply", revision, events)
  end
  for _, event in ipairs(events) do
    self.ledger:enter(revision, event.key, kv_of(event), self.model:kv_at(revision - 1, event.key))
  end
  self.ledger:reach(revision)
  self:learn_compaction()
end

function replica.nudge(self)
  self.doing = "a step"
  self.store:step(self.model.now)
end

--- Begins anew at some revision of the upstream.
function replica.compact(self)
  if not self.random:one_in(4) then return replica.nudge(self) end
  local now = self.ledger.revision
  local verb = self.random:pick { "load", "replace" }
  local base = self.random:between(verb == "load" and now or math.max(1, now - 30), math.max(now, self.model.revision))
  self:tell_replica(verb, base, self.model:kvs_at(base, self.within))
  local old = self.ledger
  old:close(base + 1)
  local is_long = self.ledger.is_long
  self.ledger = new_ledger(base, base)
  self.ledger.is_long = is_long
  for _, each in ipairs(self.observers) do each:on_replace(old, self.ledger) end
end

replica.bulk = replica.change

-- }======

-- {====== Watches ======

local sizes = { 0, 1, 1, 100, 200, 200, 400, 1000, 5000, 100000 }

function world:start_revision()
  local random, now, first = self.random, self.ledger.revision, self.ledger:first_event()
  return random:weighted {
    { 8, 0 },
    { 6, random:between(math.min(math.max(first, 1), now), now) },
    { 1, math.max(first, 1) },
    { 1, math.max(first - random:between(1, 10), 1) },
    { 1, 1 },
    { 1, now },
    { 1, now + 1 },
    { 3, now + random:between(1, 20) },
  }
end

function world:new_options()
  local random = self.random
  local options = {
    filters = random:one_in(4) and { random:pick { "no_put", "no_delete" } } or nil,
    prev_kv = random:one_in(2) and true or nil,
    progress = random:one_in(3) and true or nil,
    max_bytes = random:one_in(5) and 1048576 or random:pick(sizes),
  }
  if random:one_in(40) then options.filters = { "no_put", "no_delete" } end
  if random:one_in(6) then
    options.initial = true
  elseif not random:one_in(4) then
    options.start_revision = self:start_revision()
  end
  return options
end

function world:existing(within)
  local kvs = {}
  for _, kv in ipairs(self.model:kvs_at(self.ledger.revision, everything)) do
    if span.contains(within, kv.key) and span.contains(self.within, kv.key) then kvs[#kvs + 1] = kv end
  end
  return kvs
end

--- Opens a watch; what has no keys is refused.
function world:open(key, options)
  self.doing = request.show(request.new("watch", key, options))
  local watch, err = self.store:watch(key, options)
  local within = observer.span_of(key, options)
  if self.starves and is_starved(err) then return end
  if observer.is_empty(within) then
    if watch or err.code ~= "empty_range" then error("an empty range is watched", 0) end
    return
  end
  if not watch then error(err, 0) end
  local initial = options.initial and self:existing(within)
  local its = observer.new(self.ledger, watch, key, options, initial)
  its.patience = self.random:pick { 1, 1, 1, 3, 10, 40 }
  self.observers[#self.observers + 1] = its
end

function world:pick_observer()
  if #self.observers == 0 then return nil end
  local picked = self.random:between(1, #self.observers)
  return self.observers[picked], picked
end

local act = {}

function act.open(self)
  if #self.observers >= MOST_WATCHES then return act.close(self) end
  if #self.observers > 0 and self.random:one_in(4) then -- the same keys again
    local other = self:pick_observer()
    local options = self:new_options()
    options.prefix, options.range_end = other.options.prefix, other.options.range_end
    options.from_key = other.options.from_key
    return self:open(other.key, options)
  end
  self:open(self.requests:span(self:new_options()))
end

--- Reads some watches, a little or all there is. The patient ones are seldom read.
function act.read(self)
  for _ = 1, 3 do
    local its = self:pick_observer()
    if its and not its.is_finished and self.random:one_in(its.patience) then
      self.doing = "reading " .. its.name
      local how = self.random:weighted { { 4, "few" }, { 3, "batch" }, { 2, "all" }, { 1, "loop" }, { 1, "sync" } }
      if how == "few" then its:drain(self.random:between(1, 3)) end
      if how == "batch" then its:read_batch() end
      if how == "all" then its:drain() end
      if how == "loop" then its:iterate() end
      if how == "sync" then its:sync() end
    end
  end
end

function act.close(self)
  local its, i = self:pick_observer()
  if not its then return end
  self.doing = "closing " .. its.name
  table.remove(self.observers, i)
  its:close()
end

--- The collector closes what was forgotten, some time.
function act.forget(self)
  local _, i = self:pick_observer()
  if i then table.remove(self.observers, i) end
end

--- Goes on where a watch has come to, or, where that is compacted, at the first revision that is left.
function act.resume(self)
  local its, i = self:pick_observer()
  if not its then return end
  local options = {}
  for name, value in pairs(its.options) do options[name] = value end
  options.initial = nil
  options.start_revision = its.watch.revision + 1
  local err = its.watch:error()
  if err and self.random:one_in(2) then options.start_revision = err.compact_revision end
  table.remove(self.observers, i)
  if self.random:one_in(2) then its:close() end
  self:open(its.key, options)
end

local weights = {
  { 40, "change" }, { 3, "bulk" }, { 3, "compact" }, { 2, "nudge" },
  { 12, "open" }, { 30, "read" }, { 2, "close" }, { 1, "forget" }, { 3, "resume" },
}

-- }======

-- {====== Running ======

--- Whether nobody lags: then the store has nothing to do.
function world:is_idle()
  local deadline = self.store:deadline()
  return deadline == nil or deadline > self.model.now
end

function world:look()
  local is_idle = self:is_idle()
  for _, each in ipairs(self.observers) do
    if not each.is_finished then each:look(is_idle) end
  end
  if probe then probe.check(self.store) end
end

--- Everything comes out in the end.
function world:finish()
  self.doing = "reading everything"
  local left = #self.observers
  while left > 0 do
    left = 0
    self:settle()
    self:look()
    for _, each in ipairs(self.observers) do
      local before = each.got
      each:drain()
      if each.got > before then left = left + 1 end
    end
  end
  for _, each in ipairs(self.observers) do each:expect_complete() end
  for _, each in ipairs(self.observers) do
    if not each.is_finished then each:sync(true) end
    each:close()
  end
  self:look()
end

function world:walk(steps)
  for step = 1, steps do
    self.step = step
    local verb = self.random:weighted(weights)
    local happen = (self.is_replica and replica or leader)[verb]
    if self.starves and self.random:one_in(2) then probe.fail_core(self.random:between(1, 15)) end
    if happen then happen(self) else act[verb](self) end
    if self.starves then probe.fail_none() end
    self:look()
  end
  self:finish()
end

local function explain(the_world, its_seed, err)
  return ("%s\n  while doing %s\n  at step %d of the history with seed %d (KW_SEED=%d for the whole file)")
    :format(tostring(err), the_world.doing, the_world.step, its_seed, seed)
end

local function run(scenario, its_seed)
  local random = new_random(its_seed)
  local the_world = new_world(scenario, random)
  local ok, err = xpcall(function()
    if scenario.prepare then scenario.prepare(the_world) end
    the_world:walk(dose.of(150, scenario.steps))
  end, function(e) return type(e) == "string" and e or debug.traceback(tostring(e)) end)
  if probe then probe.fail_none() end
  the_world.store:close()
  if not ok then error(explain(the_world, its_seed, err), 0) end
end

--- More revisions than one step brings up. The model is told what it need not work out.
local function write_long_history(the_world)
  local store, model, keys, newest = the_world.store, the_world.model, the_world.requests.keys, {}
  for i = 1, dose.of(1200, 2500) do
    local puts, revision = {}, i + 1
    for n = 1, i % 3 + 1 do
      local key = keys[(i + n) % 7 + 1]
      local previous = newest[key]
      local kv = { key = key, value = "v", mod_revision = revision, lease = 0 }
      kv.create_revision = previous and previous.create_revision or revision
      kv.version = previous and previous.version + 1 or 1
      puts[n] = { put = key, value = "v" }
      newest[key] = kv
      model.history[#model.history + 1] = { main = revision, sub = n - 1, key = key, kv = kv }
      the_world.ledger:enter(revision, key, kv, previous)
    end
    store:txn { success = puts }
    model.revision = revision
  end
  the_world.recorded = #model.history
  the_world.ledger.is_rough = true
  the_world:record()
end

local scenarios = {
  {
    name = "a store that compacts one record at a time",
    options = { now = 100, step_records = 1, progress_interval = 3 },
    steps = 600,
    rounds = 24,
  },
  {
    name = "a store that compacts a thousand records at a time",
    options = { now = 0, step_records = 1000, min_lease_ttl = 1, progress_interval = 1 },
    steps = 600,
    rounds = 24,
  },
  {
    name = "a store with a long history",
    options = { now = 0, step_records = 7 },
    steps = 150,
    rounds = 2,
    prepare = write_long_history,
  },
  {
    name = "a replica",
    options = { now = 0, replica = true, step_records = 3 },
    steps = 500,
    rounds = 24,
  },
  {
    name = "a replica of some keys that keeps little history",
    options = { now = 0, replica = true, history_bytes = 3000, step_records = 5 },
    within = span.new("a", { range_end = "c/2" }),
    steps = 500,
    rounds = 24,
  },
}

if probe then
  scenarios[#scenarios + 1] = {
    name = "a store whose memory runs out now and then",
    options = { now = 0, step_records = 7 },
    steps = 500,
    rounds = 24,
    starves = true,
    prepare = function(the_world) the_world.ledger.is_rough = true end,
  }
end

-- }======

describe("watches of random histories", function()
  for i, scenario in ipairs(scenarios) do
    it("miss nothing and repeat nothing over " .. scenario.name, function()
      local rounds = dose.of(1, scenario.rounds)
      for round = 1, rounds do run(scenario, seed + 1000 * i + round) end
    end)
  end
end)

-- {====== Who is told ======

local pieces = { "\0", "a", "a", "b", "\255", "\255\255", "abcdefgh", "\255\255\255\255\255\255\255\255" }

local function random_key(random, least)
  local key = ""
  for _ = 1, random:between(least, 4) do key = key .. random:pick(pieces) end
  return key
end

local function random_span(random)
  local kind = random:weighted { { 3, "point" }, { 4, "range_end" }, { 3, "prefix" }, { 1, "from_key" } }
  if kind == "range_end" then return random_key(random, 0), { range_end = random_key(random, 1) } end
  return random_key(random, kind == "point" and 1 or 0), { [kind] = kind ~= "point" or nil }
end

--- Opens a watch of a random span, or of one that is watched already, unless that is empty.
local function open_random(random, store, open)
  local key, options = random_span(random)
  if #open > 0 and random:one_in(4) then
    local other = random:pick(open)
    key, options = other.key, other.options
  end
  local within = observer.span_of(key, options)
  local handle, tag = store:open_watch(key, options)
  if observer.is_empty(within) then
    assert(not handle and tag.code == "empty_range")
    return
  end
  handle:arm()
  open[#open + 1] = { handle = handle, tag = tag, within = within, key = key, options = options }
end

local function close_random(random, open)
  if #open > 0 then table.remove(open, random:between(1, #open)).handle:close() end
end

--- All of those, and no others, whose span has the key.
local function expect_told(store, open, key)
  store:put(key, "")
  local told = {}
  for tag in store.next_ready, store do
    assert(not told[tag], "a watch is named twice")
    told[tag] = true
  end
  for _, each in ipairs(open) do
    local is_told = told[each.tag] == true
    if span.contains(each.within, key) ~= is_told then
      error(("%q is %stold to a watch of %q to %q, with seed %d"):format(key, is_told and "" or "not ", each.within.key,
        each.within.last, seed), 0)
    end
    if is_told then
      assert(each.handle:take() == "events")
      each.handle:arm()
    end
  end
end

describe("a put", function()
  it("is told to those whose keys it is among, and to nobody else", function()
    local random = new_random(seed)
    local store = keywatch.open { now = 0 }
    local open = {}
    for step = 1, dose.of(400, 4000) do
      local is_growing = step % 1000 < 400
      if random:one_in(is_growing and 5 or 2) then close_random(random, open) else open_random(random, store, open) end
      expect_told(store, open, random_key(random, 1))
      if step % 100 == 0 then store:compact(store:status().revision) end
      if probe and step % 10 == 0 then probe.check(store) end
    end
    store:close()
  end)
end)

-- }======
