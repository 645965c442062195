--- Columns of tables: paths into objects, and the cells of each type.

local columns = require "keywatch.kubernetes.columns"
local field_path = require "keywatch.kubernetes.field_path"
local json = require "keywatch.json"

local OBJECT = assert(json.decode [[{"metadata":{"name":"a","creationTimestamp":"2026-01-01T00:00:00Z",
  "labels":{"app.example/name":"web"}},
  "spec":{"size":3,"ratio":1.5,"on":true,"none":null,"map":{"b":1,"a":[1]},
  "ports":[{"name":"x","n":80},{"name":"y","n":81}]},
  "status":{"conditions":[{"type":"Synced","status":"False"},{"type":"Ready","status":"True"}]}}]])

describe("a path", function()
  it("finds the value in an object", function()
    for text, expected in pairs {
      [".spec.size"] = 3, ["{.spec.size}"] = 3, [".spec.ports[1].name"] = "y", [".spec.ports[*].name"] = "x",
      [".metadata.labels['app.example/name']"] = "web", [".metadata.labels['app\\.example/name']"] = "web",
      [".spec['size']"] = 3, ['.status.conditions[?(@.type=="Ready")].status'] = "True",
      [".status.conditions[?(@.type == 'Synced')].status"] = "False", [".spec.ports[?(@.n==81)].name"] = "y",
    } do
      local steps, why = field_path.compile(text)
      assert(steps, why)
      assert.equal(expected, field_path.find(OBJECT, steps), text)
    end
  end)

  it("finds nothing where there is nothing", function()
    for _, text in ipairs { ".x", ".spec.size.x", ".spec.ports.name", ".spec.ports[2]", ".spec[0]", ".spec.ports[*].z",
      '.status.conditions[?(@.type=="x")].status', ".spec.on[*]" } do
      assert.is_nil(field_path.find(OBJECT, assert(field_path.compile(text))), text)
    end
  end)

  it("is refused if it is malformed", function()
    for _, text in ipairs { "", ".", "spec", ".spec[", ".spec[x]", ".spec[-1]", ".spec..a", ".a[?(@.b)]", ".a['b]",
      ".a b" } do
      local steps, why = field_path.compile(text)
      assert.is_nil(steps, text)
      assert.is_string(why)
    end
  end)

  it("reads a bounded number of elements", function()
    local list = {}
    for i = 1, 1000 do list[i] = {} end
    for i = 1, 1000 do list[i].list = list end
    assert.is_nil(field_path.find({ list = list }, assert(field_path.compile ".list[*].list[*].list[*].list[*].x")))
  end)

  it("sets a value, and makes the objects on the way", function()
    local object = { spec = { a = 1 } }
    assert.is_true(field_path.set(object, { "status", "deep", "n" }, 2))
    assert.is_false(field_path.set(object, { "spec", "a", "n" }, 2))
    assert.same({ spec = { a = 1 }, status = { deep = { n = 2 } } }, object)
  end)
end)

describe("a column", function()
  local NOW = 1767225600 + 3 * 86400 -- of the object's creation, three days later

  local function cell(kind, path)
    return columns.compile({ { name = "A", type = kind, path = path } }, "spec")[2].read(OBJECT, NOW)
  end

  it("has the cell of its type", function()
    assert.equal(3, cell("integer", ".spec.size"))
    assert.equal(1, cell("integer", ".spec.ratio"))
    assert.equal(1.5, cell("number", ".spec.ratio"))
    assert.is_true(cell("boolean", ".spec.on"))
    assert.equal("3d", cell("date", ".metadata.creationTimestamp"))
    assert.equal("<invalid>", cell("date", ".metadata.name"))
    assert.equal("a", cell("string", ".metadata.name"))
    assert.equal("3", cell("string", ".spec.size"))
    assert.equal("true", cell("string", ".spec.on"))
    assert.equal('{"a":[1],"b":1}', cell("string", ".spec.map"))
  end)

  it("has no cell for a value of another type", function()
    for _, case in ipairs { { "integer", ".metadata.name" }, { "boolean", ".spec.size" }, { "number", ".spec.map" },
      { "date", ".spec.size" }, { "string", ".spec.none" }, { "string", ".spec.absent" } } do
      assert.is_nil(cell(case[1], case[2]))
    end
  end)
end)
