--- An HTTP client that is used for a long time takes no more memory than one that was used for a short time.

local http = require "keywatch.http"
local keywatch = require "keywatch"

local dose = require "spec.support.dose"
local resident = require "spec.support.resident"

local FACTOR = dose.factor * (resident.is_reliable and not dose.is_small and 1 or 0.2)
local KIB, MIB = 1024, 1024 * 1024

describe("an HTTP client that is used for a long time #slow", function()
  local server, url, client

  setup(function()
    server = assert(keywatch.serve { thread = true, listen = "http://127.0.0.1:0" })
    url = server:addresses()[1]
  end)

  teardown(function() server:close() end)
  before_each(function() client = http.client { timeout = 60 } end)
  after_each(function() client:close() end)

  local function expect_flat(name, n, use) resident.expect_flat(name, n, use, MIB, 100 * KIB) end

  it("leaves nothing of requests", function()
    local n = 3000 * FACTOR
    expect_flat("requests", n, function()
      for _ = 1, n do assert(client:request(url .. "/health")) end
    end)
  end)

  it("leaves nothing of exchanges and clients that are garbage", function()
    local n = 300 * FACTOR
    expect_flat("exchanges", n, function()
      for i = 1, n do
        local exchange = assert(client:open(url .. "/metrics"))
        if i % 2 == 0 then assert(exchange:answer()) end
        if i % 3 == 0 then assert(exchange:read()) end
        if i % 6 == 0 then collectgarbage() end
      end
      for _ = 1, n / 20 do assert(http.client():request(url .. "/health")) end
      collectgarbage()
      keywatch.sleep(0.01)
    end)
  end)

  it("leaves nothing of requests that fail, or are cancelled", function()
    local n = 300 * FACTOR
    expect_flat("failures", n, function()
      keywatch.run(function()
        for i = 1, n do
          local task = keywatch.spawn(function() return client:request(url .. "/metrics") end)
          if i % 2 == 0 then keywatch.sleep(0) end
          task:cancel()
          client:request("http://127.0.0.1:1/")
        end
      end)
    end)
  end)
end)
