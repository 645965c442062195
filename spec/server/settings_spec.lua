--- Frames for which the server visits many streams of a connection: SETTINGS visits all, and a frame of a stream those
-- with colliding numbers. Both have bounds.

local h2 = require "spec.support.h2"
local pair = require "spec.support.pair"

local STREAMS = 1000
local BURST = 500000 -- streams that may be looked at, by all connections together
local FRAMES = 100 -- at once

describe("SETTINGS frames", function()
  local host

  pair.for_each_test(function(one) host = one end)

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

  it("are accepted from one connection while they touch no more streams than a burst", function()
    assert.is_nil(flood(connect(STREAMS), BURST / STREAMS / 2))
  end)

  it("close a connection when they touch more", function()
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

  it("of a connection with few streams are accepted while others send too many", function()
    local modest = connect(10)
    flood(connect(STREAMS), 10 * BURST / STREAMS)
    flood(connect(STREAMS), 10 * BURST / STREAMS)
    assert.is_nil(flood(modest, 5 * FRAMES))
  end)

  it("are allowed again with time", function()
    local raw = connect(STREAMS)
    for _ = 1, 4 do
      assert.is_nil(flood(raw, BURST / STREAMS / 2))
      host.now = host.now + BURST / 1000
    end
  end)
end)

describe("streams", function()
  local INVERSE = 340573321 -- of the factor of nghttp2's hash, modulo 2^32
  local host

  pair.for_each_test(function(one) host = one end)

  --- Opens streams with these numbers. Returns how many, until the server ends the connection.
  local function open(ids)
    local raw = host:raw()
    raw:say(h2.settings("ack"))
    for n, id in ipairs(ids) do
      raw:send(h2.request(id, pair.paths.Watch))
      if n % FRAMES == 0 or n == #ids then host:pump() end
      if raw:is_done() then return n end
    end
    return #ids
  end

  it("with colliding ids are limited", function()
    local ids, id = {}, INVERSE
    while #ids < 4 * STREAMS do
      if id < 2 ^ 31 then ids[#ids + 1] = id end
      id = (id + 2 * INVERSE) % 2 ^ 32 -- its hash is 2 more
    end
    table.sort(ids)
    assert.is_true(open(ids) < STREAMS / 2)
  end)

  it("with ids in a row, also with regular gaps, are not limited", function()
    for _, step in ipairs { 2, 42, 2048 } do
      local ids = {}
      for i = 1, 4 * STREAMS do ids[i] = 1 + (i - 1) * step end
      assert.equal(#ids, open(ids))
    end
  end)
end)
