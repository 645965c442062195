--- The stage that specs of nginx run on, by itself.

local nginx_stage = require "spec.support.nginx_stage"
local proc = require "spec.support.proc"

describe("the stage of nginx #once #peer", function()
  nginx_stage.with_tests()

  it("asks each worker, reloads, kills, loads, and ends in order", function()
    local stage = nginx_stage.start {
      init_worker = "n_asked = 0",
      server = "location = /hello { content_by_lua_block { ngx.say 'hello' } }",
    }
    assert.equal("hello\n", stage:get("/hello").body)
    local first = stage:workers()
    assert.equal(2, #first)
    assert.same(first, stage:ask_each("return ngx.worker.pid()"))
    assert.same({ 1, 1 }, stage:ask_each("n_asked = n_asked + 1 return n_asked"))
    assert.same({ 2, 2 }, stage:ask_each("n_asked = n_asked + 1 return n_asked"))
    assert.error_matches(function() stage:ask(first[1], "error 'no luck'") end, "no luck")

    local load = stage:load("/hello", 4)
    local second = stage:reload()
    assert.equal(2, #second)
    for i, pid in ipairs(first) do
      assert.is_false(proc.is_running(pid))
      assert.not_equal(pid, second[i])
    end
    assert.equal("", stage:troubles())
    local third = stage:kill(second[1])
    assert.equal(second[2], third[1])
    stage:expect_log("exited on signal 9")
    local found = load:finish()
    assert(found.requests > 0)
    assert.equal(0, found.bad)

    assert(proc.resident(third[1]) > 1e6 and proc.seconds(third[1]) > 0)
    assert.equal("", stage:troubles("exited on signal 9"))
    assert.equal(0, stage:quit())
    assert.is_false(proc.is_running(third[2]))
  end)

  it("counts the connections of a worker", function()
    local stage = nginx_stage.start {
      init_worker = "stop = false",
    }
    local pid = stage:workers()[1]
    assert.equal(0, proc.connections(pid, stage.port))
    stage:ask(pid, ([[
      assert(ngx.timer.at(0, function()
        local socket = ngx.socket.tcp()
        assert(socket:connect("127.0.0.1", %d))
        while not stop do ngx.sleep(0.001) end
        socket:close()
      end))
    ]]):format(stage.port))
    stage:await("connection", function() return proc.connections(pid, stage.port) == 1 end)
    assert.equal(0, proc.connections(stage:workers()[2], stage.port))
    stage:ask(pid, "stop = true")
    stage:await("end of the connection", function() return proc.connections(pid, stage.port) == 0 end)
    assert.equal("", stage:troubles())
  end)

  it("leaves nothing behind when it is closed in the middle, and its workers end with the master", function()
    local stage = nginx_stage.start()
    local pids = stage:workers()
    stage.master:signal("sigkill")
    stage.master:wait()
    for _, pid in ipairs(pids) do
      while proc.is_running(pid) do require("spec.support.luv").run("nowait") end
    end
    stage:close()
    assert.is_nil(io.open(stage.here .. "/nginx.conf"))
  end)

  it("says what nginx -t says", function()
    local done = nginx_stage.new({ server = "listen nowhere;" }):test()
    assert.equal(1, done.status)
    assert.matches("nowhere", done:stderr())
    assert.equal(0, nginx_stage.new():test().status)
  end)
end)
