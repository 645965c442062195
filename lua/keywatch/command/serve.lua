-- SPDX-License-Identifier: MIT
--- serve: the command `keywatch serve`: opens a store, and serves it until a signal arrives.

local compat = require "keywatch.support.compat"
local driver = require "keywatch.task.driver"
local keywatch = require "keywatch"
local log = require "keywatch.support.log"
local serve_flags = require "keywatch.command.serve_flags"
local start = require "keywatch.command.start"
local tls_flags = require "keywatch.command.tls_flags"
local uv = require "keywatch.uv"

local OK, FAILED = 0, 1 -- exit statuses

local DATA_DIR = "keywatch.data"

local STATUS_OF = { INT = 130, TERM = 143 } -- exit statuses that a shell uses for these signals

local DESCRIPTORS = 32 -- file descriptors that must be free: the server itself uses about 20

local GRACE = 5 -- seconds for clients to disconnect
local PATIENCE = 1 -- seconds between two log lines about the progress of opening

--- Warns of settings that have no effect, and of unknown variables.
local function warn_of_settings(given)
  local names = serve_flags.without_effect(given)
  if #names > 0 then log.warn("without effect: %s", table.concat(names, ", ")) end
  if #given.unknown > 0 then log.warn("unknown environment variables: %s", table.concat(given.unknown, ", ")) end
  for _, text in ipairs(tls_flags.warnings(given)) do log.warn("%s", text) end
end

--- Returns the directory of the data; nil if nothing is stored on disk.
local function data_dir(values)
  return not values.memory and (values["data-dir"] or DATA_DIR) or nil
end

--- Returns a function that logs periodically how much of a data directory has been read.
local function progress_logger(path)
  local logged_at = driver.get().now()
  return function(done, total)
    local now = driver.get().now()
    if now - logged_at < PATIENCE then return end
    logged_at = now
    log.info("reading %s: %d of %d records, %d %%", path, done, total, math.floor(100 * done / total))
  end
end

--- Returns a store; or nil and an error.
local function open_store(values)
  local quota = values["quota-backend-bytes"]
  local path = data_dir(values)
  return keywatch.open {
    path = path,
    on_progress = path and progress_logger(path) or nil,
    max_request_bytes = values["max-request-bytes"],
    max_txn_ops = values["max-txn-ops"],
    quota_backend_bytes = quota ~= 0 and quota or nil, -- 0 is the default, as in etcd
    journal_segment_bytes = values["journal-segment-bytes"],
    progress_interval = values["watch-progress-notify-interval"]
      or values["experimental-watch-progress-notify-interval"],
  }
end

--- Returns a server; or nil and an error.
local function open_server(store, values)
  return keywatch.serve {
    store = store,
    listen = values["listen-client-urls"],
    listen_metrics = values["listen-metrics-urls"],
    tls = tls_flags.options(values, data_dir(values)),
    name = values.name,
    advertise = values["advertise-client-urls"],
    peer_urls = values["initial-advertise-peer-urls"],
    cluster_token = values["initial-cluster-token"],
    max_concurrent_streams = values["max-concurrent-streams"],
    keepalive_min_time = values["grpc-keepalive-min-time"],
    keepalive_interval = values["grpc-keepalive-interval"],
    keepalive_timeout = values["grpc-keepalive-timeout"],
    cors = values.cors,
    host_whitelist = values["host-whitelist"],
    log_level = values["log-level"],
    metrics = values.metrics,
    auto_compaction_mode = values["auto-compaction-mode"],
    auto_compaction_retention = values["auto-compaction-retention"],
  }
end

--- Ends the process at once at a second signal. That is safe, as answered writes are on the disk.
local function end_at_second(signals)
  local name = signals:wait()
  log.warn("SIG%s: ending at once", name)
  os.exit(STATUS_OF[name])
end

--- Returns a sentence if so few descriptors are free that the server could not start; or nil.
local function find_shortage(values)
  local files = {}
  for i = 1, DESCRIPTORS do
    files[i] = io.open("/dev/null")
    if not files[i] then break end
  end
  local n = #files
  for _, file in ipairs(files) do file:close() end
  if n == DESCRIPTORS then return nil end
  return ("keywatch: cannot serve %s: %d file descriptors are free, and at least %d are needed: raise the limit, "
    .. "see ulimit -n"):format(data_dir(values) or "from memory", n, DESCRIPTORS)
end

--- Returns a store and a server; or nil and a sentence.
local function open(values)
  uv.raise_limit() -- every connection is a descriptor
  local shortage = find_shortage(values)
  if shortage then return nil, shortage end
  local store, err = open_store(values)
  if not store then return nil, err.message end
  local server
  server, err = open_server(store, values)
  if server then return store, server end
  if err.code ~= "no_space" then return nil, "keywatch: " .. start.with_flags(err.message, tls_flags.OPTIONS) end
  return nil, ("keywatch: cannot serve %s: there is no room for the ids of the server: the disk or the quota is full")
    :format(data_dir(values) or "from memory")
end

--- Serves until a signal arrives. Returns the exit status.
local function run(given)
  compat.collect_in_steps()
  local store, server = open(given.values)
  if not store then
    io.stderr:write(server, "\n")
    return FAILED
  end
  local signals = assert(keywatch.signals { "INT", "TERM" })
  warn_of_settings(given)
  if server.certificates then log.info("TLS: %s", server.certificates:describe()) end
  local urls, metrics_urls = server:addresses()
  if metrics_urls[1] then log.info("metrics and health are on %s", table.concat(metrics_urls, ", ")) end
  log.write("info", "ready to serve client requests on " .. table.concat(urls, ", "))
  local name = signals:wait()
  keywatch.spawn(end_at_second, signals)
  log.info("SIG%s: shutting down: no new connections are accepted, open ones have %d seconds to end", name, GRACE)
  server:shutdown(GRACE)
  local status = store:status()
  store:close()
  log.info("ended at revision %d%s", status.revision, status.commits and (", after %d commits"):format(status.commits)
    or "")
  return OK
end

--- Runs the command. Returns the exit status.
local function main(arguments)
  return start.main("serve", serve_flags, run, arguments)
end

return { main = main }
