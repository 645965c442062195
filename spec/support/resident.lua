--- The memory of this process, as the kernel counts it, in bytes.

local function size_of(name)
  local file = assert(io.open("/proc/self/status"))
  local text = file:read("*a")
  file:close()
  return tonumber(text:match(name .. ":%s*(%d+) kB")) * 1024
end

local resident = {}

--- Now, and the most since reset_peak.
function resident.now() return size_of("VmRSS") end
function resident.peak() return size_of("VmHWM") end

function resident.reset_peak()
  local file = assert(io.open("/proc/self/clear_refs", "w"))
  file:write("5")
  file:close()
end

--- Whether it says anything: sanitizers and valgrind have memory of their own.
local how = require("spec.support.vm").how
resident.is_telling = how == "rock" or how == "once"

return resident
