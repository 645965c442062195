--- Leaders that are killed, and stopped by SIGSTOP for longer than their lease lives, at random: their fenced writes.
--
-- Several processes (spec/support/candidate_program.lua) take part in one election, and write as fast as they can while
-- they lead. In the end the whole history of the server is read, and judged: at each write the leader, that is the
-- candidate whose key is the oldest at that revision, must be the one who has written, and in that term. So writes of
-- two leaders never both succeed, and none of an older term after one of a newer term.
--
-- KW_DOSE=n goes round n times as often, and tells how often each fault has occurred.

local keywatch = require "keywatch"

local dose = require "spec.support.dose"
local network = require "spec.support.network"
local occurrences = require "spec.support.occurrences"
local process = require "spec.support.process"
local randoms = require "spec.support.random"
local vm = require "spec.support.vm"

local CANDIDATES = 3
local TTL = 2       -- seconds: the least that an etcd grants
local SECONDS = 60  -- for what is certain to come

-- {====== The judge ======

--- Returns what is wrong with a write of a history, or nil. `leader` is the candidate that leads.
local function objection(event, leader)
  if not leader then return "nobody leads" end
  if event.key == "process" then
    local id = event.value:match("^(%S+) %d+$")
    if id ~= leader.id then return ("'%s' leads"):format(leader.id) end
    return nil
  end
  local revision, _, id = event.value:match("^(%d+) (%d+) (%S+)$")
  if tonumber(revision) ~= leader.revision or id ~= leader.id then
    return ("'%s' leads, since revision %d"):format(leader.id, leader.revision)
  end
end

--- The candidate with the oldest key.
local function leader_of(candidates)
  local oldest
  for _, one in pairs(candidates) do
    if not oldest or one.revision < oldest.revision then oldest = one end
  end
  return oldest
end

--- Judges events in the order of their revisions. Returns how many writes and terms there were. Raises if there is an
--- objection.
local function judge(events)
  local candidates, writes, terms, last = {}, 0, 0, nil
  for _, event in ipairs(events) do
    if event.key:find("^e/") and event.type == "put" then
      candidates[event.key] = { id = event.value, revision = tonumber(event.create_revision) }
    elseif event.key:find("^e/") then
      candidates[event.key] = nil
    elseif event.key == "term" or event.key == "process" then
      local leader = leader_of(candidates)
      local what = objection(event, leader)
      if what then
        error(("revision %s: '%s' was written to '%s', but %s"):format(tostring(event.mod_revision), event.value,
          event.key, what), 0)
      end
      writes = writes + 1
      if leader.revision ~= last then terms, last = terms + 1, leader.revision end
    end
  end
  return writes, terms
end

describe("The judge of leaders", function()
  local function put(revision, key, value, created)
    return { type = "put", key = key, value = value, mod_revision = revision, create_revision = created or revision }
  end
  local function delete(revision, key) return { type = "delete", key = key, mod_revision = revision } end

  it("has nothing against writes of those who lead", function()
    assert.same({ 3, 2 }, { judge {
      put(2, "e/1", "a"), put(3, "e/2", "b"), put(4, "term", "2 1 a"), put(5, "process", "a 1", 5), delete(6, "e/1"),
      put(7, "term", "3 1 b", 4),
    } })
  end)

  it("objects to writes of others", function()
    for text, events in pairs {
      ["'b' leads, since revision 3"] = { put(2, "e/1", "a"), put(3, "e/2", "b"), delete(4, "e/1"),
        put(5, "term", "2 9 a") },
      ["'a' leads, since revision 2"] = { put(2, "e/1", "a"), put(3, "e/2", "b"), put(5, "term", "3 9 b") },
      ["'a' leads, since revision 4"] = { put(2, "e/1", "a"), delete(3, "e/1"), put(4, "e/1", "a"),
        put(5, "term", "2 9 a") },
      ["nobody leads"] = { put(2, "e/1", "a"), delete(3, "e/1"), put(5, "process", "a 1") },
      ["'a' leads"] = { put(2, "e/1", "a"), put(3, "e/2", "b"), put(5, "process", "b 1") },
    } do
      assert.error_matches(function() judge(events) end, text)
    end
  end)
end)

-- }======

