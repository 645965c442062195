--- Malformed transactions: they raise an error that names the faulty part, and change nothing.

local keywatch = require "keywatch"

local misuse = require "spec.support.misuse"
local program = require "spec.support.program"
local state = require "spec.support.state"

local put = { put = "new", value = "" }

local function store_with_keys()
  local store = keywatch.open { now = 0 }
  store:put("a", "1")
  store:put("b", "2")
  return store
end

--- Expects a transaction to raise without changing the store. Returns the error's text.
local function refuse(txn, opts)
  local store = store_with_keys()
  local before = state.trace(store)
  local words = misuse.raises(store.txn, store, txn, opts)
  assert.equal(before, state.trace(store))
  return words
end

local function refuses(title, list)
  it(title, function()
    for _, txn in ipairs(list) do refuse(txn) end
  end)
end

describe("a transaction is refused", function()
  refuses("that is not a table", { "put", 5, true })

  it("that is not a table", function()
    misuse.raises(function() store_with_keys():txn() end)
  end)

  refuses("with unknown fields", {
    { colour = {} }, { success = { put }, ["then"] = {} }, { put }, { put = "new", value = "" },
  })

  refuses("with lists that are not tables", {
    { compare = true }, { success = "put" }, { success = { put }, failure = 5 },
  })

  it("without a verb or a target, with the list of them", function()
    local verbs = "give one of get, range, put, delete, txn$"
    assert.matches("success%[1%]: has no verb, but a field 'putt': " .. verbs,
      refuse { success = { { putt = "a", value = "x" } } })
    assert.matches("failure%[2%]: has no verb: " .. verbs, refuse { failure = { put, { value = "x" } } })
    assert.matches("compare%[1%]: has no target: give one of version, create_revision, mod_revision, value, lease$",
      refuse { compare = { { key = "a", op = "=" } } })
  end)

  refuses("with unknown options", { { success = { put }, limit = 5 } })

  it("with unknown options", function()
    refuse({ success = { put } }, { colour = 1 })
    refuse({ success = { put } }, 5)
  end)

  refuses("with a single operation where a list belongs", {
    { success = { put = "new", value = "" } }, { success = { put }, failure = { delete = "a" } },
  })

  refuses("with a single compare where a list belongs, which would always hold", {
    { compare = { key = "a", version = 99 }, success = { put } },
  })

  refuses("with holes in its lists, after which operations would be lost", {
    { success = { put, nil, { delete = "a" } } }, { success = { [1] = put, [3] = { delete = "a" } } },
    { success = { [2] = put } }, { success = { [0] = put } }, { success = { [1.5] = put } },
    { compare = { [2] = { key = "a", version = 99 } }, success = { put } },
  })
end)

describe("an operation is refused", function()
  refuses("that is not a table", {
    { success = { "put" } }, { success = { put, false } }, { failure = { 5 } },
  })

  refuses("without a verb", {
    { success = { {} } }, { success = { put, { key = "a", value = "" } } }, { success = { { prev_kv = true } } },
  })

  refuses("with two verbs", {
    { success = { { put = "new", value = "", delete = "a" } } }, { success = { { get = "a", range = "a" } } },
    { success = { { delete = "a", txn = {} } } },
  })

  refuses("with a key that is not a string", {
    { success = { { get = 5 } } }, { success = { { range = {} } } }, { success = { { put = true, value = "" } } },
    { success = { { delete = 5 } } },
  })

  refuses("with options that the plain call does not have", {
    { success = { put, { get = "a", limit = 1 } } }, { success = { put, { range = "a", value = "" } } },
    { success = { { put = "new", value = "", prefix = true } } }, { success = { put, { delete = "a", limit = 1 } } },
    { success = { put, { txn = {}, prefix = true } } },
  })

  refuses("with options that the plain call would refuse", {
    { success = { put, { get = "a", revision = -1 } } }, { success = { put, { range = "a", limit = 1.5 } } },
    { success = { put, { range = "a", sort_order = "up" } } },
    { success = { put, { range = "a", prefix = true, from_key = true } } },
    { success = { put, { delete = "a", prev_kv = 1 } } },
    { success = { { put = "new", value = "", lease = "seven" } } },
  })

  refuses("that puts no value", {
    { success = { { put = "new" } } }, { success = { { put = "new", ignore_lease = true } } },
    { success = { { put = "new", value = 5 } } },
  })

  refuses("at any position", {
    { success = { put }, failure = { {} } },
    { success = { put, { txn = { failure = { { txn = { success = { {} } } } } } } } },
    { success = { put, { txn = 5 } } }, { success = { put, { txn = { put } } } },
  })

  it("with an error that names the operation", function()
    assert.matches("success%[2%]", refuse { success = { put, {} } })
    assert.matches("failure%[1%]", refuse { success = { put }, failure = { { get = 5 } } })
    assert.matches("compare%[2%]", refuse { compare = { { key = "a", version = 1 }, { key = "a" } } })
  end)
end)

describe("a compare is refused", function()
  refuses("that is not a table", { { compare = { "a" } }, { compare = { 5 } } })

  refuses("without a key, or with one that is not a string", {
    { compare = { { version = 1 } } }, { compare = { { key = 5, version = 1 } } },
  })

  refuses("without a target", { { compare = { { key = "a" } } }, { compare = { { key = "a", op = "=" } } } })

  refuses("with two targets", {
    { compare = { { key = "a", version = 1, value = "1" } } },
    { compare = { { key = "a", create_revision = 1, mod_revision = 1 } } },
    { compare = { { key = "a", lease = 0, version = 0 } } },
  })

  refuses("with an unknown operator", {
    { compare = { { key = "a", version = 1, op = "==" } } }, { compare = { { key = "a", version = 1, op = "~=" } } },
    { compare = { { key = "a", version = 1, op = "=\0" } } }, { compare = { { key = "a", version = 1, op = 1 } } },
  })

  refuses("with an operand that cannot be compared", {
    { compare = { { key = "a", version = "1" } } }, { compare = { { key = "a", version = -1 } } },
    { compare = { { key = "a", mod_revision = 1.5 } } }, { compare = { { key = "a", create_revision = 0 / 0 } } },
    { compare = { { key = "a", value = 1 } } }, { compare = { { key = "a", lease = {} } } },
  })

  refuses("with unknown options, or two ranges", {
    { compare = { { key = "a", version = 1, limit = 1 } } },
    { compare = { { key = "a", version = 1, prefix = true, range_end = "b" } } },
  })
end)

describe("an endless transaction", function()
  it("is refused if it contains itself", function()
    local txn = { success = { put } }
    txn.success[2] = { txn = txn }
    refuse(txn)
    local both = {}
    both.success, both.failure = { { txn = both }, { txn = both } }, { { txn = both } }
    refuse(both)
  end)

  it("is refused if its lists are its operations", function()
    local list = {}
    list[1] = list
    refuse { success = list }
  end)

  it("is refused if it is nested 300 deep", function()
    local txn = { success = { put } }
    for _ = 1, 300 do txn = { success = { { txn = txn } } } end
    refuse(txn)
  end)

  it("fails at once if it repeats the same tables many times", function()
    assert.same({ 0, "failed\n" }, { program.run([[
      local store = require("keywatch").open { now = 0 }
      local txn = { success = { { get = "a" } } }
      for _ = 1, 60 do txn = { success = { { txn = txn }, { txn = txn } } } end
      local ok, answer, err = pcall(store.txn, store, txn)
      assert(not ok or answer == nil and err)
      assert(store:status().revision == 1)
      print "failed"
    ]], 5) })
  end)
end)
