--- Random histories as messages: the requests of history.lua in the form in which they are sent, and modified to forms
-- that the API would not send.

local core = require "keywatch.core"

local int64 = require "spec.support.int64"
local new_request = require("spec.support.request").new

local MAX_INT64 = "9223372036854775807"
local BIG = 40000 -- bytes of a value: with two of them a transaction is too large

local methods = {}
local meta = { __index = methods }

--- Returns a source of requests; `history` makes the plain ones.
local function new(random, history) return setmetatable({ random = random, history = history }, meta) end

-- {====== Requests as messages ======

local KV, LEASE, MAINTENANCE = "/etcdserverpb.KV/", "/etcdserverpb.Lease/", "/etcdserverpb.Maintenance/"

local FACE = {
  get = { KV .. "Range", "RangeRequest" },
  range = { KV .. "Range", "RangeRequest" },
  put = { KV .. "Put", "PutRequest" },
  delete = { KV .. "DeleteRange", "DeleteRangeRequest" },
  txn = { KV .. "Txn", "TxnRequest" },
  compact = { KV .. "Compact", "CompactionRequest" },
}

local by_hand = {}

function by_hand.hash_kv(revision) return MAINTENANCE .. "HashKV", { revision = revision } end
function by_hand.lease(ttl, options) return LEASE .. "LeaseGrant", { TTL = ttl, ID = int64.canonical(options.id) } end
function by_hand.revoke(id) return LEASE .. "LeaseRevoke", { ID = int64.canonical(id) } end
function by_hand.remaining(id) return LEASE .. "LeaseTimeToLive", { ID = int64.canonical(id) } end
function by_hand.lease_keys(id) return LEASE .. "LeaseTimeToLive", { ID = int64.canonical(id), keys = true } end
function by_hand.leases() return LEASE .. "LeaseLeases", {} end

--- Returns the path and the message of a request; nothing if the request is not a single call, or is refused before it
-- is sent.
local function wire_of(asked)
  local face, hand = FACE[asked.verb], by_hand[asked.verb]
  if hand then return hand(asked[1], asked[2]) end
  if not face then return end
  local bytes = core.requests[asked.verb]({}, asked[1], asked[2], asked[3])
  if bytes then return face[1], core.decode(face[2], bytes) end
end

-- }======

-- {====== Changed messages ======

local function some_number(random)
  return random:pick { -1, -7, 1, 2, 3, int64.canonical("-9223372036854775808"), int64.canonical(MAX_INT64) }
end

local bend_range = {
  function(random, range) range.limit = some_number(random) end,
  function(random, range) range.revision = random:pick { -1, -7, int64.canonical(MAX_INT64) } end,
  function(_, range) range.range_end = "\0" end,
  function(_, range) range.key, range.range_end = "\0", "\0" end,
  function(_, range) range.key, range.range_end = "", "\0" end,
  function(_, range) range.range_end = range.key end,
  function(random, range) range.min_mod_revision = some_number(random) end,
  function(random, range) range.max_mod_revision = some_number(random) end,
  function(random, range) range.min_create_revision = some_number(random) end,
  function(random, range) range.max_create_revision = some_number(random) end,
  function(_, range) range.keys_only, range.count_only = true, true end,
}

local bend_put = {
  function(_, put) put.ignore_value, put.ignore_lease = true, true end,
  function(_, put) put.ignore_value, put.value = true, "" end,
  function(_, put) put.ignore_lease, put.lease = true, 0 end,
  function(random, put) put.lease = some_number(random) end,
  function(random, put) put.value = random:bytes(8):rep(BIG / 8) end,
  function(random, put) put.key = random:bytes(random:between(1, 3)) end,
  function(_, put) put.key = ("k"):rep(5000) end,
}

local bend_delete = {
  function(_, delete) delete.range_end = "\0" end,
  function(_, delete) delete.range_end = delete.key end,
  function(_, delete) delete.key, delete.range_end = "", "\0" end,
}

local function first_op(txn) return txn.success and txn.success[1] end

local INNER = {
  request_range = KV .. "Range",
  request_put = KV .. "Put",
  request_delete_range = KV .. "DeleteRange",
  request_txn = KV .. "Txn",
}

local bend

local bend_txn = {
  function(_, txn) txn.success = { {}, first_op(txn) } end,
  function(_, txn) txn.failure = { {}, first_op(txn) } end,
  function(random, txn) -- the field belongs to another target, or to none
    txn.compare = { { key = "a", target = random:between(0, 5), result = random:between(0, 4),
      [random:pick { "version", "mod_revision", "create_revision", "lease" }] = random:between(0, 3) } }
  end,
  function(random, txn)
    txn.compare = { { key = random:pick { "a", "\0", "b" }, range_end = random:pick { "\0", "a", "b", "c" },
      target = random:between(0, 4), result = random:between(0, 3) } }
  end,
  function(random, txn) -- as many operations as are allowed, or one more
    txn.success = {}
    for i = 1, 128 + random:between(0, 1) do txn.success[i] = { request_put = { key = "many/" .. i, value = "m" } } end
  end,
  function(random, txn) -- the same, of two transactions together
    local inner = {}
    for i = 1, 126 + random:between(0, 2) do inner[i] = { request_range = { key = "many/" .. i } } end
    txn.success = { { request_txn = { success = inner } } }
  end,
  function(random, txn) -- a duplicate, or none
    local key = random:pick { "a", "b", "c" }
    txn.success = {
      { request_txn = {
        success = { { request_put = { key = key, value = "1" } } },
        failure = { { request_put = { key = "a", value = "2" } } },
      } },
      random:pick {
        { request_put = { key = "a", value = "3" } },
        { request_delete_range = { key = "a", range_end = "b" } },
        { request_range = { key = "a", range_end = "\0" } },
      },
    }
  end,
  function(random, txn)
    for name, inner in pairs(first_op(txn) or {}) do bend(random, INNER[name], inner) end
  end,
}

local benders = {
  [KV .. "Range"] = bend_range,
  [KV .. "Put"] = bend_put,
  [KV .. "DeleteRange"] = bend_delete,
  [KV .. "Txn"] = bend_txn,
  [KV .. "Compact"] = { function(random, compact) compact.revision = some_number(random) end },
  [MAINTENANCE .. "HashKV"] = { function(random, hash) hash.revision = some_number(random) end },
  [LEASE .. "LeaseGrant"] = { function(_, grant) grant.TTL = 9000000001 end },
  [LEASE .. "LeaseRevoke"] = { function(_, revoke) revoke.ID = 0 end },
  [LEASE .. "LeaseTimeToLive"] = { function(_, lease) lease.ID, lease.keys = 0, true end },
}

function bend(random, path, message)
  local list = benders[path]
  if list then random:pick(list)(random, message) end
end

-- }======

