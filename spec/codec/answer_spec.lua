--- Answers to a client: etcd's messages, decoded to the results of a store's methods.

local core = require "keywatch.core"
local keywatch = require "keywatch"

local difference = require("spec.support.difference").difference
local dose = require "spec.support.dose"
local history = require "spec.support.history"
local new_model = require("spec.support.model").new
local new_random = require("spec.support.random").new
local request = require "spec.support.request"
local starve = require "spec.support.starve"
local wire = require "spec.support.wire"
local wired = require "spec.support.wired"

local answers, requests = core.answers, core.requests

local is_fast = dose.is_small
local seed = tonumber(os.getenv("KW_SEED")) or os.time()

local LEAST, MOST = core.id("-9223372036854775808"), core.id("9223372036854775807")

-- Requests that this spec does not make of a client.
local SKIPPED = { arm = true, disarm = true, hash_kv = true }

--- The fields of an error that a server sends. The compacted revision is not one of them.
local function plain(err)
  return err and { code = err.code, message = err.message, grpc_status = err.grpc_status }
end

--- Makes the same random requests of a store and of a store behind a server; all answers must be equal.
local function compare_histories(random, steps, on_answer)
  local model, makes = new_model { now = 0 }, history.new(random, {})
  local store, remote = keywatch.open { now = 0 }, wired.new({ now = 0 }, on_answer)
  for step = 1, steps do
    local one = makes:next(model)
    if not SKIPPED[one.verb] then
      request.perform(one, model)
      local expected, expected_err = request.perform(one, store)
      local got, err = request.perform(one, remote)
      local words = difference(plain(err), plain(expected_err), "the error") or difference(got, expected, "the answer")
      if words then error(("seed %d, step %d: %s: %s"):format(seed, step, request.show(one), words), 0) end
    end
  end
  remote:close()
  store:close()
end

describe("an answer", function()
  it("is the store's result, for random histories", function()
    local count, i = 0, 0
    while i < (is_fast and 2 or 6) or count <= 200 do
      i = i + 1
      assert(i < 100, "there are too few answers")
      compare_histories(new_random(seed + i), is_fast and 150 or 600, function() count = count + 1 end)
    end
  end)

  local function header(revision) return wire.field(1, "\24" .. string.char(revision)) end

  it("to a get is the kv, or nothing", function()
    local kv = { key = "a", value = "b", create_revision = 2, mod_revision = 3, version = 4, lease = MOST }
    local bytes = core.encode("RangeResponse", { header = { revision = 7 }, kvs = { kv }, count = 1 })
    assert.same(kv, answers.get(bytes))
    assert.same(kv, answers.get(bytes, "a"))
    assert.same(kv, answers.get(bytes, "b")) -- the client trusts the server
    assert.same({ nil, nil, n = 1 }, { n = select("#", answers.get(header(7))), answers.get(header(7)) })
    assert.is_nil(answers.get(""))
    assert.equal("malformed", select(2, answers.get(core.encode("RangeResponse", { kvs = { kv, kv } }))).code)
  end)

  it("has zero or empty fields for those that the server has left out", function()
    local empty = { key = "a", value = "", create_revision = 0, mod_revision = 0, version = 0, lease = 0 }
    local bytes = core.encode("RangeResponse", { kvs = { { key = "a" } } })
    assert.same(empty, answers.get(bytes))
    assert.same({ revision = 0, kvs = { empty }, count = 0, more = false }, answers.range(bytes))
    assert.same({ revision = 0, kvs = {}, count = 0, more = false }, answers.range(""))
    assert.same({ revision = 0 }, answers.put(""))
    assert.same({ revision = 0, deleted = 0 }, answers.delete(""))
    assert.same({ revision = 0, deleted = 0, prev_kvs = {} }, answers.delete("", true))
    assert.same({ revision = 0 }, answers.compact(""))
    assert.same({ revision = 0 }, answers.lease_revoke(""))
    assert.same({ id = 0, ttl = 0 }, answers.lease_grant(""))
    assert.same({ ttl = 0, granted_ttl = 0 }, answers.lease_time_to_live(""))
    assert.same({ ttl = 0, granted_ttl = 0, keys = {} }, answers.lease_time_to_live("", true))
    assert.same({}, answers.leases(""))
  end)

  it("ignores unknown fields", function()
    local more = wire.field(30, "x") .. wire.tag(31, 0) .. "\1"
    assert.same({ revision = 7 }, answers.put(header(7) .. more))
    assert.equal("a", answers.get(wire.field(2, "\10\1a" .. more) .. more).key)
  end)

  it("has impossible numbers as they were sent", function()
    local range = answers.range(core.encode("RangeResponse",
      { header = { revision = "-9223372036854775808" }, count = -1, more = true }))
    assert.same({ -2 ^ 63 + 0.0, -1, true }, { range.revision + 0.0, range.count, range.more })
    assert.equal(-5, answers.delete(core.encode("DeleteRangeResponse", { deleted = -5 })).deleted)
    assert.same({ id = LEAST, ttl = -1 }, answers.lease_grant(core.encode("LeaseGrantResponse",
      { ID = "-9223372036854775808", TTL = -1 })))
    assert.same({ LEAST, 0, 7, MOST }, answers.leases(core.encode("LeaseLeasesResponse",
      { leases = { { ID = LEAST }, {}, { ID = 7 }, { ID = MOST } } })))
  end)

  it("has the keys of a lease in order, unlike etcd", function()
    local bytes = core.encode("LeaseTimeToLiveResponse", { TTL = 1, keys = { "b", "a\255", "", "a", "a\0", "b" } })
    assert.same({ "", "a", "a\0", "a\255", "b", "b" }, answers.lease_time_to_live(bytes, true).keys)
  end)

  it("about a missing lease is an error", function()
    local bytes = core.encode("LeaseTimeToLiveResponse", { ID = 7, TTL = -1 })
    assert.equal("lease_not_found", select(2, answers.lease_time_to_live(bytes)).code)
    assert.equal("lease_not_found", select(2, answers.lease_time_to_live(bytes, true)).code)
    assert.equal("lease_not_found", select(2, answers.lease_keepalive(core.encode("LeaseKeepAliveResponse",
      { ID = 7 }))).code)
    assert.equal(5, answers.lease_keepalive(core.encode("LeaseKeepAliveResponse", { ID = 7, TTL = 5 })))
  end)
end)

