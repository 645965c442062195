-- SPDX-License-Identifier: MIT
--- uv: the driver on libuv. Tasks are coroutines, and a private loop turns while all of them wait.

local check = require "keywatch.support.check"
local coroutines = require "keywatch.driver.coroutines"
local uv = require "keywatch.uv"

local NOT_CAUGHT = "keywatch: these signals are not caught any more: they were closed, replaced by a later call, or "
  .. "belong to the parent process"

local driver = {}

local loop           -- opened when it is first needed
local pid = uv.pid() -- of the process that all this is in
local catcher        -- whom signals are given to
local beneath = { now = uv.now }
local tasks          -- coroutines, over what is beneath

-- {====== What the tasks ask for ======

--- In a child of the process there is no task but the one that has forked: the parent does what the others were about
-- to do. They count as cancelled. Sources are told, and the top level looks for itself whether it still waits.
function beneath.enter()
  if uv.pid() == pid then return end
  catcher = nil
  tasks:after_fork()
  pid = uv.pid()
end

--- Whether somebody else turns a loop in this program, at this moment, so that we must not block it.
function beneath.host()
  if rawget(_G, "vim") then return "Neovim" end
  local ngx = rawget(_G, "ngx")
  if type(ngx) == "table" and ngx.get_phase then
    local phase = ngx.get_phase()
    if phase ~= "init" and phase ~= "init_worker" then return "nginx" end
  end
  local luv = package.loaded.luv
  if type(luv) == "table" and luv.loop_mode and luv.loop_mode() then return "luv" end
end

local function get_loop()
  beneath.enter()
  loop = loop or assert(uv.open())
  return loop
end

function beneath.is_awaiting()
  return loop ~= nil and loop:is_awaiting()
end

function beneath.block(wait, is_bell_awaited)
  get_loop():turn(wait, is_bell_awaited)
  for name in loop.next_signal, loop do
    if catcher then catcher:catch(name) end
  end
end

-- }======

tasks = coroutines.new(beneath, driver)
local scheduler = tasks.scheduler

-- {====== The world ======

function driver.resolve(name) return get_loop():resolve(name) end
function driver.listen(server, address) return get_loop():listen(server, address) end
function driver.dial(client, address) return get_loop():dial(client, address) end
function driver.lookup(name) return get_loop():lookup(name) end
function driver.bell() return get_loop():bell() end
function driver.hear(thread) thread:wakes(get_loop()) end

function driver.look()
  if loop then beneath.block(0) end
end

function driver.hosts(object)
  return loop ~= nil and loop:hosts(object)
end

function driver.release(object)
  if loop then loop:release(object) end
end

-- }======

-- {====== Signals ======

local signals_methods = {}
local signals_mt = { __index = signals_methods }

function driver.signals(names)
  local ok, text = get_loop():signals(names)
  if not ok then return nil, text end
  catcher = setmetatable({
    names = {}, -- those that came
    arrival = scheduler:event(),
  }, signals_mt)
  return catcher
end

function signals_methods:catch(name)
  table.insert(self.names, name)
  self.arrival:set()
end

--- The name of the next signal; nil if `timeout` seconds are over.
function signals_methods:wait(timeout)
  beneath.enter()
  if #self.names == 0 and catcher == self then scheduler:check_timeout(timeout) end
  local deadline = timeout and uv.now() + timeout
  while #self.names == 0 do
    if catcher ~= self then check.misuse(NOT_CAUGHT) end
    if not self.arrival:wait(scheduler:time_left(deadline)) then return nil end
  end
  return table.remove(self.names, 1)
end

--- From here on they do what they did before.
function signals_methods:close()
  if catcher ~= self then return end
  catcher = nil
  self.arrival:set()
  get_loop():signals {}
end

-- }======

return driver
