--- The pause before a commit group is submitted: writers that have just received their answers can join
-- the group. In the build of this spec every flush is slow, and a pause is long.

local core = require "keywatch.core"
local keywatch = require "keywatch"

local directory = require "spec.support.directory"
local many_keys = require "spec.support.many_keys"

local probe = core.probe
if not probe then return end

local unpack = rawget(table, "unpack") or rawget(_G, "unpack")

local WRITERS = 4
local KEYS = 300 -- more than one turn visits

describe("the pause before a commit group", function()
  local store

  before_each(function() store = directory.open(directory.new()) end)

  after_each(function()
    store:close()
    directory.remove_all()
  end)

  local function spawn_writers(name, times)
    local tasks = {}
    for i = 1, WRITERS do
      tasks[i] = keywatch.spawn(function()
        for j = 1, times do assert(store:put(name .. i, tostring(j))) end
      end)
    end
    return tasks
  end

  local function join_all(tasks)
    for _, task in ipairs(tasks) do assert(task:join()) end
  end

  --- Writers of a group that is on its way to the disk, and of the next one, which gathers.
  local function spawn_both(times)
    probe.hold_disk(store, true)
    local first = spawn_writers("a", times)
    keywatch.sleep(0)
    local second = spawn_writers("b", times)
    keywatch.sleep(0)
    probe.hold_disk(store, false)
    join_all(first)
    join_all(second)
  end

  --- How many commits it takes that all have written twice.
  local function commits_of_two()
    store:close()
    store = directory.open(directory.new())
    keywatch.run(spawn_both, 2)
    return store:status().commits
  end

  it("lets writers join that write again", function()
    -- The first writers, then all, then the second ones; without the pause the first ones would be alone again. On a
    -- machine that is very slow they may come too late: then they try again.
    local commits, tries = commits_of_two(), 1
    while commits ~= 3 and tries < 20 do commits, tries = commits_of_two(), tries + 1 end
    assert.equal(3, commits)
  end)

  it("ends by itself if there is no further write", function()
    keywatch.run(spawn_both, 1)
    assert.equal(2, store:status().commits)
    assert.equal("1", store:get("b" .. WRITERS).value)
  end)

  it("ends when a long write begins: the gathered writes do not wait for that", function()
    many_keys.fill(store, KEYS)
    local before
    keywatch.run(function()
      join_all(spawn_writers("a", 1))
      before = store:status().commits
      local one = keywatch.spawn(store.put, store, "b", "1")
      keywatch.sleep(0)
      assert(store:delete("k", { prefix = true }))
      assert(one:join())
    end)
    assert.equal(2, store:status().commits - before)
  end)

  it("is left out more and more often if the writers do not write again", function()
    local backs, expected = {}, {}
    for _, without in ipairs { 1, 2, 4, 8, 16, 32, 64, 64 } do
      backs[#backs + 1], expected[#expected + 1] = 0, true
      for _ = 1, without do backs[#backs + 1], expected[#expected + 1] = 0, false end
    end
    assert.same(expected, { probe.pauses(WRITERS, unpack(backs)) })
  end)

  it("follows every group again once half of the writers write again", function()
    assert.same({ true, false, true, false, false, true, true, true },
      { probe.pauses(WRITERS, 0, 0, 1, 0, 0, WRITERS / 2, WRITERS, 0) })
  end)

  it("does not delay a write outside of a task", function()
    keywatch.run(function() join_all(spawn_writers("a", 1)) end)
    assert(store:put("b", "1"))
    assert.equal(2, store:status().commits)
  end)
end)
