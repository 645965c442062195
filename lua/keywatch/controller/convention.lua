-- SPDX-License-Identifier: MIT
--- convention: the fields of objects for ownership, finalizers and deletion: see docs/ownership.md. Objects are JSON,
-- and these fields are members of their member `metadata`:
--
--   owner        the key of the object that this one belongs to
--   finalizers   a list of names: work to do before the key may be deleted
--   deleting     true once the deletion was requested
--
-- delete() requests a deletion: the key of an object without finalizers is deleted, other objects get the mark. Each
-- owner of a finalizer sees the mark, does its work and calls remove_finalizer(); the last one deletes the key. All
-- changes are transactions that compare the revision, and are repeated if the key has changed in between. They change
-- only the text of these fields, and keep the lease of the key. A plain delete of the key ignores finalizers.
--
-- An object with malformed fields is not changed: the error is "malformed".

local check = require "keywatch.support.check"
local core = require "keywatch.core"
local driver = require "keywatch.task.driver"
local errors = require "keywatch.support.errors"
local json = require "keywatch.support.json_text"

local ATTEMPTS = 100 -- of a change that conflicts with other writers

-- {====== Objects ======

--- Returns the metadata of a decoded object, or nil. Raises if the object is a text.
local function metadata_of(object, name)
  if type(object) == "string" then
    check.misuse("%s: the object is a string, and not decoded: give the informer the codec 'json'", name)
  end
  local metadata = type(object) == "table" and object.metadata
  return type(metadata) == "table" and metadata or nil
end

--- Returns the key of the owner of an object, or nil.
local function owner_of(object)
  local metadata = metadata_of(object, "owner_of")
  local owner = metadata and metadata.owner
  return type(owner) == "string" and owner or nil
end

--- True if the deletion of an object was requested.
local function is_deleting(object)
  local metadata = metadata_of(object, "is_deleting")
  return metadata ~= nil and metadata.deleting == true
end

--- True if an object has a finalizer.
local function has_finalizer(object, name)
  local metadata = metadata_of(object, "has_finalizer")
  check.argument(type(name) == "string", 2, "has_finalizer", "string", name)
  local list = metadata and metadata.finalizers
  for _, one in ipairs(type(list) == "table" and list or {}) do
    if one == name then return true end
  end
  return false
end

-- }======

-- {====== Texts ======

--- Returns the member with a name, its value as JSON, and the first byte of the value; nil if the member is absent or
-- null.
local function member_of(text, items, name)
  local member = items and json.find(items, name)
  local value = member and json.value_of(text, member)
  if not member or value == "null" then return nil end
  return member, value, value:sub(1, 1)
end

--- Returns the items of a list of strings, and the strings; or nil if an element is not a string.
local function strings_of(text, member)
  local items, strings = json.items_of(text, member.value), {}
  for i, item in ipairs(items) do
    strings[i] = json.string_of(text, item)
    if not strings[i] then return nil end
  end
  return items, strings
end

--- Reads the fields of an object. Returns { text, items = of the object, metadata = the items of its metadata or nil,
-- is_deleting, names = the finalizers, list = the items of their list or nil }; or nil and the reason.
local function read(text)
  local items = json.open(text)
  if not items then return nil, "it is not a JSON object" end
  local self = { text = text, items = items, metadata = nil, is_deleting = false, names = {}, list = nil }
  local metadata, _, first = member_of(text, items, "metadata")
  if not metadata then return self end
  if first ~= "{" then return nil, "its 'metadata' is not an object" end
  self.metadata = json.items_of(text, metadata.value)
  local _, mark = member_of(text, self.metadata, "deleting")
  if mark ~= nil and mark ~= "true" and mark ~= "false" then return nil, "its 'metadata.deleting' is not a boolean" end
  self.is_deleting = mark == "true"
  local finalizers
  finalizers, _, first = member_of(text, self.metadata, "finalizers")
  if not finalizers then return self end
  if first == "[" then self.list, self.names = strings_of(text, finalizers) end
  if not self.list then return nil, "its 'metadata.finalizers' is not a list of strings" end
  return self
end

--- True if an object that was read has a finalizer.
local function has_name(self, name)
  for _, one in ipairs(self.names) do
    if one == name then return true end
  end
  return false
end

--- Returns the text of an object with a member in its metadata: `value` is JSON.
local function set(self, name, value)
  local text = self.text
  if not self.metadata then
    local member, object = json.find(self.items, "metadata"), ('{"%s":%s}'):format(name, value)
    if member then return json.replace(text, member, object) end -- it is null
    return json.append(text, self.items, '"metadata":' .. object)
  end
  local member = json.find(self.metadata, name)
  if member then return json.replace(text, member, value) end
  return json.append(text, self.metadata, ('"%s":%s'):format(name, value))
end

--- Returns the text of an object with another finalizer.
local function with_finalizer(self, name)
  local quoted = core.json_encode(name)
  if self.list then return json.append(self.text, self.list, quoted) end
  return set(self, "finalizers", "[" .. quoted .. "]")
end

--- Returns the text of an object without a finalizer. With the last finalizer all members of the name are removed,
-- since an earlier one would count otherwise.
local function without_finalizer(self, name, is_last)
  if is_last then
    return json.remove(self.text, self.metadata, function(item) return item.name == "finalizers" end)
  end
  return json.remove(self.text, self.list, function(item) return json.string_of(self.text, item) == name end)
end

-- }======

