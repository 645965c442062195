--- TLS with other people's programs: Go's, in etcd and etcdctl, and OpenSSL's own.

local core = require "keywatch.core"

local certificates = require "spec.support.certificates"
local directory = require "spec.support.directory"
local luv = require "spec.support.luv"
local pair = require "spec.support.tls_pair"
local process = require "spec.support.process"
local tls_socket = require "spec.support.tls_socket"

local NOW = 1000

local function path(name) return certificates.directory() .. "/" .. name end

describe("a server with TLS", function()
  local store, server, listener

  before_each(function()
    store = core.open { now = 0 }
    server = assert(core.serve(store, {}))
  end)

  after_each(function()
    process.end_all()
    if listener then listener.close() end
    server:close()
    store:close()
  end)

  local function run_etcdctl(timeout, ...)
    local argv = { "etcdctl", "--endpoints", "https://127.0.0.1:" .. listener.port, "--command-timeout", timeout, ... }
    return process.run(argv, nil, { env = { ETCDCTL_API = "3" } })
  end

  local function etcdctl(...) return run_etcdctl("60s", ...) end

  --- Expects that it fails: it goes on to try to connect for as long as it may. Returns why the first try failed.
  local function expect_failure(...)
    local before = #listener.connections
    assert.not_equal(0, run_etcdctl("1s", ...).status)
    return (listener.connections[before + 1].channel:error())
  end

  local function last_failure()
    local connections = listener.connections
    return (connections[#connections].channel:error())
  end

  for _, version in ipairs { "TLS1.2", "TLS1.3" } do
    it("serves etcdctl in " .. version, function()
      listener = tls_socket.listen(pair.server("server", { max_version = version }), server)
      assert.equal("OK\n", etcdctl("--cacert", path "ca.pem", "put", "a", ("x"):rep(100000)):stdout())
      assert.equal(100000, #store:get("a").value)
      assert.equal("a\n" .. ("x"):rep(100000) .. "\n", etcdctl("--cacert", path "ca.pem", "get", "a"):stdout())
    end)
  end

  it("knows etcdctl by its certificate", function()
    listener = tls_socket.listen(pair.server("server", { ca = path "ca.pem" }), server)
    local done = etcdctl("--cacert", path "ca.pem", "--cert", path "alice.pem", "--key", path "alice.key",
      "put", "a", "b")
    assert.equal("OK\n", done:stdout())
    assert.equal("alice", listener.connections[1].channel:info().common_name)
  end)

  it("refuses etcdctl without a certificate, or with one of another authority", function()
    listener = tls_socket.listen(pair.server("server", { ca = path "ca.pem" }), server)
    assert.matches("sent no certificate", expect_failure("--cacert", path "ca.pem", "put", "a", "b"))
    assert.matches("not trusted", expect_failure("--cacert", path "ca.pem", "--cert", path "mallory.pem", "--key",
      path "mallory.key", "put", "a", "b"))
    assert.is_nil(store:get("a"))
  end)

  it("is refused by etcdctl that does not trust it, and knows why", function()
    listener = tls_socket.listen(pair.server(), server)
    assert.matches("^the client has refused the connection: our certificate",
      expect_failure("--cacert", path "stranger.pem", "put", "a", "b"))
  end)

  it("names etcdctl that speaks no TLS", function()
    listener = tls_socket.listen(pair.server(), server)
    process.run({ "etcdctl", "--endpoints", "http://127.0.0.1:" .. listener.port, "--dial-timeout", "1s",
      "--command-timeout", "1s", "get", "a" }, nil, { env = { ETCDCTL_API = "3" } })
    assert.equal("the client speaks plain HTTP/2, and not TLS", (listener.connections[1].channel:error()))
  end)

  --- Has openssl connect. Returns what it printed.
  local function s_client(...)
    local argv = { "openssl", "s_client", "-connect", "127.0.0.1:" .. listener.port, "-CAfile", path "ca.pem", ... }
    local done = process.run(argv, "")
    return done:stdout() .. done:stderr()
  end

  it("refuses old versions, and those who do not offer h2", function()
    listener = tls_socket.listen(pair.server(), server)
    assert.matches("alert", s_client("-tls1_1", "-cipher", "ALL:@SECLEVEL=0", "-alpn", "h2"))
    assert.matches("no version of TLS in common", last_failure())
    assert.matches("alert number 120", s_client())
    assert.matches("does not offer HTTP/2", last_failure())
    assert.matches("ALPN protocol: h2", s_client("-alpn", "http/1.1,h2"))
  end)

  it("renegotiates with nobody", function()
    listener = tls_socket.listen(pair.server(), server)
    local client = process.start { "openssl", "s_client", "-connect", "127.0.0.1:" .. listener.port, "-tls1_2", "-alpn",
      "h2" }
    client:expect("Extended master secret")
    client:write("R\n")
    client:expect_error("no renegotiation")
    client:wait()
    assert.equal(1, #listener.connections)
  end)
end)

describe("a client with TLS", function()
  local port, etcd

  local function free_port()
    local handle = luv.new_tcp()
    handle:bind("127.0.0.1", 0)
    local free = handle:getsockname().port
    handle:close()
    luv.run("nowait")
    return free
  end

  setup(function()
    port = free_port()
    local url, peer = "https://127.0.0.1:" .. port, "http://127.0.0.1:" .. free_port()
    etcd = process.start({ "etcd", "--data-dir", directory.new(), "--listen-client-urls", url,
      "--advertise-client-urls", url, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
      "--initial-cluster", "default=" .. peer, "--cert-file", path "server.pem", "--key-file", path "server.key",
      "--client-cert-auth", "--trusted-ca-file", path "ca.pem" }, {
      is_lasting = true,
      env = { ETCD_UNSUPPORTED_ARCH = luv.os_uname().machine == "aarch64" and "arm64" or nil },
    })
    etcd:expect_error("ready to serve client requests")
  end)

  teardown(function()
    if etcd then
      etcd:signal("sigkill")
      etcd:wait()
    end
    directory.remove_all()
  end)

  local function open(options, host)
    local client = core.client("spec", nil, NOW)
    return client, tls_socket.connect(pair.client(options), client, host or "127.0.0.1", port)
  end

  local function with(name) return { cert = path(name .. ".pem"), key = path(name .. ".key") } end

  for _, version in ipairs { "TLS1.2", "TLS1.3" } do
    it("puts into etcd in " .. version, function()
      local options = with "alice"
      options.max_version = version
      local client, connection = open(options)
      local number = client:call("/etcdserverpb.KV/Put")
      client:send(number, core.encode("PutRequest", { key = "a", value = ("x"):rep(100000) }))
      client:half_close(number)
      local answer
      assert.truthy(process.turn_until(function()
        answer = answer or client:receive(number)
        return answer or connection.channel:state().is_done
      end))
      assert.is_nil((connection.channel:error()))
      assert.is_true(core.decode("PutResponse", answer).header.revision > 1)
      connection:close()
    end)
  end

  local function expect_failure(words, options, host)
    local _, connection = open(options, host)
    process.turn_until(function() return connection.channel:state().is_done end)
    assert.matches(words, (connection.channel:error()))
    connection:close()
  end

  it("is told by etcd why it is refused", function()
    expect_failure("^the server has refused the connection: .*certificate", nil)
    expect_failure("^the server has refused the connection: our certificate", with "mallory")
    expect_failure("^the server has refused the connection: our certificate", with "late")
  end)

  it("refuses etcd under another name", function()
    expect_failure("server 'elsewhere%.test' is for another name", with "alice", "elsewhere.test")
  end)
end)
