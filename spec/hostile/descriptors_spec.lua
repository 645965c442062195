--- A server that may not open more files: new clients wait, and are served when others have disconnected.

local attack = require "spec.support.attack"
local frame = require "spec.support.frame"
local raw = require "spec.support.raw"

local LIMIT = 64
local CLIENTS = 100
local MIB = 1024 * 1024

describe("a server without descriptors #once", function()
  local target

  setup(function() target = attack.start { open_files = LIMIT } end)

  teardown(function()
    if target then target:finish() end
  end)

  local function is_open(client) return (client.counts[raw.SETTINGS] or 0) >= 2 end

  local function count_open()
    local n = 0
    for _, client in ipairs(target.attackers) do
      if is_open(client) then n = n + 1 end
    end
    return n
  end

  --- Closes the served clients, so that the server accepts the others.
  local function close_served()
    local rest = {}
    for _, client in ipairs(target.attackers) do
      if is_open(client) then client:close() else rest[#rest + 1] = client end
    end
    target.attackers = rest
  end

  it("serves its open connections, and accepts the others when there is room", function()
    local room = LIMIT - target.peer:descriptors(LIMIT)
    for _ = 1, CLIENTS do target:connect() end
    raw.turn_until(function() return count_open() == room end, "as many connections as the limit allows")
    for _ = 1, 20 do target.witness:ask() end
    assert.equal(room, count_open())
    assert.equal(LIMIT, target.peer:descriptors(LIMIT))
    while #target.attackers > 0 do
      local n = math.min(#target.attackers, room)
      raw.turn_until(function() return count_open() == n end, "the clients that have waited")
      for _, client in ipairs(target.attackers) do
        if is_open(client) then assert.is_string(client:call(raw.RANGE, frame.range("witness"))) end
      end
      target.witness:ask()
      close_served()
    end
    target:expect_healthy(8 * MIB)
    local _, n = target.peer:log():gsub(" warn connections cannot be accepted, and wait: too many open files: ", "")
    assert.is_true(n >= 1 and n <= 10, n .. " warnings")
  end)
end)
