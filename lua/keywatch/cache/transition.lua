-- SPDX-License-Identifier: MIT
--- transition: computes the event of a change for a reader with a filter.
--
--              no filter   new and old match   only new matches    only old matches    neither matches
--   create     added       -                   added               -                   -
--   update     modified    modified            added               deleted             -
--   delete     deleted     -                   -                   deleted             -
--
-- A "deleted" event has the last state that matched, with the revision of the change that has removed it.
--
-- A filter is a table with these fields: decode, include, labels, fields, where, transform, keeps_old (the option
-- `old`), skips_bad (the option on_bad_value is "skip"), is_selective (there are labels, fields or where), counts, a
-- table of numbers, and title, the name of the reader in log texts. Functions of the program that raise, or return
-- nothing, are never a match.
--
-- A reader that shares its changes with others gets an item with each (see dispatcher.lua): whether the objects match
-- the selectors, and a record with the decoded objects. Objects belong to the reader that gets them: the first reader
-- takes those of the record, and every other one decodes the value itself.

local check = require "keywatch.support.check"
local core = require "keywatch.core"
local driver = require "keywatch.task.driver"
local errors = require "keywatch.support.errors"
local log = require "keywatch.support.log"
local selectors = require "keywatch.cache.selector"

local test, compute = selectors.test, driver.compute

local BAD_VALUE = "keywatch: the value of %s at revision %d cannot be used: %s"
local MISSING = "keywatch: the previous value of %s, which revision %d has replaced, is compacted: read the objects "
  .. "again"

-- {====== Errors ======

--- Returns the error of a value that cannot be decoded.
local function bad_value(change, why)
  return errors.new("malformed", BAD_VALUE:format(check.shown(change.key), change.mod_revision, why))
end

--- Returns the error of a change whose previous value is not known.
local function missing_value(change)
  return errors.new("compacted", MISSING:format(check.shown(change.key), change.mod_revision))
end

--- Counts an error of a program's function that decides whether an object matches. Logs the first one.
local function note_failure(filter, name, err)
  local counts = filter.counts
  counts.failed_tests = counts.failed_tests + 1
  if counts.failed_tests == 1 then
    log.warn("%s", ("%s of %s has failed, and the object does not match: %s"):format(name, filter.title,
      errors.text_of(err)))
  end
end

-- }======

-- {====== Changes of one revision ======

--- Sets the previous kv of a change whose key has changed before in the same revision, as a transaction inside of a
-- transaction may do: a watch delivers the kv of the previous revision. `memory` is a table in which the reader of the
-- changes keeps those of the last revision.
local function correct(memory, change)
  local revision = change.mod_revision
  if memory.revision ~= revision then
    memory.revision, memory.first, memory.by_key = revision, change, nil
    return
  end
  local by_key = memory.by_key
  if not by_key then
    by_key = { [memory.first.key] = memory.first }
    memory.by_key = by_key
  end
  local before = by_key[change.key]
  by_key[change.key] = change
  if before then change.prev = before.type == "put" and before or nil end
end

-- }======

-- {====== Objects ======

--- Decodes a value. Returns the object; or nil and the reason as a text.
local function decode(filter, value)
  filter.counts.decoded = filter.counts.decoded + 1
  local ok, object, why = compute(filter.decode, value)
  if ok and object ~= nil then return object end
  return nil, errors.text_of(not ok and object or why or "the codec has returned nil")
end

--- Returns the new object of a change; or nil and the reason.
local function new_object(filter, change, record)
  if not filter.decode then return change.value end
  if record and record.is_dispatched then
    local object = record.new
    record.new = nil
    if object ~= nil then return object end
    if record.new_trouble then return nil, record.new_trouble end
  end
  return decode(filter, change.value)
end

--- Returns the previous object of a change; or nil and the reason.
local function old_object(filter, change, record)
  if not filter.decode then return change.prev.value end
  if record and record.is_dispatched then
    local object = record.old
    record.old = nil
    if object ~= nil then return object end
    if record.old_trouble then return nil, record.old_trouble end
  end
  return decode(filter, change.prev.value)
end

-- }======

-- {====== Filters ======

--- True if the filter includes a key.
local function includes(filter, key)
  local ok, found = compute(filter.include, key)
  if not ok then note_failure(filter, "include", found) end
  return ok and found
end

--- True if an object matches the selectors.
local function is_selected(filter, object)
  local labels, fields = filter.labels, filter.fields
  if labels then
    local ok, found = compute(test, labels, object)
    if not ok then note_failure(filter, "a selector", found) end
    if not ok or not found then return false end
  end
  if fields then
    local ok, found = compute(test, fields, object)
    if not ok then note_failure(filter, "a selector", found) end
    if not ok or not found then return false end
  end
  return true
end

--- True if an object matches the filter. `is_known` is whether the object matches the selectors, or nil if unknown.
local function is_wanted(filter, object, key, is_known)
  if is_known == nil then is_known = is_selected(filter, object) end
  if not is_known or not filter.where then return is_known end
  local ok, found = compute(filter.where, object, key)
  if not ok then note_failure(filter, "where", found) end
  return ok and found and true or false
end

-- }======

