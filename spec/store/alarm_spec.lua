--- Alarms: what works while something is wrong with the store, and what does not.

local keywatch = require "keywatch"

local answer = require "spec.support.answer"
local directory = require "spec.support.directory"
local state = require "spec.support.state"

local code = answer.code

local function with_new(fn) return function() fn(keywatch.open { now = 0 }) end end

local too_long = ("x"):rep(2097152)

describe("alarms", function()
  it("are armed and disarmed by name, any number of times", with_new(function(store)
    assert.same({}, store:alarms())
    assert.is_true(store:disarm("no_space"))
    assert.is_true(store:arm("corrupt"))
    assert.is_true(store:arm("no_space"))
    assert.is_true(store:arm("no_space"))
    assert.same({ "no_space", "corrupt" }, store:alarms())
    assert.is_true(store:disarm("no_space"))
    assert.same({ "corrupt" }, store:alarms())
  end))

  it("report corruption if both are armed", with_new(function(store)
    store:arm("no_space")
    store:arm("corrupt")
    assert.equal("corrupt", code(store:put("a", "")))
    assert.equal("corrupt", code(store:lease(10)))
  end))
end)

describe("alarms of other members", function()
  it("count as the store's own", with_new(function(store)
    assert(store:change_rows {
      { "alarms", "no_space/5", "" }, { "alarms", "no_space/7", "" }, { "alarms", "corrupt", "" }
    })
    assert.same({ "no_space" }, store:alarms())
    assert.same({ "no_space" }, store:status().alarms)
    assert.equal("no_space", code(store:put("a", "")))
    assert(store:change_rows { { "alarms", "corrupt/5", "" }, { "alarms", "no_space/5" }, { "alarms", "no_space/7" } })
    assert.same({ "corrupt" }, store:alarms())
    assert.equal("corrupt", code(store:delete("a")))
    assert(store:change_rows { { "alarms", "corrupt/5" } })
    assert.same({}, store:alarms())
    assert.is_table(store:put("a", ""))
  end))

  it("differ from the store's own", with_new(function(store)
    store:arm("corrupt")
    assert(store:change_rows { { "alarms", "no_space/5", "" }, { "alarms", "corrupt/5", "" } })
    assert.same({ { "no_space", "corrupt" }, { "corrupt" } }, { store:alarms(), store:alarms(true) })
    assert.is_true(store:disarm_own("corrupt"))
    assert.same({ { "no_space", "corrupt" }, {} }, { store:alarms(), store:alarms(true) })
  end))

  it("end with the store's own when that is disarmed by name", with_new(function(store)
    store:arm("no_space")
    assert(store:change_rows {
      { "alarms", "no_space/5", "" }, { "alarms", "no_space/7", "" }, { "alarms", "corrupt/5", "" }
    })
    assert.is_true(store:disarm("no_space"))
    assert.same({ "corrupt" }, store:alarms())
    assert.same({ "corrupt/5" }, store:rows("alarms"))
  end))

  it("are still armed when the store is opened again", function()
    local path = directory.new()
    local store = assert(keywatch.open { path = path })
    assert(store:change_rows { { "alarms", "no_space/5", "" } })
    store:close()
    store = assert(keywatch.open { path = path })
    assert.same({ { "no_space" }, {} }, { store:alarms(), store:alarms(true) })
    assert.equal("no_space", code(store:put("a", "")))
    assert.is_true(store:disarm("no_space"))
    store:close()
    store = assert(keywatch.open { path = path })
    assert.same({}, store:alarms())
    store:close()
    directory.remove(path)
  end)
end)

local store, lease

--- Opens a store with two keys, one of them of a lease.
local function open_armed(alarm)
  store = keywatch.open { now = 0 }
  lease = store:lease(10, { id = 7 })
  store:put("a", "", { lease = lease })
  store:put("b", "")
  store:arm(alarm)
end

