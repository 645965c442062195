--- The resident memory of this process, in bytes.

local proc = require "spec.support.proc"

local resident = {}

--- Now, and the most since reset_peak.
function resident.now() return proc.resident("self") end
function resident.peak() return proc.peak("self") end
function resident.reset_peak() proc.reset_peak("self") end

--- Whether it says anything: sanitizers and valgrind have memory of their own.
local how = require("spec.support.vm").how
resident.is_reliable = how == "rock" or how == "once"

--- The KiB of Lua's heap, without garbage.
function resident.heap()
  collectgarbage()
  return collectgarbage("count")
end

local DOSES = 3 -- after one to warm up
local KIB, MIB = 1024, 1024 * 1024

--- The memory after all garbage is collected, and that of Lua.
local function collected()
  collectgarbage()
  collectgarbage()
  return resident.now(), collectgarbage("count") * KIB
end

--- Runs dose() several times, each of n of what `name` names. What is lost is lost with every dose, so the dose that
-- leaves the least is the one that counts: the others had more at once than any before. It must leave `flat` bytes at
-- most, over all doses, and `flat_heap` bytes of Lua's, if given. `measure`, unless given, measures this process.
function resident.expect_flat(name, n, dose, flat, flat_heap, measure)
  dose()
  local before, heap_before = (measure or collected)()
  local last, least, last_heap, least_heap = before, math.huge, heap_before, math.huge
  for _ = 1, DOSES do
    dose()
    local now, heap = (measure or collected)()
    least, last = math.min(least, now - last), now
    if flat_heap then least_heap, last_heap = math.min(least_heap, heap - last_heap), heap end
  end
  print(("  %d %s leave %.0f KiB beside %.1f MiB"):format(DOSES * n, name, (last - before) / KIB, before / MIB))
  if measure or resident.is_reliable then
    assert(DOSES * least <= flat, ("%.0f bytes are left by every dose"):format(least))
  end
  assert(not flat_heap or DOSES * least_heap <= flat_heap,
    ("%.0f bytes of Lua's are left by every dose"):format(least_heap))
end

return resident
