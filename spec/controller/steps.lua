--- steps: counts the instructions of a VM, so that a spec can compare costs without a clock.

local EACH = 100 -- instructions

local jit = rawget(_G, "jit")

--- Calls fn(...) in this coroutine. Returns how many hundreds of instructions that has taken.
local function of(fn, ...)
  local count = 0
  if jit then -- code that was compiled has no hooks
    jit.off()
    jit.flush()
  end
  debug.sethook(function() count = count + 1 end, "", EACH)
  local ok, err = pcall(fn, ...)
  debug.sethook()
  if jit then jit.on() end
  if not ok then error(err, 0) end
  return count
end

return { of = of }
