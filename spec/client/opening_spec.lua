--- Watches that are opened, or read what exists, while their server is away: they wait as long as it takes, unless a
-- timeout is given.

local keywatch = require "keywatch"

local code = require("spec.support.answer").code
local imposter = require "spec.support.imposter"
local network = require "spec.support.network"
local process = require "spec.support.process"
local proxy = require "spec.support.proxy"

local PATIENCE = network.PATIENCE
local SHORT = 0.1 -- seconds: less than it takes until the server is back
local RANGE, WATCH = "/etcdserverpb.KV/Range", "/etcdserverpb.Watch/Watch"
local N = 1500    -- keys, on two pages

-- Requests of a client have little time: what has no timeout of its own must not take that one.
local OPTIONS = {
  connect_timeout = 1, keepalive = 0.1, keepalive_timeout = 0.3, timeout = SHORT,
  backoff = { first = 0.01, longest = 0.05 },
}

-- Ways to open a watch of "k".
local OPENINGS = {
  ["from now on"] = {},
  ["with what exists"] = { initial = true },
  ["from a revision on"] = { start_revision = 1 },
}

--- Waits until a client has tried often, and for longer than one of its requests may take.
local function await_attempts(client)
  local begun = client.transport.dialer.failures
  local started = keywatch.now()
  while client.transport.dialer.failures < begun + 3 or keywatch.now() - started < 2 * SHORT do
    keywatch.sleep(0.001)
  end
end

