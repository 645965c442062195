--- Limits of the size of a request, and of the store.

local keywatch = require "keywatch"

local answer = require "spec.support.answer"
local state = require "spec.support.state"

local code = answer.code

local KIB = 1024

local function new_store(opts)
  opts = opts or {}
  opts.now = 0
  return keywatch.open(opts)
end

describe("a request", function()
  local store, long

  before_each(function()
    store = new_store { max_request_bytes = 1000 }
    long = ("x"):rep(1000)
  end)

  local function refuses(...)
    local before = state.of(store)
    assert.equal("request_too_large", code(...))
    state.expect(store, before)
  end

  it("that writes may have 1.5 MiB, with its framing, by default", function()
    store = new_store()
    assert.is_table(store:put("k", ("x"):rep(1536 * KIB - 64)))
    refuses(store:put("k", ("x"):rep(1536 * KIB)))
  end)

  it("is too large by its key, by its value, or by both", function()
    refuses(store:put("k", long))
    refuses(store:put(long, ""))
    refuses(store:put(long:sub(1, 500), long:sub(1, 500)))
    refuses(store:delete(long))
    refuses(store:delete("a", { range_end = long }))
    assert.is_table(store:put("k", long:sub(1, 950)))
  end)

  it("is too large as a transaction by any of its parts", function()
    local small, large = { put = "k", value = "" }, { put = "k2", value = long }
    refuses(store:txn { success = { large } })
    refuses(store:txn { success = { small }, failure = { large } })
    refuses(store:txn { compare = { { key = "k", value = long } }, success = { small } })
    refuses(store:txn { compare = { { key = long, version = 0 } }, success = { small } })
    refuses(store:txn { success = { small, { get = long } } })
    refuses(store:txn { success = { { txn = { success = { { get = long } } } } } })
    local half = long:sub(1, 500)
    refuses(store:txn { success = { { put = "a", value = half }, { put = "b", value = half } } })
  end)

  it("is measured with every field of its message", function()
    local value = ""
    local function txn(read) return store:txn { success = { { put = "k", value = value }, read } } end
    while txn { get = "k" } do value = value .. "x" end
    value = value:sub(2)
    assert.is_table(txn { get = "k" })
    refuses(txn { get = "k", serializable = true })
    refuses(txn { get = "k", revision = 1 })
  end)

  it("that only reads may have any size", function()
    assert.is_nil(store:get(long))
    assert.equal(0, store:range(long, { prefix = true }).count)
    assert.is_true(store:txn({ success = { { get = long }, { range = long } } }).succeeded)
    assert.is_false(store:txn({ compare = { { key = long, version = 1 } } }).succeeded)
  end)

  it("is first checked for its form", function()
    assert.equal("empty_key", code(store:put("", long)))
    assert.equal("value_provided", code(store:put("k", long, { ignore_value = true })))
  end)

  it("is checked for its size before any look-up", function()
    refuses(store:put("k", long, { lease = 99 }))
  end)
end)

describe("the quota", function()
  it("is 2 GiB by default", function()
    assert.equal(2147483648, new_store():status().quota)
    assert.equal(2147483648, new_store({ quota_backend_bytes = 0 }):status().quota)
    assert.equal(100000, new_store({ quota_backend_bytes = 100000 }):status().quota)
  end)

  --- A store with room for that many bytes, as the quota counts them.
  local function store_with_room(bytes)
    return new_store { quota_backend_bytes = new_store():status().db_size + bytes }
  end

  it("counts 256 bytes, the key and the value of a put", function()
    assert.equal("no_space", code(store_with_room(256 + 2 + 30):put("kk", ("x"):rep(30))))
    assert.is_table(store_with_room(256 + 2 + 30 + 1):put("kk", ("x"):rep(30)))
  end)

  it("counts 64 bytes of a lease", function()
    assert.equal("no_space", code(store_with_room(64):lease(10)))
    assert.is_table(store_with_room(65):lease(10))
  end)

  it("counts the puts of the larger branch of a transaction, nested ones too", function()
    local function put(key) return { put = key, value = "" } end
    local function txn(room, success, failure)
      return code(store_with_room(room):txn { success = success, failure = failure })
    end
    local two = 2 * 256 + 3
    assert.equal("no_space", txn(two, { put("a"), put("bb") }))
    assert.equal("no failure", txn(two + 1, { put("a"), put("bb") }))
    assert.equal("no_space", txn(two, {}, { put("a"), put("bb") }))
    assert.equal("no failure", txn(two + 1, { put("a") }, { put("a"), put("bb") }))
    local nested = { txn = { success = { put("bb") }, failure = { put("c") } } }
    assert.equal("no_space", txn(two, { nested, put("a") }))
    assert.equal("no failure", txn(two + 1, { nested, put("a") }))
  end)

  it("does not count reads and deletes", function()
    local store = store_with_room(1)
    assert.is_table(store:delete("k"))
    assert.is_table(store:txn { success = { { delete = "k" }, { get = "k" } } })
    assert.same({}, store:alarms())
  end)

  it("arms the alarm when it is exceeded, and nothing else changes", function()
    local store = store_with_room(300)
    local before = state.of(store)
    assert.equal("no_space", code(store:put("k", ("x"):rep(100))))
    assert.same({ "no_space" }, store:alarms())
    assert.same({ "no_space" }, store:status().alarms)
    before.alarms, before.status.alarms = { "no_space" }, { "no_space" }
    state.expect(store, before)
    assert.equal("no_space", code(store:put("k", ""))) -- although this would have fitted
  end)

  it("is checked before the form of a request", function()
    assert.equal("no_space", code(store_with_room(10):put("", "")))
  end)

  it("refuses a lease once leases have used it up, and grants one again after some have ended", function()
    local store = store_with_room(100000)
    local leases = {}
    repeat
      local lease, err = store:lease(10)
      leases[#leases + 1] = lease
    until err or #leases > 2000
    assert.equal("no_space", code(store:lease(10)))
    assert.same({ "no_space" }, store:alarms())
    assert.equal("no_space", code(store:put("k", "")))
    for _, lease in ipairs(leases) do assert.is_truthy(lease:revoke()) end
    assert.equal("no_space", code(store:lease(10))) -- as long as the alarm is armed
    store:disarm("no_space")
    assert.is_table(store:lease(10))
    assert.is_table(store:put("k", ""))
  end)

  it("can be switched off", function()
    local store = new_store { quota_backend_bytes = -1 }
    assert.is_table(store:put("k", ""))
    assert.is_table(store:lease(10))
  end)
end)
