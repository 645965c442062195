--- TLS and mutual TLS with other people's clients, against keywatch's server or, in the pass etcd, a real etcd; and
-- keywatch's client against a real etcd, in its own loop and in luv's.
--
-- An identity is { ca, cert, key }: the files of the authority that a client trusts, and optionally of its own
-- certificate.

local keywatch = require "keywatch"

local certificates = require "spec.support.certificates"
local etcdctl = require "spec.support.etcdctl"
local node = require "spec.support.node"
local process = require "spec.support.process"
local program = require "spec.support.program"
local python = require "spec.support.python"
local server = require "spec.support.server"

local PATIENCE = 20 -- seconds

local function path(name) return certificates.directory() .. "/" .. name end

--- Trusts an authority, and shows the certificate of that name, if any.
local function identity(ca, name)
  return { ca = path(ca .. ".pem"), cert = name and path(name .. ".pem"), key = name and path(name .. ".key") }
end

--- Starts a server with TLS; with `is_mutual`, one that requires client certificates.
local function start(is_mutual, kind)
  local options = { is_tls = true, kind = kind }
  if is_mutual then
    for _, word in ipairs { "--client-cert-auth", "--trusted-ca-file", path "ca.pem" } do
      options[#options + 1] = word
    end
  end
  return server.start(options)
end

-- Clients that are served ---------------------------------------------------------------------------------------------

local works = {}

function works.etcdctl(peer, who)
  local ctl = etcdctl.new(peer, who)
  local first = ctl:revision() + 1
  assert.equal("OK\n", ctl:must { "put", "ctl/a", "1" })
  assert.equal("ctl/a\n1\n", ctl:must { "get", "ctl/a" })
  assert.equal("SUCCESS\n\nOK\n", ctl:must { "txn", input = 'value("ctl/a") = "1"\n\nput ctl/a 2\n\n\n' })
  local watch = ctl:start { "watch", "ctl/", "--prefix", "--rev=" .. first }
  watch:expect("^PUT\nctl/a\n1\nPUT\nctl/a\n2\n")
  local lease = ctl:must { "lease", "grant", "600" }:match("^lease (%x+) granted")
  ctl:must { "put", "ctl/leased", "1", "--lease", lease }
  watch:expect("^PUT\nctl/leased\n1\n")
  assert.matches("keepalived with TTL%(600%)", ctl:must { "lease", "keep-alive", "--once", lease })
  ctl:must { "lease", "revoke", lease }
  watch:expect("^DELETE\nctl/leased\n")
end

--- Runs cases of a client in another language.
local function run_cases(client, names)
  finally(function() client:stop() end)
  for _, name in ipairs(names) do client:case(name) end
end

function works.Python(peer, who)
  run_cases(python.new(peer, who), { "put_and_get", "transaction", "watch_iterator", "lease", "large_answer" })
end

function works.Node(peer, who)
  run_cases(node.new(peer, who), { "put_and_get", "large_values", "transactions", "watch_key", "lease" })
end

-- Clients that are refused --------------------------------------------------------------------------------------------

local fails = {} -- each returns the client's text of the failure

function fails.etcdctl(peer, who)
  return etcdctl.new(peer, who):fail { "put", "a", "refused", "--command-timeout", "1s" }
end

--- Makes a client in another language report why it cannot connect.
local function ask_why(client)
  local ok, text = pcall(client.case, client, "no_connection")
  client:stop()
  assert(ok, text)
  return text
end

function fails.Python(peer, who) return ask_why(python.new(peer, who)) end
function fails.Node(peer, who) return ask_why(node.new(peer, who)) end

-- The texts of the clients, and the log of keywatch's server.
local WRONG_CA = {
  etcdctl = "^context deadline exceeded$",
  Python = "certificate verify failed",
  Node = "unable to verify the first certificate",
  log = "the client has ", -- refused our certificate; Python's disconnects without an alert
}

local NO_CERTIFICATE = {
  etcdctl = "^context deadline exceeded$",
  Python = "failed to connect to all addresses",
  Node = "No connection established",
  log = "sent no certificate",
}

local WRONG_CERTIFICATE = {
  etcdctl = "^context deadline exceeded$",
  Python = "failed to connect to all addresses",
  Node = "No connection established",
  log = "not trusted",
}

local PEERS = { "etcdctl", "Python", "Node" }

--- Expects that the log of keywatch's server has one line of each connection that was rejected.
local function expect_one_line_each(peer)
  local seen = {}
  for remote in peer:log():gmatch("connection from (%S+) rejected: ") do
    assert.is_nil(seen[remote], "two lines of " .. remote)
    seen[remote] = true
  end
end

--- Has all clients refused by a server of its own, whose log is not yet rate-limited.
local function refuse_all(is_mutual, who, words)
  local peer = start(is_mutual)
  finally(function()
    process.end_all()
    peer:stop()
  end)
  for _, name in ipairs(PEERS) do
    assert.matches(words[name], fails[name](peer, who))
    if not peer.is_etcd then
      peer.process:expect_error("connection from 127%.0%.0%.1:%d+ rejected: [^\n]-" .. words.log)
    end
  end
  if not peer.is_etcd then expect_one_line_each(peer) end
  assert.equal("", etcdctl.new(peer, identity("ca", "alice")):must { "get", "a" })
end

for _, kind in ipairs { "TLS", "mutual TLS" } do
  local is_mutual = kind == "mutual TLS"

  describe(("a server with %s #once #peer"):format(kind), function()
    local peer

    local function our_identity() return identity("ca", is_mutual and "alice" or nil) end

    setup(function() peer = start(is_mutual) end)
    after_each(function()
      process.end_all()
      etcdctl.new(peer, our_identity()):must { "del", "", "--prefix" }
    end)
    teardown(function() if peer then peer:stop() end end)

    for _, name in ipairs(PEERS) do
      it("serves " .. name, function() works[name](peer, our_identity()) end)
    end

    it("is not trusted by clients of another authority", function()
      refuse_all(is_mutual, identity("stranger", is_mutual and "alice" or nil), WRONG_CA)
    end)

    if is_mutual then
      it("refuses clients without a certificate", function()
        refuse_all(is_mutual, identity "ca", NO_CERTIFICATE)
      end)

      it("refuses clients with a certificate of another authority", function()
        refuse_all(is_mutual, identity("ca", "mallory"), WRONG_CERTIFICATE)
      end)
    else
      it("serves clients with a certificate, too", function()
        assert.equal("OK\n", etcdctl.new(peer, identity("ca", "mallory")):must { "put", "b", "1" })
      end)
    end
  end)
end

if not server.is_etcd then -- 3.4 has no flags for versions
  describe("a server with TLS 1.2 alone #once", function()
    after_each(process.end_all)

    it("serves etcdctl, and refuses OpenSSL with TLS 1.1, with another protocol, and when it renegotiates", function()
      local peer = server.start { is_tls = true, "--tls-min-version", "TLS1.2", "--tls-max-version", "TLS1.2" }
      local ctl = etcdctl.new(peer, identity "ca")
      assert.equal("OK\n", ctl:must { "put", "a", ("x"):rep(100000) })
      assert.equal("a\n" .. ("x"):rep(100000) .. "\n", ctl:must { "get", "a" })
      local argv = { "openssl", "s_client", "-connect", peer.address, "-CAfile", path "ca.pem" }
      local function s_client(...)
        local done = process.run({ (table.unpack or unpack)(argv) }, "", ...)
        return done:stdout() .. done:stderr()
      end
      argv[7], argv[8] = "-alpn", "h3"
      assert.matches("alert number 120", s_client())
      argv[8] = "h2"
      assert.matches("ALPN protocol: h2", s_client())
      local client = process.start { (table.unpack or unpack)(argv) }
      client:expect("Extended master secret")
      client:write("R\n")
      client:expect_error("no renegotiation")
      client:wait()
      argv[9], argv[10], argv[11] = "-tls1_1", "-cipher", "ALL:@SECLEVEL=0"
      assert.matches("alert", s_client())
      peer:stop()
    end)
  end)
end

-- keywatch's client at etcd -------------------------------------------------------------------------------------------

-- Lua code of a function of a client, which does all that clients do, and returns what came.
local EVERYTHING = [[
  return function(client)
    local got = {}
    local watch = assert(client:watch("lua/", { prefix = true }))
    assert(client:put("lua/a", "1"))
    got[#got + 1] = assert(client:get("lua/a")).value
    local txn = assert(client:txn {
      compare = { { key = "lua/a", value = "1" } },
      success = { { put = "lua/a", value = ("2"):rep(200000) } },
    })
    got[#got + 1] = tostring(txn.succeeded)
    local lease = assert(client:lease(60))
    assert(client:put("lua/leased", "1", { lease = lease }))
    assert(lease:revoke())
    for _ = 1, 4 do
      local event = assert(watch:next(20))
      got[#got + 1] = ("%s %s %d"):format(event.type, event.key, #(event.value or ""))
    end
    watch:close()
    assert(client:delete("lua/", { prefix = true }))
    return table.concat(got, "\n")
  end
]]

local EVERYTHING_CAME = "1\ntrue\nput lua/a 1\nput lua/a 200000\nput lua/leased 1\ndelete lua/leased 0"

local load_text = rawget(_G, "loadstring") or load

local IN_LUV = [[
  local uv = require "luv"
  local keywatch = require "keywatch"
  local everything = (function() %s end)()
  local ticker = uv.new_timer()
  ticker:start(1, 1, function() end)
  keywatch.spawn(function()
    local client = keywatch.connect(%q, { tls = { ca = %q, cert = %s, key = %s } })
    print(select(2, pcall(everything, client)))
    client:close()
    ticker:close()
  end)
  uv.run()
]]

for _, kind in ipairs { "TLS", "mutual TLS" } do
  local is_mutual = kind == "mutual TLS"

  describe(("keywatch's client at an etcd with %s #slow"):format(kind), function()
    local etcd

    setup(function() etcd = start(is_mutual, "etcd") end)
    teardown(function() if etcd then etcd:stop() end end)

    local function connect(who, more)
      for name, value in pairs(more or {}) do who[name] = value end
      local client = assert(keywatch.connect(etcd.url, { tls = who, timeout = PATIENCE }))
      finally(function() client:close() end)
      return client
    end

    local function our_identity() return identity("ca", is_mutual and "alice" or nil) end

    for _, version in ipairs { "TLS1.2", "TLS1.3" } do
      it("has all of its functions, in " .. version, function()
        local client = connect(our_identity(), { min_version = version, max_version = version })
        assert.equal(EVERYTHING_CAME, load_text(EVERYTHING)()(client))
      end)
    end

    it("has all of its functions in luv's loop", function()
      local who = our_identity()
      local function quoted(text) return text and ("%q"):format(text) or "nil" end
      local status, printed = program.run(
        IN_LUV:format(EVERYTHING, etcd.url, who.ca, quoted(who.cert), quoted(who.key)), 60)
      assert.same({ 0, EVERYTHING_CAME .. "\n" }, { status, printed })
    end)

    --- Expects that a connection fails, and why.
    local function expect_failure(words, who, more)
      local client = connect(who, more)
      assert.matches(words, client:health({ timeout = PATIENCE })[1].err.message)
    end

    it("does not trust an etcd of another authority", function()
      expect_failure("not trusted", identity("stranger", is_mutual and "alice" or nil))
    end)

    it("does not trust an etcd of another name", function()
      expect_failure("server 'elsewhere%.test' is for another name", our_identity(), { server_name = "elsewhere.test" })
    end)

    if is_mutual then
      it("is refused by etcd without a certificate, or with a wrong one", function()
        expect_failure("the server has refused the connection: .*certificate", identity "ca")
        expect_failure("the server has refused the connection: our certificate", identity("ca", "mallory"))
      end)
    end
  end)
end
