-- SPDX-License-Identifier: MIT
--- metrics: the counters of a server and its store as text in Prometheus' format, version 0.0.4.
--
-- Families whose names begin with etcd_ and grpc_ have the names, labels and buckets of etcd 3.5 (some of 3.4), so that
-- its dashboards and alerts work. Families whose names begin with keywatch_ are keywatch's own. Servers of one store
-- have the numbers of the store in common; the numbers of connections and calls are per server. object:counters() reads
-- everything at one time, so the numbers are consistent.

local driver = require "keywatch.task.driver"
local metrics_text = require "keywatch.support.metrics_text"
local process = require "keywatch.server.process"
local versions = require "keywatch.server.versions"

local number_text = metrics_text.number

-- {====== Families ======

local function is_leader(_, server) return server.trouble.failure and 0 or 1 end

local function never() return 0 end

--- Returns a function that returns the sum of a field of all methods.
local function of_methods(field)
  return function(_, _, methods)
    local sum = 0
    for _, method in ipairs(methods) do sum = sum + method[field] end
    return sum
  end
end

--- Returns a decimal number of any size in hexadecimal digits.
local function to_hexadecimal(decimal)
  local digits = ""
  while decimal ~= "" do
    local quotient, rest = {}, 0
    for digit in decimal:gmatch("%d") do
      rest = rest * 10 + tonumber(digit)
      quotient[#quotient + 1] = math.floor(rest / 16)
      rest = rest % 16
    end
    digits = ("%x"):format(rest) .. digits
    decimal = table.concat(quotient):gsub("^0+", "")
  end
  return digits
end

local function server_id(_, server) return to_hexadecimal(server.identity.member_id) end

--- Returns a function that returns 1 if an alarm is armed.
local function is_armed(alarm)
  return function(_, server) return server.trouble.alarms[alarm] and 1 or 0 end
end

local function health(result)
  return function(_, server) return server.health_checks[result] end
end

local function slow_watchers(c) return c.watchers_lagging + c.watchers_blocked end

-- Each family has a name, a type, a help text and a source: the name of a number or a histogram of the core; or a
-- function of the core's numbers, the server and its methods; or a list of { labels, source }. A source whose value is
-- nil or false has no sample. With `is_label`, the value is that of the label of this name, and the number is 1.
local FAMILIES = {
  -- Server
  { "etcd_server_has_leader", "gauge", "1 unless the storage has failed, so that writes are refused.", is_leader },
  { "etcd_server_is_leader", "gauge", "1 unless the storage has failed, so that writes are refused.", is_leader },
  { "etcd_server_leader_changes_seen_total", "counter", "Always 1: a server is the leader from its start on.",
    function() return 1 end },
  { "etcd_server_is_learner", "gauge", "Always 0.", never },
  { "etcd_server_learner_promote_successes", "counter", "Always 0.", never },
  { "etcd_server_heartbeat_send_failures_total", "counter", "Always 0: there are no other members.", never },
  { "etcd_server_snapshot_apply_in_progress_total", "gauge", "Always 0.", never },
  { "etcd_server_slow_read_indexes_total", "counter", "Always 0: reads ask no other member.", never },
  { "etcd_server_read_indexes_failed_total", "counter", "Always 0: reads ask no other member.", never },
  { "etcd_server_proposals_committed_total", "gauge", "Newest revision, also if it is not durable yet.", "applied" },
  { "etcd_server_proposals_applied_total", "gauge", "Newest revision that readers see.", "revision" },
  { "etcd_server_proposals_pending", "gauge", "Revisions that wait for the disk.",
    function(c) return math.max(0, c.applied - c.revision) end },
  { "etcd_server_proposals_failed_total", "counter", "Revisions that were undone, since the disk has failed.",
    "undone" },
  { "etcd_server_slow_apply_total", "counter", "Commit groups that have taken more than 100 ms.", "slow_groups" },
  { "etcd_server_quota_backend_bytes", "gauge", "Quota of the store in bytes; 0: none.", "quota" },
  { "etcd_server_health_success", "counter", "Successful health checks, of gRPC and HTTP.", health "success" },
  { "etcd_server_health_failures", "counter", "Failed health checks, of gRPC and HTTP.", health "failures" },
  { "etcd_server_version", "gauge", "Version of etcd that is reported to clients.",
    { { { "server_version", versions.server }, function() return 1 end } } },
  { "etcd_cluster_version", "gauge", "Version of the cluster that is reported to clients.",
    { { { "cluster_version", versions.cluster }, function() return 1 end } } },
  { "etcd_server_id", "gauge", "Id of the member, in hexadecimal digits.", server_id, is_label = "server_id" },
  { "etcd_network_client_grpc_received_bytes_total", "counter", "Bytes of messages from clients.",
    of_methods "received_bytes" },
  { "etcd_network_client_grpc_sent_bytes_total", "counter", "Bytes of messages to clients.", of_methods "sent_bytes" },

  -- Keys
  { "etcd_mvcc_put_total", "counter", "Puts, also those of transactions.", "puts" },
  { "etcd_mvcc_delete_total", "counter", "Deletes, also those of transactions, and keys of revoked leases.",
    "deletes" },
  { "etcd_mvcc_range_total", "counter", "Ranges that were read, also those of transactions.", "ranges" },
  { "etcd_mvcc_txn_total", "counter", "Transactions.", "txns" },
  { "etcd_debugging_mvcc_put_total", "counter", "The same as etcd_mvcc_put_total.", "puts" },
  { "etcd_debugging_mvcc_delete_total", "counter", "The same as etcd_mvcc_delete_total.", "deletes" },
  { "etcd_debugging_mvcc_range_total", "counter", "The same as etcd_mvcc_range_total.", "ranges" },
  { "etcd_debugging_mvcc_txn_total", "counter", "The same as etcd_mvcc_txn_total.", "txns" },
  { "etcd_debugging_mvcc_total_put_size_in_bytes", "gauge", "Bytes of the keys and values of all puts.", "put_bytes" },
  { "etcd_debugging_mvcc_keys_total", "gauge", "Keys.", "keys" },
  { "etcd_debugging_mvcc_current_revision", "gauge", "Newest revision that readers see.", "revision" },
  { "etcd_debugging_mvcc_compact_revision", "gauge", "Compacted revision; -1 before the first compaction.",
    "compact_revision" },
  { "etcd_debugging_mvcc_db_compaction_keys_total", "counter", "Records that compactions have removed.",
    "compacted_records" },
  { "etcd_debugging_mvcc_db_compaction_total_duration_milliseconds", "histogram", "Duration of compactions.",
    "compaction" },
  { "etcd_debugging_mvcc_db_compaction_pause_duration_milliseconds", "histogram",
    "Duration of the steps of compactions, between which requests are answered.", "compaction_pause" },
  { "etcd_mvcc_db_total_size_in_bytes", "gauge", "Size of the database, or of the records in memory.", "db_size" },
  { "etcd_mvcc_db_total_size_in_use_in_bytes", "gauge", "Bytes of the database that have data.", "db_size_in_use" },
  { "etcd_debugging_mvcc_db_total_size_in_bytes", "gauge", "The same as etcd_mvcc_db_total_size_in_bytes.",
    "db_size" },

  -- Watches
  { "etcd_debugging_mvcc_watch_stream_total", "gauge", "Calls of Watch that are open.", "watch_streams" },
  { "etcd_debugging_mvcc_watcher_total", "gauge", "Watchers that have not failed.",
    function(c) return c.watchers_synced + slow_watchers(c) end },
  { "etcd_debugging_mvcc_slow_watcher_total", "gauge", "Watchers that have not received everything yet.",
    slow_watchers },
  { "etcd_debugging_mvcc_events_total", "counter", "Events that were sent, counted once for each watcher.",
    "events_taken" },
  { "etcd_debugging_mvcc_pending_events_total", "gauge", "Events that wait for their readers.", "events_queued" },
  { "keywatch_watchers", "gauge", "Watchers by state: lagging ones read history, blocked ones wait for their reader.",
    { { { "state", "synced" }, "watchers_synced" }, { { "state", "lagging" }, "watchers_lagging" },
      { { "state", "blocked" }, "watchers_blocked" }, { { "state", "failed" }, "watchers_failed" } } },
  { "keywatch_outlet_bytes", "gauge", "Bytes of events that wait for their readers, counted once for each "
    .. "reader.", "outlet_bytes" },

  -- Leases
  { "keywatch_leases", "gauge", "Leases.", "leases" },
  { "etcd_debugging_lease_granted_total", "counter", "Leases that were granted.", "leases_granted" },
  { "etcd_debugging_lease_renewed_total", "counter", "Renewals of leases.", "leases_renewed" },
  { "etcd_debugging_lease_revoked_total", "counter", "Leases that have ended: revoked, or expired.", "leases_revoked" },
  { "etcd_debugging_server_lease_expired_total", "counter", "Leases that have expired.", "leases_expired" },
  { "etcd_debugging_lease_ttl_total", "histogram", "Seconds for which leases were granted.", "lease_ttl" },

  -- Disk
  { "etcd_disk_wal_fsync_duration_seconds", "histogram", "Duration of writes to the journal, with their flushes.",
    "append_time" },
  { "etcd_disk_wal_write_bytes_total", "gauge", "Bytes that were written to the journal.", "journal_written" },
  { "etcd_disk_backend_commit_duration_seconds", "histogram", "Duration of transactions of the database: checkpoints, "
    .. "and commit groups that skip the journal.", "checkpoint_time" },
  { "etcd_disk_backend_defrag_duration_seconds", "histogram", "Duration of defragmentations.", "copy_time" },
  { "keywatch_commit_groups_total", "counter", "Commit groups that have become durable.", "groups" },
  { "keywatch_direct_commit_groups_total", "counter", "Commit groups that have skipped the journal.",
    "direct_groups" },
  { "keywatch_commit_group_changes", "histogram", "Changes of a commit group.", "group_changes" },
  { "keywatch_commit_group_duration_seconds", "histogram", "Time until a submitted commit group is durable.",
    "group_time" },
  { "keywatch_checkpoints_total", "counter", "Transactions of the database.", "checkpoints" },
  { "keywatch_checkpoint_pending_bytes", "gauge", "Bytes of records that the journal has, and the database lacks.",
    "lacking_bytes" },
  { "keywatch_storage_failed", "gauge", "1 if the storage has failed: writes are refused until the next start.",
    function(_, server) return server.trouble.failure and 1 or 0 end },
  { "keywatch_alarm", "gauge", "1 if the alarm is armed.",
    { { { "alarm", "no_space" }, is_armed "no_space" }, { { "alarm", "corrupt" }, is_armed "corrupt" } } },

  -- Memory, connections and requests
  { "keywatch_memory_bytes", "gauge", "Estimated memory by owner.",
    { { { "owner", "index" }, "index_bytes" }, { { "owner", "log" }, "log_bytes" },
      { { "owner", "leases" }, "lease_bytes" }, { { "owner", "connections" }, "connection_bytes" } } },
  { "keywatch_connections", "gauge", "Open connections.", "connections" },
  { "keywatch_connections_accepted_total", "counter", "Connections that were accepted.", "accepted" },
  { "keywatch_connections_refused_total", "counter", "Connections that were refused or disconnected: protocol, because "
    .. "they spoke no HTTP, or TLS has failed; memory, because they held too much.",
    { { { "reason", "protocol" }, "rejected" }, { { "reason", "memory" }, "cut" } } },
  { "keywatch_accept_failures_total", "counter", "Failed attempts to accept connections, which then wait.",
    "accept_failures" },
  { "keywatch_requests_refused_total", "counter", "Requests that were refused before their method has begun.",
    { { { "reason", "malformed" }, "malformed" }, { { "reason", "unknown_method" }, "unknown_method" },
      { { "reason", "memory" }, "over_memory" } } },
}

-- Families of the driver's loop, and of the process; both only if they are known.
local TURN = { "keywatch_loop_turn_duration_seconds", "histogram",
  "Time between two waits of the loop, in steps of 1 ms.", "turn" }
local LONGEST = { "keywatch_loop_longest_turn_seconds", "gauge",
  "The longest time between two waits of the loop.", "longest" }
local PROCESS = {
  { "process_cpu_seconds_total", "counter", "Processor time of the process.", "cpu" },
  { "process_start_time_seconds", "gauge", "Start of the process, in seconds since 1970.", "start" },
  { "process_resident_memory_bytes", "gauge", "Resident memory.", "resident" },
  { "process_virtual_memory_bytes", "gauge", "Virtual memory.", "virtual" },
  { "process_open_fds", "gauge", "Open file descriptors.", "descriptors" },
  { "process_max_fds", "gauge", "Limit of open file descriptors.", "most_descriptors" },
  { "os_fd_used", "gauge", "Open file descriptors.", "descriptors" },
  { "os_fd_limit", "gauge", "Limit of open file descriptors.", "most_descriptors" },
}

-- }======

-- {====== Text ======

local function value_of(source, counters, server, methods)
  if type(source) == "function" then return source(counters, server, methods) end
  return counters[source]
end

--- Returns the samples of a family.
local function samples_of(family, counters, server, methods)
  local name, source = family[1], family[4]
  local samples = {}
  for _, entry in ipairs(type(source) == "table" and source or { { {}, source } }) do
    local labels, value = entry[1], value_of(entry[2], counters, server, methods)
    if family.is_label then labels, value = { family.is_label, value }, 1 end
    if family[2] == "histogram" and value then
      metrics_text.add_histogram(samples, name, metrics_text.labels(labels), value)
    elseif value then
      samples[#samples + 1] = metrics_text.sample(name, labels, value)
    end
  end
  return samples
end

local function add(lines, families, counters, server, methods)
  for _, family in ipairs(families) do
    metrics_text.add_family(lines, family[1], family[2], family[3], samples_of(family, counters, server, methods))
  end
end

-- }======

-- {====== gRPC ======

local STARTED, HANDLED = "grpc_server_started_total", "grpc_server_handled_total"
local HANDLING = "grpc_server_handling_seconds"

-- Families with one number for each method: the name, the help, the field of the method.
local OF_METHODS = {
  { STARTED, "Calls that have begun.", "started" },
  { "grpc_server_msg_received_total", "Messages from clients.", "received" },
  { "grpc_server_msg_sent_total", "Messages to clients.", "sent" },
}

-- Statuses of calls, from 0 on, as etcd writes them.
local CODES = {
  "OK", "Canceled", "Unknown", "InvalidArgument", "DeadlineExceeded", "NotFound", "AlreadyExists", "PermissionDenied",
  "ResourceExhausted", "FailedPrecondition", "Aborted", "OutOfRange", "Unimplemented", "Internal", "Unavailable",
  "DataLoss", "Unauthenticated",
}

local function type_of(method)
  return method.is_unary and "unary" or method.takes_one and "server_stream" or "bidi_stream"
end

--- Returns the constant parts of a method's lines: its labels; the lines about its ends, up to their numbers; and these
-- lines as they are before its first call.
local function new_frame(method)
  local service, name = method.path:match("^/?(.*)/(.*)$")
  local labels = metrics_text.labels {
    "grpc_method", name or method.path, "grpc_service", service or "", "grpc_type", type_of(method),
  }
  local handled = {}
  for i, code in ipairs(CODES) do handled[i] = ('%s{grpc_code="%s",%s} '):format(HANDLED, code, labels) end
  return { labels = labels, handled = handled, unused = table.concat(handled, "0\n") .. "0\n" }
end

--- Returns the frames of methods, by path. A frame is made once, since it has many lines.
local function frames_of(server, methods)
  for _, method in ipairs(methods) do
    server.metric_frames[method.path] = server.metric_frames[method.path] or new_frame(method)
  end
  return server.metric_frames
end

--- Returns the lines about the ends of a method's calls.
local function handled_lines(frame, handled)
  if next(handled) == nil then return frame.unused end
  local parts = {}
  for i, head in ipairs(frame.handled) do parts[i] = head .. number_text(handled[i - 1] or 0) .. "\n" end
  return table.concat(parts)
end

--- Adds the families of calls. Every status of every method has a line, as in etcd: the rate of errors of a method
-- that has never failed is 0, and not unknown.
local function add_calls(lines, server, methods)
  local frames = frames_of(server, methods)
  table.sort(methods, function(a, b) return a.path < b.path end)
  for _, family in ipairs(OF_METHODS) do
    local samples = {}
    for i, method in ipairs(methods) do
      samples[i] = ("%s{%s} %s\n"):format(family[1], frames[method.path].labels, number_text(method[family[3]]))
    end
    metrics_text.add_family(lines, family[1], "counter", family[2], samples)
  end
  local ends, times = {}, {}
  for i, method in ipairs(methods) do
    ends[i] = handled_lines(frames[method.path], method.handled)
    if method.seconds then
      metrics_text.add_histogram(times, HANDLING, frames[method.path].labels, method.seconds)
    end
  end
  metrics_text.add_family(lines, HANDLED, "counter", "Calls that have ended, by their status.", ends)
  metrics_text.add_family(lines, HANDLING, "histogram", "Duration of calls.", times)
end

-- }======

--- Returns the text of the metrics of an open server.
local function text(server)
  local counters, methods = server.object:counters()
  local lines = {}
  add(lines, FAMILIES, counters, server, methods)
  local turns = driver.get().turns
  local turn, longest = (turns or never)()
  if turns and turn then add(lines, { TURN, LONGEST }, { turn = turn, longest = longest }) end
  add_calls(lines, server, methods)
  add(lines, PROCESS, process.read())
  return table.concat(lines)
end

--- Returns the names of all families.
local function names()
  local list = { HANDLED, HANDLING, TURN[1], LONGEST[1] }
  for _, families in ipairs { FAMILIES, OF_METHODS, PROCESS } do
    for _, family in ipairs(families) do list[#list + 1] = family[1] end
  end
  return list
end

return { text = text, names = names, CODES = CODES }
