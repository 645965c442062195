--- HTTP requests over HTTP/2 that are not gRPC calls: streams, backpressure and resets, beside calls on the same
-- connection. What HTTP/1.1 does, too, is in http_spec.

local uv = require "spec.support.luv"
package.loaded.luv = uv -- luv's loop turns the servers; each spec file has modules of its own

local keywatch = require "keywatch"

local curl = require "spec.support.curl"
local h2 = require "spec.support.h2"
local process = require "spec.support.process"
local raw = require "spec.support.raw"

local KIB, MIB = 1024, 1024 * 1024

describe("HTTP/2 of a server", function()
  local store, server, port, opened, lines

  before_each(function()
    store, opened, lines = keywatch.open(), {}, {}
    server = assert(keywatch.serve { store = store, listen = "http://127.0.0.1:0",
      on_log = function(level, text) lines[#lines + 1] = level .. " " .. text end })
    port = tonumber(server:addresses()[1]:match("%d+$"))
  end)

  after_each(function()
    for _, one in ipairs(opened) do one:close() end
    server:close()
    store:close()
    uv.run "nowait"
  end)

  local function connect(options)
    local one = raw.connect(port, options)
    opened[#opened + 1] = one
    return one
  end

  --- Begins a request. Returns its stream's id.
  local function begin(one, method, target, ends)
    local id = one:next_stream()
    one:send(h2.headers(id, { { ":method", method }, { ":scheme", "http" }, { ":path", target },
      { ":authority", "localhost" } }, { ends = ends }))
    return id
  end

  local function get(one, target) return begin(one, "GET", target, true) end

  local function await_stream(one, id)
    one:await(function() return one:has_ended_stream(id) end, "the answer")
    return one.streams[id], one:body(id)
  end

  local function status_of(stream) return h2.read_block(stream.headers[1])[":status"] end

  it("answers HEAD as GET, without the body", function()
    server:handle("GET", "/", function() return "five!" end)
    for path, length in pairs { ["/"] = 5, ["/version"] = 45 } do
      local answer = curl.ask(port, "HEAD", path)
      assert.equal(200, answer.status)
      assert.matches(("\r\ncontent%%-length: %d\r\n"):format(length), answer.head)
      assert.equal("", answer.body)
    end
  end)

  it("echoes a body of 5 MB while it arrives, also after status 100", function()
    server:handle("POST", "/echo", function(request)
      request:answer(200, { ["content-type"] = "a/b" })
      for part in request.read, request do request:write(part) end
    end)
    local bytes = {}
    for i = 1, 5000 do bytes[i] = ("%04d"):format(i):rep(250) end
    bytes = table.concat(bytes)
    local answer = curl.ask(port, "POST", "/echo", "", bytes, "--expect100-timeout", "60")
    assert.equal(200, answer.status)
    assert.is_true(answer.body == bytes)
  end)

  it("answers before the body has arrived, and drops the rest", function()
    server:handle("POST", "/whole", function(request) return request:body(1000) end)
    assert.equal(404, curl.ask(port, "POST", "/none", "", ("x"):rep(50 * KIB)).status)
    assert.equal(413, curl.ask(port, "POST", "/whole", "", ("x"):rep(5 * MIB)).status)
  end)

  it("refuses a request that is not valid, and continues", function()
    assert.equal(400, curl.ask(port, "GET", "/%zz").status)
    assert.equal(400, curl.ask(port, "GET", "/../x").status)
    assert.equal(417, curl.ask(port, "POST", "/", "Expect: wonders", "x").status)
    local one = connect()
    local id = begin(one, "CONNECT", "/", true)
    assert.equal("501", status_of(await_stream(one, id)))
    id = get(one, "/version")
    assert.equal("200", status_of(await_stream(one, id)))
  end)

  it("carries requests and gRPC calls on one connection", function()
    server:handle("GET", "/value/{key}", function(request) return store:get(request.params.key).value end)
    local one = connect()
    local frame = require "spec.support.frame"
    for i = 1, 5 do
      local stuck = begin(one, "POST", "/value/k") -- has no end
      assert(one:call(raw.PUT, frame.put("k", "value " .. i)))
      local id = get(one, "/value/k")
      local stream, body = await_stream(one, id)
      assert.equal("200", status_of(stream))
      assert.equal("value " .. i, body)
      assert.equal("405", status_of(await_stream(one, stuck)))
    end
    local ids = {}
    for i = 1, 100 do ids[i] = get(one, "/value/k") end
    for i = 1, 100 do assert.equal("value 5", (select(2, await_stream(one, ids[i])))) end
  end)

  it("makes the text of /metrics once for all requests that have arrived", function()
    local metrics = require "keywatch.server.metrics"
    local text, made = metrics.text, 0
    function metrics.text(...)
      made = made + 1
      return text(...)
    end
    finally(function() metrics.text = text end)
    local one, ids = connect(), {}
    for i = 1, 64 do ids[i] = get(one, "/metrics") end
    for i = 1, 64 do assert.matches("\netcd_mvcc_put_total 0\n", (select(2, await_stream(one, ids[i])))) end
    store:put("a", "b")
    assert.matches("\netcd_mvcc_put_total 1\n", (select(2, await_stream(one, get(one, "/metrics")))))
    assert.is_true(made > 1 and made <= 8, made)
  end)

  it("sends a stream, which waits for the window of the client", function()
    local sent = 0
    server:handle("GET", "/stream", function(request)
      for _ = 1, 64 do
        request:write(("x"):rep(MIB / 4))
        sent = sent + 1
      end
    end)
    local one = connect { window = 100 }
    local id = get(one, "/stream")
    one:await(function() return one.streams[id] and one.streams[id].size == 100 end, "the first bytes")
    for _ = 1, 100 do uv.run("nowait") end
    assert.is_true(sent <= 2, sent)
    assert.equal(100, one.streams[id].size)
    one:send(h2.window(id, 2 ^ 30))
    local _, body = await_stream(one, id)
    assert.equal(16 * MIB, #body)
    assert.equal(64, sent)
  end)

  it("resets the stream of an answer that fails", function()
    server:handle("GET", "/stream", function(request)
      request:write("begun")
      keywatch.sleep(0.01)
      error "x"
    end)
    local one = connect()
    local id = get(one, "/stream")
    local stream, body = await_stream(one, id)
    assert.equal(raw.INTERNAL_ERROR, stream.reset)
    assert.equal("begun", body)
    assert.is_false(stream.has_ended)
    assert.equal(1, #lines)
  end)

  it("cancels the handler of a client that resets the stream, or disconnects", function()
    local ends = {}
    server:handle("GET", "/stream/{n}", function(request)
      request:write("begun")
      local ok, err = pcall(keywatch.sleep, 60)
      ends[request.params.n] = not ok and err.code
      request:write("more")
    end)
    server:handle("POST", "/body", function(request)
      local ok, err = pcall(request.body, request)
      ends.body = not ok and err.code
      error(err, 0)
    end)
    local one, other = connect(), connect()
    local first, second = get(one, "/stream/1"), begin(one, "POST", "/body")
    one:send(h2.data(second, "12345"))
    local third = get(other, "/stream/2")
    one:await(function() return one.streams[first] and one.streams[first].size == 5 end, "an answer")
    other:await(function() return other.streams[third] and other.streams[third].size == 5 end, "an answer")
    one:send(h2.reset(first) .. h2.reset(second))
    other:close()
    process.turn_until(function() return ends["1"] and ends["2"] and ends.body end)
    assert.same({ ["1"] = "cancelled", ["2"] = "cancelled", body = "cancelled" }, ends)
    assert.same({}, lines)
    assert.equal("200", status_of(await_stream(one, get(one, "/health"))))
  end)

  it("lets requests end when it is shut down", function()
    local has_begun = false
    server:handle("GET", "/slow", function()
      has_begun = true
      keywatch.sleep(0.05)
      return "done"
    end)
    local one = connect()
    local id = get(one, "/slow")
    process.turn_until(function() return has_begun end)
    local ended = keywatch.spawn(function() return server:shutdown(10) end)
    assert.equal("done", (select(2, await_stream(one, id))))
    one:await_end()
    one:close()
    assert.equal(raw.NO_ERROR, one.goaway.code)
    process.turn_until(function() return ended.state == "done" end)
  end)
end)