network.of_each(function(kind, tag)
  describe(("a watch of %s %s"):format(kind, tag), function()
    local s, p, direct

    setup(function() s = network.serve(kind) end)
    teardown(function() s:stop() end)

    before_each(function()
      network.begin()
      p = proxy.start(s.url)
      direct = network.connect(s.url, { timeout = PATIENCE })
      assert(direct:delete("k", { prefix = true }))
    end)

    after_each(network.finish)

    local function connect()
      return network.connect(p.url, OPTIONS)
    end

    --- The next event of a put of this value.
    local function expect_put(w, value)
      repeat
        local event = assert(w:next(PATIENCE))
      until event.type == "put" and event.value == value
    end

    for way, opts in pairs(OPENINGS) do
      it("is opened when its server is back, and misses nothing: " .. way, function()
        keywatch.run(function()
          local client = connect()
          p:refuse()
          local opening = keywatch.spawn(client.watch, client, "k", opts)
          await_attempts(client)
          assert.is_nil(opening:join(0))
          p:accept_again()
          local _, w = assert(opening:join(PATIENCE))
          assert(direct:put("k", way))
          expect_put(w, way)
        end)
      end)

      it("is opened so at top level: " .. way, function()
        local client = connect()
        p:refuse()
        keywatch.spawn(function()
          await_attempts(client)
          p:accept_again()
        end)
        local w = assert(client:watch("k", opts))
        assert(direct:put("k", way))
        expect_put(w, way)
      end)

      it("is opened within the time that is given, or not: " .. way, function()
        local client = connect()
        p:refuse()
        for _, times in ipairs { { timeout = SHORT }, { timeout = 0 }, { timeout = -1 }, { deadline = true } } do
          local all = { timeout = times.timeout, deadline = times.deadline and keywatch.now() + SHORT }
          for name, value in pairs(opts) do all[name] = value end
          local w, err = client:watch("k", all)
          assert.is_nil(w)
          assert.equal("unavailable", err.code)
        end
        assert.is_false(client.transport.watch_calls:has_watches())
        assert.is_false(client.transport.reads:has_any())
        p:accept_again()
        assert(client:watch("k", { timeout = PATIENCE, initial = opts.initial }))
      end)

      it("ends at once if its task is cancelled, or its client closed: " .. way, function()
        keywatch.run(function()
          for _, silence in ipairs { "refuse", "blackhole" } do
            local client = connect()
            p[silence](p)
            local cancelled = keywatch.spawn(client.watch, client, "k", opts)
            local closed = keywatch.spawn(function() return { client:watch("k", opts) } end)
            keywatch.sleep(SHORT)
            cancelled:cancel()
            assert.equal("cancelled", select(2, cancelled:join(PATIENCE)).code)
            client:close()
            assert.equal("closed", select(2, closed:join(PATIENCE))[2].code)
            assert.same({}, client.transport.reads.list)
            p:restore()
            p:accept_again()
          end
        end)
      end)
    end

    it("fails at once with what waiting does not cure", function()
      local client = connect()
      assert.equal("empty_range", code(client:watch("k", { range_end = "a" })))
      assert.equal("empty_range", code(client:watch("k", { range_end = "a", initial = true })))
    end)

    describe("whose server goes away between two pages of what exists", function()
      local w, client

      before_each(function()
        for i = 1, N, 100 do
          local ops = {}
          for j = i, i + 99 do ops[#ops + 1] = { put = ("k%04d"):format(j), value = "v" } end
          assert(direct:txn { success = ops })
        end
        client = connect()
        w = assert(client:watch("k", { prefix = true, initial = true }))
        p:refuse()
        p:cut()
      end)

      --- Reads what is left of the first page.
      local function read_page()
        for i = 1, 1000 do assert.equal(("k%04d"):format(i), w:next(PATIENCE).key) end
      end

      it("goes on when it is back, and misses nothing", function()
        keywatch.run(function()
          local keys, last = {}, nil
          local reading = keywatch.spawn(function()
            for event in w:events() do
              last = event
              if event.initial then keys[#keys + 1] = event.key end
              if event.key and not event.initial then return end
            end
          end)
          await_attempts(client)
          assert.equal(1000, #keys)
          assert.is_nil(w:error())
          assert(direct:put("k", "later"))
          p:accept_again()
          assert(reading:join(PATIENCE))
          assert.equal("later", last.value)
          assert.equal(N, #keys)
          for i, key in ipairs(keys) do assert.equal(("k%04d"):format(i), key) end
        end)
      end)

      it("keeps the timeouts of those who read it meanwhile", function()
        read_page()
        assert.equal("timeout", code(w:next(0)))
        assert.equal("timeout", code(w:next(SHORT)))
        assert.equal("timeout", code(w:batch(SHORT)))
        assert.equal("timeout", code(w:sync(SHORT)))
        assert.is_nil(w:error())
        p:accept_again()
        for i = 1001, N do assert.equal(("k%04d"):format(i), w:next(PATIENCE).key) end
        assert.equal("synced", w:next(PATIENCE).type)
      end)

      it("comes to its pages for one who never waits", function()
        read_page()
        p:accept_again()
        local n = 1000
        repeat
          local event, err = w:next(0)
          if event and event.initial then n = n + 1 end
          if not event then
            assert.equal("timeout", err.code)
            keywatch.sleep(0.001)
          end
        until event and event.type == "synced"
        assert.equal(N, n)
      end)

      it("fails if they are compacted meanwhile", function()
        read_page()
        assert(direct:put("k", "later"))
        assert(direct:compact(assert(direct:get("k")).mod_revision))
        p:accept_again()
        local event, err = w:next(PATIENCE)
        assert.is_nil(event)
        assert.equal("compacted", err.code)
      end)

      it("leaves nothing under way when it is closed, or forgotten", function()
        local reads = client.transport.reads
        read_page()
        assert.equal("timeout", code(w:next(0)))
        assert.equal(1, #reads.list)
        w:close()
        assert.same({}, reads.list)
        p:accept_again()
        w = assert(client:watch("k", { prefix = true, initial = true }))
        p:refuse()
        p:cut()
        read_page()
        assert.equal("timeout", code(w:next(0)))
        w = nil
        while #reads.list > 0 do
          collectgarbage()
          keywatch.sleep(0.001)
        end
        p:accept_again()
        assert(direct:get("k0001"))
      end)
    end)
  end)
end)

describe("a watch that is opened", function()
  local HEADER = { cluster_id = 1, member_id = 2, revision = 5, raft_term = 1 }
  local KV = { key = "k", value = "v", create_revision = 2, mod_revision = 5, version = 1 }
  local PAGE = { "reply", { header = HEADER, kvs = { KV }, count = 1 } }
  local CREATED = [[
    local header = { cluster_id = 1, member_id = 2, revision = 5, raft_term = 1 }
    stream:headers()
    for request in function() return stream:receive() end do
      if request.create_request then stream:message { header = header, watch_id = 0, created = true } end
    end
  ]]
  local peer

  before_each(network.begin)
  after_each(network.finish)

  local function face(behaviours)
    peer = imposter.start(behaviours)
    return network.connect(peer.url, OPTIONS)
  end

  --- Opens a watch with what exists, and reads that.
  local function expect_opening(client)
    local w = assert(client:watch("k", { initial = true }))
    assert.equal("v", assert(w:next(PATIENCE)).value)
    assert.equal("synced", assert(w:next(PATIENCE)).type)
  end

  it("reads what exists again while a server cannot answer", function()
    local trouble = { "status", 14, "etcdserver: no leader" }
    expect_opening(face { [RANGE] = { "in_turn", trouble, trouble, trouble, PAGE }, [WATCH] = CREATED })
  end)

  it("reads what exists again after a server has cancelled that", function()
    expect_opening(face { [RANGE] = { "in_turn", { "reset", "cancel" }, { "status", 1, "no" }, PAGE },
      [WATCH] = CREATED })
  end)

  it("reads what exists again if no answer comes", function()
    expect_opening(face { [RANGE] = { "in_turn", { "silent" }, PAGE }, [WATCH] = CREATED })
    assert.equal(true, peer:look "calls[1].reset ~= nil")
  end)

  it("is asked for again if it is not confirmed", function()
    expect_opening(face { [RANGE] = PAGE, [WATCH] = { "in_turn", { "silent" }, CREATED } })
  end)

  it("says what the last trouble was if its time is over", function()
    local client = face { [RANGE] = { "status", 14, "etcdserver: no leader" }, [WATCH] = CREATED }
    assert(client:watch("k", { timeout = PATIENCE })):close() -- there is a connection now
    local w, err = client:watch("k", { initial = true, timeout = 1 })
    assert.is_nil(w)
    assert.same({ "unavailable", "etcdserver: no leader" }, { err.code, err.message })
    peer:behave { [RANGE] = { "silent" } }
    assert.equal("deadline_exceeded", code(client:watch("k", { initial = true, timeout = SHORT })))
  end)

  it("fails at once with what another attempt does not cure", function()
    for status, name in pairs { [3] = "invalid_argument", [7] = "permission_denied", [13] = "internal" } do
      local client = face { [RANGE] = { "status", status, "spec: no" }, [WATCH] = { "status", status, "spec: no" } }
      assert.equal(name, code(client:watch("k", { initial = true })))
      if status ~= 13 then assert.equal(name, code(client:watch("k"))) end
      process.end_all()
    end
  end)
end)
