--- The end of nginx workers: the caches of a worker stay readable until its last request has ended, and its locks
-- and leaderships are released at once; and the start of workers without a server.

local keywatch = require "keywatch"

local nginx_stage = require "spec.support.nginx_stage"
local process = require "spec.support.process"

--- Begins a request of a path. Returns the process of curl.
local function begin_request(stage, path)
  return process.start { "curl", "--silent", "--show-error", ("http://127.0.0.1:%d%s"):format(stage.port, path) }
end

describe("an nginx worker that exits #once #peer", function()
  nginx_stage.with_tests()

  it("serves its last requests from stale caches, and with connections of their own", function()
    local stage = nginx_stage.start_with_server {
      workers = 1,
      init_worker = [[
        home, has_begun, balanced = require("keywatch.driver.ngx").home, false, false
        client = keywatch.connect("$url")
        idle = keywatch.connect("$url")
        assert(client:put("k/a", "1"))
        cache = client:cache("k/")
        content = cache:table { relative = true }
        informer = client:informer("k/")
        assert(cache:wait_ready(60) and informer:wait_synced(60))
        function read()
          local status, state = cache:status(), informer:status()
          return table.concat({ cache:get("k/a").value, content.a, (informer:get("k/a")),
            tostring(status.is_stale), tostring(state.is_stale), status.phase }, " ")
        end
      ]],
      http = [[upstream balanced {
        server 0.0.0.1;
        balancer_by_lua_block { balanced = read() require("ngx.balancer").set_current_peer("127.0.0.1", $port) }
      }]],
      server = [[
        location = /late {
          content_by_lua_block {
            has_begun = true
            local watch = client:watch("k/never")
            local seen = { read() }
            local _, err = watch:next()
            seen[#seen + 1] = err.code
            while not home.has_closed do ngx.sleep(0.001) end
            for _, one in ipairs { client, idle } do
              for i = 1, 2 do
                assert(one:put("k/b", tostring(i)))
                seen[#seen + 1] = assert(one:get("k/b")).value
              end
            end
            seen[#seen + 1] = select(2, client:watch("k/never")).code
            while home.timer do ngx.sleep(0.001) end
            assert(ngx.location.capture("/balanced").status == 200)
            seen[#seen + 1] = balanced .. " " .. client:get("k/b").value
            ngx.say(table.concat(seen, ", "))
          }
        }
        location = /balanced { proxy_pass http://balanced/end; }
        location = /end { content_by_lua_block { ngx.say("end") } }
      ]],
    }
    local request = begin_request(stage, "/late")
    stage:await_each("return has_begun")
    stage:reload()
    assert.equal(0, request:wait())
    local live, stale = "1 1 1 false false following", "1 1 1 true true closed"
    assert.equal(table.concat({ live, "closed", "1", "2", "1", "2", "closed", stale .. " 2" }, ", ") .. "\n",
      request:stdout(), stage:log())
    assert.equal("", stage:troubles())
    assert.equal(0, stage:quit())
    assert.equal("", stage:troubles())
  end)

  it("releases locks and leases, and calls the functions of the program, before its clients close", function()
    local stage, url = nginx_stage.start_with_server {
      workers = 1,
      init_worker = [[
        controller = require "keywatch.controller"
        client = keywatch.connect("$url")
        pid, lock, session, has_lock = ngx.worker.pid(), false, false, false
        keywatch.on_exit(function()
          keywatch.sleep(0)
          client:put("exited/" .. pid, "in order")
        end)
        keywatch.on_exit(function() error("oops") end)
        local function lead() while true do keywatch.sleep(3600) end end
        elector = controller.elector { store = client, name = "e", ttl = 3600, id = "w" .. pid, on_lead = lead }
        elector:start()
        manager = controller.manager { store = client, election = "m", ttl = 3600 }
        manager:start()
        keywatch.spawn(function()
          lock = client:lock("l", { ttl = 3600 })
          session = client:session { ttl = 3600 }
          client:put("s", "x", { lease = session.lease.id })
        end)
      ]],
      server = [[location = /held {
        content_by_lua_block {
          local held = client:lock("of a request", { session = client:session { ttl = 3600 } })
          has_lock = true
          while not require("keywatch.driver.ngx").home.has_closed do ngx.sleep(0.001) end
          ngx.say(client:get(held.key) ~= nil)
        }
      }]],
    }
    local ALL = [[return session and lock:is_held() and elector:is_leader()
      and manager:status().is_leader]]
    stage:await_each(ALL)
    local request = begin_request(stage, "/held")
    stage:await_each("return has_lock")
    local first = stage:workers()[1]
    stage:reload()
    assert.equal(0, request:wait())
    assert.equal("true\n", request:stdout()) -- the lock of a request that is served stays held
    stage:await_each(ALL) -- though all of these live for an hour
    local second = stage:workers()[1]
    assert.equal(0, stage:quit())
    local client = keywatch.connect(url)
    for _, pid in ipairs { first, second } do assert.equal("in order", client:get("exited/" .. pid).value) end
    for _, prefix in ipairs { "e/", "m/", "l/", "s" } do
      assert.equal(0, client:range(prefix, { prefix = true }).count, prefix)
    end
    client:close()
    assert.equal("", stage:troubles("a function called at the exit has failed: .*oops", "does not lead"))
  end)
end)

describe("an nginx worker that starts without a server #once #peer", function()
  nginx_stage.with_tests()

  it("serves at once from the files of its caches", function()
    local stage, _, server = nginx_stage.start_with_server {
      workers = 1,
      init_worker = [[
        client = keywatch.connect("$url")
        if not io.open("$here/kept.1") then assert(client:put("k/a", "1")) end
        caches = {}
        for i = 1, 12 do
          caches[i] = client:cache("k/", { file = "$here/kept." .. i, file_delay = 0, timeout = 3600 })
          assert(caches[i]:wait_ready())
        end
      ]],
    }
    stage:await_each(([[
      for i = 1, 12 do
        if not io.open(%q .. "/kept." .. i) then return false end
      end
      return true
    ]]):format(stage.here))
    server:signal("sigterm")
    server:wait()
    stage:reload()
    assert.same({ "1 true" }, stage:ask_each([[
      return caches[12]:get("k/a").value .. " " .. tostring(caches[12]:status().from_file)
    ]]))
    assert.equal(0, stage:quit())
  end)
end)
