--- The bench of the worst requests: no method of a server is forgotten there.

local serving = require "spec.support.serving"

if serving.is_etcd then return end -- looks inside the server

describe("the bench of the worst requests #once", function()
  local path, peer, bench

  before_each(function()
    path = package.path
    package.path = "bench/?.lua;" .. path
    bench = require "worst_requests"
    peer = serving.start()
  end)

  after_each(function()
    package.path = path
    package.loaded.worst_requests, package.loaded.measure = nil, nil
    peer:stop()
  end)

  it("has a row for every method of a server", function()
    assert.same({}, bench.missing(peer.server))
  end)

  it("finds a method that has none", function()
    peer.server:mount("spec.Forgotten", { Method = tostring })
    assert.same({ "/spec.Forgotten/Method" }, bench.missing(peer.server))
  end)
end)
