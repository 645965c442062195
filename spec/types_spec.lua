--- The annotations for editors and the code that they describe say the same.

local controller = require "keywatch.controller"
local keywatch = require "keywatch"
local core = require "keywatch.core"
local client_methods = require("keywatch.client.client").methods
local namespace_methods = require("keywatch.namespace.namespace").methods

local annotations = require "spec.support.annotations"
local directory = require "spec.support.directory"
local events = require "spec.support.events"

local PATH = "types/keywatch.lua"

local unpack = rawget(table, "unpack") or rawget(_G, "unpack")

local types = annotations.read(PATH)
local of_controllers = annotations.read "types/keywatch/controller.lua"
local store_type = types.classes["keywatch.Store"]
local lease_type = types.classes["keywatch.Lease"]
local watch_type = types.classes["keywatch.Watch"]
local task_type = types.classes["keywatch.Task"]
local channel_type = types.classes["keywatch.Channel"]

-- Of these leases, watches, services and snapshots are made; they are not for users.
local internal = {
  lease_grant = true, lease_revoke = true, lease_keepalive = true, lease_time_to_live = true,
  open_watch = true, next_ready = true, tend = true, change_rows = true, rows = true, open_snapshot = true,
  feed = true, feed_from = true, announce_feed = true,
  disarm_own = true, hash_step = true, lease_keeper = true, tag_lease = true, next_ended = true, is_busy = true,
  try_range = true, open_read = true, read_more = true, is_compacting = true, try_delete = true, try_txn = true,
  try_lease_revoke = true, try_read_delete = true, try_read_txn = true, try_read_lease_revoke = true,
  describe_lease = true, open_leases = true, list_more = true, begin_delete = true, begin_txn = true,
  begin_lease_revoke = true, take = true,
  take_number = true, must_wait = true, prepare = true, set_first_task = true,
  try_page = true, write_content = true, load_content = true,
  hold_content = true, changed_revision = true,
}

local function names(...)
  local list = {}
  for _, t in ipairs { ... } do
    for name in pairs(t) do
      if not internal[name] then table.insert(list, name) end
    end
  end
  table.sort(list)
  return list
end

--- Methods without those that only a store, or only a client, has: a namespace has them to name the cure.
local function of_face(methods)
  local shared = {}
  for name, method in pairs(methods) do
    shared[name] = core.store_methods[name] and client_methods[name] and method or nil
  end
  return shared
end

local function expect_type(value, kind)
  local trouble = types:trouble(value, kind, "it")
  if trouble then error(("not a %s: %s"):format(kind, trouble), 2) end
end

