--- Ranges that take more than one turn. In a task they are read in turns, at one revision, and others run in between.

local core = require "keywatch.core"
local keywatch = require "keywatch"
local probe = core.probe

local directory = require "spec.support.directory"
local many_keys = require "spec.support.many_keys"
local within = require "spec.support.within"

local MANY = probe and 100 or 12000 -- keys: more than one turn visits
local ALL = { prefix = true }

local name = many_keys.name

for kind, open in pairs(many_keys.kinds) do
  describe("a long range, of a store: " .. kind, function()
    local store

    before_each(function()
      store = open()
      many_keys.fill(store, MANY)
    end)

    after_each(function()
      store:close()
      directory.remove_all()
    end)

    --- Reads a range in a task, and calls between(turn) in another one as long as that takes. Returns the results, and
    -- how often the other task has run.
    local function read(opts, between)
      local turns, is_done, result, err = 0, false, nil, nil
      keywatch.run(function()
        local task = keywatch.spawn(function()
          result, err = store:range("k", opts or ALL)
          is_done = true
        end)
        keywatch.spawn(function()
          while not is_done do
            turns = turns + 1
            if between then between(turns) end
            keywatch.sleep(0)
          end
        end)
        assert(task:join())
      end)
      return result, err, turns
    end

    local function check(result, count)
      assert.equal(count or MANY, result.count)
      assert.equal(count or MANY, #result.kvs)
      for i, kv in ipairs(result.kvs) do assert.equal(name(i), kv.key) end
    end

    it("lets other tasks run", function()
      local result, _, turns = read()
      check(result)
      assert.is_true(turns > 3)
    end)

    it("is what it is in one piece", function()
      for _, opts in ipairs {
        ALL, { prefix = true, count_only = true }, { prefix = true, keys_only = true },
        { prefix = true, limit = MANY - 1 }, { prefix = true, sort_target = "value", sort_order = "descend" },
        { prefix = true, sort_target = "key", sort_order = "descend" }, { prefix = true, min_mod_revision = 3 },
        { prefix = true, revision = 2 }, { from_key = true }, { range_end = "l" },
      } do
        local whole = assert(store:range("k", opts))
        local result = read(opts)
        assert.equal(#whole.kvs, #result.kvs)
        for i, kv in ipairs(whole.kvs) do assert.same(kv, result.kvs[i]) end
        whole.kvs, result.kvs = nil, nil
        assert.same(whole, result)
      end
    end)

    it("is of one revision, whatever is written meanwhile", function()
      local revision = store:status().revision
      local result, _, turns = read(nil, function(turn)
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
        local result, _, turns = read(nil, function(turn)
          if turn > 2 then return end
          local revision = store:put(name(MANY + turn), "new").revision
          store:compact(revision)
        end)
        check(result, MANY + 2)
        assert.is_true(turns > 3)
        assert.equal(store:status().revision, result.revision)
      end)

      it("ends, however often its revision is compacted", function()
        local n = 0
        local result = read(nil, function()
          n = n + 1
          store:compact(store:put("other", tostring(n)).revision)
        end)
        check(result)
      end)

      it("fails if the revision that was asked for is compacted", function()
        local revision = store:status().revision
        local result, err = read({ prefix = true, revision = revision }, function(turn)
          if turn == 1 then store:compact(store:put("other", "").revision) end
        end)
        assert.is_nil(result)
        assert.equal("compacted", err.code)
        assert.equal(revision + 1, err.compact_revision)
      end)
    end

    it("fails if the store is closed", function()
      local result, err = read(nil, function(turn)
        if turn == 1 then store:close() end
      end)
      assert.is_nil(result)
      assert.equal("closed", err.code)
    end)

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
  end)
end
