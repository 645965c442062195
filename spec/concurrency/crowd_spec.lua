--- Locks and elections that many sessions of one store or client wait for.

local keywatch = require "keywatch"

local answer = require "spec.support.answer"
local owners = require "spec.support.owners"

local test = owners.test

local MANY = 60
local SECONDS = 60 -- for an event that must arrive

--- Begins calls of `take` in sessions of their own, and waits until all of them have their keys. Returns entries with
-- session and task; the number of each call is added to the list `order` when the call has its turn.
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
    found[i] = ok and result and "acquired" or err and err.code or "nothing"
  end
  return found
end

describe("A lock that many sessions of one owner wait for", function()
  owners.each(function(with)
    test("is acquired by all of them, in order", function()
      local order, expected = {}, {}
      local held = assert(with.other:lock("all"))
      local entries = begin_calls(with.owner, "all", MANY, order, function(session) return session:lock("all") end)
      assert(held:unlock())
      for i, outcome in ipairs(outcomes(entries)) do
        assert.equal("acquired", outcome)
        expected[i] = i
      end
      assert.same(expected, order)
      assert.same({}, owners.keys(with.owner, "all/"))
    end)

    test("keeps its order among keys of other candidates, as an election does", function()
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
      for _, outcome in ipairs(outcomes(entries)) do assert.equal("acquired", outcome) end
      assert.equal(MANY / 2, #order)
      assert.equal("timeout", select(2, later[1].task:join(0)).code)
      assert(with.other:delete("lead/other"))
      for _, outcome in ipairs(outcomes(later)) do assert.equal("acquired", outcome) end
      assert.equal(MANY, #order)
    end)

    test("skips calls that are cancelled, or whose session is lost", function()
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
      local names = { [0] = "acquired", "cancelled", "lost" }
      for i, outcome in ipairs(outcomes(entries)) do assert.equal(names[i % 3], outcome) end
      assert.same(expected, order)
      assert.same({}, owners.keys(with.owner, "some/"))
    end)

    test("is left by calls whose timeout has passed, and their keys are deleted", function()
      local order = {}
      local held = assert(with.other:lock("late"))
      local entries = begin_calls(with.owner, "late", 12, order, function(session) return session:lock("late") end)
      for _ = 1, 3 do
        assert.equal("timeout", answer.code(assert(with.owner:session()):lock("late", { timeout = 0.01 })))
      end
      owners.await_keys(with.owner, "late/", 13)
      assert(held:unlock())
      for _, outcome in ipairs(outcomes(entries)) do assert.equal("acquired", outcome) end
      assert.equal(12, #order)
    end)

    test("is left by all calls whose leases end at once; later ones have their turn", function()
      local order = {}
      local held = assert(with.other:lock("end"))
      local entries = begin_calls(with.owner, "end", MANY, order, function(session) return session:lock("end") end)
      for i = 1, MANY - 1 do assert(with.other:lease_by_id(entries[i].session.lease.id):revoke()) end
      assert(held:unlock())
      for i, outcome in ipairs(outcomes(entries)) do assert.equal(i < MANY and "lost" or "acquired", outcome) end
      assert.same({ MANY }, order)
    end)
  end)
end)
