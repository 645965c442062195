--- A server with TLS: its addresses, its certificates and those of its clients, files that change, and its log.

local keywatch = require "keywatch"
local tls = require "keywatch.tls"

local certificates = require "spec.support.certificates"
local directory = require "spec.support.directory"
local shell = require "spec.support.shell"
local trial = require "spec.support.tls_trial"

local HTTPS, HTTP = "https://localhost:0", "http://127.0.0.1:0"
local DAY = 86400

local real_time = os.time

describe("a server with TLS", function()
  local store, open_objects, lines, ca, cert, key

  before_each(function()
    store, open_objects, lines = keywatch.open(), {}, {}
    ca = certificates.paths("ca")
    cert, key = certificates.paths("server")
  end)

  after_each(function()
    os.time = real_time -- luacheck: ignore
    for i = #open_objects, 1, -1 do open_objects[i]:close() end
    store:close()
    directory.remove_all()
  end)

  local function note(object)
    table.insert(open_objects, object)
    return object
  end

  local function log_line(level, text) table.insert(lines, level .. " " .. text) end

  --- Serves with the TLS options, and others.
  local function serve(options, others)
    local all = { store = store, listen = HTTPS, tls = options, on_log = log_line }
    for name, value in pairs(others or {}) do all[name] = value end
    return note(assert(keywatch.serve(all)))
  end

  local function connect(server, options, number)
    local address = server:addresses()[number or 1]
    return note(assert(keywatch.connect(address, { tls = options or { ca = ca }, timeout = 20, connect_timeout = 20 })))
  end

  --- Makes a new connection. Returns true, or the text of the failure.
  local function try(server, options)
    return trial.try(server:addresses()[1], options or { ca = ca })
  end

  --- The options of a client that has that certificate.
  local function as(name)
    local own, own_key = certificates.paths(name)
    return { ca = ca, cert = own, key = own_key }
  end

  --- How many lines there are with a text in them.
  local function count(words)
    local n = 0
    for _, line in ipairs(lines) do
      if line:find(words) then n = n + 1 end
    end
    return n
  end

  --- Waits for a line with a text in it, and expects that there is one.
  local function expect_line(words)
    trial.turn_until(function() return count(words) > 0 end)
    assert.equal(1, count(words))
  end

  --- Has a server look at its files and dates at once.
  local function look(server)
    server.certificates.deadline = 0
    keywatch.run(keywatch.sleep, 0)
  end

  local function copy(from, to)
    shell.must(("cp %s/%s %s.new && mv %s.new %s"):format(certificates.directory(), from, to, to, to))
  end

  it("is used by clients that trust its certificate", function()
    local server = serve { cert = cert, key = key }
    assert.matches("^https://127%.0%.0%.1:%d+$", server:addresses()[1])
    local client = connect(server)
    assert(client:put("a", "1"))
    assert.equal("1", store:get("a").value)
    local watch = client:watch("a")
    store:put("a", "2")
    assert.equal("2", watch:next(20).value)
    assert.matches("https://127", client:call("/etcdserverpb.Cluster/MemberList", {}).members[1].clientURLs[1])
    assert.same({}, lines)
    assert.matches("is not trusted", try(server, { ca = (certificates.paths("stranger")) }))
    expect_line("^warn .* rejected: the client has refused the connection: our certificate is signed by an authority")
  end)

  it("takes PEM text, too", function()
    local server = serve { cert = certificates.text "server.pem", key = certificates.text "server.key" }
    assert.is_true(try(server))
  end)

  it("listens on plain addresses, too", function()
    local path = directory.new() .. "/socket"
    local listen = { HTTPS, HTTP, "unix://" .. path, "unixs://" .. path .. "s" }
    local server = serve({ cert = cert, key = key }, { listen = listen })
    local urls = server:addresses()
    assert.matches("^https://", urls[1])
    assert.matches("^http://", urls[2])
    assert.same({ "unix://" .. path, "unixs://" .. path .. "s" }, { urls[3], urls[4] })
    for i = 1, 4 do assert(connect(server, nil, i):put("a", "1")) end
    assert.matches("^keywatch.server<https://[%d.:]+,http://", tostring(server))
  end)

  it("runs in a separate thread", function()
    local options = { cert = cert, key = key, ca = ca }
    local server = note(assert(keywatch.serve { thread = true, listen = HTTPS, tls = options }))
    assert.matches("^https://127%.0%.0%.1:%d+$", server:addresses()[1])
    assert.is_true(try(server, as "alice"))
    server = note(assert(keywatch.serve { thread = true, listen = HTTPS, tls = { auto = true, validity_years = 3 } }))
    assert.is_true(try(server, { verify = false }))
    local failed, err = keywatch.serve { thread = true, listen = HTTPS, tls = { cert = "/no/such", key = key } }
    assert.is_nil(failed)
    assert.equal("failed_precondition", err.code)
    assert.matches("'/no/such' of the option cert cannot be read: No such file", err.message)
    assert.error_matches(function()
      keywatch.serve { thread = true, listen = HTTPS, tls = { cert = cert, key = key, cipher_suites = "WORDS" } }
    end, "^serve: option 'tls.cipher_suites': there is no cipher suite 'WORDS'$")
  end)

  it("knows the names in the certificates of its clients", function()
    local server, call = serve { cert = cert, key = key, ca = ca }, nil
    server:use { before = function(one) call = one end }
    for _ = 1, 2 do
      assert(connect(server, as "carol"):put("a", "1"))
      assert.same({ "carol", { "admins", "grün" } }, { call.common_name, call.organizations })
    end
    assert(connect(server, as "alice"):put("a", "1"))
    assert.same({ "alice", {} }, { call.common_name, call.organizations })
  end)

  describe("requires of its clients", function()
    it("a certificate, with the option ca", function()
      local server = serve { cert = cert, key = key, ca = ca }
      assert.is_true(try(server, as "alice"))
      assert.matches("it wants a certificate from us", try(server))
      expect_line("^warn connection from 127%.0%.0%.1:%d+ rejected: the client has sent no certificate$")
      assert.matches("signed by an authority that it does not trust", try(server, as "mallory"))
      expect_line("^warn .* rejected: the certificate of the client is signed by an authority that is not trusted")
      assert.matches("our certificate has expired", try(server, as "late"))
      expect_line("^warn .* certificate of the client has expired on 2021%-01%-01")
    end)

    it("a certificate of the system's authorities, without that option", function()
      local server = serve { cert = cert, key = key, client_cert_auth = true }
      assert.equal(1, count("^warn TLS: clients may have a certificate of any authority that this system trusts"))
      assert.matches("refused the connection", try(server, as "alice"))
      assert.matches("it wants a certificate from us", try(server))
    end)

    it("a certificate that is not revoked", function()
      local server = serve { cert = cert, key = key, ca = ca, crl = (certificates.paths("crl")) }
      assert.is_true(try(server, as "alice"))
      assert.matches("our certificate was revoked", try(server, as "bob"))
      expect_line("^warn .* rejected: the certificate of the client was revoked")
    end)

    it("a certificate for an allowed name", function()
      local server = serve { cert = cert, key = key, ca = ca, allowed_hostname = "alice.test,127.0.0.1" }
      assert.is_true(try(server, as "alice"))
      assert.is_true(try(server, as "again")) -- for 127.0.0.1
      assert.matches("refused the connection", try(server, as "bob"))
      expect_line("^warn .* the client 'alice%.test,127%.0%.0%.1' is for another name: it is for bob%.test")
    end)

    it("a version and a cipher suite of its options", function()
      local server = serve { cert = cert, key = key, min_version = "TLS1.3" }
      assert.is_true(try(server, { ca = ca, min_version = "TLS1.3" }))
      assert.matches("no TLS version is in common", try(server, { ca = ca, max_version = "TLS1.2" }))
      expect_line("^warn .* rejected: the client has no TLS version in common")
      server = serve { cert = cert, key = key, max_version = "TLS1.2", cipher_suites =
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256" }
      assert.is_true(try(server))
      assert.matches("no version, cipher suite", try(server,
        { ca = ca, max_version = "TLS1.2", cipher_suites = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384" }))
    end)
  end)

  describe("whose files change", function()
    local path, own

    before_each(function()
      path = directory.new()
      own = { cert = path .. "/cert", key = path .. "/key" }
      copy("server.pem", own.cert)
      copy("server.key", own.key)
    end)

    --- True if new connections are made with the certificate of that name.
    local function shows(server, name)
      return try(server, { ca = (certificates.paths(name)) }) == true
    end

    it("uses the new ones for new connections, and logs that", function()
      local server = serve(own)
      local client = connect(server)
      assert(client:put("a", "1"))
      assert.is_true(shows(server, "server"))
      copy("again.pem", own.cert)
      copy("again.key", own.key)
      assert.is_true(shows(server, "again"))
      assert.is_false(shows(server, "server"))
      assert.equal(1, count("^info TLS: files have changed, and are used for new connections: certificate of CN=again "
        .. "for localhost, %*%.example%.test, 127%.0%.0%.1, ::1, valid until 2040%-01%-01 00:00:00 UTC$"))
      assert(client:put("a", "2")) -- the old connection stays open
      assert.equal(1, count("^info"))
    end)

    it("keeps the old ones while the new ones are unusable, and logs the reason once", function()
      local server = serve(own)
      copy("again.pem", own.cert)
      for _ = 1, 3 do assert.is_true(shows(server, "server")) end
      assert.equal(1, count("^warn TLS: files have changed, but cannot be used, and new connections are made with the "
        .. "old ones: the file '[^']+/key' of the option key has a key that does not fit the certificate in the file "))
      os.remove(own.cert)
      for _ = 1, 3 do assert.is_true(shows(server, "server")) end
      assert.equal(1, count("^warn TLS: .*/cert' of the option cert cannot be read: No such file"))
      copy("again.pem", own.cert)
      copy("again.key", own.key)
      assert.is_true(shows(server, "again"))
      assert.equal(2, count("^warn TLS: "))
      assert.equal(1, count("^info TLS: "))
    end)

    it("notices that though no client connects", function()
      local server = serve(own)
      copy("again.pem", own.cert)
      look(server)
      assert.equal(1, count("^warn TLS: files have changed, but cannot be used"))
      look(server)
      copy("again.key", own.key)
      look(server)
      assert.equal(1, count("^info TLS: files have changed, and are used"))
      assert.equal(2, #lines)
    end)

    it("accepts clients of the new authorities, and refuses revoked ones", function()
      copy("stranger.pem", path .. "/ca")
      copy("other_crl.pem", path .. "/crl")
      own.ca, own.crl = path .. "/ca", path .. "/crl"
      local server = serve(own)
      assert.matches("does not trust", try(server, as "bob"))
      copy("both.pem", own.ca)
      assert.is_true(try(server, as "bob"))
      copy("crl.pem", own.crl)
      assert.matches("our certificate was revoked", try(server, as "bob"))
      assert.is_true(try(server, as "alice"))
    end)

    it("ignores them when it is closed", function()
      local server = serve(own)
      server:close()
      copy("again.pem", own.cert)
      look(server)
      assert.same({}, lines)
    end)

    it("may be closed by the log handler", function()
      for _, name in ipairs { "again", "expired" } do -- the second one has a second line to follow
        local server, got
        server = serve(own, { on_log = function(_, text)
          got = text
          server:close()
        end })
        copy(name .. ".pem", own.cert)
        copy(name .. ".key", own.key)
        look(server)
        assert.matches("^TLS: files have changed, and are used for new connections: certificate of CN=" .. name, got)
        assert.same({}, server:addresses())
        assert.equal("closed", server.certificates:describe())
      end
    end)
  end)

  describe("warns of a certificate", function()
    local function expect_warning(pattern, name)
      local own, own_key = certificates.paths(name)
      serve { cert = own, key = own_key }
      assert.equal(1, #lines)
      assert.matches(pattern, lines[1])
    end

    it("that has expired", function()
      expect_warning("^warn TLS: the certificate of CN=expired has expired on 2021%-01%-01 00:00:00 UTC$", "expired")
    end)

    it("that is not valid yet", function()
      expect_warning("^warn TLS: the certificate of CN=future is not valid before 2040%-01%-01 00:00:00 UTC$", "future")
    end)

    it("that expires soon, at the start and later, once", function()
      local server = serve { cert = cert, key = key }
      look(server)
      assert.same({}, lines)
      local now = server.certificates.context:certificate().not_after - 29 * DAY
      os.time = function() return now end -- luacheck: ignore
      for _ = 1, 2 do look(server) end
      assert.same({ "warn TLS: the certificate of CN=server expires on 2040-01-01 00:00:00 UTC" }, lines)
      now = now + 30 * DAY
      for _ = 1, 2 do look(server) end
      assert.equal(2, #lines)
      assert.matches("has expired on 2040", lines[2])
      lines = {}
      expect_warning("CN=server has expired on 2040", "server")
    end)
  end)

  describe("that creates its certificate", function()
    local path

    before_each(function() path = directory.new() .. "/fixtures/client" end)

    local function read(name)
      local file = assert(io.open(path .. "/" .. name))
      local text = file:read("*a")
      file:close()
      return text
    end

    it("does so in memory", function()
      local server = serve({ auto = true }, { advertise = { "https://db.test:1", "http://plain.test:1", "nonsense" } })
      assert.matches("self%-signed", try(server))
      assert.is_true(try(server, { verify = false }))
      assert.equal("certificate of O=keywatch for localhost, db.test, 127.0.0.1, ::1, valid until ",
        (server.certificates:describe():gsub("%d%d%d%d%-.*$", "")))
    end)

    it("does so in a directory, and keeps it", function()
      local server = serve { auto = true, directory = path, validity_years = 2 }
      assert.same({ ("info TLS: made a certificate in %s, for localhost, 127.0.0.1, ::1"):format(path) }, lines)
      assert.equal("600 700", shell.must(("stat -c %%a %s/key.pem %s | xargs"):format(path, path)))
      assert.is_true(try(server, { ca = path .. "/cert.pem" }))
      shell.must(("openssl x509 -in %s/cert.pem -noout -checkend %d"):format(path, 729 * DAY))
      assert.is_false((shell.run(("openssl x509 -in %s/cert.pem -noout -checkend %d"):format(path, 731 * DAY))))
      local before = read("cert.pem")
      server = serve { auto = true, directory = path }
      assert.equal(before, read("cert.pem"))
      assert.is_true(try(server, { ca = path .. "/cert.pem" }))
      assert.equal(1, #lines)
    end)

    it("logs addresses that are missing in the certificate", function()
      assert(tls.self_sign { hosts = "localhost,127.0.0.1,::1", directory = path })
      serve({ auto = true, directory = path }, { advertise = "https://db.test:2379" })
      assert.same({ ("warn TLS: the certificate in %s is not for db.test: remove it to have a new one made")
        :format(path) }, lines)
    end)

    it("replaces one that has expired, is incomplete, or does not fit its key", function()
      for _, case in ipairs {
        { "the certificate of CN=expired .*, valid until 2021%-01%-01 00:00:00 UTC, expires", "expired", "expired" },
        { "has a key that does not fit the certificate", "server", "again" },
        { "has a malformed certificate", "malformed", "server" },
      } do
        shell.must("mkdir -p " .. path)
        copy(case[2] .. ".pem", path .. "/cert.pem")
        copy(case[3] .. ".key", path .. "/key.pem")
        lines = {}
        local server = serve { auto = true, directory = path }
        assert.equal(1, #lines)
        assert.matches("^warn TLS: made another certificate in .*: " .. ".*" .. case[1], lines[1])
        assert.is_true(try(server, { ca = path .. "/cert.pem" }))
        assert.equal("600", shell.must(("stat -c %%a %s/key.pem"):format(path)))
      end
      os.remove(path .. "/key.pem")
      lines = {}
      assert.is_true(try(serve { auto = true, directory = path }, { ca = path .. "/cert.pem" }))
      assert.equal(1, count("^info TLS: made a certificate in"))
    end)

    it("replaces it before it expires, while it serves", function()
      local server = serve { auto = true, directory = path }
      local before, now = read("cert.pem"), real_time() + 364.5 * DAY
      os.time = function() return now end -- luacheck: ignore
      look(server)
      assert.not_equal(before, read("cert.pem"))
      assert.is_true(try(server, { ca = path .. "/cert.pem" }))
      assert.equal(1, count("^warn TLS: made another certificate"))
      assert.equal(1, count("^info TLS: files have changed, and are used for new connections"))
    end)

    it("may be closed by the log handler", function()
      local server, n = nil, 0
      server = serve({ auto = true, directory = path }, { on_log = function()
        n = n + 1
        if server then server:close() end
      end })
      local now = real_time() + 366 * DAY
      os.time = function() return now end -- luacheck: ignore
      look(server)
      assert.equal(2, n) -- that one was made, and another one
      assert.same({}, server:addresses())
    end)

    it("logs once if it cannot replace it while it serves", function()
      local server = serve { auto = true, directory = path }
      local now = real_time() + 366 * DAY
      os.time = function() return now end -- luacheck: ignore
      lines = {}
      shell.must(("rm -r %s && : >%s"):format(path, path))
      for _ = 1, 3 do look(server) end
      assert.equal(1, count("^warn TLS: no certificate can be made: .*: Not a directory"))
      assert.is_true(try(server, { verify = false }))
    end)

    it("fails if it cannot create it, and does not listen", function()
      shell.must(": >" .. path:match("^(.*)/fixtures/") .. "/fixtures")
      local server, err = keywatch.serve { store = store, listen = HTTPS, tls = { auto = true, directory = path } }
      assert.is_nil(server)
      assert.equal("failed_precondition", err.code)
      assert.matches("^keywatch: no certificate can be made: the directory '[^']+' cannot be used: Not a directory",
        err.message)
    end)
  end)

  describe("is refused", function()
    local function expect_misuse(words, options, listen)
      assert.error_matches(function()
        keywatch.serve { store = store, listen = listen or HTTPS, tls = options }
      end, "serve: " .. words)
    end

    it("with TLS addresses but no options, or options but no TLS address", function()
      expect_misuse("https://localhost:0 asks for TLS: give the option 'tls'", nil)
      expect_misuse("unixs:///a asks for TLS: give the option 'tls'", nil, { HTTP, "unixs:///a" })
      expect_misuse("option 'tls' needs an https:// or unixs: URL in 'listen'", { cert = cert, key = key }, HTTP)
    end)

    it("with invalid options", function()
      expect_misuse("option 'tls' must be a table", true)
      expect_misuse("there is no option 'tls.colour'", { cert = cert, key = key, colour = 1 })
      expect_misuse("there is no option 'tls.verify'", { cert = cert, key = key, verify = false })
      expect_misuse("option 'tls' must have 'cert' and 'key', or 'auto = true'", {})
      expect_misuse("option 'tls' must have 'cert' and 'key', or 'auto = true'", { auto = false })
      expect_misuse("options 'tls.cert' and 'tls.key' must be given together", { cert = cert })
      expect_misuse("options 'tls.auto' and 'tls.cert' exclude each other", { auto = true, cert = cert, key = key })
      expect_misuse("option 'tls.auto' must be a boolean", { auto = 1 })
      expect_misuse("option 'tls.directory' must not be empty", { auto = true, directory = "" })
      expect_misuse("option 'tls.directory' has an effect only with 'tls.auto'",
        { cert = cert, key = key, directory = "a" })
      for _, years in ipairs { 0, 1.5, -1, 1001, 0 / 0 } do
        expect_misuse("option 'tls.validity_years' must be a whole number", { auto = true, validity_years = years })
      end
      expect_misuse("option 'tls.validity_years' must be a number", { auto = true, validity_years = "1" })
      expect_misuse("option 'tls.validity_years' has an effect only with 'tls.auto'",
        { cert = cert, key = key, validity_years = 1 })
      expect_misuse("option 'tls.crl' has an effect only with 'tls.ca' or 'tls.client_cert_auth'",
        { cert = cert, key = key, crl = "a" })
      expect_misuse("option 'tls.allowed_hostname' has an effect only with 'tls.ca' or 'tls.client_cert_auth'",
        { auto = true, allowed_hostname = "a" })
      expect_misuse("option 'tls.min_version' must be 'TLS1.2' or 'TLS1.3'",
        { cert = cert, key = key, min_version = "TLS1.1" })
      expect_misuse("option 'tls.min_version' is above 'tls.max_version'",
        { cert = cert, key = key, min_version = "TLS1.3", max_version = "TLS1.2" })
      expect_misuse("option 'tls.cipher_suites': there is no cipher suite 'WORDS'",
        { cert = cert, key = key, cipher_suites = "WORDS" })
    end)

    it("with unusable files, and then does not listen", function()
      local taken = serve({ cert = cert, key = key })
      local free = taken:addresses()[1]
      taken:close()
      for words, options in pairs {
        ["/no/such' of the option cert cannot be read: No such file"] = { cert = "/no/such", key = key },
        ["/no/such' of the option key cannot be read: No such file"] = { cert = cert, key = "/no/such" },
        ["/no/such' of the option ca cannot be read: No such file"] = { cert = cert, key = key, ca = "/no/such" },
        ["/no/such' of the option crl cannot be read"] = { cert = cert, key = key, ca = ca, crl = "/no/such" },
        ["has a key that does not fit"] = { cert = cert, key = certificates.directory() .. "/again.key" },
        ["has a key that is encrypted"] = { cert = cert, key = certificates.directory() .. "/encrypted.key" },
        ["has no certificate"] = { cert = certificates.directory() .. "/empty.pem", key = key },
      } do
        local server, err = keywatch.serve { store = store, listen = free, tls = options }
        assert.is_nil(server)
        assert.equal("failed_precondition", err.code)
        assert.matches("^keywatch: .*" .. words:gsub("%p", "%%%0"), err.message)
      end
      note(assert(keywatch.serve { store = store, listen = (free:gsub("https", "http")) })) -- the port is free
    end)
  end)
end)
