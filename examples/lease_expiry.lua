-- SPDX-License-Identifier: MIT
--- A watcher sees leases expire: a service that stops renewing its lease is reported as gone.
--
-- While a task waits, the loop expires leases on time. The program runs for two seconds.

local keywatch = require "keywatch"

local store = keywatch.open { min_lease_ttl = 1 } -- seconds; the default is 2

--- A service: announces itself, renews its lease `renewals` times, and then stops without revoking the lease.
local function serve(name, address, renewals)
  local lease = assert(store:lease(1))
  store:put("services/" .. name, address, { lease = lease })
  for _ = 1, renewals do
    keywatch.sleep(0.4)
    if not lease:keepalive() then return end -- too late: the lease has expired
  end
end

keywatch.run(function()
  local watch = store:watch("services/", { prefix = true, prev_kv = true })
  keywatch.spawn(serve, "web", "10.0.0.1:80", 0)
  keywatch.spawn(serve, "db", "10.0.0.2:5432", 2)

  local alive = 0
  for event in watch:events() do
    local name = event.key:match("[^/]+$")
    if event.type == "put" then
      alive = alive + 1
      print(("%-4s is up at %s"):format(name, event.value))
    else
      alive = alive - 1
      print(("%-4s is gone; it was at %s"):format(name, event.prev.value)) -- prev is there because of prev_kv
    end
    if alive == 0 then break end
  end
end)
print("no service is left")
