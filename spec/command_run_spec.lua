--- The program `keywatch run`: its flags, controller files with each kind of store, its output, its end; and two
-- processes of which the leader is killed.

local keywatch = require "keywatch"

local certificates = require "spec.support.certificates"
local command = require "spec.support.command"
local directory = require "spec.support.directory"
local files = require "spec.support.files"
local luv = require "spec.support.luv"
local processes = require "spec.support.process"
local prometheus = require "spec.support.prometheus"
local run_flags = require "keywatch.command.run_flags"
local servers = require "spec.support.server"
local shell = require "spec.support.shell"

local unpack = rawget(table, "unpack") or rawget(_G, "unpack")

local PATIENCE = 60 -- seconds

-- A controller file: copies each key from /from/ to /to/, with the argument behind it, and says so.
local COPY = [[
local controller = require "keywatch.controller"
return function(manager, suffix)
  local informer = manager:add(manager.store:informer("/from/"))
  manager:add(controller.new { name = "copy", sources = { informer }, reconcile = function(key, context)
    local value = informer:get(key)
    if not value then return end
    local ok, err = context.store:put("/to/" .. key:sub(7), value .. (suffix or ""))
    if not ok then return nil, err end
    io.write("copied ", key, "\n") io.stdout:flush()
  end })
end
]]

-- A controller file without keys: it prints its requests.
local TICKER = [[
local controller = require "keywatch.controller"
return function(manager)
  manager:add(controller.new { name = "ticker", sources = { { every = 0.05, request = "tick" } },
    reconcile = function() io.write("tick\n") io.stdout:flush() end })
end
]]

