-- SPDX-License-Identifier: MIT
--- server: serves a store to etcd's clients.
--
-- The core answers KV, Watch and Lease. Tasks answer the calls of all other methods, see dispatcher. A server exists
-- until it is closed, even without references from the program.

local certificates = require "keywatch.server.certificates"
local check = require "keywatch.support.check"
local compactor = require "keywatch.server.compactor"
local core = require "keywatch.core"
local dispatcher = require "keywatch.server.dispatcher"
local driver = require "keywatch.task.driver"
local grpc_status = require "keywatch.support.grpc_status"
local endpoints = require "keywatch.server.endpoints"
local identity = require "keywatch.server.identity"
local listening = require "keywatch.server.listening"
local log = require "keywatch.support.log"
local metrics = require "keywatch.server.metrics"
local methods = require "keywatch.server.methods"
local monitor = require "keywatch.server.monitor"
local notes = require "keywatch.server.notes"
local options = require "keywatch.server.options"
local origin = require "keywatch.server.origin"
local routes = require "keywatch.server.routes"
local trouble = require "keywatch.server.trouble"
local turns = require "keywatch.store.turns"

local RAFT_TERM = 2   -- as in a new etcd with one member
local STALL_SECONDS = 60 -- after which a snapshot ends whose client reads nothing
local GRACE, MOST_GRACE = 5, 1e9 -- seconds
local LAST_FRAMES = 0.5 -- seconds after the grace, in which the last frames are sent to clients

local server_methods, server_mt = check.class "keywatch.server"

function server_mt:__tostring()
  return ("keywatch.server<%s>"):format(self.is_closed and "closed" or table.concat(self:addresses(), ","))
end

--- Returns the URLs that the server listens on, and the URLs of `listen_metrics`, both with the ports that the kernel
-- chose.
function server_methods:addresses()
  return listening.urls(self.listeners), self.monitor and self.monitor:addresses() or {}
end

local function stop_listening(server)
  listening.close_all(server.listeners)
  server.listeners = {}
end

--- Stops listening, and closes every connection at once. Idempotent.
function server_methods:close()
  if self.is_closed then return true end
  local d = driver.get()
  self.is_closed = true
  if self.compactor then self.compactor:close() end
  if self.monitor then self.monitor:close() end
  if self.certificates then self.certificates:close() end
  stop_listening(self)
  d.release(self.object)
  self.object:close()
  if self.dispatcher then
    d.detach(self.dispatcher)
    self.dispatcher:finish_all(grpc_status.UNAVAILABLE)
  end
  if self.rejections then notes.finish(self) end
  if self.gone then self.gone:set() end
  return true
end

--- Stops listening, asks clients to use another server, waits until all connections have ended, at most `grace`
-- seconds, and closes. Several tasks may call this at once.
function server_methods:shutdown(grace)
  check.timeout(grace, "shutdown")
  if self.is_closed then return true end
  local d = driver.get()
  d.check_wait()
  grace = math.max(0, math.min(grace or GRACE, MOST_GRACE))
  stop_listening(self)
  self.object:drain(grace, d.now())
  self.gone = self.gone or d.event()
  if self.is_closed then return true end -- making the event may have run a finalizer that closed the server
  local seconds = grace + LAST_FRAMES
  d.shield(seconds, self.gone.wait, self.gone, seconds)
  return self:close()
end

local function check_open(server, name)
  if server.is_closed then check.misuse("%s: the server is closed", name) end
end

--- Adds a service: methods by name. Each is a function of request and call that returns the answer, or a table
-- { handler =, stream =, request =, response = }.
function server_methods:mount(service, given)
  check.argument(type(service) == "string", 1, "mount", "string", service)
  check.argument(type(given) == "table", 2, "mount", "table", given)
  check_open(self, "mount")
  methods.mount(self, service, given)
end

