-- SPDX-License-Identifier: MIT
--- registry: writes the objects of one kind.
--
-- A change is made by a transaction that compares the revision of the object, and is computed again if another writer
-- was faster. It begins with the object of the cache, which may be old: a change that fails, or changes nothing, is
-- computed once more with the object of the store, so that no refusal is due to an old object. Who runs beside whom
-- makes no difference: several programs may write to the same store.
--
-- Options of all methods: dry_run; field_validation, "Ignore", "Warn" (default) or "Strict"; user, for the program's
-- functions; subresource. Objects that are given to a method belong to it from then on. Methods return an entry and a
-- list of warnings; or nil and an error of status_error.lua. After an error with maybe_done the write may have been
-- made.

local check = require "keywatch.support.check"
local entries = require "keywatch.kubernetes.entry"
local errors = require "keywatch.support.errors"
local expiries = require "keywatch.kubernetes.expiry"
local metadata = require "keywatch.kubernetes.metadata"
local patches = require "keywatch.kubernetes.patch"
local scales = require "keywatch.kubernetes.scale"
local schemas = require "keywatch.kubernetes.schema"
local slices = require "keywatch.task.slice"
local status_error = require "keywatch.kubernetes.status_error"
local strategy = require "keywatch.kubernetes.strategy"
local value = require "keywatch.kubernetes.value"

local MAX_ATTEMPTS = 100 -- of a change, while other writers are faster
local MAX_NAMES = 8      -- generated names that are tried
local MAX_TEXT = 3 * 1024 * 1024 -- bytes of a stored object
local ORPHAN, FOREGROUND = "orphan", "foregroundDeletion"

local registry_methods = {}
local registry_mt = { __name = "keywatch.kubernetes.registry", __index = registry_methods }

-- {====== Storing ======

--- Returns the entry of a kv, or nil.
local function entry_of(key, kv)
  return kv and entries.of(key, kv.value, kv.mod_revision) or nil
end

--- Reads an object from the store. Returns its entry; nil if there is none; or nil and an error.
local function read(self, key)
  local kv, err = self.owner:get(self.kind.prefix .. key)
  if err then return nil, status_error.from(err) end
  return entry_of(key, kv)
end

--- Returns the entry of the cache, nil if there is none, and false; or what `read` returns, and true.
local function suggestion(self, key)
  if self.cache:is_ready() and not self.is_local then
    local kv = self.cache:get(self.kind.prefix .. key)
    if kv then return entry_of(key, kv), nil, false end
  end
  local entry, err = read(self, key)
  return entry, err, true
end

--- Makes the transaction of `swap`. Returns its result; or nil and an error.
local function try_swap(self, key, current, text)
  local outer = self.kind.prefix .. key
  local lease, err
  if self.expiry and text then
    lease, err = self.expiry:lease()
    if not lease then return nil, err end
  end
  local result, failed = self.owner:txn {
    compare = { { key = outer, mod_revision = current and current.revision or 0 } },
    success = { text and { put = outer, value = text, lease = lease } or { delete = outer } },
    failure = { { get = outer } },
  }
  if not result and failed.code == "lease_not_found" then self.expiry:forget(lease) end
  return result, failed
end

--- Writes an object if it is still at the revision of `current`, or does not exist if that is nil. `text` is the new
-- text, nil to delete it. Returns its new entry; or nil and an error; or nil, nil, and the entry that is there, or nil.
local function swap(self, key, current, text)
  local result, err = try_swap(self, key, current, text)
  if not result and err.code == "lease_not_found" then result, err = try_swap(self, key, current, text) end
  if not result then return nil, status_error.from(err) end
  if result.succeeded then return entries.of(key, text or current.text, result.revision) end
  return nil, nil, entry_of(key, result.responses[1] or nil)
end

--- Returns the text of an object as it is stored; or nil and an error.
local function text_of(object)
  local text, err = entries.encode(object)
  if not text then return nil, status_error.bad_request(errors.text_of(err)) end
  if #text > MAX_TEXT then return nil, status_error.too_large(MAX_TEXT) end
  return text
end

--- Does what a change has computed. Returns the result of the method; or nil and an error; or nil, nil and the entry
-- that is there, if another writer was faster.
local function apply(self, key, current, step, opts)
  if step.is_unchanged then return step.show or current end
  if opts.dry_run then return step.show or entries.of(key, step.text or current.text, current.revision) end
  local entry, err, other = swap(self, key, current, step.text)
  if not entry then return nil, err, other end
  return step.show or entry
end

--- Changes an object. change(current) gets its entry, or nil, and returns a step: the text to be stored, nil to delete
-- the object; the entry to `show` in answer, if it is not that of the text; and whether nothing changes. Or it returns
-- nil and an error. Returns the entry and the step; or nil and an error.
local function modify(self, key, opts, change)
  local current, err, is_fresh = suggestion(self, key)
  if err then return nil, err end
  for _ = 1, MAX_ATTEMPTS do
    local step, failed = change(current)
    if not is_fresh and (not step or step.is_unchanged) then
      current, err = read(self, key)
      if err then return nil, err end
      is_fresh = true
    elseif not step then
      return nil, failed
    else
      local entry, why, other = apply(self, key, current, step, opts)
      if entry then return entry, step end
      if why then return nil, why end
      current, is_fresh = other, true
    end
  end
  return nil, status_error.conflict(self.kind, key:match("[^/]*$"), "other writers were faster too often")
end

-- }======

