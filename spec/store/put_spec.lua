--- Puts: revisions and versions, and the previous value and lease that a put can keep.

local keywatch = require "keywatch"

local answer = require "spec.support.answer"
local state = require "spec.support.state"

local code = answer.code

local function new_store() return keywatch.open { now = 0 } end

--- The request must fail with that code and change nothing.
local function refuses(store, expected, key, value, opts)
  local before = state.of(store)
  assert.equal(expected, code(store:put(key, value, opts)))
  state.expect(store, before)
end

local function with_store(fn) return function() fn(new_store()) end end

describe("a new store", function()
  it("is at revision 1 and gives its first write revision 2", with_store(function(store)
    assert.equal(1, store:status().revision)
    assert.equal(2, store:put("a", "").revision)
    assert.equal(2, store:status().revision)
  end))
end)

describe("put", function()
  it("returns only its revision", function() assert.same({ revision = 2 }, new_store():put("a", "v")) end)

  it("creates a key of version 1, created and changed at its revision", with_store(function(store)
    store:put("other", "")
    store:put("a", "v")
    assert.same({ key = "a", value = "v", create_revision = 3, mod_revision = 3, version = 1, lease = 0 },
      store:get("a"))
  end))

  it("counts the versions of a key and keeps its create_revision", with_store(function(store)
    store:put("a", "1")
    store:put("b", "")
    store:put("a", "2")
    local kv = store:get("a")
    assert.same({ "2", 2, 4, 2 }, { kv.value, kv.create_revision, kv.mod_revision, kv.version })
  end))

  it("restarts the version of a deleted key", with_store(function(store)
    store:put("a", "1")
    store:put("a", "2")
    store:delete("a")
    store:put("a", "3")
    local kv = store:get("a")
    assert.same({ 5, 5, 1 }, { kv.create_revision, kv.mod_revision, kv.version })
  end))

  it("keeps every byte of keys and values", with_store(function(store)
    local all = {}
    for i = 0, 255 do all[#all + 1] = string.char(i) end
    local bytes = table.concat(all)
    store:put(bytes, bytes:reverse())
    store:put("\0", "")
    store:put(" ", "\0")
    assert.equal(bytes:reverse(), store:get(bytes).value)
    assert.equal("", store:get("\0").value)
    assert.equal("\0", store:get(" ").value)
  end))

  it("takes long keys and long values", with_store(function(store)
    local key, value = ("k"):rep(100000), ("v"):rep(1000000)
    store:put(key, "short")
    store:put(key .. "k", value)
    assert.equal("short", store:get(key).value)
    assert.equal(value, store:get(key .. "k").value)
    assert.equal(2, store:range(key, { prefix = true }).count)
  end))

  it("refuses an empty key", function() refuses(new_store(), "empty_key", "", "v") end)

  describe("with prev_kv", function()
    it("returns all fields of the previous kv", with_store(function(store)
      store:lease(10, { id = 7 })
      store:put("a", "1", { lease = 7 })
      store:put("a", "2", { lease = 7 })
      assert.same({
        revision = 4,
        prev_kv = { key = "a", value = "2", create_revision = 2, mod_revision = 3, version = 2, lease = 7 },
      }, store:put("a", "3", { prev_kv = true }))
    end))
  end)

  describe("with ignore_value", function()
    it("keeps the value and increments the version", with_store(function(store)
      store:put("a", "kept")
      assert.equal(3, store:put("a", nil, { ignore_value = true }).revision)
      assert.equal(4, store:put("a", "", { ignore_value = true }).revision)
      local kv = store:get("a")
      assert.same({ "kept", 4, 3 }, { kv.value, kv.mod_revision, kv.version })
    end))

    it("changes the lease", with_store(function(store)
      store:lease(10, { id = 7 })
      store:put("a", "kept", { lease = 7 })
      store:put("a", nil, { ignore_value = true })
      assert.same({ "kept", 0 }, { store:get("a").value, store:get("a").lease })
      store:put("a", nil, { ignore_value = true, lease = 7 })
      assert.same({ "kept", 7 }, { store:get("a").value, store:get("a").lease })
    end))

    it("refuses a value", with_store(function(store)
      store:put("a", "kept")
      refuses(store, "value_provided", "a", "v", { ignore_value = true })
    end))

    it("refuses a missing key", with_store(function(store)
      refuses(store, "key_not_found", "a", nil, { ignore_value = true })
      store:put("a", "")
      store:delete("a")
      refuses(store, "key_not_found", "a", nil, { ignore_value = true })
    end))
  end)

  describe("with ignore_lease", function()
    it("keeps the lease and changes the value", with_store(function(store)
      local lease = store:lease(10)
      store:put("a", "1", { lease = lease })
      store:put("a", "2", { ignore_lease = true })
      assert.same({ "2", lease.id }, { store:get("a").value, store:get("a").lease })
      assert.same({ "a" }, lease:keys())
    end))

    it("refuses a lease", with_store(function(store)
      store:lease(10, { id = 7 })
      store:put("a", "1")
      refuses(store, "lease_provided", "a", "2", { ignore_lease = true, lease = 7 })
    end))

    it("refuses a missing key", function()
      refuses(new_store(), "key_not_found", "a", "v", { ignore_lease = true })
    end)
  end)

  it("refuses a missing lease", function()
    refuses(new_store(), "lease_not_found", "a", "v", { lease = 7 })
  end)

  it("reports the first of several errors: key, value, lease, look-up of lease, look-up of key", function()
    local store = new_store()
    refuses(store, "empty_key", "", "v", { ignore_value = true, ignore_lease = true, lease = 7 })
    refuses(store, "value_provided", "a", "v", { ignore_value = true, ignore_lease = true, lease = 7 })
    refuses(store, "lease_provided", "a", "", { ignore_value = true, ignore_lease = true, lease = 7 })
    refuses(store, "lease_not_found", "a", "", { ignore_value = true, lease = 7 })
  end)
end)
