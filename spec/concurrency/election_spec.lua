--- Elections: one candidate leads at a time.

local core = require "keywatch.core"
local keywatch = require "keywatch"

local answer = require "spec.support.answer"
local owners = require "spec.support.owners"

local test = owners.test

local SECONDS = 30 -- for an event that must arrive

describe("An election", function()
  owners.each(function(with)
    test("is won by the first candidate, whose key has its value", function()
      local session = assert(with.owner:session())
      local election = session:election("first")
      assert.is_nil(election:leader())
      local leadership = assert(election:campaign("me"))
      assert.equal("first/" .. core.hex(session.lease.id), leadership.key)
      local kv = assert(with.other:election("first"):leader())
      assert.same({ leadership.key, "me", leadership.revision, session.lease.id },
        { kv.key, kv.value, kv.create_revision, kv.lease })
      assert.is_true(leadership:is_held())
      assert.is_true(leadership:resign())
      assert.is_true(leadership:resign())
      assert.is_nil(election:leader())
    end)

    test("is won by the next candidate when the leader resigns", function()
      local one = assert(assert(with.owner:session()):election("next"):campaign("one"))
      local two = keywatch.spawn(function()
        return assert(with.other:session()):election("next"):campaign("two")
      end)
      owners.await_keys(with.owner, "next/", 2)
      assert.equal("one", with.owner:election("next"):leader().value)
      assert(one:resign())
      local _, leadership = two:join(SECONDS)
      assert.same({ true, "two" }, { leadership:is_held(), with.owner:election("next"):leader().value })
    end)

    test("has a leader that can announce new values, as long as it leads", function()
      local leadership = assert(with.owner:election("tell"):campaign("one"))
      assert.is_true(leadership:proclaim("two"))
      local kv = with.other:election("tell"):leader()
      assert.same({ "two", leadership.revision }, { kv.value, kv.create_revision })
      assert(with.other:delete(leadership.key))
      local ok, err = leadership:proclaim("three")
      assert.same({ nil, "lost", "lost" }, { ok, err.code, leadership:error().code })
      assert.is_nil(with.other:election("tell"):leader())
      ok, err = leadership:resign()
      assert.same({ nil, "lost" }, { ok, err.code })
    end)

    test("does not delete the key of another leader: resign and proclaim compare the create revision", function()
      local leadership = assert(with.owner:election("guard"):campaign("one"))
      assert(with.other:delete(leadership.key))
      assert(with.other:put(leadership.key, "of another client"))
      local ok, err = leadership:resign()
      assert.same({ nil, "lost", "of another client" }, { ok, err.code, with.other:get(leadership.key).value })
    end)

    test("that a session has already entered keeps its key, with a new value", function()
      local session = assert(with.owner:session())
      local key = "again/" .. core.hex(session.lease.id)
      local revision = assert(with.owner:put(key, "old", { lease = session.lease.id })).revision
      local leadership = assert(session:election("again"):campaign("new"))
      assert.equal(revision, leadership.revision)
      assert.equal("new", with.other:get(key).value)
    end)

    test("reports to a leader, and to a candidate, that its session is lost", function()
      local session, other = assert(with.owner:session()), assert(with.owner:session())
      local leadership = assert(session:election("lost"):campaign("one"))
      local waiting = keywatch.spawn(function() return other:election("lost"):campaign("two") end)
      owners.await_keys(with.owner, "lost/", 2)
      assert(other:close())
      assert.equal("lost", answer.code(select(2, waiting:join(SECONDS))))
      local watching = keywatch.spawn(function() return leadership:wait_lost() end)
      keywatch.sleep(0)
      assert(session:close())
      local _, why = watching:join(SECONDS)
      assert.equal("lost", why.code)
      assert.equal("lost", answer.code(leadership:proclaim("three")))
    end)
  end)
end)
