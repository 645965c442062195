--- Converts the arguments of a method to the equivalent message: a second, naive implementation. Tables are like those
-- of core.decode: zero, false and empty values are absent, except in a oneof.

local core = require "keywatch.core"

local message = {}

-- The message of each method.
message.names = {
  get = "RangeRequest", range = "RangeRequest", put = "PutRequest", delete = "DeleteRangeRequest", txn = "TxnRequest",
  compact = "CompactionRequest", lease_grant = "LeaseGrantRequest", lease_revoke = "LeaseRevokeRequest",
  lease_keepalive = "LeaseKeepAliveRequest", lease_time_to_live = "LeaseTimeToLiveRequest",
  leases = "LeaseLeasesRequest",
}

local IDS = { lease = true, ID = true }
local NOTHING = { [0] = true, [false] = true, [""] = true }

local function sparse(fields)
  local kept = {}
  for name, value in pairs(fields) do
    if IDS[name] then value = core.id(type(value) == "table" and value.id or value) end
    if not NOTHING[value] then kept[name] = value end
  end
  return kept
end

local function end_of_prefix(prefix)
  local stem = prefix:gsub("\255+$", "")
  if stem == "" then return "\0" end
  return stem:sub(1, -2) .. string.char(stem:byte(-1) + 1)
end

--- Returns the key and the end of a range.
local function span(key, opts)
  if not opts.prefix and not opts.from_key then return key, opts.range_end end
  if key == "" then return "\0", "\0" end
  return key, opts.from_key and "\0" or end_of_prefix(key)
end

local function upper(name) return name and name ~= "none" and name ~= "key" and name:upper() or nil end

local function range(key, opts)
  local first, last = span(key, opts)
  return sparse {
    key = first, range_end = last, limit = opts.limit, revision = opts.revision,
    sort_order = upper(opts.sort_order), sort_target = upper(opts.sort_target), serializable = opts.serializable,
    keys_only = opts.keys_only, count_only = opts.count_only, min_mod_revision = opts.min_mod_revision,
    max_mod_revision = opts.max_mod_revision, min_create_revision = opts.min_create_revision,
    max_create_revision = opts.max_create_revision,
  }
end

local function put(key, value, opts)
  return sparse { key = key, value = value, lease = opts.lease, prev_kv = opts.prev_kv,
    ignore_value = opts.ignore_value, ignore_lease = opts.ignore_lease }
end

local function delete(key, opts)
  local first, last = span(key, opts)
  return sparse { key = first, range_end = last, prev_kv = opts.prev_kv }
end

local TARGETS = { version = "VERSION", create_revision = "CREATE", mod_revision = "MOD", value = "VALUE",
  lease = "LEASE" }
local RESULTS = { [">"] = "GREATER", ["<"] = "LESS", ["!="] = "NOT_EQUAL" }

local function compare(given)
  local first, last = span(given.key, given)
  local found = sparse { key = first, range_end = last, result = RESULTS[given.op] }
  for name, target in pairs(TARGETS) do
    local value = given[name]
    if value ~= nil then
      if name ~= "version" then found.target = target end
      found[name] = name == "lease" and core.id(type(value) == "table" and value.id or value) or value
    end
  end
  return found
end

local txn

local function op(given)
  if given.get then return { request_range = range(given.get, given) } end
  if given.range then return { request_range = range(given.range, given) } end
  if given.put then return { request_put = put(given.put, given.value, given) } end
  if given.delete then return { request_delete_range = delete(given.delete, given) } end
  return { request_txn = txn(given.txn) }
end

local function list(given, make)
  if not given or #given == 0 then return nil end
  local made = {}
  for i, one in ipairs(given) do made[i] = make(one) end
  return made
end

function txn(given)
  return { compare = list(given.compare, compare), success = list(given.success, op),
    failure = list(given.failure, op) }
end

local of = {}

function of.get(key, opts) return range(key, opts or {}) end
function of.range(key, opts) return range(key, opts or {}) end
function of.put(key, value, opts) return put(key, value, opts or {}) end
function of.delete(key, opts) return delete(key, opts or {}) end
function of.txn(given) return txn(given) end
function of.compact(revision, opts) return sparse { revision = revision, physical = (opts or {}).physical } end
function of.lease_grant(ttl, opts) return sparse { TTL = ttl, ID = (opts or {}).id or 0 } end
function of.lease_revoke(id) return sparse { ID = id } end
function of.lease_keepalive(id) return sparse { ID = id } end
function of.lease_time_to_live(id, opts) return sparse { ID = id, keys = (opts or {}).keys } end
function of.leases() return {} end

--- Returns the message for a method's arguments.
function message.of(verb, ...) return of[verb](...) end

return message
