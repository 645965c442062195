--- The limits of an HTTP/1.1 connection: sizes, times and memory. Only probe builds expose them.

local http1 = require "spec.support.http1"
local probed = require "spec.support.probed"

local probe = probed.get("HTTP/1.1 limits")
if not probe then return end

local head, get, status = http1.head, http1.get, http1.status

local POST, HOST = "POST / HTTP/1.1", "Host: h"

--- The status with which a server answers bytes that are split at these offsets, or nil; and how much it held.
local function ask(options, bytes, offsets)
  local server = http1.server(options)
  local sent, memory = server:feed(bytes, offsets), server:memory()
  server.raw:free()
  return status(sent), memory
end

describe("an HTTP/1.1 size limit", function()
  --- Expects that bytes are accepted, and refused with a status if they are one byte longer, wherever they are split.
  local function expect_edge(options, expected, make)
    for i = 0, 60 do
      assert.is_nil((ask(options, make(0), { i })))
      assert.equal(expected, (ask(options, make(1), { i })))
    end
  end

  it("applies to the first line", function()
    expect_edge({ max_line = 50 }, 414, function(more) return get("/" .. ("a"):rep(50 - 15 + more)) end)
    assert.equal(414, (ask({ max_line = 50 }, ("a"):rep(60))))
    assert.is_nil((ask({ max_line = 50 }, ("a"):rep(51))))
  end)

  it("applies to a head", function()
    expect_edge({ max_head = 100 }, 431, function(more)
      return head("GET / HTTP/1.1", HOST, "a: " .. ("b"):rep(100 - 16 - 9 - 7 + more))
    end)
    assert.equal(431, (ask({ max_head = 100 }, "GET / HTTP/1.1\r\n" .. ("b"):rep(85))))
  end)

  it("applies to the number of fields", function()
    local function fields(n) return "GET / HTTP/1.1\r\n" .. HOST .. "\r\n" .. ("a: b\r\n"):rep(n) end
    for _, i in ipairs { 0, 1, 100, 620, 626, 627 } do
      assert.is_nil((ask({}, fields(99) .. "\r\n", { i })))
      assert.equal(431, (ask({}, fields(100) .. "\r\n", { i })))
    end
  end)

  it("applies to trailers", function()
    local chunked = head(POST, HOST, "Transfer-Encoding: chunked")
    local function trailers(n) return chunked .. "0\r\n" .. ("a: b\r\n"):rep(n) .. "\r\n" end
    assert.is_nil((ask({}, trailers(100))))
    assert.equal(431, (ask({}, trailers(101))))
    assert.equal(431, (ask({ max_head = 100 }, trailers(17))))
  end)

  it("applies to a body with a length", function()
    assert.is_nil((ask({ max_body = 5 }, head(POST, HOST, "Content-Length: 5"))))
    assert.equal(413, (ask({ max_body = 5 }, head(POST, HOST, "Content-Length: 6"))))
  end)

  it("applies to a body in chunks", function()
    local chunked = head(POST, HOST, "Transfer-Encoding: chunked")
    assert.is_nil((ask({ max_body = 5 }, chunked .. "3\r\nabc\r\n2\r\nde\r\n")))
    assert.equal(413, (ask({ max_body = 5 }, chunked .. "3\r\nabc\r\n3\r\ndef")))
    assert.equal(413, (ask({ max_body = 5 }, chunked .. "FFFFFFFFFFFFFF\r\nabcdef")))
  end)

  it("can be set by the owner for one body", function()
    local server = http1.server { max_body = 5 }
    server:feed(head(POST, HOST, "Transfer-Encoding: chunked"))
    server.raw:limit(2)
    assert.equal(413, status(server:feed("3\r\nabc\r\n")))
    assert.equal("close: the body is too large", table.remove(server:events()))
    server.raw:free()
  end)

  it("can be set by a client for one answer", function()
    local client = http1.client()
    client.raw:request {}
    client.raw:limit(2)
    client:feed(head("HTTP/1.1 200 OK", "Content-Length: 3"))
    assert.equal("the answer is refused: the body is too large", client:why())
    client.raw:free()
  end)

  it("applies to the bytes of chunk extensions", function()
    local chunked = head(POST, HOST, "Transfer-Encoding: chunked")
    assert.is_nil((ask({}, chunked .. ("1;%s\r\na\r\n"):format(("x"):rep(1000)):rep(4))))
    assert.equal(400, (ask({}, chunked .. ("1;%s\r\na\r\n"):format(("x"):rep(1000)):rep(5))))
  end)

  it("ends an exchange whose answer has begun, when it is exceeded", function()
    local server = http1.server { max_body = 5 }
    server:feed(head(POST, HOST, "Transfer-Encoding: chunked"))
    server.raw:answer { status = 200, length = -1 }
    server.raw:write("a")
    local sent = server:feed("6\r\nabcdef\r\n")
    assert.matches("\r\n\r\n1\r\na\r\n$", sent)
    assert.equal("close: the body is too large", table.remove(server:events()))
    server.raw:free()
  end)
end)

