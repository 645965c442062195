-- SPDX-License-Identifier: MIT
--- transport: carries the calls of a client to its servers. One connection is in use at a time. It is opened when a
-- call first needs it, and a new one is opened after it has ended, or after a fork.
--
-- All background work (connecting, authenticating, receiving, keeping watches attached, reading pages for watches,
-- renewing leases) is done in `poll`. The driver calls `poll` while a call waits, a connection is open or being
-- opened, a watch or a cache is open, a page is to be read, or a lease is kept. None of this work needs a task, so a
-- client works at top level, too.
--
-- A call that no server has executed is tried again until its deadline. A call that a server may have executed is tried
-- again only if it is a read.
--
-- A client of several endpoints asks only members of etcd that have a leader: it sends `hasleader: true` with its
-- calls. A member without a leader then refuses calls at once, before it has done anything, and ends streams after
-- three election timeouts. A slow member is asked whether it has a leader, see leader_probe.lua.

local backoff = require "keywatch.client.backoff"
local check = require "keywatch.support.check"
local cluster = require "keywatch.client.cluster"
local compat = require "keywatch.support.compat"
local core = require "keywatch.core"
local dialer = require "keywatch.client.dialer"
local driver = require "keywatch.task.driver"
local errors = require "keywatch.support.errors"
local grpc_status = require "keywatch.support.grpc_status"
local keepers = require "keywatch.client.keeper"
local keys_by = require("keywatch.support.order").keys_by
local leader_probe = require "keywatch.client.leader_probe"
local methods = require "keywatch.client.methods"
local refusals = require "keywatch.client.refusal"
local range_stream = require "keywatch.client.range_stream"
local reads = require "keywatch.client.reads"
local sooner = require("keywatch.task.timers").sooner
local states = require "keywatch.client.state"
local watch_calls = require "keywatch.client.watch_calls"

local AUTHENTICATE = "/etcdserverpb.Auth/Authenticate"
local NO_LEADER, SLOW = leader_probe.NO_LEADER, leader_probe.SLOW
local WITHOUT_MESSAGE = "keywatch: the server has answered without a message"
local MOVED = "the connection is being reopened"
local MAX_TIMEOUT = 99999999 -- gRPC allows 8 digits in grpc-timeout
local FRESH = 0.001 -- seconds since the last poll, after which the connection is polled again before a call is sent

local ceil = math.ceil

local transport_methods = { new_rest = range_stream.new_rest }
local transport_mt = { __index = transport_methods }

--- Returns the time until a deadline as a value of grpc-timeout: in milliseconds, or in seconds if that is too long.
local function timeout_of(deadline, now)
  local ms = ceil((deadline - now) * 1000)
  if ms < 1 then ms = 1 end
  if ms <= MAX_TIMEOUT then return ("%dm"):format(ms) end
  return ("%dS"):format(math.min(MAX_TIMEOUT, math.ceil(ms / 1000)))
end

--- Returns the header fields of a call: those of the connection, those of the caller (`own`; false removes a field of
-- the connection), and the deadline.
local function metadata_of(connection, deadline, now, own)
  local metadata = check.copy(connection.metadata)
  if own then
    for name, value in pairs(own) do metadata[name] = value or nil end
  end
  if deadline and deadline < math.huge then metadata["grpc-timeout"] = timeout_of(deadline, now) end
  return metadata
end

--- Returns the error of a call that has succeeded without a message.
function transport_methods.error_without_message()
  return core.error_of(grpc_status.INTERNAL, WITHOUT_MESSAGE)
end

