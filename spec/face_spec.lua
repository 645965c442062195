--- Stores, clients, namespaces, fences and caches answer a call with the same number of results.
--
-- The methods are found by reflection, so a new method fails here until the list of calls has it. A call that succeeds
-- returns one result, `nil` among them; a call that fails returns two, nil and an error.

local controller = require "keywatch.controller"
local core = require "keywatch.core"
local keywatch = require "keywatch"
local testing = require "keywatch.testing"

local annotations = require "spec.support.annotations"
local directory = require "spec.support.directory"

local unpack = rawget(table, "unpack") or rawget(_G, "unpack")

-- By method: the arguments of calls that succeed. Key "a" exists, "none" does not; there are leases 1 to 20, and
-- revision 9.
local CALLS = {
  get = { { "a" }, { "none" } },
  exists = { { "a" }, { "none" } },
  range = { { "a" }, { "none" }, { "", { prefix = true } } },
  each = { { "a" }, { "none" } },
  put = { { "b", "" }, { "b", "", { prev_kv = true } } },
  delete = { { "b" }, { "none" }, { "none", { prefix = true, prev_kv = true } } },
  txn = { { {} }, { { compare = { { key = "a", version = 0 } }, success = { { put = "b", value = "" } } } },
    { { success = { { get = "a" }, { put = "b", value = "" } } } } },
  watch = { { "a" }, { "", { prefix = true, initial = true } } },
  object_watch = { { "a" }, { "a", { codec = "json" } } },
  informer = { { "a" } },
  compact = { { 3 }, { 4, { physical = true } } },
  lease = { { 10 } },
  lease_by_id = { { 1 } },
  leases = { {} },
  status = { {} },
  hash_kv = { {}, { 9 } },
  stm = { { function() return nil end }, { function(tx) tx:put("b", tx:get("a").value) return 1 end } },
  namespace = { { "x" } },
  cache = { { "x" } },
  session = { {}, { { ttl = 5 } } },
  lock = { { "lock" } },
  try_lock = { { "try" } },
  election = { { "election" } },
  lease_grant = { { 10 } },
  lease_revoke = { { 1 }, { 2 } },
  lease_keepalive = { { 3 } },
  lease_time_to_live = { { 4 }, { 4, { keys = true } } },
  lease_keeper = { {} },
  close = { {} },
  -- of stores
  alarms = { {} },
  disarm = { { "no_space" } },
  defragment = { {} },
  -- of clients
  state = { {} },
  members = { {}, { { serializable = true } } },
  health = { {} },
  sync_endpoints = { {} },
  call = { { "/etcdserverpb.KV/Range", { key = "a" } } },
  stream = { { "/etcdserverpb.Watch/Watch" } },
  -- of caches
  is_ready = { {} },
  wait_ready = { {} },
  has_synced = { {} },
  wait_synced = { {} },
  wait_for = { { 9 } },
  sync = { {} },
  table = { {} },
}

-- By method: the arguments of a call that fails in every open object that has the method.
local FAILING = {
  get = { "a", { revision = 99 } },
  exists = { "a", { revision = 99 } },
  range = { "a", { revision = 99 } },
  put = { "b", "", { lease = 99 } },
  txn = { { success = { { put = "b", value = "", lease = 99 } } } },
  compact = { 99 },
  lease = { 10, { id = 20 } },
  hash_kv = { 99 },
  stm = { function(tx) tx:put("b", "", { lease = 99 }) end },
  session = { { lease = 99 } },
  try_lock = { "held" },
  lock = { "held", { timeout = 0 } },
  lease_grant = { 10, { id = 20 } },
  lease_revoke = { 99 },
  lease_keepalive = { 99 },
  lease_time_to_live = { 99 },
  wait_for = { 99, 0 },
}

local COUNTS = { close = 0 } -- results of a successful call, where that is not 1

