--- The API of resources in process: declarations, names, handles, the end.

local keywatch = require "keywatch"
local kubernetes = require "keywatch.kubernetes"

local widgets = require "spec.kubernetes.widgets"
local within = require "spec.support.within"

local function open(resources)
  return kubernetes.api { store = keywatch.open(), resources = resources }
end

describe("an API", function()
  it("finds a resource by plural, kind, group, singular and short name", function()
    local api = open { widgets.declaration(), kubernetes.builtin.configmaps }
    for _, name in ipairs { "widgets", "Widget", "widget", "widgets.demo.example", "wd" } do
      assert.equal("Widget", api:resource(name).resource.kind.kind)
    end
    assert.equal("ConfigMap", api:resource("cm").resource.kind.kind)
    assert.error_matches(function() api:resource "gadgets" end, "resource: there is no resource 'gadgets'")
    api:close()
    api:close()
  end)

  it("accepts a CustomResourceDefinition", function()
    local api = open { {
      apiVersion = "apiextensions.k8s.io/v1", kind = "CustomResourceDefinition",
      metadata = { name = "gadgets.demo.example" }, spec = {
        group = "demo.example", scope = "Cluster", names = { kind = "Gadget", plural = "gadgets" },
        versions = { { name = "v1", served = true, storage = true, schema = { openAPIV3Schema = {
          type = "object", ["x-kubernetes-preserve-unknown-fields"] = true,
        } } } },
      },
    } }
    local gadgets = api:resource "gadgets"
    assert(gadgets:create { metadata = { name = "a" }, any = { thing = 1 } })
    assert.equal(1, gadgets:get("a").any.thing)
    assert.is_string(api.store:get("/registry/demo.example/gadgets/a").value)
    assert.error_matches(function() gadgets:namespace "n" end, "are not in namespaces")
    api:close()
  end)

  it("refuses wrong options, and names them", function()
    for wrong, text in pairs {
      [{ resources = {} }] = "option 'store' is needed", [{ store = keywatch.open() }] = "option 'resources' is needed",
      [{ store = keywatch.open(), resources = { 1 } }] = "resource 1 must be a table",
      [{ store = keywatch.open(), resources = {}, compact = 1 }] = "option 'compact' must be a boolean",
      [{ store = keywatch.open(), resources = { widgets.declaration(), widgets.declaration() } }] =
        "widgets.demo.example is declared twice",
      [{ store = keywatch.open(), resources = { { group = "x.y", version = "v1", kind = "A" } } }] =
        "'plural' is needed",
    } do
      assert.error_matches(function() kubernetes.api(wrong) end, text)
    end
  end)

  it("works at top level", function()
    local store = keywatch.open()
    local api, handle = widgets.open(store)
    assert(handle:create(widgets.new "n/a"))
    local watch = assert(handle:watch())
    assert.equal("ADDED n/a 2", widgets.short(watch:next(10)))
    assert(handle:patch("n/a", { spec = { size = 2 } }))
    assert.equal("MODIFIED n/a 3", widgets.short(watch:next(10)))
    assert.equal("3", handle:list().resource_version)
    watch:close()
    api:close()
    store:close()
  end)
end)

describe("a handle", function()
  it("has keys of a namespace and a name, or of a name alone", within.world(function()
    local api, handle = widgets.open(keywatch.open())
    local inner = handle:namespace "n"
    assert.equal("n", assert(inner:create { metadata = { name = "a" }, spec = { size = 1 } }).metadata.namespace)
    assert.equal("a", inner:get("a").metadata.name)
    assert.equal("a", handle:get("n/a").metadata.name)
    assert(inner:patch("a", { spec = { size = 2 } }))
    assert(inner:status():patch("a", { status = { phase = "x" } }))
    local object = inner:get "a"
    object.metadata.namespace = nil
    assert.equal("n", assert(inner:update(object)).metadata.namespace)
    for _, call in ipairs {
      function() handle:get "a" end, function() handle:get "n/a/b" end, function() inner:get "n/a" end,
      function() handle:get "" end, function() handle:delete(1) end, function() handle.get("n/a") end,
      function() handle:create "x" end, function() handle:patch("n/a", "x") end,
      function() handle:get("n/a", { resource = 1 }) end, function() handle:list { limit = -1 } end,
      function() handle:delete("n/a", { propagation = "None" }) end, function() handle:status():list() end,
      function() handle:namespace "" end, function() api:resource("cm"):scale() end,
      function() api:resource("cm"):status() end, function() handle:watch { bookmarks = 1 } end,
    } do assert.error(call) end
    assert(inner:delete "a")
    api:close()
  end, { leftovers = "cancel" }))

  it("raises the error of an iteration, since a loop would end early unnoticed", within.world(function()
    local store = keywatch.open()
    local _, handle = widgets.open(store)
    store:close()
    assert.error(function() for _ in handle:each() do error "unreachable" end end)
  end, { leftovers = "cancel" }))
end)
