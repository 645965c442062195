--- Kubernetes' clients against `keywatch kubernetes`: kubectl (Debian's, or the one that KUBECTL names), Debian's
-- client for Python, and npm's for Node, with its informer.

local command = require "spec.support.command"
local directory = require "spec.support.directory"
local files = require "spec.support.files"
local json = require "keywatch.json"
local process = require "spec.support.process"

local KUBECTL = os.getenv "KUBECTL" or "build/kubectl"

local CRD = [[
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.demo.example}
spec:
  group: demo.example
  scope: Namespaced
  names: {kind: Widget, plural: widgets, shortNames: [wd], categories: [all]}
  versions:
    - name: v1
      served: true
      storage: true
      subresources:
        status: {}
        scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}
      additionalPrinterColumns:
        - {name: Size, type: integer, jsonPath: .spec.size}
        - {name: Color, type: string, jsonPath: .spec.color, priority: 1}
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec:
              type: object
              description: What a widget should be.
              properties:
                size: {type: integer, description: How large., maximum: 100}
                replicas: {type: integer}
                color: {type: string}
            status: {type: object, properties: {replicas: {type: integer}, ready: {type: string}}}
]]

local WIDGET = [[
apiVersion: demo.example/v1
kind: Widget
metadata: {name: %s, labels: {app: %s}}
spec: {size: %d, replicas: 1}
]]

