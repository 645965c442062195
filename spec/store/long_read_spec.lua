--- Calls of tasks that only read, and take more than one turn: ranges, lists of leases and of their keys, transactions.
-- They are made in turns, at one revision; others run in between, and no task waits for them. Those of clients are in
-- spec/server/long_read_spec.lua.

local core = require "keywatch.core"
local keywatch = require "keywatch"
local probe = core.probe

local difference = require("spec.support.difference").difference
local directory = require "spec.support.directory"
local many_keys = require "spec.support.many_keys"
local within = require "spec.support.within"

local MANY = probe and 300 or 12000 -- keys: more than one turn visits
local LEASES = probe and 300 or 2000
local LONGER = probe and 300 or 30000 -- keys, for a long write
local ALL = { prefix = true }

local name = many_keys.name

local CALLS = {
  range = function(store) return store:range("k", ALL) end,
  leases = function(store) return store:leases() end,
  ["keys of a lease"] = function(store)
    local lease, err = store:lease_time_to_live(7, { keys = true })
    return lease and lease.keys, err
  end,
  txn = function(store)
    return store:txn {
      compare = { { key = "k", prefix = true, value = "old" } },
      success = { { range = "k", prefix = true }, { get = name(1) }, { txn = { success = { { get = name(2) } } } } },
    }
  end,
}

