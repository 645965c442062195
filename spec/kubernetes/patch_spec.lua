--- Patches: merge patches (RFC 7396), JSON patches (RFC 6902), and patches that would explode.

local json = require "keywatch.json"
local patch = require "keywatch.kubernetes.patch"
local value = require "keywatch.kubernetes.value"

local function decode(text) return assert(json.decode(text)) end
local function encode(found) return assert(json.encode(found, { sort_keys = true })) end

--- Applies a patch to an object, both as text. Returns the result as text; or nil and the error.
local function apply(method, object, with)
  local before = decode(object)
  local result, err = patch[method](before, decode(with))
  assert.equal(encode(decode(object)), encode(before))
  if result then return encode(result) end
  return nil, err
end

describe("a merge patch", function()
  -- Objects, patches and results: those of RFC 7396 that are objects, and more.
  local CASES = {
    { '{"a":"b"}', '{"a":"c"}', '{"a":"c"}' },
    { '{"a":"b"}', '{"b":"c"}', '{"a":"b","b":"c"}' },
    { '{"a":"b"}', '{"a":null}', "{}" },
    { '{"a":"b","b":"c"}', '{"a":null}', '{"b":"c"}' },
    { '{"a":["b"]}', '{"a":"c"}', '{"a":"c"}' },
    { '{"a":"c"}', '{"a":["b"]}', '{"a":["b"]}' },
    { '{"a":{"b":"c"}}', '{"a":{"b":"d","c":null}}', '{"a":{"b":"d"}}' },
    { '{"a":[{"b":"c"}]}', '{"a":[1]}', '{"a":[1]}' },
    { '{"e":null}', '{"a":1}', '{"a":1,"e":null}' },
    { "{}", '{"a":{"bb":{"ccc":null}}}', '{"a":{"bb":{}}}' },
    { '{"a":[1]}', '{"a":{"b":null,"c":1}}', '{"a":{"c":1}}' },
    { '{"a":1}', '{"a":[null,{"b":null}]}', '{"a":[null,{"b":null}]}' },
    { '{"a":[]}', '{"b":[]}', '{"a":[],"b":[]}' },
    { '{"a":{}}', "{}", '{"a":{}}' },
  }

  it("gives what RFC 7396 says", function()
    for _, case in ipairs(CASES) do assert.equal(case[3], apply("merge", case[1], case[2])) end
  end)

  it("that is no object is refused", function()
    for _, text in ipairs { "[]", "1", "null", '"a"' } do
      local result, err = apply("merge", "{}", text)
      assert.is_nil(result)
      assert.equal(400, err.http_status)
    end
  end)

  it("shares no table with its result", function()
    local object, with = decode '{"a":{"b":[{}]}}', decode '{"c":{"d":[{}]}}'
    local result = patch.merge(object, with)
    result.a.b[1].x, result.c.d[1].x = 1, 1
    assert.equal('{"a":{"b":[{}]}}', encode(object))
    assert.equal('{"c":{"d":[{}]}}', encode(with))
  end)

  it("may be nested as deeply as JSON", function()
    local deep = ('{"a":'):rep(999) .. "1" .. ("}"):rep(999)
    assert.equal(deep, apply("merge", "{}", deep))
    assert.equal(deep, apply("merge", deep, "{}"))
  end)
end)

