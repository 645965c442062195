--- Neovim without a terminal, on LuaJIT, with the rock of build/luajit.

local files = require "spec.support.files"
local process = require "spec.support.process"
local shell = require "spec.support.shell"

local neovim = {}

--- Returns the library to preload for Neovim on LuaJIT; "" if Neovim is built with LuaJIT.
local function preload()
  if shell.must("nvim --version"):find("LuaJIT", 1, true) then return "" end
  return shell.must("pwd") .. "/build/neovim.so:libluajit-5.1.so.2"
end

--- Starts Neovim with a Lua program, which ends Neovim. Returns the process. What the program prints comes on stderr.
function neovim.start(path)
  local root = shell.must("pwd") .. "/build/luajit/"
  return process.start({ "nvim", "--headless", "-u", "NONE", "-i", "NONE", "-n", "-c", "luafile " .. path }, {
    env = {
      LUA_PATH = ("%sshare/lua/5.1/?.lua;%sshare/lua/5.1/?/init.lua;;"):format(root, root),
      LUA_CPATH = root .. "lib/lua/5.1/?.so;;",
      LD_PRELOAD = preload(),
    },
  })
end

--- Runs a Lua text in Neovim until Neovim has ended. Returns the exit status, stdout and stderr.
function neovim.run(text)
  local path = files.write(os.tmpname(), text)
  local one = neovim.start(path)
  local status = one:wait()
  os.remove(path)
  return status, one:stdout(), one:stderr()
end

return neovim
