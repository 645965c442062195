-- SPDX-License-Identifier: MIT
--- dispatcher: one watch for many object watches of the same keys, each of which asks for some values of a label or a
-- field. A change is decoded once, and an index finds the object watches that ask for its new or its previous value.
--
-- An object watch takes part with an entry: its selectors, and a queue of its items. An item is a change, whether it
-- matches, and a record that all items of the change share. The dispatcher references the entries, and no entry
-- references its object watch: an object watch that the program has dropped is collected, and its entry removed.
--
-- Invariant of an entry that is not left behind: its queue has received every matching change of the revisions after
-- `floor` and up to the dispatcher's `revision`. A queue has a bound in bytes. An entry that would exceed the bound is
-- left behind, before the first revision that does not fit: its object watch continues with a watch of its own, from
-- `resume`. The other entries do not wait for it.
--
-- No entry is added while changes are being distributed.
--
-- Nothing waits here, except a codec that waits in the task of a reader. An object watch without items calls pump; and
-- while an object watch waits, the event of the underlying watch calls pump, inside of the driver's poll.

local driver = require "keywatch.task.driver"
local errors = require "keywatch.support.errors"
local selectors = require "keywatch.cache.selector"
local transition = require "keywatch.cache.transition"
local watches = require "keywatch.watch.watch"

local pcall = pcall
local test, index_text, compute = selectors.test, selectors.index_text, driver.compute

local ITEM_BYTES = 200 -- memory of an item without the value and the previous value
local DECODED = 5      -- memory of a value and its object, relative to the value

local dispatcher_methods = {}
local dispatcher_mt = { __index = dispatcher_methods }

-- {====== Entries ======

--- Adds an item to the end of a queue. Atomic.
local function append(entry, item, bytes)
  local last = entry.last + 1
  entry.items[last], entry.last, entry.bytes = item, last, entry.bytes + bytes
  local n = last - entry.first + 1
  if n > entry.most then entry.most = n end
  if entry.bytes > entry.most_bytes then entry.most_bytes = entry.bytes end
end

--- Removes the last item of a queue. Atomic.
local function drop_last(entry)
  local item = entry.items[entry.last]
  entry.items[entry.last] = nil
  entry.last, entry.bytes = entry.last - 1, entry.bytes - item.bytes
end

--- Removes the first item of a queue and returns it. Atomic.
local function drop_first(entry)
  local first, last = entry.first, entry.last
  local item = entry.items[first]
  entry.items[first], entry.bytes = nil, entry.bytes - item.bytes
  if first == last then entry.first, entry.last = 1, 0 else entry.first = first + 1 end
  return item
end

--- Takes the first item of a queue. Returns nil if there is none; or if its revision is being distributed, while a
-- codec waits or a finalizer reads: the rest of the revision may not fit.
local function take(entry)
  if entry.first > entry.last then return nil end
  local dispatcher = entry.dispatcher
  if dispatcher.is_working and entry.items[entry.first].revision == dispatcher.last_change and not entry.is_behind then
    dispatcher.has_refused = true
    return nil
  end
  return drop_first(entry)
end

--- Leaves an entry behind: it gets no more items. Its object watch continues with its own watch, from a revision of
-- which the entry has no item.
local function leave_behind(entry, revision)
  while entry.last >= entry.first and entry.items[entry.last].revision == revision do drop_last(entry) end
  entry.is_behind, entry.resume = true, revision
  entry.dispatcher:remove(entry)
  entry.arrival:set()
end

--- Puts an item into the queue of an entry, unless the entry begins later, was removed, or was left behind. An item
-- that does not fit leaves the entry behind.
local function push(entry, item)
  if entry.is_behind or entry.is_removed or item.revision <= entry.floor then return end
  if entry.bytes + item.bytes > entry.max_bytes then return leave_behind(entry, item.revision) end
  append(entry, item, item.bytes)
  entry.arrival:set()
end

--- Makes an entry begin after a revision: drops the items up to that revision.
local function set_floor(entry, revision)
  entry.floor = revision
  while entry.first <= entry.last and entry.items[entry.first].revision <= revision do drop_first(entry) end
end

-- }======