describe("an HTTP/1.1 timeout", function()
  local server
  before_each(function()
    server = http1.server { now = 1000, first_byte_ms = 10, head_ms = 20, body_ms = 30, idle_ms = 40, stall_ms = 50,
      linger_ms = 60, gone_ms = 70 }
  end)
  after_each(function() server.raw:free() end)

  --- Expects that a timeout passes in `ms`, and not before. Returns the bytes that are then sent.
  local function expect_end(ms, why)
    assert.equal(ms, server:due())
    server.raw:step(server.now + ms - 1)
    assert.equal("", server.raw:take(nil, server.now))
    assert.equal("", server:why())
    local sent = server:wait(ms)
    assert.equal(why, server:why())
    return sent
  end

  it("bounds the wait for the first byte", function()
    assert.equal("", expect_end(10, "the connection was idle for too long"))
    assert.is_true(server:is_done())
  end)

  it("bounds the time from the first byte of a head to the last", function()
    server:wait(9)
    server:feed("GET")
    server:wait(15)
    server:feed(" / HTTP/1.1\r\n")
    assert.equal(408, status(expect_end(5, "the head did not arrive in time")))
    assert.is_false(server:is_done())
    assert.equal(60, server:due())
    server:wait(60)
    assert.is_true(server:is_done())
  end)

  it("bounds the wait between bytes of a body", function()
    server:feed(head(POST, HOST, "Content-Length: 5"))
    server:wait(29)
    server:feed("a")
    assert.equal(408, status(expect_end(30, "the body did not arrive in time")))
    assert.equal("close: the body did not arrive in time", table.remove(server:events()))
  end)

  it("bounds the wait between bytes of trailers", function()
    server:feed(head(POST, HOST, "Transfer-Encoding: chunked") .. "0\r\na")
    assert.equal(408, status(expect_end(30, "the body did not arrive in time")))
  end)

  it("does not run while the owner pauses, or has not answered", function()
    server:feed(head(POST, HOST, "Content-Length: 5"))
    server.raw:pause()
    assert.is_nil(server:due())
    server:wait(1000)
    server.raw:resume()
    server:flush()
    assert.equal(30, server:due())
    server:feed("hello")
    assert.is_nil(server:due())
  end)

  it("bounds the wait between two requests", function()
    server:feed(get())
    server:wait(100)
    server:reply("")
    assert.equal("", expect_end(40, "the connection was idle for too long"))
    assert.is_true(server:is_done())
  end)

  it("between two requests begins when the answer was read", function()
    server:feed(get())
    server.raw:answer { status = 200, length = 0 }
    server.raw:finish()
    server.raw:flush(server.now)
    assert.equal(50, server:due())
    server.now = server.now + 45
    server.raw:take(nil, server.now)
    assert.equal(40, server:due())
  end)

  it("bounds the time in which a client reads nothing", function()
    server:feed(get())
    server.raw:answer { status = 200, length = 5 }
    server.raw:write("hello")
    server.raw:finish()
    server.raw:flush(server.now)
    assert.equal(50, server:due())
    server.now = server.now + 49
    server.raw:take(1, server.now)
    assert.equal(50, server:due())
    server.now = server.now + 50
    server.raw:step(server.now)
    assert.equal("the peer does not read", server:why())
    assert.equal("", server.raw:take())
    assert.is_true(server:is_done())
  end)

  it("bounds the wait of a client that has closed its side for an answer", function()
    server:feed(get("/1") .. get("/2"))
    server:wait(1000)
    server:close()
    assert.equal(70, server:due())
    server:wait(69)
    server:reply("1")
    assert.equal(503, status(expect_end(70, "the client has closed its side, and the answer did not come in time")))
    assert.equal("close: the client has closed its side, and the answer did not come in time",
      table.remove(server:events()))
    assert.is_true(server:is_done())
  end)

  it("bounds the wait of a client that has closed its side for the next part of an answer", function()
    server:feed(get())
    server:close()
    server.raw:answer { status = 200, length = -1 }
    server.raw:write("a")
    server.raw:flush(server.now)
    assert.equal(50, server:due())
    server:wait(40)
    server.raw:write("b")
    server:flush()
    assert.equal("", expect_end(70, "the client has closed its side, and the answer did not come in time"))
    assert.is_true(server:is_done())
  end)

  it("bounds the wait of a client that has closed its side behind bytes that are not read", function()
    server:feed(head(POST, HOST, "Content-Length: 5") .. "he")
    server.raw:pause()
    server.raw:note_gone(server.now)
    assert.equal(70, server:due())
    server:wait(60)
    server.raw:resume()
    server:feed("l")
    assert.equal(30, server:due())
    server.raw:pause()
    assert.equal(503, status(expect_end(70, "the client has closed its side, and the answer did not come in time")))
    local pipelined = http1.server { gone_ms = 70 }
    pipelined:feed(get("/1") .. get("/2"))
    pipelined.raw:note_gone(pipelined.now)
    pipelined:wait(60)
    pipelined:reply("1")
    assert.equal(70, pipelined:due())
    pipelined.raw:free()
  end)

  it("does not exist if it is 0", function()
    local patient = http1.server { first_byte_ms = 0, head_ms = 0, body_ms = 0, idle_ms = 0, stall_ms = 0,
      gone_ms = 0 }
    assert.is_nil(patient:due())
    patient:feed("GET")
    assert.is_nil(patient:due())
    patient:feed(get():sub(4))
    patient:close()
    assert.is_nil(patient:due())
    patient.raw:free()
  end)

  it("ends an exchange of a client", function()
    local client = http1.client { head_ms = 20, body_ms = 30, idle_ms = 40 }
    assert.equal(40, client:due())
    client.raw:request {}
    client:flush()
    assert.is_nil(client:due())
    client:feed("HTTP/1.1 200")
    assert.equal(20, client:due())
    client:feed(" OK\r\nContent-Length: 1\r\n\r\n")
    assert.equal(30, client:due())
    client:wait(30)
    assert.equal("close: the body did not arrive in time", table.remove(client:events()))
    assert.is_true(client:is_done())
    client.raw:free()
    client = http1.client { idle_ms = 40, head_ms = 20 }
    client.raw:request {}
    client:flush()
    client.now = 100
    client:feed(head("HTTP/1.1 100 Continue"))
    assert.is_nil(client:due())
    client:feed(head("HTTP/1.1 204 No Content"))
    assert.equal(40, client:due())
    client.raw:free()
    client = http1.client { head_ms = 20 }
    client.raw:request {}
    client:feed("H")
    client:wait(20)
    assert.same({ "close: the head did not arrive in time" }, client:events())
    client.raw:free()
  end)
end)

