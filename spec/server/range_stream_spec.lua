--- KV.RangeStream: a range that is sent in messages of one revision, with the memory of one message.

local core = require "keywatch.core"

local directory = require "spec.support.directory"
local pair = require "spec.support.pair"

local KIB = 1024
local KEYS = core.probe and 100 or 5500 -- several pages, the last one not full
local VALUE = ("v"):rep(core.probe and 4000 or 200) -- all of them are far more than the bound below
local INVALID_ARGUMENT, DEADLINE_EXCEEDED, OUT_OF_RANGE, UNIMPLEMENTED, INTERNAL = 3, 4, 11, 12, 13
local COMPACTED = "etcdserver: mvcc: required revision has been compacted"
local ONE_PAGE = core.probe and 64 * KIB or 300 * KIB -- bytes, with a share of the buffer of the connection

local function suite(kind)
  describe("a range stream from " .. kind, function()
    local host, client

    before_each(function()
      host = pair.host { max_txn_ops = KEYS, path = kind == "disk" and directory.new() or nil }
      client = host:client()
      local puts = {}
      for i = 1, KEYS do puts[i] = { put = ("k%05d"):format(i), value = VALUE } end
      assert(host.store:txn { success = puts })
      host:pump()
    end)

    after_each(function()
      host:check()
      if core.probe then core.probe.check(host.store) end
      host:close()
      directory.remove_all()
    end)

    local function start(request, metadata, who)
      who = who or client
      request.key, request.range_end = request.key or "k", request.range_end or "l"
      local call = who:start("RangeStream", metadata, core.encode("RangeRequest", request))
      who.client:half_close(call)
      who:push()
      return call
    end

    local function finish(call)
      host:pump()
      return client.returns[call]
    end

    --- Moves bytes until a message of the call has arrived.
    local function await_message(call)
      while #client.returns[call] == 0 do
        host.server:step(host.now)
        client:pull()
        client:push()
      end
    end

    it("has the answer of a range, in several messages", function()
      host.store:put("k00007", "changed")
      local requests = {
        {}, { limit = 1 }, { limit = 10 }, { limit = KEYS - 1 }, { limit = KEYS }, { limit = KEYS + 1 },
        { keys_only = true }, { count_only = true }, { count_only = true, limit = 3 }, { revision = 2 },
        { revision = 1 },
        { range_end = "\0" }, { key = "k00007", range_end = "k00008" }, { key = "x", range_end = "y" },
        { sort_target = "KEY", sort_order = "ASCEND" }, { serializable = true },
      }
      for i, request in ipairs(requests) do
        local back = finish(start(request))
        assert.equal(0, back.status)
        local expected = client:unary("Range", request)
        expected.kvs = expected.kvs or {}
        assert.same(expected, pair.merge(back))
        if i == 1 then assert.is_true(#back > 5) end
      end
      local point = client:start("RangeStream", nil, core.encode("RangeRequest", { key = "k00007" }))
      client.client:half_close(point)
      assert.same({ "changed", 1 }, { pair.merge(finish(point)).kvs[1].value, #client.returns[point] })
    end)

    it("is of the revision at which it began, whatever is written during it", function()
      local call = start {}
      await_message(call)
      host.store:delete("k", { range_end = ("k%05d"):format(KEYS) })
      host.store:put(("k%05d"):format(KEYS), "changed")
      local whole = pair.merge(finish(call))
      assert.same({ KEYS, KEYS, 2 }, { #whole.kvs, whole.count, whole.header.revision })
      assert.equal(VALUE, whole.kvs[KEYS].value)
    end)

    it("fails when its revision is compacted after a message, and begins again before one", function()
      local call = start {}
      host.store:put("k00001", "1")
      host.store:compact(3, { physical = true })
      assert.equal(3, pair.merge(finish(call)).header.revision)
      call = start {}
      await_message(call)
      host.store:put("k00001", "2")
      host.store:compact(4, { physical = true })
      local back = finish(call)
      assert.same({ OUT_OF_RANGE, COMPACTED }, { back.status, back.text })
      for _, message in ipairs(back) do
        assert.is_nil(core.decode("RangeStreamResponse", message).range_response.header)
      end
    end)

    it("is refused as in etcd", function()
      local sorts, filters = "RangeStream does not support custom sort orders",
        "RangeStream does not support revision filters"
      for _, case in ipairs {
        { { sort_order = "DESCEND" }, UNIMPLEMENTED, sorts },
        { { sort_target = "MOD", sort_order = "ASCEND", revision = 99 }, UNIMPLEMENTED, sorts },
        { { min_mod_revision = 1 }, UNIMPLEMENTED, filters },
        { { max_create_revision = 1 }, UNIMPLEMENTED, filters },
        { { revision = 99 }, OUT_OF_RANGE, "etcdserver: mvcc: required revision is a future revision" },
      } do
        local back = finish(start(case[1]))
        assert.same({ case[2], case[3], 0 }, { back.status, back.text, #back })
      end
      local empty = finish(client:start("RangeStream", nil, core.encode("RangeRequest", { sort_order = "DESCEND" })))
      assert.same({ INVALID_ARGUMENT, "etcdserver: key is not provided" }, { empty.status, empty.text })
      local call = client:start("RangeStream")
      client.client:half_close(call)
      assert.same({ INTERNAL, "EOF" }, { finish(call).status, finish(call).text })
    end)

    it("holds one page for a client that does not read, and other clients are served", function()
      client.is_deaf = true
      local calls = { start {}, start { keys_only = true }, start { revision = 2 } }
      local other = host:client()
      for _ = 1, 20 do
        host:pump()
        assert.is_true(host.server:held() < #calls * ONE_PAGE)
        assert.equal(1, other:unary("Range", { key = "k00001" }).count)
      end
      client.is_deaf = false
      for _, call in ipairs(calls) do assert.equal(KEYS, #pair.merge(finish(call)).kvs) end
    end)

    it("leaves nothing behind when it is cancelled, times out, or its connection is cut", function()
      local other = host:client()
      host:pump()
      local before = host.server:held()
      for _, how in ipairs { "cancelled", "late", "cut" } do
        local one = how == "cut" and host:client() or client
        local call = start({}, how == "late" and { ["grpc-timeout"] = "1S" } or nil, one)
        host.server:step(host.now)
        one:pull()
        if how == "cancelled" then
          client.client:cancel(call)
        elseif how == "late" then
          host.now = host.now + 2000
          host.ends[1].peer:step(host.now)
          host:pump()
          assert.equal(DEADLINE_EXCEEDED, client.returns[call].status)
        else
          one:close()
          table.remove(host.ends)
        end
        host:pump()
        assert.is_true(host.server:held() < before + 8 * KIB, how)
        assert.equal(1, other:unary("Range", { key = "k00001" }).count)
      end
    end)

    it("is decoded by the core, which reports any other message", function()
      local function receive(call)
        for _ = 1, 5 do
          host.server:step(host.now)
          local bytes = client.peer:pending()
          if bytes ~= "" then client.client:feed(bytes, host.now) end
        end
        return client.client:receive(call, true)
      end
      local page = core.decode("RangeResponse", receive(start { limit = 1 }))
      assert.same({ "k00001", KEYS }, { page.kvs[1].key, page.count })
      local range = client:start("Range", nil, core.encode("RangeRequest", { key = "k00001" }))
      client.client:half_close(range)
      client:push()
      assert.is_true(receive(range))
    end)

    it("takes turns with other streams", function()
      local calls, done = { start {}, start {}, start {} }, {}
      while #done < #calls do
        host.server:step(host.now)
        client:pull()
        client:push()
        local least, most = math.huge, 0
        done = {}
        for _, call in ipairs(calls) do
          local back = client.returns[call]
          least, most = math.min(least, #back), math.max(most, #back)
          if back.status then table.insert(done, call) end
        end
        assert.is_true(most - least <= 3)
      end
    end)
  end)
end

for _, kind in ipairs { "memory", "disk" } do suite(kind) end
