--- Leases of the model. A lease's keys are those whose newest kv names the lease; they are not stored.

local failure = require "spec.support.model.failure"
local int64 = require "spec.support.int64"
local write = require "spec.support.model.write"

local MAX_TTL = 9000000000

local methods = {}
local meta = { __index = methods }

local function new(model, id, ttl) return setmetatable({ model = model, id = id, ttl = ttl }, meta) end

--- True if a expires before b; at equal times the smaller id is first.
local function is_sooner(a, b)
  if a.expiry ~= b.expiry then return a.expiry < b.expiry end
  return int64.compare(a.id, b.id) < 0
end

local function by_expiry(model)
  local list = {}
  for _, grant in pairs(model.grants) do list[#list + 1] = grant end
  table.sort(list, is_sooner)
  return list
end

local function keys_of(model, id)
  local keys = {}
  for _, kv in ipairs(model:all_kvs()) do
    if kv.lease == id then keys[#keys + 1] = kv.key end
  end
  return keys
end

--- Forgets a lease and deletes its keys in one revision.
local function revoke(model, id)
  local tombstones = write.new(model)
  for _, key in ipairs(keys_of(model, id)) do tombstones:delete(key, {}) end
  model.grants[id] = nil
  return tombstones:commit()
end

--- Revokes expired leases, the earliest first, each in a revision of its own.
local function expire(model)
  for _, grant in ipairs(by_expiry(model)) do
    if grant.expiry <= model.now then revoke(model, grant.id) end
  end
end

--- Returns the code of the error of a grant, or nil.
local function refuse(model, id, ttl)
  if ttl > MAX_TTL then return "lease_ttl_too_large" end
  if model.grants[id] then return "lease_exists" end
end

local function grant(model, id, ttl)
  ttl = math.max(ttl, model.min_lease_ttl)
  model.grants[id] = { id = id, ttl = ttl, expiry = model.now + ttl }
  return new(model, id, ttl)
end

function methods:find()
  local found = self.model.grants[self.id]
  if found then return found end
  return nil, failure.new "lease_not_found"
end

function methods:keepalive()
  local found, err = self:find()
  if not found then return nil, err end
  found.expiry = self.model.now + found.ttl
  return found.ttl
end

function methods:remaining()
  local found, err = self:find()
  if not found then return nil, err end
  return math.floor(found.expiry - self.model.now)
end

function methods:keys()
  local found, err = self:find()
  if not found then return nil, err end
  return keys_of(self.model, self.id)
end

function methods:revoke()
  if self.model.armed.corrupt then return nil, failure.new "corrupt" end
  local found, err = self:find()
  if not found then return nil, err end
  return { revision = revoke(self.model, self.id) }
end

return { new = new, by_expiry = by_expiry, expire = expire, refuse = refuse, grant = grant }
