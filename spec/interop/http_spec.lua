--- HTTP/1.1 with other people's clients and proxies: curl, Python, Node, nginx, Prometheus' parser and openssl; beside
-- them etcdctl and a gRPC client on the same port.

local certificates = require "spec.support.certificates"
local directory = require "spec.support.directory"
local etcdctl = require "spec.support.etcdctl"
local files = require "spec.support.files"
local nginx_stage = require "spec.support.nginx_stage"
local process = require "spec.support.process"
local python = require "spec.support.python"
local raw = require "spec.support.raw"
local server = require "spec.support.server"

local MIB = 1024 * 1024

--- Runs a program that must succeed. Returns its output.
local function must(argv, input)
  local done = process.run(argv, input)
  if done.status ~= 0 then error(done:transcript(), 2) end
  return done:stdout()
end

describe("HTTP/1.1 #once #peer", function()
  local peer, secure, here

  setup(function()
    here = directory.new()
    local cert, key = certificates.paths "server"
    peer = server.start { before = 'require "spec.support.http_handlers"', is_in_memory = true,
      "--listen-client-urls=http://127.0.0.1:0,https://127.0.0.1:0", "--cert-file", cert, "--key-file", key }
    secure = "https://localhost:" .. peer:log():match("https://127%.0%.0%.1:(%d+)")
  end)

  after_each(process.end_all)

  teardown(function()
    if peer then peer:stop() end
    if here then directory.remove(here) end
  end)

  --- Runs curl on paths of the server. Returns its output.
  local function curl(argv, paths, base, input)
    local full = { "curl", "-sS", "--max-time", "60" }
    for _, word in ipairs(argv) do full[#full + 1] = word end
    for _, path in ipairs(paths) do full[#full + 1] = (base or peer.url) .. path end
    return must(full, input)
  end

  describe("with curl", function()
    local function write(name, bytes)
      files.write(here .. "/" .. name, bytes)
      return here .. "/" .. name
    end

    it("gets, and asks for heads", function()
      assert.equal("0123456789", curl({}, { "/text" }))
      assert.equal("0123456789", curl({ "--http1.0" }, { "/text" }))
      assert.equal(tostring(5 * MIB), curl({ "-o", "/dev/null", "-w", "%{size_download}" }, { "/zeros/" .. 5 * MIB }))
      assert.matches("^HTTP/1.1 200 OK\r\n.*content%-length: 10\r\n", curl({ "-I" }, { "/text" }))
      assert.equal("404", curl({ "-o", "/dev/null", "-w", "%{http_code}" }, { "/nothing" }))
    end)

    it("sends a file, a stream and a form", function()
      local five = write("five", ("x"):rep(5 * MIB))
      for _, path in ipairs { "/length", "/parts" } do
        assert.equal(tostring(5 * MIB), curl({ "-T", five }, { path }))
        assert.equal(tostring(5 * MIB), curl({ "-T", "-" }, { path }, nil, ("y"):rep(5 * MIB)))
      end
      assert.equal("9", curl({ "-d", "a=1&b=two" }, { "/length" }))
      assert.equal("0", curl({ "-X", "POST" }, { "/length" }))
    end)

    it("waits for status 100 before it sends a body", function()
      local two = write("two", ("x"):rep(2 * MIB))
      local text = curl({ "-i", "-H", "Expect: 100-continue", "--expect100-timeout", "60", "-T", two }, { "/length" })
      assert.matches("^HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n", text)
      text = curl({ "-i", "-H", "Expect: 100-continue", "--expect100-timeout", "60", "-T", two }, { "/nothing" })
      assert.matches("\r\n\r\nHTTP/1.1 404 Not Found\r\n", "\r\n\r\n" .. text)
    end)

    it("uses a connection again", function()
      local out = { "-w", " %{num_connects}\n" }
      assert.equal("0123456789 1\na 0 0\n", curl(out, { "/text", "/echo/a" }))
      assert.matches("^%d+ 1\n%d+ 0\n$", curl({ "-d", "x", "-w", " %{num_connects}\n" }, { "/length", "/parts" }))
    end)

    it("accepts no compression, and gets none", function()
      local text = curl({ "--compressed", "-i" }, { "/text" })
      assert.not_matches("content%-encoding", text:lower())
      assert.matches("0123456789$", text)
    end)

    it("agrees on HTTP/1.1 by ALPN, or on nothing", function()
      local trust = { "--cacert", certificates.directory() .. "/ca.pem", "-w", " %{http_version}" }
      local function with(...)
        local argv = { ... }
        for _, word in ipairs(trust) do argv[#argv + 1] = word end
        return curl(argv, { "/text" }, secure)
      end
      assert.equal("0123456789 1.1", with "--http1.1")
      assert.equal("0123456789 1.1", with "--no-alpn")
      assert.equal("0123456789 1.1", with("--http1.1", "--tls-max", "1.2"))
    end)
  end)

  it("is answered to openssl, which offers no protocol", function()
    local printed = must({ "openssl", "s_client", "-quiet", "-verify_return_error", "-CAfile",
      certificates.directory() .. "/ca.pem", "-connect", secure:match("//(.*)") },
      "GET /text HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert.matches("^HTTP/1.1 200 OK\r\n.*\r\n\r\n0123456789$", printed)
  end)

  it("with Python's http.client", function()
    assert.equal("done\n", must { "/usr/bin/python3", "-B", "spec/support/python/http_client.py", tostring(peer.port) })
  end)

  it("with Node's fetch and http.Agent", function()
    assert.equal("done\n", must { "node", "spec/support/node/http_client.js", tostring(peer.port) })
  end)

  it("has metrics that Prometheus' parser takes, after calls of all kinds", function()
    local client = python.new(peer)
    for _, case in ipairs { "put_and_get", "transaction", "lease" } do client:case(case) end
    client:stop()
    local text = curl({}, { "/metrics" })
    local n = tonumber(must({ "/usr/bin/python3", "-B", "spec/support/python/metrics.py" }, text))
    local _, expected = text:gsub("# TYPE ", "")
    assert.equal(expected, n)
    for name in text:gmatch("# TYPE (%S+) counter\n") do
      local last = name:match("_(%l+)$") -- some counters of etcd do not end in _total
      assert(last == "total" or last == "success" or last == "successes" or last == "failures", name)
    end
  end)

  describe("behind nginx", function()
    local stage

    before_each(function()
      local words = {
        kw = tostring(peer.port), host = "proxy_set_header Host localhost;", reuse = 'proxy_set_header Connection "";',
      }
      stage = nginx_stage.start { workers = 1, words = words,
        http = [[
          client_max_body_size 10m;
          upstream kept { server 127.0.0.1:$kw; keepalive 4; }
        ]],
        server = [[
          location /old/ { proxy_pass http://127.0.0.1:$kw/; proxy_http_version 1.0; $host }
          location /new/ { proxy_pass http://127.0.0.1:$kw/; proxy_http_version 1.1; $host }
          location /kept/ { proxy_pass http://kept/; proxy_http_version 1.1; $reuse $host }
          location /direct/ {
            proxy_pass http://kept/; proxy_http_version 1.1; $reuse $host
            proxy_buffering off; proxy_request_buffering off;
          }
        ]] }
    end)

    after_each(function() stage:quit() end)

    local function through(argv, paths, input) return curl(argv, paths, "http://127.0.0.1:" .. stage.port, input) end

    for _, way in ipairs { "old", "new", "kept", "direct" } do
      it(("in the way %q answers, streams and takes bodies"):format(way), function()
        local at = "/" .. way
        for i = 1, 20 do assert.equal(i .. " 0", through({}, { ("%s/echo/%d"):format(at, i) })) end
        local lines = through({}, { at .. "/stream/5000" })
        assert.equal(5000, select(2, lines:gsub("line %d+\n", "")))
        assert.equal(tostring(5 * MIB), through({ "-T", "-" }, { at .. "/length" }, ("x"):rep(5 * MIB)))
        assert.equal("404", through({ "-o", "/dev/null", "-w", "%{http_code}" }, { at .. "/nothing" }))
        assert.matches("^HTTP/1.1 200 OK\r\n.*[Cc]ontent%-[Ll]ength: 10\r\n", through({ "-I" }, { at .. "/text" }))
      end)
    end

    it("keeps upstream connections", function()
      through({}, { "/kept/text" })
      local before = peer:descriptors()
      for _ = 1, 50 do through({}, { "/kept/text", "/kept/text" }) end
      assert.is_true(peer:descriptors() <= before + 1)
    end)

    it("passes a stream on as it is written", function()
      local one = process.start { "curl", "-sS", "-N", ("http://127.0.0.1:%d/direct/held"):format(stage.port) }
      one:expect("^first\n")
      through({ "-X", "POST" }, { "/direct/release" })
      one:expect("^second\n")
      assert.equal(0, one:wait())
    end)
  end)

  it("is served beside gRPC on the same port, at the same time", function()
    local ctl, witness = etcdctl.new(peer), raw.witness(peer.port)
    local others = {
      process.start { "wrk", "-t", "1", "-c", "16", "-d", "2", peer.url .. "/text" },
      process.start { "h2load", "-n", "2000", "-c", "4", "-m", "10", "-H", "content-type: application/grpc", "-H",
        "te: trailers", "-d", files.write(here .. "/none", "\0\0\0\0\0") or here .. "/none",
        peer.url .. "/etcdserverpb.Maintenance/Status" },
      process.start { "/usr/bin/python3", "-B", "spec/support/python/http_client.py", tostring(peer.port) },
      process.start { "node", "spec/support/node/http_client.js", tostring(peer.port) },
    }
    local watch = ctl:start { "watch", "beside", "--prefix", "--rev=1" }
    for i = 1, 10 do
      assert.equal("OK\n", ctl:must { "put", "beside" .. i, "v" })
      assert.equal("beside" .. i .. "\nv\n", ctl:must { "get", "beside" .. i })
      witness:ask()
    end
    watch:expect("^PUT\nbeside1\nv\n")
    for _, one in ipairs(others) do assert.equal(0, one:wait(60), one:transcript()) end
    assert.not_matches("Non%-2xx", others[1]:stdout())
    assert.not_matches("Socket errors", others[1]:stdout())
    assert.matches("2000 succeeded, 0 failed", others[2]:stdout())
    witness:close()
  end)
end)
