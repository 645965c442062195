--- The HTTP client in virtual time: a program with a server and one with a client, connections that are cut at every
-- byte, latency and partitions; and the rules of its pool.

local http = require "keywatch.http"
local keywatch = require "keywatch"
local testing = require "keywatch.testing"

local dose = require "spec.support.dose"

local STRIDE = dose.is_small and 17 or 5 -- bytes between two cuts

--- Cuts the next connection of a world after `n` bytes in a direction. Returns a function that returns how many passed.
local function cut_after(world, n, direction)
  local network, passed, link = world.network, 0, nil
  local dial = network.dial
  function network.dial(self, ...)
    network.dial = nil
    local ok, why, name = dial(self, ...)
    link = self.links[#self.links]
    setmetatable(link[direction], { __newindex = function(queue, at, packet)
      passed = passed + #packet.bytes
      if passed <= n then return rawset(queue, at, packet) end
      packet.bytes = packet.bytes:sub(1, #packet.bytes - (passed - n))
      if packet.bytes ~= "" then rawset(queue, at, packet) end
      keywatch.spawn(function() network:cut(function(one) return one == link end) end)
    end })
    return ok, why, name
  end
  return function() return passed end
end

describe("the HTTP client in virtual time", function()
  it("gets a whole answer, or an error, wherever its connection is cut", function()
    testing.run(function(world)
      local n_calls = 0
      world.server.server:handle("POST", "/count", function(request)
        n_calls = n_calls + 1
        return request:body() .. " " .. n_calls
      end)
      for _, direction in ipairs { "up", "down" } do
        local n, total = math.huge, nil
        repeat
          local client, before = http.client { timeout = 30 }, n_calls
          local passed = cut_after(world, n, direction)
          local answer, err = client:request(world.server.url .. "/count", { body = "body" })
          if answer then
            assert.same({ 200, "body " .. before + 1 }, { answer.status, answer.body })
            assert.is_true(direction == "up" or n >= (total or 0))
          else
            assert.equal("unavailable", err.code)
            assert.is_true(err.maybe_done)
            assert.equal(direction == "down" and 1 or 0, n_calls - before)
          end
          client:close()
          total = total or passed()
          n = n == math.huge and 0 or n + STRIDE
        until n >= total
      end
    end)
  end)

  it("works with latency, and after a server was away", function()
    testing.run(function(world)
      local server, client = world.server, http.client()
      server:slow(0.2)
      local before = keywatch.now()
      assert.equal(200, client:request(server.url .. "/health").status)
      assert.is_true(keywatch.now() - before >= 0.6)
      assert.equal(200, client:request(server.url .. "/health").status)
      server:isolate()
      assert.equal("timeout", select(2, client:request(server.url .. "/health", { timeout = 1 })).code)
      server:join()
      assert.equal(200, client:request(server.url .. "/health").status)
      server:stop()
      assert.equal("unavailable", select(2, client:request(server.url .. "/health")).code)
      server:start()
      assert.equal(200, client:request(server.url .. "/health").status)
    end)
  end)

  it("lets requests wait in order, for a bounded number of connections", function()
    testing.run(function(world)
      local running, most, order = 0, 0, {}
      world.server.server:handle("GET", "/{n}", function(request)
        running = running + 1
        most = math.max(most, running)
        table.insert(order, tonumber(request.params.n))
        keywatch.sleep(1)
        running = running - 1
        return "x"
      end)
      local client = http.client { max_per_host = 2, timeout = 100 }
      local tasks, before = {}, keywatch.now()
      for i = 1, 20 do
        tasks[i] = keywatch.spawn(function() return client:request(("%s/%d"):format(world.server.url, i)) end)
      end
      assert(keywatch.join(tasks))
      assert.equal(2, most)
      assert.is_true(keywatch.now() - before < 11, keywatch.now() - before)
      for i = 2, 20 do assert.is_true(math.abs(order[i] - i) <= 1, i) end
      assert.matches("<2 connections>", tostring(client))
      keywatch.sleep(60)
      assert.matches("<0 connections>", tostring(client))
    end)
  end)

  it("leaves nothing behind when requests give up while they wait or connect", function()
    testing.run(function(world)
      world.server:slow(1)
      local client = http.client { max_connections = 3 }
      local tasks = {}
      for i = 1, 30 do
        tasks[i] = keywatch.spawn(function()
          return client:request(world.server.url .. "/health", { timeout = world.random() * 8 + 0.01 })
        end)
      end
      for i = 1, 30, 3 do
        keywatch.sleep(world.random())
        tasks[i]:cancel()
      end
      keywatch.join(tasks)
      world.server:slow(0)
      assert.equal(200, client:request(world.server.url .. "/health").status)
      assert.is_true(client.pool.count <= 3)
      assert.same({ nil, nil }, { next(client.pool.waiting.lines), client.pool.dialing[1] })
      keywatch.sleep(60)
      assert.same({ 0, nil }, { client.pool.count, (next(client.pool.hosts)) })
    end)
  end)
end)
