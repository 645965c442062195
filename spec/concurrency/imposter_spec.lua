--- Locks of a client whose servers hang, refuse or forget: what only the requests of a client can do.

local keywatch = require "keywatch"

local imposter = require "spec.support.imposter"
local network = require "spec.support.network"

local PATIENCE = 15 -- seconds for what happens at once
local KV, LEASE = "/etcdserverpb.KV/", "/etcdserverpb.Lease/"
local RANGE, TXN = KV .. "Range", KV .. "Txn"
local WATCH, STATUS = "/etcdserverpb.Watch/Watch", "/etcdserverpb.Maintenance/Status"
local GRANT, KEEP = LEASE .. "LeaseGrant", LEASE .. "LeaseKeepAlive"
local HEADER = { cluster_id = 1, member_id = 2, revision = 5, raft_term = 3 }
local HANGS = "stream:receive() stream:wait('never')"
local KEPT = [[
  stream:headers()
  for request in stream.receive, stream do stream:message { ID = request.ID, TTL = 60 } end
]]
local FOUND = { header = HEADER, kvs = { { key = "a/1", create_revision = 3, mod_revision = 3 } }, count = 1 }
-- The key was created at revision 5, and there is one of revision 3.
local SECOND = { "reply", { header = HEADER, succeeded = true, responses = {
  { response_put = { header = HEADER } },
  { response_range = FOUND },
} } }

--- A server that grants and renews leases, and does what is given beside that.
local function start(behaviours)
  local all = {
    [GRANT] = { "reply", { header = HEADER, ID = 7, TTL = 60 } },
    [KEEP] = KEPT,
    [STATUS] = { "reply", { header = HEADER, version = "3.5.21", leader = 2, raftTerm = 3 } },
  }
  for path, behaviour in pairs(behaviours) do all[path] = behaviour end
  return imposter.start(all)
end

local function turn() keywatch.sleep(0.001) end

local function has_called(path)
  return ("calls[#calls].path == %q"):format(path)
end

describe("A lock of a client", function()
  before_each(network.begin)
  after_each(network.finish)

  local function connect(...)
    local urls = {}
    for i, peer in ipairs { ... } do urls[i] = peer.url end
    return network.connect(urls, { timeout = 2 * PATIENCE })
  end

  --- Loses the session of a lock that is waited for, once the server has the call of a path.
  local function lose_during(path, peer, client)
    local session = assert(client:session())
    local waiting = keywatch.spawn(function() return session:lock("a") end)
    peer:await(has_called(path), turn)
    session:orphan()
    local ok, got, err = waiting:join(PATIENCE)
    assert.same({ true, nil }, { ok, got })
    assert.equal("lost", err.code)
  end

  it("is lost at once with its session while one of several servers does not answer", function()
    keywatch.run(function()
      local peer, other = start { [TXN] = HANGS }, start {}
      lose_during(TXN, peer, connect(peer, other))
    end)
  end)

  it("is lost at once with its session while the watch of the key before its own is not confirmed", function()
    keywatch.run(function()
      local peer = start { [TXN] = SECOND, [RANGE] = { "reply", FOUND }, [WATCH] = HANGS }
      lose_during(WATCH, peer, connect(peer))
    end)
  end)
end)
