--- keywatch.serve in a thread of its own: the same server, whatever the program does.

local keywatch = require "keywatch"
local uv = require "keywatch.uv"

local answer = require "spec.support.answer"
local files = require "spec.support.files"
local luv = require "spec.support.luv"
local process = require "spec.support.process"
local program = require "spec.support.program"
local rpc = require "spec.support.rpc"
local shell = require "spec.support.shell"

local SECONDS = 60 -- after which a wait fails
local LOCAL = "http://127.0.0.1:0"
local THREADS = 20

local function start(opts)
  local all = { thread = true, listen = LOCAL }
  for name, value in pairs(opts or {}) do all[name] = value end
  return keywatch.serve(all)
end

local function wait(is_so)
  local deadline = luv.hrtime() + SECONDS * 1e9
  while not is_so() do
    luv.run("nowait")
    if luv.hrtime() > deadline then error("what was waited for has not come", 2) end
  end
end

--- The response, or nil if the call has failed. keywatch's loop does not turn.
local function ask(client, path, request)
  local call = client:begin_message(path, request)
  wait(function()
    client:pump()
    return call.status
  end)
  return rpc.answers(call, path)[1]
end

local function put(client, key, value)
  return ask(client, "/etcdserverpb.KV/Put", { key = key, value = value })
end

local function status(client) return ask(client, "/etcdserverpb.Maintenance/Status") end

