--- TLS of clients, through connect: which certificates they trust and refuse, their errors, and their files.

local driver = require "keywatch.task.driver"
local keywatch = require "keywatch"

local certificates = require "spec.support.certificates"
local directory = require "spec.support.directory"
local misuse = require "spec.support.misuse"
local process = require "spec.support.process"
local program = require "spec.support.program"
local proxy = require "spec.support.proxy"

local ANY = "https://127.0.0.1:0"
local ENOUGH = 60 -- seconds, for events that arrive without a request

local opened = {} -- by the test

local function keep(object)
  table.insert(opened, object)
  return object
end

--- The path of a file of the directory of certificates.
local function path(name) return certificates.directory() .. "/" .. name end

--- A server of this process with the certificate of that name, and these options of `tls`. Returns its first URL, the
-- server and its store.
local function serve(name, options, listen, more)
  local cert, key = certificates.paths(name)
  local tls = { cert = cert, key = key }
  for option, value in pairs(options or {}) do tls[option] = value end
  local all = { store = keep(keywatch.open { now = 0 }), listen = listen or ANY, tls = tls, log_level = "error" }
  for option, value in pairs(more or {}) do all[option] = value end
  local one = keep(assert(keywatch.serve(all)))
  return one:addresses()[1], one, all.store
end

--- A server without TLS. Returns its URL.
local function serve_plain(advertise)
  local store = keep(keywatch.open { now = 0 })
  local one = keep(assert(keywatch.serve { store = store, listen = "http://127.0.0.1:0", advertise = advertise,
    log_level = "error" }))
  return one:addresses()[1]
end

--- A client that trusts the authority of the certificates, with these options of `tls`; `more` are other options.
local function connect(url, options, more)
  local tls = { ca = path "ca.pem" }
  for option, value in pairs(options or {}) do tls[option] = value end
  local all = { tls = tls, backoff = { first = 0.001, longest = 0.01 } }
  for option, value in pairs(more or {}) do all[option] = value end
  return keep(assert(keywatch.connect(url, all)))
end

--- The same port under another name.
local function under(url, host) return (url:gsub("127%.0%.0%.1", (host:gsub("%%", "%%%%")))) end

--- A client's certificate, as options.
local function as(name)
  local cert, key = certificates.paths(name)
  return { cert = cert, key = key }
end

--- How one new connection of a client fares: nil, or its error.
local function try(client)
  return client:health({ timeout = ENOUGH })[1].err
end

local written_by = require("spec.support.network").written_by

local function write(to, text)
  local file = assert(io.open(to, "w"))
  file:write(text)
  file:close()
end

after_each(function()
  while #opened > 0 do table.remove(opened):close() end
  pcall(keywatch.run, function() end) -- whatever a test has left
  process.end_all()
  directory.remove_all()
end)

