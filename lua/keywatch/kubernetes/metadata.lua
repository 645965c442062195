-- SPDX-License-Identifier: MIT
--- metadata: the metadata of objects. A request's object goes through these functions in this order:
--
--   shape_error   an error if apiVersion, kind or a field of metadata has a wrong type
--   prune         removes unknown and empty fields of metadata
--   validate, validate_update   the causes why the metadata is invalid
--
-- After shape_error the other functions rely on the types. managedFields and selfLink are dropped: nothing here uses
-- them.

local go_text = require "keywatch.kubernetes.go_text"
local labels = require "keywatch.kubernetes.label"
local random_id = require "keywatch.kubernetes.random_id"
local status_error = require "keywatch.kubernetes.status_error"
local timestamp = require "keywatch.kubernetes.timestamp"
local turn = require "keywatch.kubernetes.turn"
local value = require "keywatch.kubernetes.value"

local MAX_ANNOTATIONS = 256 * 1024 -- bytes of names and values
local MAX_LISTED = 100 -- causes, and paths of unknown fields
local ORPHAN, FOREGROUND = "orphan", "foregroundDeletion"

local NULL = value.NULL

-- {====== Types ======

local is_type = {}

function is_type.string(found) return type(found) == "string" end
function is_type.boolean(found) return type(found) == "boolean" end
function is_type.integer(found) return value.type_of(found) == "integer" end
function is_type.time(found) return type(found) == "string" and timestamp.parse(found) ~= nil end

local NOUNS = { string = "a string", boolean = "a boolean", integer = "a whole number", time = "a time in RFC 3339",
  object = "an object", list = "an array" }

local REFERENCE = { apiVersion = "string", kind = "string", name = "string", uid = "string", controller = "boolean",
  blockOwnerDeletion = "boolean" }

-- By the name of a field: its type. { "map", type of values }, { "list", type of elements }; a table without these is
-- that of the fields of an object.
local FIELDS = {
  name = "string", generateName = "string", namespace = "string", uid = "string", resourceVersion = "string",
  generation = "integer", creationTimestamp = "time", deletionTimestamp = "time",
  deletionGracePeriodSeconds = "integer", labels = { "map", "string" }, annotations = { "map", "string" },
  finalizers = { "list", "string" }, ownerReferences = { "list", REFERENCE },
}

local trouble_of

--- Returns why the members of an object are not all of a type; nil if they are.
local function map_trouble(found, wanted, path)
  if not value.is_object(found) then return path .. " must be " .. NOUNS.object end
  for name, inner in next, found do
    local trouble = inner ~= NULL and trouble_of(inner, wanted, path .. "." .. name)
    if trouble then return trouble end
  end
end

local function list_trouble(found, wanted, path)
  if type(found) ~= "table" or next(found) ~= nil and not value.is_array(found) then
    return path .. " must be " .. NOUNS.list
  end
  for i, inner in ipairs(found) do
    local trouble = trouble_of(inner, wanted, ("%s[%d]"):format(path, i - 1))
    if trouble then return trouble end
  end
end

--- Returns why a value is not of a type, as a sentence; nil if it is. Unknown fields are of any type.
function trouble_of(found, wanted, path)
  if type(wanted) == "string" then
    if is_type[wanted](found) then return nil end
    return ("%s must be %s, not %s"):format(path, NOUNS[wanted], go_text.of(found))
  end
  if wanted[1] == "map" then return map_trouble(found, wanted[2], path) end
  if wanted[1] == "list" then return list_trouble(found, wanted[2], path) end
  if not value.is_object(found) then return path .. " must be " .. NOUNS.object end
  for name, inner in next, found do
    local trouble = wanted[name] and inner ~= NULL and trouble_of(inner, wanted[name], path .. "." .. name)
    if trouble then return trouble end
  end
end

--- Returns the error of an object whose apiVersion, kind or metadata have wrong types; nil if they are right.
local function shape_error(object)
  if not value.is_object(object) then return status_error.bad_request("the object must be a JSON object") end
  for _, name in ipairs { "apiVersion", "kind" } do
    if not value.is_nothing(object[name]) and type(object[name]) ~= "string" then
      return status_error.bad_request(("%s must be a string, not %s"):format(name, go_text.of(object[name])))
    end
  end
  if value.is_nothing(object.metadata) then return nil end
  local trouble = trouble_of(object.metadata, FIELDS, "metadata")
  return trouble and status_error.bad_request(trouble) or nil
end

-- }======

-- {====== Unknown fields ======

local DROPPED = { managedFields = true, selfLink = true }

--- Removes the members of an object that are null.
local function remove_nulls(found)
  for name, inner in next, found do
    if inner == NULL then found[name] = nil end
  end
end

--- Removes the members of an object that are null or not in `known`. Adds the paths of unknown ones to a list.
local function prune_members(found, known, path, removed)
  remove_nulls(found)
  for name in next, found do
    if not known[name] then
      found[name] = nil
      if not DROPPED[name] and #removed < MAX_LISTED then removed[#removed + 1] = path .. "." .. name end
    end
  end
end

--- Removes unknown, null and empty fields of an object's metadata, which is {} afterwards if it was absent. Returns the
-- list of the paths of unknown ones, sorted.
local function prune(object)
  local removed = {}
  if value.is_nothing(object.metadata) then object.metadata = {} end
  local metadata = object.metadata
  prune_members(metadata, FIELDS, "metadata", removed)
  for i, reference in ipairs(metadata.ownerReferences or {}) do
    prune_members(reference, REFERENCE, ("metadata.ownerReferences[%d]"):format(i - 1), removed)
  end
  for name, wanted in next, FIELDS do
    local found = metadata[name]
    if found ~= nil and type(wanted) == "table" then
      if wanted[1] == "map" then remove_nulls(found) end
      if next(found) == nil then metadata[name] = nil end
    end
  end
  table.sort(removed)
  return removed
end

-- }======

