--- Shared by the specs of resources: a kind with a schema and all subresources, and the stores that objects can be in.

local keywatch = require "keywatch"
local kubernetes = require "keywatch.kubernetes"

local directory = require "spec.support.directory"

local widgets = {}

local integer, text = { type = "integer" }, { type = "string" }

--- Returns the declaration of widgets, with some fields replaced.
function widgets.declaration(more)
  local declared = {
    group = "demo.example", version = "v1", kind = "Widget", plural = "widgets", scope = "Namespaced",
    short_names = { "wd" }, status = true,
    scale = { replicas = ".spec.replicas", status_replicas = ".status.replicas" },
    schema = { type = "object", properties = {
      spec = { type = "object", properties = {
        size = { type = "integer", minimum = 1 }, color = { type = "string", default = "red" }, replicas = integer,
      } },
      status = { type = "object", properties = { phase = text, replicas = integer } },
    } },
  }
  for name, value in pairs(more or {}) do declared[name] = value end
  return declared
end

--- Returns a widget. `name` is "namespace/name".
function widgets.new(name, spec, labels)
  local namespace, own = name:match("^(.*)/(.*)$")
  return { metadata = { namespace = namespace, name = own, labels = labels }, spec = spec or { size = 1 } }
end

--- Opens the API of widgets in a store. `more` are options of kubernetes.api.
function widgets.open(store, more)
  local opts = { store = store, resources = { widgets.declaration(), kubernetes.builtin.configmaps } }
  for name, value in pairs(more or {}) do opts[name] = value end
  local api = kubernetes.api(opts)
  return api, api:resource "widgets"
end

-- Each kind of store: its name, and a function of a world that returns a store or a client.
widgets.stores = {
  { name = "a store", open = function() return keywatch.open() end },
  { name = "a client", open = function(world) return world:client() end },
  { name = "a namespace of a client", open = function(world) return world:client():namespace("tenant/") end },
  { name = "a durable store", open = function() return assert(keywatch.open { path = directory.new() }) end },
}

--- Defines a test for each kind of store: fn(handle, api, store, world) runs in virtual time. `more` are options of
-- kubernetes.api.
function widgets.each_store(it, title, fn, more)
  for _, kind in ipairs(widgets.stores) do
    it(("%s, with %s"):format(title, kind.name), function()
      require("keywatch.testing").run(function(world)
        local store = kind.open(world)
        local api, handle = widgets.open(store, more)
        fn(handle, api, store, world)
        api:close()
        if store.close then store:close() end
      end, { leftovers = "cancel" })
    end)
  end
end

--- Returns an event of a watch as a text: "ADDED ns/a 12".
function widgets.short(event, err)
  if not event then return err and "nil " .. err.code or "nil" end
  local version = event.object.metadata.resourceVersion
  return ("%s%s %s"):format(event.type, event.key and " " .. event.key or "", version)
end

return widgets
