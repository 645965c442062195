--- Requests of a client: the arguments of a store's methods, encoded as etcd's messages.

local check = require "keywatch.support.check"
local core = require "keywatch.core"
local keywatch = require "keywatch"

local difference = require("spec.support.difference").difference
local dose = require "spec.support.dose"
local history = require "spec.support.history"
local message = require "spec.support.message"
local new_model = require("spec.support.model").new
local new_random = require("spec.support.random").new
local request = require "spec.support.request"
local starve = require "spec.support.starve"
local wire = require "spec.support.wire"

local requests = core.requests

local seed = tonumber(os.getenv("KW_SEED")) or os.time()

local unpack = rawget(table, "unpack") or rawget(_G, "unpack")

--- Expects a request to be, byte for byte, the message that a table describes.
local function expect(verb, expected, ...)
  local name = message.names[verb]
  local bytes = assert(requests[verb](nil, ...))
  assert.equal(wire.hex(core.encode(name, expected)), wire.hex(bytes))
  local words = difference(core.decode(name, bytes), expected, name)
  if words then error(words, 2) end
end

local MAX = "9223372036854775807"

describe("a request", function()
  it("has the given options", function()
    expect("get", { key = "a", revision = 7, serializable = true, keys_only = true }, "a",
      { revision = 7, serializable = true, keys_only = true, timeout = 1, deadline = 2 })
    expect("get", { key = "a" }, "a", { revision = 0, serializable = false, keys_only = false })
    expect("range", { key = "a" }, "a", { prefix = false, range_end = "", sort_order = "none", sort_target = "key" })
    expect("put", {}, "", "")
    expect("put", { key = "a", value = "b", lease = core.id(MAX), prev_kv = true }, "a", "b",
      { lease = { id = MAX }, prev_kv = true })
    expect("put", { key = "a", value = "b", lease = -8 }, "a", "b", { lease = "-8" })
    local long = ("long"):rep(100000)
    expect("put", { key = long, value = long }, long, long)
  end)

  it("for a transaction has its compares and operations", function()
    expect("txn", {}, {})
    expect("txn", {}, { compare = {}, success = {}, failure = {} })
    expect("txn", {
      compare = { { key = "a", mod_revision = 12, target = "MOD" } },
      success = { { request_put = { key = "a", value = "b", lease = 7 } },
        { request_delete_range = { key = "c/", range_end = "c0", prev_kv = true } } },
      failure = { { request_range = { key = "a", revision = 3 } },
        { request_range = { key = "c/", range_end = "c0", limit = 2 } },
        { request_txn = { success = { { request_txn = {} } } } } },
    }, {
      compare = { { key = "a", mod_revision = 12 } },
      success = { { put = "a", value = "b", lease = 7 }, { delete = "c/", prefix = true, prev_kv = true } },
      failure = { { get = "a", revision = 3 }, { range = "c/", prefix = true, limit = 2 },
        { txn = { success = { { txn = {} } } } } },
    })
  end)

  it("with a compare has the value of the compare, even if it is zero or empty", function()
    local function compares(expected, given) expect("txn", { compare = { expected } }, { compare = { given } }) end
    compares({ key = "a", version = 0 }, { key = "a", version = 0 })
    compares({ key = "a", target = "CREATE", create_revision = 0 }, { key = "a", create_revision = 0 })
    compares({ key = "a", target = "MOD", mod_revision = 9 }, { key = "a", mod_revision = 9, op = "=" })
    compares({ key = "a", target = "VALUE", value = "", result = "NOT_EQUAL" }, { key = "a", value = "", op = "!=" })
    compares({ key = "a", target = "VALUE", value = "v", result = "GREATER" }, { key = "a", value = "v", op = ">" })
    compares({ key = "a", target = "LEASE", lease = 0, result = "LESS" }, { key = "a", lease = 0, op = "<" })
    compares({ key = "a", target = "LEASE", lease = core.id(MAX) }, { key = "a", lease = MAX })
    compares({ key = "a", range_end = "b", version = 1 }, { key = "a", prefix = true, version = 1 })
    compares({ key = "\0", range_end = "\0", version = 1 }, { key = "", from_key = true, version = 1 })
    compares({ version = 1 }, { key = "", version = 1 })
  end)

  it("to compact, or about leases, has the given numbers and options", function()
    expect("compact", { revision = 7 }, 7)
    expect("compact", { revision = 7, physical = true }, 7, { physical = true })
    expect("compact", {}, 0)
    expect("lease_grant", { TTL = 5 }, 5)
    expect("lease_grant", { TTL = -5, ID = core.id(MAX) }, -5, { id = MAX })
    expect("lease_revoke", { ID = 7 }, 7)
    expect("lease_revoke", { ID = core.id("-9223372036854775808") }, "-9223372036854775808")
    expect("lease_keepalive", { ID = 7 }, "7")
    expect("lease_time_to_live", { ID = 7 }, 7)
    expect("lease_time_to_live", { ID = 7, keys = true }, 7, { keys = true })
    expect("leases", {})
    expect("leases", {}, { timeout = 1 })
  end)

  it("has its timeout and its deadline", function()
    local samples = { get = { "a" }, range = { "a" }, put = { "a", "b" }, delete = { "a" }, txn = { {} },
      compact = { 1 }, lease_grant = { 5 }, lease_revoke = { 7 }, lease_keepalive = { 7 }, lease_time_to_live = { 7 },
      leases = {} }
    for verb, arguments in pairs(samples) do
      local n = #arguments
      local _, timeout, deadline = requests[verb](nil, unpack(arguments))
      assert.same({}, { timeout, deadline }, verb)
      arguments[n + 1] = { timeout = 1.5 }
      _, timeout, deadline = requests[verb](nil, unpack(arguments))
      assert.same({ 1.5, nil }, { timeout, deadline }, verb)
      arguments[n + 1] = { timeout = 0, deadline = 2 ^ 40 }
      _, timeout, deadline = requests[verb](nil, unpack(arguments))
      assert.same({ 0, 2 ^ 40 }, { timeout, deadline }, verb)
    end
  end)

  it("has a timeout and a deadline that are fields of a transaction", function()
    local function times(...) return { select(2, requests.txn(nil, ...)) } end
    assert.equal(3, times({ timeout = 3 })[1])
    assert.equal(4, times({ timeout = 3 }, { timeout = 4 })[1])
    assert.equal(5, times({ deadline = 5 }, { timeout = 4 })[2])
    local inner = { txn = { timeout = 3, success = { { get = "a", timeout = 4 } } } }
    assert.is_nil(times({ success = { inner } })[1])
  end)

  it("does not depend on the receiver", function()
    local bytes = requests.put(nil, "a", "b")
    for _, self in ipairs { 5, "x", {}, false } do assert.equal(bytes, requests.put(self, "a", "b")) end
    assert.equal(bytes, requests:put("a", "b"))
  end)

  it("may be one that a store refuses", function()
    expect("put", { value = "b" }, "", "b")
    expect("put", { key = "a", value = "b", ignore_value = true }, "a", "b", { ignore_value = true })
    local ops, expected = {}, {}
    for i = 1, 1000 do ops[i], expected[i] = { get = "" }, { request_range = {} } end
    expect("txn", { success = expected }, { success = ops })
  end)

  it("has the expected message, for random arguments", function()
    local random = new_random(seed)
    local model, makes = new_model { now = 0 }, history.new(random, {})
    for step = 1, dose.of(300, 3000) do
      local one = makes:next(model)
      if message.names[one.verb] and one.verb ~= "leases" then
        local arguments = { unpack(one, 1, one.n) }
        local ok, err = pcall(expect, one.verb, message.of(one.verb, unpack(arguments, 1, one.n)),
          unpack(arguments, 1, one.n))
        if not ok then error(("seed %d, step %d: %s: %s"):format(seed, step, request.show(one), err), 0) end
      end
      if step % 10 == 0 then request.perform(one, model) end
    end
  end)
end)