-- {====== Changes ======

--- Raises if the arguments of a function that changes an object are invalid. Returns the options of its requests.
local function check_arguments(fn, store, key, opts)
  check.argument(check.is_store_like(store), 1, fn, "a store, a client, a namespace or a fence", store)
  check.argument(type(key) == "string", 2, fn, "string", key)
  opts = check.times(opts, fn)
  return { deadline = opts.deadline or opts.timeout and driver.get().now() + opts.timeout or nil }
end

--- Raises if a name is not valid for a finalizer.
local function check_name(fn, name)
  check.argument(type(name) == "string", 3, fn, "string", name)
  if name == "" then check.misuse("%s: the name of the finalizer is empty", fn) end
  if not core.json_encode(name) then check.misuse("%s: the name of the finalizer is not UTF-8", fn) end
end

--- Returns the error of a malformed object.
local function malformed(fn, key, what)
  return errors.new("malformed", ("keywatch: %s: the value of %s is malformed, and was not changed: %s"):format(fn,
    check.shown(key), what))
end

--- Writes the result of a change, if the key still has the revision. Returns the result of the transaction, or nil
-- and an error. In the failure branch the key is read again.
local function commit(fn, store, key, revision, outcome, times)
  local op = outcome == "delete" and { delete = key } or { put = key, value = outcome, ignore_lease = true }
  return check.call(fn, store.txn, store, {
    compare = { { key = key, mod_revision = revision } },
    success = { op },
    failure = { { get = key } },
    deadline = times.deadline,
  })
end

--- Changes the object of a key. compute(object) returns the new text, "delete", or nil or false for no change. Returns
-- true if the key was changed, false if not; or nil and an error.
local function change(fn, store, key, compute, times)
  local kv, err = check.call(fn, store.get, store, key, times)
  if err then return nil, err end
  for _ = 1, ATTEMPTS do
    if not kv then return false end
    local object, what = read(kv.value)
    if not object then return nil, malformed(fn, key, what) end
    local outcome = compute(object)
    if not outcome then return false end
    local result
    result, err = commit(fn, store, key, kv.mod_revision, outcome, times)
    if not result then return nil, err end
    if result.succeeded then return true end
    kv = result.responses[1]
  end
  return nil, errors.new("aborted", ("keywatch: %s: %s has changed before each of %d attempts"):format(fn,
    check.shown(key), ATTEMPTS))
end

--- Requests the deletion of an object: deletes the key, or marks the object if it has finalizers. Returns true if that
-- was done, false if the key is gone or marked; or nil and an error.
local function delete(store, key, opts)
  local times = check_arguments("delete", store, key, opts)
  return check.results(change("delete", store, key, function(object)
    if #object.names == 0 then return "delete" end
    return not object.is_deleting and set(object, "deleting", "true")
  end, times))
end

--- Adds a finalizer to an object, unless its deletion was requested. Returns true if that was done; false if the object
-- has it, is being deleted, or does not exist; or nil and an error.
local function add_finalizer(store, key, name, opts)
  check_name("add_finalizer", name)
  local times = check_arguments("add_finalizer", store, key, opts)
  return check.results(change("add_finalizer", store, key, function(object)
    return not object.is_deleting and not has_name(object, name) and with_finalizer(object, name)
  end, times))
end

--- Removes a finalizer from an object. With the last finalizer, the key of an object whose deletion was requested is
-- deleted. Returns true if that was done; false if the object does not have it, or does not exist; or nil and an error.
local function remove_finalizer(store, key, name, opts)
  check_name("remove_finalizer", name)
  local times = check_arguments("remove_finalizer", store, key, opts)
  return check.results(change("remove_finalizer", store, key, function(object)
    if not has_name(object, name) then return nil end
    local is_last = true
    for _, one in ipairs(object.names) do is_last = is_last and one == name end
    if is_last and object.is_deleting then return "delete" end
    return without_finalizer(object, name, is_last)
  end, times))
end

-- }======

return {
  owner_of = owner_of, is_deleting = is_deleting, has_finalizer = has_finalizer, delete = delete,
  add_finalizer = add_finalizer, remove_finalizer = remove_finalizer,
}
