-- SPDX-License-Identifier: MIT
--- pool: the connections of an HTTP client. Their number is bounded, in total and for each origin. An exchange takes an
-- idle connection or a new one, and releases the connection at its end. Exchanges share HTTP/2 connections. While no
-- connection is free, exchanges wait in order of arrival.
--
-- The driver polls the pool while it has a connection, or opens one. None of this work needs a task.

local attempts_of = require "keywatch.client.attempt"
local connections = require "keywatch.http.connection"
local core = require "keywatch.core"
local driver = require "keywatch.task.driver"
local errors = require "keywatch.support.errors"
local queues = require "keywatch.http.queue"
local sooner = require("keywatch.task.timers").sooner

local FRESH = 0.001 -- seconds since the last poll, after which an idle connection is polled before it is used

local pool_methods = {}
local pool_mt = { __index = pool_methods }

--- Returns a pool. opts: connect_timeout, idle_timeout, max_connections, max_per_host; get_security(endpoint), which
-- returns an object of client/security.lua, or nil and an error.
local function new(opts)
  return setmetatable({
    opts = opts,
    pid = core.pid(),
    hosts = {},       -- by the key of the origin: { count = of connections, idle = a list, the newest last, shared =
                      -- the HTTP/2 connections, has_h2 = the server speaks HTTP/2 }
    count = 0,        -- of all connections
    open = {},        -- as keys: connections
    dialing = {},     -- waiters whose connections are being opened
    waiting = queues.new(), -- waiters without a connection
    polled_at = 0,
    is_attached = false,
    is_drained = false, -- no connection stays idle
    is_closed = false,
  }, pool_mt)
end

--- Attaches the pool to the driver while there are connections, or detaches it.
local function update(self)
  local is_wanted = not self.is_closed and (next(self.open) ~= nil or self.dialing[1] ~= nil)
  if is_wanted == self.is_attached then return end
  self.is_attached = is_wanted
  local d = driver.get()
  if is_wanted then d.attach(self) else d.detach(self) end
end

local function remove(list, one)
  for i = 1, #list do
    if list[i] == one then return table.remove(list, i) end
  end
end

-- {====== Counting ======

--- Counts a connection that is being opened to an origin.
local function add(self, key)
  local host = self.hosts[key]
  if not host then
    host = { count = 0, idle = {}, shared = {}, has_h2 = false }
    self.hosts[key] = host
  end
  host.count, self.count = host.count + 1, self.count + 1
end

--- Removes a connection from the counts.
local function subtract(self, key)
  local host = self.hosts[key]
  host.count, self.count = host.count - 1, self.count - 1
  if host.count == 0 then self.hosts[key] = nil end
end

--- Closes a connection, removes it from the pool, and wakes its exchanges. A second call does nothing.
local function drop(self, connection)
  if not self.open[connection] then return connection:close() end
  local key = connection.endpoint.key
  self.open[connection] = nil
  remove(self.hosts[key].idle, connection)
  remove(self.hosts[key].shared, connection)
  subtract(self, key)
  connection:close()
  for _, arrival in pairs(connection.arrivals) do arrival:set() end
end

--- Closes the connection that has been idle the longest. Returns false if none is idle.
local function drop_oldest(self)
  local oldest
  for _, host in pairs(self.hosts) do
    local first = host.idle[1]
    if first and (not oldest or first.idle_since < oldest.idle_since) then oldest = first end
  end
  if oldest then drop(self, oldest) end
  return oldest ~= nil
end

--- True if a connection to an origin is being opened.
local function is_dialing(self, key)
  for _, waiter in ipairs(self.dialing) do
    if waiter.endpoint.key == key then return true end
  end
  return false
end

--- True if a connection to an origin may be opened. May close an idle one to another origin. If the server speaks
-- HTTP/2, only one connection is opened at a time.
local function has_room(self, key)
  local host = self.hosts[key]
  if host and host.count >= self.opts.max_per_host then return false end
  if host and host.has_h2 and is_dialing(self, key) then return false end
  return self.count < self.opts.max_connections or drop_oldest(self)
end

-- }======

