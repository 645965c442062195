--- The HTTP endpoints of a manager.

local uv = require "spec.support.luv"
package.loaded.luv = uv -- luv's loop turns the manager; each spec file has modules of its own

local controller = require "keywatch.controller"
local keywatch = require "keywatch"

local http = require "spec.support.http"
local logs = require "spec.support.logs"
local process = require "spec.support.process"
local prometheus = require "spec.support.prometheus"

local LISTEN = "http://127.0.0.1:0"

describe("the HTTP endpoints of a manager", function()
  local store, manager, may_sync

  before_each(function()
    logs.begin()
    store, may_sync = keywatch.open(), false
    manager = controller.manager { store = store, listen_metrics = LISTEN }
    manager:add { start = function() end, stop = function() end, has_synced = function() return may_sync end }
  end)

  after_each(function()
    keywatch.run(manager.stop, manager, 1)
    store:close()
    logs.finish()
  end)

  local function ask(path)
    local one = http.connect(tonumber(manager:addresses()[1]:match("%d+$")))
    one:say(("GET %s HTTP/1.1\r\nhost: localhost\r\n\r\n"):format(path))
    local answer = assert(one:wait())
    one:close()
    return answer
  end

  it("answer from start to stop", function()
    assert.same({}, manager:addresses())
    manager:start()
    process.turn_until(function() return manager:status().components[1].state == "started" end)
    assert.same({ 200, "ok\n" }, { ask("/livez").status, ask("/livez").body })
    assert.same({ 200, "ok\n" }, { ask("/healthz").status, ask("/healthz").body })
    assert.same({ 503, "the manager has not synced yet\n" }, { ask("/readyz").status, ask("/readyz").body })
    assert.equal(404, ask("/version").status)
    may_sync = true
    assert.same({ 200, "ok\n" }, { ask("/readyz").status, ask("/readyz").body })
    local answer = ask("/metrics")
    assert.matches("\r\ncontent%-type: text/plain; version=0%.0%.4; charset=utf%-8\r\n", answer.head)
    assert.equal(1, prometheus.value(prometheus.parse(answer.body), "keywatch_manager_healthy"))
    keywatch.run(manager.stop, manager)
    assert.same({}, manager:addresses())
  end)

  it("list what is wrong", function()
    local gate = keywatch.channel(1)
    may_sync = true
    manager:add { start = function() end, stop = function() gate:receive() end }
    manager:start()
    assert(process.turn_until(function() return manager:status().components[2].state == "started" end))
    keywatch.spawn(manager.stop, manager, 60)
    local answer = ask("/healthz")
    assert.equal(503, answer.status)
    assert.matches("^the manager is being stopped\n", answer.body)
    assert.equal(503, ask("/readyz").status)
    assert.equal(200, ask("/livez").status)
    gate:close()
  end)

  it("are a failure of the manager if it cannot listen", function()
    manager:start()
    local other = controller.manager { store = store, listen_metrics = { LISTEN, manager:addresses()[1] } }
    local is_started = false
    other:add { start = function() is_started = true end, stop = function() end }
    other:start()
    local ok, err = keywatch.run(other.join, other, 5)
    assert.is_nil(ok)
    assert.equal("listen_failed", err.code)
    assert.is_false(is_started)
    assert.same({}, other:addresses())
    assert.is_true(logs.has("error the manager ends: cannot listen on"))
  end)

  it("need valid options", function()
    for options, text in pairs {
      [{ listen_metrics = 5 }] = "manager: option 'listen_metrics' must be a URL, or a list of them",
      [{ listen_metrics = "x:1" }] = "manager: option 'listen_metrics': 'x:1' must begin with http://",
      [{ listen_metrics = "https://localhost:0" }] = "manager: https://localhost:0 asks for TLS: give the option 'tls'",
      [{ listen_metrics = LISTEN, tls = { auto = true } }] =
        "manager: option 'tls' needs an https:// or unixs: URL in 'listen_metrics'",
    } do
      options.store = store
      local ok, raised = pcall(controller.manager, options)
      assert.is_false(ok)
      assert.is_truthy(raised:find(text, 1, true), raised)
    end
  end)
end)
