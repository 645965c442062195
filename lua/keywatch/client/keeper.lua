-- SPDX-License-Identifier: MIT
--- keeper: renews the leases of a client (see store/kept.lua), all of them on one LeaseKeepAlive call.
--
-- transport:poll drives the keeper, so no task is needed. A lease is due after a third of its TTL. It is then
-- *waiting*, in the queue of unsent requests; and after that *asked*, until its answer arrives. The call is opened on
-- the connection of the transport. It is opened again when it has ended, or when the transport uses another connection;
-- leases that were asked on the old call are waiting again.
--
-- A lease is lost when the server reports the loss, or when its TTL has passed since its last answered renewal was
-- sent: from then on the server may have ended the lease. If an answer does not arrive within another third of the TTL,
-- the client uses another endpoint, or another connection if there is only one endpoint, and asks again.

local core = require "keywatch.core"
local driver = require "keywatch.task.driver"
local errors = require "keywatch.support.errors"
local grpc_status = require "keywatch.support.grpc_status"
local kept_leases = require "keywatch.store.kept"
local refusal = require "keywatch.client.refusal"
local timers = require "keywatch.task.timers"

local KEEP_ALIVE = "/etcdserverpb.Lease/LeaseKeepAlive"
local METADATA = { hasleader = "true" } -- a server of a cluster without a leader ends the call
local MAX_UNSENT = 65536 -- bytes in the send buffer, above which nothing more is sent
local MAX_OWED = 65536   -- unanswered requests of a call, after which it is replaced
local MAX_BACKOFF = 0.5  -- seconds: short leases would not survive longer pauses

local GONE = "it has expired, or was revoked"
local CLOSED, INHERITED = "the client is closed", "the parent process keeps it"

local keeper_methods = {}
local keeper_mt = { __index = keeper_methods }
local call_methods = {}
local call_mt = { __index = call_methods }

--- Returns the keeper of a transport. It has no leases. metadata_of is that of transport.lua.
local function new(transport, metadata_of)
  return setmetatable({
    transport = transport,
    metadata_of = metadata_of,
    by_id = {},           -- kept leases
    count = 0,            -- number of kept leases
    timers = timers.new(), -- one for each lease: the time of its next work
    queue = {},           -- waiting leases, at the indices from first to last; false for a removed one
    first = 1,
    last = 0,
    waiting = 0,          -- leases in the queue
    call = nil,           -- the LeaseKeepAlive call
    failures = 0,         -- failed calls in a row
    retry_at = 0,         -- the earliest time to open a call
    trouble = nil,        -- the error of the last call, until an answer has arrived
    old_token = nil,      -- the token that was renewed, until an answer has arrived
  }, keeper_mt)
end

