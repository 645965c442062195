--- Kept states: the data of services in a store, beside its keys.

local keywatch = require "keywatch"
local probe = require("keywatch.core").probe

local answer = require "spec.support.answer"
local files = require "spec.support.files"
local misuse = require "spec.support.misuse"
local rows_of = require "spec.support.rows"
local shell = require "spec.support.shell"
local state = require "spec.support.state"

local code = answer.code

local MIB = 1024 * 1024

local function fill(store)
  assert.is_true(store:change_rows {
    { "b", "2", "two" }, { "b", "1", "one" }, { "a", "9", "nine" }, { "b", "", "none" },
    { "ba", "1", "other" }, { "b", "\0", "zero" } })
end

local FILLED = { { "", "none" }, { "\0", "zero" }, { "1", "one" }, { "2", "two" } }

describe("rows", function()
  local store

  before_each(function() store = keywatch.open { now = 0 } end)
  after_each(function() store:close() end)

  it("are in tables, in the order of their keys", function()
    assert.same({}, rows_of(store, "b"))
    fill(store)
    assert.same(FILLED, rows_of(store, "b"))
    assert.same({ { "9", "nine" } }, rows_of(store, "a"))
    assert.same({ { "1", "other" } }, rows_of(store, "ba"))
    assert.same({}, rows_of(store, "c"))
    assert.same({}, rows_of(store, ""))
  end)

  it("are found by their keys", function()
    fill(store)
    assert.equal("two", store:rows("b", "2"))
    assert.equal("none", store:rows("b", ""))
    assert.is_nil(store:rows("b", "3"))
    assert.is_nil(store:rows("a", "2"))
  end)

  it("may be any bytes, and empty", function()
    assert.is_true(store:change_rows { { "a", "empty", "" }, { "a", "zero", "\0\255" } })
    assert.equal("", store:rows("a", "empty"))
    assert.equal("\0\255", store:rows("a", "zero"))
  end)

  it("are put again, and erased", function()
    fill(store)
    assert.is_true(store:change_rows { { "b", "2", "changed" }, { "b", "1" }, { "b", "3" }, {"a", "9"} })
    assert.same({ { "", "none" }, { "\0", "zero" }, { "2", "changed" } }, rows_of(store, "b"))
    assert.same({}, rows_of(store, "a"))
  end)

  it("change in the order of the list", function()
    assert.is_true(store:change_rows {
      { "a", "1", "x" }, { "a", "1" }, { "a", "2" }, { "a", "2", "y" }, { "a", "2", "z" }
    })
    assert.same({ { "2", "z" } }, rows_of(store, "a"))
    assert.is_true(store:change_rows {})
  end)

  it("are not keys: they make no revisions, and are invisible", function()
    local before = state.trace(store)
    fill(store)
    assert.equal(before, state.trace(store))
    assert.same({}, store:range("", { prefix = true }).kvs)
  end)

  it("have short names", function()
    assert.is_true(store:change_rows { { "a", ("x"):rep(509), "" } })
    assert.equal("request_too_large", code(store:change_rows { { "b", "1", "x" }, { "a", ("x"):rep(510), "" } }))
    assert.same({}, rows_of(store, "b"))
  end)

  it("have 16 MiB at most: otherwise nothing changes", function()
    local long = ("x"):rep(MIB)
    for i = 1, 15 do assert.is_true(store:change_rows { { "a", tostring(i), long } }) end
    assert.equal("no_space", code(store:change_rows { { "b", "1", "x" }, { "a", "16", long } }))
    assert.same({}, rows_of(store, "b"))
    assert.is_true(store:change_rows { { "a", "15", long } }) -- in place of the other
    assert.is_true(store:change_rows { { "a", "15" }, { "a", "16", long } })
    assert.same({}, store:alarms())
  end)

  it("can change while alarms are armed, as etcd's users can", function()
    store:arm("no_space")
    store:arm("corrupt")
    fill(store)
    assert.same(FILLED, rows_of(store, "b"))
  end)

  it("cannot be in replicas", function()
    local replica = keywatch.open { now = 0, replica = true }
    assert.equal("read_only", code(replica:change_rows { { "a", "1", "x" } }))
    replica:close()
  end)

  it("are refused if they are malformed", function()
    for _, change in ipairs { {}, { 1, "k", "v" }, { "a\0", "k", "v" }, { "a", 1, "v" }, { "a", "k", 1 }, { "a" },
      { "a", "k", false } } do
      misuse.raises(function() store:change_rows { { "b", "1", "x" }, change } end)
    end
    for _, value in ipairs { 1, "x", true } do misuse.raises(store.change_rows, store, value) end
    for _, name in ipairs { 1, {}, "a\0" } do misuse.raises(store.rows, store, name) end
    misuse.raises(store.rows, store, "a", {})
    assert.same({}, rows_of(store, "b"))
  end)
end)

