--- The client's side of an HTTP/1.1 connection, with well-behaved and malicious servers. Only probe builds expose it.

local http1 = require "spec.support.http1"
local probed = require "spec.support.probed"

local probe = probed.get("an HTTP/1.1 client")
if not probe then return end

local head = http1.head

local ANSWER = head("HTTP/1.1 200 OK", "Content-Length: 2") .. "hi"
local CHUNKED = head("HTTP/1.1 200 OK", "Transfer-Encoding: chunked")
local EVENTS = { "200 length 2\nContent-Length: 2", "body hi", "end", "close" }

describe("a request of an HTTP/1.1 client", function()
  local client
  before_each(function() client = http1.client() end)
  after_each(function() client.raw:free() end)

  local function sent(request)
    assert.is_true(client.raw:request(request))
    return client:flush()
  end

  it("has a head, and no body", function()
    assert.equal("GET /a?b HTTP/1.1\r\nhost: h:1\r\nc: d\r\n\r\n",
      sent { path = "/a?b", authority = "h:1", fields = { "c", "d" } })
    assert.is_false(client.raw:write("a"))
    assert.is_false(client.raw:finish())
  end)

  it("has a body of length 0 if the method usually has a body", function()
    assert.equal("POST / HTTP/1.1\r\nhost: host\r\ncontent-length: 0\r\n\r\n", sent { method = "POST" })
  end)

  it("has a body of a length", function()
    assert.equal("PUT / HTTP/1.1\r\nhost: host\r\ncontent-length: 5\r\n\r\n", sent { method = "PUT", length = 5 })
    assert.is_true(client.raw:write("he"))
    assert.is_false(client.raw:write("llo!"))
    assert.is_true(client.raw:write("llo"))
    assert.is_true(client.raw:finish())
    assert.equal("hello", client:flush())
  end)

  it("has a body in chunks, and trailers", function()
    assert.equal("PUT / HTTP/1.1\r\nhost: host\r\ntransfer-encoding: chunked\r\n\r\n",
      sent { method = "PUT", length = -1 })
    assert.is_true(client.raw:write("hello"))
    assert.is_true(client.raw:finish { "a", "b" })
    assert.equal("5\r\nhello\r\n0\r\na: b\r\n\r\n", client:flush())
  end)

  it("is refused if it has invalid parts, which could inject another request", function()
    for _, request in ipairs { { method = "" }, { method = "A B" }, { method = "CONNECT" }, { path = "" },
      { path = "a" }, { path = "/a b" }, { path = "/\r\nb" }, { path = "/a/../b" }, { path = "*" }, { authority = "" },
      { authority = "a b" }, { authority = "a\r\n" }, { upgrade = "\n" }, { fields = { "a", "\r\nb" } },
      { fields = { "host", "a" } }, { fields = { "content-length", "1" } }, { length = -2 } } do
      assert.is_false(client.raw:request(request))
    end
    assert.equal("", client:flush())
  end)

  it("must wait for the answer to the previous one", function()
    for _ = 1, 3 do
      sent {}
      assert.is_false(client.raw:request {})
      client:feed(ANSWER)
      assert.same(EVENTS, client:events())
    end
    client:close()
    assert.is_false(client.raw:request {})
    assert.is_true(client:is_done())
  end)

  it("fails if its body is shorter than its length", function()
    sent { method = "PUT", length = 5 }
    client.raw:write("he")
    assert.is_false(client.raw:finish())
    client:flush()
    assert.same({ "close: the body that was sent is shorter than its length" }, client:events())
  end)
end)

--- Feeds a client with an answer that is split at these offsets, and then with the end of the connection. Returns its
-- events, why it has ended, and whether it could have sent another request before that.
local function take(bytes, offsets, request, options)
  local client = http1.client(options)
  assert(client.raw:request(request or {}))
  client:flush()
  client:feed(bytes, offsets)
  local is_open = not client:is_done()
  client:close()
  local result = { events = client:events(), why = client:why(), is_open = is_open }
  client.raw:free()
  return result
end

