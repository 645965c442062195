--- Hostile and broken servers: a client reports the error clearly and in time, uses bounded memory, and continues as
-- soon as a server works.

local keywatch = require "keywatch"

local imposter = require "spec.support.imposter"
local network = require "spec.support.network"
local raw = require "spec.support.raw"
local resident = require "spec.support.resident"

local RANGE, PUT, WATCH = raw.RANGE, raw.PUT, raw.WATCH
local TXN, COMPACT, DELETE = "/etcdserverpb.KV/Txn", "/etcdserverpb.KV/Compact", "/etcdserverpb.KV/DeleteRange"
local GRANT, KEEPALIVE = "/etcdserverpb.Lease/LeaseGrant", "/etcdserverpb.Lease/LeaseKeepAlive"
local SHORT, PATIENT = 0.3, 60 -- seconds: the deadline where nothing comes in time; and where something comes
local READY = "/spec.Some/Ready"
local MIB = 1024 * 1024

local HEADER = { cluster_id = 1, member_id = 2, revision = 5, raft_term = 1 }
local KV = { key = "a", value = "v", create_revision = 2, mod_revision = 5, version = 1 }

--- The behaviours of a correct server.
local GOOD = {
  connection = { "settings", {} },
  [RANGE] = { "reply", { header = HEADER, count = 1, kvs = { KV } } },
  [PUT] = { "reply", { header = HEADER } },
  [WATCH] = [[
    local header, id = { cluster_id = 1, member_id = 2, revision = 5, raft_term = 1 }, 0
    local kv = { key = "a", value = "v", create_revision = 2, mod_revision = 6, version = 2 }
    for request in stream.receive, stream do
      if request.create_request then
        stream:message { header = header, watch_id = id, created = true }
        stream:message { header = header, watch_id = id, events = { { kv = kv } } }
        id = id + 1
      end
    end
  ]],
}

-- Requests of a client. Each returns nil and an error.
local ASKING = {
  get = function(client) return client:get("a") end,
  range = function(client) return client:range("a", { prefix = true }) end,
  each = function(client) return nil, select(2, pcall(client.each, client, "a", { prefix = true })) end,
  put = function(client) return client:put("a", "b") end,
  delete = function(client) return client:delete("a") end,
  txn = function(client) return client:txn { success = { { put = "a", value = "b" } } } end,
  compact = function(client) return client:compact(2) end,
  lease = function(client) return client:lease(10) end,
  keepalive = function(client) return client:lease_by_id(7):keepalive() end,
  remaining = function(client) return client:lease_by_id(7):remaining() end,
  leases = function(client) return client:leases() end,
  status = function(client) return client:status() end,
  call = function(client) return client:call("/spec.Some/Call", "a") end,
  initial = function(client, timeout) return client:watch("a", { initial = true, timeout = timeout or SHORT }) end,
  stream = function(client)
    local stream = assert(client:stream("/spec.Some/Stream"))
    stream:send("a")
    stream:finish()
    local message, err
    repeat message, err = stream:receive() until not message
    return nil, err
  end,
}

local function watch(client, timeout) return client:watch("a", { timeout = timeout or SHORT }) end

