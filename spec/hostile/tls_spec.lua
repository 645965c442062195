--- Peers that break TLS, or use it to do harm: a server goes on to serve others, ends what is broken, and says why.

local core = require "keywatch.core"
local keywatch = require "keywatch"
local tls = require "keywatch.tls"

local certificates = require "spec.support.certificates"
local frame = require "spec.support.frame"
local luv = require "spec.support.luv"
local pair = require "spec.support.tls_pair"
local random = require "spec.support.random"
local raw = require "spec.support.raw"
local tls_handle = require "spec.support.tls_handle"

local IS_FAST = os.getenv("KW_FAST") ~= nil
local STEP = IS_FAST and 37 or 1 -- bytes between two places where something is cut
local HANDSHAKE, ALERT, DATA = 22, 21, 23 -- types of records
local FATAL, WARNING = "\2\40", "\1\90" -- alerts: handshake_failure, user_canceled
local VERSIONS = { "TLS1.2", "TLS1.3" }

local real_serve = core.serve

--- A record that nobody has encrypted.
local function record(kind, payload, length)
  return string.char(kind) .. "\3\3" .. raw.number(length or #payload, 2) .. payload
end

describe("a server with TLS", function()
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
    local all = { store = store, listen = { "https://127.0.0.1:0", "http://127.0.0.1:0" }, tls = { cert = cert, key = key },
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

  --- An attacker without TLS. What comes is in `rest`.
  local function plain(bytes)
    local attacker = raw.connect(port, { is_silent = true, text = true })
    table.insert(attackers, attacker)
    if bytes then attacker:send(bytes) end
    return attacker
  end

  --- An attacker who speaks TLS, and HTTP/2 in it.
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

  --- The server has no connection but that of the witness, whom it serves.
  local function expect_well()
    raw.turn_until(function() return server.object:connections() == 1 end, "the end of all connections")
    witness:ask()
  end

  describe("and a handshake", function()
    --- Makes a handshake and a request whose ciphertext is written in two parts, cut after `at` bytes.
    local function exchange(version, at)
      local handle = tls_handle.new(contexts[version])
      local sent, held = 0, nil
      handle.on_flush = function(bytes)
        if held then
          held = held .. bytes
          return ""
        end
        local cut = at - sent
        sent = sent + #bytes
        if cut <= 0 or cut >= #bytes then return bytes end
        held = bytes:sub(cut + 1)
        handle.tcp:write(bytes:sub(1, cut), function()
          local timer = luv.new_timer() -- the server has its turn
          timer:start(0, 0, function()
            timer:close()
            local rest = held
            held = nil
            sent = sent + #rest
            if not handle:is_closing() then handle.tcp:write(rest) end
          end)
        end)
        return ""
      end
      local attacker = secure(version, { handle = handle })
      assert.is_string(attacker:call(raw.RANGE, frame.range("witness")))
      attacker:close()
      return sent
    end

    for _, version in ipairs(VERSIONS) do
      it("is made wherever the bytes of the client are cut, and what follows comes with them: " .. version, function()
        serve()
        local at, most = 1, 1
        while at <= most do
          most = math.max(most, exchange(version, at))
          at = at + STEP
        end
        assert.is_true(most > 300, most)
        expect_well()
        assert.same({}, lines)
      end)
    end

    it("is forgotten, after whichever byte the client goes, with one line", function()
      serve()
      local bytes = hello()
      for i, how in ipairs { "close", "reset" } do
        for at = 0, #bytes, 7 * STEP do
          local attacker = plain()
          attacker:await(function() return attacker.is_connected end, "a connection")
          attacker.handle:write(bytes:sub(1, at), function() attacker[how](attacker) end)
        end
        assert.is_true(i > 0)
        expect_well()
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
        expect_well()
        assert.equal(1, count("^warn connection from 127%.0%.0%.1:%d+ rejected: "), table.concat(lines, "\n"))
      end)
    end
  end)

  describe("and a handshake that takes its time", function()
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

    it("is given up in time, however often a byte comes", function()
      serve({}, 0.1)
      local bytes = hello():rep(100) -- far more than there is time for
      assert.is_true(drip(plain(), attackers[1].handle, bytes:sub(1, 270) .. bytes) < #bytes)
      expect_well()
      assert.equal(1, #lines)
      assert.matches("^warn connection from [%d.:]+ rejected: the client has not begun to speak HTTP/2 in time$", lines[1])
    end)

    it("is given up in time when nothing comes, and when nothing comes in the middle of it", function()
      serve({}, 0.1)
      for _, bytes in ipairs { "", "\22", hello():sub(1, 100), hello() } do
        local attacker = plain(bytes)
        attacker:await_end()
      end
      expect_well()
      assert.equal(4, count("has not begun to speak HTTP/2 in time$"))
    end)

    it("is given up in time when all of it has come, but no HTTP/2 does", function()
      serve({}, 0.1)
      local attacker = secure(nil, { is_silent = true })
      attacker:await(function() return attacker.is_connected end, "the end of the handshake")
      assert.is_true(drip(attacker, attacker.handle, raw.PREFACE:sub(1, 20):rep(1)) <= 20)
      expect_well()
      assert.equal(1, count("has not begun to speak HTTP/2 in time$"))
    end)
  end)

  describe("and an open connection", function()
    --- What an attacker writes as it is, in the middle of TLS. The server ends its connection, and says why to it.
    for name, bytes in pairs {
      ["plaintext"] = raw.frame(raw.PING, 0, 0, "12345678"),
      ["a fatal alert that nobody has encrypted"] = record(ALERT, FATAL),
      ["a warning that nobody has encrypted"] = record(ALERT, WARNING),
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
          expect_well()
          assert.equal(1, count("^debug connection from [%d.:]+ ended: "))
          assert.equal(0, count("^warn"))
        end)
      end
    end

    for _, version in ipairs(VERSIONS) do
      it("ends it after a fatal alert of the client, in " .. version, function()
        serve { log_level = "debug" }
        local attacker = served(version)
        attacker.handle.channel:feed(record(DATA, ("x"):rep(100))) -- that is what it complains of
        attacker.handle.channel:read()
        attacker.handle:flush()
        attacker:await_end()
        expect_well()
        assert.equal(1, count("^debug .* ended: the client has refused the connection"), table.concat(lines, "\n"))
      end)

      it("ends it after a record that comes twice, in " .. version, function()
        serve()
        local attacker = served(version)
        attacker.handle.on_flush = function(bytes) return bytes .. bytes end
        attacker:send(raw.frame(raw.PING, 0, 0, "12345678"))
        attacker:await_end()
        expect_well()
      end)

      it("hears what comes before close_notify, and nothing after it, in " .. version, function()
        serve()
        local attacker = served(version)
        attacker.handle.text = raw.request(3, raw.PUT, frame.put("last", "words"))
        attacker.handle:write("")
        attacker.handle.channel:finish()
        attacker.handle.on_flush = function(bytes) return bytes .. record(DATA, ("x"):rep(100)) end
        attacker.handle:flush()
        attacker:await_end()
        expect_well()
        assert.equal("words", store:get("last").value)
      end)
    end
  end)
end)
