-- SPDX-License-Identifier: MIT
--- origin: decides which web pages may use a server over HTTP, and under which host names.
--
-- A browser sends requests of any page to any address that it can reach. So a request that changes something is refused
-- if it comes from a page of another origin, unless the option `cors` lists the origin. Answers to pages of listed
-- origins have the headers that allow the pages to read them.
--
-- The owner of a page can also make the name of its host resolve to 127.0.0.1 (DNS rebinding): then the server has the
-- same origin as the page. So a request over the loopback interface must name a loopback host, or one that the option
-- `host_whitelist` lists. If there is such a list, it applies to every connection without TLS. A request without a host
-- is served: browsers send none.

local ALL = "*"
local SAFE = { GET = true, HEAD = true, OPTIONS = true } -- methods that change nothing

--- Returns the set of the strings of a list, in lower case; nil for nil.
local function set_of(list)
  if not list then return nil end
  local set = {}
  for _, name in ipairs(list) do set[name:lower()] = true end
  return set
end

--- Returns the rules for the options of a server.
local function new(cors, host_whitelist)
  return { origins = set_of(cors) or {}, hosts = set_of(host_whitelist) }
end

--- Returns the host of an authority, without its port.
local function host_of(authority)
  return (authority:match("^%[([^%]]*)%]") or authority:match("^[^:]*")):lower()
end

local function is_loopback(host)
  return host == "localhost" or host:find("%.localhost$") ~= nil or host:find("^127%.%d+%.%d+%.%d+$") ~= nil
    or host == "::1"
end

local function is_loopback_peer(peer)
  return peer:find("^127%.") ~= nil or peer:find("^%[::1%]") ~= nil or peer:find("^%[::ffff:127%.") ~= nil
end

--- True if the host that a request names is served.
local function is_known_host(rules, request)
  local host = host_of(request.host)
  if request.host == "" or rules.hosts and (rules.hosts[ALL] or rules.hosts[host]) then return true end
  if is_loopback_peer(request.peer) then return is_loopback(host) end
  return rules.hosts == nil or request.scheme == "https"
end

local function is_listed(rules, origin)
  return rules.origins[ALL] or rules.origins[origin:lower()]
end

--- True if the page of an origin may make the request.
local function may_ask(rules, request, origin)
  return SAFE[request.method] or is_listed(rules, origin)
    or origin:lower() == ("%s://%s"):format(request.scheme, request.host):lower()
end

--- Returns nil if a request may be answered; else a status and a text.
local function refusal(rules, request)
  if not is_known_host(rules, request) then
    return 421, ("keywatch: the host %q is not served: see --host-whitelist\n"):format(request.host)
  end
  local origin = request.origin
  if origin and not may_ask(rules, request, origin) then
    return 403, ("keywatch: pages from %q may not change anything: see --cors\n"):format(origin)
  end
end

--- Adds the headers for the page of a listed origin to a list of headers.
local function add_headers(rules, request, list)
  local origin = request.origin
  if not next(rules.origins) then return end
  local n = #list
  list[n + 1], list[n + 2] = "vary", "Origin"
  if not origin or not is_listed(rules, origin) then return end
  list[n + 3], list[n + 4] = "access-control-allow-origin", origin
  if request.method ~= "OPTIONS" then return end
  list[n + 5], list[n + 6] = "access-control-allow-methods", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"
  list[n + 7], list[n + 8] = "access-control-allow-headers",
    request.headers["access-control-request-headers"] or "accept, content-type, authorization"
end

return { new = new, refusal = refusal, add_headers = add_headers }
