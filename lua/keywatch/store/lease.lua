-- SPDX-License-Identifier: MIT
--- lease: a lease object; keys that are bound to the lease are deleted at its end.
--
-- The owner is a store, a client, or another object with their methods: lease_grant, lease_revoke, lease_keepalive,
-- lease_time_to_live, and lease_keeper, which returns the keeper of the store or client below (see kept.lua). Several
-- objects may represent the same lease.

local check = require "keywatch.support.check"
local core = require "keywatch.core"
local driver = require "keywatch.task.driver"
local errors = require "keywatch.support.errors"
local kept_leases = require "keywatch.store.kept"

local lease_methods, lease_mt = check.class "keywatch.lease"

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
    since = nil,    -- a time from which it certainly lives for `ttl`; nil if not known
    reference = nil,     -- to the kept lease, see kept.lua; nil if the lease was never kept
    sentinel = nil, -- releases the reference when it is collected
    ended = nil,    -- driver event: set when the lease is lost, or orphaned
  }, lease_mt)
end

--- Grants a lease of at least `ttl` seconds. Returns it, or nil and an error.
local function grant(owner, ttl, opts)
  check.self(owner, "lease")
  check.argument(type(ttl) == "number" and ttl % 1 == 0, 1, "lease", "a whole number of seconds", ttl)
  local lease = new(owner, false, false) -- before the grant, since nothing may fail after it
  lease.since = type(owner) ~= "userdata" and driver.get().now() or nil -- a store reports the end of its leases itself
  local granted, err = check.call("lease", owner.lease_grant, owner, ttl, opts)
  if not granted then return nil, err end
  lease.id, lease.ttl = granted.id, granted.ttl
  return lease
end

--- Returns the lease of an id. Its methods fail if there is no such lease.
local function by_id(owner, id)
  check.self(owner, "lease_by_id")
  local canonical = core.id(id)
  if not canonical and type(id) == "number" then
    check.misuse("bad argument #1 to 'lease_by_id' (a whole number or decimal string expected, not %s)",
      check.shown_id(id))
  end
  check.argument(canonical, 1, "lease_by_id", "a whole number or decimal string", id)
  return new(owner, canonical, nil)
end

--- Returns the kept lease of a lease object; or nil if the lease is not kept.
local function kept_of(lease)
  local reference = lease.reference
  return reference and not reference.is_released and reference.kept or nil
end

--- Called when a lease does not exist: if it is kept, it is lost.
local function note_gone(lease)
  local kept = kept_of(lease)
  if kept then kept.keeper:lose(kept, "it has expired, or was revoked") end
end

--- Renews the lease. Returns its time to live in seconds, or nil and an error.
function lease_methods:keepalive(opts)
  local ttl, err = check.call("keepalive", self.owner.lease_keepalive, self.owner, self.id, opts)
  if ttl then return ttl end
  if err.code == "lease_not_found" then note_gone(self) end
  return nil, err
end

--- Requests the remaining time, and the keys, from the owner. Returns a table, or nil and an error.
local function time_to_live(lease, times, has_keys)
  local options = { keys = has_keys, timeout = times.timeout, deadline = times.deadline }
  return check.call("lease", lease.owner.lease_time_to_live, lease.owner, lease.id, options)
end

--- Returns the remaining whole seconds, or nil and an error.
function lease_methods:remaining(opts)
  local info, err = time_to_live(self, check.times(opts, "remaining"), false)
  if not info then return nil, err end
  return info.ttl
end

--- Returns the keys that are bound to the lease, in order; or nil and an error.
function lease_methods:keys(opts)
  local info, err = time_to_live(self, check.times(opts, "keys"), true)
  if not info then return nil, err end
  return info.keys
end