-- {====== Names ======

--- Returns the name of an object in its key.
local function name_in(key)
  return key:match("[^/]*$")
end

--- Completes namespace and name of an object, or returns an error if they are others. `namespace` and `name` are those
-- of the request, or nil.
local function check_place(kind, object, namespace, name)
  local err = strategy.shape_error(object)
  if err then return err end
  if value.is_nothing(object.metadata) then object.metadata = {} end
  local own = object.metadata
  for _, field in ipairs { "name", "namespace" } do
    if value.is_nothing(own[field]) or own[field] == "" then own[field] = nil end
  end
  if kind.is_namespaced and namespace then
    own.namespace = own.namespace or namespace
    if own.namespace ~= namespace then
      return status_error.bad_request(
        "the namespace of the provided object does not match the namespace sent on the request")
    end
  end
  if name then
    own.name = own.name or name
    if own.name ~= name then
      return status_error.bad_request(("the name of the object (%s) does not match the name on the URL (%s)"):format(
        own.name, name))
    end
  end
end

--- Returns the key of an object; nil if it has no name, or lacks its namespace, or these would lead elsewhere.
local function key_in(kind, object)
  local name, namespace = object.metadata.name, object.metadata.namespace
  if not name or name:find("/", 1, true) then return nil end
  if not kind.is_namespaced then return name end
  if not namespace or namespace:find("/", 1, true) then return nil end
  return namespace .. "/" .. name
end

--- Returns the key of an object that a program gives; or nil and an error. `namespace` is that of the handle, or nil.
function registry_methods:key_of(object, namespace)
  local err = strategy.shape_error(object)
  if err then return nil, err end
  local own = value.is_object(object.metadata) and object.metadata or {}
  local key = key_in(self.kind, { metadata = { name = own.name, namespace = own.namespace or namespace } })
  if key then return key end
  return nil, status_error.bad_request("metadata must have a name, and the namespace of a namespaced kind")
end

-- }======

