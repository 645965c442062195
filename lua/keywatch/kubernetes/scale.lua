-- SPDX-License-Identifier: MIT
--- scale: objects of kind Scale (autoscaling/v1), a view of the objects of a kind with the subresource scale.

local field_path = require "keywatch.kubernetes.field_path"
local status_error = require "keywatch.kubernetes.status_error"
local value = require "keywatch.kubernetes.value"

local API_VERSION, KIND = "autoscaling/v1", "Scale"
local MAX_REPLICAS = 2 ^ 31 - 1
local SCALE = { kind = KIND, group = "autoscaling", plural = "scales", name = "scales.autoscaling" }

--- Returns a whole number at a path; nil if there is none.
local function number_at(object, path)
  local found = field_path.get(object, path)
  return value.type_of(found) == "integer" and found or nil
end

--- Returns the Scale of a decoded object; or nil and an error.
local function of(kind, object)
  local paths, metadata = kind.scale, object.metadata
  local replicas = number_at(object, paths.replicas)
  if not replicas then
    return nil, status_error.internal(("the spec replicas field %q does not exist"):format(
      "." .. table.concat(paths.replicas, ".")))
  end
  local selector = paths.selector and field_path.get(object, paths.selector)
  return {
    apiVersion = API_VERSION, kind = KIND,
    metadata = {
      name = metadata.name, namespace = metadata.namespace, uid = metadata.uid,
      resourceVersion = metadata.resourceVersion, creationTimestamp = metadata.creationTimestamp,
    },
    spec = { replicas = replicas },
    status = { replicas = number_at(object, paths.status_replicas) or 0, selector = type(selector) == "string"
      and selector or nil },
  }
end

--- Returns the number of replicas that a Scale of a client asks for; or nil and an error.
local function wanted(scale)
  if not value.is_object(scale) or scale.kind ~= nil and scale.kind ~= KIND
    or scale.apiVersion ~= nil and scale.apiVersion ~= API_VERSION then
    return nil, status_error.bad_request("the object must be a Scale of " .. API_VERSION)
  end
  local replicas = field_path.get(scale, { "spec", "replicas" })
  if value.is_nothing(replicas) then return 0 end
  local is_valid = value.type_of(replicas) == "integer" and replicas >= 0 and replicas <= MAX_REPLICAS
  if is_valid then return replicas end
  return nil, status_error.invalid(SCALE, value.is_object(scale.metadata) and scale.metadata.name or nil, { {
    reason = "FieldValueInvalid", field = "spec.replicas",
    message = ("Invalid value: %s: must be a whole number of at least 0"):format(tostring(replicas)),
  } })
end

return { of = of, wanted = wanted, set = field_path.set }
