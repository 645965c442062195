--- Automatic compaction, like etcd's, with a manual clock.

local keywatch = require "keywatch"
local compactor = require "keywatch.server.compactor"
local driver = require "keywatch.task.driver"
local log = require "keywatch.support.log"

local HOUR = 3600

describe("a compactor", function()
  local store, time, lines, write

  before_each(function()
    store, time, lines = keywatch.open { now = 0 }, 0, {}
    write = log.write
    log.write = function(level, format, ...) table.insert(lines, level .. " " .. format:format(...)) end
  end)

  after_each(function()
    log.write = write
    store:close()
  end)

  local function now() return time end

  --- Makes a step, and then writes one revision: the n-th step sees revision n.
  local function step(self, seconds, is_quiet)
    self:step()
    time = time + seconds
    if not is_quiet then store:put("a", tostring(time)) end
  end

  local function compacted() return store:status().compact_revision end

  describe("by time", function()
    --- Steps until a step has compacted. Returns the number of steps, or nil if there was no compaction in `max` steps.
    local function steps_until_compaction(self, max)
      local before = compacted()
      for n = 1, max do
        step(self, self.interval)
        if compacted() ~= before then return n end
      end
    end

    it("notes the revision ten times in its period, or ten times an hour", function()
      assert.equal(0.5, compactor.new(store, "periodic", 5, now).interval)
      assert.equal(354, compactor.new(store, "periodic", 59 * 60, now).interval)
      assert.equal(360, compactor.new(store, "periodic", HOUR, now).interval)
      assert.equal(360, compactor.new(store, "periodic", 24 * HOUR, now).interval)
    end)

    it("first compacts after one period, to the revision noted at the start", function()
      local self = compactor.new(store, "periodic", HOUR, now)
      assert.equal(11, steps_until_compaction(self, 20)) -- the first step is at its start
      assert.equal(1, compacted())
    end)

    it("compacts once per period after that, and keeps one interval more", function()
      local self = compactor.new(store, "periodic", 5 * 60, now)
      steps_until_compaction(self, 20)
      for round = 1, 5 do
        assert.equal(10, steps_until_compaction(self, 20))
        assert.equal(10 * round, compacted())
      end
    end)

    it("compacts every hour if its period is longer", function()
      local self = compactor.new(store, "periodic", 24 * HOUR, now)
      assert.equal(241, steps_until_compaction(self, 300))
      assert.equal(1, compacted())
      for round = 1, 5 do
        assert.equal(10, steps_until_compaction(self, 20))
        assert.equal(10 * round, compacted())
      end
    end)

    it("never compacts revisions younger than its period, however late a step is", function()
      local self = compactor.new(store, "periodic", 100, now)
      local revisions = {} -- { time, revision }
      for i = 1, 200 do
        table.insert(revisions, { time, store:status().revision })
        step(self, 10 + i * 7 % 23)
        for _, at in ipairs(revisions) do
          if at[1] + 100 > time then assert.is_true(compacted() <= at[2]) end
        end
      end
      assert.is_true(compacted() > 150)
    end)

    it("compacts once more, and then not again, while nothing is written", function()
      local self = compactor.new(store, "periodic", HOUR, now)
      steps_until_compaction(self, 20)
      for _ = 1, 12 do step(self, self.interval, true) end
      local compact, calls = store.compact, 0
      self.store = { status = function() return store:status() end, compact = function(_, ...)
        calls = calls + 1
        return compact(store, ...)
      end }
      for _ = 1, 100 do step(self, self.interval, true) end
      assert.equal(1, calls)
      assert.equal(store:status().revision, compacted())
    end)
  end)

  describe("by revisions", function()
    it("compacts every five minutes, to keep the given number of revisions", function()
      local self = compactor.new(store, "revision", 10, now)
      assert.equal(300, self.interval)
      for _ = 1, 10 do step(self, 300) end
      assert.equal(-1, compacted())
      for n = 1, 5 do
        step(self, 300)
        assert.equal(n, compacted())
      end
      step(self, 300, true)
      step(self, 300, true)
      assert.equal(6, compacted())
    end)
  end)

  it("logs a failed compaction, and retries it after an interval", function()
    local calls = {}
    local self = compactor.new({
      status = function() return { revision = 20 + #calls } end,
      compact = function(_, revision)
        table.insert(calls, revision)
        if #calls > 2 then return { revision = revision } end
        return nil, { code = "unavailable", message = "not now" }
      end,
    }, "revision", 10, now)
    for _ = 1, 3 do self:step() end
    assert.same({ 10, 11, 12 }, calls)
    assert.same({ "warn compacting to revision 10 has failed: not now",
      "warn compacting to revision 11 has failed: not now" }, lines)
    self.store.compact = function(_, revision)
      table.insert(calls, revision)
      return nil, { code = "compacted", message = "etcd's words" }
    end
    self:step()
    assert.equal(13, self.last_revision) -- another caller has compacted
    assert.equal(2, #lines)
  end)

  it("waits while the status of the store cannot be read", function()
    local self = compactor.new({ status = function() return nil, { message = "not now" } end }, "periodic", 10, now)
    for _ = 1, 9 do step(self, 1, true) end
    assert.equal(9, #lines)
    assert.equal("warn the status of the store cannot be read, so nothing is compacted now: not now", lines[1])
    self.store = store
    for _ = 1, 10 do step(self, 1) end
    assert.equal(-1, compacted()) -- its first period begins with the first noted revision
    step(self, 1)
    assert.equal(1, compacted())
  end)

  describe("in the driver", function()
    local self

    after_each(function() self:close() end)

    --- Opens a compactor whose store never answers. Returns a function that counts the calls of status.
    local function open_stuck()
      local gate, calls = driver.get().event(), 0
      local function status()
        calls = calls + 1
        gate:wait()
        return { revision = 1 }
      end
      self = compactor.open({ status = status }, "revision", 10, now)
      return function() return calls end
    end

    it("steps while the loop turns, until it is closed", function()
      for _ = 1, 19 do store:put("a", "") end
      self = compactor.open(store, "revision", 10, now)
      keywatch.sleep(0)
      time = 299
      keywatch.sleep(0)
      assert.equal(-1, compacted())
      time = 300
      keywatch.sleep(0)
      keywatch.sleep(0)
      assert.equal(10, compacted())
      self:close()
      self:close()
      store:put("a", "")
      time = 600
      keywatch.sleep(0)
      keywatch.sleep(0)
      assert.equal(10, compacted())
    end)

    it("continues after a keywatch.run that ends in the middle of a step", function()
      local calls = open_stuck()
      keywatch.sleep(0)
      time = 300
      keywatch.run(function() keywatch.sleep(0) keywatch.sleep(0) end)
      assert.equal(1, calls())
      time = 600
      keywatch.run(function() keywatch.sleep(0) keywatch.sleep(0) end)
      assert.equal(2, calls())
    end)

    it("begins no step before the previous one has ended", function()
      local calls = open_stuck()
      keywatch.run(function()
        for turn = 1, 5 do
          time = turn * 300
          keywatch.sleep(0)
          keywatch.sleep(0)
        end
      end)
      assert.equal(1, calls())
    end)

    it("stops when its store is closed, and logs that", function()
      self = compactor.open(store, "revision", 10, now)
      keywatch.sleep(0)
      store:close()
      time = 300
      keywatch.sleep(0)
      keywatch.sleep(0)
      time = 600
      keywatch.sleep(0)
      keywatch.sleep(0)
      assert.equal(1, #lines)
      assert.matches("^warn there will be no more compactions: .*closed", lines[1])
    end)

    it("uses the clock of the loop by default", function()
      self = compactor.open(store, "periodic", 0.001)
      keywatch.run(function()
        while compacted() < 10 do
          store:put("a", "")
          keywatch.sleep(0)
        end
      end)
    end)
  end)
end)
