-- SPDX-License-Identifier: MIT
--- tls_flags: the flags of `keywatch serve` about TLS: their checks, and the option `tls` of keywatch.serve.
--
-- The meanings are etcd's. If etcd silently ignores a security flag, keywatch refuses it.

local tls = require "keywatch.support.tls"
local url = require "keywatch.support.url"

local DEFAULT_URL = "http://localhost:2379"
local VERSIONS = { ["TLS1.2"] = 2, ["TLS1.3"] = 3 }
local MOST_YEARS = 1000

local DIRECTORY = "fixtures/client" -- directory of the certificates of --auto-tls, below the data directory

local function is_secure(text)
  local address = url.parse(text)
  return address ~= nil and address.is_tls == true
end

--- Returns the URLs for clients with TLS, followed by those for metrics with TLS; the URLs for clients without TLS; and
-- the flag of the first URL with TLS.
local function split(values)
  local secure, plain = {}, {}
  for _, text in ipairs(values["listen-client-urls"] or { DEFAULT_URL }) do
    table.insert(is_secure(text) and secure or plain, text)
  end
  local flag = secure[1] and "listen-client-urls" or "listen-metrics-urls"
  for _, text in ipairs(values["listen-metrics-urls"] or {}) do
    if is_secure(text) then secure[#secure + 1] = text end
  end
  return secure, plain, flag
end

--- True if there is a flag that gives the server a certificate.
local function has_certificate(values)
  return values["cert-file"] ~= nil or values["key-file"] ~= nil or values["auto-tls"] == true
end

--- True if clients must have a certificate.
local function are_clients_checked(values)
  return values["client-cert-auth"] == true or values["trusted-ca-file"] ~= nil
end

--- Returns a list as one text; nil if there is no list.
local function joined(list)
  return list and table.concat(list, ",") or nil
end

--- Returns a text, nil if it is empty: an empty version is the default, as in etcd.
local function filled(text)
  return text ~= "" and text or nil
end

-- {====== Checks ======

-- Each takes the settings and their values, and returns a sentence with the reason; or nil.
local checks = {}

function checks.texts(given, values)
  for _, name in ipairs { "cert-file", "key-file", "trusted-ca-file", "client-crl-file" } do
    if values[name] == "" then return given:name_of(name) .. " must not be empty" end
  end
end

function checks.versions(given, values)
  for _, name in ipairs { "tls-min-version", "tls-max-version" } do
    local value = values[name]
    if value and value ~= "" and not VERSIONS[value] then
      return ("%s must be TLS1.2 or TLS1.3, not '%s'"):format(given:name_of(name), value)
    end
  end
  local least, greatest = VERSIONS[values["tls-min-version"]], VERSIONS[values["tls-max-version"]]
  if least and greatest and least > greatest then
    return ("%s is above %s"):format(given:name_of "tls-min-version", given:name_of "tls-max-version")
  end
end

function checks.validity(given, values)
  local years = values["self-signed-cert-validity"]
  if years and (years < 1 or years > MOST_YEARS) then
    return ("%s must be from 1 to %d, not %d"):format(given:name_of "self-signed-cert-validity", MOST_YEARS, years)
  end
end

function checks.pair(given, values)
  local cert, key = values["cert-file"], values["key-file"]
  if (cert == nil) ~= (key == nil) then
    return ("%s needs %s"):format(given:name_of(cert and "cert-file" or "key-file"),
      cert and "--key-file" or "--cert-file")
  end
end

function checks.secure_urls(given, values)
  local secure, _, flag = split(values)
  if secure[1] and not has_certificate(values) then
    return ("%s: %s needs --cert-file and --key-file, or --auto-tls"):format(given:name_of(flag), secure[1])
  end
end

--- The flags --client-crl-file and --client-cert-allowed-hostname need a check of client certificates.
function checks.clients(given, values)
  for _, name in ipairs { "client-crl-file", "client-cert-allowed-hostname" } do
    if values[name] and not are_clients_checked(values) then
      return ("%s needs --trusted-ca-file or --client-cert-auth"):format(given:name_of(name))
    end
  end
end

--- Only keywatch.tls knows the names of cipher suites.
function checks.suites(given, values)
  local secure, _, flag = split(values)
  if not secure[1] then return nil end
  local module, why = tls.load()
  if not module then return ("%s: %s: %s"):format(given:name_of(flag), secure[1], why) end
  local ok, text = module.check { auto = true, cipher_suites = joined(values["cipher-suites"]),
    min_version = filled(values["tls-min-version"]), max_version = filled(values["tls-max-version"]) }
  if not ok then return given:name_of "cipher-suites" .. text:match("^option '[^']+'(.*)$") end
end

local ORDER = { "texts", "versions", "validity", "pair", "secure_urls", "clients", "suites" }

--- Returns a sentence with the reason; or nil.
local function find_fault(given)
  for _, name in ipairs(ORDER) do
    local fault = checks[name](given, given.values)
    if fault then return fault end
  end
end

-- }======

--- Returns a text of a list of flags with a value; or nil if none has one.
local function join_given(given, names)
  local found = {}
  for _, name in ipairs(names) do
    if given.values[name] then found[#found + 1] = given:name_of(name) end
  end
  return found[1] and table.concat(found, ", ") or nil
end

-- Security flags, and all flags about TLS.
local SECURITY = { "cert-file", "key-file", "auto-tls", "client-cert-auth", "trusted-ca-file", "client-crl-file",
  "client-cert-allowed-hostname" }
local ALL = { "self-signed-cert-validity", "cipher-suites", "tls-min-version", "tls-max-version" }
for i, name in ipairs(SECURITY) do table.insert(ALL, i, name) end

--- Returns warnings: flags that do not apply to URLs without TLS, and overridden flags.
local function warnings(given)
  local values, list = given.values, {}
  local secure, plain = split(values)
  local flags = join_given(given, secure[1] and SECURITY or ALL)
  for _, text in ipairs(flags and plain or {}) do
    list[#list + 1] = ("%s is served without TLS; without effect there: %s"):format(text, flags)
  end
  if secure[1] and values["auto-tls"] and values["cert-file"] then
    list[#list + 1] = ("without effect: %s (overridden by %s)"):format(given:name_of "auto-tls",
      given:name_of "cert-file")
  end
  return list
end

--- Returns the option `tls` of keywatch.serve; nil if no URL has TLS. `data_dir` is the data directory, or nil if the
-- store is in memory.
local function options(values, data_dir)
  if not split(values)[1] then return nil end
  local is_auto = values["auto-tls"] and not values["cert-file"] or nil
  return {
    cert = values["cert-file"],
    key = values["key-file"],
    auto = is_auto,
    directory = is_auto and data_dir and data_dir .. "/" .. DIRECTORY or nil,
    validity_years = is_auto and values["self-signed-cert-validity"] or nil,
    client_cert_auth = values["client-cert-auth"],
    ca = values["trusted-ca-file"],
    crl = values["client-crl-file"],
    allowed_hostname = joined(values["client-cert-allowed-hostname"]),
    cipher_suites = joined(values["cipher-suites"]),
    min_version = filled(values["tls-min-version"]),
    max_version = filled(values["tls-max-version"]),
  }
end

-- The flag for each option that an error of keywatch.tls may name.
local OPTIONS = {
  cert = "cert-file", key = "key-file", ca = "trusted-ca-file", crl = "client-crl-file",
  cipher_suites = "cipher-suites", allowed_hostname = "client-cert-allowed-hostname",
}

return { OPTIONS = OPTIONS, find_fault = find_fault, warnings = warnings, options = options }
