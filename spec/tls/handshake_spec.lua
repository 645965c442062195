--- Handshakes: versions, protocols and names, with the bytes in pieces of any size.

local tls = require "keywatch.tls"

local certificates = require "spec.support.certificates"
local pair = require "spec.support.tls_pair"

local SUITE = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"

local function expect_open(client, server)
  assert.is_nil((client:error()))
  assert.is_nil((server:error()))
  assert.is_true(client:state().is_open)
  assert.is_true(server:state().is_open)
end

--- Expects that what one side writes comes to the other one.
local function expect_talk(client, server, size)
  local from_client, from_server = {}, {}
  assert.equal(5, client:write("hello"))
  assert.equal(3, server:write("you"))
  pair.pump(client, server, size, from_server, from_client)
  assert.equal("hello", table.concat(from_client))
  assert.equal("you", table.concat(from_server))
end

describe("a handshake", function()
  local client_context, server_context

  setup(function() client_context, server_context = pair.client(), pair.server() end)

  it("ends with TLS 1.3, and knows the requested name and the owner of the certificate", function()
    local client, server = pair.shake(client_context, server_context)
    expect_open(client, server)
    assert.equal("TLSv1.3", client:info().version)
    assert.equal("server", client:info().common_name)
    assert.equal("localhost", server:info().server_name)
    assert.is_nil(server:info().common_name)
    expect_talk(client, server)
  end)

  it("reports no agreed protocol before its end", function()
    local client = client_context:connect("localhost")
    assert.is_nil((client:info()))
    client:step()
    assert.is_nil((client:info()))
    assert.equal(0, client:write("too early"))
    assert.equal("", client:read())
  end)

  for _, host in ipairs { "localhost", "localhost.", "a.example.test", "127.0.0.1", "::1", "[::1]" } do
    it("checks the certificate for " .. host, function()
      local client, server = pair.shake(client_context, server_context, host)
      expect_open(client, server)
    end)
  end

  for _, host in ipairs { "example.test", "a.b.example.test", "127.0.0.2", "::2", "server", "localhost.example" } do
    it("refuses a certificate that is not for " .. host, function()
      local client = pair.shake(client_context, server_context, host)
      local text, kind = client:error()
      assert.equal("certificate", kind)
      assert.matches("of the server '" .. host:gsub("%p", "%%%0") .. "' is for another name: it is for localhost", text)
    end)
  end

  it("checks the certificate for the name of the options instead of the host's", function()
    local client, server = pair.shake(pair.client { server_name = "a.example.test" }, server_context, "10.0.0.1")
    expect_open(client, server)
    assert.equal("a.example.test", server:info().server_name)
    client = pair.shake(pair.client { server_name = "elsewhere.test" }, server_context)
    assert.matches("server 'elsewhere%.test' is for another name", (client:error()))
  end)

  it("sends no name if the host is an address", function()
    local _, server = pair.shake(client_context, server_context, "127.0.0.1")
    assert.is_nil(server:info().server_name)
  end)

  it("accepts any certificate if verification is off", function()
    local client, server = pair.shake(pair.client { verify = false }, pair.server("expired"), "elsewhere.test")
    expect_open(client, server)
    assert.is_nil(client:info().common_name)
  end)

  it("needs a name, unless verification is off", function()
    local channel, text, kind = client_context:connect("")
    assert.is_nil(channel)
    assert.equal("option", kind)
    assert.matches("server_name", text)
    expect_open(pair.shake(pair.client { verify = false }, server_context, ""))
  end)

  -- OpenSSL takes a name that begins with a dot for all names that end so.
  for _, host in ipairs { ".", "..", ".example.test", "[.example.test]", "[localhost]", "[a.example.test]", "[]" } do
    it("is refused for a server of the name " .. host, function()
      local channel, text, kind = client_context:connect(host)
      assert.same({ nil, ("'%s' is not a valid server name"):format(host), "option" }, { channel, text, kind })
      local context
      context, text, kind = tls.client { ca = (certificates.paths "ca"), server_name = host }
      assert.is_nil(context)
      assert.matches("^option 'tls.server_name' must be an address, or a name", text)
      assert.equal("option", kind)
      assert.is_false(server_context:is_for(host))
    end)
  end

  it("accepts no name with a zero byte", function()
    for _, host in ipairs { "localhost\0", "localhost\0.evil.test" } do
      assert.error_matches(function() client_context:connect(host) end, "zero byte")
      assert.error_matches(function() client_context:connect("localhost", host) end, "zero byte")
    end
  end)

  it("is made with the lowest and the highest version that both sides have", function()
    local client, server = pair.shake(client_context, pair.server("server", { max_version = "TLS1.2" }))
    expect_open(client, server)
    assert.equal("TLSv1.2", client:info().version)
    expect_talk(client, server)
    client, server = pair.shake(pair.client { min_version = "TLS1.3" },
      pair.server("server", { max_version = "TLS1.2" }))
    assert.matches("no TLS version is in common", (client:error()))
    assert.matches("the client has no TLS version in common with us", (server:error()))
  end)

  it("is made with the server's favourite suite, AES with 128 bits, unless the client prefers ChaCha20", function()
    local function suite(version, ...)
      local client = pair.shake(pair.client { max_version = version, cipher_suites = table.concat({ ... }, ",") },
        pair.server())
      return client:info().cipher_suite
    end
    local strong, fast = "TLS_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256"
    local chacha = "TLS_CHACHA20_POLY1305_SHA256"
    assert.equal(fast, suite("TLS1.3", strong, chacha, fast))
    assert.equal(strong, suite("TLS1.3", strong, chacha))
    assert.equal(chacha, suite("TLS1.3", chacha, strong, fast))
    strong, fast = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
    assert.equal(fast, suite("TLS1.2", strong, fast))
  end)

  it("is made with the cipher suites of the options, by Go's names", function()
    local client, server = pair.shake(client_context,
      pair.server("server", { cipher_suites = SUITE, max_version = "TLS1.2" }))
    expect_open(client, server)
    assert.equal(SUITE, client:info().cipher_suite)
    client, server = pair.shake(pair.client { cipher_suites = "TLS_CHACHA20_POLY1305_SHA256" }, server_context)
    expect_open(client, server)
    assert.equal("TLS_CHACHA20_POLY1305_SHA256", server:info().cipher_suite)
    client, server = pair.shake(client_context, pair.server("rsa", { max_version = "TLS1.2",
      cipher_suites = "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305,TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305" }))
    expect_open(client, server)
    assert.equal("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", client:info().cipher_suite)
    server = select(2, pair.shake(pair.client { max_version = "TLS1.2" },
      pair.server("rsa", { cipher_suites = SUITE })))
    assert.matches("the client has no cipher suite in common with us", (server:error()))
  end)

  for _, version in ipairs { "TLS1.2", "TLS1.3" } do
    it("continues wherever its bytes are split, in " .. version, function()
      local context = pair.client { max_version = version }
      for _, size in ipairs { 1, 2, 7, 100 } do
        local client, server = pair.shake(context, server_context, "localhost", size)
        expect_open(client, server)
        expect_talk(client, server, size)
      end
    end)
  end

  it("is made in steps: bytes that are fed are queued, and cost nothing before a step", function()
    local client, server = client_context:connect("localhost"), server_context:accept()
    assert.is_true(client:state().has_work)
    assert.is_false(server:state().has_work)
    client:step()
    assert.is_false(client:state().has_work)
    server:feed(client:pending())
    assert.equal("", server:pending())
    assert.is_true(server:state().has_work)
    server:step()
    assert.is_false(server:state().has_work)
    assert.not_equal("", server:pending())
  end)

  it("is refused for a channel of the other role", function()
    assert.matches("context of clients", select(2, client_context:accept()))
    assert.matches("context of servers", select(2, server_context:connect("localhost")))
  end)
end)

