--- One stream against another: a stream with unread answers, or with messages that no handler receives, delays no
-- other stream of its connection.

local core = require "keywatch.core"

local h2 = require "spec.support.h2"
local pair = require "spec.support.pair"

local paths = pair.paths

local KIB, MIB = 1024, 1024 * 1024
local WIDE = 2 ^ 31 - 1
local MAX_WAITING = 64 * MIB -- csrc/h2/session.c: answers of a connection that wait
local MAX_HELD = 64 * MIB    -- the same: messages of a connection that wait to be received
local STREAM_WINDOW = MIB    -- the same
local UNREAD = 5             -- csrc/h2/stream.h: seconds that a stream which is not read keeps its answer
local RESOURCE_EXHAUSTED, INTERNAL = 8, 13

local function encoded(method, request) return core.encode(pair.request_name(method), request) end

describe("of two streams of a connection #slow", function()
  local host, raw, last

  before_each(function()
    host = pair.host()
    raw = host:raw(h2.hello { initial_window_size = 0 } .. h2.window(0, WIDE - 65535))
    host:pump()
    raw:say(h2.settings("ack"))
    last = -1
  end)

  after_each(function() host:close() end)

  --- Begins a call on a new stream, with `window` more bytes than by default. Returns the stream's id.
  local function call(method, request, window)
    last = last + 2
    raw:send(h2.request(last, paths[method]))
    if window then raw:send(h2.window(last, window)) end
    raw:say(h2.data(last, h2.message(encoded(method, request)), { ends = true }))
    return last
  end

  local function open(method, window)
    last = last + 2
    raw:say(h2.request(last, paths[method] or method), h2.window(last, window))
    return last
  end

  local function send(id, method, request) raw:say(h2.data(id, h2.message(encoded(method, request)))) end

  local function answers(id, method)
    local list = {}
    for i, message in ipairs(raw.reader:messages(id)) do list[i] = core.decode(pair.response_name(method), message) end
    return list
  end

  local function pass(seconds)
    host.now = host.now + seconds
    host.server:step(host.now)
    raw.peer:step(host.now)
    host:pump()
  end

  --- Puts, gets and keeps a lease alive on streams that are read, each to its end.
  local function expect_served()
    local put = call("Put", { key = "witness", value = "w" }, 1000)
    assert.equal(0, (raw.reader:status(put)))
    local get = call("Range", { key = "witness" }, 1000)
    assert.equal("w", answers(get, "Range")[1].kvs[1].value)
  end

  local LARGE = { key = "large/", range_end = "large0" }

  local function put_large(n)
    for i = 1, n do host.store:put(("large/%02d"):format(i), ("%02d"):format(i):rep(MIB / 2)) end
  end

  describe("one whose answer is not read", function()
    it("does not block the other", function()
      put_large(6)
      local keep = open("LeaseKeepAlive", 10000)
      local watch = open("Watch", 10000)
      send(watch, "Watch", { create_request = { key = "witness" } })
      local unread = {}
      for i = 1, 6 do unread[i] = call("Range", LARGE) end
      for i = 1, 3 do
        send(keep, "LeaseKeepAlive", { ID = 7 })
        assert.equal(i, #answers(keep, "LeaseKeepAlive"))
        expect_served()
        assert.equal(i, answers(watch, "Watch")[i + 1].events[1].kv.version)
      end
      for _, id in ipairs(unread) do raw:send(h2.window(id, 8 * MIB)) end
      host:pump()
      for _, id in ipairs(unread) do
        assert.equal(6, #answers(id, "Range")[1].kvs)
        assert.equal(0, (raw.reader:status(id)))
      end
    end)

    it("does not block the other while a slow socket takes a large answer that has a window", function()
      put_large(12)
      raw.is_deaf = true
      local id = call("Range", LARGE, WIDE)
      for _ = 1, 20 do
        raw.reader:feed(raw.peer:pending(64 * KIB))
        local wants = raw.peer:state()
        assert.is_true(wants)
      end
      call("Put", { key = "witness" }, 1000)
      assert.equal(1, host.store:get("witness").version)
      raw.is_deaf = false
      host:pump()
      assert.equal(0, (raw.reader:status(id)))
    end)

    it("that sends many messages is paused without the others, and resumed when its window opens", function()
      local n, keep = 20000, open("LeaseKeepAlive", 1)
      local ask = h2.message(encoded("LeaseKeepAlive", { ID = 7 }))
      for _ = 1, n / 100 do raw:say(h2.data(keep, ask:rep(100))) end
      assert.is_true(host.server:held() < 2 * MIB, host.server:held())
      expect_served()
      raw:say(h2.window(keep, WIDE - 1))
      assert.equal(n, #raw.reader:messages(keep))
      expect_served()
    end)

    it("makes the other's large answer wait while answers move, and loses its own when none moves", function()
      put_large(40)
      local unread = { call("Range", LARGE), call("Range", LARGE), call("Range", LARGE) }
      local read = call("Range", LARGE, 64 * KIB)
      expect_served()
      assert.equal(0, #raw.reader:stream(read).parts)
      assert.equal(host.now + UNREAD, raw.peer:deadline())
      pass(UNREAD)
      assert.equal("enhance_your_calm", raw.reader:stream(unread[1]).reset)
      assert.is_nil(raw.reader:stream(unread[3]).reset)
      raw:say(h2.window(read, WIDE - 64 * KIB))
      assert.equal(40, #answers(read, "Range")[1].kvs)
      expect_served()
    end)

    it("makes the other's large answer fail, if there is no room for long", function()
      put_large(40)
      local slow = { call("Range", LARGE), call("Range", LARGE) }
      local other = call("Range", LARGE, 64 * KIB)
      for _ = 1, 10 do
        assert.is_nil((raw.reader:status(other)))
        for _, id in ipairs(slow) do raw:send(h2.window(id, 64 * KIB)) end
        host:pump()
        pass(3)
      end
      assert.equal(RESOURCE_EXHAUSTED, (raw.reader:status(other)))
      expect_served()
    end)

    it("that is read slowly keeps its answer, and the other's comes after it", function()
      put_large(40)
      local slow = { call("Range", LARGE), call("Range", LARGE) }
      local read = call("Range", LARGE, WIDE)
      for _ = 1, 20 do
        for _, id in ipairs(slow) do raw:send(h2.window(id, 3 * MIB)) end
        host:pump()
        pass(UNREAD / 5)
      end
      for _, id in ipairs { slow[1], slow[2], read } do assert.equal(40, #answers(id, "Range")[1].kvs) end
    end)

    it("gets an error if its own answer is too large, and cannot wait", function()
      put_large(40)
      for _ = 1, 2 do call("Range", LARGE) end
      local revision = host.store:status().revision
      local txn = call("Txn", { success = { { request_put = { key = "a" } }, { request_range = LARGE } } }, 1000)
      assert.equal(RESOURCE_EXHAUSTED, (raw.reader:status(txn)))
      assert.equal(revision, host.store:status().revision)
      expect_served()
    end)

    it("takes no more than the memory of an answer with many values", function()
      for i = 1, 2000 do host.store:put(("many/%05d"):format(i), ("v"):rep(5000)) end
      local id = call("Range", { key = "many/", range_end = "many0" })
      assert.is_true(host.server:held() < 2 * MIB, host.server:held())
      raw:say(h2.window(id, WIDE))
      assert.equal(2000, #answers(id, "Range")[1].kvs)
    end)

    it("is charged for its waiting request", function()
      put_large(65)
      call("Range", LARGE)
      local before = host.server:held()
      last = last + 2
      raw:say(h2.request(last, paths.Range), h2.data_in_parts(last, h2.message(encoded("Range",
        { key = ("k"):rep(MIB) })), 16384, { ends = true }))
      assert.is_true(host.server:held() - before > MIB, host.server:held() - before)
      host:check()
      pass(UNREAD)
      assert.is_true(host.server:held() < before, host.server:held())
      host:check()
    end)

    it("loses its answer, but a stream whose answer waits for the socket does not", function()
      put_large(65)
      local keep = open("LeaseKeepAlive", 10000)
      raw.is_deaf = true
      call("Range", { key = "large/01" }, WIDE)
      raw.reader:feed(raw.peer:pending(1))
      send(keep, "LeaseKeepAlive", { ID = 7 })
      local unread = call("Range", LARGE)
      local other = call("Range", LARGE, 1)
      raw.peer:step(host.now + UNREAD)
      raw.is_deaf = false
      host:pump()
      assert.equal("enhance_your_calm", raw.reader:stream(unread).reset)
      assert.is_nil(raw.reader:stream(keep).reset)
      assert.equal(1, #answers(keep, "LeaseKeepAlive"))
      host:check()
      raw:say(h2.window(other, WIDE - 1))
      assert.equal(65, #answers(other, "Range")[1].kvs)
    end)

    it("holds nothing when it has lost its answer, even if nothing can be written", function()
      put_large(65)
      raw.is_deaf = true
      call("Range", { key = "large/01" }, WIDE)
      raw.reader:feed(raw.peer:pending(1))
      for _ = 1, 3 do
        call("Range", LARGE)
        pass(UNREAD)
      end
      local before = host.server:held()
      for _ = 1, 3 do
        call("Range", LARGE)
        pass(UNREAD)
      end
      assert.is_true(host.server:held() - before < 100 * KIB, host.server:held() - before)
      raw.is_deaf = false
      host:pump()
      host:check()
      expect_served()
    end)

    it("among thousands does not block the others, and the waiting output is bounded", function()
      host.store:put("k", ("v"):rep(60000))
      for _ = 1, 4000 do call("Range", { key = "k" }) end
      expect_served()
      assert.is_true(host.server:held() < MAX_WAITING + 20 * MIB, host.server:held())
      pass(UNREAD)
      expect_served()
      assert.is_true(host.server:held() < MAX_WAITING + 20 * MIB, host.server:held())
    end)
  end)

  it("none is blocked by repeated settings", function()
    host.store:put("k", "v")
    for _ = 1, 3000 do call("Range", { key = "k" }) end
    raw:say(h2.settings({}):rep(100))
    assert.equal(0, #raw.reader.goaways)
    expect_served()
    raw:say(h2.settings({}):rep(900))
    assert.equal("enhance_your_calm", raw.reader.goaways[1].code)
    assert.is_true(raw:is_done())
  end)

  describe("one whose messages are not received", function()
    local part = ("x"):rep(16 * KIB)

    before_each(function() host.server:mount("/spec.Service/Stream", true) end)

    --- Fills the window of a new stream of a method.
    local function fill(path)
      local id = open(path, 1000)
      local message = h2.message(("x"):rep(16 * KIB - 5))
      for _ = 1, STREAM_WINDOW / #message do raw:say(h2.data(id, message)) end
      return id
    end

    local function credit() return raw.reader.windows[0] or 0 end

    it("takes no part of the connection's window", function()
      local before = credit()
      for _ = 1, 10 do fill("/spec.Service/Stream") end
      assert.is_true(credit() - before > 10 * MIB - 4 * MIB, credit() - before)
      expect_served()
      local id = open("Put", 1000)
      raw:say(h2.data_in_parts(id, h2.message(encoded("Put", { key = "large", value = ("v"):rep(MIB - 100) })), 16384,
        { ends = true }))
      assert.equal(0, (raw.reader:status(id)))
    end)

    it("gets its own window opened when messages are received, and not before", function()
      local id = fill("/spec.Service/Stream")
      assert.is_nil(raw.reader.windows[id])
      local call_id = host.server:next_news()
      local n = 0
      while host.server:receive(call_id) do n = n + 1 end
      host:pump()
      assert.equal(STREAM_WINDOW / #part, n)
      assert.equal(STREAM_WINDOW, raw.reader.windows[id])
    end)

    it("takes no part of the connection's window if a hook delays it", function()
      host.server:intercept()
      local message = h2.message(encoded("Put", { key = "large", value = ("v"):rep(MIB - 100) }))
      local before, ids = credit(), {}
      for i = 1, 10 do
        ids[i] = open("Put", 1000)
        raw:say(h2.data_in_parts(ids[i], message, 16384, { ends = true }))
      end
      assert.is_true(credit() - before > 10 * MIB - 4 * MIB, credit() - before)
      for id, is_new in host.server.next_news, host.server do
        if is_new then host.server:proceed(id) end
      end
      host:pump()
      for _, id in ipairs(ids) do assert.equal(0, (raw.reader:status(id))) end
    end)

    it("is ended if it holds most, and the other needs the room", function()
      local ids = {}
      for i = 1, MAX_HELD / STREAM_WINDOW + 10 do ids[i] = fill("/spec.Service/Stream") end
      assert.is_true(host.server:held() < MAX_HELD + 24 * MIB, host.server:held())
      local failed = 0
      for _, id in ipairs(ids) do
        local status = raw.reader:status(id)
        assert(status == nil or status == RESOURCE_EXHAUSTED)
        if status then failed = failed + 1 end
      end
      assert.is_true(failed > 0 and failed < 20, failed)
      host.server:intercept()
      local id = open("Put", 1000)
      raw:say(h2.data_in_parts(id, h2.message(encoded("Put", { key = "large", value = ("v"):rep(MIB / 2) })), 16384,
        { ends = true }))
      for call_id, is_new in host.server.next_news, host.server do
        if is_new and host.server:info(call_id) == paths.Put then host.server:proceed(call_id) end
      end
      host:pump()
      assert.equal(0, (raw.reader:status(id)))
    end)

    it("holds nothing past its deadline", function()
      last = last + 2
      raw:say(h2.request(last, "/spec.Service/Stream", { ["grpc-timeout"] = "1S" }))
      host.server:send(host.server:next_news(), "unread")
      for _ = 1, STREAM_WINDOW / #part do raw:say(h2.data(last, h2.message(part:sub(6)))) end
      local before = host.server:held()
      raw.peer:step(host.now + 1)
      host:pump()
      assert.is_true(host.server:held() < before - STREAM_WINDOW / 2)
      raw:say(h2.data(last, part))
      assert.is_true(host.server:held() < before - STREAM_WINDOW / 2)
    end)

    it("is ended by its second message, if its method takes one", function()
      host.server:mount("/spec.Service/One", true, true)
      local id = open("/spec.Service/One", 1000)
      raw:say(h2.data(id, h2.message("one")))
      local call_id = host.server:next_news()
      assert.equal("one", (host.server:receive(call_id)))
      assert.is_nil((raw.reader:status(id)))
      raw:say(h2.data(id, h2.message("two"):sub(1, 1)))
      assert.equal(INTERNAL, (raw.reader:status(id)))
    end)
  end)
end)
