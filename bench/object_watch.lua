-- SPDX-License-Identifier: MIT
--- What an object watch costs a client: processor time for each update of a value of 256 bytes, beside an ordinary
--- watch of the same updates.
--
--   lua5.4 bench/object_watch.lua
--
-- The server is a process of its own, and so is the reader, on each VM. Updates are made while the reader reads.

local HERE = arg[0]:match("^(.-)[^/]*$")
package.path = HERE .. "?.lua;" .. package.path

local keywatch = require "keywatch"
local measure = require "measure"

local ROUNDS = 3
local UPDATES = 200000
local WARMING = 20000 -- updates before the clock starts
local IN_FLIGHT = 64
local KEYS = 1000
local PREFIX = "/registry/pods/"
local TARGETS = { ["lua5.4"] = "at most 8", luajit = "at most 4" }

-- {====== The reader ======

local readers = {}

--- An ordinary watch.
function readers.plain(client)
  return client:watch(PREFIX, { prefix = true })
end

--- An ordinary watch with previous values, which is what an object watch stands on.
function readers.previous(client)
  return client:watch(PREFIX, { prefix = true, prev_kv = true })
end

--- An object watch without a codec.
function readers.object(client)
  return client:object_watch(PREFIX, { prefix = true })
end

--- An object watch that a function chooses for.
function readers.where(client)
  return client:object_watch(PREFIX, { prefix = true, where = function(value) return #value > 0 end })
end

--- An object watch of JSON.
function readers.json(client)
  return client:object_watch(PREFIX, { prefix = true, codec = "json" })
end

--- An object watch of JSON that a dispatcher gives out.
function readers.selector(client)
  return client:object_watch(PREFIX, { prefix = true, codec = "json", fields = "kind=pod" })
end

--- Reads all updates. Prints the processor time for one.
local function read(url, kind)
  local client = keywatch.connect(url)
  local watch = assert(readers[kind](client))
  print("watching")
  io.stdout:flush()
  local n, start = 0, nil
  for _ in watch:events() do
    n = n + 1
    if n == WARMING then start = os.clock() end
    if n == WARMING + UPDATES then break end
  end
  print(("us=%f"):format((os.clock() - start) / UPDATES * 1e6))
  client:close()
end

-- }======

-- {====== The writer ======

local value = '{"kind":"pod","text":"' .. ("v"):rep(256 - 24) .. '"}'
assert(#value == 256)

--- Makes so many updates.
local function write(client, n)
  local tasks = {}
  for first = 1, IN_FLIGHT do
    tasks[first] = keywatch.spawn(function()
      for i = first, n, IN_FLIGHT do assert(client:put(PREFIX .. ("%09d"):format(i % KEYS), value)) end
    end)
  end
  for _, task in ipairs(tasks) do task:join() end
end

--- Returns the command of a VM.
local function command_of(vm)
  local version = vm == "luajit" and "5.1" or "5.4"
  local share, lib = ("build/%s/share/lua/%s"):format(vm, version), ("build/%s/lib/lua/%s"):format(vm, version)
  return ("env -u LUA_PATH_5_4 -u LUA_CPATH_5_4 'LUA_PATH=%s/?.lua;%s/?/init.lua;;' 'LUA_CPATH=%s/?.so;;' %s")
    :format(share, share, lib, vm)
end

--- Returns the microseconds that a reader takes for one update.
local function measure_reader(vm, kind)
  local server = assert(keywatch.serve { thread = true, open = {}, listen = "http://127.0.0.1:0" })
  local url = server:addresses()[1]
  local client = keywatch.connect(url)
  keywatch.run(write, client, KEYS)
  local pipe = assert(io.popen(("exec %s %s %s %s"):format(command_of(vm), arg[0], url, kind)))
  assert(pipe:read("*l") == "watching", kind .. " has failed")
  keywatch.run(write, client, WARMING + UPDATES)
  local line = pipe:read("*l") or ""
  pipe:close()
  client:close()
  server:close()
  return (assert(tonumber(line:match("us=(%S+)")), kind .. " has failed"))
end

-- }======

if #arg >= 2 then return read(arg[1], arg[2]) end

print("Object watches, of a client, " .. _VERSION)
for _, vm in ipairs { "lua5.4", "luajit" } do
  for _, case in ipairs {
    { "plain", "an update to an ordinary watch" },
    { "previous", "the same with the previous value" },
    { "object", "an update to an object watch without codec", TARGETS[vm] },
    { "where", "the same with a function that chooses" },
    { "json", "an update to an object watch of JSON" },
    { "selector", "the same with a field selector, shared" },
  } do
    if not arg[1] or arg[1] == case[1] then
      local best = math.huge
      for _ = 1, ROUNDS do best = math.min(best, measure_reader(vm, case[1])) end
      measure.report(vm .. ": " .. case[2], best, "us", case[3])
    end
  end
end
