--- Owners of locks in a cluster under attack, and the checks of their results.
--
-- A lock has one owner at a time: the times at which owners found the lock held do not overlap, and their counters
-- behind its fence form a single count. A contender that gives up, or is cancelled, leaves no key.
--
-- If etcd has ended a lease too early, see leases.lua, the owner is notified only at the next renewal: its time may
-- then overlap with that of the next owner. The fence still protects the writes.

local keywatch = require "keywatch"

local exclusion = require "spec.simulation.exclusion"
local is_by_server = require("spec.simulation.leases").is_by_server

local PREFIX, COUNTERS = "/k/", "/c/"
local NAMES = 2
local PATIENCE = 60 -- seconds that the deletion of a key may take
local LOOKS = 40 -- checks of the lock by its owner in 4 s, which is longer than the ttl of any session
local CANCELLED = { code = "cancelled" } -- the error of a wait that was cancelled

--- Returns the session of an owner: a new one if the previous one was lost.
local function session_of(world, owner)
  if owner.session and not owner.session:error() then return owner.session end
  local session, err = owner.client:session { ttl = world.random:between(1, 3), timeout = world:patience() }
  world:note("session", session, err)
  owner.session = session
  if session then table.insert(owner.sessions, session) end
  return session
end

--- Waits for a lock or a leadership in a task that is cancelled soon.
local function cancel_soon(world, wait, ...)
  local got
  local task = keywatch.spawn(function(...) got = wait(...) end, ...)
  keywatch.sleep(world.random:between(0, 300) / 1000)
  task:cancel()
  task:join()
  return got, not got and CANCELLED or nil
end

local function try(world, owner, name)
  local session = session_of(world, owner)
  if not session then return end
  local kind = world.random:weighted { { 6, "lock" }, { 2, "try_lock" }, { 1, "cancel" } }
  local lock, err
  if kind == "cancel" then
    lock, err = cancel_soon(world, session.lock, session, name)
  else
    lock, err = session[kind](session, name, { timeout = world:patience() })
  end
  world:note(kind == "cancel" and "lock, cancelled" or kind, lock, err)
  return lock, session
end

--- Records the time if the lock is held.
local function look(record, lock)
  if not lock:is_held() then return false end
  record.to = keywatch.now()
  return true
end

--- Checks repeatedly whether the lock is held, until its lease must have ended.
local function keep_looking(record, lock)
  for _ = 1, LOOKS do
    keywatch.sleep(0.1)
    if not look(record, lock) then return end
  end
end

--- Counts once, with a write of the fence. Returns true if the write was acknowledged.
local function count(world, records, owner, lock, counter)
  local kv, err = owner.client:get(counter, { timeout = world:patience() })
  if err then return world:note("get of a count", nil, err) and false end
  local write = { what = "fenced put", tag = world:tag("k") }
  local value, fence = exclusion.value(write.tag, exclusion.number_in(kv) + 1, lock), lock:fence()
  local result
  if world.random:one_in(2) then
    result, err = fence:put(counter, value, { timeout = world:patience() })
  else
    write.what = "fenced txn"
    result, err = fence:txn({
      compare = { { key = counter, mod_revision = kv and kv.mod_revision or 0 } },
      success = { { put = counter, value = value } },
      failure = { { put = counter .. "/failed", value = "failed" } },
    }, { timeout = world:patience() })
  end
  write.outcome, write.err = world:note(write.what, result, err), err
  table.insert(records.writes, write)
  return write.outcome == "ok"
end

local ends = {}

--- Another client deletes the key without the owner's knowledge: the fence must refuse the writes of the owner.
function ends.rob(world, lock, _, again)
  local robbed
  repeat
    local err
    robbed, err = world:client():txn({
      compare = { { key = lock.key, create_revision = lock.revision } },
      success = { { delete = lock.key } },
    }, { timeout = world:patience() })
    world:note("robbery", robbed, err)
    if not robbed then keywatch.sleep(0.1) end -- a server whose disk is full refuses at once
  until robbed or world.is_over
  if not robbed then return end
  if again() then world:object("a robbed owner of %s has written at once", lock.key) end
  local ok, err = lock:unlock { timeout = world:patience() }
  world:note("unlock, robbed", ok, err)
end

function ends.unlock(world, lock)
  local ok, err = lock:unlock { timeout = world:patience() }
  world:note("unlock", ok, err)
