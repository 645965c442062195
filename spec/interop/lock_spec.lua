--- Locks and elections that keywatch's own clients share with etcdctl and with the Lock and Election services. The server
--- is keywatch's; with KW_ETCD=1 it is a real etcd.

local keywatch = require "keywatch"

local etcdctl = require "spec.support.etcdctl"
local owners = require "spec.support.owners"
local process = require "spec.support.process"

local LOCK, UNLOCK = "/v3lockpb.Lock/Lock", "/v3lockpb.Lock/Unlock"
local CAMPAIGN, PROCLAIM = "/v3electionpb.Election/Campaign", "/v3electionpb.Election/Proclaim"
local RESIGN, LEADER = "/v3electionpb.Election/Resign", "/v3electionpb.Election/Leader"
local SECONDS = 30 -- for what is certain to come

describe("keywatch and etcdctl #once", function()
  local ctl = etcdctl.with_server()
  local client

  before_each(function() client = keywatch.connect(ctl.peer.url) end)
  after_each(function() client:close() end)

  --- Waits until there are so many keys below a prefix, while the processes of this test go on.
  local function await_keys(prefix, n)
    assert(process.turn_until(function() return #owners.keys(client, prefix) == n end), "there are not " .. n .. " keys")
  end

  describe("pass a lock on", function()
    it("from etcdctl to keywatch", function()
      local holder = ctl:start { "lock", "l/a" }
      local key = holder:expect("^(l/a/%x+)\n")
      local got, err = client:try_lock("l/a")
      assert.same({ nil, "locked" }, { got, err.code })
      got, err = client:lock("l/a", { timeout = 0.05 })
      assert.same({ nil, "timeout" }, { got, err.code })
      assert.same({ key }, owners.keys(client, "l/a/"))
      local waiting = keywatch.spawn(function() return client:lock("l/a") end)
      await_keys("l/a/", 2)
      holder:signal("sigint")
      holder:wait()
      local _, lock = waiting:join(SECONDS)
      assert.is_true(lock:is_held())
      assert.same({ lock.key }, owners.keys(client, "l/a/"))
      assert(lock:unlock())
    end)

    it("from keywatch to etcdctl and back", function()
      local lock = assert(client:lock("l/b"))
      local waiting = ctl:start { "lock", "l/b" }
      await_keys("l/b/", 2)
      assert.equal("", waiting:stdout())
      local again = keywatch.spawn(function() return assert(client:session()):lock("l/b") end)
      await_keys("l/b/", 3)
      assert(lock:unlock())
      local key = waiting:expect("^(l/b/%x+)\n")
      assert.not_equal(lock.key, key)
      waiting:signal("sigint")
      waiting:wait()
      local _, second = again:join(SECONDS)
      assert.is_true(second:is_held())
      assert(second:unlock())
      assert.same({}, owners.keys(client, "l/b/"))
    end)

    it("that etcdctl deletes is lost", function()
      local lock = assert(client:lock("l/c"))
      local watching = keywatch.spawn(function() return lock:lost() end)
      assert.equal("1\n", ctl:must { "del", lock.key })
      local _, err = watching:join(SECONDS)
      assert.equal("lost", err.code)
    end)
  end)

  describe("pass a leadership on", function()
    it("from etcdctl to keywatch", function()
      local leader = ctl:start { "elect", "e/a", "ann" }
      local key = leader:expect("^(e/a/%x+)\nann\n")
      local election = client:election("e/a")
      local kv = assert(election:leader())
      assert.same({ key, "ann" }, { kv.key, kv.value })
      local observer = assert(election:observe())
      assert.equal("ann", assert(observer:next(SECONDS)).value)
      local waiting = keywatch.spawn(function() return election:campaign("bob") end)
      await_keys("e/a/", 2)
      leader:signal("sigint")
      leader:wait()
      local _, leadership = waiting:join(SECONDS)
      assert.is_true(leadership:is_held())
      assert.equal("bob", assert(observer:next(SECONDS)).value)
      observer:close()
      assert(leadership:resign())
    end)

    it("from keywatch to etcdctl, which hears every value", function()
      local leadership = assert(client:election("e/b"):campaign("ann"))
      local listener = ctl:start { "elect", "-l", "e/b" }
      listener:expect("^e/b/%x+\nann\n")
      assert(leadership:proclaim("ann again"))
      listener:expect("ann again\n")
      local candidate = ctl:start { "elect", "e/b", "bob" }
      await_keys("e/b/", 2)
      assert(leadership:resign())
      candidate:expect("^e/b/%x+\nbob\n")
      listener:expect("bob\n")
      assert.equal("bob", assert(client:election("e/b"):leader()).value)
    end)
  end)

  describe("and the services", function()
    it("exclude each other: the service waits for a lock of keywatch, and keywatch for one of the service", function()
      local lock = assert(client:lock("s/a"))
      local lease = assert(client:lease(60))
      local waiting = keywatch.spawn(function()
        return client:call(LOCK, { name = "s/a", lease = lease.id }, { timeout = SECONDS })
      end)
      await_keys("s/a/", 2)
      local behind = keywatch.spawn(function() return assert(client:session()):lock("s/a") end)
      await_keys("s/a/", 3)
      assert(lock:unlock())
      local _, answer = waiting:join(SECONDS)
      assert.same({ answer.key }, { owners.keys(client, "s/a/")[1] })
      assert(client:call(UNLOCK, { key = answer.key }))
      local _, second = behind:join(SECONDS)
      assert.is_true(second:is_held())
      assert(second:unlock())
    end)

    it("elect one leader", function()
      local session = assert(client:session())
      local leadership = assert(session:election("s/b"):campaign("one"))
      local answer = assert(client:call(LEADER, { name = "s/b" }))
      assert.same({ leadership.key, "one" }, { answer.kv.key, answer.kv.value })
      local lease = assert(client:lease(60))
      local waiting = keywatch.spawn(function()
        return client:call(CAMPAIGN, { name = "s/b", lease = lease.id, value = "two" }, { timeout = SECONDS })
      end)
      await_keys("s/b/", 2)
      local observer = assert(client:election("s/b"):observe())
      assert.equal("one", assert(observer:next(SECONDS)).value)
      assert(leadership:resign())
      local _, won = waiting:join(SECONDS)
      assert.equal("two", assert(observer:next(SECONDS)).value)
      assert(client:call(PROCLAIM, { leader = won.leader, value = "two again" }))
      assert.equal("two again", assert(observer:next(SECONDS)).value)
      local again = keywatch.spawn(function() return session:election("s/b"):campaign("three") end)
      await_keys("s/b/", 2)
      assert(client:call(RESIGN, { leader = won.leader }))
      local _, last = again:join(SECONDS)
      assert.is_true(last:is_held())
      assert.equal("three", assert(observer:next(SECONDS)).value)
      observer:close()
    end)
  end)
end)
