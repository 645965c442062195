--- Behaviours that docs/list_watch.md names, and no other spec asserts: how the watches of a cache begin, and who waits
-- for its content.

local keywatch = require "keywatch"

local cjson = require "cjson"

local network = require "spec.support.network"
local within = require "spec.support.within"

local PATIENCE = network.PATIENCE

describe("a cache that has just begun", function()
  local store, server, client, cache

  before_each(function()
    store = keywatch.open()
    server = keywatch.serve { store = store, listen = "http://127.0.0.1:0" }
    client = keywatch.connect(server:addresses()[1])
    for i = 1, 3 do store:put("/a/" .. i, tostring(i)) end
    cache = assert(client:cache("/a/"))
  end)

  after_each(function()
    client:close()
    server:close()
    store:close()
  end)

  it("has no history, and watches from its revision on", function()
    assert(cache:wait_ready(PATIENCE))
    local revision = cache:status().revision
    local old = assert(cache:watch("/a/", { prefix = true, start_revision = revision - 1 }))
    local event, err = old:next(0)
    assert.same({ nil, "compacted" }, { event, err.code })
    local new = assert(cache:watch("/a/", { prefix = true, start_revision = revision + 1 }))
    local late = assert(cache:watch("/a/", { prefix = true, start_revision = revision + 3 }))
    for _, watch in ipairs { new, late } do
      event, err = watch:next(0)
      assert.same({ nil, "timeout" }, { event, err.code })
    end
    for i = 1, 4 do store:put("/a/x", tostring(i)) end
    for i = 1, 4 do assert.equal(revision + i, new:next(PATIENCE).mod_revision) end
    for i = 3, 4 do assert.equal(revision + i, late:next(PATIENCE).mod_revision) end
  end)

  it("wakes all who wait for its content, when that is there", within.task(function()
    local tasks = {}
    for i = 1, 20 do tasks[i] = keywatch.spawn(function() return cache:wait_ready(PATIENCE) end) end
    for _, task in ipairs(tasks) do assert.same({ true, true }, { task:join() }) end
    assert.is_true(cache:wait_ready(0))
  end))

  it("wakes all who wait for its content, when it is closed", within.task(function()
    local tasks = {}
    server:close()
    for i = 1, 20 do tasks[i] = keywatch.spawn(function() return select(2, cache:wait_ready()) end) end
    keywatch.sleep(0)
    cache:close()
    for _, task in ipairs(tasks) do assert.equal("closed", select(2, task:join()).code) end
  end))

  it("tells of the end of a lease", function()
    assert(cache:wait_ready(PATIENCE))
    local watch = assert(cache:object_watch("/a/", { prefix = true }))
    local lease = store:lease(60)
    store:put("/a/leased", "x", { lease = lease })
    assert.equal("added", watch:next(PATIENCE).type)
    lease:revoke()
    local event = watch:next(PATIENCE)
    assert.same({ "deleted", "/a/leased", "x" }, { event.type, event.key, event.object })
    assert.is_nil((cache:get("/a/leased")))
  end)

  it("gives each object to a transform once", function()
    assert(cache:wait_ready(PATIENCE))
    local seen = {}
    local watch = assert(cache:object_watch("/a/", {
      prefix = true, codec = "json", initial = true,
      transform = function(object, event)
        seen[#seen + 1] = event.key .. " " .. event.revision
        return object
      end,
    }))
    local last
    for i = 1, 3 do last = store:put("/a/1", cjson.encode { i = i }).revision end
    local expected, event = {}
    repeat
      event = assert(watch:next(PATIENCE))
      if event.key then expected[#expected + 1] = event.key .. " " .. event.revision end
    until event.revision == last
    assert.same(expected, seen)
    assert.equal(6, #seen)
  end)
end)
