--- A naive store: the expected behaviour of keywatch, as simply as possible.
--
-- It keeps every record that was ever written, in order, and answers each request by walking over all of them:
--
--   { main, sub, key, kv }     a put
--   { main, sub, key }         a tombstone
--
-- Records are never removed. Compaction only moves the revision below which reads are refused. The methods are those of
-- a keywatch store, so that a spec can make the same requests of both; only step(now) moves the clock.

local failure = require "spec.support.model.failure"
local hash = require "spec.support.model.hash"
local int64 = require "spec.support.int64"
local lease = require "spec.support.model.lease"
local span = require "spec.support.model.span"
local txn = require "spec.support.model.txn"
local write = require "spec.support.model.write"

local everything = span.new("", { prefix = true })

local methods = {}
local meta = { __index = methods }

local function new(options)
  options = options or {}
  return setmetatable({
    history = {},
    revision = 1,
    compact_revision = -1,
    grants = {}, -- id -> { id, ttl, expiry }
    now = options.now or 0,
    is_replica = options.replica or false,
    armed = {}, -- alarm name -> true

    max_request_bytes = options.max_request_bytes or 1572864,
    max_txn_ops = options.max_txn_ops or 128,
    min_lease_ttl = options.min_lease_ttl or 2,
  }, meta)
end

function methods:fail(code) return nil, failure.new(code, self.compact_revision) end

-- Looking at history ---------------------------------------------------------------------------------------

--- Returns every key's newest record up to a revision.
function methods:newest_at(revision)
  local newest = {}
  for _, record in ipairs(self.history) do
    if record.main <= revision then newest[record.key] = record end
  end
  return newest
end

