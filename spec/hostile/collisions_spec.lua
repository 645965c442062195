--- A peer that chooses ids and keys that collide in a table with a known hash function. A build with a probe counts the
-- slots that searches visit.

local pair = require "spec.support.pair"
local probed = require "spec.support.probed"

local probe = probed.get("work of hash tables")
if not probe then return end

local N = 256 -- ids, or keys, that collide
local WORK = 16 -- slots that a search may look at, on average: a table is up to three quarters full, and grows
local SEEDS = { 0, 1, 12345, false } -- false: a random one

--- The function of MurmurHash3's finalizer that is its own inverse, its two factors, and 1: in numbers of 64 bits.
local shift, ONE, TWO, UNIT = assert(load(_VERSION == "Lua 5.4" and [[
  return function(x) return x ~ x >> 33 end, 0xff51afd7ed558ccd, 0xc4ceb9fe1a85ec53, 1]] or [[
  local bit = require "bit"
  return function(x) return bit.bxor(x, bit.rshift(x, 33)) end, 0xff51afd7ed558ccdLL, 0xc4ceb9fe1a85ec53LL, 1LL]]))()

local function mix(x, one, two) return shift(shift(shift(x) * one) * two) end

local function inverse(odd)
  local x = odd
  for _ = 1, 5 do x = x * (2 - odd * x) end
  return x
end

--- Decimal ids whose hashes ended with sixteen zero bits while the hash of a number was that finalizer, without a seed.
local function colliding_ids()
  local ids, i = {}, 0 * UNIT
  while #ids < N do
    i = i + 65536
    local id = mix(i, inverse(TWO), inverse(ONE))
    assert(mix(id, ONE, TWO) == i)
    if id > 0 then ids[#ids + 1] = tostring(id):match("%d+") end
  end
  return ids
end

--- Keys that collided under every seed while each word of eight bytes was added by xor, multiplied by a known odd
-- number, and its upper half added to the lower one by xor: a difference in bit 63 became one in the bits 63 and 31,
-- which the next word can undo.
local function colliding_keys()
  local keys = { "" }
  while #keys < N do
    local longer = {}
    for _, key in ipairs(keys) do
      longer[#longer + 1] = key .. "aaaaaaaa" .. "aaaaaaaa"
      longer[#longer + 1] = key .. "aaaaaaa\225" .. "aaa\225aaa\225"
    end
    keys = longer
  end
  return keys
end

--- Calls fn with hosts of stores of several seeds. Each must look at few slots.
local function has_little_work(fn)
  for _, seed in ipairs(SEEDS) do
    local host = pair.host { now = 0, seed = seed or nil }
    local before = probe.hash_visits()
    fn(host)
    local visits = probe.hash_visits() - before
    assert(visits <= WORK * N, ("seed %s: %d slots for %d keys"):format(seed, visits, N))
    host:close()
  end
end

describe("a table whose keys are chosen by a peer", function()
  local ids = colliding_ids()
  local keys = colliding_keys()

  it("finds lease ids that are made to collide", function()
    has_little_work(function(host)
      for _, id in ipairs(ids) do assert(host.store:lease(100, { id = id })) end
      for _, id in ipairs(ids) do assert(host.store:lease_by_id(id):revoke()) end
    end)
  end)

  it("finds watch ids that are made to collide", function()
    has_little_work(function(host)
      local stream = host:client():stream("Watch")
      for _, id in ipairs(ids) do stream:send { create_request = { key = "a", watch_id = id } } end
      assert.equal(N, #stream:take())
      for _, id in ipairs(ids) do stream:send { cancel_request = { watch_id = id } } end
      assert.equal(N, #stream:take())
    end)
  end)

  it("finds watched keys that are made to collide", function()
    has_little_work(function(host)
      local watches = {}
      for i, key in ipairs(keys) do watches[i] = host.store:watch(key) end
      for _, key in ipairs(keys) do host.store:put(key, "v") end
      for _, watch in ipairs(watches) do assert(watch:next(0).type == "put") end
    end)
  end)

  it("finds watched prefixes that are made to collide", function()
    has_little_work(function(host)
      local watches = {}
      for i, key in ipairs(keys) do watches[i] = host.store:watch(key, { prefix = true }) end
      for _, key in ipairs(keys) do host.store:put(key, "v") end
      for _, watch in ipairs(watches) do assert(watch:next(0).type == "put") end
    end)
  end)
end)
