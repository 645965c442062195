--- TLS for a whole run: in the pass tls the servers that specs start listen on https://, and clients connect there.
--
-- The specs themselves are unchanged: servers and clients that they start by spec/support get their URLs and flags
-- from here; and the module keywatch, in this process and in separate Lua programs, serves https:// instead of
-- http://, and trusts the specs' authority for https://. Other URLs, and the paths of unix sockets, are not changed.
-- In other passes nothing is changed.
--
-- Separate Lua programs run this file first, by LUA_INIT, in any directory: it requires nothing when loaded.

local DIRECTORY = "KW_CERTIFICATES" -- the variable in which programs beside the spec find the certificates

local secure = { is_on = (os.getenv("KW_PASS") or ""):find("^tls") ~= nil }

-- {====== Paths, URLs and flags ======

local function path_of(name)
  return (os.getenv(DIRECTORY) or require("spec.support.certificates").directory()) .. "/" .. name
end

--- Returns the file of the authority that all trust.
function secure.ca() return path_of("ca.pem") end

--- Returns the files of the servers' certificate and of its key.
function secure.pair() return path_of("server.pem"), path_of("server.key") end

--- Returns the URL of a server that specs start, by its address. With `is_tls` the server uses TLS in every pass.
function secure.url(address, is_tls)
  return ((is_tls or secure.is_on) and "https://" or "http://") .. address
end

--- Returns the option `tls` for a client of such a server.
function secure.tls(is_tls) return (is_tls or secure.is_on) and { ca = secure.ca() } or nil end

--- Returns the flags of such a server, keywatch's or etcd's.
function secure.flags(is_tls)
  if not (is_tls or secure.is_on) then return {} end
  local cert, key = secure.pair()
  return { "--cert-file", cert, "--key-file", key }
end

-- }======

-- {====== The module keywatch ======

local function with(options, tls)
  local all = {}
  for name, value in pairs(options or {}) do all[name] = value end
  all.tls = all.tls or tls
  return all
end

--- Returns a URL, or a list of URLs, with https:// instead of http://.
local function secured(listen)
  if type(listen) == "string" then return (listen:gsub("^http://", "https://")) end
  if type(listen) ~= "table" then return listen end
  local list = {}
  for i, one in ipairs(listen) do list[i] = secured(one) end
  return list
end

--- True if one of the URLs is for TLS.
local function is_secure(urls)
  if type(urls) == "string" then return urls:find("https://", 1, true) ~= nil end
  for _, one in ipairs(type(urls) == "table" and urls or {}) do
    if is_secure(one) then return true end
  end
  return false
end

local function server_options(options)
  if type(options) ~= "table" then return options end
  local listen = secured(options.listen)
  if not is_secure(listen) then return options end
  local cert, key = secure.pair()
  local all = with(options, { cert = cert, key = key })
  all.listen = listen
  return all
end

local function client_options(endpoints, options)
  local is_table = options == nil or type(options) == "table"
  return is_table and is_secure(endpoints) and with(options, secure.tls()) or options
end

--- Wraps functions of the module. The wrappers make tail calls, so errors name the line of the spec.
local function wrap(keywatch)
  local serve, connect = keywatch.serve, keywatch.connect
  function keywatch.serve(options) return serve(server_options(options)) end
  function keywatch.connect(endpoints, options) return connect(endpoints, client_options(endpoints, options)) end
  return keywatch
end

--- From now on `require "keywatch"` returns the wrapped module.
function secure.install()
  package.preload.keywatch = function(...)
    return wrap(assert(loadfile(assert(package.searchpath("keywatch", package.path))))(...))
  end
end

-- }======

--- Makes certificates, and installs the module in this process and in those that it starts. The certificates are
-- removed at its end.
function secure.begin()
  local uv = require "spec.support.luv"
  uv.os_setenv(DIRECTORY, require("spec.support.certificates").directory())
  uv.os_setenv("LUA_INIT", ("dofile(%q).install()"):format(uv.cwd() .. "/spec/support/secure.lua"))
  secure.install()
end

return secure
