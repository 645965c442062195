--- gRPC around messages: frames, which may arrive in pieces; the text of a status; timeouts. Only for probe builds.

local int64 = require "spec.support.int64"
local probed = require "spec.support.probed"

local probe = probed.get("gRPC around messages")
if not probe then return end

local function frame(message)
  return "\0" .. int64.big_endian(#message):sub(5) .. message
end

local function frames(messages)
  local all = {}
  for i, message in ipairs(messages) do all[i] = frame(message) end
  return table.concat(all)
end

--- The bytes, torn before each of the offsets.
local function torn(bytes, offsets)
  local pieces, from = {}, 1
  for _, offset in ipairs(offsets) do
    pieces[#pieces + 1] = bytes:sub(from, offset)
    from = offset + 1
  end
  pieces[#pieces + 1] = bytes:sub(from)
  return pieces
end

describe("a splitter", function()
  local messages = { "one", "", "", "three", ("x"):rep(300), "" }
  local stream = frames(messages)

  it("finds all messages of one piece", function()
    assert.same({ messages, "between", 0 }, { probe.split(1000, { stream }) }) -- where they lie: nothing is held
    assert.same({ {}, "between", 0 }, { probe.split(1000, {}) })
  end)

  it("finds the same messages wherever the stream is split", function()
    for i = 0, #stream do
      for j = i, math.min(#stream, i + 12) do
        local found, ending = probe.split(1000, torn(stream, { i, j }))
        assert.same(messages, found)
        assert.equal("between", ending)
      end
    end
  end)

  it("finds them byte by byte, with empty pieces between", function()
    local pieces = {}
    for byte in stream:gmatch(".") do
      pieces[#pieces + 1] = byte
      pieces[#pieces + 1] = ""
    end
    assert.same(messages, (probe.split(1000, pieces)))
  end)

  it("reports a truncated message", function()
    for len = 0, 8 do
      local _, ending = probe.split(10, { frame("abc"):sub(1, len) })
      assert.equal((len == 0 or len == 8) and "between" or "torn", ending)
    end
  end)

  it("refuses a message above the limit because of its announced length", function()
    local found, ending = probe.split(4, { frame("abcd") .. frame("abcde"):sub(1, 5) })
    assert.same({ { "abcd" }, "too_large" }, { found, ending })
    assert.equal("too_large", (select(2, probe.split(4, { "\0\255\255\255\255" }))))
    assert.equal("torn", (select(2, probe.split(4, { "\0\255\255\255" }))))
    assert.equal("too_large", (select(2, probe.split(4, { "\1\0\0\0\5" })))) -- before it looks at the flag
  end)

  it("refuses a compression flag", function()
    for _, flag in ipairs { 1, 2, 255 } do
      local found, ending = probe.split(10, { frame("a"), string.char(flag) .. "\0\0\0\1a" })
      assert.same({ { "a" }, "compressed" }, { found, ending })
    end
  end)

  it("holds the received bytes of a message, not its announced length", function()
    local _, _, held = probe.split(4000000000, { "\0\200\0\0\0" .. "abc" })
    assert.is_true(held <= 16)
  end)

  it("does not keep the memory of a large message", function()
    local large = ("x"):rep(100000)
    local pieces = { frame(large):sub(1, 50), frame(large):sub(51), frame("a"):sub(1, 3) }
    local found, _, held = probe.split(100000, pieces)
    assert.equal(1, #found)
    assert.equal(0, held)
  end)

  it("reports that memory has run out, and loses no message", function()
    local live = probe.live()
    local n = 0
    repeat
      n = n + 1
      probe.fail_core(n)
      local found, ending = probe.split(1000, { frame("abcdef"):sub(1, 7), frame("abcdef"):sub(8) })
      probe.fail_core(0)
      assert.is_true(ending == "no_memory" or found[1] == "abcdef")
      assert.equal(live, probe.live())
    until ending == "between"
    assert.is_true(n > 2)
  end)
end)

describe("grpc-message", function()
  it("keeps plain text, and percent-encodes the rest", function()
    assert.equal("etcdserver: key is not provided", probe.escape("etcdserver: key is not provided"))
    assert.equal("100%25 gr%C3%BC%C3%9Fe%0A%00%7F ~", probe.escape("100% grüße\n\0\127 ~"))
    assert.equal("", probe.escape(""))
  end)

  it("decodes to the original text", function()
    local all = {}
    for i = 0, 255 do all[#all + 1] = string.char(i) end
    local text = table.concat(all)
    assert.equal(text, probe.unescape(probe.escape(text)))
    assert.equal("ü", probe.unescape("%c3%bC"))
  end)

  it("keeps a percent sign that begins no escape", function()
    for _, text in ipairs { "%", "%4", "%4g", "%g4", "a%", "%%", "%zz" } do
      assert.equal(text, probe.unescape(text))
    end
    assert.equal("%A", probe.unescape("%%41"))
  end)
end)

describe("grpc-timeout", function()
  it("is milliseconds, rounded up", function()
    local times = { ["1H"] = 3600000, ["2M"] = 120000, ["3S"] = 3000, ["100m"] = 100, ["1u"] = 1, ["1000u"] = 1,
      ["1001u"] = 2, ["1n"] = 1, ["1000000n"] = 1, ["1000001n"] = 2, ["0n"] = 0, ["00000001S"] = 1000,
      ["99999999H"] = 359999996400000, ["99999999n"] = 100 }
    for text, expected in pairs(times) do assert.equal(expected, probe.timeout(text), text) end
  end)

  it("is one to eight digits and a unit", function()
    for _, text in ipairs { "", "S", "1", "1s", "123456789S", "-1S", "+1S", "1 S", "1.5S", "1SS", "S1", " 1S", "1h" } do
      assert.equal(-1, probe.timeout(text), text)
    end
  end)
end)
