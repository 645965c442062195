--- Connections with TLS on the loop, driven by the echo engine of probe builds.

local tls = require "keywatch.tls"
local uv = require "keywatch.uv"

local certificates = require "spec.support.certificates"
local echo = require "spec.support.echo"
local luv = require "spec.support.luv"
local pair = require "spec.support.tls_pair"
local socket = require "spec.support.socket"

require "keywatch.core" -- the loop asks for it

local probe = uv.probe
local LOCAL = { host = "127.0.0.1", port = 0 }

describe("the loop", function()
  local loop

  before_each(function() loop = assert(uv.open()) end)
  after_each(function() loop:close() end)

  it("takes contexts of the right role, and nothing else", function()
    local core = require "keywatch.core"
    local store = core.open()
    local server = assert(core.serve(store))
    local client = core.client("localhost:1", {})
    local cert, key = certificates.paths("server")
    local servers, clients = assert(tls.server { cert = cert, key = key }), assert(tls.client {})
    local closed = assert(tls.client {})
    closed:close()
    local address = { host = "127.0.0.1", port = 1 }
    for _, other in ipairs { {}, "tls", io.stdout, loop, true } do
      assert.error_matches(function() loop:listen(server, LOCAL, other) end, "keywatch.tls.context expected")
      assert.error_matches(function() loop:dial(client, address, other, "a", "a") end, "keywatch.tls.context expected")
    end
    assert.has_error(function() loop:listen(server, LOCAL, clients) end, "this is a context of clients")
    assert.has_error(function() loop:dial(client, address, servers, "a", "a") end, "this is a context of servers")
    assert.has_error(function() loop:dial(client, address, closed, "a", "a") end, "the context is closed")
    assert.error_matches(function() loop:dial(client, address, clients) end, "string expected")
    assert.same({ nil, "the name of the server is too long", "TLS" },
      { loop:dial(client, address, clients, ("a"):rep(300), "a") })
    assert.equal(0, loop:connections())
    client:close()
    server:close()
    store:close()
  end)
end)

if not probe then return end

