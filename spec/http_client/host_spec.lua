--- The HTTP client in every host: in luv's loop, in a program's own loop by steps, after a fork, and in nginx.

local certificates = require "spec.support.certificates"
local nginx_stage = require "spec.support.nginx_stage"
local process = require "spec.support.process"
local program = require "spec.support.program"
local web = require "spec.support.http"

-- A server with a handler, in a thread of its own or in this one.
local BEGIN = [[
  local http = require "keywatch.http"
  local keywatch = require "keywatch"
  io.stdout:setvbuf("line")
  local server = assert(keywatch.serve { thread = true, listen = "http://127.0.0.1:0" })
  local url = server:addresses()[1]
  local client = http.client()
  local function ask() return assert(client:request(url .. "/health")).body end
]]

describe("the HTTP client", function()
  local expect = program.expecting(BEGIN)

  it("works at top level and in run", function()
    expect('{"health":"true","reason":""}\ntrue\n', [[
      print(ask())
      print(keywatch.run(function() return ask() == ask() end))
      client:close()
      server:close()
    ]])
  end)

  it("works in luv's loop, which an idle connection does not keep alive", function()
    local in_luv = program.expecting('local uv = require "luv"' .. BEGIN)
    in_luv("5 true\nended\n", [[
      local n = 0
      keywatch.spawn(function()
        for _ = 1, 5 do
          ask()
          n = n + 1
        end
        local timer = uv.new_timer()
        timer:start(1, 0, function()
          keywatch.spawn(function()
            print(n, ask():find("true") ~= nil)
            server:close()
          end)
          timer:close()
        end)
      end)
      uv.run()
      print "ended"
    ]])
  end)

  it("works by steps in a loop of the program", function()
    expect("true\n", [[
      local task = keywatch.spawn(function() return ask() == ask() end)
      while task.state ~= "done" do keywatch.step() end
      print(select(2, task:join()))
      client:close()
      server:close()
    ]])
  end)

  it("uses connections of its own in a child process", function()
    program.expecting(BEGIN, program.run_forking)("child true\nparent true\n", [[
      ask()
      child(function() print("child", ask():find("true") ~= nil) end)
      print("parent", ask():find("true") ~= nil)
      server:close()
    ]])
  end)

  it("ends with the program, without a close", function()
    expect("true\n", [[
      assert(client:open(url .. "/health"))
      print(ask():find("true") ~= nil)
    ]])
  end)
end)

