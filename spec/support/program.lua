--- Programs of their own: Lua text that runs on the VM of this run, with its modules, in a process apart.

local interpreter = os.getenv("KW_LUA") or (jit and "luajit" or "lua5.4")

local SECONDS = 60 -- after which a program is taken for one that never ends

local function quote(text)
  return "'" .. text:gsub("'", "'\\''") .. "'"
end

local function write(text)
  local path = os.tmpname()
  local file = assert(io.open(path, "w"))
  file:write(text)
  file:close()
  return path
end

--- Runs a program. Returns its exit status, and what it printed.
local function run(text, seconds)
  local path = write(text)
  local pipe = assert(io.popen(("LUA_PATH=%s LUA_CPATH=%s timeout --kill-after=5 %d %s %s 2>&1; echo status $?"):format(
    quote(package.path), quote(package.cpath), seconds or SECONDS, interpreter, path)))
  local output = pipe:read("*a")
  pipe:close()
  os.remove(path)
  local printed, status = output:match("^(.*)status (%d+)\n$")
  return tonumber(status), printed
end

return { run = run }
