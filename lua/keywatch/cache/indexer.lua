-- SPDX-License-Identifier: MIT
--- indexer: objects by key, and by the values of named indexes.
--
-- Each object has a slot, a number: the arrays `keys`, `objects`, `revisions`, `creates` and `sizes` have the object's
-- data at that index, and `keys` has false for a free slot. An index puts an object into one set for each value that
-- the index function returns for the object:
--
--   slots     key -> slot
--   index     { values: slot -> value or list of values, places: slot -> place in the set, or list of places,
--               sets: value -> { n, count, [1 … n] = key or false } }
--
-- A key never moves inside of its set, and an object never changes its slot, unless the arrays are rebuilt; then the
-- old arrays stay as they are. So a running iterator survives every change: a key that exists during the whole
-- iteration is seen exactly once.
--
-- Functions of the program are called before a change, and may wait. The change itself does not wait, so no task sees
-- it incomplete. (A finalizer may: it finds an object by its old values, or by none.)

local check = require "keywatch.support.check"
local driver = require "keywatch.task.driver"
local errors = require "keywatch.support.errors"
local log = require "keywatch.support.log"
local slices = require "keywatch.task.slice"

local LEAST_SLOTS = 1024 -- shorter arrays are never rebuilt
local LEAST_PLACES = 16  -- the same for sets
local FILLED_AT_ONCE = 1000 -- objects that are added to a new index before other tasks run
local VALUE_TYPES = { string = true, number = true, boolean = true }

local indexer_methods = {}
local indexer_mt = { __index = indexer_methods }

