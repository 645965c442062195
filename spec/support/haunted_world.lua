--- The objects for testing bindings: one of each kind, made at its first use; and the actions of finalizers on them.

local core = require "keywatch.core"
local tls = require "keywatch.tls"
local uv = require "keywatch.uv"

local world = {}

local NOW = 1000
local METHOD = "/spec.Service/Method"
local DIRECTORY = rawget(_G, "KW_HAUNTED")
local CERT, KEY = tls.self_sign { hosts = "localhost" }
world.CERT, world.KEY = CERT, KEY

-- {====== Parts ======

local make = {}

local function fill(store)
  for i = 1, 3 do store:put("k" .. i, "value") end
  store:lease_grant(100, { id = 7 })
  store:put("leased", "value", { lease = 7 })
  return store
end

function make.store()
  local store = fill(core.open { now = 0 })
  store:compact(3)
  return store
end

function make.replica()
  local store = core.open { now = 0, replica = true }
  assert(store:load_kvs(5, { { key = "k1", value = "v", create_revision = 1, mod_revision = 2, version = 1 } }))
  return store
end

--- Makes the state of a feed, with a page.
function make.feed_state()
  local state = core.feed_state("k", "l")
  local kv = { key = "k1", value = "v", create_revision = 1, mod_revision = 2, version = 1 }
  assert(state:add(core.encode("RangeResponse", { header = { revision = 9 }, kvs = { kv }, count = 1 })))
  return state
end

world.CONTENT = DIRECTORY .. "/content" -- the path of a file with the content of the replica

--- Makes a writer of the replica's content, which has begun.
function make.content_writer(w)
  local writer = assert(core.content_writer(world.CONTENT))
  assert(w.replica:write_content(writer, "k", "l", "1", 1))
  assert(w.replica:hold_content(writer, 10))
  return writer
end

function make.hashing() return assert(core.begin_hash("word", 4)) end

local function open_durable(name)
  local store = assert(core.open { path = DIRECTORY .. "/" .. name, now = 0 })
  repeat
    local done, total = assert(store:read_on(1000))
  until done == total
  return store
end

--- Makes a store on disk with a write that waits for the disk. Returns its ticket.
function make.durable(w)
  local store = open_durable "store"
  core.probe.hold_disk(store, true)
  w.ticket = select(3, core.store_methods.put(store, "k1", "value"))
  return store
end

--- Makes a store whose disk has failed, and returns the ticket of a failed write.
function make.broken(w)
  local store = open_durable "broken"
  core.probe.fail_disk(store, "storage")
  w.ticket = select(3, core.store_methods.put(store, "k1", "value"))
  store:wait(w.ticket)
  return store
end

function make.snapshot(w)
  local snapshot = assert(w.store:open_snapshot())
  while not snapshot:is_ready() do w.store:run_due() end
  return snapshot
end

function make.watch(w)
  local watch = assert(w.store:open_watch("k", { prefix = true, prev_kv = true }))
  w.store:put("k1", "watched")
  w.store:put("k2", "watched")
  return watch
end

function make.server(w)
  local server = assert(core.serve(w.store, {}))
  server:mount(METHOD, true)
  server:intercept()
  return server
end

function make.peer(w) return assert((w.server:accept(NOW))) end

function make.client(w)
  local client = core.client("spec", nil, NOW)
  rawset(w, "client", client)
  world.pump(w)
  return client
end

function make.web()
  local web = core.http_client({ idle_timeout = 1 }, NOW)
  web:opened(NOW)
  return web
end

function make.fetch(w) return assert((w.web:fetch("POST", "spec", "/", { "name", "value" }, 1000))) end

local function move(from, to)
  local bytes = from:pending()
  if bytes ~= "" then to:feed(bytes, NOW) end
end

--- Moves bytes between client and server. Calls of the Lua method stay unanswered; others proceed.
function world.pump(w)
  local server, peer, client = w.server, w.peer, w.client
  for _ = 1, 4 do
    move(client, peer)
    for id, is_open in server.next_news, server do
      if is_open and select(3, server:info(id)) then server:proceed(id) end
    end
    server:step(NOW)
    move(peer, client)
  end
end

--- Begins a call. Returns its numbers at the client and at the server.
function make.call(w)
  local client = w.client
  local call = { client = assert((client:call(METHOD, { name = "value" }))) }
  client:send(call.client, "message")
  move(client, w.peer)
  call.server = assert((w.server:next_news()))
  return call
end

--- Returns a call that has ended at the client.
function make.ended(w)
  local call = w.call
  w.server:send(call.server, "answer")
  w.server:finish(call.server, 5, "text")
  world.pump(w)
  return call
end

function make.watch_call(w)
  local call = assert((w.client:watch(nil, 2 ^ 20)))
  world.pump(w)
  return call
end

function make.subscription(w)
  local sub = core.subscription(1, "k", { prefix = true, prev_kv = true })
  assert(sub:attach(w.client, w.watch_call))
  world.pump(w)
  w.store:put("k1", "told")
  w.store:put("k2", "told")
  world.pump(w)
  return sub
end

function make.loop() return assert(uv.open()) end

function make.listener(w) return assert(w.loop:listen(w.server, { host = "127.0.0.1", port = 0 })) end

function make.catcher(w) return assert(w.loop:catch { "HUP" }) end

function make.lookup(w)
  local lookup = assert(w.loop:lookup("127.0.0.1"))
  while lookup:result() == nil do w.loop:turn(1) end
  return lookup
end

local function thread(body)
  local file = assert(io.open(DIRECTORY .. "/body.lua", "w"))
  file:write(('local this = require("keywatch.uv").this_thread() return { main = function() %s end }'):format(body))
  file:close()
  local one = assert(uv.start_thread("body", DIRECTORY .. "/?.lua", package.cpath, "text"))
  while not one:has_ended() do one:wait(60) end
  return one
end

function make.thread() return thread 'this:report("told") this:give(1, ("answer"):rep(100))' end

function make.failed_thread() return thread 'error("words")' end

function make.tls_client() return assert(tls.client { ca = CERT }) end

function make.tls_server() return assert(tls.server { cert = CERT, key = KEY }) end

--- Makes a client's TLS channel after the handshake, with bytes to read and to write; the other end is far_channel.
function make.channel(w)
  local near, far = assert(w.tls_client:connect("localhost")), assert(w.tls_server:accept())
  rawset(w, "channel", near)
  rawset(w, "far_channel", far)
  for _ = 1, 3 do
    world.carry(near, far)
    world.carry(far, near)
  end
  far:write("told")
  near:feed(far:pending())
  near:write("said")
  return near
end

function world.carry(from, to)
  from:step()
  local bytes = from:pending()
  if bytes ~= "" then to:feed(bytes) end
  to:step()
end

-- }======

