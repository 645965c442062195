--- SETTINGS frames: each makes the server look at all streams of its connection, so their number has a bound.

local h2 = require "spec.support.h2"
local pair = require "spec.support.pair"

local STREAMS = 1000
local BURST = 500000 -- streams that may be looked at, by all connections together
local FRAMES = 100 -- at once

describe("SETTINGS frames", function()
  local host

  before_each(function() host = pair.host() end)
  after_each(function() host:close() end)

  local function connect(streams)
    local raw = host:raw()
    raw:say(h2.settings("ack"))
    for i = 1, streams do raw:send(h2.request(2 * i - 1, pair.paths.Watch)) end
    host:pump()
    return raw
  end

  --- Sends SETTINGS until the server ends the connection; returns how many, or nil after `most`.
  local function flood(raw, most)
    for n = FRAMES, most, FRAMES do
      raw:say(h2.settings { initial_window_size = 65535 }:rep(FRAMES))
      if raw:is_done() then return n end
    end
  end

  it("are taken from one connection as long as they touch no more streams than a burst", function()
    assert.is_nil(flood(connect(STREAMS), BURST / STREAMS / 2))
  end)

  it("end a connection whose frames touch more", function()
    local n = flood(connect(STREAMS), 10 * BURST / STREAMS)
    assert.is_true(n * STREAMS >= BURST - FRAMES * STREAMS)
  end)

  it("have one bound for all connections together", function()
    local frames = 0
    for _ = 1, 20 do
      local raw = connect(STREAMS)
      frames = frames + (flood(raw, BURST / STREAMS / 2) or BURST / STREAMS / 2)
    end
    assert.is_true(frames * STREAMS < 2 * BURST + 20 * FRAMES * STREAMS)
  end)

  it("of a connection with few streams are taken while others send too many", function()
    local modest = connect(10)
    flood(connect(STREAMS), 10 * BURST / STREAMS)
    flood(connect(STREAMS), 10 * BURST / STREAMS)
    assert.is_nil(flood(modest, 5 * FRAMES))
  end)

  it("are forgiven with time", function()
    local raw = connect(STREAMS)
    for _ = 1, 4 do
      assert.is_nil(flood(raw, BURST / STREAMS / 2))
      host.now = host.now + BURST / 1000
    end
  end)
end)
