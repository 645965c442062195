--- Heads of requests and answers: which are accepted, and which are refused with which status. Only in probe builds.

local http1 = require "spec.support.http1"
local probed = require "spec.support.probed"

local probe = probed.get("HTTP/1.1 heads")
if not probe then return end

local head = http1.head
local GET, HOST = "GET / HTTP/1.1", "Host: h"

--- Feeds bytes to a server. Returns the first event; or the status of the refusal, and its text.
local function ask(bytes, offsets)
  local server = http1.server()
  local sent = server:feed(bytes, offsets)
  local event = server:events()[1]
  local status, text = http1.status(sent), http1.body(sent)
  server.raw:free()
  return event or status, text
end

--- Feeds bytes to a client as the answer to its request. Returns the events, and why the connection has ended.
local function answer(bytes, offsets, request)
  local client = http1.client()
  assert(client.raw:request(request or {}))
  client:feed(bytes, offsets)
  local events, why = client:events(), client:why()
  client.raw:free()
  return events, why
end

describe("a head of a request", function()
  for what, case in pairs {
    ["in origin-form"] = { head("GET /a/b?c=d HTTP/1.1", HOST), "GET http h /a/b?c=d length 0" },
    ["in absolute-form, whose host has precedence"] = { head("GET http://x:80/a?b HTTP/1.1", HOST),
      "GET http x:80 /a?b length 0" },
    ["in absolute-form with TLS"] = { head("GET https://x/a HTTP/1.1", HOST), "GET https x /a length 0" },
    ["in absolute-form without a path"] = { head("GET http://x HTTP/1.1", HOST), "GET http x / length 0" },
    ["with an asterisk"] = { head("OPTIONS * HTTP/1.1", HOST), "OPTIONS http h * length 0" },
    ["with an asterisk, as a proxy sends it"] = { head("OPTIONS http://x HTTP/1.1", HOST),
      "OPTIONS http x * length 0" },
    ["with any method"] = { head("M-SEARCH!# / HTTP/1.1", HOST), "M-SEARCH!# http h / length 0" },
    ["of HTTP/1.0"] = { head("GET / HTTP/1.0", HOST), "GET http h / length 0" },
    ["of HTTP/1.0 without a host"] = { head("GET / HTTP/1.0"), "GET http  / length 0" },
    ["with characters that browsers do not encode"] = { head("GET /?a=b|c{d}^`[] HTTP/1.1", HOST),
      "GET http h /?a=b|c{d}^`[] length 0" },
    ["with an IPv6 address"] = { head(GET, "Host: [::1]:80"), "GET http [::1]:80 / length 0" },
    ["after an empty line"] = { "\r\n" .. head(GET, HOST), "GET http h / length 0" },
    ["with fields"] = { head(GET, HOST, "A: b", "a:c", "X-1_~: \t d e \t", "E:"),
      "GET http h / length 0\nA: b\na: c\nX-1_~: d e\nE: " },
    ["with bytes above ASCII in a value"] = { head(GET, HOST, "a: \xff\x80"), "GET http h / length 0\na: \xff\x80" },
    ["without fields of the connection"] = { head(GET, HOST, "Connection: keep-alive, x", "Keep-Alive: y",
      "Proxy-Connection: z", "Upgrade: w"), "GET http h / length 0" },
    ["with an offer of another protocol"] = { head(GET, HOST, "connection: keep-alive, Upgrade", "Upgrade: a, b"),
      "GET http h / length 0 upgrade a, b" },
    ["with a length"] = { head("PUT / HTTP/1.1", HOST, "Content-Length: 10"),
      "PUT http h / length 10\nContent-Length: 10" },
    ["with chunks"] = { head("PUT / HTTP/1.1", HOST, "Transfer-Encoding: Chunked"), "PUT http h / length -1" },
  } do
    it("is accepted " .. what, function()
      for i = 0, #case[1] - 1 do assert.equal(case[2], (ask(case[1], { i }))) end
    end)
  end

  for what, case in pairs {
    ["no method"] = { 400, head(" / HTTP/1.1", HOST) },
    ["a method that is not a token"] = { 400, head("G(T / HTTP/1.1", HOST) },
    ["two spaces"] = { 400, head("GET  / HTTP/1.1", HOST) },
    ["a tab"] = { 400, head("GET\t/ HTTP/1.1", HOST) },
    ["a space at the end of the first line"] = { 400, head("GET / HTTP/1.1 ", HOST) },
    ["no version"] = { 400, head("GET /", HOST) },
    ["an empty first line, twice"] = { 400, "\r\n\r\n" .. head(GET, HOST) },
    ["a version in small letters"] = { 400, head("GET / http/1.1", HOST) },
    ["HTTP/1.10"] = { 400, head("GET / HTTP/1.10", HOST) },
    ["HTTP/1.2"] = { 505, head("GET / HTTP/1.2", HOST) },
    ["HTTP/0.9"] = { 505, head("GET / HTTP/0.9", HOST) },
    ["HTTP/2.0"] = { 505, head("PRI * HTTP/2.0", "") },
    ["CONNECT"] = { 501, head("CONNECT h:80 HTTP/1.1", HOST) },
    ["authority-form"] = { 400, head("GET h:80 HTTP/1.1", HOST) },
    ["an asterisk with GET"] = { 400, head("GET * HTTP/1.1", HOST) },
    ["another scheme"] = { 400, head("GET ftp://h/ HTTP/1.1", HOST) },
    ["a scheme without slashes"] = { 400, head("GET http:h HTTP/1.1", HOST) },
    ["user information"] = { 400, head("GET http://a@h/ HTTP/1.1", HOST) },
    ["an empty host in the target"] = { 400, head("GET http:///a HTTP/1.1", HOST) },
    ["a query without a path"] = { 400, head("GET http://h?a HTTP/1.1", HOST) },
    ["a fragment"] = { 400, head("GET /#a HTTP/1.1", HOST) },
    ["a byte above ASCII in the target"] = { 400, head("GET /\xc3\xa4 HTTP/1.1", HOST) },
    ["a byte 0 in the target"] = { 400, head("GET /\0 HTTP/1.1", HOST) },
    ["a dot segment"] = { 400, head("GET /a/../b HTTP/1.1", HOST) },
    ["an encoded dot segment"] = { 400, head("GET /a/%2e%2E/b HTTP/1.1", HOST) },
    ["an encoded byte 0"] = { 400, head("GET /a%00 HTTP/1.1", HOST) },
    ["half an escape"] = { 400, head("GET /a%4 HTTP/1.1", HOST) },
    ["no host"] = { 400, head(GET) },
    ["two hosts"] = { 400, head(GET, HOST, HOST) },
    ["two hosts in HTTP/1.0"] = { 400, head("GET / HTTP/1.0", HOST, HOST) },
    ["an empty host"] = { 400, head(GET, "Host: ") },
    ["a host with a space"] = { 400, head(GET, "Host: a b") },
    ["a host with a path"] = { 400, head(GET, "Host: a/b") },
    ["a host with a port that is not a number"] = { 400, head(GET, "Host: a:b") },
    ["an empty IPv6 address"] = { 400, head(GET, "Host: []") },
    ["half an IPv6 address"] = { 400, head(GET, "Host: [::1") },
    ["a field without a colon"] = { 400, head(GET, HOST, "a") },
    ["a field without a name"] = { 400, head(GET, HOST, ": a") },
    ["a space before a colon"] = { 400, head(GET, HOST, "a : b") },
    ["a space before the first field"] = { 400, head(GET, " a: b", HOST) },
    ["a folded field"] = { 400, head(GET, HOST, "a: b", " c") },
    ["a field folded by a tab"] = { 400, head(GET, HOST, "a: b", "\tc: d") },
    ["a name that is not a token"] = { 400, head(GET, HOST, "a(: b") },
    ["a name with a byte above ASCII"] = { 400, head(GET, HOST, "\xe4: b") },
    ["a byte 0 in a value"] = { 400, head(GET, HOST, "a: b\0c") },
    ["a control byte in a value"] = { 400, head(GET, HOST, "a: b\27c") },
    ["DEL in a value"] = { 400, head(GET, HOST, "a: b\127") },
    ["a bare CR in a value"] = { 400, head(GET, HOST, "a: b\rc: d") },
    ["a bare CR at the end of a line"] = { 400, head(GET, HOST, "a: b\r") },
    ["a bare CR before the request"] = { 400, "\r" .. head(GET, HOST) },
    ["a bare LF after the first line"] = { 400, "GET / HTTP/1.1\nHost: h\r\n\r\n" },
    ["a bare LF after a field"] = { 400, "GET / HTTP/1.1\r\nHost: h\n\r\n" },
    ["a bare LF at the end"] = { 400, "GET / HTTP/1.1\r\nHost: h\r\n\n" },
    ["a bare LF before the request"] = { 400, "\n" .. head(GET, HOST) },
    ["an unknown expectation"] = { 417, head("PUT / HTTP/1.1", HOST, "Content-Length: 1", "Expect: 200-ok") },
  } do
    it("is refused with " .. what, function()
      local status, bytes = case[1], case[2]
      for i = 0, #bytes - 1 do
        local got, text = ask(bytes, { i })
        assert.equal(status, got)
        assert.matches("^[%a%d ,:/.-]+\n$", text)
      end
    end)
  end
end)

