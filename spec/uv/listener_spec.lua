--- Listeners: their addresses, their errors, and the lifetime of accepted connections.

local uv = require "keywatch.uv"

local program = require "spec.support.program"
local shell = require "spec.support.shell"
local socket = require "spec.support.socket"

require "keywatch.core" -- the loop asks for it

local probe = uv.probe
local LOCAL = { host = "127.0.0.1", port = 0 }

if not probe then return end -- there is no server without an engine

describe("a listener", function()
  local loop, server, scratch

  before_each(function()
    probe.enter()
    loop, server, scratch = assert(uv.open()), probe.server {}, shell.must("mktemp -d")
  end)

  after_each(function()
    probe.leave()
    loop:close()
    shell.must("rm -rf " .. scratch)
  end)

  --- True if a connection there is served.
  local function is_served(address)
    local client = socket.connect(address)
    socket.turn_until(loop, function() return client.is_connected or client.failure end)
    if client.is_connected then
      client:write("x")
      socket.turn_until(loop, function() return client.received == "x" or client.has_ended end)
    end
    client:close()
    return client.received == "x"
  end

  it("has the port that the kernel chose", function()
    local listener = loop:listen(server, LOCAL)
    local address = listener:address()
    assert.equal("127.0.0.1", address.host)
    assert.is_true(address.port > 0)
    assert.is_true(is_served(address))
    listener:close()
  end)

  it("reports the end of a client whose bytes are not wanted, once", function()
    for _, ending in ipairs { "shutdown", "close" } do
      server = probe.server { stop_after = 10 }
      local listener = loop:listen(server, LOCAL)
      local client = socket.connect(listener:address())
      client:write(("x"):rep(10))
      socket.turn_until(loop, function() return #client.received == 10 end) -- a client that closes unread bytes resets
      assert.same({ 10, 0 }, { server:counts().bytes, server:counts().gone })
      client:write("unread")
      client[ending](client)
      socket.turn_until(loop, function() return server:counts().gone == 1 end)
      for _ = 1, 10 do loop:turn(0) end
      assert.same({ 1, 0, 10 }, { server:counts().gone, server:counts().ends, server:counts().bytes })
      assert.equal(0, server:counts().closed)
      client:close()
      listener:close()
    end
  end)

  it("closes the connection of a client that has reset it, and whose bytes are not wanted", function()
    server = probe.server { stop_after = 10 }
    local listener = loop:listen(server, LOCAL)
    local client = socket.connect(listener:address())
    client:write(("x"):rep(10))
    socket.turn_until(loop, function() return server:counts().bytes == 10 end)
    client:reset()
    socket.turn_until(loop, function() return server:counts().closed == 1 end)
    listener:close()
  end)

  it("listens at a path, and removes it when it is closed", function()
    local path = scratch .. "/socket"
    local listener = assert(loop:listen(server, { path = path }))
    assert.same({ path = path }, listener:address())
    assert.is_true(is_served { path = path })
    listener:close()
    assert.is_nil(io.open(path))
    assert.is_false((shell.run("test -e " .. path)))
  end)

  it("takes over a path without an active listener", function()
    local path = scratch .. "/socket"
    local status = program.run(([[
      require "keywatch.core"
      local uv = require "keywatch.uv"
      uv.probe.enter()
      local loop = uv.open()
      local listener = assert(loop:listen(uv.probe.server {}, { path = %q }))
      require("luv").kill(require("luv").os_getpid(), "sigkill")
    ]]):format(path))
    assert.equal(137, status)
    shell.must("test -S " .. path)
    local listener = assert(loop:listen(server, { path = path }))
    assert.is_true(is_served(listener:address()))
    listener:close()
  end)

  it("does not touch a path with an active listener, or one that is not a socket", function()
    local path, file = scratch .. "/socket", scratch .. "/file"
    local first = assert(loop:listen(server, { path = path }))
    local none, text, name = loop:listen(server, { path = path })
    assert.is_nil(none)
    assert.is_string(text)
    assert.equal("EADDRINUSE", name)
    assert.is_true(is_served(first:address()))

    shell.must("echo kept >" .. file)
    assert.equal("EADDRINUSE", (select(3, loop:listen(server, { path = file }))))
    assert.equal("kept", shell.must("cat " .. file))
  end)

  it("does not remove a path that another listener has taken over", function()
    local path = scratch .. "/socket"
    local listener = assert(loop:listen(server, { path = path }))
    shell.must(("rm %s && touch %s"):format(path, path))
    listener:close()
    shell.must("test -f " .. path)
  end)

  it("reports why it cannot listen", function()
    local taken = loop:listen(server, LOCAL)
    local function name_of(address) return (select(3, loop:listen(server, address))) end
    assert.equal("EADDRINUSE", name_of(taken:address()))
    assert.equal("EADDRNOTAVAIL", name_of { host = "192.0.2.1", port = 0 }) -- TEST-NET-1
    assert.equal("EINVAL", name_of { host = "localhost", port = 0 }) -- a name is looked up before
    assert.equal("EINVAL", name_of { path = "" })
    assert.equal("ENOENT", name_of { path = scratch .. "/no/such/folder" })
    assert.equal("ENAMETOOLONG", name_of { path = ("x"):rep(200) })
    assert.has_error(function() loop:listen(server, { host = "127.0.0.1", port = 70000 }) end)
    assert.has_error(function() loop:listen(server, {}) end)
    assert.has_error(function() loop:listen(server) end)
    assert.has_error(function() loop:listen({}, LOCAL) end)
  end)

  it("accepts no more when it is closed, and its connections stay open", function()
    local listener = loop:listen(server, LOCAL)
    local address = listener:address()
    local client = socket.connect(address)
    socket.turn_until(loop, function() return server:counts().accepted == 1 end)
    listener:close()
    listener:close()
    assert.has_error(function() listener:address() end, "the listener is closed")
    assert.is_false(is_served(address))
    client:write("hello")
    socket.turn_until(loop, function() return client.received == "hello" end)
    assert.is_true(loop:is_awaiting())
    client:close()
    socket.turn_until(loop, function() return loop:connections() == 0 end)
    assert.is_false(loop:is_awaiting())
  end)

  it("keeps its server alive, and releases it when nothing is left", function()
    local weak = setmetatable({ server = server }, { __mode = "v" })
    local listener = loop:listen(server, LOCAL)
    server = nil
    collectgarbage()
    collectgarbage()
    assert.is_userdata(weak.server)
    listener:close()
    loop:turn(0)
    collectgarbage()
    collectgarbage()
    assert.is_nil(weak.server)
  end)

  it("ends when it is forgotten", function()
    local address = loop:listen(server, LOCAL):address()
    collectgarbage()
    collectgarbage()
    assert.is_false(is_served(address))
  end)

  it("is closed with its connections when its server is released", function()
    local other = probe.server {}
    local listener, kept = loop:listen(server, LOCAL), loop:listen(other, LOCAL)
    local client = socket.connect(listener:address())
    socket.turn_until(loop, function() return server:counts().accepted == 1 end)
    loop:release(server)
    assert.equal(1, server:counts().closed)
    assert.has_error(function() listener:address() end)
    socket.turn_until(loop, function() return client.has_ended or client.failure end)
    assert.is_true(is_served(kept:address()))
    client:close()
  end)

  it("needs an engine of the same version", function()
    probe.leave()
    probe.enter(99)
    assert.error_matches(function() loop:listen(server, LOCAL) end, "version 99")
  end)

  it("waits until there are descriptors again, without spinning, and drops no connection", function()
    local status, printed = program.run [[
      require "keywatch.core"
      local uv, luv = require "keywatch.uv", require "luv"
      uv.probe.enter()
      local loop, server = uv.open(), uv.probe.server {}
      local listener = loop:listen(server, { host = "127.0.0.1", port = 0 })
      local address = listener:address()
      local clients, files = {}, {}
      local function turn_until(is_so)
        while not is_so() do luv.run("nowait") loop:turn(0) end
      end
      for i = 1, 3 do
        local tcp = luv.new_tcp()
        local client = { tcp = tcp, received = "" }
        clients[i] = client
        tcp:connect(address.host, address.port, function(err)
          assert(not err, err)
          tcp:read_start(function(_, bytes) client.received = client.received .. (bytes or "") end)
          tcp:write("x")
        end)
      end
      local file = true
      while file do
        file = io.open("/dev/null")
        files[#files + 1] = file or nil
      end
      for _ = 1, 20 do luv.run("nowait") end
      loop:turn(0.05)
      local steps = server:counts().server_steps
      print(server:counts().accepted, steps < 20)
      for _, opened in ipairs(files) do opened:close() end
      turn_until(function() return server:counts().accepted == 3 end)
      turn_until(function()
        for _, client in ipairs(clients) do
          if client.received ~= "x" then return false end
        end
        return true
      end)
      print("served")
      loop:close()
    ]]
    assert.equal("0\ttrue\nserved\n", printed)
    assert.equal(0, status)
  end)

  for _, order in ipairs { "loop, server", "server, loop" } do
    it("ends in order with the state, made in the order: " .. order, function()
      local status, printed = program.run(([[
        require "keywatch.core"
        local uv, luv = require "keywatch.uv", require "luv"
        uv.probe.enter()
        local loop, server
        for word in ("%s"):gmatch("%%a+") do
          if word == "loop" then loop = uv.open() else server = uv.probe.server {} end
        end
        local listener = loop:listen(server, { host = "127.0.0.1", port = 0 })
        local address = listener:address()
        local tcp = luv.new_tcp()
        tcp:connect(address.host, address.port, function() end)
        while server:counts().accepted == 0 do luv.run("nowait") loop:turn(0) end
        print("accepted")
        kept = { loop, server, listener }
      ]]):format(order))
      assert.equal("accepted\n", printed)
      assert.equal(0, status)
    end)
  end

  it("is closed with a loop that is forgotten", function()
    collectgarbage() -- what other tests have left
    collectgarbage()
    local live = probe.live()
    do
      local forgotten, own = uv.open(), probe.server {}
      local listener = forgotten:listen(own, LOCAL)
      local client = socket.connect(listener:address())
      socket.turn_until(forgotten, function() return own:counts().accepted == 1 end)
      client:close()
    end
    collectgarbage()
    collectgarbage()
    collectgarbage()
    assert.equal(live, probe.live())
  end)
end)
