--- Sessions: a lease that is renewed, and what is bound to it.

local keywatch = require "keywatch"

local owners = require "spec.support.owners"

local test = owners.test

local SECONDS = 30 -- for what is certain to come

local function new_count()
  local count = 0
  return function() count = count + 1 end, function() return count end
end

describe("The default session of a store", function()
  test("does not keep the store that the program has dropped", function()
    local dropped = setmetatable({}, { __mode = "v" })
    local function lock_and_drop()
      local store = keywatch.open()
      dropped[1] = store
      assert(assert(store:lock("a")):unlock())
      assert(store:lock("b"))
    end
    lock_and_drop()
    for _ = 1, 4 do
      collectgarbage()
      keywatch.sleep(0)
    end
    assert.is_nil(dropped[1])
  end)
end)

describe("A session", function()
  owners.each(function(with)
    test("has a lease of sixty seconds, or of the time that is asked for", function()
      assert.equal(60, with.owner:session().lease.ttl)
      assert.equal(77, with.owner:session({ ttl = 77 }).lease.ttl)
    end)

    test("may have a lease that exists, or its id", function()
      local lease = assert(with.owner:lease(40))
      local session = assert(with.owner:session { lease = lease })
      assert.equal(lease, session.lease)
      assert.equal(lease.id, assert(with.owner:session({ lease = lease.id })).lease.id)
    end)

    test("and another one of the same lease exclude each other, through one owner", function()
      local session = assert(with.owner:session())
      local second = assert(with.owner:namespace("n"):session { lease = session.lease.id })
      local lock = assert(session:lock("na"))
      local got, err = second:try_lock("a")
      assert.same({ nil, "locked" }, { got, err.code })
      local waiting = keywatch.spawn(function() return second:lock("a") end)
      local third = keywatch.spawn(function() return session:lock("na") end)
      keywatch.sleep(0)
      assert.is_true(lock:unlock())
      local _, theirs = waiting:join(SECONDS)
      assert.same({ second, true }, { theirs.session, theirs:is_held() })
      assert.equal("parked", third.state)
      second:orphan()
      assert.is_false(theirs:is_held())
      assert.is_true(theirs:unlock())
      local _, last = third:join(SECONDS)
      assert.is_true(last:is_held())
      assert.same({ last.key }, owners.keys(with.owner, "na/"))
    end)

    test("of another client may have the same lease: to the server the two are one", function()
      if not with.is_client then return end
      local session = assert(with.owner:session())
      local second = assert(with.other:session { lease = session.lease.id })
      local lock = assert(session:lock("a"))
      assert.equal(lock.key, assert(second:lock("a")).key)
    end)

    test("is refused if its lease does not exist", function()
      local session, err = with.owner:session { lease = 4711 }
      assert.same({ nil, "lease_not_found" }, { session, err.code })
    end)

    test("that is closed revokes its lease, at once and once", function()
      local session = assert(with.owner:session())
      local lock = assert(session:lock("closed"))
      assert.is_true(session:close())
      assert.is_nil(with.other:get(lock.key))
      assert.equal("lost", session:error().code)
      assert.equal("lost", assert(session:lost(SECONDS)).code)
      assert.equal("lost", lock:error().code)
      assert.is_true(session:close())
      assert.same({}, with.owner:leases())
    end)

    test("gives back what a cancelled task holds, and what it waits for", function()
      local session, other = assert(with.owner:session()), assert(with.owner:session())
      local lock = assert(session:lock("held"))
      local function cancel(fn, ...)
        local task = keywatch.spawn(fn, ...)
        keywatch.sleep(0.01)
        task:cancel()
        return task:join(SECONDS)
      end
      assert.is_false((cancel(other.lock, other, "held")))
      assert.equal(1, with.other:range("held/", { prefix = true }).count)
      assert.same({ true, true }, { cancel(function()
        pcall(keywatch.sleep, SECONDS)
        return lock:unlock()
      end) })
      assert.is_nil(with.other:get(lock.key))
      assert.is_true(session:close())
      assert.is_true(other:close())
    end)

    if with.is_client then
      test("is closed by a task that is cancelled", function()
        local session = assert(with.owner:session())
        local lock = assert(session:lock("closed"))
        local closing = keywatch.spawn(session.close, session)
        keywatch.sleep(0) -- the request is under way
        closing:cancel()
        assert.same({ true, true }, { closing:join(SECONDS) })
        assert.is_nil(with.other:get(lock.key))
        assert.same({}, with.owner:leases())
      end)
    end

    test("can be selected: it is ready once it is lost", function()
      local session, channel = assert(with.owner:session()), keywatch.channel()
      local found, err = keywatch.select { session, channel, timeout = 0.01 }
      assert.same({ nil, "timeout" }, { found, err.code })
      local waiting = keywatch.spawn(function() return keywatch.select { session, channel } end)
      keywatch.sleep(0)
      session:close()
      local _, object, why = waiting:join(SECONDS)
      assert.equal(session, object)
      assert.equal("lost", why.code)
    end)

    test("that is orphaned is lost to the program, and its keys stay", function()
      local session = assert(with.owner:session())
      local lock = assert(session:lock("orphan"))
      session:orphan()
      assert.equal("lost", session:error().code)
      assert.equal("lost", session:lost(0).code)
      local got, err = session:lock("b")
      assert.same({ nil, "lost" }, { got, err.code })
      assert.same({ lock.key }, owners.keys(with.owner, "orphan/"))
      assert.is_true(lock:unlock())
      assert.same({}, owners.keys(with.owner, "orphan/"))
      assert.is_true(session:close())
      assert.same({}, with.owner:leases())
    end)

    test("whose lease is orphaned is lost, for all who wait", function()
      local session = assert(with.owner:session())
      local lock = assert(session:lock("orphan"))
      local tasks = {
        keywatch.spawn(function() return session:lock("orphan") end),
        keywatch.spawn(function() return nil, session:lost(SECONDS) end),
        keywatch.spawn(function() return nil, lock:lost(SECONDS) end),
        keywatch.spawn(function() return nil, select(2, keywatch.select { session, timeout = SECONDS }) end),
      }
      keywatch.sleep(0)
      session.lease:orphan()
      for _, task in ipairs(tasks) do
        local ok, got, err = task:join(SECONDS)
        assert.same({ true, nil, "lost" }, { ok, got, err.code })
      end
      session.lease:keep() -- what was lost stays lost
      assert.equal("lost", session:error().code)
      assert.is_false(lock:is_held())
      assert.is_true(session:close())
      assert.same({}, with.owner:leases())
    end)

    test("of an owner is made once, for all who use it first at the same time", function()
      local tasks = {}
      for i = 1, 5 do
        tasks[i] = keywatch.spawn(function() return assert(with.owner:lock("name" .. i)).session end)
      end
      local sessions = {}
      for i, task in ipairs(tasks) do
        local _, session = task:join()
        sessions[i] = session
        assert.equal(sessions[1], session)
      end
      assert.equal(1, #with.owner:leases())
      assert.equal(60, sessions[1].lease.ttl)
      assert.equal(90, assert(with.owner:lock("long", { ttl = 90 })).session.lease.ttl)
      assert.equal(2, #with.owner:leases())
    end)

    test("of an owner is made anew after it was lost", function()
      local lock = assert(with.owner:lock("a"))
      assert(lock.session.lease:revoke())
      assert.equal("lost", lock:error().code)
      local again = assert(with.owner:lock("a"))
      assert.not_equal(lock.session, again.session)
      assert.is_true(again:is_held())
    end)

    test("of an owner is made anew after a call has found that its lease was revoked elsewhere", function()
      local lock = assert(with.owner:lock("a"))
      assert(with.other:lease_by_id(lock.session.lease.id):revoke())
      local got, err = with.owner:lock("b") -- a client does not know it before
      if not got then assert.equal("lost", err.code) end
      assert.equal("lost", lock:error().code)
      assert.is_true(assert(with.owner:lock("c")):is_held())
    end)

    test("of an owner is made anew after its lease was revoked elsewhere while a call waited for its turn", function()
      local theirs = assert(assert(with.other:session()):lock("a"))
      local waiting = keywatch.spawn(function() return with.owner:lock("a") end)
      owners.await_keys(with.other, "a/", 2)
      local session = assert(with.owner:lock("b")).session
      assert(with.other:lease_by_id(session.lease.id):revoke())
      assert(theirs:unlock())
      local _, got, err = waiting:join(SECONDS)
      assert.same({ nil, "lost" }, { got, err.code })
      assert.equal("lost", session:lost(session.lease.ttl / 6).code) -- before the lease is to be renewed
      assert.is_true(assert(with.owner:lock("c")):is_held())
    end)

    test("of an owner lives as long as the owner, without any lock", function()
      local lock = assert(with.owner:lock("a"))
      local id = lock.session.lease.id
      assert(lock:unlock())
      lock = nil
      collectgarbage()
      collectgarbage()
      keywatch.sleep(0)
      assert.equal(id, assert(with.owner:lock("b")).session.lease.id)
      assert.is_nil(lock)
    end)
  end)

  it("of a client is not made while the server cannot be reached, and made afterwards", function()
    local store = keywatch.open()
    local serving = keywatch.serve { store = store, listen = "http://127.0.0.1:0" }
    local url = serving:addresses()[1]
    serving:close()
    local client = keywatch.connect(url, { timeout = 0.2 })
    keywatch.run(function()
      local failed, count = new_count()
      local tasks = {}
      for i = 1, 3 do
        tasks[i] = keywatch.spawn(function()
          local lock, err = client:lock("a")
          if not lock and err.code == "unavailable" then failed() end
        end)
      end
      assert(keywatch.join(tasks))
      assert.equal(3, count())
      local again = keywatch.serve { store = store, listen = url }
      assert(client:lock("a", { timeout = SECONDS })):unlock()
      again:close()
    end)
    client:close()
    store:close()
  end)

  it("of a store that is closed is lost, and so are its locks", function()
    local store = keywatch.open()
    keywatch.run(function()
      local lock = assert(store:lock("a"))
      local waiting = keywatch.spawn(function() return lock:lost() end)
      keywatch.sleep(0)
      store:close()
      local _, err = waiting:join(SECONDS)
      assert.equal("lost", err.code)
      assert.equal("lost", lock:error().code)
      local ok, why = lock:unlock()
      assert.same({ nil, "lost" }, { ok, why.code })
    end)
  end)

  it("of a client that is closed is lost, and so are its locks", function()
    local store = keywatch.open()
    local serving = keywatch.serve { store = store, listen = "http://127.0.0.1:0" }
    local client = keywatch.connect(serving:addresses()[1])
    keywatch.run(function()
      local lock, other = assert(client:lock("a")), assert(client:session())
      local waiting = keywatch.spawn(function() return other:lock("a") end)
      owners.await_keys(store, "a/", 2)
      client:close()
      local _, got, err = waiting:join(SECONDS)
      assert.same({ nil, "lost" }, { got, err.code })
      assert.equal("lost", lock:lost(SECONDS).code)
      local again, why = client:lock("a")
      assert.same({ nil, "closed" }, { again, why.code })
    end)
    serving:close()
    store:close()
  end)

  it("does not keep a client from being collected", function()
    local store = keywatch.open()
    local serving = keywatch.serve { store = store, listen = "http://127.0.0.1:0" }
    local alive = setmetatable({}, { __mode = "v" })
    keywatch.run(function()
      local client = keywatch.connect(serving:addresses()[1])
      assert(client:lock("a"))
      alive[1] = client
    end)
    keywatch.run(function() -- the lock is given back first
      local deadline = keywatch.now() + SECONDS
      while alive[1] and keywatch.now() < deadline do
        collectgarbage()
        keywatch.sleep(0.001)
      end
    end)
    assert.is_nil(alive[1])
    serving:close()
    store:close()
  end)
end)
