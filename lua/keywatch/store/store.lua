-- SPDX-License-Identifier: MIT
--- store: the methods of a store that are written in Lua. They are added to those of C.

local check = require "keywatch.support.check"
local core = require "keywatch.core"
local driver = require "keywatch.task.driver"
local durable = require "keywatch.store.durable"
local exists = require "keywatch.store.exists"
local keeper = require "keywatch.store.keeper"
local lease = require "keywatch.store.lease"
local pages = require "keywatch.store.pages"

local RECORDS_AT_ONCE = 2000 -- takes less than a millisecond

--- Returns etcd's HashKV, a hash over all keys and their history by which two stores can be compared, at a revision
-- (nil or 0: the current one); or nil and an error. In a task, other tasks run between the steps. The options `timeout`
-- and `deadline` are checked, and have no effect.
local function hash_kv(store, revision, opts)
  check.self(store, "hash_kv")
  check.revision(revision, "hash_kv")
  check.times(opts, "hash_kv")
  local result, rest
  repeat
    result, rest = check.call("hash_kv", store.hash_step, store, RECORDS_AT_ONCE, revision, rest)
    if result == false and driver.can_park() then driver.get().sleep(0) end
  until result ~= false
  return check.results(result, rest)
end

core.store_methods.each = pages.each
core.store_methods.exists = exists
core.store_methods.hash_kv = hash_kv
core.store_methods.lease = lease.grant
core.store_methods.lease_by_id = lease.by_id
core.store_methods.lease_keeper = keeper.of

return { open = durable.open }
