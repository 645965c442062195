--- Writes that are not durable yet: they are not delivered, and only calls that have seen them wait for them. If they
-- never become durable, they are undone.
--
-- In builds with a probe the disk is held, so that writes stay pending, or it fails.

local keywatch = require "keywatch"

local answer = require "spec.support.answer"
local directory = require "spec.support.directory"
local events = require "spec.support.events"
local probed = require "spec.support.probed"
local state = require "spec.support.state"
local within = require "spec.support.within"

local unpack = rawget(table, "unpack") or rawget(_G, "unpack")

local everything = { prefix = true }

local probe = probed.get("what is not durable yet")
if not probe then return end

local TURNS = 5 -- of the loop, in which all happens that can

local store, path

local function open(options) store = directory.open(path, options) end

local function reopen(options)
  store:close()
  open(options)
end

local function settle()
  for _ = 1, TURNS do keywatch.sleep(0) end
end

local function hold() probe.hold_disk(store, true) end
local function release() probe.hold_disk(store, false) end

--- The disk is held while fn runs, as a task.
local function while_held(fn)
  keywatch.run(function()
    hold()
    fn()
    release()
  end)
end

local function held(fn) return function() while_held(fn) end end

--- Makes a call of the store in a task, as far as it gets: call.is_done, call.answer and call.err.
local function begin(method, ...)
  local call, arguments, n = {}, { ... }, select("#", ...)
  call.task = keywatch.spawn(function()
    call.answer, call.err = store[method](store, unpack(arguments, 1, n))
    call.is_done = true
  end)
  settle()
  return call
end

local function begin_of_lease(method, id)
  local call = {}
  call.task = keywatch.spawn(function()
    local lease = store:lease_by_id(id)
    call.answer, call.err = lease[method](lease)
    call.is_done = true
  end)
  settle()
  return call
end

--- What a call comes to, which was not done before the disk was let go.
local function finish(call)
  assert.is_nil(call.is_done, "it has not waited")
  release()
  assert(call.task:join())
  return call.answer, call.err
end

local function code_of(call) return answer.code(finish(call)) end

before_each(function()
  path = directory.new()
  open()
  store:lease(100, { id = 7 })
  store:put("a", "old", { lease = 7 })
  store:put("b", "old")
end)

after_each(function()
  if probe and store:run_due() ~= false then
    release()
    probe.check(store)
    store:close()
  end
  directory.remove_all()
end)

