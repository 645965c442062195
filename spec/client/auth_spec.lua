--- Clients with a user and a password: one Authenticate for all calls, a token with every call, and a new token when
-- the old one is refused. First with an imposter, then with a real etcd.

local keywatch = require "keywatch"
local testing = require "keywatch.testing"

local directory = require "spec.support.directory"
local etcdctl = require "spec.support.etcdctl"
local imposter = require "spec.support.imposter"
local network = require "spec.support.network"
local raw = require "spec.support.raw"
local server = require "spec.support.server"

local RANGE, PUT, WATCH = raw.RANGE, raw.PUT, raw.WATCH
local AUTHENTICATE = "/etcdserverpb.Auth/Authenticate"
local INVALID = "etcdserver: invalid auth token"
local PATIENT, SHORT = 120, 1 -- seconds

--- Behaviours: the n-th Authenticate gives the token "t" .. n, and all others take only those from `oldest` on, which
-- the spec may change.
local SERVING = {
  [AUTHENTICATE] = [[
    tokens = (tokens or 0) + 1
    stream:receive()
    if stream.request.token then return stream:status(16, "etcdserver: invalid auth token") end
    stream:message { token = "t" .. tokens }
    stream:status(0)
  ]],
  [RANGE] = [[
    stream:receive()
    local n = tonumber((stream.request.token or ""):match("^t(%d+)$"))
    if not n or n < (oldest or 1) then return stream:status(16, "etcdserver: invalid auth token") end
    stream:message { header = { revision = 5 }, kvs = { { key = "a", value = stream.request.token } } }
    stream:status(0)
  ]],
  [WATCH] = [[
    local header, id = { cluster_id = 1, member_id = 2, revision = 5, raft_term = 1 }, 0
    local n = tonumber((stream.request.token or ""):match("^t(%d+)$"))
    local kv = { key = "a", value = stream.request.token, create_revision = 2, mod_revision = 6, version = 2 }
    for request in stream.receive, stream do
      if request.create_request and n and n >= (oldest or 1) then
        stream:message { header = header, watch_id = id, created = true }
        stream:message { header = header, watch_id = id, events = { { kv = kv } } }
        id = id + 1
      elseif request.create_request then
        stream:message { header = header, watch_id = -1, created = true, canceled = true,
          cancel_reason = "rpc error: code = Unauthenticated desc = etcdserver: invalid auth token" }
      end
    end
  ]],
}

