--- A replica that has missed events continues at a later state: its watches receive the difference.

local keywatch = require "keywatch"
local core = require "keywatch.core"

local dose = require "spec.support.dose"
local history = require "spec.support.history"
local new_model = require("spec.support.model").new
local new_random = require("spec.support.random").new
local new_span = require("spec.support.model.span").new
local request = require "spec.support.request"

local probe = core.probe
local seed = tonumber(os.getenv("KW_SEED")) or os.time()

local everything = new_span("", { prefix = true })

local function kv(key, revision, fields)
  local made = { key = key, value = "v", create_revision = revision, mod_revision = revision, version = 1, lease = 0 }
  for name, value in pairs(fields or {}) do made[name] = value end
  return made
end

--- Returns the events of a watch, until it would wait, or fails.
local function drain(watch)
  local events = {}
  while true do
    local event, err = watch:next(0)
    if not event then return events, err end
    events[#events + 1] = event
  end
end

--- Does what events say to kvs by key.
local function replay(kvs, events)
  local last = 0
  for _, event in ipairs(events) do
    assert(event.mod_revision >= last, "events go back")
    last = event.mod_revision
    kvs[event.key] = event.type == "put" and event or nil
  end
  return kvs
end

local function by_key(list)
  local kvs = {}
  for _, one in ipairs(list) do kvs[one.key] = one end
  return kvs
end

local function contents(store) return by_key(store:range("", { prefix = true }).kvs) end

--- The same keys, with the same revisions and values.
local function expect_same(expected, got)
  for key, one in pairs(expected) do
    assert(got[key], key)
    for _, field in ipairs { "value", "create_revision", "mod_revision", "version", "lease" } do
      assert.equal(one[field], got[key][field], key .. "." .. field)
    end
  end
  for key in pairs(got) do assert(expected[key], key) end
end

describe("a replica that is merged", function()
  local store

  before_each(function()
    store = keywatch.open { replica = true }
    assert(store:load_kvs(10, { kv("a", 3), kv("b", 7), kv("c", 5) }))
  end)

  after_each(function() store:close() end)

  it("has the new state, and reports the difference in the order of revisions", function()
    local watch = assert(store:watch("", { prefix = true, prev_kv = true }))
    assert.is_true(store:merge_kvs(20, { kv("a", 3), kv("b", 15, { create_revision = 7, version = 3 }), kv("d", 12) }))
    assert.equal(20, store:status().revision)
    expect_same({ a = kv("a", 3), b = kv("b", 15, { create_revision = 7, version = 3 }), d = kv("d", 12) },
      contents(store))
    local events = drain(watch)
    assert.same({ { "put", "d", 12 }, { "put", "b", 15 }, { "delete", "c", 20 } },
      { { events[1].type, events[1].key, events[1].mod_revision }, { events[2].type, events[2].key,
        events[2].mod_revision }, { events[3].type, events[3].key, events[3].mod_revision } })
    assert.equal(3, #events)
    assert.equal(7, events[2].prev.mod_revision)
    assert.equal(5, events[3].prev.mod_revision)
    watch:close()
  end)

  it("deletes at the same revision as a put", function()
    local watch = assert(store:watch("", { prefix = true }))
    assert(store:merge_kvs(20, { kv("a", 20), kv("b", 7) }))
    local batch = watch:batch(0)
    assert.same({ 20, 2 }, { batch.revision, #batch.events })
    watch:close()
  end)

  it("advances without a difference", function()
    local watch = assert(store:watch("", { prefix = true }))
    local same = { kv("a", 3), kv("b", 7), kv("c", 5) }
    assert(store:merge_kvs(30, same))
    assert(store:merge_kvs(30, same))
    assert.equal(30, store:status().revision)
    assert.equal(0, #drain(watch))
    watch:close()
  end)

  it("does not know the history in between", function()
    assert(store:merge_kvs(20, { kv("a", 15), kv("b", 7) }))
    assert.equal(3, store:get("a", { revision = 10 }).mod_revision)
    for revision = 11, 19 do
      local _, err = store:get("a", { revision = revision })
      assert.equal("compacted", err.code)
    end
    assert.equal(15, store:get("a", { revision = 20 }).mod_revision)
    for revision = 12, 20 do
      local watch = assert(store:watch("", { prefix = true, start_revision = revision }))
      local _, err = watch:next(0)
      assert.same({ "compacted", 21 }, { err.code, err.compact_revision })
      watch:close()
    end
    for _, revision in ipairs { 11, 21 } do
      local watch = assert(store:watch("", { prefix = true, start_revision = revision }))
      local events, err = drain(watch)
      assert.same({ "timeout", revision == 11 and 2 or 0 }, { err.code, #events })
      watch:close()
    end
  end)

  it("fails the watches that wait for a revision of the gap", function()
    local by_start = {}
    for revision = 11, 22 do
      by_start[revision] = assert(store:watch("", { prefix = true, start_revision = revision }))
    end
    assert(store:merge_kvs(20, { kv("a", 15), kv("b", 7) }))
    for revision, watch in pairs(by_start) do
      local events, err = drain(watch)
      local is_inside = revision >= 12 and revision <= 20
      assert.same({ is_inside and "compacted" or "timeout", is_inside and 21 or nil, revision == 11 and 2 or 0 },
        { err.code, err.compact_revision, #events })
      watch:close()
    end
    if probe then probe.check(store) end
  end)

  it("continues afterwards, and has one gap at most", function()
    assert(store:merge_kvs(20, { kv("a", 15) }))
    assert(store:apply(21, { { type = "put", key = "z", value = "1", create_revision = 21, version = 1 } }))
    assert.equal(20, store:range("", { prefix = true, revision = 20 }).count == 1 and 20)
    assert(store:merge_kvs(30, { kv("a", 15), kv("y", 25) }))
    local _, err = store:get("a", { revision = 19 })
    assert.equal("compacted", err.code)
    assert.equal(20, store:status().compact_revision)
    assert.equal(2, store:range("", { prefix = true, revision = 21 }).count)
    _, err = store:get("a", { revision = 25 })
    assert.equal("compacted", err.code)
    assert.equal(2, store:range("", { prefix = true }).count)
    if probe then probe.check(store) end
  end)

  it("refuses a state that is older, or of another history", function()
    for _, case in ipairs { { 9, { kv("a", 3) } }, { 10, { kv("a", 3) } }, { 12, { kv("a", 4) } } } do
      local ok, err = store:merge_kvs(case[1], case[2])
      assert.is_nil(ok)
      assert.equal("stale_revision", err.code)
    end
    expect_same({ a = kv("a", 3), b = kv("b", 7), c = kv("c", 5) }, contents(store))
    assert.equal(10, store:status().revision)
  end)

  it("lets lagging watches catch up", function()
    local watch = assert(store:watch("", { prefix = true, max_bytes = 1000 }))
    local kvs = {}
    for i = 1, 500 do kvs[i] = kv(("k%04d"):format(i), 10 + i) end
    assert(store:apply(11, { { type = "delete", key = "a" } }))
    for i = 1, 500 do kvs[i].mod_revision, kvs[i].create_revision = 11 + i, 11 + i end
    assert(store:merge_kvs(600, kvs))
    local state = replay({ a = kv("a", 3), b = kv("b", 7), c = kv("c", 5) }, drain(watch))
    expect_same(contents(store), state)
    watch:close()
  end)

  it("is equal to its upstream, whatever it has missed", function()
    for round = 1, dose.of(3, 30) do
      local random = new_random(seed + round)
      local upstream, requests = new_model(), history.new(random, {})
      local replica = keywatch.open { replica = true, history_bytes = 1000 * round }
      local function change(n)
        local goal = upstream.revision + n
        while upstream.revision < goal do request.perform(requests:next_change(upstream), upstream) end
      end
      change(20)
      assert(replica:load_kvs(upstream.revision, upstream:kvs_at(upstream.revision, everything)))
      local watch = assert(replica:watch("", { prefix = true }))
      local state = contents(replica)
      for _ = 1, 6 do
        local from = upstream.revision
        change(random:between(1, 30))
        if random:one_in(2) then
          assert(replica:merge_kvs(upstream.revision, upstream:kvs_at(upstream.revision, everything)))
        else
          for revision = from + 1, upstream.revision do
            local events = upstream:events_at(revision)
            assert(#events > 0 and replica:apply(revision, events) or replica:advance(revision))
          end
        end
        expect_same(by_key(upstream:kvs_at(upstream.revision, everything)), contents(replica))
        if probe then probe.check(replica) end
        local events, err = drain(watch)
        if err.code == "timeout" then
          expect_same(contents(replica), replay(state, events))
        else
          assert.equal("compacted", err.code)
          watch:close()
          watch, state = assert(replica:watch("", { prefix = true })), contents(replica)
        end
      end
      watch:close()
      replica:close()
    end
  end)
end)

describe("a replica that is filled from the pages of a feed", function()
  local MANY = probe and 100 or 6000 -- kvs: more than a turn writes
  local store, state

  local function name(i) return ("k%06d"):format(i) end

  --- A state of the keys from first to last. After revision 10 every second one has changed, and those after MANY are
  -- new.
  local function state_of(first, last, revision)
    local kvs = {}
    for i = first, last do
      local has_changed = revision > 10 and (i % 2 == 0 or i > MANY)
      kvs[#kvs + 1] = kv(name(i), has_changed and revision - 1 or 2 + i % 7)
    end
    local made = core.feed_state("k", "l")
    assert(made:add(core.encode("RangeResponse", { header = { revision = revision }, kvs = kvs, count = #kvs })))
    return made
  end

  --- Calls a method until it is done, and fn(turn) in between. Returns what the method has returned.
  local function finish(method, fn)
    for turn = 1, math.huge do
      local ok, err = store[method](store, state)
      if ok ~= false then return ok, err, turn end
      if probe then probe.check(store) end
      fn(turn)
    end
  end

  before_each(function() store = keywatch.open { replica = true } end)

  after_each(function()
    state:close()
    if probe then probe.check(store) end
    store:close()
  end)

  it("is loaded in turns, and is empty until then", function()
    state = state_of(1, MANY, 10)
    local ok, _, turns = finish("load", function() assert.equal(0, store:range("k", { prefix = true }).count) end)
    assert.is_true(ok and turns > 4)
    assert.same({ 10, MANY }, { store:status().revision, store:range("k", { prefix = true }).count })
  end)

  if probe then
    it("frees an abandoned base in steps", function()
      state = state_of(1, MANY, 10)
      local turns, steps = select(3, finish("load", function() end)), 0
      store:close()
      store = keywatch.open { replica = true }
      state:close()
      state = state_of(1, MANY, 10)
      for _ = 3, turns do assert.is_false(store:load(state)) end
      state:close()
      while store:step() do
        probe.check(store)
        steps = steps + 1
      end
      assert.is_true(steps > 4)
      assert.same({ 1, 0 }, { store:status().revision, store:range("k", { prefix = true }).count })
    end)
  end

  it("is merged in turns; reads and watches have all of it, or nothing", function()
    state = state_of(1, MANY, 10)
    finish("load", function() end)
    state:close()
    state = state_of(MANY / 2, MANY + 10, 20)
    local watch = assert(store:watch("", { prefix = true }))
    local kvs = contents(store)
    local turns = select(3, finish("merge", function(turn)
      assert.is_nil((watch:next(0)))
      assert.same({ 10, MANY }, { store:status().revision, store:range("k", { prefix = true }).count })
      assert.equal(2 + turn % 7, store:get(name(turn)).mod_revision)
      assert.is_nil(store:get(name(MANY + 1)))
    end))
    assert.is_true(turns > 4)
    assert.equal(20, store:status().revision)
    local events = drain(watch)
    while store:step() do
      for _, event in ipairs(drain(watch)) do events[#events + 1] = event end
    end
    for _, event in ipairs(drain(watch)) do events[#events + 1] = event end
    expect_same(contents(store), replay(kvs, events))
    assert.equal(MANY / 2 + 11, store:range("k", { prefix = true }).count)
    assert.equal(name(MANY / 2 - 1), events[#events].key)
  end)

  it("stays as it was if the state is closed before its end", function()
    state = state_of(1, MANY, 10)
    finish("load", function() end)
    local before = contents(store)
    for turns = 1, 60, 7 do
      state:close()
      state = state_of(MANY / 2, MANY + 10, 20)
      for _ = 1, turns do
        if store:merge(state) then break end
      end
      if store:status().revision == 20 then break end
      state:close()
      if probe then probe.check(store) end
      expect_same(before, contents(store))
    end
    assert.is_true(store:advance(30))
  end)
end)
