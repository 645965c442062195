--- Writing objects: the fields of the system, optimistic concurrency, patches, subresources, finalizers, preconditions,
-- dry runs, unknown fields, the program's functions, writers beside each other, lost servers.

local json = require "keywatch.json"
local keywatch = require "keywatch"
local kubernetes = require "keywatch.kubernetes"

local widgets = require "spec.kubernetes.widgets"
local within = require "spec.support.within"

local NULL = json.null
local new = widgets.new

local function each_store(title, fn, more) widgets.each_store(it, title, fn, more) end

--- Runs a test with a store in process and resources.
local function with(resources, fn)
  return within.world(function(world)
    local store = keywatch.open()
    local api = kubernetes.api { store = store, resources = resources }
    fn(api, store, world)
    api:close()
    store:close()
  end, { leftovers = "cancel" })
end

--- Expects a failure with an HTTP status and a reason. Returns the error.
local function refused(status, reason, object, err)
  assert.is_nil(object)
  assert.equal(("%d %s"):format(status, reason), ("%d %s"):format(err.http_status, err.reason))
  return err
end

--- The stored text of a widget.
local function stored(store, name)
  local kv = store:get("/registry/demo.example/widgets/" .. name)
  return kv and kv.value
end

describe("create", function()
  each_store("sets the fields of the system, and stores compact JSON", function(handle, _, store)
    local made = assert(handle:create(new("n/a", { size = 2 }, { app = "x" })))
    local own = made.metadata
    assert.equal("demo.example/v1 Widget", made.apiVersion .. " " .. made.kind)
    assert.matches("^%x+%-%x+%-4%x+%-[89ab]%x+%-%x+$", own.uid)
    assert.matches("^%d%d%d%d%-%d%d%-%d%dT%d%d:%d%d:%d%dZ$", own.creationTimestamp)
    assert.equal(1, own.generation)
    assert.same({ size = 2, color = "red" }, made.spec)
    assert.equal(own.resourceVersion, ("%d"):format(store:get("/registry/demo.example/widgets/n/a").mod_revision))
    assert.equal(('{"apiVersion":"demo.example/v1","kind":"Widget","metadata":{"creationTimestamp":"%s","generation":1,'
      .. '"labels":{"app":"x"},"name":"a","namespace":"n","uid":"%s"},"spec":{"color":"red","size":2}}'):format(
        own.creationTimestamp, own.uid), stored(store, "n/a"))
  end)

  each_store("ignores what only the server may set", function(handle)
    local object = new "n/a"
    object.status = { phase = "done" }
    for name, found in pairs {
      uid = "mine", creationTimestamp = "2000-01-01T00:00:00Z", generation = 9, selfLink = "/x",
      deletionTimestamp = "2000-01-01T00:00:00Z", managedFields = json.array {},
    } do object.metadata[name] = found end
    local made = assert(handle:create(object))
    assert.is_nil(made.status)
    assert.is_nil(made.metadata.deletionTimestamp)
    assert.is_nil(made.metadata.selfLink)
    assert.equal(1, made.metadata.generation)
    assert.not_equal("mine", made.metadata.uid)
    assert.equal("mine", object.metadata.uid) -- the caller's table is unchanged
  end)

  each_store("refuses an object that exists", function(handle)
    assert(handle:create(new "n/a"))
    local err = refused(409, "AlreadyExists", handle:create(new "n/a"))
    assert.equal('widgets.demo.example "a" already exists', err.message)
    assert.same({ name = "a", group = "demo.example", kind = "widgets" }, err.details)
  end)

  each_store("generates names", function(handle)
    local seen = {}
    for _ = 1, 20 do
      local made = assert(handle:create { metadata = { generateName = "w-", namespace = "n" } })
      assert.matches("^w%-%w%w%w%w%w$", made.metadata.name)
      assert.is_nil(seen[made.metadata.name])
      seen[made.metadata.name] = true
    end
  end)

  each_store("refuses wrong objects, and stores nothing", function(handle, _, store)
    local function try(status, reason, change)
      local object = new "n/a"
      change(object, object.metadata)
      return refused(status, reason, handle:create(object))
    end
    try(422, "Invalid", function(_, own) own.name = "A_b" end)
    try(422, "Invalid", function(_, own) own.name = "a/b" end)
    try(422, "Invalid", function(_, own) own.name = ".." end)
    try(422, "Invalid", function(_, own) own.name = nil end)
    try(422, "Invalid", function(_, own) own.namespace = "../x" end)
    try(422, "Invalid", function(_, own) own.namespace = nil end)
    try(422, "Invalid", function(object) object.kind = "Gadget" end)
    try(400, "BadRequest", function(object) object.apiVersion = "demo.example/v2" end)
    try(400, "BadRequest", function(_, own) own.resourceVersion = "1" end)
    try(400, "BadRequest", function(_, own) own.labels = "x" end)
    try(400, "BadRequest", function(object) object.metadata = json.array { 1 } end)
    try(422, "Invalid", function(_, own) own.labels = { ["a b"] = "c" } end)
    local err = try(422, "Invalid", function(object) object.spec.size = 0 end)
    assert.equal("spec.size", err.causes[1].field)
    assert.equal(400, select(2, handle:namespace("m"):create(new "n/a")).http_status)
    assert.equal(0, #store:range("/registry/", { prefix = true }).kvs)
  end)

  each_store("that is a dry run stores nothing", function(handle, _, store)
    local made, warnings = handle:create(new("n/a", { size = 1, foo = 1 }), { dry_run = true })
    assert.is_nil(made.metadata.resourceVersion)
    assert.is_string(made.metadata.uid)
    assert.same({ 'unknown field "spec.foo"' }, warnings)
    assert.is_nil(stored(store, "n/a"))
    assert(handle:create(new "n/a"))
    refused(409, "AlreadyExists", handle:create(new "n/a", { dry_run = true }))
    refused(422, "Invalid", handle:create(new("n/b", { size = 0 }), { dry_run = true }))
  end)

  each_store("prunes unknown fields, and warns, refuses or says nothing", function(handle)
    local spec = { size = 1, foo = 1, bar = { x = 1 } }
    local made, warnings = handle:create(new("n/a", spec))
    assert.same({ size = 1, color = "red" }, made.spec)
    assert.same({ 'unknown field "spec.bar"', 'unknown field "spec.foo"' }, warnings)
    assert.same({}, select(2, handle:create(new("n/b", spec), { field_validation = "Ignore" })))
    local err = refused(400, "BadRequest", handle:create(new("n/c", spec), { field_validation = "Strict" }))
    assert.matches('strict decoding error: unknown field "spec.bar", unknown field "spec.foo"$', err.message)
  end)
end)

describe("update", function()
  each_store("replaces an object of a revision, and counts generations", function(handle)
    local one = assert(handle:create(new "n/a"))
    one.spec.size = 2
    local two = assert(handle:update(one))
    assert.equal(2, two.metadata.generation)
    assert.is_true(tonumber(two.metadata.resourceVersion) > tonumber(one.metadata.resourceVersion))
    local err = refused(409, "Conflict", handle:update(one))
    assert.matches("the object has been modified; please apply your changes to the latest version and try again$",
      err.message)
    two.metadata.labels = { a = "b" }
    local three = assert(handle:update(two))
    assert.equal(2, three.metadata.generation) -- metadata does not count
  end)

  each_store("without a change keeps the revision", function(handle, _, store)
    local one = assert(handle:create(new "n/a"))
    local before = store:get("/registry/demo.example/widgets/n/a").mod_revision
    local two = assert(handle:update(one))
    assert.same(one, two)
    two.status = { phase = "x" } -- which only its subresource changes
    assert.same(one, assert(handle:update(two)))
    assert.same(one, assert(handle:patch("n/a", { spec = { size = 1 } })))
    assert.equal(before, store:get("/registry/demo.example/widgets/n/a").mod_revision)
  end)

  each_store("keeps the fields of the system", function(handle)
    local one = assert(handle:create(new "n/a"))
    local two = { metadata = { name = "a", namespace = "n", resourceVersion = one.metadata.resourceVersion,
      generation = 77, creationTimestamp = NULL }, spec = { size = 3 } }
    local got = assert(handle:update(two))
    assert.equal(one.metadata.uid, got.metadata.uid)
    assert.equal(one.metadata.creationTimestamp, got.metadata.creationTimestamp)
    assert.equal(2, got.metadata.generation)
    assert.same({ size = 3, color = "red" }, got.spec)
  end)

  each_store("needs a resourceVersion, and an object that exists", function(handle)
    local object = new "n/a"
    refused(404, "NotFound", handle:update(object))
    object.metadata.resourceVersion = "1"
    refused(404, "NotFound", handle:update(object))
    local one = assert(handle:create(new "n/a"))
    local err = refused(422, "Invalid", handle:update(new "n/a"))
    assert.equal("metadata.resourceVersion", err.causes[1].field)
    one.metadata.uid = "other"
    assert.matches("Precondition failed: UID", refused(409, "Conflict", handle:update(one)).message)
    one = handle:get "n/a"
    one.spec.size = 0
    refused(422, "Invalid", handle:update(one))
    assert.equal(1, handle:get("n/a").spec.size)
  end)

  each_store("that is a dry run changes nothing", function(handle)
    local one = assert(handle:create(new "n/a"))
    one.spec.size = 5
    local two = assert(handle:update(one, { dry_run = true }))
    assert.equal("5 " .. one.metadata.resourceVersion, two.spec.size .. " " .. two.metadata.resourceVersion)
    assert.equal(1, handle:get("n/a").spec.size)
  end)

  each_store("of a kind of Kubernetes' own needs no resourceVersion", function(_, api)
    local maps = api:resource "cm"
    assert(maps:create { metadata = { name = "a", namespace = "n" }, data = { x = "1" } })
    local two = assert(maps:update { metadata = { name = "a", namespace = "n" }, data = { x = "2" } })
    assert.equal("2", two.data.x)
    assert.is_nil(two.metadata.generation)
  end)

  each_store("does not blame a writer for fields that the schema has lost", function(handle, _, store)
    local one = assert(handle:create(new "n/a"))
    local text = stored(store, "n/a"):gsub('"size":1', '"old":1,"size":1')
    assert(store:put("/registry/demo.example/widgets/n/a", text))
    local two, warnings = handle:patch("n/a", { spec = { size = 2 } }, { field_validation = "Strict" })
    assert.same({ size = 2, color = "red" }, two.spec)
    assert.same({}, warnings)
    assert.equal(one.metadata.uid, two.metadata.uid)
  end)
end)

describe("patch", function()
  each_store("merges, and applies operations", function(handle)
    assert(handle:create(new("n/a", { size = 1 }, { a = "1", b = "2" })))
    local two = assert(handle:patch("n/a", { metadata = { labels = { a = NULL, c = "3" } }, spec = { size = 4 } }))
    assert.same({ b = "2", c = "3" }, two.metadata.labels)
    assert.equal(4, two.spec.size)
    local three = assert(handle:patch("n/a", { { op = "replace", path = "/spec/size", value = 5 },
      { op = "test", path = "/metadata/name", value = "a" } }, { type = "json" }))
    assert.equal(5, three.spec.size)
    refused(422, "Invalid", handle:patch("n/a", { { op = "test", path = "/spec/size", value = 1 } }, { type = "json" }))
    refused(404, "NotFound", handle:patch("n/b", { spec = {} }))
    refused(400, "BadRequest", handle:patch("n/a", { metadata = { name = "b" } }))
    refused(400, "BadRequest", handle:patch("n/a", { metadata = { namespace = "m" } }))
    refused(422, "Invalid", handle:patch("n/a", { kind = "Gadget" }))
    refused(400, "BadRequest", handle:patch("n/a", { metadata = "x" }))
  end)

  each_store("of a revision is refused once another writer was there", function(handle)
    local one = assert(handle:create(new "n/a"))
    local version = one.metadata.resourceVersion
    assert(handle:patch("n/a", { metadata = { resourceVersion = version }, spec = { size = 2 } }))
    refused(409, "Conflict", handle:patch("n/a", { metadata = { resourceVersion = version }, spec = { size = 3 } }))
  end)

  each_store("that is strategic is a merge for kinds of Kubernetes' own, if it means the same", function(handle, api)
    local maps, strategic = api:resource "configmaps", { type = "strategic" }
    assert(maps:create { metadata = { name = "a", namespace = "n" }, data = { x = "1" } })
    local two = assert(maps:patch("n/a", { data = { y = "2" } }, strategic))
    assert.same({ x = "1", y = "2" }, two.data)
    for _, patch in ipairs {
      { data = { ["$patch"] = "replace" } }, { metadata = { finalizers = { "a.b/c" } } },
      { ["$setElementOrder/x"] = {} },
    } do refused(415, "UnsupportedMediaType", maps:patch("n/a", patch, strategic)) end
    assert(handle:create(new "n/a"))
    refused(415, "UnsupportedMediaType", handle:patch("n/a", { spec = {} }, strategic))
  end)
end)

describe("the subresource", function()
  each_store("status changes only the status, and the main resource everything else", function(handle)
    local one = assert(handle:create(new "n/a"))
    local two = assert(handle:status():patch("n/a", {
      status = { phase = "done" }, spec = { size = 9 }, metadata = { labels = { x = "y" } },
    }))
    assert.same({ phase = "done" }, two.status)
    assert.same(one.spec, two.spec)
    assert.is_nil(two.metadata.labels)
    assert.equal(1, two.metadata.generation)
    local three = assert(handle:patch("n/a", { status = { phase = "lost" }, spec = { size = 9 } }))
    assert.same({ phase = "done" }, three.status)
    assert.equal(2, three.metadata.generation)
    three.status = nil
    assert.is_nil(assert(handle:status():update(three)).status)
    three.status = { replicas = "many" }
    three.metadata.resourceVersion = nil
    refused(422, "Invalid", handle:status():update(three))
  end)

  each_store("scale reads and sets the replicas", function(handle)
    assert(handle:create(new("n/a", { size = 1, replicas = 2 })))
    assert(handle:status():patch("n/a", { status = { replicas = 1 } }))
    local scale = assert(handle:scale():get "n/a")
    assert.equal("autoscaling/v1 Scale a n", table.concat({
      scale.apiVersion, scale.kind, scale.metadata.name, scale.metadata.namespace }, " "))
    assert.same({ 2, 1 }, { scale.spec.replicas, scale.status.replicas })
    scale.spec.replicas = 5
    local next_scale = assert(handle:scale():update(scale))
    assert.equal(5, next_scale.spec.replicas)
    refused(409, "Conflict", handle:scale():update(scale))
    assert.equal(7, assert(handle:scale():patch("n/a", { spec = { replicas = 7 } })).spec.replicas)
    local object = handle:get "n/a"
    assert.same({ size = 1, color = "red", replicas = 7 }, object.spec)
    assert.equal(3, object.metadata.generation)
    refused(422, "Invalid", handle:scale():patch("n/a", { spec = { replicas = -1 } }))
    refused(404, "NotFound", handle:scale():patch("n/b", { spec = { replicas = 1 } }))
    assert.is_nil(handle:scale():get "n/b")
    assert.equal(7, assert(handle:scale():patch("n/a", { spec = { replicas = 7 } }, { dry_run = true })).spec.replicas)
  end)
end)

describe("delete", function()
  each_store("removes an object, and returns its last state at the removal", function(handle, _, store)
    local one = assert(handle:create(new "n/a"))
    local last, is_gone = handle:delete "n/a"
    assert.is_true(is_gone)
    assert.equal(one.metadata.uid, last.metadata.uid)
    assert.is_true(tonumber(last.metadata.resourceVersion) > tonumber(one.metadata.resourceVersion))
    assert.is_nil(stored(store, "n/a"))
    refused(404, "NotFound", handle:delete "n/a")
  end)

  each_store("marks an object with finalizers, which the last finalizer removes", function(handle, _, store)
    local one = new "n/a"
    one.metadata.finalizers = { "x.y/a", "x.y/b" }
    assert(handle:create(one))
    local marked, is_gone = handle:delete "n/a"
    assert.is_false(is_gone)
    assert.is_string(marked.metadata.deletionTimestamp)
    assert.equal("0 2", marked.metadata.deletionGracePeriodSeconds .. " " .. marked.metadata.generation)
    local again = handle:delete "n/a"
    assert.same(marked, again)
    local err = refused(422, "Invalid", handle:patch("n/a", { metadata = { finalizers = { "x.y/a", "x.y/c" } } }))
    assert.equal("metadata.finalizers", err.causes[1].field)
    local half = assert(handle:patch("n/a", { metadata = { finalizers = { "x.y/b" } } }))
    assert.equal(marked.metadata.deletionTimestamp, half.metadata.deletionTimestamp)
    local last = assert(handle:patch("n/a", { metadata = { finalizers = NULL } }))
    assert.equal(half.metadata.resourceVersion, last.metadata.resourceVersion)
    assert.is_nil(last.metadata.finalizers)
    assert.is_nil(stored(store, "n/a"))
  end)

  each_store("adds and removes the finalizers of garbage collectors", function(handle)
    assert(handle:create(new "n/a"))
    local marked, is_gone = handle:delete("n/a", { propagation = "Foreground" })
    assert.is_false(is_gone)
    assert.same({ "foregroundDeletion" }, marked.metadata.finalizers)
    marked = handle:delete("n/a", { propagation = "Orphan" })
    assert.same({ "orphan" }, marked.metadata.finalizers)
    assert.is_false(select(2, handle:delete "n/a"))
    assert.is_true(select(2, handle:delete("n/a", { propagation = "Background" })))
  end)

  each_store("checks preconditions against the stored object", function(handle)
    local one = assert(handle:create(new "n/a"))
    local two = assert(handle:patch("n/a", { spec = { size = 2 } }))
    local uid, version = one.metadata.uid, one.metadata.resourceVersion
    refused(409, "Conflict", handle:delete("n/a", { preconditions = { uid = "other" } }))
    refused(409, "Conflict", handle:delete("n/a", { preconditions = { uid = uid, resourceVersion = version } }))
    assert.equal(2, handle:get("n/a").spec.size)
    version = two.metadata.resourceVersion
    assert(handle:delete("n/a", { preconditions = { uid = uid, resourceVersion = version } }))
  end)

  each_store("that is a dry run removes and marks nothing", function(handle)
    local one = assert(handle:create(new "n/a"))
    assert(handle:delete("n/a", { dry_run = true }))
    assert(handle:patch("n/a", { metadata = { finalizers = { "x.y/a" } } }))
    assert.is_string(handle:delete("n/a", { dry_run = true }).metadata.deletionTimestamp)
    assert.is_nil(handle:get("n/a").metadata.deletionTimestamp)
    assert.equal(one.metadata.uid, handle:get("n/a").metadata.uid)
    refused(404, "NotFound", handle:delete("n/b", { dry_run = true }))
  end)

  each_store("of a collection removes what matches, in the namespace", function(handle)
    for _, name in ipairs { "n/a", "n/b", "n/c", "m/a" } do
      assert(handle:create(new(name, nil, { keep = name == "n/b" and "yes" or "no" })))
    end
    local all = assert(handle:delete_collection { namespace = "n", labels = "keep=no" })
    assert.same({ "a", "c" }, { all[1].metadata.name, all[2].metadata.name })
    assert.equal(2, #handle:list().items)
    assert.equal(1, #assert(handle:namespace("n"):delete_collection { dry_run = true }))
    assert.equal(2, #handle:list().items)
  end)
end)

describe("writers beside each other", function()
  it("lose no update, with two APIs of two clients", within.world(function(world)
    local handles = {}
    for i = 1, 2 do handles[i] = select(2, widgets.open(world:client())) end
    assert(handles[1]:create(new("n/a", { size = 1 })))
    local tasks = {}
    for i = 1, 8 do
      tasks[i] = keywatch.spawn(function()
        local handle = handles[i % 2 + 1]
        for j = 1, 10 do
          assert(handle:patch("n/a", { metadata = { labels = { ["w" .. i .. "-" .. j] = "x" } } }))
        end
      end)
    end
    for _, task in ipairs(tasks) do assert(task:join()) end
    local n = 0
    for _ in pairs(handles[1]:get("n/a").metadata.labels) do n = n + 1 end
    assert.equal(80, n)
  end, { leftovers = "cancel" }))

  it("create an object once", within.world(function(world)
    local made, tasks = 0, {}
    for i = 1, 4 do
      local _, handle = widgets.open(world:client())
      tasks[i] = keywatch.spawn(function()
        local object, err = handle:create(new "n/a")
        if object then made = made + 1 else assert.equal("AlreadyExists", err.reason) end
      end)
    end
    for _, task in ipairs(tasks) do assert(task:join()) end
    assert.equal(1, made)
  end, { leftovers = "cancel" }))

  it("are never refused because of an old cache", within.world(function(world)
    local one, other = world:client(), world:client()
    local _, handle = widgets.open(one)
    local _, writer = widgets.open(other)
    local first = assert(writer:create(new("n/a", { size = 1 })))
    assert(handle:list())
    world.server:slow(0.2) -- events arrive late
    for i = 2, 6 do
      local object = assert(writer:patch("n/a", { spec = { size = i } }))
      object.spec.size = i * 10
      assert(handle:update(object))
    end
    assert(writer:delete "n/a")
    refused(404, "NotFound", handle:patch("n/a", { spec = { size = 1 } }))
    local again = assert(writer:create(new "n/a"))
    refused(409, "Conflict", handle:delete("n/a", { preconditions = { uid = first.metadata.uid } }))
    assert(handle:delete("n/a", { preconditions = { uid = again.metadata.uid } }))
  end, { leftovers = "cancel" }))

  it("are told if the outcome is unknown", within.world(function(world)
    local _, handle = widgets.open(world:client())
    assert(handle:list())
    world:fault { "lose_answer", method = "txn", count = 1 }
    local object, err = handle:create(new "n/a")
    assert.is_nil(object)
    assert.is_true(err.maybe_done)
    assert.is_true(err.http_status >= 503)
    assert.equal("a", handle:get("n/a").metadata.name)
  end, { leftovers = "cancel" }))
end)

describe("the program's functions", function()
  it("change and refuse objects", with({ widgets.declaration {
    mutate = function(object, request)
      if object.spec.size == 13 then return nil, "unlucky" end
      object.metadata.annotations = { by = request.operation .. " " .. tostring(request.user) }
      object.spec.junk = true
    end,
    validate = function(object, request)
      if object.spec.size == 7 then return false, { message = "seven", field = "spec.size" } end
      if object.spec.size == 8 then return nil, "eight" end
      if object.spec.size == 9 then error "a secret path" end
      if request.old and object.spec.size < request.old.spec.size then return false end
    end,
  } }, function(api)
    local handle = api:resource "widgets"
    local one = assert(handle:create(new("n/a", { size = 2 }), { user = "eve" }))
    assert.same({ by = "CREATE eve" }, one.metadata.annotations)
    assert.same({ size = 2, color = "red" }, one.spec)
    assert.equal("UPDATE nil", assert(handle:patch("n/a", { spec = { size = 3 } })).metadata.annotations.by)
    assert.equal("spec.size", refused(422, "Invalid", handle:patch("n/a", { spec = { size = 7 } })).causes[1].field)
    assert.matches("eight", refused(422, "Invalid", handle:patch("n/a", { spec = { size = 8 } })).message)
    assert.matches("unlucky", refused(422, "Invalid", handle:patch("n/a", { spec = { size = 13 } })).message)
    refused(422, "Invalid", handle:patch("n/a", { spec = { size = 1 } }))
    local err = refused(500, "InternalError", handle:patch("n/a", { spec = { size = 9 } }))
    assert.is_nil(err.message:find("secret", 1, true))
    assert.equal(3, handle:get("n/a").spec.size)
    assert(handle:delete "n/a")
  end))

  it("cannot rename an object", with({ widgets.declaration {
    mutate = function(object) object.metadata.name = "b" end,
  } }, function(api) refused(500, "InternalError", api:resource("widgets"):create(new "n/a")) end))

  it("refuse an object by false", with({ widgets.declaration { mutate = function() return false end } },
    function(api) refused(422, "Invalid", api:resource("widgets"):create(new "n/a")) end))

  it("cannot set the fields of the system", with({ widgets.declaration {
    mutate = function(object)
      object.metadata.uid, object.metadata.generation, object.metadata.creationTimestamp = "mine", 9, nil
      object.metadata.deletionTimestamp = "2000-01-01T00:00:00Z"
    end,
  } }, function(api)
    local handle = api:resource "widgets"
    for size = 1, 2 do
      local made = assert(size == 1 and handle:create(new "n/a") or handle:patch("n/a", { spec = { size = size } }))
      local own = made.metadata
      assert.not_equal("mine", own.uid)
      assert.is_string(own.creationTimestamp)
      assert.is_nil(own.deletionTimestamp)
      assert.equal(size, own.generation)
    end
  end))
end)

describe("events", function()
  local function new_event(i) return { metadata = { name = "e" .. i, namespace = "n" }, count = i } end

  it("expire after an hour, and share leases", within.world(function(world)
    for _, store in ipairs { keywatch.open(), world:client() } do
      local api = kubernetes.api { store = store, resources = { kubernetes.builtin.events } }
      local events = api:resource "events"
      local watch = assert(events:watch())
      for i = 1, 20 do
        assert(events:create(new_event(i)))
        keywatch.sleep(6)
      end
      assert.is_true(#store:leases() <= 3)
      keywatch.sleep(300)
      assert(events:patch("n/e1", { count = 100 })) -- begins its hour again
      keywatch.sleep(3600 - 430)
      assert.equal(20, #events:list().items)
      keywatch.sleep(300)
      assert.equal(1, #events:list().items)
      local deleted = 0
      for _ = 1, 40 do
        if watch:next(1).type == "DELETED" then deleted = deleted + 1 end
      end
      assert.equal(19, deleted)
      api:close()
    end
  end, { leftovers = "cancel" }))

  it("get another lease if theirs is lost", within.world(function()
    local store = keywatch.open()
    local api = kubernetes.api { store = store, resources = { kubernetes.builtin.events } }
    local events = api:resource "events"
    assert(events:create(new_event(1)))
    assert(store:lease_by_id(store:leases()[1]):revoke())
    assert.is_nil(events:get "n/e1")
    assert(events:create(new_event(2)))
    assert.equal(2, events:get("n/e2").count)
    api:close()
  end, { leftovers = "cancel" }))
end)

describe("namespaces", function()
  it("are implicit unless they are served", with({ widgets.declaration() }, function(api)
    assert(api:resource("widgets"):create(new "anything/a"))
  end))

  it("must exist, and not be ending, if they are served", with(
    { kubernetes.builtin.namespaces, widgets.declaration() }, function(api)
      local handle, namespaces = api:resource "wd", api:resource "ns"
      local err = refused(404, "NotFound", handle:create(new "n/a"))
      assert.equal('namespaces "n" not found', err.message)
      assert(handle:create(new "default/a", { dry_run = true }))
      assert.is_nil(namespaces:get "default")
      assert(handle:create(new "default/a"))
      assert.equal("Active", namespaces:get("default").status.phase)
      assert(namespaces:create { metadata = { name = "n", finalizers = { "x.y/z" } } })
      assert(handle:create(new "n/a"))
      assert(namespaces:delete "n")
      refused(403, "Forbidden", handle:create(new "n/b"))
      assert(handle:patch("n/a", { spec = { size = 4 } }))
    end))
end)