describe("a client with TLS", function()
  --- Writes, reads and watches.
  local function use(client)
    local watch = assert(client:watch("k"))
    assert(client:put("k", "v"))
    assert.equal("v", client:get("k").value)
    assert.equal("v", watch:next(ENOUGH).value)
    watch:close()
  end

  it("connects to the names and the addresses of the certificate", function()
    local url = serve("server")
    for _, host in ipairs { "127.0.0.1", "localhost" } do
      local client = connect(under(url, host))
      use(client)
      assert.equal(under(url, host), client:state().endpoint)
    end
    url = serve("server", nil, "https://[::1]:0")
    assert.matches("^https://%[::1%]:%d+$", url)
    use(connect(url))
  end)

  it("connects to Unix sockets, with a certificate for localhost", function()
    local where = directory.new() .. "/socket"
    serve("server", nil, "unixs://" .. where)
    use(connect("unixs:" .. where))
    local client = connect("unixs://" .. where, { server_name = "elsewhere.test" })
    assert.matches("^keywatch: unixs://[^ ]+: .*server 'elsewhere%.test' is for another name", try(client).message)
  end)

  it("uses TLS for an endpoint without a scheme, and none for http://", function()
    local url = serve("server")
    use(connect((url:gsub("^https://", ""))))
    local plain = serve_plain()
    use(connect(plain))
    local both = connect(plain .. "," .. url)
    assert.same({ true, true }, { both:health({})[1].is_healthy, both:health({})[2].is_healthy })
    for text, shown in pairs {
      ["a:1"] = "https://a:1", ["http://a:1"] = "http://a:1", ["unix:/a"] = "unix:/a", ["unixs:/a"] = "unixs:/a",
      ["[::1]:1,https://b:2"] = "https://[::1]:1,https://b:2",
    } do
      assert.equal(("keywatch.client<%s>"):format(shown), tostring(connect(text)))
    end
    assert.equal("keywatch.client<https://a:1>", tostring(keep(keywatch.connect("a:1", { tls = true }))))
    assert.equal("keywatch.client<https://a:1>", tostring(keep(keywatch.connect("https://a:1"))))
  end)

  it("sends its certificate to a server that asks for one", function()
    local url = serve("server", { ca = path "ca.pem", client_cert_auth = true })
    use(connect(url, as "alice"))
    assert.matches("the server has refused the connection: .*certificate", try(connect(url)).message)
    assert.matches("the server has refused the connection: our certificate", try(connect(url, as "late")).message)
    assert.matches("the server has refused the connection: our certificate", try(connect(url, as "mallory")).message)
  end)

  it("takes PEM text as well as files, and several authorities", function()
    local text = certificates.text
    local url = serve("server", { ca = path "ca.pem", client_cert_auth = true })
    use(connect(url, { ca = text "ca.pem", cert = text "alice.pem", key = text "alice.key" }))
    local alice = as "alice"
    for _, ca in ipairs { path "both.pem", text "both.pem" } do
      use(connect(url, { ca = ca, cert = alice.cert, key = alice.key }))
      assert.is_nil(try(connect((serve("strange")), { ca = ca })))
    end
  end)

  it("checks the certificate for the option server_name", function()
    local url = serve("other")
    use(connect(url, { server_name = "other.test" }))
    assert.matches("server 'else%.test' is for another name: it is for other%.test",
      try(connect(url, { server_name = "else.test" })).message)
  end)

  it("trusts any server with verify = false", function()
    for _, name in ipairs { "self", "expired", "other", "strange" } do
      assert.is_nil(try(keep(keywatch.connect((serve(name)), { tls = { verify = false } }))))
    end
  end)

  it("uses the TLS versions of its options", function()
    local url = serve("server", { min_version = "TLS1.3" })
    assert.is_nil(try(connect(url, { min_version = "TLS1.3" })))
    assert.matches("no TLS version is in common", try(connect(url, { max_version = "TLS1.2" })).message)
  end)

  it("continues after its connection was cut, and resumes the session", function()
    local url = serve("server")
    local between = proxy.start((url:gsub("^https", "http")))
    local client = connect(between.address)
    local watch = assert(client:watch("k", { prefix = true }))
    assert(client:put("k1", "v"))
    assert.equal("k1", watch:next(ENOUGH).key)
    local full = between:bytes("to_client")
    between:cut()
    assert(client:get("k1", { timeout = ENOUGH })) -- a read is repeated
    assert(client:put("k2", "v", { timeout = ENOUGH }))
    assert.equal("k2", watch:next(ENOUGH).key)
    local resumed = between:bytes("to_client") - full
    assert.is_true(full - resumed > 400) -- no certificate was sent
    watch:close()
  end)

  it("ends a hanging handshake at connect_timeout", function()
    local url = serve("server")
    local between = proxy.start((url:gsub("^https", "http")))
    between:stall("to_client")
    local client = connect(between.address, nil, { connect_timeout = 0.05 })
    assert.matches(": it does not answer in time$", try(client).message)
    between:resume("to_client")
    client = connect(between.address)
    between:split(1)
    assert(client:put("k", "v", { timeout = ENOUGH })) -- the handshake comes byte by byte
  end)

  it("reports which endpoint failed, uses the next one, and reports its health", function()
    local bad, good = serve("expired"), serve("server")
    local client = connect({ bad, good })
    assert(client:put("k", "v"))
    assert.equal(good, client:state().endpoint)
    local rows = client:health { timeout = ENOUGH }
    assert.matches(bad .. ": the certificate of the server '127.0.0.1' has expired", rows[1].err.message, 1, true)
    assert.is_true(rows[2].is_healthy)
    assert(connect({ bad, good }, nil, { prefer = "fastest" }):put("k", "v"))
  end)
end)

