--- Kinds: declarations, their mistakes, and CustomResourceDefinitions.

local json = require "keywatch.json"
local kinds = require "keywatch.kubernetes.kind"

local misuse = require "spec.support.misuse"

--- A valid declaration, with other options.
local function declaration(more)
  local found = { group = "demo.example", version = "v1", kind = "Widget", plural = "widgets" }
  for name, option in pairs(more or {}) do found[name] = option end
  return found
end

local CRD = [[{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
  "metadata":{"name":"widgets.demo.example"},
  "spec":{"group":"demo.example","scope":"Namespaced","names":{"kind":"Widget","plural":"widgets","singular":"widget",
    "shortNames":["wd"],"categories":["all"]},
    "versions":[{"name":"v1","served":true,"storage":true,"subresources":{"status":{},"scale":{
      "specReplicasPath":".spec.replicas","statusReplicasPath":".status.replicas",
      "labelSelectorPath":".status.selector"}},
      "additionalPrinterColumns":[{"name":"Size","type":"integer","jsonPath":".spec.size","priority":1}],
      "selectableFields":[{"jsonPath":".spec.color"}],
      "schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{
        "size":{"type":"integer"},"color":{"type":"string"}}}}}}},
      {"name":"v1beta1","served":false,"storage":false}]}}]]

describe("a kind", function()
  it("has defaults for what is not declared", function()
    local kind = kinds.new(declaration())
    assert.equal("demo.example/v1", kind.api_version)
    assert.equal("widgets.demo.example", kind.name)
    assert.equal("widget", kind.singular)
    assert.equal("WidgetList", kind.list_kind)
    assert.equal("/registry/demo.example/widgets/", kind.prefix)
    assert.is_true(kind.is_namespaced)
    assert.is_false(kind.has_status)
    assert.is_nil(kind.scale)
    assert.is_nil(kind.schema)
    assert.equal("Name", kind.columns[1].name)
    assert.equal("Age", kind.columns[2].name)
  end)

  it("of the core group has short names and prefixes", function()
    local kind = kinds.new(declaration { group = "", scope = "Cluster" })
    assert.equal("v1", kind.api_version)
    assert.equal("widgets", kind.name)
    assert.equal("/registry/widgets/", kind.prefix)
    assert.is_false(kind.is_namespaced)
  end)

  it("compiles the paths of scale", function()
    local kind = kinds.new(declaration { scale = { replicas = ".spec.n", status_replicas = ".status.n" } })
    assert.same({ replicas = { "spec", "n" }, status_replicas = { "status", "n" } }, kind.scale)
  end)

  it("raises for a mistake, and names the resource and the field", function()
    for text, more in pairs {
      ["option 'plural': a DNS-1035 label must"] = { plural = "Widgets" },
      ["option 'group': a lowercase RFC 1123 subdomain must"] = { group = "demo_example" },
      ["option 'kind' must be letters and digits"] = { kind = "a/b" },
      ["option 'scope' must be 'Namespaced' or 'Cluster'"] = { scope = "cluster" },
      ["there is no option 'shortnames'"] = { shortnames = { "w" } },
      ["option 'short_names' must be a list of strings"] = { short_names = "w" },
      ["option 'short_names': a DNS-1035 label must"] = { short_names = { "W" } },
      ["schema.spec: there is no type 'x'"] = { schema = { type = "object", properties = { spec = { type = "x" } } } },
      ["columns[1]: the path '.spec[' cannot be read from byte 6 on"] = {
        columns = { { name = "A", type = "string", path = ".spec[" } } },
      ["columns[1]: option 'type' must be"] = { columns = { { name = "A", type = "text", path = ".spec" } } },
      ["option 'scale': option 'status_replicas' is needed"] = { scale = { replicas = ".spec.n" } },
      ["must be a path below .spec, not '.status.n'"] = { scale = { replicas = ".status.n",
        status_replicas = ".status.n" } },
      ["option 'selectable': the path '.spec[*]' may only have names"] = { selectable = { ".spec[*]" } },
      ["option 'validate' must be a function"] = { validate = true },
    } do
      local found = misuse.raises(kinds.new, declaration(more))
      assert(found:find(text, 1, true), found)
    end
    assert(misuse.raises(kinds.new, { kind = "Widget" }):find("Widget: option 'group' is needed", 1, true))
  end)
end)

describe("from_crd", function()
  it("accepts a CustomResourceDefinition", function()
    local function validate() end
    local kind = kinds.from_crd(assert(json.decode(CRD)), { validate = validate })
    assert.equal("widgets.demo.example", kind.name)
    assert.same({ "wd" }, kind.short_names)
    assert.same({ "all" }, kind.categories)
    assert.is_true(kind.has_status)
    assert.same({ "status", "selector" }, kind.scale.selector)
    assert.equal("Size", kind.columns[2].name)
    assert.equal(1, kind.columns[2].priority)
    assert.equal(7, kind.columns[2].read { spec = { size = 7 } })
    assert.is_true(kind.selectable["spec.color"])
    assert.is_table(kind.schema)
    assert.equal(validate, kind.validate)
  end)

  it("raises for what is none, and for several served versions", function()
    for _, case in ipairs {
      { '"CustomResourceDefinition"', '"Pod"', "is not a CustomResourceDefinition" },
      { "extensions.k8s.io/v1", "extensions.k8s.io/v1beta1", "is not a CustomResourceDefinition" },
      { '"served":false', '"served":true', "several versions are served, and only one can be: v1 and v1beta1" },
      { '"served":true', '"served":false', "no version is served" },
      { '"group":"demo.example"', '"group":1', "spec.group must be a string, not 1" },
      { '"group":"demo.example",', "", "option 'group' is needed" },
      { '"scope":"Namespaced"', '"scope":"x"', "option 'scope' must be" },
      { '"scope":', '"preserveUnknownFields":true,"scope":', "spec.preserveUnknownFields must be false" },
      { '"type":"integer","jsonPath"', '"type":1,"jsonPath"', "columns[1]: option 'type' must be" },
    } do
      local from, stop = CRD:find(case[1], 1, true)
      local found = misuse.raises(kinds.from_crd, assert(json.decode(CRD:sub(1, from - 1) .. case[2]
        .. CRD:sub(stop + 1))))
      assert(found:find(case[3], 1, true), found)
    end
    assert(misuse.raises(kinds.from_crd, "x"))
  end)
end)