--- Returns the kvs that exist at a revision, in key order.
function methods:kvs_at(revision, within)
  local kvs = {}
  for key, record in pairs(self:newest_at(revision)) do
    if record.kv and span.contains(within, key) then kvs[#kvs + 1] = record.kv end
  end
  table.sort(kvs, function(a, b) return a.key < b.key end)
  return kvs
end

function methods:kv_at(revision, key) return self:kvs_at(revision, span.new(key, {}))[1] end

function methods:all_kvs() return self:kvs_at(self.revision, everything) end

--- Returns the code of the error for reads at a revision, or nil.
function methods:unreadable(revision)
  revision = revision or 0
  if revision == 0 then return nil end
  if revision > self.revision then return "future_revision" end
  if revision < self.compact_revision then return "compacted" end
end

-- Reading --------------------------------------------------------------------------------------------------

function methods:range(key, options)
  options = options or {}
  if span.new(key, options).key == "" then return self:fail "empty_key" end
  local code = self:unreadable(options.revision)
  if code then return self:fail(code) end
  return write.new(self):range(key, options)
end

function methods:get(key, options)
  local found, err = self:range(key, options)
  if not found then return nil, err end
  return found.kvs[1]
end

--- Returns an iterator over the kvs of a range; raises the error of range.
function methods:each(key, options)
  local found, err = self:range(key, options)
  if not found then error(err, 0) end
  local i = 0
  return function()
    i = i + 1
    return found.kvs[i]
  end
end

function methods:hash_kv(revision)
  revision = revision or 0
  local code = self:unreadable(revision)
  if code then return self:fail(code) end
  if revision == 0 then revision = self.revision end
  local function newest_at(at) return self:newest_at(at) end
  return {
    hash = hash.hash(self.history, newest_at, revision, self.compact_revision),
    revision = self.revision,
    compact_revision = self.compact_revision,
    hash_revision = revision,
  }
end

--- Returns those fields of status() that follow from history.
function methods:status()
  return {
    revision = self.revision,
    compact_revision = self.compact_revision,
    keys = #self:all_kvs(),
    leases = #self:leases(),
  }
end

-- Writing --------------------------------------------------------------------------------------------------

--- Returns the code of the error for a write with this number of bytes, whatever it does; or nil.
function methods:refused(bytes, is_put)
  if self.is_replica then return "read_only" end
  if bytes > self.max_request_bytes then return "request_too_large" end
  if self.armed.corrupt then return "corrupt" end
  if is_put and self.armed.no_space then return "no_space" end
end

function methods:has_lease(id)
  id = int64.canonical(id or 0)
  return id == 0 or self.grants[id] ~= nil
end

local function invalid_put(key, value, options)
  if key == "" then return "empty_key" end
  if options.ignore_value and value ~= "" then return "value_provided" end
  if options.ignore_lease and (options.lease or 0) ~= 0 then return "lease_provided" end
end

function methods:unmet_by_put(key, options)
  if not self:has_lease(options.lease) then return "lease_not_found" end
  local needs_key = options.ignore_value or options.ignore_lease
  if needs_key and not self:kv_at(self.revision, key) then return "key_not_found" end
end

function methods:put(key, value, options)
  value, options = value or "", options or {}
  local code = invalid_put(key, value, options)
    or self:refused(#key + #value, true)
    or self:unmet_by_put(key, options)
  if code then return self:fail(code) end
  local change = write.new(self)
  local answer = change:put(key, value, options)
  change:commit()
  return answer
end

function methods:delete(key, options)
  options = options or {}
  local within = span.new(key, options)
  local code = within.key == "" and "empty_key" or self:refused(#within.key + #within.last, false)
  if code then return self:fail(code) end
  local change = write.new(self)
  local answer = change:delete(key, options)
  change:commit()
  return answer
end

function methods:refused_txn(request)
  if not txn.is_write(request) then return nil end
  return self:refused(txn.payload(request), txn.puts_anything(request))
end

function methods:txn(request)
  local code = txn.validate(request, self.max_txn_ops) or self:refused_txn(request)
  if code then return self:fail(code) end
  local plan = txn.plan(request, self)
  code = txn.unmet(plan, self)
  if code then return self:fail(code) end
  local change = write.new(self)
  local answer
  answer, code = txn.execute(plan, change)
  if not answer then
    change:roll_back()
    return self:fail(code)
  end
  txn.set_revision(plan, answer, change:commit())
  return answer
end

function methods:compact(revision)
  if self.is_replica then return self:fail "read_only" end
  if self.armed.corrupt then return self:fail "corrupt" end
  if revision <= self.compact_revision then return self:fail "compacted" end
  if revision > self.revision then return self:fail "future_revision" end
  self.compact_revision = revision
  return { revision = self.revision }
end

--- Returns the records that remain after a complete compaction: all records after its revision, and of every key the
-- newest one up to the revision, if that is a put.
function methods:records_left()
  local newest, left = self:newest_at(self.compact_revision), {}
  for _, record in ipairs(self.history) do
    local counts = newest[record.key] == record and record.kv
    if record.main >= self.compact_revision or counts then left[#left + 1] = record end
  end
  return left
end

function methods:arm(name)
  self.armed[name] = true
  return true
end

function methods:disarm(name)
  self.armed[name] = nil
  return true
end

-- Leases and time ------------------------------------------------------------------------------------------

--- Returns an unused lease id. A store may choose another one.
function methods:free_id()
  local id = 1000
  while self.grants[id] do id = id + 1 end
  return id
end

function methods:lease(ttl, options)
  local id = int64.canonical(options and options.id or self:free_id())
  local code = self:refused(0, true) or lease.refuse(self, id, ttl)
  if code then return self:fail(code) end
  return lease.grant(self, id, ttl)
end

function methods:lease_by_id(id) return lease.new(self, int64.canonical(id)) end

function methods:leases()
  local ids = {}
  for i, grant in ipairs(lease.by_expiry(self)) do ids[i] = grant.id end
  return ids
end

--- Returns the time at which the first lease expires, or nil. A corrupt store does not expire leases.
function methods:deadline()
  local first = lease.by_expiry(self)[1]
  if self.armed.corrupt then return nil end
  return first and first.expiry
end

function methods:step(now)
  self.now = now
  if not self.armed.corrupt then lease.expire(self) end
  return false
end

-- Following an upstream ------------------------------------------------------------------------------------

function methods:load_kvs(revision, kvs)
  for i, kv in ipairs(kvs) do self.history[i] = { main = kv.mod_revision, sub = i, key = kv.key, kv = kv } end
  self.revision = revision
  self.compact_revision = revision
  return true
end

local event_fields = { "key", "value", "create_revision", "mod_revision", "version", "lease" }

local function kv_of(event)
  if event.type == "delete" then return nil end
  local kv = {}
  for _, name in ipairs(event_fields) do kv[name] = event[name] end
  return kv
end

function methods:apply(revision, events)
  for i, event in ipairs(events) do
    self.history[#self.history + 1] = { main = revision, sub = i - 1, key = event.key, kv = kv_of(event) }
  end
  self.revision = revision
  return true
end

function methods:advance(revision)
  self.revision = revision
  return true
end

--- Returns the events of one revision, as a server would send them.
function methods:events_at(revision)
  local events = {}
  for _, record in ipairs(self.history) do
    if record.main == revision then
      local event = kv_of(record.kv or { type = "delete" }) or {}
      event.type = record.kv and "put" or "delete"
      event.key = record.key
      events[#events + 1] = event
    end
  end
  return events
end

return { new = new }
