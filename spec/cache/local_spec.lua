--- The cache of a store in this process is a view of the store below a prefix. This file also has the specs that are
-- the same for all caches: namespaces, tables, slow watches.

local core = require "keywatch.core"
local driver = require "keywatch.task.driver"
local keywatch = require "keywatch"
local log = require "keywatch.support.log"
local watches = require "keywatch.watch.watch"

local answer = require "spec.support.answer"
local logs = require "spec.support.logs"
local within = require "spec.support.within"

local function keys_of(t)
  local list = {}
  for key in pairs(t) do list[#list + 1] = key end
  table.sort(list)
  return list
end

--- A turn of the loop.
local function turn() keywatch.sleep(0.001) end

local store, cache

before_each(function()
  store = keywatch.open()
  cache = assert(store:cache("/a/"))
end)

after_each(function()
  cache:close()
  store:close()
  log.set_level("info")
end)

describe("the cache of a store", function()
  before_each(function()
    for i = 1, 3 do store:put("/a/" .. i, tostring(i)) end
    store:put("/b/1", "b")
  end)

  it("is the store below a prefix", function()
    assert.same({ true, true, "2" }, { cache:is_ready(), cache:wait_ready(), cache:get("/a/2").value })
    local put = store:put("/a/2", "new")
    assert.same({ "new", "2" }, { cache:get("/a/2").value, cache:get("/a/2", { revision = put.revision - 1 }).value })
    assert.equal(3, cache:range("/a/", { prefix = true }).count)
    local n = 0
    for kv in cache:each("/a/", { prefix = true, page = 1 }) do n = n + (kv.key:find("^/a/") and 1 or 0) end
    assert.equal(3, n)
    assert.equal(put.revision, cache:sync())
    local status = cache:status()
    assert.same({ put.revision, 3, "following", 0 }, { status.revision, status.keys, status.phase, status.age })
    assert.error_matches(function() cache:get("/b/1") end, "the cache has only keys that begin with '/a/'", 1, true)
    assert.equal("new", cache:get("/a/2", { consistent = true }).value)
    assert.equal("keywatch.cache<prefix='/a/' revision=6 following>", tostring(cache))
  end)

  it("has the watches of the store", function()
    local watch = assert(cache:watch("/a/", { prefix = true, initial = true }))
    for _ = 1, 3 do assert.is_true(watch:next(0).initial) end
    assert.equal("synced", watch:next(0).type)
    store:put("/b/2", "x")
    store:put("/a/4", "4")
    assert.equal("/a/4", watch:next(0).key)
    cache:close()
    store:put("/a/5", "5")
    local event, err = watch:next(0)
    assert.same({ nil, "closed", "keywatch: the cache is closed" }, { event, err.code, err.message })
  end)

  it("waits for a revision of the store, unless the store or the cache is closed", within.task(function()
    local waits = keywatch.spawn(function() return cache:wait_for(7, 30) end)
    local reads = keywatch.spawn(function() return cache:get("/a/9", { min_revision = 7 }).value end)
    turn()
    store:put("/c", "x")
    turn()
    store:put("/a/9", "9")
    assert.same({ 7, "9" }, { select(2, waits:join()), (select(2, reads:join())) })
    assert.equal("timeout", answer.code(cache:wait_for(100, 0.01)))
    assert.equal("deadline_exceeded", answer.code(cache:get("/a/1", { min_revision = 100, timeout = 0.01 })))
    for _, what in ipairs { "cache", "store" } do
      cache = assert(store:cache("/a/"))
      local ended = keywatch.spawn(cache.wait_for, cache, 100)
      turn()
      local closing = what == "cache" and cache or store
      closing:close()
      assert.equal("closed", answer.code(select(2, ended:join())))
    end
  end))

  it("ends with the store", function()
    local watch = assert(cache:watch("/a/", { prefix = true }))
    store:close()
    for name, argument in pairs {
      get = "/a/1", range = "/a/1", watch = "/a/1", wait_for = 1, sync = 1, wait_ready = 1, table = {},
    } do assert.equal("closed", answer.code(cache[name](cache, argument)), name) end
    assert.equal("closed", answer.code(watch:next(0)))
    assert.equal("closed", select(2, pcall(cache.each, cache, "/a/1")).code)
    assert.same({ false, "closed" }, { cache:is_ready(), cache:status().phase })
    assert.matches("closed", tostring(cache))
    assert.error_matches(function() store:cache("/a/") end, "the store is closed")
  end)

  it("of a namespace has relative keys everywhere", function()
    local inner = assert(store:namespace("/a"):cache("/"))
    assert.same({ "/1", "/1 /2 /3" }, { inner:get("/1").key, answer.keys(inner:range("/", { prefix = true })) })
    assert.equal("/2 /3", answer.keys(inner:range("/2", { range_end = "/4" })))
    assert.equal("/1 /2 /3", answer.keys_of_each(inner:each("/", { prefix = true, page = 2 })))
    local watch = assert(inner:watch("/", { prefix = true, prev_kv = true }))
    local t = inner:table()
    assert.same({ "/1", "/2", "/3" }, keys_of(t))
    assert.same({ "1", "2", "3" }, keys_of(inner:table { relative = true }))
    store:put("/a/1", "x")
    local event = watch:next(0)
    assert.same({ "/1", "/1" }, { event.key, event.prev.key })
    assert.equal(inner:sync(), event.mod_revision)
    assert.equal("x", t["/1"])
    assert.error_matches(function() inner:get("1") end, "the cache has only keys that begin with '/'", 1, true)
    assert.equal(3, inner:status().keys)
    local all = assert(store:namespace("/a"):cache(""))
    store:put("/a", "the prefix itself is not in the namespace")
    assert.same({ 3, 3 }, { all:range("", { prefix = true }).count, all:status().keys })
    assert.same({ "/1", "/2", "/3" }, keys_of(all:table()))
    local space = store:namespace("/a")
    space:close()
    assert.equal("closed", answer.code(space:cache("/")))
  end)
end)

describe("a table of a cache", function()
  before_each(function() store:put("/a/1", "1") end)

  it("is equal to the content, and reports each change", function()
    local seen = {}
    local t = cache:table {
      relative = true,
      decode = tonumber,
      on_change = function(key, new, old) seen[#seen + 1] = ("%s %s %s"):format(key, new, old) end,
    }
    assert.same({ ["1"] = 1 }, t)
    keywatch.run(function()
      store:put("/a/2", "2")
      store:put("/a/1", "10")
      store:put("/a/1", "10")
      store:delete("/a/2")
      assert.same({ ["1"] = 1 }, t) -- it changes in the turns of the loop
      turn()
    end)
    assert.same({ ["1"] = 10 }, t)
    assert.same({ "1 1 nil", "2 2 nil", "1 10 1", "2 nil 2" }, seen)
  end)

  it("keeps the previous value if one cannot be decoded", function()
    local bad = {}
    local t = cache:table {
      decode = function(value) return value ~= "bad" and tonumber(value) or error("no number") end,
      on_error = function(key, err) bad[#bad + 1] = { key, err.code } end,
    }
    store:put("/a/1", "bad")
    store:put("/a/2", "bad")
    store:put("/a/3", "3")
    cache:sync()
    assert.same({ ["/a/1"] = 1, ["/a/3"] = 3 }, t)
    assert.same({ { "/a/1", "malformed" }, { "/a/2", "malformed" } }, bad)
  end)

  it("continues if a hook raises, waits, yields, opens tables or closes tables", function()
    log.set_level("fatal")
    local other, said
    local t = cache:table {
      on_change = function(key, new)
        if new == "raise" then error("oh") end
        if new == "yield" then coroutine.yield() end
        if new == "open" then other = cache:table() end
        if new == "wait" then said = select(2, pcall(keywatch.sleep, 0.01)) end
        if new == "close" then cache:close() end
        return key
      end,
    }
    keywatch.run(function()
      for _, value in ipairs { "raise", "yield", "wait", "open" } do
        store:put("/a/1", value)
        cache:sync()
        assert.equal(value, t["/a/1"])
      end
    end)
    assert.matches("sleep waits, but the coroutine that makes it is not a task: start one with keywatch.spawn", said)
    assert.same({ ["/a/1"] = "open" }, other)
    store:put("/a/1", "close")
    cache:sync()
    assert.equal("close", t["/a/1"])
    store:put("/a/1", "later")
    keywatch.run(turn)
    assert.same({ ["/a/1"] = "close" }, t)
  end)

  local NO_MEMORY = core.new_error("out_of_memory")

  --- Has the first two watches of the cache, which its tables open, fail as `how` says. Returns a function that returns
  -- how many were opened.
  local function fail_watches(how)
    local asked = 0
    function cache.watch(...)
      asked = asked + 1
      if asked <= 2 and how == "when opened" then return nil, NO_MEMORY end
      local watch = assert(getmetatable(cache).__index.watch(...))
      if asked <= 2 then watches.abort(watch, NO_MEMORY) end
      return watch
    end
    return function() return asked end
  end

  for _, how in ipairs { "when opened", "when read" } do
    it("tries again if its content cannot be read: " .. how, function()
      logs.begin()
      local asked = fail_watches(how)
      local t = cache:table()
      assert.same({}, keys_of(t))
      keywatch.run(function()
        while asked() < 3 do turn() end
      end)
      logs.finish()
      assert.same({ "/a/1" }, keys_of(t))
      store:put("/a/4", "4")
      keywatch.run(turn)
      assert.same({ "4", 1 }, { t["/a/4"], #logs.lines })
      assert.matches('a table of the cache of "/a/" cannot be filled, and is tried again: .*memory', logs.lines[1])
    end)
  end

  it("does not try again if its cache is closed", function()
    log.set_level("error")
    local d, attached = driver.get(), {}
    local attach, detach = d.attach, d.detach
    function d.attach(source)
      attached[source] = true
      attach(source)
    end
    function d.detach(source)
      attached[source] = nil
      detach(source)
    end
    fail_watches "when opened"
    cache:table()
    local has_trial = next(attached) ~= nil
    cache:close()
    d.attach, d.detach = attach, detach
    assert.same({ true, nil }, { has_trial, (next(attached)) })
  end)

  it("references its cache, and is not referenced by it", function()
    local t = store:cache("/a/"):table()
    collectgarbage()
    store:put("/a/1", "2")
    keywatch.run(turn)
    assert.equal("2", t["/a/1"])
    local gone = setmetatable({ t, getmetatable(t).cache }, { __mode = "v" })
    t = nil -- luacheck: ignore
    for _ = 1, 4 do
      collectgarbage()
      keywatch.run(turn) -- ends the watch of a collected table
    end
    assert.same({}, gone)
  end)
end)

describe("a slow watch of a cache", function()
  it("lags and catches up, or fails if the history is compacted", function()
    local watch = assert(cache:watch("/a/", { prefix = true, max_bytes = 1000 }))
    local lost = assert(cache:watch("/a/", { prefix = true, max_bytes = 1000 }))
    for i = 1, 100 do store:put("/a/x", ("v"):rep(100) .. i) end
    for i = 1, 100 do assert.equal(("v"):rep(100) .. i, watch:next(0).value) end
    store:compact(store:status().revision)
    local event, err
    repeat event, err = lost:next(0) until not event
    assert.equal("compacted", err.code)
  end)

  it("fails after slow_after, with its queue, and no other watch does", within.task(function()
    local cut = assert(cache:watch("/a/", { prefix = true, slow_after = 0.05 }))
    local idle = assert(cache:watch("/a/none", { slow_after = 0.05 }))
    local read = assert(cache:watch("/a/", { prefix = true, slow_after = 0.05 }))
    local waits = assert(cache:watch("/a/", { prefix = true }))
    keywatch.spawn(function()
      for _ in read:events() do end
    end)
    store:put("/a/x", "1")
    while not cut:error() do keywatch.sleep(0.01) end
    local event, err = cut:next(0)
    assert.same({ nil, "full" }, { event, err.code })
    assert.matches("was not read for 0.05 seconds", err.message)
    assert.same({ nil, nil, "1" }, { idle:error(), read:error(), waits:next(0).value })
  end))

  it("uses the option of its cache, unless the watch has its own", within.task(function()
    local strict = assert(store:cache("/a/", { slow_after = 0.02 }))
    local cut, spared = assert(strict:watch("/a/x")), assert(strict:watch("/a/x", { slow_after = false }))
    store:put("/a/x", "1")
    while not cut:error() do keywatch.sleep(0.01) end
    assert.equal("1", spared:next(0).value)
  end))
end)