describe("an HTTP/1.1 drain", function()
  it("ends an idle connection at once", function()
    local server = http1.server()
    server.raw:drain(100, 0)
    assert.is_true(server:is_done())
    assert.equal("the server is shutting down", server:why())
    server.raw:free()
  end)

  it("waits for an exchange, whose answer closes the connection", function()
    local server = http1.server()
    server:feed(get() .. get())
    server.raw:drain(100, 0)
    assert.equal(100, server:due())
    assert.equal("HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi", server:reply("hi"))
    assert.is_true(server:is_done())
    server.raw:free()
  end)

  it("ends an exchange after a timeout", function()
    local server = http1.server()
    server:feed(get())
    server.raw:drain(100, 0)
    server:wait(100)
    assert.equal("close: the exchange did not end in time", table.remove(server:events()))
    assert.is_true(server:is_done())
    server.raw:free()
  end)
end)

describe("the output of an HTTP/1.1 connection", function()
  it("has a bound, at which the owner waits for space", function()
    local server = http1.server { max_out = 1000 }
    server:feed(get() .. get())
    server.raw:answer { status = 200, length = -1 }
    assert.is_true(server.raw:has_room())
    server.raw:write(("x"):rep(1000))
    assert.is_false(server.raw:has_room())
    server:events()
    server.raw:take(500, 0)
    assert.same({}, server:events())
    server.raw:take(300, 0)
    assert.same({ "room" }, server:events())
    assert.is_true(server.raw:has_room())
    server.raw:free()
  end)

  it("stops a client that sends requests and does not read answers", function()
    local server = http1.server { max_out = 1000, echo = true }
    local sent = 0
    while server:wants_bytes() do
      server.raw:feed(get():rep(10), 0)
      server.raw:check()
      sent = sent + 1
      assert(sent < 100, "there is no bound")
    end
    assert(select(6, server.raw:state()) < 1100, "too much waits")
    local n = 0
    repeat
      local bytes = server.raw:take(100, 0)
      server.raw:check()
      n = n + select(2, bytes:gsub("200 OK", "200 OK")) -- an answer may be split, so at most as many
    until bytes == ""
    assert(n <= sent * 10 and n > sent * 5, "answers are missing")
    assert.is_true(server:wants_bytes())
    server.raw:free()
  end)
end)

