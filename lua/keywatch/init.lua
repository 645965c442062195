-- SPDX-License-Identifier: MIT
--- keywatch: a versioned key-value store whose every change can be watched.

local is_luajit = type(rawget(_G, "jit")) == "table"
if not is_luajit and _VERSION ~= "Lua 5.4" then
  error("keywatch needs Lua 5.4 or LuaJIT 2.1: run it with lua5.4 or luajit (this is " .. _VERSION .. ")", 0)
end

local caches = require "keywatch.cache.methods"
local client = require "keywatch.client.client"
local concurrency = require "keywatch.concurrency.methods"
local core = require "keywatch.core"
local driver = require "keywatch.task.driver"
local fence = require "keywatch.concurrency.fence"
local log = require "keywatch.support.log"
local namespace = require "keywatch.namespace.namespace"
local selector = require "keywatch.cache.selector"
local server = require "keywatch.server.server"
local store = require "keywatch.store.store"
require "keywatch.support.printed"
require "keywatch.watch.local_origin"

concurrency.install(core.store_methods)
concurrency.install(client.methods)
for _, methods in ipairs { core.store_methods, client.methods, namespace.methods, fence.methods } do
  caches.install(methods)
end

--- Returns its arguments. `return pass(fn())` is not a tail call of fn, so errors of fn name the line of its caller.
local function pass(...) return ... end

--- Returns a public function that calls the driver's function of a name. The first call of any of them chooses the
-- driver.
local function of_driver(name)
  return function(...) return pass(driver.get()[name](...)) end
end

return {
  _VERSION = "keywatch scm",
  open = store.open,
  connect = client.connect,
  serve = server.serve,
  run = of_driver "run",
  spawn = of_driver "spawn",
  join = of_driver "join",
  scope = of_driver "scope",
  shield = of_driver "shield",
  on_exit = of_driver "on_exit",
  channel = of_driver "channel",
  select = of_driver "select",
  sleep = of_driver "sleep",
  now = of_driver "now",
  driver = of_driver "choose",
  fd = of_driver "fd",
  pollfd = of_driver "fd", -- pollfd, events and timeout: cqueues polls the module itself
  events = function() return "r" end,
  timeout = of_driver "timeout",
  step = of_driver "step",
  signals = of_driver "signals",
  log = log.configure,
  selector = selector.new,
}
