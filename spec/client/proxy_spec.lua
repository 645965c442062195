--- The proxy that specs of clients put before a server: what it does to connections, seen from both sides.

local keywatch = require "keywatch"

local luv = require "spec.support.luv"

local directory = require "spec.support.directory"
local etcdctl = require "spec.support.etcdctl"
local process = require "spec.support.process"
local proxy = require "spec.support.proxy"
local raw = require "spec.support.raw"
local server = require "spec.support.server"
local socket = require "spec.support.socket"

local turn_until = raw.turn_until

--- A listener whose connections are sockets, as the clients are.
local function listen(path)
  local handle = path and luv.new_pipe(false) or luv.new_tcp()
  local self = { handle = handle, sockets = {} }
  assert(path and handle:bind(path) or handle:bind("127.0.0.1", 0))
  self.url = path and "unix:" .. path or "http://127.0.0.1:" .. handle:getsockname().port
  assert(handle:listen(16, function()
    local one = setmetatable({ handle = path and luv.new_pipe(false) or luv.new_tcp(), received = "" }, socket.mt)
    assert(handle:accept(one.handle))
    one:read()
    table.insert(self.sockets, one)
  end))
  return self
end

local function close_all(self)
  for _, one in ipairs(self.sockets) do one:close() end
  self.handle:close()
  luv.run("nowait")
end

