--- Writes of tasks that take more than one turn: others run in between, writes wait, and no part of a write is visible.
-- Those of a server's clients are in spec/server/long_write_spec.lua.

local core = require "keywatch.core"
local driver = require "keywatch.task.driver"
local keywatch = require "keywatch"
local probe = core.probe

local difference = require("spec.support.difference").difference
local directory = require "spec.support.directory"
local many_keys = require "spec.support.many_keys"
local within = require "spec.support.within"

local MANY = probe and 300 or 50000 -- keys: more than one turn visits
local SECONDS = 30 -- for an event that must arrive

local name = many_keys.name

local function fill(store)
  store:lease(1000, { id = 7 })
  many_keys.fill(store, MANY, 7)
end

local LONG = {
  delete = function(store) return store:delete("k", { prefix = true, prev_kv = true }) end,
  txn = function(store)
    return store:txn {
      compare = { { key = "k", prefix = true, version = 1 } },
      success = {
        { put = "other", value = "new", prev_kv = true }, { range = "k", prefix = true }, { get = name(1) },
        { txn = { success = { { delete = "k", prefix = true, prev_kv = true }, { get = name(1) } } } },
      },
    }
  end,
  lease_revoke = function(store) return store:lease_revoke(7) end,
}

local LEASES_PER_STEP = 500 -- that expire at most, see lessor.c

describe("the step before a call", function()
  local store

  after_each(function() store:close() end)

  --- How many calls a compaction of one record in a step takes.
  local function count_steps(call)
    store = keywatch.open { now = 0, step_records = 1 }
    store:lease(1000, { id = 7 }) -- from now on a put may have to wait
    for i = 1, 20 do store:put("a", tostring(i)) end
    store:compact(20)
    local n = 0
    while store:is_compacting() do
      call()
      n = n + 1
    end
    return n
  end

  it("is made once, also if the call may have to wait", function()
    local expected = count_steps(function() store:get("b") end)
    store:close()
    assert.equal(expected, count_steps(function() store:put("b", "") end))
  end)

  it("is made again if the call comes later", function()
    store = keywatch.open { replica = true, history_age = 0.001 }
    store:load_kvs(10, {})
    store:apply(11, { { type = "put", key = "a", value = "", create_revision = 11, version = 1 } })
    local due = store:deadline()
    store:prepare() -- what a put begins with, which an error has ended here
    repeat until keywatch.now() > due + 0.001
    assert.equal(11, store:status().compact_revision)
  end)
end)

describe("the expiry of a lease with many keys", function()
  --- Returns a store whose next step begins that expiry: the last step could not do more.
  local function open()
    local store = keywatch.open { now = 0 }
    for _ = 1, LEASES_PER_STEP do assert(store:lease(10)) end
    store:lease(20, { id = 7 })
    many_keys.fill(store, MANY, 7)
    assert.is_true(store:step(30))
    assert.is_false(store:is_busy())
    return store
  end

  for call, write in pairs {
    put = function(store) return store:put("other", "") end,
    lease = function(store) return store:lease(10) end,
    compact = function(store) return store:compact(2) end,
  } do
    it("takes several turns if the call of a task begins it: " .. call, function()
      local store, turns = open(), 0
      keywatch.run(function()
        local task = keywatch.spawn(write, store)
        keywatch.sleep(0)
        while store:is_busy() do
          local kv = store:get(name(1))
          if store:is_busy() then assert.equal("old", kv.value) end -- else that was the last step
          turns = turns + 1
          keywatch.sleep(0)
        end
        local _, result, err = task:join()
        assert(result, err)
      end)
      assert.is_true(turns > 2)
      assert.is_nil(store:get(name(1)))
      store:close()
    end)

    it("is done in one piece before a call outside of a task: " .. call, function()
      local store = open()
      assert(write(store))
      assert.is_false(store:is_busy())
      assert.is_nil(store:get(name(1)))
      store:close()
    end)
  end
end)

