-- SPDX-License-Identifier: MIT
--- url: where to listen, as etcd writes it: http://host:port, http://[::1]:port, unix:///path, unix://relative/path,
-- unix:relative/path.

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

return { parse = parse, format = format }
