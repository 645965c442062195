--- Frames that no well-behaved client sends: the server answers each as the protocol demands, with bounded memory, and
-- without an effect on other clients.

local attack = require "spec.support.attack"
local frame = require "spec.support.frame"
local raw = require "spec.support.raw"

local MIB = 1024 * 1024
local KEEP_ALIVE = "/etcdserverpb.Lease/LeaseKeepAlive"

-- One connection's input and output, with room for what the allocator does not give back at once: a read of 64 KiB
-- between two writes, max_framed (256 KiB), max_header_bytes (64 KiB), and 1,000 frames that nghttp2 queues.
local CONNECTION = 4 * MIB

local function stream_id(i) return 2 * i - 1 end

--- Something for each of n streams.
local function many(n, of)
  local list = {}
  for i = 1, n do list[i] = of(stream_id(i)) end
  return table.concat(list)
end

describe("a server under odd frames #once", function()
  local target

  attack.for_each_test(function(one) target = one end)

  describe("in a flood", function()
    -- CVE-2023-44487. Nothing obliges a server to bear it.
    it("ends a connection that resets 100,000 streams as fast as it can", function()
      local attacker = target:connect(many(100000, function(id)
        return raw.request(id, raw.RANGE) .. raw.reset(id, raw.CANCEL)
      end))
      attacker:await_end()
      assert.equal(raw.INTERNAL_ERROR, attacker.goaway.code)
      target:expect_healthy(CONNECTION)
    end)

    it("ends a connection of 100,000 SETTINGS that it cannot acknowledge as fast", function()
      for _, is_stuck in ipairs { false, true } do
        local attacker = target:connect(raw.settings({}):rep(100000), { is_stuck = is_stuck })
        target.witness:ask()
        if is_stuck then attacker:read() end
        attacker:await_end()
        assert.is_true(attacker.counts[raw.SETTINGS] < 10000)
      end
      target:expect_healthy(CONNECTION)
    end)

    it("ends a connection with thousands of values in one SETTINGS", function()
      local attacker = target:connect(raw.frame(raw.SETTINGS, 0, 0, ("\0\3\0\0\0\100"):rep(2000)))
      attacker:await_end()
      assert.equal(raw.ENHANCE_YOUR_CALM, attacker.goaway.code)
      target:expect_healthy(CONNECTION)
    end)

    -- A header block has no length of its own (CVE-2024-28182).
    it("ends a connection of endless CONTINUATION", function()
      local head = raw.frame(raw.HEADERS, 0, 1, raw.block(raw.RANGE))
      for _, block in ipairs { "", raw.line("a", ("b"):rep(16000)) } do
        local attacker = target:connect(head .. raw.frame(raw.CONTINUATION, 0, 1, block):rep(1000))
        attacker:await_end()
        assert.same({}, attacker.streams)
      end
      target:expect_healthy(CONNECTION)
    end)
  end)

  describe("of headers", function()
    --- The number in a header block's :status, which has no shorter form than its digits.
    local function expect_status(stream, status)
      assert.is_true(stream.has_ended)
      assert.is_true(stream.headers[1]:find(status, 1, true) ~= nil)
    end

    -- 700 MB of header lines out of 100 KB.
    it("refuses a list that is one large line, again and again, with 431", function()
      local block = raw.block(raw.RANGE, raw.line("bomb", ("b"):rep(4000), "\64")) -- which is then number 62
      local again = ("\190"):rep(16000)
      local attacker = target:connect(raw.frame(raw.HEADERS, 0, 1, block)
        .. raw.frame(raw.CONTINUATION, 0, 1, again):rep(6) .. raw.frame(raw.CONTINUATION, raw.END_HEADERS, 1, again))
      attacker:await(function() return attacker:has_ended_stream(1) end, "an answer")
      expect_status(attacker.streams[1], "431")
      target:expect_healthy(CONNECTION)
    end)

    -- Errors of HPACK are errors of the connection (4.3), since both sides no longer agree about its state.
    for name, block in pairs {
      ["an index of nothing"] = "\255\255\255\255\15",
      ["index 0"] = "\128",
      ["a string longer than the block"] = "\0\126abc",
      ["a number without end"] = "\255\255\255\255\255\255\255\255\255\255\255\255",
      ["a table larger than it may be"] = "\63\255\255\255\7",
      ["no letter in Huffman's code"] = "\0\132\255\255\255\255\1a",
    } do
      it("ends a connection that has sent " .. name, function()
        local attacker = target:connect(raw.frame(raw.HEADERS, raw.END_HEADERS, 1, block))
        attacker:await_end()
        assert.equal(raw.COMPRESSION_ERROR, attacker.goaway.code)
        target:expect_healthy(CONNECTION)
      end)
    end
  end)

  describe("against the protocol", function()
    local headers = raw.request(1, raw.WATCH)

    -- What the protocol has as the error of a stream may be taken for one of the connection (5.4.1).
    for name, case in pairs {
      ["DATA on stream 0"] = { raw.frame(raw.DATA, 0, 0, "x"), raw.PROTOCOL_ERROR },
      ["DATA on a stream that was not opened"] = { raw.frame(raw.DATA, 0, 1, "x"), raw.PROTOCOL_ERROR },
      ["HEADERS on stream 0"] = { raw.request(0, raw.RANGE), raw.PROTOCOL_ERROR },
      ["HEADERS on a stream of the server's"] = { raw.request(2, raw.RANGE), raw.PROTOCOL_ERROR },
      ["CONTINUATION of nothing"] = { raw.frame(raw.CONTINUATION, 4, 1, "x"), raw.PROTOCOL_ERROR },
      ["another frame inside of a header block"] = {
        raw.frame(raw.HEADERS, 0, 1, "") .. raw.frame(raw.PING, 0, 0, "12345678"), raw.PROTOCOL_ERROR,
      },
      ["PUSH_PROMISE"] = { headers .. raw.frame(raw.PUSH_PROMISE, 4, 1, "\0\0\0\2"), raw.PROTOCOL_ERROR },
      ["RST_STREAM of a stream that was not opened"] = { raw.reset(1, raw.CANCEL), raw.PROTOCOL_ERROR },
      ["padding longer than the frame"] = {
        headers .. raw.frame(raw.DATA, raw.PADDED, 1, "\255x"), raw.PROTOCOL_ERROR,
      },
      ["a frame longer than it may be"] = { raw.frame(raw.DATA, 0, 1, ("x"):rep(16385)), raw.FRAME_SIZE_ERROR },
      ["a PING of 7 bytes"] = { raw.frame(raw.PING, 0, 0, "1234567"), raw.FRAME_SIZE_ERROR },
      ["SETTINGS of 5 bytes"] = { raw.frame(raw.SETTINGS, 0, 0, "12345"), raw.FRAME_SIZE_ERROR },
      ["an acknowledgement with values"] = {
        raw.frame(raw.SETTINGS, raw.ACK, 0, "\0\3\0\0\0\1"), raw.FRAME_SIZE_ERROR,
      },
      ["a push setting of 2"] = { raw.settings { { raw.ENABLE_PUSH, 2 } }, raw.PROTOCOL_ERROR },
      ["a window setting of 2^31"] = { raw.settings { { raw.INITIAL_WINDOW_SIZE, 2 ^ 31 } }, raw.FLOW_CONTROL_ERROR },
      ["a frame size of 100"] = { raw.settings { { raw.MAX_FRAME_SIZE, 100 } }, raw.PROTOCOL_ERROR },
      ["WINDOW_UPDATE by 0"] = { raw.window_update(0, 0), raw.PROTOCOL_ERROR },
      ["WINDOW_UPDATE by 0 on a stream"] = { headers .. raw.window_update(1, 0), raw.PROTOCOL_ERROR },
      ["WINDOW_UPDATE beyond 2^31"] = { raw.window_update(0, 2 ^ 31 - 1), raw.FLOW_CONTROL_ERROR },
    } do
      it("ends a connection for " .. name, function()
        local attacker = target:connect(case[1])
        attacker:await_end()
        assert.equal(case[2], attacker.goaway and attacker.goaway.code)
        target:expect_healthy(CONNECTION)
      end)
    end

    it("resets a stream for WINDOW_UPDATE beyond 2^31", function()
      local attacker = target:connect(headers .. raw.window_update(1, 2 ^ 31 - 1))
      attacker:await(function() return attacker:has_ended_stream(1) end, "an end of the stream")
      assert.equal(raw.FLOW_CONTROL_ERROR, attacker.streams[1].reset)
      target:expect_healthy(CONNECTION)
    end)

    -- The window of a stream has room for a MiB. It opens as the server reads, which it does not while too many of the
    -- stream's own answers are unread.
    it("resets a stream for DATA beyond its window", function()
      local attacker = target:connect(nil, { window = 0 })
      local id = attacker:next_stream()
      local request = frame.new("\8\1") -- a keep-alive of lease 1
      attacker:send(raw.request(id, KEEP_ALIVE) .. raw.data(id, request:rep(math.floor(2 * MIB / #request))))
      attacker:await(function() return attacker:has_ended_stream(id) end, "an end of the stream")
      assert.equal(raw.FLOW_CONTROL_ERROR, attacker.streams[id].reset)
      target:expect_healthy(CONNECTION)
    end)
  end)
end)
