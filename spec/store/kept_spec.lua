--- Kept states: what services keep with a store, beside its keys.

local keywatch = require "keywatch"
local probe = require("keywatch.core").probe

local answer = require "spec.support.answer"
local misuse = require "spec.support.misuse"
local shell = require "spec.support.shell"
local state = require "spec.support.state"

local code = answer.code

local MIB = 1024 * 1024

local function fill(store)
  assert.is_true(store:keep { { "b", "2", "two" }, { "b", "1", "one" }, { "a", "9", "nine" }, { "b", "", "none" },
    { "ba", "1", "other" }, { "b", "\0", "zero" } })
end

local FILLED = { { "", "none" }, { "\0", "zero" }, { "1", "one" }, { "2", "two" } }

describe("kept states", function()
  local store

  before_each(function() store = keywatch.open { now = 0 } end)
  after_each(function() store:close() end)

  it("are in tables, in the order of their keys", function()
    assert.same({}, store:kept("b"))
    fill(store)
    assert.same(FILLED, store:kept("b"))
    assert.same({ { "9", "nine" } }, store:kept("a"))
    assert.same({ { "1", "other" } }, store:kept("ba"))
    assert.same({}, store:kept("c"))
    assert.same({}, store:kept(""))
  end)

  it("are found by their keys", function()
    fill(store)
    assert.equal("two", store:kept("b", "2"))
    assert.equal("none", store:kept("b", ""))
    assert.is_nil(store:kept("b", "3"))
    assert.is_nil(store:kept("a", "2"))
  end)

  it("may be any bytes, and none", function()
    assert.is_true(store:keep { { "a", "empty", "" }, { "a", "zero", "\0\255" } })
    assert.equal("", store:kept("a", "empty"))
    assert.equal("\0\255", store:kept("a", "zero"))
  end)

  it("are put again, and erased", function()
    fill(store)
    assert.is_true(store:keep { { "b", "2", "changed" }, { "b", "1" }, { "b", "3" }, {"a", "9"} })
    assert.same({ { "", "none" }, { "\0", "zero" }, { "2", "changed" } }, store:kept("b"))
    assert.same({}, store:kept("a"))
  end)

  it("change in the order of the list", function()
    assert.is_true(store:keep { { "a", "1", "x" }, { "a", "1" }, { "a", "2" }, { "a", "2", "y" }, { "a", "2", "z" } })
    assert.same({ { "2", "z" } }, store:kept("a"))
    assert.is_true(store:keep {})
  end)

  it("are no keys: no revision rises, and nobody sees them", function()
    local before = state.trace(store)
    fill(store)
    assert.equal(before, state.trace(store))
    assert.same({}, store:range("", { prefix = true }).kvs)
  end)

  it("have short names", function()
    assert.is_true(store:keep { { "a", ("x"):rep(509), "" } })
    assert.equal("request_too_large", code(store:keep { { "b", "1", "x" }, { "a", ("x"):rep(510), "" } }))
    assert.same({}, store:kept("b"))
  end)

  it("take no more than 16 MiB: then all stay as they are", function()
    local long = ("x"):rep(MIB)
    for i = 1, 15 do assert.is_true(store:keep { { "a", tostring(i), long } }) end
    assert.equal("no_space", code(store:keep { { "b", "1", "x" }, { "a", "16", long } }))
    assert.same({}, store:kept("b"))
    assert.is_true(store:keep { { "a", "15", long } }) -- in place of the other
    assert.is_true(store:keep { { "a", "15" }, { "a", "16", long } })
    assert.same({}, store:alarms())
  end)

  it("can change while alarms are armed, as etcd's users can", function()
    store:arm("no_space")
    store:arm("corrupt")
    fill(store)
    assert.same(FILLED, store:kept("b"))
  end)

  it("are not for followers", function()
    local follower = keywatch.open { now = 0, follower = true }
    assert.equal("read_only", code(follower:keep { { "a", "1", "x" } }))
    follower:close()
  end)

  it("are refused if they cannot be meant", function()
    for _, change in ipairs { {}, { 1, "k", "v" }, { "a\0", "k", "v" }, { "a", 1, "v" }, { "a", "k", 1 }, { "a" },
      { "a", "k", false } } do
      misuse.raises(function() store:keep { { "b", "1", "x" }, change } end)
    end
    for _, value in ipairs { 1, "x", true } do misuse.raises(store.keep, store, value) end
    for _, name in ipairs { 1, {}, "a\0" } do misuse.raises(store.kept, store, name) end
    misuse.raises(store.kept, store, "a", {})
    assert.same({}, store:kept("b"))
  end)
end)

describe("kept states of a durable store", function()
  local path, store

  local function open()
    if store then store:close() end
    store = assert(keywatch.open { now = 0, path = path .. "/data" })
  end

  before_each(function()
    path = shell.must("mktemp -d")
    open()
  end)

  after_each(function()
    store:close()
    store = nil
    shell.must("rm -r " .. path)
  end)

  it("are there when it is opened again", function()
    fill(store)
    open()
    assert.same(FILLED, store:kept("b"))
    assert.same({ { "9", "nine" } }, store:kept("a"))
    assert.same({ { "1", "other" } }, store:kept("ba"))
    assert.equal(1, store:status().revision)
  end)

  it("stay erased and changed", function()
    fill(store)
    assert.is_true(store:keep { { "b", "1" }, { "b", "2", "changed" }, { "b", "3", "x" }, { "b", "3" }, { "c", "1" } })
    open()
    assert.same({ { "", "none" }, { "\0", "zero" }, { "2", "changed" } }, store:kept("b"))
    assert.is_true(store:keep { { "b", "" }, { "b", "\0" }, { "b", "2" }, { "a", "9" }, { "ba", "1" } })
    open()
    for _, name in ipairs { "a", "b", "ba" } do assert.same({}, store:kept(name)) end
  end)

  it("live beside its keys and leases", function()
    store:put("k", "1")
    fill(store)
    store:lease(10, { id = 7 })
    store:put("k", "2", { lease = 7 })
    assert.is_true(store:keep { { "a", "9", "changed" } })
    local before = state.of(store)
    open()
    state.expect(store, before)
    assert.equal("changed", store:kept("a", "9"))
  end)

  it("may be many, and long", function()
    local changes = {}
    for i = 1, 300 do changes[i] = { "t", ("%03d"):format(i), ("x"):rep(i * 10) } end
    changes[301] = { "t", "long", ("x"):rep(MIB) }
    assert.is_true(store:keep(changes))
    open()
    local found = store:kept("t")
    assert.equal(301, #found)
    for i, pair in ipairs(found) do assert.same({ changes[i][2], changes[i][3] }, pair) end
  end)

  it("change all or not at all where memory runs out", function()
    if not probe then return end
    local n, is_done = 0, false
    while not is_done do
      n = n + 1
      store:keep { { "a", "1", "old" }, { "a", "2", "old" }, { "a", "3" } }
      probe.fail_core(n)
      local ok, err = store:keep { { "a", "1", "new" }, { "a", "2" }, { "a", "3", "new" } }
      probe.fail_none()
      is_done = ok
      if not ok then assert.equal("out_of_memory", err.code) end
      local expected = ok and { { "1", "new" }, { "3", "new" } } or { { "1", "old" }, { "2", "old" } }
      assert.same(expected, store:kept("a"))
      open()
      assert.same(expected, store:kept("a"))
    end
    assert.is_true(n > 3)
  end)
end)
