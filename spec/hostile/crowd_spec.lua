--- Ten thousand connections at once.

local attack = require "spec.support.attack"
local process = require "spec.support.process"
local raw = require "spec.support.raw"

local CONNECTIONS = 10000
local KIB = 1024

describe("a server in a crowd #once", function()
  local target

  setup(function() target = attack.start { open_files = "hard" } end)
  after_each(process.end_all)

  teardown(function()
    if target then target:finish() end
  end)

  it("serves 10,000 connections at once, and frees them when they close", function()
    local crowd = process.start({ "sh", "-c", 'ulimit -n $(ulimit -H -n) && exec "$@"', "sh",
      "lua5.4", "spec/support/crowd.lua", tostring(target.peer.port), tostring(CONNECTIONS) })
    crowd:expect("open\n")
    assert.equal(target.descriptors + CONNECTIONS, target.peer:descriptors())
    local each = (target.peer:resident() - target.resident) / CONNECTIONS
    print(("  %d idle connections take %.1f KiB each"):format(CONNECTIONS, each / KIB))
    for _ = 1, 100 do target.witness:ask() end
    crowd:write("ask 1000\n")
    for _ = 1, 100 do target.witness:ask() end
    crowd:expect("answered\n")
    crowd:finish_input()
    assert.equal(0, crowd:wait())
    raw.turn_until(function() return target.peer:descriptors() == target.descriptors end, "the end of all connections")
    target:expect_healthy(CONNECTIONS * 32 * KIB)
  end)
end)
