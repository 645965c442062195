--- Users of Kubernetes' API over TLS: those of client certificates, and those of bearer tokens.

local http = require "keywatch.http"
local keywatch = require "keywatch"
local kubernetes = require "keywatch.kubernetes"

local certificates = require "spec.support.certificates"
local kube = require "spec.support.kube"

local REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"

describe("access to Kubernetes' API over TLS", function()
  local ca, store, api, asked

  before_each(function()
    ca = certificates.paths "ca"
    store, asked = keywatch.open(), {}
    api = kubernetes.api { store = store, resources = { kube.WIDGET } }
  end)

  after_each(function()
    api:close()
    store:close()
  end)

  --- Allows admins everything, and reading to everybody.
  local function authorize(attributes)
    asked[#asked + 1] = attributes
    for _, group in ipairs(attributes.groups) do
      if group == "admins" then return true end
    end
    return attributes.verb == "list", "only admins write"
  end

  --- Returns the URL of a server with these options of TLS.
  local function serve(tls, opts)
    tls.cert, tls.key = certificates.paths "server"
    local all = { listen = "https://localhost:0", tls = tls, authorize = authorize }
    for name, value in pairs(opts or {}) do all[name] = value end
    return assert(api:serve(all)):addresses()[1]
  end

  --- Calls fn with a client that has the certificate of that name, or none.
  local function with_client(url, name, fn)
    local tls = { ca = ca }
    if name then tls.cert, tls.key = certificates.paths(name) end
    local client = setmetatable({ http = assert(http.client { tls = tls }), url = url }, kube)
    keywatch.run(fn, client)
    client.http:close()
  end

  --- Asks whether the client may use a verb.
  local function may(client, verb, headers)
    local answer = client:ask("POST", REVIEWS, { spec = {
      resourceAttributes = { verb = verb, resource = "widgets", group = "demo.example", namespace = "default" } } },
      headers)
    assert.equal(201, answer.status, answer.text)
    return answer.body.status
  end

  it("has the groups that the organizations of a client certificate name", function()
    local url = serve { ca = ca }
    for _ = 1, 2 do -- a new connection each time
      with_client(url, "carol", function(client)
        assert.equal(201, client:ask("POST", kube.ONES, kube.widget("a")).status)
        assert.same({ user = "carol", groups = { "admins", "grün", "system:authenticated" }, verb = "create",
          group = "demo.example", version = "v1", resource = "widgets", namespace = "default" }, asked[#asked])
        assert.is_true(may(client, "create").allowed)
        client:delete "a"
      end)
    end
  end)

  it("is refused to a client certificate without a group that may, in the words of Kubernetes", function()
    with_client(serve { ca = ca }, "alice", function(client)
      assert.equal(200, client:get(kube.ONES).status)
      assert.same({ "alice", { "system:authenticated" } }, { asked[#asked].user, asked[#asked].groups })
      local refused = client:ask("POST", kube.ONES, kube.widget("a"))
      assert.same({ 403, "Forbidden" }, { refused.status, refused.body.reason })
      assert.equal('widgets.demo.example is forbidden: User "alice" cannot create resource "widgets" in API group '
        .. '"demo.example" in the namespace "default": only admins write', refused.body.message)
      assert.same({ group = "demo.example", kind = "widgets" }, refused.body.details)
      assert.same({ allowed = false, reason = "only admins write" }, may(client, "create"))
      assert.is_true(may(client, "list").allowed)
    end)
  end)

  it("is that of a bearer token without a certificate, and 401 without either", function()
    local jane = { name = "jane", groups = { "admins" } }
    local url = serve({}, { tokens = function(token) return token == "secret" and jane end })
    local as_jane = { authorization = "Bearer secret" }
    for _, name in ipairs { false, "carol" } do -- a server without `ca` does not ask for certificates
      with_client(url, name, function(client)
        assert.equal(200, client:get(kube.ONES, as_jane).status)
        assert.same({ "jane", { "admins", "system:authenticated" } }, { asked[#asked].user, asked[#asked].groups })
        assert.is_true(may(client, "create", as_jane).allowed)
        for _, headers in ipairs { {}, { authorization = "Bearer wrong" } } do
          local refused = client:get(kube.ONES, headers)
          assert.same({ 401, "Unauthorized", "Unauthorized" },
            { refused.status, refused.body.reason, refused.body.message })
        end
      end)
    end
  end)

  it("is that of the certificate if a request has a token, too", function()
    with_client(serve({ ca = ca }, { tokens = function() return "jane" end }), "carol", function(client)
      assert.equal(200, client:get(kube.ONES, { authorization = "Bearer secret" }).status)
      assert.equal("carol", asked[#asked].user)
    end)
  end)
end)
