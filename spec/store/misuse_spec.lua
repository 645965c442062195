--- Misuse: what cannot be meant raises, in words that help, and changes nothing.

local keywatch = require "keywatch"

local misuse = require "spec.support.misuse"
local state = require "spec.support.state"

local nan, inf = 0 / 0, math.huge
local huge = rawget(math, "maxinteger") or 2 ^ 53 -- the largest number that is taken for a whole one

local function store_with_keys()
  local store = keywatch.open { now = 0 }
  local lease = store:lease(10, { id = 7 })
  store:put("a", "1", { lease = lease })
  store:put("b", "2")
  return store
end

--- One test for each { what, call }; the call gets a store, must raise, and must leave the store as it was.
local function refuses(cases)
  for _, case in ipairs(cases) do
    it(case[1], function()
      local store = store_with_keys()
      local before = state.of(store)
      misuse.raises(case[2], store)
      state.expect(store, before)
    end)
  end
end

--- One test for an option: it can have none of the values.
local function refuses_values(what, name, values, call)
  it(what, function()
    local store = store_with_keys()
    local before = state.of(store)
    for _, value in ipairs(values) do
      misuse.raises(call, store, { [name] = value })
      state.expect(store, before)
    end
  end)
end

local not_counts = { -1, -0.5, 1.5, nan, inf, -inf, 1e300, "1", true, {} }
local not_bools = { 1, 0, "true", "", {} }
local not_strings = { 5, true, {} }
local not_ids = { 1.5, nan, inf, 1e300, "", "seven", "7 ", " 7", "0x7", "7\0", "1e3", "-", "9223372036854775808",
  "-9223372036854775809", true, {}, { id = "seven" } }

local function get(store, opts) store:get("a", opts) end
local function range(store, opts) store:range("a", opts) end
local function each(store, opts) store:each("a", opts)() end
local function put(store, opts) store:put("a", "", opts) end
local function delete(store, opts) store:delete("a", opts) end
local function compact(store, opts) store:compact(2, opts) end
local function lease(store, opts) store:lease(5, opts) end
local function open(_, opts) keywatch.open(opts) end

describe("a key that is no string is refused by", function()
  local function refuses_keys(name, call)
    it(name, function()
      for _, key in ipairs { 5, true, {} } do misuse.raises(call, store_with_keys(), key) end
      misuse.raises(call, store_with_keys(), nil)
    end)
  end

  refuses_keys("get", function(store, key) store:get(key) end)
  refuses_keys("range", function(store, key) store:range(key, { prefix = true }) end)
  refuses_keys("each", function(store, key) store:each(key, { prefix = true })() end)
  refuses_keys("put", function(store, key) store:put(key, "") end)
  refuses_keys("delete", function(store, key) store:delete(key, { prefix = true }) end)
end)

describe("a value is refused:", function()
  refuses {
    { "none", function(store) store:put("a") end },
    { "nil with options", function(store) store:put("a", nil, {}) end },
    { "a number", function(store) store:put("a", 5) end },
    { "a table, for which the options were taken", function(store) store:put("a", { prev_kv = true }) end },
  }
end)

