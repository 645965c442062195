--- Runs shell commands, for the specs about the tree and its tools.

local shell = {}

-- Variables of a developer's shell, and of the run, that a user's command would not have.
local clean = "unset LUA_PATH LUA_CPATH LUAROCKS_CONFIG MAKEFLAGS MFLAGS MAKELEVEL\n"

local function quote(text) return "'" .. text:gsub("'", "'\\''") .. "'" end

--- Runs a script up to its first failing command, without preloaded libraries. Returns true if all commands have
-- succeeded, and the output.
function shell.run(script)
  script = "(" .. clean .. "set -e\n" .. script .. "\n) 2>&1; echo status $?"
  local pipe = assert(io.popen("exec env -u LD_PRELOAD sh -c " .. quote(script)))
  local output = pipe:read("*a")
  pipe:close()
  local printed, status = output:match("^(.*)status (%d+)\n$")
  return status == "0", printed
end

--- Runs a script that must succeed. Returns the output, without the last newline.
function shell.must(script)
  local ok, printed = shell.run(script)
  if not ok then error(script .. "\n" .. printed, 2) end
  return (printed:gsub("\n$", ""))
end

return shell