describe("a proxy #slow", function()
  local target, other, p, clients

  before_each(function()
    target, clients = listen(), {}
    p = proxy.start(target.url)
  end)

  after_each(function()
    for _, client in ipairs(clients) do client:close() end
    close_all(target)
    if other then close_all(other) end
    other = nil
    process.end_all()
    directory.remove_all()
  end)

  --- A client that is connected to the proxy, or was refused.
  local function connect()
    local client = socket.connect { host = "127.0.0.1", port = p.port }
    table.insert(clients, client)
    turn_until(function() return client.is_connected or client.failure end, "a connection")
    return client
  end

  --- A client and its other end, behind the proxy.
  local function pair(to)
    to = to or target
    local n = #to.sockets
    local client = connect()
    turn_until(function() return #to.sockets > n end, "a connection to the server")
    return client, to.sockets[n + 1]
  end

  local function expect(one, bytes)
    turn_until(function() return #one.received >= #bytes end, "some bytes")
    assert.equal(bytes, one.received)
  end

  local function expect_end(one, failure)
    turn_until(function() return one.has_ended or one.failure end, "an end")
    assert.equal(failure, one.failure)
  end

  --- libuv takes a reset that comes together with bytes for an end.
  local function expect_some_end(one)
    turn_until(function() return one.has_ended or one.failure end, "an end")
  end

  it("passes bytes and ends both ways, to a port or to a path", function()
    for _, to in ipairs { "port", "path" } do
      if to == "path" then
        other = listen(directory.new() .. "/socket")
        p:retarget(other.url)
      end
      local client, peer = pair(other)
      client:write("hello")
      expect(peer, "hello")
      local large = ("0123456789"):rep(200000)
      peer:write(large)
      expect(client, large)
      client:shutdown()
      expect_end(peer)
      peer:write("more")
      expect(client, large .. "more")
      peer:close()
      expect_end(client)
      p:wait_connections(0)
    end
  end)

  it("counts connections, and bytes", function()
    assert.equal(0, p:connections())
    local first = pair()
    local _, peer = pair()
    assert.equal(2, p:connections())
    first:close()
    turn_until(function() return target.sockets[1].has_ended end, "an end")
    target.sockets[1]:close()
    p:wait_connections(1)
    pair()
    assert.equal(2, p:connections())
    assert.equal(3, p:accepted())
    peer:write("four")
    p:wait_bytes(4)
    assert.equal(4, p:bytes("to_client"))
    assert.equal(0, p:bytes("to_server"))
  end)

  it("waits for connections, and turns what it is told to turn", function()
    local n = 0
    p:wait_accepted(2, function()
      n = n + 1
      if n < 3 then table.insert(clients, (socket.connect { host = "127.0.0.1", port = p.port })) end
    end)
    assert.is_true(n >= 2)
    p:wait_connections(2)
  end)

  it("passes the error of one side to the other", function()
    local client, peer = pair()
    client:reset()
    expect_end(peer, "ECONNRESET")
    client, peer = pair()
    peer:reset()
    expect_end(client, "ECONNRESET")
    p:wait_connections(0)
  end)

  it("resets a connection whose server is not there", function()
    local gone = listen()
    close_all(gone)
    p:retarget(gone.url)
    expect_end(connect(), "ECONNRESET")
    p:wait_connections(0)
  end)

  it("cuts all connections, in order or not", function()
    for how, failure in pairs { close = false, reset = "ECONNRESET" } do
      local client, peer = pair()
      local second = pair()
      p:cut { how = how }
      assert.equal(0, p:connections())
      for _, one in ipairs { client, peer, second } do expect_end(one, failure or nil) end
    end
  end)

  it("cuts one side, and leaves the other with a silent connection", function()
    local client, peer = pair()
    p:cut { direction = "to_client" }
    assert.equal(0, p:connections())
    expect_end(client)
    peer:write("is anybody there?")
    p:cut { how = "reset" }
    expect_end(peer, "ECONNRESET")

    client, peer = pair()
    p:cut { direction = "to_server", how = "reset" }
    expect_end(peer, "ECONNRESET")
    assert.equal(1, p:connections())
    client:write("is anybody there?")
    client:close()
    p:wait_connections(0)
  end)

  it("ends one direction after what was said, and leaves the other open", function()
    local client, peer = pair()
    p:stall()
    peer:write("last words")
    p:wait_held(10, "to_client")
    p:cut { direction = "to_client", how = "shutdown" }
    p:resume()
    expect_end(client)
    assert.equal("last words", client.received)
    client:write("and mine")
    expect(peer, "and mine")
  end)

  for _, direction in ipairs { "to_server", "to_client" } do
    it("cuts after any byte " .. direction, function()
      local bytes = "0123456789"
      for n = 0, #bytes do
        p:cut_after(n, direction)
        local client = connect()
        if n == 0 then
          expect_end(client, "ECONNRESET")
        else
          turn_until(function() return #target.sockets > 0 end, "a connection to the server")
          local peer = table.remove(target.sockets)
          local from, to = client, peer
          if direction == "to_client" then from, to = peer, client end
          from:write(bytes)
          expect_some_end(to)
          assert.equal(bytes:sub(1, n), to.received)
          expect_end(from, "ECONNRESET")
          peer:close()
        end
      end
    end)
  end

  it("cuts connections that there are after some more bytes, until it is told otherwise", function()
    local client, peer = pair()
    client:write("before")
    expect(peer, "before")
    p:cut_after(3, "to_server", "close")
    peer:write("this way all passes")
    expect(client, "this way all passes")
    client:write("after")
    expect_end(peer)
    assert.equal("beforeaft", peer.received)
    expect_end(client)

    client, peer = pair()
    p:cut_after(nil)
    client:write("all of it")
    expect(peer, "all of it")
    p:cut_after(0)
    expect_end(peer, "ECONNRESET")
    expect_end(client, "ECONNRESET")
  end)

  it("cuts the next connection, and no other one", function()
    local old, old_peer = pair()
    p:cut_once(3, "to_server", "close")
    local client, peer = pair()
    local third, third_peer = pair()
    for _, one in ipairs { old, client, third } do one:write("hello") end
    expect_end(peer)
    assert.equal("hel", peer.received)
    expect(old_peer, "hello")
    expect(third_peer, "hello")
    p:cut_once(0)
    p:cut_once(nil)
    pair()
  end)

  it("swallows what comes after any byte, and leaves the connection open", function()
    for n = 0, 3 do
      for _, direction in ipairs { "to_server", "to_client" } do
        p:cut_once(n, direction, "swallow")
        local client, peer = pair()
        local from, to = client, peer
        if direction == "to_client" then from, to = peer, client end
        from:write("hello")
        expect(to, ("hello"):sub(1, n))
        to:write("heard by nobody")
        local third, third_peer = pair()
        third:write("hello")
        expect(third_peer, "hello")
        assert.equal(("hello"):sub(1, n), to.received)
        assert.equal("", from.received)
        assert.is_nil(client.has_ended or peer.has_ended or nil)
      end
    end
  end)

  it("refuses new connections, keeps old ones, and accepts again on the same port", function()
    local client, peer = pair()
    for _ = 1, 3 do
      p:refuse()
      assert.equal("ECONNREFUSED", connect().failure)
      p:accept_again()
      pair()
    end
    client:write("still here")
    expect(peer, "still here")
  end)

  it("holds what comes while it is stalled, also that it has ended", function()
    local client, peer = pair()
    p:stall("to_server")
    client:write("held")
    client:shutdown()
    peer:write("not held")
    expect(client, "not held")
    p:wait_held(4, "to_server")
    assert.equal("", peer.received)
    assert.is_falsy(peer.has_ended)
    p:resume("to_server")
    expect_end(peer)
    assert.equal("held", peer.received)
  end)

  it("makes who sends too much wait while it is stalled, and loses nothing", function()
    local client, peer = pair()
    local large = ("0123456789abcdef"):rep(2 ^ 18)
    p:stall("to_server")
    client:write(large)
    p:wait_held(2 ^ 20, "to_server", function() luv.run("nowait") end)
    assert.is_true(p:held("to_server") < #large / 2)
    p:resume("to_server")
    turn_until(function() return #peer.received == #large end, "all of it")
    assert.is_true(peer.received == large)
  end)

  it("throws away what is said in the dark, on old connections and on new ones", function()
    local client, peer = pair()
    p:blackhole()
    local late, silent = connect(), connect()
    p:wait_connections(3)
    for _, one in ipairs { client, peer, late } do one:write("hello?") end
    late:write("anybody?")
    client:close()
    p:wait_connections(2)
    assert.equal(1, #target.sockets)
    p:restore()
    assert.equal("", peer.received)
    assert.is_falsy(peer.has_ended)
    late:write("still nothing")
    silent:write("now")
    turn_until(function() return #target.sockets == 2 end, "a connection to the server")
    expect(target.sockets[2], "now")
    assert.equal("", late.received)
    client, peer = pair()
    client:write("hello")
    expect(peer, "hello")
  end)

  it("delays, and keeps the order", function()
    local client, peer = pair()
    p:delay(100, "to_server")
    local start = luv.hrtime()
    client:write("slow ")
    p:wait_held(5, "to_server")
    p:delay(nil)
    client:write("and fast")
    expect(peer, "slow and fast")
    assert.is_true(luv.hrtime() - start >= 90e6)
  end)

  it("splits", function()
    local client, peer = pair()
    p:split(3)
    peer:write(("x"):rep(1000))
    expect(client, ("x"):rep(1000))
    p:wait_bytes(1000)
    assert.equal(334, p:writes("to_client"))
    p:split(nil)
    peer:write("more")
    expect(client, ("x"):rep(1000) .. "more")
    p:wait_bytes(1004)
    assert.equal(335, p:writes())
  end)

  it("throttles", function()
    local client, peer = pair()
    p:throttle(10000, "to_client")
    local start = luv.hrtime()
    peer:write(("x"):rep(2000))
    client:write(("y"):rep(100000))
    expect(peer, ("y"):rep(100000))
    expect(client, ("x"):rep(2000))
    assert.is_true(luv.hrtime() - start >= 150e6)
    p:throttle(1, "to_client")
    peer:write("zz")
    p:wait_bytes(2001, "to_client")
    p:restore()
    expect(client, ("x"):rep(2000) .. "zz")
  end)

  it("leads new connections to another server", function()
    local client, peer = pair()
    other = listen()
    p:retarget(other.url)
    local later, later_peer = pair(other)
    later:write("new")
    expect(later_peer, "new")
    client:write("old")
    expect(peer, "old")
  end)

  it("obeys tasks, also while one of them waits", function()
    keywatch.run(function()
      local waiting = keywatch.spawn(function()
        p:wait_accepted(2, function() keywatch.sleep(0) end)
        return p:accepted()
      end)
      keywatch.sleep(0)
      connect()
      connect()
      p:refuse()
      assert.equal("ECONNREFUSED", connect().failure)
      assert.equal(2, (select(2, waiting:join())))
    end)
  end)

  it("says what it cannot do", function()
    local ok, err = pcall(p.retarget, p, "ftp://here")
    assert.is_false(ok)
    assert.truthy(err:find("no such URL: ftp://here", 1, true))
    p:close()
    ok, err = pcall(p.connections, p)
    assert.is_false(ok)
    assert.truthy(err:find("no answer", 1, true))
  end)

  it("stands between etcdctl and a server, and nobody notices", function()
    local peer = server.start { is_in_memory = true, kind = "keywatch" }
    p:retarget(peer.url)
    p:split(7)
    local ctl = etcdctl.new(p)
    ctl:must { "put", "a", "1" }
    assert.equal("a\n1\n", ctl:must { "get", "a" })
    p:wait_connections(0)
    peer:stop()
  end)
end)
