--- Leases of a store that are kept: renewed in the background, and their loss reported at once. In virtual time, so
-- that an hour is nothing.

local compat = require "keywatch.support.compat"
local core = require "keywatch.core"
local drivers = require "keywatch.task.driver"
local keywatch = require "keywatch"
local virtual = require "keywatch.driver.virtual"

local code = require("spec.support.answer").code
local directory = require "spec.support.directory"
local dose = require "spec.support.dose"
local new_random = require("spec.support.random").new
local occurrences = require "spec.support.occurrences"
local program = require "spec.support.program"

local SEED = tonumber(os.getenv("KW_SEED")) or os.time()
local ROUNDS = dose.of(2, 6)
local HOUR = 3600

--- Collects all garbage, and lets the loop close what finalizers have left.
local function collect()
  collectgarbage()
  keywatch.sleep(0)
end

--- Checks that a lost lease reports the reason, to all callers and permanently.
local function expect_lost(lease, why)
  for _ = 1, 2 do
    for _, err in ipairs {
      lease:wait_lost(), lease:wait_lost(0), lease:error(), select(2, keywatch.select { lease }),
    } do
      assert.equal("lost", err.code)
      assert.equal(("keywatch: the lease %s is lost: %s"):format(core.decimal(lease.id), why), err.message)
    end
  end
end

