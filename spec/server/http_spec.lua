--- HTTP/1.1 and HTTP/2 on the gRPC port: handlers of the program, middleware, plain endpoints, and rules for
-- browsers. HTTP/2 connections are in http2_spec.

local uv = require "spec.support.luv"
package.loaded.luv = uv -- luv's loop turns the servers; each spec file has modules of its own

local keywatch = require "keywatch"

local core = require "keywatch.core"
local curl = require "spec.support.curl"
local frame = require "spec.support.frame"
local h2 = require "spec.support.h2"
local http = require "spec.support.http"
local json = require "keywatch.json"
local process = require "spec.support.process"
local raw = require "spec.support.raw"

local MIB = 1024 * 1024
local unpack = table.unpack or unpack -- luacheck: ignore
local web = require("keywatch.http").client { protocol = "h2" }

local function declare(protocol)
  local it_1 = protocol == "HTTP/1.1" and it or function() end -- for HTTP/1.1 connections
  local store, server, port, opened, lines

  local function serve(options)
    options = options or {}
    options.store, options.listen = store, "http://127.0.0.1:0"
    function options.on_log(level, text) lines[#lines + 1] = level .. " " .. text end
    server = assert(keywatch.serve(options))
    port = tonumber(server:addresses()[1]:match("%d+$"))
  end

  before_each(function()
    store, opened, lines = keywatch.open(), {}, {}
    serve()
  end)

  after_each(function()
    for _, one in ipairs(opened) do one:close() end
    server:close()
    store:close()
  end)

  local function connect(is_paused)
    local one = http.connect(port, is_paused)
    opened[#opened + 1] = one
    return one
  end

  --- Makes a request on a new connection. Returns the answer: { status, head, body }.
  local function ask(method, target, fields, body, host)
    fields, body = ("host: %s\r\n%s"):format(host or "localhost", fields or ""), body or ""
    if protocol == "HTTP/2" then return curl.ask(port, method, target, fields, body) end
    local one = connect()
    one:say(("%s %s HTTP/1.1\r\n%scontent-length: %d\r\n\r\n%s"):format(method, target, fields, #body, body))
    return assert(one:wait())
  end

  --- Makes a HEAD request on a new connection. Returns the whole answer.
  local function head(target)
    if protocol == "HTTP/2" then
      local answer = curl.ask(port, "HEAD", target)
      assert.equal("", answer.body)
      return " " .. answer.status .. " " .. answer.head
    end
    local one = connect()
    one:say(("HEAD %s HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"):format(target))
    if not process.turn_until(function() return one.is_over end) then error("the answer does not end", 2) end
    return one:received()
  end

  describe("calls the handler of the", function()
    local function named(name) return function(request) return name .. ":" .. (request.params.x or "") end end

    before_each(function()
      server:handle("GET", "/a", named "a")
      server:handle("POST", "/a", named "post")
      server:handle("GET", "/a/{x}", named "one")
      server:handle("GET", "/a/b", named "literal")
      server:handle("GET", "/a/{x}/c", named "inner")
      server:handle("GET", "/files/{x...}", named "rest")
      server:handle("GET", "/", named "root")
    end)

    it("pattern that fits best", function()
      for target, name in pairs {
        ["/a"] = "a:", ["/a?x=1"] = "a:", ["/a/b"] = "literal:", ["/a/d"] = "one:d", ["/a/b/c"] = "inner:b",
        ["/a/%2f%20/c"] = "inner:/ ", ["/files/"] = "rest:", ["/files/p/q%2fr"] = "rest:p/q/r", ["/"] = "root:",
      } do
        assert.equal(name, ask("GET", target).body, target)
      end
      assert.equal("post:", ask("POST", "/a").body)
    end)

    it("path, or answers 404, 405 or, for OPTIONS, 204", function()
      for _, target in ipairs { "/b", "/a/", "/a/b/d", "/files", "//a" } do
        assert.equal(404, ask("GET", target).status, target)
      end
      local answer = ask("PUT", "/a")
      assert.equal(405, answer.status)
      assert.matches("\r\nallow: GET, HEAD, OPTIONS, POST\r\n", answer.head)
      answer = ask("OPTIONS", "/a/b")
      assert.equal(204, answer.status)
      assert.matches("\r\nallow: GET, HEAD, OPTIONS\r\n", answer.head)
    end)

    it_1("method GET for HEAD, without the body", function()
      assert.matches("^HTTP/1.1 200 OK\r\n.*\r\ncontent%-length: 5\r\n.*\r\n\r\n$", head "/a/d")
    end)

    it("method GET for HEAD, which ends once the head is sent", function()
      local ends, written = {}, 0
      server:handle("GET", "/changes", function(request)
        local ok, err = pcall(request.answer, request, 200, { kind = "stream" })
        ends.answer = not ok and err.code
        error(err, 0)
      end)
      server:handle("GET", "/endless", function(request)
        local ok, err = true, nil
        while ok and written < 1000 do
          ok, err = pcall(request.write, request, "x")
          written = written + 1
        end
        ends.write = not ok and err.code
      end)
      assert.matches("\r\nkind: stream\r\n", head "/changes")
      assert.matches(" 200 ", head "/endless")
      assert.same({ answer = "cancelled", write = "cancelled" }, ends)
      assert.equal(1, written)
      assert.same({}, lines)
    end)

    it_1("method GET for HEAD, and then that of the next request on the connection", function()
      local one = connect()
      for _ = 1, 3 do one:say("HEAD /a/d HTTP/1.1\r\nhost: localhost\r\n\r\n") end
      one:say("GET /a/e HTTP/1.1\r\nhost: localhost\r\n\r\n")
      process.turn_until(function() return one.is_over or one:received():find("one:e", 1, true) end)
      local _, n = one:received():gsub("HTTP/1.1 200 OK\r\n", "")
      assert.equal(4, n)
      assert.is_false(one.is_over)
    end)
  end)

  it("refuses patterns that nothing matches, or that exist", function()
    local function nothing() end
    server:handle("GET", "/a/{x}", nothing)
    for _, pattern in ipairs { "a", "", "/a/{y}", "/{x", "/x{y}", "/{x...}/b", "/{1}" } do
      assert.has_error(function() server:handle("GET", pattern, nothing) end)
    end
    assert.has_error(function() server:handle("GET", "/x") end)
    server:close()
    assert.has_error(function() server:handle("GET", "/late", nothing) end)
  end)

  it("shows a handler the request", function()
    local seen
    server:handle("POST", "/see/{what}", function(request)
      seen = {}
      for _, name in ipairs { "method", "path", "query_text", "host", "scheme" } do seen[name] = request[name] end
      seen.query, seen.agent, seen.peer = request.query, request.headers["user-agent"], request.peer
      seen.body, seen.shown, seen.params = request:body(), tostring(request), request.params
      return "seen"
    end)
    ask("POST", "/see/it%21?a=1&b=x+y&a=2&c", "User-Agent: spec\r\nuser-agent: twice\r\n", "body")
    assert.matches("^127%.0%.0%.1:%d+$", seen.peer)
    seen.peer = nil
    assert.same({
      method = "POST", path = "/see/it%21", query_text = "a=1&b=x+y&a=2&c", host = "localhost", scheme = "http",
      query = { a = "1", b = "x y", c = "" }, agent = "spec,twice", body = "body", params = { what = "it!" },
      shown = "keywatch.request<POST /see/it%21>",
    }, seen)
  end)

  describe("answers with", function()
    it("what the handler returns", function()
      local results = {
        text = { "text" }, status = { 404 }, all = { 201, "made", { ["content-type"] = "a/b", link = { "x", "y" } } },
        headers = { "typed", { ["content-type"] = "c/d" } }, err = { nil, core.new_error("not_found") },
        own = { nil, { http_status = 418, message = "tea", headers = { kind = "green" } } },
      }
      server:handle("GET", "/{name}", function(request) return unpack(results[request.params.name], 1, 3) end)
      local function check(name, status, body, ...)
        local answer = ask("GET", "/" .. name)
        assert.equal(status, answer.status)
        assert.equal(body, answer.body)
        for _, line in ipairs { ... } do assert.matches("\r\n" .. line .. "\r\n", answer.head .. "\r\n") end
      end
      check("text", 200, "text", "content%-type: text/plain; charset=utf%-8", "content%-length: 4")
      check("status", 404, "")
      check("all", 201, "made", "content%-type: a/b", "link: x", "link: y")
      check("headers", 200, "typed", "content%-type: c/d")
      check("err", 404, core.new_error("not_found").message .. "\n")
      check("own", 418, "tea\n", "kind: green")
    end)

    it("500, and a line in the log, if the handler fails", function()
      for _, handler in ipairs {
        function() error "secret" end, function() end, function() return {} end, function() return 200, {} end,
        function() return 103 end, function(request) request:answer(100) end,
        function() return 200, "", { long = ("x"):rep(70000) } end,
        function(request) request:answer(200, { ["bad name"] = "x" }) end,
        function(request) request:answer(99) end,
      } do
        local before = #lines
        server:handle("GET", "/fail" .. before, handler)
        local answer = ask("GET", "/fail" .. before)
        assert.equal(500, answer.status)
        assert.is_nil(answer.body:find("secret"))
        assert.equal(before + 1, #lines, table.concat(lines, "\n"))
      end
    end)

    it("headers without surrounding spaces, which HTTP/2 forbids", function()
      server:handle("GET", "/", function(request)
        return request.headers.own or "", { kind = " a b\t", none = "  " }
      end)
      local answer = head "/"
      assert.matches("\r\nkind: a b\r\n", answer)
      assert.matches("\r\nnone: \r\n", answer)
      local own = assert(web:request(server:addresses()[1], { headers = { own = " c d " } }))
      assert.same({ "a b", "c d" }, { own.headers.kind, own.body })
    end)

    it("no length if the status is 304", function()
      server:handle("GET", "/known", function() return 304 end)
      local answer = head "/known"
      assert.matches(" 304 ", answer)
      assert.is_nil(answer:find("content-length", 1, true))
    end)

    it("no body if the status has none", function()
      local failures = {}
      for _, status in ipairs { 204, 304 } do
        server:handle("GET", "/" .. status, function(request)
          request:answer(status)
          failures[status] = select(2, pcall(request.write, request, "x"))
        end)
        assert.equal(status, ask("GET", "/" .. status).status)
        assert.matches("write: an answer with status " .. status .. " has no body", failures[status])
      end
    end)

    it_1("a stream, which waits for the client", function()
      local sent = 0
      server:handle("GET", "/stream", function(request)
        request:answer(200, { ["content-type"] = "a/b" })
        for _ = 1, 64 do
          request:write(("x"):rep(MIB / 4))
          sent = sent + 1
        end
      end)
      local one = connect(true)
      one:say("GET /stream HTTP/1.1\r\nhost: localhost\r\n\r\n")
      process.turn_until(function() return sent > 0 end)
      for _ = 1, 100 do uv.run("nowait") end
      assert.is_true(sent < 64, sent)
      one:resume()
      process.turn_until(function() return one.n_received > 16 * MIB end)
      assert.equal(16 * MIB, #assert(one:wait()).body)
    end)

    it_1("a broken chunk sequence if a stream fails", function()
      server:handle("GET", "/stream", function(request)
        request:write("begun")
        error "x"
      end)
      local one = connect()
      one:say("GET /stream HTTP/1.1\r\nhost: localhost\r\n\r\n")
      assert.is_nil((one:wait()))
      assert.is_true(one.is_over)
      assert.matches("begun", one:received())
      assert.is_nil(one:received():find("\r\n0\r\n"))
    end)
  end)

  it("limits the body that a handler reads as a whole, and no other", function()
    server:handle("POST", "/whole", function(request) return tostring(#request:body(1000)) end)
    server:handle("POST", "/parts", function(request)
      local n = 0
      for part in request.read, request do n = n + #part end
      return tostring(n)
    end)
    server:handle("POST", "/none", function() return "none" end)
    assert.equal("1000", ask("POST", "/whole", nil, ("x"):rep(1000)).body)
    assert.equal(413, ask("POST", "/whole", nil, ("x"):rep(1001)).status)
    assert.equal(tostring(4 * MIB), ask("POST", "/parts", nil, ("x"):rep(4 * MIB)).body)
    assert.equal("none", ask("POST", "/none", nil, ("x"):rep(1000)).body)
  end)

  it_1("counts the bodies that handlers wait for as memory of their connections", function()
    server:close()
    serve { quota_connection_bytes = 2 * MIB }
    server:handle("POST", "/whole", function(request) return tostring(#request:body()) end)
    local part, statuses, all = ("x"):rep(MIB / 32), {}, {}
    for i = 1, 6 do
      all[i] = connect()
      all[i]:say(("POST /whole HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n"):format(MIB))
    end
    for _ = 1, 32 do
      for i = 1, 6 do all[i]:say(part) end
      for _ = 1, 8 do uv.run("nowait") end -- so that the handlers take what has arrived
    end
    for i = 1, 6 do
      local answer = all[i]:wait()
      local status = answer and answer.status or "closed"
      statuses[status] = (statuses[status] or 0) + 1
    end
    assert.is_true((statuses[503] or 0) >= 3)
    assert.equal(tostring(MIB), ask("POST", "/whole", nil, ("x"):rep(MIB)).body)
  end)

  it_1("reads a body in chunks, and trailers", function()
    server:handle("POST", "/", function(request) return request:body() end)
    local one = connect()
    one:say("POST / HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
      .. "2\r\nab\r\n1\r\nc\r\n0\r\na: b\r\n\r\n")
    assert.equal("abc", assert(one:wait()).body)
  end)

  it_1("cancels the handler of a client that disconnects", function()
    local ends = {}
    server:handle("GET", "/stream", function(request)
      request:write("begun")
      local ok, err = pcall(keywatch.sleep, 60)
      ends.stream = not ok and err.code
      request:write("more")
    end)
    server:handle("POST", "/body", function(request)
      local ok, err = pcall(request.body, request)
      ends.body = not ok and err.code
      error(err, 0)
    end)
    local first, second = connect(), connect()
    first:say("GET /stream HTTP/1.1\r\nhost: localhost\r\n\r\n")
    second:say("POST /body HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\n12345")
    process.turn_until(function() return first.n_received > 0 end)
    first:close()
    second:close()
    process.turn_until(function() return ends.stream and ends.body end)
    assert.same({ stream = "cancelled", body = "cancelled" }, ends)
    assert.same({}, lines)
  end)

  it_1("cancels the handler of a client that resets the connection behind bytes that are not read", function()
    local begun, ended = 0, {}
    local function wait()
      begun = begun + 1
      local _, err = pcall(keywatch.sleep, 600)
      ended[#ended + 1] = err.code
    end
    server:handle("GET", "/wait", wait)
    server:handle("POST", "/wait", wait)
    local pipelined, upload = connect(), connect()
    pipelined:say(("GET /wait HTTP/1.1\r\nhost: localhost\r\n\r\n"):rep(200))
    upload:say(("POST /wait HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n"):format(MIB))
    upload:say(("x"):rep(MIB / 2))
    process.turn_until(function() return begun == 2 end)
    for _, one in ipairs { pipelined, upload } do one.socket:close_reset() end
    process.turn_until(function() return #ended == 2 end)
    assert.same({ "cancelled", "cancelled" }, ended)
  end)

  it_1("answers pipelined requests in order", function()
    server:handle("GET", "/{n}", function(request)
      keywatch.sleep(tonumber(request.params.n) / 1000)
      return request.params.n
    end)
    local one = connect()
    one:say(("GET /20 HTTP/1.1\r\nhost: localhost\r\n\r\nGET /1 HTTP/1.1\r\nhost: localhost\r\n\r\n"):rep(3))
    for _ = 1, 3 do
      assert.equal("20", assert(one:wait()).body)
      assert.equal("1", assert(one:wait()).body)
    end
  end)

  it_1("knows HTTP/1.1 and gRPC apart, wherever the first bytes are split", function()
    local get = "POST /version HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n"
    local function say(one, bytes, place)
      one.socket:nodelay(true)
      one:say(bytes:sub(1, place))
      for _ = 1, 4 do uv.run("nowait") end
      one:say(bytes:sub(place + 1))
    end
    for place = 0, #get do
      local one = connect()
      say(one, get, place)
      assert.equal(405, assert(one:wait()).status)
    end
    local hello = raw.PREFACE .. raw.settings {} .. raw.request(1, raw.RANGE, frame.range("none"))
    for place = 0, #hello do
      local one = raw.connect(port, { is_silent = true, text = true }) -- acknowledges no settings in between
      say({ socket = one.handle, say = function(_, bytes) one:send(bytes) end }, hello, place)
      one:await(function()
        for _, got in ipairs((h2.frames(one.rest))) do
          if got.id == 1 and got.flags % 2 == raw.END_STREAM then return true end
        end
      end, "the answer")
      one:close()
    end
  end)

  it("serves gRPC at the same time", function()
    server:handle("GET", "/count", function()
      return tostring(store:range("a", { prefix = true, count_only = true }).count)
    end)
    local client = assert(keywatch.connect("http://127.0.0.1:" .. port))
    for i = 1, 10 do
      assert(client:put("a" .. i, "v"))
      assert.equal(tostring(i), ask("GET", "/count").body)
    end
    client:close()
  end)

  it("passes requests through middleware", function()
    local log = {}
    server:handle("GET", "/secret", function() return "told" end)
    server:use {
      before = function(call)
        if call.path == "/secret" and call.headers.authorization ~= "key" then
          return nil, core.new_error("unauthenticated")
        end
      end,
      after = function(call, status) log[#log + 1] = call.path .. " " .. status end,
    }
    assert.equal(401, ask("GET", "/secret").status)
    assert.equal("told", ask("GET", "/secret", "authorization: key\r\n").body)
    process.turn_until(function() return #log == 2 end)
    assert.same({ "/secret 0", "/secret 0" }, log)
  end)

  it_1("closes its connections when it closes, and drains them when it is shut down", function()
    local has_begun = false
    server:handle("GET", "/slow", function()
      has_begun = true
      keywatch.sleep(0.05)
      return "done"
    end)
    local idle, busy = connect(), connect()
    idle:say("GET /version HTTP/1.1\r\nhost: localhost\r\n\r\n")
    assert(idle:wait())
    busy:say("GET /slow HTTP/1.1\r\nhost: localhost\r\n\r\n")
    process.turn_until(function() return has_begun end)
    local ended = keywatch.spawn(function() return server:shutdown(10) end)
    assert.equal("done", assert(busy:wait()).body)
    process.turn_until(function() return idle.is_over and busy.is_over and ended.state == "done" end)
    assert.is_true(idle.is_over and busy.is_over)
  end)

  it("is spoken by a server in a thread", function()
    server:close()
    server = assert(keywatch.serve { thread = true, listen = "http://127.0.0.1:0", cors = "http://good.example" })
    port = tonumber(server:addresses()[1]:match("%d+$"))
    local answer = ask("GET", "/health", "Origin: http://good.example\r\n")
    assert.equal('{"health":"true","reason":""}', answer.body)
    assert.matches("\r\naccess%-control%-allow%-origin: http://good.example\r\n", answer.head)
  end)

  it("logs requests that are refused or slow, at level debug", function()
    ask("GET", "/no")
    assert.same({}, lines)
    server:close()
    serve { log_level = "debug" }
    server:handle("GET", "/slow", function() keywatch.sleep(0.15) return "" end)
    server:handle("GET", "/stream", function(request) keywatch.sleep(0.15) request:write "x" end)
    local long = "/%22" .. ("x"):rep(200)
    ask("GET", "/version", nil, nil, "evil.example")
    for _, path in ipairs { "/health", "/slow", "/stream", "/no?secret", long, "/health" } do ask("GET", path) end
    local function found(pattern) return table.concat(lines, "\n"):find(pattern) ~= nil end
    assert.is_true(found 'debug request "GET" "/slow" from 127%.0%.0%.1:%d+ took %d+ ms')
    assert.is_true(found 'debug request "GET" "/no" from 127%.0%.0%.1:%d+ refused[^\n]*: 404')
    assert.is_true(found 'debug request "GET" "/version" from 127%.0%.0%.1:%d+ refused: 421')
    assert.is_true(found('debug request "GET" "/%%22' .. ("x"):rep(156) .. '" from'))
    for _, text in ipairs { "stream", "secret" } do assert.is_false(found(text), text) end
  end)

  it("dates its answers, unless the handler does", function()
    server:handle("GET", "/dated", function() return 200, "", { Date = "yesterday" } end)
    assert.matches("\r\ndate: %a%a%a, %d%d %a%a%a 20%d%d %d%d:%d%d:%d%d GMT\r\n", ask("GET", "/no/such").head)
    local dated = ask("GET", "/dated").head
    assert.matches("\r\n[Dd]ate: yesterday\r\n", dated)
    assert.is_nil(dated:find("GMT", 1, true))
  end)

  describe("has the endpoint", function()
    it("/version, as etcd", function()
      local answer = ask("GET", "/version")
      assert.equal('{"etcdserver":"3.5.21","etcdcluster":"3.5.0"}', answer.body)
      assert.matches("\r\ncontent%-type: application/json\r\n", answer.head)
      assert.equal(answer.body, ask("GET", "/version?query").body)
      assert.equal(answer.body, ask("GET", "/%76ersion").body)
      assert.equal(405, ask("POST", "/version").status)
      answer = ask("OPTIONS", "/version")
      assert.equal(204, answer.status)
      assert.matches("\r\nallow: GET, HEAD, OPTIONS\r\n", answer.head)
    end)

    it("/version, which the core answers without a turn of the loop", function()
      local now = keywatch.now()
      local peer = server.object:accept(now)
      peer:feed("GET /version HTTP/1.1\r\nhost: localhost\r\ncontent-length: 4\r\n\r\nbody"
        .. "HEAD /version HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n", now)
      local first, body, second = peer:pending():match("^(.-\r\n\r\n)(%b{})(.*)$")
      assert.equal('{"etcdserver":"3.5.21","etcdcluster":"3.5.0"}', body)
      assert.matches("^HTTP/1.1 200 OK\r\ncontent%-type: application/json\r\ndate: [^\r]+ GMT\r\n", first)
      assert.matches("\r\ncontent%-length: 45\r\n", first)
      assert.equal(first:gsub("\r\n\r\n$", "\r\nconnection: close%0"), second)
      peer:close()
    end)

    it("/version, which no handler of the program replaces", function()
      for _, method in ipairs { "GET", "HEAD" } do
        assert.error_matches(function() server:handle(method, "/version", print) end, "has a handler already")
      end
      server:handle("GET", "/{any}", function() return "any" end)
      assert.not_equal("any", ask("GET", "/version").body)
    end)

    it("/version, which middleware sees", function()
      local seen, is_refused = {}, false
      local one = protocol == "HTTP/1.1" and connect()
      local function get()
        if not one then return ask("GET", "/version") end
        one:say("GET /version HTTP/1.1\r\nhost: localhost\r\n\r\n")
        return assert(one:wait())
      end
      assert.equal(200, get().status)
      server:use {
        before = function(call)
          seen[#seen + 1] = call.method .. " " .. call.path
          return not is_refused
        end,
        after = function(call, status) seen[#seen + 1] = call.path .. " " .. status end,
      }
      assert.equal(200, get().status)
      is_refused = true
      assert.equal(403, get().status)
      process.turn_until(function() return #seen == 4 end)
      assert.same({ "GET /version", "/version 0", "GET /version", "/version 0" }, seen)
    end)

    it("/metrics, for Prometheus", function()
      local answer = ask("GET", "/metrics")
      assert.matches("\r\ncontent%-type: text/plain; version=0%.0%.4; charset=utf%-8\r\n", answer.head)
      assert.matches("\netcd_server_has_leader 1\n", answer.body)
      assert.matches("\netcd_server_health_success 0\n", answer.body)
      ask("GET", "/livez")
      assert.matches("\netcd_server_health_success 1\n", ask("GET", "/metrics").body)
    end)

    it("/debug/vars, with the counters as JSON", function()
      local client = assert(keywatch.connect("http://127.0.0.1:" .. port))
      assert(client:put("a", "1"))
      client:close()
      server:mount("demo.\255", { Call = function() end }) -- is not UTF-8
      local answer = ask("GET", "/debug/vars")
      assert.matches("\r\ncontent%-type: application/json\r\n", answer.head)
      local found = json.decode(answer.body)
      local status, own = found["raft.status"], found.keywatch
      assert.same({ server.identity.member_id, "StateLeader", 2, 2 }, { status.id, status.raftState, status.applied,
        status.term })
      assert.same({ 1, 1 }, { own.puts, own.calls["/etcdserverpb.KV/Put"].handled.OK })
      assert.equal(0, own.calls["/demo.\\xff/Call"].started)
      assert.is_true(own.lease_ttl.count == 0 and #own.lease_ttl.bounds > 0 and found.memstats.Alloc > 0)
    end)

    it("/health, /livez and /readyz, with the alarms that are not excluded", function()
      local client = assert(keywatch.connect("http://127.0.0.1:" .. port))
      local function alarm(action, name)
        assert(client:call("/etcdserverpb.Maintenance/Alarm", { action = action, alarm = name,
          memberID = server.identity.member_id }))
      end
      local function check(target, reason)
        local answer = ask("GET", target)
        assert.equal(reason and 503 or 200, answer.status, target)
        assert.equal(('{"health":"%s","reason":"%s"}%s'):format(not reason, reason or "", reason and "\n" or ""),
          answer.body, target)
        assert.matches("\r\ncontent%-type: text/plain; charset=utf%-8\r\n", answer.head)
      end
      for _, target in ipairs { "/health", "/health?serializable=true", "/livez", "/readyz" } do check(target) end
      server.trouble.failure = "no directory \255"
      check("/livez", "no directory \\\\xff")
      server.trouble.failure = nil
      alarm("ACTIVATE", "NOSPACE")
      check("/health", "ALARM NOSPACE")
      check("/readyz", "ALARM NOSPACE")
      check "/livez"
      check "/health?exclude=CORRUPT&exclude=NOSPACE"
      for _, query in ipairs { "xexclude=NOSPACE", "exclude=NOSPACE,CORRUPT", "a=exclude=NOSPACE" } do
        check("/health?" .. query, "ALARM NOSPACE")
      end
      alarm("ACTIVATE", "CORRUPT")
      check("/livez", "ALARM CORRUPT")
      check("/health?exclude=NOSPACE", "ALARM CORRUPT")
      check "/health?exclude=CORRUPT&exclude=NOSPACE"
      client:close()
    end)
  end)

  describe("on the listeners of `listen_metrics`", function()
    local LISTEN = "http://127.0.0.1:0"

    local function serve_metrics(options)
      server:close()
      options.listen_metrics = LISTEN
      serve(options)
      local main = port
      port = tonumber(select(2, server:addresses())[1]:match("%d+$"))
      return main
    end

    it("has only the endpoints of monitoring systems, and no middleware", function()
      local main = serve_metrics {}
      server:handle("GET", "/mine", function() return "mine" end)
      server:use { before = function() return false end }
      for _, path in ipairs { "/health", "/livez", "/readyz" } do
        assert.equal('{"health":"true","reason":""}', ask("GET", path).body)
      end
      assert.matches("\netcd_server_health_success 3\n", ask("GET", "/metrics").body)
      for _, path in ipairs { "/version", "/mine", "/" } do assert.equal(404, ask("GET", path).status, path) end
      assert.equal(405, ask("POST", "/metrics").status)
      local client = assert(keywatch.connect("http://127.0.0.1:" .. port))
      local _, err = client:call("/etcdserverpb.KV/Range", { key = "a" })
      assert.equal("unimplemented", err.code)
      client:close()
      port = main
      assert.equal(403, ask("GET", "/health").status)
    end)

    it_1("refuses foreign hosts and connections", function()
      serve_metrics {}
      local one = connect()
      assert.equal(421, one:ask("/health").status) -- the host is "stage"
      one = connect()
      one:say("SSH-2.0-OpenSSH_9.2\r\n")
      process.turn_until(function() return one.is_over end)
      assert.matches("warn connection from 127%.0%.0%.1:%d+ rejected: ", table.concat(lines, "\n"))
    end)

    it_1("stops with the server", function()
      serve_metrics {}
      local one = connect()
      one:ask("/health")
      server:close()
      assert.same({ {}, {} }, { server:addresses() })
      process.turn_until(function() return one.is_over end)
      one = connect()
      process.turn_until(function() return one.is_over end)
    end)

    it("works in a thread", function()
      server:close()
      server = assert(keywatch.serve { thread = true, listen = LISTEN, listen_metrics = { LISTEN, LISTEN } })
      local _, urls = server:addresses()
      assert.equal(2, #urls)
      port = tonumber(urls[2]:match("%d+$"))
      assert.equal(200, ask("GET", "/readyz").status)
      assert.equal(404, ask("GET", "/version").status)
    end)

    it("listens on all URLs or on none", function()
      local taken = server:addresses()[1]
      local options = { store = store, listen = LISTEN, listen_metrics = { LISTEN, taken } }
      local other, err = keywatch.serve(options)
      assert.is_nil(other)
      assert.equal("listen_failed", err.code)
      assert.matches(taken, err.message, 1, true)
      options.listen_metrics = "https://127.0.0.1:0"
      assert.error_matches(function() keywatch.serve(options) end, "asks for TLS: give the option 'tls'")
      options.listen_metrics = "127.0.0.1:0"
      assert.error_matches(function() keywatch.serve(options) end, "option 'listen_metrics': '127.0.0.1:0' must begin")
    end)
  end)

  describe("protects the server from web pages:", function()
    local POST = "POST"
    local function post(fields) return ask(POST, "/change", fields) end

    before_each(function()
      server:close()
    end)

    local function serve_again(options)
      serve(options)
      server:handle("POST", "/change", function() return "changed" end)
      server:handle("GET", "/read", function() return "read" end)
    end

    it("a page of a foreign origin may read, and change nothing", function()
      serve_again()
      assert.equal(200, post("").status)
      assert.equal(403, post("Origin: http://evil.example\r\n").status)
      assert.equal(403, post("Origin: null\r\n").status)
      assert.equal(200, post("Origin: http://localhost\r\n").status)
      local answer = ask("GET", "/read", "Origin: http://evil.example\r\n")
      assert.equal(200, answer.status)
      assert.is_nil(answer.head:find("access%-control"))
    end)

    it("pages of listed origins may do both", function()
      serve_again { cors = { "http://Good.example", "https://other.example:8443", "https://slash.example:443/" } }
      local answer = post("Origin: http://good.example\r\n")
      assert.equal(200, answer.status)
      assert.matches("\r\naccess%-control%-allow%-origin: http://good.example\r\n", answer.head)
      assert.matches("\r\nvary: Origin\r\n", answer.head)
      assert.equal(200, post("Origin: https://slash.example\r\n").status)
      assert.equal(403, post("Origin: https://other.example\r\n").status)
      answer = ask("OPTIONS", "/change", "Origin: https://other.example:8443\r\n"
        .. "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: x-a, x-b\r\n")
      assert.equal(204, answer.status)
      assert.matches("\r\naccess%-control%-allow%-headers: x%-a, x%-b\r\n", answer.head)
      answer = ask("OPTIONS", "/change", "Origin: http://evil.example\r\n")
      assert.is_nil(answer.head:find("access%-control"))
    end)

    it("the endpoint /version has the same headers for pages as other answers", function()
      local function head_for(page) return ask("GET", "/version", ("Origin: %s\r\n"):format(page)).head end
      serve_again()
      assert.is_nil(head_for("http://any.example"):find("access%-control"))
      assert.is_nil(head_for("http://any.example"):find("vary"))
      server:close()
      serve_again { cors = "http://good.example" }
      assert.matches("\r\naccess%-control%-allow%-origin: http://good.example\r\n", head_for("http://good.example"))
      assert.is_nil(head_for("http://evil.example"):find("access%-control"))
      for _, page in ipairs { "http://good.example", "http://evil.example" } do
        assert.matches("\r\nvary: Origin\r\n", head_for(page))
      end
      assert.matches("\r\nvary: Origin\r\n", ask("GET", "/version").head)
    end)

    it("all pages may do both with *", function()
      serve_again { cors = "*" }
      assert.equal(200, post("Origin: http://any.example\r\n").status)
    end)

    it("a request over the loopback interface names a loopback host, or a listed one", function()
      local function status_for(host)
        local status = ask("GET", "/read", nil, nil, host).status
        assert.equal(status, ask("GET", "/version", nil, nil, host).status)
        return status
      end
      serve_again()
      for _, host in ipairs { "localhost", "LOCALHOST:80", "a.Localhost", "127.0.0.1:1", "127.1.2.3", "[::1]:5",
        "[::1]" } do
        assert.equal(200, status_for(host), host)
      end
      for _, host in ipairs { "evil.example", "evil.example:80", "127.0.0.1.evil.example", "notlocalhost", "10.0.0.1",
        "localhost.evil", "[::2]", "127.1", "127.0.0.", "127.0..1", "127.0.0.1.1", "1270.0.0.1", "127.0.0.x",
        "a.localhost." } do
        assert.equal(421, status_for(host), host)
      end
      server:close()
      serve_again { host_whitelist = { "Mine.example", "own.example:80", "[::5]" } }
      for _, host in ipairs { "mine.example:99", "own.example", "[::5]:1" } do
        assert.equal(200, status_for(host), host)
      end
      assert.equal(200, status_for "localhost")
      assert.equal(421, status_for "evil.example")
      server:close()
      serve_again { host_whitelist = { "x", "*", "y" } }
      assert.equal(200, status_for "evil.example")
    end)

    it("a request from elsewhere names any host, or one of the list", function()
      local function status_for(remote, host)
        local peer = server.object:accept(keywatch.now(), nil, remote)
        peer:feed(("GET /version HTTP/1.0\r\n%s\r\n"):format(host and "host: " .. host .. "\r\n" or ""), keywatch.now())
        keywatch.step() -- a refusal is the answer of a task
        local text = peer:pending()
        peer:close()
        return tonumber(text:match("^HTTP/1.1 (%d+)"))
      end
      serve_again()
      for _, remote in ipairs { "10.0.0.9:1", "[fe80::1]:1", "1127.0.0.1:1", "" } do
        assert.equal(200, status_for(remote, "any.example"), remote)
      end
      for _, remote in ipairs { "127.0.0.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1" } do
        assert.equal(421, status_for(remote, "any.example"), remote)
        assert.equal(200, status_for(remote), remote)
      end
      server:close()
      serve_again { host_whitelist = "mine.example" }
      for remote, other in pairs { ["10.0.0.9:1"] = 421, ["127.0.0.1:1"] = 200 } do
        assert.equal(other, status_for(remote, "localhost"), remote)
        assert.equal(421, status_for(remote, "any.example"), remote)
        assert.equal(200, status_for(remote, "mine.example:1"), remote)
        assert.equal(200, status_for(remote), remote)
      end
    end)
  end)
end

for _, protocol in ipairs { "HTTP/1.1", "HTTP/2" } do
  describe(protocol .. " of a server", function() declare(protocol) end)
end
