--- The HTTP client and servers that break the rules: the client reports what is wrong, and its memory is bounded.

local core = require "keywatch.core"
local http = require "keywatch.http"
local keywatch = require "keywatch"
local testing = require "keywatch.testing"

local raw_server = require "spec.support.raw_server"

local KIB, MIB = 1024, 1024 * 1024
local HEAD = "HTTP/1.1 200 OK\r\n"
local GOOD = HEAD .. "content-length: 5\r\n\r\nhello"

--- Runs fn(client, url, peers) with a server that answers each request by answer(peer), once its head is complete.
local function with(answer, fn, options)
  testing.run(function(world)
    local url, peers = raw_server.listen(world, 1000, function(peer)
      local _, n = peer.received:gsub("\r\n\r\n", "")
      if n > (peer.n_answers or 0) then
        peer.n_answers = n
        answer(peer)
      end
    end)
    local client = http.client(options)
    fn(client, url, peers, world)
    client:close()
  end)
end

--- Expects that a request fails with a code and a text. Returns the error.
local function expect(code, pattern, answer, options)
  local found
  with(answer, function(client, url)
    local got, err = client:request(url .. "/x", options)
    assert.is_nil(got)
    assert.equal(code, err.code, err.message)
    assert.matches(pattern, err.message)
    found = err
  end)
  return found
end

