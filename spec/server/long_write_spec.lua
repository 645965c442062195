--- Long writes over the wire: a write that takes more than one turn lets reads run in between, which never see a part
-- of it.

local core = require "keywatch.core"
local keywatch = require "keywatch"
local probe = core.probe

local directory = require "spec.support.directory"
local pair = require "spec.support.pair"
local starve = require "spec.support.starve"
local uv = require "spec.support.luv"
local within = require "spec.support.within"

local MANY = probe and 100 or 25000 -- keys: more than one turn visits
local ALL = { key = "k", range_end = "l" }

local function fill(store)
  store:lease(1000, { id = 7 })
  for i = 1, MANY do store:put(("k%06d"):format(i), "old", { lease = 7 }) end
  store:put("other", "old")
end

--- Returns a transaction with a compare of all keys and operations of every kind.
local function long_txn()
  return {
    compare = { { key = "k", range_end = "l", target = "VERSION", version = 1, result = "EQUAL" } },
    success = {
      { request_put = { key = "other", value = "new", prev_kv = true } },
      { request_delete_range = { key = "k", range_end = "k000020", prev_kv = true } },
      { request_txn = {
        compare = { { key = "k", range_end = "l", target = "MOD", mod_revision = 1, result = "GREATER" } },
        success = { { request_range = ALL }, { request_delete_range = ALL } },
        failure = { { request_put = { key = "wrong", value = "" } } },
      } },
      { request_range = { key = "\0", range_end = "\0" } },
    },
  }
end

