--- A server of a durable store: it sends only durable data, and answers that depend on no pending write do not wait.
--
-- In builds with a probe the disk is held, so that writes stay pending, or it fails.

local keywatch = require "keywatch"

local directory = require "spec.support.directory"
local pair = require "spec.support.pair"
local probed = require "spec.support.probed"
local store_files = require "spec.support.store_files"

local probe = probed.get("a server over what is not durable yet")
if not probe then return end

local STORAGE = "keywatch: the storage has failed: the database cannot be written: Input/output error (errno 5)"
local NO_SPACE = "etcdserver: mvcc: database space exceeded"
local EVERYTHING = { key = "\0", range_end = "\0" }

describe("a server over a durable store", function()
  local path, host, store, client, other

  before_each(function()
    path = directory.new()
    host = pair.host { path = path }
    store, client, other = host.store, host:client(), host:client()
    store:lease(100, { id = 7 })
    store:put("a", "old", { lease = 7 })
    store:put("b", "old")
  end)

  after_each(function()
    if store:run_due() ~= false then
      probe.hold_disk(store, false)
      store:leases()
      probe.check(store)
    end
    host:close()
    directory.remove_all()
  end)

  --- Begins a unary call, and moves all that moves.
  local function begin(who, method, request)
    local call = who:begin(method, request)
    host:pump()
    return call
  end

  --- Returns the result of a call: the answer, or the status and text; nothing if the call waits.
  local function look(call)
    local answer, text = call:look()
    if answer == nil then assert.equal(0, #call.who.returns[call.number]) end
    return answer, text
  end

  local function hold() probe.hold_disk(store, true) end

  --- Waits until nothing is left to do for the disk.
  local function wait_for_disk()
    repeat until store:leases()
  end

  --- Lets the disk go, and waits until it has done all.
  local function release(how)
    if how then probe.fail_disk(store, how) end
    probe.hold_disk(store, false)
    wait_for_disk()
    host:pump()
  end

  --- Returns the result of a call that waits until the disk is released.
  local function finish(call, how)
    assert.is_nil((look(call)))
    release(how)
    return look(call)
  end

  local function put(value, who) return begin(who or client, "Put", { key = "a", value = value }) end

  describe("delays", function()
    local writes = {
      Put = { key = "a", value = "new" },
      DeleteRange = { key = "a" },
      Txn = { success = { { request_put = { key = "a", value = "new" } } } },
      LeaseGrant = { ID = 8, TTL = 10 },
      LeaseRevoke = { ID = 7 },
    }
    for method, request in pairs(writes) do
      it("the answer to " .. method, function()
        hold()
        local answer = finish(begin(client, method, request))
        assert.equal(method == "LeaseGrant" and 3 or 4, answer.header.revision)
      end)
    end

    it("the answer to Compact", function()
      for _, is_physical in ipairs { false, true } do
        hold()
        local call = begin(client, "Compact", { revision = is_physical and 3 or 2, physical = is_physical })
        assert.is_nil((look(call)))
        release()
        while not look(call) do release() end
        assert.equal(3, look(call).header.revision)
      end
    end)

    it("answers that have seen writes that are not durable", function()
      hold()
      local calls = {
        put("new"),
        begin(other, "Txn", { compare = { { key = "a", target = "VALUE", value = "old" } },
          success = { { request_put = { key = "a" } } }, failure = { { request_range = { key = "a" } } } }),
        begin(other, "LeaseTimeToLive", { ID = 7, keys = true }),
        begin(other, "LeaseLeases"),
      }
      for _, call in ipairs(calls) do assert.is_nil((look(call))) end
      release()
      for _, call in ipairs(calls) do assert.equal(4, look(call).header.revision) end
      local txn = look(calls[2])
      assert.is_nil(txn.succeeded)
      assert.equal("new", txn.responses[1].response_range.kvs[1].value)
    end)

    it("no transaction that only reads: it sees the durable state", function()
      hold()
      local written = put("new")
      local read = begin(other, "Txn", { compare = { { key = "a", target = "VALUE", value = "old" } },
        success = { { request_range = { key = "a" } } } })
      assert.is_nil((look(written)))
      assert.equal(3, look(read).header.revision)
      assert.equal("old", look(read).responses[1].response_range.kvs[1].value)
      release()
    end)

    it("failures that depend on writes that are not durable", function()
      hold()
      begin(client, "LeaseRevoke", { ID = 7 })
      begin(client, "Compact", { revision = 3 })
      local calls = {
        begin(other, "Put", { key = "c", lease = 7 }),
        begin(other, "LeaseRevoke", { ID = 7 }),
        begin(other, "Compact", { revision = 2 }),
        begin(other, "Compact", { revision = 4 }),
      }
      for _, call in ipairs(calls) do assert.is_nil((look(call))) end
      release()
      local statuses = {}
      for i, call in ipairs(calls) do statuses[i] = look(call) end
      assert.same({ 5, 5, 11, 11 }, statuses)
      assert.equal("etcdserver: mvcc: required revision has been compacted", select(2, look(calls[3])))
      assert.equal("etcdserver: mvcc: required revision is a future revision", select(2, look(calls[4])))
    end)

    it("events", function()
      local now, past = client:stream("Watch"), other:stream("Watch")
      now:ask { create_request = { key = "a" } }
      hold()
      local call = put("new")
      assert.equal(1, #past:ask { create_request = { key = "a", start_revision = 4 } })
      assert.same({}, now:take())
      finish(call)
      for _, watch in ipairs { now, past } do
        local got = watch:take()
        assert.same({ 1, 4, "new" }, { #got, got[1].header.revision, got[1].events[1].kv.value })
      end
    end)
  end)

  it("answers reads at once, with what is durable", function()
    hold()
    local call = put("new")
    begin(client, "DeleteRange", { key = "b" })
    for _, who in ipairs { client, other } do
      local range = who:unary("Range", EVERYTHING)
      assert.same({ 3, 2, "old" }, { range.header.revision, #range.kvs, range.kvs[1].value })
      assert.same({ 11, "etcdserver: mvcc: required revision is a future revision" },
        { select(2, who:unary("Range", { key = "a", revision = 4 })) })
    end
    finish(call)
    local range = other:unary("Range", EVERYTHING)
    assert.same({ 5, 1, "new" }, { range.header.revision, #range.kvs, range.kvs[1].value })
  end)

  it("keeps leases alive at once", function()
    local stream = other:stream("LeaseKeepAlive")
    hold()
    local call = put("new")
    assert.same({ 3, 100 }, { stream:send({ ID = 7 }):take()[1].header.revision, stream:ask({ ID = 7 })[1].TTL })
    local revoke = begin(client, "LeaseRevoke", { ID = 7 })
    assert.equal(100, stream:ask({ ID = 7 })[1].TTL)
    finish(call)
    assert.equal(4, look(revoke).header.revision)
    assert.is_nil(stream:ask({ ID = 7 })[1].TTL)
  end)

  it("answers many concurrent writes with few commits", function()
    hold()
    local before, calls = store:settled(), {}
    for i = 1, 100 do calls[i] = put(tostring(i), i % 2 == 0 and client or other) end
    release()
    for i, call in ipairs(calls) do assert.equal(3 + i, look(call).header.revision) end
    assert.equal(before + 2, store:settled())
  end)

  it("applies a compaction when it is durable", function()
    hold()
    local call = begin(client, "Compact", { revision = 3 })
    assert.equal("old", other:unary("Range", { key = "a", revision = 2 }).kvs[1].value)
    finish(call)
    assert.equal(11, (select(2, other:unary("Range", { key = "a", revision = 2 }))))
  end)

  describe("answers a physical Compact", function()
    local COMPACTED, LAST = 8, 9 -- revisions
    local TURNS = 200 -- in which all happens that can while no checkpoint is made

    --- Begins the call while no checkpoint is made: the journal has the compaction, and the call waits. If the database
    -- has the records before, the compaction comes to its end without a checkpoint.
    local function begin_compaction(has_records)
      for i = 1, LAST - 3 do store:put("a", tostring(i)) end
      if has_records then assert(store:defragment()) end -- which makes a checkpoint
      probe.hold_checkpoints(store, true)
      local call = begin(client, "Compact", { revision = COMPACTED, physical = true })
      repeat host:pump() until store:status().compact_revision == COMPACTED
      for _ = 1, TURNS do
        host:pump()
        keywatch.sleep(0)
        assert.is_nil((look(call)))
      end
      return call
    end

    --- Lets checkpoints be made. Returns the result of the call.
    local function finish_compaction(call)
      probe.hold_checkpoints(store, false)
      repeat host:pump() until look(call)
      return look(call)
    end

    --- Expects that the database has everything at this moment, without the journal, and nothing that is compacted.
    local function expect_compacted_database()
      local copy = directory.new()
      store_files.put(copy, { ["data.mdb"] = store_files.take(path)["data.mdb"] })
      local database = directory.open(copy)
      local status, hash = database:status(), database:hash_kv().hash
      local is_unfinished = database:step(0)
      database:close()
      assert.same({ LAST, COMPACTED, false }, { status.revision, status.compact_revision, is_unfinished })
      assert.equal(store:hash_kv().hash, hash)
    end

    for where, has_records in pairs { ["the database"] = true, ["the journal alone"] = false } do
      it("when the records are removed from the database: they were in " .. where, function()
        local answer = finish_compaction(begin_compaction(has_records))
        expect_compacted_database()
        assert.equal(LAST, answer.header.revision)
      end)
    end

    it("with an error, if the storage fails", function()
      local call = begin_compaction()
      probe.fail_disk(store, "storage")
      assert.same({ 14, STORAGE }, { finish_compaction(call) })
      assert.equal("6", other:unary("Range", { key = "a" }).kvs[1].value)
    end)
  end)

  describe("whose disk fails", function()
    local got = { no_space = { 8, NO_SPACE }, no_memory = { 8, "keywatch: out of memory" }, storage = { 14, STORAGE } }

    for how, failure in pairs(got) do
      it("sends errors to the failed writers, and to no others: " .. how, function()
        local watch = other:stream("Watch")
        watch:ask { create_request = { key = "a" } }
        hold()
        local calls = {
          put("1"), put("2", other), put("3"), begin(other, "LeaseGrant", { ID = 8, TTL = 10 }),
          begin(client, "Put", { key = "a", value = "4", lease = 8 }), begin(other, "LeaseTimeToLive", { ID = 8 }),
          begin(client, "Put", { key = "a", lease = 9 }), begin(other, "Compact", { revision = 2 }),
          begin(client, "Compact", { revision = 3, physical = true }),
        }
        release(how)
        for _, call in ipairs(calls) do assert.same(failure, { look(call) }) end
        assert.same({}, watch:take())
        assert.equal("old", client:unary("Range", { key = "a", revision = 2 }).kvs[1].value)
        assert.equal(3, client:unary("Range", { key = "a" }).header.revision)
        assert.same({ { ID = 7 } }, client:unary("LeaseLeases").leases)
      end)
    end

    it("reuses the revisions", function()
      local watch = other:stream("Watch")
      watch:ask { create_request = { key = "a" } }
      hold()
      local first, second = put("1"), put("2", other)
      release("no_memory")
      assert.same({ 8, 8 }, { look(first), (look(second)) })
      hold()
      assert.equal(4, finish(put("3")).header.revision)
      local events = watch:take()[1].events
      assert.same({ 1, "3", 4 }, { #events, events[1].kv.value, events[1].kv.mod_revision })
    end)

    it("allows deletes and compactions without disk space, and all writes after a disarm", function()
      hold()
      assert.equal(8, (finish(put("1"), "no_space")))
      assert.same({ "no_space" }, store:alarms())
      assert.same({ 8, NO_SPACE }, { look(put("2")) })
      hold()
      assert.equal(4, finish(begin(client, "DeleteRange", { key = "b" })).header.revision)
      hold()
      assert.equal(4, finish(begin(client, "Compact", { revision = 4 })).header.revision)
      store:disarm("no_space")
      hold()
      assert.equal(5, finish(put("3")).header.revision)
    end)

    it("answers calls that wait for the end of a compaction", function()
      for i = 1, 3000 do store:put("c", tostring(i)) end
      hold()
      local call = begin(client, "Compact", { revision = 3000, physical = true })
      probe.hold_disk(store, false)
      repeat until store:leases()
      hold()
      host:pump()
      local another = put("1")
      release("storage")
      assert.equal(14, (look(another)))
      assert.is_truthy(look(call))
    end)

    it("is read-only if the outcome is unknown", function()
      hold()
      assert.same({ 14, STORAGE }, { finish(put("1"), "storage") })
      for method, request in pairs { Put = { key = "a" }, DeleteRange = { key = "a" }, LeaseGrant = { TTL = 5 },
        LeaseRevoke = { ID = 7 }, Compact = { revision = 3 } } do
        assert.same({ 14, STORAGE }, { select(2, client:unary(method, request)) })
      end
      assert.equal("old", other:unary("Range", { key = "a" }).kvs[1].value)
      assert.equal(100, other:unary("LeaseTimeToLive", { ID = 7 }).grantedTTL)
    end)
  end)

  describe("drops answers", function()
    it("of disconnected clients", function()
      hold()
      put("1")
      local call = put("2", other)
      client:close()
      table.remove(host.ends, 1)
      assert.equal(5, finish(call).header.revision)
    end)

    it("that were cancelled", function()
      hold()
      local first, second = put("1"), put("2")
      client.client:cancel(first.number)
      host:pump()
      assert.equal(5, finish(second).header.revision)
      assert.equal("2", other:unary("Range", { key = "a" }).kvs[1].value)
    end)

    it("of calls past their deadline", function()
      hold()
      local call = client:begin("Put", { key = "a", value = "1" }, { ["grpc-timeout"] = "1S" })
      host:pump()
      host.now = host.now + 2000
      for _, one in ipairs(host.ends) do one.peer:step(host.now) end
      host:pump()
      assert.equal(4, (look(call)))
      assert.equal(0, #client.returns[call.number])
      release()
      assert.equal(4, (look(call)))
      assert.equal("1", other:unary("Range", { key = "a" }).kvs[1].value)
    end)

    it("when it is closed", function()
      hold()
      put("1")
      put("2", other)
      host.server:close()
      probe.hold_disk(store, false)
      wait_for_disk()
      assert.equal("2", store:get("a").value)
    end)

    it("when the store is closed", function()
      hold()
      put("1")
      put("2", other)
      begin(client, "Compact", { revision = 2, physical = true })
      store:close()
    end)
  end)
end)
