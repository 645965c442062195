--- The program `keywatch kubernetes`: its flags, its files and its end. Its clients are in interop/kubernetes_spec.

local command = require "spec.support.command"
local directory = require "spec.support.directory"
local files = require "spec.support.files"
local http = require "keywatch.http"
local keywatch = require "keywatch"

local LUA = [[
return {
  resources = { { group = "demo.example", version = "v1", kind = "Widget", plural = "widgets" } },
  authorize = function(attributes) return attributes.verb ~= "delete", "nothing is deleted here" end,
}
]]

local CRD = [[{ "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "spec": {
  "group": "demo.example", "scope": "Cluster", "names": { "kind": "Gadget", "plural": "gadgets" },
  "versions": [{ "name": "v1", "served": true, "storage": true,
    "schema": { "openAPIV3Schema": { "type": "object" } } }] } }]]

describe("keywatch kubernetes", function()
  command.with_tests()

  local function write(name, text) return files.write(directory.new() .. "/" .. name, text) end

  local function ask(method, url, body)
    return keywatch.run(function()
      return assert(http.request(url, { method = method, body = body }))
    end)
  end

  it("serves the resources of a Lua file, with its rules", function()
    local one = command.start("kubernetes", write("widgets.lua", LUA), "--memory", "--listen", "http://127.0.0.1:0")
    local all = command.wait_until_ready(one)[1] .. "/apis/demo.example/v1/namespaces/default/widgets"
    local body = '{"apiVersion":"demo.example/v1","kind":"Widget","metadata":{"name":"a"}}'
    assert.equal(201, ask("POST", all, body).status)
    assert.equal(403, ask("DELETE", all .. "/a").status)
    assert.matches("shutting down", command.stop(one))
  end)

  it("serves a CustomResourceDefinition and the built-in kinds from a directory", function()
    local path, dir = write("gadgets.json", CRD), directory.new() .. "/data"
    for i = 1, 2 do
      local one = command.start("kubernetes", path, "--data-dir", dir, "--builtin", "--listen", "http://127.0.0.1:0")
      local url = command.wait_until_ready(one)[1]
      local all = url .. "/apis/demo.example/v1/gadgets"
      local body = '{"apiVersion":"demo.example/v1","kind":"Gadget","metadata":{"name":"a"}}'
      assert.equal(i == 1 and 201 or 409, ask("POST", all, body).status)
      assert.equal(200, ask("GET", all .. "/a").status)
      assert.equal(200, ask("GET", url .. "/api/v1/namespaces/default/configmaps").status)
      command.stop(one)
    end
  end)

  it("refuses wrong command lines and files", function()
    local function refused(status, pattern, ...) command.expect_failure(status, {}, pattern, "kubernetes", ...) end
    local lua = write("widgets.lua", LUA)
    refused(2, "the file is missing: keywatch kubernetes FILE")
    refused(2, "there is no flag %-%-port", lua, "--port", "1")
    refused(2, "'more' is not a flag", lua, "more")
    refused(2, "%-%-listen: 'nowhere'", lua, "--listen", "nowhere")
    refused(2, "needs %-%-cert%-file and %-%-key%-file", lua, "--listen", "https://127.0.0.1:0")
    refused(2, "%-%-cert%-file and %-%-key%-file are needed", lua, "--cert-file", "a")
    refused(2, "%-%-memory and %-%-data%-dir exclude each other", lua, "--memory", "--data-dir", "d")
    refused(2, "%-%-log%-level must be", lua, "--log-level", "loud")
    refused(1, "No such file", "/no/such/file.yaml", "--memory")
    refused(1, "must return a list of resources", write("x.lua", "return 7"), "--memory")
    refused(1, "kubernetes", write("x.json", '{"kind":"Other"}'), "--memory")
    refused(1, "x.yaml: line 1", write("x.yaml", "a: *b"), "--memory")
  end)

  it("prints its flags", function()
    local one = command.start("kubernetes", "--help")
    assert.equal(0, one:wait())
    local flags = require "keywatch.command.kubernetes_flags"
    for name in pairs(flags.FLAGS) do
      if name ~= "h" then assert.matches("--" .. name, one:stdout(), 1, true) end
    end
  end)
end)