for kind, open in pairs(many_keys.kinds) do
  describe("a long call that only reads, of a store: " .. kind, function()
    local store

    before_each(function()
      store = open()
      keywatch.run(function()
        store:lease(1000, { id = 7 })
        many_keys.fill(store, MANY, 7)
        local tasks = {}
        for i = 1, LEASES do
          tasks[i] = keywatch.spawn(function() assert(store:lease_grant(2000 + i % 100, { id = 1000 + i })) end)
        end
        assert(keywatch.join(tasks))
      end)
    end)

    after_each(function()
      if probe and tostring(store) ~= "keywatch.store<closed>" then probe.check(store) end
      store:close()
      directory.remove_all()
    end)

    --- Makes a call in a task, and calls between(turn) in this one as long as that takes. Returns the results, and how
    -- often that was.
    local function beside(call, between)
      local turns, result, err = 0, nil, nil
      keywatch.run(function()
        local task = keywatch.spawn(function() result, err = call(store) end)
        keywatch.sleep(0)
        while task.state ~= "done" and not result and not err do
          turns = turns + 1
          if between then between(turns) end
          keywatch.sleep(0)
        end
        assert(task:join())
      end)
      return result, err, turns
    end

    --- Expects the keys of a range, all of which were there at its revision.
    local function check(result, count)
      assert.same({ count or MANY, count or MANY }, { result.count, #result.kvs })
      for i, kv in ipairs(result.kvs) do assert.equal(name(i), kv.key) end
    end

    for what, call in pairs(CALLS) do
      it("has the result of a call in one piece, lets tasks run, and never makes the store busy: " .. what, function()
        local whole = assert(call(store))
        local result, err, turns = beside(call, function()
          assert.is_false(store:is_busy())
          assert.is_table((store:try_txn { success = { { put = "other", value = "" } } }))
        end)
        assert(result, err)
        assert.is_true(turns > 2)
        assert.is_nil(difference(result, whole, what))
      end)

      it("fails if the store is closed: " .. what, function()
        local result, err = beside(call, function() store:close() end)
        assert.same({ nil, "closed", nil }, { result, err.code, err.maybe_done })
      end)
    end

    it("may be a range of any kind", function()
      for _, opts in ipairs {
        { prefix = true, count_only = true }, { prefix = true, keys_only = true }, { prefix = true, limit = MANY - 1 },
        { prefix = true, sort_target = "value", sort_order = "descend" },
        { prefix = true, sort_target = "key", sort_order = "descend" }, { prefix = true, min_mod_revision = 3 },
        { prefix = true, revision = 2 }, { from_key = true }, { range_end = "l" },
      } do
        local function call() return store:range("k", opts) end
        assert.is_nil(difference(assert(beside(call)), assert(call()), "the range"))
      end
    end)

    it("is of one revision, whatever is written during it", function()
      local revision = store:status().revision
      local result, _, turns = beside(CALLS.range, function(turn)
        if turn > 1 then return end
        store:put(name(1), "new")
        store:put(name(MANY), "new")
        store:put(name(MANY + 1), "new")
        store:delete(name(MANY - 1))
      end)
      assert.is_true(turns > 1 or kind == "disk") -- there the other task waits
      check(result)
      assert.equal(revision, result.revision)
      for _, kv in ipairs(result.kvs) do assert.equal("old", kv.value) end
    end)

    if kind == "memory" then -- with a disk a compaction takes effect when it is durable
      it("begins again at the newest revision if its own is compacted", function()
        local result, _, turns = beside(CALLS.range, function(turn)
          if turn > 2 then return end
          store:compact(store:put(name(MANY + turn), "new").revision)
        end)
        check(result, MANY + 2)
        assert.is_true(turns > 3)
        assert.equal(store:status().revision, result.revision)
      end)

      for what, kvs_of in pairs {
        range = function(result) return result.kvs end, txn = function(result) return result.responses[1].kvs end,
      } do
        it("ends, however often its revision is compacted: " .. what, function()
          local result = beside(CALLS[what], function(turn)
            store:compact(store:put("other", tostring(turn)).revision)
          end)
          assert.equal(MANY, #kvs_of(result))
        end)
      end

      it("fails if the requested revision is compacted", function()
        local revision = store:status().revision
        local result, err = beside(function() return store:range("k", { prefix = true, revision = revision }) end,
          function(turn)
            if turn == 1 then store:compact(store:put("other", "").revision) end
          end)
        assert.same({ nil, "compacted", revision + 1 }, { result, err.code, err.compact_revision })
      end)
    end

    it("ends with its task", function()
      local failure
      keywatch.run(function()
        local task = keywatch.spawn(store.range, store, "k", ALL)
        keywatch.sleep(0)
        task:cancel()
        local _
        _, failure = task:join()
      end)
      assert.equal("cancelled", failure.code)
      check(store:range("k", ALL))
    end)

    it("is made in one piece outside of a task, and in a function that C calls", function()
      check(store:range("k", ALL))
      local result
      keywatch.run(function()
        table.sort({ 2, 1 }, function(a, b)
          result = result or store:range("k", ALL)
          return a < b
        end)
      end)
      check(result)
    end)

    it("blames the caller", within.task(function()
      local ok, err = pcall(function() store:range("k", { prefix = true, limit = "many" }) end)
      assert.is_false(ok)
      assert.is_truthy(err:find("^[^:]*long_read_spec.lua:%d+: range: option 'limit'"), err)
    end))

    it("does not wait for writes in the queue", function()
      many_keys.fill(store, LONGER, nil, "z")
      keywatch.run(function()
        local delete = keywatch.spawn(function() return store:delete("z", { prefix = true }) end)
        while not store:is_busy() do keywatch.sleep(0) end
        local txn = assert(store:txn { success = { { get = "z" .. name(1) } } })
        assert.equal("old", txn.responses[1].value)
        assert.is_true(store:is_busy())
        assert(delete:join())
      end)
    end)

    it("may be a transaction that happens to write nothing", within.task(function()
      local put
      local txn = keywatch.spawn(function()
        return store:txn {
          compare = { { key = "k", prefix = true, value = "none" } }, success = { { put = "a", value = "" } },
          failure = { { range = "k", prefix = true, sort_target = "value" }, { range = "k", prefix = true } },
        }
      end)
      for _ = 1, 3 do keywatch.sleep(0) end
      if kind == "memory" then
        put = assert(store:put(name(1), "new"))
        assert.not_equal("done", txn.state)
      end
      local _, result = txn:join()
      assert.is_false(result.succeeded)
      assert.equal("old", result.responses[2].kvs[1].value)
      if put then assert.equal(put.revision - 1, result.revision) end
    end))

    it("has every key that a lease had during the whole read, while keys come and go", function()
      local n = 0
      local listed = beside(CALLS["keys of a lease"], function()
        for _ = 1, n < MANY / 2 and 4 or 0 do
          n = n + 1
          store:try_txn { success = { { put = "new" .. n, value = "", lease = 7 }, { delete = name(2 * n) } } }
        end
      end)
      local keys = {}
      for _, key in ipairs(listed) do
        assert.is_nil(keys[key])
        keys[key] = true
      end
      for i = 1, MANY, 2 do assert.is_true(keys[name(i)]) end
    end)
  end)
end

if probe then
  describe("a list of leases whose expiry fails with its commit group", function()
    it("has all of them, also if it is made while they are restored, or fails with the group", function()
      local store = directory.open(directory.new())
      for _ = 1, LEASES do assert(store:lease_grant(10)) end
      keywatch.run(function()
        local lists = {}
        probe.hold_disk(store, true)
        probe.fail_disk(store, "no_memory")
        while store:status().leases > 0 do store:step(30) end
        local function list()
          lists[#lists + 1] = keywatch.spawn(function()
            local leases, err = store:leases()
            if not leases then return assert.equal("out_of_memory", err.code) end -- it had seen their expiry
            assert.equal(LEASES, #leases)
          end)
          keywatch.sleep(0)
        end
        for turn = 1, 40 do -- enough for a whole list
          if turn % 8 == 1 then list() else keywatch.sleep(0) end
        end
        probe.hold_disk(store, false)
        while store:status().leases < LEASES do list() end
        assert(keywatch.join(lists))
      end)
      store:close()
      directory.remove_all()
    end)
  end)
end
