--- A client that is used for long takes no more memory than one that was used for a while.
--
-- KW_DOSE=12 makes every dose twelve times as large: a million events, a hundred thousand watches.

local keywatch = require "keywatch"

local dose = require "spec.support.dose"
local imposter = require "spec.support.imposter"
local process = require "spec.support.process"
local raw = require "spec.support.raw"
local resident = require "spec.support.resident"
local server = require "spec.support.server"

-- Where the memory of the process says nothing, that of Lua is looked at, which is known to the byte.
local FACTOR = dose.factor * (resident.is_telling and not dose.is_small and 1 or 0.2)
local EVENTS, WATCHES, CALLS = 28000 * FACTOR, 2800 * FACTOR, 5000 * FACTOR
local CONNECTIONS = 30 * FACTOR
local KIB, MIB = 1024, 1024 * 1024
local FLAT = 1 * MIB
local FLAT_HEAP = FLAT * math.min(FACTOR, 1)
local PATIENT = 30 -- seconds

describe("a client that is used for long #slow", function()
  local client

  local function expect_flat(name, n, use) resident.expect_flat(name, n, use, FLAT, FLAT_HEAP) end

  describe("with a server", function()
    local peer

    setup(function() peer = server.start { kind = "keywatch", is_in_memory = true } end)
    teardown(function() if peer then peer:stop() end end)

    before_each(function() client = keywatch.connect(peer.url, { timeout = PATIENT }) end)
    after_each(function() client:close() end)

    local function fill(n)
      local ops = {}
      for i = 1, n do ops[i] = { put = ("leak/%d"):format(i), value = ("v"):rep(50) } end
      return ops
    end

    it("leaves nothing behind of events", function()
      local ops = fill(100)
      local one = assert(client:watch("leak/", { prefix = true, prev_kv = true }))
      expect_flat("events", EVENTS, function()
        for _ = 1, EVENTS / #ops do
          local revision = assert(client:txn { success = ops }).revision
          local found = 0
          while found < #ops do
            local batch = assert(one:batch(PATIENT))
            assert.equal(revision, batch.revision)
            found = found + #batch.events
          end
        end
        assert(client:compact(one.revision - 1, { physical = true }))
      end)
      one:close()
    end)

    it("leaves nothing behind of the events of a cache, of its watches and of its tables", function()
      local more, ops = {}, {}
      for i = 1, 50 do
        more[i] = { put = ("cached/brief/%d"):format(i), value = "v" }
        ops[2 * i - 1] = { put = ("cached/%d"):format(i), value = ("v"):rep(50) }
        ops[2 * i] = { delete = ("cached/brief/%d"):format(i) }
      end
      local cache = assert(client:cache("cached/", { history_bytes = 100 * KIB }))
      assert(cache:wait_ready(PATIENT))
      local one = assert(cache:watch("cached/", { prefix = true, prev_kv = true }))
      local slow = assert(cache:watch("cached/", { prefix = true, max_bytes = 1000 }))
      local n_changes = 0
      local all = cache:table { on_change = function() n_changes = n_changes + 1 end }
      expect_flat("events of a cache", EVENTS, function()
        local last
        for _ = 1, EVENTS / 150 do
          assert(client:txn { success = more })
          last = assert(client:txn { success = ops }).revision
          repeat local batch = assert(one:batch(PATIENT)) until batch.revision == last
        end
        assert(cache:wait_for(last, PATIENT))
        assert(client:compact(last - 1, { physical = true }))
      end)
      assert.equal(50, cache:status().keys)
      local n = 0
      for _ in pairs(all) do n = n + 1 end
      assert.equal(50, n)
      assert.is_true(n_changes > 2 * EVENTS / 3)
      repeat local event, err = slow:next(0) until not event and err.code == "compacted"
      cache:close()
    end)

    it("leaves nothing behind of watches that are opened and closed", function()
      local key = 0
      expect_flat("watches", WATCHES, function()
        for _ = 1, WATCHES do
          key = key + 1
          local one = assert(client:watch("watch/" .. key % 100))
          if key % 10 == 0 then
            assert(client:put("watch/" .. key % 100, "v"))
            assert(one:next(PATIENT))
          end
          one:close()
        end
      end)
      assert.is_nil(next(client.transport.watch_calls.watches))
    end)

    it("leaves nothing behind of watches that nobody closes", function()
      expect_flat("watches that are forgotten", WATCHES, function()
        for i = 1, WATCHES do
          assert(client:watch("watch/" .. i % 100))
          if i % 500 == 0 then collectgarbage() end
        end
      end)
      collectgarbage()
      collectgarbage()
      assert.is_nil(next(client.transport.watch_calls.watches))
    end)

    it("leaves nothing behind of calls", function()
      assert(client:put("leak/call", ("v"):rep(1000)))
      expect_flat("calls", CALLS, function()
        for _ = 1, CALLS do assert(client:get("leak/call")) end
      end)
    end)

    it("leaves nothing behind of calls that fail", function()
      expect_flat("failed calls", CALLS, function()
        for _ = 1, CALLS do assert.is_nil((client:get(""))) end
      end)
    end)
  end)

  describe("with an imposter", function()
    local peer

    local function start(behaviours)
      peer = imposter.start(behaviours)
      client = keywatch.connect(peer.url, { timeout = PATIENT })
    end

    after_each(function()
      client:close()
      process.end_all()
    end)

    it("leaves nothing behind of calls that are cancelled", function()
      start { ["*"] = "stream:receive()" }
      expect_flat("cancelled calls", CALLS, function()
        keywatch.run(function()
          for _ = 1, CALLS / 100 do
            local tasks = {}
            for i = 1, 100 do tasks[i] = keywatch.spawn(function() return client:put("a", ("v"):rep(1000)) end) end
            keywatch.sleep(0)
            for _, task in ipairs(tasks) do
              task:cancel()
              task:join()
            end
          end
        end)
      end)
    end)

    it("leaves nothing behind of calls whose time is over", function()
      start { ["*"] = "stream:receive()" }
      expect_flat("late calls", CALLS, function()
        keywatch.run(function()
          for _ = 1, CALLS / 100 do
            local tasks = {}
            for i = 1, 100 do
              tasks[i] = keywatch.spawn(function() return client:put("a", ("v"):rep(1000), { timeout = 0.001 }) end)
            end
            for _, task in ipairs(tasks) do task:join() end
          end
        end)
      end)
    end)

    it("leaves nothing behind of streams that are closed early", function()
      start { ["*"] = [[
        stream:receive()
        for _ = 1, 10 do stream:message(("x"):rep(1000)) end
      ]] }
      expect_flat("streams", CALLS / 5, function()
        for i = 1, CALLS / 5 do
          local stream = assert(client:stream("/spec.Some/Stream"))
          assert(stream:send("a"))
          if i % 2 == 0 then assert.equal(1000, #assert(stream:receive(PATIENT))) end
          stream:close()
        end
      end)
    end)

    it("leaves nothing behind of connections that are cut", function()
      start {
        [raw.RANGE] = { "close", "reset" },
        [raw.PUT] = "stream:receive() stream:message {} stream:status(0)",
        [raw.WATCH] = { "watch", { { created = true, watch_id = 0 } } },
      }
      client:close()
      expect_flat("connections", CONNECTIONS, function()
        for i = 1, CONNECTIONS do
          client = keywatch.connect(peer.url, { timeout = PATIENT })
          assert(client:put("a", "b"))
          local one = assert(client:watch("a"))
          assert.is_nil((client:call(raw.RANGE, {}, { timeout = 0.01 })))
          if i % 2 == 0 then one:close() end
          client:close()
        end
        client = nil
      end)
      client = keywatch.connect(peer.url)
    end)
  end)
end)
