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
  local target

  before_each(function() target = attack.start() end)

  after_each(function()
    if target then target:finish() end
    target = nil
  end)

  local function value_of(i) return ("%08d"):format(i):rep(VALUE_BYTES / 8) end

  local function put(key, value)
    assert.is_string(target.witness.client:call(raw.PUT, frame.put(key, value)))
  end

  it("serves others while large answers wait, and delivers those completely in the end", function()
    for i = 1, KEYS do put(("large/%03d"):format(i), value_of(i)) end
    target:mark()
    local stuck = target:connect(nil, { is_stuck = true })
    local request = frame.new(core.encode("RangeRequest", { key = "large/", range_end = "large0" }))
    for _ = 1, 10 do stuck:start(raw.RANGE, request) end
    for _ = 1, 500 do target.witness:ask() end
    assert.is_true(target.peer:peak() - target.resident <= MOST)
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
    target:expect_healthy(MOST)
  end)

  it("drops a client that does not even answer pings, though more output waits", function()
    target:finish()
    target = attack.start { "--grpc-keepalive-interval=1s", "--grpc-keepalive-timeout=1s" }
    for i = 1, KEYS do put(("large/%03d"):format(i), value_of(i)) end
    local stuck = target:connect(nil, { is_stuck = true })
    local request = frame.new(core.encode("RangeRequest", { key = "large/", range_end = "large0" }))
    for _ = 1, 2 do stuck:start(raw.RANGE, request) end
    raw.turn_until(function() return target.peer:descriptors() == target.descriptors + 1 end, "the connection")
    raw.turn_until(function() return target.peer:descriptors() == target.descriptors end, "its end")
    target:expect_healthy(math.huge)
  end)
end)
