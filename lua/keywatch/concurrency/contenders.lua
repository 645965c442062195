-- SPDX-License-Identifier: MIT
--- contenders: keys in the order in which they were created. The order is that of a heap of timers, with create
-- revisions in the place of times.

local timers = require "keywatch.task.timers"

local contenders_methods = {}
local contenders_mt = { __index = contenders_methods }

--- Returns an empty list.
local function new()
  return setmetatable({
    by_key = {},         -- the contenders, with the fields that `add` sets
    order = timers.new(),
    count = 0,
    newest = nil,        -- the contender that was added last, which may have been removed
  }, contenders_mt)
end

--- Adds a key that was created at a revision, which is not below the revisions of the others. Keys that were created at
-- the same revision, by one transaction, are tied.
function contenders_methods:add(key, created)
  self:remove(key)
  local newest, contender = self.newest, { key = key, created = created, is_tied = false, timer = nil }
  if newest and newest.created == created then newest.is_tied, contender.is_tied = true, true end
  contender.timer = self.order:add(created, contender)
  self.by_key[key], self.count, self.newest = contender, self.count + 1, contender
end

--- Removes a key. Does nothing if the key is not in the list.
function contenders_methods:remove(key)
  local contender = self.by_key[key]
  if not contender then return end
  self.order:remove(contender.timer)
  self.by_key[key], self.count = nil, self.count - 1
end

--- Returns the oldest contender, or nil.
function contenders_methods:oldest()
  local contender = self.order:first()
  return contender
end

--- Returns the kv of an event, which becomes that kv.
local function kv_of(event)
  event.type, event.initial, event.prev = nil, nil, nil
  return event
end

return { new = new, kv_of = kv_of }
