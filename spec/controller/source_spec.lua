--- Sources of a controller: which requests become of which changes.

local controller = require "keywatch.controller"
local keywatch = require "keywatch"

local answer = require "spec.support.answer"
local logs = require "spec.support.logs"
local within = require "spec.support.within"

local cjson = require "cjson"

local running -- controllers, to be stopped at the end of the test

--- Returns a controller that notes its requests, started; and the list of the requests.
local function start(sources, opts)
  local list = {}
  local all = { name = "c", sources = sources, reconcile = function(request) list[#list + 1] = request end }
  for name, value in pairs(opts or {}) do all[name] = value end
  local one = controller.new(all)
  one:start()
  running[#running + 1] = one
  return one, list
end

--- A test in a world, at whose end controllers are stopped: fn(world).
local function in_world(fn)
  return within.world(function(world)
    running = {}
    fn(world)
    for _, one in ipairs(running) do one:stop(0) end
  end, { leftovers = "cancel" })
end

--- A store, and an informer of its keys below /a/, of which so many exist.
local function store_with(n)
  local store = keywatch.open()
  for i = 1, n do store:put("/a/" .. i, "x") end
  return store, store:informer("/a/")
end

--- Returns the content of a list, and empties it. Waits a second before by default.
local function take(list, seconds)
  keywatch.sleep(seconds or 1)
  local copy = {}
  for i = 1, #list do copy[i], list[i] = list[i], nil end
  return copy
end

describe("a source of a controller", function()
  before_each(logs.begin)
  after_each(logs.finish)

  describe("that is an informer", function()
    it("makes requests for existing objects, and for each that is added, updated or deleted", in_world(function(world)
      local client = world:client()
      client:put("/a/1", "x")
      client:put("/b/1", "x")
      local informer = client:informer("/a/")
      local _, list = start { informer }
      assert.same({ "/a/1" }, take(list))
      client:put("/a/2", "x")
      client:put("/b/2", "x")
      assert.same({ "/a/2" }, take(list))
      client:put("/a/1", "y")
      client:delete("/a/2")
      assert.same({ "/a/1", "/a/2" }, take(list))
    end))

    for _, how in ipairs { "is then deleted", "moves on" } do
      it("wakes every owner of a child that, behind a burst of changes, moves and " .. how, in_world(function(world)
        local store, gate = world.server.store, keywatch.channel()
        local informer = world:client():informer("/child/", { codec = "json" })
        local _, list = start { { informer, map = function(child, key)
          if key == "/child/0" then gate:receive() end -- the burst is queued behind it
          return child.owner
        end } }
        store:put("/child/1", cjson.encode { owner = "A" })
        assert.same({ "A" }, take(list))
        store:put("/child/0", cjson.encode { owner = "0" })
        keywatch.sleep(1)
        for i = 1, 20 do
          store:put("/child/burst", cjson.encode { owner = "burst", text = ("x"):rep(2 ^ 16), i = i })
        end
        store:put("/child/1", cjson.encode { owner = "B" })
        store:put("/child/2", cjson.encode { owner = "C" })
        store:delete("/child/2")
        if how == "moves on" then
          store:put("/child/1", cjson.encode { owner = "D" })
        else
          store:delete("/child/1")
        end
        keywatch.sleep(1)
        gate:close()
        local found = {}
        for _, request in ipairs(take(list)) do found[request] = true end
        for _, owner in ipairs { "A", "B", "C", how == "moves on" and "D" or nil } do
          assert.is_true(found[owner], owner)
        end
      end))
    end

    it("logs once a map that waits for a change that a full queue leaves out", in_world(function(world)
      local store = world.server.store
      local informer = world:client():informer("/a/")
      local one, list = start { { informer, map = function(_, key)
        keywatch.sleep(1)
        return key
      end } }
      store:put("/a/1", "x")
      keywatch.sleep(0.5)
      for i = 1, 20 do store:put("/a/2", ("x"):rep(2 ^ 17) .. i) end
      take(list, 60)
      assert.is_true(one:status().source_failures > 1)
      assert.equal(1, logs.count("sleep waits, but the coroutine that makes it is not a task"))
    end))

    it("calls reconcile only when all existing objects are in the informer", in_world(function(world)
      for i = 1, 100 do world.server.store:put("/a/" .. i, "x") end
      world:fault { "delay", method = "get", seconds = 3 }
      local informer = world:client():informer("/a/")
      local counts = {}
      local one = start({ informer }, { reconcile = function() counts[#counts + 1] = informer:count() end })
      assert.is_false(one:has_synced())
      keywatch.sleep(60)
      assert.same({ true, 100 }, { one:has_synced(), #counts })
      for _, n in ipairs(counts) do assert.equal(100, n) end
    end))

    it("lets changes overtake existing objects", in_world(function()
      local store, informer = store_with(5)
      local list = {}
      start({ informer }, { reconcile = function(request)
        list[#list + 1] = request
        keywatch.sleep(1)
      end })
      keywatch.sleep(0.5)
      store:put("/a/5", "y")
      store:put("/a/6", "new")
      assert.same({ "/a/1", "/a/5", "/a/6", "/a/2", "/a/3", "/a/4" }, take(list, 10))
    end))

    it("repeats all objects with `resync`, behind real changes", in_world(function()
      local _, informer = store_with(3)
      local _, list = start { { informer, resync = 60 } }
      assert.equal(3, #take(list))
      for _ = 1, 2 do assert.same({ "/a/1", "/a/2", "/a/3" }, take(list, 60)) end
    end))

    it("ends the controller with an error if the informer is closed", in_world(function()
      local informer = keywatch.open():informer("/a/")
      local one, list = start { { every = 5, request = "tick" }, informer }
      keywatch.sleep(7)
      informer:close()
      local ok, err = one:join()
      assert.same({ nil, "closed" }, { ok, err.code })
      assert.matches("source 2, an informer, has ended: the informer is closed", err.message)
      assert.is_true(err == one:status().failure)
      assert.same({ "idle", 2, 1 }, { one:status().state, #list, logs.count("the controller 'c' ends: ") })
      assert.equal(2, #take(list, 60)) -- and no tick any more
      one:start()
      assert.matches("source 2, an informer, cannot be started", select(2, one:join()).message)
    end))

    for _, ended in ipairs { "informer", "client", "object watch", "channel" } do
      it(("drops what is queued, and acts on nothing that it cannot know, once its %s has ended"):format(ended),
        in_world(function(world)
          local client, channel = world:client(), keywatch.channel(1)
          for i = 1, 6 do world.server.store:put("/lamp/" .. i, "on") end
          local lamps, off = client:informer("/lamp/"), {}
          local watch = client:object_watch("/lamp/", { prefix = true })
          local one = controller.new {
            name = "c", sources = { lamps, watch, channel },
            reconcile = function(key)
              keywatch.sleep(1)
              if not lamps:get(key) then off[#off + 1] = key end
            end,
          }
          one:start()
          keywatch.sleep(1.5)
          local objects = { informer = lamps, client = client, ["object watch"] = watch, channel = channel }
          objects[ended]:close()
          assert.equal("closed", select(2, one:join()).code)
          assert.same({ {}, 1 }, { off, logs.count("requests are dropped") })
          assert.is_true(one:status().calls <= 3 and keywatch.now() < 3)
        end))
    end

    it("that has not synced raises when it is read: nothing looks gone", in_world(function(world)
      local lamps, client = world:client():informer("/lamp/"), world:client()
      world:fault { "hang", method = "range", client = client }
      local unknown = client:informer("/lamp/", { indexes = { i = function(value) return value end } })
      for _, name in ipairs { "get", "count", "each", "bad_values", "by_index", "index_count", "index_values" } do
        local ok, err = pcall(unknown[name], unknown, name:find("index") and "i" or "/lamp/1", "on")
        assert.same({ false, "unavailable" }, { ok, err.code }, name)
      end
      world.server.store:put("/lamp/1", "on")
      local one = start({ lamps }, { reconcile = function(key) return unknown:get(key) == nil end })
      keywatch.sleep(1)
      assert.same({ 0, true }, { one:status().done, one:status().raised > 0 })
      one:stop()
      unknown:close()
      assert.equal("closed", select(2, pcall(unknown.get, unknown, "/lamp/1")).code)
    end))

    it("ends the controller with an error if the informer has not synced in time", in_world(function(world)
      world.server:stop()
      local informer = world:client():informer("/a/")
      local one = start({ keywatch.channel(), informer }, { sync_timeout = 20 })
      local ok, err = one:join()
      assert.same({ nil, "timeout", 20 }, { ok, err.code, keywatch.now() })
      assert.matches("source 2, an informer, has not synced: ", err.message)
      world.server:start()
      one:start()
      keywatch.sleep(60)
      assert.is_true(one:has_synced())
    end))

    it("waits two minutes for the sync by default", in_world(function(world)
      world.server:stop()
      local informer = world:client():informer("/a/")
      local one = start { informer }
      assert.same({ "timeout", 120 }, { answer.code(one:join()), keywatch.now() })
    end))

    it("can be used by several controllers", in_world(function()
      local store, informer = store_with(0)
      local one, ones = start { informer }
      local _, twos = start { informer, { informer, map = function() return "all" end } }
      store:put("/a/1", "x")
      assert.same({ "/a/1" }, take(ones))
      assert.equal(2, #take(twos, 0))
      one:stop()
      store:put("/a/1", "y")
      assert.same({}, take(ones))
      assert.equal(2, #take(twos, 0))
    end))
  end)

  describe("that is an object watch", function()
    it("makes requests for its events", in_world(function(world)
      local client = world:client()
      local watch = client:object_watch("/a/", { prefix = true, bookmarks = true })
      local one, list = start { watch }
      for _, key in ipairs { "/a/1", "/b/1", "/a/2" } do client:put(key, "x") end
      assert.same({ "/a/1", "/a/2" }, take(list))
      client:delete("/a/1")
      assert.same({ "/a/1" }, take(list))
      one:stop()
      client:put("/a/3", "x")
      one:start()
      assert.same({ "/a/3" }, take(list)) -- it has waited in the watch
    end))

    it("waits for all objects that exist, if the watch begins with them, and lets changes overtake them", in_world(
      function(world)
        local client, store = world:client(), world.server.store
        for i = 1, 5 do store:put("/a/" .. i, "x") end
        world:fault { "delay", method = "watch", seconds = 5, count = 1 }
        local watch = client:object_watch("/a/", { prefix = true, initial = true })
        local list = {}
        local one = start({ watch }, { reconcile = function(request)
          list[#list + 1] = request
          keywatch.sleep(1)
        end })
        while not one:has_synced() do keywatch.sleep(0.1) end
        store:put("/a/5", "y")
        store:put("/a/6", "new")
        assert.same({ "/a/1", "/a/5", "/a/6", "/a/2", "/a/3", "/a/4" }, take(list, 10))
        one:stop()
        one:start()
        keywatch.sleep(1)
        assert.is_true(one:has_synced())
      end))

    it("ends the controller if the existing objects do not arrive in time #slow", in_world(function(world)
      local client = world:client()
      for i = 1, 3000 do world.server.store:put("/a/" .. i, ("x"):rep(100)) end
      world:fault { "hang", method = "range", skip = 1 } -- the second page
      local watch = client:object_watch("/a/", { prefix = true, initial = true })
      local one = start({ watch }, { sync_timeout = 9 })
      local _, err = one:join()
      assert.equal("timeout", err.code)
      assert.matches("source 1, an object watch, has not synced", err.message)
    end))

    it("ends the controller with an error if the watch fails", in_world(function(world)
      local client = world:client()
      local watch = client:object_watch("/a/", { prefix = true, codec = "json" })
      local one = start { watch }
      client:put("/a/1", "this is no JSON")
      local _, err = one:join(60)
      assert.equal(watch:error().code, err.code)
      assert.matches("source 1, an object watch, has ended: ", err.message)
    end))
  end)

  describe("that is a channel", function()
    it("makes requests for its values", in_world(function()
      local channel = keywatch.channel()
      local one, list = start { { channel, where = function(event) return event.object ~= "no" end } }
      for _, value in ipairs { "a", "no", "b", "a" } do channel:send(value) end
      assert.same({ "a", "b", "a" }, take(list))
      one:stop()
      one, list = start { { channel, map = function(value, key, event)
        assert.is_nil(key)
        assert.equal(value, event.object)
        return { value, value .. value }
      end } }
      channel:send("c")
      assert.same({ "c", "cc" }, take(list))
      assert.equal(0, one:status().source_failures)
    end))
  end)

  it("that is a timer makes its request at once, and every so many seconds", in_world(function()
    local times = {}
    local one = start({ { every = 10, request = { "a table" } } }, { reconcile = function(request)
      times[#times + 1] = keywatch.now()
      assert.same({ "a table" }, request)
    end })
    keywatch.sleep(35)
    one:stop()
    assert.same({ 0, 10, 20, 30 }, times)
    keywatch.sleep(35)
    assert.equal(4, #times)
  end))

  describe("with `map`", function()
    --- What becomes of one object by a map, and the status.
    local function mapped(map)
      local _, informer = store_with(1)
      local one, list = start { { informer, map = map } }
      local found, status = take(list), one:status()
      one:stop()
      return found, status
    end

    it("makes one request, several, or none", in_world(function()
      assert.same({ "/a/1x" }, mapped(function(object, key) return key .. object end))
      assert.same({ "b", "a" }, mapped(function() return { "b", "a", "b" } end))
      for _, none in ipairs { {}, { false }, { {} } } do
        local list, status = mapped(function() return none[1] end)
        assert.same({ {}, 0 }, { list, status.source_failures })
      end
      assert.same({}, logs.lines)
    end))

    it("treats a table with a metatable as one request", in_world(function()
      local request = setmetatable({ "a", "b" }, {})
      assert.equal(request, mapped(function() return request end)[1])
    end))

    it("logs malformed lists, and uses their valid items", in_world(function()
      for _, case in ipairs {
        { { request = "/b" }, {}, 1 }, { { "a", "b", [0.5] = "c", x = "d" }, { "a", "b" }, 2 },
        { { "a", 0 / 0, false, "b" }, { "a", "b" }, 1 }, { { "a", [2 ^ 53] = "b" }, { "a" }, 1 },
      } do
        local list, status = mapped(function() return case[1] end)
        assert.same({ case[2], case[3] }, { list, status.source_failures })
      end
      assert.equal(1, logs.count("it has returned a list of requests with the field 'request'"))
    end))

    it("logs and counts an error, and continues", in_world(function()
      local store, informer = store_with(0)
      local one, list = start { { informer, map = function(object, key)
        if object == "bad" then error("it is broken") end
        return key
      end } }
      for i = 1, 4 do store:put("/a/" .. i, i % 2 == 0 and "bad" or "good") end
      assert.same({ "/a/1", "/a/3" }, take(list))
      assert.equal(2, one:status().source_failures)
      assert.equal(2, logs.count("'map' of source 1, an informer, of the controller 'c' has failed: "))
      assert.matches("it is broken.*stack traceback", logs.lines[1])
    end))

    it("maps an update by the new object and by the old one", in_world(function()
      local store = keywatch.open()
      store:put("/a/1", "one")
      for _, kind in ipairs { "informer", "object_watch" } do
        local object = store[kind](store, "/a/", kind == "object_watch" and { prefix = true, old = true } or nil)
        local one, list = start { { object, map = function(value) return value end } }
        take(list)
        store:put("/a/1", "two")
        local found = take(list)
        table.sort(found)
        assert.same({ "one", "two" }, found)
        store:put("/a/1", "one")
        assert.equal(2, #take(list))
        one:stop()
        object:close()
      end
    end))

    it("maps an object that was deleted by its last state", in_world(function()
      local store = keywatch.open()
      store:put("/a/1", "last")
      local informer = store:informer("/a/")
      local _, list = start { { informer, map = function(value, _, event)
        return event.type == "deleted" and value or nil
      end } }
      keywatch.sleep(1)
      store:delete("/a/1")
      assert.same({ "last" }, take(list))
    end))

    it("may wait, and loses no change to the end of a run", function()
      for _, kind in ipairs { "informer", "object_watch", "channel" } do
        local store, one, object, is_first, list = keywatch.open(), nil, nil, true, {}
        running = {}
        keywatch.run(function()
          object = kind == "channel" and keywatch.channel(5)
            or store[kind](store, "/a/", kind == "object_watch" and { prefix = true } or nil)
          one, list = start { { object, map = function(value)
            if is_first then
              is_first = false
              keywatch.sleep(100)
            end
            return value
          end } }
          if kind == "channel" then object:send("x") else store:put("/a/1", "x") end
          while is_first do keywatch.sleep(0) end
        end)
        keywatch.run(function()
          while #list == 0 do keywatch.sleep(0) end
          one:stop()
          object:close()
        end)
        assert.same({ { "x" }, 0 }, { list, one:status().source_failures })
      end
    end)

    it("may stop the controller", in_world(function()
      local store = keywatch.open()
      local one, result
      one = start { { store:informer("/a/"), map = function() result = one:stop() end } }
      keywatch.sleep(1)
      store:put("/a/1", "x")
      assert.is_true(one:join())
      keywatch.sleep(1)
      assert.is_true(result)
    end))

    it("may stop the controller, which then leaves a channel alone until it is started again", in_world(function()
      local channel, one = keywatch.channel(10), nil
      local list
      one, list = start { { channel, map = function(value)
        if value == "stop" then one:stop() end
        return value
      end } }
      channel:send("a")
      keywatch.sleep(1)
      channel:send("stop")
      keywatch.sleep(1)
      for _, value in ipairs { "b", "c", "d" } do channel:send(value) end
      keywatch.sleep(1)
      assert.same({ "a" }, take(list))
      one:start()
      assert.same({ "b", "c", "d" }, take(list))
    end))
  end)

  describe("with `where`", function()
    it("passes only the changes for which it returns true", in_world(function()
      local store, informer = store_with(0)
      local _, list = start { { informer, where = function(event)
        return event.type ~= "modified" or event.old ~= event.object
      end } }
      for _, case in ipairs { { "x", 1 }, { "x", 0 }, { "y", 1 }, { nil, 1 } } do
        if case[1] then store:put("/a/1", case[1]) else store:delete("/a/1") end
        assert.same({ case[2] == 1 and "/a/1" or nil }, take(list))
      end
    end))

    it("lets a change pass if it raises, and logs and counts that", in_world(function()
      local _, informer = store_with(1)
      local one, list = start { { informer, where = function() error("it is broken") end,
        map = function(object) return object end } }
      assert.same({ "x" }, take(list))
      assert.same({ 1, 1 }, { one:status().source_failures,
        logs.count("'where' of source 1, an informer, of the controller 'c' has failed: ") })
    end))
  end)

  it("with `owner` makes requests for the owners of objects, also for the previous one", in_world(function()
    local store = keywatch.open()
    local function put(key, owner) store:put(key, cjson.encode { metadata = { owner = owner } }) end
    put("/child/1", "/parent/1")
    store:put("/child/orphan", "{}")
    local children = store:informer("/child/", { codec = "json" })
    local _, list = start { { children, owner = true } }
    assert.same({ "/parent/1" }, take(list))
    put("/child/1", "/parent/2")
    local found = take(list)
    table.sort(found)
    assert.same({ "/parent/1", "/parent/2" }, found)
    store:delete("/child/1")
    assert.same({ "/parent/2" }, take(list))
  end))
end)
