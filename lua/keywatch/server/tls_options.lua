-- SPDX-License-Identifier: MIT
--- tls_options: checks the option `tls` of keywatch.serve.
--
-- An invalid option raises an error with the position of keywatch's caller. Files are not read here.

local check = require "keywatch.support.check"
local tls = require "keywatch.support.tls"
local url = require "keywatch.support.url"

local MOST_YEARS = 1000 -- as KW_TLS_MAX_YEARS in csrc/tls/certificate.h

-- Options about certificates that the server creates itself, beside those of a context.
local AUTO = { auto = true, directory = true, validity_years = true }

--- Returns only the options of a context.
local function of_context(given)
  local rest = {}
  for name, value in pairs(given) do
    if not AUTO[name] then rest[name] = value end
  end
  return rest
end

local function is_years(value)
  return type(value) == "number" and value % 1 == 0 and value >= 1 and value <= MOST_YEARS
end

local function is_path(value)
  return type(value) == "string" and value ~= "" and not value:find("\0", 1, true)
end

--- Raises if an option about certificates that the server creates is invalid.
local function check_auto(given)
  if given.auto ~= nil and type(given.auto) ~= "boolean" then
    check.misuse("serve: option 'tls.auto' must be a boolean, not a %s", type(given.auto))
  end
  if given.directory ~= nil and not is_path(given.directory) then
    check.misuse("serve: option 'tls.directory' must be a path")
  end
  if given.validity_years ~= nil and not is_years(given.validity_years) then
    check.misuse("serve: option 'tls.validity_years' must be a whole number from 1 to %d", MOST_YEARS)
  end
  for _, name in ipairs { "directory", "validity_years" } do
    if given[name] ~= nil and not given.auto then
      check.misuse("serve: option 'tls.%s' is of use with 'tls.auto' alone", name)
    end
  end
end

--- Raises unless there is a certificate. Also raises if there are options about clients' certificates and clients need
-- none.
local function check_together(given)
  if given.auto and given.cert then
    check.misuse("serve: options 'tls.auto' and 'tls.cert' exclude each other")
  elseif not given.auto and not given.cert then
    check.misuse("serve: option 'tls' must have 'cert' and 'key', or 'auto = true'")
  end
  if given.client_cert_auth or given.ca then return end
  for _, name in ipairs { "allowed_hostname", "crl" } do
    if given[name] then
      check.misuse("serve: option 'tls.%s' is about certificates of clients: give 'ca', or 'client_cert_auth = true'",
        name)
    end
  end
end

--- Returns the URL of the first address with TLS; or nil.
local function first_secure(addresses)
  for _, address in ipairs(addresses) do
    if address.is_tls then return url.format(address) end
  end
end

--- Checks the option, a table or nil, for a server with these addresses.
local function check_all(given, addresses)
  local secure = first_secure(addresses)
  if not given then
    if secure then check.misuse("serve: %s asks for TLS: give the option 'tls'", secure) end
    return
  end
  check_auto(given)
  tls.options("server", of_context(given), "serve")
  check_together(given)
  if not secure then check.misuse("serve: option 'tls' needs an https:// or unixs: URL in 'listen'") end
end

return { check = check_all, of_context = of_context }
