--- Locks: one session holds a name at a time, in the order of the requests.

local core = require "keywatch.core"
local keywatch = require "keywatch"

local answer = require "spec.support.answer"
local owners = require "spec.support.owners"

local test = owners.test

local SECONDS = 30 -- for an event that must arrive

describe("A lock", function()
  owners.each(function(with)
    test("that is free is acquired: its key is that of etcd's clients, bound to the lease of the session", function()
      local session = assert(with.owner:session { ttl = 30 })
      local lock = assert(session:lock("free"))
      assert.equal("free/" .. core.hex(session.lease.id), lock.key)
      local kv = with.other:get(lock.key)
      assert.same({ "", lock.revision, session.lease.id }, { kv.value, kv.create_revision, kv.lease })
      assert.same({ true, nil }, { lock:is_held(), lock:error() })
      assert.is_true(lock:unlock())
      assert.same({ false, nil }, { lock:is_held(), (with.other:get(lock.key)) })
    end)

    test("of a namespace, and of its fence, has the prefixed name; a fence that is lost acquires none", function()
      local space = with.owner:namespace("/app\255")
      local outer = assert(space:lock("a"))
      local kv = assert(with.other:get("/app\255" .. outer.key))
      assert.equal(outer.revision, kv.create_revision)
      local inner = assert(outer:fence():lock("b"))
      assert.equal("locked", select(2, with.other:namespace("/app\255"):try_lock("a")).code)
      assert.equal("locked", select(2, with.other:try_lock("/app\255b")).code)
      with.other:delete(kv.key)
      assert.equal("lost", answer.code(outer:fence():lock("c")))
      assert.is_true(inner:unlock())
      assert.same({}, owners.keys(with.owner, "/app"))
    end)

    test("may be released twice", function()
      local lock = assert(with.owner:lock("twice"))
      for _ = 1, 2 do assert.is_true(lock:unlock()) end
      assert.equal("lost", lock:wait_lost(0).code)
    end)

    test("passes from session to session in order", function()
      local first = assert(with.owner:session()):lock("turns")
      local order, tasks = {}, {}
      for i = 1, 5 do
        tasks[i] = keywatch.spawn(function()
          local session = assert((i % 2 == 0 and with.owner or with.other):session())
          local lock = assert(session:lock("turns"))
          order[#order + 1] = i
          keywatch.sleep(0)
          assert(lock:unlock())
        end)
        owners.await_keys(with.owner, "turns/", i + 1)
      end
      assert.same({}, order)
      assert(first:unlock())
      assert(keywatch.join(tasks))
      assert.same({ 1, 2, 3, 4, 5 }, order)
      assert.same({}, owners.keys(with.owner, "turns/"))
    end)

    test("excludes the calls of one session from each other, in order", function()
      local first = assert(with.owner:lock("own"))
      local order, tasks = {}, {}
      for i = 1, 3 do
        tasks[i] = keywatch.spawn(function()
          local lock = assert(with.owner:lock("own"))
          order[#order + 1] = i
          keywatch.sleep(0)
          assert(lock:unlock())
        end)
      end
      keywatch.sleep(0)
      assert.same({ first.key }, owners.keys(with.owner, "own/"))
      assert(first:unlock())
      assert(keywatch.join(tasks))
      assert.same({ 1, 2, 3 }, order)
    end)

    test("is not acquired by try_lock if another session, or another call of the same one, has it", function()
      local session = assert(with.other:session())
      local lock = assert(with.owner:try_lock("try"))
      local revision = with.owner:get(lock.key).mod_revision
      for _, one in ipairs { session, with.owner } do assert.equal("locked", answer.code(one:try_lock("try"))) end
      assert.equal(revision, with.owner:range("try/", { prefix = true }).kvs[1].mod_revision)
      assert.same({ lock.key }, owners.keys(with.owner, "try/"))
      assert(lock:unlock())
      assert.is_true(assert(session:try_lock("try")):is_held())
    end)

    it("that comes too late returns timeout, and leaves no key, at top level, too", function()
      local session = assert(with.other:session())
      local lock = assert(with.owner:lock("late"))
      for _, one in ipairs { session, with.owner } do -- that one is of the same session
        assert.equal("timeout", answer.code(one:lock("late", { timeout = 0.02 })))
        assert.same({ lock.key }, owners.keys(with.owner, "late/"))
      end
      assert.equal("timeout", answer.code(session:lock("late", { deadline = keywatch.now() - 1 })))
      assert(lock:unlock())
      assert(session:lock("late", { timeout = SECONDS }))
    end)

    test("whose wait is cancelled leaves no key, and does not block later waiters", function()
      local session, third = assert(with.other:session()), assert(with.other:session())
      local lock = assert(with.owner:lock("cancel"))
      local waiting = keywatch.spawn(function() return session:lock("cancel") end)
      owners.await_keys(with.owner, "cancel/", 2)
      local behind = keywatch.spawn(function() return third:lock("cancel") end)
      owners.await_keys(with.owner, "cancel/", 3)
      waiting:cancel()
      local ok, err = waiting:join()
      assert.same({ false, "cancelled" }, { ok, err.code })
      owners.await_keys(with.owner, "cancel/", 2)
      assert(lock:unlock())
      local _, got = behind:join(SECONDS)
      assert.is_true(got:is_held())
      assert(got:unlock())
      assert.is_true(assert(session:lock("cancel", { timeout = SECONDS })):is_held())
    end)

    test("that is cancelled in the queue of its own session passes its turn on", function()
      local lock = assert(with.owner:lock("own"))
      local waiting = keywatch.spawn(function() return with.owner:lock("own") end)
      local behind = keywatch.spawn(function() return with.owner:lock("own") end)
      keywatch.sleep(0)
      waiting:cancel()
      assert(lock:unlock())
      assert.is_true(select(2, behind:join(SECONDS)):is_held())
    end)

    test("is lost with its session: owners and waiting calls learn that at once", function()
      local session, other = assert(with.owner:session()), assert(with.other:session())
      local held = assert(session:lock("a"))
      local mine = assert(other:lock("b"))
      local waiting = keywatch.spawn(function() return session:lock("b") end)
      local queued = keywatch.spawn(function() return session:lock("a") end)
      owners.await_keys(with.owner, "b/", 2)
      assert(with.other:lease_by_id(session.lease.id):revoke())
      assert.equal("lost", assert(held:wait_lost(SECONDS)).code)
      assert.equal("lost", assert(session:wait_lost(SECONDS)).code)
      assert.same({ "lost", "lost", false }, { session:error().code, held:error().code, held:is_held() })
      for _, task in ipairs { waiting, queued } do
        assert.equal("lost", answer.code(select(2, task:join(SECONDS))))
      end
      assert.equal("lost", answer.code(held:unlock()))
      assert.same({ "lost", true }, { answer.code(session:lock("c")), mine:is_held() })
      assert.same({ mine.key }, owners.keys(with.owner, "b/"))
    end)

    test("is acquired, also by concurrent calls, after the lease of the idle default session was revoked", function()
      local calls = {
        function() return with.owner:lock("a") end,
        function() return with.owner:try_lock("b") end,
        function() return with.owner:election("e"):campaign("v") end,
        function() return with.owner:lock("a") end,
      }
      for _, n in ipairs { 1, 2, 3, 4 } do
        local lock = assert(with.owner:lock("warm"))
        assert(lock:unlock())
        assert(with.other:lease_by_id(lock.session.lease.id):revoke())
        local tasks = {}
        for i = n == 4 and 1 or n, n do tasks[#tasks + 1] = keywatch.spawn(calls[i]) end
        for _, task in ipairs(tasks) do
          local _, held = assert(task:join(SECONDS))
          assert.is_true(assert(held):is_held());
          (held.unlock or held.resign)(held)
        end
      end
    end)

    test("is lost when its key is deleted", function()
      local lock = assert(with.owner:lock("deleted"))
      local _, late = lock:wait_lost(0)
      assert.equal("timeout", late.code)
      local waiting = keywatch.spawn(function() return keywatch.select { lock } end)
      keywatch.sleep(0.01)
      with.other:put(lock.key, "a new value, and the same key")
      assert(with.other:delete(lock.key))
      local _, found, err = waiting:join(SECONDS)
      assert.equal(lock, found)
      assert.same({ "lost", false }, { err.code, lock:is_held() })
      assert.equal("lost", answer.code(lock:unlock()))
      assert.is_true(assert(with.owner:lock("deleted", { timeout = SECONDS })):is_held())
    end)

    test("whose deletion went unnoticed is found lost by unlock", function()
      local lock = assert(with.owner:lock("unnoticed"))
      assert(with.other:delete(lock.key))
      assert.equal("lost", answer.code(lock:unlock()))
    end)

    test("is lost by a waiting call whose key is deleted: that is not the call's turn", function()
      local session = assert(with.other:session())
      local lock = assert(with.owner:lock("wait"))
      local waiting = keywatch.spawn(function() return session:lock("wait") end)
      owners.await_keys(with.owner, "wait/", 2)
      assert(with.owner:delete("wait/" .. core.hex(session.lease.id)))
      assert(lock:unlock())
      assert.equal("lost", answer.code(select(2, waiting:join(SECONDS))))
    end)

    test("is waited for through compactions", function()
      local session = assert(with.other:session())
      local lock = assert(with.owner:lock("compacted"))
      local waiting = keywatch.spawn(function() return session:lock("compacted") end)
      owners.await_keys(with.owner, "compacted/", 2)
      local revision = assert(with.owner:put("elsewhere", "")).revision
      assert(with.owner:compact(revision))
      assert(lock:unlock())
      assert.is_true(select(2, waiting:join(SECONDS)):is_held())
    end)

    test("is released by a task that was cancelled", function()
      local result, key
      local task = keywatch.spawn(function()
        local lock = assert(with.owner:lock("cancelled"))
        key = lock.key
        pcall(keywatch.sleep, 1000)
        result = { pcall(lock.unlock, lock) }
      end)
      keywatch.sleep(0)
      while not key do keywatch.sleep(0.01) end
      task:cancel()
      task:join()
      assert.same({ true, true }, result)
      assert.is_false(with.owner:exists(key))
    end)

    test("without references is held until its session ends: the collector may run in the critical section", function()
      local session = assert(with.owner:session())
      local key = assert(session:lock("dropped")).key
      for _ = 1, 3 do
        collectgarbage()
        keywatch.sleep(0)
        for _, owner in ipairs { with.owner, with.other } do
          assert.equal("locked", select(2, owner:try_lock("dropped")).code)
        end
      end
      assert.is_true(with.owner:exists(key))
      assert(session:close())
      assert.is_true(assert(with.owner:lock("dropped", { timeout = SECONDS })):is_held())
    end)

    test("that is held keeps its session alive", function()
      local lock = assert(assert(with.owner:session { ttl = 5 }):lock("kept"))
      collectgarbage()
      keywatch.sleep(0)
      assert.same({ nil, nil, true }, { lock:error(), lock.session:error(), lock:is_held() })
    end)
  end)
end)
