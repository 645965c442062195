-- SPDX-License-Identifier: MIT
--- worst_requests: the worst request of each kind, to a server with many keys: the longest time that a get on another
-- connection waits meanwhile, and the peak of the server's memory above what the server had before.
--
-- The prober is a process of its own, which makes one get after the other, and keeps the longest time. It also reads
-- the server's anonymous memory every millisecond, and keeps the peak: pages of the mapped file, which the system takes
-- back when it needs memory, do not count. The client that makes the requests has the lowest priority. The times are
-- without those in which server and prober had no processor.
--
-- Every method that a server lists has a row in one of the parts, and others for its largest requests: without one,
-- nothing is measured.

local http = require "spec.support.http"
local keywatch = require "keywatch"
local methods = require "spec.support.methods"
local process = require "spec.support.process"
local rpc = require "spec.support.rpc"
local schema = require "spec.support.schema"
local server = require "spec.support.server"
local uv = require "spec.support.luv"
local waited = require("measure").waited
local wire = require "spec.support.wire"

local MAX_MS, MAX_MB = 20, 32 -- the targets; memory is that beyond the answer and what is kept
local PUTS = 128              -- of one transaction
local AT_ONCE = 16            -- transactions
local UPDATES = 60000
local LONG_KEYS = 400         -- of a quarter of LARGE bytes
local LEASED, LEASES = 100000, 100000
local WATCHERS, GROUP = 10000, 1000
local USERS, WAITERS = 40, 4000
local MOST_USERS, MOST_ITEMS = 5000, 1000 -- users, and roles of one or permissions of a role, as many as there may be
local REQUEST, SMALL = 2000000, 4000 -- bytes of the largest requests
local LARGE = 1000000  -- bytes of a value
local PIPELINED, AT_HTTP = 50, 8 -- HTTP requests on a connection, and connections
local HANDLERS = 5000  -- that wait
local MAX_MESSAGE = 2 ^ 30 -- bytes of an answer: that of all keys is larger than the client's default
local SAMPLE = 0.001   -- seconds between two looks at the server's memory
local PAGE = 4096
local MIB = 1024 * 1024
local SECONDS = 600
local TIMES = { timeout = SECONDS }
local AFTER = 1.5 -- seconds in which the server gives back what it no longer needs

-- {====== The prober ======

--- Returns a function that returns the anonymous memory of a process in MB: its pages without those of files.
local function memory_of(pid)
  local file = assert(io.open(("/proc/%d/statm"):format(pid)))
  file:setvbuf("no")
  return function()
    file:seek("set")
    local resident, shared = file:read("*a"):match("^%d+ (%d+) (%d+)")
    return (resident - shared) * PAGE / MIB
  end
end

--- Makes gets until the input ends. After each line of the input prints the longest time since the line before, in ms,
-- and how much the memory of the server has risen, in MB.
local function probe(url, pid)
  local client = assert(keywatch.connect(url))
  local memory = memory_of(pid)
  local worst, before, input = 0, memory(), uv.new_pipe(false)
  local peak = before
  input:open(0)
  input:read_start(function(_, chunk)
    if not chunk then os.exit(0) end
    local now = memory()
    io.write(("%.2f %.2f %.2f\n"):format(worst, peak - before, now - before))
    io.flush()
    worst, before = 0, now
    peak = before
  end)
  keywatch.run(function()
    io.write("probing\n")
    io.flush()
    keywatch.spawn(function()
      while true do
        peak = math.max(peak, memory())
        keywatch.sleep(SAMPLE)
      end
    end)
    local pids = { pid, "self" }
    while true do
      local waited_before, from = waited(pids), uv.hrtime()
      assert(client:get("probe", TIMES))
      local ns = uv.hrtime() - from
      worst = math.max(worst, (ns - (waited(pids) - waited_before)) / 1e6)
      uv.run("nowait")
    end
  end)
end

local function start_prober(peer)
  local prober = process.start({ arg[-1], arg[0], "probe", peer.url, tostring(peer.pid) },
    { env = { LUA_PATH = package.path, LUA_CPATH = package.cpath } })
  prober:expect("probing\n")
  return prober
end

--- Returns the longest time since the last call; how much the memory of the server has risen since, at most; and how
-- much of that the server still has.
local function worst_of(prober)
  local seen = #prober:stdout()
  prober:write("\n")
  while not prober:stdout():find("\n", seen + 1, true) do uv.run("once") end
  local worst, peak, kept = prober:stdout():sub(seen + 1):match("([%d.]+) ([%d.]+) (-?[%d.]+)")
  return tonumber(worst), tonumber(peak), tonumber(kept)
end

-- }======