describe("a write that is not durable yet", function()
  local writes = {
    put = function() return begin("put", "a", "new") end,
    delete = function() return begin("delete", "a") end,
    txn = function() return begin("txn", { success = { { put = "a", value = "new" } } }) end,
    compact = function() return begin("compact", 2) end,
    ["physical compact"] = function() return begin("compact", 2, { physical = true }) end,
    lease = function() return begin("lease", 10) end,
    revoke = function() return begin_of_lease("revoke", 7) end,
    arm = function() return begin("arm", "corrupt") end,
    defragment = function() return begin("defragment") end,
  }
  for name, write in pairs(writes) do
    it("is answered when it is durable: " .. name, function()
      while_held(function() assert.is_truthy(finish(write())) end)
    end)

    it("may have been done, if its task is cancelled: " .. name, held(function()
      local call = write()
      call.task:cancel()
      local ok, err = call.task:join()
      assert.same({ false, "cancelled", true }, { ok, err.code, err.maybe_done })
    end))

    it("may have been done, if the store is closed: " .. name, held(function()
      local call = write()
      store:close()
      assert(call.task:join())
      assert.same({ "closed", true }, { call.err.code, call.err.maybe_done })
      open()
    end))

    it("may have been done, if the disk's state is unknown: " .. name, held(function()
      local call = write()
      probe.fail_disk(store, "storage")
      assert.equal("storage", code_of(call))
      assert.is_true(call.err.maybe_done)
    end))
  end

  it("was certainly not done, if memory was short", held(function()
    local call = begin("put", "a", "new")
    probe.fail_disk(store, "no_memory")
    assert.equal("out_of_memory", code_of(call))
    assert.is_nil(call.err.maybe_done)
  end))

  it("is not answered when its task is woken early", function()
    local driver = require("keywatch.task.driver").get()
    local event, events_made = driver.event, {}
    while_held(function()
      driver.event = function()
        local made = event()
        table.insert(events_made, made)
        return made
      end
      local call = begin("put", "a", "new")
      driver.event = event
      for _, made in ipairs(events_made) do made:set() end
      settle()
      assert.equal(4, finish(call).revision)
      assert.equal("new", store:get("a").value)
    end)
  end)

  it("has no outcome", held(function()
    local call = begin("put", "a", "new")
    local mark = store:settled() + 1
    assert.is_false(store:outcome(mark))
    finish(call)
    assert.is_true(store:outcome(mark))
  end))

  it("is not done by a read that is cancelled while it waits", held(function()
    begin("put", "c", "new", { lease = 7 })
    local call = begin_of_lease("keys", 7)
    call.task:cancel()
    local _, err = call.task:join()
    assert.same({ "cancelled" }, { err.code, err.maybe_done })
  end))

  it("is answered when it is durable: disarm", function()
    store:arm("no_space")
    while_held(function() assert.is_true(finish(begin("disarm", "no_space"))) end)
    assert.same({}, store:alarms())
  end)

  it("is invisible to reads, which do not wait", held(function()
    local before = state.trace(store)
    local calls = { begin("put", "a", "new"), begin("put", "c", "new"), begin("delete", "b") }
    assert.equal("old", store:get("a").value)
    assert.equal("a b", answer.keys(store:range("", everything)))
    assert.equal("a b", answer.keys_of_each(store:each("", everything)))
    assert.equal(3, store:range("", everything).revision)
    assert.equal(2, store:range("", { prefix = true, count_only = true }).count)
    local txn = store:txn { compare = { { key = "a", value = "old" } }, success = { { get = "b" } } }
    assert.same({ true, 3, "b" }, { txn.succeeded, txn.revision, txn.responses[1].key })
    assert.equal(3, store:status().revision)
    assert.equal(before, state.trace(store))
    assert.equal("future_revision", answer.code(store:get("a", { revision = 4 })))
    assert.equal("future_revision", answer.code(store:hash_kv(4)))
    release()
    for i, call in ipairs(calls) do
      assert(call.task:join())
      assert.equal(3 + i, call.answer.revision)
    end
    assert.equal("new", store:get("a").value)
    assert.equal("a c", answer.keys(store:range("", everything)))
  end))

  it("is visible to later writes", held(function()
    begin("put", "a", "1")
    begin("put", "a", "2")
    local third = finish(begin("put", "a", "3", { prev_kv = true }))
    assert.equal(6, third.revision)
    assert.same({ "2", 3, 5 }, { third.prev_kv.value, third.prev_kv.version, third.prev_kv.mod_revision })
  end))

  it("is not delivered to watches", held(function()
    local now, past = store:watch("", everything), store:watch("", { prefix = true, start_revision = 3 })
    assert.equal("b", past:next(0).key)
    local call = begin("txn", { success = { { put = "a", value = "new" }, { delete = "b" } } })
    local late = store:watch("", { prefix = true, start_revision = 4 })
    local behind = store:watch("", { prefix = true, start_revision = 2 })
    while store:step() do end -- luacheck: ignore 542
    assert.same({ "put a 2, put b 3", "timeout" }, { events.drain(behind) })
    for _, watch in ipairs { now, past, late } do assert.equal("timeout", answer.code(watch:next(0))) end
    assert.equal(3, now:sync(0))
    finish(call)
    for _, watch in ipairs { now, past, late, behind } do
      local batch = watch:batch(0)
      assert.same({ 4, "put", "a", "delete", "b" },
        { batch.revision, batch.events[1].type, batch.events[1].key, batch.events[2].type, batch.events[2].key })
      assert.equal("timeout", answer.code(watch:next(0)))
    end
  end))

  it("wakes its waiters", held(function()
    local watch = store:watch("a")
    local reader = keywatch.spawn(function() return watch:next().value end)
    local call = begin("put", "a", "new")
    assert.equal("keywatch.task<parked>", tostring(reader))
    finish(call)
    assert.same({ true, "new" }, { reader:join() })
  end))
end)

