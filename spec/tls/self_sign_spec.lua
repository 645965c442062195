--- Self-signed certificates (auto-tls).

local tls = require "keywatch.tls"

local pair = require "spec.support.tls_pair"
local shell = require "spec.support.shell"

describe("a self-signed certificate", function()
  local scratch

  before_each(function() scratch = shell.must("mktemp -d") end)

  after_each(function() shell.must("rm -rf " .. scratch) end)

  it("is for the given hosts, and is trusted by clients that have it", function()
    local cert, key = tls.self_sign { hosts = "localhost,127.0.0.1,::1,*.example.test" }
    local server_context = assert(tls.server { cert = cert, key = key })
    local client_context = assert(tls.client { ca = cert })
    for _, host in ipairs { "localhost", "127.0.0.1", "::1", "a.example.test" } do
      local client, server = pair.shake(client_context, server_context, host)
      assert.is_nil((client:error()))
      assert.is_true(server:state().is_open)
    end
    local client = pair.shake(client_context, server_context, "elsewhere.test")
    assert.matches("is for another name: it is for localhost, 127%.0%.0%.1, ::1, %*%.example%.test", (client:error()))
    client = pair.shake(pair.client(), server_context)
    assert.matches("is self%-signed", (client:error()))
  end)

  it("is recognized by openssl as ECDSA on P-256, for the given years", function()
    local cert, key = scratch .. "/cert.pem", scratch .. "/key.pem"
    assert.is_true(tls.self_sign { hosts = "localhost", years = 10, directory = scratch })
    local text = shell.must(("openssl x509 -in %s -noout -text"):format(cert))
    assert.matches("prime256v1", text)
    assert.matches("ecdsa%-with%-SHA256", text)
    assert.matches("DNS:localhost", text)
    assert.matches("TLS Web Server Authentication, TLS Web Client Authentication", text)
    assert.matches("CA:FALSE", text)
    shell.must(("openssl x509 -in %s -noout -checkend %d"):format(cert, 3649 * 86400))
    assert.is_false((shell.run(("openssl x509 -in %s -noout -checkend %d"):format(cert, 3651 * 86400))))
    shell.must(("openssl verify -CAfile %s %s"):format(cert, cert))
    shell.must(("openssl pkey -in %s -noout"):format(key))
  end)

  it("has a new key and a new serial number each time", function()
    local first, first_key = tls.self_sign { hosts = "a" }
    local second, second_key = tls.self_sign { hosts = "a" }
    assert.not_equal(first, second)
    assert.not_equal(first_key, second_key)
  end)

  it("has a file with its key that only its user can read, with any umask", function()
    local cert, key = scratch .. "/cert.pem", scratch .. "/key.pem"
    shell.must("umask 0; : >" .. key .. ".new; : >" .. key) -- leftover files
    assert.is_true(tls.self_sign { hosts = "localhost", directory = scratch })
    assert.equal("600 644", shell.must(("stat -c %%a %s %s | xargs"):format(key, cert)))
    assert.equal("cert.pem\nkey.pem", shell.must("ls " .. scratch))
    assert.truthy(tls.server { cert = cert, key = key })
  end)

  it("is written below a directory, which only its user can enter", function()
    local directory = scratch .. "/fixtures/client"
    for _ = 1, 2 do -- the second one replaces the first
      assert.is_true(tls.self_sign { hosts = "localhost", directory = directory })
      assert.equal("700 700 600 644", shell.must(("stat -c %%a %s %s/.. %s/key.pem %s/cert.pem | xargs"):format(
        directory, directory, directory, directory)))
      assert.truthy(tls.server { cert = directory .. "/cert.pem", key = directory .. "/key.pem" })
    end
    shell.must(": >" .. scratch .. "/file")
    local ok, text = tls.self_sign { hosts = "localhost", directory = scratch .. "/file/below" }
    assert.is_nil(ok)
    assert.matches("the directory '[^']+/file/below' cannot be used: Not a directory", text)
  end)

  it("has a description", function()
    local cert, key = tls.self_sign { hosts = "localhost,10.0.0.1,*.example.test", years = 2 }
    local context = assert(tls.server { cert = cert, key = key })
    local certificate = context:certificate()
    assert.same({ "O=keywatch", "O=keywatch", "localhost, 10.0.0.1, *.example.test" },
      { certificate.subject, certificate.issuer, certificate.names })
    local days = (certificate.not_after - os.time()) / 86400
    assert.is_true(days > 729 and days <= 730, days)
    assert.is_true(certificate.not_before < os.time())
    assert.same({ true, true, true, true, false, false, false }, {
      context:is_for("localhost"), context:is_for("10.0.0.1"), context:is_for("[10.0.0.1]"),
      context:is_for("a.example.test"), context:is_for("10.0.0.2"), context:is_for(""), context:is_for("local\0host"),
    })
    assert.is_nil(tls.client { verify = false }:certificate())
    assert.is_false(tls.client { verify = false }:is_for("localhost"))
  end)

  it("is not made for malformed hosts, nor for an invalid number of years", function()
    local function expect_refused(words, options) pair.expect_refused("option", words, tls.self_sign(options)) end
    expect_refused("'' is not a host name", {})
    expect_refused("'' is not a host name", { hosts = "a,,b" })
    expect_refused("'a b' is not a host name", { hosts = "a b" })
    expect_refused("is not a host name", { hosts = ("x"):rep(300) })
    for _, years in ipairs { 0, 1.5, 2000 } do
      expect_refused("a whole number from 1 to 1000", { hosts = "a", years = years })
    end
  end)

  it("is not written where it cannot be", function()
    pair.expect_refused("file", "the directory '/proc/no/such' cannot be used: No such file",
      tls.self_sign { hosts = "a", directory = "/proc/no/such" })
  end)
end)
