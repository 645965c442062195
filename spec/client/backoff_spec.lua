--- The pauses of a client between two attempts.

local backoff = require "keywatch.client.backoff"
local drivers = require "keywatch.task.driver"
local keywatch = require "keywatch"

local within = require "spec.support.within"

describe("the pause between two attempts", function()
  local random = math.random

  after_each(function() rawset(math, "random", random) end)

  --- The bounds after 1, 2, 3, … failures.
  local function bounds(opts, n)
    local seconds, list = backoff.new(opts), {}
    rawset(math, "random", function() return 1 end)
    for i = 1, n do list[i] = seconds(i) end
    return list
  end

  it("has a bound that doubles with each failure, up to the longest", function()
    assert.same({ 1, 2, 4, 8, 10, 10 }, bounds({ first = 1, longest = 10 }, 6))
    assert.same({ 0.25, 0.25, 0.25 }, bounds({ first = 0.25, longest = 0.25 }, 3))
  end)

  it("is at most 0.1 seconds at first and 3 at last, unless the options say otherwise", function()
    local list = bounds({}, 10)
    assert.same({ 0.1, 0.2, 3 }, { list[1], list[2], list[10] })
    assert.same({ 0.1, 0.2, 0.2 }, bounds({ longest = 0.2 }, 3))
    assert.same({ 3, 3 }, bounds({ first = 3 }, 2))
  end)

  it("is a random part of that bound", function()
    local seconds, low, high = backoff.new { first = 1, longest = 1 }, 0, 0
    for _ = 1, 1000 do
      local found = seconds(1)
      assert(found >= 0 and found <= 1)
      if found < 0.5 then low = low + 1 else high = high + 1 end
    end
    assert(low > 100 and high > 100)
  end)

  it("has the same bound after any number of failures", function()
    local seconds = backoff.new { first = 1e-300, longest = 3 }
    for _, failures in ipairs { 1, 1000, 1e6, 2 ^ 53 } do assert(seconds(failures) <= 3) end
  end)
end)

describe("a request that is tried again later #plain", function() -- there is no TLS in virtual time
  it("ends with its last error if its wait is ended early", within.world(function(world)
    local failed = drivers.get().event()
    world.server.server:mount("spec.Calls", { Fail = function()
      failed:set()
      return nil, { grpc_status = 14, message = "not now" }
    end })
    local client = world:client { backoff = { first = 3600, longest = 3600 } }
    local options = { raw = true, is_read = true, timeout = 1e6 }
    local asking = keywatch.spawn(function() return client:call("/spec.Calls/Fail", "", options) end)
    failed:wait()
    while client:state().requests.waiting == 0 do keywatch.sleep(0) end
    drivers.get().expire(asking)
    local _, answer, err = asking:join(30)
    assert.same({ nil, "unavailable", "not now" }, { answer, err.code, err.message })
  end))
end)
