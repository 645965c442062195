-- SPDX-License-Identifier: MIT
--- keeper: renews the leases of a store in this process, see kept.lua. It is a poller, attached to the driver while it
-- has a lease.
--
-- The store reports the end of a lease by a tag, which the keeper has given to the lease. Renewals use the clock of the
-- driver, also in a store with a manual clock. The driver in virtual time moves both clocks, see
-- driver/virtual.lua.
--
-- The driver references the keeper, and the keeper references the store only weakly: a program that drops a store drops
-- its leases, too. Lease objects reference their store.

local core = require "keywatch.core"
local driver = require "keywatch.task.driver"
local kept_leases = require "keywatch.store.kept"
local poller = require "keywatch.store.poller"
local timers = require "keywatch.task.timers"

local RETRY = 0.1 -- seconds after a failed renewal

local EXPIRED, REVOKED, GONE = "it has expired", "it was revoked", "it has expired, or was revoked"
local CLOSED, INHERITED = "the store is closed", "the parent process keeps it"

local last_tag = 0 -- of all keepers: a store may report the end of a lease that an earlier keeper has tagged

local keeper_methods = {}
local keeper_mt = { __index = keeper_methods }
local weak_mt = { __mode = "v" }

--- Returns the keeper of a store. It has no leases.
local function new(store)
  return setmetatable({
    held = setmetatable({ store }, weak_mt), -- [1]: the store, until it is collected
    by_id = {},
    by_tag = {},
    due = timers.new(), -- timers of the next renewals
  }, keeper_mt)
end

local get_poller = poller.of_stores(new)

--- Returns the keeper of a store's leases. The keeper of a closed store is not a poller, and has no leases.
local function keeper_of(store)
  local ok, seconds = pcall(store.run_due, store) -- raises in the child after a fork
  if not ok then error(seconds, 0) end
  if seconds == false then return new(store) end
  return get_poller(store)
end

-- {====== Leases ======

--- Returns the kept lease of an id, or nil.
function keeper_methods:find(id)
  return self.by_id[id]
end

--- Forgets a kept lease. Returns false if that was done before.
local function forget(self, kept)
  if self.by_id[kept.id] ~= kept then return false end
  self.by_id[kept.id], self.by_tag[kept.tag] = nil, nil
  self.due:remove(kept.timer)
  poller.leave(self)
  return true
end

--- Stops renewing a lease. See kept.lua.
function keeper_methods:drop(kept)
  local store = self.held[1]
  if forget(self, kept) and store then pcall(store.tag_lease, store, kept.id, 0) end -- the store may be closed
end

--- Drops a lease that is lost. See kept.lua.
function keeper_methods:lose(kept, why)
  if forget(self, kept) then kept:fail(why) end
end

--- Takes the ends of leases that the store reports.
local function take_ends(self, store)
  for tag, has_expired in store.next_ended, store do
    local kept = self.by_tag[tag]
    if kept then self:lose(kept, has_expired and EXPIRED or REVOKED) end
  end
end

--- Renews a lease whose timer is due.
local function renew(self, store, kept, now)
  local is_taken, ttl = pcall(store.lease_keepalive, store, kept.id)
  if self.by_id[kept.id] ~= kept then return end -- by a finalizer
  if is_taken and not ttl then return self:lose(kept, GONE) end
  kept.timer = self.due:add(is_taken and kept_leases.next_renewal(now, ttl) or now + RETRY, kept)
end

--- Begins to keep a lease. It is renewed at once. See kept.lua.
function keeper_methods:keep(id)
  self:look()
  local kept = self.by_id[id]
  if kept then return kept end
  kept = kept_leases.new(self, id)
  local store = self.held[1]
  if self.count == nil or store:run_due() == false then
    kept:fail(CLOSED)
    return kept
  end
  local tag = last_tag + 1
  last_tag = tag
  local now = driver.get().now()
  local timer = self.due:add(now, kept)
  poller.enter(self, store)
  kept.tag, kept.timer, self.by_id[id], self.by_tag[tag] = tag, timer, kept, kept
  local is_tagged, err = pcall(store.tag_lease, store, id, tag) -- raises inside of another call of the store
  if not is_tagged then
    forget(self, kept)
    error(err, 0)
  end
  self.due:remove(timer)
  renew(self, store, kept, now)
  return kept
end

-- }======

-- {====== The poller ======

--- In the child after a fork: the leases of a store on a disk are lost, since they belong to the parent.
function keeper_methods:after_fork()
  local store = self.held[1]
  if store and store.set_bell then kept_leases.lose_all(self, INHERITED) end
  self.pid = core.pid()
end

--- Takes the ends of leases. Returns the results of store:run_due: false if the store is closed. Returns nil if the
-- store was collected, or no lease is kept.
function keeper_methods:look()
  if self.pid and self.pid ~= core.pid() then self:after_fork() end
  local store = self.held[1]
  if not store then
    kept_leases.lose_all(self, CLOSED)
    return nil
  elseif next(self.by_id) == nil then
    take_ends(self, store) -- of leases that are no longer kept
    return nil
  end
  local seconds, is_pending = store:run_due()
  if seconds == false then kept_leases.lose_all(self, CLOSED) else take_ends(self, store) end
  return seconds, is_pending
end

--- Does the due work of the store, takes the ends of leases, and renews those that are due.
function keeper_methods:poll()
  local seconds, is_pending = self:look()
  if not seconds then seconds = nil end
  local now, store = driver.get().now(), self.held[1]
  local kept = store and self.due:due(now)
  while kept do
    renew(self, store, kept, now)
    kept = self.due:due(now)
  end
  local due = self.due:next()
  if due and (not seconds or due - now < seconds) then seconds = math.max(0, due - now) end
  return seconds, is_pending
end

--- Checks whether a lease is lost. See kept.lua. Renews the leases that are due: the loop may not be turning.
function keeper_methods:check()
  self:poll()
end

-- }======

return { of = keeper_of }
