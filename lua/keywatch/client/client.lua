-- SPDX-License-Identifier: MIT
--- client: a client of an etcd v3 server, with the same methods as a store.
--
-- The core checks arguments, encodes requests and decodes answers; that code is the same for stores. This module sends
-- the requests through the transport.

local backoff = require "keywatch.client.backoff"
local call_hook = require "keywatch.client.call_hook"
local check = require "keywatch.support.check"
local compat = require "keywatch.support.compat"
local core = require "keywatch.core"
local dialer = require "keywatch.client.dialer"
local driver = require "keywatch.task.driver"
local errors = require "keywatch.support.errors"
local exists = require "keywatch.store.exists"
local lease = require "keywatch.store.lease"
local methods_of = require "keywatch.client.methods"
local pages = require "keywatch.store.pages"
local range_stream = require "keywatch.client.range_stream"
local remote_origin = require "keywatch.watch.remote_origin"
local security = require "keywatch.client.security"
local streams = require "keywatch.client.stream"
local transports = require "keywatch.client.transport"

local WITHOUT_LEADER = require("keywatch.client.cluster").WITHOUT_LEADER

local client_methods, client_mt = check.class "keywatch.client"
check.store_like(client_mt)

--- Returns the URLs of the endpoints.
function client_mt:__tostring()
  local urls = {}
  for i, endpoint in ipairs(self.transport.dialer.endpoints) do urls[i] = endpoint.url end
  return ("keywatch.client<%s%s>"):format(table.concat(urls, ","), self.transport.is_closed and " closed" or "")
end

