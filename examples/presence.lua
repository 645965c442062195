-- SPDX-License-Identifier: MIT
--- Who is here? Each service holds a lease, and what it announces is gone when it stops renewing.
--
-- A program of its own loop asks deadline() when to wake up, and calls step(now) then. This one has a manual
-- clock, so that a minute passes at once.

local keywatch = require "keywatch"

local store = keywatch.open { now = 0 }

local function announce(name, address, ttl)
  local lease = assert(store:lease(ttl))
  assert(store:put("services/" .. name, address, { lease = lease }))
  return lease
end

local function names()
  local list = {}
  for kv in store:each("services/", { prefix = true }) do table.insert(list, kv.key:match("[^/]+$")) end
  return #list > 0 and table.concat(list, ", ") or "nobody"
end

local web = announce("web", "10.0.0.1:80", 10)
announce("worker", "10.0.0.2:9000", 15)
announce("cron", "10.0.0.3:9000", 15)
print(("%2d s: %s, at revision %d"):format(0, names(), store:status().revision))

-- web renews at 8 s; the others never do.
store:step(8)
web:keepalive()
print(("%2d s: web renewed, %d s left"):format(8, web:remaining()))

while store:deadline() do
  local now = store:deadline()
  while store:step(now) do end -- each step is bounded: go on while more is due
  print(("%2.0f s: %s, at revision %d"):format(now, names(), store:status().revision))
end

local _, err = web:keepalive()
print("web is gone: " .. tostring(err))
