-- SPDX-License-Identifier: MIT
--- cluster: the members of a cluster: their list, their health, and endpoints that follow the list.
--
-- With an interval, `poll` requests the member list in the background: when a connection is first used, and then at
-- each interval. A failed request leaves the endpoints as they are, and is repeated soon if the reason is temporary.

local core = require "keywatch.core"
local driver = require "keywatch.task.driver"
local errors = require "keywatch.support.errors"
local grpc_status = require "keywatch.support.grpc_status"
local log = require "keywatch.support.log"
local methods = require "keywatch.client.methods"
local NO_LEADER = require("keywatch.client.leader_probe").NO_LEADER
local parse = require("keywatch.client.dialer").parse
local refusal = require "keywatch.client.refusal"
local security = require "keywatch.client.security"

local MEMBER_LIST = "/etcdserverpb.Cluster/MemberList"
local RANGE, STATUS = "/etcdserverpb.KV/Range", "/etcdserverpb.Maintenance/Status"
local MAX_ENDPOINTS = 100 -- of a member list: clusters are small, and a server may send nonsense
local MAX_REFUSED = 100   -- malformed URLs that are logged
local MAX_SHOWN = 200     -- bytes of a malformed URL that are logged
local STORAGE = core.errors.storage.message
local HEALTH_KEY = "health" -- which etcdctl reads, too
local WITHOUT_LEADER = { hasleader = false } -- metadata of a call that a member without a leader may answer

local cluster_methods = {}
local cluster_mt = { __index = cluster_methods }

--- Returns the cluster of a transport. `interval` is the option sync_endpoints of connect.
local function new(transport, interval)
  return setmetatable({
    transport = transport,
    interval = interval,
    sync_at = 0,     -- the time of the next request for the member list
    failures = 0,    -- requests in a row that have failed for temporary reasons
    has_renewed = false, -- the user was authenticated again after a failed request; until one succeeds or is refused
    question = nil,  -- { connection =, number =, token =, until_ = } while a background request is running
    refused = {},    -- as keys: unusable URLs of members that were logged
    refusals = 0,    -- the number of these
  }, cluster_mt)
end

-- {====== Members ======

--- Returns the bytes of a request for the member list.
local function list_request(is_serializable)
  return core.encode("MemberListRequest", { linearizable = not is_serializable })
end

--- Returns the members of an answer, as a table for users; or nil and an error.
local function read_members(bytes)
  local answer, err = methods.decode("MemberListResponse", bytes)
  if not answer then return nil, err end
  local members = { cluster_id = core.decimal(answer.header and answer.header.cluster_id or 0) }
  for i, member in ipairs(answer.members or {}) do
    members[i] = {
      id = core.decimal(member.ID or 0),
      name = member.name or "",
      peer_urls = member.peerURLs or {},
      client_urls = member.clientURLs or {},
      is_learner = member.isLearner or false,
    }
  end
  return members
end

--- Returns the members of the cluster, or nil and an error.
function cluster_methods:members(deadline, is_serializable)
  local metadata = is_serializable and WITHOUT_LEADER or nil
  local bytes, err = self.transport:unary(MEMBER_LIST, list_request(is_serializable), deadline, true, metadata)
  if not bytes then return nil, err end
  return read_members(bytes)
end

-- }======

