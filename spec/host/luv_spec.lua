--- In luv's loop: tasks that are spawned outside of run belong to it, beside the program's own handles.

local program = require "spec.support.program"

-- luv, a timer of the program that ticks all the time, and a server with a client.
local BEGIN = [[
  local uv = require "luv"
  local keywatch = require "keywatch"
  io.stdout:setvbuf("line")
  local ticks, ticker = 0, uv.new_timer()
  ticker:start(1, 1, function() ticks = ticks + 1 end)
  local function await_tick() local seen = ticks while ticks < seen + 2 do keywatch.sleep(0.001) end end
  local function soon(fn)
    local timer = uv.new_timer()
    timer:start(1, 0, function() timer:close() fn() end)
  end
  local function serve(store)
    local server = assert(keywatch.serve { store = store, listen = "http://127.0.0.1:0" })
    return server, keywatch.connect(server:addresses()[1])
  end
  local function close(...) for _, object in ipairs { ticker, ... } do object:close() end end
]]

local expect = program.expecting(BEGIN)

describe("in luv's loop", function()
  it("a task that is spawned before the loop runs, runs in the loop", function()
    expect("spawned\nin the loop default\nended\n", [[
      keywatch.spawn(function() print("in the loop", uv.loop_mode()) ticker:close() end)
      print "spawned"
      uv.run()
      print "ended"
    ]])
  end)

  it("a task that is spawned in a callback runs", function()
    expect("spawned\ntask 7\n", [[
      soon(function()
        keywatch.spawn(function(n)
          keywatch.sleep(0.001)
          print("task", n)
          ticker:close()
        end, 7)
        print "spawned"
      end)
      uv.run()
    ]])
  end)

  it("caches work, in a task and in a callback, and an error in a callback names where to wait", function()
    expect("1 1 1\n2 2\nkeywatch: wait_for waits\n", [[
      local store = keywatch.open()
      local server, client = serve(store)
      store:put("/a", "1")
      keywatch.spawn(function()
        local cache = client:cache("/")
        assert(cache:wait_ready(30))
        local t = cache:table()
        print(cache:get("/a").value, t["/a"], cache:get("/a", { consistent = true }).value)
        assert(cache:wait_for(store:put("/a", "2").revision, 30))
        soon(function()
          print(cache:get("/a").value, t["/a"])
          local ok, err = pcall(cache.wait_for, cache, 100)
          print((err:match("keywatch: wait_for waits")))
          close(client, server)
        end)
      end)
      uv.run()
    ]])
  end)

  it("clients, watches and servers work, and timers of the program continue", function()
    expect("put 2\nevent 1\nevent 2\nticked true\n", [[
      local store = keywatch.open()
      local server, client = serve(store)
      keywatch.spawn(function()
        local w = assert(client:watch("a"))
        print("put", assert(client:put("a", "1")).revision)
        print("event", w:next().value)
        soon(function() store:put("a", "2") end)
        print("event", w:next().value)
        await_tick()
        print("ticked", ticks > 0)
        close(client, server)
      end)
      uv.run()
    ]])
  end)

  it("a durable store works", function()
    expect("true\nevent 1\n10 of 10\n", [[
      local path = os.tmpname()
      os.remove(path)
      local store = assert(keywatch.open { path = path })
      keywatch.spawn(function()
        local w = assert(store:watch("a"))
        print(store:put("a", "1").revision == 2)
        print("event", w:next().value)
        local tasks, done = {}, 0
        for i = 1, 10 do
          tasks[i] = keywatch.spawn(function() if store:put("b", i .. "") then done = done + 1 end end)
        end
        for i = 1, 10 do tasks[i]:join() end
        print(done .. " of 10")
        store:close()
        os.execute("rm -r " .. path)
        ticker:close()
      end)
      uv.run()
    ]])
  end)

  it("a change of a store in a callback wakes the watches of tasks", function()
    expect("b 1\nexpired\n", [[
      local store = keywatch.open()
      keywatch.spawn(function()
        local w = store:watch("b")
        soon(function() store:put("b", "1") end)
        print("b", w:next().value)
        store:put("b", "2", { lease = store:lease(1).id })
        w:next()
        print(w:next().type == "delete" and "expired")
        ticker:close()
      end)
      uv.run()
    ]])
  end)

  it("a callback may send to a task, and run does not affect the tasks of a scope", function()
    expect("from a callback\nvalue\nended\n", [[
      local channel = keywatch.channel()
      keywatch.spawn(function()
        local result = keywatch.scope(function(scope)
          local values = keywatch.channel()
          scope:spawn(function()
            print((channel:receive()))
            values:send("value")
          end)
          return (select(2, keywatch.select { values, timeout = 20 }))
        end)
        print(result)
        ticker:close()
      end)
      keywatch.run(function() for _ = 1, 3 do keywatch.sleep(0) end end)
      soon(function() channel:send("from a callback", 0) end)
      uv.run()
      print "ended"
    ]])
  end)

  it("a callback right before the loop blocks may spawn and cancel tasks", function()
    expect("spawned\ncancelled\n", [[
      ticker:close()
      local function before_rest(fn)
        local prepare = uv.new_prepare()
        prepare:start(function() if fn() then prepare:stop() end end)
      end
      before_rest(function() keywatch.spawn(function() print "spawned" end) return true end)
      uv.run()

      local is_asleep, sleeper = false, nil
      before_rest(function() -- of two handles the one that was started first is called last
        if is_asleep then sleeper:cancel() end
        return is_asleep
      end)
      sleeper = keywatch.spawn(function()
        is_asleep = true
        print(select(2, pcall(keywatch.sleep, 1000)).code)
      end)
      uv.run()
    ]])
  end)

  it("a callback may cancel a task, and a task may join another", function()
    expect("false cancelled\n", [[
      local sleeper = keywatch.spawn(function() keywatch.sleep(1000) end)
      keywatch.spawn(function()
        soon(function() sleeper:cancel() end)
        local ok, err = sleeper:join()
        print(ok, err.code)
        ticker:close()
      end)
      uv.run()
    ]])
  end)

  it("a connected client does not keep the loop alive, and a server does", function()
    expect("true\nthe loop has ended with a connection\nserved 1\ntrue\nclosed\n", [[
      ticker:close()
      local store = keywatch.open()
      local server = assert(keywatch.serve { listen = "http://127.0.0.1:0", thread = true })
      local client = keywatch.connect(server:addresses()[1])
      keywatch.spawn(function() print(client:put("a", "1") ~= nil) end)
      uv.run()
      print "the loop has ended with a connection"
      server:close()
      client:close()
      store:put("a", "1")
      server, client = serve(store)
      local reader = keywatch.spawn(function() return client:get("a").value end)
      while not tostring(reader):find("done") do uv.run("once") end
      print("served", select(2, reader:join(0)))
      for _ = 1, 10 do uv.run("nowait") end
      print(uv.loop_alive())
      client:close()
      server:close()
      uv.run()
      print "closed"
    ]])
  end)

  it("the socket of a closed client is closed, though no task is left", function()
    expect("closed\n", [[
      local function count_sockets()
        local directory, n = uv.fs_scandir("/proc/self/fd"), 0
        for name in function() return uv.fs_scandir_next(directory) end do
          if (uv.fs_readlink("/proc/self/fd/" .. name) or ""):find("^socket:") then n = n + 1 end
        end
        return n
      end
      local listener = uv.new_tcp()
      listener:bind("127.0.0.1", 0)
      listener:listen(1, function() end) -- libuv accepts one connection, which is neither read nor closed
      local before = count_sockets()
      keywatch.spawn(function()
        local client = keywatch.connect(("http://127.0.0.1:%d"):format(listener:getsockname().port))
        client:get("a", { timeout = 0.01 })
        client:close()
      end)
      local has_begun = false
      ticker:start(1, 1, function()
        local n = count_sockets()
        has_begun = has_begun or n == before + 2
        if not has_begun or n > before + 1 then return end
        print "closed"
        close(listener)
      end)
      uv.run()
    ]])
  end)

  it("run works before luv's loop runs, and does not affect luv's tasks", function()
    expect("run 1\nstill there\nlater\n", [[
      local task = keywatch.spawn(function()
        keywatch.sleep(0.05)
        print "later"
        ticker:close()
      end)
      print("run", keywatch.run(function()
        keywatch.spawn(function() keywatch.sleep(1000) end)
        return 1
      end))
      print(tostring(task):find("parked") and "still there")
      uv.run()
    ]])
  end)

  it("run does not affect the tasks that luv's tasks spawn in between", function()
    expect("parent\nrun\nchild\n", [[
      keywatch.spawn(function()
        keywatch.spawn(function()
          keywatch.sleep(0.05)
          print "child"
          ticker:close()
        end)
        print "parent"
      end)
      keywatch.run(function() keywatch.sleep(0) keywatch.sleep(0) end)
      print "run"
      uv.run()
    ]])
  end)

  it("run does not raise the failure of luv's tasks", function()
    local printed = program.printed_by(BEGIN .. [[
      ticker:close()
      keywatch.spawn(function() error "oh" end)
      print(keywatch.run(function() keywatch.sleep(0) return "not raised" end))
      uv.run()
    ]])
    assert.matches("keywatch: a task has failed: [^\n]*oh\n", printed)
    assert.matches("not raised\n$", printed)
  end)

  it("a server that began in a run continues to serve", function()
    expect("2\nended\n", [[
      ticker:close()
      uv.run()
      local server, client = keywatch.run(function() return serve(keywatch.open()) end)
      assert(uv.loop_alive())
      soon(function()
        keywatch.spawn(function()
          print(client:put("a", "1").revision)
          client:close()
          server:close()
        end)
      end)
      uv.run()
      print "ended"
    ]])
  end)

  it("a failed task is reported, and everything else continues", function()
    local printed = program.printed_by(BEGIN .. [[
      keywatch.spawn(function() error "oh" end)
      keywatch.spawn(function() await_tick() print "goes on" ticker:close() end)
      uv.run()
      print(keywatch.run(function() return "not raised" end))
    ]])
    assert.matches("keywatch: a task has failed: [^\n]*oh\n", printed)
    assert.matches("goes on\nnot raised\n$", printed)
  end)

  it("calls outside of tasks are refused, and the error names what to do", function()
    local status, printed = program.run(BEGIN .. [[
      local store = keywatch.open()
      local server, client = serve(store)
      local w = store:watch("a")
      soon(function()
        local function try(fn) print((select(2, pcall(fn)):gsub("^.-: ", ""))) end
        try(function() local kv = client:get("a") return kv end)
        try(function() keywatch.sleep(1) end)
        try(function() keywatch.run(function() end) end)
        try(function() local event = w:next() return event end)
        try(function() local event = w:next(1) return event end)
        print(w:next(0))
        close(server)
      end)
      uv.run()
    ]])
    local refusal = "keywatch: %s waits, which would block luv's loop: call it in a task, "
      .. "with keywatch.spawn\n"
    assert.equal(0, status)
    local expected = ""
    for _, name in ipairs { "get", "sleep", "run", "next", "next" } do expected = expected .. refusal:format(name) end
    assert.equal(expected, printed:match("^(.*)nil\t"))
  end)

  it("a program that has closed all handles can spawn again", function()
    expect("one\ntwo\n", [[
      keywatch.spawn(function() print "one" end)
      uv.run("nowait")
      uv.walk(function(handle) if not handle:is_closing() then handle:close() end end)
      uv.run()
      keywatch.spawn(function() keywatch.sleep(0.001) print "two" end)
      uv.run()
    ]])
  end)

  it("a program ends well whose older objects are collected after luv was unloaded", function()
    assert.same({ 0, "true\nended\n" }, { program.run([[
      local keywatch = require "keywatch"
      local compat = require "keywatch.support.compat"
      local server = assert(keywatch.serve { store = keywatch.open(), listen = "http://127.0.0.1:0" })
      client = keywatch.connect(server:addresses()[1])
      sentinel = compat.sentinel(function()
        keywatch.spawn(function() end):cancel()
        pcall(keywatch.sleep, 0.001)
      end)
      local uv = require "luv"
      keywatch.spawn(function()
        print(client:put("a", "1") ~= nil)
        server:close()
      end)
      uv.run()
      print "ended"
    ]], 30) })
  end)

  it("a task that turns luv's loop itself does not spin", function()
    expect("turned\n", [[
      local store = keywatch.open()
      local server, client = serve(store)
      keywatch.spawn(function()
        local w = client:watch("a")
        store:put("a", "1")
        local turns, prepare = 0, uv.new_prepare()
        prepare:start(function() turns = turns + 1 end)
        local timer, is_over = uv.new_timer(), false
        ticker:stop()
        timer:start(200, 0, function() is_over = true end)
        while not is_over do uv.run("once") end
        assert(w:next())
        print(turns < 50 and "turned" or turns)
        for _, object in ipairs { prepare, timer, ticker, client, server } do object:close() end
      end)
      uv.run()
    ]])
  end)

  it("a task may turn luv's loop until nothing but keywatch is left in it", function()
    expect("a timer\nnothing is left\ngoes on\nin run\nthe last\nended\n", [[
      ticker:close()
      keywatch.spawn(function()
        soon(function() print "a timer" end)
        uv.run()
        print "nothing is left"
        keywatch.sleep(0.001)
        print "goes on"
      end)
      uv.run()
      keywatch.spawn(function() keywatch.sleep(0.01) print "the last" end)
      keywatch.run(function() uv.run() print "in run" end)
      uv.run()
      print "ended"
    ]])
  end)

  it("a step leaves the rest of many ready tasks to the next one", function()
    expect("true\n100\n", [[
      local n = 0
      for _ = 1, 100 do
        keywatch.spawn(function()
          local start = keywatch.now()
          while keywatch.now() < start + 0.0002 do end
          n = n + 1
        end)
      end
      keywatch.step()
      print(n < 50)
      ticker:close()
      uv.run()
      print(n)
    ]])
  end)
end)