-- {====== Creating ======

--- Returns the resource of namespaces, if the API has it.
local function namespaces_of(api)
  for _, resource in ipairs(api.resources) do
    if resource.kind.name == "namespaces" then return resource end
  end
end

--- Returns the error of a namespace that does not exist, or is being deleted; nil if objects can be created in it.
-- Namespaces are implicit unless they are a resource of the API. The namespace "default" is created if it is missing.
local function namespace_error(self, namespace, is_dry)
  local resource = self.kind.is_namespaced and namespaces_of(self.api)
  if not resource then return nil end
  local registry = resource.registry
  local entry, err = suggestion(registry, namespace)
  if err then return err end
  if not entry and namespace == "default" then
    local made, why = registry:create(nil, { metadata = { name = namespace } }, { dry_run = is_dry })
    return not made and why.reason ~= "AlreadyExists" and why or nil
  end
  if not entry then return status_error.not_found(resource.kind, namespace) end
  local object = entries.object(entry)
  if not object or not object.metadata.deletionTimestamp then return nil end
  return status_error.refused(self.kind, nil, ("unable to create new content in namespace %s because it is being "
    .. "terminated"):format(namespace))
end

--- Creates an object under a name. Returns the entry and the warnings; or nil and an error.
local function create_named(self, object, key, opts)
  local made, warnings = strategy.create(self.kind, object, key, opts)
  if not made then return nil, warnings end
  if key_in(self.kind, made) ~= key then
    return nil, status_error.internal "the function mutate has changed the name of the object"
  end
  local text, err = text_of(made)
  if not text then return nil, err end
  if opts.dry_run then
    local other, failed = read(self, key)
    if failed then return nil, failed end
    if other then return nil, status_error.already_exists(self.kind, name_in(key)) end
    return entries.of(key, text, 0), warnings
  end
  local entry, failed = swap(self, key, nil, text)
  if entry then return entry, warnings end
  return nil, failed or status_error.already_exists(self.kind, name_in(key))
end

--- Creates an object in a namespace; nil: the one of the object.
function registry_methods:create(namespace, object, opts)
  local err = check_place(self.kind, object, namespace)
  if err then return nil, err end
  local own = object.metadata
  if not value.is_nothing(own.resourceVersion) and own.resourceVersion ~= "" then
    return nil, status_error.bad_request("resourceVersion should not be set on objects to be created")
  end
  if own.namespace and self.kind.is_namespaced then
    err = namespace_error(self, own.namespace, opts.dry_run)
    if err then return nil, err end
  end
  local prefix = not own.name and type(own.generateName) == "string" and own.generateName ~= "" and own.generateName
  local entry, warnings
  for _ = 1, prefix and MAX_NAMES or 1 do
    local attempt = prefix and value.copy(object) or object
    if prefix then attempt.metadata.name = metadata.generate_name(prefix) end
    local key = key_in(self.kind, attempt)
    entry, warnings = create_named(self, attempt, key or "", opts)
    if entry then return entry, warnings end
    if warnings.reason ~= "AlreadyExists" then break end
  end
  return nil, warnings
end

-- }======

