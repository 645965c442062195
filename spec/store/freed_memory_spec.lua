--- Memory that is no longer needed is freed: after a load has been deleted and compacted, a store takes no more memory
-- than a store that never had the load. Probe builds count the bytes of the core; other builds count the anonymous
-- pages of a server's process.

local keywatch = require "keywatch"
local probe = require("keywatch.core").probe

local directory = require "spec.support.directory"

local is_fast = require("spec.support.dose").is_small

local KEYS = is_fast and 300 or 1000
local ROOM = 1.1 -- times the memory of a store that never had the load
local SLACK = 16384 -- bytes: a block of an arena, and buffers of the threads of a disk
local PATIENCE = 60 -- seconds

if not probe then
  local memory_of = require("spec.support.proc").anonymous
  local program = require "spec.support.program"
  local server = require "spec.support.server"

  local BASE, LOAD, OPS = 20000, is_fast and 50000 or 200000, 128
  local MIB = 1024 * 1024
  local PARTS = 2 * MIB -- that LMDB keeps for the next commit group, and malloc between blocks

  local function put_all(client, prefix, n)
    for from = 1, n, OPS do
      local ops = {}
      for i = from, math.min(n, from + OPS - 1) do
        ops[#ops + 1] = { put = ("%s%08d"):format(prefix, i), value = ("v"):rep(100) }
      end
      assert(client:txn { success = ops, timeout = 60 })
    end
  end

  --- Starts a server with keys that stay, and, if `has_load`, many more that are deleted at once and compacted.
  local function start(kind, has_load)
    local peer = server.start { is_in_memory = kind == "in memory" }
    keywatch.run(function()
      local client = assert(keywatch.connect(peer.url))
      put_all(client, "/base/", BASE)
      if has_load then
        put_all(client, "/load/", LOAD)
        assert(client:delete("/load/", { prefix = true, timeout = 60 }))
      end
      local last = assert(client:put("/last", ""))
      assert(client:compact(last.revision, { physical = true, timeout = 60 }))
      client:close()
    end)
    return peer
  end

  describe("a step", function()
    it("frees a bounded part of the memory", function()
      local all, most = program.printed_by([[
        local keywatch, memory_of = require "keywatch", require("spec.support.proc").anonymous
        require "spec.support.inner"
        local store = keywatch.open { now = 0 }
        for i = 1, 30000 do store:put(("k%05d"):format(i), ("v"):rep(1000)) end
        store:delete("k", { prefix = true })
        store:compact(store:put("last", "").revision)
        collectgarbage()
        collectgarbage("stop")
        local before, most, at = memory_of("self"), 0, memory_of("self")
        while store:deadline() do
          store:step(store:deadline())
          local now = memory_of("self")
          most, at = math.max(most, at - now), now
        end
        print(before - at, most)
      ]]):match("(%S+)\t(%S+)")
      assert(tonumber(all) > 20 * MIB, all .. " bytes were freed")
      assert(tonumber(most) < 16 * MIB, most .. " bytes in one step")
    end)
  end)

  describe("a process #slow", function()
    for _, kind in ipairs { "in memory", "on a disk" } do
      it("gives the memory of a store " .. kind .. " back to the system", function()
        local without, with = start(kind, false), start(kind, true)
        local end_at = os.time() + PATIENCE
        local function most() return memory_of(without.pid) * ROOM + PARTS end
        while memory_of(with.pid) > most() and os.time() < end_at do keywatch.sleep(0.1) end
        local has, may_have = memory_of(with.pid), most()
        without:stop()
        with:stop()
        assert(has <= may_have, ("%.1f MB, and at most %.1f MB"):format(has / MIB, may_have / MIB))
      end)
    end
  end)
  return
end


local function key(i) return ("/registry/pods/%06d"):format(i) end

--- Puts the keys that every store has at the end.
local function fill(store)
  for i = 1, KEYS do assert(store:put(key(i), "value")) end
end

local function put_many(store, prefix, n, opts)
  for i = 1, n do assert(store:put(prefix .. i, "load", opts)) end
end

local loads = {
  ["updates of all keys"] = function(store)
    for round = 1, 20 do
      for i = 1, KEYS do assert(store:put(key(i), "round" .. round)) end
    end
    fill(store)
  end,
  ["updates of one key"] = function(store)
    for _ = 1, 20 * KEYS do assert(store:put(key(1), "often")) end
    assert(store:put(key(1), "value"))
  end,
  ["many keys that are deleted at once"] = function(store)
    put_many(store, "load/", 4 * KEYS)
    assert.equal(4 * KEYS, assert(store:delete("load/", { prefix = true })).deleted)
  end,
  ["many keys that are deleted one by one"] = function(store)
    put_many(store, "load/", 2 * KEYS)
    for i = 1, 2 * KEYS do assert(store:delete("load/" .. i)) end
  end,
  ["a lease with many keys that is revoked"] = function(store)
    local lease = assert(store:lease(1000))
    put_many(store, "load/", 4 * KEYS, { lease = lease.id })
    assert(lease:revoke())
  end,
  ["a lease that loses all keys but one"] = function(store)
    local lease = assert(store:lease(1000, { id = 7 }))
    put_many(store, "load/", 4 * KEYS, { lease = lease.id })
    assert(store:put(key(1), "value", { lease = lease.id }))
    assert(store:delete("load/", { prefix = true }))
  end,
  ["many leases"] = function(store)
    local leases = {}
    for i = 1, 4 * KEYS do leases[i] = assert(store:lease(1000)) end
    for i = 1, 4 * KEYS do assert(leases[i]:revoke()) end
  end,
  ["a transaction that fails late"] = function(store)
    put_many(store, "load/", 4 * KEYS)
    local put = { put = "x", value = "", lease = 99 } -- there is no such lease
    assert.is_nil(store:txn { success = { { delete = "load/", prefix = true }, put } })
    assert(store:delete("load/", { prefix = true }))
  end,
  ["many watches"] = function(store)
    local watches = {}
    for i = 1, 4 * KEYS do watches[i] = assert(store:watch(key(i), { prefix = i % 2 == 0, progress = true })) end
    for i = 1, 4 * KEYS do watches[i]:close() end
  end,
}

--- Returns the bytes of a store after a load, a compaction, and all steps.
local function measure(path, load)
  collectgarbage()
  local before = probe.bytes()
  local store = assert(keywatch.open { now = 0, path = path })
  fill(store)
  load(store)
  assert(store:put(key(1), "value")) -- a delete at the compacted revision itself stays known
  assert(store:compact(store:status().revision, { physical = true }))
  while store:step(0) do end -- records that the disk has are freed in steps
  store:get(key(1))
  collectgarbage()
  local bytes = probe.bytes() - before
  probe.check(store)
  assert.equal(KEYS, store:range("", { prefix = true, count_only = true }).count)
  store:close()
  return bytes
end

for kind, new_path in pairs { ["in memory"] = function() end, ["on a disk"] = directory.new } do
  describe("a store " .. kind .. " gives back the memory of", function()
    teardown(directory.remove_all)

    local least
    setup(function() least = measure(new_path(), fill) end)

    for what, load in pairs(loads) do
      it(what, function()
        local bytes = measure(new_path(), load)
        assert(bytes <= least * ROOM + SLACK, ("%d bytes, and %d without the load"):format(bytes, least))
      end)
    end
  end)
end
