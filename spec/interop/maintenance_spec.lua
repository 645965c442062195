--- etcdctl's commands for administrators.

local etcdctl = require "spec.support.etcdctl"

describe("etcdctl, for maintenance #once", function()
  local ctl = etcdctl.with_server()
  local peer

  setup(function() peer = ctl.peer end)

  it("finds the endpoint in the member list", function()
    local before = ctl:must { "endpoint", "hashkv", "--cluster" }
    assert.matches("^" .. peer.url:gsub("%p", "%%%0") .. ", %d+\n$", before)
    local status = ctl:must { "endpoint", "status", "--cluster", "-w", "json" }
    assert.equal(peer.url, status:match('"Endpoint":"([^"]*)"'))
    assert.matches(peer.url .. " is healthy", ctl:run { "endpoint", "health", "--cluster" }:stderr(), 1, true)
    assert.equal(("Finished defragmenting etcd member[%s]\n"):format(peer.url), ctl:must { "defrag", "--cluster" })
  end)

  it("checks the performance: the first of a minute of writes by many clients", function()
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
