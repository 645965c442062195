--- etcdserverpb.Lease, message by message. spec/store/lease_spec.lua has the behaviour of leases;
-- client/faces_spec.lua runs it over this service, too.

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

  it("grants leases with the given id and TTL", function()
    local answer, _, _, bytes = client:unary("LeaseGrant", { ID = 7, TTL = 100 })
    assert.same({ 7, 100, 1 }, { answer.ID, answer.TTL, answer.header.revision })
    assert.equal(HEADER_1 .. "1007" .. "1864", wire.hex(bytes))
    assert.equal(1, host.store:status().revision)
  end)

  it("returns -1 for a missing lease", function()
    local answer = client:unary("LeaseTimeToLive", { ID = 7, keys = true })
    assert.same({ 7, -1 }, { answer.ID, answer.TTL })
    assert.is_nil(answer.grantedTTL)
    assert.is_nil(answer.keys)
  end)

  describe("keeps leases alive", function()
    local stream

    before_each(function() stream = client:stream("LeaseKeepAlive") end)

    it("with one answer for each request, in order", function()
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

    it("from the time of the request", function()
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

    it("of a stream without requests", function()
      stream:half_close()
      assert.equal(0, (stream:status()))
    end)
  end)
end)
