--- etcdserverpb.Lease, message by message.

local core = require "keywatch.core"

local pair = require "spec.support.pair"
local wire = require "spec.support.wire"

local HEADER_1 = "0a1a08b298eaf1948386fccd0110cdd2918bd2b881cf8e0118012002"

describe("the lease service", function()
  local host, client

  pair.for_each_test(function(one) host, client = one, one:client() end)

  local function grant(request)
    local answer, status, text = client:unary("LeaseGrant", request)
    if not answer then return status, text end
    return answer.ID, answer.TTL
  end

  it("grants leases of the id and the time that were asked for", function()
    local answer, _, _, bytes = client:unary("LeaseGrant", { ID = 7, TTL = 100 })
    assert.same({ 7, 100, 1 }, { answer.ID, answer.TTL, answer.header.revision })
    assert.equal(HEADER_1 .. "1007" .. "1864", wire.hex(bytes))
    assert.equal(1, host.store:status().revision)
  end)

  it("chooses an id if none is asked for, positive and below 2^53", function()
    local seen = {}
    for _ = 1, 50 do
      local id = grant { TTL = 10 }
      assert(type(id) == "number" and id > 0 and id < 2 ^ 53)
      assert.is_nil(seen[id])
      seen[id] = true
    end
  end)

  it("takes any other id", function()
    for _, id in ipairs { "-1", "9223372036854775807", "-9223372036854775808", "9007199254740993" } do
      assert.equal(core.id(id), (grant { ID = core.id(id), TTL = 10 }))
      assert.equal(10, client:unary("LeaseTimeToLive", { ID = core.id(id) }).grantedTTL)
    end
  end)

  it("raises a time that is too short, and refuses one that is too long", function()
    for _, ttl in ipairs { 0, 1, -1, -1000 } do assert.equal(2, (select(2, grant { TTL = ttl }))) end
    assert.equal(3, (select(2, grant { TTL = 3 })))
    assert.equal(9000000000, (select(2, grant { TTL = 9000000000 })))
    assert.same({ 11, "etcdserver: too large lease TTL" }, { grant { TTL = 9000000001 } })
  end)

  it("refuses an id that is in use", function()
    grant { ID = 7, TTL = 100 }
    assert.same({ 9, "etcdserver: lease already exists" }, { grant { ID = 7, TTL = 100 } })
  end)

  it("revokes, with all keys in one revision", function()
    grant { ID = 7, TTL = 100 }
    client:unary("Put", { key = "b", value = "1", lease = 7 })
    client:unary("Put", { key = "a", value = "1", lease = 7 })
    client:unary("Put", { key = "c", value = "1" })
    assert.equal(5, client:unary("LeaseRevoke", { ID = 7 }).header.revision)
    local range = client:unary("Range", { key = "\0", range_end = "\0" })
    assert.same({ 1, "c" }, { #range.kvs, range.kvs[1].key })
    assert.same({ 5, "etcdserver: requested lease not found" }, { select(2, client:unary("LeaseRevoke", { ID = 7 })) })
  end)

  it("does not change the revision when it revokes a lease without keys", function()
    grant { ID = 7, TTL = 100 }
    assert.equal(1, client:unary("LeaseRevoke", { ID = 7 }).header.revision)
  end)

  it("tells the time that a lease has left, and its keys", function()
    grant { ID = 7, TTL = 100 }
    client:unary("Put", { key = "b", lease = 7 })
    client:unary("Put", { key = "a", lease = 7 })
    host.store:step(30.5)
    local answer = client:unary("LeaseTimeToLive", { ID = 7, keys = true })
    assert.same({ 7, 69, 100 }, { answer.ID, answer.TTL, answer.grantedTTL })
    table.sort(answer.keys)
    assert.same({ "a", "b" }, answer.keys)
    assert.is_nil(client:unary("LeaseTimeToLive", { ID = 7 }).keys)
  end)

  it("says -1 of a lease that there is not", function()
    local answer = client:unary("LeaseTimeToLive", { ID = 7, keys = true })
    assert.same({ 7, -1 }, { answer.ID, answer.TTL })
    assert.is_nil(answer.grantedTTL)
    assert.is_nil(answer.keys)
  end)

  it("lists leases, the soonest to end first", function()
    assert.is_nil(client:unary("LeaseLeases").leases)
    grant { ID = 1, TTL = 300 }
    grant { ID = 2, TTL = 100 }
    grant { ID = 3, TTL = 200 }
    assert.same({ { ID = 2 }, { ID = 3 }, { ID = 1 } }, client:unary("LeaseLeases").leases)
  end)

  it("ends leases in time, and not before", function()
    grant { ID = 7, TTL = 10 }
    client:unary("Put", { key = "a", value = "1", lease = 7 })
    local watch = client:stream("Watch")
    watch:ask { create_request = { key = "a" } }
    host.store:step(9.9)
    assert.same({}, watch:take())
    host.store:step(10.1)
    local told = watch:take()
    assert.same({ { type = "DELETE", kv = { key = "a", mod_revision = 3 } } }, told[1].events)
    assert.is_nil(client:unary("LeaseLeases").leases)
  end)

  describe("keeps leases alive", function()
    local stream

    before_each(function() stream = client:stream("LeaseKeepAlive") end)

    it("one answer for each request, in order", function()
      grant { ID = 7, TTL = 100 }
      grant { ID = 8, TTL = 50 }
      for _, id in ipairs { 7, 8, 9, 7 } do stream:send { ID = id } end
      local list = {}
      for _, answer in ipairs(stream:take()) do
        assert.equal(1, answer.header.revision)
        list[#list + 1] = ("%s %s"):format(answer.ID, answer.TTL)
      end
      assert.same({ "7 100", "8 50", "9 nil", "7 100" }, list)
      assert.equal(HEADER_1 .. "1009", wire.hex(stream.raw[3]))
    end)

    it("from the time of the request on", function()
      grant { ID = 7, TTL = 100 }
      host.store:step(60)
      stream:ask { ID = 7 }
      assert.equal(100, client:unary("LeaseTimeToLive", { ID = 7 }).TTL)
      host.store:step(159)
      assert.equal(1, #client:unary("LeaseLeases").leases)
      host.store:step(161)
      assert.is_nil(client:unary("LeaseLeases").leases)
      assert.is_nil(stream:ask { ID = 7 }[1].TTL)
    end)

    it("until the client ends its side", function()
      stream:ask { ID = 7 }
      assert.is_nil((stream:status()))
      stream:half_close()
      assert.equal(0, (stream:status()))
    end)

    it("of a stream that asks nothing", function()
      stream:half_close()
      assert.equal(0, (stream:status()))
    end)
  end)
end)
