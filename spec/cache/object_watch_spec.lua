--- Object watches: their events for each change, for each backend; how they begin and end; callbacks that fail; and
-- object watches that share one watch.

local keywatch = require "keywatch"

local cjson = require "cjson"

local answer = require "spec.support.answer"
local informing = require "spec.cache.informing"
local interrupting = require "spec.support.interrupting"
local logs = require "spec.support.logs"
local new_random = require("spec.support.random").new
local occurrences = require "spec.support.occurrences"
local within = require "spec.support.within"

local PATIENCE = informing.PATIENCE
local is_fast = require("spec.support.dose").is_small
local seed = tonumber(os.getenv("KW_SEED")) or os.time()

local close_later, open_store, open_client = informing.close_later, informing.open_store, informing.open_client
local json, field = informing.json, informing.field

-- By name: backends, and functions that return a watched object and the object that writes to it.
local backends, openers = {}, {}
for _, backend in ipairs(informing.backends) do
  if backend.name ~= "fence" and backend.name ~= "cache of a store" then backends[backend.name] = backend end
  openers[backend.name] = function()
    local x, writer = backend.open()
    if backend.name:find("cache") then assert(x:wait_ready(PATIENCE)) end
    return x, writer
  end
end

local function with_store(fn) return function() fn(open_store()) end end

before_each(informing.begin)
after_each(informing.finish)

