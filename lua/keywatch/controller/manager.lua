-- SPDX-License-Identifier: MIT
--- manager: starts and stops several controllers, caches and other components of one process in order, optionally only
-- while the process leads an election. supervisor.lua keeps the order.
--
-- A manager can be started once: a stop closes its caches and informers.

local check = require "keywatch.support.check"
local supervisor = require "keywatch.controller.supervisor"
local controller_file = require "keywatch.controller.controller_file"
local driver = require "keywatch.task.driver"
local electors = require "keywatch.controller.elector"
local errors = require "keywatch.support.errors"
local exits = require "keywatch.task.exits"
local bases = require "keywatch.concurrency.base"
local health = require "keywatch.controller.health"
local log = require "keywatch.support.log"
local metrics = require "keywatch.controller.metrics"
local monitoring = require "keywatch.controller.monitoring"
local serve_options = require "keywatch.server.options"
local components = require "keywatch.controller.component"
local workers = require "keywatch.task.worker"

local NAME = "manager"
local STOP_TIMEOUT = 30  -- seconds
local SYNC_TIMEOUT = 120 -- seconds, as of controllers
local TTL = 15           -- seconds, as of electors
local SIGNALS = { "INT", "TERM" }

local manager_methods, manager_mt = check.class "keywatch.manager"

-- {====== Adding ======

local ADD_OPTIONS = { leader = "boolean" }

--- Raises if the writes of a controller would not carry the fence of the leadership.
local function check_fenced(self, record)
  local own = components.own_store(record)
  if own == nil or not self.own_elector or not record.is_led or rawequal(own, self.outer) then return end
  if components.stands_on(own, self.store) then return end
  check.misuse("add: %s has a store of its own, whose writes do not carry the fence of the leadership: make it of "
    .. "manager.store, or add the controller with leader = false", record.title)
end

--- Adds a component: a controller, a cache, an informer, an elector, or a table with the methods start(self, store) and
-- stop(self, timeout). Option: `leader`, false for a component that runs also while this process does not lead. Returns
-- the component; or nil and an error of code "closed" if the manager is being stopped.
function manager_methods:add(object, opts)
  opts = check.options(opts, "add", ADD_OPTIONS)
  local record = components.new(object, opts.leader ~= false, self.records, "add")
  check_fenced(self, record)
  if components.manager_of(record) then check.misuse("add: %s belongs to another manager", record.title) end
  if record.kind == components.of_controller or record.kind == components.of_elector then
    if object:status().state ~= "idle" then check.misuse("add: %s is started", record.title) end
  end
  if self.state == "stopping" or self.state == "stopped" then return nil, errors.closed("manager") end
  local loading = self.loading
  if loading and loading.task == driver.get().current() then record.owner = loading end
  table.insert(self.records, record)
  components.claim(record, self)
  self.is_ready = false
  self.changed:set()
  return object
end

--- Removes the components that a failed controller file has added.
local function take_back(self, loading)
  for i = #self.records, 1, -1 do
    local record = self.records[i]
    if record.owner == loading then
      table.remove(self.records, i)
      components.release(record)
      if record.kind.runs_from_creation then supervisor.close(record) end
    end
  end
end

--- Moves the components that a controller file has added to the manager, or to the outer load. Returns their number.
local function hand_over(self, loading)
  local n = 0
  for _, record in ipairs(self.records) do
    if record.owner == loading then
      record.owner, n = loading.outer, n + 1
    end
  end
  self.is_ready = false
  self.changed:set()
  return n
end

--- Runs a controller file: the file returns a function, which is called with the manager and the other arguments, and
-- adds components. Returns true; or nil and an error: then nothing was added.
function manager_methods:load(path, ...)
  check.argument(type(path) == "string", 1, "load", "string", path)
  if self.state == "stopping" or self.state == "stopped" then return nil, errors.closed("manager") end
  local loading = { task = driver.get().current(), outer = self.loading }
  self.loading = loading
  local called, ok, err = pcall(controller_file.run, path, self, ...)
  self.loading = loading.outer
  if called and ok then
    if hand_over(self, loading) > 0 then return true end
    err = controller_file.error(path, "adds nothing to the manager: call manager:add in the function that it returns")
  end
  take_back(self, loading)
  if not called then error(ok, 0) end -- cancelled
  return nil, err
end

-- }======

