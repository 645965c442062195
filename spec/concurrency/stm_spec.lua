--- Software transactions: fn(tx) is called until what it has read and written could be committed.

local keywatch = require "keywatch"
local driver = require "keywatch.task.driver"
local virtual = require "keywatch.driver.virtual"

local directory = require "spec.support.directory"
local faces = require "spec.support.faces"


local LEVELS = { "serializable_snapshot", "serializable", "repeatable_reads", "read_committed" }

-- {====== Owners ======

local function of_client(store)
  local serving = assert(keywatch.serve { store = store, listen = "http://127.0.0.1:0" })
  local client = keywatch.connect(serving:addresses()[1])
  return client, function()
    client:close()
    serving:close()
    store:close()
  end
end

-- Each returns an owner, which is empty, and a function that closes it.
local OWNERS = {
  ["a store"] = function()
    local store = keywatch.open()
    return store, function() store:close() end
  end,
  ["a durable store"] = function()
    local store = assert(keywatch.open { path = directory.new() })
    return store, function()
      store:close()
      directory.remove_all()
    end
  end,
  ["a client"] = function() return of_client(keywatch.open()) end,
  ["a namespace of a client"] = function()
    local client, close = of_client(keywatch.open())
    return client:namespace("\255/app/"), close
  end,
}

-- }======

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

