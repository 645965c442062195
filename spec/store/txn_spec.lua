--- Transactions: several operations in one revision, or none of them.

local keywatch = require "keywatch"

local answer = require "spec.support.answer"
local state = require "spec.support.state"

local code, keys = answer.code, answer.keys

local never = { { key = "no such key", version = 1 } } -- compares that do not hold

local function store_of(...) return answer.fill(keywatch.open { now = 0 }, ...) end

--- The transaction must fail with that code and change nothing.
local function refuses(store, expected, txn)
  local before = state.trace(store)
  assert.equal(expected, code(store:txn(txn)))
  assert.equal(before, state.trace(store))
end

local function with_store(fn) return function() fn(store_of("a")) end end

describe("a transaction", function()
  it("runs the operations of one of its branches", with_store(function(store)
    local txn = { success = { { put = "then", value = "" } }, failure = { { put = "else", value = "" } } }
    assert.is_true(store:txn(txn).succeeded)
    assert.equal("a then", keys(store:range("", { prefix = true })))
    txn.compare = never
    assert.is_false(store:txn(txn).succeeded)
    assert.equal("a else then", keys(store:range("", { prefix = true })))
  end))

  it("answers each operation like the plain call", function()
    local store = store_of("a", "b", "c")
    local kv = store:get("a")
    assert.same({
      succeeded = true,
      revision = 5,
      responses = {
        kv,
        false,
        { revision = 4, kvs = { kv }, count = 3, more = true }, { revision = 5, prev_kv = kv }, { revision = 5 },
        { revision = 5, deleted = 1, prev_kvs = { { key = "b", value = "b", create_revision = 3, mod_revision = 3,
          version = 1, lease = 0 } } },
        { revision = 5, deleted = 0 },
      },
    }, store:txn { success = {
      { get = "a" }, { get = "none" }, { range = "", prefix = true, limit = 1 },
      { put = "a", value = "new", prev_kv = true }, { put = "d", value = "" }, { delete = "b", prev_kv = true },
      { delete = "none", prefix = true },
    } })
  end)

  it("gives all its changes one revision, which becomes visible as a whole", function()
    local store = store_of("a", "b")
    store:txn { success = { { put = "a", value = "1" }, { put = "c", value = "2" }, { delete = "b" } } }
    assert.equal(4, store:status().revision)
    assert.same({ 4, 2, 4 }, { store:get("a").mod_revision, store:get("a").create_revision,
      store:get("c").create_revision })
    assert.equal("a b", keys(store:range("", { prefix = true, revision = 3 })))
    assert.equal("a c", keys(store:range("", { prefix = true, revision = 4 })))
  end)

  it("reports the old revision until a change, and then the new one", with_store(function(store)
    local revisions = {}
    local answered = store:txn { success = {
      { range = "a" }, { delete = "none" }, { put = "b", value = "" }, { range = "a" }, { delete = "none" },
    } }
    for i, response in ipairs(answered.responses) do revisions[i] = response.revision end
    assert.same({ 2, 2, 3, 3, 3 }, revisions)
    assert.equal(3, answered.revision)
  end))

  it("without changes makes no revision", with_store(function(store)
    local before = state.of(store)
    assert.equal(2, store:txn({ success = { { get = "a" }, { delete = "none" }, { txn = {} } } }).revision)
    state.expect(store, before)
  end))
end)

