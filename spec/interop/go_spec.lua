--- Go, by etcd's own client and its package concurrency: Go and keywatch's client count on the same counters by
-- software transactions, at keywatch's server and at etcd. etcdctl uses that package for locks and elections.

local keywatch = require "keywatch"

local network = require "spec.support.network"
local process = require "spec.support.process"

local N = 60 -- transactions of each counter

network.of_each(function(kind, tag)
  describe(("Go and keywatch at %s %s #slow #peer"):format(kind, tag), function()
    before_each(network.begin)
    after_each(network.finish)

    for _, isolation in ipairs { "serializable_snapshot", "serializable", "repeatable_reads" } do
      it("count exactly on the same counters, with the isolation " .. isolation, function()
        local url = network.start(kind).url
        local client, counting = network.connect(url, { timeout = network.PATIENCE }), {}
        for i, keys in ipairs { { "x", "y" }, { "y", "x" } } do
          counting[i] = process.start { "build/go/peer", url, "stm", isolation, tostring(N), keys[1], keys[2] }
        end
        for _ = 1, N do
          assert(client:stm(function(tx)
            for _, key in ipairs { "x", "y" } do
              local kv = tx:get(key)
              tx:put(key, ("%d"):format((kv and tonumber(kv.value) or 0) + 1))
            end
            return true
          end, { isolation = isolation }))
          keywatch.sleep(0)
        end
        for _, one in ipairs(counting) do assert.equal(0, one:wait(60), one:transcript()) end
        for _, key in ipairs { "x", "y" } do assert.equal(tostring(3 * N), client:get(key).value) end
      end)
    end
  end)
end)