describe("the memory of an HTTP/1.1 connection", function()
  it("is small while it is idle, also after large requests", function()
    local server = http1.server { echo = true }
    assert(server:memory() < 1024, server:memory())
    local idle = server:memory()
    server:feed(head(POST, HOST, "Content-Length: 100000") .. ("x"):rep(100000), { 10, 100, 50000 })
    server:feed(get(("/" .. ("x"):rep(8000))), { 4000 })
    assert.equal(idle, server:memory())
    server.raw:free()
  end)

  it("shrinks with the queued input", function()
    local server = http1.server()
    server:feed(get("/" .. ("x"):rep(4000)) .. get("/" .. ("x"):rep(4000)) .. get() .. get())
    server:reply("")
    server:reply("")
    assert(server:memory() < 2000, server:memory())
    server.raw:free()
  end)

  it("is not taken by bytes after a refusal, which are dropped up to a bound", function()
    local server = http1.server()
    server:feed("\n")
    local memory, n = server:memory(), 0
    while server:wants_bytes() do
      server:feed(("x"):rep(10000))
      n = n + 1
    end
    assert.equal(27, n)
    assert(server:memory() <= memory, "the memory grows")
    server.raw:free()
  end)

  it("is bounded while a head arrives", function()
    local server = http1.server()
    for _ = 1, 1000 do
      if not server:wants_bytes() or server:is_done() then break end
      server:feed(("x"):rep(60) .. "\r\n")
    end
    assert(server:memory() < 200000, server:memory())
    server.raw:free()
  end)

  it("ends the connection if the budget of all connections is used up", function()
    local server = http1.server { budget = 2000 }
    server:feed("GET / HTTP/1.1\r\n" .. ("a: b\r\n"):rep(10))
    assert.is_false(server:is_done())
    server:feed(("a: " .. ("b"):rep(4000) .. "\r\n"))
    assert.is_true(server:is_done())
    assert.equal("there is not enough memory", server:why())
    server.raw:free()
  end)
end)
