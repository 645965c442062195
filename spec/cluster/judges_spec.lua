--- What the judges of spec/cluster object to: histories and records that are made up.

local contests = require "spec.cluster.contests"
local elections = require "spec.cluster.elections"
local histories = require "spec.cluster.history"
local locks = require "spec.cluster.locks"
local new_world = require("spec.cluster.world").new
local transfers = require "spec.cluster.transfers"
local watchers = require "spec.cluster.watchers"
local writers = require "spec.cluster.writers"

describe("the judges of a cluster #once", function()
  local history, world, revision, state

  before_each(function()
    history, world, revision, state = histories.new(2), new_world({}, nil), 1, {}
  end)

  --- The next revision of the history: a list of { key, value } or { key }, which is deleted.
  local function happen(list)
    revision = revision + 1
    local events = {}
    for i, item in ipairs(list) do
      local key, prev = item[1], state[item[1]]
      local event = { type = "delete", key = key, mod_revision = revision, prev = prev }
      if item[2] then
        event = { type = "put", key = key, value = item[2], mod_revision = revision, prev = prev,
          create_revision = prev and prev.create_revision or revision, version = prev and prev.version + 1 or 1 }
      end
      state[key] = item[2] and event or nil
      events[i] = event
    end
    history:add(revision, events)
    return revision
  end

  --- The one objection that there is.
  local function expect(pattern)
    assert.equal(1, #world.objections, table.concat(world.objections, "\n"))
    assert.truthy(world.objections[1]:find(pattern), world.objections[1])
  end

  describe("of histories", function()
    it("object to a revision that is missing", function()
      happen { { "a", "1" } }
      assert.has_error(function() history:add(4, {}) end)
    end)

    it("object to a version that is missing", function()
      happen { { "a", "1" } }
      state.a = { create_revision = 2, mod_revision = 2, version = 5 }
      assert.has_error(function() happen { { "a", "2" } } end)
    end)
  end)

  describe("of writers", function()
    local function judge(record)
      writers.judge(world, history, { writes = { record }, reads = {} })
    end

    local function read(record)
      writers.judge(world, history, { writes = {}, reads = { record } })
    end

    it("take what fits", function()
      happen { { "/w/1", "w1" } }
      judge { tag = "w1", outcome = "ok", revision = 2, after = 1 }
      judge { tag = "w1", outcome = "doubt", after = 1 }
      judge { tag = "w2", outcome = "doubt", after = 1 }
      judge { tag = "w2", outcome = "refused", after = 1 }
      read { key = "/w/1", revision = 2, after = 2, kv = { value = "w1", mod_revision = 2 } }
      assert.same({}, world.objections)
    end)

    it("object to an acknowledged write that is not there", function()
      judge { tag = "w1", outcome = "ok", revision = 2, after = 1 }
      expect("0 times in the history")
    end)

    it("object to a refused write that is there", function()
      happen { { "/w/1", "w1" } }
      judge { tag = "w1", outcome = "refused", after = 1 }
      expect("without maybe_done")
    end)

    it("object to a write that is done twice", function()
      happen { { "/w/1", "w1" } }
      happen { { "/w/1", "w1" } }
      judge { tag = "w1", outcome = "doubt", after = 1 }
      expect("2 times in the history")
    end)

    it("object to a write at another revision, and to one in the past", function()
      happen { { "/w/1", "w1" } }
      judge { tag = "w1", outcome = "ok", revision = 3, after = 1 }
      expect("told to be at 3")
      world.objections = {}
      judge { tag = "w1", outcome = "ok", revision = 2, after = 2 }
      expect("began when 2 was known")
    end)

    it("object to a read of the past, and to a wrong one", function()
      happen { { "/w/1", "w1" } }
      happen { { "/w/1", "w2" } }
      read { key = "/w/1", revision = 2, after = 3, kv = { value = "w1", mod_revision = 2 } }
      expect("begun when 3 was known")
      world.objections = {}
      read { key = "/w/1", revision = 3, after = 3, kv = { value = "w1", mod_revision = 2 } }
      expect("is read as w1 2")
    end)
  end)

  describe("of watchers", function()
    local A, B, C = "put a 1 c2 m2 v1", "put a 2 c2 m3 v2", "delete a  c0 m4 v0"
    local PREVS = { [B] = "1 m2 v1", [C] = "2 m3 v2" }

    --- A reader that has read some texts.
    local function reader_of(texts)
      local reader = { name = "a watch", prefix = "", from = 2, last = 4, batches = {}, initial = {}, n_opened = 1,
        n_progress = 0, n_events = 0, n_without_prev = 0, has_prev = true }
      for i, text in ipairs(texts) do
        reader.batches[i] = { texts = { text }, prevs = { PREVS[text] or "nothing" }, progress = 0 }
      end
      return reader
    end

    before_each(function()
      happen { { "a", "1" } }
      happen { { "a", "2" } }
      happen { { "a" } }
    end)

    local function judge(reader) watchers.judge(world, history, { reader }) end

    it("take what fits", function()
      judge(reader_of { A, B, C })
      assert.same({}, world.objections)
    end)

    for name, texts in pairs {
      ["a gap"] = { A, C }, ["a revision that comes twice"] = { A, A, B, C }, ["another order"] = { B, A, C },
      ["an end that is missing"] = { A, B }, ["what has not happened"] = { A, B, C, "put b 1 c5 m5 v1" },
      ["a wrong value"] = { A, "put a 3 c2 m3 v2", C },
    } do
      it("object to " .. name, function()
        judge(reader_of(texts))
        assert.equal(1, #world.objections)
      end)
    end

    it("object to progress that comes too early", function()
      local reader = reader_of { A, B, C }
      reader.batches[2].progress = 3
      judge(reader)
      assert.is_true(#world.objections > 0)
    end)

    it("object to what was not before, and to what is not told", function()
      local reader = reader_of { A, B, C }
      reader.batches[3].prevs = { "1 m2 v1" }
      judge(reader)
      expect("finds 1 m2 v1 before delete a")
      world.objections = {}
      reader = reader_of { A, B, C }
      reader.batches[3].prevs = { "nothing" }
      judge(reader)
      expect("1 of 3 events without")
    end)

    it("object to a wrong beginning", function()
      local reader = reader_of { C }
      reader.is_initial, reader.synced, reader.initial = true, 3, { a = B }
      judge(reader)
      assert.same({}, world.objections)
      reader.initial = { a = A }
      judge(reader)
      expect("finds put a 1")
    end)
  end)

  describe("of locks", function()
    --- A fenced write of a holder.
    local function write(tag, number, key, created)
      happen { { "/c/1", contests.value(tag, number, { key = key, revision = created }) } }
    end

    local function judge(records)
      records = records or {}
      locks.judge(world, history, { holds = records.holds or {}, writes = records.writes or {} })
    end

    local first, second

    before_each(function()
      first = happen { { "/k/1/a", "" } }
      second = happen { { "/k/1/b", "" } }
    end)

    it("take what fits", function()
      write("k1", 1, "/k/1/a", first)
      happen { { "/k/1/a" } }
      write("k2", 2, "/k/1/b", second)
      judge {
        holds = { { name = "/k/1", from = 1, to = 2 }, { name = "/k/1", from = 2, to = 3 } },
        writes = { { tag = "k1", outcome = "ok" }, { tag = "k3", outcome = "refused" } },
      }
      assert.same({}, world.objections)
      assert.equal(2, world:counted("counted behind locks", "changes"))
    end)

    it("object to a write of one who has to wait", function()
      write("k1", 1, "/k/1/b", second)
      judge()
      expect("held by /k/1/a")
    end)

    it("object to a write of one who has lost the lock, and who has it again", function()
      happen { { "/k/1/a" } }
      write("k1", 1, "/k/1/a", first)
      judge()
      expect("held by /k/1/b")
      world.objections = {}
      happen { { "/k/1/b" } }
      happen { { "/k/1/a", "" } }
      history.events[5], history.keys["/c/1"] = {}, nil
      state["/c/1"] = nil
      write("k2", 1, "/k/1/a", first)
      judge()
      expect("behind the fence /k/1/a of 2")
    end)

    it("object to a count that misses one", function()
      write("k1", 1, "/k/1/a", first)
      write("k2", 1, "/k/1/a", first)
      judge()
      expect("counts to 1 after 1")
    end)

    it("object to two owners at one time", function()
      local x, y = { name = "/k/1", key = "x", from = 1, to = 3 }, { name = "/k/1", key = "y", from = 2, to = 4 }
      judge { holds = { x, y } }
      expect("held by x until")
    end)

    it("object to a refused write that is there", function()
      write("k1", 1, "/k/1/a", first)
      judge { writes = { { tag = "k1", what = "fenced put", outcome = "refused" } } }
      expect("without maybe_done")
    end)
  end)

  describe("of elections", function()
    local A, AGAIN, B = "/e/lead/a first 2", "/e/lead/a again 4", "/e/lead/b second 3"

    before_each(function()
      happen { { "/e/lead/a", "first" } }
      happen { { "/e/lead/b", "second" } }
      happen { { "/e/lead/a", "again" } }
      happen { { "/e/lead/a" } }
      happen { { "/e/lead/b" } }
    end)

    local function judge(observer) elections.judge(world, history, { writes = {}, observers = { observer } }) end

    it("take what fits, from wherever an observer begins", function()
      judge { A, AGAIN, B }
      judge { AGAIN, B }
      assert.same({}, world.objections)
    end)

    for name, observer in pairs {
      ["a value that was not observed"] = { A, B }, ["a leader that was not observed"] = { A, AGAIN },
      ["another order"] = { A, B, AGAIN }, ["what comes twice"] = { A, A, AGAIN, B }, ["nothing"] = {},
    } do
      it("object to " .. name, function()
        judge(observer)
        assert.equal(1, #world.objections)
      end)
    end
  end)

  describe("of transfers", function()
    local function judge(outcome)
      transfers.judge(world, history, { { tag = "t1", outcome = outcome } })
    end

    it("take what fits", function()
      happen { { "/a/1", "t1 -1" }, { "/a/2", "t1 1" } }
      judge("ok")
      judge("doubt")
      assert.same({}, world.objections)
    end)

    it("object to a half, to what was not seen, and to what was refused", function()
      happen { { "/a/1", "t1 -1" } }
      judge("doubt")
      assert.equal(2, #world.objections)
      world.objections = {}
      happen { { "/a/1", "t2 -1" }, { "/a/2", "t2 1" } }
      transfers.judge(world, history, { { tag = "t2", outcome = "refused" } })
      assert.is_true(#world.objections > 2)
    end)
  end)
end)