describe("a server in a thread", function()
  local server, clients

  before_each(function() server, clients = assert(start()), {} end)

  after_each(function()
    for _, client in ipairs(clients) do client:close() end
    assert.is_true(server:close())
  end)

  it("has the handlers, services and middleware of a module", function()
    local directory = require "spec.support.directory"
    local where, path = directory.new(), package.path
    files.write(where .. "/spec_thread_module.lua", [[
      return function(server, store)
        store:put("set", "up")
        server:mount("spec.Calls", { Get = function(key) return store:get(key).value end })
        server:use { before = function(call) return call.path ~= "/etcdserverpb.KV/Put" end }
        server:handle("GET", "/x", function() return "x" end)
      end
    ]])
    files.write(where .. "/spec_thread_failure.lua", "return function() error 'no luck' end")
    package.path = where .. "/?.lua;" .. path
    local own = assert(start { module = "spec_thread_module" })
    local client = rpc.connect(own:addresses()[1])
    local call = client:begin("/spec.Calls/Get", "set")
    wait(function()
      client:pump()
      return call.status
    end)
    assert.same({ "up" }, call.messages)
    assert.is_nil(put(client, "a", "1"))
    assert.equal("x", shell.must("curl -s " .. own:addresses()[1]:gsub("127.0.0.1", "localhost") .. "/x"))
    client:close()
    assert.is_true(own:close())
    for name, text in pairs { spec_thread_failure = "no luck", no_such_module = "module 'no_such_module' not found" } do
      local none, err = start { module = name }
      assert.is_nil(none)
      assert.equal("thread_failed", err.code)
      assert.is_truthy(err.message:find(text, 1, true), err.message)
    end
    package.path = path
    directory.remove_all()
    assert.has_error(function() keywatch.serve { store = keywatch.open(), module = "x" } end)
  end)

  local function connect(to)
    local client = rpc.connect((to or server):addresses()[1])
    table.insert(clients, client)
    return client
  end

  it("answers, though no loop turns in the owner's thread", function()
    local client = connect()
    assert.equal(2, put(client, "a", "1").header.revision)
    assert.equal(3, put(client, "a", "2").header.revision)
    assert.equal("3.5.21", status(client).version)
  end)

  it("answers while the program is busy", function()
    local path = os.tmpname()
    local etcdctl = process.start({ "sh", "-c", ('etcdctl --endpoints "$0" put a 1 >%s'):format(path),
      server:addresses()[1] }, { env = { ETCDCTL_API = "3" } })
    local deadline = luv.hrtime() + SECONDS * 1e9
    local function printed()
      local file = assert(io.open(path))
      local text = file:read("*a")
      file:close()
      return text
    end
    while printed() ~= "OK\n" and luv.hrtime() < deadline do end
    assert.equal("OK\n", printed())
    assert.equal(0, etcdctl:wait())
    os.remove(path)
  end)

  it("answers while the tasks of the program run", function()
    local client, turns = connect(), 0
    keywatch.run(function()
      keywatch.spawn(function()
        while true do
          turns = turns + 1
          keywatch.sleep(0)
        end
      end)
      assert(client:ask("/etcdserverpb.KV/Put", { key = "a" }))
    end)
    assert.is_true(turns > 0)
  end)

  it("sends progress to idle watches again and again, though nothing else happens", function()
    local idle = assert(start { open = { progress_interval = 0.1 } })
    keywatch.run(function()
      local client = keywatch.connect(idle:addresses()[1])
      local watch = assert(client:watch("k", { progress = true }))
      for _ = 1, 3 do assert.same({ type = "progress", revision = 1 }, watch:next(SECONDS)) end
      client:close()
    end)
    assert.is_true(idle:close())
  end)

  it("has calls of the Lock and Election services wait for their turn", function()
    local LOCK, ELECTION = "/v3lockpb.Lock/", "/v3electionpb.Election/"
    keywatch.run(function()
      local client = keywatch.connect(server:addresses()[1])
      local function lock()
        return client:call(LOCK .. "Lock", { name = "n", lease = client:lease(60).id }, { timeout = SECONDS })
      end
      local first = assert(lock())
      local second = keywatch.spawn(lock)
      local function waits() return client:range("n/", { prefix = true }).kvs[2] end
      while not waits() do assert.equal("timeout", answer.code(second:join(0.001))) end
      assert(client:call(LOCK .. "Unlock", { key = first.key }))
      assert.is_table(select(2, second:join()))
      local observer = assert(client:stream(ELECTION .. "Observe", { timeout = SECONDS }))
      observer:send { name = "e" }
      assert(client:call(ELECTION .. "Campaign", { name = "e", lease = client:lease(60).id, value = "1" }))
      assert.equal("1", assert(observer:receive()).kv.value)
      client:close()
    end)
  end)

  it("ends at once, if the waiter for its end is interrupted", function()
    local client = connect()
    status(client)
    keywatch.run(function()
      local ender = keywatch.spawn(function() return server:shutdown(1e6) end)
      client:wait(function() return client:has_goaway() end)
      assert.is_true(server:close())
      assert.same({ true, true }, { ender:join() })
    end)
  end)

  it("wakes no waiter after it has ended", function()
    local store = keywatch.open()
    assert.error_matches(function()
      keywatch.run(function()
        server:shutdown()
        store:watch("a"):next()
      end)
    end, "deadlock")
    store:close()
  end)

  it("can be ended by another task, if the task that waits for its end is cancelled", function()
    status(connect())
    keywatch.run(function()
      local ender = keywatch.spawn(function() return server:shutdown(1e6) end)
      keywatch.sleep(0)
      ender:cancel()
      local ok, err = ender:join()
      assert.same({ false, "cancelled" }, { ok, err.code })
    end)
    assert.is_true(server:close())
  end)

  it("may be one of many", function()
    local servers, addresses = {}, {}
    for i = 1, THREADS do servers[i] = assert(start()) end
    for i, one in ipairs(servers) do
      local client = connect(one)
      for n = 1, i do assert.equal(n + 1, put(client, "a", "1").header.revision) end
      assert.is_nil(addresses[one:addresses()[1]])
      addresses[one:addresses()[1]] = true
    end
    for _, one in ipairs(servers) do assert.is_true(one:close()) end
  end)

  it("is closed when it is forgotten", function()
    local address, client
    do
      local forgotten = assert(start())
      address, client = forgotten:addresses()[1], connect(forgotten)
    end
    status(client)
    collectgarbage()
    wait(function() return client.socket.has_ended or client.socket.failure end)
    assert(start { listen = address }):close()
  end)

  it("is started and ended where waiting is not allowed", function()
    local function try()
      local other = assert(start())
      assert.is_true(other:shutdown())
    end
    coroutine.wrap(try)()
    local is_done = false
    local timer = luv.new_timer()
    timer:start(0, 0, function()
      timer:close()
      try()
      is_done = true
    end)
    wait(function() return is_done end)
    rawset(_G, "ngx", { get_phase = function() return "content" end })
    local ok, err = pcall(try)
    rawset(_G, "ngx", nil)
    assert(ok, err)
  end)
end)