describe("keywatch run", function()
  local started, clients

  before_each(function() started, clients = {}, {} end)

  after_each(function()
    for _, client in ipairs(clients) do client:close() end
    for _, server in ipairs(started) do server:stop() end
  end)
  command.with_tests()

  local function write(text, name, where)
    return files.write((where or directory.new()) .. "/" .. (name or "file.lua"), text)
  end

  local function start_in(variables, ...) return command.start_in(variables, "run", ...) end
  local function start(...) return start_in({}, ...) end

  local function serve(options)
    local server = servers.start(options)
    table.insert(started, server)
    return server
  end

  local function connect(url, options)
    local client = assert(keywatch.connect(url, options))
    table.insert(clients, client)
    return client
  end

  local stop = command.stop

  local function read(path) return luv.fs_stat(path) and files.read(path) end

  --- Looks again and again, until a function returns something true.
  local function await(fn)
    local deadline = keywatch.now() + PATIENCE
    while not processes.turn_until(fn, 0.02) do assert(keywatch.now() < deadline, "it never happens") end
  end

  --- Waits until a key has a value.
  local function await_value(client, key, value)
    local w = assert(client:watch(key, { initial = true }))
    local deadline = keywatch.now() + PATIENCE
    repeat
      local event = assert(w:next(deadline - keywatch.now()))
    until event.value == value
    w:close()
  end

  -- {====== The command line ======

  local function expect_failure(status, variables, pattern, ...)
    local process = start_in(variables, ...)
    assert.equal(status, process:wait())
    assert.equal("", process:stdout())
    assert.matches(pattern, process:stderr())
    if status == 2 then assert.matches("^keywatch run: [^\n]+\n$", process:stderr()) end
  end

  it("lists its flags, all of them", function()
    for _, flag in ipairs { "--help", "-h" } do
      local process = start(flag)
      assert.equal(0, process:wait())
      for name in pairs(run_flags.FLAGS) do
        if name ~= "h" then assert.matches("%-%-" .. name:gsub("%-", "%%-") .. "[ =]", process:stdout()) end
      end
    end
  end)

  it("refuses a wrong command line in one sentence", function()
    for _, case in ipairs {
      { "the file is missing" },
      { "'b.lua' is not a flag: arguments of the file follow %-%-", "a.lua", "b.lua" },
      { "there is no flag %-%-loglevel", "a.lua", "--loglevel", "info" },
      { "%-%-log%-level must be debug, .* not 'loud'", "a.lua", "--log-level", "loud" },
      { "%-%-endpoints needs a value", "a.lua", "--endpoints" },
      { "%-%-endpoints: 'nonsense' ", "a.lua", "--endpoints", "nonsense" },
      { "%-%-listen%-metrics%-urls: 'a:1' must begin with http://", "a.lua", "--listen-metrics-urls", "a:1" },
      { "%-%-listen%-metrics%-urls: https://a:1 needs %-%-metrics%-cert", "a.lua", "--listen-metrics-urls",
        "https://a:1" },
      { "%-%-metrics%-cert and %-%-metrics%-key are needed", "a.lua", "--metrics-cacert", "x" },
      { "%-%-metrics%-cert needs an https:// or unixs: URL in %-%-listen", "a.lua", "--metrics-cert", "x",
        "--metrics-key", "y", "--listen-metrics-urls", "http://a:1" },
      { "%-%-memory and %-%-data%-dir exclude each other", "a.lua", "--memory", "--data-dir", "d" },
      { "%-%-endpoints and %-%-memory exclude each other", "a.lua", "--memory", "--endpoints", "http://a:1" },
      { "%-%-cacert and %-%-data%-dir exclude each other", "a.lua", "--data-dir", "d", "--cacert", "x" },
      { "%-%-data%-dir must not be empty", "a.lua", "--data-dir", "" },
      { "%-%-cert needs %-%-key", "a.lua", "--cert", "x", "--endpoints", "https://a:1" },
      { "%-%-key needs %-%-cert", "a.lua", "--key", "x", "--endpoints", "https://a:1" },
      { "%-%-user needs a password", "a.lua", "--user", "root" },
      { "%-%-user has no name", "a.lua", "--user", ":x" },
      { "%-%-password needs %-%-user", "a.lua", "--password", "x" },
      { "%-%-user and %-%-password both have a password", "a.lua", "--user", "a:b", "--password", "x" },
      { "%-%-id needs %-%-election", "a.lua", "--id", "x" },
      { "%-%-ttl needs %-%-election", "a.lua", "--ttl", "5s" },
      { "%-%-ttl must be a whole number of seconds", "a.lua", "--election", "e", "--ttl", "1500ms" },
      { "%-%-ttl must be a duration", "a.lua", "--election", "e", "--ttl", "15" },
      { "%-%-stop%-timeout must be a duration", "a.lua", "--stop-timeout", "soon" },
    } do expect_failure(2, {}, case[1], unpack(case, 2)) end
    expect_failure(2, { KEYWATCH_LOG_LEVEL = "loud" }, "KEYWATCH_LOG_LEVEL must be debug", "a.lua")
    expect_failure(2, { KEYWATCH_MEMORY = "maybe" }, "KEYWATCH_MEMORY must be true or false", "a.lua")
  end)

  it("fails with an unusable file, with the reason", function()
    for text, pattern in pairs {
      ["return function("] = "does not load: ",
      ["return 7"] = "must return a function, which is called with the manager, and has returned a number",
      ["error 'no luck'"] = "has failed: .*no luck",
      ["return function() error 'no luck' end"] = "has failed: .*no luck",
      ["return function() end"] = "adds nothing to the manager",
      ["return function(manager) manager:run() end"] =
        "has failed: [^\n]*file.lua:1: run: components that a controller file adds are started when its function has "
        .. "returned",
    } do
      expect_failure(1, {}, "^keywatch run: the controller file '[^\n]*' " .. pattern, "--memory", write(text))
    end
    expect_failure(1, {}, "does not load: cannot open", "--memory", "/no/such/file.lua")
  end)

  it("fails with a component, and reports that", function()
    local process = start("--memory", write [[
      return function(manager)
        manager:add { name = "first", start = function() end, stop = function() print "first has stopped" end }
        manager:add { name = "bad", start = function() return nil, "no luck" end, stop = function() end }
      end]])
    assert.equal(1, process:wait())
    assert.equal("first has stopped\n", process:stdout())
    assert.matches(" error the manager ends: the component 'bad' could not be started: no luck\n", process:stderr())
    assert.matches("\nkeywatch run: [^\n]* has failed: keywatch: the component 'bad' could not be started: no luck\n$",
      process:stderr())
    assert.is_nil(process:stderr():find("is running", 1, true))
  end)

  it("fails if the store cannot be opened, or a TLS file is missing", function()
    local file = write(TICKER)
    expect_failure(1, {}, "^keywatch run: [^\n]+\n$", file, "--data-dir", "/proc/no/such")
    expect_failure(1, {}, "^keywatch run: the file '/no/ca.pem' of the flag %-%-cacert cannot be read", file,
      "--endpoints",
      "https://127.0.0.1:1", "--cacert", "/no/ca.pem")
  end)

  -- }======

  -- {====== Running ======

  it("runs with a store in memory, reports when it is ready, and ends in order", function()
    local file = write((TICKER:gsub("return function%(manager%)", [[%0
      require("keywatch").on_exit(function()
        io.write(tostring(manager.store:put("/last", "word") ~= nil), " ", manager:status().state, "\n")
      end)]])))
    for _, signal in ipairs { "sigterm", "sigint" } do
      local process = start(file, "--memory")
      process:expect_error(" info [^\n]*file%.lua is running\n")
      process:expect("tick\n")
      process:signal(signal)
      assert.equal(0, process:wait())
      local text = ": stopping; components that have not stopped after 30 s are cut short\n"
      assert.matches(" info SIG" .. signal:sub(4):upper() .. text, process:stderr())
      assert.matches(" info [^\n]*file%.lua has ended\n$", process:stderr())
      assert.matches("tick\ntrue stopped\n$", process:stdout())
    end
  end)

  it("drains: running and queued requests are finished first", function()
    local process = start("--memory", write [[
      local controller, keywatch = require "keywatch.controller", require "keywatch"
      return function(manager)
        local jobs = keywatch.channel(10)
        for i = 1, 3 do jobs:send(i) end
        manager:add(controller.new { name = "jobs", sources = { jobs }, reconcile = function(i)
          io.write("begin ", i, "\n") io.stdout:flush()
          keywatch.sleep(0.2)
          io.write("end ", i, "\n") io.stdout:flush()
        end })
      end]])
    process:expect("begin 1\n")
    stop(process)
    assert.equal("begin 1\nend 1\nbegin 2\nend 2\nbegin 3\nend 3\n", process:stdout())
  end)

  it("drains for a limited time, and ends at once with a second signal", function()
    local file = write [[
      local controller, keywatch = require "keywatch.controller", require "keywatch"
      return function(manager)
        manager:add(controller.new { name = "slow", sources = { { every = 1, request = "x" } },
          reconcile = function()
            io.write("begin\n") io.stdout:flush()
            keywatch.sleep(1000)
          end })
      end]]
    local process = start("--memory", "--stop-timeout", "100ms", file)
    process:expect("begin\n")
    assert.matches(" warn the controller 'slow' has not stopped properly: the controller 'slow' has not stopped within",
      stop(process))
    process = start("--memory", file)
    process:expect("begin\n")
    process:signal("sigterm")
    process:expect_error("SIGTERM: stopping; components that have not stopped after 30 s are cut short\n")
    process:signal("sigterm")
    assert.equal(0, process:wait())
    assert.matches(" warn SIGTERM: stopping at once\n", process:stderr())
  end)

  it("ends in order while the function of the file waits", function()
    local file = write [[
      local keywatch = require "keywatch"
      return function(manager)
        manager:add(manager.store:informer("/a/"))
        manager:add { start = function() print "started" end, stop = function() print "stopped" end }
        io.write("waits\n") io.stdout:flush()
        local ok, err = pcall(keywatch.sleep, 1000)
        print(ok, err.code)
        error(err, 0)
      end]]
    for _, signal in ipairs { "sigterm", "sigint" } do
      local process = start("--memory", file)
      process:expect("waits\n")
      process:signal(signal)
      assert.equal(0, process:wait())
      assert.equal("waits\nfalse\tcancelled\n", process:stdout())
      assert.matches("^[^\n]* info SIG" .. signal:sub(4):upper()
        .. ": stopping; components that have not stopped after 30 s are cut short\n"
        .. "[^\n]* info [^\n]*file%.lua has ended\n$", process:stderr())
    end
  end)

  it("ends though the function of the file continues: after its time, or with a second signal", function()
    local file = write [[
      local keywatch = require "keywatch"
      return function()
        io.write("waits\n") io.stdout:flush()
        keywatch.shield(1000, keywatch.sleep, 1000)
      end]]
    local process = start("--memory", "--stop-timeout", "100ms", file)
    process:expect("waits\n")
    assert.matches(" warn the function of [^\n]*file%.lua ignores its cancellation, and is abandoned\n", stop(process))
    process = start("--memory", file)
    process:expect("waits\n")
    process:signal("sigterm")
    process:expect_error("SIGTERM: stopping; components that have not stopped after 30 s are cut short\n")
    process:signal("sigint")
    assert.equal(0, process:wait())
    assert.matches(" warn SIGINT: stopping at once\n", process:stderr())
  end)

  it("ends while it starts, without a server", function()
    local path = directory.new() .. "/m.prom"
    local process = start("--endpoints", "http://127.0.0.1:1", "--metrics-file", path, write(COPY))
    await(function() return read(path) end)
    assert.is_nil(stop(process):find("is running", 1, true))
  end)

  it("keeps a store on disk", function()
    local file, path = write [[
      return function(manager)
        manager:add { start = function(_, store)
          local kv = store:get("runs")
          local runs = (kv and tonumber(kv.value) or 0) + 1
          assert(store:put("runs", tostring(runs)))
          io.write("run ", runs, "\n") io.stdout:flush()
        end, stop = function() end }
      end]], directory.new() .. "/data"
    for i = 1, 2 do
      local process = start("--data-dir", path, file)
      process:expect(("run %d\n"):format(i))
      process:expect_error("is running\n")
      stop(process)
    end
  end)

  it("finds modules beside the file, wherever it is started", function()
    local where = directory.new()
    luv.fs_mkdir(where .. "/package", 493)
    write("return { text = 'beside' }", "beside.lua", where)
    write("return { text = 'package' }", "init.lua", where .. "/package")
    write([[
      print(require("beside").text, require("package").path ~= nil, require("package").text)
      return function(manager, ...)
        print(select("#", ...), ...)
        io.stdout:flush()
        manager:add { start = function() end, stop = function() end }
      end]], "file.lua", where)
    local process = start("--memory", where .. "/file.lua", "--", "a b", "--memory", "--")
    process:expect("beside\ttrue\tnil\n3\ta b\t%-%-memory\t%-%-\n")
    process:expect_error("is running\n")
    stop(process)
    process = processes.start({ require("spec.support.vm").interpreter, luv.cwd() .. "/bin/keywatch", "run", "file.lua",
      "--memory" }, { env = require("spec.support.vm").environment(), cwd = where })
    process:expect("beside\t")
    process:expect_error(" info file%.lua is running\n")
    stop(process)
  end)

  it("reports at once that its server cannot be reached, and why", function()
    local bound = luv.new_tcp() -- and does not listen
    assert(bound:bind("127.0.0.1", 0))
    local url = "http://127.0.0.1:" .. bound:getsockname().port
    local process = start(write(COPY), "--endpoints", url)
    local line = (" warn [^\n]*file%%.lua waits for a server %%(%s%%): [^\n]*connection refused\n"):format(
      url:gsub("%p", "%%%0"), nil)
    process:expect_error(line)
    local _, times = stop(process):gsub(line, "")
    assert.equal(1, times)
    bound:close()
  end)

  it("logs from the given level on, and reports at any level when it is ready", function()
    local process = start("--memory", "--log-level=error", write(TICKER))
    process:expect_error("is running\n")
    assert.matches("^[^\n]* is running\n$", stop(process))
  end)

  it("takes its flags from the environment", function()
    local process = start_in({ KEYWATCH_MEMORY = "true", KEYWATCH_ELECTION = "/e", KEYWATCH_ID = "me",
      KEYWATCH_LOG_LEVEL = "debug", KEYWATCH_NO_SUCH = "x" }, write(TICKER), "--log-level", "info")
    process:expect_error("is running, and takes part in the election '/e' as 'me'\n")
    process:expect("tick\n")
    local text = stop(process)
    assert.matches(" warn unknown environment variables: KEYWATCH_NO_SUCH\n", text)
    assert.matches(" warn without effect: KEYWATCH_LOG_LEVEL %(overridden by %-%-log%-level%)\n", text)
  end)

  it("writes its metrics to a file, by a rename", function()
    local where = directory.new()
    local path = where .. "/keywatch.prom"
    local process = start("--memory", "--metrics-file", path, "--election", "/e", write(TICKER))
    process:expect_error("is running")
    process:expect("tick\ntick\n")
    await(function() return read(path) end)
    prometheus.parse(read(path))
    stop(process)
    local families = prometheus.parse(read(path))
    assert.is_true(prometheus.value(families, "keywatch_controller_reconciles_total", { outcome = "done" }) >= 2)
    assert.equal(1, prometheus.value(families, "keywatch_elector_terms_total", { election = "/e" }))
    assert.equal(1, prometheus.value(families, "keywatch_manager_state", { state = "stopped" }))
    assert.same({ "keywatch.prom" }, directory.list(where))
  end)

  it("serves metrics and health, with TLS or without", function()
    local cert, key = certificates.paths("server")
    local process = start("--memory", "--listen-metrics-urls", "http://127.0.0.1:0,https://127.0.0.1:0",
      "--metrics-cert", cert, "--metrics-key", key, write(TICKER))
    process:expect_error("is running")
    local plain, secure = process:stderr():match("metrics and health are on (http://[%d.:]+), (https://[%d.:]+)\n")
    for url, option in pairs { [plain] = "-s", [secure] = "-sk" } do
      assert.equal("ok", shell.must(("curl --http1.1 %s %s/readyz"):format(option, url)))
      prometheus.parse(shell.must(("curl --http1.1 %s %s/metrics"):format(option, url)) .. "\n")
    end
    stop(process)
  end)

  it("reports once that its metrics cannot be written, and continues", function()
    local process = start("--memory", "--metrics-file", "/no/such/file.prom", write(TICKER))
    process:expect("tick\ntick\n")
    local text = stop(process)
    local _, n = text:gsub(" warn the metrics cannot be written to /no/such/file%.prom: ", "")
    assert.equal(1, n)
  end)

  -- }======

  -- {====== Servers ======

  for _, kind in ipairs { "keywatch", "etcd" } do
    local tag = kind == "etcd" and " #once" or ""

    it("runs a file against a server: " .. kind .. tag, function()
      local server = serve { kind = kind, is_in_memory = true }
      local client = connect(server.url)
      client:put("/from/a", "1")
      local process = start("--endpoints", server.url, write(COPY), "--", "!")
      process:expect_error("is running\n")
      await_value(client, "/to/a", "1!")
      client:put("/from/b", "2")
      await_value(client, "/to/b", "2!")
      process:expect("copied /from/b\n")
      stop(process)
    end)

    it("runs a file against a server with TLS: " .. kind .. tag, function()
      local ca, cert, key = certificates.paths("ca"), certificates.paths("server")
      local server = serve { kind = kind, is_in_memory = true, is_tls = true, "--client-cert-auth",
        "--trusted-ca-file", ca }
      local client = connect(server.url, { tls = { ca = ca, cert = cert, key = key } })
      client:put("/from/a", "1")
      local process = start("--endpoints", server.url, "--cacert", ca, "--cert", cert, "--key", key, write(COPY))
      process:expect_error("is running\n")
      await_value(client, "/to/a", "1")
      stop(process)
      process = start("--endpoints", server.address, "--cacert", ca, "--cert", cert, "--key", key, write(COPY))
      process:expect("copied /from/a\n")
      stop(process)
    end)

    it("is taken over by another process when the leader is killed: " .. kind .. tag, function()
      local server = serve { kind = kind, is_in_memory = true }
      local client = connect(server.url)
      local file, list = write(COPY), {}
      for i = 1, 2 do
        list[i] = start("--endpoints", server.url, "--election", "/copy", "--id", "id" .. i, "--ttl", "2s", file,
          "--", i)
        list[i]:expect_error("is running, and takes part in the election '/copy' as 'id" .. i .. "'\n")
        if i == 1 then list[1]:expect_error("'id1' leads '/copy'") end
      end
      client:put("/from/a", "x")
      await_value(client, "/to/a", "x1")
      list[1]:signal("sigkill")
      list[1]:wait()
      client:put("/from/a", "y")
      await_value(client, "/to/a", "y2")
      assert.equal("", list[2]:stdout():gsub("copied /from/a\n", ""))
      -- One that ends in order hands over at once, and one that comes back waits.
      list[3] = start("--endpoints", server.url, "--election", "/copy", "--id", "id3", "--ttl", "60s", file, "--", 3)
      list[3]:expect_error("is running")
      stop(list[2])
      client:put("/from/a", "z")
      await_value(client, "/to/a", "z3")
      stop(list[3])
    end)
  end

  it("runs as a user #once", function()
    local server = serve { kind = "etcd" }
    local client = connect(server.url)
    for _, call in ipairs {
      { "UserAdd", { name = "root", password = "x:y" } }, { "UserGrantRole", { user = "root", role = "root" } },
      { "AuthEnable", {} },
    } do assert(client:call("/etcdserverpb.Auth/" .. call[1], call[2])) end
    local root = connect(server.url, { user = "root", password = "x:y" })
    assert(root:put("/from/a", "1"))
    for _, given in ipairs {
      { {}, "--user", "root:x:y" },
      { {}, "--user", "root", "--password", "x:y" },
      { { KEYWATCH_USER = "root", KEYWATCH_PASSWORD = "x:y" } },
    } do
      local process = start_in(given[1], "--endpoints", server.url, write(COPY), unpack(given, 2))
      process:expect("copied /from/a\n")
      stop(process)
    end
  end)

  it("reports that flags about TLS have no effect without TLS", function()
    local server = serve { kind = "keywatch", is_in_memory = true }
    local process = start("--endpoints", "http://" .. server.address, "--cacert", certificates.paths("ca"), write(COPY))
    process:expect_error(" warn http://[%d.:]+ is without TLS; without effect there: %-%-cacert\n")
    process:expect_error("is running\n")
    stop(process)
  end)

  -- }======
end)