describe("an answer to an HTTP/1.1 client", function()
  local CLOSED = "the server closed the connection"

  for what, case in pairs {
    ["of a length"] = { ANSWER, EVENTS },
    ["without a body"] = { head("HTTP/1.1 204 No Content"), { "204 length 0", "end", "close" } },
    ["not modified"] = { head("HTTP/1.1 304 Not Modified", "Content-Length: 7"),
      { "304 length 0\nContent-Length: 7", "end", "close" } },
    ["to HEAD"] = { head("HTTP/1.1 200 OK", "Content-Length: 7"),
      { "200 length 0\nContent-Length: 7", "end", "close" }, { method = "HEAD" } },
    ["to HEAD, with chunks"] = { CHUNKED,
      { "200 length 0", "end", "close" }, { method = "HEAD" } },
    ["in chunks"] = { CHUNKED .. "1\r\nh\r\n1;x\r\ni\r\n0\r\na: b\r\n\r\n",
      { "200 length -1", "body hi", "end\na: b", "close" } },
    ["after interim answers"] = { head("HTTP/1.1 100 Continue") .. head("HTTP/1.1 103 Early Hints", "a: b") .. ANSWER,
      { "100 length 0", "103 length 0\na: b", EVENTS[1], EVENTS[2], EVENTS[3], EVENTS[4] } },
    ["of HTTP/1.0 that keeps the connection"] = {
      head("HTTP/1.0 200 OK", "Content-Length: 0", "Connection: keep-alive"),
      { "200 length 0\nContent-Length: 0", "end", "close" } },
  } do
    it("arrives " .. what .. ", wherever it is split", function()
      for i = 0, #case[1] - 1 do
        assert.same({ events = case[2], is_open = true, why = CLOSED }, take(case[1], { i }, case[3]))
      end
    end)
  end

  for what, case in pairs {
    ["has a body without a length"] = { head("HTTP/1.1 200 OK") .. "hi",
      { "200 length -1", "body hi", "end", "close" }, true },
    ["is of HTTP/1.0"] = { head("HTTP/1.0 200 OK", "Content-Length: 2") .. "hi", EVENTS },
    ["has the field Connection: close"] = {
      head("HTTP/1.1 200 OK", "Connection: close", "Content-Length: 2") .. "hi", EVENTS },
    ["is followed by other bytes"] = { ANSWER .. "x", EVENTS, false, "the server sent bytes that answer no request" },
    ["is followed by another answer"] = { ANSWER .. ANSWER, EVENTS, false,
      "the server sent bytes that answer no request" },
    ["has a body after status 204"] = { head("HTTP/1.1 204 No Content", "Content-Length: 2") .. "hi",
      { "204 length 0\nContent-Length: 2", "end", "close" }, false, "the server sent bytes that answer no request" },
  } do
    it("ends the connection if it " .. what .. ", wherever it is split", function()
      for i = 0, #case[1] - 1 do
        local result = take(case[1], { i })
        assert.same(case[2], result.events)
        assert.equal(case[3] or false, result.is_open)
        assert.equal(case[4] or "", result.why)
      end
    end)
  end

  for bytes, why in pairs {
    [""] = CLOSED .. " without an answer",
    ["HTTP/1.1 200"] = CLOSED .. " within a head",
    [head("HTTP/1.1 100 Continue")] = CLOSED .. " without an answer",
    [ANSWER:sub(1, -2)] = CLOSED .. " after 1 of 2 bytes of the body",
    [CHUNKED .. "5\r\nhe"] = CLOSED .. " within the body, after 2 bytes",
    [CHUNKED .. "0\r\n"] = CLOSED .. " within the body, after 0 bytes",
    [CHUNKED .. "x"] = "the answer is refused: a chunk is not valid",
    [head("HTTP/1.1 100 Continue"):rep(17)] = "the answer is refused: there are too many interim answers",
    [head("HTTP/1.1 200 OK", "Content-Length: 101") .. ("x"):rep(101)] =
      "the answer is refused: the body is too large",
    [head("HTTP/1.1 200 OK") .. ("x"):rep(101)] = "the answer is refused: the body is too large",
    [head("HTTP/1.1 200 OK", ("a"):rep(2000) .. ": b")] = "the answer is refused: the head is too large",
    [("x"):rep(2000)] = "the answer is refused: the first line is too long",
    [head("HTTP/1.1 200 OK", ("a: b\r\n"):rep(101) .. "c: d")] = "the answer is refused: there are too many fields",
  } do
    it(("fails after %q"):format(bytes:sub(1, 70)), function()
      local options = { max_body = 100, max_head = 1900, max_line = 1000 }
      for i = 0, #bytes - 1, 7 do
        local result = take(bytes, { i }, nil, options)
        assert.equal(why, result.why)
        assert.equal("close: " .. why, result.events[#result.events])
      end
    end)
  end

  it("counts as missing until its first byte", function()
    local client = http1.client()
    assert.is_false(client.raw:is_unanswered())
    client.raw:request {}
    assert.is_true(client.raw:is_unanswered())
    client:feed("H")
    assert.is_false(client.raw:is_unanswered())
    client.raw:free()
  end)

  it("ends the connection if it is complete before the request is", function()
    local client = http1.client()
    client.raw:request { method = "PUT", length = 5 }
    client:feed(ANSWER)
    assert.same(EVENTS, client:events())
    assert.equal("the server answered before the request was complete", client:why())
    assert.is_true(client:is_done())
    client.raw:free()
  end)

  it("ends the connection if bytes of the request were not sent, and drops these", function()
    local client = http1.client()
    client.raw:request { method = "PUT", length = 5 }
    client.raw:write("hello")
    client:feed(ANSWER)
    assert.same(EVENTS, client:events())
    assert.equal("the server answered before the request was complete", client:why())
    assert.equal("", client:flush())
    assert.is_true(client:is_done())
    client.raw:free()
  end)

  it("may arrive once all bytes of the request are sent", function()
    local client = http1.client()
    client.raw:request { method = "PUT", length = 5 }
    client.raw:write("hello")
    client:flush()
    client:feed(ANSWER)
    assert.same(EVENTS, client:events())
    assert.is_false(client:is_done())
    assert.is_true(client.raw:request {})
    client.raw:free()
  end)

  it("may begin before the end of the request", function()
    local client = http1.client()
    client.raw:request { method = "PUT", length = -1 }
    client:feed(ANSWER:sub(1, -2))
    client.raw:write("a")
    client.raw:finish()
    client:flush()
    client:feed("i")
    assert.same(EVENTS, client:events())
    assert.is_false(client:is_done())
    client.raw:free()
  end)

  it("without a request ends the connection", function()
    local client = http1.client()
    client:feed(head("HTTP/1.1 408 Request Timeout"))
    assert.equal("the server sent bytes that answer no request", client:why())
    assert.is_true(client:is_done())
    client.raw:free()
  end)

  it("waits while the owner pauses", function()
    local client = http1.client()
    client.raw:request {}
    client:feed(ANSWER:sub(1, -3))
    client.raw:pause()
    assert.is_false(client:wants_bytes())
    client:feed("hi")
    assert.equal(1, #client:events())
    client.raw:resume()
    client:flush()
    assert.same({ "body hi", "end", "close" }, client:events())
    client.raw:free()
  end)
end)

describe("an upgrade by an HTTP/1.1 client", function()
  local SWITCH = head("HTTP/1.1 101 Switching Protocols", "Connection: upgrade", "Upgrade: echo")

  it("takes over both directions of the connection", function()
    local client = http1.client()
    client.raw:request { upgrade = "echo" }
    assert.equal("GET / HTTP/1.1\r\nhost: host\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n", client:flush())
    client:feed(SWITCH .. "\n\n")
    assert.same({ "101 length 0 upgrade echo", "body \n\n" }, client:events())
    assert.is_true(client.raw:write("\0"))
    assert.equal("\0", client:feed("HTTP/1.1 200 OK\r\n\r\n"))
    client:close()
    assert.same({ "body HTTP/1.1 200 OK\r\n\r\n", "end" }, client:events())
    assert.is_true(client.raw:finish())
    client:flush()
    assert.same({ "close" }, client:events())
    assert.is_true(client:is_done())
    client.raw:free()
  end)

  it("may be declined", function()
    local client = http1.client()
    client.raw:request { upgrade = "echo" }
    client:flush()
    client:feed(ANSWER)
    assert.same(EVENTS, client:events())
    assert.is_false(client:is_done())
    client.raw:free()
  end)

  it("is refused before the end of the request", function()
    local client = http1.client()
    client.raw:request { method = "PUT", length = -1, upgrade = "echo" }
    client:feed(SWITCH)
    assert.same({ "close: the answer is refused: status 101 answers no offer of another protocol" }, client:events())
    client.raw:free()
  end)
end)
