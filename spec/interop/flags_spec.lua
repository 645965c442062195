--- Flags of the server: their effects on clients.

local etcdctl = require "spec.support.etcdctl"
local frame = require "spec.support.frame"
local h2 = require "spec.support.h2"
local process = require "spec.support.process"
local raw = require "spec.support.raw"
local server = require "spec.support.server"

local MAX_CONCURRENT_STREAMS = 3 -- the number of that setting
local PINGS = 10

describe("a server with the flag #once", function()
  local peer, ctl, client

  after_each(function()
    if client then client:close() end
    if peer then peer:stop() end
    peer, client = nil, nil
    process.end_all()
  end)

  local function start(...)
    peer = server.start { ... }
    ctl = etcdctl.new(peer)
  end

  --- Connects by hand.
  local function connect() client = raw.connect(peer.port) end

  local function ping() client:send(raw.frame(raw.PING, 0, 0, "keywatch")) end

  --- A call that lasts: while it does, pings are counted by their own time.
  local function watch() client:send(raw.request(1, raw.WATCH) .. raw.data(1, frame.watch("a"))) end

  it("--max-txn-ops allows that many operations, and no more", function()
    start("--max-txn-ops=2")
    assert.matches("^SUCCESS\n", ctl:must { "txn", input = "\nput a 1\nput b 2\n\n\n" })
    assert.equal("etcdserver: too many operations in txn request",
      ctl:fail { "txn", input = "\nput a 1\nput b 2\nput c 3\n\n\n" })
    assert.equal("a\n1\nb\n2\n", ctl:must { "get", "", "--prefix" })
  end)

  it("--max-request-bytes allows that many, and 512 KiB more for a message", function()
    start("--max-request-bytes=1000")
    ctl:must { "put", "a", ("x"):rep(900) }
    assert.equal("etcdserver: request is too large", ctl:fail { "put", "a", ("x"):rep(1001) })
    local done = ctl:run { "put", "a", input = ("x"):rep(1000 + 512 * 1024) }
    assert.equal(1, done.status)
    assert.matches("received message larger than max %(%d+ vs%. 525288%)", done:stderr())
    assert.equal(("x"):rep(900) .. "\n", ctl:must { "get", "a", "--print-value-only" })
  end)

  it("--quota-backend-bytes arms an alarm when it is exceeded, which can be disarmed when there is room", function()
    start("--quota-backend-bytes=1048576")
    local value, done = ("x"):rep(100000), nil
    for _ = 1, 100 do
      done = ctl:run { "put", "large", input = value }
      if done.status ~= 0 then break end
    end
    assert.matches("etcdserver: mvcc: database space exceeded", done:stderr())

    local alarm = ctl:must { "alarm", "list" }
    assert.matches("^memberID:%d+ alarm:NOSPACE \n$", alarm)
    assert.equal("etcdserver: mvcc: database space exceeded", ctl:fail { "put", "small", "1" })
    assert.matches("etcdserver: mvcc: database space exceeded", ctl:fail { "lease", "grant", "60" })
    assert.matches("alarm:NOSPACE", ctl:must { "endpoint", "status" })
    assert.matches("^large\n", ctl:must { "get", "large", "--keys-only" })
    assert.equal("1\n", ctl:must { "del", "large" })

    ctl:must { "compaction", "--physical", tostring(ctl:revision()) }
    ctl:must { "defrag" }
    assert.equal(alarm, ctl:must { "alarm", "disarm" })
    assert.equal("", ctl:must { "alarm", "list" })
    assert.equal("OK\n", ctl:must { "put", "small", "1" })
    assert.not_matches("alarm:", ctl:must { "endpoint", "status" })
  end)

  it("--max-concurrent-streams is sent to every client", function()
    start("--max-concurrent-streams=7")
    connect()
    local most
    client.on_frame = function(kind, _, _, payload)
      for at = 1, kind == raw.SETTINGS and #payload or 0, 6 do
        if h2.unpack_at(payload, at, 2) == MAX_CONCURRENT_STREAMS then most = h2.unpack_at(payload, at + 2, 4) end
      end
    end
    client:await(function() return most end, "the setting")
    assert.equal(7, most)
  end)

  it("--grpc-keepalive-interval pings silent clients, and --grpc-keepalive-timeout disconnects them", function()
    start("--grpc-keepalive-interval=1s", "--grpc-keepalive-timeout=1s")
    connect()
    client.answers_pings = false
    client:await_end()
    assert.is_true(peer:is_running())
  end)

  it("--grpc-keepalive-min-time disconnects clients that ping more often", function()
    start("--grpc-keepalive-min-time=1h")
    connect()
    watch()
    for _ = 1, PINGS do ping() end
    client:await_end()
    assert.same({ code = raw.ENHANCE_YOUR_CALM, text = "too_many_pings" }, client.goaway)
  end)

  it("--grpc-keepalive-min-time does not affect other clients", function()
    start("--grpc-keepalive-min-time=1ns")
    connect()
    watch()
    for n = 1, PINGS do
      ping()
      client:await(function() return (client.counts[raw.PING] or 0) >= n end, "the answer") -- etcd also sends PINGs
    end
    assert.is_nil(client.goaway)
  end)

  it("--auto-compaction-retention compacts the past periodically", function()
    start("--auto-compaction-retention=500ms", "--log-level=debug")
    ctl:must { "put", "a", "1" }
    local done
    repeat
      ctl:must { "put", "a", "2" }
      done = ctl:run { "get", "a", "--rev=2" }
    until done.status ~= 0
    assert.matches("etcdserver: mvcc: required revision has been compacted", done:stderr())
    assert.equal("a\n2\n", ctl:must { "get", "a" })
    if not server.is_etcd then assert.matches(" debug compacted to revision %d+\n", peer:log()) end
  end)

  -- The compactor's clock runs 600 times as fast, which is impossible with etcd. A call that Lua answers wakes it.
  if not server.is_etcd then
    it("--auto-compaction-mode=revision keeps that many revisions, and checks every five minutes", function()
      peer = server.start {
        before = [[
          local driver = require("keywatch.task.driver").get()
          local now = driver.now
          driver.now = function() return 600 * now() end
        ]],
        "--auto-compaction-mode=revision", "--auto-compaction-retention=3", "--log-level=debug",
      }
      ctl = etcdctl.new(peer)
      for i = 1, 10 do ctl:must { "put", "a", tostring(i) } end
      local done
      repeat
        ctl:must { "endpoint", "status" }
        done = ctl:run { "get", "a", "--rev=7" }
      until done.status ~= 0
      assert.matches("etcdserver: mvcc: required revision has been compacted", done:stderr())
      assert.equal("a\n7\n", ctl:must { "get", "a", "--rev=8" })
      ctl:must { "endpoint", "status" }
      assert.equal(11, ctl:revision())
      assert.matches(" debug compacted to revision 8\n", peer:log())
      assert.is_nil(peer:log():match("compacted to revision 9"))
    end)
  end
end)
