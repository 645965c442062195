-- SPDX-License-Identifier: MIT
--- A cache at work, for bench/cache.lua. `peer cache` of spec/support/go is the same program with etcd's client for Go,
-- and a map.
--
--   cache_peer.lua URL cache PREFIX N [WATCHES]
--
-- It says "ready" when the cache has content, with the seconds that this took, those of its processor, and the bytes
-- that its memory has grown by. With WATCHES it opens so many local watches then, each of another key, and tells what
-- was written to the server meanwhile. It says "updated" when N more revisions have come.

local HERE = arg[0]:match("^(.-)[^/]*$")
package.path = HERE .. "?.lua;" .. package.path

local keywatch = require "keywatch"
local measure = require "measure"

local url, prefix, n, n_watches = arg[1], arg[3], tonumber(arg[4]), tonumber(arg[5])

local function moment()
  return { seconds = keywatch.now(), cpu = os.clock() }
end

local function say(what, start, more)
  local stop = moment()
  print(("%s seconds=%.6f cpu=%.6f %s"):format(what, stop.seconds - start.seconds, stop.cpu - start.cpu, more))
  io.stdout:flush()
end

local function resident()
  collectgarbage()
  collectgarbage()
  return measure.resident()
end

--- Bytes that this process has written to sockets and files.
local function written()
  local file = assert(io.open("/proc/self/io"))
  local text = file:read("*a")
  file:close()
  return tonumber(text:match("wchar: (%d+)"))
end

--- Opens local watches of keys that nobody changes.
local function open_watches(client, cache)
  local before, start, had = resident(), moment(), written()
  local watches = {}
  for i = 1, n_watches do watches[i] = assert(cache:watch(("%s%d/x"):format(prefix, i))) end
  keywatch.sleep(0.1)
  local sent = written() - had
  say("watching", start, ("bytes=%d written=%d upstream=%d"):format(resident() - before, sent,
    (client.transport.watch_calls:count())))
  return watches
end

local client = keywatch.connect(url)
client:get(prefix)
local before = resident()
local start = moment()
local cache = assert(client:cache(prefix))
assert(cache:wait_ready())
local took = moment()
start.seconds, start.cpu = start.seconds - took.seconds, start.cpu - took.cpu
local status, grown = cache:status(), resident() - before
local now = moment()
say("ready", { seconds = now.seconds + start.seconds, cpu = now.cpu + start.cpu },
  ("keys=%d bytes=%d"):format(status.keys, grown))
local watches = n_watches and open_watches(client, cache)
start = moment()
assert(cache:wait_for(status.revision + n))
say("updated", start, ("keys=%d"):format(cache:status().keys))
assert(not watches or #watches == n_watches)
client:close()
