--- Random programs in a world with faults: a watch sees every change once and in order, a lock has one holder at a
-- time, and the same seed gives the same run, in every process.

local keywatch = require "keywatch"
local testing = require "keywatch.testing"

local dose = require "spec.support.dose"
local program = require "spec.support.program"

local seed = tonumber(os.getenv("KW_SEED")) or os.time()
local RUNS = dose.of(2, 4)
local MOST_RUNS = 200 -- after which what has not occurred is taken for impossible
local WRITES = 60
local tag = require("spec.support.vm").how == "valgrind" and " #slow" or "" -- gc has them, and valgrind has not

--- Lets faults happen while a program runs: by rules, and at random moments until is_over().
local function disturb(world, client, is_over)
  local rules = {
    world:fault { "delay", seconds = { 0, 3 }, chance = 0.1 },
    world:fault { "refuse", method = "write", error = "too_many_requests", chance = 0.03 },
    world:fault { "refuse", method = "watch", error = "unavailable", chance = 0.1 },
  }
  for _, kind in ipairs { "lose_request", "lose_answer", "mute", "hang" } do
    rules[#rules + 1] = world:fault { kind, method = { "put", "delete", "txn", "get" }, chance = 0.03 }
  end
  local acts = {
    function() world.server:cut() end,
    function() world:cut(client) end,
    function() world.server:restart(world.random() * 5) end,
    function()
      world.server:isolate()
      keywatch.sleep(world.random() * 20)
      world.server:join()
    end,
    function()
      world:isolate(client)
      keywatch.sleep(world.random() * 20)
      world:join(client)
    end,
    function() world.server:slow(0, world.random()) end,
  }
  return keywatch.spawn(function()
    while not is_over() do
      keywatch.sleep(world.random() * 10)
      acts[world.random(#acts)]()
    end
    world.server:slow(0)
    for _, rule in ipairs(rules) do rule:stop() end
  end)
end

--- Adds counters to others.
local function add(to, counts)
  for name, n in pairs(counts) do to[name] = (to[name] or 0) + n end
end

--- Returns the history of a store as texts, one for each event.
local function history_of(store)
  local w, list = store:watch("", { prefix = true, start_revision = 1 }), {}
  for event in function() return (w:next(0)) end do
    list[#list + 1] = ("%d %s %s %s"):format(event.mod_revision, event.type, event.key, event.value or "")
  end
  w:close()
  return list
end

describe("in a world with faults" .. tag, function()
  --- Calls fn(i) for each number of a run: RUNS of them, and more until has_all() is true.
  local function go_on(fn, has_all)
    local i = 0
    repeat
      i = i + 1
      fn(i)
    until i >= RUNS and has_all() or i >= MOST_RUNS
    assert(has_all(), "some fault has never happened")
  end

  it("a watch sees every change once, and in order", function()
    local counts = {}
    go_on(function(i)
      testing.run(function(world)
        local writer, reader, is_over = world:client(), world:client(), false
        local seen = {}
        local w = assert(reader:watch("", { prefix = true, start_revision = 1 }))
        local reading = keywatch.spawn(function()
          for event in w:events() do
            seen[#seen + 1] = ("%d %s %s %s"):format(event.mod_revision, event.type, event.key, event.value or "")
          end
        end)
        local faults = disturb(world, reader, function() return is_over end)
        for n = 1, WRITES do
          local key = "k" .. world.random(5)
          if world.random(4) == 1 then writer:delete(key) else writer:put(key, tostring(n)) end
          if world.random(5) == 1 then keywatch.sleep(world.random() * 5) end
        end
        is_over = true
        faults:join()
        assert(w:sync(600))
        w:close()
        reading:join()
        assert.same(history_of(world.server.store), seen)
        add(counts, world.counts)
      end, { seed = seed + i })
    end, function()
      for _, kind in ipairs { "lose_request", "lose_answer", "mute", "hang", "delay", "refuse", "cut", "isolate",
        "stop" } do
        if counts[kind] == 0 then return false end
      end
      return true
    end)
  end)

  it("a write that has failed is in doubt only if it says so", function()
    local doubts, refusals = 0, 0
    go_on(function(i)
      testing.run(function(world)
        local client, is_over = world:client(), false
        local faults = disturb(world, client, function() return is_over end)
        local told = {}
        for n = 1, WRITES do
          local ok, err = client:put("n" .. n, "", { timeout = 3 })
          told[n] = ok and "done" or err.maybe_done and "in doubt" or "not done"
        end
        is_over = true
        faults:join()
        keywatch.sleep(60)
        for n = 1, WRITES do
          local kv = world.server.store:get("n" .. n)
          if told[n] == "done" then assert(kv, "a write is gone that was answered") end
          if told[n] == "not done" then
            refusals = refusals + 1
            assert.is_nil(kv)
          elseif told[n] == "in doubt" then
            doubts = doubts + 1
          end
        end
      end, { seed = seed + i })
    end, function() return doubts > 0 and refusals > 0 end)
  end)

  it("a lock has one holder at a time", function()
    local n = 0
    go_on(function(i)
      testing.run(function(world)
        local holder, is_over, tasks = nil, false, {}
        local clients = { world:client(), world:client(), world:client() }
        local faults = disturb(world, clients[1], function() return is_over end)
        for j, client in ipairs(clients) do
          tasks[j] = keywatch.spawn(function()
            while not is_over do
              local lock = client:lock("job", { ttl = 5, timeout = 30 })
              if lock and lock:is_held() then
                assert.is_nil(holder)
                holder, n = j, n + 1
                lock:lost(world.random() * 10) -- works as long, or until it is lost
                holder = nil
                lock:unlock { timeout = 10 }
              else
                keywatch.sleep(1)
              end
            end
          end)
        end
        keywatch.sleep(200)
        is_over = true
        faults:join()
        keywatch.join(tasks)
      end, { seed = seed + i })
    end, function() return n > RUNS end)
  end)
end)

local PROGRAM = [[
  local keywatch = require "keywatch"
  local testing = require "keywatch.testing"
  local junk = {}
  for i = 1, %d do junk[i] = { tostring(i) } end -- other addresses
  testing.run(function(world)
    local clients, tasks = {}, {}
    local function note(...) print(("%%.6f"):format(keywatch.now()), ...) end
    for i = 1, 3 do clients[i] = world:client() end
    local session = clients[1]:session { ttl = 10 }
    note("session", session.lease.id)
    world:fault { "lose_answer", method = "write", chance = 0.05 }
    world:fault { "delay", seconds = { 0, 1 }, chance = 0.2 }
    for i = 1, 12 do
      local client = clients[world.random(3)]
      local w = client:watch("k" .. i %% 4, { prefix = true })
      tasks[i] = keywatch.spawn(function()
        while true do
          local event, err = w:next(40)
          note("watch", i, event and event.type or err.code, event and event.value)
          if not event then return end
        end
      end)
    end
    for n = 1, 40 do
      local ok, err = clients[world.random(3)]:put("k" .. world.random(0, 3), tostring(n), { timeout = 5 })
      note("put", n, ok and ok.revision or err)
      if n %% 10 == 0 then world.server:cut() end
      if n %% 15 == 0 then world.server:restart(world.random() * 3) end
      keywatch.sleep(world.random())
    end
    keywatch.join(tasks)
    for _, name in ipairs { "lose_answer", "delay", "cut", "stop" } do note(name, world.counts[name]) end
  end, { seed = %d })
]]

describe("the same seed", function()
  it("gives the same run in another process, and another seed gives another", function()
    local _, first = program.run(PROGRAM:format(0, seed % 1000))
    local status, second = program.run(PROGRAM:format(1000, seed % 1000))
    assert.equal(0, status, second)
    assert.equal(first, second)
    assert(#first > 1000, first)
    local _, other = program.run(PROGRAM:format(0, seed % 1000 + 1))
    assert.not_equal(first, other)
  end)
end)