-- {====== Waiters ======

--- Takes a connection for an exchange, and returns the connection.
local function take(connection)
  connection.count, connection.idle_since = connection.count + 1, nil
  return connection
end

--- Takes a shared connection to an origin, or the newest idle one; returns nil if there is none. Drops connections that
-- have ended.
local function take_idle(self, key)
  local host = self.hosts[key]
  if not host then return nil end
  for i = #host.shared, 1, -1 do
    local connection = host.shared[i]
    local _, is_over = connection:poll()
    if connection:takes_more() then
      remove(host.idle, connection)
      return take(connection)
    end
    if is_over and connection.count == 0 then drop(self, connection) end
  end
  while host.idle[1] do
    local connection = table.remove(host.idle)
    connection:poll()
    if connection:takes_more() then return take(connection) end
    drop(self, connection)
  end
end

--- Begins to open a connection for a waiter.
local function begin(self, waiter, now)
  local endpoint, opts = waiter.endpoint, self.opts
  add(self, endpoint.key)
  waiter.attempt = attempts_of.new(endpoint, function(_, address)
    return connections.dial(endpoint, address, {
      connect_timeout = opts.connect_timeout, idle_timeout = opts.idle_timeout,
      is_tls = endpoint.address.is_tls, has_h2 = opts.protocol == "h2",
    }, waiter.security)
  end, now + opts.connect_timeout)
  table.insert(self.dialing, waiter)
end

--- Gives a connection to a waiter, or begins to open one for it. Returns false if neither is possible.
local function serve(self, waiter)
  local key = waiter.endpoint.key
  waiter.connection = take_idle(self, key)
  if waiter.connection then
    waiter.event:set()
  elseif has_room(self, key) then
    begin(self, waiter, driver.get().now())
  else
    return false
  end
  return true
end

local function serve_waiting(self)
  self.waiting:serve(serve, self)
end

--- Returns why a new connection takes no requests.
local function trouble_of(connection)
  local _, is_over, why = connection:poll()
  return why or not is_over and "the server allows no streams" or nil
end

--- Continues to open the connection of a waiter. Returns true if that has ended; and the seconds until it must be
-- continued, or nil.
local function step(self, waiter, now)
  local attempt = waiter.attempt
  local found = attempt:step(now)
  if found == nil then return false, attempt:until_lookup(now) end
  if found and found:takes_more() then
    local host = self.hosts[waiter.endpoint.key]
    self.open[found] = true
    waiter.connection = take(found)
    if found.is_shared then
      table.insert(host.shared, found)
      host.has_h2 = true
    end
  else
    subtract(self, waiter.endpoint.key)
    waiter.trouble = found and trouble_of(found) or attempt.trouble or "the connection has ended"
    if found then found:close() end
  end
  waiter.event:set()
  return true
end

--- Continues to open connections. Returns the seconds until that must be repeated, or nil.
local function step_all(self, now)
  local wait, i, dialing = nil, 1, self.dialing
  while dialing[i] do
    local waiter = dialing[i]
    local has_ended, seconds = step(self, waiter, now)
    if has_ended then remove(dialing, waiter) else i = i + 1 end
    wait = sooner(wait, seconds)
  end
  return wait
end

--- Removes a waiter, and releases its connection, if it has one.
local function undo(waiter)
  local self = waiter.pool
  self.waiting:remove(waiter)
  if remove(self.dialing, waiter) then
    waiter.attempt:stop()
    subtract(self, waiter.endpoint.key)
  end
  if waiter.connection then self:release(waiter.connection) end
  serve_waiting(self)
  update(self)
end

local function has_result(waiter)
  return waiter.connection ~= nil or waiter.trouble ~= nil or waiter.pool.is_closed
end

--- Waits for the result of a waiter, at most until the deadline.
local function await(waiter, deadline)
  local d = driver.get()
  while not has_result(waiter) do
    if not waiter.event:wait(driver.time_left(deadline)) and (not deadline or d.now() >= deadline) then return end
  end
end

--- Returns the error of a waiter without a connection.
local function error_of(waiter)
  local key = waiter.endpoint.key
  if waiter.pool.is_closed then return errors.closed("client") end
  if waiter.trouble then return errors.new("unavailable", ("keywatch: %s: %s"):format(key, waiter.trouble)) end
  local stage = waiter.attempt and "connecting" or "the wait for one of the connections, which are all in use,"
  return errors.new("timeout", ("keywatch: %s: %s took too long"):format(key, stage))
end

--- Waits for a connection to an endpoint, whose field `key` is the URL of its origin. Returns the connection, which the
-- caller has to release; or nil and an error.
function pool_methods:acquire(endpoint, deadline)
  self:check_process()
  if self.is_closed then return nil, errors.closed("client") end
  local d = driver.get()
  local host = self.hosts[endpoint.key]
  local is_stale = d.now() - self.polled_at > FRESH and not (d.is_prompt and d.is_prompt())
  if is_stale and host and host.idle[1] then d.look() end
  local connection = take_idle(self, endpoint.key)
  if connection then return connection end
  local security, err = self.opts.get_security(endpoint)
  if not security then return nil, err end
  local waiter = {
    pool = self, endpoint = endpoint, security = security, event = d.event(),
    connection = nil, -- the result
    trouble = nil,    -- why there is no connection
    attempt = nil,    -- see attempt.lua; nil: the waiter waits for its turn
  }
  self.waiting:add(waiter)
  serve_waiting(self)
  update(self)
  local ok, raised = driver.protect(undo, waiter, await, waiter, deadline)
  if ok and waiter.connection and not self.is_closed then
    update(self)
    return waiter.connection
  end
  err = ok and error_of(waiter)
  undo(waiter)
  if not ok then error(raised, 0) end
  return nil, err
end

--- Closes the idle connections to an origin.
function pool_methods:drop_idle(key)
  local host = self.hosts[key]
  while host and host.idle[1] do drop(self, host.idle[1]) end
end

--- Takes back a connection, whose exchange has ended.
function pool_methods:release(connection)
  connection.was_used, connection.count = true, connection.count - 1
  local is_open = self.open[connection] and not self.is_closed
  if connection.count == 0 and is_open and not self.is_drained and connection:takes_more() then
    connection.idle_since = driver.get().now()
    table.insert(self.hosts[connection.endpoint.key].idle, connection)
  elseif connection.count == 0 then
    drop(self, connection)
  end
  serve_waiting(self)
  update(self)
end

-- }======

