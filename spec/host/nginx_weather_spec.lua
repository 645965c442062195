--- Two nginx workers that follow a server through a proxy, under load, while at random nginx is reloaded, workers
-- and the server are killed, history is compacted, the network fails, and the server is restored to an older state.
-- After each of these the workers have the right data, and the watch of each has delivered every event once.

local keywatch = require "keywatch"

local certificates = require "spec.support.certificates"
local directory = require "spec.support.directory"
local network = require "spec.support.network"
local nginx_stage = require "spec.support.nginx_stage"
local proc = require "spec.support.proc"
local proxies = require "spec.support.proxy"
local randoms = require "spec.support.random"
local servers = require "spec.support.server"
local shell = require "spec.support.shell"
local uv = require "spec.support.luv"
local writers = require "spec.support.writer"

-- What nginx itself says of a connection that the other side has reset: no directive keeps it from that.
local RESET = "%l+%(%) failed %(104: Connection reset by peer%)"
local BROKEN = "send%(%) failed %(32: Broken pipe%)"

local MOST_MIB = 6 -- by which a worker may grow: the heaps of Lua and C breathe
local PREFIX = "/weather/"
local RENEWAL = 0.5 -- seconds after which a worker's timer and connection are renewed, which are 600 otherwise
local TIMERS = 4    -- of a worker: where its tasks began, where its connections are, for its exit, and a new one
local WRITES = 20   -- before and after each thing that happens

