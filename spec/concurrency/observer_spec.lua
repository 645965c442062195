--- Observers: every leader and every value, in order, once.

local keywatch = require "keywatch"

local answer = require "spec.support.answer"
local owners = require "spec.support.owners"

local test = owners.test

local SECONDS = 30 -- for an event that must arrive

describe("An observer", function()
  owners.each(function(with)
    test("begins with the present leader, and continues with every value and every leader", function()
      local election = with.owner:election("e")
      local one = assert(assert(with.owner:session()):election("e"):campaign("one"))
      local observer = assert(with.other:election("e"):observe())
      local first = assert(observer:next(SECONDS))
      assert.same({ one.key, "one", one.revision }, { first.key, first.value, first.create_revision })
      local second = assert(with.owner:session())
      local two = keywatch.spawn(function() return second:election("e"):campaign("two") end)
      owners.await_keys(with.owner, "e/", 2)
      assert(one:proclaim("one more"))
      assert.equal("one more", assert(observer:next(SECONDS)).value)
      assert(one:resign())
      assert.equal("two", assert(observer:next(SECONDS)).value)
      local _, leadership = two:join(SECONDS)
      assert(leadership:resign())
      assert.equal("timeout", answer.code(observer:next(0.01)))
      assert(election:campaign("three"))
      assert.equal("three", assert(observer:next(SECONDS)).value)
      observer:close()
      assert.is_nil(observer:next())
    end)

    test("returns former leaders that it has not read, in order", function()
      local observer = assert(with.owner:election("e"):observe())
      local election = with.other:election("e")
      local expected = {}
      for i = 1, 20 do
        local leadership = assert(election:campaign("leader " .. i))
        expected[#expected + 1] = "leader " .. i
        if i % 3 == 0 then
          assert(leadership:proclaim("value " .. i))
          expected[#expected + 1] = "value " .. i
        end
        assert(leadership:resign())
      end
      local seen = {}
      for kv in observer:leaders() do
        seen[#seen + 1] = kv.value
        if #seen == #expected then observer:close() end
      end
      assert.same(expected, seen)
    end)

    test("can be selected, and is woken by close", function()
      local observer, channel = assert(with.owner:election("e"):observe()), keywatch.channel()
      local waiting = keywatch.spawn(function() return keywatch.select { observer, channel } end)
      keywatch.sleep(0.01)
      assert(with.other:election("e"):campaign("one"))
      local _, found, kv = waiting:join(SECONDS)
      assert.equal(observer, found)
      assert.equal("one", kv.value)
      local closed = keywatch.spawn(function() return observer:next() end)
      keywatch.sleep(0)
      observer:close()
      assert.same({ true, nil }, { closed:join(SECONDS) })
    end)
  end)

  it("reads the candidates again after its history was compacted", function()
    local store = keywatch.open()
    local observer = assert(store:election("e"):observe())
    keywatch.run(function()
      assert.equal(nil, (observer:next(0)))
      local revision
      for i = 1, 3000 do revision = store:put("e/a", tostring(i) .. ("x"):rep(4000)).revision end
      store:compact(revision)
      store:put("e/b", "later")
      store:delete("e/a")
      local last
      repeat last = assert(observer:next(SECONDS)) until last.key == "e/b"
      assert.equal("later", last.value)
    end)
    store:close()
  end)
end)
