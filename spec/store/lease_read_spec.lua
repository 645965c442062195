--- Calls of tasks that only read, and take more than one turn, beside ranges (long_read_spec.lua): lists of leases and
-- of their keys, and transactions. Nobody waits for them. Those of clients are in spec/server/long_read_spec.lua.

local core = require "keywatch.core"
local keywatch = require "keywatch"
local probe = core.probe

local directory = require "spec.support.directory"
local many_keys = require "spec.support.many_keys"
local within = require "spec.support.within"

local MANY = probe and 300 or 2000 -- keys: more than one turn visits
local LONGER = probe and 300 or 30000 -- for a long write
local name = many_keys.name

local CALLS = {
  leases = function(store) return store:leases() end,
  lease_time_to_live = function(store) return store:lease_time_to_live(7, { keys = true }) end,
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
        for i = 1, MANY do
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
    local function call(name_of_call, between)
      local turns, result, err = 0, nil, nil
      keywatch.run(function()
        local task = keywatch.spawn(function() result, err = CALLS[name_of_call](store) end)
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

    for name_of_call, make in pairs(CALLS) do
      it("is what it is in one piece, and never makes the store busy: " .. name_of_call, function()
        local whole = assert(make(store))
        local result, err, turns = call(name_of_call, function()
          assert.is_false(store:is_busy())
          assert.is_table((store:try_txn { success = { { put = "other", value = "" } } }))
        end)
        assert(result, err)
        assert.is_true(turns > 2)
        if name_of_call == "leases" then
          assert.equal(MANY + 1, #result)
          for i, id in ipairs(whole) do assert.equal(id, result[i]) end
        elseif name_of_call == "txn" then
          assert.equal(MANY, #result.responses[1].kvs)
          assert.equal(whole.revision, result.revision)
          assert.equal("old", result.responses[3].responses[1].value)
        else
          assert.equal(MANY, #result.keys)
          for i, key in ipairs(result.keys) do assert.equal(name(i), key) end
        end
      end)

      it("fails if the store is closed: " .. name_of_call, function()
        local result, err = call(name_of_call, function() store:close() end)
        assert.is_nil(result)
        assert.equal("closed", err.code)
        assert.is_nil(err.maybe_done)
      end)
    end

    it("is not behind writes that wait", function()
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

    it("ends, however often its revision is compacted", function()
      local n = 0
      local result = call("txn", function()
        n = n + 1
        if kind == "memory" then store:compact(store:put("other", tostring(n)).revision) end
      end)
      assert.equal(MANY, #result.responses[1].kvs)
    end)

    it("is a transaction that turns out to write nothing", within.task(function()
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

    it("has every key that a lease has had all the time, while keys come and go", function()
      local n = 0
      local result = call("lease_time_to_live", function()
        for _ = 1, n < MANY / 2 and 4 or 0 do
          n = n + 1
          store:try_txn { success = { { put = "new" .. n, value = "", lease = 7 }, { delete = name(2 * n) } } }
        end
      end)
      local keys = {}
      for _, key in ipairs(result.keys) do
        assert.is_nil(keys[key])
        keys[key] = true
      end
      for i = 1, MANY, 2 do assert.is_true(keys[name(i)]) end
    end)
  end)
end

if probe then
  describe("a list of leases whose expiry fails with its commit group", function()
    it("has all of them, also if it is made while they are put back, or fails with the group", function()
      local store = directory.open(directory.new())
      for _ = 1, MANY do assert(store:lease_grant(10)) end
      keywatch.run(function()
        local lists = {}
        probe.hold_disk(store, true)
        probe.fail_disk(store, "no_memory")
        while store:status().leases > 0 do store:step(30) end
        local function list()
          lists[#lists + 1] = keywatch.spawn(function()
            local leases, err = store:leases()
            if not leases then return assert.equal("out_of_memory", err.code) end -- it had seen their expiry
            assert.equal(MANY, #leases)
          end)
          keywatch.sleep(0)
        end
        for turn = 1, 40 do -- enough for a whole list
          if turn % 8 == 1 then list() else keywatch.sleep(0) end
        end
        probe.hold_disk(store, false)
        while store:status().leases < MANY do list() end
        assert(keywatch.join(lists))
      end)
      store:close()
      directory.remove_all()
    end)
  end)
end
