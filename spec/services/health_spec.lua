--- Health: gRPC's standard health check.

local rpc = require "spec.support.rpc"
local serving = require "spec.support.serving"

local CHECK, WATCH = "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"
local NOT_FOUND, UNAVAILABLE = 5, 14

describe("Health", function()
  local peer, client

  serving.for_each_test(function(...) peer, client = ... end)

  local function watch(service)
    local call = client:begin_message(WATCH, { service = service })
    client:wait(function() return #call.messages > 0 or call.status end)
    return call, rpc.answers(call, WATCH)
  end

  it("says that the server serves", function()
    assert.same({ status = "SERVING" }, client:ask(CHECK))
  end)

  it("has no single services", function()
    for _, service in ipairs { "etcdserverpb.KV", "x" } do
      assert.same({ nil, NOT_FOUND, "unknown service" }, { client:ask(CHECK, { service = service }) })
    end
  end)

  it("is watched: sends the status at once, and then nothing while it stays", function()
    local call, received = watch()
    assert.same({ { status = "SERVING" } }, received)
    client:settle()
    assert.equal(1, #call.messages)
    assert.is_nil(call.status)
    client:cancel(call)
    if serving.is_etcd then return end
    client:wait(function() return next(peer.server.calls) == nil end)
  end)

  it("is watched for unknown services, too", function()
    local call, received = watch("x")
    assert.same({ { status = "SERVICE_UNKNOWN" } }, received)
    assert.is_nil(call.status)
  end)

  it("is no longer watched when the server closes", function()
    if serving.is_etcd then return end
    local call = watch()
    peer.server.object:drain(1)
    assert.same({ UNAVAILABLE, "etcdserver: server stopped" }, { client:finish(call) })
  end)
end)
