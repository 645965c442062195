-- SPDX-License-Identifier: MIT
--- state: the state of a client, and the hook on_state, which is called for every change.
--
--   idle         there is no connection, and nothing needs one
--   connecting   the first attempt to connect is running
--   connected    there is a connection, and nothing waits because of a failure
--   waiting      after a failure: requests, watches or leases wait, and the client retries
--   closed       the client was closed
--
-- transport.lua calls `update` after each poll, when its own fields are consistent. The hook does not run there: it
-- runs as a task, one call after the other, in the order of the changes. So the hook may wait, raise, and close the
-- client. A state is delivered in the next turn of the loop. `poll`, which the driver also calls, makes sure that a
-- task does that, even if an earlier one was cancelled at the end of a run.

local driver = require "keywatch.task.driver"
local log = require "keywatch.support.log"

local WARN_AFTER = 10 -- seconds that watches wait for a server before the wait is logged, as for caches
local MAX_QUEUE = 64  -- states that wait for a slow hook; older ones are dropped

local state_methods = {}
local state_mt = { __index = state_methods }

--- Returns the state of a new transport.
local function new(transport)
  return setmetatable({
    transport = transport,
    name = "idle",
    endpoint = nil, -- the URL of the endpoint in use
    why = nil,      -- the text of the last error, if the state is idle or waiting
    since = nil,    -- when the name or the endpoint has changed; set at the first use of the client
    changes = 0,
    hook = setmetatable({}, { __mode = "v" }), -- [1]: on_state. It may refer to the client, which keeps it alive
    queue = {},     -- states for which the hook is to be called
    task = nil,     -- the task that calls the hook
    waits_since = nil,  -- when watches began to wait for a server
    has_warned = false, -- that wait was logged
  }, state_mt)
end

--- Sets the hook. The caller must keep it alive.
function state_methods:observe(hook)
  self.hook[1] = hook
end

-- {====== The present state ======

--- Returns why requests, watches or leases wait though there may be a connection; or nil.
local function trouble_of(transport)
  if transport.retrying > 0 and transport.request_trouble then return transport.request_trouble end
  local watch_calls, reads, keeper = transport.watch_calls, transport.reads, transport.keeper
  local err = watch_calls.trouble and watch_calls:trouble_of_waiting() or reads.list[1] and reads:trouble()
    or keeper.waiting > 0 and keeper:trouble_of_waiting()
  return err and err.message or nil
end

--- True if something needs a connection, or one is being opened.
local function needs_connection(transport)
  local dialer = transport.dialer
  return transport.waiting > 0 or transport.authenticating ~= nil or dialer:has_connection()
    or transport.retrying > 0 or transport.watch_calls:has_idle() or transport.reads:has_any()
    or transport.keeper.waiting > 0
end

--- Returns the name of the state, the URL of the endpoint in use, and the text of the last error; nil if there is none.
local function find(transport)
  if transport.is_closed then return "closed" end
  local authenticating = transport.authenticating
  local connection = transport.connection or authenticating and authenticating.was_adopted and authenticating
  if connection then
    local trouble = trouble_of(transport)
    return trouble and "waiting" or "connected", connection.endpoint.url, trouble
  end
  local why = transport.dialer.why
  if not needs_connection(transport) then return "idle", nil, why end
  why = why or trouble_of(transport)
  return why and "waiting" or "connecting", nil, why
end

--- Returns the state as a table for users.
function state_methods:describe()
  local transport = self.transport
  local dialer, now = transport.dialer, driver.get().now()
  self.since = self.since or now
  local is_dialing = self.name == "waiting" and not self.endpoint
  local open, waiting = transport.watch_calls:count()
  return {
    state = self.name,
    since = self.since,
    endpoint = self.endpoint,
    why = self.why,
    failures = is_dialing and dialer.failures or nil,
    retry_at = is_dialing and dialer.retry_at > now and dialer.retry_at or nil,
    requests = {
      open = transport.uses + #transport.reads.list,
      waiting = transport.waiting + transport.pausing + transport.reads:count_waiting(),
    },
    watches = { open = open, waiting = waiting },
    leases = { open = transport.keeper.count, waiting = transport.keeper.waiting },
  }
end

-- }======

-- {====== The hook ======

--- Calls the hook for all states in the queue. Errors that the hook raises are logged.
local function deliver(self)
  while self.queue[1] do
    local described, hook = table.remove(self.queue, 1), self.hook[1]
    if not hook then return end
    local ok, raised = driver.attempt(hook, described)
    if not ok then log.error("%s", "the function on_state of a client has failed: " .. log.failure(self, raised)) end
  end
end

--- Starts the task that calls the hook, if the queue has states and there is no such task. The driver calls this while
-- the queue has states.
function state_methods:poll()
  if not self.queue[1] or not self.hook[1] then
    driver.get().detach(self)
  elseif not self.task or self.task.state == "done" then
    self.task = driver.get().spawn_own(deliver, self)
  end
end

--- Adds a state to the queue. The state "closed" is the last one, and replaces all earlier states in the queue.
local function add(self, described)
  if described.state == "closed" then
    self.queue = { described }
  else
    if #self.queue == MAX_QUEUE then table.remove(self.queue, 1) end
    self.queue[#self.queue + 1] = described
  end
  driver.get().attach(self)
  self:poll()
end

--- Logs, once per wait, that watches or their reads have waited for a server for WARN_AFTER seconds, and that the
-- client is connected again. Caches log these events themselves. The transport is polled at each attempt to connect, so
-- the log line is not late.
local function watch_over(self, name, why)
  local transport, now = self.transport, driver.get().now()
  local is_waiting = name == "waiting" and next(transport.feeds) == nil
    and (transport.watch_calls:has_idle() or transport.reads:has_any())
  if is_waiting then
    self.waits_since = self.waits_since or now
    if self.has_warned or now - self.waits_since < WARN_AFTER then return end
    self.has_warned = true
    log.warn({ endpoint = transport.dialer.endpoints[1].url },
      "the watches of a client have waited for a server for %d seconds: %s", math.floor(now - self.waits_since),
      (why:gsub("^keywatch: ", "")))
  elseif self.waits_since and name ~= "connecting" then
    if self.has_warned and name == "connected" then
      log.info({ endpoint = transport.dialer.endpoints[1].url }, "a client is connected again, after %d seconds",
        math.floor(now - self.waits_since))
    end
    self.waits_since, self.has_warned = nil, false
  end
end

--- Computes the state. If it has changed, the hook will be called.
function state_methods:update()
  local name, endpoint, why = find(self.transport)
  watch_over(self, name, why)
  if self.name == "closed" or name == self.name and endpoint == self.endpoint and why == self.why then return end
  local now = driver.get().now()
  local change = self.changes + 1
  if self.name == "closed" then return end -- by a finalizer
  if name ~= self.name or endpoint ~= self.endpoint or not self.since then self.since = now end
  self.name, self.endpoint, self.why, self.changes = name, endpoint, why, change
  if not self.hook[1] then return end
  local described = self:describe()
  if self.changes == change then add(self, described) end -- else a finalizer has changed it again, and added that
end

--- In the child after a fork, called by the driver: pending states of the parent are dropped here. The task that calls
-- the hook counts as done, unless the hook itself has forked: then it continues.
function state_methods:after_fork()
  self.queue = {}
end

--- In the child after a fork, called by the transport when it is first used: there is no connection, as if the client
-- were new.
function state_methods:restart()
  self:after_fork()
  self.name, self.endpoint, self.why, self.since = "idle", nil, nil, nil
end

-- }======

return { new = new }