describe("a connection with TLS", function()
  local loop, server, contexts

  local of_test = echo.for_each_test(function(...)
    loop, server = ...
    contexts = {}
    certificates.directory()
  end, function()
    for _, one in ipairs(contexts) do one:close() end
  end)

  local new_client, wait, expect_echo = of_test.new_client, of_test.wait, of_test.expect_echo
  local new_server, wait_for_end = of_test.new_server, of_test.wait_for_end

  local function context(side, options)
    local made = assert(tls[side](options))
    table.insert(contexts, made)
    return made
  end

  local function server_context(options)
    options = options or {}
    options.cert, options.key = certificates.paths(options.name or "server")
    options.name = nil
    return context("server", options)
  end

  local function client_context(options)
    options = options or {}
    if options.name then options.cert, options.key = certificates.paths(options.name) end
    options.name = nil
    options.ca = options.ca or certificates.paths("ca")
    return context("client", options)
  end

  local function listen(options, address)
    return assert(loop:listen(server, address or LOCAL, server_context(options)))
  end

  local function dial(listener, options, tls_options, name)
    local client = new_client(options)
    assert.is_true(loop:dial(client, listener:address(), client_context(tls_options), name or "localhost", "here"))
    return client
  end

  local function open(listener, options, tls_options)
    local client = dial(listener, options, tls_options)
    wait(function() return client:state().is_opened or client:state().closed > 0 end)
    assert.equal("", client:state().why)
    client:take()
    return client
  end

  local function block(n)
    local lines = {}
    for i = 1, n / 8 do lines[i] = ("%07d\n"):format(i) end
    return table.concat(lines)
  end

  it("carries bytes in both directions", function()
    local client = open(listen())
    expect_echo(client, "hello")
    expect_echo(client, block(800000))
    assert.equal(2, loop:connections())
    assert.same({ "", "" }, { server:heard() })
  end)

  it("carries large and small pieces", function()
    for _, piece in ipairs { 1, 100, 16383, 16384, 16385, 100000 } do
      server = new_server { piece = piece }
      expect_echo(open(listen()), block(piece < 100 and 8000 or 400000))
    end
  end)

  it("pauses while its client wants no bytes", function()
    local client = open(listen(), { limit = 1000 })
    server:say(("x"):rep(2000000))
    for _ = 1, 50 do loop:turn(0) end
    local most = #client:take()
    assert.is_true(most <= 16384 + 1000, most)
    wait(function()
      most = most + #client:take()
      return most == 2000000
    end)
  end)

  it("is read while the other side does not read #slow", function()
    server = new_server { is_silent = true }
    local listener = listen()
    local one, other = open(listener), open(listener)
    one:say(block(4000000))
    server:say(block(4000000)) -- to both
    other:say(block(4000000))
    local got = { [one] = 0, [other] = 0 }
    wait(function()
      for client, n in pairs(got) do got[client] = n + #client:take() end
      return got[one] == 4000000 and got[other] == 4000000 and server:counts().bytes == 8000000
    end)
  end)

  it("has the name of a client's certificate", function()
    local client = open(listen { client_cert_auth = true, ca = certificates.paths("ca") }, nil, { name = "alice" })
    expect_echo(client, "x")
    assert.same({ "", "alice" }, { server:heard() })
  end)

  it("ends in order on either side", function()
    local listener = listen()
    local client = open(listener)
    client:say("last words")
    client:finish()
    assert.equal("", wait_for_end(client))
    wait(function() return server:counts().closed == 1 end)
    assert.equal(#"last words", server:counts().bytes)
    assert.equal(1, server:counts().ends)
    client = open(listener)
    expect_echo(client, "x") -- the handshake is over on both sides
    server:say("bye")
    server:finish()
    assert.equal("", wait_for_end(client))
    assert.equal("bye", client:take())
    wait(function() return loop:connections() == 0 end)
  end)

  for _, module in ipairs { "uv", "tls" } do
    it("survives every lack of memory in keywatch." .. module .. " #starved #slow", function()
      local fail_at = require("keywatch." .. module).probe.fail_at
      local listener, own = listen(), client_context()
      local at, is_opened = 0, false
      repeat
        at = at + 1
        local client = new_client()
        fail_at(at)
        if loop:dial(client, listener:address(), own, "localhost", "here") then
          wait(function() return client:state().is_opened or client:state().closed > 0 end)
          is_opened = client:state().is_opened
          if is_opened then
            client:say("x")
            wait(function() return client:take() ~= "" or client:state().closed > 0 end)
            is_opened = client:state().closed == 0
          end
        end
        fail_at(0)
        loop:release(client)
        client:close()
      until is_opened
      expect_echo(open(listener), "x")
      assert.is_true(at > 3, at)
    end)
  end

  it("may be one of very many, and its handshake delays no other #slow", function()
    local listener, clients, own = listen(), {}, client_context()
    local first = open(listener)
    for i = 1, 100 do
      clients[i] = new_client()
      assert.is_true(loop:dial(clients[i], listener:address(), own, "localhost", tostring(i)))
    end
    local n = 0
    repeat -- every iteration has a turn for the first connection, whatever there is to do for the others
      expect_echo(first, "x")
      n = n + 1
    until clients[100]:state().is_opened
    assert.is_true(n >= 20, n)
    for i, client in ipairs(clients) do
      wait(function() return client:state().is_opened end)
      client:take()
      expect_echo(client, tostring(i))
    end
  end)

  --- A connection that the spec makes by hand: a channel, and a socket of another loop.
  local function open_by_hand(listener)
    local channel = client_context():connect("localhost")
    local client = socket.connect(listener:address())
    socket.turn_until(loop, function() return client.is_connected end)
    channel:step()
    client:write(channel:pending())
    socket.turn_until(loop, function()
      if client.received ~= "" then
        channel:feed(client.received)
        client.received = ""
        pair.work(channel, {})
        local bytes = channel:pending()
        if bytes ~= "" then client:write(bytes) end
      end
      return channel:state().is_open
    end)
    socket.turn_until(loop, function() return server:counts().accepted == 1 end)
    return channel, client
  end

  it("decrypts for one turn, and leaves the rest for the next iterations", function()
    local n = 0
    local channel, client = open_by_hand(listen())
    for _ = 1, 2000 do assert.is_true(tls.probe.update_keys(channel)) end
    channel:write("x")
    client:write(channel:pending())
    repeat
      n = n + 1
      luv.run("nowait")
      loop:turn(0)
    until server:counts().bytes == 1
    assert.is_true(n > 5, n) -- as many records in one turn take a hundred times as long as a turn may
    client:close()
    channel:close()
  end)

  it("is not read again while bytes wait, though a timer has read in the same iteration", function()
    local TICK, SIZE = 20, 300000
    server = new_server { tick = TICK, limit = 1000 }
    local channel, client = open_by_hand(listen())

    local function say(text)
      for from = 1, #text, 16384 do
        assert.is_true(channel:write(text:sub(from, from + 16383)) > 0)
        client:write(channel:pending())
      end
    end

    say("x")
    socket.turn_until(loop, function() return server:counts().bytes == 1 end) -- sets the timer
    say(("y"):rep(SIZE))
    local due = uv.now() + TICK / 1000
    repeat luv.run("nowait") until uv.now() > due -- the socket has more than the channel takes
    socket.turn_until(loop, function() return server:counts().bytes == SIZE + 1 end)
    client:close()
    channel:close()
  end)

  it("outlives its context and its listener", function()
    local listener = listen()
    local client = open(listener)
    for _, one in ipairs(contexts) do one:close() end
    listener:close()
    expect_echo(client, "x")
  end)
end)
