-- SPDX-License-Identifier: MIT
--- security: TLS of a client, and a warning about passwords that are sent without TLS.
--
-- A client with TLS has one context for all its connections. The context rereads changed files before each connection.
-- If the new files are unusable, the context keeps the old certificates, and check_files logs a warning.

local log = require "keywatch.support.log"
local tls = require "keywatch.support.tls"
local url = require "keywatch.support.url"

-- A member list may contain any number of endpoints, of any length. Limits of the warning about passwords:
local MAX_WARNED = 100 -- endpoints in the life of the process; later ones are not logged
local MAX_LINE = 3     -- endpoints in one line
local MAX_SHOWN = 200  -- bytes of an endpoint

local security_methods = {}
local security_mt = { __index = security_methods }

--- Returns the first endpoint of a list with TLS, or nil.
local function find_tls(endpoints)
  for _, endpoint in ipairs(endpoints) do
    if endpoint.address.is_tls then return endpoint end
  end
end

--- Returns the security object of a client. `options` is the option tls of connect: {} if the option is true, or nil.
-- `name` is the public function that was called, default connect; `protocols` are those of tls.client. Returns nil and
-- an error if a file or a PEM text is unusable. Raises if the options are invalid.
local function new(endpoints, options, name, protocols)
  local self = setmetatable({
    context = nil,     -- of keywatch.tls; nil: the client has no TLS
    trouble = nil,     -- the text of the last error of the context's files; nil: they are usable
    has_plain = false, -- an endpoint that was given to connect has no TLS
  }, security_mt)
  for _, endpoint in ipairs(endpoints) do
    if not endpoint.address.is_tls then self.has_plain = true end
  end
  local secure = find_tls(endpoints)
  if not options and not secure then return self end
  local what = secure and ("the endpoint '%s'"):format(secure.url) or "the option 'tls'"
  local context, err = tls.new("client", options or {}, name or "connect", what, protocols)
  if not context then return nil, err end
  self.context = context
  return self
end

--- Returns the TLS arguments of a driver's `dial` for an endpoint and its address: the context, the host name that
-- the certificate must have, and the key for TLS session resumption. Returns nothing for an endpoint without TLS.
function security_methods:of(endpoint, address)
  if not endpoint.address.is_tls then return end
  return assert(self.context, "a client without TLS"), endpoint.address.host or "localhost", url.format(address)
end

--- Logs when changed files of the context are unusable, and when they are usable again. Called after each attempt to
-- connect.
function security_methods:check_files()
  if not self.context then return end
  local before, now = self.trouble, (self.context:trouble())
  if now == before then return end
  self.trouble = now
  if now then
    log.warn("%s", "a client keeps its old certificates: " .. now)
  else
    log.info("the certificate files of a client are usable again")
  end
end

--- Returns nil; or why an endpoint of the member list is not used, as a predicate whose subject is the endpoint. If all
-- endpoints that were given to connect use TLS, endpoints without TLS are not used.
function security_methods:refusal_of(endpoint)
  local is_tls = endpoint.address.is_tls
  if is_tls and not self.context then return "asks for TLS: give connect the option tls" end
  if not is_tls and not self.has_plain then return "is without TLS, but all endpoints of connect use TLS" end
end

-- {====== Passwords without TLS ======

--- True if a host is this machine: localhost, 127.0.0.0/8 or ::1.
local function is_loopback(host)
  host = host:lower():gsub("%.$", "")
  if host == "localhost" or host:find("%.localhost$") then return true end
  host = host:gsub("^[0:]*:ffff:", "") -- an IPv4 address that is mapped to IPv6
  return host:find("^127%.[%d.]+$") ~= nil or host:find("^[0:]*:0*1$") ~= nil
end

local warned, count = {}, 0 -- the set of URLs that were logged, and their number

--- Warns that a password is sent over the network without TLS. Each endpoint is logged once per process.
local function warn_of_password(endpoints)
  local urls, more = {}, 0
  for _, endpoint in ipairs(endpoints) do
    local address, text = endpoint.address, endpoint.url:sub(1, MAX_SHOWN)
    local is_exposed = address.host and not address.is_tls and not is_loopback(address.host)
    if is_exposed and not warned[text] and count < MAX_WARNED then
      warned[text], count = true, count + 1
      if #urls < MAX_LINE then urls[#urls + 1] = log.quote(text) else more = more + 1 end
    end
  end
  if not urls[1] then return end
  log.warn("%s", ("a client sends its user and password without TLS, so that others can read them: use https:// "
    .. "instead of %s%s"):format(table.concat(urls, ", "), more > 0 and (" and %d more"):format(more) or ""))
end

-- }======

return { new = new, warn_of_password = warn_of_password }
