--- The metrics of a server: their grammar, their names, which are etcd's, and what they count.

local core = require "keywatch.core"
local keywatch = require "keywatch"
local metrics = require "keywatch.server.metrics"

local directory = require "spec.support.directory"
local h2 = require "spec.support.h2"
local pair = require "spec.support.pair"
local prometheus = require "spec.support.prometheus"
require "spec.support.inner"

local LOCAL = "http://127.0.0.1:0"

-- Everything that the dashboards and the alerts of etcd 3.4 to 3.7 read, with its type, but for what only clusters have
-- (etcd_network_peer_...), and other widespread dashboards.
local OF_DASHBOARDS = {
  etcd_server_has_leader = "gauge", etcd_server_is_leader = "gauge", etcd_server_leader_changes_seen_total = "counter",
  etcd_server_proposals_applied_total = "gauge", etcd_server_proposals_committed_total = "gauge",
  etcd_server_proposals_failed_total = "counter", etcd_server_proposals_pending = "gauge",
  etcd_server_quota_backend_bytes = "gauge", etcd_server_slow_apply_total = "counter",
  etcd_server_slow_read_indexes_total = "counter", etcd_server_read_indexes_failed_total = "counter",
  etcd_server_heartbeat_send_failures_total = "counter", etcd_server_health_success = "counter",
  etcd_server_health_failures = "counter", etcd_server_version = "gauge", etcd_cluster_version = "gauge",
  etcd_server_id = "gauge",
  etcd_network_client_grpc_received_bytes_total = "counter", etcd_network_client_grpc_sent_bytes_total = "counter",
  etcd_disk_wal_fsync_duration_seconds = "histogram", etcd_disk_backend_commit_duration_seconds = "histogram",
  etcd_disk_backend_defrag_duration_seconds = "histogram", etcd_disk_wal_write_bytes_total = "gauge",
  etcd_mvcc_db_total_size_in_bytes = "gauge", etcd_mvcc_db_total_size_in_use_in_bytes = "gauge",
  etcd_debugging_mvcc_db_total_size_in_bytes = "gauge",
  etcd_mvcc_put_total = "counter", etcd_mvcc_delete_total = "counter", etcd_mvcc_range_total = "counter",
  etcd_mvcc_txn_total = "counter", etcd_debugging_mvcc_put_total = "counter",
  etcd_debugging_mvcc_delete_total = "counter", etcd_debugging_mvcc_range_total = "counter",
  etcd_debugging_mvcc_txn_total = "counter", etcd_debugging_mvcc_keys_total = "gauge",
  etcd_debugging_mvcc_total_put_size_in_bytes = "gauge", etcd_debugging_mvcc_current_revision = "gauge",
  etcd_debugging_mvcc_compact_revision = "gauge", etcd_debugging_mvcc_watch_stream_total = "gauge",
  etcd_debugging_mvcc_watcher_total = "gauge", etcd_debugging_mvcc_slow_watcher_total = "gauge",
  etcd_debugging_mvcc_events_total = "counter", etcd_debugging_mvcc_pending_events_total = "gauge",
  etcd_debugging_mvcc_db_compaction_keys_total = "counter",
  etcd_debugging_mvcc_db_compaction_pause_duration_milliseconds = "histogram",
  etcd_debugging_mvcc_db_compaction_total_duration_milliseconds = "histogram",
  etcd_debugging_lease_granted_total = "counter", etcd_debugging_lease_renewed_total = "counter",
  etcd_debugging_lease_revoked_total = "counter", etcd_debugging_lease_ttl_total = "histogram",
  etcd_debugging_server_lease_expired_total = "counter",
  grpc_server_started_total = "counter", grpc_server_handled_total = "counter",
  grpc_server_msg_received_total = "counter", grpc_server_msg_sent_total = "counter",
  process_resident_memory_bytes = "gauge", process_virtual_memory_bytes = "gauge",
  process_cpu_seconds_total = "counter",
  process_start_time_seconds = "gauge", process_open_fds = "gauge", process_max_fds = "gauge", os_fd_used = "gauge",
  os_fd_limit = "gauge",
}

