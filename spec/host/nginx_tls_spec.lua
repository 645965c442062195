--- TLS inside of nginx, which has OpenSSL itself: a channel over a plain cosocket, and clients where they may wait.

local certificates = require "spec.support.certificates"
local nginx_stage = require "spec.support.nginx_stage"
local server = require "spec.support.server"

-- Contexts are made in init, before the worker is there, and used in the worker.
local INIT = [[
  path = %q
  tls = require "keywatch.tls"
  context = assert(tls.client { ca = path .. "/ca.pem", cert = path .. "/alice.pem", key = path .. "/alice.key" })
  stranger = assert(tls.client { ca = path .. "/stranger.pem" })
]]

local SERVE = [[
  server = assert(keywatch.serve { thread = true, listen = "https://127.0.0.1:0",
    tls = { cert = path .. "/server.pem", key = path .. "/server.key" } })
  port = tonumber(server:addresses()[1]:match(":(%d+)$"))
]]

-- Speaks HTTP/2 over a channel: what a driver on cosockets does. Returns the types of the first frames of the server.
local SPEAK = [[
  local function speak(from)
    local channel = assert(from:connect("localhost", "localhost:" .. port))
    local socket = ngx.socket.tcp()
    assert(socket:connect("127.0.0.1", port))
    socket:settimeout(20000)
    local function turn()
      local state = channel:state()
      while state.has_work do
        channel:step()
        state = channel:state()
      end
      local bytes = channel:pending()
      if bytes ~= "" then assert(socket:send(bytes)) end
      return state
    end
    local state = turn()
    local function receive()
      local bytes = assert(socket:receiveany(16384))
      assert(channel:feed(bytes) == #bytes)
      state = turn()
    end
    while not state.is_open and not state.is_done do receive() end
    if state.is_done then
      socket:close()
      return (channel:error())
    end
    channel:write("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0" .. "\0\0\8\6\0\0\0\0\0" .. "keywatch")
    turn()
    local text, types = "", {}
    repeat
      while not channel:state().may_read do receive() end
      text = text .. channel:read()
      while #text >= 9 do
        local len = text:byte(2) * 256 + text:byte(3)
        if #text < 9 + len then break end
        types[text:byte(4)] = text:sub(10, 9 + len)
        text = text:sub(10 + len)
      end
    until types[4] and types[6]
    channel:finish()
    turn()
    socket:close()
    local info = channel:info()
    channel:close()
    return types[6], info.version, info.is_resumed
  end
]]

describe("TLS in nginx #once #peer", function()
  nginx_stage.with_tests()

  local function run(texts)
    texts.init = INIT:format(certificates.directory()) .. (texts.init or "")
    return nginx_stage.said(texts)
  end

  it("a channel over a plain cosocket speaks HTTP/2 to keywatch, resumes sessions, and reports refusals",
    function()
      local said, errors = run {
        init_worker = SERVE,
        content = SPEAK .. [[
          say(speak(context))
          say(speak(context))
          say((speak(stranger):match("signed by [^(]*")))
          say(speak(context))
        ]],
      }
      assert.equal("keywatch TLSv1.3 false\nkeywatch TLSv1.3 true\nsigned by an authority that is not trusted \n"
        .. "keywatch TLSv1.3 true\n", said, errors)
    end)

  it("nginx's own TLS, which fails in between, has its own errors, and keywatch has its own", function()
    local said, errors = run {
      init_worker = SERVE,
      content = SPEAK .. [[
        for _ = 1, 2 do
          local socket = ngx.socket.tcp()
          assert(socket:connect("127.0.0.1", ngx.var.server_port))
          say(socket:sslhandshake(nil, "localhost", false)) -- with this server, which does not speak TLS
          say((speak(stranger):match("signed by [^(]*")))
          say(speak(context) == "keywatch")
        end
      ]],
    }
    assert.equal(("nil handshake failed\nsigned by an authority that is not trusted \ntrue\n"):rep(2), said, errors)
    local _, n = errors:gsub("SSL_do_handshake%(%) failed [^\n]*wrong version number", "")
    assert.equal(2, n, errors)
    assert.is_nil(errors:match("verify failed"), errors)
  end)

  --- Calls fn(port) with an etcd that speaks mutual TLS.
  local function with_etcd(fn)
    local etcd = server.start { kind = "etcd", is_tls = true, "--client-cert-auth", "--trusted-ca-file",
      (certificates.paths("ca")) }
    local ok, err = pcall(fn, etcd.port)
    etcd:stop()
    if not ok then error(err, 0) end
  end

  it("a channel over a plain cosocket speaks HTTP/2 to an etcd", function()
    with_etcd(function(port)
      local said, errors = run { content = ("port = %d\n"):format(port) .. SPEAK .. "say(speak(context))" }
      assert.equal("keywatch TLSv1.3 false\n", said, errors)
    end)
  end)

  -- What a worker does with a client, over and over on new connections: large values cross records in both directions.
  local WORK = [[
    for _ = 1, 3 do
      local client = assert(keywatch.connect(url, { tls = {
        ca = path .. "/ca.pem", cert = path .. "/alice.pem", key = path .. "/alice.key" } }))
      local value = ("x"):rep(300000)
      local watch = assert(client:watch("big"))
      keywatch.spawn(function() assert(client:put("big", value)) end)
      say(watch:next(60).value == value, client:get("big").value == value)
      client:close()
    end
    local stranger = assert(keywatch.connect(url, { tls = { ca = path .. "/stranger.pem" } }))
    local _, err = stranger:get("a", { timeout = 1 })
    say(err.code, (tostring(err):match("signed by an authority that is not trusted")))
  ]]
  local WORKED = ("true true\n"):rep(3) .. "unavailable signed by an authority that is not trusted\n"

  it("a client of a worker speaks mutual TLS to keywatch", function()
    local said, errors = run {
      init_worker = SERVE .. "\nurl = 'https://127.0.0.1:' .. port",
      content = WORK,
    }
    assert.equal(WORKED, said, errors)
    assert.is_nil(errors:match("%[error%][^\n]*"), errors)
  end)

  it("a client of a worker speaks mutual TLS to an etcd", function()
    with_etcd(function(port)
      local said, errors = run { init_worker = ("url = 'https://localhost:%d'"):format(port), content = WORK }
      assert.equal(WORKED, said, errors)
      assert.is_nil(errors:match("%[error%][^\n]*"), errors)
    end)
  end)

  for _, phase in ipairs { "init", "init_worker" } do
    it("a client waits in " .. phase .. " in addition to nginx's own TLS", function()
      local said, errors = run { [phase] = SERVE .. [[
        local client = assert(keywatch.connect("https://127.0.0.1:" .. port, { tls = {
          ca = path .. "/ca.pem", cert = path .. "/alice.pem", key = path .. "/alice.key" } }))
        say(assert(client:put("a", "1")).revision)
        keywatch.run(function() say(client:get("a").value) end)
      ]] }
      assert.equal("2\n1\n", said, errors)
    end)
  end
end)
