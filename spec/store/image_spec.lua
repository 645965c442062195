--- Images: a store as etcd's snapshots have it, and back.

local keywatch = require "keywatch"
local core = require "keywatch.core"

local image = require "spec.support.image"
local shell = require "spec.support.shell"

local PAGE = 4096
local SUM = 32
local MANY = core.probe and 300 or 30000 -- records: of several batches
local OVERHEAD = 2 * 16 + 17 -- of a page with one record: its header, an element and a key

describe("an image", function()
  local scratch, remove, stores

  before_each(function()
    scratch, remove = image.scratch()
    stores = {}
  end)

  after_each(function()
    for _, store in ipairs(stores) do store:close() end
    remove()
  end)

  local function open(options)
    local store = assert(keywatch.open(options))
    table.insert(stores, store)
    return store
  end

  local function restore(bytes, skip_hash)
    local store, restored = image.restore(bytes, scratch, skip_hash)
    if store then table.insert(stores, store) end
    return store, restored
  end

  --- All that can be seen of a store: every revision of all keys, their hashes, and leases.
  local function all_of(store)
    local status = store:status()
    local all = { revision = status.revision, compact_revision = status.compact_revision, at = {}, leases = {} }
    for rev = math.max(status.compact_revision, 1), status.revision do
      local kvs = assert(store:range("", { from_key = true, revision = rev })).kvs
      table.insert(all.at, { kvs, store:hash_kv(rev).hash })
    end
    for _, id in ipairs(store:leases()) do
      local lease = store:lease_time_to_live(id, { keys = true })
      all.leases[tostring(id)] = { lease.granted_ttl, lease.keys }
    end
    return all
  end

  local function expect_same(store)
    local back = restore(image.take(store))
    assert.same(all_of(store), all_of(back))
    return back
  end

  it("may be of an empty store", function() expect_same(open()) end)

  it("has keys, their history, and leases", function()
    local store = open()
    local lease = store:lease(100)
    local other = store:lease(77, { id = "9000000000000000007" })
    store:lease(60, { id = -5 })
    store:put("a", "1")
    store:put("b", "2", { lease = lease })
    store:txn { success = { { put = "c", value = "3", lease = other }, { delete = "a" }, { put = "d", value = "" } } }
    store:put("a", "again")
    expect_same(store)
  end)

  it("has the records that a compaction has left, and continues from there", function()
    local store = open()
    for i = 1, 20 do store:put("k" .. i % 3, tostring(i)) end
    store:delete("k1")
    store:compact(12, { physical = true })
    local back = expect_same(store)
    assert.equal("compacted", select(2, back:range("k", { prefix = true, revision = 11 })).code)
    for _, each in ipairs { store, back } do
      each:put("k1", "new")
      each:compact(22, { physical = true })
    end
    assert.same(all_of(store), all_of(back))
  end)

  it("of a running compaction is finished by the store that opens the image", function()
    local store = open { step_records = 1, now = 0 }
    for i = 1, 30 do store:put("k" .. i % 3, tostring(i)) end
    store:compact(25)
    local back = restore(image.take(store))
    while back:step() do end
    while store:step(0) do end
    assert.same(all_of(store), all_of(back))
    assert.equal(store:hash_kv().hash, back:hash_kv().hash)
  end)

  it("has the state at its beginning, whatever is written during it", function()
    for _, path in ipairs { false, scratch .. "/durable" } do
      local store = open { path = path or nil }
      for i = 1, 200 do store:put("k" .. i, ("x"):rep(i)) end
      local before = all_of(store)
      local snapshot = assert(store:open_snapshot())
      for i = 1, 200 do store:put("k" .. i, "changed") end
      store:delete("k", { prefix = true })
      assert(image.await(snapshot))
      local back = restore(image.read(snapshot))
      snapshot:close()
      assert.same(before, all_of(back))
      back:close()
      shell.must("rm -rf " .. scratch .. "/data")
    end
  end)

  describe("that is gathered in turns", function()
    local store, before

    --- The store has changed much, and its history is about to be removed, since the snapshot was opened.
    local function open_and_change()
      store = open { now = 0 }
      for i = 1, MANY do store:put("k" .. i % (MANY / 2), tostring(i)) end
      before = store:hash_kv()
      local snapshot = assert(store:open_snapshot())
      store:delete("k", { prefix = true })
      return snapshot
    end

    local function expect_before(snapshot)
      assert(image.await(snapshot))
      local back = restore(image.read(snapshot))
      snapshot:close()
      assert.same(before, back:hash_kv())
    end

    --- Opens a store with many leases. Some have keys, and some were revoked.
    local function open_with_leases()
      store = open { now = 0 }
      for i = 1, MANY do
        assert(store:lease(100 + i % 7, { id = i }))
        if i % 10 == 0 then store:put("k" .. i, "", { lease = i }) end
      end
      for i = 1, MANY, 3 do assert(store:lease_revoke(i)) end
    end

    --- Returns the ttls that were granted, by id.
    local function ttls_of(one)
      local ttls = {}
      for _, id in ipairs(one:leases()) do ttls[id] = one:lease_time_to_live(id).granted_ttl end
      return ttls
    end

    it("copies leases in turns", function()
      open_with_leases()
      local snapshot, turns = assert(store:open_snapshot()), 0
      while store:run_due() == 0 do turns = turns + 1 end
      assert.is_true(turns >= (core.probe and 10 or 1))
      assert(image.await(snapshot))
      assert.same(ttls_of(store), ttls_of(restore(image.read(snapshot))))
      snapshot:close()
    end)

    it("has the leases at its beginning, however they change during it", function()
      open_with_leases()
      local ttls = ttls_of(store)
      local snapshot = assert(store:open_snapshot())
      for n = 1, MANY do -- of the oldest and the newest leases in turn: some were copied, and some were not
        local i = n % 2 == 0 and n or MANY - n
        if i % 3 == 2 then store:lease_revoke(i) end
        if i % 6 == 2 or i % 3 == 1 then store:lease(700, { id = i }) end
        if n == 3 then store:step(104) end -- leases expire
      end
      assert(image.await(snapshot))
      assert.same(ttls, ttls_of(restore(image.read(snapshot))))
      snapshot:close()
      if core.probe then core.probe.check(store) end
    end)

    it("is not overtaken by a compaction, which continues later", function()
      local snapshot = open_and_change()
      local size = store:status().db_size
      assert(store:compact(store:status().revision))
      for _ = 1, 10 do store:step(0) end
      expect_before(snapshot)
      while store:step(0) do end
      assert.is_true(store:status().db_size < size / 2)
    end)

    it("is gathered in one piece before a physical compaction", function()
      local snapshot = open_and_change()
      local size = store:status().db_size
      assert(store:compact(store:status().revision, { physical = true }))
      assert.is_true(store:status().db_size < size / 2)
      expect_before(snapshot)
    end)

    it("lets a compaction continue if it is abandoned", function()
      local snapshot = open_and_change()
      local size = store:status().db_size
      assert(store:compact(store:status().revision))
      snapshot:close()
      while store:step(0) do end
      assert.is_true(store:status().db_size < size / 2)
    end)
  end)

  it("is the same for a store in memory and a durable one", function()
    local in_memory, durable = open(), open { path = scratch .. "/durable" }
    for _, store in ipairs { in_memory, durable } do
      store:lease(100, { id = 7 })
      store:lease(100, { id = -7 })
      for i = 1, 50 do store:put("k" .. i % 7, ("x"):rep(i * 100), { lease = i % 2 * 7 }) end
      store:compact(20, { physical = true })
    end
    assert.equal(image.take(in_memory), image.take(durable))
  end)

  it("has values of all sizes around the size of a page", function()
    local store = open()
    for pages = 1, 3 do
      for off = -40, 40 do store:put("k", ("x"):rep(pages * PAGE - OVERHEAD + off)) end
    end
    store:put("large", ("y"):rep(1572864 - 100))
    store:put("after", "")
    expect_same(store)
  end)

  it("has any number of records", function()
    local store = open()
    for i = 1, 250 do
      store:put("k", ("x"):rep(3000)) -- each on a page of its own: 123 of them make a branch
      if i >= 122 and i <= 126 or i >= 248 then
        local back, restored = restore(image.take(store))
        assert.same({ i, store:hash_kv().hash }, { restored.records, back:hash_kv().hash })
        back:close()
        shell.must("rm -rf " .. scratch .. "/data")
      end
    end
  end)

  it("ends with its SHA-256", function()
    local store = open()
    for i = 1, 100 do store:put("k" .. i, ("x"):rep(i)) end
    local bytes = image.take(store)
    assert.equal(SUM, #bytes % 512)
    image.write(scratch .. "/file", bytes:sub(1, -SUM - 1))
    local sum = shell.must("sha256sum <" .. scratch .. "/file"):match("^%x+")
    assert.equal(sum, (bytes:sub(-SUM):gsub(".", function(c) return ("%02x"):format(c:byte()) end)))
  end)

  it("cannot be read before it is ready, beyond its end, or after it is closed", function()
    local store = open()
    local snapshot = assert(store:open_snapshot())
    image.await(snapshot)
    local all = snapshot:size() + SUM
    assert.equal(SUM, #snapshot:read(all - SUM, SUM))
    assert.equal("", snapshot:read(all, 0))
    assert.has_error(function() snapshot:read(all, 1) end)
    assert.has_error(function() snapshot:read(0, 2 ^ 30) end)
    snapshot:close()
    snapshot:close()
    assert.has_error(function() snapshot:read(0, 1) end, "the snapshot is closed")
    assert.has_error(function() snapshot:is_ready() end, "the snapshot is closed")
  end)

  it("may outlive its store, or be abandoned with it", function()
    local store = open()
    for i = 1, 1000 do store:put("k" .. i, ("x"):rep(1000)) end
    local whole, given_up = store:open_snapshot(), store:open_snapshot()
    image.await(whole)
    store:close()
    assert.is_true(#image.read(whole) > 1000000)
    local is_ready, err = given_up:is_ready()
    assert.is_true(is_ready or err.code == "cancelled")
    whole:close()
    given_up:close()
  end)
end)

describe("restoring an image", function()
  local scratch, remove, bytes, original

  setup(function()
    original = keywatch.open()
    original:lease(100, { id = 7 })
    for i = 1, 60 do original:put("key" .. i, ("x"):rep(i * 10), { lease = i % 2 * 7 }) end
    original:put("large", ("y"):rep(10000))
    for i = 1, 150 do original:put("alone", ("z"):rep(2500) .. i) end -- a branch above the leaves
    original:compact(30, { physical = true })
    bytes = image.take(original)
  end)

  teardown(function() original:close() end)

  before_each(function() scratch, remove = image.scratch() end)
  after_each(function() remove() end)

  --- Returns the files that a failed restore has left.
  local function left() return shell.must("ls -A " .. scratch .. " | grep -v '^image$' || true") end

  local function expect_refused(text, damaged, skip_hash)
    local store, err = image.restore(damaged, scratch, skip_hash)
    if store then store:close() end
    assert.is_nil(store)
    assert.matches(text, err.message)
    assert.equal("", left())
  end

  it("needs a directory that is missing or empty", function()
    shell.must("mkdir " .. scratch .. "/data")
    local store = image.restore(bytes, scratch)
    assert.equal(original:hash_kv().hash, store:hash_kv().hash)
    store:close()
    local again, err = image.restore(bytes, scratch)
    assert.is_nil(again)
    assert.matches("data: the directory exists, and is not empty", err.message)
  end)

  it("reports invalid file names", function()
    local function message(...) return select(2, core.restore(...)).message end
    image.write(scratch .. "/image", bytes)
    assert.matches("nothing: No such file", message(scratch .. "/nothing", scratch .. "/data"))
    assert.matches("not a regular file", message("/", scratch .. "/data"))
    assert.matches("image/data: Not a directory", message(scratch .. "/image", scratch .. "/image/data"))
    assert.matches("image: Not a directory", message(scratch .. "/image", scratch .. "/image"))
  end)

  it("creates the parent directories, too", function()
    image.write(scratch .. "/image", bytes)
    assert.is_truthy(core.restore(scratch .. "/image", scratch .. "/one/two/data"))
  end)

  it("refuses files that are truncated, at any byte", function()
    expect_refused("no SHA%-256", "")
    expect_refused("damaged", "", true)
    for at = 1, #bytes - 1, 50021 do
      expect_refused("no SHA%-256", bytes:sub(1, at))
      expect_refused("damaged", bytes:sub(1, at), true)
    end
    expect_refused("damaged: its SHA%-256", bytes:sub(1, -4096 - 1)) -- which ends like a sum
    expect_refused("damaged", bytes:sub(1, -4096 - 1), true)
  end)

  it("accepts a file without checksum, or with a wrong one, on request", function()
    for _, given in ipairs { bytes:sub(1, -SUM - 1), bytes:sub(1, -2) .. "?" } do
      expect_refused("SHA%-256", given)
      local store = image.restore(given, scratch, true)
      assert.equal(original:hash_kv().hash, store:hash_kv().hash)
      store:close()
      shell.must("rm -rf " .. scratch .. "/data")
    end
  end)

  it("refuses files with a changed byte", function()
    for at = 1, #bytes, 100003 do
      local other = string.char((bytes:byte(at) + 1) % 256)
      expect_refused("damaged: its SHA%-256", bytes:sub(1, at - 1) .. other .. bytes:sub(at + 1))
    end
  end)

  it("refuses other files", function()
    expect_refused("damaged, or is not an image", ("\0"):rep(65536), true)
    expect_refused("damaged, or is not an image", ("x"):rep(65536), true)
  end)

  it("is refused when a change has the last possible number in its revision", function()
    local last = bytes:gsub("(%z%z%z%z%z%z%z\2_%z%z%z%z)%z%z%z%z", "%1\255\255\255\255")
    assert.not_equal(bytes, last)
    expect_refused("damaged", last, true)
  end)
end)

if core.probe then
  describe("a snapshot that is closed before its file is complete", function()
    for kind, path in pairs { memory = false, disk = true } do
      it("does not make its store wait for its thread, and is freed by a step: " .. kind, function()
        local scratch, remove = image.scratch()
        local store = assert(keywatch.open { path = path and scratch .. "/data" or nil, now = 0 })
        for i = 1, 1000 do assert(store:lease(100, { id = i })) end
        local waits, live = core.probe.snapshot_waits(), core.probe.live()
        for _ = 1, 40 do
          local snapshot = store:open_snapshot()
          while not snapshot do
            store:step(0)
            snapshot = store:open_snapshot()
          end
          snapshot:close()
          core.probe.check(store)
        end
        assert.equal(waits, core.probe.snapshot_waits())
        if not path then
          repeat store:step(0) until core.probe.live() <= live
        end
        local last = assert(store:open_snapshot())
        store:close() -- the thread of the last one, too
        last:close()
        remove()
      end)
    end
  end)

  describe("an image, where memory runs out,", function()
    local PAST = 1000 -- allocations: nothing here needs as many

    local scratch, remove, store

    before_each(function()
      scratch, remove = image.scratch()
      store = keywatch.open()
      store:lease(100, { id = 7 })
      for i = 1, 5 do store:put("k" .. i, "v", { lease = 7 }) end
    end)

    after_each(function()
      store:close()
      remove()
    end)

    --- Fails at every allocation in turn, until nothing fails. Returns how often it has, and the result.
    local function fail_in_turn(fn)
      for n = 1, PAST do
        core.probe.fail_core(n)
        local ok, result, err = pcall(fn)
        core.probe.fail_core(0)
        assert(ok, result)
        if result then return n - 1, result end
        assert.equal("out_of_memory", err.code)
        assert.equal("image", shell.must("ls -A " .. scratch))
      end
    end

    it("is not taken, and can be taken later", function()
      image.write(scratch .. "/image", "")
      local live = core.probe.live()
      local failures, snapshot = fail_in_turn(function() return store:open_snapshot() end)
      assert.is_true(failures > 2)
      assert.is_true(image.await(snapshot))
      snapshot:close()
      assert.equal(live, core.probe.live())
    end)

    it("fails if memory is short during it", function()
      for i = 1, MANY do store:put("k" .. i, "v") end
      local live = core.probe.live()
      local snapshot = assert(store:open_snapshot())
      core.probe.fail_core(1)
      local is_ready, err
      repeat is_ready, err = snapshot:is_ready() until is_ready ~= false
      core.probe.fail_core(0)
      assert.is_nil(is_ready)
      assert.equal("out_of_memory", err.code)
      snapshot:close()
      assert.equal(live, core.probe.live())
      assert.is_true(#image.take(store) > 0)
    end)

    it("is not restored, and can be restored later", function()
      image.write(scratch .. "/image", image.take(store))
      collectgarbage()
      local live = core.probe.live()
      local failures = fail_in_turn(function() return core.restore(scratch .. "/image", scratch .. "/data") end)
      assert.is_true(failures > 10)
      assert.equal(live, core.probe.live())
      local back = keywatch.open { path = scratch .. "/data" }
      assert.equal(store:hash_kv().hash, back:hash_kv().hash)
      back:close()
    end)
  end)
end
