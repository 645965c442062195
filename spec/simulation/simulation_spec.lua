--- The simulation: some seeds, with the same result in every process. The judge must object to every history that is
-- falsified.

local keywatch = require "keywatch"

local handler_judge = require "spec.simulation.handler_judge"
local program = require "spec.support.program"
local shrink = require "spec.simulation.shrink"
local simulation = require "spec.simulation.simulation"

local SEED = (tonumber(os.getenv("KW_SEED")) or os.time()) % 1000000
local SEEDS = require("spec.support.dose").of(1, 3)

local OF_PROCESS = [[
package.path = "./?.lua;" .. package.path
local simulation = require "spec.simulation.simulation"
print(simulation.run(simulation.plan(%d)).hash)
]]

describe("a simulation", function()
  it("passes all checks of the judge", function()
    for seed = SEED, SEED + SEEDS - 1 do
      local result = simulation.run(simulation.plan(seed))
      local objection = result.objections[1]
      if objection then error(("%s\nto repeat: make simulate SEED=%d"):format(objection, seed), 0) end
    end
  end)

  it("is the same, byte for byte, in every run and process", function()
    local plan = simulation.plan(SEED)
    local first, second = simulation.run(plan), simulation.run(plan)
    assert.equal(table.concat(first.lines, "\n"), table.concat(second.lines, "\n"))
    assert.same({ 0, first.hash .. "\n" }, { program.run(OF_PROCESS:format(SEED)) })
  end)

  it("is shrunk to the part that makes it fail", function()
    local plan = simulation.plan(3, { seconds = 5, kinds = { kv = true, watcher = true }, is_calm = true })
    plan.faults[1] = { name = "fault.1", at = 2, seed = 1, fault = { name = "objection", act = function(sim)
      if #sim.operations > 0 then sim:object({ what = "fault" }, "number %d", #sim.operations) end
    end } }
    local result = simulation.run(plan)
    local list = shrink.shrink(plan, result.objections[1])
    assert.equal(2, #list)
    assert.equal("fault.1", list[2])
    assert.equal(1, #simulation.run(plan, shrink.set_of(list)).objections)
  end)

  it("is silent only after the leases that a restore has brought back", function()
    local plan = simulation.plan(3, { seconds = 5, kinds = { kv = true }, is_calm = true })
    plan.is_durable = false
    plan.faults[1] = { name = "fault.1", at = 2, seed = 1, fault = { name = "restore", act = function(sim)
      local store, truth = sim.servers[1].store, sim.truths[1]
      local id = store:lease_grant(5).id
      local revision = store:put("/held", "", { lease = id }).revision
      store:lease_revoke(id)
      sim:hush(function()
        assert(truth:restore(revision))
        keywatch.sleep(10)
        assert(truth:restore(revision))
      end)
    end } }
    local result = simulation.run(plan)
    assert.same({}, result.objections)
    local epoch, silence = result.truths[1].epoch, nil
    for _, line in ipairs(result.lines) do silence = silence or tonumber(line:match("^(%S+) silence$")) end
    local events = epoch.keys["/held"]
    assert.same({ 3, 2, "delete" }, { epoch.number, #events, events[2].type })
    assert.is_true(epoch.times[events[2].mod_revision] <= silence)
  end)
end)

describe("the judge of simulations objects", function()
  local sim

  --- Returns a watch that has received at least `n` revisions, and no progress.
  local function watch_with(n)
    for _, record in ipairs(sim.watches) do
      local found = 0
      for _, batch in ipairs(record.batches) do found = found + (batch.events[1].type == "progress" and 0 or 1) end
      if found >= n and found == #record.batches and not record.is_by_event then return record end
    end
  end

  --- Returns a complete watch whose last batch has events.
  local function drained_watch()
    for _, record in ipairs(sim.watches) do
      local last = record.batches[#record.batches]
      if record.is_drained and last and last.events[1].type ~= "progress" then return record end
    end
  end

  setup(function()
    local kinds, seed = { kv = true, watcher = true, cache = true, queue = true }, 0
    repeat -- until there is a record for each case
      seed = seed + 1
      sim = simulation.run(simulation.plan(seed, { seconds = 60, kinds = kinds, is_calm = true }))
      assert.same({}, sim.objections)
    until watch_with(4) and drained_watch()
  end)

  before_each(function() sim.objections = {} end)

  --- Calls change(), judges, and expects an objection. `change` returns the function that undoes it.
  local function expect(pattern, change)
    local undo = assert(change())
    local ok, err = pcall(sim.judge, sim)
    undo()
    assert.matches(pattern, not ok and err or sim.objections[1] or "nothing")
    sim.objections = {}
    sim:judge()
    assert.same({}, sim.objections)
  end

  --- Sets a field. Returns a function that sets the old value.
  local function set(object, name, value)
    local before = object[name]
    object[name] = value
    return function() object[name] = before end
  end

  local function operation(verb, matches)
    for _, record in ipairs(sim.operations) do
      local is_good = record.request.verb == verb and record.outcome == "ok" and record.answer
      if is_good and (not matches or matches(record)) then return record end
    end
    error("there is no such operation: " .. verb)
  end

  it("if a write is not at its reported revision", function()
    local put = operation("put")
    expect("is", function() return set(put.answer, "revision", put.answer.revision + 1) end)
  end)

  it("if a refused write was done", function()
    local put = operation("put", function(record) return record.tag end)
    expect("has failed without maybe_done", function() return set(put, "outcome", "refused") end)
  end)

  it("if a revision belongs to no request", function()
    local put = operation("put")
    expect("was requested by no client", function()
      for i, record in ipairs(sim.operations) do
        if record == put then
          table.remove(sim.operations, i)
          return function() table.insert(sim.operations, i, put) end
        end
      end
    end)
  end)

  it("if a later read has an older revision", function()
    local range = operation("range", function(record) return record.after > 1 end)
    expect("and began when", function() return set(range, "after", range.answer.revision + 1) end)
  end)

  it("if a read differs from the log", function()
    local range = operation("range", function(record) return #record.answer.kvs > 0 end)
    expect("kvs%[1%].value", function() return set(range.answer.kvs[1], "value", "another") end)
    expect("count", function() return set(range.answer, "count", range.answer.count + 1) end)
    local get = operation("get")
    expect("version", function() return set(get.answer, "version", 77) end)
  end)

  it("if a transaction took the other branch", function()
    local txn = operation("txn")
    expect("", function() return set(txn.answer, "succeeded", not txn.answer.succeeded) end)
  end)

  it("if a watch lacks a revision, or has it twice, out of order, or in parts", function()
    local batches = watch_with(4).batches
    expect("before", function()
      local lost = table.remove(batches, 2)
      return function() table.insert(batches, 2, lost) end
    end)
    expect("after", function()
      table.insert(batches, 3, batches[2])
      return function() table.remove(batches, 3) end
    end)
    expect("before", function()
      batches[2], batches[3] = batches[3], batches[2]
      return function() batches[2], batches[3] = batches[3], batches[2] end
    end)
    expect("are due", function() return set(batches[2], "events", { batches[3].events[1] }) end)
  end)

  it("if an event, or its previous kv, differs from the log", function()
    local record = watch_with(2)
    local event = record.batches[1].events[1]
    expect("are due", function() return set(event, "mod_revision", 1) end)
    expect("prev of", function() return set(event, "prev", { key = event.key }) end)
  end)

  it("if progress overtakes events", function()
    local batches = watch_with(3).batches
    local ahead = { revision = batches[2].revision, time = 0, events = { { type = "progress", revision = 1 } } }
    expect("before", function()
      table.insert(batches, 2, ahead)
      return function() table.remove(batches, 2) end
    end)
  end)

  it("if a watch ends without a reason, or is incomplete in the end", function()
    local record = drained_watch()
    local undo = set(record, "ended", 1)
    local compacted = { code = "compacted", compact_revision = 1 }
    expect("fails with compacted", function() return set(record, "err", compacted) end)
    expect("fails with", function() return set(record, "err", { code = "internal" }) end)
    undo()
    expect("lacks revision", function()
      local lost = table.remove(record.batches)
      return function() table.insert(record.batches, lost) end
    end)
  end)

  it("if a cache has no state of the server, or goes back", function()
    local samples
    for _, record in ipairs(sim.samples) do
      local first, last = record.samples[1], record.samples[#record.samples]
      if first and #first.kvs < #last.kvs then samples = record.samples end
    end
    local last = samples[#samples]
    expect("the content", function() return set(last, "kvs", {}) end)
    expect("is read at", function() return set(last, "after", last.revision + 1) end)
    expect("before", function()
      table.insert(samples, 1, last)
      return function() table.remove(samples, 1) end
    end)
  end)
end)

describe("the judges of actors object", function()
  local KINDS = { kv = true, locks = true, elections = true, transfers = true, leases = true, informer = true }
  local plan = simulation.plan(8, { seconds = 60, kinds = KINDS, is_calm = true })
  local sim

  setup(function()
    sim = simulation.run(plan)
    assert.same({}, sim.objections)
  end)

  local function records_of(name)
    for _, a in ipairs(sim.actors) do
      if a.name == name then return a.records end
    end
  end

  --- Sets a field, or removes an item of a list, judges, and expects an objection.
  local function expect(pattern, object, name, value)
    local before = object[name]
    if value == nil then before = table.remove(object, name) else object[name] = value end
    sim.objections = {}
    sim:each_actor("judge")
    if value == nil then table.insert(object, name, before) else object[name] = before end
    assert.matches(pattern, sim.objections[1] or "nothing")
  end

  local function write_with(name, outcome)
    for _, write in ipairs(records_of(name).writes) do
      if write.outcome == outcome then return write end
    end
  end

  it("to two owners of a lock at one time", function()
    local holds, last = records_of("locks").holds, nil
    for _, hold in ipairs(holds) do
      if last and last.name == hold.name then return expect("is held by", last, "to", hold.from + 100) end
      last = hold
    end
    error("no lock was held twice")
  end)

  it("to a refused fenced write that was done, and to an acknowledged one that was not", function()
    expect("has failed without maybe_done", write_with("locks", "ok"), "outcome", "refused")
    expect("is 0 times in the history", write_with("locks", "ok"), "tag", "none")
  end)

  it("to a fenced write by another client than the holder, and to a write that was not counted", function()
    local history = sim.truths[1].epoch
    local list = history.keys["/c/1"] or history.keys["/c/2"]
    local tag, n, rest = list[2].value:match("^(%S+) (%d+) (.*)$")
    expect("is written behind the fence", list[2], "value", ("%s %d /k/1/none 1"):format(tag, n))
    expect("counts to", list[2], "value", ("%s %d %s"):format(tag, n + 1, rest))
  end)

  it("to an observer that has missed a leader, or has seen it twice", function()
    local observer = records_of("elections").observers[1]
    expect("an observer has", observer, 3)
    expect("an observer has", observer, 3, observer[2])
  end)

  it("to a refused transfer that was done, and to an incomplete one", function()
    local list = records_of("transfers")
    expect("has failed without maybe_done", list[1], "outcome", "refused")
    local event = sim.truths[1].epoch.keys["/a/1"][1]
    expect("is changed by 100", event, "value", "t 100")
  end)

  it("to a handler that has missed a change, or has a wrong one", function()
    local ledger_of = handler_judge.ledger
    function handler_judge.ledger(truth, prefix, cut)
      local ledger = ledger_of(truth, prefix, cut)
      handler_judge.note(ledger[1], prefix .. "a", "good never", truth.epoch.last)
      return ledger
    end
    local result = simulation.run(plan)
    handler_judge.ledger = ledger_of
    assert.matches("informer1 .*raises", result.objections[1] or "nothing")
  end)
end)