describe("a client refuses a server's certificate", function()
  local function expect_refused(name, words, options, host)
    local url = under(serve(name), host or "localhost")
    local err = try(connect(url, options))
    assert.equal("unavailable", err.code)
    for _, part in ipairs { "keywatch: " .. url .. ": ", "the server '" .. (host or "localhost") .. "'", words,
      "valid until 20" } do
      assert.matches(part, err.message, 1, true)
    end
  end

  it("with the reason, and with the endpoint", function()
    expect_refused("expired", "has expired on 2021-01-01 00:00:00 UTC")
    expect_refused("other", "is for another name: it is for other.test")
    expect_refused("other", "is for another name: it is for other.test", nil, "127.0.0.1")
    expect_refused("strange", "is signed by an authority that is not trusted")
    expect_refused("self", "is self-signed")
  end)

  it("at one address of a name, and reports that if the other addresses fail in other ways", function()
    local url = under(serve("server"), "two.test")
    local here = driver.get()
    local lookup = here.lookup
    finally(function() here.lookup = lookup end)
    here.lookup = function()
      return { result = function() return { "127.0.0.1", "127.0.0.2", "127.0.0.3" } end }
    end
    local text = try(connect(url)).message
    assert.matches(url .. ": the certificate of the server 'two.test' is for another name", text, 1, true)
    assert.matches("%); connection refused$", text)
  end)

  it("in the errors of its requests, and in its state", function()
    local words = "the certificate of the server '127%.0%.0%.1' has expired on 2021%-01%-01"
    local states = keywatch.channel(1000)
    local client = connect((serve("expired")), nil, { on_state = function(state) states:send(state) end })
    keywatch.run(function()
      local err
      local task = keywatch.spawn(function() err = select(2, client:get("k", { timeout = ENOUGH })) end)
      local state
      repeat state = assert(states:receive(ENOUGH)) until state.state == "waiting"
      assert.matches(words, state.why)
      assert.matches(words, client:state().why)
      local found, late = client:get("k", { timeout = 0 })
      assert.is_nil(found)
      assert.equal("unavailable", late.code)
      assert.matches(words, late.message)
      client:close()
      task:join()
      assert.equal("closed", err.code)
    end)
  end)
end)

describe("a wrong server", function()
  it("is reported, if it does not speak TLS #plain", function()
    local plain = serve_plain()
    local url = plain:gsub("^http", "https")
    assert.matches("keywatch: " .. url .. ": the server speaks plain HTTP", try(connect(url)).message, 1, true)
  end)

  it("ends the connection of a client without TLS", function()
    local url = serve("server"):gsub("^https", "http")
    assert.equal("unavailable", try(keep(keywatch.connect(url))).code)
  end)
end)

