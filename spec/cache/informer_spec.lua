--- Informers: the events of handlers, for each kind of store; handlers that raise, wait, remove each other or are slow;
-- values that cannot be decoded; shared informers; and the end of an informer.

local keywatch = require "keywatch"

local informing = require "spec.cache.informing"
local logs = require "spec.support.logs"
local program = require "spec.support.program"
local within = require "spec.support.within"

local PATIENCE, MARK = informing.PATIENCE, informing.MARK
local close_later, open_store, open_client = informing.close_later, informing.open_store, informing.open_client
local record, record_gated, sorted = informing.record, informing.record_gated, informing.sorted
local await, collect = informing.await, informing.collect
local field, json = informing.field, informing.json

--- Opens an informer that ends with the test.
local function open(x, opts, prefix) return close_later(assert(x:informer(prefix or "/a/", opts))) end

--- The same, that has synced.
local function open_synced(x, opts, prefix)
  local informer = open(x, opts, prefix)
  assert(informer:wait_synced(PATIENCE))
  return informer
end

--- An informer, and a handler of it.
local function recorded(informer, opts) return informer, record(informer, opts) end

local function codes(ok, err) return { ok, err and err.code } end

before_each(informing.begin)
after_each(informing.finish)

-- The backends that run under valgrind and an eager collector; the others differ little from them.
local BASIC = { store = true, client = true, cache = true }

local function with_store(fn) return function() fn(open_store()) end end