describe("an answer that depends on a write that is not durable yet", function()
  local answers = {
    ["of a lease that is granted"] = {
      function() begin("lease", 10, { id = 8 }) return begin_of_lease("remaining", 8) end, 10,
    },
    ["the keys of a lease"] = {
      function() begin("put", "c", "new", { lease = 7 }) return begin_of_lease("keys", 7) end, { "a", "c" },
    },
    ["a list of leases"] = { function() begin("lease", 10, { id = 8 }) return begin("leases") end, { 8, 7 } },
    ["a delete that finds nothing any more"] = {
      function() begin("delete", "a") return begin("delete", "a") end, { revision = 4, deleted = 0 },
    },
  }
  for what, case in pairs(answers) do
    it("waits, if it is " .. what, held(function() assert.same(case[2], finish(case[1]())) end))
  end

  it("waits, if a transaction has compared with it", held(function()
    begin("put", "a", "new")
    local txn = {
      compare = { { key = "a", value = "old" } }, success = { { put = "a", value = "newer" } },
      failure = { { get = "a" } },
    }
    local result = finish(begin("txn", txn))
    assert.same({ false, 4, "new" }, { result.succeeded, result.revision, result.responses[1].value })
  end))

  it("waits, if a transaction has compared with it and does nothing", held(function()
    begin("put", "a", "new")
    local txn = { compare = { { key = "a", value = "new" } }, failure = { { put = "a", value = "newer" } } }
    assert.is_true(finish(begin("txn", txn)).succeeded)
  end))

  local failures = {
    { "lease_not_found", "a put with a lease that is revoked",
      function() begin_of_lease("revoke", 7) return begin("put", "c", "", { lease = 7 }) end },
    { "lease_not_found", "a lease that is revoked twice",
      function() begin_of_lease("revoke", 7) return begin_of_lease("revoke", 7) end },
    { "lease_not_found", "the time of a lease that is revoked",
      function() begin_of_lease("revoke", 7) return begin_of_lease("remaining", 7) end },
    { "lease_exists", "a lease that is granted twice",
      function() begin("lease", 10, { id = 8 }) return begin("lease", 10, { id = 8 }) end },
    { "key_not_found", "a put that wants the value of a key that is deleted",
      function() begin("delete", "a") return begin("put", "a", "", { ignore_value = true }) end },
    { "compacted", "a compaction before one that is running",
      function() begin("compact", 3) return begin("compact", 2) end },
    { "no_space", "a put after an alarm",
      function() begin("arm", "no_space") return begin("put", "a", "new") end },
  }
  for _, failure in ipairs(failures) do
    local code, what, ask = failure[1], failure[2], failure[3]
    it(("waits, if it is %s: %s"):format(code, what), function()
      while_held(function() assert.equal(code, code_of(ask())) end)
    end)

    it(("is the error of the group, if that fails: not %s: %s"):format(code, what), held(function()
      local call = ask()
      probe.fail_disk(store, "no_memory")
      assert.equal("out_of_memory", code_of(call))
    end))
  end

  it("reports the revision of the compaction because of which it was refused", held(function()
    begin("compact", 3)
    local _, err = finish(begin("compact", 2))
    assert.equal(3, err.compact_revision)
  end))

  it("does not wait, if it renews a lease whose revocation is not durable", held(function()
    local call = begin_of_lease("revoke", 7)
    assert.equal(100, store:lease_by_id(7):keepalive())
    finish(call)
    assert.equal("lease_not_found", answer.code(store:lease_by_id(7):keepalive()))
  end))

  for _, how in ipairs { "durable", "no_memory" } do
    it("renews the newest lease of an id while all with that id are being revoked: " .. how, function()
      keywatch.run(function()
        hold()
        local calls = { begin("put", "z", "") }
        for ttl = 200, 500, 100 do
          table.insert(calls, begin_of_lease("revoke", 7))
          table.insert(calls, begin("lease", ttl, { id = 7 }))
        end
        table.insert(calls, begin_of_lease("revoke", 7))
        probe.check(store)
        assert.equal(500, store:lease_by_id(7):keepalive())
        assert.equal("lease_not_found", answer.code(store:lease_by_id(8):keepalive()))
        if how == "no_memory" then probe.fail_disk(store, how) end
        release()
        for _, call in ipairs(calls) do assert(call.task:join()) end
        probe.check(store)
        if how == "no_memory" then
          assert.equal(100, store:lease_by_id(7):keepalive())
        else
          assert.equal("lease_not_found", answer.code(store:lease_by_id(7):keepalive()))
        end
      end)
    end)
  end

  it("does not report an expired lease as live while its end is not durable", function()
    reopen { now = 0 }
    while_held(function()
      store:step(101)
      assert.equal("old", store:get("a").value)
      assert.equal("lease_not_found", answer.code(store:lease_by_id(7):keepalive()))
    end)
  end)
end)

