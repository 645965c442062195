--- A program: tasks use stores, watches, clients and servers, while finalizers close, cancel, put and compact at
-- allocations everywhere, inside of bindings and between them.
--
-- A flow may fail because its objects were closed, with an error that says so. It must end, and must not affect the
-- next flow. The program prints each step before the step, and at the end how often each action happened, in how many
-- bindings; it fails if an action never happened.

local controller = require "keywatch.controller"
local driver = require "keywatch.task.driver"
local keywatch = require "keywatch"
local log = require "keywatch.support.log"
local testing = require "keywatch.testing"

local haunt = require "spec.support.haunt"
local schedulers = require "spec.support.scheduler"

local CERT, KEY = require("keywatch.tls").self_sign { hosts = "127.0.0.1" }

local DIRECTORY = rawget(_G, "KW_HAUNTED")
local FAULTS = require("spec.support.dose").factor -- times as often
local ROUNDS, PATIENT_ROUNDS = 25 * FAULTS, 5 * FAULTS -- of an action in a flow; the second if tasks may wait for long
local VIRTUAL_ROUNDS = 5 * FAULTS -- the same, in virtual time
local MOST_TRIES = 300 -- in each flow, of an action that has not happened in any binding yet
local SECONDS = 20                     -- after which a wait fails
local FEW = 0.1                        -- the same, if a finalizer may have closed the server

-- At the end of a run, objects that release keys or leases would wait for a server that is gone.
local d = driver.get()
local shield = d.shield
function d.shield(seconds, ...) return shield(math.min(seconds, FEW), ...) end

