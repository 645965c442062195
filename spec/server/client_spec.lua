--- The client's side of the engine, with a server whose frames are made by hand. client/hostile_spec.lua has wrong
-- answers.

local core = require "keywatch.core"

local h2 = require "spec.support.h2"

local OK = { { "grpc-status", "0" } }

describe("a client", function()
  local client

  before_each(function()
    client = core.client("spec", nil, 0)
    client:pending()
    client:feed(h2.settings {}, 0)
  end)

  after_each(function() client:close() end)

  --- Begins a call, and sends its request.
  local function call(is_half_closed)
    local id = client:call("/spec/Call")
    client:send(id, "ask")
    if is_half_closed then client:half_close(id) end
    client:pending()
    return id
  end

  local function headers(more)
    local lines = { { ":status", "200" }, { "content-type", "application/grpc" } }
    for _, line in ipairs(more or {}) do lines[#lines + 1] = line end
    return lines
  end

  --- Returns everything that was received: messages, and then the status and the text.
  local function take()
    local list = {}
    for id in client.next, client do
      for message, status, text in function() return client:receive(id) end do
        list[#list + 1] = message or status
        if not message then list[#list + 1] = text end
      end
    end
    return list
  end

  it("returns messages, and how the call ended", function()
    call(true)
    client:feed(h2.headers(1, headers()) .. h2.data(1, h2.message("a") .. h2.message("")) ..
      h2.headers(1, { { "grpc-status", "5" }, { "grpc-message", "n%C3%A4 100%25 %zz" } }, { ends = true }), 0)
    assert.same({ "a", "", 5, "n\195\164 100% %zz" }, take())
  end)

  it("ends a call when the server has, also if it is still sending", function()
    call(false)
    client:feed(h2.headers(1, headers { { "grpc-status", "14" }, { "grpc-message", "stopped" } }, { ends = true }), 0)
    client:pending()
    assert.same({ 14, "stopped" }, take())
    call(false)
    client:feed(h2.headers(3, headers()) .. h2.data(3, h2.message("a")) .. h2.headers(3, OK, { ends = true }), 0)
    client:pending()
    assert.same({ "a", 0, "" }, take())
  end)

  it("takes the last of two statuses", function()
    call(true)
    client:feed(h2.headers(1, headers { { "grpc-status", "0" }, { "grpc-message", "first" } }) ..
      h2.headers(1, { { "grpc-status", "2" }, { "grpc-message", "second" } }, { ends = true }), 0)
    assert.same({ 2, "second" }, take())
  end)

  it("derives a status from HTTP's status or HTTP/2's code if there is none of gRPC", function()
    for http, status in pairs { ["400"] = 13, ["401"] = 16, ["403"] = 7, ["404"] = 12, ["429"] = 14, ["502"] = 14,
      ["503"] = 14, ["504"] = 14, ["500"] = 2 } do
      local one = core.client("spec", nil, 0)
      one:pending()
      one:feed(h2.settings {}, 0)
      one:half_close(one:call("/spec/Call"))
      one:pending()
      one:feed(h2.headers(1, { { ":status", http }, { "content-type", "text/html" } }, { ends = true }), 0)
      assert.equal(status, (select(2, one:receive(one:next()))), http)
      one:close()
    end
    for code, status in pairs { refused_stream = 14, cancel = 1, no_error = 13, protocol_error = 13,
      internal_error = 13, enhance_your_calm = 8, flow_control_error = 8 } do
      local one = core.client("spec", nil, 0)
      one:pending()
      one:feed(h2.settings {}, 0)
      one:call("/spec/Call")
      one:pending()
      one:feed(h2.reset(1, code), 0)
      assert.equal(status, (select(2, one:receive(one:next()))), code)
      one:close()
    end
  end)

  it("refuses times that are negative or NaN", function()
    for _, name in ipairs { "handshake_timeout", "keepalive", "keepalive_timeout" } do
      for _, seconds in ipairs { -1, -1e-9, -1e300, -math.huge } do
        local ok, err = pcall(core.client, "spec", { [name] = seconds }, 0)
        assert.is_false(ok)
        assert.matches(("client: option '%s' must not be negative"):format(name), err, 1, true)
      end
      for _, value in ipairs { 0 / 0, "1", {} } do
        local ok, err = pcall(core.client, "spec", { [name] = value }, 0)
        assert.is_false(ok)
        assert.matches(("client: option '%s' must be a number of seconds"):format(name), err, 1, true)
      end
      for _, seconds in ipairs { 0, 1e-9, 1e300, math.huge } do core.client("spec", { [name] = seconds }, 0):close() end
    end
  end)

  it("sets the scheme of its requests for TLS or plain connections", function()
    for _, row in ipairs { { nil, "http" }, { false, "http" }, { true, "https" } } do
      local one = core.client("spec", { is_tls = row[1] }, 0)
      one:pending()
      one:feed(h2.settings {}, 0)
      one:call("/spec/Call")
      local schemes = {}
      for _, frame in ipairs((h2.frames(one:pending()))) do
        local scheme = frame.type == "headers" and frame.payload:match("[\134\135]") -- of the static table
        if scheme then schemes[#schemes + 1] = scheme == "\134" and "http" or "https" end
      end
      assert.same({ row[2] }, schemes)
      one:close()
    end
  end)

  it("takes the shortest timeout for a timeout, and not for none", function()
    local one = core.client("spec", { keepalive = 1e-9 }, 0)
    one:pending()
    one:feed(h2.settings {}, 0)
    one:call("/spec/Call")
    one:pending()
    assert.equal(0.001, one:deadline())
    one:close()
  end)

  it("has no results of a cancelled call, sent or not", function()
    local id = client:call("/spec/Call")
    client:cancel(id)
    client:pending()
    assert.same({}, take())
    id = call(true)
    client:feed(h2.headers(3, headers()) .. h2.data(3, h2.message("a")), 0)
    client:cancel(id)
    client:feed(h2.data(3, h2.message("b")) .. h2.headers(3, OK, { ends = true }), 0)
    client:pending()
    assert.same({}, take())
  end)

  it("receives answers larger than the server may send at once", function()
    local id = client:call("/spec/Call")
    client:half_close(id)
    client:pending()
    local size = 70 * 2 ^ 20
    client:feed(h2.headers(1, headers()) .. h2.data(1, "\0" .. h2.pack(size, 4)), 0)
    local part = ("x"):rep(16384)
    for _ = 1, size / 16384 do
      client:feed(h2.data(1, part), 0)
      client:pending()
    end
    client:feed(h2.headers(1, OK, { ends = true }), 0)
    assert.equal(id, client:next())
    assert.equal(size, #client:receive(id))
    assert.equal(0, (select(2, client:receive(id))))
  end)

  it("continues reading while much of its output is blocked", function()
    client:send(client:call("/spec/Call"), ("x"):rep(6 * 2 ^ 20))
    assert.equal(1, #client:pending(1))
    assert.is_true((client:state()))
  end)

  it("blocks a call whose messages are not received, and no other call", function()
    local id = client:call("/spec/Call")
    client:pending()
    client:feed(h2.frame("settings", h2.flags.ack, 0, "") .. h2.headers(1, headers()), 0)
    local part = h2.message(("x"):rep(16379))
    local window, n, taken = 2 ^ 20, 0, 0
    --- Adds the bytes of received WINDOW_UPDATE frames to the window.
    local function grant()
      for _, frame in ipairs(h2.frames(client:pending())) do
        if frame.type == "window" and frame.id == 1 then window = window + h2.unpack_at(frame.payload, 1, 4) end
      end
    end
    while window >= #part do
      client:feed(h2.data(1, part), 0)
      window, n = window - #part, n + 1
      grant()
      assert(n < 10000, "there is no end")
    end
    local other = client:call("/spec/Call")
    client:half_close(other)
    client:pending()
    client:feed(h2.headers(3, headers()) .. h2.data(3, h2.message("a")) .. h2.headers(3, OK, { ends = true }), 0)
    assert.equal(id, client:next())
    assert.equal(other, client:next())
    assert.equal("a", client:receive(other))
    for _ in function() return client:receive(id) end do taken = taken + 1 end
    assert.equal(n, taken)
    grant()
    assert(window >= #part)
  end)
end)
