--- The number of system calls for a request, once the connection is open: write, wait and read.

local process = require "spec.support.process"
local server = require "spec.support.server"

local GETS, LIMIT = 200, 4

local VERSION = { ["lua5.4"] = "5.4", luajit = "5.1" }

-- Makes the requests between two marks: system calls that occur nowhere else.
local PROGRAM = [[
  local keywatch = require "keywatch"
  local client = keywatch.connect(os.getenv("URL"))
  local function get_all()
    for _ = 1, %d do assert(client:get("a")) end
  end
  local function measure()
    get_all()
    io.open("/no such directory/begin")
    get_all()
    io.open("/no such directory/end")
  end
  assert(client:put("a", "1"))
  measure()
  keywatch.run(measure)
  client:close()
]]

--- Counts the system calls between each pair of marks in the output of strace: a table by name, and their sum.
local function counts_of(trace)
  local all = {}
  for part in trace:gmatch("directory/begin\"[^\n]*\n(.-)[^\n]*directory/end") do
    local counts, sum = {}, 0
    for name in ("\n" .. part):gmatch("\n[^\n%a]*([%w_]+)%(") do
      counts[name], sum = (counts[name] or 0) + 1, sum + 1
    end
    all[#all + 1] = { counts = counts, sum = sum }
  end
  return all
end

describe("a get of a client #once", function()
  local peer

  setup(function() peer = server.start { kind = "keywatch", is_in_memory = true } end)
  teardown(function() peer:stop() end)
  after_each(process.end_all)

  for vm, version in pairs(VERSION) do
    it(("makes at most %d system calls, at top level and in a task, on %s"):format(LIMIT, vm), function()
      local share, lib = ("build/%s/share/lua/%s"):format(vm, version), ("build/%s/lib/lua/%s"):format(vm, version)
      local child = process.run({ "strace", "-f", "-e", "signal=none", vm, "-e", PROGRAM:format(GETS) }, nil, { env = {
        URL = peer.url,
        LUA_PATH = ("%s/?.lua;%s/?/init.lua"):format(share, share),
        LUA_CPATH = lib .. "/?.so",
      } })
      assert.equal(0, child.status, child:transcript())
      local all = counts_of(child:stderr())
      assert.equal(2, #all)
      for _, one in ipairs(all) do
        assert.is_true(one.counts.sendmsg >= GETS) -- the trace has the calls of the client
        local received = {}
        for name, n in pairs(one.counts) do received[#received + 1] = name .. " " .. n end
        assert(one.sum <= LIMIT * GETS, ("%d calls: %s"):format(one.sum, table.concat(received, ", ")))
      end
    end)
  end
end)
