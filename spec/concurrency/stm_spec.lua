--- Software transactions: fn(tx) is called until its reads and writes can be committed.

local core = require "keywatch.core"
local keywatch = require "keywatch"
local driver = require "keywatch.task.driver"
local virtual = require "keywatch.driver.virtual"

local faces = require "spec.support.faces"
local owners = require "spec.support.owners"

local LEVELS = { "serializable_snapshot", "serializable", "repeatable_reads", "read_committed" }
local STRICT = { "serializable_snapshot", "serializable", "repeatable_reads" }

local OPENERS = owners.openers()
local of_client = OPENERS["a client"]

OPENERS["a namespace of a client"] = function()
  local client, close = of_client()
  return client:namespace("\255/app/"), close
end

--- Counts the calls of an owner's methods. Clients and namespaces are tables, whose methods can be replaced.
local function count_calls(owner)
  local counts = {}
  for _, name in ipairs { "range", "txn" } do
    local method = owner[name]
    counts[name] = 0
    owner[name] = function(...)
      counts[name] = counts[name] + 1
      return method(...)
    end
  end
  return counts
end

local function add(tx, key, n)
  local kv = tx:get(key)
  tx:put(key, tostring((kv and tonumber(kv.value) or 0) + n))
end

local function value_of(owner, key)
  local kv = owner:get(key)
  return kv and kv.value
end

--- Has an owner make a software transaction by fn(tx, attempt). Returns the number of attempts, and its results.
local function transact(owner, fn, opts)
  local n = 0
  local result, err = owner:stm(function(tx)
    n = n + 1
    return fn(tx, n)
  end, opts)
  return n, result, err
end

--- The same at each of some levels: fn(tx, attempt, level). check(level, attempts) follows each; `put` is put before.
local function at_levels(owner, levels, put, fn, check)
  for _, level in ipairs(levels) do
    for key, value in pairs(put) do owner:put(key, value) end
    check(level, (transact(owner, function(tx, attempt) return fn(tx, attempt, level) end, { isolation = level })))
  end
end

