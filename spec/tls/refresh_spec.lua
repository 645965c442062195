--- Files that change: the next connection uses the new files; or the old ones, if the new ones are unusable.

local tls = require "keywatch.tls"

local certificates = require "spec.support.certificates"
local files = require "spec.support.files"
local pair = require "spec.support.tls_pair"
local shell = require "spec.support.shell"

describe("files that change", function()
  local scratch

  before_each(function() scratch = shell.must("mktemp -d") end)

  after_each(function() shell.must("rm -rf " .. scratch) end)

  --- Writes a file over.
  local function write(name, from) files.write(scratch .. "/" .. name, certificates.text(from)) end

  --- Puts another file in its place.
  local function replace(name, from)
    write(name .. ".new", from)
    assert(os.rename(scratch .. "/" .. name .. ".new", scratch .. "/" .. name))
  end

  --- A context of servers whose files are written.
  local function new_server()
    write("cert", "server.pem")
    write("key", "server.key")
    return assert(tls.server { cert = scratch .. "/cert", key = scratch .. "/key" })
  end

  local function served_by(client_context, server_context)
    local client = pair.shake(client_context, server_context)
    return client:error() or client:info().common_name
  end

  for how, change in pairs { written = write, replaced = replace } do
    it("are read again for the next connection when they are " .. how, function()
      local server_context, client_context = new_server(), pair.client()
      local client, server = pair.shake(client_context, server_context)
      assert.equal("server", client:info().common_name)

      assert.is_nil((server_context:trouble()))
      change("cert", "again.pem") -- the key does not fit yet
      assert.equal("server", served_by(client_context, server_context))
      assert.matches("does not fit", (server_context:trouble()))
      local ok, text, kind = server_context:refresh()
      assert.is_nil(ok)
      assert.equal("file", kind)
      assert.matches("key' of the option key has a key that does not fit", text)

      change("key", "again.key")
      assert.is_true(server_context:refresh())
      assert.is_nil((server_context:trouble()))
      client_context = pair.client() -- without a session of the old one
      assert.equal("again", served_by(client_context, server_context))

      local got = {} -- the old connection stays open
      client:write("hello")
      pair.pump(client, server, nil, {}, got)
      assert.same({ "hello" }, got)
    end)
  end

  it("are reported once", function()
    local context = new_server()
    assert.is_nil((context:news()))
    assert.is_true(context:refresh())
    assert.is_nil((context:news())) -- a file that has just been written is read again, and is the same
    replace("cert", "server.pem") -- another file with the same content
    assert.is_true(context:refresh())
    assert.is_nil((context:news()))

    local function expect_trouble(words)
      for i = 1, 3 do
        assert(context:accept()):close()
        local news, text = context:news()
        if i > 1 then
          assert.is_nil(news)
        else
          assert.equal("trouble", news)
          assert.matches(words, text)
        end
      end
      assert.matches(words, (context:trouble()))
    end

    replace("cert", "again.pem")
    expect_trouble("does not fit")
    os.remove(scratch .. "/cert")
    expect_trouble("cert' of the option cert cannot be read: No such file")
    shell.must("mkdir " .. scratch .. "/cert")
    expect_trouble("is not a regular file of at most")
    os.remove(scratch .. "/cert")
    replace("cert", "malformed.pem")
    expect_trouble("a malformed certificate")
    replace("cert", "again.pem")
    expect_trouble("does not fit")
    replace("key", "again.key")
    assert(context:accept()):close()
    assert.equal("changed", (context:news()))
    assert.is_nil((context:news()))
    assert.equal("CN=again", context:certificate().subject)
  end)

  it("end the resumption of sessions", function()
    local server_context, client_context = new_server(), pair.client()
    pair.shake(client_context, server_context)
    replace("cert", "again.pem")
    replace("key", "again.key")
    assert.equal("again", served_by(client_context, server_context))
  end)

  it("may be the trusted authorities of a client", function()
    write("ca", "stranger.pem")
    local client_context, server_context = assert(tls.client { ca = scratch .. "/ca" }), pair.server()
    assert.matches("not trusted", served_by(client_context, server_context))
    write("ca", "ca.pem")
    assert.equal("server", served_by(client_context, server_context))
    write("ca", "stranger.pem")
    assert.matches("not trusted", served_by(client_context, server_context))
  end)

  it("may have the same size, and be written in the same instant as before", function()
    local ca, stranger, server_context = certificates.text "ca.pem", certificates.text "stranger.pem", pair.server()
    local size = math.max(#ca, #stranger)
    local function fill(text) files.write(scratch .. "/ca", text .. ("\n"):rep(size - #text)) end
    for _ = 1, 10 do
      fill(ca)
      local client_context = assert(tls.client { ca = scratch .. "/ca" })
      fill(stranger)
      assert.matches("not trusted", served_by(client_context, server_context))
    end
  end)

  it("may be the revocation list, which ends sessions, too", function()
    local cert, key = certificates.paths("bob")
    write("crl", "other_crl.pem")
    local server_context = pair.server("server",
      { ca = (certificates.paths("ca")), crl = scratch .. "/crl" })
    local client_context = pair.client { cert = cert, key = key }
    local _, server = pair.shake(client_context, server_context)
    assert.equal("bob", server:info().common_name)
    write("crl", "crl.pem")
    server = select(2, pair.shake(client_context, server_context))
    assert.matches("was revoked", (server:error()))
  end)
end)
