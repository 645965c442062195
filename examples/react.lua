-- SPDX-License-Identifier: MIT
--- A controller in ten lines: whatever happens to a key below /lamps/, `reconcile` is called with the key, and looks at
-- how the lamp is to be now.

local keywatch = require "keywatch"
local controller = require "keywatch.controller"

local store = keywatch.open() -- or keywatch.connect("http://127.0.0.1:2379")

keywatch.run(function()
  local lamps = store:informer("/lamps/")
  local switch = controller.new {
    name = "switch",
    sources = { lamps },
    reconcile = function(key) print(("%-14s %s"):format(key, lamps:get(key) or "is gone")) end,
  }
  store:put("/lamps/kitchen", "off") -- what is there before the controller starts is no different
  switch:start()

  store:put("/lamps/hall", "on")
  keywatch.sleep(0.05)
  store:put("/lamps/kitchen", "on")
  store:put("/lamps/kitchen", "off") -- two changes at once: one call, which sees the newest state
  store:delete("/lamps/hall")
  keywatch.sleep(0.05)
  switch:stop()
  lamps:close()
end)
