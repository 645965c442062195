--- The file with the last known content of a cache: how a cache begins with it, when it is written, and which files are
-- refused.

local content_file = require "keywatch.cache.content_file"
local core = require "keywatch.core"
local keywatch = require "keywatch"

local answer = require "spec.support.answer"
local await = require "spec.support.await"
local directory = require "spec.support.directory"
local events = require "spec.support.events"
local fault = require "spec.support.fault"
local logs = require "spec.support.logs"
local files = require "spec.support.files"
local informing = require "spec.cache.informing"
local near = require "spec.support.near"
local process = require "spec.support.process"
local starve = core.probe and require "spec.support.starve"
local uv = require "spec.support.luv"
local vm = require "spec.support.vm"
local within = require "spec.support.within"

local PATIENCE = 60
local KEY, RANGE_END = "/a/", "/a0"
local CLUSTER = "18446744073709551615" -- the largest id

local path

--- The number of the file: another one after each write.
local function inode() return assert(uv.fs_stat(path)).ino end

local function exists() return uv.fs_stat(path) ~= nil end

--- The names in the directory, but those of the file: temporary files that were left.
local function leftovers()
  local names = {}
  for _, name in ipairs(directory.list(path:match("^(.*)/"))) do
    if name ~= "content" then names[#names + 1] = name end
  end
  return names
end

local function keys_of(cache)
  local list = {}
  for kv in cache:each("/a/", { prefix = true }) do list[#list + 1] = kv.key .. "=" .. kv.value end
  return table.concat(list, " ")
end

--- Has a file with the content of the world's server, whose keys are /a/1 to /a/3.
local function make_file(world)
  local client = world:client()
  for i = 1, 3 do assert(client:put("/a/" .. i, tostring(i))) end
  local cache = assert(client:cache("/a/", { file = path }))
  assert(cache:wait_synced(PATIENCE))
  client:close()
  assert(exists())
end

local function with_file(fn)
  return within.world(function(world)
    make_file(world)
    fn(world)
  end)
end

--- A cache of another client, that begins with the file: the server is away.
local function reopen(world, opts)
  local own = { file = path, timeout = 0 }
  for name, value in pairs(opts or {}) do own[name] = value end
  local cache = assert(world:client():cache("/a/", own))
  assert(cache:wait_ready(PATIENCE))
  return cache
end

--- The value of a key in the file.
local function value_in_file(key)
  local replica = core.open { replica = true }
  local cluster = assert(replica:load_content(path, KEY, RANGE_END))
  local value = replica:get(key).value
  replica:close()
  return value, cluster
end

before_each(function()
  logs.begin()
  path = directory.new() .. "/content"
end)

after_each(function()
  logs.finish()
  directory.remove_all()
end)

describe("a cache with a file", function()
  it("begins with the file if the server does not answer in time, logs that, and catches up", with_file(function(world)
    world.server:isolate()
    local cache = assert(world:client():cache("/a/", { file = path, timeout = 1 }))
    local before = keywatch.now()
    assert.is_false(cache:is_ready())
    assert(cache:wait_ready())
    assert.same({ 1, "/a/1=1 /a/2=2 /a/3=3" }, { keywatch.now() - before, keys_of(cache) })
    local status = cache:status()
    assert.same({ true, 3, 4, true, false },
      { status.from_file, status.keys, status.revision, status.age >= 0, cache:has_synced() })
    assert.same({ "unavailable", "unavailable" }, { answer.code(cache:wait_synced(5)), cache:status().trouble.code })
    assert.equal(1, logs.count("begins with the content of the file"))
    world.server:join()
    assert(cache:wait_synced(PATIENCE))
    status = cache:status()
    assert.same({ false, "following", nil }, { status.from_file, status.phase, status.trouble })
    assert.is_true(cache:has_synced())
    keywatch.sleep(10)
    assert.same({ 1, 2 }, { logs.count("is up to date again"), #logs.lines })
  end))

  it("begins with the file at once if no endpoint can be reached", with_file(function(world)
    world.server:stop()
    local before, client = keywatch.now(), world:client()
    for _ = 1, 12 do
      local cache = assert(client:cache("/a/", { file = path }))
      assert(cache:wait_ready())
      assert.is_true(cache:status().from_file)
    end
    assert(keywatch.now() - before < 0.1)
  end))

  it("waits once, with all caches of its client, for a silent server, and again for a later cache", with_file(
    function(world)
      world.server:isolate()
      local client, caches, before = world:client(), {}, keywatch.now()
      for i = 1, 12 do
        caches[i] = assert(client:cache("/a/", { file = path, timeout = 1 }))
        assert(caches[i]:wait_ready())
        assert.is_true(caches[i]:status().from_file)
      end
      assert.equal(1, keywatch.now() - before)
      local without_file = assert(client:cache("/a/", { timeout = 1 }))
      for _, seconds in ipairs { 0, 1, 1 } do
        before = keywatch.now()
        assert.equal("unavailable", select(2, without_file:wait_ready()).code)
        assert.equal(seconds, keywatch.now() - before)
      end
      world.server:join()
      assert(caches[1]:wait_synced(PATIENCE))
      world.server:isolate()
      before = keywatch.now()
      assert.equal("unavailable", select(2, client:cache("/b/", { timeout = 1 }):wait_ready()).code)
      assert.equal(1, keywatch.now() - before) -- the server has answered since the others have waited
    end))

  it("does not use the file if the server answers in time", with_file(function(world)
    world.server:slow(0.05)
    local cache = assert(world:client():cache("/a/", { file = path }))
    assert(cache:wait_ready(PATIENCE))
    assert.same({ false, true, {} }, { cache:status().from_file, cache:has_synced(), logs.lines })
  end))

  it("reports the changes since the file to watches, tables and informers", with_file(function(world)
    world.server.store:put("/a/2", "two")
    world.server.store:delete("/a/3")
    world.server.store:put("/a/4", "4")
    world.server:stop()
    local cache = reopen(world)
    local table_, watch = cache:table { relative = true }, assert(cache:watch("/a/", { prefix = true }))
    assert.same({ ["1"] = "1", ["2"] = "2", ["3"] = "3" }, table_)
    local informer = assert(cache:informer("/a/"))
    local recorder = informing.record(informer)
    recorder:take(3)
    world.server:start()
    local seen = { watch:next(PATIENCE), watch:next(PATIENCE), (watch:next(PATIENCE)) }
    assert.equal("put /a/2 5, delete /a/3 7, put /a/4 7", events.texts(seen))
    assert.same({ ["1"] = "1", ["2"] = "two", ["4"] = "4" }, table_)
    assert.same({ "add /a/4 4", "delete /a/3 3", "update /a/2 two was 2" }, recorder:take_sorted(3))
  end))

  it("takes the content of a server that was restored, and ends its watches", with_file(function(world)
    world.server.store:put("/a/5", "5")
    world.server:stop()
    assert(world.server:restore(2))
    local cache = reopen(world)
    assert.equal("/a/1=1 /a/2=2 /a/3=3", keys_of(cache))
    local watch, table_ = assert(cache:watch("/a/", { prefix = true })), cache:table()
    world.server:start()
    assert.equal("regressed", answer.code(watch:next(PATIENCE)))
    assert.same({ "/a/1=1", { ["/a/1"] = "1" } }, { keys_of(cache), table_ })
    cache:close()
    world.server:stop()
    assert.equal("/a/1=1", keys_of(reopen(world)))
  end))

  it("asks again if the server's answer is older than a file that another process has written since", with_file(
    function(world)
      world.server:slow(0.1)
      local writer, reader = world:client(), world:client()
      local other = assert(writer:cache("/a/", { file = path }))
      assert(other:wait_synced(PATIENCE))
      local is_armed = true
      world.server.server:use {
        after = function(call)
          if not is_armed or call.path ~= "/etcdserverpb.KV/Range" then return end
          is_armed = false
          world:isolate(reader) -- the answer is on its way
        end,
      }
      local cache = assert(reader:cache("/a/", { file = path, timeout = 5 }))
      keywatch.sleep(1)
      assert.is_false(is_armed)
      assert(writer:put("/a/2", "two"))
      keywatch.sleep(1)
      other:close() -- which writes the file
      assert(cache:wait_ready(PATIENCE))
      assert.same({ "/a/1=1 /a/2=two /a/3=3", true }, { keys_of(cache), cache:status().from_file })
      local watch = assert(cache:watch("/a/", { prefix = true }))
      world:join(reader)
      assert(cache:wait_synced(PATIENCE))
      assert.equal("/a/1=1 /a/2=two /a/3=3", keys_of(cache))
      assert(writer:put("/a/3", "three"))
      assert.same({ "three", 0 }, { assert(watch:next(PATIENCE)).value, logs.count("set back") })
    end))

  it("takes the content of another cluster, and ends its watches", with_file(function(world)
    world.server:stop()
    world.server:replace()
    for _ = 1, 3 do world.server.store:put("/a/other", "x") end
    assert.equal(4, world.server.store:status().revision) -- as that of the file
    local cache = reopen(world)
    local watch = assert(cache:watch("/a/", { prefix = true }))
    world.server:start()
    assert.same({ "cluster_changed", "/a/other=x" }, { answer.code(watch:next(PATIENCE)), keys_of(cache) })
    assert.equal(1, logs.count('the cache of "/a/" starts over, and its watches fail: the server belongs to another'))
    cache:close()
    world.server:stop()
    assert.equal("/a/other=x", keys_of(reopen(world)))
  end))

  it("is written with the cluster of its content, though a finalizer polls the feed as that changes",
    within.world(function(world)
      local cache = assert(world:client():cache("/a/", { file = path, file_delay = 0 }))
      local feed = cache.feed
      assert(cache:wait_synced(PATIENCE))
      keywatch.sleep(1)
      local before = feed.cluster
      local start_over, is_begun = feed.hooks.start_over, false
      feed.hooks.start_over = function(...)
        local ok, err = start_over(...)
        is_begun = true
        for _ = 1, 3 do feed:poll(keywatch.now()) end
        return ok, err
      end
      world.server:stop()
      world.server:replace()
      world.server.store:put("/a/other", "x")
      world.server:start()
      while not is_begun do keywatch.sleep(1) end
      keywatch.sleep(60)
      assert.same({ "x", feed.cluster }, { value_in_file("/a/other") })
      assert.not_equal(before, feed.cluster)
    end))

  it("of a namespace has the keys without the prefix of the namespace", within.world(function(world)
    local client = world:client()
    local space = client:namespace("/a")
    space:put("/1", "x")
    local cache = assert(space:cache("/", { file = path }))
    assert(cache:wait_synced(PATIENCE))
    client:close()
    world.server:stop()
    cache = assert(world:client():namespace("/a"):cache("/", { file = path, timeout = 0 }))
    assert(cache:wait_ready(PATIENCE))
    assert.equal("x", cache:get("/1").value)
  end))

  it("waits for the server if there is no file, and creates the file", within.world(function(world)
    world.server:stop()
    local cache = assert(world:client():cache("/a/", { file = path, timeout = 2 }))
    local before = keywatch.now()
    assert.same({ "unavailable", 2, false }, { answer.code(cache:wait_ready()), keywatch.now() - before, exists() })
    world.server:start()
    assert(cache:wait_ready(PATIENCE))
    keywatch.sleep(2)
    assert(exists())
  end))

  it("is opened with the same options on a store, which needs no file", function()
    local store = keywatch.open()
    local cache = assert(store:cache("/a/", { file = path, file_delay = 0, timeout = 5 }))
    assert.same({ true, true, false }, { cache:has_synced(), cache:wait_synced(), cache:status().from_file })
    store:put("/a/1", "1")
    cache:close()
    assert.same({ false, false }, { cache:has_synced(), exists() })
    store:close()
  end)
end)

describe("the file of a cache", function()
  it("is written once for several changes, and not if nothing has changed", within.world(function(world)
    local client = world:client()
    local cache = assert(client:cache("/a/", { file = path, file_delay = 10 }))
    assert(cache:wait_synced(PATIENCE))
    keywatch.sleep(9)
    assert.is_false(exists())
    keywatch.sleep(2)
    local first = inode()
    for i = 1, 50 do client:put("/other", tostring(i)) end
    assert(cache:sync(PATIENCE))
    keywatch.sleep(100)
    assert.equal(first, inode())
    for i = 1, 50 do
      client:put("/a/1", tostring(i))
      keywatch.sleep(0.1)
    end
    assert.equal(first, inode())
    keywatch.sleep(6)
    local second = inode()
    assert.not_equal(first, second)
    keywatch.sleep(100)
    assert.equal(second, inode())
    cache:close()
    assert.equal(second, inode())
    assert.same({}, leftovers())
  end))

  it("is written when the cache is closed, or its client", within.world(function(world)
    for _, what in ipairs { "cache", "client" } do
      local client = world:client()
      local cache = assert(client:cache("/a/", { file = path, file_delay = 1000 }))
      assert(cache:wait_synced(PATIENCE))
      local put = client:put("/a/" .. what, "x")
      assert(cache:wait_for(put.revision, PATIENCE));
      (what == "cache" and cache or client):close()
      assert.equal("x", (value_in_file("/a/" .. what)))
    end
  end))

  it("is written by a thread, and read by the next process, in real time", function()
    local client, store, close, server = near()
    for i = 1, 1000 do store:put("/a/" .. i, ("v"):rep(i)) end
    local cache = assert(client:cache("/a/", { file = path, file_delay = 0 }))
    assert(cache:wait_synced(PATIENCE))
    await(exists)
    local first = inode()
    assert(cache:wait_for(store:put("/a/1", "new").revision, PATIENCE))
    await(function() return inode() ~= first end)
    local url = server:addresses()[1]
    close()
    client = keywatch.connect(url)
    cache = assert(client:cache("/a/", { file = path, timeout = 0 }))
    assert(cache:wait_ready(PATIENCE))
    assert.same({ 1000, true, "new" }, { cache:status().keys, cache:status().from_file, cache:get("/a/1").value })
    client:close()
    assert.same({}, leftovers())
  end)

  it("is written after each change, even if the cache is not read", within.world(function(world)
    local writer = world:client()
    local cache = assert(world:client():cache("/a/", { file = path, file_delay = 1 }))
    assert(cache:wait_synced(PATIENCE))
    keywatch.sleep(60)
    for i = 1, 5 do
      local before = inode()
      assert(writer:put("/a/1", tostring(i)))
      keywatch.sleep(1.5)
      assert.not_equal(before, inode())
      keywatch.sleep(60)
    end
    assert.same({}, leftovers())
  end))

  for _, name in ipairs { "content_writer", "describe_content" } do
    it("is written, though a finalizer closes the cache during " .. name, within.world(function(world)
      local cache = assert(world:client():cache("/a/", { file = path, file_delay = 1 }))
      local holder = name == "content_writer" and core or cache.feed
      local original, calls = holder[name], 0
      holder[name] = function(...)
        calls = calls + 1
        if calls == 1 then cache:close() end
        return original(...)
      end
      assert(cache:wait_synced(PATIENCE))
      local ok, err = pcall(keywatch.sleep, 5)
      holder[name] = original
      assert(ok, err)
      assert(calls > 0 and exists())
      assert.same({ {}, {} }, { leftovers(), logs.lines })
    end))
  end

  it("is written, though a finalizer polls the client as a write begins", function()
    local client, store, close = near()
    for i = 1, 3000 do store:put("/a/" .. i, "x") end
    local cache = assert(client:cache("/a/", { file = path, file_delay = 0 }))
    local feed, calls = cache.feed, 0
    local original = feed.describe_content
    feed.describe_content = function()
      calls = calls + 1
      if calls == 1 then
        for _ = 1, 3 do feed.transport:look() end
      end
      return original()
    end
    assert(cache:wait_synced(PATIENCE))
    await(exists)
    assert.equal(1, calls)
    close()
    assert.same({}, leftovers())
  end)

  it("has all keys, if the cache is closed while keys are gathered in steps", function()
    local client, store, close = near()
    for i = 1, 20000 do store:put(("/a/%05d"):format(i), "x") end
    local cache = assert(client:cache("/a/", { file = path, file_delay = 0 }))
    assert(cache:wait_synced(PATIENCE))
    local file, last = cache.feed.file, nil
    await(function()
      if not file.is_writing then last = store:put("/a/last", tostring(keywatch.now())) end
      keywatch.sleep(0)
      return file.is_gathering
    end)
    if last then assert(cache:wait_for(last.revision, PATIENCE)) end
    client:close()
    local replica = core.open { replica = true }
    assert(replica:load_content(path, KEY, RANGE_END))
    assert.equal(store:range("/a/", { prefix = true, count_only = true }).count, replica:status().keys)
    assert.same(store:get("/a/last"), replica:get("/a/last"))
    replica:close()
    close()
    assert.same({}, leftovers())
  end)

  it("is gathered in one step after three gatherings in steps were overtaken by compactions", function()
    local asked, inner, replica = {}, {}, {}
    for name, fn in pairs {
      changed_revision = function() return 7 end,
      write_content = function() return true end,
      hold_content = function(_, _, most)
        asked[#asked + 1] = most
        if #asked < 8 then return #asked % 2 == 0 and nil or false, #asked % 2 == 0 and core.new_error("compacted") end
        return true
      end,
    } do inner[name], core.inner[name] = core.inner[name], fn end
    local file = content_file.new(path, 0, "/a/")
    local function describe() return { replica = replica } end
    for _ = 1, 8 do file:poll(0, replica, describe) end
    assert.same({ 2000, 2000, 2000, 2000, 2000, 2000, 2 ^ 31, 2 ^ 31 }, asked)
    assert.is_nil(file:poll(0, replica, describe))
    assert.same({}, logs.lines)
    file:close(0, replica, describe)
    for name, fn in pairs(inner) do core.inner[name] = fn end
  end)

  it("causes one log line when writing fails, and one when writing works again", within.world(function(world)
    local inner = path .. ".d"
    local file = inner .. "/content"
    local client = world:client()
    local cache = assert(client:cache("/a/", { file = file }))
    assert(cache:wait_synced(PATIENCE))
    for i = 1, 20 do
      client:put("/a/1", tostring(i))
      keywatch.sleep(10)
    end
    assert.same({ 1, 1 }, { logs.count("cannot be written: No such file or directory"), #logs.lines })
    assert(uv.fs_mkdir(inner, 448))
    keywatch.sleep(30)
    assert(uv.fs_stat(file))
    assert.same({ 1, 2 }, { logs.count("is written again"), #logs.lines })
  end))

  it("is neither read nor written if the path is a directory", within.world(function(world)
    assert(uv.fs_mkdir(path, 448))
    world.server:stop()
    local client = world:client()
    local cache = assert(client:cache("/a/", { file = path }))
    assert.equal("unavailable", answer.code(cache:wait_ready(20)))
    assert.equal(1, logs.count("is not a regular file"))
    world.server:start()
    assert(cache:wait_synced(PATIENCE))
    client:close()
    assert.equal(1, logs.count("cannot be written: Is a directory"))
    assert.same({}, leftovers())
  end))

  it("of a forgotten cache leaves neither memory nor temporary files #starved", function()
    local client, store, close = near()
    for i = 1, 100 do store:put("/a/" .. i, ("v"):rep(1000)) end
    local function open()
      local cache = assert(client:cache("/a/", { file = path, file_delay = 0 }))
      assert(cache:wait_synced(PATIENCE))
      keywatch.sleep(0)
    end
    keywatch.run(function()
      for _ = 1, 20 do open() end
      await(function()
        collectgarbage()
        return not next(client.transport.feeds)
      end)
    end)
    close()
    assert.same({}, leftovers())
  end)
end)

local function open_replica(kvs, revision)
  local replica = core.open { replica = true, now = 0 }
  assert(replica:load_kvs(revision or 20, kvs or {
    { key = "/a/1", value = "one", create_revision = 2, mod_revision = 7, version = 3, lease = 5 },
    { key = "/a/2", value = "", create_revision = 9, mod_revision = 9, version = 1, lease = 0 },
  }))
  return replica
end

--- Takes in all keys of a replica, so many at once.
local function hold(replica, writer, most)
  repeat
    local is_writing = replica:hold_content(writer, most)
    assert(is_writing ~= nil)
  until is_writing
end

local function save(replica, name, writer)
  local own = writer or core.content_writer(name or path)
  assert(replica:write_content(own, KEY, RANGE_END, CLUSTER, 1234))
  hold(replica, own, 100)
  local ok, err = own:wait()
  if not writer then own:close() end
  return ok, err
end

--- Returns what load_content returns, and the content.
local function load(name, key, range_end)
  local replica = core.open { replica = true, now = 0 }
  local cluster, heard_at = replica:load_content(name or path, key or KEY, range_end or RANGE_END)
  local kvs = cluster and replica:range("", { prefix = true })
  replica:close()
  return cluster, heard_at, kvs
end

local function expect_refused(why, name, key, range_end)
  local cluster, err = load(name, key, range_end)
  assert.is_nil(cluster)
  assert.same({ "corrupt", why }, { err.code, err.message })
end

describe("the content in a file", function()
  it("is the whole content of a replica", function()
    local replica = open_replica()
    assert(save(replica))
    local cluster, heard_at, kvs = load()
    assert.same({ CLUSTER, 1234 }, { cluster, heard_at })
    assert.same(replica:range("", { prefix = true }), kvs)
    replica:close()
    replica = open_replica({}, 7)
    assert(save(replica))
    cluster, heard_at, kvs = load()
    assert.same({ CLUSTER, 1234, 0, 7 }, { cluster, heard_at, kvs.count, kvs.revision })
    replica:close()
    local _, err = load(path .. ".none")
    assert.equal("not_found", err.code)
  end)

  it("may be larger than one write", function()
    local kvs = {}
    for i = 1, 300 do
      kvs[i] = { key = ("/a/%03d"):format(i), value = ("%d "):format(i):rep(1000), create_revision = i,
        mod_revision = i, version = 1, lease = 0 }
    end
    local replica = open_replica(kvs, 300)
    assert(save(replica))
    local _, _, found = load()
    assert.same(replica:range("", { prefix = true }), found)
    replica:close()
  end)

  it("is refused if the file is truncated or damaged at any byte", function()
    local replica = open_replica()
    assert(save(replica))
    replica:close()
    local bytes, whole = files.read(path), path
    local torn = path .. ".torn"
    for len = 0, #bytes - 1 do
      local damaged = string.char((bytes:byte(len + 1) + 1) % 256) .. bytes:sub(len + 2)
      for _, rest in ipairs { "", damaged } do
        files.write(torn, bytes:sub(1, len) .. rest)
        assert.equal("corrupt", answer.code(load(torn)))
      end
    end
    files.write(torn, bytes .. "x")
    expect_refused("is incomplete", torn)
    assert(load(whole))
  end)

  it("is refused if the file has other keys, is foreign, or is too large", function()
    local replica = open_replica()
    assert(save(replica))
    replica:close()
    expect_refused("has another range of keys", path, "/a", RANGE_END)
    expect_refused("has another range of keys", path, KEY, "\0")
    files.write(path, ("x"):rep(1000))
    expect_refused("is not the file of a cache")
    files.write(path, "kwcache\2" .. ("\0"):rep(1000))
    expect_refused("has the format of another version of keywatch")
    files.write(path, "")
    expect_refused("is empty")
    local fd = assert(uv.fs_open(path, "w", 384))
    assert(uv.fs_ftruncate(fd, 2 ^ 30 + 1))
    uv.fs_close(fd)
    expect_refused("is larger than 1 GiB")
    os.remove(path)
    assert(os.execute("mkfifo " .. path))
    expect_refused("is not a regular file")
  end)

  it("is refused if its kvs are impossible, though the checksum is right", function()
    local crc32c = require "spec.support.crc32c"
    local replica = open_replica()
    assert(save(replica))
    replica:close()
    local bytes = files.read(path)
    local function number(v) return string.char(0, 0, 0, v) end
    local function try(why, from, to)
      local body = bytes:sub(1, -5)
      local at, last = body:find(from, 1, true)
      body = body:sub(1, at - 1) .. to .. body:sub(last + 1)
      body = body:sub(1, 12) .. ("\0\0%s%s"):format(string.char(math.floor((#body + 4) / 256)),
        string.char((#body + 4) % 256)) .. body:sub(17)
      local crc = crc32c.checksum { body }
      files.write(path, body .. string.char(math.floor(crc / 2 ^ 24) % 256, math.floor(crc / 2 ^ 16) % 256,
        math.floor(crc / 2 ^ 8) % 256, crc % 256))
      if why then expect_refused(why) else assert(load()) end
    end
    try(nil, "/a/1", "/a/1")
    try("is malformed", "/a/1", "/b/1")              -- outside of the range
    try("is malformed", "/a/1", "/a/2")              -- twice
    try("is malformed", "\24\7", "\24\127")          -- newer than the content
    try("is malformed", number(2) .. number(3), number(2) .. number(200)) -- lengths of the range
    try("is malformed", ("\0"):rep(7) .. "\2", ("\0"):rep(7) .. "\3") -- kvs that are not there
    try("is malformed", ("\0"):rep(7) .. "\20", ("\255"):rep(8)) -- a revision
    for _, time in ipairs { ("\255"):rep(8), "\128" .. ("\0"):rep(7), "\0\64" .. ("\0"):rep(6) } do
      try("is malformed", bytes:sub(33, 40), time)
    end
  end)

  it("is written by several processes at once, and is whole at any time", function()
    local replica = open_replica()
    local writers = {}
    for i = 1, 4 do writers[i] = core.content_writer(path) end
    assert(save(replica))
    for _ = 1, 50 do
      for _, writer in ipairs(writers) do
        local done = writer:is_done()
        if done ~= false then
          assert(replica:write_content(writer, KEY, RANGE_END, CLUSTER, 1))
          hold(replica, writer, 1)
        end
      end
      local _, _, kvs = load()
      assert.equal(2, kvs.count)
    end
    for _, writer in ipairs(writers) do
      assert(writer:wait())
      for _ = 1, 2 do writer:close() end
      assert.has_error(function() writer:wait() end, "the writer is closed")
    end
    assert.same({}, leftovers())
    replica:close()
  end)

  it("is that of the revision at which the write began, whatever changes while keys are gathered", function()
    local function put(key, revision)
      return { type = "put", key = key, value = "x", create_revision = revision, version = 1, lease = 0 }
    end
    local replica, writer = open_replica(), core.content_writer(path)
    assert(replica:apply(21, { { type = "delete", key = "/a/1" } }))
    for i = 3, 9 do assert(replica:apply(20 + i, { put("/a/" .. i, 20 + i) })) end
    local before = replica:range("", { prefix = true })
    assert(replica:write_content(writer, KEY, RANGE_END, CLUSTER, 1))
    local revision = 40
    repeat
      local is_writing = replica:hold_content(writer, 1)
      assert(replica:apply(revision, { { type = "delete", key = "/a/" .. revision % 10 },
        put("/a/new" .. revision, revision) }))
      revision = revision + 1
    until is_writing
    assert(revision > 45)
    assert(writer:wait())
    local _, _, kvs = load()
    assert.same(before, kvs)
    assert(replica:write_content(writer, KEY, RANGE_END, CLUSTER, 1))
    assert.is_false(replica:hold_content(writer, 1))
    local other = open_replica()
    assert.equal("compacted", answer.code(other:hold_content(writer, 1)))
    other:close()
    assert(replica:write_content(writer, KEY, RANGE_END, CLUSTER, 1))
    writer:close()
    replica:close()
    assert.same({}, leftovers())
  end)

  it("is not written twice at once, nor by a store that is not a replica", function()
    local replica, store = open_replica(), core.open {}
    local writer = core.content_writer(path)
    assert.has_error(function() store:write_content(writer, KEY, RANGE_END, CLUSTER, 1) end,
      "the store is not a replica")
    assert.has_error(function() store:load_content(path, KEY, RANGE_END) end, "the store is not a replica")
    assert.has_error(function() replica:write_content(writer, KEY, RANGE_END, "x", 1) end)
    assert.has_error(function() core.content_writer("a\0b") end)
    assert.has_error(function() replica:hold_content(writer, 1) end, "the writer has not begun")
    assert(replica:write_content(writer, KEY, RANGE_END, CLUSTER, 1))
    assert.has_error(function() replica:write_content(writer, KEY, RANGE_END, CLUSTER, 1) end,
      "the writer is not done")
    assert.is_true(replica:hold_content(writer, 10))
    replica:close() -- the writer continues
    assert(writer:wait())
    writer:close()
    assert(load())
    store:close()
  end)

  if starve then
    it("is not lost, and the write fails, without memory #starved", function()
      local replica = open_replica()
      assert(save(replica))
      starve.try_all(function()
        local other, failed = core.open { replica = true, now = 0 }
        if not other then return nil, failed end
        local cluster, err = other:load_content(path, KEY, RANGE_END)
        other:close()
        return cluster, err
      end, function(cluster) assert.equal(CLUSTER, cluster) end)
      starve.expect_nothing_lost {
        function()
          local other = core.open { replica = true, now = 0 }
          if other then other:load_content(path, KEY, RANGE_END) end
        end,
        function()
          local writer = core.content_writer(path)
          if not writer or not replica:write_content(writer, KEY, RANGE_END, CLUSTER, 1) then return end
          if replica:hold_content(writer, 10) then writer:wait() end
        end,
      }
      replica:close()
      assert.same({}, leftovers())
    end)
  end
end)

local PROGRAM = [[
local core = require "keywatch.core"
require "spec.support.inner"
local fault_plan = require "spec.support.fault_plan"
local control, path = arg[1], arg[2]
local replica = core.open { replica = true, now = 0 }
local kvs = {}
for i = 1, 100 do
  kvs[i] = { key = ("/a/%03d"):format(i), value = ("v"):rep(3000), create_revision = 1, mod_revision = 1, version = 1 }
end
assert(replica:load_kvs(1, kvs))

local function plan(line) fault_plan.set(control, line) end

local function save()
  local writer = core.content_writer(path)
  assert(replica:write_content(writer, "/a/", "/a0", "1", 1))
  assert(replica:hold_content(writer, 1000))
  local ok, err = writer:wait()
  writer:close()
  return ok, err
end

local function check(revision)
  local other = core.open { replica = true, now = 0 }
  assert(other:load_content(path, "/a/", "/a0"))
  assert(other:status().revision == revision and other:status().keys == 100)
  other:close()
end

assert(save())
local struck, reasons = 0, {}
for n = 1, 1000 do
  local before = replica:status().revision
  replica:advance(before + 1)
  plan(("fail any %d once 28"):format(n))
  local ok, err = save()
  if fault_plan.has_struck(control) then
    struck = struck + 1
    if not ok then reasons[err.code] = true end
  elseif ok then
    break
  end
  plan("")
  check(ok and before + 1 or before)
  assert(save())
  check(before + 1)
end
plan("")
print(("struck %s no_space %s"):format(struck > 3, tostring(reasons.no_space)))
]]

local FORKING = [[
local core = require "keywatch.core"
require "spec.support.inner"
local fork = assert(package.loadlib("build/fault.so", "kw_fault_fork"))
local wait = assert(package.loadlib("build/fault.so", "kw_fault_wait"))
io.stdout:setvbuf("no")
local control, path = arg[1], arg[2]
local file = assert(io.open(control, "w"))
file:write("delay 500\n") -- of each sync, in milliseconds: the thread sleeps there while the process forks
file:close()
local replica, writer = core.open { replica = true, now = 0 }, core.content_writer(path)
local kv = { key = "/a/1", value = ("v"):rep(100000), create_revision = 1, mod_revision = 1, version = 1 }
assert(replica:load_kvs(1, { kv }))
assert(replica:write_content(writer, "/a/", "/a0", "1", 1))
assert(replica:hold_content(writer, 1000))
local parent = core.pid()
fork()
if core.pid() ~= parent then
  local done, err = writer:is_done()
  writer:close()
  print("child", done, err and err.code) -- more writes would wait for the lock of the disk that fails
  os.exit(0)
end
print("parent", writer:wait())
wait()
]]

--- Runs a program with a file on a disk that has faults. Returns the lines that it prints, sorted, and the disk, which
-- has the file and nothing else.
local function run_on_disk(text)
  local disk, lines = fault.new(), {}
  files.write(disk.base .. "/program.lua", text)
  local argv = { vm.interpreter, disk.base .. "/program.lua", disk.control, disk.directory .. "/content" }
  local child = process.start(argv, { env = disk:environment() })
  child:wait()
  for line in child:stdout():gmatch("[^\n]+") do lines[#lines + 1] = line end
  table.sort(lines)
  assert.same({ "content" }, directory.list(disk.directory))
  return lines, disk
end

describe("a process with a file", function()
  it("may fork while it writes, and both processes continue #slow", function()
    local lines, disk = run_on_disk(FORKING)
    assert.same({ "child\tnil\tcancelled", "parent\ttrue" }, lines)
    assert(load(disk.directory .. "/content"))
    disk:remove()
  end)

  it("may be killed while it writes, and the file is whole #slow", function()
    local replica = open_replica()
    assert(save(replica))
    replica:close()
    files.write(path .. ".lua", [[
      local core = require "keywatch.core"
      require "spec.support.inner"
      local replica, writer = core.open { replica = true, now = 0 }, core.content_writer(arg[1])
      assert(replica:load_content(arg[1], "/a/", "/a0"))
      for i = 1, 1e9 do
        local revision = replica:status().revision + 1
        assert(replica:apply(revision, { { type = "put", key = "/a/" .. i % 50, value = ("v"):rep(20000),
          create_revision = revision, version = 1, lease = 0 } }))
        assert(replica:write_content(writer, "/a/", "/a0", "1", 1))
        assert(replica:hold_content(writer, 1000))
        if i == 3 then print("writing") io.stdout:flush() end
        writer:wait()
      end
    ]])
    for _ = 1, 5 do
      local child = process.start({ vm.interpreter, path .. ".lua", path }, { env = vm.environment() })
      child:expect("writing")
      child:signal("sigkill")
      child:wait()
      local cluster, _, kvs = load()
      assert.equal("1", cluster)
      assert(kvs.count >= 2)
    end
  end)
end)

describe("a disk that is full", function()
  it("leaves the previous file, and no temporary one #slow", function()
    local lines, disk = run_on_disk(PROGRAM)
    assert.same({ "struck true no_space true" }, lines)
    disk:remove()
  end)
end)