-- {====== Validation ======

--- Adds a cause to a list, which is bounded.
local function add(causes, reason, field, message)
  if #causes >= MAX_LISTED then return end
  causes[#causes + 1] = { reason = reason, message = message, field = field }
end

--- Adds the cause of an invalid value, if there is a reason. Makes no text that is not added: LuaJIT needs quadratic
-- time for many long strings that are alike.
local function add_invalid(causes, field, found, why)
  if not why or #causes >= MAX_LISTED then return end
  add(causes, "FieldValueInvalid", field, ("Invalid value: %s: %s"):format(go_text.of(found), why))
end

local function check_name(causes, kind, metadata)
  if value.is_nothing(metadata.name) or metadata.name == "" then
    add(causes, "FieldValueRequired", "metadata.name", "Required value: name or generateName is required")
  else
    add_invalid(causes, "metadata.name", metadata.name, (kind.name_trouble or labels.subdomain_trouble)(metadata.name))
  end
end

local function check_namespace(causes, kind, metadata)
  local namespace = metadata.namespace
  if not kind.is_namespaced then
    if namespace then
      add(causes, "FieldValueForbidden", "metadata.namespace", "Forbidden: not allowed on this type")
    end
  elseif not namespace or namespace == "" then
    add(causes, "FieldValueRequired", "metadata.namespace", "Required value")
  else
    add_invalid(causes, "metadata.namespace", namespace, labels.label_trouble(namespace))
  end
end

local function check_labels(causes, metadata, work)
  for name, text in next, metadata.labels or {} do
    turn.count(work)
    add_invalid(causes, "metadata.labels", name, labels.name_trouble(name))
    add_invalid(causes, "metadata.labels", text, labels.value_trouble(text))
  end
end

local function check_annotations(causes, metadata, work)
  local bytes = 0
  for name, text in next, metadata.annotations or {} do
    turn.count(work)
    bytes = bytes + #name + #text
    add_invalid(causes, "metadata.annotations", name, labels.name_trouble(name:lower()))
  end
  if bytes > MAX_ANNOTATIONS then
    add(causes, "FieldValueTooLong", "metadata.annotations", ("Too long: must have at most %d bytes"):format(
      MAX_ANNOTATIONS))
  end
end

local function check_finalizers(causes, metadata, work)
  local has = {}
  for _, name in ipairs(metadata.finalizers or {}) do
    turn.count(work)
    has[name] = true
    add_invalid(causes, "metadata.finalizers", name, labels.name_trouble(name))
  end
  if has[ORPHAN] and has[FOREGROUND] then
    add_invalid(causes, "metadata.finalizers", metadata.finalizers,
      ("finalizer %s and %s cannot be both set"):format(ORPHAN, FOREGROUND))
  end
end

local TWO_CONTROLLERS = "Only one reference can have Controller set to true. "
  .. 'Found "true" in references for %s and %s'

local REFERRED = { "apiVersion", "kind", "name", "uid" }

local function check_references(causes, metadata)
  local controller
  for i, reference in ipairs(metadata.ownerReferences or {}) do
    if #causes >= MAX_LISTED then return end
    for _, name in ipairs(REFERRED) do
      if not reference[name] or reference[name] == "" then
        add_invalid(causes, ("metadata.ownerReferences[%d].%s"):format(i - 1, name), "", "must not be empty")
      end
    end
    if reference.controller and controller then
      add_invalid(causes, "metadata.ownerReferences", metadata.ownerReferences,
        TWO_CONTROLLERS:format((go_text.cut(controller.name or "")), (go_text.cut(reference.name or ""))))
    end
    controller = controller or reference.controller and reference or nil
  end
end

--- Returns the causes why the metadata of an object of a kind is invalid; {} if it is valid. Lets other tasks run.
local function validate(kind, object)
  local causes, metadata, work = {}, object.metadata, turn.begin {}
  check_name(causes, kind, metadata)
  check_namespace(causes, kind, metadata)
  check_labels(causes, metadata, work)
  check_annotations(causes, metadata, work)
  check_finalizers(causes, metadata, work)
  check_references(causes, metadata)
  return causes
end

local IMMUTABLE = { "name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds" }

--- Adds the cause of finalizers that are added to an object that is being deleted.
local function check_new_finalizers(causes, new, old)
  local had, added = {}, {}
  for _, name in ipairs(old.finalizers or {}) do had[name] = true end
  for _, name in ipairs(new.finalizers or {}) do
    if not had[name] and #added < MAX_LISTED then added[#added + 1] = go_text.quoted(name) end
  end
  if not added[1] then return end
  add(causes, "FieldValueForbidden", "metadata.finalizers", "Forbidden: no new finalizers can be added if the object "
    .. "is being deleted, found new finalizers []string{" .. table.concat(added, ", ") .. "}")
end

--- Returns the causes why an object must not replace `old`: a field that never changes would change.
local function validate_update(object, old)
  local causes, new = {}, object.metadata
  old = old.metadata
  for _, name in ipairs(IMMUTABLE) do
    if new[name] ~= old[name] then
      add_invalid(causes, "metadata." .. name, new[name] == nil and "" or new[name], "field is immutable")
    end
  end
  if old.deletionTimestamp then check_new_finalizers(causes, new, old) end
  return causes
end

-- }======

--- Returns the present time as a field of metadata.
local function now()
  return timestamp.format(timestamp.now())
end

return {
  shape_error = shape_error, prune = prune, validate = validate, validate_update = validate_update, now = now,
  uid = random_id.uid, generate_name = random_id.name,
}
