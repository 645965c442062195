--- The reason for the end of a connection, as a text for the operator's log.

local h2 = require "spec.support.h2"
local pair = require "spec.support.pair"

describe("a connection reports that it ended because", function()
  local host

  pair.for_each_test(function(one) host = one end)

  --- Why a connection is done that was fed these pieces, one after the other.
  local function why_after(...)
    local peer = assert(host.server:accept(host.now))
    for _, bytes in ipairs { ... } do peer:feed(bytes, host.now) end
    peer:pending()
    local _, is_done, _, why = peer:state()
    peer:close()
    assert.is_true(is_done)
    return why
  end

  --- Splits bytes after the first `n`; nothing is left out.
  local function cut(bytes, n)
    if n == 0 or n >= #bytes then return bytes end
    return bytes:sub(1, n), bytes:sub(n + 1)
  end

  it("the client speaks TLS", function()
    local hello = "\22\3\1\2\0\1\0\1\252\3\3" .. ("r"):rep(32)
    for n = 0, 10 do
      assert.equal("the client speaks TLS, but this port is plain", why_after(cut(hello, n)))
    end
  end)

  it("the client speaks something else", function()
    for _, bytes in ipairs { "SSH-2.0-OpenSSH\r\n", "\0", "\22\2" } do
      for n = 0, #bytes do
        assert.equal("the client speaks neither HTTP/2 nor HTTP/1.1", why_after(cut(bytes, n)))
      end
    end
  end)

  it("the client closed it", function()
    assert.equal("the client closed the connection", why_after(h2.hello(), ""))
    assert.equal("the client closed the connection", why_after(""))
  end)

  it("the client has sent GOAWAY", function()
    assert.equal("the client has sent GOAWAY: NO_ERROR", why_after(h2.hello() .. h2.goaway(0, "no_error")))
  end)

  it("the client violates HTTP/2", function()
    assert.equal("the server ends the connection with the HTTP/2 error PROTOCOL_ERROR",
      why_after(h2.hello() .. h2.frame("data", 0, 0, "x")))
  end)

  it("the client sends too many pings", function()
    assert.equal("the client sends PING frames too often",
      why_after(h2.hello() .. h2.frame("ping", 0, 0, "12345678"):rep(4)))
  end)

  it("the client does not answer pings", function()
    local silent, mute = assert(host.server:accept(host.now)), assert(host.server:accept(host.now))
    mute:feed(h2.hello(), host.now)
    local now = host.now
    for _ = 1, 2 do -- a ping, and the wait for its answer
      now = now + 3 * 60 * 60
      for _, peer in ipairs { silent, mute } do
        peer:step(now)
        peer:pending()
      end
    end
    assert.equal("the client has not begun to speak HTTP/2 in time", (select(4, silent:state())))
    assert.equal("the client does not answer a PING", (select(4, mute:state())))
    silent:close()
    mute:close()
  end)

  it("the server is shutting down", function()
    local raw = host:raw()
    host:pump()
    assert.equal("", (select(4, raw.peer:state())))
    host.server:drain(5, host.now)
    assert.equal("the server is shutting down", (select(4, raw.peer:state())))
  end)
end)
