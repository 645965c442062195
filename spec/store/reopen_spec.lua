--- A store that is closed and opened again has the same state; and changes of its files in between.

local core = require "keywatch.core"
local keywatch = require "keywatch"
local probe = core.probe

local answer = require "spec.support.answer"
local directory = require "spec.support.directory"
local events = require "spec.support.events"
local files = require "spec.support.files"
local uv = require "spec.support.luv"

local everything = { prefix = true }

local KIB, MIB = 1024, 1024 * 1024

local store, path

local function open(options) store = directory.open(path, options) end

local function reopen(options)
  store:close()
  open(options)
  if probe then probe.check(store) end
end

local function file(name) return path .. "/" .. name end

--- Returns the events of a key from a revision on, as a text.
local function history_of(key, revision, options)
  options = options or {}
  options.start_revision = revision
  local watch = store:watch(key, options)
  while store:step() do end -- luacheck: ignore 542
  local words, code = events.drain(watch)
  watch:close()
  return words, code
end

--- The names of files that are no segments of the journal.
local function without_journal(names)
  local others = {}
  for _, name in ipairs(names) do
    if not name:match("^journal%-%d+$") then others[#others + 1] = name end
  end
  return others
end

before_each(function()
  path = directory.new()
  open()
end)

after_each(function()
  store:close()
  directory.remove_all()
end)

describe("a store that is opened again", function()
  it("refuses the leases of other stores, and other stores refuse its leases", function()
    local other, text = keywatch.open(), "the lease belongs to another store"
    assert.error_matches(function() other:put("a", "", { lease = store:lease(10, { id = 7 }) }) end, text)
    assert.error_matches(function() store:put("a", "", { lease = other:lease(10, { id = 7 }) }) end, text)
  end)

  it("is at revision 1 without writes", function()
    reopen()
    assert.same({ 1, -1, 0 }, { store:status().revision, store:status().compact_revision, store:status().keys })
    assert.equal(2, store:put("a", "1").revision)
  end)

  it("has its history, deletions included, for reads and watches", function()
    store:put("a", "1")
    store:put("a", "2")
    store:delete("a")
    store:put("a", "3")
    store:txn { success = { { put = "b", value = "1" }, { put = "c", value = "1" }, { delete = "a" } } }
    local hashes = {}
    for revision = 1, 6 do hashes[revision] = store:hash_kv(revision).hash end
    reopen()
    assert.is_nil(store:get("a", { revision = 1 }))
    assert.equal("1", store:get("a", { revision = 2 }).value)
    assert.equal("2", store:get("a", { revision = 3 }).value)
    assert.is_nil(store:get("a", { revision = 4 }))
    assert.same({ "3", 1, 5 }, { store:get("a", { revision = 5 }).value, store:get("a", { revision = 5 }).version,
      store:get("a", { revision = 5 }).create_revision })
    assert.is_nil(store:get("a"))
    for revision = 1, 6 do assert.equal(hashes[revision], store:hash_kv(revision).hash) end
    assert.same({ "put a 2, put a 3, delete a 4, put a 5, put b 6, put c 6, delete a 6", "timeout" },
      { history_of("", 1, { prefix = true }) })
    local watch = store:watch("a", { start_revision = 3, prev_kv = true })
    assert.equal("1", watch:next().prev.value)
    assert.equal("2", watch:next().prev.value)
  end)

  it("keeps the tombstone of the revision that it was compacted to", function()
    store:put("a", "1")
    store:delete("a")
    store:put("b", "1")
    store:compact(3, { physical = true })
    reopen()
    assert.equal("delete a 3, put b 4", (history_of("", 3, { prefix = true })))
    store:compact(4, { physical = true })
    reopen()
    assert.equal("put b 4", (history_of("", 4, { prefix = true })))
  end)

  it("continues a compaction", function()
    for i = 1, 500 do store:put("k" .. i % 5, ("x"):rep(1000)) end
    reopen { step_records = 10 }
    store:compact(501)
    local hash, before = store:hash_kv().hash, store:status().db_size_in_use
    for _ = 1, 3 do
      store:step()
      reopen { step_records = 10 }
      assert.same({ 501, hash }, { store:status().compact_revision, store:hash_kv().hash })
    end
    assert.equal("compacted", answer.code(store:compact(501, { physical = true })))
    assert.is_true(store:status().db_size_in_use < before / 4)
    reopen()
    assert.is_nil(store:deadline())
    assert.same({ 5, hash }, { store:status().keys, store:hash_kv().hash })
  end)

  it("continues the work of an earlier compaction", function()
    for i = 1, 200 do store:put(("k%03d"):format(i) .. ("x"):rep(1000), "") end
    local tombstones = store:delete("k", everything).revision
    store:compact(tombstones, { physical = true })
    local before = store:status().db_size_in_use
    store:put("a", "1")
    store:compact(tombstones + 1)
    reopen()
    store:compact(tombstones + 1, { physical = true })
    assert.is_true(store:status().db_size_in_use < before / 2)
  end)

  it("has its leases of any id, with their whole TTL and their keys", function()
    local ids = { "-9223372036854775808", "7", "9223372036854775807" }
    for i, id in ipairs(ids) do
      store:lease(100 * i, { id = id })
      store:put("k" .. i, "1", { lease = id })
    end
    store:step(40)
    reopen { now = 1000 }
    for i, id in ipairs(ids) do
      local lease = store:lease_by_id(id)
      assert.same({ 100 * i, { "k" .. i } }, { lease:remaining(), lease:keys() })
    end
    store:step(1100)
    assert.equal(2, #store:leases()) -- waits until the end of the first one is durable
    assert.is_nil(store:get("k1"))
  end)

  it("has its alarms", function()
    for _, name in ipairs { "no_space", "corrupt" } do
      store:arm(name)
      reopen()
      assert.same({ { name }, name }, { store:alarms(), answer.code(store:put("a", "1")) })
      store:disarm(name)
      reopen()
      assert.same({}, store:alarms())
    end
  end)

  it("reuses no id of a lease", function()
    local seen = {}
    for _ = 1, 20 do
      for _ = 1, 5 do
        local id = store:lease(100).id
        assert.is_nil(seen[id])
        seen[id] = true
      end
      reopen()
    end
    assert.equal(100, #store:leases())
  end)

  it("keeps its state though the old object is collected", function()
    store:put("a", "1")
    store = nil -- luacheck: ignore 311
    collectgarbage()
    open()
    assert.equal("1", store:get("a").value)
  end)
end)

describe("the directory of a store", function()
  it("is created if it is missing", function()
    store:close()
    path = path .. "/new//one/two/"
    open()
    store:put("a", "1")
    reopen()
    assert.equal("1", store:get("a").value)
  end)

  it("must be usable", function()
    local function why(where)
      local none, err = keywatch.open { path = where }
      assert.is_nil(none)
      assert.equal("storage", err.code)
      return err.message
    end
    files.write(file("plain"), "")
    assert.matches("Not a directory", why(file("plain") .. "/data"))
    assert.matches("it is not a directory", why(file("plain")))
    assert.matches("^keywatch: cannot open x/x/", why(("x/"):rep(3000)))
    assert.matches("^keywatch: cannot open : ", why(""))
  end)

  it("cannot be a replica's", function()
    assert.has_error(function() keywatch.open { path = path, replica = true } end)
    assert.has_error(function() keywatch.open { path = "a\0b" } end)
    assert.has_error(function() keywatch.open { path = 7 } end)
  end)
end)

describe("a store that is defragmented", function()
  local function fill(n)
    for i = 1, n do store:put(("k%03d"):format(i % 50), ("x"):rep(4 * KIB) .. i) end
    store:compact(store:status().revision, { physical = true })
  end

  it("gives back unused space", function()
    fill(1000)
    local before, hash = store:status(), store:hash_kv()
    local bytes = directory.size(file("data.mdb"))
    assert.is_true(before.db_size > 2 * before.db_size_in_use)
    assert.is_true(store:defragment())
    local after = store:status()
    assert.is_true(after.db_size < before.db_size / 2)
    assert.is_true(after.db_size_in_use <= after.db_size)
    assert.is_true(directory.size(file("data.mdb")) < bytes)
    assert.same({ hash, 50 }, { store:hash_kv(), after.keys })
    assert.same({ "data.mdb", "data.mdb-lock", "lock" }, without_journal(directory.list(path)))
  end)

  it("has the same content, also when it is opened again", function()
    fill(300)
    store:lease(100, { id = 7 })
    store:put("a", "1", { lease = 7 })
    store:delete("k001")
    local function look()
      return { store:hash_kv(), store:range("", everything), store:leases(), history_of("a", 303) }
    end
    local before = look()
    store:defragment()
    assert.same(before, look())
    reopen()
    assert.same(before, look())
    store:put("a", "2")
    assert.equal("1", store:get("a", { revision = before[1].revision }).value)
    reopen()
    assert.equal("2", store:get("a").value)
  end)

  it("continues to serve watches and reads", function()
    fill(100)
    for i = 1, 50 do store:put("b", ("x"):rep(8 * KIB) .. i) end
    local old, new = store:watch("b", { start_revision = 102, max_bytes = 16 * KIB }), store:watch("a")
    assert.equal(("x"):rep(8 * KIB) .. 1, old:next(0).value)
    store:defragment()
    store:put("a", "1")
    for i = 2, 50 do assert.equal(("x"):rep(8 * KIB) .. i, old:next().value) end
    assert.equal("1", new:next(0).value)
    assert.equal("1", store:get("a").value)
    assert.equal(("x"):rep(8 * KIB) .. 7, store:get("b", { revision = 108 }).value)
  end)

  it("reports a failure, whatever is written later, and continues with the old file", function()
    fill(10)
    assert(uv.fs_mkdir(file("copy.mdb"), 448))
    local before = store:hash_kv()
    assert.equal("aborted", answer.code(store:defragment()))
    assert.same(before, store:hash_kv())
    store:put("a", "1")
    assert.equal("aborted", answer.code(store:defragmented()))
    reopen()
    assert.equal("1", store:get("a").value)
    assert(uv.fs_rmdir(file("copy.mdb")))
    assert.is_true(store:defragment())
    assert.equal("1", store:get("a").value)
  end)

  it("accepts writes during that", function()
    fill(200)
    local base = store:status().revision
    keywatch.run(function()
      local writers = {}
      for i = 1, 10 do
        writers[i] = keywatch.spawn(function()
          for n = 1, 20 do assert(store:put("w" .. i, tostring(n))) end
        end)
      end
      for _ = 1, 5 do assert.is_true(store:defragment()) end
      for _, writer in ipairs(writers) do assert(writer:join()) end
    end)
    assert.equal(base + 200, store:status().revision)
    reopen()
    assert.equal(base + 200, store:status().revision)
    for i = 1, 10 do assert.equal("20", store:get("w" .. i).value) end
  end)

  it("serves several requests by one defragmentation", function()
    fill(100)
    keywatch.run(function()
      local tasks = {}
      for i = 1, 5 do tasks[i] = keywatch.spawn(function() return store:defragment() end) end
      for _, task in ipairs(tasks) do assert.same({ true, true }, { task:join() }) end
    end)
    assert.same({ "data.mdb", "data.mdb-lock", "lock" }, without_journal(directory.list(path)))
  end)

  it("ignores an unfinished copy", function()
    store:put("a", "1")
    store:close()
    for _, name in ipairs { "copy.mdb", "copy.mdb-lock" } do files.write(file(name), "half of it") end
    open()
    assert.same({ "data.mdb", "data.mdb-lock", "lock" }, without_journal(directory.list(path)))
    assert.is_true(store:defragment())
    assert.equal("1", store:get("a").value)
  end)

  it("does nothing in memory", function()
    local other = keywatch.open()
    assert.is_true(other:defragment())
    other:close()
  end)
end)

describe("the size of a durable store", function()
  it("is the file's, with the allocated space and the used space", function()
    local empty = store:status()
    assert.is_true(empty.db_size > 0 and empty.db_size_in_use > 0)
    for i = 1, 100 do store:put("k" .. i, ("x"):rep(10 * KIB)) end
    local full = store:status()
    assert.is_true(full.db_size_in_use >= 1000 * KIB and full.db_size_in_use < 2000 * KIB)
    assert.is_true(full.db_size >= full.db_size_in_use)
    assert.equal(directory.size(file("data.mdb")), full.db_size)
    store:delete("", everything)
    store:compact(store:status().revision, { physical = true })
    local left = store:status()
    assert.is_true(left.db_size_in_use < 100 * KIB)
    assert.is_true(left.db_size >= full.db_size)
    reopen()
    assert.equal(left.db_size_in_use, store:status().db_size_in_use)
  end)

  it("is bounded by the quota, and there is space again after a compaction", function()
    reopen { quota_backend_bytes = 2 * MIB }
    local n = 0
    repeat
      local result, err = store:put("a", ("x"):rep(10 * KIB))
      n = n + 1
    until not result or n > 300 or err
    assert.is_true(n > 100 and n < 250)
    assert.equal("no_space", answer.code(store:put("b", "1")))
    assert.same({ "no_space" }, store:alarms())
    assert.is_true(store:status().db_size_in_use <= 2 * MIB)
    reopen { quota_backend_bytes = 2 * MIB }
    assert.equal("no_space", answer.code(store:put("b", "1")))
    assert.equal("no_space", answer.code(store:lease(10)))
    assert.equal(1, store:delete("a").deleted)
    assert.is_truthy(store:compact(store:status().revision, { physical = true }))
    assert.equal("no_space", answer.code(store:put("b", "1")))
    assert.is_true(store:disarm("no_space"))
    for _ = 1, 100 do assert.is_truthy(store:put("a", ("x"):rep(10 * KIB))) end
    assert.same({}, store:alarms())
  end)

  it("is bounded for concurrent writes, too", function()
    reopen { quota_backend_bytes = MIB }
    keywatch.run(function()
      local tasks, good = {}, 0
      for i = 1, 300 do tasks[i] = keywatch.spawn(function() return store:put("k" .. i, ("x"):rep(10 * KIB)) end) end
      for _, task in ipairs(tasks) do
        local _, result, err = task:join()
        if result then good = good + 1 else assert.equal("no_space", err.code) end
      end
      assert.is_true(good > 50 and good < 110)
    end)
    assert.same({ "no_space" }, store:alarms())
    assert.is_true(store:status().db_size_in_use < 1.5 * MIB)
  end)
end)
