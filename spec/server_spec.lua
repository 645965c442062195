--- keywatch.serve: listening, the services that are written in Lua, and the end.

local keywatch = require "keywatch"
local core = require "keywatch.core"

local annotations = require "spec.support.annotations"
local luv = require "spec.support.luv"
local program = require "spec.support.program"
local rpc = require "spec.support.rpc"

local SECONDS = 120 -- after which a wait fails
local LOCAL = "http://127.0.0.1:0"
local STATUS = "/etcdserverpb.Maintenance/Status"
local MEMBER_ID, CLUSTER_ID = "10276657743932975437", "14841639068965178418" -- etcd's, with the same defaults

--- An id in the form that core.decode gives it.
local function id(text)
  return core.decode("ResponseHeader", core.encode("ResponseHeader", { member_id = text })).member_id
end

--- Turns both loops until is_so() is true.
local function wait(is_so)
  local deadline = keywatch.now() + SECONDS
  while not is_so() do
    luv.run("nowait")
    keywatch.sleep(0)
    if keywatch.now() > deadline then error("timeout: the awaited condition is not true", 2) end
  end
end

local function status(client) return (client:ask(STATUS)) end

describe("a server", function()
  local store, server, clients

  before_each(function()
    store, clients = keywatch.open(), {}
    server = assert(keywatch.serve { store = store, listen = LOCAL, cluster_token = "etcd-cluster" })
  end)

  after_each(function()
    for _, client in ipairs(clients) do client:close() end
    server:close()
    store:close()
  end)

  local function connect(to)
    local client = rpc.connect((to or server):addresses()[1])
    table.insert(clients, client)
    return client
  end

  it("sleeps while a watch has events that nothing waits for", function()
    local watch = store:watch("a")
    watch:next(0.001) -- in vain
    store:put("a", "1")
    local polls, poll = 0, server.dispatcher.poll
    server.dispatcher.poll = function(...)
      polls = polls + 1
      return poll(...)
    end
    keywatch.sleep(0.05)
    assert.is_true(polls < 20, polls .. " turns")
    assert.equal("1", watch:next(SECONDS).value)
  end)

  it("checks ids", function()
    for _, name in ipairs { "cluster_id", "member_id" } do
      for _, value in ipairs { "x", 1.5, true, {} } do
        local ok, err = pcall(core.serve, store, { [name] = value })
        assert.is_false(ok)
        local words = "option '%s' must be a number of 64 bits: a whole number, or a decimal string, not "
        assert.matches(words:format(name), err, 1, true)
      end
    end
  end)

  it("has the identity of an etcd with the same defaults", function()
    local client = connect()
    assert.same({ member_id = id(MEMBER_ID), cluster_id = id(CLUSTER_ID), revision = 1, raft_term = 2 },
      status(client).header)
    assert.same({ {
      ID = id(MEMBER_ID), name = "default", peerURLs = { "http://localhost:2380" }, clientURLs = server:addresses(),
    } }, client:ask("/etcdserverpb.Cluster/MemberList").members)
    assert.equal("3.5.21", status(client).version)
  end)

  it("arms and disarms alarms of its store", function()
    local client, alarm = connect(), "/etcdserverpb.Maintenance/Alarm"
    client:ask(alarm, { action = "ACTIVATE", memberID = MEMBER_ID, alarm = "NOSPACE" })
    assert.same({ "no_space" }, store:alarms())
    client:ask(alarm, { action = "DEACTIVATE", memberID = MEMBER_ID, alarm = "NOSPACE" })
    assert.same({}, store:alarms())
  end)

  describe("with the log level debug", function()
    local lines, other

    before_each(function()
      lines = {}
      other = assert(keywatch.serve {
        store = store, listen = LOCAL, log_level = "debug",
        on_log = function(level, text) table.insert(lines, level .. " " .. text) end,
      })
    end)

    after_each(function() other:close() end)

    --- Waits for a line; returns what the pattern captures.
    local function expect(pattern)
      local found
      wait(function()
        for _, line in ipairs(lines) do found = found or line:match(pattern) end
        return found
      end)
      return found
    end

    it("passes connections, refused and slow requests to its function", function()
      local client = connect(other)
      other:mount("spec.Service", {
        Wait = function()
          keywatch.sleep(0.15)
          return ""
        end,
        Refuse = function() return nil, { grpc_status = 9, message = 'not "now"\n\27[2J' } end,
      })
      local address = expect "^debug connection from (127%.0%.0%.1:%d+) accepted$"
      address = address:gsub("%p", "%%%0")
      client:unary("/spec.Service/Wait", "")
      local ms = tonumber(expect('^debug request "/spec.Service/Wait" from ' .. address .. " took (%d+) ms$"))
      assert.is_true(ms > 100)
      client:unary("/spec.Service/Refuse", "")
      expect('^debug request "/spec.Service/Refuse" from ' .. address
        .. [[ refused: FAILED_PRECONDITION %(9%) "not \"now\"\x0a\x1b%[2J"$]])
      other:close()
      expect("^debug connection from " .. address .. " ended: the server is closed$")
    end)

    it("passes failed handlers to its function", function()
      other:mount("spec.Service", { Fail = function() error("a slip") end })
      connect(other):unary("/spec.Service/Fail", "")
      expect("^error /spec.Service/Fail has failed: [^\n]*a slip\n    stack traceback")
    end)

    it("reports how many notes were lost when too many come at once", function()
      local client = connect(other)
      status(client)
      local last
      for _ = 1, 1000 do last = client:begin("/no/Method", "") end
      client:finish(last)
      local n_lost, n_told = 0, 0
      wait(function()
        n_lost, n_told = 0, 0
        for _, line in ipairs(lines) do
          n_lost = n_lost + (tonumber(line:match("^debug (%d+) notes were lost")) or 0)
          n_told = n_told + (line:find('^debug request "/no/Method"') and 1 or 0)
        end
        return n_lost + n_told >= 1000
      end)
      assert.is_true(n_told > 0)
    end)

    it("passes none of these at another level", function()
      local got = 0
      local quiet = assert(keywatch.serve { store = store, listen = LOCAL, on_log = function() got = got + 1 end })
      connect(quiet):unary("/no/Method", "")
      quiet:close()
      assert.equal(0, got)
    end)

    it("refuses an unknown level, and a function for a thread", function()
      assert.error_matches(function() keywatch.serve { store = store, log_level = "loud" } end,
        "option 'log_level' must be debug, info, warn, error, panic or fatal")
      assert.error_matches(function() keywatch.serve { store = store, on_log = "loud" } end,
        "option 'on_log' must be a function")
      assert.error_matches(function() keywatch.serve { thread = true, on_log = print } end,
        "a function cannot go to another thread")
    end)
  end)

  it("wakes a task that watches the store, when a client has written", function()
    local client = connect()
    local event = keywatch.run(function()
      local watch = store:watch("a")
      local waiter = keywatch.spawn(function() return watch:next() end)
      assert(client:ask("/etcdserverpb.KV/Put", { key = "a", value = "1" }))
      return select(2, waiter:join())
    end)
    assert.equal("1", event.value)
  end)

  it("ends in order once, for several callers", function()
    local client = connect()
    status(client)
    local first = keywatch.spawn(function() return server:shutdown(1e6) end)
    local second = keywatch.spawn(function() return server:shutdown(1e6) end)
    wait(function() return client:has_goaway() end)
    client:close()
    assert.same({ true, true }, { first:join() })
    assert.same({ true, true }, { second:join() })
  end)

  it("ends when the shorter of two graces has passed", function()
    status(connect())
    local patient = keywatch.spawn(function() return server:shutdown(1e6) end)
    keywatch.spawn(function() return server:shutdown(0) end)
    assert.is_true(patient:join())
  end)

  it("ends for all waiters when it is closed", function()
    status(connect())
    local ender = keywatch.spawn(function() return server:shutdown(1e6) end)
    keywatch.spawn(function() server:close() end)
    assert.is_true(ender:join())
  end)

  it("continues if its shutdown has invalid arguments", function()
    for _, grace in ipairs { "soon", {}, true, 0 / 0 } do
      local _, words = pcall(function() server:shutdown(grace) end)
      assert.matches("spec/server_spec.lua:%d+: bad argument #1 to 'shutdown'", words)
    end
    local outcome
    coroutine.wrap(function() outcome = { pcall(server.shutdown, server, 5) } end)()
    assert.matches("is not a task", outcome[2])
    assert.equal(1, #server:addresses())
    status(connect())
    assert.is_true(server:shutdown(-1))
    assert.is_true(server:shutdown(1))
    assert.error_matches(function() server:shutdown("soon") end, "bad argument #1 to 'shutdown'")
  end)

  it("ends in order with any grace, without clients", function() assert.is_true(server:shutdown(math.huge)) end)

  it("compacts automatically while it is open", function()
    local other = assert(keywatch.serve { store = store, listen = LOCAL, auto_compaction_mode = "periodic",
      auto_compaction_retention = 0.001 })
    keywatch.run(function()
      while store:status().compact_revision < 10 do
        store:put("a", "")
        keywatch.sleep(0)
      end
    end)
    other:close()
    local compacted = store:status().compact_revision
    for _ = 1, 100 do
      store:put("a", "")
      keywatch.sleep(0)
    end
    assert.equal(compacted, store:status().compact_revision)
  end)
end)

for where, is_thread in pairs { ["of this process"] = false, ["in a thread"] = true } do
  describe("a server " .. where, function()
    local store, server, client

    --- Starts one; its store is the same each time, if there is no thread.
    local function start(opts)
      local all = { listen = LOCAL }
      if is_thread then all.thread = true else all.store = store end
      for name, value in pairs(opts or {}) do all[name] = value end
      return keywatch.serve(all)
    end

    before_each(function()
      store = keywatch.open()
      server = assert(start())
      client = rpc.connect(server:addresses()[1])
      status(client)
    end)

    after_each(function()
      client:close()
      server:close()
      store:close()
    end)

    local function has_gone() return client.socket.has_ended or client.socket.failure end

    it("has the identity of its options", function()
      local other = assert(start {
        listen = { LOCAL, LOCAL }, name = "n1", advertise = "http://h:1", peer_urls = { "http://b:1", "http://a:1" },
        cluster_token = "t", max_concurrent_streams = 10, keepalive_min_time = 1, keepalive_interval = 60.5,
        keepalive_timeout = 10, auto_compaction_mode = "revision", auto_compaction_retention = 1000,
        open = is_thread and { max_txn_ops = 1, quota_backend_bytes = -1 } or nil,
      })
      assert.equal(2, #other:addresses())
      client:close()
      client = rpc.connect(other:addresses()[1])
      local answer = client:ask("/etcdserverpb.Cluster/MemberList")
      assert.equal("n1", answer.members[1].name)
      assert.same({ "http://h:1" }, answer.members[1].clientURLs)
      assert.not_equal(id(MEMBER_ID), answer.members[1].ID)
      local op = { request_put = { key = "a", value = "1" } }
      local function txn(ops) return (client:ask("/etcdserverpb.KV/Txn", ops)) end
      assert.is_table(txn { success = { op } })
      if is_thread then assert.is_nil(txn { success = { op, op } }) end
      other:close()
    end)

    it("ends in order: clients are notified, and the last one to leave ends it", function()
      local ender = keywatch.spawn(function() return server:shutdown(SECONDS) end)
      wait(function() return client:has_goaway() end)
      client:close()
      assert.same({ true, true }, { ender:join() })
      assert.same({}, server:addresses())
      assert.is_true(server:shutdown())
      assert.is_table(store:status())
    end)

    it("ends at the end of its grace, whatever clients are left", function()
      assert.is_true(server:shutdown(0))
      wait(has_gone)
    end)

    it("closes at once, and does not close a store that was passed to it", function()
      server:close()
      wait(has_gone)
      assert.is_table(store:put("a", "1"))
      assert.matches("closed", tostring(server))
      assert.same({}, server:addresses())
      assert.is_true(server:shutdown())
    end)

    it("can be created again at the same address", function()
      local address = server:addresses()[1]
      for _ = 1, 5 do
        server:close()
        client:close()
        server = assert(start { listen = address })
        assert.same({ address }, server:addresses())
        client = rpc.connect(address)
        assert.is_table(status(client))
      end
    end)

    it("is not created if it cannot listen on all addresses, and then listens on none", function()
      local taken = server:addresses()[1]
      local other, err = start { listen = { LOCAL, taken } }
      assert.is_nil(other)
      assert.same({ "listen_failed", "EADDRINUSE", 14 }, { err.code, err.errno, err.grpc_status })
      assert.equal(("keywatch: cannot listen on %s: address already in use"):format(taken), err.message)
      assert.matches("listen_failed", tostring(err))
    end)
  end)
end

describe("keywatch.serve", function()
  local store

  before_each(function() store = keywatch.open() end)
  after_each(function() store:close() end)

  it("wakes all waiters when it is closed", function()
    local server = assert(keywatch.serve { store = store, listen = LOCAL })
    server:close()
    assert.error_matches(function() keywatch.run(function() store:watch("a"):next() end) end, "deadlock")
  end)

  it("raises on a usage error", function()
    assert.error_matches(function() keywatch.serve(5) end, "options must be a table")
    assert.error_matches(function() keywatch.serve {} end, "option 'store' must be a store")
    assert.error_matches(function() keywatch.serve { store = store, listen = "" } end, "'listen': '' must begin")
    assert.error_matches(function() keywatch.serve { store = store, listen = {} } end, "'listen' must be a URL")
    assert.error_matches(function()
      keywatch.serve { store = store, auto_compaction_mode = "daily" }
    end, "'auto_compaction_mode' must be")
    assert.error_matches(function()
      keywatch.serve { store = store, auto_compaction_retention = -1 }
    end, "'auto_compaction_retention' must be a number")
    assert.error_matches(function()
      keywatch.serve { store = store, auto_compaction_mode = "revision", auto_compaction_retention = 0.5 }
    end, "a whole number of revisions")
    local server = assert(keywatch.serve { store = store, listen = LOCAL })
    for _, name in ipairs { "addresses", "close", "mount", "shutdown", "use" } do
      assert.error_matches(function() server[name]() end, "with a colon")
    end
    server:close()
  end)

  it("takes the annotated options, and no others", function()
    local fields = annotations.read("types/keywatch.lua"):fields("keywatch.ServeOptions")
    for name in pairs(fields) do
      assert.error_matches(function() keywatch.serve { [name] = io.stdout } end, ("option '%s' must be"):format(name))
    end
    assert.error_matches(function() keywatch.serve { store = store, liste = LOCAL } end, "no option 'liste'")
  end)

  it("returns a server that lives until it is closed, though it is forgotten", function()
    assert.equal("open\n", program.printed_by([[
      local keywatch = require "keywatch"
      local store = keywatch.open()
      local address = assert(keywatch.serve { store = store, listen = "http://127.0.0.1:0" }):addresses()[1]
      collectgarbage()
      collectgarbage()
      local luv = require "luv"
      local tcp, result = luv.new_tcp(), nil
      tcp:connect("127.0.0.1", tonumber(address:match("%d+$")), function(err) result = err or "open" end)
      while not result do luv.run("nowait") keywatch.sleep(0) end
      print(result)
    ]]))
  end)
end)