-- {====== Members ======

-- The members of a dispatcher: the list of all entries, and an index for each name of a label or field. An index has
-- lists of entries, by the text of the value that they ask for. A removed entry stays in the lists, and is skipped,
-- until most of the entries are removed ones.

--- Returns members without entries.
local function new_members()
  return { entries = {}, indexes = {}, by_name = {} }
end

--- Adds an entry to the list of all, and to those of its values.
local function insert(members, entry)
  local requirement = entry.requirement
  local name = table.concat(requirement.path, "\0") .. "\0\0" .. (requirement.label or "")
  local fresh = { requirement = requirement, lists = {} }
  local index = members.by_name[name]
  if not index then
    index, members.by_name[name] = fresh, fresh
    members.indexes[#members.indexes + 1] = index
  end
  for text in pairs(requirement.set) do
    local list = {}
    list = index.lists[text] or list
    index.lists[text], list[#list + 1] = list, entry
  end
  members.entries[#members.entries + 1] = entry
end

--- Replaces the members by new lists without the removed entries. A loop over the old lists continues in them.
local function sweep(self)
  local members = new_members()
  for _, entry in ipairs(self.members.entries) do
    if not entry.is_removed then insert(members, entry) end
  end
  self.members, self.removed = members, 0
end

-- }======

-- {====== Dispatching ======

--- Decodes a value for all entries. Returns the object; or nil and why there is none.
local function decode(self, value)
  self.counts.decoded = self.counts.decoded + 1
  if not self.decode then return value end
  local ok, object, why = compute(self.decode, value)
  if ok and object ~= nil then return object end
  return nil, errors.text_of(not ok and object or why or "the codec has returned nil")
end

--- Returns the text of an object in an index; nil if it has none, or raises when its fields are read.
local function text_in(index, object)
  if object == nil then return nil end
  local ok, text = compute(index_text, index.requirement, object)
  return ok and text or nil
end

--- True if there is an object that matches the selectors of an entry.
local function is_match(self, entry, object)
  if object == nil then return false end
  self.counts.tested = self.counts.tested + 1
  local ok, found = true, true
  if entry.labels then ok, found = compute(test, entry.labels, object) end
  if ok and found and entry.fields then ok, found = compute(test, entry.fields, object) end
  return ok and found
end

--- Offers a change to the entries of a list, except those that also ask for the text `done`.
local function offer(self, list, change, record, bytes, done)
  for i = 1, list and #list or 0 do
    local entry = list[i]
    if not entry.is_removed and not (done and entry.requirement.set[done]) then
      local is, was = is_match(self, entry, record.new), is_match(self, entry, record.old)
      if is or was then
        push(entry, { change = change, record = record, is_match = is, was_match = was, revision = change.mod_revision,
          bytes = bytes })
      end
    end
  end
end

--- Calls fn(entry, ...) for all entries.
local function for_all(self, fn, ...)
  local entries = self.members.entries
  for i = 1, #entries do
    if not entries[i].is_removed then fn(entries[i], ...) end
  end
end

--- Adds a change that the index cannot assign to the queues of all entries. Each object watch filters it itself.
local function offer_to_all(self, change, record, bytes)
  for_all(self, push, { change = change, record = record, revision = change.mod_revision, bytes = bytes })
end

--- Returns the record of a change: the new and the previous object, or why a value has none. An object watch may take
-- the objects when is_dispatched is true: no other entry tests them then.
local function record_of(self, change)
  local record = { new = nil, old = nil, new_trouble = nil, old_trouble = nil, is_dispatched = false }
  if change.type == "put" then record.new, record.new_trouble = decode(self, change.value) end
  if change.prev then record.old, record.old_trouble = decode(self, change.prev.value) end
  return record
end

--- Gives a change to the entries that match.
local function dispatch(self, change)
  local prev = change.prev
  local bytes = ITEM_BYTES + (#(change.value or "") + (prev and #prev.value or 0)) * (self.decode and DECODED or 1)
  local record = record_of(self, change)
  local is_create = change.type == "put" and change.create_revision == change.mod_revision
  self.counts.changes = self.counts.changes + 1
  if record.new_trouble or record.old_trouble or not prev and not is_create then
    offer_to_all(self, change, record, bytes)
  else
    local indexes = self.members.indexes
    for i = 1, #indexes do
      local index = indexes[i]
      local text, old_text = text_in(index, record.new), text_in(index, record.old)
      if text then offer(self, index.lists[text], change, record, bytes) end
      if old_text and old_text ~= text then offer(self, index.lists[old_text], change, record, bytes, text) end
    end
  end
  record.is_dispatched = true
end

--- Queues a bookmark for an entry that wants bookmarks, in place of an earlier bookmark in the queue.
local function push_bookmark(entry, revision)
  if not entry.wants_bookmarks or revision <= entry.floor then return end
  local last = entry.last >= entry.first and entry.items[entry.last]
  if last and last.bookmark then
    last.bookmark, last.revision = revision, revision
  else
    push(entry, { bookmark = revision, revision = revision, bytes = ITEM_BYTES })
  end
end

--- Wakes the object watch of an entry.
local function wake(entry)
  entry.arrival:set()
end

--- Ends the dispatcher. Entries get `err` after their queued items.
local function fail(self, err)
  self.failure = err
  self:unregister()
  for_all(self, wake)
  self.watch:close()
end

--- Takes and distributes all events that have arrived.
local function work(self)
  local watch = self.watch
  while not self.failure do
    local filled = watches.fill(watch)
    if filled == nil then return fail(self, watch.failure or errors.closed("watch")) end
    if not filled then return end
    local change = watches.hand_out(watch)
    if change.type == "progress" then
      self.revision = watch.revision
      for_all(self, push_bookmark, change.revision)
    else
      self.last_change = change.mod_revision
      transition.correct(self.memory, change)
      dispatch(self, change)
      self.revision = watch.revision
    end
  end
end

--- Takes all changes from the watch, and distributes them. A recursive call, by a finalizer or a codec, makes the outer
-- call check again.
function dispatcher_methods:pump()
  if self.is_working then
    self.must_look_again = true
    return
  end
  self.is_working = true
  repeat
    self.must_look_again = false
    local ok, err = pcall(work, self)
    if not ok then -- for example out of memory
      self.is_working = false
      error(err, 0)
    end
  until not self.must_look_again or self.failure
  self.is_working = false
  if self.has_refused then
    self.has_refused = false
    for_all(self, wake)
  end
  if self.waiters > 0 and not self.failure then watches.mt.__select.arm(self.watch) end
end

-- }======

-- {====== Waiting ======

--- Counts an object watch that waits.
function dispatcher_methods:begin_wait()
  self.waiters = self.waiters + 1
  if self.waiters == 1 then watches.mt.__select.begin(self.watch) end
end

--- Makes the underlying watch announce present and later events.
function dispatcher_methods:arm()
  if not self.failure then watches.mt.__select.arm(self.watch) end
end

--- Counts an object watch that no longer waits.
function dispatcher_methods:end_wait()
  self.waiters = self.waiters - 1
  if self.waiters == 0 then watches.mt.__select.finish(self.watch) end
end

-- }======

-- {====== Adding and removing entries ======

--- Adds an entry for an object watch. `new` or `reserve` was called for it. The entry gets later changes. `fields`:
-- requirement, labels, fields, arrival (its event), max_bytes, wants_bookmarks.
function dispatcher_methods:add(fields)
  local entry = {
    dispatcher = self,
    requirement = fields.requirement,
    labels = fields.labels,
    fields = fields.fields,
    arrival = fields.arrival,
    max_bytes = fields.max_bytes,
    wants_bookmarks = fields.wants_bookmarks,
    floor = self.revision,
    items = {}, first = 1, last = 0,
    bytes = 0,                -- memory of the queued items
    most = 0, most_bytes = 0, -- high-water marks of the queue
    is_behind = false, resume = nil,
    is_removed = false,
  }
  if self.removed > #self.members.entries / 2 then sweep(self) end
  insert(self.members, entry)
  return entry
end

--- Removes an entry. The last one ends the dispatcher. Idempotent. May be called by a finalizer.
function dispatcher_methods:remove(entry)
  if entry.is_removed then return end
  entry.is_removed = true
  self.count, self.removed = self.count - 1, self.removed + 1
  if not entry.is_behind then entry.items, entry.first, entry.last = {}, 1, 0 end -- else they are still read
  if self.count > 0 or self.failure then return end
  self.failure = errors.closed("watch")
  self:unregister()
  self.watch:close()
end

--- Hides the dispatcher from later object watches.
function dispatcher_methods:unregister()
  local registry, codec = self.registry, self.decode or "none"
  local found = registry[codec]
  if not found or found[self.id] ~= self then return end
  found[self.id] = nil
  if next(found) == nil then registry[codec] = nil end
end

--- Returns the dispatcher for a codec and the keys that the text `id` identifies; or nil.
local function find(registry, id, decode_value)
  local found = registry[decode_value or "none"]
  return found and found[id]
end

--- Counts an entry that will be added, so that the dispatcher does not end before. Atomic.
local function reserve(self)
  self.count = self.count + 1
end

-- }======

--- Returns a dispatcher for the changes of a watch after its `revision`. One entry is counted, as by `reserve`. Until
-- the dispatcher ends, find(registry, id, decode_value) returns it.
local function new(watch, decode_value, registry, id)
  local self = setmetatable({
    watch = watch,
    decode = decode_value,  -- nil: values stay strings
    registry = registry,
    id = id,
    members = new_members(),
    removed = 0,            -- entries that were removed, and are still among the members
    count = 1,              -- entries that were not removed, with those that were reserved
    revision = watch.revision, -- everything up to it was distributed
    last_change = watch.revision, -- the revision of the last change, or the one before its start
    memory = {},            -- of transition.correct
    failure = nil,          -- the error that the dispatcher has ended with
    waiters = 0,            -- object watches that wait
    is_working = false,
    must_look_again = false,     -- pump was called while it worked
    has_refused = false,    -- an item was requested while its revision was being distributed
    counts = { changes = 0, decoded = 0, tested = 0 },
  }, dispatcher_mt)
  watch.arrival = { set = function() self:pump() end }
  local codec = decode_value or "none"
  local found = registry[codec] or {}
  registry[codec] = found
  found[id] = self
  return self
end

return {
  new = new, find = find, reserve = reserve, take = take, set_floor = set_floor, leave_behind = leave_behind,
}