--- Returns the transport of a client. `opts` are the options of keywatch.connect with their defaults, and tries_once,
-- see `sibling`.
local function new(endpoints, opts)
  local between = backoff.new(opts.backoff)
  local self = setmetatable({
    opts = opts,
    backoff = between,    -- backoff(n): seconds to wait after n failures
    dialer = dialer.new(endpoints, {
      handshake_timeout = opts.connect_timeout,
      keepalive = opts.keepalive,
      keepalive_timeout = opts.keepalive_timeout,
      max_message = opts.max_message,
    }, opts.security, between, opts.prefer),
    pid = core.pid(),
    connection = nil,     -- the connection that new calls go to
    connections = {},     -- as keys: all open connections
    authenticating = nil, -- the connection whose user is being authenticated
    authenticating_until = 0, -- the deadline of the authentication
    authenticating_call = nil, -- the number of its call
    uses = 0,             -- calls that are running, that wait for a connection, or that pause
    waiting = 0,          -- calls that wait for a connection
    pausing = 0,          -- calls that wait until they are tried again
    retrying = 0,         -- calls that have failed, and are tried again
    request_trouble = nil, -- the last error text of the calls that are tried again
    -- The same counters for calls at top level only, which continue after a fork:
    top = { uses = 0, waiting = 0, pausing = 0, retrying = 0 },
    is_attached = false,  -- the driver polls this transport
    must_look_again = false,
    is_steady = true,     -- see task/driver.lua
    is_closed = false,
    is_drained = false,   -- closed, except for calls of nginx's requests
    successor = nil,      -- the transport of these calls
    is_short = false,     -- this transport is such a successor
    polled_at = 0,        -- time of the last poll
    quiet_until = 0,      -- until this time only watches need work; is_quiet checks what can need work earlier
    changed = nil,        -- driver event: set when `connection`, `refusal` or `is_closed` has changed
    closing = nil,        -- driver event: set when the transport is closed
    guarded = setmetatable({}, { __mode = "v" }), -- [1]: the sentinel of the client
    sentinel = nil,       -- the same sentinel, held while `uses` is not 0
    history_reported_at = -math.huge, -- when it was logged that the server has another history
    refusal = nil,        -- the error with which the server has refused the user
    tries_once = opts.tries_once, -- a call fails as soon as its endpoint has failed once
  }, transport_mt)
  self.watch_calls = watch_calls.new(self)
  self.reads = reads.new(self, metadata_of)
  self.leader_probe = leader_probe.new(self)
  self.cluster = cluster.new(self, opts.sync_endpoints)
  self.keeper = keepers.new(self, metadata_of)
  self.feeds = setmetatable({}, { __mode = "k" }) -- as keys: the feeds of caches
  self.awaiting = setmetatable({}, { __mode = "v" }) -- [1]: the first feed that waits for a silent server
  self.state = states.new(self)
  return self
end

-- {====== The driver ======

--- Attaches the transport to the driver, or detaches it. It is attached while a call waits, a connection is open
-- (the loop would spin until its bytes are read) or being opened, a watch or a cache is open, a page is to be read, or
-- a lease is kept.
function transport_methods:update()
  local is_wanted = not self.is_closed
    and (self.uses > 0 or next(self.connections) ~= nil or self.dialer:has_connection()
      or self.watch_calls:has_watches() or self.reads:has_any() or self.keeper:has_any() or next(self.feeds) ~= nil)
  if is_wanted == self.is_attached then return end
  self.is_attached = is_wanted
  local d = driver.get()
  if is_wanted then return d.attach(self) end
  d.detach(self)
  self.state:update() -- no poll will do that
end

--- Sets the sentinel of the transport's client. When the sentinel is collected, the transport is closed. During calls
-- the transport references the sentinel.
function transport_methods:guard(sentinel)
  self.guarded[1] = sentinel
end

--- Adds n to the counter of that name, and to that of the top level if the caller is not a coroutine.
local function count(self, what, n)
  self[what] = self[what] + n
  if compat.is_main() then self.top[what] = self.top[what] + n end
end

--- Counts a call that begins.
function transport_methods:retain()
  count(self, "uses", 1)
  self.sentinel = self.guarded[1]
  if not self.is_attached then self:update() end
end

--- Counts a call that has ended.
function transport_methods:release()
  count(self, "uses", -1)
  if self.uses > 0 then return end
  self.sentinel = nil
  self:update()
end

--- After a fork: drops the connections of the parent process. This process attaches the watches again.
function transport_methods:check_process()
  local pid = core.pid()
  if pid == self.pid then return end
  self.pid = pid
  local connections = self.connections
  self.connection, self.connections, self.authenticating = nil, {}, nil
  for name, n in pairs(self.top) do self[name] = n end
  driver.get().look() -- ends the connections
  for connection in pairs(connections) do connection:poll() end
  self.dialer:restart()
  self.leader_probe:restart()
  self.cluster:restart()
  self.watch_calls:restart()
  self.reads:restart()
  self.keeper:restart()
  self.state:restart()
end

--- Stops using the open connections, which are closed when their calls have ended. Called by the driver when sockets
-- are opened elsewhere.
function transport_methods:on_move()
  if self.is_closed then return end
  self.dialer:stop()
  for _, connection in ipairs(keys_by(self.connections, "number")) do self:part_with(connection, MOVED) end
  self:look_again()
end

-- }======

