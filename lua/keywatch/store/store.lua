-- SPDX-License-Identifier: MIT
--- store: the methods of a store that are written in Lua. They are added to those of C.

local core = require "keywatch.core"
local durable = require "keywatch.store.durable"
local exists = require "keywatch.store.exists"
local hash = require "keywatch.store.hash"
local keeper = require "keywatch.store.keeper"
local lease = require "keywatch.store.lease"
local pages = require "keywatch.store.pages"

core.store_methods.each = pages.each
core.store_methods.exists = exists
core.store_methods.hash_kv = hash.hash_kv
core.store_methods.lease = lease.grant
core.store_methods.lease_by_id = lease.by_id
core.store_methods.lease_keeper = keeper.of

return { open = durable.open }
