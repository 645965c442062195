--- Go, by etcd's own client and its package concurrency: it works with keywatch's server; and Go and keywatch's client
-- pass the same locks and elections to each other, and count on the same counters, at keywatch's server and at etcd.

local keywatch = require "keywatch"

local go = require "spec.support.go"
local network = require "spec.support.network"

local PATIENCE = network.PATIENCE
local TTL = 2 -- seconds, the least that etcd grants

--- Waits, in a task, until a condition holds.
local function wait_until(holds)
  local deadline = keywatch.now() + PATIENCE
  while not holds() do
    assert(keywatch.now() < deadline, "what is waited for does not come")
    keywatch.sleep(0.002)
  end
end

--- A lease's id, as Go reads it.
local function lease_text(id)
  return type(id) == "number" and ("%d"):format(id) or id
end

network.of_each(function(kind, tag)
  describe(("Go and keywatch at %s %s #slow #peer"):format(kind, tag), function()
    local s, client, peer

    setup(function() s = network.serve(kind) end)
    teardown(function() s:stop() end)

    before_each(function()
      network.begin()
      client = network.connect(s.url, { timeout = PATIENCE })
      peer = go.start(s.url)
    end)

    after_each(function()
      assert(client:delete("", { prefix = true }))
      network.finish()
    end)

    --- Calls a function in a task.
    local function in_task(name, fn)
      it(name, function() keywatch.run(fn) end)
    end

    local function keys_below(prefix)
      return assert(client:range(prefix, { prefix = true, count_only = true })).count
    end

    --- Waits until so many stand in a queue.
    local function wait_for_queue(prefix, n)
      wait_until(function() return keys_below(prefix) == n end)
    end

    describe("with leases", function()
      in_task("Go keeps a lease, and is told when somebody else revokes it", function()
        local id = peer:begin("keep", TTL, "kept")
        local lease = peer:expect_in_task(id)
        for _ = 1, 5 do assert.equal(tostring(TTL), peer:expect_in_task(id)) end -- for longer than its time
        local kv = assert(client:get("kept"))
        assert.equal(lease, tostring(kv.lease))
        assert(client:lease_by_id(lease):revoke())
        assert.same({ "lost" }, peer:finish_in_task(id))
        assert.is_nil((client:get("kept")))
      end)

      in_task("Go's lease ends when Go stops to keep it", function()
        local id = peer:begin("keep", TTL, "kept")
        peer:expect_in_task(id)
        local w = assert(client:watch("kept"))
        peer:must_in_task("stop", id)
        assert.equal("delete", assert(w:next(PATIENCE)).type)
      end)
    end)

    describe("with locks", function()
      in_task("two sessions of Go pass a lock", function()
        for _, name in ipairs { "a", "b" } do peer:must_in_task("session", name, 60) end
        peer:must_in_task("lock", "a", "mutex", 0)
        local waiting = peer:begin("lock", "b", "mutex", 0)
        wait_for_queue("mutex/", 2)
        assert.is_false(peer:is_finished(waiting))
        peer:must_in_task("unlock", "a", "mutex")
        assert(peer:finish_in_task(waiting))
      end)

      in_task("a wait that Go gives up leaves no key behind", function()
        for _, name in ipairs { "a", "b" } do peer:must_in_task("session", name, 60) end
        peer:must_in_task("lock", "a", "mutex", 0)
        local words, why = peer:finish_in_task(peer:begin("lock", "b", "mutex", 50))
        assert.is_nil(words)
        assert.equal("context deadline exceeded", why)
        wait_for_queue("mutex/", 1)
      end)

      in_task("keywatch waits while Go holds a lock, and gets it", function()
        peer:must_in_task("session", "a", 60)
        local held = peer:must_in_task("lock", "a", "mutex", 0)
        local task = keywatch.spawn(client.lock, client, "mutex", { timeout = PATIENCE })
        wait_for_queue("mutex/", 2)
        local none, err = client:try_lock("mutex", { session = assert(client:session()) })
        assert.is_nil(none)
        assert.equal("locked", err.code)
        assert.is_nil((task:join(0)))
        peer:must_in_task("unlock", "a", "mutex")
        local ok, lock = task:join(PATIENCE)
        assert.is_true(ok)
        assert.is_true(lock:is_held())
        assert.is_true(lock.revision > tonumber(held[2]))
        assert(lock:unlock())
        wait_for_queue("mutex/", 0)
      end)

      in_task("Go waits while keywatch holds a lock, and gets it", function()
        peer:must_in_task("session", "a", 60)
        local lock = assert(client:lock("mutex"))
        local waiting = peer:begin("lock", "a", "mutex", 0)
        wait_for_queue("mutex/", 2)
        assert.is_false(peer:is_finished(waiting))
        assert(lock:unlock())
        assert(peer:finish_in_task(waiting))
        peer:must_in_task("unlock", "a", "mutex")
      end)

      in_task("a lock goes round, to who has asked first", function()
        peer:must_in_task("session", "a", 60)
        peer:must_in_task("session", "b", 60)
        local lock = assert(client:lock("mutex"))
        local first = peer:begin("lock", "a", "mutex", 0)
        wait_for_queue("mutex/", 2)
        local session = assert(client:session())
        local second = keywatch.spawn(session.lock, session, "mutex", { timeout = PATIENCE })
        wait_for_queue("mutex/", 3)
        local third = peer:begin("lock", "b", "mutex", 0)
        wait_for_queue("mutex/", 4)
        assert(lock:unlock())
        assert(peer:finish_in_task(first))
        assert.is_false(peer:is_finished(third))
        peer:must_in_task("unlock", "a", "mutex")
        local ok, got = second:join(PATIENCE)
        assert.is_true(ok)
        assert.is_false(peer:is_finished(third))
        assert(got:unlock())
        assert(peer:finish_in_task(third))
      end)

      in_task("keywatch gets the lock of a Go whose session has ended, and its fence refuses one that was taken away",
        function()
          peer:must_in_task("session", "a", 60)
          peer:must_in_task("lock", "a", "mutex", 0)
          local task = keywatch.spawn(client.lock, client, "mutex", { timeout = PATIENCE })
          wait_for_queue("mutex/", 2)
          peer:must_in_task("close", "a")
          local ok, lock = task:join(PATIENCE)
          assert.is_true(ok)
          assert(lock:fence():put("guarded", "1"))
          peer:must_in_task("revoke", lease_text(lock.session.lease.id))
          local done, err = lock:fence():put("guarded", "2")
          assert.is_nil(done)
          assert.equal("lost", err.code)
          assert.equal("1", assert(client:get("guarded")).value)
        end)

      in_task("a wait that keywatch gives up leaves no key behind", function()
        peer:must_in_task("session", "a", 60)
        peer:must_in_task("lock", "a", "mutex", 0)
        local none, err = client:lock("mutex", { timeout = 0.05 })
        assert.is_nil(none)
        assert.equal("timeout", err.code)
        wait_for_queue("mutex/", 1)
        local task = keywatch.spawn(client.lock, client, "mutex")
        wait_for_queue("mutex/", 2)
        task:cancel()
        wait_for_queue("mutex/", 1)
      end)

      in_task("Go and the service Lock exclude each other", function()
        peer:must_in_task("session", "a", 60)
        peer:must_in_task("lock", "a", "mutex", 0)
        local lease = assert(client:lease(60))
        local task = keywatch.spawn(client.call, client, "/v3lockpb.Lock/Lock", { name = "mutex", lease = lease.id })
        wait_for_queue("mutex/", 2)
        peer:must_in_task("unlock", "a", "mutex")
        local _, got = assert(task:join(PATIENCE))
        local waiting = peer:begin("lock", "a", "mutex", 0)
        wait_for_queue("mutex/", 2)
        assert(client:call("/v3lockpb.Lock/Unlock", { key = got.key }))
        assert(peer:finish_in_task(waiting))
      end)
    end)

    describe("with elections", function()
      in_task("two sessions of Go pass the lead, and Go observes that", function()
        for _, name in ipairs { "a", "b" } do peer:must_in_task("session", name, 60) end
        local observing = peer:begin("observe", "a", "lead")
        peer:must_in_task("campaign", "a", "lead", "first", 0)
        assert.truthy(peer:expect_in_task(observing):find(" first$"))
        local waiting = peer:begin("campaign", "b", "lead", "second", 0)
        wait_for_queue("lead/", 2)
        peer:must_in_task("proclaim", "a", "lead", "again")
        assert.truthy(peer:expect_in_task(observing):find(" again$"))
        peer:must_in_task("resign", "a", "lead")
        assert(peer:finish_in_task(waiting))
        assert.truthy(peer:expect_in_task(observing):find(" second$"))
        assert.equal("second", peer:must_in_task("leader", "a", "lead")[2])
        peer:must_in_task("stop", observing)
        assert(peer:finish_in_task(observing))
      end)
    end)

    describe("with one election", function()
      in_task("Go and keywatch pass the lead, and both observe that", function()
        peer:must_in_task("session", "a", 60)
        local election = client:election("lead")
        local watching = assert(election:observe())
        local observing = peer:begin("observe", "a", "lead")

        --- Both observers tell of a leader, whose key is given.
        local function expect(key, value)
          local kv = assert(watching:next(PATIENCE))
          assert.same({ key, value }, { kv.key, kv.value })
          assert.equal(key .. " " .. value, peer:expect_in_task(observing))
          local leader = assert(election:leader())
          assert.same({ key, value }, { leader.key, leader.value })
          assert.same({ key, value }, peer:must_in_task("leader", "a", "lead"))
        end

        local go_key = peer:must_in_task("campaign", "a", "lead", "go", 0)[1]
        expect(go_key, "go")
        local task = keywatch.spawn(election.campaign, election, "lua", { timeout = PATIENCE })
        wait_for_queue("lead/", 2)
        peer:must_in_task("proclaim", "a", "lead", "still-go")
        expect(go_key, "still-go")
        peer:must_in_task("resign", "a", "lead")
        local ok, leadership = task:join(PATIENCE)
        assert.is_true(ok)
        expect(leadership.key, "lua")
        local waiting = peer:begin("campaign", "a", "lead", "go-again", 0)
        wait_for_queue("lead/", 2)
        assert(leadership:proclaim("still-lua"))
        expect(leadership.key, "still-lua")
        assert.is_false(peer:is_finished(waiting))
        assert(leadership:resign())
        expect(assert(peer:finish_in_task(waiting))[1], "go-again")
        watching:close()
        peer:must_in_task("stop", observing)
      end)

      in_task("keywatch leads after a Go whose session has ended, and Go after a keywatch's", function()
        peer:must_in_task("session", "a", 60)
        peer:must_in_task("session", "b", 60)
        peer:must_in_task("campaign", "a", "lead", "go", 0)
        local session = assert(client:session())
        local election = session:election("lead")
        local task = keywatch.spawn(election.campaign, election, "lua", { timeout = PATIENCE })
        wait_for_queue("lead/", 2)
        local waiting = peer:begin("campaign", "b", "lead", "go-again", 0)
        wait_for_queue("lead/", 3)
        peer:must_in_task("close", "a")
        local ok, leadership = task:join(PATIENCE)
        assert.is_true(ok)
        assert.is_true(leadership:is_held())
        assert.is_false(peer:is_finished(waiting))
        assert(session:close())
        assert(peer:finish_in_task(waiting))
      end)
    end)

    describe("with software transactions", function()
      in_task("Go and keywatch count on the same counters, at every isolation", function()
        local keys, n = { "x", "y" }, 60
        for _, isolation in ipairs { "serializable_snapshot", "serializable", "repeatable_reads" } do
          local a = peer:begin("stm", isolation, n, "x", "y")
          local calls = 0
          for _ = 1, n do
            assert(client:stm(function(tx)
              calls = calls + 1
              for _, key in ipairs(keys) do
                local kv = tx:get(key)
                tx:put(key, ("%d"):format((kv and tonumber(kv.value) or 0) + 1))
              end
              return true
            end, { isolation = isolation }))
          end
          local again = tonumber(assert(peer:finish_in_task(a))[1])
          for _, key in ipairs(keys) do assert.equal(tostring(2 * n), assert(client:get(key)).value) end
          assert.is_true(calls >= n and again >= 0)
          assert(client:delete("", { prefix = true }))
        end
      end)

      in_task("Go counts exactly, at every isolation", function()
        for _, isolation in ipairs { "serializable_snapshot", "serializable", "repeatable_reads" } do
          local a = peer:begin("stm", isolation, 50, "x", "y")
          local b = peer:begin("stm", isolation, 50, "y", "x")
          assert(peer:finish_in_task(a))
          assert(peer:finish_in_task(b))
          for _, key in ipairs { "x", "y" } do assert.equal("100", assert(client:get(key)).value) end
          assert(client:delete("", { prefix = true }))
        end
      end)
    end)
  end)
end)
