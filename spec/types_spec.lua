--- The annotations for editors agree with the code.

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

-- Of these leases, watches, services and snapshots are made; they are not for users.
local internal = {
  lease_grant = true, lease_revoke = true, lease_keepalive = true, lease_time_to_live = true,
  open_watch = true, next_ready = true, run_due = true, change_rows = true, rows = true, open_snapshot = true,
  disarm_own = true, hash_step = true, lease_keeper = true, tag_lease = true, next_ended = true, is_busy = true,
  try_range = true, open_read = true, read_more = true, is_compacting = true, try_delete = true, try_txn = true,
  try_lease_revoke = true, try_read_delete = true, try_read_txn = true, try_read_lease_revoke = true,
  describe_lease = true, open_leases = true, list_more = true, begin_delete = true, begin_txn = true,
  begin_lease_revoke = true, take = true,
  take_number = true, must_wait = true, prepare = true, set_first_task = true,
  try_page = true, arm = true,
  load_kvs = true, merge_kvs = true, apply = true, advance = true, -- of specs
}

local store_methods = {} -- of users
for name, method in pairs(core.store_methods) do store_methods[name] = not core.inner[name] and method or nil end

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

  it("use only existing types", function()
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
      Store = store_methods, Lease = of "store.lease", Watch = of "watch.watch",
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
    ["types/keywatch/json.lua"] = { json = "json" },
    ["types/keywatch/kubernetes.lua"] = { kubernetes = "kubernetes", ["kubernetes.Api"] = "kubernetes.api",
      ["kubernetes.Handle"] = "kubernetes.handle", ["kubernetes.Watch"] = "kubernetes.watch",
      ["kubernetes.Server"] = "kubernetes.server" },
    ["types/keywatch/http.lua"] = { http = "http", ["http.Client"] = "http.client",
      ["http.Exchange"] = "http.exchange" },
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
        local found = annotated["keywatch." .. class]
        assert.are.same(names(methods), names(found.methods, class == module and found.fields or {}), class)
      end
      for _, name in ipairs { "limiter", "ownership" } do
        assert.are.same(names(controller[name]), names(of_controllers.classes["keywatch.controller." .. name].methods))
      end
      for _, mt in ipairs { require("keywatch.controller.limiter").mt } do
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

describe("the annotated results #slow", function()
  local store, lease

  before_each(function()
    store = keywatch.open { now = 0 }
    lease = store:lease(10)
    store:put("a", "1")
    store:put("b", "2", { lease = lease })
  end)

  local used = {} -- methods of stores

  --- Returns a function (object, …) that calls methods of an object, { name, arguments … }, and expects of all results
  -- that they are as the class has them. A result beyond those of the class is none.
  local function user_of(class, read)
    local methods = (read or types).classes[class and "keywatch." .. class or "keywatch"].methods
    local function check(name, returns, ...)
      for n = 1, math.max(select("#", ...), 1) do
        local trouble = (read or types):trouble((select(n, ...)), returns[n], name)
        if trouble then error(("%s: not a %s: %s"):format(name, returns[n], trouble), 3) end
      end
    end
    return function(object, ...)
      for _, call in ipairs { ... } do
        if class == "Store" then used[call[1]] = true end
        check(call[1], methods[call[1]].returns, object[call[1]](object, unpack(call, 2)))
      end
    end
  end

  --- Expects of fields of an object that they are as the class has them.
  local function expect_fields(object, class, ...)
    for _, name in ipairs { ... } do expect_type(object[name], types:fields("keywatch." .. class)[name].type) end
  end

  local function expect_name(object, name) assert.are.equal("keywatch." .. name, getmetatable(object).__name) end

  it("of a store", function()
    user_of "Store"(store, { "get", "b" }, { "exists", "b" }, { "range", "", { prefix = true, limit = 1 } },
      { "each", "", { prefix = true } }, { "put", "a", "x", { prev_kv = true } }, { "put", "", "" },
      { "txn", { success = {
        { get = "a" }, { get = "nothing" }, { range = "a" }, { put = "c", value = "" },
        { delete = "b", prev_kv = true }, { txn = { success = { { put = "d", value = "" } } } },
      } } },
      { "delete", "", { prefix = true, prev_kv = true } }, { "compact", 2 }, { "get", "a", { revision = 1 } },
      { "leases" }, { "hash_kv" }, { "defragment" }, { "status" }, { "alarms" },
      { "disarm", "no_space" })
  end)

  it("of a lease", function()
    local use = user_of "Lease"
    for _, one in ipairs { lease, store:lease_by_id(lease.id) } do
      expect_type({ id = one.id, ttl = one.ttl }, "keywatch.Lease")
      expect_name(one, "lease")
      use(one, { "keepalive" }, { "remaining" }, { "keys" })
    end
    assert.equal(lease, lease:keep())
    use(lease, { "error" }, { "revoke" }, { "wait_lost" })
  end)

  it("of a namespace", function()
    local namespace = store:namespace("/app/")
    expect_fields(namespace, "Namespace", "prefix")
    assert.are.equal(store, namespace.owner)
  end)

  it("of tx", function() store:stm(function(tx) user_of "Tx"(tx, { "get", "a" }, { "revision", "a" }) end) end)

  it("of a session, lock, election and fence", function()
    local session, use_session, use_lock = store:session(), user_of "Session", user_of "Lock"
    expect_name(session.lease, "lease")
    local lock = store:lock("a")
    expect_fields(lock, "Lock", "key", "revision")
    use_lock(lock, { "is_held" }, { "wait_lost", 0 })
    use_session(session, { "try_lock", "a" })
    user_of "Fence"(lock:fence(), { "put", "k", "v" })
    use_lock(lock, { "unlock" })
    local election = session:election("e")
    local observer = election:observe()
    local leadership = election:campaign("x")
    expect_fields(leadership, "Leadership", "key", "revision")
    user_of "Election"(election, { "leader" })
    user_of "Observer"(observer, { "next" })
    user_of "Leadership"(leadership, { "proclaim", "y" }, { "resign" })
    use_session(session, { "close" }, { "wait_lost" }, { "error" })
    observer:close()
  end)

  it("of a cache", function()
    local cache, use = assert(store:cache("")), user_of "Cache"
    expect_name(cache, "cache")
    use(cache, { "is_ready" }, { "wait_ready" }, { "wait_for", 1 }, { "sync" },
      { "get", "a", { consistent = true, min_revision = 1 } }, { "range", "a" }, { "status" })
    assert.is_table(cache:table())
    cache:close()
    use(cache, { "status" }, { "get", "a" })
  end)

  it("of a watch", function()
    local use, seen = user_of "Watch", {}
    store:lease(20, { id = 7 })
    local watch = store:watch("", { prefix = true, initial = true, prev_kv = true, progress = true })
    expect_name(watch, "watch")
    expect_fields(watch, "Watch", "revision")
    store:put("a", "2", { lease = 7 })
    store:delete("b")
    store:put("c", "")
    use(watch, { "sync" })
    for _, event in ipairs((events.read(watch))) do
      seen[event.type] = true
      expect_type(event, types.classes["keywatch.Watch"].methods.next.returns[1])
    end
    assert.are.same({ put = true, delete = true, synced = true, progress = true }, seen)
    store:txn { success = { { put = "a", value = "" }, { delete = "c" } } }
    use(watch, { "batch" }, { "events" }, { "next", 0 }, { "error" })
    store:close()
    use(watch, { "next", 0 }, { "error" })
  end)

  it("of an object watch", function()
    local use, seen = user_of "ObjectWatch", {}
    local codec = { decode = function(value)
      assert(value ~= "bad", "bad")
      return { n = value }
    end }
    local watch = store:object_watch("", { prefix = true, initial = true, old = true, codec = codec, bookmarks = true,
      fields = { n = { "1", "2", "" } } })
    expect_name(watch, "object_watch")
    expect_fields(watch, "ObjectWatch", "revision")
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
      expect_type(event, types.classes["keywatch.ObjectWatch"].methods.next.returns[1])
      use(watch, { "status" })
      if i == 3 then use(watch, { "next", 0 }) end
    end
    assert.are.same({ added = true, modified = true, deleted = true, synced = true, bookmark = true, error = true },
      seen)
    use(watch, { "events" }, { "error" })
    user_of "Selector"(keywatch.selector("a=b"), { "matches", {} })
  end)

  it("of the state of a client", function()
    local client, use = keywatch.connect("127.0.0.1:1", { backoff = { first = 0.001 } }), user_of "Client"
    use(client, { "state" }, { "status", { timeout = 0.01 } })
    expect_type(select(2, client:status { timeout = 0.01 }).client, "keywatch.ClientState")
    client:close()
    use(client, { "state" })
  end)

  local module = {} -- its functions as methods
  for name, fn in pairs(keywatch) do module[name] = type(fn) == "function" and function(_, ...) return fn(...) end end

  it("of a task", function()
    local task = keywatch.spawn(function() end)
    expect_name(task, "task")
    user_of "Task"(task, { "join", 0 }, { "join" })
    user_of()(module, { "now" }, { "driver" }, { "fd" }, { "pollfd" }, { "events" }, { "timeout" }, { "step" },
      { "join", { keywatch.spawn(function() end), timeout = 0 } })
  end)

  it("of a channel", function()
    local channel = keywatch.channel(1)
    expect_name(channel, "channel")
    user_of "Channel"(channel, { "send", "value", 0 }, { "send", "value", 0 }, { "count" }, { "values" },
      { "receive", 0 }, { "receive", 0 })
  end)

  it("of an informer and a handler", function()
    local use, use_handler, seen = user_of "Informer", user_of "Handler", {}
    local codec = { decode = function(value) return value ~= "bad" and value or nil end }
    local informer = assert(store:informer("", { codec = codec, indexes = { a = function(value) return value end } }))
    local function note(...)
      local event = select(select("#", ...), ...)
      seen[event.type] = true
      expect_type(event, "keywatch.InformerEvent")
    end
    local handler = assert(informer:add_handler { add = note, update = note, delete = note, error = note })
    use(informer, { "status" })
    expect_type(select(2, pcall(informer.get, informer, "a")), "keywatch.Error")
    assert(handler:wait_synced())
    store:put("a", "2")
    store:put("c", "bad")
    store:delete("b")
    keywatch.sleep(0.01)
    assert.are.same({ added = true, modified = true, deleted = true, error = true }, seen)
    use(informer, { "has_synced" }, { "each" }, { "count" }, { "bad_values" }, { "status" }, { "error" },
      { "by_index", "a", "2" }, { "index_values", "a" }, { "index_count", "a", "2" })
    use_handler(handler, { "has_synced" }, { "wait_synced" }, { "status" })
    informer:close()
    use(informer, { "error" })
    use_handler(handler, { "join", 1 })
  end)

  it("of a work queue, limiter and controller", function()
    local use_queue = user_of("controller.WorkQueue", of_controllers)
    for _, queue in ipairs { controller.work_queue { name = "q" }, controller.work_queue() } do
      use_queue(queue, { "add", "a" }, { "retry", "a" }, { "retries", "a" }, { "count" }, { "get", 0 }, { "status" })
      queue:done("a")
    end
    use_queue(controller.work_queue(), { "drain" }, { "retry", "a" })
    user_of("controller.Limiter", of_controllers)(controller.limiter.exponential(), { "when", "a" })
    user_of("controller.Limiter", of_controllers)(controller.limiter.bucket(), { "retries", "a" })
    local found
    local sources = { { every = 1, request = "a" } }
    local one = controller.new { name = "c", sources = sources, reconcile = function(_, context)
      found = context
      context.controller:stop()
    end, store = store }
    local use = user_of("controller.Controller", of_controllers)
    use(one, { "status" }, { "run" })
    assert.are.same(names(found), names(of_controllers.classes["keywatch.controller.Context"].fields))
    use(one, { "status" }, { "add", "a" }, { "has_synced" }, { "stop" }, { "join" })
    assert.are.equal(1, one:status().done)
  end)

  it("of a manager", function()
    local one = controller.manager { store = store, election = "e", stop_timeout = 10, sync_timeout = 10 }
    one:add(store:informer("a/"))
    one:add(controller.new { name = "c", sources = { { every = 1, request = "a" } }, reconcile = function() end })
    local use = user_of("controller.Manager", of_controllers)
    use(one, { "status" }, { "has_synced" })
    one:start()
    use(one, { "wait_synced", 10 }, { "is_healthy" }, { "status" }, { "metrics" }, { "stop" }, { "join" },
      { "run", { signals = {} } }, { "status" })
  end)

  it("of an elector, and of functions for objects", function()
    local log = require "keywatch.support.log"
    log.set_level("warn")
    local one, use = controller.elector { store = store, name = "e" }, user_of("controller.Elector", of_controllers)
    use(one, { "status" })
    one:start()
    while not one:leader() do keywatch.sleep(0.001) end
    assert.are.equal("leading", one:status().state)
    use(one, { "status" }, { "is_leader" }, { "leader" }, { "stop" }, { "join" })
    log.set_level("info")
    store:put("object", "{}")
    local functions = {} -- as methods
    for name, fn in pairs(controller.ownership) do functions[name] = function(_, ...) return fn(...) end end
    user_of("controller.ownership", of_controllers)(functions, { "add_finalizer", store, "object", "f" },
      { "remove_finalizer", store, "object", "f" }, { "delete", store, "object" }, { "is_deleting", {} },
      { "has_finalizer", {}, "f" }, { "owner_of", {} })
  end)

  it("include every method", function()
    local rest = { close = true, lease = true, lease_by_id = true, watch = true, object_watch = true, cache = true,
      informer = true,
      namespace = true, stm = true, session = true, lock = true, try_lock = true, election = true }
    assert.are.same(names(store_type.methods), names(used, rest))
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

  local function op(base) return function(opts) return store:txn { success = { with(base(), opts) } } end end

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

  --- The same options, with what selectors cannot do without.
  local function selecting(opts)
    if opts.labels or opts.fields then opts.codec = "json" end
    if opts.fields == "x" then opts.fields = "x=" end -- a text of labels
    if opts.fields and opts.fields ~= "x=" and getmetatable(opts.fields) then
      opts.fields = keywatch.selector({}, { kind = "fields" })
    end
    return opts
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
      return store:object_watch("k", selecting(opts))
    end },
    informer = { class_of(store_type, "informer"), function(opts) return store:informer("k", selecting(opts)) end },
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
    local is_internal = { keys = true, no_put = true, no_delete = true, -- of lease_time_to_live and open_watch
      now = true, threads = true, seed = true, replica = true, history_bytes = true, -- of open
      history_idle_bytes = true, history_revisions = true, history_age = true }
    for _, file in ipairs { "lua_op.c", "lua_store.c", "lua_options.h" } do
      for line in io.lines("csrc/bind/" .. file) do
        for _, pattern in ipairs { '"([%l_]+)", KW_OPTION_', "%u_OPTION%(([%l_]+), %u" } do
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
