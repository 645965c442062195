-- SPDX-License-Identifier: MIT
--- url: where to listen, as etcd writes it: http://host:port, http://[::1]:port, unix:///path, unix://relative/path,
-- unix:relative/path. And what the URL of a member of a cluster is.

local function parse_http(rest)
  local host, port, path = rest:match("^%[([%x:.]+)%]:(%d+)(.*)$")
  if not host then host, port, path = rest:match("^([^/:%[%]]+):(%d+)(.*)$") end
  if not host then return nil, 'must have the form "http://host:port"' end
  if path ~= "" and path ~= "/" then return nil, "must not have a path" end
  if tonumber(port) > 65535 then return nil, "has a port that is no port" end
  return { host = host, port = tonumber(port) }
end

local function parse_unix(rest)
  local path = rest:gsub("^//", "")
  if path == "" then return nil, "has no path" end
  return { path = path }
end

--- An address, { host, port } or { path }; or nil and what is wrong, as the end of a sentence.
local function parse(text)
  local scheme, rest = text:match("^(%a+):(.*)$")
  if scheme == "unix" then return parse_unix(rest) end
  if scheme == "https" or scheme == "unixs" then return nil, "asks for TLS, which is not there yet: use http" end
  if scheme ~= "http" or rest:sub(1, 2) ~= "//" then return nil, "must begin with http:// or unix:" end
  return parse_http(rest:sub(3))
end

local function format(address)
  if address.path then return "unix://" .. address.path end
  local host = address.host:find(":", 1, true) and "[" .. address.host .. "]" or address.host
  return ("http://%s:%d"):format(host, address.port)
end

-- What Go's url.Parse takes as the characters of a user, and of a host without brackets.
local USER = "^[%w%-._:~!$&'()*+,;=%%@]*$"
local HOST = "^[%w%-_.~!$&'()*+,;=<>\"\128-\255]*:%d*$"
local BRACKETED = "^%[[^%[%]]*%]:%d*$"

local function is_authority(text)
  local user, host = text:match("^(.*)@(.*)$")
  if user and not user:find(USER) then return false end
  host = host or text
  return host:find(HOST) ~= nil or host:find(BRACKETED) ~= nil
end

--- The text without the space around it, in time that grows with its length alone.
local function trim(text)
  return text:match("^.*%S", (text:find("%S"))) or ""
end

--- Whether etcd takes the text as the URL of a member: http, https, or a socket; with a port, without a path.
local function is_peer(text)
  text = trim(text)
  if text:find("%c") then return false end
  local scheme, rest = text:match("^(%a[%w+.-]*):([^#]*)")
  scheme = (scheme or ""):lower()
  if scheme == "unix" or scheme == "unixs" then return true end
  local authority = rest and rest:match("^//([^?]*)")
  return (scheme == "http" or scheme == "https") and authority ~= nil and is_authority(authority)
end

return { parse = parse, format = format, is_peer = is_peer }
