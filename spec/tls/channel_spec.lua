--- Open channels: written bytes arrive, complete and within bounds; and peers that break the rules are refused.

local tls = require "keywatch.tls"

local dose = require "spec.support.dose"
local pair = require "spec.support.tls_pair"
local random = require "spec.support.random"

local INPUT, OUTPUT, ANSWERS, RECORD = 65536, 65536, 65536, 16384 + 256 -- bytes

local probe = tls.probe

describe("a channel", function()
  local client_context, server_context, client, server

  setup(function() client_context, server_context = pair.client(), pair.server() end)

  before_each(function() client, server = pair.shake(client_context, server_context) end)

  after_each(function()
    client:close()
    server:close()
  end)

  it("delivers written bytes, at random, in both directions at once", function()
    local chance = random.new(tonumber(os.getenv("KW_SEED")) or 1)
    local sent, got = { {}, {} }, { {}, {} }
    for _ = 1, dose.of(20, 200) do
      for i, channel in ipairs { client, server } do
        local text = chance:bytes(chance:pick { 1, 10, 1000, 20000 })
        sent[i][#sent[i] + 1] = text:sub(1, channel:write(text))
      end
      pair.pump(client, server, chance:pick { 13, 1000, 16384, 30000 }, got[2], got[1])
    end
    for i = 1, 2 do assert.is_true(table.concat(sent[i]) == table.concat(got[i])) end
  end)

  it("reads ciphertext that is passed to it without a queue, after queued ciphertext", function()
    local text = ("0123456789"):rep(5000)
    client:write(text)
    local bytes = client:pending()
    for _, fed in ipairs { 0, 3, 20000 } do
      local got, used = {}, 0
      if fed > 0 then server:feed(bytes:sub(1, fed)) end
      local rest = bytes:sub(fed + 1)
      repeat
        got[#got + 1], used = server:read(rest, used)
      until got[#got] == ""
      assert.equal(#rest, used)
      assert.is_true(text == table.concat(got))
      client:write(text)
      bytes = client:pending()
    end
    assert.same({ "", 0 }, { client_context:connect("localhost"):read("not yet") })
    assert.error_matches(function() server:read("x", 2) end, "must be from 0 to #bytes")
    assert.error_matches(function() server:read("x", -1) end, "must be from 0 to #bytes")
    assert.error_matches(function() server:read(7) end, "string expected")
  end)

  it("takes no more plaintext while enough ciphertext is pending", function()
    local text, taken = ("x"):rep(1000000), 0
    assert.is_true(client:state().wants_text)
    repeat
      local n = client:write(text)
      taken = taken + n
    until n == 0
    assert.is_false(client:state().wants_text)
    local pending = #client:pending()
    assert.is_true(pending >= OUTPUT and pending <= OUTPUT + RECORD, pending)
    assert.is_true(taken < pending)
    assert.is_true(client:state().wants_text)
  end)

  it("takes no more ciphertext than its bound", function()
    local bytes = ""
    while #bytes <= INPUT do
      client:write(("x"):rep(20000))
      bytes = bytes .. client:pending()
    end
    assert.equal(INPUT, server:feed(bytes))
    assert.is_false(server:state().wants_bytes)
    assert.equal(0, server:feed("more"))
    assert.is_true(#server:read() > 0)
    assert.is_true(server:state().wants_bytes)
    assert.is_true(server:feed(bytes:sub(INPUT + 1)) > 0)
  end)

  it("ends in order", function()
    client:write("the last words")
    client:finish()
    assert.is_true(client:state().is_done)
    assert.is_nil((client:error()))
    local got = {}
    pair.move(client, server, nil, got)
    assert.equal("the last words", table.concat(got))
    assert.is_true(server:state().got_end)
    assert.is_false(server:state().is_done)
    assert.is_false(server:state().may_read)
    assert.equal(3, server:write("you")) -- the other half is open
    server:feed("")
    pair.work(server, got)
    assert.is_nil((server:error()))
    server:finish()
    assert.is_true(server:state().is_done)
    assert.equal(0, client:write("too late"))
    assert.equal(4, client:feed("what"))
    assert.equal("", client:read())
  end)

  it("distinguishes an end without close_notify", function()
    client:write("half of it")
    local got = {}
    pair.move(client, server, nil, got)
    server:feed("")
    pair.work(server, got)
    assert.equal("half of it", table.concat(got))
    local text, kind = server:error()
    assert.equal("cut", kind)
    assert.equal("the client has closed the connection without close_notify", text)
  end)

  it("fails when a record was altered, at any byte, and sends an alert", function()
    for at = 1, 33, 2 do
      client, server = pair.shake(client_context, server_context)
      client:write("hello there")
      local bytes = client:pending()
      assert.is_true(at <= #bytes)
      bytes = bytes:sub(1, at - 1) .. string.char((bytes:byte(at) + 1) % 256) .. bytes:sub(at + 1)
      server:feed(bytes)
      local got = {}
      pair.work(server, got)
      server:feed("")
      pair.work(server, got)
      assert.same({}, got)
      assert.is_true(server:state().is_done)
      local kind = select(2, server:error())
      assert.is_true(kind == "protocol" or kind == "cut", kind)
      if kind == "protocol" then
        pair.move(server, client, nil, {})
        assert.equal("alert", (select(2, client:error())))
      end
    end
  end)

  it("fails at an unencrypted alert", function()
    server:feed("\21\3\3\0\2\2\40")
    pair.work(server, {})
    assert.equal("protocol", (select(2, server:error())))
  end)

  it("fails when a record is repeated or left out", function()
    client:write("one")
    local one = client:pending()
    server:feed(one .. one)
    local got = {}
    pair.work(server, got)
    assert.same({ "one" }, got)
    assert.equal("protocol", (select(2, server:error())))

    client, server = pair.shake(client_context, server_context)
    client:write("one")
    client:pending()
    client:write("two")
    server:feed(client:pending())
    pair.work(server, got)
    assert.equal("protocol", (select(2, server:error())))
  end)

  it("reports on either side that a handshake was cut", function()
    local one, other = client_context:connect("localhost"), server_context:accept()
    one:step()
    other:feed(one:pending():sub(1, 100))
    pair.work(other)
    for name, channel in pairs { server = one, client = other } do
      channel:feed("")
      pair.work(channel)
      local text, kind = channel:error()
      assert.same({ "cut", true }, { kind, channel:state().is_done })
      assert.matches("^the " .. name .. " has closed the connection", text)
    end
  end)

  it("may be closed repeatedly", function()
    client:close()
    client:close()
    assert.error_matches(function() client:read() end, "the channel is closed")
    assert.error_matches(function() client:state() end, "the channel is closed")
  end)

  it("outlives its context", function()
    local own = pair.server()
    client, server = pair.shake(client_context, own)
    own:close()
    own:close()
    assert.error_matches(function() own:accept() end, "the context is closed")
    own = nil
    collectgarbage()
    collectgarbage()
    local got = {}
    client:write("hello")
    pair.pump(client, server, nil, {}, got)
    assert.same({ "hello" }, got)
  end)

  it("refuses invalid arguments", function()
    assert.error_matches(function() client:feed() end, "string expected")
    assert.error_matches(function() client:write(7) end, "string expected")
    assert.error_matches(function() client_context:connect(7) end, "string expected")
    assert.error_matches(function() client_context.accept(client) end, "expected")
  end)
end)

if not probe then return end

describe("a peer that requests another handshake", function()
  local HANDSHAKE, ALERT = 22, 21 -- types of records

  for _, who in ipairs { "client", "server" } do
    it("is refused: a " .. who, function()
      local one, other = pair.shake(pair.client { max_version = "TLS1.2" }, pair.server())
      if who == "server" then one, other = other, one end
      assert.is_true(probe.renegotiate(one))
      local hello = one:pending()
      assert.equal(HANDSHAKE, hello:byte())
      other:feed(hello)
      pair.work(other, {})
      assert.is_nil((other:error()))
      assert.equal(ALERT, other:pending():byte()) -- no_renegotiation
    end)
  end

  it("gets one record handled at a time, so that other connections run", function()
    local client, server = pair.shake(pair.client(), pair.server())
    for _ = 1, 10 do assert.is_true(probe.update_keys(client)) end
    client:write("x")
    server:feed(client:pending())
    local reads, text = 0
    repeat
      assert.is_true(server:state().may_read)
      text, reads = server:read(), reads + 1
    until text ~= ""
    assert.equal("x", text)
    assert.is_true(reads > 10, reads)
    assert.is_false(server:state().may_read)
  end)

  it("may change the keys in TLS 1.3, but must read the answers", function()
    local client, server = pair.shake(pair.client(), pair.server())
    local got = {}
    for _ = 1, 5 do
      assert.is_true(probe.update_keys(client))
      client:write("x")
      pair.pump(client, server, nil, {}, got)
    end
    assert.equal("xxxxx", table.concat(got))
    assert.is_nil((server:error()))

    local held = 0
    for _ = 1, 10000 do
      if not probe.update_keys(client) then break end
      server:feed(client:pending())
      pair.work(server, {})
      if not server:state().may_read and not server:state().wants_bytes then break end
      held = held + 1
    end
    assert.is_true(#server:pending() <= OUTPUT + ANSWERS + RECORD)
  end)
end)

describe("of the protocols h2 and http/1.1", function()
  it("a client must offer one, unless it offers no protocol", function()
    local client, server = pair.client():connect("localhost"), pair.server():accept()
    probe.with_alpn(client, "\8http/1.0\6spdy/1")
    pair.pump(client, server, nil, {}, {})
    assert.equal("the client offers neither HTTP/2 nor HTTP/1.1 (ALPN)", (server:error()))
    assert.equal("protocol", (select(2, server:error())))
    assert.matches("does not speak HTTP/2 %(alert 120%)", (client:error()))
  end)

  it("a server accepts any, and keywatch's client only h2", function()
    for _, prepare in ipairs { probe.without_alpn, function(one) probe.with_alpn(one, "\8http/1.1") end } do
      local client, server = pair.client():connect("localhost"), pair.server():accept()
      prepare(client)
      pair.pump(client, server, nil, {}, {})
      assert.is_nil((server:error()))
      assert.matches("does not speak HTTP/2", (client:error()))
    end
  end)

  it("h2 is chosen among others", function()
    local client, server = pair.client():connect("localhost"), pair.server():accept()
    probe.with_alpn(client, "\8http/1.1\2h2")
    pair.pump(client, server, nil, {}, {})
    assert.is_nil((server:error()))
    assert.is_true(client:state().is_open)
  end)
end)
