--- The VM of this run, for other processes.

local vm = {
  interpreter = jit and "luajit" or "lua5.4",
  how = (os.getenv("KW_PASS") or "rock"):match("^%l+"), -- the pass, see spec/run
  is_sanitized = (os.getenv("LD_PRELOAD") or ""):find("libasan", 1, true) ~= nil, -- by AddressSanitizer
}

--- Returns the additions to such a process's environment: the modules of this run, its sanitizers, and `more`. The
-- check for leaks is off: a killed process frees nothing. `preload`, if given, is preloaded after the sanitizers.
function vm.environment(more, preload)
  local own = os.getenv("LD_PRELOAD") or os.getenv("KW_PRELOAD")
  local env = {
    LUA_PATH = package.path,
    LUA_CPATH = package.cpath,
    LD_PRELOAD = own and preload and own .. ":" .. preload or preload or own or "",
    ASAN_OPTIONS = (os.getenv("ASAN_OPTIONS") or "") .. ":detect_leaks=0",
  }
  for name, value in pairs(more or {}) do env[name] = value end
  return env
end

return vm