-- {====== Starting and stopping ======

--- Starts all components. Does not wait.
function manager_methods:start()
  if self.state == "stopped" or self.state == "stopping" then
    check.misuse("start: the manager was stopped, and has closed its caches and informers: make another one")
  elseif self.state ~= "new" then
    check.misuse("start: the manager is started")
  end
  local err
  if self.listen[1] then self.monitor, err = monitoring.open(self) end
  supervisor.start(self)
  exits.hold(self, 1, self.stop)
  if err then supervisor.fail(self, err) end
end

--- True if every component that may run has been started, and has synced.
function manager_methods:has_synced()
  return self.state == "started" and supervisor.is_all_synced(self)
end

--- Waits for a condition, `timeout` seconds at most. Returns false at the timeout.
local function await(self, holds, timeout)
  local d = driver.get()
  if not holds(self) then d.check_wait() end
  return driver.await(self, "news", timeout and d.now() + timeout, holds)
end

local function has_ended(self) return self.state == "stopped" end
local function is_decided(self) return self.is_ready or self.state ~= "started" end
local function is_leading(self) return self.term ~= nil or self.state ~= "started" end

--- Waits until has_synced is true. Returns true; or nil and an error: the one that the manager ends with, "closed" if
-- it is not started, or is stopped during the wait, or "timeout".
function manager_methods:wait_synced(timeout)
  check.timeout(timeout, "wait_synced")
  if not await(self, is_decided, timeout) then
    local texts = health.texts(self)
    local text = "keywatch: the manager has not synced yet"
    return nil, errors.new("timeout", texts[1] and text .. ": " .. texts[1] or text)
  end
  if self.state == "started" then return true end
  return nil, self.failure or errors.closed("manager")
end

--- Waits until this process leads: components that need the leadership are being started. A manager without an election
-- leads when it is started. Returns as wait_synced.
function manager_methods:wait_leading(timeout)
  check.timeout(timeout, "wait_leading")
  if not await(self, is_leading, timeout) then
    local leader = self.own_elector.object:leader()
    return nil, errors.new("timeout", ("keywatch: this process does not lead '%s' yet%s"):format(self.own_elector.name,
      leader and (": the leader is '%s'"):format(leader) or ""))
  end
  if self.state == "started" then return true end
  return nil, self.failure or errors.closed("manager")
end

--- True if the caller is a function of a component of the manager, for whose end the component waits.
local function is_inside(self)
  local current = driver.get().current()
  if not current then return false end
  if self.step and self.step.task == current then return true end
  for _, record in ipairs(self.records) do
    if components.is_inside(record) then return true end
  end
  return false
end

--- Stops all components in reverse order, within so many seconds; then the remaining ones are cancelled, and abandoned
-- if they still run. Returns true; or nil and an error of code "timeout" if a component was cut short. May be called by
-- a component, and does not wait then.
function manager_methods:stop(timeout)
  check.timeout(timeout, "stop")
  if self.state == "stopped" then return true end
  supervisor.begin_stop(self, timeout or self.stop_timeout)
  if is_inside(self) then return true end
  await(self, has_ended)
  if #self.cut_short == 0 then return true end
  return nil, errors.new("timeout", "keywatch: some components have not stopped properly: "
    .. table.concat(self.cut_short, ", "))
end

--- Raises if the caller is a controller file that is being loaded: it would wait for itself.
local function check_loaded(self, name)
  local loading, current = self.loading, driver.get().current()
  while loading and loading.task ~= current do loading = loading.outer end
  if not loading then return end
  check.misuse("%s: components that a controller file adds are started when its function has returned, and the program "
    .. "that loads the file runs the manager", name)
end

--- Waits until the manager has stopped. Returns true; or nil and the error that it has ended with, or one of code
-- "timeout".
function manager_methods:join(timeout)
  check.timeout(timeout, "join")
  if not timeout then check_loaded(self, "join") end
  if not await(self, has_ended, timeout) then return nil, errors.new("timeout") end
  if self.failure then return nil, self.failure end
  return true
end

--- Logs the first signal, and a second one.
local function log_signal(self, name, is_second)
  if is_second then return log.warn("SIG%s: stopping at once", name) end
  log.info("SIG%s: stopping; components that have not stopped after %g s are cut short", name, self.stop_timeout)
end

--- The function of the worker that waits for signals. The second one ends at once.
local function attend(waiting)
  local self = waiting.manager
  while true do
    local name = waiting.signals:wait()
    if not name then return end
    local is_second = waiting.has_one
    waiting.has_one = true
    log_signal(self, name, is_second)
    supervisor.begin_stop(self, is_second and 0 or self.stop_timeout)
  end
end

local RUN_OPTIONS = { signals = "table" }

--- Starts all components, unless they are started, and waits for a signal or a failure; then stops in order. Option:
-- `signals`, a list of names. Returns as join. If the caller is cancelled, the manager begins to stop.
function manager_methods:run(opts)
  opts = check.options(opts, "run", RUN_OPTIONS)
  check_loaded(self, "run")
  local d = driver.get()
  local names = opts.signals or d.has_signals == false and {} or SIGNALS
  d.check_wait()
  local waiting = { manager = self, signals = nil, worker = nil, has_one = false }
  if #names > 0 or next(names) ~= nil then
    local ok, signals, err = pcall(d.signals, names)
    if not ok then check.raise_again(signals, "run", "signals") end
    if not signals then return nil, err end
    waiting.signals = signals
    waiting.worker = workers.start(attend, waiting)
  end
  if self.state == "new" then self:start() end
  local ok, result, err = pcall(self.join, self)
  if waiting.signals then
    waiting.signals:close()
    waiting.worker:stop(true)
  end
  if ok then return result, err end
  if self.state ~= "stopped" then supervisor.begin_stop(self, self.stop_timeout) end
  error(result, 0)
end

-- }======

