--- HTTP/1.1 that is wrong, endless or very much, over sockets. Each request is answered with a status or ends its
-- connection, memory is bounded, and others are served.

local attack = require "spec.support.attack"
local http = require "spec.support.http"
local raw = require "spec.support.raw"

local KIB, MIB = 1024, 1024 * 1024
local CONNECTION = 32 * KIB -- of a client that has sent little
local SLACK = 8 * MIB       -- memory that the allocator and the garbage collector keep
local BLOCK = ("x"):rep(MIB)
local GIB = 1024 -- blocks

local HOST = "Host: localhost\r\n"
local GET = "GET /text HTTP/1.1\r\n" .. HOST

local function post(path, length)
  return ("POST %s HTTP/1.1\r\n%s%s\r\n\r\n"):format(path, HOST,
    length and "Content-Length: " .. length or "Transfer-Encoding: chunked")
end

describe("a server that is attacked over HTTP/1.1 #once", function()
  local target
  local opened = {}

  setup(function() target = attack.start { before = 'require "spec.support.http_handlers"', open_files = "hard" } end)
  before_each(function() target:mark() end)

  after_each(function()
    for _, one in ipairs(opened) do one:close() end
    opened = {}
  end)

  teardown(function()
    if target then target:finish() end
  end)

  local function connect(bytes, is_paused)
    local one = http.connect(target.peer.port, is_paused)
    opened[#opened + 1] = one
    if bytes then one:say(bytes) end
    return one
  end

  local function expect_healthy(bytes)
    for _, one in ipairs(opened) do one:close() end
    opened = {}
    target:expect_healthy(bytes)
  end

  --- Sends a block again and again, as long as the server takes it; at most n times.
  local function pour(one, block, n)
    local sent = 0
    local function again(err)
      if err or one.is_over or sent == n then return end
      sent = sent + 1
      one.socket:write(block, again)
    end
    again()
  end

  --- Waits for an answer, or the end of the connection. Returns the status or nil.
  local function status_of(one)
    local answer = one:wait()
    return answer and answer.status
  end

  describe("refuses", function()
    for what, case in pairs {
      ["two kinds of length"] = { 400, post("/length") :gsub("\r\n\r\n$", "\r\nContent-Length: 3\r\n\r\n") },
      ["several lengths"] = { 400, post("/length", "3\r\nContent-Length: 3") .. "abc" },
      ["a list of lengths"] = { 400, post("/length", "3, 3") .. "abc" },
      ["a length with a sign"] = { 400, post("/length", "+3") .. "abc" },
      ["another coding"] = { 501, post("/length"):gsub("chunked", "gzip, chunked") },
      ["a chunk without a size"] = { 400, post("/length") .. "\r\nabc\r\n0\r\n\r\n" },
      ["a chunk with a size that is not hexadecimal"] = { 400, post("/length") .. "0x3\r\nabc\r\n0\r\n\r\n" },
      ["a chunk with a negative size"] = { 400, post("/length") .. "-3\r\nabc\r\n0\r\n\r\n" },
      ["a chunk whose size is beyond 64 bits"] = { 400, post("/length") .. "10000000000000003\r\nabc\r\n0\r\n\r\n" },
      ["a chunk that is longer than its size"] = { 400, post("/length") .. "3\r\nabcd\r\n0\r\n\r\n" },
      ["a chunk whose line has no CR"] = { 400, post("/length") .. "3\nabc\r\n0\r\n\r\n" },
      ["lines without CR"] = { 400, "GET /text HTTP/1.1\nHost: localhost\n\n" },
      ["a folded field"] = { 400, GET .. "a: b\r\n c\r\n\r\n" },
      ["space before a colon"] = { 400, GET .. "Content-Length : 0\r\n\r\n" },
      ["two hosts"] = { 400, GET .. HOST .. "\r\n" },
      ["no host"] = { 400, "GET /text HTTP/1.1\r\n\r\n" },
      ["a host that is none"] = { 400, "GET /text HTTP/1.1\r\nHost: a b\r\n\r\n" },
      ["a URL of another host"] = { 421, "GET http://evil.example/text HTTP/1.1\r\n" .. HOST .. "\r\n" },
      ["an asterisk that is not for OPTIONS"] = { 400, "GET * HTTP/1.1\r\n" .. HOST .. "\r\n" },
      ["CONNECT"] = { 501, "CONNECT localhost:80 HTTP/1.1\r\n" .. HOST .. "\r\n" },
      ["HTTP/2.0 in a line"] = { 505, "GET /text HTTP/2.0\r\n" .. HOST .. "\r\n" },
      ["an escape that is none"] = { 400, "GET /echo/%zz HTTP/1.1\r\n" .. HOST .. "\r\n" },
      ["an encoded byte 0"] = { 400, "GET /echo/a%00b HTTP/1.1\r\n" .. HOST .. "\r\n" },
      ["an encoded way upwards"] = { 400, "GET /echo/%2e%2e/text HTTP/1.1\r\n" .. HOST .. "\r\n" },
      ["bytes that are not text in a path"] = { 400, "GET /echo/\255 HTTP/1.1\r\n" .. HOST .. "\r\n" },
      ["a query of 1 MB"] = { 414, "GET /echo/a?" .. ("a&"):rep(500000) .. " HTTP/1.1\r\n" .. HOST .. "\r\n" },
      ["a million fields"] = { 431, GET .. ("a: b\r\n"):rep(1000000) .. "\r\n" },
      ["JSON that is deeply nested"] = { 400, post("/json", 100000) .. ("["):rep(100000) },
      ["JSON of objects that are deeply nested"] = { 400, post("/json", 500000) .. ('{"a":'):rep(100000) },
      ["JSON that is not UTF-8"] = { 400, post("/json", 3) .. '"\255"' },
      ["JSON with a number out of range"] = { 400, post("/json", 5) .. "1e999" },
    } do
      it(what, function()
        local one = connect(case[2])
        assert.equal(case[1], status_of(one))
        expect_healthy(SLACK)
      end)
    end
  end)

  it("serves what is unusual and valid", function()
    for bytes, expected in pairs {
      ["GET http://localhost/echo/a HTTP/1.1\r\n" .. HOST .. "\r\n"] = "a 0",
      ["GET /echo/a%2Fb%C3%A9?a=%zz&b=%&%00=1&a=2 HTTP/1.1\r\n" .. HOST .. "\r\n"] = "a/b\195\169 3",
      ["GET /echo/%ff HTTP/1.1\r\n" .. HOST .. "\r\n"] = "\255 0",
      ["GET /echo/" .. ("%41"):rep(2700) .. " HTTP/1.1\r\n" .. HOST .. "\r\n"] = ("A"):rep(2700) .. " 0",
      ["GET /echo" .. ("/"):rep(8000) .. " HTTP/1.1\r\n" .. HOST .. "\r\n"] = ("/"):rep(7999) .. " 0",
      ["GET /echo/a?" .. ("a&"):rep(4000) .. " HTTP/1.1\r\n" .. HOST .. "\r\n"] = "a 1",
      [GET .. ("a: b\r\n"):rep(98) .. "\r\n"] = "0123456789",
      [GET .. ("a: " .. ("b"):rep(600) .. "\r\n"):rep(98) .. "\r\n"] = "0123456789",
    } do
      assert.equal(expected, assert(connect(bytes):wait()).body)
    end
    expect_healthy(SLACK)
  end)

  describe("is not filled by 1 GiB of", function()
    for what, case in pairs {
      ["a field"] = { 431, GET .. "a: " },
      ["a body for a handler that does not read"] = { 200, post("/unread", GIB * MIB) },
      ["a body for a handler that reads a whole one"] = { 413, post("/length", GIB * MIB) },
      ["a body for no handler"] = { 404, post("/nothing", GIB * MIB) },
      ["a chunk for no handler"] = { 404, post("/nothing") .. "40000000\r\n" },
    } do
      it(what, function()
        local one = connect(case[2])
        pour(one, BLOCK, GIB)
        local status = status_of(one)
        assert(status == case[1] or status == nil, status) -- a client that only sends may lose the answer
        raw.turn_until(function() return one.is_over end, "the end of the connection")
        expect_healthy(24 * MIB + SLACK)
      end)
    end
  end)

  it("is not filled by a body that a handler reads in parts", function()
    local one = connect(post("/parts", 200 * MIB))
    pour(one, BLOCK, 200)
    assert.equal(tostring(200 * MIB), assert(one:wait()).body)
    expect_healthy(SLACK)
  end)

  it("joins the bytes of a body in chunks of one byte", function()
    local n = MIB
    for _, path in ipairs { "/length", "/parts" } do
      local one = connect(post(path) .. ("1\r\nx\r\n"):rep(n) .. "0\r\n\r\n")
      assert.equal(tostring(n), assert(one:wait()).body)
    end
    expect_healthy(8 * MIB + SLACK)
  end)

  it("answers 100,000 pipelined requests in order, and waits for a client that does not read", function()
    local one = connect(nil, true)
    local n, rest, wrong, block = 0, "", nil, {}
    for i = 1, 1000 do block[i] = ("GET /echo/%d HTTP/1.1\r\n%s\r\n"):format(i, HOST) end
    pour(one, table.concat(block), 100)
    for _ = 1, 100 do target.witness:ask() end
    one.socket:read_start(function(_, chunk)
      local from = 1
      rest = rest .. (chunk or "")
      for number, at in rest:gmatch("\r\n\r\n(%d+) 0()") do
        if tonumber(number) ~= n % 1000 + 1 then wrong = wrong or number .. " is answer " .. n end
        n, from = n + 1, at
      end
      rest = rest:sub(from)
    end)
    raw.turn_until(function() return n == 100000 or wrong end, "all answers")
    assert.is_nil(wrong)
    expect_healthy(8 * MIB + SLACK)
  end)

  it("gives each client that does not read a large answer a part of it", function()
    for _ = 1, 20 do connect("GET /blocks/1000 HTTP/1.1\r\n" .. HOST .. "\r\n", true) end
    for _ = 1, 20 do connect(("GET /metrics HTTP/1.1\r\n" .. HOST .. "\r\n"):rep(100), true) end
    for _ = 1, 500 do target.witness:ask() end
    expect_healthy(40 * MIB + SLACK)
  end)

  it("keeps a thousand idle connections, after a request and before one", function()
    local connections = {}
    for i = 1, 1000 do connections[i] = connect(i % 2 == 0 and GET .. "\r\n" or i % 3 == 0 and "GET /te" or nil) end
    for i = 2, 1000, 2 do assert.equal(200, status_of(connections[i])) end
    target.witness:ask()
    expect_healthy(1000 * CONNECTION + SLACK)
  end)

  it("answers a client that has closed its side", function()
    for _, path in ipairs { "/text", "/zeros/5000000", "/stream/1000" } do
      local one = connect(("GET %s HTTP/1.1\r\n%s\r\n"):format(path, HOST))
      one.socket:shutdown()
      assert.equal(200, status_of(one), path)
      raw.turn_until(function() return one.is_over end, "the end of the connection")
    end
    expect_healthy(16 * MIB + SLACK)
  end)

  it("forgets clients that reset their connections in the middle of a handler", function()
    for _, request in ipairs { "GET /wait HTTP/1.1\r\n" .. HOST .. "\r\n", post("/length", 1000) .. "x",
      "GET /stream/10000000 HTTP/1.1\r\n" .. HOST .. "\r\n" } do
      for _ = 1, 100 do
        local one = http.connect(target.peer.port, true)
        one.socket:write(request, function() one.socket:close_reset() end)
      end
      target.witness:ask()
    end
    raw.turn_until(function() return target.peer:descriptors() <= target.descriptors end, "the end of all connections")
    expect_healthy(300 * CONNECTION + 24 * MIB + SLACK)
  end)
end)
