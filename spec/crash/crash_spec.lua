--- Servers that are processes: they are killed again and again, their power fails, and the network before them is bad,
-- while clients write, watch, lock, elect and keep caches. All results are judged as in simulations
-- (spec/simulation/real.lua). KW_DOSE=n runs for n times as long.

local keywatch = require "keywatch"

local directory = require "spec.support.directory"
local network = require "spec.support.network"
local new_random = require("spec.support.random").new
local new_weather = require("spec.support.weather").new
local proxy = require "spec.support.proxy"
local real = require "spec.simulation.real"
local uv = require "spec.support.luv"

local FAULT = "build/fault.so" -- of spec/support/fault.c
local SECONDS = 4 * network.FAULTS
local CLIENTS = 4
local PACE = 40 -- times as many steps as in a simulation
local FLAGS = { "--max-txn-ops=5000", "--grpc-keepalive-min-time=1ms" }
local KINDS = { kv = true, watcher = true, cache = true, informer = true, queue = true, locks = true, leases = true,
  transfers = true, elections = true }

describe("servers that are processes #slow #once", function()
  local random, path, peer, options

  before_each(function()
    network.begin()
    random, path = new_random(network.SEED), directory.new()
  end)

  after_each(function()
    network.finish()
    directory.remove_all()
  end)

  --- Starts the server, where the last one was. `more` are options of network.start.
  local function start(kind, more)
    options = { path = path, port = peer and peer.port, peer_port = peer and peer.peer_port }
    for name, value in pairs(more or {}) do options[name] = value end
    for i, flag in ipairs(FLAGS) do options[i] = flag end
    peer = network.start(kind, options)
  end

  local function kill()
    peer.process:signal("sigkill")
    peer.process:wait()
  end

  --- Runs actors at a server for so many seconds, in which strike(is_last) is called again and again. Clients come by
  -- `url`.
  local function run(kind, url, strike)
    local clients = {}
    for i = 1, CLIENTS do clients[i] = network.connect(url) end
    local sim = real.run {
      seed = network.SEED, seconds = SECONDS, pace = PACE, kinds = KINDS, clients = clients,
      direct = network.connect(peer.url), is_etcd = kind == "etcd",
      attack = function()
        local deadline = keywatch.now() + SECONDS
        while keywatch.now() < deadline do strike(false) end
        strike(true)
      end,
    }
    local never = sim:missing { "^put: ok", "^txn: ok", "in doubt", "^lock: ok", "^stm: ok" }
    if never then error("this never happened: " .. never, 0) end
  end

  after_each(function() peer = nil end)

  network.of_each(function(kind)
    it("keep their guarantees behind a bad network, whenever they are killed: " .. kind, function()
      start(kind)
      local between = proxy.start(peer.url)
      local weather = new_weather(between, random)
      run(kind, between.url, function(is_last)
        keywatch.sleep(random:between(1, 200) / 1000)
        if random:one_in(8) then
          kill()
          start(kind)
        end
        if is_last then weather:clear() else weather:change() end
      end)
    end)
  end)

  --- The disk ends the server at a later sync; groups have two of them, and are not there before the second.
  it("keep their guarantees when they are killed, or the power fails, before, in and after a commit", function()
    local control = directory.new() .. "/plan"
    local more = { preload = FAULT, env = { KW_FAULT_DIR = path, KW_FAULT_CONTROL = control } }
    start("keywatch", more)
    run("keywatch", peer.url, function()
      keywatch.sleep(random:between(0, 50) / 1000)
      local file = assert(io.open(control .. ".next", "w"))
      file:write(("%s sync %d %s %d\n"):format(random:pick { "kill", "cut" }, random:between(1, 200),
        random:pick { "before", "after" }, random:next()))
      file:close()
      assert(os.rename(control .. ".next", control))
      while peer:is_running() do
        keywatch.sleep(0.002)
        uv.run("nowait")
      end
      os.remove(control)
      start("keywatch", more)
    end)
  end)
end)