for kind, open in pairs(many_keys.kinds) do
  describe("a long write, of a store: " .. kind, function()
    local store

    before_each(function()
      store = open()
      fill(store)
    end)

    after_each(function()
      if probe and tostring(store) ~= "keywatch.store<closed>" then probe.check(store) end
      store:close()
      directory.remove_all()
    end)

    --- Begins a long call in a task. Returns that: task.results = { result, err } once it is done.
    local function begin(call)
      local task = keywatch.spawn(LONG[call], store)
      while not store:is_busy() do keywatch.sleep(0) end
      return task
    end

    if probe and kind == "disk" then
      it("fails with its commit group, as do its waiters", function()
        local put_error, result, err
        keywatch.run(function()
          probe.fail_disk(store, "no_space")
          local task = begin("delete")
          table.sort({ 2, 1 }, function(a, b) -- where no task can be parked
            if not put_error then put_error = select(2, store:put("x", "1")) end
            return a < b
          end)
          local _
          _, result, err = task:join()
        end)
        assert.same({ "no_space", "no_space" }, { put_error.code, err and err.code })
        assert.is_nil(result)
        assert.equal("old", store:get(name(1)).value)
      end)

      it("is undone in turns if its commit group fails, and other writes wait for that", function()
        local turns, revision, err, put, writer = 0, store:status().revision, nil, nil, nil
        keywatch.run(function()
          probe.hold_disk(store, true)
          probe.fail_disk(store, "no_memory")
          local task = begin("delete")
          while store:is_busy() do keywatch.sleep(0) end
          probe.hold_disk(store, false)
          while task.state ~= "done" do
            if store:is_busy() then
              turns = turns + 1
              writer = writer or keywatch.spawn(function() put = assert(store:put("new", "")) end)
              probe.check(store)
            end
            assert.equal("old", store:get(name(turns + 1)).value)
            assert.is_nil(put)
            keywatch.sleep(0)
          end
          err = select(3, task:join())
          assert.is_true(turns > 4)
          writer:join()
        end)
        assert.equal("out_of_memory", err.code)
        assert.equal(revision + 1, put.revision)
        assert.equal(MANY, store:range("k", { prefix = true }).count)
        assert.equal(MANY, #store:lease_by_id(7):keys())
      end)

      it("fails a long read that has seen the writes of its commit group, also while they are being undone", function()
        local value, result, err = ("x"):rep(16 * 1024), nil, nil -- of which a turn undoes one
        keywatch.run(function()
          probe.hold_disk(store, true)
          probe.fail_disk(store, "no_memory")
          for i = 1, MANY do keywatch.spawn(store.put, store, name(i), value) end
          keywatch.sleep(0)
          local read = core.store_methods.begin_txn(store, {
            compare = { { key = name(1), value = "none" } }, success = { { put = "other", value = "" } },
            failure = { { range = "k", prefix = true, sort_target = "mod", sort_order = "descend" } },
          })
          while store:is_busy() do keywatch.sleep(0) end
          for _ = 1, MANY / 3 do assert.is_false(core.store_methods.take(store, read)) end -- all keys are found
          probe.hold_disk(store, false)
          while not store:is_busy() do keywatch.sleep(0) end
          repeat result, err = core.store_methods.take(store, read) until result ~= false
          assert.is_true(store:is_busy())
        end)
        assert.is_nil(result)
        assert.equal("out_of_memory", err.code)
        assert.equal("old", store:get(name(1)).value)
      end)
    end

    local function count() return store:range("k", { prefix = true, count_only = true }).count end

    for call, long in pairs(LONG) do
      it("has the result of a write in one piece, and lets reads run in between: " .. call, function()
        local twin = open()
        fill(twin)
        local whole = assert(long(twin))
        twin:close()
        local revision, between, result = store:status().revision, 0, nil
        keywatch.run(function()
          local task = begin(call)
          while store:is_busy() do
            local kv = store:get(name(MANY))
            if store:is_busy() then -- else that was the last step of the write
              assert.equal("old", kv.value)
              between = between + 1
            end
            local counted = store:range("k", { prefix = true, count_only = true })
            if counted.revision == revision then assert.equal(MANY, counted.count) end
            keywatch.sleep(0)
          end
          local _, err
          _, result, err = task:join()
          assert.is_nil(err)
        end)
        assert.is_true(between > 0)
        assert.is_nil(difference(result, whole, call))
      end)
    end

    it("lets writes of other tasks wait, in their order", function()
      local revisions = {}
      local revision = store:status().revision
      keywatch.run(function()
        local tasks = { begin "delete" }
        for i = 1, 5 do
          tasks[#tasks + 1] = keywatch.spawn(function()
            local result
            if i % 2 == 0 then result = store:delete(name(i)) else result = store:put("new", tostring(i)) end
            revisions[i] = result.revision
          end)
        end
        keywatch.sleep(0)
        assert.is_true(store:is_busy())
        assert(keywatch.join(tasks))
      end)
      local r = revision + 2 -- of the first put; the deletes find nothing
      assert.same({ r, r, r + 1, r + 1, r + 2 }, revisions)
      assert.equal("5", store:get("new").value)
      assert.equal(0, count())
    end)

    it("lets long writes wait for each other", within.task(function()
      local first, second = begin "delete", keywatch.spawn(LONG.lease_revoke, store)
      local _, deleted = first:join()
      assert.equal(MANY, deleted.deleted)
      local _, revoked = second:join()
      assert.is_true(revoked.revision >= deleted.revision)
    end))

    it("continues if its task is cancelled", function()
      keywatch.run(function()
        local task = begin "delete"
        task:cancel()
        local _, err = task:join()
        assert.equal("cancelled", err.code)
        assert.is_true(err.maybe_done)
        while store:is_busy() do keywatch.sleep(0) end
        assert(store:put("other", ""))
      end)
      assert.equal(0, count())
    end)

    it("does not wait for a task that is cancelled while it waits", function()
      keywatch.run(function()
        local delete = begin "delete"
        local put, other = keywatch.spawn(store.put, store, "a", ""), keywatch.spawn(store.put, store, "b", "")
        keywatch.sleep(0)
        put:cancel()
        assert.is_false((put:join()))
        assert(other:join())
        assert(delete:join())
      end)
      assert.is_nil(store:get("a"))
      assert.is_not_nil(store:get("b"))
    end)

    it("does not wait for a task that is abandoned while it waits", function()
      keywatch.run(function()
        local _, scheduler = driver.get().inside()
        local delete = begin "delete"
        local puts = {}
        for i, key in ipairs { "a", "b", "c" } do puts[i] = keywatch.spawn(store.put, store, key, "") end
        keywatch.sleep(0)
        for i = 1, 2 do -- as at the end of a run
          scheduler.driver.give_up(puts[i])
          scheduler:abandon(puts[i])
        end
        assert(puts[3]:join(SECONDS))
        assert(delete:join())
        assert(store:put("d", ""))
      end)
      assert.same({}, { store:get("a"), store:get("b") })
      assert.is_not_nil(store:get("c"))
    end)

    it("ends with its store, and so do the waiting ones", within.task(function()
      local delete, put = begin "delete", keywatch.spawn(store.put, store, "a", "")
      local list = keywatch.spawn(store.lease_time_to_live, store, 7, { keys = true })
      keywatch.sleep(0)
      store:close()
      for _, task in ipairs { delete, put, list } do
        local _, result, err = task:join()
        assert.is_nil(result)
        assert.equal("closed", err.code)
      end
    end))

    it("does all steps of a physical compaction", function()
      local turns, is_done = 0, false
      keywatch.run(function()
        keywatch.spawn(function()
          while not is_done do
            turns = turns + 1
            keywatch.sleep(0)
          end
        end)
        for _ = 1, 2 do LONG.delete(store) end
        assert(store:compact(store:status().revision, { physical = true }))
        is_done = true
      end)
      assert.is_false(store:is_compacting())
      assert.is_true(turns > 4)
    end)
  end)
end

describe("a physical compaction by a task", function()
  for _, kind in ipairs { "memory", "disk" } do
    it("fails if the store is closed before its end: " .. kind, function()
      local store = kind == "disk" and directory.open(directory.new()) or keywatch.open { step_records = 1 }
      fill(store)
      keywatch.run(function()
        LONG.delete(store)
        local task = keywatch.spawn(function() return store:compact(store:status().revision, { physical = true }) end)
        keywatch.sleep(0)
        assert.is_true(store:is_compacting())
        store:close()
        local _, result, err = task:join()
        assert.is_nil(result)
        assert.equal("closed", err.code)
        assert.is_true(err.maybe_done)
      end)
      directory.remove_all()
    end)
  end
end)

if not probe then return end

describe("a list of all leases", function()
  local MANY_LEASES = 2000
  local store

  after_each(function()
    store:close()
    directory.remove_all()
  end)

  it("is complete though the table of leases shrinks during it", function()
    store = directory.open(directory.new())
    local cap = 2
    while cap * 3 / 4 < MANY_LEASES do cap = cap * 2 end
    local left = cap / 8 -- leases, when the table shrinks
    local lists = {}
    keywatch.run(function()
      local function all(from, to, fn)
        local tasks = {}
        for i = from, to do tasks[#tasks + 1] = keywatch.spawn(fn, i) end
        assert(keywatch.join(tasks))
      end
      all(1, MANY_LEASES, function(id) assert(store:lease_grant(3600, { id = id })) end)
      all(1, MANY_LEASES - left - 8, function(id) assert(store:lease_revoke(id)) end)
      for id = MANY_LEASES - left - 7, MANY_LEASES - left + 8 do
        probe.hold_disk(store, true)
        local revoke = keywatch.spawn(function() assert(store:lease_revoke(id)) end)
        keywatch.sleep(0)
        local list = keywatch.spawn(function() lists[#lists + 1] = #assert(store:leases()) end)
        for _ = 1, 4 do keywatch.sleep(0) end -- turns in which a part of the list is made
        probe.hold_disk(store, false)
        local now = os.clock()
        repeat until os.clock() > now + 0.005 -- the disk is done during this, and the list continues afterwards
        assert(keywatch.join { list, revoke })
      end
    end)
    local expected = {}
    for i = 1, 16 do expected[i] = left + 8 - i end
    assert.same(expected, lists)
  end)
end)

describe("leases that a write has deleted, or whose keys,", function()
  it("are made final in turns", function()
    local store = keywatch.open { now = 0 }
    for id = 1, MANY do
      store:lease(1000, { id = id })
      store:put(name(id), "", { lease = id })
    end
    while store:step(0) do probe.check(store) end
    store:delete("k", { prefix = true })
    local turns = 0
    while store:step(0) do
      turns = turns + 1
      probe.check(store)
    end
    assert.is_true(turns > 10)
    store:close()
  end)

  it("are gone for every caller as soon as the write is durable", function()
    local LEASES = 40
    local store = keywatch.open { path = directory.new() }
    for id = 1, LEASES do store:lease(1000, { id = id }) end
    keywatch.run(function()
      probe.hold_disk(store, true)
      local tasks = {}
      for id = 1, LEASES do tasks[id] = keywatch.spawn(function() assert(store:lease_revoke(id)) end) end
      keywatch.sleep(0)
      assert.equal(1000, store:lease_by_id(LEASES):keepalive())
      probe.hold_disk(store, false)
      tasks[2]:join()
      for id = 1, LEASES do
        tasks[id]:join()
        assert.equal("lease_not_found", select(2, store:lease_by_id(id):keepalive()).code)
        probe.check(store)
      end
    end)
    store:close()
    directory.remove_all()
  end)
end)

describe("work is counted in bytes, too:", function()
  local LONG_KEY = ("k"):rep(10000) -- two of them are more than one turn reads
  local LARGE = ("v"):rep(10000)
  local store

  before_each(function()
    store = keywatch.open()
    store:lease(1000, { id = 7 })
    for i = 1, 3 do
      store:put("large" .. i, LARGE)
      store:put(LONG_KEY .. i, "", { lease = 7 })
    end
  end)

  after_each(function() store:close() end)

  local function ops(make)
    local list = {}
    for i = 1, 3 do list[i] = make("large" .. i) end
    return { success = list }
  end

  for what, op in pairs {
    ["the values that puts keep"] = function(key) return { put = key, ignore_value = true } end,
    ["the values that puts replace, if they are asked for"] = function(key)
      return { put = key, value = "", prev_kv = true }
    end,
    ["the values that a transaction gets"] = function(key) return { get = key } end,
  } do
    it(what, function() assert.is_false(store:try_txn(ops(op))) end)
  end

  it("except the values that puts replace", function()
    assert.is_table(store:try_txn(ops(function(key) return { put = key, value = "" } end)))
  end)

  it("the keys that a delete removes", function() assert.is_false(store:try_delete("k", { prefix = true })) end)

  it("the keys that puts have", function()
    local list = {}
    for i = 1, 3 do list[i] = { put = LONG_KEY .. i, value = "" } end
    assert.is_false(store:try_txn { success = list })
  end)

  it("the keys that a range walks over, and where it begins and ends", function()
    local old = store:put("other", "").revision
    local range = { range = "k", range_end = LONG_KEY .. 9, min_mod_revision = old }
    assert.is_false(store:try_read_txn { success = { range } })
    range.revision, range.count_only = old, true
    assert.is_false(store:try_txn { success = { { put = "other", value = "" }, range } })
    local empty = { range = LONG_KEY .. 8, range_end = LONG_KEY .. 9, count_only = true }
    assert.is_false(store:try_read_txn { success = { empty, empty, empty } })
  end)

  it("the ranges that compares and deletes have", function()
    local empty = { key = LONG_KEY .. 8, range_end = LONG_KEY .. 9, version = 0 }
    assert.is_false(store:try_txn { compare = { empty, empty }, success = { { put = "a", value = "" } } })
    empty = { delete = empty.key, range_end = empty.range_end }
    assert.is_false(store:try_txn { success = { empty, empty } })
  end)
end)

describe("a compaction of long keys", function()
  it("takes as many steps as it has bytes to compare", function()
    local store = keywatch.open { now = 0 }
    local key = ("k"):rep(1400000)
    for i = 1, 3 do
      assert(store:put(key .. i, ""))
      assert(store:delete(key .. i))
    end
    store:compact(store:status().revision)
    local turns = 0
    while store:step(0) do turns = turns + 1 end
    assert.is_true(turns > 3)
    store:close()
  end)
end)

describe("keys that are deleted, and not compacted yet,", function()
  it("take no time of the writes and compares whose ranges contain them", function()
    local store = keywatch.open()
    many_keys.fill(store, MANY)
    store:delete("k", { prefix = true })
    store:put("k", "")
    local compare = { { key = "k", prefix = true, version = 1 } }
    assert.is_true(store:try_txn({ compare = compare, success = { { put = "a", value = "" } } }).succeeded)
    assert.equal(1, store:try_delete("k", { prefix = true }).deleted)
    store:close()
  end)
end)
