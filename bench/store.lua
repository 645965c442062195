-- SPDX-License-Identifier: MIT
--- What the store costs from Lua, on one core: speed and memory, with keys in order and at random.
--
--   lua5.4 bench/store.lua [number of keys]
--
-- Timings on a shared machine are noisy; ranges are therefore also given as a ratio to what building the same
-- Lua tables costs in the same run, which no store can beat.

local keywatch = require "keywatch"

local N = tonumber(arg[1]) or 1000000
local KEY_BYTES, VALUE_BYTES, PAGE = 32, 256, 1000
local ROUNDS = 3 -- of reading; the best counts

local value = ("v"):rep(VALUE_BYTES)

local function key_of(i)
  return ("/registry/pods/default/%09d"):format(i)
end
assert(#key_of(1) == KEY_BYTES)

local function shuffled(list)
  local copy = {}
  for i = 1, #list do copy[i] = list[i] end
  for i = #copy, 2, -1 do
    local j = math.random(i)
    copy[i], copy[j] = copy[j], copy[i]
  end
  return copy
end

local function resident()
  local f = assert(io.open("/proc/self/statm"))
  local pages = f:read("a"):match("^%d+ (%d+)")
  f:close()
  return tonumber(pages) * 4096
end

--- Runs fn `rounds` times, and returns how many of its `n` acts it does in a second, at best.
local function rate(n, rounds, fn)
  local best = 0
  for _ = 1, rounds do
    collectgarbage()
    local start = os.clock()
    fn()
    best = math.max(best, n / (os.clock() - start))
  end
  return best
end

local function report(name, found, unit, target)
  print(("  %-44s %12.0f %-10s %s"):format(name, found, unit, target))
end

--- Builds what a range returns, out of strings that have to be made, and does nothing else.
local function build_tables(keys, from)
  local text = table.concat(keys, "", from, from + PAGE - 1)
  local values = value:rep(4)
  local kvs = {}
  for i = 1, PAGE do
    local at = (i - 1) * KEY_BYTES
    local offset = i % (3 * VALUE_BYTES)
    kvs[i] = {
      key = text:sub(at + 1, at + KEY_BYTES),
      value = values:sub(offset + 1, offset + VALUE_BYTES),
      create_revision = i,
      mod_revision = i,
      version = 1,
      lease = 0,
    }
  end
  return { revision = 1, kvs = kvs, count = PAGE, more = false }
end

local sorted = {}
for i = 1, N do sorted[i] = key_of(i) end

local function measure(title, keys, targets)
  print(title)
  collectgarbage()
  local before = resident()
  local store = keywatch.open()
  report("put", rate(N, 1, function()
    for i = 1, N do store:put(keys[i], value) end
  end), "puts/s", targets.put)
  collectgarbage()
  local bytes = (resident() - before) / N
  report("memory for a key, beyond its key and value", bytes - KEY_BYTES - VALUE_BYTES, "bytes", "at most 200")
  report("get", rate(N, ROUNDS, function()
    for i = 1, N do store:get(keys[i]) end
  end), "gets/s", targets.get)

  local pages = math.floor(N / PAGE)
  local ranges = rate(pages * PAGE, ROUNDS, function()
    for p = 0, pages - 1 do
      local result = store:range(sorted[p * PAGE + 1], { range_end = sorted[(p + 1) * PAGE] .. "\0" })
      assert(#result.kvs == PAGE)
    end
  end)
  local tables = rate(pages * PAGE, ROUNDS, function()
    for p = 0, pages - 1 do build_tables(sorted, p * PAGE + 1) end
  end)
  report(("range of %d"):format(PAGE), ranges, "kvs/s", "")
  report("the same tables without a store", tables, "kvs/s", "")
  report("ratio, percent", 100 * ranges / tables, "%", "at least 60")
  report("range of all, limit 1000", rate(1000, ROUNDS, function()
    for _ = 1, 1000 do store:range("", { prefix = true, limit = PAGE, keys_only = true }) end
  end), "ranges/s", "")
  report("put again", rate(N, 1, function()
    for i = 1, N do store:put(keys[i], value) end
  end), "puts/s", "")
  local start = os.clock()
  store:compact(store:status().revision, { physical = true })
  report("compaction of as many old revisions", N / (os.clock() - start), "records/s", "")
  start = os.clock()
  store:hash_kv()
  report("hash of everything", (os.clock() - start) * 1000, "ms", "")
  store:close()
end

print(("%d keys of %d bytes with values of %d bytes, %s"):format(N, KEY_BYTES, VALUE_BYTES, _VERSION))
measure("in key order", sorted, { put = "at least 500,000", get = "at least 800,000" })
measure("at random", shuffled(sorted), { put = "at least 300,000", get = "at least 450,000" })

--- A key with a long history: what a read in the past costs must not grow with it.
print("one key with a long history")
for _, revisions in ipairs { 100, 100000 } do
  local store = keywatch.open()
  for _ = 1, revisions do store:put("hot", "v") end
  report(("get in the past, of %d revisions"):format(revisions), rate(200000, ROUNDS, function()
    for i = 1, 200000 do store:get("hot", { revision = 2 + i * 7919 % revisions }) end
  end), "gets/s", "")
  store:close()
end
