--- The log about a cache whose content is stale: one line, and one when it has caught up.

local keywatch = require "keywatch"

local logs = require "spec.support.logs"
local within = require "spec.support.within"

local PATIENCE = 600
local STALE, CAUGHT_UP = "content that may be stale", "is up to date again"

--- A test in a world with a cache that follows: fn(world, client, cache).
local function following(fn)
  return within.world(function(world)
    local client = world:client()
    client:put("/a/1", "1")
    local cache = assert(client:cache("/a/"))
    assert(cache:wait_synced(PATIENCE))
    fn(world, client, cache)
  end)
end

describe("the log", function()
  before_each(logs.begin)
  after_each(logs.finish)

  it("has one line when a server is down, and one after catching up", following(function(world, client, cache)
    for round = 1, 2 do
      world.server:stop()
      while cache:status().age < 9 do keywatch.sleep(0.5) end
      assert.equal(2 * round - 2, #logs.lines)
      while cache:status().age < 13 do keywatch.sleep(0.5) end
      assert.equal(round, logs.count(STALE))
      keywatch.sleep(600)
      assert.equal(2 * round - 1, #logs.lines)
      assert.equal("unavailable", cache:status().trouble.code)
      world.server:start()
      client:put("/a/1", "2", { timeout = PATIENCE })
      keywatch.sleep(30)
      assert.equal(round, logs.count(CAUGHT_UP))
      assert.equal(2 * round, #logs.lines)
      assert.is_nil(cache:status().trouble)
    end
    local line = logs.lines[1]
    assert(line:find('^warn the cache of "/a/" has'), line)
    assert(line:find("since %d+%-%d%d%-%d%dT%d%d:%d%d:%d%dZ: http://127.0.0.1:2379: "), line)
    assert(logs.lines[2]:find('^info the cache of "/a/" is up to date again, after 6%d%d seconds$'), logs.lines[2])
  end))

  it("has no line when a server is away for a moment", following(function(world, client, cache)
    for _ = 1, 20 do
      world.server:restart(1)
      assert(cache:sync(PATIENCE))
      assert(client:put("/a/1", "x", { timeout = PATIENCE }))
    end
    assert.same({}, logs.lines)
  end))

  it("has no line when a prefix is idle for hours", following(function(_, _, cache)
    keywatch.sleep(3 * 3600)
    assert.same({}, logs.lines)
    assert(cache:status().age <= 11)
  end))

  it("has a line when a server is silent", following(function(world, client)
    world:isolate(client)
    keywatch.sleep(120)
    assert.equal(1, logs.count(STALE))
    world:join(client)
    keywatch.sleep(120)
    assert.same({ 1, 2 }, { logs.count(CAUGHT_UP), #logs.lines })
  end))

  it("has a line when a cache never got content", within.world(function(world)
    world.server:stop()
    local cache = assert(world:client():cache("/a/"))
    keywatch.sleep(9)
    assert.same({}, logs.lines)
    keywatch.sleep(60)
    assert.same({ 1, 1 }, { logs.count("no content yet"), #logs.lines })
    world.server:start()
    assert(cache:wait_synced(PATIENCE))
    keywatch.sleep(5)
    assert.same({ 1, 2 }, { logs.count(CAUGHT_UP), #logs.lines })
  end))

  it("has a line when a server refuses, with the reason", within.world(function(world)
    world:fault { "refuse", method = "range", error = "permission_denied" }
    local cache = assert(world:client():cache("/a/"))
    keywatch.sleep(120)
    assert.same({ "paused", 1, 1 }, { cache:status().phase, logs.count("permission denied"), #logs.lines })
  end))

  it("has no more lines about a closed cache", following(function(world, _, cache)
    world.server:stop()
    keywatch.sleep(5)
    cache:close()
    keywatch.sleep(100)
    assert.same({}, logs.lines)
  end))
end)
