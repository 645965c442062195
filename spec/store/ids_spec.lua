--- Ids of 64 bits. A number where the VM's numbers hold it exactly, else a decimal string; either is taken everywhere.

local keywatch = require "keywatch"
local core = require "keywatch.core"

local answer = require "spec.support.answer"
local misuse = require "spec.support.misuse"

local code = answer.code

local function with_new(fn) return function() fn(keywatch.open { now = 0 }) end end

local has_integers = rawget(math, "maxinteger") ~= nil

-- { as a decimal string, as the store gives it back where numbers are doubles }
local ids = {
  { "1", 1 },
  { "-1", -1 },
  { "4503599627370497", 4503599627370497 },
  { "9007199254740991", 9007199254740991 }, -- 2^53 - 1
  { "-9007199254740991", -9007199254740991 },
  { "9007199254740993", "9007199254740993" }, -- 2^53 + 1
  { "-9007199254740993", "-9007199254740993" },
  { "1152921504606846977", "1152921504606846977" },
  { "9223372036854775807", "9223372036854775807" },
  { "-9223372036854775807", "-9223372036854775807" },
  { "-9223372036854775808", "-9223372036854775808" },
}

--- The form in which the store gives an id back on this VM.
local function given_back(id)
  if has_integers then return math.tointeger(tonumber(id[1])) end
  return id[2]
end

local function each_id(check)
  for _, id in ipairs(ids) do check(keywatch.open { now = 0 }, id[1], given_back(id)) end
end

local function same(expected, got)
  assert.equal(type(expected), type(got))
  assert.equal(expected, got)
  if has_integers then assert.equal("integer", math.type(got)) end
end

describe("an id of 64 bits", function()
  it("is given to a lease, and returned by it", function()
    each_id(function(store, text, id)
      same(id, store:lease(10, { id = text }).id)
      assert.equal("lease_exists", code(store:lease(10, { id = text })))
      assert.equal("lease_exists", code(store:lease(10, { id = id })))
    end)
  end)

  it("is listed", function()
    each_id(function(store, text, id)
      store:lease(10, { id = text })
      same(id, store:leases()[1])
    end)
  end)

  it("is distinct from its neighbours", function()
    local store, n = keywatch.open { now = 0 }, 0
    for _, text in ipairs { "9007199254740992", "9007199254740993", "9007199254740994", "9223372036854775806",
      "9223372036854775807", "-9223372036854775808", "-9223372036854775807" } do
      assert.is_table(store:lease(10, { id = text }))
      n = n + 1
      assert.equal(n, store:status().leases)
    end
    store:lease_by_id("9007199254740993"):revoke()
    assert.equal(10, store:lease_by_id("9007199254740992"):keepalive())
    assert.equal(10, store:lease_by_id("9007199254740994"):keepalive())
    assert.equal("lease_not_found", code(store:lease_by_id("9007199254740993"):keepalive()))
  end)

  it("may be the lease of a put as a string, as it was returned, and as the lease object", function()
    each_id(function(store, text, id)
      local lease = store:lease(10, { id = text })
      for i, form in ipairs { text, id, lease } do
        assert.is_table(store:put("key " .. i, "", { lease = form }))
        same(id, store:get("key " .. i).lease)
      end
      assert.same({ "key 1", "key 2", "key 3" }, lease:keys())
    end)
  end)

  it("is the lease of a put in a transaction", function()
    each_id(function(store, text, id)
      store:lease(10, { id = text })
      store:txn { success = { { put = "a", value = "", lease = text }, { put = "b", value = "", lease = id } } }
      same(id, store:get("a").lease)
      same(id, store:range("b").kvs[1].lease)
      same(id, store:delete("a", { prev_kv = true }).prev_kvs[1].lease)
      same(id, store:put("b", "", { prev_kv = true }).prev_kv.lease)
    end)
  end)

  it("can be compared", function()
    each_id(function(store, text, id)
      local lease = store:lease(10, { id = text })
      store:put("a", "", { lease = lease })
      for _, form in ipairs { text, id, lease } do
        assert.is_true(store:txn({ compare = { { key = "a", lease = form } } }).succeeded)
        assert.is_false(store:txn({ compare = { { key = "a", lease = form, op = ">" } } }).succeeded)
        assert.is_false(store:txn({ compare = { { key = "a", lease = form, op = "!=" } } }).succeeded)
      end
    end)
  end)

  it("is compared as a whole number, to the last bit", with_new(function(store)
    store:lease(10, { id = "9007199254740993" })
    store:put("a", "", { lease = "9007199254740993" })
    local function holds(op, id) return store:txn({ compare = { { key = "a", lease = id, op = op } } }).succeeded end
    assert.is_true(holds(">", "9007199254740992"))
    assert.is_false(holds("=", "9007199254740992"))
    assert.is_true(holds("<", "9007199254740994"))
    assert.is_true(holds(">", "-9223372036854775808"))
    assert.is_true(holds("<", "9223372036854775807"))
  end))

  it("refers to a lease in every function", function()
    each_id(function(store, text, id)
      store:lease(10, { id = text })
      store:put("a", "", { lease = text })
      for _, form in ipairs { text, id } do
        local lease = store:lease_by_id(form)
        assert.equal(10, lease:keepalive())
        assert.equal(10, lease:remaining())
        assert.same({ "a" }, lease:keys())
        assert.is_truthy(tostring(lease):find(text, 1, true))
      end
      assert.equal(3, store:lease_by_id(text):revoke().revision)
    end)
  end)

  it("sets the order of leases that end together", with_new(function(store)
    for _, text in ipairs { "9223372036854775807", "2", "-9223372036854775808", "-1", "9007199254740993" } do
      store:lease(10, { id = text })
    end
    local listed = {}
    for i, id in ipairs(store:leases()) do listed[i] = type(id) == "string" and id or ("%d"):format(id) end
    assert.same({ "-9223372036854775808", "-1", "2", "9007199254740993", "9223372036854775807" }, listed)
  end))

  it("is kept by a replica", function()
    each_id(function(_, text, id)
      local replica = keywatch.open { now = 0, replica = true }
      local kv = { key = "a", value = "", create_revision = 2, mod_revision = 2, version = 1, lease = text }
      replica:load_kvs(2, { kv })
      same(id, replica:get("a").lease)
      replica:apply(3, { { type = "put", key = "b", value = "", create_revision = 3, mod_revision = 3, version = 1,
        lease = id } })
      same(id, replica:get("b").lease)
    end)
  end)

  it("is refused as a number that a double does not represent exactly", function()
    if has_integers then return end
    local store = keywatch.open { now = 0 }
    store:lease(10, { id = "9007199254740992" })
    store:lease(10, { id = "-9007199254740992" })
    for _, id in ipairs { 9007199254740993, -9007199254740993, 2 ^ 62 } do
      for _, call in ipairs {
        function() store:lease(10, { id = id }) end,
        function() store:lease_by_id(id) end,
        function() store:put("a", "", { lease = id }) end,
        function() store:txn { success = { { put = "a", value = "", lease = id } } } end,
        function() store:txn { compare = { { key = "a", lease = id } } } end,
        function() store:session { lease = id } end,
        function() core.encode("LeaseRevokeRequest", { ID = id }) end,
        function() core.encode("MemberRemoveRequest", { ID = id }) end,
      } do
        assert.matches("decimal string", misuse.raises(call))
        assert.matches("exact", misuse.raises(call))
      end
    end
    assert.is_nil(store:get("a"))
  end)

  it("may have leading zeros", with_new(function(store)
    same(7, store:lease(10, { id = "0007" }).id)
    assert.equal(10, store:lease_by_id("007"):keepalive())
    assert.equal(10, store:lease_by_id("000000000000000000000000000007"):keepalive())
  end))

  it("of 0 means no lease, also as a string", with_new(function(store)
    assert.is_true(store:lease(10, { id = "0" }).id > 0)
    assert.is_true(store:lease(10, { id = "-0" }).id > 0)
    store:put("a", "", { lease = "0" })
    same(0, store:get("a").lease)
  end))
end)

