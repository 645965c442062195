--- A server that may not open more files: new clients wait, and are served when others have disconnected.

local attack = require "spec.support.attack"
local frame = require "spec.support.frame"
local raw = require "spec.support.raw"

local LIMIT = 64
local COMING = 100
local MIB = 1024 * 1024

describe("a server without descriptors #once", function()
  local siege

  setup(function() siege = attack.start { open_files = LIMIT } end)

  teardown(function()
    if siege then siege:finish() end
  end)

  local function is_open(client) return (client.counts[raw.SETTINGS] or 0) >= 2 end

  local function count_open()
    local n = 0
    for _, client in ipairs(siege.attackers) do
      if is_open(client) then n = n + 1 end
    end
    return n
  end

  --- Closes those that are served; the others come to stand in their place.
  local function dismiss()
    local rest = {}
    for _, client in ipairs(siege.attackers) do
      if is_open(client) then client:close() else rest[#rest + 1] = client end
    end
    siege.attackers = rest
  end

  it("serves its open connections, and accepts the others when there is room", function()
    local room = LIMIT - siege.peer:descriptors(LIMIT)
    for _ = 1, COMING do siege:by() end
    raw.turn_until(function() return count_open() == room end, "as many connections as there can be")
    for _ = 1, 20 do siege.witness:ask() end
    assert.equal(room, count_open())
    assert.equal(LIMIT, siege.peer:descriptors(LIMIT))
    while #siege.attackers > 0 do
      local n = math.min(#siege.attackers, room)
      raw.turn_until(function() return count_open() == n end, "those who have waited")
      for _, client in ipairs(siege.attackers) do
        if is_open(client) then assert.is_string(client:call(raw.RANGE, frame.range("witness"))) end
      end
      siege.witness:ask()
      dismiss()
    end
    siege:expect_well(8 * MIB)
    local _, n = siege.peer:log():gsub(" warn connections cannot be accepted, and wait: too many open files: ", "")
    assert.is_true(n >= 1 and n <= 10, n .. " warnings")
  end)
end)
