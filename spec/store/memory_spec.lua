--- Failed allocations: the request fails without any effect, and the next one succeeds.
--
-- In builds with a probe the n-th allocation fails, for n = 1, 2, 3, … until the request makes fewer allocations: once
-- only this allocation of the core, and once all allocations from the n-th on, with those of Lua.

local core = require "keywatch.core"
local keywatch = require "keywatch"

local directory = require "spec.support.directory"
local probed = require "spec.support.probed"
local state = require "spec.support.state"

local is_fast = require("spec.support.dose").is_small

local probe = probed.get("memory that runs out")
if not probe then return end

local PAST = 1000 -- allocations: no request here needs as many

-- Requests: each is prepared whole, so that nothing but the request asks for memory -------------------------

local is_durable = false -- the kind of the stores

--- A store with `n` keys, some of them under leases, and a history.
local function new_store(n)
  local store = keywatch.open { now = 0, path = is_durable and directory.new() or nil }
  for id = 1, 3 do store:lease(10 * id, { id = id }) end
  for i = 1, n do store:put(("k%03d"):format(i), "value " .. i, { lease = i % 4 }) end
  for i = 1, n, 3 do store:put(("k%03d"):format(i), "changed", { lease = 2 }) end
  store:put("often", "")
  for i = 1, n do store:put("often", tostring(i)) end
  return store
end

local function kvs_at(revision, n)
  local kvs = {}
  for i = 1, n do
    kvs[i] = { key = ("k%03d"):format(i), value = "base", create_revision = 1, mod_revision = revision - i % 3,
      version = 1, lease = 0 }
  end
  return kvs
end

local function new_empty_replica() return keywatch.open { now = 0, replica = true, history_bytes = 400 } end

local function new_replica(n)
  local replica = new_empty_replica()
  replica:load_kvs(10, kvs_at(10, n))
  for revision = 11, 10 + n do
    replica:apply(revision, { { type = "put", key = "new", value = tostring(revision), create_revision = 11,
      mod_revision = revision, version = revision - 10, lease = 0 } })
  end
  return replica
end

--- A request that is a method call.
local function call(name, ...)
  local a, b, c = ...
  return function(store) return store[name](store, a, b, c) end
end

local function lease_call(name, id)
  return function(store) return store:lease_by_id(id)[name](store:lease_by_id(id)) end
end

local function grant(ttl, opts)
  return function(store)
    local lease, err = store:lease(ttl, opts)
    return lease and lease.ttl, err
  end
end

local function each(opts)
  return function(store)
    local n = 0
    for _ in store:each("", opts) do n = n + 1 end
    return n
  end
end

local everything = { prefix = true }

local nested = {
  compare = { { key = "often", version = 0, op = ">" }, { key = "k", prefix = true, version = 9, op = "<" } },
  success = {
    { put = "a", value = "new", lease = 3 },
    { range = "k", prefix = true, limit = 3 },
    { txn = {
      compare = { { key = "none", version = 1 } },
      failure = {
        { put = "often", ignore_value = true, prev_kv = true },
        { delete = "k00", prefix = true, prev_kv = true },
      },
    } },
    { txn = { success = { { put = "b", value = "", lease = 1 }, { get = "b" }, { get = "none" } } } },
    { put = "c", value = ("x"):rep(500) },
  },
}

local many_puts = {}
for i = 1, 20 do many_puts[i] = { put = ("k%03d"):format(i), value = "new" } end

local long = ("x"):rep(500)

local filled -- the state of a feed, from which a replica is filled

local function make_state()
  filled = core.feed_state("k", "l")
  assert(filled:add(core.encode("RangeResponse", { header = { revision = 200 }, kvs = kvs_at(200, 20), count = 20 })))
end

--- Returns a function that fills a replica by the function of that name.
local function fill(name)
  return function(replica)
    local ok, err
    repeat ok, err = core.inner[name](replica, filled) until ok ~= false
    return ok, err
  end
end

--- Returns a function that reads a range in turns, as a task does.
local function read_in_turns(opts)
  return function(store)
    local read, err = store:open_read("", opts)
    if not read then return nil, err end
    local list = {}
    local result
    repeat result, err = store:read_more(list, read) until result ~= false
    read:close()
    return result, err
  end
end