describe("resumption", function()
  for _, version in ipairs { "TLS1.2", "TLS1.3" } do
    it("replaces the next full handshake with the same cache key, in " .. version, function()
      local client_context, server_context = pair.client { max_version = version }, pair.server "carol"
      local client, server = pair.shake(client_context, server_context)
      assert.is_false(client:info().is_resumed)
      client:close()
      server:close()
      for _ = 1, 3 do
        client, server = pair.shake(client_context, server_context)
        expect_open(client, server)
        assert.is_true(client:info().is_resumed)
        assert.is_true(server:info().is_resumed)
        assert.equal("carol", client:info().common_name)
        assert.same({ "admins", "grün" }, client:info().organizations)
        expect_talk(client, server)
        client:close()
        server:close()
      end
    end)

    it("is possible after a connection was cut, but not after an alert has ended one, in " .. version, function()
      local client_context, server_context = pair.client { max_version = version }, pair.server()
      local function shake(is_resumed)
        local client, server = pair.shake(client_context, server_context)
        assert.equal(is_resumed, client:info().is_resumed)
        return client, server
      end
      local client = shake(false)
      for _ = 1, 3 do
        client:feed("") -- the end of the socket, without close_notify
        pair.work(client, {})
        assert.equal("cut", (select(2, client:error())))
        client:close()
        client = shake(true)
      end
      client:feed("\23\3\3\0\32" .. ("x"):rep(32)) -- a record that cannot be decrypted
      pair.work(client, {})
      assert.equal("protocol", (select(2, client:error())))
      client:close()
      shake(false)
    end)
  end

  it("is not tried with another cache key, or for another name", function()
    local client_context, server_context = pair.client(), pair.server()
    local function is_resumed(host, cache_key)
      local client, server = client_context:connect(host, cache_key), server_context:accept()
      pair.pump(client, server, nil, {}, {})
      return client:info().is_resumed
    end
    assert.is_false(is_resumed("localhost", "one"))
    assert.is_true(is_resumed("localhost", "one"))
    assert.is_false(is_resumed("localhost", "another"))
    assert.is_false(is_resumed("127.0.0.1", "one"))
  end)

  it("falls back to a full handshake with a server that has other tickets", function()
    local client_context = pair.client()
    pair.shake(client_context, pair.server())
    local client, server = pair.shake(client_context, pair.server())
    expect_open(client, server)
    assert.is_false(client:info().is_resumed)
  end)

  it("keeps a bounded number of sessions", function()
    local client_context, server_context = pair.client(), pair.server()
    for i = 1, 20 do
      local client, server = client_context:connect("localhost", "key " .. i), server_context:accept()
      pair.pump(client, server, nil, {}, {})
    end
    local resumed = 0
    for i = 1, 20 do
      local client, server = client_context:connect("localhost", "key " .. i), server_context:accept()
      pair.pump(client, server) -- reads nothing, and so gets no new ticket
      if client:info().is_resumed then resumed = resumed + 1 end
    end
    assert.equal(16, resumed)
  end)
end)

