-- SPDX-License-Identifier: MIT
--- serve: a store as a server, with etcd's flags.

local driver = require "keywatch.driver"
local flags = require "keywatch.command.flags"
local keywatch = require "keywatch"
local log = require "keywatch.log"
local url = require "keywatch.url"

local OK, FAILED, MISUSED = 0, 1, 2 -- exit statuses

local DATA_DIR = "keywatch.data"

local GRACE = 5 -- seconds that clients have to go

local HELP = [[
keywatch serve [flags]

  Serves a store to etcd's clients, until SIGTERM or SIGINT. Data is in memory.

  --name default                          of the member
  --listen-client-urls http://localhost:2379
                                          where to listen: http://host:port or unix://path, with commas between;
                                          the kernel chooses port 0
  --advertise-client-urls                 where clients are told to come; what it listens on
  --memory                                keep data in memory, which is all there is yet
  --data-dir                              not yet
  --max-request-bytes 1572864             of one write
  --max-txn-ops 128                       of one transaction
  --quota-backend-bytes 2147483648        negative for none
  --max-concurrent-streams 4294967295     of one connection
  --grpc-keepalive-min-time 5s            between two pings of a client
  --grpc-keepalive-interval 2h            without a sign of a client, until it is pinged
  --grpc-keepalive-timeout 20s            for it to answer
  --watch-progress-notify-interval 10m    without an event, until a watch that asked for it is told so
  --initial-cluster-token etcd-cluster    ids are made of it,
  --initial-advertise-peer-urls http://localhost:2380
                                          and of this
  --log-level info                        debug, info, warn, error, panic or fatal
  --help

etcd's flags about peers, raft, its log files and its disk are accepted and have no effect.
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
  ["initial-cluster-token"] = "text",
  ["initial-advertise-peer-urls"] = "list",
  ["log-level"] = "text",
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
  ["discovery-srv"] = "text",
  ["peer-cert-file"] = "text",
  ["peer-key-file"] = "text",
  ["peer-trusted-ca-file"] = "text",
  ["peer-client-cert-auth"] = "boolean",
  ["peer-auto-tls"] = "boolean",
  ["logger"] = "text",
  ["log-outputs"] = "text",
  ["enable-log-rotation"] = "boolean",
  ["log-rotation-config-json"] = "text",
  ["auto-compaction-mode"] = "text",
  ["auto-compaction-retention"] = "text",
  ["backend-batch-interval"] = "text",
  ["backend-batch-limit"] = "text",
  ["backend-bbolt-freelist-type"] = "text",
  ["unsafe-no-fsync"] = "boolean",
  ["enable-v2"] = "boolean",
  ["enable-pprof"] = "boolean",
  ["metrics"] = "text",
  ["listen-metrics-urls"] = "text",
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

--- What the command line asks for that cannot be, as a sentence; nil if it is all right.
local function find_fault(values)
  for name, why in pairs(REFUSED) do
    if values[name] then return ("--%s: %s"):format(name, why) end
  end
  if values.memory and values["data-dir"] then return "--memory and --data-dir cannot both be" end
  if values["log-level"] and not log.set_level(values["log-level"]) then
    return ("--log-level must be debug, info, warn, error, panic or fatal, not '%s'"):format(values["log-level"])
  end
  for _, text in ipairs(values["listen-client-urls"] or {}) do
    local _, why = url.parse(text)
    if why then return ("--listen-client-urls: %s %s"):format(text, why) end
  end
end

local function say_without_effect(values)
  local names = {}
  for name in pairs(values) do
    if WITHOUT_EFFECT[name] then names[#names + 1] = "--" .. name end
  end
  table.sort(names)
  if #names > 0 then log.warn("without effect: %s", table.concat(names, ", ")) end
end

local function open_store(values)
  local quota = values["quota-backend-bytes"]
  return keywatch.open {
    path = not values.memory and (values["data-dir"] or DATA_DIR) or nil,
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
  }
end

--- Serves until a signal comes; another one then ends the process by itself.
local function run(values)
  local store, err = open_store(values)
  local server
  if store then server, err = open_server(store, values) end
  if not server then
    io.stderr:write(err.message, "\n")
    return FAILED
  end
  local signals = assert(driver.get().signals { "SIGINT", "SIGTERM" })
  say_without_effect(values)
  log.write("info", "ready to serve client requests on " .. table.concat(server:addresses(), ", "))
  local name = signals:wait()
  signals:close()
  log.info("%s: no more connections are accepted, and those that there are have %d seconds to end", name, GRACE)
  server:shutdown(GRACE)
  store:close()
  log.info("ended")
  return OK
end

local function main(arguments)
  local values, fault = flags.read(arguments, all_flags())
  if values and (values.help or values.h) then
    io.stdout:write(HELP)
    return OK
  end
  fault = fault or find_fault(values)
  if fault then
    io.stderr:write(("keywatch serve: %s\n"):format(fault))
    return MISUSED
  end
  return keywatch.run(run, values)
end

return { main = main }