local function specs(open)
  local owner, close

  before_each(function() owner, close = open() end)
  after_each(function() close() end)

  it("commits what was written and returns what fn returns", function()
    owner:put("a", "1")
    local results = { n = select("#", owner:stm(function() return nil, 2, nil end)) }
    assert.equal(3, results.n)
    assert.equal("done", owner:stm(function(tx)
      add(tx, "a", 1)
      tx:put("b", "new")
      tx:delete("c")
      return "done"
    end))
    assert.same({ "2", "new" }, { value_of(owner, "a"), value_of(owner, "b") })
  end)

  it("writes all keys in one revision", function()
    owner:stm(function(tx)
      tx:put("a", "1")
      tx:put("b", "2")
    end)
    assert.equal(owner:get("a").mod_revision, owner:get("b").mod_revision)
  end)

  it("reads its own writes, with their known fields", function()
    owner:put("a", "old")
    local lease = assert(owner:lease(60))
    owner:stm(function(tx)
      assert.same({ "old", nil }, { tx:get("a").value, (tx:get("b")) })
      tx:put("a", "new")
      tx:put("b", "x", { lease = lease })
      assert.same({ key = "a", value = "new", lease = 0 }, tx:get("a"))
      assert.same({ key = "b", value = "x", lease = lease.id }, tx:get("b"))
      tx:delete("a")
      assert.is_nil(tx:get("a"))
      tx:put("c", "1")
      tx:delete("c")
    end)
    assert.same({ nil, nil }, { owner:get("a"), (owner:get("c")) })
    assert.equal(lease.id, owner:get("b").lease)
    lease:revoke()
    assert.is_nil(owner:get("b"))
  end)

  it("returns kvs and revisions of keys as they were read", function()
    owner:put("a", "1")
    local kv = owner:get("a")
    owner:stm(function(tx)
      local found = tx:get("a")
      assert.same(kv, found)
      found.mod_revision, found.value = 1, "spoilt"
      assert.same(kv, tx:get("a"))
      tx:put("a", "2")
      assert.equal(kv.mod_revision, tx:revision("a"))
      assert.equal(0, tx:revision("none"))
    end)
    assert.equal("2", value_of(owner, "a"))
  end)

  it("takes keys of any bytes", function()
    for _, key in ipairs { "\0", "\255", "\0\255\0", "a\0" } do
      owner:stm(function(tx) add(tx, key, 1) end)
      owner:stm(function(tx) add(tx, key, 1) end)
      assert.equal("2", value_of(owner, key))
    end
  end)

  it("fails for the empty key as a store does", function()
    for _, use in ipairs {
      function(tx) return tx:get("") end, function(tx) return tx:revision("") end,
      function(tx) tx:put("", "v") end, function(tx) tx:delete("") end,
      function(tx) return pcall(tx.get, tx, "") end, -- caught, and over all the same
    } do
      local result, err = owner:stm(function(tx)
        tx:put("a", "1")
        return use(tx) or true
      end)
      assert.same({ nil, "empty_key", nil }, { result, err.code, (owner:get("a")) })
    end
    assert.equal("empty_key", select(2, owner:stm(print, { prefetch = { "" } })).code)
  end)

  it("writes nothing if fn raises, and raises the same error", function()
    local raised = setmetatable({}, { __eq = function() return true end })
    for _, what in ipairs { "text", raised } do
      local ok, err = pcall(owner.stm, owner, function(tx)
        tx:put("a", "1")
        error(what, 0)
      end)
      assert.same({ false, true }, { ok, (rawequal(what, err)) })
    end
    assert.is_false((pcall(owner.stm, owner, function(tx)
      tx:put("a", "1")
      error(nil)
    end)))
    assert.is_nil(owner:get("a"))
  end)

  it("refuses tx after the end", function()
    local kept
    owner:stm(function(tx) kept = tx end)
    pcall(owner.stm, owner, function(tx)
      kept = tx
      error("x")
    end)
    for _, call in ipairs {
      function() kept:get("a") end, function() kept:put("a", "1") end, function() kept:delete("a") end,
      function() kept:revision("a") end,
    } do
      local ok, err = pcall(call)
      assert.is_false(ok)
      assert(err:find("stm_spec.lua:%d+: %l+: the software transaction has ended"), err)
    end
    assert(tostring(kept):find("^keywatch.tx<0 read, 0 written over>"))
  end)

  it("calls fn again if a read key has changed, and then knows the new values", function()
    at_levels(owner, STRICT, { n = "0" }, function(tx, attempt)
      local n = tonumber(tx:get("n").value)
      if attempt == 1 then owner:put("n", "10") end
      tx:put("n", tostring(n + 1))
    end, function(level, attempts) assert.same({ 2, "11" }, { attempts, value_of(owner, "n") }, level) end)
  end)

  it("notices a key that was created, deleted, or put again with the same value", function()
    for _, change in ipairs {
      function() owner:put("new", "1") end, function() owner:delete("old") end, function() owner:put("old", "1") end,
    } do
      owner:delete("new")
      owner:put("old", "1")
      assert.equal(2, (transact(owner, function(tx, attempt)
        for _, key in ipairs { "new", "old" } do tx:get(key) end
        if attempt == 1 then change() end
        tx:put("other", "x")
      end)))
    end
  end)

  it("reads at one revision with the serializable levels, and not with the others", function()
    local seen
    at_levels(owner, LEVELS, { a = "old", b = "old" }, function(tx, attempt)
      local a = tx:get("a").value
      if attempt > 1 then return end
      owner:put("b", "new")
      seen = a .. " " .. tx:get("b").value
    end, function(level)
      assert.equal(level:find("^serializable") and "old old" or "old new", seen, level)
    end)
  end)

  it("reads each key once in an attempt, whatever the level", function()
    at_levels(owner, LEVELS, { a = "old" }, function(tx, attempt)
      local first = tx:get("a").value
      if attempt == 1 then owner:put("a", "new") end
      assert.equal(first, tx:get("a").value)
    end, function() end)
  end)

  it("forbids lost updates and write skew, except with read_committed", function()
    local function sum_of(reader) return tonumber(reader:get("x").value) + tonumber(reader:get("y").value) end
    -- Both take one away if the sum is 2. Another one does the same with the other key at the same time.
    at_levels(owner, LEVELS, { x = "1", y = "1" }, function(tx, attempt)
      local sum = sum_of(tx)
      if attempt == 1 then owner:put("y", "0") end
      if sum == 2 then tx:put("x", "0") end
    end, function(level) assert.equal(level == "read_committed" and 0 or 1, sum_of(owner), level) end)
  end)

  it("notices only with serializable_snapshot a change of a key that is written and was not read", function()
    at_levels(owner, LEVELS, { a = "1", blind = "1" }, function(tx, attempt)
      tx:get("a")
      if attempt == 1 then owner:put("blind", "2") end
      tx:put("blind", "3")
    end, function(level, attempts)
      assert.same({ level == "serializable_snapshot" and 2 or 1, "3" }, { attempts, value_of(owner, "blind") }, level)
    end)
  end)

  it("reads the existing state again if its revision was compacted", function()
    owner:put("a", "1")
    assert.same({ 2, "12" }, { transact(owner, function(tx, attempt)
      local a = tx:get("a").value
      if attempt == 1 then owner:compact(owner:put("b", "2").revision) end
      local b = tx:get("b")
      return a .. (b and b.value or "-")
    end) })
  end)

  it("reports the number of operations, if there are too many", function()
    local result, err = owner:stm(function(tx)
      for i = 1, 200 do tx:put("k" .. i, "v") end
    end)
    assert.same({ nil, "too_many_ops" }, { result, err.code })
    assert(err.message:find("reads 0 keys and writes 200", 1, true), err.message)
    local keys = {}
    for i = 1, 200 do keys[i] = "k" .. i end
    err = select(2, owner:stm(print, { prefetch = keys }))
    assert.equal("too_many_ops", err.code)
    assert(err.message:find("reads 200 keys", 1, true), err.message)
  end)

  it("fails at its deadline if there are always conflicts", function()
    owner:put("n", "0")
    keywatch.run(function()
      local attempts, result, err = transact(owner, function(tx)
        add(tx, "n", 1)
        owner:put("n", "0")
      end, { timeout = 0.2 })
      assert(err.code == "deadline_exceeded" or err.code == "unavailable", err.code)
      assert.same({ nil, true, "0" }, { result, attempts > 1, value_of(owner, "n") })
    end)
  end)

  it("has written nothing if its deadline has passed before fn returned", function()
    keywatch.run(function()
      local result, err = owner:stm(function(tx)
        tx:put("n", "1")
        keywatch.sleep(0.02)
      end, { timeout = 0.01 })
      assert.same({ nil, "deadline_exceeded", nil, nil }, { result, err.code, err.maybe_done, (owner:get("n")) })
    end)
  end)

  it("is cancelled where fn waits, and has then written nothing", function()
    keywatch.run(function()
      local begun = keywatch.channel(1)
      local task = keywatch.spawn(function()
        owner:stm(function(tx)
          add(tx, "a", 1)
          begun:send(true)
          keywatch.sleep(1000)
        end)
      end)
      begun:receive()
      task:cancel()
      local ok, err = task:join()
      assert.same({ nil, "cancelled" }, { ok or nil, err.code })
    end)
    assert.is_nil(owner:get("a"))
  end)

  it("lets tasks of fn read at the same time, each key once and all at one revision", function()
    owner:put("a", "0")
    owner:put("b", "0")
    keywatch.run(function()
      assert.equal(1, (transact(owner, function(tx)
        local tasks = {}
        for i, key in ipairs { "a", "b", "a", "b" } do tasks[i] = keywatch.spawn(tx.get, tx, key) end
        for _, task in ipairs(tasks) do assert.equal("0", select(2, task:join()).value) end
        add(tx, "a", 1)
      end)))
    end)
    assert.equal("1", value_of(owner, "a"))
  end)

  it("is a transaction of its own inside of another one", function()
    owner:put("a", "1")
    assert.equal(2, (transact(owner, function(tx, attempt)
      add(tx, "a", 1)
      if attempt == 1 then owner:stm(function(inner) add(inner, "a", 10) end) end
    end)))
    assert.equal("12", value_of(owner, "a"))
  end)
