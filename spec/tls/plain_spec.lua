--- HTTP where TLS is expected.

local pair = require "spec.support.tls_pair"

local PREFACE = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
local SETTINGS = "\0\0\6\4\0\0\0\0\0\0\3\0\0\0\100"
local TEXT = "this port speaks TLS: use https://"

describe("a peer without TLS", function()
  local client_context, server_context

  setup(function() client_context, server_context = pair.client(), pair.server() end)

  local function feed(channel, bytes, size)
    for at = 1, #bytes, size do
      channel:feed(bytes:sub(at, at + size - 1))
      pair.work(channel)
    end
  end

  for _, size in ipairs { 1, 5, 1000 } do
    it("is recognized as an HTTP/2 client, and gets no SETTINGS, after which it would not pause: " .. size, function()
      local server = server_context:accept()
      feed(server, PREFACE .. SETTINGS, size)
      assert.same({ "the client speaks plain HTTP/2, and not TLS", "plain" }, { server:error() })
      local answer = server:pending()
      assert.matches("^HTTP/1%.1 400 .*\r\n\r\n" .. TEXT .. "\n$", answer)
      assert.is_true(server:state().is_done)
    end)

    it("is recognized as an HTTP/1 client, and gets a response, in pieces of " .. size, function()
      local server = server_context:accept()
      feed(server, "POST /v3/kv/range HTTP/1.1\r\nHost: localhost\r\n\r\n", size)
      assert.same({ "the client speaks plain HTTP/1, and not TLS", "plain" }, { server:error() })
      local answer = server:pending()
      assert.matches("^HTTP/1%.1 400 ", answer)
      assert.equal(TEXT .. "\n", answer:match("\r\n\r\n(.*)$"))
      assert.equal(#TEXT + 1, tonumber(answer:match("Content%-Length: (%d+)")))
    end)

    it("is recognized as an HTTP/2 server, in pieces of " .. size, function()
      local client = client_context:connect("localhost")
      client:step()
      feed(client, SETTINGS, size)
      assert.same({ "the server speaks plain HTTP/2, and not TLS", "plain" }, { client:error() })
    end)

    it("is recognized as an HTTP/1 server, in pieces of " .. size, function()
      local client = client_context:connect("localhost")
      client:step()
      feed(client, "HTTP/1.1 400 Bad Request\r\n\r\n", size)
      assert.same({ "the server speaks plain HTTP/1, and not TLS", "plain" }, { client:error() })
    end)
  end

  it("costs no work while its protocol is not known", function()
    local server = server_context:accept()
    server:feed("PR")
    assert.is_true(server:state().has_work)
    server:step()
    assert.is_false(server:state().has_work)
    server:feed("")
    server:step()
    assert.is_string((server:error()))
  end)
end)
