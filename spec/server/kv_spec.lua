--- etcdserverpb.KV, message by message: the bytes on the wire. The specs of the store cover the behaviour of
-- each method; client/faces_spec.lua runs them over this service.

local core = require "keywatch.core"

local pair = require "spec.support.pair"
local wire = require "spec.support.wire"

--- The header of an answer at a revision below 128.
local function header(revision)
  return "0a1a08b298eaf1948386fccd0110cdd2918bd2b881cf8e0118" .. ("%02x"):format(revision) .. "2002"
end

describe("the KV service", function()
  local host, client

  pair.for_each_test(function(one) host, client = one, one:client() end)

  local function put(key, value) return client:unary("Put", { key = key, value = value }) end

  local function bytes_of(method, request)
    local _, status, text, bytes = client:unary(method, request)
    assert(bytes, text or status)
    return wire.hex(bytes)
  end

  local function failure(method, request)
    local answer, status, text = client:unary(method, request)
    assert.is_nil(answer)
    return status .. " " .. text
  end

  --- Begins a unary call without waiting for its end.
  local function start(one, method, request)
    local call = one:start(method, nil, core.encode(pair.request_name(method), request))
    one.client:half_close(call)
    return call
  end

  it("answers with etcd's bytes", function()
    assert.equal(header(2), bytes_of("Put", { key = "foo", value = "bar" }))
    assert.equal(header(2) .. "1210" .. "0a03666f6f1002180220012a03626172" .. "2001",
      bytes_of("Range", { key = "foo" }))
    assert.equal(header(3) .. "1210" .. "0a03666f6f1002180220012a03626172",
      bytes_of("Put", { key = "foo", value = "baz", prev_kv = true }))
    assert.equal(header(4) .. "1001", bytes_of("DeleteRange", { key = "foo" }))
    assert.equal(header(4), bytes_of("DeleteRange", { key = "foo" }))
    assert.equal(header(4), bytes_of("Range", { key = "foo" }))
    assert.equal(header(4), bytes_of("Compact", { revision = 3 }))
  end)

  it("has the given ids in its headers", function()
    local own = setmetatable({ store = host.store, ends = {}, now = 1, server = core.serve(host.store,
      { cluster_id = 1, member_id = 2, raft_term = 3 }) }, getmetatable(host))
    local one = own:client()
    assert.same({ cluster_id = 1, member_id = 2, raft_term = 3, revision = 2 }, one:unary("Put", { key = "a" }).header)
    one:close()
    own.server:close()
  end)

  it("answers ranges of records of any size, exact to the byte", function()
    local expected = {}
    for i = 1, 200 do
      local key = ("k%03d"):format(i)
      host.store:put(key, string.char(97 + i % 26):rep(({ 0, 10, 4000, 4096, 5000, 70000 })[i % 6 + 1]))
      expected[i] = host.store:get(key)
    end
    for _, limit in ipairs { 0, 1, 15, 16, 17, 199, 200 } do
      local answer = client:unary("Range", { key = "k", range_end = "l", limit = limit })
      assert.equal(200, answer.count)
      assert.equal(limit > 0 and limit < 200, answer.more or false)
      assert.equal(limit == 0 and 200 or limit, #answer.kvs)
      for i, kv in ipairs(answer.kvs) do
        assert(kv.key == expected[i].key and (kv.value or "") == expected[i].value)
        assert.equal(expected[i].mod_revision, kv.mod_revision)
      end
    end
  end)

  it("does not change a large answer if its keys are written before the client reads it", function()
    for i = 1, 20 do host.store:put("k" .. i, ("a"):rep(10000)) end
    client.is_deaf = true
    local call = start(client, "Range", { key = "k", range_end = "l" })
    host:pump()
    for i = 1, 20 do host.store:put("k" .. i, ("b"):rep(10000)) end
    host.store:delete("k", { prefix = true })
    host.store:compact(host.store:status().revision, { physical = true })
    client.is_deaf = false
    host:pump()
    client:take()
    local answer = core.decode("RangeResponse", client.returns[call][1])
    assert.equal(20, #answer.kvs)
    for _, kv in ipairs(answer.kvs) do assert.equal(("a"):rep(10000), kv.value) end
  end)

  describe("takes a transaction", function()
    local empty = { request_range = { key = "none" } }

    it("and answers each operation with a header that has only the revision", function()
      put("a", "1")
      local answer = client:unary("Txn", {
        compare = { { key = "a", target = "VALUE", value = "1" } },
        success = { { request_range = { key = "a" } }, { request_put = { key = "b", value = "2", prev_kv = true } },
          { request_range = { key = "b" } }, { request_delete_range = { key = "none" } },
          { request_delete_range = { key = "a", prev_kv = true } } },
        failure = { empty },
      })
      assert.is_true(answer.succeeded)
      assert.equal(3, answer.header.revision)
      local responses = answer.responses
      assert.same({ revision = 2 }, responses[1].response_range.header)
      assert.same({ header = { revision = 3 } }, responses[2].response_put)
      assert.same({ revision = 3 }, responses[3].response_range.header)
      assert.same({ header = { revision = 3 } }, responses[4].response_delete_range)
      assert.same({ header = { revision = 3 }, deleted = 1, prev_kvs = { { key = "a", value = "1", create_revision = 2,
        mod_revision = 2, version = 1 } } }, responses[5].response_delete_range)
      assert.equal("2", responses[3].response_range.kvs[1].value)
    end)

    it("with nested transactions, whose headers are empty", function()
      local hex = bytes_of("Txn", { success = { { request_txn = { success = { { request_put = { key = "a" } } } } },
        { request_txn = { compare = { { key = "a", version = 1 } }, failure = { empty } } } } })
      local put_inside = "1a06" .. "1204" .. "0a021802" -- { response_put = { header = { revision = 2 } } }
      local range_inside = "1a06" .. "0a04" .. "0a021802"
      assert.equal(header(2) .. "1001" .. "1a0e" .. "220c" .. "0a00" .. "1001" .. put_inside ..
        "1a0c" .. "220a" .. "0a00" .. range_inside, hex)
      local answer = core.decode("TxnResponse", wire.bytes(hex))
      assert.same({ header = {}, succeeded = true, responses = { { response_put = { header = { revision = 2 } } } } },
        answer.responses[1].response_txn)
    end)

    it("without operations", function()
      assert.equal(header(1) .. "1001", bytes_of("Txn", {}))
    end)
  end)

  it("refuses requests with etcd's errors", function()
    for i = 1, 3 do put("a", tostring(i)) end
    assert.equal("3 etcdserver: key is not provided", failure("Put", {}))
    assert.equal("3 etcdserver: key is not provided", failure("Range", {}))
    assert.equal("3 etcdserver: key is not provided", failure("DeleteRange", {}))
    assert.equal("3 etcdserver: value is provided", failure("Put", { key = "a", value = "x", ignore_value = true }))
    assert.equal("3 etcdserver: lease is provided", failure("Put", { key = "a", lease = 1, ignore_lease = true }))
    assert.equal("3 etcdserver: key not found", failure("Put", { key = "none", ignore_value = true }))
    assert.equal("5 etcdserver: requested lease not found", failure("Put", { key = "a", lease = 99 }))
    local future = "11 etcdserver: mvcc: required revision is a future revision"
    local compacted = "11 etcdserver: mvcc: required revision has been compacted"
    assert.equal(future, failure("Range", { key = "a", revision = 99 }))
    assert.equal(future, failure("Compact", { revision = 99 }))
    client:unary("Compact", { revision = 3 })
    assert.equal(compacted, failure("Compact", { revision = 3 }))
    assert.equal(compacted, failure("Range", { key = "a", revision = 2 }))
    assert.equal("2", client:unary("Range", { key = "a", revision = 3 }).kvs[1].value)
  end)

  it("refuses requests and messages that are too large", function()
    assert.equal("3 etcdserver: request is too large", failure("Put", { key = "a", value = ("x"):rep(1572864) }))
    assert.equal("8 grpc: received message larger than max (2097161 vs. 2097152)",
      failure("Put", { key = "a", value = ("x"):rep(2097153) }))
    assert.equal(2, put("a", ("x"):rep(1500000)).header.revision)
    assert.equal(1500000, #client:unary("Range", { key = "a" }).kvs[1].value)
  end)

  describe("compacts", function()
    before_each(function()
      for i = 1, 5000 do host.store:put("k" .. i % 50, tostring(i)) end
    end)

    --- Moves bytes, without a step of the server.
    local function move()
      client:push()
      client:pull()
      client:take()
    end

    it("at once without physical", function()
      local call = start(client, "Compact", { revision = 4000 })
      move()
      assert.equal(0, client.returns[call].status)
      assert.equal("11 etcdserver: mvcc: required revision has been compacted",
        failure("Range", { key = "k1", revision = 3999 }))
    end)

    it("completely before it answers with physical, even if the revision is compacted already", function()
      local first = start(client, "Compact", { revision = 4000, physical = true })
      local second = start(client, "Compact", { revision = 3000, physical = true })
      move()
      assert.is_nil(client.returns[first].status)
      assert.is_nil(client.returns[second].status)
      host:pump()
      client:take()
      assert.equal(0, client.returns[first].status)
      assert.equal(11, client.returns[second].status)
    end)

    it("even if the client cancels or disconnects", function()
      local call = start(client, "Compact", { revision = 4000, physical = true })
      client:push()
      client.client:cancel(call)
      host:pump()
      assert.equal(4000, host.store:status().compact_revision)
      local gone = host:client()
      start(gone, "Compact", { revision = 4500, physical = true })
      gone:push()
      gone:close()
      table.remove(host.ends)
      host:pump()
      assert.equal(4500, host.store:status().compact_revision)
    end)
  end)

  it("answers many calls at once, each with its own answer", function()
    local calls = {}
    for i = 1, 90 do
      calls[i] = start(client, i % 3 == 0 and "Range" or "Put", { key = "k" .. math.floor((i - 1) / 3) })
    end
    host:pump()
    client:take()
    for i = 1, 90 do
      local back = client.returns[calls[i]]
      assert.equal(0, back.status)
      if i % 3 == 0 then
        assert.equal(2, core.decode("RangeResponse", back[1]).kvs[1].version)
      else
        assert.equal(2 + math.floor((i - 1) / 3) * 2 + (i - 1) % 3, core.decode("PutResponse", back[1]).header.revision)
      end
    end
  end)
end)
