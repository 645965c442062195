--- The life of a store: open, closed, collected, and at the end of its program.

local keywatch = require "keywatch"
local probe = require("keywatch.core").probe

local misuse = require "spec.support.misuse"
local program = require "spec.support.program"

local function store_with_keys(opts)
  local store = keywatch.open(opts or { now = 0 })
  local lease = store:lease(10)
  for i = 1, 20 do store:put("key " .. i, ("v"):rep(100), i % 2 == 0 and { lease = lease } or nil) end
  store:delete("key 3")
  return store
end

local function with_store(fn) return function() fn(store_with_keys()) end end

describe("a closed store", function()
  -- Every method, and what it needs to be called at all.
  local calls = {
    get = { "a" },
    range = { "a" },
    each = { "a" },
    put = { "a", "" },
    delete = { "a" },
    txn = { {} },
    compact = { 1 },
    lease = { 5 },
    leases = {},
    status = {},
    hash_kv = {},
    alarms = {},
    arm = { "no_space" },
    disarm = { "no_space" },
    deadline = {},
    step = { 1 },
    load = {},
    merge = {},
  }

  it("may be closed again", with_store(function(store)
    store:close()
    store:close()
    assert.equal("keywatch.store<closed>", tostring(store))
  end))

  it("raises in every method", with_store(function(store)
    store:close()
    for name, given in pairs(calls) do
      local function call()
        local next_kv = store[name](store, given[1], given[2])
        if name == "each" then next_kv() end
      end
      assert.matches("closed", misuse.raises(call, name))
    end
  end))

  it("raises for its leases", with_store(function(store)
    local lease, other = store:lease(10), store:lease_by_id(7)
    store:close()
    for _, name in ipairs { "keepalive", "remaining", "keys", "revoke" } do
      assert.matches("closed", misuse.raises(lease[name], lease))
      assert.matches("closed", misuse.raises(other[name], other))
    end
  end))

  it("raises in a loop over it", with_store(function(store)
    local seen = 0
    local words = misuse.raises(function()
      for _ in store:each("", { prefix = true, page = 3 }) do
        seen = seen + 1
        store:close()
      end
    end)
    assert.matches("closed", words)
    assert.equal(3, seen)
  end))

  it("does not change earlier results", with_store(function(store)
    local kv, found = store:get("key 1"), store:range("key 1", { prefix = true })
    store:close()
    collectgarbage()
    assert.equal(("v"):rep(100), kv.value)
    assert.equal("key 1", found.kvs[1].key)
  end))
end)

describe("a store", function()
  it("is closed with its to-be-closed variable", function()
    if jit then return end -- there are no such variables
    local store = assert(load [[
      local store
      do
        local closing <close> = require("keywatch").open { now = 0 }
        closing:put("a", "")
        store = closing
      end
      return store
    ]])()
    assert.equal("keywatch.store<closed>", tostring(store))
  end)

  it("is closed by its finalizer, which may come after a close", function()
    local finalize = getmetatable(keywatch.open()).__gc
    local store = store_with_keys()
    store:close()
    finalize(store)
    store = store_with_keys()
    finalize(store)
    assert.matches("closed", misuse.raises(store.get, store, "key 1"))
    finalize(store)
    store:close()
  end)

  it("is referenced by its leases and by loops over it", function()
    local lease = store_with_keys():lease(10)
    local next_kv = store_with_keys():each("", { prefix = true, page = 1 })
    next_kv()
    collectgarbage()
    assert.equal(10, lease:keepalive())
    assert.equal("key 10", next_kv().key)
  end)

  it("leaves no memory behind", function()
    if not probe then return end -- no counter of memory
    collectgarbage()
    local base = probe.live()
    for i = 1, 20 do
      local store = store_with_keys { now = 0, step_records = 1 }
      store:compact(10)
      store:txn { success = { { put = "a", value = "" }, { delete = "key", prefix = true, prev_kv = true } } }
      store:range("", { prefix = true, revision = 20, sort_target = "value", sort_order = "descend" })
      store:step(i % 3 * 10)
      local replica = keywatch.open { now = 0, replica = true, history_bytes = 100 }
      replica:load_kvs(5, { { key = "a", value = "", create_revision = 1, mod_revision = 2, version = 1, lease = 7 } })
      for revision = 6, 20 do replica:apply(revision, { { type = "delete", key = "a" } }) end
      if i % 2 == 0 then store:close() replica:close() end
    end
    assert.is_true(probe.live() > base)
    collectgarbage()
    assert.equal(base, probe.live())
  end)
end)

describe("as text", function()
  it("a store has its revision and its number of keys", with_store(function(store)
    assert.equal("keywatch.store<revision=22 keys=19>", tostring(store))
  end))

  it("a lease has its id and, if known, its TTL", with_store(function(store)
    assert.equal("keywatch.lease<id=7 ttl=30>", tostring(store:lease(30, { id = 7 })))
    assert.matches("id=7", tostring(store:lease_by_id(7)))
    assert.matches("id=123456789012", tostring(store:lease_by_id(123456789012)))
  end))

  it("keywatch has its version", function() assert.matches("^keywatch ", keywatch._VERSION) end)
end)

-- spec/watch/watch_life_spec.lua has programs with watches that end.
describe("a program ends", function()
  for what, text in pairs {
    ["inside of a loop over a store"] = 'everyone = store:each("", { prefix = true, page = 2 }) everyone()',
    ["with a store in a sleeping coroutine"] = [[
      everyone = coroutine.wrap(function(mine)
        coroutine.yield()
        mine:close()
      end)
      everyone(store)
      store = nil
    ]],
  } do
    it(what, function()
      assert.equal("end\n", program.printed_by([[
        local store = require("keywatch").open()
        for i = 1, 100 do store:put("key " .. i, ("v"):rep(1000), { lease = store:lease(60) }) end
        store:compact(50)
      ]] .. text .. "\nprint 'end'"))
    end)
  end
end)
