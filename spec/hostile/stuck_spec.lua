--- A client that asks and never reads. Others are served meanwhile, what waits for it is bounded, and when it reads at
-- last everything comes.

local core = require "keywatch.core"

local attack = require "spec.support.attack"
local frame = require "spec.support.frame"
local raw = require "spec.support.raw"

local KIB, MIB = 1024, 1024 * 1024

-- csrc/h2/session.c: what is framed, and what waits to be, before requests wait in turn. One answer may go beyond that,
-- but its large values are not copied: they lie in the store. csrc/watch/outlet.h: what waits for a watch stream.
local MAX_FRAMED, MAX_QUEUED, OUTLET = 256 * KIB, 4 * MIB, 1 * MIB
local SLACK = 8 * MIB -- what the allocator does not give back at once
local MOST = MAX_FRAMED + MAX_QUEUED + OUTLET + SLACK

local KEYS, VALUE_BYTES = 100, 200000 -- 20 MB, more than the kernel keeps for two ends of a connection
local PUTS = 2000

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

  it("serves others while it holds back large answers, and gives them whole at last", function()
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

  it("holds back 30,000 small answers, and gives all of them at last", function()
    local value = ("v"):rep(1000)
    put("small", value)
    siege:mark()
    local stuck = siege:by(nil, { is_stuck = true })
    local list = {}
    for i = 1, 30000 do list[i] = raw.request(2 * i - 1, raw.RANGE, frame.range("small")) end
    stuck:send(table.concat(list))
    for _ = 1, 500 do siege.witness:ask() end
    assert.same({}, stuck.counts)
    stuck:read()
    stuck:await(function() return (stuck.counts[raw.HEADERS] or 0) == 2 * 30000 end, "all answers")
    for i = 1, 30000 do
      local id = 2 * i - 1
      if not stuck.streams[id].has_ended or not stuck:body(id):find(value, 1, true) then
        error("an answer is not whole")
      end
    end
    siege:expect_well(MOST + 30000 * KIB) -- and what a stream costs while it is open
  end)

  --- Puts a key many times; returns how much memory the server has taken for that.
  local function put_often()
    local before = siege.peer:resident()
    for i = 1, PUTS do put("busy", ("%d."):format(i) .. ("v"):rep(10000)) end
    return siege.peer:resident() - before
  end

  it("tells a watch everything at last, and takes no more memory for it than for the history", function()
    put_often()
    local plain = put_often()
    local stuck = siege:by(nil, { is_stuck = true })
    local id = stuck:next_stream()
    stuck:send(raw.request(id, raw.WATCH) .. raw.data(id, frame.watch("busy")))
    siege.witness:ask()
    raw.turn_until(function() return siege.peer:descriptors() == siege.descriptors + 1 end, "the watch")
    siege.witness:ask()
    assert.is_true(put_often() <= plain + MOST)
    assert.same({}, stuck.counts)

    local last = siege.witness.client:call(raw.RANGE, frame.range("busy"))
    local version = core.decode("RangeResponse", last).kvs[1].version
    local at, events = 0, 0
    stuck.on_message = function(message)
      for _, event in ipairs(core.decode("WatchResponse", message).events or {}) do
        if at > 0 and event.kv.version ~= at + 1 then error("an event is missing, or comes twice") end
        at, events = event.kv.version, events + 1
      end
    end
    stuck:read()
    stuck:await(function() return at == version end, "the last event")
    assert.equal(PUTS, events)
    siege:expect_well(math.huge)
  end)

  it("drops one that does not even answer pings, though there is more to write to it", function()
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
