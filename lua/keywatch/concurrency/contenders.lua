-- SPDX-License-Identifier: MIT
--- contenders: keys in the order in which they were created.
--
-- Keys are added with rising create revisions, so that the list is sorted by itself. A key that is removed from the
-- middle leaves a gap (false). Adding and removing cost the same for any number of keys, on average.

local contenders_methods = {}
local contenders_mt = { __index = contenders_methods }

--- Returns an empty list.
local function new()
  return setmetatable({
    list = {},    -- { key, created, is_tied, at }, or false, from index first to last
    first = 1,
    last = 0,
    by_key = {},
    count = 0,    -- without gaps
    newest = nil, -- the contender that was added last, which may have been removed
  }, contenders_mt)
end

--- Removes the gaps.
local function squeeze(self)
  local list, n = {}, 0
  for i = self.first, self.last do
    local contender = self.list[i]
    if contender then
      n = n + 1
      list[n], contender.at = contender, n
    end
  end
  self.list, self.first, self.last = list, 1, n
end

--- Adds a key that was created at a revision, which is not below the revisions of the others. Keys that were created at
-- the same revision, by one transaction, are tied.
function contenders_methods:add(key, created)
  self:remove(key)
  local at, newest = self.last + 1, self.newest
  local contender = { key = key, created = created, is_tied = false, at = at }
  if newest and newest.created == created then newest.is_tied, contender.is_tied = true, true end
  self.list[at], self.by_key[key] = contender, contender
  self.last, self.count, self.newest = at, self.count + 1, contender
end

--- Removes a key. Does nothing if the key is not in the list.
function contenders_methods:remove(key)
  local contender = self.by_key[key]
  if not contender then return end
  self.by_key[key], self.list[contender.at] = nil, false
  self.count = self.count - 1
  while self.first <= self.last and not self.list[self.first] do
    self.list[self.first] = nil
    self.first = self.first + 1
  end
  if self.last - self.first + 1 > 2 * self.count then squeeze(self) end
end

--- Returns the oldest contender, or nil.
function contenders_methods:oldest()
  return self.list[self.first]
end

return { new = new }
