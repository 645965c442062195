--- YAML of requests and files, by lyaml's parser.

local json = require "keywatch.json"
local yaml = require "keywatch.kubernetes.yaml"

local function text_of(text)
  local value, why = yaml.decode(text)
  if value == nil then return nil, why end
  return json.encode(value, { sort_keys = true })
end

describe("YAML is read", function()
  it("with the types of JSON", function()
    for text, wanted in pairs {
      ["a: [1, -7, 0x10, 010, +3, 1_000]"] = '{"a":[1,-7,16,8,3,1000]}',
      ["a: ['1', \"yes\", v1, 1.2.3, 1:2, 2026-01-01]"] = '{"a":["1","yes","v1","1.2.3","1:2","2026-01-01"]}',
      ["a: [~, null, Null, '', 'null']\nb:"] = '{"a":[null,null,null,"","null"],"b":null}',
      ["a: [true, Yes, on, FALSE, no, Off]"] = '{"a":[true,true,true,false,false,false]}',
      ["a: {}\nb: []\nc: |\n  1\n  2\n"] = '{"a":{},"b":[],"c":"1\\n2\\n"}',
      ["a: [1.5, .5, -2.5e3]"] = "%[1.5,0.5,%-2500",
    } do
      assert.matches(wanted:find "%%" and wanted or "^" .. wanted:gsub("%p", "%%%0") .. "$", text_of(text))
    end
  end)

  it("one document at a time, or all", function()
    assert.equal("there are several documents", select(2, yaml.decode "a: 1\n---\nb: 2"))
    assert.equal("there is no document", select(2, yaml.decode ""))
    assert.same({ { a = 1 }, { b = 2 } }, yaml.decode_all "a: 1\n---\nb: 2\n")
  end)

  it("without parts that JSON has not", function()
    for text, why in pairs {
      ["a: &x 1\nb: *x"] = "line 2: aliases are not supported",
      ["a: !!binary aGk="] = "line 1: tags are not supported",
      ["a: 1\na: 2"] = 'line 2: the name "a" occurs twice',
      ["[1]: 2"] = "line 1: a name must be a string",
      ["<<: {a: 1}"] = "line 1: merge keys are not supported",
      [("["):rep(200) .. ("]"):rep(200)] = "line 1: the document is nested too deeply",
    } do
      assert.equal(why, select(2, yaml.decode(text)), text)
    end
    assert.is_string(select(2, yaml.decode "[}"))
  end)
end)
