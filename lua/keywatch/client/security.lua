-- SPDX-License-Identifier: MIT
--- security: a client's TLS, and warnings without TLS.
--
-- A client with TLS has one context for all its connections. The context rereads changed files before each connection.
-- If the new files are unusable, the context keeps the old ones, and logs a warning.

local log = require "keywatch.support.log"
local tls = require "keywatch.support.tls"
local url = require "keywatch.support.url"

-- A member list may contain anything. Limits of logged endpoints:
local MAX_WARNED = 100 -- that are remembered
local MAX_LINE = 3     -- in one line
local MAX_SHOWN = 200  -- bytes of one

local security_methods = {}
local security_mt = { __index = security_methods }

--- Returns the first endpoint of a list with TLS, or nil.
local function find_tls(endpoints)
  for _, endpoint in ipairs(endpoints) do
    if endpoint.address.is_tls then return endpoint end
  end
end

--- Returns the security of a client of the endpoints. `options` is the option tls of connect, {} if that is true; or
-- nil. Returns nil and an error if a file, or PEM text, is unusable. Raises if the options are invalid.
local function new(endpoints, options)
  local self = setmetatable({
    context = nil,    -- of keywatch.tls; nil: the client has no TLS
    trouble = nil,    -- the error of the context's files at the last connection
    has_plain = false, -- an endpoint of connect is without TLS
  }, security_mt)
  for _, endpoint in ipairs(endpoints) do
    if not endpoint.address.is_tls then self.has_plain = true end
  end
  local secure = find_tls(endpoints)
  if not options and not secure then return self end
  local what = secure and ("the endpoint '%s'"):format(secure.url) or "the option 'tls'"
  local context, err = tls.new("client", options or {}, "connect", what)
  if not context then return nil, err end
  self.context = context
  return self
end

--- Returns the TLS arguments of a driver's `dial` for an endpoint and its address: the context, the host name for the
-- certificate, and the key of the sessions. Returns nothing for an endpoint without TLS.
function security_methods:of(endpoint, address)
  if not endpoint.address.is_tls then return end
  return assert(self.context, "a client without TLS"), endpoint.address.host or "localhost", url.format(address)
end

--- Logs when files of the context have changed and cannot be used, and when they can be used again. Called
-- after each attempt to connect.
function security_methods:look()
  if not self.context then return end
  local before, now = self.trouble, (self.context:trouble())
  if now == before then return end
  self.trouble = now
  if now then
    log.warn("%s", "a client keeps its old certificates: " .. now)
  else
    log.info("the files of a client's certificates are in order again")
  end
end

--- Returns nil; or why an endpoint of the member list cannot be used, as the end of a sentence. A client with only TLS
-- endpoints does not follow the list to others.
function security_methods:refusal_of(endpoint)
  local is_tls = endpoint.address.is_tls
  if is_tls and not self.context then return "asks for TLS: give connect the option tls" end
  if not is_tls and not self.has_plain then return "is without TLS, but the endpoints of the client are with TLS" end
end

-- {====== Passwords without TLS ======

--- True if a host is the machine itself: localhost, 127.0.0.0/8 or ::1.
local function is_loopback(host)
  host = host:lower():gsub("%.$", "")
  if host == "localhost" or host:find("%.localhost$") then return true end
  host = host:gsub("^[0:]*:ffff:", "") -- an IPv4 address as an IPv6 one
  return host:find("^127%.[%d.]+$") ~= nil or host:find("^[0:]*:0*1$") ~= nil
end

local warned, count = {}, 0 -- as keys: the URLs that were logged, and their number

--- Warns that the password of a user goes over the network without TLS, once for each endpoint.
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