-- {====== Replacing ======

--- Returns the error of a resourceVersion that is not that of the object; nil if it is, or if there is none.
local function version_error(self, key, object, current)
  local version = object.metadata and object.metadata.resourceVersion
  if value.is_nothing(version) or version == "" then return nil end
  if version ~= ("%d"):format(current.revision) then return status_error.conflict(self.kind, name_in(key)) end
end

--- Returns the error of a uid that is not that of the object; nil if it is, or if there is none.
local function uid_error(self, key, uid, old)
  if value.is_nothing(uid) or uid == "" or uid == old.metadata.uid then return nil end
  return status_error.conflict(self.kind, name_in(key),
    ("Precondition failed: UID in precondition: %s, UID in object meta: %s"):format(tostring(uid),
      tostring(old.metadata.uid)))
end

--- Returns the step that stores an object in place of `current`; or nil and an error. The last finalizer of an object
-- that is being deleted deletes it.
local function replacing(self, key, object, current, old, opts)
  local made, warnings = strategy.update(self.kind, object, old, key, opts)
  if not made then return nil, warnings end
  if key_in(self.kind, made) ~= key then
    return nil, status_error.internal "the function mutate has changed the name of the object"
  end
  local text, err = text_of(made)
  if not text then return nil, err end
  if made.metadata.deletionTimestamp and not made.metadata.finalizers then
    return { text = nil, show = entries.of(key, text, current.revision), warnings = warnings }
  end
  made.metadata.resourceVersion = old.metadata.resourceVersion
  local is_unchanged = text == current.text or value.equal(made, old)
  return { text = text, is_unchanged = is_unchanged, warnings = warnings }
end

--- Returns the object of an entry as the schema has it now; or nil and an error. It must not be changed.
local function known_object(self, entry)
  local schema = self.kind.schema
  if not schema then return entries.object(entry) end
  local object, err = entries.copy(entry)
  if not object then return nil, err end
  schemas.prune(schema, object)
  schemas.apply_defaults(schema, object)
  return object
end

--- Replaces an object by the one that make(old, current) returns, or nil and an error. Returns the entry and the
-- warnings; or nil and an error.
local function replace(self, key, opts, make)
  local entry, step = modify(self, key, opts, function(current)
    if not current then return nil, status_error.not_found(self.kind, name_in(key)) end
    local old, err = known_object(self, current)
    if not old then return nil, err end
    local object, failed = make(old, current)
    if not object then return nil, failed end
    local namespace = key:match("^([^/]*)/")
    err = check_place(self.kind, object, namespace, name_in(key)) or version_error(self, key, object, current)
      or uid_error(self, key, object.metadata.uid, old)
    if err then return nil, err end
    return replacing(self, key, object, current, old, opts)
  end)
  if not entry then return nil, step end
  return entry, step.warnings
end

--- Replaces an object. Unless the kind is one of Kubernetes' own, the object must have a resourceVersion.
function registry_methods:update(key, object, opts)
  local err = check_place(self.kind, object, key:match("^([^/]*)/"), name_in(key))
  if err then return nil, err end
  local version, is_missing = object.metadata.resourceVersion, nil
  if (value.is_nothing(version) or version == "") and not self.kind.is_builtin then
    is_missing = status_error.invalid(self.kind, name_in(key), { {
      reason = "FieldValueInvalid", field = "metadata.resourceVersion",
      message = "Invalid value: 0x0: must be specified for an update",
    } })
  end
  return replace(self, key, opts, function()
    if is_missing then return nil, is_missing end
    return value.copy(object)
  end)
end

-- {====== Patches ======

--- True if a strategic merge patch means the same as a merge patch.
local function is_plain(patch)
  for name, inner in pairs(patch) do
    if type(name) == "string" and name:sub(1, 1) == "$" then return false end
    if type(inner) == "table" and (value.is_array(inner) or not is_plain(inner)) then return false end
  end
  return true
end

local ACCEPTED = "application/json-patch+json, application/merge-patch+json"

--- Returns the function that applies patches of a type; or nil and an error.
local function patcher_of(self, kind_of_patch, patch)
  if kind_of_patch == "json" then return patches.json end
  if kind_of_patch == "merge" then return patches.merge end
  if self.kind.is_strategic and kind_of_patch == "strategic" and value.is_object(patch) and is_plain(patch) then
    return patches.merge
  end
  return nil, status_error.unsupported_media_type(ACCEPTED)
end

--- Changes an object by a patch, of the type "merge", "json" or "strategic".
function registry_methods:patch(key, kind_of_patch, patch, opts)
  local apply_patch, err = patcher_of(self, kind_of_patch, patch)
  if not apply_patch then return nil, err end
  return replace(self, key, opts, function(old) return apply_patch(old, patch) end)
end

-- }======

-- {====== Scale ======

--- Returns the Scale of an object; or nil and an error.
function registry_methods:scale(key)
  local entry, err = read(self, key)
  if err then return nil, err end
  if not entry then return nil, status_error.not_found(self.kind, name_in(key)) end
  local object, failed = entries.object(entry)
  if not object then return nil, failed end
  return scales.of(self.kind, object)
end

--- Sets the replicas of an object to those of the Scale that make(scale) returns, or nil and an error. Returns the new
-- Scale and the warnings; or nil and an error.
local function rescale(self, key, opts, make)
  local own = check.copy(opts, "subresource")
  local entry, warnings = replace(self, key, own, function(old)
    local before, err = scales.of(self.kind, old)
    local scale, failed = make(before, err)
    if not scale then return nil, failed end
    local replicas, why = scales.wanted(scale)
    if not replicas then return nil, why end
    local object = value.copy(old)
    local wanted = value.is_object(scale.metadata) and scale.metadata or {}
    object.metadata.resourceVersion = wanted.resourceVersion
    object.metadata.uid = wanted.uid or object.metadata.uid
    if not scales.set(object, self.kind.scale.replicas, replicas) then
      return nil, status_error.bad_request("the object has no place for the replicas")
    end
    return object
  end)
  if not entry then return nil, warnings end
  local object, err = entries.object(entry)
  if not object then return nil, err end
  local scale, failed = scales.of(self.kind, object)
  if not scale then return nil, failed end
  return scale, warnings
end

--- Replaces the Scale of an object. Returns the new one and the warnings; or nil and an error.
function registry_methods:update_scale(key, scale, opts)
  return rescale(self, key, opts, function() return scale end)
end

--- Changes the Scale of an object by a patch. Returns the new one and the warnings; or nil and an error.
function registry_methods:patch_scale(key, kind_of_patch, patch, opts)
  local apply_patch, err = patcher_of(self, kind_of_patch == "strategic" and "merge" or kind_of_patch, patch)
  if not apply_patch then return nil, err end
  return rescale(self, key, opts, function(before, why)
    if not before then return nil, why end
    return apply_patch(before, patch)
  end)
end

-- }======

-- {====== Deleting ======

--- Returns the finalizers of an object that is deleted in a way, sorted as before; nil if there are none.
local function finalizers_of(object, propagation)
  local list = {}
  for _, name in ipairs(object.metadata.finalizers or {}) do
    if not propagation or name ~= ORPHAN and name ~= FOREGROUND then list[#list + 1] = name end
  end
  if propagation == "Orphan" then list[#list + 1] = ORPHAN end
  if propagation == "Foreground" then list[#list + 1] = FOREGROUND end
  return list[1] and value.array(list) or nil
end

--- Returns the error of a precondition that does not hold; nil if all do.
local function precondition_error(self, key, preconditions, current, old)
  if not preconditions then return nil end
  local err = uid_error(self, key, preconditions.uid, old)
  local version = preconditions.resourceVersion
  if err or value.is_nothing(version) or version == ("%d"):format(current.revision) then return err end
  return status_error.conflict(self.kind, name_in(key), ("Precondition failed: the ResourceVersion in the precondition "
    .. "(%s) does not match the ResourceVersion in record (%d). The object might have been modified"):format(
    tostring(version), current.revision))
end

--- Returns the step that marks an object as being deleted; or nil and an error.
local function marking(self, object, finalizers, current)
  local own = object.metadata
  local is_marked = own.deletionTimestamp ~= nil
  if is_marked and value.equal(finalizers, own.finalizers) then return { is_unchanged = true } end
  own.finalizers = finalizers
  if not is_marked then
    own.deletionTimestamp, own.deletionGracePeriodSeconds = metadata.now(), 0
    if not self.kind.is_builtin then own.generation = (own.generation or 0) + 1 end
  end
  local text, err = text_of(object)
  if not text then return nil, err end
  return { text = text, is_unchanged = text == current.text }
end

--- Deletes an object, or marks it as being deleted if it has finalizers. Options: preconditions, { uid,
-- resourceVersion }; propagation, "Background", "Foreground" or "Orphan", which adds a finalizer for a garbage
-- collector. Returns the last entry, and whether the object is gone; or nil and an error.
function registry_methods:delete(key, opts)
  local entry, step = modify(self, key, opts, function(current)
    if not current then return nil, status_error.not_found(self.kind, name_in(key)) end
    local old, err = entries.object(current)
    if not old then return nil, err end
    err = precondition_error(self, key, opts.preconditions, current, old)
    if err then return nil, err end
    local finalizers = finalizers_of(old, opts.propagation)
    if not finalizers then return { text = nil, is_gone = true } end
    return marking(self, value.copy(old), finalizers, current)
  end)
  if not entry then return nil, step end
  return entry, step.is_gone == true
end

--- Deletes the objects of a list; its options, see reads.lua, are among `opts`. Returns the list of their last entries;
-- or nil and an error.
function registry_methods:delete_collection(opts)
  local list, err = self.resource.reads:list {
    namespace = opts.namespace, filter = opts.filter, limit = opts.limit, continue = opts.continue,
    resource_version = opts.resource_version, resource_version_match = opts.resource_version_match,
  }
  if not list then return nil, err end
  local all, failed = list:entries()
  if not all then return nil, failed end
  local deleted, slice = {}, slices.new(1)
  for _, one in ipairs(all) do
    local entry, why = self:delete(one.key, opts)
    if not entry and why.reason ~= "NotFound" then return nil, why end
    deleted[#deleted + 1] = entry
    slices.pass(slice)
  end
  return deleted
end

-- }======

--- Returns the registry of a resource: see api.lua.
local function new(resource)
  local owner = resource.api.store
  return setmetatable({
    resource = resource, api = resource.api, kind = resource.kind, cache = resource.cache, owner = owner,
    is_local = not resource.cache.is_whole, -- the cache is the store
    expiry = resource.kind.ttl and expiries.new(owner, resource.kind.ttl), -- or nil: objects stay
  }, registry_mt)
end

return { new = new }
