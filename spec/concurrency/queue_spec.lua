--- Locks and elections that many calls of one store or client wait for: the calls share one queue.

local core = require "keywatch.core"
local keywatch = require "keywatch"
local queue = require "keywatch.concurrency.queue"

local answer = require "spec.support.answer"
local owners = require "spec.support.owners"

local test = owners.test

local MANY = 60
local SECONDS = 60 -- for what is certain to come

--- Begins calls of `take` in sessions of their own, and waits until all of them have their keys. Returns entries with
-- session and task; the number of each call goes to the list `order` when it has its turn.
local function begin_calls(owner, name, n, order, take)
  local entries, before = {}, #owners.keys(owner, name .. "/")
  for i = 1, n do
    local session = assert(owner:session { ttl = 3600 })
    local entry = { session = session }
    entry.task = keywatch.spawn(function()
      local got, err = take(session, i)
      if not got then return nil, err end
      order[#order + 1] = i
      return (got.unlock or got.resign)(got)
    end)
    entries[i] = entry
    owners.await_keys(owner, name .. "/", before + i) -- so that the keys are created in the order of the numbers
  end
  return entries
end

--- Waits until all tasks have ended. Returns the result and the code of the error of each.
local function outcomes(entries)
  local found = {}
  for i, entry in ipairs(entries) do
    local ok, result, err = entry.task:join(SECONDS)
    if not ok then err = result end
    found[i] = ok and result and "had it" or err and err.code or "nothing"
  end
  return found
end

describe("The queue of many calls", function()
  owners.each(function(with)
    test("gives a lock to all of them, in the order in which they came", function()
      local order, expected = {}, {}
      local held = assert(with.other:lock("all"))
      local entries = begin_calls(with.owner, "all", MANY, order, function(session) return session:lock("all") end)
      assert(held:unlock())
      for i, outcome in ipairs(outcomes(entries)) do
        assert.equal("had it", outcome)
        expected[i] = i
      end
      assert.same(expected, order)
      assert.same({}, owners.keys(with.owner, "all/"))
    end)

    test("gives the lead of an election to all of them, with the keys of others between", function()
      local order = {}
      local leader = assert(with.other:election("lead"):campaign("first"))
      local entries = begin_calls(with.owner, "lead", MANY / 2, order, function(session, i)
        return session:election("lead"):campaign(tostring(i))
      end)
      with.other:put("lead/other", "x")
      local later = begin_calls(with.owner, "lead", MANY / 2, order, function(session, i)
        return session:election("lead"):campaign(tostring(i))
      end)
      assert(leader:resign())
      for _, outcome in ipairs(outcomes(entries)) do assert.equal("had it", outcome) end
      assert.equal(MANY / 2, #order)
      assert.equal("timeout", select(2, later[1].task:join(0)).code)
      assert(with.other:delete("lead/other"))
      for _, outcome in ipairs(outcomes(later)) do assert.equal("had it", outcome) end
      assert.equal(MANY, #order)
    end)

    test("goes on without calls that are cancelled, or whose session is lost", function()
      local order, expected = {}, {}
      local held = assert(with.other:lock("some"))
      local entries = begin_calls(with.owner, "some", MANY, order, function(session) return session:lock("some") end)
      for i = MANY, 1, -1 do
        if i % 3 == 1 then entries[i].task:cancel() end
        if i % 3 == 2 then assert(with.other:lease_by_id(entries[i].session.lease.id):revoke()) end
        if i % 3 == 0 then table.insert(expected, 1, i) end
      end
      owners.await_keys(with.owner, "some/", 1 + MANY / 3)
      assert(held:unlock())
      local names = { [0] = "had it", "cancelled", "lost" }
      for i, outcome in ipairs(outcomes(entries)) do assert.equal(names[i % 3], outcome) end
      assert.same(expected, order)
      assert.same({}, owners.keys(with.owner, "some/"))
    end)

    test("is left by calls whose time is over, and their keys go", function()
      local order = {}
      local held = assert(with.other:lock("late"))
      local entries = begin_calls(with.owner, "late", 12, order, function(session) return session:lock("late") end)
      for _ = 1, 3 do
        assert.equal("timeout", answer.code(assert(with.owner:session()):lock("late", { timeout = 0.01 })))
      end
      owners.await_keys(with.owner, "late/", 13)
      assert(held:unlock())
      for _, outcome in ipairs(outcomes(entries)) do assert.equal("had it", outcome) end
      assert.equal(12, #order)
    end)

    test("is left by all calls whose leases end at once; those behind have their turn", function()
      local order = {}
      local held = assert(with.other:lock("end"))
      local entries = begin_calls(with.owner, "end", MANY, order, function(session) return session:lock("end") end)
      for i = 1, MANY - 1 do assert(with.other:lease_by_id(entries[i].session.lease.id):revoke()) end
      assert(held:unlock())
      for i, outcome in ipairs(outcomes(entries)) do assert.equal(i < MANY and "lost" or "had it", outcome) end
      assert.same({ MANY }, order)
    end)
  end)

  --- Returns how often the store was asked for keys below the prefix, by reads and within transactions, while n calls
  -- had the lock one after the other.
  local function count_ranges(n)
    local plain, ranges = { range = core.store_methods.range, txn = core.store_methods.txn }, 0
    core.store_methods.range = function(self, key, opts)
      if opts and opts.prefix and not opts.count_only then ranges = ranges + 1 end
      return plain.range(self, key, opts)
    end
    core.store_methods.txn = function(self, txn, ...)
      for _, op in ipairs(txn.success or {}) do ranges = ranges + (op.range and op.prefix and 1 or 0) end
      return plain.txn(self, txn, ...)
    end
    local ok, err = pcall(keywatch.run, function()
      local store, order, tasks = keywatch.open(), {}, {}
      local held = assert(store:lock("n"))
      for i = 1, n do
        local session = assert(store:session { ttl = 3600 })
        tasks[i] = keywatch.spawn(function()
          local lock = assert(session:lock("n"))
          order[#order + 1] = i
          assert(lock:unlock())
        end)
      end
      while plain.range(store, "n/", { prefix = true, count_only = true }).count <= n do keywatch.sleep(0) end
      assert(held:unlock())
      assert(keywatch.join(tasks))
      assert.equal(n, #order)
      store:close()
    end)
    core.store_methods.range, core.store_methods.txn = plain.range, plain.txn
    if not ok then error(err, 0) end
    return ranges
  end

  it("reads the keys as often for 400 calls as for 50", function()
    local few = count_ranges(50)
    assert.is_true(few > 0)
    assert.equal(few, count_ranges(400))
  end)

  it("that a process has inherited is not joined by its calls", function()
    assert.is_true(queue.exists({ ["a/"] = { pid = core.pid() } }, "a/"))
    assert.is_false(queue.exists({ ["a/"] = { pid = core.pid() + 1 } }, "a/"))
  end)
end)
