--- h2load: many requests at once, over connections of many streams. No request is lost or done twice.

local etcdctl = require "spec.support.etcdctl"
local frame = require "spec.support.frame"
local process = require "spec.support.process"

describe("h2load #once", function()
  local ctl = etcdctl.with_server()
  local body

  setup(function() body = os.tmpname() end)

  teardown(function()
    if body then os.remove(body) end
  end)

  --- Makes a request many times: { requests =, connections =, streams = }, the streams being those of a connection.
  local function load(method, request, many)
    local file = assert(io.open(body, "wb"))
    file:write(request)
    file:close()
    local done = process.run { "h2load", "-n", tostring(many.requests), "-c", tostring(many.connections), "-m",
      tostring(many.streams), "-d", body, "-H", "content-type: application/grpc", "-H", "te: trailers",
      ctl.peer.url .. "/etcdserverpb.KV/" .. method }
    local n = many.requests
    local printed = done:stdout()
    if done.status ~= 0 then error(done:transcript()) end
    assert.matches(("requests: %d total, %d started, %d done, %d succeeded, 0 failed, 0 errored, 0 timeout")
      :format(n, n, n, n), printed)
    assert.matches(("status codes: %d 2xx, 0 3xx, 0 4xx, 0 5xx"):format(n), printed)
  end

  --- The version and the value of a key: what its fields print.
  local function expect_key(key, version, value)
    local fields = ctl:must { "get", key, "-w", "fields" }
    assert.equal(tostring(version), fields:match('"Version" : (%d+)\n'))
    assert.equal(value, fields:match('"Value" : "([^"]*)"\n'))
  end

  it("puts one key thousands of times", function()
    load("Put", frame.put("load/a", "value"), { requests = 3000, connections = 4, streams = 25 })
    expect_key("load/a", 3000, "value")
  end)

  it("reads thousands of times", function()
    ctl:must { "put", "load/r", "value" }
    load("Range", frame.range("load/r"), { requests = 10000, connections = 8, streams = 50 })
    expect_key("load/r", 1, "value")
  end)

  it("reads large values on many streams at once", function()
    ctl:must { "put", "load/large", input = ("x"):rep(200000) }
    load("Range", frame.range("load/large"), { requests = 300, connections = 3, streams = 30 })
  end)

  it("puts large values on many streams at once", function()
    load("Put", frame.put("load/upload", ("x"):rep(100000)), { requests = 100, connections = 4, streams = 10 })
    expect_key("load/upload", 100, ("x"):rep(100000))
  end)

  it("opens and closes many connections", function()
    load("Range", frame.range("load/a"), { requests = 200, connections = 100, streams = 2 })
    load("Range", frame.range("load/a"), { requests = 200, connections = 100, streams = 2 })
    assert.is_true(ctl.peer:is_running())
  end)
end)