-- {====== Rows ======

--- Returns about how many bytes a result has.
local function size_of(value)
  if type(value) == "string" then return #value + 2 end
  if type(value) ~= "table" then return 3 end
  local sum = 0
  for _, inner in pairs(value) do sum = sum + size_of(inner) end
  return sum
end

--- Makes a request, and prints its row. `after` is how long the server has to give memory back, in seconds.
local function row(bench, name, fn, after)
  collectgarbage()
  keywatch.sleep(0.2)
  worst_of(bench.prober)
  local from = uv.hrtime()
  local ok, result, err = pcall(fn)
  local whole = (uv.hrtime() - from) / 1e6
  keywatch.sleep(after or AFTER)
  local worst, peak, kept = worst_of(bench.prober)
  local answer = ok and result and size_of(result) / MIB or 0
  local why = not ok and tostring(result) or not result and tostring(err and err.code or err) or ""
  local beyond = (worst > MAX_MS and " TIME" or "") .. (peak - answer - math.max(0, kept) > MAX_MB and " MEMORY" or "")
  print(("  %-52s %9.1f %9.1f %9.1f %9.1f %9.1f  %s%s"):format(name, worst, peak, answer, kept, whole, why:sub(1, 40),
    beyond))
  io.stdout:flush()
end

-- }======

