--- What paths, methods and queries of Kubernetes' API mean.

local query = require "keywatch.kubernetes.query"
local target = require "keywatch.kubernetes.target"

local function text_of(path)
  local t = target.parse(path)
  return t and table.concat({ t.group, t.version, t.namespace or "-", t.plural, t.name or "-", t.subresource or "-" },
    " ")
end

describe("a path of Kubernetes' API", function()
  it("names a resource, an object or a subresource, in a namespace or not", function()
    for path, wanted in pairs {
      ["/apis/g.e/v1/widgets"] = "g.e v1 - widgets - -",
      ["/apis/g.e/v1/widgets/a"] = "g.e v1 - widgets a -",
      ["/apis/g.e/v1/namespaces/n/widgets"] = "g.e v1 n widgets - -",
      ["/apis/g.e/v1/namespaces/n/widgets/a%20b"] = "g.e v1 n widgets a b -",
      ["/apis/g.e/v1/namespaces/n/widgets/a/status"] = "g.e v1 n widgets a status",
      ["/api/v1/namespaces"] = " v1 - namespaces - -",
      ["/api/v1/namespaces/n"] = " v1 - namespaces n -",
      ["/api/v1/namespaces/n/status"] = " v1 - namespaces n status",
      ["/api/v1/namespaces/n/pods"] = " v1 n pods - -",
    } do
      assert.equal(wanted, text_of(path), path)
    end
  end)

  it("cannot escape from its place", function()
    for _, path in ipairs { "/", "/api", "/api/v1", "/apis/g/v1", "/apis/g/v1/", "/apis/g/v1/w/a/b/c",
      "/apis/g/v1/namespaces/n/w/a/b/c", "/apis/g/v1/namespaces/../widgets/a", "/apis/g/v1/namespaces/a%2Fb/widgets/c",
      "/apis/g/v1/namespaces/n/widgets/%2e%2e", "/apis/g/v1//widgets", "/apis/g/v1/widgets/a%00b",
      "/other/g/v1/widgets", "/apis/" .. ("a/"):rep(1000) } do
      assert.is_nil(target.parse(path), path)
    end
  end)

  it("has the verbs of its method", function()
    local one, all = target.parse "/api/v1/pods/a", target.parse "/api/v1/pods"
    local function verbs(of, is_watch)
      local list = {}
      for i, method in ipairs { "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "TRACE" } do
        list[i] = target.verb_of(of, method, is_watch) or "-"
      end
      return table.concat(list, " ")
    end
    assert.equal("get get - update patch delete -", verbs(one, true))
    assert.equal("list list create - - deletecollection -", verbs(all, false))
    assert.equal("watch watch create - - deletecollection -", verbs(all, true))
  end)
end)

describe("a query of Kubernetes' API", function()
  it("has booleans of any text", function()
    for text, wanted in pairs { True = true, ["true"] = true, ["1"] = true, [""] = true, no = true, ["0"] = false,
      ["false"] = false, FALSE = false } do
      assert.equal(wanted, query.boolean(text), text)
    end
    assert.is_nil(query.boolean(nil))
  end)

  it("has numbers, or is refused", function()
    assert.equal(7, query.timeout { timeoutSeconds = "7" })
    assert.is_nil(query.timeout {})
    assert.is_nil(query.timeout { timeoutSeconds = "0" })
    for _, text in ipairs { "-1", "x", "1.5", "1e9", ("9"):rep(400) } do
      local value, err = query.whole({ limit = text }, "limit")
      assert.same({ nil, 400 }, { value, err.http_status }, text)
    end
  end)

  it("asks for dry runs and validation, or is refused", function()
    assert.same({ dry_run = false }, query.write_options {})
    assert.same({ dry_run = true, field_validation = "Strict" },
      query.write_options { dryRun = "All", fieldValidation = "Strict" })
    assert.same({ dry_run = false }, query.write_options { fieldValidation = "" })
    for _, value in ipairs { "", "Some" } do
      assert.equal(400, select(2, query.write_options { dryRun = value }).http_status)
    end
    assert.equal(400, select(2, query.write_options { fieldValidation = "strict" }).http_status)
  end)
end)
