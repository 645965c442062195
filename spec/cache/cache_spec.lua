--- Caches: their content, their waits, and the effects of changed and replaced servers.

local keywatch = require "keywatch"

local answer = require "spec.support.answer"
local network = require "spec.support.network"
local proxy = require "spec.support.proxy"

local PATIENCE = network.PATIENCE

--- The kvs of a reader by key, without those of other prefixes.
local function contents(reader, prefix)
  local kvs = {}
  for kv in reader:each(prefix, { prefix = true }) do kvs[kv.key] = kv end
  return kvs
end

network.of_each(function(kind, tag)
  describe(("a cache of %s %s"):format(kind, tag), function()
    local s, client, cache

    before_each(network.begin)

    after_each(function()
      if cache then cache:close() end
      cache = nil
      network.finish()
    end)

    --- A server with some keys, and a cache of a part of them.
    local function start()
      s = network.start(kind)
      client = network.connect(s.url)
      for i = 1, 5 do assert(client:put("/a/" .. i, tostring(i))) end
      assert(client:put("/b/1", "b"))
      cache = assert(client:cache("/a/"))
      assert.is_true(cache:wait_ready(PATIENCE))
    end

    it("has the existing keys, and later changes", function()
      start()
      assert.same({ true, "3", nil }, { cache:is_ready(), cache:get("/a/3").value, (cache:get("/a/9")) })
      assert.equal(5, cache:range("/a/", { prefix = true }).count)
      local put = assert(client:put("/a/6", "6"))
      assert(cache:wait_for(put.revision, PATIENCE))
      assert.equal("6", cache:get("/a/6").value)
      client:delete("/a/1")
      assert(cache:wait_for(assert(client:put("/a/2", "new")).revision, PATIENCE))
      assert.same(contents(client, "/a/"), contents(cache, "/a/"))
      assert.equal("2", cache:get("/a/2", { revision = put.revision }).value)
    end)

    it("reads many pages", function()
      start()
      for i = 1, 300 do assert(client:put(("/a/%04d"):format(i), ("v"):rep(100))) end
      cache:close()
      cache = assert(client:cache("/a/"))
      cache.feed.page = 7
      assert.is_true(cache:wait_ready(PATIENCE))
      assert.same(contents(client, "/a/"), contents(cache, "/a/"))
      assert.equal(305, cache:status().keys)
    end)

    it("has only keys of its prefix", function()
      start()
      for _, call in ipairs {
        { "get", "/b/1" }, { "get", "/a" }, { "range", "/a", { prefix = true } },
        { "range", "/a/", { from_key = true } }, { "range", "/a/1", { range_end = "/b/" } },
        { "each", "", { prefix = true } }, { "watch", "/", { prefix = true } },
      } do
        assert.error_matches(function() cache[call[1]](cache, call[2], call[3]) end,
          "the cache has only keys that begin with '/a/'", 1, true)
      end
      assert.equal(2, cache:range("/a/1", { range_end = "/a/3" }).count)
      assert.equal(1, cache:range("/a/4", { prefix = true }).count)
    end)

    it("of the empty prefix has all keys", function()
      start()
      cache:close()
      cache = assert(client:cache(""))
      assert(cache:wait_ready(PATIENCE))
      assert.same({ 6, 6 }, { cache:range("", { prefix = true }).count, cache:range("\0", { from_key = true }).count })
    end)

    it("has watches of its own, which cost nothing upstream", function()
      start()
      local all = {}
      for i = 1, 50 do all[i] = assert(cache:watch("/a/", { prefix = true, initial = i % 2 == 0 })) end
      assert(client:put("/a/x", "1"))
      for i, watch in ipairs(all) do
        for _ = 1, i % 2 == 0 and 6 or 0 do assert.is_truthy(watch:next(PATIENCE).type) end
        assert.equal("/a/x", watch:next(PATIENCE).key)
      end
      assert.equal(1, (client.transport.watch_calls:count()))
    end)

    it("is not reported as fresh when it is stale", function()
      s = network.start(kind)
      local p = proxy.start(s.url)
      client = network.connect(p.url)
      cache = assert(client:cache("/a/"))
      assert(cache:wait_ready(PATIENCE))
      local near = network.connect(s.url)
      local put = assert(near:put("/a/1", "1"))
      assert(cache:wait_for(put.revision, PATIENCE))
      local confirmed_at = cache.feed:last_confirmed()
      assert.is_nil(cache:status().trouble)
      p:blackhole() -- the connection is open, and silent
      while not cache:status().trouble do keywatch.sleep(0.01) end
      assert.equal(confirmed_at, cache.feed:last_confirmed())
      p:refuse()
      p:cut()
      p:restore()
      for _ = 1, 3 do keywatch.sleep(0.05) end
      assert.equal(confirmed_at, cache.feed:last_confirmed())
      assert(cache:status().age >= 0.15)
      assert.same({ "following", "unavailable" }, { cache:status().phase, cache:status().trouble.code })
      assert.equal("1", cache:get("/a/1").value)
      p:accept_again()
      put = assert(near:put("/a/1", "2"))
      assert(cache:wait_for(put.revision, PATIENCE))
      assert(cache.feed:last_confirmed() > confirmed_at)
      assert.is_nil(cache:status().trouble)
    end)

    it("has a status with its phase and its error", function()
      s = network.start(kind)
      local p = proxy.start(s.url)
      p:refuse()
      client = network.connect(p.url)
      cache = assert(client:cache("/a/"))
      assert.is_false(cache:is_ready())
      local found, err = cache:get("/a/1")
      assert.same({ nil, "unavailable" }, { found, err.code })
      assert.matches("the cache has no content yet", err.message)
      assert.equal("unavailable", answer.code(cache:wait_ready(0.2)))
      assert.same({ "reading", 0 }, { cache:status().phase, cache:status().revision })
      p:accept_again()
      assert(cache:wait_ready(PATIENCE))
      local status = cache:status()
      assert.same({ "following", true }, { status.phase, status.age >= 0 })
      cache:close()
      found, err = cache:get("/a/1")
      assert.same({ nil, "closed", "closed" }, { found, err.code, cache:status().phase })
    end)

    if kind == "keywatch" then
      it("waits for the revision of the server", function()
        start()
        local last
        for i = 1, 20 do last = assert(client:put(i % 2 == 0 and "/a/x" or "/c", tostring(i))).revision end
        assert.equal(last, cache:sync(PATIENCE))
        assert.equal("20", cache:get("/a/x").value)
        assert(client:put("/a/x", "21"))
        assert.equal("21", cache:get("/a/x", { consistent = true }).value)
        last = assert(client:put("/a/x", "22")).revision
        assert.equal("22", cache:get("/a/x", { min_revision = last }).value)
        assert.equal("timeout", answer.code(cache:wait_for(last + 100, 0.05)))
      end)
    else
      it("sends reads to a server whose progress cannot be trusted", function()
        start()
        assert.equal("unsupported", answer.code(cache:sync(PATIENCE)))
        assert(client:put("/a/x", "21"))
        assert.equal("21", cache:get("/a/x", { consistent = true }).value)
      end)
    end
  end)
end)