-- {====== Values ======

--- Returns why a result of an index function is not a valid value; or nil.
local function why_invalid(value)
  if not VALUE_TYPES[type(value)] then
    return "it has returned " .. check.shown(value) .. ", and not a string, a number, a boolean or a list of these"
  end
  if value ~= value then return "it has returned NaN" end
end

--- Returns a copy of a list of values without duplicates; nil if it is empty. Raises if an entry is not a valid value.
local function copy_values(list)
  local copy, seen = {}, {}
  for i = 1, #list do
    local value = list[i]
    local trouble = why_invalid(value)
    if trouble then error(trouble, 0) end
    if not seen[value] then
      copy[#copy + 1] = value
      seen[value] = true
    end
  end
  if #copy > 1 then return copy end
  return copy[1]
end

--- Returns the value, or the list of values, of an object in an index. Raises if the function raises, or returns an
-- invalid value.
local function find_values(fn, object, key)
  local value = fn(object, key)
  if value == nil then return nil end
  if type(value) == "table" then return copy_values(value) end
  local trouble = why_invalid(value)
  if trouble then error(trouble, 0) end
  return value
end

--- Returns the value, or the list of values, of an object in an index. If the function fails, the object has none: the
-- first failure is logged, and all are counted.
local function values_of(index, object, key)
  local ok, found = driver.compute(find_values, index.fn, object, key)
  if ok then return found end
  index.failures = index.failures + 1
  if index.failures == 1 then
    log.warn("%s", ("the function of the index '%s' has failed for %s, which the index leaves out: %s"):format(
      index.name, check.shown(key), errors.text_of(found)))
  end
end

--- True if two results of values_of are the same.
local function are_same(a, b)
  if a == b then return true end
  if type(a) ~= "table" or type(b) ~= "table" or #a ~= #b then return false end
  for i = 1, #a do
    if a[i] ~= b[i] then return false end
  end
  return true
end

--- True if a value is one of those of an object.
local function has_value(values, value)
  if type(values) ~= "table" then return values == value end
  for i = 1, #values do
    if values[i] == value then return true end
  end
  return false
end

-- }======

-- {====== Sets ======

--- Makes sure that there is a set for a value.
local function ensure_set(index, value)
  index.sets[value] = index.sets[value] or { n = 0, count = 0 }
end

--- Adds a key to the set of a value. Returns its place there. Runs no other code.
local function enter(index, value, key)
  local set = index.sets[value]
  local place = set.n + 1
  set[place], set.n, set.count = key, place, set.count + 1
  return place
end

--- Removes the key at a place from the set of a value.
local function leave(index, value, place)
  local set = index.sets[value]
  set[place], set.count = false, set.count - 1
  if set.count == 0 then index.sets[value] = nil end
end

--- Notes the place of a key in the set of a value.
local function set_place(index, slot, value, place)
  local values, places = index.values[slot], index.places[slot]
  if type(values) ~= "table" then
    index.places[slot] = place
    return
  end
  for i = 1, #values do
    if values[i] == value then places[i] = place end
  end
end

--- Rebuilds a set if most of its places are free. Iterators keep the old one.
local function compact_set(self, index, value)
  local set = index.sets[value]
  if not set or set.n <= LEAST_PLACES or set.n < 2 * set.count then return end
  local fresh = { n = 0, count = 0 }
  if index.sets[value] ~= set then return end -- a finalizer has changed it
  index.sets[value] = fresh
  for place = 1, set.n do
    local key = set[place]
    if key then set_place(index, self.slots[key], value, enter(index, value, key)) end
  end
end

-- }======

-- {====== Indexes of one object ======

--- Prepares the sets for the values of an object.
local function prepare(index, values)
  if type(values) ~= "table" then
    if values ~= nil then ensure_set(index, values) end
    return nil
  end
  for i = 1, #values do ensure_set(index, values[i]) end
  return {}
end

--- Removes the sets of values that were prepared and are not used.
local function drop_empty(index, values)
  if type(values) ~= "table" then values = { values } end
  for i = 1, #values do
    local set = index.sets[values[i]]
    if set and set.count == 0 then index.sets[values[i]] = nil end
  end
end

--- Returns the place of a key in the set of a value, if that is one of its values; or nil.
local function place_of(values, places, value)
  if type(values) ~= "table" then return values == value and places or nil end
  for i = 1, #values do
    if values[i] == value then return places[i] end
  end
end

--- Takes a key out of the sets of its old values, unless they are among its new ones. Allocates nothing.
local function leave_all(index, old, old_places, values)
  if old == nil then return end
  if type(old) ~= "table" then
    if not has_value(values, old) then leave(index, old, old_places) end
    return
  end
  for i = 1, #old do
    if not has_value(values, old[i]) then leave(index, old[i], old_places[i]) end
  end
end

--- Puts a key into the sets of its values, which were prepared. In that of an old value it keeps its place. Allocates
-- nothing.
local function enter_all(index, slot, key, values, places, old, old_places)
  index.values[slot] = values
  if values == nil then
    index.places[slot] = nil
  elseif type(values) ~= "table" then
    index.places[slot] = place_of(old, old_places, values) or enter(index, values, key)
  else
    for i = 1, #values do
      places[i] = place_of(old, old_places, values[i]) or enter(index, values[i], key)
    end
    index.places[slot] = places
  end
end

--- Rebuilds the sets of values that have become too sparse.
local function compact_sets(self, index, values)
  if type(values) ~= "table" then
    if values ~= nil then compact_set(self, index, values) end
    return
  end
  for i = 1, #values do compact_set(self, index, values[i]) end
end

-- }======

-- {====== Slots ======

--- Rebuilds all arrays, without free slots. Iterators keep the old ones.
local function rebuild(self)
  local old_keys, old_slots = self.keys, self.slots
  local slots, keys, objects, revisions, creates, sizes, births, n = {}, {}, {}, {}, {}, {}, {}, 0
  local moved, free = {}, {}
  for i, index in ipairs(self.indexes) do moved[i] = { values = {}, places = {}, index = index } end
  if self.keys ~= old_keys then return end
  for slot = 1, self.n do
    local key = old_keys[slot]
    if key then
      n = n + 1
      slots[key], keys[n], objects[n] = n, key, self.objects[slot]
      revisions[n], creates[n], sizes[n] = self.revisions[slot], self.creates[slot], self.sizes[slot]
      births[n] = self.births[slot]
      for i = 1, #moved do
        local index = moved[i].index
        moved[i].values[n], moved[i].places[n] = index.values[slot], index.places[slot]
      end
    end
  end
  if self.slots ~= old_slots then return end
  self.slots, self.keys, self.objects, self.revisions, self.creates = slots, keys, objects, revisions, creates
  self.sizes, self.births, self.n, self.free, self.n_free = sizes, births, n, free, 0
  for i = 1, #moved do moved[i].index.values, moved[i].index.places = moved[i].values, moved[i].places end
end

--- Returns a free slot.
local function take_slot(self)
  local n_free = self.n_free
  if n_free > 0 then
    local slot = self.free[n_free]
    self.free[n_free], self.n_free = nil, n_free - 1
    return slot
  end
  self.n = self.n + 1
  return self.n
end

-- }======

--- Finds the values of an object in each index, and puts them into `found`, and lists for their places into `places`.
-- Makes the sets of the values. A function of the program may wait, and another task may add an index.
local function find_all(self, object, key)
  local found, places, i = self.found, self.places, 0
  while i < #self.indexes do
    i = i + 1
    found[i] = values_of(self.indexes[i], object, key)
  end
  for k = 1, i do places[k] = prepare(self.indexes[k], found[k]) end
end

--- Moves a key from the sets of its old values to those that find_all has found. Returns the old values, or nil if they
-- are the same.
local function reindex(self, i, slot, key)
  local index, values = self.indexes[i], self.found[i]
  local old = index.values[slot]
  if are_same(old, values) then return nil end
  local old_places = index.places[slot]
  enter_all(index, slot, key, values, self.places[i], old, old_places)
  leave_all(index, old, old_places, values)
  return old
end

--- Sets the object of a key, with its revision, its create revision, and the bytes of its value. Returns its slot. Only
-- one task may call this.
function indexer_methods:set(key, object, revision, create, size)
  if self.indexes[1] then
    find_all(self, object, key)
    self.after_functions() -- may raise
  end
  local indexes = self.indexes
  local n = #indexes
  local slot = self.slots[key]
  if not slot then
    slot = take_slot(self)
    self.slots[key], self.keys[slot], self.count = slot, key, self.count + 1
    self.births[slot], self.born = self.born + 1, self.born + 1
  end
  self.objects[slot], self.revisions[slot], self.creates[slot], self.sizes[slot] = object, revision, create, size
  for i = 1, n do self.found[i] = reindex(self, i, slot, key) end
  for i = 1, n do compact_sets(self, indexes[i], self.found[i]) end
  return slot
end

--- Removes the object of a key. Returns its slot, or nil if there was none.
function indexer_methods:remove(key)
  local slot = self.slots[key]
  if not slot then return nil end
  self.slots[key], self.keys[slot], self.count = nil, false, self.count - 1
  self.objects[slot], self.revisions[slot], self.creates[slot], self.sizes[slot] = false, false, false, 0
  self.n_free = self.n_free + 1
  self.free[self.n_free] = slot
  for i = 1, #self.indexes do
    local index = self.indexes[i]
    self.found[i] = index.values[slot]
    leave_all(index, index.values[slot], index.places[slot])
    index.values[slot], index.places[slot] = nil, nil
  end
  for i = 1, #self.indexes do compact_sets(self, self.indexes[i], self.found[i]) end
  if self.n > LEAST_SLOTS and self.count < self.n / 4 and self.walks == 0 then rebuild(self) end
  return slot
end

--- Returns the object of a key and its revision, or nil.
function indexer_methods:get(key)
  local slot = self.slots[key]
  if slot then return self.objects[slot], self.revisions[slot] end
end

--- Returns an iterator over keys and objects.
function indexer_methods:each()
  local keys, n, at = self.keys, self.n, 0
  return function()
    while at < n do
      at = at + 1
      local key = keys[at]
      local slot = key and self.slots[key]
      if slot then return key, self.objects[slot] end
    end
  end
end

-- {====== Indexes ======

--- Returns the index of a name, or nil.
function indexer_methods:index(name)
  return self.by_name[name]
end

--- Adds the existing objects to an index. The function of the program may wait, and other tasks run in between: objects
-- that are set during the walk are added to the index directly.
local function fill(self, index)
  local slot, slice = 0, slices.new(FILLED_AT_ONCE)
  while slot < self.n do
    slot = slot + 1
    local keys = self.keys
    local key, object = keys[slot], self.objects[slot]
    if key and index.values[slot] == nil then
      local values = values_of(index, object, key)
      local places = prepare(index, values)
      if self.keys ~= keys then -- rebuilt
        slot = 0
        drop_empty(index, values)
      elseif keys[slot] == key and rawequal(self.objects[slot], object) and index.values[slot] == nil then
        enter_all(index, slot, key, values, places)
      else
        drop_empty(index, values)
      end
      slices.pass(slice)
      if self.keys ~= keys then slot = 0 end
    end
  end
end

--- Removes an index.
local function remove_index(self, index)
  local rest = {}
  for _, one in ipairs(self.indexes) do
    if one ~= index then rest[#rest + 1] = one end
  end
  self.indexes, self.by_name[index.name] = rest, nil
end

--- Removes an index whose task was cancelled or killed, and wakes the tasks that wait for the index.
local function undo_fill(filling)
  remove_index(filling.indexer, filling.index)
  filling.index.filled:set_for_all()
end

--- Adds an index of all objects. Its field is_filled is true when all objects are in it.
function indexer_methods:add_index(name, fn)
  local index = {
    name = name, fn = fn, values = {}, places = {}, sets = {}, failures = 0, is_filled = false,
    filled = driver.get().event(), filler = driver.get().current(),
  }
  local list = {}
  for i, one in ipairs(self.indexes) do list[i] = one end
  list[#list + 1] = index
  self.indexes, self.by_name[name] = list, index
  local filling = { indexer = self, index = index }
  local ok, raised = driver.protect(undo_fill, filling, fill, self, index)
  if not ok then -- the task was cancelled
    undo_fill(filling)
    error(raised, 0)
  end
  index.is_filled = true
  index.filled:set_for_all()
end

--- Returns an iterator over the keys and objects that have a value in an index.
function indexer_methods:by_index(index, value)
  local set, at = index.sets[value], 0
  local n = set and set.n or 0
  return function()
    while at < n do
      at = at + 1
      local key = set[at]
      local slot = key and self.slots[key]
      if slot and has_value(index.values[slot], value) then return key, self.objects[slot] end
    end
  end
end

--- Returns the number of objects that have a value in an index.
function indexer_methods.count_of(_, index, value)
  local set = index.sets[value]
  return set and set.count or 0
end

--- Returns an iterator over the values of an index, and how many objects have each. The values are the present ones.
function indexer_methods.values_of(_, index)
  local list, at = {}, 0
  for value in pairs(index.sets) do list[#list + 1] = value end
  return function()
    while at < #list do
      at = at + 1
      local set = index.sets[list[at]]
      if set then return list[at], set.count end
    end
  end
end

-- }======

--- Returns a new indexer without objects. after_functions() is called after the program's functions, and before a
-- change. It may raise.
local function new(after_functions)
  return setmetatable({
    after_functions = after_functions,
    slots = {}, keys = {}, objects = {}, revisions = {}, creates = {}, sizes = {},
    births = {},   -- the serial number of the object
    born = 0,      -- the last serial number
    n = 0,         -- slots
    count = 0,     -- objects
    free = {},     -- free slots
    n_free = 0,
    walks = 0,     -- handlers that are walking over the objects: slots keep their numbers
    indexes = {},  -- in the order in which they were added
    by_name = {},
    found = {}, places = {}, -- by index: of the object that is being set
  }, indexer_mt)
end

return { new = new }
