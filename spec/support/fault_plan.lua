--- The plan of a failing disk, see spec/support/fault.c: for specs, and for programs with such a disk. `control` is the
-- path of the control file.

local fault_plan = {}

--- Plans for the N-th call, with %d for N, by the description of the disk.
fault_plan.FAILURES = {
  ["has no room"] = "fail any %d once 28",
  ["has no room from then on"] = "fail any %d on 28",
  ["has no room for its owner"] = "fail any %d once 122",
  ["is broken"] = "fail any %d once 5",
  ["is broken from then on"] = "fail any %d on 5",
  ["writes half"] = "short write %d once",
  ["writes halves from then on"] = "short write %d on",
}

--- Sets the plan, from the next call on.
function fault_plan.set(control, line)
  local file = assert(io.open(control .. ".next", "w"))
  file:write(line, "\n")
  file:close()
  assert(os.rename(control .. ".next", control))
end

--- Returns true if the plan has struck since the last time.
function fault_plan.has_struck(control) return os.remove(control .. ".struck") ~= nil end

--- Returns the last strike: `path`, the file of the call; `at`, the offset of the write, or -1; `part`, the operation
-- of the call; and `reused`, see fault.c. Nil if the plan has not struck since take_strike or has_struck.
function fault_plan.look_at_strike(control)
  local file = io.open(control .. ".struck")
  if not file then return nil end
  local path, at, part, reused = file:read("*a"):match("^(.*) (%-?%d+) (%a+) (%d+)\n$")
  file:close()
  return { path = path, at = tonumber(at), part = part, reused = tonumber(reused) }
end

--- Returns the same, and forgets the strike.
function fault_plan.take_strike(control)
  local strike = fault_plan.look_at_strike(control)
  if strike then os.remove(control .. ".struck") end
  return strike
end

--- Calls try(line) for plans that strike at the first call, the second one, and so on, until try returns false because
-- the plan has not struck. In a small dose only every `stride`-th call is struck, from one on that depends on KW_SEED.
-- Prints "done N" at the end.
function fault_plan.strike_every(pattern, stride, try)
  local step = require("spec.support.dose").stride(stride, 1)
  local n = 1 + (tonumber(os.getenv("KW_SEED")) or 0) % step - step
  repeat
    n = n + step
    local line = pattern:format(n)
    local ok, struck = xpcall(try, function(err) return debug.traceback(tostring(err)) end, line)
    if not ok then error(line .. ": " .. struck, 0) end
  until not struck
  print("done " .. n)
end

return fault_plan
