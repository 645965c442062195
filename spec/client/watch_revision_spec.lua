--- The revisions of a client's watch: that of its reader, and that up to which all events were delivered.

local network = require "spec.support.network"

local PATIENCE = network.PATIENCE

describe("the revision of a client's watch #plain", function() -- there is no TLS in virtual time
  local client

  network.in_virtual_time(function(world)
    client = world:client()
    for i = 1, 3 do client:put("a", tostring(i)) end
  end)

  it("is the one before its start revision, whatever has arrived already", function()
    assert.equal(4, client:watch("a").revision)
    assert.equal(1, client:watch("a", { start_revision = 2 }).revision)
    assert.equal(3, client:watch("a", { start_revision = 4 }).revision)
    assert.equal(9, client:watch("a", { start_revision = 10 }).revision)
  end)

  it("grows with delivered events", function()
    local w = client:watch("a", { start_revision = 2 })
    for revision = 2, 4 do
      assert.equal(revision, w:next(PATIENCE).mod_revision)
      assert.equal(revision, w.revision)
    end
  end)

  it("reaches that of the store in sync after it was compacted, beside a watch that begins in the future", function()
    local w, future = client:watch("quiet"), client:watch("a", { start_revision = 100 })
    for i = 1, 3 do client:put("a", tostring(i)) end
    client:compact(7)
    assert.equal(7, w:sync(PATIENCE))
    assert.equal(7, future:sync(PATIENCE))
    client:put("quiet", "no more")
    assert.equal(8, w:next(PATIENCE).mod_revision)
  end)

  it("reaches that of the store in sync after it was compacted, beside a watch from the next revision on", function()
    local w = client:watch("quiet")
    for i = 1, 3 do client:put("a", tostring(i)) end
    local ahead = client:watch("a", { start_revision = 8 })
    client:compact(7)
    assert.equal(7, w:sync(PATIENCE))
    client:put("a", "4")
    client:put("quiet", "no more")
    assert.equal(8, ahead:next(PATIENCE).mod_revision)
    assert.equal(9, w:next(PATIENCE).mod_revision)
  end)

  it("may be in the future: earlier events are not delivered", function()
    local w = client:watch("a", { start_revision = 6 })
    for i = 4, 6 do client:put("a", tostring(i)) end
    assert.equal(6, w:next(PATIENCE).mod_revision)
    assert.equal(7, w:next(PATIENCE).mod_revision)
  end)
end)
