-- SPDX-License-Identifier: MIT
--- serve: a store as a server, with etcd's flags.

local driver = require "keywatch.task.driver"
local flags = require "keywatch.command.flags"
local keywatch = require "keywatch"
local log = require "keywatch.support.log"
local settings = require "keywatch.command.settings"
local url = require "keywatch.support.url"
local uv = require "keywatch.uv"

local OK, FAILED, MISUSED = 0, 1, 2 -- exit statuses

local DATA_DIR = "keywatch.data"

local GRACE = 5 -- seconds that clients have to go
local HOUR = 3600
local PATIENCE = 2 -- seconds that opening takes without a word

local HELP = [[
keywatch serve [flags]

  Serves a store to etcd's clients, until SIGTERM or SIGINT.

  --name default                          of the member
  --listen-client-urls http://localhost:2379
                                          where to listen: http://host:port or unix://path, with commas between;
                                          the kernel chooses port 0
  --advertise-client-urls                 where clients are told to come; what it listens on
  --data-dir keywatch.data                where data is kept
  --memory                                keep it in memory alone
  --max-request-bytes 1572864             of one write
  --max-txn-ops 128                       of one transaction
  --quota-backend-bytes 2147483648        negative for none
  --max-concurrent-streams 65536          of one connection; more are not taken
  --grpc-keepalive-min-time 5s            between two pings of a client
  --grpc-keepalive-interval 2h            without a sign of a client, until it is pinged
  --grpc-keepalive-timeout 20s            for it to answer
  --watch-progress-notify-interval 10m    without an event, until a watch that asked for it is told so
  --auto-compaction-retention 0           how much of the past stays: a number of hours, or a duration such as 5m;
                                          0 for all
  --auto-compaction-mode periodic         or revision, and it is a number of revisions
  --initial-cluster-token                 ids are made of it; without it, a new store has a cluster's id of its own
  --initial-advertise-peer-urls http://localhost:2380
                                          ids are made of it, too
  --log-level info                        debug, info, warn, error, panic or fatal
  --config-file                           in YAML, with the names of flags; nothing else then has an effect
  --help

A variable such as ETCD_MAX_TXN_OPS stands for its flag. etcd's flags about peers, raft, its log files and its disk
are accepted and have no effect.
]]

local FLAGS = {
  ["name"] = "text",
  ["listen-client-urls"] = "list",
  ["advertise-client-urls"] = "list",
  ["data-dir"] = "text",
  ["memory"] = "boolean",
  ["max-request-bytes"] = "count",
  ["max-txn-ops"] = "count",
  ["quota-backend-bytes"] = "integer",
  ["max-concurrent-streams"] = "count",
  ["grpc-keepalive-min-time"] = "duration",
  ["grpc-keepalive-interval"] = "duration",
  ["grpc-keepalive-timeout"] = "duration",
  ["watch-progress-notify-interval"] = "duration",
  ["experimental-watch-progress-notify-interval"] = "duration",
  ["auto-compaction-mode"] = "text",
  ["auto-compaction-retention"] = "text",
  ["initial-cluster-token"] = "text",
  ["initial-advertise-peer-urls"] = "list",
  ["log-level"] = "text",
  ["config-file"] = "text",
  ["help"] = "boolean",
  ["h"] = "boolean",
}

