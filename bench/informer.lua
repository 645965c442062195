-- SPDX-License-Identifier: MIT
--- What an informer costs its client, with one index and one handler: until it has synced, for each update of a value
--- of 256 bytes, and in memory.
--
--   lua5.4 bench/informer.lua
--
-- The server, the writer and the client are processes of their own. The client is measured on each VM in turns, and the
-- best of each counts. Its processor time is that of all its threads. It depends on how many updates come at once, and
-- so on the writer: bench/load writes as fast as the server can, and its values are equal; this program writes more
-- slowly, and every value is another one. So is every value that exists in the beginning: LuaJIT keeps equal strings
-- once, and they would take no memory.
--
-- The memory of an object is what the heap of Lua has grown by after a full collection. The resident memory of the
-- process is more: it has what the allocator keeps for later.

local HERE = arg[0]:match("^(.-)[^/]*$")
package.path = HERE .. "?.lua;" .. package.path

local measure = require "measure"

local PREFIX = "/registry/"
local KEYS, KEY_BYTES, VALUE_BYTES = 100000, 32, 256

-- {====== The client ======

local function resident()
  collectgarbage()
  collectgarbage()
  return measure.resident()
end

--- Prints what was measured, as name=number.
local function say(what, found)
  local parts = { what }
  for name, value in pairs(found) do parts[#parts + 1] = ("%s=%.6f"):format(name, value) end
  print(table.concat(parts, " "))
  io.stdout:flush()
end

--- An informer from its beginning until n updates have come to its handler.
local function follow(url, n)
  local keywatch = require "keywatch"
  local client = keywatch.connect(url)
  client:get(PREFIX)
  local before, done = resident(), keywatch.channel(1)
  local heap = collectgarbage("count")
  local adds, updates = 0, 0
  local cpu, now = os.clock(), keywatch.now()
  local informer = assert(client:informer(PREFIX, {
    indexes = { group = function(_, key) return key:sub(-2) end },
  }))
  local handler = assert(informer:add_handler {
    add = function() adds = adds + 1 end,
    update = function()
      updates = updates + 1
      if updates == n then done:send(true, 0) end
    end,
  })
  assert(informer:wait_synced())
  local synced = { seconds = keywatch.now() - now, cpu = os.clock() - cpu }
  assert(handler:wait_synced())
  synced.handled = keywatch.now() - now
  synced.resident, synced.objects, synced.adds = resident() - before, informer:count(), adds
  synced.heap = (collectgarbage("count") - heap) * 1024
  say("synced", synced)
  cpu = os.clock()
  done:receive()
  say("updated", { cpu = os.clock() - cpu, objects = informer:count(), updates = updates })
  client:close()
end

if arg[2] == "follow" then return follow(arg[1], tonumber(arg[3])) end

-- }======

local keywatch = require "keywatch"
local serving = require "serving"

local ROUNDS = 3
local SECONDS = 300 -- after which a client has failed
local UPDATES, LONE = 200000, 10000
local OPS = 100     -- puts of a transaction that fills the server
local SIZES = (" --keys %d --key-size %d --value-size %d"):format(KEYS, KEY_BYTES, VALUE_BYTES)

--- Returns a VM: its name, and the command that runs this program as a client.
local function lua(name, version)
  local share, lib = ("build/%s/share/lua/%s"):format(name, version), ("build/%s/lib/lua/%s"):format(name, version)
  return {
    name = name,
    command = ("env -u LUA_PATH_5_4 -u LUA_CPATH_5_4 'LUA_PATH=%s/?.lua;%s/?/init.lua;;' 'LUA_CPATH=%s/?.so;;' %s %s")
      :format(share, share, lib, name, arg[0]),
  }
end

local VMS = { lua("lua5.4", "5.4"), lua("luajit", "5.1") }

-- {====== The writer ======

local DIGITS = KEY_BYTES - #PREFIX
local n_values = 0

--- Returns a key, as bench/load has them.
local function key_of(i) return PREFIX .. ("%0" .. DIGITS .. "d"):format(i) end

--- Returns a value that no other key has.
local function value()
  n_values = n_values + 1
  return ("%016d"):format(n_values) .. ("v"):rep(VALUE_BYTES - 16)
end

local function fill(client)
  for first = 1, KEYS, OPS do
    local ops = {}
    for i = 1, OPS do ops[i] = { put = key_of(first + i - 2), value = value() } end
    assert(client:txn { success = ops })
  end
end

--- Makes n updates of keys at random, so many in flight.
local function write(client, n, in_flight)
  local tasks = {}
  for first = 1, in_flight do
    tasks[first] = keywatch.spawn(function()
      for _ = first, n, in_flight do assert(client:put(key_of(math.random(KEYS) - 1), value())) end
    end)
  end
  keywatch.join(tasks)
end

-- }======

--- What a client says, as a table of numbers.
local function expect(vm, pipe, word)
  local line = pipe:read("*l") or ""
  if not line:match("^" .. word) then error(("%s has failed: %s"):format(vm.name, line), 0) end
  local found = {}
  for name, number in line:gmatch("(%S+)=(%S+)") do found[name] = tonumber(number) end
  return found
end

--- A client from its start until n puts, which are so many in flight, have come to its handler. If is_slow, this
-- program writes them.
local function run(vm, server, n, in_flight, is_slow)
  local url = "http://127.0.0.1:" .. server.port
  local writer = keywatch.connect(url)
  keywatch.run(fill, writer)
  local command = ("%s %s follow %d"):format(vm.command, url, n)
  local pipe = assert(io.popen(("exec setpriv --pdeathsig TERM timeout %d %s"):format(SECONDS, command)))
  local synced = expect(vm, pipe, "synced")
  if is_slow then
    keywatch.run(write, writer, n, in_flight)
  else
    serving.load_on(server, ("put --random -m %d -n %d"):format(in_flight, n) .. SIZES)
  end
  local updated = expect(vm, pipe, "updated")
  pipe:close()
  writer:close()
  if synced.objects ~= KEYS or synced.adds ~= KEYS or updated.objects ~= KEYS or updated.updates ~= n then
    error(vm.name .. " was not told of all", 0)
  end
  return {
    synced_seconds = synced.seconds,
    handled_seconds = synced.handled,
    synced_us = synced.cpu * 1e6 / KEYS,
    heap_bytes = synced.heap / KEYS - KEY_BYTES - VALUE_BYTES,
    resident_bytes = synced.resident / KEYS - KEY_BYTES - VALUE_BYTES,
    update_us = updated.cpu * 1e6 / n,
  }
end

--- The best of each VM, measured in turns.
local function best_of_each(...)
  local best = {}
  for _ = 1, ROUNDS do
    for _, vm in ipairs(VMS) do
      local found = run(vm, ...)
      local b = best[vm] or found
      for name, number in pairs(found) do b[name] = math.min(b[name], number) end
      best[vm] = b
    end
  end
  return best
end

local function row(title, unit, best, field)
  measure.row(title, unit, VMS, function(vm) return best[vm][field] end)
  io.stdout:flush()
end

local function measure_informers(servers)
  local server = servers[1]
  measure.headline(VMS, function(vm) return vm.name end)
  local best = best_of_each(server, UPDATES, 100)
  row(("synced, %d objects"):format(KEYS), "s (less than 1.5)", best, "synced_seconds")
  row("  the handler was told of each", "s", best, "handled_seconds")
  row("  processor time of the client, for an object", "us", best, "synced_us")
  row("memory of an object, beyond its key and value", "bytes (at most 600)", best, "heap_bytes")
  row("  the same of the process, with what is free there", "bytes", best, "resident_bytes")
  row("processor time of an update, 100 puts in flight", "us (at most 10; LuaJIT: 4)", best, "update_us")
  best = best_of_each(server, UPDATES, 100, true)
  row("  the same of a slower writer, each value another", "us", best, "update_us")
  best = best_of_each(server, LONE, 1)
  row("processor time of an update, 1 put at a time", "us", best, "update_us")
end

measure.run(("informers with one index and one handler: %d keys of %d bytes with values of %d bytes"):format(KEYS,
  KEY_BYTES, VALUE_BYTES), { { "informers", function() serving.with_servers(measure_informers) end } })
