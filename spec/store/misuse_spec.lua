--- Misuse of a store: invalid arguments raise a helpful error, and change nothing.

local keywatch = require "keywatch"

local misuse = require "spec.support.misuse"
local program = require "spec.support.program"
local state = require "spec.support.state"

local load_text = rawget(_G, "loadstring") or load
local nan, inf = 0 / 0, math.huge
local huge = rawget(math, "maxinteger") or 2 ^ 53 - 1 -- the largest number that is taken for a whole one

local function store_with_keys()
  local store = keywatch.open { now = 0 }
  local lease = store:lease(10, { id = 7 })
  store:put("a", "1", { lease = lease })
  store:put("b", "2")
  return store
end

local function with_store(fn) return function() fn(store_with_keys()) end end

--- One test for a list of calls, as text: each must raise, and must leave the store as it was.
local function refuses(title, calls)
  it(title, with_store(function(store)
    local before = state.of(store)
    for _, text in ipairs(calls) do
      local call = assert(load_text("local store, keywatch, nan, inf = ... " .. text))
      local ok, err = pcall(misuse.raises, call, store, keywatch, nan, inf)
      if not ok then error(("%s: %s"):format(text, err), 0) end
    end
    state.expect(store, before)
  end))
end

--- One test for options that share their kind, { name, call } … : they can have none of the values.
local function refuses_values(title, values, options)
  it(title, with_store(function(store)
    local before = state.of(store)
    for _, option in ipairs(options) do
      for _, value in ipairs(values) do misuse.raises(option[2], store, { [option[1]] = value }) end
    end
    state.expect(store, before)
  end))
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

describe("a call is refused", function()
  it("with a key that is not a string", with_store(function(store)
    local before = state.of(store)
    for _, name in ipairs { "get", "range", "put", "delete" } do
      for _, key in ipairs(not_strings) do misuse.raises(store[name], store, key, name == "put" and "" or nil) end
      misuse.raises(store[name], store)
    end
    for _, key in ipairs(not_strings) do misuse.raises(function() store:each(key)() end) end
    state.expect(store, before)
  end))

  refuses("with a missing value, or one that is not a string", {
    'store:put("a")', 'store:put("a", nil, {})', 'store:put("a", 5)', 'store:put("a", { prev_kv = true })',
  })

  refuses("with options that are not a table", {
    'store:get("a", 5)', 'store:put("a", "", "lease")', 'store:each("a", 5)()', "store:lease(5, true)",
    'store:range("a", { "prefix" })',
  })

  refuses("with an unknown option", {
    'store:get("a", { prefix = true })', 'store:range("a", { colour = 1 })', 'store:each("a", { colour = 1 })()',
    'store:put("a", "", { prefix = true })', 'store:delete("a", { limit = 1 })', "store:compact(2, { colour = 1 })",
    "store:lease(5, { colour = 1 })", "store:lease_by_id(7):keepalive { colour = 1 }",
    "store:lease_by_id(7):remaining { colour = 1 }", "store:lease_by_id(7):revoke { colour = 1 }",
  })

  refuses("with a name that is known only up to a zero byte", {
    [[store:range("a", { ["limit\0"] = 1 })]], [[store:range("a", { sort_order = "ascend\0" })]],
    [[store:arm("no_space\0")]],
  })

  refuses("with an unknown choice", {
    'store:range("a", { sort_order = "up" })', 'store:range("a", { sort_target = "mod_revision" })',
    'store:arm("fire")', "store:arm()", "store:disarm(5)",
  })

  refuses("with two ends of a range", {
    'store:range("a", { prefix = true, range_end = "b" })', 'store:delete("a", { prefix = true, from_key = true })',
    'store:each("a", { from_key = true, range_end = "b" })()',
  })

  refuses_values("with a count that is negative or not an integer", not_counts, {
    { "limit", range }, { "limit", each }, { "page", each }, { "revision", range }, { "revision", get },
    { "revision", each }, { "min_mod_revision", range }, { "max_mod_revision", range },
    { "min_create_revision", range }, { "max_create_revision", range },
  })
  refuses_values("with a flag that is not a boolean", not_bools, {
    { "prefix", range }, { "prefix", each }, { "prefix", delete }, { "from_key", range }, { "keys_only", get },
    { "count_only", range }, { "serializable", range }, { "prev_kv", delete }, { "ignore_value", put },
    { "physical", compact },
  })
  refuses_values("with a range_end that is not a string", not_strings, {
    { "range_end", range }, { "range_end", each }, { "range_end", delete },
  })
  refuses_values("with a malformed id", not_ids, { { "lease", put }, { "id", lease } })
  refuses_values("with a malformed timeout", { "1", nan, true, {} }, { { "timeout", range }, { "deadline", put } })

  it("with a revision that is not a count", with_store(function(store)
    local before = state.of(store)
    for _, value in ipairs(not_counts) do
      misuse.raises(store.compact, store, value)
      misuse.raises(store.hash_kv, store, value)
    end
    misuse.raises(store.compact, store)
    state.expect(store, before)
  end))

  refuses("with a TTL that is not an integer", {
    "store:lease()", "store:lease(2.5)", "store:lease(nan)", "store:lease(inf)", 'store:lease("5")',
  })

  refuses("with a lease of a malformed id", {
    "store:lease_by_id()", "store:lease_by_id(true)", 'store:lease_by_id("seven"):keepalive()',
    "store:lease_by_id(7.5):revoke()",
  })

  refuses("with a step to a malformed time", { "store:step({})", "store:step(nan)", "store:step(inf)" })
end)