describe("a compaction", function()
  it("applies to reads when it is durable", held(function()
    local call = begin("compact", 3)
    assert.equal("old", store:get("a", { revision = 2 }).value)
    assert.equal(-1, store:status().compact_revision)
    local watch = store:watch("a", { start_revision = 2 })
    assert.equal("old", watch:next(0).value)
    finish(call)
    assert.equal("compacted", answer.code(store:get("a", { revision = 2 })))
    assert.equal(3, store:status().compact_revision)
  end))

  it("cannot be newer than the durable state", held(function()
    local put = begin("put", "a", "new")
    assert.equal("future_revision", code_of(begin("compact", 4)))
    assert.equal(4, put.answer.revision)
    assert.equal(4, store:compact(4).revision)
  end))

  it("removes records when it is durable, and not before", function()
    for _ = 1, 200 do store:put("a", ("x"):rep(1000)) end
    local before = store:status().db_size_in_use
    while_held(function()
      local call = begin("compact", 203, { physical = true })
      assert.is_true(store:status().db_size_in_use > before / 2)
      finish(call)
      assert.is_true(store:status().db_size_in_use < before / 2)
    end)
  end)

  it("is undone, if its group fails", held(function()
    local call = begin("compact", 3)
    probe.fail_disk(store, "no_memory")
    assert.equal("out_of_memory", code_of(call))
    assert.equal("old", store:get("a", { revision = 2 }).value)
    assert.equal(3, store:compact(3).revision)
  end))

  it("still removes its records after a group has failed", function()
    local options = { step_records = 40 }
    reopen(options)
    for i = 1, 300 do store:put("a", ("x"):rep(1000) .. i) end
    local before, hash = store:status().db_size_in_use, nil
    keywatch.run(function()
      assert(store:compact(303))
      hash = state.trace(store)
      for _ = 1, 5 do
        hold()
        local call = begin("put", "b", "new")
        store:step(0)
        settle()
        probe.fail_disk(store, "no_memory")
        assert.equal("out_of_memory", code_of(call))
        probe.check(store)
      end
      assert.equal("compacted", answer.code(store:compact(303, { physical = true })))
    end)
    assert.is_true(store:status().db_size_in_use < before / 4)
    assert.equal(hash, state.trace(store))
    reopen(options)
    probe.check(store)
    assert.equal(hash, state.trace(store))
    assert.is_true(store:status().db_size_in_use < before / 4)
  end)
end)