-- {====== Connections ======

--- Wakes the calls that wait for a connection.
local function announce_change(self)
  if self.changed then self.changed:set() end
end

--- Makes a connection the one for new calls, and `connections`, if given, the table of all connections. Atomic: a poll
-- by a finalizer would drop a connection that is in the table and not in use.
local function adopt(self, connection, connections)
  self.authenticating, self.connection, self.refusal = nil, connection, nil
  self.connections = connections or self.connections
  connection.was_adopted, self.dialer.why = true, nil
  announce_change(self)
end

--- Ends a connection and the calls on it. `text` is the reason, for the error of calls that find no server.
local function drop(self, connection, now, text)
  self.connections[connection] = nil
  if self.connection == connection or self.authenticating == connection then self.dialer:lost(connection, now, text) end
  if self.connection == connection then self.connection = nil end
  if self.authenticating == connection then self.authenticating = nil end
  if not connection.is_closed then
    connection:close()
    connection:poll() -- the receivers of its calls get their end
    self.watch_calls:poll_connection(connection)
  end
  announce_change(self)
end

--- Ends a connection whose server has refused the user. The calls and reads that wait for a connection, and the
-- watches that are not attached, fail with err. The leases that wait to be renewed are lost.
local function refuse(self, connection, err)
  if self.waiting > 0 then self.refusal = err end
  self.watch_calls:fail_idle(err)
  self.reads:fail_waiting(err)
  self.keeper:fail_waiting(err)
  drop(self, connection, driver.get().now(), err.message)
end

--- Returns the header fields of all calls of a connection, without the token of the user.
local function common_metadata(self)
  return { hasleader = self.dialer:has_choice() and "true" or nil }
end

--- Reads the answer of Authenticate, and uses its token for all calls of the connection.
local function take_token(self, connection, message)
  local answer, err = methods.decode("AuthenticateResponse", message or "\255")
  if not answer then return refuse(self, connection, err) end
  connection.metadata = common_metadata(self)
  connection.metadata.token = answer.token
  adopt(self, connection)
end

--- Authenticates the user on a connection. All calls wait for this one call of Authenticate. `connections`, if given,
-- becomes the table of all connections, as in `adopt`.
local function authenticate(self, connection, connections)
  local now = driver.get().now()
  self.authenticating, self.authenticating_until, self.authenticating_call = connection, now + self.opts.timeout, nil
  self.connections = connections or self.connections
  local bytes = core.encode("AuthenticateRequest", { name = self.opts.user, password = self.opts.password })
  local number = connection:ask(AUTHENTICATE, bytes, function(message, status, text)
    if self.authenticating ~= connection then return end
    if status == grpc_status.OK then
      take_token(self, connection, message)
    elseif text == "etcdserver: authentication is not enabled" then
      connection.metadata = common_metadata(self)
      adopt(self, connection)
    elseif refusals.is_refusal(status, text) then
      refuse(self, connection, core.error_of(status, text))
    else
      local time = driver.get().now()
      drop(self, connection, time, refusals.trouble_of(status, text).message)
      self.dialer:turn_away(connection.endpoint, time)
    end
  end, common_metadata(self)) -- without the old token, which etcd would refuse
  if not number then
    drop(self, connection, now)
  elseif self.authenticating == connection then
    self.authenticating_call = number
  else
    connection:cancel(number) -- a finalizer has polled the client, which has left the server
  end
end

--- Takes over a connection from the dialer. It is used at once, or after the user was authenticated. The table of all
-- connections is replaced, not changed, since a hook or a finalizer may poll during a loop over the table.
local function use_opened(self, connection)
  local connections = { [connection] = true }
  connection.metadata = common_metadata(self)
  for one in pairs(self.connections) do connections[one] = true end
  if self.is_closed then return connection:close() end -- by a finalizer, after the dialer has found the connection
  if self.opts.user then authenticate(self, connection, connections) else adopt(self, connection, connections) end
end

--- Polls a connection. A connection without new calls is kept until its calls have ended. After ENHANCE_YOUR_CALM later
-- connections send keepalive pings half as often.
local function poll_connection(self, connection, now)
  local is_ready, is_over, why, got_enhance_your_calm = connection:poll()
  self.watch_calls:poll_connection(connection)
  if got_enhance_your_calm and not connection.got_enhance_your_calm then
    connection.got_enhance_your_calm = true
    self.dialer.options.keepalive = self.dialer.options.keepalive * 2
  end
  if is_over then
    drop(self, connection, now, why or "the connection has ended")
  elseif not is_ready and self.connection == connection then
    self.connection = nil
    self.dialer:lost(connection, now, why)
    announce_change(self)
  end
  local is_used = self.connection == connection or self.authenticating == connection or connection.count > 0
  if not is_over and not is_used then drop(self, connection, now) end
end

--- Polls all connections, the oldest first. Most often there is one.
local function poll_connections(self, now)
  local connections = self.connections
  local one = next(connections)
  if not one then return end
  if next(connections, one) == nil then return poll_connection(self, one, now) end
  for _, connection in ipairs(keys_by(connections, "number")) do poll_connection(self, connection, now) end
end

--- Does the due work of the feeds of caches. Their hooks may open and close caches. Returns the seconds until more is
-- due, or nil.
local function poll_feeds(self, now)
  local wait = nil
  if next(self.feeds) == nil then return nil end
  for _, feed in ipairs(keys_by(self.feeds, "number")) do wait = sooner(wait, feed:poll(now)) end
  return wait
end

--- Does the due work of watches, reads, leases, the leader probe and the member list. Skips parts without work. Returns
-- the seconds until it must be called again, or nil.
local function poll_parts(self, now)
  local wait = nil
  if self.watch_calls:is_in_use() then wait = self.watch_calls:poll(now) end
  if self.reads.list[1] then wait = sooner(wait, self.reads:poll(now)) end
  if self.cluster.interval then wait = sooner(wait, self.cluster:poll(now)) end
  if self.keeper.count > 0 then wait = sooner(wait, self.keeper:poll(now)) end
  wait = sooner(wait, poll_feeds(self, now))
  return sooner(wait, self.leader_probe:poll(now)) -- last: the others send requests
end

--- Limits the time of Authenticate. Returns the seconds until it must be called again, or nil.
local function poll_authentication(self, now)
  local connection = self.authenticating
  if now < self.authenticating_until then return self.authenticating_until - now end
  drop(self, connection, now, "the server has not answered Authenticate in time")
  self.dialer:turn_away(connection.endpoint, now)
end

--- Opens a connection, if something needs one. Returns the seconds until it must be called again, or nil.
local function poll_dialer(self, now)
  local is_asked = self.waiting > 0 or self.dialer:has_connection() or self.watch_calls:wants_connection(now)
    or self.reads:wants_connection(now) or self.keeper:wants_connection(now)
  if not is_asked then return nil end
  local failures = self.dialer.failures
  local connection, seconds = self.dialer:poll(now)
  if self.dialer.failures > failures and next(self.feeds) ~= nil then self:look_again() end -- caches may have files
  if connection then
    use_opened(self, connection)
    return 0
  end
  if self.tries_once and self.dialer.failures > 0 then
    announce_change(self)
    return nil
  end
  return seconds
end

--- True if there is no other work than watches, and the client's state is up to date.
local function is_quiet(self, now)
  local calls = self.watch_calls
  return now < self.quiet_until and self.uses == 0 and self.connection ~= nil and not self.authenticating
    and not self.must_look_again and not self.reads.list[1] and next(calls.idle) == nil
    and not calls.trouble and self.keeper.count == 0 and not self.cluster.interval
    and next(self.leader_probe.suspects) == nil and not self.dialer.attempts[1] and self.state.name == "connected"
end

--- Wakes the watches with events, if nothing else has arrived. Returns true if there is no other work; and the seconds
-- until `poll` must be called again, or nil.
local function poll_watches(self, now)
  local connection = self.connection
  if now >= self.quiet_until or not connection or next(self.connections, connection) ~= nil then return false end
  if next(self.connections) ~= connection or not connection.core:is_quiet() then return false end
  if self.watch_calls:poll_connection(connection) or not is_quiet(self, now) then return false end
  local quiet_until = self.quiet_until
  return true, quiet_until < math.huge and quiet_until - now or nil
end

--- Does the due background work. Returns the seconds until it must be called again, or nil.
function transport_methods:poll()
  if core.pid() ~= self.pid then self:check_process() end
  local now = driver.get().now()
  self.polled_at = now
  local is_done, seconds = poll_watches(self, now)
  if is_done then return seconds end
  poll_connections(self, now)
  local wait = poll_parts(self, now)
  if self.authenticating then wait = sooner(wait, poll_authentication(self, now)) end
  if not self.connection and not self.authenticating then
    wait = sooner(wait, poll_dialer(self, now))
  elseif self.dialer.attempts[1] then
    self.dialer:stop() -- a finalizer has polled this transport while the dialer began another attempt
  end
  self:update()
  self.state:update()
  if self.must_look_again then self.must_look_again, wait = false, 0 end
  self.quiet_until = wait and now + wait or math.huge
  return wait
end

--- Makes the running poll, or the next one, check all parts of the transport, not only watches.
function transport_methods:look_at_all()
  self.quiet_until, self.poll_at = 0, nil
end

--- Makes the driver poll the transport once more at once. For callers that add work, also in the middle of a poll.
function transport_methods:look_again()
  self.must_look_again, self.poll_at = true, nil
end

--- Polls all sockets once, and handles received bytes. Does not wait.
function transport_methods:look()
  self:check_process()
  self:poll()
  driver.get().look()
  self:poll()
end

--- True if there is news for calls that wait for a connection.
local function has_news(self)
  return self.connection or self.refusal or self.is_closed or self.tries_once and self.dialer.failures > 0
end

--- Ends the wait for a connection of a caller that was killed.
local function undo_await(self)
  count(self, "waiting", -1)
  self:release()
end

--- Waits for a connection that takes calls. Returns it, or nil and an error.
function transport_methods:await_connection(deadline)
  if core.pid() ~= self.pid then self:check_process() end
  if self.is_closed then return nil, errors.closed("client") end
  local d = driver.get()
  if self.connection and d.now() - self.polled_at > FRESH and not (d.is_prompt and d.is_prompt()) then
    self:look() -- takes the last bytes of the server
    self:look() -- takes the end of the connection, if that came behind the bytes
  end
  if self.connection then return self.connection end
  self.changed = self.changed or d.event() -- before the loop: a finalizer may close the transport here
  count(self, "waiting", 1)
  self:retain()
  local ok, came = true, true
  while ok and came and not has_news(self) do
    ok, came = driver.protect(undo_await, self, self.changed.wait, self.changed, driver.time_left(deadline))
  end
  count(self, "waiting", -1)
  self:release()
  local refusal = self.refusal
  if self.waiting == 0 then self.refusal = nil end
  if not ok then error(came, 0) end
  if self.is_closed then return nil, errors.closed("client") end
  if self.connection then return self.connection end
  return nil, refusal or self.dialer:error()
end

-- }======

