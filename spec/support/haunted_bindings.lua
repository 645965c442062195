--- A program that tries every binding with every action of a finalizer that could affect it, at each of its
-- allocations.
--
-- The program prints each step before the step, so that a crash can be located; and at the end, how often each action
-- happened, in how many bindings. It fails if an action never happened in a binding that allocates memory and has the
-- objects for the action, or if a binding that needs a case has none.

local core = require "keywatch.core"

local haunt = require "spec.support.haunt"
local world = require "spec.support.haunted_world"

local unpack = rawget(table, "unpack") or rawget(_G, "unpack")

local function pack(...) return { n = select("#", ...), ... } end

local LONG = ("x"):rep(300) -- not interned
local NOW = 1000
local GOAWAY = "\0\0\8\7" .. ("\0"):rep(13) -- an HTTP/2 frame
local PAST = 500 -- allocations: more than any binding makes

-- {====== Cases ======

local cases = {} -- { binding =, setup = function(world) that returns the arguments of the binding }

local function case(binding, ...)
  assert(haunt.functions[binding], binding)
  for _, setup in ipairs { ... } do cases[#cases + 1] = { binding = binding, setup = setup } end
end

local function of(part, ...)
  local arguments = pack(...)
  return function(w) return w[part], unpack(arguments, 1, arguments.n) end
end

-- The store: calls that succeed, and calls that fail.
case("store:get", of("store", "k1"), of("store", "k1", { revision = 1 }))
case("store:range", function(w) return w.store, "k", { prefix = true } end)
case("store:range", function(w) return w.store, "k", { prefix = true, revision = 1 } end)
case("store:try_range", function(w) return w.store, "k", { prefix = true } end)
case("store:try_range", function(w) return w.store, "k", { prefix = true, revision = 1 } end, of("store", "k1"))
case("store:open_read", function(w) return w.store, "k", { prefix = true } end)
case("store:open_read", function(w) return w.store, "k", { prefix = true, revision = 1 } end)
local function reading(opts, is_whole)
  return function(w) return w.store, {}, assert(w.store:open_read("k", opts)), is_whole end
end
case("store:read_more", reading { prefix = true }, reading({ prefix = true, sort_target = "value" }, true))
case("store:read_more", function(w)
  local read = assert(w.store:open_read("k", { prefix = true }))
  w.store:compact(w.store:put("k1", "v").revision)
  return w.store, {}, read
end)
case("read:close", function(w) return (assert(w.store:open_read("k", { prefix = true }))) end)
case("store:try_page", function(w) return w.store, "k", { prefix = true }, {} end)
case("store:try_page", function(w) return w.store, "k", { prefix = true, limit = 2 }, { {}, {}, {} } end)
case("store:try_page", function(w) return w.store, "k", { prefix = true, revision = 1 }, {} end)
case("store:texts", of("store", "k", { prefix = true }, "", 9))
case("store:texts", of("store", "k", { prefix = true, revision = 1 }, "", 9))
case("store:texts", function(w)
  w.store:put("k1", '{"apiVersion":"v1","kind":"A","metadata":{"name":"' .. LONG .. '"}}')
  return w.store, "k", { prefix = true }, LONG, 5000
end)
local function text_in(w)
  w.store:put("k", '{"apiVersion":"v1","kind":"A","metadata":{"name":"' .. LONG .. '"}}')
  return w.store:texts("k", {}, LONG, 5000).text
end
case("text:tostring", text_in)
case("text:close", text_in)
case("store:put", function(w) return w.store, "k1", LONG, { prev_kv = true } end)
case("store:put", of("store", "k1", "v", { lease = 99 }), of("store", "k1", "v", { no = "such" }))
case("store:delete", function(w) return w.store, "k", { prefix = true, prev_kv = true } end, of("store", ""))
case("store:txn", function(w)
  return w.store, { compare = { { key = "k1", version = 0, op = ">" } }, success = {
    { put = "k1", value = LONG .. "1", prev_kv = true }, { get = "k2" }, { range = "k", prefix = true },
    { txn = { success = { { delete = "k3", prev_kv = true } } } } } }
end)
case("store:txn", function(w)
  return w.store, { success = { { put = "k1", value = "1" }, { put = "k1", value = "2" } } }
end)
case("store:txn", function(w) return w.store, { success = { { put = "k1", value = "1" }, {} } } end)
case("store:compact", of("store", 4), of("store", 1), of("store", 2 ^ 40))
case("store:lease_grant", of("store", 100), of("store", 100, { id = 7 }))
case("store:lease_revoke", of("store", 7), of("store", 99))
local TXN = { success = { { put = "k1", value = LONG .. "1", prev_kv = true }, { range = "k", prefix = true } } }
local long_calls = {
  delete = { "k", { prefix = true, prev_kv = true } }, txn = { TXN }, lease_revoke = { 7 },
}
local READ = { compare = { { key = "k", prefix = true, version = 99 } }, failure = { { range = "k", prefix = true } } }
case("store:try_read_txn", of("store", READ))
case("store:begin_txn", of("store", READ))
case("store:take", function(w) return w.store, (assert(w.store:begin_txn(READ))) end)
case("store:take", function(w) return w.store, (assert(w.store:begin_txn(READ))), true end)
for _, name in ipairs { "delete", "lease_revoke" } do
  case("store:try_read_" .. name, of("store", unpack(long_calls[name])))
end
case("store:describe_lease", of("store", 7, { keys = true }), of("store", 99))
case("store:open_leases", of "store")
case("store:list_more", function(w) return w.store, {}, (assert(w.store:open_leases())) end)
case("store:list_more", function(w) return w.store, {}, (assert(w.store:open_leases())), true end)
case("store:list_more", function(w) return w.store, {}, w.store:describe_lease(7, { keys = true }).keys, true end)
for name, arguments in pairs(long_calls) do
  local begin = "begin_" .. name
  case("store:try_" .. name, of("store", unpack(arguments)))
  case("store:" .. begin, of("store", unpack(arguments)))
  case("store:" .. begin, function(w) -- busy
    rawset(w, "write", assert(w.store:begin_txn(TXN)))
    return w.store, unpack(arguments)
  end)
  case("store:take", function(w)
    local write = assert(w.store[begin](w.store, unpack(arguments)))
    while not write:has_ended() do w.store:run_due() end
    return w.store, write
  end)
end
case("store:begin_lease_revoke", of("store", 99))
case("store:take", function(w) return w.store, (assert(w.store:begin_txn(TXN))) end)
case("write:has_ended", function(w) return (assert(w.store:begin_txn(TXN))) end)
case("store:lease_keepalive", of("store", 7), of("store", 99))
case("store:tag_lease", of("store", 7, 1), of("store", "99", 0))
case("store:next_ended", of "store")
case("store:next_ended", function(w)
  w.store:tag_lease(7, 1)
  w.store:lease_revoke(7)
  return w.store
end)
case("store:hash_step", of("store", 1), of("store", 1000), of("store", 1000, 1))
case("store:defragment", of "store")
case("store:alarms", function(w)
  w.store:arm("corrupt")
  return w.store
end)
case("store:arm", of("store", "corrupt"), of("store", "other"))
case("store:disarm", of("store", "corrupt"))
case("store:change_rows", function(w) return w.store, { { "t", "k1", LONG }, { "t", "k2" } } end)
case("store:change_rows", function(w) return w.store, { {} } end)
case("store:rows", function(w)
  w.store:change_rows { { "t", "k1", LONG }, { "t", "k2", LONG .. "2" } }
  return w.store, "t"
end)
case("store:rows", function(w)
  w.store:change_rows { { "t", "k1", LONG } }
  return w.store, "t", "k1"
end)
case("store:must_wait", of("store", 1))
case("store:prepare", of("store", 1))
case("store:open_watch", function(w) return w.store, "k", { prefix = true } end)
case("store:open_watch", function(w) return w.store, "k", { range_end = "a" } end)
case("core.open", function() return { now = 0, min_lease_ttl = 3 } end)
case("core.open", function() return { path = ("/dev/null/path/%d"):format(os.time()), now = 0 } end)

case("store:load", function(w) return core.open { replica = true, now = 0 }, w.feed_state end)
for _, name in ipairs { "load", "merge" } do
  case("store:" .. name, function(w) return w.replica, w.feed_state end)
end
case("store:feed", function(w) return w.replica, w.subscription end)
case("store:feed", function(w)
  w.subscription:close()
  return w.replica, w.subscription
end)
case("store:feed_from", function(w) return w.replica, w.subscription end)
case("store:feed_from", function(w)
  w.subscription:close()
  return w.replica, w.subscription
end)
case("store:announce_feed", of("replica", true))

-- A store with a disk, and one whose disk has failed: every write to it fails.
case("durable:read_on", of("durable", 1))
case("durable:set_bell", function(w) return w.durable, w.loop:bell() end)
for _, name in ipairs { "has_job", "work" } do case("durable:" .. name, of("durable", 1)) end
case("durable:wait", function(w)
  core.probe.hold_disk(w.durable, false)
  return w.durable, w.ticket
end)
case("durable:outcome", function(w) return w.broken, w.ticket end)
case("durable:wait", function(w) return w.broken, w.ticket end)
for _, part in ipairs { "durable", "broken" } do
  case("store:put", of(part, "k1", LONG), of(part, "k1", "v", { lease = 99 }))
  case("store:delete", of(part, "k1"))
  case("store:txn", function(w) return w[part], { success = { { put = "k1", value = LONG } } } end)
  case("store:compact", of(part, 1), of(part, 2 ^ 40))
  case("store:lease_grant", of(part, 100))
  case("store:lease_revoke", of(part, 99))
  case("store:describe_lease", of(part, 99))
  case("store:arm", of(part, "corrupt"))
  case("store:disarm", of(part, "corrupt"))
  case("store:disarm_own", of(part, "corrupt"))
  case("store:defragment", of(part))
  case("durable:checkpoint", of(part))
  case("store:change_rows", function(w) return w[part], { { "t", "k1", LONG } } end)
end

-- A store with a server on a loop, and a client that is about to write and to compact.
local function call(client, path, message, request)
  local number = client:call(path)
  client:send(number, core.encode(message, request))
  client:half_close(number)
end

local function served(...)
  local arguments = pack(...)
  return function(w)
    local revision = w.store:status().revision
    assert(w.listener)
    call(w.client, "/etcdserverpb.KV/Put", "PutRequest", { key = "k1", value = "by a client" })
    call(w.client, "/etcdserverpb.KV/Compact", "CompactionRequest", { revision = revision + 1, physical = true })
    return w.store, unpack(arguments, 1, arguments.n)
  end
end

case("store:get", served "k1")
case("store:range", served("k", { prefix = true }))
case("store:try_page", served("k", { prefix = true }, { {} }))
case("store:put", served("k1", LONG, { prev_kv = true }))
case("store:delete", served("k", { prefix = true, prev_kv = true }))
case("store:txn", served { success = { { get = "k1" }, { delete = "k1", prev_kv = true } } })
case("store:describe_lease", served(7, { keys = true }))
case("store:open_leases", served())

-- Watches of the store.
case("watch:take", of "watch")
case("watch:apply", function(w) return w.watch, {}, 1 end)
case("watch:take", function(w) return w.watch, { {}, { value = LONG } } end)
case("watch:take", function(w)
  repeat until not w.watch:take()
  w.watch:request_progress()
  return w.watch
end)
case("watch:take", function(w)
  rawset(w, "watch", (w.store:open_watch("k", { start_revision = 1 })))
  w.store:run_due()
  return w.watch
end)
case("watch:take", function(w)
  w.watch:close()
  return w.watch
end)

-- Snapshots.
case("snapshot:read", of("snapshot", 0, 4096))
case("core.restore", function() return "/no/such/file", "/dev/null/directory" end)

-- Servers.
case("core.serve", function(w) return w.store, { max_queued = 5000 } end)
case("server:mount", of("server", "/another", true))
case("server:add_host", of("server", LONG))
case("server:fix_answer", of("server", "/fixed", "a/b", LONG))
case("server:counters", of "server")
case("server:step", of("server", NOW))
case("server:drain", of("server", 1, NOW))
case("server:accept", of("server", NOW), of("server", NOW, 1, "127.0.0.1:1"))
case("server:info", function(w) return w.server, w.call.server, NOW, w.client end)

--- Returns the id of a request over HTTP.
local function open_request(w)
  w.web = w.server:accept(NOW)
  w.web:feed(("GET /a?b HTTP/1.1\r\nHost: h\r\nLong: %s\r\n\r\n"):format(LONG), NOW)
  local id
  repeat id = assert(w.server:next_news()) until w.server:head(id)
  return id
end

case("server:head", function(w) return w.server, w.call.server end, function(w) return w.server, open_request(w) end)
case("server:receive", function(w) return w.server, w.call.server, w.client end)
case("server:request", function(w)
  local put = w.client:call("/etcdserverpb.KV/Put", {})
  w.client:send(put, core.encode("PutRequest", { key = LONG }))
  w.client:half_close(put)
  w.peer:feed(w.client:pending(), NOW)
  return w.server, (w.server:next_news())
end)
case("server:inspect", function(w) return w.server end)
case("server:send", function(w) return w.server, w.call.server, LONG end)
case("server:send_text", function(w)
  return w.server, w.call.server, text_in(w)
end)
case("server:answer", function(w) return w.server, w.call.server, 200, { "a", LONG }, 5 end, function(w)
  return w.server, open_request(w), 200, { "a", LONG }, LONG
end)
case("server:finish", function(w) return w.server, w.call.server, 5, LONG end)
case("core.broadcast", function() end)
case("server:join", function(w) return w.server, w.call.server, core.broadcast() end)
case("server:lag", function(w) return w.server, w.call.server end)
case("server:leave", function(w) return w.server, w.call.server end)
case("broadcast:absorb", function() return core.broadcast(), core.broadcast() end)
case("broadcast:publish", function() return core.broadcast(), LONG, 1 end)
case("server:proceed", function(w) return w.server, w.call.server end)
case("server:newest_call", of "server")
case("peer:feed", function(w)
  w.client:send(w.call.client, LONG)
  return w.peer, w.client:pending(), NOW
end)
case("peer:pending", function(w)
  w.server:send(w.call.server, LONG:rep(300))
  return w.peer
end)
case("peer:step", of("peer", NOW))

-- Clients.
case("core.client", function() return "spec", { keepalive = 1 }, NOW end)
case("client:call", of("client", "/x", { name = "value" }))
case("client:send", function(w) return w.client, w.call.client, LONG end)
case("client:half_close", function(w) return w.client, w.call.client end)
case("client:has_room", function(w) return w.client, w.call.client, 0 end)
case("client:cancel", function(w) return w.client, w.call.client end)
case("client:receive", function(w) return w.client, w.ended.client end)
case("client:receive", function(w) return w.client, w.ended.client, true end)
case("client:receive", function(w)
  w.client:receive(w.ended.client)
  return w.client, w.call.client
end)
case("client:next", function(w) return w.client, w.ended end)
case("client:watch", of("client", { name = "value" }, 1000))
case("client:ask", function(w) return w.client, w.watch_call end)
case("client:trust", function(w) return w.client, w.watch_call end)
case("client:inspect", function(w) return w.client, w.watch_call end)
case("client:next_watch", function(w)
  w.subscription:arm()
  return w.client
end)
case("client:feed", function(w)
  w.server:send(w.call.server, LONG)
  return w.client, w.peer:pending(), NOW
end)
case("client:pending", function(w)
  w.client:send(w.call.client, LONG:rep(300))
  return w.client
end)
case("client:health", of "client")
case("client:health", function(w)
  w.client:feed(GOAWAY, NOW)
  return w.client
end)
case("client:cut", of("client", NOW))
case("client:step", of("client", NOW))
case("client:dial", of("client", NOW))
case("client:opened", of("client", NOW))
case("client:closed", of("client", "why"))

-- HTTP clients.
case("core.http_client", function() return { idle_timeout = 1 }, NOW end)
case("client:fetch", of("web", "GET", "spec", "/", { "name", "value" }, 0))
case("client:write", function(w) return w.web, w.fetch, LONG end)
case("client:finish", function(w) return w.web, w.fetch end)
--- Returns a setup of a fetch that has received these bytes, and from which `n` news were taken.
local function fetched(bytes, n)
  return function(w)
    local fetch = w.fetch
    w.web:feed(bytes, NOW)
    for _ = 1, n do w.web:take(fetch) end
    return w.web, fetch
  end
end
local HEAD = "HTTP/1.1 200 OK\r\nname: value\r\ntransfer-encoding: chunked\r\n\r\n"
case("client:take", fetched(HEAD, 0), fetched(HEAD .. "12c\r\n" .. LONG, 1), fetched("wrong\r\n", 0))
case("client:take", fetched(HEAD .. "0\r\nname: value\r\n\r\n", 1))
case("client:drop", function(w) return w.web, w.fetch end)
case("client:next_fetch", fetched("wrong\r\n", 0))
case("client:is_idle", of "web")
case("client:unsent", of "web")
case("client:moved", function(w) return w.web, w.fetch end)

case("core.inflater", function() end)
case("inflater:step", function()
  return core.inflater(), "\31\139\8\0\0\0\0\0\0\3\75\4\0\67\190\183\232\1\0\0\0", 1
end, function() return core.inflater(), "wrong", 1 end)

-- Watches of a client.
case("core.subscription", function() return 1, "k", { prefix = true } end)
case("subscription:take", of "subscription", function(w) return w.subscription, { {}, { value = LONG } } end)
case("subscription:take", function(w)
  repeat until not w.subscription:take()
  w.client:trust(w.watch_call)
  w.client:ask(w.watch_call)
  world.pump(w)
  return w.subscription
end)
case("subscription:take", function(w)
  repeat until not w.subscription:take()
  w.subscription:fail("unavailable", LONG)
  return w.subscription
end)
case("subscription:take", function(w)
  rawset(w, "subscription", core.subscription(2, "k", { start_revision = 1 }))
  w.subscription:attach(w.client, w.watch_call)
  world.pump(w)
  return w.subscription
end)
case("subscription:attach", function(w)
  w.subscription:detach()
  return w.subscription, w.client, w.watch_call
end)
case("subscription:follow", of("subscription", true))
case("subscription:begin", of("subscription", 9, "18446744073709551615"))
case("subscription:fail", of("subscription", "unavailable", LONG))
case("subscription:refusal", function(w)
  w.subscription:fail("unavailable", LONG)
  return w.subscription
end)

-- The pages of a cache.
case("core.feed_state", function() return "k", "l" end)
case("feed_state:add", function(w)
  local kv = { key = "k2", value = LONG, create_revision = 1, mod_revision = 2, version = 1 }
  return w.feed_state, core.encode("RangeResponse", { kvs = { kv }, more = true, count = 2 })
end)
case("feed_state:add", of("feed_state", "", true), of("feed_state", LONG))

-- The file of a cache.
case("core.content_writer", function() return world.CONTENT end)
case("content_writer:wait", of "content_writer")
case("content_writer:wait", function(w)
  local writer = assert(core.content_writer(world.CONTENT .. "/no/directory"))
  assert(w.replica:write_content(writer, "k", "l", "1", 1))
  assert(w.replica:hold_content(writer, 10))
  return writer
end)
case("store:write_content", function(w)
  w.content_writer:wait()
  return w.replica, w.content_writer, "k", "l", "1", 1
end)
case("store:hold_content", function(w)
  w.content_writer:wait()
  assert(w.replica:write_content(w.content_writer, "k", "l", "1", 1))
  return w.replica, w.content_writer, 10
end)
case("store:hold_content", function(w)
  w.content_writer:wait()
  assert(w.replica:write_content(w.content_writer, "k", "l", "1", 1))
  return core.open { replica = true, now = 0 }, w.content_writer, 10
end)
case("store:load_content", function(w)
  w.content_writer:wait()
  return w.replica, world.CONTENT, "k", "l"
end)
case("store:load_content", function(w) return w.replica, world.CONTENT .. LONG, "k", "l" end)
case("store:changed_revision", of "replica")

-- Messages, and functions without state.
local REQUESTS = {
  get = { "k1" }, range = { "k", { prefix = true } }, put = { "k1", LONG }, delete = { "k", { prefix = true } },
  txn = { { success = { { put = "k1", value = LONG }, { get = "k1" } } } }, compact = { 5 }, lease_grant = { 5 },
  claim = { "k/", "k/1", LONG, 7, true }, unclaim = { "k/1", 5 },
  lease_revoke = { 7 }, lease_keepalive = { 7 }, lease_time_to_live = { 7, { keys = true } }, leases = {},
}
local KV = { key = "k1", value = LONG, mod_revision = 5, create_revision = 5, version = 1 }
local ANSWERS = {
  get = { "RangeResponse", { kvs = { KV }, count = 1 } }, range = { "RangeResponse", { kvs = { KV }, count = 1 } },
  page = { "RangeResponse", { kvs = { KV, KV }, count = 2 }, { {} } },
  put = { "PutResponse", { prev_kv = KV } },
  delete = { "DeleteRangeResponse", { prev_kvs = { KV }, deleted = 1 }, true },
  txn = { "TxnResponse", { succeeded = true, responses = { { response_put = {} }, { response_range = {} } } } },
  claim = { "TxnResponse", { responses = { { response_range = { kvs = { KV } } },
    { response_range = { kvs = { KV } } } } } },
  unclaim = { "TxnResponse", { succeeded = true, responses = { { response_delete_range = { deleted = 1 } } } } },
  compact = { "CompactionResponse", {} }, lease_grant = { "LeaseGrantResponse", { ID = 7, TTL = 5 } },
  lease_revoke = { "LeaseRevokeResponse", {} }, lease_keepalive = { "LeaseKeepAliveResponse", { ID = 7, TTL = 5 } },
  lease_time_to_live = { "LeaseTimeToLiveResponse", { ID = 7, TTL = 5, grantedTTL = 5, keys = { "k1" } }, true },
  leases = { "LeaseLeasesResponse", { leases = { { ID = 7 } } } },
}
for name, arguments in pairs(REQUESTS) do
  case("requests." .. name, function() return nil, unpack(arguments) end)
end
for name, answer in pairs(ANSWERS) do
  local memo = answer[3]
  if name == "txn" then memo = select(4, core.requests.txn(nil, REQUESTS.txn[1])) end
  if name == "get" then memo = "k1" end
  case("answers." .. name, function() return core.encode(answer[1], answer[2]), memo end)
  case("answers." .. name, function() return "\255", memo end)
end
case("core.header", function() return core.encode("PutResponse", { header = { cluster_id = 5, revision = 4 } }) end)
case("core.json_decode", function() return '{"a":[1,{"b":"' .. LONG .. '\\n"}],"c":[]}' end)
case("core.json_decode", function() return "[1," end)
case("core.json_items", function() return '{"a":[1,{"b":"' .. LONG .. '"}],"c":[]}', 1 end)
case("core.percent_decode", function() return "a%20" .. LONG end)
case("core.read_query", function() return "a=%20&b=" .. LONG .. "&a=2&c=%zz" end)
case("core.json_decode", function() return '{"a":{"b":1},"c":2}', { ordered = true, duplicates = "error" } end)
case("core.json_encode", function() return { LONG:rep(20), { 1, 2.5 } }, { indent = 2 } end)
case("core.json_encode", function() return { a = 1, b = { c = LONG } }, { sort_keys = true } end)
case("core.json_encode", function() return { print } end)
case("core.encode", function() return "RangeResponse", { kvs = { { key = LONG:rep(10) }, { key = "k2" } } } end)
case("core.decode", function() return "RangeResponse", core.encode("RangeResponse", { kvs = { KV, KV } }) end)
case("core.decode", function() return "RangeResponse", "\255" end)
case("core.new_error", function() return "compacted" end)
case("core.error_of", function() return 5, "etcdserver: words" end)
case("core.id", function() return "123456789012345678" end)
case("core.decimal", function() return "12345678901234567890" end)
case("core.hex", function() return "123456789012345678" end)
case("core.sha1", function() return LONG end)
case("core.kvs_crc", function() return "\18\3abc", 1, 1, 0 end)
case("core.hash_password", function() return "word", 4 end)
case("core.begin_hash", function() return "word", 4 end, function() return "wo\0rd", 4 end)
case("hashing:result", function(w)
  local function wait() while w.hashing:result() == nil do end end -- until the thread has ended
  wait()
  collectgarbage() -- frees the hash that the loop has seen: as long as it exists, the next one allocates nothing
  return w.hashing
end)

-- Loops.
for _, name in ipairs { "now", "time", "pid", "hostname", "raise_limit", "descriptors", "this_thread" } do
  case("uv." .. name, function() end)
end
case("loop:leave_at_fork", function(w) return w.loop end)
case("loop:turn", function(w) return w.loop, 0, w.listener end)
case("loop:listen", function(w) return w.loop, w.server, { host = "127.0.0.1", port = 0 } end)
case("loop:listen", function(w)
  assert(w.listener) -- the server is on the loop already
  return w.loop, w.server, { host = "127.0.0.1", port = 0 }
end)
case("loop:listen", function(w) return w.loop, w.server, { path = "/no/such/directory/socket" } end)
case("loop:dial", function(w) return w.loop, core.client("spec", nil, NOW), w.listener:address() end)
case("loop:dial", function(w) return w.loop, core.client("spec", nil, NOW), { host = "words", port = 1 } end)
case("loop:listen", function(w) return w.loop, w.server, { host = "127.0.0.1", port = 0 }, w.tls_server end)
case("loop:listen", function(w) return w.loop, w.server, { host = "127.0.0.1", port = 0 }, w.tls_client end)
case("loop:dial", function(w)
  return w.loop, core.client("spec", nil, NOW), w.listener:address(), w.tls_client, "localhost", "place"
end)
case("loop:dial", function(w)
  return w.loop, core.client("spec", nil, NOW), w.listener:address(), w.tls_client, "", "place"
end)
case("loop:turn", function(w)
  w.secure_client = core.client("spec", nil, NOW)
  w.secure_listener = assert(w.loop:listen(w.server, { host = "127.0.0.1", port = 0 }, w.tls_server))
  assert(w.loop:dial(w.secure_client, w.secure_listener:address(), w.tls_client, "localhost", "place"))
  return w.loop, 0, w.secure_listener
end)
case("loop:turns", of "loop")
case("loop:hosts", function(w) return w.loop, w.server, w.listener end)
case("loop:release", function(w) return w.loop, w.server, w.listener end)
case("loop:resolve", of("loop", "127.0.0.1"))
case("loop:lookup", of("loop", "127.0.0.1"))
case("loop:catch", function(w) return w.loop, { "HUP" } end, function(w) return w.loop, { "KILL" } end)
case("loop:close", function(w) return w.loop, w.listener end)
case("uv.start_thread", function() return "no_such_module", "", "", "text" end)
case("thread:wait", of("thread", 0))
case("thread:answer", of("thread", 1, 0))
case("thread:join", of "thread", of "failed_thread")
case("thread:wakes", function(w) return w.thread, w.loop end)

-- TLS.
local function certified(options)
  return function()
    local all = { cert = world.CERT, key = world.KEY }
    for name, value in pairs(options or {}) do all[name] = value end
    return all
  end
end
case("tls.client", certified { ca = world.CERT, server_name = "localhost" }, certified { ca = "/no/such/file" })
case("tls.client", function() return { no = "such" } end)
case("tls.server", certified(), certified { min_version = "TLS1.1" })
case("tls.check", certified(), certified { min_version = "TLS1.1" })
case("tls.self_sign", function() return { hosts = "localhost" } end)
case("tls.self_sign", function() return { hosts = "local host" } end)
case("context:connect", of("tls_client", "localhost", "place"), of("tls_client", ""))
case("context:accept", of "tls_server", of "tls_client")
case("context:refresh", of "tls_server")
case("context:trouble", of "tls_server")
case("context:news", of "tls_server")
case("context:certificate", of "tls_server")
case("context:is_for", of("tls_server", "localhost"))
case("context:close", of "tls_server")
case("channel:feed", of("channel", LONG))
case("channel:read", of "channel", of("channel", LONG, 1))
case("channel:write", of("channel", LONG))
case("channel:error", of "channel")
case("channel:error", function(w)
  w.channel:feed(LONG)
  repeat until w.channel:read() == ""
  return w.channel
end)

--- Objects of a server's thread. They have no cases: no finalizer closes them there.
local ELSEWHERE = { ["this_thread:text"] = true, ["this_thread:report"] = true, ["this_thread:asked"] = true,
  ["this_thread:question"] = true, ["this_thread:give"] = true,
  ["this_thread:wakes"] = true }

local has_case = {}
for _, one in ipairs(cases) do has_case[one.binding] = true end
for name in pairs(haunt.functions) do -- these need only their part
  local part = name:match "^([%l_]+):"
  if not has_case[name] and not ELSEWHERE[name] and (not part or world.is_part(part)) then
    case(name, part and of(part) or function() end)
    cases[#cases].needs_nothing = true
  end
end

-- }======

local tally = haunt.tally() -- `never`: bindings in which an action could have happened
local silent = {}           -- bindings that allocate no memory

--- Makes a call, with an action at its n-th allocation. Returns true if there was such an allocation; the binding where
-- the action happened; and the error of the call.
local function try(one, action, n)
  local w = world.new()
  w.arguments = pack(one.setup(w))
  local is_come_to, where, err = false, nil, nil
  if rawget(w, action.part) then
    is_come_to, where, err = haunt.at(n, function() pcall(action.act, w) end, haunt.functions[one.binding],
      unpack(w.arguments, 1, w.arguments.n))
  end
  world.check(w)
  world.close(w)
  return is_come_to, where, err
end

--- Tries an action at every allocation of a call. Returns true if it happened inside of the binding.
local function try_each(one, action)
  local is_within = false
  for n = 0, PAST do
    local is_come_to, where, err = try(one, action, n)
    if where == one.binding then
      is_within = true
      tally:count(action.name, one.binding)
    end
    if err and err ~= one.misuse and not haunt.is_clean(err) then
      tally.unclean[#tally.unclean + 1] = ("%s, %s at %d: %s"):format(one.binding, action.name, n, tostring(err))
    end
    if not is_come_to then return is_within end
  end
  error("there is no end of " .. one.binding)
end

--- Returns the error of a case without any action; nil if it raises none.
local function misuse_of(one)
  local w = world.new()
  local arguments = pack(one.setup(w))
  local ok, err = pcall(haunt.functions[one.binding], unpack(arguments, 1, arguments.n))
  world.close(w)
  return not ok and err or nil
end

local NOTHING = { name = "nothing", part = "arguments", act = function() end }

haunt.begin()
for _, one in ipairs(cases) do
  one.misuse = misuse_of(one)
  if one.needs_nothing and one.misuse then
    tally.never[#tally.never + 1] = ("%s: needs a case: %s"):format(one.binding, tostring(one.misuse))
  end
  local asks_for_memory = try_each(one, NOTHING)
  if silent[one.binding] == nil or asks_for_memory then silent[one.binding] = not asks_for_memory end
  for _, action in ipairs(asks_for_memory and world.actions or {}) do
    print(one.binding, action.name)
    io.stdout:flush()
    if not try_each(one, action) and world.has(one.setup, action.part) then
      tally.never[#tally.never + 1] = ("%s: %s"):format(one.binding, action.name)
    end
  end
end

for name in pairs(haunt.functions) do
  if silent[name] == nil and not ELSEWHERE[name] then tally.never[#tally.never + 1] = name .. ": was not tried" end
end

local quiet = {}
for name, is_silent in pairs(silent) do quiet[#quiet + 1] = is_silent and name or nil end
table.sort(quiet)
print("ask for no memory: " .. table.concat(quiet, ", "))
tally:finish(world.actions)
