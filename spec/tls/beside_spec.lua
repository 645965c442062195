--- Beside libraries that use OpenSSL themselves, in one program: LuaSec, luaossl and cqueues.

local certificates = require "spec.support.certificates"
local program = require "spec.support.program"

-- A server in a thread, and clients that trust it, or do not. `preface` speaks HTTP/2 by LuaSec.
local BEGIN = [[
  local path = %q
  local function serve()
    server = assert(keywatch.serve { thread = true, listen = "https://127.0.0.1:0",
      tls = { cert = path .. "/server.pem", key = path .. "/server.key" } })
    port = tonumber(server:addresses()[1]:match(":(%%d+)$"))
  end
  local function connect(authority)
    return assert(keywatch.connect("https://127.0.0.1:" .. port, { tls = { ca = path .. authority } }))
  end
  local function work()
    local client = connect "/ca.pem"
    print(client:put("a", "1") ~= nil)
    client:close()
    client = connect "/stranger.pem"
    local why
    repeat
      local _, err = client:get("a", { timeout = 0.1 })
      why = err.message:match("signed by [^(]*")
    until why
    print(why)
    client:close()
  end
  local function wrap(authority)
    local socket = assert(require("socket").connect("127.0.0.1", port))
    return assert(require("ssl").wrap(socket, { mode = "client", protocol = "any", verify = "peer",
      cafile = path .. authority, alpn = "h2" }))
  end
  local function preface()
    local connection = wrap "/ca.pem"
    assert(connection:dohandshake())
    connection:send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
    print(connection:getalpn(), connection:receive(9):byte(4))
    connection:close()
    connection = wrap "/stranger.pem"
    print(connection:dohandshake())
    connection:close()
  end
]]

local function expect(printed, text)
  local status, found = program.run(BEGIN:format(certificates.directory()) .. text, 30)
  found = found:gsub("\t", " "):gsub("[^\n]* warn [^\n]*\n", "")
  assert.same({ 0, printed }, { status, found })
end

local WORKED = "true\nsigned by an authority that is not trusted \n"
local SPOKEN = "h2 4\nfalse certificate verify failed\n"

describe("beside LuaSec", function()
  it("both speak TLS, and each has its own errors, whichever was loaded first", function()
    expect((WORKED .. SPOKEN):rep(3), [[
      keywatch = require "keywatch"
      serve()
      for _ = 1, 3 do work() preface() end
    ]])
    expect((SPOKEN .. WORKED):rep(3), [[
      require "ssl"
      keywatch = require "keywatch"
      serve()
      for _ = 1, 3 do preface() work() end
    ]])
  end)

  it("a connection of LuaSec continues while keywatch's fail, and are collected", function()
    expect("h2 4\n" .. WORKED:rep(2) .. "4\n", [[
      keywatch = require "keywatch"
      serve()
      local connection = wrap "/ca.pem"
      assert(connection:dohandshake())
      connection:send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
      local head = connection:receive(9)
      print(connection:getalpn(), head:byte(4))
      connection:receive(head:byte(2) * 256 + head:byte(3))
      work()
      collectgarbage()
      work()
      print((connection:receive(9) or ("?"):rep(4)):byte(4))
    ]])
  end)
end)

-- Not under sanitizers: the texts of luaossl's errors have the name of a file whose memory OpenSSL has freed.
describe("beside luaossl #once", function()
  it("errors that luaossl has left do not appear in keywatch, nor the reverse", function()
    expect("true\ntrue\n" .. WORKED .. "false\ntrue\n", [[
      local x509, pkey = require "openssl.x509", require "openssl.pkey"
      local key = pkey.new { type = "EC", curve = "prime256v1" }
      local text = key:toPEM("private")
      print(text:find("PRIVATE KEY") ~= nil)
      keywatch = require "keywatch"
      serve()
      print(not pcall(x509.new, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"))
      work()
      local ok, err = pcall(pkey.new, "no key")
      print(ok)
      print(err:find("certificate verify failed", 1, true) == nil)
    ]])
  end)

  it("keywatch uses certificates and keys that luaossl has made", function()
    expect("1\n", [[
      local x509, pkey = require "openssl.x509", require "openssl.pkey"
      local name, altname = require "openssl.x509.name", require "openssl.x509.altname"
      local key, certificate = pkey.new { type = "EC", curve = "prime256v1" }, x509.new()
      certificate:setVersion(3)
      certificate:setSerial(1)
      certificate:setSubject(name.new():add("CN", "made here"))
      certificate:setIssuer(name.new():add("CN", "made here"))
      certificate:setSubjectAlt(altname.new():add("IP", "127.0.0.1"))
      certificate:setLifetime(os.time() - 60, os.time() + 3600)
      certificate:setPublicKey(key)
      certificate:sign(key)
      local cert = certificate:toPEM()
      keywatch = require "keywatch"
      local server = assert(keywatch.serve { store = keywatch.open(), listen = "https://127.0.0.1:0",
        tls = { cert = cert, key = key:toPEM("private") } })
      local client = assert(keywatch.connect(server:addresses()[1], { tls = { ca = cert } }))
      client:put("a", "1")
      print(client:get("a").value)
    ]])
  end)
end)

describe("beside cqueues", function()
  it("a cqueues socket with TLS and keywatch's work in one loop", function()
    expect("h2 4\ntrue\n", [[
      local cqueues, socket = require "cqueues", require "cqueues.socket"
      local context = require("openssl.ssl.context").new("TLS", false)
      context:setAlpnProtos { "h2" }
      keywatch = require "keywatch"
      serve()
      local loop, left = cqueues.new(), 2
      loop:wrap(function()
        local one = socket.connect("127.0.0.1", port)
        one:setmode("bn", "bn")
        assert(one:starttls(context))
        assert(one:write("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"))
        print(one:checktls():getAlpnSelected(), one:read(9):byte(4))
        one:close()
        left = left - 1
      end)
      loop:wrap(function()
        while left > 0 do
          cqueues.poll(keywatch)
          keywatch.step()
        end
      end)
      keywatch.spawn(function()
        local client = connect "/ca.pem"
        while left > 1 do assert(client:put("a", "1")) end
        print(client:put("a", "1") ~= nil)
        left = left - 1
      end)
      assert(loop:loop())
    ]])
  end)
end)
