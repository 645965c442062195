--- The metadata of objects: types, unknown fields, names, labels, finalizers, owners, identifiers.

local builtin = require "keywatch.kubernetes.builtin"
local driver = require "keywatch.task.driver"
local json = require "keywatch.json"
local kinds = require "keywatch.kubernetes.kind"
local metadata = require "keywatch.kubernetes.metadata"
local virtual = require "keywatch.driver.virtual"

local KIND = kinds.new { group = "demo.example", version = "v1", kind = "Widget", plural = "widgets" }
local CLUSTER = kinds.new { group = "demo.example", version = "v1", kind = "Zone", plural = "zones", scope = "Cluster" }

local function decode(text) return assert(json.decode(text)) end

--- Returns the causes of metadata in JSON, as "field: message".
local function causes(text, kind)
  local list = {}
  for i, cause in ipairs(metadata.validate(kind or KIND, { metadata = decode(text) })) do
    list[i] = cause.field .. ": " .. cause.message
  end
  return list
end

--- Expects one cause, with a text in it.
local function expect_cause(part, text, kind)
  local list = causes(text, kind)
  assert.equal(1, #list, text)
  assert(list[1]:find(part, 1, true), list[1])
end

describe("metadata", function()
  it("of wrong types is refused with 400 and the field", function()
    for text, why in pairs {
      ["[]"] = "the object must be a JSON object",
      ['{"kind":1}'] = "kind must be a string, not 1",
      ['{"apiVersion":{}}'] = "apiVersion must be a string, not map[string]interface {}{}",
      ['{"metadata":1}'] = "metadata must be an object",
      ['{"metadata":[1]}'] = "metadata must be an object",
      ['{"metadata":{"name":1}}'] = "metadata.name must be a string, not 1",
      ['{"metadata":{"resourceVersion":7}}'] = "metadata.resourceVersion must be a string, not 7",
      ['{"metadata":{"generation":1.5}}'] = "metadata.generation must be a whole number, not 1.5",
      ['{"metadata":{"creationTimestamp":"now"}}'] = 'metadata.creationTimestamp must be a time in RFC 3339, not "now"',
      ['{"metadata":{"labels":{"a":1}}}'] = "metadata.labels.a must be a string, not 1",
      ['{"metadata":{"labels":["a"]}}'] = "metadata.labels must be an object",
      ['{"metadata":{"finalizers":"a"}}'] = "metadata.finalizers must be an array",
      ['{"metadata":{"finalizers":{"a":"b"}}}'] = "metadata.finalizers must be an array",
      ['{"metadata":{"finalizers":["a",null]}}'] = "metadata.finalizers[1] must be a string, not null",
      ['{"metadata":{"ownerReferences":[{"uid":1}]}}'] = "metadata.ownerReferences[0].uid must be a string, not 1",
      ['{"metadata":{"ownerReferences":[1]}}'] = "metadata.ownerReferences[0] must be an object",
    } do
      local err = metadata.shape_error(decode(text))
      assert.equal(why, err and err.message)
      assert.equal(400, err.http_status)
    end
  end)

  it("of right types is accepted, with nulls and unknown fields", function()
    for _, text in ipairs { "{}", '{"metadata":null}', '{"kind":null,"metadata":{"name":null,"labels":{"a":null}}}',
      '{"metadata":{"x":1,"managedFields":[{}],"creationTimestamp":null}}',
      '{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z"}}' } do
      assert.is_nil(metadata.shape_error(decode(text)))
    end
  end)

  it("loses unknown fields, nulls and what is empty", function()
    local object = decode [[{"metadata":{"name":"a","nmae":"b","x":{},"managedFields":[{}],"selfLink":"/a",
      "annotations":{},      "finalizers":[],"labels":{"a":null,"managedFields":"b"},
      "ownerReferences":[{"name":"o","extra":1,"controller":null}],"creationTimestamp":null}}]]
    assert.same({ "metadata.nmae", "metadata.ownerReferences[0].extra", "metadata.x" }, metadata.prune(object))
    assert.equal('{"labels":{"managedFields":"b"},"name":"a","ownerReferences":[{"name":"o"}]}',
      json.encode(object.metadata, { sort_keys = true }))
    object = {}
    assert.same({}, metadata.prune(object))
    assert.same({ metadata = {} }, object)
  end)

  it("has a valid name and namespace", function()
    assert.same({}, causes '{"name":"a.b-1","namespace":"default"}')
    assert.same({}, causes('{"name":"a"}', CLUSTER))
    expect_cause("metadata.name: Required value: name or generateName is required", '{"namespace":"x"}')
    expect_cause("metadata.namespace: Required value", '{"name":"a"}')
    expect_cause("metadata.namespace: Forbidden: not allowed on this type", '{"name":"a","namespace":"b"}', CLUSTER)
    for _, name in ipairs { "A", "a/b", "..", ".", "a..b", "-a", "a%2f", "a b", "\195\164", ("a"):rep(254) } do
      expect_cause("metadata.name: Invalid value: ", ('{"name":"%s","namespace":"b"}'):format(name))
    end
    expect_cause("must be no more than 63 characters", ('{"name":"%s"}'):format(("a"):rep(64)), builtin.namespaces)
    expect_cause("a lowercase RFC 1123 label must", '{"name":"a.b"}', builtin.namespaces)
    expect_cause("metadata.namespace: Invalid value: ", '{"name":"a","namespace":"a.b"}')
  end)

  it("has valid labels, annotations and finalizers", function()
    local function one(more) return '{"name":"a","namespace":"b",' .. more .. "}" end
    assert.same({},
      causes(one '"labels":{"a.example/B_c.d":"x","e":""},"annotations":{"X/y":"a b\\n"},"finalizers":["a.example/b"]'))
    expect_cause("metadata.labels: Invalid value: \"a b\": name part must", one '"labels":{"a b":"x"}')
    expect_cause("prefix part must be non-empty", one '"labels":{"/b":"x"}')
    expect_cause("prefix part a lowercase RFC 1123 subdomain must", one '"labels":{"A_/b":"x"}')
    expect_cause("with an optional DNS subdomain prefix", one '"labels":{"a/b/c":"x"}')
    expect_cause("a valid label must be an empty string", one '"labels":{"a":"x y"}')
    expect_cause("must be no more than 63 characters", one('"labels":{"a":"' .. ("x"):rep(64) .. '"}'))
    expect_cause("metadata.annotations: Invalid value: ", one '"annotations":{"a b":"x"}')
    expect_cause("metadata.annotations: Too long: must have at most 262144 bytes",
      one('"annotations":{"a":"' .. ("x"):rep(262144) .. '"}'))
    expect_cause("metadata.finalizers: Invalid value: ", one '"finalizers":["a b"]')
    expect_cause("finalizer orphan and foregroundDeletion cannot be both set",
      one '"finalizers":["orphan","foregroundDeletion"]')
  end)

  it("has valid owners", function()
    local owner = '{"apiVersion":"v1","kind":"K","name":"%s","uid":"1","controller":true}'
    local function one(list) return '{"name":"a","namespace":"b","ownerReferences":[' .. list .. "]}" end
    assert.same({}, causes(one(owner:format "x")))
    expect_cause('Found "true" in references for x and y', one(owner:format "x" .. "," .. owner:format "y"))
    expect_cause("metadata.ownerReferences[0].uid: Invalid value: \"\": must not be empty",
      one '{"apiVersion":"v1","kind":"K","name":"x"}')
  end)

  it("lists a bounded number of causes", function()
    local labels = {}
    for i = 1, 1000 do labels[i] = ('"a b%d":"x"'):format(i) end
    assert.equal(100, #causes('{"name":"a","namespace":"b","labels":{' .. table.concat(labels, ",") .. "}}"))
  end)

  it("never changes its immutable fields", function()
    local function update(new, old)
      local list = {}
      for i, cause in ipairs(metadata.validate_update({ metadata = decode(new) }, { metadata = decode(old) })) do
        list[i] = cause.field .. ": " .. cause.message
      end
      return list
    end
    assert.same({}, update('{"name":"a","labels":{"b":"c"}}', '{"name":"a"}'))
    assert.same({ 'metadata.uid: Invalid value: "2": field is immutable' }, update('{"uid":"2"}', '{"uid":"1"}'))
    assert.same({ 'metadata.creationTimestamp: Invalid value: "": field is immutable' },
      update("{}", '{"creationTimestamp":"2026-01-01T00:00:00Z"}'))
    local deleting = '{"deletionTimestamp":"2026-01-01T00:00:00Z","finalizers":["a"%s]}'
    assert.same({}, update(deleting:format "", deleting:format ',"b"'))
    assert.same({ 'metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, '
      .. 'found new finalizers []string{"b"}' }, update(deleting:format ',"b"', deleting:format ""))
  end)
end)

describe("identifiers", function()
  it("are UUIDs that differ", function()
    local seen = {}
    for _ = 1, 1000 do
      local uid = metadata.uid()
      assert(uid:find "^%x%x%x%x%x%x%x%x%-%x%x%x%x%-4%x%x%x%-[89ab]%x%x%x%-%x%x%x%x%x%x%x%x%x%x%x%x$", uid)
      assert.is_nil(seen[uid])
      seen[uid] = true
    end
  end)

  it("end generated names, which have at most 63 characters", function()
    assert(metadata.generate_name "web-":find "^web%-[b-z2-9][b-z2-9][b-z2-9][b-z2-9][b-z2-9]$")
    assert.equal(63, #metadata.generate_name(("a"):rep(100)))
    assert.not_equal(metadata.generate_name "a", metadata.generate_name "a")
  end)

  it("and times depend on the seed in virtual time", function()
    local function run()
      local before = driver.use(virtual.new(0, { seed = 7 }))
      local found = { metadata.uid(), metadata.generate_name "a-", metadata.now() }
      driver.use(before)
      return found
    end
    assert.same(run(), run())
    assert.equal("2026-01-01T00:00:00Z", run()[3])
  end)

  it("have the present time of day elsewhere", function()
    local before = os.time()
    local now = metadata.now()
    local timestamp = require "keywatch.kubernetes.timestamp"
    assert(timestamp.parse(now) >= before and timestamp.parse(now) <= os.time())
  end)
end)
