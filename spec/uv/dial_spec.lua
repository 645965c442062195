--- Connections that are dialed, and names that are looked up. The engine of probe builds has clients for the
-- connections.

local uv = require "keywatch.uv"

local echo = require "spec.support.echo"
local luv = require "spec.support.luv"
local program = require "spec.support.program"
local shell = require "spec.support.shell"
local socket = require "spec.support.socket"

require "keywatch.core" -- the loop asks for it

local probe = uv.probe
local LOCAL = { host = "127.0.0.1", port = 0 }

local SECONDS = 120 -- after which a wait fails

describe("a lookup", function()
  local loop, live

  before_each(function()
    live = probe and probe.live()
    loop = assert(uv.open())
  end)

  after_each(function()
    loop:close()
    collectgarbage()
    collectgarbage()
    local stop = uv.now() + SECONDS
    while probe and probe.live() ~= live do -- threads may still be at it
      assert.is_true(uv.now() < stop)
    end
  end)

  --- What comes of it. Its end ends a turn.
  local function result_of(lookup)
    while lookup:result() == nil do
      assert.is_true(loop:is_awaiting())
      loop:turn()
    end
    return lookup:result()
  end

  it("finds the hosts of a name, as resolving it does", function()
    for _, name in ipairs { "localhost", "127.0.0.1", "::1" } do
      assert.same(loop:resolve(name), result_of(assert(loop:lookup(name))))
    end
    assert.is_false(loop:is_awaiting())
  end)

  it("fails as resolving does", function()
    for _, name in ipairs { "nonexistent.invalid", ("x"):rep(5000), "" } do
      local _, text, code = loop:resolve(name)
      assert.same({ false, text, code }, { result_of(assert(loop:lookup(name))) })
    end
  end)

  it("may be one of many, each of which ends a turn", function()
    local lookups = {}
    for i = 1, 20 do lookups[i] = assert(loop:lookup("127.0.0." .. i)) end
    for i = 1, 20 do
      assert.same({ "127.0.0." .. i }, result_of(lookups[i]))
    end
    assert.is_false(loop:is_awaiting())
  end)

  it("may be dropped or closed at any time", function()
    for _ = 1, 20 do
      loop:lookup("nonexistent.invalid")
      local lookup = loop:lookup("localhost")
      lookup:close()
      lookup:close()
      assert.has_error(function() lookup:result() end, "the lookup is closed")
    end
    collectgarbage()
    collectgarbage()
    assert.is_false(loop:is_awaiting())
  end)

  it("outlives its loop", function()
    local lookup = loop:lookup("localhost")
    loop:close()
    local stop = uv.now() + SECONDS
    repeat until lookup:result() or uv.now() > stop
    assert.is_table(lookup:result())
  end)

  if probe then
    it("is not begun when memory is short", function()
      loop:lookup("localhost"):close()
      for n = 1, 2 do
        probe.fail_at(n)
        assert.same({ nil, "not enough memory", "ENOMEM" }, { loop:lookup("localhost") })
        probe.fail_at(0)
      end
    end)
  end
end)

if not probe then return end

