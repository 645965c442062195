--- Memory does not grow with the number of TLS connections: full, resumed, refused and abandoned handshakes; and
-- contexts whose files change.
--
-- KW_DOSE=12 makes every dose twelve times as large.

local keywatch = require "keywatch"
local tls = require "keywatch.tls"

local certificates = require "spec.support.certificates"
local files = require "spec.support.files"
local pair = require "spec.support.tls_pair"
local resident = require "spec.support.resident"
local shell = require "spec.support.shell"

local FACTOR = require("spec.support.dose").factor
local CHANNELS, CONNECTIONS, CHANGES = 100 * FACTOR, 50 * FACTOR, 30 * FACTOR
local MIB = 1024 * 1024
local FLAT = MIB / 4 -- allowed growth: a leak of one session per connection, some 2 KiB each, is more

describe("a long-running process with TLS #once", function()
  local function expect_flat(name, n, dose) resident.expect_flat(name, n, dose, FLAT) end

  --- Opens channels of both sides, writes a little both ways, and closes them. `is_open`: the handshakes must succeed;
  -- else they must fail.
  local function shake(client_context, server_context, n, is_open)
    for i = 1, n do
      local client, server = pair.shake(client_context, server_context)
      assert(client:state().is_open == is_open)
      if is_open then
        client:write("hello")
        server:write("hello")
        pair.pump(client, server, nil, {}, {})
      end
      if i % 2 == 0 then client:finish() end
      client:close()
      server:close()
    end
  end

  for _, version in ipairs { "TLS1.2", "TLS1.3" } do
    it("does not leak sessions in " .. version, function()
      local options = { max_version = version, ca = (certificates.paths("ca")) }
      local server_context = pair.server("server", options)
      local cert, key = certificates.paths("alice")
      local client_context = pair.client { cert = cert, key = key }
      expect_flat("channels, half of them resumed,", 2 * CHANNELS, function()
        shake(client_context, server_context, CHANNELS, true)
        for i = 1, CHANNELS do -- each with another cache key: more than are stored
          local client = assert(client_context:connect("localhost", "key " .. i))
          local server = assert(server_context:accept())
          pair.pump(client, server, nil, {}, {})
          client:close()
          server:close()
        end
      end)
    end)
  end

  it("does not leak handshakes that fail, or are abandoned", function()
    local client_context, server_context = pair.client(), pair.server("expired")
    expect_flat("handshakes that fail", 2 * CHANNELS, function()
      shake(client_context, server_context, CHANNELS, false)
      for i = 1, CHANNELS do
        local client, server = assert(client_context:connect("localhost")), assert(server_context:accept())
        client:step()
        server:feed(client:pending():sub(1, 5 * i))
        server:step()
        client:close()
        server:close()
      end
    end)
  end)

  it("does not leak connections, of the client or of the server", function()
    local cert, key = certificates.paths("server")
    local authority = certificates.paths("ca")
    local server = assert(keywatch.serve { thread = true, listen = "https://127.0.0.1:0", log_level = "error",
      tls = { cert = cert, key = key } })
    local lasting = assert(keywatch.connect(server:addresses()[1], { tls = { ca = authority } }))
    lasting:put("a", ("x"):rep(50000))
    expect_flat("connections", CONNECTIONS, function()
      for _ = 1, CONNECTIONS do
        local client = assert(keywatch.connect(server:addresses()[1], { tls = { ca = authority } }))
        assert(client:get("a"))
        client:close()
      end
    end)
    lasting:close()
    server:close()
  end)

  it("frees the context of old files when the last channel with them has ended", function()
    local scratch = shell.must("mktemp -d")
    local function replace(name)
      for _, kind in ipairs { "pem", "key" } do
        local path = files.write(scratch .. "/new", certificates.text(name .. "." .. kind))
        assert(os.rename(path, scratch .. "/server." .. kind))
      end
    end
    replace "server"
    local server_context = assert(tls.server { cert = scratch .. "/server.pem", key = scratch .. "/server.key" })
    local client_context = pair.client()
    expect_flat("changes of files", CHANGES, function()
      local lasting = {} -- each with files of its own
      for i = 1, CHANGES do
        replace(i % 2 == 0 and "server" or "again")
        local client, server = pair.shake(client_context, server_context)
        assert(client:state().is_open)
        assert.equal("changed", (server_context:news()))
        lasting[i % 10] = { client, server }
      end
      for _, both in pairs(lasting) do
        both[1]:write("hello")
        local got = {}
        pair.pump(both[1], both[2], nil, {}, got)
        assert.equal("hello", table.concat(got))
      end
    end)
    shell.must("rm -rf " .. scratch)
  end)
end)