--- n bounds, each twice the one before.
local function doubled(first, n)
  local list = {}
  for i = 1, n do list[i] = first * 2 ^ (i - 1) end
  return list
end

local HANDLING = { 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10 }

-- The buckets of etcd's histograms.
local BUCKETS = {
  etcd_disk_wal_fsync_duration_seconds = doubled(0.001, 14),
  etcd_disk_backend_commit_duration_seconds = doubled(0.001, 14),
  etcd_disk_backend_defrag_duration_seconds = doubled(0.1, 13),
  etcd_debugging_mvcc_db_compaction_pause_duration_milliseconds = doubled(1, 13),
  etcd_debugging_mvcc_db_compaction_total_duration_milliseconds = doubled(100, 14),
  etcd_debugging_lease_ttl_total = doubled(1, 24),
  grpc_server_handling_seconds = HANDLING,
}

local unpack = rawget(table, "unpack") or rawget(_G, "unpack")

local function serve(store, opts)
  local all = { store = store, listen = LOCAL }
  for name, value in pairs(opts or {}) do all[name] = value end
  return assert(keywatch.serve(all))
end

local function read(server) return prometheus.parse(assert(server:metrics())) end

--- The numbers of a core's server that are not 0, by the names that are asked for.
local function numbers(server, names)
  local counters, list = server:counters(), {}
  for name in names:gmatch("[%w_]+") do
    list[name] = assert(counters[name], name) ~= 0 and counters[name] or nil
  end
  return list
end

local OPS = "puts put_bytes deletes ranges txns"

