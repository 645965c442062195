-- SPDX-License-Identifier: MIT
--- strategy: what is stored when a request creates or replaces an object: defaults, pruning, the fields of the system,
-- the program's functions, validation. No I/O, except what the program's functions do.
--
-- A request, for the program's functions, is { operation = "CREATE" or "UPDATE", kind, resource, namespace, name,
-- subresource, user, dry_run, old }. The functions are:
--
--   mutate(object, request)     changes the object, or returns another one. Returns false, or nil and a text, to refuse
--                               it
--   validate(object, request)   returns false (or nil) and a text, or a cause { message, field }, to refuse the object
--
-- Objects belong to the functions of this module, which change them.

local check = require "keywatch.support.check"
local driver = require "keywatch.task.driver"
local log = require "keywatch.support.log"
local metadata = require "keywatch.kubernetes.metadata"
local schemas = require "keywatch.kubernetes.schema"
local status_error = require "keywatch.kubernetes.status_error"
local value = require "keywatch.kubernetes.value"

local MAX_NAMED = 20 -- unknown fields that are named

-- {====== Parts ======

--- Returns the name of an object, or nil.
local function name_of(object)
  local found = object.metadata.name
  return found ~= "" and found or nil
end

--- Completes apiVersion and kind of an object. Returns nil, or an error if they are those of something else.
local function check_type(kind, object)
  if value.is_nothing(object.apiVersion) or object.apiVersion == "" then object.apiVersion = kind.api_version end
  if value.is_nothing(object.kind) or object.kind == "" then object.kind = kind.kind end
  if object.apiVersion ~= kind.api_version then
    return status_error.bad_request(("the API version in the data (%s) does not match the expected API version (%s)")
      :format(object.apiVersion, kind.api_version))
  elseif object.kind ~= kind.kind then
    return status_error.invalid(kind, name_of(object), { {
      reason = "FieldValueInvalid", field = "kind",
      message = ("Invalid value: %q: must be %s"):format(object.kind, kind.kind),
    } })
  end
end

--- Returns the texts about unknown fields.
local function unknown_fields(paths)
  local texts = {}
  for i, path in ipairs(paths) do
    if i > MAX_NAMED then break end
    texts[i] = ('unknown field "%s"'):format(path)
  end
  return texts
end

--- Removes the unknown fields of an object, and completes it. Returns the list of warnings; or nil and an error.
local function shape(kind, object, field_validation)
  local err = metadata.shape_error(object)
  if err then return nil, err end
  local unknown = metadata.prune(object)
  err = check_type(kind, object)
  if err then return nil, err end
  if kind.default then kind.default(object) end
  if kind.schema then
    for _, path in ipairs(schemas.prune(kind.schema, object)) do unknown[#unknown + 1] = path end
    schemas.apply_defaults(kind.schema, object)
  end
  if not unknown[1] or field_validation == "Ignore" then return {} end
  local texts = unknown_fields(unknown)
  if field_validation ~= "Strict" then return texts end
  return nil, status_error.bad_request(("%s in version %q cannot be handled as a %s: strict decoding error: %s"):format(
    kind.kind, kind.version, kind.kind, table.concat(texts, ", ")))
end

--- Returns the error of an object that was refused.
local function refusal(kind, object, why)
  local cause = type(why) == "table" and why or { message = why and tostring(why) or "the object was refused" }
  return status_error.invalid(kind, name_of(object), { {
    reason = cause.reason or "FieldValueInvalid", message = cause.message or "", field = cause.field or "",
  } })
end

--- Calls a function of the program. Returns true and its results; or false and an error.
local function call(kind, name, object, request)
  local ok, found, why = driver.attempt(kind[name], object, request)
  if ok then return true, found, why end
  log.error("%s of %s has failed: %s", name, kind.name, found.traceback)
  return false, status_error.internal(("the function %s has failed"):format(name))
end

--- Lets the program change an object. Returns the object; or nil and an error.
local function mutate(kind, object, request)
  if not kind.mutate then return object end
  local ok, found, why = call(kind, "mutate", object, request)
  if not ok then return nil, found end
  if found == false or found == nil and why ~= nil then return nil, refusal(kind, object, why) end
  if type(found) == "table" then object = found end
  ok, why = shape(kind, object, "Ignore")
  if not ok then return nil, why end
  return object
end

--- Returns the error of an invalid object; nil if it is valid. `causes` are those that are known already.
local function validation_error(kind, object, causes, request)
  local lists = { metadata.validate(kind, object) }
  if kind.schema then lists[#lists + 1] = schemas.validate(kind.schema, object) end
  if kind.check then lists[#lists + 1] = kind.check(object) end
  for _, list in ipairs(lists) do
    for _, cause in ipairs(list) do causes[#causes + 1] = cause end
  end
  if causes[1] then return status_error.invalid(kind, name_of(object), causes) end
  if not kind.validate then return nil end
  local ok, is_valid, why = call(kind, "validate", object, request)
  if not ok then return is_valid end
  if is_valid == false or not is_valid and why ~= nil then return refusal(kind, object, why) end
end

-- }======

local OF_SYSTEM = { "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation" }

--- Sets the fields of the system of an object to those of other metadata.
local function set_system_fields(object, metadata_of_system)
  for _, name in ipairs(OF_SYSTEM) do object.metadata[name] = metadata_of_system[name] end
  object.metadata.resourceVersion = nil
end

--- Returns the request that the program's functions get.
local function new_request(kind, operation, key, opts, old)
  local namespace, name = key:match("^([^/]*)/(.*)$")
  return {
    operation = operation, kind = kind.kind, resource = kind.name, namespace = namespace, name = name or key,
    subresource = opts.subresource, user = opts.user, dry_run = opts.dry_run or nil, old = old,
  }
end

-- {====== Creating ======

--- Prepares a new object, which has a name. Returns it, and the list of warnings; or nil and an error.
local function create(kind, object, key, opts)
  local warnings, err = shape(kind, object, opts.field_validation)
  if not warnings then return nil, err end
  if kind.has_status and not kind.is_builtin then object.status = nil end
  local own = { uid = metadata.uid(), creationTimestamp = metadata.now() }
  own.generation = not kind.is_builtin and 1 or nil
  set_system_fields(object, own)
  local request = new_request(kind, "CREATE", key, opts)
  object, err = mutate(kind, object, request)
  if not object then return nil, err end
  set_system_fields(object, own)
  err = validation_error(kind, object, {}, request)
  if err then return nil, err end
  return object, warnings
end

-- }======

-- {====== Replacing ======

--- True if two objects differ in something else than metadata, and than the status if that has a subresource.
local function is_other_content(kind, object, old)
  local a, b = check.copy(object), check.copy(old)
  a.metadata, b.metadata = nil, nil
  if kind.has_status then a.status, b.status = nil, nil end
  return not value.equal(a, b)
end

--- Returns what an update of the subresource status stores.
local function with_status(object, old)
  local result = value.copy(old)
  result.status = object.status
  if value.is_nothing(result.status) then result.status = nil end
  return result
end

--- Prepares an object that replaces `old`, a decoded object which is not changed. Returns it, and the list of warnings;
-- or nil and an error.
local function update(kind, object, old, key, opts)
  local warnings, err = shape(kind, object, opts.field_validation)
  if not warnings then return nil, err end
  if opts.subresource == "status" then
    object = with_status(object, old)
  elseif kind.has_status then
    object.status = value.copy(old.status)
  end
  set_system_fields(object, old.metadata)
  local request = new_request(kind, "UPDATE", key, opts, value.copy(old))
  object, err = mutate(kind, object, request)
  if not object then return nil, err end
  set_system_fields(object, old.metadata)
  if not kind.is_builtin and opts.subresource ~= "status" and is_other_content(kind, object, old) then
    object.metadata.generation = (old.metadata.generation or 0) + 1
  end
  err = validation_error(kind, object, metadata.validate_update(object, old), request)
  if err then return nil, err end
  return object, warnings
end

-- }======

return { create = create, update = update, shape_error = metadata.shape_error }