--- Adds middleware around every call of every service: { before = function(call), message = function(call, message),
-- after = function(call, status) }; `message` gets each message of a stream. If `before` or `message` raises an error,
-- or returns nil and an error, the call fails with the error; if it returns false, the call is refused.
function server_methods:use(middleware)
  check.argument(type(middleware) == "table", 1, "use", "table", middleware)
  check_open(self, "use")
  local read = methods.read_middleware(middleware)
  if #self.middleware == 0 then self.object:intercept() end
  if read.message and not self.is_inspecting then self.object:inspect() end
  self.is_inspecting = self.is_inspecting or read.message ~= nil
  self.middleware[#self.middleware + 1] = read
end

--- Returns the metrics of the server and of its store as text in Prometheus' format, version 0.0.4.
function server_methods:metrics()
  check_open(self, "metrics")
  return metrics.text(self)
end

--- Adds a handler for HTTP requests: handler(request) returns a status, a body and headers; see request.lua.
function server_methods:handle(method, path, handler)
  check.argument(type(method) == "string", 1, "handle", "string", method)
  check.argument(type(path) == "string", 2, "handle", "string", path)
  check.argument(type(handler) == "function", 3, "handle", "function", handler)
  check_open(self, "handle")
  routes.add(self.routes, method, path, handler)
end

-- {====== Opening ======

--- Returns the server object of the core; or nil and an error.
local function open_object(opts, ids)
  turns.expect_long_writes()
  return core.serve(opts.store, {
    cluster_id = ids.cluster_id,
    member_id = ids.member_id,
    raft_term = RAFT_TERM,
    max_concurrent_streams = opts.max_concurrent_streams,
    quota_connection_bytes = opts.quota_connection_bytes,
    keepalive_min_time = opts.keepalive_min_time,
    keepalive_interval = opts.keepalive_interval,
    keepalive_timeout = opts.keepalive_timeout,
    measures_handling = opts.metrics == "extensive",
  })
end

--- Returns a compactor; or nil if automatic compaction is off.
local function open_compactor(opts, logger)
  if opts.auto_compaction_retention == 0 then return nil end
  return compactor.open(opts.store, opts.auto_compaction_mode, opts.auto_compaction_retention, nil, logger)
end

local function new(opts, ids, object, parts)
  return setmetatable({
    store = opts.store,
    object = object, -- of the core
    listeners = parts.listeners,
    certificates = parts.certificates, -- for the listeners with TLS; nil if there are none
    routes = routes.new(), -- the handlers of HTTP requests
    origins = parts.origins,
    methods = {},    -- the methods that Lua answers, by path
    middleware = {}, -- { before, message, after }, in the order of use
    is_inspecting = false, -- one of the middleware has `message`
    calls = {},      -- the calls that Lua answers or intercepts, by id
    queues = {},     -- calls that wait for a lock or an election, by prefix: see services/queue.lua
    snapshots = {},  -- driver events by snapshot that is being written: set once it is written
    dispatcher = nil,
    compactor = nil,
    monitor = nil,   -- the listeners of `listen_metrics`
    log = parts.log,
    has_notes = false, -- the core takes all notes, for the debug log
    rejections = nil,  -- the limit for log lines about rejected connections, see notes.lua
    failures = nil,    -- the limit for log lines about handlers and middleware that raise
    trouble = nil,     -- current problems, see trouble.lua
    metric_frames = {}, -- constant parts of metrics, by path, see metrics.lua
    metrics_text = nil, -- for requests up to the call `metrics_newest`, see endpoints.lua
    metrics_newest = 0,
    version_text = nil, -- of the endpoint /version
    health_checks = { success = 0, failures = 0 }, -- how many there were, by result

    name = opts.name,
    identity = ids,
    raft_term = RAFT_TERM,
    peer_urls = opts.peer_urls,
    client_urls = opts.advertise,

    stall_seconds = STALL_SECONDS,
    gone = nil, -- a driver event for shutdown: set once no connection is left
    is_closed = false,
  }, server_mt)
end

--- Opens the listeners of `listen_metrics`. Returns true; or nil and an error.
local function open_monitor(server, addresses)
  if not addresses[1] then return true end
  local err
  server.monitor, err = monitor.open(addresses, server.certificates and server.certificates.context,
    endpoints.monitoring(server), server.origins, server.log)
  return server.monitor and true, err
end

--- Starts the work of a server. If this raises, the caller must close the server.
local function start(server, opts)
  server.compactor = open_compactor(opts, server.log)
  server.client_urls = server.client_urls or server:addresses()
  notes.start(server)
  trouble.start(server)
  methods.mount_services(server)
  endpoints.mount(server)
  server.dispatcher = dispatcher.open(server)
  if server.certificates then server.certificates:start() end
end

--- Opens a server with the parts { log =, certificates =, origins = }, and adds its listeners to the parts. Returns the
-- server; or nil and an error.
local function open(opts, addresses, parts)
  local ids, err = identity.of(opts.store, opts.peer_urls, opts.cluster_token)
  if not ids then return nil, err end
  local object
  object, err = open_object(opts, ids)
  if not object then return nil, err end
  origin.limit_hosts(parts.origins, object)
  parts.listeners, err = listening.open_all(object, addresses, parts.certificates and parts.certificates.context)
  if not parts.listeners then
    object:close()
    return nil, err
  end
  local server = new(opts, ids, object, parts)
  local ok, raised = pcall(start, server, opts)
  if ok then return server end
  server:close()
  error(raised, 0)
end

--- Serves a store. The server listens when this returns. It answers while the loop turns; with `thread`, a thread turns
-- its own loop. Returns the server, or nil and an error.
local function serve(opts)
  local addresses, monitoring, all
  opts, addresses, monitoring, all = options.read(opts)
  driver.get().check_serve(opts.thread)
  if opts.thread then return require("keywatch.server.thread").start(opts) end
  local parts = { log = log.new(opts.log_level, opts.on_log), origins = origin.new(opts.cors, opts.host_whitelist) }
  if opts.tls then
    local made, why = certificates.open(opts.tls, all, opts.advertise, parts.log)
    if not made then return nil, why end
    parts.certificates = made
  end
  local server, err = open(opts, addresses, parts)
  if not server and parts.certificates then parts.certificates:close() end
  if not server then return check.results(nil, err) end
  local ok, raised, why = pcall(open_monitor, server, monitoring)
  if ok and raised then return server end
  server:close()
  if not ok then error(raised, 0) end
  return check.results(nil, why)
end

-- }======

return { serve = serve, methods = server_methods }
