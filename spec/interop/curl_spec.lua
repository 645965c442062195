--- curl: what gRPC looks like from below, header by header.
--
-- A request that is refused by its headers is sent without a body: this curl takes it for a failure when the answer
-- is complete before the request is.

local curl = require "spec.support.curl"
local etcdctl = require "spec.support.etcdctl"
local frame = require "spec.support.frame"
local process = require "spec.support.process"
local server = require "spec.support.server"

local RANGE = "/etcdserverpb.KV/Range"
local PUT = "/etcdserverpb.KV/Put"

local MIB = 1024 * 1024

describe("curl #once", function()
  local ctl = etcdctl.with_server()
  local peer

  setup(function()
    peer = ctl.peer
    ctl:must { "put", "curl/a", "value" }
  end)

  local function post(path, body, ...)
    return curl.post(peer, path, body, ...)
  end

  --- An answer without a message: its status stands in the only header block.
  local function expect_refusal(answer, code, message, http_status)
    assert.equal(0, answer.exit)
    assert.equal(http_status or "200", answer.status)
    assert.equal(tostring(code), answer.headers["grpc-status"])
    assert.equal(message, answer.headers["grpc-message"])
    assert.same({}, answer.trailers)
    assert.equal("", answer.body)
  end

  --- The server is there, and well.
  local function expect_alive()
    assert.equal("curl/a\nvalue\n", ctl:must { "get", "curl/a" })
  end

  it("gets headers, a frame, and trailers", function()
    local answer = post(RANGE, frame.range("curl/a"))
    assert.equal(0, answer.exit)
    assert.equal("200", answer.status)
    assert.equal("application/grpc", answer.headers["content-type"])
    assert.is_nil(answer.headers["grpc-status"])
    assert.equal("0", answer.trailers["grpc-status"])
    assert.is_true((answer.trailers["grpc-message"] or "") == "")
    assert.equal(frame.new(answer.body:sub(6)), answer.body)
    assert.matches("\n\6curl/a", answer.body)
  end)

  it("gets the content type that it has sent", function()
    local answer = post(RANGE, frame.range("curl/a"), "-H", "content-type: application/grpc+proto")
    assert.equal("application/grpc+proto", answer.headers["content-type"])
    assert.equal("0", answer.trailers["grpc-status"])
  end)

  it("needs no te header, and may set a timeout", function()
    assert.equal("0", post(RANGE, frame.range("curl/a"), "-H", "te:").trailers["grpc-status"])
    for _, timeout in ipairs { "1H", "99999999S", "10000m", "9999999u" } do
      local answer = post(RANGE, frame.range("curl/a"), "-H", "grpc-timeout: " .. timeout)
      assert.equal("0", answer.trailers["grpc-status"])
    end
  end)

  it("gets an error in the only header block", function()
    local answer = post(RANGE, frame.new(""))
    assert.equal("application/grpc", answer.headers["content-type"])
    expect_refusal(answer, 3, "etcdserver: key is not provided")
    expect_refusal(post("/nobody.Nothing/Range"), 12, "unknown service nobody.Nothing")
    expect_refusal(post("/etcdserverpb.KV/Nothing"), 12, "unknown method Nothing for service etcdserverpb.KV")
  end)

  it("gets a message with what is not plain in percent", function()
    expect_refusal(post("/%C5%BE.Nothing/Range"), 12, "unknown service %25C5%25BE.Nothing")
  end)

  it("gets 1 MiB back as it has sent it", function()
    local value = ("0123456789abcdef"):rep(MIB / 16)
    assert.equal("0", post(PUT, frame.put("curl/large", value)).trailers["grpc-status"])
    local answer = post(RANGE, frame.range("curl/large"))
    assert.equal("0", answer.trailers["grpc-status"])
    assert.is_true(answer.body:find(value, 1, true) ~= nil)
  end)

  it("is told that a flag says compressed where nothing is", function()
    expect_refusal(post(RANGE, "\1" .. frame.range("curl/a"):sub(2)), 13,
      "grpc: compressed flag set with identity or empty encoding")
  end)

  it("is told that no message came, or half of one", function()
    -- etcd 3.4 has 2 (unknown) for both.
    local code = server.is_etcd and "2" or "13"
    assert.equal(code, post(RANGE, "").headers["grpc-status"])
    assert.equal(code, post(RANGE, frame.range("curl/a"):sub(1, -2)).headers["grpc-status"])
    if not server.is_etcd then -- 3.4 goes on waiting where the headers are all there is
      assert.equal(code, post(RANGE).headers["grpc-status"])
    end
    assert.equal("13", post(RANGE, frame.new("\n")).headers["grpc-status"])
    expect_alive()
  end)

  it("is refused with a wrong content type, method or timeout", function()
    if not server.is_etcd then -- 3.4 resets such streams without a word, and does not mind other methods
      expect_refusal(post(RANGE, nil, "-H", "content-type: application/json"), 3,
        'invalid gRPC request content-type "application/json"', "415")
      local get = post(RANGE, nil, "-X", "GET")
      assert.same({ "405", "13" }, { get.status, get.headers["grpc-status"] })
      local timeout = post(RANGE, nil, "-H", "grpc-timeout: 1x")
      assert.same({ "400", "13" }, { timeout.status, timeout.headers["grpc-status"] })
    end
    expect_alive()
  end)

  it("watches, with its request complete, up to its deadline", function()
    local answer = post("/etcdserverpb.Watch/Watch", frame.watch("curl/a"), "-H", "grpc-timeout: 1S")
    assert.matches("\24\1$", answer.body) -- created
    assert.equal("context deadline exceeded", answer.trailers["grpc-message"])
    assert.equal(server.is_etcd and "2" or "4", answer.trailers["grpc-status"]) -- 3.4 does not map this one
  end)

  it("speaks HTTP/1.1, others speak nonsense, and it is served as before", function()
    for _, path in ipairs { "/", "/version", "/health", RANGE } do
      process.run { "curl", "-sS", "--http1.1", "--max-time", "20", peer.url .. path }
    end
    process.run({ "curl", "-sS", "--http1.1", "--max-time", "20", "-H", "content-type: application/grpc",
      "--data-binary", "@-", peer.url .. RANGE }, frame.range("curl/a"))
    local nonsense = {
      "GET / HTTP/1.1\r\n\r\n",
      "nonsense\r\n\r\n",
      ("\255"):rep(1000),
      "PRI * HTTP/2.0\r\n",
      "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nno frames, but words",
      "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\255\255\255\255\255\255\255\255\255",
    }
    for _, text in ipairs(nonsense) do
      peer:say(text)
      expect_alive()
    end
    assert.is_true(peer:is_running())
  end)
end)