-- {====== Leases ======

-- Fields that the keeper adds to a kept lease:
--
--   bytes        the encoded request
--   ttl          seconds, as last reported; nil if not known
--   deadline     the time at which it is lost, unless an answer comes before
--   timer        its timer in `timers`
--   queue_index  its index in the queue while it is waiting, else nil
--   call         the call on which it was asked, until the answer has arrived; else nil
--   number       the index of the request in that call
--   sent         when the last request was sent

--- Sets the time of the next work for a lease.
local function set_timer(self, kept, at)
  local old = kept.timer
  if old then self.timers:remove(old) end
  kept.timer = self.timers:add(at, kept)
end

--- Puts a lease into the queue. Its timer becomes its deadline.
local function enqueue(self, kept)
  if kept.queue_index then return end
  local index = self.last + 1
  self.last, self.queue[index], kept.queue_index, self.waiting = index, kept, index, self.waiting + 1 -- atomic
  set_timer(self, kept, kept.deadline)
end

--- Takes a lease out of the queue. Atomic.
local function leave_queue(self, kept)
  local index = kept.queue_index
  if not index then return end
  self.queue[index], kept.queue_index, self.waiting = false, nil, self.waiting - 1
  while self.first <= self.last and not self.queue[self.first] do
    self.queue[self.first] = nil
    self.first = self.first + 1
  end
  if self.first > self.last then self.first, self.last = 1, 0 end
end

--- Returns the first lease whose request on a call was not answered, or nil. Forgets the answered ones before it.
local function first_asked(call)
  while call.first <= call.last do
    local kept = call.asked[call.first]
    if kept.call == call and kept.number == call.first then return kept end
    call.asked[call.first] = nil
    call.first = call.first + 1
  end
end

--- Puts all unanswered leases of a call into the queue.
local function requeue(self, call)
  local kept = first_asked(call)
  while kept do
    kept.call = nil
    enqueue(self, kept)
    kept = first_asked(call)
  end
end

--- Ends a call. Its leases are renewed on another one.
local function abandon(self, call)
  if self.call == call then self.call = nil end
  call.connection:cancel(call.number)
  requeue(self, call)
end

--- Ends an unused call.
local function close_idle(self)
  local call = self.call
  if self.count > 0 or not call then return end
  self.call = nil
  call.connection:cancel(call.number)
end

--- Forgets a kept lease. Returns false if that was done before.
local function forget(self, kept)
  if self.by_id[kept.id] ~= kept then return false end
  self.by_id[kept.id], self.count = nil, self.count - 1 -- atomic
  leave_queue(self, kept)
  if kept.timer then self.timers:remove(kept.timer) end
  local call = kept.call
  kept.call = nil
  if call then
    call.owed[kept.id], call.owing = (call.owed[kept.id] or 0) + 1, call.owing + 1
    if call.owing > MAX_OWED then abandon(self, call) end
  end
  close_idle(self)
  return true
end

--- Returns the kept lease of an id, or nil.
function keeper_methods:find(id)
  return self.by_id[id]
end

--- Stops renewing. See store/kept.lua.
function keeper_methods:drop(kept)
  if forget(self, kept) then self.transport:update() end
end

--- Drops a lease that is lost. See store/kept.lua.
function keeper_methods:lose(kept, why)
  if not forget(self, kept) then return end
  kept:fail(why)
  self.transport:update()
end

--- Returns why a lease was not renewed in time, as the end of a sentence.
local function reason_of(self, kept)
  local late = "it could not be renewed in time"
  local transport = self.transport
  local trouble = not transport.connection and transport.dialer.why or self.trouble and self.trouble.message
  if trouble then return ("%s: %s"):format(late, trouble) end
  if kept.call then return late .. ": the server has not answered" end
  if kept.queue_index then return late .. ": there was no connection" end
  return late .. ": the loop did not turn"
end

--- Begins to keep a lease. See store/kept.lua. If the TTL is not known, the lease is asked at once, and the answer has
-- the timeout of a request.
function keeper_methods:keep(id, since, ttl)
  local transport = self.transport
  transport:check_process()
  local kept = self.by_id[id]
  if kept then return kept end
  kept = kept_leases.new(self, id)
  local bytes = core.encode("LeaseKeepAliveRequest", { ID = id })
  local now = driver.get().now()
  local is_known = since and ttl and since + ttl > now
  kept.bytes, kept.ttl = bytes, is_known and ttl or nil
  kept.deadline = is_known and since + ttl or now + transport.opts.timeout
  local timer = self.timers:add(is_known and kept_leases.next_renewal(since, ttl) or now, kept)
  if transport.is_closed then
    self.timers:remove(timer)
    kept:fail(CLOSED)
    return kept
  end
  kept.timer, self.by_id[id], self.count = timer, kept, self.count + 1 -- atomic
  transport.poll_at = nil
  transport:update()
  return kept
end

-- }======

