--- The end of a server with connected clients, and its restart.
--
-- A server that has lost its data starts again at revision 1. A client that resumes at its revision then waits until
-- the new store has reached it.

local keywatch = require "keywatch"

local directory = require "spec.support.directory"
local etcdctl = require "spec.support.etcdctl"
local process = require "spec.support.process"
local python = require "spec.support.python"
local server = require "spec.support.server"

describe("a server that shuts down #once", function()
  after_each(process.end_all)

  it("ends in order without clients", function()
    server.start():stop()
  end)

  it("ends in order after its clients have gone", function()
    local peer = server.start()
    local ctl = etcdctl.new(peer)
    ctl:must { "put", "a", "1" }
    local watch = ctl:start { "watch", "a", "--rev=1" }
    watch:expect("PUT\na\n1\n")
    watch:signal("sigkill")
    watch:wait()
    peer:stop()
  end)

  it("ends in order while etcdctl watches, holds a lock and keeps a lease", function()
    local peer = server.start()
    local ctl = etcdctl.new(peer)
    ctl:must { "put", "a", "1" }
    local watch = ctl:start { "watch", "a", "--rev=1" }
    watch:expect("PUT\na\n1\n")
    local lock = ctl:start { "lock", "lock" }
    lock:expect("^lock/%x+\n")
    local lease = ctl:must { "lease", "grant", "600" }:match("^lease (%x+)")
    local alive = ctl:start { "lease", "keep-alive", lease }
    alive:expect("keepalived")
    peer:stop()
    assert.is_nil(watch.status) -- it waits for a server to return
  end)

  it("makes Python's streams reconnect #peer", function()
    local peer = server.start()
    local client = python.new(peer)
    finally(function() client:stop() end)
    client:begin("watch_until_shutdown", "watching")
    peer:stop()
    client:finish("watch_until_shutdown")
  end)

  it("logs its progress when loading takes long", function()
    if server.is_etcd then return end
    local path, n = directory.new(), 60000
    finally(directory.remove_all)
    local store = keywatch.open { path = path, max_txn_ops = n, max_request_bytes = 1e8 }
    local puts = {}
    for i = 1, n do puts[i] = { put = "k" .. i, value = "" } end
    assert(store:txn { success = puts })
    store:close()
    local peer = server.start { path = path, before = [[
      local uv = require "keywatch.uv"
      local now, asked = uv.now, 0
      uv.now = function() -- a clock on which everything takes long
        asked = asked + 1
        return now() + 1.5 * asked
      end
    ]] }
    assert.matches(" info reading [^\n]+: 60000 of 60000 records, 100 %%\n", peer.process:stderr())
    peer:stop()
  end)

  it("returns with its data, and etcdctl continues where it stopped", function()
    local path = directory.new()
    finally(directory.remove_all)
    local peer = server.start { path = path }
    local ctl = etcdctl.new(peer)
    local lease = ctl:must { "lease", "grant", "600" }:match("^lease (%x+)")
    ctl:must { "put", "a", "one", "--lease", lease }
    ctl:must { "put", "a", "two", "--lease", lease }
    local watch = ctl:start { "watch", "a", "--rev=2" }
    watch:expect("PUT\na\none\nPUT\na\ntwo\n")
    peer:stop()

    peer = server.start { path = path, port = peer.port }
    assert.equal("a\ntwo\n", ctl:must { "get", "a" })
    assert.equal("a\none\n", ctl:must { "get", "a", "--rev=2" })
    assert.matches("attached keys%(%[a%]%)", ctl:must { "lease", "timetolive", lease, "--keys" })
    ctl:must { "put", "a", "three" }
    watch:expect("^PUT\na\nthree\n$")
    peer:stop()
  end)

  it("is found again by etcdctl, though it has lost its data", function()
    local peer = server.start()
    local ctl = etcdctl.new(peer)
    ctl:must { "put", "a", "old" } -- revision 2
    local watch = ctl:start { "watch", "a", "--rev=1", "-w", "json" }
    watch:expect('"mod_revision":2,')
    peer:stop()

    peer = server.start { port = peer.port }
    ctl:must { "put", "a", "seen" } -- revision 2 again
    ctl:must { "put", "a", "new" }
    assert.equal("bmV3", watch:expect('"mod_revision":3,"version":2,"value":"(%w+)"'))
    assert.not_matches("c2Vlbg", watch:stdout())
    peer:stop()
  end)
end)
