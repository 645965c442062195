--- Broadcasts of the core: the same bytes for many HTTP answers, over both protocols.

local core = require "keywatch.core"

local NOW = 1000
local EVENT = ("e"):rep(999) .. "\n"
local LONG = ("l"):rep(9999) .. "\n" -- is not copied

describe("broadcast", function()
  local server, broadcast, peers

  before_each(function()
    server, broadcast, peers = assert(core.serve(nil, {})), core.broadcast(), {}
  end)

  after_each(function() server:close() end)

  --- Takes all news. Returns the ids of requests that have room, and those that have ended, as sets.
  local function news()
    local roomy, ended, opened = {}, {}, nil
    for id, is_new, _, has_room, status in server.next_news, server do
      if is_new then opened = id end
      if has_room then roomy[id] = true end
      if status then ended[id] = true end
    end
    return roomy, ended, opened
  end

  --- Connects, and makes a request. Returns the peer and the request's id.
  local function ask()
    local peer = assert(server:accept(NOW))
    peer:feed("GET /watch HTTP/1.1\r\nhost: h\r\n\r\n", NOW)
    peers[#peers + 1] = peer
    return peer, select(3, news())
  end

  --- Opens a member: a request that was answered. Returns the peer and the id.
  local function member()
    local peer, id = ask()
    server:answer(id, 200, { "content-type", "text/plain" })
    assert.matches("^HTTP/1.1 200 OK\r\n", peer:pending())
    assert.is_true(server:join(id, broadcast))
    return peer, id
  end

  local function chunk(text) return ("%x\r\n%s\r\n"):format(#text, text) end

  it("writes the same bytes to every member, one chunk each", function()
    local one, two = member(), member()
    local other, id = ask()
    server:answer(id, 200, {})
    other:pending()
    for at, text in ipairs { EVENT, LONG, EVENT } do
      assert.equal(2, broadcast:publish(text, at))
      assert.equal(chunk(text), one:pending())
      assert.equal(chunk(text), two:pending())
    end
    assert.equal("", other:pending())
  end)

  it("takes no request without an answer, and none that has ended", function()
    local peer, id = ask()
    assert.is_false(server:join(id, broadcast))
    server:answer(id, 200, {})
    assert.is_true(server:join(id, broadcast))
    peer:close()
    assert.equal(0, broadcast:publish(EVENT, 1))
    assert.is_true(select(2, news())[id])
    assert.is_false(server:join(id, broadcast))
    assert.is_nil(server:lag(id))
  end)

  it("leaves out a member without room, until it has caught up and joins again", function()
    local slow, id = member()
    local fast = member()
    local at = 0
    repeat
      at = at + 1
      local n = broadcast:publish(LONG, at)
      assert.equal(chunk(LONG), fast:pending())
    until n == 1
    assert.equal(at, server:lag(id))
    assert.equal(1, broadcast:publish(EVENT, at + 1))
    assert.equal(at, server:lag(id))
    assert.is_nil(news()[id])

    local received = 0
    repeat
      local bytes = slow:pending()
      received = received + #bytes
    until bytes == ""
    assert.equal((at - 1) * #chunk(LONG), received)
    assert.is_true(news()[id])
    assert.is_true(server:join(id, broadcast))
    assert.is_nil(server:lag(id))
    fast:pending()
    assert.equal(2, broadcast:publish(EVENT, at + 2))
    assert.equal(chunk(EVENT), slow:pending())
  end)

  it("ends with its members in any order", function()
    local peer, id = member()
    server:leave(id)
    assert.equal(0, broadcast:publish(EVENT, 1))
    server:join(id, broadcast)
    local other = core.broadcast()
    server:join(id, other)
    assert.equal(0, broadcast:publish(EVENT, 2))
    assert.equal(1, other:publish(EVENT, 2))
    peer:pending()
    other = nil
    collectgarbage()
    collectgarbage()
    assert.is_nil(other)
    server:leave(id)
    server:join(id, broadcast)
    server:close()
    assert.equal(0, broadcast:publish(EVENT, 3))
    assert.is_false(server:join(id, broadcast))
  end)

  it("moves its members to another broadcast", function()
    local peer, id = member()
    local all = core.broadcast()
    all:absorb(broadcast)
    assert.equal(0, broadcast:publish(EVENT, 1))
    assert.equal(1, all:publish(EVENT, 1))
    assert.equal(chunk(EVENT), peer:pending())
    assert.has_error(function() all:absorb(all) end)
    server:leave(id)
    all:absorb(broadcast)
    assert.equal(0, all:publish(EVENT, 2))
  end)
end)
