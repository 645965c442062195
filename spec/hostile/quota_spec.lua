--- Many connections that each use as much memory as possible: together they stay at the limit in docs/limits.md, and
-- others are served at the same time.

local attack = require "spec.support.attack"
local frame = require "spec.support.frame"
local raw = require "spec.support.raw"

local KIB, MIB = 1024, 1024 * 1024

-- csrc/rpc/server.h: what all connections may hold, and each beside that.
local QUOTA, BASE = 512 * MIB, 16 * KIB
local SLACK = 64 * MIB -- memory that the allocator keeps

describe("a server with clients that take much memory #once #slow", function()
  local target

  before_each(function() target = attack.start() end)

  after_each(function()
    if target then target:finish() end
    target = nil
  end)

  --- A witness with a request and an answer that are not small.
  local function ask_for_much()
    local value = ("v"):rep(100000)
    assert.is_string(target.witness.client:call(raw.PUT, frame.put("much", value)))
    local answer = target.witness.client:call(raw.RANGE, frame.range("much"))
    assert.is_true(answer ~= nil and answer:find(value, 1, true) ~= nil)
  end

  --- The call has ended, with RESOURCE_EXHAUSTED.
  local function is_refused(attacker, id)
    if not attacker:has_ended_stream(id) then return false end
    assert.is_true(attacker.streams[id].headers[1]:find("\0018", 1, true) ~= nil)
    return true
  end

  -- Each sends 30 requests but for their last bytes: 1.2 GB in all.
  it("receives incomplete requests only while there is room for them", function()
    local most, n_attackers, n_requests = 1000000, 40, 30
    local half = frame.put("torn", ("x"):rep(1500000)):sub(1, most)
    local attackers = {}
    local function count_refused()
      local refused = 0
      for _, attacker in ipairs(attackers) do
        for i = 1, n_requests do
          if is_refused(attacker, 2 * i - 1) then refused = refused + 1 end
        end
      end
      return refused
    end
    for n = 1, n_attackers do
      local attacker = target:connect()
      attackers[n] = attacker
      local window = 65535
      attacker.on_frame = function(kind, _, id, payload)
        if kind == raw.WINDOW_UPDATE and id == 0 then window = window + raw.number_of(payload) end
      end
      for i = 1, n_requests do
        local id = 2 * i - 1
        attacker:await(function() return window >= most end, "room in the window")
        window = window - most
        attacker:send(raw.request(id, raw.PUT) .. raw.data(id, half))
      end
      target.witness:ask()
      attacker:await(function() return attacker.handle:get_write_queue_size() == 0 end, "an end of the writes")
    end
    ask_for_much()
    raw.turn_until(function() return count_refused() > n_attackers * n_requests / 3 end, "refusals")
    target:expect_healthy(QUOTA + n_attackers * BASE + SLACK)
  end)
end)
