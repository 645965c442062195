--- A whole small program as a user would write it, under each kind of fault: it watches what is wanted, and keeps a key
-- under its lease for each wanted name. Whatever happens, it comes to what is wanted; and each test says how.

local keywatch = require "keywatch"
local testing = require "keywatch.testing"

local how = require("spec.support.vm").how
local is_brief = how == "gc" -- valgrind leaves all of them out
local seed = tonumber(os.getenv("KW_SEED")) or os.time()
local RESYNC = 30 -- seconds
local ROUNDS = 500 -- in which the faults that are to occur have to

-- {====== The program ======

--- Calls a request until it succeeds, five times at most: what the program requests may be done twice.
local function retry(fn, ...)
  local result, err
  for i = 1, 5 do
    result, err = fn(...)
    if result or err.code == "lease_not_found" then break end
    keywatch.sleep(0.1 * i)
  end
  return result, err
end

--- Deletes what runs and is not wanted: `wanted` has the keys that it is to have. Returns true, or nil.
local function clean(client, wanted)
  local running = retry(client.range, client, "/run/", { prefix = true, timeout = 5 })
  for _, kv in ipairs(running and running.kvs or {}) do
    if not wanted[kv.key] and not retry(client.delete, client, kv.key, { timeout = 5 }) then return nil end
  end
  return running and true
end

--- Does what an event of a wanted key asks for. Returns nil if that has failed.
local function handle(client, lease, event, wanted)
  if event.type == "synced" then return clean(client, wanted) end
  local key = "/run/" .. event.key:sub(#"/want/" + 1)
  wanted[key] = event.type == "put" or nil
  if event.type == "delete" then return retry(client.delete, client, key, { timeout = 5 }) end
  return retry(client.put, client, key, event.value, { lease = lease, timeout = 5 })
end

--- Works until the lease is lost, the watch or a request has failed, or RESYNC seconds have passed: a server that was
-- restored may have lost what the program has written, and a watch of what is wanted does not tell that.
local function work(client, lease)
  local until_, wanted = keywatch.now() + RESYNC, {}
  local w = client:watch("/want/", { prefix = true, initial = true, timeout = 5 })
  while w do
    local which, event = keywatch.select { w, lease, timeout = math.max(0, until_ - keywatch.now()) }
    if which ~= w or not event or not handle(client, lease, event, wanted) then break end
  end
  if w then w:close() end
end

--- The program: works under a lease, and under another one when that is lost.
local function controller(client)
  while true do
    local lease = client:lease(10, { timeout = 5 })
    if lease then
      lease:keep()
      while not lease:error() do
        work(client, lease)
        keywatch.sleep(1)
      end
    end
    keywatch.sleep(1)
  end
end

-- }======

--- The keys of a store below a prefix, as a text: name=value.
local function shown(store, prefix)
  local list = {}
  for _, kv in ipairs(store:range(prefix, { prefix = true }).kvs) do
    list[#list + 1] = kv.key:sub(#prefix + 1) .. "=" .. kv.value
  end
  return table.concat(list, " ")
end

-- By name: how to make each fault happen, once. What a rule does ends with the round.
local faults = {
  cut = function(world) world.server:cut() end,
  stop = function(world) world.server:restart(world.random() * 20) end,
  isolate = function(world, client)
    world:isolate(client)
    keywatch.sleep(world.random() * 40)
    world:join(client)
  end,
  compact = function(world)
    world.server:stop()
    world.server.store:put("/want/a", "missed")
    world.server.store:delete("/want/b")
    world.server:compact()
    world.server:start()
  end,
  restore = function(world)
    local status = world.server.store:status()
    world.server:restore(math.max(1, status.compact_revision, status.revision - 3))
  end,
  replace = function(world) world.server:replace() end,
  lose_lease = function(world)
    local lease = assert(world.server.store:leases())[1]
    if lease then world.server:lose_lease(lease) end -- there is none while the program begins
  end,
}

for _, kind in ipairs { "lose_request", "lose_answer", "mute", "hang" } do
  faults[kind] = function(world)
    return world:fault { kind, method = { "put", "delete", "lease", "revoke" }, skip = world.random(0, 2), count = 1 }
  end
end

function faults.refuse(world)
  local codes = { "no_space", "too_many_requests", "unavailable", "no_leader" }
  return world:fault { "refuse", method = { "write", "watch", "keepalive" }, error = codes[world.random(#codes)],
    count = world.random(8) }
end

function faults.delay(world) return world:fault { "delay", seconds = { 0, 10 }, count = world.random(10) } end

local NAMES = {}
for name in pairs(faults) do NAMES[#NAMES + 1] = name end
table.sort(NAMES)

--- Runs the program in a world. The fault happens while what is wanted changes, again and again until it has occurred
-- `times` times.
local function run(names, times, program, own_seed)
  testing.run(function(world)
    local client, round = world:client(), 0
    local running = keywatch.spawn(program or controller, client)
    local function is_over()
      for _, name in ipairs(names) do
        if world.counts[name] < times then return round == ROUNDS end
      end
      return true
    end
    while not is_over() do
      round = round + 1
      local name = names[(round - 1) % #names + 1]
      world.server.store:put("/want/" .. world.random(3), "round " .. round)
      world.server.store:delete("/want/" .. world.random(3))
      keywatch.sleep(world.random() * 3)
      local rule = faults[name](world, client)
      world.server.store:put("/want/" .. world.random(3), "later " .. round)
      keywatch.sleep(world.random() * 30)
      if rule then rule:stop() end
      if world.random(2) == 1 then
        keywatch.sleep(100)
        assert.equal(shown(world.server.store, "/want/"), shown(world.server.store, "/run/"))
      end
    end
    keywatch.sleep(100)
    assert.equal(shown(world.server.store, "/want/"), shown(world.server.store, "/run/"))
    for _, name in ipairs(names) do assert(world.counts[name] >= times, name .. " has not happened") end
    running:cancel()
    client:close()
    keywatch.sleep(20) -- the lease ends
    assert.equal("", shown(world.server.store, "/run/"))
  end, { seed = own_seed or seed, limit = 1e6 })
end

describe("a controller in a world" .. (how == "valgrind" and " #slow" or ""), function()
  for _, name in ipairs(is_brief and {} or NAMES) do
    it("comes to what is wanted in spite of " .. name, function() run({ name }, 3) end)
  end

  it("comes to what is wanted in spite of all of them", function() run(NAMES, 1) end)

  it("that takes no notice of errors is found out", function()
    local found
    for i = 1, 20 do
      local ok, err = pcall(run, { "lose_request" }, 3, function(client)
        local lease = client:lease(10):keep()
        for event in client:watch("/want/", { prefix = true, initial = true }):events() do
          local key = "/run/" .. (event.key or ""):sub(#"/want/" + 1)
          if event.type == "put" then client:put(key, event.value, { lease = lease }) end
          if event.type == "delete" then client:delete(key) end
        end
      end, seed + i)
      if not ok then found = found or err end
      if found then break end
    end
    assert(found, "it was not found out")
    assert(tostring(found.message or found):find("Expected objects to be equal", 1, true), tostring(found))
  end)
end)
