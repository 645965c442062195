--- The network of virtual time: servers and clients connect over it as over sockets.

local keywatch = require "keywatch"

local dose = require "spec.support.dose"
local within = require "spec.support.within"

local MIB = 2 ^ 20
local VALUES = dose.is_small and 5 or 20

--- Serves a new store. Returns the store and the server.
local function serve(url)
  local store = keywatch.open()
  return store, assert(keywatch.serve { store = store, listen = url })
end

describe("the network of virtual time", function()
  it("connects programs that serve and connect by themselves", within.world(function()
    for _, url in ipairs { "http://127.0.0.1:2379", "http://etcd.example:2379", "http://[::1]:5", "unix:/no/where",
      "http://localhost:7" } do
      local store, server = serve(url)
      assert.equal(1, #server:addresses())
      local client = keywatch.connect(url)
      assert.equal(2, client:put("a", url).revision)
      assert.equal(url, store:get("a").value)
      client:close()
      server:close()
      store:close()
    end
  end))

  it("has ports for servers without a fixed port, and for servers on all addresses", within.world(function()
    local _, one = serve("http://127.0.0.1:0")
    local _, two = serve("http://127.0.0.1:0")
    assert.not_equal(one:addresses()[1], two:addresses()[1])
    serve("http://0.0.0.0:2379")
    assert(keywatch.connect("http://any.name:2379"):put("a", ""))
  end))

  it("refuses a used address, and connections to unused ones", within.world(function()
    serve("http://a:1")
    local _, err = keywatch.serve { store = keywatch.open(), listen = "http://a:1" }
    assert.same({ "listen_failed", "EADDRINUSE" }, { err.code, err.errno })
    local refused = select(2, keywatch.connect("http://b:1"):put("a", "", { timeout = 1 }))
    assert.same({ "unavailable", "keywatch: http://b:1: connection refused" }, { refused.code, refused.message })
    assert.is_nil(refused.maybe_done)
  end))

  it("carries large values in both directions, and waits for slow readers", within.world(function(world)
    local client = world:client()
    local w = assert(client:watch("a"))
    for i = 1, VALUES do assert(client:put("a", ("x"):rep(MIB) .. i)) end
    assert.equal(tostring(VALUES), client:get("a").value:sub(MIB + 1))
    for i = 1, VALUES do assert.equal(tostring(i), w:next(60).value:sub(MIB + 1)) end
  end))

  it("has the latency of a server", within.world(function(world)
    local client = world:client()
    client:put("a", "1")
    local function seconds_of(fn)
      local began = keywatch.now()
      fn()
      return keywatch.now() - began
    end
    assert.equal(0, seconds_of(function() client:get("a") end))
    world.server:slow(0.25)
    assert.equal(0.5, seconds_of(function() client:get("a") end))
    world.server:slow(1, 2)
    local taken = seconds_of(function() client:get("a") end)
    assert(taken >= 2 and taken <= 4, taken)
    world.server:slow(0)
    assert.equal(0, seconds_of(function() client:get("a") end))
    world.server:slow(0.1) -- connecting is slow, too
    local other = world:client()
    assert(seconds_of(function() other:get("a") end) >= 0.3)
  end))

  it("ends connections in order when either side closes", within.world(function(world)
    local client = world:client()
    client:put("a", "1")
    assert.equal(1, world.server.server.object:connections())
    client:close()
    keywatch.sleep(0.1)
    assert.equal(0, world.server.server.object:connections())
    local store, server = serve("http://s:1")
    local other = keywatch.connect("http://s:1")
    local w = assert(other:watch("b"))
    assert.is_true(server:shutdown(5))
    assert(keywatch.now() < 0.6)
    local again = assert(keywatch.serve { store = store, listen = "http://s:1" })
    other:put("b", "1")
    assert.equal("1", w:next(60).value)
    again:close()
  end))

  it("notices a store that is closed under its server", within.world(function()
    local store, server = serve("http://s:1")
    local client = keywatch.connect("http://s:1")
    client:put("a", "1")
    store:close()
    assert.equal("unavailable", select(2, client:get("a", { timeout = 1 })).code)
    server:close()
  end))

  it("keeps bytes in flight while a client or a server is isolated", within.world(function(world)
    for _, isolate in ipairs { "client", "server" } do
      local client = world:client { keepalive = 0 }
      local w = assert(client:watch("k", { prefix = true }))
      if isolate == "client" then world:isolate(client) else world.server:isolate() end
      local writing = keywatch.spawn(client.put, client, "k1", isolate)
      keywatch.sleep(3)
      assert.is_nil(world.server.store:get("k1"))
      world.server.store:put("k2", isolate)
      assert.equal("timeout", select(2, w:next(1)).code)
      if isolate == "client" then world:join(client) else world.server:join() end
      assert(select(2, writing:join()))
      local seen = { w:next(1).key, w:next(1).key }
      table.sort(seen)
      assert.same({ "k1", "k2" }, seen)
      world.server.store:delete("k1")
      client:close()
    end
  end))

  it("lets a client detect a dead connection by its pings, and reconnect", within.world(function(world)
    local client = world:client()
    local w = assert(client:watch("a"))
    local link = world.network.links[1]
    link.is_mute = true -- as if the server had lost its power
    keywatch.sleep(40)
    world.server.store:put("a", "1")
    assert.same({ "1", nil }, { w:next(60).value, (world.network:find(link.remote)) })
  end))
end)
