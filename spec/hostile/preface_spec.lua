--- What is not HTTP/2, at the place where it should begin.

local attack = require "spec.support.attack"
local frame = require "spec.support.frame"
local raw = require "spec.support.raw"

local MIB = 1024 * 1024
local CONNECTION = 4 * MIB -- input, output, and what the allocator does not give back at once

describe("a server spoken to in other tongues #once", function()
  local siege

  setup(function() siege = attack.start() end)
  before_each(function() siege:mark() end)
  after_each(function() siege:disperse() end)

  teardown(function()
    if siege then siege:finish() end
  end)

  --- Says something, and returns what the server says before it closes.
  local function answer_to(text)
    local attacker = siege:by(text, { is_silent = true, text = true })
    attacker:await_end()
    return attacker.rest
  end

  -- HTTP/1.1 is told in its own words which version is spoken here; an upgrade may be left aside (RFC 7230, 6.7), and
  -- HTTP/2 no longer has it (RFC 9113, 3.1).
  for name, text in pairs {
    ["HTTP/1.1"] = "GET /version HTTP/1.1\r\nhost: a\r\n\r\n",
    ["HTTP/1.1 in many requests"] = ("GET /version HTTP/1.1\r\nhost: a\r\n\r\n"):rep(1000),
    ["HTTP/1.1 with an upgrade to h2c"] = "GET / HTTP/1.1\r\nhost: a\r\nconnection: Upgrade, HTTP2-Settings\r\n"
      .. "upgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n\r\n",
    ["a POST with a large body"] = "POST / HTTP/1.1\r\ncontent-length: 1000000\r\n\r\n" .. ("x"):rep(1000000),
    ["a large nothing"] = ("\0"):rep(MIB),
  } do
    it("answers " .. name .. " with 505, and closes", function()
      local answer = answer_to(text)
      assert.matches("^HTTP/1%.1 505 ", answer)
      assert.matches("\r\nconnection: close\r\n", answer)
      local length, body = answer:match("\r\ncontent%-length: (%d+)\r\n.-\r\n\r\n(.*)$")
      assert.equal(tonumber(length), #body)
      siege:expect_well(CONNECTION)
    end)
  end

  -- A client of TLS that finds no TLS gives up by itself: it takes whatever comes for no record.
  it("does not wait for more of a TLS handshake", function()
    local hello = "\3\3" .. ("r"):rep(32) .. "\0\0\2\19\1\1\0" .. "\0\0"
    local handshake = "\1" .. raw.number(#hello, 3) .. hello
    assert.matches("^HTTP/1%.1 505 ", answer_to("\22\3\1" .. raw.number(#handshake, 2) .. handshake))
    siege:expect_well(CONNECTION)
  end)

  it("closes where any byte of the preface is another", function()
    for i = 1, #raw.PREFACE do
      answer_to(raw.PREFACE:sub(1, i - 1) .. "?" .. raw.PREFACE:sub(i + 1))
    end
    siege:expect_well(CONNECTION)
  end)

  -- Settings come first (3.4).
  it("ends a connection that begins with something else than settings", function()
    for _, bytes in ipairs { raw.request(1, raw.RANGE), raw.frame(raw.PING, 0, 0, "12345678"), raw.PREFACE } do
      local attacker = siege:by(raw.PREFACE .. bytes, { is_silent = true })
      attacker:await_end()
      assert.equal(raw.PROTOCOL_ERROR, attacker.goaway and attacker.goaway.code)
    end
    siege:expect_well(CONNECTION)
  end)

  it("serves one that comes byte by byte", function()
    local attacker = siege:by(nil, { is_silent = true, is_stuck = true }) -- it acknowledges nothing in between
    attacker.handle:nodelay(true)
    local bytes = raw.PREFACE .. raw.settings {} .. raw.request(1, raw.RANGE, frame.range("witness"))
    local at = 0
    local function send_next()
      at = at + 1
      if at > #bytes then return attacker:read() end
      attacker.handle:write(bytes:sub(at, at), send_next)
    end
    send_next()
    attacker:await(function() return attacker:has_ended_stream(1) end, "the answer")
    assert.matches("value %d+%.", attacker:body(1))
    siege:expect_well(CONNECTION)
  end)
end)
