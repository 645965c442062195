--- Locks at random, in virtual time: many tasks and sessions, on a store and on one that is far away.
--
-- Calls are cancelled, come too late, and lose their answers; sessions are lost. No two owners write, the lock goes in
-- the order of create revisions, and no key is left.

local drivers = require "keywatch.task.driver"
local keywatch = require "keywatch"
local methods = require "keywatch.concurrency.methods"
local virtual = require "keywatch.driver.virtual"

local dose = require "spec.support.dose"
local far = require "spec.support.far"
local new_random = require("spec.support.random").new
local occurrences = require "spec.support.occurrences"

methods.install(far.methods)

local SEED = tonumber(os.getenv("KW_SEED")) or os.time()
local ROUNDS = dose.of(3, 10)
local WORKERS, STEPS = 12, 12
local NAMES = { "a", "b" }
local LONG = 60 -- seconds, in which everything that is done in the background is done

--- True if no key below the prefix of a lock is older than its own.
local function is_oldest(store, lock, name)
  local first = store:range(name .. "/", { prefix = true, sort_target = "create", sort_order = "ascend" }).kvs[1]
  return first ~= nil and first.key == lock.key and first.create_revision == lock.revision
end

--- Plays one round. Returns what happened, counted.
local function play(seed, is_far)
  local driver = virtual.new(100)
  local before = drivers.use(driver)
  local random = new_random(seed)
  local store = keywatch.open { now = 100 }
  driver.carry(store)
  local weather = { latency = 0.5, refused = 30, answer_lost = 12, late = 12 }
  local owner = is_far and far.new(store, random, weather) or store
  local seen = {
    locked = 0, wrote = 0, refused = 0, timeout = 0, cancelled = 0, lost = 0, failed = 0, given_back = 0,
  }
  local given = {}  -- by create revision: true once a lock of that key was given
  local values = {} -- by name: what fenced writes have made of it

  --- Writes under the lock, by its fence.
  local function write(lock, name)
    local fence = lock:fence()
    local kv = fence:get("count/" .. name)
    local n = tonumber(kv and kv.value or "0")
    driver.sleep(random:between(0, 10) / 10)
    local done, why = fence:put("count/" .. name, tostring(n + 1))
    if done then
      seen.wrote = seen.wrote + 1
      values[name] = (values[name] or 0) + 1
      assert.equal(n + 1, values[name])
    else
      assert.equal("lost", why.code)
      seen.refused = seen.refused + 1
    end
  end

  --- Takes a lock, works, and gives the lock back.
  local function work(session, name)
    local try = random:one_in(5)
    local lock, err
    if try then
      lock, err = session:try_lock(name)
    else
      lock, err = session:lock(name, { timeout = random:pick { 1, 10, 100, nil } })
    end
    if not lock then
      local code = err.code
      seen[code] = (seen[code] or 0) + 1
      return
    end
    seen.locked = seen.locked + 1
    assert(not given[lock.revision], "one key was given to two")
    given[lock.revision] = true
    assert(lock:error() or is_oldest(store, lock, name) or lock.session:error(), "another key is older")
    if random:one_in(10) then store:delete(lock.key) end -- somebody takes it away
    local done, why = pcall(is_far and driver.sleep or write, is_far and random:between(0, 20) / 10 or lock, name)
    local is_over, is_ours = pcall(lock.unlock, lock) -- also if the task was cancelled
    if is_over and is_ours then seen.given_back = seen.given_back + 1 end
    if not done then error(why, 0) end
    if not is_over then error(is_ours, 0) end
  end

  local ok, err = pcall(keywatch.run, function()
    local sessions, tasks = {}, {}

    local function session_of(i)
      local at = i % 5 + 1
      while not sessions[at] or sessions[at]:error() do
        sessions[at] = owner:session { ttl = 10 } or nil
      end
      local session = sessions[at] -- another task may replace it
      if random:one_in(3) then return owner:session { lease = session.lease.id } or session end -- of the same lease
      return session
    end

    for i = 1, WORKERS do
      tasks[i] = keywatch.spawn(function()
        for _ = 1, STEPS do
          driver.sleep(random:between(0, 30) / 10)
          local name = random:pick(NAMES)
          local task = keywatch.spawn(work, session_of(i), name)
          if random:one_in(6) then
            driver.sleep(random:between(0, 20) / 10)
            task:cancel()
          end
          local done, why = task:join()
          if not done then
            assert(type(why) == "table" and why.code == "cancelled", tostring(why))
            seen.cancelled = seen.cancelled + 1
          end
          if random:one_in(25) then
            seen.lost = seen.lost + 1
            store:lease_by_id(session_of(i).lease.id):revoke()
          end
        end
      end)
    end
    assert(keywatch.join(tasks))
    weather.latency, weather.refused, weather.answer_lost, weather.late = 0, nil, nil, nil
    collectgarbage()
    collectgarbage()
    driver.sleep(LONG)
    for _, name in ipairs(NAMES) do
      local left = store:range(name .. "/", { prefix = true }).kvs
      assert.equal(0, #left, "a key is left: " .. (left[1] and left[1].key or ""))
    end
    for _, session in ipairs(sessions) do
      assert.is_nil(next(session.places), "a place is left")
      if not session:error() then assert(session:lock("a", { timeout = LONG })):unlock() end
    end
  end)
  store:close()
  drivers.use(before)
  if not ok then error(("seed %d: %s"):format(seed, tostring(err)), 0) end
  for what, n in pairs(is_far and owner.counts or {}) do seen["far " .. what] = n end
  return seen
end

describe("Locks at random", function()
  it("exclude each other, keep their order and leave nothing, on a store", function()
    occurrences.await({ "locked", "wrote", "refused", "timeout", "cancelled", "lost", "given_back" }, ROUNDS,
      function(i) return play(SEED + i, false) end)
  end)

  it("exclude each other, keep their order and leave nothing, on a store far away", function()
    occurrences.await({
      "locked", "timeout", "cancelled", "lost", "given_back", "unavailable", "far refused",
      "far answer_lost", "far late", "far never", "far expired",
    }, ROUNDS, function(i) return play(SEED + i, true) end)
  end)
end)