-- {====== Keeping ======

--- Begins to renew the lease in the background. Does not wait. Does nothing if the lease is kept, or is lost. Returns
-- the lease.
function lease_methods:keep()
  if kept_of(self) then return self end
  local owner = self.owner
  self.ended = self.ended or driver.get().event()
  local keeper = check.call("keep", owner.lease_keeper, owner)
  local kept, reference, sentinel
  repeat
    kept = check.call("keep", keeper.keep, keeper, self.id, self.since, self.ttl)
    reference, sentinel = kept:refer(self.ended)
  until kept.err or keeper:find(self.id) == kept -- else a finalizer has released the last reference
  self.reference, self.sentinel = reference, sentinel
  return self
end

--- Returns the results of a wait for the loss of the lease: true, and the error of the loss; or true, nil, and an error
-- if the lease was orphaned; or false if the lease is still kept.
local function outcome(lease)
  local reference = lease.reference
  local kept = reference.kept
  if reference.is_released then
    return true, nil, errors.new("closed", "keywatch: the lease is no longer kept: lease:orphan() was called")
  end
  if not kept.err then kept.keeper:check(kept) end
  if kept.err then return true, kept.err end
  return false
end

--- Raises if the lease was never kept: its loss would not be noticed.
local function check_kept(lease, name)
  if lease.reference then return end
  check.misuse("%s: the lease is not kept, and its loss is not noticed: call lease:keep() first", name)
end

--- Waits until the lease is lost. Returns the error, of the code "lost". Or returns nil and an error: of the code
-- "timeout", or of the code "closed" if lease:orphan() was called.
function lease_methods:wait_lost(timeout)
  check.timeout(timeout, "wait_lost")
  check_kept(self, "wait_lost")
  local d = driver.get()
  local deadline = timeout and d.now() + timeout
  if timeout and timeout <= 0 and kept_of(self) then self.reference.kept.keeper:look() end
  while true do
    local has_ended, lost, err = outcome(self)
    if lost then return lost end
    if has_ended then return nil, err end
    if not self.ended:wait(deadline and deadline - d.now()) then return nil, core.new_error("timeout") end
  end
end

--- Returns the error of a kept lease that is lost, or nil. Does not wait.
local function failure(lease)
  local kept = kept_of(lease)
  if not kept then return nil end
  if not kept.err then kept.keeper:check(kept) end
  return kept.err
end

--- Returns the error of a kept lease that is lost, or nil. Does not wait.
function lease_methods:error()
  return failure(self)
end

--- Stops renewing the lease. The lease expires, unless another object keeps it.
function lease_methods:orphan()
  local kept = kept_of(self)
  if kept and not kept.err and kept_leases.release(self.reference) then kept:close() end
end

lease_mt.__select = { -- see task/selection.lua
  is_ready = function(lease)
    check_kept(lease, "select")
    return (outcome(lease))
  end,
  begin = function(lease) return lease.ended end,
  finish = function() end,
  take = function(lease)
    local _, lost, err = outcome(lease)
    if lost then return lost end
    return nil, err
  end,
  look = function(lease)
    local kept = kept_of(lease)
    if kept then kept.keeper:look() end
  end,
}

-- }======

-- {====== Revoking ======

--- Returns the kept lease to which a revocation is reported, or nil. Another object may have kept it; except in a
-- store, which reports the end of its leases itself.
local function find_kept(lease)
  local kept, owner = kept_of(lease), lease.owner
  if kept or type(owner) == "userdata" then return kept end
  return check.call("revoke", owner.lease_keeper, owner):find(lease.id)
end

--- Takes the results of lease_revoke. A lease that has ended is no longer kept; after a failed revocation it is
-- still kept.
local function finish_revoke(kept, ok, revoked, err)
  if kept then
    local has_ended = ok and (revoked or err.code == "lease_not_found")
    if has_ended then kept.keeper:lose(kept, "it was revoked") end
    kept.revoking = kept.revoking - 1
  end
  if not ok then error(revoked, 0) end
  if not revoked then return nil, err end
  return revoked
end

--- Ends the lease and deletes its keys, in one revision. If that fails, a kept lease is still kept, unless it does not
-- exist.
function lease_methods:revoke(opts)
  local kept = find_kept(self)
  if kept then kept.revoking = kept.revoking + 1 end
  local owner = self.owner
  return check.results(finish_revoke(kept, pcall(driver.finish, check.call, "revoke", owner.lease_revoke, owner,
    self.id, opts)))
end

-- }======

return {
  grant = grant, by_id = by_id, failure = failure, note_gone = note_gone, methods = lease_methods, mt = lease_mt,
}
