-- SPDX-License-Identifier: MIT
--- kubernetes_flags: the flags of `keywatch kubernetes`: their names, their kinds, their help, and the checks of their
-- values. The flags of the connection to a store are those of `keywatch run`.

local flags = require "keywatch.command.flags"
local log = require "keywatch.support.log"
local run_flags = require "keywatch.command.run_flags"
local settings = require "keywatch.command.settings"
local tls = require "keywatch.support.tls"
local url = require "keywatch.support.url"

local PREFIX = "KEYWATCH_" -- of environment variables
local LISTEN = "http://127.0.0.1:8001"

local HELP = [[
keywatch kubernetes FILE [flags]

  Serves the resources of FILE by Kubernetes' API, until SIGTERM or SIGINT. FILE has CustomResourceDefinitions, as YAML
  (which needs the library lyaml) or JSON; or it is a Lua file that returns a list of resources, or a table with the
  field resources and the options tokens, authorize and anonymous of api:serve.

Requests
  --listen URL,...        URLs for kubectl and other clients, http://HOST:PORT or unix://PATH, with TLS
                          https://HOST:PORT or unixs://PATH (default: http://127.0.0.1:8001)
  --cert-file FILE        certificate for those with TLS, in PEM
  --key-file FILE         private key of that certificate
  --trusted-ca-file FILE  authorities of client certificates, which are then required
  --builtin               also serve namespaces, configmaps, secrets, events, leases and pods (default: false)

Store
  --data-dir DIR          a store in this process, on disk in DIR (default: keywatch.data)
  --memory                a store in this process, in memory (default: false)
  --endpoints URL,...     no store: servers of keywatch or etcd, http://HOST:PORT or unix:PATH, with TLS
                          https://HOST:PORT or unixs:PATH
  --cacert FILE           trusted certificate authorities of those servers, in PEM (default: those of the system)
  --cert FILE             certificate of this client in PEM
  --key FILE              private key of that certificate
  --user NAME[:PASSWORD]  user, for servers with authentication
  --password PASSWORD     password of the user, if --user has none. Other users of the machine can read command lines:
                          prefer the environment variable KEYWATCH_PASSWORD

Other
  --log-level LEVEL       lowest level that is logged: debug, info, warn, error, panic or fatal (default: info)
  --help                  print this text

Each flag can also be set by an environment variable: KEYWATCH_DATA_DIR sets --data-dir. A second signal ends the
program at once. The exit status is 0 after a signal, 1 after a failure, and 2 for a wrong command line.
]]

--- Flags with the kinds of their values, see flags.
local FLAGS = flags.by_kind {
  text = "cert-file key-file trusted-ca-file cacert cert key user password data-dir log-level",
  list = "listen endpoints",
  boolean = "builtin memory help h",
}

local OF_TLS = { cert = "cert-file", key = "key-file", ca = "trusted-ca-file" } -- flags, by the option of TLS

--- Returns the URLs to listen on.
local function listen(values)
  return values.listen or { LISTEN }
end

--- Returns the option `tls` of api:serve; nil without a flag about it.
local function server_tls(values)
  local found = {}
  for option, flag in pairs(OF_TLS) do found[option] = values[flag] end
  return next(found) and found or nil
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

function checks.listen(given, values)
  local own, secure = server_tls(values), nil
  for _, text in ipairs(listen(values)) do
    local address, why = url.parse(text)
    if not address then return ("%s: '%s' %s"):format(given:name_of "listen", text, why) end
    secure = secure or address.is_tls and text
  end
  if own and not (own.cert and own.key) then return "--cert-file and --key-file are needed" end
  if own and not secure then return "--cert-file needs an https:// or unixs: URL in --listen" end
  if secure and not own then return ("--listen: %s needs --cert-file and --key-file"):format(secure) end
  local module, why = true, nil
  if secure then module, why = tls.load() end
  if not module then return ("--listen: %s: %s"):format(secure, why) end
end

--- Returns a sentence with the reason; or nil.
local function find_fault(given)
  if not given.file then return "the file is missing: keywatch kubernetes FILE [flags]" end
  if given.operands[2] then return ("'%s' is not a flag"):format(given.operands[2]) end
  for _, name in ipairs { "texts", "log_level", "listen" } do
    local fault = checks[name](given, given.values)
    if fault then return fault end
  end
  for _, name in ipairs { "stores", "endpoints", "tls", "user" } do
    local fault = given.values.endpoints and run_flags.checks[name](given, given.values)
      or name == "stores" and run_flags.checks.stores(given, given.values)
    if fault then return fault end
  end
end

-- }======

--- Returns warnings: settings without effect.
local function warnings(given)
  local list = {}
  if #given.unused > 0 then list[#list + 1] = "without effect: " .. table.concat(given.unused, ", ") end
  if #given.unknown > 0 then
    list[#list + 1] = "unknown environment variables: " .. table.concat(given.unknown, ", ")
  end
  return list
end

--- Reads a command line. Returns settings, with the fields `file` and `operands`; or nil and a sentence with the
-- reason.
local function read(arguments)
  local rest, operands = flags.divide(arguments, FLAGS)
  local given, fault = settings.read(rest, FLAGS, { "help", "h" }, PREFIX)
  if not given then return nil, fault end
  given.file, given.operands = operands[1], operands
  return given
end

return {
  HELP = HELP, FLAGS = FLAGS, OF_TLS = OF_TLS, read = read, find_fault = find_fault, warnings = warnings,
  listen = listen, server_tls = server_tls,
}
