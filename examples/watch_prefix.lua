-- SPDX-License-Identifier: MIT
--- Watching a prefix: a task keeps a table equal to the keys under "config/".
--
-- With `initial` a watch returns the keys that exist, then "synced", then every later change. No change is lost between
-- the two parts, and none comes twice.

local keywatch = require "keywatch"

local store = keywatch.open()
store:put("config/color", "blue")
store:put("config/size", "9")

local config = {}

--- Applies events to the table until the watch is closed. Runs as a task: other tasks run while it waits.
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
  local task = keywatch.spawn(follow, watch)
  keywatch.sleep(0) -- let the task begin

  store:put("config/color", "green")
  store:put("other/color", "red") -- not under the prefix
  store:txn { success = { { delete = "config/size" }, { put = "config/shape", value = "round" } } }

  -- Another task reads the watch, so sync waits until that task has received every change made so far.
  local revision = assert(watch:sync())
  print(("at revision %d it is %s and %s"):format(revision, config.color, config.shape))

  watch:close() -- ends the loop in the task
  task:join()
end)
