--- The program `keywatch serve` with TLS: its flags, in the command line, variables and the file; its files and output.

local keywatch = require "keywatch"

local certificates = require "spec.support.certificates"
local command = require "spec.support.command"
local directory = require "spec.support.directory"
local files = require "spec.support.files"
local process = require "spec.support.process"
local shell = require "spec.support.shell"
local trial = require "spec.support.tls_trial"

local HTTPS, HTTP = "https://localhost:0", "http://127.0.0.1:0"
local SUITE = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"

describe("keywatch serve with TLS", function()
  local ca, cert, key

  before_each(function()
    ca = certificates.paths("ca")
    cert, key = certificates.paths("server")
  end)
  command.with_tests()

  --- Starts a server. Returns its process, its URLs, and the directory that it runs in.
  local function start_in(variables, ...)
    local server, cwd = command.start_in(variables, "serve", ...)
    return server, command.wait_until_ready(server), cwd
  end

  local function start(...) return start_in({}, ...) end

  local stop = command.stop

  --- Makes a new connection. Returns true, or the text of the failure.
  local function try(url, options) return trial.try(url, options or { ca = ca }) end

  local function write(text) return files.write(directory.new() .. "/file", text) end

  local function expect_failure(status, variables, pattern, ...)
    command.expect_failure(status, variables, pattern, "serve", ...)
  end

  it("serves with a given certificate, beside a plain URL", function()
    local server, urls = start("--memory", "--listen-client-urls", HTTPS .. "," .. HTTP, "--cert-file", cert,
      "--key-file", key, "--cipher-suites", SUITE .. ",TLS_AES_128_GCM_SHA256", "--tls-min-version", "TLS1.2",
      "--tls-max-version=", "--listen-metrics-urls", HTTPS)
    assert.matches("^https://127%.0%.0%.1:%d+$", urls[1])
    assert.matches("^http://127%.0%.0%.1:%d+$", urls[2])
    for _, url in ipairs(urls) do
      local client = assert(keywatch.connect(url, { tls = { ca = ca } }))
      assert(client:put("a", "1"))
      client:close()
    end
    assert.is_true(try(urls[1], { ca = ca, max_version = "TLS1.2" }))
    local port = server:stderr():match("metrics and health are on https://127%.0%.0%.1:(%d+)\n")
    local asked = process.run { "curl", "-sS", "--http1.1", "--cacert", ca, "https://localhost:" .. port .. "/health" }
    assert.equal('{"health":"true","reason":""}', asked:stdout())
    local text = stop(server)
    assert.matches(" info TLS: certificate of CN=server for localhost, [^\n]*, valid until 2040%-01%-01 00:00:00 UTC\n",
      text)
    assert.matches(" warn http://127%.0%.0%.1:0 is served without TLS; without effect there: %-%-cert%-file, "
      .. "%-%-key%-file\n", text)
  end)

  it("requires certificates of clients", function()
    local own, own_key = certificates.paths("alice")
    local crl = certificates.paths("crl")
    local server, urls = start("--memory", "--listen-client-urls", HTTPS, "--cert-file", cert, "--key-file", key,
      "--client-cert-auth", "--trusted-ca-file", ca, "--client-crl-file", crl, "--client-cert-allowed-hostname",
      "alice.test,bob.test")
    assert.is_true(try(urls[1], { ca = ca, cert = own, key = own_key }))
    own, own_key = certificates.paths("bob")
    assert.matches("our certificate was revoked", try(urls[1], { ca = ca, cert = own, key = own_key }))
    local text = stop(server)
    assert.matches("; clients need a certificate\n", text)
    assert.matches(" warn connection from 127%.0%.0%.1:%d+ rejected: the certificate of the client was revoked", text)
  end)

  it("creates a certificate below its data directory, and keeps it", function()
    local path = directory.new() .. "/data"
    local before
    for i = 1, 2 do
      local server, urls = start("--listen-client-urls", HTTPS, "--auto-tls", "--data-dir", path,
        "--self-signed-cert-validity", "5")
      local own = path .. "/fixtures/client"
      assert.is_true(try(urls[1], { ca = own .. "/cert.pem" }))
      assert.equal("700 700 600", shell.must(("stat -c %%a %s/fixtures %s %s/key.pem | xargs"):format(path, own, own)))
      local text = shell.must("openssl x509 -enddate -serial -noout -in " .. own .. "/cert.pem")
      assert.equal(os.date("!%Y") + 5, tonumber(text:match("(%d%d%d%d) GMT")))
      assert.equal(i > 1, text == before)
      before = text
      assert.equal(i == 1, stop(server):find(" info TLS: made a certificate in ", 1, true) ~= nil)
    end
  end)

  it("creates a certificate in memory, if its data is in memory", function()
    local server, urls, cwd = start("--listen-client-urls", HTTPS, "--auto-tls", "--memory")
    assert.is_true(try(urls[1], { verify = false }))
    stop(server)
    assert.same({}, directory.list(cwd))
  end)

  it("takes flags from the environment", function()
    local server, urls = start_in({ ETCD_LISTEN_CLIENT_URLS = HTTPS, ETCD_CERT_FILE = cert, ETCD_KEY_FILE = key,
      ETCD_CLIENT_CERT_AUTH = "true", ETCD_TRUSTED_CA_FILE = ca, ETCD_TLS_MIN_VERSION = "TLS1.3" }, "--memory")
    local own, own_key = certificates.paths("alice")
    assert.is_true(try(urls[1], { ca = ca, cert = own, key = own_key }))
    assert.not_matches(" warn ", stop(server))
    expect_failure(2, { ETCD_TLS_MIN_VERSION = "TLS1.0" }, "ETCD_TLS_MIN_VERSION must be TLS1.2 or TLS1.3, not 'TLS1.0")
  end)

  it("takes flags from a file, nested in a map or not", function()
    local own, own_key = certificates.paths("alice")
    for _, text in ipairs {
      ([[
memory: true
listen-client-urls: %s
client-transport-security:
  cert-file: %s
  key-file: %s
  client-cert-auth: true
  trusted-ca-file: %s
  auto-tls: false
  allowed-hostname: [alice.test, carol.test]
  crl-file:
peer-transport-security:
  allowed-cn:
cipher-suites: [%s, TLS_AES_128_GCM_SHA256]
tls-min-version: 'TLS1.2'
tls-max-version: 'TLS1.3'
self-signed-cert-validity: 1
]]):format(HTTPS, cert, key, ca, SUITE),
      ("{ memory: true, listen-client-urls: '%s', cert-file: %s, key-file: %s, trusted-ca-file: %s, "
        .. "client-cert-allowed-hostname: alice.test }"):format(HTTPS, cert, key, ca),
    } do
      local server, urls = start("--config-file", write(text))
      assert.is_true(try(urls[1], { ca = ca, cert = own, key = own_key }))
      local other, other_key = certificates.paths("bob")
      assert.matches("refused the connection", try(urls[1], { ca = ca, cert = other, key = other_key }))
      assert.matches("^[^\n]* info TLS: [^\n]*\n[^\n]* info ready [^\n]*\n[^\n]* warn connection from [^\n]* is for "
        .. "another name: it is for bob%.test", stop(server))
    end
  end)

  it("warns of flags that have no effect", function()
    local text = stop(start("--memory", "--listen-client-urls", HTTP, "--cert-file", "/a", "--key-file", "/b",
      "--cipher-suites", "A,B"))
    assert.matches(" warn http://127%.0%.0%.1:0 is served without TLS; without effect there: %-%-cert%-file, "
      .. "%-%-key%-file, %-%-cipher%-suites\n", text)
    assert.not_matches(" info TLS: ", text)
    text = stop(start("--memory", "--listen-client-urls", HTTPS, "--cert-file", cert, "--key-file", key, "--auto-tls",
      "--peer-auto-tls", "--client-cert-file", "c"))
    assert.matches(" warn without effect: %-%-auto%-tls %(overridden by %-%-cert%-file%)\n", text)
    assert.matches(" warn without effect: %-%-client%-cert%-file, %-%-peer%-auto%-tls\n", text)
  end)

  it("refuses invalid flags", function()
    local function expect_misuse(pattern, ...) expect_failure(2, {}, "^keywatch serve: " .. pattern, ...) end
    expect_misuse("%-%-listen%-metrics%-urls: https://localhost:0 needs %-%-cert%-file and %-%-key%-file, or ",
      "--listen-metrics-urls", "https://localhost:0")
    expect_misuse("%-%-listen%-client%-urls: https://localhost:0 needs %-%-cert%-file and %-%-key%-file, or ",
      "--listen-client-urls", HTTP .. "," .. HTTPS)
    expect_misuse("%-%-cert%-file needs %-%-key%-file", "--cert-file", cert)
    expect_misuse("%-%-key%-file needs %-%-cert%-file", "--key-file", key)
    expect_misuse("%-%-cert%-file must not be empty", "--cert-file=", "--key-file", key)
    expect_misuse("%-%-tls%-max%-version must be TLS1.2 or TLS1.3, not '1.2'", "--tls-max-version", "1.2")
    expect_misuse("%-%-tls%-min%-version is above %-%-tls%-max%-version", "--tls-min-version=TLS1.3",
      "--tls-max-version=TLS1.2")
    expect_misuse("%-%-self%-signed%-cert%-validity must be from 1 to 1000, not 0", "--self-signed-cert-validity", "0")
    expect_misuse("%-%-self%-signed%-cert%-validity must be a whole number", "--self-signed-cert-validity", "1y")
    expect_misuse("%-%-client%-crl%-file needs %-%-trusted%-ca%-file or ", "--client-crl-file", "c")
    expect_misuse("%-%-client%-cert%-allowed%-hostname needs ", "--client-cert-allowed-hostname", "c")
    expect_misuse("%-%-cipher%-suites: there is no cipher suite 'WORDS'", "--listen-client-urls", HTTPS, "--auto-tls",
      "--cipher-suites", "WORDS")
    expect_misuse("%-%-cipher%-suites: TLS 1.2 cipher suites have no effect", "--listen-client-urls", HTTPS,
      "--auto-tls", "--cipher-suites", SUITE, "--tls-min-version", "TLS1.3")
  end)

  it("reports unusable files, and ends", function()
    local function expect(pattern, ...)
      expect_failure(1, {}, "^keywatch: " .. pattern, "--memory", "--listen-client-urls", HTTPS, ...)
    end
    expect("the file '/no/such' of the flag %-%-cert%-file cannot be read: No such file", "--cert-file", "/no/such",
      "--key-file", key)
    expect("the file '[^']+' of the flag %-%-key%-file has a key that does not fit", "--cert-file", cert, "--key-file",
      (select(2, certificates.paths("again"))))
    expect("the file '/no/such' of the flag %-%-trusted%-ca%-file cannot be read", "--cert-file", cert,
      "--key-file", key, "--trusted-ca-file", "/no/such")
    expect("the file '/no/such' of the flag %-%-client%-crl%-file cannot be read", "--cert-file", cert,
      "--key-file", key, "--trusted-ca-file", ca, "--client-crl-file", "/no/such")
  end)

  it("names the rock that it needs", function()
    local scratch = directory.new()
    shell.must(("mkdir %s/keywatch; echo \"error('module \\'keywatch.tls\\' not found:', 0)\" >%s/keywatch/tls.lua")
      :format(scratch, scratch))
    expect_failure(2, { LUA_PATH = scratch .. "/?.lua;" .. package.path }, "^keywatch serve: %-%-listen%-client%-urls: "
      .. "https://localhost:0: keywatch needs another rock for TLS: luarocks install keywatch%-tls", "--auto-tls",
      "--listen-client-urls", HTTPS)
  end)

  describe("with clients of other projects #once", function()
    local server, urls

    local function run(...)
      local done = process.run({ ... }, "", { env = { ETCDCTL_API = "3" } })
      return done.status, done:stdout() .. done:stderr()
    end

    --- Runs a program that comes to nothing, and expects one line about that.
    local function expect_rejected(words, ...)
      local before = select(2, server:stderr():gsub("rejected", ""))
      assert.not_equal(0, (run(...)))
      server:expect_error(" warn connection from 127%.0%.0%.1:%d+ rejected: " .. words .. "[^\n]*\n")
      assert.equal(before + 1, (select(2, server:stderr():gsub("rejected", ""))))
    end

    before_each(function()
      server, urls = start("--memory", "--listen-client-urls", HTTPS .. "," .. HTTP, "--cert-file", cert, "--key-file",
        key, "--trusted-ca-file", ca)
    end)

    it("serves them, or reports why it cannot", function()
      local own, own_key = certificates.paths("alice")
      local status, text = run("etcdctl", "--endpoints", urls[1], "--cacert", ca, "--cert", own, "--key", own_key,
        "put", "a", "b")
      assert.equal(0, status, text)
      status, text = run("curl", "-sS", "--cacert", ca, "--cert", own, "--key", own_key, "--max-time", "20", "-X",
        "POST", "-H", "content-type: application/grpc", "-D", "-", "--data-binary", "@/dev/null",
        urls[1] .. "/grpc.health.v1.Health/Check")
      assert.equal(0, status, text)
      assert.matches("^HTTP/2 200", text)
      status, text = run("openssl", "s_client", "-connect", urls[1]:match("//(.*)"), "-alpn", "h2", "-CAfile", ca,
        "-cert", own, "-key", own_key, "-verify_return_error", "-servername", "localhost")
      assert.equal(0, status, text)
      assert.matches("ALPN protocol: h2", text)
      for _, how in ipairs { "--http1.1", "--no-alpn", "--http2" } do
        status, text = run("curl", "-sS", how, "--cacert", ca, "--cert", own, "--key", own_key, urls[1] .. "/health")
        assert.equal(0, status, text)
        assert.equal('{"health":"true","reason":""}', text)
      end
      local address, plain = urls[1]:match("//(.*)"), urls[2]:match("//(.*)")
      expect_rejected("the client speaks plain HTTP/1, and not TLS", "curl", "-sSf", "http://" .. address)
      expect_rejected("the client speaks TLS, but this port is plain", "curl", "-sSk", "https://" .. plain)
      expect_rejected("the client has sent no certificate", "curl", "-sSk", "--max-time", "20", "https://" .. address)
      expect_rejected("the client has no TLS version in common with us", "openssl", "s_client", "-connect", address,
        "-tls1_1", "-cipher", "ALL:@SECLEVEL=0", "-alpn", "h2")
    end)
  end)
end)
