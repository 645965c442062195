--- Schemas: which declarations are accepted, unknown fields, defaults, and the causes of invalid objects.

local json = require "keywatch.json"
local schema = require "keywatch.kubernetes.schema"

local misuse = require "spec.support.misuse"

--- Compiles a schema whose spec has these fields.
local function with_fields(fields, more)
  local spec = { type = "object", properties = fields }
  for name, found in pairs(more or {}) do spec[name] = found end
  return schema.compile { type = "object", properties = { spec = spec } }
end

--- Returns the causes of a spec in JSON, as "reason field: message".
local function causes(fields, text, more)
  local list = {}
  local object = assert(json.decode('{"spec":' .. text .. "}"))
  for i, cause in ipairs(schema.validate(with_fields(fields, more), object)) do
    list[i] = ("%s %s: %s"):format(cause.reason, cause.field, cause.message)
  end
  return list
end

describe("a schema", function()
  it("is refused with the position of a mistake", function()
    for _, case in ipairs {
      { { type = "objekt" }, "schema: there is no type 'objekt'" },
      { {}, "schema: a type is needed" },
      { { type = "string" }, "schema: the type must be 'object'" },
      { { type = "object", properties = { a = {} } }, "schema.a: a type is needed" },
      { { type = "object", properties = { a = 1 } }, "schema.a must be a table, not 1" },
      { { type = "object", propertys = {} }, "schema: there is no keyword 'propertys'" },
      { { type = "object", properties = { a = { type = "string", minLength = "x" } } },
        "schema.a: the keyword 'minLength' must be a number, not 'x'" },
      { { type = "object", properties = { a = { type = "string", pattern = "(" } } },
        "schema.a: the pattern '(' has a parenthesis that is not closed" },
      { { type = "object", properties = { a = { type = "array" } } }, "schema.a: items is needed" },
      { { type = "object",
        properties = { metadata = { type = "object", properties = { labels = { type = "object" } } } } },
        "schema.metadata: only name and generateName can be declared" },
      { { type = "object", additionalProperties = false }, "additionalProperties must not be false" },
      { { type = "object", properties = { a = { type = "integer", default = "x" } } },
        "schema.a: the default is invalid: Invalid value" },
      { { type = "object", ["x-kubernetes-validations"] = {} }, "x-kubernetes-validations is not supported" },
      { { type = "object", properties = { a = { type = "array", items = { type = "object" },
        ["x-kubernetes-list-type"] = "map" } } }, "x-kubernetes-list-map-keys is needed" },
      { { type = "object", properties = { a = { type = "number", multipleOf = 0 } } },
        "multipleOf must be more than 0" },
    } do
      local text = misuse.raises(schema.compile, case[1])
      assert(text:find(case[2], 1, true), text)
    end
  end)

  it("that is nested without end is refused", function()
    local found = { type = "object" }
    found.properties = { a = found }
    assert(misuse.raises(schema.compile, found):find("nested too deeply", 1, true))
  end)
end)

