--- Exchanges over HTTP/2, of both roles against each other, and of a client with a server that breaks rules. Only probe
-- builds can look.

local h2 = require "spec.support.h2"
local http1 = require "spec.support.http1"
local probed = require "spec.support.probed"

local probe = probed.get("exchanges over HTTP/2")
if not probe then return end

local starve = require "spec.support.starve"

local KIB = 1024

describe("an exchange over HTTP/2", function()
  local client, server

  local function open(options, server_options)
    options, server_options = options or {}, server_options or {}
    options.h2, server_options.h2 = true, true
    client, server = http1.client(options), http1.server(server_options)
  end

  after_each(function()
    client.raw:free()
    server.raw:free()
  end)

  --- Moves all bytes, and does what is due.
  local function pump()
    repeat
      local there = client:wait(0)
      if there ~= "" then server.raw:feed(there, server.now) end
      local back = server:wait(0)
      if back ~= "" then client.raw:feed(back, client.now) end
      client.raw:check()
      server.raw:check()
    until there == "" and back == ""
  end

  local function begin(request)
    assert.is_true(client.raw:request(request or {}))
    pump()
  end

  local function events() return client:events(), server:events() end

  it("has interim answers, bodies and trailers both ways", function()
    open()
    begin { method = "PUT", path = "/a?b", length = -1, fields = { "c", "d" } }
    assert.is_true(client.raw:write("request"))
    assert.is_true(client.raw:finish { "t", "1" })
    pump()
    assert.is_true(server.raw:answer { status = 103, fields = { "link", "x" } })
    assert.is_true(server.raw:answer { status = 200, length = -1, fields = { "Upper", "y" } })
    assert.is_false(server.raw:answer { status = 200 })
    assert.is_true(server.raw:write(("z"):rep(5000), true))
    assert.is_true(server.raw:finish { "t", "2" })
    pump()
    local seen, heard = events()
    assert.same({ "PUT http host /a?b length -1\nc: d", "body request", "end\nt: 1", "close" }, heard)
    assert.same({ "103 length -1\nlink: x", "200 length -1\nupper: y", "body " .. ("z"):rep(5000), "end\nt: 2",
      "close" }, seen)
  end)

  it("is aborted by either side", function()
    open()
    begin { length = -1 }
    client.raw:abort()
    pump()
    local seen, heard = events()
    assert.equal("close: the exchange was aborted", seen[#seen])
    assert.equal("close: the client has reset the stream: CANCEL", heard[#heard])
    begin()
    server.raw:answer { status = 200, length = 5 }
    server.raw:write("abc")
    assert.is_false(server.raw:finish())
    pump()
    seen, heard = events()
    assert.equal("close: the server has reset the stream: INTERNAL_ERROR", seen[#seen])
    assert.equal("close: the body that was sent is shorter than its length", heard[#heard])
    assert.is_false(client:is_done() or server:is_done())
  end)

  it("keeps the answer for a client that pauses, even after the stream has closed", function()
    for _, ending in ipairs { "resume", "abort", "free" } do
      open()
      begin()
      server.raw:answer { status = 200, length = 100 * KIB }
      pump()
      client.raw:pause()
      server.raw:write(("x"):rep(100 * KIB))
      server.raw:finish()
      pump()
      local seen, heard = events()
      assert.same({ "200 length 102400\ncontent-length: 102400" }, seen)
      assert.equal("close", heard[#heard])
      if ending == "resume" then
        client.raw:resume()
        pump()
        assert.same({ "body " .. ("x"):rep(100 * KIB), "end", "close" }, client:events())
        begin()
      elseif ending == "abort" then
        client.raw:abort()
        pump()
        assert.same({ "close: the exchange was aborted" }, client:events())
        begin()
      end
      if ending ~= "free" then
        client.raw:free()
        server.raw:free()
      end
    end
  end)

  it("ends for the client with an early answer", function()
    open()
    begin { length = -1 }
    client.raw:feed(server:reply("early"), 0)
    pump()
    local seen, heard = events()
    assert.equal("close", seen[#seen])
    assert.equal("close", heard[#heard])
  end)

  it("is bounded: bodies and their times", function()
    open({ max_body = 10 }, { max_body = 10 })
    for _, length in ipairs { -1, 11 } do
      begin { length = length }
      if length == -1 then client.raw:write(("x"):rep(11)) end
      pump()
      local seen, heard = events()
      assert.matches("^413 ", seen[1])
      assert.equal("close: the body is too large", heard[#heard])
      begin()
      server.raw:answer { status = 200, length = length }
      server.raw:write(("x"):rep(11))
      pump()
      assert.equal("close: the body is too large", table.remove((client:events())))
      server:events()
    end
    begin { length = 5 }
    client.raw:feed(server:wait(60000), 60000)
    assert.matches("^408 ", client:events()[1])
  end)

  it("refuses requests that are not valid, or come after GOAWAY", function()
    open()
    for _, request in ipairs { { method = "CONNECT" }, { method = "a b" }, { path = "x" }, { authority = "" },
      { fields = { "host", "x" } }, { fields = { "a", "b\n" } }, { upgrade = "h2c" } } do
      assert.is_false(client.raw:request(request))
    end
    begin()
    server.raw:drain(1000, server.now)
    pump()
    assert.is_false(client.raw:request {})
    client.raw:feed(server:reply("last"), 0)
    pump()
    assert.equal("close", table.remove((client:events())))
    assert.is_true(server:is_done())
  end)

  it("fails at a client whose server breaks the rules", function()
    local function try(...)
      open()
      client.raw:request {}
      local frames = { h2.settings {} }
      for _, frame in ipairs { ... } do frames[#frames + 1] = frame end
      client.raw:take(nil, 0)
      client.raw:feed(table.concat(frames), 0)
      client.raw:take(nil, 0)
      client.raw:check()
      local seen = client:events()
      client.raw:free()
      server.raw:free()
      return seen[#seen]
    end
    local function answer(lines, ends) return h2.headers(1, lines, { ends = ends }) end
    local ok = { { ":status", "200" } }
    assert.equal("close", try(answer(ok, true)))
    assert.equal("close", try(answer({ { ":status", "100" } }), answer(ok), h2.data(1, "x", { ends = true })))
    for _, lines in ipairs { {}, { { "a", "b" } }, { { ":status", "20" } }, { { ":status", "101" } },
      { { ":status", "999" } }, { { ":status", "200" }, { ":status", "200" } }, { { ":status", "200" }, { "A", "b" } },
      { { ":status", "200" }, { "connection", "close" } } } do
      assert.equal("close: the head of the answer is malformed", try(answer(lines, true)))
    end
    assert.equal("close: the head of the answer is malformed", try(answer({ { ":status", "100" } }, true)))
    assert.equal("close: the content-length is not valid", try(answer { ok[1], { "content-length", "x" } }))
    assert.equal("close: the body is shorter than its length", try(answer({ ok[1], { "content-length", "3" } }, true)))
    assert.equal("close: the body is longer than its length",
      try(answer { ok[1], { "content-length", "3" } }, h2.data(1, "four")))
    assert.equal("close: the body precedes the head",
      try(answer { { ":status", "100" } }, h2.data(1, "x")))
    assert.equal("close: the trailers are malformed", try(answer(ok), answer(ok, true)))
    assert.equal("close: there are too many interim answers", try((answer { { ":status", "103" } }):rep(17)))
    assert.equal("close: the server has reset the stream: REFUSED_STREAM", try(h2.reset(1, "refused_stream")))
    open()
  end)

  it("leaves nothing behind where memory runs out #slow", function()
    local function converse()
      client.raw:request { method = "PUT", length = -1, fields = { "a", "b" } }
      for _, one in ipairs { client.raw, server.raw } do
        if one == server.raw then pcall(one.answer, one, { status = 200, length = -1 }) end
        pcall(one.write, one, "hello")
        pcall(one.write, one, ("x"):rep(5000), true)
        pcall(one.finish, one, { "c", "d" })
        pump()
      end
    end
    starve.try_each(function(n)
      local is_open = false
      local reached = starve.during(probe.fail_core, n, function()
        if not pcall(open) then return end
        is_open = true
        converse()
      end)
      if is_open then
        client.raw:free()
        server.raw:free()
      end
      return reached
    end)
    open()
  end)
end)
