--- Random histories inside a namespace, while other keys of its owner change, too: every answer and every event is that
-- of a naive model, which has the keys of the namespace alone, at the revisions of the owner.
--
-- Watches of the namespace are compared with those of a twin: a replica, which is told the model's changes.
--
-- A failure tells the seed, the step and the request. KW_SEED=… repeats it.

local keywatch = require "keywatch"

local difference = require("spec.support.difference").difference
local directory = require "spec.support.directory"
local dose = require "spec.support.dose"
local history = require "spec.support.history"
local new_model = require("spec.support.model").new
local new_random = require("spec.support.random").new
local occurrences = require "spec.support.occurrences"
local request = require "spec.support.request"

local seed = tonumber(os.getenv("KW_SEED")) or os.time()

local MOST_WATCHES = 12
local SECONDS = 30 -- for what is certain to come
local NOW = 100

-- Without hash_kv, which is about all keys of the owner, and without alarms, which are armed by the model's methods.
local WEIGHTS = {
  { 30, "put" }, { 10, "delete" }, { 23, "txn" }, { 3, "fleeting" }, { 6, "get" }, { 14, "range" }, { 6, "each" },
  { 1, "compact" }, { 4, "lease" }, { 3, "keepalive" }, { 1, "revoke" }, { 4, "pass_time" }, { 2, "remaining" },
  { 3, "lease_keys" }, { 1, "leases" },
}

-- {====== Owners ======

--- Each returns the store, the owner of the namespace, and a function that closes what it has opened.
local owners = {}

function owners.memory()
  local store = keywatch.open { now = NOW }
  return store, store, function() store:close() end
end

function owners.durable()
  local store = assert(keywatch.open { now = NOW, path = directory.new() })
  return store, store, function()
    store:close()
    directory.remove_all()
  end
end

function owners.client()
  local store = keywatch.open { now = NOW }
  local server = assert(keywatch.serve { store = store, listen = "http://127.0.0.1:0" })
  local client = keywatch.connect(server:addresses()[1])
  return store, client, function()
    client:close()
    server:close()
    store:close()
  end
end

-- }======

