-- SPDX-License-Identifier: MIT
--- The server of bench/kubernetes.lua, in a process of its own: widgets and config maps, served beside
-- etcd's calls, on a port that the kernel chooses.

local compat = require "keywatch.support.compat"
local driver = require "keywatch.task.driver"
local keywatch = require "keywatch"
local kubernetes = require "keywatch.kubernetes"

local SCHEMA = { type = "object", properties = {
  spec = { type = "object", properties = {
    size = { type = "integer", minimum = 0, default = 1 }, note = { type = "string", maxLength = 2000 },
    pad = { type = "string" },
  } },
} }

--- Measures turns of the loop by the processor time between them. Returns the longest one since the last call, in s.
local function watch_turns()
  local longest, last = 0, os.clock()
  driver.get().attach { poll = function()
    local now = os.clock()
    longest, last = math.max(longest, now - last), now
    return nil
  end }
  return function()
    local found = longest
    longest = 0
    return found
  end
end

compat.collect_in_steps() -- as the program keywatch does
keywatch.run(function()
  local store = keywatch.open()
  local api = kubernetes.api { store = store, compact = false, resources = {
    { group = "bench.example", version = "v1", kind = "Widget", plural = "widgets", schema = SCHEMA },
    kubernetes.builtin.configmaps,
  } }
  local server = assert(keywatch.serve { store = store, listen = "http://127.0.0.1:0" })
  api:mount(server)
  server:handle("GET", "/collect", function()
    collectgarbage()
    collectgarbage()
    return ("%.0f"):format(collectgarbage "count")
  end)
  local longest
  server:handle("GET", "/longest", function()
    longest = longest or watch_turns()
    return ("%.6f"):format(longest())
  end)
  print(server:addresses()[1])
  io.stdout:flush()
  keywatch.sleep(1e6)
end)
