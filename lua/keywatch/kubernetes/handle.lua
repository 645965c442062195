-- SPDX-License-Identifier: MIT
--- handle: the objects of one kind, for a program in this process: what clients do by requests. A key is
-- "namespace/name"; of a cluster-scoped kind, and of the handle of a namespace, it is the name alone.
--
-- Objects are tables that belong to the caller. Failures return nil and an error of status_error.lua.

local check = require "keywatch.support.check"
local entries = require "keywatch.kubernetes.entry"
local selector = require "keywatch.kubernetes.selector"
local slices = require "keywatch.task.slice"
local value = require "keywatch.kubernetes.value"
local watches = require "keywatch.kubernetes.watch"

local MAX_PIECES = 100 -- objects that are decoded before other tasks run

local handle_methods, handle_mt = check.class "keywatch.kubernetes.handle"

-- {====== Arguments ======

--- Returns the key of an object in the kind. Raises if it has another form.
local function outer_key(handle, key, name)
  check.argument(type(key) == "string" and key ~= "", 1, name, "key", key)
  local is_name = handle.ns or not handle.resource.kind.is_namespaced
  local _, slashes = key:gsub("/", "")
  if slashes ~= (is_name and 0 or 1) then
    check.misuse("%s: the key must be %s, not '%s'", name, is_name and "a name" or "'namespace/name'", key)
  end
  return handle.ns and handle.ns .. "/" .. key or key
end

local READ = { resource_version = "any", timeout = "seconds" }
local SELECTION = { labels = "string", fields = "string", namespace = "text" }
local LIST = { limit = "amount", continue = "string", resource_version = "any", resource_version_match = "string" }
local WRITE = { dry_run = "boolean", field_validation = check.one_of("Ignore", "Warn", "Strict"), user = "any" }
local DELETION = { preconditions = "table", propagation = check.one_of("Background", "Foreground", "Orphan") }
local PATCH = { type = check.one_of("merge", "json", "strategic") }
local WATCH = { resource_version = "any", bookmarks = "boolean", initial = "boolean" }

--- Returns the kinds of options of several tables together.
local function kinds_of(...)
  local all = {}
  for _, kinds in ipairs { ... } do
    for name, kind in pairs(kinds) do all[name] = kind end
  end
  return all
end

local LIST_OPTIONS, WATCH_OPTIONS = kinds_of(SELECTION, LIST), kinds_of(SELECTION, WATCH)
local DELETE_OPTIONS, PATCH_OPTIONS = kinds_of(WRITE, DELETION), kinds_of(WRITE, PATCH)
local DELETE_COLLECTION_OPTIONS = kinds_of(SELECTION, WRITE, DELETION)

--- Returns options with the filter and the namespace that they ask for; or nil and an error.
local function selection_of(handle, opts)
  local filter, err = selector.parse(handle.resource.kind, opts.labels, opts.fields)
  if filter == false then return nil, err end
  local own = check.copy(opts)
  own.filter, own.namespace = filter, handle.ns or opts.namespace
  return own
end

--- Raises if a method is called on the handle of a subresource.
local function check_whole(handle, name)
  if handle.subresource then check.misuse("%s: the subresource %s has no such method", name, handle.subresource) end
end

--- Returns the options of a write for the registry.
local function write_options(handle, opts, name, kinds)
  local own = check.copy(check.options(opts, name, kinds or WRITE))
  own.subresource = handle.subresource
  return own
end

--- Returns the object of an entry, for the caller, and the second result; or nil and an error.
local function object_of(entry, second)
  if not entry then return nil, second end
  local object, err = entries.copy(entry)
  if not object then return nil, err end
  return object, second
end

-- }======

-- {====== Reading ======

--- Returns the object of a key; nil if there is none; or nil and an error.
function handle_methods:get(key, opts)
  key = outer_key(self, key, "get")
  opts = check.options(opts, "get", READ)
  if self.subresource == "scale" then
    local scale, err = self.resource.registry:scale(key)
    if err and err.code == "not_found" then return nil end
    return check.results(scale, err)
  end
  local entry, err = self.resource.reads:get(key, opts.resource_version)
  if not entry then return check.results(nil, err) end
  return check.results(object_of(entry))
end

--- Lists objects. Returns { items, resource_version, continue, remaining }; or nil and an error.
function handle_methods:list(opts)
  check_whole(self, "list")
  local own, err = selection_of(self, check.options(opts, "list", LIST_OPTIONS))
  if not own then return nil, err end
  local list, failed = self.resource.reads:list(own)
  if not list then return nil, failed end
  local all, why = list:entries()
  if not all then return nil, why end
  local slice = slices.new(MAX_PIECES)
  for i, entry in ipairs(all) do
    all[i], why = entries.copy(entry)
    if not all[i] then return nil, why end
    slices.pass(slice)
  end
  return {
    items = all, resource_version = ("%d"):format(list.revision), continue = list.continue, remaining = list.remaining,
  }
end

--- Returns an iterator over objects, all of one state. It raises the error of reading them.
function handle_methods:each(opts)
  check_whole(self, "each")
  local own, err = selection_of(self, check.options(opts, "each", LIST_OPTIONS))
  if not own then error(err, 0) end
  local list, failed = self.resource.reads:list(own)
  if not list then error(failed, 0) end
  local page, at = {}, 0
  return function()
    while at == #page do
      local why
      page, why = list:next_page()
      if why then error(why, 0) end
      if not page then
        page, at = {}, 0
        return nil
      end
      at = 0
    end
    at = at + 1
    local object, why = entries.copy(page[at])
    if not object then error(why, 0) end
    return object
  end
end

--- Watches objects. Returns a watch of { type, object }, see watch.lua; or nil and an error.
function handle_methods:watch(opts)
  check_whole(self, "watch")
  local own, err = selection_of(self, check.options(opts, "watch", WATCH_OPTIONS))
  if not own then return nil, err end
  return check.results(watches.open(self.resource, own))
end

-- }======