describe("a kept lease of a store", function()
  local before, store

  before_each(function()
    local driver = virtual.new(100, { limit = ROUNDS * 1000 * HOUR })
    before = drivers.use(driver)
    store = keywatch.open { now = 100 }
    driver.carry(store)
  end)

  after_each(function()
    store:close()
    drivers.use(before)
  end)

  local function inside(fn)
    return function() keywatch.run(fn) end
  end

  it("lives while it is kept", inside(function()
    local lease = store:lease(60)
    store:put("a", "1", { lease = lease })
    assert.equal(lease, lease:keep())
    assert.equal(lease, lease:keep())
    for _ = 1, 100 do
      keywatch.sleep(HOUR / 100)
      assert.is_true(lease:remaining() >= 39, lease:remaining())
    end
    assert.is_nil(lease:error())
    assert.equal("timeout", code(lease:wait_lost(HOUR)))
    assert.equal("timeout", code(lease:wait_lost(0)))
    assert.equal("timeout", code(keywatch.select { lease, timeout = HOUR }))
    assert.equal("timeout", code(keywatch.select { lease, timeout = 0 }))
    assert.equal("1", store:get("a").value)
  end))

  it("is renewed when it is kept, and after a third of its TTL", inside(function()
    local lease = store:lease(60)
    keywatch.sleep(50)
    lease:keep()
    assert.equal(60, lease:remaining())
    keywatch.sleep(19)
    assert.equal(41, lease:remaining())
    keywatch.sleep(1.5)
    assert.is_true(lease:remaining() >= 58)
  end))

  it("is lost at once when it is revoked: by itself, or another object", inside(function()
    local revokes = {
      function(lease) assert(lease:revoke()) end,
      function(lease) assert(store:lease_by_id(lease.id):revoke()) end,
      function(lease) assert(store:lease_revoke(lease.id)) end,
    }
    for _, revoke in ipairs(revokes) do
      local lease = store:lease(60):keep()
      local since, received = keywatch.now(), {}
      local function note(err) table.insert(received, { err.code, keywatch.now() - since }) end
      local tasks = {
        keywatch.spawn(function() note(lease:wait_lost()) end),
        keywatch.spawn(function() note(lease:wait_lost(HOUR)) end),
        keywatch.spawn(function() note(select(2, keywatch.select { lease })) end),
        keywatch.spawn(function()
          local found, err = keywatch.select { keywatch.channel(), lease, timeout = HOUR }
          assert.equal(lease, found)
          note(err)
        end),
      }
      keywatch.sleep(1)
      revoke(lease)
      keywatch.join(tasks)
      assert.same({ { "lost", 1 }, { "lost", 1 }, { "lost", 1 }, { "lost", 1 } }, received)
      expect_lost(lease, "it was revoked")
      assert.equal("lease_not_found", code(lease:revoke()))
    end
  end))

  it("reports its loss even without waiters", inside(function()
    local lease = store:lease(60):keep()
    store:lease_revoke(lease.id)
    assert.equal("lost", lease:error().code) -- before the loop has turned
    assert.equal(lease, lease:keep())
    expect_lost(lease, "it was revoked")
  end))

  it("is lost if it expires because the loop did not turn", inside(function()
    local lease = store:lease(60):keep()
    while store:step(keywatch.now() + 61) do end -- luacheck: ignore 542
    expect_lost(lease, "it has expired")
  end))

  it("is renewed by calls of error, if no loop turns", inside(function()
    local manual = keywatch.open { now = 100 }
    local lease = manual:lease(60):keep()
    local clock = drivers.get()
    local now = clock.now
    for i = 1, 20 do
      clock.now = function() return 100 + 25 * i end
      manual:step(100 + 25 * i)
      assert.is_nil(lease:error())
      assert.equal(60, lease:remaining())
    end
    clock.now = now
    lease:orphan()
    manual:close()
  end))

  it("is lost if the lease does not exist", inside(function()
    expect_lost(store:lease_by_id(77):keep(), "it has expired, or was revoked")
    local lease = store:lease(60)
    lease:revoke()
    expect_lost(lease:keep(), "it has expired, or was revoked")
  end))

  it("is lost when the store is closed, and if it is kept afterwards", inside(function()
    local lease, other = store:lease(60):keep(), store:lease(60)
    local task = keywatch.spawn(function() return lease:wait_lost() end)
    keywatch.sleep(1)
    store:close()
    assert.equal("lost", select(2, task:join()).code)
    expect_lost(lease, "the store is closed")
    expect_lost(other:keep(), "the store is closed")
  end))

  it("expires after it was orphaned, which its waiters learn", inside(function()
    local lease = store:lease(60):keep()
    local task = keywatch.spawn(function() return lease:wait_lost() end)
    local other = keywatch.spawn(function() return keywatch.select { lease } end)
    keywatch.sleep(HOUR)
    assert.is_nil(lease:orphan())
    local _, lost, err = task:join()
    assert.same({ nil, "closed" }, { lost, err.code })
    local _, found, none, why = other:join()
    assert.same({ lease, nil, "closed" }, { found, none, why.code })
    assert.is_nil(lease:error())
    assert.equal("closed", code(lease:wait_lost(0)))
    lease:orphan()
    keywatch.sleep(39)
    assert(lease:remaining())
    keywatch.sleep(22)
    assert.equal("lease_not_found", code(lease:remaining()))
  end))

  it("can be kept again after it was orphaned", inside(function()
    local lease = store:lease(60):keep()
    lease:orphan()
    keywatch.sleep(30)
    lease:keep()
    keywatch.sleep(HOUR)
    assert.is_nil(lease:error())
    assert(lease:remaining())
    local task = keywatch.spawn(function() return lease:wait_lost() end)
    keywatch.sleep(1)
    lease:orphan()
    lease:keep() -- before the task has run again
    store:lease_revoke(lease.id)
    assert.equal("lost", select(2, task:join()).code)
  end))

  it("is kept by one object though a finalizer orphans the other one", inside(function()
    local lease = store:lease(60):keep()
    local other = store:lease_by_id(lease.id)
    local sentinel = compat.sentinel
    rawset(compat, "sentinel", function(fn) -- stands for an allocation
      rawset(compat, "sentinel", sentinel)
      lease:orphan()
      return sentinel(fn)
    end)
    other:keep()
    keywatch.sleep(HOUR)
    assert(other:remaining())
    assert.is_nil(other:error())
    store:lease_revoke(lease.id)
    expect_lost(other, "it was revoked")
  end))

  it("is not kept if the keeper cannot start", inside(function()
    local lease = store:lease(60)
    local methods = core.store_methods
    local tag_lease = methods.tag_lease
    rawset(methods, "tag_lease", function() error("spec: in the middle of a call", 0) end)
    local ok, err = pcall(lease.keep, lease)
    rawset(methods, "tag_lease", tag_lease)
    assert.is_false(ok)
    assert.matches("spec: in the middle of a call", err, 1, true)
    keywatch.sleep(61)
    assert.equal("lease_not_found", code(lease:remaining()))
  end))

  it("is not confused with a later lease of the same id", inside(function()
    local lease = store:lease(60, { id = 7 }):keep()
    lease:revoke()
    local later = store:lease(60, { id = 7 }):keep()
    keywatch.sleep(HOUR)
    assert.equal("lost", lease:error().code)
    assert.is_nil(later:error())
  end))

  it("expires when its object is dropped", inside(function()
    local id
    do
      local lease = store:lease(60):keep()
      id = lease.id
      keywatch.sleep(HOUR)
    end
    keywatch.spawn(function() end):join() -- its frame may hold the object
    collect()
    keywatch.sleep(61)
    assert.equal("lease_not_found", code(store:lease_by_id(id):remaining()))
  end))

  it("is not collected while a task waits for its loss", inside(function()
    local id
    do
      local lease = store:lease(60):keep()
      id = lease.id
      keywatch.spawn(function() return lease:wait_lost() end)
      keywatch.spawn(function() return keywatch.select { lease } end)
    end
    for _ = 1, 5 do
      collect()
      keywatch.sleep(HOUR)
    end
    assert(store:lease_by_id(id):remaining())
  end))

  it("detaches from the driver when no lease is kept", inside(function()
    local inner = drivers.get().inside()
    local n = #inner.pollers
    local lease, other = store:lease(60):keep(), store:lease(60):keep()
    assert.equal(n + 1, #inner.pollers)
    lease:orphan()
    other:revoke()
    keywatch.sleep(1)
    assert.equal(n, #inner.pollers)
  end))

  it("detaches from the driver when its store is closed", inside(function()
    local stores = setmetatable({}, { __mode = "k" })
    for _ = 1, 10 do
      local other = keywatch.open { now = keywatch.now() }
      drivers.get().carry(other)
      other:lease(60):keep()
      other:close()
      stores[other] = true
    end
    keywatch.sleep(1)
    collect()
    collect()
    assert.is_nil(next(stores))
  end))

  it("cannot be waited for if it was never kept", function()
    local lease = store:lease(60)
    assert.is_nil(lease:error())
    lease:orphan()
    for _, wait in ipairs {
      function() lease:wait_lost() end, function() lease:wait_lost(0) end,
      function() keywatch.select { lease } end, function() keywatch.select { lease, timeout = 0 } end,
    } do
      local ok, err = pcall(wait)
      assert.is_false(ok)
      assert.is_truthy(err:find("keep_spec.lua", 1, true) and err:find("the lease is not kept", 1, true), err)
    end
  end)

  it("behaves like a simple model", function()
    local acts_of_all = { "grant", "again", "keep", "orphan", "revoke", "drop", "pass" }
    occurrences.await(acts_of_all, ROUNDS, function(round)
      local random, counts = new_random(SEED + round), {}
      keywatch.run(function()
        local leases = {} -- { object =, id =, is_kept =, has_ended = }

        local function ended(id)
          for _, one in ipairs(leases) do
            if one.id == id then one.has_ended = true end
          end
        end

        local acts = {}
        function acts.grant()
          local object = store:lease(random:between(2, 120))
          table.insert(leases, { object = object, id = object.id })
        end
        function acts.again(one)
          table.insert(leases, { object = store:lease_by_id(one.id), id = one.id, has_ended = one.has_ended })
        end
        function acts.keep(one)
          one.object:keep()
          if not one.was_lost then one.is_kept = true end
        end
        function acts.orphan(one)
          one.object:orphan()
          if not one.was_lost then one.is_kept = false end
        end
        function acts.revoke(one)
          one.object:revoke()
          ended(one.id)
        end
        function acts.drop(one)
          for i, other in ipairs(leases) do
            if other == one then table.remove(leases, i) end
          end
          one.object = nil
          collect()
        end
        function acts.pass() keywatch.sleep(random:between(1, 300)) end

        for _ = 1, 150 do
          local one = leases[1] and random:pick(leases)
          local name = random:weighted {
            { 3, "grant" }, { 2, "again" }, { 5, "keep" }, { 2, "orphan" }, { 1, "revoke" }, { 1, "drop" },
            { 4, "pass" },
          }
          if one or name == "grant" or name == "pass" then
            acts[name](one)
            counts[name] = (counts[name] or 0) + 1
          end
          local kept, lives = {}, {}
          for _, id in ipairs(store:leases()) do lives[id] = true end
          for _, other in ipairs(leases) do
            if not lives[other.id] then other.has_ended = true end
            if other.is_kept and not other.has_ended then kept[other.id] = true end
          end
          for _, other in ipairs(leases) do
            local err = other.object:error()
            other.was_lost = other.was_lost or err ~= nil
            if other.is_kept then
              assert.equal(other.has_ended, err ~= nil or nil, err and err.message or "is not lost")
            elseif not other.was_lost then
              assert.is_nil(err)
            end
          end
          for id in pairs(kept) do assert.is_true(lives[id]) end
        end
        for _, one in ipairs(leases) do one.object:orphan() end
      end)
      return counts
    end)
  end)
end)

describe("a kept lease of a durable store", function()
  after_each(directory.remove_all)

  it("is lost once its revocation is durable", function()
    local store = assert(keywatch.open { path = directory.new() })
    keywatch.run(function()
      local lease = assert(store:lease(60)):keep()
      local received = keywatch.channel()
      keywatch.spawn(function() received:send(lease:wait_lost()) end)
      keywatch.sleep(0)
      assert(store:lease_by_id(lease.id):revoke())
      assert.equal("lost", received:receive().code)
      expect_lost(lease, "it was revoked")
    end)
    store:close()
  end)

  it("is lost at top level, too", function()
    local store = assert(keywatch.open { path = directory.new() })
    local lease = assert(store:lease(60)):keep()
    keywatch.spawn(function() store:lease_revoke(lease.id) end)
    assert.equal("lost", lease:wait_lost().code)
    store:close()
    expect_lost(store:lease_by_id(1):keep(), "the store is closed")
  end)

  it("stays with the parent after a fork; in memory each process has its own", function()
    local _, printed = program.run_forking(([[
      local uv = require "keywatch.uv"
      local disk, memory = assert(keywatch.open { path = %q }), keywatch.open()
      local kept, also = disk:lease(60, { id = 7 }):keep(), memory:lease(60, { id = 8 }):keep()
      local other = disk:lease(60)
      local parent = uv.pid()
      fork()
      if uv.pid() ~= parent then
        print((select(2, pcall(other.keep, other)):gsub("^[^:]*:%%d+: ", "")))
        print(kept:error())
        print(kept:wait_lost())
        print(keywatch.select { kept })
        print(also:error(), select(2, also:wait_lost(0.01)))
        memory:lease_revoke(8)
        print(also:wait_lost())
        os.exit(0, true)
      end
      wait()
      print(kept:error(), also:error(), select(2, kept:wait_lost(0.01)))
      disk:close()
    ]]):format(directory.new()))
    local lost = "keywatch: the lease 7 is lost: the parent process keeps it (lost)\n"
    assert.equal("the store is that of the parent process: open it after the fork\n"
      .. lost .. lost .. "keywatch.lease<id=7 ttl=60>\t" .. lost .. "nil\tkeywatch: timed out (timeout)\n"
      .. "keywatch: the lease 8 is lost: it was revoked (lost)\nnil\tnil\tkeywatch: timed out (timeout)\n", printed)
  end)
end)

describe("a lease of another store", function()
  local store, other

  before_each(function()
    store, other = keywatch.open { now = 0 }, keywatch.open { now = 0 }
    store:lease(10, { id = 7 })
  end)

  it("is refused, also by a namespace, by a fence and in a transaction", function()
    local text, fence = "the lease belongs to another store", assert(store:lock("l")):fence()
    for _, lease in ipairs { other:lease(10, { id = 7 }), other:namespace("a/"):lease_by_id(7) } do
      assert.error_matches(function() store:put("a", "", { lease = lease }) end, "put: option 'lease': " .. text)
      assert.error_matches(function() store:namespace("b/"):put("a", "", { lease = lease }) end, text)
      assert.error_matches(function() fence:put("a", "", { lease = lease }) end, text)
      assert.error_matches(function() store:txn { success = { { put = "a", value = "", lease = lease } } } end, text)
      assert.error_matches(function() store:txn { compare = { { key = "a", lease = lease } } } end, text)
      assert.error_matches(function()
        store:stm(function(tx) tx:put("a", "", { lease = lease }) end)
      end, text)
    end
    assert.is_nil(store:get("a"))
  end)

  it("is accepted by its id, and by an object of another namespace of the same store", function()
    assert(store:put("a", "", { lease = other:lease(10, { id = 7 }).id }))
    assert(store:namespace("b/"):put("a", "", { lease = store:namespace("c/"):lease_by_id(7) }))
    assert.equal("a b/a", table.concat(store:lease_by_id(7):keys(), " "))
  end)
end)
