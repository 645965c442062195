--- Certificates that are refused by clients and by servers, and the errors about them.

local tls = require "keywatch.tls"

local certificates = require "spec.support.certificates"
local pair = require "spec.support.tls_pair"
local shell = require "spec.support.shell"

--- A client's context with the certificate of that name.
local function as(name)
  local cert, key = certificates.paths(name)
  return pair.client { cert = cert, key = key }
end

--- The path of a file of the directory.
local function path(name) return certificates.directory() .. "/" .. name end

describe("a client refuses a server's certificate", function()
  local context

  setup(function() context = pair.client() end)

  local function expect_refused(name, ...)
    local client, server = pair.shake(context, pair.server(name))
    local text, kind = client:error()
    assert.equal("certificate", kind)
    for _, words in ipairs { "server 'localhost'", "valid until 20%d%d%-01%-01", ... } do
      assert.matches(words, text)
    end
    assert.is_true(client:state().is_done)
    assert.is_false(client:state().is_open)
    assert.equal("alert", (select(2, server:error())))
    assert.matches("^the client has refused the connection", (server:error()))
  end

  it("that has expired", function() expect_refused("expired", "has expired on 2021%-01%-01 00:00:00 UTC") end)
  it("that is not valid yet", function() expect_refused("future", "is not valid before 2040%-01%-01") end)
  it("that is for another name", function() expect_refused("other", "is for another name: it is for other%.test") end)
  it("that has a name only as its common name", function()
    local client = pair.shake(context, pair.server("nameless"), "nameless")
    assert.matches("server 'nameless' is for another name: it is for no name %(", (client:error()))
  end)
  it("that another authority has signed", function()
    expect_refused("strange", "signed by an authority that is not trusted", "issuer CN=stranger")
  end)
  it("that is signed by itself", function() expect_refused("self", "is self%-signed") end)
  it("that is only for clients", function() expect_refused("client_only", "not made for this use") end)

  it("whose authority has expired", function()
    context = pair.client { ca = path "old_ca.pem" }
    local client = pair.shake(context, pair.server("orphan"))
    assert.matches("^the authority of the certificate of the server 'localhost' has expired on 2021", (client:error()))
    context = pair.client()
  end)

  it("that was revoked", function()
    local client = pair.shake(pair.client { ca = path "stranger.pem", crl = path "other_crl.pem" },
      pair.server("mallory"), "alice.test")
    assert.matches("server 'alice%.test' was revoked %(subject CN=mallory", (client:error()))
  end)

  it("whose authority was revoked", function()
    for _, crl in ipairs { "between_crl.pem", "keyed_crl.pem" } do
      local client = pair.shake(pair.client { crl = path(crl) }, pair.server("chain"))
      assert.matches("^the authority of the certificate of the server 'localhost' was revoked %(subject CN=between",
        (client:error()))
      client = pair.shake(pair.client { crl = path(crl) }, pair.server())
      assert.is_nil((client:error()))
    end
  end)

  it("if only the system's authorities are trusted", function()
    local client = pair.shake(assert(tls.client {}), pair.server())
    assert.matches("authority that is not trusted", (client:error()))
  end)

  it("unless its chain leads to a trusted one", function()
    for _, name in ipairs { "server", "chain", "rsa", "server_only" } do
      local client, server = pair.shake(context, pair.server(name))
      assert.is_nil((client:error()))
      assert.is_true(server:state().is_open)
    end
    local client = pair.shake(context, pair.server("below"))
    assert.matches("issuer CN=between", (client:error())) -- the one in between is missing
  end)

  it("unless it is itself trusted", function()
    local client = pair.shake(pair.client { ca = path "self.pem" }, pair.server("self"))
    assert.is_nil((client:error()))
    client = pair.shake(pair.client { ca = path "between.pem" }, pair.server("below"))
    assert.is_nil((client:error()))
  end)
end)