-- {====== Calls ======

--- Opens the call on a connection, and returns the call; or nil if the connection takes no calls.
local function open(self, connection, now)
  local metadata = self.metadata_of(connection, nil, now, METADATA)
  local call = setmetatable({
    owner = self,
    connection = connection,
    number = nil,
    token = connection.metadata.token,
    asked = {}, -- leases in the order of their requests, at the indices from first to last
    first = 1,
    last = 0,
    owed = {},  -- by id: the number of missing answers for leases that are no longer kept
    owing = 0,  -- the sum of these numbers
  }, call_mt)
  local number = connection.core:call(KEEP_ALIVE, metadata, false)
  if not number then return nil end
  call.number, self.call = number, call
  connection:add(number, call)
  return call
end

--- Notes that a call has failed. Unless its connection has ended, too, the next call is opened later, and to another
-- server.
local function back_off(self, call, status, text)
  local transport = self.transport
  self.trouble = refusal.trouble_of(status, text)
  if transport.connection ~= call.connection then return end
  transport.leader_probe:begin(call.connection)
  transport:turn_away(call.connection, self.trouble.message)
  self.failures = self.failures + 1
  self.retry_at = driver.get().now() + math.min(transport.backoff(self.failures), MAX_BACKOFF)
end

--- If a call has failed because of its token, authenticates the user again, and returns true. Does so only once until
-- an answer has arrived.
local function renew_token(self, call, status, text)
  local token = call.token or ""
  if self.old_token and self.old_token ~= token then return false end
  if not self.transport:renew(call.connection, call.token, status, text) then return false end
  self.old_token = token
  return true
end

--- Takes the end of a call. A refusal applies to the first unanswered request: only its lease is lost.
local function take_end(self, call, status, text, is_refused)
  call.connection:forget(call.number)
  if self.call == call then self.call = nil end
  local refused = first_asked(call)
  if renew_token(self, call, status, text) then
    refused = nil
  elseif is_refused or not refusal.is_refusal(status, text) or not refused then
    refused = nil
    back_off(self, call, status, text)
  end
  if refused then self:lose(refused, "the server has refused to renew it: " .. core.error_of(status, text).message) end
  requeue(self, call)
end

--- Takes an answer. Ignores the answer if no kept lease waits for it on this call.
local function take_answer(self, call, message)
  local answer = core.decode("LeaseKeepAliveResponse", message)
  if not answer then
    abandon(self, call)
    return back_off(self, call, grpc_status.INTERNAL, "keywatch: the server's answer is malformed")
  end
  local id = core.id(answer.ID or 0)
  local owed = call.owed[id]
  if owed then
    call.owed[id], call.owing = owed > 1 and owed - 1 or nil, call.owing - 1
    return
  end
  local kept = self.by_id[id]
  if not kept or kept.call ~= call then return end
  self.failures, self.trouble, self.old_token = 0, nil, nil
  local ttl = kept_leases.seconds_of(answer.TTL)
  kept.call = nil
  first_asked(call)
  if ttl == 0 then return self:lose(kept, GONE) end
  kept.ttl, kept.deadline = ttl, kept.sent + ttl
  set_timer(self, kept, kept_leases.next_renewal(kept.sent, ttl))
end

--- Takes received answers, and the end of the call.
function call_methods:on_ready(connection, number)
  local owner = self.owner
  while connection.calls[number] == self do
    local message, status, text, is_refused = connection.core:receive(number)
    if message then
      take_answer(owner, self, message)
    elseif message == false then
      return take_end(owner, self, status, text, is_refused)
    else
      return
    end
  end
end

--- Sends the request of a lease on the call. Returns false if the call has ended, which is handled later.
local function ask(self, call, kept, now)
  if not call.connection.core:send(call.number, kept.bytes) then return false end
  leave_queue(self, kept)
  if self.by_id[kept.id] ~= kept then return true end -- by a finalizer
  local number = call.last + 1
  call.last, call.asked[number] = number, kept
  kept.call, kept.number, kept.sent = call, number, now
  local patience = kept_leases.interval_of(kept.ttl or self.transport.opts.timeout)
  set_timer(self, kept, math.min(now + patience, kept.deadline))
  return true
end

--- True if there is a call that must be replaced: the transport uses another connection; or one request was never
-- answered, though very many later ones were.
local function is_stale(self)
  local connection, call = self.transport.connection, self.call
  if not call or not connection then return false end
  return call.connection ~= connection or call.last - call.first > MAX_OWED + self.count
end

--- Sends the requests of waiting leases until the send buffer is full. The call becomes ready when there is room again.
local function send_waiting(self, now)
  local connection = self.transport.connection
  if is_stale(self) then abandon(self, self.call) end
  if self.waiting == 0 or not connection or now < self.retry_at then return end
  local call = self.call or open(self, connection, now)
  if not call then
    if self.transport.connection == connection then self.transport.connection = nil end
    return
  end
  while self.waiting > 0 and self.call == call and connection.core:has_room(call.number, MAX_UNSENT) do
    if not ask(self, call, self.queue[self.first], now) then return end
  end
end

-- }======

