--- A client whose server ends a Watch call, or makes no sense on it.

local imposter = require "spec.support.imposter"
local network = require "spec.support.network"
local raw = require "spec.support.raw"

local TIMEOUT = 10

describe("a client's watch #plain", function() -- there is no TLS in virtual time
  local client

  network.in_virtual_time()

  local function connect(...)
    local peer = imposter.start { [raw.WATCH] = { "in_turn", ... } }
    client = network.connect(peer.url, { timeout = TIMEOUT })
    return peer
  end

  local function events(revision)
    local kv = { key = "a", value = "v", create_revision = revision, mod_revision = revision, version = 1 }
    return { header = { revision = revision, cluster_id = 1 }, events = { { kv = kv } } }
  end

  it("is as good as ever after a server made no sense on the call before it", function()
    connect(
      { "watch", { { created = true }, { bytes = "\255" }, { wait = "never" } } },
      { "watch", { { created = true }, events(2), { wait = "never" } } })
    local first = assert(client:watch("a"))
    local event, err = first:next(TIMEOUT)
    assert.is_nil(event)
    assert.equal("malformed", err.code)
    local second = assert(client:watch("a"))
    assert.equal(2, second:next(TIMEOUT).mod_revision)
  end)

  it("is told what came before its call ended, even if there is no other call", function()
    local peer = connect(
      { "watch", { { created = true }, { wait = "go" }, events(2), { status = { 14, "gone" } } } },
      { "watch", { { wait = "never" } } })
    local watch = assert(client:watch("a"))
    peer:tell("go")
    assert.equal(2, watch:next(TIMEOUT).mod_revision)
  end)
end)