local mt = {
  __index = function(w, part)
    local value = make[part](w)
    rawset(w, part, value)
    return value
  end,
}

function world.is_part(name) return make[name] ~= nil end

function world.new() return setmetatable({ arguments = {} }, mt) end

local CLOSED = { "feed_state", "content_writer", "hashing", "subscription", "watch",
  "snapshot", "client", "web", "peer", "lookup", "catcher", "thread", "failed_thread",
  "server", "listener", "store", "replica", "durable", "broken", "loop", "channel", "far_channel", "tls_client",
  "tls_server" }

--- Closes all objects of a world.
function world.close(w)
  for _, part in ipairs(CLOSED) do
    if rawget(w, part) then w[part]:close() end
  end
end

--- Checks the objects that are still open.
function world.check(w)
  for _, part in ipairs { "store", "replica" } do
    local store = rawget(w, part)
    if store and store:run_due() ~= false then core.probe.check(store) end
  end
end

-- {====== Actions of finalizers ======

local function empty(value)
  if type(value) ~= "table" then return end
  for name, inner in pairs(value) do
    empty(inner)
    value[name] = nil
  end
end

--- The actions, each with the part that it needs.
local ACTIONS = {
  { "put", "store", function(w) w.store:put("k1", "by a finalizer") end },
  { "compact", "store", function(w) w.store:compact(w.store:status().revision, { physical = true }) end },
  { "pump", "client", world.pump },
  { "step of a peer", "peer", function(w) w.peer:step(NOW) end },
  { "take of a watch", "watch", function(w) w.watch:take() end },
  { "take of a subscription", "subscription", function(w) w.subscription:take() end },
  { "detach", "subscription", function(w) w.subscription:detach() end },
  { "revive", "subscription", function(w) w.subscription:revive() end },
  { "failure", "subscription", function(w) w.subscription:fail("unavailable", "words") end },
  { "cancel", "call", function(w) w.client:cancel(w.call.client) end },
  { "finish", "call", function(w) w.server:finish(w.call.server, 0) end },
  { "turn", "loop", function(w) w.loop:turn(0) end },
  { "serve", "store", function(w) core.serve(w.store, {}):close() end },
  { "write to the disk", "durable", function(w)
    core.probe.hold_disk(w.durable, false)
    core.store_methods.put(w.durable, "k1", "by a finalizer")
  end },
  { "read of a channel", "channel", function(w) w.channel:read() end },
  { "write to a channel", "channel", function(w) w.channel:write(("x"):rep(5000)) end },
  { "emptying of a channel", "channel", function(w) w.channel:pending() end },
  { "end of a channel", "channel", function(w) w.channel:finish() end },
  { "emptying of arguments", "arguments", function(w)
    for _, value in ipairs(w.arguments) do empty(value) end
  end },
}

world.actions = {} -- { name =, part =, act = function(world) }
for _, one in ipairs(ACTIONS) do table.insert(world.actions, { name = one[1], part = one[2], act = one[3] }) end
for _, part in ipairs(CLOSED) do
  table.insert(world.actions, { name = "close of " .. part, part = part, act = function(w) w[part]:close() end })
end

--- True if `setup` makes a part.
function world.has(setup, part)
  local w = world.new()
  setup(w)
  local is_there = rawget(w, part) ~= nil
  world.close(w)
  return is_there
end

-- }======

return world
