--- The resident memory of this process, in bytes.

local proc = require "spec.support.proc"

local resident = {}

--- The memory now, and the peak since reset_peak.
function resident.now() return proc.resident("self") end
function resident.peak() return proc.peak("self") end
function resident.reset_peak() proc.reset_peak("self") end

--- False under sanitizers and valgrind, which use memory of their own.
local how = require("spec.support.vm").how
resident.is_reliable = how == "rock" or how == "once"

--- Returns the KiB of Lua's heap, without garbage.
function resident.heap()
  collectgarbage()
  return collectgarbage("count")
end

local DOSES = 3 -- after a first one
local KIB, MIB = 1024, 1024 * 1024

--- Returns the memory of the process and of Lua's heap, in bytes, after collecting garbage.
local function collected()
  collectgarbage()
  collectgarbage()
  return resident.now(), collectgarbage("count") * KIB
end

--- Runs dose() several times; `name` says what it makes n of. A leak grows with every dose, so the dose with the
-- smallest growth counts: other doses may have grown to a new peak. That growth, times the doses, must be at most
-- `flat` bytes, and `flat_heap` bytes of Lua's heap, if given. `measure` measures another process than this one.
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
