--- Indexes of an informer: the objects of a value, changes of objects, index functions that fail, and loops over an
-- index while objects change.

local keywatch = require "keywatch"

local informing = require "spec.cache.informing"
local logs = require "spec.support.logs"
local dose = require "spec.support.dose"
local new_random = require("spec.support.random").new

local PATIENCE = informing.PATIENCE
local close_later, open_store = informing.close_later, informing.open_store
local record, sorted, await = informing.record, informing.sorted, informing.await
local json = informing.json
local seed = tonumber(os.getenv("KW_SEED")) or os.time()

--- Words of an object: an index with several values.
local function words(object)
  local list = {}
  for word in object:gmatch("%a+") do list[#list + 1] = word end
  return list
end

--- The size of an object.
local function size(object) return #object end

--- The keys of the objects with a value, sorted, as one text.
local function keys(informer, name, value)
  local list = {}
  for key in informer:by_index(name, value) do list[#list + 1] = key:match("[^/]+$") end
  table.sort(list)
  return table.concat(list, " ")
end

--- The values of an index, with the number of their objects, as one text.
local function values(informer, name)
  local list = {}
  for value, n in informer:index_values(name) do list[#list + 1] = ("%s=%d"):format(tostring(value), n) end
  table.sort(list)
  return table.concat(list, " ")
end

before_each(informing.begin)
after_each(informing.finish)

describe("an index", function()
  local store, informer, rec

  before_each(function() store = open_store() end)

  --- Opens an informer with indexes.
  local function open(indexes, opts)
    opts = opts or {}
    opts.indexes = indexes
    informer = close_later(assert(store:informer("/a/", opts)))
    assert(informer:wait_synced(PATIENCE))
    rec = record(informer)
    assert(rec.handler:wait_synced(PATIENCE))
    return informer
  end

  --- Writes, and waits until the informer knows of it.
  local function put(key, value)
    local revision = store:put("/a/" .. key, value).revision
    await(function() return select(2, informer:get("/a/" .. key)) == revision end, "a put")
  end

  local function delete(key)
    store:delete("/a/" .. key)
    await(function() return informer:get("/a/" .. key) == nil end, "a delete")
  end

  it("has the objects of a value", function()
    open { size = size }
    for i, value in ipairs { "one", "two", "three" } do put(tostring(i), value) end
    for value, found in pairs { [3] = "1 2", [5] = "3", [4] = "" } do
      assert.equal(found, keys(informer, "size", value))
      assert.equal(select(2, found:gsub("%d", "")), informer:index_count("size", value))
    end
    assert.equal("3=2 5=1", values(informer, "size"))
    assert.same({ "/a/3 three" }, sorted(informer:by_index("size", 5)))
  end)

  it("has an object under each of several values, and moves it as these change", function()
    open { word = words }
    put("1", "red round")
    put("2", "red")
    local function found() return { keys(informer, "word", "red"), keys(informer, "word", "round") } end
    assert.same({ "1 2", "1" }, found())
    put("1", "round blue") -- one goes, one stays, one comes
    assert.same({ "2", "1" }, found())
    assert.equal("1", keys(informer, "word", "blue"))
    put("1", "")
    assert.equal("red=1", values(informer, "word"))
    put("1", "red red red") -- the same value again counts once
    assert.same({ 2, "1 2" }, { informer:index_count("word", "red"), keys(informer, "word", "red") })
    delete("1")
    delete("2")
    assert.equal("", values(informer, "word"))
  end)

  it("has no object whose value is nil or an empty list", function()
    open { nothing = function() end, none = function() return {} end,
      some = function(object) return object ~= "no" and object or nil end }
    put("1", "yes")
    put("2", "no")
    for name, expected in pairs { nothing = "", none = "", some = "yes=1" } do
      assert.equal(expected, values(informer, name))
    end
    put("1", "no")
    put("2", "yes")
    assert.same({ "2", 2 }, { keys(informer, "some", "yes"), informer:count() })
  end)

  it("distinguishes strings, numbers and booleans", function()
    local by_text = { a = 1, b = "1", c = true, d = "true", e = false, f = 0.5 }
    open { value = function(object) return by_text[object] end }
    for name in pairs(by_text) do put(name, name) end
    for name, value in pairs(by_text) do
      assert.equal(name, keys(informer, "value", value))
      assert.equal(1, informer:index_count("value", value))
    end
    assert.equal("0.5=1 1=1 1=1 false=1 true=1 true=1", values(informer, "value"))
  end)

  it("passes the key to its function, too", function()
    open { name = function(_, key) return key:match("%d") end }
    put("x1", "")
    put("y1", "")
    assert.equal("x1 y1", keys(informer, "name", "1"))
  end)

  it("can be added late, and then has the existing objects", function()
    open()
    for i = 1, 20 do put(tostring(i), ("x"):rep(i % 3)) end
    informer:add_index("size", size)
    assert.equal("0=6 1=7 2=7", values(informer, "size"))
    put("1", "xx")
    assert.equal(8, informer:index_count("size", 2))
    local early = close_later(assert(store:informer("/a/", { shared = false })))
    early:add_index("size", size) -- before it has synced
    assert(early:wait_synced(PATIENCE))
    assert.equal(8, early:index_count("size", 2))
  end)

  it("has one function for a name, and raises for unknown names", function()
    open { size = size }
    informer:add_index("size", size)
    assert.error_matches(function() informer:add_index("size", words) end, "size")
    for _, method in ipairs { "by_index", "index_values", "index_count" } do
      assert.error_matches(function() informer[method](informer, "none", 1) end, "none")
    end
  end)

  it("does not have an object for which its function raises, which is logged", function()
    open { word = function(object)
      if object:find("bad", 1, true) then error("cannot index this") end
      return words(object)
    end, size = size }
    for i, value in ipairs { "red", "red bad", "red" } do put(tostring(i), value) end
    assert.equal("1 3", keys(informer, "word", "red"))
    assert.same({ "2", 3 }, { keys(informer, "size", 7), informer:count() }) -- other indexes have it
    put("1", "bad") -- and not under what it had before
    assert.equal("3", keys(informer, "word", "red"))
    put("1", "red again")
    assert.equal("1 3", keys(informer, "word", "red"))
    assert.equal(1, logs.count("cannot index this")) -- the first one
    assert.equal(5, #rec:rest(store))
  end)

  it("does not have an object for which its function returns an invalid value", function()
    local odd = { a = {}, b = { {} }, c = print, d = 0 / 0, e = { "good", print }, f = { "good", nil, "hole" } }
    odd.a[1] = odd.a
    open { odd = function(object) return odd[object] end }
    for name in pairs(odd) do put(name, name) end
    put("x", "x")
    for _, name in ipairs { "a", "b", "c", "d", "e" } do
      for value in informer:index_values("odd") do
        assert(not (" " .. keys(informer, "odd", value) .. " "):find(" " .. name .. " ", 1, true), name)
      end
    end
    assert.same({ 7, 1 }, { informer:count(), #logs.lines })
    for name in pairs(odd) do delete(name) end
    assert.equal("", values(informer, "odd"))
  end)

  it("that is added late reports errors of its function, and has the other objects", function()
    open()
    put("1", "good")
    put("2", "bad")
    informer:add_index("late", function(object) return object == "good" or error("not this one") end)
    assert.same({ "1", 1 }, { keys(informer, "late", true), logs.count("not this one") })
    for i = 1, 2 do delete(tostring(i)) end
    assert.equal("", values(informer, "late"))
  end)

  it("may be read and changed by its own function", function()
    local asked = 0
    open { size = function(object, key)
      if informer then
        asked = asked + informer:count()
        informer:index_count("size", 1)
        for _ in informer:each() do asked = asked + 1 end
      end
      if object == "add" then informer:add_index("by key", function(_, other) return other end) end
      return #object + #key * 0
    end }
    put("1", "x")
    put("2", "add")
    put("3", "y")
    assert.same({ "1 3", "2", "2" },
      { keys(informer, "size", 1), keys(informer, "size", 3), keys(informer, "by key", "/a/2") })
    assert(asked > 0)
  end)

  it("returns objects, not copies", function()
    open({ kind = function(object) return object.kind end }, { codec = "json" })
    store:put("/a/1", json { kind = "x" })
    await(function() return informer:count() == 1 end)
    local _, object = informer:by_index("kind", "x")()
    assert.equal(informer:get("/a/1"), object)
    assert.equal(select(2, informer:each()()), object)
  end)

  it("is consistent with the objects inside of handlers, and after each wait", function()
    open { size = size, word = words }
    local n = 0
    local function look()
      n = n + 1
      local by_size, by_index = {}, {}
      for _, object in informer:each() do by_size[#object] = (by_size[#object] or 0) + 1 end
      for value, count in informer:index_values("size") do
        by_index[value] = count
        assert.equal(count, informer:index_count("size", value))
        for key, object in informer:by_index("size", value) do
          assert.is_true(#object == value and object == informer:get(key))
        end
      end
      assert.same(by_size, by_index)
    end
    local handler = informer:add_handler { add = look, update = look, delete = function()
      look()
      keywatch.sleep(0)
      look()
    end }
    keywatch.run(function()
      for i = 1, 100 do
        if i % 3 == 0 then store:delete("/a/" .. i % 5) else store:put("/a/" .. i % 5, ("x"):rep(i % 4)) end
        if i % 4 == 0 then keywatch.sleep(0) end
      end
      rec:rest(store)
    end)
    await(function() return handler:status().queued == 0 end)
    assert(n > 50, n)
    assert.same({ 0, {} }, { handler:status().failures, logs.lines })
  end)
end)

describe("a loop over objects", function()
  local store, informer

  before_each(function()
    store = open_store()
    informer = close_later(assert(store:informer("/a/", { indexes = {
      group = function(object) return object:match("^%a") end,
      all = function() return true end,
      one_of_two = function(object) return #object % 2 == 0 and { true, object } or { object, true } end,
    } })))
    assert(informer:wait_synced(PATIENCE))
  end)

  --- Does it at the store, and waits until the informer knows of all of it.
  local function change(fn)
    fn()
    local revision = store:put("/a/mark", "mark").revision
    await(function() return select(2, informer:get("/a/mark")) == revision end, "a change")
  end

  --- Puts so many objects with one value.
  local function fill(n, value)
    change(function()
      for i = 1, n do store:put("/a/" .. i, value) end
    end)
  end

  local loops = {
    each = function() return informer:each() end,
    by_index = function() return informer:by_index("all", true) end,
    ["one of several values"] = function() return informer:by_index("one_of_two", true) end,
  }

  for name, loop in pairs(loops) do
    it("sees an object that exists during the whole loop exactly once, by " .. name, function()
      local N = 200
      change(function()
        for i = 1, N do store:put("/a/stays " .. i, "s") end
        for i = 1, N do store:put("/a/goes " .. i, "g") end
      end)
      local seen, n = {}, 0
      for key, object in loop() do
        assert(not (seen[key] and key:find("stays", 1, true)), key)
        assert.is_string(object)
        seen[key] = true
        n = n + 1
        if n % 20 == 0 then
          change(function()
            for i = n, n + 30 do
              store:delete("/a/goes " .. i)
              store:put("/a/comes " .. i, "c")
              store:put("/a/stays " .. i % N + 1, "s " .. n) -- an update keeps its place
            end
            store:delete("/a/goes 200")
            store:put("/a/goes 200", "again")
          end)
        end
        assert(n < 10 * N, "the loop does not end")
      end
      for i = 1, N do assert(seen["/a/stays " .. i], i) end
    end)

    it("may end early, and others continue, by " .. name, function()
      fill(50, "x")
      local outer = 0
      for _ in loop() do
        outer = outer + 1
        local step, state = loop()
        step(state) -- and no further
        if outer == 25 then change(function() store:delete("/a/", { prefix = true }) end) end
      end
      assert(outer >= 25 and outer <= 51, outer)
      local after = {}
      for key in loop() do after[#after + 1] = key end
      assert.same({ "/a/mark" }, after)
    end)

    it("continues while its own body deletes and adds every object, by " .. name, function()
      fill(60, "x")
      local n = 0
      for key in loop() do
        n = n + 1
        if key ~= "/a/mark" then
          change(function()
            store:delete(key)
            store:put(key, "again")
          end)
        end
        assert(n <= 61 * 2, "the loop does not end")
      end
      assert(n >= 61, n)
      assert.equal(61, informer:count())
    end)
  end

  it("has only objects that have the value when they are seen", function()
    fill(100, "a")
    local n = 0
    for key, object in informer:by_index("group", "a") do
      n = n + 1
      assert.equal("a", object:match("^%a"), key)
      local first, step = n == 10 and 1 or n == 15 and 2, n == 10 and 2 or 4
      if first then -- the second time: the set was rebuilt in between
        change(function()
          for i = first, 100, step do store:put("/a/" .. i, "b") end
        end)
      end
    end
    assert(n >= 25 and n <= 45, n)
    assert.equal(75, informer:index_count("group", "b"))
  end)

  it("over the values of an index continues, too", function()
    change(function()
      for i = 0, 25 do store:put("/a/" .. i, string.char(97 + i)) end
    end)
    local seen, n = {}, 0
    for value, count in informer:index_values("group") do
      assert.is_nil(seen[value])
      assert(count >= 1)
      seen[value], n = true, n + 1
      if n % 5 == 0 then
        change(function()
          for i = 0, 25, 2 do store:delete("/a/" .. i) end
          for i = 0, 25, 4 do store:put("/a/" .. i, string.char(65 + i)) end
        end)
      end
      assert(n < 200, "the loop does not end")
    end
    for i = 1, 25, 2 do assert(seen[string.char(97 + i)], i) end
  end)

  it("ends, or raises, when the informer is closed inside of it", function()
    fill(50, "x")
    for _, loop in pairs(loops) do
      local other = informer
      local n = 0
      pcall(function()
        for _ in loop() do
          n = n + 1
          if n == 3 then other:close() end
        end
      end)
      assert(n <= 51, n)
      informer = close_later(assert(store:informer("/a/", { indexes = {
        all = function() return true end, one_of_two = function(object) return { true, object } end,
      } })))
      assert(informer:wait_synced(PATIENCE))
    end
  end)
end)

describe("indexes at random", function()
  --- Functions of an object, as a naive model has them.
  local FUNCTIONS = {
    first = function(object) return object:sub(1, 1) end,
    words = words,
    odd = function(object) return #object % 2 == 1 end,
    long = function(object) return #object > 8 and "long" or nil end,
    failing = function(object)
      if object:find("b", 1, true) then error("no", 0) end
      return #object
    end,
  }

  --- Returns the index of a naive model: by value, the keys of its objects.
  local function model_of(state, fn)
    local model = {}
    for key, object in pairs(state) do
      local ok, found = pcall(fn, object)
      if not ok or found == nil then found = {} end
      if type(found) ~= "table" then found = { found } end
      for _, value in ipairs(found) do
        model[value] = model[value] or {}
        model[value][key] = true
      end
    end
    return model
  end

  --- Continues an iterator: no object comes twice.
  local function step(one)
    local key, object = one.next[1](one.next[2], one.last)
    one.last = key
    if key == nil then return nil end
    assert.is_nil(one.seen[key])
    one.seen[key] = true
    return key, object
  end

  it("are equal to a naive model after every step", function()
    for round = 1, dose.of(3, 12) do
      local random = new_random(seed + round)
      local store = open_store()
      local state, names = {}, {}
      local indexes = {}
      for name, fn in pairs(FUNCTIONS) do
        if random:one_in(2) then indexes[name], names[#names + 1] = fn, name end
      end
      local informer = close_later(assert(store:informer("/a/", { indexes = indexes })))
      assert(informer:wait_synced(PATIENCE))
      local iterators = {} -- loops that are open: { next, expected: keys that have been there all along }
      local revision = 0
      for _ = 1, 60 do
        for _ = 1, random:between(1, 5) do
          local key = "/a/" .. random:between(1, 12)
          if random:one_in(3) then
            local found = store:delete(key)
            if found.deleted > 0 then revision = found.revision end
            state[key] = nil
            for _, one in ipairs(iterators) do one.expected[key], one.seen[key] = nil, nil end
          else
            local parts = {}
            for i = 1, random:between(0, 3) do parts[i] = random:pick { "a", "bb", "ccc", "dddd" } end
            state[key] = table.concat(parts, " ")
            revision = store:put(key, state[key]).revision
          end
        end
        await(function() return informer:status().revision >= revision end, "a revision")
        if random:one_in(10) then
          for name, fn in pairs(FUNCTIONS) do
            if not indexes[name] then
              informer:add_index(name, fn)
              indexes[name], names[#names + 1] = fn, name
              break
            end
          end
        end
        if random:one_in(4) then
          local one = { seen = {}, expected = {}, next = { informer:each() } }
          for key in pairs(state) do one.expected[key] = true end
          iterators[#iterators + 1] = one
        end
        for _, one in ipairs(iterators) do
          for _ = 1, random:between(0, 3) do
            local key, object = step(one)
            if key == nil then break end
            assert.equal(state[key], object)
          end
        end
        for _, name in ipairs(names) do
          local found = {}
          for value, count in informer:index_values(name) do
            found[value] = {}
            local n = 0
            for key, object in informer:by_index(name, value) do
              assert.equal(state[key], object)
              found[value][key], n = true, n + 1
            end
            assert.same({ count, count }, { n, informer:index_count(name, value) })
          end
          assert.same(model_of(state, FUNCTIONS[name]), found, name)
        end
      end
      for _, one in ipairs(iterators) do
        while step(one) do end -- luacheck: ignore 542
        for key in pairs(one.expected) do assert(one.seen[key], key) end
      end
      informer:close()
      store:close()
    end
  end)
end)