for _, backend in ipairs(informing.backends) do
  local subject = ("an informer of a %s %s %s"):format(backend.name, backend.tag, BASIC[backend.name] and "" or "#slow")
  describe(subject, function()
    local x, writer

    if backend.begin then
      setup(backend.begin)
      teardown(backend.finish)
    end

    before_each(function() x, writer = backend.open() end)

    local function put(key, value) return assert(writer:put(key, value)).revision end
    local function delete(key) return assert(writer:delete(key)).revision end

    --- A test at top level, and in a task.
    local function each_it(title, fn)
      it(title .. ", at top level", fn)
      it(title .. ", in a task" .. (backend.name == "store" and "" or " #slow"), function() keywatch.run(fn) end)
    end

    each_it("reports existing objects, and then each one that is added, updated or deleted", function()
      put("/a/1", "one")
      put("/a/2", "two")
      put("/ab/1", "of a sibling")
      local _, rec = recorded(open(x))
      assert.same({ "add /a/1 one initial", "add /a/2 two initial" }, rec:take_sorted(2))
      assert(rec.handler:wait_synced(PATIENCE))
      put("/a/3", "three")
      put("/a/1", "new")
      put("/ab/1", "of a sibling again")
      delete("/a/2")
      delete("/a/1")
      put("/a/1", "again")
      assert.same({ "add /a/3 three", "update /a/1 new was one", "delete /a/2 two", "delete /a/1 new",
        "add /a/1 again" }, rec:take(5))
      assert.same({}, rec:rest(writer))
    end)

    each_it("has events with the revisions of changes", function()
      local r1 = put("/a/1", "one")
      local _, rec = recorded(open(x))
      assert(rec.handler:wait_synced(PATIENCE))
      local r2 = put("/a/1", "two")
      local r3 = delete("/a/1")
      local r4 = put("/a/1", "three")
      rec:take(4)
      local found = {}
      for i, call in ipairs(rec.calls) do
        local e = call.event
        found[i] = { e.type, e.object, e.old, e.revision, e.create_revision, e.initial, e.missed, e.resync }
      end
      assert.same({ { "added", "one", nil, r1, r1, true }, { "modified", "two", "one", r2, r1 },
        { "deleted", "two", nil, r3, r1 }, { "added", "three", nil, r4, r4 } }, found)
    end)

    each_it("can be read: one object, all, and their number", function()
      local r1 = put("/a/1", "one")
      put("/a/2", "two")
      put("/ab/1", "of a sibling")
      local informer = open(x)
      assert(informer:wait_synced(PATIENCE) and informer:has_synced())
      assert.same({ "one", r1 }, { informer:get("/a/1") })
      assert.same({}, { informer:get("/a/none") })
      assert.same({ "/a/1 one", "/a/2 two" }, sorted(informer:each()))
      assert.equal(2, informer:count())
      local rec = record(informer)
      rec:take(2)
      local r2 = put("/a/1", "new")
      delete("/a/2")
      rec:take(2)
      assert.same({ "new", r2 }, { informer:get("/a/1") })
      assert.same({}, { informer:get("/a/2") })
      assert.equal(1, informer:count())
    end)

    each_it("delivers the present objects to a late handler, and each handler syncs by itself", function()
      put("/a/1", "one")
      local informer = open_synced(x)
      local first = record(informer)
      assert.same({ "add /a/1 one initial" }, first:take(1))
      put("/a/2", "two")
      put("/a/1", "new")
      assert.same({ "add /a/2 two", "update /a/1 new was one" }, first:take(2))
      local late = record(informer)
      assert.same({ false, true }, { late.handler:has_synced(), first.handler:has_synced() })
      assert(late.handler:wait_synced(PATIENCE) and late.handler:has_synced())
      assert.same({ "add /a/1 new initial", "add /a/2 two initial" }, late:take_sorted(2))
      delete("/a/1")
      assert.same({ "delete /a/1 new" }, first:take(1))
      assert.same({ "delete /a/1 new" }, late:take(1))
      assert.same({}, first:rest(writer))
      assert.same({ "add " .. MARK .. " mark 1" }, late:take(1))
      assert.equal(2, informer:status().handlers)
    end)

    each_it("is synced at once if no object exists", function()
      local informer, rec = recorded(open(x))
      assert(informer:wait_synced(PATIENCE))
      assert(rec.handler:wait_synced(PATIENCE))
      assert.equal(0, informer:count())
      assert.same({}, sorted(informer:each()))
      assert.same({}, rec:rest(writer))
    end)

    each_it("adds objects that begin to match, and deletes objects that stop matching", function()
      local function value(n) return json { n = n, metadata = { labels = { n = tostring(n) } } } end
      local function n_of(object) return ("%d"):format(object.n) end
      for how, filter in pairs {
        where = { where = function(object) return object.n == 1 end },
        fields = { fields = "n=1" },
        labels = { labels = "n=1" },
        transformed = { fields = "n=1", transform = n_of },
      } do
        put("/a/1", value(1))
        put("/a/2", value(2))
        filter.codec = "json"
        if backend.name == "cache" then assert(x:wait_for(writer:status().revision, PATIENCE)) end
        local informer = open_synced(x, filter)
        await(function() return informer:get("/a/1") and informer:count() == 1 end, how) -- a cache may be behind
        local seen, done = {}, keywatch.channel(10)
        local function note(name)
          return function(key, object)
            seen[#seen + 1] = name .. key .. (type(object) == "table" and n_of(object) or object)
            if key == MARK then done:send(true, 0) end
          end
        end
        local handler = informer:add_handler { add = note "add", update = note "update", delete = note "delete" }
        assert(handler:wait_synced(PATIENCE))
        for _, n in ipairs { 1, 1, 3, 4 } do put("/a/2", value(n)) end
        delete("/a/2")
        delete("/a/1")
        put(MARK, value(1))
        assert(done:receive(PATIENCE))
        assert.same({ "add/a/11", "add/a/21", "update/a/21", "delete/a/21", "delete/a/11", "add" .. MARK .. "1" }, seen)
        assert.equal(1, informer:count())
        informer:close()
        delete(MARK)
      end
    end)

    each_it("tests keys with include before it decodes values", function()
      put("/a/skip", "{")
      local informer = open_synced(x, { codec = "json", include = function(key) return key ~= "/a/skip" end })
      local rec = record(informer)
      put("/a/skip", "{{")
      delete("/a/skip")
      assert.same({}, rec:rest(writer, field(1)))
      assert.equal(0, informer:status().bad)
    end)

    each_it("keeps the last good state of a value that cannot be decoded", function()
      put("/a/1", field(1))
      local informer = open_synced(x, { codec = "json", indexes = { n = function(object) return object.n end } })
      local rec = record(informer)
      rec:take(1)
      local r2 = put("/a/1", "{")
      put("/a/2", field(2))
      assert.same({ "error /a/1 malformed", 'add /a/2 {"n":2}' }, rec:take(2))
      assert.equal(r2, rec.calls[2].event.revision)
      assert.same({ 1, 1 }, { informer:get("/a/1").n, informer:index_count("n", 1) })
      assert.same({ '/a/1 {"n":1}', '/a/2 {"n":2}' }, sorted(informer:each()))
      local bad = {}
      for key, err, value in informer:bad_values() do bad[#bad + 1] = { key, err.code, value } end
      assert.same({ { "/a/1", "malformed", "{" } }, bad)
      assert.same({ 1, 2 }, { informer:status().bad, informer:status().objects })
      put("/a/1", field(3))
      assert.same({ 'update /a/1 {"n":3} was {"n":1}' }, rec:take(1))
      assert.same({ 0, nil }, { informer:status().bad, (informer:bad_values()()) })
      put("/a/1", "{")
      delete("/a/1")
      put("/a/3", "{")
      delete("/a/3")
      assert.same({ "error /a/1 malformed", 'delete /a/1 {"n":3}', "error /a/3 malformed" }, rec:take(3))
      assert.same({}, rec:rest(writer, field(9)))
      assert.equal(0, informer:status().bad)
    end)

    each_it("has updated its indexes before it calls its handlers", function()
      put("/a/1", "red one")
      local informer = open_synced(x, { indexes = { color = function(object) return object:match("^%a+") end } })
      assert.same({ "/a/1 red one" }, sorted(informer:by_index("color", "red")))
      local found = {}
      local rec = record(informer, { before = function(_, key)
        if key ~= "/a/1" then return end
        local red, blue = informer:index_count("color", "red"), informer:index_count("color", "blue")
        found[#found + 1] = ("%d %d"):format(red, blue)
      end })
      rec:take(1)
      put("/a/1", "blue one")
      rec:take(1)
      delete("/a/1")
      rec:take(1)
      assert.same({ "1 0", "0 1", "0 0" }, found)
    end)

    each_it("reports both changes of a key in one revision", function()
      local informer, rec = recorded(open_synced(x))
      assert(rec.handler:wait_synced(PATIENCE))
      local function put_and_delete(value)
        assert(writer:txn { success = {
          { txn = { success = { { put = "/a/1", value = value } } } }, { txn = { success = { { delete = "/a/1" } } } },
        } })
      end
      put_and_delete "one"
      local got = rec:rest(writer)
      if #got > 0 then assert.same({ "add /a/1 one", "delete /a/1 one" }, got) end -- a second read
      put("/a/1", "two")
      assert.same({ "add /a/1 two" }, rec:take(1))
      assert.equal("two", informer:get("/a/1"))
      put_and_delete "three"
      assert.same({ "update /a/1 three was two", "delete /a/1 three" }, rec:take(2))
      assert.is_nil((informer:get("/a/1")))
    end)

    each_it("reports the expiry of a lease", function()
      if not writer.lease then return end
      local _, rec = recorded(open_synced(x))
      local lease = assert(writer:lease(60))
      assert(writer:put("/a/leased", "x", { lease = lease }))
      assert(lease:revoke())
      assert.same({ "add /a/leased x", "delete /a/leased x" }, rec:take(2))
    end)

    each_it("wakes the waiters for its sync", function()
      local informer, tasks = open(x), {}
      for i = 1, 5 do tasks[i] = keywatch.spawn(informer.wait_synced, informer, PATIENCE) end
      for _, task in ipairs(tasks) do assert.same({ true, true }, { task:join(PATIENCE) }) end
      assert.same({ true, "following" }, { informer:wait_synced(0), informer:status().phase })
    end)

    each_it("calls no handler after close, and its reads raise", function()
      put("/a/1", "one")
      local informer, rec = recorded(open_synced(x))
      rec:take(1)
      for _ = 1, 2 do informer:close() end
      put("/a/1", "two")
      local other = record(open(x))
      repeat local text = other:take(1)[1] until text:find("^%l+ /a/1 two") or text:find("timeout") -- a cache may lag
      assert.same({ "two", 1 }, { other.informer:get("/a/1"), #rec.calls })
      assert.is_string((informer:get("/a/1"))) -- it may share the objects with the other one
      assert.same({ "closed", true }, { informer:status().phase, informer:status().is_stale })
      assert.same({ nil, "closed" }, codes(informer:wait_synced(0)))
      assert(rec.handler:join(PATIENCE))
      rec.handler:close()
    end)

    each_it("is shared by users with the same options, and ends with the last of them", function()
      put("/a/1", field(1))
      local decoded = 0
      local codec = { decode = function(value)
        decoded = decoded + 1
        return value
      end }
      local one, two = open(x, { codec = codec }), open(x, { codec = codec })
      local first, second = record(one), record(two)
      for i = 1, 2 do
        first:take(1)
        second:take(1)
        assert.same({ i, 2, 2 }, { decoded, one:status().users, two:status().users })
        if i == 1 then put("/a/1", field(2)) end
      end
      one:close()
      put("/a/1", field(3))
      assert.same({ ("update /a/1 %s was %s"):format(field(3), field(2)) }, second:take(1))
      assert.same({ 2, 1 }, { #first.calls, two:status().users })
      two:close()
      local three = open_synced(x, { codec = codec })
      assert.equal(1, three:status().users)
      assert.equal(field(3), three:get("/a/1"))
    end)
  end)
end

describe("the handlers of an informer", function()
  local store, informer

  before_each(function()
    store = open_store()
    informer = open_synced(store)
  end)

  local function put(key, value) return assert(store:put(key, value)).revision end

  it("may lack any function, but not all", function()
    local adds, deletes = record(informer, { only = { "add" } }), record(informer, { only = { "delete" } })
    put("/a/1", "one")
    put("/a/1", "two")
    store:delete("/a/1")
    put("/a/2", "x")
    store:delete("/a/2")
    assert.same({ "add /a/1 one", "add /a/2 x" }, adds:take(2))
    assert.same({ "delete /a/1 two", "delete /a/2 x" }, deletes:take(2))
    for _, none in ipairs { {}, { resync = 1 } } do
      assert.error_matches(function() informer:add_handler(none) end, "add_handler")
    end
  end)

  it("with the same functions twice are two handlers", function()
    local n = 0
    local functions = { add = function() n = n + 1 end }
    local one, two = informer:add_handler(functions), informer:add_handler(functions)
    put("/a/1", "one")
    await(function() return n == 2 end)
    one:close()
    put("/a/2", "two")
    await(function() return n == 3 end)
    two:close()
    put("/a/3", "three")
    record(informer):take(3)
    assert.equal(3, n)
  end)

  it("continue after a function has raised, with a log line, a traceback and a count", function()
    local function failing_function() error("this is broken") end
    local rec = record(informer, { before = function(_, key)
      if key == "/a/2" then failing_function() end
    end })
    local raised = informer:add_handler { add = failing_function }
    for i = 1, 3 do put("/a/" .. i, "v") end
    assert.same({ "add /a/1 v", "add /a/2 v", "add /a/3 v" }, rec:take(3))
    await(function() return raised:status().failures == 3 end)
    local status = rec.handler:status()
    assert.same({ 1, 3, 3, true }, { status.failures, status.calls, raised:status().calls, status.has_synced })
    assert.equal(4, #logs.lines)
    for _, line in ipairs(logs.lines) do assert.matches("^error .*'/a/%d'.*this is broken", line) end
    assert.equal(2, logs.count("stack traceback:")) -- once for each handler
    assert.matches("stack traceback:.*inform[%l_]+%.lua", logs.lines[1])
  end)

  it("continue after an error that is not a string, and one whose tostring fails", function()
    local errors = { {}, false, setmetatable({}, { __tostring = function() error("no") end }) }
    local n = 0
    local handler = informer:add_handler { add = function()
      n = n + 1
      error(errors[n])
    end }
    for i = 1, 4 do put("/a/" .. i, "v") end
    await(function() return handler:status().failures == 4 end)
    assert.equal(4, #logs.lines)
  end)

  it("may wait, one function at a time, and delay no other handler", function()
    local slow, gate = record_gated(informer)
    local fast = record(informer)
    for i = 1, 20 do put("/a/1", tostring(i)) end
    assert.same({ "update /a/1 20 was 19", 1 }, { fast:take(20)[20], #slow.calls })
    local status = slow.handler:status()
    assert(status.queued >= 19 and status.queued_bytes > 0, status.queued)
    gate:close()
    local got = slow:take(20)
    assert.equal("add /a/1 1", got[1])
    for i = 2, 20 do assert.equal(("update /a/1 %d was %d"):format(i, i - 1), got[i]) end
    await(function() return slow.handler:status().queued == 0 end)
    assert.equal(0, slow.handler:status().queued_bytes)
    assert(slow.handler:status().most_queued_bytes >= status.queued_bytes)
  end)

  it("may sleep and call the store, in the order of changes", function()
    local rec
    rec = record(informer, { add = function(key)
      keywatch.sleep(0)
      if key == "/a/1" then
        put("/a/2", "by a handler")
        keywatch.sleep(0)
        put("/a/1", "by a handler")
      end
    end })
    put("/a/1", "one")
    assert.same({ "add /a/1 one", "add /a/2 by a handler", "update /a/1 by a handler was one" }, rec:take(3))
  end)

  it("may remove themselves: no call begins after it", function()
    local rec
    rec = record(informer, { before = function(_, key)
      if key ~= "/a/2" then return end
      for _ = 1, 2 do rec.handler:close() end
      keywatch.sleep(0)
    end })
    local other = record(informer)
    for i = 1, 5 do put("/a/" .. i, "v") end
    other:take(5)
    assert(rec.handler:join(PATIENCE))
    assert.same({ 2, 1 }, { #rec.calls, informer:status().handlers })
  end)

  it("may remove each other, with the queued changes", function()
    local one, two
    local function remove(other)
      return function(_, key)
        if key == "/a/3" and other() then other().handler:close() end
      end
    end
    one = record(informer, { before = remove(function() return two end) })
    two = record(informer, { before = remove(function() return one end) })
    local third = record(informer)
    for i = 1, 5 do put("/a/" .. i, "v") end
    third:take(5)
    await(function() return informer:status().handlers == 2 end)
    local survivor, removed = one, two
    if #one.calls < #two.calls then survivor, removed = two, one end
    survivor:take(5)
    assert.equal(5, #survivor.calls)
    assert(#removed.calls <= 3, #removed.calls)
    assert(removed.handler:join(PATIENCE))
  end)

  it("may be removed while they wait: the call ends, and no other begins", within.task(function()
    local gate, is_over = keywatch.channel(), false
    local rec = record(informer, { before = function()
      gate:receive(PATIENCE)
      is_over = true
    end })
    for i = 1, 2 do put("/a/" .. i, "v") end
    rec:await_calls(1)
    rec.handler:close()
    for _, seconds in ipairs { 0, 0.001 } do
      assert.same({ nil, "timeout" }, codes(rec.handler:join(seconds)))
    end
    assert.is_false(is_over)
    local joining = keywatch.spawn(function()
      local ok = rec.handler:join(PATIENCE)
      return ok, is_over
    end)
    keywatch.sleep(0)
    gate:send(true, PATIENCE)
    assert.same({ true, true, true }, { joining:join(PATIENCE) })
    assert.same({ true, 1 }, { rec.handler:join(), #rec.calls })
  end))

  it("can be joined, with a timeout", within.task(function()
    for _, how in ipairs { "handler", "informer" } do
      local handler = record(informer).handler
      assert(handler:wait_synced(PATIENCE))
      for _, seconds in ipairs { 0, 0.001 } do assert.same({ nil, "timeout" }, codes(handler:join(seconds))) end
      local joining = keywatch.spawn(handler.join, handler, PATIENCE)
      keywatch.sleep(0)
      local closing = how == "handler" and handler or informer
      closing:close()
      assert.same({ true, true }, { joining:join(PATIENCE) })
    end
  end))

  it("may close the informer: no call of any handler begins after it", function()
    local others, counts = {}, {}
    local rec = record(informer, { before = function(_, key)
      if key ~= "/a/2" then return end
      informer:close()
      for i, other in ipairs(others) do counts[i] = #other.calls end
    end })
    for i = 1, 3 do others[i] = record(informer) end
    for i = 1, 5 do put("/a/" .. i, "v") end
    assert.same({ "add /a/1 v", "add /a/2 v" }, rec:take(2))
    assert(rec.handler:join(PATIENCE))
    for i, other in ipairs(others) do
      assert(other.handler:join(PATIENCE))
      assert.equal(counts[i], #other.calls)
    end
    assert.same({ 2, "closed" }, { #rec.calls, informer:status().phase })
  end)

  it("may add handlers, which begin with the existing objects", function()
    local added
    local rec = record(informer, { before = function(_, key)
      if key == "/a/2" then added = record(informer) end
    end })
    put("/a/1", "one")
    put("/a/2", "two")
    rec:take(2)
    assert.same({ "add /a/1 one initial", "add /a/2 two initial" }, added:take_sorted(2))
    put("/a/1", "new")
    for _, one in ipairs { added, rec } do assert.same({ "update /a/1 new was one" }, one:take(1)) end
  end)

  it("that are removed receive nothing more, while others do", function()
    local all = {}
    for i = 1, 20 do all[i] = record(informer) end
    put("/a/1", "one")
    for _, rec in ipairs(all) do rec:take(1) end
    for i = 1, 20, 2 do all[i].handler:close() end
    put("/a/1", "two")
    for i = 2, 20, 2 do assert.same({ "update /a/1 two was one" }, all[i]:take(1)) end
    for i = 1, 20, 2 do assert.same({ 1, true }, { #all[i].calls, (all[i].handler:join(PATIENCE)) }) end
    assert.equal(10, informer:status().handlers)
  end)

  it("cannot be added to an informer that is closed", function()
    informer:close()
    assert.same({ nil, "closed" }, codes(informer:add_handler { add = function() end }))
    assert.equal(0, informer:status().handlers)
  end)

  --- A test in a task with so many objects, and a handler that stands still in its first call: fn(rec, gate).
  local function with_walk(n, fn)
    return within.task(function()
      for i = 1, n do put(("/a/%02d"):format(i), "old") end
      await(function() return informer:count() == n end)
      local rec, gate = record_gated(informer)
      rec:await_calls(1)
      fn(rec, gate)
    end)
  end

  it("are synced when all initial objects were handled, not before", with_walk(2, function(rec, gate)
    local handler = rec.handler
    assert.same({ nil, "timeout" }, codes(handler:wait_synced(0)))
    gate:send(true, PATIENCE)
    rec:await_calls(2)
    assert.same({ false, false }, { handler:has_synced(), handler:status().has_synced })
    local waiting = keywatch.spawn(handler.wait_synced, handler, PATIENCE)
    keywatch.sleep(0)
    gate:send(true, PATIENCE)
    assert.same({ true, true }, { waiting:join(PATIENCE) })
    assert.same({ true, true }, { handler:has_synced(), handler:status().has_synced })
  end))

  it("that are closed before they have synced wake the waiters for their sync", with_walk(1, function(rec, gate)
    local waiting = keywatch.spawn(rec.handler.wait_synced, rec.handler, PATIENCE)
    keywatch.sleep(0)
    rec.handler:close()
    assert.same({ nil, "closed" }, codes(select(2, waiting:join(PATIENCE))))
    gate:close()
  end))

  it("are synced even if initial objects are deleted before their delivery", with_walk(5, function(rec, gate)
    store:delete("/a/", { prefix = true })
    await(function() return informer:count() == 0 end)
    gate:close()
    assert(rec.handler:wait_synced(PATIENCE))
    rec:rest(store)
    assert.same({ [MARK] = "mark 1" }, rec:content())
    assert.equal(3, #rec.calls) -- one object, its deletion, and the mark: the others were never delivered
  end))

  it("receive the newest state of initial objects, which take no room in the queue", with_walk(50, function(rec, gate)
    local first = rec.calls[1].key
    for round = 1, 20 do
      for i = 1, 50 do
        local key = ("/a/%02d"):format(i)
        if key ~= first then put(key, "new " .. round) end
      end
    end
    await(function() return informer:get(first == "/a/50" and "/a/49" or "/a/50") == "new 20" end)
    assert(rec.handler:status().queued_bytes < 20000, rec.handler:status().queued_bytes)
    gate:close()
    assert(rec.handler:wait_synced(PATIENCE))
    rec:rest(store)
    for i, call in ipairs(rec.calls) do
      local expected = call.key == MARK and "mark 1" or i == 1 and "old" or "new 20"
      assert.same({ "add", expected }, { call.name, call.object })
    end
    assert.equal(51, #rec.calls)
  end))

  it("share objects and events, which are created once", function()
    informer:close()
    local decoding = open_synced(store, { codec = "json" })
    local one, two = record(decoding), record(decoding)
    for i = 1, 2 do put("/a/1", field(i)) end
    one:take(2)
    two:take(2)
    for i = 1, 2 do assert.equal(one.calls[i].object, two.calls[i].object) end
    assert.equal(one.calls[1].object, two.calls[2].old)
    assert.equal(decoding:get("/a/1"), one.calls[2].object)
  end)

  it("survive the run in which they were added", function()
    local rec
    keywatch.run(function()
      put("/a/1", "one")
      rec = record(informer)
      rec:take(1)
    end)
    put("/a/1", "two")
    assert.same({ "update /a/1 two was one" }, rec:take(1))
    keywatch.run(function()
      put("/a/1", "three")
      assert.same({ "update /a/1 three was two" }, rec:take(1))
    end)
    assert.equal("three", informer:get("/a/1"))
  end)

  it("survive the cancellation of the task that has added them", within.task(function()
    local rec
    local task = keywatch.spawn(function()
      rec = record(informer)
      keywatch.sleep(PATIENCE)
    end)
    keywatch.sleep(0)
    task:cancel()
    task:join(PATIENCE)
    put("/a/1", "one")
    assert.same({ "add /a/1 one" }, rec:take(1))
  end))

  it("have a tostring", function()
    local handler = informer:add_handler { add = function() end }
    assert.matches("^keywatch%.[%l_]*informer<", tostring(informer))
    assert.matches("^keywatch%.[%l_]*handler<", tostring(handler))
    handler:close()
    assert.matches("closed", tostring(handler))
    informer:close()
    assert.matches("closed", tostring(informer))
  end)
end)

describe("a slow handler", function()
  for _, name in ipairs { "store", "client" } do
    --- An informer with a handler that stands still, and one that does not.
    local function start(at_bound, max_bytes)
      local store = name == "store" and open_store()
      local x = store
      if not x then x, store = open_client() end
      local informer = open_synced(x)
      local slow, gate = record_gated(informer, { at_bound = at_bound, max_bytes = max_bytes })
      return informer, store, gate, slow, record(informer)
    end

    it("delays no other handler before its bound, of a " .. name, within.task(function()
      for _, at_bound in ipairs { "wait", "coalesce" } do
        local _, store, gate, slow, fast = start(at_bound, 200000)
        local text = ("x"):rep(100)
        for i = 1, 500 do store:put("/a/1", text .. i) end
        assert.same({ 500, 1 }, { #fast:take(500), #slow.calls })
        assert(slow.handler:status().queued_bytes > 499 * 100)
        gate:close()
        assert.same({ 500, 0 }, { #slow:take(500), slow.handler:status().coalesced })
      end
    end))

    it("makes the informer wait at its bound, and receives each change once, of a " .. name, within.task(function()
      local N, bound = 400, 20000
      local informer, store, gate, slow, fast = start("wait", bound)
      local text = ("x"):rep(900)
      for i = 1, N do
        store:put("/a/1", text .. i)
        if i % 20 == 0 then keywatch.sleep(0) end
      end
      fast:take(10)
      for _ = 1, 50 do keywatch.sleep(0) end
      assert.equal(1, #slow.calls)
      local status = slow.handler:status()
      assert(#fast.calls < N / 2 and status.queued < N / 2 and status.most_queued_bytes >= bound / 2)
      gate:close()
      slow:take(N)
      fast:take(N - 10)
      for _, rec in ipairs { slow, fast } do
        assert.equal(N, #rec.calls)
        for i, call in ipairs(rec.calls) do
          assert.equal(text .. i, call.object)
          assert.equal(i > 1 and text .. i - 1 or nil, call.old)
        end
      end
      assert.equal(0, slow.handler:status().coalesced)
      assert.equal(text .. N, informer:get("/a/1"))
    end))

    it("has one entry for each key beyond its bound if it coalesces, of a " .. name, within.task(function()
      local N, bound = 1000, 5000
      local informer, store, gate, slow, fast = start("coalesce", bound)
      local text = ("x"):rep(500)
      store:put("/a/first", "first")
      for i = 1, N do
        store:put("/a/1", text .. i)
        if i == N / 2 then store:put("/a/passing", "x") end
        if i == N / 2 + 10 then store:delete("/a/passing") end
      end
      store:put("/a/2", "second")
      store:delete("/a/first")
      fast:take(N + 5)
      assert.same({ N + 5, 1 }, { #fast.calls, #slow.calls })
      local status = slow.handler:status()
      assert(status.coalesced > N / 2, status.coalesced)
      assert(status.queued < 50, status.queued)
      assert(status.most_queued_bytes <= bound * 4, status.most_queued_bytes)
      gate:close()
      slow:rest(store)
      assert.same({ ["/a/1"] = text .. N, ["/a/2"] = "second", [MARK] = "mark 1" }, slow:content())
      for _, call in ipairs(slow.calls) do assert.not_equal("/a/passing", call.key) end
      assert.equal(text .. N, informer:get("/a/1"))
      assert(#slow.calls < 50, #slow.calls)
      for i = 1, 5 do store:put("/a/3", tostring(i)) end -- and as before from then on
      assert.same({ "add /a/3 1", "update /a/3 2 was 1", "update /a/3 3 was 2", "update /a/3 4 was 3",
        "update /a/3 5 was 4" }, slow:take(5))
    end))
  end

  it("that is removed at its bound releases the others", within.task(function()
    for _, how in ipairs { "handler", "user" } do
      local store = open_store()
      local informer, other = open_synced(store), open_synced(store)
      local slow, gate = record_gated(informer, { max_bytes = 2000 })
      local fast = record(other)
      for i = 1, 100 do store:put("/a/" .. i, ("x"):rep(500)) end
      fast:take(1)
      for _ = 1, 20 do keywatch.sleep(0) end
      assert(#fast.calls < 100)
      if how == "handler" then slow.handler:close() else informer:close() end
      assert.equal(99, #fast:take(99))
      gate:close()
      assert.same({ true, 1 }, { slow.handler:join(PATIENCE), #slow.calls })
    end
  end))

  it("that adds a handler at its bound does not hang", within.task(function()
    local store = open_store()
    local informer = open_synced(store)
    local late
    local slow = record(informer, { max_bytes = 1000, before = function(_, key)
      if key ~= "/a/1" then return end
      for i = 2, 50 do store:put("/a/" .. i, ("x"):rep(100)) end
      for _ = 1, 20 do keywatch.sleep(0) end
      late = record(informer)
      assert(late.handler:wait_synced(PATIENCE))
    end })
    store:put("/a/1", "x")
    slow:take(50)
    late:take(50)
    assert.same({ 50, 50 }, { #slow.calls, #late.calls })
  end))
end)

describe("a resync", function()
  it("repeats all objects for the handlers with a resync, each at its own interval", within.world(function(world)
    local client, store = world:client(), world.server.store
    store:put("/a/1", "one")
    store:put("/a/2", "two")
    local informer = open_synced(client)
    local often, seldom = record(informer, { resync = 10 }), record(informer, { resync = 25 })
    local never = record(informer)
    local function counts() return { #often.calls, #seldom.calls, #never.calls } end
    keywatch.sleep(5)
    for _, rec in ipairs { often, seldom, never } do rec:take(2) end
    keywatch.sleep(10)
    assert.same({ "update /a/1 one was one resync", "update /a/2 two was two resync" }, often:take_sorted(2))
    assert.same({ 4, 2, 2 }, counts())
    keywatch.sleep(17)
    assert.same({ 8, 4, 2 }, counts())
    often:take(4)
    store:put("/a/1", "new")
    store:delete("/a/2")
    keywatch.sleep(14)
    assert.same({ "update /a/1 new was one", "delete /a/2 two", "update /a/1 new was new resync" }, often:take(3))
    often.handler:close()
    keywatch.sleep(30)
    assert.equal(11, #often.calls)
  end))

  it("does not pile up before a slow handler", within.world(function(world)
    local store = world.server.store
    for i = 1, 20 do store:put("/a/" .. i, "v") end
    local informer = open_synced(world:client())
    local rec = record(informer, { resync = 1, before = function() keywatch.sleep(60) end })
    keywatch.sleep(600)
    assert(rec.handler:status().queued <= 20, rec.handler:status().queued)
  end, { leftovers = "cancel" }))
end)

describe("a value that cannot be decoded", function()
  local store

  before_each(function() store = open_store() end)

  it("is reported once to each handler with an error function, and to late ones", function()
    store:put("/a/bad", "{")
    local informer = open_synced(store, { codec = "json" })
    local one = record(informer)
    assert.same({ "error /a/bad malformed" }, one:take(1))
    logs.begin() -- there was no handler when it came
    store:put("/a/1", field(1))
    assert.same({ 'add /a/1 {"n":1}' }, one:take(1))
    local late, deaf = record(informer), record(informer, { only = { "add" } })
    assert.same({ 'add /a/1 {"n":1} initial', "error /a/bad malformed" }, late:take_sorted(2))
    assert(late.handler:wait_synced(PATIENCE))
    store:put("/a/bad", "{{") -- another one: reported again
    for _, rec in ipairs { one, late } do assert.same({ "error /a/bad malformed" }, rec:take(1)) end
    assert.equal(1, #deaf.calls)
    assert.same({}, one:rest(store, field(2)))
    assert.same({}, logs.lines)
    assert.matches("/a/bad", one.calls[1].err.message)
  end)

  it("is logged if no handler has an error function", function()
    store:put("/a/bad", "{")
    local informer = open_synced(store, { codec = "json" })
    assert.equal(1, logs.count("/a/bad"))
    record(informer, { only = { "add", "update", "delete" } })
    store:put("/a/bad", "{{")
    await(function() return logs.count("/a/bad") == 2 end)
    assert.matches("^warn ", logs.lines[1])
    local rec = record(informer)
    rec:take(1)
    store:put("/a/bad", "{{{")
    rec:take(1)
    assert.equal(2, #logs.lines)
  end)

  it("may become good, and be deleted or created again, in any order", function()
    local informer, rec = recorded(open_synced(store, { codec = "json" }))
    for _, value in ipairs { "{", field(1), "{", "{{", field(2), false, "{", false, field(3) } do
      if value then store:put("/a/1", value) else store:delete("/a/1") end
    end
    assert.same({ "error /a/1 malformed", 'add /a/1 {"n":1}', "error /a/1 malformed", "error /a/1 malformed",
      'update /a/1 {"n":2} was {"n":1}', 'delete /a/1 {"n":2}', "error /a/1 malformed", 'add /a/1 {"n":3}' },
      rec:rest(store, field(9)))
    assert.equal(0, informer:status().bad)
  end)

  it("does not delete a selected object until a later value can be decoded", function()
    local informer, rec = recorded(open_synced(store, { codec = "json", fields = "n=1" }))
    store:put("/a/1", field(1))
    store:put("/a/1", "{")
    assert.same({ 'add /a/1 {"n":1}', "error /a/1 malformed" }, rec:take(2))
    assert.equal(1, informer:count())
    store:put("/a/1", field(2))
    assert.same({ 'delete /a/1 {"n":1}' }, rec:take(1))
    store:put("/a/1", "{")
    store:put("/a/1", field(1))
    assert.same({ "error /a/1 malformed", 'add /a/1 {"n":1}' }, rec:take(2))
  end)
end)

describe("a transform", function()
  it("sees every value once, before indexes and handlers", with_store(function(store)
    local seen = {}
    local function transform(object, event)
      seen[#seen + 1] = event.key .. " " .. object
      return { text = object }
    end
    store:put("/a/1", "one")
    local opts = { transform = transform, indexes = { text = function(object) return object.text end } }
    local informer, other = open_synced(store, opts), open_synced(store, opts)
    local rec = record(informer, { resync = 0.001 })
    store:put("/a/1", "two")
    store:put("/a/2", "three")
    await(function() return informer:count() == 2 end)
    record(other):take(2)
    informer:add_index("other", function(object) return #object.text end)
    await(function() return #rec.calls > 10 end)
    assert.same({ "/a/1 one", "/a/1 two", "/a/2 three" }, seen)
    assert.same({ "two", 1 }, { informer:get("/a/1").text, informer:index_count("text", "three") })
    store:delete("/a/1")
    await(function() return informer:count() == 1 end)
    assert.equal(3, #seen)
  end))

  it("may return false, which is an object", with_store(function(store)
    store:put("/a/1", "one")
    local informer, rec = recorded(open_synced(store, { transform = function() return false end }))
    assert.same({ "add /a/1 false initial" }, rec:take(1))
    assert.same({ 1, false, 2 }, { informer:count(), informer:get("/a/1") })
    store:put("/a/1", "two")
    store:delete("/a/1")
    assert.same({ "update /a/1 false was false", "delete /a/1 false" }, rec:take(2))
  end))

  it("or any other function may close the informer", function()
    for _, option in ipairs { "transform", "include", "where", "decode", "index" } do
      local store = open_store()
      local informer
      local function closing(object)
        if informer then informer:close() end
        return object
      end
      local opts = { [option] = closing }
      if option == "decode" then opts = { codec = { decode = closing } } end
      if option == "index" then opts = { indexes = { i = closing } } end
      informer = open_synced(store, opts)
      store:put("/a/1", "one")
      await(function() return informer:status().phase == "closed" end, option)
    end
  end)
end)

describe("informers that share", function()
  it("have one watch, which ends with the last of them", function()
    local client, store = open_client()
    local all = {}
    for i = 1, 20 do all[i] = open_synced(client) end
    assert.same({ 1, 20 }, { (client.transport.watch_calls:count()), all[1]:status().users })
    for i = 1, 19 do all[i]:close() end
    local rec = record(all[20])
    store:put("/a/1", "one")
    assert.same({ "add /a/1 one" }, rec:take(1))
    all[20]:close()
    await(function() return client.transport.watch_calls:count() == 0 end)
    local again = open_synced(client)
    assert.same({ 1, "one", 2 }, { again:status().users, again:get("/a/1") })
  end)

  it("have equal options: labels and fields by their meaning, functions by identity", with_store(function(store)
    local function fn(object) return object end
    local function users(first, second, prefix)
      local one, two = open(store, first), open(store, second, prefix)
      local n = two:status().users
      one:close()
      two:close()
      return n
    end
    for _, opts in ipairs {
      {}, { codec = "json" }, { transform = fn }, { include = fn }, { where = fn },
      { codec = "json", labels = "a=b" }, { codec = "json", fields = "a=b" },
    } do
      assert.equal(2, users(opts, opts))
      if next(opts) then assert.equal(1, users(opts, {})) end
      opts.shared = false
      assert.equal(1, users(opts, opts))
    end
    local function labels(given, at) return { codec = "json", labels = given, labels_at = at } end
    assert.equal(1, users({}, {}, "/a/b"))
    assert.equal(1, users({ transform = fn }, { transform = function(object) return object end }))
    assert.equal(1, users(labels "a=b", labels "a=c"))
    assert.equal(1, users(labels "a=b", labels("a=b", "l")))
    assert.equal(2, users(labels { a = "b" }, labels { a = "b" }))
    assert.same({ 1, 1 }, { open(store):status().users, open(open_store()):status().users })
  end))

  it("have handlers of their own, which end with their user", with_store(function(store)
    local one, two = open_synced(store), open_synced(store)
    local a, b, c = record(one), record(one), record(two)
    store:put("/a/1", "one")
    for _, rec in ipairs { a, b, c } do rec:take(1) end
    assert.same({ 2, 1 }, { one:status().handlers, two:status().handlers })
    one:close()
    store:put("/a/1", "two")
    c:take(1)
    assert.same({ 1, 1, 2, "closed", "two" }, { #a.calls, #b.calls, #c.calls, one:error().code, (two:get("/a/1")) })
  end))

  it("have indexes in common, and a name has one function", with_store(function(store)
    local function size(object) return #object end
    local one = open_synced(store, { indexes = { size = size } })
    local two = open_synced(store)
    store:put("/a/1", "one")
    await(function() return two:count() == 1 end)
    assert.equal(1, two:index_count("size", 3))
    two:add_index("size", size)
    assert.error_matches(function() two:add_index("size", function() end) end, "size")
    local other = open_synced(store, { indexes = { size = function() return "other" end } })
    assert.same({ 1, 2 }, { other:status().users, one:status().users }) -- which does not share
    assert.equal(1, other:index_count("size", "other"))
    one:close()
    assert.equal(1, two:index_count("size", 3))
  end))

  it("may be closed by a handler of another one", with_store(function(store)
    local one, two = open_synced(store), open_synced(store)
    local b
    local a = record(one, { before = function() two:close() end })
    b = record(two)
    store:put("/a/1", "one")
    a:take(1)
    assert(b.handler:join(PATIENCE))
    local n = #b.calls
    store:put("/a/1", "two")
    a:take(1)
    assert.equal(n, #b.calls)
  end))

  it("end with their client, with the reason", function()
    for _, name in ipairs { "client", "store", "cache" } do
      local client, store = open_client()
      local x = client
      if name == "store" then x = store end
      if name == "cache" then x = assert(client:cache("/a/")) end
      store:put("/a/1", "one")
      keywatch.run(function()
        local one, two = open_synced(x), open_synced(x)
        local rec = record(one)
        rec:take(1)
        assert.is_nil(one:error())
        x:close()
        for _, informer in ipairs { one, two } do
          await(function() return informer:error() ~= nil end, name)
          local status = informer:status()
          assert.same({ "closed", "closed", true }, { informer:error().code, status.phase, status.is_stale })
          assert.same({ 1, "one" }, { informer:count(), (informer:get("/a/1")) })
          assert.same({ "/a/1 one" }, sorted(informer:each()))
          assert.same({ nil, "closed" }, codes(informer:wait_synced(PATIENCE)))
        end
        assert(rec.handler:join(PATIENCE))
      end)
    end
  end)

  it("wake the waiters for their sync when the client is closed", within.task(function()
    local client = close_later(keywatch.connect("http://127.0.0.1:1"))
    local informer = open(client)
    local waiting = keywatch.spawn(informer.wait_synced, informer, PATIENCE)
    keywatch.sleep(0)
    client:close()
    assert.same({ nil, "closed" }, codes(select(2, waiting:join(PATIENCE))))
  end))
end)

describe("an informer without references", function()
  it("is collected, and its watch ends", function()
    local client, store = open_client()
    store:put("/a/1", "one")
    for _, x in ipairs { client, store } do
      local weak = setmetatable({}, { __mode = "v" })
      do
        local informer = assert(x:informer("/a/", { transform = function(object) return { object } end }))
        assert(informer:wait_synced(PATIENCE))
        weak[1], weak[2] = informer, informer:get("/a/1")
      end
      collect()
      assert.same({}, weak)
    end
    await(function() return client.transport.watch_calls:count() == 0 end)
  end)

  it("is collected though it has not synced, and though its handlers were closed", function()
    local client = open_client()
    local weak = setmetatable({}, { __mode = "v" })
    do
      weak[1] = assert(client:informer("/a/"))
      local informer = assert(client:informer("/b/"))
      weak[2] = informer
      local rec = record(informer)
      assert(rec.handler:wait_synced(PATIENCE))
      rec.handler:close()
      rec.handler:join(PATIENCE)
    end
    collect()
    assert.same({}, weak)
    await(function() return client.transport.watch_calls:count() == 0 end)
  end)

  it("lives as long as it has handlers, or until its client is closed", function()
    local client, store = open_client()
    local got = keywatch.channel(10)
    local weak = setmetatable({}, { __mode = "v" })
    do
      local informer = assert(client:informer("/a/"))
      weak[1] = informer
      weak[2] = informer:add_handler { add = function(key) got:send(key, 0) end }
    end
    for i = 1, 2 do
      collect()
      store:put("/a/" .. i, "v")
      assert.equal("/a/" .. i, got:receive(PATIENCE))
    end
    client:close()
    collect()
    assert.same({}, weak)
  end)

  it("does not affect other users of the shared objects", with_store(function(store)
    local kept = open_synced(store)
    do assert(assert(store:informer("/a/")):wait_synced(PATIENCE)) end
    assert.equal(2, kept:status().users)
    collect()
    assert.equal(1, kept:status().users)
    store:put("/a/1", "one")
    await(function() return kept:count() == 1 end)
  end))

  it("does not keep deleted objects", with_store(function(store)
    local informer = open_synced(store, { codec = { decode = function(value) return { value } end } })
    local weak = setmetatable({}, { __mode = "k" })
    local function note(_, object) weak[object] = true end
    local handler = informer:add_handler { add = note, update = note }
    for i = 1, 100 do store:put("/a/" .. i % 10, tostring(i)) end
    await(function() return handler:status().calls == 100 end)
    collect()
    local n = 0
    for _ in pairs(weak) do n = n + 1 end
    assert(n <= 11, n) -- the handler may hold the event of its last call
  end))
end)

describe("an informer and its server", function()
  --- A test in a world with three objects that a handler has received: fn(world, informer, recorder, store).
  local function with_three(opts, fn)
    return within.world(function(world)
      local store = world.server.store
      for i = 1, 3 do store:put("/a/" .. i, tostring(i)) end
      local informer, rec = recorded(open_synced(world:client(), opts))
      rec:take(3)
      fn(world, informer, rec, store)
      informer:close()
    end, { leftovers = "cancel" })
  end

  --- While the server cannot be reached its store is changed, and its history forgotten.
  local function change_behind(world, change)
    world.server:stop()
    change(world.server.store)
    world.server:compact()
    world.server:start()
  end

  it("continues after a lost connection, and repeats nothing", with_three({}, function(world, informer, rec, store)
    for i = 1, 5 do
      world.server:cut()
      store:put("/a/1", "cut " .. i)
      assert.equal("update /a/1 cut " .. i, rec:take(1)[1]:match("^(.-) was"))
    end
    assert.same({ {}, 0, 5 }, { rec:rest(store), informer:status().gaps, world.counts.cut })
  end))

  local seen = {} -- keys that a transform was given

  it("reports exactly the difference after a compaction, deletes first", with_three({
    transform = function(object, event)
      seen[#seen + 1] = event.key
      return object
    end,
  }, function(world, informer, rec, store)
    seen = {}
    local states = {}
    local function note() states[#states + 1] = table.concat(sorted(informer:each()), ",") end
    assert(informer:add_handler({ update = note, delete = note }):wait_synced(PATIENCE))
    change_behind(world, function()
      store:put("/a/1", "new")
      store:delete("/a/2")
      for _, value in ipairs { "4", "5" } do store:put("/a/4", value) end
      store:put("/a/5", "passing")
      store:delete("/a/5")
    end)
    local got = rec:take(3)
    assert.equal("delete /a/2 2 missed", got[1])
    table.sort(got)
    assert.equal("add /a/4 5", (got[1]:gsub(" missed", "")))
    assert.equal("update /a/1 new was 1", (got[3]:gsub(" missed", "")))
    assert.same({ {}, 1 }, { rec:rest(store), informer:status().gaps })
    for _, state in ipairs(states) do -- the state has changed at once, before the first was delivered
      assert.equal("/a/1 new,/a/3 3,/a/4 5", state:match("^[^~]-5"))
    end
    table.sort(seen)
    assert.same({ 2, { "/a/1", "/a/4", MARK }, 0 }, { #states, seen, logs.count("error") })
  end))

  it("reports a deletion hidden by a gap, and the new object", with_three({}, function(world, informer, rec, store)
    change_behind(world, function()
      for i, value in ipairs { "another one", "2" } do
        store:delete("/a/" .. i)
        store:put("/a/" .. i, value)
      end
    end)
    local by_key, got = {}, rec:take(4)
    for i = 1, 2 do assert.matches("^delete", got[i]) end
    for _, text in ipairs(got) do
      local key = text:match("/a/%d")
      by_key[key] = (by_key[key] and by_key[key] .. ", " or "") .. text
    end
    assert.matches("^delete /a/1 1 missed, add /a/1 another one", by_key["/a/1"])
    assert.matches("^delete /a/2 2 missed, add /a/2 2", by_key["/a/2"])
    assert.same({}, rec:rest(store))
    assert.equal("another one", (informer:get("/a/1")))
  end))

  it("reports a deletion that a gap of the underlying cache has hidden", within.world(function(world)
    local store = world.server.store
    store:put("/a/1", "1")
    local _, rec = recorded(open_synced(assert(world:client():cache("/a/"))))
    rec:take(1)
    change_behind(world, function()
      store:delete("/a/1")
      store:put("/a/1", "another one")
    end)
    assert.same({ "delete /a/1 1 missed", "add /a/1 another one" }, rec:take(2))
    assert.same({}, rec:rest(store))
  end, { leftovers = "cancel" }))

  it("stays readable while everything is read again", with_three({}, function(world, informer, rec)
    change_behind(world, function(store)
      store:delete("/a/2")
      store:put("/a/1", "new")
      world.server:slow(0.2)
    end)
    local states = {}
    repeat
      local is_new = informer:get("/a/1") == "new"
      states[table.concat(sorted(informer:each()), ",")] = true
      assert.is_true(informer:has_synced())
      keywatch.sleep(0.01)
    until is_new
    world.server:slow(0)
    rec:take(2)
    assert.same({ ["/a/1 1,/a/2 2,/a/3 3"] = true, ["/a/1 new,/a/3 3"] = true }, states)
  end))

  it("reports the differences of a restored server, and no equal objects", with_three({
    codec = { decode = function(value) return { value = value, list = { 1, { 2 } } } end },
  }, function(world, informer, rec, store)
    local before = store:status().revision
    store:put("/a/1", "later")
    store:put("/a/4", "4")
    store:delete("/a/3")
    rec:take(3)
    for _ = 1, 10 do store:put("/b", "") end
    world.server:restore(before)
    local got, kinds = rec:take(3), {}
    for i, text in ipairs(got) do kinds[i] = text:match("^%l+ %S+") end
    assert.equal("delete /a/4", kinds[1])
    table.sort(kinds)
    assert.same({ "add /a/3", "delete /a/4", "update /a/1" }, kinds)
    assert.same({}, rec:rest(world.server.store))
    local status = informer:status()
    assert.same({ "1", "2" }, { informer:get("/a/1").value, informer:get("/a/2").value })
    assert.same({ 1, world.server.store:status().revision }, { status.gaps, status.revision })
  end))

  it("reports the differences of a server of another cluster", with_three({}, function(world, informer, rec)
    world.server:stop()
    world.server:replace()
    local store = world.server.store
    for _, key in ipairs { "/a/2", "/a/1", "/a/9" } do store:put(key, key == "/a/1" and "other" or key:sub(-1)) end
    world.server:start()
    local got = rec:rest(store) -- nothing of /a/2, which is equal, though of another revision
    for i, text in ipairs(got) do assert.equal(i <= 2 and "delete" or "add", text:match("^%l+")) end
    table.sort(got)
    assert.same({ "add /a/1 other missed", "add /a/9 9 missed", "delete /a/1 1 missed", "delete /a/3 3 missed" }, got)
    assert.same({ "/a/1 other", "/a/2 2", "/a/9 9", MARK .. " mark 1" }, sorted(informer:each()))
    assert.same({ "2", store:get("/a/2").mod_revision }, { informer:get("/a/2") })
    assert.equal(store:status().revision, informer:status().revision)
    assert(informer:status().gaps >= 1)
  end))

  it("retries until it has synced, with the reason in its status", within.world(function(world)
    local client, store = world:client(), world.server.store
    store:put("/a/1", "one")
    world.server:stop()
    local informer, rec = recorded(open(client))
    local ok, err = informer:wait_synced(30)
    local trouble = informer:status().trouble
    assert.same({ nil, "timeout", "unavailable" }, { ok, err.code, trouble.code })
    assert(err.message:find(trouble.message:match("^keywatch: (.*)"), 1, true), err.message)
    assert.same({ false, false }, { informer:has_synced(), rec.handler:has_synced() })
    assert.same({ nil, "timeout" }, codes(rec.handler:wait_synced(1)))
    assert.equal("unavailable", select(2, pcall(informer.get, informer, "/a/1")).code)
    assert(({ loading = true, retrying = true })[informer:status().phase], informer:status().phase)
    world.server:start()
    assert(informer:wait_synced(600))
    assert.same({ "add /a/1 one initial" }, rec:take(1))
    assert.same({ nil, "following" }, { informer:status().trouble, informer:status().phase })
  end))

  it("retries with growing pauses", within.world(function(world)
    world.server.store:put("/a/1", "one")
    local rule = world:fault { "refuse", error = "permission_denied" }
    local informer = open(world:client())
    assert.same({ nil, "timeout" }, codes(informer:wait_synced(1)))
    assert.equal("permission_denied", informer:status().trouble.code)
    keywatch.sleep(600)
    local hits = rule.hits
    assert(hits >= 3 and hits < 1200, hits)
    keywatch.sleep(600)
    assert(rule.hits > hits and rule.hits - hits <= 600, rule.hits - hits)
    rule:stop()
    assert(informer:wait_synced(600))
    assert.same({ "one", nil }, { informer:get("/a/1"), informer:status().trouble })
  end))

  it("shows no part of a first read that breaks off", within.world(function(world)
    local store = world.server.store
    for i = 1, 3000 do store:put(("/a/%04d"):format(i), "v") end
    world.server:slow(0.5)
    local informer, rec = recorded(open(world:client()))
    for _ = 1, 4 do
      keywatch.sleep(1.6)
      local has_synced = informer:has_synced()
      assert(has_synced or #rec.calls == 0 and not pcall(informer.get, informer, "/a/0001"))
      world.server:cut()
    end
    world.server:slow(0)
    assert(rec.handler:wait_synced(600))
    assert.same({ 3000, 3000 }, { #rec.calls, informer:count() })
  end))

  it("rereads bad values after a gap, and reports only new ones", within.world(function(world)
    local store = world.server.store
    store:put("/a/1", field(1))
    store:put("/a/2", "{")
    store:put("/a/3", field(3))
    local informer, rec = recorded(open_synced(world:client(), { codec = "json" }))
    rec:take(3)
    change_behind(world, function()
      store:put("/a/1", "{{")
      store:put("/a/3", field(4))
    end)
    local got = rec:take_sorted(2)
    assert.matches("^error /a/1 malformed", got[1])
    assert.matches('^update /a/3 {"n":4} was {"n":3}', got[2])
    assert.same({}, rec:rest(store, field(9)))
    assert.same({ 2, 1 }, { informer:status().bad, informer:get("/a/1").n })
    change_behind(world, function()
      store:delete("/a/1")
      store:put("/a/2", field(2))
    end)
    got = rec:take(2)
    assert.matches('^delete /a/1 {"n":1} missed', got[1])
    assert.matches('^add /a/2 {"n":2}', got[2])
    assert.equal(0, informer:status().bad)
  end))
end)

describe("an informer in luv's loop", function()
  it("calls its handlers, also waiting ones, and can be read in a callback", function()
    assert.equal("add /a/1 one\nupdate /a/1 two one\ndelete /a/1\n0 0\nended\n", (program.printed_by([[
      local uv = require "luv"
      local keywatch = require "keywatch"
      local store = keywatch.open()
      local server = assert(keywatch.serve { store = store, listen = "http://127.0.0.1:0" })
      local client = keywatch.connect(server:addresses()[1])
      store:put("/a/1", "one")
      local function soon(fn)
        local timer = uv.new_timer()
        timer:start(1, 0, function()
          timer:close()
          fn()
        end)
      end
      keywatch.spawn(function()
        local informer = client:informer("/a/", { indexes = { size = function(object) return #object end } })
        informer:add_handler {
          add = function(key, object)
            keywatch.sleep(0.001)
            print("add", key, object)
          end,
          update = function(key, object, old) print("update", key, object, old) end,
          delete = function(key)
            print("delete", key)
            soon(function()
              print(informer:count(), informer:index_count("size", 3), informer:get("/a/1"))
              client:close()
              server:close()
            end)
          end,
        }
        assert(informer:wait_synced(30))
        soon(function()
          store:put("/a/1", "two")
          store:delete("/a/1")
        end)
      end)
      uv.run()
      print "ended"
    ]], 30):gsub("\t", " ")))
  end)
end)
