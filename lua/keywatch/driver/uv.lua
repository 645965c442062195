-- SPDX-License-Identifier: MIT
--- uv: the driver on libuv. Tasks are coroutines, and a private loop turns while all of them wait. The loop is opened
-- when it is first needed.

local check = require "keywatch.support.check"
local coroutines = require "keywatch.driver.coroutines"
local uv = require "keywatch.uv"

local NOT_CAUGHT = "keywatch: these signals are not caught any more: they were closed, replaced by a later call, or "
  .. "belong to the parent process"

local driver = {}

local loop           -- nil until it is needed
local pid = uv.pid() -- of the process that the state of this module belongs to
local catcher        -- the signals object that gets the signals, or nil
local backend = { now = uv.now } -- see coroutines.lua
local tasks

-- {====== The backend ======

--- In the child after a fork: signals are not caught any more, and all tasks except the one that has forked are
-- abandoned.
function backend.enter()
  if uv.pid() == pid then return end
  catcher = nil
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

--- Turns libuv's loop, and gives the signals that have come to their object.
function backend.block(wait, is_bell_awaited)
  get_loop():turn(wait, is_bell_awaited)
  for name in loop.next_signal, loop do
    if catcher then catcher:catch(name) end
  end
end

-- }======

tasks = coroutines.new(backend, driver)
local scheduler = tasks.scheduler

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

-- {====== Signals ======

local signals_methods = {}
local signals_mt = { __index = signals_methods }

--- Catches signals, instead of those that were caught before. Returns a signals object; or nil and the text of the
-- error.
function driver.signals(names)
  local ok, text = get_loop():signals(names)
  if not ok then return nil, text end
  catcher = setmetatable({
    names = {}, -- of the signals that have come, in order
    arrival = scheduler:event(),
  }, signals_mt)
  return catcher
end

--- Adds a signal that has come, and wakes the waiter.
function signals_methods:catch(name)
  table.insert(self.names, name)
  self.arrival:set()
end

--- Waits for a signal. Returns its name; or nil if `timeout` seconds are over.
function signals_methods:wait(timeout)
  backend.enter()
  if #self.names == 0 and catcher == self then scheduler:check_timeout(timeout) end
  local deadline = timeout and uv.now() + timeout
  while #self.names == 0 do
    if catcher ~= self then check.misuse(NOT_CAUGHT) end
    if not self.arrival:wait(scheduler:time_left(deadline)) then return nil end
  end
  return table.remove(self.names, 1)
end

--- Stops catching. The signals have the effect again that they had before.
function signals_methods:close()
  if catcher ~= self then return end
  catcher = nil
  self.arrival:set()
  get_loop():signals {}
end

-- }======

return driver
