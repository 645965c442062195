--- A namespace has the methods of its owner, and names of its own for the keys under its prefix.

local keywatch = require "keywatch"

local answer = require "spec.support.answer"
local owners = require "spec.support.owners"
local within = require "spec.support.within"

local OPENERS = owners.openers()

OPENERS["a namespace"] = function()
  local store = keywatch.open()
  return store:namespace("/outer\255"), function() store:close() end
end

for name, open in pairs(OPENERS) do
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
      assert.same({ "1", "b" }, { owner:get("/app/a").value, space:get("b").key })
      assert.equal("a b", answer.keys(space:range("", { prefix = true })))
      assert.same({ true, false }, { space:exists("a"), (space:exists("le")) })
    end)

    it("does not have the key that is the prefix itself", function()
      owner:put("/app/", "not inside")
      space:put("a", "1")
      assert.equal("a", answer.keys(space:range("", { prefix = true })))
      assert.equal("a", answer.keys(space:range("", { from_key = true })))
      assert.equal(1, space:delete("", { prefix = true }).deleted)
      assert.equal("not inside", owner:get("/app/").value)
    end)

    it("has keys that contain the prefix again", function()
      space:put("/app/a", "1")
      assert.same({ "1", "/app/a" }, { owner:get("/app//app/a").value, space:get("/app/a").key })
      assert.equal("/app/a", answer.keys(space:range("/app/", { prefix = true })))
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
      assert.same({ true, "a", false }, { result.succeeded, result.responses[2].key, result.responses[3] })
      assert.equal("a b", answer.keys(result.responses[4]))
      assert.same({ "a", "a" }, { result.responses[5].responses[1].prev_kvs[1].key, txn.compare[1].key })
      assert.same({ true, "\0", "b" }, { txn.compare[2].prefix, txn.compare[3].range_end, txn.success[1].put })
      assert.same({ true, "a" }, { txn.success[4].from_key, txn.success[5].txn.success[1].delete })
    end)

    it("leaves tables of options as they are", function()
      local opts = { range_end = "\0", limit = 5 }
      space:range("a", opts)
      space:watch("a", opts and { range_end = "b" }):close()
      assert.same({ range_end = "\0", limit = 5 }, opts)
    end)

    it("watches existing keys, events and previous kvs under its own names", function()
      space:put("a", "1")
      local watch = assert(space:watch("", { prefix = true, initial = true, prev_kv = true }))
      owner:put("/app/", "foreign")
      owner:put("/app0", "foreign")
      space:put("a", "2")
      space:delete("a")
      local first, synced = watch:next(30), watch:next(30)
      assert.same({ "a", true, "synced" }, { first.key, first.initial, synced.type })
      local put = watch:batch(30).events[1]
      assert.equal("a2a1", put.key .. put.value .. put.prev.key .. put.prev.value)
      local _, deleted = keywatch.select { watch, timeout = 30 }
      assert.equal("deletea2", deleted.type .. deleted.key .. deleted.prev.value)
      assert.equal('keywatch.watch<key="" revision=', tostring(watch):match("^(.-)%d"))
      assert.is_nil(watch:error())
      watch:close()
      assert.is_nil(watch:next(0))
    end)

    it("has watches from a revision, of a single key, and of the empty key", function()
      local revision = space:put("a", "1").revision
      space:put("\0", "2")
      local since = assert(space:watch("a", { start_revision = revision }))
      local least = assert(space:watch("", { start_revision = revision }))
      assert.same({ "a", "\0" }, { since:next(30).key, least:next(30).key })
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

    it("returns the owner's results for functions about the whole owner", function()
      local revision = space:put("a", "1").revision
      assert.equal(revision, space:status().revision)
      assert.same(owner:hash_kv(revision), space:hash_kv(revision))
      assert(space:compact(revision))
      assert.equal("compacted", select(2, owner:get("/app/a", { revision = revision - 1 })).code)
    end)

    it("of a namespace is a namespace with both prefixes", function()
      local inner = space:namespace("x/"):namespace("")
      inner:put("a", "1")
      assert.same({ "1", "x/a" }, { owner:get("/app/x/a").value, space:get("x/a").key })
      assert.equal(space.owner, inner.owner)
      assert.equal(space.prefix .. "x/", inner.prefix)
    end)

    it("with the empty prefix has all keys", function()
      local all = owner:namespace("")
      owner:put("a", "1")
      all:put("b", "2")
      assert.equal("a b", answer.keys(all:range("", { prefix = true })))
      assert.equal("a b", answer.keys(all:range("a", { from_key = true })))
    end)

    it("of 0xff bytes has no end", function()
      local last = owner:namespace("\255\255")
      owner:put("\255", "foreign")
      owner:put("\255\255", "prefix")
      last:put("\255", "1")
      last:put("a", "2")
      assert.equal("a \255", answer.keys(last:range("", { prefix = true })))
      assert.equal("\255", answer.keys(last:range("b", { range_end = "\0" })))
      assert.equal(2, last:delete("", { from_key = true }).deleted)
      assert.equal(2, owner:range("\255", { prefix = true }).count)
    end)

    it("is closed without its owner", function()
      local watch = assert(space:watch("a"))
      local lease = assert(space:lease(60))
      space:close()
      space:close()
      for method, argument in pairs {
        get = "a", range = "a", delete = "a", watch = "a", exists = "a", txn = {}, lease = 5, session = {}, lock = "a",
        try_lock = "a", election = "a", stm = function(tx) return tx:get("a") end,
      } do assert.equal("closed", answer.code(space[method](space, argument)), method) end
      assert.equal("keywatch: the namespace is closed", select(2, space:put("a", "1")).message)
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
      assert.same({ "ann", nil }, { owner:election("/app/boss"):leader().value, owner:election("boss"):leader() })
      assert(leadership:resign())
    end))

    it("has leases that are kept, and whose loss is reported", within.task(function()
      local lease = assert(space:lease(10)):keep()
      space:put("a", "1", { lease = lease })
      owner:put("b", "1", { lease = lease })
      assert.same({ "a" }, lease:keys())
      assert.is_nil(lease:error())
      assert(owner:lease_by_id(lease.id):revoke())
      assert.equal("lost", lease:wait_lost(30).code)
    end))

    it("is fenced by its locks, as are namespaces of the fenced one", within.task(function()
      local lock = assert(space:lock("job"))
      local fence = lock:fence()
      local inner = fence:namespace("x/")
      assert(fence:put("a", "1"))
      assert(inner:put("b", "2"))
      assert.same({ "1", "2" }, { owner:get("/app/a").value, owner:get("/app/x/b").value })
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
        assert.same({ nil, "lost" }, { result[1], result[2].code })
      end
      assert.same({ "1", "3" }, { owner:get("/app/a").value, inner:get("c").value })
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

  it("has its prefix and its owner", function()
    assert.equal("keywatch.namespace</app/ of keywatch.store<revision=1 keys=0>>", tostring(space))
    assert.equal("keywatch.namespace<\\xff\\x00 of ", tostring(store:namespace("\255\0")):sub(1, 31))
    assert.equal(store, space.owner)
    assert.equal("/app/", space.prefix)
  end)

  it("names the alternative if it lacks a method of its owner", function()
    for _, name in ipairs { "alarms", "call", "stream", "state", "members" } do
      assert.error_matches(function() space[name](space) end,
        name .. ": a namespace does not have this method.*namespace.owner:" .. name)
    end
  end)

  it("fails as its owner does when the owner is closed", function()
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
    assert.same({ nil, "request_too_large" }, { result, err.code })
  end)

  it("is collected with all that it references", function()
    local weak = setmetatable({ store:namespace("x") }, { __mode = "v" })
    collectgarbage()
    assert.is_nil(weak[1])
  end)
end)