describe("a client with a user", function()
  local function connect(urls, opts)
    opts = opts or {}
    opts.user, opts.password, opts.timeout = opts.user or "root", opts.password or "secret", opts.timeout or PATIENT
    return network.connect(urls, opts)
  end

  local function expect_error(code, message, value, err)
    assert.is_nil(value)
    assert.same({ code, message }, { err.code, err.message })
  end

  --- Runs functions concurrently. Returns the first result of each, or raises an error.
  local function together(fns)
    local results = {}
    keywatch.run(function()
      local tasks = {}
      for i, fn in ipairs(fns) do tasks[i] = keywatch.spawn(function() return assert(fn()) end) end
      for i, task in ipairs(tasks) do
        local ok, value = task:join()
        assert(ok, value)
        results[i] = value
      end
    end)
    return results
  end

  local function times(n, fn)
    local list = {}
    for i = 1, n do list[i] = fn end
    return list
  end

  describe("of a scripted server #plain", function() -- there is no TLS in virtual time
    local peer

    network.in_virtual_time()
    before_each(function() peer = imposter.start(SERVING) end)

    it("authenticates once for all concurrent requests, and sends the token with each request", function()
      local client = connect(peer.url)
      local fns = times(20, function() return client:get("a") end)
      table.insert(fns, function() return client:watch("a") end)
      local found = together(fns)
      for i = 1, 20 do assert.equal("t1", found[i].value) end
      assert.equal("t1", found[21]:next(PATIENT).value)
      assert.equal(1, #peer:calls_of(AUTHENTICATE))
      assert.same({ name = "root", password = "secret" }, peer.calls[1].messages[1])
      client:call("/spec.Some/Call", "")
      assert.equal("t1", peer.calls[#peer.calls].headers.token)
      local stream = assert(client:stream("/spec.Some/Stream", { metadata = { own = "x" } }))
      stream:receive(PATIENT)
      assert.same({ "t1", "x" }, { peer.calls[#peer.calls].headers.token, peer.calls[#peer.calls].headers.own })
    end)

    it("renews an expired token once for all requests, and repeats them", function()
      local client = connect(peer.url)
      assert(client:get("a"))
      peer.env.oldest = 2
      local found = together(times(20, function() return client:get("a") end))
      for i = 1, 20 do assert.equal("t2", found[i].value) end
      assert.equal(2, #peer:calls_of(AUTHENTICATE))
      assert.equal(1, #peer.connections)
    end)

    it("repeats a write that was refused for its token", function()
      peer:behave { [PUT] = { "in_turn", { "status", 16, INVALID }, { "reply", {} } } }
      local client = connect(peer.url)
      assert(client:put("a", "b"))
      assert.equal(2, #peer:calls_of(AUTHENTICATE))
      for _, words in ipairs { "etcdserver: user name is empty", "etcdserver: revision of auth store is old" } do
        peer:behave { [PUT] = { "in_turn", { "status", 3, words }, { "reply", {} } } }
        assert(client:put("a", "b"))
      end
      assert.equal(4, #peer:calls_of(AUTHENTICATE))
    end)

    it("renews the token for watches, which continue", function()
      local client = connect(peer.url)
      assert(client:get("a"))
      peer.env.oldest = 2
      local found = together(times(10, function() return client:watch("a") end))
      for i = 1, 10 do assert.equal("t2", found[i]:next(PATIENT).value) end
      assert.equal(2, #peer:calls_of(AUTHENTICATE))

      peer:behave { [WATCH] = { "in_turn", { "status", 16, INVALID }, SERVING[WATCH] } }
      client = connect(peer.url)
      assert.equal("t4", assert(client:watch("a")):next(PATIENT).value)
      assert.equal(4, #peer:calls_of(AUTHENTICATE))
    end)

    it("does not renew a token without end", function()
      local client = connect(peer.url)
      peer:behave { ["*"] = { "status", 16, INVALID }, [RANGE] = { "status", 16, INVALID },
        [WATCH] = { "status", 16, INVALID } }
      expect_error("unauthenticated", INVALID, client:get("a"))
      assert.equal(2, #peer:calls_of(AUTHENTICATE))
      expect_error("unauthenticated", INVALID, client:watch("a"))
      assert.equal(3, #peer:calls_of(AUTHENTICATE))
      peer.env.oldest = 100
      peer:behave { [WATCH] = SERVING[WATCH] }
      expect_error("unauthenticated", INVALID, connect(peer.url):watch("a"))
    end)

    it("reports a wrong password, and authenticates again at the next request", function()
      local words = "etcdserver: authentication failed, invalid user ID or password"
      peer:behave { [AUTHENTICATE] = { "status", 3, words } }
      local client = connect(peer.url)
      expect_error("invalid_argument", words, client:get("a"))
      expect_error("invalid_argument", words, client:put("a", "b"))
      expect_error("invalid_argument", words, client:watch("a"))
      expect_error("invalid_argument", words, client:watch("a", { initial = true }))
      expect_error("invalid_argument", words, client:stream("/spec.Some/Stream"))
      peer:behave(SERVING)
      assert.equal("t1", client:get("a").value)
      assert.equal("t1", assert(client:watch("a")):next(PATIENT).value)
    end)

    it("authenticates again after a refusal that no request has waited for", function()
      peer:behave { [AUTHENTICATE] = "stream:receive() stream:wait('go') stream:status(3, 'spec: no')" }
      peer:slow(0)
      local client = connect(peer.url)
      keywatch.run(function()
        local task = keywatch.spawn(function() return client:get("a") end)
        peer:await("#calls == 1")
        peer:behave(SERVING)
        peer:signal("go")
        task:cancel()
        for _ = 1, 100 do client:state() end -- takes the received bytes
        assert.is_table(client.transport.refusal)
        assert.is_false((task:join()))
        assert.equal("t1", assert(client:get("a")).value)
      end)
    end)

    it("fails watches that cannot be reopened, since the password was changed", function()
      local words = "etcdserver: authentication failed, invalid user ID or password"
      local one = assert(connect(peer.url):watch("a"))
      assert.equal("t1", one:next(PATIENT).value)
      peer:behave { [AUTHENTICATE] = { "status", 3, words } }
      peer.conns[1]:close()
      expect_error("invalid_argument", words, one:next(PATIENT))
    end)

    it("keeps a watch that a finalizer reads, and that has room again thereby, while others fail", function()
      local calls = require("keywatch.client.watch_calls").new {}
      local full, failed = { core = {} }, nil
      local function fail(_, code) failed = code end
      local idle = { core = { fail = fail }, arrival = { set = function() calls.idle[full] = true end } }
      calls.idle[idle] = true
      calls:fail_idle { code = "invalid_argument", message = "spec: no" }
      assert.same({ "invalid_argument", true, nil }, { failed, calls.idle[full], calls.idle[idle] })
    end)

    it("continues without a token if authentication is disabled", function()
      peer:behave { [AUTHENTICATE] = { "status", 9, "etcdserver: authentication is not enabled" },
        [RANGE] = { "reply", { kvs = { { key = "a", value = "v" } } } } }
      local client = connect(peer.url)
      assert.equal("v", client:get("a").value)
      assert.is_nil(peer.calls[#peer.calls].headers.token)
      peer:behave(SERVING) -- which it is, from now on
      assert.equal("t1", client:get("a").value)
    end)

    it("reports errors of Authenticate itself", function()
      local client = connect(peer.url)
      peer:behave { [AUTHENTICATE] = { "reply", "\255" } }
      expect_error("malformed", "keywatch: the server's answer is malformed", client:get("a"))
      peer:behave { [AUTHENTICATE] = { "messages", {} } }
      expect_error("malformed", "keywatch: the server's answer is malformed", client:get("a"))
      peer:behave { [AUTHENTICATE] = { "status", 12, "unknown service" } }
      expect_error("unimplemented", "unknown service", client:get("a"))
      peer:behave { [AUTHENTICATE] = { "status", 14, "etcdserver: no leader" } }
      local words = ("keywatch: %s: etcdserver: no leader"):format(peer.url)
      expect_error("unavailable", words, client:get("a", { timeout = SHORT }))
      peer:behave(SERVING)
      assert.truthy(client:get("a"))
    end)

    it("uses another endpoint if Authenticate is not answered, or refused temporarily", function()
      for _, said in ipairs { { "silent" }, { "status", 14, "etcdserver: no leader" }, { "reset", "refused_stream" },
        { "close" } } do
        local bad = imposter.start { [AUTHENTICATE] = said }
        local client = connect({ bad.url, peer.url }, { timeout = SHORT })
        assert.truthy(client:get("a", { timeout = PATIENT }).value)
        assert.equal(1, #bad.calls)
      end
    end)
  end)

  describe("whose Authenticate fails temporarily #plain", function() -- there is no TLS in virtual time
    local FAILURES = {
      { 8, "etcdserver: too many requests" },
      { 4, "context deadline exceeded" },
      { 2, "context canceled" },
      { 1, "" },
      { 10, "aborted" },
      { 13, "stream terminated by RST_STREAM" },
    }

    --- Runs fn(world, client, refuse) in a world. After refuse(failures) each call of Authenticate fails with one of
    -- them, and the calls behind them succeed.
    local function run(fn)
      testing.run(function(world)
        local coming = {}
        world.server.server:mount("etcdserverpb.Auth", {
          Authenticate = {
            request = "AuthenticateRequest",
            response = "AuthenticateResponse",
            handler = function()
              local failure = table.remove(coming, 1)
              if failure then return nil, { grpc_status = failure[1], message = failure[2] } end
              return { token = "t" }
            end,
          },
        })
        local client = world:client { user = "root", password = "secret" }
        fn(world, client, function(failures)
          for i, failure in ipairs(failures) do coming[i] = failure end
          world:cut(client)
        end, coming)
      end)
    end

    it("authenticates again: calls, watches, caches and leases continue", function()
      run(function(_, client, refuse, coming)
        refuse(FAILURES)
        assert(client:put("a", "1"))
        assert.same({}, coming)
        local watch, cache = assert(client:watch("a")), client:cache("a")
        local session = assert(client:session { ttl = 30 })
        local lock = assert(session:lock("l"))
        local initial = assert(client:watch("a", { initial = true }))
        assert(cache:wait_ready(5))
        refuse(FAILURES)
        keywatch.sleep(25)
        assert.same({}, coming)
        assert(client:put("a", "2"))
        assert.equal("2", assert(watch:next(5)).value)
        assert.same({ "1", "synced", "2" }, { initial:next(5).value, initial:next(5).type, initial:next(5).value })
        assert.equal("2", assert(cache:get("a", { consistent = true })).value)
        assert.same({ nil, nil }, { session:error(), lock:error() })
        session:close()
      end)
    end)

    it("fails permanently if the user has no password", function()
      run(function(_, client, refuse)
        local words = "auth: authentication failed, password was given for no password user"
        refuse { { 2, words } }
        expect_error("unknown", words, client:put("a", "1"))
      end)
    end)
  end)

  describe("of etcd #once", function()
    local peer, ctl, path

    local function start(options)
      peer = server.start { kind = "etcd", path = path, port = options and options.port,
        "--auth-token", "simple", "--auth-token-ttl", "1", "--bcrypt-cost", "4" }
      ctl = etcdctl.new(peer)
    end

    local function stop()
      if peer then peer:stop() end
      peer = nil
    end

    before_each(function()
      network.begin()
      path = directory.new()
      start()
      ctl:must { "user", "add", "root:secret" }
      ctl:must { "user", "grant-role", "root", "root" }
      ctl:must { "user", "add", "guest:guest" }
      ctl:must { "role", "add", "reader" }
      ctl:must { "role", "grant-permission", "reader", "read", "open/", "--prefix=true" }
      ctl:must { "user", "grant-role", "guest", "reader" }
      ctl:must { "auth", "enable" }
    end)

    after_each(function()
      network.finish()
      stop()
      if path then directory.remove(path) end
    end)

    it("gets, puts and watches", function()
      local client = connect(peer.url)
      local one = assert(client:watch("open/", { prefix = true }))
      assert(client:put("open/a", "1"))
      assert.equal("1", client:get("open/a").value)
      assert.equal("1", one:next(PATIENT).value)
      assert.truthy(client:txn { success = { { get = "open/a" } } }.succeeded)
      assert.truthy(assert(client:lease(10)):revoke())
      one:close()
    end)

    it("gets an error for requests without permission", function()
      assert(connect(peer.url):put("open/a", "1"))
      local client = connect(peer.url, { user = "guest", password = "guest" })
      local denied = "etcdserver: permission denied"
      assert.equal("1", client:get("open/a").value)
      assert(client:watch("open/", { prefix = true, initial = true })):close()
      expect_error("permission_denied", denied, client:put("open/a", "2"))
      expect_error("permission_denied", denied, client:get("a"))
      expect_error("permission_denied", denied, client:watch("a"))
      expect_error("permission_denied", denied, client:watch("a", { initial = true }))
      local words = "etcdserver: authentication failed, invalid user ID or password"
      expect_error("invalid_argument", words, connect(peer.url, { user = "guest", password = "no" }):get("a"))
      expect_error("invalid_argument", words, connect(peer.url, { user = "nobody", password = "no" }):watch("a"))
      expect_error("invalid_argument", "etcdserver: user name is empty", keywatch.connect(peer.url):get("a"))
    end)

    --- Waits until etcd has forgotten a token, which lives a second longer whenever it is used.
    local function expire(token)
      local other = network.connect(peer.url)
      local value
      repeat
        keywatch.sleep(1.5)
        value = other:call(RANGE, { key = "open/a" }, { metadata = { token = token } })
      until not value
    end

    it("continues after its token has expired", function()
      local client = connect(peer.url)
      assert(client:put("open/a", "1"))
      local token = client.transport.connection.metadata.token
      expire(token)
      assert(client:put("open/a", "2"))
      assert.not_equal(token, client.transport.connection.metadata.token)
      token = client.transport.connection.metadata.token
      expire(token)
      local one = assert(client:watch("open/a"))
      assert.not_equal(token, client.transport.connection.metadata.token)
      assert(client:put("open/a", "3"))
      assert.equal("3", one:next(PATIENT).value)
    end)

    it("continues after a restart, which forgets all tokens", function()
      local client = connect(peer.url)
      local one = assert(client:watch("open/", { prefix = true }))
      assert(client:put("open/a", "1"))
      assert.equal("1", one:next(PATIENT).value)
      local port = peer.port
      stop()
      start { port = port }
      assert(client:put("open/a", "2"))
      assert.equal("2", one:next(PATIENT).value)
    end)
  end)
end)
