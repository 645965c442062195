--- Random histories: a sequence of requests, most of them valid in the current state of the model, and some invalid.

local new_request = require("spec.support.request").new

local methods = {}
local meta = { __index = methods }

--- Few keys, so that requests often have the same one: prefixes of each other, zeros, 0xff endings, bytes of any kind.
local few_keys = {
  "a", "aa", "ab", "a\0", "a\255", "a\255\255", "a\255\255b", "b", "b\0", "b\0\0", "c", "c/", "c/1", "c/10", "c/2",
  "\0", "\0\0", "\0a", "\1\2\3", "\127", "\128\0\200", "\255", "\255\255", "\255a", ("long"):rep(60),
}

local function many_keys(n)
  local keys = {}
  for i = 1, n do keys[i] = ("many/%04d"):format(i) end
  return keys
end

--- Prefixes of several keys, of one key or of none.
local prefixes = { "", "a", "a\255", "b", "c/", "c/1", "many/", "many/01", "many/1", "\0", "\255", "\255\255", "none" }

--- Lease ids. Large ones are texts: the VM may not be able to represent the numbers.
local lease_ids = { 1, 2, 3, 4, 5, 6, 7, -8, "9", "9007199254740993", "-9223372036854775808", "9223372036854775807" }

local ttls = { -3, 0, 1, 2, 3, 3, 5, 8, 20, 60, 9000000000, 9000000001 }

local weights

--- `options`: keys (a list), oversize (bytes of a value that is too large), ttls (a list), weights (of the verbs).
local function new(random, options)
  return setmetatable({
    random = random,
    keys = options.keys or few_keys,
    oversize = options.oversize,
    ttls = options.ttls or ttls,
    weights = options.weights or weights,
  }, meta)
end

-- Parts of requests ----------------------------------------------------------------------------------------

function methods:key()
  if self.random:one_in(150) then return "" end
  return self.random:pick(self.keys)
end

function methods:value()
  local random = self.random
  return random:weighted {
    { 10, function() return "" end },
    { 50, function() return "v" .. random:between(1, 9) end },
    { 30, function() return random:bytes(random:between(1, 20)) end },
    { 4, function() return random:bytes(8):rep(64) end },
    { 1, function() return random:bytes(8):rep(640) end },
    { self.oversize and 2 or 0, function() return ("x"):rep(self.oversize) end },
  }()
end

--- Returns a past revision, sometimes one that cannot be read; mostly nil.
function methods:revision(model)
  local random = self.random
  if random:one_in(2) then return nil end
  local oldest = math.max(model.compact_revision, 0)
  return random:weighted {
    { 8, random:between(oldest, model.revision) },
    { 2, oldest },
    { 1, math.max(0, oldest - random:between(1, 3)) },
    { 1, model.revision + random:between(1, 3) },
  }
end

--- Returns a number to compare revisions and versions with.
function methods:number(model)
  return self.random:weighted { { 2, self.random:between(0, 4) }, { 3, self.random:between(0, model.revision + 1) } }
end

--- Returns a key, and options that make it a span.
function methods:span(options)
  local random = self.random
  local kind = random:weighted { { 4, "point" }, { 4, "prefix" }, { 4, "range_end" }, { 2, "from_key" } }
  if kind == "prefix" then
    options.prefix = true
    return random:pick(prefixes), options
  end
  if kind == "range_end" then options.range_end = random:pick(self.keys) end
  if kind == "from_key" then options.from_key = true end
  return self:key(), options
end

function methods:sometimes(n, value)
  if self.random:one_in(n) then return value end
end

function methods:lease_id(model)
  local ids = model:leases()
  if #ids > 0 and not self.random:one_in(8) then return self.random:pick(ids) end
  return self.random:pick(lease_ids)
end

-- Operations, with the fields of a transaction's operation --------------------------------------------------

function methods:put_fields(model)
  local fields = {
    value = self:value(),
    lease = self:sometimes(3, self:lease_id(model)),
    prev_kv = self:sometimes(3, true),
    ignore_value = self:sometimes(8, true),
    ignore_lease = self:sometimes(8, true),
  }
  if fields.ignore_value and not self.random:one_in(5) then fields.value = "" end
  if fields.ignore_lease and not self.random:one_in(5) then fields.lease = nil end
  return self:key(), fields
end

function methods:delete_fields()
  local fields = { prev_kv = self:sometimes(3, true) }
  if self.random:one_in(2) then return self:key(), fields end
  return self:span(fields)
end

function methods:get_fields(model) return self:key(), { revision = self:revision(model) } end

--- Returns the fields that range and each have in common.
function methods:read_fields(model)
  return self:span {
    revision = self:revision(model),
    limit = self:sometimes(2, self.random:between(0, 6)),
    serializable = self:sometimes(10, true),
    keys_only = self:sometimes(6, true),
    min_mod_revision = self:sometimes(10, self:number(model)),
    max_mod_revision = self:sometimes(10, self:number(model)),
    min_create_revision = self:sometimes(10, self:number(model)),
    max_create_revision = self:sometimes(10, self:number(model)),
  }
end

function methods:range_fields(model)
  local random = self.random
  local key, fields = self:read_fields(model)
  fields.count_only = self:sometimes(8, true)
  fields.sort_order = self:sometimes(2, random:pick { "none", "ascend", "descend" })
  fields.sort_target = self:sometimes(2, random:pick { "key", "version", "create", "mod", "value" })
  return key, fields
end

-- Transactions ---------------------------------------------------------------------------------------------

local targets = { "version", "create_revision", "mod_revision", "value", "lease" }