describe("while the alarm no_space is armed", function()
  before_each(function() open_armed "no_space" end)

  it("puts, transactions with a put anywhere, and new leases are refused", function()
    local before = state.of(store)
    local put = { put = "c", value = "" }
    assert.equal("no_space", code(store:put("a", "")))
    assert.equal("no_space", code(store:put("a", "", { lease = 99 })))
    assert.equal("no_space", code(store:put("none", nil, { ignore_value = true })))
    assert.equal("no_space", code(store:txn { success = { put } }))
    assert.equal("no_space", code(store:txn { failure = { put } }))
    assert.equal("no_space", code(store:txn { success = { { txn = { failure = { put } } } } }))
    assert.equal("no_space", code(store:lease(10)))
    assert.equal("no_space", code(store:lease(9000000001)))
    state.expect(store, before)
  end)

  it("invalid and too large requests get their own error", function()
    assert.equal("empty_key", code(store:put("", "")))
    assert.equal("request_too_large", code(store:put("a", too_long)))
    local put = { put = "a", value = "" }
    assert.equal("duplicate_key", code(store:txn { success = { put, put } }))
  end)

  it("reads, deletes, compaction, and renewals and revocations of leases work", function()
    assert.equal("b", store:get("b").key)
    assert.equal(2, store:range("", { prefix = true }).count)
    assert.is_true(store:txn({ success = { { get = "a" }, { delete = "b" } } }).succeeded)
    assert.is_true(store:txn({ success = { { txn = { success = { { delete = "b" } } } } } }).succeeded)
    assert.equal(10, lease:keepalive())
    assert.equal(5, lease:revoke().revision)
    assert.equal(0, store:delete("a").deleted)
    assert.is_table(store:compact(5, { physical = true }))
    assert.is_table(store:hash_kv())
  end)

  it("leases expire", function()
    store:step(10)
    assert.is_nil(store:get("a"))
  end)
end)

describe("while the alarm corrupt is armed", function()
  before_each(function() open_armed "corrupt" end)

  it("every write is refused", function()
    store:disarm("corrupt")
    local before = state.of(store)
    store:arm("corrupt")
    assert.equal("corrupt", code(store:put("a", "")))
    assert.equal("corrupt", code(store:delete("a")))
    assert.equal("corrupt", code(store:delete("none")))
    assert.equal("corrupt", code(store:txn { success = { { put = "a", value = "" } } }))
    assert.equal("corrupt", code(store:txn { failure = { { delete = "a" } } }))
    assert.equal("corrupt", code(store:txn { success = { { txn = {} } } }))
    assert.equal("corrupt", code(store:compact(2)))
    assert.equal("corrupt", code(store:compact(99)))
    assert.equal("corrupt", code(store:lease(10)))
    assert.equal("corrupt", code(lease:revoke()))
    assert.equal("corrupt", code(store:lease_by_id(99):revoke()))
    store:disarm("corrupt")
    state.expect(store, before)
  end)

  it("invalid and too large requests get their own error", function()
    assert.equal("empty_key", code(store:put("", "")))
    assert.equal("request_too_large", code(store:put("a", too_long)))
  end)

  it("everything is readable", function()
    assert.equal("b", store:get("b").key)
    assert.equal(2, store:range("", { prefix = true }).count)
    assert.is_true(store:txn({ compare = { { key = "a", version = 1 } }, success = { { get = "a" } } }).succeeded)
    assert.is_true(store:txn({}).succeeded)
    assert.equal(3, store:hash_kv().revision)
    assert.equal(3, store:status().revision)
  end)

  it("leases can be queried and renewed", function()
    assert.equal(10, lease:keepalive())
    assert.equal(10, lease:remaining())
    assert.same({ "a" }, lease:keys())
    assert.same({ 7 }, store:leases())
  end)

  it("expired leases keep their keys, until the alarm is disarmed", function()
    store:step(20)
    store:step(30)
    assert.equal(3, store:status().revision)
    store:disarm("corrupt")
    store:step(40)
    assert.same({ 4, 1, 0 }, { store:status().revision, store:status().keys, store:status().leases })
  end)
end)