describe("the HTTP client and a server that", function()
  for name, case in pairs {
    ["never ends its head"] = { "malformed", "the head is too large", HEAD, ("a: %s\r\n"):format(("x"):rep(900)) },
    ["has a huge header"] = { "malformed", "too large", HEAD .. "a: ", ("x"):rep(KIB) },
    ["has a huge status line"] = { "malformed", "too long", "HTTP/1.1 200 ", ("x"):rep(KIB) },
    ["has too many headers"] = { "malformed", "too many fields", HEAD, "a: b\r\n" },
    ["never ends its interim answers"] = { "malformed", "too many interim answers", "", "HTTP/1.1 103 Early\r\n\r\n" },
    ["never ends a chunk's extensions"] = { "malformed", "chunk",
      HEAD .. "transfer-encoding: chunked\r\n\r\n5;", ("x"):rep(KIB) },
    ["never ends its trailers"] = { "malformed", "too",
      HEAD .. "transfer-encoding: chunked\r\n\r\n0\r\n", "a: b\r\n" },
    ["never ends its body"] = { "answer_too_large", "max_body", HEAD .. "\r\n", ("x"):rep(KIB) },
    ["never ends its chunks"] = { "answer_too_large", "max_body",
      HEAD .. "transfer-encoding: chunked\r\n\r\n", "400\r\n" .. ("x"):rep(KIB) .. "\r\n" },
  } do
    it(name, function()
      local sent = 0
      expect(case[1], case[2], function(peer)
        peer:say(case[3])
        peer.refill = function()
          sent = sent + #case[4]
          return sent < 64 * MIB and case[4]
        end
      end, { max_body = MIB })
      assert.is_true(sent < 4 * MIB, sent)
    end)
  end

  it("sends nonsense", function()
    for _, bytes in ipairs {
      "hello", "HTTP/2.0 200 OK\r\n\r\n", "HTTP/1.1 20 OK\r\n\r\n", "HTTP/1.1 999 OK\r\n\r\n",
      "\22\3\1\0\5hello\r\n\r\n",
      HEAD .. "a : b\r\n\r\n", HEAD .. "a: b\n\n", HEAD .. " a: b\r\n\r\n", HEAD .. "a: \0\r\n\r\n",
      HEAD .. "content-length: -1\r\n\r\n", HEAD .. "content-length: 1\r\ncontent-length: 2\r\n\r\n",
      HEAD .. "content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n", HEAD .. "transfer-encoding: gzip\r\n\r\n",
      HEAD .. "content-length: 99999999999999999999\r\n\r\n", "HTTP/1.1 101 Switching\r\nupgrade: x\r\n\r\n",
      HEAD .. "transfer-encoding: chunked\r\n\r\nx\r\n", HEAD .. "transfer-encoding: chunked\r\n\r\n5\r\nhelloX\r\n",
      HEAD .. "transfer-encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
    } do
      with(function(peer) peer:finish(bytes) end, function(client, url)
        local got, err = client:request(url)
        assert.is_nil(got, bytes)
        local is_head = bytes == "hello" -- may be the begin of a head
        assert.equal(is_head and "unavailable" or "malformed", err.code, bytes .. err.message)
      end)
    end
  end)

  it("lies about the length of its body", function()
    local err = expect("unavailable", "after 5 of 6 bytes of the body", function(peer)
      peer:finish(HEAD .. "content-length: 6\r\n\r\nhello")
    end)
    assert.is_nil(err.maybe_done)
    with(function(peer) peer:say(HEAD .. "content-length: 4\r\n\r\nhello") end, function(client, url, peers)
      for i = 1, 2 do -- the byte too much is not the begin of the next answer
        assert.equal("hell", client:request(url).body)
        assert.equal(i, #peers)
      end
    end)
  end)

  it("sends two answers to one request", function()
    with(function(peer) peer:say(GOOD .. HEAD .. "content-length: 4\r\n\r\nevil") end, function(client, url, peers)
      for i = 1, 3 do
        assert.equal("hello", client:request(url).body)
        assert.equal(i, #peers)
      end
    end)
    with(function(peer) peer:say(GOOD) end, function(client, url, peers)
      assert.equal("hello", client:request(url).body)
      peers[1]:say(GOOD)
      keywatch.sleep(1) -- nothing was asked
      assert.equal("hello", client:request(url).body)
      assert.equal(2, #peers)
    end)
  end)

  it("closes at every byte of its answer", function()
    local whole = HEAD .. "transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\na: b\r\n\r\n"
    for n = 0, #whole do
      with(function(peer) peer:finish(whole:sub(1, n)) end, function(client, url, peers)
        local answer, err = client:request(url, { method = "POST" })
        if n == #whole then
          assert.same({ "abcde", { a = "b" } }, { answer.body, answer.trailers })
        else
          assert.is_nil(answer)
          assert.same({ "unavailable", true }, { err.code, err.maybe_done })
          assert.matches("the server closed the connection", err.message)
        end
        assert.equal(1, #peers)
      end)
    end
  end)

  it("sends one byte at a time", function()
    local whole = HEAD .. "a: b\r\ncontent-length: 5\r\n\r\nhello"
    with(function(peer)
      keywatch.spawn(function()
        for i = 1, #whole do
          peer:say(whole:sub(i, i))
          keywatch.sleep(0.01)
        end
      end)
    end, function(client, url) assert.equal("hello", client:request(url, { stall = 0.1 }).body) end)
  end)

  it("answers before the request is complete, and reads no more", function()
    with(function(peer)
      peer.is_deaf = true
      peer:say("HTTP/1.1 413 Content Too Large\r\ncontent-length: 3\r\n\r\nbig")
    end, function(client, url)
      local n = 0
      local answer = assert(client:request(url, { body = function()
        n = n + 1
        return n < 10000 and ("x"):rep(16 * KIB) or nil
      end }))
      assert.same({ 413, "big" }, { answer.status, answer.body })
      assert.is_true(n < 1000)
      for _ = 1, 2 do assert.equal(413, client:request(url, { body = ("x"):rep(MIB) }).status) end
      assert.equal(413, client:request(url).status)
    end)
  end)

  it("answers while it is sent a body for longer than the timeout of the head", function()
    with(function(peer)
      peer:say(HEAD .. "content-length: 5\r\n\r\n")
      peer.is_deaf = true
      keywatch.spawn(function()
        keywatch.sleep(10)
        peer:say("hello")
      end)
    end, function(client, url)
      local exchange = assert(client:open(url, { method = "POST", timeout = 5 }))
      exchange:write(("x"):rep(MIB))
      assert.equal(10, keywatch.now())
      assert.equal("hello", exchange:read())
    end)
  end)

  it("takes a minute for its head", function()
    with(function(peer)
      peer:say("HTTP/1.1 200")
      keywatch.spawn(function()
        keywatch.sleep(60)
        peer:say(GOOD:sub(13))
      end)
    end, function(client, url) assert.equal("hello", assert(client:request(url, { timeout = 100 })).body) end)
  end)

  it("reads nothing, and sends without an end while it is sent a body", function()
    with(function(peer)
      peer.is_deaf = true
      peer:say(HEAD .. "\r\n")
      peer.refill = function() return ("y"):rep(64 * KIB) end
    end, function(client, url, peers)
      for _, body in ipairs { ("x"):rep(4 * MIB), function() return ("x"):rep(64 * KIB) end } do
        local _, err = client:request(url, { body = body, max_body = MIB })
        assert.equal("answer_too_large", err.code)
        assert.is_true(peers[#peers].n_sent < 4 * MIB, peers[#peers].n_sent)
      end
    end)
  end)

  it("sends too much while it is sent a body does not get the end of that body", function()
    with(function(peer)
      peer.is_deaf = true
      peer:say(HEAD .. "\r\n")
      peer.refill = function() return ("y"):rep(64 * KIB) end
    end, function(client, url)
      local acquire, n_ended = client.pool.acquire, 0
      function client.pool.acquire(...)
        local connection = acquire(...)
        local object = connection.core
        connection.core = setmetatable({}, { __index = function(_, name)
          if name == "finish" then n_ended = n_ended + 1 end
          return function(_, ...) return object[name](object, ...) end
        end })
        return connection
      end
      local _, err = client:request(url, { body = function() return ("x"):rep(64 * KIB) end, max_body = MIB })
      assert.equal("answer_too_large", err.code)
      assert.equal(0, n_ended)
    end)
  end)

  it("sends much while it is sent much", function()
    with(function(peer)
      peer:say(HEAD .. "content-length: " .. 8 * MIB .. "\r\n\r\n")
      local left = 8 * MIB
      peer.refill = function()
        peer.is_deaf = left > 0
        left = left - 64 * KIB
        return left >= 0 and ("y"):rep(64 * KIB)
      end
    end, function(client, url)
      local n = 0
      local exchange = assert(client:open(url, { method = "POST" }))
      exchange:answer()
      local reader = keywatch.spawn(function()
        local size = 0
        for part in exchange:parts() do size = size + #part end
        return size
      end)
      while n < 64 and exchange:write(("x"):rep(MIB / 16)) do n = n + 1 end
      local _, size = reader:join()
      assert.equal(8 * MIB, size)
    end)
  end)

  it("sends a body that is not read: the server has to wait", function()
    with(function(peer)
      peer:say(HEAD .. "\r\n")
      peer.refill = function() return ("y"):rep(16 * KIB) end
    end, function(client, url, peers)
      local exchange = assert(client:open(url))
      assert(exchange:answer())
      keywatch.sleep(100)
      assert.is_true(peers[1].n_sent < MIB, peers[1].n_sent)
      for _ = 1, 100 do assert(#exchange:read() > 0) end
      exchange:close()
      keywatch.sleep(1)
      assert.is_true(peers[1].is_closed)
      assert.equal("closed", select(2, exchange:read()).code)
    end)
  end)

  it("accepts and never answers, or reads nothing", function()
    local function nothing() end
    expect("timeout", "the answer took too long", nothing, { timeout = 5 })
    with(function(peer) peer.is_deaf = true end, function(client, url)
      local _, err = client:request(url, { body = function() return ("x"):rep(64 * KIB) end, stall = 3 })
      assert.equal("timeout", err.code)
      assert.matches("sending the body: no byte has moved for 3 s", err.message)
    end)
  end)

  it("closes connections that were used before", function()
    local is_closing = false
    with(function(peer) if is_closing and peer.n_answers > 1 then peer:finish() else peer:say(GOOD) end end,
      function(client, url, peers)
        assert.equal("hello", client:request(url).body)
        is_closing = true
        assert.equal("hello", client:request(url).body) -- is repeated
        assert.equal(2, #peers)
        local answer, err = client:request(url, { method = "POST" })
        assert.is_nil(answer)
        assert.same({ "unavailable", true }, { err.code, err.maybe_done })
        assert.equal(2, #peers)
      end)
    with(function(peer) if peer.n_answers > 1 then peer:finish() else peer:say(GOOD) end end,
      function(client, url, peers)
        local tasks = {}
        for i = 1, 4 do tasks[i] = keywatch.spawn(client.request, client, url) end
        assert(keywatch.join(tasks))
        assert.equal(4, #peers) -- all idle
        for _ = 1, 4 do assert.equal("hello", assert(client:request(url)).body) end
      end)
  end)

  it("closes a new connection before the request begins", function()
    with(function() end, function(client, url, peers)
      local acquire = client.pool.acquire
      function client.pool.acquire(...)
        local connection, err = acquire(...)
        peers[#peers]:finish()
        keywatch.sleep(1) -- the tasks of a busy program
        return connection, err
      end
      local _, err = client:request(url, { method = "POST" })
      assert.same({ "unavailable" }, { err.code, err.maybe_done })
      assert.matches("the server closed the connection", err.message)
      assert.equal(1, #peers)
    end)
  end)

  it("cuts its connection", function()
    for whole, why in pairs {
      [HEAD .. "\r\nhel"] = "the connection was cut within the body, after 3 bytes",
      [HEAD .. "content-length: 5\r\n\r\nhel"] = "the server closed the connection after 3 of 5 bytes of the body",
      [HEAD] = "the server closed the connection within a head",
      [GOOD] = false,
    } do
      local object = core.http_client({}, 0)
      object:dial(0)
      object:opened(0)
      local id = object:fetch("GET", "host", "/", {}, 0)
      object:pending()
      object:feed(whole, 0)
      object:cut(0)
      local kind, found
      repeat kind, found = object:take(id) until kind == "closed"
      assert.equal(why or nil, found)
      object:close()
    end
  end)

  it("is left while it is connected to", function()
    with(function(peer) peer:say(GOOD) end, function(client, url, _, world)
      world.network.isolated[1] = true
      local _, err = client:request(url, { timeout = 1 })
      assert.same({ "timeout", true }, { err.code, err.message:find("connecting took too long", 1, true) ~= nil })
      _, err = client:request(url)
      assert.same({ "unavailable", true }, { err.code, err.message:find("connecting took too long", 1, true) ~= nil })
      world.network.isolated[1] = nil
      assert.equal("hello", client:request(url).body)
    end)
  end)
end)
