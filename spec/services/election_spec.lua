--- Election: one leader at a time, and its observers.

local core = require "keywatch.core"
local keywatch = require "keywatch"

local rpc = require "spec.support.rpc"
local serving = require "spec.support.serving"

local ELECTION = "/v3electionpb.Election/"
local UNKNOWN = 2

describe("Election", function()
  local peer, client, other
  local grant = serving.for_lock_services(function(...) peer, client, other = ... end)

  local function ask(method, request)
    return client:ask(ELECTION .. method, request)
  end

  --- Campaigns while there is a leader, and waits until the call is in the queue.
  local function begin(from, request, place)
    local call = from:begin_message(ELECTION .. "Campaign", request)
    from:wait(function() return #serving.keys(client, request.name .. "/") >= place end)
    return call
  end

  local function answer(from, call)
    assert.same({ 0, "" }, { from:finish(call) })
    return rpc.answers(call, ELECTION .. "Campaign")[1]
  end

  describe("Campaign", function()
    it("is won at once without a leader", function()
      local lease = grant(0xe1)
      local won = assert(ask("Campaign", { name = "free", lease = lease, value = "me" }))
      assert.equal(serving.revision(client), won.header.revision)
      assert.same({ name = "free", key = "free/e1", rev = won.header.revision, lease = lease }, won.leader)
      local led = assert(ask("Leader", { name = "free" }))
      assert.equal(won.header.revision, led.header.revision)
      assert.same({ key = "free/e1", value = "me", create_revision = won.leader.rev, mod_revision = won.leader.rev,
        version = 1, lease = lease }, led.kv)
    end)

    it("gets a lease of sixty seconds, if the request has none", function()
      local leader = assert(ask("Campaign", { name = "lent" })).leader
      assert.equal("lent/" .. core.hex(leader.lease), leader.key)
      assert.equal(60, client:ask("/etcdserverpb.Lease/LeaseTimeToLive", { ID = leader.lease }).grantedTTL)
    end)

    it("of the leader sets another value, and only if the value differs", function()
      local lease = grant()
      local first = assert(ask("Campaign", { name = "twice", lease = lease, value = "1" }))
      local second = assert(ask("Campaign", { name = "twice", lease = lease, value = "2" }))
      assert.same(first.leader, second.leader)
      assert.equal(first.header.revision, second.header.revision)
      assert.equal(first.header.revision + 1, serving.revision(client))
      assert.equal("2", ask("Leader", { name = "twice" }).kv.value)
      ask("Campaign", { name = "twice", lease = lease, value = "2" })
      assert.equal(first.header.revision + 1, serving.revision(client))
    end)

    it("is won in turn, on any connection", function()
      local third = peer:client()
      local a, b, c = grant(), grant(), grant()
      local first = assert(ask("Campaign", { name = "turns", lease = a, value = "a" })).leader
      local second = begin(other, { name = "turns", lease = b, value = "b" }, 2)
      local entered = serving.revision(client)
      local last = begin(third, { name = "turns", lease = c, value = "c" }, 3)
      assert.equal("a", ask("Leader", { name = "turns" }).kv.value)

      assert.is_table(ask("Resign", { leader = first }))
      local won = answer(other, second)
      assert.equal(entered, won.header.revision)
      assert.equal(entered, won.leader.rev)
      assert.equal("b", ask("Leader", { name = "turns" }).kv.value)
      third:settle()
      assert.is_nil(last.status)

      serving.revoke(client, b)
      answer(third, last)
      assert.equal("c", ask("Leader", { name = "turns" }).kv.value)
    end)

    it("ends when its client disconnects, or at its deadline: the key is deleted", function()
      local a, b, c, d = grant(), grant(), grant(), grant()
      ask("Campaign", { name = "gone", lease = a })
      local cancelled = begin(other, { name = "gone", lease = b }, 2)
      begin(other, { name = "gone", lease = c }, 3)
      local late = client:begin(ELECTION .. "Campaign", core.encode("CampaignRequest", { name = "gone", lease = d }),
        { ["grpc-timeout"] = "50m" })
      assert.equal("context deadline exceeded", select(2, client:finish(late)))
      other:cancel(cancelled)
      other:wait(function() return #serving.keys(client, "gone/") == 2 end)
      other:close()
      client:wait(function() return #serving.keys(client, "gone/") == 1 end)
    end)

    it("is won by a call whose key has been deleted since, as in etcd", function()
      local a, b = grant(), serving.grant(client, 100)
      local first = assert(ask("Campaign", { name = "empty", lease = a })).leader
      local waiting = begin(other, { name = "empty", lease = b }, 2)
      serving.revoke(client, b)
      ask("Resign", { leader = first })
      local won = answer(other, waiting).leader
      assert.same({ nil, UNKNOWN, "election: no leader" }, { ask("Leader", { name = "empty" }) })
      assert.same({ nil, UNKNOWN, "election: not leader" }, { ask("Proclaim", { leader = won, value = "x" }) })
    end)

    it("is refused without its lease", function()
      assert.same({ nil, UNKNOWN, "etcdserver: requested lease not found" },
        { ask("Campaign", { name = "none", lease = 4711, value = "x" }) })
    end)
  end)

  describe("Proclaim", function()
    it("sets another value of the leader", function()
      local leader = assert(ask("Campaign", { name = "says", lease = grant(), value = "1" })).leader
      local said = assert(ask("Proclaim", { leader = leader, value = "2" }))
      assert.equal(leader.rev + 1, said.header.revision)
      local kv = ask("Leader", { name = "says" }).kv
      assert.same({ "2", 2, leader.lease, leader.rev }, { kv.value, kv.version, kv.lease, kv.create_revision })
      ask("Proclaim", { leader = leader })
      assert.is_nil(ask("Leader", { name = "says" }).kv.value)
    end)

    it("is refused to a caller that does not lead, or names no leader", function()
      local lease = grant()
      local leader = assert(ask("Campaign", { name = "past", lease = lease, value = "1" })).leader
      ask("Resign", { leader = leader })
      assert.same({ nil, UNKNOWN, "election: not leader" }, { ask("Proclaim", { leader = leader, value = "x" }) })
      ask("Campaign", { name = "past", lease = lease, value = "2" })
      assert.same({ nil, UNKNOWN, "election: not leader" }, { ask("Proclaim", { leader = leader, value = "x" }) })
      for _, rev in ipairs { -1, "9007199254740993", "9223372036854775807", "-9223372036854775808" } do
        leader.rev = rev
        assert.same({ nil, UNKNOWN, "election: not leader" }, { ask("Proclaim", { leader = leader, value = "x" }) })
        assert.is_table(ask("Resign", { leader = leader }))
      end
      assert.equal("2", ask("Leader", { name = "past" }).kv.value)
      assert.same({ nil, UNKNOWN, '"leader" field must be provided' }, { ask("Proclaim", { value = "x" }) })
      assert.same({ nil, UNKNOWN, "etcdserver: key is not provided" },
        { ask("Proclaim", { leader = {}, value = "x" }) })
    end)
  end)

  describe("Resign", function()
    it("ends the leadership, once", function()
      local leader = assert(ask("Campaign", { name = "ends", lease = grant() })).leader
      assert.equal(leader.rev + 1, assert(ask("Resign", { leader = leader })).header.revision)
      assert.same({ nil, UNKNOWN, "election: no leader" }, { ask("Leader", { name = "ends" }) })
      assert.equal(leader.rev + 1, assert(ask("Resign", { leader = leader })).header.revision)
    end)

    it("of a former leader does not affect the current one", function()
      local lease = grant()
      local leader = assert(ask("Campaign", { name = "before", lease = lease })).leader
      ask("Resign", { leader = leader })
      ask("Campaign", { name = "before", lease = lease })
      ask("Resign", { leader = leader })
      assert.is_table(ask("Leader", { name = "before" }))
    end)

    it("is refused without a leader", function()
      assert.same({ nil, UNKNOWN, '"leader" field must be provided' }, { ask("Resign", {}) })
      assert.same({ nil, UNKNOWN, "etcdserver: key is not provided" }, { ask("Resign", { leader = {} }) })
    end)
  end)

  describe("Observe", function()
    local function observe(name)
      return client:begin_message(ELECTION .. "Observe", { name = name })
    end

    --- The received values, once there are so many.
    local function received(call, n)
      client:wait(function() return #call.messages >= n or call.status end)
      local values, revisions = {}, {}
      for i, message in ipairs(rpc.answers(call, ELECTION .. "Observe")) do
        values[i], revisions[i] = message.kv.value, message.header.revision
      end
      return values, revisions
    end

    it("sends the leader, its values, and later leaders", function()
      local a, b = grant(), grant()
      local first = assert(ask("Campaign", { name = "seen", lease = a, value = "a1" })).leader
      local second = begin(other, { name = "seen", lease = b, value = "b1" }, 2)
      local call = observe("seen")
      assert.same({ "a1" }, (received(call, 1)))
      ask("Proclaim", { leader = first, value = "a2" })
      assert.same({ "a1", "a2" }, (received(call, 2)))
      ask("Resign", { leader = first })
      local now = answer(other, second).leader
      assert.same({ "a1", "a2", "b1" }, (received(call, 3)))
      ask("Proclaim", { leader = now, value = "b2" })
      local values, revisions = received(call, 4)
      assert.same({ "a1", "a2", "b1", "b2" }, values)
      assert.equal(serving.revision(client), revisions[4])
      assert.is_nil(call.status)
      client:cancel(call)
    end)

    it("waits without a leader, and misses none, however short", function()
      local call = observe("short")
      client:settle()
      local lease = grant()
      for i = 1, 3 do
        local leader = assert(ask("Campaign", { name = "short", lease = lease, value = tostring(i) })).leader
        assert.equal(tostring(i), received(call, i)[i])
        ask("Resign", { leader = leader })
      end
      client:settle()
      assert.same({ "1", "2", "3" }, (received(call, 3)))
      client:cancel(call)
    end)

    it("leaves nothing behind when it is cancelled, or its client disconnects", function()
      local call = observe("left")
      other:begin_message(ELECTION .. "Observe", { name = "left" })
      client:settle()
      other:settle()
      client:cancel(call)
      other:close()
      if serving.is_etcd then return end
      client:wait(function() return next(peer.server.calls) == nil end)
    end)
  end)
end)

if serving.is_etcd then return end

describe("Election in a process", function()
  local peer, client

  serving.for_each_test(function(...) peer, client = ... end, { now = 0 })

  it("moves on when the leader's lease expires, and Observe reports that", function()
    local call = client:begin_message(ELECTION .. "Observe", { name = "e" })
    local a, b = serving.grant(client, 10), serving.grant(client, 100)
    assert(client:ask(ELECTION .. "Campaign", { name = "e", lease = a, value = "a" }))
    local waiting = client:begin_message(ELECTION .. "Campaign", { name = "e", lease = b, value = "b" })
    client:wait(function() return #call.messages == 1 and #serving.keys(client, "e/") == 2 end)
    peer.store:step(11)
    client:wait(function() return waiting.status and #call.messages == 2 end)
    assert.equal("b", rpc.answers(call, ELECTION .. "Observe")[2].kv.value)
  end)

  it("sends every value to Observe, though several come at once", function()
    local call = client:begin_message(ELECTION .. "Observe", { name = "e" })
    client:settle()
    peer.store:put("e/1", "first")
    peer.store:put("e/1", "second")
    peer.store:delete("e/1")
    peer.store:put("e/2", "third")
    client:wait(function() return #call.messages == 3 end)
    local received = {}
    for i, message in ipairs(rpc.answers(call, ELECTION .. "Observe")) do
      received[i] = { message.kv.value, message.header.revision }
    end
    assert.same({ { "first", 2 }, { "second", 3 }, { "third", 5 } }, received)
  end)

  it("is observed across the end of keywatch.run, with and without a leader", function()
    local store = keywatch.open()
    local server = assert(keywatch.serve { store = store, listen = "http://127.0.0.1:0" })
    local remote = keywatch.connect(server:addresses()[1])
    local stream
    local function value() return assert(stream:receive(30)).kv.value end
    keywatch.run(function()
      stream = assert(remote:stream(ELECTION .. "Observe"))
      stream:send { name = "e" }
      stream:finish()
      assert.equal("timeout", select(2, stream:receive(0.1)).code)
    end)
    store:put("e/1", "first")
    store:delete("e/1")
    store:put("e/2", "second")
    keywatch.run(function() assert.same({ "first", "second" }, { value(), value() }) end)
    store:put("e/2", "third")
    keywatch.run(function() assert.equal("third", value()) end)
    for _, one in ipairs { remote, server, store } do one:close() end
  end)

  it("does not change without disk space", function()
    local lease = serving.grant(client, 100)
    local leader = assert(client:ask(ELECTION .. "Campaign", { name = "e", lease = lease, value = "a" })).leader
    peer.store:arm("no_space")
    local refusal = { nil, UNKNOWN, "etcdserver: mvcc: database space exceeded" }
    assert.same(refusal, { client:ask(ELECTION .. "Campaign", { name = "e", lease = lease, value = "b" }) })
    assert.same(refusal, { client:ask(ELECTION .. "Proclaim", { leader = leader, value = "b" }) })
    assert.equal("a", client:ask(ELECTION .. "Leader", { name = "e" }).kv.value)
    assert.is_table(client:ask(ELECTION .. "Resign", { leader = leader }))
  end)
end)