describe("revisions and counts", function()
  it("are integers of the VM", with_new(function(store)
    local kv = store:put("a", "") and store:get("a")
    local found = store:range("a")
    local status = store:status()
    for _, number in ipairs { kv.create_revision, kv.mod_revision, kv.version, kv.lease, found.revision, found.count,
      status.revision, status.compact_revision, status.keys, status.leases, status.db_size, status.quota,
      store:hash_kv().hash, store:delete("a").deleted, store:lease(5).ttl, store:lease(5):remaining() } do
      assert.equal(has_integers and "integer" or "number", (rawget(math, "type") or type)(number))
    end
  end))

  it("are refused as numbers that a double does not represent exactly", function()
    if has_integers then return end
    local store, number = keywatch.open { now = 0 }, 9007199254740993
    for _, call in ipairs {
      function() store:get("a", { revision = number }) end,
      function() store:range("a", { min_mod_revision = number }) end,
      function() store:txn { compare = { { key = "a", mod_revision = number } } } end,
      function() store:watch("a", { start_revision = number }) end,
      function() store:compact(number) end,
      function() store:hash_kv(number) end,
      function() store:lease(number) end,
      function() store:each("a", { revision = number }) end,
    } do assert.matches("is not exact$", (misuse.raises(call):gsub("%)$", ""))) end
  end)

  it("may be floats without a fraction", with_new(function(store)
    store:put("a", "1")
    store:put("a", "2")
    assert.equal("1", store:get("a", { revision = 2.0 }).value)
    assert.equal(1, #store:range("a", { limit = 1.0 }).kvs)
    assert.equal(7, store:lease(5.0, { id = 7.0 }).id)
    assert.is_table(store:compact(2.0))
  end))
end)
