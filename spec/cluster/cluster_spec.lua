--- A cluster of etcd members is killed, stopped and cut off, one member after the other (faults.lua), while clients
-- write, watch, lock, elect, transfer and keep caches. All results are judged as in simulations
-- (spec/simulation/real.lua). KW_DOSE=n runs for n times as long.

local keywatch = require "keywatch"

local cluster = require "spec.support.cluster"
local faults = require "spec.cluster.faults"
local network = require "spec.support.network"
local new_random = require("spec.support.random").new
local real = require "spec.simulation.real"

local SECONDS = (require("spec.support.vm").how == "check" and 12 or 25) * network.FAULTS
local PACE = 10 -- times as many steps as in a simulation
local OPTIONS = { connect_timeout = 0.5, keepalive = 0.2, keepalive_timeout = 0.5, timeout = 5 }
local KINDS = { kv = true, watcher = true, cache = true, informer = true, locks = true, leases = true, transfers = true,
  elections = true }

-- Additional options of the clients. Each begins with another member.
local CLIENTS = { {}, { prefer = "any" }, { prefer = "fastest", sync_endpoints = 1 } }

--- What must have happened, or the run shows nothing.
local NEEDS = { "in doubt", "sent again", "calls: at member 1", "calls: at member 2", "calls: at member 3",
  "endpoints: healthy", "endpoints: unavailable", "^stm: ok", "^stm: calls again", "^fenced put: ok", "^fenced txn: ok",
  "^campaign: ok", "^proclaim: ok", "^lock: ok" }

describe("a cluster under attack #slow", function()
  local c

  setup(function()
    c = cluster.start { "--experimental-watch-progress-notify-interval=200ms", "--max-txn-ops=5000" }
  end)
  teardown(function() c:stop() end)

  before_each(network.begin)
  after_each(network.finish)

  --- Clients of all members. `on_call` gets their calls.
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

  local function used_by(client)
    local endpoint = client:state().endpoint
    for i, url in ipairs(c.urls) do
      if url == endpoint then return i end
    end
  end

  --- Asks for the members and for the health of all endpoints, until the run is over.
  local function ask(sim)
    while not sim.is_over do
      local client = sim.plan_random:pick(sim.clients)
      local members = client:members { timeout = 1 }
      if members and #members ~= #c.members then sim:object(nil, "there are %d members", #members) end
      for _, one in ipairs(client:health { timeout = 1 } or {}) do
        sim:count("endpoints: " .. (one.is_healthy and "healthy" or one.err.code))
      end
      keywatch.sleep(0.5)
    end
  end

  it("lists its members to clients, with their health", function()
    local client = network.connect(c.urls, OPTIONS)
    local names, leaders, rows = {}, 0, client:health()
    for i, one in ipairs(assert(client:members())) do names[i] = one.name end
    table.sort(names)
    assert.same({ "member1", "member2", "member3" }, names)
    for i, row in ipairs(rows) do
      assert.same({ c.urls[i], true, rows[1].leader }, { row.endpoint, row.is_healthy, row.leader }, row.err)
      assert.matches("^3%.4%.", row.version)
      if row.is_leader then leaders = leaders + 1 end
    end
    assert.equal(1, leaders)
    local one, wanted = network.connect({ c.urls[2] }, OPTIONS), { c.urls[1], c.urls[2], c.urls[3] }
    local urls = assert(one:sync_endpoints())
    table.sort(urls)
    table.sort(wanted)
    assert.same(wanted, urls)
    assert.equal(c.urls[2], one:state().endpoint)
  end)

  it("keeps its guarantees", function()
    local random, own, members = new_random(network.SEED), {}, {}
    for i, member in ipairs(c.members) do members[i] = member.url end
    local sim
    own.clients = connect_all(function(call)
      if not sim then return end
      if call.attempts > 1 then sim:count("sent again") end
      for i, url in ipairs(c.urls) do
        if call.endpoint == url then sim:count("calls: at member " .. i) end
      end
    end)
    local attack = faults.new(c, random, function() return used_by(own.clients[1]) end)
    sim = real.run {
      seed = network.SEED, seconds = SECONDS, pace = PACE, kinds = KINDS, clients = own.clients,
      direct = network.connect(members), is_etcd = true, is_cluster = true,
      attack = function(running)
        sim = running
        sim.plan_random = random
        local asking = keywatch.spawn(ask, sim)
        attack:run(SECONDS, function() return #sim.objections > 0 end, function() return not sim:missing(NEEDS) end)
        sim.is_over = true
        asking:join()
      end,
    }
    print(attack:report())
    assert.same({}, attack:missing())
    assert.is_nil(sim:missing(NEEDS))
  end)
end)