describe("a client of a hostile server #plain", function() -- there is no TLS in virtual time
  local peer

  network.in_virtual_time()

  local function connect(urls, opts) return network.connect(urls, opts or { timeout = SHORT }) end

  --- A client of an imposter that does this to every call. The client is connected.
  local function face(said, opts)
    peer = imposter.start { ["*"] = said, [READY] = { "reply", "" } }
    local client = connect(peer.url, opts)
    assert(client:call(READY, "", { timeout = PATIENT }))
    return client
  end

  --- Connects a client of an imposter that takes no request: it has received the imposter's settings.
  local function reach(client)
    keywatch.run(function()
      local call = keywatch.spawn(function() return client:call(READY, "", { timeout = PATIENT }) end)
      peer:await("connections[1].frames.settings == 2")
      call:cancel()
      call:join()
    end)
  end

  local function expect_error(code, words, value, err)
    assert.is_nil(value)
    assert.truthy(type(err) == "table" and err.code, tostring(err))
    assert.same({ code, true }, { err.code, err.message:find(words, 1, true) ~= nil }, tostring(err))
  end

  --- Asks for several things at once: each fails so.
  local function expect_errors(code, words, client, asking)
    local tasks = {}
    keywatch.run(function()
      for i, ask in ipairs(asking) do tasks[i] = keywatch.spawn(ask, client) end
      for _, task in ipairs(tasks) do expect_error(code, words, select(2, task:join())) end
    end)
  end

  --- The server behaves from now on: the client finds that out.
  local function expect_recovery(client)
    peer:behave(GOOD)
    assert.equal("v", assert(client:get("a", { timeout = PATIENT })).value)
    assert(client:put("a", "b", { timeout = PATIENT }))
    local one = assert(client:watch("a", { timeout = PATIENT }))
    assert.equal("v", assert(one:next(PATIENT)).value)
    one:close()
  end

  -- {====== Answers ======

  describe("with malformed answers", function()
    -- By the behaviour of the server: the code, and a part of the message.
    local CASES = {
      { "ends without a message", { "messages", {} }, "internal", "the server has answered without a message",
        of = "unary" },
      { "gives more than one message", { "messages", { "", "" } }, "internal", "more than one message", of = "unary" },
      { "ends without a status", { "no_trailers", "" }, "internal", "the answer has no status", watch = SHORT },
      { "ends with other lines than a status", { "trailers", "", { x = "y" } }, "internal",
        "the answer has no status" },
      { "gives a status that does not exist", { "status", 99, "what?" }, "unknown", "what?" },
      { "gives a status that is not a number", { "trailers", "", { ["grpc-status"] = "ok" } }, "unknown", "unknown" },
      { "fails with words of its own", { "status", 13, "nobody\r\n\0knows" }, "internal", "nobody\r\n\0knows" },
      { "fails without words", { "status", 10 }, "aborted", "aborted" },
      { "ends in the middle of a message", { "cut_short", "abc", 1 }, "internal", "unexpected EOF" },
      { "ends in the middle of a prefix", { "cut_short", "abc", 5 }, "internal", "unexpected EOF" },
      { "compresses", { "compressed", "abc" }, "internal", "compressed flag set" },
      { "compresses, and says how", { "compressed", "abc", "gzip" }, "internal", "compressed flag set" },
      { "gives a page", { "html", 200 }, "unknown", 'HTTP status 200, content-type "text/html"' },
      { "finds nothing", { "html", 404 }, "unimplemented", 'HTTP status 404, content-type "text/html"',
        watch = PATIENT },
      { "forbids", { "html", 403 }, "permission_denied", "HTTP status 403", watch = PATIENT },
      { "gives another type", { "headers", { ["content-type"] = "text/plain" }, "" }, "unknown", "text/plain" },
      { "gives no type", { "headers", { ["content-type"] = false }, "" }, "unknown", 'content-type ""' },
      { "gives no HTTP status", { "headers", { [":status"] = false }, "" }, "unknown", "HTTP status 0" },
      { "gives lines in upper case", { "headers", { Upper = "x" }, "" }, "internal",
        "headers of the answer are malformed" },
      { "gives 100 KB of headers", { "large_headers", 100000, false, "" }, "resource_exhausted",
        "headers of the answer are too large", watch = SHORT },
      { "announces 2 GiB", { "endless" }, "answer_too_large", "larger than max_message",
        watch = PATIENT },
      { "resets, without an error", { "reset", "no_error" }, "internal", "the answer has no status" },
      { "resets, out of order", { "reset", "internal_error" }, "internal", "reset the call: INTERNAL_ERROR",
        watch = SHORT },
      { "resets, for too much", { "reset", "enhance_your_calm" }, "resource_exhausted", "ENHANCE_YOUR_CALM",
        watch = SHORT },
      { "resets, by another code", { "reset", 12345 }, "internal", "the server has reset the call" },
      { "cancels", { "reset", "cancel" }, "cancelled", "the server has reset the call: CANCEL", watch = SHORT,
        initial = "unavailable" },
    }

    for _, case in ipairs(CASES) do
      it(case[1], function()
        local client = face(case[2], { timeout = PATIENT })
        for name, ask in pairs(ASKING) do
          if not (case.of == "unary" and name == "stream") then
            local timeout = case.initial and SHORT or PATIENT
            expect_error(name == "initial" and case.initial or case[3], case[4], ask(client, timeout))
          end
        end
        if case.watch then
          expect_error(case.initial or case[3], case[4], client:watch("a", { timeout = case.watch }))
        end
        assert.equal(1, #peer.connections)
        expect_recovery(client)
      end)
    end

    it("sends an undecodable message", function()
      local client = face({ "reply", "\255\255" }, { timeout = PATIENT })
      for name, ask in pairs(ASKING) do
        if name ~= "call" and name ~= "stream" then
          expect_error("malformed", "the server's answer is malformed", ask(client, PATIENT))
        end
      end
      expect_error("malformed", "the server's answer is malformed", watch(client, PATIENT))
      expect_error("malformed", "the server's answer is malformed", client:call(RANGE, {}))
      assert.is_nil(select(2, client:call(RANGE, {})).maybe_done)
      assert.is_true(select(2, client:call(PUT, {})).maybe_done)
      assert.is_true(select(2, client:put("a", "b")).maybe_done)
      assert.equal("\255\255", client:call("/spec.Some/Call", ""))
      local stream = assert(client:stream(KEEPALIVE))
      assert(stream:send {})
      expect_error("malformed", "the server's answer is malformed", stream:receive())
      stream:close()
      expect_recovery(client)
    end)

    it("answers another request", function()
      local client = face({ "status", 12 }, { timeout = PATIENT })
      peer:behave {
        [RANGE] = { "reply", { header = HEADER, kvs = { KV, KV } } },
        [TXN] = { "reply", { header = HEADER, succeeded = true } },
        [DELETE] = { "reply", { header = HEADER, prev_kvs = { {} } } },
        [COMPACT] = { "reply", {} },
        [GRANT] = { "reply", {} },
      }
      for _, name in ipairs { "get", "txn", "delete" } do
        expect_error("malformed", "the server's answer is malformed", ASKING[name](client))
      end
      assert(ASKING.compact(client))
      assert(ASKING.lease(client))
      expect_recovery(client)
    end)

    it("never ends its pages", function()
      local client = face({ "status", 12 }, { timeout = PATIENT })
      peer:behave { [WATCH] = GOOD[WATCH] }
      local function pages()
        local n = 0
        local ok, err = pcall(function()
          for _ in client:each("a", { prefix = true, page = 2 }) do
            n = n + 1
            assert(n < 100)
          end
        end)
        assert.is_false(ok)
        return nil, err
      end
      for _, kvs in ipairs { {}, { KV } } do
        peer:behave { [RANGE] = { "reply", { header = HEADER, kvs = kvs, count = 3, more = true } } }
        expect_error("malformed", "the server's answer is malformed", pages())
        expect_error("malformed", "the server's answer is malformed", (function()
          local one, err = client:watch("a", { prefix = true, initial = true })
          if not one then return nil, err end
          assert.equal("a", one:next().key)
          return one:next()
        end)())
      end
      expect_recovery(client)
    end)

    it("sends an answer above the limit", function()
      local client = face({ "reply", ("x"):rep(100001) }, { timeout = PATIENT, max_message = 100000 })
      for _, ask in pairs(ASKING) do
        expect_error("answer_too_large", "larger than max_message", ask(client, PATIENT))
      end
      expect_error("answer_too_large", "larger than max_message", watch(client, PATIENT))
      peer:behave { ["*"] = { "reply", ("x"):rep(100000) } }
      assert.equal(100000, #client:call("/spec.Some/Call", ""))
      expect_recovery(client)
    end)

    it("sends an unexpected answer, which is ignored", function()
      local client = face({ "sequence", { "flood", "informational", 5 }, { "reply", "a" } }, { timeout = PATIENT })
      assert.equal("a", client:call("/spec.Some/Call", ""))
      expect_recovery(client)
    end)
  end)

  -- }======

  -- {====== Time ======

  describe("with a slow server", function()
    it("does not answer: the deadline holds", function()
      local client = face { "silent" }
      local asking = { watch }
      for name, ask in pairs(ASKING) do
        if name ~= "stream" then table.insert(asking, ask) end
      end
      expect_errors("deadline_exceeded", "context deadline exceeded", client, asking)
      local stream = assert(client:stream("/spec.Some/Stream", { timeout = SHORT }))
      expect_error("deadline_exceeded", "context deadline exceeded", stream:receive())
      stream = assert(client:stream("/spec.Some/Stream"))
      expect_error("timeout", "timed out", stream:receive(0))
      stream:close()
      expect_recovery(client)
      assert.equal(1, #peer.connections)
      for _, call in ipairs(peer.calls) do assert(call.path == WATCH or call.has_ended or call.reset, call.path) end
    end)

    it("answers byte by byte, without end", function()
      local client = face { "endless", 1000000 }
      expect_errors("deadline_exceeded", "context deadline exceeded", client,
        { ASKING.get, ASKING.put, ASKING.initial, watch })
      expect_recovery(client)
    end)

    it("takes one call at a time: others wait, up to their deadline", function()
      peer = imposter.start { connection = { "settings", { max_concurrent_streams = 1 } }, [RANGE] = GOOD[RANGE],
        [PUT] = "stream:wait('go') stream:receive() stream:message {} stream:status(0)" }
      local client = connect(peer.url, { timeout = PATIENT })
      keywatch.run(function()
        local put = keywatch.spawn(function() return client:put("a", "b") end)
        peer:await("#calls == 1")
        expect_error("deadline_exceeded", "context deadline exceeded", client:get("a", { timeout = SHORT }))
        local get = keywatch.spawn(function() return client:get("a") end)
        assert.equal(1, #peer.calls)
        peer:signal "go"
        assert(put:join())
        assert.equal("v", select(2, get:join()).value)
      end)
      assert.same({ PUT, RANGE }, { peer.calls[1].path, peer.calls[2].path })
    end)

    it("takes no call: cancelled calls are forgotten", function()
      peer = imposter.start { connection = { "settings", { max_concurrent_streams = 0 } } }
      local client = connect(peer.url)
      reach(client)
      expect_errors("deadline_exceeded", "context deadline exceeded", client, { ASKING.get, ASKING.put, watch })
      local value, before = ("x"):rep(MIB), resident.now()
      for _ = 1, 50 do
        expect_error("deadline_exceeded", "context deadline exceeded", client:put("a", value, { timeout = 0.001 }))
      end
      if resident.is_reliable then assert.is_true(resident.now() - before < 20 * MIB) end
      assert.equal(0, #peer.calls)
      peer:behave(GOOD)
      peer.conns[1]:settings { max_concurrent_streams = 10 }
      assert.equal("v", assert(client:get("a", { timeout = PATIENT })).value)
      assert.equal(1, #peer.connections)
      assert.same({}, peer:calls_of(PUT))
    end)

    it("takes no call, of very many: its connection is closed", function()
      peer = imposter.start { connection = { "settings", { max_concurrent_streams = 0 } } }
      local client = connect(peer.url, { timeout = 10 * SHORT }) -- all must wait at the same time
      local asking = {}
      for i = 1, 1100 do asking[i] = ASKING.put end
      keywatch.run(function()
        for i, ask in ipairs(asking) do asking[i] = keywatch.spawn(ask, client) end
        for _, task in ipairs(asking) do
          local _, value, err = task:join()
          assert.is_nil(value)
          assert.truthy(err.code == "deadline_exceeded" or err.code == "unavailable")
        end
      end)
      assert.equal(0, #peer.calls)
      expect_recovery(client)
      assert.is_true(#peer.connections > 1)
    end)

    it("opens no window: requests wait, up to their deadline", function()
      peer = imposter.start { connection = { "settings", { initial_window_size = 0 } }, ["*"] = { "messages", {} } }
      local client = connect(peer.url)
      reach(client)
      expect_errors("deadline_exceeded", "context deadline exceeded", client, { ASKING.put, watch })
      local stream = assert(client:stream("/spec.Some/Stream", { timeout = SHORT }))
      expect_error("deadline_exceeded", "context deadline exceeded", stream:send(("x"):rep(MIB)))
      assert.is_nil(peer.connections[1].frames.data)
      peer.conns[1]:settings { initial_window_size = 65535 }
      expect_recovery(client)
      assert.equal(1, #peer.connections)
    end)
  end)

  -- }======

  -- {====== Connections ======

  describe("with broken connections", function()
    local good

    --- A client of two servers, of which the first does this to its connections; and a server alone that does so.
    local function expect_next(said, words)
      local is_mute = words:find("does not answer", 1, true)
      peer, good = imposter.start { connection = said }, imposter.start(GOOD)
      local client = connect({ peer.url, good.url },
        { timeout = PATIENT, connect_timeout = is_mute and SHORT or PATIENT })
      assert.equal("v", assert(client:get("a")).value)
      assert(client:put("a", "b"))
      if not is_mute then assert.equal(1, #good.connections) end
      local alone = connect(peer.url, { timeout = SHORT, connect_timeout = is_mute and SHORT / 3 or PATIENT })
      expect_errors("unavailable", peer.url .. ": " .. words, alone, { ASKING.get, ASKING.put, watch })
      expect_recovery(alone)
    end

    it("speaks HTTP/1.1", function() expect_next({ "http1" }, "it does not speak HTTP/2, and answers in HTTP/1.1") end)

    it("speaks an unknown protocol", function()
      for _, text in ipairs { "SSH-2.0-imposter\r\n", ("\255"):rep(100), "\21\3\1\0\2\2\70" } do
        expect_next({ "says", text }, text:sub(1, 1) ~= "\21" and "it does not speak HTTP/2" or "it does not answer")
      end
    end)

    it("never sends SETTINGS", function() expect_next({ "mute" }, "it does not answer in time") end)
    it("closes at once", function() expect_next({ "close" }, "") end)
    it("resets at once", function() expect_next({ "close", "reset" }, "connection reset by peer") end)

    it("sends GOAWAY at once", function()
      expect_next({ "sequence", { "settings", {} }, { "goaway", "internal_error", 0, "no\nway" } },
        "the server has sent GOAWAY: INTERNAL_ERROR, no?way")
    end)

    it("closes after each request: another server is used", function()
      for _, said in ipairs { { "close" }, { "close", "reset" }, { "flood", "push", 1 },
        { "large_headers", MIB, false, "" }, { "large_headers", MIB, true, "" } } do
        peer, good = imposter.start { ["*"] = said }, imposter.start(GOOD)
        local client = connect({ peer.url, good.url }, { timeout = PATIENT })
        assert.equal("v", assert(client:get("a")).value)
        local one = assert(connect({ peer.url, good.url }, { timeout = PATIENT }):watch("a"))
        assert.equal("v", assert(one:next(PATIENT)).value)
      end
    end)

    it("closes during a write: the write is in doubt, and is not repeated", function()
      peer, good = imposter.start { [PUT] = "stream:receive() conn:close()" }, imposter.start(GOOD)
      local client = connect({ peer.url, good.url }, { timeout = PATIENT })
      expect_error("unavailable", "the connection has ended", client:put("a", "b"))
      assert.equal(1, #peer.calls)
      assert.equal(0, #good.calls)
      assert(client:put("a", "c"))
      assert.equal("c", good.calls[1].messages[1].value)
    end)

    it("refuses a write: another server gets the write, once", function()
      for _, said in ipairs { { "reset", "refused_stream" }, { "goaway", "no_error", "below" },
        { "sequence", { "goaway", "enhance_your_calm", "below", "too_many_pings" }, { "close" } } } do
        peer, good = imposter.start { ["*"] = said }, imposter.start(GOOD)
        local client = connect({ peer.url, good.url }, { timeout = PATIENT })
        assert(client:put("a", "b"))
        assert.equal(1, #good.calls)
        assert.equal(0, #good.calls - #good.calls[1].messages)
        local one = assert(connect({ peer.url, good.url }, { timeout = PATIENT }):watch("a"))
        assert.equal("v", assert(one:next(PATIENT)).value)
      end
    end)

    it("refuses all connections: the client reports that, and connects again later", function()
      local client = face { "reset", "refused_stream" }
      expect_errors("unavailable", "REFUSED_STREAM", client, { ASKING.get, ASKING.put, ASKING.initial, watch })
      expect_recovery(client)
    end)

    it("is unavailable: reads are repeated, writes are not", function()
      local client = face({ "in_turn", { "status", 14, "etcdserver: no leader" }, GOOD[RANGE] }, { timeout = PATIENT })
      assert.equal("v", assert(client:get("a")).value)
      peer:behave { [PUT] = { "in_turn", { "status", 14, "etcdserver: no leader" }, GOOD[PUT] } }
      expect_error("unavailable", "etcdserver: no leader", client:put("a", "b"))
      assert(client:put("a", "b"))
    end)

    it("drains: calls under way end, new calls use another server", function()
      peer = imposter.start {
        [PUT] = "stream:receive() conn:goaway() stream:wait('go') stream:message {} stream:status(0)",
        [RANGE] = GOOD[RANGE],
      }
      local client = connect(peer.url, { timeout = PATIENT })
      keywatch.run(function()
        local put = keywatch.spawn(function() return client:put("a", "b") end)
        peer:await("#calls == 1 and #calls[1].messages == 1")
        keywatch.sleep(0.01)
        assert.equal("v", assert(client:get("a")).value)
        peer:signal "go"
        assert(put:join())
      end)
      assert.same({ 1, 2 }, { peer.calls[1].connection, peer.calls[2].connection })
    end)

    it("complains of pings: the client sends fewer", function()
      peer = imposter.start {
        [PUT] = "conn:wait(function() return conn.record.pings > 0 end) \z
          conn:goaway('enhance_your_calm', stream.id, 'too_many_pings') conn:close()",
      }
      local client = connect(peer.url, { timeout = PATIENT, keepalive = 0.01 })
      for i = 1, 3 do
        expect_error("unavailable", "ENHANCE_YOUR_CALM, too_many_pings", client:put("a", "b"))
        assert.equal(0.01 * 2 ^ i, client.transport.dialer.options.keepalive)
      end
      expect_recovery(client)
    end)

    it("does not answer pings: the connection is closed", function()
      peer, good = imposter.start { connection = { "no_pongs" }, [RANGE] = { "silent" } }, imposter.start(GOOD)
      local client = connect({ peer.url, good.url }, { timeout = PATIENT, keepalive = 0.01, keepalive_timeout = 0.01 })
      assert.equal("v", assert(client:get("a")).value)
      client = connect(peer.url, { timeout = PATIENT, keepalive = 0.01, keepalive_timeout = 0.01 })
      peer:behave { ["*"] = { "silent" } }
      expect_error("unavailable", "the server does not answer a PING", client:put("a", "b"))
      peer:behave(GOOD)
      expect_recovery(client)
    end)
  end)

  -- }======

  -- {====== Floods ======

  describe("with a flood #slow", function()
    -- A connection's own output is bounded by 1,000 frames, and a client by what it reads at once.
    local BOUND = 6 * MIB

    local function expect_bounded(fn)
      collectgarbage()
      collectgarbage()
      local heap = collectgarbage("count")
      resident.reset_peak()
      local before = resident.now()
      fn()
      if resident.is_reliable then
        local taken = resident.peak() - before
        assert.is_true(taken < BOUND, ("%d bytes were taken"):format(taken))
      end
      collectgarbage()
      collectgarbage()
      assert.is_true(collectgarbage("count") - heap < 4096) -- an imposter keeps a MiB of a connection
    end

    for _, kind in ipairs { "ping", "pong", "settings", "window", "stream_window", "data", "push", "informational",
      "continuation", "priority", "unknown" } do
      it("of frames: " .. kind, function()
        local client = face { "flood", kind }
        peer:slow(0.01) -- in which 250 KB come
        expect_bounded(function()
          keywatch.run(function()
            local get, one = keywatch.spawn(ASKING.get, client), keywatch.spawn(watch, client)
            for _, task in ipairs { get, one } do
              local _, value, err = task:join()
              assert.is_nil(value)
              assert.truthy(err.code == "unavailable" or err.code == "deadline_exceeded", tostring(err))
            end
          end)
        end)
        assert(peer.conns[1].n_said > 9000) -- a thousand frames
        expect_recovery(client)
      end)
    end

    it("of messages that are not received", function()
      local client = face [[
        stream:receive()
        while not stream.record.reset do
          stream:message(("x"):rep(100000))
          conn:drain()
        end
      ]]
      expect_bounded(function()
        local stream = assert(client:stream("/spec.Some/Stream"))
        for _ = 1, 3 do assert(stream:send("")) end
        keywatch.sleep(SHORT)
        assert.equal(100000, #assert(stream:receive(PATIENT)))
        stream:close()
      end)
      expect_recovery(client)
    end)
  end)

  -- }======
end)
