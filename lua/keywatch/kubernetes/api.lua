-- SPDX-License-Identifier: MIT
--- api: resources of Kubernetes whose objects are in a store, a client's servers, or a namespace of either.
--
-- A resource is { kind, cache, history, reads, registry }: one cache of the kind's keys, one history for all of its
-- watches, and the functions that read and write its objects. Several programs may serve the same resources of one
-- etcd cluster: nothing here relies on being alone.

local check = require "keywatch.support.check"
local compactors = require "keywatch.kubernetes.compactor"
local handles = require "keywatch.kubernetes.handle"
local histories = require "keywatch.kubernetes.history"
local kinds = require "keywatch.kubernetes.kind"
local reads = require "keywatch.kubernetes.reads"
local registries = require "keywatch.kubernetes.registry"
local servers = require "keywatch.kubernetes.server"

local api_methods, api_mt = check.class "keywatch.kubernetes.api"

local CRD = "CustomResourceDefinition"
local OPTIONS = { store = "store", resources = "table", compact = "boolean", history_bytes = "amount" }

-- {====== Opening ======

--- Returns the kind of a declaration, of a CustomResourceDefinition, or of builtin.lua.
local function kind_of(declared, i)
  if type(declared) ~= "table" then
    check.misuse("api: resource %d must be a table, not %s", i, check.shown(declared))
  end
  if declared.is_builtin then return declared end
  if declared.kind == CRD then return kinds.from_crd(declared) end
  return kinds.new(declared, "api")
end

--- Raises if two resources have the same name.
local function check_unique(by_name, kind)
  local name = kind.name .. "/" .. kind.version
  if by_name[name] then check.misuse("api: the resource %s is declared twice", kind.name) end
  by_name[name] = true
end

--- Opens a resource.
local function open_resource(api, kind)
  local cache, err = api.store:cache(kind.prefix)
  if not cache then error(err, 0) end
  local history = histories.new(cache, kind.prefix, api.history_bytes)
  local resource = { api = api, kind = kind, cache = cache, history = history }
  resource.reads = reads.new(kind, api.store, cache, history)
  resource.registry = registries.new(resource)
  return resource
end

--- Opens the API of some resources. See docs/kubernetes.md for the options. Raises if a declaration is invalid.
local function open(opts)
  opts = check.options(opts, "api", OPTIONS)
  check.needed(opts, "api", "store", "resources")
  local list, by_name = {}, {}
  for i = 1, check.list(opts.resources, "api") do
    list[i] = kind_of(opts.resources[i], i)
    check_unique(by_name, list[i])
  end
  local self = setmetatable({
    store = opts.store,
    compacts = opts.compact, -- true: from the beginning; nil: while it is served; false: never
    history_bytes = opts.history_bytes,
    resources = {},
    compactor = nil,
    served = {}, -- as keys: what server.lua has returned
    is_closed = false,
  }, api_mt)
  for i, kind in ipairs(list) do self.resources[i] = open_resource(self, kind) end
  if opts.compact then self:start_compacting() end
  return self
end

-- }======

--- True if a kind has a name, as kubectl understands names.
local function has_name(kind, name)
  if name == kind.plural or name == kind.name or name == kind.kind or name == kind.singular then return true end
  for _, short in ipairs(kind.short_names) do
    if name == short then return true end
  end
  return false
end

--- Returns the handle of a resource (handle.lua). `name` is its plural, plural and group, kind, or a short name. Raises
-- if there is no such resource.
function api_methods:resource(name)
  check.argument(type(name) == "string", 1, "resource", "string", name)
  for _, resource in ipairs(self.resources) do
    if has_name(resource.kind, name) then return handles.new(resource) end
  end
  check.misuse("resource: there is no resource '%s'", name)
end

--- Serves the API on listeners of its own. See docs/kubernetes.md for the options. Returns a server: addresses(),
-- shutdown(grace), close(); or nil and an error.
function api_methods:serve(opts)
  if self.is_closed then check.misuse("serve: the API is closed") end
  local server, err = servers.serve(self.resources, opts)
  if not server then return nil, err end
  self.served[server] = true
  self:start_compacting()
  return server
end

--- Serves the API on a keywatch server, beside its own services. Options: `tokens`, `authorize`, `anonymous`.
function api_methods:mount(server, opts)
  if self.is_closed then check.misuse("mount: the API is closed") end
  self.served[servers.mount(self.resources, server, opts)] = true
  self:start_compacting()
end

--- Begins to compact the store regularly, unless the option `compact` is false. Idempotent. Called when the API is
-- served.
function api_methods:start_compacting()
  if self.compactor or self.compacts == false or self.is_closed then return end
  self.compactor = compactors.open(self.store)
end

--- Ends the API: watches end, and the store stays open. Idempotent.
function api_methods:close()
  if self.is_closed then return end
  self.is_closed = true
  if self.compactor then self.compactor:close() end
  for server in pairs(self.served) do server:close() end
  for _, resource in ipairs(self.resources) do
    resource.history:close()
    resource.cache:close()
  end
end

api_mt.__close = api_methods.close

return { open = open, methods = api_methods }