describe("a nested transaction", function()
  it("has its answer in its place, with the revision of the outer transaction", with_store(function(store)
    assert.same({
      succeeded = true,
      revision = 3,
      responses = {
        { succeeded = false, revision = 3, responses = { false } }, { revision = 3 },
        { succeeded = true, revision = 3, responses = { { revision = 3 }, { succeeded = true, revision = 3,
          responses = {} } } },
      },
    }, store:txn { success = {
      { txn = { compare = never, failure = { { get = "b" } } } }, { put = "b", value = "" },
      { txn = { success = { { put = "c", value = "" }, { txn = {} } } } },
    } })
    assert.equal("a b c", keys(store:range("", { prefix = true, revision = 3 })))
  end))

  it("compares with the state before the outer transaction", with_store(function(store)
    local responses = store:txn { success = {
      { put = "a", value = "changed" }, { put = "b", value = "" },
      { txn = {
        compare = { { key = "a", value = "a" }, { key = "b", version = 0 } },
        success = { { get = "a" } },
        failure = { { put = "wrong", value = "" } },
      } },
    } }.responses
    assert.is_true(responses[3].succeeded)
    assert.equal("changed", responses[3].responses[1].value) -- but it reads what was written
  end))

  it("may be as deep as the number of operations allows", function()
    local store = store_of()
    local txn = { success = { { put = "deep", value = "" } } }
    for _ = 1, 127 do txn = { success = { { txn = txn } } } end
    assert.is_true(store:txn(txn).succeeded)
    assert.equal("", store:get("deep").value)
    refuses(store, "too_many_ops", { success = { { txn = txn } } })
  end)

  it("may be one deeper without operations", function()
    local txn = {}
    for _ = 1, 128 do txn = { success = { { txn = txn } } } end
    assert.is_true(store_of():txn(txn).succeeded)
    refuses(store_of(), "too_many_ops", { success = { { txn = txn } } })
  end)
end)

describe("a delete without an end", function()
  it("deletes keys that were put before it in the transaction", with_store(function(store)
    local answered = store:txn { success = {
      { put = "k", value = "new" }, { delete = "b", from_key = true, prev_kv = true },
    } }
    assert.equal("k", keys(answered.responses[2].prev_kvs))
    assert.equal("a", keys(store:range("", { prefix = true })))
  end))

  it("keeps keys that are put after it in the transaction, as new keys", function()
    local store = store_of("a", "k")
    local answered = store:txn { success = {
      { delete = "a", from_key = true }, { put = "k", value = "new", prev_kv = true }, { range = "", prefix = true },
    } }
    assert.equal(2, answered.responses[1].deleted)
    assert.is_nil(answered.responses[2].prev_kv)
    assert.equal("k", keys(answered.responses[3].kvs))
    local kv = store:get("k")
    assert.same({ 1, answered.revision, "new" }, { kv.version, kv.create_revision, kv.value })
    assert.equal("a k", keys(store:range("", { prefix = true, revision = answered.revision - 1 })))
  end)
end)

describe("a transaction with an error at run time", function()
  it("fails as a whole if a lease is missing", function()
    refuses(store_of("a"), "lease_not_found", { success = {
      { put = "b", value = "" }, { delete = "a" }, { put = "c", value = "", lease = 7 },
    } })
  end)

  it("fails as a whole if it has deleted a key whose value or lease an operation needs", function()
    for _, option in ipairs { "ignore_value", "ignore_lease" } do
      refuses(store_of("a", "k"), "key_not_found", { success = {
        { put = "b", value = "" }, { delete = "a", from_key = true }, { put = "k", value = "", [option] = true },
      } })
    end
  end)

  it("fails as a whole if it cannot read a revision", function()
    local store = store_of("a", "b", "c")
    store:compact(3)
    for _, verb in ipairs { "get", "range" } do
      refuses(store, "future_revision", { success = { { put = "d", value = "" }, { [verb] = "a", revision = 5 } } })
      refuses(store, "compacted", { success = { { put = "d", value = "" }, { [verb] = "a", revision = 2 } } })
    end
  end)

  it("reports the compacted revision, if it reads an older one", function()
    local store = store_of("a", "b", "c")
    store:compact(3)
    local _, err = store:txn { success = { { get = "a", revision = 2 } } }
    assert.equal(3, err.compact_revision)
  end)

  it("reports errors of its puts before those of its reads", function()
    refuses(store_of("a"), "lease_not_found", { success = {
      { get = "a", revision = 99 }, { txn = { success = { { put = "b", value = "", lease = 7 } } } },
    } })
  end)
end)
