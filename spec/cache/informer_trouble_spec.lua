--- Regressions of informers.

local driver = require "keywatch.task.driver"
local errors = require "keywatch.support.errors"
local keywatch = require "keywatch"
local shared_informers = require "keywatch.cache.shared_informer"
local testing = require "keywatch.testing"
local filters = require "keywatch.cache.filter"

local answer = require "spec.support.answer"
local informing = require "spec.cache.informing"
local program = require "spec.support.program"
local within = require "spec.support.within"

--- Returns an object whose watches hand out the events of one script each; { fail = code } ends a watch.
local function scripted(scripts)
  local x, n = {}, 0
  function x.watch()
    n = n + 1
    local script, at = scripts[n], 0
    local watch = { revision = 0, at = 0, n = 0, store = x, initial_revision = 1, close = function() end }
    function watch.next()
      at = at + 1
      local event = script[at]
      if not event then driver.get().sleep(1e6) end
      if event.fail then return nil, errors.new(event.fail) end
      if not event.initial then watch.revision = event.mod_revision or event.revision end
      return event
    end
    return watch
  end
  return x
end

describe("an informer", function()
  it("notices another history, though the previous watch has failed for another reason", within.world(function(world)
    local client, server = world:client(), world.server
    client:put("a", "1")
    local informer = client:informer("")
    informer:wait_synced()
    server:stop()
    for i = 1, 5 do server.store:put("z" .. i, "") end
    server:compact()
    local rule = world:fault { "refuse", error = "permission_denied", method = "get" }
    server:start()
    keywatch.sleep(20)
    server:replace()
    server.store:put("a", "other") -- has the revision that the informer knows
    rule:stop()
    keywatch.sleep(120)
    assert.equal("other", (informer:get("a")))
  end))

  it("has a handler that can be joined though its call was abandoned", function()
    local world = testing.world()
    local handler, other
    world:run(function()
      local function never_return()
        while true do pcall(keywatch.sleep, 1000) end
      end
      local informer = world:client():informer("")
      world.server.store:put("a", "1")
      handler, other = informer:add_handler { add = never_return }, informer:add_handler { add = never_return }
      assert.is_true(handler:wait_synced(1) == nil and other:wait_synced(1) == nil)
      handler:close()
      assert.equal("timeout", answer.code(handler:join(1)))
    end)
    other:close()
    assert.same({ true, true }, { handler:join(1), other:join(1) })
    world:close()
  end)

  it("keeps what has not changed when its first load starts over", within.world(function()
    local first, second, n = {}, {}, 2000
    local function kv(i, value, revision)
      return {
        type = "put", initial = true, key = "k" .. i, value = value, mod_revision = revision, create_revision = i,
      }
    end
    for i = 1, n do
      first[i] = kv(i, "in", i)
      second[i] = i % 10 == 0 and kv(i, "in", i) or kv(i, "out", n + i)
    end
    first[n + 1], second[n + 1] = { fail = "compacted" }, { type = "synced", revision = 3 * n }
    local filter = filters.of({ where = function(object) return object == "in" end },
      { decoded = 0, failed_tests = 0 }, "informer")
    local shared = shared_informers.new(scripted { first, second }, "", filter, nil, function() end)
    shared:join()
    keywatch.sleep(10)
    assert.is_true(shared.has_all)
    assert.equal(n / 10, shared.indexer.count)
    shared:leave()
  end, { leftovers = "cancel" }))

  it("has an object in its indexes though the end of a run has cancelled the function", function()
    local store, informer = keywatch.open(), nil
    store:put("a", "1")
    local is_first = true
    local function value(object)
      if is_first then
        is_first = false
        keywatch.sleep(60)
      end
      return object
    end
    keywatch.run(function()
      informer = store:informer("", { indexes = { value = value } })
      while is_first do keywatch.sleep(0) end
    end)
    assert.is_true(informer:wait_synced(5))
    assert.equal(1, informer:index_count("value", "1"))
    informer:close()
  end)

  it("has an index with all objects, or none, when the caller of add_index is cancelled in the function", function()
    local store = keywatch.open()
    for i = 1, 3 do store:put("k" .. i, "v") end
    keywatch.run(function()
      local informer = store:informer("")
      informer:wait_synced(5)
      local calls = 0
      local task = keywatch.spawn(function()
        informer:add_index("value", function(object)
          calls = calls + 1
          if calls == 2 then keywatch.sleep(60) end
          return object
        end)
      end)
      while calls < 2 do keywatch.sleep(0) end
      task:cancel()
      if task:join() then assert.equal(3, informer:index_count("value", "v")) end
      informer:close()
    end)
  end)

  it("reports no wrong change though the end of a run has cancelled `where`", function()
    local store, informer, log, is_slow = keywatch.open(), nil, {}, false
    local function where()
      if is_slow then
        is_slow = false
        keywatch.sleep(60)
      end
      return true
    end
    store:put("a", "1")
    keywatch.run(function()
      informer = store:informer("", { where = where })
      informer:add_handler { delete = function(key) log[#log + 1] = key end }:wait_synced()
      is_slow = true
      store:put("a", "2")
      while is_slow do keywatch.sleep(0) end
    end)
    while informer:get("a") ~= "2" do keywatch.sleep(0) end
    keywatch.sleep(0)
    assert.same({}, log)
    informer:close()
  end)

  it("works in a child process that was forked before the loop has turned", function()
    assert.same({ 0, "true\n" }, { program.run_forking [[
      local informer = keywatch.open():informer("")
      child(function() print(informer:wait_synced(1)) end)
    ]] })
  end)

  it("reuses slots while a handler with resync is busy", within.world(function()
    local store = keywatch.open()
    local informer = store:informer("")
    local function work() keywatch.sleep(0.01) end
    local handler = informer:add_handler { resync = 5, add = work, update = work, at_bound = "coalesce" }
    for i = 1, 10 do store:put("k" .. i, "") end
    handler:wait_synced()
    keywatch.sleep(4.95) -- the resync begins when the handler is idle for a moment
    for i = 1, 10000 do
      store:put("t" .. i, "")
      store:put("k1", "")
      store:put("k2", "")
      store:delete("t" .. i - 1)
      keywatch.sleep(0.01)
    end
    assert.is_true(informer.shared.indexer.n < 1000, informer.shared.indexer.n)
  end))

  it("does not begin a handler twice, or a closed one", function()
    local store = keywatch.open()
    keywatch.run(function()
      local informer = store:informer("")
      local one, other = informer:add_handler { add = print }, informer:add_handler { add = print }
      local set = one.changed.set
      rawset(one.changed, "set", function(self) -- as a finalizer may, at any call
        self.set = nil
        other:close()
        informer:add_handler { add = print }
        return set(self)
      end)
      informer:wait_synced()
      keywatch.sleep(0)
      keywatch.sleep(0)
      keywatch.sleep(0)
      assert.equal(0, informer.shared.indexer.walks)
      informer:close()
    end)
  end)

  it("has all objects in an index when add_index returns, and when an informer with that index exists", within.world(
    function(world)
      for i = 1, 3 do world.server.store:put("k" .. i, "v") end
      local client, counts, tasks = world:client(), {}, {}
      local function slow(value)
        keywatch.sleep(1)
        return value
      end
      local one, same = client:informer(""), client:informer("")
      assert(one:wait_synced(10))
      for i, informer in ipairs { one, same, one, false } do
        tasks[i] = keywatch.spawn(function()
          local own = informer or client:informer("", { indexes = { i = slow } })
          assert.is_true(not informer or own:add_index("i", slow))
          counts[i] = own:index_count("i", "v")
        end)
      end
      keywatch.join(tasks)
      assert.same({ 3, 3, 3, 3 }, counts)
    end))

  it("lets other tasks run after a period of time, not after a number of calls and changes", function()
    local function compute()
      local begun = os.clock()
      while os.clock() - begun < 0.003 do end
    end
    for _, where in ipairs { "handler", "transform", "index" } do
      keywatch.run(function()
        local store, calls, turns = keywatch.open(), 0, 0
        local function called(value)
          compute()
          calls = calls + 1
          return value
        end
        local informer = store:informer("", { transform = where == "transform" and called or nil })
        for i = 1, 20 do store:put("k" .. i, "v") end
        assert(informer:wait_synced(10))
        calls = 0
        if where == "handler" then informer:add_handler { add = called } end
        if where == "index" then keywatch.spawn(informer.add_index, informer, "i", called) end
        for i = 1, where == "transform" and 20 or 0 do store:put("k" .. i, "w") end
        while calls < 20 do
          turns = turns + 1
          keywatch.sleep(0)
        end
        assert.is_true(turns > 10, where .. " " .. turns)
        store:close()
      end)
    end
  end)

  it("refuses a new index once it is closed", within.task(function()
    local store = keywatch.open()
    local a, b = store:informer(""), store:informer("")
    a:close()
    assert.equal("closed", answer.code(a:add_index("x", function() end)))
    assert.has_error(function() b:index_count("x", 1) end)
    b:close()
  end))
end)

describe("a handler", function()
  it("cannot be joined from inside of its own call", within.world(function()
    local store = keywatch.open()
    store:put("a", "1")
    local informer, handler, text = store:informer(""), nil, nil
    handler = informer:add_handler { add = function()
      handler:close()
      text = select(2, pcall(handler.join, handler, 1))
    end }
    handler:join()
    assert.matches("cannot wait for the end", text)
  end))

  it("counts the objects that its queue holds", within.world(function()
    local store = keywatch.open()
    local informer, held = store:informer(""), 0
    for i = 1, 50 do store:put("k" .. i, ("x"):rep(10000)) end
    store:put("tiny", "1")
    local handler = informer:add_handler { max_bytes = 20000, delete = function() keywatch.sleep(1000) end }
    handler:wait_synced()
    for i = 1, 50 do store:delete("k" .. i) end
    keywatch.sleep(1)
    for _, list in ipairs { handler.items, handler.late } do
      for _, event in pairs(list) do held = held + #event.object end
    end
    assert.is_true(held < 40000, held)
  end, { leftovers = "cancel" }))

  it("calls no further function once the end of a run has cancelled one", function()
    local store, informer, cut = keywatch.open(), nil, 0
    for i = 1, 50 do store:put("k" .. i, "") end
    keywatch.run(function()
      informer = store:informer("")
      informer:add_handler { add = function()
        if not pcall(keywatch.sleep, 60) then cut = cut + 1 end
      end }
      informer:wait_synced()
      keywatch.sleep(0)
    end)
    assert.equal(1, cut)
    informer:close()
  end)

  it("receives a bad value after the changes before it if it coalesces, also at its start", within.world(function()
    local store, log = keywatch.open(), {}
    for i = 1, 4 do store:put("k" .. i, "v1") end
    local informer = store:informer("", { codec = { decode = function(value)
      return value ~= "bad" and { value } or nil
    end } })
    informer:wait_synced()
    local function note(key, _, event)
      if key == "k1" then log[#log + 1] = event.revision end
      keywatch.sleep(1)
    end
    informer:add_handler { at_bound = "coalesce", max_bytes = 1, add = note, error = note,
      update = function(key, object, _, event) note(key, object, event) end }
    keywatch.sleep(2.5)
    for i = 2, 3 do
      store:put("k1", "v" .. i)
      store:put("k2", "v" .. i)
    end
    keywatch.sleep(0.1)
    store:put("k1", "bad")
    keywatch.sleep(20)
    for i = 2, #log do assert.is_true(log[i - 1] < log[i], table.concat(log, " ")) end
  end))

  local LIVES = { { "v" }, { "bad" }, { "v", "w" }, { "bad", "v" }, { "v", "bad" } } -- values before the delete

  --- A handler with these functions hangs, in its initial walk or later, and then continues.
  local function hang(names, policy, is_late)
    local store, only = keywatch.open(), {}
    local what = ("%s, %s, %s"):format(names, policy, is_late and "late" or "early")
    for i = 1, 5 do store:put("k" .. i, "old") end
    local informer = store:informer("", { shared = false, codec = { decode = function(value)
      return value ~= "bad" and value or nil
    end } })
    local gate = keywatch.channel()
    if is_late then gate:close() end
    for name in names:gmatch("%a+") do only[#only + 1] = name end
    local recorder = informing.record(informer, {
      only = only, max_bytes = 1000, at_bound = policy, before = function() gate:receive() end,
    })
    local handler = recorder.handler
    assert((is_late and handler or informer):wait_synced(10))
    if is_late then gate = keywatch.channel() end
    for round = 1, 10 do -- its first call, and a queue that is full
      store:put("k1", "old " .. round)
      store:put("k7", "v")
      store:put("k7", "w")
      store:delete("k7")
    end
    keywatch.sleep(20)
    for i = 1, 250 do
      local key, known = "t" .. i, "k" .. i % 5 + 1
      for _, value in ipairs(LIVES[i % #LIVES + 1]) do store:put(key, value) end
      store:delete(key)
      store:delete(known)
      store:put(known, "new " .. i)
      keywatch.sleep(0.001)
      if i % 40 == 0 then informer:add_handler { add = function() end }:close() end
    end
    local slots, status = informer.shared.indexer.n, handler:status()
    local queued, bytes = status.queued, status.queued_bytes
    what = ("%s: %d slots, %d queued, %d bytes"):format(what, slots, queued, bytes)
    assert.is_true(slots < 20 and queued < 30 and bytes > 100 * (queued - 2) and bytes < 200 * queued, what)
    gate:close()
    keywatch.sleep(20)
    status = handler:status()
    assert.same({ 0, 0, 0 }, { status.queued, status.queued_bytes, status.failures }, what)
    if names:find("add.*delete") then
      local has = {}
      for key, object in informer:each() do has[key] = object end
      assert.same(has, recorder:content(), what)
    end
    informer:close()
  end

  it("holds no more than the existing objects that it knows if it hangs, in its initial walk or later", function()
    for _, names in ipairs { "add update delete error", "add", "update", "delete", "add error" } do
      for _, policy in ipairs { "wait", "coalesce" } do
        testing.run(function() hang(names, policy, false) end)
        testing.run(function() hang(names, policy, true) end)
      end
    end
  end)

  it("receives objects that are false if it coalesces", within.world(function()
    local store, olds = keywatch.open(), {}
    store:put("a", "false")
    local informer = store:informer("", { codec = "json" })
    informer:add_handler { at_bound = "coalesce", max_bytes = 1, add = function() keywatch.sleep(1) end,
      update = function(key, _, old)
        if key == "a" then olds[#olds + 1] = tostring(old) end
        keywatch.sleep(1)
      end }
    informer:wait_synced()
    keywatch.sleep(5)
    store:put("z", "1")
    store:put("z", "2")
    store:put("a", "3")
    keywatch.sleep(10)
    assert.same({ "false" }, olds)
  end))
end)