-- {====== Keys that are not in the namespace ======

local function is_inside(prefix, key)
  return #key > #prefix and key:sub(1, #prefix) == prefix
end

--- Keys on both sides of a namespace, as close as they can be, and the prefix itself.
local function foreign_keys(prefix)
  local keys, stem = {}, prefix:gsub("\255+$", "")
  local last = stem:byte(-1)
  local function add(key)
    if key ~= "" and not is_inside(prefix, key) then keys[#keys + 1] = key end
  end
  add(prefix)
  add(prefix:sub(1, -2))
  add("\0")
  add("\255")
  if last then
    add(stem:sub(1, -2) .. string.char(math.max(last - 1, 0)) .. "\255\255")
    add(stem:sub(1, -2) .. string.char(last + 1))
    add(stem:sub(1, -2) .. string.char(last + 1) .. "a")
  end
  return keys
end

-- }======

local world = {}
world.__index = world

local function new_world(scenario, random)
  local store, owner, close = owners[scenario.owner]()
  local outer, inner = scenario.prefix:sub(1, scenario.split or 0), scenario.prefix:sub((scenario.split or 0) + 1)
  local space = owner:namespace(inner)
  if scenario.split then space = owner:namespace(outer):namespace(inner) end
  space.step = function(_, now) return store:step(now) end -- the clock is the store's
  return setmetatable({
    random = random,
    requests = history.new(random, { weights = WEIGHTS }),
    store = store,
    space = space,
    model = new_model { now = NOW },
    twin = keywatch.open { replica = true },
    is_client = scenario.owner == "client",
    has_end = scenario.prefix:find("[^\255]") ~= nil,
    told = 1,     -- the last revision that the twin was told of
    foreign = foreign_keys(scenario.prefix),
    expected = {}, -- by key: the values of foreign keys
    watches = {}, -- pairs: { got =, expected =, name = }
    n_events = 0,
    step = 0,
    doing = "opening",
    close = close,
  }, world)
end

local function expect(got, expected, what)
  local words = difference(got, expected, what)
  if words then error(words, 0) end
end

--- Changes a key that is not in the namespace.
function world:change_foreign()
  local key = self.random:pick(self.foreign)
  self.doing = "a foreign key"
  if self.expected[key] and self.random:one_in(3) then
    self.store:delete(key)
    self.expected[key] = nil
  else
    self.expected[key] = "v" .. self.random:between(1, 9)
    self.store:put(key, self.expected[key])
  end
  self.model:advance(self.model.revision + 1)
end

-- {====== Asking both ======

local HIGHEST = ("\255"):rep(300) -- after every key of the histories

--- True if a delete has no end.
local function is_endless(op)
  if op.from_key or op.range_end == "\0" then return true end
  return op.prefix and not op.delete:find("[^\255]")
end

--- Gives deletes without an end one. As in etcd, a delete without an end may meet a put of the same transaction; one of
-- a namespace has an end, where the namespace has one.
local function bound_deletes(value)
  if type(value) ~= "table" then return value end
  local copy = {}
  for name, field in pairs(value) do copy[name] = bound_deletes(field) end
  if type(copy.delete) ~= "string" or not is_endless(copy) then return copy end
  if copy.delete == "" and copy.range_end then return copy end -- refused
  copy.delete = copy.delete == "" and "\0" or copy.delete
  copy.range_end, copy.from_key, copy.prefix = HIGHEST, nil, nil
  return copy
end

--- What a caller sees of an error. A client is not told the compacted revision.
function world:plain_error(err)
  if not err then return nil end
  local compact_revision = not self.is_client and err.compact_revision or nil
  return { code = err.code, message = err.message, compact_revision = compact_revision }
end

function world:ask(asked)
  self.doing = request.show(asked)
  local got, err = request.perform(asked, self.space)
  local expected, expected_err = request.perform(self.has_end and bound_deletes(asked) or asked, self.model)
  expect(self:plain_error(err), self:plain_error(expected_err), "the error")
  expect(got, expected, "the answer")
  self.store:leases() -- waits until what steps have done is durable
end

-- }======

--- Tells the twin what has happened since.
function world:tell_twin()
  for revision = self.told + 1, self.model.revision do
    local events = self.model:events_at(revision)
    if #events > 0 then self.twin:apply(revision, events) else self.twin:advance(revision) end
  end
  self.told = self.model.revision
end

-- {====== Watches ======

function world:open_watch()
  local random, model = self.random, self.model
  local key, opts = self.requests:span {}
  opts.prev_kv = random:one_in(2)
  if random:one_in(3) then opts.filters = { random:pick { "no_put", "no_delete" } } end
  if random:one_in(3) then
    opts.initial = true
  elseif random:one_in(2) then
    opts.start_revision = random:between(math.max(model.compact_revision, 1) + 1, model.revision + 2)
  end
  local asked = request.new("watch", key, opts)
  self.doing = request.show(asked)
  local got, err = request.perform(asked, self.space)
  local expected, expected_err = request.perform(asked, self.twin)
  expect(err and err.code, expected_err and expected_err.code, "the error's code")
  if not got then return end
  expect(tostring(got):match('key=".*" '), tostring(expected):match('key=".*" '), "the text of the watch")
  table.insert(self.watches, { got = got, expected = expected, name = self.doing })
end

--- Reads all that has come by one method of watches.
local function drain(watch, by)
  local list = {}
  while true do
    local found, err = watch[by](watch, 0)
    if not found then
      if not err or err.code ~= "timeout" then error(tostring(err), 0) end
      return list
    end
    list[#list + 1] = found
  end
end

function world:compare_watches()
  for _, pair in ipairs(self.watches) do
    local by = self.random:pick { "next", "next", "batch" }
    self.doing = ("%s of %s"):format(by, pair.name)
    assert(pair.got:sync(SECONDS))
    local got, expected = drain(pair.got, by), drain(pair.expected, by)
    expect(got, expected, "what comes")
    self.n_events = self.n_events + #got
  end
end

function world:close_watch()
  local pair = table.remove(self.watches, self.random:between(1, #self.watches))
  pair.got:close()
  pair.expected:close()
end

-- }======

--- What the namespace was not to touch is as it was.
function world:compare_foreign(prefix)
  local found = {}
  for kv in self.store:each("", { prefix = true }) do
    if not is_inside(prefix, kv.key) then found[kv.key] = kv.value end
  end
  expect(found, self.expected, "foreign keys")
end

function world:walk(steps)
  for step = 1, steps do
    self.step = step
    if #self.foreign > 0 and self.random:one_in(4) then self:change_foreign() end
    self:ask(self.requests:next(self.model))
    self:tell_twin()
    if #self.watches < MOST_WATCHES and self.random:one_in(5) then self:open_watch() end
    if self.random:one_in(5) then self:compare_watches() end
    if #self.watches > 0 and self.random:one_in(20) then self:close_watch() end
  end
  self:compare_watches()
end

local function run(scenario, its_seed)
  local the_world = new_world(scenario, new_random(its_seed))
  the_world.requests.next = function(self, model) -- without alarms
    local asked
    repeat asked = getmetatable(self).__index.next(self, model) until asked.verb ~= "arm"
    return asked
  end
  local ok, err = xpcall(function()
    occurrences.await({ "events" }, 1, function()
      the_world:walk(dose.of(150, scenario.steps))
      the_world:compare_foreign(scenario.prefix)
      return { events = the_world.n_events }
    end)
  end, function(e) return type(e) == "string" and e or debug.traceback(tostring(e)) end)
  while #the_world.watches > 0 do the_world:close_watch() end
  the_world.twin:close()
  the_world.close()
  if ok then return end
  error(("%s, after %s in step %d of the history with seed %d (KW_SEED=%d for the whole file)")
    :format(tostring(err), the_world.doing, the_world.step, its_seed, seed), 0)
end

local PREFIXES = { "/app/", "a", "a\255", "\255", "\255\255", "\0", "", "c/1\255\255", ("x"):rep(200) }

local scenarios = {}
for _, prefix in ipairs(PREFIXES) do
  scenarios[#scenarios + 1] = { owner = "memory", prefix = prefix, steps = 1200 }
end
scenarios[#scenarios + 1] = { owner = "memory", prefix = "/app/a/", split = 5, steps = 1200 }
scenarios[#scenarios + 1] = { owner = "memory", prefix = "\255\255", split = 1, steps = 1200 }
for _, prefix in ipairs { "/app/", "\255" } do
  scenarios[#scenarios + 1] = { owner = "durable", prefix = prefix, steps = 300 }
  scenarios[#scenarios + 1] = { owner = "client", prefix = prefix, steps = 500 }
end

describe("random histories in a namespace", function()
  for i, scenario in ipairs(scenarios) do
    local name = ("agree with the model: %s, prefix %q%s"):format(scenario.owner, scenario.prefix:sub(1, 12),
      scenario.split and ", nested" or "")
    it(name, function() run(scenario, seed + 1000 * i) end)
  end
end)
