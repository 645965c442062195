--- The program `keywatch`, as a process on the VM of this run. Each has a directory of its own to run in, since a
-- server keeps its data there unless it is told otherwise: directory.remove_all() is for the end of a test.

local directory = require "spec.support.directory"
local luv = require "spec.support.luv"
local process = require "spec.support.process"

local interpreter = os.getenv("KW_LUA") or (jit and "luajit" or "lua5.4")

--- Starts it with variables of the environment, and these arguments; the process, and its directory. Leaks are not
-- looked for: a process that is killed leaves all behind.
local function start_in(variables, ...)
  local env = {
    LUA_PATH = package.path,
    LUA_CPATH = package.cpath,
    LD_PRELOAD = os.getenv("LD_PRELOAD") or "",
    ASAN_OPTIONS = (os.getenv("ASAN_OPTIONS") or "") .. ":detect_leaks=0",
  }
  for name, value in pairs(variables) do env[name] = value end
  local cwd = directory.new()
  return process.start({ interpreter, luv.cwd() .. "/bin/keywatch", ... }, { env = env, cwd = cwd }), cwd
end

local function start(...)
  return start_in({}, ...)
end

--- Waits until a server serves; the URLs that it serves on.
local function wait_until_ready(server)
  local urls = {}
  local list = server:expect_error("ready to serve client requests on ([^\n]*)\n")
  for url in list:gmatch("[^, ]+") do urls[#urls + 1] = url end
  return urls
end

return { start = start, start_in = start_in, wait_until_ready = wait_until_ready }
