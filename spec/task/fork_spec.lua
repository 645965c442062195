--- The driver in a forked child: it continues there, without the parent's waits.

local directory = require "spec.support.directory"
local program = require "spec.support.program"

--- Runs a program that may fork: child(fn) runs fn in a child, and waits for its end.
local function run(text)
  local status, printed = program.run_forking([[
    local driver = require("keywatch.task.driver").get()
    local uv = require "keywatch.uv"
  ]] .. text)
  assert.equal(0, status, printed)
  return printed
end

--- A test of such a program.
local function prints(title, printed, text)
  it(title, function() assert.equal(printed, run(text)) end)
end

describe("after a fork", function()
  after_each(directory.remove_all)

  prints("tasks begin, wait and end in the child, and in the parent", "before\nchild\nparent\n", [[
    local function work(name)
      return keywatch.run(function()
        local event = driver.event()
        local task = keywatch.spawn(function() keywatch.sleep(0.01) event:set() return name end)
        event:wait()
        return select(2, task:join())
      end)
    end
    print(work("before"))
    child(function() print(work("child")) end)
    print(work("parent"))
  ]])

  prints("writes of the child do not wait for requests that wait in the parent", "true\ntrue\tnil\n", [[
    local pair = require "spec.support.pair"
    local host = pair.host()
    local store, client = host.store, host:client()
    store:lease(1000, { id = 7 })
    for i = 1, require("keywatch.core").probe and 100 or 25000 do store:put("k" .. i, "", { lease = 7 }) end
    client:begin("LeaseTimeToLive", { ID = 7, keys = true }) -- is long
    local put = client:begin("Put", { key = "a", value = "" })
    child(function()
      keywatch.run(function() print((keywatch.spawn(store.put, store, "b", ""):join(30))) end)
    end)
    while put:look() == nil do host.server:step(host.now) end
    print(store:get("a") ~= nil, store:get("b"))
  ]])

  it("channels continue in the child, without the parent's waiters", function()
    local printed = run [[
      local function code(value, err) return err and err.code or value end
      keywatch.run(function()
        local a, b, c = keywatch.channel(), keywatch.channel(), keywatch.channel(1)
        c:send("held")
        local tasks = {
          keywatch.spawn(a.receive, a), keywatch.spawn(b.send, b, "value"), keywatch.spawn(keywatch.select, { a, c }),
          keywatch.spawn(keywatch.select, { a, b:sending("other") }),
        }
        tasks[3]:join()
        child(function()
          print(code(a:send(1, 0)), code(b:receive(0)), code(keywatch.select { a, b, timeout = 0 }))
          keywatch.spawn(a.send, a, "new")
          print(a:receive(), c:count(), code(keywatch.select { a, b, timeout = 0.001 }))
          print(pcall(tasks[1].join, tasks[1]))
        end)
        print(a:send(1, 0), b:receive(0), a:send(2, 0), keywatch.join(tasks))
      end)
    ]]
    assert.matches("^timeout\ttimeout\ttimeout\nnew\t0\ttimeout\ntrue\tfalse\t[^\n]*cancelled", printed)
    assert.matches("\ntrue\tvalue\ttrue\ttrue\n$", (printed:gsub("\tnil", "")))
  end)

  prints("a table of a cache that has to be filled once more is filled in the child, too",
    "child\tnil\nchild\t1\nparent\tnil\nparent\t1\n", [[
    local store = keywatch.open()
    store:put("/a", "1")
    local cache = store:cache("/")
    cache:sync()
    function cache.watch() return nil, require("keywatch.core").new_error("out_of_memory") end
    require("keywatch.support.log").set_level("error")
    local t = cache:table()
    cache.watch = nil
    local function fill(name)
      print(name, t["/a"])
      keywatch.run(function()
        for _ = 1, 1000 do
          if not t["/a"] then keywatch.sleep(0.01) end
        end
      end)
      print(name, t["/a"])
    end
    child(function() fill("child") end)
    fill("parent")
  ]])

  prints("a task of the child does not wait behind tasks of the parent", "true\nchild\ttrue\nparent\ttrue\ttrue\n", [[
    local store = keywatch.open()
    for i = 1, require("keywatch.core").probe and 300 or 200000 do store:put("k" .. i, "") end
    keywatch.run(function()
      local long = keywatch.spawn(function() store:delete("k", { prefix = true }) end)
      local behind = keywatch.spawn(function() store:put("a", "1") end)
      keywatch.sleep(0)
      print(store:is_busy())
      child(function() print("child", store:put("b", "1") ~= nil) end)
      print("parent", (long:join()), (behind:join()))
    end)
  ]])

  prints("a snapshot that was not ready has failed in the child, and can be closed there", "cancelled\ntrue\ntrue\n", [[
    local store = keywatch.open()
    for i = 1, 20000 do store:put("k" .. i, "") end
    local snapshots = { store:open_snapshot(), store:open_snapshot() }
    keywatch.sleep(0.1) -- until the threads wait for more
    child(function()
      print(select(2, snapshots[1]:is_ready()).code)
      for i = 1, 2 do snapshots[i]:close() end
      print(store:put("a", "1") ~= nil)
    end)
    while not snapshots[1]:is_ready() do store:run_due() end
    print(snapshots[1]:size() > 0)
  ]])

  it("a store on a disk can be opened again though a child lives", function()
    local printed = run(([[
      local path = %q
      local store = keywatch.open { path = path }
      local parent = uv.pid()
      fork()
      if uv.pid() ~= parent then
        while not io.open(path .. "/opened") do keywatch.sleep(0.01) end
        os.exit(0, false)
      end
      store:close()
      local again, err = keywatch.open { path = path }
      print(again ~= nil, err)
      io.open(path .. "/opened", "w"):close()
      wait()
    ]]):format(directory.new()))
    assert.equal("true\tnil\n", printed)
  end)

  it("a failure is reported in the child if the joiners of the task are the parent's", function()
    local printed = run [[
      local function fork_and_fail()
        keywatch.sleep(0)
        child(function() error("child", 0) end)
      end
      for _, wait in ipairs {
        function() keywatch.join { keywatch.spawn(fork_and_fail) } end,
        function() keywatch.select { keywatch.spawn(fork_and_fail) } end,
        function() keywatch.scope(function(scope) scope:spawn(fork_and_fail) end) end,
      } do
        local parent = uv.pid()
        local ok, err = pcall(keywatch.run, function() keywatch.spawn(wait):join() end)
        if uv.pid() ~= parent then os.exit(0, true) end
        print("parent", ok, err)
      end
    ]]
    local _, reports = printed:gsub("keywatch: a task has failed: child\n", "")
    assert.same({ 3, 3 }, { reports, (select(2, printed:gsub("parent\ttrue\tnil\n", ""))) })
  end)

  it("the task that has forked continues, and no other does", function()
    local printed = run [[
      keywatch.run(function()
        local event = driver.event()
        local function other(name, fn)
          return keywatch.spawn(function()
            local ok = pcall(fn)
            print(name, ok)
          end)
        end
        local sleeper = other("sleeper", function() keywatch.sleep(0.02) end)
        local waiter = other("waiter", function() event:wait() end)
        keywatch.sleep(0)
        local new = other("new", function() end)
        child(function()
          keywatch.sleep(0.05)
          event:set()
          for _, task in ipairs { sleeper, waiter, new } do
            local ok, err = task:join()
            print(ok, err.code)
          end
          print(keywatch.spawn(function() return "its own" end):join())
        end)
        event:set()
        sleeper:join()
        waiter:join()
      end)
    ]]
    assert.equal("false\tcancelled\nfalse\tcancelled\nfalse\tcancelled\ntrue\tits own\n"
      .. "new\ttrue\nwaiter\ttrue\nsleeper\ttrue\n", printed)
  end)

  prints("a task that forks and ends lets no other task run in the child", "main\ttrue\ntrue\tnil\n", [[
    local parent = uv.pid()
    local ok, err = pcall(keywatch.run, function()
      keywatch.spawn(function() fork() end)
      keywatch.sleep(0.01)
      print("main", uv.pid() == parent)
    end)
    if uv.pid() ~= parent then os.exit(0, true) end
    wait()
    print(ok, err)
  ]])

  prints("who joins a task of the parent learns at once that it is cancelled",
    ("false\tcancelled\tkeywatch.task<failed>\n"):rep(4) .. "nil\nkeywatch.task<parked>\n", [[
    keywatch.run(function()
      local others = {}
      for i = 1, 3 do others[i] = keywatch.spawn(keywatch.sleep, 1000) end
      keywatch.sleep(0)
      others[4] = keywatch.spawn(keywatch.sleep, 1000)
      child(function()
        for i, timeout in ipairs { 0, 1000, false, false } do
          local ok, err = others[i]:join(timeout or nil)
          print(ok, err.code, tostring(others[i]))
        end
        print(require("spec.support.scheduler").check())
      end)
      print(others[1])
    end)
  ]])

  prints("who joins one at top level learns that, too", "false\tcancelled\nkeywatch.task<parked>\n", [[
    local other = keywatch.spawn(keywatch.sleep, 1000)
    keywatch.sleep(0)
    child(function()
      local ok, err = other:join()
      print(ok, err.code)
    end)
    print(other)
  ]])

  prints("an event that tasks of the parent wait for has no waiters", "true\nfalse\ttrue\n", [[
    keywatch.run(function()
      local event = driver.event()
      for _ = 1, 3 do keywatch.spawn(event.wait, event) end
      keywatch.sleep(0)
      child(function()
        print(keywatch.spawn(function() end):join())
        print(event:set(), event:wait())
      end)
    end)
  ]])

  prints("a watch that a task of the parent reads has no reader", "2\n1\ntrue\ntrue\t2\nnil\n", [[
    local store = keywatch.open()
    local w = store:watch("a")
    keywatch.run(function()
      local reader = keywatch.spawn(function() for _ in w:events() do end end)
      keywatch.sleep(0)
      child(function()
        store:put("a", "1")
        print(w:sync(1000))
        print(w:next().value)
        print(w:next(0.01) == nil)
        local other = keywatch.spawn(function() return w:next().value end)
        keywatch.sleep(0)
        store:put("a", "2")
        print(other:join())
        print(require("spec.support.scheduler").check())
      end)
    end)
  ]])

  it("no task waits for the parent's disk", function()
    local printed = run(([[
      local store = assert(keywatch.open { path = %q })
      local w = store:watch("", { prefix = true })
      keywatch.run(function()
        local writers = {}
        for i = 1, 20 do
          writers[i] = keywatch.spawn(function()
            for n = 1, 10 do store:put("k" .. i, "v" .. n) end
          end)
        end
        local reader = keywatch.spawn(function() w:next() end)
        keywatch.sleep(0)
        child(function()
          keywatch.sleep(0.01)
          print((select(2, writers[1]:join())).code)
          print((select(2, pcall(store.put, store, "a", "b")):match("store is that of the parent process")))
          for _, timeout in ipairs { 0, 0.01, false } do
            print((select(2, pcall(w.next, w, timeout or nil)):match("store is that of the parent process")))
          end
        end)
        for _, writer in ipairs(writers) do print(writer:join()) end
      end)
    ]]):format(directory.new() .. "/store"))
    assert.equal("cancelled\n" .. ("store is that of the parent process\n"):rep(4) .. ("true\n"):rep(20), printed)
  end)

  prints("no task waits for a thread of the parent", "cancelled\ntrue\ttrue\n", [[
    local server = assert(keywatch.serve { thread = true, listen = "http://127.0.0.1:0" })
    keywatch.run(function()
      local stopper = keywatch.spawn(server.shutdown, server, 0)
      keywatch.sleep(0)
      child(function()
        keywatch.sleep(0.01)
        print((select(2, stopper:join())).code)
      end)
      print(stopper:join())
    end)
  ]])

  prints("signals stay with the parent, and the child gets an error",
    ("belong to the parent process\n"):rep(3) .. ("keywatch.signals<TERM inherited>\n"):rep(2), [[
    local signals = assert(keywatch.signals { "TERM" })
    keywatch.run(function()
      keywatch.spawn(keywatch.sleep, 1000)
      child(function()
        for _, timeout in ipairs { 0, 1000, false } do
          print((select(2, pcall(signals.wait, signals, timeout or nil)):match("belong to the parent process")))
        end
        print(signals)
        signals:close()
        print(signals)
      end)
    end)
    signals:close()
  ]])

  prints("children that run other programs have no effect", "true\tkeywatch.task<parked>\ntrue\t1\n", [[
    local luv = require "luv"
    local server = assert(keywatch.serve { thread = true, listen = "http://127.0.0.1:0" })
    local client = keywatch.connect(server:addresses()[1])
    local w = assert(client:watch("a"))
    local task = keywatch.spawn(function() return w:next().value end)
    keywatch.sleep(0)
    local pid = uv.pid()
    os.execute("true")
    io.popen("true"):close()
    local is_over = false
    luv.spawn("true", {}, function() is_over = true end)
    repeat luv.run("once") until is_over
    print(uv.pid() == pid, task)
    client:put("a", "1")
    print(task:join())
    client:close()
    server:close()
  ]])

  prints("a request of the top level while a task forks is repeated in the child", "child\t1\nparent\t1\n", [[
    local server = assert(keywatch.serve { thread = true, listen = "http://127.0.0.1:0" })
    local client = keywatch.connect(server:addresses()[1])
    client:put("a", "1")
    local parent = uv.pid()
    keywatch.spawn(function() fork() end)
    local kv, err = client:get("a")
    if uv.pid() ~= parent then
      print("child", kv and kv.value or err.code)
      os.exit(0, true)
    end
    wait()
    print("parent", kv.value)
    client:close()
    server:close()
  ]])

  it("servers stay with the parent, and the child opens its own", function()
    local printed = run(([[
      local path = %q
      local store = keywatch.open()
      local server = assert(keywatch.serve { store = store, listen = { "http://127.0.0.1:0", "unix:" .. path } })
      driver.look()
      child(function()
        driver.look()
        local own = assert(keywatch.serve { store = keywatch.open(), listen = "http://127.0.0.1:0" })
        print(#own:addresses())
        print(own:close())
      end)
      child(function() end)
      print(#server:addresses(), os.rename(path, path))
      print(server:close(), os.rename(path, path) == nil)
    ]]):format(directory.new() .. "/socket"))
    assert.equal("1\ntrue\n2\ttrue\ntrue\ttrue\n", printed)
  end)

  prints("a hook of a client that has forked continues in the child, alone, and may raise",
    "1\non_state of a client has failed: a slip\nclosed\t1\n", [[
    io.stderr = { write = function(_, text) print((text:match("on_state of a client has failed: [^\n]*"))) end }
    local store = keywatch.open()
    local server = assert(keywatch.serve { store = store, listen = "http://127.0.0.1:0" })
    local running, parent = 0, uv.pid()
    local client
    client = keywatch.connect(server:addresses()[1], { on_state = function(state)
      running = running + 1
      if state.state == "connected" then
        fork()
        if uv.pid() ~= parent then
          client:close() -- a change that this hook must get, when it has ended
          keywatch.sleep(0)
          keywatch.sleep(0)
          print(running)
          running = running - 1
          error("a slip", 0)
        end
        wait()
      end
      if state.state == "closed" and uv.pid() ~= parent then
        print("closed", running)
        os.exit(0, true)
      end
      running = running - 1
    end })
    client:put("k", "v")
    keywatch.sleep(0)
    if uv.pid() ~= parent then
      for _ = 1, 1000 do keywatch.sleep(0.001) end
    end
  ]])
end)
