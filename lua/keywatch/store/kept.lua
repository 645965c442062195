-- SPDX-License-Identifier: MIT
--- kept: a lease that a keeper renews in the background, until the lease is lost or has no reference left.
--
-- A keeper has at most one kept lease for each lease id. All lease objects of that id share it: each has a reference.
-- The keeper references kept leases, but no lease objects. When the last reference is released, because its lease
-- object was collected or orphaned, the keeper drops the kept lease.
--
-- The keeper of a store is store/keeper.lua, and that of a client is client/keeper.lua. The owner's method
-- lease_keeper() returns it. A keeper has the field by_id, its kept leases, and these methods:
--
--   keep(id, since, ttl)   Returns the kept lease of an id. The keeper renews it from now on.
--                          `since` is the time from which the lease certainly lives `ttl` seconds; nil if not known.
--   find(id)               Returns the kept lease of an id, or nil if the keeper has none.
--   drop(kept)             Stops renewing a lease. Does nothing if that was done before.
--   lose(kept, why)        Drops a lease that is lost. `why` is the end of the error text.
--   check(kept)            Checks without waiting whether the lease is lost, as far as this process knows.
--   look()                 Polls once for events that only a wait would notice, for example bytes at a socket.

local compat = require "keywatch.support.compat"
local driver = require "keywatch.task.driver"
local errors = require "keywatch.support.errors"
local order = require "keywatch.support.order"

local RENEWALS = 3         -- in one TTL, if all are answered
local GRID_PARTS = 8       -- a renewal is early by at most the interval divided by this
local MAX_GRID = 0.25      -- seconds
local MAX_TTL = 9000000000 -- seconds: the maximum that servers grant

local last_number = 0 -- of kept leases and references, in the order of their creation

local kept_methods = {}
local kept_mt = { __index = kept_methods }

--- Returns the kept lease of an id, without a reference. The keeper may add fields.
local function new(keeper, id)
  last_number = last_number + 1
  return setmetatable({
    keeper = keeper,
    number = last_number,
    id = id,
    references = {},   -- as keys: the references that were not released
    err = nil,    -- why the lease is lost
    revoking = 0, -- calls of lease:revoke() that are running
  }, kept_mt)
end

-- {====== Time ======

--- Returns the seconds of a TTL that a server has reported; 0 if the lease does not exist.
local function seconds_of(ttl)
  ttl = tonumber(ttl) or 0
  return ttl > 0 and math.min(ttl, MAX_TTL) or 0
end

--- Returns the time between two renewals of a lease.
local function interval_of(ttl)
  return ttl / RENEWALS
end

--- Returns the next renewal of a lease that was renewed at `sent`. The time is rounded down to a grid, so that
-- many leases are renewed in one turn of the loop.
local function next_renewal(sent, ttl)
  local interval = interval_of(ttl)
  local grid = MAX_GRID
  while grid * GRID_PARTS > interval do grid = grid / 2 end
  local due = sent + interval
  return due - due % grid
end

-- }======

-- {====== Loss ======

--- Returns the error of a lease that is lost.
local function lost_error(id, why)
  local text = type(id) == "number" and ("%d"):format(id) or id
  return errors.new("lost", ("keywatch: the lease %s is lost: %s"):format(text, why))
end

--- Sets the error of a lost lease, and wakes the waiters. Called by the keeper, which has forgotten the lease.
function kept_methods:fail(why)
  local err = lost_error(self.id, self.revoking > 0 and "it was revoked" or why)
  if self.err then return end -- it was set before, or by a finalizer
  self.err = err
  for _, reference in ipairs(order.keys_by(self.references, "number")) do
    self.references[reference] = nil
    reference.ended:set()
  end
end

-- }======

-- {====== All leases of a keeper ======

--- Returns the kept leases of a keeper as a list.
local function list_all(keeper)
  return order.values_by(keeper.by_id, "number")
end

--- Makes all leases of a keeper lost.
local function lose_all(keeper, why)
  for _, kept in ipairs(list_all(keeper)) do keeper:lose(kept, why) end
end

-- }======

-- {====== References ======

--- Releases a reference, and wakes its waiters. Returns true if it was the last one of its kept lease.
local function release(reference)
  local kept = reference.kept
  if reference.is_released then return false end
  reference.is_released, kept.references[reference] = true, nil -- atomic
  reference.ended:set()
  return next(kept.references) == nil
end

--- Makes the keeper drop the lease, unless it has references or is lost.
function kept_methods:close()
  if next(self.references) == nil and not self.err then self.keeper:drop(self) end
end

--- Returns a new reference, and an object that releases the reference when it is collected. The event `ended` is set
-- when the lease is lost, or the reference is released. Fields of a reference: kept, ended, number, and is_released.
function kept_methods:refer(ended)
  last_number = last_number + 1
  local reference = { kept = self, number = last_number, ended = ended, is_released = false }
  local sentinel = compat.sentinel(function()
    if release(reference) then driver.forget(self) end -- the next turn of the loop calls `close`
  end)
  if not self.err then self.references[reference] = true end
  return reference, sentinel
end

-- }======

return {
  new = new, release = release, list_all = list_all, lose_all = lose_all,
  seconds_of = seconds_of, interval_of = interval_of, next_renewal = next_renewal,
}