-- {====== Data ======

--- Calls fn(i) for i from 1 to n, in several tasks.
local function at_once(n, fn)
  local last, tasks = 0, {}
  for t = 1, AT_ONCE do
    tasks[t] = keywatch.spawn(function()
      while last < n do
        last = last + 1
        fn(last)
      end
    end)
  end
  assert(keywatch.join(tasks))
end

--- Puts n keys below a prefix.
local function fill(client, prefix, n, value, lease)
  at_once(math.ceil(n / PUTS), function(block)
    local ops = {}
    for i = (block - 1) * PUTS, math.min(n, block * PUTS) - 1 do
      ops[#ops + 1] = { put = ("%s%08d"):format(prefix, i), value = value, lease = lease }
    end
    assert(client:txn { success = ops, timeout = SECONDS })
  end)
end

-- }======

-- {====== Requests ======

local function with(fields)
  local opts = { prefix = true, timeout = SECONDS }
  for name, value in pairs(fields or {}) do opts[name] = value end
  return opts
end

--- Reads everything by a range stream, and keeps nothing of it. Returns true, or nil and an error.
local function read_stream(client, fields)
  local stream, err = client:stream("/etcdserverpb.KV/RangeStream", TIMES)
  if not stream then return nil, err end
  fields.key, fields.range_end = "/k/", "/k0"
  stream:send(fields)
  stream:finish()
  repeat
    local message
    message, err = stream:receive()
  until not message
  return not err, err
end

--- Lists all keys in pages, each with the number of keys that follow. Without store/counts.c this takes 9 times as
-- long.
local function read_pages(client, revision)
  local key, more = "/k/", true
  while more do
    local page, err = client:range(key, { range_end = "/k0", limit = 500, revision = revision, keys_only = true,
      timeout = SECONDS })
    if not page then return nil, err end
    key, more = page.kvs[#page.kvs].key .. "\0", page.more
  end
  return true
end

local function ranges(bench)
  local client, middle = bench.client, math.floor(bench.filled / 2)
  local function range(name, fields, prefix)
    row(bench, "Range: " .. name, function() return client:range(prefix or "/k/", with(fields)) end)
  end
  range("everything", {})
  range("keys_only", { keys_only = true })
  range("count_only", { count_only = true })
  row(bench, "RangeStream: everything", function() return read_stream(client, {}) end)
  row(bench, "RangeStream: keys_only", function() return read_stream(client, { keys_only = true }) end)
  range("limit = 1", { limit = 1 })
  range("limit = 10,000", { limit = 10000 })
  range("min_mod_revision, none found", { min_mod_revision = 2 ^ 40 })
  range("min_mod_revision of half, limit = 1", { min_mod_revision = middle, limit = 1 })
  range("min_create_revision, none found", { min_create_revision = 2 ^ 40 })
  for _, target in ipairs { "key", "version", "create", "mod", "value" } do
    range("sorted by " .. target .. ", descending, limit = 1",
      { sort_target = target, sort_order = "descend", limit = 1 })
  end
  range("sorted by value, keys_only", { sort_target = "value", sort_order = "ascend", keys_only = true })
  local old = assert(client:put("/old", "x")).revision
  at_once(UPDATES, function(i) assert(client:put(("/k/%08d"):format(i % bench.keys), bench.value, TIMES)) end)
  at_once(UPDATES, function() assert(client:put("/u/one", bench.value, TIMES)) end)
  range("limit = 1, old revision, 60,000 changes since", { limit = 1, revision = old })
  range("one key with 60,000 changes, old revision", { revision = old + UPDATES + 1 }, "/u/")
  range("limit = 100, sorted by mod, old revision", { limit = 100, revision = old, sort_target = "mod" })
  row(bench, "pages of 500 keys, old revision", function() return read_pages(client, old) end)
end

local function txns(bench)
  local client = bench.client
  local function txn(name, request)
    request.timeout = SECONDS
    row(bench, "Txn: " .. name, function() return client:txn(request) end)
  end
  local all, counts = {}, {}
  for i = 1, PUTS do
    all[i] = { range = "/k/", prefix = true }
    counts[i] = { range = "/k/", prefix = true, limit = 1, min_mod_revision = 2 ^ 40 }
  end
  txn("128 ranges of everything", { success = all })
  txn("128 filtered ranges, none found", { success = counts })
  local deletes, nested = {}, {}
  for i = 1, PUTS / 2 do deletes[i] = { delete = ("/nested/%d"):format(i), range_end = "/nested0" } end
  for i = 1, PUTS / 2 - 2 do nested[i] = { txn = { success = deletes, failure = deletes } } end
  txn("as many nested deletes as there may be", { success = nested })
  txn("range compare by mod_revision", { compare = { { key = "/k/", prefix = true, mod_revision = 0, op = ">" } } })
  txn("range compare by value", { compare = { { key = "/k/", prefix = true, value = "no", op = "!=" } } })
  row(bench, "Put", function() return client:put("/put", ("v"):rep(LARGE)) end)
end

local function leases(bench)
  local client = bench.client
  row(bench, "LeaseGrant", function() return client:lease(3600).id end)
  local lease = assert(client:lease(3600))
  fill(client, "/leased/", bench.leased, "v", lease.id)
  row(bench, "LeaseTimeToLive of a lease with many keys", function() return lease:keys(TIMES) end)
  row(bench, "LeaseRevoke of it", function() return lease:revoke(TIMES) end)
  at_once(bench.leases, function() assert(client:lease(3600)) end)
  row(bench, "LeaseLeases with many leases", function() return client:leases(TIMES) end)
  row(bench, "KeepAlive of unknown leases beside puts", function()
    local writer = keywatch.spawn(fill, client, "/pending/", 10000, "v")
    for _ = 1, 100 do client:lease_by_id(12345):keepalive() end
    return writer:join()
  end)
end

local function watches(bench)
  local client = bench.client
  local start = assert(client:put("/w/small", "1")).revision
  for i = 1, 200 do assert(client:put("/w/large", ("v"):rep(LARGE) .. i, TIMES)) end
  assert(client:put("/w/small", "2"))
  row(bench, "Watch: a small key beside 200 changes of 1 MB", function()
    local watch = assert(client:watch("/w/small", { start_revision = start }))
    watch:next(SECONDS)
    local event, err = watch:next(SECONDS)
    watch:close()
    return event, err
  end)
  row(bench, "Watch: everything from the first revision", function()
    local watch = assert(client:watch("/k/", { prefix = true, start_revision = 1 }))
    local event, err
    for _ = 1, bench.keys do
      event, err = watch:next(SECONDS)
      if not event then break end
    end
    watch:close()
    return event and true, err
  end)
  local all = {}
  for i = 1, bench.watchers do all[i] = assert(client:watch("/g/", { prefix = true, start_revision = 0 })) end
  row(bench, ("%d watchers beside 1,000 puts at once"):format(bench.watchers), function()
    local tasks = {}
    for i = 1, GROUP do tasks[i] = keywatch.spawn(function() return client:put("/g/" .. i, "v", TIMES) end) end
    return keywatch.join(tasks)
  end)
  row(bench, "progress requests with many watchers", function() return all[1]:sync(SECONDS) end)
  for _, watch in ipairs(all) do watch:close() end
end

local KV, LEASE, WATCH = "/etcdserverpb.KV/", "/etcdserverpb.Lease/", "/etcdserverpb.Watch/"
local MAINTENANCE, AUTH, CLUSTER = "/etcdserverpb.Maintenance/", "/etcdserverpb.Auth/", "/etcdserverpb.Cluster/"
local ELECTION, LOCK, HEALTH = "/v3electionpb.Election/", "/v3lockpb.Lock/", "/grpc.health.v1.Health/"

local LONG = ("x"):rep(SMALL - 100)

--- Returns as many empty URLs as a small request has room for.
local function urls()
  local list = {}
  for i = 1, SMALL / 2 - 10 do list[i] = "" end
  return list
end

-- The worst requests to unary methods, when there are as many users and roles as there may be, in order; those with a
-- function for what has to be known first.
local UNARY = {
  { MAINTENANCE .. "HashKV", {} }, { MAINTENANCE .. "Hash", {} }, { MAINTENANCE .. "Status", {} },
  { MAINTENANCE .. "Alarm", {} }, { MAINTENANCE .. "MoveLeader", { targetID = 1 } },
  { MAINTENANCE .. "Downgrade", { version = ("9"):rep(SMALL - 100) } }, { MAINTENANCE .. "Defragment", {} },
  { CLUSTER .. "MemberAdd", { peerURLs = urls() } }, { CLUSTER .. "MemberRemove", { ID = 1 } },
  { CLUSTER .. "MemberPromote", { ID = 1 } },
  { CLUSTER .. "MemberUpdate", function(client)
    return { ID = assert(client:call(CLUSTER .. "MemberList", {})).members[1].ID, peerURLs = urls() }
  end },
  { CLUSTER .. "MemberList", {} },
  { AUTH .. "AuthEnable", {} }, { AUTH .. "AuthDisable", {} }, { AUTH .. "AuthStatus", {} },
  { AUTH .. "Authenticate", { name = LONG } },
  { AUTH .. "UserAdd", { name = "more", password = ("p"):rep(72) } }, { AUTH .. "UserList", {} },
  { AUTH .. "UserGet", { name = "user1" } }, { AUTH .. "UserGrantRole", { user = "user1", role = "role2000" } },
  { AUTH .. "UserRevokeRole", { name = "user1", role = "role1000" } },
  { AUTH .. "UserChangePassword", { name = "user2", hashedPassword = ("A"):rep(SMALL - 200) } },
  { AUTH .. "UserDelete", { name = "user3" } },
  { AUTH .. "RoleAdd", { name = "more" } }, { AUTH .. "RoleList", {} }, { AUTH .. "RoleGet", { role = "role1" } },
  { AUTH .. "RoleGrantPermission", { name = "role1", perm = { key = LONG } } },
  { AUTH .. "RoleRevokePermission", { role = "role1", key = "/key/1" } },
  { AUTH .. "RoleDelete", { role = "role1" } },
  { HEALTH .. "Check", { service = LONG } }, { ELECTION .. "Leader", { name = LONG } },
  { ELECTION .. "Proclaim", { leader = { key = LONG, rev = 1 }, value = ("v"):rep(LARGE) } },
}

-- The requests to streams of one request, of which so many messages are read; nil: all.
local STREAMS = {
  { MAINTENANCE .. "Snapshot", {} }, { HEALTH .. "Watch", { service = LONG }, 1 },
  { ELECTION .. "Observe", { name = "/k" }, 1 },
}

--- Makes as many users and roles as there may be: one user with many roles, and one role with many permissions.
local function fill_auth(client)
  local function call(path, request) return client:call(AUTH .. path, request, TIMES) end
  at_once(MOST_USERS - 1, function(i)
    assert(call("UserAdd", { name = "user" .. i, options = { no_password = i > 2 } }))
    assert(call("RoleAdd", { name = "role" .. i }))
  end)
  at_once(MOST_ITEMS, function(i)
    assert(call("UserGrantRole", { user = "user1", role = "role" .. i }))
    assert(call("RoleGrantPermission", { name = "role1", perm = { key = "/key/" .. i } }))
  end)
end

local function services(bench)
  local client = bench.client
  row(bench, ("Auth/UserAdd, %d at once"):format(USERS), function()
    local tasks = {}
    for i = 1, USERS do
      tasks[i] = keywatch.spawn(function()
        return assert(client:call(AUTH .. "UserAdd", { name = "first" .. i, password = "secret" }, TIMES))
      end)
    end
    return keywatch.join(tasks)
  end)
  for i = 1, USERS do assert(client:call(AUTH .. "UserDelete", { name = "first" .. i }, TIMES)) end
  fill_auth(client)
  for _, one in ipairs(UNARY) do
    local path, request = one[1], one[2]
    if type(request) == "function" then request = request(client) end
    row(bench, path:match("[^.]+$"), function() return client:call(path, request, TIMES) end)
  end
  for _, one in ipairs(STREAMS) do
    row(bench, one[1]:match("[^.]+$"), function()
      local stream = assert(client:stream(one[1], TIMES))
      assert(stream:send(one[2]))
      local n, part, err = 0, stream:receive()
      while part and n ~= one[3] do
        n = n + 1
        if n ~= one[3] then part, err = stream:receive() end
      end
      stream:close()
      return n > 0, err
    end)
  end
end

--- Calls a method with bytes, and cancels the call if it goes on. Returns the status.
local function call_raw(client, path, bytes)
  local call = client:begin(path, bytes)
  local till = keywatch.now() + 1
  while not call.status and keywatch.now() < till do client:turn() end
  if not call.status then client:cancel(call) end
  return call.status or true
end

--- Returns the messages of so many bytes that have one field again and again, empty: each field of the message, and an
-- unknown one.
local function repetitions(name, bytes)
  local list = { ("\122\0"):rep(bytes / 2) }
  for _, field in ipairs(schema.messages[name]) do
    local is_text = field.type == "bytes" or field.type == "string" or schema.messages[field.type]
    local one = wire.tag(field.number, is_text and 2 or 0) .. "\0"
    list[#list + 1] = one:rep(math.floor(bytes / #one))
  end
  return list
end

--- The largest requests to every method that the server lists, by the descriptions of their messages.
local function largest(bench)
  local client = rpc.connect(bench.peer.url)
  for _, method in ipairs(bench.methods) do
    row(bench, "largest requests: " .. method.path:match("[^.]+$"), function()
      for _, size in ipairs { SMALL, REQUEST } do
        for _, bytes in ipairs(repetitions(method.request, size)) do call_raw(client, method.path, bytes) end
      end
      return true
    end, 0.1)
  end
  client:close()
end

local function queues(bench)
  local client, name = bench.client, "queue"
  for kind, paths in pairs { Lock = { "/v3lockpb.Lock/Lock", "/v3lockpb.Lock/Unlock" },
    Election = { "/v3electionpb.Election/Campaign", "/v3electionpb.Election/Resign" } } do
    local ids = {}
    for i = 1, WAITERS do ids[i] = assert(client:lease(3600)).id end
    row(bench, ("%s with %d waiters, each in turn"):format(kind, WAITERS), function()
      local tasks = {}
      for i = 1, WAITERS do
        tasks[i] = keywatch.spawn(function()
          local got = assert(client:call(paths[1], { name = name .. kind, lease = ids[i] }, TIMES))
          assert(client:call(paths[2], kind == "Lock" and { key = got.key } or { leader = got.leader }, TIMES))
        end)
      end
      return keywatch.join(tasks)
    end)
  end
end

local HOST = "Host: localhost\r\n"

local function get(path) return ("GET %s HTTP/1.1\r\n%s\r\n"):format(path, HOST) end

local function post(path, length)
  return ("POST %s HTTP/1.1\r\n%s%s\r\n\r\n"):format(path, HOST,
    length and "Content-Length: " .. length or "Transfer-Encoding: chunked")
end

--- Numbers up to n as the parameters of a query, or what else `form` makes of them.
local function numbers(n, form)
  local list = {}
  for i = 1, n do list[i] = form:format(i) end
  return table.concat(list)
end

-- HTTP requests, which each connection makes many times without waiting.
local HTTP = {
  { "98 fields of 600 bytes", "GET /text HTTP/1.1\r\n" .. HOST .. numbers(98, "x-%d: " .. ("y"):rep(600) .. "\r\n")
    .. "\r\n" },
  { "98 fields of one name", "GET /text HTTP/1.1\r\n" .. HOST .. ("x: " .. ("y"):rep(600) .. "\r\n"):rep(98)
    .. "\r\n" },
  { "a query of 1,600 parameters, read", get("/echo/a?" .. numbers(1600, "%x&")) },
  { "a path of 8,000 slashes", get(("/"):rep(8000)) },
  { "a parameter of 2,700 escapes", get("/echo/" .. ("%41"):rep(2700)) },
  { "2,000 segments for a parameter", get("/echo/" .. ("%41/"):rep(2000)) },
  { "/health", get "/health" },
  { "/metrics", get "/metrics" },
  { "1 MB in chunks of a byte, as a whole", post "/length" .. ("1\r\nx\r\n"):rep(MIB) .. "0\r\n\r\n", 1 },
  { "1 MB in chunks of a byte, in parts", post "/parts" .. ("1\r\nx\r\n"):rep(MIB) .. "0\r\n\r\n", 1 },
  { "1.5 MB as a whole", post("/length", 3 * 512 * 1024) .. ("x"):rep(3 * 512 * 1024), 1 },
  { "a million fields", "GET /text HTTP/1.1\r\n" .. HOST .. ("a: b\r\n"):rep(1000000) .. "\r\n", 1 },
}

--- Makes a request n times on each of some connections, and waits for all answers.
local function pipeline(port, request, n)
  local all = {}
  for i = 1, AT_HTTP do
    all[i] = http.connect(port)
    all[i]:say(request:rep(n))
  end
  for i = 1, AT_HTTP do
    for _ = 1, n do
      if not all[i]:wait(SECONDS) then break end
    end
    all[i]:close()
  end
  return true
end

local function plain_http(bench)
  local port = bench.peer.port
  for _, one in ipairs(HTTP) do
    row(bench, "HTTP: " .. one[1], function() return pipeline(port, one[2], one[3] or PIPELINED) end)
  end
  row(bench, ("HTTP: %d handlers that wait"):format(HANDLERS), function()
    local all = {}
    for i = 1, HANDLERS do
      all[i] = http.connect(port)
      all[i]:say(get "/wait")
      if i % 100 == 0 then uv.run "nowait" end
    end
    keywatch.sleep(1)
    for _, one in ipairs(all) do one:close() end
    return true
  end)
end

local function long_keys(bench)
  local client, key = bench.client, ("/long/"):rep(math.floor(LARGE / 24))
  for i = 1, LONG_KEYS do assert(client:put(key .. i, "", TIMES)) end
  row(bench, "Range: long keys, min_mod_revision, none found", function()
    return client:range("/long/", with { min_mod_revision = 2 ^ 40 })
  end)
  row(bench, "DeleteRange of long keys", function() return client:delete("/long/", with()) end)
end

local function deletions(bench)
  local client = bench.client
  long_keys(bench)
  row(bench, "DeleteRange of everything, prev_kv", function() return client:delete("/k/", with { prev_kv = true }) end)
  fill(client, "/k/", bench.keys, "v") -- without kw_mem_join a get waits twice as long for this row
  row(bench, "DeleteRange of everything, short values", function() return client:delete("/k/", with()) end)
  row(bench, "DeleteRange of everything again, no key exists", function() return client:delete("/k/", with()) end)
  row(bench, "Range: limit = 1 behind the tombstones", function()
    return client:range("/k/", { from_key = true, limit = 1, timeout = SECONDS })
  end)
  row(bench, "Compact of that revision", function() -- store/surplus.c gives memory back
    return client:compact(assert(client:status()).revision, { physical = true, timeout = SECONDS })
  end)
end

-- }======

local service_paths = {}
for _, list in ipairs { UNARY, STREAMS } do
  for _, one in ipairs(list) do service_paths[#service_paths + 1] = one[1] end
end

-- The parts of the table, and the methods whose worst requests are in it.
local PARTS = {
  { "ranges", ranges, { KV .. "Range", KV .. "RangeStream" } },
  { "txns", txns, { KV .. "Txn", KV .. "Put" } },
  { "leases", leases, { LEASE .. "LeaseGrant", LEASE .. "LeaseTimeToLive", LEASE .. "LeaseRevoke",
    LEASE .. "LeaseLeases", LEASE .. "LeaseKeepAlive" } },
  { "watches", watches, { WATCH .. "Watch" } },
  { "services", services, service_paths },
  { "http", plain_http, {} },
  { "queues", queues, { LOCK .. "Lock", LOCK .. "Unlock", ELECTION .. "Campaign", ELECTION .. "Resign" } },
  { "largest", largest, {} },
  { "deletions", deletions, { KV .. "DeleteRange", KV .. "Compact" } },
}

--- Returns the methods of a server that have no row, as a sorted list of paths.
local function missing(of)
  local has_row, list = {}, {}
  for _, part in ipairs(PARTS) do
    for _, path in ipairs(part[3]) do has_row[path] = true end
  end
  for _, method in ipairs(methods.of(of)) do
    if not has_row[method.path] then list[#list + 1] = method.path end
  end
  return list
end

--- Returns all methods of a server. Raises if one has no row.
local function all_methods()
  local store = keywatch.open()
  local one = assert(keywatch.serve { store = store, listen = "http://127.0.0.1:0" })
  local without, all = missing(one), methods.of(one)
  one:close()
  store:close()
  if #without > 0 then error("no row for " .. table.concat(without, ", ")) end
  return all
end

--- Measures a store of n keys. `wanted` names a part of the table; nil: all of it.
local function measure(kind, n, wanted)
  local peer = server.start { open_files = "hard", before = 'require "spec.support.http_handlers"',
    is_in_memory = kind == "memory", "--quota-backend-bytes=8589934592" }
  local bench = {
    peer = peer, methods = all_methods(), keys = n, value = ("v"):rep(100), prober = nil, client = nil, filled = 0,
    leased = math.min(n, LEASED), leases = math.min(n, LEASES), watchers = math.min(n, WATCHERS),
  }
  print(("\n%d keys, %s; a row's targets: %d ms, and %d MB beyond the answer and what is kept"):format(n, kind,
    MAX_MS, MAX_MB))
  print(("  %-52s %9s %9s %9s %9s %9s"):format("", "get ms", "peak MB", "answer MB", "kept MB", "whole ms"))
  keywatch.run(function()
    local client = assert(keywatch.connect(peer.url, { max_message = MAX_MESSAGE }))
    bench.client = client
    assert(client:put("probe", "v"))
    fill(client, "/k/", n, bench.value)
    bench.filled = assert(client:status()).revision
    bench.prober = start_prober(peer)
    assert(uv.os_setpriority(uv.os_getpid(), 19)) -- so that this process takes no time from the other two
    row(bench, "nothing", function() return keywatch.sleep(1) or true end)
    for _, part in ipairs(PARTS) do
      local ok, err = true, nil
      if not wanted or wanted == part[1] then ok, err = pcall(part[2], bench) end
      if not ok then print("  failed: " .. tostring(err)) end
    end
    bench.prober:finish_input()
    bench.prober:wait()
    client:close()
  end)
  peer:stop()
end

return { probe = probe, measure = measure, missing = missing }