-- Malformed answers --------------------------------------------------------------------------------------------------

describe("a malformed answer", function()
  local FAILURES = { malformed = true, lease_not_found = true }

  --- Decodes an answer. That must not raise, and may fail only with a known code.
  local function try(verb, bytes, memo)
    local ok, got, err = pcall(answers[verb], bytes, memo)
    if not ok then error(("%s raised for %s: %s"):format(verb, wire.hex(bytes), tostring(got)), 0) end
    if err then assert(got == nil and FAILURES[err.code], err) end
    return got, err
  end

  local samples = {} -- { verb, bytes, memo }

  setup(function()
    local i = 0
    while #samples < 100 do
      i = i + 1
      assert(i < 100, "there are too few answers")
      compare_histories(new_random(seed + i), is_fast and 150 or 500, function(verb, bytes, memo)
        samples[#samples + 1] = { verb, bytes, memo }
      end)
    end
  end)

  it("may be truncated anywhere", function()
    local refused = 0
    for _, sample in ipairs(samples) do
      local verb, bytes, memo = sample[1], sample[2], sample[3]
      assert(not select(2, try(verb, bytes, memo)) or verb:find("^lease"))
      for len = 0, math.min(#bytes, 400) - 1 do
        local _, err = try(verb, bytes:sub(1, len), memo)
        if err then refused = refused + 1 end
      end
    end
    assert.is_true(refused > 1000)
  end)

  it("may be altered anywhere", function()
    local random = new_random(seed)
    for _ = 1, dose.of(3000, 30000) do
      local sample = random:pick(samples)
      local bytes = sample[2]
      for _ = 1, random:between(1, 3) do
        local at = random:between(0, #bytes)
        bytes = bytes:sub(1, at) .. random:bytes(random:between(0, 2)) .. bytes:sub(at + 1 + random:between(0, 2))
      end
      try(sample[1], bytes, sample[3])
      core.header(bytes)
    end
  end)

  it("may belong to another request", function()
    local random = new_random(seed)
    for _ = 1, dose.of(1000, 10000) do
      local asked, answered = random:pick(samples), random:pick(samples)
      try(asked[1], answered[2], asked[3])
      core.header(answered[2])
    end
  end)

  it("is refused if a kv has no key, or is malformed", function()
    local function code(verb, field, kv, memo)
      return select(2, try(verb, wire.field(field, kv), memo)).code
    end
    for _, kv in ipairs { "", "\16\2", "\10\0", "\10\2a", "\10\1a\16", "\8\1", "\10\1a\42\5b" } do
      assert.equal("malformed", code("get", 2, kv))
      assert.equal("malformed", code("range", 2, kv))
      assert.equal("malformed", code("put", 2, kv))
      assert.equal("malformed", code("delete", 3, kv))
      assert.equal("malformed", code("delete", 3, kv, true))
    end
  end)

  it("is refused if it has other operations than the transaction, or another number of them", function()
    local get, put = { response_range = {} }, { response_put = {} }
    local delete, txn = { response_delete_range = {} }, { response_txn = {} }
    local _, _, _, memo = requests.txn(nil, {
      success = { { get = "a" }, { put = "a", value = "" }, { delete = "a" }, { range = "a" } },
      failure = { { txn = { success = { { get = "b" } }, failure = {} } } },
    })
    local function read(responses, succeeded)
      return try("txn", core.encode("TxnResponse", { succeeded = succeeded, responses = responses }), memo)
    end
    local range = { revision = 0, kvs = {}, count = 0, more = false }
    assert.same({ revision = 0, succeeded = true, responses = { false, { revision = 0 },
      { revision = 0, deleted = 0 }, range } }, read({ get, put, delete, get }, true))
    assert.same({ revision = 0, succeeded = false, responses = { { revision = 0, succeeded = false,
      responses = {} } } }, read({ txn }, false))
    assert.same({ revision = 0, succeeded = false, responses = { { revision = 0, succeeded = true,
      responses = { false } } } }, read({ { response_txn = { succeeded = true, responses = { get } } } }, false))
    for _, responses in ipairs { {}, { get }, { get, put, delete }, { get, put, delete, get, get },
      { put, get, delete, get }, { get, put, delete, txn }, { {}, put, delete, get }, { get, put, delete, {} } } do
      assert.equal("malformed", select(2, read(responses, true)).code)
    end
    for _, responses in ipairs { {}, { get }, { txn, txn }, { {} }, { { response_txn = { succeeded = true } } },
      { { response_txn = { succeeded = true, responses = { put } } } },
      { { response_txn = { responses = { get } } } } } do
      assert.equal("malformed", select(2, read(responses, false)).code)
    end
  end)

  it("is refused if it is nested too deeply", function()
    local txn = {}
    for _ = 1, 199 do txn = { success = { { txn = txn } } } end
    local _, _, _, memo = requests.txn(nil, txn)
    assert(memo)
    local bytes = ""
    for _ = 1, 1000 do bytes = "\16\1" .. wire.field(3, wire.field(4, bytes)) end
    assert.equal("malformed", select(2, try("txn", bytes, memo)).code)
  end)

  it("costs no more than its length", function()
    assert.equal("malformed", select(2, try("range", ("\18\0"):rep(200000))).code)
    assert.equal("malformed", select(2, try("delete", ("\26\0"):rep(200000), true)).code)
    local _, _, _, memo = requests.txn(nil, {})
    assert.equal("malformed", select(2, try("txn", ("\26\0"):rep(200000), memo)).code)
    assert.equal(200000, #try("leases", ("\18\0"):rep(200000)))
  end)

  it("must be a string, and that of a transaction needs the memo of the request", function()
    for verb in pairs(answers) do
      assert.is_false(pcall(answers[verb]))
      assert.is_false(pcall(answers[verb], {}))
    end
    assert.is_false(pcall(answers.txn, ""))
    assert.is_false(pcall(answers.txn, "", {}))
    assert.is_false(pcall(answers.txn, "", io.stdout))
  end)
end)

-- Finalizers and memory ----------------------------------------------------------------------------------------------

local kvs, ids = {}, {}
for i = 1, 30 do
  kvs[i] = { key = ("key %d"):format(i), value = ("value"):rep(i), mod_revision = i, create_revision = 1, version = i,
    lease = MOST }
  ids[i] = { ID = i }
end

local _, _, _, memo = requests.txn(nil, { success = { { range = "key", prefix = true }, { get = "key 1" },
  { put = "a", value = "" }, { txn = { failure = { { delete = "a", prev_kv = true } } } } } })

local samples = {
  { "get", core.encode("RangeResponse", { kvs = { kvs[1] } }), "key 1" },
  { "range", core.encode("RangeResponse", { kvs = kvs, count = 30 }) },
  { "put", core.encode("PutResponse", { prev_kv = kvs[2] }) },
  { "txn", core.encode("TxnResponse", { succeeded = true, responses = { { response_range = { kvs = kvs } },
    { response_range = {} }, { response_put = {} },
    { response_txn = { responses = { { response_delete_range = { prev_kvs = kvs } } } } } } }), memo },
  { "lease_time_to_live", core.encode("LeaseTimeToLiveResponse", { keys = { "a", "b" } }), true },
  { "leases", core.encode("LeaseLeasesResponse", { leases = ids }) },
}

local acts = {}
for i, sample in ipairs(samples) do acts[i] = function() return answers[sample[1]](sample[2], sample[3]) end end

starve.declare("an answer", acts)

-- Headers and errors -------------------------------------------------------------------------------------------------

describe("the header of an answer", function()
  local function of(bytes) return { n = select("#", core.header(bytes)), core.header(bytes) } end

  it("has the cluster, the member, the revision and the term", function()
    local bytes = core.encode("PutResponse", { header = { cluster_id = "14841639068965178418",
      member_id = "10276657743932975437", revision = 7, raft_term = 2 }, prev_kv = { key = "a" } })
    assert.same({ n = 4, "14841639068965178418", "10276657743932975437", 7, 2 }, of(bytes))
    assert.same({ n = 4, "0", "0", 0, 0 }, of("\10\0"))
    assert.same({ n = 4, "9", "10", 0, 0 }, of(wire.field(30, "x") .. wire.field(1, "\8\9\16\10")))
    assert.same({ n = 4, "18446744073709551615", "0", 0, 0 }, of(wire.field(1, "\8" .. ("\255"):rep(9) .. "\1")))
  end)

  it("is missing, or malformed", function()
    for _, bytes in ipairs { "", "\18\0", "\10\2\8", "\10", "\8\1", "\10\1\8", "\10\2\10\0", "\255" } do
      assert.same({ n = 0 }, of(bytes))
    end
  end)
end)

describe("the error of an answer", function()
  local function of(...)
    local err = core.error_of(...)
    return { err.code, err.message, err.grpc_status }
  end

  it("is recognized by its text, with any status", function()
    for code, entry in pairs(core.errors) do
      assert.same({ code, entry.message, entry.grpc_status }, of(entry.grpc_status, entry.message))
      assert.same({ code, entry.message, 2 }, of(2, entry.message))
    end
  end)

  it("is otherwise recognized by its status", function()
    local codes = { "cancelled", "unknown", "invalid_argument", "deadline_exceeded", "not_found", "already_exists",
      "permission_denied", "resource_exhausted", "failed_precondition", "aborted", "out_of_range", "unimplemented",
      "internal", "unavailable", "data_loss", "unauthenticated" }
    for status, code in ipairs(codes) do
      assert.same({ code, "some text", status }, of(status, "some text"))
      assert.same({ code, core.errors[code].message, status }, of(status, ""))
      assert.same({ code, core.errors[code].message, status }, of(status))
    end
    for _, status in ipairs { 0, 17, 99, -1, 2 ^ 31, -2 ^ 31 } do
      assert.same({ "unknown", "text", status }, of(status, "text"))
    end
    assert.equal("invalid_argument", of(3, "etcdserver: user name is empty")[1])
    assert.equal("unavailable", of(14, "etcdserver: leader changed")[1])
    assert.equal("not_found", of(5, "etcdserver: requested lease not found ")[1])
  end)

  it("is an error like any other", function()
    local err = core.error_of(14, "etcdserver: no leader")
    assert.equal("etcdserver: no leader (unavailable)", tostring(err))
    assert.equal(getmetatable(core.new_error("closed")), getmetatable(err))
  end)
end)
