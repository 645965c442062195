--- A client that is used for a long time takes no more memory than one that was used for a short time.
--
-- KW_DOSE=12 makes every dose twelve times as large: a million events, a hundred thousand watches.

local keywatch = require "keywatch"

local dose = require "spec.support.dose"
local network = require "spec.support.network"
local resident = require "spec.support.resident"
local server = require "spec.support.server"

-- Where the memory of the process is not reliable, the specs measure only Lua's heap, whose size is exact: less work is
-- enough.
local FACTOR = dose.factor * (resident.is_reliable and not dose.is_small and 1 or 0.2)
local EVENTS, WATCHES, CALLS = 28000 * FACTOR, 2800 * FACTOR, 5000 * FACTOR
local CONNECTIONS = 30 * FACTOR
local KIB, MIB = 1024, 1024 * 1024
local FLAT = 1 * MIB
local FLAT_HEAP = FLAT * math.min(FACTOR, 1)
local PATIENT = 30 -- seconds
local WATCH = "/etcdserverpb.Watch/Watch"

describe("a client that is used for a long time #slow", function()
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

    it("leaks nothing for events", function()
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

    it("leaks nothing for the events of a cache, its watches and its tables", function()
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

    it("leaks nothing for watches that are opened and closed", function()
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

    it("leaks nothing for watches that are never closed", function()
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

    it("leaks nothing for calls", function()
      assert(client:put("leak/call", ("v"):rep(1000)))
      expect_flat("calls", CALLS, function()
        for _ = 1, CALLS do assert(client:get("leak/call")) end
      end)
    end)

    it("leaks nothing for calls that fail", function()
      expect_flat("failed calls", CALLS, function()
        for _ = 1, CALLS do assert.is_nil((client:get(""))) end
      end)
    end)
  end)

  describe("in virtual time #plain", function() -- without TLS
    local world

    network.in_virtual_time(function(one) world = one end)
    before_each(function() client = world:client() end)

    --- Makes calls that the server never ends, a hundred at once, and ends the task of each by end_call(task).
    local function call_in_vain(name, options, end_call)
      local request = { create_request = { key = ("k"):rep(1000) } }
      expect_flat(name, CALLS, function()
        keywatch.run(function()
          for _ = 1, CALLS / 100 do
            local tasks = {}
            for i = 1, 100 do tasks[i] = keywatch.spawn(client.call, client, WATCH, request, options) end
            keywatch.sleep(0)
            for _, task in ipairs(tasks) do end_call(task) end
            for _, task in ipairs(tasks) do task:join() end
          end
        end)
      end)
    end

    it("leaks nothing for calls that are cancelled", function()
      call_in_vain("cancelled calls", nil, function(task) task:cancel() end)
    end)

    it("leaks nothing for calls that time out", function()
      call_in_vain("late calls", { timeout = 0.001 }, function() end)
    end)

    it("leaks nothing for streams that are closed early", function()
      world.server.server:mount("spec.Some", { Stream = { stream = true, handler = function(call)
        call:receive()
        for _ = 1, 10 do call:send(("x"):rep(1000)) end
        call:receive()
      end } })
      expect_flat("streams", CALLS / 5, function()
        for i = 1, CALLS / 5 do
          local stream = assert(client:stream("/spec.Some/Stream"))
          assert(stream:send("a"))
          if i % 2 == 0 then assert.equal(1000, #assert(stream:receive(PATIENT))) end
          stream:close()
        end
      end)
    end)

    it("leaks nothing for connections that are cut", function()
      expect_flat("connections", CONNECTIONS, function()
        for i = 1, CONNECTIONS do
          local one = world:client()
          assert(one:put("a", "b"))
          local watch = assert(one:watch("a"))
          world:cut(one)
          if i % 3 > 0 then assert(one:put("a", "c", { timeout = PATIENT })) end
          if i % 2 == 0 then watch:close() end
          one:close()
        end
      end)
    end)
  end)
end)