describe("options are refused:", function()
  refuses {
    { "that are no table", function(store) store:get("a", 5) end },
    { "that are a string", function(store) store:put("a", "", "lease") end },
    { "of each that are no table", function(store) store:each("a", 5)() end },
    { "an unknown one of get", function(store) store:get("a", { prefix = true }) end },
    { "an unknown one of range", function(store) store:range("a", { colour = 1 }) end },
    { "an unknown one of each", function(store) store:each("a", { colour = 1 })() end },
    { "an unknown one of put", function(store) store:put("a", "", { prefix = true }) end },
    { "an unknown one of delete", function(store) store:delete("a", { limit = 1 }) end },
    { "an unknown one of compact", function(store) store:compact(2, { colour = 1 }) end },
    { "an unknown one of lease", function(store) store:lease(5, { colour = 1 }) end },
    { "an unknown one of keepalive", function(store) store:lease_by_id(7):keepalive { colour = 1 } end },
    { "an unknown one of remaining", function(store) store:lease_by_id(7):remaining { colour = 1 } end },
    { "an unknown one of revoke", function(store) store:lease_by_id(7):revoke { colour = 1 } end },
    { "a list", function(store) store:range("a", { "prefix" }) end },
    { "a name with a zero byte in it", function(store) store:range("a", { ["limit\0"] = 1 }) end },
    { "a choice with a zero byte in it", function(store) store:range("a", { sort_order = "ascend\0" }) end },
    { "a choice that there is not", function(store) store:range("a", { sort_order = "up" }) end },
    { "a target that there is not", function(store) store:range("a", { sort_target = "mod_revision" }) end },
    { "prefix and range_end", function(store) store:range("a", { prefix = true, range_end = "b" }) end },
    { "prefix and from_key", function(store) store:delete("a", { prefix = true, from_key = true }) end },
    { "prefix and range_end of each", function(store) store:each("a", { prefix = true, range_end = "b" })() end },
  }
  refuses_values("a limit that is no count", "limit", not_counts, range)
  refuses_values("a limit of each that is no count", "limit", not_counts, each)
  refuses_values("a page that is no count", "page", not_counts, each)
  refuses_values("a revision that is no count", "revision", not_counts, range)
  refuses_values("a revision of get that is no count", "revision", not_counts, get)
  refuses_values("a least mod_revision that is no count", "min_mod_revision", not_counts, range)
  refuses_values("a greatest create_revision that is no count", "max_create_revision", not_counts, range)
  refuses_values("a prefix that is no boolean", "prefix", not_bools, range)
  refuses_values("a prefix of each that is no boolean", "prefix", not_bools, each)
  refuses_values("keys_only that is no boolean", "keys_only", not_bools, range)
  refuses_values("prev_kv that is no boolean", "prev_kv", not_bools, delete)
  refuses_values("ignore_value that is no boolean", "ignore_value", not_bools, put)
  refuses_values("physical that is no boolean", "physical", not_bools, compact)
  refuses_values("a range_end that is no string", "range_end", not_strings, range)
  refuses_values("a range_end of each that is no string", "range_end", not_strings, each)
  refuses_values("a range_end of delete that is no string", "range_end", not_strings, delete)
  refuses_values("a lease that is no id", "lease", not_ids, put)
  refuses_values("an id that is none", "id", not_ids, lease)
  refuses_values("a timeout that is no number", "timeout", { "1", nan, true, {} }, range)
end)

describe("arguments are refused:", function()
  it("a revision that is no count", function()
    local store = store_with_keys()
    local before = state.of(store)
    for _, value in ipairs(not_counts) do
      misuse.raises(store.compact, store, value)
      misuse.raises(store.hash_kv, store, value)
    end
    state.expect(store, before)
  end)

  refuses {
    { "compact to nothing", function(store) store:compact() end },
    { "a lease of no time", function(store) store:lease() end },
    { "a lease of half a second", function(store) store:lease(2.5) end },
    { "a lease of a time that is no number", function(store) store:lease(nan) end },
    { "a lease of endless time", function(store) store:lease(inf) end },
    { "a lease of a string", function(store) store:lease("5") end },
    { "the lease of no id", function(store) store:lease_by_id() end },
    { "the lease of a boolean", function(store) store:lease_by_id(true) end },
    { "the lease of a word", function(store) store:lease_by_id("seven"):keepalive() end },
    { "the lease of a fraction", function(store) store:lease_by_id(7.5):revoke() end },
    { "a step to no time", function(store) store:step({}) end },
    { "a step to a time that is no number", function(store) store:step(nan) end },
    { "a step to the end of time", function(store) store:step(inf) end },
    { "an alarm without a name", function(store) store:arm() end },
    { "an alarm that there is not", function(store) store:arm("fire") end },
    { "an alarm with a zero byte in it", function(store) store:arm("no_space\0") end },
    { "disarming an alarm that there is not", function(store) store:disarm(5) end },
    { "the calls that lead a follower", function(store) store:advance(5) end },
  }
end)