describe("the files of a client", function()
  local function expect_failure(words, options)
    local client, err = keywatch.connect("https://127.0.0.1:1", { tls = options })
    assert.is_nil(client)
    assert.equal("failed_precondition", err.code)
    assert.matches("^keywatch: ", err.message)
    assert.matches(words, err.message)
  end

  it("are named in the error if they are unusable, and there is no client", function()
    local alice = as "alice"
    expect_failure("file '/no/such' of the option ca cannot be read: No such file", { ca = "/no/such" })
    expect_failure("malformed%.pem' of the option ca has a malformed certificate", { ca = path "malformed.pem" })
    expect_failure("cut%.pem' of the option cert has a malformed", { cert = path "cut.pem", key = path "server.key" })
    expect_failure("empty%.pem' of the option ca has no certificate", { ca = path "empty.pem" })
    expect_failure("ca%.pem' of the option crl has no revocation list", { crl = path "ca.pem" })
    expect_failure("alice%.key' of the option key has a key that does not fit the certificate in .*bob%.pem'",
      { cert = path "bob.pem", key = alice.key })
    expect_failure("encrypted%.key' of the option key has a key that is encrypted",
      { cert = path "server.pem", key = path "encrypted.key" })
    expect_failure("the PEM text of the option ca has a malformed", { ca = certificates.text "malformed.pem" })
  end)

  it("are read again at the next connection after a change", function()
    local ca = directory.new() .. "/ca.pem"
    write(ca, certificates.text "stranger.pem")
    local url = serve("server")
    local client = connect(url, { ca = ca })
    assert.matches("not trusted", try(client).message)
    write(ca, certificates.text "ca.pem")
    assert.is_nil(try(client))
    write(ca, certificates.text "stranger.pem")
    assert.matches("not trusted", try(client).message)
  end)

  it("are logged once after a change that makes them unusable, and the old ones stay in use", function()
    local ca = directory.new() .. "/ca.pem"
    write(ca, certificates.text "ca.pem")
    local client = connect((serve("server")), { ca = ca })
    local text = written_by(function()
      assert.is_nil(try(client))
      write(ca, certificates.text "cut.pem")
      for _ = 1, 3 do assert.is_nil(try(client)) end
      os.remove(ca)
      for _ = 1, 3 do assert.is_nil(try(client)) end
      write(ca, certificates.text "ca.pem")
      for _ = 1, 3 do assert.is_nil(try(client)) end
    end)
    local lines = {}
    for line in text:gmatch("Z ([^\n]*)\n") do lines[#lines + 1] = line end
    assert.equal(3, #lines, text)
    assert.matches("^warn a client keeps its old certificates: the file '.*' of the option ca has a",
      lines[1])
    assert.matches("^warn .*cannot be read: No such file", lines[2])
    assert.matches("^info the certificate files of a client are usable again$", lines[3])
  end)
end)

describe("the option tls", function()
  it("is refused for invalid options #plain", function()
    for words, tls in pairs {
      ["option 'tls' must be a table or true, not a boolean"] = false,
      ["option 'tls' must be a table or true, not 'x'"] = "x",
      ["there is no option 'tls.colour'"] = { colour = 1 },
      ["there is no option 'tls.1'"] = { "ca" },
      ["option 'tls.ca' must be a string, not a number"] = { ca = 5 },
      ["option 'tls.cert' must not be empty"] = { cert = "", key = "x" },
      ["option 'tls.key' must not have a zero byte"] = { cert = "x", key = "x\0" },
      ["option 'tls.verify' must be a boolean, not a string"] = { verify = "false" },
      ["options 'tls.cert' and 'tls.key' must be given together"] = { cert = "x" },
      ["there is no cipher suite 'x'"] = { cipher_suites = "x" },
      ["there is no cipher suite 'y'"] = { cipher_suites = "y", ca = "/no/such" },
      ["option 'tls.min_version' must be 'TLS1.2' or 'TLS1.3'"] = { min_version = "1.2" },
      ["option 'tls.min_version' is above 'tls.max_version'"] = { min_version = "TLS1.3", max_version = "TLS1.2" },
      ["option 'tls.server_name' is too long"] = { server_name = ("x"):rep(256) },
      ["option 'tls.server_name' must be an address, or a name that does not begin with a dot"] = {
        server_name = ".example.test",
      },
    } do
      local text = misuse.raises(function() keywatch.connect("https://a:1", { tls = tls }) end)
      assert.matches("tls_spec.lua:", text, 1, true)
      assert.matches("connect: ", text, 1, true)
      assert.matches(words, text, 1, true)
    end
  end)

  it("names the missing rock", function()
    local status, printed = program.run [[
      local keywatch = require "keywatch"
      package.path, package.cpath = "", ""
      local function try(...) print((select(2, pcall(keywatch.connect, ...)):gsub("^.-:%d+: ", ""))) end
      try "https://a:1"
      try "unixs:/a"
      try("http://a:1", { tls = true })
      print(keywatch.connect("http://a:1"))
      package.preload["keywatch.tls"] = function() error("no such library", 0) end
      try "https://a:1"
    ]]
    local absent = "asks for TLS: keywatch needs another rock for TLS: luarocks install keywatch-tls\n"
    assert.equal("connect: the endpoint 'https://a:1' " .. absent .. "connect: the endpoint 'unixs:/a' " .. absent
      .. "connect: the option 'tls' " .. absent .. "keywatch.client<http://a:1>\n", (printed:gsub("[^\n]*\n$", "")))
    assert.matches("'https://a:1' asks for TLS: keywatch%.tls cannot be loaded: no such library\n$", printed)
    assert.equal(0, status)
  end)
end)

describe("the members of a cluster", function()
  it("are followed over TLS", function()
    local second = serve("server")
    local first = serve("server", nil, nil, { advertise = { second, under(second, "localhost") } })
    local client = connect(first)
    assert.same({ second, under(second, "localhost") }, client:sync_endpoints())
    for _, row in ipairs(client:health { timeout = ENOUGH }) do assert.is_nil(row.err) end
  end)

  it("are not followed from TLS endpoints to others, nor to TLS endpoints by a client without TLS #plain", function()
    local plain = serve_plain()
    local second = serve("server")
    local first = serve("server", nil, nil, { advertise = { plain, second } })
    local text = written_by(function() assert.same({ second }, connect(first):sync_endpoints()) end)
    assert.matches(('leaves out an endpoint of the member list: "%s" is without TLS'):format(plain), text, 1, true)
    assert.same({ plain, second }, connect({ first, plain }):sync_endpoints())
    local other = serve_plain { plain, second }
    text = written_by(function() assert.same({ plain }, keep(keywatch.connect(other)):sync_endpoints()) end)
    assert.matches(('"%s" asks for TLS: give connect the option tls'):format(second), text, 1, true)
    assert.same({ plain, second }, connect(other):sync_endpoints())
  end)
end)

describe("a password", function()
  local function warnings(endpoints, tls)
    return written_by(function()
      keep(keywatch.connect(endpoints, { user = "u", password = "secret", tls = tls }))
    end)
  end

  it("without TLS causes one warning #plain", function()
    local text = warnings { "http://a.test:1", "http://127.0.0.1:1", "10.0.0.1:2", "https://b.test:3" }
    assert.matches("warn a client sends its user and password without TLS", text, 1, true)
    assert.matches('use https:// instead of "http://a.test:1", "http://10.0.0.1:2"\n', text, 1, true)
    assert.is_nil((text:find("secret", 1, true)))
    assert.equal("", warnings { "http://a.test:1", "10.0.0.1:2" })
    assert.matches('instead of "http://127.evil.test:1"\n', warnings { "a.test:1", "127.evil.test:1" }, 1, true)
    assert.matches('instead of "http://[::2]:1"\n', warnings "[::2]:1", 1, true)
    assert.matches('instead of "http://localhost.test:1"\n', warnings "localhost.test:1", 1, true)
    text = warnings "q:1,r:1,s:1,t:1,u:1"
    assert.matches('instead of "http://q:1", "http://r:1", "http://s:1" and 2 more\n', text, 1, true)
    assert.is_true(#warnings(("x"):rep(10000) .. ":1") < 500)
  end)

  it("causes no warning otherwise", function()
    for _, endpoint in ipairs { "localhost:1", "LocalHost.:1", "a.localhost:1", "127.0.0.1:1", "127.1.2.3:1", "[::1]:1",
      "[0:0:0:0:0:0:0:1]:1", "[::ffff:127.0.0.1]:1", "unix:/a", "https://c.test:1", "unixs:/a" } do
      assert.equal("", warnings(endpoint), endpoint)
    end
    assert.equal("", warnings("c.test:1", true))
    assert.equal("", written_by(function() keep(keywatch.connect("http://d.test:1")) end))
  end)

  it("causes a warning if the member list has URLs without TLS #plain", function()
    local url = serve_plain { "http://member.test:1" }
    local text = written_by(function()
      local client = keep(keywatch.connect(url, { user = "u", password = "p" }))
      assert(client:sync_endpoints())
    end)
    assert.matches('instead of "http://member.test:1"\n', text, 1, true)
  end)
end)
