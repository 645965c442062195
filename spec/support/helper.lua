--- Runs before the first spec file: applies the environment variables to the whole run.
--
-- KW_PRELOAD is preloaded only into Lua, since a shell would crash under ThreadSanitizer. See spec/support/vm.lua.
--
-- In the pass tls servers and clients use TLS, see spec/support/secure.lua.
--
-- The pass gc collects garbage as often as possible. A collection is a whole cycle at once, at any allocation, so an
-- unreachable object is freed inside the very C function that failed to hold it. At the start of a test every
-- allocation collects, later each growth of the heap by a few percent, and there is one more collection at the end.
-- Tests tagged #slow or #starved are excluded.
--
-- collectgarbage() is replaced by a thorough version, which also collects what it finalizes. On LuaJIT a trace, or an
-- unused slot of the stack, might keep objects alive that a test no longer uses.

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
  return collect() -- objects that the first collection has finalized
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