-- {====== Events ======

--- Returns the result of the program's transform for an object; or nil and the reason.
local function transformed(filter, object, event)
  local ok, found = compute(filter.transform, object, event)
  if ok and found ~= nil then return found end
  return nil, "transform: " .. errors.text_of(not ok and found or "it has returned nil")
end

--- Applies the program's transform to the objects of an event. Returns the event; or nil and an error.
local function transform(filter, event, change)
  local object, why = transformed(filter, event.object, event)
  if why then return nil, bad_value(change, why) end
  local old
  if event.old ~= nil then
    old, why = transformed(filter, event.old, event)
    if why then return nil, bad_value(change, why) end
  end
  event.object, event.old = object, old
  return event
end

--- Returns the event of a change; or nil and an error. `kv` is the kv of the object.
local function new_event(filter, kind, change, kv, object, old)
  local event = setmetatable({
    type = kind,
    key = change.key,
    object = object,
    revision = change.mod_revision,
    create_revision = kv.create_revision,
    version = kv.version,
    lease = kv.lease,
  }, core.record)
  if change.initial then event.initial = true end
  if old ~= nil then event.old = old end
  if not filter.transform then return event end
  return transform(filter, event, change)
end

--- Returns the event of a put, or nil; or nil and an error.
local function of_put(filter, change, item, is_new)
  local prev, record, is_known, was_known = change.prev, nil, nil, nil
  if item then record, is_known, was_known = item.record, item.is_match, item.was_match end
  local object, why = new_object(filter, change, record)
  if why then return nil, bad_value(change, why) end
  if not filter.is_selective and not filter.keeps_old then
    return new_event(filter, is_new and "added" or "modified", change, change, object)
  end
  local is_match = is_wanted(filter, object, change.key, is_known)
  local was_match, old = false, nil
  if prev then
    old, why = old_object(filter, change, record)
    if why and not filter.skips_bad then return nil, bad_value(change, "its previous value: " .. why) end
    was_match = not why and is_wanted(filter, old, change.key, was_known)
  end
  if is_match then
    local is_kept = was_match and filter.keeps_old
    return new_event(filter, was_match and "modified" or "added", change, change, object, is_kept and old or nil)
  end
  if was_match then return new_event(filter, "deleted", change, prev, old) end
end

--- Returns the event of a delete, or nil; or nil and an error.
local function of_delete(filter, change, item)
  local old, why = old_object(filter, change, item and item.record)
  if why and filter.skips_bad then return nil end
  if why then return nil, bad_value(change, "its previous value: " .. why) end
  if filter.is_selective and not is_wanted(filter, old, change.key, item and item.was_match) then return nil end
  return new_event(filter, "deleted", change, change.prev, old)
end

--- Returns the event of a change for a filter, or nil if there is none; or nil, an error, and true if the error is that
-- of a bad value. is_first(reader, change) returns whether a put without a previous value is known to be the first.
local function event_of(filter, change, item, is_first, reader)
  if filter.include and not includes(filter, change.key) then return nil end
  local event, err
  if change.type == "put" then
    local is_new = not change.prev
    if is_new and change.create_revision ~= change.mod_revision and not change.initial
      and not is_first(reader, change) then
      return nil, missing_value(change), false
    end
    event, err = of_put(filter, change, item, is_new)
  else
    if not change.prev then return nil, missing_value(change), false end
    event, err = of_delete(filter, change, item)
  end
  return event, err, err ~= nil
end

-- }======

--- Returns the object of a put, for a reader that knows the previous object itself; or nil if the object does not
-- match; or nil and an error if the value cannot be decoded.
local function object_of(filter, change)
  if filter.include and not includes(filter, change.key) then return nil end
  local object, why = change.value, nil
  if filter.decode then object, why = decode(filter, change.value) end
  if why then return nil, bad_value(change, why) end
  if filter.is_selective and not is_wanted(filter, object, change.key) then return nil end
  if not filter.transform then return object end
  object, why = transformed(filter, object, {
    key = change.key, revision = change.mod_revision, create_revision = change.create_revision,
    version = change.version, lease = change.lease,
  })
  if why then return nil, bad_value(change, why) end
  return object
end

return { event_of = event_of, correct = correct, object_of = object_of }