-- `follower` has the events of the present watch since its initial kvs.
local INIT_WORKER = [[
local keywatch = require "keywatch"
local writer = dofile "$root/spec/support/writer.lua"

require("keywatch.driver.ngx").home.renewal = $renewal
follower = { n_watches = 0, n_errors = {}, n_events = 0, from = 0, last = 0, list = {}, keeps = true }
client = keywatch.connect("$url", { backoff = { first = 0.01, longest = 0.1 }, connect_timeout = 2, tls = $tls })
cache = client:cache("$prefix", { history_bytes = 100000 })
content = cache:table()

local function enter(batch)
  local last = batch.events[#batch.events]
  if last.type == "synced" then
    follower.n_watches, follower.from, follower.list = follower.n_watches + 1, last.revision, {}
    follower.last = last.revision
  end
  if last.initial or last.type == "synced" then return end
  if follower.keeps then writer.enter(follower.list, batch) end
  follower.last, follower.n_events = batch.revision, follower.n_events + #batch.events
end

keywatch.spawn(function()
  while true do
    local watch, err = client:watch("$prefix", { prefix = true, initial = true })
    while watch do
      local batch
      batch, err = watch:batch()
      if not batch then break end
      enter(batch)
    end
    follower.n_errors[err and err.code or "closed"] = true
    keywatch.sleep(0.01)
  end
end)
]]

local SERVER = [[
location = /read {
  content_by_lua_block {
    ngx.sleep(0.002)
    if math.random(5) == 1 then client:get("/weather/1", { timeout = 1 }) end
    local kv = cache:is_ready() and cache:get("/weather/1")
    ngx.print(kv and kv.value or "none")
  }
}
]]

describe("nginx workers behind a bad network #once #peer", function()
  nginx_stage.with_tests()
  local random, path, options, server, client, writer, proxy, stage, n_settled

  local function start_server()
    options.path, options.port, options.peer_port = path, server and server.port, server and server.peer_port
    server = servers.start(options)
  end

  local function kill_server()
    server.process:signal("sigkill")
    server.process:wait()
  end

  --- Starts a server of a kind ("keywatch" or "etcd"), with mutual TLS or without, a proxy, and nginx.
  local function start(kind, is_tls)
    local ca, cert, key = certificates.paths("ca"), certificates.paths("alice")
    local tls = is_tls and { ca = ca, cert = cert, key = key } or nil
    path, random, n_settled = directory.new(), randoms.new(network.SEED), 0
    options = { kind = kind, is_tls = is_tls }
    for _, flag in ipairs(is_tls and { "--client-cert-auth", "--trusted-ca-file", ca } or {}) do
      table.insert(options, flag)
    end
    start_server()
    client = keywatch.connect(server.url, { tls = tls, backoff = { first = 0.01, longest = 0.1 } })
    writer, proxy = writers.new(client, random, PREFIX), proxies.start(server.url)
    stage = nginx_stage.start { init_worker = INIT_WORKER, server = SERVER, words = {
      root = uv.cwd(), url = proxy.url, prefix = PREFIX, renewal = RENEWAL,
      tls = tls and ("{ ca = %q, cert = %q, key = %q }"):format(ca, cert, key) or "nil",
    } }
  end

  after_each(function()
    if client then client:close() end
    if server and server:is_running() then server:stop() end
    server, client = nil, nil
  end)

  local function write(n)
    for _ = 1, n or WRITES do writer:write() end
  end

  --- The tables and caches of the workers are what exists.
  local function compare_content()
    local expected = {}
    for key, kv in pairs(writer.state) do expected[key] = kv.value end
    for _, text in ipairs {
      "local all = {} for key, value in pairs(content) do all[key] = value end return all",
      ("local all = {} for kv in cache:each('%s', { prefix = true }) do all[kv.key] = kv.value end return all")
        :format(PREFIX),
    } do
      for _, found in ipairs(stage:ask_each(text)) do assert.same(expected, found) end
    end
  end

  --- Writes one last time, and waits until each worker has everything; then compares what the workers have.
  local function settle()
    n_settled = n_settled + 1
    local revision = writer:write { { put = PREFIX .. "mark", value = tostring(n_settled) } }
    stage:await_each(("return content['%smark'] == '%d' and follower.last >= %.0f"):format(PREFIX, n_settled, revision))
    compare_content()
    for _, found in ipairs(stage:ask_each("return { follower.list, follower.from, follower.last }")) do
      writer:compare(found[1], found[2], false, found[3])
    end
  end

  --- Each worker has one connection, when nothing is being renewed; and no more timers than it had before.
  local function check_workers()
    for _, pid in ipairs(stage:workers()) do
      stage:await("one connection of worker " .. pid, function() return proc.connections(pid, proxy.port) == 1 end)
      stage:await("as few timers as before in worker " .. pid, function()
        return stage:ask(pid, "return ngx.timer.running_count() + ngx.timer.pending_count()") <= TIMERS
      end)
    end
  end

  local function expect_error(code) stage:await_each("return follower.n_errors." .. code) end

  local function copy(list)
    local all = {}
    for key, value in pairs(list) do all[key] = value end
    return all
  end

  local happenings = {
    function() -- a reload, and another one soon after it
      stage:reload()
      write(3)
      stage:reload()
    end,
    function() -- each worker moves to another timer, with another connection
      local text = "return require('keywatch.driver.ngx').home.moves"
      for _, pid in ipairs(stage:workers()) do
        local before = stage:ask(pid, text)
        stage:await("another timer", function()
          write(1)
          return stage:ask(pid, text) > before
        end)
      end
    end,
    function() stage:kill(random:pick(stage:workers())) end,
    function()
      kill_server()
      start_server()
    end,
    function() assert(client:compact(writer.revision)) end,
    function() proxy:cut { how = random:pick { "close", "reset" } } end,
    function()
      proxy:split(random:between(1, 9))
      write()
      settle()
      proxy:restore()
    end,
    function() -- the workers are cut off while keys change and are compacted: they must read everything again
      proxy:refuse()
      proxy:cut()
      write()
      assert(client:compact(writer.revision))
      write(1)
      proxy:accept_again()
      expect_error("compacted")
    end,
    function() -- the server goes back to an older state
      settle()
      kill_server()
      local saved, revision, state, log = directory.new(), writer.revision, copy(writer.state), copy(writer.log)
      shell.must(("cp -a %s/. %s"):format(path, saved))
      start_server()
      write()
      settle()
      kill_server()
      directory.remove(path)
      path = saved
      local before = stage:ask_each("return follower.n_watches")
      start_server()
      writer.revision, writer.state, writer.log = revision, state, log
      for i, pid in ipairs(stage:workers()) do
        stage:await("a watch of the restored server", function()
          return stage:ask(pid, "return follower.n_watches") > before[i]
        end)
      end
      expect_error("regressed")
      stage:await_each(("return content['%smark'] == %q"):format(PREFIX, state[PREFIX .. "mark"].value))
    end,
  }

  for _, kind in ipairs { "keywatch", "etcd" } do
    for _, is_tls in ipairs { false, true } do
      it(("follow %s%s"):format(kind, is_tls and " with mutual TLS" or ""), function()
        start(kind, is_tls)
        local load = stage:load("/read", 4)
        for _ = 1, network.FAULTS do
          local order = {}
          for i in ipairs(happenings) do table.insert(order, random:between(1, i), i) end
          for _, i in ipairs(order) do
            write()
            happenings[i]()
            write()
            settle()
            check_workers()
          end
        end
        local found = load:finish()
        assert(found.requests > 0)
        assert.equal(0, found.bad)
        assert.equal("", stage:troubles("starts over", "exited on signal 9", RESET, BROKEN))
        assert.equal(0, stage:quit())
      end)
    end
  end

  it("have flat memory while events come", function()
    local n, burst = 20000 * network.FAULTS, 100
    start("keywatch", false)
    stage:ask_each("follower.keeps = false")
    local function write_and_measure(count)
      for i = 1, count / burst do
        local ops = {}
        for j = 1, burst do ops[j] = { put = "/weather/many/" .. (i * burst + j) % 500, value = ("v"):rep(100) } end
        assert(client:txn { success = ops })
      end
      local revision = assert(client:put("/weather/mark", tostring(count))).revision
      stage:await_each(("return follower.last >= %.0f"):format(revision))
      stage:ask_each("collectgarbage() collectgarbage()")
      local sizes = {}
      for i, pid in ipairs(stage:workers()) do sizes[i] = proc.resident(pid) end
      return sizes
    end
    stage:await_each("return follower.n_watches == 1")
    write_and_measure(n / 2)
    local before, after = write_and_measure(n / 4), write_and_measure(n / 4)
    for i = 1, 2 do
      local grown = (after[i] - before[i]) / 2 ^ 20
      io.stdout:write(("worker %d: %.1f MiB, %.1f more than "):format(i, after[i] / 2 ^ 20, grown), n / 4,
        " events before\n")
      assert(grown < MOST_MIB, ("grown by %.1f MiB"):format(grown))
    end
    assert.same({ n + 3, n + 3 }, stage:ask_each("return follower.n_events"))
    assert.equal("", stage:troubles())
  end)
end)
