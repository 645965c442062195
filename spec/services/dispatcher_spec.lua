--- The calls that tasks answer: however many arrive at once, few begin in a turn of the loop, in the order of arrival.
-- Connections take turns.

local calls = require "keywatch.server.call"

local rpc = require "spec.support.rpc"
local serving = require "spec.support.serving"

local PATH = "/spec.Order/Note"
local MOST = 16 -- that begin in a turn
local unpack = table.unpack or unpack -- luacheck: ignore

if serving.is_etcd then return end -- looks inside the server

describe("the dispatcher of a server", function()
  local peer, client, open, poll, opened, begun

  before_each(function()
    peer = serving.start()
    client = peer:client()
    open, opened, begun = calls.open, 0, {}
    calls.open = function(...)
      opened = opened + 1
      return open(...)
    end
    poll = peer.server.dispatcher.poll
    peer.server:mount("spec.Order", {
      Note = function(bytes)
        begun[#begun + 1] = bytes
        return bytes
      end,
    })
  end)

  after_each(function()
    calls.open = open
    peer:stop()
  end)

  --- Has fn called in each turn in place of the dispatcher's poll.
  local function poll_by(fn)
    function peer.server.dispatcher.poll(self) return fn(self) end
  end

  --- Begins calls, all at once.
  local function begin(n)
    local list = {}
    for i = 1, n do list[i] = client:begin(PATH, tostring(i)) end
    return list
  end

  it("begins a limited number of calls in a turn, in order", function()
    local most = 0
    poll_by(function(self)
      local before = opened
      poll(self)
      most = math.max(most, opened - before)
    end)
    local list, expected = begin(500), {}
    for i, call in ipairs(list) do
      assert.equal(0, (client:finish(call)))
      expected[i] = tostring(i)
    end
    assert.same(expected, begun)
    assert.is_true(most > 1 and most <= MOST)
  end)

  it("lets connections take turns, however many calls each of them begins", function()
    local clients, last = {}, nil
    for i, n in ipairs { 1000, 3, 1, 2 } do
      clients[i] = rpc.attach(peer.server)
      for k = 1, n do last = clients[i]:begin(PATH, ("%d.%d"):format(i, k)) end
      clients[i]:pump() -- the server has these calls now, before those of the next client
    end
    clients[4]:finish(last)
    local first = { unpack(begun, 1, 10) }
    for _, one in ipairs(clients) do one:close() end
    assert.same({ "1.1", "2.1", "3.1", "4.1", "1.2", "2.2", "4.2", "1.3", "2.3", "1.4" }, first)
  end)

  it("begins no call before earlier ones", function()
    local extra = 0
    poll_by(function(self)
      poll(self)
      local before, ran = opened, #begun
      if opened > ran then poll(self) end
      extra = extra + opened - before
    end)
    for _, call in ipairs(begin(200)) do assert.equal(0, (client:finish(call))) end
    assert.same({ 200, 0 }, { #begun, extra })
  end)

  it("begins the next calls if the ones before were cancelled before they began", function()
    local cancelled = 0
    poll_by(function(self)
      poll(self)
      if cancelled > 0 then return end
      for _, known in pairs(peer.server.calls) do
        known.task:cancel()
        cancelled = cancelled + 1
      end
    end)
    local list = begin(50)
    for i = MOST + 1, 50 do assert.equal(0, (client:finish(list[i]))) end
    assert.is_true(cancelled > 0)
    assert.equal(50 - cancelled, #begun)
    client:close()
  end)
end)
