--- Peers that break TLS, or use it to do harm: a server continues to serve others, closes broken connections, and
-- reports why.

local core = require "keywatch.core"
local keywatch = require "keywatch"
local tls = require "keywatch.tls"

local attack = require "spec.support.attack"
local certificates = require "spec.support.certificates"
local dose = require "spec.support.dose"
local frame = require "spec.support.frame"
local luv = require "spec.support.luv"
local pair = require "spec.support.tls_pair"
local process = require "spec.support.process"
local random = require "spec.support.random"
local raw = require "spec.support.raw"
local tls_handle = require "spec.support.tls_handle"

local STEP = dose.is_small and 37 or 1 -- bytes between two places where something is cut
local HANDSHAKE, ALERT, DATA = 22, 21, 23 -- types of records
local FATAL, WARNING = "\2\40", "\1\90" -- alerts: handshake_failure, user_canceled
local VERSIONS = { "TLS1.2", "TLS1.3" }
local KIB = 1024
local CROWD = 1000 -- connections

package.loaded.luv = luv -- luv's loop turns the servers; each spec file has modules of its own

local real_serve = core.serve

--- An unencrypted record.
local function record(kind, payload, length)
  return string.char(kind) .. "\3\3" .. raw.number(length or #payload, 2) .. payload
end

describe("a server with TLS #slow", function()
  local server, store, attackers, witness, lines, contexts, port

  setup(function()
    contexts = {}
    for _, version in ipairs(VERSIONS) do contexts[version] = pair.client { max_version = version } end
  end)

  teardown(function()
    for _, context in pairs(contexts) do context:close() end
  end)

  local function port_of(url) return tonumber(url:match("%d+$")) end

  --- Serves with these options. The handshake may last so many seconds, if that is given.
  local function serve(options, seconds)
    local cert, key = certificates.paths("server")
    local all = { store = store, listen = { "https://127.0.0.1:0", "http://127.0.0.1:0" },
      tls = { cert = cert, key = key },
      on_log = function(level, text) table.insert(lines, level .. " " .. text) end }
    for name, value in pairs(options or {}) do all[name] = value end
    core.serve = function(object, given) -- luacheck: ignore
      given.handshake_timeout = seconds
      return real_serve(object, given)
    end
    server = assert(keywatch.serve(all))
    core.serve = real_serve -- luacheck: ignore
    port = port_of(server:addresses()[1])
    witness = raw.witness(port_of(server:addresses()[2]))
    witness:ask()
    return server
  end

  before_each(function() store, attackers, lines = keywatch.open(), {}, {} end)

  after_each(function()
    core.serve = real_serve -- luacheck: ignore
    for _, attacker in ipairs(attackers) do attacker:close() end
    if witness then witness:close() end
    if server then server:close() end
    server, witness = nil, nil
    store:close()
    luv.run("nowait")
  end)

  --- Returns an attacker without TLS. Received bytes are in `rest`.
  local function plain(bytes)
    local attacker = raw.connect(port, { is_silent = true, text = true })
    table.insert(attackers, attacker)
    if bytes then attacker:send(bytes) end
    return attacker
  end

  --- An attacker that uses TLS, with HTTP/2 in it.
  local function secure(version, options)
    options = options or {}
    options.handle = options.handle or tls_handle.new(contexts[version or "TLS1.3"])
    local attacker = raw.connect(port, options)
    table.insert(attackers, attacker)
    return attacker
  end

  --- The same, when the server has answered its first request.
  local function served(version, options)
    local attacker = secure(version, options)
    assert.is_string(attacker:call(raw.RANGE, frame.range("witness")))
    return attacker
  end

  --- The first flight of a client.
  local function hello(version)
    local channel = contexts[version or "TLS1.3"]:connect("localhost")
    channel:step()
    return channel:pending()
  end

  local function count(words)
    local n = 0
    for _, line in ipairs(lines) do
      if line:find(words) then n = n + 1 end
    end
    return n
  end

  --- The server has only the connection of the witness, and serves it.
  local function expect_healthy()
    raw.turn_until(function() return server.object:connections() == 1 end, "the end of all connections")
    witness:ask()
  end

  describe("and a handshake", function()
    it("is closed, after whichever byte the client leaves, with one line", function()
      serve()
      local bytes = hello()
      for _, how in ipairs { "close", "reset" } do
        for at = 0, #bytes, 7 * STEP do
          local attacker = plain()
          attacker:await(function() return attacker.is_connected end, "a connection")
          attacker.handle:write(bytes:sub(1, at), function() attacker[how](attacker) end)
        end
        expect_healthy()
      end
      for _, line in ipairs(lines) do assert.matches("^warn ", line) end
    end)

    local chance = random.new(tonumber(os.getenv("KW_SEED")) or 1)
    local first = "\1\0\1\0\3\3" -- of a hello of 256 bytes
    for name, garbage in pairs {
      ["bytes at random"] = function() return "\200" .. chance:bytes(3000) end,
      ["64 KB of zeros"] = function() return ("\0"):rep(65536) end,
      ["a record of 65,535 bytes"] = function() return record(HANDSHAKE, ("x"):rep(20000), 65535) end,
      ["empty records"] = function() return record(HANDSHAKE, ""):rep(5000) end,
      ["no hello"] = function() return record(HANDSHAKE, "\20\0\0\4abcd") end,
      ["a hello of 16 MB"] = function() return record(HANDSHAKE, "\1\255\255\255" .. ("x"):rep(10000)) end,
      ["a hello of nothing"] = function() return record(HANDSHAKE, "\1\0\0\0") end,
      ["a hello of garbage"] = function() return record(HANDSHAKE, first .. chance:bytes(254)) end,
      ["a hello in fragments of a byte"] = function()
        return (hello():sub(6, 60):gsub(".", function(byte) return record(HANDSHAKE, byte) end)) .. record(DATA, "x")
      end,
      ["a hello of SSL 2"] = function() return "\128\46\1\0\2\0\21\0\0\0\16" .. ("x"):rep(37) end,
      ["a hello of SSL 3"] = function()
        local body = "\3\0" .. ("r"):rep(32) .. "\0\0\2\0\10\1\0"
        return "\22\3\0" .. raw.number(#body + 4, 2) .. "\1" .. raw.number(#body, 3) .. body
      end,
      ["two hellos"] = function() return hello() .. hello() end,
      ["a hello and plaintext"] = function() return hello() .. record(DATA, "hello") end,
      ["a hello and HTTP/2"] = function() return hello() .. raw.PREFACE end,
      ["plaintext at once"] = function() return record(DATA, "hello") end,
      ["a fatal alert"] = function() return record(ALERT, FATAL) end,
      ["an endless row of warnings"] = function() return record(ALERT, WARNING):rep(5000) end,
      ["an endless row of changed ciphers"] = function() return hello() .. record(20, "\1"):rep(5000) end,
      ["a hello without h2"] = function()
        return (hello("TLS1.2"):gsub("\2h2", "\2h3"))
      end,
    } do
      it("of " .. name .. " is refused, with one line", function()
        serve()
        plain(garbage()):await_end()
        expect_healthy()
        assert.equal(1, count("^warn connection from 127%.0%.0%.1:%d+ rejected: "), table.concat(lines, "\n"))
      end)
    end
  end)

  describe("and a slow handshake", function()
    --- Writes bytes one by one until the server ends the connection. Returns how many there were.
    local function drip(attacker, tcp, bytes)
      local at, timer = 0, luv.new_timer()
      timer:start(0, 2, function()
        if at == #bytes or attacker.has_ended or attacker.failure then return timer:stop() end
        at = at + 1
        tcp:write(bytes:sub(at, at))
      end)
      attacker:await_end()
      timer:close()
      return at
    end

    it("is ended in time, however often a byte comes", function()
      serve({}, 0.1)
      local bytes = hello():rep(100) -- far more than there is time for
      assert.is_true(drip(plain(), attackers[1].handle, bytes:sub(1, 270) .. bytes) < #bytes)
      expect_healthy()
      assert.equal(1, #lines)
      assert.matches("^warn connection from [%d.:]+ rejected: the client has not begun to speak HTTP/2 in time$",
        lines[1])
    end)

    it("is ended in time when no byte comes, or none after some", function()
      serve({}, 0.1)
      for _, bytes in ipairs { "", "\22", hello():sub(1, 100), hello() } do
        local attacker = plain(bytes)
        attacker:await_end()
      end
      expect_healthy()
      assert.equal(4, count("has not begun to speak HTTP/2 in time$"))
    end)

    it("is ended in time when it is complete, but no HTTP/2 follows", function()
      serve({}, 0.1)
      local attacker = secure(nil, { is_silent = true })
      attacker:await(function() return attacker.is_connected end, "the end of the handshake")
      assert.is_true(drip(attacker, attacker.handle, raw.PREFACE:sub(1, 20)) <= 20)
      expect_healthy()
      assert.equal(1, count("has not begun to speak HTTP/2 in time$"))
    end)
  end)

  describe("and an open connection", function()
    --- What an attacker writes as it is, in the middle of TLS. The server ends its connection, and says why to it.
    for name, bytes in pairs {
      ["plaintext"] = raw.frame(raw.PING, 0, 0, "12345678"),
      ["an unencrypted fatal alert"] = record(ALERT, FATAL),
      ["an unencrypted warning"] = record(ALERT, WARNING),
      ["plaintext in a record"] = record(DATA, raw.frame(raw.PING, 0, 0, "12345678")),
      ["a record with a wrong MAC"] = record(DATA, ("x"):rep(100)),
      ["an oversized record"] = record(DATA, ("x"):rep(16384 + 257)),
      ["a record of 65,535 bytes"] = record(DATA, ("x"):rep(20000), 65535),
      ["a record of no type"] = record(99, ("x"):rep(100)),
      ["empty records"] = record(DATA, ""):rep(1000),
      ["another hello"] = record(HANDSHAKE, "\1\0\0\50" .. ("x"):rep(50)),
      ["HTTP/1"] = "GET / HTTP/1.1\r\n\r\n",
    } do
      for _, version in ipairs(VERSIONS) do
        it(("ends it after %s, in %s"):format(name, version), function()
          serve { log_level = "debug" }
          local attacker = served(version)
          attacker.handle.tcp:write(bytes)
          attacker:await_end()
          expect_healthy()
          assert.equal(1, count("^debug connection from [%d.:]+ ended: "))
          assert.equal(0, count("^warn"))
        end)
      end
    end

    for _, version in ipairs(VERSIONS) do
      it("ends it after a fatal alert of the client, in " .. version, function()
        serve { log_level = "debug" }
        local attacker = served(version)
        attacker.handle.channel:feed(record(DATA, ("x"):rep(100))) -- the cause of the error
        attacker.handle.channel:read()
        attacker.handle:flush()
        attacker:await_end()
        expect_healthy()
        assert.equal(1, count("^debug .* ended: the client has refused the connection"), table.concat(lines, "\n"))
      end)

      it("reads the bytes before close_notify, and none after it, in " .. version, function()
        serve()
        local attacker = served(version)
        attacker.handle.text = raw.request(3, raw.PUT, frame.put("last", "words"))
        attacker.handle:write("")
        attacker.handle.channel:finish()
        attacker.handle.on_flush = function(bytes) return bytes .. record(DATA, ("x"):rep(100)) end
        attacker.handle:flush()
        attacker:await_end()
        expect_healthy()
        assert.equal("words", store:get("last").value)
      end)
    end
  end)

  describe("and the guarantees of plain connections", function()
    --- Connections in every state of a handshake, and before it.
    local function begin_all()
      local bytes = hello()
      for _, part in ipairs { "", bytes:sub(1, 1), bytes:sub(1, 100), bytes } do plain(part) end
      local attacker = plain()
      attacker:await(function() return attacker.is_connected end, "a connection")
      raw.turn_until(function() return server.object:connections() == 6 end, "the connections")
    end

    local function expect_ends()
      for _, attacker in ipairs(attackers) do attacker:await_end() end
    end

    it("ends a graceful shutdown during handshakes", function()
      serve()
      begin_all()
      witness:close()
      witness = nil
      assert.is_true(server:shutdown(1000))
      expect_ends()
    end)

    it("ends a shutdown in time though clients stay, and do not read", function()
      serve()
      begin_all()
      local attacker = served()
      attacker:send(raw.request(3, raw.WATCH) .. raw.data(3, frame.watch("witness")))
      attacker:await(function() return attacker.streams[3] end, "a watch")
      store:put("large", ("v"):rep(1000000))
      attacker:stop_reading()
      for id = 5, 45, 2 do attacker:send(raw.request(id, raw.RANGE, frame.range("large"))) end
      assert.is_true(server:shutdown(0.05))
    end)

    it("closes at once during handshakes", function()
      serve()
      begin_all()
      served()
      server:close()
      expect_ends()
    end)

    it("serves in a thread, beside any other clients", function()
      local cert, key = certificates.paths("server")
      server = assert(keywatch.serve { thread = true, listen = "https://127.0.0.1:0", log_level = "error",
        tls = { cert = cert, key = key } })
      port = port_of(server:addresses()[1])
      for _, bytes in ipairs { "", hello():sub(1, 100), ("\0"):rep(65536), hello() .. "garbage" } do plain(bytes) end
      local good = served()
      good.handle.tcp:write(record(DATA, "x"))
      good:await_end()
      assert.is_string(served():call(raw.PUT, frame.put("a", "b")))
      server:close()
      expect_ends()
    end)
  end)
end)

describe("a client with TLS", function()
  local listener, handles, context, client

  setup(function() context = pair.server() end)
  teardown(function() context:close() end)
  before_each(function() handles = {} end)

  after_each(function()
    if client then client:close() end
    if listener then listener:close() end
    for _, handle in ipairs(handles) do
      if not handle:is_closing() then handle:close() end
    end
    client, listener = nil, nil
    luv.run("nowait")
  end)

  --- Listens. on_bytes(handle, bytes, state) is called for what comes on a connection; with "" for its begin.
  local function listen(on_bytes)
    listener = luv.new_tcp()
    assert(listener:bind("127.0.0.1", 0))
    assert(listener:listen(128, function()
      local handle, state = luv.new_tcp(), {}
      listener:accept(handle)
      table.insert(handles, handle)
      handle:nodelay(true)
      handle:read_start(function(_, bytes)
        if bytes then on_bytes(handle, bytes, state) end
      end)
      on_bytes(handle, "", state)
    end))
    return "https://127.0.0.1:" .. listener:getsockname().port
  end

  --- Connects, and returns the error of the first connection.
  local function failure_of(on_bytes, options)
    local all = { tls = { ca = (certificates.paths("ca")) }, connect_timeout = 0.2 }
    for name, value in pairs(options or {}) do all[name] = value end
    client = assert(keywatch.connect(listen(on_bytes), all))
    local health
    keywatch.spawn(function() health = client:health({ timeout = 60 }) end)
    raw.turn_until(function() return health end, "the end of the connection")
    assert.is_table(health[1].err)
    assert.equal("unavailable", health[1].err.code)
    return health[1].err.message
  end

  --- Answers the first flight with one of a server of this context, as on_flight(handle, flight) does.
  local function with_flight(on_flight, own)
    return function(handle, bytes, state)
      if bytes == "" then return end
      state.channel = state.channel or (own or context):accept()
      state.channel:feed(bytes)
      state.channel:step()
      local flight = state.channel:pending()
      if flight ~= "" then on_flight(handle, flight, state) end
    end
  end

  it("gives up in time when a server sends a byte now and then", function()
    local n_bytes, n_sent = nil, 0
    local message = failure_of(with_flight(function(handle, flight)
      local timer = luv.new_timer()
      n_bytes = #flight
      timer:start(0, 5, function()
        if n_sent == n_bytes or handle:is_closing() then return timer:close() end
        n_sent = n_sent + 1
        handle:write(flight:sub(n_sent, n_sent))
      end)
    end), { connect_timeout = 1 })
    assert.matches("does not answer in time", message)
    assert.is_true(n_sent > 0 and n_sent < n_bytes, n_sent)
  end)

  it("gives up in time when the handshake never ends", function()
    local message = failure_of(with_flight(function(handle)
      local function again()
        if not handle:is_closing() then handle:write(record(20, "\1"), again) end
      end
      again()
    end))
    assert.is_true(message:find("in time", 1, true) ~= nil or message:find("protocol", 1, true) ~= nil, message)
  end)

  for name, what in pairs {
    ["garbage"] = { "\200garbage", "does not speak TLS" },
    ["64 KB of zeros"] = { ("\0"):rep(65536), "the server " },
    ["HTTP/1"] = { "HTTP/1.1 400 Bad Request\r\n\r\n", "speaks plain HTTP/1, and not TLS" },
    ["HTTP/2"] = { raw.settings {}, "speaks plain HTTP/2, and not TLS" },
    ["a fatal alert"] = { record(ALERT, FATAL), "the server has refused the connection" },
    ["a hello of garbage"] = { record(HANDSHAKE, "\2\0\1\0" .. ("x"):rep(256)), "the server " },
    ["a record of 65,535 bytes"] = { record(HANDSHAKE, ("x"):rep(20000), 65535), "the server " },
  } do
    it("reports the error when a server sends " .. name, function()
      local message = failure_of(function(handle, bytes)
        if bytes ~= "" then handle:write(what[1]) end
      end, { connect_timeout = 60 })
      assert.is_truthy(message:find(what[2], 1, true), message)
    end)
  end

  it("refuses certificates of 100 KB", function()
    local text = certificates.text("server.pem")
    local own = assert(tls.server { cert = text:rep(math.ceil(200000 / #text)), key = certificates.text("server.key") })
    local message = failure_of(with_flight(function(handle, flight)
      if #flight > 100000 then handle:write(flight) end
    end, own), { connect_timeout = 60 })
    own:close()
    assert.matches("the server has sent a handshake message that is too large, for example more than 64 KB", message)
  end)
end)

describe("a server with TLS in a crowd #once", function()
  local target, port, authority

  local function start_siege(open_files)
    local cert, key = certificates.paths("server")
    target = attack.start { open_files = open_files, "--listen-client-urls=http://127.0.0.1:0,https://127.0.0.1:0",
      "--cert-file", cert, "--key-file", key }
    port = tonumber(target.peer:log():match("https://127%.0%.0%.1:(%d+)"))
  end

  before_each(function()
    authority = certificates.paths("ca")
    start_siege("hard")
  end)

  after_each(function()
    process.end_all()
    if target then target:finish() end
    target = nil
  end)

  --- Starts a program of spec/support.
  local function start(name, ...)
    return process.start { "sh", "-c", 'ulimit -n $(ulimit -H -n) && exec "$@"', "sh", "lua5.4",
      ("spec/support/%s.lua"):format(name), ... }
  end

  local function finish(program)
    program:finish_input()
    assert.equal(0, program:wait())
  end

  --- A client with TLS, for raw.connect.
  local function secure() return tls_handle.new(assert(tls.client { ca = authority })) end

  -- What a connection may take, in KiB. OpenSSL has buffers of a record and of a message while a handshake is under
  -- way, and what came waits for the handshake, 64 KiB at most.
  for kind, most in pairs { nothing = 40, half = 90, garbage = 150 } do
    it(("bounds what %d handshakes that go no further take: %s"):format(CROWD, kind), function()
      local burst = start("tls_burst", tostring(port), tostring(CROWD), authority, kind)
      burst:expect("ready\n")
      burst:write("go\n")
      burst:expect("done\n")
      for _ = 1, 20 do target.witness:ask() end
      local each = (target.peer:peak() - target.resident) / CROWD / KIB
      print(("  %d handshakes with %s take %.1f KiB each"):format(CROWD, kind, each))
      finish(burst)
      target:expect_healthy(CROWD * most * KIB)
    end)
  end

  it("uses little more memory for an idle connection than without TLS", function()
    local taken = {}
    for i = 1, 2 do
      local crowd = start("crowd", tostring(i == 1 and target.peer.port or port), tostring(CROWD), i == 2 and authority
        or nil)
      crowd:expect("open\n")
      assert.equal(target.descriptors + CROWD, target.peer:descriptors())
      taken[i] = (target.peer:resident() - target.resident) / CROWD / KIB
      for _ = 1, 20 do target.witness:ask() end
      finish(crowd)
      if i == 1 then
        target:finish()
        start_siege("hard")
      end
    end
    print(("  %d idle connections take %.1f KiB each, and %.1f KiB with TLS"):format(CROWD, taken[1], taken[2]))
    assert.is_true(taken[2] - taken[1] < 40)
  end)

  -- If all handshakes were made before any other work, there would be one event, or none.
  it("delivers events to a watch during a burst of handshakes", function()
    local watcher = raw.connect(port, { handle = secure() })
    local n_events = 0
    watcher.on_message = function() n_events = n_events + 1 end
    watcher:send(raw.request(1, raw.WATCH) .. raw.data(1, frame.watch("witness")))
    watcher:await(function() return n_events == 1 end, "the watch")
    table.insert(target.attackers, watcher)
    local burst = start("tls_burst", tostring(port), tostring(CROWD), authority, "whole")
    burst:expect("ready\n")
    burst:write("go\n")
    local before = n_events
    repeat
      local n = n_events
      target.witness:ask()
      watcher:await(function() return n_events > n end, "an event")
    until burst:stdout():find("done\n", 1, true)
    assert.is_true(n_events - before >= 20, n_events - before)
    finish(burst)
    target:expect_healthy(CROWD * 150 * KIB)
  end)
end)
