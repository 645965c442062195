-- SPDX-License-Identifier: MIT
--- keywatch: a versioned key-value store whose every change can be watched.

local is_luajit = type(rawget(_G, "jit")) == "table"
if not is_luajit and _VERSION ~= "Lua 5.4" then
  error("keywatch needs Lua 5.4 or LuaJIT 2.1: run it with lua5.4 or luajit (this is " .. _VERSION .. ")", 0)
end

local core = require "keywatch.core"
local lease = require "keywatch.lease"
local pages = require "keywatch.pages"

-- What is composed from the methods of C is a method beside them.
core.store_methods.each = pages.each
core.store_methods.lease = lease.grant
core.store_methods.lease_by_id = lease.by_id

return {
  _VERSION = "keywatch scm",
  open = core.open,
}
