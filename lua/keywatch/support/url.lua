-- SPDX-License-Identifier: MIT
--- url: addresses as etcd writes them: http://host:port, http://[::1]:port, unix:///path, unix://relative/path,
-- unix:relative/path, or https:// and unixs: with TLS; endpoints as etcdctl accepts them; and a check for the URLs of
-- cluster members.

--- Returns the address after "http://" or "https://"; or nil and the reason.
local function parse_http(scheme, rest)
  local host, port, path = rest:match("^%[([%x:.]+)%]:(%d+)(.*)$")
  if not host then host, port, path = rest:match("^([^/:%[%]%c%s]+):(%d+)(.*)$") end
  if not host then return nil, ('must have the form "%s://host:port"'):format(scheme) end
  if path ~= "" and path ~= "/" then return nil, "must not have a path" end
  if tonumber(port) > 65535 then return nil, "has a port above 65535" end
  return { host = host, port = tonumber(port) }
end

--- Returns the address after "unix:" or "unixs:"; or nil and the reason.
local function parse_unix(rest)
  local path = rest:gsub("^//", "")
  if path == "" then return nil, "has no path" end
  return { path = path }
end

-- The scheme without TLS, by the one with TLS.
local PLAIN = { https = "http", unixs = "unix" }

--- Returns the address of a URL: { host =, port = } or { path = }, with is_tls = true if the URL asks for TLS; or nil
-- and what is wrong, as the end of a sentence.
local function parse(text)
  local scheme, rest = text:match("^(%a+):(.*)$")
  local plain = PLAIN[scheme] or scheme
  local address, why
  if plain == "unix" then
    address, why = parse_unix(rest)
  elseif plain == "http" and rest:sub(1, 2) == "//" then
    address, why = parse_http(scheme, rest:sub(3))
  else
    return nil, "must begin with http://, https://, unix: or unixs:"
  end
  if address and plain ~= scheme then address.is_tls = true end
  return address, why
end

--- Returns the URL of an endpoint, which is host:port, as etcdctl accepts it, or already a URL. With `has_tls`,
-- host:port uses TLS. Returns nil and what is wrong, as the end of a sentence, if the text is neither. `parse` may
-- still refuse the URL.
local function of_endpoint(text, has_tls)
  if text == "" then return nil, "is empty" end
  if text:find("^%a[%w+.-]*://") or text:find("^unixs?:") then return text end
  if text:find("^[%w._-]+:%d+$") or text:find("^%[[%x:.]+%]:%d+$") then
    return (has_tls and "https://" or "http://") .. text
  end
  if text:find("^[%w._-]+:?$") then return nil, ("has no port: write %s:2379"):format((text:gsub(":$", ""))) end
  local bare = text:match("^%[?([%x:.]+)%]?:?$")
  if bare and (bare:find("::", 1, true) or select(2, bare:gsub(":", "")) >= 7) then
    return nil, "must have its IPv6 address in brackets, and a port after them, like [::1]:2379"
  end
  return nil, "must have the form host:port, http://host:port or unix:/path"
end

--- Returns the URL of an address.
local function format(address)
  local scheme = address.path and "unix" or "http"
  if address.is_tls then scheme = scheme .. "s" end
  if address.path then return ("%s://%s"):format(scheme, address.path) end
  local host = address.host:find(":", 1, true) and "[" .. address.host .. "]" or address.host
  return ("%s://%s:%d"):format(scheme, host, address.port)
end

-- The characters that Go's url.Parse accepts in a user, in a host with a port, and in such a host in brackets.
local USER = "^[%w%-._:~!$&'()*+,;=%%@]*$"
local HOST = "^[%w%-_.~!$&'()*+,;=<>\"\128-\255]*:%d*$"
local BRACKETED = "^%[[^%[%]]*%]:%d*$"

--- True if a text is the authority of a URL: a host with a port, and perhaps a user.
local function is_authority(text)
  local user, host = text:match("^(.*)@(.*)$")
  if user and not user:find(USER) then return false end
  host = host or text
  return host:find(HOST) ~= nil or host:find(BRACKETED) ~= nil
end

--- Returns a text without the space around it. Takes linear time.
local function trim(text)
  return text:match("^.*%S", (text:find("%S"))) or ""
end

--- True if etcd accepts a text as the URL of a cluster member: http or https, with a port and without a path; or any
-- URL of a unix socket.
local function is_peer(text)
  text = trim(text)
  if text:find("%c") then return false end
  local scheme, rest = text:match("^(%a[%w+.-]*):([^#]*)")
  scheme = (scheme or ""):lower()
  if scheme == "unix" or scheme == "unixs" then return true end
  local authority = rest and rest:match("^//([^?]*)")
  return (scheme == "http" or scheme == "https") and authority ~= nil and is_authority(authority)
end

return { parse = parse, of_endpoint = of_endpoint, format = format, is_peer = is_peer }