-- {====== Flows ======

local flows = {} -- { name =, run = function(world), has_client =, is_virtual =, is_long = }

local function flow(name, run, has_client) flows[#flows + 1] = { name = name, run = run, has_client = has_client } end

local function fill(store)
  for i = 1, 5 do assert(store:put("k" .. i, "value")) end
end

--- Returns the result of a watch, or raises its error. A closed watch returns neither.
local function given(result, err) return result or error(err or "the watch is closed", 0) end

--- Reads a watch until the event of the last key.
local function read(w)
  repeat
    local event = given(w.watch:next(w.seconds))
  until event.key == "k5" and not event.initial
end

local function join(w)
  local ok, err = w.task:join(w.seconds)
  if not ok then error(err, 0) end
end

flow("a store is used", function(w)
  local store = w.store
  fill(store)
  for kv in store:each("k", { prefix = true, page = 2 }) do assert(kv.key) end
  assert(store:txn { success = { { get = "k1" }, { put = "k2", value = "v", prev_kv = true } } })
  local lease = assert(store:lease(100))
  assert(store:put("leased", "", { lease = lease }))
  assert(lease:keys())
  assert(lease:remaining())
  assert(lease:revoke())
  assert(store:hash_kv())
  assert(store:status().keys)
  assert(store:delete("k", { prefix = true, prev_kv = true }))
end)

flow("a cache of a store is used", function(w)
  w.cache = assert(w.store:cache("k"))
  local t = assert(w.cache:table { relative = true })
  fill(w.store)
  assert(w.cache:wait_for(assert(w.cache:sync()), w.seconds))
  assert(w.cache:get("k1", { consistent = true }))
  for kv in w.cache:each("k", { prefix = true, page = 2 }) do assert(kv.key) end
  assert(w.cache:is_ready(), "the cache is closed")
  assert(t["1"] == "value")
end)

--- Turns the loop until a handler was called n times, or is closed.
local function await_calls(w, n)
  local deadline = keywatch.now() + w.seconds
  while w.handler:status().calls < n do
    if w.handler:status().state == "closed" then error("the handler is closed", 0) end
    if keywatch.now() > deadline then error({ code = "timeout" }, 0) end -- the server may be closed
    keywatch.sleep(0)
  end
end

--- Opens an informer of x with an index and two handlers, one of which is slow and has a small queue.
local function inform(w, x)
  w.informer = assert(x:informer("k", {
    transform = function(object) return { object } end,
    indexes = { word = function(object, key) return { object[1], key } end },
  }))
  w.handler = assert(w.informer:add_handler {
    add = function(_, object) return object[1] end,
    update = function(_, object, old) return object[1], old[1] end,
    delete = function(_, object) return object[1] end,
    error = function(_, err) return err end,
  })
  assert(w.informer:add_handler {
    add = function() keywatch.sleep(0) end, update = function() keywatch.sleep(0) end, resync = 0.001,
    max_bytes = 150, at_bound = "coalesce",
  })
  assert(w.informer:wait_synced(w.seconds))
  assert(w.handler:wait_synced(w.seconds))
end

--- Reads an informer that has all keys.
local function read_informer(w)
  assert(w.informer:get("k1"))
  for key, object in w.informer:each() do assert(key and object[1]) end
  for key in w.informer:by_index("word", "value") do assert(key) end
  for value, n in w.informer:index_values("word") do assert(value and n) end
  assert(w.informer:index_count("word", "value"))
  assert(w.informer:status().phase)
end

flow("a store has an informer", function(w)
  fill(w.store)
  inform(w, w.store)
  fill(w.store)
  await_calls(w, 10)
  read_informer(w)
  w.informer:add_index("late", function(_, key) return key end)
  assert(w.store:delete("k1"))
  assert(w.store:put("k1", "value"))
  await_calls(w, 12)
  w.handler:close()
  assert(w.handler:join(w.seconds))
  w.informer:close()
end)

--- Runs two workers of a queue until all items are done. Some items are added again, later, or with another priority.
local function work(w)
  for item in function() return (w.queue:get(w.seconds)) end do
    local ok, err = pcall(keywatch.sleep, 0)
    pcall(w.store.put, w.store, "k1", "worked on")
    if item == 3 then w.queue:retry(item) else w.queue:forget(item) end
    w.queue:done(item)
    if not ok then error(err, 0) end
  end
end

flow("tasks use a work queue", function(w)
  w.queue = controller.work_queue { limiter = controller.limiter.fast_slow { fast = 0.0001, slow = 0.0001 } }
  keywatch.scope(function(scope)
    w.task, w.other = scope:spawn(pcall, work, w), scope:spawn(pcall, work, w) -- one may be cancelled
    for i = 1, 12 do
      w.queue:add(i % 5, { after = i % 3 == 0 and 0.0001 or 0, priority = i % 4 - 2 })
      w.queue:add(i % 7)
      w.queue:add(i % 5, { priority = 9 })
      if i % 4 == 0 then keywatch.sleep(0) end
    end
    keywatch.sleep(0.001)
    w.queue:drain(w.seconds)
    w.queue:close()
  end)
  local queue, depth, active, delayed = w.queue, 0, 0, 0
  for _ in pairs(queue.queued) do depth = depth + 1 end
  for _ in pairs(queue.taken) do active = active + 1 end
  for _ in pairs(queue.delayed) do delayed = delayed + 1 end
  assert(depth == queue.depth and active == queue.active and delayed == queue.waiting, "wrong counts")
  assert(delayed == 0 and queue.is_closed, "the queue has left something")
  assert(not schedulers.check_timers(queue.others), "the lanes are not in order")
  for _, timer in ipairs(queue.others.heap) do
    assert(queue.lanes[timer.owner.priority] == timer.owner, "a lane is not in its place")
  end
end)

--- Starts the controller of a world, and waits until it has reconciled all keys, or has ended.
local function control(w)
  local seen, n = {}, 0
  w.controller = controller.new { name = "haunted", workers = 2, timeout = 1, store = w.store, sources = {
    w.informer, { every = 1, request = "tick" },
    { w.channel, where = function() return true end, map = function(value) return { value } end },
  }, reconcile = function(request, context)
    keywatch.sleep(0)
    if request == "k1" or request == "tick" then pcall(function() -- the store may be closed
      for kv in context.store:each("k", { prefix = true, page = 2 }) do context.store:put("other", kv.value) end
    end) end
    if not seen[request] and request ~= "sent" then n = n + 1 end -- a finalizer may have received that
    seen[request] = true
    if request == "k3" and context.retries == 0 then error("it is broken") end
    return request == "k4" and { after = 0.01 } or nil
  end }
  pcall(w.controller.start, w.controller) -- a finalizer may have started it
  w.channel:send("sent", 0)
  local deadline = keywatch.now() + w.seconds
  while n < 6 and w.controller:status().state ~= "idle" do
    if keywatch.now() > deadline then error({ code = "timeout" }, 0) end
    keywatch.sleep(0)
  end
end

flow("a store has a controller", function(w)
  fill(w.store)
  w.channel = keywatch.channel(5)
  w.informer = assert(w.store:informer("k"))
  for _ = 1, 2 do
    control(w)
    for _ = 1, 3 do w.controller:stop(w.seconds) end -- a finalizer may have started it again
    assert(w.controller.state == "idle", "the controller has not stopped")
  end
  w.informer:close()
end)
flows[#flows].is_long = true

flow("a store is watched", function(w)
  fill(w.store)
  w.watch = assert(w.store:watch("k", { prefix = true, prev_kv = true, initial = true, progress = true }))
  w.task = keywatch.spawn(read, w)
  fill(w.store)
  join(w)
  fill(w.store)
  assert(w.watch:sync(w.seconds))
  given(w.watch:batch(w.seconds))
  w.watch:close()
end)

--- Starts two tasks of a scope, one of which sends to the other through a channel.
local function converse(w, scope)
  local n = 0
  w.task = scope:spawn(function()
    for i = 1, 10 do assert(w.channel:send(i, w.seconds)) end
    w.channel:close()
  end)
  w.other = scope:spawn(function()
    for _ in w.channel:values() do n = n + 1 end
    return n
  end)
  return w.task, w.other
end

flow("tasks use channels", function(w)
  for _, capacity in ipairs { 0, 2 } do
    w.channel = keywatch.channel(capacity)
    keywatch.scope(function(scope)
      local sender, receiver = converse(w, scope)
      local which, ok, err = keywatch.select { sender, receiver, timeout = w.seconds }
      assert(which, ok)
      if ok then ok, err = keywatch.join { sender, receiver, timeout = w.seconds } end
      if not ok then error(err, 0) end
    end)
  end
end)

flow("tasks select", function(w)
  local answers = keywatch.channel()
  w.channel = keywatch.channel(1)
  w.watch = assert(w.store:watch("k", { prefix = true, initial = true }))
  keywatch.scope(function(scope)
    w.task = scope:spawn(function()
      for i = 1, 5 do
        assert(w.store:put("k" .. i, "value"))
        local which, ok, err = keywatch.select { w.channel:sending(i), answers, timeout = w.seconds }
        assert(which, ok)
        assert(ok, err)
      end
      w.watch:close()
    end)
    w.other = scope:spawn(function()
      for i = 1, 5 do
        assert(w.store:put("o" .. i, "value"))
        keywatch.sleep(0)
      end
    end)
    local is_open = true
    while is_open do
      local which, what, err = keywatch.select { w.watch, w.channel, w.task, timeout = w.seconds }
      assert(which, what)
      if which == w.task and not what then error(err, 0) end
      is_open = which ~= w.task and what ~= nil
      if err then error(err, 0) end
    end
    w.channel:close() -- ends the task if a finalizer has closed the watch
  end)
end)

flow("a durable store is used", function(w)
  local store = assert(keywatch.open { path = DIRECTORY .. "/flow" })
  w.durable = store
  w.watch = assert(store:watch("k", { prefix = true }))
  w.task = keywatch.spawn(fill, store)
  join(w)
  read(w)
  assert(store:lease(100))
  local _, why = store:compact(store:status().revision, { physical = true })
  assert(not why or why.code == "compacted", why)
  store:close()
end)

local function serve(w)
  w.server = assert(keywatch.serve { store = w.store, listen = "http://127.0.0.1:0" })
end

local function connect(w)
  local url = assert(w.server:addresses()[1], "the server is closed")
  w.client = keywatch.connect(url)
end

flow("a server is used", function(w)
  serve(w)
  connect(w)
  local client, times = w.client, { timeout = w.seconds }
  for i = 1, 3 do assert(client:put("k" .. i, "value", times)) end
  assert(client:get("k1", times))
  for kv in client:each("k", { prefix = true, page = 2, timeout = w.seconds }) do assert(kv.key) end
  assert(client:txn({ success = { { get = "k1" }, { put = "k2", value = "v" } } }, times))
  local lease = assert(client:lease(100, times))
  assert(lease:keepalive(times))
  assert(lease:remaining(times))
  assert(lease:revoke(times))
  assert(client:status(times))
  w.server:shutdown(0)
end, true)

flow("a server is watched", function(w)
  serve(w)
  connect(w)
  w.watch = assert(w.client:watch("k", { prefix = true, prev_kv = true, timeout = w.seconds }))
  assert(w.watch:sync(w.seconds))
  w.task = keywatch.spawn(read, w)
  fill(w.store)
  join(w)
  fill(w.store)
  given(w.watch:batch(w.seconds))
  w.client:close()
end, true)

flow("a server is watched from what exists on", function(w)
  serve(w)
  fill(w.store)
  local url = assert(w.server:addresses()[1], "the server is closed")
  w.client = keywatch.connect(url, { on_state = function() return w.client and w.client:state() end })
  w.watch = assert(w.client:watch("k", { prefix = true, initial = true, timeout = w.seconds }))
  w.task = keywatch.spawn(read, w)
  fill(w.store)
  join(w)
  assert(w.client:exists("k1", { timeout = w.seconds }))
  w.client:close()
end, true)

flow("a server is cached", function(w)
  serve(w)
  fill(w.store)
  connect(w)
  w.cache = assert(w.client:cache("k", { history_revisions = 2, history_age = 60, slow_after = 60 }))
  local t = assert(w.cache:table { relative = true, on_change = function() return w.cache end })
  assert(w.cache:wait_ready(w.seconds))
  w.watch = assert(w.cache:watch("k", { prefix = true, initial = true }))
  w.task = keywatch.spawn(read, w)
  fill(w.store)
  join(w)
  assert(w.cache:get("k1", { consistent = true, timeout = w.seconds }))
  assert(w.cache:sync(w.seconds))
  assert(t["1"] == "value")
  w.client:close()
end, true)

flow("a server has informers", function(w)
  serve(w)
  fill(w.store)
  connect(w)
  w.cache = assert(w.client:cache("k"))
  local other = assert(w.cache:informer("k", { codec = "json" }))
  inform(w, w.client)
  fill(w.store)
  await_calls(w, 10)
  read_informer(w)
  assert(other:wait_synced(w.seconds))
  for key, err in other:bad_values() do assert(key and err) end
  w.client:close()
  assert(w.handler:join(w.seconds))
end, true)

--- Waits until one of two electors leads, if it is not idle.
local function await_leader(w, one)
  local deadline = keywatch.now() + w.seconds
  while one:status().state ~= "idle" and not one:is_leader() do
    if keywatch.now() > deadline then error({ code = "timeout" }, 0) end
    keywatch.sleep(0)
  end
end

--- Stops an elector. The stop may time out if the server is closed.
local function stop(w, one)
  local ok, err = one:stop(w.seconds)
  if not ok then error(err, 0) end
  assert(one:status().state == "idle", "the elector has not stopped")
  assert(not one:is_leader(), "an idle elector leads")
end

--- Lets two electors of x lead, one after the other.
local function elect(w, x)
  for name, id in pairs { elector = "a", rival = "b" } do
    w[name] = require("keywatch.controller").elector {
      store = x, name = "e", id = id,
      on_lead = function(fence)
        fence:put("led by", id)
        keywatch.sleep(SECONDS)
      end,
    }
  end
  w.elector:start()
  await_leader(w, w.elector)
  w.rival:start()
  stop(w, w.elector)
  await_leader(w, w.rival)
  stop(w, w.rival)
end

flow("a store has electors", function(w) elect(w, w.store) end)

flow("a server has electors", function(w)
  serve(w)
  connect(w)
  elect(w, w.client)
  w.client:close()
end, true)

--- Waits until the controller of a manager has written a key, unless one of them ends first.
local function await_work(w, x)
  local deadline = keywatch.now() + w.seconds
  while w.manager:status().state == "started" and not x:get("made of k1", { timeout = w.seconds }) do
    if w.has_stopped then return end
    if keywatch.now() > deadline then error({ code = "timeout" }, 0) end
    keywatch.sleep(0.01) -- without a pause, finalizers would compact all the time
  end
end

--- Lets a manager lead, and run a controller and two tables over the keys of x.
local function manage(w, x)
  fill(w.store)
  local started, stopped = 0, 0
  local function table_of(name)
    return { name = name, start = function() started = started + 1 end, stop = function() stopped = stopped + 1 end }
  end
  w.manager = controller.manager { store = x, election = "e", id = "a", stop_timeout = w.seconds,
    sync_timeout = w.seconds }
  w.informer = assert(x:informer("k"))
  assert(w.manager:add(w.informer))
  w.managed = controller.new { name = "c", sources = { w.informer }, workers = 2, timeout = w.seconds,
    reconcile = function(request, context) return context.store:put("made of " .. request, "") ~= nil end }
  assert(w.manager:add(w.managed))
  assert(w.manager:add(table_of "led"))
  assert(w.manager:add(table_of "free", { leader = false }))
  w.manager:start()
  await_work(w, x)
  assert(w.manager:metrics())
  assert(w.manager:is_healthy() ~= nil)
  w.manager:stop(w.seconds)
  local status = w.manager:status()
  assert(status.state == "stopped", "the manager has not stopped")
  assert(not status.is_leader, "a manager leads that has stopped")
  for _, one in ipairs(status.components) do
    assert(one.state ~= "started" and one.state ~= "starting", one.name .. " has not stopped")
  end
  assert(started == stopped, "a table was not stopped, or twice")
  assert(w.manager:join(0))
end

flow("a store has a manager", function(w) manage(w, w.store) end)
flows[#flows].is_long = true

flow("a server has a manager", function(w)
  serve(w)
  connect(w)
  manage(w, w.client)
  w.client:close()
end, true)
flows[#flows].is_long = true

flow("a server is used over TLS", function(w)
  w.server = assert(keywatch.serve { store = w.store, listen = "https://127.0.0.1:0", log_level = "error",
    tls = { cert = CERT, key = KEY } })
  local url = assert(w.server:addresses()[1], "the server is closed")
  w.client = assert(keywatch.connect(url, { tls = { ca = CERT } }))
  w.watch = assert(w.client:watch("k", { prefix = true, timeout = w.seconds }))
  assert(w.client:put("k1", "value", { timeout = w.seconds }))
  given(w.watch:next(w.seconds))
  local row = assert(w.client:health { timeout = w.seconds })[1]
  if row.err then error(row.err, 0) end
  w.client:close()
end, true)

flow("a server answers by Lua", function(w)
  serve(w)
  w.server:use { before = function()
    w.store:put("k1", "before")
    return true
  end }
  w.server:mount("spec.Service", {
    Unary = function(message) return message .. "!" end,
    Stream = { stream = true, handler = function(call)
      for message in call:messages() do call:send(message) end
    end },
  })
  connect(w)
  assert(w.client:put("k1", "value", { timeout = w.seconds }))
  assert(assert(w.client:call("/spec.Service/Unary", "word", { timeout = w.seconds })) == "word!")
  w.task = keywatch.spawn(function()
    local stream = assert(w.client:stream("/spec.Service/Stream", { timeout = w.seconds }))
    for i = 1, 3 do
      assert(stream:send("word" .. i))
      assert(assert(stream:receive()) == "word" .. i)
    end
    stream:close()
  end)
  join(w)
end, true)

--- Returns a flow in a world of virtual time, whose server has the store.
local function virtual_flow(name, run_it)
  flow(name, run_it, true)
  flows[#flows].is_virtual = true
end

virtual_flow("a server of a world is used", function(w)
  local times = { timeout = w.seconds }
  w.client = w.world:client()
  w.watch = assert(w.client:watch("k", { prefix = true, timeout = w.seconds }))
  w.task = keywatch.spawn(read, w)
  w.world.server:slow(0.01)
  for i = 1, 5 do assert(w.client:put("k" .. i, ("x"):rep(20000), times)) end
  join(w)
  local lease = assert(w.client:lease(10, times)):keep()
  keywatch.sleep(20)
  assert(lease:keys(times))
  w.world.server:cut()
  assert(w.client:get("k1", times))
  w.client:close()
end)

virtual_flow("a server of a world has faults", function(w)
  local times = { timeout = w.seconds }
  w.client = w.world:client()
  for _, kind in ipairs { "lose_request", "lose_answer", "mute", "hang" } do
    local rule = w.world:fault { kind, method = "get", key = "k1", count = 1 }
    local found, err = w.client:range("k1", times)
    if not found and rule.hits == 0 then error(err, 0) end
    rule:stop()
  end
  w.cache = assert(w.client:cache("k"))
  assert(w.cache:wait_ready(w.seconds))
  w.world.server:stop()
  fill(w.store)
  assert(w.store:compact(w.store:status().revision))
  w.world.server:start()
  assert(w.cache:get("k1", { consistent = true, timeout = w.seconds }))
  w.world.server:restart(1)
  assert(w.client:put("k1", "value", times))
end)

-- }======

-- {====== Actions of finalizers ======

local function closing(part) return { "close of " .. part, part, function(w) w[part]:close() end } end

local actions = {
  { "put", "store", function(w) w.store:put("other", "by a finalizer") end },
  { "compact", "store", function(w) w.store:compact(w.store:status().revision, { physical = true }) end },
  { "cancel", "task", function(w) w.task:cancel() end },
  { "cancel of another", "other", function(w) w.other:cancel() end },
  { "send", "channel", function(w) w.channel:send("by a finalizer", 0) end },
  { "receive", "channel", function(w) w.channel:receive(0) end },
  closing "store", closing "durable", closing "watch", closing "channel", closing "client", closing "server",
  closing "cache", closing "informer", closing "handler", closing "queue",
  { "add to a queue", "queue", function(w)
    for i = 1, 6 do w.queue:add(i, { after = i % 2, priority = i % 3 }) end
  end },
  { "work on an item", "queue", function(w)
    local item = w.queue:get(0)
    if item == nil then return end
    w.queue:add(item)
    w.queue:done(item)
  end },
  { "request", "controller", function(w) w.controller:add("k1") end },
  { "stop of a controller", "controller", function(w) w.controller:stop(0) end },
  { "stop and start", "controller", function(w)
    w.controller:stop(0)
    w.controller:start()
  end },
  { "add of a handler", "informer", function(w) w.informer:add_handler { add = function() end } end },
  { "look", "client", function(w) w.client:state() end },
  { "cut", "world", function(w)
    w.world.server:cut()
    if w.client then w.world:cut(w.client) end
  end },
  { "stop of an elector", "elector", function(w) w.elector:stop(0) end },
  { "stop of a manager", "manager", function(w) w.manager:stop(0) end },
  { "stop of a managed controller", "managed", function(w)
    w.has_stopped = w.managed:status().state ~= "idle"
    w.managed:stop(0)
  end },
  { "look at a manager", "manager", function(w)
    w.manager:status()
    w.manager:metrics()
  end },
  { "add to a manager", "manager", function(w)
    w.manager:add { start = function() end, stop = function() end }
  end },
  { "crash", "world", function(w) w.world.server:stop() end },
  { "restart", "world", function(w)
    w.world.server:stop()
    w.world.server:start()
  end },
  closing "world",
}
for i, one in ipairs(actions) do actions[i] = { name = one[1], part = one[2], act = one[3] } end

-- }======

local tally = haunt.tally()

--- True if a call may take until its timeout: a client whose server is gone retries.
local function is_patient(one, action)
  return one.has_client and not one.is_virtual and (action.part == "server" or action.part == "store")
end

local function new_world(seconds) return { store = keywatch.open {}, seconds = seconds or SECONDS } end

local function close(w)
  for _, part in ipairs { "manager", "controller", "elector", "rival" } do
    if w[part] then w[part]:stop(0) end
  end
  for _, part in ipairs { "queue", "channel", "watch", "handler", "informer", "cache", "client", "server", "durable",
    "store" } do
    if w[part] then w[part]:close() end
  end
end

--- Runs a flow in virtual time, with the store of the world's server.
local function run_virtual(fn, w)
  w.store:close()
  testing.run(function(world)
    w.world, w.store, w.server = world, world.server.store, world.server.server
    fn(w)
  end, { leftovers = "cancel" })
end

--- Runs a flow, and closes its world, as a task.
local function run(w, one)
  local ok, err = pcall(one.is_virtual and run_virtual or keywatch.run, one.run, w)
  close(w)
  if not ok then error(err, 0) end
end

--- Returns the approximate number of allocations of a flow.
local function length_of(one)
  local n = 1
  while haunt.at(n, function() end, run, new_world(), one) do n = n * 2 end
  local low, high = n / 2, n
  while high - low > low / 8 do
    local middle = math.floor((low + high) / 2)
    if haunt.at(middle, function() end, run, new_world(), one) then low = middle else high = middle end
  end
  return low
end

local function blame(what, err) table.insert(tally.unclean, what .. ": " .. tostring(err)) end

--- Tries one action at one allocation.
local function try(one, action, n)
  local w, began = new_world(is_patient(one, action) and FEW), keywatch.now()
  local _, where, err = haunt.at(n, function(binding)
    if not w[action.part] then return end
    tally:count(action.name, binding)
    pcall(action.act, w)
  end, run, w, one)
  local what = ("%s, %s at %d, in %s"):format(one.name, action.name, n, tostring(where))
  if err and not haunt.is_clean(err) then blame(what, err) end
  if keywatch.now() - began >= SECONDS then blame(what, ("waits in vain, and then: %s"):format(tostring(err))) end
end

local lengths, parts_of = {}, {} -- by flow: its number of allocations, and its world

--- Tries an action more often that has not happened in a binding yet.
local function insist(action)
  for _ = 1, MOST_TRIES do
    for _, one in ipairs(flows) do
      if tally.fired[action.name] then return end
      if parts_of[one][action.part] then try(one, action, math.random(lengths[one])) end
    end
  end
end

--- Tries all actions for which the flow has a part.
local function try_all(one, parts)
  local length = length_of(one)
  lengths[one], parts_of[one] = length, parts
  print(one.name, ("about %d allocations"):format(length))
  for _, action in ipairs(actions) do
    print(one.name, action.name)
    io.stdout:flush()
    local is_short = one.is_long or is_patient(one, action)
    local rounds = one.is_virtual and VIRTUAL_ROUNDS or is_short and PATIENT_ROUNDS or ROUNDS
    for i = 1, parts[action.part] and rounds or 0 do
      try(one, action, math.floor((i - 1 + math.random()) * length / rounds))
    end
  end
end

--- Runs a flow with harmless actions throughout: it must succeed.
local function try_through(one)
  print(one.name, "put and compact all along")
  io.stdout:flush()
  local w = new_world()
  local ok, err = haunt.all_along(50, function(binding)
    for i = 1, 2 do
      tally:count(actions[i].name, binding)
      pcall(actions[i].act, w)
    end
  end, run, w, one)
  if not ok and not haunt.is_clean(err) then blame(one.name .. ", all along", err) end
end

log.set_level("fatal") -- controllers and electors log errors of closed objects
haunt.begin()
for _, one in ipairs(flows) do
  local w = new_world()
  run(w, one) -- loads modules that are loaded late
  try_all(one, w)
  try_through(one)
  run(new_world(), one) -- the flow still works
end

for _, action in ipairs(actions) do
  insist(action)
  if not tally.fired[action.name] then table.insert(tally.never, action.name) end
end
tally:finish(actions)
