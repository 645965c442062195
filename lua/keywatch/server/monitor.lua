-- SPDX-License-Identifier: MIT
--- monitor: an HTTP server without a store, on listeners that only monitoring systems use: those of a server's option
-- `listen_metrics`, and those of a manager.
--
-- A monitor has those fields of a server that calls and requests use. It has no gRPC methods and no middleware.

local core = require "keywatch.core"
local dispatcher = require "keywatch.server.dispatcher"
local driver = require "keywatch.task.driver"
local grpc_status = require "keywatch.support.grpc_status"
local listening = require "keywatch.server.listening"
local notes = require "keywatch.server.notes"
local origin = require "keywatch.server.origin"
local routes = require "keywatch.server.routes"
local trouble = require "keywatch.server.trouble"

local monitor_methods = {}
local monitor_mt = { __index = monitor_methods }

--- Returns the URLs of the listeners, with the ports that the kernel chose.
function monitor_methods:addresses()
  return listening.urls(self.listeners)
end

--- Stops listening, and closes every connection at once. Idempotent.
function monitor_methods:close()
  if self.is_closed then return end
  self.is_closed = true
  listening.close_all(self.listeners)
  self.listeners = {}
  driver.get().release(self.object)
  self.object:close()
  if self.dispatcher then
    driver.get().detach(self.dispatcher)
    self.dispatcher:finish_all(grpc_status.UNAVAILABLE)
  end
  if self.rejections then notes.finish(self) end
  if self.certificates then self.certificates:close() end
end

--- Stops listening, and asks clients to use another server. Requests have `grace` seconds to end.
function monitor_methods:drain(grace)
  listening.close_all(self.listeners)
  self.listeners = {}
  self.object:drain(grace, driver.get().now())
end

--- Starts the work of a monitor. If this raises, the caller must close the monitor.
local function start(self, handlers)
  notes.start(self)
  trouble.start(self)
  for path, handler in pairs(handlers) do routes.add(self.routes, "GET", path, handler) end
  self.dispatcher = dispatcher.open(self)
end

--- Listens on addresses, with a TLS context for those with TLS. `handlers` is by path, for the method GET; `origins` is
-- made by origin.lua. Returns the monitor; or nil and an error.
local function open(addresses, context, handlers, origins, logger)
  local object, err = core.serve(nil, {})
  if not object then return nil, err end
  origin.limit_hosts(origins, object)
  local listeners
  listeners, err = listening.open_all(object, addresses, context)
  if not listeners then
    object:close()
    return nil, err
  end
  local self = setmetatable({
    object = object, -- of the core
    listeners = listeners,
    routes = routes.new(),
    origins = origins,
    methods = {},
    middleware = {},
    calls = {}, -- by id
    snapshots = {},
    dispatcher = nil,
    certificates = nil, -- that are closed with the monitor
    log = logger,
    metrics_text = nil, -- this field and the next five are those of a server
    metrics_newest = 0,
    has_notes = false,
    rejections = nil,
    failures = nil,
    trouble = nil,
    gone = nil, -- an event for its owner: set once no connection is left
    is_closed = false,
  }, monitor_mt)
  local ok, raised = pcall(start, self, handlers)
  if ok then return self end
  self:close()
  error(raised, 0)
end

return { open = open }
