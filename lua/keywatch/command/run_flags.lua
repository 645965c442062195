-- SPDX-License-Identifier: MIT
--- run_flags: the flags of `keywatch run`: their names, their kinds, their help, and the checks of their values.
--
-- Connection flags have the names and meanings of etcdctl.

local flags = require "keywatch.command.flags"
local log = require "keywatch.support.log"
local settings = require "keywatch.command.settings"
local tls = require "keywatch.support.tls"
local url = require "keywatch.support.url"

local PREFIX = "KEYWATCH_" -- of environment variables
local ENDPOINT = "http://127.0.0.1:2379"
local END = "--"           -- the arguments after it are for the file

local HELP = [[
keywatch run FILE [flags] [-- ARGUMENT...]

  Runs the controllers of FILE until SIGTERM or SIGINT, finishes the queued work, and stops them in order. FILE is a Lua
  file that returns a function. The function is called with a manager and the arguments, and adds controllers to the
  manager. require finds modules in the directory of FILE.

Store
  --endpoints URL,...     servers of keywatch or etcd, http://HOST:PORT or unix:PATH, with TLS https://HOST:PORT or
                          unixs:PATH (default: http://127.0.0.1:2379)
  --cacert FILE           trusted certificate authorities, in PEM (default: those of the system)
  --cert FILE             certificate of this client in PEM
  --key FILE              private key of that certificate
  --user NAME[:PASSWORD]  user, for servers with authentication
  --password PASSWORD     password of the user, if --user has none. Other users of the machine can read command lines:
                          prefer the environment variable KEYWATCH_PASSWORD
  --memory                no server: a store in this process, in memory (default: false)
  --data-dir DIR          no server: a store in this process, on disk in DIR

Election
  --election NAME         run only while this process is the leader of the election NAME (default: none)
  --id TEXT               name of this process in the election (default: HOST:PID)
  --ttl D                 time after which another process leads if this one has died, in whole seconds (default: 15s)

Monitoring
  --listen-metrics-urls URL,...
                          URLs with /metrics, /healthz, /livez and /readyz, http://HOST:PORT or unix://PATH, with TLS
                          https://HOST:PORT or unixs://PATH (default: none)
  --metrics-cert FILE     certificate for those with TLS, in PEM
  --metrics-key FILE      private key of that certificate
  --metrics-cacert FILE   authorities of client certificates, which are then required there
  --metrics-file FILE     file that is replaced every 10 seconds with all metrics, as Prometheus text

Other
  --stop-timeout D        time to stop after a signal (default: 30s)
  --log-level LEVEL       lowest level that is logged: debug, info, warn, error, panic or fatal (default: info)
  --help                  print this text

Each flag can also be set by an environment variable: KEYWATCH_DATA_DIR sets --data-dir. A second signal ends the
program at once. The exit status is 0 after a signal, 1 after a failure, and 2 for a wrong command line.
]]

--- Flags with the kinds of their values, see flags.
local FLAGS = flags.by_kind {
  text = [[
    cacert cert key user password data-dir election id metrics-cert metrics-key metrics-cacert metrics-file log-level
  ]],
  list = "endpoints listen-metrics-urls",
  duration = "ttl stop-timeout",
  boolean = "memory help h",
}

local TLS = { "cacert", "cert", "key" }
local OF_CLIENTS = { "endpoints", "cacert", "cert", "key", "user", "password" }

--- True if a flag about TLS is given.
local function has_tls(values)
  return (values.cacert or values.cert or values.key) ~= nil
end

--- Returns the endpoints.
local function endpoints(values)
  return values.endpoints or { ENDPOINT }
end

--- Returns the endpoints with TLS, and those without, as URLs. Endpoints that are malformed are left out.
local function split(values)
  local secure, plain = {}, {}
  for _, text in ipairs(endpoints(values)) do
    local full = url.of_endpoint(text, has_tls(values))
    local address = full and url.parse(full)
    if address then table.insert(address.is_tls and secure or plain, full) end
  end
  return secure, plain
end

-- {====== Checks ======

-- Each takes the settings and their values, and returns a sentence with the reason; or nil.
local checks = {}

function checks.texts(given, values)
  for name, kind in pairs(FLAGS) do
    if kind == "text" and values[name] == "" then return given:name_of(name) .. " must not be empty" end
  end
end

function checks.log_level(given, values)
  local level = values["log-level"]
  if level and not log.is_level(level) then
    return ("%s must be debug, info, warn, error, panic or fatal, not '%s'"):format(given:name_of "log-level", level)
  end
end

--- A store in this process has no connection.
function checks.stores(given, values)
  if values.memory and values["data-dir"] then
    return ("%s and %s exclude each other"):format(given:name_of "memory", given:name_of "data-dir")
  end
  local own = values.memory and "memory" or values["data-dir"] and "data-dir"
  for _, name in ipairs(own and OF_CLIENTS or {}) do
    if values[name] ~= nil then
      return ("%s and %s exclude each other"):format(given:name_of(name), given:name_of(own))
    end
  end
end

function checks.endpoints(given, values)
  for _, text in ipairs(endpoints(values)) do
    local full, why = url.of_endpoint(text, has_tls(values))
    if full then full, why = url.parse(full) end
    if not full then return ("%s: '%s' %s"):format(given:name_of "endpoints", text, why) end
  end
end

function checks.tls(given, values)
  if (values.cert == nil) ~= (values.key == nil) then
    return ("%s needs %s"):format(given:name_of(values.cert and "cert" or "key"), values.cert and "--key" or "--cert")
  end
  local secure = split(values)
  if values.memory or values["data-dir"] or not secure[1] then return nil end
  local module, why = tls.load()
  if not module then return ("%s: %s: %s"):format(given:name_of "endpoints", secure[1], why) end
end

function checks.user(given, values)
  if values.user then
    local name, password = values.user:match("^([^:]*):(.*)$")
    if password and values.password then
      return ("%s and %s both have a password"):format(given:name_of "user", given:name_of "password")
    end
    password = password or values.password
    if (name or values.user) == "" then return ("%s has no name"):format(given:name_of "user") end
    if not password then
      return ("%s needs a password: NAME:PASSWORD, or the environment variable KEYWATCH_PASSWORD"):format(
        given:name_of "user")
    end
  elseif values.password then
    return ("%s needs --user"):format(given:name_of "password")
  end
end

function checks.election(given, values)
  for _, name in ipairs { "id", "ttl" } do
    if values[name] and not values.election then return ("%s needs --election"):format(given:name_of(name)) end
  end
  local ttl = values.ttl
  if ttl and not (ttl >= 1 and ttl % 1 == 0) then
    return ("%s must be a whole number of seconds of at least 1, such as 15s"):format(given:name_of "ttl")
  end
end

local OF_METRICS = { cert = "metrics-cert", key = "metrics-key", ca = "metrics-cacert" } -- flags, by the TLS option

--- Returns the option `tls` of a manager.
local function metrics_tls(values)
  local found = {}
  for option, flag in pairs(OF_METRICS) do found[option] = values[flag] end
  return next(found) and found or nil
end

function checks.metrics(given, values)
  local name, own, secure = given:name_of "listen-metrics-urls", metrics_tls(values), nil
  for _, text in ipairs(values["listen-metrics-urls"] or {}) do
    local address, why = url.parse(text)
    if not address then return ("%s: '%s' %s"):format(name, text, why) end
    secure = secure or address.is_tls and text
  end
  if own and not (own.cert and own.key) then return "--metrics-cert and --metrics-key are needed" end
  if own and not secure then return ("--metrics-cert needs an https:// or unixs: URL in %s"):format(name) end
  if not secure then return nil end
  if not own then return ("%s: %s needs --metrics-cert and --metrics-key"):format(name, secure) end
  local module, why = tls.load()
  if not module then return ("%s: %s: %s"):format(name, secure, why) end
end

local ORDER = { "texts", "log_level", "stores", "endpoints", "tls", "user", "election", "metrics" }

--- Returns a sentence with the reason; or nil.
local function find_fault(given)
  if not given.file then return "the file is missing: keywatch run FILE [flags]" end
  if given.operands[2] then
    return ("'%s' is not a flag: arguments of the file follow --"):format(given.operands[2])
  end
  for _, name in ipairs(ORDER) do
    local fault = checks[name](given, given.values)
    if fault then return fault end
  end
end

-- }======

--- Returns warnings: flags about TLS do not apply to endpoints without TLS.
local function warnings(given)
  local values, list, names = given.values, {}, {}
  for _, name in ipairs(TLS) do
    if values[name] then names[#names + 1] = given:name_of(name) end
  end
  local _, plain = split(values)
  for _, text in ipairs(names[1] and plain or {}) do
    list[#list + 1] = ("%s is without TLS; without effect there: %s"):format(text, table.concat(names, ", "))
  end
  if #given.unused > 0 then list[#list + 1] = "without effect: " .. table.concat(given.unused, ", ") end
  if #given.unknown > 0 then
    list[#list + 1] = "unknown environment variables: " .. table.concat(given.unknown, ", ")
  end
  return list
end

--- Returns the options of keywatch.connect.
local function options(values)
  local name, password = nil, nil
  if values.user then name, password = values.user:match("^([^:]*):(.*)$") end
  return {
    user = name or values.user,
    password = password or values.password,
    tls = has_tls(values) and { ca = values.cacert, cert = values.cert, key = values.key } or nil,
  }
end

--- Returns the arguments before "--", and a list of those after it.
local function divide(arguments)
  local before, behind = {}, {}
  local list = before
  for _, argument in ipairs(arguments) do
    if argument == END and list == before then list = behind else list[#list + 1] = argument end
  end
  return before, behind
end

--- Reads a command line. Returns settings, with the fields `file`, `operands` and `arguments`; or nil and a sentence
-- with the reason.
local function read(arguments)
  local before, behind = divide(arguments)
  local rest, operands = flags.divide(before, FLAGS)
  local given, fault = settings.read(rest, FLAGS, { "help", "h" }, PREFIX)
  if not given then return nil, fault end
  given.file, given.operands, given.arguments = operands[1], operands, behind
  return given
end

return {
  HELP = HELP, FLAGS = FLAGS, checks = checks, metrics_tls = metrics_tls, read = read,
  find_fault = find_fault, warnings = warnings, endpoints = endpoints,
  options = options,
}
