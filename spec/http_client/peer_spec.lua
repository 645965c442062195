--- The HTTP client with other web servers: node, Python's http.server and nginx.

local http = require "keywatch.http"
local keywatch = require "keywatch"

local certificates = require "spec.support.certificates"
local directory = require "spec.support.directory"
local files = require "spec.support.files"
local free_port = require "spec.support.free_port"
local nginx_stage = require "spec.support.nginx_stage"
local process = require "spec.support.process"

local MIB = 1024 * 1024

local function path(name) return certificates.directory() .. "/" .. name end

describe("the HTTP client with #once #peer", function()
  local client

  before_each(function() client = http.client { timeout = 60 } end)

  after_each(function()
    client:close()
    process.end_all()
    directory.remove_all()
  end)

  local function start_node(...)
    local one = process.start { "node", "spec/support/node/http_server.js", ... }
    return (... and "https" or "http") .. "://127.0.0.1:" .. one:expect "port (%d+) "
  end

  --- Does what both kinds of connections of node must do.
  local function use_node(url)
    local function get(at, opts) return assert(client:request(url .. at, opts)) end
    for _ = 1, 3 do assert.equal("hello you", get("/hello", { headers = { name = "you" } }).body) end
    assert.equal(404, get("/none").status)
    for _, size in ipairs { 0, 1, 100000, 5 * MIB } do
      local answer = get("/echo", { body = ("x"):rep(size) })
      assert.same({ 201, size }, { answer.status, #answer.body })
    end
    local n = 0
    local answer = get("/echo", { body = function()
      n = n + 1
      return n <= 100 and ("y"):rep(20000) or nil
    end })
    assert.equal(2000000, #answer.body)
    answer = get("/gzip")
    assert.same({ "line 0\n", nil }, { answer.body:sub(1, 7), answer.headers["content-encoding"] })
    assert.same({ "part", "4" }, { get("/trailers").body, get("/trailers").trailers.sum })
    assert.equal("late", get("/early").body)
    assert.equal("hello undefined", get("/moved", { redirects = 1 }).body)
    assert.equal("last", get("/close").body)
    local _, err = client:request(url .. "/drop")
    assert.equal("unavailable", err.code)
    assert.equal(200, get("/hello").status)
    keywatch.sleep(0.3) -- node closes idle connections
    assert.equal(200, get("/hello").status)
  end

  it("node", function() keywatch.run(function() use_node(start_node()) end) end)

  it("node, over TLS, with certificates of both sides", function()
    local cert, key = certificates.paths "alice"
    local url = start_node(path "server.pem", path "server.key", path "ca.pem")
    for version, protocol in pairs { ["1.1"] = "h1", ["2.0"] = false } do
      client:close()
      client = assert(http.client { timeout = 60, protocol = protocol or nil,
        tls = { ca = path "ca.pem", cert = cert, key = key } })
      keywatch.run(function()
        use_node(url)
        assert.equal("alice", assert(client:request(url .. "/who")).body)
        assert.equal(version, assert(client:request(url .. "/version")).body)
      end)
    end
  end)

  it("Python's http.server", function()
    local here, port = directory.new(), free_port()
    files.write(here .. "/file", ("text\n"):rep(100000))
    for _, protocol in ipairs { "HTTP/1.0", "HTTP/1.1" } do
      local one = process.start { "python3", "-u", "-m", "http.server", "--bind", "127.0.0.1", "--directory", here,
        "--protocol", protocol, tostring(port) }
      one:expect "Serving"
      local url = "http://127.0.0.1:" .. port
      for _ = 1, 3 do
        assert.equal(501, client:request(url .. "/file", { body = "x" }).status)
        assert.equal(500000, #assert(client:request(url .. "/file")).body)
        assert.equal("500000", assert(client:request(url .. "/file", { method = "HEAD" })).headers["content-length"])
      end
      assert.matches("<" .. (protocol == "HTTP/1.0" and 0 or 1) .. " connections>", tostring(client))
      process.end_all()
    end
  end)

  it("a server that cuts the connection of an answer without a length", function()
    for scheme, paths in pairs {
      http = { "/end", "/reset" }, https = { "/end", "/cut", "/reset" },
    } do
      local secure = scheme == "https" and { path "server.pem", path "server.key" } or {}
      local one = process.start { "python3", "spec/support/python/cutting_server.py", secure[1], secure[2] }
      local url = ("%s://127.0.0.1:%s"):format(scheme, one:expect "port (%d+)\n")
      client:close()
      client = assert(http.client { tls = secure[1] and { ca = path "ca.pem" } or nil })
      for _, at in ipairs(paths) do
        local answer, err = client:request(url .. at)
        if at == "/end" then
          assert.equal("hello", assert(answer, err).body)
        else
          assert.is_nil(answer, url .. at)
          assert.equal("unavailable", err.code)
        end
      end
    end
  end)

  it("nginx, with and without TLS, and compressed", function()
    local cert, key = certificates.paths "server"
    local secure = free_port()
    local stage = nginx_stage.start {
      workers = 1, words = { secure = secure, cert = cert, key = key },
      http = [[
        gzip on; gzip_types text/plain; gzip_min_length 1;
        server {
          listen 127.0.0.1:$secure ssl http2;
          ssl_certificate $cert; ssl_certificate_key $key;
          location = /hello { content_by_lua_block { ngx.print("hello over TLS and ", ngx.var.server_protocol) } }
          location = /large { content_by_lua_block { for i = 1, 1000 do ngx.print(("x"):rep(10000)) end } }
        }
      ]],
      server = [[
        location = /hello { default_type text/plain; return 200 "hello hello hello hello hello hello"; }
        location = /moved { return 301 /hello; }
        location = /large { content_by_lua_block { for i = 1, 1000 do ngx.print(("x"):rep(10000)) end } }
        location = /length { content_by_lua_block { ngx.req.read_body() ngx.print(ngx.var.http_content_length) } }
      ]],
    }
    local url = "http://127.0.0.1:" .. stage.port
    for _ = 1, 3 do
      local answer = assert(client:request(url .. "/hello"))
      assert.same({ 200, "hello hello hello hello hello hello" }, { answer.status, answer.body })
      assert.equal(10000000, #assert(client:request(url .. "/large")).body)
      assert.equal("5", assert(client:request(url .. "/length", { body = "hello" })).body)
      assert.equal(200, assert(client:request(url .. "/moved", { redirects = 1 })).status)
    end
    assert.matches("<1 connections>", tostring(client))
    client:close()
    for _, protocol in ipairs { "h1", "h2" } do
      client = assert(http.client { tls = { ca = path "ca.pem" }, protocol = protocol })
      for _ = 1, 3 do
        assert.equal("hello over TLS and HTTP/" .. (protocol == "h1" and "1.1" or "2.0"),
          assert(client:request(("https://127.0.0.1:%d/hello"):format(secure))).body)
        assert.equal(10000000, #assert(client:request(("https://127.0.0.1:%d/large"):format(secure))).body)
      end
      client:close()
    end
    assert.equal("unavailable", select(2, http.request(("https://127.0.0.1:%d/hello"):format(secure))).code)
    assert.equal(0, stage:quit())
    stage:close()
  end)
end)