-- {====== Candidates ======

local world -- of the test: url, client, candidates by id, count

--- Starts another candidate.
local function add()
  world.count = world.count + 1
  local id = "candidate-" .. world.count
  local child = process.start({ vm.interpreter, "spec/support/candidate_program.lua", world.url, id, tostring(TTL) },
    { env = vm.environment() })
  child:expect("started\n")
  world.candidates[id] = child
end

--- Waits until somebody leads, and has written in that term. Returns the id. `other` is one who does not count.
local function await_leader(other)
  local deadline = keywatch.now() + SECONDS
  while keywatch.now() < deadline do
    local kv = assert(world.client:get("term")) and world.client:election("e"):leader()
    if kv and kv.value ~= other and world.candidates[kv.value] then
      local written = world.client:get("term").value
      if written:match("^(%d+) ") == tostring(kv.create_revision) then return kv.value end
    end
    keywatch.sleep(0.02)
  end
  error("nobody else leads than " .. tostring(other))
end

--- Ends a candidate at once, and starts another one in its place.
local function kill(id)
  local child = world.candidates[id]
  child:signal("sigkill")
  child:wait(SECONDS)
  world.candidates[id] = nil
  add()
  return child
end

--- The failures that a candidate has told.
local function failures(child, counts)
  for code, how in child:stdout():gmatch("failed (%S+) (%S+)\n") do
    assert.is_true(code == "lost" or how == "maybe" or code == "unavailable", code .. " " .. how)
    counts[code] = (counts[code] or 0) + 1
  end
  assert.is_nil(child:stdout():find("late\n"), "a write of an old term was done")
  assert.equal("", child:stderr())
end

-- }======

local faults = {}

--- The leader is killed.
function faults.kill(leader)
  failures(kill(leader), world.codes)
  await_leader(leader)
end

--- A candidate who waits is killed.
function faults.kill_waiting(leader, random)
  local others = {}
  for id in pairs(world.candidates) do
    if id ~= leader then others[#others + 1] = id end
  end
  table.sort(others)
  failures(kill(random:pick(others)), world.codes)
end

--- The leader is stopped until another one leads, and goes on then: its writes fail.
function faults.stop(leader)
  local child = world.candidates[leader]
  child:signal("sigstop")
  await_leader(leader)
  child:signal("sigcont")
  child:expect("failed lost certain\n")
end

--- The leader is stopped in the middle of a write, before that is sent, until another one leads. Then it is sent.
function faults.late(leader)
  local child = world.candidates[leader]
  child:signal("sigusr2")
  child:expect("sleeps\n")
  await_leader(leader)
  child:signal("sigcont")
  local what = child:expect("woken (%S+)\n")
  assert.is_not.equal("done", what)
  child:expect("failed lost certain\n")
  return what == "refused" and "late" or "late, and not sent"
end

--- The leader is stopped for a moment.
function faults.pause(leader, random)
  local child = world.candidates[leader]
  child:signal("sigstop")
  keywatch.sleep(random:between(1, 10) * TTL / 20)
  child:signal("sigcont")
  await_leader()
end

--- The leader's elector is stopped: the next one leads at once, before a lease would have expired.
function faults.resign(leader)
  local child = world.candidates[leader]
  child:signal("sigusr1")
  child:expect("stopped true\n")
  await_leader(leader)
end

local NAMES = { "kill", "kill_waiting", "stop", "late", "pause", "resign" }

--- Reads the history up to now.
local function history()
  local client = world.client
  local last = assert(client:put("end", ""))
  local watch = assert(client:watch("", { prefix = true, start_revision = 1 }))
  local events = {}
  repeat
    local event = assert(watch:next(SECONDS))
    events[#events + 1] = event
  until event.key == "end" and event.mod_revision == last.revision
  watch:close()
  return events
end

network.of_each(function(kind, tag)
  describe(("Leaders at %s that are killed and stopped at random %s #slow"):format(kind, tag), function()
    before_each(network.begin)
    after_each(network.finish)

    it("write only while they lead", function()
      local random = randoms.new(network.SEED)
      local server = network.start(kind)
      world = { url = server.url, client = network.connect(server.url, {}), candidates = {}, count = 0, codes = {} }
      assert(world.client:put("term", "none"))
      for _ = 1, CANDIDATES do add() end
      local deck = {} -- each fault once, then again
      local counts = occurrences.await(NAMES, #NAMES * network.FAULTS, function()
        for i, name in ipairs(deck[1] and {} or NAMES) do table.insert(deck, random:between(1, i), name) end
        local name = table.remove(deck)
        return faults[name](await_leader(), random) or name
      end)
      for _, child in pairs(world.candidates) do
        child:signal("sigkill")
        child:wait(SECONDS)
        failures(child, world.codes)
      end
      local events = history()
      assert.equal("none", events[1].value)
      table.remove(events, 1)
      local writes, terms = judge(events)
      assert.is_true(world.codes.lost >= counts.stop + counts.late)
      assert.is_true(terms >= counts.kill + counts.stop + counts.late + counts.resign)
      assert.is_true(writes > 10 * terms)
      if dose.factor > 1 then
        local list = {}
        for _, name in ipairs(NAMES) do list[#list + 1] = name .. " " .. counts[name] end
        for code, n in pairs(world.codes) do list[#list + 1] = "refused as " .. code .. " " .. n end
        print(("leaders at %s: %d writes in %d terms, %s"):format(kind, writes, terms, table.concat(list, ", ")))
      end
    end)
  end)
end)