-- Usage errors -------------------------------------------------------------------------------------------------------

describe("a usage error", function()
  local store

  before_each(function() store = keywatch.open { now = 0 } end)
  after_each(function() store:close() end)

  --- Returns the error that a method of the store, or the request with its name, raises at this line. Texts about a
  -- missing argument and about nil count as equal.
  local function raised(verb, method, ...)
    local ok, err = pcall(check.call, verb, method, store, ...)
    assert.is_false(ok, verb)
    return (err:gsub("got no value", "got nil"))
  end

  --- Expects a request to raise the same text as the method of the store.
  local function is_the_same(verb, ...)
    assert.equal(raised(verb, store[verb], ...), raised(verb, requests[verb], ...))
  end

  local bad = { 5, -1, 1.5, true, "x", {}, 0 / 0, math.huge, print }

  local function are_the_same(verb, name, ...)
    local arguments, n = { ... }, select("#", ...)
    for _, value in ipairs(bad) do
      arguments[n + 1] = { [name] = value }
      if not pcall(store[verb], store, unpack(arguments, 1, n + 1)) then
        is_the_same(verb, unpack(arguments, 1, n + 1))
      else
        assert(requests[verb](store, unpack(arguments, 1, n + 1)))
      end
    end
  end

  it("in arguments has the text of the store", function()
    for _, verb in ipairs { "get", "range", "put", "delete", "txn", "compact", "lease_grant", "lease_revoke",
      "lease_keepalive", "lease_time_to_live" } do
      is_the_same(verb)
      is_the_same(verb, true)
      is_the_same(verb, print)
      if verb ~= "txn" then is_the_same(verb, {}) end
    end
    is_the_same("put", "a", nil, { prev_kv = true })
    for _, call in ipairs {
      { "put", "a" }, { "put", "a", 5 }, { "compact", -1 }, { "compact", 1.5 }, { "lease_grant", 1.5 },
      { "lease_revoke", "seven" }, { "leases", 5 }, { "get", "a", 5 }, { "txn", {}, { colour = 1 } },
      { "range", "a", { prefix = true, range_end = "b" } },
    } do is_the_same(unpack(call)) end
  end)

  it("in options has the text of the store", function()
    local options = {
      get = { "revision serializable keys_only timeout deadline limit colour", "a" },
      range = { "prefix from_key range_end limit revision sort_order sort_target serializable keys_only count_only "
        .. "min_mod_revision max_mod_revision min_create_revision max_create_revision timeout deadline colour", "a" },
      put = { "lease prev_kv ignore_value ignore_lease timeout colour", "a", "b" },
      delete = { "prefix range_end prev_kv timeout colour", "a" },
      compact = { "physical timeout colour", 1 },
      lease_grant = { "id timeout colour", 5 },
      lease_revoke = { "timeout colour", 7 },
      lease_keepalive = { "timeout colour", 7 },
      lease_time_to_live = { "keys timeout colour", 7 },
    }
    for verb, case in pairs(options) do
      for name in case[1]:gmatch("%S+") do are_the_same(verb, name, unpack(case, 2)) end
    end
  end)

  it("in transactions has the text of the store", function()
    local round = {}
    round.success = { { txn = round } }
    for _, txn in ipairs {
      { colour = 1 }, { success = 5 }, { success = { 5 } }, { success = { {} } }, { success = { [2] = { get = "a" } } },
      { success = { { put = "a" } } }, { success = { { put = "a", get = "b", value = "" } } },
      { success = { { get = 5 } } }, { failure = { { txn = 5 } } }, { failure = { { txn = { colour = 1 } } } },
      { compare = { {} } }, { compare = { { key = "a" } } }, { compare = { { key = "a", version = 1, value = "" } } },
      { compare = { { key = "a", version = 1, op = "~" } } }, { timeout = "1" }, round,
    } do
      is_the_same("txn", txn)
    end
  end)
end)

