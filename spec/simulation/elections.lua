--- Candidates and observers of an election in a cluster under attack, and the checks of their results.
--
-- At most one candidate leads at a time, like the owner of a lock, see locks.lua. Every observer must see every leader,
-- and every value that a leader has proclaimed, in the order of the history.

local keywatch = require "keywatch"

local exclusion = require "spec.simulation.exclusion"
local locks = require "spec.simulation.locks"

local NAME, COUNTER = "/e/lead", "/c/lead"
local PATIENCE = 60 -- seconds without a leader, after which an observer has lost one
local LAST = "last" -- the value of the last leader

local function proclaim(world, records, _, leadership)
  local write = { what = "proclaim", tag = world:tag("p") }
  local ok, err = leadership:proclaim(write.tag, { timeout = world:patience() })
  write.outcome, write.err = world:note(write.what, ok, err), err
  table.insert(records.writes, write)
  return write.outcome == "ok"
end

local function count(world, records, owner, leadership)
  local kv, err = owner.client:get(COUNTER, { timeout = world:patience() })
  if err then return world:note("get of a count", nil, err) and false end
  local write = { what = "fenced put of a leader", tag = world:tag("q") }
  local value = exclusion.value(write.tag, exclusion.number_in(kv) + 1, leadership)
  local result
  result, err = leadership:fence():put(COUNTER, value, { timeout = world:patience() })
  write.outcome, write.err = world:note(write.what, result, err), err
  table.insert(records.writes, write)
  return write.outcome == "ok"
end

--- One campaign, which may be cancelled, and the work of the leader until it resigns.
local function live(world, records, owner)
  local session = locks.session_of(world, owner)
  if not session then return keywatch.sleep(0.05) end
  local election = session:election(NAME)
  local leadership, err
  if world.random:one_in(8) then
    leadership, err = locks.cancel_soon(world, election.campaign, election, world:tag("p"))
    world:note("campaign, cancelled", leadership, err)
  else
    leadership, err = election:campaign(world:tag("p"), { timeout = world:patience() })
    world:note("campaign", leadership, err)
  end
  if not leadership then return keywatch.sleep(world.random:between(1, 50) / 1000) end
  for _ = 1, world.random:between(1, 4) do
    local act = world.random:one_in(2) and count or proclaim
    if not leadership:is_held() or not act(world, records, owner, leadership) then break end
  end
  local ok
  ok, err = leadership:resign { timeout = world:patience() }
  world:count("ends of leading", "resign")
  world:note("resign", ok, err)
end

--- Records every leader until the last one.
local function observe(world, observer, client)
  local found, err = client:election(NAME):observe { timeout = world.silence or PATIENCE }
  if not found then return world:object("the election cannot be observed: %s", tostring(err)) end
  while true do
    local kv
    kv, err = found:next(world.silence or PATIENCE)
    if not kv then return world:object("an observer ends: %s", tostring(err)) end
    table.insert(observer, ("%s %s %d"):format(kv.key, kv.value, kv.mod_revision))
    if kv.value == LAST then return found:close() end
    if world.random:one_in(50) then keywatch.sleep(world.random:between(1, 100) / 1000) end
  end
end

--- Starts, for each client, an observer and `n` candidates.
local function start(world, n)
  local records = { writes = {}, owners = {}, observers = {}, tasks = {} }
  for i, client in ipairs(world.clients) do
    records.observers[i] = {}
    records.tasks[i] = keywatch.spawn(observe, world, records.observers[i], client)
    for _ = 1, n do
      local owner = { client = client, session = nil, sessions = {} }
      table.insert(records.owners, owner)
      world:work("a candidate", live, records, owner)
    end
  end
  return records
end

--- Waits until no candidate is left, and ends the observers by a last leader.
local function finish(world, records, direct)
  locks.wait_gone(world, direct, NAME .. "/")
  for _, owner in ipairs(records.owners) do
    for _, session in ipairs(owner.sessions) do session:close() end
  end
  local last = assert(direct:election(NAME):campaign(LAST, { timeout = PATIENCE }))
  for _, task in ipairs(records.tasks) do assert(task:join()) end
  assert(last:resign())
end

--- Returns the leaders and their values that the history has, in order.
local function leaders_of(history)
  local follower, list, received = exclusion.follow(NAME .. "/"), {}, nil
  history:each(NAME .. "/", history.first, history.last, function(_, events)
    exclusion.step(follower, events)
    local holder = exclusion.holder(follower)
    if holder and (not received or received.key ~= holder.key or received.mod_revision ~= holder.mod_revision) then
      list[#list + 1] = ("%s %s %d"):format(holder.key, holder.value, holder.mod_revision)
    end
    received = holder
  end)
  return list
end

--- Checks that an observer has seen every leader and value after its first one.
local function judge_observer(world, expected, observer)
  if #observer == 0 then return world:object("an observer has no leader") end
  local at = 1
  while expected[at] and expected[at] ~= observer[1] do at = at + 1 end
  for i = 1, math.max(#observer, #expected - at + 1) do
    if observer[i] ~= expected[at + i - 1] then
      return world:object("an observer has %s, and %s leads", tostring(observer[i]),
        tostring(expected[at + i - 1]))
    end
  end
  world:count("observed", "leaders and values", #observer)
end

local function judge(world, history, records)
  for _, record in ipairs(records.writes) do exclusion.judge_tag(world, history, record) end
  local n, changes = exclusion.judge(world, history, NAME .. "/", COUNTER)
  world:count("counted behind leading", "writes", n)
  world:count("counted behind leading", "changes of hands", changes)
  local expected = leaders_of(history)
  for _, observer in ipairs(records.observers) do judge_observer(world, expected, observer) end
end

return { start = start, finish = finish, judge = judge }