-- {====== Endpoints that follow the members ======

--- Logs, once, that a member has a URL that cannot be used.
local function warn_of_refused(self, text, why)
  text = text:sub(1, MAX_SHOWN)
  if self.refused[text] or self.refusals == MAX_REFUSED then return end
  self.refused[text], self.refusals = true, self.refusals + 1
  log.warn("%s", ("a client leaves out an endpoint of the member list: %s %s"):format(log.quote(text), why))
end

--- Returns the endpoints of members, in their order; MAX_ENDPOINTS + 1 if there are more. Leaves out members that have
-- not started, learners, which serve hardly any request, and unusable URLs.
local function endpoints_of(self, members)
  local list = {}
  for _, member in ipairs(members) do
    local is_usable = member.name ~= "" and not member.is_learner
    for _, text in ipairs(is_usable and member.client_urls or {}) do
      local endpoint, why = parse(text)
      if endpoint then why = self.transport.opts.security:refusal_of(endpoint) end
      if not why then list[#list + 1] = endpoint else warn_of_refused(self, text, why) end
      if #list > MAX_ENDPOINTS then return list end
    end
  end
  return list
end

--- Makes the calls of the connection in use require a leader, if there are several endpoints by now.
local function require_leader(transport)
  local connection = transport.connection
  if not connection or connection.metadata.hasleader or not transport.dialer:has_choice() then return end
  connection.metadata = { token = connection.metadata.token, hasleader = "true" }
  transport.watch_calls:require_leader()
end

--- Makes the client URLs of members the endpoints. The connection in use stays, unless its endpoint is neither a
-- member's nor one of the option's. Returns the URLs of the endpoints; or nil and an error if no member has a usable
-- URL, or if there are too many.
local function follow(self, members)
  local transport = self.transport
  local list = endpoints_of(self, members)
  if #list == 0 then
    return nil, errors.new("failed_precondition",
      "keywatch: no member of the cluster has a client URL that can be used")
  end
  if #list > MAX_ENDPOINTS then
    return nil, errors.new("failed_precondition",
      ("keywatch: the members of the cluster have more than %d client URLs"):format(MAX_ENDPOINTS))
  end
  if transport.opts.user then security.warn_of_password(list) end
  transport.dialer:set_endpoints(list)
  local connection = transport.connection
  if connection and not transport.dialer:has(connection.endpoint) then
    transport:abandon(connection, "the endpoint is no longer one of the cluster's members")
  end
  require_leader(transport)
  local urls = {}
  for i, endpoint in ipairs(transport.dialer.endpoints) do urls[i] = endpoint.url end
  return urls
end

--- Requests the member list, and makes its client URLs the endpoints. Returns them; or nil and an error.
function cluster_methods:sync(deadline)
  local members, err = self:members(deadline, false)
  if not members then return nil, err end
  return follow(self, members)
end

--- Repeats the request for the member list soon.
local function postpone(self)
  self.failures = self.failures + 1
  self.sync_at = driver.get().now() + math.min(self.interval, self.transport.backoff(self.failures))
end

--- Takes the answer to the background request.
local function take(self, question, message, status, text)
  if self.question ~= question then return end
  self.question = nil
  local members = status == grpc_status.OK and message and read_members(message)
  if members then
    self.failures, self.has_renewed = 0, false
    follow(self, members)
  elseif refusal.TEMPORARY[status] then
    postpone(self)
  elseif not self.has_renewed and self.transport:renew(question.connection, question.token, status, text) then
    self.has_renewed = true
    postpone(self)
  else
    self.has_renewed = false
  end
end

--- Requests the member list in the background.
local function ask(self, connection, now)
  local until_ = now + self.transport.opts.timeout
  local question = { connection = connection, number = nil, token = connection.metadata.token, until_ = until_ }
  self.question, self.sync_at = question, now + self.interval
  question.number = connection:ask(MEMBER_LIST, list_request(false), function(message, status, text)
    take(self, question, message, status, text)
  end)
  if not question.number and self.question == question then
    self.question = nil
    postpone(self)
  end
end

--- Requests the member list if that is due. Returns the seconds until the next request, or nil.
function cluster_methods:poll(now)
  if not self.interval then return nil end
  local question, connection = self.question, self.transport.connection
  if question and (now >= question.until_ or question.connection.is_closed) then
    self.question = nil
    if question.number then question.connection:cancel(question.number) end
    postpone(self)
  end
  if self.question then return math.max(0, self.question.until_ - now) end
  if not connection then return nil end
  if now >= self.sync_at then ask(self, connection, now) end
  return math.max(0, (self.question and self.question.until_ or self.sync_at) - now)
end

--- After a fork: forgets the request, which is the parent's.
function cluster_methods:restart()
  self.question, self.sync_at, self.failures, self.has_renewed = nil, 0, 0, false
end

-- }======

-- {====== Health ======

--- Returns the error of an alarm, or of a failed storage, from its text in a StatusResponse.
local function alarm_error(text)
  if text:find(STORAGE, 1, true) == 1 then return errors.new("storage", text) end
  local code = text:find("NOSPACE", 1, true) and "no_space" or text:find("CORRUPT", 1, true) and "corrupt"
  return errors.new(code or "failed_precondition", "keywatch: an alarm is raised: " .. text:match("^%s*(.-)%s*$"))
end

--- Puts the status of a member into its row. Returns the error of an alarm, if one is raised.
local function read_status(row, bytes)
  local answer, err = methods.decode("StatusResponse", bytes)
  if not answer then return err end
  local header = answer.header or {}
  local leader, member = core.decimal(answer.leader or 0), core.decimal(header.member_id or 0)
  row.version, row.member_id, row.revision = answer.version, member, header.revision or 0
  row.db_size, row.errors = answer.dbSize or 0, answer.errors or {}
  row.leader = leader ~= core.decimal(0) and leader or nil
  row.is_leader = row.leader == member
  for _, text in ipairs(row.errors) do
    if text ~= NO_LEADER then return alarm_error(text) end
  end
end

--- Asks a member for its status, and then for a linearizable read, which it can answer only if the cluster can. Returns
-- nil, or the error that makes the member unhealthy.
local function examine(transport, row, deadline)
  local connection, err = transport:await_connection(deadline)
  if not connection then return err end
  local bytes, failure = transport:unary(STATUS, "", deadline, true)
  local alarm = bytes and read_status(row, bytes)
  local began = driver.get().now()
  local found, trouble = transport:unary(RANGE, core.encode("RangeRequest", { key = HEALTH_KEY }), deadline, true)
  if found or trouble.code == "permission_denied" then
    row.seconds = driver.get().now() - began
    return failure or alarm
  end
  return trouble
end

--- Returns the health of one endpoint, and closes its transport.
local function look(transport, url, deadline)
  local row = { endpoint = url, is_healthy = false }
  local ok, err = pcall(examine, transport, row, deadline)
  transport:close()
  if not ok then error(err, 0) end
  row.err, row.is_healthy = err, err == nil
  return row
end

--- Waits for an event until is_over() is true.
local function await(event, is_over)
  while not is_over() do event:wait() end
end

--- Closes transports.
local function close_all(transports)
  for _, transport in ipairs(transports) do transport:close() end
end

--- Returns the health of all endpoints, in their order. All are queried at the same time, each over a connection of its
-- own.
function cluster_methods:health(deadline)
  local d = driver.get()
  local rows, left, over = {}, 0, d.event()
  local transports, endpoints = {}, self.transport.dialer.endpoints
  for i, endpoint in ipairs(endpoints) do transports[i] = self.transport:sibling(parse(endpoint.url)) end
  for i, endpoint in ipairs(endpoints) do
    left = left + 1
    d.spawn_own(function()
      local ok, row = pcall(look, transports[i], endpoint.url, deadline)
      rows[i], left = ok and row or { endpoint = endpoint.url, is_healthy = false, err = row }, left - 1
      if left == 0 then over:set() end
      if not ok then error(row, 0) end
    end)
  end
  local ok, err = driver.protect(close_all, transports, await, over, function() return left == 0 end)
  close_all(transports)
  if not ok then error(err, 0) end
  return rows
end

-- }======

return { new = new, WITHOUT_LEADER = WITHOUT_LEADER }
