--- gRPC messages that are too large, torn off, or no messages at all.

local core = require "keywatch.core"

local attack = require "spec.support.attack"
local curl = require "spec.support.curl"
local frame = require "spec.support.frame"
local process = require "spec.support.process"
local raw = require "spec.support.raw"

local MIB = 1024 * 1024
local TXN = "/etcdserverpb.KV/Txn"
local INVALID_ARGUMENT, RESOURCE_EXHAUSTED, INTERNAL = "3", "8", "13"
local MALFORMED = "grpc: error unmarshalling request: malformed message"
local TOO_MANY = "etcdserver: too many operations in txn request"

-- Twice a message, which grows by doubling while it is torn, and once what is made of it.
local MESSAGE = 3 * 2 * MIB + 4 * MIB

describe("a server and odd messages #once", function()
  local siege

  setup(function() siege = attack.start() end)
  before_each(function() siege:mark() end)

  after_each(function()
    siege:disperse()
    process.end_all()
  end)

  teardown(function()
    if siege then siege:finish() end
  end)

  --- Posts a body; its status must be this one, and its text too, in the only header block.
  local function expect_refusal(path, body, status, text)
    local answer = curl.post(siege.peer, path, body)
    assert.equal(0, answer.exit)
    assert.equal("200", answer.status)
    assert.same({ status, text }, { answer.headers["grpc-status"], answer.headers["grpc-message"] })
    assert.equal("", answer.body)
  end

  it("refuses a message of more than 2 MiB by its length alone", function()
    expect_refusal(raw.PUT, "\0" .. raw.number(2 * MIB + 1, 4) .. "x", RESOURCE_EXHAUSTED,
      "grpc: received message larger than max (2097153 vs. 2097152)")
    expect_refusal(raw.PUT, "\0\255\255\255\255x", RESOURCE_EXHAUSTED,
      "grpc: received message larger than max (4294967295 vs. 2097152)")
    expect_refusal(raw.WATCH, "\0\255\255\255\255x", RESOURCE_EXHAUSTED,
      "grpc: received message larger than max (4294967295 vs. 2097152)")
    siege:expect_well(MESSAGE)
  end)

  it("refuses a put of more than 1.5 MiB", function()
    expect_refusal(raw.PUT, frame.put("messages/a", ("x"):rep(1572864)), INVALID_ARGUMENT,
      "etcdserver: request is too large")
    expect_refusal(raw.PUT, frame.put("messages/a", ("x"):rep(2 * MIB - 100)), INVALID_ARGUMENT,
      "etcdserver: request is too large")
    siege:expect_well(MESSAGE)
  end)

  for name, message in pairs {
    ["a varint of 11 bytes"] = "\8" .. ("\255"):rep(10) .. "\1",
    ["a varint that does not end"] = "\24\255",
    ["a length beyond the message"] = "\10\100abc",
    ["a length of 2^64 - 1"] = "\10" .. ("\255"):rep(9) .. "\1abc",
    ["a wire type that there is not"] = "\15abc",
    ["a key that is a number"] = "\8\1",
    ["a key that is a double"] = "\9abcdefgh",
    ["a group that does not end"] = "\11\8\1",
    ["an end of no group"] = "\12",
    ["field 0"] = "\2\1a",
    ["a tag that does not end"] = "\255\255\255\255\255\255\255\255\255\255",
  } do
    it("refuses " .. name, function()
      expect_refusal(raw.RANGE, frame.new(message), INTERNAL, MALFORMED)
      expect_refusal(raw.PUT, frame.new(message), INTERNAL, MALFORMED)
      siege:expect_well(MESSAGE)
    end)
  end

  --- A transaction around a transaction, and so on.
  local function nested(levels, inner)
    for _ = 1, levels do inner = frame.field(2, frame.field(4, inner)) end
    return inner
  end

  it("refuses transactions inside of transactions, thousands deep", function()
    local put = frame.field(2, frame.field(2, frame.field(1, "messages/b") .. frame.field(2, "x")))
    expect_refusal(TXN, frame.new(nested(20000, put)), INVALID_ARGUMENT, TOO_MANY)
    expect_refusal(TXN, frame.new(nested(20000, ""):sub(1, -2)), INTERNAL, MALFORMED)
    assert.is_nil(siege.witness.client:call(raw.RANGE, frame.range("messages/b")):find("messages/b", 1, true))
    siege:expect_well(MESSAGE)
  end)

  -- Two bytes for each operation, which would be a hundred in memory.
  it("refuses a transaction of a million operations that say nothing, before it takes memory for them", function()
    expect_refusal(TXN, frame.new(("\18\0"):rep(MIB - 100)), INVALID_ARGUMENT, TOO_MANY)
    siege:expect_well(MESSAGE)
  end)

  -- Each operation reads everything: a message of 2 KB asks for an answer of 2.2 GB.
  it("refuses to send more than a connection may hold, before it takes memory for it", function()
    for i = 1, 16 do
      assert.is_string(siege.witness.client:call(raw.PUT, frame.put("large/" .. i, ("x"):rep(1400000))))
    end
    siege:mark()
    local range = frame.field(1, frame.field(1, "large/") .. frame.field(2, "large0"))
    local put = frame.field(2, frame.field(1, "messages/c") .. frame.field(2, "x"))
    local answer = curl.post(siege.peer, TXN, frame.new(frame.field(2, range):rep(100) .. frame.field(2, put)))
    assert.equal(RESOURCE_EXHAUSTED, answer.headers["grpc-status"])
    assert.equal("etcdserver: too many requests", answer.headers["grpc-message"])
    assert.is_nil(siege.witness.client:call(raw.RANGE, frame.range("messages/c")):find("messages/c", 1, true))
    siege:expect_well(MESSAGE)
  end)

  it("answers each of what is left when a request is cut off at any byte", function()
    local attacker = siege:by()
    local n = 0
    for _, case in ipairs {
      { raw.RANGE, "RangeRequest", { key = "a", range_end = "b", limit = 300, revision = 1, sort_order = "DESCEND" } },
      { raw.PUT, "PutRequest", { key = "messages/d", value = "value", lease = 300, prev_kv = true } },
      { "/etcdserverpb.KV/DeleteRange", "DeleteRangeRequest", { key = "messages/d", range_end = "messages/e" } },
      { TXN, "TxnRequest", {
        compare = { { key = "messages/d", target = "VERSION", version = 300 } },
        success = { { request_put = { key = "messages/d", value = "v" } } },
        failure = { { request_txn = { success = { { request_range = { key = "messages/d" } } } } } },
      } },
      { "/etcdserverpb.Lease/LeaseGrant", "LeaseGrantRequest", { TTL = 300, ID = 1000 } },
      { "/etcdserverpb.KV/Compact", "CompactionRequest", { revision = 1000000, physical = true } },
    } do
      local message = core.encode(case[2], case[3])
      for size = 0, #message do
        attacker:start(case[1], frame.new(message:sub(1, size)))
        attacker:start(case[1], frame.new(message):sub(1, size)) -- and where the message is not complete
        n = n + 2
      end
    end
    attacker:await(function() return attacker:has_ended_stream(attacker.last) end, "the last answer")
    for id = 1, attacker.last, 2 do assert.is_true(attacker.streams[id].has_ended) end
    assert.is_true(n > 200)
    siege:expect_well(MESSAGE)
  end)

  it("refuses a second message in a unary call, and ends a watch for nonsense", function()
    local range = frame.range("a")
    expect_refusal(raw.RANGE, range .. range, INTERNAL, "keywatch: more than one message in a unary call")
    expect_refusal(raw.WATCH, frame.new("\15"), INTERNAL, MALFORMED)
    siege:expect_well(MESSAGE)
  end)
end)