describe("the HTTP client in nginx workers #once #peer", function()
  nginx_stage.with_tests()

  it("makes requests in every phase that may wait, streams, and moves with the home", function()
    local stage, url = nginx_stage.start_with_server {
      workers = 1, init = [[http = require "keywatch.http"]],
      init_worker = [[url = "$url" client = http.client { max_per_host = 2 }]],
    }
    local pid = stage:workers()[1]
    local function ask(text) return stage:ask(pid, text) end
    assert.equal('{"health":"true","reason":""}', ask [[return assert(client:request(url .. "/health")).body]])
    assert.equal(url, ask "return url")
    assert.equal(20, ask [[
      local threads, n = {}, 0
      for i = 1, 20 do
        threads[i] = ngx.thread.spawn(function()
          if assert(client:request(url .. "/metrics")).status == 200 then n = n + 1 end
        end)
      end
      for i = 1, 20 do ngx.thread.wait(threads[i]) end
      return n
    ]])
    assert.equal("keywatch.http_client<2 connections>", ask "return tostring(client)")
    assert.is_true(ask [[
      local exchange = assert(client:open(url .. "/metrics"))
      local size = 0
      for part in exchange:parts() do size = size + #part end
      return size > 1000
    ]])
    assert.equal(200, ask [[
      require("keywatch.driver.ngx").home.driver.move()
      ngx.sleep(0.01)
      return assert(client:request(url .. "/health")).status
    ]])
    assert.equal("unavailable", ask [[return select(2, client:request("http://127.0.0.1:1/")).code]])
    assert.equal("200 unavailable", ask(([[
      local path = %q
      local tls_server = assert(keywatch.serve { thread = true, listen = "https://127.0.0.1:0",
        tls = { cert = path .. "/server.pem", key = path .. "/server.key" } })
      local at = tls_server:addresses()[1] .. "/health"
      local web = assert(http.client { tls = { ca = path .. "/ca.pem" } })
      local status, _, err = assert(web:request(at)).status, http.request(at)
      tls_server:close()
      return status .. " " .. err.code
    ]]):format(certificates.directory())))
    assert.equal(0, stage:quit())
    assert.equal("", stage:troubles())
  end)

  it("gets the answer of a server that reads no more of the request, and closes", function()
    local one = process.start { "python3", "spec/support/python/refusing_server.py" }
    local stage = nginx_stage.start_with_server { workers = 1, init = [[http = require "keywatch.http"]] }
    assert.equal(20, stage:ask(stage:workers()[1], ([[
      local n = 0
      for _ = 1, 20 do
        local answer = http.request("http://127.0.0.1:%s", { body = ("x"):rep(10000000) })
        if answer and answer.status == 413 then n = n + 1 end
      end
      return n
    ]]):format(one:expect "port (%d+)\n")))
    assert.equal(0, stage:quit())
  end)

  it("fails if an answer without a length is cut", function()
    local function path(name) return certificates.directory() .. "/" .. name end
    local function start(...)
      return process.start({ "python3", "spec/support/python/cutting_server.py", ... }):expect "port (%d+)\n"
    end
    local plain, secure = start(), start(path "server.pem", path "server.key")
    local stage = nginx_stage.start_with_server { workers = 1, init = [[http = require "keywatch.http"]] }
    local pid = stage:workers()[1]
    assert.equal("hello unavailable hello unavailable unavailable", stage:ask(pid, ([[
      local client = assert(http.client { tls = { ca = %q } })
      local results = {}
      for i, url in ipairs { "http://127.0.0.1:%s/end", "http://127.0.0.1:%s/reset", "https://127.0.0.1:%s/end",
        "https://127.0.0.1:%s/cut", "https://127.0.0.1:%s/reset" } do
        local answer, err = client:request(url)
        results[i] = answer and answer.body or err.code
      end
      return table.concat(results, " ")
    ]]):format(path "ca.pem", plain, plain, secure, secure, secure)))
    assert.equal(0, stage:quit())
  end)

  it("leaves nothing behind of killed threads, and serves the last request of a worker that exits", function()
    local stage = nginx_stage.start_with_server {
      workers = 1, init = [[http = require "keywatch.http"]],
      init_worker = [[
        url = "$url" client = http.client { max_per_host = 2 }
        require("keywatch.driver.ngx").home.sweep = 0.02
      ]],
      server = [[
        location = /late { content_by_lua_block {
          client:request(url .. "/health")
          ngx.sleep(0.5)
          ngx.print(client:request(url .. "/health").body)
        } }
      ]],
    }
    local pid = stage:workers()[1]
    assert.is_true(stage:ask(pid, [[
      for i = 1, 20 do
        local threads = {}
        for j = 1, 4 do
          threads[j] = ngx.thread.spawn(function() return client:request(url .. "/metrics") end)
        end
        if i % 2 == 0 then ngx.sleep(0.001) end
        for j = 1, 4 do ngx.thread.kill(threads[j]) end
      end
      local deadline = ngx.now() + 30
      local pool = client.pool
      local lines = pool.waiting.lines
      while (next(lines) or pool.dialing[1] or pool.count > 2) and ngx.now() < deadline do ngx.sleep(0.01) end
      assert(not next(lines) and not pool.dialing[1])
      return client:request(url .. "/health").status == 200
    ]]))
    local late = web.connect(stage.port)
    late:send "/late"
    process.turn_until(function() return false end, 0.1)
    assert.equal(0, stage:quit())
    assert.equal('{"health":"true","reason":""}', assert(late:wait()).body)
    late:close()
    assert.equal("", stage:troubles())
  end)
end)
