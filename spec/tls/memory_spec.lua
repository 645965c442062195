--- Memory that runs out, memory that is given back, and OpenSSL's queue of errors. They need a probe.

local tls = require "keywatch.tls"

local certificates = require "spec.support.certificates"
local files = require "spec.support.files"
local pair = require "spec.support.tls_pair"

local probe = tls.probe

if not probe then return end

local SIZE = 20000 -- bytes that are more than one record

local function collect()
  collectgarbage()
  collectgarbage() -- objects that the first collection has finalized
end

describe("memory", function()
  local options, client_options
  local has_resumed = false

  setup(function()
    local cert, key = certificates.paths("server")
    options = { cert = cert, key = key, ca = (certificates.paths("ca")), crl = (certificates.paths("crl")),
      cipher_suites = "TLS_AES_128_GCM_SHA256", allowed_hostname = "alice.test" }
    cert, key = certificates.paths("alice")
    client_options = { cert = cert, key = key, ca = options.ca, server_name = "localhost" }
  end)

  --- Connects twice. Returns an error's text, if there was one.
  local function connect_to(server_options)
    local server_context, text = tls.server(server_options)
    if not server_context then return text end
    local client_context
    client_context, text = tls.client(client_options)
    if not client_context then return text end
    local client, server
    for i = 1, 2 do -- the second one resumes, unless the server verifies clients
      client, text = client_context:connect("localhost")
      if not client then return text end
      server, text = server_context:accept()
      if not server then return text end
      pair.pump(client, server, nil, {}, {})
      local failure, kind = client:error()
      if kind == "memory" then return failure end
      failure, kind = server:error()
      if kind == "memory" then return failure end
      client:write(("x"):rep(SIZE))
      server:write("you")
      local got = {}
      pair.pump(client, server, nil, {}, got)
      client:finish()
      pair.pump(client, server, nil, {}, got)
      if #table.concat(got) ~= SIZE then
        return client:error() or server:error() or "lost"
      end
      has_resumed = has_resumed or i == 2 and client:info().is_resumed
    end
    client:close()
    server:close()
    client_context:close()
    server_context:close()
  end

  --- Everything that allocates. Returns an error's text, if there was one.
  local function whole()
    return connect_to(options) or connect_to { cert = options.cert, key = options.key }
  end

  it("is freed", function()
    collect()
    local base = probe.live()
    assert.is_nil(whole())
    assert.is_true(has_resumed)
    collect()
    assert.equal(base, probe.live())
  end)

  it("may run out at every allocation of keywatch: that is reported, and nothing is lost #starved", function()
    collect()
    local base, failures = probe.live(), 0
    for n = 1, 1000 do
      local before = probe.allocations()
      probe.fail_at(n)
      local text = whole()
      local is_come_to = probe.allocations() - before >= n
      probe.fail_at(0)
      collect()
      assert.equal(base, probe.live())
      assert.equal(0, probe.errors())
      if not is_come_to then
        assert.is_nil(text)
        assert.is_true(failures > 10, failures)
        return
      end
      if text then
        failures = failures + 1
        assert.matches("not enough memory", text)
      end
    end
    error("there is no end")
  end)

  it("may run out while files are read again: they are read later #starved", function()
    local path = os.tmpname()
    local function write(name) files.write(path, certificates.text(name)) end
    write("crl.pem")
    local server_context = assert(tls.server { cert = options.cert, key = options.key, ca = options.ca, crl = path })
    local failures = 0
    for n = 1, 100 do
      write(n % 2 == 0 and "crl.pem" or "old_crl.pem")
      local before = probe.allocations()
      probe.fail_at(n)
      local ok, text, kind = server_context:refresh()
      local is_come_to = probe.allocations() - before >= n
      probe.fail_at(0)
      if not ok then
        failures = failures + 1
        assert.same({ "not enough memory", "memory" }, { text, kind })
        assert.is_true(server_context:refresh())
        assert.equal("changed", (server_context:news()))
      end
      if not is_come_to then break end
    end
    assert.is_true(failures > 0)
    os.remove(path)
  end)

  it("is not held by an idle channel", function()
    local client, server = pair.shake(pair.client(), pair.server())
    local idle = probe.live()
    client:write("hello")
    server:feed(client:pending())
    assert.is_true(probe.live() > idle)
    pair.work(server, {})
    assert.equal(idle, probe.live())
  end)

  it("for ciphertext is shared by all channels of a context, one after the other", function()
    collect()
    local client_context, server_context = pair.client(), pair.server()
    local pairs_of = {}
    for i = 1, 3 do pairs_of[i] = { pair.shake(client_context, server_context) } end
    local idle = probe.live()

    --- Lets clients write at the same time. Returns the bytes that the servers received.
    local function send(...)
      local texts = { ... }
      for i, text in ipairs(texts) do assert.equal(#text, pairs_of[i][1]:write(text)) end
      for i in ipairs(texts) do
        local got = {}
        pair.move(pairs_of[i][1], pairs_of[i][2], nil, got)
        texts[i] = table.concat(got)
      end
      return texts
    end

    local a, b, c = ("a"):rep(60000), ("b"):rep(30000), "c"
    assert.same({ a }, send(a))
    local busy = probe.live()
    assert.is_true(busy > idle)
    assert.same({ c, b }, send(c, b))
    assert.same({ a, b, c }, send(a, b, c))
    assert.equal(busy, probe.live())
    for _, two in ipairs(pairs_of) do
      two[1]:close()
      two[2]:close()
    end
    client_context:close()
    server_context:close()
  end)
end)

describe("OpenSSL's queue of errors", function()
  before_each(function() probe.errors() end)

  it("is left empty by every failure", function()
    local path = certificates.directory()
    local trials = {
      function() tls.client { ca = "/no/such" } end,
      function() tls.client { ca = path .. "/malformed.pem" } end,
      function() tls.client { ca = path .. "/cut.pem" } end,
      function() tls.client { cert = path .. "/server.pem", key = path .. "/alice.key" } end,
      function() tls.client { cert = path .. "/server.pem", key = path .. "/encrypted.key" } end,
      function() tls.client { cipher_suites = "TLS_WORDS" } end,
      function() tls.self_sign { hosts = "a b" } end,
      function() tls.self_sign { hosts = "a", directory = "/proc/no/such" } end,
      function() pair.client():connect(("x"):rep(1000)) end,
      function() pair.client():connect("a\1b") end,
    }
    for i, trial in ipairs(trials) do
      trial()
      assert.equal(0, probe.errors(), i)
    end
    for _, name in ipairs { "server", "expired", "strange", "other", "self" } do
      local client, server = pair.shake(pair.client(), pair.server(name))
      assert.equal(0, probe.errors(), name)
      server:feed("\21\3\3\0\2\2\40")
      pair.work(server, {})
      assert.equal(0, probe.errors(), name)
      client:close()
      server:close()
      assert.equal(0, probe.errors(), name)
    end
  end)

  it("keeps the host's errors when objects are collected, even during the host's calls", function()
    local context = pair.client()
    local server_context = pair.server("expired")
    local client, server = pair.shake(context, server_context)
    local another = context:connect("localhost")
    assert.is_string((client:error()))
    probe.fault()
    for _, object in ipairs { client, server, another, context, server_context } do
      if object == context then probe.fault() end
      object:close()
    end
    assert.equal(2, probe.errors())
  end)

  it("does not affect keywatch when a host has left an error there", function()
    probe.fault()
    local client_context, server_context = pair.client(), pair.server()
    probe.fault()
    local client, server = client_context:connect("localhost"), server_context:accept()
    local got = {}
    for _ = 1, 5 do
      probe.fault()
      client:step()
      probe.fault()
      pair.move(client, server)
      probe.fault()
      pair.move(server, client)
    end
    assert.is_true(client:state().is_open and server:state().is_open)
    probe.fault()
    client:write("hello")
    server:feed(client:pending())
    probe.fault()
    got[1] = server:read()
    probe.fault()
    got[2] = server:read() -- nothing there is no failure
    assert.same({ "hello", "" }, got)
    assert.is_nil((server:error()))
    probe.fault()
    assert.is_string((tls.self_sign { hosts = "a" }))
    assert.equal(0, probe.errors())
  end)
end)
