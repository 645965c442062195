--- Where a task cannot be suspended: inside of a function that C calls. A wait there raises, without any other effect.

local compat = require "keywatch.support.compat"
local driver = require("keywatch.task.driver").get()
local keywatch = require "keywatch"

local directory = require "spec.support.directory"
local near = require "spec.support.near"
local scheduler = require "spec.support.scheduler"
local within = require "spec.support.within"

after_each(function()
  pcall(keywatch.run, function() end) -- whatever a test has left
  assert.is_nil(scheduler.check())
  directory.remove_all()
end)

--- Runs fn(client, store) in a task, with a client of a server of that store.
local function with_client(fn)
  local client, store, close = near()
  local ok, err = pcall(keywatch.run, fn, client, store)
  close()
  if not ok then error(err, 0) end
end

local places = {}

function places.gsub(fn) return (("x"):gsub("x", fn)) end

function places.sort(fn)
  table.sort({ 2, 1 }, function(a, b)
    fn()
    return a < b
  end)
end

function places.finalizer(fn)
  compat.sentinel(fn)
  collectgarbage()
end

if not jit then -- the other VM can be suspended there
  function places.tostring(fn)
    return tostring(setmetatable({}, { __tostring = function() fn() return "" end }))
  end
end

--- Returns the error that a function raises in such a place; nil if it raises none.
local function refusal(place, fn, ...)
  local n, arguments, ok, err = select("#", ...), { ... }, nil, nil
  places[place](function()
    if ok == nil then ok, err = pcall(fn, compat.unpack(arguments, 1, n)) end
  end)
  assert.is_boolean(ok)
  return not ok and tostring(err) or nil
end

local function expect_refused(place, fn, ...)
  local text = refusal(place, fn, ...)
  assert.matches("cannot be suspended here", text)
  assert.matches("keywatch%.spawn", text)
  assert.is_nil(scheduler.check())
end

--- The first wait after it lasts as long as it should.
local function expect_unhurt()
  local event = driver.event()
  keywatch.spawn(function()
    keywatch.sleep(0.03)
    event:set()
  end)
  assert.same({ true, nil }, { event:wait(1000), (scheduler.check()) })
end

for place in pairs(places) do
  describe(("a wait in a task, inside of a function that C calls (%s)"):format(place), function()
    local waits = {
      sleep = function() keywatch.sleep(0.01) end,
      event = function() driver.event():wait() end,
      ["event for a time"] = function() driver.event():wait(0.01) end,
      join = function() keywatch.spawn(keywatch.sleep, 0):join() end,
      ["join for a time"] = function() keywatch.spawn(keywatch.sleep, 0):join(0.01) end,
      next = function() keywatch.open():watch("a"):next(0.01) end,
      batch = function() keywatch.open():watch("a"):batch(0.01) end,
      events = function() keywatch.open():watch("a"):events()() end,
    }
    for name, wait in pairs(waits) do
      it("is refused, and leaves nothing behind: " .. name, within.task(function()
        expect_refused(place, wait)
        expect_unhurt()
      end))
    end

    it("has no place among the waiters of the event", within.task(function()
      local event = driver.event()
      expect_refused(place, event.wait, event, 0.01)
      assert.is_false(event:set())
      assert.is_true(event:wait(0))
    end))

    it("is refused for a run", function()
      keywatch.run(function() assert.matches("run works only at top level", refusal(place, keywatch.run, print)) end)
    end)

    it("does not happen without a need to wait", within.task(function()
      local done = keywatch.spawn(function() end)
      done:join()
      local store = keywatch.open()
      local w = store:watch("a")
      store:put("a", "1")
      local event = driver.event()
      event:set()
      assert.is_nil(refusal(place, done.join, done))
      assert.is_nil(refusal(place, w.next, w))
      assert.is_nil(refusal(place, w.next, w, 0))
      assert.is_nil(refusal(place, event.wait, event))
      assert.is_nil(refusal(place, store.hash_kv, store))
    end))

    it("does not keep a task from being cancelled in its next", within.task(function()
      local task
      task = keywatch.spawn(function()
        task:cancel()
        assert.matches("cannot be suspended", refusal(place, keywatch.sleep, 0.01))
        keywatch.sleep(1000)
      end)
      local ok, err = task:join()
      assert.same({ false, "cancelled" }, { ok, err.code })
    end))

    it("includes the flush of a durable write, which is durable when it returns", function()
      local store = directory.open(directory.new())
      keywatch.run(function()
        for i = 1, 20 do
          local result
          assert.is_nil(refusal(place, function() result = assert(store:put("a", tostring(i))) end))
          assert.equal(store:status().revision, result.revision)
        end
        expect_unhurt()
      end)
      store:close()
    end)

    it("does not affect later durable writes, which are answered when they are durable", function()
      local store = directory.open(directory.new())
      keywatch.run(function()
        local tasks = {}
        for i = 1, 50 do
          tasks[i] = keywatch.spawn(function()
            refusal(place, keywatch.sleep, 0)
            local revision = store:put("k" .. i, "v").revision
            assert.is_true(revision <= store:status().revision)
          end)
        end
        for _, task in ipairs(tasks) do assert(task:join()) end
      end)
      store:close()
    end)

    it("is refused before a request is sent", function()
      with_client(function(client, store)
        assert(client:put("a", "1"))
        local before = store:status().revision
        expect_refused(place, client.put, client, "a", "2")
        expect_refused(place, client.watch, client, "a")
        assert.equal("1", client:get("a").value)
        assert.equal(before, store:status().revision)
      end)
    end)
  end)
end

describe("a refusal", function()
  it("names the line of the call", function()
    local w = keywatch.open():watch("a")
    keywatch.run(function()
      assert.matches("suspension_spec%.lua:%d+: keywatch: next waits", refusal("gsub", function() w:next() end))
    end)
  end)
end)
