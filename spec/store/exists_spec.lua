--- Whether a key exists: true, false, or nil and an error.

local keywatch = require "keywatch"

local code = require("spec.support.answer").code

describe("exists", function()
  local store

  before_each(function() store = keywatch.open { now = 0 } end)

  it("is true for an existing key, whatever its value, and false for others", function()
    store:put("a", "1")
    store:put("empty", "")
    assert.is_true(store:exists("a"))
    assert.is_true(store:exists("empty"))
    assert.is_false(store:exists("b"))
    assert.is_false(store:exists("a\0"))
    assert.equal(1, select("#", store:exists("b")))
  end)

  it("follows deletes and puts of a key, also at older revisions", function()
    store:put("a", "1") -- 2
    store:delete("a") -- 3
    assert.is_false(store:exists("a"))
    store:put("a", "2")
    assert.is_true(store:exists("a"))
    assert.is_true(store:exists("a", { revision = 2 }))
    assert.is_false(store:exists("a", { revision = 3 }))
  end)

  it("has the common options", function()
    store:put("a", "1")
    assert.is_true(store:exists("a", { timeout = 60, serializable = true }))
    assert.is_true(store:exists("a", { deadline = keywatch.now() + 60 }))
  end)

  it("fails as get does, and does not return false then", function()
    store:put("a", "1")
    store:put("a", "2")
    store:compact(3)
    local found, err = store:exists("a", { revision = 2 })
    assert.is_nil(found)
    assert.equal("compacted", err.code)
    assert.equal("future_revision", code(store:exists("a", { revision = 1000 })))
    assert.equal("empty_key", code(store:exists("")))
  end)

  it("refuses unknown options", function()
    for _, name in ipairs { "keys_only", "prefix", "limit", "colour" } do
      local ok, err = pcall(store.exists, store, "a", { [name] = true })
      assert.is_false(ok)
      assert.matches(("exists: there is no option '%s'"):format(name), err, 1, true)
    end
  end)
end)