-- {====== Behaviour, over every owner ======

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
    assert.equal("2", value_of(owner, "a"))
    assert.equal("new", value_of(owner, "b"))
  end)

  it("writes all in one revision", function()
    owner:stm(function(tx)
      tx:put("a", "1")
      tx:put("b", "2")
    end)
    assert.equal(owner:get("a").mod_revision, owner:get("b").mod_revision)
  end)

  it("reads its own writes, and what is known of them", function()
    owner:put("a", "old")
    local lease = assert(owner:lease(60))
    owner:stm(function(tx)
      assert.equal("old", tx:get("a").value)
      assert.is_nil(tx:get("b"))
      tx:put("a", "new")
      tx:put("b", "x", { lease = lease })
      assert.same({ key = "a", value = "new", lease = 0 }, tx:get("a"))
      assert.same({ key = "b", value = "x", lease = lease.id }, tx:get("b"))
      tx:delete("a")
      assert.is_nil(tx:get("a"))
      tx:put("c", "1")
      tx:delete("c")
    end)
    assert.is_nil(owner:get("a"))
    assert.is_nil(owner:get("c"))
    assert.equal(lease.id, owner:get("b").lease)
    lease:revoke()
    assert.is_nil(owner:get("b"))
  end)

  it("gives kvs and the revisions of keys as they were read", function()
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

  it("fails for the empty key as its owner does", function()
    for _, use in ipairs {
      function(tx) return tx:get("") end, function(tx) return tx:revision("") end,
      function(tx) tx:put("", "v") end, function(tx) tx:delete("") end,
      function(tx) return pcall(tx.get, tx, "") end, -- caught, and over all the same
    } do
      local result, err = owner:stm(function(tx)
        tx:put("a", "1")
        return use(tx) or true
      end)
      assert.is_nil(result)
      assert.equal("empty_key", err.code)
      assert.is_nil(owner:get("a"))
    end
    assert.equal("empty_key", select(2, owner:stm(print, { prefetch = { "" } })).code)
  end)

  it("writes nothing if fn raises, and raises the same", function()
    local raised = setmetatable({}, { __eq = function() return true end })
    for _, what in ipairs { "text", raised } do
      local ok, err = pcall(owner.stm, owner, function(tx)
        tx:put("a", "1")
        error(what, 0)
      end)
      assert.is_false(ok)
      assert.is_true(rawequal(what, err))
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
      assert(err:find("stm_spec.lua:%d+: %l+: the software transaction is over"), err)
    end
    assert(tostring(kept):find("^keywatch.tx<0 read, 0 written over>"))
  end)

  it("calls fn again if what it has read has changed, and knows then what is new", function()
    for _, level in ipairs { "serializable_snapshot", "serializable", "repeatable_reads" } do
      owner:put("n", "0")
      local attempts = 0
      owner:stm(function(tx)
        attempts = attempts + 1
        local n = tonumber(tx:get("n").value)
        if attempts == 1 then owner:put("n", "10") end
        tx:put("n", tostring(n + 1))
      end, { isolation = level })
      assert.equal(2, attempts, level)
      assert.equal("11", value_of(owner, "n"), level)
    end
  end)

  it("notices that a key has come, or gone, and that one was put again with the same value", function()
    for _, change in ipairs {
      function() owner:put("new", "1") end, function() owner:delete("old") end, function() owner:put("old", "1") end,
    } do
      owner:delete("new")
      owner:put("old", "1")
      local attempts = 0
      owner:stm(function(tx)
        attempts = attempts + 1
        tx:get("new")
        tx:get("old")
        if attempts == 1 then change() end
        tx:put("other", "x")
      end)
      assert.equal(2, attempts)
    end
  end)

  it("reads at one revision with the serializable levels, and not with the others", function()
    local sees_change = { repeatable_reads = true, read_committed = true }
    for _, level in ipairs(LEVELS) do
      owner:put("a", "old")
      owner:put("b", "old")
      local attempts, seen = 0, nil
      owner:stm(function(tx)
        attempts = attempts + 1
        local a = tx:get("a").value
        if attempts == 1 then
          owner:put("b", "new")
          seen = a .. " " .. tx:get("b").value
        end
      end, { isolation = level })
      assert.equal(sees_change[level] and "old new" or "old old", seen, level)
    end
  end)

  it("reads each key once in an attempt, whatever the level", function()
    for _, level in ipairs(LEVELS) do
      owner:put("a", "old")
      local is_second = false
      owner:stm(function(tx)
        local first = tx:get("a").value
        if not is_second then owner:put("a", "new") end
        is_second = true
        assert.equal(first, tx:get("a").value)
      end, { isolation = level })
    end
  end)

  it("forbids lost updates and write skew, except with read_committed", function()
    for _, level in ipairs(LEVELS) do
      owner:put("x", "1")
      owner:put("y", "1")
      local attempts = 0
      -- Both take one away if the sum is 2. Another one does so meanwhile, of the other key.
      owner:stm(function(tx)
        attempts = attempts + 1
        local sum = tonumber(tx:get("x").value) + tonumber(tx:get("y").value)
        if attempts == 1 then owner:put("y", "0") end
        if sum == 2 then tx:put("x", "0") end
      end, { isolation = level })
      local sum = tonumber(value_of(owner, "x")) + tonumber(value_of(owner, "y"))
      assert.equal(level == "read_committed" and 0 or 1, sum, level)
    end
  end)

  it("notices only with serializable_snapshot that a key has changed that is written and was not read", function()
    for _, level in ipairs(LEVELS) do
      owner:put("a", "1")
      owner:put("blind", "1")
      local attempts = 0
      owner:stm(function(tx)
        attempts = attempts + 1
        tx:get("a")
        if attempts == 1 then owner:put("blind", "2") end
        tx:put("blind", "3")
      end, { isolation = level })
      assert.equal(level == "serializable_snapshot" and 2 or 1, attempts, level)
      assert.equal("3", value_of(owner, "blind"))
    end
  end)

  it("reads the existing state again if its revision was compacted", function()
    owner:put("a", "1")
    local attempts = 0
    local sum = owner:stm(function(tx)
      attempts = attempts + 1
      local a = tx:get("a").value
      if attempts == 1 then owner:compact(owner:put("b", "2").revision) end
      local b = tx:get("b")
      return a .. (b and b.value or "-")
    end)
    assert.equal(2, attempts)
    assert.equal("12", sum)
  end)

  it("says how many operations there were, if they are too many", function()
    local result, err = owner:stm(function(tx)
      for i = 1, 200 do tx:put("k" .. i, "v") end
    end)
    assert.is_nil(result)
    assert.equal("too_many_ops", err.code)
    assert(err.message:find("reads 0 keys and writes 200", 1, true), err.message)
    local keys = {}
    for i = 1, 200 do keys[i] = "k" .. i end
    err = select(2, owner:stm(print, { prefetch = keys }))
    assert.equal("too_many_ops", err.code)
    assert(err.message:find("reads 200 keys", 1, true), err.message)
  end)

  it("gives up at its deadline if there are always conflicts", function()
    owner:put("n", "0")
    keywatch.run(function()
      local attempts = 0
      local result, err = owner:stm(function(tx)
        attempts = attempts + 1
        add(tx, "n", 1)
        owner:put("n", "0")
      end, { timeout = 0.2 })
      assert.is_nil(result)
      assert(err.code == "deadline_exceeded" or err.code == "unavailable", err.code)
      assert(attempts > 1)
      assert.equal("0", value_of(owner, "n"))
    end)
  end)

  it("has written nothing if its deadline was over before fn returned", function()
    keywatch.run(function()
      local result, err = owner:stm(function(tx)
        tx:put("n", "1")
        keywatch.sleep(0.02)
      end, { timeout = 0.01 })
      assert.same({ nil, "deadline_exceeded", nil }, { result, err.code, err.maybe_done })
      assert.is_nil(owner:get("n"))
    end)
  end)

  it("is cancelled where fn waits, and has written nothing then", function()
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
      assert.is_nil(ok or nil)
      assert.equal("cancelled", err.code)
    end)
    assert.is_nil(owner:get("a"))
  end)

  it("lets tasks of fn read at the same time, each key once and all at one revision", function()
    owner:put("a", "0")
    owner:put("b", "0")
    keywatch.run(function()
      local attempts = 0
      owner:stm(function(tx)
        attempts = attempts + 1
        local tasks = {}
        for i, key in ipairs { "a", "b", "a", "b" } do
          tasks[i] = keywatch.spawn(function() return tx:get(key).value end)
        end
        for _, task in ipairs(tasks) do assert(task:join()) end
        add(tx, "a", 1)
      end)
      assert.equal(1, attempts)
    end)
    assert.equal("1", value_of(owner, "a"))
  end)

  it("runs inside another one as a transaction of its own", function()
    owner:put("a", "1")
    local attempts = 0
    owner:stm(function(tx)
      attempts = attempts + 1
      add(tx, "a", 1)
      if attempts == 1 then owner:stm(function(inner) add(inner, "a", 10) end) end
    end)
    assert.equal("12", value_of(owner, "a"))
    assert.equal(2, attempts)
  end)