-- {====== Calls ======

--- Returns the deadline of a call: the given one, or now plus the timeout. Without both, the timeout is the option of
-- connect, else the driver's limit (`patience`), else the default.
function transport_methods:deadline_of(timeout, deadline)
  if deadline then return deadline end
  local d = driver.get()
  local patience = not timeout and not self.opts.has_timeout and d.patience and d.patience()
  return d.now() + (timeout or patience or self.opts.timeout)
end

-- A waiter is the receiver of a unary call: a task, or the top level, waits for its event. The waiter of a read has one
-- more method.
local waiter_methods, read_waiter_methods = {}, {}
local waiter_mt, read_waiter_mt = { __index = waiter_methods }, { __index = read_waiter_methods }

--- Takes the result of the call and wakes the caller.
function waiter_methods:on_ready(connection, number)
  self.message, self.status, self.text, self.is_refused = connection:finish(number)
  self.is_done = true
  self.event:set()
end

read_waiter_methods.on_ready = waiter_methods.on_ready

--- Called when another connection is used from now on. The read is sent again there.
function read_waiter_methods:on_leave(connection, number, text)
  self.status, self.text, self.is_refused = grpc_status.UNAVAILABLE, text, false
  self.is_done = true
  connection:cancel(number)
  self.event:set()
end

--- Waits until the waiter has its result. Returns false if the deadline was first, or driver.expire has ended the wait.
-- The leader probe suspects a slow server.
local function await_answer(self, connection, waiter, deadline)
  local d, patience = driver.get(), connection.metadata.hasleader and SLOW
  while not waiter.is_done do
    local now = d.now()
    local left = deadline and math.max(0, deadline - now)
    local is_slow = patience and (not left or left > patience)
    if not waiter.event:wait(is_slow and patience or left) then
      if not is_slow or d.now() < now + patience then return false end -- the wait was ended by driver.expire
      patience = nil
      self.leader_probe:begin(connection)
    end
  end
  return true
end

--- Returns the error of a sent call. For a write it has maybe_done.
local function mark_maybe_done(err, is_read)
  if not is_read then err.maybe_done = true end
  return err
end

--- Cancels the call of a caller that was killed.
local function undo_try(waiter)
  waiter.transport:release()
  if not waiter.is_done then waiter.connection:cancel(waiter.number) end
end

--- Makes a call on a connection, once. Returns the waiter with the result; nil if the connection took no call; false
-- if the deadline was first.
local function try(self, connection, call)
  local d, deadline, is_read = driver.get(), call.deadline, call.is_read
  local waiter = setmetatable({ event = d.event(), is_done = false, token = connection.metadata.token },
    is_read and read_waiter_mt or waiter_mt)
  local metadata = metadata_of(connection, deadline, d.now(), call.metadata)
  waiter.requires_leader = metadata.hasleader == "true"
  local number = connection:begin(call.path, call.bytes, metadata, waiter)
  if not number then return nil end
  if call.report then call.report:note(connection) end
  self:retain()
  waiter.transport, waiter.connection, waiter.number = self, connection, number
  local ok, came = driver.protect(undo_try, waiter, await_answer, self, connection, waiter, deadline)
  self:release()
  if not waiter.is_done then connection:cancel(number) end
  if not ok then error(type(came) == "table" and mark_maybe_done(came, is_read) or came, 0) end
  return came and waiter
end

--- True if a call has failed because of its token, or without one.
local function wants_token(status, text)
  return status == grpc_status.UNAUTHENTICATED or text == "etcdserver: user name is empty"
    or text == "etcdserver: revision of auth store is old"
end

--- Returns true if a call has failed because of its token, and may be tried again with a new one. The user is then
-- authenticated again, unless the connection already has another token.
function transport_methods:renew(connection, token, status, text)
  if not self.opts.user or not wants_token(status, text) then return false end
  if self.connection == connection and connection.metadata.token == token then
    self.connection = nil
    authenticate(self, connection)
  end
  return true
end

--- True if a call has certainly not been executed: the server has not processed it; or the call requires a leader, and
-- the server has refused it because it has none. Members of etcd check for a leader before anything else. This does not
-- hold for the services outside of etcdserverpb (locks, elections): one call makes several changes, and some may have
-- been made.
local function is_refused(waiter, call)
  return waiter.is_refused or waiter.status == grpc_status.UNAVAILABLE and waiter.text == NO_LEADER
    and waiter.requires_leader and call.path:find("^/etcdserverpb%.") ~= nil
end

--- Stops using a connection whose server is useless. Other endpoints are tried first. `text` is the reason.
function transport_methods:turn_away(connection, text)
  if self.connection ~= connection or not self.dialer:has_choice() then return end
  self.connection = nil
  self.dialer:turn_away(connection.endpoint, driver.get().now(), text)
end

--- Stops using a connection: reads and watches continue on another one. Writes wait for their answers.
function transport_methods:part_with(connection, text)
  connection.is_left = true
  if self.connection == connection then self.connection = nil end
  if self.authenticating == connection then
    self.authenticating = nil
    if self.authenticating_call then connection:cancel(self.authenticating_call) end
  end
  connection:leave(text)
  self.watch_calls:cancel_questions(connection)
  self.reads:leave(connection, text)
end

--- Stops using a connection, and tries other endpoints first.
function transport_methods:abandon(connection, text)
  local is_last = not self.connection or self.connection == connection
  self.dialer:turn_away(connection.endpoint, driver.get().now(), is_last and text or nil)
  self:part_with(connection, text)
end

--- Abandons a connection whose server has no leader, or does not answer. Does nothing if there is no other endpoint.
function transport_methods:leave(connection, text)
  if self.dialer:has_choice() then self:abandon(connection, text) end
end

--- Ends the pause of a caller that was killed.
local function undo_pause(self)
  count(self, "pausing", -1)
  self:release()
end

--- Pauses after a server has failed. Returns true after the pause. Returns false if the deadline is before its end,
-- without waiting, or if driver.expire has ended the wait.
local function pause(self, failures, deadline)
  local d = driver.get()
  local seconds = self.backoff(failures)
  if deadline and d.now() + seconds > deadline then return false end
  self.closing = self.closing or d.event()
  if self.is_closed then return true end -- by a finalizer, before the event existed
  count(self, "pausing", 1)
  self:retain()
  local until_ = d.now() + seconds
  local ok, is_closing = driver.protect(undo_pause, self, self.closing.wait, self.closing, seconds)
  count(self, "pausing", -1)
  self:release()
  if not ok then error(is_closing, 0) end
  return is_closing or d.now() >= until_ -- else driver.expire has ended the wait
end

--- Returns the error of a call that has failed.
local function error_of_waiter(waiter, call)
  local is_unavailable = waiter.status == grpc_status.UNAVAILABLE
  local err = (is_unavailable and refusals.trouble_of or core.error_of)(waiter.status, waiter.text)
  local is_done = err.code == "answer_too_large"
  local is_in_doubt = refusals.MAYBE_DONE[waiter.status] and not is_refused(waiter, call)
  return mark_maybe_done(err, call.is_read or not is_done and not is_in_doubt)
end

--- True if a call that has failed may be tried again.
local function may_retry(waiter, call)
  return call.is_read and waiter.status == grpc_status.UNAVAILABLE or is_refused(waiter, call)
end

--- Makes one attempt at a call. Returns true and the results of `unary`; or false if the call must be repeated, and the
-- error of the attempt if a pause must come first. Nothing is sent after the deadline: a write would be in doubt.
local function attempt(self, call)
  local connection, err = self:await_connection(call.deadline)
  if not connection then return true, nil, err end
  local deadline, is_read = call.deadline, call.is_read
  if deadline and driver.get().now() >= deadline then return true, nil, core.new_error("deadline_exceeded") end
  local waiter = try(self, connection, call)
  if waiter == false then
    self.leader_probe:begin(connection)
    return true, nil, mark_maybe_done(core.new_error("deadline_exceeded"), is_read)
  end
  if waiter and waiter.status == grpc_status.OK and waiter.message then return true, waiter.message, nil, connection end
  if self.is_closed then return true, nil, mark_maybe_done(errors.closed("client"), is_read or not waiter) end
  if waiter and waiter.status == grpc_status.OK then
    return true, nil, mark_maybe_done(self.error_without_message(), is_read)
  end
  if not waiter then
    if self.connection == connection then self.connection = nil end
    return false
  end
  if not call.has_renewed and self:renew(connection, waiter.token, waiter.status, waiter.text) then
    call.has_renewed = true
    return false
  end
  local failure = error_of_waiter(waiter, call)
  if waiter.status == grpc_status.UNAVAILABLE then self.leader_probe:begin(connection) end
  if self.tries_once or not may_retry(waiter, call) then return true, nil, failure end
  call.failures = call.failures + 1
  self.request_trouble = failure.message
  -- The repetition has no pause if there is another connection, but only the first time: otherwise, while no member has
  -- a leader, all calls would try each new connection.
  if self.connection ~= connection and call.failures == 1 then return false end
  self:turn_away(connection, failure.message)
  return false, nil, failure
end

--- Repeats a call until it succeeds, is refused, or reaches its deadline. `failure` is the error of the first attempt,
-- or nil if the next attempt needs no pause. Returns the same as `unary`.
local function retry(self, call, failure)
  while true do
    if failure and not pause(self, call.failures, call.deadline) then return nil, failure end
    local is_over, back, err, connection = attempt(self, call)
    if is_over then return back, err, connection end
    failure = err
  end
end

--- Ends the retries of a caller that was killed.
local function stop_retrying(self)
  count(self, "retrying", -1)
  if self.retrying == 0 then self.request_trouble = nil end
  if not self.is_attached then self.state:update() end
end

--- Makes a call of `unary` on this transport.
local function make_call(self, path, bytes, deadline, is_read, metadata, report)
  local d = driver.get()
  if not self.is_closed and (not deadline or deadline > d.now()) then d.check_send() end
  local call = {
    path = path, bytes = bytes, deadline = deadline, is_read = is_read, metadata = metadata,
    failures = 0,        -- attempts that a server could not answer
    has_renewed = false, -- the user was authenticated again because of this call
    report = report,     -- see call_hook.lua; nil: there is no hook
  }
  local is_over, back, err, connection = attempt(self, call)
  if is_over then return back, err, connection end
  count(self, "retrying", 1)
  local ok, found, why, by = driver.protect(stop_retrying, self, retry, self, call, err)
  count(self, "retrying", -1)
  if self.retrying == 0 then self.request_trouble = nil end
  if not self.is_attached then self.state:update() end -- no poll will do that
  if not ok then error(found, 0) end
  return found, why, by
end

--- Makes a call with one message and one answer. The arguments are path, bytes, deadline, is_read, metadata and report,
-- see make_call. Returns the bytes of the answer, nil and the connection of the answer;
-- or nil and an error. With `is_read` the call may be repeated. After `drain` the calls of nginx's requests use a
-- transport of their own, which is drained in its turn when none of them is running.
function transport_methods:unary(...)
  if not self.is_drained then
    local back, err, connection = make_call(self, ...)
    if back or not self.is_drained or err.code ~= "closed" or err.maybe_done then return back, err, connection end
  end
  if not driver.in_request() then return nil, errors.closed("client") end
  if not self.successor or self.successor.is_closed then
    self.successor = new(self.dialer.given, check.copy(self.opts, "sync_endpoints"))
    self.successor.is_short = true
  end
  return make_call(self.successor, ...)
end

-- }======