describe("prune", function()
  local compiled = with_fields {
    size = { type = "integer" },
    list = { type = "array", items = { type = "object", properties = { a = { type = "string" } } } },
    map = { type = "object", additionalProperties = { type = "object", properties = { a = { type = "string" } } } },
    open = { type = "object", ["x-kubernetes-preserve-unknown-fields"] = true,
      properties = { inner = { type = "object", properties = { a = { type = "string" } } } } },
    any = { ["x-kubernetes-preserve-unknown-fields"] = true },
    resource = { type = "object", ["x-kubernetes-embedded-resource"] = true },
    port = { ["x-kubernetes-int-or-string"] = true },
  }

  local function pruned(text)
    local object = assert(json.decode(text))
    local removed = schema.prune(compiled, object)
    return removed, json.encode(object, { sort_keys = true })
  end

  it("removes the fields that the schema does not know, and returns their paths", function()
    local removed, text = pruned('{"kind":"A","metadata":{"x":1},"data":1,'
      .. '"spec":{"size":1,"sise":2,"list":[{"a":"b","b":1},{}]}}')
    assert.same({ "data", "spec.list[0].b", "spec.sise" }, removed)
    assert.equal('{"kind":"A","metadata":{"x":1},"spec":{"list":[{"a":"b"},{}],"size":1}}', text)
  end)

  it("looks into maps, and keeps what is declared as open", function()
    local object = '{"spec":{"map":{"k":{"a":"x","b":1}},"open":{"x":{"y":1},"inner":{"a":"1","z":1}},"any":[{"x":{}}],'
      .. '"resource":{"apiVersion":"v1","kind":"K","metadata":{"name":"n"},"spec":1},"port":"80"}}'
    local removed, text = pruned(object)
    assert.same({ "spec.map.k.b", "spec.open.inner.z", "spec.resource.spec" }, removed)
    assert(text:find('"x":{"y":1}', 1, true) and text:find('"any":[{"x":{}}]', 1, true))
  end)

  it("leaves values of wrong types to the validation", function()
    assert.same({}, (pruned '{"spec":{"size":{},"list":{},"map":[1,{"a":1}]}}'))
    assert.same({}, (pruned '{"spec":[]}'))
    assert.same({}, (pruned '{"spec":null}'))
  end)

  it("lists at most a hundred paths, and removes all fields", function()
    local fields = {}
    for i = 1, 500 do fields[i] = ('"f%d":1'):format(i) end
    local removed, text = pruned('{"spec":{' .. table.concat(fields, ",") .. "}}")
    assert.equal(100, #removed)
    assert.equal('{"spec":{}}', text)
  end)
end)

describe("defaults", function()
  local compiled = schema.compile { type = "object", properties = {
    spec = { type = "object", default = {}, properties = {
      color = { type = "string", default = "red" },
      size = { type = "integer", nullable = true, default = 3 },
      plain = { type = "string" },
      list = { type = "array", items = { type = "object", properties = { on = { type = "boolean",
        default = false } } } },
      map = { type = "object", additionalProperties = { type = "object", properties = { n = { type = "integer",
        default = 1 } } } },
    } },
  } }

  local function defaulted(text)
    local object = assert(json.decode(text))
    schema.apply_defaults(compiled, object)
    return json.encode(object, { sort_keys = true })
  end

  it("are set at absent fields, in lists and maps and in defaults themselves", function()
    assert.equal('{"spec":{"color":"red","size":3}}', defaulted "{}")
    assert.equal('{"spec":{"color":"blue","list":[{"on":false},{"on":true}],"map":{"a":{"n":1}},"size":1}}',
      defaulted '{"spec":{"color":"blue","size":1,"list":[{},{"on":true}],"map":{"a":{}}}}')
  end)

  it("replace null where null is not allowed, and null without a default is removed", function()
    assert.equal('{"spec":{"color":"red","map":{},"size":null}}',
      defaulted '{"spec":{"color":null,"size":null,"plain":null,"map":{"a":null}}}')
  end)

  it("belong to the object that gets them", function()
    local one, other = {}, {}
    schema.apply_defaults(compiled, one)
    one.spec.color = "changed"
    schema.apply_defaults(compiled, other)
    assert.equal("red", other.spec.color)
  end)

  it("leave values of wrong types alone", function()
    for _, text in ipairs { '{"spec":1}', '{"spec":[]}', '{"spec":{"color":"red","list":{},"size":3}}' } do
      assert.equal(text, defaulted(text))
    end
  end)
end)

describe("validation", function()
  -- Schemas of the field `a`, values, and the causes.
  local CASES = {
    { { type = "integer" }, '"x"',
      'FieldValueTypeInvalid spec.a: Invalid value: "string": spec.a in body must be of type integer: "string"' },
    { { type = "integer" }, "1.5",
      'FieldValueTypeInvalid spec.a: Invalid value: "number": spec.a in body must be of type integer: "number"' },
    { { type = "integer" }, "1.0" }, { { type = "integer" }, "1e300",
      'FieldValueTypeInvalid spec.a: Invalid value: "number": spec.a in body must be of type integer: "number"' },
    { { type = "number" }, "1" }, { { type = "number" }, "-1.5e3" }, { { type = "boolean" }, "false" },
    { { type = "string" }, "null",
      'FieldValueTypeInvalid spec.a: Invalid value: "null": spec.a in body must be of type string: "null"' },
    { { type = "string", nullable = true, minLength = 1 }, "null" },
    { { type = "object" }, "[]",
      'FieldValueTypeInvalid spec.a: Invalid value: "array": spec.a in body must be of type object: "array"' },
    { { type = "array", items = { type = "integer" } }, "{}",
      'FieldValueTypeInvalid spec.a: Invalid value: "object": spec.a in body must be of type array: "object"' },
    { { type = "array", items = { type = "integer" } }, "[1,true]",
      'FieldValueTypeInvalid spec.a[1]: Invalid value: "boolean": '
      .. 'spec.a[1] in body must be of type integer: "boolean"' },
    { { ["x-kubernetes-int-or-string"] = true }, '"80%"' }, { { ["x-kubernetes-int-or-string"] = true }, "80" },
    { { ["x-kubernetes-int-or-string"] = true }, "1.5",
      'FieldValueTypeInvalid spec.a: Invalid value: '
      .. '"number": spec.a in body must be of type integer,string: "number"' },
    { { ["x-kubernetes-preserve-unknown-fields"] = true }, "null" },
    { { type = "integer", minimum = 1 }, "0",
      "FieldValueInvalid spec.a: Invalid value: 0: spec.a in body should be greater than or equal to 1" },
    { { type = "integer", minimum = 1, exclusiveMinimum = true }, "1",
      "FieldValueInvalid spec.a: Invalid value: 1: spec.a in body should be greater than 1" },
    { { type = "number", maximum = 1.5 }, "1.75",
      "FieldValueInvalid spec.a: Invalid value: 1.75: spec.a in body should be less than or equal to 1.5" },
    { { type = "number", maximum = 1.5, exclusiveMaximum = true }, "1.5",
      "FieldValueInvalid spec.a: Invalid value: 1.5: spec.a in body should be less than 1.5" },
    { { type = "integer", multipleOf = 5 }, "10" }, { { type = "number", multipleOf = 0.1 }, "0.3" },
    { { type = "integer", multipleOf = 5 }, "11",
      "FieldValueInvalid spec.a: Invalid value: 11: spec.a in body should be a multiple of 5" },
    { { type = "integer", format = "int32" }, "2147483647" },
    { { type = "integer", format = "int32" }, "2147483648",
      "FieldValueInvalid spec.a: Invalid value: 2147483648: spec.a in body should be a number of the format int32" },
    { { type = "string", enum = { "b", "a" } }, '"c"',
      'FieldValueNotSupported spec.a: Unsupported value: "c": supported values: "b", "a"' },
    { { type = "integer", enum = { 1, 2 } }, "2" },
    { { type = "integer", enum = { 1, 2 } }, "3",
      'FieldValueNotSupported spec.a: Unsupported value: 3: supported values: "1", "2"' },
    { { type = "string", minLength = 2 }, '"\195\164"',
      'FieldValueInvalid spec.a: Invalid value: "\195\164": spec.a in body should be at least 2 chars long' },
    { { type = "string", maxLength = 2 }, '"\195\164\195\164"' },
    { { type = "string", maxLength = 2 }, '"abc"', "FieldValueTooLong spec.a: Too long: may not be longer than 2" },
    { { type = "string", pattern = "^a+$" }, '"ab"',
      [[FieldValueInvalid spec.a: Invalid value: "ab": spec.a in body should match '^a+$']] },
    { { type = "string", format = "date-time" }, '"2026-08-20T09:30:00.5+02:00"' },
    { { type = "string", format = "date-time" }, '"yesterday"',
      'FieldValueTypeInvalid spec.a: Invalid value: '
      .. '"yesterday": spec.a in body must be of type date-time: "yesterday"' },
    { { type = "string", format = "unheard-of" }, '"x"' },
    { { type = "array", items = { type = "integer" }, minItems = 1 }, "[]",
      "FieldValueInvalid spec.a: Invalid value: 0: spec.a in body should have at least 1 items" },
    { { type = "array", items = { type = "integer" }, maxItems = 1 }, "[1,2]",
      "FieldValueTooMany spec.a: Too many: 2: must have at most 1 items" },
    { { type = "array", items = { type = "string" }, uniqueItems = true }, '["a","b","a"]',
      [[FieldValueInvalid spec.a: Invalid value: "": spec.a in body shouldn't contain duplicates]] },
    { { type = "array", items = { type = "string" }, ["x-kubernetes-list-type"] = "set" }, '["a","b","a"]',
      'FieldValueDuplicate spec.a[2]: Duplicate value: "a"' },
    { { type = "array", items = { type = "object", properties = { k = { type = "string" } } },
      ["x-kubernetes-list-type"] = "map",
      ["x-kubernetes-list-map-keys"] = { "k" } }, '[{"k":"a"},{"k":"b"},{"k":"a"}]',
      'FieldValueDuplicate spec.a[2]: Duplicate value: map[string]interface {}{"k":"a"}' },
    { { type = "object", additionalProperties = { type = "integer" } }, '{"k":"v"}',
      'FieldValueTypeInvalid spec.a.k: Invalid value: "string": spec.a.k in body must be of type integer: "string"' },
    { { type = "object", additionalProperties = { type = "integer" }, maxProperties = 1 }, '{"k":1,"l":1}',
      "FieldValueTooMany spec.a: Too many: 2: must have at most 1 items" },
    { { type = "object", additionalProperties = { type = "integer" }, minProperties = 1 }, "{}",
      "FieldValueInvalid spec.a: Invalid value: 0: spec.a in body should have at least 1 properties" },
    { { type = "object", properties = { b = { type = "string" } }, required = { "b" } }, "{}",
      "FieldValueRequired spec.a.b: Required value" },
    { { type = "object", ["x-kubernetes-embedded-resource"] = true }, '{"kind":"K"}',
      "FieldValueRequired spec.a.apiVersion: Required value" },
    { { type = "integer", allOf = { { minimum = 1 }, { maximum = 3 } } }, "2" },
    { { type = "integer", allOf = { { minimum = 1 }, { maximum = 3 } } }, "4",
      "FieldValueInvalid spec.a: Invalid value: 4: spec.a in body should be less than or equal to 3" },
    { { type = "integer", anyOf = { { maximum = 1 }, { minimum = 3 } } }, "3" },
    { { type = "integer", anyOf = { { maximum = 1 }, { minimum = 3 } } }, "2",
      'FieldValueInvalid spec.a: Invalid value: "": "spec.a" must validate at least one schema (anyOf)',
      "FieldValueInvalid spec.a: Invalid value: 2: spec.a in body should be less than or equal to 1" },
    { { type = "integer", oneOf = { { minimum = 1 }, { minimum = 3 } } }, "2" },
    { { type = "integer", oneOf = { { minimum = 1 }, { minimum = 3 } } }, "4",
      'FieldValueInvalid spec.a: Invalid value: "": '
      .. '"spec.a" must validate one and only one schema (oneOf). Found 2 valid alternatives' },
    { { type = "integer", ["not"] = { minimum = 3 } }, "2" },
    { { type = "integer", ["not"] = { minimum = 3 } }, "3",
      'FieldValueInvalid spec.a: Invalid value: "": "spec.a" must not validate the schema (not)' },
    { { type = "integer", ["not"] = { anyOf = { { minimum = 3 }, { ["not"] = { minimum = 1 } } } } }, "2" },
    { { type = "object", properties = { b = { type = "string" } }, oneOf = { { required = { "b" } },
      { required = { "c" } } } }, '{"b":"x"}' },
  }

  it("has the causes and texts of Kubernetes", function()
    for _, case in ipairs(CASES) do
      assert.same({ case[3], case[4] }, causes({ a = case[1] }, '{"a":' .. case[2] .. "}"))
    end
  end)

  it("sorts causes by fields", function()
    assert.same({ "FieldValueRequired spec.a: Required value", "FieldValueRequired spec.b: Required value",
      'FieldValueTypeInvalid spec.c: Invalid value: "string": spec.c in body must be of type integer: "string"' },
      causes({ a = { type = "string" }, b = { type = "string" }, c = { type = "integer" } }, '{"c":"x"}',
        { required = { "b", "a" } }))
  end)

  it("does not check apiVersion, kind and metadata, except names", function()
    local compiled = schema.compile { type = "object", properties = { kind = { type = "string" },
      metadata = { type = "object", properties = { name = { type = "string", maxLength = 3 } } } } }
    local object = assert(json.decode '{"kind":1,"metadata":{"name":"a","labels":{"b":"c"}}}')
    assert.same({}, schema.prune(compiled, object))
    assert.same({}, schema.validate(compiled, object))
    assert.equal("c", object.metadata.labels.b)
    object.metadata.name = "abcd"
    assert.equal("metadata.name", schema.validate(compiled, object)[1].field)
  end)

  it("cuts long values in texts, and shows bytes that are no text as escapes", function()
    local found = causes({ a = { type = "string", pattern = "^x$" } }, '{"a":"' .. ("\195\164"):rep(5000) .. '"}')
    assert(#found[1] < 1000)
    assert.is_string(json.encode(found))
  end)

  it("lets no object through whose texts are too long for its patterns", function()
    local long = ('{"a":"%s"}'):format(("b"):rep(2000000))
    assert.equal(1, #causes({ a = { type = "string", pattern = "^b" } }, long))
    assert.equal(1, #causes({ a = { type = "string", ["not"] = { pattern = "b$" } } }, long))
  end)
end)