describe("a JSON patch", function()
  local OBJECT = '{"a":[1,2,3],"b":{"c":"d"},"e/f":1,"g~h":2,"":3}'

  -- Patches and results, applied to OBJECT without the other fields.
  local CASES = {
    { '{"a":1}', '{"op":"add","path":"/b","value":2}', '{"a":1,"b":2}' },
    { '{"a":1}', '{"op":"add","path":"/a","value":2}', '{"a":2}' },
    { '{"a":[1,2]}', '{"op":"add","path":"/a/1","value":3}', '{"a":[1,3,2]}' },
    { '{"a":[1,2]}', '{"op":"add","path":"/a/2","value":3}', '{"a":[1,2,3]}' },
    { '{"a":[1,2]}', '{"op":"add","path":"/a/-","value":[]}', '{"a":[1,2,[]]}' },
    { '{"a":[]}', '{"op":"add","path":"/a/0","value":null}', '{"a":[null]}' },
    { '{"a":{}}', '{"op":"add","path":"/a/0","value":1}', '{"a":{"0":1}}' },
    { '{"a":1}', '{"op":"add","path":"","value":{"b":1}}', '{"b":1}' },
    { '{"a":1}', '{"op":"add","path":"/","value":2}', '{"":2,"a":1}' },
    { '{"a":1,"b":2}', '{"op":"remove","path":"/a"}', '{"b":2}' },
    { '{"a":[1,2,3]}', '{"op":"remove","path":"/a/1"}', '{"a":[1,3]}' },
    { '{"a":[1]}', '{"op":"remove","path":"/a/0"}', '{"a":[]}' },
    { '{"a":[1,2]}', '{"op":"replace","path":"/a/0","value":{"x":1}}', '{"a":[{"x":1},2]}' },
    { '{"a":null}', '{"op":"replace","path":"/a","value":1}', '{"a":1}' },
    { '{"a":{"b":1}}', '{"op":"move","from":"/a/b","path":"/c"}', '{"a":{},"c":1}' },
    { '{"a":[1,2,3]}', '{"op":"move","from":"/a/0","path":"/a/2"}', '{"a":[2,3,1]}' },
    { '{"a":1}', '{"op":"move","from":"/a","path":"/a"}', '{"a":1}' },
    { '{"a":{"b":[]}}', '{"op":"copy","from":"/a","path":"/a/b/-"}', '{"a":{"b":[{"b":[]}]}}' },
    { OBJECT, '{"op":"test","path":"/e~1f","value":1.0},{"op":"test","path":"/g~0h","value":2},'
      .. '{"op":"remove","path":"/"},{"op":"remove","path":"/a"},'
      .. '{"op":"remove","path":"/e~1f"},{"op":"remove","path":"/g~0h"}',
        '{"b":{"c":"d"}}' },
    { '{"a":{"b":[1,{"c":null}]}}', '{"op":"test","path":"/a","value":{"b":[1,{"c":null}]}}',
      '{"a":{"b":[1,{"c":null}]}}' },
    { '{"a":1}', "", '{"a":1}' },
  }

  it("gives what RFC 6902 says", function()
    for _, case in ipairs(CASES) do assert.equal(case[3], apply("json", case[1], "[" .. case[2] .. "]"), case[2]) end
  end)

  it("fails as a whole with a reason", function()
    for operation, why in pairs {
      ['{"op":"test","path":"/a","value":[1,2]}'] = 'testing value "/a" failed',
      ['{"op":"test","path":"/x","value":null}'] = 'there is no value at the path "/x"',
      ['{"op":"test","path":"/a"}'] = "the operation has no value",
      ['{"op":"add","path":"/x/y","value":1}'] = 'there is no object or array for the path "/x/y"',
      ['{"op":"add","path":"/a/4","value":1}'] = 'the array has no place for the path "/a/4"',
      ['{"op":"add","path":"/a/01","value":1}'] = 'the array has no place for the path "/a/01"',
      ['{"op":"add","path":"/a/-1","value":1}'] = 'the array has no place for the path "/a/-1"',
      ['{"op":"add","path":"/a/99999999999999999999","value":1}'] =
        'the array has no place for the path "/a/99999999999999999999"',
      ['{"op":"add","path":"/b"}'] = "the operation has no value",
      ['{"op":"add","path":"x","value":1}'] = "the operation's path is not a JSON pointer",
      ['{"op":"add","path":"/~2","value":1}'] = "the operation's path is not a JSON pointer",
      ['{"op":"add","value":1}'] = "the operation's path is not a JSON pointer",
      ['{"op":"remove","path":"/a/3"}'] = 'there is no value at the path "/a/3"',
      ['{"op":"remove","path":"/a/-"}'] = 'there is no value at the path "/a/-"',
      ['{"op":"remove","path":""}'] = "the whole object cannot be removed",
      ['{"op":"replace","path":"/x","value":1}'] = 'there is no value at the path "/x"',
      ['{"op":"replace","path":"","value":[]}'] = "the result is not a JSON object",
      ['{"op":"move","from":"/b","path":"/b/c/d"}'] = "a value cannot be moved into itself",
      ['{"op":"copy","path":"/x"}'] = "the operation's from is not a JSON pointer",
      ['{"op":"increment","path":"/a"}'] = "operation 2 is not one of add, remove, replace, move, copy and test",
      ["1"] = "operation 2 is not one of add, remove, replace, move, copy and test",
    } do
      local result, err = apply("json", OBJECT, '[{"op":"add","path":"/new","value":1},' .. operation .. "]")
      assert.is_nil(result)
      assert.equal(why, err.message)
      assert.equal(422, err.http_status)
      assert.same({ { reason = "UnexpectedServerResponse", message = err.message } }, err.causes)
    end
  end)

  it("that is no array is refused", function()
    local _, err = apply("json", "{}", '{"op":"remove","path":"/a"}')
    assert.equal(400, err.http_status)
  end)

  it("leaves an array an array when it is emptied", function()
    local object = assert(patch.json(decode '{"a":[1]}',
      decode '[{"op":"remove","path":"/a/0"},{"op":"add","path":"/a/-","value":2}]'))
    assert.is_true(value.is_array(object.a))
  end)
end)

-- Slow where each allocation is supervised: the lists are long.
describe("a hostile JSON patch #slow", function()
  --- Returns the error of a patch of many equal operations.
  local function refusal(object, operation, n)
    local list = {}
    for i = 1, n do list[i] = operation end
    local result, err = patch.json(object, json.array(list))
    assert.is_nil(result)
    return err
  end

  it("with too many operations is refused", function()
    local err = refusal({}, { op = "add", path = "/a", value = 1 }, 10001)
    assert.equal(413, err.http_status)
  end)

  it("that doubles the object with each copy is refused", function()
    local err = refusal(decode '{"a":{"x":"0123456789"}}', { op = "copy", from = "/a", path = "/a/y" }, 10000)
    assert.equal("the patch copies more than 3145728 bytes", err.message)
  end)

  local LIST = {}
  for i = 1, 300000 do LIST[i] = i end
  json.array(LIST)

  it("that inserts at the front of a long list again and again is refused", function()
    local err = refusal({ a = LIST }, { op = "add", path = "/a/0", value = 1 }, 10000)
    assert.equal("the patch takes too much work: split it into smaller ones", err.message)
  end)

  it("that moves a long list up and down is applied, because that is no work", function()
    local list = {}
    for i = 1, 10000, 2 do
      list[i], list[i + 1] = { op = "move", from = "/a", path = "/b" }, { op = "move", from = "/b", path = "/a" }
    end
    assert.equal(300000, #patch.json({ a = LIST }, json.array(list)).a)
  end)
end)
