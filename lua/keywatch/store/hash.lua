-- SPDX-License-Identifier: MIT
--- hash: the hash over all keys of a store and their history, by which two stores can be compared.

local check = require "keywatch.support.check"
local driver = require "keywatch.task.driver"

local RECORDS_AT_ONCE = 2000 -- takes less than a millisecond

--- Returns etcd's HashKV at a revision (nil or 0: the current one); or nil and an error. In a task, other tasks run
-- between the steps. The options `timeout` and `deadline` are checked, and have no effect.
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

return { hash_kv = hash_kv }
