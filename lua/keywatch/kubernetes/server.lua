-- SPDX-License-Identifier: MIT
--- server: serves an API over HTTP: on listeners of its own, or on those of a keywatch server.

local access = require "keywatch.kubernetes.access"
local certificates = require "keywatch.server.certificates"
local check = require "keywatch.support.check"
local driver = require "keywatch.task.driver"
local handlers = require "keywatch.kubernetes.handler"
local log = require "keywatch.support.log"
local monitor = require "keywatch.server.monitor"
local origin = require "keywatch.server.origin"
local server_options = require "keywatch.server.options"
local servers = require "keywatch.server.server"

local DEFAULT_LISTEN = "http://127.0.0.1:8001"
local GRACE, MOST_GRACE = 5, 1e9 -- seconds
local LAST_FRAMES = 0.5 -- seconds after the grace, in which the last frames are sent to clients

local OPTIONS = {
  listen = server_options.URLS, tls = "table", cors = "table", host_whitelist = "table",
  log_level = { "debug, info, warn, error, panic or fatal", log.is_level }, on_log = "function",
}
for name, kind in pairs(access.OPTIONS) do OPTIONS[name] = kind end

local server_methods, server_mt = check.class "keywatch.kubernetes.server"

function server_mt:__tostring()
  return ("keywatch.kubernetes.server<%s>"):format(table.concat(self:addresses(), ","))
end

--- Returns the URLs that the server listens on, with the ports that the kernel chose.
function server_methods:addresses()
  return self.monitor:addresses()
end

--- Stops listening, and closes every connection at once. Idempotent.
function server_methods:close()
  self.handler:close()
  self.monitor:close()
  if self.gone then self.gone:set() end
  return true
end

--- Stops listening, ends all watches, waits until all connections have ended, at most `grace` seconds, and closes.
function server_methods:shutdown(grace)
  check.timeout(grace, "shutdown")
  if self.monitor.is_closed then return true end
  local d = driver.get()
  d.check_wait()
  grace = math.max(0, math.min(grace or GRACE, MOST_GRACE))
  self.handler:close()
  self.monitor:drain(grace)
  self.gone = self.gone or d.event()
  self.monitor.gone = self.gone
  if not self.monitor.is_closed then
    d.shield(grace + LAST_FRAMES, self.gone.wait, self.gone, grace + LAST_FRAMES)
  end
  return self:close()
end

local function ok() return 200, "ok" end

--- Opens the listeners. Returns the monitor; or nil and an error.
local function open_monitor(opts, addresses)
  local logger, own = log.new(opts.log_level, opts.on_log), nil
  if opts.tls then
    local err
    own, err = certificates.open(opts.tls, addresses, nil, logger)
    if not own then return nil, err end
  end
  local is_done, opened, why = pcall(monitor.open, addresses, own and own.context,
    { ["/healthz"] = ok, ["/livez"] = ok, ["/readyz"] = ok }, origin.new(opts.cors, opts.host_whitelist), logger)
  if own and is_done and opened then
    opened.certificates = own
    own:start()
  elseif own then
    own:close()
  end
  if not is_done then error(opened, 0) end
  return opened, why
end

--- Serves resources on listeners of their own: a list of { kind, reads, registry, history }. Returns the server; or nil
-- and an error.
local function serve(resources, opts)
  opts = check.copy(check.options(opts, "serve", OPTIONS))
  opts.listen = opts.listen or DEFAULT_LISTEN
  local addresses = server_options.parse_urls("serve", opts, "listen", {})
  server_options.check_tls("serve", opts.tls, addresses, "'listen'")
  driver.get().check_serve()
  local opened, err = open_monitor(opts, addresses)
  if not opened then return nil, err end
  local handler = handlers.new(opened, resources, opts)
  handler:mount()
  return setmetatable({ monitor = opened, handler = handler, gone = nil }, server_mt)
end

--- Serves resources on a keywatch server. Returns the handler, which ends with handler:close().
local function mount(resources, server, opts)
  local mt = getmetatable(server)
  check.argument(type(mt) == "table" and mt.__index == servers.methods, 1, "mount", "server", server)
  opts = check.options(opts, "mount", access.OPTIONS)
  local handler = handlers.new(server, resources, opts)
  handler:mount()
  return handler
end

return { serve = serve, mount = mount, methods = server_methods }
