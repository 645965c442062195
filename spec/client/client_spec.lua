--- The methods that only a client has: when and to which endpoints it connects, how its calls wait and end, and calls
-- of any method.
--
-- Behaviour that all servers share is tested with keywatch and with a real etcd. An imposter shows what a server
-- receives from a client.

local core = require "keywatch.core"
local keywatch = require "keywatch"

local answer = require "spec.support.answer"
local directory = require "spec.support.directory"
local events = require "spec.support.events"
local imposter = require "spec.support.imposter"
local misuse = require "spec.support.misuse"
local network = require "spec.support.network"
local program = require "spec.support.program"
local secure = require "spec.support.secure"
local server = require "spec.support.server"
local within = require "spec.support.within"

local code = answer.code

local ENOUGH = 1 -- seconds, for a connection, and in vain for what does not come
local RANGE, WATCH = "/etcdserverpb.KV/Range", "/etcdserverpb.Watch/Watch"
local KEEPALIVE, SNAPSHOT = "/etcdserverpb.Lease/LeaseKeepAlive", "/etcdserverpb.Maintenance/Snapshot"
local NOBODY = "http://127.0.0.1:1"
local MIB = 2 ^ 20

local world

local function set_world(one) world = one end
local function connect(urls, opts) return network.connect(urls, opts or {}) end

