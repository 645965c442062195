--- Faults of a server in a world, and their effects on the watches, leases and locks of its clients.

local keywatch = require "keywatch"
local testing = require "keywatch.testing"

local directory = require "spec.support.directory"
local within = require "spec.support.within"

local function failure_of(fn)
  local ok, err = pcall(fn)
  return not ok and tostring(err)
end

--- The next event of a watch as a text, or the code of its error.
local function next_of(w, seconds)
  local event, err = w:next(seconds or 60)
  if not event then return err and err.code or "closed" end
  return ("%s %s %s"):format(event.type, event.key or "", event.value or "")
end

describe("a server of a world", function()
  it("is stopped and started: requests wait, and watches miss nothing and see nothing twice", within.world(
    function(world)
      local client, server = world:client(), world.server
      local w = assert(client:watch("k", { prefix = true }))
      client:put("k1", "")
      for _ = 1, 2 do server:stop() end
      assert.equal("keywatch.testing.server<http://127.0.0.1:2379 stopped>", tostring(server))
      assert.equal("unavailable", select(2, client:get("k1", { timeout = 3 })).code)
      server.store:put("k2", "")
      local writing = keywatch.spawn(client.put, client, "k3", "")
      keywatch.sleep(2)
      for _ = 1, 2 do server:start() end
      assert(select(2, writing:join()))
      assert.same({ "put k1 ", "put k2 ", "put k3 ", "timeout" }, { next_of(w), next_of(w), next_of(w), next_of(w) })
      server:restart(4)
      client:put("k4", "")
      assert.same({ "put k4 ", 2 }, { next_of(w), world.counts.stop })
      server:cut()
      client:put("k5", "")
      assert.same({ "put k5 ", 1 }, { next_of(w), world.counts.cut })
    end))

  it("is compacted while a client cannot be reached: its watch fails", within.world(function(world)
    local client, server = world:client(), world.server
    local w = assert(client:watch("", { prefix = true }))
    client:put("a", "1")
    assert.equal("put a 1", next_of(w))
    server:stop()
    for i = 1, 5 do server.store:put("b", tostring(i)) end
    server:compact()
    server:start()
    assert.same({ "compacted", "compacted" }, { next_of(w), w:error().code })
    local again = assert(client:watch("", { prefix = true, initial = true }))
    assert.same({ "put a 1", "put b 5", "synced  " }, { next_of(again), next_of(again), next_of(again) })
    assert.equal("future_revision", select(2, server:compact(100)).code)
    assert.equal(1, world.counts.compact)
  end))

  it("is restored to an older state: watches fail, and later revisions are gone", within.world(function(world)
    local client, server = world:client(), world.server
    local w = assert(client:watch("", { prefix = true }))
    local lease = assert(client:lease(100))
    client:put("a", "1")                           -- revision 2
    client:put("b", "1", { lease = lease })        -- 3
    client:txn { success = { { put = "c", value = "1" }, { delete = "a" } } } -- 4
    client:put("b", "2", { lease = lease })        -- 5
    client:put("z", "later")                       -- 6
    for _ = 1, 6 do next_of(w) end
    local before = client:range("", { prefix = true, revision = 5 }).kvs
    assert.is_true(server:restore(5))
    assert.equal("regressed", next_of(w))
    local found = client:range("", { prefix = true })
    assert.equal(5, found.revision)
    assert.same(before, found.kvs)
    assert.same({ "b" }, client:lease_by_id(lease.id):keys())
    assert.equal(6, client:put("d", "").revision)
    assert.equal(1, world.counts.restore)
  end))

  it("is restored with revisions that change a key more than once", within.world(function(world)
    local store = world.server.store
    local function nested(op) return { txn = { success = { op } } } end
    assert(store:put("c", "1"))                                                     -- revision 2
    assert(store:txn { success = { nested { put = "a", value = "1" }, nested { put = "c", value = "2" },
      nested { delete = "a", prefix = true }, nested { put = "b", value = "1" }, nested { delete = "c" } } }) -- 3
    assert(store:put("d", "1"))                                                     -- 4
    assert(store:put("e", "1"))                                                     -- 5
    assert(store:txn { success = { { delete = "a", from_key = true }, { put = "d", value = "2" },
      { put = "a", value = "1" }, { delete = "b", from_key = true } } })            -- 6: d three times
    assert(store:put("a", "2"))                                                     -- 7

    local function history()
      local list = {}
      local w = assert(world.server.store:watch("", { prefix = true, start_revision = 2 }))
      repeat list[#list + 1] = assert(w:next(1)) until list[#list].mod_revision == 7
      w:close()
      return { list, world.server.store:hash_kv(7).hash, world.server.store:status().revision }
    end
    local before = history()
    assert.equal(15, #before[1])
    assert(store:put("z", "later"))
    assert.is_true(world.server:restore(7))
    assert.same(before, history())
  end))

  describe("that is replaced between two pages of a range", function()
    local N = 1500

    --- Readers of the keys below "k/": each calls `between` after the first kv, and returns the values by numbers; or
    -- nil and the error.
    local READERS = {
      each = function(client, between, page)
        local values, n = {}, 0
        local ok, err = pcall(function()
          for kv in client:each("k/", { prefix = true, page = page }) do
            values[kv.key:sub(-4)], n = kv.value, n + 1
            if n == 1 then between() end
          end
        end)
        if not ok then return nil, err end
        assert.equal(N, n)
        return values
      end,
      watch = function(client, between)
        local w, values, n = assert(client:watch("k/", { prefix = true, initial = true })), {}, 0
        while true do
          local event, err = w:next(60)
          if not event then return nil, err end
          if event.type == "synced" then break end
          values[event.key:sub(-4)], n = event.value, n + 1
          if n == 1 then between() end
        end
        w:close()
        assert.equal(N, n)
        return values
      end,
    }
    function READERS.pages(client, between) return READERS.each(client, between, 100) end
    function READERS.namespace(client, between)
      return READERS.each({ each = function(_, _, opts) return client:namespace("k"):each("/", opts) end }, between)
    end

    --- Reads with each reader, a server of its own each: fn(world, server, backup) is called between two pages, and the
    -- last write, of a key, is one that the backup does not have. `judge` gets the values, the error and the name.
    local function with_each(lost, fn, judge)
      for name, read in pairs(READERS) do
        testing.run(function(world)
          local server, client = world.server, world:client()
          for i = 1, N do assert(server.store:put(("k/%04d"):format(i), "old")) end
          local backup = server.store:status().revision
          assert(server.store:put(lost, "lost"))
          local values, err = read(client, function() fn(world, server, backup) end)
          judge(values, err, name)
        end)
      end
    end

    it("by one with the same history is read further", function()
      with_each("k/0001", function(_, server) server:restart(1) end, function(values, err, name)
        assert(values, tostring(err))
        assert.same({ "lost", "old" }, { values["0001"], values["1500"] }, name)
      end)
    end)

    --- Returns a judge that expects this error.
    local function fails_with(code)
      return function(values, err, name) assert.same({ code }, { err and err.code, values }, name) end
    end

    for what, key in pairs {
      ["has other content"] = "k/0002", ["has another value of the same revision"] = "k/0001",
    } do
      it(("and %s where it was read is noticed"):format(what), function()
        with_each("k/0001", function(_, server, backup)
          assert(server:restore(backup))
          for i = 1, 10 do assert(server.store:put(key, "new" .. i)) end
        end, fails_with "regressed")
      end)
    end

    it("by one with other content there gives that content", function()
      with_each("k/1400", function(_, server, backup)
        assert(server:restore(backup))
        assert(server.store:put("k/1300", "new"))
        for _ = 1, 10 do assert(server.store:put("l", "later")) end
      end, function(values, err, name)
        assert(values, tostring(err))
        assert.same({ "new", "old" }, { values["1300"], values["1400"] }, name)
      end)
    end)

    it("by one at an older revision is noticed", function()
      with_each("k/0001", function(_, server, backup) assert(server:restore(backup - 10)) end, fails_with "regressed")
    end)

    it("by one of another cluster is noticed", function()
      with_each("k/0001", function(_, server)
        server:replace()
        for i = 1, 2 * N do assert(server.store:put(("k/%04d"):format(i % N), "old")) end
      end, fails_with "cluster_changed")
    end)

    it("again and again makes the iterator raise, which can then be called again", within.world(function(world)
      local server, is_cutting = world.server, true
      for i = 1, N do assert(server.store:put(("k/%04d"):format(i), "v")) end
      local client = keywatch.connect(server.url, { on_call = function()
        if is_cutting then server:cut() end
      end })
      local n, iterator = 1, client:each("k/", { prefix = true, page = 100 })
      while n < 100 do n = n + (iterator() and 1 or 0) end
      iterator()
      local ok, err = pcall(iterator)
      assert.same({ false, "unavailable" }, { ok, err.code })
      assert.matches("lost too often while pages were read", err.message)
      is_cutting = false
      for kv in iterator do
        n = n + 1
        assert.equal(("k/%04d"):format(n), kv.key)
      end
      assert.equal(N, n)
    end))
  end)

  it("cannot be restored to a compacted revision, but to a later one", within.world(function(world)
    local server = world.server
    for i = 1, 9 do server.store:put("k" .. i % 3, tostring(i)) end -- revisions 2 to 10
    server:compact(6)
    local store, before = server.store, server.store:range("", { prefix = true, revision = 8 }).kvs
    assert.equal("compacted", select(2, server:restore(5)).code)
    assert.equal(store, server.store)
    assert.is_true(server:restore(8))
    local status = server.store:status()
    assert.same({ 8, 6, before }, { status.revision, status.compact_revision,
      server.store:range("", { prefix = true }).kvs })
  end))

  it("is replaced by one of another cluster: watches fail", within.world(function(world)
    local client, server = world:client(), world.server
    client:put("a", "1")
    local w = assert(client:watch("a"))
    local old = client:status().cluster_id
    server:replace()
    assert.same({ "cluster_changed", nil }, { next_of(w), (client:get("a")) })
    assert.not_equal(old, client:status().cluster_id)
    assert.equal(1, world.counts.replace)
  end))

  it("loses a lease: keep, sessions and locks report that", within.world(function(world)
    local client, server = world:client(), world.server
    local lease = assert(client:lease(30)):keep()
    client:put("a", "", { lease = lease })
    keywatch.sleep(200)
    assert(client:get("a"))
    assert.is_true(server:lose_lease(lease))
    assert.same({ nil, "lost" }, { client:get("a"), lease:wait_lost(60).code })
    assert.equal("lease_not_found", select(2, server:lose_lease(lease.id)).code)
    local session = assert(client:session { ttl = 15 })
    local lock = assert(session:lock("job"))
    assert.is_true(lock:is_held())
    server:lose_lease(session.lease)
    assert.same({ "lost", false, 2 }, { lock:wait_lost(60).code, lock:is_held(), world.counts.lose_lease })
  end))

  it("stands still with its whole world, and leases end during that", within.world(function(world)
    local client = world:client()
    local lease = assert(client:lease(5)):keep()
    client:put("a", "", { lease = lease })
    world:pause(4)
    keywatch.sleep(60)
    assert(client:get("a"))
    local now = keywatch.now()
    world:pause(20)
    assert.equal(now + 20, keywatch.now())
    assert.same({ nil, "lost", 2 }, { client:get("a"), lease:wait_lost(0).code, world.counts.pause })
    assert.has_error(function() world:pause(-1) end)
  end))

  it("has the options of a store, and a URL", within.world(function(world)
    local server = world:serve { url = "unix:/tmp/not/there", open = { max_txn_ops = 1 } }
    local client = keywatch.connect("unix:/tmp/not/there")
    assert.equal("too_many_ops", select(2, client:txn { success = { { get = "a" }, { get = "b" } } }).code)
    assert.equal("keywatch.testing.server<unix:/tmp/not/there>", tostring(server))
  end))

  it("with a disk keeps what it has acknowledged when it is killed, the same in every run", function()
    local results = {}
    for run = 1, 2 do
      local path = directory.new() .. "/store"
      testing.run(function(world)
        local server = world:serve { open = { path = path } }
        local client = world:client { server = server }
        local w, seen = assert(client:watch("k", { prefix = true })), 0
        for i = 1, 20 do
          assert(client:put("k" .. i, ("x"):rep(100)))
          if i % 5 == 0 then
            local doubtful = keywatch.spawn(client.put, client, "doubtful", tostring(i), { timeout = 5 })
            keywatch.sleep(0)
            for _ = 1, 2 do server:kill() end
            keywatch.sleep(1)
            assert.is_nil(server.store)
            server:start()
            doubtful:join()
          end
        end
        while seen < 20 do seen = seen + (w:next(60).type == "put" and 1 or 0) end
        assert.equal(4, world.counts.kill)
        results[run] = { server.store:status().revision, keywatch.now() }
        server:kill()
        assert.matches("is killed", failure_of(function() server:compact() end))
        server:start()
        assert.matches("has a disk", failure_of(function() server:replace() end))
        assert.matches("in memory", failure_of(function() world.server:kill() end))
      end)
      directory.remove_all()
    end
    assert.same(results[1], results[2])
  end)

  describe("that is started while a write is pending", function()
    --- Starts a server in a task; a second later, while the start waits for a write of the store, calls act(server).
    -- After the write judge(server) is called.
    local function during_start(act, judge)
      testing.run(function(world)
        local server = world:serve { open = { path = directory.new() .. "/store" } }
        server:stop()
        function world.driver.work_seconds() return 2 end
        local writing = keywatch.spawn(server.store.put, server.store, "a", "1")
        keywatch.sleep(0)
        local starting = keywatch.spawn(server.start, server)
        keywatch.sleep(1)
        assert.is_nil(server.server)
        act(server)
        assert(starting:join())
        writing:join()
        judge(server, world:client { server = server })
      end)
      directory.remove_all()
    end

    local function serves(_, client) assert(client:put("b", "")) end

    it("is stopped: it does not serve", function()
      during_start(function(server) server:stop() end, function(server, client)
        assert.equal("unavailable", select(2, client:put("b", "", { timeout = 3 })).code)
        assert.equal(2, server.store:status().revision)
        server:start()
        serves(server, client)
      end)
    end)

    it("is killed: it does not serve, and has no store", function()
      during_start(function(server) server:kill() end, function(server, client)
        assert.same({ nil, nil }, { server.server, server.store })
        server:start()
        serves(server, client)
      end)
    end)

    it("is killed or stopped and started: it serves", function()
      for _, name in ipairs { "kill", "stop" } do
        during_start(function(server)
          server[name](server)
          server:start()
        end, serves)
      end
    end)

    it("is started by another task: it serves", function()
      during_start(function(server) server:start() end, serves)
    end)
  end)

  it("sends a snapshot that is larger than one step gathers", within.world(function(world)
    local MIB, size = 1024 * 1024, 0
    for i = 1, 8 do world.server.store:put("k" .. i, ("v"):rep(MIB)) end
    local stream = assert(world:client():stream("/etcdserverpb.Maintenance/Snapshot"))
    stream:send {}
    for answer in function() return stream:receive() end do size = size + #(answer.blob or "") end
    assert.is_true(size > 8 * MIB)
  end))
end)