describe("the annotations #slow", function()
  it("are Lua that runs, and return the module", function()
    local module = assert(loadfile(PATH))()
    assert.are.equal("function", type(module.open))
  end)

  it("use no type that is not there", function()
    for line in io.lines(PATH) do
      for name in line:gmatch("keywatch%.[A-Z]%w*") do
        assert.is_truthy(types.classes[name] or types.aliases[name], name)
      end
    end
  end)

  it("have every name of the module", function()
    local module = types.classes.keywatch
    assert.are.same(names(keywatch), names(module.fields, module.methods))
  end)

  --- The methods of objects of a module of keywatch.
  local function of(module)
    local found = require("keywatch." .. module)
    return found.methods or found.mt.__index
  end

  it("have every method of every object", function()
    local task, elections = keywatch.spawn(function() end), require "keywatch.concurrency.election"
    task:join()
    local fence = { compact = true, close = true } -- which raise
    for name in pairs(types.classes["keywatch.Fence"].methods) do fence[name] = true end
    assert.are.same(names(of "concurrency.fence"), names(fence))
    for class, methods in pairs {
      Store = core.store_methods, Lease = of "store.lease", Watch = of "watch.watch",
      ObjectWatch = of "cache.object_watch", Informer = of "cache.informer", Handler = of "cache.handler",
      Selector = of "cache.selector", Cache = of "cache.cache", Server = of "server.server", Call = of "server.call",
      Client = client_methods, Namespace = of_face(namespace_methods), Session = of "concurrency.session",
      Lock = of "concurrency.lock", Election = elections.methods, Leadership = elections.leadership_methods,
      Observer = of "concurrency.observer", Tx = of "concurrency.stm", Stream = of "client.stream",
      Task = getmetatable(task).__index, Signals = of "driver.signals", Channel = of "task.channel",
      Scope = of "task.scope",
    } do assert.are.same(names(methods), names(types.classes["keywatch." .. class].methods), class) end
  end)

  for path, classes in pairs {
    ["types/keywatch/testing.lua"] = { testing = "testing", ["testing.World"] = "testing.world",
      ["testing.Server"] = "testing.server", ["testing.Rule"] = "testing.faults" },
    ["types/keywatch/controller.lua"] = { controller = "controller", ["controller.WorkQueue"] = "controller.work_queue",
      ["controller.Controller"] = "controller.controller", ["controller.Elector"] = "controller.elector",
      ["controller.Manager"] = "controller.manager" },
  } do
    it("have every function and method, and are Lua that runs: " .. path, function()
      local annotated = annotations.read(path).classes
      for class, module in pairs(classes) do
        local methods = class == module and require("keywatch." .. module) or of(module)
        assert.are.same(names(methods), names(annotated["keywatch." .. class].methods), class)
      end
      for _, mt in pairs(require("keywatch.controller.limiter").mts) do
        assert.are.same(names(mt.__index), names(of_controllers.classes["keywatch.controller.Limiter"].methods))
      end
      assert.are.equal("table", type(assert(loadfile(path))()))
    end)
  end

  it("have every signal that may be caught", function()
    local known = {}
    for _, name in ipairs(require("keywatch.uv").signal_names()) do known[#known + 1] = ('"%s"'):format(name) end
    assert.are.same(known, types.aliases["keywatch.SignalName"])
  end)

  it("have every error code", function()
    local codes = {}
    for _, code in ipairs(types.aliases["keywatch.ErrorCode"]) do codes[code:match('^"(.*)"$')] = true end
    assert.are.same(names(core.errors), names(codes))
  end)
end)

-- Results -----------------------------------------------------------------------------------------------------------

describe("what a call returns is as annotated #slow:", function()
  local store, lease

  before_each(function()
    store = keywatch.open { now = 0 }
    lease = store:lease(10)
    store:put("a", "1")
    store:put("b", "2", { lease = lease })
  end)

  local function returned(class, method) return assert(class.methods[method].returns[1], method) end

  local results = {
    get = function() return store:get("b") end,
    exists = function() return store:exists("b") end,
    range = function() return store:range("", { prefix = true, limit = 1 }) end,
    each = function() return store:each("", { prefix = true }) end,
    put = function() return store:put("a", "x", { prev_kv = true }) end,
    delete = function() return store:delete("", { prefix = true, prev_kv = true }) end,
    txn = function()
      return store:txn {
        success = {
          { get = "a" }, { get = "nothing" }, { range = "a" }, { put = "c", value = "" },
          { delete = "b", prev_kv = true }, { txn = { success = { { put = "d", value = "" } } } },
        },
      }
    end,
    compact = function() return store:compact(2) end,
    leases = function() return store:leases() end,
    status = function()
      store:arm("no_space")
      return store:status()
    end,
    hash_kv = function() return store:hash_kv() end,
    defragment = function() return store:defragment() end,
    alarms = function()
      store:arm("corrupt")
      return store:alarms()
    end,
    arm = function() return store:arm("no_space") end,
    disarm = function() return store:disarm("no_space") end,
    deadline = function() return store:deadline() end,
    step = function() return store:step(1) end,
    load = function() return keywatch.open({ replica = true }):load(5, {}) end,
    replace = function() return keywatch.open({ replica = true }):replace(5, {}) end,
    apply = function() return keywatch.open({ replica = true }):apply(5, {}) end,
    advance = function() return keywatch.open({ replica = true }):advance(5) end,
    merge = function() return keywatch.open({ replica = true }):merge(5, {}) end,
  }

  for _, method in ipairs(names(results)) do
    it(method, function()
      local result = results[method]()
      assert.is_not_nil(result)
      expect_type(result, returned(store_type, method))
    end)
  end

  it("lease", function()
    for _, one in ipairs { lease, store:lease_by_id(lease.id) } do
      expect_type({ id = one.id, ttl = one.ttl }, "keywatch.Lease")
      assert.are.equal("keywatch.lease", getmetatable(one).__name)
      expect_type(one:keepalive(), returned(lease_type, "keepalive"))
      expect_type(one:remaining(), returned(lease_type, "remaining"))
      expect_type(one:keys(), returned(lease_type, "keys"))
    end
    assert.equal(lease, lease:keep())
    expect_type(lease:error(), returned(lease_type, "error"))
    expect_type(lease:revoke(), returned(lease_type, "revoke"))
    expect_type(lease:lost(), returned(lease_type, "lost"))
  end)

  it("namespace", function()
    local namespace = store:namespace("/app/")
    expect_type(namespace.prefix, types.classes["keywatch.Namespace"].fields.prefix.type)
    assert.are.equal(store, namespace.owner)
    assert.are.equal("keywatch.Namespace", returned(store_type, "namespace"))
  end)

  it("tx", function()
    local tx_type = types.classes["keywatch.Tx"]
    store:stm(function(tx)
      expect_type(tx:get("a"), returned(tx_type, "get"))
      expect_type(tx:revision("a"), returned(tx_type, "revision"))
    end)
  end)

  it("session, lock, election and fence", function()
    local function class(name) return types.classes["keywatch." .. name] end
    local session = store:session()
    assert.are.equal("keywatch.lease", getmetatable(session.lease).__name)
    local lock = store:lock("a")
    expect_type(lock.key, class("Lock").fields.key.type)
    expect_type(lock.revision, class("Lock").fields.revision.type)
    expect_type(lock:is_held(), returned(class("Lock"), "is_held"))
    expect_type(select(2, lock:lost(0)), class("Lock").methods.lost.returns[2])
    expect_type(select(2, session:try_lock("a")), class("Session").methods.try_lock.returns[2])
    expect_type(lock:fence():put("k", "v"), returned(class("Fence"), "put"))
    expect_type(lock:unlock(), returned(class("Lock"), "unlock"))
    local contest = session:election("e")
    local observer = contest:observe()
    local leadership = contest:campaign("x")
    expect_type(leadership.key, class("Leadership").fields.key.type)
    expect_type(leadership.revision, class("Leadership").fields.revision.type)
    expect_type(contest:leader(), returned(class("Election"), "leader"))
    expect_type(observer:next(), returned(class("Observer"), "next"))
    expect_type(leadership:proclaim("y"), returned(class("Leadership"), "proclaim"))
    expect_type(leadership:resign(), returned(class("Leadership"), "resign"))
    expect_type(session:close(), returned(class("Session"), "close"))
    expect_type(session:lost(), returned(class("Session"), "lost"))
    expect_type(session:error(), returned(class("Session"), "error"))
    observer:close()
  end)

  it("cache", function()
    local cache_type = types.classes["keywatch.Cache"]
    local cache = assert(store:cache(""))
    assert.are.equal("keywatch.cache", getmetatable(cache).__name)
    expect_type(cache:is_ready(), returned(cache_type, "is_ready"))
    expect_type(cache:wait_ready(), returned(cache_type, "wait_ready"))
    expect_type(cache:wait_for(1), returned(cache_type, "wait_for"))
    expect_type(cache:sync(), returned(cache_type, "sync"))
    expect_type(cache:get("a", { consistent = true, min_revision = 1 }), returned(cache_type, "get"))
    expect_type(cache:range("a"), returned(cache_type, "range"))
    expect_type(cache:status(), returned(cache_type, "status"))
    assert.is_table(cache:table())
    cache:close()
    expect_type(cache:status(), returned(cache_type, "status"))
    expect_type(select(2, cache:get("a")), cache_type.methods.get.returns[2])
  end)

  it("watch", function()
    store:lease(20, { id = 7 })
    local watch = store:watch("", { prefix = true, initial = true, prev_kv = true, progress = true })
    assert.are.equal("keywatch.watch", getmetatable(watch).__name)
    expect_type(watch.revision, watch_type.fields.revision.type)
    store:put("a", "2", { lease = 7 })
    store:delete("b")
    store:put("c", "")
    expect_type(watch:sync(), returned(watch_type, "sync"))
    local seen = {}
    for _, event in ipairs((events.read(watch))) do
      seen[event.type] = true
      expect_type(event, returned(watch_type, "next"))
    end
    assert.are.same({ put = true, delete = true, synced = true, progress = true }, seen)
    store:txn { success = { { put = "a", value = "" }, { delete = "c" } } }
    expect_type(watch:batch(), returned(watch_type, "batch"))
    expect_type(watch:events(), returned(watch_type, "events"))
    expect_type(select(2, watch:next(0)), watch_type.methods.next.returns[2])
    expect_type(watch:error(), returned(watch_type, "error"))
    store:close()
    expect_type(select(2, watch:next(0)), watch_type.methods.next.returns[2])
    expect_type(assert(watch:error()), returned(watch_type, "error"))
  end)

  it("object watch", function()
    local class = types.classes["keywatch.ObjectWatch"]
    local codec = { decode = function(value)
      assert(value ~= "bad", "bad")
      return { n = value }
    end }
    local watch = store:object_watch("", { prefix = true, initial = true, old = true, codec = codec, bookmarks = true,
      fields = { n = { "1", "2", "" } } })
    assert.are.equal("keywatch.object_watch", getmetatable(watch).__name)
    expect_type(watch.revision, class.fields.revision.type)
    local seen = {}
    for i = 1, 8 do
      if i == 4 then
        store:put("a", "2")
        store:delete("b")
        store:put("c", "")
        watch.entry.dispatcher.watch.core:request_progress()
        store:put("d", "bad")
      end
      local event = watch:next(0)
      seen[event.type] = true
      expect_type(event, returned(class, "next"))
      expect_type(watch:status(), returned(class, "status"))
      if i == 3 then expect_type(select(2, watch:next(0)), class.methods.next.returns[2]) end
    end
    assert.are.same({ added = true, modified = true, deleted = true, synced = true, bookmark = true, error = true },
      seen)
    expect_type(watch:events(), returned(class, "events"))
    expect_type(assert(watch:error()), returned(class, "error"))
    expect_type(keywatch.selector("a=b"):matches {}, returned(types.classes["keywatch.Selector"], "matches"))
  end)

  it("state of a client", function()
    local client = keywatch.connect("127.0.0.1:1", { backoff = { first = 0.001 } })
    local client_type = types.classes["keywatch.Client"]
    expect_type(client:state(), returned(client_type, "state"))
    local _, err = client:status { timeout = 0.01 }
    expect_type(err, client_type.methods.status.returns[2])
    expect_type(err.client, "keywatch.ClientState")
    client:close()
    expect_type(client:state(), returned(client_type, "state"))
  end)

  it("task", function()
    local module = types.classes.keywatch
    local task = keywatch.spawn(function() end)
    assert.are.equal("keywatch.task", getmetatable(task).__name)
    assert.are.equal("keywatch.Task", returned(module, "spawn"))
    expect_type(task:join(0), returned(task_type, "join"))
    expect_type(task:join(), returned(task_type, "join"))
    expect_type(keywatch.now(), returned(module, "now"))
    for _, name in ipairs { "driver", "fd", "pollfd", "events", "timeout", "step" } do
      expect_type(keywatch[name](), returned(module, name))
    end
  end)

  it("channel", function()
    local module = types.classes.keywatch
    local channel = keywatch.channel(1)
    assert.are.equal("keywatch.channel", getmetatable(channel).__name)
    assert.are.equal("keywatch.Channel", returned(module, "channel"))
    expect_type(channel:send("value", 0), returned(channel_type, "send"))
    expect_type(select(2, channel:send("value", 0)), channel_type.methods.send.returns[2])
    expect_type(channel:count(), returned(channel_type, "count"))
    assert.is_function(channel:values())
    expect_type(channel:receive(0), returned(channel_type, "receive"))
    expect_type(select(2, channel:receive(0)), channel_type.methods.receive.returns[2])
    expect_type(keywatch.join { keywatch.spawn(function() end), timeout = 0 }, returned(module, "join"))
  end)

  it("informer and handler", function()
    local class, handler_class = types.classes["keywatch.Informer"], types.classes["keywatch.Handler"]
    local codec = { decode = function(value) return value ~= "bad" and value or nil end }
    local informer = assert(store:informer("", { codec = codec, indexes = { a = function(value) return value end } }))
    local seen = {}
    local function note(...)
      local event = select(select("#", ...), ...)
      seen[event.type] = true
      expect_type(event, "keywatch.InformerEvent")
    end
    local handler = assert(informer:add_handler { add = note, update = note, delete = note, error = note })
    expect_type(informer:status(), returned(class, "status"))
    expect_type(select(2, pcall(informer.get, informer, "a")), "keywatch.Error")
    assert(handler:wait_synced())
    store:put("a", "2")
    store:put("c", "bad")
    store:delete("b")
    keywatch.sleep(0.01)
    assert.are.same({ added = true, modified = true, deleted = true, error = true }, seen)
    for _, method in ipairs { "has_synced", "each", "count", "bad_values", "status", "error" } do
      expect_type(informer[method](informer), returned(class, method))
    end
    for _, method in ipairs { "has_synced", "wait_synced", "status" } do
      expect_type(handler[method](handler), returned(handler_class, method))
    end
    expect_type(informer:by_index("a", "2"), returned(class, "by_index"))
    expect_type(informer:index_values("a"), returned(class, "index_values"))
    expect_type(informer:index_count("a", "2"), returned(class, "index_count"))
    informer:close()
    expect_type(informer:error(), returned(class, "error"))
    expect_type(handler:join(1), returned(handler_class, "join"))
  end)

  --- Returns a function (object, …) that calls methods of an object, { name, arguments … }, and expects of all results
  -- that they are as the class has them. A result beyond those of the class is none.
  local function user_of(class)
    local methods = of_controllers.classes["keywatch.controller" .. class].methods
    return function(object, ...)
      for _, call in ipairs { ... } do
        local name, returns = call[1], methods[call[1]].returns
        local found = { object[name](object, unpack(call, 2)) }
        for n = 1, math.max(#found, 1) do
          local trouble = of_controllers:trouble(found[n], returns[n], name)
          if trouble then error(("%s: not a %s: %s"):format(name, returns[n], trouble), 2) end
        end
      end
    end
  end

  it("work queue, limiter and controller", function()
    local use_queue = user_of ".WorkQueue"
    for _, queue in ipairs { controller.work_queue { name = "q" }, controller.work_queue() } do
      use_queue(queue, { "add", "a" }, { "retry", "a" }, { "retries", "a" }, { "count" }, { "get", 0 }, { "status" })
      queue:done("a")
    end
    use_queue(controller.work_queue(), { "drain" }, { "retry", "a" })
    user_of ".Limiter"(controller.exponential(), { "when", "a" })
    user_of ".Limiter"(controller.bucket(), { "retries", "a" })
    local found
    local sources = { { every = 1, request = "a" } }
    local one = controller.new { name = "c", sources = sources, reconcile = function(_, context)
      found = context
      context.controller:stop()
    end, store = store }
    local use = user_of ".Controller"
    use(one, { "status" }, { "run" })
    assert.are.same(names(found), names(of_controllers.classes["keywatch.controller.Context"].fields))
    use(one, { "status" }, { "add", "a" }, { "has_synced" }, { "stop" }, { "join" })
    assert.are.equal(1, one:status().done)
  end)

  it("manager", function()
    local one = controller.manager { store = store, election = "e", stop_timeout = 10, sync_timeout = 10 }
    one:add(store:informer("a/"))
    one:add(controller.new { name = "c", sources = { { every = 1, request = "a" } }, reconcile = function() end })
    local use = user_of ".Manager"
    use(one, { "status" }, { "has_synced" })
    one:start()
    use(one, { "wait_synced", 10 }, { "is_healthy" }, { "status" }, { "metrics" }, { "stop" }, { "join" },
      { "run", { signals = {} } }, { "status" })
  end)

  it("elector, and functions for objects", function()
    local log = require "keywatch.support.log"
    log.set_level("warn")
    local one, use = controller.elector { store = store, name = "e" }, user_of ".Elector"
    use(one, { "status" })
    one:start()
    while not one:leader() do keywatch.sleep(0.001) end
    assert.are.equal("leading", one:status().state)
    use(one, { "status" }, { "is_leader" }, { "leader" }, { "stop" }, { "join" })
    log.set_level("info")
    store:put("object", "{}")
    local module = {} -- its functions as methods
    for name, fn in pairs(controller) do module[name] = function(_, ...) return fn(...) end end
    user_of ""(module, { "add_finalizer", store, "object", "f" }, { "remove_finalizer", store, "object", "f" },
      { "delete", store, "object" }, { "is_deleting", {} }, { "has_finalizer", {}, "f" }, { "owner_of", {} })
  end)

  it("an error", function()
    store:compact(2)
    expect_type(select(2, store:get("a", { revision = 1 })), "keywatch.Error")
    expect_type(select(2, store:put("", "")), "keywatch.Error")
  end)

  it("with no method left out", function()
    local rest = { close = true, lease = true, lease_by_id = true, watch = true, object_watch = true, cache = true,
      informer = true,
      namespace = true, stm = true, session = true, lock = true, try_lock = true, election = true }
    assert.are.same(names(store_type.methods), names(results, rest))
  end)
end)

-- Options -----------------------------------------------------------------------------------------------------------

describe("the options #slow of", function()
  local store, lease

  before_each(function()
    store = keywatch.open { now = 0 }
    lease = store:lease(10)
  end)

  --- The class of a method's options.
  local function class_of(class, method) return (class.methods[method].params.opts:gsub("%?$", "")) end

  local targets = { version = true, create_revision = true, mod_revision = true, value = true, lease = true }

  local function with(base, opts)
    for name, value in pairs(opts) do base[name] = value end
    return base
  end

  local function op(base)
    return function(opts) return store:txn { success = { with(base(), opts) } } end
  end

  local function refuses(message, name)
    return message:find(("there is no option '%s'"):format(name), 1, true) or message:find("has two verbs", 1, true)
  end

  --- Opens a store, which if it has a path is not there but in a directory that goes again. Segments of the journal
  -- have a least size.
  local function open(opts)
    if type(opts.path) == "string" then opts.path = directory.new() end
    if opts.journal_segment_bytes == 1 then opts.journal_segment_bytes = 65536 end
    local opened = keywatch.open(opts)
    opened:close()
    directory.remove_all()
  end

  -- Each with the class of its options, and a call that gets one option and adds what it cannot do without.
  local calls = {
    open = { "keywatch.OpenOptions", open },
    get = { class_of(store_type, "get"), function(opts) return store:get("k", opts) end },
    exists = { class_of(store_type, "exists"), function(opts) return store:exists("k", opts) end },
    range = { class_of(store_type, "range"), function(opts) return store:range("k", opts) end },
    each = { class_of(store_type, "each"), function(opts) return store:each("k", opts)() end },
    put = { class_of(store_type, "put"), function(opts) return store:put("k", "v", opts) end },
    delete = { class_of(store_type, "delete"), function(opts) return store:delete("k", opts) end },
    watch = { class_of(store_type, "watch"), function(opts) return store:watch("k", opts) end },
    object_watch = { class_of(store_type, "object_watch"), function(opts)
      if opts.on_error then opts.on_bad_value = "skip" end
      if opts.labels or opts.fields then opts.codec = "json" end
      if opts.fields == "x" then opts.fields = "x=" end -- a text of labels
      if opts.fields and opts.fields ~= "x=" and getmetatable(opts.fields) then
        opts.fields = keywatch.selector({}, { kind = "fields" })
      end
      return store:object_watch("k", opts)
    end },
    informer = { class_of(store_type, "informer"), function(opts)
      if opts.labels or opts.fields then opts.codec = "json" end
      if opts.fields == "x" then opts.fields = "x=" end -- a text of labels
      if opts.fields and opts.fields ~= "x=" and getmetatable(opts.fields) then
        opts.fields = keywatch.selector({}, { kind = "fields" })
      end
      return store:informer("k", opts)
    end },
    compact = { class_of(store_type, "compact"), function(opts) return store:compact(1, opts) end },
    lease = { class_of(store_type, "lease"), function(opts) return store:lease(10, opts) end },
    stm = { class_of(store_type, "stm"), function(opts) return store:stm(function() end, opts) end },
    ["tx:put"] = { "keywatch.TxPutOptions", function(opts)
      return store:stm(function(tx) tx:put("k", "v", opts) end)
    end },
    txn = { store_type.methods.txn.params.txn, function(txn) return store:txn(txn) end },

    ["a put in a transaction"] = { "keywatch.PutOp", op(function() return { put = "k", value = "v" } end) },
    ["a delete in a transaction"] = { "keywatch.DeleteOp", op(function() return { delete = "k" } end) },
    ["a get in a transaction"] = { "keywatch.GetOp", op(function() return { get = "k" } end) },
    ["a range in a transaction"] = { "keywatch.RangeOp", op(function() return { range = "k" } end) },
    ["a transaction in a transaction"] = { "keywatch.TxnOp", op(function() return { txn = {} } end) },
    ["a compare"] = { "keywatch.Compare", function(opts)
      local base = { key = "k" }
      if not targets[next(opts)] then base.version = 1 end
      return store:txn { compare = { with(base, opts) } }
    end },

    ["a kv for a replica"] = { "keywatch.BaseKV", function(opts)
      local base = { key = "k", value = "v", create_revision = 1, mod_revision = 1, version = 1 }
      return keywatch.open({ replica = true }):load(1, { with(base, opts) })
    end },
    ["an event for a replica"] = { "keywatch.Event", function(opts)
      local base = { type = "put", key = "k", value = "v", create_revision = 1, version = 1 }
      return keywatch.open({ replica = true }):apply(1, { with(base, opts) })
    end },
  }

  local every_name = {}
  for _, call in pairs(calls) do
    for name in pairs(types:fields(call[1])) do every_name[name] = true end
  end

  for _, what in ipairs(names(calls)) do
    local fields, call = types:fields(calls[what][1]), calls[what][2]

    it(what .. " are all taken", function()
      local others = { ["keywatch.Id"] = { 1, "1" }, ["keywatch.Lease"] = { lease }, ["keywatch.Txn"] = { {} },
        ["keywatch.Codec"] = { { decode = print } }, ["keywatch.Selector"] = { keywatch.selector("a") },
        table = { {} } }
      for name, info in pairs(fields) do
        for _, value in ipairs(types:samples(info.type, others)) do
          local ok, message = pcall(call, { [name] = value })
          assert(ok, ("%s = %s: %s"):format(name, tostring(value), tostring(message)))
        end
      end
    end)

    it(what .. " are no more than annotated", function()
      for name in pairs(every_name) do
        if not fields[name] then
          local ok, message = pcall(call, { [name] = 1 })
          assert(not ok, what .. " takes " .. name)
          assert(refuses(message, name), message)
        end
      end
    end)
  end

  it("C are all among them #once", function()
    local is_internal = { keys = true, no_put = true, no_delete = true } -- of lease_time_to_live and open_watch
    for _, file in ipairs { "lua_op.c", "lua_replica.c", "lua_store.c", "lua_options.h" } do
      for line in io.lines("csrc/bind/" .. file) do
        for _, pattern in ipairs { '"([%l_]+)", KW_OPTION_', "%u_OPTION%(([%l_]+), %u", "KV_FIELD%(([%l_]+), %u" } do
          for name in line:gmatch(pattern) do assert(every_name[name] or is_internal[name], name) end
        end
      end
    end
  end)

  it("a lease's methods are those of every call", function()
    local opts = { timeout = 1, deadline = 1.5 }
    assert.are.equal("keywatch.CallOptions", class_of(lease_type, "keepalive"))
    for name in pairs(opts) do assert.is_truthy(types:fields("keywatch.CallOptions")[name]) end
    assert.are.equal(10, lease:keepalive(opts))
    assert.are.equal(10, lease:remaining(opts))
    assert.is_table(lease:revoke(opts))
  end)
end)
