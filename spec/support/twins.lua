--- Two servers, keywatch's and a real etcd: each request is made to both, and the answers must be equal.
--
-- Their state is known from their answers: the revision, the compaction, the leases and the alarms. Both are watched
-- from the beginning; the events, which must be equal, are the reference for other watches.

local keywatch = require "keywatch"

local uv = require "spec.support.luv"

local difference = require("spec.support.difference").difference
local int64 = require "spec.support.int64"
local known_differences = require "spec.support.known_differences"
local request = require "spec.support.request"
local server = require "spec.support.server"
local watch_twins = require "spec.support.watch_twins"

local KINDS = { "keywatch", "etcd" }
local SECONDS = 60        -- after which a missing answer is a failure
local MAX_REQUEST = 65536 -- bytes: a limit that requests reach easily

local twins = {}
twins.__index = twins
twins.TOO_LARGE = MAX_REQUEST + 5000

-- {====== Starting ======

local function start(self, kind)
  self.servers[kind] = server.start { kind = kind, "--max-request-bytes", tostring(MAX_REQUEST) }
  local client = keywatch.connect(self.servers[kind].url, { timeout = SECONDS })
  self.clients[kind] = client
  local header = assert(client:call("/etcdserverpb.KV/Range", { key = "a" })).header
  self.identities[kind] = { cluster_id = header.cluster_id, member_id = header.member_id }
  self.keepalives[kind] = assert(client:stream("/etcdserverpb.Lease/LeaseKeepAlive"))
end

--- Starts both servers.
function twins.start()
  local self = setmetatable({
    servers = {},    -- all of these by kind
    clients = {},
    identities = {},
    keepalives = {}, -- streams
    n = 0,           -- of requests
    n_events = 0,    -- compared events of all watches
    n_fragments = { keywatch = 0, etcd = 0 },
    doing = "",
    now = 0,

    revision = 1,
    compact_revision = -1,
    granted = {},    -- ids of leases
    terms = {},      -- id -> { ttl, at }, of the last grant or renewal
    armed = {},      -- alarm -> true

    events = {},     -- the whole history
    streams = {},    -- of watches, each at both servers
    has_past = false, -- a watch that starts in the past was created
  }, twins)
  local ok, failure = pcall(function()
    for _, kind in ipairs(KINDS) do start(self, kind) end
    self.all = watch_twins.stream(self)
    self.all_watch = self.all:create { key = "\0", range_end = "\0", start_revision = 1, prev_kv = true }
  end)
  if not ok then
    self:stop()
    error(failure, 0)
  end
  return self
end

--- Stops both servers; raises the output of one that does not stop gracefully.
function twins:stop()
  local ok, failure = true, nil
  for _, kind in ipairs(KINDS) do
    if self.clients[kind] then self.clients[kind]:close() end
    local is_stopped, why = pcall(function() return self.servers[kind] and self.servers[kind]:stop() end)
    if not is_stopped then ok, failure = false, why end
  end
  if not ok then error(failure, 0) end
end

-- }======

-- {====== Methods for history.lua ======

function twins:leases() return self.granted end

function twins:kv_at(_, key) return key ~= "" and assert(self.clients.keywatch:range(key)).kvs[1] or nil end

-- }======

