-- SPDX-License-Identifier: MIT
--- Watching a prefix: a table that follows what the store has under "config/".
--
-- With `initial` a watch begins with what exists, says "synced", and goes on with what happens. No change is lost
-- between the two, and none comes twice.

local keywatch = require "keywatch"

local store = keywatch.open()
store:put("config/color", "blue")
store:put("config/size", "9")

local config = {}

--- Runs as a task of its own. While it waits for the next event, other tasks go on.
local function follow(watch)
  for event in watch:events() do
    local name = event.key and event.key:match("[^/]+$")
    if event.type == "put" then
      config[name] = event.value
      print(("%-6s  %s = %s"):format(event.initial and "have" or "put", name, event.value))
    elseif event.type == "delete" then
      config[name] = nil
      print("delete  " .. name)
    elseif event.type == "synced" then
      print("synced  at revision " .. event.revision)
    end
  end
  print("the watch is closed")
end

keywatch.run(function()
  local watch = store:watch("config/", { prefix = true, initial = true })
  local follower = keywatch.spawn(follow, watch)
  keywatch.sleep(0) -- let it begin

  store:put("config/color", "green")
  store:put("other/color", "red") -- not under the prefix
  store:txn { success = { { delete = "config/size" }, { put = "config/shape", value = "round" } } }

  -- Another task reads the watch: sync returns when that task has been given everything up to now.
  local revision = assert(watch:sync())
  print(("at revision %d it is %s and %s"):format(revision, config.color, config.shape))

  watch:close() -- which ends the loop
  follower:join()
end)
