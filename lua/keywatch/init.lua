-- SPDX-License-Identifier: MIT
--- keywatch: a versioned key-value store whose every change can be watched.

local is_luajit = type(rawget(_G, "jit")) == "table"
if not is_luajit and _VERSION ~= "Lua 5.4" then
  error("keywatch needs Lua 5.4 or LuaJIT 2.1: run it with lua5.4 or luajit (this is " .. _VERSION .. ")", 0)
end

local client = require "keywatch.client"
local core = require "keywatch.core"
local driver = require "keywatch.driver"
local durable = require "keywatch.durable"
local hash = require "keywatch.hash"
local lease = require "keywatch.lease"
local local_watch = require "keywatch.local_watch"
local pages = require "keywatch.pages"
local server = require "keywatch.server"

-- What is composed from the methods of C is a method beside them.
core.store_methods.each = pages.each
core.store_methods.hash_kv = hash.hash_kv
core.store_methods.lease = lease.grant
core.store_methods.lease_by_id = lease.by_id
core.store_methods.watch = local_watch.open

--- A function of the driver, which is chosen when the first of them is called.
local function of_driver(name)
  return function(...) return driver.get()[name](...) end -- a tail call: who misuses it is named
end

return {
  _VERSION = "keywatch scm",
  open = durable.open,
  connect = client.connect,
  serve = server.serve,
  run = of_driver "run",
  spawn = of_driver "spawn",
  sleep = of_driver "sleep",
  now = of_driver "now",
}
