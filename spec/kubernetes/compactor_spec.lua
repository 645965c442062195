--- The compactor: one compaction every five minutes, however many programs share a store.

local keywatch = require "keywatch"

local widgets = require "spec.kubernetes.widgets"
local within = require "spec.support.within"

local MINUTES = 60

describe("the compactor of an API", function()
  it("keeps the history of five to ten minutes", within.world(function()
    local store = keywatch.open()
    local api = widgets.open(store, { compact = true })
    local at = {}
    for minute = 0, 30 do
      at[minute] = store:put("a", tostring(minute)).revision
      keywatch.sleep(MINUTES)
      local compacted = store:status().compact_revision
      if minute >= 12 then
        assert.is_true(compacted >= at[minute - 11], minute)
        assert.is_true(compacted <= at[minute - 4], minute)
      end
      if minute < 4 then assert.is_true(compacted < at[0]) end
    end
    api:close()
    local before = store:status().compact_revision
    for _ = 1, 20 do
      store:put("a", "x")
      keywatch.sleep(MINUTES)
    end
    assert.equal(before, store:status().compact_revision)
    store:close()
  end, { leftovers = "cancel" }))

  it("does nothing unless it is asked for, or the API is served", within.world(function()
    for _, more in ipairs { {}, { compact = false } } do
      local store = keywatch.open()
      local api = widgets.open(store, more)
      if more.compact == false then api:start_compacting() end
      for i = 1, 4 do
        store:put("a", tostring(i))
        keywatch.sleep(5 * MINUTES)
      end
      assert.is_nil(store:get "compact_rev_key")
      api:close()
      store:close()
    end
  end, { leftovers = "cancel" }))

  it("compacts once for several programs, and outlives failures", within.world(function(world)
    local apis, compactions = {}, {}
    for i = 1, 3 do
      apis[i] = widgets.open(world:client():namespace("tenant/"), { compact = true })
      keywatch.sleep(40)
    end
    local store, rule = world.server.store, world:fault { "refuse", method = "compact", error = "no_leader", count = 1 }
    local last = store:status().compact_revision
    for _ = 1, 60 do
      store:put("a", "x")
      keywatch.sleep(MINUTES)
      local now = store:status().compact_revision
      if now ~= last then compactions[#compactions + 1] = now end
      last = now
    end
    assert.equal(1, rule.hits)
    assert.is_true(#compactions >= 9 and #compactions <= 12, #compactions)
    assert.is_string(store:get("compact_rev_key").value)
    world.server:restart(400)
    for _ = 1, 20 do
      keywatch.sleep(MINUTES)
      store:put("a", "x")
    end
    assert.is_true(store:status().compact_revision > last)
    for _, api in ipairs(apis) do api:close() end
  end, { leftovers = "cancel" }))
end)