-- {====== Polling ======

--- Stops using a server that has not answered in time. A single endpoint is tried over another connection: the
-- network may have lost this one, and pings detect that too late for short leases.
local function give_up(self, call)
  local transport = self.transport
  self.trouble = errors.new("unavailable", ("keywatch: %s has not answered a request to renew a lease"):format(
    call.connection.endpoint.url))
  transport.leader_probe:begin(call.connection)
  transport:turn_away(call.connection, self.trouble.message)
  if transport.connection == call.connection then transport.connection = nil end
  abandon(self, call)
end

--- Does the due work of a lease.
local function attend(self, kept, now)
  if self.by_id[kept.id] ~= kept then return end
  if now >= kept.deadline then
    self:lose(kept, reason_of(self, kept))
  elseif kept.call then
    give_up(self, kept.call)
  else
    enqueue(self, kept)
  end
end

--- Reads the sockets for a lease whose deadline has passed: if the loop was blocked, the answer may have arrived.
local function take_late(kept)
  local connection = kept.call.connection
  driver.get().look()
  connection:poll()
end

--- Does the due work of all leases. Returns the seconds until more is due, or nil.
function keeper_methods:poll(now)
  local at = self.timers:next()
  if at and at > now and self.waiting == 0 and not is_stale(self) then return at - now end
  local has_looked = false
  local kept = self.timers:due(now)
  while kept do
    local timer = kept.timer
    if kept.call and now >= kept.deadline and not has_looked then
      has_looked = true
      take_late(kept)
    end
    if kept.timer == timer then attend(self, kept, now) end -- else an answer, or the end of the call, has arrived
    kept = self.timers:due(now)
  end
  send_waiting(self, now)
  if has_looked then return 0 end -- answers for other leases may have arrived, too
  at = self.timers:next()
  if at and self.waiting > 0 and now < self.retry_at then at = math.min(at, self.retry_at) end
  return at and math.max(0, at - now)
end

--- Polls the sockets once. See store/kept.lua.
function keeper_methods:look()
  self.transport:look()
end

--- Checks whether a lease is lost. See store/kept.lua. If its timer is overdue, the loop has not turned in time: the
-- sockets are read here, since an answer may be waiting there.
function keeper_methods:check(kept)
  if core.pid() ~= self.transport.pid then self.transport:check_process() end
  if kept.err or kept.timer and driver.get().now() < kept.timer.deadline then return end
  self.transport:look()
end

--- True if there are leases.
function keeper_methods:has_any()
  return self.count > 0
end

--- True if a connection is needed now.
function keeper_methods:wants_connection(now)
  return self.waiting > 0 and now >= self.retry_at
end

--- Returns the error that keeps leases waiting, or nil.
function keeper_methods:trouble_of_waiting()
  return self.waiting > 0 and self.trouble or nil
end

--- After a fork: the leases stay with the parent.
function keeper_methods:restart()
  self.call, self.failures, self.retry_at, self.trouble = nil, 0, 0, nil
  kept_leases.lose_all(self, INHERITED)
end

--- Loses the leases that are waiting: the server has refused the user.
function keeper_methods:fail_waiting(err)
  for _, kept in ipairs(kept_leases.list_all(self)) do
    if kept.queue_index then self:lose(kept, "the server has refused the user: " .. err.message) end
  end
end

--- Loses all leases: the client is closed.
function keeper_methods:close()
  self.call = nil
  kept_leases.lose_all(self, CLOSED)
end

-- }======

return { new = new }
