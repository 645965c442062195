-- SPDX-License-Identifier: MIT
--- kind: a declared kind of objects, checked and compiled. A kind has these fields:
--
--   group, version, kind, plural, singular, list_kind, short_names, categories   as declared, or their defaults
--   api_version       "demo.example/v1", or "v1" of the core group ""
--   name              "widgets.demo.example", or "configmaps" of the core group
--   is_namespaced     the scope is "Namespaced"
--   prefix            of the keys in the store: "/registry/demo.example/widgets/"
--   schema            compiled (schema.lua), or nil: every field is kept
--   declared_schema   as given, or nil
--   columns           of tables: { name, type, format, description, priority, read }; the first one is the name.
--                     read(object, now) returns a cell, or nil. `now` is timestamp.now()
--   selectable        names of fields that field selectors may use, as keys, beside metadata.name and
--                     metadata.namespace
--   has_status        the kind has the subresource status
--   scale             nil, or { replicas, status_replicas, selector } of the subresource scale: lists of names for
--                     field_path.get and field_path.set; `selector` may be nil
--   validate, mutate  functions of the program, or nil
--   is_builtin        one of builtin.lua
--   is_strategic      strategic merge patches are accepted: builtin kinds
--   ttl               the seconds after which objects are deleted, or nil
--   check, default    of builtin kinds: check(object) returns a list of causes; default(object) completes an object
--
-- Misuse raises an error that names the field.

local check = require "keywatch.support.check"
local columns = require "keywatch.kubernetes.columns"
local field_path = require "keywatch.kubernetes.field_path"
local labels = require "keywatch.kubernetes.label"
local schemas = require "keywatch.kubernetes.schema"
local value = require "keywatch.kubernetes.value"

local ROOT = "/registry/"

local is_texts = check.list_of("a list of strings", function(text) return type(text) == "string" and text ~= "" end)

local OPTIONS = {
  group = "string", version = "text", kind = "text", plural = "text", singular = "text", list_kind = "text",
  scope = check.one_of("Namespaced", "Cluster"), short_names = is_texts, categories = is_texts, schema = "table",
  columns = "table", selectable = is_texts, status = "boolean", scale = "table", validate = "function",
  mutate = "function",
}
local SCALE = { replicas = "text", status_replicas = "text", selector = "text" }

-- {====== Parts ======

--- Raises if a text is invalid. `trouble` is one of the functions of label.lua.
local function check_text(text, option, trouble, where)
  local why = trouble(text)
  if why then check.misuse("%s: option '%s': %s", where, option, why) end
end

--- Raises if a kind is no name such as "Widget".
local function check_kind_name(name, option, where)
  if not name:find("^[A-Za-z][A-Za-z0-9]*$") or #name > 63 then
    check.misuse("%s: option '%s' must be letters and digits, such as 'Widget', not '%s'", where, option, name)
  end
end

--- Raises if the names of a declaration are invalid.
local function check_names(opts, where)
  if opts.group ~= "" then check_text(opts.group, "group", labels.subdomain_trouble, where) end
  check_text(opts.version, "version", labels.label_1035_trouble, where)
  check_text(opts.plural, "plural", labels.label_1035_trouble, where)
  check_kind_name(opts.kind, "kind", where)
  if opts.list_kind then check_kind_name(opts.list_kind, "list_kind", where) end
  if opts.singular then check_text(opts.singular, "singular", labels.label_1035_trouble, where) end
  for _, name in ipairs(opts.short_names or {}) do check_text(name, "short_names", labels.label_1035_trouble, where) end
  for _, name in ipairs(opts.categories or {}) do check_text(name, "categories", labels.label_1035_trouble, where) end
end

--- Returns the names of a path below "spec" or "status". Raises if it is something else.
local function names_below(text, root, option, where)
  local names, why = field_path.names(text)
  if not names then check.misuse("%s: option '%s': the path '%s' %s", where, option, text, why) end
  if names[1] ~= root or not names[2] then
    check.misuse("%s: option '%s' must be a path below .%s, not '%s'", where, option, root, text)
  end
  return names
end

--- Returns the compiled paths of the option `scale`; nil if it is nil.
local function compile_scale(opts, where)
  local scale = opts.scale
  if not scale then return nil end
  local name = where .. ": option 'scale'"
  check.known(scale, name, SCALE)
  check.needed(scale, name, "replicas", "status_replicas")
  local root = scale.selector and scale.selector:find("^%.spec%.") and "spec" or "status"
  return {
    replicas = names_below(scale.replicas, "spec", "scale.replicas", where),
    status_replicas = names_below(scale.status_replicas, "status", "scale.status_replicas", where),
    selector = scale.selector and names_below(scale.selector, root, "scale.selector", where),
  }
end

--- Returns the set of names of the option `selectable`, a list of paths such as ".spec.color".
local function selectable_of(opts, where)
  local set = {}
  for _, text in ipairs(opts.selectable or {}) do
    local names, why = field_path.names(text)
    if not names then check.misuse("%s: option 'selectable': the path '%s' %s", where, text, why) end
    set[table.concat(names, ".")] = true
  end
  return set
end

--- Returns the prefix of the keys of a kind.
local function prefix_of(opts)
  return ROOT .. (opts.group ~= "" and opts.group .. "/" or "") .. opts.plural .. "/"
end

-- }======