describe("a request whose end readers could understand in different ways", function()
  local POST = "POST / HTTP/1.1"
  local CHUNKED = "Transfer-Encoding: chunked"

  for what, case in pairs {
    ["with a length and chunks"] = { 400, HOST, "Content-Length: 5", CHUNKED },
    ["with chunks and a length"] = { 400, HOST, CHUNKED, "Content-Length: 5" },
    ["with two lengths"] = { 400, HOST, "Content-Length: 5", "Content-Length: 6" },
    ["with the same length twice"] = { 400, HOST, "Content-Length: 5", "Content-Length: 5" },
    ["with a list of lengths"] = { 400, HOST, "Content-Length: 5, 5" },
    ["with an empty length"] = { 400, HOST, "Content-Length: " },
    ["with a negative length"] = { 400, HOST, "Content-Length: -5" },
    ["with a sign"] = { 400, HOST, "Content-Length: +5" },
    ["with leading zeros"] = { 400, HOST, "Content-Length: 05" },
    ["with a hexadecimal length"] = { 400, HOST, "Content-Length: 0x5" },
    ["with a space in the length"] = { 400, HOST, "Content-Length: 1 0" },
    ["with a length above 63 bits"] = { 400, HOST, "Content-Length: 18446744073709551621" },
    ["with other letters for digits"] = { 400, HOST, "Content-Length: \xef\xbc\x95" },
    ["with two codings"] = { 400, HOST, CHUNKED, CHUNKED },
    ["with a list of codings"] = { 501, HOST, "Transfer-Encoding: chunked, chunked" },
    ["with gzip and chunks"] = { 501, HOST, "Transfer-Encoding: gzip, chunked" },
    ["with chunks and gzip"] = { 501, HOST, "Transfer-Encoding: chunked, gzip" },
    ["with an unknown coding"] = { 501, HOST, "Transfer-Encoding: xchunked" },
    ["with identity"] = { 501, HOST, "Transfer-Encoding: identity" },
    ["with an empty coding"] = { 501, HOST, "Transfer-Encoding:" },
    ["with chunks in quotes"] = { 501, HOST, 'Transfer-Encoding: "chunked"' },
    ["with chunks that have a parameter"] = { 501, HOST, "Transfer-Encoding: chunked;a=b" },
    ["with a vertical tab before chunked"] = { 400, HOST, "Transfer-Encoding: \11chunked" },
    ["with a space before the colon"] = { 400, HOST, "Transfer-Encoding : chunked" },
    ["with a folded coding"] = { 400, HOST, "Transfer-Encoding:", " chunked" },
    ["with a coding after a bare CR"] = { 400, HOST, "a: b\rTransfer-Encoding: chunked" },
    ["with a coding after a bare LF"] = { 400, HOST, "a: b\nTransfer-Encoding: chunked" },
    ["with a byte 0 in a name"] = { 400, HOST, "Transfer-Encoding\0: chunked" },
  } do
    it("is refused " .. what, function()
      local status = table.remove(case, 1)
      assert.equal(status, (ask(head(POST, (table.unpack or unpack)(case)))))
    end)
  end

  it("is refused with chunks in HTTP/1.0", function()
    assert.equal(400, (ask(head("POST / HTTP/1.0", HOST, CHUNKED))))
  end)
end)

