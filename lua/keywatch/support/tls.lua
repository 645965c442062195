-- SPDX-License-Identifier: MIT
--- tls: contexts of TLS, for clients and servers. The module keywatch.tls, which makes contexts, is in a rock of its
-- own. It is loaded when a context is first made.

local check = require "keywatch.support.check"
local errors = require "keywatch.support.errors"

local ABSENT = "keywatch needs another rock for TLS: luarocks install keywatch-tls"

-- The options of each kind of context, which is a function of keywatch.tls, with their types.
local COMMON = {
  ca = "string", cert = "string", key = "string", crl = "string", cipher_suites = "string", min_version = "string",
  max_version = "string",
}
local OWN = {
  client = { server_name = "string", verify = "boolean" },
  server = { client_cert_auth = "boolean", allowed_hostname = "string" },
}

-- Options that do not stand for a file or for PEM text.
local WITHOUT_FILES = { "cipher_suites", "min_version", "max_version", "server_name" }

--- Returns the module keywatch.tls; or nil and a text that says why it cannot be loaded.
local function load()
  local ok, found = pcall(require, "keywatch.tls")
  if ok then return found end
  local text = errors.text_of(found)
  if text:find("module 'keywatch.tls' not found", 1, true) then return nil, ABSENT end
  return nil, "keywatch.tls cannot be loaded: " .. text
end

--- Raises if the value of an option is not of its type, or is a text that cannot be meant.
local function check_value(name, option, value, kind)
  if type(value) ~= kind then
    check.misuse("%s: option 'tls.%s' must be a %s, not a %s", name, option, kind, type(value))
  end
  if value == "" then check.misuse("%s: option 'tls.%s' must not be empty", name, option) end
  if kind == "string" and value:find("\0", 1, true) then
    check.misuse("%s: option 'tls.%s' must not have a zero byte", name, option)
  end
end

--- Returns a copy of the options of a context of a kind. Raises if an option is not known, or cannot be meant. `name`
-- is the public function that the options were given to.
local function copy_options(kind, given, name)
  local options = {}
  for option, value in pairs(given) do
    local wanted = COMMON[option] or OWN[kind][option]
    if not wanted then check.misuse("%s: there is no option 'tls.%s'", name, tostring(option)) end
    check_value(name, option, value, wanted)
    options[option] = value
  end
  if (options.cert == nil) ~= (options.key == nil) then
    check.misuse("%s: options 'tls.cert' and 'tls.key' must be given together", name)
  end
  return options
end

--- Raises if options that need no file were the reason why a context could not be made: a context of these alone cannot
-- be made either.
local function check_rest(tls, options, name)
  local rest = { verify = false }
  for _, option in ipairs(WITHOUT_FILES) do rest[option] = options[option] end
  local context, text, fault = tls.client(rest)
  if context then return context:close() end
  if fault == "option" then check.misuse("%s: option 'tls': %s", name, text) end
end

--- Returns a context of a kind, "client" or "server"; or nil and an error if a file, or PEM text, will not do. Raises
-- if the options are wrong, or keywatch.tls cannot be loaded: `name` is the public function that was called, and
-- `what` names what asks for TLS.
local function new(kind, given, name, what)
  local options = copy_options(kind, given, name)
  local tls, why = load()
  if not tls then check.misuse("%s: %s asks for TLS: %s", name, what, why) end
  local context, text, fault = tls[kind](options)
  if context then return context end
  check_rest(tls, options, name)
  return nil, errors.new(fault == "memory" and "out_of_memory" or "failed_precondition", "keywatch: " .. text)
end

return { load = load, options = copy_options, new = new }
