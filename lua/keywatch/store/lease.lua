-- SPDX-License-Identifier: MIT
--- lease: a time to live that keys can be bound to, as an object of a store.
--
-- The owner has lease_grant, lease_revoke, lease_keepalive and lease_time_to_live; a lease only knows
-- its id, so that any number of objects may stand for the same lease.

local check = require "keywatch.support.check"
local core = require "keywatch.core"

local lease_methods = {}
local lease_mt = { __name = "keywatch.lease", __index = lease_methods }

function lease_mt:__tostring()
  local id = type(self.id) == "number" and ("%d"):format(self.id) or self.id
  return ("keywatch.lease<id=%s ttl=%s>"):format(id, self.ttl and tostring(self.ttl) or "?")
end

local function new(owner, id, ttl)
  return setmetatable({
    owner = owner,
    id = id,
    ttl = ttl, -- as granted, in seconds; nil where it is not known
  }, lease_mt)
end

--- Grants a lease of at least `ttl` seconds.
local function grant(owner, ttl, opts)
  check.self(owner, "lease")
  check.argument(type(ttl) == "number" and ttl % 1 == 0, 1, "lease", "a whole number of seconds", ttl)
  local lease = new(owner, false, false) -- before the grant: afterwards nothing may fail
  local granted, err = check.call("lease", owner.lease_grant, owner, ttl, opts)
  if not granted then return nil, err end
  lease.id, lease.ttl = granted.id, granted.ttl
  return lease
end

--- The lease of an id. Whether it exists shows when it is used.
local function by_id(owner, id)
  check.self(owner, "lease_by_id")
  local canonical = core.id(id)
  check.argument(canonical, 1, "lease_by_id", "a whole number or decimal string", id)
  return new(owner, canonical, nil)
end

--- Gives the lease its whole time again; returns that time in seconds.
function lease_methods:keepalive(opts)
  check.self(self, "keepalive", lease_mt)
  return check.call("keepalive", self.owner.lease_keepalive, self.owner, self.id, opts)
end

local function time_to_live(lease, times, has_keys)
  local asked = { keys = has_keys, timeout = times.timeout, deadline = times.deadline }
  return check.call("lease", lease.owner.lease_time_to_live, lease.owner, lease.id, asked)
end

--- The whole seconds that remain.
function lease_methods:remaining(opts)
  check.self(self, "remaining", lease_mt)
  local info, err = time_to_live(self, check.times(opts, "remaining"), false)
  if not info then return nil, err end
  return info.ttl
end

--- The keys that are bound to the lease, in order.
function lease_methods:keys(opts)
  check.self(self, "keys", lease_mt)
  local info, err = time_to_live(self, check.times(opts, "keys"), true)
  if not info then return nil, err end
  return info.keys
end

--- Ends the lease and deletes its keys, in one revision.
function lease_methods:revoke(opts)
  check.self(self, "revoke", lease_mt)
  return check.call("revoke", self.owner.lease_revoke, self.owner, self.id, opts)
end

return { grant = grant, by_id = by_id, methods = lease_methods, mt = lease_mt }
