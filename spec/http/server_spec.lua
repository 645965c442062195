--- The server's side of an HTTP/1.1 connection: requests and their answers. Only probe builds expose it.

local http1 = require "spec.support.http1"
local probed = require "spec.support.probed"

local probe = probed.get("an HTTP/1.1 server")
if not probe then return end

local head, get = http1.head, http1.get

local OK = "HTTP/1.1 200 OK\r\n"
local HOST = "Host: h"

local function post(...) return head("POST / HTTP/1.1", HOST, ...) end
local CHUNKED = post("Transfer-Encoding: chunked")

--- Feeds an echoing server with bytes that are split at these offsets. Returns its events, the sent bytes, and why it
-- has ended.
local function echo(bytes, offsets, options)
  local all = { echo = true }
  for name, value in pairs(options or {}) do all[name] = value end
  local server = http1.server(all)
  local sent = server:feed(bytes, offsets) .. server:close()
  local result = { events = server:events(), sent = sent, why = server:why() }
  server.raw:free()
  return result
end

describe("an answer of an HTTP/1.1 server", function()
  local server
  before_each(function() server = http1.server() end)
  after_each(function() server.raw:free() end)

  local function ask(request)
    server:feed(request)
    return server.raw
  end

  it("has a length, and the connection stays open", function()
    ask(get("/"))
    assert.same({ "GET http h / length 0", "end" }, server:events())
    assert.equal(OK .. "a: b\r\ncontent-length: 2\r\n\r\nhi", server:reply("hi", { fields = { "a", "b" } }))
    assert.same({ "close" }, server:events())
    assert.is_false(server:is_done())
    assert.equal(OK .. "content-length: 0\r\n\r\n", (server:feed(get()) and server:reply("")))
  end)

  it("has chunks if its length is not known, and trailers", function()
    local raw = ask(get("/"))
    assert.is_true(raw:answer { status = 200, length = -1 })
    assert.is_true(raw:write("hello"))
    assert.is_true(raw:write(""))
    assert.is_true(raw:write(("x"):rep(5000), true))
    assert.is_true(raw:finish { "a", "b", "c", "" })
    assert.equal(OK .. "transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n1388\r\n" .. ("x"):rep(5000)
      .. "\r\n0\r\na: b\r\nc: \r\n\r\n", server:flush())
    assert.is_false(server:is_done())
  end)

  it("ends with the connection for HTTP/1.0 if its length is not known, without trailers", function()
    local raw = ask(head("GET / HTTP/1.0", "Connection: keep-alive"))
    assert.is_true(raw:answer { status = 200, length = -1 })
    assert.is_true(raw:write("hi"))
    assert.is_true(raw:finish { "a", "b" })
    assert.equal(OK .. "connection: close\r\n\r\nhi", server:flush())
    assert.is_true(server:is_done())
  end)

  it("closes an HTTP/1.0 connection, unless the client asks to keep it", function()
    ask(head("GET / HTTP/1.0"))
    assert.equal(OK .. "content-length: 2\r\nconnection: close\r\n\r\nhi", server:reply("hi"))
    assert.is_true(server:is_done())
    server.raw:free()
    server = http1.server()
    ask(head("GET / HTTP/1.0", "Connection: Keep-Alive"))
    assert.equal(OK .. "content-length: 2\r\nconnection: keep-alive\r\n\r\nhi", server:reply("hi"))
    assert.is_false(server:is_done())
  end)

  it("closes the connection if the client asks for that", function()
    ask(head("GET / HTTP/1.1", HOST, "Connection: a, Close"))
    assert.equal(OK .. "content-length: 0\r\nconnection: close\r\n\r\n", server:reply(""))
    assert.is_true(server:is_done())
    assert.equal("", server:feed(get()))
  end)

  it("has no body for HEAD, but its length", function()
    ask(head("HEAD / HTTP/1.1", HOST))
    assert.equal(OK .. "content-length: 2\r\n\r\n", server:reply("hi"))
    local raw = ask(head("HEAD / HTTP/1.1", HOST))
    assert.is_true(raw:answer { status = 200, length = 7 })
    assert.is_true(raw:finish())
    assert.equal(OK .. "content-length: 7\r\n\r\n", server:flush())
    raw = ask(head("HEAD / HTTP/1.1", HOST))
    assert.is_true(raw:answer { status = 200, length = -1 })
    assert.is_true(raw:write("hi"))
    assert.is_true(raw:finish { "a", "b" })
    assert.equal(OK .. "\r\n", server:flush())
    assert.is_false(server:is_done())
  end)

  it("has no body with status 204 and 304", function()
    ask(get())
    assert.equal("HTTP/1.1 204 No Content\r\n\r\n", server:reply("hi", { status = 204 }))
    ask(get())
    assert.equal("HTTP/1.1 304 Not Modified\r\ncontent-length: 2\r\n\r\n", server:reply("hi", { status = 304 }))
    ask(get())
    assert.equal("HTTP/1.1 304 Not Modified\r\n\r\n", server:reply("hi", { status = 304, length = -1 }))
    assert.is_false(server:is_done())
  end)

  it("has a status without a text", function()
    ask(get())
    assert.equal("HTTP/1.1 299 \r\ncontent-length: 0\r\n\r\n", server:reply("", { status = 299 }))
  end)

  it("follows interim answers, except for HTTP/1.0", function()
    local raw = ask(get())
    assert.is_true(raw:answer { status = 103, fields = { "link", "a" } })
    assert.equal("HTTP/1.1 103 \r\nlink: a\r\n\r\n" .. OK .. "content-length: 0\r\n\r\n", server:reply(""))
    raw = ask(head("GET / HTTP/1.0"))
    assert.is_true(raw:answer { status = 103, fields = { "link", "a" } })
    assert.equal(OK .. "content-length: 0\r\nconnection: close\r\n\r\n", server:reply(""))
  end)

  it("has the date that the owner gives", function()
    local dated = http1.server { date = "today" }
    dated:feed(get())
    assert.equal(OK .. "date: today\r\ncontent-length: 0\r\n\r\n", dated:reply(""))
    assert.matches("^HTTP/1.1 400 Bad Request\r\ncontent%-type: text/plain\r\ndate: today\r\n", dated:feed("\n"))
    dated.raw:free()
  end)

  it("is refused if a field is invalid, or is one that the engine sets", function()
    local raw = ask(get())
    for _, fields in ipairs { { "a", "b\r\nc: d" }, { "a\r\nb", "c" }, { "a:", "b" }, { "", "b" }, { "a", "b\0" },
      { "a ", "b" }, { "Connection", "close" }, { "content-length", "1" }, { "Transfer-Encoding", "chunked" },
      { "upgrade", "a" }, { "keep-alive", "1" }, { "a", "\n" }, { "a", "\r" } } do
      assert.is_false(raw:answer { status = 200, fields = fields })
    end
    for _, status in ipairs { 99, 600, 0, -1, 101 } do assert.is_false(raw:answer { status = status }) end
    assert.is_false(raw:answer { status = 200, length = -2 })
    assert.is_false(raw:write("a"))
    assert.is_false(raw:finish())
    assert.equal("", server:flush())
    assert.is_true(raw:answer { status = 200, length = -1 })
    assert.is_false(raw:answer { status = 200 })
    assert.is_false(raw:finish { "a", "\r\n" })
    assert.is_true(raw:finish())
    assert.is_false(raw:write("a"))
    assert.is_false(raw:finish())
    assert.equal(OK .. "transfer-encoding: chunked\r\n\r\n0\r\n\r\n", server:flush())
  end)

  it("is not longer than its length, and the connection fails if it is shorter", function()
    local raw = ask(get())
    assert.is_true(raw:answer { status = 200, length = 3 })
    assert.is_false(raw:write("long"))
    assert.is_true(raw:write("lo"))
    assert.is_false(raw:write("ng"))
    assert.is_false(raw:finish())
    assert.equal(OK .. "content-length: 3\r\n\r\nlo", server:flush())
    assert.is_true(server:is_done())
    assert.same({ "GET http h / length 0", "end", "close: the body that was sent is shorter than its length" },
      server:events())
  end)

  it("is not needed if the owner ends the connection", function()
    ask(get())
    server.raw:stop("a reason")
    assert.same({ "GET http h / length 0", "end", "close: a reason" }, server:events())
    assert.is_true(server:is_done())
    assert.equal("a reason", server:why())
  end)

  it("may be aborted", function()
    local raw = ask(get())
    raw:abort()
    assert.is_false(raw:answer { status = 200 })
    assert.equal("", server:flush())
    assert.is_true(server:is_done())
    assert.same({ "GET http h / length 0", "end", "close: the exchange was aborted" }, server:events())
  end)
end)

