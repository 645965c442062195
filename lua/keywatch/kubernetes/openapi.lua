-- SPDX-License-Identifier: MIT
--- openapi: the document /openapi/v2, as JSON and as protobuf (gnostic's openapi.v2.Document). kubectl reads the
-- document before it writes: it checks objects by the definitions, and finds out whether a server supports dry runs.
--
-- Schemas of version 3 are converted to version 2, which lacks some of their parts: a value that may be null, that may
-- be a number or a string, or that may have unknown fields has any type in version 2, as in Kubernetes.

local json = require "keywatch.json"
local protobuf = require "keywatch.kubernetes.protobuf"

local bytes = protobuf.bytes
local concat = table.concat

local META = "io.k8s.apimachinery.pkg.apis.meta.v1."
local GVK = "x-kubernetes-group-version-kind"
local ACTION = "x-kubernetes-action"

-- {====== Definitions ======

local function ref(name) return { ["$ref"] = "#/definitions/" .. name } end
local function list_of(items) return { type = "array", items = items } end
local function map_of(values) return { type = "object", additionalProperties = values } end

local STRING, TIME = { type = "string" }, { type = "string", format = "date-time" }
local INTEGER, BOOLEAN, ANY = { type = "integer", format = "int64" }, { type = "boolean" }, {}

local SHARED = {
  [META .. "ObjectMeta"] = {
    description = "ObjectMeta is metadata that all persisted resources must have.", type = "object",
    properties = {
      annotations = map_of(STRING), creationTimestamp = TIME, deletionGracePeriodSeconds = INTEGER,
      deletionTimestamp = TIME, finalizers = list_of(STRING), generateName = STRING, generation = INTEGER,
      labels = map_of(STRING), managedFields = list_of(ANY), name = STRING, namespace = STRING,
      ownerReferences = list_of(ref(META .. "OwnerReference")), resourceVersion = STRING, selfLink = STRING,
      uid = STRING,
    },
  },
  [META .. "OwnerReference"] = {
    description = "OwnerReference identifies an owning object.", type = "object",
    required = json.array { "apiVersion", "kind", "name", "uid" },
    properties = { apiVersion = STRING, blockOwnerDeletion = BOOLEAN, controller = BOOLEAN,
      kind = STRING, name = STRING, uid = STRING },
  },
  [META .. "ListMeta"] = {
    description = "ListMeta describes metadata that lists have.", type = "object",
    properties = { continue = STRING, remainingItemCount = INTEGER, resourceVersion = STRING, selfLink = STRING },
  },
}

--- Schemas of built-in kinds, by name. kubectl merges objects of these kinds by its own rules, and complains about a
-- definition without fields: a kind that is not here has no definition.
local BUILTIN = {
  configmaps = { properties = { data = map_of(STRING), binaryData = map_of(STRING), immutable = BOOLEAN } },
  secrets = { properties = { data = map_of(STRING), stringData = map_of(STRING), type = STRING, immutable = BOOLEAN } },
  namespaces = { properties = {
    spec = { type = "object", properties = { finalizers = list_of(STRING) } },
    status = { type = "object", properties = { phase = STRING, conditions = list_of(ANY) } },
  } },
  ["leases.coordination.k8s.io"] = { properties = { spec = { type = "object", properties = {
    acquireTime = TIME, holderIdentity = STRING, leaseDurationSeconds = INTEGER, leaseTransitions = INTEGER,
    renewTime = TIME, strategy = STRING, preferredHolder = STRING,
  } } } },
}

local KEPT = { "description", "type", "format", "enum", "required" }

local convert

local function convert_all(properties)
  if not properties then return nil end
  local converted = {}
  for name, schema in pairs(properties) do converted[name] = convert(schema) end
  return converted
end

--- True if version 2 has no schema for what this one of version 3 allows.
local function is_any(schema)
  return schema["x-kubernetes-int-or-string"] or schema["x-kubernetes-preserve-unknown-fields"] or schema.nullable
    or schema["x-kubernetes-embedded-resource"]
end

--- Returns a schema of version 2 for one of version 3.
function convert(schema)
  if is_any(schema) then return { description = schema.description } end
  local made = { properties = convert_all(schema.properties), items = schema.items and convert(schema.items) }
  for _, name in ipairs(KEPT) do made[name] = schema[name] end
  local more = schema.additionalProperties
  if type(more) == "table" then made.additionalProperties = convert(more) end
  return made
end

--- Returns the name of the definition of a kind: the group's parts are reversed.
local function name_of(kind)
  local parts = {}
  for part in kind.group:gmatch("[^.]+") do table.insert(parts, 1, part) end
  if kind.group == "" then parts = { "io", "k8s", "api", "core" } end
  return ("%s.%s.%s"):format(concat(parts, "."), kind.version, kind.kind)
end

local function gvk_of(kind, name)
  return { group = kind.group, kind = name or kind.kind, version = kind.version }
end

--- Returns the definition of a kind's objects. Without a schema, every object is valid.
local function define(kind)
  local schema = kind.declared_schema or BUILTIN[kind.name]
  local made = schema and convert(schema) or {}
  made.type = "object"
  made[GVK] = json.array { gvk_of(kind) }
  if not made.properties then return made end
  made.properties.apiVersion, made.properties.kind = STRING, STRING
  made.properties.metadata = ref(META .. "ObjectMeta")
  return made
end

local function define_list(kind)
  return {
    description = ("%s is a list of %s"):format(kind.list_kind, kind.kind), type = "object",
    required = json.array { "items" },
    properties = { apiVersion = STRING, kind = STRING, items = list_of(ref(name_of(kind))),
      metadata = ref(META .. "ListMeta") },
    [GVK] = json.array { gvk_of(kind, kind.list_kind) },
  }
end

-- }======

-- {====== Paths ======

local DRY_RUN = { name = "dryRun", ["in"] = "query", type = "string" }
local OK = { ["200"] = { description = "OK" } }

local function operation(kind, action)
  local writes = action ~= "get" and action ~= "list"
  return { responses = OK, parameters = json.array { writes and DRY_RUN or nil }, [ACTION] = action,
    [GVK] = gvk_of(kind) }
end

--- Adds the paths of a kind.
local function add_paths(paths, kind)
  local root = (kind.group == "" and "/api/" or "/apis/") .. kind.api_version .. "/"
  local all = root .. (kind.is_namespaced and "namespaces/{namespace}/" or "") .. kind.plural
  local function item()
    return { get = operation(kind, "get"), put = operation(kind, "put"), delete = operation(kind, "delete"),
      patch = operation(kind, "patch") }
  end
  paths[root .. kind.plural] = { get = operation(kind, "list") }
  paths[all] = { get = operation(kind, "list"), post = operation(kind, "post"),
    delete = operation(kind, "deletecollection") }
  paths[all .. "/{name}"] = item()
  if not kind.has_status then return end
  paths[all .. "/{name}/status"] = item()
  paths[all .. "/{name}/status"].delete = nil
end

-- }======

--- Returns the document of these kinds.
local function document(kinds)
  local paths, definitions = {}, {}
  for name, schema in pairs(SHARED) do definitions[name] = schema end
  for _, kind in ipairs(kinds) do
    if not kind.is_builtin or BUILTIN[kind.name] then
      definitions[name_of(kind)] = define(kind)
      definitions[name_of(kind) .. "List"] = define_list(kind)
    end
    add_paths(paths, kind)
  end
  return { swagger = "2.0", info = { title = "keywatch", version = "v1.26.0" }, paths = paths,
    definitions = definitions }
end

local function to_json(made)
  return json.encode(made, { sort_keys = true })
end

-- {====== Protobuf: the numbers are those of gnostic's OpenAPIv2.proto ======

--- Returns a list of the fields of a table in the order of their names, each as made by write(name, value).
local function each(found, write)
  local names, parts = {}, {}
  for name in pairs(found or {}) do names[#names + 1] = name end
  table.sort(names)
  for i, name in ipairs(names) do parts[i] = write(name, found[name]) end
  return concat(parts)
end

--- A NamedX: name = 1, value = 2.
local function named(name, value) return bytes(1, name) .. bytes(2, value) end

--- An Any, whose field yaml has JSON.
local function any(value) return bytes(2, to_json(value)) end

--- Returns the vendor extensions of a table as fields of this number.
local function extensions(field, found)
  local parts = {}
  for _, name in ipairs { ACTION, GVK } do
    if found[name] then parts[#parts + 1] = bytes(field, named(name, any(found[name]))) end
  end
  return concat(parts)
end

local schema_message

local function properties_message(properties)
  return properties and each(properties, function(name, schema)
    return bytes(1, named(name, schema_message(schema)))
  end)
end

local function strings(field, list)
  local parts = {}
  for i, text in ipairs(list or {}) do parts[i] = bytes(field, text) end
  return concat(parts)
end

local function enum_message(list)
  local parts = {}
  for i, value in ipairs(list or {}) do parts[i] = bytes(20, any(value)) end
  return concat(parts)
end

function schema_message(schema)
  local more, items = schema.additionalProperties, schema.items
  return protobuf.message(bytes(1, schema["$ref"]), bytes(2, schema.format), bytes(4, schema.description),
    strings(19, schema.required), enum_message(schema.enum), bytes(21, more and bytes(1, schema_message(more))),
    bytes(22, schema.type and bytes(1, schema.type)), bytes(23, items and bytes(1, schema_message(items))),
    bytes(25, properties_message(schema.properties)), extensions(31, schema))
end

--- A ParametersItem with a parameter of the query.
local function parameter_message(parameter)
  local query = bytes(2, parameter["in"]) .. bytes(4, parameter.name) .. bytes(6, parameter.type)
  return bytes(1, bytes(2, bytes(3, query)))
end

local function operation_message(one)
  local parts = {}
  for i, parameter in ipairs(one.parameters) do parts[i] = bytes(8, parameter_message(parameter)) end
  parts[#parts + 1] = bytes(9, each(one.responses, function(name, response)
    return bytes(1, named(name, bytes(1, bytes(1, response.description))))
  end))
  parts[#parts + 1] = extensions(13, one)
  return concat(parts)
end

local METHODS = { get = 2, put = 3, post = 4, delete = 5, patch = 8 }

local function path_message(item)
  return each(item, function(method, one) return bytes(METHODS[method], operation_message(one)) end)
end

--- Returns a document as protobuf.
local function to_protobuf(made)
  local info = bytes(1, made.info.title) .. bytes(2, made.info.version)
  return protobuf.message(bytes(1, made.swagger), bytes(2, info),
    bytes(8, each(made.paths, function(path, item) return bytes(2, named(path, path_message(item))) end)),
    bytes(9, properties_message(made.definitions)))
end

-- }======

return { document = document, to_json = to_json, to_protobuf = to_protobuf }