--- Returns a transport for one endpoint of this one, with the same options, whose calls fail as soon as the endpoint
-- fails. The caller must close it.
function transport_methods:sibling(endpoint)
  local opts = check.copy(self.opts, "sync_endpoints")
  opts.tries_once = true
  return new({ endpoint }, opts)
end

--- Closes the transport: the nginx worker exits when it has served its last request. Requests may make calls until
-- then. Returns false if this is the transport of such calls, and one is running.
function transport_methods:drain()
  if self.is_short and self.uses > 0 then return false end
  self.is_drained = true
  self:close()
  return true
end

--- Closes the transport. Running calls, reads and watches fail. Kept leases are lost.
function transport_methods:close()
  if self.is_closed then return end
  self:check_process()
  self.is_closed = true
  local feeds = self.feeds
  self.feeds = setmetatable({}, { __mode = "k" })
  for _, feed in ipairs(keys_by(feeds, "number")) do feed:on_client_closed() end
  self.watch_calls:close()
  self.reads:close()
  self.keeper:close()
  for _, connection in ipairs(keys_by(self.connections, "number")) do
    connection.core:close() -- ends its calls
    connection:poll()
    connection:close()
  end
  self.dialer:close()
  self.connections, self.connection, self.authenticating = {}, nil, nil
  announce_change(self)
  if self.closing then self.closing:set() end
  self:update()
  self.state:update()
  driver.get().look() -- sends the end to the servers, since the loop may never turn again
end

return { new = new, metadata_of = metadata_of }
