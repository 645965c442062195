--- Locks, elections, leases, fences, software transactions and namespaces stand on each other in any order.

local keywatch = require "keywatch"

local directory = require "spec.support.directory"

-- Each returns an owner and a function that closes it.
local OWNERS = {
  ["a store"] = function()
    local store = keywatch.open()
    return store, function() store:close() end
  end,
  ["a durable store"] = function()
    local store = assert(keywatch.open { path = directory.new() })
    return store, function()
      store:close()
      directory.remove_all()
    end
  end,
  ["a client"] = function()
    local store = keywatch.open()
    local server = assert(keywatch.serve { store = store, listen = "http://127.0.0.1:0" })
    local client = keywatch.connect(server:addresses()[1])
    return client, function()
      client:close()
      server:close()
      store:close()
    end
  end,
}

for name, open in pairs(OWNERS) do
  describe("a namespace of " .. name, function()
    local owner, close, space

    before_each(function()
      owner, close = open()
      space = owner:namespace("/app/")
    end)

    after_each(function()
      pcall(keywatch.run, function() end)
      close()
    end)

    local function in_task(text, fn)
      it(text, function() keywatch.run(fn) end)
    end

    in_task("has locks, whose keys are in it", function()
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
    end)

    in_task("has elections, whose keys are in it", function()
      local leadership = assert(space:election("boss"):campaign("ann"))
      assert.equal(leadership.key, space:election("boss"):leader().key)
      assert.equal("ann", owner:election("/app/boss"):leader().value)
      assert.is_nil((owner:election("boss"):leader()))
      assert(leadership:resign())
    end)

    in_task("has leases that are kept, and whose loss is told", function()
      local lease = assert(space:lease(10)):keep()
      space:put("a", "1", { lease = lease })
      owner:put("b", "1", { lease = lease })
      assert.same({ "a" }, lease:keys())
      assert.is_nil(lease:error())
      assert(owner:lease_by_id(lease.id):revoke())
      assert.equal("lost", lease:lost(30).code)
    end)

    in_task("is fenced by its locks, and so is what stands on the fence", function()
      local lock = assert(space:lock("job"))
      local fence = lock:fence()
      local inner = fence:namespace("x/")
      assert(fence:put("a", "1"))
      assert(inner:put("b", "2"))
      assert.equal("1", owner:get("/app/a").value)
      assert.equal("2", owner:get("/app/x/b").value)
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
        assert.is_nil(result[1])
        assert.equal("lost", result[2].code)
      end
      assert.equal("1", owner:get("/app/a").value)
      assert.equal("3", inner:get("c").value)
    end)

    in_task("shows its own keys of a lease through a fence, too", function()
      local lock = assert(space:lock("job"))
      local lease = assert(lock:fence():lease(10))
      space:put("a", "1", { lease = lease })
      owner:put("b", "1", { lease = lease })
      assert.same({ "a" }, lease:keys())
      assert(lease:revoke())
    end)
  end)
end
