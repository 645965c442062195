--- Runs before the first spec file: what the environment asks of the whole run.
--
-- KW_PRELOAD is what is preloaded into Lua alone: a shell dies of ThreadSanitizer. See spec/support/vm.lua.
--
-- The pass tls has servers and clients speak TLS, see spec/support/secure.lua.
--
-- The pass gc collects as often as is bearable. A collection is a whole cycle in one go, from wherever memory is asked
-- for, so what Lua can no longer reach dies inside the very C function that forgot to hold it. At the start of a
-- test every allocation collects, later each growth of the heap by a few percent, and at its end there is one more.
-- Tests tagged #slow or #starved are spared that.
--
-- collectgarbage() is thorough: what it finalizes is collected, too. On LuaJIT a trace, or a slot of the stack that no
-- variable has any more, might hold what a test has forgotten.

local vm = require "spec.support.vm"

local EAGER = 100 -- instructions of each test

local function collect_every(percent)
  if jit then
    collectgarbage("setpause", 100 + percent)
    collectgarbage("setstepmul", 0) -- no limit on one step
  else
    collectgarbage("incremental", 100 + percent, 400, 63) -- 2^63 bytes in one step
  end
  collectgarbage() -- from here on
end

local function relax()
  debug.sethook()
  collect_every(15)
end

local SLOTS = 1000 -- more than a test's calls have used
local collect = collectgarbage
rawset(_G, "collectgarbage", function(what, ...)
  if what ~= nil and what ~= "collect" then return collect(what, ...) end
  if rawget(_G, "jit") then
    jit.flush()
    select("#", unpack({}, 1, SLOTS)) -- writes nil over what earlier calls have left above this one
  end
  collect()
  return collect() -- what the first one finalized
end)

if os.getenv("KW_PRELOAD") then require("spec.support.luv").os_unsetenv("LD_PRELOAD") end

require "spec.support.inner"

if vm.how == "tls" then require("spec.support.secure").begin() end

if vm.how == "gc" then
  local busted = require "busted"

  local function is_spared(element)
    if not element then return false end
    local name = element.name or ""
    return name:find("#slow", 1, true) or name:find("#starved", 1, true) or is_spared(busted.parent(element))
  end

  relax()
  busted.subscribe({ "test", "start" }, function(element)
    if is_spared(element) then
      collect_every(100)
      return nil, true
    end
    collect_every(0)
    debug.sethook(relax, "", EAGER)
    return nil, true
  end)
  busted.subscribe({ "test", "end" }, function()
    relax()
    collectgarbage()
    return nil, true
  end)
end
