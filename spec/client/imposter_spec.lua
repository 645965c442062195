--- The imposter that specs of clients talk to: what those specs would not notice if it did not do it. All else that it
-- says they observe themselves.

local frame = require "spec.support.frame"
local imposter = require "spec.support.imposter"
local process = require "spec.support.process"
local raw = require "spec.support.raw"

local RANGE, PUT = raw.RANGE, raw.PUT

describe("An imposter #slow", function()
  local peer, clients

  before_each(function()
    peer, clients = imposter.start {}, {}
  end)

  after_each(function()
    for _, client in ipairs(clients) do client:close() end
    process.end_all()
  end)

  local function connect()
    local client = raw.connect(peer.port)
    table.insert(clients, client)
    return client
  end

  it("fails the spec if it is told what it cannot do", function()
    local ok, err = pcall(peer.behave, peer, { [RANGE] = "stream:" })
    assert.is_false(ok)
    assert.truthy(err:find("expected near", 1, true))
    peer:behave { [RANGE] = "error('out of ideas')" }
    connect():start(RANGE, frame.range("a"))
    ok, err = pcall(peer.await, peer, "calls[1].reset")
    assert.is_false(ok)
    assert.truthy(err:find("out of ideas", 1, true))
  end)

  for kind, number in pairs { ping = raw.PING, pong = raw.PING, settings = raw.SETTINGS, data = raw.DATA,
    window = raw.WINDOW_UPDATE, stream_window = raw.WINDOW_UPDATE, push = raw.PUSH_PROMISE, priority = raw.PRIORITY,
    informational = raw.HEADERS, unknown = 0xbb } do
    it("floods with frames: " .. kind, function()
      peer:behave { [RANGE] = { "sequence", { "flood", kind, 2500 }, { "reply", "a" } } }
      local client = connect()
      local id = client:start(RANGE, frame.range("a"))
      client:await(function() return client:has_ended_stream(id) end, "the answer")
      assert.is_true(client.counts[number] >= 2500)
    end)
  end

  it("floods without end", function()
    peer:behave { [RANGE] = { "flood", "ping" }, [PUT] = { "flood", "continuation" } }
    for path, number in pairs { [RANGE] = raw.PING, [PUT] = raw.CONTINUATION } do
      local client = connect()
      client:start(path, frame.range("a"))
      client:await(function() return (client.counts[number] or 0) > 10000 end, "a flood")
      client:close()
    end
  end)

  it("keeps silent, though it hears everything", function()
    peer:behave { connection = { "mute" } }
    local client = connect()
    client:start(RANGE, frame.range("a"))
    client:send(raw.frame(raw.PING, 0, 0, "12345678"))
    peer:await("connections[1].pings == 1 and #calls[1].messages == 1")
    assert.same({}, client.counts)
  end)

  it("answers no PING if it has no pongs", function()
    peer:behave { connection = { "no_pongs" }, [RANGE] = { "reply", "a" } }
    local client = connect()
    client:send(raw.frame(raw.PING, 0, 0, "12345678"))
    assert.equal("a", client:call(RANGE, frame.range("a")))
    assert.same({ 1 }, { peer:look "connections[1].pings", client.counts[raw.PING] })
  end)
end)
