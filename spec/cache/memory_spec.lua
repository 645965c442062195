--- Caches leak no memory: neither closed caches, nor old events.
--
-- KW_CACHES is the number of caches that are opened and closed, KW_CACHE_EVENTS the number of events: 10000 and 1000000
-- are the full dose.

local keywatch = require "keywatch"

local dose = require "spec.support.dose"
local near = require "spec.support.near"
local resident = require "spec.support.resident"

local CACHES = 300 * dose.factor
local EVENTS = 30000 * dose.factor

local MOST = 8e6 -- bytes that a process may grow by: the allocator keeps some

--- Returns the memory of the process after all garbage was collected: finalizers end tasks, which then are garbage.
local function collected()
  for _ = 1, 5 do
    collectgarbage()
    keywatch.sleep(0.001)
  end
  return resident.now()
end

local function expect_flat(before, what)
  local grown = collected() - before
  if resident.is_reliable then assert(grown < MOST, ("%d bytes more after %s"):format(grown, what)) end
end

describe("caches #slow #starved", function()
  local client, store, close

  before_each(function()
    client, store, close = near()
    for i = 1, 100 do store:put("/a/" .. i, ("v"):rep(100)) end
  end)

  after_each(function() close() end)

  it("that are opened and closed, or dropped, leave neither memory nor watches", function()
    local function open(i)
      local cache = assert(client:cache("/a/"))
      if i % 3 > 0 then assert(cache:wait_ready(30)) end
      if i % 3 == 1 then
        local watch, t = assert(cache:watch("/a/", { prefix = true })), cache:table()
        assert(t["/a/1"] and watch)
      end
      if i % 2 == 0 then cache:close() end
    end
    keywatch.run(function()
      for i = 1, CACHES / 3 do open(i) end
      local before = collected()
      for i = 1, CACHES do open(i) end
      expect_flat(before, CACHES .. " caches")
      assert.same({ 0, nil }, { client.transport.watch_calls:count(), (next(client.transport.feeds)) })
    end)
  end)

  it("take no more memory after many events than before", function()
    local cache = assert(client:cache("/a/", { history_bytes = 1e6 }))
    local t = cache:table()
    assert(cache:wait_ready(30))
    local function write(n)
      local last
      for i = 1, n do
        last = store:put("/a/" .. i % 100 + 1, ("%099d"):format(i)).revision
        if i % 500 == 0 then
          assert(cache:wait_for(last, 60))
          store:compact(last - 1)
        end
      end
      assert(cache:wait_for(last, 60))
      return last
    end
    keywatch.run(function()
      write(EVENTS / 3)
      local before = collected()
      local last = write(EVENTS)
      expect_flat(before, EVENTS .. " events")
      assert.equal(last, cache:status().revision)
      assert.equal(store:get("/a/7").value, t["/a/7"])
      assert.same(100, cache:status().keys)
    end)
  end)
end)
