--- The time of leases: how it runs out, and how it is given again. The clock moves with step(now) alone.

local keywatch = require "keywatch"

local answer = require "spec.support.answer"

local code, keys = answer.code, answer.keys

local MANY = 1200 -- leases: more than two steps revoke

local function pass_time(store, now)
  while store:step(now) do end -- luacheck: ignore 542
end

local function with_store(fn) return function() fn(keywatch.open { now = 0 }) end end

describe("a lease", function()
  it("lives until its TTL has passed, and no longer", function()
    local store = keywatch.open { now = 100 }
    local lease = store:lease(10)
    store:put("a", "", { lease = lease })
    pass_time(store, 109.999)
    assert.is_table(store:get("a"))
    pass_time(store, 110)
    assert.is_nil(store:get("a"))
    assert.equal("lease_not_found", code(lease:remaining()))
    assert.same({ 0, 3 }, { store:status().leases, store:status().revision })
  end)

  it("that ends deletes its keys in one revision, and another that ends with it in the next one", function()
    local store = keywatch.open { now = 0 }
    store:lease(10, { id = 1 })
    store:lease(10, { id = 2 })
    store:lease(20, { id = 3 })
    for i, key in ipairs { "a", "b", "c", "d", "e" } do store:put(key, "", { lease = i % 3 + 1 }) end -- 2 … 6
    pass_time(store, 15)
    assert.equal(8, store:status().revision)
    assert.equal("b e", keys(store:range("", { prefix = true })))
    assert.equal("a b c d e", keys(store:range("", { prefix = true, revision = 6 })))
  end)

  it("without keys ends without a revision", with_store(function(store)
    store:lease(10)
    pass_time(store, 10)
    assert.same({ 1, 0 }, { store:status().revision, store:status().leases })
  end))
end)

describe("the remaining time of a lease", function()
  it("is in whole seconds, rounded down", with_store(function(store)
    local lease = store:lease(10)
    local seen = {}
    for i, now in ipairs { 0, 0.001, 0.999, 1, 8.5, 9, 9.001, 9.999 } do
      store:step(now)
      seen[i] = lease:remaining()
    end
    assert.same({ 10, 9, 9, 9, 1, 1, 0, 0 }, seen)
  end))

  it("is the whole TTL again after a renewal, which returns the TTL", with_store(function(store)
    local lease = store:lease(10)
    store:step(7)
    assert.equal(3, lease:remaining())
    assert.equal(10, lease:keepalive())
    assert.equal(10, lease:remaining())
    pass_time(store, 16.9)
    assert.equal(0, lease:remaining())
    pass_time(store, 17)
    assert.equal("lease_not_found", code(lease:keepalive()))
  end))
end)

describe("an expired lease that is not yet revoked", function()
  --- A store with many leases past their time, of which a step has revoked only some, and one that is left.
  local function overdue()
    local store = keywatch.open { now = 0 }
    for id = 1, MANY do store:lease(10, { id = id }) end
    store:put("a", "", { lease = MANY })
    assert.is_true(store:step(10))
    return store, store:lease_by_id(MANY)
  end

  it("cannot be renewed", function()
    local store, lease = overdue()
    assert.equal("lease_not_found", code(lease:keepalive()))
    assert.matches("keys=1", tostring(store)) -- which does no step
    pass_time(store, 10)
    assert.is_nil(store:get("a"))
    assert.equal(0, store:status().leases)
  end)

  it("has no time left", function()
    local _, lease = overdue()
    assert.equal("lease_not_found", code(lease:remaining()))
    assert.equal("lease_not_found", code(lease:keys()))
  end)

  it("can be revoked", function()
    local store, lease = overdue()
    assert.same({ revision = 3 }, lease:revoke())
    assert.is_nil(store:get("a"))
  end)
end)

describe("the time of a store", function()
  it("has no deadline without work", function()
    assert.is_nil(keywatch.open({ now = 5 }):deadline())
  end)

  it("ends a lease exactly at the deadline, whatever the fraction", function()
    for _, now in ipairs { 0.1, 0.3, 1 / 3, 2.3, 1e9 + 0.7 } do
      local store = keywatch.open { now = now }
      store:lease(2)
      assert.is_false(store:step(store:deadline()))
      assert.is_nil(store:deadline())
    end
  end)

  it("never goes back", function()
    local store = keywatch.open { now = 100 }
    local lease = store:lease(10)
    store:step(105)
    store:step(50)
    assert.equal(5, lease:remaining())
    assert.equal(10, lease:keepalive())
    assert.equal(115, store:deadline())
  end)

  it("may begin below zero", function()
    local store = keywatch.open { now = -100 }
    store:lease(10)
    assert.equal(-90, store:deadline())
    pass_time(store, -90)
    assert.equal(0, store:status().leases)
  end)

  it("is the system's by default", function()
    local store = keywatch.open()
    local lease = store:lease(1000)
    local deadline = store:deadline()
    assert.equal("number", type(deadline))
    local remaining = lease:remaining()
    assert.is_true(remaining >= 900 and remaining <= 1000)
    pass_time(store, deadline)
    assert.equal("lease_not_found", code(lease:remaining()))
  end)
end)

describe("a step", function()
  it("revokes 500 leases at most, and returns whether more are due", with_store(function(store)
    for _ = 1, MANY do store:lease(10) end
    store:lease(11)
    assert.is_false(store:step(9))
    assert.is_true(store:step(10))
    assert.is_true(store:step(10))
    assert.is_false(store:step(10))
    assert.equal(1, store:status().leases)
  end))

  it("returns that no work is due after the last lease", with_store(function(store)
    for _ = 1, 500 do store:lease(10) end
    assert.is_false(store:step(10))
    assert.equal(0, store:status().leases)
  end))

  it("is done first by every other call", with_store(function(store)
    for _ = 1, MANY do store:lease(10) end
    assert.is_true(store:step(10)) -- 500
    assert.equal(MANY - 1000, store:status().leases)
    assert.equal(0, #store:leases())
  end))

  it("revokes the leases first that ended first", with_store(function(store)
    for i = 1, MANY do store:put("k" .. i, "", { lease = store:lease(5 + i * 7 % MANY) }) end
    store:step(2000)
    local status = store:status() -- one more step
    local gone = MANY - status.keys -- a step counts keys, too
    assert.is_true(gone > 0 and gone <= 1000)
    for _, kv in ipairs(store:range("", { prefix = true, revision = status.revision }).kvs) do
      assert.is_true(tonumber(kv.key:sub(2)) * 7 % MANY >= gone - 1) -- the last of them may be half done
    end
  end))
end)
