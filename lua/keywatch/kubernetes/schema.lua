-- SPDX-License-Identifier: MIT
--- schema: the schema of a kind, the part of OpenAPI v3 that a CustomResourceDefinition may have ("structural schema").
--
-- `compile` makes a tree of nodes from it, once. A node has these fields:
--
--   types         the JSON types that are allowed, as keys; nil if all are
--   type_text     the same as Kubernetes writes them
--   properties    nodes by name
--   additional    the node of all other members; true if they are not checked
--   items         the node of the elements of an array
--   is_open       members that no schema knows are kept (x-kubernetes-preserve-unknown-fields)
--   is_resource   a whole object of Kubernetes (x-kubernetes-embedded-resource), or the root
--   is_nullable   null is allowed
--   default       the value of an absent member
--   has_fields    objects and arrays are allowed
--   has_defaults  a node below has a default, or would remove a null
--   required      a list of names
--   checks        by JSON type: a list of functions that check a value (schema_checks.lua)
--   all, any, one, none   nodes of allOf, anyOf, oneOf, not
--
-- The other functions are in schema_fields.lua (prune, apply_defaults) and schema_validation.lua (validate).

local check = require "keywatch.support.check"
local checks = require "keywatch.kubernetes.schema_checks"
local fields = require "keywatch.kubernetes.schema_fields"
local validation = require "keywatch.kubernetes.schema_validation"
local value = require "keywatch.kubernetes.value"

local MAX_DEPTH = 100 -- of a schema

local TYPES = {
  object = { object = true }, array = { array = true }, string = { string = true }, boolean = { boolean = true },
  integer = { integer = true }, number = { number = true, integer = true },
}
local INT_OR_STRING = { integer = true, string = true }
local NAMES = { name = true, generateName = true } -- the fields of metadata that a schema may restrict

-- By the names of keywords that schema.lua itself reads: the Lua types of their values. schema_checks.lua has more.
local KEYWORDS = {
  type = "string", properties = "table", additionalProperties = "any", items = "table", nullable = "boolean",
  default = "any", allOf = "table", anyOf = "table", oneOf = "table", ["not"] = "table",
  description = "string", title = "string", example = "any", externalDocs = "table", format = "string",
  ["x-kubernetes-preserve-unknown-fields"] = "boolean", ["x-kubernetes-embedded-resource"] = "boolean",
  ["x-kubernetes-int-or-string"] = "boolean", ["x-kubernetes-map-type"] = "string",
}

local compile_node

