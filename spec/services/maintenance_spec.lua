--- Maintenance: status, alarms, defragmentation and hashes.

local core = require "keywatch.core"

local serving = require "spec.support.serving"

local MAINTENANCE = "/etcdserverpb.Maintenance/"
local INVALID_ARGUMENT, RESOURCE_EXHAUSTED, FAILED_PRECONDITION, OUT_OF_RANGE, UNIMPLEMENTED = 3, 8, 9, 11, 12

describe("Maintenance", function()
  local client

  serving.for_each_test(function(_, one) client = one end)

  local function ask(method, request)
    return client:ask(MAINTENANCE .. method, request)
  end

  local function member()
    return ask("Status").leader
  end

  describe("Status", function()
    it("has the member itself as leader, and a header", function()
      local status = ask("Status")
      assert.equal(status.header.member_id, status.leader)
      assert.equal(1, status.header.revision)
      assert.equal(status.header.raft_term, status.raftTerm)
      assert.is_nil(status.isLearner)
      assert.is_nil(status.errors)
    end)

    it("has a version that clients can read", function()
      assert.matches("^3%.%d+%.%d+$", ask("Status").version)
    end)

    it("has sizes and indexes that grow", function()
      local before = ask("Status")
      assert.is_true(before.dbSize > 0)
      serving.put(client, "a", ("x"):rep(100000))
      local after = ask("Status")
      assert.is_true(after.dbSize > before.dbSize or serving.is_etcd) -- whose file grows later
      assert.is_true(after.dbSizeInUse <= after.dbSize)
      assert.is_true(after.raftAppliedIndex > before.raftAppliedIndex)
      assert.is_true(after.raftIndex >= after.raftAppliedIndex)
      assert.equal(before.header.revision + 1, after.header.revision)
    end)

    if not serving.is_etcd then -- 3.4 has none of these
      it("has the quota, the version of the data, and no downgrade", function()
        local status = ask("Status")
        assert.equal(2 ^ 31, status.dbSizeQuota)
        assert.matches("^3%.%d+%.0$", status.storageVersion)
        assert.same({}, status.downgradeInfo)
      end)
    end

    it("has an error for each alarm", function()
      local id = member()
      ask("Alarm", { action = "ACTIVATE", memberID = id, alarm = "NOSPACE" })
      ask("Alarm", { action = "ACTIVATE", memberID = id, alarm = "CORRUPT" })
      local number = core.decimal(id)
      local errors = ask("Status").errors
      table.sort(errors)
      assert.same({ ("memberID:%s alarm:CORRUPT "):format(number), ("memberID:%s alarm:NOSPACE "):format(number) },
        errors)
    end)
  end)

  describe("Alarm", function()
    local function alarms(request)
      local list = {}
      for i, alarm in ipairs(assert(ask("Alarm", request)).alarms or {}) do
        assert.equal(member(), alarm.memberID)
        list[i] = alarm.alarm
      end
      table.sort(list)
      return list
    end

    it("is listed, all or those of one kind", function()
      local id = member()
      assert.same({}, alarms {})
      assert.same({ "NOSPACE" }, alarms { action = "ACTIVATE", memberID = id, alarm = "NOSPACE" })
      assert.same({ "CORRUPT" }, alarms { action = "ACTIVATE", memberID = id, alarm = "CORRUPT" })
      assert.same({ "CORRUPT", "NOSPACE" }, alarms {})
      assert.same({ "NOSPACE" }, alarms { alarm = "NOSPACE" })
      assert.same({ "CORRUPT" }, alarms { alarm = "CORRUPT" })
    end)

    it("has a header", function()
      if serving.is_etcd then return end -- 3.4 has none
      assert.equal(1, ask("Alarm").header.revision)
    end)

    it("is armed once by two requests", function()
      local request = { action = "ACTIVATE", memberID = member(), alarm = "NOSPACE" }
      assert.same({ "NOSPACE" }, alarms(request))
      assert.same({ "NOSPACE" }, alarms(request))
      assert.same({ "NOSPACE" }, alarms {})
    end)

    it("is disarmed once, and only the member's own", function()
      local id = member()
      ask("Alarm", { action = "ACTIVATE", memberID = id, alarm = "NOSPACE" })
      assert.same({}, alarms { action = "DEACTIVATE", alarm = "NOSPACE" })
      assert.same({}, alarms { action = "DEACTIVATE", memberID = 5, alarm = "NOSPACE" })
      assert.same({}, alarms { action = "DEACTIVATE", memberID = id, alarm = "CORRUPT" })
      assert.same({ "NOSPACE" }, alarms {})
      assert.same({ "NOSPACE" }, alarms { action = "DEACTIVATE", memberID = id, alarm = "NOSPACE" })
      assert.same({}, alarms { action = "DEACTIVATE", memberID = id, alarm = "NOSPACE" })
      assert.same({}, alarms {})
    end)

    it("of no kind, or with an unknown action, does nothing", function()
      if serving.is_etcd then return end -- 3.4 stores the first, and never answers the second
      assert.same({}, alarms { action = "ACTIVATE", memberID = member() })
      assert.same({}, alarms { action = 9, memberID = member(), alarm = "NOSPACE" })
      assert.same({}, alarms {})
    end)

    --- Returns the sorted members with an alarm of a kind.
    local function members_of(request)
      local list = {}
      for i, alarm in ipairs(assert(ask("Alarm", request)).alarms or {}) do
        list[i] = core.decimal(alarm.memberID or 0) .. " " .. alarm.alarm
      end
      table.sort(list)
      return list
    end

    local function put_status()
      local _, status = client:ask("/etcdserverpb.KV/Put", { key = "a" })
      return status
    end

    it("is kept for its member, and disarmed by the same request", function()
      for _, id in ipairs { 5, 0, "18446744073709551615" } do
        local one = { ("%s NOSPACE"):format(id) }
        assert.same(one, members_of { action = "ACTIVATE", memberID = id, alarm = "NOSPACE" })
        assert.same(one, members_of { action = "ACTIVATE", memberID = id, alarm = "NOSPACE" })
        assert.same(one, members_of {})
        assert.equal(RESOURCE_EXHAUSTED, put_status())
        assert.same({}, members_of { action = "DEACTIVATE", memberID = member(), alarm = "NOSPACE" })
        assert.same({}, members_of { action = "DEACTIVATE", memberID = id, alarm = "CORRUPT" })
        assert.same(one, members_of { action = "DEACTIVATE", memberID = id, alarm = "NOSPACE" })
        assert.same({}, members_of {})
        assert.is_nil(put_status())
      end
    end)

    it("of one member does not end with another's", function()
      local own = member()
      for _, id in ipairs { 5, own, 7 } do ask("Alarm", { action = "ACTIVATE", memberID = id, alarm = "NOSPACE" }) end
      ask("Alarm", { action = "ACTIVATE", memberID = 5, alarm = "CORRUPT" })
      ask("Alarm", { action = "DEACTIVATE", memberID = 5, alarm = "CORRUPT" })
      assert.equal(3, #members_of { memberID = 5 })
      assert.equal(3, #ask("Status").errors)
      ask("Alarm", { action = "DEACTIVATE", memberID = own, alarm = "NOSPACE" })
      ask("Alarm", { action = "DEACTIVATE", memberID = 7, alarm = "NOSPACE" })
      assert.same({ "memberID:5 alarm:NOSPACE " }, ask("Status").errors)
      assert.is_true(serving.is_etcd or put_status() == RESOURCE_EXHAUSTED) -- etcd forgot it with the last CORRUPT
      ask("Alarm", { action = "DEACTIVATE", memberID = 5, alarm = "NOSPACE" })
      assert.is_nil(put_status())
    end)

    it("has a limited number of members", function()
      if serving.is_etcd then return end -- which has no such bound
      for id = 1, 100 do assert(ask("Alarm", { action = "ACTIVATE", memberID = id, alarm = "CORRUPT" })) end
      assert.same({ nil, RESOURCE_EXHAUSTED, "keywatch: there are too many alarms of other members" },
        { ask("Alarm", { action = "ACTIVATE", memberID = 200, alarm = "CORRUPT" }) })
      assert(ask("Alarm", { action = "ACTIVATE", memberID = 100, alarm = "CORRUPT" }))
      assert(ask("Alarm", { action = "ACTIVATE", memberID = member(), alarm = "CORRUPT" }))
    end)

    it("refuses the requests that it blocks", function()
      local id = member()
      ask("Alarm", { action = "ACTIVATE", memberID = id, alarm = "NOSPACE" })
      assert.same({ nil, 8, "etcdserver: mvcc: database space exceeded" },
        { client:ask("/etcdserverpb.KV/Put", { key = "a" }) })
      ask("Alarm", { action = "ACTIVATE", memberID = id, alarm = "CORRUPT" })
      assert.same({ nil, 15, "etcdserver: corrupt cluster" }, { client:ask("/etcdserverpb.KV/Put", { key = "a" }) })
      ask("Alarm", { action = "DEACTIVATE", memberID = id, alarm = "CORRUPT" })
      ask("Alarm", { action = "DEACTIVATE", memberID = id, alarm = "NOSPACE" })
      assert.is_table(client:ask("/etcdserverpb.KV/Put", { key = "a" }))
    end)
  end)

  it("Defragment answers with an empty message", function()
    serving.put(client, "a", "1")
    assert.same({}, ask("Defragment"))
    assert.equal(1, #serving.keys(client, "a"))
  end)

  describe("Hash", function()
    it("is the same for the same content", function()
      serving.put(client, "a", "1")
      local first, second = ask("Hash"), ask("Hash")
      assert.equal(2, first.header.revision)
      assert.equal(first.hash, second.hash)
      serving.put(client, "a", "2")
      assert.not_equal(first.hash, ask("Hash").hash)
    end)
  end)

  describe("HashKV", function()
    it("is equal to etcd's", function()
      assert.equal(1084519789, ask("HashKV").hash)
      serving.put(client, "foo", "bar")
      local answer = ask("HashKV")
      assert.equal(3305255506, answer.hash)
      assert.equal(-1, answer.compact_revision)
      assert.equal(2, answer.header.revision)
      if not serving.is_etcd then assert.equal(2, answer.hash_revision) end -- it came later
    end)

    it("of an older revision is of that state", function()
      serving.put(client, "foo", "bar")
      serving.put(client, "foo", "baz")
      local answer = ask("HashKV", { revision = 2 })
      assert.equal(3305255506, answer.hash)
      assert.equal(3, answer.header.revision)
      if not serving.is_etcd then assert.equal(2, answer.hash_revision) end -- it came later
    end)

    it("of a negative revision is of an empty store", function()
      serving.put(client, "foo", "bar")
      for _, revision in ipairs { -1, -2 ^ 40 } do
        local answer = ask("HashKV", { revision = revision })
        assert.equal(1084519789, answer.hash)
        assert.equal(2, answer.header.revision)
      end
    end)

    it("is refused for future and compacted revisions", function()
      for i = 1, 5 do serving.put(client, "a", tostring(i)) end
      for _, revision in ipairs { 7, "9007199254740991", "9007199254740993", "9223372036854775807" } do
        assert.same({ nil, OUT_OF_RANGE, "etcdserver: mvcc: required revision is a future revision" },
          { ask("HashKV", { revision = revision }) })
      end
      client:ask("/etcdserverpb.KV/Compact", { revision = 4, physical = true })
      assert.same({ nil, OUT_OF_RANGE, "etcdserver: mvcc: required revision has been compacted" },
        { ask("HashKV", { revision = 3 }) })
      local answer = ask("HashKV")
      assert.equal(4, answer.compact_revision)
      assert.equal(6, answer.header.revision)
    end)
  end)

  describe("MoveLeader", function()
    it("to the member itself succeeds", function()
      assert.same({}, ask("MoveLeader", { targetID = member() }))
    end)

    it("to any other member is refused", function()
      local refusal = { nil, FAILED_PRECONDITION, "etcdserver: bad leader transferee" }
      assert.same(refusal, { ask("MoveLeader", { targetID = 1 }) })
      assert.same(refusal, { ask("MoveLeader", {}) })
    end)
  end)

  describe("Downgrade", function()
    if serving.is_etcd then return end -- it came with 3.5

    it("may be validated for the previous minor version", function()
      for _, version in ipairs { "3.4", "3.4.1", "3.4.0" } do
        local answer = assert(ask("Downgrade", { action = "VALIDATE", version = version }))
        assert.equal("3.5", answer.version)
        assert.equal(1, answer.header.revision)
      end
    end)

    it("is refused to any other", function()
      for _, version in ipairs { "3.3", "3.5", "3.6.0", "2.4" } do
        assert.same({ nil, INVALID_ARGUMENT, "etcdserver: invalid downgrade target version" },
          { ask("Downgrade", { action = "VALIDATE", version = version }) })
      end
    end)

    it("is refused to malformed versions", function()
      for _, version in ipairs { "", "x", "3", "three.four" } do
        assert.same({ nil, INVALID_ARGUMENT, "etcdserver: wrong downgrade target version format" },
          { ask("Downgrade", { action = "VALIDATE", version = version }) })
      end
    end)

    it("is never enabled, and so cannot be cancelled", function()
      assert.same({ nil, INVALID_ARGUMENT, "etcdserver: invalid downgrade target version" },
        { ask("Downgrade", { action = "ENABLE", version = "3.4" }) })
      assert.same({ nil, FAILED_PRECONDITION, "etcdserver: no inflight downgrade job" },
        { ask("Downgrade", { action = "CANCEL" }) })
    end)
  end)

  it("answers unknown methods with UNIMPLEMENTED", function()
    assert.same({ nil, UNIMPLEMENTED, "unknown method Nothing for service etcdserverpb.Maintenance" },
      { client:unary(MAINTENANCE .. "Nothing", "") })
  end)

  it("refuses malformed messages", function()
    local answer, status, text = client:unary(MAINTENANCE .. "HashKV", "\8")
    assert.is_nil(answer)
    assert.equal(13, status)
    assert.matches(serving.is_etcd and "unmarshal" or "malformed message", text)
  end)
end)
