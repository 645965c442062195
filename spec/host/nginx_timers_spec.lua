--- The timer that the connections of a worker belong to is renewed: no event is lost or repeated, and no timer leaks.

local nginx_stage = require "spec.support.nginx_stage"
local proc = require "spec.support.proc"
local uv = require "spec.support.luv"

local INIT_WORKER = [[
  client = keywatch.connect("$url")
  home = require("keywatch.driver.ngx").home
  home.renewal = 0.05
  seen, wrong = 0, 0
  keywatch.spawn(function()
    local watch = assert(client:watch("n/", { prefix = true }))
    local last = 0
    for event in watch:events() do
      if event.mod_revision <= last then wrong = wrong + 1 end
      last, seen = event.mod_revision, seen + 1
    end
  end)
  cache = assert(client:cache("n/"))
  kept = {}
]]

describe("the timers of nginx workers #once #peer", function()
  nginx_stage.with_tests()

  it("are renewed while keys change: no event is lost or repeated, and no timer is left", function()
    local stage, url = nginx_stage.start_with_server { init_worker = INIT_WORKER }
    stage:await_each("return cache:wait_ready(60)")
    local pids = stage:workers()
    stage:ask_each [[kept.lease = client:lease(5):keep() return true]]
    local total, rounds = 0, 0
    repeat
      for i, pid in ipairs(pids) do
        total = total + stage:ask(pid, ([[
          for n = 1, 100 do assert(client:put("n/%d/" .. n %% 7, tostring(n), { timeout = 60 })) end
          return 100
        ]]):format(i))
      end
      rounds = rounds + 1
      local moves = stage:ask_each("return home.moves")
    until moves[1] >= 10 and moves[2] >= 10
    stage:await_each(("return seen >= %d"):format(total))
    assert.same({ total, total }, stage:ask_each("return seen"))
    assert.same({ 0, 0 }, stage:ask_each("return wrong"))
    for i = 1, 2 do
      local key = ("n/%d/1"):format(i)
      local value = stage:ask(pids[1], ("return client:get(%q).value"):format(key))
      stage:await_each(("return cache:get(%q).value == %q"):format(key, value))
    end
    assert.same({ true, true }, stage:ask_each("return kept.lease:error() == nil"))
    stage:await_each("return client.transport.connection ~= nil and client.transport.connection.number > 10")
    -- the timer that the watching task was begun in, and the present one; for a moment there is another one
    stage:await_each("return ngx.timer.running_count() <= 2 and ngx.timer.pending_count() <= 1")
    for _, pid in ipairs(pids) do
      stage:await("one connection", function() return proc.connections(pid, tonumber(url:match("%d+$"))) == 1 end)
    end
    assert.equal("", stage:troubles())
    print(("%d events, %d moves"):format(total, stage:ask(pids[1], "return home.moves")))
    assert.equal(0, stage:quit())
    assert.equal("", stage:troubles())
  end)

  it("are renewed when they have begun many tasks, and tasks that wake each other do not block nginx",
    function()
      local stage = nginx_stage.start {
        workers = 1, init = [[keywatch = require "keywatch"]],
        init_worker = [[
          home = require("keywatch.driver.ngx").home
          home.max_threads, ticks, rounds = 1000, 0, 0
          keywatch.spawn(function()
            while home.moves < 5 do
              keywatch.spawn(function() end):join()
              rounds = rounds + 1
            end
          end)
          ngx.timer.every(0.001, function() ticks = ticks + 1 end)
        ]],
      }
      stage:await_each("return home.moves >= 5")
      assert.is_true(stage:ask(stage:workers()[1], "return rounds >= 4000 and ticks > 0"))
      stage:await_each("return ngx.timer.running_count() <= 1") -- the task's timer has ended
      assert.equal("", stage:troubles())
    end)

  it("end when there is nothing left to do, and begin again", function()
    local stage = nginx_stage.start_with_server {
      workers = 1, init_worker = [[
        home = require("keywatch.driver.ngx").home
        home.renewal, url = 0.05, "$url"
      ]],
    }
    for _ = 1, 2 do
      stage:ask_each [[
        local client = keywatch.connect(url)
        assert(client:put("a", "1"))
        client:close()
        return true
      ]]
      stage:await_each("return ngx.timer.running_count() == 0")
    end
    assert.equal("", stage:troubles())
  end)

  it("a worker exits at once, though it connects to a host that does not answer", function()
    local server, ones = uv.new_tcp(), {}
    assert(server:bind("127.0.0.1", 0))
    assert(server:listen(1, function() end)) -- the kernel's queue is soon full, and does not answer
    local port = server:getsockname().port
    for i = 1, 8 do
      ones[i] = uv.new_tcp()
      ones[i]:connect("127.0.0.1", port, function() end)
    end
    local stage = nginx_stage.start {
      words = { url = "http://127.0.0.1:" .. port }, init = [[keywatch = require "keywatch"]],
      init_worker = [[
        client = keywatch.connect("$url", { connect_timeout = 50 })
        keywatch.spawn(function() client:get("a", { timeout = 3600 }) end)
      ]],
    }
    stage:await_each("return next(require('keywatch.driver.ngx').home.links) ~= nil")
    assert.equal(0, stage:quit())
    assert.equal("", stage:troubles())
    for _, one in ipairs(ones) do one:close() end
    server:close()
  end)

  it("a worker exits at once, though handlers wait", function()
    local stage = nginx_stage.start_with_server {
      init_worker = [[
        client = keywatch.connect("$url")
        keywatch.spawn(function() while true do pcall(keywatch.sleep, 3600) end end)
        ngx.timer.at(0, function() client:watch("n"):next() end)
        keywatch.spawn(function() client:lock("l") keywatch.sleep(3600) end)
      ]],
    }
    stage:await_each("return client:range('l/', { prefix = true }).count == 2")
    for _ = 1, 3 do stage:reload() end
    assert.equal(0, stage:quit())
    assert.equal("", stage:troubles())
  end)

  -- Two timers that run until `is_full` is false, in a worker that may have no more.
  local FULL = [[
    is_full = true
    for _ = 1, 2 do ngx.timer.at(%s, function() while is_full do ngx.sleep(0.01) end end) end
    ngx.sleep(0.02)
    return true
  ]]
  local IN_WORKER = [[client, is_full = keywatch.connect("$url"), false home = require("keywatch.driver.ngx").home]]

  it("begin again after nginx drops one because too many run", function()
    local stage = nginx_stage.start_with_server {
      workers = 1, init_worker = IN_WORKER, http = "lua_max_running_timers 2;",
    }
    stage:ask_each(FULL:format("0"))
    stage:ask_each [[client:get("a", { timeout = 0.1 }) return true]]
    stage:expect_log("lua_max_running_timers are not enough")
    stage:ask_each [[is_full = false return true]]
    assert.same({ true }, stage:ask_each [[return assert(client:put("a", "1", { timeout = 60 })) ~= nil]])
  end)

  it("if nginx has none left, connections are not opened later", function()
    local stage = nginx_stage.start_with_server {
      workers = 1, init_worker = IN_WORKER, http = "lua_max_pending_timers 2;",
    }
    stage:ask_each(FULL:format("3600"))
    local text, n = stage:ask(stage:workers()[1], [[
      local _, err = client:get("a", { timeout = 0.1 })
      return tostring(err), #home.queue
    ]])
    assert.matches("too many pending timers", text)
    assert.equal(0, n)
  end)

  it("end soon when there is nothing left to do", function()
    local stage, url = nginx_stage.start_with_server { workers = 1, http = "lua_code_cache off;" }
    stage:ask_each(([[
      local client = require("keywatch").connect(%q)
      assert(client:put("a", "1"))
      client:close()
      return true
    ]]):format(url))
    stage:await_each("return ngx.timer.running_count() == 0")
    assert.equal("", stage:troubles("lua_code_cache is off"))
  end)

  it("begin again if a task ends one with ngx.exit, which is logged", function()
    local stage = nginx_stage.start_with_server {
      workers = 1, init_worker = [[
        require("keywatch.driver.ngx").home.watch = 0.1
        client = keywatch.connect("$url")
        cache = client:cache("n/")
        must_exit = false
        keywatch.spawn(function()
          while not must_exit do keywatch.sleep(0.01) end
          ngx.exit(ngx.OK)
        end)
      ]],
    }
    stage:await_each([[return cache:has_synced()]])
    stage:ask_each [[must_exit = true return true]]
    stage:expect_log("has called ngx.exit in a task of the worker")
    assert.same({ true }, stage:ask_each [[return assert(client:put("n/a", "1", { timeout = 60 })) ~= nil]])
    stage:await_each([[return (cache:get("n/a") or {}).value == "1"]])
    assert.equal(0, stage:quit())
    assert.equal("", stage:troubles("has called ngx.exit"))
  end)

  it("continue keywatch's tasks that began before nginx served", function()
    local stage = nginx_stage.start_with_server {
      workers = 1, init_worker = [[
        client = keywatch.connect("$url")
        elector = require("keywatch.controller").elector {
          store = client, name = "e", id = "one", on_lead = function() while true do keywatch.sleep(3600) end end,
        }
        elector:start()
        while not elector:is_leader() do keywatch.sleep(0.01) end
      ]],
    }
    stage:await_each("return elector:is_leader()")
    assert.equal(0, stage:quit())
    assert.equal("", stage:troubles("no longer leads 'e'"))
  end)
end)
