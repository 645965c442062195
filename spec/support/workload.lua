--- The requests to a durable store while its disk fails: steps of spec.support.durable.

local new_random = require("spec.support.random").new

local BIG = ("big "):rep(1000)      -- more than a page
local HUGE = ("huge "):rep(20000)   -- many pages
local BULK = ("bulk "):rep(60000)   -- more than a segment takes: written as a direct group to the database
local SMALL_JOURNAL = 65536         -- bytes of a segment, the smallest size

--- Steps of every kind. "reopen" closes the store and opens it again.
local script = {
  { "put", "a", "1" },
  { "txn", { success = { { put = "c/1", value = "x" }, { put = "c/2", value = BIG }, { delete = "a" } } } },
  { "grant", 7, 60 },
  { "put", "leased", "y", { lease = 7 } },
  { "delete", "c/", { prefix = true } },
  { "compact", 1, { physical = true } },
  { "put", "huge", HUGE },
  "reopen",
  { "put", "a", "2" },
  { "revoke", 7 },
  { "arm", "no_space" },
  { "delete", "huge" },
  { "disarm", "no_space" },
  { "compact", 1 },
  { "put", "last", BIG },
}

local function key(random) return "key " .. random:between(1, 9) end

local kinds = {
  { 8, function(random) return { "put", key(random), ("v"):rep(random:between(0, 300)) } end },
  { 2, function(random) return { "put", key(random), ("w"):rep(random:between(0, 30000)) } end },
  { 3, function(random) return { "delete", key(random) } end },
  { 1, function() return { "delete", "key ", { prefix = true } } end },
  { 3, function(random)
    local success = {}
    for i = 1, random:between(1, 9) do
      success[i] = random:one_in(3) and { delete = "key " .. i }
        or { put = "key " .. i, value = ("t"):rep(random:between(0, 3000)) }
    end
    return { "txn", { success = success } }
  end },
  { 1, function(random)
    local back, physical = random:between(0, 5), random:one_in(2)
    return { "compact", back, { physical = physical }, name = physical and "physical" or nil }
  end },
  { 1, function() return { "put", "bulk", BULK, name = "bulk" } end },
}

local function segment_bytes(random) return random:pick { SMALL_JOURNAL, SMALL_JOURNAL, 131072, 1048576 } end

--- Steps that do not change the data of a store, for spec/support/power_program.lua.
local neutral = {
  { 3, function() return { "pass", is_neutral = true } end },
  { 1, function(random) return { "reopen", segment_bytes(random), is_neutral = true } end },
  { 1, function() return { "defragment", is_neutral = true } end },
  { 1, function() return { "snapshot", is_neutral = true } end },
  { 1, function() return { "restore", is_neutral = true } end },
}

--- Returns a function that returns a random step at each call, depending on the seed. No lease expires during the
-- steps.
local function at_random(seed)
  local random = new_random(seed)
  local id = 0
  local leases = {}
  return function()
    if random:one_in(8) then
      id = id + 1
      leases[#leases + 1] = id
      return { "grant", id, random:between(1000, 9000) }
    end
    if #leases > 0 and random:one_in(12) then return { "revoke", table.remove(leases) } end
    if #leases > 0 and random:one_in(8) then
      return { "put", key(random), "of a lease", { lease = random:pick(leases) } }
    end
    return random:weighted(random:one_in(4) and neutral or kinds)(random)
  end
end

return { script = script, at_random = at_random, segment_bytes = segment_bytes }
