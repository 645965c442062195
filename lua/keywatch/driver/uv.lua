-- SPDX-License-Identifier: MIT
--- uv: the driver on libuv. Tasks are coroutines, and a private loop turns while all of them wait. The loop is opened
-- when it is first needed.

local compat = require "keywatch.support.compat"
local coroutines = require "keywatch.driver.coroutines"
local signals = require "keywatch.driver.signals"
local uv = require "keywatch.uv"

local driver = {}

local loop           -- nil until it is needed
local pid = uv.pid() -- of the process that the state of this module belongs to
local backend = { now = uv.now } -- see coroutines.lua
local tasks

-- {====== The backend ======

--- In the child after a fork: all tasks except the one that has forked are abandoned.
function backend.enter()
  if uv.pid() == pid then return end
  tasks:after_fork()
  pid = uv.pid()
end

--- Returns the name of another part of the program that turns its own loop now, or nil. We must not block that loop.
function backend.foreign_loop()
  if rawget(_G, "vim") then return "Neovim" end
  local ngx = rawget(_G, "ngx")
  if type(ngx) == "table" and ngx.get_phase then
    local phase = ngx.get_phase()
    if phase ~= "init" and phase ~= "init_worker" then return "nginx" end
  end
  local luv = package.loaded.luv
  if type(luv) == "table" and luv.loop_mode and luv.loop_mode() then return "luv" end
end

--- Returns the loop. The first call opens it.
local function get_loop()
  backend.enter()
  loop = loop or assert(uv.open())
  return loop
end

--- True if a server, a client, a signal or another thread may wake a task.
function backend.is_awaiting()
  return loop ~= nil and loop:is_awaiting()
end

--- Turns libuv's loop. If Lua's interpreter has caught Ctrl-C meanwhile, its hook raises "interrupted!" here.
backend.block = compat.interpreted(function(wait, is_bell_awaited)
  get_loop():turn(wait, is_bell_awaited)
end)

--- Writes what is to be written, without a look at the sockets.
function backend.flush()
  get_loop():flush()
end

-- }======

tasks = coroutines.new(backend, driver)

-- {====== Sockets and threads, as task/driver.lua describes them ======

function driver.resolve(name) return get_loop():resolve(name) end
function driver.listen(server, address) return get_loop():listen(server, address) end
function driver.dial(client, address) return get_loop():dial(client, address) end
function driver.lookup(name) return get_loop():lookup(name) end
function driver.bell() return get_loop():bell() end
function driver.hear(thread) thread:wakes(get_loop()) end

--- Handles sockets and signals once, without waiting.
function driver.look()
  if loop then backend.block(0) end
end

--- True if a server has listeners or connections, or a client its connection.
function driver.hosts(object)
  return loop ~= nil and loop:hosts(object)
end

--- Closes the listeners and connections of a server, or the connection of a client, at once.
function driver.release(object)
  if loop then loop:release(object) end
end

-- }======

--- Catches signals. See signals.lua.
function driver.signals(names) return signals.open(driver, get_loop, names) end

return driver