describe("connecting", function()
  local server_of_test, store

  after_each(function()
    network.finish()
    if server_of_test then
      server_of_test:close()
      store:close()
    end
    server_of_test = nil
  end)

  --- A server of this process. Returns its first URL.
  local function serve(listen)
    store = keywatch.open { now = 0 }
    server_of_test = assert(keywatch.serve { store = store, listen = listen or "http://127.0.0.1:0" })
    return server_of_test:addresses()[1]
  end

  it("gives a client with its endpoints as text, and whether it is closed", function()
    local client = keywatch.connect { NOBODY, "unix:/nowhere" }
    assert.equal("keywatch.client<http://127.0.0.1:1,unix:/nowhere>", tostring(client))
    client:close()
    client:close()
    assert.equal("keywatch.client<http://127.0.0.1:1,unix:/nowhere closed>", tostring(client))
  end)

  it("is refused for malformed endpoints, with a helpful text", function()
    for _, endpoints in ipairs { 5, true, {}, { 5 }, { NOBODY, {} }, "", "ftp://a:1", "http://", "http://a",
      "http://a:99999", "http://a:1/path", "http://a b:1", "https://a\0b:1", "unix:", "https://", "https://a",
      "https://a:1/path", "unixs:", { "a:1,b:2" } } do
      assert.matches("connect", misuse.raises(keywatch.connect, endpoints))
    end
    for text, words in pairs {
      [""] = "is empty", ["a:1,"] = "'' is empty", [",a:1"] = "'' is empty", ["a:1,,b:2"] = "'' is empty",
      ["a"] = "has no port: write a:2379", ["a:1, b"] = "'b' has no port: write b:2379",
      ["etcd.example:"] = "has no port: write etcd.example:2379", ["a:99999"] = "has a port above 65535",
      ["a:b"] = "must have the form host:port", ["a:1:2"] = "must have the form host:port",
      ["a:1/path"] = "must have the form host:port", ["a b:1"] = "must have the form host:port",
      ["user@a:1"] = "must have the form host:port", [":2379"] = "must have the form host:port",
      ["::1"] = "in brackets", ["::1:2379"] = "in brackets", ["[::1]"] = "in brackets",
      ["1:2:3:4:5:6:7:8"] = "in brackets", ["[::1]:"] = "in brackets",
      ["ftp://a:1"] = "must begin with http://, https://, unix: or unixs:",
    } do
      assert.matches(words, misuse.raises(keywatch.connect, text), 1, true)
    end
    assert.matches("client_spec", misuse.raises(function() keywatch.connect() end))
  end)

  it("takes endpoints as etcdctl does", function()
    for text, shown in pairs {
      ["127.0.0.1:1"] = "http://127.0.0.1:1", ["localhost:2379"] = "http://localhost:2379",
      ["[::1]:2379"] = "http://[::1]:2379", ["my-etcd_0.example:1"] = "http://my-etcd_0.example:1",
      ["a:1,b:2"] = "http://a:1,http://b:2", [" a:1 , unix:/b "] = "http://a:1,unix:/b",
      ["http://a:1,b:2"] = "http://a:1,http://b:2", ["unix:a"] = "unix:a",
    } do
      assert.equal(("keywatch.client<%s>"):format(shown), tostring(keywatch.connect(text)))
    end
    assert.equal("keywatch.client<http://a:1,unix:/b,c>", tostring(keywatch.connect { "a:1", "unix:/b,c" }))
    local address, opts = serve():gsub("^https?://", ""), { tls = secure.tls() }
    assert.equal(2, connect(address, opts):put("a", "").revision)
    assert.equal(3, connect("127.0.0.1:1," .. address, opts):put("a", "").revision)
    assert.equal(4, connect((address:gsub("127%.0%.0%.1", "localhost")), opts):put("a", "").revision)
  end)

  it("is refused with unknown options", function()
    for _, opts in ipairs { 5, { colour = 1 }, { "timeout" }, { timeout = "1" }, { timeout = -1 }, { timeout = 0 / 0 },
      { connect_timeout = true }, { keepalive = "no" }, { max_message = {} }, { user = "root" }, { password = "x" },
      { user = 5, password = "x" }, { keepalive = -1 }, { keepalive = -math.huge }, { keepalive = 0 / 0 },
      { keepalive_timeout = -1e-9 }, { backoff = 1 }, { backoff = { 0.1 } }, { backoff = { most = 1 } },
      { backoff = { first = 0 } }, { backoff = { first = -1 } }, { backoff = { first = "1" } },
      { backoff = { longest = 0 / 0 } }, { backoff = { longest = math.huge } }, { backoff = { first = 4 } },
      { backoff = { longest = 0.05 } }, { backoff = { first = 2, longest = 1 } } } do
      assert.matches("connect", misuse.raises(keywatch.connect, NOBODY, opts))
    end
  end)

  it("uses a Unix socket for a path", function()
    local parent = directory.new()
    local path = parent .. "/socket"
    finally(function() directory.remove(parent) end)
    serve("unix:" .. path)
    assert.equal(2, connect("unix:" .. path):put("a", "").revision)
    assert.equal(3, connect("unix://" .. path):put("a", "").revision)
  end)

  it("resolves a name", function()
    local url = serve()
    assert.equal(2, connect((url:gsub("127%.0%.0%.1", "localhost"))):put("a", "").revision)
  end)

  it("uses IPv6, if the machine has it", function()
    local ok, url = pcall(serve, "http://[::1]:0")
    if ok then assert.equal(2, connect(url):put("a", "").revision) end
  end)

  it("uses the first endpoint that answers", function()
    local client = connect { NOBODY, "unix:/nowhere", (serve()) }
    assert.equal(2, client:put("a", "").revision)
    assert.matches("^https?://127.0.0.1:%d+$", client:status().endpoint)
  end)

  it("fails, at the timeout of a call, with the reason", function()
    local _, err = connect(NOBODY):get("a", { timeout = 0.05 })
    assert.equal("unavailable", err.code)
    assert.matches("http://127.0.0.1:1: ", err.message)
  end)
end)

