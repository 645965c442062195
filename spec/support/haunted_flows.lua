--- A program: what tasks do with stores, watches, clients and servers, while finalizers close, cancel, put and compact
-- at allocations all over it, inside of bindings and between them.
--
-- A flow may fail as one whose objects were closed does, with an error that says so. It has to end, and nothing may be
-- left of it that troubles the next one. It prints what it is about to do, and how often each action happened inside of
-- how many bindings; and fails if one never did.

local keywatch = require "keywatch"

local haunt = require "spec.support.haunt"

local CERT, KEY = require("keywatch.tls").self_sign { hosts = "127.0.0.1" }

local DIRECTORY = rawget(_G, "KW_HAUNTED")
local ROUNDS, PATIENT_ROUNDS = 150, 30 -- of an action in a flow; and where somebody may wait
if jit then ROUNDS, PATIENT_ROUNDS = 75, 15 end -- fewer things have finalizers there
local SECONDS = 20                     -- after which what is waited for is taken for lost
local FEW = 0.1                        -- the same, of a client whose server a finalizer may have closed

-- {====== Flows ======

local flows = {} -- { name =, run = function(world), has_client = }

local function flow(name, run, has_client) flows[#flows + 1] = { name = name, run = run, has_client = has_client } end

local function fill(store)
  for i = 1, 5 do assert(store:put("k" .. i, "value")) end
end

--- Every event of a watch, until the one of the last key has come.
local function read(w)
  repeat
    local event = assert(w.watch:next(w.seconds))
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

flow("a store is watched", function(w)
  fill(w.store)
  w.watch = assert(w.store:watch("k", { prefix = true, prev_kv = true, initial = true, progress = true }))
  w.task = keywatch.spawn(read, w)
  fill(w.store)
  join(w)
  fill(w.store)
  assert(w.watch:sync(w.seconds))
  assert(w.watch:batch(w.seconds))
  w.watch:close()
end)

--- Two tasks of a scope, one of which sends to the other, and the channel that they use.
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
  assert(w.watch:batch(w.seconds))
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

flow("a server is used over TLS", function(w)
  w.server = assert(keywatch.serve { store = w.store, listen = "https://127.0.0.1:0", log_level = "error",
    tls = { cert = CERT, key = KEY } })
  local url = assert(w.server:addresses()[1], "the server is closed")
  w.client = assert(keywatch.connect(url, { tls = { ca = CERT } }))
  w.watch = assert(w.client:watch("k", { prefix = true, timeout = w.seconds }))
  assert(w.client:put("k1", "value", { timeout = w.seconds }))
  assert(w.watch:next(w.seconds))
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

-- }======

-- {====== What finalizers do ======

local function closing(part)
  return { name = "close of " .. part, part = part, act = function(w) w[part]:close() end }
end

local actions = {
  { name = "put", part = "store", act = function(w) w.store:put("other", "by a finalizer") end },
  { name = "compact", part = "store", act = function(w)
    w.store:compact(w.store:status().revision, { physical = true })
  end },
  { name = "cancel", part = "task", act = function(w) w.task:cancel() end },
  { name = "cancel of another", part = "other", act = function(w) w.other:cancel() end },
  { name = "send", part = "channel", act = function(w) w.channel:send("by a finalizer", 0) end },
  { name = "receive", part = "channel", act = function(w) w.channel:receive(0) end },
  closing "store", closing "durable", closing "watch", closing "channel", closing "client", closing "server",
  closing "cache",
  { name = "look", part = "client", act = function(w) w.client:state() end },
}

-- }======

local fired = {}   -- by action: by binding, how often
local between = {} -- by action: how often outside of any binding
local unclean = {}

local function count(action, binding)
  if not binding then
    between[action] = (between[action] or 0) + 1
    return
  end
  fired[action] = fired[action] or {}
  fired[action][binding] = (fired[action][binding] or 0) + 1
end

--- Whether somebody may wait in vain: a client whose server is gone tries again, as long as it was told.
local function is_patient(one, action)
  return one.has_client and (action.part == "server" or action.part == "store")
end

local function new_world(seconds) return { store = keywatch.open {}, seconds = seconds or SECONDS } end

local function close(w)
  for _, part in ipairs { "channel", "watch", "cache", "client", "server", "durable", "store" } do
    if w[part] then w[part]:close() end
  end
end

--- A flow and its world's end, as a task of a run of its own.
local function run(w, one)
  local ok, err = pcall(keywatch.run, one.run, w)
  close(w)
  if not ok then error(err, 0) end
end

--- How far a flow goes: the number of its allocations, about.
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

local function blame(what, err) unclean[#unclean + 1] = what .. ": " .. tostring(err) end

--- One action at one allocation.
local function try(one, action, n)
  local w, began = new_world(is_patient(one, action) and FEW), keywatch.now()
  local _, where, err = haunt.at(n, function(binding)
    if not w[action.part] then return end
    count(action.name, binding)
    pcall(action.act, w)
  end, run, w, one)
  local what = ("%s, %s at %d, in %s"):format(one.name, action.name, n, tostring(where))
  if err and not haunt.is_clean(err) then blame(what, err) end
  if keywatch.now() - began >= SECONDS then blame(what, ("waits in vain, and then: %s"):format(tostring(err))) end
end

--- All actions for which the flow has a part.
local function try_all(one, parts)
  local length = length_of(one)
  print(one.name, ("about %d allocations"):format(length))
  for _, action in ipairs(actions) do
    print(one.name, action.name)
    io.stdout:flush()
    local rounds = is_patient(one, action) and PATIENT_ROUNDS or ROUNDS
    for i = 1, parts[action.part] and rounds or 0 do
      try(one, action, math.floor((i - 1 + math.random()) * length / rounds))
    end
  end
end

--- What disturbs nobody, again and again: the flow has to come through.
local function try_through(one)
  print(one.name, "put and compact all along")
  io.stdout:flush()
  local w = new_world()
  local ok, err = haunt.all_along(50, function(binding)
    for i = 1, 2 do
      count(actions[i].name, binding)
      pcall(actions[i].act, w)
    end
  end, run, w, one)
  if not ok and not haunt.is_clean(err) then blame(one.name .. ", all along", err) end
end

haunt.begin()
for _, one in ipairs(flows) do
  local w = new_world()
  run(w, one) -- what is loaded late is there
  try_all(one, w)
  try_through(one)
  run(new_world(), one) -- as if nothing had happened
end

local never = {}
print("", "actions, the bindings where they happened, and how often; and how often between")
for _, action in ipairs(actions) do
  local bindings, times = 0, 0
  for _, n in pairs(fired[action.name] or {}) do bindings, times = bindings + 1, times + n end
  print(action.name, bindings, times, between[action.name] or 0)
  if bindings == 0 then never[#never + 1] = action.name end
end
for _, what in ipairs(never) do print("NEVER", what) end
for _, what in ipairs(unclean) do print("UNCLEAN", what) end
if #never + #unclean > 0 then os.exit(1) end
print "well"