describe("rows of a durable store", function()
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

  it("exist when the store is opened again", function()
    fill(store)
    open()
    assert.same(FILLED, rows_of(store, "b"))
    assert.same({ { "9", "nine" } }, rows_of(store, "a"))
    assert.same({ { "1", "other" } }, rows_of(store, "ba"))
    assert.equal(1, store:status().revision)
  end)

  it("stay erased and changed", function()
    fill(store)
    assert.is_true(store:change_rows {
      { "b", "1" }, { "b", "2", "changed" }, { "b", "3", "x" }, { "b", "3" }, { "c", "1" }
    })
    open()
    assert.same({ { "", "none" }, { "\0", "zero" }, { "2", "changed" } }, rows_of(store, "b"))
    assert.is_true(store:change_rows { { "b", "" }, { "b", "\0" }, { "b", "2" }, { "a", "9" }, { "ba", "1" } })
    open()
    for _, name in ipairs { "a", "b", "ba" } do assert.same({}, store:rows(name)) end
  end)

  it("coexist with its keys and leases", function()
    store:put("k", "1")
    fill(store)
    store:lease(10, { id = 7 })
    store:put("k", "2", { lease = 7 })
    assert.is_true(store:change_rows { { "a", "9", "changed" } })
    local before = state.of(store)
    open()
    state.expect(store, before)
    assert.equal("changed", store:rows("a", "9"))
  end)

  it("may be many, and long", function()
    local changes = {}
    for i = 1, 300 do changes[i] = { "t", ("%03d"):format(i), ("x"):rep(i * 10) } end
    changes[301] = { "t", "long", ("x"):rep(MIB) }
    assert.is_true(store:change_rows(changes))
    open()
    local found = rows_of(store, "t")
    assert.equal(301, #found)
    for i, pair in ipairs(found) do assert.same({ changes[i][2], changes[i][3] }, pair) end
  end)

  it("with a wrong size are refused as damaged", function()
    assert.is_true(store:change_rows { { "t", "1", ("x"):rep(1000) } })
    store:close()
    files.overwrite(path .. "/data/data.mdb", "\236\3\0\0\0\0\3\0t\0001",
      "\200\0\0\0\0\0\88\2t\0001") -- a name of 600 bytes, and a row of 200
    local opened, err = keywatch.open { now = 0, path = path .. "/data" }
    assert.is_nil(opened)
    assert.equal("corrupt", err.code)
  end)

  it("change all or not at all where memory runs out", function()
    if not probe then return end
    local n, is_done = 0, false
    while not is_done do
      n = n + 1
      store:change_rows { { "a", "1", "old" }, { "a", "2", "old" }, { "a", "3" } }
      probe.fail_core(n)
      local ok, err = store:change_rows { { "a", "1", "new" }, { "a", "2" }, { "a", "3", "new" } }
      probe.fail_none()
      is_done = ok
      if not ok then assert.equal("out_of_memory", err.code) end
      local expected = ok and { { "1", "new" }, { "3", "new" } } or { { "1", "old" }, { "2", "old" } }
      assert.same(expected, rows_of(store, "a"))
      open()
      assert.same(expected, rows_of(store, "a"))
    end
    assert.is_true(n > 3)
  end)

  --- Damages all leaf pages of the file that have these bytes: their flags say that they are something else.
  local function damage(bytes)
    local page, n = tonumber(shell.must("getconf PAGESIZE")), 0
    local file = assert(io.open(path .. "/data/data.mdb", "r+b"))
    local all = file:read("*a")
    for at = 2 * page, #all - page, page do
      local is_leaf = all:byte(at + 11) == 2
      if is_leaf and all:sub(at + 1, at + page):find(bytes, 1, true) then
        file:seek("set", at + 10)
        file:write("\4")
        n = n + 1
      end
    end
    file:close()
    assert.is_true(n > 0)
  end

  it("that cannot be read after a failed write are not treated as erased: writing ends", function()
    if not probe then return end
    assert.is_true(store:change_rows { { "a", "1", "in a page of its own" } })
    assert.is_true(store:defragment()) -- so that the row is in the file
    damage("in a page of its own")
    probe.fail_disk(store, "no_memory")
    assert.equal("out_of_memory", code(store:put("k", "1")))
    assert.equal("storage", code(store:put("k", "1")))
    assert.equal("storage", code(store:change_rows { { "a", "2", "x" } }))
  end)
end)
