--- The rules for transactions: checked before the execution, in both branches, at every depth.

local keywatch = require "keywatch"

local answer = require "spec.support.answer"
local state = require "spec.support.state"

local code = answer.code

local function new_store(opts)
  opts = opts or {}
  opts.now = 0
  local store = keywatch.open(opts)
  store:put("k", "")
  return store
end

local function put(key) return { put = key or "k", value = "" } end
local function delete(key, range_end) return { delete = key or "k", range_end = range_end } end
local function delete_from(key) return { delete = key, from_key = true } end
local function txn(success, failure) return { txn = { success = success, failure = failure } } end

local function puts(n)
  local list = {}
  for i = 1, n do list[i] = put("key " .. i) end
  return list
end

--- The code with which a transaction of these operations is refused; it must not leave a trace.
local function refusal(store, success, failure)
  local before = state.trace(store)
  local found = code(store:txn { success = success, failure = failure })
  if found ~= "no failure" then assert.equal(before, state.trace(store)) end
  return found
end

describe("a key must not be written twice:", function()
  local refused = {
    { "two puts", { put(), put() } },
    { "a put and a delete of the key", { put(), delete() } },
    { "a delete of the key and a put", { delete(), put() } },
    { "a put and a delete of a range around it", { put(), delete("a", "z") } },
    { "a put and a delete of its prefix", { put("kk"), { delete = "k", prefix = true } } },
    { "a put and a put inside of a nested transaction", { put(), txn { put() } } },
    { "a put inside of a nested transaction, and a put", { txn { put() }, put() } },
    { "a put and a put in the other branch of a nested transaction", { txn({}, { put() }), put() } },
    { "puts of two nested transactions", { txn { put() }, txn { put() } } },
    { "puts of different branches of two nested transactions", { txn { put() }, txn({}, { put() }) } },
    { "a delete, and a put inside of a nested transaction", { delete(), txn { put() } } },
    { "a put inside of a nested transaction, and a delete", { txn { put() }, delete() } },
    { "a put, and a delete inside of a nested transaction", { put(), txn { delete("a", "z") } } },
    { "a delete of one nested transaction, and a put of one after it", { txn { delete() }, txn { put() } } },
    { "puts at different depths", { txn { txn { put() } }, put() } },
    { "two puts deep inside", { txn { txn { put(), put() } } } },
    { "a nested transaction that puts or deletes, and a put", { txn({ put() }, { delete() }), put() } },
    { "a put and a delete of the key, beside a delete without an end", { delete_from("a"), delete(), put() } },
    { "a put and a delete of the key, nested beside a delete without an end",
      { txn { delete_from("a"), delete(), delete_from("k") }, put() } },
    { "two puts around a delete without an end", { put(), delete_from("a"), put() } },
  }

  for _, case in ipairs(refused) do
    it(case[1], function()
      assert.equal("duplicate_key", refusal(new_store(), case[2]))
      assert.equal("duplicate_key", refusal(new_store(), {}, case[2])) -- the branch that is not taken
    end)
  end

  local allowed = {
    { "two deletes of it are nothing", { delete(), delete("a", "z"), delete() } },
    { "reads are nothing", { { get = "k" }, put(), { get = "k" }, { range = "k", prefix = true } } },
    { "the branches are apart", { put() }, { put() } },
    { "the branches of a nested transaction are apart", { txn({ put() }, { put() }) } },
    { "the branches of a nested transaction are apart, also with a delete", { txn({ put() }, { delete() }) } },
    { "transactions nested in different branches are apart", { txn({ txn { put() } }, { txn { put() } }) } },
    { "a delete is held against no put that came before it in another nested transaction",
      { txn { put() }, txn { delete() } } },
    { "a range that ends before it is not around it", { delete("a", "k"), put() } },
    { "a range that begins after it is not around it", { delete("k\0", "z"), put() } },
    { "an empty range is not around it", { delete("k", "a"), put() } },
    { "a delete without an end is held against no put after it", { delete_from("a"), put() } },
    { "a delete without an end is held against no put before it", { put(), delete_from("a") } },
    { "a delete from the key on is not held against its put", { delete_from("k"), put() } },
    { "a delete of everything is not held against it", { delete_from(""), put(), delete_from("") } },
    { "a delete without an end is held against no nested put", { delete_from("a"), txn { put() } } },
    { "a nested delete without an end is held against no put", { put(), txn({}, { delete_from("a") }) } },
    { "a delete without an end in one nested transaction is held against no put of the next",
      { txn { delete_from("a") }, txn { put() } } },
  }

  for _, case in ipairs(allowed) do
    it(case[1], function() assert.equal("no failure", refusal(new_store(), case[2], case[3])) end)
  end
end)

