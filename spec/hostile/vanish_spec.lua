--- Clients that disappear in the middle of a request, or never send a byte.

local attack = require "spec.support.attack"
local frame = require "spec.support.frame"
local raw = require "spec.support.raw"

local KIB, MIB = 1024, 1024 * 1024
local CONNECTION = 32 * KIB -- of a client that has sent little
local SLACK = 8 * MIB       -- memory that the allocator keeps
local AT_ONCE = 100         -- connections

describe("a server whose clients vanish #once", function()
  local target

  attack.for_each_test(function(one) target = one end)

  --- Connects, sends some bytes, and goes as soon as the kernel has them.
  local function vanish_after(bytes, how)
    local client = raw.connect(target.peer.port, { is_silent = true })
    client.handle:write(bytes, function() client[how](client) end)
    return client
  end

  local bytes = raw.PREFACE .. raw.settings { { raw.INITIAL_WINDOW_SIZE, 100000 } } .. raw.request(1, raw.WATCH)
    .. raw.data(1, frame.watch("witness")) .. raw.request(3, raw.PUT) .. raw.data(3, frame.put("vanish/a", "value"))

  for how, name in pairs { close = "a FIN", reset = "a RST" } do
    it("closes connections that end with " .. name .. ", after any byte of what they had to say", function()
      local clients = {}
      for size = 0, #bytes do
        clients[#clients + 1] = vanish_after(bytes:sub(1, size), how)
        if #clients % AT_ONCE == 0 then
          raw.turn_until(function() return clients[#clients].handle:is_closing() end, "the last of them to go")
          target.witness:ask()
        end
      end
      raw.turn_until(function() return clients[#clients].handle:is_closing() end, "the last of them to go")
      assert.is_true(#clients > 300)
      target:expect_healthy(#clients * CONNECTION + SLACK)
    end)
  end

  it("closes connections of clients that stop sending in the middle of a request", function()
    for size = 0, #bytes, 5 do
      local client = target:connect(bytes:sub(1, size), { is_silent = true })
      client.handle:shutdown()
      client:await_end()
    end
    target:expect_healthy(AT_ONCE * CONNECTION + SLACK)
  end)

  it("closes connections of clients that leave during an answer, or during events", function()
    local value = ("v"):rep(1000000)
    assert.is_string(target.witness.client:call(raw.PUT, frame.put("vanish/large", value)))
    target:mark()
    local range = frame.range("vanish/large")
    for i = 1, 100 do
      local client = target:connect(raw.request(1, raw.WATCH) .. raw.data(1, frame.watch("witness"))
        .. raw.request(3, raw.RANGE, range) .. raw.request(5, raw.RANGE, range))
      client:await(function() return client.streams[1] and client.streams[3] end, "the first of the answers")
      target.witness:ask()
      client[i % 2 == 0 and "close" or "reset"](client)
    end
    target:expect_healthy(AT_ONCE * CONNECTION + SLACK)
  end)
end)
