--- The clock of a manager: the moment at which a leadership is too old to go on comes at every time of the day.

local keywatch = require "keywatch"
local controller = require "keywatch.controller"
local log = require "keywatch.support.log"
local testing = require "keywatch.testing"

local TTL = 5      -- seconds: a third of that is no number of the machine
local BEGINS = 40  -- times of the day; the differences of some of them are rounded up, and of others down

describe("a manager whose leadership is not renewed", function()
  local write_line = log.write
  before_each(function() log.write = function() end end)
  after_each(function() log.write = write_line end)

  it("stops what needs it, however the time is rounded", function()
    for i = 1, BEGINS do
      testing.run(function(world)
        local client, started, stopped = world:client(), keywatch.channel(1), keywatch.channel(1)
        local manager = controller.manager { store = client, election = "election", ttl = TTL }
        manager:add { start = function() started:send(true) end, stop = function() stopped:send(true) end }
        manager:start()
        assert(started:receive(100))
        world:isolate(client)
        assert(stopped:receive(100))
        world:join(client)
        manager:stop()
        client:close()
      end, { now = 60 + i / 24 + i, turns = 5000 })
    end
  end)
end)
