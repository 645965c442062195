-- SPDX-License-Identifier: MIT
--- serve_flags: the flags of `keywatch serve`: their names, their kinds, their help, and the checks of their values.
--
-- Names, meanings and defaults are etcd's, wherever etcd has the flag.

local flags = require "keywatch.command.flags"
local log = require "keywatch.support.log"
local settings = require "keywatch.command.settings"
local tls_flags = require "keywatch.command.tls_flags"
local url = require "keywatch.support.url"

local MIN_SEGMENT, MAX_SEGMENT = 65536, 1073741824 -- bytes, those of the option journal_segment_bytes of open

local HELP = [[
keywatch serve [flags]

  Serves a store to etcd's clients until SIGTERM or SIGINT.

Listening
  --listen-client-urls URL,...         URLs to listen on, http://HOST:PORT or unix://PATH, with TLS https://HOST:PORT or
                                       unixs://PATH; with port 0 the kernel chooses the port
                                       (default: http://localhost:2379)
  --advertise-client-urls URL,...      URLs announced to clients (default: the listen URLs)

TLS
  --cert-file FILE                     certificate of the server in PEM, followed by its intermediate certificates
  --key-file FILE                      private key of that certificate
  --auto-tls                           create the certificate and the key, below the data directory (default: false)
  --self-signed-cert-validity N        years that such a certificate is valid (default: 1)
  --client-cert-auth                   require client certificates (default: false)
  --trusted-ca-file FILE               authorities of client certificates, which are then required (default: with
                                       --client-cert-auth, those that the system trusts)
  --client-crl-file FILE               revocation list for client certificates
  --client-cert-allowed-hostname NAME,...
                                       accept only client certificates for one of these names and addresses
  --cipher-suites SUITE,...            cipher suites to use, by their names in Go, such as
                                       TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 (default: all that are safe)
  --tls-min-version VERSION            minimum version of TLS, TLS1.2 or TLS1.3 (default: TLS1.2)
  --tls-max-version VERSION            maximum version of TLS (default: TLS1.3)

Data
  --data-dir DIR                       directory of the data (default: keywatch.data)
  --memory                             store nothing on disk (default: false)
  --quota-backend-bytes N              maximum size of the data; negative: no limit
                                       (default: 2147483648)
  --journal-segment-bytes N            maximum size of a journal file, 65536 to 1073741824; 0: no journal
                                       (default: 67108864)
  --auto-compaction-retention R        how much history to keep: a number of hours, or a duration such as 5m; 0: all
                                       (default: 0)
  --auto-compaction-mode MODE          periodic, or revision: then the retention is a number of revisions
                                       (default: periodic)

Limits
  --max-request-bytes N                maximum size of a write request (default: 1572864)
  --max-txn-ops N                      maximum number of operations in one transaction (default: 128)
  --max-concurrent-streams N           maximum number of open requests on one connection (default: 65536)
  --grpc-keepalive-min-time D          minimum time between two pings of a client; a client that pings more often is
                                       disconnected (default: 5s)
  --grpc-keepalive-interval D          time without data from a client until the server pings it (default: 2h)
  --grpc-keepalive-timeout D           time to wait for the answer to a ping (default: 20s)
  --watch-progress-notify-interval D   time without events until a watch with progress notification gets one
                                       (default: 10m)

Identity
  --name NAME                          name of the member (default: default)
  --initial-cluster-token TOKEN        input for the ids of cluster and member (default: every new store has a cluster
                                       id of its own)
  --initial-advertise-peer-urls URL,...
                                       more input for these ids (default: http://localhost:2380)

Other
  --log-level LEVEL                    lowest level that is logged: debug, info, warn, error, panic or fatal; debug
                                       shows connections, refused requests and slow requests (default: info)
  --config-file FILE                   YAML file with names and values of flags; all other flags and variables are then
                                       ignored (default: none)
  --help                               print this text

Every flag can be given as an environment variable, too: ETCD_MAX_TXN_OPS stands for --max-txn-ops. Flags of etcd about
peers, raft, log files and etcd's disk format are accepted and ignored.
]]

--- Flags of keywatch, most of them etcd's, with the kinds of their values, see flags.
local FLAGS = {
  ["name"] = "text",
  ["listen-client-urls"] = "list",
  ["advertise-client-urls"] = "list",
  ["cert-file"] = "text",
  ["key-file"] = "text",
  ["auto-tls"] = "boolean",
  ["self-signed-cert-validity"] = "count",
  ["client-cert-auth"] = "boolean",
  ["trusted-ca-file"] = "text",
  ["client-crl-file"] = "text",
  ["client-cert-allowed-hostname"] = "list",
  ["cipher-suites"] = "list",
  ["tls-min-version"] = "text",
  ["tls-max-version"] = "text",
  ["data-dir"] = "text",
  ["memory"] = "boolean",
  ["max-request-bytes"] = "count",
  ["max-txn-ops"] = "count",
  ["quota-backend-bytes"] = "integer",
  ["journal-segment-bytes"] = "count",
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

--- Flags of etcd for things that keywatch does not have. They are accepted, so that etcd's command lines work, and a
-- warning says that they have no effect.
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
  ["client-cert-file"] = "text",
  ["client-key-file"] = "text",
  ["peer-client-cert-file"] = "text",
  ["peer-client-key-file"] = "text",
  ["peer-skip-client-san-verification"] = "boolean",
  ["experimental-peer-skip-client-san-verification"] = "boolean",
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
  ["enable-grpc-gateway"] = "boolean",
  ["cors"] = "text",
  ["host-whitelist"] = "text",
  ["experimental-initial-corrupt-check"] = "boolean",
  ["experimental-corrupt-check-time"] = "text",
  ["experimental-compact-hash-check-enabled"] = "boolean",
  ["experimental-enable-lease-checkpoint"] = "boolean",
  ["experimental-compaction-batch-limit"] = "text",
}

--- Returns the kinds of all flags, by name.
local function all()
  local known = {}
  for name, kind in pairs(FLAGS) do known[name] = kind end
  for name, kind in pairs(WITHOUT_EFFECT) do known[name] = kind end
  return known
end

--- Returns how much history stays, in seconds or revisions; or nil and a description of a good text.
local function parse_retention(mode, text)
  if mode == "revision" then return flags.parse("count", text) end
  local seconds = flags.parse("duration", text:find("^%d+$") and text .. "h" or text)
  if seconds then return seconds end
  return nil, "a number of hours, or a duration such as 5m, at most 2562047h"
end

--- Checks by flag. Each takes a value and all values, and returns the value to use; or nil and the end of a sentence
-- that says what is wrong.
local checks = {}

checks["log-level"] = function(text)
  if log.is_level(text) then return text end
  return nil, (" must be debug, info, warn, error, panic or fatal, not '%s'"):format(text)
end

checks["listen-client-urls"] = function(urls)
  for _, text in ipairs(urls) do
    local _, why = url.parse(text)
    if why then return nil, (": %s %s"):format(text, why) end
  end
  return urls
end

checks["journal-segment-bytes"] = function(bytes)
  if bytes == 0 or (bytes >= MIN_SEGMENT and bytes <= MAX_SEGMENT) then return bytes end
  return nil, (" must be 0, or from %d to %d"):format(MIN_SEGMENT, MAX_SEGMENT)
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

--- Checks all values, and converts them to what the command uses. Returns a sentence that says what is wrong; or nil.
local function find_fault(given)
  local values = given.values
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
  return tls_flags.find_fault(given)
end

--- Returns the names of the settings that have no effect, in order.
local function without_effect(given)
  local names = {}
  for name in pairs(given.values) do
    if WITHOUT_EFFECT[name] then names[#names + 1] = given:name_of(name) end
  end
  table.sort(names)
  for _, name in ipairs(given.unused) do names[#names + 1] = name end
  return names
end

--- Reads the settings of a command line. Returns them; or nil and a sentence that says what is wrong.
local function read(arguments)
  return settings.read(arguments, all(), { "help", "h" })
end

return { HELP = HELP, read = read, find_fault = find_fault, without_effect = without_effect }