describe("an HTTP/1.1 request over TLS", function()
  it("has the scheme https", function()
    local server = http1.server { is_tls = true }
    server:feed(get())
    assert.equal("GET https h / length 0", server:events()[1])
    server.raw:free()
  end)
end)

describe("the body of a request to an HTTP/1.1 server", function()
  for what, case in pairs {
    ["of a length"] = { post("Content-Length: 5") .. "hello", "hello" },
    ["of no length"] = { post(), "" },
    ["of length 0"] = { post("Content-Length: 0"), "" },
    ["in chunks"] = { CHUNKED .. "5\r\nhello\r\nB\r\n, the 10 be\r\n0\r\n\r\n",
      "hello, the 10 be" },
    ["in many chunks"] = { CHUNKED .. ("01\r\nx\r\n"):rep(20) .. "0\r\n\r\n", ("x"):rep(20) },
    ["in no chunks"] = { CHUNKED .. "0\r\n\r\n", "" },
    ["in a chunk with leading zeros"] = { CHUNKED .. "0000005\r\nhello\r\n00\r\n\r\n", "hello" },
    ["in chunks with extensions"] = { CHUNKED .. '5;a=b; c="d\t;"\r\nhello\r\n0;\r\n\r\n', "hello" },
    ["in chunks, with trailers"] = { CHUNKED .. "5\r\nhello\r\n0\r\nA: b\r\nHost: x\r\n\r\n", "hello",
      "\nA: b" },
    ["with bytes that look like a request"] = { post("Content-Length: 18") .. "GET / HTTP/1.1\r\n\r\n",
      "GET / HTTP/1.1\r\n\r\n" },
  } do
    it("arrives " .. what .. ", wherever it is split", function()
      local bytes, body, trailers = case[1] .. get("/next"), case[2], case[3] or ""
      for i = 0, #bytes - 1 do
        local result = echo(bytes, { i })
        local expected = { body ~= "" and "body " .. body or false, "end" .. trailers, "close",
          "GET http h /next length 0", "end", "close" }
        if body == "" then table.remove(expected, 1) end
        table.remove(result.events, 1)
        assert.same(expected, result.events)
        assert.equal(OK .. ("content-length: %d\r\n\r\n%s"):format(#body, body) .. OK .. "content-length: 0\r\n\r\n",
          result.sent)
      end
    end)
  end

  for what, chunks in pairs {
    ["no digit"] = "\r\nhello", ["a sign"] = "+5\r\nhello\r\n", ["0x"] = "0x5\r\nhello\r\n",
    ["an underscore"] = "0_5\r\n",
    ["a space before the length"] = " 5\r\nhello\r\n", ["a space after the length"] = "5 \r\nhello\r\n",
    ["a bare LF after the length"] = "5\nhello\r\n", ["a bare CR after the length"] = "5\rhello",
    ["a bare LF in an extension"] = "5;a\nhello\r\n", ["a byte 0 in an extension"] = "5;\0\r\nhello",
    ["a bare CR in an extension"] = "5;a\rb\r\nhello", ["a length above 60 bits"] = "1000000000000000\r\n",
    ["a length above 64 bits"] = "10000000000000005\r\nhello\r\n", ["a chunk that is too long"] = "4\r\nhello\r\n",
    ["a chunk that ends with a bare LF"] = "5\r\nhello\n0\r\n\r\n",
    ["a chunk that ends with CR CR"] = "5\r\nhello\r\r\n",
    ["no second length"] = "5\r\nhello\r\n\r\n",
    ["other bytes after a chunk"] = "5\r\nhelloXX0\r\n\r\n", ["a folded trailer"] = "0\r\na: b\r\n c\r\n\r\n",
    ["a trailer without a colon"] = "0\r\na\r\n\r\n", ["a trailer that ends with a bare LF"] = "0\r\na: b\n\r\n",
    ["a bare LF at the end"] = "0\r\n\n",
  } do
    it("is refused with " .. what .. ", wherever it is split", function()
      local bytes = CHUNKED .. chunks
      for i = 0, #bytes - 1 do
        local server = http1.server { echo = true }
        local sent = server:feed(bytes, { i })
        assert.equal(400, http1.status(sent))
        assert.matches("\r\nconnection: close\r\n", sent)
        assert.matches("^close: ", table.remove(server:events()))
        assert.is_true(server:wants_bytes()) -- and drops them: the client may not have read the answer
        server:wait(1000)
        assert.is_true(server:is_done())
        server.raw:free()
      end
    end)
  end

  it("waits while the owner pauses", function()
    local server = http1.server()
    server:feed(post("Content-Length: 10"))
    server.raw:pause()
    assert.is_false(server:wants_bytes())
    server:feed("01234")
    assert.same({ "POST http h / length 10\nContent-Length: 10" }, server:events())
    assert.is_nil(server:due()) -- the client is not to blame
    server.raw:resume()
    server:flush()
    assert.same({ "body 01234" }, server:events())
    assert.is_true(server:wants_bytes())
    server:feed("56789" .. get())
    assert.same({ "body 56789", "end" }, server:events())
    server.raw:free()
  end)

  it("waits with its trailers", function()
    local server = http1.server()
    server:feed(CHUNKED .. "0\r\na: b\r\n")
    server:events()
    server.raw:pause()
    server:feed("\r\n")
    assert.same({}, server:events())
    server.raw:resume()
    server:flush()
    assert.same({ "end\na: b" }, server:events())
    server.raw:free()
  end)

  it("waits also if it is empty", function()
    local server = http1.server { pause = true }
    server:feed(get())
    assert.same({ "GET http h / length 0" }, server:events())
    server.raw:resume()
    server:flush()
    assert.same({ "end" }, server:events())
    server.raw:free()
  end)

  it("is dropped after the answer, and the connection stays open", function()
    local server = http1.server()
    for _, body in ipairs { "Content-Length: 5", "Transfer-Encoding: chunked" } do
      server:feed(post(body))
      server:events()
      assert.equal(OK .. "content-length: 2\r\n\r\nno", server:reply("no"))
      assert.same({ "close" }, server:events())
      server:feed((body:find("Length") and "hello" or "5\r\nhello\r\n0\r\n\r\n") .. get("/next"))
      assert.same({ "GET http h /next length 0", "end" }, server:events())
      server:reply("yes")
      server:events()
    end
    server.raw:free()
  end)

  it("is not read after the answer if it is long, which the answer says", function()
    local server = http1.server()
    server:feed(post("Content-Length: 70000"))
    assert.equal(OK .. "content-length: 2\r\nconnection: close\r\n\r\nno", server:reply("no"))
    assert.is_true(server:wants_bytes())
    assert.equal("", server:feed(get()))
    assert.same({ "POST http h / length 70000\nContent-Length: 70000", "close" }, server:events())
    server:wait(1000)
    assert.is_true(server:is_done())
    server.raw:free()
  end)

  it("is not read after the answer if it has many chunks", function()
    local server = http1.server()
    server:feed(CHUNKED)
    server:reply("no")
    for _ = 1, 7 do server:feed("2710\r\n" .. ("x"):rep(10000) .. "\r\n") end
    server:wait(1000)
    assert.is_true(server:is_done())
    server.raw:free()
  end)
end)

describe("status 100 of an HTTP/1.1 server", function()
  local EXPECT = post("Content-Length: 5", "Expect: 100-Continue")
  local server
  before_each(function() server = http1.server() end)
  after_each(function() server.raw:free() end)

  it("is sent before a body", function()
    assert.equal("HTTP/1.1 100 Continue\r\n\r\n", server:feed(EXPECT))
    assert.equal("", server:feed("hello"))
    assert.equal(OK .. "content-length: 2\r\n\r\nhi", server:reply("hi"))
    assert.is_false(server:is_done())
  end)

  it("is not sent if the body is there, or if there is none, or to HTTP/1.0", function()
    assert.equal("", server:feed(EXPECT .. "hello"))
    server:reply("hi")
    assert.equal("", server:feed(head("GET / HTTP/1.1", HOST, "Expect: 100-continue")))
    server:reply("hi")
    assert.equal("", server:feed(head("POST / HTTP/1.0", "Content-Length: 5", "Expect: 100-continue")))
  end)

  it("is not sent if the body is too large", function()
    server.raw:free()
    server = http1.server { max_body = 4 }
    assert.equal(413, http1.status(server:feed(EXPECT)))
  end)

  it("is not sent after an answer, which closes the connection", function()
    local eager = http1.server { refuse = 401 }
    assert.equal("HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\nconnection: close\r\n\r\n", eager:feed(EXPECT))
    assert.is_true(eager:wants_bytes())
    eager:feed("hello" .. get())
    assert.same({ "POST http h / length 5\nContent-Length: 5\nExpect: 100-Continue", "close" }, eager:events())
    eager:close()
    assert.is_true(eager:is_done())
    eager.raw:free()
    eager = http1.server { refuse = 401 }
    eager:feed(EXPECT)
    eager:wait(1000) -- the client need not send the body
    assert.is_true(eager:is_done())
    eager.raw:free()
  end)

  it("may be sent by an owner that pauses", function()
    local paused = http1.server { pause = true }
    paused:feed(EXPECT)
    assert.is_true(paused.raw:answer { status = 100 })
    assert.equal("HTTP/1.1 100 Continue\r\n\r\n", paused:flush())
    paused.raw:resume()
    assert.equal("", paused:flush())
    paused:feed("hello")
    assert.equal(OK .. "content-length: 0\r\n\r\n", paused:reply(""))
    paused.raw:free()
  end)

  it("waits for an owner that pauses", function()
    local paused = http1.server { pause = true }
    assert.equal("", paused:feed(EXPECT))
    paused.raw:resume()
    assert.equal("HTTP/1.1 100 Continue\r\n\r\n", paused:flush())
    paused.raw:free()
  end)
end)

describe("requests of one HTTP/1.1 connection", function()
  it("are answered in order, one after the other", function()
    local server = http1.server()
    server:feed(get("/1") .. get("/2") .. get("/3"))
    local expected = {}
    for i = 1, 3 do
      table.insert(expected, "GET http h /" .. i .. " length 0")
      table.insert(expected, "end")
      assert.same(expected, server:events())
      server.raw:answer { status = 200, length = 1 }
      assert.equal(OK .. "content-length: 1\r\n\r\n", server:flush())
      assert.same({}, server:events())
      server.raw:write(tostring(i))
      server.raw:finish()
      assert.equal(tostring(i), server:flush())
      expected = { "close" }
    end
    assert.same(expected, server:events())
    server.raw:free()
  end)

  it("wait in the input, up to a bound", function()
    local server = http1.server()
    server:feed(get("/1"))
    assert.is_true(server:wants_bytes())
    server:feed(("x"):rep(4095))
    assert.is_true(server:wants_bytes())
    server:feed("x")
    assert.is_false(server:wants_bytes())
    server.raw:free()
  end)

  it("are answered a limited number in each turn", function()
    local server = http1.server { echo = true, turn = 2, now = 5 }
    local all = {}
    for i = 1, 5 do all[i] = get("/" .. i) end
    local _, n = server:feed(table.concat(all)):gsub("HTTP/1.1 200", "")
    assert.equal(2, n)
    assert.is_false(server:wants_bytes())
    assert.equal(0, server:due())
    _, n = server:wait(0):gsub("HTTP/1.1 200", "")
    assert.equal(2, n)
    _, n = server:wait(0):gsub("HTTP/1.1 200", "")
    assert.equal(1, n)
    assert.is_true(server:wants_bytes())
    server.raw:free()
  end)

  it("have a limited number, after which the connection closes", function()
    local server = http1.server { echo = true, max_requests = 2 }
    assert.equal(OK .. "content-length: 0\r\n\r\n", server:feed(get()))
    assert.equal(OK .. "content-length: 0\r\nconnection: close\r\n\r\n", server:feed(get() .. get()))
    assert.is_true(server:is_done())
    server.raw:free()
  end)

  it("give the same events and answers, wherever they are split", function()
    local bytes = get("/1") .. "\r\n" .. post("Content-Length: 3") .. "abc"
      .. post("Transfer-Encoding: chunked") .. "2;x\r\nde\r\n0\r\nt: u\r\n\r\n" .. head("HEAD / HTTP/1.1", HOST)
      .. head("GET /last HTTP/1.1", HOST, "Connection: close") .. get("/never")
    local whole, pieces = echo(bytes), {}
    assert.equal("GET http h /last length 0", whole.events[#whole.events - 2])
    for i = 1, #bytes - 1 do
      assert.same(whole, echo(bytes, { i }))
      pieces[i] = i
    end
    assert.same(whole, echo(bytes, pieces))
  end)
end)

describe("an HTTP/1.1 client that closes its side", function()
  it("still gets its answers", function()
    local result = echo(get("/1") .. get("/2"))
    local _, n = result.sent:gsub(OK, "")
    assert.equal(2, n)
    assert.equal("the client closed the connection", result.why)
  end)

  it("is reported while it waits for an answer", function()
    local server = http1.server()
    server:feed(get("/1") .. get("/2"))
    server:close()
    assert.same({ "GET http h /1 length 0", "end", "gone" }, server:events())
    assert.is_false(server:wants_bytes())
    server:reply("1")
    assert.same({ "close", "GET http h /2 length 0", "end", "gone" }, server:events())
    server:reply("2")
    assert.is_true(server:is_done())
    server.raw:free()
  end)

  for bytes, why in pairs {
    ["GET / HTT"] = "the client closed the connection within a head",
    [post("Content-Length: 5") .. "he"] = "the client closed the connection after 2 of 5 bytes of the body",
    [CHUNKED .. "5\r\nhe"] = "the client closed the connection within the body, after 2 bytes",
    [CHUNKED .. "0\r\na: b\r\n"] = "the client closed the connection within the body, after 0 bytes",
  } do
    it(("is reported after %q"):format(bytes), function()
      local result = echo(bytes)
      assert.equal(why, result.why)
      if #result.events > 0 then assert.equal("close: " .. why, result.events[#result.events]) end
      assert.equal("", result.sent)
    end)
  end
end)

describe("an upgrade by an HTTP/1.1 server", function()
  local OFFER = head("GET / HTTP/1.1", HOST, "Connection: Upgrade", "Upgrade: echo")

  it("takes over both directions of the connection", function()
    local server = http1.server()
    server:feed(OFFER .. "early\n\n")
    assert.is_false(server.raw:answer { status = 101 })
    assert.is_true(server.raw:answer { status = 101, upgrade = "echo", fields = { "a", "b" } })
    assert.equal("HTTP/1.1 101 Switching Protocols\r\na: b\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n",
      server:flush())
    assert.same({ "GET http h / length 0 upgrade echo", "end", "body early\n\n" }, server:events())
    assert.is_true(server.raw:write("\0\1"))
    assert.equal("\0\1", server:feed("GET / HTTP/1.1\r\n\r\n\n"))
    assert.same({ "body GET / HTTP/1.1\r\n\r\n\n" }, server:events())
    server.raw:pause()
    assert.is_false(server:wants_bytes())
    server.raw:resume()
    server:close()
    assert.same({ "end", "gone" }, server:events())
    assert.is_true(server.raw:write("bye"))
    assert.is_true(server.raw:finish())
    assert.equal("bye", server:flush())
    assert.same({ "close" }, server:events())
    assert.is_true(server:is_done())
    server.raw:free()
  end)

  it("may begin at once", function()
    local server = http1.server { switch = true }
    assert.matches("^HTTP/1.1 101 ", server:feed(OFFER .. "x"))
    assert.same({ "GET http h / length 0 upgrade echo", "body x" }, server:events())
    server:close()
    assert.same({ "end", "gone" }, server:events())
    server.raw:free()
  end)

  it("may be declined", function()
    local server = http1.server()
    server:feed(OFFER .. get("/next"))
    assert.equal(OK .. "content-length: 2\r\n\r\nno", server:reply("no"))
    assert.equal("GET http h /next length 0", server:events()[4])
    server.raw:free()
  end)

  it("is not offered by HTTP/1.0, nor without a body that is complete", function()
    local server = http1.server()
    server:feed(head("GET / HTTP/1.0", "Connection: Upgrade", "Upgrade: echo"))
    assert.is_false(server.raw:answer { status = 101, upgrade = "echo" })
    server.raw:free()
    server = http1.server()
    server:feed(post("Connection: Upgrade", "Upgrade: echo", "Content-Length: 1"))
    assert.is_false(server.raw:answer { status = 101, upgrade = "echo" })
    server:feed("x")
    assert.is_true(server.raw:answer { status = 101, upgrade = "echo" })
    server.raw:free()
  end)
end)
