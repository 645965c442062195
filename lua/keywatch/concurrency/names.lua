-- SPDX-License-Identifier: MIT
--- names: the keys of locks and elections, as etcd's clients and services name them. Each contender for a lock, or for
-- the lead, has a key below a common prefix, bound to a lease. The key with the smallest create revision has the lock,
-- or leads.

local core = require "keywatch.core"

--- Returns the prefix of all keys of a lock or an election.
local function prefix_of(name)
  return name .. "/"
end

--- Returns the key of a lease below a prefix.
local function key_of(prefix, lease_id)
  return prefix .. core.hex(lease_id)
end

-- Options of a range over a prefix, whose first kv is the one that was created first.
local OLDEST = { prefix = true, sort_target = "create", sort_order = "ascend", limit = 1 }

return { prefix_of = prefix_of, key_of = key_of, OLDEST = OLDEST }
