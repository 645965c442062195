--- Workers of nginx that follow a server through bad weather: each ends with the right data, no event is lost, and none
-- comes twice.

local directory = require "spec.support.directory"
local network = require "spec.support.network"
local nginx_stage = require "spec.support.nginx_stage"
local nginx_weather = require "spec.support.nginx_weather"
local proc = require "spec.support.proc"
local randoms = require "spec.support.random"

-- What nginx itself says of a connection that the other side has reset: no directive keeps it from that.
local RESET = "%l+%(%) failed %(104: Connection reset by peer%)"
local BROKEN = "send%(%) failed %(32: Broken pipe%)"

local MOST_MIB = 6 -- by which a worker may grow: the heaps of Lua and C breathe

--- A list in a random order.
local function shuffled(list, random)
  local all = {}
  for i, item in ipairs(list) do table.insert(all, random:between(1, i), item) end
  return all
end

describe("workers of nginx in bad weather #once #peer", function()
  nginx_stage.with_tests()
  local weather

  after_each(function()
    if weather and weather.server:is_running() then weather.server:stop() end
    weather = nil
    directory.remove_all()
  end)

  for _, kind in ipairs { "keywatch", "etcd" } do
    for _, is_tls in ipairs { false, true } do
      it(("follow %s%s"):format(kind, is_tls and " with mutual TLS" or ""), function()
        local random = randoms.new(network.SEED)
        weather = nginx_weather.start(kind, is_tls, random)
        local load = weather.stage:load("/read", 4)
        for _ = 1, network.FAULTS do
          for _, name in ipairs(shuffled(nginx_weather.NAMES, random)) do weather:happen(name) end
        end
        local found = load:finish()
        weather:compare_journals()
        io.stdout:write(weather:report(), (", %d requests"):format(found.requests), "\n")
        assert(found.requests > 0)
        assert.equal(0, found.bad)
        for _, name in ipairs(nginx_weather.NAMES) do assert(weather.counts[name], name) end
        for _, name in ipairs(nginx_weather.OUTCOMES) do assert(weather.counts[name], name) end
        assert.equal("", weather.stage:troubles("begins anew", "exited on signal 9", RESET, BROKEN))
        assert.equal(0, weather.stage:quit())
        weather:close()
      end)
    end
  end

  it("have flat memory while events come", function()
    local n, burst = 20000 * network.FAULTS, 100
    weather = nginx_weather.start("keywatch", false, randoms.new(network.SEED))
    local function write(count)
      for i = 1, count / burst do
        local ops = {}
        for j = 1, burst do ops[j] = { put = "/weather/many/" .. (i * burst + j) % 500, value = ("v"):rep(100) } end
        assert(weather.client:txn { success = ops })
      end
      local revision = assert(weather.client:put("/weather/mark", tostring(count))).revision
      weather.stage:await_each(("return follower.last >= %.0f"):format(revision))
      weather.stage:ask_each("collectgarbage() collectgarbage()")
      local sizes = {}
      for i, pid in ipairs(weather.stage:workers()) do sizes[i] = proc.resident(pid) end
      return sizes
    end
    weather.stage:await_each("return follower.n_segments == 1")
    write(n / 2)
    local before = write(n / 4)
    local after = write(n / 4)
    for i = 1, 2 do
      local grown = (after[i] - before[i]) / 2 ^ 20
      io.stdout:write(("worker %d: %.1f MiB, %.1f more than "):format(i, after[i] / 2 ^ 20, grown), n / 4,
        " events before\n")
      assert(grown < MOST_MIB, ("grown by %.1f MiB"):format(grown))
    end
    assert.same({ n + 3, n + 3 }, weather.stage:ask_each("return follower.n_events"))
    assert.equal("", weather.stage:troubles())
  end)
end)
