-- SPDX-License-Identifier: MIT
--- What the store costs from Lua, on one core: speed and memory, with keys in order and at random.
--
--   lua5.4 bench/store.lua [part]
--
-- Timings on a shared machine are noisy; ranges are therefore also given as a ratio to what building the same
-- Lua tables costs in the same run, which no store can beat.

package.path = arg[0]:match("^(.-)[^/]*$") .. "?.lua;" .. package.path

local keywatch = require "keywatch"
local measure = require "measure"

local resident, rate, report = measure.resident, measure.rate, measure.report

local N = 1000000
local KEY_BYTES, VALUE_BYTES, PAGE = 32, 256, 1000
local OPS = 1000 -- of a transaction
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

local function sorted_keys()
  local keys = {}
  for i = 1, N do keys[i] = key_of(i) end
  return keys
end

local function measure_speed(sorted, keys, targets)
  local store = keywatch.open()
  report("put", rate(N, 1, function()
    for i = 1, N do store:put(keys[i], value) end
  end), "puts/s", targets.put)
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
  report("range against tables", 100 * ranges / tables, "percent", "at least 60")
  report("the first 1000 of all keys, values left out", rate(1000, ROUNDS, function()
    for _ = 1, 1000 do store:range("", { prefix = true, limit = PAGE, keys_only = true }) end
  end), "ranges/s", "")
  report("put again", rate(N, 1, function()
    for i = 1, N do store:put(keys[i], value) end
  end), "puts/s", "")
  report("compaction of what that replaced", rate(N, 1, function()
    store:compact(store:status().revision, { physical = true })
  end), "records/s", "")
  report("hash of everything", rate(N, 1, function() store:hash_kv() end), "records/s", "")
  store:close()
end

--- Lua keeps nothing here, so that all the process grows by is the store's.
local function measure_memory(step)
  local before = resident()
  local store = keywatch.open()
  for i = 1, N do store:put(key_of(i * step % N), value) end
  collectgarbage()
  assert(store:status().keys == N)
  local bytes = (resident() - before) / N - KEY_BYTES - VALUE_BYTES
  report("memory for a key, beyond its key and value", bytes, "bytes", "at most 200")
  store:close()
end

--- What a read in the past costs must not grow with the history of its key.
local function measure_past(revisions)
  local store = keywatch.open()
  for _ = 1, revisions do store:put("hot", "v") end
  report(("get in the past of a key with %d revisions"):format(revisions), rate(200000, ROUNDS, function()
    for i = 1, 200000 do store:get("hot", { revision = 2 + i * 7919 % revisions }) end
  end), "gets/s", "")
  store:close()
end

--- Has the kernel forget the pages of a file, so that the next reader reads the disk.
local function forget_pages(path)
  os.execute(("sync -d '%s' && dd if='%s' iflag=nocache count=0 2>/dev/null"):format(path, path))
end

--- The clock's seconds, since a process that waits for its disk takes no processor time.
local function now()
  local f = assert(io.popen("date +%s.%N"))
  local seconds = tonumber((f:read("l")))
  f:close()
  return seconds
end

local function measure_opening(step)
  local f = assert(io.popen("mktemp -d"))
  local path = f:read("l")
  f:close()
  local store = assert(keywatch.open { path = path, max_txn_ops = OPS })
  for i = 1, N, OPS do
    local ops = {}
    for j = i, i + OPS - 1 do ops[#ops + 1] = { put = key_of(j * step % N), value = value } end
    assert(store:txn { success = ops })
  end
  store:close()
  for _, how in ipairs { "cold", "warm" } do
    if how == "cold" then forget_pages(path .. "/data.mdb") end
    local start = now()
    store = assert(keywatch.open { path = path, max_txn_ops = OPS })
    report(("opening, with a %s page cache"):format(how), now() - start, "s", how == "cold" and "at most 1.5" or "")
    store:close()
  end
  os.execute(("rm -r '%s'"):format(path))
end

local parts = {
  { "speed in key order", function()
    local sorted = sorted_keys()
    measure_speed(sorted, sorted, { put = "at least 500,000", get = "at least 800,000" })
  end },
  { "speed at random", function()
    local sorted = sorted_keys()
    measure_speed(sorted, shuffled(sorted), { put = "at least 300,000", get = "at least 450,000" })
  end },
  { "memory in key order", function() measure_memory(1) end },
  { "memory at random", function() measure_memory(7368787) end }, -- a prime: every key, far from the one before
  { "one key with a long history", function()
    measure_past(100)
    measure_past(100000)
  end },
  { "opening of a durable store, keys in order", function() measure_opening(1) end },
  { "opening of a durable store, keys at random", function() measure_opening(7368787) end },
}

measure.run(("%d keys of %d bytes with values of %d bytes"):format(N, KEY_BYTES, VALUE_BYTES), parts)
