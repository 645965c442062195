--- Objects that are made to hurt: huge, deep, with long names. Answers stay small, and other tasks run meanwhile.

local builtin = require "keywatch.kubernetes.builtin"
local json = require "keywatch.json"
local keywatch = require "keywatch"
local metadata = require "keywatch.kubernetes.metadata"
local patch = require "keywatch.kubernetes.patch"
local schema = require "keywatch.kubernetes.schema"
local status_error = require "keywatch.kubernetes.status_error"
local value = require "keywatch.kubernetes.value"

local KIND = { group = "demo.example", name = "widgets.demo.example", kind = "Widget", plural = "widgets" }

local SCHEMA = schema.compile { type = "object", properties = { spec = { type = "object", properties = {
  numbers = { type = "array", items = { type = "integer", maximum = 9 } },
  objects = { type = "array", items = { type = "object", properties = { a = { type = "string", pattern = "^b*$" } } } },
  maps = { type = "object", additionalProperties = { type = "object", additionalProperties = { type = "integer" } } },
  choice = { type = "array", items = { type = "object", properties = { a = { type = "string" } },
    oneOf = { { required = { "a" } }, { required = { "b" } } } } },
  color = { type = "object", ["x-kubernetes-preserve-unknown-fields"] = true, enum = { { a = 1 } } },
} } } }

--- Checks a spec in JSON, as a request does. Returns the causes and the Status as text.
local function check(text)
  local object = assert(json.decode('{"spec":' .. text .. "}"))
  local removed = schema.prune(SCHEMA, object)
  schema.apply_defaults(SCHEMA, object)
  local causes = schema.validate(SCHEMA, object)
  local status = assert(json.encode(status_error.to_status(status_error.invalid(KIND, "a", causes))))
  return causes, status, removed
end

--- Returns a list of n equal elements as JSON.
local function list_of(element, n)
  return "[" .. (element .. ","):rep(n - 1) .. element .. "]"
end

-- Slow where each allocation is supervised: the objects are large.
describe("a hostile object #slow", function()
  it("with many invalid values has a small answer", function()
    for _, text in ipairs {
      '{"numbers":' .. list_of('"x"', 100000) .. "}", '{"numbers":' .. list_of("10", 100000) .. "}",
      '{"objects":' .. list_of('{"a":1,"b":2}', 50000) .. "}", '{"choice":' .. list_of("{}", 50000) .. "}",
      '{"choice":' .. list_of('{"a":1}', 50000) .. "}",
    } do
      local causes, status, removed = check(text)
      assert.equal(100, #causes)
      assert(#status < 100000)
      assert(#removed <= 100)
    end
  end)

  it("with long names and values has a small answer", function()
    local long = ("\195\164"):rep(200000)
    local members = {}
    for i = 1, 200 do members[i] = ('"m%d":"%s"'):format(i, long:sub(1, 2000)) end
    local inner = "{" .. table.concat(members, ",") .. "}"
    local causes, status = check(('{"maps":{"%s":%s}}'):format(long, inner))
    assert.equal(100, #causes)
    assert(#status < 200000)
    causes, status = check(('{"color":{"%s":%s}}'):format(long, inner))
    assert.equal(1, #causes)
    assert(#status < 10000)
    causes, status = check('{"color":' .. ('{"a":'):rep(900) .. inner .. ("}"):rep(900) .. "}")
    assert.equal(1, #causes)
    assert(#status < 10000)
  end)

  it("with invalid metadata has a small answer", function()
    local labels, finalizers, references = {}, json.array {}, json.array {}
    for i = 1, 100000 do labels[("not a label %6d"):format(i)] = "x" end
    for i = 1, 100000 do finalizers[i] = ("x.y/f%06d"):format(i) end
    local reference = { apiVersion = "v1", kind = "Widget", name = ("long"):rep(100000), uid = "1", controller = true }
    for i = 1, 200 do references[i] = reference end
    local new = { name = "a", namespace = "n", labels = labels, finalizers = finalizers }
    local function expect_small(causes, n)
      assert.equal(n, #causes)
      assert(#json.encode(status_error.to_status(status_error.invalid(KIND, "a", causes))) < 100000)
    end
    expect_small(metadata.validate({ is_namespaced = true }, { metadata = new }), 100)
    local deleted = { name = "a", namespace = "n", deletionTimestamp = "2000-01-01T00:00:00Z" }
    new.deletionTimestamp = deleted.deletionTimestamp
    expect_small(metadata.validate_update({ metadata = new }, { metadata = deleted }), 1)
    new.labels, new.finalizers, new.ownerReferences = nil, nil, references
    expect_small(metadata.validate({ is_namespaced = true }, { metadata = new }), 100)
  end)

  it("may be as deep as JSON", function()
    local deep = ("["):rep(990) .. ("]"):rep(990)
    assert.same({}, (check('{"unknown":' .. deep .. "}")))
    assert.equal(1, #check('{"objects":' .. deep .. "}"))
    local object = assert(json.decode('{"a":' .. deep .. "}"))
    assert.is_true(value.equal(object, value.copy(object)))
    assert(patch.json(object, { { op = "test", path = "/a", value = value.copy(object.a) } }))
    assert.is_table(patch.json(object, { { op = "add", path = "/a" .. ("/0"):rep(980) .. "/-", value = 1 } }))
    assert.is_nil(patch.json(object, { { op = "add", path = ("/a"):rep(1000000), value = 1 } }))
  end)

  it("lets other tasks run while it is checked, patched and refused", function()
    keywatch.run(function()
      local turns, is_done = 0, false
      local ticker = keywatch.spawn(function()
        while not is_done do
          turns = turns + 1
          keywatch.sleep(0)
        end
      end)
      local function expect_turns(fn, ...)
        turns = 0
        fn(...)
        assert(turns > 0)
      end
      local object = assert(json.decode('{"spec":{"numbers":' .. list_of("1", 300000) .. ',"objects":'
        .. list_of('{"a":"b"}', 100000) .. "}}"))
      expect_turns(function()
        schema.prune(SCHEMA, object)
        schema.apply_defaults(SCHEMA, object)
        schema.validate(SCHEMA, object)
      end)
      local moves = json.array {}
      for i = 1, 10000 do moves[i] = { op = "add", path = "/spec/numbers/0", value = 1 } end
      expect_turns(patch.json, object, moves)
      local finalizers, data = json.array {}, {}
      for i = 1, 100000 do finalizers[i], data["k" .. i] = "x.y/f" .. i, "" end
      local kind = { is_namespaced = true }
      expect_turns(metadata.validate, kind, { metadata = { name = "a", namespace = "n", finalizers = finalizers } })
      expect_turns(metadata.validate, kind, { metadata = { name = "a", namespace = "n", labels = data } })
      expect_turns(metadata.validate, kind, { metadata = { name = "a", namespace = "n", annotations = data } })
      expect_turns(builtin.configmaps.check, { metadata = {}, data = data })
      expect_turns(builtin.secrets.default, { metadata = {}, stringData = { a = ("x"):rep(3000000) } })
      is_done = true
      ticker:join()
    end)
  end)
end)
