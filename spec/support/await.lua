--- await(fn, what): turns the loop until fn returns a true value, and returns the value.

local keywatch = require "keywatch"

local PATIENCE = 120     -- seconds
local LONGEST = 0.05     -- seconds between two calls; the first pauses are shorter

return function(fn, what)
  local deadline, pause = keywatch.now() + PATIENCE, 0.001
  while true do
    local found = fn()
    if found then return found end
    if keywatch.now() > deadline then error("this does not happen: " .. (what or debug.traceback()), 2) end
    keywatch.sleep(pause)
    pause = math.min(2 * pause, LONGEST)
  end
end
