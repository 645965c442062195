-- SPDX-License-Identifier: MIT
--- Resuming from a revision: a reader that stops and continues later misses no event and gets none twice.
--
-- The reader remembers one number: watch.revision, the revision up to which it has read. The next watch starts at the
-- revision after it.

local keywatch = require "keywatch"

local store = keywatch.open()
local reached -- the revision; a real program would write it to a file

--- Opens a watch where the last one stopped. The first watch begins with the keys that exist.
local function open()
  if not reached then return store:watch("orders/", { prefix = true, initial = true }) end
  return store:watch("orders/", { prefix = true, start_revision = reached + 1 })
end

--- Reads all events that are there, and stops. Returns the error if the watch has failed.
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
  if err.code ~= "timeout" then return err end -- "timeout" is not a failure: there is no event now
end

store:put("orders/1", "apples")
store:put("orders/2", "pears")
read("The first reader:")

store:put("orders/3", "plums")
store:delete("orders/1")
read("The second reader resumes there:")

-- History may be compacted between two reads. The watch then fails, instead of skipping events.
store:put("orders/4", "figs")
store:delete("orders/2")
store:compact(store:status().revision)

local err = read("After a compaction:")
print(("  %s: the oldest is %d, we have %d"):format(err.code, err.compact_revision, reached))
reached = nil
read("So it begins again, with what exists:")
