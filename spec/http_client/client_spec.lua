--- The HTTP client with keywatch's server: requests and answers, streams, connections that are used again, limits of
-- time and number, TLS.

local http = require "keywatch.http"
local keywatch = require "keywatch"

local certificates = require "spec.support.certificates"
local code = require("spec.support.answer").code

local MIB = 1024 * 1024
local opened = {} -- by the test

local function keep(object)
  opened[#opened + 1] = object
  return object
end

local function path(name) return certificates.directory() .. "/" .. name end

--- Calls fn in a task, and returns its results.
local function run(fn) return keywatch.run(fn) end

--- Turns the loop until a condition holds, for at most 30 seconds.
local function turn_until(holds)
  keywatch.run(function()
    local deadline = keywatch.now() + 30
    while not holds() and keywatch.now() < deadline do keywatch.sleep(0.01) end
  end)
end

describe("an HTTP client", function()
  local server, url, client

  local function serve(options)
    options = options or {}
    options.store, options.listen = keep(keywatch.open { now = 0 }), options.listen or "http://127.0.0.1:0"
    options.log_level = "error"
    function options.on_log() end
    local one = keep(assert(keywatch.serve(options)))
    return one, one:addresses()[1]
  end

  before_each(function()
    server, url = serve()
    client = keep(http.client {})
    server:handle("GET", "/hello/{name}", function(request) return "hello " .. request.params.name end)
    server:handle("POST", "/echo", function(request) return 201, request:body(64 * MIB), { kind = { "a", "b" } } end)
    server:handle("GET", "/sleep/{ms}", function(request)
      keywatch.sleep(tonumber(request.params.ms) / 1000)
      return "slept"
    end)
  end)

  after_each(function()
    for i = #opened, 1, -1 do opened[i]:close() end
    opened = {}
  end)

  describe("makes requests", function()
    it("at top level and in tasks", function()
      local answer = assert(client:request(url .. "/hello/you?a=b#c"))
      assert.same({ 200, "hello you" }, { answer.status, answer.body })
      answer = run(function() return client:request(url .. "/hello/me") end)
      assert.same({ 200, "hello me" }, { answer.status, answer.body })
      assert.equal("text/plain; charset=utf-8", answer.headers["content-type"])
      assert.equal("hello it", http.request(url .. "/hello/it").body)
    end)

    it("with headers, of the client and of the request", function()
      local seen
      server:handle("GET", "/seen", function(request)
        seen = request.headers
        seen.host = request.host
        return ""
      end)
      local own = keep(http.client { headers = { A = "1", b = "2", ["user-agent"] = false }, decompress = false })
      assert(own:request(url .. "/seen", { headers = { a = { "3", 4 }, host = "localhost:5" } }))
      assert.same({ a = "3,4", b = "2", host = "localhost:5" }, seen)
    end)

    it("whose headers cannot inject others", function()
      for _, headers in ipairs { { a = "b\r\nc: d" }, { a = { "b", "c\n" } }, { a = "b\0" }, { ["a\r\n"] = "b" },
        { ["a b"] = "c" }, { [""] = "a" }, { [1] = "a" }, { a = true }, { host = "a\r\nb: c" }, { host = "a b" },
        { host = "" }, { host = { "a", "b" } }, { host = "a@b" }, { ["content-length"] = "1" },
        { Connection = "close" }, { ["transfer-encoding"] = "chunked" } } do
        assert.has_error(function() client:request(url, { headers = headers }) end)
        assert.has_error(function() client:open(url, { headers = headers }) end)
        assert.has_error(function() http.client { headers = headers } end)
      end
      for _, method in ipairs { "A B", "A\r\n", "", "CONNECT" } do
        assert.has_error(function() client:request(url, { method = method }) end)
      end
      assert.matches("<0 connections>", tostring(client))
    end)

    it("whose headers have no blanks at their ends, which HTTP/2 does not allow", function()
      local seen
      server:handle("GET", "/seen", function(request)
        seen = request.headers.a
        return ""
      end)
      for _, protocol in ipairs { "h1", "h2" } do
        local own = keep(http.client { protocol = protocol })
        for sent, expected in pairs { [" b\t c \t"] = "b\t c", ["\t "] = "", [""] = "" } do
          assert.equal(200, assert(own:request(url .. "/seen", { headers = { a = sent } })).status)
          assert.equal(expected, seen)
        end
      end
    end)

    it("with a body of any size, whole or in parts", function()
      for _, size in ipairs { 0, 1, 1000, 3 * MIB } do
        local answer = assert(client:request(url .. "/echo", { body = ("x"):rep(size) }))
        assert.same({ 201, size, "a, b" }, { answer.status, #answer.body, answer.headers.kind })
      end
      local n = 0
      local answer = assert(client:request(url .. "/echo", { body = function()
        n = n + 1
        return n <= 50 and ("y"):rep(n * 1000) or nil
      end }))
      assert.equal(50 * 51 / 2 * 1000, #answer.body)
    end)

    it("whose answer has no body", function()
      server:handle("PUT", "/none", function() return 204 end)
      assert.same({ 204, "" }, { client:request(url .. "/none", { method = "PUT" }).status,
        client:request(url .. "/none", { method = "PUT" }).body })
      local answer = assert(client:request(url .. "/hello/you", { method = "HEAD" }))
      assert.same({ 200, "", "9" }, { answer.status, answer.body, answer.headers["content-length"] })
    end)

    it("whose status is not an error", function()
      assert.equal(404, client:request(url .. "/missing").status)
      assert.equal(405, client:request(url .. "/hello/x", { method = "DELETE" }).status)
    end)
  end)

  it("streams both bodies, with backpressure", function()
    local n_read = 0
    server:handle("POST", "/upper", function(request)
      request:answer(200)
      for part in request.read, request do
        n_read = n_read + #part
        request:write(part:upper())
      end
    end)
    run(function()
      local exchange = assert(client:open(url .. "/upper", { method = "POST" }))
      assert(exchange:write "one")
      assert.equal(200, exchange:answer().status)
      assert.equal("ONE", exchange:read())
      assert.equal("timeout", code(exchange:read(0.01)))
      assert(exchange:write "two")
      assert.equal("TWO", exchange:read())
      local writer = keywatch.spawn(function()
        for _ = 1, 64 do assert(exchange:write(("x"):rep(MIB / 4))) end
        exchange:finish()
      end)
      keywatch.sleep(0.1)
      assert.is_true(n_read < 8 * MIB, n_read)
      local size = 0
      for part in exchange:parts() do size = size + #part end
      assert(writer:join())
      assert.equal(16 * MIB, size)
      assert.same({}, exchange:trailers())
      assert.matches("over", tostring(exchange))
      assert.is_nil(exchange:read())
    end)
    assert.equal(200, client:request(url .. "/hello/you").status)
    assert.matches("<1 connections>", tostring(client))
  end)

  it("raises if a streamed body does not have the length that was given", function()
    for _, protocol in ipairs { "h1", "h2" } do
      local own = keep(http.client { protocol = protocol })
      local exchange = keep(assert(own:open(url .. "/echo", { method = "POST", length = 5 })))
      assert.has_error(function() exchange:write "hello!" end)
      assert(exchange:write "hel")
      assert.has_error(function() exchange:write "lo!" end)
      assert.has_error(function() exchange:finish() end)
      assert(exchange:write "lo")
      exchange:finish()
      assert.equal("hello", exchange:read())
      exchange = keep(assert(own:open(url .. "/none", { method = "POST", length = 5 })))
      assert.equal(404, exchange:answer().status)
      for _ in exchange:parts() do end -- the answer is complete before the request
      exchange:finish()
    end
  end)

  describe("uses connections again:", function()
    it("one after the other, up to a bound", function()
      local peers = {}
      server:handle("GET", "/peer", function(request)
        peers[request.peer] = true
        keywatch.sleep(0.01)
        return "x"
      end)
      client = keep(http.client { max_per_host = 3 })
      run(function()
        local tasks = {}
        for i = 1, 30 do tasks[i] = keywatch.spawn(function() return client:request(url .. "/peer") end) end
        assert(keywatch.join(tasks))
      end)
      local n = 0
      for _ in pairs(peers) do n = n + 1 end
      assert.equal(3, n)
    end)

    it("those to other origins make room", function()
      local _, other = serve()
      client = keep(http.client { max_connections = 1 })
      for _ = 1, 3 do
        assert(client:request(url .. "/hello/you"))
        assert.equal(404, client:request(other .. "/x").status)
        assert.matches("<1 connections>", tostring(client))
      end
    end)

    it("those that the server has closed are not used", function()
      assert(client:request(url .. "/hello/you"))
      server:close()
      assert.equal("unavailable", code(client:request(url .. "/hello/you")))
      server = serve { listen = url }
      assert.equal(404, client:request(url .. "/hello/you").status)
    end)

    it("idle ones are closed after a while", function()
      client = keep(http.client { idle_timeout = 0.05 })
      assert(client:request(url .. "/hello/you"))
      assert.matches("<1 connections>", tostring(client))
      turn_until(function() return tostring(client):find "<0 connections>" end)
      assert.matches("<0 connections>", tostring(client))
    end)
  end)

  describe("gives up", function()
    it("when the request takes too long, and says what took too long", function()
      local answer, err = client:request(url .. "/sleep/9000", { timeout = 0.3 })
      assert.is_nil(answer)
      assert.equal("timeout", err.code)
      assert.matches("GET http://127.0.0.1:%d+/sleep/9000: the answer took too long", err.message)
      client = keep(http.client { max_per_host = 1 })
      run(function()
        local first = keywatch.spawn(function() return client:request(url .. "/sleep/1000") end)
        keywatch.sleep(0.02)
        local _, late = client:request(url .. "/hello/you", { timeout = 0.2 })
        assert.same({ "timeout", true }, { late.code, late.message:find("all in use", 1, true) ~= nil })
        assert.equal("slept", select(2, first:join()).body)
        assert.equal("hello you", client:request(url .. "/hello/you").body)
      end)
    end)

    it("when no byte moves for too long", function()
      server:handle("GET", "/stuck", function(request)
        request:write "begun"
        keywatch.sleep(10)
      end)
      local _, err = client:request(url .. "/stuck", { stall = 0.3 })
      assert.equal("timeout", err.code)
      assert.matches("the body of the answer: no byte has moved for 0.3 s", err.message)
    end)

    it("a body that is too large", function()
      server:handle("GET", "/large", function() return ("x"):rep(1001) end)
      assert.equal("answer_too_large", code(client:request(url .. "/large", { max_body = 1000 })))
      assert.equal(1001, #client:request(url .. "/large", { max_body = 1001 }).body)
    end)

    it("when its task is cancelled", function()
      local ended
      server:handle("GET", "/long", function()
        local ok, err = pcall(keywatch.sleep, 10)
        ended = not ok and err.code
      end)
      run(function()
        local task = keywatch.spawn(function() return client:request(url .. "/long") end)
        keywatch.sleep(0.02)
        task:cancel()
        assert.equal("cancelled", select(2, task:join()).code)
        keywatch.sleep(0.05)
        assert.matches("<0 connections>", tostring(client))
      end)
      turn_until(function() return ended end)
      assert.equal("cancelled", ended)
    end)

    it("when it is closed", function()
      run(function()
        local task = keywatch.spawn(function() return client:request(url .. "/sleep/1000") end)
        keywatch.sleep(0.02)
        client:close()
        local _, _, err = task:join()
        assert.equal("closed", err.code)
        assert.equal("closed", code(client:request(url)))
      end)
    end)
  end)

  it("reports why there is no connection", function()
    local _, err = client:request "http://127.0.0.1:1/"
    assert.equal("unavailable", err.code)
    assert.matches("http://127.0.0.1:1: connection refused", err.message)
    assert.equal("unavailable", code(client:request "http://no.such.host.invalid/"))
    for _, wrong in ipairs { "", "ftp://a/", "http://", "http://a b/", "http://a/ b", "http://u@a/", "http://a:0/",
      "http://a:70000/", "http://a/%zz", "http://[::1/" } do
      assert.equal("invalid_argument", code(client:request(wrong)), wrong)
    end
  end)

  it("leaves no connection behind when exchanges and clients are garbage", function()
    local ended = 0
    server:handle("GET", "/long", function(request)
      request:write "begun"
      pcall(keywatch.sleep, 10)
      ended = ended + 1
    end)
    run(function()
      assert(client:open(url .. "/long")):answer()
      assert(http.client {}:open(url .. "/long")):answer()
    end)
    turn_until(function()
      collectgarbage()
      return ended == 2 and tostring(client):find "<0 connections>"
    end)
    assert.equal(2, ended)
    assert.matches("<0 connections>", tostring(client))
  end)

  describe("with TLS", function()
    local function serve_tls(options)
      local tls = { ca = options and options.ca }
      tls.cert, tls.key = certificates.paths "server"
      server, url = serve { listen = "https://127.0.0.1:0", tls = tls }
      server:handle("GET", "/see", function(request) return request.scheme .. " " .. tostring(request.common_name) end)
      server:handle("POST", "/echo", function(request) return request:body(64 * MIB) end)
    end

    it("trusts the authorities that it is given", function()
      serve_tls()
      local _, refused = client:request(url .. "/see")
      assert.equal("unavailable", refused.code)
      assert.matches("certificate", refused.message)
      for _, tls in ipairs { { ca = path "ca.pem" }, { verify = false } } do
        client = keep(assert(http.client { tls = tls }))
        for _ = 1, 2 do assert.equal("https nil", assert(client:request(url .. "/see")).body) end
        assert.equal(3 * MIB, #assert(client:request(url .. "/echo", { body = ("x"):rep(3 * MIB) })).body)
        assert.matches("<1 connections>", tostring(client))
      end
      local _, err = http.client { tls = { ca = path "missing.pem" } }
      assert.equal("failed_precondition", err.code)
    end)

    it("shows its certificate", function()
      serve_tls { ca = path "ca.pem" }
      local cert, key = certificates.paths "alice"
      client = keep(assert(http.client { tls = { ca = path "ca.pem", cert = cert, key = key } }))
      assert.equal("https alice", assert(client:request(url .. "/see")).body)
      client = keep(assert(http.client { tls = { ca = path "ca.pem" } }))
      assert.equal("unavailable", code(client:request(url .. "/see")))
    end)
  end)
end)
