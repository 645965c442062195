--- Builtin kinds: where they are stored, what is checked, and their columns.

local builtin = require "keywatch.kubernetes.builtin"
local json = require "keywatch.json"

local NOW = 1767225600 + 300

local function decode(text) return assert(json.decode(text)) end

--- Returns the causes of an object, as "field: message".
local function causes(kind, text)
  local list = {}
  for i, cause in ipairs(kind.check(decode(text))) do list[i] = cause.field .. ": " .. cause.message end
  table.sort(list)
  return list
end

--- Returns the cells of an object by the names of columns.
local function cells(kind, text)
  local object, found = decode(text), {}
  for _, column in ipairs(kind.columns) do found[column.name] = column.read(object, NOW) end
  return found
end

describe("builtin kinds", function()
  it("are stored where apiserver stores them", function()
    local prefixes = {}
    for plural, kind in pairs(builtin) do
      prefixes[plural] = kind.prefix
      assert.is_true(kind.is_builtin and kind.is_strategic)
    end
    assert.same({
      namespaces = "/registry/namespaces/", configmaps = "/registry/configmaps/", secrets = "/registry/secrets/",
      events = "/registry/events/", leases = "/registry/leases/", pods = "/registry/pods/",
    }, prefixes)
    assert.equal("coordination.k8s.io/v1", builtin.leases.api_version)
    assert.is_false(builtin.namespaces.is_namespaced)
  end)

  it("have the columns of kubectl", function()
    local meta = '"metadata":{"name":"a","creationTimestamp":"2026-01-01T00:00:00Z"}'
    assert.same({ Name = "a", Data = 3, Age = "5m" },
      cells(builtin.configmaps, "{" .. meta .. ',"data":{"x":"1","y":"2"},"binaryData":{"z":""}}'))
    assert.same({ Name = "a", Type = "Opaque", Data = 0, Age = "5m" }, cells(builtin.secrets, "{" .. meta
      .. ',"type":"Opaque"}'))
    assert.same({ Name = "a", Holder = "me", Age = "5m" },
      cells(builtin.leases, "{" .. meta .. ',"spec":{"holderIdentity":"me"}}'))
    assert.same({ Name = "a", Status = "Active", Age = "5m" },
      cells(builtin.namespaces, "{" .. meta .. ',"status":{"phase":"Active"}}'))
    assert.same({ Name = "a", Ready = "1/2", Status = "Running", Age = "5m" }, cells(builtin.pods, "{" .. meta
      .. ',"spec":{"containers":[{},{}]},'
      .. '"status":{"phase":"Running","containerStatuses":[{"ready":true},{"ready":false}]}}'))
    assert.same({ Name = "a", ["Last Seen"] = "5m", Type = "Normal", Reason = "Made", Object = "widget/w",
      Message = "hi" },
      cells(builtin.events, "{" .. meta .. ',"lastTimestamp":"2026-01-01T00:00:00Z","type":"Normal","reason":"Made",'
        .. '"message":"hi","involvedObject":{"kind":"Widget","name":"w"}}'))
  end)

  it("have columns for objects with wrong types, too", function()
    for _, kind in pairs(builtin) do
      cells(kind, '{"metadata":{"name":"a"},"spec":1,"status":[],"data":"x","involvedObject":[1]}')
      cells(kind, '{"metadata":{},"spec":{"containers":{}},"status":{"containerStatuses":[1]},"binaryData":[1]}')
    end
  end)
end)

describe("a configmap", function()
  it("has strings under valid keys, at most 1 MiB", function()
    assert.same({}, causes(builtin.configmaps, '{"data":{"a.b":"","_":"x"},"binaryData":{"c":"aGVsbG8="}}'))
    assert.same({ "data: Invalid value: \"array\": must be an object" }, causes(builtin.configmaps, '{"data":["a"]}'))
    assert.same({ "data[a]: Invalid value: 1: must be a string" }, causes(builtin.configmaps, '{"data":{"a":1}}'))
    assert(causes(builtin.configmaps, '{"data":{"a b":"x"}}')[1]:find("a valid config key must consist of", 1, true))
    assert(causes(builtin.configmaps, '{"data":{"..":"x"}}')[1]:find("must not be '..'", 1, true))
    assert(causes(builtin.configmaps, '{"binaryData":{"a":"!"}}')[1]:find("must be a string of base64", 1, true))
    assert.same({ ": Too long: must have at most 1048576 bytes" },
      causes(builtin.configmaps, '{"data":{"a":"' .. ("x"):rep(1048577) .. '"}}'))
  end)
end)

describe("a secret", function()
  it("gets its data from stringData", function()
    for text, coded in pairs { [""] = "", a = "YQ==", ab = "YWI=", abc = "YWJj", ["\0\255~"] = "AP9+" } do
      local object = { stringData = { k = text }, data = { k = "b2xk", other = "eA==" } }
      builtin.secrets.default(object)
      assert.same({ type = "Opaque", data = { k = coded, other = "eA==" } }, object)
    end
  end)

  it("is refused if its data are not base64, and counts the bytes of the content", function()
    assert(causes(builtin.secrets,
      '{"data":{"a":"abc"}}')[1]:find("data[a]: Invalid value: \"abc\": must be a string of base64", 1, true))
    local object = { stringData = { a = ("x"):rep(1048576) } }
    builtin.secrets.default(object)
    assert.same({}, builtin.secrets.check(object))
    object = { stringData = { a = ("x"):rep(1048577), b = 1 } }
    builtin.secrets.default(object)
    assert.equal(2, #builtin.secrets.check(object))
  end)
end)

describe("defaults of builtin kinds", function()
  it("set the phases of namespaces and pods", function()
    local namespace, pod = { status = json.null }, { status = { phase = "Running" } }
    builtin.namespaces.default(namespace)
    builtin.pods.default(pod)
    assert.equal("Active", namespace.status.phase)
    assert.equal("Running", pod.status.phase)
  end)
end)
