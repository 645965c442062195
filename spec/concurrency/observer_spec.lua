--- Observers: every leader and every value, in order, once.

local keywatch = require "keywatch"

local new_random = require("spec.support.random").new
local owners = require "spec.support.owners"

local test = owners.test

local seed = tonumber(os.getenv("KW_SEED")) or os.time()
local is_fast = require("spec.support.dose").is_small

local SECONDS = 30 -- for what is certain to come

--- Makes random candidates come, change and go, several of them in one transaction, but at most one that is new: of two
-- keys that were created at one revision neither is older. Returns the list of all leaders: a name, and a value.
local function play(owner, random, n)
  local leaders, candidates, told = {}, {}, nil

  local function look()
    local oldest
    for _, one in pairs(candidates) do
      if not oldest or one.created < oldest.created then oldest = one end
    end
    local now = oldest and oldest.key .. "=" .. oldest.value .. "@" .. oldest.revision
    if now and now ~= told then
      leaders[#leaders + 1] = { oldest.key, oldest.value }
      told = now
    end
  end

  for i = 1, n do
    local ops, changed, has_new = {}, {}, false
    for _ = 1, random:between(1, 3) do
      local key = "e/" .. random:between(1, 6)
      if not changed[key] and (candidates[key] or not has_new) then
        has_new = has_new or not candidates[key]
        if candidates[key] and random:one_in(2) then
          ops[#ops + 1] = { delete = key }
          changed[key] = "delete"
        else
          ops[#ops + 1] = { put = key, value = tostring(i) }
          changed[key] = "put"
        end
      end
    end
    local revision = assert(owner:txn { success = ops }).revision
    for key, what in pairs(changed) do
      local before = candidates[key]
      if what == "delete" then
        candidates[key] = nil
      else
        local created = before and before.created or revision
        candidates[key] = { key = key, value = tostring(i), revision = revision, created = created }
      end
    end
    look()
  end
  return leaders
end

describe("An observer", function()
  owners.each(function(with)
    test("begins with the leader that there is, and goes on with every value and every leader", function()
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
      local none, err = observer:next(0.01)
      assert.same({ nil, "timeout" }, { none, err.code })
      assert(election:campaign("three"))
      assert.equal("three", assert(observer:next(SECONDS)).value)
      observer:close()
      assert.is_nil(observer:next())
    end)

    test("sees leaders who came and went before it was read, in order", function()
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

    test("sees what a model of the candidates says", function()
      local random = new_random(seed)
      local observer = assert(with.other:election("e"):observe())
      local reading = keywatch.spawn(function()
        local seen = {}
        for kv in observer:leaders() do
          if kv.value == "end" then return seen end
          seen[#seen + 1] = { kv.key, kv.value }
        end
      end)
      local leaders = play(with.owner, random, is_fast and 100 or 300)
      assert(with.owner:delete("e/", { prefix = true }))
      assert(with.owner:put("e/end", "end"))
      local _, seen = reading:join(SECONDS)
      observer:close()
      assert.same(leaders, seen)
      assert(#leaders > 10, "there were few leaders: " .. #leaders)
    end)
  end)

  it("reads the candidates anew after its history was compacted", function()
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
