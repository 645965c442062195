-- SPDX-License-Identifier: MIT
--- What the file of a cache costs: how long the loop is held when a write begins and when it ends, how long the thread
--- writes, and how long a start from the file takes.
--
--   lua5.4 bench/cache_file.lua [part]

local HERE = arg[0]:match("^(.-)[^/]*$")
package.path = HERE .. "?.lua;" .. package.path

local core = require "keywatch.core"
local keywatch = require "keywatch"
local measure = require "measure"

local KEYS, KEY_BYTES, VALUE_BYTES = 100000, 32, 256
local ROUNDS = 10
local STEP = 2000 -- keys, as in lua/keywatch/cache/content_file.lua
local PREFIX, RANGE_END = "/registry/", "/registry0"
local PATH = os.tmpname()

--- Returns a replica with so many keys. They were written in another order than that of keys.
local function replica_of(n)
  local replica, state, kvs = core.open { replica = true }, core.feed_state(PREFIX, RANGE_END), {}
  local format = PREFIX .. "%0" .. KEY_BYTES - #PREFIX .. "d"
  for i = 1, n do
    kvs[i] = { key = format:format(i * 7919 % n), value = ("%08d"):format(i):rep(VALUE_BYTES / 8),
      create_revision = i + 1, mod_revision = i + 1, version = 1 }
  end
  table.sort(kvs, function(a, b) return a.key < b.key end)
  assert(state:add(core.encode("RangeResponse", { header = { revision = n + 1 }, kvs = kvs, count = n })))
  while assert(core.inner.load(replica, state) ~= nil) and replica:status().keys == 0 do end -- luacheck: ignore 542
  state:close()
  return replica
end

--- The seconds that a call takes, by the clock.
local function clocked(fn, ...)
  local start = keywatch.now()
  assert(fn(...) ~= nil)
  return keywatch.now() - start
end

--- The longest of all rounds, since the loop is held so long at worst.
local function write(n)
  local replica, writer = replica_of(n), core.content_writer(PATH)
  local begin, step, whole = 0, 0, 0
  for _ = 1, ROUNDS do
    local start = keywatch.now()
    assert(core.inner.write_content(replica, writer, PREFIX, RANGE_END, "1", 1))
    repeat
      local before = keywatch.now()
      local is_writing = core.inner.hold_content(replica, writer, STEP)
      begin = math.max(begin, keywatch.now() - before)
    until is_writing
    while true do
      local before = keywatch.now()
      local done = writer:is_done()
      step = math.max(step, keywatch.now() - before)
      if done then break end
      assert(done == false)
      keywatch.sleep(0.001)
    end
    whole = math.max(whole, keywatch.now() - start)
  end
  writer:close()
  local load = 0
  for _ = 1, ROUNDS do
    local other = core.open { replica = true }
    load = math.max(load, clocked(core.inner.load_content, other, PATH, PREFIX, RANGE_END))
    assert(other:status().keys == n)
    other:close()
  end
  os.remove(PATH)
  measure.report("the loop is held by a step of its begin, at most", begin * 1e3, "ms")
  measure.report("the loop is held by a step of its end, at most", step * 1e3, "ms")
  measure.report("from the begin until the file is there, at most", whole * 1e3, "ms")
  measure.report("a start from the file, at most", load * 1e3, "ms")
end

measure.run("the file of a cache", {
  { ("%d keys, values of %d bytes"):format(KEYS, VALUE_BYTES), function() write(KEYS) end },
  { ("%d keys, values of %d bytes"):format(KEYS / 100, VALUE_BYTES), function() write(KEYS / 100) end },
})
