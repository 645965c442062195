-- SPDX-License-Identifier: MIT
--- expiry: leases of objects that expire, as events do. Objects that are written one after the other share a lease, so
-- that there are few; but not too many, since all keys of a lease are deleted at once. So an object lives for its time,
-- and at most a twentieth of that longer.

local driver = require "keywatch.task.driver"

local MAX_SLACK, SLACK = 60, 0.05 -- seconds, and a share of the time to live
local MAX_OBJECTS = 1000          -- of a lease

local expiry_methods = {}
local expiry_mt = { __index = expiry_methods }

--- Returns the id of a lease for an object that is written now; or nil and an error. May wait.
function expiry_methods:lease()
  local d = driver.get()
  if self.id and d.now() < self.until_ and self.n < MAX_OBJECTS then
    self.n = self.n + 1
    return self.id
  end
  local slack = math.min(MAX_SLACK, self.ttl * SLACK)
  local began = d.now()
  local lease, err = self.owner:lease(math.ceil(self.ttl + slack))
  if not lease then return nil, err end
  self.id, self.until_, self.n = lease.id, began + slack, 1
  return lease.id
end

--- Called if a lease no longer exists. The next object gets another one.
function expiry_methods:forget(id)
  if self.id == id then self.id = nil end
end

--- Returns the leases of objects that live for `ttl` seconds.
local function new(owner, ttl)
  return setmetatable({ owner = owner, ttl = ttl, id = nil, until_ = 0, n = 0 }, expiry_mt)
end

return { new = new }
