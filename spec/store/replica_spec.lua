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
    replica = keywatch.open(options),
    twin = new_model { replica = true }, -- what the replica should be
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

--- Begins at a revision of the upstream, by `load` or `replace`.
function mirror:begin(verb, revision)
  self:both(verb, revision, self.upstream:kvs_at(revision, self.within))
  self.base = revision
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

--- What the history from a revision on costs.
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

--- At every revision that can be read, the replica has what the upstream had.
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
  for _, verb in ipairs { "load", "replace", "replace" } do
    self:change_upstream(length)
    local base = self.random:between(math.max(1, self.upstream.revision - length), self.upstream.revision)
    self:begin(verb, base)
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
  the_mirror.replica:close()
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
      assert(store:load(10, { kv("a", 3), kv("b", 7, { create_revision = 2, version = 4, lease = 77 }), kv("c", 5) }))
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

    --- The call raises or returns an error, and changes nothing.
    local function expect_refused(method, ...)
      local ok, answer, err = pcall(store[method], store, ...)
      assert.is_false(ok and (answer ~= nil or err == nil), method .. " was not refused")
      expect_unchanged()
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

    if probe then
      it("frees its old content in steps", function()
        local KEYS, value = 300, ("x"):rep(100)
        local kvs = {}
        for i = 1, KEYS do kvs[i] = kv(("k%03d"):format(i), i, { value = value }) end
        store:replace(KEYS, kvs)
        repeat until not store:step(0)
        collectgarbage()
        collectgarbage("stop")
        local before, steps = probe.bytes(), 0
        local bytes, more = before, true
        assert(store:replace(KEYS + 1, {}))
        while more do
          assert.is_true(bytes - probe.bytes() < before / 5)
          bytes = probe.bytes()
          more = store:step(0)
          probe.check(store)
          steps = steps + 1
        end
        collectgarbage("restart")
        assert.is_true(steps > 10)
        assert.is_true(bytes < before - KEYS * #value)
      end)
    end

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

    it("refuses revisions that are not newer than its own as stale", function()
      expect_code("stale_revision", store:apply(10, { put("z", 10) }))
      expect_code("stale_revision", store:apply(9, { put("z", 9) }))
      expect_code("stale_revision", store:advance(10))
      expect_code("stale_revision", store:advance(3))
      expect_code("stale_revision", store:load(9, {}))
    end)

    it("refuses a base whose keys are not in strict order", function()
      expect_refused("replace", 20, { kv("b", 1), kv("a", 2) })
      expect_refused("replace", 20, { kv("a", 1), kv("a", 2) })
      expect_refused("replace", 20, { kv("a", 1), kv("", 2) })
      expect_refused("load", 20, { kv("b", 1), kv("a", 2) })
    end)

    it("refuses a base from the future", function() expect_refused("replace", 20, { kv("a", 21) }) end)

    it("refuses a base with bad fields", function()
      expect_refused("replace", 20, { kv("a", 1), kv("b", 1, { value = {} }) })
      expect_refused("replace", 20, { kv("a", 1), kv("b", 1, { version = "many" }) })
      expect_refused("replace", 20, { kv("a", 1), kv("b", 1, { create_revision = -1 }) })
      expect_refused("replace", 20, { kv("a", 1), { value = "no key" } })
      expect_refused("replace", 20, { kv("a", 1), "b" })
      expect_refused("replace", 20, "kvs")
      expect_refused("replace", 0, {})
      expect_refused("replace", -1, {})
      expect_refused("replace", "now", {})
    end)

    it("refuses events with bad fields and takes none of them", function()
      expect_refused("apply", 20, { put("z", 20), put("", 20) })
      expect_refused("apply", 20, { put("z", 20), { type = "put", value = "no key" } })
      expect_refused("apply", 20, { put("z", 20), put("y", 20, { value = {} }) })
      expect_refused("apply", 20, { put("z", 20), put("y", 20, { version = "many" }) })
      expect_refused("apply", 20, { put("z", 20), put("y", 19) })
      expect_refused("apply", 20, { put("z", 20), { type = "rename", key = "y" } })
      expect_refused("apply", 20, { put("z", 20), { key = "y" } })
      expect_refused("apply", 20, { put("z", 20), "y" })
      expect_refused("apply", 20, "events")
      expect_refused("apply", "now", {})
      expect_refused("advance", "now")
    end)
  end)

  it("is not compacting after it was replaced by an older state", function()
    local store = keywatch.open { replica = true, history_bytes = 20000 }
    assert(store:load(1, {}))
    for rev = 2, 1001 do assert(store:apply(rev, { put("key" .. rev % 10, rev, { value = ("x"):rep(100) }) })) end
    assert(store:status().compact_revision > 5)
    assert.is_true(store:replace(5, { kv("a", 2) }))
    assert.is_false(core.durable_methods.step_compaction(store)) -- a physical one would wait for ever
    local answer, err = store:compact(5, { physical = true })
    assert.same({ nil, "read_only" }, { answer, err.code })
    store:close()
  end)
end)