describe("without luv's handles", function()
  it("spawn raises, and serve returns the error", function()
    local status, printed = program.run [[
      package.loaded.luv = { new_prepare = print, new_poll = function() return nil, "EMFILE: too many open files" end }
      local keywatch = require "keywatch"
      local function try(fn) print((select(2, pcall(fn)):gsub("^.-:%d+: ", ""))) end
      try(function() keywatch.spawn(print, "never") end)
      print(keywatch.serve { store = keywatch.open(), listen = "http://127.0.0.1:0" })
      keywatch.run(function() keywatch.sleep(0) end)
    ]]
    local text = "luv cannot poll: EMFILE: too many open files"
    assert.same({ 0, "keywatch: " .. text .. "\n"
      .. "nil\tkeywatch: cannot listen on http://127.0.0.1:0: " .. text .. " (listen_failed)\n" }, { status, printed })
  end)
end)

describe("in luv's loop, after a fork", function()
  local expect_forking = program.expecting(BEGIN .. [[
    ticker:close()
    local function put(name)
      local server, client = serve(keywatch.open())
      print(name, client:put("a", "1").revision)
      client:close()
      server:close()
    end
  ]], program.run_forking)

  it("the child can spawn, serve and run", function()
    expect_forking("spawned\nput 2\nin the loop 2\nparent 2\n", [[
      keywatch.spawn(function() keywatch.sleep(0.01) put "parent" end)
      uv.run("nowait")
      child(function()
        keywatch.spawn(function() print "spawned" end)
        keywatch.run(put, "put")
        keywatch.spawn(put, "in the loop")
        uv.run()
      end)
      uv.run()
    ]])
  end)

  it("the task that has forked continues in luv's loop of the child", function()
    expect_forking("child 2\nparent 2\n", [[
      local parent = uv.os_getpid()
      keywatch.spawn(function() keywatch.sleep(0.01) if uv.os_getpid() ~= parent then print "never" end end)
      keywatch.spawn(function()
        keywatch.sleep(0.001)
        child(function() put "child" end)
        put "parent"
      end)
      uv.run()
    ]])
  end)
end)