-- {====== Requests ======

-- Requests that are more than one call of a method.
local own = {}

local ALARMS = { no_space = "NOSPACE", corrupt = "CORRUPT" }

local function alarm(self, kind, action, name)
  local message = { action = action, alarm = ALARMS[name], memberID = self.identities[kind].member_id }
  return self.clients[kind]:call("/etcdserverpb.Maintenance/Alarm", message)
end

function own.arm(self, kind, name) return alarm(self, kind, "ACTIVATE", name) end
function own.disarm(self, kind, name) return alarm(self, kind, "DEACTIVATE", name) end

--- Renews a lease over a stream that stays open.
function own.keepalive_message(self, kind, id)
  local stream = self.keepalives[kind]
  assert(stream:send { ID = int64.canonical(id) })
  return stream:receive(SECONDS)
end

--- Grants a lease with a chosen id, and revokes it; it may expire before that.
function own.brief_lease(self, kind, ttl)
  local path = "/etcdserverpb.Lease/"
  local granted, err = self.clients[kind]:call(path .. "LeaseGrant", { TTL = ttl })
  if not granted then return nil, err end
  local id = granted.ID
  granted.ID = int64.compare(id, 0) > 0 and "chosen" or id
  local revoked, failure = self.clients[kind]:call(path .. "LeaseRevoke", { ID = id })
  if not revoked and failure.code ~= "lease_not_found" then return nil, failure end
  return granted
end

local function perform(self, asked, kind)
  if own[asked.verb] then return own[asked.verb](self, kind, asked[1], asked[2]) end
  return request.perform(asked, self.clients[kind])
end

local function plain_error(err)
  return err and { code = err.code, message = err.message, grpc_status = err.grpc_status,
    compact_revision = err.compact_revision }
end

--- Counts the next request, and keeps its text for failures.
function twins:begin(asked)
  self.n = self.n + 1
  self.doing = request.show(asked)
end

--- Raises a text about a difference, with both answers.
function twins:fail(words, answers)
  local lines = { ("operation %d, %s:"):format(self.n, self.doing), words }
  for _, kind in ipairs(answers and KINDS or {}) do
    lines[#lines + 1] = request.show(request.new(kind, answers[kind]))
  end
  error(table.concat(lines, "\n"), 0)
end

-- Updates the known state of the servers after a request.
local learn = {}

local function renew(self, id, ttl)
  local term = self.terms[id] or {}
  self.terms[id] = { ttl = ttl or term.ttl, at = keywatch.now() }
end

function learn.lease(self, asked)
  local is_call = asked.verb == "call"
  local id = int64.canonical(is_call and asked[2].ID or asked[2].id)
  self.granted[#self.granted + 1] = id
  renew(self, id, is_call and asked[2].TTL or asked[1])
end

function learn.keepalive(self, asked) renew(self, int64.canonical(asked[1])) end
learn.keepalive_message = learn.keepalive

function learn.revoke(self, asked)
  local id = int64.canonical(asked.verb == "call" and asked[2].ID or asked[1])
  for i, granted in ipairs(self.granted) do
    if granted == id then return table.remove(self.granted, i) end
  end
end

function learn.compact(self, asked)
  self.compact_revision = asked.verb == "call" and (asked[2].revision or 0) or asked[1]
end

function learn.arm(self, asked) self.armed[asked[1]] = true end
function learn.disarm(self, asked) self.armed[asked[1]] = nil end

local LEARNT = { LeaseGrant = "lease", LeaseRevoke = "revoke", Compact = "compact" }

local function take_in(self, asked, answer)
  local revision = type(answer) == "table" and (answer.header and answer.header.revision or answer.revision)
  if revision and revision > self.revision then self.revision = revision end
  local verb = asked.verb == "call" and LEARNT[asked[1]:match("[^/]*$")] or asked.verb
  if learn[verb] then learn[verb](self, asked) end
end

--- True if a request may compact: all watches must then have received the earlier events.
local function compacts(asked)
  return asked.verb == "compact" or asked.verb == "call" and asked[1]:match("Compact$") ~= nil
end

--- Makes a request of both servers, and compares the answers.
function twins:ask(asked)
  if compacts(asked) then self:settle() end
  self:begin(asked)
  local answers, errors = {}, {}
  for _, kind in ipairs(KINDS) do
    local err
    answers[kind], err = perform(self, asked, kind)
    errors[kind] = plain_error(err)
    if err and kind == "keywatch" and known_differences.is_withheld(asked, err, self) then return nil, err end
  end
  uv.run("nowait") -- reads the servers' output
  if not errors.keywatch and errors.etcd and known_differences.is_refused(asked, errors.etcd, self) then
    return answers.keywatch
  end
  known_differences.settle_errors(errors)
  local words = difference(errors.keywatch, errors.etcd, "the error")
  if words then
    self:fail(words, { keywatch = errors.keywatch or answers.keywatch, etcd = errors.etcd or answers.etcd })
  end
  if errors.etcd then return nil, errors.etcd end
  take_in(self, asked, answers.keywatch)
  self:compare(answers, asked, "the answer")
  return answers.keywatch
end

-- }======

-- {====== Watches ======

--- Removes known differences from both answers, and compares the rest.
function twins:compare(answers, asked, what)
  local ok, failure = pcall(known_differences.settle, answers, asked, self)
  local words = not ok and tostring(failure) or difference(answers.keywatch, answers.etcd, what)
  if words then self:fail(words, answers) end
end

--- Waits until the whole history is known.
function twins:catch_up()
  local received = self.all_watch.received
  for _, kind in ipairs(KINDS) do
    self.all:receive_until(kind, function()
      local last = received[kind][#received[kind]]
      return (last and last.kv.mod_revision or 1) >= self.revision
    end, "all that happened up to revision " .. self.revision)
  end
  for i = #self.events + 1, math.max(#received.keywatch, #received.etcd) do
    local event = received.keywatch[i]
    self:compare({ keywatch = event, etcd = received.etcd[i] }, request.new("watch"), "event " .. i .. " of all")
    self.events[i] = event
  end
end

--- Opens a stream of watches at both servers.
function twins:open_stream() table.insert(self.streams, watch_twins.stream(self)) end

--- Waits until every watch has delivered all events, and compares them.
function twins:settle()
  self:catch_up()
  for _, stream in ipairs(self.streams) do stream:settle() end
  self:await_synced()
end

--- Waits until etcd has read the history for every watch: until then a compaction would cancel even a watch without
-- past events. etcd reads the history for all watches at once.
function twins:await_synced()
  if not self.has_past or self.revision == 1 then return end
  self.has_past = false
  local witness = self.all:create { key = "\0", range_end = "\0", start_revision = self.revision }
  self.all:settle()
  self.all:cancel(witness.id)
end

-- }======

return twins