end

for name, open in pairs(OPENERS) do
  describe("a software transaction of " .. name, function() specs(open) end)
end

describe("a software transaction of etcd #once", function()
  specs(function() return faces.etcd.open({}, true) end)

  teardown(faces.etcd.stop)
end)

describe("a software transaction sends", function()
  local client, close, counts

  before_each(function()
    client, close = of_client()
    client:put("a", "1")
    client:put("b", "2")
    counts = count_calls(client)
  end)

  after_each(function() close() end)

  it("one request for each key that was not prefetched, and one to commit", function()
    client:stm(function(tx)
      tx:get("a")
      tx:get("b")
      tx:get("a")
      tx:revision("b")
      tx:put("a", "3")
    end)
    assert.same({ range = 2, txn = 1 }, counts)
  end)

  it("one request for all keys to be prefetched", function()
    client:stm(function(tx)
      add(tx, "a", 1)
      add(tx, "b", 1)
    end, { prefetch = { "a", "b", "a" } })
    assert.same({ range = 0, txn = 2 }, counts)
  end)

  it("one request for another attempt", function()
    at_levels(client, STRICT, {}, function(tx, attempt, level)
      if attempt == 1 then counts.range, counts.txn = 0, 0 end
      for _, key in ipairs { "a", "b" } do add(tx, key, 1) end
      if attempt <= 2 then client:put("a", "0") end
      return level
    end, function(level, attempts)
      assert.equal(3, attempts)
      assert.same({ range = 2, txn = 3 }, counts, level)
    end)
  end)

  it("no commit if it has read at one revision and written nothing", function()
    for _, level in ipairs { "serializable_snapshot", "serializable", "read_committed" } do
      counts.range, counts.txn = 0, 0
      client:stm(function(tx)
        tx:get("a")
        tx:get("b")
      end, { isolation = level })
      assert.same({ range = 2, txn = 0 }, counts, level)
    end
  end)

  it("a check of reads at several revisions, even if it has written nothing", function()
    assert.equal(2, (transact(client, function(tx, attempt)
      for _, key in ipairs { "a", "b" } do tx:get(key) end
      if attempt == 1 then client:put("a", "3") end
    end, { isolation = "repeatable_reads" })))
  end)

  it("reads at the revision of the conflict in a later attempt, for new keys", function()
    local seen
    local attempts = transact(client, function(tx, attempt)
      local a = tx:get("a").value
      if attempt == 1 then client:put("a", "new") end
      if attempt == 2 then
        client:put("b", "later")
        seen = a .. " " .. tx:get("b").value
      end
      tx:put("c", "x")
    end)
    assert.same({ "new 2", 3 }, { seen, attempts })
  end)

  --- Has the answer of the client's first transaction be lost. Returns a function that returns how many there were.
  local function lose_answer(is_done)
    local txn, n = client.txn, 0
    function client.txn(...)
      n = n + 1
      if n > 1 then return txn(...) end
      if is_done then assert(txn(...)) end
      local err = core.new_error("unavailable")
      err.maybe_done = true
      return nil, err
    end
    return function() return n end
  end

  it("no second commit if the first one is in doubt", function()
    local asked = lose_answer(true)
    local result, err = client:stm(function(tx) add(tx, "a", 1) end)
    assert.same({ nil, true, 1, "2" }, { result, err.maybe_done, asked(), value_of(client, "a") })
  end)

  it("one request for each key if the answer of the prefetch is lost", function()
    lose_answer(false)
    assert.is_true(client:stm(function(tx)
      add(tx, "a", 1)
      return true
    end, { prefetch = { "a", "b" } }))
    assert.equal("2", value_of(client, "a"))
  end)

  it("reads that make a lagging member wait instead of failing", function()
    local range, asked = client.range, {}
    function client.range(self, key, opts)
      asked[#asked + 1] = tostring(opts.serializable)
      if opts.serializable then return nil, core.new_error("future_revision") end
      return range(self, key, opts)
    end
    assert.equal("12", client:stm(function(tx) return tx:get("a").value .. tx:get("b").value end))
    assert.same({ "false", "true", "false" }, asked)
  end)
end)

describe("in virtual time", function()
  local before

  before_each(function() before = driver.use(virtual.new()) end)
  after_each(function() driver.use(before) end)

  --- Has tasks add one to a counter, each by one software transaction that takes a millisecond. Returns the value of
  -- the counter, the number of attempts, and the seconds that it took.
  local function count(store, n_tasks)
    local attempts = 0
    local function increment()
      assert(store:stm(function(tx)
        attempts = attempts + 1
        local kv = tx:get("n")
        keywatch.sleep(0.001)
        tx:put("n", tostring((kv and tonumber(kv.value) or 0) + 1))
        return true
      end))
    end
    keywatch.run(function()
      local tasks = {}
      for i = 1, n_tasks do tasks[i] = keywatch.spawn(increment) end
      for _, task in ipairs(tasks) do assert(task:join()) end
    end)
    return store:get("n").value, attempts, keywatch.now()
  end

  it("many software transactions of one counter succeed, because they wait at random", function()
    local store = keywatch.open()
    local value, attempts = count(store, 50)
    assert.equal("50", value)
    assert(attempts < 50 * 51 / 2, ("%d attempts: no fewer than without waiting"):format(attempts))
    store:close()
  end)

  it("the first conflict costs no time", function()
    local store = keywatch.open()
    local value, attempts, seconds = count(store, 2)
    assert.same({ "2", 3 }, { value, attempts })
    assert(seconds < 0.0021, seconds)
    store:close()
  end)

  it("the deadline holds for all attempts together, also while they wait", function()
    local store = keywatch.open()
    keywatch.run(function()
      local _, err = store:stm(function(tx)
        tx:get("n")
        store:put("n", "x")
        tx:put("n", "y")
      end, { deadline = 5 })
      assert.equal("deadline_exceeded", err.code)
      assert(err.message:find("conflicts", 1, true), err.message)
      assert.equal(5, keywatch.now())
    end)
    store:close()
  end)
end)
