-- SPDX-License-Identifier: MIT
--- luajit: hands the process over to LuaJIT where the program runs on PUC Lua 5.1. LuaRocks starts the programs of a
-- tree for LuaJIT with PUC Lua 5.1, unless it is told otherwise. This module runs on PUC Lua 5.1.

local unpack = rawget(table, "unpack") or rawget(_G, "unpack")

local function is_puc_5_1()
  return _VERSION == "Lua 5.1" and not rawget(_G, "jit")
end

--- The interpreter of a command line, and everything behind it: the interpreter's options, the script, the arguments.
local function split(arguments)
  local first = 0
  while arguments[first - 1] do first = first - 1 end
  local rest = {}
  for i = first + 1, #arguments do rest[#rest + 1] = arguments[i] end
  return arguments[first], rest
end

--- Starts the same command line with LuaJIT in this process, and does not return. LuaJIT is looked for beside the
-- interpreter that runs, then in PATH.
local function take_over(arguments)
  local interpreter, rest = split(arguments)
  local directory, name = interpreter:match("^(.-)([^/]*)$")
  local found, exec = pcall(require, "keywatch.exec")
  if found and name ~= "luajit" then
    exec(directory .. "luajit", unpack(rest))
    exec("luajit", unpack(rest))
  end
  io.stderr:write("keywatch: ", interpreter, " is PUC Lua 5.1, which keywatch does not run on; and there is no luajit",
    " beside it or in PATH\n")
  os.exit(1)
end

return { is_puc_5_1 = is_puc_5_1, take_over = take_over }
