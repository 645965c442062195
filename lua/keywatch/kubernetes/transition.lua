-- SPDX-License-Identifier: MIT
--- transition: what a change of the history means for a reader with a filter.
--
--              no filter   new and old match   only new matches    only old matches    neither matches
--   create     ADDED       -                   ADDED               -                   -
--   update     MODIFIED    MODIFIED            ADDED               DELETED             -
--   delete     DELETED     -                   -                   DELETED             -
--
-- A DELETED shows the last state that matched, with the revision of the change, so that a reader can continue after it.

local entries = require "keywatch.kubernetes.entry"

--- True if an entry exists, and matches a filter.
local function is_match(filter, entry)
  local object = entry and entries.object(entry)
  return object ~= nil and filter.matches(object)
end

--- Returns the last state of the object before a change, with the revision of the change.
local function deleted(change)
  local shown = change.deleted -- shared by all readers
  if not shown then
    shown = entries.of(change.key, change.old.text, change.revision)
    change.deleted = shown
  end
  return "DELETED", shown
end

--- Returns the type of the event, and the entry to show; nil if there is no event. `filter` is that of selector.lua, or
-- nil. An object that cannot be decoded matches no filter.
local function of(change, filter)
  local new, old = change.new, change.old
  if filter then
    if not is_match(filter, new) then new = nil end
    if not is_match(filter, old) then old = nil end
  end
  if new then return old and "MODIFIED" or "ADDED", new end
  if old then return deleted(change) end
end

return { of = of }
