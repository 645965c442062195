--- Sessions: a lease that is renewed, and the keys and functions that depend on it.

local keywatch = require "keywatch"

local answer = require "spec.support.answer"
local await = require "spec.support.await"
local near = require "spec.support.near"
local owners = require "spec.support.owners"

local test = owners.test

local SECONDS = 30 -- for an event that must arrive

describe("The default session of a store", function()
  test("does not keep a store alive that the program has dropped", function()
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
    test("has a lease of sixty seconds, or of the given TTL", function()
      assert.same({ 60, 77 }, { with.owner:session().lease.ttl, with.owner:session({ ttl = 77 }).lease.ttl })
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
      assert.equal("locked", answer.code(second:try_lock("a")))
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

    test("of another client may have the same lease: for the server they are the same", function()
      if not with.is_client then return end
      local session = assert(with.owner:session())
      local second = assert(with.other:session { lease = session.lease.id })
      local lock = assert(session:lock("a"))
      assert.equal(lock.key, assert(second:lock("a")).key)
    end)

    test("is refused if its lease does not exist", function()
      assert.equal("lease_not_found", answer.code(with.owner:session { lease = 4711 }))
    end)

    test("that is closed revokes its lease, at once and once", function()
      local session = assert(with.owner:session())
      local lock = assert(session:lock("closed"))
      assert.is_true(session:close())
      assert.same({ nil, "lost" }, { with.other:get(lock.key), session:error().code })
      assert.equal("lost", assert(session:wait_lost(SECONDS)).code)
      assert.equal("lost", lock:error().code)
      assert.is_true(session:close())
      assert.same({}, with.owner:leases())
    end)

    test("releases what a cancelled task holds and waits for", function()
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
      assert.same({ true, true }, { session:close(), other:close() })
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
      assert.equal("timeout", answer.code(keywatch.select { session, channel, timeout = 0.01 }))
      local waiting = keywatch.spawn(function() return keywatch.select { session, channel } end)
      keywatch.sleep(0)
      session:close()
      local _, object, why = waiting:join(SECONDS)
      assert.equal(session, object)
      assert.equal("lost", why.code)
    end)

    test("that is orphaned is lost for the program, and its keys stay", function()
      local session = assert(with.owner:session())
      local lock = assert(session:lock("orphan"))
      session:orphan()
      assert.same({ "lost", "lost" }, { session:error().code, session:wait_lost(0).code })
      assert.equal("lost", answer.code(session:lock("b")))
      assert.same({ lock.key }, owners.keys(with.owner, "orphan/"))
      assert.is_true(lock:unlock())
      assert.same({}, owners.keys(with.owner, "orphan/"))
      assert.is_true(session:close())
      assert.same({}, with.owner:leases())
    end)

    test("whose lease is orphaned is lost, for all waiters", function()
      local session = assert(with.owner:session())
      local lock = assert(session:lock("orphan"))
      local tasks = {
        keywatch.spawn(function() return session:lock("orphan") end),
        keywatch.spawn(function() return nil, session:wait_lost(SECONDS) end),
        keywatch.spawn(function() return nil, lock:wait_lost(SECONDS) end),
        keywatch.spawn(function() return nil, select(2, keywatch.select { session, timeout = SECONDS }) end),
      }
      keywatch.sleep(0)
      session.lease:orphan()
      for _, task in ipairs(tasks) do
        local ok, got, err = task:join(SECONDS)
        assert.same({ true, nil, "lost" }, { ok, got, err.code })
      end
      session.lease:keep() -- a lost lease stays lost
      assert.same({ "lost", false }, { session:error().code, lock:is_held() })
      assert.is_true(session:close())
      assert.same({}, with.owner:leases())
    end)

    test("of an owner is created once, for all concurrent first uses", function()
      local tasks = {}
      for i = 1, 5 do
        tasks[i] = keywatch.spawn(function() return assert(with.owner:lock("name" .. i)).session end)
      end
      local _, first = tasks[1]:join()
      for _, task in ipairs(tasks) do assert.equal(first, select(2, task:join())) end
      assert.same({ 1, 60 }, { #with.owner:leases(), first.lease.ttl })
      assert.equal(90, assert(with.owner:lock("long", { ttl = 90 })).session.lease.ttl)
      assert.equal(2, #with.owner:leases())
    end)

    test("of an owner is created again after it was lost", function()
      local lock = assert(with.owner:lock("a"))
      assert(lock.session.lease:revoke())
      assert.equal("lost", lock:error().code)
      local again = assert(with.owner:lock("a"))
      assert.not_equal(lock.session, again.session)
      assert.is_true(again:is_held())
    end)

    test("of an owner is created again after a call has found that its lease was revoked elsewhere", function()
      local lock = assert(with.owner:lock("a"))
      assert(with.other:lease_by_id(lock.session.lease.id):revoke())
      local got, err = with.owner:lock("b") -- a client does not know it before
      if not got then assert.equal("lost", err.code) end
      assert.equal("lost", lock:error().code)
      assert.is_true(assert(with.owner:lock("c")):is_held())
    end)

    test("of an owner is created again if its lease is revoked elsewhere while a call waits for its turn", function()
      local theirs = assert(assert(with.other:session()):lock("a"))
      local waiting = keywatch.spawn(function() return with.owner:lock("a") end)
      owners.await_keys(with.other, "a/", 2)
      local session = assert(with.owner:lock("b")).session
      assert(with.other:lease_by_id(session.lease.id):revoke())
      assert(theirs:unlock())
      assert.equal("lost", answer.code(select(2, waiting:join(SECONDS))))
      assert.equal("lost", session:wait_lost(session.lease.ttl / 6).code) -- before the lease is to be renewed
      assert.is_true(assert(with.owner:lock("c")):is_held())
    end)

    test("of an owner lives as long as the owner, without any lock", function()
      local lock = assert(with.owner:lock("a"))
      local id = lock.session.lease.id
      assert(lock:unlock())
      lock = nil
      collectgarbage()
      keywatch.sleep(0)
      assert.equal(id, assert(with.owner:lock("b")).session.lease.id)
      assert.is_nil(lock)
    end)
  end)

  it("of a client cannot be created while the server is away, and can be afterwards", function()
    local client, store, close, server = near { timeout = 0.2 }
    local url = server:addresses()[1]
    server:close()
    keywatch.run(function()
      local tasks = {}
      for i = 1, 3 do tasks[i] = keywatch.spawn(client.lock, client, "a") end
      for _, task in ipairs(tasks) do assert.equal("unavailable", answer.code(select(2, task:join()))) end
      local again = keywatch.serve { store = store, listen = url }
      assert(client:lock("a", { timeout = SECONDS })):unlock()
      again:close()
    end)
    close()
  end)

  it("of a closed store is lost, with its locks", function()
    local store = keywatch.open()
    keywatch.run(function()
      local lock = assert(store:lock("a"))
      local waiting = keywatch.spawn(function() return lock:wait_lost() end)
      keywatch.sleep(0)
      store:close()
      local _, err = waiting:join(SECONDS)
      assert.same({ "lost", "lost" }, { err.code, lock:error().code })
      assert.equal("lost", answer.code(lock:unlock()))
    end)
  end)

  it("of a closed client is lost, with its locks", function()
    local client, store, close = near()
    keywatch.run(function()
      local lock, other = assert(client:lock("a")), assert(client:session())
      local waiting = keywatch.spawn(function() return other:lock("a") end)
      owners.await_keys(store, "a/", 2)
      client:close()
      local _, got, err = waiting:join(SECONDS)
      assert.same({ nil, "lost", "lost" }, { got, err.code, lock:wait_lost(SECONDS).code })
      assert.equal("closed", answer.code(client:lock("a")))
    end)
    close()
  end)

  it("does not keep a client from being collected", function()
    local _, _, close, server = near()
    local alive = setmetatable({}, { __mode = "v" })
    keywatch.run(function()
      local client = keywatch.connect(server:addresses()[1])
      assert(client:lock("a"))
      alive[1] = client
    end)
    await(function() -- the lock is given back first
      collectgarbage()
      return not alive[1]
    end)
    close()
  end)
end)
