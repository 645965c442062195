-- SPDX-License-Identifier: MIT
--- Resuming from a revision: a reader that stops and comes back misses nothing and is told nothing twice.
--
-- All it has to remember is one number. watch.revision is how far it has come; the next watch starts one later.

local keywatch = require "keywatch"

local store = keywatch.open()
local reached -- a real program would keep it in a file

--- A watch from where the last one stopped; the first begins with what exists.
local function open()
  if not reached then return store:watch("orders/", { prefix = true, initial = true }) end
  return store:watch("orders/", { prefix = true, start_revision = reached + 1 })
end

--- Reads what there is, and stops. Returns what the watch failed with, if it did.
local function read(title)
  print(title)
  local watch = open()
  local event, err = watch:next(0) -- 0: do not wait
  while event do
    print(("  %-6s %s"):format(event.initial and "have" or event.type, event.key or "at " .. event.revision))
    reached = watch.revision
    event, err = watch:next(0)
  end
  watch:close()
  if err.code ~= "timeout" then return err end -- a timeout only says that there is no more now
end

store:put("orders/1", "apples")
store:put("orders/2", "pears")
read("The first reader:")

store:put("orders/3", "plums")
store:delete("orders/1")
read("The next one goes on where it stopped:")

-- While nobody reads, history may be compacted. Then the watch says so, rather than skip anything.
store:put("orders/4", "figs")
store:delete("orders/2")
store:compact(store:status().revision)

local err = read("After a compaction:")
print(("  %s: the oldest is %d, we have %d"):format(err.code, err.compact_revision, reached))
reached = nil
read("So it begins again, with what exists:")
