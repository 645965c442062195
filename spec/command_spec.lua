--- The program keywatch: its flags, its output, and its end.

local keywatch = require "keywatch"

local command = require "spec.support.command"
local directory = require "spec.support.directory"
local files = require "spec.support.files"
local luv = require "spec.support.luv"
local turning = require "spec.support.process"
local rpc = require "spec.support.rpc"
local server_process = require "spec.support.server"
local shell = require "spec.support.shell"
local socket = require "spec.support.socket"
local urls_of = require "keywatch.support.url"

local HTTP = "http://127.0.0.1:0"

-- Makes a program print the settings of its garbage collector.
local TELL_COLLECTOR = [[
local plain = collectgarbage
function collectgarbage(mode, ...)
  if mode == "incremental" or mode == "generational" then io.stderr:write("collector: ", mode, "\n") end
  return plain(mode, ...)
end
]]

local function run_in(variables, ...)
  local process = command.start_in(variables, ...)
  return process:wait(), process:stdout(), process:stderr()
end

local function run(...) return run_in({}, ...) end

local function expect_misuse_in(...) command.expect_failure(2, ...) end

local function expect_misuse(pattern, ...) expect_misuse_in({}, pattern, ...) end

command.with_tests()

describe("keywatch", function()
  it("prints its version and its features", function()
    local status, out = run("--version")
    assert.equal(0, status)
    assert.equal(require("keywatch")._VERSION .. "\n", out)
    for _, flag in ipairs { "--help", "-h", "help" } do
      status, out = run(flag)
      assert.equal(0, status)
      assert.matches("keywatch serve", out)
    end
  end)

  it("requires a command that exists", function()
    local status, out, err = run()
    assert.same({ 2, "" }, { status, out })
    assert.matches("keywatch serve", err)
    expect_misuse("there is no command 'sevre'", "sevre")
  end)
end)

describe("keywatch restore", function()
  local scratch

  before_each(function() scratch = directory.new() end)

  it("lists its flags", function()
    for _, flag in ipairs { "--help", "-h" } do
      local status, out = run("restore", flag)
      assert.equal(0, status)
      assert.matches("%-%-skip%-hash%-check", out)
    end
  end)

  it("requires an image and a directory", function()
    expect_misuse("the snapshot is missing", "restore", "--data-dir", scratch)
    expect_misuse("%-%-data%-dir is missing", "restore", "image")
    expect_misuse("'another' is not a flag", "restore", "image", "another", "--data-dir", scratch)
    expect_misuse("there is no flag %-%-name", "restore", "image", "--name=x")
  end)

  it("fails, and leaves nothing behind", function()
    local status, out, err = run("restore", scratch .. "/absent", "--data-dir", scratch .. "/data")
    assert.same({ 1, "" }, { status, out })
    assert.matches("absent: No such file or directory\n$", err)
    assert.equal("", shell.must("ls -A " .. scratch))
  end)
end)