end

function ends.close(world, _, session)
  local ok, err = session:close { timeout = world:patience() }
  world:note("close", ok, err)
end

function ends.orphan(_, _, session) session:orphan() end

--- One attempt to get a lock, and the work of its owner until it unlocks.
local function live(world, records, owner)
  local number = world.random:between(1, NAMES)
  local name, counter = PREFIX .. number, COUNTERS .. number
  local lock, session = try(world, owner, name)
  if not lock then return keywatch.sleep(world.random:between(1, 50) / 1000) end
  local record = { name = name, key = lock.key, revision = lock.revision, from = keywatch.now(), to = nil,
    session = session }
  record.to = record.from
  table.insert(records.holds, record)
  for _ = 1, world.random:between(1, 5) do
    if not look(record, lock) or not count(world, records, owner, lock, counter) then break end
    if world.random:one_in(3) then keywatch.sleep(world.random:between(1, 200) / 1000) end
  end
  if world.random:one_in(8) then keep_looking(record, lock) end
  look(record, lock) -- for the last time: the owner does not know that its key was deleted
  local how = world.random:weighted { { 20, "unlock" }, { 4, "rob" }, { 1, "close" }, { 1, "orphan" } }
  world:count("ends of locks", how)
  ends[how](world, lock, session, function() return count(world, records, owner, lock, counter) end)
end

--- Starts `n` owners for each client.
local function start(world, n)
  local records = { holds = {}, writes = {}, owners = {} }
  for _, client in ipairs(world.clients) do
    for _ = 1, n do
      local owner = { client = client, session = nil, sessions = {} }
      table.insert(records.owners, owner)
      world:work("the owner of a lock", live, records, owner)
    end
  end
  return records
end

--- Waits until all keys are deleted.
local function wait_gone(world, direct, prefix)
  local deadline = keywatch.now() + PATIENCE
  while true do
    collectgarbage()
    local left = assert(direct:range(prefix, { prefix = true }))
    if #left.kvs == 0 then return end
    if keywatch.now() > deadline then
      return world:object("%d keys stay below %s, the first is %s", #left.kvs, prefix, left.kvs[1].key)
    end
    keywatch.sleep(0.1)
  end
end

--- Waits until no lock has a key, though the sessions still live; then closes the sessions.
local function finish(world, records, direct)
  wait_gone(world, direct, PREFIX)
  local last = {} -- by session: its last hold, the only one that can have ended with its lease
  for _, record in ipairs(records.holds) do
    if not last[record.session] or last[record.session].from < record.from then last[record.session] = record end
  end
  for session, record in pairs(last) do
    local err = session:error()
    record.is_ended_early = err ~= nil and is_by_server(err)
  end
  for _, owner in ipairs(records.owners) do
    for _, session in ipairs(owner.sessions) do session:close() end
  end
end

--- Checks that the times of two owners do not overlap.
local function judge_times(world, records)
  local by_name = {}
  for _, record in ipairs(records.holds) do
    by_name[record.name] = by_name[record.name] or {}
    table.insert(by_name[record.name], record)
  end
  for name, list in pairs(by_name) do
    table.sort(list, function(a, b) return a.from < b.from or a.from == b.from and a.to < b.to end)
    for i = 2, #list do
      local before, after = list[i - 1], list[i]
      if before.to > after.from then
        world:count("overlaps", before.is_ended_early and "after etcd has ended a lease early" or "without a reason")
        if not before.is_ended_early then
          world:object("%s is held by %s until %.3f, and by %s from %.3f on", name, before.key, before.to, after.key,
            after.from)
        end
      end
    end
  end
end

local function judge(world, history, records)
  for _, record in ipairs(records.writes) do exclusion.judge_tag(world, history, record) end
  judge_times(world, records)
  for i = 1, NAMES do
    local n, changes = exclusion.judge(world, history, PREFIX .. i .. "/", COUNTERS .. i)
    world:count("counted behind locks", "writes", n)
    world:count("counted behind locks", "changes of hands", changes)
    if history.keys[COUNTERS .. i .. "/failed"] then world:object("another client has counted behind a fence") end
  end
end

return { start = start, finish = finish, judge = judge, session_of = session_of, cancel_soon = cancel_soon,
  wait_gone = wait_gone }
