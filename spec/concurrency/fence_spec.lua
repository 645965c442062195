--- Fences: writes that are done only while a lock or a leadership is held.

local answer = require "spec.support.answer"
local misuse = require "spec.support.misuse"
local owners = require "spec.support.owners"

local test = owners.test

local SECONDS = 30 -- for an event that must arrive

describe("A fence", function()
  owners.each(function(with)
    test("writes and answers like the store, while the lock is held", function()
      local lock = assert(with.owner:lock("a"))
      local fence, plain = lock:fence(), with.owner
      local put = assert(fence:put("k", "1"))
      assert.same({ revision = put.revision }, put)
      assert.equal(plain:get("k").mod_revision, put.revision)
      put = assert(fence:put("k", "2", { prev_kv = true }))
      assert.equal("1", put.prev_kv.value)
      local lease = assert(fence:lease(30))
      assert(fence:put("leased", "x", { lease = lease.id }))
      assert.equal(lease.id, fence:get("leased").lease)
      assert.is_true(fence:exists("leased"))
      local deleted = assert(fence:delete("k", { prev_kv = true }))
      assert.same({ 1, "2", deleted.revision }, { deleted.deleted, deleted.prev_kvs[1].value, deleted.revision })
      assert.is_nil(fence:get("k"))
      assert.equal(0, assert(fence:delete("nothing")).deleted)
      assert(fence:put("p/1", "") and fence:put("p/2", ""))
      local keys = {}
      for kv in fence:each("p/", { prefix = true }) do keys[#keys + 1] = kv.key end
      assert.same({ "p/1", "p/2" }, keys)
      assert.equal(2, assert(fence:delete("p/", { prefix = true })).deleted)
    end)

    test("nests a transaction, so its failure branch keeps its meaning", function()
      local fence = assert(with.owner:lock("a")):fence()
      local result = assert(fence:txn {
        compare = { { key = "k", version = 1 } },
        success = { { put = "k", value = "wrong" } },
        failure = { { put = "k", value = "right" }, { get = "none" }, { range = "k" } },
      })
      assert.is_false(result.succeeded)
      assert.equal(result.revision, with.other:get("k").mod_revision)
      assert.same({ false, "right" }, { result.responses[2], result.responses[3].kvs[1].value })
      local found = { { key = "k", version = 1 } }
      result = assert(fence:txn { compare = found, success = { { put = "k", value = "two" } } })
      assert.same({ true, "two" }, { result.succeeded, with.other:get("k").value })
      local empty = assert(fence:txn {})
      assert.same({ true, {} }, { empty.succeeded, empty.responses })
      assert.equal(result.revision, empty.revision)
    end)

    test("refuses to write when the key of the lock is gone, and changes nothing", function()
      local revision = with.other:put("mark", "").revision
      for _, is_anew in ipairs { false, true } do -- or another session holds the key's name
        local lock = assert(with.owner:lock(is_anew and "b" or "a"))
        local fence = lock:fence()
        assert(with.other:delete(lock.key))
        if is_anew then assert(with.other:put(lock.key, "anew")) end
        assert.equal("lost", answer.code(fence:put("k", "1")))
        assert.is_false(lock:is_held())
        assert.equal("lost", answer.code(fence:delete("mark")))
        assert.equal("lost", answer.code(fence:txn { success = { { put = "k", value = "1" } } }))
        assert.equal(revision, fence:get("mark").mod_revision)
        assert.is_nil(fence:get("k"))
      end
    end)

    test("refuses a write at once, without a request, when the lock is known to be lost or released", function()
      local lock = assert(with.owner:lock("a"))
      local fence = lock:fence()
      assert(lock:unlock())
      assert.equal("lost", answer.code(fence:put("k", "1")))
      local session = assert(with.owner:session())
      local other = assert(session:lock("b")):fence()
      assert(session:close())
      assert.equal("lost", answer.code(other:put("k", "1")))
      assert.is_nil(with.other:get("k"))
    end)

    test("of a leadership works in the same way", function()
      local leadership = assert(with.owner:election("e"):campaign("me"))
      local fence = leadership:fence()
      assert(fence:put("k", "1"))
      assert(leadership:proclaim("me again"))
      assert(fence:put("k", "2"))
      assert(leadership:resign())
      assert.equal("lost", answer.code(fence:put("k", "3")))
      assert.equal("2", with.other:get("k").value)
    end)

    test("itself has sessions, locks, elections and fences", function()
      local lock = assert(with.owner:lock("outer"))
      local fence = lock:fence()
      local inner = assert(fence:lock("inner"))
      assert.equal(lock.session, inner.session)
      local both = inner:fence()
      assert(both:put("k", "1"))
      local leadership = assert(fence:election("e"):campaign("x"))
      assert.equal("x", fence:election("e"):leader().value)
      assert(fence:session { ttl = 20 }:close())
      assert(lock:unlock())
      assert.equal("lost", answer.code(both:put("k", "2")))
      assert.equal("lost", answer.code(fence:lock("never")))
      assert.same({}, owners.keys(with.other, "never/"))
      assert.is_true(leadership:resign()) -- a leadership can be released
      assert.is_true(inner:unlock())
    end)

    test("passes watches, status and other reads on", function()
      local fence = assert(with.owner:lock("a")):fence()
      local watch = assert(fence:watch("k"))
      assert(with.other:put("k", "1"))
      assert.equal("1", assert(watch:next(SECONDS)).value)
      watch:close()
      assert.equal(fence:status().revision, with.owner:status().revision)
      assert.equal(with.owner:hash_kv().hash, fence:hash_kv().hash)
      assert.same(with.owner:leases(), fence:leases())
      assert.equal(1, fence:range("k", { count_only = true }).count)
    end)

    test("refuses calls that it cannot guard", function()
      local fence = assert(with.owner:lock("a")):fence()
      for _, name in ipairs { "compact", "close" } do
        assert.matches(name .. ": a fence cannot do this", misuse.raises(fence[name], fence, 1))
      end
      assert.matches("put: there is no option 'leese'", misuse.raises(fence.put, fence, "a", "b", { leese = 1 }))
      assert.equal("empty_key", answer.code(fence:put("", "x")))
    end)

    test("counts its operations like the store", function()
      local fence = assert(with.owner:lock("a")):fence()
      local ops = {}
      for i = 1, 127 do ops[i] = { put = "k" .. i, value = "" } end
      assert(fence:txn { success = ops })
      ops[128], ops[129] = { put = "k128", value = "" }, { put = "k129", value = "" }
      assert.equal("too_many_ops", answer.code(fence:txn { success = ops }))
    end)
  end)
end)