local REFUSED = { -- methods that raise an error, by the name of the object's metatable
  ["keywatch.fence"] = { compact = true, close = true },
  ["keywatch.namespace"] = {
    alarms = true, disarm = true, defragment = true, call = true, stream = true, state = true, members = true,
    health = true, sync_endpoints = true,
  },
}

-- {====== Methods ======

local public = annotations.read("types/keywatch.lua").classes["keywatch.Store"].methods

--- Returns the names of an object's methods, in order. Those of a store that no other object has are its own, unless
-- they are public.
local function methods_of(object)
  local names, found = {}, {}
  local is_store = type(object) == "userdata"
  local methods = is_store and core.store_methods or debug.getmetatable(object).__index
  while methods do -- those of a closed namespace stand before others
    for name in pairs(methods) do
      if not found[name] and (not is_store or public[name] or CALLS[name]) then names[#names + 1] = name end
      found[name] = true
    end
    methods = (getmetatable(methods) or {}).__index
  end
  table.sort(names)
  return names
end

-- }======

-- {====== Objects with the methods of a store ======

--- Fills a store.
local function fill(store)
  for _ = 1, 8 do store:put("a", "") end
  for id = 1, 20 do store:lease(100, { id = id }) end
  return store
end

local closers = {}

local function closing(object, close)
  table.insert(closers, function() (close or object.close)(object) end)
  return object
end

local function close_all()
  while #closers > 0 do table.remove(closers)() end
end

local function memory_store() return closing(fill(keywatch.open())) end

local function durable_store()
  local path = directory.new()
  table.insert(closers, function() directory.remove(path) end)
  return closing(fill(assert(keywatch.open { path = path })))
end

local function wire_client()
  local server = closing(keywatch.serve { store = memory_store(), listen = "http://127.0.0.1:0" })
  return closing((keywatch.connect(server:addresses()[1])))
end

local function virtual_client()
  local world = closing(testing.world())
  fill(world.server.store)
  return (world:client()), world
end

local OWNERS = {
  ["a store in memory"] = memory_store, ["a durable store"] = durable_store, ["a client"] = wire_client,
  ["a client in virtual time"] = virtual_client,
}

--- Returns a namespace with the content of its owner.
local function namespace_of(owner)
  local space = owner:namespace("x/")
  for _ = 1, 8 do assert(space:put("a", "")) end
  return space
end

local function fence_of(owner) return assert(owner:lock("fence")):fence() end

local function cache_of(owner)
  local cache = closing((assert(owner:cache(""))))
  assert(cache:wait_synced())
  return cache
end

local VIEWS = {
  [""] = function(owner) return owner end, ["a namespace of "] = namespace_of, ["a fence of "] = fence_of,
  ["a cache of "] = cache_of,
  ["a namespace of a namespace of "] = function(owner) return namespace_of(owner:namespace("y/")) end,
  ["a fence of a namespace of "] = function(owner) return fence_of(namespace_of(owner)) end,
  ["a cache of a namespace of "] = function(owner) return cache_of(namespace_of(owner)) end,
}

--- Calls fn(title, open) for each kind of object.
local function each_kind(fn)
  for owner_title, open in pairs(OWNERS) do
    for title, view in pairs(VIEWS) do
      fn(title .. owner_title, function()
        local owner, world = open()
        return view(owner), owner, world
      end)
    end
  end
end

-- }======

--- Calls a method. Returns whether it raised, how many results there are, and the results.
local function results_of(object, name, arguments)
  local function count(ok, ...) return ok, select("#", ...), ... end
  return count(pcall(object[name], object, unpack(arguments)))
end

--- Describes the results of a call.
local function shown(ok, n, first, second)
  if not ok then return "raised " .. tostring(first) end
  return ("%d results: %s, %s"):format(n, tostring(first), tostring(second))
end

--- Calls every method of an object. Returns a list of violations.
local function walk(object)
  local wrong = {}
  local function note(name, ...) wrong[#wrong + 1] = name .. ": " .. shown(...) end
  local refused = REFUSED[debug.getmetatable(object).__name] or {}
  for _, name in ipairs(methods_of(object)) do
    if not CALLS[name] then wrong[#wrong + 1] = name .. " has no call in the list" end
    local is_in_place = name ~= "close" or refused[name]
    for _, arguments in ipairs(is_in_place and CALLS[name] or {}) do
      local ok, n, first, second = results_of(object, name, arguments)
      local is_right = ok and n == (COUNTS[name] or 1)
      if refused[name] then is_right = not ok and type(first) == "string" end
      if not is_right then note(name, ok, n, first, second) end
      if name:find("lock$") and first then assert(first:unlock()) end
    end
    if FAILING[name] and not refused[name] then
      local ok, n, first, err = results_of(object, name, FAILING[name])
      local is_right = ok and n == 2 and first == nil and type(err) == "table" and err.code
      if not is_right then note(name, ok, n, first, err) end
    end
  end
  return table.concat(wrong, "\n")
end

local WAYS = {
  ["at top level"] = function(fn) fn() end,
  ["in a task"] = function(fn, world) if world then world:run(fn) else keywatch.run(fn) end end,
}

describe("the number of results", function()
  after_each(close_all)

  each_kind(function(title, open)
    for way, run in pairs(WAYS) do
      it(("is the same for every kind of object: %s, %s"):format(title, way), function()
        local object, owner, world = open()
        local locks = {}
        for i, one in ipairs { owner, owner:namespace("x/"), owner:namespace("y/x/") } do
          locks[i] = assert(one:lock("held", { ttl = 100 }))
        end
        local wrong
        run(function() wrong = walk(object) end, world)
        assert.equal("", wrong)
        assert.is_true(locks[3]:is_held())
      end)
    end
  end)
end)

-- {====== Closed, cancelled, failed ======

local LOCAL = { -- methods that never ask the store or server
  election = true, lease_by_id = true, lease_keeper = true, namespace = true, state = true, stm = true,
  is_ready = true, has_synced = true, health = true, close = true,
}

--- Describes the end of a call: "answers", or the code of the error, or "raises" and the code.
local function end_of(ok, n, first, second)
  local err = second
  if not ok then err = first end
  local code = type(err) == "table" and err.code or tostring(err):gsub("^.*: ", "")
  if not ok then return "raises " .. code end
  if n == 2 and first == nil then return code end
  return n == 1 and "answers" or n .. " results"
end

--- Calls every method of an object that is not local. `expected` has the end of a call by its method, and at [1] that
-- of all other methods. Returns the differences as text.
local function walk_ends(object, expected, call)
  local wrong, refused = {}, REFUSED[debug.getmetatable(object).__name] or {}
  for _, name in ipairs(methods_of(object)) do
    local is_asked = not (LOCAL[name] or refused[name])
    local found = is_asked and end_of(call(object, name, CALLS[name][1]))
    local right = expected[name] or expected[1]
    if found and found ~= right then wrong[#wrong + 1] = ("%s: %s, and not %s"):format(name, found, right) end
  end
  return table.concat(wrong, "\n")
end

describe("a closed object", function()
  after_each(close_all)

  each_kind(function(title, open)
    it("reports that in every function: " .. title, function()
      local object, owner = open()
      owner:close()
      local expected = { "closed", each = "raises closed" }
      local kind = debug.getmetatable(object).__name
      if kind == "keywatch.cache" then
        expected.status = "answers"
        if type(owner) == "table" then -- the cached keys stay readable
          expected.get, expected.range, expected.each = "answers", "answers", "answers"
        end
      elseif type(owner) == "userdata" then
        expected = { "raises the store is closed" } -- misuse: the program itself has closed its store
      end
      if kind == "keywatch.fence" then expected.put, expected.delete, expected.txn = "lost", "lost", "lost" end
      assert.equal("", walk_ends(object, expected, results_of))
    end)
  end)

  for owner_title, open in pairs(OWNERS) do
    it("reports that though its owner is open: a namespace of " .. owner_title, function()
      local object = namespace_of((open()))
      object:close()
      -- Leases that were granted through the namespace stay alive.
      assert.equal("", walk_ends(object, {
        "closed", each = "raises closed",
        lease_keepalive = "answers", lease_revoke = "answers", lease_time_to_live = "answers",
      }, results_of))
    end)

    it("reports that though its owner is open: a cache of " .. owner_title, function()
      local object = cache_of((open()))
      object:close()
      assert.equal("", walk_ends(object, { "closed", each = "raises closed", status = "answers" }, results_of))
    end)
  end
end)

local CLIENT = "a client in virtual time"

-- Methods that return at once, and ask the server later.
local LATER = { cache = "answers", informer = "answers", stream = "answers" }

describe("an unreachable server", function()
  after_each(close_all)

  --- Calls a method in a task, which is cancelled after a second.
  local function call_and_cancel(object, name, arguments)
    local task = keywatch.spawn(function() return results_of(object, name, arguments) end)
    keywatch.sleep(1)
    task:cancel()
    return select(2, task:join())
  end

  --- Returns how calls of an object end. A cache answers from its last state; all others fail with `code`.
  local function ends(object, code, more)
    local is_cache = debug.getmetatable(object).__name == "keywatch.cache"
    local expected = is_cache and { "answers", sync = code } or { code }
    for name, how in pairs(LATER) do expected[name] = how end
    for name, how in pairs(not is_cache and more or {}) do expected[name] = how end
    return expected
  end

  for title, view in pairs(VIEWS) do
    it("makes every method wait until its task is cancelled: " .. title .. CLIENT, function()
      local owner, world = virtual_client()
      local object = view(owner)
      world:fault { "hang" }
      world:run(function() assert.equal("", walk_ends(object, ends(object, "raises cancelled"), call_and_cancel)) end)
    end)

    it("makes every method return an error if it has stopped: " .. title .. CLIENT, function()
      local owner, world = virtual_client()
      local object = view(owner)
      world.server:stop()
      world:run(function()
        -- A watch waits for its server, however long that takes: it is cancelled.
        local function call(...)
          local name = select(2, ...)
          return (name:find("watch") and call_and_cancel or results_of)(...)
        end
        local more = {
          watch = "raises cancelled", object_watch = "raises cancelled", each = "raises unavailable",
          stream = "unavailable",
        }
        if title:find("fence") then more.put, more.txn = "lost", "lost" end -- its session has expired by then
        assert.equal("", walk_ends(object, ends(object, "unavailable", more), call))
      end)
    end)
  end
end)

-- }======

describe("an object of keywatch as a wrong argument", function()
  after_each(close_all)

  it("is described in the error", function()
    local store = memory_store()
    local client = closing((keywatch.connect("127.0.0.1:1")))
    local function with_source(object)
      controller.new { name = "c", sources = { object }, reconcile = print }
    end
    for words, case in pairs {
      ["source 1 must be an informer, .*, and is a store$"] = { with_source, store },
      ["source 1 must be an informer, .*, and is a client$"] = { with_source, client },
      ["source 1 must be an informer, .*, and is a namespace$"] = { with_source, store:namespace("x") },
      ["source 1 must be an informer, .*, and is a cache$"] = { with_source, cache_of(store) },
      ["argument 1 must be a controller, .*, and is a client without 'start'$"] = { function()
        controller.manager { store = store }:add(client)
      end },
      ["select: number 1 cannot be selected: .* or observers, not a store$"] = { keywatch.select, { store } },
      ["select: number 1 cannot be selected: .*, not a client$"] = { keywatch.select, { client } },
      ["bad argument #1 to 'namespace' %(string expected, got store%)$"] = { store.namespace, store, store },
      ["connect: the list of endpoints is empty"] = { keywatch.connect, {} },
    } do
      local _, err = pcall(unpack(case))
      assert.matches(words, err)
    end
  end)
end)
