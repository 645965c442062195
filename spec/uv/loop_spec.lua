--- The loop, its listeners and its connections, driven by the echo engine of probe builds.

local core = require "keywatch.core" -- the loop asks for it
local uv = require "keywatch.uv"

local luv = require "spec.support.luv"
local program = require "spec.support.program"
local socket = require "spec.support.socket"

local probe = uv.probe
local LOCAL = { host = "127.0.0.1", port = 0 }

describe("the loop", function()
  local loop

  before_each(function() loop = assert(uv.open()) end)
  after_each(function() loop:close() end)

  it("listens for open servers of the core, and for nothing else", function()
    for _, other in ipairs { {}, "server", io.stdout, loop } do
      assert.error_matches(function() loop:listen(other, LOCAL) end, "keywatch.core.server expected")
    end
    local store = core.open()
    local server = assert(core.serve(store))
    server:close()
    assert.error_matches(function() loop:listen(server, LOCAL) end, "the server is closed")
    store:close()
  end)

  it("refuses all calls when it is closed, except a close", function()
    loop:close()
    loop:close()
    for _, name in ipairs { "turn", "listen", "release", "resolve", "catch", "flush", "is_awaiting", "connections",
      "fd", "timeout", "has_servers" } do
      assert.has_error(function() loop[name](loop) end, "the loop is closed")
    end
  end)

  it("resolves names to the addresses of their hosts, each once", function()
    local hosts = assert(loop:resolve("localhost"))
    local seen = {}
    for _, host in ipairs(hosts) do
      assert.is_nil(seen[host])
      seen[host] = true
    end
    assert.is_true(seen["127.0.0.1"] or seen["::1"])
    assert.same({ "127.0.0.1" }, loop:resolve("127.0.0.1"))
    local none, text, name = loop:resolve("no.such.host.invalid")
    assert.is_nil(none)
    assert.is_string(text)
    assert.matches("^EAI_", name)
  end)

  it("knows the signals that it can wait for", function()
    assert.is_false(loop:is_awaiting())
    local catcher = loop:catch { "HUP" }
    assert.is_true(loop:is_awaiting())
    assert.is_nil(catcher:take())
    assert.is_false(catcher:is_ready())
    assert.equal("open", catcher:state())
    catcher:close()
    catcher:close()
    assert.equal("closed", catcher:state())
    assert.is_false(loop:is_awaiting())
    for _, names in ipairs { { "KILL" }, { "SIGHUP" }, { "HUP", "hup" }, { 1 }, { {} }, "HUP" } do
      assert.has_error(function() loop:catch(names) end)
    end
    assert.is_false(loop:is_awaiting())
    for _, name in ipairs(uv.signal_names()) do loop:catch({ name }):close() end
  end)

  it("stops catching when a catcher is collected, or is closed itself", function()
    loop:catch { "HUP" }
    collectgarbage()
    collectgarbage()
    assert.is_false(loop:is_awaiting())
    local catcher = loop:catch { "HUP" }
    loop:close()
    assert.equal("closed", catcher:state())
    assert.is_nil(catcher:take())
    catcher:close()
  end)

  it("ends a turn when a signal comes, and gives it once to each catcher that wants it", function()
    local status, printed = program.run [[
      local luv = require "luv"
      local loop = require("keywatch.uv").open()
      local function send(name) luv.kill(luv.os_getpid(), name) end
      local both, one = loop:catch { "TERM", "INT" }, loop:catch { "INT" }
      for _, name in ipairs { "sigterm", "sigint" } do
        send(name)
        loop:turn()
        print(both:is_ready(), one:is_ready(), both:take(), both:take(), one:take(), one:take())
      end
      for _ = 1, 1000 do send("sigint") end
      loop:turn()
      print(both:take(), both:take())
      one:close() -- discards the received bytes
      print(one:take())
      send("sigint")
      loop:turn()
      print(both:take())
      both:close()
      io.stdout:flush()
      send("sigterm")
    ]]
    assert.equal("true\tfalse\tTERM\tnil\tnil\tnil\ntrue\ttrue\tINT\tnil\tINT\tnil\nINT\tnil\nnil\nINT\n",
      (printed:gsub("Terminated\n", "")))
    assert.equal(143, status)
  end)

  it("does not spin while a signal is not taken", function()
    local status, printed = program.run [[
      local luv = require "luv"
      local uv = require "keywatch.uv"
      local loop = uv.open()
      local catcher = loop:catch { "HUP" }
      luv.kill(luv.os_getpid(), "sighup")
      loop:turn()
      local before = uv.now()
      loop:turn(0.1) -- takes 0.1 s, except for rounding
      print(uv.now() - before > 0.05, catcher:take())
    ]]
    assert.same({ 0, "true\tHUP\n" }, { status, printed })
  end)
end)