local requests = {
  { "a put of a new key", call("put", "new", "value") },
  { "a put of a key that is there", call("put", "often", "value") },
  { "a put with a lease", call("put", "often", "value", { lease = 3 }) },
  { "a put of a new key with a lease", call("put", "new", "value", { lease = 1 }) },
  { "a put with prev_kv", call("put", "often", "value", { prev_kv = true }) },
  { "a put that keeps the value", call("put", "often", nil, { ignore_value = true }) },
  { "a delete", call("delete", "often") },
  { "a delete of a range", call("delete", "k", { prefix = true }) },
  { "a delete of a range with prev_kv", call("delete", "", { prefix = true, prev_kv = true }) },
  { "a transaction of many puts", call("txn", { success = many_puts }) },
  { "a nested transaction", call("txn", nested) },
  { "a get", call("get", "often") },
  { "a range", call("range", "", everything) },
  { "a range of the past", call("range", "", { prefix = true, revision = 20 }), least = 8 },
  { "a sorted range", call("range", "", { prefix = true, sort_target = "value", sort_order = "descend" }) },
  { "a filtered range", call("range", "", { prefix = true, min_mod_revision = 5, limit = 3 }) },
  { "a range in turns", read_in_turns(everything) },
  { "a sorted range in turns", read_in_turns { prefix = true, sort_target = "value", sort_order = "descend" } },
  { "a loop in pages", each { prefix = true, page = 3 } },
  { "the grant of a lease", grant(20, { id = "-9223372036854775808" }) },
  { "the revocation of a lease with keys", lease_call("revoke", 2) },
  { "the revocation of a lease without keys", lease_call("revoke", 4), call("lease", 10, { id = 4 }) },
  { "a keepalive", lease_call("keepalive", 1) },
  { "the time that a lease has left", lease_call("remaining", 1) },
  { "the keys of a lease", lease_call("keys", 2) },
  { "the list of leases", call("leases") },
  { "a compaction", call("compact", 20), least = 8 },
  { "a compaction that is physical", call("compact", 20, { physical = true }), least = 8,
    is_physical = true },
  { "a long compaction that is physical", call("compact", 160, { physical = true }), least = 70,
    is_physical = true },
  { "the status", call("status") },
  { "the hash", call("hash_kv", 0) },
  { "the list of alarms", call("alarms"), call("arm", "no_space") },
  { "rows", call("rows", "t"), call("change_rows", { { "t", "1", "x" }, { "t", "2", long } }) },
  { "one row", call("rows", "t", "1"), call("change_rows", { { "t", "1", "x" } }) },
  { "changes of rows", call("change_rows", { { "t", "1" }, { "t", "2", "y" }, { "t", "0", long }, { "u", "1", long } }),
    call("change_rows", { { "t", "1", "x" }, { "t", "2", long } }) },
  { "the load of a replica", fill "load", make_state, open = new_empty_replica },
  { "a merge of a replica", fill "merge", make_state, open = new_replica },
}

-- Trying -----------------------------------------------------------------------------------------------------

local function prepare(request, n)
  local store = (request.open or new_store)(n)
  if request[3] then request[3](store) end
  return store
end

local function armed(arm, n, act, store)
  arm(n)
  return act(store)
end

--- Lets the n-th allocation of a request fail. Returns true if there was one, and the results or error of the request.
local function starve(arm, n, act, store)
  collectgarbage("stop")
  local counted = probe.allocations()
  local ok, answer, err = pcall(armed, arm, n, act, store)
  probe.fail_none()
  local used = probe.allocations() - counted
  collectgarbage("restart")
  if not ok then answer, err = nil, answer end
  return used >= n, answer, err
end

local function is_out_of_memory(err)
  if type(err) == "string" then return err:find("not enough memory", 1, true) ~= nil end
  return type(err) == "table" and err.code == "out_of_memory"
end

--- What a store is before a request, and what the request answers. (The store to try it on is another one, which has
-- been asked nothing yet: memory that it had for an earlier answer would not be asked for again.)
local function foresee(request, size)
  local store = prepare(request, size)
  local before = state.of(store)
  local answer = request[2](store)
  store:close()
  return before, answer
end

local function try(request, size, arm, n, before, expected)
  local store = prepare(request, size)
  local reached, answer, err = starve(arm, n, request[2], store)
  probe.check(store)
  if answer == nil then
    assert(reached and is_out_of_memory(err), err)
    state.expect(store, before)
    answer = request[2](store)
    probe.check(store)
  end
  assert.same(expected, answer)
  store:close()
  return reached
end

--- Every allocation that the request makes fails once, or one in `stride`.
local function try_all(request, size, arm, stride)
  local before, expected = foresee(request, size)
  for n = 1, PAST, stride do
    if not try(request, size, arm, n, before, expected) then return end
  end
  error("there is no end")