-- Large requests -----------------------------------------------------------------------------------------------------

describe("an enormous transaction #slow", function()
  it("is too large, however it is nested", function()
    local function code(txn) return select(2, requests.txn(nil, txn)).code end
    local ops = {}
    for i = 1, 1000 do ops[i] = { get = "a" } end
    local folded = { success = ops }
    for _ = 1, 3 do
      local list = {}
      for i = 1, 100 do list[i] = { txn = folded } end
      folded = { success = list }
    end
    assert.equal("request_too_large", code(folded))

    local compares, list = {}, {}
    for i = 1, 1000 do compares[i] = { key = "a", version = 1 } end
    for i = 1, 1000 do list[i] = { txn = { compare = compares } } end
    assert.equal("request_too_large", code { success = list })
    assert.equal("request_too_large", select(2, keywatch.open({ now = 0 }):txn { success = list }).code)

    local puts, put = {}, { put = "a", value = ("x"):rep(2 ^ 20) }
    for i = 1, 300 do puts[i] = put end
    assert.equal("request_too_large", code { success = puts })
  end)
end)

-- Finalizers and memory ----------------------------------------------------------------------------------------------

local long = ("x"):rep(10000)

local calls = {
  { "get", "a" },
  { "put", "a", long },
  { "range", long, { prefix = true } },
  { "delete", "a", { prefix = true } },
  { "txn", { compare = { { key = "a", value = long } },
    success = { { put = "a", value = long }, { range = long, prefix = true },
      { txn = { failure = { { get = "b" } } } } } } },
  { "lease_grant", 5 },
  { "leases" },
}

local acts = {}
for i, call in ipairs(calls) do acts[i] = function() return requests[call[1]](nil, call[2], call[3]) end end

starve.declare("a request", acts)