--- An event as a short text: type, key, object, revision.
local function short(event, err)
  if not event then return err and "nil " .. err.code or "nil" end
  if event.type == "error" then return "error " .. event.error.code end
  local parts = { event.type }
  if event.key then parts[#parts + 1] = event.key end
  if event.object ~= nil then
    parts[#parts + 1] = type(event.object) == "table" and cjson.encode(event.object) or tostring(event.object)
  end
  parts[#parts + 1] = tostring(event.revision)
  return table.concat(parts, " ")
end

--- The next n events.
local function read(watch, n)
  local list = {}
  for i = 1, n do list[i] = short(watch:next(PATIENCE)) end
  return list
end

--- Expects that no event can be read at once.
local function expect_nothing(watch) assert.equal("nil timeout", short(watch:next(0))) end

--- Iterates over the options of two watches: of all objects, which has a watch of its own; and of the objects with
-- n = 1, which shares one.
local function unshared_and_shared(more)
  local list = {}
  for i, fields in ipairs { false, "n=1" } do
    list[i] = { codec = "json", fields = fields or nil }
    for name, value in pairs(more or {}) do list[i][name] = value end
  end
  return ipairs(list)
end

local function open_at(x, opts, key)
  opts = opts or {}
  if opts.prefix == nil and not opts.is_single then opts.prefix = true end
  opts.is_single = nil
  return close_later(assert(x:object_watch(key or "/a/", opts)))
end

--- Opens an object watch with JSON and a selector of fields, by default "n=1": it shares a watch.
local function open_shared(x, opts, fields)
  local own = { codec = "json", fields = fields or "n=1" }
  for name, value in pairs(opts or {}) do own[name] = value end
  return open_at(x, own)
end

--- Reads all queued events: their objects, or else their types, with revisions.
local function drain(watch)
  local list = {}
  for event in function() return (watch:next(0)) end do
    list[#list + 1] = (event.object or event.type) .. "@" .. event.revision
  end
  return table.concat(list, " ")
end

for name, backend in pairs(backends) do
  describe(("an object watch of a %s %s"):format(name, backend.tag), function()
    local x, writer
    local last = 0 -- the revision of the last change below /a/

    if backend.begin then
      setup(backend.begin)
      teardown(backend.finish)
    end

    before_each(function()
      x, writer = openers[name]()
      last = 0
    end)

    --- Notes the revision of a change, and returns it.
    local function note(key, revision)
      if key:find("^/a/") then last = revision end
      return revision
    end

    local function put(key, value) return note(key, assert(writer:put(key, value)).revision) end
    local function delete(key) return note(key, assert(writer:delete(key)).revision) end

    --- Opens an object watch. A cache already has the earlier writes.
    local function open(of, ...)
      if name == "cache" then assert(x:wait_for(last, PATIENCE)) end
      return open_at(of, ...)
    end

    it("reports a key that is added, modified and deleted", function()
      for _, opts in ipairs { { is_single = true }, {} } do
        local key = opts.is_single and "/a/1" or "/a/"
        local watch = open(x, opts, key)
        local r1, r2 = put("/a/1", "one"), put("/a/1", "two")
        put("/ab/1", "of a sibling")
        local r3 = delete("/a/1")
        assert.same({ "added /a/1 one " .. r1, "modified /a/1 two " .. r2, "deleted /a/1 two " .. r3 }, read(watch, 3))
        expect_nothing(watch)
        watch:close()
        assert.equal("nil", short(watch:next(0)))
      end
    end)

    it("has the fields of a change", function()
      local watch = open(x, { old = true })
      put("/a/1", "one")
      local r2 = put("/a/1", "two")
      local r3 = delete("/a/1")
      watch:next(PATIENCE)
      assert.same({ type = "modified", key = "/a/1", object = "two", old = "one", revision = r2,
        create_revision = r2 - 1, version = 2, lease = 0 }, watch:next(PATIENCE))
      assert.same({ type = "deleted", key = "/a/1", object = "two", revision = r3, create_revision = r2 - 1,
        version = 2, lease = 0 }, watch:next(PATIENCE))
    end)

    -- Values with n = 1 match. A watch with a function is not shared, one with a selector is.
    for how, filter in pairs {
      where = { codec = "json", where = function(object) return object.n == 1 end },
      fields = { codec = "json", fields = "n=1" },
      labels = { codec = "json", labels_at = "l", labels = "n=1", transform = function(object)
        return { n = object.n }
      end },
    } do
      it("adds objects that begin to match, and deletes objects that stop matching, by " .. how, function()
        local function value(n) return json { n = n, l = { n = n } } end
        local opts = {}
        for option, given in pairs(filter) do opts[option] = given end
        opts.transform = function(object) return object.n end
        local watch = open(x, opts)
        put("/a/1", value(2))
        local r1, r2, r3 = put("/a/1", value(1)), put("/a/1", value(1)), put("/a/1", value(2))
        put("/a/1", value(3))
        delete("/a/1")
        local r4, r5 = put("/a/1", value(1)), delete("/a/1")
        assert.same({ "added /a/1 1 " .. r1, "modified /a/1 1 " .. r2, "deleted /a/1 1 " .. r3, "added /a/1 1 " .. r4,
          "deleted /a/1 1 " .. r5 }, read(watch, 5))
        expect_nothing(watch)
        assert.equal(r5, watch.revision)
      end)
    end

    it("begins with the existing objects, and an event with their revision", function()
      local r1, r2 = put("/a/1", field(1)), put("/a/2", field(2))
      local r3 = put("/b/1", "of others")
      for _, bookmarks in ipairs { false, true } do
        local watch = open(x, { initial = true, codec = "json", fields = "n=2", bookmarks = bookmarks,
          transform = function(object) return object.n == 2 and "two" end })
        local first = watch:next(PATIENCE)
        assert.same({ type = "added", key = "/a/2", object = "two", revision = r2, create_revision = r2, version = 1,
          lease = 0, initial = true }, first)
        local synced = watch:next(PATIENCE)
        assert.equal("synced", synced.type)
        assert(synced.revision >= (name == "cache" and r2 or r3))
        expect_nothing(watch)
      end
      local all = open(x, { initial = true, codec = { decode = function(value) return value end } })
      assert.same({ "added /a/1 " .. field(1) .. " " .. r1, "added /a/2 " .. field(2) .. " " .. r2 }, read(all, 2))
      assert.equal("synced", all:next(PATIENCE).type)
      local r4 = put("/a/1", "new")
      assert.same({ "modified /a/1 new " .. r4 }, read(all, 1))
    end)

    it("begins with many pages of existing objects, and reports objects created during that later", function()
      for from = 1, 2100, 100 do
        local ops = {}
        for i = from, from + 99 do ops[#ops + 1] = { put = ("/a/%05d"):format(i), value = field(i % 2) } end
        last = assert(writer:txn { success = ops }).revision
      end
      local watch = open(x, { initial = true, codec = "json", fields = "n=1" })
      local later = put("/a/00002x", field(1))
      local n, event = 0, assert(watch:next(PATIENCE))
      while event.type == "added" do
        n = n + 1
        event = assert(watch:next(PATIENCE))
      end
      assert.same({ 1050, "synced", later - 1 }, { n, event.type, event.revision })
      event = watch:next(PATIENCE)
      assert.same({ "added", later }, { event.type, event.revision })
    end)

    it("ends with an error event if the required history is compacted", function()
      if name == "cache" then return end -- a cache has a history of its own
      local first = put("/a/1", field(1))
      for _ = 1, 3 do put("/a/1", field(1)) end
      assert(writer:compact(first + 3))
      for _, opts in unshared_and_shared { start_revision = first } do
        local watch = open(x, opts)
        local event = watch:next(PATIENCE)
        assert.same({ "error", "compacted", first + 3 }, { event.type, event.error.code, event.error.compact_revision })
        assert.equal("nil compacted", short(watch:next(0)))
      end
      local watch = open(x, { initial = true })
      assert.same({ "added /a/1 " .. field(1) .. " " .. first + 3, "synced " .. first + 3 }, read(watch, 2))
    end)

    it("is synced at once if no object exists", function()
      local watch = open(x, { initial = true })
      assert.equal("synced", watch:next(PATIENCE).type)
      local r1 = put("/a/1", "one")
      assert.same({ "added /a/1 one " .. r1 }, read(watch, 1))
    end)

    it("reports both changes of a key in one revision", function()
      local watches = { open_at(x, { codec = "json", old = true }), open_shared(x) }
      local function put_and_delete()
        return assert(writer:txn { success = { { txn = { success = { { put = "/a/1", value = field(1) } } } },
          { txn = { success = { { delete = "/a/1" } } } } } }).revision
      end
      local revision = put_and_delete()
      for i, watch in ipairs(watches) do
        assert.same({ 'added /a/1 {"n":1} ' .. revision, 'deleted /a/1 {"n":1} ' .. revision }, read(watch, 2), i)
      end
      revision = writer:put("/a/1", field(2)).revision
      assert.same({ 'added /a/1 {"n":2} ' .. revision }, read(watches[1], 1))
      revision = put_and_delete()
      assert.same({ 'modified /a/1 {"n":1} ' .. revision, 'deleted /a/1 {"n":1} ' .. revision }, read(watches[1], 2))
      assert.same({ 'added /a/1 {"n":1} ' .. revision, 'deleted /a/1 {"n":1} ' .. revision }, read(watches[2], 2))
      if name:find("namespace") then return end -- there, a delete from a key on is a delete of a range with an end
      writer:put("/a/1", field(1))
      for _, watch in ipairs(watches) do read(watch, 1) end
      revision = writer:txn { success = {
        { delete = "/a/", from_key = true }, { put = "/a/1", value = field(1) }, { put = "/a/2", value = field(2) },
      } }.revision
      for i, watch in ipairs(watches) do
        assert.same({ 'deleted /a/1 {"n":1} ' .. revision, 'added /a/1 {"n":1} ' .. revision }, read(watch, 2), i)
      end
    end)

    it("begins at a revision of the past", function()
      local r1, r2 = put("/a/1", "one"), put("/a/1", "two")
      local r3 = put("/a/1", "three")
      if name ~= "cache" then -- a cache has no history from before itself
        local watch = open(x, { start_revision = r1 + 1 })
        assert.same({ "modified /a/1 two " .. r2, "modified /a/1 three " .. r3 }, read(watch, 2))
      end
      local newest = open(x, { start_revision = r3 + 1 })
      local r4 = put("/a/1", "four")
      assert.same({ "modified /a/1 four " .. r4 }, read(newest, 1))
    end)

    it("can be resumed by a new one after the last revision that was read", function()
      local watch, expected = open(x), {}
      for i = 1, 10 do
        expected[i] = ("%s /a/1 %d %d"):format(i == 1 and "added" or "modified", i, put("/a/1", tostring(i)))
      end
      local seen = read(watch, 4)
      watch:close()
      for _, text in ipairs(read(open(x, { start_revision = watch.revision + 1 }), 6)) do seen[#seen + 1] = text end
      assert.same(expected, seen)
    end)

    it("ends with an error event if a value cannot be decoded, and reports nothing after it", function()
      local all = {}
      for i = 1, 10 do all[i] = open(x, { codec = "json", fields = i % 2 == 0 and "n=1" or nil }) end
      local r1, r2 = put("/a/1", field(1)), put("/a/2", "{")
      put("/a/3", field(1))
      for _, watch in ipairs(all) do
        assert.equal("added", watch:next(PATIENCE).type)
        local event = watch:next(PATIENCE)
        assert.same({ "error", "malformed", "/a/2", r2 }, { event.type, event.error.code, event.key, event.revision })
        assert.matches("^keywatch: the value of '/a/2' at revision %d+ cannot be used: ", event.error.message)
        for _ = 1, 3 do assert.equal("nil malformed", short(watch:next(PATIENCE))) end
        assert.is_true(event.error == watch:error() and watch.revision == r1)
      end
    end)

    it("skips a value that cannot be decoded with on_bad_value, and reports it", function()
      for _, fields in ipairs { false, { n = { 1, 2 } } } do
        local reported = {}
        local watch = open(x, { codec = "json", fields = fields or nil, on_bad_value = "skip",
          on_error = function(err, key) reported[#reported + 1] = err.code .. " " .. key end,
          transform = function(object) return ("%d"):format(object.n) end })
        local r1 = put("/a/1", field(1))
        put("/a/1", "{")
        local r2 = put("/a/1", field(2))
        put("/a/1", "{")
        delete("/a/1")
        local r3 = put("/a/1", field(1))
        -- An unreadable old value counts as not matching: so its object is added again, and its deletion not reported.
        local type = fields and "added" or "modified"
        assert.same({ "added /a/1 1 " .. r1, type .. " /a/1 2 " .. r2, "added /a/1 1 " .. r3 }, read(watch, 3))
        assert.same({ "malformed /a/1", "malformed /a/1" }, reported)
        assert.equal(2, watch:status().skipped)
        delete("/a/1")
        watch:close()
      end
    end)

    it("raises its error in a loop, which ends silently only after close", function()
      local watch = open(x, { codec = "json" })
      put("/a/1", field(1))
      put("/a/2", "{")
      local seen = {}
      local ok, err = pcall(function()
        for event in watch:events() do seen[#seen + 1] = event.type end
      end)
      assert.same({ false, "malformed", { "added" } }, { ok, err.code, seen })
      assert.equal("malformed", select(2, pcall(watch:events())).code)
      local other = open(x)
      other:close()
      for _ in other:events() do error("an event after close") end
    end)

    it("tests keys with include before it decodes values", function()
      for _, opts in unshared_and_shared { include = function(key) return key ~= "/a/" end,
        transform = function(object) return ("%d"):format(object.n) end } do
        local watch = open(x, opts)
        put("/a/", "the directory")
        local r1 = put("/a/1", field(1))
        delete("/a/")
        local r2 = delete("/a/1")
        assert.same({ "added /a/1 1 " .. r1, "deleted /a/1 1 " .. r2 }, read(watch, 2))
      end
    end)

    it("gives each reader its own copy of an object", function()
      local all = {}
      for i = 1, 4 do all[i] = open(x, { codec = "json", fields = "n=1", old = i == 4 or nil }) end
      for i = 5, 6 do all[i] = open(x, { codec = "json", fields = "n=1", where = function(object)
        object.n, object.spoiled = 2, true
        return true
      end }) end
      put("/a/1", json { n = 1, list = { 1 } })
      put("/a/1", json { n = 1, list = { 2 } })
      for i, watch in ipairs(all) do
        for round = 1, 2 do
          local event = assert(watch:next(PATIENCE))
          assert.equal(round == 1 and "added" or "modified", event.type)
          assert.equal(round, event.object.list[1], i)
          assert.equal(i > 4 or nil, event.object.spoiled)
          event.object.list[1], event.object.spoiled = "spoiled", "spoiled"
        end
      end
    end)

    it("reports progress as a bookmark with only a revision", function()
      for _, opts in unshared_and_shared { bookmarks = 0.01 } do
        local watch = open(x, opts)
        local r1 = put("/a/1", field(1))
        local before, event = 0, nil -- luacheck: ignore 311
        repeat -- no earlier event exceeds a bookmark, and every later one does
          event = assert(watch:next(PATIENCE))
          local is_bookmark = event.type == "bookmark"
          if is_bookmark then assert.same({ type = "bookmark", revision = event.revision }, event) end
          assert(event.revision > before or is_bookmark and event.revision == before)
          before = event.revision
        until is_bookmark and event.revision >= r1
        local r2 = put("/a/1", field(1))
        repeat
          event = assert(watch:next(PATIENCE))
          assert(event.type == "bookmark" and event.revision < r2 or event.revision == r2)
        until event.type ~= "bookmark"
        watch:close()
        delete("/a/1")
      end
    end)

    it("works in keywatch.select, with others", function()
      local one, two = open(x), open(x, { codec = "json", fields = "n=1" }, "/a/x")
      local r1 = put("/a/1", "one")
      local found, event = keywatch.select { one, two, timeout = PATIENCE }
      assert.equal(one, found)
      assert.equal("added /a/1 one " .. r1, short(event))
      put("/a/x1", field(1))
      for _ = 1, 2 do assert.equal("/a/x1", select(2, keywatch.select { one, two, timeout = PATIENCE }).key) end
      assert.equal("timeout", answer.code(keywatch.select { one, two, timeout = 0 }))
      one:close()
      assert.equal(one, (keywatch.select { one, two, timeout = PATIENCE }))
    end)

    it("wakes a waiting task", within.task(function()
      local watches, tasks = {}, {}
      for i = 1, 6 do
        watches[i] = open(x, { codec = "json", fields = i > 2 and "n=" .. i or nil })
        tasks[i] = keywatch.spawn(watches[i].next, watches[i], PATIENCE)
      end
      keywatch.sleep(0)
      for i = 3, 6 do put("/a/" .. i, field(i)) end
      for i, task in ipairs(tasks) do assert.equal("/a/" .. math.max(3, i), select(2, task:join(PATIENCE)).key) end
      local waiting = keywatch.spawn(watches[3].next, watches[3])
      keywatch.sleep(0)
      watches[3]:close()
      assert.same({ true }, { waiting:join(PATIENCE) })
    end))

    it("has a tostring", function()
      local watch = open(x)
      assert.matches('^keywatch.object_watch<key="/a/" revision=%d+ open>$', tostring(watch))
      for _ = 1, 2 do watch:close() end
      assert.matches('closed>$', tostring(watch))
      assert.equal("closed", watch:status().state)
    end)
  end)
end

describe("an object watch", function()
  local store

  before_each(function() store = open_store() end)

  it("fails with a clear error if it needs a compacted previous value", function()
    store:put("/a/1", "one")
    store:put("/a/1", "two")
    store:compact(3)
    local watch = open_at(store, { start_revision = 3 })
    local event = watch:next(0)
    assert.same({ "error", "compacted", "/a/1", 3 }, { event.type, event.error.code, event.key, event.revision })
    assert.equal("keywatch: the previous value of '/a/1', which revision 3 has replaced, is compacted: read the "
      .. "objects again", event.error.message)
    store:delete("/a/1")
    store:compact(4)
    assert.equal("error compacted", short(open_at(store, { start_revision = 4 }):next(0)))
    store:put("/a/2", "new")
    store:compact(5)
    assert.equal("added /a/2 new 5", short(open_at(store, { start_revision = 5 }):next(0)))
    expect_nothing(open_at(store, { start_revision = 5, include = function() return false end }))
  end)

  it("receives the difference from a replica that has missed changes", function()
    local function kv(key, revision, n, create)
      return { key = key, value = field(n), create_revision = create or revision, mod_revision = revision,
        version = 1 + revision - (create or revision), lease = 0 }
    end
    local replica = open_store { replica = true }
    assert(replica:load_kvs(10, { kv("a", 3, 1), kv("b", 7, 1), kv("c", 5, 1), kv("d", 6, 2) }))
    local function n_of(object) return ("%d"):format(object.n) end
    local all = open_at(replica, { codec = "json", transform = n_of }, "")
    local some = open_at(replica, { codec = "json", fields = "n=1", transform = n_of }, "")
    assert(replica:merge_kvs(20, {
      kv("b", 15, 2, 12),  -- deleted, and created with another state
      kv("c", 16, 3, 5),   -- changed
      kv("d", 17, 1, 6),   -- changed
      kv("e", 18, 1, 11),  -- created and changed
      kv("f", 14, 1),      -- created
    }))
    assert.same({ "added f 1 14", "modified b 2 15", "modified c 3 16", "modified d 1 17", "added e 1 18",
      "deleted a 1 20" }, read(all, 6))
    assert.same({ "added f 1 14", "deleted b 1 15", "deleted c 1 16", "added d 1 17", "added e 1 18",
      "deleted a 1 20" }, read(some, 6))
    expect_nothing(some)
  end)

  it("does not match if a function raises, or returns nothing", function()
    local function failing() error("no") end
    for _, opts in ipairs {
      { where = failing }, { where = function() end }, { include = failing }, { include = function() end },
    } do
      local watch = open_at(store, opts)
      store:put("/a/1", "one")
      expect_nothing(watch)
      local status, n = watch:status(), (opts.where or opts.include) == failing and 1 or 0
      assert.same({ 1, n, n }, { status.filtered, status.failed_tests, #logs.lines })
      if n == 1 then
        assert.matches("^warn %l+ of an object watch has failed, and the object does not match: ", logs.lines[1])
      end
      logs.begin()
      store:delete("/a/1")
      watch:close()
    end
  end)

  it("deletes an object whose new state makes a function raise", function()
    local watch = open_at(store, { where = function(value) return value == "one" or error("no") end })
    for _, value in ipairs { "one", "two", "three" } do store:put("/a/1", value) end
    assert.same({ "added /a/1 one 2", "deleted /a/1 one 3" }, read(watch, 2))
    expect_nothing(watch)
  end)

  it("treats a value as undecodable if its codec or transform raises, or returns nothing", function()
    local function failing() error("broken", 0) end
    for _, opts in ipairs {
      { codec = { decode = failing } }, { codec = { decode = function() return nil, "broken" end } },
      { transform = failing }, { codec = { decode = function() end } }, { transform = function() end },
      { codec = { decode = function() error(setmetatable({}, { __tostring = failing })) end } },
    } do
      local watch = open_at(store, opts)
      store:put("/a/1", "one")
      assert.equal("error malformed", short(watch:next(0)))
      opts.on_bad_value = "skip"
      local got = {}
      opts.on_error = function(err, key)
        got[#got + 1] = err.code .. key
        error("no")
      end
      local skipping = open_at(store, opts)
      store:put("/a/1", "two")
      expect_nothing(skipping)
      assert.same({ "malformed/a/1" }, got)
      assert.matches("^error on_error of an object watch has failed: ", logs.lines[1])
      logs.begin()
      store:delete("/a/1")
      skipping:close()
    end
  end)

  it("fails if the previous value of a deleted object cannot be decoded", function()
    store:put("/a/1", "{")
    local watch = open_at(store, { codec = "json" })
    store:delete("/a/1")
    assert.equal("error malformed", short(watch:next(0)))
  end)

  it("can be closed by its own callbacks", function()
    for _, option in ipairs { "include", "where", "transform" } do
      local watch
      watch = open_at(store, { [option] = function(object)
        watch:close()
        return object
      end })
      store:put("/a/1", "one")
      assert.equal("nil", short(watch:next(0)))
    end
  end)

  it("decodes each value no more often than necessary", function()
    for least, opts in pairs { [3] = {}, [4] = { where = function() return true end } } do
      local decoded, transformed = 0, {}
      opts.codec = { decode = function(value)
        decoded = decoded + 1
        return { n = value }
      end }
      function opts.transform(object, event)
        transformed[#transformed + 1] = object.n .. " " .. event.type
        return object
      end
      local watch = open_at(store, opts)
      for _, value in ipairs { "1", "2" } do store:put("/a/1", value) end
      store:delete("/a/1")
      read(watch, 3)
      assert.same({ least, least }, { decoded, watch:status().decoded })
      assert.same({ "1 added", "2 modified", "2 deleted" }, transformed)
      watch:close()
    end
  end)

  it("keeps null in objects, and treats it as absent in selectors", function()
    local watch = open_at(store, { codec = "json", fields = "a=" })
    store:put("/a/1", '{"a":null}')
    assert.equal(require("keywatch.json").null, watch:next(0).object.a)
  end)

  it("combines keys and selectors", function()
    local function pod(node) return json { metadata = { name = "x" }, spec = { nodeName = node } } end
    -- Key, is_prefix, selector, and the events when /a/1 becomes n1, n2, n1 and is deleted, and /a/2 becomes n1.
    for i, case in ipairs {
      { "/a/1", false, nil, "added modified modified deleted" },
      { "/a/1", false, "spec.nodeName=n1", "added deleted added deleted" },
      { "/a/1", false, "spec.nodeName!=n1", "added deleted" },
      { "/a/", true, "spec.nodeName=n1", "added deleted added deleted added" },
      { "/a/", true, "spec.nodeName=n2", "added deleted" },
      { "/a/", true, "metadata.name=x,spec.nodeName=n1", "added deleted added deleted added" },
      { "/a/", true, "metadata.name=y", "" },
      { "/a/", true, "metadata.name!=y", "added modified modified deleted added" },
      { "/b/", true, "metadata.name=x", "" },
    } do
      local watch = close_later(assert(store:object_watch(case[1], {
        prefix = case[2], fields = case[3], codec = "json",
      })))
      for _, node in ipairs { "n1", "n2", "n1" } do store:put("/a/1", pod(node)) end
      store:delete("/a/1")
      store:put("/a/2", pod("n1"))
      local seen = {}
      for event in function() return (watch:next(0)) end do seen[#seen + 1] = event.type end
      assert.equal(case[4], table.concat(seen, " "), i)
      store:delete("/a/2")
      watch:close()
    end
  end)

  it("selects objects by a function of their keys", function()
    local watch = open_at(store, { include = function(key) return key:byte(-1) % 2 == 0 end })
    for i = 1, 9 do store:put("/a/" .. i, "v") end
    for _, i in ipairs { 2, 4, 6, 8 } do assert.equal("/a/" .. i, watch:next(0).key) end
    expect_nothing(watch)
  end)

  it("ends cleanly after its lifetime, with a bookmark of its last revision", within.world(function()
    store = open_store()
    for _, bookmarks in ipairs { "default", false, true } do
      for _, opts in unshared_and_shared { lifetime = 10 } do
        if bookmarks ~= "default" then opts.bookmarks = bookmarks end
        local watch = open_at(store, opts)
        local r1 = store:put("/a/1", field(1)).revision
        assert.equal(r1, watch:next().revision)
        local r2 = store:put("/b/1", "of others").revision
        keywatch.sleep(9)
        assert.equal("nil timeout", short(watch:next(0.5)))
        local event = watch:next()
        if bookmarks ~= false then
          assert.same({ type = "bookmark", revision = r2 }, event)
          event = watch:next()
        end
        assert.same({ nil, nil, "ended" }, { event, watch:error(), watch:status().state })
        for _ in watch:events() do error("an event after the end") end
        store:delete("/a/1")
      end
    end
  end))

  it("reports a whole revision before it ends", within.world(function()
    store = open_store()
    for _, opts in unshared_and_shared { lifetime = 10 } do
      local watch = open_at(store, opts)
      local done = store:txn { success = { { put = "/a/1", value = field(1) }, { put = "/a/2", value = field(1) } } }
      store:put("/a/3", field(1))
      assert.equal("/a/1", watch:next().key)
      keywatch.sleep(20)
      assert.equal("/a/2", watch:next().key)
      assert.same({ type = "bookmark", revision = done.revision }, watch:next())
      assert.is_nil((watch:next()))
      store:delete("/a/", { prefix = true })
    end
  end))

  it("sends bookmarks at intervals, also after writes of other keys, and ends during a select", within.world(function()
    store = open_store()
    for _, opts in unshared_and_shared { lifetime = 35, bookmarks = 10 } do
      local watch = open_at(store, opts)
      for i = 1, 4 do
        local revision = store:put("/b/1", "v").revision
        local found, event = keywatch.select { watch }
        assert.equal(watch, found)
        assert.same({ type = "bookmark", revision = revision }, event, i)
      end
      local found, event, failed = keywatch.select { watch }
      assert.same({ watch, nil, nil }, { found, event, failed })
    end
  end))

  it("sends no bookmarks unless requested, and still tracks progress", function()
    for _, opts in unshared_and_shared() do
      local watch = open_at(store, opts)
      local revision = store:put("/b/1", "v").revision
      assert((watch.watch or watch.entry.dispatcher.watch).core:request_progress())
      expect_nothing(watch)
      assert.equal(revision, watch.revision)
    end
  end)

  it("lets other tasks run while it skips changes", within.task(function()
    for _, is_selected in ipairs { false, true } do
      local first = store:status().revision + 1
      for i = 1, 10000 do store:put("/a/" .. i, "v") end
      store:put("/a/wanted", "wanted")
      local watch = open_at(store, { start_revision = first, where = function(value) return value == "wanted" end })
      local turns, is_done = 0, false
      local other = keywatch.spawn(function()
        while not is_done do
          turns = turns + 1
          keywatch.sleep(0)
        end
      end)
      local event = is_selected and select(2, keywatch.select { watch, timeout = PATIENCE })
        or not is_selected and watch:next(PATIENCE)
      is_done = true
      other:join()
      assert.is_true(event.object == "wanted" and turns >= 3, turns)
      watch:close()
    end
  end))

  it("reports that its store is closed", function()
    for _, opts in unshared_and_shared() do
      local other = keywatch.open()
      local watch = open_at(other, opts)
      other:put("/a/1", field(1))
      keywatch.run(function()
        local waiting = keywatch.spawn(function()
          watch:next()
          return watch:next()
        end)
        keywatch.sleep(0)
        other:close()
        local _, event = waiting:join(PATIENCE)
        assert.same({ "error", "closed" }, { event.type, event.error.code })
      end)
    end
  end)

  it("can be closed before it is read, and then sends nothing", function()
    local client = open_client()
    local watch = open_at(client, { initial = true })
    watch:close()
    assert.same({}, { watch:next() })
  end)

  it("raises in a cancelled task, and still works", within.task(function()
    local watch = open_shared(store)
    local waiting = keywatch.spawn(function() watch:next() end)
    keywatch.sleep(0)
    waiting:cancel()
    local _, err = waiting:join()
    assert.equal("cancelled", err.code)
    store:put("/a/1", field(1))
    assert.equal("added", watch:next(0).type)
  end))

  it("is collected when it has no more references", function()
    for _, opts in unshared_and_shared { prefix = true } do
      local weak = setmetatable({}, { __mode = "v" })
      do
        local watch = assert(store:object_watch("/a/", opts))
        weak[1] = watch
        if opts.fields then weak[2] = watch.entry.dispatcher end
      end
      for _ = 1, 5 do collectgarbage() end
      assert.same({}, weak)
    end
  end)

  it("loses no event if a reader is cancelled in a callback", function()
    local is_slow = false
    local function wait()
      if is_slow then
        is_slow = false
        keywatch.sleep(60)
      end
      return true
    end
    for _, opts in ipairs {
      { where = wait }, { codec = { decode = function(value) return wait() and value end } },
      { transform = function(object) return wait() and object end },
    } do
      keywatch.run(function()
        local watch = open_at(store, opts)
        local seen = {}
        local function note()
          while true do seen[#seen + 1] = watch:next().object end
        end
        local task = keywatch.spawn(note)
        keywatch.sleep(0)
        is_slow = true
        store:put("/a/1", "1")
        while is_slow do keywatch.sleep(0) end
        task:cancel()
        assert.is_false((task:join()))
        store:put("/a/1", "2")
        task = keywatch.spawn(note)
        task:join(0.02)
        assert.same({ "1", "2" }, seen)
        task:cancel()
      end)
    end
  end)
end)

describe("object watches that share", function()
  for _, name in ipairs { "store", "client", "cache" } do
    it("examine a change once for all, of a " .. name, function()
      local x, writer = openers[name]()
      local N = is_fast and 200 or name == "client" and 1000 or 10000
      local all = {}
      for i = 1, N do
        local opts = { prefix = true, codec = "json" }
        if i % 2 == 0 then opts.fields = "spec.node=" .. i else opts.labels = "node=" .. i end
        all[i] = assert(x:object_watch("/a/", opts))
      end
      local function value(i) return json { metadata = { labels = { node = tostring(i) } }, spec = { node = i } } end
      local CHANGES = 100
      for i = 1, CHANGES do writer:put("/a/1", value(i)) end -- each moves the object to the next watch
      for i = 1, CHANGES do
        assert.equal("added", all[i]:next(PATIENCE).type)
        if i < CHANGES then assert.equal("deleted", all[i]:next(PATIENCE).type) end
        assert.equal("nil timeout", short(all[i]:next(0)))
      end
      local shared = all[1]:status().shared
      assert.equal(N, shared.watches)
      assert.equal(CHANGES, shared.changes)
      assert.equal(CHANGES * 2 - 1, shared.decoded)
      assert(shared.tested <= CHANGES * 8, shared.tested)
      for i = CHANGES + 1, N, 50 do assert.equal(0, all[i]:status().received) end
      if name == "client" then assert.equal(1, (x.transport.watch_calls:count())) end
      for _, watch in ipairs(all) do watch:close() end
      assert.is_nil(all[1].entry)
    end)
  end

  it("each begin at their own revision", with_store(function(store)
    local function value(i) return json { n = 1, i = i } end
    local function first(opts)
      opts.transform = function(object) return ("%d"):format(object.i) end
      return open_shared(store, opts)
    end
    local one = first {}
    for i = 1, 10 do store:put("/a/1", value(i)) end
    local now, past, future, all = first {}, first { start_revision = 5 }, first { start_revision = 15 },
      first { initial = true }
    for i = 11, 20 do store:put("/a/1", value(i)) end
    local function upto(from, to)
      local list = {}
      for i = from, to do list[#list + 1] = i .. "@" .. i + 1 end
      return table.concat(list, " ")
    end
    assert.same({ upto(11, 20), upto(14, 20), upto(4, 20), "10@11 synced@11 " .. upto(11, 20), upto(1, 20) },
      { drain(now), drain(future), drain(past), drain(all), drain(one) })
    for _, watch in ipairs { one, now, past, future, all } do
      assert.equal(5, watch:status().shared.watches)
      assert.equal(one.entry.dispatcher, watch.entry.dispatcher)
    end
  end))

  it("all fail if a previous value is compacted that one of them may need", with_store(function(store)
    for _ = 1, 5 do store:put("/a/1", field(1)) end
    store:compact(6)
    local watch = open_shared(store)
    local underlying = watch.entry.dispatcher.watch
    underlying.buffer, underlying.at, underlying.n = { { type = "put", key = "/a/1", value = field(2),
      create_revision = 2, mod_revision = 6, version = 5, lease = 0 } }, 0, 1
    watch.entry.floor = 5
    assert.equal("error compacted", short(watch:next(0)))
  end))

  it("do not share with a watch of a future revision until it has begun", with_store(function(store)
    local future = open_shared(store, { start_revision = 10 })
    expect_nothing(future)
    local now = open_shared(store)
    for revision = 2, 12 do
      store:put("/a/1", field(1))
      assert.equal(revision, now:next(0).revision)
      if revision < 10 then expect_nothing(future) else assert.equal(revision, future:next(0).revision) end
    end
    expect_nothing(future)
    assert.equal(2, future:status().shared.watches)
  end))

  it("are not joined by a watch that lags behind their first revision", with_store(function(store)
    store:put("/a/1", field(1))
    local late = open_shared(store, { start_revision = 2 })
    local is_held, origin = false, late.watch.origin
    late.watch.origin = setmetatable({ take = function(watch)
      if not is_held then return origin.take(watch) end
    end }, { __index = origin })
    local event = late.watch:next(0) -- now its watch has begun, and no further event has arrived
    late.watch.buffer, late.watch.at, late.watch.n = { event }, 0, 1
    is_held = true
    for _ = 1, 10 do store:put("/a/1", field(1)) end
    local now = open_shared(store)
    assert.equal(2, late:next(0).revision)
    expect_nothing(late)
    is_held = false
    for revision = 3, 12 do assert.equal(revision, late:next(0).revision) end
    store:put("/a/1", field(1))
    for _, watch in ipairs { late, now } do
      assert.equal(13, watch:next(0).revision)
      expect_nothing(watch)
      assert.equal(2, watch:status().shared.watches)
    end
  end))

  it("do not report writes from before they began, of a client", function()
    local client, store = open_client()
    local one = open_shared(client)
    for i = 1, 20 do
      local revision = store:put("/a/1", field(1)).revision
      local watch = open_shared(client)
      local later = store:put("/a/1", field(1)).revision
      assert.equal(revision + 1, later)
      assert.equal(later, watch:next(PATIENCE).revision, i)
    end
    for i = 1, 40 do assert.equal(i + 1, one:next(PATIENCE).revision) end
  end)

  for _, name in ipairs { "store", "client", "cache" } do
    it("let an unread watch lag, which then catches up, of a " .. name, function()
      local x, writer = openers[name]()
      local fast = open_shared(x)
      local slow = open_shared(x, { max_bytes = 5000 })
      local bystander = open_shared(x, {}, "n=2")
      for round = 1, 3 do
        local expected = {}
        for i = 1, 50 do
          local value = json { n = 1, i = i }
          local done = assert(writer:txn {
            success = { { put = "/a/1", value = value }, { put = "/a/2", value = value } },
          })
          for n = 1, 2 do expected[2 * i - 2 + n] = { done.revision, "/a/" .. n } end
        end
        for _, watch in ipairs { fast, round < 3 and slow or nil } do
          for i = 1, 100 do
            local event = watch:next(PATIENCE)
            assert.same(expected[i], { event.revision, event.key })
          end
          expect_nothing(watch)
        end
      end
      local status = slow:status()
      assert(status.times_behind >= 2 and status.most_queued_bytes <= 5000 and status.most_queued_bytes > 1000)
      assert.same({ 0, 0 }, { status.most_queued % 2, fast:status().times_behind })
      expect_nothing(bystander)
    end)
  end

  it("continue in the next keywatch.run if one ends while a watch is reopened", function()
    local client, writer = open_client()
    local real, opens, fast, slow = client.watch, 0, nil, nil
    keywatch.run(function()
      fast, slow = open_shared(client), open_shared(client, { max_bytes = 100 })
      for _, one in ipairs { fast, slow } do expect_nothing(one) end
      for i = 1, 10 do assert(writer:put("/a/1", json { n = 1, i = i })) end
      for _ = 1, 10 do assert(fast:next(PATIENCE)) end
      client.watch = function(...)
        opens = opens + 1
        if opens == 1 then keywatch.sleep(1000) end
        return real(...)
      end
      while opens == 0 do slow:next(0.001) end
    end)
    local event
    repeat event = assert(slow:next(PATIENCE)) until event.object.i == 10
    assert.equal(2, opens)
  end)

  it("fail with compacted only where the needed history is compacted", with_store(function(store)
    local fast = open_shared(store)
    local slow = open_shared(store, { max_bytes = 1000 })
    for _ = 1, 100 do
      store:put("/a/1", field(1))
      fast:next(0)
    end
    store:compact(store:status().revision)
    local event
    repeat event = slow:next(0) until not event or event.type == "error"
    assert.equal("compacted", event.error.code)
    store:put("/a/1", field(1))
    assert.equal("modified", fast:next(0).type)
  end))

  it("close their shared watch with the last of them, and can be opened again", with_store(function(store)
    for _ = 1, 3 do
      local one = open_shared(store)
      local two = open_shared(store, {}, "n=2")
      local underlying = one.entry.dispatcher.watch
      assert.equal(2, one:status().shared.watches)
      one:close()
      assert.is_false(underlying.is_closed)
      store:put("/a/1", field(2))
      assert.equal("/a/1", two:next(0).key)
      two:close()
      assert.is_true(underlying.is_closed)
      store:delete("/a/1")
    end
  end))

  it("end with a bookmark below the first unread change", within.world(function()
    local store = open_store()
    local watch = open_shared(store, { bookmarks = true, lifetime = 10 })
    local other = open_shared(store, {}, "n=2")
    store:put("/b/1", "v")
    assert(other.entry.dispatcher.watch.core:request_progress())
    expect_nothing(other)
    local revision = store:put("/a/1", field(1)).revision
    expect_nothing(other)
    keywatch.sleep(20)
    local event = watch:next(0)
    assert(event.type == "bookmark" and event.revision < revision)
  end))

  it("receive bookmarks in order of revision, from progress and from intervals", function()
    local client, writer = openers.client()
    local watch = open_shared(client, { bookmarks = 1000 })
    local revision = writer:put("/b/1", "v").revision
    local event
    repeat
      local underlying = watch.entry.dispatcher.watch
      if underlying.watch_calls:is_trusted(underlying) then underlying.watch_calls:request_progress(underlying) end
      event = watch:next(0.01)
    until event and event.revision >= revision
    watch.bookmark_at = 0
    local following = watch:next(PATIENCE)
    assert(following.type == "bookmark" and following.revision >= event.revision)
  end)

  it("are not joined if their watch has failed and no reader has noticed it", function()
    for _, is_initial in ipairs { false, true } do
      local store = open_store()
      local old = open_shared(store, { max_bytes = 1000 })
      for _ = 1, 100 do store:put("/a/1", field(1)) end
      store:compact(store:status().revision)
      local new = open_shared(store, { initial = is_initial })
      if is_initial then assert.same({ "added /a/1 {\"n\":1} 101", "synced 101" }, read(new, 2)) end
      expect_nothing(new)
      store:put("/a/1", field(1))
      assert.same({ 'modified /a/1 {"n":1} 102' }, read(new, 1))
      local event
      repeat event = old:next(0) until event.type == "error"
      assert.equal("compacted", event.error.code)
    end
  end)

  it("do not fail with compacted if one that has not begun needs no compacted revision", with_store(function(store)
    local now = store:status().revision
    local one = open_shared(store, { max_bytes = 1000 })
    local ahead = open_shared(store, { start_revision = now + 60 })
    assert.equal(2, one:status().shared.watches)
    for _ = 1, 50 do store:put("/a/1", field(1)) end
    store:compact(now + 50)
    expect_nothing(ahead)
    for _ = 1, 20 do store:put("/a/1", field(1)) end
    for i = 60, 70 do assert.equal(now + i, ahead:next(0).revision) end
    expect_nothing(ahead)
  end))

  it("receive every change once, though a codec waits in the middle of a revision", within.task(function()
    local store = open_store()
    local codec = { decode = function(value)
      keywatch.sleep(0.001)
      return cjson.decode(value)
    end }
    local one = open_at(store, { codec = codec, fields = "n=1" })
    local small = open_at(store, { codec = codec, fields = "n=1", max_bytes = 600, bookmarks = true })
    local success, expected = {}, {}
    for i = 1, 4 do
      success[i] = { put = "/a/" .. i, value = field(1) }
      expected[i] = ("added /a/%d %s 2"):format(i, field(1))
    end
    local found = {}
    local first = keywatch.spawn(function() found[1] = read(small, 1)[1] end) -- reads as soon as an event arrives
    store:txn { success = success }
    assert.same(expected, read(one, 4))
    first:join()
    for i = 2, 4 do found[i] = read(small, 1)[1] end
    assert.same(expected, found)
    expect_nothing(small)
  end))

  --- Calls main() repeatedly; the n-th time with fn() called at the n-th function call in it, like a finalizer. `begin`
  -- returns fn, main and a function that checks the outcome: it receives whether main made n calls, and n.
  local function interrupt_each(begin)
    local n, has_met = 0, true
    while has_met do
      n = n + 1
      local fn, main, check = begin()
      has_met = interrupting.at(n, { ".*" }, fn, main)
      check(has_met, n)
    end
    assert(n > 20)
  end

  it("lose no event if another one is closed while one joins", function()
    interrupt_each(function()
      local store = open_store()
      local one, two = open_shared(store), nil
      return function() one:close() end, function() two = open_shared(store) end, function(_, n)
        one:close()
        store:put("/a/1", field(1))
        assert.equal(('added /a/1 %s 2'):format(field(1)), short(two:next(0)), n)
        two:close()
      end
    end)
  end)

  it("do not stay counted if they are closed while they join", function()
    interrupt_each(function()
      local store = open_store()
      local one, two = open_shared(store), open_shared(store, { initial = true })
      assert.equal("synced 1", short(two:next(0)))
      return function() two:close() end, function() two:next(0) end, function(has_met, n)
        if has_met then assert.equal(1, one:status().shared.watches, n) end
      end
    end)
  end)

  it("send no event after close, though their watch is being opened", within.task(function()
    local client, writer = openers.client()
    local fast = open_shared(client)
    local slow = open_shared(client, { max_bytes = 1000 })
    for _ = 1, 30 do writer:put("/a/1", field(1)) end
    for _ = 1, 30 do assert(fast:next(PATIENCE)) end
    while slow:next(0) do end
    local opener = assert(slow.opener.task)
    keywatch.sleep(0)
    slow:close()
    opener:join(PATIENCE)
    assert.same({ "nil", nil }, { short(slow:next(0)), slow:error() })
  end))

  it("do not share between different codecs, ranges or stores", function()
    local store, codec = open_store(), { decode = require("keywatch.json").decode }
    local all = {
      open_shared(store), open_at(store, { codec = "json", fields = "n=1" }, "/a"),
      open_shared(store, { is_single = true }), open_shared(open_store()),
      open_shared(store, { codec = { decode = function(value) return cjson.decode(value) end } }),
    }
    for _, watch in ipairs(all) do assert.equal(1, watch:status().shared.watches) end
    assert.equal(2, open_at(store, { codec = codec, fields = "n=1" }):status().shared.watches)
    assert.is_nil(open_at(store, { codec = "json", fields = "n!=1" }):status().shared)
  end)

  it("each handle an undecodable value by their own option", with_store(function(store)
    local skipped = 0
    local failing = open_shared(store)
    local skipping = open_at(store, { codec = "json", fields = "n=2", on_bad_value = "skip",
      on_error = function() skipped = skipped + 1 end })
    local selective = open_at(store, { codec = "json", fields = "n=2",
      include = function(key) return key ~= "/a/bad" end })
    store:put("/a/bad", "{")
    store:put("/a/1", field(2))
    assert.same({ "error malformed", "/a/1" }, { short(failing:next(0)), skipping:next(0).key })
    assert.same({ "/a/1", 1 }, { selective:next(0).key, skipped })
  end))
end)

-- Filters: options, and the equivalent function of an object and its key.
local FILTERS = {
  { {}, function() return true end },
  { { fields = "n=1" }, function(object) return object.n == 1 end },
  { { fields = "n=2" }, function(object) return object.n == 2 end },
  { { fields = { n = { 1, 3 } } }, function(object) return object.n == 1 or object.n == 3 end },
  { { labels = "color=red" }, function(object) return object.color == "red" end },
  { { labels = "color in (red,blue)", fields = "n!=1" },
    function(object) return (object.color == "red" or object.color == "blue") and object.n ~= 1 end },
  { { labels = "!color" }, function(object) return object.color == nil end },
  { { fields = "n=1", where = function(object) return #object.id % 2 == 0 end },
    function(object) return object.n == 1 and #object.id % 2 == 0 end },
  { { fields = "n=3", include = function(key) return key ~= "/a/2" end },
    function(object, key) return object.n == 3 and key ~= "/a/2" end },
}

describe("object watches at random", function()
  for _, name in ipairs { "store", "client", "cache" } do
    it("report every matching change, shared or not, of a " .. name, function()
      local outcomes = { "left behind", "shared", name ~= "cache" and "compacted" or nil }
      local counts = occurrences.await(outcomes, is_fast and 2 or 8, function(round)
        local seen = { ["left behind"] = 0, shared = 0, events = 0, compacted = 0 }
        local random = new_random(seed + round)
        local x, writer = openers[name]()
        local state, history, running = {}, {}, {} -- history: { revision, key, old, new }, objects or nil
        local first = writer:status().revision

        local function any_object()
          if random:one_in(4) then return nil end
          return { n = random:between(1, 3), id = ("x"):rep(random:between(1, 200)),
            color = ({ "red", "blue", "green" })[random:between(1, 4)] }
        end

        local function change()
          local ops, changed = {}, {}
          for _ = 1, random:between(1, 3) do
            local key, new = "/a/" .. random:between(1, 4), any_object()
            if not changed[key] then
              changed[key] = { key = key, old = state[key], new = new }
              local value = new and json { n = new.n, id = new.id, metadata = { labels = { color = new.color } } }
              ops[#ops + 1] = new and { put = key, value = value } or { delete = key }
            end
          end
          local revision = assert(writer:txn { success = ops }).revision
          for _, op in ipairs(ops) do
            local one = changed[op.put or op.delete]
            one.revision, state[one.key] = revision, one.new
            if one.old or one.new then history[#history + 1] = one end
          end
          if name ~= "cache" and random:one_in(20) then writer:compact(math.max(first, revision - 30)) end
        end

        local function start()
          local filter, now = random:pick(FILTERS), writer:status().revision
          local opts = { prefix = true, codec = "json" }
          if random:one_in(2) then opts.max_bytes = random:between(2000, 10000) end
          for option, given in pairs(filter[1]) do opts[option] = given end
          if name == "cache" then assert(x:wait_for(now, PATIENCE)) end
          opts.initial = random:one_in(3) or nil
          if not opts.initial and random:one_in(2) and now > first + 1 then
            opts.start_revision = random:between(first + 1, now + 2)
          end
          local one = { watch = assert(x:object_watch("/a/", opts)), matches = filter[2], seen = {}, initial = {},
            from = opts.start_revision or now + 1 }
          for key, object in pairs(opts.initial and state or {}) do
            if one.matches(object, key) then one.initial[key] = object.id end
          end
          running[#running + 1] = one
        end

        local function take(one, timeout)
          if one.has_failed then return false end
          local event, err = one.watch:next(timeout)
          if not event then
            assert.equal("timeout", err.code)
            return false
          end
          if event.type == "error" then
            assert.equal("compacted", event.error.code)
            one.has_failed = true
            return false
          end
          if event.initial then
            assert.equal(one.initial[event.key], event.object.id)
            one.initial[event.key] = nil
          elseif event.type == "synced" then
            assert.is_nil(next(one.initial))
          else
            one.seen[#one.seen + 1] = ("%s %s %s %d"):format(event.type, event.key, event.object.id, event.revision)
          end
          return true
        end

        local function expected_of(one)
          local list = {}
          for _, past in ipairs(history) do
            local key, old, new = past.key, past.old, past.new
            local is, was = new and one.matches(new, key), old and one.matches(old, key)
            local kind = is and (was and "modified" or "added") or was and "deleted"
            if kind and past.revision >= one.from then
              list[#list + 1] = ("%s %s %s %d"):format(kind, key, (is and new or old).id, past.revision)
            end
          end
          return list
        end

        for _ = 1, 150 do
          change()
          if random:one_in(4) and #running < 20 then start() end
          if random:one_in(10) and #running > 0 then
            table.remove(running, random:between(1, #running)).watch:close()
          end
          for _, one in ipairs(running) do
            local n = random:one_in(3) and random:between(1, 30) or 0
            while n > 0 and take(one, 0) do n = n - 1 end
          end
        end
        for _, one in ipairs(running) do
          local expected = expected_of(one)
          while #one.seen < #expected and take(one, PATIENCE) do end -- luacheck: ignore 542
          while take(one, 0) do end -- luacheck: ignore 542
          if one.has_failed then
            for i = #expected, #one.seen + 1, -1 do expected[i] = nil end
            seen.compacted = seen.compacted + 1
          end
          assert.same(expected, one.seen)
          local status = one.watch:status()
          seen["left behind"] = seen["left behind"] + status.times_behind
          seen.shared = seen.shared + (status.shared and 1 or 0)
          seen.events = seen.events + #one.seen
          one.watch:close()
        end
        informing.finish()
        return seen
      end)
      assert(counts.events > 100, counts.events .. " events")
    end)
  end
end)
