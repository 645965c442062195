--- The documents about an API: discovery, and OpenAPI as JSON and as protobuf. kubectl reads them in kubectl_spec.

local discovery = require "keywatch.kubernetes.discovery"
local json = require "keywatch.json"
local kinds = require "keywatch.kubernetes.kind"
local openapi = require "keywatch.kubernetes.openapi"

local WIDGET = {
  group = "demo.example", version = "v1", kind = "Widget", plural = "widgets", short_names = { "wd" }, status = true,
  scale = { replicas = ".spec.replicas", status_replicas = ".status.replicas" },
  schema = { type = "object", description = "A widget.", properties = {
    spec = { type = "object", required = { "size" }, properties = {
      size = { type = "integer", description = "How large." }, color = { type = "string", enum = { "red", "blue" } },
      any = { type = "object", ["x-kubernetes-preserve-unknown-fields"] = true },
      port = { ["x-kubernetes-int-or-string"] = true }, none = { type = "string", nullable = true },
      names = { type = "array", items = { type = "string" } },
      more = { type = "object", additionalProperties = { type = "integer" } },
    } },
    status = { type = "object", properties = { replicas = { type = "integer" } } },
  } },
}
local GADGET = { group = "", version = "v1", kind = "Gadget", plural = "gadgets", scope = "Cluster" }

local function all() return { kinds.new(WIDGET), kinds.new(GADGET) } end

describe("discovery", function()
  local texts = discovery.documents(all())

  local function document(path) return json.decode(texts[path]) end

  it("lists groups and versions", function()
    assert.same({ "v1" }, document("/api").versions)
    local names = {}
    for i, group in ipairs(document("/apis").groups) do names[i] = group.name end
    assert.same({ "demo.example", "authorization.k8s.io" }, names)
    assert.same({ groupVersion = "demo.example/v1", version = "v1" }, document("/apis/demo.example").preferredVersion)
    assert.is_nil(texts["/apis/"])
  end)

  it("lists resources and subresources", function()
    local list = document("/apis/demo.example/v1")
    assert.equal("demo.example/v1", list.groupVersion)
    assert.same({ "widgets", "widgets/status", "widgets/scale" },
      { list.resources[1].name, list.resources[2].name, list.resources[3].name })
    assert.same({ "wd" }, list.resources[1].shortNames)
    assert.equal("autoscaling", list.resources[3].group)
    assert.is_false(document("/api/v1").resources[1].namespaced)
  end)

  it("has a core group without kinds", function()
    assert.matches('"versions":%[%]', discovery.documents({ kinds.new(WIDGET) })["/api"])
  end)
end)

describe("OpenAPI", function()
  local document = openapi.document(all())
  local widget = document.definitions["example.demo.v1.Widget"]

  it("has the schemas of version 2", function()
    local spec = widget.properties.spec
    assert.same({ type = "integer", description = "How large." }, spec.properties.size)
    assert.same({ "size" }, spec.required)
    for _, name in ipairs { "any", "port", "none" } do assert.same({}, spec.properties[name]) end
    assert.same({ type = "integer" }, spec.properties.more.additionalProperties)
    assert.same({ { group = "demo.example", kind = "Widget", version = "v1" } },
      widget["x-kubernetes-group-version-kind"])
    assert.is_nil(document.definitions["io.k8s.api.core.v1.Gadget"].properties)
    assert.matches('"additionalProperties":{"type":"integer"}', openapi.to_json(document))
  end)

  it("has every path, with dry runs where something is written", function()
    local path = document.paths["/apis/demo.example/v1/namespaces/{namespace}/widgets/{name}"]
    assert.equal("dryRun", path.patch.parameters[1].name)
    assert.same({}, path.get.parameters)
    assert.is_table(document.paths["/api/v1/gadgets/{name}"])
  end)

  --- Returns the fields of a message: lists of values by number.
  local function read(bytes)
    local fields, at = {}, 1
    local function varint()
      local value, unit = 0, 1
      repeat
        local byte = bytes:byte(at)
        value, unit, at = value + byte % 128 * unit, unit * 128, at + 1
      until byte < 128
      return value
    end
    while at <= #bytes do
      local tag = varint()
      assert.equal(2, tag % 8)
      local len = varint()
      local number = (tag - 2) / 8
      fields[number] = fields[number] or {}
      table.insert(fields[number], bytes:sub(at, at + len - 1))
      at = at + len
    end
    assert.equal(#bytes + 1, at)
    return fields
  end

  it("is the same as protobuf", function()
    local message = read(openapi.to_protobuf(document))
    assert.same({ "2.0" }, message[1])
    local found = {}
    for _, bytes in ipairs(read(message[9][1])[1]) do
      local named = read(bytes)
      found[named[1][1]] = read(named[2][1])
    end
    local made = found["example.demo.v1.Widget"]
    assert.equal("A widget.", made[4][1])
    local extension = read(made[31][1])
    assert.equal("x-kubernetes-group-version-kind", extension[1][1])
    assert.same(widget["x-kubernetes-group-version-kind"], json.decode(read(extension[2][1])[2][1]))
    local n = 0
    for _ in pairs(document.paths) do n = n + 1 end
    assert.equal(n, #read(message[8][1])[2])
  end)
end)
