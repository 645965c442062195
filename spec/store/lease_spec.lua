--- Leases: keys that exist as long as their lease is renewed. The clock is manual: only step(now) moves it.

local keywatch = require "keywatch"

local answer = require "spec.support.answer"
local state = require "spec.support.state"

local code, keys = answer.code, answer.keys

local function new_store(opts)
  opts = opts or {}
  opts.now = opts.now or 0
  return keywatch.open(opts)
end

--- Moves the clock and does all that is due.
local function pass_time(store, now)
  while store:step(now) do end -- luacheck: ignore 542
end

--- The request must fail with that code and change nothing.
local function refuses(store, expected, ttl, opts)
  local before = state.of(store)
  assert.equal(expected, code(store:lease(ttl, opts)))
  state.expect(store, before)
end

local function with_store(fn) return function() fn(new_store()) end end

describe("granting a lease", function()
  it("returns its id and its TTL, and no new revision", with_store(function(store)
    local lease = store:lease(10, { id = 7 })
    assert.same({ 7, 10 }, { lease.id, lease.ttl })
    assert.same({ 1, 1 }, { store:status().leases, store:status().revision })
  end))

  it("raises a short TTL to the minimum", with_store(function(store)
    assert.same({ 2, 2, 2, 2, 3 }, { store:lease(1).ttl, store:lease(0).ttl, store:lease(-5).ttl, store:lease(2).ttl,
      store:lease(3).ttl })
    assert.equal(2, store:lease(1 - 2 ^ 53).ttl)
    assert.equal(30, new_store({ min_lease_ttl = 30 }):lease(10).ttl)
    assert.equal(2, store:lease_by_id(store:lease(1).id):keepalive())
  end))

  it("accepts a TTL of 9,000,000,000 seconds and no more", with_store(function(store)
    assert.equal(9000000000, store:lease(9000000000).ttl)
    refuses(store, "lease_ttl_too_large", 9000000001)
    refuses(store, "lease_ttl_too_large", 2 ^ 53 - 1)
  end))

  it("refuses a used id, until it is revoked", with_store(function(store)
    local lease = store:lease(10, { id = 7 })
    refuses(store, "lease_exists", 20, { id = 7 })
    lease:revoke()
    assert.equal(20, store:lease(20, { id = 7 }).ttl)
  end))

  it("chooses ids that are positive, below 2^53 and distinct", function()
    local seen = {}
    for _ = 1, 5 do
      local store = new_store()
      for i = 1, 200 do
        local id = store:lease(10, i % 2 == 0 and { id = 0 } or nil).id
        assert.equal("number", type(id))
        assert.is_true(id > 0 and id < 2 ^ 53 and id % 1 == 0)
        assert.is_nil(seen[id])
        seen[id] = true
      end
    end
  end)
end)

describe("a key", function()
  local store, one, two

  before_each(function()
    store = new_store()
    one, two = store:lease(10, { id = 1 }), store:lease(20, { id = 2 })
  end)

  local function keys_of_both() return { one:keys(), two:keys() } end

  it("is bound to a lease by a put", function()
    store:put("b", "", { lease = 1 })
    store:put("a", "", { lease = one })
    store:put("c", "", { lease = "1" })
    assert.same({ { "a", "b", "c" }, {} }, keys_of_both())
    assert.equal(1, store:get("a").lease)
  end)

  it("moves to another lease by a put", function()
    store:put("a", "", { lease = 1 })
    store:put("a", "", { lease = 2 })
    assert.same({ {}, { "a" } }, keys_of_both())
    assert.equal(3, one:revoke().revision)
    assert.equal(2, store:get("a").lease)
  end)
end)

describe("revoking a lease", function()
  it("deletes its keys in one revision", with_store(function(store)
    local lease = store:lease(10)
    for _, key in ipairs { "c", "a", "b" } do store:put(key, "", { lease = lease }) end
    store:put("other", "")
    assert.same({ revision = 6 }, lease:revoke())
    assert.equal("other", keys(store:range("", { prefix = true })))
    assert.equal("a b c other", keys(store:range("", { prefix = true, revision = 5 })))
    assert.same({ 6, 0 }, { store:status().revision, store:status().leases })
  end))

  it("without keys makes no revision", with_store(function(store)
    store:put("a", "")
    assert.same({ revision = 2 }, store:lease(10):revoke())
  end))

  it("fails for a missing lease", with_store(function(store)
    local lease = store:lease(10)
    lease:revoke()
    local before = state.of(store)
    assert.equal("lease_not_found", code(lease:revoke()))
    assert.equal("lease_not_found", code(store:lease_by_id(99):revoke()))
    state.expect(store, before)
  end))

  it("ends every object of the lease", with_store(function(store)
    local lease = store:lease(10)
    store:lease_by_id(lease.id):revoke()
    assert.equal("lease_not_found", code(lease:keepalive()))
    assert.equal("lease_not_found", code(lease:remaining()))
    assert.equal("lease_not_found", code(lease:keys()))
    assert.equal("lease_not_found", code(store:put("a", "", { lease = lease })))
  end))
end)

describe("the keys of a lease", function()
  --- The hash of a store whose three keys were deleted in one revision.
  local function hash_after(delete)
    local store = new_store()
    local lease = store:lease(10, { id = 7 })
    for _, key in ipairs { "c", "a", "b\0" } do store:put(key, "", { lease = lease }) end
    delete(store, lease)
    assert.same({ 5, 0 }, { store:status().revision, store:status().keys })
    return store:hash_kv().hash
  end

  local function delete_in_order(...)
    local ops = {}
    for i, key in ipairs { ... } do ops[i] = { delete = key } end
    return function(store) store:txn { success = ops } end
  end

  it("are deleted in the order of keys, by a revocation and by an expiry", function()
    local ordered = hash_after(delete_in_order("a", "b\0", "c"))
    assert.equal(ordered, hash_after(function(_, lease) lease:revoke() end))
    assert.equal(ordered, hash_after(function(store) pass_time(store, 10) end))
    assert.not_equal(ordered, hash_after(delete_in_order("c", "a", "b\0")))
  end)

  it("are listed in order", with_store(function(store)
    local lease, expected = store:lease(10), {}
    for i = 1, 100 do
      store:put(("k%03d"):format(i * 37 % 101), "", { lease = lease })
      expected[i] = ("k%03d"):format(i)
    end
    assert.same(expected, lease:keys())
  end))

  it("may be added and removed while they become many", with_store(function(store)
    local lease, other, expected = store:lease(10), store:lease(10), {}
    for i = 1, 1000 do
      store:put(("k%04d"):format(i), "", { lease = lease })
      if i % 3 == 0 then store:delete(("k%04d"):format(i - i % 7)) end
      if i % 5 == 0 then store:put(("k%04d"):format(math.floor(i / 2)), "", { lease = other }) end
      if i % 11 == 0 then store:put(("k%04d"):format(math.floor(i / 3)), "", { lease = lease }) end
    end
    for kv in store:each("k", { prefix = true }) do
      if kv.lease == lease.id then expected[#expected + 1] = kv.key end
    end
    assert.same(expected, lease:keys())
    assert(#expected > 400, #expected)
    lease:revoke()
    assert.equal(keys(store:range("k", { prefix = true })), table.concat(other:keys(), " "))
  end))
end)

describe("the lease object of an id", function()
  it("may exist without the lease, until it is used", with_store(function(store)
    local lease = store:lease_by_id(7)
    assert.equal(7, lease.id)
    assert.equal("lease_not_found", code(lease:keepalive()))
    store:lease(10, { id = 7 })
    assert.equal(10, lease:keepalive())
  end))
end)