describe("a server", function()
  local ca

  setup(function() ca = path "ca.pem" end)

  local function expect_refused(client_context, options, words, kind)
    for _, version in ipairs { "TLS1.2", "TLS1.3" } do
      options.max_version = version
      local client, server = pair.shake(client_context, pair.server("server", options))
      assert.matches(words, (server:error()))
      assert.equal(kind or "certificate", (select(2, server:error())))
      assert.equal("alert", (select(2, client:error())))
    end
  end

  local function expect_taken(client_context, options)
    local client, server = pair.shake(client_context, pair.server("server", options))
    assert.is_nil((server:error()))
    assert.is_nil((client:error()))
    return server
  end

  it("knows the common name of a client whose certificate it has verified", function()
    assert.equal("alice", expect_taken(as "alice", { ca = ca, client_cert_auth = true }):info().common_name)
  end)

  it("knows the organizations of a client whose certificate it has verified", function()
    local function organizations_of(name, options) return expect_taken(as(name), options):info().organizations end
    assert.same({ "admins", "grün" }, organizations_of("carol", { ca = ca }))
    assert.same({}, organizations_of("alice", { ca = ca }))
    assert.is_nil(organizations_of("carol", {}))
  end)

  it("ignores an organization with a 0 in it, and those that do not fit", function()
    local zeroed = expect_taken(as "zeroed", { ca = path "zeroed.pem" }):info()
    assert.same({ "zeroed", { "first", "last" } }, { zeroed.common_name, zeroed.organizations })
    local crowded = expect_taken(as "crowded", { ca = ca }):info()
    assert.same({ "crowded", 62 }, { crowded.common_name, #crowded.organizations }) -- of 65 bytes each, in 4,096
    assert.equal(("%064d"):format(62), crowded.organizations[62])
  end)

  it("requires a certificate of clients by an option, or with the option ca", function()
    expect_refused(pair.client(), { ca = ca }, "^the client has sent no certificate$", "protocol")
    expect_refused(pair.client(), { client_cert_auth = true }, "has sent no certificate", "protocol")
    assert.is_nil(expect_taken(as "alice", {}):info().common_name)
  end)

  it("refuses clients that another authority has signed", function()
    expect_refused(as "mallory", { ca = ca }, "certificate of the client is signed by an authority that is not trusted")
    expect_taken(as "mallory", { ca = path "both.pem" })
  end)

  it("refuses clients whose certificate has expired", function()
    expect_refused(as "late", { ca = ca }, "certificate of the client has expired on 2021.*subject CN=late")
  end)

  it("refuses clients whose certificate is for servers", function()
    expect_refused(as "server_only", { ca = ca }, "not made for this use")
  end)

  it("refuses clients whose certificate was revoked, also by a list that is out of date", function()
    for _, crl in ipairs { "crl.pem", "old_crl.pem" } do
      expect_refused(as "bob", { ca = ca, crl = path(crl) }, "certificate of the client was revoked %(subject CN=bob")
      expect_taken(as "alice", { ca = ca, crl = path(crl) })
    end
    expect_taken(as "bob", { ca = path "both.pem", crl = path "other_crl.pem" }) -- a list of another authority
  end)

  it("refuses clients whose certificate is for another name than the allowed ones", function()
    expect_refused(as "bob", { ca = ca, allowed_hostname = "alice.test" },
      "client 'alice%.test' is for another name: it is for bob%.test")
    expect_taken(as "alice", { ca = ca, allowed_hostname = "alice.test" })
    expect_taken(as "bob", { ca = ca, allowed_hostname = "alice.test,bob.test" })
  end)

  it("allows names that a wildcard stands for, and addresses", function()
    for _, host in ipairs { "a.example.test", "127.0.0.1", "::1", "[::1]" } do
      expect_taken(as "again", { ca = ca, allowed_hostname = "alice.test," .. host })
    end
    for _, host in ipairs { "example.test", "127.0.0.2", "::2", "a.b.example.test", ("x"):rep(255) } do
      expect_refused(as "again", { ca = ca, allowed_hostname = host }, "is for another name: it is for localhost")
    end
  end)

  it("refuses revoked clients by a list in DER, too", function()
    local der = os.tmpname()
    shell.must(("openssl crl -in %s -outform DER -out %s"):format(path "crl.pem", der))
    expect_refused(as "bob", { ca = ca, crl = der }, "certificate of the client was revoked")
    expect_taken(as "alice", { ca = ca, crl = der })
    local file = assert(io.open(der, "r+b"))
    file:seek("set", 10)
    file:write(("x"):rep(20))
    file:close()
    local cert, key = certificates.paths("server")
    local context, text = tls.server { cert = cert, key = key, ca = ca, crl = der }
    assert.is_nil(context)
    assert.matches("of the option crl has a malformed revocation list", text)
    os.remove(der)
  end)

  it("refuses clients whose authority was revoked, wherever the authority is known from", function()
    for _, crl in ipairs { "between_crl.pem", "keyed_crl.pem" } do
      for _, trusted in ipairs { "ca.pem", "bundle.pem", "between.pem", "renewed.pem" } do
        expect_refused(as "chain", { ca = path(trusted), crl = path(crl) },
          "^the authority of the certificate of the client was revoked %(subject CN=between")
      end
      expect_refused(as "below", { ca = path "between.pem", crl = path(crl) }, "authority .* was revoked")
      expect_taken(as "below", { ca = path "renewed.pem", crl = path(crl) })
      expect_taken(as "alice", { ca = ca, crl = path(crl) })
    end
    for _, trusted in ipairs { "ca.pem", "bundle.pem", "between.pem", "renewed.pem" } do
      expect_taken(as "chain", { ca = path(trusted), crl = path "crl.pem" })
    end
  end)

  it("refuses every client below an authority that has not signed its list", function()
    local der = os.tmpname()
    shell.must(("openssl crl -in %s -outform DER -out %s"):format(path "keyed_crl.pem", der))
    local file = assert(io.open(der, "r+b"))
    local last = file:seek("end", -1) and file:read(1)
    file:seek("end", -1)
    file:write(string.char((last:byte() + 1) % 256))
    file:close()
    for _, name in ipairs { "alice", "chain" } do
      expect_refused(as(name), { ca = ca, crl = der }, "certificate of the client was refused: CRL signature failure")
    end
    os.remove(der)
  end)

  it("makes a full handshake with each client whose certificate it checks", function()
    for _, options in ipairs { { ca = ca }, { ca = ca, client_cert_auth = true, max_version = "TLS1.2" } } do
      local client_context, server_context = as "carol", pair.server("server", options)
      for _ = 1, 3 do
        local client, server = pair.shake(client_context, server_context)
        assert.is_false(server:info().is_resumed)
        assert.is_false(client:info().is_resumed)
        assert.equal("carol", server:info().common_name)
        assert.same({ "admins", "grün" }, server:info().organizations)
        client:close()
        server:close()
      end
    end
  end)
end)

describe("files", function()
  local function expect_refused(words, options) pair.expect_refused("file", words, tls.client(options)) end

  it("that cannot be read are named in the error", function()
    expect_refused("file '/no/such' of the option ca cannot be read: No such file", { ca = "/no/such" })
    expect_refused("file '/' of the option ca is not a regular file of at most", { ca = "/" })
    expect_refused("file '/dev/zero' of the option ca is not a regular file", { ca = "/dev/zero" })
  end)

  it("without a certificate or key are named in the error", function()
    expect_refused("empty%.pem' of the option ca has no certificate", { ca = path "empty.pem" })
    expect_refused("server%.key' of the option ca has no certificate", { ca = path "server.key" })
    expect_refused("ca%.pem' of the option crl has no revocation list", { ca = path "ca.pem", crl = path "ca.pem" })
    expect_refused("ca%.pem' of the option key has no private key, or a malformed one",
      { cert = path "server.pem", key = path "ca.pem" })
  end)

  it("that are malformed or truncated are named in the error", function()
    expect_refused("malformed%.pem' of the option ca has a malformed certificate", { ca = path "malformed.pem" })
    expect_refused("cut%.pem' of the option ca has a malformed certificate", { ca = path "cut.pem" })
    expect_refused("the PEM text of the option ca has a malformed certificate", { ca = certificates.text "cut.pem" })
  end)

  it("whose key does not match the certificate are named in the error", function()
    expect_refused("alice%.key' of the option key has a key that does not fit the certificate in .*server%.pem'",
      { cert = path "server.pem", key = path "alice.key" })
    expect_refused("does not fit", { cert = path "server.pem", key = path "rsa.key" })
  end)

  it("with an encrypted key are refused, without asking for a password", function()
    expect_refused("encrypted%.key' of the option key has a key that is encrypted",
      { cert = path "server.pem", key = path "encrypted.key" })
  end)
end)
