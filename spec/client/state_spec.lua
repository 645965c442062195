--- The state of a client: client:state(), client:status() and the hook on_state.

local core = require "keywatch.core"
local keywatch = require "keywatch"

local dose = require "spec.support.dose"
local imposter = require "spec.support.imposter"
local interrupting = require "spec.support.interrupting"
local network = require "spec.support.network"
local program = require "spec.support.program"
local within = require "spec.support.within"
local states = require "keywatch.client.state"

local PATIENCE, await, through_each_door = network.PATIENCE, network.await, network.through_each_door
local NOBODY = "http://127.0.0.1:1"
local RANGE, WATCH = "/etcdserverpb.KV/Range", "/etcdserverpb.Watch/Watch"

local OPTIONS = {
  connect_timeout = 1, keepalive = 0.1, keepalive_timeout = 0.3, timeout = PATIENCE,
  backoff = { first = 0.01, longest = 0.05 },
}

--- Returns a client, and the list of states that its hook has received. The hook calls `act`, if given.
local function observed(urls, act, options)
  local received = {}
  local all = { on_state = function(state)
    table.insert(received, state)
    if act then act(state, #received) end
  end }
  for name, value in pairs(OPTIONS) do all[name] = value end
  for name, value in pairs(options or {}) do all[name] = value end
  return network.connect(urls, all), received
end

local function names(received)
  local list = {}
  for i, state in ipairs(received) do list[i] = state.state end
  return list
end

local function await_state(client, name)
  await(function() return client:state().state == name end)
  return client:state()
end

local function await_told(received, name)
  await(function() return received[1] and received[#received].state == name end)
  return received[#received]
end

describe("a client #plain", function() -- there is no TLS in virtual time
  local world, url, server

  network.in_virtual_time(function(one)
    world, server = one, one.server
    url = server.url
  end)

  through_each_door("is idle once nothing needs a connection, though a name is still being looked up", function()
    function world.driver.lookup() return { result = function() return nil end } end
    local client = network.connect("http://slow.lookup.test:1", OPTIONS)
    local _, err = client:get("a", { timeout = 0.01 })
    assert.equal("unavailable", err.code)
    assert.equal("idle", client:state().state)
  end)

  through_each_door("has a state, and calls its hook at each change", function()
    local client, received = observed(url)
    local state = client:state()
    assert.same({ state = "idle", since = state.since, requests = { open = 0, waiting = 0 },
      watches = { open = 0, waiting = 0 }, leases = { open = 0, waiting = 0 } }, state)
    assert(client:exists("k") ~= nil)
    local w = assert(client:watch("k"))
    state = await_told(received, "connected")
    assert.same({ "connecting", "connected" }, names(received))
    assert.same({ endpoint = url, why = nil }, { endpoint = state.endpoint, why = state.why })
    assert.same({ "connected", state.since, url, { open = 1, waiting = 0 } }, { client:state().state,
      client:state().since, client:state().endpoint, client:state().watches })

    server:stop()
    state = await_told(received, "waiting")
    assert.is_nil(state.endpoint)
    assert.matches(url .. ": ", state.why, 1, true)
    local since = state.since
    await(function() return client:state().failures >= 3 end)
    state = client:state()
    assert.same({ "waiting", since, { open = 1, waiting = 1 } }, { state.state, state.since, state.watches })
    assert.matches("refused", state.why, 1, true)
    assert(since <= keywatch.now() and since >= received[2].since)

    server:start()
    await_told(received, "connected")
    assert(client:put("k", "v"))
    assert.equal("v", w:next(PATIENCE).value)
    assert.same({ open = 1, waiting = 0 }, client:state().watches)
    client:close()
    await_told(received, "closed")
    assert.same({ state = "closed" }, { state = client:state().state, endpoint = client:state().endpoint })
    local last = #received
    keywatch.sleep(0.01)
    assert.equal(last, #received)
  end)

  it("has the same fields in its status, with the server's status or without", function()
    local client = observed(url)
    local status = assert(client:status())
    assert.same({ "connected", url, url }, { status.client.state, status.client.endpoint, status.endpoint })
    server:stop()
    local _, err = client:status { timeout = 0.1 }
    assert.equal("unavailable", err.code)
    assert.matches(url, err.client.why, 1, true)
    client:close()
    _, err = client:status()
    assert.same({ "closed", "closed" }, { err.code, err.client.state })
    assert.equal(2, select("#", client:status())) -- assert of LuaJIT raises its last argument
  end)

  it("waits while watches are opened, and counts them", within.task(function()
    local client = observed(url)
    server:stop()
    local tasks = {}
    for i = 1, 2 do tasks[i] = keywatch.spawn(client.get, client, "k") end
    for i = 3, 5 do tasks[i] = keywatch.spawn(client.watch, client, "k") end
    tasks[6] = keywatch.spawn(client.watch, client, "k", { initial = true })
    local state = await_state(client, "waiting")
    assert.same({ open = 3, waiting = 3 }, state.watches)
    assert.equal(3, state.requests.waiting)
    server:start()
    for _, task in ipairs(tasks) do assert(task:join(PATIENCE)) end
    state = client:state()
    assert.same({ "connected", { open = 0, waiting = 0 }, { open = 4, waiting = 0 } },
      { state.state, state.requests, state.watches })
  end))
end)

describe("a client whose server is unavailable #plain", function()
  network.in_virtual_time()

  local TROUBLE = { "status", 14, "etcdserver: no leader" }
  local CREATED = [[
    stream:headers()
    for request in function() return stream:receive() end do
      if request.create_request then stream:message { header = { revision = 1 }, watch_id = 0, created = true } end
    end
  ]]

  for what, path in pairs { requests = RANGE, watches = WATCH } do
    it("waits, though it is connected: " .. what, within.task(function()
      local peer = imposter.start { [RANGE] = { "reply", { header = { revision = 1 } } }, [WATCH] = CREATED,
        [path] = TROUBLE }
      local client, received = observed(peer.url)
      local task = keywatch.spawn(path == RANGE and client.get or client.watch, client, "k")
      local state = await_told(received, "waiting")
      assert.same({ peer.url, "etcdserver: no leader" }, { state.endpoint, state.why })
      peer:await("#calls >= 4")
      assert.same({ "connecting", "connected", "waiting" }, names(received))
      peer:behave { [RANGE] = { "reply", { header = { revision = 1 } } }, [WATCH] = CREATED }
      assert(task:join(PATIENCE))
      assert.is_nil(await_told(received, "connected").why)
      assert.equal(4, #received)
    end))
  end

  it("reports why it is idle, or that it is connected, after a failed request", function()
    local client, received = observed(NOBODY)
    assert.is_nil(client:get("k", { timeout = 0.05 }))
    local state = await_told(received, "idle")
    assert.matches(NOBODY .. ": ", state.why, 1, true)
    local peer = imposter.start { [RANGE] = { "in_turn", { "close" }, { "status", 14, "spec: no" } } }
    client, received = observed(peer.url)
    await(function() -- a slow machine needs more time for the second connection
      assert.is_nil(client:get("k", { timeout = 0.2 }))
      return client:state().state == "connected"
    end)
    assert.same({ "connected", { open = 0, waiting = 0 } }, { client:state().state, client:state().requests })
    assert.is_nil(await_told(received, "connected").why)
    peer:behave { [RANGE] = { "close" } }
    assert.is_nil(client:get("k", { timeout = 0.2 }))
    await(function() return client:state().state ~= "waiting" end) -- until the last connection is opened, or refused
    keywatch.sleep(0)
    assert.equal(client:state().state, received[#received].state)
  end)

  it("reports why it is idle after it was refused", function()
    local peer = imposter.start { ["/etcdserverpb.Auth/Authenticate"] = { "status", 3, "spec: who?" } }
    local client, received = observed(peer.url, nil, { user = "u", password = "p" })
    local found, err = client:get("k")
    assert.is_nil(found)
    assert.equal("spec: who?", err.message)
    local state = await_told(received, "idle")
    assert.matches("spec: who?", state.why, 1, true)
    assert.equal("idle", client:state().state)
  end)

  it("stays connected while its user is authenticated again", function()
    local n = "/etcdserverpb.Auth/Authenticate"
    local peer = imposter.start { [n] = { "in_turn", { "reply", { token = "1" } }, { "reply", { token = "2" } } },
      [RANGE] = { "in_turn", { "status", 16, "etcdserver: invalid auth token" }, { "reply", { count = 7 } } } }
    local client, received = observed(peer.url, nil, { user = "u", password = "p" })
    assert.equal(7, client:range("k").count)
    keywatch.sleep(0.01)
    assert.same({ "connecting", "connected" }, names(received))
  end)
end)

describe("a finalizer that reads a client's state", function()
  before_each(network.begin)
  after_each(network.finish)

  local BACKGROUND = { "client/transport", "client/dialer", "client/connection", "client/watch_calls", "client/reads" }
  local EVERY = (dose.is_small or core.probe) and 7 or 1 -- a build with sanitizers is slow

  --- Asks at the n-th call of the background work. Returns false if there are fewer calls.
  local function try(n, url, store, work)
    local client = network.connect(url, OPTIONS)
    local has_come = interrupting.at(n, BACKGROUND, function() client:state() end, work, client, store)
    client:close()
    return has_come
  end

  local function watch(client, store, is_initial)
    local w = assert(client:watch("k", { prefix = true, initial = is_initial, timeout = PATIENCE }))
    assert(store:put("k1", "value"))
    local event
    repeat event = assert(w:next(PATIENCE)) until event.key == "k1" and not event.initial
    w:close()
  end

  local WORK = {
    ["a watch"] = watch,
    ["a watch that begins with what exists"] = function(client, store) watch(client, store, true) end,
    ["a request"] = function(client) assert(client:put("k1", "value")) end,
  }

  for name, work in pairs(WORK) do
    it("leaves no waiter behind, whichever call of the background work it interrupts: " .. name, function()
      local store = keywatch.open {}
      local server = assert(keywatch.serve { store = store, listen = "http://127.0.0.1:0" })
      local n, url = math.random(EVERY), server:addresses()[1]
      while try(n, url, store, work) do n = n + EVERY end
      assert.is_true(n > 50)
      server:close()
      store:close()
    end)
  end
end)

describe("the hook on_state #plain", function()
  local world, url

  network.in_virtual_time(function(one) world, url = one, one.server.url end)

  --- The texts of the errors that were logged.
  local function errors()
    local list = {}
    for _, line in ipairs(world.log) do list[#list + 1] = line.level == "error" and line.text or nil end
    return list
  end

  through_each_door("may raise: that is logged, and the client continues", function()
    local client, received = observed(url, function(_, n) error(n == 1 and "a slip" or { code = "cancelled" }, 0) end)
    assert(client:put("k", "v"))
    await_told(received, "connected")
    keywatch.sleep(0)
    local words = "the function on_state of a client has failed: a slip\n    stack traceback:"
    assert.matches(words, errors()[1], 1, true)
    assert.matches("on_state of a client has failed", errors()[2])
    assert.equal(2, #errors())
    assert.equal("v", client:get("k").value)
    client:close()
    await_told(received, "closed")
    assert.same({ "connecting", "connected", "closed" }, names(received))
  end)

  through_each_door("may wait, and is called once at a time, in order", function()
    local running, most, put = 0, 0, {}
    local client, received
    client, received = observed(url, function(state)
      running = running + 1
      most = math.max(most, running)
      keywatch.sleep(0.005)
      if state.state == "connected" then put[#put + 1] = assert(client:put("told", state.endpoint)) end
      running = running - 1
    end)
    assert(client:get("k") == nil)
    await(function() return put[1] end)
    client:close()
    await_told(received, "closed")
    await(function() return running == 0 end)
    assert.same({ "connecting", "connected", "closed" }, names(received))
    assert.equal(1, most)
    assert.equal(url, world.server.store:get("told").value)
    assert.same({}, errors())
  end)

  through_each_door("may close the client, and then gets only the state closed", function()
    local client, received
    client, received = observed(url, function(state)
      if state.state == "connected" then client:close() end
    end)
    local found, err = client:watch("k")
    if found then
      found, err = found:next(PATIENCE)
    end
    assert.is_nil(found)
    assert.equal("closed", err.code)
    await_told(received, "closed")
    keywatch.sleep(0.01)
    assert.same({ "connecting", "connected", "closed" }, names(received))
    assert.same({}, errors())
  end)

  it("gets only the state closed after a close", function()
    local client, received = observed(NOBODY)
    keywatch.run(function()
      local task = keywatch.spawn(client.get, client, "k")
      await_told(received, "waiting")
      local n = #received
      table.insert(client.transport.state.queue, { state = "spec" }) -- not delivered yet
      client:close()
      task:join()
      keywatch.sleep(0.01)
      assert.same({ n + 1, "closed" }, { #received, received[#received].state })
    end)
  end)

  it("is called in the next turn of the loop, also after the end of a run", function()
    local client, received = observed(url)
    keywatch.run(function() client:put("k", "v") end)
    keywatch.run(function() client:close() end)
    assert.not_equal("closed", received[#received].state)
    keywatch.sleep(0) -- restarts the task that the end of the run has cancelled
    keywatch.sleep(0)
    assert.equal("closed", received[#received].state)
  end)

  it("is not called if the loop never turns again, without a log line, in nginx too", function()
    for _, host in ipairs { "", 'ngx = { get_phase = function() return "init" end }' } do
      local status, printed = program.run(([[
        %s
        local keywatch = require "keywatch"
        local server = assert(keywatch.serve { listen = "http://127.0.0.1:0", thread = true })
        local client = keywatch.connect(server:addresses()[1], { on_state = function(state) print(state.state) end })
        assert(client:put("k", "v"))
        client:close()
      ]]):format(host))
      assert.same({ 0, "connecting\nconnected\n" }, { status, printed })
    end
  end)

  it("is called again after a run has cancelled it", function()
    local has_begun = false
    local client, received
    client, received = observed(url, function()
      if has_begun then return end
      has_begun = true
      keywatch.sleep(1000)
    end)
    keywatch.run(function()
      client:get("k")
      await(function() return has_begun end)
    end)
    await_told(received, "connected")
    assert.same({}, errors())
  end)

  it("does not keep its client: a forgotten client is closed", function()
    network.await_forgotten(function()
      local client
      client = keywatch.connect(url, { on_state = function() return client end })
      client:get("k")
      return client.transport
    end)
  end)

  it("drops the oldest of too many states that it has not taken", function()
    local transport = { is_closed = false, connection = { endpoint = { url = "" } }, retrying = 0, uses = 0,
      waiting = 0, pausing = 0, dialer = {} }
    transport.watch_calls = { trouble_of_waiting = function() end, count = function() return 0, 0 end }
    transport.reads = { trouble = function() end, list = {}, count_waiting = function() return 0 end }
    transport.keeper = { trouble_of_waiting = function() end, count = 0, waiting = 0 }
    local received, gate = {}, true
    local one = states.new(transport)
    local function hook(state)
      while gate do keywatch.sleep(0.001) end
      table.insert(received, state.endpoint)
    end
    one:observe(hook)
    for i = 1, 100 do
      transport.connection.endpoint.url = tostring(i)
      one:update()
    end
    assert.equal(64, #one.queue)
    gate = false
    await(function() return received[#received] == "100" end)
    assert.same({ 64, "37" }, { #received, received[1] })
  end)
end)
