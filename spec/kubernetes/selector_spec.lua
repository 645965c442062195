--- Selectors of lists and watches: labels, fields, the same text for the same filter, and what is refused.

local builtin = require "keywatch.kubernetes.builtin"
local kinds = require "keywatch.kubernetes.kind"
local selector = require "keywatch.kubernetes.selector"

local KIND = kinds.new { group = "demo.example", version = "v1", kind = "Widget", plural = "widgets",
  selectable = { ".spec.color" } }

local function parse(labels, fields, kind) return selector.parse(kind or KIND, labels, fields) end

local function object(labels, name, color)
  return { metadata = { name = name or "a", namespace = "default", labels = labels }, spec = { color = color } }
end

describe("a filter", function()
  it("is nil if everything matches", function()
    assert.is_nil(parse(nil, nil))
    assert.is_nil(parse("", ""))
    assert.is_nil(parse(" ", ","))
  end)

  it("matches objects by labels and fields", function()
    local filter = assert(parse("app=web,!old", "metadata.name!=b,spec.color=red"))
    assert.is_true(filter.matches(object({ app = "web" }, "a", "red")))
    assert.is_false(filter.matches(object({ app = "web", old = "" }, "a", "red")))
    assert.is_false(filter.matches(object({ app = "web" }, "b", "red")))
    assert.is_false(filter.matches(object({ app = "web" }, "a", "blue")))
    assert.is_false(filter.matches({ metadata = {} }))
  end)

  it("names the object and the namespace that it asks for", function()
    local filter = assert(parse(nil, "metadata.name=a,metadata.namespace==default"))
    assert.equal("a", filter.name)
    assert.equal("default", filter.namespace)
    assert.is_true(filter.matches(object()))
    assert.is_nil(assert(parse("app=web")).name)
    assert.is_nil(assert(parse(nil, "metadata.name!=a")).name)
  end)

  it("has the same text for requirements in another order", function()
    assert.equal(assert(parse("b=1,a in (y,x)", "spec.color=red,metadata.name=a")).text,
      assert(parse(" a in (x, y) , b==1", "metadata.name==a,spec.color=red")).text)
    local texts = {}
    for _, case in ipairs { { "a=b" }, { "a!=b" }, { "a" }, { "!a" }, { "a in (b,c)" }, { nil, "metadata.name=a" },
      { "a=b,c=d" },
      { "a=b", "metadata.name=a" } } do
      local text = assert(parse(case[1], case[2])).text
      assert.is_nil(texts[text])
      texts[text] = true
    end
  end)

  it("may ask for the fields of a builtin kind", function()
    local filter = assert(parse(nil, "involvedObject.name=a,type=Warning", builtin.events))
    assert.is_true(filter.matches { metadata = {}, type = "Warning", involvedObject = { name = "a" } })
    assert.is_false(filter.matches { metadata = {}, type = "Normal", involvedObject = { name = "a" } })
    assert(parse(nil, "spec.nodeName=n,status.phase!=Failed", builtin.pods))
  end)

  it("is refused with 400", function()
    for _, case in ipairs {
      { "a=b=c", nil, "unable to parse requirement" }, { "a in b", nil, "unable to parse requirement" },
      { "a b", nil, "unable to parse requirement" }, { "_a=b", nil, "name part must consist of" },
      { "a=b/c", nil, "a valid label must be an empty string" }, { ("a"):rep(64), nil,
        "must be no more than 63 characters" },
      { nil, "spec.size=1", "field label not supported: spec.size" }, { nil, "metadata.uid=1",
        "field label not supported: metadata.uid" },
      { ("a,"):rep(40000), nil, "has more than 65536 bytes" }, { nil, (","):rep(70000), "has more than 65536 bytes" },
      { nil, "metadata.name", "invalid field selector" }, { nil, "metadata.name=a=b", "invalid field selector" },
    } do
      local filter, err = parse(case[1], case[2])
      assert.is_false(filter)
      assert.equal(400, err.http_status)
      assert(err.message:find(case[3], 1, true), err.message)
    end
  end)

  it("takes linear time for a long text #slow", function() -- where each allocation is supervised
    for _, part in ipairs { "a", "a=b,", "a in (b,", "(", "!", ",", "=", "\\", " " } do
      local text = part:rep(math.floor(65536 / #part))
      parse(text, nil)
      parse(nil, text)
    end
  end)
end)
