--- Windows that stay shut, or open and shut: what waits for them is bounded, and comes when they open.

local attack = require "spec.support.attack"
local frame = require "spec.support.frame"
local raw = require "spec.support.raw"

local KIB, MIB = 1024, 1024 * 1024

-- csrc/h2/session.c: answers that wait for the socket, before requests wait in turn; and all answers that wait.
local MAX_QUEUED, MAX_WAITING = 4 * MIB, 64 * MIB
local STREAM = KIB     -- what an open stream costs, with a small request that waits
local SLACK = 8 * MIB  -- what the allocator does not give back at once
local MAX_WINDOW = 2 ^ 31 - 1

describe("a server and windows #once", function()
  local siege

  attack.for_each_test(function(one) siege = one end)

  local function put(key, value)
    assert.is_string(siege.witness.client:call(raw.PUT, frame.put(key, value)))
  end

  --- Everything that was sent has been taken by the kernel, and the server has had its turn after that.
  local function await_sent(attacker)
    attacker:await(function() return attacker.handle:get_write_queue_size() == 0 end, "an end of the writes")
    siege.witness:ask()
  end

  local function expect_answers(attacker, from, to, value)
    local size
    for id = from, to, 2 do
      attacker:await(function() return attacker:has_ended_stream(id) end, "an answer")
      local stream = attacker.streams[id]
      size = size or stream.size
      if id == from or id == to then assert.is_true(attacker:body(id):find(value, 1, true) ~= nil) end
      if stream.reset or stream.size ~= size then error(("the answer on stream %d is not whole"):format(id)) end
    end
  end

  it("holds no more than it may of 60,000 answers while every window is shut, and sends all when they open", function()
    local n, value = 60000, ("v"):rep(1000)
    put("window/a", value)
    siege:mark()
    local list = {}
    for i = 1, n do list[i] = raw.request(2 * i - 1, raw.RANGE, frame.range("window/a")) end
    local attacker = siege:by(table.concat(list), { window = 0 })
    await_sent(attacker)
    assert.is_nil(attacker.counts[raw.DATA])
    assert.is_true(siege.peer:peak() - siege.resident <= MAX_WAITING + n * STREAM + SLACK)
    attacker:send(raw.settings { { raw.INITIAL_WINDOW_SIZE, MAX_WINDOW } })
    expect_answers(attacker, 1, 2 * n - 1, value)
    siege:expect_well(MAX_WAITING + n * STREAM + SLACK)
  end)

  it("bears windows that open and shut a thousand times", function()
    local value = ("v"):rep(100000)
    put("window/c", value)
    local list = {}
    for i = 1, 100 do list[i] = raw.request(2 * i - 1, raw.RANGE, frame.range("window/c")) end
    local attacker = siege:by(table.concat(list), { window = 0 })
    for _ = 1, 500 do -- at most 1,000 settings wait to be acknowledged
      attacker:send(raw.settings { { raw.INITIAL_WINDOW_SIZE, 1000 } })
      attacker:send(raw.settings { { raw.INITIAL_WINDOW_SIZE, 0 } })
    end
    await_sent(attacker)
    attacker:send(raw.settings { { raw.INITIAL_WINDOW_SIZE, MAX_WINDOW } })
    expect_answers(attacker, 1, 199, value)
    siege:expect_well(MAX_QUEUED + SLACK)
  end)

  it("keeps little of the messages that came torn on 20,000 streams", function()
    local n = 20000
    local message = frame.new(("\122\126" .. ("x"):rep(126)):rep(127)) -- a field that nobody knows, 127 times
    local list = {}
    for i = 1, n do
      local id = 2 * i - 1
      list[i] = raw.request(id, raw.WATCH) .. raw.data(id, message:sub(1, -2)) .. raw.data(id, message:sub(-1))
    end
    local attacker = siege:by(table.concat(list))
    attacker.last = 2 * n - 1
    assert.is_string(attacker:call(raw.RANGE, frame.range("a")))
    siege:expect_well(n * 2 * STREAM + SLACK)
  end)
end)