-- {====== Health and metrics ======

--- Returns true; or false and a list of texts about trouble.
function manager_methods:is_healthy()
  local texts = health.texts(self)
  return #texts == 0, texts
end

--- Returns the status of the manager. Does not wait.
function manager_methods:status()
  local elector = self.own_elector and self.own_elector.object
  local list = {}
  for i, record in ipairs(self.records) do
    list[i] = {
      kind = record.kind.word, name = record.name, state = record.state, leader = record.is_led,
      has_synced = record.state == "started" and record.kind.is_synced(record), status = record.kind.status(record),
    }
  end
  return {
    state = self.state,
    has_synced = self:has_synced(),
    is_leader = self.term ~= nil,
    leader = elector and elector:leader() or nil,
    id = elector and elector:status().id or nil,
    failure = self.failure,
    components = list,
  }
end

--- Returns the URLs of `listen_metrics`, with the ports that the kernel chose; none unless the manager is started.
function manager_methods:addresses()
  return self.monitor and self.monitor:addresses() or {}
end

--- Returns all counters as Prometheus text.
function manager_methods:metrics()
  return metrics.text(self.records, #health.texts(self) == 0, self.state)
end

--- Returns the state and the number of components.
function manager_mt:__tostring()
  return ("keywatch.manager<%d components %s>"):format(#self.records, self.state)
end

-- }======

-- {====== Making one ======

local OPTIONS = {
  store = "store", election = "text", id = "text", ttl = "ttl", stop_timeout = "0 or more",
  sync_timeout = "some seconds", listen_metrics = serve_options.URLS, tls = "table",
}

--- Raises if an option is invalid. Returns the addresses of `listen_metrics`.
local function check_options(opts)
  check.argument(type(opts) == "table", 1, NAME, "table", opts)
  check.known(opts, NAME, OPTIONS)
  check.needed(opts, NAME, "store")
  for _, name in ipairs { "id", "ttl" } do
    if opts[name] ~= nil and not opts.election then
      check.misuse("%s: option '%s' needs the option 'election'", NAME, name)
    end
  end
  local addresses = serve_options.parse_urls(NAME, opts, "listen_metrics", {})
  serve_options.check_tls(NAME, opts.tls, addresses, "'listen_metrics'")
  return addresses
end

--- Adds an elector to the manager: the components run while it leads.
local function add_elector(self, opts)
  local elector = check.call(NAME, electors.new, {
    store = opts.store, name = opts.election, id = opts.id, ttl = self.ttl,
    on_lead = function(fence, leadership) supervisor.on_lead(self, fence, leadership) end,
    on_lose = function() supervisor.on_lose(self) end,
  })
  elector.has_margin = true
  self.own_elector = components.new(elector, false, {}, NAME)
  self.records[1] = self.own_elector
  self.store, self.term = elector:fence(), nil
end

--- Returns a new manager, which is not started.
local function new(opts)
  local addresses = check_options(opts)
  local d = driver.get()
  local self = setmetatable({
    store = opts.store,      -- the store of the components; with an election its fence
    outer = opts.store,      -- the store of the options
    root = bases.resolve(opts.store, ""),
    ttl = opts.ttl or TTL,
    stop_timeout = opts.stop_timeout or STOP_TIMEOUT,
    sync_timeout = opts.sync_timeout or SYNC_TIMEOUT,
    state = "new",
    records = {},            -- of the components, in the order in which they were added: see component.lua
    stack = {},              -- the records of started components, in order; without caches and informers
    own_elector = nil,       -- the record of the elector of the option `election`
    leading = nil,           -- the fence and the session of the present leadership
    term = { fence = nil },  -- nil: components that need the leadership must not run
    term_deadline = nil,     -- the time by which those components must have stopped
    step = nil,              -- the step that is running, see supervisor.lua
    supervisor = nil,        -- the worker that starts and stops the components
    supervising = nil,       -- its task
    listen = addresses,      -- those of `listen_metrics`
    tls = opts.tls,
    monitor = nil,           -- the listeners
    poller = nil,            -- checks all components periodically: see task/driver.lua
    loading = nil,           -- the load that is running
    is_ready = false,        -- everything that may run has synced
    stop_deadline = nil,     -- the time at which a stop cuts components short
    reserve = 0,             -- seconds of the stop that are reserved for other components
    cut_short = {},          -- titles of the components that have not stopped in order
    failure = nil,           -- the error that the manager ends with
    look_at = 0,             -- the time of the next check
    changed = d.event(),     -- wakes the supervisor
    news = d.event(),        -- wakes callers that wait for a state
  }, manager_mt)
  if opts.election then add_elector(self, opts) end
  return self
end

-- }======

return { new = new, mt = manager_mt, attend = attend, log_signal = log_signal }
