--- A namespace has the methods of its owner, and names of its own for the keys under its prefix.

local keywatch = require "keywatch"

local directory = require "spec.support.directory"
local within = require "spec.support.within"

-- Each returns an owner and a function that closes it.
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
  ["a client"] = function()
    local store = keywatch.open()
    local server = assert(keywatch.serve { store = store, listen = "http://127.0.0.1:0" })
    local client = keywatch.connect(server:addresses()[1])
    return client, function()
      client:close()
      server:close()
      store:close()
    end
  end,
  ["a namespace"] = function()
    local store = keywatch.open()
    return store:namespace("/outer\255"), function() store:close() end
  end,
}

local function keys_of(kvs)
  local keys = {}
  for i, kv in ipairs(kvs) do keys[i] = kv.key end
  return keys
end

for name, open in pairs(OWNERS) do
  describe("a namespace of " .. name, function()
    local owner, close, space

    before_each(function()
      owner, close = open()
      space = owner:namespace("/app/")
    end)

    after_each(function()
      pcall(keywatch.run, function() end) -- whatever a test has left
      close()
    end)

    it("has the keys under the prefix, without it", function()
      space:put("a", "1")
      owner:put("/app/b", "2")
      owner:put("/apple", "no")
      assert.equal("1", owner:get("/app/a").value)
      assert.equal("b", space:get("b").key)
      assert.same({ "a", "b" }, keys_of(space:range("", { prefix = true }).kvs))
      assert.is_true(space:exists("a"))
      assert.is_false(space:exists("le"))
    end)

    it("does not have the key that is the prefix itself", function()
      owner:put("/app/", "not inside")
      space:put("a", "1")
      assert.same({ "a" }, keys_of(space:range("", { prefix = true }).kvs))
      assert.same({ "a" }, keys_of(space:range("", { from_key = true }).kvs))
      assert.equal(1, space:delete("", { prefix = true }).deleted)
      assert.equal("not inside", owner:get("/app/").value)
    end)

    it("refuses the empty key as its owner does", function()
      owner:put("/app/", "not inside")
      for _, call in ipairs {
        function(face) return face:get("") end,
        function(face) return face:put("", "v") end,
        function(face) return face:delete("") end,
        function(face) return face:range("") end,
        function(face) return face:range("", { range_end = "b" }) end,
        function(face) return face:exists("") end,
        function(face) return face:txn { success = { { put = "", value = "v" } } } end,
        function(face) return face:txn { compare = { { key = "", version = 1 } } } end,
      } do
        local inside, inside_err = call(space)
        local outside, outside_err = call(owner)
        assert.equal(outside, inside)
        assert.equal(outside_err and outside_err.code, inside_err and inside_err.code)
      end
      assert.equal("not inside", owner:get("/app/").value)
    end)

    it("has keys that contain the prefix again", function()
      space:put("/app/a", "1")
      assert.equal("1", owner:get("/app//app/a").value)
      assert.equal("/app/a", space:get("/app/a").key)
      assert.same({ "/app/a" }, keys_of(space:range("/app/", { prefix = true }).kvs))
      assert.equal("/app/a", space:delete("/", { prefix = true, prev_kv = true }).prev_kvs[1].key)
    end)

    it("ends where its prefix ends", function()
      for _, key in ipairs { "/app.", "/app/", "/app0", "\255", "\0" } do owner:put(key, "foreign") end
      for _, key in ipairs { "\0", "a", "\255\255" } do space:put(key, "own") end
      assert.equal(3, space:range("", { from_key = true }).count)
      assert.equal(3, space:range("\0", { range_end = "\0" }).count)
      assert.equal(2, space:range("a", { range_end = "\0" }).count)
      assert.equal(1, space:range("\255", { prefix = true }).count)
      assert.equal(0, space:range("b", { range_end = "a" }).count)
      assert.equal(3, space:delete("", { from_key = true }).deleted)
      assert.equal(5, owner:range("", { prefix = true }).count)
    end)

    it("gives previous kvs by its own names", function()
      space:put("a", "1")
      assert.equal("a", space:put("a", "2", { prev_kv = true }).prev_kv.key)
      assert.equal("a", space:delete("a", { prev_kv = true }).prev_kvs[1].key)
    end)

    it("executes transactions, and leaves their tables as they are", function()
      space:put("a", "1")
      owner:put("/app0", "foreign")
      local txn = {
        compare = {
          { key = "a", version = 1 }, { key = "", prefix = true, value = "1" },
          { key = "a", range_end = "\0", version = 1 },
        },
        success = {
          { put = "b", value = "2", prev_kv = true }, { get = "a" }, { get = "none" }, { range = "", from_key = true },
          { txn = { success = { { delete = "a", prev_kv = true }, { put = "c", value = "3" } } } },
        },
      }
      local result = space:txn(txn)
      assert.is_true(result.succeeded)
      assert.equal("a", result.responses[2].key)
      assert.is_false(result.responses[3])
      assert.same({ "a", "b" }, keys_of(result.responses[4].kvs))
      assert.equal("a", result.responses[5].responses[1].prev_kvs[1].key)
      assert.equal("a", txn.compare[1].key)
      assert.is_true(txn.compare[2].prefix)
      assert.equal("\0", txn.compare[3].range_end)
      assert.equal("b", txn.success[1].put)
      assert.is_true(txn.success[4].from_key)
      assert.equal("a", txn.success[5].txn.success[1].delete)
    end)

    it("leaves tables of options as they are", function()
      local opts = { range_end = "\0", limit = 5 }
      space:range("a", opts)
      space:watch("a", opts and { range_end = "b" }):close()
      assert.same({ range_end = "\0", limit = 5 }, opts)
    end)

    it("reads pages", function()
      for i = 1, 7 do space:put("k" .. i, "v") end
      owner:put("/app0", "foreign")
      local found = {}
      for kv in space:each("", { prefix = true, page = 2 }) do found[#found + 1] = kv.key end
      assert.same({ "k1", "k2", "k3", "k4", "k5", "k6", "k7" }, found)
    end)

    it("watches: existing keys, events and previous kvs, by its own names", function()
      space:put("a", "1")
      local watch = assert(space:watch("", { prefix = true, initial = true, prev_kv = true }))
      owner:put("/app/", "foreign")
      owner:put("/app0", "foreign")
      space:put("a", "2")
      space:delete("a")
      local first, synced = watch:next(30), watch:next(30)
      assert.equal("a", first.key)
      assert.is_true(first.initial)
      assert.equal("synced", synced.type)
      local put = watch:batch(30).events[1]
      assert.equal("a2a1", put.key .. put.value .. put.prev.key .. put.prev.value)
      local _, deleted = keywatch.select { watch, timeout = 30 }
      assert.equal("deletea2", deleted.type .. deleted.key .. deleted.prev.value)
      assert.equal('keywatch.watch<key="" revision=', tostring(watch):match("^(.-)%d"))
      assert.is_nil(watch:error())
      watch:close()
      assert.is_nil(watch:next(0))
    end)

    it("watches what its watches would miss: from a revision, a single key, and the empty key", function()
      local revision = space:put("a", "1").revision
      space:put("\0", "2")
      local since = assert(space:watch("a", { start_revision = revision }))
      local least = assert(space:watch("", { start_revision = revision }))
      assert.equal("a", since:next(30).key)
      assert.equal("\0", least:next(30).key)
      since:close()
      least:close()
    end)

    it("has leases, which show only its keys", function()
      local lease = assert(space:lease(60))
      space:put("a", "1", { lease = lease })
      owner:put("/app/", "prefix", { lease = lease.id })
      owner:put("/b", "foreign", { lease = lease.id })
      assert.same({ "a" }, lease:keys())
      assert.same({ "a" }, space:lease_by_id(lease.id):keys())
      assert.same({ "/app/", "/app/a", "/b" }, owner:lease_by_id(lease.id):keys())
      assert.equal(60, lease:keepalive())
      assert(lease:remaining() > 0)
      assert.same({ lease.id }, space:leases())
      assert(lease:revoke())
      assert.is_nil(space:get("a"))
    end)

    it("answers for the whole owner what is about the whole owner", function()
      local revision = space:put("a", "1").revision
      assert.equal(revision, space:status().revision)
      assert.same(owner:hash_kv(revision), space:hash_kv(revision))
      assert(space:compact(revision))
      assert.equal("compacted", select(2, owner:get("/app/a", { revision = revision - 1 })).code)
    end)

    it("of a namespace is one namespace with both prefixes", function()
      local inner = space:namespace("x/"):namespace("")
      inner:put("a", "1")
      assert.equal("1", owner:get("/app/x/a").value)
      assert.equal("x/a", space:get("x/a").key)
      assert.equal(space.owner, inner.owner)
      assert.equal(space.prefix .. "x/", inner.prefix)
    end)

    it("with the empty prefix has all keys", function()
      local all = owner:namespace("")
      owner:put("a", "1")
      all:put("b", "2")
      assert.same({ "a", "b" }, keys_of(all:range("", { prefix = true }).kvs))
      assert.same({ "a", "b" }, keys_of(all:range("a", { from_key = true }).kvs))
    end)

    it("of 0xff bytes has no key behind it", function()
      local last = owner:namespace("\255\255")
      owner:put("\255", "foreign")
      owner:put("\255\255", "prefix")
      last:put("\255", "1")
      last:put("a", "2")
      assert.same({ "a", "\255" }, keys_of(last:range("", { prefix = true }).kvs))
      assert.same({ "\255" }, keys_of(last:range("b", { range_end = "\0" }).kvs))
      assert.equal(2, last:delete("", { from_key = true }).deleted)
      assert.equal(2, owner:range("\255", { prefix = true }).count)
    end)

    it("is used after the owner's fashion in tasks", within.task(function()
      local tasks = {}
      for i = 1, 10 do
        tasks[i] = keywatch.spawn(function() assert(space:put("k" .. i, "v")) end)
      end
      for _, task in ipairs(tasks) do assert(task:join()) end
      assert.equal(10, space:range("k", { prefix = true, count_only = true }).count)
    end))

    it("is closed alone", function()
      local watch = assert(space:watch("a"))
      local lease = assert(space:lease(60))
      space:close()
      space:close()
      for _, method in ipairs { "get", "range", "delete", "watch", "exists" } do
        local result, err = space[method](space, "a")
        assert.is_nil(result)
        assert.equal("closed", err.code)
      end
      assert.equal("keywatch: the namespace is closed", select(2, space:put("a", "1")).message)
      assert.equal("closed", select(2, space:txn {}).code)
      assert.equal("closed", select(2, space:lease(5)).code)
      for _, method in ipairs { "session", "lock", "try_lock", "election" } do
        assert.equal("closed", select(2, space[method](space, "a")).code)
      end
      assert.equal("closed", select(2, space:stm(function(tx) return tx:get("a") end)).code)
      assert.equal("closed", select(2, pcall(space.each, space, "a")).code)
      assert(tostring(space):find(" closed>", 1, true))
      assert(owner:put("/app/a", "1"))
      assert.equal("a", watch:next(30).key)
      assert(lease:revoke())
      watch:close()
    end)

    it("has locks, whose keys are in it", within.task(function()
      local lock = assert(space:lock("job"))
      assert.equal("job/", lock.key:sub(1, 4))
      assert.equal(lock.revision, owner:get("/app/" .. lock.key).create_revision)
      assert.equal("locked", select(2, space:try_lock("job", { session = assert(space:session { ttl = 5 }) })).code)
      local outside = assert(owner:session { ttl = 5 })
      assert.equal("locked", select(2, owner:try_lock("/app/job", { session = outside })).code)
      local other = assert(owner:try_lock("job"))
      assert(lock:unlock())
      assert.is_nil(owner:get("/app/" .. lock.key))
      assert(other:unlock())
    end))

    it("has elections, whose keys are in it", within.task(function()
      local leadership = assert(space:election("boss"):campaign("ann"))
      assert.equal(leadership.key, space:election("boss"):leader().key)
      assert.equal("ann", owner:election("/app/boss"):leader().value)
      assert.is_nil((owner:election("boss"):leader()))
      assert(leadership:resign())
    end))

    it("has leases that are kept, and whose loss is told", within.task(function()
      local lease = assert(space:lease(10)):keep()
      space:put("a", "1", { lease = lease })
      owner:put("b", "1", { lease = lease })
      assert.same({ "a" }, lease:keys())
      assert.is_nil(lease:error())
      assert(owner:lease_by_id(lease.id):revoke())
      assert.equal("lost", lease:lost(30).code)
    end))

    it("is fenced by its locks, and so is what stands on the fence", within.task(function()
      local lock = assert(space:lock("job"))
      local fence = lock:fence()
      local inner = fence:namespace("x/")
      assert(fence:put("a", "1"))
      assert(inner:put("b", "2"))
      assert.equal("1", owner:get("/app/a").value)
      assert.equal("2", owner:get("/app/x/b").value)
      assert.equal("b", inner:txn({ success = { { range = "", prefix = true } } }).responses[1].kvs[1].key)
      assert.equal("b", inner:delete("", { prefix = true, prev_kv = true }).prev_kvs[1].key)
      assert.equal("none", inner:stm(function(tx)
        tx:put("c", "3")
        return tx:get("b") and "some" or "none"
      end))
      local watch = assert(inner:watch("", { prefix = true, initial = true }))
      assert.equal("c", watch:next(30).key)
      watch:close()
      assert(lock:unlock())
      for _, result in ipairs {
        { fence:put("a", "2") }, { inner:put("c", "4") }, { inner:txn { success = { { put = "c", value = "4" } } } },
        { inner:stm(function(tx) tx:put("c", "4") end) }, { inner:delete("c") },
      } do
        assert.is_nil(result[1])
        assert.equal("lost", result[2].code)
      end
      assert.equal("1", owner:get("/app/a").value)
      assert.equal("3", inner:get("c").value)
    end))

    it("shows its own keys of a lease through a fence, too", within.task(function()
      local lock = assert(space:lock("job"))
      local lease = assert(lock:fence():lease(10))
      space:put("a", "1", { lease = lease })
      owner:put("b", "1", { lease = lease })
      assert.same({ "a" }, lease:keys())
      assert(lease:revoke())
    end))
  end)
end

describe("a namespace", function()
  local store, space

  before_each(function()
    store = keywatch.open()
    space = store:namespace("/app/")
  end)

  after_each(function() store:close() end)

  it("tells its prefix and its owner", function()
    assert.equal("keywatch.namespace</app/ of keywatch.store<revision=1 keys=0>>", tostring(space))
    assert.equal("keywatch.namespace<\\xff\\x00 of ", tostring(store:namespace("\255\0")):sub(1, 31))
    assert.equal(store, space.owner)
    assert.equal("/app/", space.prefix)
  end)

  it("names the cure where it lacks a method of its owner", function()
    for _, name in ipairs { "step", "alarms", "call", "stream", "state", "load" } do
      local ok, err = pcall(space[name], space)
      assert.is_false(ok)
      assert(err:find(name .. ": a namespace does not have this method", 1, true), err)
      assert(err:find("namespace.owner:" .. name, 1, true), err)
    end
  end)

  it("fails as its owner does when that is closed", function()
    store:close()
    for _, call in ipairs { function() space:get("a") end, function() space:put("a", "1") end } do
      local _, err = pcall(call)
      assert.equal("namespace_spec.lua:: the store is closed", (err:gsub("^.*/", ""):gsub("%d+", "")))
    end
  end)

  it("refuses a transaction that contains itself, as its owner does", function()
    local success = {}
    success[1] = { txn = { success = success } }
    for _, face in ipairs { store, space } do
      assert.error_matches(function() face:txn { success = success } end, "txn: nested more than 200 deep")
    end
  end)

  it("takes transactions as deep as its owner does, and refuses deeper ones", function()
    local function nested(depth)
      local txn = { success = { { put = "a", value = "1" } } }
      for _ = 1, depth do txn = { success = { { txn = txn } } } end
      return txn
    end
    local deep = keywatch.open { max_txn_ops = 10000 }
    local inner = deep:namespace("/app/")
    assert(inner:txn(nested(200)).succeeded)
    assert.equal("1", deep:get("/app/a").value)
    for _, depth in ipairs { 201, 100000 } do
      assert.error_matches(function() inner:txn(nested(depth)) end, "txn: nested more than 200 deep")
    end
    deep:close()
  end)

  it("takes no longer for a list that occurs many times in a transaction than the list has entries", function()
    local list = { { put = "a", value = "1" } }
    for _ = 1, 60 do list = { { txn = { success = list } }, { txn = { success = list } } } end
    local result, err = space:txn { success = list } -- 2^60 operations
    assert.is_nil(result)
    assert.equal("request_too_large", err.code)
  end)

  it("is an owner of software transactions", function()
    space:put("n", "1")
    store:put("n", "100")
    assert.equal(2, space:stm(function(tx)
      local n = tonumber(tx:get("n").value) + 1
      tx:put("n", tostring(n))
      return n
    end))
    assert.equal("2", store:get("/app/n").value)
    assert.equal("100", store:get("n").value)
  end)

  it("is collected with nothing left behind", function()
    local weak = setmetatable({ store:namespace("x") }, { __mode = "v" })
    collectgarbage()
    assert.is_nil(weak[1])
  end)
end)