describe("a dialed connection", function()
  local loop, server, scratch

  local of_test = echo.for_each_test(function(...)
    loop, server = ...
    scratch = shell.must("mktemp -d")
  end, function() shell.must("rm -rf " .. scratch) end)

  local new_client, new_server, wait = of_test.new_client, of_test.new_server, of_test.wait
  local expect_echo, wait_for_end = of_test.expect_echo, of_test.wait_for_end

  local function listen(address)
    return assert(loop:listen(server, address or LOCAL))
  end

  local function dial(listener, options)
    local client = new_client(options)
    assert.is_true(loop:dial(client, listener:address()))
    return client
  end

  local function open(listener, options)
    local client = dial(listener, options)
    wait(function() return client:state().is_opened end)
    client:take()
    return client
  end

  --- A luv listener, whose loop does not turn: it accepts no connection.
  local function listen_idly(address)
    local handle = address.path and luv.new_pipe(false) or luv.new_tcp()
    assert(handle:bind(address.path or address.host, address.port))
    assert(handle:listen(0, function() end))
    finally(function()
      handle:close()
      luv.run("nowait")
    end)
    return address.path and address or { host = address.host, port = handle:getsockname().port }
  end

  it("carries bytes in both directions over IPv4", function()
    local listener = listen()
    local client = open(listener)
    expect_echo(client, "hello")
    assert.equal("127.0.0.1:" .. listener:address().port, client:state().remote)
    assert.equal(2, loop:connections())
  end)

  it("carries bytes in both directions over IPv6, if there is any", function()
    local listener, _, name = loop:listen(server, { host = "::1", port = 0 })
    if not listener then
      assert.is_true(name == "EADDRNOTAVAIL" or name == "EAFNOSUPPORT", name)
      return
    end
    local client = open(listener)
    expect_echo(client, "hello")
    assert.equal("[::1]:" .. listener:address().port, client:state().remote)
  end)

  it("carries bytes in both directions at a path", function()
    local client = open(listen { path = scratch .. "/socket" })
    expect_echo(client, "hello")
    assert.equal("unix", client:state().remote)
  end)

  it("carries many bytes, and pauses while its client wants none", function()
    local listener = listen()
    local client = open(listener, { limit = 1000 })
    local block = {}
    for i = 1, 40000 do block[i] = ("%07d\n"):format(i) end
    expect_echo(client, table.concat(block):rep(10))
    server:say(("x"):rep(200000))
    local most = 0
    for _ = 1, 20 do loop:turn(0) end
    most = math.max(most, #client:take())
    assert.is_true(most <= 65536 + 1000, most)
    wait(function()
      most = most + #client:take()
      return most == 200000
    end)
  end)

  it("writes bytes that came before it was connected", function()
    local listener = listen()
    local client = new_client()
    client:say("early ")
    loop:dial(client, listener:address())
    client:say("bird")
    local received = ""
    wait(function()
      received = received .. client:take()
      return received == "early bird"
    end)
  end)

  it("ends a turn when it is connected, and whenever its client has news", function()
    local listener = listen()
    local client = dial(listener)
    assert.is_true(loop:is_awaiting())
    loop:turn()
    assert.is_true(client:state().is_opened)
    client:take()
    client:say("news")
    loop:turn()
    assert.equal("news", client:take())
  end)

  it("is refused if no server listens", function()
    local listener = listen()
    local address = listener:address()
    listener:close()
    loop:turn(0)
    local client = new_client()
    assert.is_true(loop:dial(client, address))
    loop:turn()
    assert.equal("connection refused", client:state().why)
    assert.is_false(client:state().is_opened)
    assert.equal("connection refused", wait_for_end(client))
    assert.is_false(loop:is_awaiting())
    assert.equal(0, loop:connections())
  end)

  it("fails at once at a malformed path, and its client may be dialed elsewhere", function()
    local client = new_client()
    assert.same({ nil, "no such file or directory", "ENOENT" }, { loop:dial(client, { path = scratch .. "/none" }) })
    assert.same({ nil, "connection refused", "ECONNREFUSED" }, { loop:dial(client, { path = shell.must(
      "touch " .. scratch .. "/file && printf " .. scratch .. "/file") }) })
    assert.same({ nil, "invalid argument", "EINVAL" }, { loop:dial(client, { host = "localhost", port = 1 }) })
    assert.same({ nil, "name too long", "ENAMETOOLONG" }, { loop:dial(client, { path = ("x"):rep(1000) }) })
    assert.is_false(loop:hosts(client))
    assert.equal(0, loop:connections())
    local listener = listen() -- one that is collected is closed
    assert.is_true(loop:dial(client, listener:address()))
    wait(function() return client:state().is_opened end)
    expect_echo(client, "found")
    listener:close()
  end)

  it("takes clients of the core, once each, and nothing else", function()
    local listener = listen()
    for _, other in ipairs { {}, "client", io.stdout, loop, server } do
      assert.error_matches(function() loop:dial(other, LOCAL) end, "keywatch.core.client expected")
    end
    local client = dial(listener)
    assert.error_matches(function() loop:dial(client, listener:address()) end, "was dialed before")
    assert.has_error(function() loop:dial(new_client(), { host = "127.0.0.1", port = 65536 }) end)
    assert.has_error(function() loop:dial(new_client()) end)
  end)

  it("is closed at the deadline of its client, if it is not accepted", function()
    local address = listen_idly(LOCAL)
    local clients = {}
    for i = 1, 4 do -- more than the kernel queues for a listener that does not accept
      clients[i] = new_client { timeout = 50 }
      assert.is_true(loop:dial(clients[i], address))
    end
    local last = clients[4]
    assert.equal("", wait_for_end(last))
    assert.is_false(last:state().is_opened)
  end)

  it("fails at once at a path whose listener has no room", function()
    local address = listen_idly { path = scratch .. "/socket" }
    local clients, name = {}
    repeat
      clients[#clients + 1] = new_client()
      name = select(3, loop:dial(clients[#clients], address))
    until name or #clients > 10
    assert.equal("EAGAIN", name)
  end)

  it("is closed at once if its client is done before it is connected", function()
    local client = dial(listen())
    client:finish()
    assert.equal("", wait_for_end(client))
    assert.is_false(client:state().is_opened)
  end)

  it("ends when the other side closes", function()
    local client = open(listen())
    expect_echo(client, "a")
    server:finish()
    assert.equal("", wait_for_end(client))
    assert.is_true(client:state().has_ended)
    wait(function() return loop:connections() == 0 end)
    assert.equal(1, server:counts().closed)
  end)

  it("reports why it has failed, after the bytes that came before", function()
    server = new_server { done_after = 1, greeting = "the last words" }
    local handle = luv.new_tcp()
    handle:bind("127.0.0.1", 0)
    local accepted = luv.new_tcp()
    handle:listen(1, function()
      handle:accept(accepted)
      accepted:read_start(function()
        accepted:read_stop()
        accepted:write(("goodbye "):rep(20000), function() accepted:close_reset() end)
      end)
    end)
    local client = new_client()
    client:say("x")
    loop:dial(client, { host = "127.0.0.1", port = handle:getsockname().port })
    socket.turn_until(loop, function() return client:state().closed == 1 end)
    assert.equal("connection reset by peer", client:state().why)
    assert.equal("goodbye ", client:take():sub(1, 8))
    handle:close()
    luv.run("nowait")
  end)

  it("is closed by its release, in every state", function()
    local listener = listen()
    local connecting, connected, done, lingering = dial(listener), open(listener), open(listener), open(listener)
    lingering:finish()
    wait_for_end(lingering)
    done:finish()
    for _, client in ipairs { connecting, connected, done, lingering, new_client() } do
      loop:release(client)
      assert.is_false(loop:hosts(client))
    end
    assert.equal("operation canceled", connecting:state().why)
    assert.equal("operation canceled", connected:state().why)
    assert.equal("", lingering:state().why)
    wait(function() return loop:connections() == 0 end)
  end)

  it("is closed with its loop, in every state", function()
    local address = listen_idly(LOCAL)
    local listener = listen()
    local connecting, lost = new_client(), new_client()
    for _ = 1, 3 do loop:dial(new_client(), address) end
    loop:dial(connecting, address)
    loop:dial(lost, address)
    local connected, done, lingering = open(listener), open(listener), open(listener)
    lingering:finish()
    wait_for_end(lingering)
    done:finish()
    loop:close()
    for _, client in ipairs { connecting, lost, connected, done } do
      assert.equal(1, client:state().closed)
      assert.equal("operation canceled", client:state().why)
    end
    assert.equal(1, lingering:state().closed)
  end)

  it("keeps its client alive, until it has ended", function()
    local listener = listen()
    local weak = setmetatable({}, { __mode = "k" })
    local function dial_one()
      local client = probe.client {}
      weak[client] = true
      loop:dial(client, listener:address())
    end
    for _ = 1, 10 do dial_one() end
    collectgarbage()
    collectgarbage()
    local n = 0
    for client in pairs(weak) do
      n = n + 1
      client:finish()
    end
    assert.equal(10, n)
    wait(function()
      collectgarbage()
      return next(weak, (next(weak))) == nil -- a VM may see the last of them on its stack for a while
    end)
  end)

  it("ends with the state, in every state", function()
    local status, printed = program.run(([[
      require "keywatch.core"
      local uv = require "keywatch.uv"
      uv.probe.enter()
      function state(name)
        loop, server = uv.open(), uv.probe.server {}
        listener = loop:listen(server, { host = "127.0.0.1", port = 0 })
        client = uv.probe.client {}
        if name == "new" then return end
        loop:dial(client, listener:address())
        if name == "dialed" then return end
        loop:turn()
        client:take()
        if name == "open" then return end
        client:finish()
        if name == "done" then return end
        loop:turn()
        client:take()
        assert(client:state().closed == 1)
      end
      for _, name in ipairs { "new", "dialed", "open", "done", "lingering" } do
        state(name)
        loop, server, listener, client = nil
        collectgarbage()
        collectgarbage()
        io.write(name, " ", uv.probe.live(), "\n")
      end
      states = {}
      for i, name in ipairs { "new", "dialed", "open", "done", "lingering" } do
        state(name)
        states[i] = { client, loop, listener, server }
      end
      os.exit(0, true)
    ]]))
    assert.equal("new 0\ndialed 0\nopen 0\ndone 0\nlingering 0\n", printed)
    assert.equal(0, status)
  end)

  it("is not begun when memory is short, and is the next time", function()
    local listener = listen()
    for n = 1, 2 do
      local client = new_client()
      probe.fail_at(n)
      assert.same({ nil, "not enough memory", "ENOMEM" }, { loop:dial(client, listener:address()) })
      probe.fail_at(0)
      assert.is_true(loop:dial(client, listener:address()))
      wait(function() return client:state().is_opened end)
      expect_echo(client, "x")
    end
  end)

  it("may be one of very many", function()
    local listener, clients = listen(), {}
    for i = 1, 300 do clients[i] = dial(listener) end
    for i, client in ipairs(clients) do
      wait(function() return client:state().is_opened end)
      client:take()
      expect_echo(client, tostring(i))
    end
    assert.equal(600, loop:connections())
    for _, client in ipairs(clients) do client:finish() end
    for _, client in ipairs(clients) do wait_for_end(client) end
    wait(function() return loop:connections() == 0 end)
  end)
end)

--- A program that forks. What the child prints comes before the parent continues.
local function run_forked(before, child, parent)
  local status, printed = program.run_forking(([[
    local uv = require "keywatch.uv"
    local probe = uv.probe
    probe.enter()
    local loop, server = uv.open(), probe.server {}
    local function open(address)
      local listener = loop:listen(server, address)
      local client = probe.client {}
      assert(loop:dial(client, listener:address()))
      while not client:state().is_opened do loop:turn() end
      client:take()
      return listener, client
    end
    local function echo(client, bytes)
      client:say(bytes)
      local received = ""
      while received ~= bytes do
        loop:turn()
        received = received .. client:take()
      end
      return received
    end
    %s
    local parent = uv.pid()
    fork()
    if uv.pid() ~= parent then
      %s
      os.exit(0, true)
    end
    wait()
    %s
  ]]):format(before, child, parent))
  assert.equal(0, status, printed)
  return printed
end

describe("a loop after a fork", function()
  local path

  before_each(function() path = shell.must("mktemp -d") .. "/socket" end)
  after_each(function() shell.must("rm -rf " .. path:gsub("/socket$", "")) end)

  local OPEN = [[
    local listener, client = open { host = "127.0.0.1", port = 0 }
    local at_path, other = open { path = %q }
    local lookup = loop:lookup("localhost")
    local catcher = loop:catch { "TERM" }
    echo(client, "before")
  ]]
  local GO_ON = [[
    print(echo(client, "after"), echo(other, "after"), loop:connections(), server:counts().closed)
    print(#listener:address().host > 0, at_path:address().path == %q, io.open(%q) == nil)
    local third = select(2, open { host = "127.0.0.1", port = 0 })
    print(echo(third, "third"))
    while not lookup:result() do loop:turn() end
    print(lookup:result()[1])
  ]]
  local WENT_ON = "after\tafter\t4\t0\ntrue\ttrue\ttrue\nthird\n127.0.0.1\n"

  it("has nothing on it in the child, and everything in the parent", function()
    local printed = run_forked(OPEN:format(path), [[
      print(loop:connections(), loop:hosts(client), loop:hosts(server), server:counts().closed)
      print(client:state().closed, client:state().why, other:state().why)
      print(pcall(listener.address, listener))
      print(lookup:result())
      print(catcher:state(), loop:is_awaiting())
      loop:turn(0)
    ]], GO_ON:format(path, path))
    assert.equal("0\tfalse\tfalse\t2\n1\tinherited by fork\tinherited by fork\nfalse\tthe listener is closed\n"
      .. "false\toperation canceled\tECANCELED\ninherited\tfalse\n" .. WENT_ON, printed)
  end)

  it("is not affected by a child that does nothing, or only exits", function()
    for _, child in ipairs { "", "client:finish() other:say('x') collectgarbage() collectgarbage()",
      "listener, client, at_path, other, lookup, loop, server = nil collectgarbage() collectgarbage()",
      "at_path:close() loop:close()", "loop:release(server)" } do
      assert.equal(WENT_ON, run_forked(OPEN:format(path), child, GO_ON:format(path, path)))
      os.remove(path)
    end
  end)
end)
