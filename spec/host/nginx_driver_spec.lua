--- keywatch in nginx workers: every call, in every phase that may wait, and before nginx serves.

local directory = require "spec.support.directory"
local nginx_stage = require "spec.support.nginx_stage"
local phases = require "keywatch.driver.ngx_phase"
local proc = require "spec.support.proc"
local uv = require "spec.support.luv"

local CONNECT = [[client = keywatch.connect("$url")]]

-- Calls, by name: Lua code, and what it returns.
local CALLS = {
  { "get", [[client:put("a", "1") return client:get("a").value]], "1" },
  { "txn", [[
    local done = client:txn { compare = { { key = "b", version = 0 } }, success = { { put = "b", value = "2" } } }
    return done.succeeded]], true },
  { "range and each", [[
    for i = 1, 5 do client:put("e/" .. i, "x") end
    local n = 0
    for _ in client:each("e/", { prefix = true, page = 2 }) do n = n + 1 end
    return n + client:range("e/", { prefix = true }).count]], 10 },
  { "delete", [[client:put("d", "1") return client:delete("d").deleted]], 1 },
  { "watch", [[
    local watch = assert(client:watch("w"))
    local writer = keywatch.spawn(function() assert(client:put("w", "1")) end)
    local event = assert(watch:next(60))
    watch:close()
    return event.value, writer:join()]], "1", true },
  { "watch of what exists", [[
    client:put("i", "1")
    local seen = {}
    local watch = assert(client:watch("i", { initial = true }))
    for event in watch:events() do
      seen[#seen + 1] = event.type
      if event.type == "synced" then client:put("i", "2") end
      if #seen == 3 then watch:close() end
    end
    return table.concat(seen, " ")]], "put synced put" },
  { "sync", [[
    local watch = assert(client:watch("y"))
    local revision = assert(client:put("y", "1")).revision
    local found = assert(watch:sync(60)) >= revision
    watch:close()
    return found]], true },
  { "cache", [[
    client:put("c/1", "one")
    local cache = assert(client:cache("c/"))
    assert(cache:wait_ready(60))
    local found = cache:get("c/1").value
    cache:close()
    return found]], "one" },
  { "object watch", [[
    client:put("o/1", '{"n":1}')
    local watch = assert(client:object_watch("o/", { prefix = true, initial = true, codec = {
      decode = function(value) return { n = tonumber(value:match("%d+")) } end } }))
    local event = assert(watch:next(60))
    watch:close()
    return event.object.n]], 1 },
  { "informer", [[
    client:put("f/1", "7")
    local informer = assert(client:informer("f/", { codec = { decode = tonumber } }))
    local seen = keywatch.channel(1)
    informer:add_handler { add = function(key, object) seen:send(key .. object) end }
    assert(informer:wait_synced(60))
    local found, count = seen:receive(60), informer:count()
    informer:close()
    return found, count]], "f/17", 1 },
  { "lease", [[
    local lease = assert(client:lease(60))
    lease:keep()
    local is_there = lease:remaining() > 0
    return is_there, lease:revoke() ~= nil]], true, true },
  { "session and lock", [[
    local session = assert(client:session { ttl = 60 })
    local lock = assert(client:lock("l", { session = session, timeout = 60 }))
    local _, err = client:try_lock("l")
    assert(lock:unlock())
    session:close()
    return err.code]], "locked" },
  { "election", [[
    local election = client:election("v")
    local leading = assert(election:campaign("me", { timeout = 60 }))
    local leader = assert(election:leader())
    assert(leading:resign())
    return leader.value]], "me" },
  { "stm", [[
    client:put("s", "1")
    client:stm(function(tx) tx:put("s", tostring(tx:get("s").value + 1)) end)
    return client:get("s").value]], "2" },
  { "channel", [[
    local channel, sum = keywatch.channel(), 0
    local sender = keywatch.spawn(function()
      for i = 1, 10 do channel:send(i) end
      channel:close()
    end)
    for value in channel:values() do sum = sum + value end
    return sum, sender:join()]], 55, true },
  { "select", [[
    local channel, task = keywatch.channel(), keywatch.spawn(function() return 7 end)
    local found, _, value = keywatch.select { channel, task, timeout = 60 }
    return found == task, value]], true, 7 },
  { "scope", [[
    return pcall(keywatch.scope, function(scope)
      scope:spawn(function() error("oops", 0) end)
      keywatch.sleep(3600)
    end)]], false, "oops" },
  { "shield", [[
    local codes = {}
    local task = keywatch.spawn(function()
      codes[1] = select(2, pcall(keywatch.sleep, 60)).code
      codes[2] = select(2, pcall(keywatch.sleep, 60)).code
      codes[3] = keywatch.shield(5, function() keywatch.sleep(0.01) return "clean" end)
      codes[4] = select(2, pcall(keywatch.shield, 0.01, keywatch.sleep, 60)).code
      keywatch.sleep(60)
    end)
    keywatch.sleep(0.01)
    task:cancel()
    return task:join(), table.concat(codes, " ")]], false, "cancelled cancelled clean cancelled" },
  { "a loop that catches its cancellation", [[
    local done = false
    local task = keywatch.spawn(function() while not done do pcall(keywatch.sleep, 60) end end)
    keywatch.sleep(0.01)
    task:cancel()
    keywatch.sleep(0.01) -- others have their turn
    done = true
    return task:join()]], true },
  { "cancel", [[
    local task = keywatch.spawn(function() keywatch.sleep(3600) end)
    keywatch.sleep(0)
    task:cancel()
    local ok, err = task:join()
    return ok, err.code]], false, "cancelled" },
  { "a coroutine of the program", [[
    return coroutine.wrap(function() return client:put("k", "1") ~= nil end)()]], true },
  { "a function that C calls", [[
    local ok, err = pcall(string.gsub, "x", "x", function() return client:get("a").value end)
    return ok, err:match("cannot be suspended here")]], false, "cannot be suspended here" },
  { "a store in memory", [[
    local store = keywatch.open()
    local watch = store:watch("x")
    keywatch.spawn(function() store:put("x", "1") end)
    return watch:next(60).value]], "1" },
  { "a durable store", [[
    local store = assert(keywatch.open { path = "$data/" .. ngx.worker.pid() })
    local watch = store:watch("x")
    local revision = store:put("x", "1").revision
    local value = watch:next(60).value
    store:close()
    return revision, value]], 2, "1" },
  { "run", [[
    local ok, err = pcall(keywatch.run, function() end)
    return ok, err:match("nginx turns the loop here")]], false, "nginx turns the loop here" },
  { "driver", [[return keywatch.driver(), keywatch.driver("ngx")]], "ngx", "ngx" },
}

describe("in nginx workers #once #peer", function()
  nginx_stage.with_tests()

  for _, how in ipairs { "TCP", "a unix socket" } do
    it("every call works over " .. how .. ", and each worker has one connection", function()
      local stage, tcp = nginx_stage.start_with_server {
        init_worker = how == "TCP" and CONNECT or CONNECT:gsub("$url", "$unix"), words = { data = directory.new() },
      }
      for _, pid in ipairs(stage:workers()) do
        for _, call in ipairs(CALLS) do
          local text = call[2]:gsub("%$data", stage.words.data)
          if call[1] == "txn" then stage:ask(pid, [[client:delete("b")]]) end
          assert.same({ call[1], call[3], call[4] }, { call[1], stage:ask(pid, text) })
        end
        if how == "TCP" then assert.equal(1, proc.connections(pid, tonumber(tcp:match("%d+$")))) end
      end
      assert.equal("", stage:troubles())
      assert.equal(0, stage:quit())
      assert.equal("", stage:troubles())
    end)
  end

  it("every phase behaves as in the table", function()
    local lua = [[seen = seen or {} seen["$phase"] = { pcall(function() return client:get("p") ~= nil end) }]]
    local function try(phase) return (lua:gsub("%$phase", phase)) end
    local stage = nginx_stage.start_with_server {
      workers = 1,
      init = CONNECT .. [[ assert(client:put("p", "1"))]] .. try "init",
      init_worker = try "init_worker" .. [[ ngx.timer.at(0, function() ]] .. try "timer" .. [[ end)]],
      server = ([[
        location = /phases {
          set_by_lua_block $x { SET return "" }
          rewrite_by_lua_block { REWRITE }
          access_by_lua_block { ACCESS }
          content_by_lua_block { CONTENT ngx.say(ngx.var.x) }
          header_filter_by_lua_block { HEADER_FILTER }
          body_filter_by_lua_block { BODY_FILTER }
          log_by_lua_block { LOG }
        }]]):gsub("[%u_][%u_][%u_]+", function(name) return try(name:lower()) end),
    }
    stage:get("/phases")
    stage:await_each("return seen.log ~= nil and seen.timer ~= nil")
    for _, phase in ipairs(phases.list) do
      local name, kind = phase[1], phase[2]
      local text = ("if seen[%q] then return unpack(seen[%q]) end"):format(name, name)
      local ok, found = stage:ask(stage:workers()[1], text)
      if ok ~= nil then
        assert.same({ name, kind ~= "read" }, { name, ok })
        if kind == "read" then
          assert.matches("get waits, which nginx's phase '" .. name .. "' does not allow", found, 1, true)
        end
      end
    end
    assert.equal("", stage:troubles())
  end)

  it("before nginx serves no call waits for a server for long, and the worker serves without the server", function()
    local stage = nginx_stage.start {
      init = [[
        local client = require("keywatch").connect("http://127.0.0.1:1")
        codes = {}
        local function note(ok, err) codes[#codes + 1] = ok and "ok" or err.code end
        note(client:get("a"))
        note(client:get("a", { timeout = 0.1 }))
        note(client:watch("a"))
        note(client:cache("a"):wait_ready())
        note(client:informer("a"):wait_synced())
      ]],
    }
    local expected = "unavailable unavailable unavailable unavailable timeout"
    assert.same({ expected, expected }, stage:ask_each("return table.concat(codes, ' ')"))
    assert.equal("", stage:troubles())
  end)

  it("activities that began in init_worker continue when nginx serves", function()
    local stage, url = nginx_stage.start_with_server {
      init_worker = CONNECT .. [[
        assert(client:put("k/" .. ngx.worker.pid(), "0"))
        seen = {}
        informer = client:informer("k/")
        informer:add_handler { add = function(key, value) seen[key] = value end,
          update = function(key, value) seen[key] = value end }
        assert(informer:wait_synced())
        lock = assert(client:lock("only/" .. ngx.worker.pid(), { ttl = 5 }))
        watch = assert(client:watch("k/", { prefix = true }))
        objects = assert(client:object_watch("k/", { prefix = true, initial = true }))
        assert(objects:next())
      ]],
    }
    for _, pid in ipairs(stage:workers()) do
      local key = "k/" .. pid
      stage:ask(pid, ("client:put(%q, '1')"):format(key))
      stage:await_each(("return seen[%q] == '1' and informer:get(%q) == '1'"):format(key, key))
      assert.is_true(stage:ask(pid, "return lock:is_held()"))
      assert.equal("1", stage:ask(pid, ([[
        while true do
          local event = assert(watch:next(60))
          if event.key == %q and event.value == "1" then return event.value end
        end
      ]]):format(key)))
      assert.is_true(stage:ask(pid, "return objects:next(60) ~= nil"))
      assert.equal(1, proc.connections(pid, tonumber(url:match("%d+$"))))
    end
    assert.equal("", stage:troubles())
  end)

  it("a client that was used before nginx served stays usable, and none of its descriptors is inherited", function()
    local stage, url = nginx_stage.start_with_server {
      init = CONNECT .. [[
        assert(client:put("a", "1"))
        cache = assert(client:cache("a"))
        assert(cache:wait_ready(60))
        watch = assert(client:watch("b"))
      ]],
      init_worker = [[client:get("a")]],
    }
    local port = tonumber(url:match("%d+$"))
    assert.equal(0, proc.connections(stage.master.pid, port))
    for i, pid in ipairs(stage:workers()) do
      assert.equal("1", stage:ask(pid, "return cache:get('a').value"))
      stage:ask(pid, ("client:put('b', %q)"):format(tostring(i)))
      assert.equal(1, proc.connections(pid, port))
    end
    assert.same({ "1", "1" }, stage:ask_each("return watch:next(60).value"))
    assert.same({ "2", "2" }, stage:ask_each("return watch:next(60).value"))
    assert.equal("", stage:troubles())
  end)

  it("no descriptor is inherited if a durable store was used before", function()
    local stage, url = nginx_stage.start_with_server {
      words = { path = directory.new() .. "/store" },
      init = [[
        local store = assert(keywatch.open { path = "$path" })
        assert(store:put("a", "1"))
        assert(store:watch("a"):next(0.001) == nil) -- a wait for a durable store needs its bell
        store:close()
      ]] .. CONNECT .. [[
        assert(client:put("a", "1"))
      ]],
    }
    local port = tonumber(url:match("%d+$"))
    assert.equal(0, proc.connections(stage.master.pid, port))
    for _, pid in ipairs(stage:workers()) do
      assert.equal(0, proc.connections(pid, port))
      assert.equal("1", stage:ask(pid, "return client:get('a').value"))
    end
    assert.equal("", stage:troubles())
  end)

  it("log lines go to error.log with nginx's levels, or to the handler of the worker", function()
    local stage = nginx_stage.start_with_server { init = CONNECT }
    stage:ask(stage:workers()[1], [[
      local log = require "keywatch.support.log"
      log.info("below nginx's level")
      log.warn({ key = "a" }, "%s", "two\nlines\0")
      log.error("keywatch: a failure")
      log.write("panic", "as an error")
      local seen = {}
      keywatch.log { level = "warn", handler = function(level, text, fields)
        ngx.sleep(0.001)
        seen[#seen + 1] = table.concat({ level, text, fields.key, type(fields.time) }, " ")
      end }
      log.warn("the handler has waited")
      keywatch.log { handler = function(level, text, fields)
        seen[#seen + 1] = table.concat({ level, text, fields.key, type(fields.time) }, " ")
      end }
      log.info("below the level of the program")
      log.warn({ key = "b" }, "to the handler")
      keywatch.log { level = "info", handler = false }
      log.warn(table.concat(seen, "|"))
    ]])
    stage:expect_log("%[warn%].*keywatch: two$")
    stage:expect_log("^    lines\\x00, client")
    stage:expect_log("%[error%].*keywatch: a failure")
    stage:expect_log("%[error%].*keywatch: as an error")
    stage:expect_log("%[error%].*keywatch: the function for log lines has ")
    stage:expect_log("%[warn%].*keywatch: the handler has waited")
    stage:expect_log("%[warn%].*keywatch: warn to the handler b number")
    assert.is_nil(stage:log():find("below", 1, true))
  end)

  it("errors of tasks are logged in error.log as text", function()
    local stage = nginx_stage.start_with_server { init = CONNECT }
    stage:ask(stage:workers()[1], [[
      keywatch.spawn(function() error(select(2, client:get("x", { revision = 1e6 })), 0) end)
    ]])
    assert.matches("a task has failed: .*required revision is a future revision", stage:expect_log("a task has failed"))
  end)

  it("one worker of all leads a controller, and another one takes over when that worker exits", function()
    local stage = nginx_stage.start_with_server {
      init = CONNECT,
      init_worker = [[
        local controller = require "keywatch.controller"
        local wishes = client:informer("wish/")
        done = {}
        manager = controller.manager { store = client, election = "leaders", ttl = 2 }
        manager:add(controller.new {
          name = "c", sources = { wishes },
          reconcile = function(key)
            local wish = wishes:get(key)
            if wish then
              done[key] = wish
              assert(client:put("done/" .. key, wish .. " by " .. ngx.worker.pid()))
            end
          end,
        })
        keywatch.spawn(function() manager:run() end)
      ]],
    }
    local function await_done(key, wish)
      stage:ask(stage:workers()[1], ("client:put(%q, %q)"):format(key, wish))
      local leader
      stage:await(key, function()
        local text = "local kv = client:get(%q) return kv and kv.value"
        local value = stage:ask(stage:workers()[1], text:format("done/" .. key))
        leader = value and value:match("^" .. wish .. " by (%d+)")
        return leader
      end)
      return tonumber(leader)
    end
    local first = await_done("wish/a", "1")
    assert.equal(first, await_done("wish/b", "2"))
    local pids = stage:workers()
    local other = pids[1] == first and pids[2] or pids[1]
    assert.is_true(stage:ask(other, "return next(done) == nil"))
    stage:kill(first)
    local second = await_done("wish/c", "3")
    assert.not_equal(first, second)
    stage:reload()
    assert.not_equal(second, await_done("wish/d", "4"))
    assert.equal("", stage:troubles("exited on signal 9"))
    assert.equal(0, stage:quit())
  end)

  it("names are looked up by nginx's resolver, and the error says so if there is none", function()
    local dns = uv.new_udp()
    local asked = 0
    assert(dns:bind("127.0.0.1", 0))
    dns:recv_start(function(_, query, from)
      if not query then return end
      asked = asked + 1
      local has_address = query:sub(-4, -3) == "\0\1" -- the type of the question, behind the name
      local count = has_address and "\0\1" or "\0\0"
      local answer = query:sub(1, 2) .. "\129\128\0\1" .. count .. "\0\0\0\0" .. query:sub(13)
      if has_address then answer = answer .. "\192\12\0\1\0\1\0\0\0\60\0\4\127\0\0\1" end
      dns:send(answer, from.ip, from.port, function() end)
    end)
    local CODE = [[
      local client = keywatch.connect("http://store.keywatch.test:" .. at)
      local found, err = client:put("a", "1", { timeout = %s })
      client:close()
      return found ~= nil, tostring(err)
    ]]
    local stage, url = nginx_stage.start_with_server {
      init = [[at = ("$url"):match("%d+$")]],
      http = ("resolver 127.0.0.1:%d;"):format(dns:getsockname().port),
    }
    assert.is_true((stage:ask(stage:workers()[1], CODE:format("60"))))
    assert.is_true(asked > 0)
    stage:quit()
    local without = nginx_stage.start {
      words = { at = url:match("%d+$") }, init = [[keywatch, at = require "keywatch", "$at"]],
    }
    local is_found, text = without:ask(without:workers()[1], CODE:format("0.2"))
    assert.is_false(is_found)
    assert.matches("no resolver defined to resolve", text)
    dns:close()
  end)

  it("keywatch knows when nginx only tests its configuration", function()
    assert.is_true(phases.is_test("nginx\0-t\0"))
    assert.is_true(phases.is_test("nginx\0-c\0/etc/nginx.conf\0-qT\0"))
    assert.is_false(phases.is_test("nginx\0-c\0-t\0"))
    assert.is_false(phases.is_test("nginx\0-ct\0"))
    assert.is_false(phases.is_test("nginx: master process nginx -t\0"))
    local done = nginx_stage.new(nginx_stage.with_server { init = CONNECT }):test()
    assert.equal(0, done.status, done:stderr())
  end)
end)

