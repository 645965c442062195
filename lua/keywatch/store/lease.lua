-- SPDX-License-Identifier: MIT
--- lease: a time to live that keys can be bound to, as an object.
--
-- The owner is a store or a client, with the methods lease_grant, lease_revoke, lease_keepalive and
-- lease_time_to_live. A lease object holds only its id, so several objects may stand for the same lease.

local check = require "keywatch.support.check"
local core = require "keywatch.core"

local lease_methods = {}
local lease_mt = { __name = "keywatch.lease", __index = lease_methods }

--- Returns the id and the time to live.
function lease_mt:__tostring()
  local id = type(self.id) == "number" and ("%d"):format(self.id) or self.id
  return ("keywatch.lease<id=%s ttl=%s>"):format(id, self.ttl and tostring(self.ttl) or "?")
end

--- Returns a lease object.
local function new(owner, id, ttl)
  return setmetatable({
    owner = owner,
    id = id,
    ttl = ttl, -- in seconds, as granted; nil for a lease by its id
    prefix = nil, -- of a namespace: the keys that the lease shows
  }, lease_mt)
end

--- Grants a lease of at least `ttl` seconds. Returns it, or nil and an error.
local function grant(owner, ttl, opts)
  check.self(owner, "lease")
  check.argument(type(ttl) == "number" and ttl % 1 == 0, 1, "lease", "a whole number of seconds", ttl)
  local lease = new(owner, false, false) -- before the grant: nothing may fail after it
  local granted, err = check.call("lease", owner.lease_grant, owner, ttl, opts)
  if not granted then return nil, err end
  lease.id, lease.ttl = granted.id, granted.ttl
  return lease
end

--- Returns the lease of an id. Its methods fail if there is no such lease.
local function by_id(owner, id)
  check.self(owner, "lease_by_id")
  local canonical = core.id(id)
  check.argument(canonical, 1, "lease_by_id", "a whole number or decimal string", id)
  return new(owner, canonical, nil)
end

--- Renews the lease. Returns its time to live in seconds, or nil and an error.
function lease_methods:keepalive(opts)
  check.self(self, "keepalive", lease_mt)
  local ttl, err = check.call("keepalive", self.owner.lease_keepalive, self.owner, self.id, opts)
  if not ttl then return nil, err end
  return ttl
end

--- Asks the owner for the time that is left, and for the keys. Returns a table, or nil and an error.
local function time_to_live(lease, times, has_keys)
  local options = { keys = has_keys, timeout = times.timeout, deadline = times.deadline }
  return check.call("lease", lease.owner.lease_time_to_live, lease.owner, lease.id, options)
end

--- Returns the whole seconds that are left, or nil and an error.
function lease_methods:remaining(opts)
  check.self(self, "remaining", lease_mt)
  local info, err = time_to_live(self, check.times(opts, "remaining"), false)
  if not info then return nil, err end
  return info.ttl
end

--- Returns the keys that begin with a prefix and are longer, without the prefix.
local function keys_inside(prefix, keys)
  local found, n = {}, #prefix
  for _, key in ipairs(keys) do
    if #key > n and key:sub(1, n) == prefix then found[#found + 1] = key:sub(n + 1) end
  end
  return found
end

--- Returns the keys that are bound to the lease, in order; or nil and an error.
function lease_methods:keys(opts)
  check.self(self, "keys", lease_mt)
  local info, err = time_to_live(self, check.times(opts, "keys"), true)
  if not info then return nil, err end
  return self.prefix and keys_inside(self.prefix, info.keys) or info.keys
end

--- Ends the lease and deletes its keys, in one revision.
function lease_methods:revoke(opts)
  check.self(self, "revoke", lease_mt)
  local revoked, err = check.call("revoke", self.owner.lease_revoke, self.owner, self.id, opts)
  if not revoked then return nil, err end
  return revoked
end

--- Has a lease show only the keys in a namespace, as the namespace names them. Returns the lease.
local function confine(lease, prefix)
  lease.prefix = (lease.prefix or "") .. prefix
  return lease
end

return { confine = confine, grant = grant, by_id = by_id, methods = lease_methods, mt = lease_mt }
