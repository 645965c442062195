--- Prometheus' own client reads the metrics of a server.

local keywatch = require "keywatch"

local directory = require "spec.support.directory"
local prometheus = require "spec.support.prometheus"
local shell = require "spec.support.shell"

describe("Prometheus' client for Python #once #peer", function()
  after_each(directory.remove_all)

  it("reads each family of a server with its type, and all samples", function()
    local store = keywatch.open { path = directory.new() .. "/data" }
    local server = assert(keywatch.serve { store = store, listen = "http://127.0.0.1:0", metrics = "extensive" })
    local client = keywatch.connect(server:addresses()[1])
    client:put("a", "1")
    local text, file = server:metrics(), directory.new() .. "/metrics"
    local out = assert(io.open(file, "wb"))
    out:write(text)
    out:close()
    local found = {}
    local printed = shell.must("/usr/bin/python3 -B spec/support/prometheus.py < " .. file)
    for name, kind, n in printed:gmatch("(%S+) (%S+) (%d+)") do found[name] = { kind, tonumber(n) } end
    for _, family in ipairs(prometheus.parse(text)) do
      local base = family.type == "counter" and family.name:gsub("_total$", "") or family.name -- as the client names it
      assert.same({ family.type, #family.samples }, found[base], family.name)
    end
    client:close()
    server:close()
    store:close()
  end)
end)
