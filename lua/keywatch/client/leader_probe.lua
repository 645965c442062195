-- SPDX-License-Identifier: MIT
--- leader_probe: asks a suspected member of etcd whether it has a leader, and leaves it if not.
--
-- A member that is isolated from the others still accepts connections and answers pings, but no request that needs the
-- cluster. It is suspected when a request takes long, reaches its deadline, or fails with "unavailable": a request of a
-- caller, of the background, or one to create a watch or to report progress. It is then asked for its status. An
-- election usually takes less than a second, so a member without a leader is asked again before it is left. A silent
-- member is left, too, unless it sends other messages: on a slow network a large answer delays all others. A client
-- with one endpoint does not ask, since it has no other endpoint.

local core = require "keywatch.core"
local driver = require "keywatch.task.driver"
local grpc_status = require "keywatch.support.grpc_status"
local keys_by = require("keywatch.support.order").keys_by
local sooner = require("keywatch.task.timers").sooner

local STATUS = "/etcdserverpb.Maintenance/Status"
local NO_LEADER = "etcdserver: no leader"
local NO_ANSWER = "the server does not answer"
local ANSWER_SECONDS = 2 -- without any bytes, after which a silent member is left
local ELECTION_SECONDS = 1 -- between the two questions
local SLOW = 3 -- seconds without an answer, after which a member is suspected

local probe_methods = {}
local probe_mt = { __index = probe_methods }

--- Returns the probe of a transport, without a suspected member.
local function new(transport)
  return setmetatable({
    transport = transport,
    suspects = {}, -- by connection: the progress of the probe, a table with the fields in `begin`
  }, probe_mt)
end

--- Suspects the server of a connection. Does nothing if the server is already suspected or was left, or if there is no
-- other endpoint.
function probe_methods:begin(connection)
  local transport = self.transport
  if self.suspects[connection] or not transport.connections[connection] then return end
  if connection.is_left or not transport.dialer:has_choice() then return end
  self.suspects[connection] = {
    number = nil,  -- of the call that asks, while it is running
    until_ = nil,  -- the deadline of that call
    received = 0,  -- bytes received when that deadline was set
    ask_at = 0,    -- the time of the next question
    refusals = 0,  -- answers that the member has no leader
  }
  transport.poll_at = nil -- it is asked in the next turn
end

--- True if the answer of a member says that it has a leader, or does not say.
local function has_leader(message, status)
  if status == grpc_status.UNAVAILABLE then return false end
  local answer = status == grpc_status.OK and core.decode("StatusResponse", message or "")
  if not answer then return true end
  for _, text in ipairs(answer.errors or {}) do
    if text == NO_LEADER then return false end
  end
  -- Servers without leaders, such as fake etcd servers of tests, have neither a leader nor a term.
  return (answer.leader or 0) ~= 0 or (answer.raftTerm or 0) == 0
end

--- Takes the answer of a member.
local function take(self, connection, suspect, message, status)
  if self.suspects[connection] ~= suspect then return end
  suspect.number = nil
  if has_leader(message, status) then
    self.suspects[connection] = nil
    return
  end
  suspect.refusals = suspect.refusals + 1
  suspect.ask_at = driver.get().now() + ELECTION_SECONDS
  if suspect.refusals == 1 then return end
  self.suspects[connection] = nil
  self.transport:leave(connection, NO_LEADER)
end

--- Asks the server of a connection for its status.
local function ask(self, connection, suspect, now)
  suspect.until_, suspect.received = now + ANSWER_SECONDS, connection.received
  suspect.number = connection:ask(STATUS, "", function(message, status)
    take(self, connection, suspect, message, status)
  end, { token = connection.metadata.token }) -- without hasleader, so that a member without a leader answers, too
  if not suspect.number then self.suspects[connection] = nil end -- the connection is about to end
end

--- Does the due work of a suspect. Returns the seconds until more is due.
local function step(self, connection, suspect, now)
  local received = suspect.number and now >= suspect.until_ and connection.received
  if received and received > suspect.received then
    suspect.until_, suspect.received = now + ANSWER_SECONDS, received
  elseif received then
    self.suspects[connection] = nil
    connection:cancel(suspect.number)
    self.transport:leave(connection, NO_ANSWER)
    return 0
  elseif not suspect.number and now >= suspect.ask_at then
    ask(self, connection, suspect, now)
  end
  return math.max(0, (suspect.number and suspect.until_ or suspect.ask_at) - now)
end

--- Suspects the servers that have not answered a background request in time. Returns the seconds until the next
-- one is late, or nil. A connection checks its requests when the oldest one may be late.
local function suspect_slow(self, now)
  local wait = nil
  for _, connection in ipairs(keys_by(self.transport.connections, "number")) do
    local is_due = connection.late_at and now >= connection.late_at
    if is_due and connection:is_slow(now, SLOW) then self:begin(connection) end
    wait = sooner(wait, connection.late_at and connection.late_at - now)
  end
  return wait
end

--- Does the due work of all servers. Returns the seconds until more is due, or nil.
function probe_methods:poll(now)
  if not self.transport.dialer:has_choice() then return nil end
  local wait = suspect_slow(self, now)
  for _, connection in ipairs(keys_by(self.suspects, "number")) do
    local suspect = self.suspects[connection]
    if suspect and self.transport.connections[connection] then
      wait = sooner(wait, step(self, connection, suspect, now))
    else
      self.suspects[connection] = nil
    end
  end
  return wait
end

--- After a fork: forgets the suspects, which are the parent's.
function probe_methods:restart()
  self.suspects = {}
end

return { new = new, NO_LEADER = NO_LEADER, SLOW = SLOW }