-- {====== Connecting ======

local DEFAULTS = { timeout = 10, connect_timeout = 2, keepalive = 10, keepalive_timeout = 5, max_message = 64 * 2 ^ 20 }
local KINDS = {
  timeout = "0 or more", connect_timeout = "positive", keepalive = "0 or more", keepalive_timeout = "0 or more",
  max_message = { "a positive whole number", function(value)
    return type(value) == "number" and value > 0 and (value % 1 == 0 or value == math.huge)
  end },
  user = "string", password = "string", backoff = "table", on_state = "function", on_call = "function",
  prefer = check.one_of("first", "fastest", "any"), sync_endpoints = "positive",
  tls = { "a table or true", function(value) return type(value) == "table" or value == true end },
}

--- Raises if the options of connect are wrong.
local function check_options(opts)
  check.known(opts, "connect", KINDS)
  backoff.check_option(opts.backoff or {})
  if (opts.user == nil) ~= (opts.password == nil) then
    check.misuse("connect: options 'user' and 'password' must be given together")
  end
end

--- Returns the parts of a text between commas, as a list, without the space around them.
local function split(text)
  local parts = {}
  for part in (text .. ","):gmatch("([^,]*),") do parts[#parts + 1] = part:match("^%s*(.-)%s*$") end
  return parts
end

--- Returns the endpoints of a list of texts. An endpoint without a scheme has TLS if `has_tls`. Raises if a text is not
-- an endpoint.
local function parse_endpoints(endpoints, has_tls)
  local parsed = {}
  for i, text in ipairs(endpoints) do
    if type(text) ~= "string" then
      check.misuse("connect: an endpoint must be a text like 127.0.0.1:2379 or http://127.0.0.1:2379, not a %s",
        type(text))
    end
    local endpoint, why = dialer.parse(text, has_tls)
    if not endpoint then check.misuse("connect: the endpoint '%s' %s", text, why) end
    parsed[i] = endpoint
  end
  return parsed
end

--- Returns a client of the endpoints. It connects when it is first used. Returns nil and an error if a file of the
-- option tls is unusable.
local function connect(endpoints, opts)
  if type(endpoints) == "string" then endpoints = split(endpoints) end
  check.argument(type(endpoints) == "table", 1, "connect", "endpoint or a list of them", endpoints)
  if #endpoints == 0 then check.misuse("connect: the list of endpoints is empty: give one, like 127.0.0.1:2379") end
  opts = check.options(opts, "connect")
  check_options(opts)
  local own = {}
  for name, value in pairs(DEFAULTS) do own[name] = opts[name] or value end
  own.has_timeout = opts.timeout ~= nil
  own.user, own.password, own.backoff = opts.user, opts.password, opts.backoff or {}
  own.prefer, own.sync_endpoints = opts.prefer or "first", opts.sync_endpoints
  own.max_message = math.min(own.max_message, 2 ^ 31 - 1)
  local parsed = parse_endpoints(endpoints, opts.tls ~= nil)
  local err
  own.security, err = security.new(parsed, opts.tls == true and {} or opts.tls)
  if not own.security then return nil, err end
  if own.user then security.warn_of_password(parsed) end
  local transport = transports.new(parsed, own)
  local sentinel = compat.sentinel(function() driver.forget(transport) end)
  transport:guard(sentinel)
  transport.state:observe(opts.on_state)
  if opts.on_call then call_hook.install(transport, opts.on_call) end
  local client = setmetatable({
    transport = transport,
    sentinel = sentinel,
    on_state = opts.on_state, -- the client references its hooks, and the transport does not
    on_call = opts.on_call,
  }, client_mt)
  driver.introduce(client)
  return client
end

--- Returns the status of the client. Makes no request, and does not wait.
function client_methods:state()
  local transport = self.transport
  if transport.is_attached then transport:look() else transport:check_process() end
  transport.state:update()
  return transport.state:describe()
end

--- Closes the client. Running calls fail, and so do its watches.
function client_methods:close()
  self.transport:close()
end

client_mt.__close = client_methods.close

-- }======

-- {====== Calls ======

local KV, LEASE = "/etcdserverpb.KV/", "/etcdserverpb.Lease/"

-- By the name of the method: its path, and whether it is a read, which may be sent more than once.
local CALLS = {
  get = { KV .. "Range", true },
  range = { KV .. "Range", true },
  put = { KV .. "Put", false },
  delete = { KV .. "DeleteRange", false },
  txn = { KV .. "Txn", false },
  compact = { KV .. "Compact", false },
  lease_grant = { LEASE .. "LeaseGrant", false },
  lease_revoke = { LEASE .. "LeaseRevoke", false },
  lease_time_to_live = { LEASE .. "LeaseTimeToLive", true },
  leases = { LEASE .. "LeaseLeases", true },
}

--- Returns the result and the error that were decoded from an answer. The error of a write gets maybe_done: the server
-- has answered, so the write was done.
local function read_answer(is_read, result, err)
  if err and not is_read then err.maybe_done = true end
  return result, err
end

--- Returns the metadata of a read. A serializable read is answered by a member without a leader, too.
local function metadata_of_read(_, opts)
  return type(opts) == "table" and opts.serializable and WITHOUT_LEADER or nil
end

--- Sends the encoded request of a method. `bytes` and the following arguments are results of the encoder: nil and an
-- error if the request cannot be encoded. Returns the decoded answer, or nil and an error.
local function send(self, path, is_read, answer, metadata, bytes, timeout, deadline, memo)
  if not bytes then return nil, timeout end -- the error
  local until_ = self.transport:deadline_of(timeout, deadline)
  local back, err = self.transport:unary(path, bytes, until_, is_read, metadata)
  if not back then return nil, err end
  return read_answer(is_read, answer(back, memo))
end

for name, call in pairs(CALLS) do
  local path, is_read = call[1], call[2]
  local request, answer = core.requests[name], core.answers[name]
  local is_range = path == KV .. "Range"
  client_methods[name] = function(self, ...)
    local metadata = is_range and metadata_of_read(...)
    return check.results(send(self, path, is_read, answer, metadata, check.call(name, request, self, ...)))
  end
end

local range = client_methods.range
local answer_range = core.answers.range

--- Returns a page of `each`, which may come from a stream: see range_stream.lua. The first page has no revision.
local function range_page(self, key, opts, rest)
  check.self(self, "range", client_mt)
  local transport, own = self.transport, check.copy(opts, pages.REST)
  if rest.connection and not rest.is_of_pages then
    local limit = own.limit
    own.limit = rest.limit
    local bytes, timeout, deadline = check.call("range", core.requests.range, self, key, own)
    local page, is_last = rest:await(transport, bytes, transport:deadline_of(timeout, deadline))
    local result, err
    if page then result, err = answer_range(page) end
    if result and not is_last then result.more = true end
    if page then return result, err end
    own.limit = limit
  end
  local bytes, timeout, deadline, memo = check.call("range", core.requests.range, self, key, own)
  if not bytes then return nil, timeout end -- the error
  local until_ = transport:deadline_of(timeout, deadline)
  local back, err, connection = transport:unary(KV .. "Range", bytes, until_, true, metadata_of_read(key, own))
  if not back then return nil, err end
  rest:note(connection, back)
  return answer_range(back, memo)
end

--- Reads a range of keys. Returns the result, or nil and an error.
function client_methods:range(key, opts)
  local rest = type(opts) == "table" and opts[pages.REST]
  if rest then return check.results(range_page(self, key, opts, rest)) end
  return check.results(range(self, key, opts))
end

client_mt.__new_rest = range_stream.new_rest

--- Sends the encoded transaction of a claim. Returns the bytes of the answer, or nil and an error.
local function send_claim(self, timeout, deadline, bytes, err)
  if not bytes then return nil, err end
  local transport = self.transport
  return transport:unary(KV .. "Txn", bytes, transport:deadline_of(timeout, deadline), false)
end

client_mt.__lock_requests = {} -- see concurrency/lock_requests.lua

function client_mt.__lock_requests.claim(self, prefix, key, value, lease_id, is_try, deadline)
  local back, err = send_claim(self, nil, deadline, core.requests.claim(self, prefix, key, value, lease_id, is_try))
  if not back then return nil, err end
  local created, is_oldest, before, revision = core.answers.claim(back)
  if created == nil then is_oldest.maybe_done = true end -- the error
  return created, is_oldest, before, revision
end

function client_mt.__lock_requests.unclaim(self, key, created, times)
  local timeout, deadline = times and times.timeout, times and times.deadline
  local back, err = send_claim(self, timeout, deadline, core.requests.unclaim(self, key, created))
  if not back then return nil, err end
  return read_answer(false, core.answers.unclaim(back))
end

--- Renews a lease. Returns its time to live in seconds, or nil and an error.
function client_methods:lease_keepalive(id, opts)
  local bytes, timeout, deadline = check.call("keepalive", core.requests.lease_keepalive, self, id, opts)
  local until_ = self.transport:deadline_of(timeout, deadline)
  local back, err = self.transport:unary(LEASE .. "LeaseKeepAlive", bytes, until_, true)
  if not back then return nil, err end
  return core.answers.lease_keepalive(back)
end

--- Returns the keeper of the client's leases. See store/kept.lua.
function client_methods:lease_keeper()
  return self.transport.keeper
end

--- Calls a method of etcd about the member in use, which needs no leader. The message is a table. Returns the answer
-- as a table, or nil and an error.
local function ask(self, path, message, times)
  local method = methods_of[path]
  local bytes = core.encode(method.request, message)
  local deadline = self.transport:deadline_of(times.timeout, times.deadline)
  local back, err = self.transport:unary(path, bytes, deadline, method.is_read, WITHOUT_LEADER)
  if not back then return nil, err end
  return methods_of.decode(method.answer, back)
end

--- Returns the status of the server in use, with the client's state; or nil and an error, with the client's state. (The
-- state is not a third result, since LuaJIT's assert would raise that instead of the error.)
function client_methods:status(opts)
  local answer, err = ask(self, "/etcdserverpb.Maintenance/Status", {}, check.times(opts, "status"))
  local state = self:state()
  if not answer then
    err.client = state
    return nil, err
  end
  local header = answer.header or {}
  return {
    revision = header.revision or 0,
    cluster_id = core.decimal(header.cluster_id or 0),
    member_id = core.decimal(header.member_id or 0),
    raft_term = header.raft_term,
    version = answer.version,
    db_size = answer.dbSize or 0,
    db_size_in_use = answer.dbSizeInUse or 0,
    leader = core.decimal(answer.leader or 0),
    errors = answer.errors or {},
    quota = answer.dbSizeQuota and math.max(answer.dbSizeQuota, 0),
    storage_version = answer.storageVersion,
    downgrade_to = answer.downgradeInfo and answer.downgradeInfo.enabled and answer.downgradeInfo.targetVersion or nil,
    endpoint = state.endpoint,
    client = state,
  }
end

--- Returns the hash over all keys and their history up to a revision; or nil and an error. Servers before etcd 3.6 do
-- not send hash_revision: they hash up to the requested revision, or up to their own.
function client_methods:hash_kv(revision, opts)
  check.revision(revision, "hash_kv")
  local times = check.times(opts, "hash_kv")
  local answer, err = ask(self, "/etcdserverpb.Maintenance/HashKV", { revision = revision or 0 }, times)
  if not answer then return nil, err end
  local current = answer.header and answer.header.revision or 0
  return {
    hash = answer.hash or 0,
    compact_revision = answer.compact_revision or 0,
    revision = current,
    hash_revision = answer.hash_revision or revision and revision > 0 and revision or current,
  }
end

-- }======

-- {====== The cluster ======

local MEMBERS_OPTIONS = { timeout = "seconds", deadline = "seconds", serializable = "boolean" }

--- Returns the members of the cluster, or nil and an error.
function client_methods:members(opts)
  opts = check.options(opts, "members", MEMBERS_OPTIONS)
  local transport = self.transport
  local deadline = transport:deadline_of(opts.timeout, opts.deadline)
  return check.results(transport.cluster:members(deadline, opts.serializable))
end

--- Returns the health of each endpoint, in the order of the endpoints; or nil and an error if the client is closed.
function client_methods:health(opts)
  local times = check.times(opts, "health")
  local transport = self.transport
  if transport.is_closed then return nil, errors.closed("client") end
  driver.get().check_send()
  local rows = transport.cluster:health(transport:deadline_of(times.timeout, times.deadline))
  return rows
end

--- Makes the client URLs of the cluster's members the endpoints. Returns them, or nil and an error.
function client_methods:sync_endpoints(opts)
  local times = check.times(opts, "sync_endpoints")
  local transport = self.transport
  return check.results(transport.cluster:sync(transport:deadline_of(times.timeout, times.deadline)))
end

-- }======

-- {====== Any method ======

local STREAM_OPTIONS = { timeout = "seconds", deadline = "seconds", raw = "boolean", metadata = "table" }
local CALL_OPTIONS = {
  timeout = "seconds", deadline = "seconds", raw = "boolean", metadata = "table", is_read = "boolean",
}

--- True if a text is the path of a gRPC method: /service/method.
local function is_path(path)
  return type(path) == "string" and path:find("^/[^/]+/[^/]+$") ~= nil
end

--- Raises if metadata cannot be sent as header fields. Names are in lower case and not reserved by gRPC; values are
-- printable ASCII. Binary fields (-bin) are refused, because they would need an encoding.
local function check_metadata(name, metadata)
  for key, value in pairs(metadata) do
    local is_name = type(key) == "string" and key:find("^[%l%d_.-]+$")
    if not is_name or key:find("^grpc%-") or key:find("%-bin$") then
      check.misuse("%s: metadata cannot have the name '%s': use lower-case letters, digits, '_', '.' and '-', "
        .. "neither grpc- in front nor -bin at the end", name, tostring(key))
    end
    if type(value) ~= "string" or value:find("[^\32-\126]") then
      check.misuse("%s: the value of metadata '%s' must be a string of printable ASCII", name, key)
    end
  end
end

--- Calls any method with one message and one answer. Messages are tables if their types are known, and otherwise bytes,
-- as with `raw`. With `is_read` the call may be sent more than once.
function client_methods:call(path, message, opts)
  check.argument(is_path(path), 1, "call", "path of a method", path)
  opts = check.options(opts, "call", CALL_OPTIONS)
  check_metadata("call", opts.metadata or {})
  local method = not opts.raw and methods_of[path] or {}
  local bytes = methods_of.encode(method.request, message, "call")
  local is_read = opts.is_read or method.is_read or false
  local deadline = self.transport:deadline_of(opts.timeout, opts.deadline)
  local back, err = self.transport:unary(path, bytes, deadline, is_read, opts.metadata)
  if not back then return nil, err end
  return check.results(read_answer(is_read, methods_of.decode(method.answer, back)))
end

--- Calls any method with any number of messages in both directions. Returns a stream, or nil and an error.
function client_methods:stream(path, opts)
  check.argument(is_path(path), 1, "stream", "path of a method", path)
  opts = check.options(opts, "stream", STREAM_OPTIONS)
  check_metadata("stream", opts.metadata or {})
  local has_deadline = opts.timeout or opts.deadline
  local deadline = self.transport:deadline_of(opts.timeout, opts.deadline)
  local method = not opts.raw and methods_of[path] or {}
  return streams.open(self, path, method, deadline, has_deadline and deadline, opts.metadata)
end

-- }======

client_methods.each = pages.each
client_methods.exists = exists
client_methods.lease = lease.grant
client_methods.lease_by_id = lease.by_id
client_methods.watch = remote_origin.open

return { connect = connect, methods = client_methods, mt = client_mt }
