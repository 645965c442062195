--- The imposter that specs of clients talk to: what it says, as the core's client and others hear it.

local core = require "keywatch.core"

local curl = require "spec.support.curl"
local etcdctl = require "spec.support.etcdctl"
local frame = require "spec.support.frame"
local imposter = require "spec.support.imposter"
local process = require "spec.support.process"
local raw = require "spec.support.raw"
local rpc = require "spec.support.rpc"

local RANGE, PUT, WATCH = raw.RANGE, raw.PUT, raw.WATCH

describe("an imposter #slow", function()
  local peer, clients

  before_each(function()
    peer, clients = imposter.start {}, {}
  end)

  after_each(function()
    for _, client in ipairs(clients) do client:close() end
    process.end_all()
  end)

  local function connect()
    local client = rpc.connect(peer.url)
    table.insert(clients, client)
    return client
  end

  --- Turns a client while the imposter is asked for something.
  local function turning(client)
    return function() client:pump() end
  end

  --- What a call with this behaviour gives: messages, status and text.
  local function outcome(said)
    peer:behave { [RANGE] = said }
    local client = connect()
    local call = client:begin_message(RANGE, { key = "a" })
    client:finish(call)
    return call.messages, call.status, call.text
  end

  local function raw_client()
    local client = raw.connect(peer.port)
    table.insert(clients, client)
    return client
  end

  describe("with parts for calls", function()
    it("replies with a table or with bytes", function()
      local messages, status = outcome { "reply", { count = 7, kvs = { { key = "a", value = "\0\n\r\"" } } } }
      assert.equal(0, status)
      assert.same({ count = 7, kvs = { { key = "a", value = "\0\n\r\"" } } }, core.decode("RangeResponse", messages[1]))
      assert.same({ "\255\255" }, (outcome { "reply", "\255\255" }))
    end)

    it("replies with any number of messages", function()
      assert.same({ "a", "b" }, (outcome { "messages", { "a", "b" } }))
      local messages, status = outcome { "messages", {} }
      assert.same({}, messages)
      assert.equal(0, status)
    end)

    it("gives a status, with a text of any bytes", function()
      local _, status, text = outcome { "status", 5, "100% n\195\164\n" }
      assert.equal(5, status)
      assert.equal("100% n\195\164\n", text)
      local messages
      messages, status, text = outcome { "messages", { "a" }, 14, "gone" }
      assert.same({ { "a" }, 14, "gone" }, { messages, status, text })
    end)

    it("waits for the windows of a client, as it should", function()
      local large = ("0123456789abcdef"):rep(2 ^ 18)
      local messages, status = outcome { "reply", large }
      assert.equal(0, status)
      assert.is_true(messages[1] == large)
    end)

    it("ends without a status", function()
      for _, said in ipairs { { "trailers", "a", { ["x-other"] = "1" } }, { "no_trailers", "a" } } do
        local messages, status = outcome(said)
        assert.same({ "a" }, messages)
        assert.is_true(status > 0)
      end
    end)

    it("ends in the middle of a message, compresses, and says something that is not gRPC", function()
      for _, said in ipairs { { "cut_short", "abc", 1 }, { "compressed", "abc" }, { "compressed", "abc", "gzip" },
        { "html", 404 }, { "html", 502 }, { "headers", { ["content-type"] = "text/plain" }, "a" } } do
        local _, status = outcome(said)
        local answer = curl.post(peer, RANGE, frame.range("a"))
        assert.equal(0, answer.exit)
        if said[1] == "html" then
          assert.is_true(status > 0)
          assert.equal(tostring(said[2]), answer.status)
          assert.truthy(answer.body:find("<html>", 1, true))
        elseif said[1] == "headers" then
          assert.equal("text/plain", answer.headers["content-type"])
        else
          assert.is_true(status > 0)
          assert.equal("0", answer.trailers["grpc-status"])
          assert.equal(said[3] == "gzip" and "gzip" or nil, answer.headers["grpc-encoding"])
          assert.equal(said[1] == "compressed" and "\1" or "\0", answer.body:sub(1, 1))
        end
      end
    end)

    it("sends large headers", function()
      peer:behave { [RANGE] = { "large_headers", 2 ^ 20, false, "a" } }
      local client = raw_client()
      local id = client:start(RANGE, frame.range("a"))
      client:await(function() return client:has_ended_stream(id) end, "the answer")
      assert.equal(64, client.counts[raw.CONTINUATION])
      peer:behave { [RANGE] = { "large_headers", 2 ^ 20, true } }
      assert.truthy(select(2, client:call(RANGE, frame.range("a"))))
      assert.equal(128, client.counts[raw.CONTINUATION])
    end)

    it("resets a call with every code, before a message or after", function()
      for code = 0, 13 do
        peer:behave { [RANGE] = { "reset", code, "a" } }
        local client = raw_client()
        local id = client:start(RANGE, frame.range("a"))
        client:await(function() return client:has_ended_stream(id) end, "the end")
        assert.equal(code, client.streams[id].reset)
        assert.equal(frame.new("a"), client:body(id))
      end
      local _, status = outcome { "reset", "refused_stream" }
      assert.equal(14, status)
    end)

    it("says farewell: in order, below a call, or in anger", function()
      peer:behave {
        [RANGE] = { "sequence", { "goaway", "no_error" }, { "reply", "a" } },
        [PUT] = { "goaway", "no_error", "below" },
        ["*"] = { "sequence", { "goaway", "enhance_your_calm", "this", "too_many_pings" }, { "close" } },
      }
      local client = raw_client()
      assert.equal("a", client:call(RANGE, frame.range("a")))
      assert.same({ code = 0, text = "" }, client.goaway)
      client:start("/other/Call", "")
      client:await_end()
      assert.same({ code = raw.ENHANCE_YOUR_CALM, text = "too_many_pings" }, client.goaway)
      client = connect()
      client:finish(client:begin_message(PUT, {}))
      assert.is_nil(peer:look "calls[3].reset")
    end)

    it("never answers, and never comes to an end", function()
      peer:behave { [RANGE] = { "silent" }, [PUT] = { "endless" } }
      local client = raw_client()
      local silent, endless = client:start(RANGE, frame.range("a")), client:start(PUT, frame.put("a", "b"))
      client:await(function()
        return client.streams[endless] and client.streams[endless].size > 7
      end, "some bytes")
      assert.equal("\0\127\255\255\255xx", client:body(endless):sub(1, 7))
      assert.is_nil(client.streams[silent])
      client:send(raw.reset(silent, raw.CANCEL) .. raw.reset(endless, raw.CANCEL))
      peer:await("calls[1].reset == 8 and calls[2].reset == 8")
    end)

    it("floods", function()
      for kind, number in pairs { ping = raw.PING, pong = raw.PING, settings = raw.SETTINGS, data = raw.DATA,
        window = raw.WINDOW_UPDATE, stream_window = raw.WINDOW_UPDATE, push = raw.PUSH_PROMISE, priority = raw.PRIORITY,
        informational = raw.HEADERS, unknown = 0xbb } do
        peer:behave { [RANGE] = { "sequence", { "flood", kind, 2500 }, { "reply", "a" } } }
        local client = raw_client()
        local id = client:start(RANGE, frame.range("a"))
        client:await(function() return client:has_ended_stream(id) end, "the answer")
        assert.is_true(client.counts[number] >= 2500, kind)
        client:close()
      end
      peer:behave { [RANGE] = { "flood", "ping" }, [PUT] = { "flood", "continuation" } }
      for _, path in ipairs { RANGE, PUT } do
        local client = raw_client()
        client:start(path, frame.range("a"))
        local kind = path == RANGE and raw.PING or raw.CONTINUATION
        client:await(function() return (client.counts[kind] or 0) > 10000 end, "a flood")
        client:close()
      end
    end)

    it("takes turns", function()
      assert.equal(14, (select(2, outcome { "in_turn", { "status", 14 }, { "reply", "a" }, { "reply", "b" } })))
      local client = connect()
      assert.equal("a", client:unary(RANGE, ""))
      assert.equal("b", client:unary(RANGE, ""))
      assert.equal("b", client:unary(RANGE, ""))
    end)

    it("knows no other methods", function()
      local _, status, text = connect():unary("/spec/Other", "")
      assert.equal(12, status)
      assert.equal("unknown method /spec/Other", text)
    end)

    it("does what a text says", function()
      local messages, status, text = outcome [[
        local request = stream:receive()
        stream:message(core.encode("RangeResponse", { kvs = { { key = request.key, value = stream.path } } }))
        stream:trailers { ["grpc-status"] = 9, ["grpc-message"] = "%zz" }
      ]]
      assert.same({ kvs = { { key = "a", value = RANGE } } }, core.decode("RangeResponse", messages[1]))
      assert.same({ 9, "%zz" }, { status, text })
    end)

    it("says which text it cannot do, and fails if it cannot go on", function()
      local ok, err = pcall(peer.behave, peer, { [RANGE] = "stream:" })
      assert.is_false(ok)
      assert.truthy(err:find("expected near", 1, true))
      peer:behave { [RANGE] = "error('out of ideas')" }
      raw_client():start(RANGE, frame.range("a"))
      ok, err = pcall(peer.await, peer, "calls[1].reset")
      assert.is_false(ok)
      assert.truthy(err:find("out of ideas", 1, true))
    end)
  end)

  describe("with parts for connections", function()
    --- Waits for the end of a connection with this behaviour, and returns its client.
    local function ended(said)
      peer:behave { connection = said }
      local client = raw_client()
      client:await_end()
      return client
    end

    --- A client that knows the settings of the server, and has begun two calls.
    local function asking(settings)
      peer:behave { connection = { "settings", settings }, [RANGE] = { "silent" } }
      local client = connect()
      client:pump()
      peer:await("connections[1].frames.settings == 2", turning(client)) -- one of them acknowledges
      for _ = 1, 2 do client:begin_message(RANGE, { key = "a" }) end
      client:settle()
      peer:run("conns[1]:ping()")
      peer:await("connections[1].pongs == 1", turning(client))
    end

    it("takes no stream, or one", function()
      asking { max_concurrent_streams = 0 }
      assert.equal(0, peer:look "#calls")
      peer:close()
      peer = imposter.start {}
      asking { max_concurrent_streams = 1 }
      assert.equal(1, peer:look "#calls")
    end)

    it("gives no window", function()
      asking { initial_window_size = 0 }
      assert.equal(2, peer:look "#calls")
      assert.is_nil(peer:look "connections[1].frames.data")
    end)

    it("says nothing at all, and hears everything", function()
      peer:behave { connection = { "mute" } }
      local client = raw_client()
      client:start(RANGE, frame.range("a"))
      client:send(raw.frame(raw.PING, 0, 0, "12345678"))
      peer:await("connections[1].pings == 1 and #calls[1].messages == 1")
      assert.same({}, client.counts)
    end)

    it("leaves PINGs without an answer", function()
      peer:behave { connection = { "no_pongs" }, [RANGE] = { "reply", "a" } }
      local client = raw_client()
      client:send(raw.frame(raw.PING, 0, 0, "12345678"))
      assert.equal("a", client:call(RANGE, frame.range("a")))
      assert.is_nil(client.counts[raw.PING])
      assert.equal(1, peer:look "connections[1].pings")
    end)

    it("speaks something that is not HTTP/2", function()
      peer:behave { connection = { "says", "SSH-2.0-imposter\r\n" } }
      local client = raw.connect(peer.port, { text = true })
      table.insert(clients, client)
      client:await(function() return client.rest ~= "" end, "some text")
      assert.equal("SSH-2.0-imposter\r\n", client.rest)
    end)

    -- Over TLS HTTP/2 is agreed on beforehand, or there is no connection.
    it("speaks HTTP/1.1 #plain", function()
      peer:behave { connection = { "http1" } }
      local page = process.run { "curl", "-sS", "-w", "%{http_code}", peer.url }
      assert.equal("<html>no</html>400", page:stdout())
      assert.truthy(peer:look("connections[1].text"):find("^GET / HTTP/1.1\r\n"))
    end)

    it("hangs up", function()
      assert.is_nil(ended({ "close" }).failure)
      assert.equal("ECONNRESET", ended({ "close", "reset" }).failure)
      local client = ended { "sequence", { "settings", {} }, { "goaway", "internal_error", 0, "no" }, { "close" } }
      assert.same({ code = raw.INTERNAL_ERROR, text = "no" }, client.goaway)
      assert.equal(3, #peer:record().connections)
    end)

    it("does to connections what a text says, whenever it is told to", function()
      local client = raw_client()
      client:await(function() return client.counts[raw.SETTINGS] == 2 end, "settings")
      peer:run("conns[1]:ping() conns[1]:goaway()")
      client:await(function() return client.goaway end, "a farewell")
      peer:await("connections[1].pongs == 1")
      peer:run("conns[1]:close()")
      client:await_end()
      assert.is_false(peer:record().connections[1].is_open)
    end)
  end)

  it("keeps what it has heard", function()
    peer:behave { [RANGE] = { "silent" } }
    local client = connect()
    local call = client:call(RANGE, { ["x-name"] = "value" })
    client:send(call, core.encode("RangeRequest", { key = "a", limit = 7 }))
    client:send(call, "\255")
    client:pump()
    peer:await("#calls[1].messages == 2", turning(client))
    assert.is_false(peer:look "calls[1].has_ended")
    client:cancel(call)
    assert.equal(8, peer:await("calls[1].reset", turning(client)))
    client:finish(client:begin_message(PUT, { key = "b", value = "c" }))
    client:hang_up()
    peer:await("connections[1].has_ended")

    local record = peer:record()
    assert.equal(2, #record.calls)
    local first, second = record.calls[1], record.calls[2]
    assert.same({ { key = "a", limit = 7 }, "\255" }, first.messages)
    assert.equal("value", first.headers["x-name"])
    assert.equal(RANGE, first.path)
    assert.same({ { key = "b", value = "c" } }, second.messages)
    assert.same({ 1, 3, true }, { second.connection, second.id, second.has_ended })
    assert.equal(1, #record.connections)
    assert.equal(1, record.connections[1].frames.reset)
  end)

  describe("that is watched", function()
    local function header(revision, more)
      local all = { cluster_id = 1, member_id = 2, revision = revision, raft_term = 1 }
      for k, v in pairs(more or {}) do all[k] = v end
      return all
    end

    local function event(key, revision)
      return { kv = { key = key, value = "v", create_revision = revision, mod_revision = revision, version = 1 } }
    end

    --- Begins to watch; what has come is in the call.
    local function watch(client)
      local call = client:call(WATCH)
      client:send(call, core.encode("WatchRequest", { create_request = { key = "a" } }))
      return call
    end

    local function expect_answers(client, call, expected)
      client:wait(function() return #call.messages >= #expected end)
      assert.same(expected, rpc.answers(call, WATCH))
    end

    it("says anything, in order, and waits for the spec in between", function()
      peer:behave { [WATCH] = { "watch", {
        { created = true, watch_id = -1 },
        { watch_id = 99, events = { event("a", 7) }, fragment = true },
        { header = { revision = 3, cluster_id = 5 }, watch_id = 99, events = { event("a", 3) } },
        { wait = "go" },
        { header = false, canceled = true, compact_revision = 9, cancel_reason = "because" },
        { bytes = "\255" },
        { receive = true },
        { status = { 14, "gone" } },
      }, { header = { revision = 8, cluster_id = 1, member_id = 2, raft_term = 1 } } } }
      local client = connect()
      local call = watch(client)
      local expected = {
        { header = header(8), created = true, watch_id = -1 },
        { header = header(8), watch_id = 99, fragment = true, events = { event("a", 7) } },
        { header = header(3, { cluster_id = 5 }), watch_id = 99, events = { event("a", 3) } },
      }
      expect_answers(client, call, expected)
      client:settle()
      assert.equal(3, #call.messages)
      peer:tell("go")
      client:wait(function() return #call.messages == 5 end)
      assert.equal("\255", table.remove(call.messages))
      table.insert(expected, { canceled = true, compact_revision = 9, cancel_reason = "because" })
      expect_answers(client, call, expected)
      client:send(call, core.encode("WatchRequest", { progress_request = {} }))
      assert.equal(14, (client:finish(call)))
      assert.same({ create_request = { key = "a" } }, peer:look "calls[1].messages[1]")
      assert.same({ progress_request = {} }, peer:look "calls[1].messages[2]")
    end)

    it("plays another server to every stream", function()
      peer:behave { [WATCH] = { "in_turn",
        { "watch", { { created = true }, { reset = "internal_error" } } },
        { "watch", { { created = true }, { close = "reset" } } },
        { "script", { { events = { event("a", 2) } }, { created = true } } },
      } }
      local client = connect()
      local call = watch(client)
      assert.equal(13, (client:finish(call)))
      call = watch(client)
      client:wait(function() return call.status or client.socket.failure or client.socket.has_ended end)
      client = connect()
      expect_answers(client, watch(client), { { header = header(1), events = { event("a", 2) } },
        { header = header(1), created = true } })
    end)

    it("is watched by etcdctl", function()
      peer:behave { [WATCH] = { "watch", {
        { created = true, watch_id = 7 },
        { watch_id = 7, events = { event("a", 2), event("a", 3) } },
        { wait = "go" },
        { watch_id = 7, canceled = true, compact_revision = 12 },
      } }, [RANGE] = { "reply", { header = header(5), kvs = { event("a", 4).kv }, count = 1 } },
        [PUT] = { "status", 8, "etcdserver: mvcc: database space exceeded" } }
      local ctl = etcdctl.new(peer)
      assert.equal("a\nv\n", ctl:must { "get", "a" })
      assert.truthy(ctl:fail({ "put", "a", "b" }):find("database space exceeded", 1, true))
      local watching = ctl:start { "watch", "a" }
      watching:expect("PUT\na\nv\nPUT\na\nv\n")
      peer:tell("go")
      watching:expect_error("watch was canceled %(etcdserver: mvcc: required revision has been compacted%)")
      watching:wait()
      assert.equal("a", peer:look("calls[#calls].messages[1].create_request.key"))
    end)
  end)
end)