if probe then
  describe("a connection", function()
    local loop, clients, live

    before_each(function()
      live = probe.live()
      probe.enter()
      loop, clients = assert(uv.open()), {}
    end)

    after_each(function()
      probe.leave()
      probe.fail_at(0)
      for _, client in ipairs(clients) do client:close() end
      loop:close()
      collectgarbage()
      collectgarbage()
      assert.equal(live, probe.live())
    end)

    local function serve(options, address)
      local server = probe.server(options or {})
      local listener = assert(loop:listen(server, address or LOCAL))
      return server, listener
    end

    local function connect(listener)
      local client = socket.connect(listener:address())
      table.insert(clients, client)
      socket.turn_until(loop, function() return client.is_connected or client.failure end)
      return client
    end

    local function wait(is_so) socket.turn_until(loop, is_so) end

    local function wait_for(server, name, n)
      wait(function() return server:counts()[name] >= n end)
    end

    it("writes once for all bytes that became pending between two turns", function()
      local server, listener = serve()
      local client = connect(listener)
      wait_for(server, "accepted", 1)
      for i = 1, 100 do server:say(("%d "):format(i)) end
      loop:turn(0)
      assert.equal(1, server:counts().writes)
      wait(function() return client.received:find("100 ", 1, true) end)
    end)

    it("is flushed before it is closed, however slowly the other side reads", function()
      local server, listener = serve { greeting = ("g"):rep(50), greetings = 200000 }
      local client = connect(listener)
      client:pause()
      client:shutdown()
      wait_for(server, "ends", 1)
      client:read()
      wait(function() return client.has_ended end)
      assert.equal(50 * 200000, #client.received)
      assert.equal(0, loop:connections())
    end)

    it("stays while its peer is not done, though the other side writes no more", function()
      local server, listener = serve { stays = true }
      local client = connect(listener)
      client:shutdown()
      wait_for(server, "ends", 1)
      for _ = 1, 10 do loop:turn(0) end
      server:say("still here")
      wait(function() return client.received == "still here" end)
      assert.equal(1, server:counts().ends)
      server:finish()
      wait(function() return client.has_ended end)
      assert.equal(0, loop:connections())
    end)

    it("loses no last written bytes, though more bytes arrive that are not wanted", function()
      local server, listener = serve { done_after = 1, greeting = "the last words" }
      local client = connect(listener)
      client:write(("y"):rep(3000000))
      wait(function() return client.has_ended or client.failure end)
      assert.is_nil(client.failure)
      assert.equal("the last words", client.received:sub(1, 14))
      client:close()
      wait(function() return loop:connections() == 0 end)
      assert.equal(1, server:counts().closed)
    end)

    it("ends by itself if the other side never closes", function()
      local server, listener = serve()
      local client = connect(listener)
      wait_for(server, "accepted", 1)
      server:finish()
      wait(function() return client.has_ended end)
      assert.equal(1, server:counts().closed)
      wait(function() return loop:connections() == 0 end)
    end)

    it("ends by itself if the other side never reads", function()
      local server, listener = serve { greeting = ("x"):rep(60), greetings = 500000 } -- more than sockets hold
      local client = connect(listener)
      client:pause()
      wait_for(server, "accepted", 1)
      server:finish()
      wait(function() return loop:connections() == 0 end)
      assert.equal(1, server:counts().closed)
      assert.is_true(#client.received < 500000 * 60)
      client:close()
    end)

    it("is closed when it is reset", function()
      local server, listener = serve()
      local client = connect(listener)
      wait_for(server, "accepted", 1)
      client:reset()
      wait_for(server, "closed", 1)
      assert.equal(0, loop:connections())
    end)

    it("is closed, and the process lives, when the other side is gone", function()
      local server, listener = serve { is_silent = true, stays = true }
      local client = connect(listener)
      wait_for(server, "accepted", 1)
      client:close()
      wait_for(server, "ends", 1)
      wait(function()
        server:say(("z"):rep(1000))
        return server:counts().closed == 1
      end)
    end)

    it("steps its peer when that is due", function()
      local server, listener = serve { tick = 20 }
      local client = connect(listener)
      client:write("a")
      wait(function() return client.received == "atick" end)
      assert.equal(1, server:counts().steps)
    end)

    it("is refused if the server is full, and the next one is offered all the same", function()
      local server, listener = serve { refuses = true }
      for _ = 1, 3 do
        local client = connect(listener)
        wait(function() return client.has_ended or client.failure end)
      end
      assert.equal(0, loop:connections())
      assert.equal(0, server:counts().accepted)
    end)

    it("is refused if memory is short, and the next one is served", function()
      local server, listener = serve()
      connect(listener)
      wait_for(server, "accepted", 1)
      for n = 1, 3 do -- the connection, the peer; and one that is not needed
        probe.fail_at(n)
        local client = connect(listener)
        client:write("x")
        wait(function() return client.has_ended or client.failure or client.received == "x" end)
        probe.fail_at(0)
      end
      local client = connect(listener)
      client:write("x")
      wait(function() return client.received == "x" end)
    end)
  end)

  describe("a turn", function()
    local loop

    before_each(function()
      probe.enter()
      loop = assert(uv.open())
    end)

    after_each(function()
      probe.leave()
      loop:close()
    end)

    it("lasts until there is work for Lua, however often sockets are ready", function()
      local status, printed = program.run [[
        require "keywatch.core"
        local uv = require "keywatch.uv"
        local luv = require "luv"
        uv.probe.enter()
        local loop = uv.open()
        local quiet, busy = uv.probe.server {}, uv.probe.server { has_work = true }
        local first = loop:listen(quiet, { host = "127.0.0.1", port = 0 })
        local listener = loop:listen(busy, { host = "127.0.0.1", port = 0 })
        -- another process speaks a hundred times to the quiet one, and then once to the busy one
        local script = string.format([=[
          exec 3<>/dev/tcp/127.0.0.1/%d
          for i in $(seq 100); do echo x >&3; read -r line <&3; done
          exec 4<>/dev/tcp/127.0.0.1/%d
          echo y >&4; read -r line <&4
        ]=], first:address().port, listener:address().port)
        luv.spawn("bash", { args = { "-c", script } }, function() end)
        loop:turn()
        print(quiet:counts().feeds, busy:take())
        loop:turn(0)
        loop:close()
      ]]
      assert.equal("100\t1\n", printed)
      assert.equal(0, status)
    end)

    it("steps its servers when they are due", function()
      local server = probe.server { step_every = 5 }
      local listener = loop:listen(server, LOCAL)
      repeat loop:turn(0.05) until server:counts().server_steps >= 30
      listener:close()
    end)

    it("waits without spinning", function()
      local server = probe.server {}
      local listener = loop:listen(server, LOCAL)
      loop:turn(0.05)
      assert.is_true(server:counts().server_steps < 10)
      listener:close()
    end)

    it("ends at once if there is work already, but polls the sockets", function()
      local server = probe.server { has_work = true }
      local listener = loop:listen(server, LOCAL)
      local client = socket.connect(listener:address())
      socket.turn_until(loop, function() return client.is_connected end)
      client:write("1")
      socket.turn_until(loop, function() return server:counts().feeds == 1 end)
      client:write("2")
      luv.run("nowait")
      repeat loop:turn() until server:counts().feeds == 2
      assert.equal(2, server:take())
      client:close()
      listener:close()
    end)
  end)
end
