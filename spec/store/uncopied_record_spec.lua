--- Reads of the disk that need only metadata do not copy records. Probe builds count the allocations.

local directory = require "spec.support.directory"
local probed = require "spec.support.probed"

local probe = probed.get("a record that is only examined")
if not probe then return end

local CHANGES = 300

--- Returns the number of allocations of the core while fn runs.
local function allocations(fn)
  local before = probe.allocations()
  fn()
  return probe.allocations() - before
end

describe("a record that is only examined", function()
  local store, old

  before_each(function()
    store = directory.open(directory.new())
    for i = 1, CHANGES + 50 do store:put(("few/%03d"):format(i), "x") end
    old = store:status().revision
    for i = 1, CHANGES do store:put("many", ("%05d"):format(i)) end
    while store:step(0) do end -- all is delivered and freed
  end)

  after_each(function()
    store:close()
    directory.remove_all()
  end)

  it("is not copied by a count at an old revision", function()
    local n = allocations(function()
      assert.equal(CHANGES + 50, store:range("few/", { prefix = true, limit = 1, revision = old }).count)
    end)
    assert.is_true(n < CHANGES / 4, n)
  end)

  it("is not copied by a watch of another key that catches up", function()
    local watch
    local n = allocations(function()
      watch = store:watch("few/001", { start_revision = 2 })
      while store:step(0) do end
    end)
    assert.is_true(n < CHANGES / 4, n)
    assert.equal("few/001", watch:next(0).key)
    watch:close()
  end)

  it("is not copied by a hash of the history", function()
    local n = allocations(function() assert(store:hash_kv(0)) end)
    assert.is_true(n < CHANGES / 4, n)
  end)

  it("is not copied by a compaction", function()
    store:compact(store:status().revision)
    local n = allocations(function()
      while store:step(0) do end
    end)
    assert.is_true(n < CHANGES / 4, n)
    assert.equal("compacted", select(2, store:get("many", { revision = old + 1 })).code)
  end)
end)