describe("a long write", function()
  local host, store, client, other

  local function open(options)
    host = pair.host(options)
    store, client, other = host.store, host:client(), host:client()
    fill(store)
    host:pump()
  end

  before_each(function() open() end)

  after_each(function()
    host:check()
    host:close()
    directory.remove_all()
  end)

  --- Does one turn of the server.
  local function turn() host.server:step(host.now) end

  --- Turns until a call has its answer. Returns that.
  local function finish(call)
    while call:look() == nil do turn() end
    return call:look()
  end

  local function check()
    if probe then probe.check(store) end
    host:check()
  end

  it("lets reads run in between, which see the previous state, and makes writes wait", function()
    local revision = store:status().revision
    local delete = client:begin("DeleteRange", ALL)
    local put = other:begin("Put", { key = "k1", value = "new" })
    local count = other:begin("Range", { key = "k", range_end = "l", count_only = true })
    local between = 0
    while delete:look() == nil do
      check()
      local answer = other:begin("Range", { key = ("k%06d"):format(1) }):look()
      assert.equal("old", answer.kvs[1].value)
      assert.equal(revision, answer.header.revision)
      assert.is_nil((put:look()))
      between = between + 1
      turn()
    end
    assert.is_true(between > 1)
    assert.equal(MANY, finish(count).count)
    assert.equal(revision, count:look().header.revision)
    assert.equal(MANY, delete:look().deleted)
    assert.equal(revision + 1, delete:look().header.revision)
    assert.equal(revision + 2, finish(put).header.revision)
    assert.equal(1, store:range("k", { prefix = true, count_only = true }).count)
    assert.is_nil(store:get("k000001"))
  end)

  it("is not counted before its end", function()
    local delete = client:begin("DeleteRange", ALL)
    turn()
    local count = other:begin("Range", { key = "k", range_end = "l", count_only = true })
    local page = other:begin("Range", { key = "k", range_end = "l", limit = 1 })
    assert.equal(MANY + 1, store:status().keys)
    assert.is_nil((delete:look()))
    assert.equal(MANY, finish(count).count)
    assert.equal(MANY, finish(page).count)
    assert.is_true(finish(delete).deleted > 0)
  end)

  it("revokes a lease with many keys", function()
    local revision = store:status().revision
    local revoke = client:begin("LeaseRevoke", { ID = 7 })
    local keys = other:begin("LeaseTimeToLive", { ID = 7, keys = true })
    assert.is_nil((revoke:look()))
    assert.equal(revision + 1, finish(revoke).header.revision)
    assert.equal(-1, finish(keys).TTL)
    check()
    local watch = store:watch("k", { prefix = true, start_revision = revision + 1 })
    local before = ""
    for _, event in ipairs(watch:batch(60).events) do
      assert.is_true(before < event.key)
      before = event.key
    end
    watch:close()
  end)

  it("lets a lease with many keys expire", function()
    local revision = store:status().revision
    host.store:step(2000)
    while store:step(2000) do check() end
    assert.equal(revision + 1, store:status().revision)
    assert.equal(0, #store:leases())
    assert.equal(0, store:range("k", { prefix = true, count_only = true }).count)
  end)

  it("is finished in one piece before another write of the process", function()
    local revision = store:status().revision
    local delete = client:begin("DeleteRange", ALL)
    assert.is_nil((delete:look()))
    assert.equal(revision + 2, store:put("a", "").revision)
    assert.equal(MANY, delete:look().deleted)
    delete = client:begin("LeaseRevoke", { ID = 7 })
    assert.equal(0, #store:leases())
    finish(delete)
  end)

  -- Is long, might write, and changes nothing.
  local IDLE = {
    compare = { { key = "k", range_end = "l", target = "VERSION", version = 1, result = "EQUAL" } },
    failure = { { request_put = { key = "a", value = "" } } },
  }

  local function idle()
    return store:txn {
      compare = { { key = "k", range_end = "l", version = 1 } }, failure = { { put = "a", value = "" } },
    }
  end

  it("is followed by the write of a task that came before other requests", within.task(function()
    local calls = { client:begin("Txn", IDLE), other:begin("Txn", IDLE) }
    local order = {}
    local task = keywatch.spawn(function()
      assert(store:put("task", ""))
      order[#order + 1] = "task"
    end)
    keywatch.sleep(0)
    calls[3], calls[4] = client:begin("Txn", IDLE), other:begin("Put", { key = "a", value = "" })
    for i, call in ipairs(calls) do call.place = i end
    while #calls > 0 do
      turn()
      while calls[1] and calls[1]:look() ~= nil do order[#order + 1] = table.remove(calls, 1).place end
      if not store:is_busy() then keywatch.sleep(0) end
    end
    assert(task:join())
    assert.same({ 1, 2, "task", 3, 4 }, order)
  end))

  it("of a task is followed by a request that came before other tasks", within.task(function()
    local order, tasks = {}, {}
    local function spawn_idle(from, to)
      for i = from, to do
        tasks[i] = keywatch.spawn(function()
          assert(idle())
          order[#order + 1] = i
        end)
      end
      keywatch.sleep(0)
    end
    spawn_idle(1, 2)
    assert.is_true(store:is_busy())
    local put = client:begin("Put", { key = "a", value = "" })
    spawn_idle(3, 4)
    assert(tasks[2]:join())
    for _ = 1, 3 do keywatch.sleep(0) end
    assert.is_false(store:is_busy())
    assert.same({ 1, 2 }, order)
    assert.is_nil((put:look()))
    local last = keywatch.spawn(idle)
    keywatch.sleep(0)
    turn()
    assert.is_not_nil(put:look())
    assert(keywatch.join { tasks[3], tasks[4], last })
    assert.same({ 1, 2, 3, 4 }, order)
  end))

  it("is committed without an answer if its connection closes", function()
    client:begin("DeleteRange", ALL)
    turn()
    table.remove(host.ends, 1):close()
    check()
    host:pump()
    assert.equal(0, store:range("k", { prefix = true, count_only = true }).count)
  end)

  it("is committed if its server closes", function()
    client:begin("DeleteRange", ALL)
    host.server:close()
    assert.equal(0, store:range("k", { prefix = true, count_only = true }).count)
  end)

  it("ends with its store", function()
    client:begin("Txn", long_txn())
    other:begin("Put", { key = "a", value = "" })
    turn()
    store:close()
  end)

  it("makes requests wait, which are dropped with their streams", function()
    client:begin("DeleteRange", ALL)
    local put = other:begin("Put", { key = "a", value = "" })
    local kept = other:begin("Put", { key = "b", value = "" })
    other.client:cancel(put.number)
    other:push()
    check()
    finish(kept)
    assert.is_nil(store:get("a"))
    assert.is_not_nil(store:get("b"))
  end)

  if probe then
    it("is rolled back if memory is short", function()
      local n, is_come_to = 1, true
      while is_come_to do
        local revision = store:status().revision
        is_come_to = starve.during(probe.fail_core, n, function()
          client:begin("Txn", long_txn())
          turn()
          turn()
          turn()
        end)
        host:pump()
        check()
        if store:status().revision == revision then
          assert.equal(MANY, store:range("k", { prefix = true, count_only = true }).count)
        else
          host:close()
          open()
        end
        n = n + 1
      end
    end)
  end
end)

if probe then
  describe("a long write of a durable store", function()
    local host, store, client

    before_each(function()
      host = pair.host { path = directory.new() }
      store, client = host.store, host:client()
      fill(store)
      store:leases()
    end)

    after_each(function()
      host:close()
      directory.remove_all()
    end)

    -- A commit that has detached most keys frees their memory, while the revocation lists the others.
    it("finds all keys of a lease, whatever is committed in between", function()
      for i = MANY + 1, 400 do store:put(("k%06d"):format(i), "old", { lease = 7 }) end
      probe.hold_disk(store, true)
      local delete = client:begin("DeleteRange", { key = "k", range_end = "k000361" })
      for _ = 1, 60 do host.server:step(host.now) end
      local revoke = client:begin("LeaseRevoke", { ID = 7 })
      host.server:step(host.now)
      probe.hold_disk(store, false)
      uv.sleep(20) -- so that the commit is likely to be done before the next turn
      repeat host:pump() until delete:look() and revoke:look()
      assert.equal(0, store:range("k", { prefix = true, count_only = true }).count)
      probe.check(store)
    end)

    for _, how in ipairs { "no_space", "no_memory", "none" } do
      it("ends with the previous commit group: " .. how, function()
        probe.hold_disk(store, true)
        local put = client:begin("Put", { key = "other", value = "new" })
        host.server:step(host.now)
        local delete = client:begin("DeleteRange", { key = "k", range_end = "l", prev_kv = true })
        host.server:step(host.now)
        probe.check(store)
        if how ~= "none" then probe.fail_disk(store, how) end
        probe.hold_disk(store, false)
        repeat host:pump() until put:look() and delete:look()
        local is_failed = how ~= "none"
        assert.equal(is_failed, type(put:look()) == "number") -- the status
        assert.equal(is_failed, type(delete:look()) == "number")
        assert.equal(is_failed and MANY or 0, store:range("k", { prefix = true, count_only = true }).count)
        probe.check(store)
      end)
    end
  end)
end