--- Returns a kind. `where` names the declaration in errors, or is nil.
local function new(opts, where)
  where = where or "kubernetes"
  opts = check.options(opts, where)
  if type(opts.kind) == "string" then where = ("%s: the resource %s"):format(where, opts.kind) end
  check.known(opts, where, OPTIONS)
  check.needed(opts, where, "group", "version", "kind", "plural")
  check_names(opts, where)
  local group, version = opts.group, opts.version
  return {
    group = group, version = version, kind = opts.kind, plural = opts.plural,
    singular = opts.singular or opts.kind:lower(), list_kind = opts.list_kind or opts.kind .. "List",
    short_names = opts.short_names or {}, categories = opts.categories or {},
    api_version = group == "" and version or group .. "/" .. version,
    name = group == "" and opts.plural or opts.plural .. "." .. group,
    is_namespaced = opts.scope ~= "Cluster", prefix = prefix_of(opts),
    schema = opts.schema and schemas.compile(opts.schema, where .. ": schema"), declared_schema = opts.schema,
    columns = columns.compile(opts.columns, where), selectable = selectable_of(opts, where),
    has_status = opts.status == true, scale = compile_scale(opts, where), validate = opts.validate,
    mutate = opts.mutate, is_builtin = false, is_strategic = false,
  }
end

-- {====== CustomResourceDefinitions ======

local CRD = "apiextensions.k8s.io/v1"

--- Returns the value at some names in a CustomResourceDefinition; nil if it is absent. Raises if its type is wrong.
local function member(object, kind, ...)
  local names = { ... }
  local found = field_path.get(object, names)
  if value.is_nothing(found) then return nil end
  if type(found) ~= kind then
    check.misuse("from_crd: %s must be a %s, not %s", table.concat(names, "."), kind, check.shown(found))
  end
  return found
end

--- Returns the version that is served. Raises unless there is one.
local function served_version(crd)
  local served
  for _, version in ipairs(member(crd, "table", "spec", "versions") or {}) do
    if type(version) == "table" and version.served == true then
      if served then check.misuse("from_crd: several versions are served, and only one can be: %s and %s",
        tostring(served.name), tostring(version.name)) end
      served = version
    end
  end
  return served or check.misuse("from_crd: no version is served")
end

--- Returns the columns of a version.
local function columns_of(version)
  local declared = member(version, "table", "additionalPrinterColumns")
  local list = {}
  for i, column in ipairs(declared or {}) do
    list[i] = {
      name = column.name, type = column.type, format = column.format, description = column.description,
      priority = column.priority, path = column.jsonPath,
    }
  end
  return list[1] and list or nil
end

--- Returns the paths of the fields that selectors may use.
local function selectable_fields_of(version)
  local list = {}
  for i, field in ipairs(member(version, "table", "selectableFields") or {}) do list[i] = field.jsonPath end
  return list
end

--- Returns the option `scale` of a version, or nil.
local function scale_of(version)
  if not member(version, "table", "subresources", "scale") then return nil end
  return {
    replicas = member(version, "string", "subresources", "scale", "specReplicasPath"),
    status_replicas = member(version, "string", "subresources", "scale", "statusReplicasPath"),
    selector = member(version, "string", "subresources", "scale", "labelSelectorPath"),
  }
end

--- Returns the declaration that a decoded CustomResourceDefinition means, for `new`.
local function declaration_of(crd)
  check.argument(type(crd) == "table", 1, "from_crd", "table", crd)
  if crd.kind ~= "CustomResourceDefinition" or crd.apiVersion ~= CRD then
    check.misuse("from_crd: the object is not a CustomResourceDefinition of %s", CRD)
  end
  local version = served_version(crd)
  if member(crd, "boolean", "spec", "preserveUnknownFields") then
    check.misuse("from_crd: spec.preserveUnknownFields must be false: use x-kubernetes-preserve-unknown-fields")
  end
  return {
    group = member(crd, "string", "spec", "group"), version = version.name,
    kind = member(crd, "string", "spec", "names", "kind"), plural = member(crd, "string", "spec", "names", "plural"),
    singular = member(crd, "string", "spec", "names", "singular"),
    list_kind = member(crd, "string", "spec", "names", "listKind"),
    short_names = member(crd, "table", "spec", "names", "shortNames"),
    categories = member(crd, "table", "spec", "names", "categories"), scope = member(crd, "string", "spec", "scope"),
    schema = member(version, "table", "schema", "openAPIV3Schema"), columns = columns_of(version),
    selectable = selectable_fields_of(version), scale = scale_of(version),
    status = member(version, "table", "subresources", "status") ~= nil,
  }
end

--- Returns the kind of a decoded CustomResourceDefinition (apiextensions.k8s.io/v1), of which one version is served.
-- `hooks` may have the functions `validate` and `mutate`.
local function from_crd(crd, hooks)
  local declaration = declaration_of(crd)
  hooks = check.options(hooks, "from_crd", { validate = "function", mutate = "function" })
  declaration.validate, declaration.mutate = hooks.validate, hooks.mutate
  return new(declaration, "from_crd")
end

-- }======

return { new = new, from_crd = from_crd }
