--- What judge.lua objects to, in watches that are not what they should be.

local judge = require "spec.cache.judge"
local truths = require "spec.cache.truth"

local function put(key, revision, value)
  return { type = "put", key = key, value = value or "v", create_revision = revision, mod_revision = revision,
    version = 1, lease = 0 }
end

local function delete(key, revision) return { type = "delete", key = key, mod_revision = revision } end

local function batch(revision, ...) return { revision = revision, events = { ... } } end

--- A watch that gives what it is given, and then an error.
local function fake_watch(list, code, revision)
  return {
    revision = revision or 1,
    batch = function()
      if #list > 0 then return table.remove(list, 1) end
      return nil, { code = code or "timeout" }
    end,
  }
end

--- The truth of a server that has come to revision 5.
local function history()
  local told = {
    batch(2, put("a", 2)),
    batch(3, put("b", 3), put("c", 3)),
    batch(4, put("other", 4)),
    batch(5, delete("b", 5)),
  }
  local client = {
    watch = function() return fake_watch(told) end,
    range = function() return { revision = 5 } end,
  }
  local truth = truths.new(client)
  truth:learn()
  return truth
end

local function is_inside(key) return key ~= "other" end

--- Has a watch with these batches judged to its end. Returns the text of the objection, or nil.
local function objection(list, options)
  options = options or {}
  local truth = options.truth or history()
  local cache = {
    watch = function() return fake_watch(list, options.code, options.revision) end,
    replica = { status = function() return { compact_revision = options.compact_revision or 1 } end },
  }
  local one = judge.open(cache, truth, "", { initial = options.initial }, is_inside)
  local ok, err = pcall(one.finish, one, options.now or truth, 5)
  return not ok and err or nil
end

local function initial(event)
  event.initial = true
  return batch(3, event)
end

local function synced(revision) return batch(revision, { type = "synced", revision = revision }) end

local function whole()
  return { batch(2, put("a", 2)), batch(3, put("b", 3), put("c", 3)), batch(5, delete("b", 5)) }
end

describe("the judge of a cache's watch", function()
  it("has nothing against one that has seen everything", function()
    assert.is_nil(objection(whole()))
    assert.is_nil(objection({ batch(5, delete("b", 5)) }, { revision = 3 }))
    assert.is_nil(objection({ initial(put("a", 2)), initial(put("b", 3)), initial(put("c", 3)), synced(3),
      batch(5, delete("b", 5)) }, { initial = true, revision = 0 }))
  end)

  it("objects to what is missing", function()
    assert.matches("revision 3 is missing", objection { batch(2, put("a", 2)), batch(5, delete("b", 5)) })
    assert.matches("revision 5 is missing", objection { batch(2, put("a", 2)), batch(3, put("b", 3), put("c", 3)) })
    assert.matches("revision 3%[2%] is nil", objection { batch(2, put("a", 2)), batch(3, put("b", 3)) })
    assert.matches("the content", objection({ initial(put("a", 2)), initial(put("b", 3)), synced(3) },
      { initial = true, revision = 0 }))
    assert.matches("has not all that exists", objection({ initial(put("a", 2)) }, { initial = true, revision = 0 }))
    assert.matches("revision 5 is missing", objection({ batch(5, { type = "progress", revision = 5 }) },
      { revision = 3 }))
  end)

  it("objects to what comes twice, in parts, in another order, or is something else", function()
    assert.matches("revision 2 comes once more", objection { batch(2, put("a", 2)), batch(2, put("a", 2)) })
    assert.matches("revision 3%[2%]", objection { batch(2, put("a", 2)), batch(3, put("b", 3)), batch(3, put("c", 3)) })
    assert.matches("revision 3%[1%].key", objection { batch(2, put("a", 2)), batch(3, put("c", 3), put("b", 3)) })
    assert.matches("revision 2%[1%].value", objection { batch(2, put("a", 2, "w")) })
    assert.matches("unexpected", objection { batch(2, put("a", 2)), batch(3, put("b", 3), put("c", 3)),
      batch(4, put("other", 4)) })
  end)

  it("objects to a failure without a reason, and to none where there is one", function()
    assert.matches("nothing is gone", objection({}, { code = "compacted" }))
    assert.is_nil(objection({}, { code = "compacted", compact_revision = 3 }))
    assert.matches("of the same server", objection({}, { code = "regressed" }))
    assert.is_nil(objection({}, { code = "cluster_changed", now = history() }))
    assert.matches("goes on, and the server is another one", objection(whole(), { now = history() }))
    assert.matches("fails with", objection({}, { code = "closed" }))
  end)

  it("lets a difference stand for a gap, and nothing that was not there", function()
    local function gap()
      local truth = history()
      truth:compacted(5, 1)
      truth:end_gaps(5)
      return truth
    end
    assert.is_nil(objection({ batch(2, put("a", 2)), batch(3, put("c", 3)) }, { truth = gap() }))
    assert.matches("the content", objection({ batch(2, put("a", 2)) }, { truth = gap() }))
    assert.matches("c is not gone", objection({ batch(2, put("a", 2)), batch(3, put("c", 3)),
      batch(5, delete("c", 5)) }, { truth = gap() }))
    assert.matches("there was no put of c", objection({ batch(2, put("a", 2)), batch(4, put("c", 4)) },
      { truth = gap() }))
  end)
end)
