--- Paths and queries, the first bytes of connections, and HTTP dates. Only probe builds expose them.

local probed = require "spec.support.probed"

local probe = probed.get("HTTP/1.1 targets")
if not probe then return end

local http = probe.http

describe("an HTTP path", function()
  it("is split at its slashes, and decoded after that", function()
    assert.same({ "" }, http.segments("/"))
    assert.same({ "a", "b" }, http.segments("/a/b"))
    assert.same({ "a", "", "b", "" }, http.segments("/a//b/"))
    assert.same({ "a/b", "c d", "+" }, http.segments("/a%2Fb/c%20d/+?e/f"))
    assert.same({ "...", ".a", "a.", "\xff" }, http.segments("/.../.a/a./%FF"))
  end)

  for what, path in pairs { ["no slash"] = "a", ["no bytes"] = "", ["a segment ."] = "/a/.", ["a segment .."] = "/../a",
    ["an encoded .."] = "/a/.%2e/b", ["a byte 0"] = "/a%00b", ["half an escape"] = "/a%2", ["a lone %"] = "/%",
    ["an escape that is not hexadecimal"] = "/%2g" } do
    it("is refused with " .. what, function()
      local segments, why = http.segments(path)
      assert.is_nil(segments)
      assert.matches("^%l[%l%d. ]+$", why)
    end)
  end

  it("has parameters after a question mark", function()
    assert.same({}, http.parameters("/a"))
    assert.same({}, http.parameters("/a?"))
    assert.same({ "b", "c d", "e", "", "", "f", "g", "=" }, http.parameters("/a?b=c+d&e&=f&g=%3D"))
    assert.same({ "a", false }, http.parameters("/?a=%zz"))
  end)
end)

describe("the first bytes of a connection", function()
  --- Returns the protocol of the bytes. Any shorter beginning must have the same protocol, or an unknown one.
  local function protocol(bytes)
    local found = http.first_bytes(bytes)
    for i = 0, #bytes do
      local early = http.first_bytes(bytes:sub(1, i))
      assert(early == "unknown" or early == found, bytes:sub(1, i) .. " is " .. early)
    end
    return found
  end

  for bytes, expected in pairs {
    ["PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"] = "http2", ["PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0"] = "http2",
    ["PRI * HTTP/2.0\r\n\r\nSM\r\n\r"] = "unknown", ["PRI * HTTP/1.1\r\n"] = "http1", ["P"] = "unknown",
    [""] = "unknown",
    ["PRO"] = "unknown", ["POST / HTTP/1.1"] = "http1", ["PROPFIND / HTTP/1.1"] = "http1", ["GET "] = "http1",
    ["\22\3\1\0"] = "tls", ["\22\3"] = "tls", ["\22"] = "unknown", ["\22\2"] = "foreign", ["\0"] = "foreign",
    ["\r\nGET /"] = "foreign", [" GET /"] = "foreign", ["GET\n"] = "foreign", ["SSH-2.0-x\r\n"] = "foreign",
    [("M"):rep(32) .. " "] = "http1", [("M"):rep(32)] = "unknown", [("M"):rep(33)] = "foreign",
  } do
    it(("are %s in %q"):format(expected, bytes), function() assert.equal(expected, protocol(bytes)) end)
  end
end)

describe("an HTTP date", function()
  it("is written in the format of the field date", function()
    assert.equal("Thu, 01 Jan 1970 00:00:00 GMT", http.date(0))
    assert.equal("Sun, 06 Nov 1994 08:49:37 GMT", http.date(784111777))
    assert.equal("Tue, 29 Feb 2000 23:59:59 GMT", http.date(951868799))
    assert.equal("Fri, 31 Dec 9999 23:59:59 GMT", http.date(253402300800))
    assert.equal("Thu, 01 Jan 1970 00:00:00 GMT", http.date(-1))
  end)
end)