--- Guesses the value of a field of a key; mostly right.
function methods:guess(model, key, target)
  local kv = model:kv_at(model.revision, key)
  if kv and not self.random:one_in(3) then return kv[target] end
  if target == "value" then return self:value() end
  if target == "lease" then return self:lease_id(model) end
  return self:number(model)
end

function methods:compare(model)
  local random = self.random
  local compare = { op = random:pick { "=", "=", "!=", ">", "<" } }
  if random:one_in(4) then compare.key = self:span(compare) else compare.key = self:key() end
  local target = random:pick(targets)
  compare[target] = self:guess(model, compare.key, target)
  return compare
end

function methods:op(model, depth)
  local verb = self.random:weighted {
    { 5, "put" }, { 2, "delete" }, { 2, "get" }, { 2, "range" }, { depth < 3 and 2 or 0, "txn" },
  }
  if verb == "txn" then return { txn = self:txn(model, depth + 1) } end
  local key, fields = self[verb .. "_fields"](self, model)
  fields[verb] = key
  return fields
end

function methods:list(n, make)
  local list = {}
  for i = 1, self.random:between(0, n) do list[i] = make() end
  return list
end

function methods:txn(model, depth)
  return {
    compare = self:list(2, function() return self:compare(model) end),
    success = self:list(4 - depth, function() return self:op(model, depth) end),
    failure = self:list(4 - depth, function() return self:op(model, depth) end),
  }
end

-- Requests -------------------------------------------------------------------------------------------------

local make = {}

function make.put(self, model)
  local key, fields = self:put_fields(model)
  local value = fields.value
  fields.value = nil
  return new_request("put", key, value, fields)
end

function make.delete(self) return new_request("delete", self:delete_fields()) end
function make.get(self, model) return new_request("get", self:get_fields(model)) end
function make.range(self, model) return new_request("range", self:range_fields(model)) end
function make.txn(self, model) return new_request("txn", self:txn(model, 0)) end

--- A transaction that puts and deletes a key in one revision, in two nested transactions.
function make.fleeting(self, model)
  local key, fields = self:put_fields(model)
  fields.put = key
  return new_request("txn", {
    success = {
      { txn = { success = { fields } } },
      { get = key },
      { txn = { success = { { delete = key, prev_kv = self:sometimes(2, true) } } } },
      { get = key },
    },
  })
end

function make.each(self, model)
  local key, fields = self:read_fields(model)
  fields.page = self:sometimes(2, self.random:between(1, 4))
  return new_request("each", key, fields)
end

--- A compaction: mostly at a revision that is left in history, at times at the current revision or the next one.
function make.compact(self, model)
  local random = self.random
  local oldest = math.max(model.compact_revision, 0)
  local revision = random:weighted {
    { 6, math.min(random:between(oldest, model.revision), random:between(oldest, model.revision)) },
    { 1, model.revision },
    { 1, model.revision + 1 },
  }
  return new_request("compact", revision, { physical = self:sometimes(6, true) })
end

function make.hash_kv(self, model) return new_request("hash_kv", self:revision(model) or 0) end

function make.lease(self)
  return new_request("lease", self.random:pick(self.ttls), { id = self.random:pick(lease_ids) })
end

function make.brief_lease(self) return new_request("brief_lease", self.random:pick(ttls)) end

function make.keepalive(self, model) return new_request("keepalive", self:lease_id(model)) end
function make.remaining(self, model) return new_request("remaining", self:lease_id(model)) end
function make.lease_keys(self, model) return new_request("lease_keys", self:lease_id(model)) end
function make.revoke(self, model) return new_request("revoke", self:lease_id(model)) end
function make.leases() return new_request("leases") end

--- Quarters of a second are exact in every clock.
function make.pass_time(self, model)
  return new_request("pass_time", model.now + self.random:pick { 0, 0.25, 0.5, 1, 1, 2, 3, 10 })
end

function make.nudge(_, model) return new_request("nudge", model.now) end

function make.arm(self) return new_request("arm", self.random:pick { "no_space", "corrupt" }) end

weights = {
  { 30, "put" }, { 8, "delete" }, { 23, "txn" }, { 3, "fleeting" },
  { 6, "get" }, { 14, "range" }, { 4, "each" }, { 2, "hash_kv" },
  { 2, "compact" }, { 2, "nudge" },
  { 4, "lease" }, { 1, "brief_lease" }, { 3, "keepalive" }, { 1, "revoke" }, { 5, "pass_time" },
  { 2, "remaining" }, { 2, "lease_keys" }, { 1, "leases" },
}

--- Returns the next request for a store in the state of the model. While an alarm is armed no time passes, so that
-- no lease expires.
function methods:next(model)
  local alarm = next(model.armed)
  if alarm and self.random:one_in(8) then return new_request("disarm", alarm) end
  if not alarm and self.random:one_in(150) then return make.arm(self) end
  local verb = self.random:weighted(self.weights)
  if alarm and verb == "pass_time" then verb = "nudge" end
  return make[verb](self, model)
end

--- Returns a request that may change something, but is not a compaction.
function methods:next_change(model)
  return make[self.random:weighted {
    { 30, "put" }, { 8, "delete" }, { 20, "txn" }, { 3, "fleeting" },
    { 4, "lease" }, { 2, "revoke" }, { 5, "pass_time" },
  }](self, model)
end

--- Returns a request that only reads.
function methods:next_read(model)
  return make[self.random:weighted { { 2, "get" }, { 5, "range" }, { 2, "each" } }](self, model)
end

return { new = new, many_keys = many_keys }
