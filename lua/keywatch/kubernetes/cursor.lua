-- SPDX-License-Identifier: MIT
--- cursor: a reader's place in a history, for one scope and one filter. It holds no changes: if the history evicts the
-- next one, or loses its own place, the cursor is lost.

local status_error = require "keywatch.kubernetes.status_error"
local transition = require "keywatch.kubernetes.transition"

local of = transition.of
local find = string.find

local TOO_OLD = "too old resource version: %d"

local cursor_methods = {}
local cursor_mt = { __index = cursor_methods }

--- True if the history no longer has the next change.
function cursor_methods:is_lost()
  local history = self.history
  return history.epoch ~= self.epoch or self.seq < history.first
end

--- Returns the type of the next event, the entry to show, and the change; nil if there is none yet, or if the cursor is
-- lost. A call reads at most `most` changes; true as the second result means that there are more.
function cursor_methods:next(most)
  local history, prefix = self.history, self.prefix
  local is_counted = most ~= nil
  while not self:is_lost() do
    local change = history:get(self.seq)
    if not change then return nil end
    if is_counted and most == 0 then return nil, true end
    self.seq, most = self.seq + 1, is_counted and most - 1 or nil
    if change.revision > self.revision and (not prefix or find(change.key, prefix, 1, true) == 1) then
      local kind, entry = of(change, self.filter)
      if kind then return kind, entry, change end
    end
  end
  return nil
end

--- Returns the error of a cursor that is lost.
function cursor_methods:error()
  return status_error.expired(TOO_OLD:format(self.revision))
end

--- Returns a cursor after a revision; or nil and an error if later changes are missing. `namespace` and `filter` may be
-- nil.
local function new(history, revision, namespace, filter)
  local seq = history:find(revision)
  if not seq then
    return nil, status_error.expired(("too old resource version: %d (%d)"):format(revision, history.floor or 0))
  end
  return setmetatable({
    history = history, epoch = history.epoch, seq = seq, revision = revision,
    prefix = namespace and namespace .. "/", filter = filter,
  }, cursor_mt)
end

return { new = new }