-- {====== Compiling ======

--- Raises if a keyword of a declared schema is unknown, or has a value of a wrong type.
local function check_keywords(declared, where)
  for name, found in pairs(declared) do
    local wanted = KEYWORDS[name] or checks.KEYWORDS[name]
    if name == "x-kubernetes-validations" then
      check.misuse("%s: x-kubernetes-validations is not supported: check the object in the option 'validate'", where)
    end
    if not wanted then check.misuse("%s: there is no keyword '%s'", where, tostring(name)) end
    if wanted ~= "any" and type(found) ~= wanted then
      check.misuse("%s: the keyword '%s' must be a %s, not %s", where, name, wanted, check.shown(found))
    end
  end
end

--- Sets the types of a node. Raises if a schema that describes fields has none. The schemas inside of allOf and the
-- like (`is_logic`) need none.
local function set_types(node, declared, where, is_logic)
  if declared["x-kubernetes-int-or-string"] then
    if declared.type then check.misuse("%s: x-kubernetes-int-or-string excludes a type", where) end
    node.types, node.type_text = INT_OR_STRING, "integer,string"
  elseif declared.type then
    node.types, node.type_text = TYPES[declared.type], declared.type
    if not node.types then check.misuse("%s: there is no type '%s'", where, declared.type) end
  elseif not is_logic and not declared["x-kubernetes-preserve-unknown-fields"] then
    check.misuse("%s: a type is needed", where)
  end
end

--- Returns the nodes of a table of schemas, with the same keys.
local function compile_all(declared, where, depth, is_logic)
  local nodes = {}
  for name, inner in pairs(declared) do
    nodes[name] = compile_node(inner, where .. "." .. tostring(name), depth, is_logic)
  end
  return nodes
end

--- Sets the nodes of the members of an object.
local function set_members(node, declared, where, depth, is_logic)
  local additional = declared.additionalProperties
  if declared.properties then
    node.properties = compile_all(declared.properties, where, depth, is_logic)
  end
  if additional == nil then return end
  if additional == false then check.misuse("%s: additionalProperties must not be false: fields that are not declared "
    .. "are removed in any case", where) end
  if node.properties and additional ~= true then
    check.misuse("%s: additionalProperties excludes properties", where)
  end
  node.additional = additional == true or compile_node(additional, where .. ".additionalProperties", depth, is_logic)
end

--- Sets the nodes of allOf, anyOf, oneOf and not.
local function set_logic(node, declared, where, depth)
  node.all = declared.allOf and compile_all(declared.allOf, where .. ".allOf", depth, true)
  node.any = declared.anyOf and compile_all(declared.anyOf, where .. ".anyOf", depth, true)
  node.one = declared.oneOf and compile_all(declared.oneOf, where .. ".oneOf", depth, true)
  node.none = declared["not"] and compile_node(declared["not"], where .. ".not", depth, true)
  node.has_logic = (node.all or node.any or node.one or node.none) ~= nil
end

--- True if apply_defaults has something to do below a node.
local function has_defaults(node)
  if node.items and node.items.has_defaults or node.additional and node.additional ~= true then return true end
  return node.properties ~= nil
end

--- Sets the default of a node. Raises if the schema does not allow the default.
local function set_default(node, declared, where, is_logic)
  if declared.default == nil then return end
  if is_logic then check.misuse("%s: a default is not possible here", where) end
  node.default = value.copy(declared.default)
  fields.prune(node, node.default)
  fields.apply_defaults(node, node.default)
  local cause = validation.validate(node, node.default)[1]
  if cause then check.misuse("%s: the default is invalid: %s", where, cause.message) end
end

--- Returns the node of a declared schema. `where` is its position, for errors.
function compile_node(declared, where, depth, is_logic)
  if type(declared) ~= "table" then check.misuse("%s must be a table, not %s", where, check.shown(declared)) end
  if depth > MAX_DEPTH then check.misuse("%s: the schema is nested too deeply", where) end
  check_keywords(declared, where)
  local node = {
    is_open = declared["x-kubernetes-preserve-unknown-fields"], is_nullable = declared.nullable,
    is_resource = declared["x-kubernetes-embedded-resource"],
  }
  set_types(node, declared, where, is_logic)
  set_members(node, declared, where, depth + 1, is_logic)
  if declared.items then node.items = compile_node(declared.items, where .. ".items", depth + 1, is_logic) end
  if declared.type == "array" and not declared.items and not is_logic then
    check.misuse("%s: items is needed", where)
  end
  set_logic(node, declared, where, depth + 1)
  node.required, node.checks = declared.required, checks.compile(declared, where)
  node.has_fields = not node.types or node.types.object or node.types.array
  node.has_defaults = has_defaults(node)
  set_default(node, declared, where, is_logic)
  return node
end

-- }======

--- Leaves apiVersion, kind and metadata to metadata.lua, except restrictions of names.
local function release_resource_fields(properties, where)
  properties.apiVersion, properties.kind = nil, nil
  local metadata = properties.metadata
  if not metadata then return end
  metadata.is_open = true
  for name in pairs(metadata.properties or {}) do
    if not NAMES[name] then check.misuse("%s.metadata: only name and generateName can be declared", where) end
  end
end

--- Compiles a declared schema of whole objects, with `spec` and so on. Raises if it is malformed. `where` names it in
-- errors; default: "schema".
local function compile(declared, where)
  where = where or "schema"
  local node = compile_node(declared, where, 1, false)
  if not node.types or not node.types.object then check.misuse("%s: the type must be 'object'", where) end
  node.is_resource = true
  if node.properties then release_resource_fields(node.properties, where) end
  return node
end

return {
  compile = compile, prune = fields.prune, apply_defaults = fields.apply_defaults, validate = validation.validate,
}
