-- SPDX-License-Identifier: MIT
--- luajit: replaces a process that runs on PUC Lua 5.1 by LuaJIT. LuaRocks starts the programs of a LuaJIT tree with
-- PUC Lua 5.1, unless it is configured otherwise. This module itself must run on PUC Lua 5.1.

local unpack = rawget(table, "unpack") or rawget(_G, "unpack")

--- True on PUC Lua 5.1.
local function is_puc_5_1()
  return _VERSION == "Lua 5.1" and not rawget(_G, "jit")
end

--- Returns the interpreter of a command line (the table `arg`); and the list of the other parts: the interpreter's
-- options, the script and the script's arguments.
local function split(arguments)
  local first = 0
  while arguments[first - 1] do first = first - 1 end
  local rest = {}
  for i = first + 1, #arguments do rest[#rest + 1] = arguments[i] end
  return arguments[first], rest
end

--- Runs the same command line with LuaJIT in this process, and does not return. Looks for `luajit` in the directory of
-- the current interpreter, then in PATH. On failure writes an error to stderr, and exits with 1.
local function take_over(arguments)
  local interpreter, rest = split(arguments)
  local directory, name = interpreter:match("^(.-)([^/]*)$")
  local found, exec = pcall(require, "keywatch.exec")
  local advice = "Install LuaJIT: there is no luajit in the same directory or in PATH"
  if not found then
    advice = "Start it with luajit: the module keywatch.exec, which would do that, cannot be loaded"
  elseif name ~= "luajit" then
    exec(directory .. "luajit", unpack(rest))
    exec("luajit", unpack(rest))
  end
  io.stderr:write("keywatch: ", interpreter, " is PUC Lua 5.1, on which keywatch does not run. ", advice, "\n")
  os.exit(1)
end

return { is_puc_5_1 = is_puc_5_1, take_over = take_over }