describe("a head of an answer", function()
  for what, case in pairs {
    ["with a text"] = { head("HTTP/1.1 200 Very OK", "a: b", "Content-Length: 0"),
      "200 length 0\na: b\nContent-Length: 0" },
    ["without a text"] = { head("HTTP/1.1 404 ", "Content-Length: 0"), "404 length 0\nContent-Length: 0" },
    ["without a space after the status"] = { head("HTTP/1.1 404", "Content-Length: 0"),
      "404 length 0\nContent-Length: 0" },
    ["of HTTP/1.0"] = { head("HTTP/1.0 200 OK", "Content-Length: 0"), "200 length 0\nContent-Length: 0" },
    ["with chunks"] = { head("HTTP/1.1 200 OK", "Transfer-Encoding: chunked"), "200 length -1" },
    ["without a length"] = { head("HTTP/1.1 200 OK"), "200 length -1" },
    ["without a body"] = { head("HTTP/1.1 204 No Content", "Content-Length: 7"),
      "204 length 0\nContent-Length: 7" },
  } do
    it("is accepted " .. what, function()
      for i = 0, #case[1] - 1 do assert.equal(case[2], answer(case[1], { i })[1]) end
    end)
  end

  for what, case in pairs {
    ["another protocol"] = { "SSH-2.0-OpenSSH_9.2\r\n\r\n", "the message is not HTTP" },
    ["HTTP/2"] = { head("HTTP/2.0 200 OK"), "the version is neither HTTP/1.1 nor HTTP/1.0" },
    ["no status"] = { head("HTTP/1.1  OK"), "the status is not valid" },
    ["a status of two digits"] = { head("HTTP/1.1 20 OK"), "the status is not valid" },
    ["a status of letters"] = { head("HTTP/1.1 2xx OK"), "the status is not valid" },
    ["a status below 100"] = { head("HTTP/1.1 099 OK"), "the status is not valid" },
    ["a status above 599"] = { head("HTTP/1.1 600 OK"), "the status is not valid" },
    ["a control byte in the text"] = { head("HTTP/1.1 200 O\0K"), "the text of the status is not valid" },
    ["a bare LF"] = { "HTTP/1.1 200 OK\n\n", "a line ends without CR" },
    ["two lengths"] = { head("HTTP/1.1 200 OK", "Content-Length: 1", "Content-Length: 1"),
      "there are several content-lengths" },
    ["a length and chunks"] = { head("HTTP/1.1 200 OK", "Content-Length: 1", "Transfer-Encoding: chunked"),
      "there are both content-length and transfer-encoding" },
    ["gzip"] = { head("HTTP/1.1 200 OK", "Transfer-Encoding: gzip"), "the transfer-encoding is not chunked" },
    ["chunks in HTTP/1.0"] = { head("HTTP/1.0 200 OK", "Transfer-Encoding: chunked"),
      "HTTP/1.0 has no transfer-encoding" },
    ["a protocol that was not offered"] = { head("HTTP/1.1 101 Switching Protocols", "Connection: upgrade",
      "Upgrade: a"), "status 101 answers no offer of another protocol" },
  } do
    it("is refused with " .. what, function()
      for i = 0, #case[1] - 1 do
        local events, why = answer(case[1], { i })
        assert.same({ "close: the answer is refused: " .. case[2] }, events)
        assert.equal("the answer is refused: " .. case[2], why)
      end
    end)
  end
end)