-- {====== The driver ======

--- Does the due background work. Returns the seconds until it must be called again, or nil.
function pool_methods:poll()
  self:check_process()
  local now = driver.get().now()
  self.polled_at = now
  local wait, over = step_all(self, now), {}
  for connection in pairs(self.open) do
    local _, is_over = connection:poll()
    local idle_since = connection.idle_since
    local left = connection.is_shared and idle_since and idle_since + self.opts.idle_timeout - now
    if idle_since and (is_over or left and left <= 0) then
      over[#over + 1] = connection
    elseif left then
      wait = sooner(wait, left) -- the core closes idle HTTP/1.1 connections
    end
  end
  for _, connection in ipairs(over) do drop(self, connection) end
  serve_waiting(self)
  if over[1] or self.dialing[1] then update(self) end
  return wait
end

--- After a fork: forgets the connections of the parent process, and ends their exchanges.
function pool_methods:check_process()
  local pid = core.pid()
  if pid == self.pid then return end
  local open = self.open
  for _, list in ipairs { self.dialing, self.waiting:clear() } do
    for _, waiter in ipairs(list) do waiter.trouble = "the process has forked" end
  end
  self.pid, self.open, self.hosts, self.count, self.dialing = pid, {}, {}, 0, {}
  driver.get().look() -- ends the connections
  for connection in pairs(open) do
    connection.is_retired = true
    connection:poll()
  end
end

--- Called when sockets belong to another nginx timer from now on: no more exchanges begin on the present
-- connections, and idle ones are closed.
function pool_methods:on_move()
  for connection in pairs(self.open) do connection.is_retired = true end
  while drop_oldest(self) do end
  update(self)
end

--- Closes the idle connections: the nginx worker exits when it has served its last request, and may make requests until
-- then. Returns false if a connection is in use.
function pool_methods:drain()
  self.is_drained = true
  while drop_oldest(self) do end
  update(self)
  return self.count == 0
end

--- Closes all connections. Exchanges and waiters fail.
function pool_methods:close()
  if self.is_closed then return end
  self:check_process()
  self.is_closed = true
  local open = {}
  for connection in pairs(self.open) do open[#open + 1] = connection end
  for _, connection in ipairs(open) do drop(self, connection) end
  for _, waiter in ipairs(self.dialing) do
    waiter.attempt:stop()
    subtract(self, waiter.endpoint.key)
    waiter.event:set()
  end
  for _, waiter in ipairs(self.waiting:clear()) do waiter.event:set() end
  self.dialing = {}
  update(self)
  driver.get().look() -- ends the connections, since the loop may never turn again
end

-- }======

return { new = new }
