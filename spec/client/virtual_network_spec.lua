--- Clients and watches on a bad network, in virtual time: connections that are cut at every byte, servers that are away
-- while a watch is opened or reads what exists, and servers that hang. spec/simulation does the same at random.

local keywatch = require "keywatch"
local testing = require "keywatch.testing"

local code = require("spec.support.answer").code
local dose = require "spec.support.dose"
local new_random = require("spec.support.random").new
local within = require "spec.support.within"

local SEED = tonumber(os.getenv("KW_SEED")) or os.time()
local STRIDE = dose.is_small and 13 or 3 -- bytes between two cuts
local PREFACE = 24 -- bytes that a client begins with: no request is in them
local PATIENCE = 600 -- seconds for an event that must arrive

--- Cuts the next connection of a world after `n` bytes in one direction ("up" to the server, or "down"). Returns a
-- function that ends the plan, and returns how many bytes were to pass.
local function cut_after(world, n, direction)
  local network, passed, link = world.network, 0, nil
  local dial = network.dial
  function network.dial(self, ...)
    local ok, why, name = dial(self, ...)
    if not ok then return nil, why, name end
    network.dial = nil
    link = self.links[#self.links]
    setmetatable(link[direction], { __newindex = function(queue, at, packet)
      local rest = n - passed
      passed = passed + #packet.bytes
      packet.bytes = packet.bytes:sub(1, math.max(0, math.min(rest, #packet.bytes)))
      if rest > 0 then rawset(queue, at, packet) end
    end })
    return true
  end
  local cutter = keywatch.spawn(function()
    while not link or passed < n do keywatch.sleep(0.001) end
    network:cut(function(one) return one == link end)
  end)
  return function()
    network.dial = nil
    cutter:cancel()
    cutter:join()
    return passed
  end
end

--- Runs fn(client, n, direction, store) with a client whose connection is cut after n bytes, for many n up to all of
-- the bytes of a connection that is not cut.
local function cut_everywhere(fn)
  testing.run(function(world)
    local store = world.server.store
    for _, direction in ipairs { "up", "down" } do
      local n, total = math.huge, nil
      repeat
        local client = world:client { timeout = PATIENCE }
        local stop = cut_after(world, n, direction)
        fn(client, n, direction, store)
        client:close()
        local passed = stop()
        if not total then
          assert(passed > 50)
          n, total = -1 - SEED % STRIDE, passed
        end
        n = math.max(0, n + STRIDE)
      until n > total
    end
  end)
end

describe("A client whose connection is cut at any byte #plain", function() -- there is no TLS in virtual time
  it("reads", function()
    cut_everywhere(function(client, _, _, store)
      store:put("k", "value")
      assert.equal("value", assert(client:get("k")).value)
    end)
  end)

  it("does no write twice, and reports whether a write may have been done", function()
    cut_everywhere(function(client, n, direction, store)
      local key = ("%s/%s"):format(direction, n)
      local result, err = client:put(key, "")
      local version = store:get(key) and store:get(key).version or 0
      if result then return assert.equal(1, version) end
      assert.same({ "unavailable", true }, { err.code, err.maybe_done })
      assert(version <= 1 and n >= (direction == "up" and PREFACE or 0), "a request that was not sent is sent again")
    end)
  end)

  it("commits a transaction once", function()
    cut_everywhere(function(client, n, direction, store)
      local key = ("%s/%s"):format(direction, n)
      local compare, success = { { key = key, version = 0 } }, { { put = key, value = "" } }
      local result, err = client:txn { compare = compare, success = success }
      if result then assert.is_true(result.succeeded) else assert.equal("unavailable", err.code) end
      assert(store:get(key) and store:get(key).version == 1 or not result)
    end)
  end)

  it("receives every event of its watches once, in order", function()
    cut_everywhere(function(client, _, _, store)
      local from = store:put("w/", "0").revision
      store:put("w/", "1")
      local w = assert(client:watch("w/", { start_revision = from + 1, prev_kv = true }))
      store:put("w/", "2")
      local other = assert(client:watch("w/", { start_revision = from + 1 }))
      store:put("w/", "3")
      for i = 1, 3 do
        local event = assert(w:next(PATIENCE))
        assert.same({ tostring(i), tostring(i - 1), from + i }, { event.value, event.prev.value, event.mod_revision })
        assert.equal(from + i, assert(other:next(PATIENCE)).mod_revision)
      end
      assert.same({ "timeout", "timeout" }, { code(w:next(0)), code(other:next(0)) })
    end)
  end)

  --- Cuts the connection of a watch of "k" after random numbers of bytes that the server sends. The watch comes to the
  -- contents of the store each time. `write` is called before the watch is opened, and after that.
  local function compare_at_random_cuts(n_cuts, bytes, opts, write)
    local random = new_random(SEED)
    testing.run(function(world)
      local store = world.server.store
      for i = 1, n_cuts do
        write(store, i)
        local client = world:client { timeout = PATIENCE }
        local stop = cut_after(world, random:between(0, bytes), "down")
        opts.start_revision = not opts.initial and store:status().revision + 1 or nil
        local w = assert(client:watch("k", opts))
        local last, state = write(store, i), {}
        repeat
          local batch = assert(w:batch(PATIENCE))
          for _, event in ipairs(batch.events) do
            if event.key then state[event.key] = event.value end
          end
        until batch.revision == last and not batch.events[1].initial and batch.events[1].type ~= "synced"
        stop()
        for key, value in pairs(state) do assert(store:get(key).value == value, key) end
        if opts.initial then
          for _, kv in ipairs(store:range("k", { prefix = true }).kvs) do assert(state[kv.key] == kv.value, kv.key) end
        end
        client:close()
      end
    end)
  end

  it("receives fragmented revisions", function()
    local value = ("v"):rep(700000)
    compare_at_random_cuts(dose.of(4, 10), 3 * #value, { prefix = true }, function(store, i)
      local ops = {}
      for key = 1, 2 do ops[key] = { put = "k" .. key, value = i .. value } end
      store:txn { success = ops }
      return store:put("k3", i .. value).revision
    end)
  end)

  it("receives initial kvs on several pages, and the changes during the reads", function()
    compare_at_random_cuts(dose.of(4, 20), 100000, { prefix = true, initial = true }, function(store, i)
      for page = 1, 25 do
        local ops = {}
        for key = 1, 100 do ops[key] = { put = ("k%d/%d"):format(page, key), value = tostring(i) } end
        store:txn { success = ops }
      end
      return store:put("k", tostring(i)).revision
    end)
  end)

  it("syncs a watch over the next connection", within.world(function(world)
    local client, store = world:client(), world.server.store
    local w, idle = assert(client:watch("k")), assert(client:watch("idle"))
    world.server:slow(0.01, 0.03)
    for i = 1, 50 do
      local revision = store:put("k", tostring(i)).revision
      local cutting = keywatch.spawn(function()
        keywatch.sleep(i / 500)
        world:cut(client)
      end)
      assert(assert(w:sync(PATIENCE)) >= revision and assert(idle:sync(PATIENCE)) >= revision)
      cutting:join()
      assert.equal(revision, w:next(0).mod_revision)
      assert.same({ "timeout", "timeout" }, { code(w:next(0)), code(idle:next(0)) })
    end
    world.server:isolate()
    assert.equal("timeout", code(w:sync(1)))
    world.server:join()
    assert(w:sync(PATIENCE))
  end))
end)

describe("A watch that is opened while its server is away #plain", function()
  local AWAY = 30 -- seconds: more than the timeout of requests
  local OPENINGS = {
    ["from now on"] = {}, ["with what exists"] = { initial = true }, ["from a revision on"] = { start_revision = 1 },
  }

  for way, opts in pairs(OPENINGS) do
    it("opens once the server is back, and misses nothing: " .. way, within.world(function(world)
      local server, client = world.server, world:client { timeout = 1 }
      server:stop()
      local opening = keywatch.spawn(client.watch, client, "k", opts)
      keywatch.sleep(AWAY)
      assert.is_nil(opening:join(0))
      server:start()
      local _, w = assert(opening:join(PATIENCE))
      server.store:put("k", way)
      repeat local event = assert(w:next(PATIENCE)) until event.value == way
    end))

    it("fails at its timeout, or deadline, if it has one: " .. way, within.world(function(world)
      local client = world:client()
      world.server:stop()
      for _, times in ipairs { { timeout = 5 }, { timeout = 0 }, { timeout = -1 }, { deadline = 5 } } do
        local all = { timeout = times.timeout, deadline = times.deadline and keywatch.now() + times.deadline }
        for name, value in pairs(opts) do all[name] = value end
        assert.equal("unavailable", code(client:watch("k", all)))
      end
      assert.is_false(client.transport.watch_calls:has_watches())
      assert.is_false(client.transport.reads:has_any())
      world.server:start()
      assert(client:watch("k", { timeout = PATIENCE, initial = opts.initial }))
    end))

    it("ends at once with its task, and with its client: " .. way, function()
      for _, silence in ipairs { "stop", "isolate" } do
        testing.run(function(world)
          local client = world:client()
          world.server[silence](world.server)
          local cancelled = keywatch.spawn(client.watch, client, "k", opts)
          local closed = keywatch.spawn(function() return { client:watch("k", opts) } end)
          keywatch.sleep(AWAY)
          cancelled:cancel()
          assert.equal("cancelled", select(2, cancelled:join(1)).code)
          client:close()
          assert.equal("closed", select(2, closed:join(1))[2].code)
          assert.same({}, client.transport.reads.list)
        end)
      end
    end)
  end

  it("fails at once with a permanent error", within.world(function(world)
    local client = world:client()
    assert.equal("empty_range", code(client:watch("k", { range_end = "a" })))
    assert.equal("empty_range", code(client:watch("k", { range_end = "a", initial = true })))
  end))
end)

describe("A watch whose server goes away between two initial pages #plain", function()
  local N = 1500 -- keys, on two pages

  --- Runs fn(w, server, client, read) in a world. The server is stopped after the first page; read(from, to) expects
  -- these keys.
  local function run(fn)
    testing.run(function(world)
      local server, client = world.server, world:client { timeout = 1 }
      for i = 1, N do server.store:put(("k%04d"):format(i), "v") end
      local w = assert(client:watch("k", { prefix = true, initial = true }))
      server:stop()
      fn(w, server, client, function(from, to)
        for i = from, to do assert.equal(("k%04d"):format(i), w:next(PATIENCE).key) end
      end)
    end)
  end

  it("continues when the server is back, and misses nothing", function()
    run(function(w, server, _, read)
      local reading = keywatch.spawn(function()
        read(1, N)
        return { w:next(PATIENCE).type, w:next(PATIENCE).value }
      end)
      keywatch.sleep(60)
      assert.is_nil(w:error())
      server.store:put("k", "later")
      server:start()
      assert.same({ "synced", "later" }, select(2, reading:join(PATIENCE)))
    end)
  end)

  it("keeps the timeouts of its readers", function()
    run(function(w, server, _, read)
      read(1, 1000)
      assert.same({ "timeout", "timeout", "timeout", "timeout" },
        { code(w:next(0)), code(w:next(5)), code(w:batch(5)), code(w:sync(5)) })
      assert.is_nil(w:error())
      server:start()
      read(1001, N)
      assert.equal("synced", w:next(PATIENCE).type)
    end)
  end)

  it("reads its pages for a reader that never waits", function()
    run(function(w, server, _, read)
      read(1, 1000)
      server:start()
      local n = 1000
      repeat
        local event = w:next(0)
        if event and event.initial then n = n + 1 end
        if not event then keywatch.sleep(0.001) end
      until event and event.type == "synced"
      assert.equal(N, n)
    end)
  end)

  it("fails if the pages are compacted before", function()
    run(function(w, server, _, read)
      read(1, 1000)
      server.store:put("k", "later")
      server:compact()
      server:start()
      assert.equal("compacted", code(w:next(PATIENCE)))
    end)
  end)

  it("leaves no request when it is closed, or collected", function()
    run(function(w, server, client, read)
      local reads = client.transport.reads
      read(1, 1000)
      assert.equal("timeout", code(w:next(0)))
      assert.equal(1, #reads.list)
      w:close()
      assert.same({}, reads.list)
      server:start()
      w = assert(client:watch("k", { prefix = true, initial = true }))
      server:stop()
      for _ = 1, 1000 do w:next(PATIENCE) end
      assert.equal("timeout", code(w:next(0)))
      w = nil -- luacheck: ignore 311
      while #reads.list > 0 do
        collectgarbage()
        keywatch.sleep(0.001)
      end
    end)
  end)
end)

describe("A client of several servers, the first of which hangs, #plain", function()
  local SECONDS = 6 -- 3 without an answer, 2 without a status, and the other server

  --- A client that is connected to the first of two servers, and has a cache and a watch there, calls `act` after that
  -- server has stopped to answer. The other server serves that in time, and the first one at once if it does not hang.
  local function check(name, act)
    it("uses the other server in time: " .. name, function()
      for _, hangs in ipairs { false, true } do
        testing.run(function(world)
          local server = world.server
          local other = assert(keywatch.serve { store = server.store, listen = "http://127.0.0.1:2380",
            cluster_token = "server 1" })
          local client = keywatch.connect { server.url, "http://127.0.0.1:2380" }
          assert(client:put("a", "1"))
          local cache, watch = assert(client:cache("a")), assert(client:watch("a"))
          assert(cache:wait_ready())
          assert(watch:sync(1))
          if hangs then server:isolate() end
          local began = keywatch.now()
          assert(act(client, cache, watch))
          local seconds = keywatch.now() - began
          assert(seconds <= (hangs and SECONDS or 0.2), seconds)
          client:close()
          other:close()
        end)
      end
    end)
  end

  check("a read", function(client) return client:get("a") end)
  check("a consistent read of a cache", function(_, cache) return cache:get("a", { consistent = true }) end)
  check("a cache", function(client) return client:cache("b"):wait_ready() end)
  check("a watch", function(client) return client:watch("b") end)
  check("a watch from the beginning", function(client) return client:watch("a", { initial = true }) end)
  check("a watch that comes up to date", function(_, _, watch) return watch:sync() end)
end)
