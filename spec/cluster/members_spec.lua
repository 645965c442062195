--- The cluster that specs work with does what it is told.

local keywatch = require "keywatch"

local cluster = require "spec.support.cluster"
local network = require "spec.support.network"
local uv = require "spec.support.luv"

local SHORT = { timeout = 0.5, connect_timeout = 0.3 }

describe("a cluster of etcd #once", function()
  local c

  setup(function() c = cluster.start() end)
  teardown(function() c:stop() end)

  before_each(network.begin)
  after_each(network.finish)

  --- A client of one member.
  local function connect(i, options) return network.connect(c.urls[i], options) end

  it("has members that have one history", function()
    local revision = assert(connect(1):put("a", "1")).revision
    for i = 1, 3 do
      local kv = assert(connect(i):get("a"))
      assert.same({ "1", revision }, { kv.value, kv.mod_revision })
    end
  end)

  it("advertises the proxies to clients", function()
    local answer = assert(connect(1):call("/etcdserverpb.Cluster/MemberList", {}))
    local found = {}
    for _, member in ipairs(answer.members) do found[member.clientURLs[1]] = true end
    for _, url in ipairs(c.urls) do assert.is_true(found[url]) end
  end)

  it("goes on without a leader that is killed, and with it when it returns", function()
    local first = c:wait_leader()
    c:kill(first)
    local second = c:wait_leader()
    assert.not_equal(first, second)
    assert(connect(second):put("b", "2"))
    assert.is_nil((connect(first, SHORT):get("b")))
    c:restart(first)
    assert.equal("2", assert(connect(first):get("b")).value)
  end)

  it("has no leader while two are paused, and one when they continue", function()
    c:wait_leader()
    c:pause(1)
    c:pause(2)
    assert.is_nil(c:leader())
    local err = select(2, connect(3, SHORT):put("c", "3"))
    assert.is_true(err.maybe_done)
    assert.is_nil((connect(1, SHORT):get("c")))
    c:resume(1)
    c:resume(2)
    c:wait_ready()
    c:wait_leader()
    assert(connect(1):put("c", "4"))
  end)

  it("can be killed while it is paused", function()
    c:pause(1)
    c:kill(1)
    c:restart(1)
    assert(connect(1):put("d", "5"))
  end)

  it("can refuse clients of one member, and take them again", function()
    local client = connect(1, SHORT)
    assert(client:put("e", "6"))
    c:cut(1)
    assert.is_nil((client:put("e", "7")))
    assert(connect(2):put("e", "8"))
    c:mend(1)
    assert.equal("8", assert(connect(1):get("e")).value)
    assert(client:put("e", "9", { timeout = network.PATIENCE }))
  end)

  it("can swallow what is said to one member", function()
    local client = connect(1, SHORT)
    assert(client:put("f", "1"))
    c:cut(1, "blackhole")
    local err = select(2, client:put("f", "2"))
    assert.equal("deadline_exceeded", err.code)
    assert.is_true(err.maybe_done)
    assert.equal("1", assert(connect(2):get("f")).value)
    c:mend(1)
    assert.equal("1", assert(client:get("f", { timeout = network.PATIENCE })).value)
  end)

  it("keeps a watch on all members when they are killed one after the other", function()
    keywatch.run(function()
      local client = network.connect(c.urls)
      local first = assert(client:put("g", "first"))
      local w = assert(client:watch("g", { start_revision = first.revision, timeout = network.PATIENCE }))
      assert.equal(first.revision, assert(w:next(network.PATIENCE)).mod_revision)
      for i = 1, 3 do
        c:kill(i)
        c:wait_leader()
        local put = assert(network.connect(c.urls[i % 3 + 1]):put("g", tostring(i)))
        assert.equal(put.revision, assert(w:next(network.PATIENCE)).mod_revision)
        c:restart(i)
      end
    end)
  end)

  it("leaves nothing behind", function()
    local other = cluster.start()
    other:pause(2)
    other:stop()
    for _, member in ipairs(other.members) do
      assert.is_nil(uv.fs_stat(member.path))
      assert.is_nil(member.process)
    end
  end)
end)