describe("opening a store is refused", function()
  refuses("with unknown options", {
    'keywatch.open("path")', "keywatch.open { colour = 1 }", "keywatch.open { step_records = 0 }",
    "keywatch.open { journal_segment_bytes = 0 }", "keywatch.open { journal_segment_bytes = 65535 }",
    "keywatch.open { journal_segment_bytes = 1073741825 }",
  })

  refuses("at a malformed time", {
    "keywatch.open { now = nan }", "keywatch.open { now = inf }", "keywatch.open { now = 1e300 }",
    'keywatch.open { now = "0" }',
  })

  refuses_values("with a count that is negative or not an integer", not_counts, {
    { "max_request_bytes", open }, { "max_txn_ops", open }, { "min_lease_ttl", open }, { "step_records", open },
    { "history_bytes", open }, { "history_idle_bytes", open }, { "journal_segment_bytes", open },
  })
  refuses_values("with a quota that is not an integer", { 1.5, nan, inf, "1", {} }, {
    { "quota_backend_bytes", open },
  })
  refuses_values("with a flag that is not a boolean", not_bools, { { "replica", open } })
end)

describe("a method is refused", function()
  refuses("without its object, by a dot instead of a colon", {
    'store.get("a")', "store.status()", 'store.each("a")()', "store.lease(5)", "store.lease_by_id(7):keepalive()",
    "store.close()", "store:lease_by_id(7).keepalive()",
  })

  refuses("on another object", { 'store.put({}, "a", "")', 'store.put(io.stdout, "a", "")', 'store.each({}, "a")()' })

  refuses("to finalize another object", { "getmetatable(store).__gc(io.stdout)" })

  it("with a text that names the colon", with_store(function(store)
    for _, name in ipairs { "get", "range", "put", "delete", "txn", "compact", "leases", "status", "close" } do
      assert.matches("colon", misuse.raises(store[name], "a"))
    end
  end))
end)

describe("an invalid element of a list", function()
  it("is reported by the list and its number", with_store(function(store)
    for _, n in ipairs { 1, 9, 10, 109 } do
      local list = {}
      for i = 1, n - 1 do list[i] = { get = "a" } end
      for _, name in ipairs { "success", "failure" } do
        list[n] = 5
        local what = ("%s[%d]"):format(name, n)
        local function txn() store:txn { [name] = list } end
        assert.matches(what .. " must be a table, not a number", misuse.raises(txn), 1, true)
        list[n] = { get = "a", colour = 1 }
        assert.matches(what .. ": there is no option 'colour'", misuse.raises(txn), 1, true)
      end
    end
  end))
end)

describe("numbers of any size", function()
  it("are accepted or refused, and do no harm", with_store(function(store)
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
  end))

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

  it("do no harm as the revision of a replica", function()
    local replica = keywatch.open { now = 0, replica = true }
    local last = math.tointeger and math.tointeger(2 ^ 62) - 1 or huge -- there is always room for a next one
    local kv = { key = "a", value = "", create_revision = last - 1, mod_revision = last - 1, version = huge, lease = 0 }
    assert.is_true(replica:load_kvs(last - 1, { kv }))
    assert.equal(last - 1, replica:status().revision)
    assert.is_true(replica:apply(last, { { type = "delete", key = "a" } }))
    assert.equal("stale_revision", select(2, replica:merge_kvs(last - 1, {})).code)
    assert.is_nil(replica:get("a"))
    assert.equal(1, replica:range("a", { revision = last - 1 }).count)
    assert.is_true(replica:merge_kvs(last, {}))
    assert.is_false(replica:step(0))
    assert.equal(last, replica:status().revision)
    if huge > last then assert.is_false((pcall(replica.merge_kvs, replica, huge, {}))) end
  end)
end)

describe("a store of a program", function()
  it("has no methods for replicas and manual clocks", function()
    assert.equal("nil nil nil nil\n", program.printed_by [[
      local store = require("keywatch").open()
      io.write(("%s %s %s %s\n"):format(store.load, store.apply, store.step, store.deadline))
    ]])
  end)
end)