describe("keywatch.serve with a thread", function()
  it("returns an error if the thread does not find its modules", function()
    local path = package.path
    package.path = "/nowhere/?.lua"
    local ok, server, err = pcall(start)
    package.path = path
    assert.is_true(ok)
    assert.is_nil(server)
    assert.equal("thread_failed", err.code)
    assert.matches("^keywatch: the thread has failed: module 'keywatch.server.thread_main' not found", err.message)
  end)

  it("raises on a usage error", function()
    local store = keywatch.open()
    assert.error_matches(function() start { store = store } end, "a store cannot go to another thread")
    assert.error_matches(function() keywatch.serve { store = store, open = {} } end,
      "'open' has an effect only with 'thread'")
    assert.error_matches(function() start { open = { now = print } } end, "a function cannot be written as text")
    assert.error_matches(function() start { open = { nothing = 1 } } end, "open: there is no option 'nothing'")
    assert.error_matches(function() start { max_concurrent_streams = -1 } end, "option 'max_concurrent_streams' must")
    assert.error_matches(function() start { listen = "localhost" } end, "must begin with http")
    local server = assert(start())
    for _, name in ipairs { "addresses", "close", "shutdown" } do
      assert.error_matches(function() server[name]() end, "with a colon")
    end
    assert.error_matches(function() server:shutdown("soon") end, "number of seconds expected")
    server:close()
    store:close()
  end)

  it("has the same methods as without a thread", function()
    local names = {}
    for name in pairs(require("keywatch.server.server").methods) do names[name] = true end
    for name in pairs(require("keywatch.server.thread").methods) do
      assert.is_true(names[name])
      names[name] = nil
    end
    assert.same({}, names)
  end)

  if uv.probe then
    it("leaves nothing behind when memory is short, or it has ended", function()
      collectgarbage()
      local live, failures, server = uv.probe.live(), 0, nil
      for n = 1, 100 do
        uv.probe.fail_at(n)
        local err
        server, err = start()
        if server then break end
        assert.equal("thread_failed", err.code)
        failures = n
      end
      uv.probe.fail_at(0)
      server:close()
      assert.is_true(failures > 0)
      assert.equal(live, uv.probe.live())
    end)
  end
end)

