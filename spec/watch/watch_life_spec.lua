--- The life of a watch: closed, collected, before and after its store, and at the end of its program.

local keywatch = require "keywatch"
local core = require "keywatch.core"

local answer = require "spec.support.answer"
local events = require "spec.support.events"
local program = require "spec.support.program"

local probe = core.probe

local function new_store()
  local store = keywatch.open { now = 0 }
  store:put("a", "1")
  return store
end

--- Core blocks that are in use, in builds that count them.
local function live()
  collectgarbage()
  return probe and probe.live() or 0
end

local function check(store)
  if probe and type(store) == "userdata" then probe.check(store) end
end

after_each(function() pcall(keywatch.run, function() end) end) -- whatever a test has left

local function with_store(fn) return function() fn(new_store()) end end

describe("a closed watch", function()
  it("may be closed again, without effect on its store", with_store(function(store)
    local w, other = store:watch("a"), store:watch("a")
    w:close()
    w:close()
    store:put("a", "2")
    check(store)
    assert.equal("put a 3", (events.drain(other)))
    assert.same({}, { w:next() })
    store:close()
    w:close()
    other:close()
  end))

  it("frees its queue at once", with_store(function(store)
    local function round()
      local list = {}
      for i = 1, 100 do list[i] = store:watch(i % 2 == 0 and "a" or "b", { prefix = true, start_revision = i % 3 }) end
      for i = 1, 20 do store:put("a", tostring(i)) end
      for i = 1, 100 do list[i]:next(0) end
      for i = 1, 100 do list[i]:close() end
      store:delete("a")
      store:compact(store:status().revision, { physical = true })
      check(store)
      return live(), list -- which are closed, and not forgotten
    end
    local base, first = round() -- objects of the first watches of a store stay allocated
    local again, second = round()
    assert.same({ base, 100, 100 }, { again, #first, #second })
  end))

  it("is closed with its to-be-closed variable", function()
    if jit then return end -- there are no such variables
    local w = assert(load [[
      local w
      do
        local store = require("keywatch").open { now = 0 }
        local closing <close> = store:watch("a")
        w = closing
      end
      return w
    ]])()
    assert.matches("closed", tostring(w))
  end)

  it("is closed in a loop that an error leaves, with its to-be-closed variable", function()
    if jit then return end
    local w, ok = assert(load [[
      local store = require("keywatch").open { now = 0 }
      store:put("a", "")
      local w
      local ok = pcall(function()
        local closing <close> = store:watch("a", { start_revision = 2 })
        w = closing
        for _ in closing:events() do error("on purpose") end
      end)
      return w, ok
    ]])()
    assert.is_false(ok)
    assert.matches("closed", tostring(w))
  end)
end)

describe("a forgotten watch", function()
  it("is collected, and the core removes its watcher", with_store(function(store)
    local seen = setmetatable({}, { __mode = "k" })
    local function round()
      for i = 1, 100 do
        local w = store:watch("a", { prefix = i % 2 == 0, initial = i % 3 == 0 })
        seen[w] = true
        if i % 4 == 0 then w:next(0) end
      end
      return live()
    end
    local base = round()
    assert.equal(base, round())
    assert.is_nil(next(seen))
    store:put("a", "2")
    check(store)
  end))

  local uses = {
    ["is collected with its unread events"] = function(store)
      local w = store:watch("a", { start_revision = 2 })
      for i = 1, 10 do store:put("a", tostring(i)) end
      w:sync()
      return w
    end,
    ["may be one whose loop was left"] = function(store)
      local w = store:watch("a", { start_revision = 2 })
      for event in w:events() do
        if event then return w end
      end
    end,
    ["may be one with a wait that timed out"] = function(store)
      local w = store:watch("a")
      keywatch.run(function() keywatch.spawn(function() w:next(0.001) end):join() end)
      return w
    end,
    ["may be one with a wait that was cancelled"] = function(store)
      local w = store:watch("a")
      keywatch.run(function()
        local reader = keywatch.spawn(function() w:next() end)
        keywatch.sleep(0)
        reader:cancel()
        reader:join()
      end)
      return w
    end,
  }
  for what, use in pairs(uses) do
    it(what, with_store(function(store)
      local seen = setmetatable({}, { __mode = "k" })
      for _ = 1, 10 do seen[use(store)] = true end
      collectgarbage()
      assert.is_nil(next(seen))
      store:put("a", "")
      check(store)
    end))
  end

  it("is kept while a task waits for it", with_store(function(store)
    local got
    keywatch.run(function()
      local reader = keywatch.spawn(function() got = store:watch("a", { start_revision = 3 }):next() end)
      keywatch.sleep(0)
      collectgarbage()
      store:put("a", "2")
      reader:join()
    end)
    assert.equal("put a 3", events.text(got))
  end))
end)

describe("a store", function()
  it("is kept alive by its watches", function()
    local w = new_store():watch("a", { start_revision = 1 })
    collectgarbage()
    assert.equal("put a 2", (events.drain(w)))
    assert.equal("timeout", answer.code(w:next(0.001)))
  end)

  it("is collected with its watches, in whatever order", function()
    local base = live()
    local seen = setmetatable({}, { __mode = "k" })
    for i = 1, 20 do
      local store = new_store()
      local list = {}
      for n = 1, 5 do list[n] = store:watch("a", { start_revision = n % 2 }) end
      store:put("a", "")
      seen[store] = true
      if i % 3 == 0 then store:close() end
      if i % 4 == 0 then list[1]:close() end
      if i % 3 == 1 then list[2]:next(0) end
    end
    collectgarbage()
    assert.is_nil(next(seen))
    assert.equal(base, live())
  end)

  it("is collected also after a task has waited for it", function()
    local seen = setmetatable({}, { __mode = "k" })
    for _ = 1, 5 do
      local store = new_store()
      seen[store] = true
      store:watch("a"):next(0.001)
    end
    keywatch.run(function()
      local store = new_store()
      seen[store] = true
      local reader = keywatch.spawn(function() return store:watch("a"):next() end)
      keywatch.sleep(0)
      store:put("a", "")
      reader:join()
    end)
    collectgarbage()
    assert.is_nil(next(seen))
  end)

  it("that is closed ends its watches, which report that", with_store(function(store)
    local w, unread = store:watch("a"), store:watch("a", { start_revision = 1 })
    local initial = store:watch("a", { initial = true })
    initial:next()
    unread:next()
    store:put("a", "2")
    store:close()
    collectgarbage()
    for _, one in ipairs { w, unread } do
      assert.equal("closed", answer.code(one:next(0)))
      assert.equal("closed", answer.code(one:batch(0)))
      assert.equal("closed", answer.code(one:sync(0)))
      assert.equal("closed", one:error().code)
      assert.matches("closed", tostring(one))
      one:close()
    end
    initial:close()
  end))

  it("that is closed by one of its readers ends the others", with_store(function(store)
    local counts = { event = 0, closed = 0 }
    keywatch.run(function()
      local readers = {}
      for i = 1, 10 do
        local w = store:watch("a")
        readers[i] = keywatch.spawn(function()
          local event, err = w:next()
          if event then store:close() end
          local what = err and err.code or "event"
          counts[what] = counts[what] + 1
        end)
      end
      keywatch.sleep(0)
      store:put("a", "2")
      for i = 1, 10 do readers[i]:join() end
    end)
    assert.same({ event = 1, closed = 9 }, counts)
  end))
end)

describe("watches and tasks", function()
  it("leave no memory behind", function()
    if not probe then return end -- no counter of memory
    keywatch.sleep(0.001) -- the loop stays
    local base = live()
    for i = 1, 10 do
      local store = new_store()
      keywatch.run(function()
        for n = 1, 10 do
          local w = store:watch("a", { prefix = n % 2 == 0, initial = n % 3 == 0, max_bytes = n * 30 })
          keywatch.spawn(function()
            for event in w:events() do
              if event.value == "5" and n % 4 == 0 then break end
            end
          end)
        end
        for n = 1, 10 do
          store:put("a", tostring(n))
          if n % 3 == 0 then keywatch.sleep(0) end
        end
      end)
      if i % 2 == 0 then store:close() end
    end
    assert.equal(base, live())
  end)
end)

-- Programs ----------------------------------------------------------------------------------------------------------

-- A program opens objects in every possible order, and ends in every possible way.
local parts = {
  store = "store = keywatch.open() store:put('a', '1')",
  loop = "keywatch.sleep(0.001)",
  watch = "w = store:watch('a', { start_revision = 1 }) store:put('a', '2')",
  wait = "task = keywatch.spawn(function() while true do w:next() end end) keywatch.sleep(0)",
}

local orders = {
  { "store", "watch" },
  { "store", "loop" },
  { "loop", "store", "watch" },
  { "store", "loop", "watch" },
  { "store", "watch", "loop" },
  { "loop", "store", "watch", "wait" },
  { "store", "loop", "watch", "wait" },
  { "store", "watch", "wait", "loop" },
}

local ends = {
  { "falls off its end", "", 0, "" },
  { "leaves by os.exit", "os.exit(0)", 0, "" },
  { "leaves by os.exit and closes its state", "os.exit(0, true)", 0, "" },
  { "leaves by os.exit with a status", "os.exit(7, true)", 7, "" },
  { "fails", "error('on purpose', 0)", 1, "^[^\n]*: on purpose\nstack traceback:\n" },
}

local function begin(order, modules)
  local lines = { "io.stdout:setvbuf('no')" }
  for _, name in ipairs(modules or {}) do table.insert(lines, ("require '%s'"):format(name)) end
  table.insert(lines, "keywatch = require 'keywatch'")
  for _, part in ipairs(order) do table.insert(lines, parts[part]) end
  table.insert(lines, "print 'end'")
  return table.concat(lines, "\n") .. "\n"
end

-- A function that makes an object with a finalizer.
local OBJECT_WITH = [[
  local function object_with(finalizer)
    if not newproxy then return setmetatable({}, { __gc = finalizer }) end
    local proxy = newproxy(true)
    getmetatable(proxy).__gc = finalizer
    return proxy
  end
]]

--- True if a program has ended as expected, and without unexpected output.
local function expect_end(text, status, words)
  local got, printed = program.run(text)
  local rest = printed:match("^end\n(.*)$")
  assert.same({ status, true }, { got, rest ~= nil }, printed)
  if words == "" then
    assert.equal("", rest)
  else
    assert.matches(words, rest)
    assert.not_matches("keywatch:", rest)
  end
end

describe("a program", function()
  for _, order in ipairs(orders) do
    for _, way in ipairs(ends) do
      it(("with %s %s"):format(table.concat(order, ", then "), way[1]), function()
        expect_end(begin(order) .. way[2], way[3], way[4])
      end)
    end
  end

  for _, way in ipairs(ends) do
    it("with another order of require " .. way[1], function()
      expect_end(begin(orders[6], { "keywatch.uv", "keywatch.core" }) .. way[2], way[3], way[4])
      expect_end(begin(orders[6], { "keywatch.core", "keywatch.watch.watch", "keywatch.uv" }) .. way[2], way[3], way[4])
    end)

    it("in a task " .. way[1], function()
      local text = begin { "store", "watch" } .. ([[
        keywatch.run(function()
          keywatch.spawn(function() while true do w:next() end end)
          keywatch.sleep(0.001)
          %s
        end)
      ]]):format(way[2])
      expect_end(text, way[3], way[4])
    end)

    it("with a closed store and open watches " .. way[1], function()
      expect_end(begin(orders[6]) .. "store:close()\n" .. way[2], way[3], way[4])
    end)

    it("with forgotten objects " .. way[1], function()
      expect_end(begin(orders[6]) .. [[
        store, w, task, keywatch = nil, nil, nil, nil
        for name in pairs(package.loaded) do
          if name:find "keywatch" then package.loaded[name] = nil end
        end
        collectgarbage()
      ]] .. way[2], way[3], way[4])
    end)
  end

  it("ends whose objects read a watch in their finalizers", function()
    assert.same({ 0, "end\nlast\n" }, { program.run(begin { "loop", "store", "watch" } .. OBJECT_WITH .. [[
      local function last()
        for _, call in ipairs { "next", "batch", "sync" } do pcall(w[call], w, 0) end
        pcall(w.close, w)
        pcall(store.put, store, "a", "last")
        pcall(store.watch, store, "a")
        io.stdout:write("last\n")
      end
      later = object_with(last) -- than the watch: it is finalized before
      for i = 1, 5 do _G["more" .. i] = store:watch("a") end
    ]]) })
  end)

  it("ends whose objects, older than the store, read a watch in their finalizers", function()
    assert.same({ 0, "last\n" }, { program.run(OBJECT_WITH .. [[
      local function last()
        pcall(function() w:next(0) w:sync() w:close() store:close() end)
        io.stdout:write("last\n")
      end
      older = object_with(last)
      keywatch = require "keywatch"
      keywatch.sleep(0.001)
      store = keywatch.open()
      w = store:watch("a")
      w:next(0.001)
    ]]) })
  end)
end)
