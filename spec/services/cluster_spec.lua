--- Cluster: one member, and no more.

local serving = require "spec.support.serving"

local CLUSTER = "/etcdserverpb.Cluster/"
local UNKNOWN, INVALID_ARGUMENT, NOT_FOUND, FAILED_PRECONDITION, UNIMPLEMENTED = 2, 3, 5, 9, 12

describe("Cluster", function()
  local peer, client

  serving.for_each_test(function(...) peer, client = ... end)

  local function ask(method, request)
    return client:ask(CLUSTER .. method, request)
  end

  local function me()
    return ask("MemberList").header.member_id
  end

  it("lists its one member", function()
    local answer = ask("MemberList")
    assert.equal(1, #answer.members)
    local member = answer.members[1]
    assert.equal(answer.header.member_id, member.ID)
    assert.equal("default", member.name)
    assert.same({ peer.url }, member.clientURLs)
    assert.equal(1, #member.peerURLs)
    assert.is_nil(member.isLearner)
    assert.same(answer, ask("MemberList", { linearizable = true }))
  end)

  it("has response headers without a revision", function()
    serving.put(client, "a", "1")
    local header = ask("MemberList").header
    assert.is_nil(header.revision)
    assert.is_not_nil(header.cluster_id)
    assert.is_not_nil(header.raft_term)
  end)

  it("has no other members", function()
    for _, method in ipairs { "MemberRemove", "MemberUpdate", "MemberPromote" } do
      for _, id in ipairs { 0, 5, "18446744073709551615" } do
        assert.same({ nil, NOT_FOUND, "etcdserver: member not found" }, { ask(method, { ID = id }) })
      end
    end
  end)

  it("does not remove its member", function()
    assert.same({ nil, UNKNOWN, "etcdserver: re-configuration failed due to not enough started members" },
      { ask("MemberRemove", { ID = me() }) })
    assert.equal(1, #ask("MemberList").members)
  end)

  it("adds no members", function()
    if serving.is_etcd then return end
    assert.same({ nil, UNIMPLEMENTED, "keywatch: the cluster has one member, and takes no others" },
      { ask("MemberAdd", { peerURLs = { "http://a:1" } }) })
    assert.equal(1, #ask("MemberList").members)
  end)

  it("refuses a member without URLs, or with one that is none", function()
    for _, urls in ipairs {
      {}, { "" }, { "http://a:1", "" }, { "a:1" }, { "ftp://a:1" }, { "http:a:1" }, { "http://" }, { "http://a" },
      { "http://a:b" }, { "http://a:1:2" }, { "http://::1:1" }, { "http://[::1]" }, { "http://[::1]a:1" },
      { "http://a:1/" }, { "http://a:1/path" }, { "http://a b:1" }, { "http://a\\b:1" }, { "http://a\1:1" },
      { "http://u p@a:1" }, { "http://a%20b:1" }, { (" "):rep(4000) }, { "http://a" .. (" "):rep(4000) .. ":1" },
    } do
      assert.same({ nil, INVALID_ARGUMENT, "etcdserver: given member URLs are invalid" },
        { ask("MemberAdd", { peerURLs = urls, isLearner = true }) })
    end
  end)

  it("compares a member's URLs in any order", function()
    if serving.is_etcd then return end -- which takes the first, and then no other
    for _, url in ipairs {
      "http://a:1", "https://a:1", "HTTP://a_b.c:1", " http://a:1\n", "http://:1", "http://a:", "http://[::1]:1",
      "http://a:1?query", "http://u:p@a:1", "unix:///path", "unixs://path",
    } do
      local _, status = ask("MemberAdd", { peerURLs = { url } })
      assert.equal(UNIMPLEMENTED, status, url)
    end
  end)

  it("has no learner to promote", function()
    assert.same({ nil, FAILED_PRECONDITION, "etcdserver: can only promote a learner member" },
      { ask("MemberPromote", { ID = me() }) })
  end)

  it("accepts new peer URLs for its member", function()
    local id = me()
    local answer = assert(ask("MemberUpdate", { ID = id, peerURLs = { "http://localhost:9", "http://localhost:10" } }))
    assert.same({ "http://localhost:9", "http://localhost:10" }, answer.members[1].peerURLs)
    assert.same(answer, ask("MemberList"))
    assert.equal(id, answer.members[1].ID)
    assert.is_nil(assert(ask("MemberUpdate", { ID = id })).members[1].peerURLs)
  end)
end)
