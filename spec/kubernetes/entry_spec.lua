--- Entries: stored objects, their texts as served and as stored.

local entries = require "keywatch.kubernetes.entry"
local json = require "keywatch.json"
require "keywatch"

local PLAIN = '{"apiVersion":"v1","kind":"A","metadata":{"name":"a"},"spec":{"n":1}}'

local function served(text) return entries.json(entries.of("ns/a", text, 7)) end

describe("an entry", function()
  it("is served with its resourceVersion as the first member of metadata", function()
    assert.equal('{"apiVersion":"v1","kind":"A","metadata":{"resourceVersion":"7","name":"a"},"spec":{"n":1}}',
      served(PLAIN))
    assert.equal('{"apiVersion":"v1","kind":"A","metadata":{"resourceVersion":"7"}}',
      served '{"apiVersion":"v1","kind":"A","metadata":{}}')
  end)

  it("is served without one if it was not stored", function()
    assert.equal(PLAIN, entries.json(entries.of("ns/a", PLAIN, 0)))
    assert.is_nil(entries.copy(entries.of("ns/a", PLAIN, 0)).metadata.resourceVersion)
  end)

  it("of another writer is served with the right resourceVersion", function()
    for _, text in ipairs {
      '{ "kind" : "A", "metadata" : { "name" : "a" }, "apiVersion":"v1" }',
      '{"apiVersion":"v1","kind":"A","metadata":{"name":"a","resourceVersion":"3"}}',
      '{"apiVersion":"v1","kind":"A","metadata":{"resourceVersion":"3","name":"a"}}',
      '{"apiVersion":"v1","kind":"A","metadata":{"resourceVersion":"3"}}',
      '{"apiVersion":"v1","kind":"A","metadata":{ "resourceVersion" : "3" , "name":"a", "resourceVersion":"4"}}',
      '{"apiVersion":"v1","kind":"A"}',
      '{"apiVersion":"v1","kind":"A","metadata":{"annotations":{"resourceVersion":"9"}}}',
      '{"apiVersion":"v1","kind":"A","metadata":{"name":"a"},"note":"\\"resourceVersion\\""}',
      "{}",
    } do
      local expected = json.decode(text)
      expected.metadata = expected.metadata or {}
      expected.metadata.resourceVersion = "7"
      assert.same(expected, json.decode(served(text), { duplicates = "error" }), text)
      assert.same(expected, entries.object(entries.of("ns/a", text, 7)))
    end
  end)

  it("that is no object is an internal error, in every form", function()
    for _, text in ipairs { "", "x", "[]", "1", '{"metadata":1}', '{"a":', '{"metadata":"x"}', '{"a":1}}' } do
      for _, read in ipairs { entries.object, entries.copy } do
        local found, err = read(entries.of("ns/a", text, 7))
        assert.is_nil(found, text)
        assert.equal(500, err.http_status)
      end
      if text ~= "[]" and text ~= "1" then assert.is_nil((served(text))) end
    end
  end)

  it("has one decoded object for all readers, and gives away copies", function()
    local entry = entries.of("ns/a", PLAIN, 7)
    assert.equal(entries.object(entry), entries.object(entry))
    local copy = entries.copy(entry)
    assert.not_equal(entries.object(entry), copy)
    assert.same(entries.object(entry), copy)
  end)

  it("does not keep its decoded object alive", function()
    local entry, weak = entries.of("ns/a", PLAIN, 7), setmetatable({}, { __mode = "v" })
    coroutine.wrap(function() weak[1] = entries.object(entry) end)()
    collectgarbage()
    collectgarbage()
    assert.is_nil(weak[1])
  end)
end)

describe("the stored text of an object", function()
  it("has apiVersion, kind and metadata first, and everything else sorted", function()
    assert.equal('{"apiVersion":"v1","kind":"A","metadata":{"labels":{"a":"1","b":"2"},"name":"a"},"data":{"x":"1"},'
      .. '"spec":{"m":[],"n":1},"status":{}}', entries.encode {
      data = { x = "1" }, status = {}, spec = { n = 1, m = json.array {} }, kind = "A", apiVersion = "v1",
      metadata = { name = "a", labels = { b = "2", a = "1" } },
    })
  end)

  it("lacks resourceVersion, managedFields and selfLink, and leaves the object unchanged", function()
    local object = { apiVersion = "v1", kind = "A", metadata = {
      name = "a", resourceVersion = "7", managedFields = json.array { {} }, selfLink = "/a",
    } }
    assert.equal('{"apiVersion":"v1","kind":"A","metadata":{"name":"a"}}', entries.encode(object))
    assert.equal("7", object.metadata.resourceVersion)
  end)

  it("does not exist for a value that JSON does not have", function()
    local text, err = entries.encode { apiVersion = "v1", kind = "A", metadata = { name = "a" }, spec = { n = 0 / 0 } }
    assert.is_nil(text)
    assert.equal("invalid_argument", err.code)
  end)
end)
