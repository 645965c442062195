--- Requests of Kubernetes' API over HTTP: forms, lists, writes, subresources, access, and bad input.

local json = require "keywatch.json"
local keywatch = require "keywatch"

local kube = require "spec.support.kube"

local MERGE = { ["content-type"] = "application/merge-patch+json" }

--- Returns what a client sees of a failure.
local function failure(answer)
  local status = answer.body
  assert.equal("Status", status.kind, answer.text)
  assert.equal(answer.status, status.code)
  return ("%d %s"):format(status.code, status.reason)
end

describe("Kubernetes' API over HTTP", function()
  it("creates, gets, replaces, patches and deletes", kube.within(function(k)
    local path = kube.ONES .. "/a"
    local made = k:ask("POST", kube.ONES, kube.widget("a", { size = 1 }))
    assert.equal(201, made.status)
    assert.same(made.body, k:get(path).body)
    made.body.spec.size = 2
    local replaced = k:ask("PUT", path, made.body)
    assert.same({ 200, 2 }, { replaced.status, replaced.body.metadata.generation })
    assert.equal("409 Conflict", failure(k:ask("PUT", path, made.body)))
    assert.equal("409 AlreadyExists", failure(k:ask("POST", kube.ONES, kube.widget "a")))
    assert.equal(3, k:ask("PATCH", path, { spec = { size = 3 } }, MERGE).body.spec.size)
    assert.equal(4, k:ask("PATCH", path, '[{"op":"replace","path":"/spec/size","value":4}]',
      { ["content-type"] = "application/json-patch+json" }).body.spec.size)
    local deleted = k:ask("DELETE", path)
    assert.same({ "Success", "a", made.body.metadata.uid },
      { deleted.body.status, deleted.body.details.name, deleted.body.details.uid })
    assert.equal("404 NotFound", failure(k:get(path)))
    assert.equal("404 NotFound", failure(k:ask("DELETE", path)))
  end))

  it("reads YAML", kube.within(function(k)
    local answer = k:ask("POST", kube.ONES,
      "apiVersion: demo.example/v1\nkind: Widget\nmetadata: {name: of-yaml}\nspec:\n  size: 5\n",
      { ["content-type"] = "application/yaml" })
    assert.same({ 201, 5 }, { answer.status, answer.body.spec.size })
    answer = k:ask("POST", kube.ONES, "a: *b", { ["content-type"] = "application/yaml" })
    assert.equal("400 BadRequest", failure(answer))
  end))

  it("lists in pages of one revision, and by selectors", kube.within(function(k)
    for i = 1, 5 do k:create("a" .. i, { size = i }, { labels = { half = i < 3 and "low" or "high" } }) end
    local page = k:get(kube.ALL .. "?limit=2").body
    assert.same({ "WidgetList", 2, 3 }, { page.kind, #page.items, page.metadata.remainingItemCount })
    k:delete "a3"
    local rest = k:get(kube.ALL .. "?limit=10&continue=" .. page.metadata.continue).body
    assert.same({ 3, page.metadata.resourceVersion }, { #rest.items, rest.metadata.resourceVersion })
    assert.is_nil(rest.metadata.continue)
    assert.equal(2, #k:get(kube.ALL .. "?labelSelector=half%3Dlow").body.items)
    assert.equal(1, #k:get(kube.ALL .. "?fieldSelector=metadata.name%3Da4").body.items)
    assert.equal(0, #k:get("/apis/demo.example/v1/namespaces/other/widgets").body.items)
    assert.matches('"items":%[%]', k:get("/apis/demo.example/v1/namespaces/other/widgets").text)
  end))

  it("lists many objects, page by page", kube.within(function(k)
    local handle, padding = k.api:resource "widgets", ("x"):rep(500)
    for i = 1, 2500 do
      assert(handle:create(kube.widget(("w%04d"):format(i), { size = i % 100, color = padding },
        { namespace = "default" })))
    end
    k.store:put("/registry/demo.example/widgets/default/w2600",
      '{ "kind": "Widget", "apiVersion": "demo.example/v1", "metadata": { "name": "w2600" } }') -- of another writer
    local answer = k:get(kube.ALL)
    assert.equal(2501, #answer.body.items)
    for i = 1, 2500, 100 do
      local item = answer.body.items[i]
      assert.same({ ("w%04d"):format(i), ("%d"):format(i + 1), i % 100 },
        { item.metadata.name, item.metadata.resourceVersion, item.spec.size })
    end
    assert.equal("2502", answer.body.items[2501].metadata.resourceVersion)
    assert.equal(2501, #k:get(kube.ALL, { accept = kube.TABLE }).body.rows)
  end))

  it("answers with tables and metadata", kube.within(function(k)
    k:create("a", { size = 1 })
    local list = k:get(kube.ALL, { accept = kube.TABLE }).body
    assert.same({ "Table", "meta.k8s.io/v1", "Name" }, { list.kind, list.apiVersion, list.columnDefinitions[1].name })
    assert.same({ "a", 1, json.null }, list.rows[1].cells)
    assert.equal("PartialObjectMetadata", list.rows[1].object.kind)
    list = k:get(kube.ALL .. "?includeObject=Object", { accept = kube.TABLE }).body
    assert.equal("Widget", list.rows[1].object.kind)
    list = k:get(kube.ALL .. "?includeObject=None", { accept = kube.TABLE }).body
    assert.is_nil(list.rows[1].object)
    assert.equal(1, #k:get(kube.ONES .. "/a", { accept = kube.TABLE }).body.rows)
    list = k:get(kube.ALL, { accept = kube.METADATA }).body
    assert.same({ "PartialObjectMetadataList", "PartialObjectMetadata" }, { list.kind, list.items[1].kind })
    assert.is_nil(list.items[1].spec)
    assert.equal("406 NotAcceptable", failure(k:get(kube.ALL, { accept = "text/html" })))
  end))

  it("has the subresources status and scale", kube.within(function(k)
    k:create("a", { size = 1, replicas = 2 })
    local answer = k:ask("PATCH", kube.ONES .. "/a/status", { spec = { size = 9 }, status = { replicas = 1 } }, MERGE)
    assert.same({ 1, 1 }, { answer.body.spec.size, answer.body.status.replicas })
    local scale = k:get(kube.ONES .. "/a/scale").body
    assert.same({ "autoscaling/v1", "Scale", 2, 1 },
      { scale.apiVersion, scale.kind, scale.spec.replicas, scale.status.replicas })
    assert.equal(5, k:ask("PATCH", kube.ONES .. "/a/scale", { spec = { replicas = 5 } }, MERGE).body.spec.replicas)
    scale.spec.replicas, scale.metadata.resourceVersion = 6, nil
    answer = k:ask("PUT", kube.ONES .. "/a/scale", json.encode(scale)) -- kubectl sends no content-type
    assert.equal(200, answer.status, answer.text)
    assert.equal(6, k:get(kube.ONES .. "/a").body.spec.replicas)
    assert.equal("405 MethodNotAllowed", failure(k:ask("DELETE", kube.ONES .. "/a/status")))
    assert.equal(404, k:get(kube.ONES .. "/a/other").status)
  end))

  it("changes nothing in a dry run, in the query or in the body", kube.within(function(k)
    assert.equal(201, k:ask("POST", kube.ONES .. "?dryRun=All", kube.widget "a").status)
    assert.equal(404, k:get(kube.ONES .. "/a").status)
    k:create "a"
    for _, arguments in ipairs { { "?dryRun=All" }, { "", { dryRun = json.array { "All" } } } } do
      local answer = k:ask("DELETE", kube.ONES .. "/a" .. arguments[1], arguments[2])
      assert.equal(200, answer.status, answer.text)
    end
    assert.equal(200, k:get(kube.ONES .. "/a").status)
    for _, query in ipairs { "dryRun=maybe", "dryRun=" } do
      assert.equal("400 BadRequest", failure(k:ask("DELETE", kube.ONES .. "/a?" .. query)))
      assert.equal("400 BadRequest", failure(k:ask("PATCH", kube.ONES .. "/a?" .. query, "{}", MERGE)))
    end
  end))

  it("deletes nothing by options that it does not understand", kube.within(function(k)
    k:create("a", {}, { finalizers = json.array { "foregroundDeletion" } })
    local revision = k:get(kube.ONES .. "/a").body.metadata.resourceVersion
    for _, options in ipairs {
      { dryRun = "All" }, { dryRun = { All = true } }, { dryRun = true }, { dryRun = json.array { json.null } },
      { preconditions = "uid" }, { preconditions = json.array { "uid" } }, { propagationPolicy = 1 },
      { orphanDependents = "true" },
    } do
      for _, path in ipairs { kube.ONES .. "/a", kube.ONES } do
        assert.equal("400 BadRequest", failure(k:ask("DELETE", path, options)))
      end
    end
    for _, arguments in ipairs { { "?propagationPolicy=Front" }, { "", { propagationPolicy = "Front" } } } do
      local answer = k:ask("DELETE", kube.ONES .. "/a" .. arguments[1], arguments[2])
      assert.equal("422 Invalid", failure(answer))
      assert.equal("propagationPolicy", answer.body.details.causes[1].field)
    end
    assert.equal(revision, k:get(kube.ONES .. "/a").body.metadata.resourceVersion)
    local nothing = { dryRun = json.null, preconditions = json.null, propagationPolicy = json.null }
    assert.is_string(k:ask("DELETE", kube.ONES .. "/a", nothing).body.metadata.deletionTimestamp)
  end))

  it("deletes with preconditions, finalizers and as a collection", kube.within(function(k)
    k:create("a", {}, { finalizers = json.array { "demo.example/hold" } })
    assert.equal("409 Conflict", failure(k:ask("DELETE", kube.ONES .. "/a", { preconditions = { uid = "other" } })))
    local held = k:ask("DELETE", kube.ONES .. "/a").body
    assert.is_string(held.metadata.deletionTimestamp)
    k:ask("PATCH", kube.ONES .. "/a", { metadata = { finalizers = json.null } }, MERGE)
    assert.equal(404, k:get(kube.ONES .. "/a").status)
    for i = 1, 4 do k:create("b" .. i, {}, { labels = { n = tostring(i % 2) } }) end
    assert.equal(2, #k:ask("DELETE", kube.ONES .. "?labelSelector=n%3D1").body.items)
    assert.equal(2, #k:get(kube.ALL).body.items)
  end))

  it("warns of unknown fields, or refuses them", kube.within(function(k)
    local object = kube.widget("a", { size = 1, other = 2 })
    local answer = k:ask("POST", kube.ONES, object)
    assert.same({ 201, '299 - "unknown field \\"spec.other\\""' }, { answer.status, answer.headers.warning })
    object.metadata.name = "b"
    answer = k:ask("POST", kube.ONES .. "?fieldValidation=Strict", object)
    assert.equal("400 BadRequest", failure(answer))
    assert.matches('strict decoding error: unknown field "spec.other"', answer.body.message, 1, true)
    answer = k:ask("POST", kube.ONES .. "?fieldValidation=Ignore", object)
    assert.same({ 201 }, { answer.status, answer.headers.warning })
  end))

  it("refuses bad input with a Status, and writes nothing of it", kube.within(function(k)
    local function post(body, content_type, path)
      return failure(k:ask("POST", path or kube.ONES, body, { ["content-type"] = content_type or "application/json" }))
    end
    local good = json.encode(kube.widget "a")
    assert.equal("400 BadRequest", post "")
    assert.equal("400 BadRequest", post "[]")
    assert.equal("400 BadRequest", post '{"a":')
    assert.equal("400 BadRequest", post(("["):rep(100000)))
    assert.equal("400 BadRequest", post '{"a":12345678901234567890}')
    assert.equal("415 UnsupportedMediaType", post(good, "application/vnd.kubernetes.protobuf"))
    assert.equal("413 RequestEntityTooLarge", post(('{"a":"%s"}'):format(("x"):rep(3 * 2 ^ 20))))
    assert.equal("422 Invalid", post(json.encode(kube.widget("a", { size = 101 }))))
    assert.equal("422 Invalid", post(json.encode(kube.widget "A/b")))
    assert.equal("405 MethodNotAllowed", post(good, nil, kube.ALL))
    for _, path in ipairs { "/apis/demo.example/v1/namespaces/..%2f/widgets", "/apis/demo.example/v2/widgets",
      "/apis/demo.example/v1/gadgets", kube.ONES .. "/a%2Fb", "/apis/none" } do
      assert.equal(404, k:get(path).status, path)
    end
    for _, query in ipairs { "resourceVersion=abc", "limit=x", "continue=zzz", "labelSelector=a%3D%3D%3D",
      "fieldSelector=spec.size%3D1" } do
      assert.equal("400 BadRequest", failure(k:get(kube.ALL .. "?" .. query)), query)
    end
    k:create "c"
    for _, patch in ipairs { "[]", '"x"', '{"metadata":{"name":"d"}}', '{"spec":[]}' } do
      assert.is_true(k:ask("PATCH", kube.ONES .. "/c", patch, MERGE).status >= 400, patch)
    end
    assert.equal("415 UnsupportedMediaType", failure(k:ask("PATCH", kube.ONES .. "/c", "{}",
      { ["content-type"] = "application/strategic-merge-patch+json" })))
    assert.equal("504 Timeout", failure(k:get(kube.ALL .. "?resourceVersion=1000")))
    assert.equal("1", k:get(kube.ALL .. "?resourceVersion=1000").headers["retry-after"])
    assert.equal(1, #k:get(kube.ALL).body.items)
  end))

  it("lets users in by tokens, and asks what they may do", function()
    local asked = {}
    kube.within(function(k)
      local function ask(token, path, method)
        return k:ask(method or "GET", path or kube.ONES, nil, { authorization = token and "Bearer " .. token })
      end
      assert.equal("401 Unauthorized", failure(ask()))
      assert.equal("401 Unauthorized", failure(ask "wrong"))
      assert.equal(200, ask("reader").status)
      local refused = ask("reader", kube.ONES .. "/a", "DELETE")
      assert.equal("403 Forbidden", failure(refused))
      assert.equal('widgets.demo.example "a" is forbidden: User "jane" cannot delete resource "widgets" in API group '
        .. '"demo.example" in the namespace "default": only reading is allowed', refused.body.message)
      assert.same({ user = "jane", groups = { "people", "system:authenticated" }, verb = "delete",
        group = "demo.example", version = "v1", resource = "widgets", namespace = "default", name = "a" },
        asked[#asked])
      ask("reader", kube.ALL .. "?watch=1&timeoutSeconds=1")
      assert.equal("watch", asked[#asked].verb)
      assert.equal(200, ask("reader", "/apis").status)
      assert.same({ "/apis", "get" }, { asked[#asked].path, asked[#asked].verb })
      refused = k:ask("GET", kube.ONES, nil, { authorization = "Bearer reader", ["impersonate-user"] = "root" })
      assert.equal("403 Forbidden", failure(refused))
      for verb, wanted in pairs { get = true, create = false } do
        local review = k:ask("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
          { spec = { resourceAttributes = { verb = verb, resource = "widgets", group = "demo.example" } } },
          { authorization = "Bearer reader" })
        assert.same({ 201, wanted }, { review.status, review.body.status.allowed })
      end
    end, {
      tokens = function(token) return token == "reader" and { name = "jane", groups = { "people" } } or nil end,
      authorize = function(attributes)
        asked[#asked + 1] = attributes
        return attributes.verb == "get" or attributes.verb == "list" or attributes.verb == "watch",
          "only reading is allowed"
      end,
    })()
  end)

  it("allows only what authorize answers with true", function()
    for _, answer in ipairs { "yes", 1, {}, false, json.null } do
      kube.within(function(k)
        assert.equal("403 Forbidden", failure(k:get(kube.ONES)))
        local review = k:ask("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
          { spec = { resourceAttributes = { verb = "get" } } })
        assert.is_false(review.body.status.allowed)
      end, { authorize = function() return answer end })()
    end
  end)

  it("stands beside etcd's services, whose version is in the same document", kube.within(function(k)
    local version = k:get("/version").body
    assert.is_string(version.etcdserver)
    assert.equal("1", version.major)
    assert.equal(200, k:get("/health").status)
    assert.matches("^%z?", k:get("/openapi/v2").text)
    assert.equal("application/octet-stream", k:get("/openapi/v2",
      { accept = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf" }).headers["content-type"])
  end))

  it("logs a function of the program that raises, and tells clients nothing of it", function()
    kube.within(function(k)
      local answer = k:get(kube.ALL)
      assert.equal("500 InternalError", failure(answer))
      assert.is_nil(answer.text:find("secret", 1, true))
    end, { authorize = function() error "a secret" end })()
  end)
end)

describe("a server of an API", function()
  it("has its own listeners, and shuts down in order", function()
    local kubernetes = require "keywatch.kubernetes"
    local http = require "keywatch.http"
    local store = keywatch.open()
    local api = kubernetes.api { store = store, resources = { kube.WIDGET } }
    local server = assert(api:serve { listen = "http://127.0.0.1:0" })
    local url = server:addresses()[1]
    local ended
    keywatch.run(function()
      assert.equal("ok", http.request(url .. "/readyz").body)
      local web = http.client()
      local watch = assert(web:open(url .. kube.ALL .. "?watch=1"))
      assert.equal(200, watch:answer().status)
      local reading = keywatch.spawn(function() ended = { watch:read() } end)
      assert.is_true(server:shutdown(5))
      reading:join()
      web:close()
    end)
    assert.same({}, ended)
    api:close()
    store:close()
    assert.has_error(function() api:serve() end)
  end)

  it("is opened with its API by one call", function()
    local kubernetes = require "keywatch.kubernetes"
    local store = keywatch.open()
    local api, server = kubernetes.serve { store = store, resources = { kube.WIDGET }, listen = "http://127.0.0.1:0" }
    assert.matches("^http://127.0.0.1:%d+$", server:addresses()[1])
    assert.has_error(function() kubernetes.serve { store = store, resources = {}, port = 1 } end)
    api:close()
    store:close()
  end)

  it("refuses options that it does not have", function()
    local store = keywatch.open()
    local api = require("keywatch.kubernetes").api { store = store, resources = { kube.WIDGET } }
    assert.has_error(function() api:serve { port = 1 } end)
    assert.has_error(function() api:serve { listen = "https://127.0.0.1:0" } end)
    assert.has_error(function() api:mount({}) end)
    api:close()
    store:close()
  end)
end)
