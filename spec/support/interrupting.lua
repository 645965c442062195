--- Simulates finalizers without a garbage collector: calls a function at a chosen call inside keywatch.
--
-- A finalizer may run at any call. If the program is deterministic, the n-th call in chosen files of keywatch is
-- always the same, so every call can be tried in turn.

local unpack = rawget(table, "unpack") or rawget(_G, "unpack")

local interrupting = {}

--- Calls fn(...) at top level, and `act` at the n-th call of a function in the chosen files (patterns for their
-- names, below lua/keywatch). Returns true if there were that many calls, and then the results of fn.
function interrupting.at(n, files, act, fn, ...)
  local left, is_acting = n, false
  local chosen = {} -- by source: true if its file is a chosen one

  local function is_chosen(source)
    for _, file in ipairs(files) do
      if source:find("/keywatch/" .. file .. "%.lua$") then return true end
    end
    return false
  end

  local function hook()
    local info = not is_acting and debug.getinfo(3, "S") -- who calls
    if not info then return end
    if chosen[info.source] == nil then chosen[info.source] = is_chosen(info.source) end
    if not chosen[info.source] then return end
    left = left - 1
    if left ~= 0 then return end
    is_acting = true
    act()
    is_acting = false
  end

  if jit then jit.off() end
  debug.sethook(hook, "c")
  local results = { pcall(fn, ...) }
  debug.sethook()
  if jit then jit.on() end
  if not results[1] then error(results[2], 0) end
  return left <= 0, unpack(results, 2)
end

--- Calls `act` once, at the n-th function call of a thread from now on. On LuaJIT a hook is for all threads.
function interrupting.at_call(thread, n, act)
  debug.sethook(thread, function()
    n = n - 1
    if n > 0 then return end
    debug.sethook(thread)
    act()
  end, "c")
end

return interrupting
