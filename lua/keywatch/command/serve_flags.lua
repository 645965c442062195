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
  --listen-metrics-urls URL,...        further URLs, with only /metrics, /health, /livez and /readyz (default: none)
  --cors ORIGIN,...                    origins of web pages that may use the server over HTTP, such as
                                       https://admin.example, or * (default: none)
  --host-whitelist HOST,...            host names that HTTP requests without TLS may name, or * (default: those of the
                                       loopback interface, for requests over that interface)

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
  --tls-min-version VERSION            minimum TLS version, TLS1.2 or TLS1.3 (default: TLS1.2)
  --tls-max-version VERSION            maximum TLS version (default: TLS1.3)

Data
  --data-dir DIR                       directory of the data (default: keywatch.data)
  --memory                             store nothing on disk (default: false)
  --quota-backend-bytes N              maximum size of the data; negative: no limit
                                       (default: 2147483648)
  --journal-segment-bytes N            size of a new journal file, 65536 to 1073741824 (default: 16777216)
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
  --metrics LEVEL                      basic, or extensive: also measures how long requests take (default: basic)
  --config-file FILE                   YAML file with names and values of flags; all other flags and variables are then
                                       ignored (default: none)
  --help                               print this text

Each flag can also be set by an environment variable: ETCD_MAX_TXN_OPS sets --max-txn-ops. Flags of etcd about peers,
raft, log files and etcd's disk format are accepted and ignored.
]]

--- Flags of keywatch, most of them etcd's, with the kinds of their values, see flags.
local FLAGS = flags.by_kind {
  text = [[
    name cert-file key-file trusted-ca-file client-crl-file tls-min-version tls-max-version data-dir
    auto-compaction-mode auto-compaction-retention initial-cluster-token log-level metrics config-file
  ]],
  list = [[
    listen-client-urls listen-metrics-urls advertise-client-urls client-cert-allowed-hostname cipher-suites
    initial-advertise-peer-urls cors host-whitelist
  ]],
  integer = "quota-backend-bytes",
  count = [[
    self-signed-cert-validity max-request-bytes max-txn-ops journal-segment-bytes max-concurrent-streams
  ]],
  duration = [[
    grpc-keepalive-min-time grpc-keepalive-interval grpc-keepalive-timeout watch-progress-notify-interval
    experimental-watch-progress-notify-interval
  ]],
  boolean = "auto-tls client-cert-auth memory help h",
}

--- Flags of etcd for features that keywatch does not have. They are accepted, so that etcd's command lines work, and a
-- warning says that they have no effect.
local WITHOUT_EFFECT = flags.by_kind {
  text = [[
    listen-peer-urls initial-cluster initial-cluster-state heartbeat-interval election-timeout snapshot-count
    max-wals max-snapshots wal-dir discovery discovery-endpoints discovery-fallback discovery-proxy discovery-srv
    discovery-srv-name proxy proxy-failure-wait proxy-refresh-interval proxy-dial-timeout proxy-write-timeout
    proxy-read-timeout client-cert-file client-key-file peer-client-cert-file peer-client-key-file peer-cert-file
    peer-key-file peer-trusted-ca-file peer-cert-allowed-cn peer-cert-allowed-hostname peer-crl-file logger
    log-outputs log-rotation-config-json backend-batch-interval backend-batch-limit backend-bbolt-freelist-type
    experimental-corrupt-check-time experimental-compaction-batch-limit
  ]],
  boolean = [[
    initial-election-tick-advance pre-vote strict-reconfig-check force-new-cluster
    peer-skip-client-san-verification experimental-peer-skip-client-san-verification peer-client-cert-auth
    peer-auto-tls enable-log-rotation unsafe-no-fsync enable-v2 enable-pprof enable-grpc-gateway
    experimental-initial-corrupt-check experimental-compact-hash-check-enabled
    experimental-enable-lease-checkpoint
  ]],
}

--- Returns the kinds of all flags, by name.
local function all()
  local known = {}
  for name, kind in pairs(FLAGS) do known[name] = kind end
  for name, kind in pairs(WITHOUT_EFFECT) do known[name] = kind end
  return known
end

--- Returns the retention in seconds or revisions; or nil and a description of a valid text.
local function parse_retention(mode, text)
  if mode == "revision" then return flags.parse("count", text) end
  local seconds = flags.parse("duration", text:find("^%d+$") and text .. "h" or text)
  if seconds then return seconds end
  return nil, "a number of hours, or a duration such as 5m, at most 2562047h"
end

--- Checks by flag. Each takes a value and all values, and returns the value to use; or nil and the reason, as the end
-- of a sentence.
local checks = {}

checks["log-level"] = function(text)
  if log.is_level(text) then return text end
  return nil, (" must be debug, info, warn, error, panic or fatal, not '%s'"):format(text)
end

checks["metrics"] = function(text)
  if text == "basic" or text == "extensive" then return text end
  return nil, (" must be basic or extensive, not '%s'"):format(text)
end

local function check_urls(urls)
  for _, text in ipairs(urls) do
    local _, why = url.parse(text)
    if why then return nil, (": %s %s"):format(text, why) end
  end
  return urls
end

checks["listen-client-urls"], checks["listen-metrics-urls"] = check_urls, check_urls

checks["journal-segment-bytes"] = function(bytes)
  if bytes >= MIN_SEGMENT and bytes <= MAX_SEGMENT then return bytes end
  return nil, (" must be from %d to %d"):format(MIN_SEGMENT, MAX_SEGMENT)
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

--- Checks and converts all values. Returns a sentence with the reason; or nil.
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

--- Reads the settings of a command line. Returns them; or nil and a sentence with the reason.
local function read(arguments)
  return settings.read(arguments, all(), { "help", "h" })
end

return { HELP = HELP, read = read, find_fault = find_fault, without_effect = without_effect }
