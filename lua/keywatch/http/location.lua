-- SPDX-License-Identifier: MIT
--- location: URLs of http and https (RFC 3986).

local PORTS = { http = 80, https = 443 }

--- Returns a path with its segments . and .. resolved: servers refuse them.
local function without_dots(path)
  local segments, is_open = {}, false
  for segment in path:gmatch("/([^/]*)") do
    local plain = segment:gsub("%%2[eE]", ".")
    is_open = plain == "." or plain == ".."
    if plain == ".." then segments[#segments] = nil end
    if not is_open then segments[#segments + 1] = segment end
  end
  return "/" .. table.concat(segments, "/") .. (is_open and segments[1] and "/" or "")
end

--- Returns the path and query after an authority; or nil and what is wrong, as the end of a sentence.
local function parse_path(text)
  local path, query = text:gsub("#.*$", ""):match("^([^?]*)(.*)$")
  if text:find("[^\33-\126]") or (path .. query):find('["<>]') then
    return nil, "has characters that must be percent-encoded, such as %20 for a space"
  end
  local is_wrong = path:gsub("%%%x%x", ""):find("%", 1, true) or path:find("%%00")
  if is_wrong then return nil, "has an escape that is not valid" end
  return without_dots(path) .. query
end

--- Returns the host and the port of an authority, which is nil if it has none; or nil and what is wrong.
local function parse_authority(text)
  if text:find("@", 1, true) then return nil, "must not have a user: use the header authorization" end
  local host, port = text:match("^%[([%x:.]+)%]:?(%d*)$")
  if not host then host, port = text:match("^([%w._%-]+):?(%d*)$") end
  if not host then return nil, "has no valid host" end
  port = tonumber(port)
  if port and (port > 65535 or port == 0) then return nil, "has no valid port" end
  return host, port
end

--- True if a text is a host, with or without a port.
local function is_authority(text)
  return (parse_authority(text)) ~= nil
end

--- Takes a URL apart. Returns { key = the URL of the origin, address = as of support/url.lua, authority =, scheme =,
-- path = with the query }; or nil and what is wrong, as the end of a sentence.
local function parse(text)
  local scheme, authority, rest = text:match("^(%a+)://([^/?#]*)(.*)$")
  scheme = scheme and scheme:lower()
  if not PORTS[scheme] then return nil, "must begin with http:// or https://" end
  local host, port = parse_authority(authority)
  if not host then return nil, port end
  local path, why = parse_path(rest)
  if not path then return nil, why end
  local shown = (host:find(":", 1, true) and "[%s]" or "%s"):format(host:lower())
  port = port or PORTS[scheme]
  local full = ("%s:%d"):format(shown, port)
  return {
    scheme = scheme,
    key = scheme .. "://" .. full,
    authority = port == PORTS[scheme] and shown or full,
    path = path,
    address = { host = host:lower(), port = port, is_tls = scheme == "https" or nil },
  }
end

local function encoded(c) return ("%%%02X"):format(c:byte()) end

--- Returns the absolute URL of a reference, such as `../x`, in an answer from a location. Characters that the server
-- should have encoded are encoded.
local function resolve(location, reference)
  reference = reference:gsub('[^\33-\126]', encoded):gsub('["<>]', encoded)
  if reference:find("^%a[%w+.-]*:") then return reference end
  if reference:sub(1, 2) == "//" then return location.scheme .. ":" .. reference end
  local path, query = location.path:match("^([^?]*)(.*)$")
  local first = reference:sub(1, 1)
  if first == "/" then return location.key .. reference end
  if first == "?" then return location.key .. path .. reference end
  if first == "#" or first == "" then return location.key .. path .. query end
  return location.key .. path:match("^(.*/)") .. reference
end

return { is_authority = is_authority, parse = parse, resolve = resolve }
