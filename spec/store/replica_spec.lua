--- A replica repeats an upstream: at every revision that it still has, it answers what the upstream answered.
--
-- The upstream is the naive model, led through a random history. A failure prints the seed and the revision;
-- KW_SEED=… repeats it.

local keywatch = require "keywatch"
local core = require "keywatch.core"

local expect = require("spec.support.difference").expect
local history = require "spec.support.history"
local new_model = require("spec.support.model").new
local new_random = require("spec.support.random").new
local new_span = require("spec.support.model.span").new
local request = require "spec.support.request"
local space = require("spec.support.space").new(keywatch)
local span_contains = require("spec.support.model.span").contains

local probe = core.probe
local is_fast = require("spec.support.dose").is_small
local seed = tonumber(os.getenv("KW_SEED")) or os.time()

local everything = new_span("", { prefix = true })

local function kv(key, mod_revision, fields)
  local made = { key = key, value = "v", create_revision = mod_revision, mod_revision = mod_revision, version = 1,
    lease = 0 }
  for name, value in pairs(fields or {}) do made[name] = value end
  return made
end

local function put(key, revision, fields)
  local event = kv(key, revision, fields)
  event.type = "put"
  return event
end

local function delete(key) return { type = "delete", key = key } end

-- A replica of a part of an upstream's keys ----------------------------------------------------------------

local mirror = {}
mirror.__index = mirror

local function new_mirror(random, options)
  options.replica = true
  return setmetatable({
    random = random,
    requests = history.new(random, {}),
    upstream = new_model(),
    within = everything, -- which keys are followed
    options = options,
    replica = nil,
    twin = nil, -- the expected state of the replica
    history_bytes = options.history_bytes or math.huge,
    base = 0, -- the revision where it began
  }, mirror)
end

--- Lets things happen upstream until its revision has moved on by `n`.
function mirror:change_upstream(n)
  local goal = self.upstream.revision + n
  while self.upstream.revision < goal do request.perform(self.requests:next_change(self.upstream), self.upstream) end
end

function mirror:ask(asked)
  local words = request.disagreement(asked, self.replica, self.twin)
  if words then error(("%s\n  while doing %s"):format(words, request.show(asked)), 0) end
end

function mirror:both(verb, ...) self:ask(request.new(verb, ...)) end

--- Begins with a new replica, at a revision of the upstream.
function mirror:begin(revision)
  self:close()
  self.replica, self.twin, self.base = keywatch.open(self.options), new_model { replica = true }, revision
  self:both("load_kvs", revision, self.upstream:kvs_at(revision, self.within))
end

function mirror:close()
  if self.replica then self.replica:close() end
end

