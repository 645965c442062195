--- A cluster of etcd members is killed, stopped and cut off, one member after the other, while clients work on it. All
-- that they were told must fit the history that the cluster has in the end.
--
-- KW_DOSE=n goes on for n times as long. See world.lua for what is counted, faults.lua for what happens, and the
-- modules of the trades for what must be true.

local keywatch = require "keywatch"

local cluster = require "spec.support.cluster"
local elections = require "spec.cluster.elections"
local faults = require "spec.cluster.faults"
local histories = require "spec.cluster.history"
local leases = require "spec.cluster.leases"
local locks = require "spec.cluster.locks"
local network = require "spec.support.network"
local new_random = require("spec.support.random").new
local new_world = require("spec.cluster.world").new
local transfers = require "spec.cluster.transfers"
local watchers = require "spec.cluster.watchers"
local writers = require "spec.cluster.writers"

local SECONDS = require("spec.support.vm").how == "check" and 12 or 25
local PATIENCE = network.PATIENCE
local OPTIONS = { connect_timeout = 0.5, keepalive = 0.2, keepalive_timeout = 0.5, timeout = 5 }

-- What the clients have in addition. Each begins with another member.
local CLIENTS = { {}, { prefer = "any" }, { prefer = "fastest", sync_endpoints = 1 } }

local PREFIXES = { "", writers.PREFIX, leases.PREFIX }

describe("a cluster under attack #slow", function()
  local c

  setup(function() c = cluster.start { "--experimental-watch-progress-notify-interval=200ms" } end)
  teardown(function() c:stop() end)

  before_each(network.begin)
  after_each(network.finish)

  --- Clients of all members. `on_call` is told of their calls.
  local function connect_all(on_call)
    local clients = {}
    for i, more in ipairs(CLIENTS) do
      local urls, options = {}, { on_call = on_call }
      for j = 1, #c.urls do urls[j] = c.urls[(i + j - 2) % #c.urls + 1] end
      for name, value in pairs(OPTIONS) do options[name] = value end
      for name, value in pairs(more) do options[name] = value end
      clients[i] = network.connect(urls, options)
    end
    return clients
  end

  --- What must have happened, or the run shows nothing: what is counted, a pattern of outcomes, and how often.
  local NEEDS = {
    { "put", "in doubt", 1 }, { "txn", "in doubt", 1 }, { "range", "ok", 1 }, { "sent again", "", 1 },
    { "calls", "at member 1", 1 }, { "calls", "at member 2", 1 }, { "calls", "at member 3", 1 },
    { "endpoints", "^healthy", 1 }, { "endpoints", "unavailable", 1 }, { "stm", "^ok", 1 }, { "stm", "calls again", 1 },
    { "fenced put", "^ok", 1 }, { "fenced txn", "^ok", 1 }, { "unlock, robbed", "^lost", 1 },
    { "ends of locks", "unlock", 2 }, { "ends of leading", "resign", 2 }, { "lost leases", "", 1 },
    { "campaign", "^ok", 2 }, { "proclaim", "^ok", 1 }, { "lock", "timeout", 1 },
    { "lock, cancelled", "^cancelled", 1 },
  }

  --- What of that has not happened yet.
  local function missing(world)
    local list = {}
    for _, need in ipairs(NEEDS) do
      if world:counted(need[1], need[2]) < need[3] then list[#list + 1] = need[1] .. ": " .. need[2] end
    end
    return list
  end

  --- Counts the calls that were sent more than once, and the members that have answered.
  local function counter(world)
    return function(call)
      if call.attempts > 1 then world:count("sent again", call.method:match("[^/]*$")) end
      for i, url in ipairs(c.urls) do
        if call.endpoint == url then world:count("calls", "at member " .. i) end
      end
    end
  end

  --- Asks for the members and for the health of all endpoints.
  local function ask(world)
    local client = world:client()
    local members, err = client:members { timeout = world:patience() }
    world:note("members", members, err)
    if members and #members ~= #c.members then world:object("there are %d members", #members) end
    local health
    health, err = client:health { timeout = world:patience() }
    world:note("health", health, err)
    for _, one in ipairs(health or {}) do world:count("endpoints", one.is_healthy and "healthy" or one.err.code) end
    keywatch.sleep(0.5)
  end

  local function used_by(client)
    local endpoint = client:state().endpoint
    for i, url in ipairs(c.urls) do
      if url == endpoint then return i end
    end
  end

  --- The last write of all, in the range of every watch; by a client that nothing stands in the way of.
  local function write_last(direct)
    local ops = {}
    for i, prefix in ipairs(PREFIXES) do ops[i] = { put = prefix .. "/end", value = watchers.END } end
    return assert(direct:txn({ success = ops }, { timeout = PATIENCE })).revision
  end

  it("keeps its promises", function()
    keywatch.run(function()
      local random = new_random(network.SEED)
      local direct = network.connect(c.members[1].url)
      local world = new_world({}, random)
      world.clients = connect_all(counter(world))
      local attack = faults.new(c, random, function() return used_by(world.clients[1]) end)
      local first = assert(direct:put("/begin", "begin")).revision

      local watching = watchers.start(world, PREFIXES, first + 1)
      local writing = writers.start(world, 6)
      local keeping = leases.start(world, 6)
      local locking = locks.start(world, 2)
      local leading = elections.start(world, 1)
      local transferring = transfers.start(world, 3)
      world:work("the health", ask)
      world:collect()
      attack:run(SECONDS * network.FAULTS, function() return world.is_over end, function()
        return #missing(world) == 0
      end)
      world:finish()
      leases.finish(world, direct)
      locks.finish(world, locking, direct)
      elections.finish(world, leading, direct)
      local last = write_last(direct)
      watchers.finish(watching, last)

      local history = histories.read(direct, last)
      writers.judge(world, history, writing)
      leases.judge(world, history, keeping)
      locks.judge(world, history, locking)
      elections.judge(world, history, leading)
      transfers.judge(world, history, transferring)
      watchers.judge(world, history, watching)

      print(attack:report())
      print(world:report())
      print(("  %d revisions"):format(last))
      assert.same({}, world.objections)
      assert.same({}, attack:missing())
      assert.same({}, missing(world))
      for _, what in ipairs { "counted behind locks", "counted behind leading" } do
        assert.is_true(world:counted(what, "changes") > 1, what .. ": nothing has changed hands")
      end
    end)
  end)
end)
