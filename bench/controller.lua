-- SPDX-License-Identifier: MIT
--- What controllers cost: rounds of a work queue, and a controller that reconciles 100,000 objects after its start.
--
--   lua5.4 bench/controller.lua
--
-- A round is an add, a get and a done. The controller has an informer as its source, and a reconcile that does nothing;
-- the time is from the informer's beginning until reconcile has been called for each object. The objects are in a store
-- of the same process; or in a server of its own, with a client in this one. Each is measured on each VM in turns, in a
-- process of its own, and the best counts. The memory is the most that the process ever had: with all that is in it;
-- and beyond what it had before, which is mainly the store, if that is there.

local HERE = arg[0]:match("^(.-)[^/]*$")
package.path = HERE .. "?.lua;" .. package.path

local measure = require "measure"

local PREFIX = "/registry/"
local KEYS, KEY_BYTES, VALUE_BYTES = 100000, 32, 256
local OPS = 100         -- puts of a transaction that fills a store
local ITEMS = 1000      -- of the work queue
local ITEM_ROUNDS = 1000000

-- {====== What is measured, in a process of its own ======

--- The most memory that this process ever had, in bytes.
local function peak()
  for line in io.lines("/proc/self/status") do
    local kilobytes = line:match("^VmHWM:%s*(%d+)")
    if kilobytes then return tonumber(kilobytes) * 1024 end
  end
end

--- Prints what was measured, as name=number.
local function say(found)
  local parts = {}
  for name, value in pairs(found) do parts[#parts + 1] = ("%s=%.6f"):format(name, value) end
  print(table.concat(parts, " "))
end

--- Fills a store or client with objects. All values differ.
local function fill(store)
  local digits = KEY_BYTES - #PREFIX
  for first = 1, KEYS, OPS do
    local ops = {}
    for i = 1, OPS do
      local n = first + i - 1
      ops[i] = { put = PREFIX .. ("%0" .. digits .. "d"):format(n),
        value = ("%016d"):format(n) .. ("v"):rep(VALUE_BYTES - 16) }
    end
    assert(store:txn { success = ops })
  end
end

local measured = {}

--- Rounds of a work queue in a second: an item at a time, and all items at a time.
function measured.queue()
  local queue, items = require("keywatch.controller").work_queue(), {}
  for i = 1, ITEMS do items[i] = ("%s%022d"):format(PREFIX, i) end
  local one = measure.rate(ITEM_ROUNDS, 1, function()
    for i = 1, ITEM_ROUNDS do
      queue:add(items[i % ITEMS + 1])
      queue:done((queue:get()))
    end
  end)
  local all = measure.rate(ITEM_ROUNDS, 1, function()
    for _ = 1, ITEM_ROUNDS / ITEMS do
      for i = 1, ITEMS do queue:add(items[i]) end
      for _ = 1, ITEMS do queue:done((queue:get())) end
    end
  end)
  say { one = one, all = all }
end

--- A controller over the objects of a store or client, until each is reconciled.
local function control(store)
  local keywatch, controller = require "keywatch", require "keywatch.controller"
  collectgarbage()
  local before = measure.resident()
  local calls, cpu, now = 0, os.clock(), keywatch.now()
  local informer = assert(store:informer(PREFIX))
  local one
  one = controller.new { name = "bench", sources = { informer }, reconcile = function()
    calls = calls + 1
    if calls == KEYS then one:stop() end
  end }
  assert(one:run())
  say { seconds = keywatch.now() - now, cpu = os.clock() - cpu, peak = peak(), more = peak() - before, calls = calls }
end

function measured.inside()
  local store = require("keywatch").open()
  fill(store)
  control(store)
end

function measured.wire(url)
  control(require("keywatch").connect(url))
end

if measured[arg[1]] then return measured[arg[1]](arg[2]) end

-- }======

local keywatch = require "keywatch"
local serving = require "serving"

local ROUNDS = 3
local SECONDS = 300 -- after which a process has failed

--- Returns a VM: its name, and the command that runs this program.
local function lua(name, version)
  local share, lib = ("build/%s/share/lua/%s"):format(name, version), ("build/%s/lib/lua/%s"):format(name, version)
  return {
    name = name,
    command = ("env -u LUA_PATH_5_4 -u LUA_CPATH_5_4 'LUA_PATH=%s/?.lua;%s/?/init.lua;;' 'LUA_CPATH=%s/?.so;;' %s %s")
      :format(share, share, lib, name, arg[0]),
  }
end

local VMS = { lua("lua5.4", "5.4"), lua("luajit", "5.1") }

--- Runs this program in a process of its own. Returns what it says, as a table of numbers.
local function run(vm, what, url)
  local pipe = assert(io.popen(("exec timeout %d %s %s %s"):format(SECONDS, vm.command, what, url or "")))
  local line, found = pipe:read("*l") or "", {}
  pipe:close()
  for name, number in line:gmatch("(%S+)=(%S+)") do found[name] = tonumber(number) end
  if not next(found) then error(("%s has failed: %s"):format(vm.name, line), 0) end
  return found
end

--- The best of each VM, measured in turns: the highest of rates, the lowest of all else.
local function best_of_each(what, url, better)
  local best = {}
  for _ = 1, ROUNDS do
    for _, vm in ipairs(VMS) do
      local found = run(vm, what, url)
      best[vm] = best[vm] or found
      for name, number in pairs(found) do best[vm][name] = better(best[vm][name], number) end
    end
  end
  return best
end

local function row(title, unit, best, field, divisor)
  measure.row(title, unit, VMS, function(vm) return best[vm][field] / (divisor or 1) end)
  io.stdout:flush()
end

local function measure_queue()
  measure.headline(VMS, function(vm) return vm.name end)
  local best = best_of_each("queue", nil, math.max)
  row("rounds of a work queue, an item at a time", "/s (at least 500000)", best, "one")
  row(("  the same, %d items at a time"):format(ITEMS), "/s", best, "all")
end

local function measure_controllers(servers)
  local url = "http://127.0.0.1:" .. servers[1].port
  local client = keywatch.connect(url)
  keywatch.run(fill, client)
  client:close()
  for _, where in ipairs { { "inside", "a store in process" }, { "wire", "a server" } } do
    local best = best_of_each(where[1], url, math.min)
    row(("%d objects of %s are reconciled"):format(KEYS, where[2]), "s (less than 2)", best, "seconds")
    row("  processor time", "s", best, "cpu")
    row("  most memory, beyond what there was before", "MB (less than 150)", best, "more", 1e6)
    row("  the same, of the whole process", "MB", best, "peak", 1e6)
  end
end

measure.run(("controllers: %d keys of %d bytes with values of %d bytes"):format(KEYS, KEY_BYTES, VALUE_BYTES), {
  { "work queue", measure_queue },
  { "controllers", function() serving.with_servers(measure_controllers) end },
})