local HUGE = 700000 -- bytes: more than the limit of a request plus 512 KiB, which is the limit of a message

-- Rare requests.
local oddities = {
  function() return new_request("call", KV .. "Nothing", "", { raw = true }) end,
  function() return new_request("call", "/etcdserverpb.Nobody/Nothing", "", { raw = true }) end,
  function(random) return new_request("call", KV .. "Range", random:pick { "\255", "\10\5a" }, { raw = true }) end,
  function(random) return new_request("call", KV .. "Txn", "\26" .. random:bytes(4), { raw = true }) end,
  function() return new_request("call", KV .. "Put", { key = "a", value = ("h"):rep(HUGE) }) end,
  function() return new_request("call", KV .. "Range", { key = ("h"):rep(HUGE) }) end,
  function() return new_request("call", MAINTENANCE .. "Alarm", { action = "GET" }) end,
  function() return new_request("call", MAINTENANCE .. "Alarm", { action = "GET", alarm = "CORRUPT" }) end,
}

--- Returns a rare request.
function methods:next_odd() return self.random:pick(oddities)(self.random) end

--- Returns the next request for servers in a state: a method of the client, or a call with a message.
function methods:next(state)
  local random = self.random
  local asked = self.history:next(state)
  if random:one_in(3) then return asked end
  local path, message = wire_of(asked)
  if not path then return asked end
  if random:one_in(4) then bend(random, path, message) end
  return new_request("call", path, message)
end

-- {====== Watches ======

local starts = {
  { 6, function() return nil end },
  { 5, function(random, state) return random:between(math.max(state.compact_revision, 1), state.revision) end },
  { 2, function(_, state) return math.max(state.compact_revision, 1) end },
  { 1, function(_, state) return math.max(state.compact_revision - 1, 1) end },
  { 1, function() return 1 end },
  { 2, function(_, state) return state.revision + 1 end },
  { 2, function(random, state) return state.revision + random:between(2, 30) end },
  { 1, function() return int64.canonical("9223372036854775805") end },
}

function methods:start_revision(state) return self.random:weighted(starts)(self.random, state) end

local ids = { 1, 2, 3, 7, 50, -4, 1000000 }

--- Returns a request to create a watch.
function methods:create_request(state)
  local random, history = self.random, self.history
  local message = {
    start_revision = self:start_revision(state),
    prev_kv = random:one_in(2) or nil,
    progress_notify = random:one_in(4) or nil,
    fragment = random:one_in(3) or nil,
    watch_id = random:one_in(4) and random:pick(ids) or nil,
    filters = random:weighted { { 6, nil }, { 1, { "NOPUT" } }, { 1, { "NODELETE" } }, { 1, { "NOPUT", "NODELETE" } } },
  }
  local key, options = history:span {}
  local _, range = wire_of(new_request("range", key, options))
  if range then message.key, message.range_end = range.key, range.range_end end
  if random:one_in(20) then message.key, message.range_end = "", random:pick { "", "\0", "b" } end
  return message
end

-- }======

return { new = new, wire_of = wire_of }