describe("a program with a server in a thread", function()
  local START = [[
    local keywatch = require "keywatch"
    local server = assert(keywatch.serve { thread = true, listen = "http://127.0.0.1:0" })
    forgotten_by_nobody = server
  ]]

  it("ends, whether it has closed the server or not", function()
    for _, finish in ipairs { "", "server:close()", "os.exit(0)", "os.exit(0, true)", "server:shutdown(0)" } do
      local exit_status, printed = program.run(START .. finish)
      assert.same({ 0, "" }, { exit_status, printed }, finish)
    end
  end)

  it("ends with many of them", function()
    assert.same({ 0, "" }, { program.run([[
      local keywatch = require "keywatch"
      servers = {}
      for i = 1, 20 do servers[i] = assert(keywatch.serve { thread = true, listen = "http://127.0.0.1:0" }) end
    ]]) })
  end)

  it("ends with an error, as without a thread", function()
    local exit_status, printed = program.run(START .. "error('a slip')")
    assert.equal(1, exit_status)
    assert.matches("a slip", printed)
  end)

  it("is ended by a signal, as without a thread", function()
    local exit_status, printed = program.run(START .. [[
      local luv = require "luv"
      luv.kill(luv.os_getpid(), "sigterm")
      luv.sleep(60000)
    ]])
    assert.equal("", (printed:gsub("Terminated\n", "")))
    assert.equal(143, exit_status)
  end)

  it("keeps its signals to itself", function()
    local printed = program.printed_by(START .. [[
      local luv = require "luv"
      local scan = luv.fs_scandir("/proc/self/task")
      for task in function() return (luv.fs_scandir_next(scan)) end do
        local status = io.open("/proc/self/task/" .. task .. "/status"):read("*a")
        local mask = tonumber(status:match("SigBlk:%s*%x*(%x%x%x%x)"), 16)
        local is_main = tonumber(task) == luv.os_getpid()
        local blocks_int, blocks_term = math.floor(mask / 2) % 2 == 1, math.floor(mask / 2 ^ 14) % 2 == 1
        assert(blocks_int == not is_main and blocks_term == not is_main, task)
        print(is_main and "main" or "thread")
      end
    ]])
    assert.matches("^main\nthread\n", printed) -- ThreadSanitizer has a thread, too
  end)

  describe("that fails", function()
    local directory

    --- In the thread, a service is this one.
    local function shadow(text)
      directory = assert(luv.fs_mkdtemp((os.getenv("TMPDIR") or "/tmp") .. "/keywatch-thread-XXXXXX"))
      shell.must(("mkdir -p %s/keywatch/server/services"):format(directory))
      files.write(directory .. "/keywatch/server/services/health.lua", text)
      return ("package.path = '%s/?.lua;' .. package.path\n"):format(directory)
    end

    after_each(function() shell.must("rm -rf " .. directory) end)

    it("gets a line with a traceback, and an error when it closes the server", function()
      local printed = program.printed_by(shadow [[
        require("keywatch.task.driver").get().attach { poll = function() error("a slip") end }
        return {}
      ]] .. START .. [[
        while #server:addresses() > 0 do keywatch.sleep(0.001) end
        print(server:shutdown())
        print(server:close())
        local ok, err = server:close()
        print(ok, err.code, err.grpc_status, #server:addresses())
      ]])
      local line, received = printed:match("^(.-)(nil\tkeywatch: .*)$")
      assert.matches("error a server's thread has failed: .*a slip", line)
      assert.matches("stack traceback:", line)
      local expected = "nil\tkeywatch: the thread has failed: [^\n]*a slip %(thread_failed%)\n"
      assert.matches("^" .. expected .. expected .. "nil\tthread_failed\t13\t0\n$", received)
    end)

    it("gets the failure of a task that was not joined", function()
      local printed = program.printed_by(shadow [[
        require("keywatch.task.driver").get().spawn(error, "a slip", 0)
        return {}
      ]] .. START .. "print(server:close())")
      assert.matches("a task has failed: a slip", printed)
      assert.matches("nil\tkeywatch: the thread has failed: a slip %(thread_failed%)", printed)
    end)

    it("gets the failure of the start", function()
      local printed = program.printed_by(shadow "error('a slip', 0)" .. [[
        print(pcall(require("keywatch").serve, { thread = true, listen = "http://127.0.0.1:0" }))
      ]])
      assert.matches("^false\t[^\n]*serve: a slip\n$", printed)
    end)
  end)

  if jit then -- ThreadSanitizer, under which the other VM runs, knows no fork of a process with threads
    it("abandons the thread when it forks", function()
      local _, printed = program.run_forking(START .. [[
        child(function()
          print(pcall(server.addresses, server))
          print(pcall(server.shutdown, server))
          print(server:close(), server:close())
          server, forgotten_by_nobody = nil, nil
          collectgarbage()
          collectgarbage()
          local other = assert(keywatch.serve { thread = true, listen = "http://127.0.0.1:0" })
          print(#other:addresses(), other:close())
        end)
        print(#server:addresses(), server:close())
      ]])
      local refusal = "false\t[^\n]*the thread belongs to the parent process[^\n]*\n"
      assert.matches("^" .. refusal .. refusal .. "true\ttrue\n1\ttrue\n1\ttrue\n$", printed)
    end)
  end
end)
