--- gRPC over HTTP/2, frame by frame: everything around the messages of a call.

local core = require "keywatch.core"

local h2 = require "spec.support.h2"
local pair = require "spec.support.pair"

local paths = pair.paths
local range_a = core.encode("RangeRequest", { key = "a" })
local put_a = core.encode("PutRequest", { key = "a", value = "1" })
local create_a = h2.message(core.encode("WatchRequest", { create_request = { key = "a" } }))

describe("a server", function()
  local host, raw

  pair.for_each_test(function(one)
    host, raw = one, one:raw()
    host:pump()
  end)

  local function status(id) return { raw.reader:status(id) } end

  --- Says a call, and returns its stream.
  local function call(id, path, message, changes)
    raw:say(h2.call(id, path, message, changes))
    return raw.reader:stream(id)
  end

  describe("begins", function()
    it("with its settings, and acknowledges the client's", function()
      assert.equal(65536, raw.reader.settings[h2.settings_ids.max_concurrent_streams])
      assert.equal(2 ^ 20, raw.reader.settings[h2.settings_ids.initial_window_size])
      assert.equal(65536, raw.reader.settings[h2.settings_ids.max_header_list_size])
      assert.equal(1, raw.reader.acks)
    end)

    it("silently while the client is silent", function()
      local silent = host:raw(false)
      host:pump()
      assert.is_nil(silent.reader.settings)
    end)

    it("and closes a connection with garbage", function()
      for _, junk in ipairs { "\0\0\0\0", "\22\3\1\2\0\1\0\1\252\3\3", h2.MAGIC .. "GET / HTTP/1.1\r\n\r\n",
        h2.MAGIC .. h2.frame("data", 0, 1, "x"), h2.MAGIC .. h2.frame("settings", 0, 1, ""),
        h2.hello() .. h2.frame("headers", 4, 2, ""), h2.hello() .. h2.frame("data", 0, 0, "x"),
        h2.hello() .. h2.frame("headers", 4, 1, "\255\255\255\255\255\255"),
        h2.hello() .. h2.frame("push", 4, 1, h2.pack(2, 4)), h2.hello() .. h2.frame("data", 0, 99, "x"),
        h2.MAGIC .. h2.ping(), h2.MAGIC .. h2.call(1, paths.Range, range_a), h2.MAGIC:rep(2), ("\0"):rep(2 ^ 20),
        h2.hello() .. h2.frame("window", 0, 0, h2.pack(0, 4)), h2.hello() .. h2.frame("ping", 0, 0, "short"),
        h2.hello() .. h2.pack(2 ^ 24 - 1, 3) .. "\0\0" .. h2.pack(1, 4) } do
        local one = host:raw(junk)
        host:pump()
        assert.is_true(one:is_done(), junk)
      end
      for i = 1, 4 do -- later, "PRI " is the method of an HTTP/1.1 request
        local one = host:raw(h2.MAGIC:sub(1, i - 1) .. "?" .. h2.MAGIC:sub(i + 1))
        host:pump()
        assert.is_true(one:is_done(), i)
      end
    end)

    it("and closes a silent connection", function()
      local silent = host:raw(false)
      local due = silent.peer:deadline()
      assert.equal(host.now + 120, due)
      silent.peer:step(due - 1)
      assert.is_false(silent:is_done())
      silent.peer:step(due)
      assert.is_true(silent:is_done())
    end)

    it("and closes a connection with an incomplete preface", function()
      local slow = host:raw(h2.MAGIC)
      host:pump()
      slow.peer:step(host.now + 119)
      assert.is_false(slow:is_done())
      slow.peer:step(host.now + 120)
      assert.is_true(slow:is_done())
    end)
  end)

  describe("answers", function()
    it("with headers, messages and trailers", function()
      local stream = call(1, paths.Range, range_a)
      assert.same({ [":status"] = "200", ["content-type"] = "application/grpc" }, stream.headers)
      assert.same({ ["grpc-status"] = "0" }, stream.trailers)
      assert.equal(1, #raw.reader:messages(1))
      assert.is_nil(stream.reset)
    end)

    it("with only trailers if there is no message", function()
      local stream = call(1, paths.Range, "")
      assert.is_true(stream.is_trailers_only)
      assert.same({ [":status"] = "200", ["content-type"] = "application/grpc", ["grpc-status"] = "3",
        ["grpc-message"] = "etcdserver: key is not provided" }, stream.headers)
    end)

    it("in the content type of the request", function()
      assert.equal("application/grpc+proto", call(1, paths.Range, range_a,
        { ["content-type"] = "application/grpc+proto" }).headers["content-type"])
      assert.equal("application/grpc", call(3, paths.Range, range_a,
        { ["content-type"] = "application/grpc;charset=utf-8" }).headers["content-type"])
    end)

    it("to a client without the header te", function()
      call(1, paths.Range, range_a, { te = false })
      assert.same({ 0 }, status(1))
    end)

    it("with a percent-encoded text", function()
      call(1, "/100%/\195\164", "")
      assert.same({ 12, "unknown service 100%25" }, status(1))
      call(3, "/etcdserverpb.KV/\195\164%", "")
      assert.same({ 12, "unknown method %C3%A4%25 for service etcdserverpb.KV" }, status(3))
    end)

    it("for an unknown method with UNIMPLEMENTED", function()
      call(1, "/etcdserverpb.KV/Nope", "")
      call(3, "/etcdserverpb.Nope/Range", "")
      call(5, "/Range", "")
      call(7, "/", "")
      assert.same({ 12, "unknown method Nope for service etcdserverpb.KV" }, status(1))
      assert.same({ 12, "unknown service etcdserverpb.Nope" }, status(3))
      assert.same({ 12, 'malformed method name: "/Range"' }, status(5))
      assert.same({ 12, 'malformed method name: "/"' }, status(7))
      call(9, "/" .. ("x"):rep(3000) .. "/" .. ("y"):rep(3000), "")
      assert.equal(12, status(9)[1])
    end)
  end)

  describe("refuses", function()
    it("a malformed timeout", function()
      for i, timeout in ipairs { "1", "S", "123456789S", "-1S", "1.5S", "1s" } do
        local stream = call(2 * i - 1, paths.Range, range_a, { ["grpc-timeout"] = timeout })
        assert.equal("400", stream.headers[":status"], timeout)
        assert.equal(13, status(2 * i - 1)[1])
      end
    end)

    it("more headers than the limit, and continues", function()
      local many = {}
      for i = 1, 16 do many["x-" .. i] = ("v"):rep(4096) end
      raw:say(h2.request(1, paths.Range, many, { split = 16384 }), h2.data(1, h2.message(range_a), { ends = true }))
      assert.equal("431", raw.reader:stream(1).headers[":status"])
      assert.equal(8, status(1)[1])
      call(3, paths.Range, range_a)
      assert.same({ 0 }, status(3))
    end)

    it("compressed messages", function()
      call(1, paths.Range, range_a, { ["grpc-encoding"] = "gzip" })
      assert.same({ 12, 'grpc: Decompressor is not installed for grpc-encoding "gzip"' }, status(1))
      call(3, paths.Range, range_a, { ["grpc-encoding"] = "identity", ["grpc-accept-encoding"] = "gzip" })
      assert.same({ 0 }, status(3))
      raw:say(h2.request(5, paths.Range), h2.data(5, h2.message(range_a, 1), { ends = true }))
      assert.same({ 13, "grpc: compressed flag set with identity or empty encoding" }, status(5))
    end)

    it("a message that is too large, at its length", function()
      raw:say(h2.request(1, paths.Put), h2.data(1, "\0" .. h2.pack(2097153, 4)))
      assert.same({ 8, "grpc: received message larger than max (2097153 vs. 2097152)" }, status(1))
      assert.equal("no_error", raw.reader:stream(1).reset)
    end)

    it("a unary call without a message, or with two", function()
      raw:say(h2.request(1, paths.Put, nil, { ends = true }))
      assert.equal(13, status(1)[1])
      raw:say(h2.request(3, paths.Put), h2.data(3, "", { ends = true }))
      assert.equal(13, status(3)[1])
      raw:say(h2.request(5, paths.Put), h2.data(5, h2.message(put_a):rep(2), { ends = true }))
      assert.equal(13, status(5)[1])
      raw:say(h2.request(7, paths.Put), h2.data(7, h2.message(put_a)), h2.data(7, h2.message(put_a)))
      assert.equal(13, status(7)[1])
      assert.equal(1, host.store:status().revision)
    end)

    it("a truncated message", function()
      for cut = 1, #h2.message(put_a) - 1 do
        local id = 2 * cut - 1
        raw:say(h2.request(id, paths.Put), h2.data(id, h2.message(put_a):sub(1, cut), { ends = true }))
        assert.equal(13, status(id)[1])
      end
      raw:say(h2.request(99, paths.Watch), h2.data(99, create_a .. create_a:sub(1, 6), { ends = true }))
      assert.same({ 13, "unexpected EOF" }, status(99))
      assert.equal(1, host.store:status().revision)
    end)

    it("a malformed message", function()
      call(1, paths.Put, "\10\99a")
      assert.equal(13, status(1)[1])
      raw:say(h2.request(3, paths.Watch), h2.data(3, h2.message("\10\99a")))
      assert.equal(13, status(3)[1])
      assert.equal("no_error", raw.reader:stream(3).reset)
    end)

    it("headers that HTTP/2 forbids", function()
      for i, changes in ipairs { { connection = "close" }, { ["X-Upper"] = "1" }, { ["a b"] = "1" }, { a = "1\n2" },
        { a = "1\0" }, { upgrade = "h2c" }, { ["transfer-encoding"] = "chunked" } } do
        call(2 * i - 1, paths.Put, put_a, changes)
        assert.equal("protocol_error", raw.reader:stream(2 * i - 1).reset)
      end
      raw:say(h2.headers(21, { { "a", "1" }, { ":method", "POST" }, { ":scheme", "http" }, { ":path", paths.Put } }))
      assert.equal("protocol_error", raw.reader:stream(21).reset)
      call(23, paths.Range, range_a)
      assert.same({ 0 }, status(23))
      assert.equal(1, host.store:status().revision)
    end)

    it("a value with a zero byte or a line break, at any position", function()
      local id = 1
      for length = 7, 17 do
        for place = 1, length do
          local byte = ({ "\0", "\n", "\r" })[place % 3 + 1]
          call(id, paths.Range, range_a, { a = ("\1"):rep(place - 1) .. byte .. ("\255"):rep(length - place) })
          assert.equal("protocol_error", raw.reader:stream(id).reset)
          id = id + 2
        end
      end
      call(id, paths.Range, range_a, { a = "\t\1\11\14 all of these are allowed\127\128\255" })
      assert.same({ 0 }, status(id))
    end)

    it("a request without the required pseudo-headers", function()
      raw:say(h2.headers(1, {}, { ends = true }), h2.headers(3, { { ":method", "POST" } }, { ends = true }),
        h2.request(5, paths.Put, { [":path"] = false }, { ends = true }))
      for id = 1, 5, 2 do
        assert(raw.reader:stream(id).reset == "protocol_error" or (status(id)[1] or 0) > 0, id)
      end
      call(7, paths.Range, range_a)
      assert.same({ 0 }, status(7))
    end)
  end)

  describe("ends a stream", function()
    it("at its deadline", function()
      raw:say(h2.request(1, paths.Watch, { ["grpc-timeout"] = "2500m" }), h2.data(1, create_a))
      assert.equal(host.now + 2.5, raw.peer:deadline())
      raw.peer:step(host.now + 2.499)
      host:pump()
      assert.same({}, status(1))
      raw.peer:step(host.now + 2.5)
      host:pump()
      assert.same({ 4, "context deadline exceeded" }, status(1))
      assert.equal("no_error", raw.reader:stream(1).reset)
    end)

    it("at its deadline before its message has arrived", function()
      raw:say(h2.request(1, paths.Put, { ["grpc-timeout"] = "1m" }), h2.data(1, h2.message(put_a):sub(1, -2)))
      raw.peer:step(host.now + 0.001)
      raw:say(h2.data(1, put_a:sub(-1), { ends = true }))
      assert.same({ 4, "context deadline exceeded" }, status(1))
      assert.equal(1, host.store:status().revision)
    end)

    it("in time, for any unit", function()
      for unit, seconds in pairs { H = 3600, M = 60, S = 1, m = 1e-3, u = 1e-3, n = 1e-3 } do
        local one = host:raw()
        one:say(h2.request(1, paths.Watch, { ["grpc-timeout"] = "1" .. unit }))
        local due = one.peer:deadline()
        assert(math.abs(due - host.now - math.min(seconds, 120)) < 1e-6, unit)
      end
    end)

    it("with NO_ERROR if the client has not half-closed it", function()
      raw:say(h2.request(1, paths.Range), h2.data(1, h2.message(range_a) .. "\0"))
      assert.same({}, status(1))
      raw:say(h2.request(3, "/nope/nope"))
      assert.equal(12, status(3)[1])
      assert.equal("no_error", raw.reader:stream(3).reset)
      raw:say(h2.data(3, "more"), h2.data(3, "", { ends = true }))
      call(5, paths.Range, range_a)
      assert.same({ 0 }, status(5))
      assert.is_false(raw:is_done())
    end)
  end)

  describe("whose client resets a stream", function()
    it("continues, in any state", function()
      local stages = {
        h2.request(1, paths.Put),
        h2.request(1, paths.Put) .. h2.data(1, "\0"),
        h2.request(1, paths.Put) .. h2.data(1, h2.message(put_a):sub(1, -2)),
        h2.request(1, paths.Put) .. h2.data(1, h2.message(put_a)),
        h2.call(1, paths.Put, put_a),
        h2.request(1, paths.Watch),
        h2.request(1, paths.Watch) .. h2.data(1, create_a),
        h2.request(1, paths.Watch) .. h2.data(1, create_a, { ends = true }),
        h2.request(1, paths.LeaseKeepAlive) .. h2.data(1, h2.message("")),
        h2.request(1, "/nope/nope"),
        h2.call(1, "/nope/nope", ""),
        h2.call(1, paths.Compact, core.encode("CompactionRequest", { revision = 1, physical = true })),
      }
      for i, stage in ipairs(stages) do
        for _, is_apart in ipairs { false, true } do
          local one = host:raw()
          host:pump()
          if is_apart then one:say(stage) else one:send(stage) end
          one:say(h2.reset(1))
          host.store:put("a", tostring(i))
          one:say(h2.call(3, paths.Range, range_a))
          assert.equal(0, (one.reader:status(3)), i)
          assert.is_false(one:is_done())
          one:close()
          table.remove(host.ends)
        end
      end
    end)

    it("removes the stream's watchers", function()
      raw:say(h2.request(1, paths.Watch), h2.data(1, create_a))
      host.store:put("a", "1")
      host:pump()
      assert.equal(2, #raw.reader:messages(1))
      raw:say(h2.reset(1))
      host.store:put("a", "2")
      host.server:step(host.now)
      assert.is_false((select(3, raw.peer:state())))
      assert.equal("", raw.peer:pending())
      if core.probe then core.probe.check(host.store) end
    end)
  end)

  describe("that is drained", function()
    it("ends watches so that clients resume, finishes calls, and then the connection", function()
      host.server:mount("/spec/Call")
      raw:say(h2.request(1, paths.Watch), h2.data(1, create_a))
      raw:say(h2.request(3, paths.LeaseKeepAlive))
      raw:say(h2.call(5, "/spec/Call", "what"))
      host.server:drain(5, host.now)
      host:pump()
      assert.same({ 14, "etcdserver: server stopped" }, status(1))
      assert.same({ 14, "etcdserver: server stopped" }, status(3))
      assert.same({ { last = 2 ^ 31 - 1, code = "no_error", text = "" } }, raw.reader.goaways)
      assert.equal(1, #raw.reader.pings)
      raw:say(h2.pong(raw.reader.pings[1]))
      assert.same({ last = 5, code = "no_error", text = "" }, raw.reader.goaways[2])
      assert.is_false(raw:is_done())
      local id = host.server:next_news()
      host.server:send(id, "that")
      host.server:finish(id, 0, "")
      host:pump()
      assert.same({ "that" }, raw.reader:messages(5))
      assert.same({ 0 }, status(5))
      assert.is_true(raw:is_done())
    end)

    it("takes no new connections", function()
      host.server:drain(5, host.now)
      assert.is_nil(host.server:accept(host.now))
    end)

    it("ends idle connections at once", function()
      host.server:drain(5, host.now)
      host:pump()
      assert.is_true(raw:is_done())
      assert.equal("no_error", raw.reader.goaways[1].code)
    end)

    it("ends at once connections that have sent nothing", function()
      local silent = host:raw(false)
      host.server:drain(5, host.now)
      host:pump()
      assert.is_true(silent:is_done())
    end)

    it("closes after the given time", function()
      host.server:mount("/spec/Call")
      raw:say(h2.call(1, "/spec/Call", "what"))
      host.server:drain(5, host.now)
      host:pump()
      assert.is_false(raw:is_done())
      assert.equal(host.now + 5, raw.peer:deadline())
      raw.peer:step(host.now + 5)
      assert.is_true(raw:is_done())
    end)

    it("serves calls that come before the client has seen the GOAWAY", function()
      raw:say(h2.request(1, paths.Watch), h2.data(1, create_a))
      host.server:mount("/spec/Call")
      raw:say(h2.call(3, "/spec/Call", ""))
      host.server:drain(5, host.now)
      host:pump()
      call(5, paths.Range, range_a)
      assert.same({ 0 }, status(5))
    end)
  end)

  describe("with a client that closes", function()
    it("is done after the last answer", function()
      raw:say(h2.goaway(0, "no_error"))
      assert.is_true(raw:is_done())
      local other = host:raw()
      other:say(h2.request(1, paths.Watch), h2.data(1, create_a), h2.goaway(0, "no_error"))
      assert.is_false(other:is_done())
      other:say(h2.reset(1))
      assert.is_true(other:is_done())
    end)

    it("answers requests that came before the end of input", function()
      raw:send(h2.call(1, paths.Range, range_a))
      raw:push()
      raw.peer:feed("", host.now)
      raw:pull()
      assert.same({ 0 }, status(1))
      assert.is_true((select(2, raw.peer:state())))
    end)

    it("is done at the end of input", function()
      raw:say(h2.request(1, paths.Watch), h2.data(1, create_a))
      raw.peer:feed("", host.now)
      assert.is_true(raw:is_done())
      assert.equal(1, host.server:connections())
      raw:close()
      assert.equal(0, host.server:connections())
      host.ends = {}
      host.store:put("a", "")
    end)
  end)
end)

describe("keepalive", function()
  local host, raw

  local function begin(options)
    host = pair.host(nil, options)
    raw = host:raw()
    host:pump()
  end

  after_each(function() host:close() end)

  --- Lets `seconds` go by.
  local function wait(seconds)
    host.now = host.now + seconds
    raw.peer:step(host.now)
    host:pump()
  end

  it("pings a silent client, and closes the connection without an answer", function()
    begin { keepalive_interval = 10, keepalive_timeout = 2 }
    wait(9.9)
    assert.same({}, raw.reader.pings)
    wait(0.1)
    assert.equal(1, #raw.reader.pings)
    wait(1.9)
    assert.is_false(raw:is_done())
    wait(0.1)
    assert.is_true(raw:is_done())
  end)

  it("counts any bytes as a sign of life", function()
    begin { keepalive_interval = 10, keepalive_timeout = 2 }
    wait(10)
    raw:say(h2.pong(raw.reader.pings[1]))
    wait(9)
    assert.is_false(raw:is_done())
    raw:say(h2.call(1, paths.Range, range_a))
    wait(9)
    assert.equal(1, #raw.reader.pings)
    wait(1)
    assert.equal(2, #raw.reader.pings)
  end)

  it("is answered", function()
    begin()
    raw:say(h2.ping("lifesign"))
    assert.same({ "lifesign" }, raw.reader.pongs)
  end)

  it("closes the connection of a client without streams that pings too often", function()
    begin()
    for i = 1, 3 do
      raw:say(h2.ping())
      assert.equal(i, #raw.reader.pongs)
    end
    assert.is_false(raw:is_done())
    raw:say(h2.ping())
    assert.is_true(raw:is_done())
    assert.same({ { last = 0, code = "enhance_your_calm", text = "too_many_pings" } }, raw.reader.goaways)
  end)

  it("sends the last executed stream in the GOAWAY for too many pings", function()
    begin()
    for _ = 1, 3 do raw:say(h2.ping()) end
    raw:say(h2.ping(), h2.call(1, paths.Range, range_a))
    assert.same({ { last = 1, code = "enhance_your_calm", text = "too_many_pings" } }, raw.reader.goaways)
  end)

  it("lets a client with streams ping at the minimum interval, and not more often", function()
    begin { keepalive_min_time = 5 }
    raw:say(h2.request(1, paths.Watch), h2.data(1, create_a), h2.ping())
    for _ = 1, 10 do
      wait(5)
      raw:say(h2.ping())
    end
    assert.is_false(raw:is_done())
    for _ = 1, 3 do
      wait(4.9)
      raw:say(h2.ping())
    end
    assert.is_true(raw:is_done())
    assert.equal("too_many_pings", raw.reader.goaways[1].text)
  end)

  it("lets a client ping after each message of the server", function()
    begin()
    for i = 1, 20 do
      raw:say(h2.call(2 * i - 1, paths.Range, range_a))
      raw:say(h2.ping())
    end
    assert.is_false(raw:is_done())
  end)
end)

describe("a mounted method", function()
  local host, client

  before_each(function()
    host = pair.host()
    client = host:client()
    host.server:mount("/spec.Service/Call")
  end)

  after_each(function() host:close() end)

  local function start(bytes)
    local call = client:start("/spec.Service/Call", nil, bytes)
    client.client:half_close(call)
    host:pump()
    return call
  end

  local function back(call)
    host:pump()
    client:take()
    return client.returns[call]
  end

  --- The next call that is new, and its request.
  local function next_call()
    local id, is_new = host.server:next_news()
    if not is_new then return nil end
    return id, host.server:receive(id)
  end

  it("gets its calls in order, and answers reach their callers", function()
    local a, b = start("a"), start("b")
    local first, request = next_call()
    local second, other = next_call()
    assert.same({ "a", "b" }, { request, other })
    assert.equal("/spec.Service/Call", (host.server:info(first)))
    assert.is_nil(next_call())
    host.server:send(second, "B")
    host.server:finish(second, 0, "")
    host.server:finish(first, 7, "no \195\164%")
    assert.same({ "B", status = 0, text = "" }, back(b))
    assert.same({ status = 7, text = "no \195\164%" }, back(a))
    host.server:send(first, "late")
    host.server:finish(first, 0, "")
  end)

  it("is notified of calls that have ended", function()
    local call = start("a")
    client.client:cancel(call)
    host:pump()
    assert.equal(1, (select(5, host.server:next_news())))
    call = start("b")
    local id = next_call()
    client.client:cancel(call)
    host:pump()
    host.server:send(id, "nobody")
    host.server:finish(id, 0, "")
    host:pump()
    assert.equal(id, (host.server:next_news()))
    assert.is_nil(host.server:next_news())
  end)

  it("may replace one of the server's own", function()
    host.server:mount(paths.Range)
    local call = client:start("Range", nil, range_a)
    client.client:half_close(call)
    host:pump()
    local id, request = next_call()
    assert.equal(range_a, request)
    host.server:send(id, "")
    host.server:finish(id, 0, "")
    assert.same({ "", status = 0, text = "" }, back(call))
  end)
end)