describe("Kubernetes' clients #once #peer", function()
  local server, url, home

  before_each(function()
    home = directory.new()
    server = command.start("kubernetes", files.write(home .. "/crd.yaml", CRD), "--memory", "--builtin", "--listen",
      "http://127.0.0.1:0")
    url = command.wait_until_ready(server)[1]
  end)
  command.with_tests()

  --- Runs a client. Returns the exit status, its output, and its errors.
  local function run(argv, input, env)
    local one = process.run(argv, input, { env = env })
    return one.status, one:stdout(), one:stderr()
  end

  describe("kubectl", function()
    --- Runs kubectl with the arguments of a line. Returns the exit status, its output, and its errors.
    local function try(line, input)
      local argv = { KUBECTL, "--server", url, "--cache-dir", home .. "/cache" }
      for word in line:gmatch "%S+" do argv[#argv + 1] = word end
      return run(argv, input, { HOME = home, EDITOR = "sh " .. home .. "/editor" })
    end

    --- Runs a command that must succeed. Returns its output, without the last newline.
    local function kubectl(line, input)
      local status, out, err = try(line, input)
      if status ~= 0 then error(("kubectl %s: %s%s"):format(line, out, err), 2) end
      return (out:gsub("\n$", "")), err
    end

    --- Runs a command that must fail. Returns its errors.
    local function fails(line, input)
      local status, out, err = try(line, input)
      assert.is_true(status ~= 0, out)
      return err
    end

    local function create(name, app, size) kubectl("create -f -", WIDGET:format(name, app or "x", size or 1)) end

    --- Begins a command, and waits until it prints a pattern.
    local function begin(line, pattern)
      local argv = { KUBECTL, "--server", url, "--cache-dir", home .. "/cache" }
      for word in line:gmatch "%S+" do argv[#argv + 1] = word end
      local one = process.start(argv, { env = { HOME = home } })
      one:expect(pattern)
      return one
    end

    it("finds resources, versions and fields", function()
      assert.matches("widgets +wd +demo.example/v1 +true +Widget", kubectl "api-resources")
      assert.matches("demo.example/v1", kubectl "api-versions")
      assert.matches("v1%.26%.0%+keywatch", kubectl "version --output=json")
      assert.matches("What a widget should be%.", kubectl "explain widgets.spec")
      assert.matches("How large%.", kubectl "explain widgets.spec.size")
      assert.equal("yes", kubectl "auth can-i create widgets")
      assert.equal("ok", kubectl "get --raw /healthz")
      assert.matches("doesn't have a resource type", fails "get gadgets")
    end)

    it("gets objects in every form", function()
      create("a", "x", 1)
      create("b", "z", 3)
      create("c", "z", 2)
      assert.matches("^NAME +SIZE\na +1\nb +3\nc +2$", kubectl "get widgets")
      assert.matches("^NAME +SIZE +COLOR\na +1 *\n", kubectl "get wd -o wide")
      assert.matches("^default +a +1\n", kubectl "get wd -A --no-headers")
      assert.matches("^b +3\nc +2$", kubectl "get wd -l app=z --no-headers")
      assert.matches("^c +2$", kubectl "get wd --field-selector metadata.name=c --no-headers")
      assert.matches("^a +1\nb +3\nc +2$", kubectl "get wd --chunk-size=1 --no-headers")
      assert.matches("^a +1\nc +2\nb +3$", kubectl "get wd --sort-by=.spec.size --no-headers")
      assert.matches("^a +1\nb +3$", (kubectl "get wd a b --no-headers"))
      assert.equal("widget.demo.example/a", kubectl "get wd a -o name")
      assert.equal("3", kubectl "get wd b -o jsonpath={.spec.size}")
      assert.equal(1, json.decode((kubectl "get wd a -o json")).spec.size)
      assert.matches("Size: +1", kubectl "describe wd a")
      assert.matches("^a +1 +app=x$", kubectl "get wd a --show-labels --no-headers")
      assert.matches("No resources found", select(2, kubectl "get wd -n other"))
      assert.matches('NotFound.* widgets.demo.example "none" not found', fails "get wd none")
      assert.matches("field label not supported", fails "get wd --field-selector spec.size=1")
    end)

    it("creates, applies, replaces and compares", function()
      local one = WIDGET:format("a", "x", 1)
      assert.equal("widget.demo.example/a created", kubectl("apply -f -", one))
      assert.equal("widget.demo.example/a unchanged", kubectl("apply -f -", one))
      assert.equal("widget.demo.example/a configured", kubectl("apply -f -", WIDGET:format("a", "x", 2)))
      assert.matches("AlreadyExists", fails("create -f -", one))
      assert.matches("%(server dry run%)", (kubectl("apply --dry-run=server -f -", one)))
      assert.equal("2", kubectl "get wd a -o jsonpath={.spec.size}")
      files.write(home .. "/one.yaml", one)
      local status, out = try("diff -f " .. home .. "/one.yaml")
      assert.equal(1, status)
      assert.matches("\n%-  size: 2\n%+  size: 1\n", out)
      assert.equal("widget.demo.example/a replaced", kubectl("replace -f -", one))
      assert.equal("1", kubectl "get wd a -o jsonpath={.spec.size}")
      assert.matches("NotFound", fails("replace -f -", WIDGET:format("none", "x", 1)))
      assert.matches("widget.demo.example/g%w+ created",
        (kubectl("create -f -", (WIDGET:format("a", "x", 1):gsub("name: a", "generateName: g")))))
    end)

    it("is told what is wrong with an object", function()
      assert.matches("spec.size: Invalid value: 300: spec.size in body should be less than or equal to 100",
        fails("create -f -", WIDGET:format("a", "x", 300)))
      assert.matches("metadata.name: Invalid value", fails("create -f -", WIDGET:format("A", "x", 3)))
      local unknown = (WIDGET:format("a", "x", 3):gsub("replicas: 1", "other: 1"))
      assert.matches("unknown field", fails("create -f -", unknown))
      local _, warning = kubectl("create --validate=false -f -", unknown)
      assert.is_true(warning == "" or warning:find "unknown field" ~= nil)
    end)

    it("patches, labels, annotates, edits and scales", function()
      create("a", "x", 2)
      kubectl 'patch wd a --type merge -p {"spec":{"color":"red"}}'
      kubectl 'patch wd a --type json -p [{"op":"replace","path":"/spec/replicas","value":3}]'
      assert.equal("red 3", kubectl "get wd a -o jsonpath={.spec.color}{'\\u0020'}{.spec.replicas}")
      assert.matches("the request was in an unknown format", fails 'patch wd a -p {"spec":{"color":"blue"}}')
      kubectl "label wd a tier=one"
      kubectl "annotate wd a note=two"
      kubectl "label wd --all app-"
      files.write(home .. "/editor", [[sed -i 's/size: 2/size: 9/' "$1"]])
      assert.equal('{"tier":"one"} two',
        kubectl "get wd a -o jsonpath={.metadata.labels}{'\\u0020'}{.metadata.annotations.note}")
      assert.matches("edited", (kubectl "edit wd a"))
      assert.equal("9", kubectl "get wd a -o jsonpath={.spec.size}")
      assert.matches("scaled", (kubectl "scale wd a --replicas=4"))
      assert.matches("scaled", (kubectl "scale wd a --current-replicas=4 --replicas=5"))
      assert.equal("5", kubectl "get wd a -o jsonpath={.spec.replicas}")
    end)

    it("deletes, and waits for finalizers", function()
      create "a"
      assert.matches("dry run", (kubectl "delete wd a --dry-run=server"))
      kubectl 'patch wd a --type merge -p {"metadata":{"finalizers":["demo.example/hold"]}}'
      assert.matches("deleted", (kubectl "delete wd a --wait=false"))
      local waiting = begin("delete wd a", "deleted")
      assert.matches("^20", (kubectl "get wd a -o jsonpath={.metadata.deletionTimestamp}"))
      kubectl 'patch wd a --type merge -p {"metadata":{"finalizers":null}}'
      assert.equal(0, waiting:wait())
      create("b", "one")
      create("c", "two")
      kubectl "delete wd -l app=one"
      assert.equal("widget.demo.example/c", kubectl "get wd -o name")
      kubectl "delete wd --all --cascade=foreground --wait=false"
      assert.matches("NotFound", fails "delete wd d")
    end)

    it("watches", function()
      create("a", "x", 1)
      local all = begin("get wd -w --output-watch-events", "ADDED +a +1\n")
      local one = begin("get wd a -w --no-headers", "a +1\n")
      create("b", "x", 2)
      kubectl 'patch wd a --type merge -p {"spec":{"size":7}}'
      all:expect "ADDED +b +2\nMODIFIED +a +7\n"
      one:expect "^a +7\n"
      kubectl "delete wd b"
      all:expect "DELETED +b +2\n"
      all:signal "sigterm"
      one:signal "sigterm"
    end)

    it("has the built-in kinds", function()
      kubectl "create configmap c --from-literal=key=value"
      assert.equal("value", kubectl "get cm c -o jsonpath={.data.key}")
      local map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: d}\ndata: {a: %s}\n"
      kubectl("apply -f -", map:format "b")
      local out, err = kubectl("apply -f -", map:format "c")
      assert.same({ "configmap/d configured", "" }, { out, err })
      assert.equal("c", kubectl "get cm d -o jsonpath={.data.a}")
      kubectl "create secret generic s --from-literal=word=abc"
      assert.equal("YWJj", kubectl "get secret s -o jsonpath={.data.word}")
      kubectl "create namespace more"
      assert.matches("more +Active", kubectl "get ns")
      assert.matches('namespaces "none" not found', fails("create -n none -f -", WIDGET:format("a", "x", 1)))
    end)
  end)

  it("for Python write, list and watch", function()
    local status, out, err = run { "/usr/bin/python3", "-B", "spec/support/python/kubernetes_client.py", url }
    assert.same({ 0, "done\n" }, { status, out }, out .. err)
  end)

  it("for Node write, list, watch and inform", function()
    local status, out, err = run({ "node", "spec/support/node/kubernetes_client.js", url }, nil,
      { NODE_PATH = "build/node/node_modules", NODE_OPTIONS = "" })
    assert.same({ 0, "done\n" }, { status, out }, out .. err)
  end)
end)
