--- Caches, tables and object watches in a world: each fault that can happen to their servers, in virtual time.

local keywatch = require "keywatch"
local testing = require "keywatch.testing"

local answer = require "spec.support.answer"
local await = require "spec.support.await"
local logs = require "spec.support.logs"
local within = require "spec.support.within"

local seed = tonumber(os.getenv("KW_SEED")) or os.time()

--- The content of a table as a text: key=value, in the order of keys.
local function shown(content)
  local list = {}
  for key, value in pairs(content) do list[#list + 1] = key .. "=" .. tostring(value) end
  table.sort(list)
  return table.concat(list, " ")
end

--- The content of a store, a client or a cache below "k", as such a text.
local function content_of(x, opts)
  local own, content = { prefix = true }, {}
  for name, value in pairs(opts or {}) do own[name] = value end
  for _, kv in ipairs(assert(x:range("k", own)).kvs) do content[kv.key] = kv.value end
  return shown(content)
end

--- The next event of a watch or an object watch as a text, or the code of its error.
local function next_of(w, seconds)
  local event, err = w:next(seconds or 60)
  if not event then return err and err.code or "closed" end
  if event.type == "error" then return "error " .. event.error.code end
  return ("%s %s %s"):format(event.type, event.key or "", event.value or event.object or "")
end

--- Runs fn(world, client, server, cache, store) in a world, with a cache that is ready and has k1.
local function run(fn, opts)
  testing.run(function(world)
    local client, server = world:client(), world.server
    server.store:put("k1", "1")
    local cache = assert(client:cache("k", opts))
    assert(cache:wait_ready(10))
    fn(world, client, server, cache, server.store)
  end, { seed = seed })
end

local function in_world(fn, opts) return function() run(fn, opts) end end

--- A watch and an object watch of all that a cache has.
local function watches_of(cache)
  return assert(cache:watch("k", { prefix = true })), assert(cache:object_watch("k", { prefix = true }))
end

after_each(logs.finish)

describe("a cache in a world", function()
  it("follows its server in no time", in_world(function(_, client, _, cache)
    local w = assert(cache:watch("k", { prefix = true }))
    client:put("k2", "2")
    assert.same({ "put k2 2", "k1=1 k2=2" }, { next_of(w), content_of(cache, { consistent = true }) })
    client:delete("k1")
    assert.same({ 4, "k2=2", 0 }, { cache:sync(5), content_of(cache), keywatch.now() })
    keywatch.sleep(3000)
    local age = cache:status().age
    assert(age <= 20, age) -- the server is asked every ten seconds, and answers
  end))

  it("keeps 1 MiB of history, and more only for a watch of the past or by an option", function()
    for _, opts in ipairs { {}, { history_bytes = 2 ^ 24 } } do
      run(function(_, client, _, cache)
        local function kept() -- in 100 revisions of 10 KB, after 300 of them
          for i = 1, 300 do client:put("k" .. i % 7, ("v"):rep(10000)) end
          cache:sync(10)
          local status = cache:status()
          return (status.revision - status.compact_revision) / 100
        end
        local idle = kept()
        if opts.history_bytes then return assert(idle >= 3, idle) end
        assert(idle > 0.5 and idle < 1.5, idle)
        local w = assert(cache:watch("k", { prefix = true, start_revision = cache:status().revision - 10 }))
        local past = kept()
        assert(past >= 3, past)
        w:close()
      end, opts)
    end
  end)

  it("of a server that cannot be reached can be read, grows old, and says why", in_world(
    function(_, _, server, cache, store)
      server:isolate()
      store:put("k2", "2")
      keywatch.sleep(100)
      local status = cache:status()
      assert.same({ "k1=1", true, "unavailable" }, { content_of(cache), status.age >= 100, status.trouble.code })
      assert.equal("unavailable", answer.code(cache:get("k1", { consistent = true, timeout = 5 })))
      assert.equal("timeout", answer.code(cache:sync(5)))
      server:join()
      assert(cache:wait_for(3, 60))
      assert.same({ "k1=1 k2=2", nil }, { content_of(cache), cache:status().trouble })
    end))

  it("of a slow server lags by the latency, and a consistent read waits", in_world(
    function(_, _, server, cache, store)
      server:slow(0.5)
      store:put("k2", "2")
      assert.equal("k1=1", content_of(cache))
      local began = keywatch.now()
      assert.equal("k1=1 k2=2", content_of(cache, { consistent = true }))
      local taken = keywatch.now() - began
      assert(taken >= 1 and taken < 3, taken)
      server:slow(2, 4)
      store:put("k3", "3")
      assert.equal("timeout", answer.code(cache:wait_for(4, 1)))
      assert.equal(4, cache:wait_for(4, 60))
    end))

  it("that has missed compacted changes reports the difference to its watches", in_world(
    function(world, client, server, cache, store)
      client:put("k2", "2")
      assert(cache:sync(10))
      local w, objects = watches_of(cache)
      server:stop()
      store:put("k2", "passing")
      store:put("k2", "3")
      store:delete("k1")
      store:put("k4", "4")
      server:compact()
      server:start()
      assert.same({ "put k2 3", "delete k1 ", "put k4 4" }, { next_of(w), next_of(w), next_of(w) })
      assert.same({ "modified k2 3", "deleted k1 1", "added k4 4" },
        { next_of(objects), next_of(objects), next_of(objects) })
      assert.same({ "timeout", "k2=3 k4=4", 1 }, { next_of(w, 5), content_of(cache), world.counts.compact })
      assert.equal("compacted", answer.code(cache:get("k2", { revision = 4 })))
    end))

  it("of a restored server ends its watches, and has the older content", in_world(
    function(world, client, server, cache)
      logs.begin()
      client:put("k2", "2")
      client:put("k3", "3")
      local other = assert(client:cache("k2"))
      assert(cache:sync(10) and other:sync(10))
      local w, objects = watches_of(cache)
      assert(server:restore(3))
      assert.same({ "regressed", "error regressed" }, { next_of(w), next_of(objects) })
      assert.same({ "k1=1 k2=2", 3 }, { content_of(cache, { consistent = true }), cache:status().revision })
      assert(other:wait_for(3, 10) and other:sync(10))
      assert.equal(1, logs.count('the cache of "k" starts over, and its watches fail: the server has been set back'))
      local again = assert(cache:watch("k", { prefix = true, initial = true }))
      assert.same({ "put k1 1", "put k2 2", "synced  " }, { next_of(again), next_of(again), next_of(again) })
      assert.same({ 1, 1 }, { world.counts.restore, #logs.lines })
    end))

  it("has the content of one history, if the server is restored and catches up between two pages", within.world(
    function(world)
      local server, client = world.server, world:client()
      for i = 1, 1500 do assert(server.store:put(("k/%04d"):format(i), "old")) end
      local backup = server.store:status().revision
      assert(server.store:put("k/0001", "lost"))
      local rule = world:fault { "hang", method = "range", skip = 1, count = 1 } -- the second page
      local cache = assert(client:cache("k/"))
      while rule.hits == 0 do keywatch.sleep(0.01) end
      assert(server:restore(backup))
      for i = 1, 10 do assert(server.store:put("k/0002", "new" .. i)) end
      assert(cache:wait_ready(60))
      assert.same({ "old", "new10", 1500 },
        { cache:get("k/0001").value, cache:get("k/0002").value, cache:status().keys })
    end))

  it("of a replaced server ends its watches, and has the new content", in_world(
    function(world, client, server, cache)
      local w, objects = watches_of(cache)
      server:replace()
      server.store:put("k9", "9")
      assert.same({ "cluster_changed", "error cluster_changed" }, { next_of(w), next_of(objects) })
      assert.equal("k9=9", content_of(cache, { consistent = true }))
      client:put("k9", "10")
      assert(cache:sync(10))
      assert.same({ "k9=10", 1 }, { content_of(cache), world.counts.replace })
    end))

  it("has a history of an age in virtual time", in_world(function(_, client, _, cache)
    client:put("k1", "2")
    assert(cache:sync(10))
    assert.equal("1", cache:get("k1", { revision = 2 }).value)
    keywatch.sleep(1000)
    client:put("k1", "3")
    assert(cache:sync(10))
    assert.same({ "compacted", "3" }, { answer.code(cache:get("k1", { revision = 2 })), cache:get("k1").value })
  end, { history_age = 100 }))

  it("ends watches that are not read for so many seconds of virtual time, in each world", function()
    for _ = 1, 2 do
      run(function(_, client, _, cache)
        local w = assert(cache:watch("k", { prefix = true }))
        client:put("k2", "2")
        assert(cache:sync(10))
        keywatch.sleep(99)
        assert.is_nil(w:error())
        keywatch.sleep(50)
        assert.equal("full", w:error().code)
      end, { slow_after = 100 })
    end
    local store = keywatch.open() -- and outside of worlds, afterwards
    local w = assert(store:cache("k", { slow_after = 0.01 }):watch("k", { prefix = true }))
    store:put("k1", "")
    assert.equal("full", await(function() return w:error() end).code)
  end)

  it("ends with its client, and with its world, and its content stays readable", function()
    local cache
    run(function(_, client, _, own)
      client:put("k1", "v")
      local copy = own:table()
      assert(own:sync(10))
      assert.is_false(own:status().is_stale)
      client:close()
      assert.equal("v", own:get("k1").value)
      assert.same({ nil, "k1=v", { k1 = "v" } }, { own:get("k2"), content_of(own), copy })
      for kv in own:each("k", { prefix = true }) do assert.equal("k1", kv.key) end
      local status = own:status()
      assert.same({ "closed", true, 1, true }, { status.phase, status.is_stale, status.keys, status.revision >= 2 })
      for name, err in pairs {
        watch = select(2, own:watch("k1")), sync = select(2, own:sync(1)), wait_ready = select(2, own:wait_ready(1)),
        get = select(2, own:get("k1", { consistent = true })),
      } do assert.equal("closed", err.code, name) end
      own:close()
      assert.same({ false, "closed", false }, { own:is_ready(), select(2, own:get("k1")).code, own:status().is_stale })
    end)
    run(function(_, client, _, own)
      cache = own
      client:put("k1", "v")
      assert(own:sync(10))
    end)
    assert.same({ "v", true }, { cache:get("k1").value, cache:status().is_stale })
  end)
end)

describe("a burst that arrives at once, and is followed by silence,", function()
  it("reaches tables and waiting watches though one revision takes the replica many steps", in_world(
    function(_, _, _, cache, store)
      local n = 0
      for i = 1, 12000 do store:put("k" .. i, "") end
      assert(cache:sync(60))
      local watch = assert(cache:watch("k", { prefix = true }))
      local reader = keywatch.spawn(function()
        for _ in watch:events() do n = n + 1 end
      end)
      keywatch.sleep(1)
      local count = store:delete("k", { prefix = true }).deleted
      keywatch.sleep(60)
      assert.equal(count, n)
      reader:cancel()
      for i = 1, 12000 do store:put("k" .. i, "") end
      assert(cache:sync(60))
      local plain, decoded = cache:table(), cache:table { decode = function(value) return #value end }
      store:delete("k", { prefix = true })
      keywatch.sleep(60)
      assert.same({ nil, nil }, { next(plain), next(decoded) })
    end))
end)

describe("the table of a cache in a world", function()
  it("has the content of a restored or replaced server, and the changes, in order", in_world(
    function(_, client, server, cache)
      local changes = {}
      local content = cache:table { on_change = function(key, new) changes[#changes + 1] = key .. (new or "-") end }

      --- Checks the content, and the changes since the last call.
      local function check(expected, seen)
        assert(cache:sync(100))
        assert.same({ expected, seen }, { shown(content), table.concat(changes, " ") })
        changes = {}
      end

      for i = 2, 3 do client:put("k" .. i, tostring(i)) end
      check("k1=1 k2=2 k3=3", "k11 k22 k33")
      assert(server:restore(3))
      check("k1=1 k2=2", "k3-")
      server:replace()
      for i = 1, 9 do server.store:put("k" .. i, "x") end
      check("k1=x k2=x k3=x k4=x k5=x k6=x k7=x k8=x k9=x", "k1x k2x k3x k4x k5x k6x k7x k8x k9x")
      server:replace()
      check("", "k1- k2- k3- k4- k5- k6- k7- k8- k9-")
    end))
end)

describe("an object watch in a world", function()
  local codec = { decode = function(value)
    local name, size = value:match("^(%S+) (%S+)$")
    return name and { name = name, size = size } or nil
  end }
  local function transform(object) return object.name .. object.size end

  --- Opens an object watch of words with a size: "name size".
  local function open(x, opts)
    local own = { prefix = true, codec = codec, transform = transform }
    for name, value in pairs(opts or {}) do own[name] = value end
    return assert(x:object_watch("k", own))
  end

  it("of a client and of a cache continues after lost connections, and shares its watch", in_world(
    function(world, client, server, cache, store)
      for _, x in ipairs { client, cache } do
        store:put("k1", "a 1")
        assert(cache:sync(10))
        local small = open(x, { fields = "size=1", initial = true })
        local large = open(x, { fields = "size=2" })
        assert.same({ "added k1 a1", "synced  " }, { next_of(small), next_of(small) })
        server:stop()
        store:put("k1", "a 2")
        server:start()
        assert.same({ "deleted k1 a1", "added k1 a2" }, { next_of(small), next_of(large) })
        server:cut()
        store:put("k1", "b 2")
        assert.same({ "modified k1 b2", "timeout" }, { next_of(large), next_of(small, 5) })
        small:close()
        large:close()
      end
      assert.equal(2, world.counts.stop)
    end))

  it("of a client or a cache fails with the error of its watch, even if it lags", function()
    local faults = {
      compacted = function(server)
        server:stop()
        for i = 1, 3 do server.store:put("k1", "a " .. i) end
        server:compact()
        server:start()
      end,
      regressed = function(server) server:restore(2) end,
      cluster_changed = function(server) server:replace() end,
    }
    local text = ("x"):rep(60)
    for code, fault in pairs(faults) do
      run(function(_, client, server, cache)
        client:put("k1", "a 1")
        assert(cache:sync(10))
        local all, behind = {}, {}
        for _, x in ipairs { client, code ~= "compacted" and cache or nil } do -- a cache makes up for that
          for i = 1, 3 do all[#all + 1] = open(x, { fields = i > 1 and "size=1" or nil }) end
          behind[#behind + 1] = open(x, { fields = "size=1", max_bytes = 1000 })
        end
        for i = 1, 30 do client:put("k2", text .. i .. " 1") end
        for _, w in ipairs(all) do
          for i = 1, 30 do assert.equal((i == 1 and "added k2 " or "modified k2 ") .. text .. i .. 1, next_of(w)) end
        end
        for _, w in ipairs(behind) do assert.is_true(w.entry.is_behind) end
        fault(server)
        for _, w in ipairs(all) do assert.same({ "error " .. code, code }, { next_of(w), w:error().code }) end
        for _, w in ipairs(behind) do
          local found
          repeat found = next_of(w) until not found:find("^%l+ied k2") and not found:find("^added k2")
          assert.equal("error " .. code, found)
        end
      end)
    end
  end)

  it("has bookmarks and a lifetime in virtual time", in_world(function(_, client, server)
    client:put("k1", "a 1")
    server:slow(0.5)
    local w = open(client, { bookmarks = 60, lifetime = 150 })
    local seen = {}
    for event in w:events() do seen[#seen + 1] = event.type end
    assert.same({ "bookmark", "bookmark", "bookmark" }, seen)
    assert(keywatch.now() >= 150 and keywatch.now() < 160, keywatch.now())
  end))
end)

describe("a cache of many keys in a world", function()
  it("catches up after a long absence in turns, while the world's time stands still", within.world(function(world)
    local client, server = world:client(), world.server
    local function fill(value)
      for i = 1, 20000 do server.store:put("k" .. i, value) end
    end
    fill("1")
    local cache = assert(client:cache("k"))
    assert(cache:wait_ready(20))
    server:stop()
    fill("2")
    server:compact()
    server:start()
    assert.equal("2", cache:get("k77", { consistent = true, timeout = 20 }).value)
  end, { leftovers = "cancel" }))
end)