describe("a call #plain", function() -- there is no TLS in virtual time
  network.in_virtual_time(set_world)

  it("opens the connection", function()
    local peer = imposter.start { [RANGE] = { "reply", { count = 7 } } }
    local client = connect(peer.url)
    keywatch.sleep(1)
    assert.same({}, peer.connections)
    assert.equal(7, client:range("a").count)
    assert.equal(1, client:range("b").count and #peer.connections)
  end)

  it("at top level turns the loop, in which tasks continue", function()
    local client, went = world:client(), false
    keywatch.spawn(function() went = true end)
    client:put("a", "1")
    assert.equal("1", client:get("a").value)
    assert.is_true(went)
  end)

  it("in a task lets other tasks run", function()
    local peer = imposter.start { [RANGE] = "stream:wait('go') stream:headers() stream:message { count = 1 } "
      .. "stream:status(0)" }
    local client, order = connect(peer.url), {}
    keywatch.run(function()
      local task = keywatch.spawn(function()
        client:range("a")
        table.insert(order, "answered")
      end)
      keywatch.sleep(0)
      table.insert(order, "others")
      peer:signal("go")
      task:join()
    end)
    assert.same({ "others", "answered" }, order)
  end)

  it("in a coroutine that is not a task raises, and says what to do", function()
    local client = world:client()
    local ok, err = coroutine.resume(coroutine.create(function() return client:get("a") end))
    assert.is_false(ok)
    assert.matches("keywatch%.spawn", err)
    assert.is_nil(client:get("a")) -- nothing is the worse for it
  end)

  describe("whose answer does not come", function()
    local peer, client

    before_each(function()
      peer = imposter.start { [RANGE] = { "silent" }, [WATCH] = { "silent" } }
      client = connect(peer.url)
    end)

    it("fails at its timeout, and the server is notified", function()
      assert.equal("deadline_exceeded", code(client:get("a", { timeout = ENOUGH })))
      assert.equal(8, peer:await("calls[1].reset"))
    end)

    it("fails at its deadline, which was sent to the server", function()
      assert.equal("deadline_exceeded", code(client:get("a", { deadline = keywatch.now() + ENOUGH })))
      local left = peer.calls[1].headers['grpc-timeout']
      assert.is_true(tonumber(left:match("^(%d+)m$")) <= ENOUGH * 1000)
    end)

    it("has the client's timeout if it has none itself", function()
      assert.equal("deadline_exceeded", code(connect(peer.url, { timeout = ENOUGH }):get("a")))
    end)

    it("fails at once with a timeout of 0", function()
      assert.equal("unimplemented", code(client:call("/nobody.Knows/This", ""))) -- there is a connection
      assert.equal("deadline_exceeded", code(client:get("a", { timeout = 0 })))
      assert.equal("deadline_exceeded", code(client:get("a", { deadline = keywatch.now() - 1 })))
    end)

    it("is not sent after its deadline, and a write was then certainly not done", function()
      assert.equal("unimplemented", code(client:call("/nobody.Knows/This", ""))) -- there is a connection
      for _, times in ipairs { { timeout = 0 }, { deadline = keywatch.now() - 1 } } do
        local result, err = client:put("a", "b", times)
        assert.same({ nil, "deadline_exceeded", nil }, { result, err.code, err.maybe_done })
      end
      assert.equal("unimplemented", code(client:call("/nobody.Knows/This", "")))
      assert.equal(2, #peer.calls)
    end)

    it("is not sent by a task that is already cancelled", function()
      assert.equal("unimplemented", code(client:call("/nobody.Knows/This", ""))) -- there is a connection
      local cache = client:cache("c")
      peer:await("#calls == 2")
      keywatch.run(function()
        for _, open in ipairs {
          function() client:put("a", "b") end,
          function() client:watch("a") end,
          function() client:watch("a", { initial = true }) end,
          function() client:stream(WATCH) end,
          function() client:health() end,
          function() cache:sync() end,
        } do
          local task = keywatch.spawn(function()
            pcall(keywatch.sleep, 60)
            open()
          end)
          keywatch.sleep(0)
          task:cancel()
          assert.equal("cancelled", select(2, task:join()).code)
        end
      end)
      assert.equal("unimplemented", code(client:call("/nobody.Knows/This", "")))
      assert.equal(3, #peer.calls)
      assert.equal(1, #peer.connections)
    end)

    it("is cancelled with its task", within.task(function()
      local task = keywatch.spawn(function() return client:get("a") end)
      peer:await("#calls == 1")
      task:cancel()
      local ok, err = task:join()
      assert.same({ false, "cancelled" }, { ok, err.code })
      peer:await("calls[1].reset")
    end))

    it("fails when the client is closed, and so does a watch that is being opened", function()
      keywatch.run(function()
        local get = keywatch.spawn(function() return code(client:get("a")) end)
        local watch = keywatch.spawn(function() return code(client:watch("a")) end)
        peer:await("#calls == 2")
        client:close()
        assert.same({ true, "closed" }, { get:join() })
        assert.same({ true, "closed" }, { watch:join() })
      end)
      peer:await("connections[1].has_ended")
    end)
  end)

  it("reports that the client is closed, in every state of a watch", function()
    for i = 1, 1500 do world.server.store:put("k" .. i, "v") end
    keywatch.run(function()
      for _, use in ipairs {
        function(watch) return watch:sync(0) end,
        function(watch)
          local event, err
          repeat event, err = watch:next(0) until not event
          return event, err
        end,
      } do
        for _, is_initial in ipairs { true, false } do
          local client = world:client()
          local watch = assert(client:watch("k", { prefix = true, initial = is_initial }))
          client:close()
          local found, err = use(watch)
          assert.same({ nil, "keywatch: the client is closed" }, { found, err.message })
        end
      end
    end)
  end)

  it("fails when the client is closed before there is a connection", function()
    local client = connect(NOBODY)
    keywatch.run(function()
      local task = keywatch.spawn(function() return code(client:get("a")) end)
      keywatch.sleep(0)
      client:close()
      assert.same({ true, "closed" }, { task:join() })
    end)
  end)

  it("of a client that is closed fails", function()
    local client = world:client()
    client:put("a", "")
    client:close()
    for _, call in ipairs { "get", "range", "put", "delete", "compact", "status", "leases", "watch" } do
      local argument = call == "compact" and 1 or "a"
      if call == "status" or call == "leases" then argument = nil end
      assert.equal("closed", code(client[call](client, argument, call == "put" and "" or nil)), call)
    end
    assert.equal("closed", code(client:call(RANGE, { key = "a" })))
    assert.equal("closed", code(client:stream(RANGE)))
  end)
end)

describe("a closed client #plain", function()
  network.in_virtual_time(set_world)

  it("ends its watches, which report that", function()
    local client, store = world:client(), world.server.store
    local watch, unread = client:watch("a"), client:watch("a", { start_revision = 1 })
    store:put("a", "1")
    keywatch.run(function()
      local reader = keywatch.spawn(function()
        while true do
          local event, err = watch:next()
          if not event then return err.code end
        end
      end)
      assert.equal("put a 2", events.text(unread:next()))
      client:close()
      assert.same({ true, "closed" }, { reader:join() })
    end)
    assert.equal("closed", code(unread:next(0)))
    assert.equal("closed", unread:error().code)
  end)

  it("ends streams of any method", function()
    local client = world:client()
    local stream = client:stream(KEEPALIVE)
    client:close()
    local message, err = stream:receive(1)
    assert.is_nil(message)
    assert.is_truthy(err)
  end)
end)

-- What every server gives --------------------------------------------------------------------------------------------

local function specs_of(kind, tag)
  describe(("a client of %s %s"):format(kind, tag), function()
    local peer, client

    setup(function() peer = server.start { kind = kind, is_in_memory = true } end)
    teardown(function() peer:stop() end)
    after_each(network.finish)

    before_each(function()
      client = connect(peer.url)
      assert(client:delete("", { prefix = true }))
    end)

    it("reports the server's status", function()
      local status = client:status()
      assert.matches("^3%.%d+%.%d+$", status.version)
      assert.equal(client:range("a").revision, status.revision)
      assert.equal(peer.url, status.endpoint)
      assert.is_true(status.db_size > 0)
      assert.equal(kind == "keywatch" and 2 ^ 31 or nil, status.quota)
      assert.equal(kind == "keywatch" and "3.5.0" or nil, status.storage_version)
      assert.is_nil(status.downgrade_to)
    end)

    it("takes values as large as the server does, and reports values that are too large", function()
      local value = ("0123456789abcdef"):rep(1.5 * MIB / 16 - 64)
      local put = assert(client:put("large", value))
      assert.is_true(client:get("large").value == value)
      assert(client:put("large too", value))
      assert.equal(2, #client:range("large", { prefix = true }).kvs)
      assert.equal("request_too_large", code(client:put("large", value .. ("x"):rep(4096))))
      assert.equal("resource_exhausted", code(client:put("large", ("x"):rep(3 * 2 ^ 20))))
      assert.equal(put.revision + 1, client:range("large").revision)
    end)

    -- Any method ------------------------------------------------------------------------------------------------------

    it("calls methods of known messages with tables", function()
      client:put("a", "1")
      local found = client:call(RANGE, { key = "a" })
      assert.same({ "a", "1", 1 }, { found.kvs[1].key, found.kvs[1].value, found.count })
      local members = client:call("/etcdserverpb.Cluster/MemberList", {})
      assert.equal(1, #members.members)
    end)

    it("calls any method with bytes", function()
      client:put("a", "1")
      local bytes = client:call(RANGE, core.encode("RangeRequest", { key = "a" }), { raw = true })
      assert.equal("1", core.decode("RangeResponse", bytes).kvs[1].value)
    end)

    it("reports errors by their codes, for every way to call", function()
      assert.equal("empty_key", code(client:call(RANGE, {})))
      assert.equal("empty_key", code(client:call(RANGE, "", { raw = true })))
      assert.equal("unimplemented", code(client:call("/nobody.Knows/This", "")))
      assert.equal("unimplemented", code(client:call("/etcdserverpb.KV/Nothing", "")))
      local stream = client:stream("/nobody.Knows/This")
      assert.equal("unimplemented", code(stream:receive()))
      assert.equal("unimplemented", code(stream:receive())) -- and again
    end)

    it("sends and receives messages by turns", function()
      local lease = client:lease(100)
      local stream = client:stream(KEEPALIVE)
      for _ = 1, 3 do
        assert.is_true(stream:send { ID = lease.id })
        local message = stream:receive()
        assert.same({ lease.id, 100 }, { message.ID, message.TTL })
      end
      assert.equal("timeout", code(stream:receive(0)))
      assert.equal("timeout", code(stream:receive(0.001)))
      stream:finish()
      assert.same({}, { stream:receive() })
      assert.same({}, { stream:receive() })
      assert.matches("over", tostring(stream))
      stream:close()
    end)

    it("receives any number of messages", function()
      client:put("a", ("x"):rep(200000))
      local stream = client:stream(SNAPSHOT)
      stream:send {}
      stream:finish()
      local total, rest = 0, nil
      for message in stream:messages() do
        total = total + #(message.blob or "")
        rest = message.remaining_bytes or 0
      end
      assert.is_true(total > 200000)
      assert.equal(0, rest)
    end)

    it("is not blocked by an unread stream, which loses nothing", function()
      for i = 1, 8 do client:put("k" .. i, ("x"):rep(MIB)) end
      local stream = client:stream(SNAPSHOT)
      stream:send {}
      stream:finish()
      local first = stream:receive()
      for i = 1, 20 do
        client:put("a", tostring(i))
        assert.equal(tostring(i), client:get("a").value)
      end
      local total, expected = #first.blob, #first.blob + first.remaining_bytes
      for message in stream:messages() do total = total + #(message.blob or "") end
      assert.is_true(total >= expected)
    end)

    it("may leave a stream before its end", function()
      client:put("k", ("x"):rep(MIB))
      local stream = client:stream(SNAPSHOT)
      stream:send {}
      stream:finish()
      assert.is_table(stream:receive())
      stream:close()
      stream:close()
      assert.same({}, { stream:receive() })
      assert.is_table(client:get("k"))
    end)

    it("ends a stream at its deadline", function()
      local stream = client:stream(WATCH, { timeout = ENOUGH })
      local message, err = stream:receive()
      assert.is_nil(message)
      assert.equal("deadline_exceeded", err.code)
    end)
  end)
end

specs_of("keywatch", "")
specs_of("etcd", "#once")

describe("a call of any method is refused", function()
  local client

  before_each(function() client = connect(NOBODY) end)
  after_each(network.finish)

  it("with a malformed path", function()
    for _, path in ipairs { 5, "", "Range", "/Range", "/a/b/c", "a/b" } do
      assert.matches("bad argument", misuse.raises(client.call, client, path, ""))
      assert.matches("bad argument", misuse.raises(client.stream, client, path))
    end
    assert.matches("client_spec", misuse.raises(function() client:call("Range") end))
  end)

  it("with malformed messages", function()
    for _, message in ipairs { 5, "bytes", true, { colour = 1 }, { key = 5 } } do
      misuse.raises(client.call, client, RANGE, message)
    end
    misuse.raises(client.call, client, RANGE, { key = "a" }, { raw = true })
    misuse.raises(client.call, client, "/nobody.Knows/This", {})
    misuse.raises(client.call, client, "/nobody.Knows/This")
  end)

  it("with unknown options", function()
    for _, opts in ipairs { 5, { colour = 1 }, { raw = 1 }, { timeout = "1" }, { metadata = "x" } } do
      misuse.raises(client.call, client, RANGE, {}, opts)
      misuse.raises(client.stream, client, RANGE, opts)
    end
  end)

  it("without a client", function()
    for _, name in ipairs { "call", "stream", "get", "watch", "status", "close", "lease", "each" } do
      assert.matches("colon", misuse.raises(client[name], {}))
    end
  end)
end)

-- Large answers ------------------------------------------------------------------------------------------------------

describe("an answer of many MiB #slow #plain", function()
  local client, store

  network.in_virtual_time(set_world)

  before_each(function()
    store, client = world.server.store, world:client()
    for i = 1, 63 do store:put(("k%02d"):format(i), ("x"):rep(MIB)) end
  end)

  it("arrives, up to 64 MiB", function()
    local found = assert(client:range("k", { prefix = true }))
    local total = 0
    for _, kv in ipairs(found.kvs) do total = total + #kv.value end
    assert.equal(63 * MIB, total)
  end)

  it("is refused beyond that limit, or the client's, without any other effect", function()
    store:put("k99", ("x"):rep(MIB + MIB / 4))
    assert.equal("answer_too_large", code(client:range("k", { prefix = true })))
    assert.equal(MIB, #client:get("k01").value)
    local small = connect(client:status().endpoint, { max_message = MIB })
    assert.equal("answer_too_large", code(small:get("k01")))
    assert.equal(64, small:range("k", { prefix = true, count_only = true }).count)
  end)
end)

-- Processes and garbage ----------------------------------------------------------------------------------------------

describe("a fork #slow", function()
  it("lets both processes use a client, which dials again in the child", function()
    local peer = server.start { kind = "keywatch", is_in_memory = true }
    local status, printed = program.run_forking(([[
      local used, unused = keywatch.connect(%q), keywatch.connect(%q)
      used:put("before", "")
      local w = used:watch("w", { prefix = true })
      local parent = core.pid()
      fork()
      if core.pid() ~= parent then
        used:put("w/child", "1")
        unused:put("w/child", "2")
        print("child", w:next().value, w:next().value)
        used:close()
        os.exit(0)
      end
      wait()
      print("parent", w:next().value, w:next().value)
      used:put("w/parent", "3")
      unused:put("w/parent", "4")
      print("parent", w:next().value, w:next().value)
      print(used:range("", { prefix = true }).count)
    ]]):format(peer.url, peer.url))
    peer:stop()
    assert.equal("child\t1\t2\nparent\t1\t2\nparent\t3\t4\n3\n", printed)
    assert.equal(0, status)
  end)

  it("lets both processes have a watch's unread initial kvs, and the client's state", function()
    local peer = server.start { kind = "keywatch", is_in_memory = true }
    local status, printed = program.run_forking(([[
      local who, told = "parent", {}
      local client = keywatch.connect(%q, { on_state = function(state) table.insert(told, state.state) end })
      for i = 1, 1500 do assert(client:put(("k%%04d"):format(i), "")) end
      local w = client:watch("k", { prefix = true, initial = true })
      for i = 1, 1000 do w:next() end
      assert(not pcall(w.initial)) -- asks for the second page
      client.transport:poll()
      local parent = core.pid()
      fork()
      if core.pid() ~= parent then who, told = "child", {} end
      if who == "parent" then wait() end
      local n, last = 1000, nil
      repeat
        last = w:next()
        if last.initial then n = n + 1 end
      until last.type == "synced"
      keywatch.sleep(0)
      print(who, n, client:state().state, table.concat(told, " "))
      client:close()
      os.exit(0)
    ]]):format(peer.url))
    peer:stop()
    local line = "%s\t1500\tconnected\tconnecting connected\n"
    assert.equal(line:format("child") .. line:format("parent"), printed)
    assert.equal(0, status)
  end)
end)

describe("collecting #plain", function()
  network.in_virtual_time(set_world)

  local function collect()
    if jit then jit.flush() end -- compiled code references objects
    collectgarbage()
    collectgarbage() -- objects that the first collection has finalized
  end

  local CREATED = { created = true, watch_id = 0 }

  it("a watch cancels it on the server, while others continue", function()
    local client, store = world:client(), world.server.store
    local kept = client:watch("a")
    local seen = setmetatable({}, { __mode = "k" })
    for _ = 1, 50 do seen[client:watch("a", { prefix = true })] = true end
    collect()
    assert.is_nil(next(seen))
    client:put("a", "")
    assert.equal("put a 2", events.text(kept:next()))
    assert.equal(2, store:status().revision)
  end)

  it("a watch notifies the server", function()
    local peer = imposter.start { [WATCH] = { "watch", { CREATED } } }
    local client = connect(peer.url)
    local function forget() assert(client:watch("a")) end
    forget()
    collect()
    peer:await("calls[1].messages[2] and calls[1].messages[2].cancel_request or calls[1].reset or "
      .. "calls[1].has_ended or connections[1].has_ended")
  end)

  it("a client closes its connection", function()
    local peer = imposter.start { [RANGE] = { "reply", { count = 7 } } }
    local function forget() assert.equal(7, keywatch.connect(peer.url):range("a").count) end
    forget()
    collect()
    peer:await_end()
  end)

  it("a client with its watches closes its connection", function()
    local peer = imposter.start { [WATCH] = { "watch", { CREATED } } }
    local seen = setmetatable({}, { __mode = "k" })
    local function forget()
      local client = keywatch.connect(peer.url)
      seen[client], seen[assert(client:watch("a"))] = true, true
    end
    forget()
    collect()
    peer:await("connections[1].has_ended", collect)
    assert.is_nil(next(seen))
  end)

  it("a client whose connection has ended has no effect", function()
    local function forget()
      assert(world:client():range("a"))
      world.server:stop()
      keywatch.sleep(1) -- no task waits for the client, which does not notice
    end
    forget()
    for _ = 1, 3 do
      collect()
      keywatch.sleep(1)
    end
  end)

  it("a stream cancels it", function()
    local peer = imposter.start { [KEEPALIVE] = { "silent" } }
    local client = connect(peer.url)
    local function forget()
      local stream = assert(client:stream(KEEPALIVE))
      peer:await("#calls == 1")
      assert.equal("timeout", code(stream:receive(0)))
    end
    forget()
    collect()
    peer:await("calls[1].reset or calls[1].has_ended")
  end)
end)
