--- In a host that uses OpenSSL itself.

local files = require "spec.support.files"
local shell = require "spec.support.shell"

local LUA_PATH = 'LUA_PATH="$PWD/build/lua5.4/share/lua/5.4/?.lua" LUA_CPATH="$PWD/build/lua5.4/lib/lua/5.4/?.so"'

describe("a host #once", function()
  local scratch

  before_each(function() scratch = shell.must("mktemp -d") end)

  after_each(function() shell.must("rm -rf " .. scratch) end)

  --- Runs Lua text in a process with a preloaded object that was made of C text.
  local function run(c, lua)
    local object, main = files.compile(scratch, "host", c), files.write(scratch .. "/main.lua", lua)
    return shell.must(("%s LD_PRELOAD=%s lua5.4 %s"):format(LUA_PATH, object, main))
  end

  for _, name in ipairs { "SSL_new", "ERR_clear_error", "EVP_PKEY_free" } do
    it("that exports " .. name .. " of an OpenSSL of its own gets an error with the reason", function()
      local printed = run(("#include <stdlib.h>\nvoid %s(void) { abort(); }"):format(name),
        'print(select(2, pcall(require, "keywatch.tls")))')
      assert.matches("^keywatch%.tls needs OpenSSL's shared libraries, but this program is linked with its own OpenSSL",
        printed)
    end)
  end

  it("that exports names of keywatch does not affect keywatch", function()
    local printed = run([[
      #include <stdlib.h>
      void kw_tls_channel_feed(void) { abort(); }
      void kw_tls_context_new(void) { abort(); }
      void kw_alloc(void) { abort(); }]], [[
      local tls = require "keywatch.tls"
      local cert, key = tls.self_sign { hosts = "localhost" }
      print(tls.server { cert = cert, key = key }:accept():feed("x"))]])
    assert.equal("1", printed)
  end)

  it("whose own OpenSSL settings are broken does not affect keywatch", function()
    local config = files.write(scratch .. "/openssl.cnf", "openssl_conf = all\n[all]\nproviders = some\n"
      .. "ssl_conf = ssl\n[some]\nnull = none\n[none]\nactivate = 1\n[ssl]\nsystem_default = own\n[own]\n"
      .. "MinProtocol = TLSv1.3\nMaxProtocol = TLSv1.3\n")
    local printed = shell.must(([[%s OPENSSL_CONF=%s lua5.4 -e '
      package.path = package.path .. ";./?.lua"
      local tls = require "keywatch.tls"
      local cert, key = tls.self_sign { hosts = "localhost" }
      local client = tls.client { ca = cert, max_version = "TLS1.2" }:connect("localhost")
      local server = tls.server { cert = cert, key = key }:accept()
      for _ = 1, 4 do
        for i, channel in ipairs { client, server } do
          channel:step()
          local bytes = channel:pending()
          if bytes ~= "" then (i == 1 and server or client):feed(bytes) end
        end
      end
      print(client:error(), client:info().version)']]):format(LUA_PATH, config))
    assert.equal("nil\tTLSv1.2", printed)
  end)
end)
