-- SPDX-License-Identifier: MIT
--- What watching costs from Lua, on one core: for the writer, for the core up to its outlets, for a reader, in memory.
--
--   lua5.4 bench/watch.lua [part]
--
-- Timings on a shared machine are noisy: what is to be compared is measured in turns, and the best of each counts.

package.path = arg[0]:match("^(.-)[^/]*$") .. "?.lua;" .. package.path

local keywatch = require "keywatch"
local measure = require "measure"

local resident, seconds, report = measure.resident, measure.seconds, measure.report

local ROUNDS = 5

local value = ("v"):rep(256)

local function key_of(i)
  return ("/registry/pods/default/%09d"):format(i)
end

--- Watches keys between those that are written: half of them single keys, half of them ranges.
local function watch_others(store, n, kind, from)
  local handles = {}
  for i = 1, n do
    local key = key_of(((from or 0) + i) * 10) .. "/x"
    local opts = {}
    if i % 2 == 0 then
      if kind == "prefixes" then opts.prefix = true else opts.range_end = key .. "~" end
    end
    handles[i] = assert(store:open_watch(key, opts))
  end
  return handles
end

local function shuffled(n, step)
  local keys = {}
  for i = 1, n do keys[i] = key_of(i * step % (10 * n)) end
  return keys
end

--- The same puts into two stores in turns, one of them watched.
local function measure_writer(title, kind, step)
  local N, WATCHERS = 200000, 100000
  local keys = shuffled(N, step)
  local plain, watched = keywatch.open(), keywatch.open()
  local handles = watch_others(watched, WATCHERS, kind)
  local function put_all(store)
    for i = 1, N do store:put(keys[i], value) end
  end
  put_all(plain)
  put_all(watched)
  local best_plain, best_watched = math.huge, math.huge
  for _ = 1, ROUNDS do
    best_plain = math.min(best_plain, seconds(function() put_all(plain) end))
    best_watched = math.min(best_watched, seconds(function() put_all(watched) end))
  end
  report(title .. ": put without watchers", best_plain / N * 1e6, "us")
  report(title .. ": put beside 100,000 watchers", best_watched / N * 1e6, "us")
  report(title .. ": ratio", best_watched / best_plain, "", "at most 1.2")
  assert(#handles == WATCHERS)
end

local function measure_opening()
  for _, n in ipairs { 10000, 100000, 1000000 } do
    local store = keywatch.open()
    local handles
    local opening = seconds(function() handles = watch_others(store, n, "prefixes") end)
    report(("open one of %d watchers"):format(n), opening / n * 1e6, "us")
    local closing = seconds(function()
      for i = 1, n do handles[i]:close() end
    end)
    report(("close one of %d watchers"):format(n), closing / n * 1e6, "us")
  end
end

--- Garbage is collected all the time here, so that all that the process grows by is what is kept.
local function measure_memory()
  local N, STEP = 1000000, 10000
  local store = keywatch.open()
  local handles = {}
  for i = 1, N do handles[i] = false end
  collectgarbage()
  local before, lua_before = resident(), collectgarbage("count") * 1024
  for from = 0, N - STEP, STEP do
    local some = watch_others(store, STEP, "prefixes", from)
    for i = 1, STEP do handles[from + i] = some[i] end
    collectgarbage()
  end
  local lua = collectgarbage("count") * 1024 - lua_before
  report("an idle watcher in the core, and what malloc adds", (resident() - before - lua) / N, "bytes", "at most 256")
  report("its handle in Lua", lua / N, "bytes")
  assert(#handles == N)
end

local function measure_objects()
  local N = 100000
  local store = keywatch.open()
  local before = collectgarbage("count") * 1024
  local watches = {}
  for i = 1, N do watches[i] = store:watch(key_of(i)) end
  collectgarbage()
  report("a watch object in Lua, its handle included", (collectgarbage("count") * 1024 - before) / N, "bytes")
  assert(#watches == N)
end

local function measure_fan_out()
  local WATCHERS, PUTS = 1000, 500
  local store = keywatch.open()
  local handles = {}
  for i = 1, WATCHERS do handles[i] = store:open_watch("key", { max_bytes = 1e9 }) end
  local best = math.huge
  for _ = 1, ROUNDS do
    best = math.min(best, seconds(function()
      for _ = 1, PUTS do store:put("key", value) end
    end))
    for i = 1, WATCHERS do
      while handles[i]:take() do end
    end
  end
  report("events to 1,000 watchers of one key, up to their outlets", WATCHERS * PUTS / best, "events/s",
    "at least 3,000,000")
end

local function measure_history()
  local N = 500000
  local store = keywatch.open()
  for i = 1, N do store:put(key_of(i % 1000), value) end
  local best = math.huge
  for _ = 1, ROUNDS do
    local watch = store:watch("/registry/", { prefix = true, start_revision = 2 })
    local n = 0
    best = math.min(best, seconds(function()
      for _ in watch:events() do
        n = n + 1
        if n == N then break end
      end
    end))
    watch:close()
  end
  report("events from history into a for loop", N / best, "events/s", "at least 700,000")
end

local parts = {
  { "a writer beside watchers of other keys, prefixes", function()
    measure_writer("in key order", "prefixes", 1)
    measure_writer("at random", "prefixes", 7368787)
  end },
  { "a writer beside watchers of other keys, ranges", function()
    measure_writer("in key order", "ranges", 1)
    measure_writer("at random", "ranges", 7368787)
  end },
  { "delivery", function()
    measure_fan_out()
    measure_history()
  end },
  { "opening and closing", measure_opening },
  { "memory", measure_memory },
  { "memory of objects", measure_objects },
}

measure.run("watching", parts)
