--- Turns: the requests of a busy connection are read in parts, and others run in between.

local core = require "keywatch.core"

local h2 = require "spec.support.h2"
local pair = require "spec.support.pair"

local paths = pair.paths
local PER_TURN = 10

local function encoded(method, request) return core.encode(pair.request_name(method), request) end

describe("a connection with many requests", function()
  local host, greedy, modest

  before_each(function()
    host = pair.host()
    greedy = host:raw(nil, PER_TURN)
    modest = host:client()
    host:pump()
  end)

  after_each(function() host:close() end)

  local function put(id, ends)
    local message = h2.message(encoded("Put", { key = "greedy", value = tostring(id) }))
    return h2.request(id, paths.Put) .. h2.data(id, message, { ends = ends ~= false })
  end

  local function puts(from, to)
    local list = {}
    for i = from, to do list[#list + 1] = put(2 * i - 1) end
    return table.concat(list)
  end

  --- How many of its puts have been done.
  local function done()
    local kv = host.store:get("greedy")
    return kv and kv.version or 0
  end

  it("is read up to a limit in each turn, and is due again at once", function()
    greedy:say(puts(1, 35))
    assert.equal(PER_TURN, done())
    assert.is_true(greedy.peer:deadline() <= host.now)
    assert.is_false((greedy.peer:state()))
    for turn = 2, 4 do
      greedy.peer:step(host.now)
      assert.equal(math.min(turn * PER_TURN, 35), done())
    end
    assert.is_true((greedy.peer:state()))
    local due = greedy.peer:deadline()
    assert.is_true(due == nil or due > host.now)
    host:pump()
    for i = 1, 35 do assert.equal(0, (greedy.reader:status(2 * i - 1))) end
  end)

  it("is answered in the order of its requests", function()
    greedy:say(puts(1, 35))
    for _ = 1, 4 do greedy.peer:step(host.now) end
    assert.equal(tostring(2 * 35 - 1), host.store:get("greedy").value)
    assert.equal(35, done())
  end)

  it("lets other connections run between its turns", function()
    greedy:say(puts(1, 100))
    local seen = {}
    for i = 1, 9 do
      assert(modest:unary("Put", { key = "modest", value = tostring(i) }))
      seen[i] = done()
      greedy.peer:step(host.now)
    end
    assert.same({ 10, 20, 30, 40, 50, 60, 70, 80, 90 }, seen)
  end)

  it("is not read earlier by sending more", function()
    greedy:say(puts(1, 15))
    greedy:say(puts(16, 30))
    assert.equal(PER_TURN, done())
    greedy.peer:step(host.now)
    greedy.peer:step(host.now)
    assert.equal(30, done())
    assert.equal(tostring(2 * 30 - 1), host.store:get("greedy").value)
  end)

  it("is read to its end: a stream of messages, and requests that end later", function()
    local id = 1
    greedy:send(h2.request(id, paths.LeaseKeepAlive))
    for _ = 1, 25 do greedy:send(h2.data(id, h2.message(encoded("LeaseKeepAlive", { ID = 1 })))) end
    greedy:send(h2.data(id, "", { ends = true }), put(3, false), put(5))
    greedy:say(h2.data(3, "", { ends = true }))
    local steps = 0
    while not greedy.peer:state() do
      greedy.peer:step(host.now)
      steps = steps + 1
    end
    host:pump()
    assert.equal(2, steps)
    assert.equal(25, #greedy.reader:messages(id))
    for _, each in ipairs { 1, 3, 5 } do assert.equal(0, (greedy.reader:status(each))) end
  end)

  it("may cancel unread requests", function()
    greedy:say(puts(1, 30))
    for i = 11, 30 do greedy:send(h2.reset(2 * i - 1)) end
    greedy:push()
    for _ = 1, 3 do greedy.peer:step(host.now) end
    assert.equal(PER_TURN, done())
    greedy:say(put(101))
    assert.equal(0, (greedy.reader:status(101)))
  end)

  it("is read again at once when Lua lets its calls proceed", function()
    host.server:intercept()
    greedy:say(puts(1, 35))
    local n = 0
    for id, is_new in host.server.next_news, host.server do
      if is_new then
        n = n + 1
        host.server:proceed(id)
      end
    end
    assert.equal(35, n)
    for _ = 1, 35 do
      local due = greedy.peer:deadline()
      if not due or due > host.now then break end
      greedy.peer:step(host.now)
    end
    host:pump()
    assert.equal(35, done())
  end)
end)
