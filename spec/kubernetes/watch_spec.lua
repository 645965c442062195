--- Watches of resources: how they begin, their events for selectors and scopes, bookmarks, readers that do not read,
-- and what happens when the history, the store or the server is lost.

local json = require "keywatch.json"
local keywatch = require "keywatch"

local widgets = require "spec.kubernetes.widgets"
local within = require "spec.support.within"

local NULL = json.null
local END = "k8s.io/initial-events-end"
local new = widgets.new
local seed = tonumber(os.getenv("KW_SEED")) or os.time()

local function each_store(title, fn, more) widgets.each_store(it, title, fn, more) end

--- An event as a text: "ADDED n/a", "BOOKMARK end".
local function shown(event, err)
  if not event then return err and "nil " .. err.code or "nil" end
  if event.type ~= "BOOKMARK" then return event.type .. " " .. event.key end
  local annotations = event.object.metadata.annotations
  return annotations and annotations[END] == "true" and "BOOKMARK end" or "BOOKMARK"
end

--- The next n events.
local function read(watch, n)
  local list = {}
  for i = 1, n do list[i] = shown(watch:next(10)) end
  return list
end

--- All events that come within a second.
local function rest(watch)
  local list = {}
  while true do
    local event, err = watch:next(1)
    if not event then
      if err and err.code ~= "timeout" then list[#list + 1] = shown(nil, err) end
      return list
    end
    list[#list + 1] = shown(event)
  end
end

local function version_of(object) return tonumber(object.metadata.resourceVersion) end

describe("a watch", function()
  each_store("from a revision has only later changes, with their revisions", function(handle)
    local one = assert(handle:create(new "n/a"))
    local watch = assert(handle:watch { resource_version = one.metadata.resourceVersion })
    local two = assert(handle:patch("n/a", { spec = { size = 2 } }))
    local last = assert(handle:delete "n/a")
    local changed, deleted = watch:next(10), watch:next(10)
    assert.equal("MODIFIED", changed.type)
    assert.same(two, changed.object)
    assert.equal("DELETED", deleted.type)
    assert.same(last, deleted.object) -- the last state, with the revision of the deletion
    assert.equal(2, deleted.object.spec.size)
    assert.is_true(version_of(deleted.object) > version_of(two))
    assert.same({}, rest(watch))
    watch:close()
    assert.is_nil(watch:next(1))
  end)

  each_store("without a revision begins with the existing objects, in the order of revisions", function(handle)
    for _, name in ipairs { "n/c", "n/a", "m/b" } do assert(handle:create(new(name))) end
    for _, version in ipairs { "", "0" } do
      local watch = assert(handle:watch { resource_version = version })
      assert.same({ "ADDED n/c", "ADDED n/a", "ADDED m/b" }, rest(watch))
      assert(handle:patch("n/c", { metadata = { labels = { x = version .. "y" } } }))
      assert.same({ "MODIFIED n/c" }, rest(watch))
      watch:close()
      assert(handle:delete "n/c")
      assert(handle:create(new "n/c"))
      assert(handle:patch("n/a", { metadata = { labels = { x = version .. "y" } } }))
      assert(handle:patch("m/b", { metadata = { labels = { x = version .. "y" } } }))
    end
  end)

  each_store("translates changes for a selector of labels", function(handle)
    local watch = assert(handle:watch { resource_version = handle:list().resource_version, labels = "on=yes" })
    local function label(value) return assert(handle:patch("n/a", { metadata = { labels = { on = value } } })) end
    assert(handle:create(new "n/a"))
    local on = label "yes"
    local still = assert(handle:patch("n/a", { spec = { size = 2 } }))
    local off = label "no"
    label(NULL)
    label "yes"
    assert(handle:delete "n/a")
    assert(handle:create(new "n/b"))
    assert(handle:delete "n/b")
    local events = {}
    for i = 1, 5 do events[i] = watch:next(10) end
    local types = {}
    for i, event in ipairs(events) do types[i] = event.type end
    assert.same({ "ADDED", "MODIFIED", "DELETED", "ADDED", "DELETED" }, types)
    assert.same(on, events[1].object)
    assert.same(still, events[2].object)
    assert.equal(version_of(off), version_of(events[3].object)) -- the revision of the change,
    assert.equal("yes", events[3].object.metadata.labels.on)    -- and the last state that matched
    assert.same({}, rest(watch))
  end)

  each_store("has the scope of its selectors of fields", function(handle)
    local version = handle:list().resource_version
    local cases = {
      { {}, "n/a n/b m/a" }, { { namespace = "n" }, "n/a n/b" }, { { fields = "metadata.name=a" }, "n/a m/a" },
      { { namespace = "n", fields = "metadata.name=a" }, "n/a" }, { { fields = "metadata.namespace=m" }, "m/a" },
      { { namespace = "n", fields = "metadata.namespace=m" }, "" }, { { fields = "metadata.name!=a" }, "n/b" },
      { { fields = "metadata.name=a,metadata.namespace=n" }, "n/a" }, { { namespace = "none" }, "" },
    }
    for _, case in ipairs(cases) do
      case[1].resource_version = version
      case.watch = assert(handle:watch(case[1]))
    end
    for _, name in ipairs { "n/a", "n/b", "m/a" } do assert(handle:create(new(name))) end
    for _, case in ipairs(cases) do
      assert.equal(case[2], (table.concat(rest(case.watch), " "):gsub("ADDED ", "")))
      case[1].resource_version = "0"
      local found = rest(assert(handle:watch(case[1])))
      assert.equal(case[2], (table.concat(found, " "):gsub("ADDED ", "")))
    end
    assert.equal(400, select(2, handle:watch { fields = "spec.size=1" }).http_status)
  end)

  each_store("of initial, resourceVersion and bookmarks begins as Kubernetes' does", function(handle)
    local one = assert(handle:create(new "n/a"))
    assert(handle:create(new "n/b"))
    local now = handle:list().resource_version
    local objects, end_ = { "ADDED n/a", "ADDED n/b" }, "BOOKMARK end"
    local function begins(opts)
      local watch = assert(handle:watch(opts))
      local list = rest(watch)
      assert(handle:patch("n/a", { metadata = { labels = { a = tostring(keywatch.now()):gsub("%.", "-") } } }))
      assert(handle:patch("n/a", { metadata = { labels = { a = NULL } } }))
      local later = rest(watch)
      assert.same({ "MODIFIED n/a", "MODIFIED n/a" }, { later[#later - 1], later[#later] })
      assert(handle:patch("n/b", { metadata = { labels = { a = "x" } } })) -- the newest one again
      assert(handle:patch("n/b", { metadata = { labels = { a = NULL } } }))
      now = handle:list().resource_version
      watch:close()
      return list
    end
    for _, bookmarks in ipairs { true, false } do
      for _, version in ipairs { false, "0", "1", true } do
        local given = version == true and now or version or nil
        local expected = { objects[1], objects[2], bookmarks and end_ or nil }
        assert.same(expected, begins { initial = true, bookmarks = bookmarks, resource_version = given })
      end
      assert.same({}, begins { initial = false, bookmarks = bookmarks })
      assert.same({}, begins { initial = false, bookmarks = bookmarks, resource_version = "0" })
      assert.same({}, begins { initial = false, bookmarks = bookmarks, resource_version = now })
      assert.same(objects, begins { bookmarks = bookmarks })
      assert.same(objects, begins { bookmarks = bookmarks, resource_version = "0" })
    end
    assert.is_true(#begins { resource_version = one.metadata.resourceVersion } > 1)
  end)

  each_store("ends the existing objects with a bookmark of everything that was written", function(handle, _, store)
    local one = assert(handle:create(new "n/a"))
    assert(store:put("/other", "x"))
    for _, opts in ipairs { {}, { fields = "metadata.name=a" }, { namespace = "empty" } } do
      opts.initial, opts.bookmarks = true, true
      local watch, event = assert(handle:watch(opts)), nil
      repeat event = watch:next(10) until event.type == "BOOKMARK"
      assert.is_true(version_of(event.object) > version_of(one))
      assert.same({ "apiVersion", "kind", "metadata" }, (function()
        local names = {}
        for name in pairs(event.object) do names[#names + 1] = name end
        table.sort(names)
        return names
      end)())
    end
  end)

  each_store("waits for a least revision, and fails if it does not come", function(handle)
    local version = tonumber(handle:list().resource_version)
    keywatch.spawn(function()
      keywatch.sleep(1)
      assert(handle:create(new "n/a"))
    end)
    assert.same({ "ADDED n/a" }, rest(assert(handle:watch { initial = true, resource_version = version + 1 })))
    local watch, err = handle:watch { initial = true, resource_version = version + 1000 }
    assert.is_nil(watch)
    assert.equal(504, err.http_status)
    assert.equal("ResourceVersionTooLarge", err.causes[1].reason)
  end)

  each_store("from a revision that is still to come is silent up to it", function(handle)
    local version = tonumber(handle:list().resource_version)
    local watch = assert(handle:watch { resource_version = version + 3 })
    local seen
    for i = 1, 5 do
      local made = assert(handle:create(new("n/w" .. i)))
      if version_of(made) == version + 4 then seen = "ADDED n/w" .. i end
    end
    assert.equal(seen, rest(watch)[1])
  end)

  each_store("of a bad revision is refused", function(handle)
    for _, version in ipairs { "abc", "-1", "1e3" } do
      assert.equal(400, select(2, handle:watch { resource_version = version }).http_status)
    end
  end)

  each_store("can be selected beside other objects", function(handle)
    local watch, channel = assert(handle:watch()), keywatch.channel()
    keywatch.spawn(function()
      keywatch.sleep(1)
      assert(handle:create(new "n/a"))
      keywatch.sleep(1)
      channel:send "x"
    end)
    local which, event = keywatch.select { watch, channel, timeout = 10 }
    assert.equal(watch, which)
    assert.equal("ADDED n/a", shown(event))
    assert.equal(channel, (keywatch.select { watch, channel, timeout = 10 }))
    watch:close()
    assert.equal(watch, (keywatch.select { watch, timeout = 10 }))
  end)

  each_store("that is not read delays nobody, and is consecutive when it is read", function(handle)
    local version = handle:list().resource_version
    local idle, readers = {}, {}
    for i = 1, 50 do idle[i] = assert(handle:watch { resource_version = version }) end
    for i = 1, 2 do readers[i] = assert(handle:watch { resource_version = version }) end
    for i = 1, 22 do assert(handle:create(new(("n/w%02d"):format(i)))) end
    for _, watch in ipairs { readers[1], readers[2], idle[25] } do
      local last = 0
      for i = 1, 22 do
        local event = watch:next(1)
        assert.equal(("ADDED n/w%02d"):format(i), shown(event))
        assert.is_true(version_of(event.object) > last)
        last = version_of(event.object)
      end
    end
  end)

  each_store("gives each reader an object of its own", function(handle)
    local version = handle:list().resource_version
    local one, two = handle:watch { resource_version = version }, handle:watch { resource_version = version }
    assert(handle:create(new "n/a"))
    local object = one:next(10).object
    object.spec.size, object.metadata.labels = 99, { x = "y" }
    assert.equal(1, two:next(10).object.spec.size)
    assert.equal(1, handle:get("n/a").spec.size)
  end)

  each_store("of a list's revision exists, however much is compacted and written", function(handle, _, store, world)
    local root = store.compact and store or world.server.store
    for i = 1, 20 do
      local list = assert(handle:list(i % 2 == 0 and { resource_version = "0" } or nil))
      assert(handle:create(new("n/w" .. i)))
      root:compact(root:status().revision)
      local watch = assert(handle:watch { resource_version = list.resource_version })
      assert.equal("ADDED n/w" .. i, shown(watch:next(10)))
      watch:close()
    end
  end)
end)

describe("bookmarks", function()
  each_store("come each minute, also if only other keys change, and only on request", function(handle, _, store)
    local version = handle:list().resource_version
    local with = assert(handle:watch { resource_version = version, bookmarks = true })
    local without = assert(handle:watch { resource_version = version })
    local last, count = tonumber(version), 0
    for i = 1, 3 do
      assert(store:put("/other", tostring(i)))
      local began = keywatch.now()
      local event = with:next(70)
      assert.equal("BOOKMARK", shown(event))
      assert.is_true(version_of(event.object) > last)
      assert.is_true(keywatch.now() - began > 55)
      last, count = version_of(event.object), count + 1
    end
    assert.equal(3, count)
    assert.equal("nil timeout", shown(without:next(200)))
  end)

  each_store("are not below an earlier change, and below all later ones", function(handle)
    local watch = assert(handle:watch { bookmarks = true })
    local writer = keywatch.spawn(function()
      for i = 1, 100 do
        assert(handle:create(new("n/w" .. i)))
        keywatch.sleep(5)
      end
    end)
    local last, marks, changes = 0, 0, 0
    while changes < 100 do
      local event = assert(watch:next(100))
      local revision = version_of(event.object)
      if event.type == "BOOKMARK" then
        marks = marks + 1
        assert.is_true(revision >= last)
      else
        changes = changes + 1
        assert.is_true(revision > last)
      end
      last = revision
    end
    assert.is_true(marks >= 5)
    writer:join()
  end)
end)

describe("a watch whose history is lost", function()
  it("is too old if its own changes were evicted, and only then", within.world(function()
    local store = keywatch.open()
    local api, handle = widgets.open(store, { history_bytes = 20000 })
    local maps = api:resource "cm"
    local version = assert(handle:create(new "n/a")).metadata.resourceVersion
    local slow = assert(handle:watch { resource_version = version })
    local quiet = maps:list().resource_version
    for i = 1, 100 do assert(handle:patch("n/a", { metadata = { labels = { i = tostring(i) } } })) end
    assert(api.resources[1].history:catch_up(1))
    store:compact(store:status().revision)
    local watch, err = handle:watch { resource_version = version }
    assert.is_nil(watch)
    assert.equal("410 Expired", err.http_status .. " " .. err.reason)
    assert.equal("nil compacted", shown(slow:next(1)))
    assert.equal(410, slow:error().http_status)
    assert.is_nil(slow:next(1)) -- it is over
    assert.same({}, rest(assert(maps:watch { resource_version = quiet })))
    assert.equal(410, select(2, handle:watch { resource_version = "1" }).http_status)
    api:close()
    store:close()
  end, { leftovers = "cancel" }))

  it("continues where it was after a restart of the API", within.world(function()
    local store = keywatch.open()
    local before, handle = widgets.open(store)
    local version = assert(handle:create(new "n/a")).metadata.resourceVersion
    assert(handle:create(new "n/b"))
    before:close()
    local api, again = widgets.open(store)
    assert.same({ "ADDED n/b" }, rest(assert(again:watch { resource_version = version })))
    api:close()
  end, { leftovers = "cancel" }))

  each_store("ends with its API", function(handle, api)
    local watch = assert(handle:watch())
    api:close()
    assert.is_nil(watch:next(1))
    assert.equal(503, watch:error().http_status)
    assert.equal(503, select(2, handle:watch()).http_status)
  end)

  it("ends with its store", within.world(function()
    local store = keywatch.open()
    local _, handle = widgets.open(store)
    local watch = assert(handle:watch())
    keywatch.spawn(function()
      keywatch.sleep(1)
      store:close()
    end)
    local event, err = watch:next(10)
    assert.is_nil(event)
    assert.equal(503, err.http_status)
  end, { leftovers = "cancel" }))

  it("ends when the server was set back, and another one begins in the new history", within.world(function(world)
    local api, handle = widgets.open(world:client())
    local one = assert(handle:create(new "n/a"))
    assert(handle:create(new "n/b"))
    local watch = assert(handle:watch { resource_version = handle:list().resource_version })
    assert(world.server:restore(version_of(one)))
    local event, err = watch:next(60)
    assert.is_nil(event)
    assert.equal(410, err.http_status)
    local list = handle:list()
    assert.equal(1, #list.items)
    assert(handle:create(new "n/c"))
    assert.same({ "ADDED n/c" }, rest(assert(handle:watch { resource_version = list.resource_version })))
    api:close()
  end, { leftovers = "cancel" }))

  it("is silent without its server, and continues with it", within.world(function(world)
    local api, handle = widgets.open(world:client())
    assert(handle:create(new "n/a"))
    local watch = assert(handle:watch())
    assert.same({ "ADDED n/a" }, read(watch, 1))
    world.server:stop()
    assert.equal("nil timeout", shown(watch:next(300)))
    world.server:start()
    assert(handle:create(new "n/b"))
    assert.same({ "ADDED n/b" }, read(watch, 1))
    api:close()
  end, { leftovers = "cancel" }))
end)

describe("watchers that follow the rules of a client", function()
  local LABELS = { false, "on=yes" }

  --- Follows a resource like a client: lists, watches from there, and lists again when its place is lost. `state` has
  -- the versions of the objects by key.
  local function follow(handle, labels, state, counts)
    while not state.is_over do
      local list = handle:list { labels = labels }
      if list then
        local objects = {}
        for _, object in ipairs(list.items) do
          objects[object.metadata.namespace .. "/" .. object.metadata.name] = object.metadata.resourceVersion
        end
        state.objects = objects
        local watch = handle:watch { labels = labels, resource_version = list.resource_version, bookmarks = true }
        counts.lists = counts.lists + 1
        while watch do
          local event = watch:next()
          if not event then break end
          counts[event.type] = (counts[event.type] or 0) + 1
          if event.type == "DELETED" then
            objects[event.key] = nil
          elseif event.type ~= "BOOKMARK" then
            objects[event.key] = event.object.metadata.resourceVersion
          end
        end
      end
      keywatch.sleep(0.5)
    end
  end

  --- Writes something at random.
  local function write(handle, random)
    local key = "n/w" .. random(6)
    local act = random(5)
    if act == 1 then
      handle:create(new(key, nil, { on = random(2) == 1 and "yes" or "no" }))
    elseif act == 2 then
      handle:delete(key)
    elseif act == 3 then
      handle:patch(key, { metadata = { labels = { on = random(2) == 1 and "yes" or NULL } } })
    else
      handle:patch(key, { spec = { size = random(1000) } })
    end
  end

  local disturb = {
    function(world) world.server:cut() end,
    function(world, random) world.server:restart(random(20)) end,
    function(world) world.server:compact() end,
    function(world, random)
      world.server:stop()
      local store = world.server.store
      for _, kv in ipairs(store:range("/registry/demo.example/", { prefix = true }).kvs) do
        if random(2) == 1 then store:delete(kv.key) else store:put(kv.key, kv.value) end
      end
      world.server:compact()
      world.server:start()
    end,
    function(world, random)
      local now = world.server.store:status()
      if now.revision > math.max(0, now.compact_revision) + 3 then world.server:restore(now.revision - random(3)) end
    end,
  }

  for round = 1, 6 do
    it(("end with the server's state, round %d"):format(round), within.world(function(world)
      local random = world.random
      local apis, states, counts = {}, {}, { lists = 0 }
      for i = 1, 2 do
        local api, handle = widgets.open(world:client { timeout = 5 }, { history_bytes = i == 1 and 8000 or nil })
        apis[i] = { api = api, handle = handle }
        for _, labels in ipairs(LABELS) do
          local state = { labels = labels or nil, handle = handle, objects = {} }
          states[#states + 1] = state
          keywatch.spawn(follow, handle, state.labels, state, counts)
        end
      end
      for _ = 1, 15 do
        for _ = 1, random(30) do
          write(apis[random(2)].handle, random)
          if random(4) == 1 then keywatch.sleep(random(100) / 100) end
        end
        disturb[random(#disturb)](world, random)
        keywatch.sleep(random(10))
      end
      keywatch.sleep(120)
      for _, state in ipairs(states) do
        local expected = {}
        for _, object in ipairs(assert(state.handle:list { labels = state.labels }).items) do
          expected[object.metadata.namespace .. "/" .. object.metadata.name] = object.metadata.resourceVersion
        end
        assert.same(expected, state.objects)
        state.is_over = true
      end
      for _, kind in ipairs { "ADDED", "MODIFIED", "DELETED" } do assert.is_true((counts[kind] or 0) > 0, kind) end
      for _, one in ipairs(apis) do one.api:close() end
    end, { leftovers = "cancel", limit = 1e6, seed = seed + round }))
  end
end)

describe("a watch of an API whose cache has skipped changes", function()
  it("ends with 410, since another API would not repeat the deletions", within.world(function(world)
    local apis, handles, clients = {}, {}, {}
    for i = 1, 2 do
      clients[i] = world:client()
      apis[i], handles[i] = widgets.open(clients[i])
    end
    for _, name in ipairs { "n/a", "n/b" } do assert(handles[1]:create(new(name))) end
    local watch = assert(handles[1]:watch())
    assert.same({ "ADDED n/a", "ADDED n/b" }, read(watch, 2))
    world:isolate(clients[1])
    assert(handles[2]:delete "n/b")
    assert(handles[2]:patch("n/a", { spec = { size = 2 } }))
    assert(handles[2]:create(new "n/c"))
    world.server:compact()
    world.server:cut()
    world:join(clients[1])
    assert.same({ "nil compacted" }, read(watch, 1))
    assert.equal(2, #assert(handles[1]:list()).items)
    for i = 1, 2 do
      apis[i]:close()
      clients[i]:close()
    end
  end, { leftovers = "cancel" }))
end)