describe("a failed group", function()
  --- Writes of every kind, in a group that is being written and behind it, and a failure.
  local function fail_everything(how)
    local calls = {}
    local function add(call) calls[#calls + 1] = call end
    hold()
    add(begin("put", "a", "new"))
    add(begin("put", "a", "newer", { lease = 7 }))
    add(begin("delete", "b"))
    add(begin("put", "b", "again"))
    add(begin("lease", 5, { id = 9 }))
    add(begin("put", "c", "new", { lease = 9 }))
    add(begin("put", "a", "moved", { lease = 9 }))
    add(begin_of_lease("revoke", 7))
    add(begin("lease", 50, { id = 7 }))
    add(begin("put", "d", "new", { lease = 7 }))
    add(begin_of_lease("revoke", 9))
    add(begin("delete", "", everything))
    add(begin("compact", 2))
    add(begin("arm", "corrupt"))
    probe.fail_disk(store, how)
    release()
    for _, call in ipairs(calls) do assert(call.task:join()) end
    return calls
  end

  for _, how in ipairs { "no_memory", "no_space", "storage" } do
    it("fails all of its writers, and later ones: " .. how, within.task(function()
      for _, call in ipairs(fail_everything(how)) do
        assert.equal(how == "no_memory" and "out_of_memory" or how, answer.code(call.answer, call.err))
      end
    end))
  end

  it("leaves no traces of them", function()
    store:put("b", "later")
    store:put("a", "later", { lease = 7 })
    local before = state.of(store)
    keywatch.run(function()
      fail_everything("no_memory")
      probe.check(store)
      state.expect(store, before)
    end)
    reopen()
    before.deadline = nil
    local after = state.of(store)
    after.deadline = nil
    assert.same(before.kvs, after.kvs)
    assert.same(before.hash, after.hash)
    assert.same(before.leases, after.leases)
  end)

  it("lets later writes reuse the revisions", within.task(function()
    local watch = store:watch("", everything)
    fail_everything("no_memory")
    assert.equal("timeout", answer.code(watch:next(0)))
    assert.same({ "a" }, store:lease_by_id(7):keys())
    assert.equal(4, store:put("a", "other").revision)
    assert.equal(5, store:delete("b").revision)
    assert.same({ "put a 4, delete b 5", "timeout" }, { events.drain(watch) })
    assert.equal(2, store:get("a").version)
  end))

  --- Writes, at once, that come to nothing; the loop does not turn. A failure is injected again if the group before has
  -- taken it.
  local function fail_many(n)
    coroutine.wrap(function()
      local failures = 0
      while failures < n do
        probe.fail_disk(store, "no_memory")
        local done, err = store:put("z", "")
        assert(done or err.code == "out_of_memory", err)
        if not done then failures = failures + 1 end
      end
    end)()
  end

  it("is reported to callers that ask after any number of other failures", function()
    for _, n in ipairs { 7, 8, 9, 15, 16, 17, 100 } do
      keywatch.run(function()
        hold()
        local call = begin("put", "a", "new")
        probe.fail_disk(store, "no_memory")
        release()
        fail_many(n)
        assert.is_nil(call.is_done)
        assert(call.task:join())
        assert.is_nil(call.answer)
        assert.is_true(call.err.code == "out_of_memory" or call.err.code == "storage" and call.err.maybe_done)
      end)
    end
    assert.equal("old", store:get("a").value)
  end)

  it("does not affect earlier writers that ask later", within.task(function()
    hold()
    local call = begin("put", "a", "new")
    release()
    coroutine.wrap(function() assert(store:put("b", "new")) end)()
    fail_many(10)
    assert.is_nil(call.is_done)
    assert(call.task:join())
    assert.equal("new", store:get("a").value)
    assert.equal(4, call.answer and call.answer.revision)
  end))

  it("keeps leases that were about to expire, and expires them later", within.task(function()
    hold()
    store:step(101)
    local call = begin("put", "c", "new")
    probe.fail_disk(store, "no_memory")
    assert.equal("out_of_memory", code_of(call))
    assert.equal("old", store:get("a").value)
    probe.check(store)
    assert.is_true(store:deadline() > 101)
    store:step(store:deadline())
    store:leases()
    assert.is_nil(store:get("a"))
    assert.same({}, store:leases())
  end))
end)

describe("a disk without space", function()
  it("arms the alarm", function()
    keywatch.run(function()
      hold()
      local call = begin("put", "a", "new")
      probe.fail_disk(store, "no_space")
      local _, err = finish(call)
      assert.same({ "no_space", 8 }, { err.code, err.grpc_status })
      store:leases()
      assert.same({ "no_space" }, store:alarms())
      assert.equal("no_space", answer.code(store:put("a", "new")))
      assert.equal("no_space", answer.code(store:lease(10)))
    end)
    reopen()
    assert.same({ "no_space" }, store:alarms())
  end)

  it("allows deletes and compactions, and all writes after the alarm is disarmed", function()
    probe.fail_disk(store, "no_space")
    assert.equal("no_space", answer.code(store:put("a", "new")))
    assert.same({ "no_space" }, store:alarms())
    assert.equal(1, store:delete("b").deleted)
    assert.is_truthy(store:lease_by_id(7):revoke())
    assert.is_truthy(store:compact(store:status().revision, { physical = true }))
    assert.is_true(store:disarm("no_space"))
    assert.same({}, store:alarms())
    assert.equal(6, store:put("a", "new").revision)
  end)
end)

describe("a disk in an unknown state", function()
  local function break_disk()
    probe.fail_disk(store, "storage")
    local _, err = store:put("a", "new")
    return err
  end

  it("fails the call as unavailable", function()
    local err = break_disk()
    assert.same({ "storage", 14, "keywatch: the storage has failed: the database cannot be written: Input/output error "
      .. "(errno 5)" }, { err.code, err.grpc_status, err.message })
  end)

  it("is readable", function()
    local watch = store:watch("a", { start_revision = 2 })
    local before = state.of(store)
    break_disk()
    assert.same(before.kvs, state.of(store).kvs)
    assert.same(before.hash, state.of(store).hash)
    assert.same(before.leases, state.of(store).leases)
    assert.equal("old", watch:next(0).value)
    assert.equal("old", store:get("a", { revision = 2 }).value)
  end)

  it("refuses all writes and leases", function()
    break_disk()
    local function expect_refused()
      assert.equal("storage", answer.code(store:put("a", "new")))
      assert.equal("storage", answer.code(store:delete("a")))
      assert.equal("storage", answer.code(store:txn { success = { { put = "a", value = "new" } } }))
      assert.equal("storage", answer.code(store:lease(10)))
      assert.equal("storage", answer.code(store:lease_by_id(7):revoke()))
      assert.equal("storage", answer.code(store:compact(3)))
      assert.equal("storage", answer.code(store:compact(3, { physical = true })))
      assert.equal("storage", answer.code(store:defragment()))
      assert.equal("storage", answer.code(store:arm("no_space")))
      assert.equal("storage", answer.code(store:disarm("no_space")))
    end
    expect_refused()
    keywatch.run(expect_refused)
    assert.same({}, store:alarms())
  end)

  it("ends a compaction, for its waiters", function()
    reopen { step_records = 1 }
    for i = 1, 50 do store:put("a", tostring(i)) end
    store:compact(40)
    break_disk()
    assert.equal("storage", answer.code(store:compact(41, { physical = true })))
    assert.equal("37", store:get("a", { revision = 40 }).value)
    reopen()
    assert.equal("compacted", answer.code(store:compact(40, { physical = true })))
    assert.equal("37", store:get("a", { revision = 40 }).value)
  end)

  it("expires no leases", function()
    break_disk()
    store:step(1000)
    assert.equal("old", store:get("a").value)
    assert.is_nil(store:deadline())
  end)
end)

describe("tasks", function()
  it("share commits", within.task(function()
    hold()
    local before, calls = store:settled(), {}
    for i = 1, 200 do calls[i] = keywatch.spawn(function() return store:put("k" .. i, "v") end) end
    settle()
    release()
    for i, call in ipairs(calls) do assert.equal(3 + i, select(2, call:join()).revision) end
    assert.is_true(store:settled() - before <= 2)
  end))

  it("that are cancelled do not take their writes back", within.task(function()
    hold()
    local first, second = begin("put", "a", "1"), begin("put", "a", "2")
    first.task:cancel()
    second.task:cancel()
    for _, call in ipairs { first, second } do
      local ok, err = call.task:join()
      assert.same({ false, "cancelled" }, { ok, err.code })
    end
    assert.equal("old", store:get("a").value)
    release()
    assert.equal(6, store:put("b", "3").revision)
    assert.equal("2", store:get("a").value)
  end))

  it("that are cancelled do not need later writes", function()
    keywatch.run(function()
      hold()
      begin("put", "a", "1").task:cancel()
    end)
    release()
    assert.equal(5, store:put("b", "2").revision)
  end)

  it("at different stores do not wait for each other", function()
    local other = assert(keywatch.open { path = directory.new(), now = 0 })
    keywatch.run(function()
      hold()
      local call = begin("put", "a", "1")
      assert.equal(2, other:put("a", "2").revision)
      assert.is_nil(call.is_done)
      assert.equal(4, finish(call).revision)
    end)
    other:close()
  end)
end)

describe("a caller outside of tasks", function()
  it("waits until its write is durable", function()
    for i = 1, 20 do
      local before = store:settled()
      assert.equal(3 + i, store:put("a", tostring(i)).revision)
      assert.same({ 3 + i, before + 1 }, { store:status().revision, store:settled() })
      assert.equal(tostring(i), store:get("a").value)
    end
  end)

  it("waits for the writes of tasks, too", within.task(function()
    hold()
    local call = begin("put", "a", "1")
    release()
    assert.equal(5, coroutine.wrap(function() return store:put("a", "2") end)().revision)
    assert(call.task:join())
    assert.equal(4, call.answer.revision)
  end))
end)

describe("the bell of a store", function()
  it("is retained by the store and its two threads, and released when it is replaced", function()
    assert.equal(3, probe.set_bell(store, true))
    assert.equal(0, probe.set_bell(store, false))
  end)

  it("is released when the store is closed", function()
    assert.equal(3, probe.set_bell(store, true))
    store:close()
    open()
    assert.equal(0, probe.set_bell(store, false))
  end)
end)