end

-- }======

for name, open in pairs(OWNERS) do
  describe("a software transaction of " .. name, function() specs(open) end)
end

describe("a software transaction of etcd #once", function()
  specs(function() return faces.etcd.open({}, true) end)

  teardown(faces.etcd.stop)
end)

describe("a software transaction asks", function()
  local client, close, counts

  before_each(function()
    client, close = of_client(keywatch.open())
    client:put("a", "1")
    client:put("b", "2")
    counts = count_calls(client)
  end)

  after_each(function() close() end)

  it("once for each key that was not fetched before, and once to commit", function()
    client:stm(function(tx)
      tx:get("a")
      tx:get("b")
      tx:get("a")
      tx:revision("b")
      tx:put("a", "3")
    end)
    assert.same({ range = 2, txn = 1 }, counts)
  end)

  it("once for all keys to be prefetched", function()
    client:stm(function(tx)
      add(tx, "a", 1)
      add(tx, "b", 1)
    end, { prefetch = { "a", "b", "a" } })
    assert.same({ range = 0, txn = 2 }, counts)
  end)

  it("once for another attempt", function()
    for _, level in ipairs { "serializable_snapshot", "serializable", "repeatable_reads" } do
      counts.range, counts.txn = 0, 0
      local attempts = 0
      client:stm(function(tx)
        attempts = attempts + 1
        add(tx, "a", 1)
        add(tx, "b", 1)
        if attempts <= 2 then client:put("a", "0") end
      end, { isolation = level })
      assert.equal(3, attempts)
      assert.same({ range = 2, txn = 3 }, counts, level)
    end
  end)

  it("nobody to commit if it has read at one revision and written nothing", function()
    for _, level in ipairs { "serializable_snapshot", "serializable", "read_committed" } do
      counts.range, counts.txn = 0, 0
      client:stm(function(tx)
        tx:get("a")
        tx:get("b")
      end, { isolation = level })
      assert.same({ range = 2, txn = 0 }, counts, level)
    end
  end)

  it("whether reads of several revisions held together, even if it has written nothing", function()
    local attempts = 0
    client:stm(function(tx)
      attempts = attempts + 1
      tx:get("a")
      tx:get("b")
      if attempts == 1 then client:put("a", "3") end
    end, { isolation = "repeatable_reads" })
    assert.equal(2, attempts)
  end)

  it("in a later attempt at the revision of the conflict, for keys that are new to it", function()
    local attempts, seen = 0, nil
    client:stm(function(tx)
      attempts = attempts + 1
      local a = tx:get("a").value
      if attempts == 1 then client:put("a", "new") end
      if attempts == 2 then
        client:put("b", "later")
        seen = a .. " " .. tx:get("b").value
      end
      tx:put("c", "x")
    end)
    assert.equal("new 2", seen)
    assert.equal(3, attempts)
  end)

  it("never twice for a commit that may be done", function()
    local txn, n = client.txn, 0
    function client.txn(self, ...)
      n = n + 1
      assert(txn(self, ...)) -- it was done, and the answer is lost
      local err = require("keywatch.core").new_error("unavailable")
      err.maybe_done = true
      return nil, err
    end
    local result, err = client:stm(function(tx) add(tx, "a", 1) end)
    assert.is_nil(result)
    assert.is_true(err.maybe_done)
    assert.equal(1, n)
    assert.equal("2", value_of(client, "a"))
  end)

  it("key by key if the answer of the prefetch is lost", function()
    local txn, n = client.txn, 0
    function client.txn(self, ...)
      n = n + 1
      if n > 1 then return txn(self, ...) end
      local err = require("keywatch.core").new_error("unavailable")
      err.maybe_done = true
      return nil, err
    end
    assert.is_true(client:stm(function(tx)
      add(tx, "a", 1)
      return true
    end, { prefetch = { "a", "b" } }))
    assert.equal("2", value_of(client, "a"))
  end)

  it("a member that is behind to wait, rather than to fail", function()
    local range, asked = client.range, {}
    function client.range(self, key, opts)
      asked[#asked + 1] = tostring(opts.serializable)
      if opts.serializable then return nil, require("keywatch.core").new_error("future_revision") end
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

  it("many software transactions of one counter get through, because they wait at random", function()
    local store = keywatch.open()
    local value, attempts = count(store, 50)
    assert.equal("50", value)
    assert(attempts < 50 * 51 / 2, ("%d attempts: no fewer than without waiting"):format(attempts))
    store:close()
  end)

  it("the first conflict costs no time", function()
    local store = keywatch.open()
    local value, attempts, seconds = count(store, 2)
    assert.equal("2", value)
    assert.equal(3, attempts)
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