function mirror:events_at(revision)
  local events = {}
  for _, event in ipairs(self.upstream:events_at(revision)) do
    if span_contains(self.within, event.key) then events[#events + 1] = event end
  end
  return events
end

--- Applies one revision to the replica; if it has no events, sometimes advances.
function mirror:follow(revision)
  local events = self:events_at(revision)
  if #events > 0 then
    self:both("apply", revision, events)
  elseif self.random:one_in(3) then
    self:both("advance", revision)
  end
end

--- Returns the size of the history from a revision on.
function mirror:cost_from(revision)
  local records = {}
  for _, record in ipairs(self.twin.history) do
    if record.main >= revision then records[#records + 1] = record end
  end
  return space.cost(records)
end

--- What came after the compacted revision fits; what came with it would not.
function mirror:check_bounds()
  local compacted = self.twin.compact_revision
  assert(self:cost_from(compacted + 1) <= self.history_bytes, "more history is kept than was allowed")
  if compacted == self.base then return end
  assert(self:cost_from(compacted) > self.history_bytes, "history was forgotten that would have had room")
end

--- History is bounded, so the replica alone knows how far back it still goes.
function mirror:learn_compaction()
  local status = self.replica:status()
  assert(status.compact_revision >= self.twin.compact_revision, "the compacted revision went back")
  assert(status.compact_revision <= self.twin.revision, "the compacted revision went ahead")
  self.twin.compact_revision = status.compact_revision
  self:check_bounds()
  expect(status.revision, self.twin.revision, "status().revision")
  expect(status.keys, #self.twin:all_kvs(), "status().keys")
end

--- Checks that at every readable revision the replica has the content of the upstream.
function mirror:check_against_upstream()
  for revision = self.twin.compact_revision, self.twin.revision do
    local found = assert(self.replica:range("", { prefix = true, revision = revision }))
    local expected = self.upstream:kvs_at(revision, self.within)
    expect(found.kvs, expected, "kvs at revision " .. revision)
    expect(found.count, #expected, "count at revision " .. revision)
  end
end

function mirror:check()
  self:learn_compaction()
  for _ = 1, 4 do self:ask(self.requests:next_read(self.twin)) end
  if probe then probe.check(self.replica) end
end

--- Once it has forgotten what it does not keep, the replica holds what is left and nothing else.
function mirror:settle()
  while self.replica:step(0) do end -- luacheck: ignore 542
  expect(self.replica:status().db_size_in_use, space.size(self.twin:records_left()), "status().db_size_in_use")
end

function mirror:follow_all()
  for revision = self.twin.revision + 1, self.upstream.revision do
    self:follow(revision)
    self:learn_compaction()
    if self.random:one_in(4) then self:check() end
  end
end

--- From a base at a random revision through all that follows; then once more from another base.
function mirror:run(length)
  for _ = 1, 3 do
    self:change_upstream(length)
    local base = self.random:between(math.max(1, self.upstream.revision - length), self.upstream.revision)
    self:begin(base)
    self:check()
    self:follow_all()
    self:change_upstream(length)
    self:follow_all()
    self:check()
    self:check_against_upstream()
    self:settle()
  end
end

local spans = {
  everything,
  new_span("a", { prefix = true }),
  new_span("b", { range_end = "c/2" }),
  new_span("c/1", {}),
}

local function run(options, its_seed, length)
  local random = new_random(its_seed)
  local the_mirror = new_mirror(random, options)
  the_mirror.within = random:pick(spans)
  local ok, err = xpcall(the_mirror.run, function(e)
    return type(e) == "string" and e or debug.traceback(tostring(e))
  end, the_mirror, length)
  the_mirror:close()
  if ok then return end
  error(("%s\n  at revision %d, with seed %d (KW_SEED=%d for the whole file)")
    :format(tostring(err), the_mirror.twin.revision, its_seed, seed), 0)
end

-----------------------------------------------------------------------------------------------------------------

describe("a replica", function()
  local rounds, length = is_fast and 2 or 25, is_fast and 15 or 60

  it("has its upstream's state, at every revision since its base", function()
    for round = 1, rounds do run({}, seed + round, length) end
  end)

  it("has its upstream's state, as far back as its bounded history goes", function()
    for round = 1, rounds do run({ history_bytes = 200 * round, step_records = 3 }, seed + 1000 + round, length) end
  end)

  describe("that was loaded", function()
    local store

    before_each(function()
      store = keywatch.open { replica = true }
      local b = kv("b", 7, { create_revision = 2, version = 4, lease = 77 })
      assert(store:load_kvs(10, { kv("a", 3), b, kv("c", 5) }))
    end)

    after_each(function() store:close() end)

    --- Nothing of a call that failed is left.
    local function expect_unchanged()
      assert.equal(10, store:status().revision)
      assert.equal(10, store:status().compact_revision)
      local found = store:range("", { prefix = true })
      assert.equal(3, found.count)
      assert.same(kv("a", 3), found.kvs[1])
      if probe then probe.check(store) end
    end

    local function expect_code(code, answer, err)
      assert.is_nil(answer)
      assert.equal(code, err.code)
      expect_unchanged()
    end

    it("is at the revision of its base, with all fields as given", function()
      assert.same({
        revision = 10,
        count = 3,
        more = false,
        kvs = { kv("a", 3), kv("b", 7, { create_revision = 2, version = 4, lease = 77 }), kv("c", 5) },
      }, store:range("", { prefix = true }))
    end)

    it("accepts a delete of a missing key", function()
      assert(store:apply(12, { delete("nothing") }))
      assert.equal(12, store:status().revision)
      assert.equal(3, store:status().keys)
    end)

    it("refuses writes as read-only", function()
      expect_code("read_only", store:put("a", "x"))
      expect_code("read_only", store:delete("a"))
      expect_code("read_only", store:delete("", { prefix = true }))
      expect_code("read_only", store:txn { success = { { put = "a", value = "x" } } })
      expect_code("read_only", store:txn { success = { { delete = "a" } } })
      expect_code("read_only", store:lease(10))
      expect_code("read_only", store:compact(10))
    end)

    it("answers transactions that only read", function()
      assert.same({ succeeded = true, revision = 10, responses = { kv("c", 5), false } }, store:txn {
        compare = { { key = "b", version = 4 }, { key = "b", lease = 77 } },
        success = { { get = "c" }, { get = "z" } },
      })
    end)

    it("leaves out events that are not newer than its own revision", function()
      for _, revision in ipairs { 10, 9 } do assert.is_true(store:apply(revision, { put("z", revision) })) end
      for _, revision in ipairs { 10, 3 } do assert.is_true(store:advance(revision)) end
      expect_unchanged()
    end)

    it("refuses a second base as stale", function()
      for _, revision in ipairs { 9, 10, 20 } do expect_code("stale_revision", store:load_kvs(revision, {})) end
    end)
  end)
end)
