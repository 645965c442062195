--- etcdctl, the commands of those who look after a server: its endpoints, its hash, and its users where there are none.

local etcdctl = require "spec.support.etcdctl"

describe("etcdctl, for maintenance #once", function()
  local ctl = etcdctl.with_server()
  local peer

  setup(function() peer = ctl.peer end)

  it("finds the endpoint by the list of members", function()
    local before = ctl:must { "endpoint", "hashkv", "--cluster" }
    assert.matches("^" .. peer.url:gsub("%p", "%%%0") .. ", %d+\n$", before)
    local status = ctl:must { "endpoint", "status", "--cluster", "-w", "json" }
    assert.equal(peer.url, status:match('"Endpoint":"([^"]*)"'))
    assert.matches(peer.url .. " is healthy", ctl:run { "endpoint", "health", "--cluster" }:stderr(), 1, true)
    assert.equal(("Finished defragmenting etcd member[%s]\n"):format(peer.url), ctl:must { "defrag", "--cluster" })
  end)

  it("hashes what was at a revision, whatever comes later", function()
    local function hash(...)
      local json = ctl:must { "endpoint", "hashkv", "-w", "json", ... }
      return json:match('"hash":(%d+)'), json:match('"compact_revision":(%-?%d+)'), json:match('"revision":(%d+)')
    end
    ctl:must { "put", "hash/a", "1" }
    local revision = ctl:revision()
    local before, compacted, at = hash()
    assert.same({ "-1", tostring(revision) }, { compacted, at })
    ctl:must { "put", "hash/a", "2" }
    assert.not_equal(before, (hash()))
    assert.equal(before, (hash("--rev=" .. revision)))
    assert.matches("future revision", ctl:run { "endpoint", "hashkv", "--rev=1000000" }:stderr())
  end)

  describe("without users and authentication", function()
    it("lists nobody and nothing", function()
      assert.equal("", ctl:must { "user", "list" })
      assert.equal("", ctl:must { "role", "list" })
    end)

    it("disables what is not enabled, and cannot enable it", function()
      assert.equal("Authentication Disabled\n", ctl:must { "auth", "disable" })
      assert.equal("etcdserver: root user does not exist", ctl:fail { "auth", "enable" })
    end)

    it("needs no password, and takes any", function()
      ctl:must { "put", "auth/a", "1" }
      assert.equal("auth/a\n1\n", ctl:must { "--user", "root:secret", "get", "auth/a" })
    end)
  end)

  it("checks the performance: the first writes of many clients, of a minute of them", function()
    local prefix = "/etcdctl-check-perf/"
    local watch = ctl:start { "watch", prefix, "--prefix", "--rev=" .. ctl:revision() + 1 }
    local check = ctl:start { "check", "perf", "--load=s" }
    for _ = 1, 100 do watch:expect("PUT\n/etcdctl%-check%-perf/") end
    assert.is_nil(check.status)
    check:signal("sigkill")
    check:wait()
    assert.matches('prefix "/etcdctl%-check%-perf/" has keys', ctl:run { "check", "perf", "--load=s" }:stderr())
    assert.is_true(tonumber((ctl:must { "del", prefix, "--prefix" })) >= 100)
  end)
end)
