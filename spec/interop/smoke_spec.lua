--- A little of everything, on every VM and in every kind of build; the other files of this folder run once.

local etcdctl = require "spec.support.etcdctl"
local python = require "spec.support.python"

describe("a server", function()
  local ctl = etcdctl.with_server()

  it("serves etcdctl", function()
    assert.equal("OK\n", ctl:must { "put", "smoke/a", "1" })
    assert.equal("smoke/a\n1\n", ctl:must { "get", "smoke/", "--prefix" })
    assert.equal("SUCCESS\n\nOK\n", ctl:must { "txn", input = 'version("smoke/a") = "1"\n\nput smoke/b 2\n\n\n' })
    local watch = ctl:start { "watch", "smoke/", "--prefix", "--rev=1" }
    watch:expect("^PUT\nsmoke/a\n1\nPUT\nsmoke/b\n2\n")
    local lease = ctl:must { "lease", "grant", "600" }:match("^lease (%x+) granted")
    ctl:must { "put", "smoke/c", "3", "--lease", lease }
    ctl:must { "lease", "revoke", lease }
    watch:expect("^PUT\nsmoke/c\n3\nDELETE\nsmoke/c\n\n")
    assert.equal("compacted revision 3\n", ctl:must { "compaction", "3" })
    assert.equal("2\n", ctl:must { "del", "smoke/", "--prefix" })
    watch:expect("^DELETE\nsmoke/a\n\nDELETE\nsmoke/b\n\n")
  end)

  it("returns its name and version to etcdctl", function()
    local id = ctl:must { "member", "list" }:match("^(%x+), started, ")
    local status = ctl:must { "endpoint", "status" }
    assert.equal(id, status:match("^[^,]+, (%x+), "))
    assert.matches(", true, false, %d+, %d+, %d+, \n$", status) -- a leader, and no learner
    assert.matches(" is healthy: ", ctl:run { "endpoint", "health" }:stderr())
  end)

  describe("#slow #peer", function()
    local client

    setup(function() client = python.new(ctl.peer) end)

    teardown(function()
      if client then client:stop() end
    end)

    -- Numbers that a VM may not represent, and requests that need much memory.
    for _, case in ipairs { "put_and_get", "lease_ids", "status_and_members", "alarm", "oversized_message",
      "calls_cancelled", "watch_cancelled", "watch_many_on_one_stream", "watch_slow_reader",
      "streams_many_on_one_channel" } do
      it("serves Python: " .. case:gsub("_", " "), function() client:case(case) end)
    end
  end)
end)