describe("keywatch.driver", function()
  it("returns and sets the loop of tasks that are spawned outside of run", function()
    expect("luv\nuv\nnot run\nluv\nran\n", [[
      ticker:close()
      print(keywatch.driver())
      print(keywatch.driver "uv")
      local has_run = false
      local task = keywatch.spawn(function() has_run = true end)
      uv.run()
      print(has_run and "run" or "not run")
      task:cancel()
      print(keywatch.driver "luv")
      keywatch.spawn(function() print "ran" end)
      uv.run()
    ]])
  end)

  it("moves earlier tasks and servers to luv's loop", function()
    assert.same({ 0, "run\n2\n" }, { program.run([[
      local keywatch = require "keywatch"
      local server = assert(keywatch.serve { store = keywatch.open(), listen = "http://127.0.0.1:0" })
      local client = keywatch.connect(server:addresses()[1])
      keywatch.spawn(function()
        keywatch.sleep(0.001)
        print(client:put("a", "1").revision)
        client:close()
        server:close()
      end)
      local uv = require "luv"
      keywatch.driver "luv"
      print(keywatch.run(function() return "run" end))
      uv.run()
    ]], 30) })
  end)

  it("moves a server to luv's loop again", function()
    expect("false\ntrue\n", [[
      ticker:close()
      local server = serve(keywatch.open())
      keywatch.driver "uv"
      uv.run()
      print(uv.loop_alive())
      keywatch.driver "luv"
      print(uv.loop_alive())
      server:close()
      uv.run()
    ]])
  end)

  it("is uv without luv", function()
    assert.same({ 0, "uv\n" }, { program.run("print(require('keywatch').driver())") })
  end)

  it("refuses unknown names, luv that is not loaded, and to abandon tasks", function()
    local status, printed = program.run [[
      local keywatch = require "keywatch"
      local function try(name) print((select(2, pcall(function() keywatch.driver(name) end)):gsub("^.-:%d+: ", ""))) end
      try "select"
      try(1)
      try "luv"
      require "luv"
      local task = keywatch.spawn(function() keywatch.sleep(1) end)
      try "uv"
      task:cancel()
    ]]
    assert.same({ 0, "driver: there is no driver 'select': choose 'uv' or 'luv'\n"
      .. "bad argument #1 to 'driver' (string expected, not 1)\n"
      .. "driver: luv is not loaded: require it first\n"
      .. "driver: luv's loop runs tasks: let them end first\n" }, { status, printed })
  end)
end)