describe("the metrics of a server", function()
  local store, server

  before_each(function()
    store = keywatch.open()
    server = serve(store, { metrics = "extensive" })
  end)

  after_each(function()
    server:close()
    store:close()
  end)

  it("have each family that they may have, with its documented name", function()
    keywatch.sleep(0)
    local families, expected = read(server), {}
    for _, name in ipairs(metrics.names()) do
      assert.is_nil(expected[name])
      expected[name] = true
    end
    for name in pairs(expected) do assert.truthy(families[name], name) end
    for _, family in ipairs(families) do assert.is_true(expected[family.name], family.name) end
  end)

  it("have the names and types of everything that dashboards and alerts for etcd read", function()
    local families = read(server)
    for name, kind in pairs(OF_DASHBOARDS) do
      assert.truthy(families[name], name)
      assert.equal(kind, families[name].type, name)
    end
  end)

  it("have etcd's buckets", function()
    local families = read(server)
    for name, bounds in pairs(BUCKETS) do
      local found = {}
      for _, sample in ipairs(families[name].samples) do
        if sample.name == name .. "_count" then break end
        if sample.labels.le and sample.labels.le ~= "+Inf" then found[#found + 1] = tonumber(sample.labels.le) end
      end
      assert.equal(#bounds, #found, name)
      for i, bound in ipairs(bounds) do assert.near(bound, found[i], bound * 1e-12, name) end
    end
    assert.truthy(server:metrics():find('etcd_debugging_lease_ttl_total_bucket{le="1.048576e+06"} 0', 1, true))
    assert.truthy(server:metrics():find('wal_fsync_duration_seconds_bucket{le="0.001"} 0', 1, true))
  end)

  it("have a line for each method with each status, before the first call", function()
    local families, seen = read(server), {}
    for _, sample in ipairs(families.grpc_server_handled_total.samples) do
      local labels = sample.labels
      assert.equal(0, sample.value)
      seen[labels.grpc_service .. "/" .. labels.grpc_method] =
        (seen[labels.grpc_service .. "/" .. labels.grpc_method] or 0) + 1
    end
    local n = 0
    for path in pairs(server.object:methods()) do
      n = n + 1
      assert.equal(17, seen[path:sub(2)], path)
    end
    assert.is_true(n > 40)
    assert.equal(n * 17, #families.grpc_server_handled_total.samples)
    local function type_of(service, method)
      for _, sample in ipairs(families.grpc_server_started_total.samples) do
        if sample.labels.grpc_service == service and sample.labels.grpc_method == method then
          return sample.labels.grpc_type
        end
      end
    end
    assert.equal("unary", type_of("etcdserverpb.KV", "Put"))
    assert.equal("bidi_stream", type_of("etcdserverpb.Watch", "Watch"))
    assert.equal("bidi_stream", type_of("etcdserverpb.Lease", "LeaseKeepAlive"))
    assert.equal("server_stream", type_of("etcdserverpb.Maintenance", "Snapshot"))
    assert.equal("server_stream", type_of("grpc.health.v1.Health", "Watch"))
  end)

  it("leave out the duration of calls unless they are extensive", function()
    assert.truthy(read(server).grpc_server_handling_seconds)
    local basic = serve(store)
    assert.is_nil(read(basic).grpc_server_handling_seconds)
    basic:close()
    assert.has_error(function() serve(store, { metrics = "all" }) end,
      "serve: option 'metrics' must be 'basic' or 'extensive', not 'all'")
  end)

  it("name the versions and the member", function()
    local client = keywatch.connect(server:addresses()[1])
    local status, families = client:status(), read(server)
    assert.equal(1, prometheus.value(families, "etcd_server_version", { server_version = status.version }))
    assert.equal(1, prometheus.value(families, "etcd_cluster_version",
      { cluster_version = status.version:match "^%d+%.%d+" }))
    local id = families.etcd_server_id.samples[1].labels.server_id
    assert.truthy(id:find "^[1-9a-f]%x*$")
    local hash = core.sha1("http://localhost:2380etcd-cluster")
    local given = serve(store, { cluster_token = "etcd-cluster" })
    assert.equal(("%02x"):rep(8):format(hash:byte(1, 8)):gsub("^0+", ""),
      read(given).etcd_server_id.samples[1].labels.server_id)
    given:close()
    client:close()
  end)

  it("are refused by a closed server", function()
    server:close()
    assert.has_error(function() server:metrics() end, "metrics: the server is closed")
  end)

  it("show alarms, and the results of health checks", function()
    local client = keywatch.connect(server:addresses()[1])
    local function health() return client:call("/grpc.health.v1.Health/Check", {}).status end
    assert.equal("SERVING", health())
    assert(store:arm "corrupt")
    assert.equal("NOT_SERVING", health())
    assert.equal("NOT_SERVING", health())
    local families = read(server)
    assert.equal(1, prometheus.value(families, "keywatch_alarm", { alarm = "corrupt" }))
    assert.equal(0, prometheus.value(families, "keywatch_alarm", { alarm = "no_space" }))
    assert.equal(1, prometheus.value(families, "etcd_server_health_success"))
    assert.equal(2, prometheus.value(families, "etcd_server_health_failures"))
    assert.equal(1, prometheus.value(families, "etcd_server_has_leader"))
    client:close()
  end)

  it("have common numbers of the store, and each server its own calls", function()
    local other = serve(store)
    local client = keywatch.connect(other:addresses()[1])
    client:put("a", "1")
    store:put("b", "2")
    local put = { grpc_method = "Put" }
    for i, one in ipairs { server, other } do
      local families = read(one)
      assert.equal(2, prometheus.value(families, "etcd_mvcc_put_total"))
      assert.equal(2, prometheus.value(families, "etcd_debugging_mvcc_keys_total"))
      assert.equal(i - 1, prometheus.value(families, "grpc_server_started_total", put))
      assert.equal(i - 1, prometheus.value(families, "keywatch_connections"))
    end
    client:close()
    other:close()
  end)

  it("count calls of methods in Lua, mounted twice, and escape their names", function()
    server:mount('demo."Q"', { Do = function() return "" end })
    local client = keywatch.connect(server:addresses()[1])
    assert(client:call('/demo."Q"/Do', ""))
    server:mount('demo."Q"', { Do = function() return nil, { grpc_status = 7, message = "no" } end })
    assert.is_nil((client:call('/demo."Q"/Do', "")))
    local families, labels = read(server), { grpc_service = 'demo."Q"', grpc_method = "Do" }
    assert.equal(2, prometheus.value(families, "grpc_server_started_total", labels))
    labels.grpc_code = "OK"
    assert.equal(1, prometheus.value(families, "grpc_server_handled_total", labels))
    labels.grpc_code = "PermissionDenied"
    assert.equal(1, prometheus.value(families, "grpc_server_handled_total", labels))
    client:close()
  end)

  it("have the turns of the loop", function()
    keywatch.run(function()
      local ends = keywatch.now() + 0.05
      while keywatch.now() < ends do end -- luacheck: ignore 542
      keywatch.sleep(0.001)
    end)
    local families = read(server)
    assert.is_true(prometheus.value(families, "keywatch_loop_longest_turn_seconds") >= 0.045)
    assert.is_true(prometheus.value(families, "keywatch_loop_turn_duration_seconds", nil,
      "keywatch_loop_turn_duration_seconds_count") >= 1)
  end)

  it("have the numbers of the process", function()
    local families = read(server)
    local function of(name) return prometheus.value(families, "process_" .. name) end
    assert.is_true(of "resident_memory_bytes" > 1e6 and of "virtual_memory_bytes" >= of "resident_memory_bytes")
    assert.is_true(of "cpu_seconds_total" > 0 and of "cpu_seconds_total" <= os.clock())
    assert.is_true(math.abs(os.time() - of "start_time_seconds") < 86400)
    local before, files = of "open_fds", {}
    for i = 1, 10 do files[i] = assert(io.open("/dev/null")) end
    assert.equal(before + 10, prometheus.value(read(server), "process_open_fds"))
    for _, file in ipairs(files) do file:close() end
    assert.is_true(before < of "max_fds")
  end)
end)

describe("the counters of a store", function()
  local host, store

  pair.for_each_test(function(one) host, store = one, one.store end)

  local function ops() return numbers(host.server, OPS) end

  it("count operations, alone and in transactions", function()
    store:put("a", "123")
    store:put("b", "4", { prev_kv = true })
    store:delete("c")
    store:get("a")
    store:range("", { prefix = true })
    assert.same({ puts = 2, put_bytes = 6, deletes = 1, ranges = 2 }, ops())
    store:txn { success = {
      { put = "c", value = "5" }, { get = "a" }, { delete = "b" },
      { txn = { success = { { put = "d", value = "6" }, { range = "a", range_end = "z" } },
        failure = { { put = "never", value = "7" } } } },
    } }
    assert.same({ puts = 4, put_bytes = 10, deletes = 2, ranges = 4, txns = 1 }, ops())
    store:txn { compare = { { key = "a", version = 7 } }, success = { { put = "e", value = "" } },
      failure = { { get = "a" } } }
    store:txn { success = { { get = "a" } } }
    assert.same({ puts = 4, put_bytes = 10, deletes = 2, ranges = 6, txns = 3 }, ops())
    store:put("a", "", { ignore_value = true })
    assert.same({ puts = 5, put_bytes = 14, deletes = 2, ranges = 6, txns = 3 }, ops())
  end)

  it("do not count operations that fail", function()
    store:put("a", "1")
    assert.is_nil((store:put("a", "2", { lease = 7 })))
    assert.is_nil((store:range("a", { revision = 9 })))
    assert.is_nil((store:txn { success = { { put = "b", value = "1" }, { put = "c", value = "2", lease = 7 } } }))
    assert.is_nil((store:txn { success = { { delete = "a" }, { put = "a", ignore_lease = true, value = "1" } } }))
    assert.is_nil((store:lease_by_id(7):revoke()))
    assert.same({ puts = 1, put_bytes = 2 }, ops())
  end)

  it("count an operation that takes several turns once", function()
    keywatch.run(function()
      for first = 0, 12000, 100 do
        local list = {}
        for i = 1, 100 do list[i] = { put = ("k%06d"):format(first + i), value = "" } end
        store:txn { success = list }
      end
      local before = ops()
      store:range("k", { prefix = true, keys_only = true })
      local n = 0
      for _ in store:each("k", { prefix = true, page = 1000 }) do n = n + 1 end
      assert.equal(12100, n)
      store:txn { compare = { { key = "k", prefix = true, version = 1 } }, success = { { get = "k000001" } } }
      store:txn { success = { { put = "x", value = "" }, { delete = "k", prefix = true } } }
      local now = ops()
      assert.equal(before.puts + 1, now.puts)
      assert.equal(before.put_bytes + 1, now.put_bytes)
      assert.equal(1, now.deletes)
      assert.equal(before.txns + 2, now.txns)
      assert.equal(1 + 13 + 1, now.ranges)
    end)
  end)

  it("show keys, revisions, compactions and sizes", function()
    for i = 1, 5 do store:put("a", tostring(i)) end
    store:put("b", "1")
    store:delete("b")
    assert.same({ keys = 1, revision = 8, applied = 8, compact_revision = -1 },
      numbers(host.server, "keys revision applied compact_revision compacted_records"))
    store:compact(8, { physical = true })
    assert.same({ compact_revision = 8, compacted_records = 5 },
      numbers(host.server, "compact_revision compacted_records"))
    local counters = host.server:counters()
    assert.equal(1, counters.compaction.count)
    assert.is_true(counters.compaction_pause.count >= 1 and counters.compaction_pause.sum > 0)
    assert.is_true(counters.compaction.sum >= counters.compaction_pause.sum)
    assert.equal(store:status().db_size, counters.db_size)
    assert.is_true(counters.index_bytes > 0 and counters.log_bytes > 0 and counters.lease_bytes == 0)
  end)

  it("count leases that are granted, renewed, revoked and expired", function()
    local function leases()
      return numbers(host.server, "leases leases_granted leases_renewed leases_revoked leases_expired deletes")
    end
    local one, two = store:lease(10), store:lease(100)
    store:lease(5000)
    assert.is_nil((store:lease(10, { id = one.id })))
    store:put("a", "1", { lease = one.id })
    one:keepalive()
    one:keepalive()
    assert.is_nil((store:lease_by_id(7):keepalive()))
    assert.same({ leases = 3, leases_granted = 3, leases_renewed = 2 }, leases())
    two:revoke()
    assert.same({ leases = 2, leases_granted = 3, leases_renewed = 2, leases_revoked = 1 }, leases())
    while store:step(11) do end -- luacheck: ignore 542
    assert.same({ leases = 1, leases_granted = 3, leases_renewed = 2, leases_revoked = 2, leases_expired = 1,
      deletes = 1 }, leases())
    local ttl = host.server:counters().lease_ttl
    assert.equal(3, ttl.count)
    assert.equal(5110, ttl.sum)
    assert.same({ 0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 2, 2, 3 }, { unpack(ttl.counts, 1, 14) })
    assert.is_true(host.server:counters().lease_bytes > 0)
  end)

  it("count watchers by state, and their events", function()
    local function watchers()
      return numbers(host.server, "watchers_synced watchers_lagging watchers_blocked watchers_failed watch_streams "
        .. "events_taken events_queued outlet_bytes")
    end
    local client = host:client()
    local stream = client:stream "Watch"
    stream:send { create_request = { key = "a" } }
    stream:send { create_request = { key = "a", range_end = "c" } }
    stream:take()
    local own = store:watch("b")
    assert.same({ watchers_synced = 3, watch_streams = 1 }, watchers())
    store:put("a", "1")
    store:put("b", "2")
    local now = watchers()
    assert.equal(4, now.events_queued)
    assert.is_true(now.outlet_bytes > 0)
    stream:take()
    assert.same({ watchers_synced = 3, watch_streams = 1, events_taken = 3, events_queued = 1,
      outlet_bytes = watchers().outlet_bytes }, watchers())
    assert(own:next(0))
    own:close()
    assert.same({ watchers_synced = 2, watch_streams = 1, events_taken = 4 }, watchers())
    stream:send { cancel_request = { watch_id = 0 } }
    stream:take()
    assert.same({ watchers_synced = 1, watch_streams = 1, events_taken = 4 }, watchers())
    client.client:cancel(stream.call)
    host:pump()
    assert.same({ events_taken = 4 }, watchers())
    own = store:watch("a")
    store:put("a", "2")
    own:close()
    assert.same({ events_taken = 4 }, watchers())
  end)

  it("count watchers that are slow, until they have everything, and those that have failed", function()
    local own = store:watch("a")
    local value = ("v"):rep(300000)
    for i = 1, 8 do store:put("a", value .. i) end
    local counters = host.server:counters()
    assert.equal(1, counters.watchers_blocked)
    assert.is_true(counters.outlet_bytes > 8e5 and counters.events_queued < 8)
    for _ = 1, 8 do
      assert(own:next(0))
      host:step()
    end
    assert.same({ watchers_synced = 1, events_taken = 8 },
      numbers(host.server, "watchers_synced watchers_blocked watchers_lagging events_taken events_queued outlet_bytes"))
    store:compact(5)
    local late = store:watch("a", { start_revision = 2 })
    assert.equal(1, host.server:counters().watchers_lagging)
    host:step()
    assert.same({ watchers_synced = 1, watchers_failed = 1 },
      numbers(host.server, "watchers_synced watchers_lagging watchers_failed"))
    late:close()
    own:close()
  end)
end)

describe("the counters of calls", function()
  local host, client, store

  before_each(function()
    host = pair.host(nil, { measures_handling = true })
    store, client = host.store, host:client()
    host:pump()
  end)

  after_each(function() host:close() end)

  --- The counters of a method, without what is 0.
  local function of(path)
    local _, methods = host.server:counters()
    for _, method in ipairs(methods) do
      if method.path == (pair.paths[path] or path) then
        local list = { handled = method.handled }
        for _, name in ipairs { "started", "received", "received_bytes", "sent", "sent_bytes" } do
          list[name] = method[name] ~= 0 and method[name] or nil
        end
        return list, method
      end
    end
  end

  it("are those of messages and statuses", function()
    local request = core.encode("PutRequest", { key = "a", value = "b" })
    local _, _, _, bytes = client:unary("Put", { key = "a", value = "b" })
    assert.same({ started = 1, received = 1, received_bytes = #request, sent = 1, sent_bytes = #bytes,
      handled = { [0] = 1 } }, of "Put")
    client:unary("Put", { key = "a", value = "b", lease = 7 })
    client:unary("Put", {})
    local counted = of "Put"
    assert.equal(3, counted.started)
    assert.equal(3, counted.received)
    assert.equal(1, counted.sent)
    assert.same({ [0] = 1, [3] = 1, [5] = 1 }, counted.handled)
    assert.same({ handled = {} }, of "Range")
  end)

  it("are those of large answers, in one message and in many", function()
    for i = 1, 3000 do store:put("k" .. i, ("v"):rep(300)) end
    local _, _, _, bytes = client:unary("Range", { key = "k", range_end = "l" })
    local counted = of "Range"
    assert.equal(1, counted.sent)
    assert.equal(#bytes, counted.sent_bytes)
    local stream = client:stream "RangeStream"
    stream:send { key = "k", range_end = "l" }
    client.client:half_close(stream.call)
    stream:take()
    local size = 0
    for _, message in ipairs(stream.raw) do size = size + #message end
    counted = of "RangeStream"
    assert.is_true(#stream.raw > 1)
    assert.equal(#stream.raw, counted.sent)
    assert.equal(size, counted.sent_bytes)
    assert.same({ [0] = 1 }, counted.handled)
  end)

  it("are those of watch streams while they are open, and of their ends", function()
    local stream = client:stream "Watch"
    for _ = 1, 3 do stream:send { create_request = { key = "a" } } end
    stream:take()
    store:put("a", "1")
    stream:take()
    local counted = of "Watch"
    assert.same({ 1, 3, 6 }, { counted.started, counted.received, counted.sent })
    assert.same({}, counted.handled)
    client.client:cancel(stream.call)
    host:pump()
    assert.same({ [1] = 1 }, of("Watch").handled)
  end)

  it("are not those of calls without a method, which are refused", function()
    local function refused() return numbers(host.server, "unknown_method malformed over_memory") end
    local call = client:start("/etcdserverpb.KV/Nothing", nil, "")
    client.client:half_close(call)
    host:pump()
    assert.same({ unknown_method = 1 }, refused())
    host:raw():say(h2.headers(1, { { ":method", "GET" }, { ":scheme", "http" }, { ":path", "/%" },
      { ":authority", "x" } }, { ends = true }))
    assert.same({ unknown_method = 1, malformed = 1 }, refused())
    assert.same({ connections = 2, accepted = 2 }, numbers(host.server, "connections accepted rejected"))
    local foreign = host:raw(false)
    foreign:say("SSH-2.0-x\r\n")
    foreign:close()
    assert.same({ connections = 2, accepted = 3, rejected = 1 },
      numbers(host.server, "connections accepted rejected cut accept_failures"))
    assert.is_true(host.server:counters().connection_bytes > 0)
  end)

  it("are those of calls that are intercepted, also if they do not proceed", function()
    host.server:intercept()
    for _, status in ipairs { 7, 0 } do
      local call = client:start("Put", nil, core.encode("PutRequest", { key = "a" }))
      client.client:half_close(call)
      host:pump()
      local id
      repeat id = assert(host.server:next_news()) until host.server:info(id)
      if status == 0 then host.server:proceed(id) else host.server:finish(id, status, "no") end
      host:pump()
    end
    local counted = of "Put"
    assert.same({ 2, 1, 1 }, { counted.started, counted.received, counted.sent })
    assert.same({ [0] = 1, [7] = 1 }, counted.handled)
  end)

  it("are the time until the call has ended", function()
    local stream = client:stream "Watch"
    stream:take()
    host.now = host.now + 0.4
    client.client:cancel(stream.call)
    host:pump()
    local _, method = of "Watch"
    assert.equal(1, method.seconds.count)
    assert.near(0.4, method.seconds.sum, 1e-9)
    assert.same({ 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1 }, method.seconds.counts)
  end)
end)

describe("the counters of a durable store", function()
  local path, store, server

  before_each(function()
    path = directory.new() .. "/data"
    store = assert(keywatch.open { path = path })
    server = serve(store)
  end)

  after_each(function()
    server:close()
    store:close()
    directory.remove_all()
  end)

  local function value(name, labels, part) return prometheus.value(read(server), name, labels, part) end

  it("count commit groups, writes to the journal and checkpoints", function()
    local groups, bytes = value "keywatch_commit_groups_total", value "etcd_disk_wal_write_bytes_total"
    local changes = value("keywatch_commit_group_changes", nil, "keywatch_commit_group_changes_sum")
    for i = 1, 10 do store:put("a", tostring(i)) end
    local families = read(server)
    local function count(name) return prometheus.value(families, name, nil, name .. "_count") end
    assert.equal(store:status().commits, prometheus.value(families, "keywatch_commit_groups_total"))
    assert.equal(groups + 10, prometheus.value(families, "keywatch_commit_groups_total"))
    assert.equal(groups + 10, count "keywatch_commit_group_changes")
    assert.equal(groups + 10, count "keywatch_commit_group_duration_seconds")
    assert.equal(changes + 10, prometheus.value(families, "keywatch_commit_group_changes", nil,
      "keywatch_commit_group_changes_sum"))
    local direct = prometheus.value(families, "keywatch_direct_commit_groups_total")
    assert.equal(groups + 10 - direct, count "etcd_disk_wal_fsync_duration_seconds")
    assert.is_true(prometheus.value(families, "etcd_disk_wal_write_bytes_total") >= bytes + 10 * 64)
    assert.is_true(prometheus.value(families, "keywatch_checkpoint_pending_bytes") > 0)
    assert.equal(12, prometheus.value(families, "etcd_server_proposals_applied_total") + 1)
    local checkpoints = prometheus.value(families, "keywatch_checkpoints_total")
    assert(store:defragment())
    families = read(server)
    assert.equal(checkpoints + 2, prometheus.value(families, "keywatch_checkpoints_total"))
    assert.equal(checkpoints + 2, count "etcd_disk_backend_commit_duration_seconds")
    assert.equal(1, count "etcd_disk_backend_defrag_duration_seconds")
    assert.equal(direct + 1, prometheus.value(families, "keywatch_direct_commit_groups_total"))
    assert.equal(0, prometheus.value(families, "keywatch_checkpoint_pending_bytes"))
    local status = store:status()
    assert.equal(status.db_size, prometheus.value(families, "etcd_mvcc_db_total_size_in_bytes"))
    assert.equal(status.quota, prometheus.value(families, "etcd_server_quota_backend_bytes"))
  end)

  it("begin at 0 when the store is opened", function()
    store:put("a", "1")
    assert.equal(1, value "etcd_mvcc_put_total")
    server:close()
    store:close()
    store = assert(keywatch.open { path = path })
    server = serve(store)
    assert.equal(0, value "etcd_mvcc_put_total")
    assert.equal(1, value "etcd_debugging_mvcc_keys_total")
  end)

  it("show a storage that has failed, and count what was undone", function()
    store:put("a", "1")
    directory.remove(path)
    assert.is_nil((store:put("a", "2")))
    keywatch.sleep(0)
    local families = read(server)
    assert.equal(1, prometheus.value(families, "keywatch_storage_failed"))
    assert.equal(0, prometheus.value(families, "etcd_server_has_leader"))
    assert.equal(1, prometheus.value(families, "etcd_server_proposals_failed_total"))
    assert.equal(0, prometheus.value(families, "etcd_server_proposals_pending"))
  end)
end)

describe("the metrics of a server in a thread", function()
  local server

  before_each(function() server = assert(keywatch.serve { thread = true, listen = LOCAL, metrics = "extensive" }) end)
  after_each(function() server:close() end)

  it("come to a task, and to a program without tasks", function()
    local client = keywatch.connect(server:addresses()[1])
    client:put("a", "1")
    client:put("b", "2")
    local families = read(server)
    assert.equal(2, prometheus.value(families, "etcd_mvcc_put_total"))
    assert.truthy(families.grpc_server_handling_seconds)
    keywatch.run(function()
      local others = {}
      for i = 1, 5 do
        others[i] = keywatch.spawn(function()
          return prometheus.value(read(server), "etcd_mvcc_put_total")
        end)
      end
      for _, one in ipairs(others) do assert.equal(2, (select(2, one:join()))) end
    end)
    client:close()
  end)

  it("are refused when it is closed", function()
    server:close()
    assert.has_error(function() server:metrics() end, "metrics: the server is closed")
  end)
end)
