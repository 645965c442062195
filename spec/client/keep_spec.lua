--- Leases of a client that are kept: all on one call, through a bad network, and with servers that answer oddly.

local core = require "keywatch.core"
local drivers = require "keywatch.task.driver"
local keywatch = require "keywatch"
local testing = require "keywatch.testing"

local code = require("spec.support.answer").code
local imposter = require "spec.support.imposter"
local network = require "spec.support.network"
local new_random = require("spec.support.random").new
local occurrences = require "spec.support.occurrences"
local program = require "spec.support.program"
local server = require "spec.support.server"

local KEEP, GRANT = "/etcdserverpb.Lease/LeaseKeepAlive", "/etcdserverpb.Lease/LeaseGrant"
local AUTHENTICATE = "/etcdserverpb.Auth/Authenticate"
local SEED, IS_FAST, PATIENCE, await = network.SEED, network.IS_FAST, network.PATIENCE / 2, network.await
local SHORT = 2 -- seconds: the shortest lease that servers grant
local LONG = 600

--- Checks that a lease is lost, now or soon, with a reason that begins with `why`, if given.
local function expect_lost(lease, why)
  local err = assert(lease:wait_lost(PATIENCE))
  assert.equal("lost", err.code)
  local text = ("keywatch: the lease %s is lost: "):format(core.decimal(lease.id))
  assert.equal(text .. (why or ""), err.message:sub(1, #text + #(why or "")))
  assert.equal(err, lease:error())
  assert.equal(err, select(2, keywatch.select { lease }))
  return err
end

--- Waits until a lease is renewed once more.
local function await_renewal(lease)
  local kept = lease.reference.kept
  local sent = kept.sent
  await(function() return kept.err or kept.sent ~= sent and not kept.call and not kept.queue_index end)
  assert.is_nil(kept.err)
end

--- Waits for the first answer about a lease of which only the id is known.
local function await_answer(lease)
  local kept = lease.reference.kept
  await(function() return kept.err or kept.ttl end)
  assert.is_nil(kept.err)
end

--- Has a lease that rests be renewed at once.
local function hurry(lease)
  local kept = lease.reference.kept
  local timers = kept.keeper.timers
  if kept.queue_index or kept.call then return end
  timers:remove(kept.timer)
  kept.timer = timers:add(0, kept)
  kept.keeper.transport.poll_at = nil
end

network.of_each(function(kind, tag)
  describe(("a kept lease of a client of %s %s #slow"):format(kind, tag), function()
    local s, direct, client

    setup(function() s = network.serve(kind) end)
    teardown(function() s:stop() end)
    before_each(network.begin)
    after_each(network.finish)
    before_each(function() direct, client = network.connect(s.url), network.connect(s.url) end)

    it("outlives its TTL, until another client revokes it", function()
      local lease = assert(client:lease(SHORT)):keep()
      assert(client:put("a", "1", { lease = lease }))
      assert.equal("timeout", code(lease:wait_lost(SHORT * 1.25)))
      assert.is_nil(lease:error())
      assert(direct:lease_by_id(lease.id):remaining())
      assert.equal("1", direct:get("a").value)
      assert(direct:lease_by_id(lease.id):revoke())
      expect_lost(lease, "it has expired, or was revoked")
    end)

    it("is lost at once when a manual renewal finds that it is gone", function()
      local lease = assert(client:lease(LONG)):keep()
      assert.equal(LONG, lease:keepalive())
      assert(direct:lease_by_id(lease.id):revoke())
      assert.is_nil(lease:error()) -- it is to be asked for after a while only
      assert.equal("lease_not_found", code(lease:keepalive()))
      assert.equal("lost", lease:error().code)
    end)

    it("is queried, if only its id is known", function()
      local lease = assert(direct:lease(LONG))
      local same = client:lease_by_id(lease.id):keep()
      await_answer(same)
      assert.equal(LONG, same.reference.kept.ttl)
      expect_lost(client:lease_by_id(4711):keep(), "it has expired, or was revoked")
    end)
  end)
end)

describe("a kept lease of a client in virtual time #plain", function() -- there is no TLS
  --- Runs fn(world, client, direct) in a world: two clients of its server.
  local function test(name, fn)
    it(name, function()
      testing.run(function(world) fn(world, world:client(), world:client()) end)
    end)
  end

  test("is lost at once when its own client revokes it", function(_, client)
    local other, third = assert(client:lease(LONG)):keep(), assert(client:lease(LONG)):keep()
    local task = keywatch.spawn(function() return other:wait_lost() end)
    assert(other:revoke())
    assert.equal("lost", select(2, task:join()).code)
    expect_lost(other, "it was revoked")
    assert(client:lease_by_id(third.id):revoke())
    expect_lost(third, "it was revoked")
    assert.equal("lease_not_found", code(third:revoke()))
  end)

  test("of a store is lost at once when a server's client revokes it", function(world, client)
    local lease = world.server.store:lease(LONG):keep()
    local task = keywatch.spawn(function() return lease:wait_lost() end)
    assert(client:lease_by_id(lease.id):revoke())
    assert.is_true(task:join(PATIENCE))
    expect_lost(lease, "it was revoked")
  end)

  test("is lost at its client before it expires at the server, however late its renewals are answered",
    function(world, client)
      world.server:slow(0.2)
      local lease = assert(client:lease(SHORT)):keep()
      await_renewal(lease)
      world:isolate(client)
      local err = assert(lease:wait_lost(PATIENCE))
      assert.equal("lost", err.code)
      assert(world.server.store:lease_by_id(lease.id):remaining())
    end)

  test("expires after it was orphaned, and after its object was dropped", function(_, client, direct)
    local orphan = assert(client:lease(SHORT)):keep()
    local id
    do
      local dropped = assert(client:lease(SHORT)):keep()
      id = dropped.id
      await_renewal(dropped)
    end
    local task = keywatch.spawn(function() return orphan:wait_lost() end)
    keywatch.sleep(0.01)
    orphan:orphan()
    local _, lost, err = task:join()
    assert.same({ nil, "closed" }, { lost, err.code })
    await(function()
      collectgarbage()
      keywatch.sleep(SHORT)
      return code(direct:lease_by_id(id):remaining()) == "lease_not_found"
        and code(direct:lease_by_id(orphan.id):remaining()) == "lease_not_found"
    end)
    assert.equal(0, client:state().leases.open)
  end)

  test("outlives connections that are cut", function(world, client)
    local lease = assert(client:lease(LONG)):keep()
    for _ = 1, 4 do
      hurry(lease)
      await_renewal(lease)
      world:cut(client)
    end
    hurry(lease)
    await_renewal(lease)
    assert.same({ open = 1, waiting = 0 }, client:state().leases)
  end)

  for how, words in pairs { stop = "http://127.0.0.1:2379", isolate = "has not answered" } do
    test("is lost if its server cannot be reached in time, and says so: " .. how, function(world)
      local client = world:client { keepalive = 1000 }
      local lease = assert(client:lease(SHORT)):keep()
      await_renewal(lease)
      world.server[how](world.server)
      local err = expect_lost(lease, "it could not be renewed in time: ")
      assert.is_truthy(err.message:find(words, 1, true), err.message)
      assert.equal(0, client:state().leases.open)
    end)
  end

  test("leaves a silent server earlier than pings would detect that", function(world)
    local first = world.server
    local other = assert(keywatch.serve { store = first.store, listen = "http://127.0.0.1:2380",
      cluster_token = "server 1" })
    local client = keywatch.connect({ first.url, "http://127.0.0.1:2380" }, { keepalive = 1000 })
    local lease = assert(client:lease(6)):keep()
    assert.equal(first.url, client:state().endpoint)
    first:isolate()
    await_renewal(lease)
    assert.equal("http://127.0.0.1:2380", client:state().endpoint)
    client:close()
    other:close()
  end)

  test("may be one of many on one connection, whatever happens to the connection", function(world, client, direct)
    local random = new_random(SEED)
    local leases, revoked = {}, {}
    local acts = {}
    function acts.keep(lease) lease:keep() end
    function acts.hurry(lease)
      if lease.reference and not lease.reference.is_released and not lease:error() then hurry(lease) end
    end
    function acts.orphan(lease) lease:orphan() end
    function acts.again(lease, i) leases[i] = client:lease_by_id(lease.id):keep() end
    function acts.revoke(lease)
      if revoked[lease.id] or random:one_in(4) then return false end
      assert(direct:lease_by_id(lease.id):revoke())
      revoked[lease.id] = true
    end
    function acts.cut() world:cut(client) end
    function acts.stall() world:isolate(client) end
    function acts.resume() world:join(client) end
    function acts.pass() keywatch.sleep(random:between(0, 3) / 1000) end
    for i = 1, 30 do leases[i] = assert(client:lease(LONG)) end
    local names = {}
    for name in pairs(acts) do names[#names + 1] = name end
    occurrences.await(names, IS_FAST and 200 or 1500, function()
      local i = random:between(1, #leases)
      local name = random:weighted {
        { 8, "keep" }, { 12, "hurry" }, { 4, "orphan" }, { 4, "again" }, { 1, "revoke" }, { 1, "cut" },
        { 1, "stall" }, { 3, "resume" }, { 10, "pass" },
      }
      local has_acted = acts[name](leases[i], i) ~= false
      local keeper = client.transport.keeper
      local n, waiting = 0, 0
      for id, kept in pairs(keeper.by_id) do
        assert(id == kept.id and not kept.err, kept.err)
        n, waiting = n + 1, waiting + (kept.queue_index and 1 or 0)
        assert(not kept.queue_index or keeper.queue[kept.queue_index] == kept and not kept.call)
        assert(keeper.timers.heap[kept.timer.at] == kept.timer)
      end
      assert.same({ n, waiting, n }, { keeper.count, keeper.waiting, #keeper.timers.heap })
      return has_acted and name or nil
    end)
    world:join(client)
    for i, lease in ipairs(leases) do
      lease:orphan()
      leases[i] = client:lease_by_id(lease.id):keep()
    end
    for _, lease in ipairs(leases) do
      await(function()
        acts.hurry(lease) -- an answer from before the revocation may be under way
        return not revoked[lease.id] or lease:error()
      end)
      if revoked[lease.id] then expect_lost(lease) else await_answer(lease) end
    end
  end)
end)

describe("a client that keeps leases #plain", function() -- there is no TLS in virtual time
  local world

  network.in_virtual_time(function(one) world = one end)

  local SERVING = {
    [GRANT] = [[
      local request = stream:receive()
      stream:message { ID = request.ID, TTL = request.TTL }
      stream:status(0)
    ]],
    [KEEP] = "for request in stream.receive, stream do stream:message { ID = request.ID, TTL = 3 } end",
  }
  local function start(behave)
    local all = { [GRANT] = SERVING[GRANT], [KEEP] = behave or SERVING[KEEP] }
    return imposter.start(all)
  end

  it("keeps them all on one call, which requires a leader", function()
    local peer = start()
    local client = network.connect(peer.url)
    local leases = {}
    for i = 1, 200 do leases[i] = client:lease_by_id(i):keep() end
    for _, lease in ipairs(leases) do await_answer(lease) end
    for i = 1, 200, 20 do
      hurry(leases[i])
      await_renewal(leases[i])
    end
    assert.equal(1, #peer:calls_of(KEEP))
    assert.equal("true", peer:calls_of(KEEP)[1].headers.hasleader)
    for _, lease in ipairs(leases) do lease:orphan() end
    assert.is_nil(client.transport.keeper.call)
    assert.same({}, client.transport.keeper.timers.heap)
  end)

  it("uses the TTL of the answer, unless that is invalid", function()
    local ttls = { [1] = 0, [2] = -5, [3] = "9223372036854775807", [4] = 1000 }
    local peer = start [[
      local ttls = { 0, -5, "9223372036854775807", 1000 }
      for request in stream.receive, stream do
        stream:message { ID = 99, TTL = 1 }                          -- which was not requested
        stream:message { TTL = 1 }
        stream:message { ID = request.ID, TTL = ttls[request.ID] }
        stream:message { ID = request.ID, TTL = 7 }                  -- a second time
      end
    ]]
    local client = network.connect(peer.url)
    local leases = {}
    for id in pairs(ttls) do leases[id] = client:lease_by_id(id):keep() end
    expect_lost(leases[1], "it has expired, or was revoked")
    expect_lost(leases[2], "it has expired, or was revoked")
    await_answer(leases[3])
    await_answer(leases[4])
    assert.equal(9000000000, leases[3].reference.kept.ttl)
    assert.equal(1000, leases[4].reference.kept.ttl)
    assert.equal(1, #peer:calls_of(KEEP))
  end)

  it("does not take the answer to an earlier request for the answer to a later one", function()
    local peer = start [[
      local first, second = stream:receive(), nil
      stream:wait("both")
      second = stream:receive()
      stream:message { ID = first.ID, TTL = 0 }
      stream:message { ID = second.ID, TTL = 500 }
      stream:receive()
    ]]
    local client = network.connect(peer.url)
    local other = client:lease_by_id(6):keep()
    other:orphan()
    local lease, rest = client:lease_by_id(5):keep(), client:lease(LONG, { id = 8 })
    rest:keep() -- so that the call continues
    await(function() return lease.reference.kept.call end)
    peer:await("#calls >= 1 and #calls[#calls].messages == 1")
    lease:orphan()
    local again = client:lease_by_id(5):keep()
    await(function() return again.reference.kept.call end)
    peer:signal("both")
    await_answer(again)
    assert.equal(500, again.reference.kept.ttl)
  end)

  it("uses an answer that arrives just before a lease would be lost", function()
    local peer = start()
    local lease = network.connect(peer.url, { keepalive = 1000 }):lease_by_id(7):keep()
    await_answer(lease)
    peer:slow(0.5)
    hurry(lease)
    peer:await("#calls[1].messages == 2")
    local kept = lease.reference.kept
    world:pause(kept.deadline - keywatch.now()) -- the loop did not turn for long
    keywatch.sleep(0)
    assert.is_nil(lease:error())
    assert(kept.deadline > keywatch.now())
    assert.is_nil(kept.queue_index)
  end)

  it("uses another connection if the current one is silent, also to the only endpoint", function()
    local peer = imposter.start {
      [KEEP] = [[
        local is_first = true
        for request in stream.receive, stream do
          if is_first or stream.record.connection > 1 then stream:message { ID = request.ID, TTL = 3 } end
          is_first = false
        end
      ]],
    }
    local client = network.connect(peer.url, { keepalive = 1000 })
    local lease = client:lease_by_id(7):keep()
    await_answer(lease)
    peer:behave { [KEEP] = [[
      for request in stream.receive, stream do
        if stream.record.connection > 1 then stream:message { ID = request.ID, TTL = 100 } end
      end
    ]] }
    await(function() return lease:error() or lease.reference.kept.ttl == 100 end)
    assert.is_nil(lease:error())
    assert.equal(2, #peer.connections)
  end)

  it("replaces a call that never answers one of its requests, before other requests fill the memory", function()
    local peer = imposter.start {
      [KEEP] = [[
        for request in stream.receive, stream do
          if #stream.record.messages < 3 or request.ID ~= 1 then stream:message { ID = request.ID, TTL = 1000000 } end
        end
      ]],
    }
    local client = network.connect(peer.url)
    local silent, other = client:lease_by_id(1):keep(), client:lease_by_id(2):keep()
    await_answer(silent)
    await_answer(other)
    hurry(silent)
    await(function() return silent.reference.kept.call end)
    local call = silent.reference.kept.call
    for _ = 1, 70000 do -- requests that were answered
      call.last = call.last + 1
      call.asked[call.last] = other.reference.kept
    end
    hurry(other)
    await(function() return silent.reference.kept.call ~= call end)
    await_answer(silent)
    assert.is_nil(other:error())
    assert.equal(1, #peer.connections)
  end)

  it("loses only the lease whose request was refused", function()
    local peer = start [[
      for request in stream.receive, stream do
        if request.ID == 2 then return stream:status(7, "etcdserver: permission denied") end
        stream:message { ID = request.ID, TTL = 100 }
      end
    ]]
    local client = network.connect(peer.url)
    local leases = {}
    for id = 1, 4 do leases[id] = client:lease_by_id(id):keep() end
    expect_lost(leases[2], "the server has refused to renew it: etcdserver: permission denied")
    for _, id in ipairs { 1, 3, 4 } do
      await(function() return leases[id].reference.kept.ttl == 100 end)
      assert.is_nil(leases[id]:error())
    end
    assert.equal(2, #peer:calls_of(KEEP))
  end)

  it("repeats a request after a temporary failure", function()
    for _, failure in ipairs {
      'stream:status(14, "etcdserver: no leader")', 'stream:status(1, "cancelled")', "stream:status(0)",
      'stream:reset("internal_error")', 'stream:message("\\255")', 'stream.conn:close("reset")',
      'stream.conn:goaway("no_error") stream:status(14, "going")', 'stream:status(8, "too many requests")',
    } do
      local peer = start((([[
        n = (n or 0) + 1
        local request = stream:receive()
        if n < 4 then FAILURE return end
        while request do
          stream:message { ID = request.ID, TTL = 100 }
          request = stream:receive()
        end
      ]]):gsub("FAILURE", function() return failure end)))
      local client = network.connect(peer.url)
      local lease = client:lease_by_id(5):keep()
      await(function() return lease.reference.kept.ttl or lease:error() end)
      assert.is_nil(lease:error(), failure)
      await(function() return client:state().state == "connected" end)
      client:close()
    end
  end)

  it("reports why its leases wait", function()
    local peer = start 'stream:receive() stream:status(14, "etcdserver: no leader")'
    local client = network.connect(peer.url)
    local lease = client:lease(1, { id = 5 }):keep()
    local state
    await(function()
      state = client:state()
      return state.state == "waiting"
    end)
    assert.equal("etcdserver: no leader", state.why)
    assert.same({ open = 1, waiting = 1 }, state.leases)
    expect_lost(lease, "it could not be renewed in time: etcdserver: no leader")
    assert.same({ open = 0, waiting = 0 }, client:state().leases)
  end)

  it("leaves a member without a leader for another one", function()
    local first = start 'stream:receive() stream:status(14, "etcdserver: no leader")'
    local second = start()
    local client = network.connect { first.url, second.url }
    local lease = client:lease(3, { id = 5 }):keep()
    await_renewal(lease)
    await_renewal(lease)
    assert.equal(second.url, client:state().endpoint)
  end)

  it("sends as much as there is room for, and the rest later", function()
    local peer = imposter.start {
      connection = "conn.gives_windows = false conn:settings()",
      [KEEP] = [[
        stream:wait("go on")
        stream.conn:raw(h2.window(0, 2 ^ 24) .. h2.window(stream.id, 2 ^ 24))
        for request in stream.receive, stream do stream:message { ID = request.ID, TTL = 1000 } end
      ]],
    }
    local client = network.connect(peer.url)
    local leases, keeper, n = {}, client.transport.keeper, 12000
    for i = 1, n do leases[i] = client:lease_by_id(2 ^ 50 + i):keep() end
    await(function() return keeper.waiting < n end)
    keywatch.sleep(0.01) -- in which the rest is not sent
    assert.is_true(keeper.waiting > 0)
    peer:signal("go on")
    await(function() return leases[n].reference.kept.ttl end)
    assert.equal(0, keeper.waiting)
    client:close()
    expect_lost(leases[1], "the client is closed")
    expect_lost(leases[n], "the client is closed")
    assert.equal(0, keeper.count)
  end)

  it("renews the token, once", function()
    local peer = imposter.start {
      [AUTHENTICATE] = [[
        tokens = (tokens or 0) + 1
        stream:receive()
        stream:message { token = "t" .. tokens }
        stream:status(0)
      ]],
      [KEEP] = [[
        for request in stream.receive, stream do
          if stream.request.token == "t1" then return stream:status(16, "etcdserver: invalid auth token") end
          stream:message { ID = request.ID, TTL = 100 }
        end
      ]],
    }
    local client = network.connect(peer.url, { user = "root", password = "secret", timeout = PATIENCE })
    local lease = client:lease_by_id(5):keep()
    await(function() return lease.reference.kept.ttl or lease:error() end)
    assert.is_nil(lease:error())
    assert.equal(2, #peer:calls_of(KEEP))
  end)

  it("loses the lease if every token is refused", function()
    local peer = imposter.start {
      [AUTHENTICATE] = 'stream:receive() stream:message { token = "t" .. stream.id } stream:status(0)',
      [KEEP] = 'stream:receive() stream:status(16, "etcdserver: invalid auth token")',
    }
    local client = network.connect(peer.url, { user = "root", password = "secret", timeout = PATIENCE })
    expect_lost(client:lease_by_id(5):keep(), "the server has refused to renew it: etcdserver: invalid auth token")
  end)

  it("loses its leases if the server refuses the user", function()
    local peer = imposter.start {
      [AUTHENTICATE] = 'stream:receive() stream:status(3, "etcdserver: authentication failed")',
    }
    local client = network.connect(peer.url, { user = "root", password = "secret", timeout = PATIENCE })
    expect_lost(client:lease_by_id(5):keep(), "the server has refused the user: etcdserver: authentication failed")
  end)

  it("loses its leases when it is closed; later leases are lost at once", function()
    local peer = start()
    local client = network.connect(peer.url)
    local lease, other = client:lease(LONG, { id = 5 }):keep(), client:lease(LONG, { id = 6 })
    local task = keywatch.spawn(function() return lease:wait_lost() end)
    keywatch.spawn(function() client:close() end)
    assert.equal("lost", select(2, task:join()).code)
    expect_lost(lease, "the client is closed")
    expect_lost(other:keep(), "the client is closed")
    expect_lost(client:lease_by_id(7):keep(), "the client is closed")
  end)

  it("does not lose a lease whose revocation failed", function()
    local peer = imposter.start {
      [GRANT] = SERVING[GRANT], [KEEP] = SERVING[KEEP],
      ["/etcdserverpb.Lease/LeaseRevoke"] = 'stream:receive() stream:status(7, "etcdserver: permission denied")',
    }
    local client = network.connect(peer.url)
    local lease = client:lease(3, { id = 5 }):keep()
    assert.equal("permission_denied", code(lease:revoke()))
    await_renewal(lease)
    assert.is_nil(lease:error())
  end)

  it("is detached from the driver when it has no leases", function()
    local peer = start()
    local client = network.connect(peer.url)
    local lease = client:lease_by_id(5):keep()
    await(function() return lease.reference.kept.ttl end)
    assert.is_true(client.transport.is_attached)
    lease:orphan()
    client:close()
    assert.is_false(client.transport.is_attached)
    local inner = drivers.get().inside()
    assert.is_nil(inner.places[client.transport])
  end)

  it("lives as long as its leases, and is closed when both are dropped", function()
    local peer = start "for request in stream.receive, stream do stream:message { ID = request.ID, TTL = 1000 } end"
    network.await_forgotten(function()
      local client = keywatch.connect(peer.url)
      local lease, transport = client:lease(LONG, { id = 5 }):keep(), client.transport
      client = nil -- luacheck: ignore 311
      for _ = 1, 3 do
        collectgarbage()
        hurry(lease)
        await_renewal(lease)
      end
      return transport
    end)
  end)
end)

describe("a kept lease of a client of this process", function()
  after_each(network.finish)

  it("is renewed by a host's loop, which gets the time of the renewal", function()
    local store = keywatch.open()
    local serving = keywatch.serve { store = store, listen = "http://127.0.0.1:0" }
    local client = network.connect(serving:addresses()[1])
    while keywatch.step() == 0 do end -- luacheck: ignore 542
    local lease = client:lease_by_id(store:lease(100).id):keep()
    local deadline = keywatch.now() + PATIENCE
    while not lease.reference.kept.ttl do
      assert.is_true(keywatch.now() < deadline)
      assert.is_number(keywatch.timeout())
      keywatch.step()
    end
    assert.is_true(keywatch.timeout() <= 100 / 3)
    serving:close()
    store:close()
  end)
end)

describe("a kept lease of a client, after a fork #slow", function()
  it("stays with the parent", function()
    local peer = server.start { kind = "keywatch", is_in_memory = true }
    local status, printed = program.run_forking(([[
      local client = keywatch.connect(%q)
      local lease = client:lease(2, { id = 5 }):keep()
      local by_id = client:lease_by_id(5):keep()
      by_id:wait_lost(0.1)
      local parent = core.pid()
      fork()
      if core.pid() ~= parent then
        print(lease:error())
        print(by_id:wait_lost())
        print(client:lease(60, { id = 6 }):keep():error())
        print(client:state().leases.open)
        os.exit(0)
      end
      wait()
      print(lease:wait_lost(2.5))
      print(client:lease_by_id(5):remaining() ~= nil)
    ]]):format(peer.url))
    peer:stop()
    local lost = "keywatch: the lease 5 is lost: the parent process keeps it (lost)\n"
    assert.equal(lost .. lost .. "nil\n1\nnil\tkeywatch: timed out (timeout)\ntrue\n", printed)
    assert.equal(0, status)
  end)
end)
