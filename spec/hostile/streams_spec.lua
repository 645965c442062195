--- More streams than there may be.

local attack = require "spec.support.attack"
local frame = require "spec.support.frame"
local raw = require "spec.support.raw"

local KIB, MIB = 1024, 1024 * 1024
local MAX_STREAMS = 65536 -- csrc/h2/session.c
local STREAM = KIB        -- what a watch stream costs
local SLACK = 8 * MIB     -- what the allocator does not give back at once

describe("a server and its streams #once", function()
  local siege

  after_each(function()
    if siege then siege:finish() end
    siege = nil
  end)

  --- So many streams, none of which ends.
  local function watches(n)
    local list = {}
    for i = 1, n do list[i] = raw.request(2 * i - 1, raw.WATCH) end
    return table.concat(list)
  end

  -- Before a client has acknowledged the limit it may be told to try again (5.1.2); afterwards it knows better.
  it("refuses the stream that is one too many", function()
    siege = attack.start { "--max-concurrent-streams", "100" }
    local early = siege:by(watches(101))
    early:await(function() return early:has_ended_stream(201) end, "a refusal")
    assert.equal(raw.REFUSED_STREAM, early.streams[201].reset)
    assert.equal(1, early.counts[raw.RST_STREAM])
    early:send(raw.reset(1, raw.CANCEL))
    early.last = 201
    assert.is_string(early:call(raw.RANGE, frame.range("witness")))

    local late = siege:by()
    late:await(function() return (late.counts[raw.SETTINGS] or 0) >= 2 end, "the settings")
    late:send(watches(101))
    late:await_end()
    assert.equal(raw.PROTOCOL_ERROR, late.goaway.code)
    siege:expect_well(SLACK)
  end)

  it("ends those that send more than their method takes, and serves the connection's other calls", function()
    siege = attack.start()
    local n = 12
    local attacker = siege:by()
    for i = 1, n do
      local id = 2 * i - 1
      attacker:send(raw.request(id, "/grpc.health.v1.Health/Watch") .. raw.data(id, frame.new("")) ..
        raw.data(id, frame.new(("x"):rep(900 * KIB))))
    end
    attacker.last = 2 * n - 1
    for id = 1, 2 * n - 1, 2 do
      attacker:await(function() return attacker:has_ended_stream(id) end, "an end of the call")
    end
    assert.is_string(attacker:call(raw.PUT, frame.put("large", ("v"):rep(MIB))))
    siege:expect_well(SLACK)
  end)

  it("bears as many as it takes, and refuses the rest", function()
    siege = attack.start()
    local attacker = siege:by(watches(MAX_STREAMS + 100))
    local last = 2 * (MAX_STREAMS + 100) - 1
    attacker:await(function() return attacker:has_ended_stream(last) end, "a refusal")
    assert.equal(raw.REFUSED_STREAM, attacker.streams[last].reset)
    assert.equal(100, attacker.counts[raw.RST_STREAM])
    siege:expect_well(MAX_STREAMS * STREAM + SLACK)
  end)
end)