describe("a store is refused to be opened with", function()
  local function opening(opts) return function() keywatch.open(opts) end end

  refuses {
    { "a string", opening("path") },
    { "an unknown option", opening { colour = 1 } },
    { "no steps at all", opening { step_records = 0 } },
    { "a time that is no number", opening { now = nan } },
    { "a time without end", opening { now = inf } },
    { "a time beyond all clocks", opening { now = 1e300 } },
    { "a time as a string", opening { now = "0" } },
  }
  for _, name in ipairs { "max_request_bytes", "max_txn_ops", "min_lease_ttl", "step_records", "history_bytes" } do
    refuses_values(name .. " that is no count", name, not_counts, open)
  end
  refuses_values("a quota that is no whole number", "quota_backend_bytes", { 1.5, nan, inf, "1", {} }, open)
  refuses_values("follower that is no boolean", "follower", not_bools, open)
end)

describe("a method is refused", function()
  refuses {
    { "with a dot instead of a colon", function(store) store.get("a") end },
    { "with a dot, if it has no arguments", function(store) store.status() end },
    { "each, with a dot", function(store) store.each("a")() end },
    { "lease, with a dot", function(store) store.lease(5) end },
    { "lease_by_id, with a dot", function(store) store.lease_by_id(7):keepalive() end },
    { "close, with a dot", function(store) store.close() end },
    { "of a lease, with a dot", function(store) store:lease_by_id(7).keepalive() end },
    { "on a table", function(store) store.put({}, "a", "") end },
    { "on another object", function(store) store.put(io.stdout, "a", "") end },
    { "each, on a table", function(store) store.each({}, "a")() end },
    { "its finalizer, on another object", function(store) getmetatable(store).__gc(io.stdout) end },
  }

  it("with a dot in words that name the colon", function()
    local store = store_with_keys()
    for _, name in ipairs { "get", "range", "put", "delete", "txn", "compact", "leases", "status", "close" } do
      assert.matches("colon", misuse.raises(store[name], "a"))
    end
  end)
end)

describe("numbers as large as they get", function()
  it("are taken or refused, and do no harm", function()
    local store = store_with_keys()
    local before = state.of(store)
    assert.equal(1, #store:range("a", { limit = huge }).kvs)
    assert.equal(2, #store:range("", { prefix = true, limit = huge, sort_target = "mod" }).kvs)
    assert.equal("future_revision", select(2, store:get("a", { revision = huge })).code)
    assert.equal("future_revision", select(2, store:compact(huge)).code)
    assert.equal("future_revision", select(2, store:hash_kv(huge)).code)
    assert.equal("lease_ttl_too_large", select(2, store:lease(huge)).code)
    assert.equal(0, #store:range("a", { min_mod_revision = huge }).kvs)
    assert.is_false(store:txn({ compare = { { key = "a", version = huge } } }).succeeded)
    state.expect(store, before)
  end)

  it("do no harm as the options of a store", function()
    local names = { "max_request_bytes", "max_txn_ops", "step_records", "min_lease_ttl", "quota_backend_bytes" }
    for _, name in ipairs(names) do
      local ok, store = pcall(keywatch.open, { now = 1e9, [name] = huge })
      if ok then
        assert.is_table(store:put("a", ""))
        assert.is_table(store:txn { success = { { put = "a", value = "" } } })
        store:lease(5)
        assert.is_table(store:compact(3, { physical = true }))
        assert.is_false(store:step(2e9))
      end
    end
  end)

  it("do no harm as the revision of a follower", function()
    local follower = keywatch.open { now = 0, follower = true }
    local kv = { key = "a", value = "", create_revision = huge - 1, mod_revision = huge - 1, version = huge, lease = 0 }
    for _, verb in ipairs { "load", "replace" } do
      follower[verb](follower, huge - 1, { kv })
      assert.equal(huge - 1, follower:status().revision)
      assert.is_true(follower:apply(huge, { { type = "delete", key = "a" } }))
      assert.equal("stale_revision", select(2, follower:apply(huge, {})).code)
      assert.is_nil(follower:get("a"))
      assert.equal(1, follower:range("a", { revision = huge - 1 }).count)
      follower:replace(1, {})
    end
    follower:replace(huge, {})
    assert.is_false(follower:step(0))
    assert.equal(huge, follower:status().revision)
  end)
end)
