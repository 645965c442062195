--- Lock: one owner at a time, in the order of the requests.

local core = require "keywatch.core"

local rpc = require "spec.support.rpc"
local serving = require "spec.support.serving"

local LOCK, UNLOCK = "/v3lockpb.Lock/Lock", "/v3lockpb.Lock/Unlock"
local UNKNOWN, DEADLINE_EXCEEDED = 2, 4

describe("Lock", function()
  local peer, client, other
  local grant = serving.for_lock_services(function(...) peer, client, other = ... end)

  --- Asks for a lock that is not to be had yet, and waits until it stands in the queue.
  local function begin(from, name, lease, place)
    local call = from:begin_message(LOCK, { name = name, lease = lease })
    from:wait(function() return #serving.keys(client, name .. "/") >= place end)
    return call
  end

  local function answer(from, call)
    assert.same({ 0, "" }, { from:finish(call) })
    return rpc.answers(call, LOCK)[1]
  end

  it("is acquired at once if it is free: a key of the name and the lease in hexadecimal", function()
    local lease = grant(0xabc)
    local got = assert(client:ask(LOCK, { name = "free", lease = lease }))
    assert.equal("free/abc", got.key)
    assert.equal(serving.revision(client), got.header.revision)
    assert.same({ "free/abc" }, serving.keys(client, "free/"))
    local kv = client:ask("/etcdserverpb.KV/Range", { key = "free/abc" }).kvs[1]
    assert.same({ nil, lease, got.header.revision }, { kv.value, kv.lease, kv.create_revision })
  end)

  it("gets a lease of sixty seconds, if the request has none", function()
    local got = assert(client:ask(LOCK, { name = "lent" }))
    local lease = assert(got.key:match("^lent/(%x+)$"))
    assert.same({ got.key }, serving.keys(client, "lent/"))
    local kv = client:ask("/etcdserverpb.KV/Range", { key = got.key }).kvs[1]
    assert.equal(lease, core.hex(kv.lease))
    assert.equal(60, client:ask("/etcdserverpb.Lease/LeaseTimeToLive", { ID = kv.lease }).grantedTTL)
  end)

  it("is acquired again by the same lease", function()
    local lease = grant()
    local first = assert(client:ask(LOCK, { name = "again", lease = lease }))
    serving.put(client, "elsewhere", "")
    local second = assert(other:ask(LOCK, { name = "again", lease = lease }))
    assert.equal(first.key, second.key)
    assert.equal(first.header.revision + 1, second.header.revision)
  end)

  it("may have an empty name", function()
    assert.equal("/beef", assert(client:ask(LOCK, { lease = grant(0xbeef) })).key)
  end)

  it("passes from one to the next, on any connection", function()
    local third = peer:client()
    local a, b, c = grant(1), grant(2), grant(3)
    assert(client:ask(LOCK, { name = "turns", lease = c }))
    local first = begin(other, "turns", b, 2)
    local second = begin(third, "turns", a, 3)
    assert.same({ "turns/3", "turns/2", "turns/1" }, serving.keys(client, "turns/"))

    assert.is_table(client:ask(UNLOCK, { key = "turns/3" }))
    local got = answer(other, first)
    assert.equal("turns/2", got.key)
    assert.is_true(got.header.revision >= serving.revision(client))
    third:settle()
    assert.is_nil(second.status)

    client:ask(UNLOCK, { key = "turns/2" })
    assert.equal("turns/1", answer(third, second).key)
  end)

  it("is not acquired early when a waiter in the middle leaves", function()
    local a, b, c = grant(), grant(), grant()
    local held = assert(client:ask(LOCK, { name = "middle", lease = a }))
    local middle = begin(other, "middle", b, 2)
    local last = begin(client, "middle", c, 3)
    other:cancel(middle)
    other:wait(function() return #serving.keys(client, "middle/") == 2 end)
    client:settle()
    assert.is_nil(last.status)
    client:ask(UNLOCK, { key = held.key })
    answer(client, last)
  end)

  it("is acquired when its owner's lease ends", function()
    local a, b = serving.grant(client, 100), grant()
    assert(client:ask(LOCK, { name = "ends", lease = a }))
    local waiting = begin(other, "ends", b, 2)
    serving.revoke(client, a)
    answer(other, waiting)
  end)

  it("is lost by a waiter whose lease ends", function()
    local a, b = grant(), serving.grant(client, 100)
    local held = assert(client:ask(LOCK, { name = "expired", lease = a }))
    local waiting = begin(other, "expired", b, 2)
    serving.revoke(client, b)
    other:settle()
    assert.is_nil(waiting.status)
    client:ask(UNLOCK, { key = held.key })
    other:finish(waiting)
    if serving.is_etcd then return end -- 3.4 does not look
    assert.same({ UNKNOWN, "mutex: session is expired" }, { waiting.status, waiting.text })
  end)

  it("is not acquired by a disconnected waiter: the key is deleted", function()
    local a, b, c = grant(), grant(), grant()
    assert(client:ask(LOCK, { name = "gone", lease = a }))
    local cancelled = begin(other, "gone", b, 2)
    begin(other, "gone", c, 3)
    other:cancel(cancelled)
    other:wait(function() return #serving.keys(client, "gone/") == 2 end)
    other:close()
    client:wait(function() return #serving.keys(client, "gone/") == 1 end)
  end)

  it("is not acquired after the deadline: the key is deleted", function()
    local a, b = grant(), grant()
    assert(client:ask(LOCK, { name = "late", lease = a }))
    local request = core.encode("LockRequest", { name = "late", lease = b })
    local call = other:begin(LOCK, request, { ["grpc-timeout"] = "50m" })
    local status, text = other:finish(call)
    assert.equal("context deadline exceeded", text)
    assert.equal(serving.is_etcd and UNKNOWN or DEADLINE_EXCEEDED, status)
    client:wait(function() return #serving.keys(client, "late/") == 1 end)
  end)

  it("is refused without its lease", function()
    assert.same({ nil, UNKNOWN, "etcdserver: requested lease not found" },
      { client:ask(LOCK, { name = "none", lease = 4711 }) })
    assert.same({}, serving.keys(client, "none/"))
  end)

  it("is released by any caller that knows the key, also if there is none", function()
    local held = assert(client:ask(LOCK, { name = "open", lease = grant() }))
    local before = serving.revision(client)
    assert.equal(before + 1, assert(other:ask(UNLOCK, { key = held.key })).header.revision)
    assert.equal(before + 1, assert(other:ask(UNLOCK, { key = held.key })).header.revision)
    assert.same({ nil, UNKNOWN, "etcdserver: key is not provided" }, { client:ask(UNLOCK, {}) })
  end)

  it("is refused, and leaves no key, without disk space", function()
    local member = client:ask("/etcdserverpb.Maintenance/Status").leader
    local lease = grant()
    local alarm = { memberID = member, alarm = "NOSPACE", action = "ACTIVATE" }
    client:ask("/etcdserverpb.Maintenance/Alarm", alarm)
    local refusal = { nil, UNKNOWN, "etcdserver: mvcc: database space exceeded" }
    assert.same(refusal, { client:ask(LOCK, { name = "full", lease = lease }) })
    assert.same(refusal, { client:ask(LOCK, { name = "full" }) })
    alarm.action = "DEACTIVATE"
    client:ask("/etcdserverpb.Maintenance/Alarm", alarm)
    assert(client:ask(LOCK, { name = "full", lease = lease }))
  end)
end)

if serving.is_etcd then return end

describe("Lock over a store with a manual clock", function()
  local peer, client

  serving.for_each_test(function(...) peer, client = ... end, { now = 0 })

  it("ends silently when the store is closed", function()
    local a, b = serving.grant(client, 100), serving.grant(client, 100)
    assert(client:ask(LOCK, { name = "l", lease = a }))
    client:begin_message(LOCK, { name = "l", lease = b })
    client:wait(function() return #serving.keys(client, "l/") == 2 end)
    local lines = serving.log_of(function()
      peer.store:close()
      client:wait(function() return client.socket.has_ended or client.socket.failure end)
    end)
    assert.same({}, lines)
  end)
end)