--- etcd's, for what is not here: accepted, so that its command lines work, and said to have no effect.
local WITHOUT_EFFECT = {
  ["listen-peer-urls"] = "text",
  ["initial-cluster"] = "text",
  ["initial-cluster-state"] = "text",
  ["initial-election-tick-advance"] = "boolean",
  ["heartbeat-interval"] = "text",
  ["election-timeout"] = "text",
  ["snapshot-count"] = "text",
  ["max-wals"] = "text",
  ["max-snapshots"] = "text",
  ["wal-dir"] = "text",
  ["pre-vote"] = "boolean",
  ["strict-reconfig-check"] = "boolean",
  ["force-new-cluster"] = "boolean",
  ["discovery"] = "text",
  ["discovery-endpoints"] = "text",
  ["discovery-fallback"] = "text",
  ["discovery-proxy"] = "text",
  ["discovery-srv"] = "text",
  ["discovery-srv-name"] = "text",
  ["proxy"] = "text",
  ["proxy-failure-wait"] = "text",
  ["proxy-refresh-interval"] = "text",
  ["proxy-dial-timeout"] = "text",
  ["proxy-write-timeout"] = "text",
  ["proxy-read-timeout"] = "text",
  ["peer-cert-file"] = "text",
  ["peer-key-file"] = "text",
  ["peer-trusted-ca-file"] = "text",
  ["peer-client-cert-auth"] = "boolean",
  ["peer-auto-tls"] = "boolean",
  ["peer-cert-allowed-cn"] = "text",
  ["peer-cert-allowed-hostname"] = "text",
  ["peer-crl-file"] = "text",
  ["logger"] = "text",
  ["log-outputs"] = "text",
  ["enable-log-rotation"] = "boolean",
  ["log-rotation-config-json"] = "text",
  ["backend-batch-interval"] = "text",
  ["backend-batch-limit"] = "text",
  ["backend-bbolt-freelist-type"] = "text",
  ["unsafe-no-fsync"] = "boolean",
  ["enable-v2"] = "boolean",
  ["enable-pprof"] = "boolean",
  ["metrics"] = "text",
  ["listen-metrics-urls"] = "text",
  ["cipher-suites"] = "text",
  ["tls-min-version"] = "text",
  ["tls-max-version"] = "text",
  ["self-signed-cert-validity"] = "text",
  ["enable-grpc-gateway"] = "boolean",
  ["cors"] = "text",
  ["host-whitelist"] = "text",
  ["experimental-initial-corrupt-check"] = "boolean",
  ["experimental-corrupt-check-time"] = "text",
  ["experimental-compact-hash-check-enabled"] = "boolean",
  ["experimental-enable-lease-checkpoint"] = "boolean",
  ["experimental-compaction-batch-limit"] = "text",
}

--- Whoever asks for these must not believe to have them.
local REFUSED = {
  ["cert-file"] = "there is no TLS yet",
  ["key-file"] = "there is no TLS yet",
  ["client-cert-auth"] = "there is no TLS yet",
  ["trusted-ca-file"] = "there is no TLS yet",
  ["auto-tls"] = "there is no TLS yet",
}

local function all_flags()
  local known = {}
  for name, kind in pairs(FLAGS) do known[name] = kind end
  for name, kind in pairs(WITHOUT_EFFECT) do known[name] = kind end
  for name in pairs(REFUSED) do known[name] = known[name] or "text" end
  known["client-cert-auth"], known["auto-tls"] = "boolean", "boolean"
  return known
end

--- How much of the past stays, in seconds or revisions; or nil and what the text must be.
local function parse_retention(mode, text)
  if mode == "revision" then return flags.parse("count", text) end
  if text:find("^%d+$") then return tonumber(text) * HOUR end
  local seconds = flags.parse("duration", text)
  if seconds then return seconds end
  return nil, "a number of hours, or a duration such as 5m"
end

--- Each looks at a value, and returns what is used in its place; or nil and what is wrong, as the end of a sentence.
local checks = {}

checks["log-level"] = function(text)
  if log.set_level(text) then return text end
  return nil, (" must be debug, info, warn, error, panic or fatal, not '%s'"):format(text)
end

checks["listen-client-urls"] = function(urls)
  for _, text in ipairs(urls) do
    local _, why = url.parse(text)
    if why then return nil, (": %s %s"):format(text, why) end
  end
  return urls
end

checks["auto-compaction-mode"] = function(text)
  if text == "periodic" or text == "revision" then return text end
  return nil, (" must be periodic or revision, not '%s'"):format(text)
end

checks["auto-compaction-retention"] = function(text, values)
  local amount, wanted = parse_retention(values["auto-compaction-mode"], text)
  if amount then return amount end
  return nil, (" must be %s, not '%s'"):format(wanted, text)
