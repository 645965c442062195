--- Runs before the first spec file: what the environment asks of the whole run.
--
-- KW_GC=1 collects as often as is bearable: a whole cycle, in one go and from wherever memory is asked for, each
-- time the heap has grown by a few percent, and after every test. What Lua can no longer reach dies at once.

if os.getenv("KW_GC") then
  if jit then
    collectgarbage("setpause", 101)
    collectgarbage("setstepmul", 0) -- no limit on one step
  else
    collectgarbage("incremental", 104, 400, 63) -- 2^63 bytes in one step
  end
  require("busted").subscribe({ "test", "end" }, function()
    collectgarbage()
    collectgarbage()
    return nil, true
  end)
end
