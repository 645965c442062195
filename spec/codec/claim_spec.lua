--- The two transactions of locks and elections: their bytes are those of the same transactions as tables, and so are
--- their answers.

local core = require "keywatch.core"

local starve = require "spec.support.starve"
local wire = require "spec.support.wire"

local answers, requests = core.answers, core.requests

local LONG = ("v"):rep(300) -- not interned
local MOST = core.id("9223372036854775807")

--- The transaction of a claim as a table.
local function claim(prefix, key, value, lease, is_alone)
  local oldest = {
    range = prefix, prefix = true, sort_target = "create", sort_order = "ascend", limit = 1, keys_only = true,
  }
  return {
    compare = { { key = is_alone and prefix or key, prefix = is_alone or nil, create_revision = 0 } },
    success = { { put = key, value = value, lease = lease }, oldest },
    failure = { { get = key }, oldest },
  }
end

local function unclaim(key, created)
  return { compare = { { key = key, create_revision = created } }, success = { { delete = key } } }
end

local function expect(txn, bytes, ...)
  assert.equal(wire.hex(requests.txn(nil, txn)), wire.hex(bytes))
  assert.same({ n = 2 }, { n = select("#", ...), ... }) -- neither timeout nor deadline
end

local function answer(succeeded, revision, first, kvs)
  return core.encode("TxnResponse", {
    header = { revision = revision }, succeeded = succeeded,
    responses = { first, { response_range = { kvs = kvs } } },
  })
end

local function kv(key, created, value)
  return { key = key, value = value, create_revision = created, mod_revision = created, version = 1 }
end

local PUT = { response_put = {} }
local NOTHING = { response_range = {} }

local function found(...) return { response_range = { kvs = { ... } } } end

local function results(...) return { n = select("#", ...), ... } end

describe("a claim", function()
  it("is the same transaction as the table", function()
    local cases = {
      { "a/", "a/1f", "", 31, false }, { "a/", "a/1f", "value", 31, true }, { "/", "/1", "\0\255", MOST, true },
      { "a\255\255/", "a\255\255/1", ("v"):rep(70000), "7", false }, { "a\255", "a\255\255", "v", 0, true },
      { "\255", "\255\255", "", -1, true },
    }
    for _, case in ipairs(cases) do
      local prefix, key, value, lease, is_alone = case[1], case[2], case[3], case[4], case[5]
      expect(claim(prefix, key, value, lease, is_alone), requests.claim(nil, prefix, key, value, lease, is_alone))
    end
    expect(unclaim("a/1", 7), requests.unclaim(nil, "a/1", 7))
    expect(unclaim("a/1", 2 ^ 52), requests.unclaim(nil, "a/1", 2 ^ 52))
  end)

  it("that is too large is an error", function()
    local large = ("v"):rep(2 ^ 26)
    local bytes, err = requests.claim(nil, large, large, large, 7, false)
    assert.is_nil(bytes)
    assert.equal("request_too_large", err.code)
  end)

  it("with invalid arguments raises", function()
    for _, arguments in ipairs {
      { 1, "a", "v", 7 }, { "a", nil, "v", 7 }, { "a", "a", 1, 7 }, { "a", "a", "v", "x" },
    } do
      assert.is_false(pcall(requests.claim, nil, arguments[1], arguments[2], arguments[3], arguments[4]))
    end
    for _, arguments in ipairs { { 1, 7 }, { "a", -1 }, { "a", "7" }, { "a" } } do
      assert.is_false(pcall(requests.unclaim, nil, arguments[1], arguments[2]))
    end
    assert.is_false(pcall(requests.claim))
    assert.is_false(pcall(answers.claim))
    assert.is_false(pcall(answers.unclaim, 7))
  end)
end)

describe("the answer to a claim", function()
  it("has the create revision, whether it is the oldest, the value before, and the revision", function()
    assert.same(results(7, true, nil, 7), results(answers.claim(answer(true, 7, PUT, { kv("a/1", 7) }))))
    assert.same(results(7, false, nil, 7), results(answers.claim(answer(true, 7, PUT, { kv("a/0", 3) }))))
    assert.same(results(5, true, "v", 9),
      results(answers.claim(answer(false, 9, found(kv("a/1", 5, "v")), { kv("a/1", 5) }))))
    assert.same(results(5, false, "", 9),
      results(answers.claim(answer(false, 9, found(kv("a/1", 5)), { kv("a/0", 4) }))))
    assert.same(results(false), results(answers.claim(answer(false, 9, NOTHING, { kv("a/0", 4) }))))
    assert.same(results(false), results(answers.claim(answer(false, 9, NOTHING, {}))))
    local deleted = { response_delete_range = { deleted = 1 } }
    assert.is_true(answers.unclaim(core.encode("TxnResponse", { succeeded = true, responses = { deleted } })))
    assert.is_false(answers.unclaim(core.encode("TxnResponse", {})))
  end)

  it("is malformed if it does not fit the request", function()
    local own = kv("a/1", 5, "v")
    for _, bytes in ipairs {
      "\255",
      answer(true, 7, PUT, {}),                      -- the own key exists, so there is an oldest one
      answer(false, 7, found(own), {}),
      answer(false, 7, PUT, { own }),
      answer(true, 7, NOTHING, { own }),
      answer(false, 7, found(own, own), { own }),
      answer(false, 7, found({ value = "v" }), { own }), -- a kv without a key
      answer(true, 7, PUT, { { value = "v" } }),
      core.encode("TxnResponse", { succeeded = true, responses = { PUT } }),
      core.encode("TxnResponse", { succeeded = true }),
      "",
    } do
      local got, err = answers.claim(bytes)
      assert.is_nil(got)
      assert.equal("malformed", err.code)
    end
    for _, bytes in ipairs {
      "\255", core.encode("TxnResponse", { succeeded = true }),
      core.encode("TxnResponse", { succeeded = true, responses = { PUT } }),
      core.encode("TxnResponse", { responses = { PUT } }),
    } do
      local got, err = answers.unclaim(bytes)
      assert.is_nil(got)
      assert.equal("malformed", err.code)
    end
  end)

  it("with a malformed key of its own is malformed, and not an answer without that key", function()
    local whole = answer(false, 9, found(kv("a/1", 5, "value")), { kv("a/1", 5) })
    local broken, n = whole:gsub("\10\3a/1", "\15\3a/1", 1) -- a wire type that does not exist
    assert.equal(1, n)
    local got, err = answers.claim(broken)
    assert.same({ nil, "malformed" }, { got, err.code })
  end)

  it("can be truncated at any byte", function()
    local whole = answer(false, 9, found(kv("a/1", 5, "v")), { kv("a/1", 5) })
    for i = 0, #whole - 1 do
      local ok, got, err = pcall(answers.claim, whole:sub(1, i))
      assert(ok, got)
      assert(got ~= nil or err.code == "malformed")
      ok, got, err = pcall(answers.unclaim, whole:sub(1, i))
      assert(ok, got)
      assert(got ~= nil or err.code == "malformed")
    end
  end)
end)

local whole = answer(false, 9, found(kv("a/1", 5, LONG)), { kv("a/1", 5) })

starve.declare("a claim", {
  function() return requests.claim(nil, "a/", "a/1", LONG, 7, true) end,
  function() return requests.unclaim(nil, "a/1", 7) end,
  function() return { answers.claim(whole) } end,
})