describe("keywatch serve", function()
  local scratch

  before_each(function() scratch = directory.new() end)

  local function start_in(variables, ...) return command.start_in(variables, "serve", ...) end
  local function start(...) return start_in({}, ...) end

  local function write(name, text) return files.write(scratch .. "/" .. name, text) end

  --- True if a server accepts connections there.
  local function is_open(address)
    local handle, result
    local function on_connect(err) result = err or "open" end
    local path, port = address:match("^unix://(.*)$"), address:match(":(%d+)$")
    if path then
      handle = luv.new_pipe(false)
      handle:connect(path, on_connect)
    else
      handle = luv.new_tcp()
      handle:connect("127.0.0.1", tonumber(port), on_connect)
    end
    while not result do luv.run("once") end
    handle:close()
    luv.run("nowait")
    return result == "open"
  end

  it("lists its flags", function()
    local status, out = run("serve", "--help")
    assert.equal(0, status)
    for _, flag in ipairs { "listen%-client%-urls", "data%-dir", "quota%-backend%-bytes", "log%-level" } do
      assert.matches("%-%-" .. flag, out)
    end
  end)

  it("reports in one line that it is ready, with the port that the kernel chose", function()
    local process = start("--listen-client-urls", HTTP)
    local urls = command.wait_until_ready(process)
    assert.equal(1, #urls)
    assert.matches("^http://127%.0%.0%.1:%d+$", urls[1])
    assert.matches("^%d%d%d%d%-%d%d%-%d%dT%d%d:%d%d:%d%d%.%d%d%dZ info ready to serve client requests on [^\n]+\n$",
      process:stderr())
    assert.is_true(is_open(urls[1]))
  end)

  it("reports that at any log level", function()
    local process = start("--listen-client-urls", HTTP, "--log-level", "fatal")
    command.wait_until_ready(process)
    command.stop(process)
    assert.matches("^[^\n]+\n$", process:stderr())
  end)

  it("lets the garbage collector of Lua 5.4 work in steps", function()
    if rawget(_G, "jit") or server_process.is_etcd then return end
    local peer = server_process.start { is_in_memory = true, before = TELL_COLLECTOR }
    local said = peer.process:stderr()
    peer:stop()
    assert.matches("^collector: incremental\n[^\n]+ready", said)
  end)

  it("listens on all addresses of a name, with one port", function()
    local urls = command.wait_until_ready(start("--listen-client-urls=http://localhost:0"))
    local port = urls[1]:match("%d+$")
    for _, url in ipairs(urls) do assert.equal(port, url:match("%d+$")) end
  end)

  it("listens on any number of URLs, also of paths", function()
    local absolute, relative = scratch .. "/absolute", scratch:gsub("^/", "../../../../../../") .. "/relative"
    local process = start("-listen-client-urls", ("%s,%s,unix://%s,unix:%s"):format(HTTP, HTTP, absolute, relative))
    local urls = command.wait_until_ready(process)
    assert.equal(4, #urls)
    assert.equal("unix://" .. absolute, urls[3])
    for _, url in ipairs(urls) do assert.is_true(is_open(url)) end
    process:signal("sigint")
    assert.equal(0, process:wait())
    assert.equal("", shell.must("ls " .. scratch))
  end)

  it("serves metrics and health on further URLs", function()
    local process = start("--listen-client-urls", HTTP, "--listen-metrics-urls", HTTP)
    command.wait_until_ready(process)
    local url = process:stderr():match("metrics and health are on (http://127%.0%.0%.1:%d+)\n")
    assert.matches("\netcd_server_has_leader 1\n", shell.must("curl -s " .. url .. "/metrics"))
  end)

  it("takes over the path of a dead server, and not of a live one", function()
    local path = "unix://" .. scratch .. "/socket"
    local first = start("--listen-client-urls", path)
    command.wait_until_ready(first)
    local status, _, err = run("serve", "--listen-client-urls", path)
    assert.equal(1, status)
    assert.matches("^keywatch: cannot listen on " .. path:gsub("%p", "%%%0") .. ": address already in use\n$", err)
    first:signal("sigkill")
    first:wait()
    command.wait_until_ready(start("--listen-client-urls", path))
    assert.is_true(is_open(path))
  end)

  it("reports why it cannot listen, and where", function()
    local taken = command.wait_until_ready(start("--listen-client-urls", HTTP))[1]
    for address, why in pairs {
      [taken] = "address already in use",
      ["http://192.0.2.1:0"] = "address not available", -- TEST-NET-1
      ["http://no.such.host.invalid:0"] = "%l+",
      ["unix://" .. scratch .. "/no/such/folder"] = "no such file or directory",
    } do
      local status, out, err = run("serve", "--listen-client-urls", address)
      assert.equal(1, status)
      assert.equal("", out)
      assert.matches("^keywatch: cannot listen on " .. address:gsub("%p", "%%%0") .. ": " .. why .. "[^\n]*\n$", err)
    end
  end)

  for _, name in ipairs { "sigterm", "sigint" } do
    it("ends in order upon " .. name, function()
      local process = start("--listen-client-urls", HTTP)
      local urls = command.wait_until_ready(process)
      process:signal(name)
      assert.equal(0, process:wait())
      assert.matches(name:upper() .. ":[^\n]*\n[^\n]* info ended at revision 1[^\n]*\n$", process:stderr())
      assert.is_false(is_open(urls[1]))
    end)
  end

  for name, number in pairs { sigterm = 15, sigint = 2 } do
    it(("ends at once upon a second %s, though a client stays"):format(name), function()
      local process = start("--listen-client-urls", HTTP)
      local client = keywatch.connect(command.wait_until_ready(process)[1])
      assert(client:put("a", "1")) -- and does not notice that the server ends, since its loop does not turn
      process:signal(name)
      process:expect_error("shutting down")
      process:signal(name)
      assert.equal(128 + number, process:wait())
      client:close()
    end)
  end

  it("takes etcd's flags, with one dash or two, with = or without", function()
    local process = start("--name", "n1", "-listen-client-urls=" .. HTTP, "--advertise-client-urls", "http://h:1",
      "--memory", "--max-request-bytes=1000000", "-max-txn-ops", "10", "--quota-backend-bytes", "-1",
      "--max-concurrent-streams", "4294967295", "--grpc-keepalive-min-time", "5s", "--grpc-keepalive-interval=1h30m",
      "--grpc-keepalive-timeout", "500ms", "--watch-progress-notify-interval", "1m",
      "--experimental-watch-progress-notify-interval=2m", "--initial-cluster-token", "t",
      "--initial-advertise-peer-urls", "http://h:2,http://h:3", "--log-level", "debug",
      "--auto-compaction-mode=periodic", "--auto-compaction-retention=12")
    command.wait_until_ready(process)
    command.stop(process)
  end)

  it("keeps its data in the given directory, or in the current one", function()
    local file = write("data.yml", ("listen-client-urls: %s\ndata-dir: there"):format(HTTP))
    for _, case in ipairs {
      { { "keywatch.data" } },
      { { "keywatch.data" }, "--memory=false" },
      { {}, "--memory" },
      { { "there" }, "--data-dir=there" },
      { { "there" }, "--config-file=" .. file },
      { { "there" }, variables = { ETCD_DATA_DIR = "there" } },
    } do
      local process, cwd = start_in(case.variables or {}, case[2] or "--pre-vote", "--listen-client-urls", HTTP)
      command.wait_until_ready(process)
      command.stop(process)
      assert.same(case[1], directory.list(cwd))
    end
  end)

  it("has a journal with files of the given size", function()
    local process, cwd = start_in({}, "--listen-client-urls", HTTP, "--journal-segment-bytes=65536")
    local client = keywatch.connect(command.wait_until_ready(process)[1])
    assert(client:put("a", "1"))
    client:close()
    command.stop(process)
    assert.equal(65536, directory.size(cwd .. "/keywatch.data/journal-0"))
  end)

  it("reports why it cannot open its data", function()
    local path = scratch .. "/data"
    command.wait_until_ready(start("--listen-client-urls", HTTP, "--data-dir", path))
    write("plain", "")
    for where, why in pairs {
      [path] = "process %d+ has it open",
      [scratch .. "/plain/data"] = "Not a directory",
      [scratch .. "/plain"] = "it is not a directory",
    } do
      local status, out, err = run("serve", "--listen-client-urls", HTTP, "--data-dir", where)
      assert.same({ 1, "" }, { status, out })
      assert.matches("^keywatch: cannot open " .. where:gsub("%p", "%%%0") .. ": " .. why .. "\n$", err)
    end
  end)

  it("accepts etcd's flags for missing features, and reports in one line that they have no effect", function()
    local process = start("--listen-client-urls", HTTP, "--listen-peer-urls", "http://localhost:2380",
      "--initial-cluster=default=http://localhost:2380", "--initial-cluster-state", "new",
      "--heartbeat-interval", "100", "--election-timeout=1000", "--snapshot-count", "1", "--max-wals", "5",
      "--max-snapshots", "5", "--logger", "zap",
      "--log-outputs", "stderr", "--pre-vote")
    command.wait_until_ready(process)
    local lines = 0
    for line in process:stderr():gmatch("[^\n]+") do
      if line:find(" warn without effect: ", 1, true) then lines = lines + 1 end
    end
    assert.equal(1, lines)
    assert.matches("%-%-election%-timeout, [^\n]*%-%-snapshot%-count", process:stderr())
  end)

  it("refuses unknown and malformed flags", function()
    expect_misuse("there is no flag %-%-lisen%-client%-urls", "serve", "--lisen-client-urls", HTTP)
    expect_misuse("'extra' is not a flag", "serve", "extra")
    expect_misuse("%-%-name needs a value", "serve", "--name")
    expect_misuse("%-%-max%-txn%-ops must be a whole number", "serve", "--max-txn-ops", "many")
    expect_misuse("%-%-max%-request%-bytes must be a whole number", "serve", "--max-request-bytes=-1")
    expect_misuse("%-%-quota%-backend%-bytes must be a whole number", "serve", "--quota-backend-bytes", "2G")
    expect_misuse("%-%-journal%-segment%-bytes must be a whole number", "serve", "--journal-segment-bytes=-1")
    for _, bytes in ipairs { 0, 65535, 1073741825 } do
      expect_misuse("%-%-journal%-segment%-bytes must be from 65536 to 1073741824\n", "serve",
        "--journal-segment-bytes=" .. bytes)
    end
    for _, text in ipairs { "5", "s", "5x", "", "-5s", "1m30" } do
      expect_misuse("must be a duration", "serve", "--grpc-keepalive-min-time=" .. text)
    end
    expect_misuse("%-%-memory must be true or false", "serve", "--memory=perhaps")
    expect_misuse("%-%-log%-level must be debug", "serve", "--log-level", "loud")
    expect_misuse("%-%-auto%-compaction%-mode must be periodic or revision, not 'x'", "serve",
      "--auto-compaction-mode=x")
    for _, text in ipairs { "", "-1", "1.5", "1d", "many" } do
      expect_misuse("must be a number of hours, or a duration", "serve", "--auto-compaction-retention=" .. text)
    end
    expect_misuse("must be a whole number", "serve", "--auto-compaction-mode=revision",
      "--auto-compaction-retention=5m")
  end)

  it("keeps data in at most one place", function()
    expect_misuse("%-%-memory and %-%-data%-dir exclude each other", "serve", "--memory", "--data-dir", "there")
  end)

  it("refuses malformed URLs", function()
    for text, why in pairs {
      ["localhost:2379"] = "must begin with",
      ["ftp://localhost:1"] = "must begin with",
      ["http://localhost"] = "must have the form",
      ["http://:1"] = "must have the form",
      ["http://::1:1"] = "must have the form",
      ["http://localhost:70000"] = "port",
      ["http://localhost:1/v3"] = "path",
      ["unix://"] = "no path",
    } do
      expect_misuse(why, "serve", "--listen-client-urls", text)
    end
    expect_misuse("must be a list of one or more", "serve", "--listen-client-urls=")
  end)

  it("logs nothing below the given level", function()
    local process = start("--listen-client-urls", HTTP, "--log-level", "warn", "--pre-vote")
    command.wait_until_ready(process)
    command.stop(process)
    assert.matches("^[^\n]* warn [^\n]*\n[^\n]* info ready [^\n]*\n$", process:stderr())
  end)

  describe("with clients that connect, are refused, wait, and use TLS", function()
    local LOCK, LEASE = "/v3lockpb.Lock/Lock", "/etcdserverpb.Lease/LeaseGrant"
    local HELLO = "\22\3\1\2\0\1\0\1\252\3\3" .. ("x"):rep(500) -- the beginning of a ClientHello

    --- The second lock waits until the lease of the first one has expired, by the server's clock: a second at least.
    local function wait_for_lock(client)
      for _, seconds in ipairs { 1, 60 } do
        local lease = assert(client:ask(LEASE, { TTL = seconds })).ID
        assert(client:ask(LOCK, { name = "a", lease = lease }))
      end
    end

    local function say_hello(address)
      local client = socket.connect(address)
      turning.turn_until(function() return client.is_connected end)
      client:write(HELLO)
      turning.turn_until(function() return client.has_ended or client.failure end)
      client:close()
    end

    --- Lets a server at a level have all of it, and ends the server; returns what it has logged.
    local function logged(level)
      local server = start("--listen-client-urls", HTTP, "--memory", "--log-level", level)
      local address = command.wait_until_ready(server)[1]
      local client = rpc.connect(address)
      assert.is_nil((client:ask("/etcdserverpb.KV/Put", { key = "" })))
      assert.is_nil((client:unary('/no/"Such"\128\155Method', "")))
      wait_for_lock(client)
      client:close()
      say_hello(urls_of.parse(address))
      command.stop(server)
      return server:stderr()
    end

    it("logs all of that at the level debug", function()
      local text = logged("debug")
      local peer = assert(text:match(" debug connection from (127%.0%.0%.1:%d+) accepted\n"), text):gsub("%p", "%%%0")
      for _, pattern in ipairs {
        'request "/etcdserverpb.KV/Put" from PEER refused: INVALID_ARGUMENT %(3%) "etcdserver: key is not provided"',
        [[request "/no/\"Such\"\x80\x9bMethod" from PEER refused: UNIMPLEMENTED %(12%) "unknown service no"]],
        'request "/v3lockpb.Lock/Lock" from PEER took %d%d%d%d ms',
        "connection from PEER ended: [%a ]+",
      } do assert.matches(" debug " .. pattern:gsub("PEER", (peer:gsub("%%", "%%%%"))) .. "\n", text) end
      assert.matches(" warn connection from 127%.0%.0%.1:%d+ rejected: the client speaks TLS, but this port is plain\n",
        text)
    end)

    it("logs only the rejected connection at the level info", function()
      local text = logged("info")
      assert.matches("^[^\n]* info ready [^\n]*\n[^\n]* warn connection from [^\n]*\n[^\n]* info SIGTERM: [^\n]*\n"
        .. "[^\n]* info ended [^\n]*\n$", text)
    end)
  end)

  it("takes flags from the environment, and warns of unknown variables", function()
    local process = start_in({
      ETCD_LISTEN_CLIENT_URLS = HTTP, ETCD_MAX_TXN_OPS = "10", ETCD_PRE_VOTE = "true", ETCD_DATA_DIR = "",
      ETCD_NONSENSE = "1", ETCD_ABSURD = "", ETCDCTL_API = "3",
    })
    assert.equal(1, #command.wait_until_ready(process))
    assert.matches(" warn without effect: ETCD_PRE_VOTE\n", process:stderr())
    assert.matches(" warn unknown environment variables: ETCD_ABSURD, ETCD_NONSENSE\n", process:stderr())
  end)

  it("prefers a flag to its variable, and reports that", function()
    local path = "unix://" .. scratch .. "/socket"
    local process = start_in({ ETCD_LISTEN_CLIENT_URLS = HTTP }, "--listen-client-urls", path)
    assert.same({ path }, command.wait_until_ready(process))
    assert.matches(" warn without effect: ETCD_LISTEN_CLIENT_URLS %(overridden by %-%-listen%-client%-urls%)\n",
      process:stderr())
  end)

  it("refuses variables as it refuses flags", function()
    expect_misuse_in({ ETCD_MAX_TXN_OPS = "many" }, "ETCD_MAX_TXN_OPS must be a whole number", "serve")
    expect_misuse_in({ ETCD_LOG_LEVEL = "loud" }, "ETCD_LOG_LEVEL must be debug", "serve")
    expect_misuse_in({ ETCD_LISTEN_CLIENT_URLS = "x" }, "ETCD_LISTEN_CLIENT_URLS: x must begin", "serve")
    assert.equal(0, (run_in({ ETCD_MAX_TXN_OPS = "many" }, "serve", "--help")))
  end)

  it("takes flags from a file, and then only from the file", function()
    local path = write("etcd.yml", ([[
# as etcd has it
name: 'default'
data-dir:
listen-client-urls: unix://%s/a,unix://%s/b
advertise-client-urls: [http://h:1, http://h:2]
quota-backend-bytes: 2147483648
max-txn-ops: "10"
auto-compaction-mode: revision
auto-compaction-retention: 1000
grpc-keepalive-min-time: 100000000000000
grpc-keepalive-timeout: 20s
strict-reconfig-check: false
client-transport-security:
  cert-file:
  client-cert-auth: false
peer-transport-security:
  auto-tls: yes
log-outputs: [stderr]
cors:
]]):format(scratch, scratch))
    for _, given in ipairs {
      { { ETCD_NAME = "n" }, { "--config-file", path, "--listen-client-urls", HTTP }, "%-%-listen%-client%-urls" },
      { { ETCD_CONFIG_FILE = path, ETCD_LISTEN_CLIENT_URLS = HTTP, ETCD_NAME = "n" }, {}, "ETCD_LISTEN_CLIENT_URLS" },
    } do
      local process = start_in(given[1], table.unpack(given[2]))
      assert.equal(2, #command.wait_until_ready(process))
      local line = process:stderr():match(" warn without effect: ([^\n]*)\n")
      for _, name in ipairs { "'log%-outputs' in [^ ]+%.yml", "'peer%-auto%-tls' in ", "'strict%-reconfig%-check' in ",
        "ETCD_NAME %(overridden by [^ ]+%.yml%)", given[3] .. " %(overridden by " } do
        assert.matches(name, line)
      end
      command.stop(process)
    end
    command.wait_until_ready(start_in({ ETCD_CONFIG_FILE = "" }, "--listen-client-urls", HTTP))
  end)

  it("refuses a file that is missing, or has contradictory flags", function()
    local function expect(pattern, text)
      expect_misuse("%-%-config%-file [^ ]+: " .. pattern, "serve", "--config-file", write("wrong.yml", text))
    end
    expect_misuse("/no/such/file: no such file or directory", "serve", "--config-file", "/no/such/file")
    expect_misuse(": it cannot be read", "serve", "--config-file", scratch)
    expect("it is not YAML: %d", "a: [")
    expect("it must be a map", "- a")
    expect("it must be a map", "a")
    expect("there is no 'nonsense'", "nonsense: 1")
    expect("there is no 'config%-file'", "config-file: x")
    expect("'name' must be a value or a list of values, not a map", "name: { a: b }")
    expect("'max%-txn%-ops' must be a whole number", "max-txn-ops: many")
    expect("'memory' must be true or false", "memory: 2")
    expect_misuse("'cert%-file' in [^ ]+ needs %-%-key%-file", "serve", "--config-file",
      write("wrong.yml", "client-transport-security: { cert-file: c }"))
    expect("there is no 'allowed%-cn'", "client-transport-security: { allowed-cn: c }")
  end)

  it("names what it needs to read a file, if that is missing", function()
    for text, words in pairs {
      ["module 'lyaml' not found"] = "reading it needs the library lyaml",
      ["not this time"] = "the library lyaml cannot be loaded: [^\n]*not this time",
    } do
      local path = write("lyaml.lua", ("error(%q)"):format(text))
      expect_misuse_in({ LUA_PATH = scratch .. "/?.lua;" .. package.path },
        "%-%-config%-file [^ ]+: " .. words, "serve", "--config-file", path)
    end
  end)
end)