end

describe("where memory runs out #starved,", function()
  setup(function() if jit then jit.off() end end) -- its compiler asks for memory too
  teardown(function() if jit then jit.on() end end)

  for _, request in ipairs(requests) do
    it(request[1] .. " fails and leaves everything as it was", function()
      for _, size in ipairs(is_fast and { 9, 70 } or { 0, 1, 2, 8, 33, 70 }) do
        if size >= (request.least or 0) then try_all(request, size, probe.fail_core, 1) end
      end
    end)

    it(request[1] .. " fails and leaves everything as it was, also if Lua has no memory either", function()
      try_all(request, math.max(9, request.least or 0), probe.fail_all, is_fast and 5 or 1)
    end)
  end

  describe("of a durable store,", function()
    before_each(function() is_durable = true end)
    after_each(function()
      is_durable = false
      directory.remove_all()
    end)

    for _, request in ipairs(requests) do
      if not request.open and not request.is_physical then
        it(request[1] .. " fails and leaves everything as it was", function()
          try_all(request, math.max(9, request.least or 0), probe.fail_core, 1)
        end)
      end
    end

    it("a compaction waits, and removes its records later", function()
      local compact = call("compact", 100, { physical = true })
      for n = 1, PAST, is_fast and 7 or 1 do
        local store = new_store(0)
        for _ = 1, 100 do store:put("often", long) end
        local before = store:status().db_size_in_use
        local reached, answer, err = starve(probe.fail_core, n, compact, store)
        assert(answer or is_out_of_memory(err), err)
        probe.check(store)
        compact(store)
        probe.check(store)
        assert.equal(100, store:status().compact_revision)
        assert(store:defragment()) -- the database has the removals then
        assert(store:status().db_size_in_use < before / 2, n)
        store:close()
        if not reached then return end
      end
      error("there is no end")
    end)
  end)

  it("a compaction pauses, and continues later", function()
    local path = directory.new()
    local store = keywatch.open { now = 0, path = path }
    for _ = 1, 100 do store:put("often", long) end
    assert.is_true(store:defragment()) -- the compaction need not wait for a checkpoint
    local before = store:status().db_size_in_use
    store:compact(100)
    assert.equal(0, store:deadline())
    starve(probe.fail_core, 1, call("step", 0), store)
    while store:deadline() == 0 do store:step(0) end -- a checkpoint may have no time yet: its thread was busy
    assert.equal(0.5, store:deadline())
    assert.is_false(store:step(0.4))
    assert.equal(0.5, store:deadline())
    repeat store:step(0.5) until not select(2, store:run_due()) and not store:deadline()
    repeat store:run_due() until store:status().db_size_in_use < before / 2 -- a checkpoint was still on its way
    store:close()
    directory.remove_all()
  end)

  it("a range of many keys fails and changes nothing", function()
    try_all({ "", call("range", "", { prefix = true, sort_target = "mod", sort_order = "descend" }) }, 500,
      probe.fail_core, 1)
  end)

  it("a store is not opened", function()
    local opts = { now = 0 }
    local function open() return keywatch.open(opts) end
    for _, arm in ipairs { probe.fail_core, probe.fail_all } do
      local n = 1
      local reached, store, err = starve(arm, n, open)
      while reached do
        assert(store == nil and is_out_of_memory(err), err)
        n = n + 1
        reached, store, err = starve(arm, n, open)
      end
      assert.equal(2, store:put("a", "").revision)
    end
  end)

  it("an expired lease stays, and ends later", function()
    for n = 1, PAST do
      local store = new_store(9)
      local reached = starve(probe.fail_core, n, call("step", 20), store)
      probe.check(store)
      local keys = store:range("", everything).count
      assert(keys == 10 or keys < 10 and store:status().leases < 3)
      while store:step(25) do end -- luacheck: ignore 542
      assert.same({ 3 }, store:leases())
      for kv in store:each("", everything) do assert(kv.lease == 0 or kv.lease == 3) end
      store:close()
      if not reached then return end
    end
    error("there is no end")
  end)

  it("nothing is lost", function()
    collectgarbage()
    local base = probe.live()
    for _, request in ipairs(requests) do
      for n = 1, 4 do
        local store = prepare(request, 5)
        starve(n % 2 == 0 and probe.fail_core or probe.fail_all, n, request[2], store)
        if n > 2 then store:close() end
      end
    end
    collectgarbage()
    assert.equal(base, probe.live())
  end)
end)
