--- Runs shell commands, for the specs about the tree and its tools.

local shell = {}

-- What a developer's shell has and the run has set must not reach a command that stands for a user's.
local clean = "unset LUA_PATH LUA_CPATH LUAROCKS_CONFIG MAKEFLAGS MFLAGS MAKELEVEL\n"

local function quote(text) return "'" .. text:gsub("'", "'\\''") .. "'" end

--- Runs a script up to its first failing command, without what is preloaded. Returns whether all went well, and what it
-- printed.
function shell.run(script)
  script = "(" .. clean .. "set -e\n" .. script .. "\n) 2>&1; echo status $?"
  local pipe = assert(io.popen("exec env -u LD_PRELOAD sh -c " .. quote(script)))
  local output = pipe:read("*a")
  pipe:close()
  local printed, status = output:match("^(.*)status (%d+)\n$")
  return status == "0", printed
end

--- The same, where failure is not expected. Returns what it printed, without the last newline.
function shell.must(script)
  local ok, printed = shell.run(script)
  if not ok then error(script .. "\n" .. printed, 2) end
  return (printed:gsub("\n$", ""))
end

return shell
