--- Clients and servers of the echo engine, which only probe builds of keywatch.uv have, on a separate loop.

local busted = require "busted"
local uv = require "keywatch.uv"

local SECONDS = 120 -- after which a wait fails

--- Turns a loop until is_so() is true.
local function turn_until(loop, is_so)
  local stop = uv.now() + SECONDS
  while not is_so() do
    loop:turn(0.01)
    if uv.now() > stop then error("timeout: the awaited condition is not true", 2) end
  end
end

--- For the calling block of tests: calls begin(loop, server) before each test, and finish() after it, and then checks
-- that no memory has leaked. Returns functions for the tests.
local function for_each_test(begin, finish)
  local probe, of_test = uv.probe, {}
  local loop, objects, live

  local function keep(object)
    table.insert(objects, object)
    return object
  end

  function of_test.new_client(options) return keep(probe.client(options or {})) end
  function of_test.new_server(options) return keep(probe.server(options or {})) end
  function of_test.wait(is_so) turn_until(loop, is_so) end

  --- Sends bytes, and expects them back.
  function of_test.expect_echo(client, bytes)
    local received, n = {}, 0
    client:say(bytes)
    of_test.wait(function()
      local taken = client:take()
      received[#received + 1], n = taken, n + #taken
      return n >= #bytes
    end)
    busted.assert.is_true(bytes == table.concat(received))
  end

  --- Waits until a connection has ended. Returns the reason.
  function of_test.wait_for_end(client)
    of_test.wait(function() return client:state().closed > 0 end)
    busted.assert.equal(1, client:state().closed)
    busted.assert.is_false(loop:hosts(client))
    return client:state().why
  end

  busted.before_each(function()
    collectgarbage() -- frees servers of the core before the engine is replaced
    collectgarbage()
    live, objects = probe.live(), {}
    probe.enter()
    loop = assert(uv.open())
    begin(loop, of_test.new_server())
  end)

  busted.after_each(function()
    probe.leave()
    probe.fail_at(0)
    loop:close()
    for _, object in ipairs(objects) do object:close() end
    finish()
    busted.assert.equal(live, probe.live())
  end)

  return of_test
end

return { for_each_test = for_each_test }
