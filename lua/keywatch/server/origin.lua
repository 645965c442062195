-- SPDX-License-Identifier: MIT
--- origin: decides which web pages may use a server over HTTP. The core decides under which host names: see
-- csrc/rpc/hosts.h.
--
-- A browser sends requests of any page to any address that it can reach. So a request that changes something is refused
-- if it comes from a page of another origin, unless the option `cors` lists the origin. Answers to pages of listed
-- origins have the headers that allow the pages to read them.

local ALL = "*"
local SAFE = { GET = true, HEAD = true, OPTIONS = true } -- methods that change nothing

--- Returns the origin of a URL as browsers write it: without a slash at the end, and without the usual port.
local function origin_of(url)
  return (url:lower():gsub("/$", ""):gsub("^(http:.*):80$", "%1"):gsub("^(https:.*):443$", "%1"))
end

--- Returns the rules for the options of a server.
local function new(cors, host_whitelist)
  local origins = {}
  for _, origin in ipairs(cors or {}) do origins[origin_of(origin)] = true end
  return { origins = origins, has_origins = next(origins) ~= nil, hosts = host_whitelist or {} }
end

--- Returns a host in lower case, without its port, and an address without its brackets.
local function host_of(authority)
  return (authority:match("^%[([^%]]*)%]") or authority:match("^[^:]*")):lower()
end

--- Applies the rule of host names to a server of the core.
local function limit_hosts(rules, object)
  for _, host in ipairs(rules.hosts) do object:add_host(host_of(host)) end
end

local function is_listed(rules, origin)
  return rules.origins[ALL] or rules.origins[origin:lower()]
end

--- True if the page of an origin may make the request.
local function may_ask(rules, request, origin)
  return is_listed(rules, origin) or origin:lower() == ("%s://%s"):format(request.scheme, request.host):lower()
end

--- Returns nil if a request may be answered; else a status and a text.
local function refusal(rules, request)
  if request.is_misdirected then
    return 421, ("keywatch: the host %q is not served: see --host-whitelist\n"):format(request.host)
  end
  local origin = not SAFE[request.method] and request.origin
  if origin and not may_ask(rules, request, origin) then
    return 403, ("keywatch: pages from %q may not change anything: see --cors\n"):format(origin)
  end
end

--- Adds the headers for the page of a listed origin to a list of headers.
local function add_headers(rules, request, list)
  if not rules.has_origins then return end
  local origin, n = request.origin, #list
  list[n + 1], list[n + 2] = "vary", "Origin"
  if not origin or not is_listed(rules, origin) then return end
  list[n + 3], list[n + 4] = "access-control-allow-origin", origin
  if request.method ~= "OPTIONS" then return end
  list[n + 5], list[n + 6] = "access-control-allow-methods", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"
  list[n + 7], list[n + 8] = "access-control-allow-headers",
    request.headers["access-control-request-headers"] or "accept, content-type, authorization"
end

return { new = new, limit_hosts = limit_hosts, refusal = refusal, add_headers = add_headers }
