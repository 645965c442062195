--- Watches of readers that keep no event: the tables are used again, and have what those of an ordinary watch have.

local core = require "keywatch.core"
local keywatch = require "keywatch"
local watches = require "keywatch.watch.watch"

local directory = require "spec.support.directory"
local network = require "spec.support.network"

local PATIENCE = network.PATIENCE
local MANY = 1500 -- kvs: more than a page
local A_FEW = 300 -- changes of one revision: more than tables are kept
local KEPT = 256  -- tables

--- Returns a copy of an event.
local function copy(event)
  local t = {}
  for name, value in pairs(event) do t[name] = value end
  return t
end

--- Returns copies of n events of a watch, and how many of their tables are in `seen`. All of them are then.
local function read(watch, n, seen)
  local events, again = {}, 0
  for i = 1, n do
    local event = assert(watch:next(PATIENCE))
    events[i] = copy(event)
    if seen[event] then again = again + 1 end
    seen[event] = true
  end
  return events, again
end

--- Compares a watch that is transient with one that is not, of the keys of x that begin with "k".
local function compare(x, store)
  for i = 1, MANY do store:put(("k%04d"):format(i), "v" .. i) end
  local plain = assert(x:watch("k", { prefix = true, initial = true }))
  local lean = assert(x:watch("k", { prefix = true, initial = true, [watches.TRANSIENT] = true }))
  local seen = {}

  --- Reads n events of both. Expects that so many tables of the second one were used before.
  local function expect(n, again)
    local events, used = read(lean, n, seen)
    assert.same((read(plain, n, {})), events)
    assert.equal(again, used)
  end

  expect(MANY + 1, MANY - 1000) -- those of the first page
  local ops = {}
  for i = 1, A_FEW do ops[i] = { put = ("k%04d"):format(i), value = "w" } end
  store:txn { success = ops }
  expect(A_FEW, 0)
  store:delete("k", { prefix = true })
  expect(MANY, KEPT)
  store:put("k", "again")
  expect(1, 1)
  plain:close()
  lean:close()
end

describe("a watch without references to its events", function()
  after_each(function()
    network.finish()
    directory.remove_all()
  end)

  it("has the events of an ordinary one: of a store, and of a namespace", function()
    local store = keywatch.open { max_txn_ops = A_FEW }
    compare(store, store)
    local space = store:namespace("space/")
    compare(space, space)
    store:close()
  end)

  it("has the events of an ordinary one: of a client, and of a client's namespace", function()
    local store = keywatch.open { max_txn_ops = A_FEW }
    local server = assert(keywatch.serve { store = store, listen = "http://127.0.0.1:0" })
    local client = network.connect(server:addresses()[1])
    compare(client, store)
    compare(client:namespace("space/"), store:namespace("space/"))
    client:close()
    server:close()
    store:close()
  end)
end)

describe("a watch of the core", function()
  it("sets events in a table, and stops at anything else", function()
    local store = core.open { now = 0 }
    local watch = store:open_watch("k/", { prefix = true })
    local target = { gone = "old", kept = "old" }
    assert.same({ 0, false }, { watch:apply(target, 2) })
    store:put("k/a", "1")
    store:put("k/b", "2")
    store:put("k/a", "3")
    store:put("k/gone", "4")
    local revision = store:delete("k/gone").revision
    assert.same({ revision, false }, { watch:apply(target, 2) })
    assert.same({ a = "3", b = "2", kept = "old" }, target)
    assert.is_nil(watch:take())
    store:put("k/c", "5")
    assert.is_truthy(watch:request_progress())
    local _, has_more = watch:apply(target, 0)
    assert.is_true(has_more)
    assert.same({ "5", "progress" }, { target["k/c"], (watch:take()) })
    watch:close()
    assert.same({ 0, true }, { watch:apply(target, 0) })
    store:close()
  end)
end)