describe("an option", function()
  local function expect_refused(make, options, words) pair.expect_refused("option", words, make(options)) end

  it("with an invalid value is reported", function()
    expect_refused(tls.server, {}, "must have 'cert' and 'key'")
    expect_refused(tls.client, { cert = "/a" }, "'tls.cert' and 'tls.key' must be given together")
    expect_refused(tls.client, { min_version = "TLS1.1" }, "'tls.min_version' must be 'TLS1.2' or 'TLS1.3'")
    expect_refused(tls.client, { max_version = "TLS1.1" }, "'tls.max_version' must be 'TLS1.2' or 'TLS1.3'")
    expect_refused(tls.client, { min_version = "TLS1.3", max_version = "TLS1.2" }, "min_version' is above")
    expect_refused(tls.client, { cipher_suites = SUITE .. ",TLS_WORDS" }, "no cipher suite 'TLS_WORDS'")
    expect_refused(tls.client, { cipher_suites = SUITE .. ",," }, "no cipher suite ''")
    expect_refused(tls.client, { cipher_suites = ("x"):rep(5000) }, "no cipher suite 'xxx")
    expect_refused(tls.client, { server_name = ("x"):rep(300) }, "too long")
    expect_refused(tls.server, { cert = "/a", key = "/b", allowed_hostname = "x" }, "client_cert_auth")
    expect_refused(tls.server, { cert = "/a", key = "/b", crl = "x" }, "client_cert_auth")
    for _, hosts in ipairs { ".test", "a.test,.test", "a.test,", ",a.test", "a.test,,b.test", "[.test]", "[a.test]",
      ("x"):rep(256) } do
      expect_refused(tls.server, { cert = "/a", key = "/b", ca = "/c", allowed_hostname = hosts },
        "allowed_hostname' must be a list, separated")
    end
    expect_refused(tls.client, { min_version = "TLS1.3", cipher_suites = SUITE }, "TLS 1.2 cipher suites have no")
    expect_refused(tls.client, { max_version = "TLS1.2", cipher_suites = "TLS_AES_128_GCM_SHA256" },
      "TLS 1.3 cipher suites have no")
  end)

  it("of another name or type is refused", function()
    expect_refused(tls.client, { no = "such" }, "there is no option 'tls.no'")
    expect_refused(tls.client, { [1] = "such" }, "there is no option 'tls.1'")
    expect_refused(tls.client, { [{}] = "such" }, "there is no option 'tls.table'")
    expect_refused(tls.client, { ca = 7 }, "option 'tls.ca' must be a string, not a number")
    expect_refused(tls.client, { ca = "/a\0b" }, "option 'tls.ca' must not have a zero byte")
    expect_refused(tls.client, { ca = "" }, "option 'tls.ca' must not be empty")
    expect_refused(tls.client, { verify = "no" }, "option 'tls.verify' must be a boolean, not a string")
    assert.error_matches(function() tls.client() end, "table expected")
  end)
end)