describe("the number of operations", function()
  it("may be 128 and no more, by default", function()
    assert.equal("no failure", refusal(new_store(), puts(128)))
    assert.equal("too_many_ops", refusal(new_store(), puts(129)))
  end)

  it("is that of the longest of the three lists", function()
    local compares = {}
    for i = 1, 3 do compares[i] = { key = "k", version = 1 } end
    local store = new_store { max_txn_ops = 3 }
    assert.is_table(store:txn { compare = compares, success = puts(3), failure = puts(3) })
    assert.equal("too_many_ops", code(store:txn { success = puts(4) }))
    assert.equal("too_many_ops", code(store:txn { failure = puts(4) }))
    compares[4] = compares[1]
    assert.equal("too_many_ops", code(store:txn { compare = compares }))
  end)

  it("of a nested transaction may be as large as the outer one leaves", function()
    local store = new_store { max_txn_ops = 5 }
    assert.equal("no failure", refusal(store, { put("a"), put("b"), txn { put("c"), put("d") } }))
    assert.equal("too_many_ops", refusal(store, { put("a"), put("b"), txn { put("c"), put("d"), put("e") } }))
    assert.equal("too_many_ops", refusal(store, { put("a"), put("b"), txn({}, { put("c"), put("d"), put("e") }) }))
  end)

  it("is not shared between nested transactions side by side", function()
    local store = new_store { max_txn_ops = 4 }
    assert.equal("no failure", refusal(store, { txn { put("a"), put("b") }, txn { put("c"), put("d") } }))
  end)

  it("shrinks with every depth", function()
    local store = new_store { max_txn_ops = 3 }
    assert.equal("no failure", refusal(store, { txn { txn { put("a") } } }))
    assert.equal("no failure", refusal(store, { txn { txn { txn {} } } }))
    assert.equal("too_many_ops", refusal(store, { txn { txn { txn { put("a") } } } }))
  end)

  it("counts in the branch that is not taken", function()
    assert.equal("too_many_ops", refusal(new_store { max_txn_ops = 2 }, {}, { txn { put("a"), put("b") } }))
  end)
end)

describe("all operations and compares of a transaction, each counted as often as it is deep,", function()
  local compares, gets = {}, {}
  for i = 1, 64 do compares[i], gets[i] = { key = "k", version = 1 }, { get = "k" } end

  --- So many transactions of 64 compares, 64 gets, and 64 others.
  local function many(n)
    local list = {}
    for i = 1, n do list[i] = { txn = { compare = compares, success = gets, failure = gets } } end
    return list
  end

  it("may be 16384, over both branches", function()
    local store = new_store() -- 64 + 2 * 192 * 42 = 16192
    assert.equal("no failure", refusal(store, many(42), gets))
    assert.equal("too_many_ops", refusal(store, many(43), gets))
    assert.equal("too_many_ops", refusal(store, many(30), many(30)))
    assert.equal("no failure", refusal(store, { txn(many(20)) }))
    assert.equal("too_many_ops", refusal(store, { txn(many(30)) }))
  end)

  it("may be four times max_txn_ops, if that is more", function()
    local store = new_store { max_txn_ops = 5000 }
    assert.equal("no failure", refusal(store, many(51)))
    assert.equal("too_many_ops", refusal(store, many(53)))
  end)
end)

describe("an operation that the plain call would refuse", function()
  local refused = {
    { "empty_key", { get = "" } },
    { "empty_key", { range = "" } },
    { "empty_key", { range = "", range_end = "z" } },
    { "empty_key", { put = "", value = "" } },
    { "empty_key", { delete = "" } },
    { "value_provided", { put = "a", value = "v", ignore_value = true } },
    { "lease_provided", { put = "a", value = "v", ignore_lease = true, lease = 7 } },
  }

  it("is refused, with the transactions around it", function()
    for _, case in ipairs(refused) do assert.equal(case[1], refusal(new_store(), { put("a b"), case[2] })) end
  end)

  it("is refused in the branch that does not run, and when it is nested", function()
    for _, case in ipairs(refused) do
      assert.equal(case[1], refusal(new_store(), { put("a b") }, { case[2] }))
      assert.equal(case[1], refusal(new_store(), { put("a b"), txn({}, { txn { case[2] } }) }))
    end
  end)
end)

describe("a key that is deleted and put many times", function()
  --- n * n * n operations of one kind, in nested transactions.
  local function many(op, n)
    for _ = 1, 3 do
      local list = {}
      for i = 1, n do list[i] = op end
      op = txn(list)
    end
    return op
  end

  it("is refused in time proportional to the number of operations", function()
    local store = new_store()
    assert.equal("duplicate_key", refusal(store, { many(delete(), 11), many(put(), 11) }))
    assert.equal("no failure", refusal(store, { many(delete(), 15) }))
  end)
end)

describe("of several errors", function()
  local store
  before_each(function() store = new_store { max_txn_ops = 3, max_request_bytes = 1000 } end)

  it("the number of operations is reported first", function()
    assert.equal("too_many_ops", refusal(store, { put(""), put(""), put(""), put("") }))
  end)

  it("compares are reported before operations", function()
    assert.equal("empty_key", code(store:txn { compare = { { key = "", version = 0 } },
      success = { { put = "a", value = "v", ignore_value = true } } }))
  end)

  it("the first operation is reported, with success before failure", function()
    local bad_value, bad_key = { put = "a", value = "v", ignore_value = true }, put("")
    assert.equal("value_provided", refusal(store, { bad_value, bad_key }))
    assert.equal("empty_key", refusal(store, { bad_key, bad_value }))
    assert.equal("value_provided", refusal(store, { bad_value }, { bad_key }))
    assert.equal("too_many_ops", refusal(store, { txn { put("a"), put("b"), put("c") }, bad_key }))
  end)

  it("an invalid operation is reported before repeated keys", function()
    assert.equal("empty_key", refusal(store, { put(), put() }, { put("") }))
  end)

  it("repeated keys are reported before the size", function()
    assert.equal("duplicate_key", refusal(store, { put(("x"):rep(2000)), put(), put() }))
  end)

  it("the size is reported before a missing lease", function()
    assert.equal("request_too_large", refusal(store, { put(("x"):rep(2000)), { put = "a", value = "", lease = 7 } }))
  end)
end)