-- {====== Writing ======

--- Creates an object, or one with a generated name. Returns the object, and a list of warnings; or nil and an error.
function handle_methods:create(object, opts)
  check_whole(self, "create")
  check.argument(type(object) == "table", 1, "create", "table", object)
  return object_of(self.resource.registry:create(self.ns, value.copy(object), write_options(self, opts, "create")))
end

--- Replaces an object. Returns the object, and a list of warnings; or nil and an error.
function handle_methods:update(object, opts)
  check.argument(type(object) == "table", 1, "update", "table", object)
  local own = write_options(self, opts, "update")
  local registry = self.resource.registry
  object = value.copy(object)
  local key, err = registry:key_of(object, self.ns)
  if not key then return nil, err end
  if self.subresource == "scale" then return registry:update_scale(key, object, own) end
  return object_of(registry:update(key, object, own))
end

--- Changes an object by a patch: a merge patch unless the option `type` says otherwise. Returns the object, and a list
-- of warnings; or nil and an error.
function handle_methods:patch(key, patch, opts)
  key = outer_key(self, key, "patch")
  check.argument(type(patch) == "table", 2, "patch", "table", patch)
  local own = write_options(self, opts, "patch", PATCH_OPTIONS)
  local registry = self.resource.registry
  if self.subresource == "scale" then return registry:patch_scale(key, own.type or "merge", patch, own) end
  return object_of(registry:patch(key, own.type or "merge", patch, own))
end

--- Deletes an object, or marks it if it has finalizers. Returns its last state, and whether it is gone; or nil and an
-- error.
function handle_methods:delete(key, opts)
  check_whole(self, "delete")
  key = outer_key(self, key, "delete")
  return object_of(self.resource.registry:delete(key, write_options(self, opts, "delete", DELETE_OPTIONS)))
end

--- Deletes all objects that match. Returns the list of their last states; or nil and an error.
function handle_methods:delete_collection(opts)
  check_whole(self, "delete_collection")
  local own, err = selection_of(self, write_options(self, opts, "delete_collection", DELETE_COLLECTION_OPTIONS))
  if not own then return nil, err end
  local all, failed = self.resource.registry:delete_collection(own)
  if not all then return nil, failed end
  for i, entry in ipairs(all) do
    all[i], err = entries.copy(entry)
    if not all[i] then return nil, err end
  end
  return all
end

-- }======

-- {====== Other handles ======

--- Returns a handle of the same kind.
local function derive(handle, fields)
  return setmetatable({
    resource = handle.resource,
    ns = fields.ns or handle.ns,   -- the namespace, or nil
    subresource = fields.subresource, -- "status" or "scale", or nil
  }, handle_mt)
end

--- Returns the handle of a namespace: its keys are names.
function handle_methods:namespace(name)
  check.argument(type(name) == "string" and name ~= "", 1, "namespace", "name", name)
  local kind = self.resource.kind
  if not kind.is_namespaced then check.misuse("namespace: %s are not in namespaces", kind.plural) end
  return derive(self, { ns = name, subresource = self.subresource })
end

--- Returns the handle of the subresource status: update and patch change only the status.
function handle_methods:status()
  local kind = self.resource.kind
  if not kind.has_status then check.misuse("status: %s have no such subresource", kind.plural) end
  return derive(self, { subresource = "status" })
end

--- Returns the handle of the subresource scale, whose objects are of kind Scale.
function handle_methods:scale()
  local kind = self.resource.kind
  if not kind.scale then check.misuse("scale: %s have no such subresource", kind.plural) end
  return derive(self, { subresource = "scale" })
end

-- }======

--- Returns the handle of a resource.
local function new(resource)
  return setmetatable({ resource = resource, ns = nil, subresource = nil }, handle_mt)
end

return { new = new, methods = handle_methods }
