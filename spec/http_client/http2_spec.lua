--- The HTTP client over HTTP/2: with keywatch's server, where exchanges share a connection, and with servers that break
-- the rules.

local http = require "keywatch.http"
local keywatch = require "keywatch"
local testing = require "keywatch.testing"

local certificates = require "spec.support.certificates"
local h2 = require "spec.support.h2"
local raw_server = require "spec.support.raw_server"

local KIB, MIB = 1024, 1024 * 1024

describe("the HTTP client over HTTP/2", function()
  local function count(client) return tonumber(tostring(client):match "<(%d+) connections") end

  it("shares one connection among all requests to an origin", function()
    testing.run(function(world)
      local running, most, peers = 0, 0, {}
      world.server.server:handle("POST", "/echo", function(request)
        running = running + 1
        most, peers[request.peer] = math.max(most, running), true
        keywatch.sleep(1)
        running = running - 1
        return request:body(8 * MIB)
      end)
      local client = http.client { protocol = "h2", max_per_host = 1, timeout = 100 }
      local tasks, before = {}, keywatch.now()
      for i = 1, 50 do
        tasks[i] = keywatch.spawn(function()
          local body = ("x"):rep(i * 1000)
          return assert(client:request(world.server.url .. "/echo", { body = body })).body == body
        end)
      end
      assert(keywatch.join(tasks))
      for _, task in ipairs(tasks) do assert.is_true(select(2, task:join())) end
      assert.equal(50, most)
      assert.is_true(keywatch.now() - before < 3)
      assert.is_truthy(next(peers))
      assert.is_nil(next(peers, next(peers)))
      assert.equal(1, count(client))
      keywatch.sleep(60)
      assert.equal(0, count(client))
    end)
  end)

  it("streams, and gives up single exchanges", function()
    testing.run(function(world)
      local ended = 0
      world.server.server:handle("POST", "/upper", function(request)
        request:answer(200)
        for part in request.read, request do request:write(part:upper()) end
      end)
      world.server.server:handle("GET", "/long", function(request)
        request:write "begun"
        pcall(keywatch.sleep, 1000)
        ended = ended + 1
      end)
      local client = http.client { protocol = "h2" }
      local url = world.server.url
      local one, two = assert(client:open(url .. "/upper", { method = "POST" })), assert(client:open(url .. "/long"))
      assert(one:write "a")
      assert.same({ "A", "begun" }, { one:read(), two:read() })
      two:close()
      keywatch.sleep(1)
      assert.equal(1, ended)
      assert(one:write "b")
      assert.equal("B", one:read())
      local size = 0
      local writer = keywatch.spawn(function()
        for _ = 1, 32 do assert(one:write(("x"):rep(256 * KIB))) end
        one:finish()
      end)
      for part in one:parts() do size = size + #part end
      assert(writer:join())
      assert.equal(8 * MIB, size)
      assert.equal("timeout", select(2, client:request(url .. "/long", { timeout = 1 })).code)
      assert.equal(200, client:request(url .. "/health").status)
      assert.equal(1, count(client))
    end)
  end)

  it("is agreed on with TLS, unless the program or the server wants HTTP/1.1", function()
    local cert, key = certificates.paths "server"
    local store = keywatch.open()
    local server = assert(keywatch.serve { store = store, listen = "https://127.0.0.1:0",
      tls = { cert = cert, key = key } })
    local url, tls = server:addresses()[1] .. "/health", { ca = certificates.directory() .. "/ca.pem" }
    for protocol, is_shared in pairs { any = true, h2 = true, h1 = false } do
      local client = assert(http.client { tls = tls, protocol = protocol ~= "any" and protocol or nil })
      for _ = 1, 2 do assert.equal(200, assert(client:request(url)).status) end
      local connection = next(client.pool.open)
      assert.equal(is_shared, connection.is_shared)
      client:close()
    end
    server:close()
    store:close()
  end)

  --- Runs fn(client, url, peers) with a server of HTTP/2 that calls answer(peer, id, has_body) for each request.
  local function with(answer, fn, settings)
    testing.run(function(world)
      local url, peers = raw_server.listen(world, 1000, function(peer)
        if not peer.rest then
          if #peer.received < #h2.MAGIC then return end
          peer.rest, peer.taken = "", #h2.MAGIC
          peer:say(h2.settings(settings or {}) .. h2.settings("ack"))
        end
        local frames
        frames, peer.rest = h2.frames(peer.rest .. peer.received:sub(peer.taken + 1))
        peer.taken = #peer.received
        for _, frame in ipairs(frames) do
          if frame.type == "headers" then answer(peer, frame.id, frame.flags % 2 == 0) end
          if frame.type == "ping" and frame.flags == 0 and not peer.is_mute then peer:say(h2.pong(frame.payload)) end
        end
      end)
      local client = http.client { protocol = "h2" }
      fn(client, url, peers)
      client:close()
    end)
  end

  local OK = { { ":status", "200" } }

  it("refuses answers that are not valid", function()
    local function head(...) return h2.headers(1, { ... }, { ends = true }) end
    local large = { OK[1] }
    for i = 2, 100 do large[i] = { "a", ("x"):rep(1000) } end
    for _, bytes in ipairs {
      head { "a", "b" }, head({ ":status", "20" }), head({ ":status", "200" }, { ":status", "200" }),
      head({ ":status", "200" }, { "A", "b" }), head({ ":status", "200" }, { "connection", "close" }),
      head({ ":status", "200" }, { "a", "b\r\nc: d" }), head { ":status", "101" },
      head({ "a", "b" }, { ":status", "200" }), head({ ":status", "103" }),
      h2.headers(1, { { ":status", "103" } }):rep(20), h2.headers(1, large, { split = 16000 }),
      h2.data(1, "hello"), h2.headers(1, { OK[1] }) .. h2.headers(1, { { "a", "b" } }),
      h2.window(1, 2 ^ 31 - 1), h2.window(0, 2 ^ 31 - 1), h2.data(99, "hello"), h2.headers(2, { OK[1] }),
      h2.frame("headers", 0, 1, h2.block(OK)) .. h2.frame("continuation", 0, 1, h2.line("a", "b")):rep(10000),
      h2.ping():rep(10000),
    } do
      with(function(peer) peer:say(bytes) end, function(client, url, peers)
        local answer, err = client:request(url, { timeout = 5 })
        assert.is_nil(answer)
        assert.equal("malformed", err.code, err.message)
        assert.equal(1, #peers)
      end)
    end
  end)

  it("fails if a body does not have its length, or its stream is reset", function()
    local five = { OK[1], { "content-length", "5" } }
    for text, case in pairs {
      ["longer than its length"] = { "malformed", h2.headers(1, five) .. h2.data(1, "hello!") },
      ["shorter than its length"] = { "malformed", h2.headers(1, five) .. h2.data(1, "hell", { ends = true }) },
      ["has reset the stream: CANCEL"] = { "unavailable", h2.headers(1, OK) .. h2.data(1, "hell") .. h2.reset(1) },
      [""] = { "unavailable", h2.headers(1, OK), is_last = true },
    } do
      with(function(peer)
        peer:say(case[2])
        if case.is_last then peer:finish() end
      end, function(client, url)
        local answer, err = client:request(url)
        assert.is_nil(answer)
        assert.equal(case[1], err.code)
        assert.matches(text, err.message)
      end)
    end
  end)

  it("takes early hints, trailers and any padding", function()
    with(function(peer, id)
      peer:say(h2.headers(id, { { ":status", "103" }, { "link", "x" } }) .. h2.headers(id, OK, { pad = 10, split = 3 })
        .. h2.data(id, "hel", { pad = 200 }) .. h2.data(id, "lo")
        .. h2.headers(id, { { "sum", "5" } }, { ends = true }))
    end, function(client, url)
      local answer = assert(client:request(url))
      assert.same({ 200, "hello", { sum = "5" } }, { answer.status, answer.body, answer.trailers })
    end)
  end)

  local REFUSALS = {
    reset = function(id) return h2.reset(id, "refused_stream") end,
    goaway = function(id) return h2.goaway(math.max(id - 2, 0), "no_error") end,
  }

  it("repeats requests that the server has not processed, elsewhere", function()
    for _, refuse in pairs(REFUSALS) do
      for _, method in ipairs { "GET", "POST" } do
        for n_before = 0, 1 do -- requests on the connection before
          with(function(peer, id)
            if peer.number == 1 and id > 2 * n_before then
              peer:say(refuse(id))
            else
              peer:say(h2.headers(id, OK, { ends = true }))
            end
          end, function(client, url, peers)
            for _ = 0, n_before do
              local answer = assert(client:request(url, { method = method, body = method == "POST" and "x" or nil }))
              assert.equal(200, answer.status)
            end
            assert.equal(2, #peers)
          end)
        end
      end
    end
  end)

  it("gives up a request that the server refuses again and again, or that cannot be repeated", function()
    for _, refuse in pairs(REFUSALS) do
      with(function(peer, id) peer:say(refuse(id)) end, function(client, url, peers)
        local _, err = client:request(url, { method = "POST", body = "x" })
        assert.equal("unavailable", err.code)
        assert.is_nil(err.maybe_done)
        assert.is_true(#peers > 2 and #peers < 20)
        local n = #peers
        _, err = client:request(url, { body = function() end })
        assert.equal("unavailable", err.code)
        assert.is_nil(err.maybe_done)
        assert.equal(n + 1, #peers)
        local began = keywatch.now()
        assert.is_nil(client:request(url, { timeout = 0.1 }))
        assert.is_true(keywatch.now() - began <= 0.1)
      end)
    end
  end)

  it("loses no request to servers that close connections after some requests", function()
    with(function(peer, id)
      if id == 19 then peer:say(h2.goaway(19, "no_error")) end
      if id <= 19 then peer:say(h2.headers(id, OK, { ends = true })) end
    end, function(client, url, peers)
      local tasks = {}
      for i = 1, 100 do
        tasks[i] = keywatch.spawn(function() return assert(client:request(url, { method = "POST" })).status end)
      end
      assert(keywatch.join(tasks))
      for _, task in ipairs(tasks) do assert.is_true((task:join())) end
      assert.is_true(#peers >= 10)
    end)
  end)

  it("reports a server that allows no streams", function()
    with(error, function(client, url, peers)
      local _, err = client:request(url)
      assert.equal("unavailable", err.code)
      assert.matches("the server allows no streams", err.message)
      assert.equal(1, #peers)
    end, { max_concurrent_streams = 0 })
  end)

  it("notices that a body stalls, whatever else moves on the connection", function()
    local is_busy = false
    with(function(peer, id, has_body)
      if not has_body then peer:say(h2.headers(id, OK) .. h2.data(id, "hello")) end
      if not is_busy then return end
      is_busy = false
      keywatch.spawn(function()
        while not peer.is_closed do
          peer:say(h2.data(id, "x"))
          keywatch.sleep(1)
        end
      end)
    end, function(client, url, peers)
      local function expect_stall(stage, opts)
        opts.timeout, opts.stall = math.huge, 20
        local began = keywatch.now()
        local _, err = client:request(url, opts)
        assert.equal("timeout", err.code)
        assert.matches(stage .. ": no byte has moved for 20 s", err.message)
        assert.is_true(keywatch.now() - began < 50)
      end
      local function expect_both() -- the client sends PING frames, which are answered
        local reader = keywatch.spawn(expect_stall, "the body of the answer", {})
        keywatch.spawn(expect_stall, "sending the body", { body = ("x"):rep(MIB) }):join()
        assert(reader:join())
      end
      assert(client:open(url)):answer()
      expect_both()
      is_busy = true
      local busy = assert(client:open(url))
      local other = keywatch.spawn(function() for _ in busy:parts() do end end)
      expect_both()
      assert.equal(1, #peers)
      other:cancel()
    end)
  end)

  it("keeps to the number of streams that the server allows", function()
    local open, most = 0, 0
    with(function(peer, id)
      open = open + 1
      most = math.max(most, open)
      keywatch.spawn(function()
        keywatch.sleep(1)
        open = open - 1
        peer:say(h2.headers(id, OK, { ends = true }))
      end)
    end, function(client, url, peers)
      local tasks = {}
      for i = 1, 12 do tasks[i] = keywatch.spawn(function() return assert(client:request(url)).status end) end
      assert(keywatch.join(tasks))
      assert.is_true(#peers <= 8)
      assert.is_true(most <= 2 * #peers)
    end, { max_concurrent_streams = 2 })
  end)

  it("leaves a connection that is dead", function()
    with(function(peer, id)
      if peer.is_mute then return end
      peer:say(h2.headers(id, OK, { ends = true }))
    end, function(client, url, peers)
      assert.equal(200, client:request(url).status)
      peers[1].is_mute = true
      assert.equal("timeout", select(2, client:request(url, { timeout = 5 })).code)
      assert.equal(200, client:request(url).status)
      assert.equal(2, #peers)
    end)
  end)

  it("says so if the server does not speak it", function()
    testing.run(function(world)
      local url = raw_server.listen(world, 1000, function(peer) peer:finish "HTTP/1.1 400 Bad Request\r\n\r\n" end)
      local _, err = http.client({ protocol = "h2" }):request(url)
      assert.equal("unavailable", err.code)
      assert.matches("does not speak HTTP/2", err.message)
    end)
  end)
end)
