--- Watches that are opened while their server fails or does not answer. virtual_network_spec.lua has
-- watches whose server is not running.

local code = require("spec.support.answer").code
local imposter = require "spec.support.imposter"
local network = require "spec.support.network"

local PATIENCE = network.PATIENCE
local SHORT = 0.1 -- seconds: less than it takes until the server is back
local RANGE, WATCH = "/etcdserverpb.KV/Range", "/etcdserverpb.Watch/Watch"

-- Requests of this client have a short timeout: calls without a timeout must not use it.
local OPTIONS = {
  connect_timeout = 1, keepalive = 0.1, keepalive_timeout = 0.3, timeout = SHORT,
  backoff = { first = 0.01, longest = 0.05 },
}

describe("a watch that is opened #plain", function() -- there is no TLS in virtual time
  local HEADER = { cluster_id = 1, member_id = 2, revision = 5, raft_term = 1 }
  local KV = { key = "k", value = "v", create_revision = 2, mod_revision = 5, version = 1 }
  local PAGE = { "reply", { header = HEADER, kvs = { KV }, count = 1 } }
  local CREATED = [[
    local header = { cluster_id = 1, member_id = 2, revision = 5, raft_term = 1 }
    stream:headers()
    for request in function() return stream:receive() end do
      if request.create_request then stream:message { header = header, watch_id = 0, created = true } end
    end
  ]]
  local peer

  network.in_virtual_time()

  local function face(behaviours)
    peer = imposter.start(behaviours)
    return network.connect(peer.url, OPTIONS)
  end

  local TROUBLE = { "status", 14, "etcdserver: no leader" }

  for title, behaviours in pairs {
    ["cannot answer"] = { [RANGE] = { "in_turn", TROUBLE, TROUBLE, TROUBLE, PAGE } },
    ["has cancelled that"] = { [RANGE] = { "in_turn", { "reset", "cancel" }, { "status", 1, "no" }, PAGE } },
    ["does not answer"] = { [RANGE] = { "in_turn", { "silent" }, PAGE } },
    ["does not confirm the watch"] = { [WATCH] = { "in_turn", { "silent" }, CREATED } },
  } do
    it("reads the initial kvs again, or is created again, if a server " .. title, function()
      local all = { [RANGE] = PAGE, [WATCH] = CREATED }
      for path, behaviour in pairs(behaviours) do all[path] = behaviour end
      local w = assert(face(all):watch("k", { initial = true }))
      assert.equal("v", assert(w:next(PATIENCE)).value)
      assert.equal("synced", assert(w:next(PATIENCE)).type)
      assert(title ~= "does not answer" or peer.calls[1].reset)
    end)
  end

  it("reports the last trouble when it times out", function()
    local client = face { [RANGE] = TROUBLE, [WATCH] = CREATED }
    assert(client:watch("k", { timeout = PATIENCE })):close() -- there is a connection now
    local w, err = client:watch("k", { initial = true, timeout = 1 })
    assert.is_nil(w)
    assert.same({ "unavailable", "etcdserver: no leader" }, { err.code, err.message })
    peer:behave { [RANGE] = { "silent" } }
    assert.equal("deadline_exceeded", code(client:watch("k", { initial = true, timeout = SHORT })))
  end)

  it("fails at once if another attempt cannot help", function()
    for status, name in pairs { [3] = "invalid_argument", [7] = "permission_denied", [13] = "internal" } do
      local client = face { [RANGE] = { "status", status, "spec: no" }, [WATCH] = { "status", status, "spec: no" } }
      assert.equal(name, code(client:watch("k", { initial = true })))
      if status ~= 13 then assert.equal(name, code(client:watch("k"))) end
    end
  end)
end)
