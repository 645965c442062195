--- A client that sends requests and never reads. Others are served, its pending output is bounded, and when it reads,
-- it receives everything.

local core = require "keywatch.core"

local attack = require "spec.support.attack"
local frame = require "spec.support.frame"
local raw = require "spec.support.raw"

local KIB, MIB = 1024, 1024 * 1024

-- csrc/h2/session.c: what is framed, and what waits to be, before requests wait in turn. One answer may go beyond that,
-- but its large values are not copied: they lie in the store.
local MAX_FRAMED, MAX_QUEUED = 256 * KIB, 4 * MIB
local SLACK = 8 * MIB -- memory that the allocator keeps
local MOST = MAX_FRAMED + MAX_QUEUED + SLACK

local KEYS, VALUE_BYTES = 100, 200000 -- 20 MB, more than the kernel keeps for two ends of a connection

describe("a server with a client that does not read #once", function()
  local siege

  before_each(function() siege = attack.start() end)

  after_each(function()
    if siege then siege:finish() end
    siege = nil
  end)

  local function value_of(i) return ("%08d"):format(i):rep(VALUE_BYTES / 8) end

  local function put(key, value)
    assert.is_string(siege.witness.client:call(raw.PUT, frame.put(key, value)))
  end

  it("serves others while large answers wait, and delivers those completely in the end", function()
    for i = 1, KEYS do put(("large/%03d"):format(i), value_of(i)) end
    siege:mark()
    local stuck = siege:by(nil, { is_stuck = true })
    local request = frame.new(core.encode("RangeRequest", { key = "large/", range_end = "large0" }))
    for _ = 1, 10 do stuck:start(raw.RANGE, request) end
    for _ = 1, 500 do siege.witness:ask() end
    assert.is_true(siege.peer:peak() - siege.resident <= MOST)
    assert.same({}, stuck.counts)

    stuck:read()
    for id = 1, 19, 2 do
      stuck:await(function() return stuck:has_ended_stream(id) end, "an answer")
      local answer = core.decode("RangeResponse", stuck:body(id):sub(6))
      stuck.streams[id].data = {}
      assert.equal(KEYS, #answer.kvs)
      for i, kv in ipairs(answer.kvs) do
        if kv.key ~= ("large/%03d"):format(i) or kv.value ~= value_of(i) then error("a value is not as it was put") end
      end
    end
    siege:expect_well(MOST)
  end)

  it("drops a client that does not even answer pings, though more output waits", function()
    siege:finish()
    siege = attack.start { "--grpc-keepalive-interval=1s", "--grpc-keepalive-timeout=1s" }
    for i = 1, KEYS do put(("large/%03d"):format(i), value_of(i)) end
    local stuck = siege:by(nil, { is_stuck = true })
    local request = frame.new(core.encode("RangeRequest", { key = "large/", range_end = "large0" }))
    for _ = 1, 2 do stuck:start(raw.RANGE, request) end
    raw.turn_until(function() return siege.peer:descriptors() == siege.descriptors + 1 end, "the connection")
    raw.turn_until(function() return siege.peer:descriptors() == siege.descriptors end, "its end")
    siege:expect_well(math.huge)
  end)
end)
