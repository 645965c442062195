-- SPDX-License-Identifier: MIT
--- Presence with leases: each service puts a key with a lease, and the key disappears when the service stops renewing.
--
-- A program with its own event loop asks store:deadline() when to wake up, and then calls store:step(now). This program
-- has a manual clock, so it need not wait for the time to pass.

local keywatch = require "keywatch"

local store = keywatch.open { now = 0 }

--- Puts the address of a service with a new lease. Returns the lease.
local function announce(name, address, ttl)
  local lease = assert(store:lease(ttl))
  assert(store:put("services/" .. name, address, { lease = lease }))
  return lease
end

--- Returns the names of the services that are present, as one string.
local function names()
  local list = {}
  for kv in store:each("services/", { prefix = true }) do table.insert(list, kv.key:match("[^/]+$")) end
  return #list > 0 and table.concat(list, ", ") or "nobody"
end

local web = announce("web", "10.0.0.1:80", 10)
announce("worker", "10.0.0.2:9000", 15)
announce("cron", "10.0.0.3:9000", 15)
print(("%2d s: %s, at revision %d"):format(0, names(), store:status().revision))

-- web renews its lease after 8 s. The other services never renew theirs.
store:step(8)
web:keepalive()
print(("%2d s: web renewed, %d s left"):format(8, web:remaining()))

while store:deadline() do
  local now = store:deadline()
  while store:step(now) do end -- a step does a bounded part: repeat while more is due
  print(("%2.0f s: %s, at revision %d"):format(now, names(), store:status().revision))
end

local _, err = web:keepalive()
print("web is gone: " .. tostring(err))