end

--- What is asked for that cannot be, as a sentence; nil if it is all right, and every value is as it is used.
local function find_fault(given)
  local values = given.values
  for name, why in pairs(REFUSED) do
    if values[name] then return ("%s: %s"):format(given:name_of(name), why) end
  end
  if values.memory and values["data-dir"] then
    return ("%s and %s exclude each other"):format(given:name_of "memory", given:name_of "data-dir")
  end
  for name, check in pairs(checks) do
    if values[name] ~= nil then
      local value, why = check(values[name], values)
      if value == nil then return given:name_of(name) .. why end
      values[name] = value
    end
  end
end

local function say_without_effect(given)
  local names = {}
  for name in pairs(given.values) do
    if WITHOUT_EFFECT[name] then names[#names + 1] = given:name_of(name) end
  end
  table.sort(names)
  for _, name in ipairs(given.unused) do names[#names + 1] = name end
  if #names > 0 then log.warn("without effect: %s", table.concat(names, ", ")) end
  if #given.unknown > 0 then log.warn("not known: %s", table.concat(given.unknown, ", ")) end
end

--- Tells, now and then, how far the reading of a directory has come.
local function say_progress(path)
  local said = driver.get().now()
  return function(done, total)
    local now = driver.get().now()
    if now - said < PATIENCE then return end
    said = now
    log.info("reading %s: %d of %d records, %d %%", path, done, total, math.floor(100 * done / total))
  end
end

local function open_store(values)
  local quota = values["quota-backend-bytes"]
  local path = not values.memory and (values["data-dir"] or DATA_DIR) or nil
  return keywatch.open {
    path = path,
    on_progress = path and say_progress(path) or nil,
    max_request_bytes = values["max-request-bytes"],
    max_txn_ops = values["max-txn-ops"],
    quota_backend_bytes = quota ~= 0 and quota or nil, -- 0 is the default, as in etcd
    progress_interval = values["watch-progress-notify-interval"]
      or values["experimental-watch-progress-notify-interval"],
  }
end

local function open_server(store, values)
  return keywatch.serve {
    store = store,
    listen = values["listen-client-urls"],
    name = values.name,
    advertise = values["advertise-client-urls"],
    peer_urls = values["initial-advertise-peer-urls"],
    cluster_token = values["initial-cluster-token"],
    max_concurrent_streams = values["max-concurrent-streams"],
    keepalive_min_time = values["grpc-keepalive-min-time"],
    keepalive_interval = values["grpc-keepalive-interval"],
    keepalive_timeout = values["grpc-keepalive-timeout"],
    auto_compaction_mode = values["auto-compaction-mode"],
    auto_compaction_retention = values["auto-compaction-retention"],
  }
end

--- Serves until a signal comes; another one then ends the process by itself.
local function run(given)
  uv.raise_limit() -- every connection is a descriptor
  local store, err = open_store(given.values)
  local server
  if store then server, err = open_server(store, given.values) end
  if not server then
    io.stderr:write(err.message, "\n")
    return FAILED
  end
  local signals = assert(driver.get().signals { "SIGINT", "SIGTERM" })
  say_without_effect(given)
  log.write("info", "ready to serve client requests on " .. table.concat(server:addresses(), ", "))
  local name = signals:wait()
  signals:close()
  log.info("%s: no more connections are accepted, and those that there are have %d seconds to end", name, GRACE)
  server:shutdown(GRACE)
  local status = store:status()
  store:close()
  log.info("ended at revision %d%s", status.revision, status.commits and (", after %d commits"):format(status.commits)
    or "")
  return OK
end

local function main(arguments)
  local given, fault = settings.read(arguments, all_flags(), { "help", "h" })
  if given and (given.values.help or given.values.h) then
    io.stdout:write(HELP)
    return OK
  end
  fault = fault or find_fault(given)
  if fault then
    io.stderr:write(("keywatch serve: %s\n"):format(fault))
    return MISUSED
  end
  return keywatch.run(run, given)
end

return { main = main }
